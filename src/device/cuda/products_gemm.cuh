// Products of many bf16 rows with bf16 weights: tiles in shared memory, with the bits of products_mma.cuh.
//
// A block computes 128 outputs of 128 rows, of a gated pair 64 outputs of both weights. Stages of two chunks
// of both operands come by cp.async: of the packed weight (fragments.cuh) [8 tiles][2 KB], of x
// [chunk][row][64 bytes], whose pieces of 16 bytes are permuted by row so that ldmatrix has no bank
// conflicts. A warp computes 64 outputs of 32 rows:
//
//     for each stage: for each chunk: 4 x 4 fragments, two mma each
//     at the end of each of the 8 segments: total += sum, sum = 0
//
// Segments and the order of a sum are those of products_mma.cuh.
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

template <bool GATED>
__global__ void __launch_bounds__(GEMM_THREADS, 1) product_gemm(gpu_step s, gpu_product p) {
    extern __shared__ __align__(128) char tiles[];
    begin();
    const int32_t live = live_rows(s, p.x.rows), r0 = (int32_t)blockIdx.y * GEMM_TILE;
    if (r0 >= live) return;
    enum { OUTPUTS = GATED ? GEMM_TILE / 2 : GEMM_TILE };
    int32_t which = 0;
    const int64_t d0 = first_output(p, OUTPUTS, &which), D = p.w[which].D, C = p.w[which].C,
                  n_chunks = C / CHUNK;
    const int warp = (int)threadIdx.x / 32, g = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;
    const int m0 = warp / 4 * 64, n0 = warp % 4 * 32, piece = (int)threadIdx.x % 8;
    const char *source[2][4]; // of this thread's pieces of both operands
    bool live_row[4], exists[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int row = (int)threadIdx.x / 8 + 32 * i, tile = (int)threadIdx.x / 128 + 2 * i;
        const gpu_weight &w = p.w[GATED ? tile * TILE_ROWS / OUTPUTS : which];
        const int64_t d = d0 + tile * TILE_ROWS % OUTPUTS;
        exists[i] = d < D;
        live_row[i] = r0 + row < live;
        source[0][i] = (const char *)w.data + (exists[i] ? d : 0) * C * 2 + threadIdx.x % 128 * 16;
        source[1][i] = (const char *)p.x.data + (live_row[i] ? r0 + row : r0) * p.x.pitch * 2 + piece * 16;
    }
    const int64_t n_stages = (n_chunks + GEMM_STAGE_CHUNKS - 1) / GEMM_STAGE_CHUNKS;
    auto load = [&](int64_t stage) {
        if (stage < n_stages) {
            char *to = tiles + stage % GEMM_STAGES * 2 * GEMM_OPERAND;
            const bool has_w = stage * GEMM_STAGE_CHUNKS + (int)threadIdx.x % 128 / 64 < n_chunks,
                       has_x = stage * GEMM_STAGE_CHUNKS + piece / 4 < n_chunks;
            const int64_t tile = stage * GEMM_STAGE_CHUNKS * CHUNK * 2;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int row = (int)threadIdx.x / 8 + 32 * i;
                copy_async(to + threadIdx.x * 16 + i * GEMM_THREADS * 16,
                           source[0][i] + (has_w ? tile * TILE_ROWS : 0), has_w && exists[i]);
                copy_async(to + GEMM_OPERAND + (piece / 4 * GEMM_TILE + row) * 64 +
                               (piece % 4 ^ (row / 2 % 4)) * 16,
                           source[1][i] + (has_x ? tile : 0), has_x && live_row[i]);
            }
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    float sum[4][4][4] = {}, total[4][4][4] = {};
    int segment = 0;
    int64_t end = segment_start(C, 1) / CHUNK;
    auto close_segments = [&](int64_t chunk) { // those that end before this chunk
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
    };
    for (int i = 0; i < GEMM_STAGES - 1; i++) load(i);
    for (int64_t stage = 0; stage < n_stages; stage++) {
        asm volatile("cp.async.wait_group %0;" ::"n"(GEMM_STAGES - 2) : "memory");
        __syncthreads();
        load(stage + GEMM_STAGES - 1);
        const char *base = tiles + stage % GEMM_STAGES * 2 * GEMM_OPERAND;
#pragma unroll
        for (int c = 0; c < GEMM_STAGE_CHUNKS; c++) {
            const int64_t chunk = stage * GEMM_STAGE_CHUNKS + c;
            if (chunk >= n_chunks) break;
            close_segments(chunk);
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
    }
    close_segments(n_chunks);
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    // the second product of a gated pair comes by way of shared memory, [row][output]
    float *other = (float *)tiles;
    enum { PITCH = OUTPUTS + 1 };
    if (GATED && m0 > 0) {
#pragma unroll
        for (int i = 0; i < 64; i++)
            other[(n0 + 8 * (i / 4 % 4) + 2 * t + i % 2) * PITCH + 16 * (i / 16) + g + i % 4 / 2 * 8] =
                total[i / 16][i / 4 % 4][i % 4];
    }
    if (GATED) __syncthreads();
    if (GATED && m0 > 0) return;
#pragma unroll
    for (int i = 0; i < 64; i++) {
        const int row = n0 + 8 * (i / 4 % 4) + 2 * t + i % 2, col = m0 + 16 * (i / 16) + g + i % 4 / 2 * 8;
        if (r0 + row < live && d0 + col < D)
            store_output<GATED>(p, which, r0 + row, d0 + col, total[i / 16][i / 4 % 4][i % 4],
                                GATED ? other[row * PITCH + col] : 0.0f);
    }
}

static inline void launch_gemm(const gpu_launch *l, const gpu_step *s, const gpu_product *p) {
    const bool gated = p->gate != GPU_NO_GATE;
    const dim3 grid(output_blocks(p, gated ? GEMM_TILE / 2 : GEMM_TILE),
                    (unsigned)((grid_rows(l, p->x.rows) + GEMM_TILE - 1) / GEMM_TILE));
    if (gated) run(l, grid, GEMM_THREADS, GEMM_SHARED, product_gemm<true>, *s, *p);
    else run(l, grid, GEMM_THREADS, GEMM_SHARED, product_gemm<false>, *s, *p);
}
