/* Rows of a value to and from f32, in every format and layout of temps: f32 (or double), bf16, BFP and int8
 * pairs, in rows or in row panels. */
#include "value_rows.h"

#ifdef LN_REAL_FLOAT

/* A value as its rows are found: base of its buffer, live rows, bytes of a scalar. */
typedef struct place {
    const ln_value *v;
    char *at;
    int64_t rows, cols, pitch;
    int real_bytes;
    bool panels;
} place;

static ln_dtype dtype_of(const place *p) { return p->v->layout == LN_LAYOUT_NARROW ? LN_BF16 : LN_F32; }
static float load(const place *p, int64_t i) {
    if (dtype_of(p) == LN_F32 && p->real_bytes == 8) return (float)((const double *)(const void *)p->at)[i];
    return ln_num_load(p->at, dtype_of(p), i);
}
static void store(const place *p, int64_t i, float x) {
    if (dtype_of(p) == LN_F32 && p->real_bytes == 8) ((double *)(void *)p->at)[i] = x;
    else ln_num_store(p->at, dtype_of(p), i, x);
}

/* A row of BFP or int8 pairs, whose words have 4 bytes on every device. */
static void convert_coded(const place *p, int64_t r, float *x, bool write) {
    const int64_t pitch = p->pitch * p->real_bytes;
    char *row = p->at + r * pitch;
    if (!p->panels) {
        if (write) ln_format_encode(p->v->format, x, p->cols, row);
        else ln_format_decode(p->v->format, row, p->cols, x);
        return;
    }
    const ln_i8pair_layout l = ln_i8pair_panel(p->at, p->rows, pitch, r);
    if (write) ln_i8pair_encode_at(x, p->cols, p->v->format.bits, l);
    else ln_i8pair_decode_at(l, p->cols, p->v->format.bits, x);
}

static void convert_row(const place *p, int64_t r, float *x, bool write) {
    if (p->v->format.kind >= LN_FORMAT_BFP) {
        convert_coded(p, r, x, write);
        return;
    }
    for (int64_t c = 0; c < p->cols; c++) {
        const int64_t i = p->panels ? ln_panel_at(p->rows, p->pitch, r, c) : r * p->pitch + c;
        if (write) store(p, i, x[c]);
        else x[c] = load(p, i);
    }
}

ln_status ln_host_value(const ln_program *p, void *temp, const ln_bounds *live, ln_v i, int64_t row,
                        int64_t n, float *rows, bool write, ln_error *err) {
    const bool known = i >= 0 && (size_t)i < p->graph->n_values;
    const ln_value *v = known ? &p->graph->values[i] : NULL;
    if (!v || v->kind != LN_KIND_TEMP || v->offset < 0)
        return ln_fail(err, LN_EINTERNAL, "value %d of the program has no buffer", i);
    place at = {.v = v,
                .rows = v->n_dims > 1 ? ln_dim(v->dims[0], live) : 1,
                .cols = v->dims[v->n_dims - 1],
                .pitch = ln_pitch(v),
                .real_bytes = p->real_bytes};
    if (row < 0 || n < 0 || row > at.rows - n)
        return ln_fail(err, LN_EINTERNAL, "rows %lld .. %lld of %s: it has %lld", (long long)row,
                       (long long)(row + n - 1), v->name, (long long)at.rows);
    at.at = (char *)temp + ln_rows_offset(v, at.rows);
    at.panels = ln_in_panels(v, at.rows);
    for (int64_t r = 0; r < n; r++) convert_row(&at, row + r, rows + r * at.cols, write);
    return LN_OK;
}
#endif
