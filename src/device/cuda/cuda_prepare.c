/* Prepares a program for the CUDA device: every node as the parameters of its kernels, and all the memory
 * that steps need beside the block of temporary values.
 *
 *     device memory   step block | counters, scratch and outputs of attention | frequencies |
 *                     scratch and ids of argmax | parameters and scratch of sampling
 *     pinned memory   the step block as it is sent, the ids of argmax as they come back,
 *                     parameters and ids of sampling, and those of draws ahead
 *
 * Attention nodes run one after the other, so they share the scratch of the largest. */
#include "cuda_device.h"

#include <string.h>

_Static_assert((int)GPU_ROWS_T == (int)LN_DIM_T && (int)GPU_ROWS_N == (int)LN_DIM_N &&
                   (int)GPU_ROWS_B == (int)LN_DIM_B,
               "gpu_array.rows and the dimensions of a program have the same symbols");

static ln_status array_of(const ln_exec *e, ln_v i, gpu_array *out, ln_error *err) {
    const ln_pvalue *v = ln_program_value(e->program, i);
    if (v->kind != LN_KIND_TEMP || v->offset < 0)
        return ln_fail(err, LN_EINTERNAL, "program: %s has no buffer", v->name);
    *out = (gpu_array){.data = (char *)e->temp + v->offset,
                       .pitch = ln_temp_pitch(e->program, v),
                       .cols = (int32_t)v->dims[v->n_dims - 1],
                       .rows = v->n_dims > 1 ? (int32_t)v->dims[0] : 1,
                       .type = v->layout == LN_LAYOUT_NARROW ? GPU_BF16 : GPU_F32};
    return LN_OK;
}
static ln_status weight_of(const ln_exec *e, ln_v i, gpu_weight *out, ln_error *err) {
    const ln_pvalue *v = ln_program_value(e->program, i);
    if (!v->data) return ln_fail(err, LN_EINTERNAL, "program: %s has no address", v->name);
    *out = gpu_weight_of(e->queue->dev, v);
    return LN_OK;
}

static gpu_kv kv_of(const ln_p_kv *p, void *pool) {
    return (gpu_kv){.pool = pool,
                    .window_group = p->window_group,
                    .pages_per_block = p->pages_per_block,
                    .page_in_block = p->page_in_block,
                    .n_kv_heads = p->n_kv_heads,
                    .head_dim = p->head_dim,
                    .width = gpu_kv_width(p->head_dim),
                    .page_len = p->page_len,
                    .type = (int32_t)p->dtype,
                    .page_bytes = p->page_bytes,
                    .layer_offset = p->layer_in_page * p->layer_bytes};
}
static gpu_attention attention_of(const ln_p_attn *p, void *pool) {
    return (gpu_attention){
        .kv = kv_of(&p->kv, pool), .n_heads = p->n_heads, .scale = p->scale, .window = p->window};
}

static gpu_lora lora_of(const ln_p_lora *p, const void *pool) {
    const ln_lora_part o = ln_lora_part_of(p);
    return (gpu_lora){.pool = pool,
                      .at = p->at,
                      .slot_bytes = p->slot_bytes,
                      .scale = o.scale,
                      .bias = o.bias,
                      .a = o.a,
                      .b = o.b,
                      .n_in = p->n_in,
                      .n_out = p->n_out,
                      .n_slots = p->n_slots,
                      .type = (int32_t)p->dtype,
                      .of_outputs = p->of_outputs};
}

