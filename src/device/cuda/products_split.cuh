// Products of up to 64 bf16 rows with packed weights on compute capability 9.0, by wgmma, with the bits of
// products_wgmma.cuh. So few rows give too few tiles for all multiprocessors, so the columns are split:
//
// A cluster of 8 blocks computes 128 outputs (64 of a gated pair) of up to ROWS rows; block i computes the
// sums of segment i. Then each block reads the sums of 8 rows from all blocks, adds them in the order of the
// segments, and stores these rows. Warps 0..7 compute; one thread of warp 8 starts the copies.
#pragma once

#include "products_wgmma.cuh"

enum { SPLIT_THREADS = 288 };

// The shared memory of a block: stages of x and of weights, then barriers. The sums [ROWS / 2][256] take the
// place of the stages.
template <int ROWS, int FORM> struct split_shape {
    enum {
        PANEL = FORM == WG_DENSE ? 2048 : 512,
        X_BYTES = ROWS * WG_COLUMNS * 2,
        W_BYTES = WG_OUTPUTS / 16 * PANEL,
        BLOCKS = ROWS <= 64 ? 2 : 1, // on a multiprocessor
        FIT = (WG_SHARED / BLOCKS - 1024) / (X_BYTES + W_BYTES),
        STAGES = FIT < 8 ? FIT : 8,
        W_AT = STAGES * X_BYTES,
        BARRIERS_AT = W_AT + STAGES * W_BYTES,
        BYTES = BARRIERS_AT + 2 * STAGES * 8
    };
    static_assert((int)BARRIERS_AT >= WG_OUTPUTS * ROWS * 4, "the sums fit in the stages");
};

// Copies stages [k, end). Weights do not depend on the kernel before, so the first are fetched ahead of it.
template <int ROWS, int FORM, bool GATED>
__device__ inline void split_produce(const wg_maps &maps, const wg_tile &t, char *memory, int32_t k,
                                     int32_t end) {
    typedef split_shape<ROWS, FORM> S;
    uint64_t *full = (uint64_t *)(memory + S::BARRIERS_AT), *empty = full + S::STAGES;
    const int32_t panel = (int32_t)(t.d0 / 16);
    auto copy_weights = [&](int slot, int32_t stage) {
        char *w = memory + S::W_AT + slot * S::W_BYTES;
        barrier_expect(full + slot, S::X_BYTES + S::W_BYTES);
        copy_box(w, &maps.w[t.which], stage * (S::PANEL / 8), panel, full + slot);
        if (GATED) copy_box(w + S::W_BYTES / 2, &maps.w[1], stage * (S::PANEL / 8), panel, full + slot);
    };
    const int32_t ahead = end - k < S::STAGES ? end - k : (int32_t)S::STAGES;
    for (int32_t i = 0; i < ahead; i++) copy_weights(i, k + i);
    wait_for_inputs();
    wg_ring<S::STAGES> ring;
    for (int32_t i = 0; k + i < end; i++, ring.next()) {
        if (i >= ahead) {
            barrier_wait(empty + ring.slot, ring.parity ^ 1);
            copy_weights(ring.slot, k + i);
        }
        copy_box(memory + ring.slot * S::X_BYTES, &maps.x, (k + i) * WG_COLUMNS, t.r0, full + ring.slot);
    }
}

// The sums of stages [k, end), to memory as [i][thread].
template <int ROWS, int FORM, bool GATED>
__device__ inline void split_sums(const gpu_product &p, const wg_tile &t, char *memory, int32_t k,
                                  int32_t end) {
    typedef split_shape<ROWS, FORM> S;
    uint64_t *empty = (uint64_t *)(memory + S::BARRIERS_AT) + S::STAGES;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int32_t n_stages = (int32_t)(p.w[0].C / WG_COLUMNS);
    const int shift = p.w[0].group == 128 ? 2 : p.w[0].group == 64;
    int64_t panel;
    const gpu_weight &w = panel_of<GATED>(p, t, warp, &panel);
    const char *scales = NULL;
    if (FORM != WG_DENSE) scales = (const char *)w.scales + panel * (w.C / w.group) * 64;
    wg_scales<FORM> next = {};
    next.load(scales, k, shift, lane / 4);
    wg_ring<S::STAGES> ring;
    float sum[ROWS / 2];
    sum_segment<S, FORM>(memory, ring, scales, shift, n_stages, k, end, warp, next, sum, [&](int slot) {
        if (lane == 0) barrier_arrive(empty + slot, cluster_rank());
    });
    barrier_of<1, 256>(0); // all have read the stages
    float *to = (float *)memory + threadIdx.x;
#pragma unroll
    for (int i = 0; i < ROWS / 2; i++) to[i * 256] = sum[i];
}

