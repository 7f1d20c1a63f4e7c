/* Rows of 8-bit floats with scales (fp8_matrix.h). */
#include "fp8_matrix.h"
#include "../quant/coded.h"

#include <math.h>
#include <stdio.h>

bool ln_fp8_is(const ln_tensor *x) { return x->dtype == LN_ST_F8_E4M3 || x->dtype == LN_ST_F8_E5M2; }

/* Scales that are exponents alone: 2^(byte - 127), 255 is NaN. */
static bool is_exponent(const ln_tensor *x) { return x->dtype == LN_ST_F8_E8M0 || x->dtype == LN_ST_U8; }

static float scale_at(const ln_tensor *x, int64_t i) {
    if (!is_exponent(x)) {
        ln_dtype dtype = LN_F32;
        (void)ln_tensor_is_computed(x, &dtype);
        return ln_num_load(x->data, dtype, i);
    }
    const uint32_t e = x->data[i];
    return e == 255 ? ln_bits_f32(0x7fc00000u) : e ? ln_bits_f32(e << 23) : 0x1p-127f;
}

static int64_t blocks(int64_t n, int64_t block) { return (n + block - 1) / block; }

/* Whether the scales have one for each block. One for the whole tensor may have any number of dimensions of
 * 1, and one for each row may be a vector. */
static bool has_scales(const ln_source_ask *ask, const ln_fp8_matrix *m) {
    const int64_t grid[2] = {blocks(m->D, m->block_rows), blocks(m->C, m->block_cols)};
    const ln_tensor *x = m->scales;
    char why[64];
    int64_t n = 1;
    for (int i = 0; i < x->n_dims; i++) n *= x->dims[i];
    if (grid[0] * grid[1] == 1 && n == 1) return true;
    if (grid[1] == 1 && x->n_dims == 1 && n == grid[0]) return true;
    (void)snprintf(why, sizeof why, " for blocks of %lld x %lld", (long long)m->block_rows,
                   (long long)m->block_cols);
    return ln_report_shape(ask->report, x, 2, grid, why);
}

ln_status ln_fp8_settle(const ln_source *s, const ln_source_ask *ask, ln_fp8_matrix *m, ln_weight *w,
                        bool *fits, ln_error *err) {
    const int64_t shape[2] = {m->D, m->C};
    ln_dtype scale = LN_F32;
    if (w->n_experts) return ln_tensor_unsupported(s->tensors, m->codes, "a matrix in fp8", err);
    if (!is_exponent(m->scales) && !ln_tensor_is_computed(m->scales, &scale))
        return ln_tensor_unsupported(s->tensors, m->scales, "scales in F32, BF16, F16 and F8_E8M0", err);
    m->block_rows = LN_MIN(m->block_rows, m->D);
    m->block_cols = LN_MIN(m->block_cols, m->C);
    *fits = ln_report_shape(ask->report, m->codes, 2, shape, "");
    *fits &= has_scales(ask, m);
    if (!*fits) return LN_OK;
    if (m->block_cols < m->C && m->block_cols > INT16_MAX)
        return ln_tensor_unsupported(s->tensors, m->scales, "scales of at most 32767 columns", err);
    w->dtype = scale == LN_F32 ? LN_BF16 : scale;
    w->enc = ln_encoding_floats(m->codes->dtype == LN_ST_F8_E4M3 ? LN_STORED_E4M3 : LN_STORED_E5M2, scale,
                                m->block_cols < m->C ? (int)m->block_cols : 0);
    w->made = true;
    w->how = ln_scheme_keep(s, m, sizeof *m);
    return w->how ? LN_OK : LN_OOM(err, "the list of weights");
}

/* ---- rows ---- */

typedef struct making {
    const ln_fp8_matrix *m;
    ln_encoding enc;
    int64_t row0;
    ln_row_bytes row;
    uint8_t *codes, *scales;
    _Atomic bool bad_code, bad_scale;
} making;

/* Whether a byte is a NaN or an infinity. */
static bool is_bad(int kind, uint8_t code) {
    return kind == LN_STORED_E4M3 ? (code & 0x7f) == 0x7f : (code & 0x7c) == 0x7c;
}

static void make_rows(void *user, int thread, int64_t lo, int64_t hi) {
    making *k = user;
    const ln_fp8_matrix *m = k->m;
    const int64_t C = m->C, n_scales = blocks(C, m->block_cols);
    const float most = k->enc.kind == LN_STORED_E4M3 ? 448 : 57344;
    const uint8_t *from = m->codes->data + (k->row0 + lo) * C;
    (void)thread;
    ln_guard_fetch(from, (size_t)((hi - lo) * C));
    for (int64_t r = lo; r < hi; r++) {
        const uint8_t *row = m->codes->data + (k->row0 + r) * C;
        bool bad = false;
        for (int64_t i = 0; i < C; i++) bad |= is_bad(k->enc.kind, row[i]);
        memcpy(k->codes + r * k->row.data, row, (size_t)C);
        if (bad) k->bad_code = true;
        for (int64_t i = 0; i < n_scales; i++) {
            const float s = scale_at(m->scales, (k->row0 + r) / m->block_rows * n_scales + i);
            if (!isfinite(s * most)) k->bad_scale = true;
            ln_num_store(k->scales + r * k->row.scales, (ln_dtype)k->enc.scale, i, s);
        }
    }
    ln_guard_release(from, (size_t)((hi - lo) * C));
}

ln_status ln_fp8_rows(const ln_source *s, const ln_weight *w, int64_t row0, int64_t n,
                      const ln_source_work *work, void *buffer, ln_encoded_rows *out, ln_error *err) {
    if (!w->how) return s->of->ops->rows(s->of, w, row0, n, work, buffer, out, err);
    making k = {.m = w->how,
                .enc = w->enc,
                .row0 = row0 + w->row0,
                .row = ln_encoding_row(w->enc, w->d1),
                .codes = buffer};
    k.scales = k.codes + ln_source_aligned(n * k.row.data);
    ln_pool_run_units(work->pool, work->n_threads, n, LN_MAX((int64_t)1, LN_POOL_SLICE_BYTES / w->d1),
                      make_rows, &k);
    *out = (ln_encoded_rows){.data = k.codes, .scales = k.scales};
    if (k.bad_code)
        return ln_scheme_bad_value(k.m->codes, "numbers in fp8", "a code that is a NaN or an infinity", err);
    if (!k.bad_scale) return LN_OK;
    return ln_scheme_bad_value(k.m->scales, "finite scales",
                               "a NaN, an infinity, or a scale whose weights exceed f32", err);
}