/* Device memory of a program, as offsets from the start of one block. */
typedef struct room {
    size_t block, counters, scratch, attended, freqs, parts, ids, draws, bytes;
    size_t counters_bytes;
} room;
static size_t append(room *r, size_t bytes) {
    const size_t at = r->bytes;
    r->bytes += (bytes + GPU_ALIGN - 1) / GPU_ALIGN * GPU_ALIGN;
    return at;
}
static room room_of(const ln_program *p) {
    room r = {0};
    size_t scratch = 0, attended = 0, freqs = 0;
    for (int i = 0; i < p->n_nodes; i++) {
        const ln_pnode *n = ln_program_node(p, i);
        size_t counters = 0;
        if (n->op == LN_OP_ROPE_TABLE) freqs += (size_t)n->p.freqs.n * sizeof(float);
        if (n->op != LN_OP_ATTN_PAGED) continue;
        const gpu_attention a = attention_of(&n->p.attn, NULL);
        scratch = LN_MAX(scratch, gpu_attention_scratch(&a, &counters));
        r.counters_bytes = LN_MAX(r.counters_bytes, counters);
        attended = LN_MAX(attended, (size_t)ln_program_value(p, n->out[0])->row_bytes * GPU_FUSED_ROWS);
    }
    const int64_t step = ln_step_bytes(&p->bounds, GPU_MAX_CHANGES);
    r.block = append(&r, (size_t)step);
    r.counters = append(&r, r.counters_bytes);
    r.scratch = append(&r, scratch);
    r.attended = append(&r, attended);
    r.freqs = append(&r, freqs);
    r.parts = append(&r, gpu_argmax_scratch(p->bounds.N));
    r.ids = append(&r, (size_t)p->bounds.N * sizeof(int32_t));
    r.draws = append(&r, gpu_sample_bytes(&p->bounds));
    return r;
}

size_t gpu_scratch_bytes(const ln_dev *d, const ln_program *p) {
    (void)d;
    return room_of(p).bytes;
}

/* ---- nodes ---- */

/* Operand k as an array, a weight. */
#define ARRAY(k, to)  LN_TRY(array_of(e, n->in[k], &g->to, err))
#define WEIGHT(k, to) LN_TRY(weight_of(e, n->in[k], &g->to, err))

static ln_status set_product(const ln_exec *e, const ln_pnode *n, gpu_node *g, ln_error *err) {
    gpu_product *p = &g->product;
    p->n = 1;
    p->gate = n->op == LN_OP_LINEAR          ? GPU_NO_GATE
              : n->p.gate.act == LN_ACT_SILU ? GPU_GATE_SILU
                                             : GPU_GATE_GELU;
    p->y[0] = g->y;
    ARRAY(0, product.x);
    WEIGHT(1, product.w[0]);
    if (n->n_in > 2 && n->op == LN_OP_LINEAR) WEIGHT(2, product.bias[0]);
    if (n->n_in > 2 && n->op != LN_OP_LINEAR) WEIGHT(2, product.w[1]);
    return LN_OK;
}

static ln_status set_pointwise(const ln_exec *e, const ln_pnode *n, gpu_node *g, ln_error *err) {
    ARRAY(0, x);
    if (n->n_in > 1) ARRAY(1, second);
    switch (n->op) {
    case LN_OP_ADD: g->variant = GPU_ADD; break;
    case LN_OP_MUL: g->variant = GPU_MUL; break;
    case LN_OP_SILU: g->variant = GPU_SILU; break;
    case LN_OP_GELU_TANH: g->variant = GPU_GELU_TANH; break;
    case LN_OP_GATED: g->variant = n->p.gate.act == LN_ACT_SILU ? GPU_GATED_SILU : GPU_GATED_GELU; break;
    default: g->variant = GPU_CONVERT; break;
    }
    return LN_OK;
}

/* Sends the frequencies of a node to *at, which advances. */
static ln_status set_freqs(const ln_exec *e, const ln_pnode *n, gpu_node *g, float **at, ln_error *err) {
    const ln_p_freqs *p = &n->p.freqs;
    LN_TRY(gpu_copy(e->queue, *at, p->freqs, (size_t)p->n * sizeof(float), LN_COPY_IN, err));
    g->freqs = (gpu_freqs){.freqs = *at,
                           .n = p->n,
                           .scale = p->scale,
                           .theta = p->ntk.theta,
                           .factor = p->ntk.factor,
                           .positions = p->ntk.positions};
    *at += p->n;
    return LN_OK;
}

