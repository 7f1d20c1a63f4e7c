// Which outputs a block of a product kernel computes, and what is stored.
#pragma once

#include "cuda_common.cuh"

// Blocks of `each` outputs: those of product 0, then those of 1 and 2. A gated pair counts once.
static inline unsigned output_blocks(const gpu_product *p, int each) {
    int64_t n = 0;
    for (int i = 0; i < p->n; i++) n += (p->w[i].D + each - 1) / each;
    return (unsigned)n;
}
// The first output of this block, and its product.
__device__ inline int64_t first_output(const gpu_product &p, int each, int32_t *product) {
    int64_t block = blockIdx.x;
    int32_t i = 0;
    for (; i + 1 < p.n && block >= (p.w[i].D + each - 1) / each; i++) block -= (p.w[i].D + each - 1) / each;
    *product = i;
    return block * each;
}

// Stores output d of row r of product i, and returns it before it is rounded. Its sum is `sum`; of a gated
// pair, `other` is that of the second.
template <bool GATED>
__device__ inline float store_output(const gpu_product &p, int32_t i, int64_t r, int64_t d, float sum,
                                    float other) {
    if (GATED) sum = activation(p.gate, sum) * other;
    else if (p.bias[i].data) sum = sum + load_element(p.bias[i].data, p.bias[i].type, d);
    if (!GATED && p.residual.data) sum = load_at(p.residual, r, d) + sum;
    store_at(p.y[i], r, d, sum);
    return sum;
}
