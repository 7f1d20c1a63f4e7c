// Ops of training with sums over rows or columns: sum, softmax, nll, rmsnorm, and their gradients.
//
// A row of x belongs to a block, or a group of at most 256 columns to a warp. Thread t adds columns t, t +
// THREADS, ...; a tree adds the lanes of a warp, and the warps' sums are added in ascending order.
#include "cuda_common.cuh"
#include "cuda_train_kernels.h"

static inline int launched(void) { return (int)cudaGetLastError(); }
static inline unsigned blocks_of(int64_t n, int64_t per_block) {
    return (unsigned)((n + per_block - 1) / per_block);
}

enum { ROW_THREADS = 256, ROW_WARPS = ROW_THREADS / 32 };

// The sum of the values of all threads of a block; all of them get it.
__device__ inline float block_sum(float x) {
    __shared__ float of_warp[ROW_WARPS];
    x = warp_sum(x);
    __syncthreads();
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = x;
    __syncthreads();
    float sum = of_warp[0];
    for (int i = 1; i < ROW_WARPS; i++) sum = sum + of_warp[i];
    return sum;
}
// The sum over a group of columns, which THREADS threads have: a warp, or the block.
template <int THREADS> __device__ inline float group_sum(float x) {
    return THREADS == 32 ? warp_sum(x) : block_sum(x);
}
// The larger of two numbers, NaN if one of them is.
__device__ inline float larger(float a, float b) { return b <= a || a != a ? a : b; }
__device__ inline float block_max(float x) {
    __shared__ float of_warp[ROW_WARPS];
    for (int m = 16; m > 0; m /= 2) x = larger(x, __shfl_xor_sync(0xffffffffu, x, m));
    __syncthreads();
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = x;
    __syncthreads();
    float most = of_warp[0];
    for (int i = 1; i < ROW_WARPS; i++) most = larger(most, of_warp[i]);
    return most;
}

// ---- sum ----

// A warp has a row.
__global__ void sum_columns(gpu_step s, gpu_array x, gpu_array y) {
    begin();
    const int32_t lane = (int32_t)threadIdx.x % 32;
    const int64_t r = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (r >= live_rows(s, x.rows)) return;
    const float sum = row_sum(x, r, lane);
    if (lane == 0) store_at(y, r, 0, sum);
}
// A thread has a column.
__global__ void sum_rows(gpu_step s, gpu_array x, gpu_array y) {
    begin();
    const int32_t c = (int32_t)(blockIdx.x * blockDim.x + threadIdx.x), rows = live_rows(s, x.rows);
    if (c >= x.cols) return;
    float sum = 0;
#pragma unroll 16
    for (int32_t r = 0; r < rows; r++) sum = sum + load_at(x, r, c);
    store_at(y, 0, c, sum);
}

int gpu_sum(const gpu_launch *l, const gpu_step *s, int kind, const gpu_array *x, float *row_sums,
            const gpu_array *y) {
    const unsigned blocks = blocks_of(grid_rows(l, x->rows), 4);
    if (kind == GPU_SUM_ROWS) run(l, blocks_of(x->cols, 64), 64, 0, sum_rows, *s, *x, *y);
    else if (kind == GPU_SUM_COLS) run(l, blocks, 128, 0, sum_columns, *s, *x, *y);
    else {
        gpu_array sums = {};
        sums.data = row_sums, sums.pitch = sums.cols = 1, sums.rows = x->rows;
        run(l, blocks, 128, 0, sum_columns, *s, *x, sums);
        run(l, 1, 64, 0, sum_rows, *s, sums, *y);
    }
    return launched();
}

// ---- softmax and nll ----

// The largest element of row r, and the sum of exponentials.
struct row_exponentials {
    float most, sum;
    __device__ row_exponentials(const gpu_array &x, int32_t r) {
        most = __uint_as_float(0xff800000u);
        for (int32_t c = (int32_t)threadIdx.x; c < x.cols; c += ROW_THREADS)
            most = larger(most, load_at(x, r, c));
        most = block_max(most);
        sum = 0;
        for (int32_t c = (int32_t)threadIdx.x; c < x.cols; c += ROW_THREADS)
            sum = sum + ln_expf(load_at(x, r, c) - most);
        sum = block_sum(sum);
    }
};

