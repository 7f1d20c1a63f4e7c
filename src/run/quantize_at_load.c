/* Quantises at load (ln_options.quantize_bits): a dense matrix of the file becomes affine groups in memory,
 * by the rule that `linnet quantize` uses for files.
 *
 * Rows are partitioned among the threads. Pages of the file are faulted in a block at a time and released
 * after it, so that the dense model and the quantised one are never both in memory and the peak is what the
 * plan says. */
#include "../base/file.h"
#include "run.h"

/* BLOCK_BYTES: of the file, that a thread reads at a time. SLICE_BYTES: of codes, that are quantised before
 * they are uploaded to a device with its own layout. */
enum { ALIGN = 64, BLOCK_BYTES = 1 << 20, SLICE_BYTES = 4 << 20 };

static int64_t aligned(int64_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }
static int64_t codes_bytes(const ln_weight *w) { return aligned(w->d0 * ln_affine_row_bytes(w->enc, w->d1)); }
/* Bytes of a weight's scales; its biases take as many. */
static int64_t numbers_bytes(const ln_weight *w) {
    return aligned(w->d0 * (w->d1 / w->enc.group) * ln_dtype_bytes(w->dtype));
}

size_t ln_encoded_bytes(const ln_weight *w) { return (size_t)(codes_bytes(w) + 2 * numbers_bytes(w)); }

/* Rows that are quantised at a time for a device with its own layout: a multiple of 16, or all. */
static int64_t slice_rows(const ln_weight *w) {
    return LN_MIN(w->d0, LN_MAX(1, SLICE_BYTES / 16 / ln_affine_row_bytes(w->enc, w->d1)) * 16);
}

uint64_t ln_encoding_bytes(const ln_weights *w, int n_threads) {
    int64_t most = 0, slice = 0;
    for (size_t i = 0; i < w->n; i++) {
        ln_weight part = w->items[i];
        if (!ln_weight_made(&part)) continue;
        most = LN_MAX(most, BLOCK_BYTES + part.d1 * 8); /* a block's last row may go beyond it */
        part.d0 = slice_rows(&part);
        slice = LN_MAX(slice, (int64_t)ln_encoded_bytes(&part));
    }
    return (uint64_t)n_threads * (uint64_t)most + (uint64_t)slice;
}

typedef struct encoder {
    ln_affine_job job;
    float *row;       /* [n_threads][cols] scratch: one row as f32 */
    _Atomic bool bad; /* a weight is NaN or infinite */
} encoder;

/* Quantises rows [lo, hi), a block at a time. */
static void encode_rows(void *user, int thread, int64_t lo, int64_t hi) {
    encoder *e = user;
    const ln_affine_job *j = &e->job;
    const int64_t row_bytes = j->cols * ln_dtype_bytes(j->stored), n = LN_MAX(1, BLOCK_BYTES / row_bytes);
    for (; lo < hi; lo += n) {
        int64_t to = LN_MIN(hi, lo + n);
        ln_guard_fetch(j->w + lo * row_bytes, (size_t)((to - lo) * row_bytes));
        if (!ln_affine_rows(j, lo, to, e->row + thread * j->cols, NULL)) e->bad = true;
        ln_guard_release(j->w + lo * row_bytes, (size_t)((to - lo) * row_bytes));
    }
}

ln_status ln_encode(const ln_weight *w, void *room, ln_pool *pool, int n_threads, ln_affine *out,
                    ln_error *err) {
    uint8_t *codes = room, *scales = codes + codes_bytes(w), *biases = scales + numbers_bytes(w);
    encoder e = {.job = {.w = w->tensor->data,
                         .stored = w->dtype,
                         .dtype = w->dtype,
                         .enc = w->enc,
                         .cols = w->d1,
                         .codes = codes,
                         .scales = scales,
                         .biases = biases}};
    e.row = ln_zalloc((size_t)w->d1 * (size_t)n_threads, sizeof *e.row);
    if (!e.row) return LN_OOM(err, "the rows that are quantised");
    ln_pool_run_units(pool, n_threads, w->d0, LN_POOL_SLICE_BYTES / (w->d1 * ln_dtype_bytes(w->dtype)),
                      encode_rows, &e);
    ln_free(e.row);
    *out = (ln_affine){.codes = codes, .scales = scales, .biases = biases, .dtype = w->dtype, .enc = w->enc};
    if (!e.bad) return LN_OK;
    return ln_fail(err, LN_ENUMERIC,
                   "tensor %s: expected finite numbers to quantise, found a NaN or an infinity; "
                   "leave ln_options.quantize_bits out, or get the weights again",
                   w->tensor->name);
}

ln_status ln_encode_into(const ln_device_ops *ops, ln_dev *dev, const ln_weight *w, const ln_run_options *opt,
                         void *room, ln_device_weight *out, ln_error *err) {
    const ln_weight_desc desc = ln_weight_describe(w, opt->numerics);
    const int64_t n = slice_rows(w);
    ln_weight part = *w;
    ln_tensor rows = *w->tensor;
    part.tensor = &rows;
    part.d0 = n;
    void *buffer = ln_alloc(ln_encoded_bytes(&part));
    if (!buffer) return LN_OOM(err, "the rows that are quantised");
    ln_status st = LN_OK;
    for (int64_t d = 0; d < w->d0; d += n) {
        ln_affine a;
        part.d0 = LN_MIN(n, w->d0 - d);
        rows.data = w->tensor->data + d * w->d1 * ln_dtype_bytes(w->dtype);
        LN_GO(ln_encode(&part, buffer, ln_run_pool(opt), opt->n_threads, &a, err));
        const ln_host_weight host = {.data = a.codes,
                                     .scales = a.scales,
                                     .biases = a.biases,
                                     .row0 = d,
                                     .n_rows = part.d0,
                                     .n_cols = w->d1};
        LN_GO(ops->upload(dev, &desc, &host, room, out, err));
    }
out:
    ln_free(buffer);
    return st;
}
