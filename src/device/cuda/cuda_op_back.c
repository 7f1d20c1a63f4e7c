/* Products and attention of training: matmul, linear_back, linear_cross_entropy, attn, attn_back. Their
 * kernels are in back_products.cu, cross_entropy.cu and packed_*.cu. */
#include "cuda_ops.h"

#include <math.h>

/* What a random walk of n roundings may come to. */
static double walk(double n) { return GPU_FAR * GPU_UNIT * sqrt(n); }
/* The rows of a value of a program, at most. */
static int64_t most_rows(const ln_program *p, ln_v v) {
    return ln_dim(ln_program_value(p, v)->dims[0], &p->bounds);
}

/* ---- matmul ---- */

static size_t matmul_work(const ln_program *p, const ln_pnode *n) {
    const ln_pvalue *y = ln_program_value(p, n->out[0]);
    if (n->p.matmul.kind != LN_MATMUL_TN) return 0;
    return gpu_matmul_scratch(most_rows(p, n->in[0]), y->dims[0], y->dims[1]);
}
static void matmul_bytes(const ln_dev *d, const ln_program *p, const ln_pnode *n, gpu_need *need) {
    (void)d;
    need->scratch = LN_MAX(need->scratch, matmul_work(p, n));
}
/* Only thin a^T b has another order than the reference. */
static double matmul_tolerance(const ln_lower_ask *q) {
    const ln_p_matmul *p = q->params;
    const int64_t rows = ln_dim(q->in[0].dims[0], &q->bounds);
    if (p->kind != LN_MATMUL_TN || !gpu_matmul_scratch(rows, q->out[0].dims[0], q->out[0].dims[1])) return 0;
    return walk((double)rows);
}
static ln_status prepare_matmul(gpu_preparing *p, gpu_node *g, ln_error *err) {
    _Static_assert((int)GPU_NT == (int)LN_MATMUL_NT && (int)GPU_NN == (int)LN_MATMUL_NN &&
                       (int)GPU_TN == (int)LN_MATMUL_TN,
                   "kinds of matmul");
    g->variant = (int)p->n->p.matmul.kind, g->scale = 1;
    if (matmul_work(p->e->program, p->n)) g->work = p->e->scratch;
    LN_TRY(gpu_operand(p, 0, &g->x, err));
    return gpu_operand(p, 1, &g->second, err);
}
static int launch_matmul(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    return gpu_matmul(l, s, g->variant, &g->x, &g->second, g->third.data ? &g->third : NULL, g->scale, &g->y,
                      g->work);
}
const gpu_op gpu_op_matmul = {
    .tolerance = matmul_tolerance, .bytes = matmul_bytes, .prepare = prepare_matmul, .launch = launch_matmul};

/* ---- linear_back ---- */

static bool can_multiply(const ln_lower_ask *q) {
    return q->in[1].kind == LN_KIND_WEIGHT && q->in[0].format.kind <= LN_FORMAT_BF16;
}
/* Tensor cores cut the sum of 16 products to 24 bits instead of rounding it. */
static double back_tolerance(const ln_lower_ask *q) {
    const double D = (double)q->in[1].dims[0];
    if (q->in[0].format.kind != LN_FORMAT_BF16) return 0;
    /* weights in groups are rounded to bf16, as linear has them */
    return walk(D) + 2 * GPU_UNIT * D / 16 + (ln_encoding_is_dense(q->in[1].enc) ? 0 : 0x1p-8);
}
/* Working memory of a product with operand 1, whose other operand is dy. */
static size_t back_work(const ln_dev *d, const ln_program *p, const ln_pnode *n) {
    const gpu_weight w = gpu_weight_of((ln_dev *)(uintptr_t)d, ln_program_value(p, n->in[1]));
    return ln_program_value(p, n->in[0])->layout == LN_LAYOUT_NARROW ? gpu_back_scratch(&w) : 0;
}
static void back_bytes(const ln_dev *d, const ln_program *p, const ln_pnode *n, gpu_need *need) {
    need->scratch = LN_MAX(need->scratch, back_work(d, p, n));
}
static ln_status prepare_back(gpu_preparing *p, gpu_node *g, ln_error *err) {
    g->work = p->e->scratch;
    g->work_bytes = back_work(p->e->queue->dev, p->e->program, p->n);
    LN_TRY(gpu_operand(p, 0, &g->x, err));
    return gpu_weight_operand(p, 1, &g->w, err);
}
static int launch_back(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    return gpu_linear_back(l, s, &g->x, &g->w, &g->y, g->second.data ? &g->second : NULL, g->work,
                           g->work_bytes);
}
const gpu_op gpu_op_linear_back = {.can = can_multiply,
                                   .tolerance = back_tolerance,
                                   .bytes = back_bytes,
                                   .prepare = prepare_back,
                                   .launch = launch_back};

/* ---- linear_cross_entropy ---- */

/* The weights of the outputs are rounded to bf16 if x is, and those of the head, in groups, in both products.
 */
