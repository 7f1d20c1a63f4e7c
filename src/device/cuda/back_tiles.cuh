// dx = dy w on tensor cores, of bf16 rows of dy and a packed bf16 weight w [D, C] (fragments.cuh), which is
// read from the other side: there is no second copy of it.
//
// A block computes 128 columns of dx for 128 rows, as dx^T = w^T dy^T: a packed tile of 16 x 16 elements of
// w, each of whose four 8 x 8 blocks is transposed by movmatrix, is operand A of mma.sync.m16n8k16. Stages
// of 32 outputs d of both operands are copied to shared memory by cp.async: of w [2 tiles of d][8 of
// c][512 bytes], of dy [row][64 bytes], whose pieces of 16 bytes are permuted by row so that ldmatrix has no
// bank conflicts. A warp computes 32 columns of 64 rows. An element is one chain of mma over d ascending;
// `adds`: it is added to what dx has.
#pragma once

#include "attention_mma.cuh"
#include "fragments.cuh"

enum {
    BACK_ROWS = 128,
    BACK_COLUMNS = 128,
    BACK_THREADS = 256,
    BACK_STAGES = 4,
    BACK_OPERAND = 128 * 64, // bytes of a stage of one operand
    BACK_SHARED = 2 * BACK_STAGES * BACK_OPERAND
};

__device__ inline uint32_t transposed(uint32_t a) {
    uint32_t d;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(d) : "r"(a));
    return d;
}
// Copies `bytes` of 16 bytes to shared memory, and zeros for the others.
__device__ inline void copy_part(void *to, const void *from, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(bytes)
                 : "memory");
}

// The address of the lane's 16 bytes of 8 rows of dy, for load_matrices.
__device__ inline uint32_t back_rows_at(const char *rows, int row0) {
    const int lane = (int)threadIdx.x % 32, row = row0 + lane % 8;
    return shared_address(rows + row * 64 + (lane / 8 ^ (row / 2 % 4)) * 16);
}

// What a thread copies to each stage: two pieces of 16 bytes of each operand.
struct back_copies {
    const gpu_weight &w;
    const gpu_array &dy;
    int64_t c_tile; // the first tile of columns
    int32_t r0, live;

    __device__ void start(char *tiles, int64_t stage, int64_t n_stages) const {
        if (stage < n_stages) {
            char *to = tiles + stage % BACK_STAGES * 2 * BACK_OPERAND;
            const int64_t d_tiles = (w.D + TILE_ROWS - 1) / TILE_ROWS, c_tiles = w.C / MMA_K;
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int n = i * BACK_THREADS + (int)threadIdx.x, tile = n / 32, row = n / 4, piece = n % 4;
                const int64_t d = stage * 2 + tile / 8, c = c_tile + tile % 8, first = stage * 32 + piece * 8;
                const bool has_w = d < d_tiles && c < c_tiles, has_row = r0 + row < live && first < w.D;
                copy_part(to + n * 16,
                          (const char *)w.data + (has_w ? ((d * c_tiles + c) * 32 + n % 32) * 16 : 0),
                          has_w ? 16 : 0);
                copy_part(to + BACK_OPERAND + row * 64 + (piece ^ (row / 2 % 4)) * 16,
                          (const uint16_t *)dy.data + (has_row ? (r0 + row) * dy.pitch + first : 0),
                          !has_row           ? 0
                          : w.D - first >= 8 ? 16
                                             : (int)(w.D - first) * 2);
            }
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
};

__global__ void __launch_bounds__(BACK_THREADS)
    back_tiles(gpu_step s, gpu_array dy, gpu_weight w, gpu_array dx, bool adds) {
    extern __shared__ __align__(128) char back_shared[];
    begin();
    const int32_t live = live_rows(s, dx.rows), r0 = (int32_t)blockIdx.y * BACK_ROWS;
    if (r0 >= live) return;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, m0 = warp / 2 * 32,
              n0 = warp % 2 * 64;
    const int64_t n_stages = (w.D + 31) / 32;
    const back_copies copies = {w, dy, (int64_t)blockIdx.x * (BACK_COLUMNS / MMA_K), r0, live};
    float sum[2][8][4] = {};
    for (int i = 0; i < BACK_STAGES - 1; i++) copies.start(back_shared, i, n_stages);
    for (int64_t stage = 0; stage < n_stages; stage++) {
        asm volatile("cp.async.wait_group %0;" ::"n"(BACK_STAGES - 2) : "memory");
        __syncthreads();
        copies.start(back_shared, stage + BACK_STAGES - 1, n_stages);
        const char *base = back_shared + stage % BACK_STAGES * 2 * BACK_OPERAND;
        uint32_t x[8][4];
#pragma unroll
        for (int j = 0; j < 8; j++) load_matrices(x[j], back_rows_at(base + BACK_OPERAND, n0 + 8 * j));
#pragma unroll
        for (int k = 0; k < 2; k++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const uint4 t = *(const uint4 *)(base + ((k * 8 + m0 / 16 + i) * 32 + lane) * 16);
                const uint32_t a[4] = {transposed(t.x), transposed(t.z), transposed(t.y), transposed(t.w)};
#pragma unroll
                for (int j = 0; j < 8; j++) multiply(sum[i][j], a, x[j][2 * k], x[j][2 * k + 1]);
            }
    }
    asm volatile("cp.async.wait_group 0;" ::: "memory");
#pragma unroll
    for (int i = 0; i < 64; i++) {
        const int row = r0 + n0 + 8 * (i / 4 % 8) + lane % 4 * 2 + i % 2;
        const int64_t c = (int64_t)blockIdx.x * BACK_COLUMNS + m0 + 16 * (i / 32) + lane / 4 + i % 4 / 2 * 8;
        const float v = sum[i / 32][i / 4 % 8][i % 4];
        if (row < live && c < w.C) store_at(dx, row, c, adds ? load_at(dx, row, c) + v : v);
    }
}
