/* Matrices in MLX's modes of floats (mlx_float.c), a part of the source of tensors. */
#ifndef LN_MLX_FLOAT_H
#define LN_MLX_FLOAT_H

#include "scheme.h"

/* ln_source_ops.find of a matrix whose tensor is found and that has a mode of floats. */
ln_status ln_mlx_float_find(const ln_source *s, const ln_source_ask *ask, ln_mlx_mode mode, ln_weight *w,
                            bool *fits, ln_error *err);
/* ln_source_ops.rows of such a weight. LN_ENUMERIC: a code or a scale is NaN. */
ln_status ln_mlx_float_rows(const ln_weight *w, int64_t row0, int64_t n, const ln_source_work *work,
                            void *buffer, ln_encoded_rows *out, ln_error *err);

#endif
