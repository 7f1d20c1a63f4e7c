/* Types of GGUF's tensors with two levels of scales, and those with tables of values (gguf_blocks.h).
 *
 *              256 columns, in bytes                                    group  w            code  offset
 *     Q2_K     16 of 4-bit sc and m, 64 of codes, f16 d, f16 dm         16     d sc q - dm m  2     -dm m
 *     Q3_K     32 of third bits, 64 of codes, 12 of 6-bit sc, f16 d     16     d sc (q - 4)   4     -4 d sc
 *     Q4_K     f16 d, f16 dm, 12 of 6-bit sc and m, 128 of codes        32     d sc q - dm m  4     -dm m
 *     Q5_K     the same, 32 of fifth bits before the codes              32     d sc q - dm m  5     -dm m
 *     Q6_K     128 of codes, 64 of upper bits, 16 of 8-bit sc, f16 d    16     d sc (q - 32)  6     -32 d sc
 *     IQ4_XS   f16 d, 6 of 6-bit sc, 128 of codes                       32     d sc v[q]      8     -128 d sc
 *
 *              32 columns
 *     IQ4_NL   f16 d, 16 of codes                                       32     d v[q]         8     -128 d
 *     MXFP4    an exponent, 16 of codes                                 32     2^e f[q]       fp4
 *
 * They become affine groups whose scales and offsets are f32. d sc has at most 19 bits and d sc q at most 25,
 * so s q + b, rounded once, is what gguf's dequantize computes. Codes of 3 bits are stored in 4, because 16
 * of 3 bits fill no whole words. Of tables the code is the value plus 128. */
#include "gguf_blocks.h"

#include <math.h>
#include <string.h>

enum { SUPER = 256 };

static float load_half(const uint8_t *p) { return ln_f16_f32((uint16_t)(p[0] | p[1] << 8)); }

/* Writes n codes, a multiple of 8, as a little-endian bit stream. */
static void store_codes(const uint8_t *q, int n, int bits, uint8_t *out) {
    for (int i = 0; i < n; i += 8) {
        uint64_t word = 0;
        for (int k = 7; k >= 0; k--) word = word << bits | q[i + k];
        for (int k = 0; k < bits; k++) *out++ = (uint8_t)(word >> 8 * k);
    }
}

/* Stores scale and offset of group g; zeros are positive, as factors give them (device/cpu/pack/pack.h). */
static bool store_group(float s, float b, int64_t g, uint8_t *scales, uint8_t *offsets) {
    s = s + 0.0F, b = b + 0.0F;
    memcpy(scales + 4 * g, &s, 4);
    memcpy(offsets + 4 * g, &b, 4);
    return isfinite(s) && isfinite(b);
}

