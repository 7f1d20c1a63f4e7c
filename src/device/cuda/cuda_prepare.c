/* Prepares a program for the CUDA device: every node as the parameters of its kernels, and all the memory
 * that steps need beside the block of temporary values.
 *
 *     device memory   step block | counters, scratch and outputs of attention | constants |
 *                     scratch and ids of argmax | parameters and scratch of sampling | inbox of exchanges
 *     pinned memory   the step block as it is sent, the ids of argmax as they come back,
 *                     parameters and results of sampling
 *
 * Nodes run one after the other, so they share the scratch of the largest (cuda_ops.h). */
#include "cuda_exchange.h"

#include <string.h>

_Static_assert((int)GPU_ROWS_T == (int)LN_DIM_T && (int)GPU_ROWS_N == (int)LN_DIM_N &&
                   (int)GPU_ROWS_B == (int)LN_DIM_B,
               "gpu_array.rows and the dimensions of a program have the same symbols");

/* Device memory of a program, as offsets from the start of one block. */
typedef struct room {
    size_t block, counters, scratch, attended, constants, parts, ids, parameters, states, inbox, bytes;
    gpu_need need;
    gpu_sample_size sample;
} room;
static size_t append(room *r, size_t bytes) {
    const size_t at = r->bytes;
    r->bytes += (bytes + GPU_ALIGN - 1) / GPU_ALIGN * GPU_ALIGN;
    return at;
}
/* The output whose argmax is computed with every step, and from which tokens are chosen: the first of f32
 * rows of several columns, one for each output row. -1: there is none. */
static int logits_of(const ln_program *p) {
    for (int i = 0; i < p->n_outputs; i++) {
        const ln_pvalue *v = ln_program_value(p, p->outputs[i]);
        if (v->kind == LN_KIND_TEMP && v->n_dims == 2 && v->dims[0] == LN_DIM_N && v->dims[1] > 1 &&
            v->layout == LN_LAYOUT_ROWS && v->format.kind == LN_FORMAT_F32)
            return p->outputs[i];
    }
    return -1;
}

static room room_of(const ln_dev *d, const ln_program *p) {
    room r = {0};
    for (int i = 0; i < p->n_nodes; i++) {
        const ln_pnode *n = ln_program_node(p, i);
        const gpu_op *op = gpu_op_of((int)n->op);
        if (op && op->bytes) op->bytes(d, p, n, &r.need);
    }
    r.block = append(&r, (size_t)ln_step_bytes(&p->bounds, GPU_MAX_CHANGES));
    r.counters = append(&r, r.need.counters);
    r.scratch = append(&r, r.need.scratch);
    r.attended = append(&r, r.need.attended);
    r.constants = append(&r, r.need.constants);
    r.parts = append(&r, gpu_argmax_scratch(p->bounds.N));
    r.ids = append(&r, (size_t)p->bounds.N * sizeof(int32_t));
    const int logits = logits_of(p);
    if (logits >= 0) r.sample = gpu_sample_size_of(p->bounds.N, ln_program_value(p, logits)->dims[1]);
    r.parameters = append(&r, r.sample.parameters);
    r.states = append(&r, r.sample.states);
    r.inbox = append(&r, gpu_inbox_bytes(d, p));
    return r;
}

size_t gpu_scratch_bytes(const ln_dev *d, const ln_program *p) { return room_of(d, p).bytes; }

/* ---- nodes ---- */

