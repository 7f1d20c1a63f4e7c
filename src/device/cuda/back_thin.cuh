// Products of training one of whose sides is thin, as those of adapters are (back_thin.cu). A sum is one
// chain of fma, k ascending from 0, as in other products of f32; a thin a^T b adds pieces of GPU_PIECE rows.
#pragma once

#include "cuda_common.cuh"
#include "cuda_train_kernels.h"

enum { GPU_THIN = 64 }; // columns, or products of a sum, up to which a side is thin

// y = by a b^T, or by a b, of up to GPU_THIN columns and more products to a sum. b is f32.
bool has_thin_rows(int kind, const gpu_array *a, const gpu_array *b, const gpu_array *y);
void thin_rows(const gpu_launch *l, const gpu_step *s, int kind, const gpu_array *a, const gpu_array *b,
               float by, const gpu_array *y);
// y = other + a b^T, or a b, of up to GPU_THIN products to a sum and more columns; other: NULL, or an array
// of y's shape.
bool has_low_depth(int kind, const gpu_array *a, const gpu_array *y);
void low_depth(const gpu_launch *l, const gpu_step *s, int kind, const gpu_array *a, const gpu_array *b,
               const gpu_array *other, const gpu_array *y);
// Sums of a^T b over each piece of rows, at partial [piece][y.rows][y.cols].
bool has_thin_pieces(const gpu_array *y);
void thin_pieces(const gpu_launch *l, const gpu_step *s, const gpu_array *a, const gpu_array *b,
                 const gpu_array *y, float *partial);
