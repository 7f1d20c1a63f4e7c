/* Steps of the CUDA device: one copy of the step block, then the kernels of the nodes in order on the queue's
 * stream. Steps of up to 64 rows, as decoding has them, are launched as one captured graph for 1, 2, 4 .. 64
 * rows: its kernels read the live counts from the block.
 *
 * The copy goes from a pinned buffer of the program to a fixed address, so a step may not begin before the
 * one before it has read its block: submit waits for that where the caller has not. A step of more changed
 * page-table entries than the block has room for sends the first ones apart. */
#include "cuda_exchange.h"

#include "../../quant/affine.h"

#include <string.h>

static int launch_node(const gpu_launch *l, const gpu_step *s, const gpu_node *n) {
    return gpu_op_of(n->op)->launch(l, s, n);
}

/* Whether a node has no rows to work on. */
static bool is_idle(const gpu_launch *l, const gpu_node *n) {
    const gpu_op *op = gpu_op_of(n->op);
    const int32_t rows = op->rows ? op->rows(n) : n->y.rows;
    const ln_bounds live = {l->T, l->N, l->B};
    return rows < 0 && ln_dim(rows, &live) == 0;
}

static ln_status run_traced(ln_exec *e, const gpu_launch *l, const ln_trace *trace, ln_error *err) {
    LN_TRY(gpu_sync(e->queue, "running a step", err));
    for (int i = 0; i < e->program->n_nodes; i++) {
        const double start = ln_now();
        if (!is_idle(l, &e->nodes[i])) GPU_TRY(launch_node(l, &e->step, &e->nodes[i]), "running a step");
        LN_TRY(gpu_sync(e->queue, "running a step", err));
        trace->fn(trace->user, i, ln_now() - start);
    }
    return LN_OK;
}

/* Puts the nodes and the argmax of the logits on the stream. The first kernel begins when all that was put
 * there before it is done, so every kernel of a step may read the step block and the page tables before it
 * waits for the kernel before it. */
static ln_status run_fused(ln_exec *e, const gpu_launch *l, ln_error *err) {
    gpu_launch next = *l;
    next.overlap = false;
    for (int i = 0; i < e->n_fused; i++) {
        if (is_idle(l, &e->fused[i])) continue;
        GPU_TRY(launch_node(&next, &e->step, &e->fused[i]), "running a step");
        next.overlap = l->overlap;
    }
    if (e->argmax < 0 || l->N == 0) return LN_OK;
    GPU_TRY(gpu_argmax(l, &e->step, &e->logits, e->parts, e->ids), "running a step");
    GPU_TRY(cudaMemcpyAsync(e->host_ids, e->ids, (size_t)l->N * sizeof *e->ids, cudaMemcpyDeviceToHost,
                            e->queue->stream),
            "running a step");
    return LN_OK;
}

/* ---- captured graphs ---- */

static gpu_launch launch_of(const ln_exec *e, int64_t T, int64_t N, int64_t B) {
    const ln_dev *d = e->queue->dev;
    return (gpu_launch){.stream = e->queue->stream,
                        .T = (int32_t)T,
                        .N = (int32_t)N,
                        .B = (int32_t)B,
                        .n_multiprocessors = d->n_multiprocessors,
                        .shared_limit = d->shared_limit,
                        .clusters = e->clusters,
                        .bad_clusters = d->bad_clusters,
                        .overlap = d->major >= 9};
}

static ln_status capture_one(ln_exec *e, int i, ln_error *err) {
    const ln_bounds *b = &e->program->bounds;
    const int64_t n = (int64_t)1 << i;
    const gpu_launch l = launch_of(e, LN_MIN(n, b->T), LN_MIN(n, b->N), LN_MIN(n, b->B));
    cudaGraph_t graph = NULL;
    GPU_TRY(cudaStreamBeginCapture(e->queue->stream, cudaStreamCaptureModeThreadLocal), "capturing a step");
    ln_status st = run_fused(e, &l, err);
    const cudaError_t ended = cudaStreamEndCapture(e->queue->stream, &graph);
    if (st == LN_OK) st = gpu_status((int)ended, "capturing a step", err);
    else (void)cudaGetLastError(); /* of the end of a capture that has failed */
    if (st == LN_OK)
        st = gpu_status((int)cudaGraphInstantiate(&e->graphs[i], graph, 0), "capturing a step", err);
    if (graph) (void)cudaGraphDestroy(graph);
    return st;
}