__global__ void softmax(gpu_step s, gpu_array x, gpu_array y) {
    begin();
    const int32_t r = (int32_t)blockIdx.x;
    if (r >= live_rows(s, y.rows)) return;
    const row_exponentials e(x, r);
    for (int32_t c = (int32_t)threadIdx.x; c < x.cols; c += ROW_THREADS)
        store_at(y, r, c, ln_expf(load_at(x, r, c) - e.most) / e.sum);
}
int gpu_softmax(const gpu_launch *l, const gpu_step *s, const gpu_array *x, const gpu_array *y) {
    run(l, (unsigned)grid_rows(l, y->rows), ROW_THREADS, 0, softmax, *s, *x, *y);
    return launched();
}

__global__ void softmax_back(gpu_step s, gpu_array y, gpu_array dy, gpu_array dx) {
    begin();
    const int32_t r = (int32_t)blockIdx.x;
    if (r >= live_rows(s, dx.rows)) return;
    float sum = 0;
    for (int32_t c = (int32_t)threadIdx.x; c < y.cols; c += ROW_THREADS)
        sum = fmaf(load_at(y, r, c), load_at(dy, r, c), sum);
    sum = block_sum(sum);
    for (int32_t c = (int32_t)threadIdx.x; c < y.cols; c += ROW_THREADS)
        store_at(dx, r, c, load_at(y, r, c) * (load_at(dy, r, c) - sum));
}
int gpu_softmax_back(const gpu_launch *l, const gpu_step *s, const gpu_array *y, const gpu_array *dy,
                     const gpu_array *dx) {
    run(l, (unsigned)grid_rows(l, dx->rows), ROW_THREADS, 0, softmax_back, *s, *y, *dy, *dx);
    return launched();
}

__global__ void nll(gpu_step s, gpu_array x, const int32_t *targets, gpu_array y) {
    begin();
    const int32_t r = (int32_t)blockIdx.x;
    if (r >= live_rows(s, y.rows)) return;
    const int32_t target = targets[r];
    const row_exponentials e(x, r);
    if (threadIdx.x == 0)
        store_at(y, r, 0, target < 0 ? 0.0f : (float)log((double)e.sum) + (e.most - load_at(x, r, target)));
}
int gpu_nll(const gpu_launch *l, const gpu_step *s, const gpu_array *x, const int32_t *targets,
            const gpu_array *y) {
    run(l, (unsigned)grid_rows(l, y->rows), ROW_THREADS, 0, nll, *s, *x, targets, *y);
    return launched();
}

__global__ void nll_back(gpu_step s, gpu_array x, const int32_t *targets, gpu_array dy, gpu_array dx) {
    begin();
    const int32_t r = (int32_t)blockIdx.x;
    if (r >= live_rows(s, dx.rows)) return;
    const int32_t target = targets[r];
    const float slope = load_at(dy, r, 0);
    const row_exponentials e(x, r);
    for (int32_t c = (int32_t)threadIdx.x; c < x.cols; c += ROW_THREADS)
        store_at(dx, r, c,
                 target < 0
                     ? 0.0f
                     : slope * (ln_expf(load_at(x, r, c) - e.most) / e.sum - (c == target ? 1.0f : 0.0f)));
}
int gpu_nll_back(const gpu_launch *l, const gpu_step *s, const gpu_array *x, const int32_t *targets,
                 const gpu_array *dy, const gpu_array *dx) {
    run(l, (unsigned)grid_rows(l, dx->rows), ROW_THREADS, 0, nll_back, *s, *x, targets, *dy, *dx);
    return launched();
}

// ---- rmsnorm ----

// The group of columns that THREADS threads have, of rows of several.
template <int THREADS> struct norm_group {
    int64_t r;
    int32_t t, C, col0;
    __device__ norm_group(const gpu_array &x, int64_t width)
        : t((int32_t)(threadIdx.x % THREADS)), C((int32_t)width) {
        const int32_t groups = x.cols / C;
        const int64_t i = (int64_t)blockIdx.x * (ROW_THREADS / THREADS) + threadIdx.x / THREADS;
        r = i / groups, col0 = (int32_t)(i % groups) * C;
    }
    // 1 / sqrt(mean(x^2) + eps); a group that does not exist takes part in the sum.
    __device__ float inverse_rms(const gpu_array &x, bool live, float eps) const {
        float sum = 0;
        for (int32_t c = t; live && c < C; c += THREADS) {
            const float v = load_at(x, r, col0 + c);
            sum = fmaf(v, v, sum);
        }
        return 1.0f / sqrtf(group_sum<THREADS>(sum) / (float)C + eps);
    }
};

