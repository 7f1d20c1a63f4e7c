// The kernels of back_thin.cuh. They are bound by the bytes of the wide operand, which each reads once.
#include "attention_mma.cuh"
#include "back_thin.cuh"

static inline unsigned tiles_in(int64_t n, int64_t per_block) {
    return (unsigned)((n + per_block - 1) / per_block);
}
// Up to four neighbours of a row, those of columns below `end`; zeros for the others. four: they are one
// vector in memory, or lie in the padding of a row.
__device__ inline float4 some_of(const gpu_array &a, int64_t row, int64_t col, int64_t end, bool four) {
    float4 x = make_float4(0, 0, 0, 0);
    if (four && col < end) return load_four(a, row, col);
    if (col < end) x.x = load_at(a, row, col);
    if (col + 1 < end) x.y = load_at(a, row, col + 1);
    if (col + 2 < end) x.z = load_at(a, row, col + 2);
    if (col + 3 < end) x.w = load_at(a, row, col + 3);
    return x;
}

// ---- few columns ----

// A block has 16 rows and all columns, up to MOST; a thread a row and two columns. Both operands come through
// shared memory, DEPTH of k at a time, of which STAGES - 1 are on their way while one is multiplied. Rows of
// operands are whole vectors of 16 bytes apart (cuda_lower.c).
enum { FEW_TILE = 16, FEW_EACH = 2 };
template <int MOST, bool BY_ROWS, typename T> struct few_shape {
    enum {
        THREADS = FEW_TILE * MOST / FEW_EACH,
        DEPTH = MOST <= 8 ? 128 : 64,
        STAGES = MOST <= 8    ? 3
                 : MOST <= 16 ? 4
                 : MOST <= 32 ? 3
                              : 2,
        LEFT_PITCH = DEPTH * (int)sizeof(T) + 16,
        RIGHT_ROWS = BY_ROWS ? MOST : DEPTH,
        RIGHT_PITCH = (BY_ROWS ? DEPTH : MOST) * 4 + (BY_ROWS ? 16 : 0),
        LEFT_BYTES = FEW_TILE * LEFT_PITCH,
        STAGE = LEFT_BYTES + RIGHT_ROWS * RIGHT_PITCH
    };
};
__device__ inline float4 four_of(const float *x) { return *(const float4 *)x; }
__device__ inline float4 four_of(const uint16_t *x) {
    const uint2 h = *(const uint2 *)x;
    return make_float4(bf16_to_f32((uint16_t)h.x), bf16_to_f32((uint16_t)(h.x >> 16)),
                       bf16_to_f32((uint16_t)h.y), bf16_to_f32((uint16_t)(h.y >> 16)));
}
__device__ inline float one_of(const float *x) { return *x; }
__device__ inline float one_of(const uint16_t *x) { return bf16_to_f32(*x); }

// Copies `rows` rows of VECTORS vectors of an array, from (row0, col0) on; zeros behind its ends.
template <int ROWS, int VECTORS, int PITCH, int THREADS, typename T>
__device__ void copy_part(char *to, const gpu_array &a, int64_t row0, int64_t rows, int64_t col0,
                          int64_t cols) {
    enum { EACH = 16 / (int)sizeof(T) };
    for (int i = (int)threadIdx.x; i < ROWS * VECTORS; i += THREADS) {
        const int64_t row = row0 + i / VECTORS, col = col0 + i % VECTORS * EACH;
        const bool exists = row < rows && col < cols;
        copy_vector(shared_address(to + i / VECTORS * PITCH + i % VECTORS * 16),
                    (const T *)a.data + (exists ? row * a.pitch + col : 0), exists);
    }
}

