// Products of training: of two arrays, and of a gradient with the columns of a weight.
#include "back_thin.cuh"
#include "packed_rows.cuh"
#include "products.cuh"
#include "tile_product.cuh"

enum { BACK_ROWS = 64 }; // of a weight, of which a transpose has whole multiples

static inline int launched(void) { return (int)cudaGetLastError(); }
static inline unsigned tiles_in(int64_t n, int64_t per_block) {
    return (unsigned)((n + per_block - 1) / per_block);
}

// The number of products that an output adds up: columns of a, for a^T b the live rows of both.
template <int KIND> __device__ inline int64_t summed(const gpu_step &s, const gpu_array &a) {
    return KIND == GPU_TN ? live_rows(s, a.rows) : a.cols;
}

// Stores PER neighbours of a row, those of columns below N, by vectors if they have addresses of vectors.
template <int PER>
__device__ inline void store_run(const gpu_array &y, int64_t row, int64_t col, const float (&x)[PER],
                                 int64_t N) {
    if (PER % 4 == 0 && y.type == GPU_F32 && y.pitch % 4 == 0 && col + PER <= N) {
        float4 *to = (float4 *)((float *)y.data + row * y.pitch + col);
#pragma unroll
        for (int i = 0; i < PER / 4; i++)
            to[i] = make_float4(x[i * 4], x[i * 4 + 1 % PER], x[i * 4 + 2 % PER], x[i * 4 + 3 % PER]);
        return;
    }
#pragma unroll
    for (int i = 0; i < PER; i++)
        if (col + i < N) store_at(y, row, col + i, x[i]);
}

// y = the product of operands a and b over `depth`, in tiles.
template <int PER, typename A, typename B>
__device__ void product_of(const A &a, const B &b, const gpu_array &y, int64_t M, int64_t depth) {
    const int64_t m0 = (int64_t)blockIdx.x * TILE_SIDE * PER, n0 = (int64_t)blockIdx.y * TILE_SIDE * PER,
                  N = y.cols;
    float sum[PER][PER] = {};
    if (m0 >= M) return;
    multiply_tiles<PER>(sum, a, b, m0, n0, M, N, 0, depth);
    const int64_t m = m0 + threadIdx.x / TILE_SIDE * PER, n = n0 + threadIdx.x % TILE_SIDE * PER;
#pragma unroll
    for (int i = 0; i < PER; i++)
        if (m + i < M) store_run<PER>(y, m + i, n, sum[i], N);
}

template <int KIND, int PER>
__global__ void __launch_bounds__(TILE_THREADS) matmul(gpu_step s, gpu_array a, gpu_array b, gpu_array y) {
    begin();
    const int64_t M = live_rows(s, y.rows), depth = summed<KIND>(s, a);
    if (KIND == GPU_NT) product_of<PER>(along_rows{a}, along_rows{b}, y, M, depth);
    else if (KIND == GPU_NN) product_of<PER>(along_rows{a}, along_columns{b}, y, M, depth);
    else product_of<PER>(along_columns{a}, along_columns{b}, y, M, depth);
}

// ---- thin a^T b: few outputs, each a sum over all rows of the step ----

// Sums over pieces of rows go to partial [piece][M][N] ...
__global__ void __launch_bounds__(TILE_THREADS)
    matmul_pieces(gpu_step s, gpu_array a, gpu_array b, gpu_array y, float *partial) {
    begin();
    const int64_t m0 = (int64_t)blockIdx.x * TILE_SIDE, n0 = (int64_t)blockIdx.y * TILE_SIDE, M = y.rows,
                  N = y.cols, k0 = (int64_t)blockIdx.z * GPU_PIECE, rows = live_rows(s, a.rows);
    float sum[1][1] = {};
    if (k0 >= rows) return;
    multiply_tiles<1>(sum, along_columns{a}, along_columns{b}, m0, n0, M, N, k0,
                      k0 + GPU_PIECE < rows ? k0 + GPU_PIECE : rows);
    const int64_t m = m0 + threadIdx.x / TILE_SIDE, n = n0 + threadIdx.x % TILE_SIDE;
    if (m < M && n < N) partial[(blockIdx.z * M + m) * N + n] = sum[0][0];
}
// ... and are added in ascending order.
__global__ void add_pieces(gpu_step s, gpu_array a, const float *partial, gpu_array y) {
    begin();
    const int64_t M = y.rows, N = y.cols, i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x,
                  pieces = (live_rows(s, a.rows) + GPU_PIECE - 1) / GPU_PIECE;
    if (i >= M * N) return;
    float sum = 0;
#pragma unroll 8
    for (int64_t p = 0; p < pieces; p++) sum = sum + partial[p * M * N + i];
    store_at(y, i / N, i % N, sum);
}

