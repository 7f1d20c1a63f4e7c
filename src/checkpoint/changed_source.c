/* The tensors of a model that its adapter changes (ln_options.adapter): LoRA on the embedding table and on
 * the output head, rows of trained tokens, modules that were saved whole.
 *
 * Rows are those of another source, decoded to f32, changed in double and rounded once to the dtype of the
 * model, or of its scales if it is quantised. What engines compute with is therefore what `fuse` writes. A
 * table may have more rows than the model's: those are the adapter's alone. */
#include "../io/adapter.h"
#include "changed_source.h"
#include "scheme.h"

#include <math.h>
#include <string.h>

enum { SOME = 256 }; /* rows that are changed at a time */

/* What this source knows of a weight. */
typedef struct changed {
    ln_weight base;
    const ln_row_change *changes;
    size_t n;
} changed;

typedef struct job {
    const ln_weight *w;
    const changed *c;
    ln_encoded_rows base; /* rows of the model, from `row0` on */
    int64_t row0, first;  /* the first of these; of the rows that are written */
    uint8_t *to;
    float *row;  /* [n_threads][cols] */
    double *sum; /* [2][n_threads][cols] */
    int n_threads;
    _Atomic int64_t bad; /* a row with a NaN or an infinity, plus 1 */
} job;

/* Computes row r of a weight in `sum`. */
static void compute(const job *j, int64_t r, float *base, double *sum, double *one, int64_t cols) {
    const changed *c = j->c;
    if (r < c->base.d0) ln_encoding_decode(c->base.enc, &j->base, r - j->row0, cols, base);
    else memset(base, 0, (size_t)cols * sizeof *base);
    for (int64_t k = 0; k < cols; k++) sum[k] = (double)base[k];
    for (size_t i = 0; i < c->n; i++) {
        const double by = c->changes[i].factor;
        ln_adapter_changed_row(c->changes[i].change, r, cols, base, one);
        if (by == 1 && c->n == 1) memcpy(sum, one, (size_t)cols * sizeof *sum);
        else
            for (int64_t k = 0; k < cols; k++) sum[k] += by * (one[k] - (double)base[k]);
    }
}

static void change_rows(void *user, int thread, int64_t lo, int64_t hi) {
    job *j = user;
    const int64_t cols = LN_MAX(j->w->d1, 1), bytes = cols * ln_dtype_bytes(j->w->dtype);
    float *base = j->row + thread * cols;
    double *sum = j->sum + 2 * thread * cols, *one = sum + cols;
    for (; lo < hi; lo++) {
        bool finite = true;
        compute(j, j->first + lo, base, sum, one, cols);
        for (int64_t k = 0; k < cols; k++) {
            ln_num_store(j->to + lo * bytes, j->w->dtype, k, (float)sum[k]);
            finite = finite && isfinite(ln_num_load(j->to + lo * bytes, j->w->dtype, k));
        }
        if (!finite) j->bad = j->first + lo + 1;
    }
}

/* Changes n rows from `row0` on. `buffer`: for rows that the other source computes, or NULL. */
static ln_status change_some(const ln_source *s, job *j, int64_t row0, int64_t n, const ln_source_work *work,
                             void *buffer, ln_error *err) {
    const ln_weight *base = &j->c->base;
    const int64_t there = LN_MAX(0, LN_MIN(n, base->d0 - row0));
    j->row0 = j->first = row0;
    if (there > 0) LN_TRY(s->of->ops->rows(s->of, base, row0, there, work, buffer, &j->base, err));
    ln_pool_run_units(work->pool, j->n_threads, n, SOME, change_rows, j);
    if (there > 0 && !base->made) ln_rows_release(base, &j->base, there);
    if (!j->bad) return LN_OK;
    return ln_fail(err, LN_ENUMERIC,
                   "%s: row %lld of %s: expected finite numbers from the adapter, found a NaN or an infinity",
                   j->c->changes[0].file->path, (long long)j->bad - 1, j->c->changes[0].change->path);
}

static ln_status rows(const ln_source *s, const ln_weight *w, int64_t row0, int64_t n,
                      const ln_source_work *work, void *buffer, ln_encoded_rows *out, ln_error *err) {
    if (!w->changed) return s->of->ops->rows(s->of, w, row0, n, work, buffer, out, err);
    const changed *c = w->how;
    const int64_t cols = LN_MAX(w->d1, 1), bytes = cols * ln_dtype_bytes(w->dtype);
    const size_t threads = (size_t)work->n_threads;
    job j = {.w = w, .c = c, .n_threads = work->n_threads};
    void *made = c->base.made ? ln_alloc(ln_source_bytes(&c->base, LN_MIN(n, SOME))) : NULL;
    ln_status st = LN_OK;
    j.row = ln_zalloc(threads * (size_t)cols, sizeof *j.row);
    j.sum = ln_zalloc(2 * threads * (size_t)cols, sizeof *j.sum);
    if (!j.row || !j.sum || (c->base.made && !made)) LN_GO(LN_OOM(err, "rows of a weight"));
    for (int64_t at = 0, some; at < n; at += some) {
        some = LN_MIN(n - at, SOME);
        j.to = (uint8_t *)buffer + at * bytes;
        LN_GO(change_some(s, &j, row0 + at, some, work, made, err));
    }
    *out = (ln_encoded_rows){.data = buffer};
out:
    ln_free(made), ln_free(j.row), ln_free(j.sum);
    return st;
}

static ln_status find(const ln_source *s, const ln_source_ask *ask, ln_weight *w, bool *fits, ln_error *err) {
    return s->of->ops->find(s->of, ask, w, fits, err);
}

static const ln_source_ops changed_ops = {.find = find, .rows = rows};

const ln_source *ln_source_changing(ln_arena *arena, const ln_source *of) {
    ln_source *s = ln_arena_alloc(arena, sizeof *s);
    if (s)
        *s = (ln_source){
            .ops = &changed_ops, .tensors = of->tensors, .quant = of->quant, .of = of, .arena = arena};
    return s;
}

ln_status ln_source_change(const ln_source *s, ln_weight *w, const ln_row_change *changes, size_t n,
                           int64_t rows, ln_error *err) {
    changed *c = ln_arena_alloc(s->arena, sizeof *c);
    ln_row_change *copy = ln_arena_alloc(s->arena, n * sizeof *copy);
    if (!c || !copy) return LN_OOM(err, "the weights");
    memcpy(copy, changes, n * sizeof *copy);
    *c = (changed){.base = *w, .changes = copy, .n = n};
    w->how = c;
    w->changed = w->made = true;
    w->enc = ln_encoding_dense(w->dtype);
    w->code = (ln_groups){0, 0};
    w->transposed = false;
    w->d0 = rows;
    return LN_OK;
}
