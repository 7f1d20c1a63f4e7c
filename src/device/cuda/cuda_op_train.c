/* Ops of training whose outputs are made row by row, and sums (kernels: back_rows.cu, back_sums.cu). */
#include "cuda_ops.h"

#include <math.h>

static ln_status prepare_x(gpu_preparing *p, gpu_node *g, ln_error *err) {
    return gpu_operand(p, 0, &g->x, err);
}
static ln_status prepare_pair(gpu_preparing *p, gpu_node *g, ln_error *err) {
    LN_TRY(gpu_operand(p, 0, &g->x, err));
    return gpu_operand(p, 1, &g->second, err);
}
/* The rows of operand k, at most. */
static int64_t most_rows(const ln_program *p, const ln_pnode *n, int k) {
    return ln_dim(ln_program_value(p, n->in[k])->dims[0], &p->bounds);
}

/* ---- element by element ---- */

static ln_status prepare_load(gpu_preparing *p, gpu_node *g, ln_error *err) {
    return gpu_bound_operand(p, 0, &g->x, err);
}
static int launch_load(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    return gpu_load(l, s, &g->x, &g->y);
}
const gpu_op gpu_op_load = {.prepare = prepare_load, .launch = launch_load};

static ln_status prepare_spread(gpu_preparing *p, gpu_node *g, ln_error *err) {
    g->scale = p->n->p.spread.factor;
    return p->n->n_in > 0 ? gpu_operand(p, 0, &g->x, err) : LN_OK;
}
static int launch_spread(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    return gpu_spread(l, s, g->x.data ? &g->x : NULL, g->scale, &g->y);
}
const gpu_op gpu_op_spread = {.prepare = prepare_spread, .launch = launch_spread};

static ln_status prepare_slice_back(gpu_preparing *p, gpu_node *g, ln_error *err) {
    g->at = p->n->p.slice.at;
    return gpu_operand(p, 0, &g->x, err);
}
static int launch_slice_back(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    return gpu_slice_back(l, s, &g->x, g->at, &g->y);
}
const gpu_op gpu_op_slice_back = {.prepare = prepare_slice_back, .launch = launch_slice_back};

static int launch_reshape(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    return gpu_reshape(l, s, &g->x, &g->y);
}
const gpu_op gpu_op_reshape = {.prepare = prepare_x, .launch = launch_reshape};

static int launch_scatter(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    return gpu_scatter_rows(l, s, &g->x, &g->y);
}
const gpu_op gpu_op_scatter_rows = {.prepare = prepare_x, .launch = launch_scatter};

static ln_status prepare_embed_back(gpu_preparing *p, gpu_node *g, ln_error *err) {
    g->scale = p->n->p.spread.factor;
    g->at = p->n->p.spread.padding - 1;
    return gpu_operand(p, 0, &g->x, err);
}
static int launch_embed_back(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    return gpu_embed_back(l, s, &g->x, g->scale, (int32_t)g->at, &g->y);
}
const gpu_op gpu_op_embed_back = {.prepare = prepare_embed_back, .launch = launch_embed_back};

static ln_status prepare_dropout(gpu_preparing *p, gpu_node *g, ln_error *err) {
    const ln_p_dropout *d = &p->n->p.dropout;
    g->dropout = (gpu_dropout){.seed = d->seed,
                               .site = d->site,
                               .least = (uint32_t)((double)d->p * 0x1p32),
                               .by = (float)(1 / (1 - (double)d->p)),
                               .of_outputs = d->of_outputs};
    LN_TRY(gpu_operand(p, 0, &g->x, err));
    return gpu_integers_operand(p, 1, &g->dropout.samples, err);
}
static int launch_dropout(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    return gpu_drop(l, s, &g->dropout, &g->x, &g->y);
}
const gpu_op gpu_op_dropout = {.prepare = prepare_dropout, .launch = launch_dropout};

/* ---- sums ---- */

static void sum_bytes(const ln_dev *d, const ln_program *p, const ln_pnode *n, gpu_need *need) {
    (void)d;
    if (n->p.sum.kind == LN_SUM_ALL)
        need->scratch = LN_MAX(need->scratch, (size_t)most_rows(p, n, 0) * sizeof(float));
}
static ln_status prepare_sum(gpu_preparing *p, gpu_node *g, ln_error *err) {
    _Static_assert((int)GPU_SUM_ALL == (int)LN_SUM_ALL && (int)GPU_SUM_ROWS == (int)LN_SUM_ROWS &&
                       (int)GPU_SUM_COLS == (int)LN_SUM_COLS,
                   "kinds of sums");
    g->variant = (int)p->n->p.sum.kind;
    g->work = p->e->scratch;
    return gpu_operand(p, 0, &g->x, err);
}
static int launch_sum(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    return gpu_sum(l, s, g->variant, &g->x, g->work, &g->y);
}
const gpu_op gpu_op_sum = {.bytes = sum_bytes, .prepare = prepare_sum, .launch = launch_sum};

