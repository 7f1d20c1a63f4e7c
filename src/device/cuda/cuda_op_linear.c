/* Products with weights (kernels: products*.cu): linear, linear_gated. */
#include "cuda_exchange.h"

#include <math.h>

static bool can_multiply(const ln_lower_ask *q) {
    return q->in[1].kind == LN_KIND_WEIGHT && q->in[0].format.kind <= LN_FORMAT_BF16;
}

double gpu_product_tolerance(ln_encoding e, int64_t cols) {
    const double C = (double)cols, cuts = e.kind == LN_STORED_DENSE && e.scale == LN_F16 ? C / 8 : C / 16;
    if (ln_encoding_is_coded(e) && !gpu_fp8_group(e, cols)) return 0; /* the order of the reference */
    return GPU_FAR * GPU_UNIT * sqrt(C) + 2 * GPU_UNIT * cuts;
}
/* Both factors of a gated pair differ, and its largest gate and its largest other factor need not meet in one
 * output. */
static double tolerance(const ln_lower_ask *q) {
    enum { PAIR = 4 };
    const double each = gpu_product_tolerance(q->in[1].enc, q->in[1].dims[1]);
    return each > 0 ? (q->op == LN_OP_LINEAR_GATED ? PAIR : 1) * each + gpu_rounding(q) : 0;
}

/* A weight as kernels take it, but for its addresses. */
static gpu_weight shape_of(ln_dev *d, const ln_pvalue *v) {
    gpu_weight w = gpu_weight_of(d, v);
    w.data = w.scales = w.biases = NULL;
    return w;
}
/* Working memory for the weights of many rows (gpu_product.unpacked): a piece of the outputs at a time. */
static size_t unpacked_bytes(const ln_dev *d, const ln_program *p, const ln_pnode *n) {
    enum { PIECE = 128 /* outputs that a kernel takes at once */ };
    const ln_pvalue *x = ln_program_value(p, n->in[0]), *v = ln_program_value(p, n->in[1]);
    const gpu_weight w = shape_of((ln_dev *)(uintptr_t)d, v);
    if (d->unpacked < 0 || x->layout != LN_LAYOUT_NARROW || p->bounds.T <= GPU_FEW_ROWS ||
        !gpu_unpacks(&w, d->clusters))
        return 0;
    const size_t row = (size_t)w.C * 2 * (n->op == LN_OP_LINEAR_GATED ? 2 : 1),
                 all = row * (size_t)((w.D + PIECE - 1) / PIECE * PIECE);
    return LN_MIN(all, LN_MAX((size_t)d->unpacked, row * PIECE));
}
static void linear_bytes(const ln_dev *d, const ln_program *p, const ln_pnode *n, gpu_need *need) {
    need->scratch = LN_MAX(need->scratch, unpacked_bytes(d, p, n));
}

static ln_status prepare_linear(gpu_preparing *p, gpu_node *g, ln_error *err) {
    const bool gated = p->n->op == LN_OP_LINEAR_GATED;
    gpu_product *to = &g->product;
    to->n = 1;
    to->gate = !gated ? GPU_NO_GATE : p->n->p.gate.act == LN_ACT_SILU ? GPU_GATE_SILU : GPU_GATE_GELU;
    to->y[0] = g->y;
    to->unpacked_bytes = unpacked_bytes(p->e->queue->dev, p->e->program, p->n);
    if (to->unpacked_bytes > 0) to->unpacked = p->e->scratch;
    LN_TRY(gpu_operand(p, 0, &to->x, err));
    LN_TRY(gpu_weight_operand(p, 1, &to->w[0], err));
    if (p->n->n_in < 3) return LN_OK;
    return gpu_weight_operand(p, 2, gated ? &to->w[1] : &to->bias[0], err);
}

static int launch_linear(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    gpu_product p = g->product;
    gpu_tail tail;
    if (g->few.data && l->T <= GPU_FUSED_ROWS) p.x = g->few;
    if (g->pair) g->pair->exec->did_tail = false;
    if (g->pair && gpu_tail_of(l, g->pair, &tail)) p.tail = &tail, p.did_tail = &g->pair->exec->did_tail;
    return gpu_linear(l, s, &p);
}
const gpu_op gpu_op_linear = {.can = can_multiply,
                              .tolerance = tolerance,
                              .bytes = linear_bytes,
                              .prepare = prepare_linear,
                              .launch = launch_linear};
