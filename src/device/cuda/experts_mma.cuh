// Products of bf16 rows with the matrices of their experts, on the tensor cores, with the bits of
// products_mma.cuh: a block has the rows of one chunk (experts.cuh) and takes tiles of 16 outputs of their
// expert in turn.
#pragma once

#include "experts.cuh"
#include "products_mma.cuh"

// Row r of a chunk in x.
struct expert_row {
    const gpu_experts &e;
    const expert_rows &rows;
    __device__ inline int32_t operator()(int32_t r) const { return rows.row_of_x(e, r); }
};

template <int TILES, typename FORM>
__global__ void __launch_bounds__(32 * MMA_SEGMENTS, TILES < 4 ? 2 : 1)
    experts_mma(gpu_step s, gpu_experts e, gpu_product p, x_shape shape, int32_t most) {
    extern __shared__ __align__(128) char shared[];
    enum { SUMS = MMA_SEGMENTS * TILES * MMA_ROWS * (MMA_OUTPUTS + 1) };
    begin();
    const expert_rows rows = expert_rows_of(s, e, most);
    if (rows.n <= 0) return;
    segment_stream<TILES, FORM, 1> stream;
    const int warp = (int)threadIdx.x / 32;
    const int32_t from = segment_start(e.w.C, warp), to = segment_start(e.w.C, warp + 1),
                  n_tiles = (int32_t)(e.D / MMA_OUTPUTS), tile0 = (int32_t)rows.expert * n_tiles;
    int32_t i = (int32_t)blockIdx.x, turn = 0;
    float *sums = (float *)shared;
    const part_of_x<expert_row> x = {p.x,
                                     shape,
                                     (char *)(sums + SUMS) + warp * shape.buffer_bytes * shape.n_buffers,
                                     0,
                                     rows.n,
                                     from,
                                     to,
                                     (to - from + shape.columns - 1) / shape.columns,
                                     {e, rows}};
    stream.n = (to - from) / stream.COLUMNS;
    stream.open(p, {0, tile0 + i}, from);
#pragma unroll
    for (int c = 0; c < stream.DEPTH; c++) stream.load(c, c);
    for (int32_t b = 0; x.n_chunks > 0 && b < shape.n_buffers; b++) x.stage(b % x.n_chunks, b);
    while (i < n_tiles) {
        const int32_t tile = i;
        i += (int32_t)gridDim.x;
        stream.clear();
        stream.multiply_tile(p, x, {0, tile0 + i}, i < n_tiles, &turn);
        store_segments<TILES, 1>(sums, stream.y, rows.n, [&](int r, int col, const float *v) {
            store_expert(e, rows, r, (int64_t)tile * MMA_OUTPUTS + col, v[0]);
        });
        __syncthreads();
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
}

// The shared memory of a block of up to so many rows.
template <int TILES, typename FORM> static x_shape experts_shape(const gpu_experts *e, int32_t rows) {
    enum {
        SLOTS = TILES > 1 ? FORM::DEPTH / TILES : FORM::DEPTH_OF_8_ROWS,
        STEP = (SLOTS > 1 ? SLOTS : 1) * FORM::TILES_K * MMA_K
    };
    return shape_of(e->w.C, rows, STEP);
}
template <int TILES> static int32_t experts_bytes(const x_shape *shape) {
    return MMA_SEGMENTS * (TILES * MMA_ROWS * (MMA_OUTPUTS + 1) * (int32_t)sizeof(float) +
                           shape->buffer_bytes * shape->n_buffers);
}

template <int TILES, typename FORM>
static void launch_expert_tiles(const gpu_launch *l, const gpu_step *s, gpu_experts *e, int32_t rows) {
    enum { WAVES = 8 }; // blocks for each multiprocessor, beyond which they take several tiles
    const x_shape shape = experts_shape<TILES, FORM>(e, rows);
    const int32_t bytes = experts_bytes<TILES>(&shape), n_tiles = (int32_t)(e->D / MMA_OUTPUTS);
    const unsigned chunks = list_experts(l, s, e, rows);
    const int32_t each = WAVES * l->n_multiprocessors / (int32_t)(chunks ? chunks : 1) + 1;
    gpu_product p = {};
    p.n = 1, p.w[0] = e->w, p.x = e->x;
    const auto kernel = experts_mma<TILES, FORM>;
    if (bytes > 48 << 10)
        (void)cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   l->shared_limit);
    run(l, dim3((unsigned)(n_tiles < each ? n_tiles : each), chunks), 32 * MMA_SEGMENTS, (size_t)bytes,
        kernel, *s, *e, p, shape, rows);
}
// Chunks of 32 rows if an expert has more than 8 on average, as long as there is shared memory for them.
template <typename FORM>
static void launch_expert_form(const gpu_launch *l, const gpu_step *s, gpu_experts *e) {
    const int32_t pairs = grid_rows(l, e->ids.rows);
    const x_shape many = experts_shape<4, FORM>(e, 4 * MMA_ROWS);
    if (pairs > MMA_ROWS * e->n_experts && experts_bytes<4>(&many) <= l->shared_limit)
        launch_expert_tiles<4, FORM>(l, s, e, 4 * MMA_ROWS);
    else launch_expert_tiles<1, FORM>(l, s, e, pairs <= EXPERTS_DIRECT ? 1 : (int32_t)MMA_ROWS);
}
// Whether tensor cores compute it: bf16 rows whose pieces of 16 bytes can be copied, and matrices of whole
// tiles.
static inline bool experts_by_tiles(const gpu_experts *e) {
    return e->x.type == GPU_BF16 && e->x.pitch % 8 == 0 && (uintptr_t)e->x.data % 16 == 0 &&
           e->D % TILE_ROWS == 0;
}

