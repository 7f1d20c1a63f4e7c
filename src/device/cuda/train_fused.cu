// Kernels of training that do several nodes in one, with the bits of these nodes (cuda_fuse.c).
#include "cuda_train_kernels.h"
#include "fragments.cuh"
#include "slopes.cuh"

static inline int launched(void) { return (int)cudaGetLastError(); }

// ---- gated activations ----

enum { GATE_THREADS = 128, GATE_EACH = 8 };

// Eight neighbours of a row, which are whole vectors in memory.
struct eight {
    float v[GATE_EACH];
};
__device__ inline eight load_eight(const gpu_array &a, int64_t row, int64_t col) {
    const uint4 h = *(const uint4 *)((const uint16_t *)a.data + row * a.pitch + col);
    const uint32_t w[4] = {h.x, h.y, h.z, h.w};
    eight x;
#pragma unroll
    for (int i = 0; i < 4; i++) x.v[2 * i] = low_float(w[i]), x.v[2 * i + 1] = high_float(w[i]);
    return x;
}
__device__ inline void store_eight(const gpu_array &a, int64_t row, int64_t col, const eight &x) {
    const int64_t at = row * a.pitch + col;
    if (a.type == GPU_F32) {
        float4 *to = (float4 *)((float *)a.data + at);
        to[0] = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]),
        to[1] = make_float4(x.v[4], x.v[5], x.v[6], x.v[7]);
        return;
    }
    uint32_t w[4];
#pragma unroll
    for (int i = 0; i < 4; i++) w[i] = round_pair(x.v[2 * i], x.v[2 * i + 1]);
    *(uint4 *)((uint16_t *)a.data + at) = make_uint4(w[0], w[1], w[2], w[3]);
}
__device__ inline void round_eight(eight *x) {
#pragma unroll
    for (int i = 0; i < GATE_EACH; i += 2) {
        const uint32_t pair = round_pair(x->v[i], x->v[i + 1]);
        x->v[i] = low_float(pair), x->v[i + 1] = high_float(pair);
    }
}

// y = bf16(activation(gate)) up.
template <int GATE> __global__ void gate_rows(gpu_step s, gpu_array gate, gpu_array up, gpu_array y) {
    begin();
    const int32_t r = (int32_t)blockIdx.x, c = (int32_t)(blockIdx.y * blockDim.x + threadIdx.x) * GATE_EACH;
    if (r >= live_rows(s, y.rows) || c >= y.cols) return;
    const eight g = load_eight(gate, r, c), u = load_eight(up, r, c);
    eight out;
#pragma unroll
    for (int i = 0; i < GATE_EACH; i++) out.v[i] = activation(GATE, g.v[i]);
    round_eight(&out);
#pragma unroll
    for (int i = 0; i < GATE_EACH; i++) out.v[i] = out.v[i] * u.v[i];
    store_eight(y, r, c, out);
}
// dup = dy bf16(activation(gate)); dgate = bf16(dy up) slope(gate).
template <int GATE>
__global__ void gate_back(gpu_step s, gpu_array gate, gpu_array up, gpu_array dy, gpu_array dgate,
                          gpu_array dup) {
    begin();
    const int32_t r = (int32_t)blockIdx.x, c = (int32_t)(blockIdx.y * blockDim.x + threadIdx.x) * GATE_EACH;
    if (r >= live_rows(s, dup.rows) || c >= dup.cols) return;
    const eight g = load_eight(gate, r, c), u = load_eight(up, r, c), d = load_eight(dy, r, c);
    eight of_gate, of_up, slope;
#pragma unroll
    for (int i = 0; i < GATE_EACH; i++) {
        if (GATE == GPU_GATE_SILU) of_up.v[i] = silu_and_slope(g.v[i], &slope.v[i]);
        else of_up.v[i] = activation(GATE, g.v[i]), slope.v[i] = gate_slope<false>(g.v[i]);
        of_gate.v[i] = d.v[i] * u.v[i];
    }
    round_eight(&of_up);
    round_eight(&of_gate);
#pragma unroll
    for (int i = 0; i < GATE_EACH; i++)
        of_up.v[i] = d.v[i] * of_up.v[i], of_gate.v[i] = of_gate.v[i] * slope.v[i];
    store_eight(dup, r, c, of_up);
    store_eight(dgate, r, c, of_gate);
}

static bool has_eights(const gpu_array *a) { return a->pitch % 8 == 0 && (uintptr_t)a->data % 16 == 0; }
static bool is_read(const gpu_array *a) { return a->type == GPU_BF16 && a->cols % 8 == 0 && has_eights(a); }
static dim3 gate_grid(const gpu_launch *l, const gpu_array *y) {
    return dim3((unsigned)grid_rows(l, y->rows),
                (unsigned)((y->cols / GATE_EACH + GATE_THREADS - 1) / GATE_THREADS));
}

