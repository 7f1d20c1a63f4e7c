/* The table of encodings: sizes of rows, names, and elements as numbers (encodings.h). */
#include "coded.h"

#include <math.h>

typedef void decode_fn(ln_encoding e, const ln_encoded_rows *row, int64_t cols, float *out);

static void decode_dense(ln_encoding e, const ln_encoded_rows *row, int64_t cols, float *out) {
    for (int64_t i = 0; i < cols; i++) out[i] = ln_num_load(row->data, (ln_dtype)e.scale, i);
}

static void decode_affine(ln_encoding e, const ln_encoded_rows *row, int64_t cols, float *out) {
    for (int64_t i = 0; i < cols; i++)
        out[i] = fmaf(ln_num_load(row->scales, (ln_dtype)e.scale, i / e.group),
                      (float)ln_affine_code(row->data, e.bits, i),
                      ln_num_load(row->offsets, (ln_dtype)e.offset, i / e.group));
}

static void decode_coded(ln_encoding e, const ln_encoded_rows *row, int64_t cols, float *out) {
    const ln_coded w = {.enc = e, .rows = *row, .cols = cols};
    ln_coded_load(&w, 0, 0, cols, out);
}

ln_row_bytes ln_encoding_row(ln_encoding e, int64_t cols) {
    int64_t data = 0, scales = 0, offsets = 0;
    switch (e.kind) {
#define LN_ENCODING(KIND, name, row_bytes, n_scales, n_offsets, decode) \
    case LN_STORED_##KIND:                                              \
        data = row_bytes;                                               \
        scales = n_scales;                                              \
        offsets = n_offsets;                                            \
        break;
#include "encodings.def"
#undef LN_ENCODING
    default: break;
    }
    return (ln_row_bytes){data, scales * ln_dtype_bytes((ln_dtype)e.scale),
                          offsets * ln_dtype_bytes((ln_dtype)e.offset)};
}

const char *ln_stored_name(int kind) {
    static const char *const names[LN_STORED_COUNT] = {
#define LN_ENCODING(KIND, name, row_bytes, scales, offsets, decode) name,
#include "encodings.def"
#undef LN_ENCODING
    };
    return kind >= 0 && kind < LN_STORED_COUNT ? names[kind] : "?";
}

void ln_encoding_decode(ln_encoding e, const ln_encoded_rows *w, int64_t r, int64_t cols, float *out) {
    static decode_fn *const decoders[LN_STORED_COUNT] = {
#define LN_ENCODING(KIND, name, row_bytes, scales, offsets, decode) decode,
#include "encodings.def"
#undef LN_ENCODING
    };
    const ln_row_bytes n = ln_encoding_row(e, cols);
    const ln_encoded_rows row = {(const char *)w->data + r * n.data,
                                 n.scales ? (const char *)w->scales + r * n.scales : NULL,
                                 n.offsets ? (const char *)w->offsets + r * n.offsets : NULL, w->columns};
    decoders[e.kind](e, &row, cols, out);
}