static ln_status set_node(const ln_exec *e, const ln_pnode *n, gpu_node *g, float **freqs, ln_error *err) {
    const ln_pvalue *out = n->n_out > 0 ? ln_program_value(e->program, n->out[0]) : NULL;
    if (!n->kernel)
        return ln_fail(err, LN_EUNSUPPORTED,
                       "the CUDA device has no kernel for %s%s%s; use ln_options.device = LN_DEVICE_CPU",
                       ln_op_name(n->op), out ? ", which makes " : "", out ? out->name : "");
    g->op = n->op;
    if (out && out->kind == LN_KIND_TEMP) LN_TRY(array_of(e, n->out[0], &g->y, err));
    switch (n->op) {
    case LN_OP_EMBED:
        WEIGHT(0, w);
        g->scale = n->p.embed.scale;
        return LN_OK;
    case LN_OP_LINEAR:
    case LN_OP_LINEAR_GATED: return set_product(e, n, g, err);
    case LN_OP_RMSNORM:
        ARRAY(0, x);
        WEIGHT(1, w);
        g->eps = n->p.norm.eps, g->offset = n->p.norm.offset;
        return LN_OK;
    case LN_OP_ROPE_TABLE: return set_freqs(e, n, g, freqs, err);
    case LN_OP_ROPE:
        ARRAY(0, x);
        ARRAY(1, second);
        g->n_heads = n->p.heads.n_heads, g->head_dim = n->p.heads.head_dim;
        return LN_OK;
    case LN_OP_KV_WRITE:
        ARRAY(1, x);
        ARRAY(2, second);
        g->kv = kv_of(&n->p.kv, ln_program_value(e->program, n->in[0])->data);
        return LN_OK;
    case LN_OP_ATTN_PAGED:
        ARRAY(0, x);
        g->attention = attention_of(&n->p.attn, ln_program_value(e->program, n->in[1])->data);
        g->attention.results = e->scratch;
        g->attention.counters = e->counters;
        return LN_OK;
    case LN_OP_GATHER_ROWS: ARRAY(0, x); return LN_OK;
    case LN_OP_LORA_DOWN:
        ARRAY(0, x);
        g->lora = lora_of(&n->p.lora, ln_program_value(e->program, n->in[1])->data);
        return LN_OK;
    case LN_OP_LORA_UP:
        ARRAY(0, x);
        ARRAY(1, second);
        g->lora = lora_of(&n->p.lora, ln_program_value(e->program, n->in[2])->data);
        return LN_OK;
    default: return set_pointwise(e, n, g, err);
    }
}

/* ---- memory ---- */

static void set_step(ln_exec *e) {
    const ln_queue *q = e->queue;
    const ln_step_block *s = e->staging; /* its offsets are those of every step of the program */
    char *at = (char *)e->block;
    e->step = (gpu_step){.head = e->block,
                         .ids = (int32_t *)(void *)(at + s->ids),
                         .pos = (int32_t *)(void *)(at + s->pos),
                         .seq = (int32_t *)(void *)(at + s->seq),
                         .adapter = (int32_t *)(void *)(at + s->adapter),
                         .row0 = (int32_t *)(void *)(at + s->row0),
                         .slot = (int32_t *)(void *)(at + s->slot),
                         .n_prompt = (int32_t *)(void *)(at + s->n_prompt),
                         .out_rows = (int32_t *)(void *)(at + s->out_rows),
                         .n_blocks = q->n_blocks};
    for (int c = 0; c < LN_STATE_GROUPS; c++) e->step.pages[c] = q->pages[c];
}

