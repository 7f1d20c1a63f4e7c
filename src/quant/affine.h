/* Affine group quantisation of weights, in MLX's format: a weight w in a row is stored as a code q of few
 * bits; each group of consecutive columns has a scale s and a bias b, and w = s q + b
 * (docs/decisions/006-affine-groups.md). MLX stores both in one dtype; formats with zero points map to biases
 * that need more bits than their scales, b = -s z in f32, so each has a dtype of its own.
 *
 * Codes: each row is one little-endian bit stream with code i in bits [i * bits, (i + 1) * bits). Since every
 * group is a multiple of 32 codes, a row fills complete 32-bit words. Scales and biases: cols / group
 * elements per row each. A scale may be negative. All three
 * are used as stored in the file, at any alignment.
 *
 * There are two ways to dequantise. The model computes with f32(s) q + f32(b), unrounded. ln_affine_row gives
 * the result of MLX's dequantize: the product and the sum are each rounded to the dtype. */
#ifndef LN_AFFINE_H
#define LN_AFFINE_H

#include "../base/base.h"
#include "../base/elementary.h"

/* Codes of `bits` bits in groups of `group` columns. */
typedef struct ln_groups {
    int bits, group; /* 0: none */
} ln_groups;
static inline bool ln_affine_bits_ok(int64_t bits) {
    return bits == 2 || bits == 3 || bits == 4 || bits == 5 || bits == 6 || bits == 8;
}
static inline bool ln_affine_group_ok(int64_t group) { return group == 32 || group == 64 || group == 128; }

/* A quantised weight in memory: the operand data of an encoded value. The pointers are borrowed. */
typedef struct ln_affine {
    const uint8_t *codes, *scales, *biases;
    ln_dtype dtype, offset; /* of the scales; of the biases */
    ln_groups code;
    int shared; /* ln_encoding.shared: packed scales and biases have factors (device/cpu/pack/pack.h) */
    bool has_constants; /* packed with constants in place of scales and biases */
    /* weights packed for int8-pair products: for each block of 16 outputs 16 values 1 / d, then 16 values e
     * (ln_i8pair_output_scale); else NULL */
    const float *units;
    /* Packed weights store scales and biases between their codes, and both pointers are NULL. The exception
     * is an embedding table that is packed with constants: `scales` points to its scales and biases, stored
     * together (device/cpu/pack/pack.h). */
} ln_affine;

static inline int64_t ln_affine_row_bytes(ln_groups e, int64_t cols) { return cols / 32 * 4 * e.bits; }
/* Code i of a row. Reads only bytes that contain bits of it. */
static inline uint32_t ln_affine_code(const uint8_t *row, int bits, int64_t i) {
    int64_t at = i * bits;
    const uint8_t *p = row + at / 8;
    int shift = (int)(at % 8);
    uint32_t v = p[0];
    if (shift + bits > 8) v |= (uint32_t)p[1] << 8;
    return v >> shift & ((1u << bits) - 1);
}

/* Load or store element i of a dense row in F32, BF16 or F16, at any alignment. */
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

/* Quantises one row of `cols` elements, a multiple of the group size, with the same bits as MLX on the CPU.
 * Arithmetic is f32. Scales and biases are rounded to `dtype` last, so that the codes are chosen with the
 * unrounded ones. All elements must be finite. */
void ln_affine_quantize(const float *w, int64_t cols, ln_groups e, ln_dtype dtype, uint8_t *codes,
                        uint8_t *scales, uint8_t *biases);
/* Quantises rows of a stored weight w [rows, cols]: row r of w is written to row r - row0 of codes, scales
 * and biases. Elements are first rounded to `dtype` if that differs from `stored`. */
typedef struct ln_affine_job {
    const uint8_t *w;
    ln_dtype stored, dtype; /* of w; of scales and biases */
    ln_groups code;
    int64_t cols, row0;
    uint8_t *codes, *scales, *biases;
} ln_affine_job;
typedef struct ln_affine_error {
    double lost2, all2, most; /* sum of (s q + b - w)^2, sum of w^2, largest |s q + b - w| */
} ln_affine_error;
/* Quantises the rows [from, to) of a job. Returns false if an element is not finite. `row`: buffer for `cols`
 * floats. Adds the quantisation error to *sum unless NULL. */
bool ln_affine_rows(const ln_affine_job *j, int64_t from, int64_t to, float *row, ln_affine_error *sum);

/* Dequantises one row as MLX does: s * q is rounded to the dtype, then + b is rounded to the dtype. `out`
 * receives `cols` elements of that dtype. */
void ln_affine_row(const uint8_t *codes, const uint8_t *scales, const uint8_t *biases, ln_dtype dtype,
                   ln_groups e, int64_t cols, void *out);

#endif
