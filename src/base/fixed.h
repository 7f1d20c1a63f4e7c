/* Fixed-point rows: the form in which integer products with affine groups read x.
 *
 * Each group of columns of a row has a scale u, a power of two, and its numbers are v u with v in n bits: 12 for codes of 4 bits and fewer, 16 for
 * wider ones (ln_fixed_bits). The largest magnitude of the group lies in 2^(n-2) .. 2^(n-1), so the error of any number is at most 2^-11 or 2^-15 of the group's
 * largest. Gaussian numbers in groups of 64 lose 5.6e-4 or 3.5e-5 of their rms, where bf16 takes 1.7e-3. A product with codes of up to 8 bits sums v q exactly in
 * 32 bits (128 columns of 15 + 8 bits), in any order.
 *
 * A row of C columns lies as int16 v[C], then f32 u[C / group], then f32 t[C / group], the sums of the groups' numbers: u times a whole number below
 * 2^22, exact. Within a group columns lie in the order in which masks take codes out of 32-bit words as pairs of 16 bits (ln_fixed_column), so that
 * the row serves weights of one width and group. Encoding what a row decodes to gives the same row. */
#ifndef LN_FIXED_H
#define LN_FIXED_H

#include <math.h>

#include "affine.h"

#define LN_FIXED_TINY 0x1p-96f /* a group with nothing larger is zero */

/* Bits of v, its sign among them, for codes of `bits`. */
static inline int ln_fixed_bits(int bits) { return bits <= 4 ? 12 : 16; }

/* 4-byte words of a row. */
static inline int64_t ln_fixed_words(int64_t cols, int64_t group) { return cols / 2 + 2 * (cols / group); }
static inline float *ln_fixed_scales(const void *row, int64_t cols) { return (float *)(uintptr_t)row + cols / 2; }
static inline float *ln_fixed_sums(const void *row, int64_t cols, int64_t group) { return ln_fixed_scales(row, cols) + cols / group; }
/* Which column lies in place p. */
static inline int64_t ln_fixed_column(int bits, int64_t p) {
    return bits == 4 ? p / 8 * 8 + p % 8 / 2 + p % 2 * 4 : bits == 8 ? p / 4 * 4 + p % 4 / 2 + p % 2 * 2 : p;
}
/* u of a group whose largest magnitude has these bits, v having n: 0 below LN_FIXED_TINY, NaN if it is not finite. What is 2^(1-n) below a power of two or
 * nearer counts as that, so that no v is 2^(n-1). */
static inline float ln_fixed_scale(uint32_t most, int n) {
    return ln_bits_f32(most >= 0x7f800000u ? 0x7fc00000u : most < ln_f32_bits(LN_FIXED_TINY) ? 0 : (((most + (1u << (24 - n))) >> 23) - (uint32_t)(n - 2)) << 23);
}
/* One group. Rounds to nearest even; v is 0 where u is 0 or NaN. */
void ln_fixed_group(const float *x, ln_enc e, int16_t *v, float *u, float *t);
/* One row of whole groups, to and from. */
void ln_fixed_encode(const float *x, int64_t cols, ln_enc e, void *row);
void ln_fixed_decode(const void *row, int64_t cols, ln_enc e, float *x);

/* ---- by row: one scale for a whole row of x, one unit for all weights of an output (docs/decisions/013-whole-rows.md) ----
 *
 * Products of bytes then sum all columns, with nothing to scale between groups. Both operands are two limbs of a byte in one radix k, 256, or 30 for codes of
 * 4 bits and fewer:
 *
 *   x = u v,         v = k h + l,                     h in -127 .. 127, l in -128 .. 127 (radix 30: -15 .. 14); u = (largest of the row) / ln_fixed_row_most
 *   s q + b ~ d W,   W = k (H - ln_fixed_middle) + L,  H and L in 0 .. 255;  d = (largest of the output's s q + b) / ln_fixed_weight_most
 *
 *   y = t (u e),  t = fma((float)sum(h (H - middle)), k, (float)(sum(h L + l (H - middle)) + ln_fixed_rest(sum(l)))),  e = k d
 *
 * Both sums are whole numbers in 32 bits for up to LN_FIXED_ROW_COLS columns, exact in any order. Of sum(l L) / k only the part is there that L in the middle
 * makes, ln_fixed_rest; what is missing is as small as the rounding for x of both signs (decision 013). H and L come from a code by ln_fixed_weight: in radix 30
 * both are linear in q, so that sums over q are enough to know them; in radix 256 W is the rounded number.
 *
 * A row lies as int8 h[P], l[P], P being the columns up to a multiple of 64 (zeros), then f32 u, then int32 sum(h), sum(l). Columns lie in the order in which
 * masks take codes out of 32-bit words as bytes (ln_fixed_row_column). */
