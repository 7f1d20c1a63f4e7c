// Products of many bf16 rows with bf16 weights: tiles in shared memory, with the bits of products_mma.cuh.
//
// A block computes 128 outputs of 128 rows, of a gated pair 64 outputs of both weights. Stages of two chunks
// of both operands are copied to shared memory by cp.async: of the packed weight (fragments.cuh) [8 tiles][2
// KB], of x [chunk][row][64 bytes], whose pieces of 16 bytes are permuted by row so that ldmatrix has no bank
// conflicts. A warp computes 64 outputs of 32 rows:
//
//     for each stage: for each chunk: 4 x 4 fragments, two mma each
//     at the end of each of the 8 segments: total += sum, sum = 0
//
// products_mma.cuh has the segments and the order of a sum.
#pragma once

#include "products_mma.cuh"

enum { GEMM_TILE = 128, GEMM_THREADS = 256, GEMM_STAGES = 3, GEMM_STAGE_CHUNKS = 2 };
// Bytes of a stage of one operand, and of the shared memory of a block.
enum { GEMM_OPERAND = GEMM_STAGE_CHUNKS * GEMM_TILE * 64, GEMM_SHARED = 2 * GEMM_STAGES * GEMM_OPERAND };

// Copies 16 bytes to shared memory; zeros where the source does not exist.
__device__ inline void copy_async(void *to, const void *from, bool exists) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((uint32_t)
                                                                           __cvta_generic_to_shared(to)),
                 "l"(from), "r"(exists ? 16 : 0));
}

// Where the lane's 16 bytes of 8 rows of x begin, for load_matrices.
__device__ inline uint32_t matrices_at(const char *rows, int row0) {
    const int lane = (int)threadIdx.x % 32, row = row0 + lane % 8;
    return (uint32_t)__cvta_generic_to_shared(rows + row * 64 + (lane / 8 ^ (row / 2 % 4)) * 16);
}

// The tile of a block: outputs d0.. of product `which`, rows r0.. of `live` ones. A warp has outputs m0.. and
// rows n0.. of it.
template <bool GATED> struct gemm_tile {
    enum { OUTPUTS = GATED ? GEMM_TILE / 2 : GEMM_TILE };
    int64_t d0, D, C;
    int32_t which, r0, live;
    int m0, n0;

    __device__ inline gemm_tile(const gpu_product &p, int32_t live_rows)
        : which(0), r0((int32_t)blockIdx.y * GEMM_TILE), live(live_rows) {
        const int warp = (int)threadIdx.x / 32;
        d0 = first_output(p, OUTPUTS, &which);
        D = p.w[which].D, C = p.w[which].C;
        m0 = warp / 4 * 64, n0 = warp % 4 * 32;
    }
    __device__ inline int64_t chunks(void) const { return C / CHUNK; }
    __device__ inline int64_t stages(void) const {
        return (chunks() + GEMM_STAGE_CHUNKS - 1) / GEMM_STAGE_CHUNKS;
    }
};

// The pieces of both operands that this thread copies to each stage.
template <bool GATED> struct gemm_copies {
    const char *weights[4], *x[4];
    bool exists[4], live_row[4]; // of weights, of x

    __device__ inline gemm_copies(const gpu_product &p, const gemm_tile<GATED> &t) {
        enum { OUTPUTS = gemm_tile<GATED>::OUTPUTS };
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int row = (int)threadIdx.x / 8 + 32 * i, tile = (int)threadIdx.x / 128 + 2 * i;
            const gpu_weight &w = p.w[GATED ? tile * TILE_ROWS / OUTPUTS : t.which];
            const int64_t d = t.d0 + tile * TILE_ROWS % OUTPUTS;
            exists[i] = d < t.D;
            live_row[i] = t.r0 + row < t.live;
            weights[i] = (const char *)w.data + (exists[i] ? d : 0) * t.C * 2 + threadIdx.x % 128 * 16;
            x[i] = (const char *)p.x.data + (live_row[i] ? t.r0 + row : t.r0) * p.x.pitch * 2 +
                   threadIdx.x % 8 * 16;
        }
    }
    // Begins to copy a stage, as one group of asynchronous copies.
    __device__ inline void start(const gemm_tile<GATED> &t, char *tiles, int64_t stage) const {
        if (stage < t.stages()) {
            const int piece = (int)threadIdx.x % 8;
            const int64_t n_chunks = t.chunks(), column = stage * GEMM_STAGE_CHUNKS * CHUNK * 2;
            char *to = tiles + stage % GEMM_STAGES * 2 * GEMM_OPERAND;
            const bool has_w = stage * GEMM_STAGE_CHUNKS + (int)threadIdx.x % 128 / 64 < n_chunks,
                       has_x = stage * GEMM_STAGE_CHUNKS + piece / 4 < n_chunks;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int row = (int)threadIdx.x / 8 + 32 * i;
                copy_async(to + threadIdx.x * 16 + i * GEMM_THREADS * 16,
                           weights[i] + (has_w ? column * TILE_ROWS : 0), has_w && exists[i]);
                copy_async(to + GEMM_OPERAND + (piece / 4 * GEMM_TILE + row) * 64 +
                               (piece % 4 ^ (row / 2 % 4)) * 16,
                           x[i] + (has_x ? column : 0), has_x && live_row[i]);
            }
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
};

