// The products of low-rank adapters (ops/lora_op.c has the ops, ln_p_lora in graph/program.h the pool).
//
// The order of a row's sums depends on its adapter alone. lora_down sums the columns of a row of A in 32
// lanes, each by fma in ascending order, and adds the lanes in a tree; where rows of A are whole vectors of 4
// elements, a lane has the vectors lane, lane + 32, ..., else the columns lane, lane + 32, ... lora_up has
// the order of the reference kernel. Neighbouring rows with the same adapter share the loads of A and B.
#include "cuda_common.cuh"

enum { ROWS = 4, WARPS = 8, OUTPUTS = 128 };

// The adapter of a row for a matrix. rank 0 and no bias: it leaves the row as it is.
struct lora_slot {
    const void *a, *b;
    const float *scale, *bias, *gain;
    int32_t rank;
};
__device__ lora_slot slot_of(const gpu_lora &p, int32_t slot) {
    lora_slot o = {};
    if (slot < 0 || slot >= p.n_slots) return o;
    const char *part = p.pool + slot * p.slot_bytes + p.at;
    const int32_t *head = (const int32_t *)part;
    o.rank = head[0];
    o.scale = (const float *)(part + p.scale);
    o.bias = head[1] & 1 ? (const float *)(part + p.bias) : nullptr; // LN_LORA_HAS_BIAS, LN_LORA_HAS_GAIN
    o.gain = head[1] & 2 ? (const float *)(part + p.gain) : nullptr;
    o.a = part + p.a;
    o.b = part + p.b;
    return o;
}
__device__ int32_t adapter_of(const gpu_step &s, const gpu_lora &p, int32_t r) {
    return s.adapter[p.of_outputs ? s.out_rows[r] : r];
}
// Calls work(rows, first, slot) for the live rows of [r0, r0 + ROWS): once where they have one adapter, else
// row by row. rows is a constant of the type, 1 or ROWS.
template <int N> struct count {
    enum { value = N };
};
template <typename F>
__device__ void for_rows(const gpu_step &s, const gpu_lora &p, int32_t r0, int32_t live, F work) {
    const int32_t slot = adapter_of(s, p, r0);
    bool same = r0 + ROWS <= live;
    for (int32_t i = 1; same && i < ROWS; i++) same = adapter_of(s, p, r0 + i) == slot;
    if (same) {
        work(count<ROWS>(), r0, slot_of(p, slot));
        return;
    }
    for (int32_t r = r0; r < r0 + ROWS && r < live; r++) work(count<1>(), r, slot_of(p, adapter_of(s, p, r)));
}

struct four {
    float v[4];
};
__device__ inline four load_four(const void *p, int32_t type, int64_t i) {
    if (type == GPU_F32) {
        const float4 f = *(const float4 *)((const float *)p + i);
        return {{f.x, f.y, f.z, f.w}};
    }
    const uint2 h = *(const uint2 *)((const uint16_t *)p + i);
    return {{__uint_as_float(h.x << 16), __uint_as_float(h.x & 0xffff0000u), __uint_as_float(h.y << 16),
             __uint_as_float(h.y & 0xffff0000u)}};
}

// This lane's part of the products of rows [r, r + N) of x and the row of A that begins at element `from`.
template <int N>
__device__ void sum_lane(const gpu_array &x, int32_t r, const gpu_lora &p, const void *a, int64_t from,
                         float sum[N]) {
    const int32_t lane = (int32_t)threadIdx.x % 32;
    if (p.n_in % 4) {
#pragma unroll 4
        for (int64_t c = lane; c < p.n_in; c += 32) {
            const float w = load_element(a, p.type, from + c);
#pragma unroll
            for (int i = 0; i < N; i++) sum[i] = fmaf(load_at(x, r + i, c), w, sum[i]);
        }
        return;
    }
#pragma unroll 4
    for (int64_t c = 4 * lane; c < p.n_in; c += 128) {
        const four w = load_four(a, p.type, from + c);
#pragma unroll
        for (int i = 0; i < N; i++) {
            const four v = load_four(x.data, x.type, (r + i) * x.pitch + c);
#pragma unroll
            for (int k = 0; k < 4; k++) sum[i] = fmaf(v.v[k], w.v[k], sum[i]);
        }
    }
}

// A warp computes one column of t for ROWS rows.
__global__ void lora_down(gpu_step s, gpu_lora p, gpu_array x, gpu_array t) {
    begin();
    const int32_t live = live_rows(s, t.rows), r0 = (int32_t)blockIdx.x * ROWS;
    const int32_t j = (int32_t)(blockIdx.y * WARPS + threadIdx.x / 32);
    if (r0 >= live || j >= t.cols) return;
    for_rows(s, p, r0, live, [&](auto n, int32_t r, const lora_slot &l) {
        enum { N = decltype(n)::value };
        float sum[N] = {};
        if (j < l.rank) sum_lane<N>(x, r, p, l.a, j * p.n_in, sum);
#pragma unroll
        for (int i = 0; i < N; i++) {
            const float d = warp_sum(sum[i]);
            if (threadIdx.x % 32 == 0) store_at(t, r + i, j, j < l.rank ? d * l.scale[j] : 0.0f);
        }
    });
}

// A thread computes one output of ROWS rows.
__global__ void lora_up(gpu_step s, gpu_lora p, gpu_array x, gpu_array t, gpu_array y) {
    begin();
    const int32_t live = live_rows(s, y.rows), r0 = (int32_t)blockIdx.x * ROWS;
    const int64_t d = (int64_t)blockIdx.y * OUTPUTS + threadIdx.x;
    if (r0 >= live || d >= p.n_out) return;
    for_rows(s, p, r0, live, [&](auto n, int32_t r, const lora_slot &l) {
        enum { N = decltype(n)::value };
        const bool adapted = l.rank > 0 || l.bias || l.gain;
        float sum[N] = {};
#pragma unroll 8
        for (int32_t j = 0; j < l.rank; j++) {
            const float b = load_element(l.b, p.type, j * p.n_out + d);
#pragma unroll
            for (int i = 0; i < N; i++) sum[i] = fmaf(load_at(t, r + i, j), b, sum[i]);
        }
#pragma unroll
        for (int i = 0; i < N; i++) {
            const float v = load_at(x, r + i, d);
            if (l.bias) sum[i] = sum[i] + l.bias[d];
            if (l.gain) sum[i] = fmaf(l.gain[d], v, sum[i]);
            store_at(y, r + i, d, adapted ? v + sum[i] : v);
        }
    });
}

static unsigned row_blocks(const gpu_launch *l, const gpu_array *y) {
    return (unsigned)((grid_rows(l, y->rows) + ROWS - 1) / ROWS);
}
int gpu_lora_down(const gpu_launch *l, const gpu_step *s, const gpu_lora *p, const gpu_array *x,
                  const gpu_array *t) {
    const dim3 grid(row_blocks(l, t), (unsigned)((t->cols + WARPS - 1) / WARPS));
    run(l, grid, 32 * WARPS, 0, lora_down, *s, *p, *x, *t);
    return (int)cudaGetLastError();
}
int gpu_lora_up(const gpu_launch *l, const gpu_step *s, const gpu_lora *p, const gpu_array *x,
                const gpu_array *t, const gpu_array *y) {
    const dim3 grid(row_blocks(l, y), (unsigned)((p->n_out + OUTPUTS - 1) / OUTPUTS));
    run(l, grid, OUTPUTS, 0, lora_up, *s, *p, *x, *t, *y);
    return (int)cudaGetLastError();
}
