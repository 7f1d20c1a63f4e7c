// Products of up to 64 bf16 rows with packed weights and few outputs on compute capability 9.0, by wgmma,
// with the bits of products_wgmma.cuh. They have too few tiles of 128 outputs for all multiprocessors, so the
// columns are split:
//
// A cluster of PARTS blocks computes 128 outputs (64 of a gated pair); block i computes the sums of segments
// [i, i + 1) 8 / PARTS and leaves them in its shared memory. Then each block reads the sums of some rows from
// all blocks, adds them in the order of the segments, and stores these rows. Warps 0..7 compute; one thread
// of warp 8 starts the copies.
//
// A cluster begins only when all of its blocks fit into one GPC. On an H200
// (cudaOccupancyMaxActiveClusters) 30 clusters of 8 such blocks run at a time, or 66 of 2 that have a
// multiprocessor for themselves.
#pragma once

#include "products_wgmma.cuh"

enum { SPLIT_ROWS = 64 };

// The shared memory of a block: stages of x, of weights, and of scales, then barriers. The sums of the
// block's segments take the place of the stages: [segment][8 rows][256 threads] of 4.
template <int FORM, int PARTS> struct split_shape {
    enum {
        OUTPUTS = WG_OUTPUTS,
        SEGMENTS = WG_SEGMENTS / PARTS,
        BLOCKS = SEGMENTS > 1 ? 1 : 2, // on a multiprocessor
        THREADS = BLOCKS == 1 ? 384 : 288,
        PANEL = wg_panel(FORM),
        X_BYTES = SPLIT_ROWS * WG_COLUMNS * 2,
        W_BYTES = OUTPUTS / 16 * PANEL,
        S_BYTES = FORM == WG_DENSE ? 0 : OUTPUTS / 16 * 128,
        FIT = (WG_SHARED / BLOCKS - 1024) / (X_BYTES + W_BYTES + S_BYTES),
        MOST = BLOCKS == 1 ? 12 : 8,
        STAGES = FIT < MOST ? FIT : MOST,
        W_AT = STAGES * X_BYTES,
        SCALES_AT = W_AT + STAGES * W_BYTES,
        BARRIERS_AT = SCALES_AT + STAGES * S_BYTES,
        BYTES = BARRIERS_AT + 2 * STAGES * 8,
        SEGMENT_SUMS = SPLIT_ROWS / 8 * 256 // of 4
    };
    static_assert((int)BARRIERS_AT >= SEGMENTS * SEGMENT_SUMS * 16, "the sums fit in the stages");
};

// Copies stages [k, end). Weights do not depend on the kernel before, so the first are fetched before it
// ends.
template <int FORM, bool GATED, int PARTS>
__device__ inline void split_produce(const gpu_product &p, const wg_maps &maps, const wg_tile &t,
                                     char *memory, int32_t k, int32_t end) {
    typedef split_shape<FORM, PARTS> S;
    uint64_t *full = (uint64_t *)(memory + S::BARRIERS_AT), *empty = full + S::STAGES;
    const int32_t ahead = end - k < S::STAGES ? end - k : (int32_t)S::STAGES;
    for (int32_t i = 0; i < ahead; i++) copy_weights<S, FORM, GATED>(p, maps, t, memory, i, k + i, full + i);
    wait_for_inputs();
    wg_ring<S::STAGES> ring;
    for (int32_t i = 0; k + i < end; i++, ring.next()) {
        uint64_t *b = full + ring.slot;
        if (i >= ahead) {
            barrier_wait(empty + ring.slot, ring.parity ^ 1);
            copy_weights<S, FORM, GATED>(p, maps, t, memory, ring.slot, k + i, b);
        }
        copy_box(memory + ring.slot * S::X_BYTES, &maps.x, (k + i) * WG_COLUMNS, t.r0, b);
    }
}

