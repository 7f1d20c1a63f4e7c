// Attention over the rows of a step: which rows see each other (ops/packed_attention_op.c).
#pragma once

#include "cuda_common.cuh"
#include "cuda_train_kernels.h"

// The first row that row r attends to; the last is r itself.
__device__ inline int32_t first_seen(const gpu_step &s, int64_t window, int32_t r) {
    const int32_t start = s.row0[s.seq[r]];
    return window > 0 && r - start >= window ? r - (int32_t)window + 1 : start;
}
// The row after the last that attends to row r.
__device__ inline int32_t end_of_seers(const gpu_step &s, int64_t window, int32_t r) {
    const int32_t end = s.row0[s.seq[r] + 1];
    return window > 0 && end - r > window ? r + (int32_t)window : end;
}

// What a kernel of attention computes: y and lse, or dq, dk, dv, or dk and dv.
enum packed_role { PACKED_FORWARD, PACKED_QUERIES, PACKED_KEYS, PACKED_VALUES, PACKED_BOTH };
__host__ __device__ constexpr bool is_of_queries(int role) {
    return role == PACKED_FORWARD || role == PACKED_QUERIES;
}

// A block's own rows, queries or keys, and the rows that it walks. Rows of a tile may belong to several
// sequences: none sees the rows of another.
template <int ROLE, int OWN> struct packed_range {
    int32_t own0, n_own, from, end, head0, n_heads, kv_head;
    __device__ packed_range(const gpu_step &s, const gpu_packed &p, int32_t tile) {
        const int32_t T = s.head->n_rows, group = p.n_heads / p.n_kv_heads, y = (int32_t)blockIdx.y;
        own0 = tile * OWN;
        n_own = T - own0 < OWN ? T - own0 : (int32_t)OWN;
        head0 = is_of_queries(ROLE) ? y : y * group;
        n_heads = is_of_queries(ROLE) ? 1 : group;
        kv_head = is_of_queries(ROLE) ? y / group : y;
        if (n_own <= 0) return;
        const int32_t last = own0 + n_own - 1;
        from = is_of_queries(ROLE) ? first_seen(s, p.window, own0) : own0;
        end = is_of_queries(ROLE) ? last + 1 : end_of_seers(s, p.window, last);
    }
};

// bf16 operands of widths that they have take the kernels on tensor cores (packed_tiles.cu, packed_wgmma.cu);
// others those in f32 multiply-adds (packed_plain.cu).
bool packed_has_tiles(const gpu_packed *p);
int packed_tiles_forward(const gpu_launch *l, const gpu_step *s, const gpu_packed *p);
int packed_tiles_back(const gpu_launch *l, const gpu_step *s, const gpu_packed *p);
bool packed_tiles_fit(const gpu_packed *p, int32_t shared_limit);
// Raises the limits of shared memory of these kernels, on the current device.
int packed_tiles_open(int32_t shared_limit);
#ifdef GPU_HOPPER
int packed_wgmma_forward(const gpu_launch *l, const gpu_step *s, const gpu_packed *p);
int packed_wgmma_back(const gpu_launch *l, const gpu_step *s, const gpu_packed *p);
int packed_wgmma_open(int32_t shared_limit);
#endif
