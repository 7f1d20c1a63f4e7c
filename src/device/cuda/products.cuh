// The products by stored form of the weight: one source file compiles the kernels of each width of codes, so
// that they compile in parallel.
#pragma once

#include "cuda_kernels.h"

// Puts the product on the stream: by tensor cores where x is bf16 in two bytes and a row has whole chunks,
// else in f32.
#define PRODUCT_OF(name) void name(const gpu_launch *l, const gpu_step *s, const gpu_product *p)
PRODUCT_OF(product_dense);
PRODUCT_OF(product_2bit);
PRODUCT_OF(product_3bit);
PRODUCT_OF(product_4bit);
PRODUCT_OF(product_5bit);
PRODUCT_OF(product_6bit);
PRODUCT_OF(product_8bit);

// The wgmma kernels, which exist where GPU_HOPPER is defined. gpu_wgmma puts the product of bf16 x with
// packed weights on the stream, or returns false where it has no kernel for it. gpu_wgmma_open prepares the
// kernels on the current device, of compute capability 9.0.
bool gpu_wgmma(const gpu_launch *l, const gpu_step *s, const gpu_product *p);
int gpu_wgmma_open(void);
