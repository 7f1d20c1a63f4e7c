/* Mixtures of experts: route, experts, fold_rows. The kernels are in experts.cu and experts_*.cuh. */
#include "cuda_ops.h"

_Static_assert((int)GPU_ROUTE_SOFTMAX == (int)LN_ROUTE_SOFTMAX &&
                   (int)GPU_ROUTE_CHOSEN == (int)LN_ROUTE_CHOSEN &&
                   (int)GPU_ROUTE_SIGMOID == (int)LN_ROUTE_SIGMOID,
               "the kinds of ln_route_kind");

static ln_status prepare_route(gpu_preparing *p, gpu_node *g, ln_error *err) {
    const ln_p_route *from = &p->n->p.route;
    g->route = (gpu_route){.kind = (int32_t)from->kind,
                           .top_k = from->top_k,
                           .n_groups = from->n_groups,
                           .top_groups = from->top_groups,
                           .normed = from->normed,
                           .eps = from->eps,
                           .factor = from->factor};
    LN_TRY(gpu_operand(p, 0, &g->x, err));
    LN_TRY(gpu_array_of(p->e, p->n->out[1], &g->second, err));
    if (from->biased) LN_TRY(gpu_weight_operand(p, 1, &g->route.bias, err));
    return from->scaled ? gpu_weight_operand(p, 1 + from->biased, &g->route.scale, err) : LN_OK;
}
static int launch_route(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    return gpu_route_rows(l, s, &g->route, &g->x, &g->y, &g->second);
}
const gpu_op gpu_op_route = {.prepare = prepare_route, .launch = launch_route};

static ln_status prepare_fold(gpu_preparing *p, gpu_node *g, ln_error *err) {
    g->n_heads = p->n->p.fold.n;
    LN_TRY(gpu_operand(p, 0, &g->x, err));
    return p->n->n_in > 1 ? gpu_operand(p, 1, &g->second, err) : LN_OK;
}
static int launch_fold(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    return gpu_fold_rows(l, s, &g->x, &g->second, g->n_heads, &g->y);
}
const gpu_op gpu_op_fold_rows = {.prepare = prepare_fold, .launch = launch_fold};

static bool can_multiply(const ln_lower_ask *q) {
    return q->in[1].kind == LN_KIND_WEIGHT && q->in[0].format.kind <= LN_FORMAT_BF16;
}
static double experts_tolerance(const ln_lower_ask *q) {
    const double each = gpu_product_tolerance(q->in[1].enc, q->in[1].dims[2]);
    return each > 0 ? each + gpu_rounding(q) : 0;
}
static int64_t most_pairs(const ln_program *p, const ln_pnode *n) {
    return ln_dim(ln_program_value(p, n->in[2])->dims[0], &p->bounds);
}
static void experts_bytes(const ln_dev *d, const ln_program *p, const ln_pnode *n, gpu_need *need) {
    const int32_t experts = (int32_t)ln_program_value(p, n->in[1])->dims[0];
    (void)d;
    need->scratch = LN_MAX(need->scratch, gpu_experts_scratch(most_pairs(p, n), experts));
}
static ln_status prepare_experts(gpu_preparing *p, gpu_node *g, ln_error *err) {
    const ln_pvalue *w = ln_program_value(p->e->program, p->n->in[1]);
    gpu_experts *to = &g->experts;
    *to = (gpu_experts){.y = g->y,
                        .D = w->dims[1],
                        .n_experts = (int32_t)w->dims[0],
                        .top_k = p->n->p.experts.top_k,
                        .shared = p->n->p.experts.shared,
                        .n_pairs = most_pairs(p->e->program, p->n),
                        .lists = p->e->scratch};
    LN_TRY(gpu_operand(p, 0, &to->x, err));
    LN_TRY(gpu_weight_operand(p, 1, &to->w, err));
    LN_TRY(gpu_operand(p, 2, &to->ids, err));
    return p->n->n_in > 3 ? gpu_weight_operand(p, 3, &to->bias, err) : LN_OK;
}
static int launch_experts(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    return gpu_run_experts(l, s, &g->experts);
}
const gpu_op gpu_op_experts = {.can = can_multiply,
                               .tolerance = experts_tolerance,
                               .bytes = experts_bytes,
                               .prepare = prepare_experts,
                               .launch = launch_experts};
