// Products of few bf16 rows with bf16 weights and with weights in affine groups, on the tensor cores
// (mma.sync.m16n8k16: bf16 operands, f32 sums). An element of an affine weight is s q + b, rounded to bf16.
//
// The weight is operand A: a warp computes 16 outputs of 8 * TILES rows of x. Packed weights (fragments.cuh)
// are in memory as the registers of the instruction need them; a warp loads 512 contiguous bytes of a dense
// weight at a time. Codes of other widths than 4 and 8 bits are extracted from their rows.
//
// All kernels of packed weights add in this order (docs/decisions/029): the columns are cut into 8 segments
// of whole units (64 columns where C is a multiple of 64, else 32); here each warp of a block has one. The
// sum of a segment starts at 0 and takes 16 columns after the other, one instruction for each; the segments
// are added in ascending order. So a row's bits depend on the weight and on the row alone.
#pragma once

#include "exchange.cuh"
#include "products_forms.cuh"
#include "products_output.cuh"

enum { MMA_SEGMENTS = 8, MMA_OUTPUTS = TILE_ROWS, MMA_ROWS = 8 };

// The first column of a segment; of MMA_SEGMENTS: C.
__host__ __device__ inline int32_t segment_start(int64_t C, int segment) {
    const uint32_t columns = (uint32_t)C, shift = columns % 64 ? 5 : 6;
    return (int32_t)((columns >> shift) * (uint32_t)segment / MMA_SEGMENTS << shift);
}

