/* Draws tokens on the GPU from the logits of the last step (contract: ln_device_ops.sample). The parameters
 * of the rows go to device memory and the ids come back by way of pinned memory, GPU_SAMPLE_ROWS rows at a
 * time. */
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
    const gpu_launch l = {.stream = e->queue->stream};
    const int64_t room = LN_MIN(e->program->bounds.N, (int64_t)GPU_SAMPLE_ROWS);
    gpu_draw *host = e->host_draws, *draws = e->draws;
    int32_t *host_ids = (int32_t *)(void *)(host + room);
    for (int64_t i = 0; i < n; i++) host[i] = draw_of(&how[i]);
    GPU_TRY(cudaMemcpyAsync(draws, host, (size_t)n * sizeof *host, cudaMemcpyHostToDevice, l.stream),
            "drawing tokens");
    GPU_TRY(gpu_sample(&l, &e->logits, row, (int32_t)n, draws, draws + room, e->drawn), "drawing tokens");
    GPU_TRY(cudaMemcpyAsync(host_ids, e->drawn, (size_t)n * sizeof *ids, cudaMemcpyDeviceToHost, l.stream),
            "drawing tokens");
    GPU_TRY(cudaStreamSynchronize(l.stream), "drawing tokens");
    memcpy(ids, host_ids, (size_t)n * sizeof *ids);
    return LN_OK;
}

ln_status gpu_sample_rows(ln_exec *e, int v, int64_t row, const ln_row_sampling *how, int64_t n, int32_t *ids,
                          ln_error *err) {
    if (v != e->argmax || row < 0 || n < 0 || row > e->live.N - n)
        return ln_fail(err, LN_EINTERNAL,
                       "sampling rows %lld .. %lld of value %d: the logits are value %d, of %lld rows",
                       (long long)row, (long long)(row + n - 1), v, (int)e->argmax, (long long)e->live.N);
    LN_TRY(gpu_use(e->queue->dev, err));
    for (int64_t i = 0, k; i < n; i += k) {
        k = LN_MIN(n - i, (int64_t)GPU_SAMPLE_ROWS);
        LN_TRY(sample_some(e, row + i, how + i, k, ids + i, err));
    }
    return LN_OK;
}
