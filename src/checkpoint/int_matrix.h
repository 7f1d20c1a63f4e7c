/* Matrices of packed integers with scales and zero points, w = s (q - z), as GPTQ, AWQ and compressed-tensors
 * store them: what the formats share.
 *
 * A format unpacks codes and zero points; int_matrix.c chooses an encoding that holds the numbers without
 * loss, and computes rows in it:
 *
 *     affine groups  if groups are whole multiples of 32 columns in order, and scales have two bytes or the
 *                    zero point is a power of two: b = -s z in f32 is exact then, and so is s q + b
 *     zero points    else: groups of any size, columns in any order (act-order), scales of any type
 *
 * A group of more columns than an affine group may have is stored as several with the same scale. */
#ifndef LN_INT_MATRIX_H
#define LN_INT_MATRIX_H

#include "scheme.h"

typedef struct ln_int_matrix ln_int_matrix;
/* Unpacks the codes of n rows from d0 on into out[n][columns]. */
typedef void ln_int_codes_fn(const ln_int_matrix *m, int64_t d0, int64_t n, uint8_t *out);
/* Returns the zero point of row d in a group. */
typedef int ln_int_zero_fn(const ln_int_matrix *m, int64_t d, int64_t group);

struct ln_int_matrix {
    const ln_tensor *codes, *scales, *zeros; /* zeros NULL: all are 2^(bits-1) */
    const ln_tensor *order;                  /* I32 [columns]: the group of each column; NULL: in order */
    int64_t D, C, group, n_groups;           /* group: columns of one, C if there is one */
    int bits;
    int added;     /* to a zero point that is stored (GPTQ's first version: 1) */
    bool by_group; /* scales are [groups, rows], else [rows, groups] */
    ln_int_codes_fn *unpack;
    ln_int_zero_fn *zero;
    /* set by ln_int_matrix_settle */
    ln_dtype scale;
    const uint16_t *columns;
};

/* Returns code i of a packed stream of 32-bit words at `step` words from each other, low bits first. */
static inline uint32_t ln_int_code(const uint8_t *words, int64_t step, int bits, int64_t i) {
    const int64_t at = i * bits, shift = at % 32;
    uint32_t lo, hi = 0;
    memcpy(&lo, words + at / 32 * step * 4, 4);
    if (shift + bits > 32) memcpy(&hi, words + (at / 32 + 1) * step * 4, 4);
    return (uint32_t)(((uint64_t)hi << 32 | lo) >> shift) & ((1u << bits) - 1);
}

/* Checks types and values of the small tensors, chooses the encoding of *w and keeps the matrix for its rows.
 * LN_EINVALID, LN_EUNSUPPORTED: the message names the tensor. LN_EMEMORY. */
ln_status ln_int_matrix_settle(const ln_source *s, ln_int_matrix *m, ln_weight *w, ln_error *err);
/* ln_source_ops.rows of such a weight. */
ln_status ln_int_matrix_rows(const ln_source *s, const ln_weight *w, int64_t row0, int64_t n,
                             const ln_source_work *work, void *buffer, ln_encoded_rows *out, ln_error *err);

#endif
