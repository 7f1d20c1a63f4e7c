// Products of tiles in f32: y[m][n] = sum over k of a(m, k) b(k, n), one chain of fma over k ascending from
// 0, as the reference kernels have it.
//
// A block computes 16 PER x 16 PER outputs, a thread PER x PER of them. Both operands come through shared
// memory, TILE_K of k at a time; a thread loads the next ones into registers while the block multiplies.
// Operands are structs with
//
//     static constexpr bool ALONG_K   neighbours in k are neighbours in memory; else those in m or n
//     float at(int64_t i, int64_t k)  element of output row or column i; i and k exist
#pragma once

#include "fragments.cuh"

enum { TILE_K = 16, TILE_THREADS = 256, TILE_SIDE = 16 };

// Rows of an array as operand: row i, column k.
struct along_rows {
    static constexpr bool ALONG_K = true;
    gpu_array a;
    __device__ float at(int64_t i, int64_t k) const { return load_at(a, i, k); }
};
// Columns of an array as operand: column i, row k.
struct along_columns {
    static constexpr bool ALONG_K = false;
    gpu_array a;
    __device__ float at(int64_t i, int64_t k) const { return load_at(a, k, i); }
};
// Columns of a weight as operand: column i, row k.
struct weight_columns {
    static constexpr bool ALONG_K = false;
    gpu_weight w;
    __device__ float at(int64_t i, int64_t k) const {
        return w.form == GPU_CODED ? coded_element(w, k, i) : weight_element(w, k, i);
    }
};

// The elements of one operand that a thread loads.
template <int PER, typename OPERAND> struct tile_loads {
    enum { SIDE = TILE_SIDE * PER, N = SIDE * TILE_K / TILE_THREADS };
    float x[N];

    static __device__ int row_of(int i) {
        const int n = i * TILE_THREADS + (int)threadIdx.x;
        return OPERAND::ALONG_K ? n / TILE_K : n % SIDE;
    }
    static __device__ int k_of(int i) {
        const int n = i * TILE_THREADS + (int)threadIdx.x;
        return OPERAND::ALONG_K ? n % TILE_K : n / SIDE;
    }
    __device__ void load(const OPERAND &o, int64_t row0, int64_t rows, int64_t k0, int64_t end) {
#pragma unroll
        for (int i = 0; i < N; i++) {
            const int64_t r = row0 + row_of(i), k = k0 + k_of(i);
            x[i] = r < rows && k < end ? o.at(r, k) : 0.0f;
        }
    }
    __device__ void store(float (*tile)[SIDE + 4]) const {
#pragma unroll
        for (int i = 0; i < N; i++) tile[k_of(i)][row_of(i)] = x[i];
    }
};

// Adds k0 .. end - 1 of the outputs from (m0, n0) on, of M x N, to sum.
template <int PER, typename A, typename B>
__device__ void multiply_tiles(float (&sum)[PER][PER], const A &a, const B &b, int64_t m0, int64_t n0,
                               int64_t M, int64_t N, int64_t k0, int64_t end) {
    enum { SIDE = TILE_SIDE * PER };
    __shared__ __align__(16) float left[TILE_K][SIDE + 4], right[TILE_K][SIDE + 4];
    const int m = (int)threadIdx.x / TILE_SIDE * PER, n = (int)threadIdx.x % TILE_SIDE * PER;
    tile_loads<PER, A> next_left;
    tile_loads<PER, B> next_right;
    next_left.load(a, m0, M, k0, end);
    next_right.load(b, n0, N, k0, end);
    for (int64_t k = k0; k < end; k += TILE_K) {
        __syncthreads();
        next_left.store(left);
        next_right.store(right);
        __syncthreads();
        if (k + TILE_K < end) {
            next_left.load(a, m0, M, k + TILE_K, end);
            next_right.load(b, n0, N, k + TILE_K, end);
        }
#pragma unroll
        for (int i = 0; i < TILE_K; i++) {
            float x[PER], w[PER];
#pragma unroll
            for (int j = 0; j < PER; j++) x[j] = left[i][m + j], w[j] = right[i][n + j];
#pragma unroll
            for (int j = 0; j < PER * PER; j++)
                sum[j / PER][j % PER] = fmaf(x[j / PER], w[j % PER], sum[j / PER][j % PER]);
        }
    }
}
