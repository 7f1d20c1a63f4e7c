// Products in f32: every format of x with every stored form of w, by fused multiply-adds.
//
// A warp computes one output of up to ROWS rows. Lane l sums columns l, l + 32, ... in ascending order; a
// tree of fixed order adds the lanes. A row's result depends neither on the number of rows nor on its place
// among them. A weight in affine groups is fma(s, q, b), rounded to f32.
#pragma once

#include "fragments.cuh"
#include "products_output.cuh"

enum { F32_ROWS = 8, F32_WARPS = 8 };

// The elements k, k + 32, k + 64, ... of row d in turn. BITS: of a code; 0: dense. ROUNDS: elements of affine
// groups are rounded to bf16, to the bits that tensor cores multiply (fragments.cuh).
template <int BITS, bool ROUNDS> struct column_walk {
    const gpu_weight &w;
    int64_t d, k, at; // at: the index of element k, or of the word of its code, of a packed weight
    uint32_t shift;

    __device__ inline column_walk(const gpu_weight &weight, int64_t row, int64_t first)
        : w(weight), d(row), k(first), at(BITS ? code_word(BITS, w.C, d, k) : dense_index(w.C, d, k)),
          shift(code_shift(BITS, k)) {}
    __device__ inline float element(float s, float q, float b) const {
        if (!ROUNDS) return fmaf(s, q, b);
        if (w.type != GPU_BF16) return bf16_to_f32(f32_to_bf16(fmaf(s, q, b)));
        affine_pair<true> p;
        p.set(s, b);
        return low_float(p.of_numbers(round_pair(q, q)));
    }
    __device__ inline float next(void) {
        float v;
        if (w.form == GPU_FRAGMENTS && BITS == 0) v = load_element(w.data, w.type, at);
        else if (w.form == GPU_FRAGMENTS && (BITS == 4 || BITS == 8)) {
            const int64_t i = 2 * scale_index(w.C / w.group, d, k / w.group);
            const uint32_t code = ((const uint32_t *)w.data)[at] >> shift & ((1u << BITS) - 1u);
            v = element(load_element(w.scales, w.type, i),
                        BITS == 8 ? number_of(w.numbers, code) : (float)code,
                        load_element(w.scales, w.type, i + 1));
        } else if (BITS) {
            const int64_t g = d * (w.C / w.group) + k / w.group;
            v = element(load_element(w.scales, w.type, g), (float)affine_code(affine_row(w, d), BITS, k),
                        load_element(w.biases, w.type, g));
        } else v = load_element(w.data, w.type, d * w.C + k);
        k += 32, at += BITS ? 16 * BITS : 512;
        return v;
    }
};

// The sums of output d of rows row(0) .. row(n - 1) of x.
template <int BITS, bool ROUNDS, typename ROW>
__device__ inline void row_sums(const gpu_array &x, const gpu_weight &w, ROW row, int32_t n, int64_t d,
                                float *sum) {
    for (int i = 0; i < F32_ROWS; i++) sum[i] = 0;
    column_walk<BITS, ROUNDS> walk(w, d, threadIdx.x % 32);
    for (int64_t k = threadIdx.x % 32; k < w.C; k += 32) {
        const float v = walk.next();
#pragma unroll
        for (int i = 0; i < F32_ROWS; i++)
            if (i < n) sum[i] = fmaf(v, load_at(x, row(i), k), sum[i]);
    }
#pragma unroll
    for (int i = 0; i < F32_ROWS; i++) sum[i] = warp_sum(sum[i]);
}

template <int BITS, bool GATED> __global__ void product_f32(gpu_step s, gpu_product p) {
    begin();
    const int32_t r0 = (int32_t)blockIdx.y * F32_ROWS, live = live_rows(s, p.x.rows);
    const int32_t n = live - r0 < F32_ROWS ? live - r0 : (int32_t)F32_ROWS;
    int32_t i = 0;
    const int64_t d = first_output(p, F32_WARPS, &i) + threadIdx.x / 32;
    if (n <= 0 || d >= p.w[i].D) return;
    float a[F32_ROWS], b[F32_ROWS];
    const auto row = [&](int k) { return r0 + k; };
    row_sums<BITS, false>(p.x, p.w[i], row, n, d, a);
    if (GATED) row_sums<BITS, false>(p.x, p.w[1], row, n, d, b);
#pragma unroll
    for (int k = 0; k < F32_ROWS; k++)
        if (k < n && (int)(threadIdx.x % 32) == k)
            store_output<GATED>(p, i, r0 + k, d, a[k], GATED ? b[k] : 0.0f);
}

template <int BITS> static void launch_f32(const gpu_launch *l, const gpu_step *s, const gpu_product *p) {
    const dim3 grid(output_blocks(p, F32_WARPS),
                    (unsigned)((grid_rows(l, p->x.rows) + F32_ROWS - 1) / F32_ROWS));
    if (p->gate == GPU_NO_GATE) run(l, grid, 32 * F32_WARPS, 0, product_f32<BITS, false>, *s, *p);
    else run(l, grid, 32 * F32_WARPS, 0, product_f32<BITS, true>, *s, *p);
}
