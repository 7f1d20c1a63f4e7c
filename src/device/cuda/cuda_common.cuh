// What the kernels share: their beginning and launch, access to elements, and reductions. The elementary
// functions are those of the CPU (base/elementary_inline.h).
//
// The files are compiled with -fmad=false, so that a multiplication and an addition are fused only where the
// source says fmaf: then the pointwise ops have the bits of the reference kernels.
#pragma once

#include "../../base/elementary_inline.h"
#include "cuda_kernels.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

// The beginning of every kernel: allows blocks of the next kernel of the stream to start, and waits until the
// kernel before has finished and its results are visible (programmatic dependent launch). What a
// kernel reads before `wait_for_inputs` must not be written by a kernel of the step: weights, the step block
// and the page tables, and pages of positions before the step. At least one block of every kernel waits, so
// that a kernel does not end before the one before it.
__device__ inline void let_next_begin(void) {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ inline void wait_for_inputs(void) {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ inline void begin(void) {
    let_next_begin();
    wait_for_inputs();
}
// Puts a kernel on the stream. All kernels prefer the same division of a multiprocessor's memory into L1
// cache and shared memory, the most of it as shared memory: a launch with another preference than the last
// may wait for the kernels before it (CUDA's manual, cudaFuncSetCacheConfig), and steps were slower
// (bench/log/attempts.csv).
template <typename... P, typename... A>
static inline void run(const gpu_launch *l, dim3 grid, unsigned threads, size_t shared, void (*kernel)(P...),
                       const A &...args) {
    cudaLaunchAttribute attributes[2] = {};
    attributes[0].id = cudaLaunchAttributePreferredSharedMemoryCarveout;
    attributes[0].val.sharedMemCarveout = cudaSharedmemCarveoutMaxShared;
    attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[1].val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t c = {};
    c.gridDim = grid, c.blockDim = dim3(threads), c.dynamicSmemBytes = shared,
    c.stream = (cudaStream_t)l->stream;
    c.attrs = attributes, c.numAttrs = l->overlap ? 2 : 1;
    (void)cudaLaunchKernelEx(&c, kernel, P(args)...);
}

// The rows of a value, if a step has counts T, N and B: gpu_array.rows.
__host__ __device__ inline int32_t rows_of(int32_t rows, int32_t T, int32_t N, int32_t B) {
    if (rows >= 0) return rows;
    const int32_t symbol = -(-(rows + 1) % GPU_ROW_SYMBOLS + 1), factor = -(rows + 1) / GPU_ROW_SYMBOLS + 1;
    return factor * (symbol == GPU_ROWS_T ? T : symbol == GPU_ROWS_N ? N : B);
}
// Live rows of a value, from the step block.
__device__ inline int32_t live_rows(const gpu_step &s, int32_t rows) {
    return rows_of(rows, s.head->n_rows, s.head->n_out, s.head->n_seqs);
}
// The most rows that a value can have in a step of the counts of `l`.
inline int32_t grid_rows(const gpu_launch *l, int32_t rows) { return rows_of(rows, l->T, l->N, l->B); }

__device__ inline uint32_t shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ inline float bf16_to_f32(uint16_t h) { return ln_bf16_f32(h); }
__device__ inline uint16_t f32_to_bf16(float f) { return ln_f32_bf16(f); }
__device__ inline float load_element(const void *p, int32_t type, int64_t i) {
    if (type == GPU_F32) return ((const float *)p)[i];
    const uint16_t h = ((const uint16_t *)p)[i];
    return type == GPU_BF16 ? bf16_to_f32(h) : __half2float(__ushort_as_half(h));
}
__device__ inline void store_element(void *p, int32_t type, int64_t i, float x) {
    if (type == GPU_F32) ((float *)p)[i] = x;
    else ((uint16_t *)p)[i] = f32_to_bf16(x);
}
__device__ inline float load_at(const gpu_array &a, int64_t row, int64_t col) {
    return load_element(a.data, a.type, row * a.pitch + col);
}
__device__ inline void store_at(const gpu_array &a, int64_t row, int64_t col, float x) {
    store_element(a.data, a.type, row * a.pitch + col, x);
}

// Four neighbours of a row, which begin at a multiple of four. has_fours: they are a vector in memory.
inline bool has_fours(const gpu_array *a) { return a->pitch % 4 == 0 && (uintptr_t)a->data % 16 == 0; }
__device__ inline float4 load_four(const gpu_array &a, int64_t row, int64_t col) {
    const int64_t at = row * a.pitch + col;
    if (a.type == GPU_F32) return *(const float4 *)((const float *)a.data + at);
    const uint2 h = *(const uint2 *)((const uint16_t *)a.data + at);
    return make_float4(bf16_to_f32((uint16_t)h.x), bf16_to_f32((uint16_t)(h.x >> 16)),
                       bf16_to_f32((uint16_t)h.y), bf16_to_f32((uint16_t)(h.y >> 16)));
}
__device__ inline void store_four(const gpu_array &a, int64_t row, int64_t col, const float4 &x) {
    const int64_t at = row * a.pitch + col;
    if (a.type == GPU_F32) *(float4 *)((float *)a.data + at) = x;
    else
        *(uint2 *)((uint16_t *)a.data + at) = make_uint2(f32_to_bf16(x.x) | (uint32_t)f32_to_bf16(x.y) << 16,
                                                         f32_to_bf16(x.z) | (uint32_t)f32_to_bf16(x.w) << 16);
}

// Code k of an affine row, which is a stream of 32-bit words.
__device__ inline uint32_t affine_code(const uint32_t *row, int32_t bits, int64_t k) {
    const int64_t at = k * bits;
    const uint32_t shift = (uint32_t)(at & 31);
    uint64_t v = row[at >> 5];
    if (shift + (uint32_t)bits > 32) v |= (uint64_t)row[(at >> 5) + 1] << 32;
    return (uint32_t)(v >> shift) & ((1u << bits) - 1u);
}
__device__ inline const uint32_t *affine_row(const gpu_weight &w, int64_t d) {
    return (const uint32_t *)w.data + d * (w.C / 32 * w.bits);
}

__device__ inline float activation(int gate, float x) {
    return gate == GPU_GATE_SILU ? ln_siluf(x) : ln_gelu_tanhf(x);
}

// The sum of a warp's values in a tree of fixed order; all lanes get it.
__device__ inline float warp_sum(float x) {
    for (int m = 16; m > 0; m /= 2) x = x + __shfl_xor_sync(0xffffffffu, x, m);
    return x;
}
// The sum of a row in the order of the reference: lanes 0 to 15 of a warp add every 16th column, and the
// lanes are added in pairs. Lane 0 gets it.
__device__ inline float row_sum(const gpu_array &x, int64_t r, int32_t lane) {
    float sum = 0;
#pragma unroll 8
    for (int32_t c = lane; lane < 16 && c < x.cols; c += 16) sum = sum + load_at(x, r, c);
    for (int m = 8; m > 0; m /= 2) sum = sum + __shfl_xor_sync(0xffffffffu, sum, m);
    return sum;
}
