/* Quantises while a model is loaded (ln_options.quantize_bits): a matrix of another source that is dense or
 * in fp8 becomes affine groups in memory, by the rule that `linnet quantize` uses for files.
 *
 * Rows are partitioned among the threads. Pages of the file are faulted in a block at a time and released
 * after it, so that the dense model and the quantised one are never both in memory and the peak is what the
 * plan says. Of fp8 a slice of rows is decoded first, and rounded to bf16. */
#include "../base/file.h"
#include "scheme.h"

/* BLOCK_BYTES: of the file, that a thread reads at a time. SLICE_BYTES: of codes, that are quantised before
 * they are uploaded to a device with its own layout. */
enum { BLOCK_BYTES = 1 << 20, SLICE_BYTES = 4 << 20 };

size_t ln_source_bytes(const ln_weight *w, int64_t n) {
    const ln_row_bytes row = ln_encoding_row(w->enc, w->d1 ? w->d1 : 1);
    return w->made ? ln_source_aligned(n * row.data) + ln_source_aligned(n * row.scales) +
                         ln_source_aligned(n * row.offsets)
                   : 0;
}

/* Rows that the other source computes at a time, and bytes of so many. */
enum { SOME = 256 };
static bool under_is_made(const ln_weight *w) {
    return ln_encoding_is_coded(w->under) || ln_tensor_is_remade(w->tensor) || w->parts || w->changed;
}
static size_t under_bytes(const ln_weight *w, int64_t n) {
    ln_weight under = *w;
    under.enc = w->under;
    return w->quantised && under_is_made(w) ? ln_source_bytes(&under, n) : 0;
}

int64_t ln_source_slice(const ln_weight *w) {
    if (w->n_experts) return w->d0 / w->n_experts; /* those of one expert, which may lie as they are needed */
    const int64_t row = ln_encoding_row(w->enc, w->d1 ? w->d1 : 1).data;
    return LN_MIN(w->d0, LN_MAX(1, SLICE_BYTES / 16 / row) * 16);
}

uint64_t ln_source_work_bytes(const ln_weight *weights, size_t n, int n_threads) {
    int64_t most = 0, slice = 0;
    for (size_t i = 0; i < n; i++) {
        const ln_weight *w = &weights[i];
        if (!w->made) continue;
        const int64_t rows = ln_source_slice(w), whole = w->transposed ? (int64_t)w->tensor->bytes : 0;
        most = LN_MAX(most, BLOCK_BYTES + w->d1 * 16); /* a block's last row may go beyond it */
        slice = LN_MAX(slice, whole + (w->parts ? 3 : 1) * (int64_t)(ln_source_bytes(w, rows) +
                                                                     under_bytes(w, LN_MIN(rows, SOME))));
    }
    return (uint64_t)n_threads * (uint64_t)most + (uint64_t)slice;
}

typedef struct encoder {
    ln_affine_job job;
    ln_encoding under;
    const ln_encoded_rows *coded; /* the rows to quantise, if they are not dense */
    float *row;                   /* [n_threads][cols] scratch: one row as f32 */
    float *decoded;               /* [n_threads][cols]: one row of `coded` */
    _Atomic bool bad;             /* a weight is NaN or infinite */
} encoder;

/* Quantises rows [lo, hi) that are dense, a block at a time. */
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

/* Quantises rows [lo, hi) of `coded`, one at a time. */
static void encode_coded(void *user, int thread, int64_t lo, int64_t hi) {
    encoder *e = user;
    float *row = e->decoded + thread * e->job.cols;
    for (; lo < hi; lo++) {
        ln_affine_job j = e->job;
        const ln_row_bytes bytes = ln_encoding_row(ln_encoding_affine(j.code, j.dtype, j.dtype), j.cols);
        ln_encoding_decode(e->under, e->coded, lo, j.cols, row);
        j.w = (const uint8_t *)row;
        j.codes += lo * bytes.data, j.scales += lo * bytes.scales, j.biases += lo * bytes.offsets;
        if (!ln_affine_rows(&j, 0, 1, e->row + thread * j.cols, NULL)) e->bad = true;
    }
}

static ln_status find(const ln_source *s, const ln_source_ask *ask, ln_weight *w, bool *fits, ln_error *err) {
    return s->of->ops->find(s->of, ask, w, fits, err);
}

