// Pages of 8 bits (quant/block_int8.h) on the GPU. A layer's part of a page has the codes as pages of other
// types have elements, keys [K, page_len, width] and values [K, page_len, v_width], a byte each. Scales
// follow, a byte for 32 columns: keys [K, page_len, blocks], values [K, page_len, v_blocks].
#pragma once

#include "../../quant/block_int8.h"
#include "cuda_common.cuh"

__host__ __device__ inline int32_t q8_blocks(int32_t width) {
    return (width + LN_BLOCK_INT8 - 1) / LN_BLOCK_INT8;
}
// Byte offsets in the layer's part of a page: of a key/value head's codes and of its scales.
__host__ __device__ inline int64_t q8_codes_at(const gpu_kv &kv, bool values, int32_t head) {
    return ((values ? (int64_t)kv.n_kv_heads * kv.width : 0) +
            (int64_t)head * (values ? kv.v_width : kv.width)) *
           kv.page_len;
}
__host__ __device__ inline int64_t q8_scales_at(const gpu_kv &kv, bool values, int32_t head) {
    const int64_t k = q8_blocks(kv.width), v = q8_blocks(kv.v_width);
    return ((int64_t)kv.n_kv_heads * (kv.width + kv.v_width + (values ? k : 0)) + head * (values ? v : k)) *
           kv.page_len;
}

// Code i of a word as a float: a byte that is added to 2^23 in the low bits.
__device__ inline float q8_code(uint32_t word, int i) {
    const uint32_t biased = word ^ 0x80808080u;
    return __uint_as_float(__byte_perm(biased, 0x4b000000u, 0x7440 + i)) - 8388736.0f; // 2^23 + 128
}
// The 8 elements of codes at p, which is aligned to 8 bytes.
__device__ inline void q8_load8(const uint2 codes, uint8_t scale, float x[8]) {
    const float by = ln_block_int8_factor(scale);
#pragma unroll
    for (int i = 0; i < 8; i++) x[i] = q8_code(i < 4 ? codes.x : codes.y, i % 4) * by;
}