// The sums of a warp: 4 x 4 blocks of 16 outputs and 8 rows; those of the present segment apart.
struct gemm_sums {
    float sum[4][4][4] = {}, total[4][4][4] = {};
    int segment = 0;
    int64_t end; // the chunk after the last of the segment

    // Adds up the segments that end before this chunk.
    __device__ inline void close_segments(int64_t C, int64_t chunk) {
        while (segment < MMA_SEGMENTS && chunk == end) {
#pragma unroll
            for (int i = 0; i < 64; i++) {
                float &y = total[i / 16][i / 4 % 4][i % 4], &x = sum[i / 16][i / 4 % 4][i % 4];
                y = y + x;
                x = 0;
            }
            segment++;
            end = segment_start(C, segment + 1) / CHUNK;
        }
    }
    // Multiplies chunk c of a stage, whose operands begin at `base`.
    __device__ inline void multiply(const char *base, int c, int m0, int n0) {
        const char *a = base + c * 1024 + threadIdx.x % 32 * 16,
                   *b = base + GEMM_OPERAND + c * GEMM_TILE * 64;
        uint32_t x[4][4];
#pragma unroll
        for (int j = 0; j < 4; j++) load_matrices(x[j], matrices_at(b, n0 + 8 * j));
#pragma unroll
        for (int k = 0; k < 2; k++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const uint4 w = *(const uint4 *)(a + (m0 / TILE_ROWS + i) * 2048 + k * 512);
                const uint32_t fragment[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
                for (int j = 0; j < 4; j++) mma_bf16(sum[i][j], fragment, x[j][2 * k], x[j][2 * k + 1]);
            }
    }
    // Row and output, in the tile, of element i of the sums.
    static __device__ inline int row_of(int i, int n0) {
        return n0 + 8 * (i / 4 % 4) + (int)threadIdx.x % 4 * 2 + i % 2;
    }
    static __device__ inline int output_of(int i, int m0) {
        return m0 + 16 * (i / 16) + (int)threadIdx.x % 32 / 4 + i % 4 / 2 * 8;
    }
};

// Stores the outputs. The second product of a gated pair comes by way of shared memory, [row][output].
template <bool GATED>
__device__ inline void gemm_store(const gpu_product &p, const gemm_tile<GATED> &t, float *other,
                                  const gemm_sums &sums) {
    enum { PITCH = gemm_tile<GATED>::OUTPUTS + 1 };
    if (GATED && t.m0 > 0) {
#pragma unroll
        for (int i = 0; i < 64; i++)
            other[sums.row_of(i, t.n0) * PITCH + sums.output_of(i, 0)] = sums.total[i / 16][i / 4 % 4][i % 4];
    }
    if (GATED) __syncthreads();
    if (GATED && t.m0 > 0) return;
#pragma unroll
    for (int i = 0; i < 64; i++) {
        const int row = sums.row_of(i, t.n0), col = sums.output_of(i, t.m0);
        if (t.r0 + row < t.live && t.d0 + col < t.D)
            store_output<GATED>(p, t.which, t.r0 + row, t.d0 + col, sums.total[i / 16][i / 4 % 4][i % 4],
                                GATED ? other[row * PITCH + col] : 0.0f);
    }
}

template <bool GATED>
__global__ void __launch_bounds__(GEMM_THREADS, 1) product_gemm(gpu_step s, gpu_product p) {
    extern __shared__ __align__(128) char tiles[];
    begin();
    const int32_t live = live_rows(s, p.x.rows);
    if ((int32_t)blockIdx.y * GEMM_TILE >= live) return;
    const gemm_tile<GATED> t(p, live);
    const gemm_copies<GATED> copies(p, t);
    const int64_t n_chunks = t.chunks(), n_stages = t.stages();
    gemm_sums sums;
    sums.end = segment_start(t.C, 1) / CHUNK;
    for (int i = 0; i < GEMM_STAGES - 1; i++) copies.start(t, tiles, i);
    for (int64_t stage = 0; stage < n_stages; stage++) {
        asm volatile("cp.async.wait_group %0;" ::"n"(GEMM_STAGES - 2) : "memory");
        __syncthreads();
        copies.start(t, tiles, stage + GEMM_STAGES - 1);
        const char *base = tiles + stage % GEMM_STAGES * 2 * GEMM_OPERAND;
#pragma unroll
        for (int c = 0; c < GEMM_STAGE_CHUNKS; c++) {
            const int64_t chunk = stage * GEMM_STAGE_CHUNKS + c;
            if (chunk >= n_chunks) break;
            sums.close_segments(t.C, chunk);
            sums.multiply(base, c, t.m0, t.n0);
        }
    }
    sums.close_segments(t.C, n_chunks);
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    gemm_store<GATED>(p, t, (float *)tiles, sums);
}

static inline void launch_gemm(const gpu_launch *l, const gpu_step *s, const gpu_product *p) {
    const bool gated = p->gate != GPU_NO_GATE;
    const dim3 grid(output_blocks(p, gated ? GEMM_TILE / 2 : GEMM_TILE),
                    (unsigned)((grid_rows(l, p->x.rows) + GEMM_TILE - 1) / GEMM_TILE));
    if (gated) run(l, grid, GEMM_THREADS, GEMM_SHARED, product_gemm<true>, *s, *p);
    else run(l, grid, GEMM_THREADS, GEMM_SHARED, product_gemm<false>, *s, *p);
}
