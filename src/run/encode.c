/* Quantising at load (--quantize): a dense matrix of the file becomes affine groups in memory, by the rule that files are quantised by.
 *
 * Rows are shared out among the threads. The pages of the file are mapped a block at a time and given back behind it, so that the dense
 * model never lies in memory beside the packed one and the peak stays what `plan` said. */
#include "../base/file.h"
#include "../base/pool.h"
#include "run.h"

enum { ALIGN = 64, BLOCK_BYTES = 1 << 20 };

static int64_t aligned(int64_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }
static int64_t codes_bytes(const ln_weight *w) { return aligned(w->d0 * ln_affine_row_bytes(w->enc, w->d1)); }
static int64_t numbers_bytes(const ln_weight *w) { return aligned(w->d0 * (w->d1 / w->enc.group) * ln_dtype_bytes(w->dtype)); }

size_t ln_encoded_bytes(const ln_weight *w) { return (size_t)(codes_bytes(w) + 2 * numbers_bytes(w)); }

uint64_t ln_encoding_bytes(const ln_weights *w, int n_threads) {
    int64_t most = 0;
    for (size_t i = 0; i < w->n; i++)
        if (ln_weight_made(&w->items[i])) most = LN_MAX(most, BLOCK_BYTES + w->items[i].d1 * 8); /* a block's last row may reach beyond it */
    return (uint64_t)n_threads * (uint64_t)most;
}

typedef struct encoder {
    ln_affine_job job;
    int64_t rows;
    float *row;            /* [n_threads][cols] */
    _Atomic bool bad;      /* a number is not finite */
} encoder;

static void encode_share(void *user, int thread, int n_threads) {
    encoder *e = user;
    const ln_affine_job *j = &e->job;
    int64_t lo, hi, row_bytes = j->cols * ln_dtype_bytes(j->stored), n = LN_MAX(1, BLOCK_BYTES / row_bytes);
    ln_share(e->rows, 1, thread, n_threads, &lo, &hi);
    for (; lo < hi; lo += n) {
        int64_t to = LN_MIN(hi, lo + n);
        ln_guard_fetch(j->w + lo * row_bytes, (size_t)((to - lo) * row_bytes));
        if (!ln_affine_rows(j, lo, to, e->row + thread * j->cols, NULL)) e->bad = true;
        ln_guard_release(j->w + lo * row_bytes, (size_t)((to - lo) * row_bytes));
    }
}

ln_status ln_encode(const ln_weight *w, void *room, int n_threads, ln_affine *out, ln_error *err) {
    uint8_t *codes = room, *scales = codes + codes_bytes(w), *biases = scales + numbers_bytes(w);
    encoder e = {.job = {.w = w->tensor->data, .stored = w->dtype, .dtype = w->dtype, .enc = w->enc, .cols = w->d1, .codes = codes, .scales = scales,
                         .biases = biases},
                 .rows = w->d0};
    e.row = ln_zalloc((size_t)w->d1 * (size_t)n_threads, sizeof *e.row);
    if (!e.row) return LN_OOM(err, "the rows that are quantised");
    ln_pool_run(n_threads, encode_share, &e);
    ln_free(e.row);
    *out = (ln_affine){codes, scales, biases, w->dtype, w->enc};
    if (!e.bad) return LN_OK;
    return ln_fail(err, LN_ENUMERIC, "tensor %s: expected finite numbers to quantise, found a NaN or an infinity; leave --quantize out, or get the weights again",
                   w->tensor->name);
}
