// Products with weights in coded rows, in f32, with the bits of the reference kernel (product_coded in
// ops/linear_op.c): lane l of 16 sums columns l, l + 16, ... by fma, and the lanes are added in pairs. If x
// is bf16, scales and weights are rounded to bf16, too.
//
// Half a warp computes one output of up to ROWS rows.
#include "experts.cuh"
#include "products.cuh"
#include "products_output.cuh"

enum { LANES = 16, ROWS = 8, OUTPUTS = 16 /* of a block */ };

// The sums of output d of rows row(0) .. row(n - 1) of x.
template <int NUMBERS, typename ROW>
__device__ inline void row_sums(const gpu_array &x, const gpu_weight &w, ROW place, int32_t n, int64_t d,
                                float sum[ROWS]) {
    for (int i = 0; i < ROWS; i++) sum[i] = 0;
    coded_row<NUMBERS> row(w, d, x.type == GPU_BF16);
#pragma unroll 4
    for (int64_t k = threadIdx.x % LANES; k < w.C; k += LANES) {
        const float v = row.at(k);
#pragma unroll
        for (int i = 0; i < ROWS; i++)
            if (i < n) sum[i] = fmaf(v, load_at(x, place(i), k), sum[i]);
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++)
        for (int m = LANES / 2; m > 0; m /= 2) sum[i] = sum[i] + __shfl_xor_sync(0xffffffffu, sum[i], m);
}

template <int NUMBERS, bool GATED> __global__ void coded(gpu_step s, gpu_product p) {
    begin();
    const int32_t r0 = (int32_t)blockIdx.y * ROWS, n = min(live_rows(s, p.x.rows) - r0, (int32_t)ROWS);
    int32_t i = 0;
    const int64_t d = first_output(p, OUTPUTS, &i) + threadIdx.x / LANES, D = p.w[i].D,
                  from = d < D ? d : D - 1;
    if (n <= 0) return;
    float a[ROWS], b[ROWS];
    const auto place = [&](int k) { return r0 + k; };
    row_sums<NUMBERS>(p.x, p.w[i], place, n, from, a);
    if (GATED) row_sums<NUMBERS>(p.x, p.w[1], place, n, from, b);
#pragma unroll
    for (int k = 0; k < ROWS; k++)
        if (d < D && k < n && (int)(threadIdx.x % LANES) == k)
            store_output<GATED>(p, i, r0 + k, d, a[k], GATED ? b[k] : 0.0f);
}

template <int NUMBERS> static void launch(const gpu_launch *l, const gpu_step *s, const gpu_product *p) {
    const dim3 grid(output_blocks(p, OUTPUTS), (unsigned)((grid_rows(l, p->x.rows) + ROWS - 1) / ROWS));
    if (p->gate == GPU_NO_GATE) run(l, grid, OUTPUTS * LANES, 0, coded<NUMBERS, false>, *s, *p);
    else run(l, grid, OUTPUTS * LANES, 0, coded<NUMBERS, true>, *s, *p);
}
PRODUCT_OF(product_coded) {
    switch (p->w[0].numbers) {
    case GPU_E4M3: launch<GPU_E4M3>(l, s, p); break;
    case GPU_E5M2: launch<GPU_E5M2>(l, s, p); break;
    case GPU_E2M1: launch<GPU_E2M1>(l, s, p); break;
    default: launch<GPU_ZEROED>(l, s, p); break;
    }
}

// ---- experts ----

template <int NUMBERS> __global__ void coded_of_experts(gpu_step s, gpu_experts e) {
    begin();
    const expert_rows rows = expert_rows_of(s, e, ROWS);
    const int64_t d = (int64_t)blockIdx.x * OUTPUTS + threadIdx.x / LANES, from = d < e.D ? d : e.D - 1;
    if (rows.n <= 0) return;
    float sum[ROWS];
    int32_t at[ROWS];
    for (int i = 0; i < ROWS; i++) at[i] = rows.row_of_x(e, i);
    row_sums<NUMBERS>(
        e.x, e.w, [&](int i) { return at[i]; }, rows.n, rows.expert * e.D + from, sum);
#pragma unroll
    for (int k = 0; k < ROWS; k++)
        if (d < e.D && k < rows.n && (int)(threadIdx.x % LANES) == k) store_expert(e, rows, k, d, sum[k]);
}

template <int NUMBERS> static void launch_experts(const gpu_launch *l, const gpu_step *s, gpu_experts *e) {
    const dim3 grid((unsigned)((e->D + OUTPUTS - 1) / OUTPUTS), list_experts(l, s, e, ROWS));
    run(l, grid, OUTPUTS * LANES, 0, coded_of_experts<NUMBERS>, *s, *e);
}
EXPERTS_OF(experts_coded) {
    switch (e->w.numbers) {
    case GPU_E4M3: launch_experts<GPU_E4M3>(l, s, e); break;
    case GPU_E5M2: launch_experts<GPU_E5M2>(l, s, e); break;
    case GPU_E2M1: launch_experts<GPU_E2M1>(l, s, e); break;
    default: launch_experts<GPU_ZEROED>(l, s, e); break;
    }
}
