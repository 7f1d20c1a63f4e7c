// Kernels of the ops whose elements are made one by one: embed, gather_rows, slice, pos_scale, pointwise ops.
#include "fragments.cuh"
#include "slopes.cuh"

static inline int launched(void) { return (int)cudaGetLastError(); }
// A grid of threads for each element of y, 256 to a block.
static inline dim3 grid_of(const gpu_launch *l, const gpu_array *y) {
    return dim3((unsigned)grid_rows(l, y->rows), (unsigned)((y->cols + 255) / 256));
}

// ---- embed, gather_rows, slice, pos_scale ----

__global__ void embed(gpu_step s, gpu_weight w, gpu_array y, float scale) {
    begin();
    const int32_t r = (int32_t)blockIdx.x;
    if (r >= live_rows(s, y.rows)) return;
    const int64_t id = s.ids[r];
    for (int32_t c = (int32_t)(blockIdx.y * blockDim.x + threadIdx.x); c < y.cols;
         c += (int32_t)(gridDim.y * blockDim.x)) {
        const float v = w.form == GPU_CODED ? coded_element(w, id, c) : weight_element(w, id, c);
        store_at(y, r, c, v * scale);
    }
}

int gpu_embed(const gpu_launch *l, const gpu_step *s, const gpu_weight *table, const gpu_array *y,
              float scale) {
    run(l, grid_of(l, y), 256, 0, embed, *s, *table, *y, scale);
    return launched();
}

__global__ void gather_rows(gpu_step s, gpu_array x, gpu_array y) {
    begin();
    const int32_t r = (int32_t)blockIdx.x;
    if (r >= live_rows(s, y.rows)) return;
    const int32_t from = s.out_rows[r];
    for (int32_t c = (int32_t)threadIdx.x; c < y.cols; c += (int32_t)blockDim.x)
        store_at(y, r, c, load_at(x, from, c));
}

int gpu_gather_rows(const gpu_launch *l, const gpu_step *s, const gpu_array *x, const gpu_array *y) {
    run(l, (unsigned)grid_rows(l, y->rows), 256, 0, gather_rows, *s, *x, *y);
    return launched();
}

__global__ void slice(gpu_step s, gpu_array x, int64_t at, int64_t cols, int64_t every, gpu_array y) {
    begin();
    const int32_t r = (int32_t)blockIdx.x, c = (int32_t)(blockIdx.y * blockDim.x + threadIdx.x);
    if (r < live_rows(s, y.rows) && c < y.cols)
        store_at(y, r, c, load_at(x, r, c / cols * every + at + c % cols));
}

int gpu_slice(const gpu_launch *l, const gpu_step *s, const gpu_array *x, int64_t at, int64_t cols,
              int64_t every, const gpu_array *y) {
    run(l, grid_of(l, y), 256, 0, slice, *s, *x, at, cols, every, *y);
    return launched();
}

__global__ void pos_scale(gpu_step s, float by, int64_t positions, gpu_array y) {
    begin();
    const int32_t r = (int32_t)(blockIdx.x * blockDim.x + threadIdx.x);
    if (r >= live_rows(s, y.rows)) return;
    const double whole = (double)(float)(1 + (int64_t)s.pos[r] / positions);
    store_at(y, r, 0, 1.0f + by * (float)log(whole));
}

int gpu_pos_scale(const gpu_launch *l, const gpu_step *s, float by, int64_t positions, const gpu_array *y) {
    run(l, (unsigned)((grid_rows(l, y->rows) + 127) / 128), 128, 0, pos_scale, *s, by, positions, *y);
    return launched();
}

// ---- pointwise ops ----

// exp(z) - 1 for z <= 0, xIELU and its slope: ops/pointwise_ops.c.
__device__ inline float expm1_of(float z) {
    float sum = 1;
    if (z <= -0.03f) return ln_expf(z) - 1;
    for (int i = 7; i > 1; i--) sum = 1 + z / (float)i * sum;
    return z * sum;
}
__device__ inline float xielu_of(const gpu_numbers &p, float x) {
    const float eps = p.v[3], linear = p.v[2] * x;
    if (x > 0) return p.v[0] * x * x + linear;
    return p.v[1] * (expm1_of(x < eps ? x : eps) - x) + linear;
}
__device__ inline float xielu_slope(const gpu_numbers &p, float x) {
    if (x > 0) return 2 * p.v[0] * x + p.v[2];
    return p.v[1] * ((x < p.v[3] ? ln_expf(x) : 0) - 1) + p.v[2];
}
__device__ inline float clamped(const gpu_numbers &p, float x) {
    return x < p.v[0] ? p.v[0] : x > p.v[1] ? p.v[1] : x;
}

