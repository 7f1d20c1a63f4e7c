// Kernels of the ops whose elements are made one by one: embed, gather_rows, slice, pos_scale, pointwise ops.
#include "fragments.cuh"

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

__global__ void slice(gpu_step s, gpu_array x, gpu_columns from, gpu_array y) {
    begin();
    const int32_t r = (int32_t)blockIdx.x, c = (int32_t)(blockIdx.y * blockDim.x + threadIdx.x);
    if (r < live_rows(s, y.rows) && c < y.cols)
        store_at(y, r, c, load_at(x, r, c / from.cols * from.every + from.at + c % from.cols));
}

int gpu_slice(const gpu_launch *l, const gpu_step *s, const gpu_array *x, gpu_columns from,
              const gpu_array *y) {
    run(l, grid_of(l, y), 256, 0, slice, *s, *x, from, *y);
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

// exp(z) - 1 for z <= 0, as the reference computes it (ops/pointwise_ops.c).
__device__ inline float expm1_of(float z) {
    float sum = 1;
    if (z <= -0.03f) return ln_expf(z) - 1.0f;
    for (int i = 7; i > 1; i--) sum = 1.0f + z / (float)i * sum;
    return z * sum;
}
__device__ inline float xielu(float x, const gpu_numbers &n) {
    const float alpha_p = n.by[0], alpha_n = n.by[1], eps = n.by[3], linear = n.by[2] * x;
    if (x > 0) return alpha_p * x * x + linear;
    return alpha_n * (expm1_of(x < eps ? x : eps) - x) + linear;
}
template <int OP> __device__ float pointwise_of(float a, float b, const gpu_numbers &n) {
    const float by = n.by[0];
    switch (OP) {
    case GPU_ADD: return a + b;
    case GPU_MUL:
    case GPU_SCALE_ROWS: return a * b;
    case GPU_GATED_SILU: return ln_siluf(a) * b;
    case GPU_GATED_GELU: return ln_gelu_tanhf(a) * b;
    case GPU_SILU: return ln_siluf(a);
    case GPU_GELU_TANH: return ln_gelu_tanhf(a);
    case GPU_RELU2: return a <= 0 ? 0 : a * a;
    case GPU_SIGMOID: return 1.0f / (1.0f + ln_expf(-a));
    case GPU_SOFTCAP: return ln_softcapf(a, by);
    case GPU_SCALE: return a * by;
    case GPU_CLAMP: return a < by ? by : a > n.by[1] ? n.by[1] : a;
    case GPU_XIELU: return xielu(a, n);
    default: return bf16_to_f32(f32_to_bf16(a));
    }
}

template <int OP>
__global__ void pointwise(gpu_step s, gpu_array a, gpu_array b, gpu_numbers by, gpu_array y) {
    begin();
    const int32_t r = (int32_t)blockIdx.x, c = (int32_t)(blockIdx.y * blockDim.x + threadIdx.x);
    const bool two = OP <= GPU_SCALE_ROWS;
    if (r >= live_rows(s, y.rows) || c >= y.cols) return;
    const float second = two ? load_at(b, r, OP == GPU_SCALE_ROWS ? 0 : c) : 0.0f;
    store_at(y, r, c, pointwise_of<OP>(load_at(a, r, c), second, by));
}

int gpu_pointwise(const gpu_launch *l, const gpu_step *s, int op, const gpu_array *a, const gpu_array *b,
                  gpu_numbers by, const gpu_array *y) {
    typedef void kernel(gpu_step, gpu_array, gpu_array, gpu_numbers, gpu_array);
    static kernel *const kernels[] = {
        pointwise<GPU_ADD>,        pointwise<GPU_MUL>,        pointwise<GPU_GATED_SILU>,
        pointwise<GPU_GATED_GELU>, pointwise<GPU_SCALE_ROWS>, pointwise<GPU_SILU>,
        pointwise<GPU_GELU_TANH>,  pointwise<GPU_RELU2>,      pointwise<GPU_SIGMOID>,
        pointwise<GPU_SOFTCAP>,    pointwise<GPU_SCALE>,      pointwise<GPU_CLAMP>,
        pointwise<GPU_XIELU>,      pointwise<GPU_CONVERT>};
    run(l, grid_of(l, y), 256, 0, kernels[op], *s, *a, b ? *b : *a, by, *y);
    return launched();
}
