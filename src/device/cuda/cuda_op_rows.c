/* Ops of single rows (kernels: rows.cu): embed, rmsnorm, pointwise ops, convert, gather_rows. */
#include "cuda_ops.h"

static ln_status prepare_embed(gpu_preparing *p, gpu_node *g, ln_error *err) {
    g->scale = p->n->p.embed.scale;
    return gpu_weight_operand(p, 0, &g->w, err);
}
static int launch_embed(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    return gpu_embed(l, s, &g->w, &g->y, g->scale);
}
const gpu_op gpu_op_embed = {.prepare = prepare_embed, .launch = launch_embed};

static bool can_normalize(const ln_lower_ask *q) { return q->n_in == 2; } /* with a weight */
static double rmsnorm_tolerance(const ln_lower_ask *q) {
    return 2 * GPU_UNIT * ((double)q->in[1].dims[0] / 16 + 8) + gpu_rounding(q);
}
static ln_status prepare_rmsnorm(gpu_preparing *p, gpu_node *g, ln_error *err) {
    g->eps = p->n->p.norm.eps, g->offset = p->n->p.norm.offset;
    LN_TRY(gpu_operand(p, 0, &g->x, err));
    return gpu_weight_operand(p, 1, &g->w, err);
}
static int launch_rmsnorm(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    return gpu_rmsnorm(l, s, &g->x, &g->w, &g->y, g->eps, g->offset);
}
const gpu_op gpu_op_rmsnorm = {.can = can_normalize,
                               .tolerance = rmsnorm_tolerance,
                               .prepare = prepare_rmsnorm,
                               .launch = launch_rmsnorm};

static ln_status prepare_pointwise(gpu_preparing *p, gpu_node *g, ln_error *err) {
    const bool silu = p->n->p.gate.act == LN_ACT_SILU; /* of LN_OP_GATED */
    g->variant = p->n->op == LN_OP_ADD         ? GPU_ADD
                 : p->n->op == LN_OP_MUL       ? GPU_MUL
                 : p->n->op == LN_OP_SILU      ? GPU_SILU
                 : p->n->op == LN_OP_GELU_TANH ? GPU_GELU_TANH
                 : p->n->op == LN_OP_CONVERT   ? GPU_CONVERT
                 : silu                        ? GPU_GATED_SILU
                                               : GPU_GATED_GELU;
    LN_TRY(gpu_operand(p, 0, &g->x, err));
    return p->n->n_in > 1 ? gpu_operand(p, 1, &g->second, err) : LN_OK;
}
static int launch_pointwise(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    return gpu_pointwise(l, s, g->variant, &g->x, g->second.data ? &g->second : NULL, &g->y);
}
const gpu_op gpu_op_pointwise = {.prepare = prepare_pointwise, .launch = launch_pointwise};

static bool can_convert(const ln_lower_ask *q) {
    return ((const ln_p_convert *)q->params)->to.kind == LN_FORMAT_BF16;
}
const gpu_op gpu_op_convert = {.can = can_convert, .prepare = prepare_pointwise, .launch = launch_pointwise};

static ln_status prepare_gather(gpu_preparing *p, gpu_node *g, ln_error *err) {
    return gpu_operand(p, 0, &g->x, err);
}
static int launch_gather(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    return gpu_gather_rows(l, s, &g->x, &g->y);
}
const gpu_op gpu_op_gather_rows = {.prepare = prepare_gather, .launch = launch_gather};