static double entropy_tolerance(const ln_lower_ask *q) {
    const double V = (double)q->in[1].dims[0], C = (double)q->in[1].dims[1];
    if (q->in[0].format.kind == LN_FORMAT_BF16)
        return ln_encoding_is_dense(q->in[1].enc) ? 0x1p-8 : 3 * 0x1p-8;
    return 4 * (walk(V) + walk(C)) + 16 * GPU_UNIT;
}
static size_t logits_bytes(const ln_program *p, const ln_pnode *n) {
    const int64_t V = ln_program_value(p, n->in[1])->dims[0],
                  pitch = (V + GPU_LOGITS - 1) / GPU_LOGITS * GPU_LOGITS;
    return (size_t)gpu_cross_entropy_rows(most_rows(p, n->in[0]), V) * (size_t)pitch * sizeof(float);
}
static void entropy_bytes(const ln_dev *d, const ln_program *p, const ln_pnode *n, gpu_need *need) {
    need->scratch = LN_MAX(need->scratch, logits_bytes(p, n) + back_work(d, p, n));
}
static ln_status prepare_entropy(gpu_preparing *p, gpu_node *g, ln_error *err) {
    gpu_cross_entropy *e = &g->entropy;
    const ln_program *program = p->e->program;
    e->loss = g->y;
    e->logits = p->e->scratch;
    e->scratch = (char *)p->e->scratch + logits_bytes(program, p->n);
    e->scratch_bytes = back_work(p->e->queue->dev, program, p->n);
    e->rows = gpu_cross_entropy_rows(most_rows(program, p->n->in[0]),
                                     ln_program_value(program, p->n->in[1])->dims[0]);
    LN_TRY(gpu_operand(p, 0, &e->x, err));
    LN_TRY(gpu_weight_operand(p, 1, &e->w, err));
    if (p->n->p.scale.factor != 0) LN_TRY(gpu_array_of(p->e, p->n->out[1], &e->slope, err));
    return gpu_integers_operand(p, 2, &e->targets, err);
}
static int launch_entropy(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    return gpu_linear_cross_entropy(l, s, &g->entropy);
}
const gpu_op gpu_op_cross_entropy = {.can = can_multiply,
                                     .tolerance = entropy_tolerance,
                                     .bytes = entropy_bytes,
                                     .prepare = prepare_entropy,
                                     .launch = launch_entropy};

/* ---- attention ---- */

static double packed_tolerance(const ln_lower_ask *q) {
    enum { SCORES = 64 /* the largest magnitude of a score that is covered */ };
    const ln_p_packed *p = q->params;
    if (q->in[0].format.kind == LN_FORMAT_BF16) return 0x1p-7; /* softmax weights are rounded to bf16 */
    return GPU_FAR * GPU_UNIT * sqrt((double)LN_MAX(p->head_dim, p->v_dim)) * SCORES;
}
static gpu_packed packed_of(const ln_p_packed *p) {
    return (gpu_packed){.n_heads = p->n_heads,
                        .n_kv_heads = p->n_kv_heads,
                        .head_dim = p->head_dim,
                        .v_dim = p->v_dim,
                        .scale = p->scale,
                        .softcap = p->softcap,
                        .window = p->window};
}
static ln_status prepare_packed(gpu_preparing *p, gpu_node *g, ln_error *err) {
    gpu_packed *a = &g->packed;
    *a = packed_of(&p->n->p.packed);
    a->y = g->y;
    LN_TRY(gpu_operand(p, 0, &a->q, err));
    LN_TRY(gpu_operand(p, 1, &a->k, err));
    LN_TRY(gpu_operand(p, 2, &a->v, err));
    LN_TRY(gpu_array_of(p->e, p->n->out[1], &a->lse, err));
    if (p->n->n_in < 4) return LN_OK;
    gpu_weight sinks;
    LN_TRY(gpu_weight_operand(p, 3, &sinks, err));
    a->sinks = sinks.data, a->sink_type = sinks.type;
    return LN_OK;
}
static int launch_packed(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    return gpu_packed_attention(l, s, &g->packed);
}
const gpu_op gpu_op_packed = {
    .tolerance = packed_tolerance, .prepare = prepare_packed, .launch = launch_packed};

static void packed_back_bytes(const ln_dev *d, const ln_program *p, const ln_pnode *n, gpu_need *need) {
    (void)d;
    need->scratch = LN_MAX(need->scratch, (size_t)p->bounds.T * (size_t)n->p.packed.n_heads * sizeof(float));
}
static ln_status prepare_packed_back(gpu_preparing *p, gpu_node *g, ln_error *err) {
    gpu_packed *a = &g->packed;
    *a = packed_of(&p->n->p.packed);
    a->delta = p->e->scratch;
    gpu_array *const in[] = {&a->q, &a->k, &a->v, &a->y, &a->lse, &a->dy};
    gpu_array *const out[] = {&a->dq, &a->dk, &a->dv};
    for (int k = 0; k < (int)LN_COUNT(in); k++) LN_TRY(gpu_operand(p, k, in[k], err));
    for (int k = 0; k < (int)LN_COUNT(out); k++) LN_TRY(gpu_array_of(p->e, p->n->out[k], out[k], err));
    return LN_OK;
}
static int launch_packed_back(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    return gpu_packed_attention_back(l, s, &g->packed);
}
const gpu_op gpu_op_packed_back = {.tolerance = packed_tolerance,
                                   .bytes = packed_back_bytes,
                                   .prepare = prepare_packed_back,
                                   .launch = launch_packed_back};
