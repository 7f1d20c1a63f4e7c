/* Weights in device memory: row by row, as files have them.
 *
 *     dense     elements [D][C]
 *     affine    codes [D][C * bits / 32] words | scales [D][C / group] | biases [D][C / group]
 *               each part begins at a multiple of GPU_ALIGN bytes
 *
 * An upload copies pieces of the file to one of two pinned buffers, from which the GPU fetches them while the
 * next piece is copied. */
#include "cuda_device.h"

#include <string.h>

void (*gpu_release_pages)(const void *data, size_t bytes);

static size_t aligned(size_t bytes) { return (bytes + GPU_ALIGN - 1) / GPU_ALIGN * GPU_ALIGN; }

/* The parts of a weight, in bytes: a row of codes or elements, a row of scales, offsets of scales and biases,
 * all of it. */
typedef struct parts {
    size_t row, group_row, scales, biases, bytes;
} parts;
static parts parts_of(int64_t D, int64_t C, ln_dtype dtype, int bits, int group) {
    const size_t element = (size_t)ln_dtype_bytes(dtype);
    parts p = {.row = bits ? (size_t)(C / 32 * 4 * bits) : (size_t)C * element};
    if (bits) p.group_row = (size_t)(C / group) * element;
    p.scales = aligned(p.row * (size_t)D);
    p.biases = p.scales + aligned(p.group_row * (size_t)D);
    p.bytes = bits ? p.biases + (p.group_row * (size_t)D + 3) / 4 * 4 : p.row * (size_t)D; /* whole words */
    return p;
}
static parts parts_of_desc(const ln_weight_desc *w) {
    return parts_of(w->dims[0], w->n_dims == 2 ? w->dims[1] : 1, w->dtype, w->bits, w->group);
}

ln_status gpu_weight_size(const ln_dev *d, const ln_weight_desc *w, const ln_host_weight *sample,
                          ln_weight_size *out, ln_error *err) {
    (void)d, (void)sample, (void)err;
    const size_t bytes = parts_of_desc(w).bytes;
    *out = (ln_weight_size){.bound = bytes, .expected = bytes};
    return LN_OK;
}

gpu_weight gpu_weight_of(const ln_pvalue *v) {
    const bool matrix = v->n_dims == 2;
    const int64_t D = matrix ? v->dims[0] : 1, C = matrix ? v->dims[1] : v->dims[0];
    const parts p = parts_of(D, C, v->dtype, v->enc.bits, v->enc.group);
    gpu_weight w = {.data = v->data,
                    .D = D,
                    .C = C,
                    .type = (int32_t)v->dtype,
                    .bits = v->enc.bits,
                    .group = v->enc.group};
    if (w.bits) w.scales = (char *)v->data + p.scales, w.biases = (char *)v->data + p.biases;
    return w;
}

/* Allocates the pinned buffers of uploads. */
static ln_status open_staging(ln_dev *d, ln_error *err) {
    for (int i = 0; i < 2; i++) {
        if (!d->staging[i]) GPU_TRY(cudaMallocHost(&d->staging[i], GPU_STAGING), "taking pinned memory");
        if (!d->staged[i])
            GPU_TRY(cudaEventCreateWithFlags(&d->staged[i], cudaEventDisableTiming), "opening an upload");
    }
    return LN_OK;
}

/* Sends `bytes` bytes, a piece of at most GPU_STAGING bytes at a time. *turn: which buffer is next. */
static ln_status send_dense(ln_dev *d, char *to, const char *from, size_t bytes, int *turn, ln_error *err) {
    for (size_t at = 0; at < bytes; at += GPU_STAGING) {
        const size_t n = LN_MIN(bytes - at, (size_t)GPU_STAGING);
        const int i = *turn;
        *turn = 1 - i;
        GPU_TRY(cudaEventSynchronize(d->staged[i]), "uploading a weight");
        memcpy(d->staging[i], from + at, n);
        GPU_TRY(cudaMemcpyAsync(to + at, d->staging[i], n, cudaMemcpyHostToDevice, d->uploads), "uploading a "
                                                                                                "weight");
        GPU_TRY(cudaEventRecord(d->staged[i], d->uploads), "uploading a weight");
        if (gpu_release_pages) gpu_release_pages(from + at, n);
    }
    return LN_OK;
}
/* Sends n rows of `row` bytes that are `pitch` bytes apart in host memory; 0: without padding. */
static ln_status send_rows(ln_dev *d, char *to, const void *from, int64_t n, size_t row, int64_t pitch,
                           int *turn, ln_error *err) {
    if (pitch == 0 || (size_t)pitch == row) return send_dense(d, to, from, row * (size_t)n, turn, err);
    for (int64_t r = 0; r < n; r++)
        LN_TRY(send_dense(d, to + (size_t)r * row, (const char *)from + r * pitch, row, turn, err));
    return LN_OK;
}

static ln_status send_all(ln_dev *d, const ln_weight_desc *w, const ln_host_weight *h, char *room,
                          ln_error *err) {
    const parts p = parts_of_desc(w);
    int turn = 0;
    LN_TRY(gpu_use(d, err));
    LN_TRY(open_staging(d, err));
    LN_TRY(send_rows(d, room + p.row * (size_t)h->row0, h->data, h->n_rows, p.row, h->pitch, &turn, err));
    if (w->bits) {
        const size_t at = p.group_row * (size_t)h->row0;
        LN_TRY(send_rows(d, room + p.scales + at, h->scales, h->n_rows, p.group_row, h->group_pitch, &turn,
                         err));
        LN_TRY(send_rows(d, room + p.biases + at, h->biases, h->n_rows, p.group_row, h->group_pitch, &turn,
                         err));
    }
    GPU_TRY(cudaStreamSynchronize(d->uploads), "uploading a weight");
    return LN_OK;
}

ln_status gpu_upload(ln_dev *d, const ln_weight_desc *w, const ln_host_weight *h, void *room,
                     ln_device_weight *out, ln_error *err) {
    const int64_t C = w->n_dims == 2 ? w->dims[1] : 1;
    if (h->row0 < 0 || h->n_rows < 0 || h->row0 > w->dims[0] - h->n_rows || h->col0 != 0 || h->n_cols != C)
        return ln_fail(err, LN_EUNSUPPORTED,
                       "weight %s: the CUDA device takes all columns of rows, found rows %lld + %lld, "
                       "columns "
                       "%lld + %lld of [%lld, %lld]",
                       w->name, (long long)h->row0, (long long)h->n_rows, (long long)h->col0,
                       (long long)h->n_cols, (long long)w->dims[0], (long long)C);
    const size_t bytes = parts_of_desc(w).bytes;
    *out = (ln_device_weight){.data = room, .bytes = bytes, .read_bytes = bytes};
    (void)pthread_mutex_lock(&d->lock);
    const ln_status st = send_all(d, w, h, room, err);
    (void)pthread_mutex_unlock(&d->lock);
    return st;
}
