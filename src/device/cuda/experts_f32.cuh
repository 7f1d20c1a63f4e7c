// Products of rows with the matrices of their experts, in f32: those of products_f32.cuh, with their bits. If
// x is bf16, elements of affine groups are rounded to bf16, as in the products of tensor cores.
#pragma once

#include "experts.cuh"
#include "products_f32.cuh"

template <int BITS, bool ROUNDS> __global__ void experts_f32(gpu_step s, gpu_experts e) {
    begin();
    const expert_rows rows = expert_rows_of(s, e, F32_ROWS);
    const int64_t d = (int64_t)blockIdx.x * F32_WARPS + threadIdx.x / 32;
    if (rows.n <= 0 || d >= e.D) return;
    float sum[F32_ROWS];
    int32_t at[F32_ROWS];
#pragma unroll
    for (int i = 0; i < F32_ROWS; i++) at[i] = rows.row_of_x(e, i);
    row_sums<BITS, ROUNDS>(
        e.x, e.w, [&](int i) { return at[i]; }, rows.n, rows.expert * e.D + d, sum);
#pragma unroll
    for (int k = 0; k < F32_ROWS; k++)
        if (k < rows.n && (int)(threadIdx.x % 32) == k) store_expert(e, rows, k, d, sum[k]);
}

template <int BITS> static void launch_experts_f32(const gpu_launch *l, const gpu_step *s, gpu_experts *e) {
    const dim3 grid((unsigned)((e->D + F32_WARPS - 1) / F32_WARPS), list_experts(l, s, e, F32_ROWS));
    if (BITS && e->x.type == GPU_BF16) run(l, grid, 32 * F32_WARPS, 0, experts_f32<BITS, BITS != 0>, *s, *e);
    else run(l, grid, 32 * F32_WARPS, 0, experts_f32<BITS, false>, *s, *e);
}