// Leaves the sums of this block's segments in its memory.
template <int FORM, int PARTS>
__device__ inline void split_sums(const gpu_product &p, char *memory, int32_t n_stages, int32_t part) {
    typedef split_shape<FORM, PARTS> S;
    uint64_t *empty = (uint64_t *)(memory + S::BARRIERS_AT) + S::STAGES;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    float sum[S::SEGMENTS][SPLIT_ROWS / 2] = {};
    wg_ring<S::STAGES> ring;
#pragma unroll
    for (int i = 0; i < S::SEGMENTS; i++) {
        const int segment = part * S::SEGMENTS + i;
        const int32_t k = segment_end(n_stages, segment - 1), end = segment_end(n_stages, segment);
        if (k < end)
            sum_segment<S, FORM>(memory, ring, scale_bytes(p.w[0]), k, end, warp, sum[i], [&](int slot) {
                if (lane == 0) barrier_arrive(empty + slot, cluster_rank());
            });
    }
    compute_barrier<256>(); // all have read the stages
    float4 *to = (float4 *)memory + threadIdx.x;
#pragma unroll
    for (int i = 0; i < S::SEGMENTS; i++)
#pragma unroll
        for (int j = 0; j < SPLIT_ROWS / 8; j++)
            to[i * S::SEGMENT_SUMS + j * 256] =
                make_float4(sum[i][4 * j], sum[i][4 * j + 1], sum[i][4 * j + 2], sum[i][4 * j + 3]);
}

// The totals of four sums over the segments that have columns: those of number `at` in the sums of a segment.
template <int FORM, int PARTS>
__device__ inline void add_segments(const char *memory, int32_t n_stages, int at, float v[4]) {
    typedef split_shape<FORM, PARTS> S;
    float4 sum[WG_SEGMENTS];
#pragma unroll
    for (int i = 0; i < WG_SEGMENTS; i++)
        sum[i] = load_of_cluster((const float4 *)memory + i % S::SEGMENTS * S::SEGMENT_SUMS + at,
                                 (uint32_t)(i / S::SEGMENTS));
    v[0] = v[1] = v[2] = v[3] = 0;
#pragma unroll
    for (int i = 0; i < WG_SEGMENTS; i++) {
        if (segment_end(n_stages, i) == segment_end(n_stages, i - 1)) continue;
        v[0] = v[0] + sum[i].x, v[1] = v[1] + sum[i].y, v[2] = v[2] + sum[i].z, v[3] = v[3] + sum[i].w;
    }
}

// Adds the segments of 8 rows, those from 8 j on, and stores them. Of a gated pair, 128 threads do it.
template <int FORM, bool GATED, int PARTS>
__device__ inline void split_store(const gpu_product &p, const wg_tile &t, const char *memory, int32_t live,
                                   int j) {
    const int tid = (int)threadIdx.x % (GATED ? 128 : 256);
    const int32_t n_stages = (int32_t)(p.w[0].C / WG_COLUMNS), r = t.r0 + 8 * j + tid % 4 * 2;
    const int64_t D = p.w[t.which].D, d = t.d0 + tid / 32 * 16 + tid % 32 / 4;
    float v[4], up[4];
    if (t.r0 + 8 * j >= live) return;
    add_segments<FORM, PARTS>(memory, n_stages, j * 256 + tid, v);
    if (GATED) {
        add_segments<FORM, PARTS>(memory, n_stages, j * 256 + tid + 128, up);
#pragma unroll
        for (int i = 0; i < 4; i++) v[i] = activation(p.gate, v[i]) * up[i];
    } else if (p.bias[t.which].data) add_bias<4>(p.bias[t.which], d, D, v);
    store_sums<4>(p.y[t.which], GATED ? gpu_array{} : p.residual, r, live, d, D, v);
}

// Adds the segments of the rows of this block, and stores them.
template <int FORM, bool GATED, int PARTS>
__device__ inline void split_rows(const gpu_product &p, const wg_tile &t, const char *memory, int32_t live,
                                  int32_t part) {
    // Of a gated pair, the two halves of the threads take rows in turn.
    const int half = GATED ? (int)threadIdx.x / 128 : 0, halves = GATED ? 2 : 1;
    for (int j = part + half * PARTS; j < SPLIT_ROWS / 8; j += PARTS * halves)
        split_store<FORM, GATED, PARTS>(p, t, memory, live, j);
}

