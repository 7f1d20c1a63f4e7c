// The cross-entropy of a product with targets, and its slope with respect to x, for some rows at a time:
//
//     logits = x w^T                          gpu_linear, f32 [rows, V] in working memory
//     loss   = log sum exp(logit - m) + (m - logit[target]), and in place of the logits
//              softmax - 1 at the target, in the type of x. A thread's sum is multiplied when its maximum
//              grows, so that logits are read twice
//     slope  = that times w                   gpu_linear_back
//
// The bits of a row depend neither on the other rows nor on how many are computed at a time.
#include "cuda_common.cuh"
#include "cuda_train_kernels.h"

enum { CE_THREADS = 512, CE_WARPS = CE_THREADS / 32, CE_EACH = 8 };

__device__ inline float ce_larger(float a, float b) { return b <= a || a != a ? a : b; }
template <bool MAX> __device__ inline float ce_reduce(float x) {
    __shared__ float of_warp[CE_WARPS];
    for (int m = 16; m > 0; m /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, x, m);
        x = MAX ? ce_larger(x, other) : x + other;
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = x;
    __syncthreads();
    float all = of_warp[0];
    for (int i = 1; i < CE_WARPS; i++) all = MAX ? ce_larger(all, of_warp[i]) : all + of_warp[i];
    return all;
}

__device__ inline float minus_infinity(void) { return __uint_as_float(0xff800000u); }
// What a sum of exponentials less `old` is multiplied with when `top` takes its place; no sum: 0.
__device__ inline float factor_of(float old, float top) {
    return old == minus_infinity() ? 0.0f : ln_expf(old - top);
}

// A block has row r of the logits, row row0 + r of the values. Elements of bf16 take the first half of the
// bytes of their row, so the block reads a piece of it before it writes that piece.
__global__ void __launch_bounds__(CE_THREADS)
    entropy_rows(gpu_step s, gpu_array logits, gpu_array x, const int32_t *targets, int32_t row0,
                 gpu_array loss, bool slope) {
    begin();
    const int32_t r = (int32_t)blockIdx.x, V = logits.cols;
    if (row0 + r >= live_rows(s, loss.rows)) return;
    const float *in = (const float *)logits.data + r * logits.pitch;
    const int32_t target = targets[row0 + r];
    float own = minus_infinity(), sum = 0; // of this thread
    for (int32_t from = (int32_t)threadIdx.x; from < V; from += CE_THREADS * CE_EACH) {
        float v[CE_EACH], top = own;
#pragma unroll
        for (int i = 0; i < CE_EACH; i++)
            v[i] = from + i * CE_THREADS < V ? in[from + i * CE_THREADS] : minus_infinity();
#pragma unroll
        for (int i = 0; i < CE_EACH; i++) top = ce_larger(top, v[i]);
        if (top != own) sum = sum * factor_of(own, top), own = top;
#pragma unroll
        for (int i = 0; i < CE_EACH; i++)
            if (from + i * CE_THREADS < V) sum = sum + ln_expf(v[i] - own);
    }
    const float most = ce_reduce<true>(own);
    sum = ce_reduce<false>(sum * factor_of(own, most));
    if (threadIdx.x == 0)
        store_at(loss, row0 + r, 0, target < 0 ? 0.0f : (float)log((double)sum) + (most - in[target]));
    if (!slope) return;
    __syncthreads();
    const float by = 1.0f / sum;
    for (int32_t from = 0; from < logits.pitch; from += CE_THREADS * CE_EACH) {
        float p[CE_EACH];
#pragma unroll
        for (int i = 0; i < CE_EACH; i++) {
            const int32_t c = from + i * CE_THREADS + (int32_t)threadIdx.x;
            p[i] = c < V && target >= 0 ? ln_expf(in[c] - most) * by - (c == target ? 1.0f : 0.0f) : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < CE_EACH; i++) {
            const int32_t c = from + i * CE_THREADS + (int32_t)threadIdx.x;
            if (c < (x.type == GPU_F32 ? V : logits.pitch))
                store_element((char *)logits.data + r * logits.pitch * 4, x.type, c, p[i]);
        }
    }
}

int32_t gpu_cross_entropy_rows(int64_t rows, int64_t V) {
    const int64_t tile = 128, fits = ((int64_t)640 << 20) / (V * 4) / tile * tile,
                  most = fits < tile ? tile : fits;
    return (int32_t)(rows < most ? rows : most);
}

static gpu_array rows_from(const gpu_array *a, int32_t row0, int32_t n) {
    gpu_array part = *a;
    part.data = (char *)a->data + row0 * a->pitch * (a->type == GPU_F32 ? 4 : 2);
    part.rows = n;
    return part;
}

int gpu_linear_cross_entropy(const gpu_launch *l, const gpu_step *s, const gpu_cross_entropy *p) {
    const int32_t rows = grid_rows(l, p->x.rows);
    for (int32_t row0 = 0; row0 < rows; row0 += p->rows) {
        const int32_t n = rows - row0 < p->rows ? rows - row0 : p->rows;
        gpu_array logits = {};
        logits.data = p->logits, logits.pitch = (p->w.D + GPU_LOGITS - 1) / GPU_LOGITS * GPU_LOGITS,
        logits.cols = (int32_t)p->w.D;
        logits.rows = n, logits.type = GPU_F32;
        gpu_product product = {};
        product.x = rows_from(&p->x, row0, n), product.y[0] = logits, product.w[0] = p->w;
        product.n = 1, product.gate = GPU_NO_GATE;
        int error = gpu_linear(l, s, &product);
        if (error) return error;
        const bool slope = p->slope.data != NULL;
        run(l, (unsigned)n, CE_THREADS, 0, entropy_rows, *s, logits, p->x, p->targets, row0, p->loss, slope);
        error = (int)cudaGetLastError();
        if (error || !slope) {
            if (error) return error;
            continue;
        }
        gpu_array dy = logits;
        dy.type = p->x.type;
        if (dy.type != GPU_F32) dy.cols = (int32_t)dy.pitch, dy.pitch *= 2;
        const gpu_array slopes = rows_from(&p->slope, row0, n);
        error = gpu_linear_back(l, s, &dy, &p->w, &slopes, NULL, p->scratch, p->scratch_bytes);
        if (error) return error;
    }
    return 0;
}
