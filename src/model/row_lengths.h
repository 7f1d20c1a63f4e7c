/* The Euclidean lengths of the rows of a weight, by which DoRA (Liu et al. 2024) divides. */
#ifndef LN_ROW_LENGTHS_H
#define LN_ROW_LENGTHS_H

#include "../base/thread_pool.h"
#include "spec.h"

/* What an adapter adds to a matrix: scale * B A, A[rank, n_in] and B[n_out, rank]. */
typedef struct ln_low_rank {
    const float *A, *B;
    int64_t rank;
    double scale;
} ln_low_rank;

/* Returns the square of the length of row `r` of W + scale B A; row: that of W, [n]. sum: [n] is overwritten.
 */
double ln_row_square(const ln_low_rank *add, int64_t r, int64_t n, const float *row, float *sum);
/* Writes the squares of the lengths of all rows of W + scale B A to out[d0]. W is the matrix
 * weights.items[i], and without `add` it is the sum itself. LN_EMEMORY, LN_ENUMERIC. */
ln_status ln_row_squares(const ln_weights *weights, size_t i, const ln_low_rank *add, ln_pool *pool,
                         int n_threads, double *out, ln_error *err);

/* Writes rows row0 .. row0 + n - 1 of weight i as f32. LN_ENUMERIC, LN_EMEMORY. */
ln_status ln_weight_rows(const ln_weights *weights, size_t i, int64_t row0, int64_t n, float *out,
                         ln_error *err);

#endif