template <int FORM, bool GATED, int PARTS>
__global__ void __launch_bounds__(split_shape<FORM, PARTS>::THREADS, split_shape<FORM, PARTS>::BLOCKS)
    product_split(gpu_step s, gpu_product p, const __grid_constant__ wg_maps maps) {
    extern __shared__ __align__(1024) char memory[];
    typedef split_shape<FORM, PARTS> S;
    uint64_t *full = (uint64_t *)(memory + S::BARRIERS_AT), *empty = full + S::STAGES;
    let_next_begin();
    if (threadIdx.x == 256) {
        for (int i = 0; i < S::STAGES; i++) {
            barrier_init(full + i, 1);
            barrier_init(empty + i, 8); // an arrival of each warp that computes
        }
        asm volatile("fence.mbarrier_init.release.cluster; fence.proxy.async;" ::: "memory");
    }
    __syncthreads();
    const int32_t n_stages = (int32_t)(p.w[0].C / WG_COLUMNS), part = (int32_t)cluster_rank(),
                  live = live_rows(s, p.x.rows);
    const int32_t k = segment_end(n_stages, part * S::SEGMENTS - 1),
                  end = segment_end(n_stages, (part + 1) * S::SEGMENTS - 1);
    const wg_tile t = tile_at<GATED, WG_OUTPUTS>(p, blockIdx.x / PARTS, 0);
    if (threadIdx.x >= 256) {
        if (S::BLOCKS == 1) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 256) split_produce<FORM, GATED, PARTS>(p, maps, t, memory, k, end);
        __syncwarp();
        cluster_barrier();
    } else {
        if (S::BLOCKS == 1) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        wait_for_inputs();
        split_sums<FORM, PARTS>(p, memory, n_stages, part);
        __syncwarp();
        cluster_barrier();
        split_rows<FORM, GATED, PARTS>(p, t, memory, live, part);
    }
    __syncwarp();
    cluster_barrier(); // none leaves before all have read its sums
}

// ---- launch ----

template <int FORM, bool GATED, int PARTS>
static int launch_parts(const gpu_launch *l, const gpu_step *s, const gpu_product *p) {
    typedef split_shape<FORM, PARTS> S;
    wg_maps maps;
    if (!map_operands(l, p, SPLIT_ROWS, S::PANEL, WG_OUTPUTS, &maps)) return (int)cudaErrorInvalidValue;
    const unsigned blocks = PARTS * output_blocks(p, GATED ? WG_OUTPUTS / 2 : WG_OUTPUTS);
    return launch_cluster(l, PARTS, blocks, S::THREADS, S::BYTES, product_split<FORM, GATED, PARTS>, s, p,
                          maps);
}

// Chooses what was the fastest on an H200 for the products of models of 0.6 and 8 billion parameters: tiles
// of all columns where each multiprocessor has one, or where the columns are few; else parts of the columns,
// more of them where the tiles are few.
template <int FORM, bool GATED>
static int launch_few_rows_of(const gpu_launch *l, const gpu_step *s, const gpu_product *p) {
    enum { FEW_TILES = FORM == WG_DENSE ? 24 : 32, FEW_COLUMNS = 1024 };
    const unsigned tiles = output_blocks(p, GATED ? WG_OUTPUTS / 2 : WG_OUTPUTS);
    if (tiles >= (unsigned)l->n_multiprocessors)
        return launch_tiles<SPLIT_ROWS, FORM, GATED, WG_MORE_OUTPUTS>(l, s, p);
    if (p->w[0].C <= FEW_COLUMNS) return launch_tiles<SPLIT_ROWS, FORM, GATED, WG_OUTPUTS>(l, s, p);
    if (tiles <= FEW_TILES && l->clusters >= 8) return launch_parts<FORM, GATED, 8>(l, s, p);
    return launch_parts<FORM, GATED, 2>(l, s, p);
}
// Products of up to SPLIT_ROWS rows.
template <int FORM> static int launch_few_rows(const gpu_launch *l, const gpu_step *s, const gpu_product *p) {
    if (p->gate == GPU_NO_GATE) return launch_few_rows_of<FORM, false>(l, s, p);
    return launch_few_rows_of<FORM, true>(l, s, p);
}

template <int FORM, bool GATED> static cudaError_t open_few_rows_of(cudaError_t e) {
    e = allow_tiles<SPLIT_ROWS, FORM, GATED, WG_OUTPUTS>(e);
    e = allow_tiles<SPLIT_ROWS, FORM, GATED, WG_MORE_OUTPUTS>(e);
    e = allow_shared(e, product_split<FORM, GATED, 8>, split_shape<FORM, 8>::BYTES);
    return allow_shared(e, product_split<FORM, GATED, 2>, split_shape<FORM, 2>::BYTES);
}
template <int FORM> static cudaError_t open_few_rows(cudaError_t e) {
    return open_few_rows_of<FORM, true>(open_few_rows_of<FORM, false>(e));
}