size_t gpu_matmul_scratch(int64_t rows, int64_t y_rows, int64_t y_cols) {
    enum { THIN = 1 << 18 }; // outputs up to which there are too few blocks for whole sums
    const int64_t pieces = (rows + GPU_PIECE - 1) / GPU_PIECE;
    return y_rows * y_cols > THIN || pieces < 2 ? 0 : (size_t)(pieces * y_rows * y_cols) * sizeof(float);
}

static int matmul_thin(const gpu_launch *l, const gpu_step *s, const gpu_array *a, const gpu_array *b,
                       const gpu_array *y, float *partial) {
    const dim3 grid(tiles_in(y->rows, TILE_SIDE), tiles_in(y->cols, TILE_SIDE),
                    tiles_in(grid_rows(l, a->rows), GPU_PIECE));
    if (has_thin_pieces(y)) thin_pieces(l, s, a, b, y, partial);
    else run(l, grid, TILE_THREADS, 0, matmul_pieces, *s, *a, *b, *y, partial);
    run(l, tiles_in((int64_t)y->rows * y->cols, 256), 256, 0, add_pieces, *s, *a, (const float *)partial, *y);
    return launched();
}

// Outputs of a thread, squared: the largest tiles of which each multiprocessor has some.
static int outputs_of(const gpu_launch *l, int64_t M, int64_t N) {
    for (int per = 8; per > 1; per /= 2)
        if ((int64_t)tiles_in(M, TILE_SIDE * per) * tiles_in(N, TILE_SIDE * per) >= l->n_multiprocessors)
            return per;
    return 1;
}
template <int KIND, int PER>
static void run_matmul(const gpu_launch *l, const gpu_step *s, const gpu_array *a, const gpu_array *b,
                       const gpu_array *y) {
    const dim3 grid(tiles_in(grid_rows(l, y->rows), TILE_SIDE * PER), tiles_in(y->cols, TILE_SIDE * PER));
    run(l, grid, TILE_THREADS, 0, matmul<KIND, PER>, *s, *a, *b, *y);
}
template <int KIND>
static void matmul_of(const gpu_launch *l, const gpu_step *s, const gpu_array *a, const gpu_array *b,
                      const gpu_array *y) {
    switch (outputs_of(l, grid_rows(l, y->rows), y->cols)) {
    case 8: run_matmul<KIND, 8>(l, s, a, b, y); break;
    case 4: run_matmul<KIND, 4>(l, s, a, b, y); break;
    case 2: run_matmul<KIND, 2>(l, s, a, b, y); break;
    default: run_matmul<KIND, 1>(l, s, a, b, y);
    }
}

bool gpu_adds_matmul(int kind, const gpu_array *a, const gpu_array *y) { return has_low_depth(kind, a, y); }
bool gpu_scales_matmul(int kind, const gpu_array *a, const gpu_array *b, const gpu_array *y) {
    return has_thin_rows(kind, a, b, y);
}
int gpu_matmul(const gpu_launch *l, const gpu_step *s, int kind, const gpu_array *a, const gpu_array *b,
               const gpu_array *other, float by, const gpu_array *y, float *scratch) {
    if (scratch) return matmul_thin(l, s, a, b, y, scratch);
    if (has_low_depth(kind, a, y)) low_depth(l, s, kind, a, b, other, y);
    else if (has_thin_rows(kind, a, b, y)) thin_rows(l, s, kind, a, b, by, y);
    else if (kind == GPU_NT) matmul_of<GPU_NT>(l, s, a, b, y);
    else if (kind == GPU_NN) matmul_of<GPU_NN>(l, s, a, b, y);
    else matmul_of<GPU_TN>(l, s, a, b, y);
    return launched();
}

