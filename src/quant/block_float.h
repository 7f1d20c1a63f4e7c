/* Block floating point (BFP): the format of activations x in integer products with affine-quantised weights.
 *
 * Each group of columns of a row has a scale u, a power of two, and its elements are v u with integers v of n
 * bits: 12 for weight codes of at most 4 bits, 16 for wider codes (ln_bfp_bits). The largest magnitude of a
 * group is in 2^(n-2) .. 2^(n-1) units of u, so that the error of an element is at most 2^-11 or 2^-15 of
 * that magnitude. Gaussian elements in groups of 64 lose 5.6e-4 or 3.5e-5 of their rms, where rounding to
 * bf16 loses 1.7e-3. A product with codes of up to 8 bits sums v q exactly in 32 bits (128 columns of 15 + 8
 * bits), in any order.
 *
 * A row of C columns is stored as int16 v[C], then f32 u[C / group], then f32 t[C / group]: t is the sum of
 * the elements of a group, u times an integer below 2^22, and exact. Within a group the columns are permuted
 * to the order in which masking extracts codes from 32-bit words as pairs of 16 bits (ln_bfp_column); a row
 * can therefore be used only with weights of the encoding for which it was made. Encoding the decoded values
 * gives the same row. */
#ifndef LN_BLOCK_FLOAT_H
#define LN_BLOCK_FLOAT_H

#include <math.h>

#include "affine.h"

#define LN_BFP_TINY 0x1p-96f /* a group without a larger magnitude becomes zero */

/* Bits of v, including its sign, for weight codes of `bits` bits. */
static inline int ln_bfp_bits(int bits) { return bits <= 4 ? 12 : 16; }

/* Size of a row in 4-byte words. */
static inline int64_t ln_bfp_words(int64_t cols, int64_t group) { return cols / 2 + 2 * (cols / group); }
static inline float *ln_bfp_scales(const void *row, int64_t cols) {
    return (float *)(uintptr_t)row + cols / 2;
}
static inline float *ln_bfp_sums(const void *row, int64_t cols, int64_t group) {
    return ln_bfp_scales(row, cols) + cols / group;
}
/* The column, relative to the group, that is stored at position p. */
static inline int64_t ln_bfp_column(int bits, int64_t p) {
    return bits == 4 ? p / 8 * 8 + p % 8 / 2 + p % 2 * 4 : bits == 8 ? p / 4 * 4 + p % 4 / 2 + p % 2 * 2 : p;
}
/* The scale u of a group for elements v of n bits; `most`: the bits of the largest magnitude as f32. 0 below
 * LN_BFP_TINY, NaN if it is not finite. A magnitude that would round v to 2^(n-1) gets the next larger
 * scale. */
static inline float ln_bfp_scale(uint32_t most, int n) {
    return ln_bits_f32(most >= 0x7f800000u ? 0x7fc00000u
                       : most < ln_f32_bits(LN_BFP_TINY)
                           ? 0
                           : (((most + (1u << (24 - n))) >> 23) - (uint32_t)(n - 2)) << 23);
}
/* Encodes one group of e.group elements, rounding to nearest even; v is 0 where u is 0 or NaN. */
void ln_bfp_group(const float *x, ln_groups e, int16_t *v, float *u, float *t);
/* Encode or decode one row; cols is a multiple of e.group. */
void ln_bfp_encode(const float *x, int64_t cols, ln_groups e, void *row);
void ln_bfp_decode(const void *row, int64_t cols, ln_groups e, float *x);

/* ---- int8 pairs ---- */

/* The int8-pair format (docs/decisions/013-int8-pair-products.md): one scale for a row of x, and one for an
 * output, which is a row of the weight. An int8 product can then sum over all columns, without scaling
 * between groups. Both operands are pairs of 8-bit digits in a radix k: 256, or 30 for codes of at most 4
 * bits. z is ln_i8pair_zero_point.
 *
 *   x = u v,         v = k h + l,           h in -127 .. 127, l in -128 .. 127 (radix 30: -15 .. 14),
 *                                           u = (largest |x| of the row) / ln_i8pair_row_max
 *   s q + b ~ d W,   W = k (H - z) + L,     H and L in 0 .. 255,
 *                                           d = (largest |s q + b| of the output) / ln_i8pair_weight_max
 *
 *   y = t (u e),     e = k d,
 *   t = fma((float)sum(h (H - z)), k, (float)(sum(h L + l (H - z)) + ln_i8pair_correction(sum(l))))
 *
 * All sums are 32-bit integers, exact in any order for up to LN_I8PAIR_MAX_COLS columns. Of
 * sum(l L) / k only the part with L replaced by its middle 128 is computed (ln_i8pair_correction). The rest
 * is as small as the rounding error if x has both signs (decision 013). ln_i8pair_weight gives H and L of a
 * code: in radix 30 both are linear in q, so that sums over q suffice to compute the products; in radix 256 W
 * is the rounded value.
 *
 * A row is stored as int8 h[P], int8 l[P], where P is the number of columns rounded up to a multiple of 64
 * (padded with zeros), then f32 u, then int32 sum(h), sum(l). Columns are permuted to the order in which
 * masking extracts codes from 32-bit words as bytes (ln_i8pair_column). */
