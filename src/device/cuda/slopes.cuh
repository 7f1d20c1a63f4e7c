// The slopes of activations (act_slope in ops/pointwise_ops.c).
#pragma once

#include "cuda_common.cuh"

// Of SiLU, else of gelu_tanh.
template <bool SILU> __device__ inline float gate_slope(float x) {
    const float once = 1.5957691216057308f, cube = 0.0713548162726f;
    const float u = SILU ? x : x * (once + cube * x * x), s = 1 / (1 + ln_expf(-u));
    return SILU ? s * (1 + x * (1 - s)) : s + x * s * (1 - s) * (once + 3 * cube * x * x);
}
// SiLU and its slope, with the bits of both, from one exponential.
__device__ inline float silu_and_slope(float x, float *slope) {
    const float below = 1 + ln_expf(-x), s = 1 / below;
    *slope = s * (1 + x * (1 - s));
    return x / below;
}
