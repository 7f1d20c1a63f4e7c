// Ops of training whose elements are made one by one: load, spread, slice_back, reshape, scatter_rows,
// embed_back, dropout.
#include "cuda_common.cuh"
#include "cuda_train_kernels.h"

static inline int launched(void) { return (int)cudaGetLastError(); }
// A grid of threads for each element of y, 256 to a block.
static inline dim3 grid_of(const gpu_launch *l, const gpu_array *y) {
    return dim3((unsigned)grid_rows(l, y->rows), (unsigned)((y->cols + 255) / 256));
}
// Row and column of a thread of grid_of.
struct element {
    int32_t r, c;
    bool exists;
    __device__ element(const gpu_step &s, const gpu_array &y)
        : r((int32_t)blockIdx.x), c((int32_t)(blockIdx.y * blockDim.x + threadIdx.x)),
          exists(r < live_rows(s, y.rows) && c < y.cols) {}
};

__global__ void load(gpu_step s, gpu_array x, gpu_array y) {
    begin();
    const element e(s, y);
    if (e.exists) store_at(y, e.r, e.c, load_at(x, e.r, e.c));
}
int gpu_load(const gpu_launch *l, const gpu_step *s, const gpu_array *x, const gpu_array *y) {
    run(l, grid_of(l, y), 256, 0, load, *s, *x, *y);
    return launched();
}

__global__ void spread(gpu_step s, gpu_array x, float by, gpu_array y) {
    begin();
    const element e(s, y);
    if (!e.exists) return;
    const int32_t r = x.rows == 1 ? 0 : e.r, c = x.cols == 1 ? 0 : e.c;
    store_at(y, e.r, e.c, x.data ? load_at(x, r, c) * by : by);
}
int gpu_spread(const gpu_launch *l, const gpu_step *s, const gpu_array *x, float by, const gpu_array *y) {
    run(l, grid_of(l, y), 256, 0, spread, *s, x ? *x : gpu_array{}, by, *y);
    return launched();
}

__global__ void slice_back(gpu_step s, gpu_array dy, int64_t at, gpu_array dx) {
    begin();
    const element e(s, dx);
    if (e.exists) store_at(dx, e.r, e.c, e.c >= at && e.c < at + dy.cols ? load_at(dy, e.r, e.c - at) : 0.0f);
}
int gpu_slice_back(const gpu_launch *l, const gpu_step *s, const gpu_array *dy, int64_t at,
                   const gpu_array *dx) {
    run(l, grid_of(l, dx), 256, 0, slice_back, *s, *dy, at, *dx);
    return launched();
}

__global__ void reshape(gpu_step s, gpu_array x, gpu_array y) {
    begin();
    const element e(s, y);
    if (!e.exists) return;
    const int64_t at = (int64_t)e.r * y.cols + e.c;
    store_at(y, e.r, e.c, load_at(x, (int32_t)(at / x.cols), (int32_t)(at % x.cols)));
}
int gpu_reshape(const gpu_launch *l, const gpu_step *s, const gpu_array *x, const gpu_array *y) {
    run(l, grid_of(l, y), 256, 0, reshape, *s, *x, *y);
    return launched();
}

// ---- scatter_rows ----

// A block has a row of y. Output rows ascend, so a binary search finds the row of x that goes there.
__global__ void scatter_rows(gpu_step s, gpu_array x, gpu_array y) {
    begin();
    const int32_t r = (int32_t)blockIdx.x;
    if (r >= live_rows(s, y.rows)) return;
    int32_t lo = 0, hi = live_rows(s, x.rows);
    while (lo < hi) {
        const int32_t mid = (lo + hi) / 2;
        if (s.out_rows[mid] < r) lo = mid + 1;
        else hi = mid;
    }
    const bool is_output = lo < live_rows(s, x.rows) && s.out_rows[lo] == r;
    for (int32_t c = (int32_t)threadIdx.x; c < y.cols; c += (int32_t)blockDim.x)
        store_at(y, r, c, is_output ? load_at(x, lo, c) : 0.0f);
}
int gpu_scatter_rows(const gpu_launch *l, const gpu_step *s, const gpu_array *x, const gpu_array *y) {
    run(l, (unsigned)grid_rows(l, y->rows), 256, 0, scatter_rows, *s, *x, *y);
    return launched();
}

// ---- embed_back ----

__global__ void clear_rows(gpu_step s, gpu_array y) {
    begin();
    const element e(s, y);
    if (e.exists) store_at(y, e.r, e.c, 0.0f);
}
// The block of the first row of an id adds up all rows of that id, in ascending order.
__global__ void embed_back(gpu_step s, gpu_array dy, float by, int32_t padding, gpu_array table) {
    begin();
    const int32_t r = (int32_t)blockIdx.x, rows = live_rows(s, dy.rows);
    if (r >= rows) return;
    const int32_t id = s.ids[r];
    bool before = id == padding;
    for (int32_t i = (int32_t)threadIdx.x; i < r; i += (int32_t)blockDim.x) before |= s.ids[i] == id;
    if (__syncthreads_or(before)) return;
    for (int32_t i = r; i < rows; i++)
        for (int32_t c = (int32_t)threadIdx.x; s.ids[i] == id && c < table.cols; c += (int32_t)blockDim.x)
            store_at(table, id, c, fmaf(by, load_at(dy, i, c), load_at(table, id, c)));
}
int gpu_embed_back(const gpu_launch *l, const gpu_step *s, const gpu_array *dy, float by, int32_t padding,
                   const gpu_array *table) {
    run(l, grid_of(l, table), 256, 0, clear_rows, *s, *table);
    run(l, (unsigned)grid_rows(l, dy->rows), 256, 0, embed_back, *s, *dy, by, padding, *table);
    return launched();
}

// ---- dropout ----

// A thread has four columns, which have one block of numbers of Philox.
__global__ void dropout(gpu_step s, gpu_dropout p, gpu_array x, gpu_array y) {
    begin();
    const int32_t r = (int32_t)blockIdx.x, four = (int32_t)(blockIdx.y * blockDim.x + threadIdx.x);
    if (r >= live_rows(s, y.rows) || 4 * four >= y.cols) return;
    const int32_t t = p.of_outputs ? s.out_rows[r] : r;
    const int32_t *sample = p.samples + 2 * s.seq[t];
    const uint32_t key[2] = {(uint32_t)p.seed, (uint32_t)(p.seed >> 32)},
                   at[4] = {(uint32_t)sample[0], (uint32_t)sample[1], (uint32_t)s.pos[t],
                            p.site << 16 | (uint32_t)four};
    uint32_t draw[4];
    ln_philox_core(at, key, draw);
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (4 * four + i < y.cols)
            store_at(y, r, 4 * four + i, draw[i] >= p.least ? load_at(x, r, 4 * four + i) * p.by : 0.0f);
}
int gpu_drop(const gpu_launch *l, const gpu_step *s, const gpu_dropout *p, const gpu_array *x,
             const gpu_array *y) {
    const dim3 grid((unsigned)grid_rows(l, y->rows), (unsigned)((y->cols + 1023) / 1024));
    run(l, grid, 256, 0, dropout, *s, *p, *x, *y);
    return launched();
}
