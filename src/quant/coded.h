/* Coded rows: weights whose elements are computed one by one from a code and a scale, and whose rows follow
 * each other in memory as they do in an encoded row (encodings.h), on every device. They hold without loss
 * what affine groups cannot hold:
 *
 *     E4M3, E5M2   w = s f         f: the number that a byte is in fp8; s of each group of columns
 *     E2M1         w = s f         f: the number that 4 bits are in fp4, of two columns the first the lower 4
 *     ZEROED       w = s (q - z)   q: an unsigned code of 1 to 8 bits, in one little-endian bit stream a row;
 *                                  s, z of the group of the column
 *
 * The product is rounded to f32 once; with scales of two bytes it is exact. The last group of a row may be
 * short, and group 0 is one group for the whole row. Columns of ZEROED may belong to groups in any order
 * (GPTQ's act-order): `columns` has the group of each, the same for all rows of the matrix.
 *
 * A device multiplies with the f32 numbers (products F32_E4M3 and so on in formats.def). */
#ifndef LN_CODED_H
#define LN_CODED_H

#include "encodings.h"

/* A weight in coded rows: the operand data of its value. The pointers are borrowed. */
typedef struct ln_coded {
    ln_encoding enc;
    ln_encoded_rows rows;
    int64_t cols;
} ln_coded;

/* The number that a byte is in fp8: e4m3 without infinities, whose NaN is 0x7f and 0xff; e5m2, the upper half
 * of an f16. That of 4 bits in fp4, e2m1. */
static inline float ln_e4m3_f32(uint8_t v) {
    if ((v & 0x7f) == 0x7f) return ln_bits_f32(0x7fc00000u);
    /* without a denormal of f32, which jobs of a pool take as zero; e4m3 has bias 7, f32 127 */
    const float f =
        v & 0x78 ? ln_bits_f32(((uint32_t)(v & 0x7f) << 20) + (120u << 23)) : (float)(v & 7) * 0x1p-9f;
    return v & 0x80 ? -f : f;
}
static inline float ln_e2m1_f32(uint32_t v) {
    static const float numbers[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    return v & 8 ? -numbers[v & 7] : numbers[v & 7];
}
static inline float ln_e5m2_f32(uint8_t v) { return ln_f16_f32((uint16_t)(v << 8)); }

/* Columns of a group: all, if there is one. */
static inline int64_t ln_coded_group(const ln_coded *w) { return w->enc.group ? w->enc.group : w->cols; }
/* Writes the codes of row d of a weight with zero points or in fp4, a byte each. */
void ln_coded_codes(const ln_coded *w, int64_t d, uint8_t *out);
/* Writes elements [from, from + n) of row d as f32. */
void ln_coded_load(const ln_coded *w, int64_t d, int64_t from, int64_t n, float *out);
/* Returns one element; in fp8 with the scale rounded to bf16, and then the product. */
float ln_coded_at(const ln_coded *w, int64_t d, int64_t column);
float ln_coded_rounded_at(const ln_coded *w, int64_t d, int64_t column);

#endif
