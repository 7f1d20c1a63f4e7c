/* Elements of coded rows (coded.h). */
#include "coded.h"

#include <string.h>

void ln_coded_load(const ln_coded *w, int64_t d, int64_t from, int64_t n, float *out) {
    const ln_row_bytes row = ln_encoding_row(w->enc, w->cols);
    const uint8_t *codes = (const uint8_t *)w->rows.data + d * row.data;
    const char *scales = (const char *)w->rows.scales + d * row.scales,
               *zeros = w->rows.offsets ? (const char *)w->rows.offsets + d * row.offsets : NULL;
    const int64_t group = ln_coded_group(w);
    float s = 0, z = 0;
    int64_t now = -1; /* the group of s and z */
    for (int64_t i = 0; i < n; i++) {
        const int64_t c = from + i, g = w->rows.columns ? w->rows.columns[c] : c / group;
        if (g != now) {
            s = ln_num_load(scales, (ln_dtype)w->enc.scale, g);
            if (w->enc.kind == LN_STORED_ZEROED) z = ln_num_load(zeros, (ln_dtype)w->enc.offset, g);
            now = g;
        }
        out[i] = s * (w->enc.kind == LN_STORED_E4M3   ? ln_e4m3_f32(codes[c])
                      : w->enc.kind == LN_STORED_E5M2 ? ln_e5m2_f32(codes[c])
                      : w->enc.kind == LN_STORED_E2M1 ? ln_e2m1_f32(ln_affine_code(codes, 4, c))
                                                      : (float)ln_affine_code(codes, w->enc.bits, c) - z);
    }
}

/* Codes of n bytes, of each the lower 4 bits first. A loop that compilers make of vectors (CMakeLists.txt).
 */
static void unpack_halves(const uint8_t *restrict from, int64_t n, uint8_t *restrict to) {
    for (int64_t i = 0; i < n; i++) to[2 * i] = from[i] & 15, to[2 * i + 1] = from[i] >> 4;
}

void ln_coded_codes(const ln_coded *w, int64_t d, uint8_t *out) {
    const uint8_t *codes = (const uint8_t *)w->rows.data + d * ln_encoding_row(w->enc, w->cols).data;
    const int64_t n = w->cols;
    const int bits = w->enc.kind == LN_STORED_E2M1 ? 4 : w->enc.bits;
    int64_t i = 0;
    if (bits == 4) {
        unpack_halves(codes, n / 2, out);
        i = n / 2 * 2;
    } else if (bits == 8) {
        memcpy(out, codes, (size_t)n);
        i = n;
    }
    for (; i < n; i++) out[i] = (uint8_t)ln_affine_code(codes, bits, i);
}

float ln_coded_at(const ln_coded *w, int64_t d, int64_t column) {
    float x;
    ln_coded_load(w, d, column, 1, &x);
    return x;
}

float ln_coded_rounded_at(const ln_coded *w, int64_t d, int64_t column) {
    const ln_row_bytes row = ln_encoding_row(w->enc, w->cols);
    const uint8_t code = ((const uint8_t *)w->rows.data)[d * row.data + column];
    const float s = ln_num_load((const char *)w->rows.scales + d * row.scales, (ln_dtype)w->enc.scale,
                                column / ln_coded_group(w)),
                f = w->enc.kind == LN_STORED_E4M3 ? ln_e4m3_f32(code) : ln_e5m2_f32(code);
    return ln_bf16_f32(ln_f32_bf16(ln_bf16_f32(ln_f32_bf16(s)) * f));
}
