/* Rows of a value to and from f32, in every format of temps and in the layouts that all devices have: f32 (or
 * double), bf16, BFP and int8 pairs in rows, bf16 in two bytes. */
#include "value_rows.h"

#ifdef LN_REAL_FLOAT

ln_status ln_host_value_range(const ln_program *p, const ln_bounds *live, ln_v i, int64_t row, int64_t n,
                              int64_t *rows, ln_error *err) {
    const ln_pvalue *v = i >= 0 && i < p->n_values ? ln_program_value(p, i) : NULL;
    if (!v || v->kind != LN_KIND_TEMP || v->offset < 0)
        return ln_fail(err, LN_EINTERNAL, "value %d of the program has no buffer", i);
    *rows = v->n_dims > 1 ? ln_dim(v->dims[0], live) : 1;
    if (row < 0 || n < 0 || row > *rows - n)
        return ln_fail(err, LN_EINTERNAL, "rows %lld .. %lld of %s: it has %lld", (long long)row,
                       (long long)(row + n - 1), v->name, (long long)*rows);
    return LN_OK;
}

/* A row at `at` to and from f32. dtype: of stored elements, LN_F32 in real_bytes bytes. */
static void convert_row(const ln_pvalue *v, ln_dtype dtype, int real_bytes, void *at, float *x, bool write) {
    const int64_t cols = v->dims[v->n_dims - 1];
    if (v->format.kind >= LN_FORMAT_BFP) { /* words of 4 bytes on every device */
        if (write) ln_format_encode(v->format, x, cols, at);
        else ln_format_decode(v->format, at, cols, x);
        return;
    }
    const bool is_double = dtype == LN_F32 && real_bytes == 8;
    for (int64_t c = 0; c < cols; c++)
        if (is_double && write) ((double *)at)[c] = x[c];
        else if (is_double) x[c] = (float)((const double *)at)[c];
        else if (write) ln_num_store(at, dtype, c, x[c]);
        else x[c] = ln_num_load(at, dtype, c);
}

ln_status ln_host_value(const ln_program *p, void *temp, const ln_bounds *live, ln_v i, int64_t row,
                        int64_t n, float *rows, bool write, ln_error *err) {
    int64_t n_live;
    LN_TRY(ln_host_value_range(p, live, i, row, n, &n_live, err));
    const ln_pvalue *v = ln_program_value(p, i);
    char *at = (char *)temp + ln_live_offset(v, n_live);
    const ln_dtype dtype = v->layout == LN_LAYOUT_NARROW ? LN_BF16 : LN_F32;
    for (int64_t r = 0; r < n; r++)
        convert_row(v, dtype, p->real_bytes, at + (row + r) * v->row_bytes, rows + r * v->dims[v->n_dims - 1],
                    write);
    return LN_OK;
}
#endif
