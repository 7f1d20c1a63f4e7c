/* Matrices of 8-bit floats with a scale for the tensor, for each row, or for each block of rows and columns:
 * what quant_method fp8 and compressed-tensors share. Rows are kept as they are, a byte a weight, with the
 * scales of their blocks (coded.h); blocks at the edges may be short. */
#ifndef LN_FP8_MATRIX_H
#define LN_FP8_MATRIX_H

#include "scheme.h"

typedef struct ln_fp8_matrix {
    const ln_tensor *codes, *scales;
    int64_t D, C;
    int64_t block_rows, block_cols; /* that share a scale */
} ln_fp8_matrix;

/* Whether a tensor has 8-bit floats that linnet reads: e4m3 without infinities, or e5m2. */
bool ln_fp8_is(const ln_tensor *x);
/* Checks the shapes, chooses the encoding of *w, and keeps the matrix for its rows. *fits false: a shape is
 * reported. LN_EUNSUPPORTED, LN_EMEMORY. */
ln_status ln_fp8_settle(const ln_source *s, const ln_source_ask *ask, ln_fp8_matrix *m, ln_weight *w,
                        bool *fits, ln_error *err);
/* ln_source_ops.rows of such a weight. LN_ENUMERIC: a code or a scale is NaN or infinite. */
ln_status ln_fp8_rows(const ln_source *s, const ln_weight *w, int64_t row0, int64_t n,
                      const ln_source_work *work, void *buffer, ln_encoded_rows *out, ln_error *err);

#endif