// The total of a sum over the segments that have columns. at: its address in each block.
__device__ inline float add_segments(const float *at, int32_t n_stages) {
    float part[WG_SEGMENTS], total = 0;
#pragma unroll
    for (int i = 0; i < WG_SEGMENTS; i++) part[i] = load_of_cluster(at, (uint32_t)i);
#pragma unroll
    for (int i = 0; i < WG_SEGMENTS; i++)
        if (segment_end(n_stages, i) > segment_end(n_stages, i - 1)) total = total + part[i];
    return total;
}

// Adds up and stores 8 rows from 8 j on.
template <bool GATED>
__device__ inline void split_store(const gpu_product &p, const wg_tile &t, const char *memory, int32_t live,
                                   int j) {
    const int group = (int)threadIdx.x / 128, warp = (int)threadIdx.x / 32 % 4, g = (int)threadIdx.x % 32 / 4;
    const int32_t n_stages = (int32_t)(p.w[0].C / WG_COLUMNS), r = t.r0 + 8 * j + (int)threadIdx.x % 4 * 2;
    const int64_t D = p.w[t.which].D, d = t.d0 + (GATED ? 0 : 64 * group) + 16 * warp + g;
    const float *at = (const float *)memory + 4 * j * 256 + threadIdx.x;
    if ((GATED && group > 0) || t.r0 + 8 * j >= live) return;
    float v[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        v[i] = add_segments(at + i * 256, n_stages);
        if (GATED) v[i] = activation(p.gate, v[i]) * add_segments(at + i * 256 + 128, n_stages);
    }
    if (!GATED && p.bias[t.which].data) add_bias<4>(p.bias[t.which], d, D, v);
    store_sums<4>(p.y[t.which], GATED ? gpu_array{} : p.residual, r, live, d, D, v);
}

template <int ROWS, int FORM, bool GATED>
__global__ void __launch_bounds__(SPLIT_THREADS, split_shape<ROWS, FORM>::BLOCKS)
    product_split(gpu_step s, gpu_product p, const __grid_constant__ wg_maps maps) {
    extern __shared__ __align__(1024) char memory[];
    typedef split_shape<ROWS, FORM> S;
    uint64_t *full = (uint64_t *)(memory + S::BARRIERS_AT), *empty = full + S::STAGES;
    let_next_begin();
    if (threadIdx.x == 0) {
        for (int i = 0; i < S::STAGES; i++) {
            barrier_init(full + i, 1);
            barrier_init(empty + i, 8); // of each warp that computes
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    const int32_t n_stages = (int32_t)(p.w[0].C / WG_COLUMNS), rank = (int32_t)cluster_rank();
    const int32_t k = segment_end(n_stages, rank - 1), end = segment_end(n_stages, rank);
    const wg_tile t = tile_at<GATED>(p, blockIdx.x / WG_SEGMENTS, (int32_t)blockIdx.y * ROWS);
    if (threadIdx.x == 256) split_produce<ROWS, FORM, GATED>(maps, t, memory, k, end);
    __syncwarp();
    wait_for_inputs();
    if (threadIdx.x < 256 && k < end) split_sums<ROWS, FORM, GATED>(p, t, memory, k, end);
    __syncwarp();
    cluster_barrier();
    const int32_t live = live_rows(s, p.x.rows);
    if (threadIdx.x < 256)
        for (int j = rank; j < ROWS / 8; j += WG_SEGMENTS) split_store<GATED>(p, t, memory, live, j);
    __syncwarp();
    cluster_barrier(); // none leaves before all have read its sums
}

// ---- launch ----

enum { SPLIT_MOST = 64 }; // rows

template <int ROWS, int FORM, bool GATED>
static int launch_split_tiles(const gpu_launch *l, const gpu_step *s, const gpu_product *p) {
    typedef split_shape<ROWS, FORM> S;
    wg_maps maps;
    if (!map_operands(l, p, ROWS, S::PANEL, &maps)) return (int)cudaErrorInvalidValue;
    const unsigned blocks = WG_SEGMENTS * output_blocks(p, GATED ? WG_OUTPUTS / 2 : WG_OUTPUTS);
    return launch_cluster(l, WG_SEGMENTS, blocks, SPLIT_THREADS, S::BYTES, product_split<ROWS, FORM, GATED>,
                          s, p, maps);
}
template <int ROWS, int FORM>
static int launch_split_rows(const gpu_launch *l, const gpu_step *s, const gpu_product *p) {
    if (p->gate == GPU_NO_GATE) return launch_split_tiles<ROWS, FORM, false>(l, s, p);
    return launch_split_tiles<ROWS, FORM, true>(l, s, p);
}
template <int FORM> static int launch_split(const gpu_launch *l, const gpu_step *s, const gpu_product *p) {
    return launch_split_rows<64, FORM>(l, s, p);
}

template <int FORM> static cudaError_t open_split(cudaError_t e) {
    e = allow_shared(e, product_split<64, FORM, false>, split_shape<64, FORM>::BYTES);
    return allow_shared(e, product_split<64, FORM, true>, split_shape<64, FORM>::BYTES);
}