static ln_status take_memory(ln_exec *e, ln_error *err) {
    const room r = room_of(e->program);
    void *all = NULL, *staging = NULL, *ids = NULL, *draws = NULL;
    GPU_TRY(cudaMalloc(&all, r.bytes), "preparing a program");
    e->block = all;
    e->scratch = (char *)all + r.scratch;
    e->attended = (char *)all + r.attended;
    e->counters = (int32_t *)(void *)((char *)all + r.counters);
    e->freqs = (float *)(void *)((char *)all + r.freqs);
    e->parts = (char *)all + r.parts;
    e->ids = (int32_t *)(void *)((char *)all + r.ids);
    e->draws = (gpu_draw *)(void *)((char *)all + r.draws);
    e->block_bytes = r.counters;
    GPU_TRY(cudaMallocHost(&staging, e->block_bytes), "preparing a program");
    e->staging = staging;
    GPU_TRY(cudaMallocHost(&ids, LN_MAX((size_t)e->program->bounds.N, (size_t)1) * sizeof(int32_t)),
            "preparing a program");
    e->host_ids = ids;
    const size_t some = GPU_SAMPLE_ROWS * (sizeof(gpu_draw) + sizeof(int32_t));
    GPU_TRY(cudaMallocHost(&draws, 2 * some), "preparing a program");
    e->host_draws = draws;
    e->made.how = (gpu_draw *)(void *)((char *)draws + some);
    e->made.ids = (int32_t *)(void *)(e->made.how + GPU_SAMPLE_ROWS);
    e->next.how = ln_zalloc(GPU_SAMPLE_ROWS, sizeof *e->next.how);
    if (!e->next.how) return LN_OOM(err, "a prepared program");
    memset(e->staging, 0, e->block_bytes);
    ln_step_init(e->staging, &e->program->bounds, GPU_MAX_CHANGES);
    LN_TRY(gpu_copy(e->queue, e->counters, NULL, r.counters_bytes, LN_COPY_WITHIN, err));
    set_step(e);
    return LN_OK;
}

void gpu_release(ln_exec **exec) {
    ln_exec *e = *exec;
    if (!e) return;
    *exec = NULL;
    (void)gpu_use(e->queue->dev, NULL);
    (void)cudaStreamSynchronize(e->queue->stream);
    for (int i = 0; i < GPU_MAX_GRAPHS; i++)
        if (e->graphs[i]) (void)cudaGraphExecDestroy(e->graphs[i]);
    (void)cudaFree(e->block);
    if (e->staging) (void)cudaFreeHost(e->staging);
    if (e->host_ids) (void)cudaFreeHost(e->host_ids);
    if (e->host_draws) (void)cudaFreeHost(e->host_draws);
    ln_free(e->next.how);
    ln_free(e->fused);
    ln_free(e->nodes);
    ln_free(e);
}

/* Finds the output whose argmax is computed with every step: the first of f32 rows, one for each output row.
 */
static ln_status find_logits(ln_exec *e, ln_error *err) {
    const ln_program *p = e->program;
    e->argmax = -1;
    for (int i = 0; i < p->n_outputs && e->argmax < 0; i++) {
        const ln_pvalue *v = ln_program_value(p, p->outputs[i]);
        if (v->kind != LN_KIND_TEMP || v->n_dims != 2 || v->dims[0] != LN_DIM_N ||
            v->layout != LN_LAYOUT_ROWS || v->format.kind != LN_FORMAT_F32)
            continue;
        e->argmax = p->outputs[i];
        LN_TRY(array_of(e, e->argmax, &e->logits, err));
    }
    return LN_OK;
}

ln_status gpu_prepare(ln_queue *q, const ln_program *p, void *temp, ln_exec **out, ln_error *err) {
    ln_status st = LN_OK;
    *out = NULL;
    ln_exec *e = ln_zalloc(1, sizeof *e);
    if (!e) return LN_OOM(err, "a prepared program");
    e->queue = q;
    e->program = p;
    e->temp = temp;
    e->nodes = ln_zalloc((size_t)p->n_nodes + 1, sizeof *e->nodes);
    if (!e->nodes) LN_GO(LN_OOM(err, "a prepared program"));
    LN_GO(gpu_use(q->dev, err));
    LN_GO(take_memory(e, err));
    float *freqs = e->freqs;
    for (int i = 0; i < p->n_nodes; i++) LN_GO(set_node(e, ln_program_node(p, i), &e->nodes[i], &freqs, err));
    LN_GO(find_logits(e, err));
    LN_GO(gpu_fuse(e, err));
    LN_GO(gpu_capture(e, err));
    GPU_GO(cudaStreamSynchronize(q->stream), "preparing a program");
    *out = e;
    return LN_OK;
out:
    gpu_release(&e);
    return st;
}