template <int OP> __device__ float pointwise_of(float a, float b, const gpu_numbers &by) {
    switch (OP) {
    case GPU_ADD: return a + b;
    case GPU_MUL:
    case GPU_SCALE_ROWS: return a * b;
    case GPU_GATED_SILU: return ln_siluf(a) * b;
    case GPU_GATED_GELU: return ln_gelu_tanhf(a) * b;
    case GPU_SILU_BACK: return b * gate_slope<true>(a);
    case GPU_GELU_BACK: return b * gate_slope<false>(a);
    case GPU_RELU2_BACK: return b * (a <= 0 ? 0 : 2 * a);
    case GPU_XIELU_BACK: return b * xielu_slope(by, a);
    case GPU_CLAMP_BACK: return clamped(by, a) == a ? b : 0.0f;
    case GPU_DIV: return __fdiv_rn(a, b);
    case GPU_EXP: return ln_expf(a);
    case GPU_LOG: return (float)log((double)a);
    case GPU_SQRT: return __fsqrt_rn(a);
    case GPU_XIELU: return xielu_of(by, a);
    case GPU_CLAMP: return clamped(by, a);
    case GPU_SILU: return ln_siluf(a);
    case GPU_GELU_TANH: return ln_gelu_tanhf(a);
    case GPU_RELU2: return a <= 0 ? 0 : a * a;
    case GPU_SIGMOID: return 1.0f / (1.0f + ln_expf(-a));
    case GPU_SOFTCAP: return ln_softcapf(a, by.v[0]);
    case GPU_SCALE: return a * by.v[0];
    default: return bf16_to_f32(f32_to_bf16(a));
    }
}

template <int OP, bool FOUR>
__global__ void pointwise(gpu_step s, gpu_array a, gpu_array b, gpu_numbers by, gpu_array y) {
    begin();
    const int32_t r = (int32_t)blockIdx.x,
                  c = (int32_t)(blockIdx.y * blockDim.x + threadIdx.x) * (FOUR ? 4 : 1);
    const bool two = OP <= GPU_DIV, of_row = OP == GPU_SCALE_ROWS;
    if (r >= live_rows(s, y.rows) || c >= y.cols) return;
    if (!FOUR) {
        const float second = two ? load_at(b, r, of_row ? 0 : c) : 0.0f;
        store_at(y, r, c, pointwise_of<OP>(load_at(a, r, c), second, by));
        return;
    }
    float4 x = load_four(a, r, c), z = make_float4(0, 0, 0, 0);
    if (of_row) z.x = z.y = z.z = z.w = load_at(b, r, 0);
    else if (two) z = load_four(b, r, c);
    x.x = pointwise_of<OP>(x.x, z.x, by), x.y = pointwise_of<OP>(x.y, z.y, by);
    x.z = pointwise_of<OP>(x.z, z.z, by), x.w = pointwise_of<OP>(x.w, z.w, by);
    store_four(y, r, c, x);
}

int gpu_pointwise(const gpu_launch *l, const gpu_step *s, int op, const gpu_array *a, const gpu_array *b,
                  gpu_numbers by, const gpu_array *y) {
    typedef void kernel(gpu_step, gpu_array, gpu_array, gpu_numbers, gpu_array);
#define BOTH(op) \
    { pointwise<op, false>, pointwise<op, true> }
    static kernel *const kernels[][2] = {
        BOTH(GPU_ADD),        BOTH(GPU_MUL),        BOTH(GPU_GATED_SILU), BOTH(GPU_GATED_GELU),
        BOTH(GPU_SCALE_ROWS), BOTH(GPU_SILU_BACK),  BOTH(GPU_GELU_BACK),  BOTH(GPU_RELU2_BACK),
        BOTH(GPU_XIELU_BACK), BOTH(GPU_CLAMP_BACK), BOTH(GPU_DIV),        BOTH(GPU_SILU),
        BOTH(GPU_GELU_TANH),  BOTH(GPU_RELU2),      BOTH(GPU_SIGMOID),    BOTH(GPU_SOFTCAP),
        BOTH(GPU_SCALE),      BOTH(GPU_XIELU),      BOTH(GPU_CLAMP),      BOTH(GPU_EXP),
        BOTH(GPU_LOG),        BOTH(GPU_SQRT),       BOTH(GPU_CONVERT)};
#undef BOTH
    const bool pairs = b && op != GPU_SCALE_ROWS,
               four = y->cols % 4 == 0 && has_fours(a) && has_fours(y) && (!pairs || has_fours(b));
    const int32_t threads = four ? y->cols / 4 : y->cols;
    const dim3 grid((unsigned)grid_rows(l, y->rows), (unsigned)((threads + 255) / 256));
    run(l, grid, 256, 0, kernels[op][four], *s, *a, b ? *b : *a, by, *y);
    return launched();
}
