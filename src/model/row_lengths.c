/* Lengths of rows (contract: row_lengths.h). Threads decode blocks of rows, and sum squares in double. */
#include "row_lengths.h"

#include <math.h>
#include <string.h>

enum { BLOCK_BYTES = 1 << 18, MOST_THREADS = 64 };

typedef struct measuring {
    const ln_weights *weights;
    const ln_weight *w;
    const ln_low_rank *add;
    int64_t rows; /* of a block */
    float *row[MOST_THREADS], *sum[MOST_THREADS];
    void *buffer[MOST_THREADS]; /* for blocks that the source computes */
    ln_error error[MOST_THREADS];
    double *out;
} measuring;

double ln_row_square(const ln_low_rank *add, int64_t r, int64_t n, const float *row, float *sum) {
    double square = 0;
    memset(sum, 0, (size_t)n * sizeof *sum);
    for (int64_t j = 0; add && j < add->rank; j++) {
        const float b = (float)(add->scale * (double)add->B[r * add->rank + j]), *A = add->A + j * n;
        for (int64_t k = 0; k < n; k++) sum[k] += b * A[k];
    }
    for (int64_t k = 0; k < n; k++)
        square += ((double)row[k] + (double)sum[k]) * ((double)row[k] + (double)sum[k]);
    return square;
}

static void measure_blocks(void *user, int thread, int64_t lo, int64_t hi) {
    measuring *m = user;
    const ln_weight *w = m->w;
    const ln_source *s = m->weights->source;
    const ln_source_work alone = {ln_pool_default(), 1};
    for (int64_t b = lo; b < hi && m->error[thread].code == LN_OK; b++) {
        const int64_t from = b * m->rows, n = LN_MIN(m->rows, w->d0 - from);
        ln_encoded_rows rows;
        if (s->ops->rows(s, w, from, n, &alone, m->buffer[thread], &rows, &m->error[thread]) != LN_OK) return;
        for (int64_t r = 0; r < n; r++) {
            ln_encoding_decode(w->enc, &rows, r, w->d1, m->row[thread]);
            m->out[from + r] = ln_row_square(m->add, from + r, w->d1, m->row[thread], m->sum[thread]);
        }
    }
}

ln_status ln_row_squares(const ln_weights *weights, size_t i, const ln_low_rank *add, ln_pool *pool,
                         int n_threads, double *out, ln_error *err) {
    measuring m = {.weights = weights, .w = &weights->items[i], .add = add, .out = out};
    const int n = LN_MIN(n_threads, (int)MOST_THREADS);
    const int64_t cols = m.w->d1;
    bool failed = false;
    m.rows = LN_MAX(1, BLOCK_BYTES / (cols * 4));
    const size_t buffer = ln_source_bytes(m.w, LN_MIN(m.rows, m.w->d0));
    for (int t = 0; t < n; t++) {
        m.row[t] = ln_alloc((size_t)cols * sizeof *m.row[t]),
        m.sum[t] = ln_alloc((size_t)cols * sizeof *m.sum[t]);
        m.buffer[t] = buffer ? ln_alloc(buffer) : NULL;
        failed = failed || !m.row[t] || !m.sum[t] || (buffer && !m.buffer[t]);
    }
    ln_status st = failed ? LN_OOM(err, "the lengths of rows") : LN_OK;
    if (st == LN_OK)
        ln_pool_run_units(pool, n, (m.w->d0 + m.rows - 1) / m.rows, LN_POOL_SLICE_BYTES / BLOCK_BYTES,
                          measure_blocks, &m);
    for (int t = 0; t < n; t++) {
        if (st == LN_OK && m.error[t].code != LN_OK) {
            if (err) *err = m.error[t];
            st = m.error[t].code;
        }
        ln_free(m.row[t]), ln_free(m.sum[t]), ln_free(m.buffer[t]);
    }
    return st;
}

ln_status ln_weight_rows(const ln_weights *weights, size_t i, int64_t row0, int64_t n, float *out,
                         ln_error *err) {
    const ln_weight *w = &weights->items[i];
    const ln_source_work alone = {ln_pool_default(), 1};
    const int64_t cols = LN_MAX(w->d1, 1);
    void *buffer = w->made ? ln_alloc(ln_source_bytes(w, n)) : NULL;
    ln_encoded_rows rows;
    if (w->made && !buffer) return LN_OOM(err, "rows of a weight");
    const ln_status st = weights->source->ops->rows(weights->source, w, row0, n, &alone, buffer, &rows, err);
    for (int64_t r = 0; st == LN_OK && r < n; r++) ln_encoding_decode(w->enc, &rows, r, cols, out + r * cols);
    ln_free(buffer);
    return st;
}