template <int MOST, bool BY_ROWS, typename T>
__global__ void __launch_bounds__(FEW_TILE *MOST / FEW_EACH)
    few_columns(gpu_step s, gpu_array a, gpu_array b, float by, gpu_array y) {
    typedef few_shape<MOST, BY_ROWS, T> shape;
    enum { DEPTH = shape::DEPTH, STAGES = shape::STAGES };
    __shared__ __align__(16) char stages[STAGES][shape::STAGE];
    begin();
    const int64_t r0 = (int64_t)blockIdx.x * FEW_TILE, live = live_rows(s, y.rows), K = a.cols, N = y.cols;
    const int t = (int)threadIdx.x, row = t % FEW_TILE, n = t / FEW_TILE * FEW_EACH;
    if (r0 >= live) return;
    const auto load = [&](int64_t k0) {
        char *to = stages[k0 / DEPTH % STAGES];
        if (k0 < K) {
            copy_part<FEW_TILE, DEPTH *(int)sizeof(T) / 16, shape::LEFT_PITCH, shape::THREADS, T>(to, a, r0,
                                                                                                  live, k0,
                                                                                                  K);
            if (BY_ROWS)
                copy_part<MOST, DEPTH / 4, shape::RIGHT_PITCH, shape::THREADS, float>(to + shape::LEFT_BYTES,
                                                                                      b, 0, N, k0, K);
            else
                copy_part<DEPTH, MOST / 4, shape::RIGHT_PITCH, shape::THREADS, float>(to + shape::LEFT_BYTES,
                                                                                      b, k0, K, 0, N);
        }
        end_copies();
    };
    float sum[FEW_EACH] = {};
    for (int i = 0; i < STAGES - 1; i++) load((int64_t)i * DEPTH);
    for (int64_t k0 = 0; k0 < K; k0 += DEPTH) {
        wait_copies<STAGES - 2>();
        __syncthreads();
        load(k0 + (STAGES - 1) * DEPTH);
        const char *stage = stages[k0 / DEPTH % STAGES];
        const T *left = (const T *)(stage + row * shape::LEFT_PITCH);
        const float *right = (const float *)(stage + shape::LEFT_BYTES);
        const int depth = (int)(K - k0 < DEPTH ? K - k0 : DEPTH);
        const auto factor = [&](int k, int i) {
            return BY_ROWS ? right[(n + i) * (shape::RIGHT_PITCH / 4) + k]
                           : right[k * (shape::RIGHT_PITCH / 4) + n + i];
        };
        int k = 0;
#pragma unroll 4
        for (; k + 4 <= depth; k += 4) {
            const float4 x = four_of(left + k);
#pragma unroll
            for (int i = 0; i < FEW_EACH; i++) {
                sum[i] = fmaf(x.x, factor(k, i), sum[i]), sum[i] = fmaf(x.y, factor(k + 1, i), sum[i]);
                sum[i] = fmaf(x.z, factor(k + 2, i), sum[i]), sum[i] = fmaf(x.w, factor(k + 3, i), sum[i]);
            }
        }
        for (; k < depth; k++)
#pragma unroll
            for (int i = 0; i < FEW_EACH; i++) sum[i] = fmaf(one_of(left + k), factor(k, i), sum[i]);
    }
    wait_copies<0>();
    if (r0 + row >= live) return;
#pragma unroll
    for (int i = 0; i < FEW_EACH; i++)
        if (n + i < N) store_at(y, r0 + row, n + i, sum[i] * by);
}

bool has_thin_rows(int kind, const gpu_array *a, const gpu_array *b, const gpu_array *y) {
    return kind != GPU_TN && y->cols <= GPU_THIN && a->cols > GPU_THIN && b->type == GPU_F32;
}
template <int MOST, bool BY_ROWS>
static void run_few(const gpu_launch *l, const gpu_step *s, const gpu_array *a, const gpu_array *b, float by,
                    const gpu_array *y) {
    const unsigned blocks = tiles_in(grid_rows(l, y->rows), FEW_TILE), threads = FEW_TILE * MOST / FEW_EACH;
    if (a->type == GPU_F32) run(l, blocks, threads, 0, few_columns<MOST, BY_ROWS, float>, *s, *a, *b, by, *y);
    else run(l, blocks, threads, 0, few_columns<MOST, BY_ROWS, uint16_t>, *s, *a, *b, by, *y);
}
template <bool BY_ROWS>
static void run_any_few(const gpu_launch *l, const gpu_step *s, const gpu_array *a, const gpu_array *b,
                        float by, const gpu_array *y) {
    if (y->cols <= 8) run_few<8, BY_ROWS>(l, s, a, b, by, y);
    else if (y->cols <= 16) run_few<16, BY_ROWS>(l, s, a, b, by, y);
    else if (y->cols <= 32) run_few<32, BY_ROWS>(l, s, a, b, by, y);
    else run_few<64, BY_ROWS>(l, s, a, b, by, y);
}
void thin_rows(const gpu_launch *l, const gpu_step *s, int kind, const gpu_array *a, const gpu_array *b,
               float by, const gpu_array *y) {
    if (kind == GPU_NT) run_any_few<true>(l, s, a, b, by, y);
    else run_any_few<false>(l, s, a, b, by, y);
}

// ---- few products to a sum ----