#if GPU_CODE_BITS == 0
static void launch_experts(const gpu_launch *l, const gpu_step *s, gpu_experts *e) {
    if (e->w.C % 64 == 0) launch_expert_form<dense_form<64>>(l, s, e);
    else launch_expert_form<dense_form<32>>(l, s, e);
}
#elif GPU_CODE_BITS == 16
static void launch_experts(const gpu_launch *l, const gpu_step *s, gpu_experts *e) {
    if (e->w.C % 64 == 0) launch_expert_form<half_form<64>>(l, s, e);
    else launch_expert_form<half_form<32>>(l, s, e);
}
#elif GPU_CODE_BITS == 4 || GPU_CODE_BITS == 8
// bf16 scales of 4 bits may be large: see gpu_weight.
template <int SCALES>
static void launch_expert_words(const gpu_launch *l, const gpu_step *s, gpu_experts *e) {
    enum { BITS = GPU_CODE_BITS };
    const bool small_groups = e->w.group == 32;
    if (e->w.C % 64 || (small_groups && BITS == 8))
        launch_expert_form<words_form<BITS, 32, 1, SCALES>>(l, s, e);
#if GPU_CODE_BITS == 4
    else if (small_groups) launch_expert_form<words_form<BITS, 64, 2, SCALES>>(l, s, e);
#endif
    else launch_expert_form<words_form<BITS, 64, 1, SCALES>>(l, s, e);
}
static void launch_experts(const gpu_launch *l, const gpu_step *s, gpu_experts *e) {
    if (e->w.form == GPU_ROWS) launch_expert_form<rows_form<GPU_CODE_BITS>>(l, s, e);
    else if (e->w.type != GPU_BF16) launch_expert_words<ANY_SCALES>(l, s, e);
#if GPU_CODE_BITS == 4
    else launch_expert_words<LARGE_SCALES>(l, s, e);
#else
    else if (e->w.numbers == GPU_E4M3) launch_expert_words<FP8_SCALES>(l, s, e);
    else launch_expert_words<SMALL_SCALES>(l, s, e);
#endif
}
#else
static void launch_experts(const gpu_launch *l, const gpu_step *s, gpu_experts *e) {
    launch_expert_form<rows_form<GPU_CODE_BITS>>(l, s, e);
}
#endif