static ln_status set_node(gpu_preparing *p, gpu_node *g, ln_error *err) {
    const ln_pnode *n = p->n;
    const ln_pvalue *out = n->n_out > 0 ? ln_program_value(p->e->program, n->out[0]) : NULL;
    const gpu_op *op = n->kernel ? gpu_op_of((int)n->op) : NULL;
    if (!op)
        return ln_fail(err, LN_EUNSUPPORTED,
                       "the CUDA device has no kernel for %s%s%s; use ln_options.device = LN_DEVICE_CPU",
                       ln_op_name(n->op), out ? ", which makes " : "", out ? out->name : "");
    g->op = n->op;
    if (out && out->kind == LN_KIND_TEMP) LN_TRY(gpu_array_of(p->e, n->out[0], &g->y, err));
    return op->prepare(p, g, err);
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

static ln_status take_pinned(char **out, size_t bytes, ln_error *err) {
    void *p = NULL;
    if (bytes > 0) GPU_TRY(cudaMallocHost(&p, bytes), "preparing a program");
    *out = p;
    return LN_OK;
}

static ln_status take_memory(ln_exec *e, ln_error *err) {
    const room r = room_of(e->queue->dev, e->program);
    void *all = NULL, *staging = NULL, *ids = NULL;
    GPU_TRY(cudaMalloc(&all, r.bytes), "preparing a program");
    e->block = all;
    e->scratch = (char *)all + r.scratch;
    e->attended = (char *)all + r.attended;
    e->counters = (int32_t *)(void *)((char *)all + r.counters);
    e->constants = (char *)all + r.constants;
    e->parts = (char *)all + r.parts;
    e->ids = (int32_t *)(void *)((char *)all + r.ids);
    e->sampler = (gpu_sampler){
        .size = r.sample, .device = (char *)all + r.parameters, .states = (char *)all + r.states};
    e->block_bytes = r.counters;
    GPU_TRY(cudaMallocHost(&staging, e->block_bytes), "preparing a program");
    e->staging = staging;
    GPU_TRY(cudaMallocHost(&ids, LN_MAX((size_t)e->program->bounds.N, (size_t)1) * sizeof(int32_t)),
            "preparing a program");
    e->host_ids = ids;
    LN_TRY(take_pinned(&e->sampler.parameters, r.sample.parameters, err));
    LN_TRY(take_pinned(&e->sampler.results, r.sample.results, err));
    memset(e->staging, 0, e->block_bytes);
    ln_step_init(e->staging, &e->program->bounds, GPU_MAX_CHANGES);
    LN_TRY(gpu_copy(e->queue, e->counters, NULL, r.need.counters, LN_COPY_WITHIN, err));
    if (gpu_exchanges(e->program)) {
        e->inbox = (char *)all + r.inbox;
        LN_TRY(gpu_copy(e->queue, e->inbox, NULL, r.bytes - r.inbox, LN_COPY_WITHIN, err));
        gpu_link_begin(e);
    }
    set_step(e);
    return LN_OK;
}

void gpu_release(ln_exec **exec) {
    ln_exec *e = *exec;
    if (!e) return;
    *exec = NULL;
    (void)gpu_use(e->queue->dev, NULL);
    (void)cudaStreamSynchronize(e->queue->stream);
    gpu_drop_graphs(e);
    gpu_unmap(e);
    (void)cudaFree(e->block);
    if (e->staging) (void)cudaFreeHost(e->staging);
    if (e->host_ids) (void)cudaFreeHost(e->host_ids);
    if (e->gathered) (void)cudaFreeHost(e->gathered);
    if (e->sampler.parameters) (void)cudaFreeHost(e->sampler.parameters);
    if (e->sampler.results) (void)cudaFreeHost(e->sampler.results);
    ln_free(e->fused);
    ln_free(e->nodes);
    ln_free(e);
}

static ln_status find_logits(ln_exec *e, ln_error *err) {
    e->argmax = logits_of(e->program);
    return e->argmax < 0 ? LN_OK : gpu_array_of(e, e->argmax, &e->logits, err);
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
    gpu_preparing preparing = {.e = e, .constants = e->constants};
    for (int i = 0; i < p->n_nodes; i++) {
        preparing.n = ln_program_node(p, i);
        LN_GO(set_node(&preparing, &e->nodes[i], err));
    }
    LN_GO(find_logits(e, err));
    LN_GO(gpu_fuse(e, err));
    if (!e->inbox) LN_GO(gpu_capture(e, err)); /* else when it is connected */
    GPU_GO(cudaStreamSynchronize(q->stream), "preparing a program");
    *out = e;
    return LN_OK;
out:
    gpu_release(&e);
    return st;
}
