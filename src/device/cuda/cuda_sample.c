/* Draws tokens on the GPU from the logits of the last step (contract: ln_device_ops.sample). The parameters
 * of the rows go to device memory, and the kernels write the ids to pinned memory, GPU_SAMPLE_ROWS rows at a
 * time.
 *
 * A draw after a step costs a second wait for the GPU. So the device expects that a row that was drawn will
 * be drawn after the next step too, with the same parameters at the next position, and the next step makes
 * that draw behind its own kernels. gpu_sample_rows takes the id of such a draw only if the row and all
 * parameters are those that it is asked for; else it draws then. A wrong guess costs some time and changes no
 * token. */
#include "cuda_device.h"

#include <string.h>

size_t gpu_sample_bytes(const ln_bounds *b) {
    const int64_t rows = LN_MIN(b->N, (int64_t)GPU_SAMPLE_ROWS);
    return (size_t)rows * sizeof(gpu_draw) + gpu_sample_scratch(rows);
}

/* The parameters of a row as kernels take them. n_excluded -1: the row is left to the host. */
static gpu_draw draw_of(const ln_row_sampling *h) {
    gpu_draw d = {.temperature = h->temperature,
                  .top_k = h->top_k,
                  .top_p = h->top_p,
                  .min_p = h->min_p,
                  .seed = h->seed,
                  .position = h->position,
                  .n_excluded = h->n_excluded > GPU_EXCLUDED ? -1 : h->n_excluded};
    for (int i = 0; i < d.n_excluded; i++) d.excluded[i] = h->excluded[i];
    return d;
}

static ln_status sample_some(ln_exec *e, int64_t row, const ln_row_sampling *how, int64_t n, int32_t *ids,
                             ln_error *err) {
    const gpu_launch l = {.stream = e->queue->stream, .overlap = e->queue->dev->major >= 9};
    const int64_t room = LN_MIN(e->program->bounds.N, (int64_t)GPU_SAMPLE_ROWS);
    gpu_draw *host = e->host_draws, *draws = e->draws;
    int32_t *host_ids = (int32_t *)(void *)(host + room);
    for (int64_t i = 0; i < n; i++) host[i] = draw_of(&how[i]);
    GPU_TRY(cudaMemcpyAsync(draws, host, (size_t)n * sizeof *host, cudaMemcpyHostToDevice, l.stream),
            "drawing tokens");
    GPU_TRY(gpu_sample(&l, &e->logits, row, (int32_t)n, draws, draws + room, host_ids), "drawing tokens");
    GPU_TRY(cudaStreamSynchronize(l.stream), "drawing tokens");
    memcpy(ids, host_ids, (size_t)n * sizeof *ids);
    return LN_OK;
}

/* ---- draws ahead ---- */

static bool same_draw(const gpu_draw *a, const gpu_draw *b) {
    bool same = a->seed == b->seed && a->position == b->position && a->top_p == b->top_p &&
                a->min_p == b->min_p && a->temperature == b->temperature && a->top_k == b->top_k &&
                a->n_excluded == b->n_excluded;
    for (int i = 0; same && i < a->n_excluded; i++) same = a->excluded[i] == b->excluded[i];
    return same;
}

/* Adds the draw that is expected after the next step for a row that was drawn like this. */
static void expect_draw(gpu_draws_ahead *next, int64_t row, const ln_row_sampling *how) {
    if (row >= GPU_SAMPLE_ROWS) return;
    const int32_t r = (int32_t)row;
    if (next->first == next->end) next->first = next->end = r;
    for (; next->first > r; next->first--) next->how[next->first - 1].n_excluded = -1;
    for (; next->end <= r; next->end++) next->how[next->end].n_excluded = -1;
    next->how[r] = draw_of(how);
    next->how[r].position++;
}

ln_status gpu_send_draws(ln_exec *e, ln_error *err) {
    const int64_t room = LN_MIN(e->program->bounds.N, (int64_t)GPU_SAMPLE_ROWS);
    const int32_t first = e->next.first, end = (int32_t)LN_MIN(e->next.end, LN_MIN(room, e->live.N));
    e->next.first = e->next.end = 0;
    e->made.first = e->made.end = 0;
    if (first >= end) return LN_OK;
    const size_t bytes = (size_t)(end - first) * sizeof *e->draws;
    memcpy(e->made.how + first, e->next.how + first, bytes);
    GPU_TRY(cudaMemcpyAsync(e->draws, e->made.how + first, bytes, cudaMemcpyHostToDevice, e->queue->stream),
            "drawing tokens");
    e->made.first = first, e->made.end = end;
    return LN_OK;
}

ln_status gpu_draw_ahead(ln_exec *e, ln_error *err) {
    const gpu_launch l = {.stream = e->queue->stream, .overlap = e->queue->dev->major >= 9};
    const int64_t room = LN_MIN(e->program->bounds.N, (int64_t)GPU_SAMPLE_ROWS);
    const int32_t first = e->made.first, n = e->made.end - first;
    if (n == 0) return LN_OK;
    GPU_TRY(gpu_sample(&l, &e->logits, first, n, e->draws, e->draws + room, e->made.ids + first), "drawing "
                                                                                                  "tokens");
    return LN_OK;
}

/* Whether the last step has drawn this row in this way; then *id is the token. */
static bool drawn_ahead(const gpu_draws_ahead *made, int64_t row, const ln_row_sampling *how, int32_t *id) {
    if (row < made->first || row >= made->end) return false;
    const gpu_draw want = draw_of(how);
    if (!same_draw(&made->how[row], &want)) return false;
    *id = made->ids[row];
    return true;
}

ln_status gpu_sample_rows(ln_exec *e, int v, int64_t row, const ln_row_sampling *how, int64_t n, int32_t *ids,
                          ln_error *err) {
    if (v != e->argmax || row < 0 || n < 0 || row > e->live.N - n)
        return ln_fail(err, LN_EINTERNAL,
                       "sampling rows %lld .. %lld of value %d: the logits are value %d, of %lld rows",
                       (long long)row, (long long)(row + n - 1), v, (int)e->argmax, (long long)e->live.N);
    LN_TRY(gpu_use(e->queue->dev, err));
    for (int64_t i = 0, k; i < n; i += k) {
        const int64_t most = LN_MIN(n - i, (int64_t)GPU_SAMPLE_ROWS);
        for (k = 0; k < most && !drawn_ahead(&e->made, row + i + k, &how[i + k], &ids[i + k]);) k++;
        if (k > 0) LN_TRY(sample_some(e, row + i, how + i, k, ids + i, err));
        else k = 1;
    }
    for (int64_t i = 0; i < n; i++) expect_draw(&e->next, row + i, &how[i]);
    return LN_OK;
}
