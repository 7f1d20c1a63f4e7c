// The products by width of the codes (dense: 0, packed f16: 16). products.cu is compiled once for each, so
// that the build can compile the kernels in parallel.
#pragma once

#include "cuda_kernels.h"

// Puts the product on the stream. Tensor cores compute it where x is stored in bf16, or is normalised first,
// and the weight is packed or in groups; else f32 multiply-adds do.
#define PRODUCT_OF(name) void name(const gpu_launch *l, const gpu_step *s, const gpu_product *p)
PRODUCT_OF(product_dense);
PRODUCT_OF(product_2bit);
PRODUCT_OF(product_3bit);
PRODUCT_OF(product_4bit);
PRODUCT_OF(product_5bit);
PRODUCT_OF(product_6bit);
PRODUCT_OF(product_8bit);
PRODUCT_OF(product_16bit); // dense f16, packed, and bf16 rows
PRODUCT_OF(product_coded); // products_coded.cu: GPU_CODED, in f32

// Products of rows with the matrices of their experts, by width of the codes (experts.cuh). If the pairs are
// not listed, e->lists becomes NULL.
#define EXPERTS_OF(name) void name(const gpu_launch *l, const gpu_step *s, gpu_experts *e)
EXPERTS_OF(experts_dense);
EXPERTS_OF(experts_2bit);
EXPERTS_OF(experts_3bit);
EXPERTS_OF(experts_4bit);
EXPERTS_OF(experts_5bit);
EXPERTS_OF(experts_6bit);
EXPERTS_OF(experts_8bit);
EXPERTS_OF(experts_16bit);
EXPERTS_OF(experts_coded);

// The wgmma kernels, which exist if GPU_HOPPER is defined. gpu_wgmma puts the product of bf16 x with packed
// weights on the stream, or returns false if it has no kernel for it or its kernel cannot be launched.
// gpu_wgmma_open prepares the kernels on the current device, of compute capability 9.0, and sets *clusters
// (gpu_launch).
bool gpu_wgmma(const gpu_launch *l, const gpu_step *s, const gpu_product *p);
int gpu_wgmma_open(int32_t *clusters);

// Outputs d0 .. d0 + n - 1 of a weight in groups as a packed bf16 matrix at `to` (products_unpack.cu): d0 is
// a multiple of 16, and there is space for n rounded up to 16.
gpu_weight unpacked_part(const gpu_launch *l, const gpu_weight *w, int64_t d0, int64_t n, void *to);
// The transpose of rows d0 .. d0 + n - 1 of a packed bf16 weight or one in groups, as a packed bf16 matrix
// [w.C, n] at `to`. d0 and n are multiples of 16; rows behind the last are zeros.
gpu_weight transposed_part(const gpu_launch *l, const gpu_weight *w, int64_t d0, int64_t n, void *to);
