/* Affine groups: a row of a weight as whole numbers q of few bits and, for each group of columns, a scale s and a bias b; w = s q + b.
 * The form that MLX writes (docs/decisions/006-affine-groups.md).
 *
 * Codes: a row is one little-endian bit stream, element i in bits [i * bits, (i + 1) * bits), whole 32-bit words a row since every
 * group is a multiple of 32. Scales and biases: cols / group numbers a row, in the dtype of the weight before it was quantised. A
 * scale may be negative. Everything lies as in the file, at any alignment.
 *
 * Two readings of one weight: the model computes with f32(s) q + f32(b), unrounded; ln_affine_row gives what MLX gives when asked to
 * dequantise, the product and the sum each rounded to the dtype. */
#ifndef LN_AFFINE_H
#define LN_AFFINE_H

#include "base.h"
#include "num.h"

/* How a weight lies in memory: dense, or in affine groups. */
typedef struct ln_enc {
    int bits, group; /* bits 0: dense */
} ln_enc;
static inline bool ln_enc_bits_ok(int64_t bits) { return bits == 2 || bits == 3 || bits == 4 || bits == 5 || bits == 6 || bits == 8; }
static inline bool ln_enc_group_ok(int64_t group) { return group == 32 || group == 64 || group == 128; }

/* A weight in affine groups, found: what the data of an encoded operand points at. */
typedef struct ln_affine {
    const uint8_t *codes, *scales, *biases;
    ln_dtype dtype;  /* of scales and biases */
    ln_enc enc;
    const float *units;  /* packed for products by row: of each block of 16 outputs 1 / d, then e (ln_fixed_unit); else NULL */
    /* A packed weight has its scales and biases among its codes, and both pointers are NULL; of a looked up table that is packed for products by row `scales` is
     * where they lie together (device/cpu/pack/pack.h). */
} ln_affine;

static inline int64_t ln_affine_row_bytes(ln_enc e, int64_t cols) { return cols / 32 * 4 * e.bits; }
/* Code i of a row. Reads only bytes that hold bits of it. */
static inline uint32_t ln_affine_code(const uint8_t *row, int bits, int64_t i) {
    int64_t at = i * bits;
    const uint8_t *p = row + at / 8;
    int shift = (int)(at % 8);
    uint32_t v = p[0];
    if (shift + bits > 8) v |= (uint32_t)p[1] << 8;
    return v >> shift & ((1u << bits) - 1);
}

/* Number i of a dense row, at any alignment; and back. */
static inline float ln_num_load(const void *data, ln_dtype dtype, int64_t i) {
    if (dtype == LN_F32) {
        float f;
        memcpy(&f, (const char *)data + 4 * i, 4);
        return f;
    }
    uint16_t h;
    memcpy(&h, (const char *)data + 2 * i, 2);
    return dtype == LN_BF16 ? ln_bf16_f32(h) : ln_f16_f32(h);
}
static inline void ln_num_store(void *data, ln_dtype dtype, int64_t i, float x) {
    uint16_t h = dtype == LN_BF16 ? ln_f32_bf16(x) : ln_f32_f16(x);
    if (dtype == LN_F32) memcpy((char *)data + 4 * i, &x, 4);
    else memcpy((char *)data + 2 * i, &h, 2);
}

/* One row of `cols` numbers (a multiple of the group) to affine groups, by MLX's rule on the CPU, bit for bit. Arithmetic in f32; scales
 * and biases are rounded to `dtype` last, so that the codes were chosen by the unrounded ones. The numbers must be finite. */
void ln_affine_quantise(const float *w, int64_t cols, ln_enc e, ln_dtype dtype, uint8_t *codes, uint8_t *scales, uint8_t *biases);
/* The same for many rows of a weight as stored: row r of w goes to row r - row0 of codes, scales and biases. The numbers are rounded to
 * `dtype` first, where that is another one than `stored`. */
typedef struct ln_affine_job {
    const uint8_t *w;
    ln_dtype stored, dtype;
    ln_enc enc;
    int64_t cols, row0;
    uint8_t *codes, *scales, *biases;
} ln_affine_job;
typedef struct ln_affine_error {
    double lost2, all2, most; /* sum of (s q + b - w)^2, sum of w^2, largest |s q + b - w| */
} ln_affine_error;
/* Rows [from, to); false when one of them holds a number that is not finite. `row`: room for `cols` floats. Adds to *sum unless NULL. */
bool ln_affine_rows(const ln_affine_job *j, int64_t from, int64_t to, float *row, ln_affine_error *sum);

/* One row back, as MLX does it: s * q rounded to the dtype, + b rounded to the dtype. `out` holds `cols` numbers of that dtype. */
void ln_affine_row(const uint8_t *codes, const uint8_t *scales, const uint8_t *biases, ln_dtype dtype, ln_enc e, int64_t cols, void *out);

#endif