__device__ inline void mma_bf16(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// ---- the kernel ----

// Begins to copy 16 bytes to this address in shared memory.
__device__ inline void copy_16(uint32_t to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

// Rows of x in shared memory: each warp has the columns of its segment, all of them in one buffer, or
// `columns` of them at a time in each of two. Rows are `pitch` bytes apart, an odd number of 16-byte pieces,
// so that ldmatrix has no bank conflicts.
struct x_shape {
    int32_t columns, pitch, buffer_bytes, n_buffers;
};
// The row of x that is row r of a product.
struct same_row {
    __device__ inline int32_t operator()(int32_t r) const { return r; }
};
// The part of x that a warp multiplies with each tile of outputs: rows r0 .. r0 + rows - 1, by `row`, columns
// [from, to), in chunks of shape.columns.
template <typename ROW> struct part_of_x {
    const gpu_array &x;
    const x_shape &shape;
    char *buffers; // of this warp
    int32_t r0, rows, from, to, n_chunks;
    ROW row;

    // Begins to copy chunk i to a buffer, as one group of asynchronous copies.
    __device__ inline void stage(int32_t i, int32_t buffer) const {
        const int32_t k = from + i * shape.columns, n = to - k < shape.columns ? to - k : shape.columns;
        // a warp copies one row at a time, or four where rows are short, so that few lanes have nothing to do
        const int32_t lane = (int32_t)threadIdx.x % 32, width = shape.columns < 256 ? 8 : 32;
        const char *source = (const char *)x.data + k * 2;
        char *target = buffers + buffer * shape.buffer_bytes;
        for (int32_t r = lane / width; r < rows; r += 32 / width)
            for (int32_t c = lane % width; c < n / 8; c += width)
                copy_16((uint32_t)__cvta_generic_to_shared(target + r * shape.pitch + c * 16),
                        source + row(r0 + r) * x.pitch * 2 + c * 16);
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    // Waits until the chunk in a buffer is there (with two buffers, that of the other may still be on its
    // way); returns the buffer's address in shared memory.
    __device__ inline uint32_t wait(int32_t buffer) const {
        if (shape.n_buffers == 1) asm volatile("cp.async.wait_group 0;" ::: "memory");
        else asm volatile("cp.async.wait_group 1;" ::: "memory");
        __syncwarp();
        return (uint32_t)__cvta_generic_to_shared(buffers + buffer * shape.buffer_bytes);
    }
    // Where this lane's 16 bytes of group r of 8 rows begin in a buffer, for load_matrices. Rows that are not
    // live repeat the last: an output depends on no other row than its own.
    __device__ inline uint32_t offset(int32_t r) const {
        const int32_t lane = (int32_t)threadIdx.x % 32, i = 8 * r + lane % 8;
        return (uint32_t)((i < rows ? i : rows - 1) * shape.pitch + lane / 8 * 16);
    }
};
typedef part_of_x<same_row> x_part;

// rmsnorm of rows of x, which are f32, with the bits of rmsnorm<256> (rows.cu); each warp stores its columns
// as bf16 in its buffer. The weights of the norm come to shared memory before the kernel waits for x.
struct row_norm {
    const gpu_product &p;
    const x_part &x;
    char *weights; // of all columns

    __device__ inline void stage_weights(void) const {
        const int32_t each = p.norm.type == GPU_F32 ? 4 : 2, from = x.from * each;
        for (int32_t c = from + (int32_t)threadIdx.x % 32 * 16; c < x.to * each; c += 32 * 16)
            copy_16((uint32_t)__cvta_generic_to_shared(weights + c), (const char *)p.norm.data + c);
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    __device__ inline const float *row(int32_t r) const {
        return (const float *)p.x.data + (x.r0 + r) * p.x.pitch;
    }
    // sums: [rows][8], of the squares of the columns t, t + 256, .. of each warp's threads t.
    __device__ inline void add_squares(float *sums) const {
        const int32_t C = (int32_t)p.w[0].C;
#pragma unroll 1
        for (int32_t r = 0; r < x.rows; r++) {
            float sum = 0;
#pragma unroll 8
            for (int32_t c = (int32_t)threadIdx.x; c < C; c += 256) sum = fmaf(row(r)[c], row(r)[c], sum);
            sum = warp_sum(sum);
            if (threadIdx.x % 32 == 0) sums[r * 8 + threadIdx.x / 32] = sum;
        }
    }
    // The weights of columns c .. c + 3.
    __device__ inline void four_weights(float w[4], int32_t c) const {
        if (p.norm.type == GPU_F32) *(float4 *)w = *(const float4 *)(weights + 4 * c);
        else {
            const uint2 raw = *(const uint2 *)(weights + 2 * c);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const uint16_t h = (uint16_t)((i / 2 ? raw.y : raw.x) >> i % 2 * 16);
                w[i] = p.norm.type == GPU_BF16 ? bf16_to_f32(h) : __half2float(__ushort_as_half(h));
            }
        }
    }
    __device__ inline void store(const float *sums) const {
        const int32_t lane = (int32_t)threadIdx.x % 32;
#pragma unroll 1
        for (int32_t r = 0; r < x.rows; r++) {
            char *to = x.buffers + r * x.shape.pitch;
            float sum = sums[r * 8];
            for (int k = 1; k < 8; k++) sum = sum + sums[r * 8 + k];
            const float scale = 1.0f / sqrtf(sum / (float)(int32_t)p.w[0].C + p.eps);
#pragma unroll 1
            for (int32_t c = x.from + 4 * lane; c < x.to; c += 128) {
                const float4 v = *(const float4 *)(row(r) + c);
                float w[4];
                four_weights(w, c);
                *(uint2 *)(to + (c - x.from) * 2) = make_uint2(round_pair((v.x * scale) * (w[0] + p.offset),
                                                                          (v.y * scale) * (w[1] + p.offset)),
                                                               round_pair((v.z * scale) * (w[2] + p.offset),
                                                                          (v.w * scale) * (w[3] + p.offset)));
            }
        }
    }
    __device__ inline void stage(float *sums) const {
        add_squares(sums);
        asm volatile("cp.async.wait_all;" ::: "memory");
        __syncthreads();
        store(sums);
        __syncthreads(); // the sums share memory with those of the segments
    }
};

// Operand B of two k16 tiles of 8 rows of x: registers b0 and b1 of the first, then of the second. at: the
// address in shared memory of this lane's 16 bytes, row lane % 8 and columns 8 (lane / 8) of the 32.
__device__ inline void load_matrices(uint32_t b[4], uint32_t at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
                 : "r"(at)
                 : "memory");
}

// A tile of 16 outputs of one of the products.
struct output_tile {
    int32_t product, tile;
};
// Tile i of all products, those of product 0 first.
__device__ inline output_tile tile_of(const gpu_product &p, int32_t i) {
    output_tile t = {0, i};
    for (; t.product + 1 < p.n; t.product++) {
        const int32_t n = (int32_t)(((uint32_t)p.w[t.product].D + TILE_ROWS - 1) / TILE_ROWS);
        if (t.tile < n) break;
        t.tile -= n;
    }
    return t;
}

// A warp's segment of WEIGHTS weights, tile after tile, as a stream of units, of which the next DEPTH are
// being loaded: slot i of the registers has units i, i + DEPTH, ... of a tile.
template <int TILES, typename FORM, int WEIGHTS> struct segment_stream {
    enum {
        COLUMNS = FORM::TILES_K * MMA_K,
        SLOTS = TILES > 1 ? FORM::DEPTH / TILES : FORM::DEPTH_OF_8_ROWS / WEIGHTS,
        DEPTH = SLOTS ? SLOTS : 1
    };
    FORM form[WEIGHTS];
    typename FORM::unit units[WEIGHTS][DEPTH];
    int32_t n; // units of a segment
    float y[WEIGHTS][TILES][4];

    // Later loads are of this tile.
    __device__ inline void open(const gpu_product &p, output_tile t, int32_t from) {
#pragma unroll
        for (int m = 0; m < WEIGHTS; m++) form[m].open(p.w[WEIGHTS > 1 ? m : t.product], t.tile, from);
    }
    __device__ inline void load(int slot, int32_t c) {
#pragma unroll
        for (int m = 0; m < WEIGHTS; m++)
            if (c < n) form[m].load(units[m][slot], c);
    }
    __device__ inline void clear(void) {
#pragma unroll
        for (int m = 0; m < WEIGHTS; m++)
#pragma unroll
            for (int i = 0; i < 4 * TILES; i++) y[m][i / 4][i % 4] = 0;
    }
    // Multiplies the unit of a slot with x at these addresses.
    __device__ inline void multiply(int slot, const uint32_t at[TILES], uint32_t columns) {
        uint32_t x[TILES][FORM::TILES_K / 2][4];
#pragma unroll
        for (int j = 0; j < FORM::TILES_K / 2; j++)
#pragma unroll
            for (int r = 0; r < TILES; r++) load_matrices(x[r][j], at[r] + columns + (uint32_t)j * 64);
#pragma unroll
        for (int m = 0; m < WEIGHTS; m++)
#pragma unroll
            for (int j = 0; j < FORM::TILES_K; j++) {
#pragma unroll
                for (int part = 0; part < parts_of<FORM>::N; part++) {
                    uint32_t a[4];
                    parts_of<FORM>::fragment(form[m], units[m][slot], j, part, a);
#pragma unroll
                    for (int r = 0; r < TILES; r++)
                        mma_bf16(y[m][r], a, x[r][j / 2][j % 2 * 2], x[r][j / 2][j % 2 * 2 + 1]);
                }
            }
    }
    // Multiplies a tile with x, and begins to load the next tile (more: there is one). *turn counts the
    // chunks of x that this warp has multiplied, over all its tiles; the present one is being copied.
    template <typename ROW>
    __device__ inline void multiply_tile(const gpu_product &p, const part_of_x<ROW> &x, output_tile next,
                                         bool more, int32_t *turn) {
        const int32_t chunk = x.shape.columns / COLUMNS;
        for (int32_t c0 = 0, q = 0; c0 < n; c0 += chunk, q++, (*turn)++) {
            const int32_t end = c0 + chunk < n ? c0 + chunk : n, buffer = *turn & (x.shape.n_buffers - 1);
            const uint32_t base = x.wait(buffer);
            uint32_t at[TILES];
#pragma unroll
            for (int r = 0; r < TILES; r++) at[r] = base + x.offset(r);
            for (int32_t c = c0; c < end; c += DEPTH) {
                const bool last = c + DEPTH >= n;
                if (last && more) open(p, next, x.from);
#pragma unroll
                for (int i = 0; i < DEPTH; i++) {
                    if (c + i < end) multiply(i, at, (uint32_t)((c + i - c0) * COLUMNS * 2));
                    if (!last) load(i, c + i + DEPTH);
                    else if (more) load(i, i);
                }
            }
            if (x.shape.n_buffers == 1) continue;
            __syncwarp();
            x.stage((q + 2) % x.n_chunks, buffer); // of this tile or the next
        }
    }
};

// Adds the segments and stores the sums of a tile, of each weight: store(row, output of the tile, sums).
// sums: [WEIGHTS][MMA_SEGMENTS][8 TILES][MMA_OUTPUTS + 1]. If the caller alternates between two such buffers,
// one barrier for each tile is enough.
template <int TILES, int WEIGHTS, typename STORE>
__device__ inline void store_segments(float *sums, const float y[][TILES][4], int32_t rows, STORE store) {
    enum { PITCH = MMA_OUTPUTS + 1, SEGMENT = TILES * MMA_ROWS * PITCH };
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < WEIGHTS; m++)
#pragma unroll
        for (int i = 0; i < 4 * TILES; i++)
            sums[(m * MMA_SEGMENTS + warp) * SEGMENT + (i / 4 * 8 + lane % 4 * 2 + i % 2) * PITCH + lane / 4 +
                 i % 4 / 2 * 8] = y[m][i / 4][i % 4];
    __syncthreads();
    for (int i = (int)threadIdx.x; i < rows * MMA_OUTPUTS; i += 32 * MMA_SEGMENTS) {
        const int row = i / MMA_OUTPUTS, col = i % MMA_OUTPUTS;
        float v[2] = {0, 0};
#pragma unroll
        for (int m = 0; m < WEIGHTS; m++)
#pragma unroll
            for (int k = 0; k < MMA_SEGMENTS; k++)
                v[m] = v[m] + sums[(m * MMA_SEGMENTS + k) * SEGMENT + row * PITCH + col];
        store(row, col, v);
    }
}

// What follows a product (gpu_product.tail), or nothing.
template <bool TAIL> struct tail_of {
    __device__ void send(int64_t, int64_t, float) const {}
    __device__ void receive(int32_t) const {}
};
// All blocks of a kernel with a tail run at the same time: those that wait could keep others from beginning,
// for which another GPU waits. The last blocks have the fewest tiles.
template <> struct tail_of<true> {
    gpu_tail tail;
    __device__ void send(int64_t r, int64_t d, float x) const { send_element(tail, r, d, x); }
    __device__ void receive(int32_t rows) const {
        receive_elements(tail.exchange, tail.gather, rows,
                         (gridDim.x - 1 - blockIdx.x) * blockDim.x + threadIdx.x, gridDim.x * blockDim.x);
    }
};

// Blocks take tiles of 16 outputs in turn and compute 8 * TILES rows of them, of a gated pair of both
// weights: warp i computes segment i. The grid has two blocks for each multiprocessor, which hold as many of
// up to 16 rows; one and three for each were slower in a whole step (bench/log/attempts.csv). A block starts
// to load its first weights before it waits for x, while the kernel before still runs.
template <int TILES, typename FORM, bool GATED, bool TAIL>
__global__ void __launch_bounds__(32 * MMA_SEGMENTS, TILES < 4 ? 2 : 1)
    product_mma(gpu_step s, gpu_product p, x_shape shape, int32_t n_sums, int32_t n_tiles,
                const __grid_constant__ tail_of<TAIL> tail) {
    extern __shared__ __align__(128) char shared[];
    enum { WEIGHTS = GATED ? 2 : 1, SUMS = WEIGHTS * MMA_SEGMENTS * TILES * MMA_ROWS * (MMA_OUTPUTS + 1) };
    segment_stream<TILES, FORM, WEIGHTS> stream;
    let_next_begin();
    const int warp = (int)threadIdx.x / 32;
    const int32_t from = segment_start(p.w[0].C, warp), to = segment_start(p.w[0].C, warp + 1),
                  r0 = (int32_t)blockIdx.y * MMA_ROWS * TILES;
    int32_t i = (int32_t)blockIdx.x, turn = 0;
    output_tile tile = tile_of(p, i);
    stream.n = (to - from) / stream.COLUMNS;
    stream.open(p, tile, from);
#pragma unroll
    for (int c = 0; c < stream.DEPTH; c++) stream.load(c, c);
    const int32_t live = live_rows(s, p.x.rows); // from the step block, which no kernel of a step writes
    float *sums = (float *)shared;
    char *buffers = (char *)(sums + n_sums * SUMS);
    const int32_t warp_bytes = shape.buffer_bytes * shape.n_buffers;
    const x_part x = {p.x,
                      shape,
                      buffers + warp * warp_bytes,
                      r0,
                      live - r0 < MMA_ROWS * TILES ? live - r0 : MMA_ROWS * TILES,
                      from,
                      to,
                      (to - from + shape.columns - 1) / shape.columns,
                      same_row()};
    const row_norm norm = {p, x, buffers + MMA_SEGMENTS * warp_bytes};
    if (TILES == 1 && p.norm.data) norm.stage_weights();
    wait_for_inputs();
    if (r0 >= live) {
        asm volatile("cp.async.wait_all;" ::: "memory");
        return;
    }
    if (TILES == 1 && p.norm.data) norm.stage(sums);
    else if (x.n_chunks > 0)
        for (int32_t b = 0; b < shape.n_buffers; b++) x.stage(b % x.n_chunks, b);
    for (int part = 0; i < n_tiles; part = n_sums - 1 - part) {
        i += (int32_t)gridDim.x;
        const output_tile next = tile_of(p, i);
        stream.clear();
        stream.multiply_tile(p, x, next, i < n_tiles, &turn);
        store_segments<TILES, WEIGHTS>(sums + part * SUMS, stream.y, x.rows,
                                       [&](int row, int col, const float *v) {
                                           const int64_t d = (int64_t)tile.tile * MMA_OUTPUTS + col;
                                           if (d >= p.w[tile.product].D) return;
                                           const float y =
                                               store_output<GATED>(p, tile.product, r0 + row, d, v[0], v[1]);
                                           tail.send(r0 + row, d, y);
                                       });
        if (n_sums == 1) __syncthreads();
        tile = next;
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    tail.receive(live);
}

// The shape of buffers that hold whole segments of so many rows, in steps of so many columns.
static inline x_shape whole_segments(int64_t C, int32_t rows, int32_t step) {
    int32_t most = 0; // columns of the longest segment
    for (int i = 0; i < MMA_SEGMENTS; i++) {
        const int32_t n = segment_start(C, i + 1) - segment_start(C, i);
        most = n > most ? n : most;
    }
    x_shape s = {(most + step - 1) / step * step, 0, 0, 1};
    s.pitch = s.columns * 2 + 16;
    s.buffer_bytes = s.pitch * rows;
    return s;
}
// The shape of the buffers for so many rows; step: columns of a turn of a segment_stream.
static inline x_shape shape_of(int64_t C, int32_t rows, int32_t step) {
    enum { MOST = 9216 }; // bytes of a warp's buffers, if a step fits
    x_shape s = whole_segments(C, rows, step);
    if (s.columns * rows * 2 > MOST) {
        const int32_t fit = MOST / 4 / rows / step * step, columns = fit > step ? fit : step;
        if (columns < s.columns) s.columns = columns, s.n_buffers = 2;
    }
    s.pitch = s.columns * 2 + 16;
    s.buffer_bytes = s.pitch * rows;
    return s;
}

// Whether product_mma itself normalises x. Every block repeats that work, so only with few rows.
static inline bool norms_itself(const gpu_launch *l, const gpu_product *p) {
    // More than LEAST columns: gpu_rmsnorm adds up to 256 in another order. Up to MOST they fit in one
    // buffer.
    enum { ROWS = 2, LEAST = 256, MOST = 8192 };
    const int64_t C = p->w[0].C;
    return grid_rows(l, p->x.rows) <= ROWS && C > LEAST && C <= MOST && p->x.type == GPU_F32 &&
           p->normed.type == GPU_BF16 && p->x.pitch % 4 == 0 &&
           ((uintptr_t)p->x.data | (uintptr_t)p->norm.data) % 16 == 0;
}

// The shared memory of a block of product_mma<TILES, FORM, gated>: n_sums buffers of sums (two, or one if two
// do not fit in `limit` bytes), the buffers of x, and the weights of the norm.
struct mma_memory {
    x_shape shape;
    int32_t n_sums, bytes;
};
template <int TILES, typename FORM>
static mma_memory mma_memory_of(const gpu_launch *l, const gpu_product *p, int32_t limit) {
    enum {
        SLOTS = TILES > 1 ? FORM::DEPTH / TILES : FORM::DEPTH_OF_8_ROWS,
        STEP = (SLOTS > 1 ? SLOTS : 1) * FORM::TILES_K * MMA_K
    };
    const int32_t bound = grid_rows(l, p->x.rows), rows = bound < 8 * TILES ? bound : 8 * TILES;
    mma_memory m = {shape_of(p->w[0].C, rows, STEP), 2, 0};
    const int32_t sums = (p->gate != GPU_NO_GATE ? 2 : 1) * MMA_SEGMENTS * TILES * MMA_ROWS *
                         (MMA_OUTPUTS + 1) * (int32_t)sizeof(float),
                  norm = p->norm.data ? (int32_t)p->w[0].C * (p->norm.type == GPU_F32 ? 4 : 2) : 0,
                  rest = m.shape.buffer_bytes * m.shape.n_buffers * MMA_SEGMENTS + norm;
    if (2 * sums + rest > limit) m.n_sums = 1;
    m.bytes = m.n_sums * sums + rest;
    return m;
}

template <int TILES, typename FORM, bool TAIL>
static void launch_tail(const gpu_launch *l, const gpu_step *s, const gpu_product *p,
                        const tail_of<TAIL> &tail) {
    const int32_t bound = grid_rows(l, p->x.rows);
    const mma_memory m = mma_memory_of<TILES, FORM>(l, p, l->shared_limit);
    const auto kernel =
        p->gate != GPU_NO_GATE ? product_mma<TILES, FORM, true, TAIL> : product_mma<TILES, FORM, false, TAIL>;
    // An attribute of the kernel on the device, which all threads set to the same value: the threads of
    // several engines launch it with different sizes at the same time.
    if (m.bytes > 48 << 10)
        (void)cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   l->shared_limit);
    int each = 2; // blocks on a multiprocessor
    if (TAIL)
        (void)cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, 32 * MMA_SEGMENTS,
                                                            (size_t)m.bytes);
    const int32_t n_tiles = (int32_t)output_blocks(p, MMA_OUTPUTS), most = each * l->n_multiprocessors,
                  blocks = n_tiles < most ? n_tiles : most;
    const dim3 grid((unsigned)blocks, (unsigned)((bound + MMA_ROWS * TILES - 1) / (MMA_ROWS * TILES)));
    run(l, grid, 32 * MMA_SEGMENTS, (size_t)m.bytes, kernel, *s, *p, m.shape, m.n_sums, n_tiles, tail);
}
template <int TILES, typename FORM>
static void launch_tiles(const gpu_launch *l, const gpu_step *s, const gpu_product *p) {
    if constexpr (TILES == 1)
        if (p->tail) {
            launch_tail<TILES, FORM, true>(l, s, p, {*p->tail});
            *p->did_tail = true;
            return;
        }
    launch_tail<TILES, FORM, false>(l, s, p, {});
}
template <int TILES, typename FORM> static bool fits_tiles(const gpu_launch *l, const gpu_product *p) {
    return mma_memory_of<TILES, FORM>(l, p, l->shared_limit).bytes <= l->shared_limit;
}