#define LN_FIXED_ROW_COLS 32768
static inline int ln_fixed_radix(int bits) { return bits <= 4 ? 30 : 256; }
static inline int ln_fixed_middle(int bits) { return bits <= 4 ? 132 : 128; }
/* 128 sum(l) / k. */
static inline int32_t ln_fixed_rest(int bits, int32_t l) { return (int32_t)rintf((float)l * (128 / (float)ln_fixed_radix(bits))); }
/* The largest |v| and |W|, with room for what rounding m and c of ln_fixed_weight adds. */
static inline float ln_fixed_row_most(int bits) { return bits <= 4 ? 127 * 30 : 127 * 256; }
static inline float ln_fixed_weight_most(int bits) { return bits <= 4 ? 3680 : 31700; }
/* h of a number: l is what is left, v - k h. By whole numbers, so that vectors of words may make it as well. */
static inline int32_t ln_fixed_upper(int bits, int32_t v) {
    const int32_t k = ln_fixed_radix(bits);
    return (v + k / 2 + 128 * k) / k - 128;
}
/* Bytes of a limb; 4-byte words of a row. */
static inline int64_t ln_fixed_limb(int64_t cols) { return (cols + 63) / 64 * 64; }
static inline int64_t ln_fixed_row_words(int64_t cols) { return ln_fixed_limb(cols) / 2 + 3; }
typedef struct ln_fixed_terms {
    float u;
    int32_t h, l; /* the limbs' sums */
} ln_fixed_terms;
static inline ln_fixed_terms *ln_fixed_row_terms(const void *row, int64_t cols) { return (ln_fixed_terms *)((uintptr_t)row + (uintptr_t)(2 * ln_fixed_limb(cols))); }
/* Where a row lies, as above or beside others (ln_fixed_panel, graph.h): 64 columns' h, their l `lower` bytes on, the next columns' h `step` bytes on; u and the sums at no
 * particular address. */
typedef struct ln_fixed_place {
    int8_t *limbs;
    int64_t lower, step;
    void *terms;
} ln_fixed_place;
static inline ln_fixed_place ln_fixed_row_place(const void *row, int64_t cols) {
    return (ln_fixed_place){(int8_t *)(uintptr_t)row, ln_fixed_limb(cols), 64, ln_fixed_row_terms(row, cols)};
}
static inline int64_t ln_fixed_row_column(int bits, int64_t p) { return bits != 4 ? p : p / 8 * 8 + (p % 8 < 4 ? p % 4 * 2 : p % 4 * 2 + 1); }
/* u by the bits of the row's largest magnitude, and 1 / u. Both 0 below LN_FIXED_TINY; u is NaN, and the other 0, if it is not finite. */
static inline void ln_fixed_row_scale(uint32_t most, int bits, float *u, float *by) {
    const bool some = most >= ln_f32_bits(LN_FIXED_TINY) && most < 0x7f800000u;
    *u = most >= 0x7f800000u ? ln_bits_f32(0x7fc00000u) : some ? ln_bits_f32(most) / ln_fixed_row_most(bits) : 0;
    *by = some ? ln_fixed_row_most(bits) / ln_bits_f32(most) : 0;
}
/* Limbs of 64 columns, of which n are there, a multiple of 32; what they sum to is added. */
void ln_fixed_row_line(const float *x, int n, int bits, float by, int8_t *h, int8_t *l, ln_fixed_terms *sums);
void ln_fixed_row_encode_at(const float *x, int64_t cols, int bits, ln_fixed_place to);
void ln_fixed_row_decode_at(ln_fixed_place from, int64_t cols, int bits, float *x);
static inline void ln_fixed_row_encode(const float *x, int64_t cols, int bits, void *row) { ln_fixed_row_encode_at(x, cols, bits, ln_fixed_row_place(row, cols)); }
static inline void ln_fixed_row_decode(const void *row, int64_t cols, int bits, float *x) { ln_fixed_row_decode_at(ln_fixed_row_place(row, cols), cols, bits, x); }

/* 1 / d and e of one output, its scales and biases being n groups; by the same rules as u. */
void ln_fixed_unit(const void *scales, const void *biases, ln_dtype dtype, int64_t groups, int bits, float *by, float *e);
/* H and L of a code of a group with scale s and bias b. */
void ln_fixed_weight(int bits, float s, float b, float by, uint32_t q, int *h, int *l);

#endif