bool gpu_fuses_gate(const gpu_array *gate, const gpu_array *up, const gpu_array *y) {
    return is_read(gate) && is_read(up) && has_eights(y);
}
int gpu_gate(const gpu_launch *l, const gpu_step *s, int act, const gpu_array *gate, const gpu_array *up,
             const gpu_array *y) {
    run(l, gate_grid(l, y), GATE_THREADS, 0,
        act == GPU_GATE_SILU ? gate_rows<GPU_GATE_SILU> : gate_rows<GPU_GATE_GELU>, *s, *gate, *up, *y);
    return launched();
}
int gpu_gate_back(const gpu_launch *l, const gpu_step *s, int act, const gpu_array *gate, const gpu_array *up,
                  const gpu_array *dy, const gpu_array *dgate, const gpu_array *dup) {
    run(l, gate_grid(l, dup), GATE_THREADS, 0,
        act == GPU_GATE_SILU ? gate_back<GPU_GATE_SILU> : gate_back<GPU_GATE_GELU>, *s, *gate, *up, *dy,
        *dgate, *dup);
    return launched();
}

// ---- rmsnorm and rope of heads ----

// A warp has a head of 32 PER columns, a lane every 32nd: both columns of a pair, which are half a head
// apart.
enum { HEAD_THREADS = 256 };
__device__ inline void store_number(float *to, float x) { *to = x; }
__device__ inline void store_number(uint16_t *to, float x) { *to = f32_to_bf16(x); }
template <int PER, typename Y>
__global__ void __launch_bounds__(HEAD_THREADS)
    norm_rope(gpu_step s, gpu_array x, gpu_weight w, gpu_array table, gpu_array y, float eps, float offset) {
    enum { HALF = 16 * PER };
    begin();
    const int32_t heads = x.cols / (2 * HALF), t = (int32_t)threadIdx.x % 32;
    const int64_t i = (int64_t)blockIdx.x * (HEAD_THREADS / 32) + threadIdx.x / 32, r = i / heads,
                  col = i % heads * (2 * HALF) + t;
    if (r >= live_rows(s, y.rows)) return;
    const uint16_t *from = (const uint16_t *)x.data + r * x.pitch + col;
    const float *turns = (const float *)table.data + r * table.pitch + t;
    Y *to = (Y *)y.data + r * y.pitch + col;
    float v[PER], sum = 0;
#pragma unroll
    for (int k = 0; k < PER; k++) v[k] = bf16_to_f32(from[32 * k]);
#pragma unroll
    for (int k = 0; k < PER; k++) sum = fmaf(v[k], v[k], sum);
    const float scale = 1.0f / sqrtf(warp_sum(sum) / (float)(2 * HALF) + eps);
#pragma unroll
    for (int k = 0; k < PER; k++) v[k] = (v[k] * scale) * (load_element(w.data, w.type, t + 32 * k) + offset);
#pragma unroll
    for (int k = 0; k < PER / 2; k++) {
        const float a = v[k], b = v[k + PER / 2], co = turns[32 * k], sn = turns[32 * k + HALF];
        store_number(to + 32 * k, a * co - b * sn);
        store_number(to + 32 * k + HALF, b * co + a * sn);
    }
}

bool gpu_fuses_norm_rope(const gpu_array *x, const gpu_weight *w, const gpu_array *table) {
    return x->type == GPU_BF16 && table->type == GPU_F32 && w->data && w->C == table->cols &&
           (w->C == 64 || w->C == 128 || w->C == 256);
}
template <typename Y>
static void run_norm_rope(const gpu_launch *l, const gpu_step *s, const gpu_array *x, const gpu_weight *w,
                          const gpu_array *table, const gpu_array *y, float eps, float offset) {
    const int64_t heads = grid_rows(l, y->rows) * (x->cols / w->C);
    run(l, (unsigned)((heads + HEAD_THREADS / 32 - 1) / (HEAD_THREADS / 32)), HEAD_THREADS, 0,
        w->C == 64    ? norm_rope<2, Y>
        : w->C == 128 ? norm_rope<4, Y>
                      : norm_rope<8, Y>,
        *s, *x, *w, *table, *y, eps, offset);
}
int gpu_norm_rope(const gpu_launch *l, const gpu_step *s, const gpu_array *x, const gpu_weight *w,
                  const gpu_array *table, const gpu_array *y, float eps, float offset) {
    if (y->type == GPU_F32) run_norm_rope<float>(l, s, x, w, table, y, eps, offset);
    else run_norm_rope<uint16_t>(l, s, x, w, table, y, eps, offset);
    return launched();
}