// A thread has four columns of 32 rows, 8 at a time; eight products of each sum have their factors of b in
// registers.
enum { LOW_THREADS = 256, LOW_ROWS = 32, LOW_GROUP = 8, LOW_STEP = 8 };
struct low_operands {
    gpu_array a, b, other, y;
    bool by_rows, fours, vector_b; // fours: of other and y
};
__global__ void __launch_bounds__(LOW_THREADS) low_product(gpu_step s, low_operands p) {
    __shared__ __align__(16) float left[LOW_ROWS][GPU_THIN];
    begin();
    const int64_t r0 = (int64_t)blockIdx.y * LOW_ROWS, live = live_rows(s, p.y.rows), N = p.y.cols;
    const int depth = p.a.cols, t = (int)threadIdx.x;
    if (r0 >= live) return;
    for (int i = t; i < LOW_ROWS * GPU_THIN; i += LOW_THREADS) {
        const int r = i / GPU_THIN, k = i % GPU_THIN;
        left[r][k] = r0 + r < live && k < depth ? load_at(p.a, r0 + r, k) : 0.0f;
    }
    __syncthreads();
    const int64_t c = ((int64_t)blockIdx.x * LOW_THREADS + t) * 4;
    if (c >= N) return;
    float4 w[LOW_STEP];
    const auto load = [&](int k0) {
        if (!p.by_rows) {
#pragma unroll
            for (int k = 0; k < LOW_STEP; k++)
                w[k] = k0 + k < depth ? some_of(p.b, k0 + k, c, N, p.vector_b) : make_float4(0, 0, 0, 0);
            return;
        }
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int k = 0; k < LOW_STEP; k += 4) {
                const float4 x = c + j < N ? some_of(p.b, c + j, k0 + k, depth, p.vector_b && depth % 4 == 0)
                                           : make_float4(0, 0, 0, 0);
                (&w[k].x)[j] = x.x, (&w[k + 1].x)[j] = x.y, (&w[k + 2].x)[j] = x.z, (&w[k + 3].x)[j] = x.w;
            }
    };
    for (int g = 0; g < LOW_ROWS && r0 + g < live; g += LOW_GROUP) {
        float4 sum[LOW_GROUP], add[LOW_GROUP]; // add: of other, whose loads run while products are added
#pragma unroll
        for (int r = 0; r < LOW_GROUP; r++) {
            sum[r] = make_float4(0, 0, 0, 0);
            if (p.other.data && r0 + g + r < live) add[r] = some_of(p.other, r0 + g + r, c, N, p.fours);
        }
        for (int k0 = 0; k0 < depth; k0 += LOW_STEP) {
            if (g == 0 || depth > LOW_STEP) load(k0);
#pragma unroll
            for (int r = 0; r < LOW_GROUP; r++)
#pragma unroll
                for (int k = 0; k < LOW_STEP; k++) {
                    const float x = left[g + r][k0 + k];
                    sum[r].x = fmaf(x, w[k].x, sum[r].x), sum[r].y = fmaf(x, w[k].y, sum[r].y);
                    sum[r].z = fmaf(x, w[k].z, sum[r].z), sum[r].w = fmaf(x, w[k].w, sum[r].w);
                }
        }
#pragma unroll
        for (int r = 0; r < LOW_GROUP; r++) {
            const int64_t row = r0 + g + r;
            if (row >= live) break;
            if (p.other.data) {
                const float4 x = add[r];
                sum[r].x = x.x + sum[r].x, sum[r].y = x.y + sum[r].y;
                sum[r].z = x.z + sum[r].z, sum[r].w = x.w + sum[r].w;
            }
            if (p.fours && c + 4 <= N) {
                store_four(p.y, row, c, sum[r]);
                continue;
            }
            for (int j = 0; j < 4 && c + j < N; j++) store_at(p.y, row, c + j, (&sum[r].x)[j]);
        }
    }
}

bool has_low_depth(int kind, const gpu_array *a, const gpu_array *y) {
    return kind != GPU_TN && a->cols <= GPU_THIN && y->cols > GPU_THIN;
}
void low_depth(const gpu_launch *l, const gpu_step *s, int kind, const gpu_array *a, const gpu_array *b,
               const gpu_array *other, const gpu_array *y) {
    low_operands p = {};
    p.a = *a, p.b = *b, p.y = *y;
    if (other) p.other = *other;
    p.by_rows = kind == GPU_NT, p.vector_b = has_fours(b),
    p.fours = has_fours(y) && (!other || has_fours(other));
    run(l, dim3(tiles_in(y->cols, 4 * LOW_THREADS), tiles_in(grid_rows(l, y->rows), LOW_ROWS)), LOW_THREADS,
        0, low_product, *s, p);
}

// ---- thin a^T b ----