// With 8 rows or fewer two blocks share a multiprocessor, whose memory is a little more than a block may
// have.
template <typename FORM>
static void launch_few(const gpu_launch *l, const gpu_step *s, const gpu_product *p) {
    if constexpr ((int)FORM::DEPTH_OF_8_ROWS > (int)FORM::DEPTH)
        if (mma_memory_of<1, FORM>(l, p, l->shared_limit).bytes > l->shared_limit / 2) {
            launch_tiles<1, shallow_form<FORM>>(l, s, p);
            return;
        }
    launch_tiles<1, FORM>(l, s, p);
}
// Takes as many rows at a time as the shared memory of a block has space for.
template <typename FORM>
static void launch_form(const gpu_launch *l, const gpu_step *s, const gpu_product *p) {
    const int32_t rows = grid_rows(l, p->x.rows);
    if (rows > 16 && fits_tiles<4, FORM>(l, p)) launch_tiles<4, FORM>(l, s, p);
    else if (rows > 8 && fits_tiles<2, FORM>(l, p)) launch_tiles<2, FORM>(l, s, p);
    else launch_few<FORM>(l, s, p);
}

#if GPU_CODE_BITS == 0
static void launch_mma(const gpu_launch *l, const gpu_step *s, const gpu_product *p) {
    if (p->w[0].C % 64 == 0) launch_form<dense_form<64>>(l, s, p);
    else launch_form<dense_form<32>>(l, s, p);
}
#elif GPU_CODE_BITS == 16
static void launch_mma(const gpu_launch *l, const gpu_step *s, const gpu_product *p) {
    if (p->w[0].C % 64 == 0) launch_form<half_form<64>>(l, s, p);
    else launch_form<half_form<32>>(l, s, p);
}
#elif GPU_CODE_BITS == 4 || GPU_CODE_BITS == 8
template <int SCALES> static void launch_words(const gpu_launch *l, const gpu_step *s, const gpu_product *p) {
    enum { BITS = GPU_CODE_BITS };
    const bool small_groups = p->w[0].group == 32;
    if (p->w[0].C % 64 || (small_groups && BITS == 8)) launch_form<words_form<BITS, 32, 1, SCALES>>(l, s, p);
#if GPU_CODE_BITS == 4
    else if (small_groups) launch_form<words_form<BITS, 64, 2, SCALES>>(l, s, p);
#endif
    else launch_form<words_form<BITS, 64, 1, SCALES>>(l, s, p);
}
static void launch_mma(const gpu_launch *l, const gpu_step *s, const gpu_product *p) {
    bool large = false;
    if (p->w[0].form == GPU_ROWS) { // groups of 16 columns
        launch_form<rows_form<GPU_CODE_BITS>>(l, s, p);
        return;
    }
    for (int i = 0; i < GPU_PRODUCTS && GPU_CODE_BITS == 4; i++) large |= p->w[i].large_scales;
    if (p->w[0].type != GPU_BF16) launch_words<ANY_SCALES>(l, s, p);
#if GPU_CODE_BITS == 4
    else if (large) launch_words<LARGE_SCALES>(l, s, p);
#else
    else if (p->w[0].numbers == GPU_E4M3) launch_words<FP8_SCALES>(l, s, p);
#endif
    else launch_words<SMALL_SCALES>(l, s, p);
}
#else
static void launch_mma(const gpu_launch *l, const gpu_step *s, const gpu_product *p) {
    launch_form<rows_form<GPU_CODE_BITS>>(l, s, p);
}
#endif