template <int THREADS>
__global__ void rmsnorm_back(gpu_step s, gpu_array x, gpu_weight w, gpu_array dy, gpu_array dx, float eps,
                             float offset) {
    begin();
    const norm_group<THREADS> g(x, w.C);
    const bool live = g.r < live_rows(s, dx.rows);
    const auto slope = [&](int32_t c) {
        const float d = load_at(dy, g.r, g.col0 + c);
        return w.data ? d * (load_element(w.data, w.type, c) + offset) : d;
    };
    const float scale = g.inverse_rms(x, live, eps);
    float sum = 0;
    for (int32_t c = g.t; live && c < g.C; c += THREADS)
        sum = fmaf(slope(c), load_at(x, g.r, g.col0 + c), sum);
    const float mean = group_sum<THREADS>(sum) / (float)g.C * scale * scale;
    for (int32_t c = g.t; live && c < g.C; c += THREADS)
        store_at(dx, g.r, g.col0 + c, scale * (slope(c) - load_at(x, g.r, g.col0 + c) * mean));
}
// The gradient of rope of whole heads of C columns whose pairs are half a head apart, of a lane's four, as
// rope_fours has it. table: of row r.
__device__ inline float4 turned_back(const float4 &d, const gpu_array &table, int64_t r, int32_t c,
                                     int32_t C) {
    const int32_t half = C / 2, i = c % half;
    const float4 co = load_four(table, r, i), sn = load_four(table, r, i + half);
    const auto turn = [&](float x, float cosine, float sine) {
        const float other = __shfl_xor_sync(0xffffffffu, x, half / 4);
        return c < half ? x * cosine + other * sine : x * cosine - other * sine;
    };
    return make_float4(turn(d.x, co.x, sn.x), turn(d.y, co.y, sn.y), turn(d.z, co.z, sn.z),
                       turn(d.w, co.w, sn.w));
}
// The same for groups of up to 128 columns: a lane of the warp of a group has four. table: dy is that of
// rope, whose gradient comes first. Without data there is no rope.
__global__ void __launch_bounds__(ROW_THREADS)
    rmsnorm_back_heads(gpu_step s, gpu_array x, gpu_weight w, gpu_array dy, gpu_array table, gpu_array dx,
                       float eps, float offset) {
    begin();
    const norm_group<32> g(x, w.C);
    const int32_t c = 4 * g.t;
    const int32_t n_rows = live_rows(s, dx.rows);
    const bool live = g.r < n_rows && c < g.C;
    float4 v = make_float4(0, 0, 0, 0), d = v;
    if (live) v = load_four(x, g.r, g.col0 + c), d = load_four(dy, g.r, g.col0 + c);
    if (table.data) d = turned_back(d, table, g.r < n_rows ? g.r : 0, c, (int32_t)g.C);
    if (live && w.data) {
        d.x *= load_element(w.data, w.type, c) + offset, d.y *= load_element(w.data, w.type, c + 1) + offset;
        d.z *= load_element(w.data, w.type, c + 2) + offset,
            d.w *= load_element(w.data, w.type, c + 3) + offset;
    }
    const float squares = fmaf(v.w, v.w, fmaf(v.z, v.z, fmaf(v.y, v.y, v.x * v.x))),
                along = fmaf(d.w, v.w, fmaf(d.z, v.z, fmaf(d.y, v.y, d.x * v.x)));
    const float scale = 1.0f / sqrtf(warp_sum(squares) / (float)g.C + eps);
    const float mean = warp_sum(along) / (float)g.C * scale * scale;
    if (live)
        store_four(dx, g.r, g.col0 + c,
                   make_float4(scale * (d.x - v.x * mean), scale * (d.y - v.y * mean),
                               scale * (d.z - v.z * mean), scale * (d.w - v.w * mean)));
}

