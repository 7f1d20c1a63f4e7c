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

#endif