/* Quantises n dense rows, in place in the file. */
static ln_status quantise_dense(const ln_source *of, const ln_weight *stored, int64_t row0, int64_t n,
                                const ln_source_work *work, encoder *e, ln_error *err) {
    ln_encoded_rows from;
    LN_TRY(of->ops->rows(of, stored, row0, n, work, NULL, &from, err));
    e->job.w = from.data;
    ln_pool_run_units(work->pool, work->n_threads, n,
                      LN_POOL_SLICE_BYTES / (stored->d1 * ln_dtype_bytes(stored->dtype)), encode_rows, e);
    return LN_OK;
}

/* Quantises n rows that the source computes, some at a time. */
static ln_status quantise_coded(const ln_source *of, const ln_weight *stored, int64_t row0, int64_t n,
                                const ln_source_work *work, encoder *e, ln_error *err) {
    const ln_row_bytes to =
        ln_encoding_row(ln_encoding_affine(e->job.code, e->job.dtype, e->job.dtype), stored->d1);
    ln_status st = LN_OK;
    void *buffer = ln_alloc(ln_source_bytes(stored, LN_MIN(n, SOME)));
    e->decoded = ln_zalloc((size_t)stored->d1 * (size_t)work->n_threads, sizeof *e->decoded);
    if (!buffer || !e->decoded) LN_GO(LN_OOM(err, "the rows that are quantised"));
    for (int64_t r = 0, some; r < n; r += some) {
        ln_encoded_rows from;
        some = LN_MIN(n - r, SOME);
        LN_GO(of->ops->rows(of, stored, row0 + r, some, work, buffer, &from, err));
        e->coded = &from;
        ln_pool_run_units(work->pool, work->n_threads, some, SOME, encode_coded, e);
        if (from.data != buffer) /* rows of an expert as they lie in the file */
            ln_guard_release(from.data, (size_t)(some * ln_encoding_row(stored->enc, stored->d1).data));
        e->job.codes += some * to.data, e->job.scales += some * to.scales, e->job.biases += some * to.offsets;
    }
out:
    ln_free(e->decoded);
    ln_free(buffer);
    return st;
}

static ln_status rows(const ln_source *s, const ln_weight *w, int64_t row0, int64_t n,
                      const ln_source_work *work, void *buffer, ln_encoded_rows *out, ln_error *err) {
    const ln_row_bytes row = ln_encoding_row(w->enc, w->d1 ? w->d1 : 1);
    ln_weight stored = *w;
    if (!w->quantised) return s->of->ops->rows(s->of, w, row0, n, work, buffer, out, err);
    const bool coded = under_is_made(w);
    stored.enc = w->under;
    stored.made = coded;
    stored.quantised = false;
    uint8_t *codes = buffer, *scales = codes + ln_source_aligned(n * row.data),
            *biases = scales + ln_source_aligned(n * row.scales);
    encoder e = {.job = {.stored = coded ? LN_F32 : w->dtype,
                         .dtype = w->dtype,
                         .code = ln_encoding_groups(w->enc),
                         .cols = w->d1,
                         .codes = codes,
                         .scales = scales,
                         .biases = biases},
                 .under = w->under};
    e.row = ln_zalloc((size_t)w->d1 * (size_t)work->n_threads, sizeof *e.row);
    if (!e.row) return LN_OOM(err, "the rows that are quantised");
    const ln_status st = (coded ? quantise_coded : quantise_dense)(s->of, &stored, row0, n, work, &e, err);
    ln_free(e.row);
    *out = (ln_encoded_rows){.data = codes, .scales = scales, .offsets = biases};
    if (st != LN_OK || !e.bad) return st;
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

bool ln_source_is_fp8(const ln_weight *w) {
    return (w->enc.kind == LN_STORED_E4M3 || w->enc.kind == LN_STORED_E5M2) && !w->code.bits;
}

bool ln_source_is_mxfp4(const ln_weight *w) {
    return w->n_experts > 0 && w->enc.kind == LN_STORED_E2M1 && w->enc.group == 32;
}

bool ln_source_quantize(ln_weight *w, ln_groups code) {
    const bool fp8 = ln_source_is_fp8(w);
    if (w->d1 == 0 || w->d1 % code.group != 0 || (!ln_encoding_is_dense(w->enc) && !fp8)) return false;
    w->under = w->enc;
    w->enc = ln_encoding_affine(code, w->dtype, w->dtype);
    w->made = w->quantised = true;
    return true;
}
