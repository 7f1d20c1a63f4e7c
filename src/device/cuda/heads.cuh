// rmsnorm and rope of one head, which the kernels of heads (rows.cu) and of attention share.
#pragma once

#include "cuda_common.cuh"

// An element as it is stored, and its value. They are apart so that a kernel can start many loads before it
// uses the first.
__device__ inline uint32_t load_raw(const void *p, int32_t type, int64_t i) {
    return type == GPU_F32 ? ((const uint32_t *)p)[i] : ((const uint16_t *)p)[i];
}
__device__ inline float value_of(uint32_t raw, int32_t type) {
    return type == GPU_F32    ? __uint_as_float(raw)
           : type == GPU_BF16 ? bf16_to_f32((uint16_t)raw)
                              : __half2float(__ushort_as_half((uint16_t)raw));
}

// rotate_head if all columns of a head are rotated in halves, of up to 4 times 32 columns: lane c has columns
// c + 32 i of both halves.
template <typename F>
__device__ inline void rotate_whole(const gpu_heads &h, const gpu_array &x, const gpu_weight &w, int64_t r,
                                    int64_t col0, const F &store) {
    enum { MOST = 4 };
    const int32_t lane = (int32_t)threadIdx.x % 32, half = h.kv.head_dim / 2, n = half / 32;
    uint32_t raw[MOST][6] = {}; // both columns, both weights, cosine, sine
#pragma unroll
    for (int i = 0; i < MOST; i++) {
        if (i >= n) break;
        const int64_t c = lane + 32 * i, at = r * x.pitch + col0 + c, angle = r * h.table.pitch + c;
        raw[i][0] = load_raw(x.data, x.type, at), raw[i][1] = load_raw(x.data, x.type, at + half);
        if (w.data) raw[i][2] = load_raw(w.data, w.type, c), raw[i][3] = load_raw(w.data, w.type, c + half);
        raw[i][4] = load_raw(h.table.data, h.table.type, angle);
        raw[i][5] = load_raw(h.table.data, h.table.type, angle + half);
    }
    float y[2][MOST], sum = 0, scale = 1;
#pragma unroll
    for (int k = 0; k < 2 * MOST; k++) {
        y[k / MOST][k % MOST] = value_of(raw[k % MOST][k / MOST], x.type);
        if (k % MOST < n) sum = fmaf(y[k / MOST][k % MOST], y[k / MOST][k % MOST], sum);
    }
    if (w.data) scale = 1.0f / sqrtf(warp_sum(sum) / (float)h.kv.head_dim + h.eps);
#pragma unroll
    for (int i = 0; i < MOST; i++) {
        if (i >= n) break;
        float a = y[0][i], b = y[1][i];
        if (w.data) {
            a = (a * scale) * (value_of(raw[i][2], w.type) + h.offset);
            b = (b * scale) * (value_of(raw[i][3], w.type) + h.offset);
        }
        const float co = value_of(raw[i][4], h.table.type), sn = value_of(raw[i][5], h.table.type);
        store(lane + 32 * i, a * co - b * sn);
        store(lane + 32 * i + half, b * co + a * sn);
    }
}

// A warp normalises (where w has data) and rotates the head at column col0 of row r of x, and calls
// store(column, value) for each column of the head. The sum of squares is that of rmsnorm<32>, so the bits
// are those of the separate kernels.
template <typename F>
__device__ inline void rotate_head(const gpu_heads &h, const gpu_array &x, const gpu_weight &w, int64_t r,
                                   int64_t col0, const F &store) {
    const int32_t lane = (int32_t)threadIdx.x % 32, E = h.kv.head_dim, n = h.table.cols / 2;
    if (2 * n == E && !h.interleaved && n % 32 == 0 && n <= 128) {
        rotate_whole(h, x, w, r, col0, store);
        return;
    }
    float sum = 0, scale = 1;
    if (w.data) {
        for (int32_t c = lane; c < E; c += 32) {
            const float v = load_at(x, r, col0 + c);
            sum = fmaf(v, v, sum);
        }
        scale = 1.0f / sqrtf(warp_sum(sum) / (float)E + h.eps);
    }
    const auto normed = [&](int32_t c) {
        const float v = load_at(x, r, col0 + c);
        return w.data ? (v * scale) * (load_element(w.data, w.type, c) + h.offset) : v;
    };
    for (int32_t c = lane; c < n; c += 32) {
        const int32_t one = h.interleaved ? 2 * c : c, two = h.interleaved ? one + 1 : c + n;
        const float a = normed(one), b = normed(two), co = load_at(h.table, r, c),
                    sn = load_at(h.table, r, c + n);
        store(one, a * co - b * sn);
        store(two, b * co + a * sn);
    }
    for (int32_t c = 2 * n + lane; c < E; c += 32) store(c, normed(c));
}
