/* Blocks of 32 numbers in 8 bits: how keys and values are stored with ln_options.kv_type = LN_KV_Q8
 * (MXINT8 of the Microscaling Formats Specification 1.0 of the Open Compute Project, with its own
 * rounding at the edge).
 *
 * A block has a scale u, a power of two, and its elements are c u with integers c from -127 to 127. The
 * largest magnitude m of a block is in 64 u .. 128 u. An element is rounded to the nearest even c, and what
 * would be 128 becomes 127, so that no element is off by more than m / 127. An element has at most 7
 * significant bits: it is exact in bf16 and in f32, and encoding decoded blocks gives the same blocks.
 *
 * u is stored as the byte b of its biased exponent: u = 2^(b - 127). b = 0: u is 0, the block is zero, as
 * is one with m below LN_BLOCK_INT8_TINY. b = 255, with every c 0: the block is NaN, as is one with an
 * infinity or a NaN. */
#ifndef LN_BLOCK_INT8_H
#define LN_BLOCK_INT8_H

#include "../base/elementary_inline.h"

enum { LN_BLOCK_INT8 = 32, LN_BLOCK_INT8_MOST = 127, LN_BLOCK_INT8_NAN = 255 };
#define LN_BLOCK_INT8_TINY 0x1p-120f
/* The largest error of an element, divided by the largest magnitude of its block. */
#define LN_BLOCK_INT8_ERROR (1.0 / 127)

/* The scale of a block; `most`: the bits of its largest magnitude as f32. */
LN_BOTH uint8_t ln_block_int8_scale(uint32_t most) {
    const uint32_t exponent = most >> 23;
    return most >= 0x7f800000u ? LN_BLOCK_INT8_NAN : exponent < 7 ? 0 : (uint8_t)(exponent - 6);
}
/* What an element is multiplied with before it is rounded: 1 / u. */
LN_BOTH float ln_block_int8_inverse(uint8_t scale) {
    return scale == 0 || scale == LN_BLOCK_INT8_NAN ? 0 : ln_bits_f32((254u - scale) << 23);
}
/* The scale as a factor of codes; infinity: NaN is code 0 times it. */
LN_BOTH float ln_block_int8_factor(uint8_t scale) { return ln_bits_f32((uint32_t)scale << 23); }
LN_BOTH float ln_block_int8_value(int8_t code, uint8_t scale) {
    return (float)code * ln_block_int8_factor(scale);
}

/* The code of an element; by: ln_block_int8_inverse. */
LN_BOTH int8_t ln_block_int8_code(float x, float by) {
    /* added to 1.5 x 2^23 a number below 2^22 is rounded to the nearest even integer, which the low bits of
     * the sum hold */
    const float scaled = by == 0 ? 0 : x * by;
    const int32_t c = (int32_t)(ln_f32_bits(scaled + 0x1.8p23f) - ln_f32_bits(0x1.8p23f));
    return (int8_t)(c > LN_BLOCK_INT8_MOST    ? LN_BLOCK_INT8_MOST
                    : c < -LN_BLOCK_INT8_MOST ? -LN_BLOCK_INT8_MOST
                                              : c);
}
/* Encodes n elements, at most a block; returns the scale. */
static inline uint8_t ln_block_int8_encode(const float *x, int n, int8_t code[LN_BLOCK_INT8]) {
    uint32_t most = 0;
    for (int i = 0; i < n; i++) {
        const uint32_t bits = ln_f32_bits(x[i]) & 0x7fffffffu;
        most = bits > most ? bits : most;
    }
    const uint8_t scale = ln_block_int8_scale(most);
    const float by = ln_block_int8_inverse(scale);
    for (int i = 0; i < n; i++) code[i] = ln_block_int8_code(x[i], by);
    return scale;
}

#endif