// The same for rows of one group of up to 1024 PER columns, a block for each, which reads a row once.
template <int PER>
__global__ void __launch_bounds__(ROW_THREADS)
    rmsnorm_back_wide(gpu_step s, gpu_array x, gpu_weight w, gpu_array dy, gpu_array dx, float eps,
                      float offset, gpu_array other, gpu_array also) {
    begin();
    const int64_t r = blockIdx.x;
    const bool live = r < live_rows(s, dx.rows);
    const int32_t C = x.cols;
    float4 v[PER], slope[PER], add[PER];
    float squares = 0, along = 0;
#pragma unroll
    for (int i = 0; i < PER; i++) {
        const int32_t c = ((int32_t)threadIdx.x + i * ROW_THREADS) * 4;
        v[i] = slope[i] = add[i] = make_float4(0, 0, 0, 0);
        if (!live || c >= C) continue;
        v[i] = load_four(x, r, c), slope[i] = load_four(dy, r, c);
        if (other.data) add[i] = load_four(other, r, c);
        if (!w.data) continue;
        slope[i].x *= load_element(w.data, w.type, c) + offset;
        slope[i].y *= load_element(w.data, w.type, c + 1) + offset;
        slope[i].z *= load_element(w.data, w.type, c + 2) + offset;
        slope[i].w *= load_element(w.data, w.type, c + 3) + offset;
    }
#pragma unroll
    for (int i = 0; i < PER; i++) {
        squares = fmaf(v[i].x, v[i].x, squares), squares = fmaf(v[i].y, v[i].y, squares);
        squares = fmaf(v[i].z, v[i].z, squares), squares = fmaf(v[i].w, v[i].w, squares);
        along = fmaf(slope[i].x, v[i].x, along), along = fmaf(slope[i].y, v[i].y, along);
        along = fmaf(slope[i].z, v[i].z, along), along = fmaf(slope[i].w, v[i].w, along);
    }
    const float scale = 1.0f / sqrtf(group_sum<ROW_THREADS>(squares) / (float)C + eps);
    const float mean = group_sum<ROW_THREADS>(along) / (float)C * scale * scale;
#pragma unroll
    for (int i = 0; i < PER; i++) {
        const int32_t c = ((int32_t)threadIdx.x + i * ROW_THREADS) * 4;
        if (!live || c >= C) continue;
        float4 y = make_float4(scale * (slope[i].x - v[i].x * mean), scale * (slope[i].y - v[i].y * mean),
                               scale * (slope[i].z - v[i].z * mean), scale * (slope[i].w - v[i].w * mean));
        if (other.data) y = make_float4(add[i].x + y.x, add[i].y + y.y, add[i].z + y.z, add[i].w + y.w);
        store_four(dx, r, c, y);
        if (also.data) store_four(also, r, c, y);
    }
}

static bool is_wide(const gpu_array *x, const gpu_weight *w, const gpu_array *dy, const gpu_array *dx) {
    return w->C > 256 && w->C <= 4096 && w->C % 4 == 0 && x->cols == w->C && has_fours(x) && has_fours(dy) &&
           has_fours(dx);
}
bool gpu_adds_rmsnorm_back(const gpu_array *x, const gpu_weight *w, const gpu_array *dy,
                           const gpu_array *other, const gpu_array *dx) {
    return is_wide(x, w, dy, dx) && has_fours(other);
}
int gpu_rmsnorm_back(const gpu_launch *l, const gpu_step *s, const gpu_array *x, const gpu_weight *w,
                     const gpu_array *dy, const gpu_array *dx, float eps, float offset,
                     const gpu_array *other, const gpu_array *also) {
    const int64_t groups = (int64_t)grid_rows(l, dx->rows) * (x->cols / w->C);
    const bool fours = w->C % 4 == 0 && has_fours(x) && has_fours(dy) && has_fours(dx);
    if (is_wide(x, w, dy, dx)) {
        run(l, (unsigned)groups, ROW_THREADS, 0,
            w->C <= 1024   ? rmsnorm_back_wide<1>
            : w->C <= 2048 ? rmsnorm_back_wide<2>
                           : rmsnorm_back_wide<4>,
            *s, *x, *w, *dy, *dx, eps, offset, *other, *also);
    } else if (fours && w->C <= 128)
        run(l, blocks_of(groups, ROW_WARPS), ROW_THREADS, 0, rmsnorm_back_heads, *s, *x, *w, *dy, gpu_array{},
            *dx, eps, offset);
    else if (w->C <= 256)
        run(l, blocks_of(groups, ROW_WARPS), ROW_THREADS, 0, rmsnorm_back<32>, *s, *x, *w, *dy, *dx, eps,
            offset);
    else run(l, (unsigned)groups, ROW_THREADS, 0, rmsnorm_back<256>, *s, *x, *w, *dy, *dx, eps, offset);
    return launched();
}

