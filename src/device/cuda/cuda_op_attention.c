/* Attention over pages and what comes before it (kernels: attention*.cu, rows.cu): rope_table, rope,
 * kv_write, attn_paged, and their fused forms (cuda_fuse.c). */
#include "cuda_ops.h"

#include <math.h>

static gpu_kv kv_of(const ln_p_kv *p, void *pool) {
    return (gpu_kv){.pool = pool,
                    .window_group = p->window_group,
                    .pages_per_block = p->pages_per_block,
                    .page_in_block = p->page_in_block,
                    .n_kv_heads = p->n_kv_heads,
                    .head_dim = p->head_dim,
                    .v_dim = p->v_dim,
                    .width = gpu_kv_width(p->head_dim),
                    .v_width = gpu_kv_width(p->v_dim),
                    .page_len = p->page_len,
                    .type = (int32_t)p->dtype,
                    .q8 = p->q8,
                    .page_bytes = p->page_bytes,
                    .layer_offset = p->layer_in_page * p->layer_bytes};
}
static gpu_attention attention_of(const ln_dev *d, const ln_p_attn *p, void *pool) {
    return (gpu_attention){.kv = kv_of(&p->kv, pool),
                           .n_heads = p->n_heads,
                           .scale = p->scale,
                           .softcap = p->softcap,
                           .window = p->window,
                           .both_ways = p->both_ways,
                           .room = d->splits,
                           .patience = d->patience};
}

/* ---- rope ---- */

static double rope_table_tolerance(const ln_lower_ask *q) {
    (void)q;
    return 4 * GPU_UNIT; /* sine and cosine of another library, computed in double and rounded once */
}
static void rope_table_bytes(const ln_dev *d, const ln_program *p, const ln_pnode *n, gpu_need *need) {
    (void)d, (void)p;
    need->constants += (size_t)n->p.freqs.n * sizeof(float) * (n->p.freqs.beyond ? 2 : 1);
}
/* Sends the frequencies to where the node's constants are. */
static ln_status send_freqs(gpu_preparing *p, const float *freqs, const float **out, ln_error *err) {
    const size_t bytes = (size_t)p->n->p.freqs.n * sizeof(float);
    LN_TRY(gpu_copy(p->e->queue, p->constants, freqs, bytes, LN_COPY_IN, err));
    *out = (const float *)(void *)p->constants;
    p->constants += bytes;
    return LN_OK;
}
static ln_status prepare_rope_table(gpu_preparing *p, gpu_node *g, ln_error *err) {
    const ln_p_freqs *f = &p->n->p.freqs;
    g->freqs = (gpu_freqs){.n = f->n,
                           .scale = f->scale,
                           .theta = f->ntk.theta,
                           .factor = f->ntk.factor,
                           .positions = f->ntk.positions};
    LN_TRY(send_freqs(p, f->freqs, &g->freqs.freqs, err));
    return f->beyond ? send_freqs(p, f->beyond, &g->freqs.beyond, err) : LN_OK;
}
static int launch_rope_table(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    return gpu_rope_table(l, s, &g->freqs, &g->y);
}
const gpu_op gpu_op_rope_table = {.tolerance = rope_table_tolerance,
                                  .bytes = rope_table_bytes,
                                  .prepare = prepare_rope_table,
                                  .launch = launch_rope_table};

static ln_status prepare_rope(gpu_preparing *p, gpu_node *g, ln_error *err) {
    g->n_heads = p->n->p.heads.n_heads, g->head_dim = p->n->p.heads.head_dim;
    g->interleaved = p->n->p.heads.interleaved;
    LN_TRY(gpu_operand(p, 0, &g->x, err));
    return gpu_operand(p, 1, &g->second, err);
}
static int launch_rope(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    return gpu_rope(l, s, &g->x, &g->second, &g->y, g->n_heads, g->head_dim, g->interleaved,
                    g->op == LN_OP_ROPE_BACK);
}
const gpu_op gpu_op_rope = {.prepare = prepare_rope, .launch = launch_rope};

/* ---- pages ---- */

static ln_status prepare_kv_write(gpu_preparing *p, gpu_node *g, ln_error *err) {
    g->kv = kv_of(&p->n->p.kv, gpu_state_operand(p, 0));
    LN_TRY(gpu_operand(p, 1, &g->x, err));
    return gpu_operand(p, 2, &g->second, err);
}
static int launch_kv_write(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    return gpu_kv_write(l, s, &g->kv, &g->x, &g->second);
}
static int32_t rows_of_x(const gpu_node *g) { return g->x.rows; }
const gpu_op gpu_op_kv_write = {.prepare = prepare_kv_write, .launch = launch_kv_write, .rows = rows_of_x};

/* ---- attention ---- */

static double attention_tolerance(const ln_lower_ask *q) {
    enum { SCORES = 64 /* the largest magnitude of a score that is covered */ };
    const ln_p_attn *p = q->params;
    if (p->kv.dtype == LN_BF16) return 0x1p-8 + gpu_rounding(q); /* a softmax weight rounded the other way */
    return GPU_FAR * GPU_UNIT * sqrt((double)p->kv.head_dim) * SCORES + gpu_rounding(q);
}
static void attention_bytes(const ln_dev *d, const ln_program *p, const ln_pnode *n, gpu_need *need) {
    const gpu_attention a = attention_of(d, &n->p.attn, NULL);
    size_t counters = 0;
    need->scratch = LN_MAX(need->scratch, gpu_attention_scratch(&a, &counters));
    need->counters = LN_MAX(need->counters, counters);
    need->attended =
        LN_MAX(need->attended, (size_t)ln_program_value(p, n->out[0])->row_bytes * GPU_FUSED_ROWS);
}
static ln_status prepare_attention(gpu_preparing *p, gpu_node *g, ln_error *err) {
    g->attention = attention_of(p->e->queue->dev, &p->n->p.attn, gpu_state_operand(p, 1));
    g->attention.results = p->e->scratch;
    g->attention.counters = p->e->counters;
    if (p->n->n_in > 2) {
        gpu_weight sinks;
        LN_TRY(gpu_weight_operand(p, 2, &sinks, err));
        g->attention.sinks = sinks.data, g->attention.sink_type = sinks.type;
    }
    return gpu_operand(p, 0, &g->x, err);
}
static int launch_attention(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    return gpu_attention_paged(l, s, &g->attention, &g->x, &g->y);
}
const gpu_op gpu_op_attention = {.tolerance = attention_tolerance,
                                 .bytes = attention_bytes,
                                 .prepare = prepare_attention,
                                 .launch = launch_attention};

/* ---- fused: no node of a program has these ops ---- */

static int launch_heads(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    return gpu_run_heads(l, s, &g->heads);
}
static int32_t rows_of_step(const gpu_node *g) {
    (void)g;
    return GPU_ROWS_T;
}
const gpu_op gpu_op_heads = {.launch = launch_heads, .rows = rows_of_step};

static int launch_attention_heads(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    if (l->T <= GPU_FUSED_ROWS) return gpu_attention_heads(l, s, &g->attention, &g->heads, &g->few);
    const int error = gpu_run_heads(l, s, &g->heads);
    return error ? error : gpu_attention_paged(l, s, &g->attention, &g->heads.y, &g->y);
}
const gpu_op gpu_op_attention_heads = {.launch = launch_attention_heads};