static ln_status capture_all(ln_exec *e, ln_error *err) {
    for (int i = 0; i < GPU_MAX_GRAPHS && (i == 0 || (int64_t)1 << i < 2 * e->program->bounds.T); i++)
        LN_TRY(capture_one(e, i, err));
    return LN_OK;
}

/* A launch that fails ends the capture. Those of clusters may fail on a part of a GPU, whatever the driver
 * says of them, so there is another try without. */
ln_status gpu_capture(ln_exec *e, ln_error *err) {
    ln_error why;
    e->clusters = e->queue->dev->clusters;
    ln_status st = capture_all(e, e->clusters > 0 ? &why : err);
    if (st == LN_OK || e->clusters == 0) return st;
    gpu_drop_graphs(e);
    e->clusters = 0;
    st = capture_all(e, err);
    if (st == LN_OK) ln_log(LN_LOG_WARN, "%s; products are computed without clusters of blocks", why.message);
    return st;
}
void gpu_drop_graphs(ln_exec *e) {
    for (int i = 0; i < GPU_MAX_GRAPHS; i++) {
        if (e->graphs[i]) (void)cudaGraphExecDestroy(e->graphs[i]);
        e->graphs[i] = NULL;
    }
}

/* The graph of a step with these counts; NULL: it has none. */
static cudaGraphExec_t graph_of(const ln_exec *e, const ln_step_block *s) {
    const int32_t most = LN_MAX(s->n_rows, LN_MAX(s->n_out, s->n_seqs));
    for (int i = 0; i < GPU_MAX_GRAPHS; i++)
        if (e->graphs[i] && most <= 1 << i) return e->graphs[i];
    return NULL;
}

static ln_status run_step(ln_exec *e, const gpu_launch *l, const ln_step_block *block, const ln_trace *trace,
                          ln_error *err) {
    e->ids_hold = !trace && e->argmax >= 0 && block->n_out > 0;
    e->gathers = !trace, e->gathered_hold = false;
    if (trace) return run_traced(e, l, trace, err);
    cudaGraphExec_t graph = graph_of(e, block);
    if (!graph) return run_fused(e, l, err);
    GPU_TRY(cudaGraphLaunch(graph, e->queue->stream), "running a step");
    return LN_OK;
}

/* ---- the step block ---- */

/* Sends changes [from, from + n) of a block, those that do not fit, and applies them. */
static ln_status apply_early(ln_exec *e, const gpu_launch *l, const ln_page_change *changes, int32_t n,
                             ln_error *err) {
    ln_page_change *to = (ln_page_change *)(void *)((char *)e->block + e->staging->changes);
    LN_TRY(gpu_copy(e->queue, to, changes, (size_t)n * sizeof *changes, LN_COPY_IN, err));
    GPU_TRY(gpu_apply_changes(l, &e->step, to, n), "changing page tables");
    return LN_OK;
}

/* Sends the block: its arrays, and as many changes as have room there. */
static ln_status send_block(ln_exec *e, const gpu_launch *l, const ln_step_block *block, ln_error *err) {
    const ln_page_change *changes = ln_step_changes(block);
    int32_t n = block->n_changes;
    for (; n > GPU_MAX_CHANGES; n -= GPU_MAX_CHANGES, changes += GPU_MAX_CHANGES)
        LN_TRY(apply_early(e, l, changes, GPU_MAX_CHANGES, err));
    memcpy(e->staging, block, block->changes);
    e->staging->n_changes = n;
    memcpy((char *)e->staging + block->changes, changes, (size_t)n * sizeof *changes);
    const size_t bytes = block->changes + (size_t)n * sizeof *changes;
    GPU_TRY(cudaMemcpyAsync(e->block, e->staging, bytes, cudaMemcpyHostToDevice, e->queue->stream), "sending "
                                                                                                    "a step");
    if (n > 0)
        GPU_TRY(gpu_apply_changes(l, &e->step, (ln_page_change *)(void *)((char *)e->block + block->changes),
                                  -1),
                "changing page tables");
    return LN_OK;
}

ln_status gpu_submit(ln_exec *e, const ln_step_block *block, const ln_trace *trace, uint64_t *fence,
                     ln_error *err) {
    ln_queue *q = e->queue;
    const gpu_launch l = launch_of(e, block->n_rows, block->n_out, block->n_seqs);
    LN_TRY(gpu_use(q->dev, err));
    LN_TRY(ln_ranks_failed(q->ranks, err));
    if (q->n_done < q->n_submitted) LN_TRY(gpu_sync(q, "waiting for a step", err));
    q->n_done = q->n_submitted;
    LN_TRY(send_block(e, &l, block, err));
    if (q->dev->fails_at > 0 && --q->dev->fails_at == 0)
        GPU_TRY(gpu_apply_changes(&l, &e->step, (const ln_page_change *)((uintptr_t)1 << 46), 1), "failing");
    *fence = ++q->n_submitted;
    if (block->n_rows == 0) return LN_OK;
    e->live = (ln_bounds){block->n_rows, block->n_out, block->n_seqs};
    return run_step(e, &l, block, trace, err);
}