/* Reads codes of 2 bits: of every 32 bytes first the lowest two bits, then the next. */
static void load_pairs(const uint8_t *codes, uint8_t q[SUPER]) {
    for (int i = 0; i < SUPER; i++) q[i] = codes[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
}
/* Reads codes of 4 bits: of every 32 bytes first the lower ones, then the upper ones. */
static void load_nibbles(const uint8_t *codes, uint8_t q[SUPER]) {
    for (int i = 0; i < SUPER; i++) q[i] = codes[i / 64 * 32 + i % 32] >> i % 64 / 32 * 4 & 15;
}

static bool row_q2_k(const uint8_t *x, int64_t cols, uint8_t *codes, uint8_t *scales, uint8_t *offsets) {
    bool good = true;
    uint8_t q[SUPER];
    for (int64_t k = 0; k < cols / SUPER; k++, x += 84) {
        const float d = load_half(x + 80), dm = load_half(x + 82);
        load_pairs(x + 16, q);
        store_codes(q, SUPER, 2, codes + k * SUPER / 4);
        for (int g = 0; g < 16; g++)
            good &=
                store_group(d * (float)(x[g] & 15), -(dm * (float)(x[g] >> 4)), k * 16 + g, scales, offsets);
    }
    return good;
}

static bool row_q3_k(const uint8_t *x, int64_t cols, uint8_t *codes, uint8_t *scales, uint8_t *offsets) {
    bool good = true;
    uint8_t q[SUPER];
    for (int64_t k = 0; k < cols / SUPER; k++, x += 110) {
        const uint8_t *packed = x + 96;
        const float d = load_half(x + 108);
        load_pairs(x + 32, q);
        for (int i = 0; i < SUPER; i++) q[i] |= (uint8_t)((x[i % 32] >> i / 32 & 1) << 2);
        store_codes(q, SUPER, 4, codes + k * SUPER / 2);
        for (int g = 0; g < 16; g++) {
            const int low = packed[g % 8] >> g / 8 * 4 & 15, high = packed[8 + g % 4] >> g / 4 * 2 & 3;
            const float s = d * (float)((low | high << 4) - 32);
            good &= store_group(s, -4 * s, k * 16 + g, scales, offsets);
        }
    }
    return good;
}

/* Scales and minima of Q4_K and Q5_K, 6 bits each, in 12 bytes; stores those of 8 groups from g on. */
static bool store_six_bits(const uint8_t *x, int64_t g, uint8_t *scales, uint8_t *offsets) {
    const float d = load_half(x), dm = load_half(x + 2);
    const uint8_t *p = x + 4;
    bool good = true;
    for (int i = 0; i < 8; i++) {
        const int sc = i < 4 ? p[i] & 63 : (p[i + 4] & 15) | (p[i - 4] >> 6) << 4,
                  m = i < 4 ? p[i + 4] & 63 : p[i + 4] >> 4 | (p[i] >> 6) << 4;
        good &= store_group(d * (float)sc, -(dm * (float)m), g + i, scales, offsets);
    }
    return good;
}

static bool row_q4_k(const uint8_t *x, int64_t cols, uint8_t *codes, uint8_t *scales, uint8_t *offsets) {
    bool good = true;
    uint8_t q[SUPER];
    for (int64_t k = 0; k < cols / SUPER; k++, x += 144) {
        good &= store_six_bits(x, k * 8, scales, offsets);
        load_nibbles(x + 16, q);
        store_codes(q, SUPER, 4, codes + k * SUPER / 2);
    }
    return good;
}

static bool row_q5_k(const uint8_t *x, int64_t cols, uint8_t *codes, uint8_t *scales, uint8_t *offsets) {
    bool good = true;
    uint8_t q[SUPER];
    for (int64_t k = 0; k < cols / SUPER; k++, x += 176) {
        good &= store_six_bits(x, k * 8, scales, offsets);
        load_nibbles(x + 48, q);
        for (int i = 0; i < SUPER; i++) q[i] |= (uint8_t)((x[16 + i % 32] >> i / 32 & 1) << 4);
        store_codes(q, SUPER, 5, codes + k * SUPER / 8 * 5);
    }
    return good;
}

static bool row_q6_k(const uint8_t *x, int64_t cols, uint8_t *codes, uint8_t *scales, uint8_t *offsets) {
    bool good = true;
    uint8_t q[SUPER];
    for (int64_t k = 0; k < cols / SUPER; k++, x += 210) {
        const float d = load_half(x + 208);
        for (int i = 0; i < SUPER; i++) {
            const int half = i / 128, at = i % 128;
            const unsigned low = x[half * 64 + at % 64] >> at / 64 * 4 & 15u,
                           high = x[128 + half * 32 + at % 32] >> at / 32 * 2 & 3u;
            q[i] = (uint8_t)(low | high << 4);
        }
        store_codes(q, SUPER, 6, codes + k * SUPER / 4 * 3);
        for (int g = 0; g < 16; g++) {
            const float s = d * (float)(int8_t)x[192 + g];
            good &= store_group(s, -32 * s, k * 16 + g, scales, offsets);
        }
    }
    return good;
}

/* ---- tables ---- */

static const int8_t values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

/* Writes the values of 32 codes of 4 bits, of which byte i has columns i and i + 16. */
static void store_values(const uint8_t *codes, uint8_t *out) {
    for (int i = 0; i < 32; i++) out[i] = (uint8_t)(values[codes[i % 16] >> i / 16 * 4 & 15] + 128);
}

static bool row_iq4_nl(const uint8_t *x, int64_t cols, uint8_t *codes, uint8_t *scales, uint8_t *offsets) {
    bool good = true;
    for (int64_t g = 0; g < cols / 32; g++, x += 18) {
        const float d = load_half(x);
        good &= store_group(d, -128 * d, g, scales, offsets);
        store_values(x + 2, codes + 32 * g);
    }
    return good;
}

static bool row_iq4_xs(const uint8_t *x, int64_t cols, uint8_t *codes, uint8_t *scales, uint8_t *offsets) {
    bool good = true;
    for (int64_t k = 0; k < cols / SUPER; k++, x += 136) {
        const float d = load_half(x);
        for (int g = 0; g < 8; g++) {
            const int low = x[4 + g / 2] >> g % 2 * 4 & 15, high = (x[2] | x[3] << 8) >> 2 * g & 3;
            const float s = d * (float)((low | high << 4) - 32);
            good &= store_group(s, -128 * s, k * 8 + g, scales, offsets);
            store_values(x + 8 + 16 * g, codes + k * SUPER + 32 * g);
        }
    }
    return good;
}

static bool row_mxfp4(const uint8_t *x, int64_t cols, uint8_t *codes, uint8_t *scales, uint8_t *offsets) {
    bool good = true;
    (void)offsets;
    for (int64_t g = 0; g < cols / 32; g++, x += 17) {
        const float s = ldexpf(1, x[0] - 127);
        memcpy(scales + 4 * g, &s, 4);
        good &= isfinite(s);
        for (int i = 0; i < 16; i++) {
            const int at = 2 * i % 16 + 1, shift = i / 8 * 4;
            codes[16 * g + i] = (uint8_t)((x[at] >> shift & 15) | (x[at + 1] >> shift & 15) << 4);
        }
    }
    return good;
}

#define AFFINE(bits_, group_, shared_)                                                                     \
    {                                                                                                      \
        .kind = LN_STORED_AFFINE, .bits = (bits_), .scale = LN_F32, .offset = LN_F32, .shared = (shared_), \
        .group = (group_)                                                                                  \
    }
const ln_gguf_form ln_gguf_super_forms[LN_GGUF_SUPER_FORMS] = {
    {LN_GGML_Q2_K, AFFINE(2, 16, 16), {2, 16}, row_q2_k},
    {LN_GGML_Q3_K, AFFINE(4, 16, 16), {3, 16}, row_q3_k},
    {LN_GGML_Q4_K, AFFINE(4, 32, 8), {4, 32}, row_q4_k},
    {LN_GGML_Q5_K, AFFINE(5, 32, 8), {5, 32}, row_q5_k},
    {LN_GGML_Q6_K, AFFINE(6, 16, 16), {6, 16}, row_q6_k},
    {LN_GGML_IQ4_NL, AFFINE(8, 32, 0), {4, 32}, row_iq4_nl},
    {LN_GGML_IQ4_XS, AFFINE(8, 32, 8), {4, 32}, row_iq4_xs},
    {LN_GGML_MXFP4, {.kind = LN_STORED_E2M1, .scale = LN_F32, .group = 32}, {4, 32}, row_mxfp4},
};