// A thread has a column of the wide operand, whose elements are of type T, and eight of the thin one. The
// wide operand comes through shared memory, some rows at a time, of which STAGES - 1 parts are on their way
// while one is added. Its rows are whole vectors of 16 bytes apart (cuda_lower.c).
enum { WIDE_THREADS = 128, THIN_EACH = 8 };
template <typename T> struct wide_shape {
    enum {
        ROWS = 64 / (int)sizeof(T),
        STAGES = 4,
        ROW = WIDE_THREADS * (int)sizeof(T),
        VECTORS = ROW / 16,
        STAGE = ROWS * ROW
    };
};
// The thin operand's columns j0 .. j0 + 7 of n rows from row k0 on; zeros behind its last column.
__device__ inline void load_thin(float (*few)[THIN_EACH], const gpu_array &thin, int64_t k0, int n,
                                 int64_t j0, int64_t n_thin) {
    const bool fours = thin.pitch % 4 == 0 && j0 + THIN_EACH <= n_thin;
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < 2 * n; i += WIDE_THREADS) {
        const int row = i / 2, j = i % 2 * 4;
        *(float4 *)&few[row][j] = some_of(thin, k0 + row, j0 + j, n_thin, fours);
    }
}
template <typename T>
__global__ void __launch_bounds__(WIDE_THREADS)
    thin_sums(gpu_step s, gpu_array a, gpu_array b, gpu_array y, float *partial) {
    typedef wide_shape<T> shape;
    enum { ROWS = shape::ROWS, STAGES = shape::STAGES };
    __shared__ __align__(16) float few[GPU_PIECE][THIN_EACH];
    __shared__ __align__(16) char stages[STAGES][shape::STAGE];
    begin();
    const int64_t M = y.rows, N = y.cols, k0 = (int64_t)blockIdx.z * GPU_PIECE, rows = live_rows(s, a.rows);
    const bool left = M <= N; // the thin operand is a
    const gpu_array &thin = left ? a : b, &wide = left ? b : a;
    const int64_t j0 = (int64_t)blockIdx.y * THIN_EACH, c0 = (int64_t)blockIdx.x * WIDE_THREADS,
                  c = c0 + threadIdx.x, n_thin = left ? M : N;
    if (k0 >= rows) return;
    const int n = (int)(rows - k0 < GPU_PIECE ? rows - k0 : GPU_PIECE);
    const auto load = [&](int k) {
        if (k < n)
            copy_part<ROWS, shape::VECTORS, shape::ROW, WIDE_THREADS, T>(stages[k / ROWS % STAGES], wide,
                                                                         k0 + k, k0 + n, c0, wide.cols);
        end_copies();
    };
    for (int i = 0; i < STAGES - 1; i++) load(i * ROWS);
    load_thin(few, thin, k0, n, j0, n_thin);
    float sum[THIN_EACH] = {};
    for (int k = 0; k < n; k += ROWS) {
        wait_copies<STAGES - 2>();
        __syncthreads();
        load(k + (STAGES - 1) * ROWS);
        const T *x = (const T *)stages[k / ROWS % STAGES] + threadIdx.x;
        const int some = n - k < ROWS ? n - k : (int)ROWS;
#pragma unroll 8
        for (int i = 0; i < some; i++) {
            const float v = one_of(x + i * WIDE_THREADS);
            const float4 lo = *(const float4 *)&few[k + i][0], hi = *(const float4 *)&few[k + i][4];
            sum[0] = fmaf(lo.x, v, sum[0]), sum[1] = fmaf(lo.y, v, sum[1]);
            sum[2] = fmaf(lo.z, v, sum[2]), sum[3] = fmaf(lo.w, v, sum[3]);
            sum[4] = fmaf(hi.x, v, sum[4]), sum[5] = fmaf(hi.y, v, sum[5]);
            sum[6] = fmaf(hi.z, v, sum[6]), sum[7] = fmaf(hi.w, v, sum[7]);
        }
    }
    wait_copies<0>();
    if (c >= wide.cols) return;
#pragma unroll
    for (int j = 0; j < THIN_EACH; j++)
        if (j0 + j < n_thin)
            partial[left ? (blockIdx.z * M + j0 + j) * N + c : (blockIdx.z * M + c) * N + j0 + j] = sum[j];
}

bool has_thin_pieces(const gpu_array *y) { return y->rows <= GPU_THIN || y->cols <= GPU_THIN; }
void thin_pieces(const gpu_launch *l, const gpu_step *s, const gpu_array *a, const gpu_array *b,
                 const gpu_array *y, float *partial) {
    const int32_t thin = y->rows < y->cols ? y->rows : y->cols, wide = y->rows < y->cols ? y->cols : y->rows;
    const dim3 grid(tiles_in(wide, WIDE_THREADS), tiles_in(thin, THIN_EACH),
                    tiles_in(grid_rows(l, a->rows), GPU_PIECE));
    if ((y->rows <= y->cols ? b : a)->type == GPU_F32)
        run(l, grid, WIDE_THREADS, 0, thin_sums<float>, *s, *a, *b, *y, partial);
    else run(l, grid, WIDE_THREADS, 0, thin_sums<uint16_t>, *s, *a, *b, *y, partial);
}