ln_status gpu_wait(ln_queue *q, uint64_t fence, ln_error *err) {
    if (fence < 1 || fence > q->n_submitted)
        return ln_fail(err, LN_EINTERNAL, "no step has the fence %llu; %llu were submitted",
                       (unsigned long long)fence, (unsigned long long)q->n_submitted);
    if (fence <= q->n_done) return LN_OK;
    LN_TRY(gpu_use(q->dev, err));
    LN_TRY(gpu_sync(q, "running a step", err));
    q->n_done = q->n_submitted;
    return LN_OK;
}

/* ---- values ---- */

static ln_status find_value(const ln_exec *e, int i, int64_t row, int64_t n, const ln_pvalue **out,
                            ln_error *err) {
    const ln_program *p = e->program;
    const ln_pvalue *v = i >= 0 && i < p->n_values ? ln_program_value(p, i) : NULL;
    if (!v || v->kind != LN_KIND_TEMP || v->offset < 0)
        return ln_fail(err, LN_EINTERNAL, "value %d of the program has no buffer", i);
    const int64_t rows = v->n_dims > 1 ? ln_dim(v->dims[0], &e->live) : 1;
    if (row < 0 || n < 0 || row > rows - n)
        return ln_fail(err, LN_EINTERNAL, "rows %lld .. %lld of %s: it has %lld", (long long)row,
                       (long long)(row + n - 1), v->name, (long long)rows);
    *out = v;
    return LN_OK;
}

/* ---- gathered outputs ---- */

enum { GATHER_OUTPUT = 4 << 20, GATHER_ALL = 64 << 20, GATHER_FROM = 8 }; /* bytes, and outputs */

/* The bytes of a value in host memory, if it is an f32 output of few numbers in every step, else 0. */
static size_t gathered_bytes(const ln_pvalue *v) {
    if (v->kind != LN_KIND_TEMP || v->offset < 0 || v->layout == LN_LAYOUT_NARROW) return 0;
    if (v->n_dims > 1 && v->dims[0] < 0) return 0;
    const int64_t bytes = (v->n_dims > 1 ? v->dims[0] : 1) * v->dims[v->n_dims - 1] * (int64_t)sizeof(float);
    return bytes <= GATHER_OUTPUT ? (size_t)bytes : 0;
}
/* The place of output v among those that are gathered; SIZE_MAX: it is not. all: the bytes of all. */
static size_t gathered_at(const ln_exec *e, ln_v v, size_t *all) {
    const ln_program *p = e->program;
    size_t at = SIZE_MAX, sum = 0;
    int n = 0;
    for (int i = 0; i < p->n_outputs; i++) {
        const size_t bytes = gathered_bytes(ln_program_value(p, p->outputs[i]));
        if (p->outputs[i] == v && bytes) at = sum;
        sum += bytes, n += bytes > 0;
    }
    *all = sum;
    return n >= GATHER_FROM && sum <= GATHER_ALL ? at : SIZE_MAX;
}
static ln_status gather_outputs(ln_exec *e, size_t all, ln_error *err) {
    const ln_program *p = e->program;
    LN_TRY(gpu_use(e->queue->dev, err));
    if (!e->gathered) GPU_TRY(cudaMallocHost((void **)&e->gathered, all), "preparing to read outputs");
    char *to = e->gathered;
    for (int i = 0; i < p->n_outputs; i++) {
        const ln_pvalue *v = ln_program_value(p, p->outputs[i]);
        const size_t bytes = gathered_bytes(v), row = (size_t)v->dims[v->n_dims - 1] * sizeof(float);
        if (bytes == 0) continue;
        GPU_TRY(cudaMemcpy2DAsync(to, row, (char *)e->temp + v->offset, (size_t)v->row_bytes, row,
                                  bytes / row, cudaMemcpyDeviceToHost, e->queue->stream),
                "copying");
        to += bytes;
    }
    GPU_TRY(cudaStreamSynchronize(e->queue->stream), "copying");
    e->gathered_hold = true;
    return LN_OK;
}
/* Copies rows of an output that is gathered; *done stays false if it is not. */
static ln_status read_gathered(ln_exec *e, ln_v v, int64_t row, int64_t n, float *rows, bool *done,
                               ln_error *err) {
    size_t all;
    const size_t at = e->gathers ? gathered_at(e, v, &all) : SIZE_MAX;
    if (at == SIZE_MAX) return LN_OK;
    if (!e->gathered_hold) LN_TRY(gather_outputs(e, all, err));
    const ln_pvalue *x = ln_program_value(e->program, v);
    const size_t bytes = (size_t)x->dims[x->n_dims - 1] * sizeof(float);
    memcpy(rows, e->gathered + at + (size_t)row * bytes, (size_t)n * bytes);
    *done = true;
    return LN_OK;
}