/* Of two sums over the columns of a row, in other orders. */
static double row_tolerance(const ln_lower_ask *q) {
    return 2 * GPU_UNIT * ((double)q->in[0].dims[1] / 16 + 16);
}
static int launch_softmax(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    return gpu_softmax(l, s, &g->x, &g->y);
}
const gpu_op gpu_op_softmax = {.tolerance = row_tolerance, .prepare = prepare_x, .launch = launch_softmax};

static int launch_softmax_back(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    return gpu_softmax_back(l, s, &g->x, &g->second, &g->y);
}
const gpu_op gpu_op_softmax_back = {
    .tolerance = row_tolerance, .prepare = prepare_pair, .launch = launch_softmax_back};

static ln_status prepare_nll(gpu_preparing *p, gpu_node *g, ln_error *err) {
    LN_TRY(gpu_operand(p, 0, &g->x, err));
    if (p->n->n_in > 2) LN_TRY(gpu_operand(p, 2, &g->second, err));
    return gpu_integers_operand(p, 1, &g->targets, err);
}
static int launch_nll(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    return gpu_nll(l, s, &g->x, g->targets, &g->y);
}
const gpu_op gpu_op_nll = {.tolerance = row_tolerance, .prepare = prepare_nll, .launch = launch_nll};

static int launch_nll_back(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    return gpu_nll_back(l, s, &g->x, g->targets, &g->second, &g->y);
}
const gpu_op gpu_op_nll_back = {
    .tolerance = row_tolerance, .prepare = prepare_nll, .launch = launch_nll_back};

/* ---- gradients of rmsnorm ---- */

static double norm_tolerance(const ln_lower_ask *q) {
    const int64_t width = q->n_in > 2 ? q->in[1].dims[0] : ((const ln_p_norm *)q->params)->width;
    return 8 * GPU_UNIT * ((double)width / 16 + 8);
}
static ln_status prepare_norm_back(gpu_preparing *p, gpu_node *g, ln_error *err) {
    const bool weighted = p->n->n_in > 2;
    g->eps = p->n->p.norm.eps, g->offset = p->n->p.norm.offset;
    LN_TRY(gpu_operand(p, 0, &g->x, err));
    LN_TRY(gpu_operand(p, weighted ? 2 : 1, &g->third, err));
    if (weighted) return gpu_weight_operand(p, 1, &g->w, err);
    g->w = (gpu_weight){.D = 1, .C = p->n->p.norm.width};
    return LN_OK;
}
static int launch_norm_back(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    return gpu_rmsnorm_back(l, s, &g->x, &g->w, &g->third, &g->y, g->eps, g->offset, &g->second, &g->also);
}
const gpu_op gpu_op_rmsnorm_back = {
    .tolerance = norm_tolerance, .prepare = prepare_norm_back, .launch = launch_norm_back};

static double norm_dw_tolerance(const ln_lower_ask *q) {
    const int64_t rows = ln_dim(q->in[0].dims[0], &q->bounds), C = q->in[1].dims[0];
    return norm_tolerance(q) + GPU_FAR * GPU_UNIT * sqrt((double)(rows * (q->in[0].dims[1] / C)));
}
static void norm_dw_bytes(const ln_dev *d, const ln_program *p, const ln_pnode *n, gpu_need *need) {
    const int64_t C = ln_program_value(p, n->in[1])->dims[0],
                  groups = most_rows(p, n, 0) * (ln_program_value(p, n->in[0])->dims[1] / C);
    (void)d;
    need->scratch = LN_MAX(need->scratch, gpu_rmsnorm_dw_scratch(groups, C));
}
static ln_status prepare_norm_dw(gpu_preparing *p, gpu_node *g, ln_error *err) {
    g->work = p->e->scratch;
    return prepare_norm_back(p, g, err);
}
static int launch_norm_dw(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    return gpu_rmsnorm_dw(l, s, &g->x, g->w.C, &g->third, &g->y, g->eps, g->work);
}
const gpu_op gpu_op_rmsnorm_dw = {.tolerance = norm_dw_tolerance,
                                  .bytes = norm_dw_bytes,
                                  .prepare = prepare_norm_dw,
                                  .launch = launch_norm_dw};

/* ---- several nodes in one (cuda_fuse.c, which sets the operands) ---- */

static int launch_gate(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    return gpu_gate(l, s, g->variant, &g->x, &g->second, &g->y);
}
const gpu_op gpu_op_gate = {.launch = launch_gate};
static int launch_gate_back(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    return gpu_gate_back(l, s, g->variant, &g->x, &g->second, &g->third, &g->y, &g->also);
}
const gpu_op gpu_op_gate_back = {.launch = launch_gate_back};
static int launch_norm_rope(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    return gpu_norm_rope(l, s, &g->x, &g->w, &g->second, &g->y, g->eps, g->offset);
}
const gpu_op gpu_op_norm_rope = {.launch = launch_norm_rope};
static int launch_rope_norm_back(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    return gpu_rope_norm_back(l, s, &g->x, &g->w, &g->third, &g->second, &g->y, g->eps, g->offset);
}
const gpu_op gpu_op_rope_norm_back = {.launch = launch_rope_norm_back};
