/* Affine groups, written and read back: MLX's rules for both, so that files of either program are the same bytes.
 *
 * The group's number of largest magnitude gets a code of its own: the scale is bent a little so that this edge is a whole
 * multiple of it (0 stays 0 wherever that is possible), and the bias is the edge. Rounding is to nearest, ties to even, by the
 * 1.5 * 2^23 trick, which is exact for what can occur: |edge / scale| <= 2^bits and codes up to 2^bits around. */
#include "affine.h"

static inline float round_even(float x) {
    if (!(x > -4194304.0f && x < 4194304.0f)) return x; /* whole already */
    return x + 12582912.0f - 12582912.0f;
}

static void put_code(uint8_t *row, int bits, int64_t i, uint32_t q) {
    int64_t at = i * bits;
    uint32_t v = q << at % 8;
    row[at / 8] = (uint8_t)(row[at / 8] | v);
    if (v >> 8) row[at / 8 + 1] = (uint8_t)(row[at / 8 + 1] | v >> 8);
}

void ln_affine_quantise(const float *w, int64_t cols, ln_enc e, ln_dtype dtype, uint8_t *codes, uint8_t *scales, uint8_t *biases) {
    const float most = (float)((1 << e.bits) - 1);
    memset(codes, 0, (size_t)ln_affine_row_bytes(e, cols));
    for (int64_t g = 0; g < cols / e.group; g++) {
        const float *x = w + g * e.group;
        float lo = x[0], hi = x[0];
        for (int i = 1; i < e.group; i++) {
            lo = x[i] < lo ? x[i] : lo;
            hi = x[i] > hi ? x[i] : hi;
        }
        bool low = fabsf(lo) > fabsf(hi);
        float s = (hi - lo) / most, b = 0, edge = low ? lo : hi;
        s = s > 1e-7f ? s : 1e-7f;
        s = low ? s : -s;
        float q0 = round_even(edge / s);
        if (q0 != 0) s = edge / q0, b = edge;
        for (int i = 0; i < e.group; i++) {
            float q = round_even((x[i] - b) / s);
            q = q > 0 ? q : 0;
            q = q < most ? q : most;
            put_code(codes, e.bits, g * e.group + i, (uint32_t)q);
        }
        ln_num_store(scales, dtype, g, s);
        ln_num_store(biases, dtype, g, b);
    }
}

static inline float rounded(float x, ln_dtype t) { return t == LN_F32 ? x : t == LN_BF16 ? ln_bf16_f32(ln_f32_bf16(x)) : ln_f16_f32(ln_f32_f16(x)); }

void ln_affine_row(const uint8_t *codes, const uint8_t *scales, const uint8_t *biases, ln_dtype dtype, ln_enc e, int64_t cols, void *out) {
    for (int64_t i = 0; i < cols; i++) {
        float s = ln_num_load(scales, dtype, i / e.group), b = ln_num_load(biases, dtype, i / e.group);
        ln_num_store(out, dtype, i, rounded(s * (float)ln_affine_code(codes, e.bits, i), dtype) + b);
    }
}
