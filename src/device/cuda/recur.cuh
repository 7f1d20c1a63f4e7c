// What the kernels of recurrent mixers share.
#pragma once

#include "cuda_common.cuh"

// The part of a layer in the page of a chunk of sequence b; NULL: the chunk has no page.
__device__ inline char *page_of(const gpu_step &s, const gpu_recur &p, int32_t b, int64_t chunk) {
    const int64_t entry = ((int64_t)s.slot[b] * s.n_blocks + chunk) * p.pages_per_block + p.page_in_block;
    const int32_t page = s.pages[p.group][entry];
    return page < 0 ? NULL : p.pool + page * p.page_bytes + p.layer_offset;
}
// A number that a row adds to the state, as it is stored.
__device__ inline float as_stored(const gpu_recur &p, float x) {
    return p.type == GPU_BF16 ? bf16_to_f32(f32_to_bf16(x)) : x;
}

// The gated delta rule by chunks (recur_chunks.cu), for steps with sequences of several rows: the bits of
// gated_delta. Whether its memory suffices for these sizes on every GPU.
bool gpu_has_delta_chunks(const gpu_recur *p, const gpu_array *q, const gpu_array *k);
int gpu_delta_chunks(const gpu_launch *l, const gpu_step *s, const gpu_recur *p, const gpu_array *gates,
                     const gpu_array *q, const gpu_array *k, const gpu_array *v, const gpu_array *y);