#define LN_I8PAIR_MAX_COLS 32768
static inline int ln_i8pair_radix(int bits) { return bits <= 4 ? 30 : 256; }
static inline int ln_i8pair_zero_point(int bits) { return bits <= 4 ? 132 : 128; }
/* 128 sum(l) / k, rounded to an integer. */
static inline int32_t ln_i8pair_correction(int bits, int32_t l) {
    return (int32_t)rintf((float)l * (128 / (float)ln_i8pair_radix(bits)));
}
/* The largest |v|; the largest |W|, with a margin for the rounding of m and c in ln_i8pair_weight. */
static inline float ln_i8pair_row_max(int bits) { return bits <= 4 ? 127 * 30 : 127 * 256; }
static inline float ln_i8pair_weight_max(int bits) { return bits <= 4 ? 3680 : 31700; }
/* The high digit h of v; the low digit is l = v - k h. Integer arithmetic only, so that SIMD kernels can
 * compute it in the same way. */
static inline int32_t ln_i8pair_high(int bits, int32_t v) {
    const int32_t k = ln_i8pair_radix(bits);
    return (v + k / 2 + 128 * k) / k - 128;
}
/* Bytes of one digit of a row; size of a row in 4-byte words. */
static inline int64_t ln_i8pair_digit_bytes(int64_t cols) { return (cols + 63) / 64 * 64; }
static inline int64_t ln_i8pair_words(int64_t cols) { return ln_i8pair_digit_bytes(cols) / 2 + 3; }
typedef struct ln_i8pair_sums {
    float u;
    int32_t h, l; /* sums of the digits over the row */
} ln_i8pair_sums;
static inline ln_i8pair_sums *ln_i8pair_row_sums(const void *row, int64_t cols) {
    return (ln_i8pair_sums *)((uintptr_t)row + (uintptr_t)(2 * ln_i8pair_digit_bytes(cols)));
}
/* The addresses of a row, stored as above or in a row panel (device/cpu/pack/panel.h): h of the first 64
 * columns is at `digits` and their l at digits + lower; each further 64 columns are `step` bytes after the
 * previous ones. `terms` is an unaligned ln_i8pair_sums. */
typedef struct ln_i8pair_layout {
    int8_t *digits;
    int64_t lower, step;
    void *terms;
} ln_i8pair_layout;
static inline ln_i8pair_layout ln_i8pair_row_layout(const void *row, int64_t cols) {
    return (ln_i8pair_layout){(int8_t *)(uintptr_t)row, ln_i8pair_digit_bytes(cols), 64,
                              ln_i8pair_row_sums(row, cols)};
}
static inline int64_t ln_i8pair_column(int bits, int64_t p) {
    return bits != 4 ? p : p / 8 * 8 + (p % 8 < 4 ? p % 4 * 2 : p % 4 * 2 + 1);
}
/* The scale u of a row and its reciprocal *by; `most`: the bits of the row's largest magnitude as f32. Both
 * are 0 below LN_BFP_TINY. If the magnitude is not finite, u is NaN and *by is 0. */
static inline void ln_i8pair_scale(uint32_t most, int bits, float *u, float *by) {
    const bool some = most >= ln_f32_bits(LN_BFP_TINY) && most < 0x7f800000u;
    *u = most >= 0x7f800000u ? ln_bits_f32(0x7fc00000u)
         : some              ? ln_bits_f32(most) / ln_i8pair_row_max(bits)
                             : 0;
    *by = some ? ln_i8pair_row_max(bits) / ln_bits_f32(most) : 0;
}
/* Encodes the digits of 64 columns, of which the first n, a multiple of 32, exist; adds their sums to *sums.
 * `by`: 1 / u. */
void ln_i8pair_block(const float *x, int n, int bits, float by, int8_t *h, int8_t *l, ln_i8pair_sums *sums);
void ln_i8pair_encode_at(const float *x, int64_t cols, int bits, ln_i8pair_layout to);
void ln_i8pair_decode_at(ln_i8pair_layout from, int64_t cols, int bits, float *x);
static inline void ln_i8pair_encode(const float *x, int64_t cols, int bits, void *row) {
    ln_i8pair_encode_at(x, cols, bits, ln_i8pair_row_layout(row, cols));
}
static inline void ln_i8pair_decode(const void *row, int64_t cols, int bits, float *x) {
    ln_i8pair_decode_at(ln_i8pair_row_layout(row, cols), cols, bits, x);
}

/* The scale of one output from its scales and biases of n groups: *by = 1 / d and e = k d. Both 0 or NaN as
 * in ln_i8pair_scale. */
void ln_i8pair_output_scale(const void *scales, const void *biases, ln_dtype dtype, ln_dtype offset,
                            int64_t groups, int bits, float *by, float *e);
/* The digits H and L of code q in a group with scale s and bias b; `by`: 1 / d of the output. */
void ln_i8pair_weight(int bits, float s, float b, float by, uint32_t q, int *h, int *l);

#endif