/* Rows that have the host's form are copied there at once. */
static ln_status read_rows(ln_exec *e, const ln_pvalue *v, int64_t row, int64_t n, float *rows,
                           ln_error *err) {
    const size_t bytes = (size_t)v->dims[v->n_dims - 1] * sizeof *rows;
    LN_TRY(gpu_use(e->queue->dev, err));
    GPU_TRY(cudaMemcpy2DAsync(rows, bytes, (char *)e->temp + v->offset + row * v->row_bytes,
                              (size_t)v->row_bytes, bytes, (size_t)n, cudaMemcpyDeviceToHost,
                              e->queue->stream),
            "copying");
    GPU_TRY(cudaStreamSynchronize(e->queue->stream), "copying");
    return LN_OK;
}

/* By way of a copy of the rows in host memory, with their pitch. */
ln_status gpu_value(ln_exec *e, int i, int64_t row, int64_t n, float *rows, bool write, ln_error *err) {
    const ln_pvalue *v;
    LN_TRY(find_value(e, i, row, n, &v, err));
    if (n == 0) return LN_OK;
    const int64_t cols = v->dims[v->n_dims - 1];
    const ln_dtype dtype = v->layout == LN_LAYOUT_NARROW ? LN_BF16 : LN_F32;
    bool done = false;
    if (!write) LN_TRY(read_gathered(e, i, row, n, rows, &done, err));
    if (done) return LN_OK;
    if (!write && dtype == LN_F32) return read_rows(e, v, row, n, rows, err);
    const size_t bytes = (size_t)(n * v->row_bytes);
    char *at = (char *)e->temp + v->offset + row * v->row_bytes, *copy = ln_zalloc(1, bytes);
    if (!copy) return LN_OOM(err, "rows of a value");
    ln_status st = write ? LN_OK : gpu_copy(e->queue, copy, at, bytes, LN_COPY_OUT, err);
    for (int64_t r = 0; st == LN_OK && r < n; r++)
        for (int64_t c = 0; c < cols; c++) {
            char *here = copy + r * v->row_bytes;
            float *x = &rows[r * cols + c];
            if (!write) *x = ln_num_load(here, dtype, c);
            else if (v->format.kind == LN_FORMAT_BF16)
                ln_num_store(here, dtype, c, ln_bf16_f32(ln_f32_bf16(*x)));
            else ln_num_store(here, dtype, c, *x);
        }
    if (write) e->ids_hold = e->gathered_hold = false;
    if (st == LN_OK && write) st = gpu_copy(e->queue, at, copy, bytes, LN_COPY_IN, err);
    ln_free(copy);
    return st;
}

ln_status gpu_argmax_rows(ln_exec *e, int i, int64_t row, int64_t n, int32_t *ids, ln_error *err) {
    const ln_pvalue *v;
    const ln_status st = find_value(e, i, row, n, &v, err);
    if (st != LN_OK) return ln_prefix(err, st, "argmax");
    if (i != e->argmax)
        return ln_fail(err, LN_EINTERNAL, "argmax of %s: it is not the f32 output of the program", v->name);
    if (!e->ids_hold) { /* the step was traced, or its logits were overwritten */
        const gpu_launch l = launch_of(e, e->live.T, e->live.N, e->live.B);
        LN_TRY(gpu_use(e->queue->dev, err));
        GPU_TRY(gpu_argmax(&l, &e->step, &e->logits, e->parts, e->ids), "searching the largest logit");
        LN_TRY(gpu_copy(e->queue, e->host_ids, e->ids, (size_t)l.N * sizeof *ids, LN_COPY_OUT, err));
        e->ids_hold = true;
    }
    memcpy(ids, e->host_ids + row, (size_t)n * sizeof *ids);
    return LN_OK;
}
