// What the kernels that choose tokens (sampler.cu) and those of edits and log-probabilities (logprobs.cu)
// share: the working memory of a row, and loops over its logits.
#pragma once

#include "cuda_common.cuh"

#include <math_constants.h>

enum { PARTS = 64, THREADS = 256, ROW_THREADS = 1024, BINS = 2048, STEPS = 48, CANDIDATES = 2048 };

struct best_of {
    double value; // of logit and noise
    int32_t id;   // -1: none
};
// Working memory of a row.
struct sample_state {
    float most[PARTS];
    int32_t most_id[PARTS]; // -1: a NaN
    double total[PARTS];
    best_of best[PARTS];
    uint32_t bins[BINS];
    uint32_t n_candidates, complete; // complete: every token that could be drawn is a candidate
    uint32_t wide;                   // the filters may keep more tokens than the candidates
    int32_t id;                      // the chosen token
    // high half: bits of the distance to the largest logit; low half: the id. Of wide rows instead, of each
    // bin the sum of the exponentials in units of 2^-42; mass_rest has what that leaves, in units of 2^-84
    uint64_t candidates[CANDIDATES];
    uint64_t mass_rest[BINS];
    // of log-probabilities: of each part the largest logit and the sum of the exponentials relative to it,
    // and the likeliest tokens
    float top_most[PARTS];
    double top_total[PARTS];
    uint64_t top[PARTS][GPU_TOP]; // descending_key, in ascending order
    double log_sum;               // NaN: the row has a NaN or an infinity
};

// Keys of 64 bits whose ascending order is that of descending logits, of equal ones that of ascending ids.
__device__ inline uint64_t descending_key(float logit, int32_t id) {
    const uint32_t b = __float_as_uint(logit == 0.0f ? 0.0f : logit);
    return (uint64_t)(b >> 31 ? b : b ^ 0x7fffffffu) << 32 | (uint32_t)id;
}
__device__ inline float logit_of_key(uint64_t key) {
    const uint32_t b = (uint32_t)(key >> 32);
    return __uint_as_float(b >> 31 ? b : b ^ 0x7fffffffu);
}

__device__ inline const float *row_of(const gpu_array &x, int64_t row) {
    return (const float *)x.data + row * x.pitch;
}
// Whether a row's mask excludes a token.
__device__ inline bool is_excluded(const uint32_t *mask, int32_t id) {
    return mask && !(mask[id >> 5] >> (id & 31) & 1);
}
__device__ inline const uint32_t *mask_of(const gpu_draw &d, const gpu_sampling &s) {
    return d.mask < 0 ? NULL : (const uint32_t *)((const char *)s.parameters + d.mask);
}

// Calls f(id, logit) for each STRIDE-th token from `first` on, in ascending order. Several loads are on their
// way before the first logit is used.
template <int STRIDE, typename F>
__device__ inline void each_logit(const gpu_array &x, const float *logits, int32_t first, F f) {
    enum { AT_ONCE = 5 };
    for (int32_t c = first; c < x.cols; c += AT_ONCE * STRIDE) {
        float v[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) v[i] = c + i * STRIDE < x.cols ? logits[c + i * STRIDE] : 0.0f;
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (c + i * STRIDE < x.cols) f(c + i * STRIDE, v[i]);
    }
}
// The same for the tokens of this thread of PARTS blocks, and excluded ones with minus infinity.
template <typename F>
__device__ inline void for_logits(const gpu_array &x, const float *logits, const uint32_t *mask, F f) {
    each_logit<PARTS * THREADS>(x, logits, (int32_t)(blockIdx.y * THREADS + threadIdx.x),
                                [&](int32_t c, float v) { f(c, is_excluded(mask, c) ? -CUDART_INF_F : v); });
}