// ---- linear_back ----

template <int PER>
__global__ void __launch_bounds__(TILE_THREADS)
    linear_back(gpu_step s, gpu_array dy, gpu_weight w, gpu_array dx) {
    begin();
    product_of<PER>(along_rows{dy}, weight_columns{w}, dx, live_rows(s, dx.rows), w.D);
}
template <int PER>
static void run_back(const gpu_launch *l, const gpu_step *s, const gpu_array *dy, const gpu_weight *w,
                     const gpu_array *dx) {
    const dim3 grid(tiles_in(grid_rows(l, dx->rows), TILE_SIDE * PER), tiles_in(w->C, TILE_SIDE * PER));
    run(l, grid, TILE_THREADS, 0, linear_back<PER>, *s, *dy, *w, *dx);
}

// The transposes of some rows of the weight, of whose products dx is the sum in ascending order. The kernels
// of linear multiply: a part of the weight is transposed in a tenth of the time that its product takes for
// thousands of rows, and there is no second copy of all.
size_t gpu_back_scratch(const gpu_weight *w) {
    const int64_t column = w->C * 2, most = ((int64_t)128 << 20) / column / BACK_ROWS * BACK_ROWS,
                  all = (w->D + BACK_ROWS - 1) / BACK_ROWS * BACK_ROWS;
    const bool packed = w->form == GPU_FRAGMENTS && w->bits == 0 && w->type == GPU_BF16,
               in_groups = w->bits > 0 && w->form != GPU_CODED && w->C % CHUNK == 0;
    if (!packed && !in_groups) return 0;
    return (size_t)((all < most ? all : most < BACK_ROWS ? (int64_t)BACK_ROWS : most) * column);
}
static int back_transposed(const gpu_launch *l, const gpu_step *s, const gpu_array *dy, const gpu_weight *w,
                           const gpu_array *dx, const gpu_array *other, void *scratch, size_t bytes) {
    const int64_t most = (int64_t)bytes / (w->C * 2) / BACK_ROWS * BACK_ROWS;
    gpu_launch after = *l;
    after.overlap = false; // a product reads weights before it waits for the kernel before it
    for (int64_t d = 0; d < dy->cols; d += most) {
        const int64_t n = dy->cols - d < most ? dy->cols - d : most;
        gpu_product p = {};
        p.n = 1, p.gate = GPU_NO_GATE;
        p.x = *dy, p.y[0] = *dx;
        p.x.data = (uint16_t *)dy->data + d, p.x.cols = (int32_t)n;
        if (d > 0) p.residual = *dx;
        else if (other) p.residual = *other;
        p.w[0] = transposed_part(l, w, d, n, scratch);
        const int error = gpu_linear(&after, s, &p);
        if (error) return error;
    }
    return launched();
}

bool gpu_adds_back(const gpu_array *dy, size_t bytes) {
    return dy->type == GPU_BF16 && dy->cols % BACK_ROWS == 0 && bytes > 0;
}
int gpu_linear_back(const gpu_launch *l, const gpu_step *s, const gpu_array *dy, const gpu_weight *w,
                    const gpu_array *dx, const gpu_array *other, void *scratch, size_t bytes) {
    if (gpu_adds_back(dy, bytes)) return back_transposed(l, s, dy, w, dx, other, scratch, bytes);
    switch (outputs_of(l, grid_rows(l, dx->rows), w->C)) {
    case 8:
    case 4: run_back<4>(l, s, dy, w, dx); break;
    case 2: run_back<2>(l, s, dy, w, dx); break;
    default: run_back<1>(l, s, dy, w, dx);
    }
    return launched();
}

int gpu_training_open(int32_t shared_limit, bool hopper) {
    const int error = packed_tiles_open(shared_limit);
#ifdef GPU_HOPPER
    if (hopper && !error) return packed_wgmma_open(shared_limit);
#else
    (void)hopper;
#endif
    return error;
}
