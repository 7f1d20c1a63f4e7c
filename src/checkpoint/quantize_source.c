/* Quantises while a model is loaded (ln_options.quantize_bits): a dense matrix of another source becomes
 * affine groups in memory, by the rule that `linnet quantize` uses for files.
 *
 * Rows are partitioned among the threads. Pages of the file are faulted in a block at a time and released
 * after it, so that the dense model and the quantised one are never both in memory and the peak is what the
 * plan says. */
#include "../base/file.h"
#include "source.h"

/* BLOCK_BYTES: of the file, that a thread reads at a time. SLICE_BYTES: of codes, that are quantised before
 * they are uploaded to a device with its own layout. */
enum { ALIGN = 64, BLOCK_BYTES = 1 << 20, SLICE_BYTES = 4 << 20 };

static size_t aligned(int64_t bytes) { return (size_t)((bytes + ALIGN - 1) / ALIGN * ALIGN); }

size_t ln_source_room(const ln_weight *w, int64_t n) {
    const ln_row_bytes row = ln_encoding_row(w->enc, w->d1 ? w->d1 : 1);
    return w->made ? aligned(n * row.data) + aligned(n * row.scales) + aligned(n * row.offsets) : 0;
}

int64_t ln_source_slice(const ln_weight *w) {
    return LN_MIN(w->d0, LN_MAX(1, SLICE_BYTES / 16 / ln_encoding_row(w->enc, w->d1).data) * 16);
}

uint64_t ln_source_work_bytes(const ln_weight *weights, size_t n, int n_threads) {
    int64_t most = 0, slice = 0;
    for (size_t i = 0; i < n; i++) {
        const ln_weight *w = &weights[i];
        if (!w->made) continue;
        most = LN_MAX(most, BLOCK_BYTES + w->d1 * 8); /* a block's last row may go beyond it */
        slice = LN_MAX(slice, (int64_t)ln_source_room(w, ln_source_slice(w)));
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

static ln_status find(const ln_source *s, const ln_source_ask *ask, ln_weight *w, bool *fits, ln_error *err) {
    return s->of->ops->find(s->of, ask, w, fits, err);
}

static ln_status rows(const ln_source *s, const ln_weight *w, int64_t row0, int64_t n,
                      const ln_source_work *work, void *room, ln_encoded_rows *out, ln_error *err) {
    const ln_row_bytes row = ln_encoding_row(w->enc, w->d1 ? w->d1 : 1);
    ln_encoded_rows from;
    ln_weight stored = *w;
    if (!w->made) return s->of->ops->rows(s->of, w, row0, n, work, room, out, err);
    stored.enc = ln_encoding_dense(w->dtype);
    stored.made = false;
    LN_TRY(s->of->ops->rows(s->of, &stored, row0, n, work, NULL, &from, err));
    uint8_t *codes = room, *scales = codes + aligned(n * row.data),
            *biases = scales + aligned(n * row.scales);
    encoder e = {.job = {.w = from.data,
                         .stored = w->dtype,
                         .dtype = w->dtype,
                         .code = ln_encoding_groups(w->enc),
                         .cols = w->d1,
                         .codes = codes,
                         .scales = scales,
                         .biases = biases}};
    e.row = ln_zalloc((size_t)w->d1 * (size_t)work->n_threads, sizeof *e.row);
    if (!e.row) return LN_OOM(err, "the rows that are quantised");
    ln_pool_run_units(work->pool, work->n_threads, n,
                      LN_POOL_SLICE_BYTES / (w->d1 * ln_dtype_bytes(w->dtype)), encode_rows, &e);
    ln_free(e.row);
    *out = (ln_encoded_rows){codes, scales, biases};
    if (!e.bad) return LN_OK;
    return ln_fail(err, LN_ENUMERIC,
                   "tensor %s: expected finite numbers to quantise, found a NaN or an infinity; "
                   "leave ln_options.quantize_bits out, or get the weights again",
                   w->tensor->name);
}

static const ln_source_ops quantize_ops = {.find = find, .rows = rows};

const ln_source *ln_source_quantizing(ln_arena *arena, const ln_source *of) {
    ln_source *s = ln_arena_alloc(arena, sizeof *s);
    if (s) *s = (ln_source){.ops = &quantize_ops, .tensors = of->tensors, .quant = of->quant, .of = of};
    return s;
}

bool ln_source_quantize(ln_weight *w, ln_groups code) {
    if (w->d1 == 0 || w->d1 % code.group != 0 || !ln_encoding_is_dense(w->enc)) return false;
    w->enc = ln_encoding_affine(code, w->dtype, w->dtype);
    w->made = true;
    return true;
}