bool gpu_fuses_rope_norm_back(const gpu_array *x, const gpu_weight *w, const gpu_array *dy,
                              const gpu_array *table, const gpu_array *dx) {
    return (w->C == 64 || w->C == 128) && table->cols == w->C && has_fours(x) && has_fours(dy) &&
           has_fours(table) && has_fours(dx);
}
int gpu_rope_norm_back(const gpu_launch *l, const gpu_step *s, const gpu_array *x, const gpu_weight *w,
                       const gpu_array *dy, const gpu_array *table, const gpu_array *dx, float eps,
                       float offset) {
    const int64_t groups = (int64_t)grid_rows(l, dx->rows) * (x->cols / w->C);
    run(l, blocks_of(groups, ROW_WARPS), ROW_THREADS, 0, rmsnorm_back_heads, *s, *x, *w, *dy, *table, *dx,
        eps, offset);
    return launched();
}

// rmsnorm_dw: the scales of all groups; then sums of dy x scale over pieces of 64 groups, and of the pieces.
enum { DW_PIECE = 64 };
template <int THREADS>
__global__ void norm_scales(gpu_step s, gpu_array x, int64_t C, float eps, float *scales) {
    begin();
    const norm_group<THREADS> g(x, C);
    const bool live = g.r < live_rows(s, x.rows);
    const float scale = g.inverse_rms(x, live, eps);
    if (live && g.t == 0) scales[g.r * (x.cols / C) + g.col0 / C] = scale;
}
__global__ void norm_pieces(gpu_step s, gpu_array x, int64_t C, gpu_array dy, const float *scales,
                            float *partial) {
    begin();
    const int32_t c = (int32_t)(blockIdx.y * blockDim.x + threadIdx.x), groups = (int32_t)(x.cols / C);
    const int64_t from = (int64_t)blockIdx.x * DW_PIECE, all = (int64_t)live_rows(s, x.rows) * groups,
                  end = from + DW_PIECE < all ? from + DW_PIECE : all;
    if (c >= C || from >= all) return;
    float sum = 0;
#pragma unroll 8
    for (int64_t i = from; i < end; i++) {
        const int64_t r = i / groups, at = i % groups * C + c;
        sum = fmaf(load_at(dy, r, at), load_at(x, r, at) * scales[i], sum);
    }
    partial[blockIdx.x * C + c] = sum;
}
__global__ void add_norm_pieces(gpu_step s, gpu_array x, int64_t C, const float *partial, gpu_array dw) {
    begin();
    const int32_t c = (int32_t)(blockIdx.x * blockDim.x + threadIdx.x);
    const int64_t all = (int64_t)live_rows(s, x.rows) * (x.cols / C),
                  pieces = (all + DW_PIECE - 1) / DW_PIECE;
    if (c >= C) return;
    float sum = 0;
#pragma unroll 16
    for (int64_t i = 0; i < pieces; i++) sum = sum + partial[i * C + c];
    store_at(dw, 0, c, sum);
}
size_t gpu_rmsnorm_dw_scratch(int64_t groups, int64_t C) {
    return (size_t)(groups + (groups + DW_PIECE - 1) / DW_PIECE * C) * sizeof(float);
}
int gpu_rmsnorm_dw(const gpu_launch *l, const gpu_step *s, const gpu_array *x, int64_t C, const gpu_array *dy,
                   const gpu_array *dw, float eps, float *scratch) {
    const int64_t groups = (int64_t)grid_rows(l, x->rows) * (x->cols / C);
    float *scales = scratch, *partial = scratch + groups;
    if (C <= 256)
        run(l, blocks_of(groups, ROW_WARPS), ROW_THREADS, 0, norm_scales<32>, *s, *x, C, eps, scales);
    else run(l, (unsigned)groups, ROW_THREADS, 0, norm_scales<256>, *s, *x, C, eps, scales);
    run(l, dim3(blocks_of(groups, DW_PIECE), blocks_of(C, 128)), 128, 0, norm_pieces, *s, *x, C, *dy,
        (const float *)scales, partial);
    run(l, blocks_of(C, 64), 64, 0, add_norm_pieces, *s, *x, C, (const float *)partial, *dw);
    return launched();
}
