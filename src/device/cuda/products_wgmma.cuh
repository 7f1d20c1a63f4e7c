// Products of many bf16 rows with packed weights (fragments.cuh) on compute capability 9.0, by wgmma, with
// the bits of products_mma.cuh: wgmma adds the 16 columns of an instruction as mma.sync does.
//
// A block computes 128 outputs of ROWS rows; of a gated pair, 64 outputs of both weights. One thread of warps
// 0..3 starts the copies to shared memory; each of the two warpgroups behind computes 64 outputs:
//
//     operand A    the weight, from registers: packed weights are fragments already; codes are dequantised
//     operand B    x, [ROWS][64 columns] in shared memory with a 128-byte swizzle
//     for each of the 8 segments: sum = 0; for each stage of 64 columns: sum += A B; total += sum
//
// The two blocks of a cluster compute the same rows of different outputs, so each fetches one half of x for
// both. Blocks are persistent: a cluster takes every n-th tile.
#pragma once

#include "fragments.cuh"
#include "hopper.cuh"
#include "products.cuh"
#include "products_output.cuh"

// Stored forms of the weight: bf16, or codes of 4 bits with scales of a type. One object each.
enum { WG_DENSE, WG_CODES_BF16, WG_CODES_F16 };
int wgmma_open_dense(void);
int wgmma_open_bf16(void);
int wgmma_open_f16(void);
int wgmma_dense(const gpu_launch *l, const gpu_step *s, const gpu_product *p);
int wgmma_bf16(const gpu_launch *l, const gpu_step *s, const gpu_product *p);
int wgmma_f16(const gpu_launch *l, const gpu_step *s, const gpu_product *p);

// cuTensorMapEncodeTiled of the driver, which gpu_wgmma_open finds.
typedef CUresult (*gpu_map_encoder)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                                    const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                                    const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                                    CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
extern gpu_map_encoder gpu_encode_map;

enum { WG_SEGMENTS = 8, WG_OUTPUTS = 128, WG_COLUMNS = 64, WG_THREADS = 384, WG_CLUSTER = 2 };
enum { WG_SHARED = 226 << 10 }; // of a block, but for barriers

// The shared memory of a block: stages of x, stages of weights, sums of a gated pair, barriers.
template <int ROWS, int FORM, bool GATED> struct wg_shape {
    enum {
        PANEL = FORM == WG_DENSE ? 2048 : 512, // bytes of 16 outputs and 64 columns
        X_BYTES = ROWS * WG_COLUMNS * 2,
        W_BYTES = WG_OUTPUTS / 16 * PANEL,
        SUMS_BYTES = GATED ? ROWS * 256 : 0, // half of the sums of both warpgroups
        FIT = (WG_SHARED - SUMS_BYTES) / (X_BYTES + W_BYTES),
        STAGES = FIT < 6 ? FIT : 6,
        W_AT = STAGES * X_BYTES,
        SUMS_AT = W_AT + STAGES * W_BYTES,
        BARRIERS_AT = SUMS_AT + SUMS_BYTES,
        BYTES = BARRIERS_AT + 2 * STAGES * 8
    };
};

// Blocks of outputs of all products; a gated pair counts once.
template <bool GATED> __device__ inline int64_t output_tiles(const gpu_product &p) {
    enum { EACH = GATED ? WG_OUTPUTS / 2 : WG_OUTPUTS };
    int64_t n = 0;
    for (int i = 0; i < p.n; i++) n += (p.w[i].D + EACH - 1) / EACH;
    return n;
}
// A tile of a block: outputs d0.. of product `which`, rows r0...
struct wg_tile {
    int64_t d0;
    int32_t which, r0;
};
// Block `block` of outputs.
template <bool GATED> __device__ inline wg_tile tile_at(const gpu_product &p, int64_t block, int32_t r0) {
    enum { EACH = GATED ? WG_OUTPUTS / 2 : WG_OUTPUTS };
    int32_t i = 0;
    for (; i + 1 < p.n && block >= (p.w[i].D + EACH - 1) / EACH; i++) block -= (p.w[i].D + EACH - 1) / EACH;
    return wg_tile{block * EACH, i, r0};
}
template <bool GATED>
__device__ inline wg_tile tile_of(const gpu_product &p, int32_t work, int32_t n_row_tiles, int rows) {
    return tile_at<GATED>(p, work / n_row_tiles * WG_CLUSTER + cluster_rank(), work % n_row_tiles * rows);
}
// Panel (16 outputs) i of the 8 of a tile: its weight, and its number there. Panels behind the last are the
// last; their sums are not stored.
template <bool GATED>
__device__ inline const gpu_weight &panel_of(const gpu_product &p, const wg_tile &t, int i, int64_t *panel) {
    const gpu_weight &w = p.w[GATED ? i / 4 : t.which];
    const int64_t last = (w.D - 1) / 16, at = t.d0 / 16 + (GATED ? i % 4 : i);
    *panel = at < last ? at : last;
    return w;
}
__device__ inline int32_t segment_end(int32_t n, int segment) { return n * (segment + 1) / WG_SEGMENTS; }

// The stages of the ring that producer and consumers pass: `slot` of this turn, and its parity.
template <int STAGES> struct wg_ring {
    int slot = 0;
    uint32_t parity = 0;
    __device__ void next(void) {
        if (++slot == STAGES) slot = 0, parity ^= 1;
    }
};

// What the copies read: x as boxes of rows and 64 columns, weights as boxes of panels and 64 columns.
struct wg_maps {
    CUtensorMap x, w[GPU_PRODUCTS];
};

template <int ROWS, int FORM, bool GATED>
__device__ inline void wg_produce(const gpu_product &p, const wg_maps &maps, char *memory, int32_t live) {
    typedef wg_shape<ROWS, FORM, GATED> S;
    uint64_t *full = (uint64_t *)(memory + S::BARRIERS_AT), *empty = full + S::STAGES;
    const int32_t n_row_tiles = (live + ROWS - 1) / ROWS, n_stages = (int32_t)(p.w[0].C / WG_COLUMNS);
    const int32_t n_work = (int32_t)((output_tiles<GATED>(p) + 1) / WG_CLUSTER) * n_row_tiles;
    const uint32_t rank = cluster_rank();
    wg_ring<S::STAGES> ring;
    for (int32_t work = (int32_t)blockIdx.x / WG_CLUSTER; work < n_work;
         work += (int32_t)gridDim.x / WG_CLUSTER) {
        const wg_tile t = tile_of<GATED>(p, work, n_row_tiles, ROWS);
        for (int32_t k = 0; k < n_stages; k++, ring.next()) {
            uint64_t *b = full + ring.slot;
            barrier_wait(empty + ring.slot, ring.parity ^ 1);
            barrier_expect(b, S::X_BYTES + S::W_BYTES);
            char *w = memory + S::W_AT + ring.slot * S::W_BYTES;
            copy_box_to(memory + ring.slot * S::X_BYTES + rank * (S::X_BYTES / WG_CLUSTER), &maps.x,
                        k * WG_COLUMNS, t.r0 + (int32_t)rank * (ROWS / WG_CLUSTER), b, (1 << WG_CLUSTER) - 1);
            copy_box(w, &maps.w[t.which], k * (S::PANEL / 8), (int32_t)(t.d0 / 16), b);
            if (GATED) copy_box(w + S::W_BYTES / 2, &maps.w[1], k * (S::PANEL / 8), (int32_t)(t.d0 / 16), b);
        }
    }
}

// Scales and biases of a thread's two outputs for the two halves of a stage, as they are stored.
template <int FORM> struct wg_scales {
    uint2 raw[2];
    __device__ void load(const char *base, int32_t stage, int shift, int g) {
        if constexpr (FORM != WG_DENSE) {
#pragma unroll
            for (int h = 0; h < 2; h++)
                raw[h] = *(const uint2 *)(base + ((2 * stage + h) >> shift) * 64 + g * 8);
        }
    }
    // Two weights of codes (0x4300 + q) each. row: 0 or 1, of outputs g and g + 8.
    __device__ uint32_t weights(uint32_t codes, int half, int row) const {
        const uint32_t word = row ? raw[half].y : raw[half].x;
        affine_pair<FORM == WG_CODES_BF16> pair;
        set(pair, word);
        return pair.of(codes);
    }
    static __device__ void set(affine_pair<true> &pair, uint32_t word) {
        pair.s = __byte_perm(word, word, 0x1010), pair.b = __byte_perm(word, word, 0x3232);
    }
    static __device__ void set(affine_pair<false> &pair, uint32_t word) {
        pair.s = __half2float(__ushort_as_half((uint16_t)word));
        pair.b = __half2float(__ushort_as_half((uint16_t)(word >> 16)));
    }
};

// The codes of 32 columns, of which fragments are made.
struct wg_codes {
    uint2 word;
};
// The fragment of columns 16 k .. 16 k + 15 of a stage. w: this warp's 16 outputs.
template <int FORM>
__device__ inline void load_fragment(const char *w, int k, int lane, const wg_scales<FORM> &scales,
                                     wg_codes &codes, uint32_t a[4]) {
    if (FORM == WG_DENSE) {
        const uint4 v = *(const uint4 *)(w + k * 512 + lane * 16);
        a[0] = v.x, a[1] = v.y, a[2] = v.z, a[3] = v.w;
        return;
    }
    if (k % 2 == 0) codes.word = *(const uint2 *)(w + k / 2 * 256 + lane * 8);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t word = i % 2 ? codes.word.y : codes.word.x;
        a[i] =
            scales.weights((word >> (4 * (i / 2 + 2 * (k % 2))) & 0x000f000fu) | 0x43004300u, k / 2, i % 2);
    }
}

// Multiplies stages [k, end) of one segment: sum = A B. Up to four products of 16 columns run at a time, each
// with a fragment of its own, while the next fragment is loaded. release(slot): the slot is free again.
template <class S, int FORM, int SUMS, class release_slot>
__device__ inline void sum_segment(const char *memory, wg_ring<S::STAGES> &ring, const char *scales,
                                   int shift, int32_t n_stages, int32_t k, int32_t end, int panel,
                                   wg_scales<FORM> &next, float (&sum)[SUMS], release_slot release) {
    uint64_t *full = (uint64_t *)(memory + S::BARRIERS_AT);
    const int lane = (int)threadIdx.x % 32;
    const char *w = memory + S::W_AT + panel * S::PANEL;
    int before = -1; // the slot whose products may still run
    for (; k < end; k++, ring.next()) {
        const wg_scales<FORM> now = next;
        next.load(scales, k + 1 < n_stages ? k + 1 : k, shift, lane / 4);
        const char *at = w + ring.slot * S::W_BYTES;
        const uint64_t x = rows_descriptor(memory + ring.slot * S::X_BYTES);
        wg_codes codes;
        uint32_t a[4][4];
        barrier_wait(full + ring.slot, ring.parity);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            wgmma_wait<3>();
            if (i == 3 && before >= 0) release(before);
            load_fragment<FORM>(at, i, lane, now, codes, a[i]);
            wgmma_begin();
            wgmma(sum, a[i], x + 2 * i, i > 0 || before >= 0);
            wgmma_commit();
        }
        before = ring.slot;
    }
    wgmma_wait<0>();
    release(before);
}

// total += the sums of all segments of this warpgroup's 64 outputs.
template <int ROWS, int FORM, bool GATED>
__device__ inline void wg_sum(const char *memory, wg_ring<wg_shape<ROWS, FORM, GATED>::STAGES> &ring,
                              const char *scales, int shift, int32_t n_stages, float (&total)[ROWS / 2]) {
    typedef wg_shape<ROWS, FORM, GATED> S;
    uint64_t *empty = (uint64_t *)(memory + S::BARRIERS_AT) + S::STAGES;
    const int lane = (int)threadIdx.x % 32, panel = (int)threadIdx.x / 32 - 4;
    wg_scales<FORM> next = {};
    next.load(scales, 0, shift, lane / 4);
    int32_t k = 0;
    for (int segment = 0; segment < WG_SEGMENTS; segment++) {
        const int32_t end = segment_end(n_stages, segment);
        if (k == end) continue;
        float sum[ROWS / 2];
        sum_segment<S, FORM>(memory, ring, scales, shift, n_stages, k, end, panel, next, sum, [&](int slot) {
            if (lane < WG_CLUSTER) barrier_arrive(empty + slot, (uint32_t)lane);
        });
        k = end;
#pragma unroll
        for (int i = 0; i < ROWS / 2; i++) total[i] = total[i] + sum[i];
    }
}

// A barrier of THREADS threads, number ID + id.
template <int ID, int THREADS> __device__ inline void barrier_of(int id) {
    asm volatile("bar.sync %0, %1;" ::"r"(ID + id), "n"(THREADS) : "memory");
}

// ---- outputs ----
//
// Thread (g, q) of a warp has, of 8 rows, rows 2 q and 2 q + 1 of outputs g and g + 8: sums 0 and 1, 2 and 3.

// They are v[0..N) of N / 4 times 8 rows: d is the first of the two outputs, r the first row.

__device__ inline float to_f32(float x) { return x; }
__device__ inline float to_f32(uint16_t x) { return bf16_to_f32(x); }

template <int N> __device__ inline void add_bias(const gpu_weight &bias, int64_t d, int64_t D, float *v) {
    const float low = load_element(bias.data, bias.type, d < D ? d : D - 1),
                high = load_element(bias.data, bias.type, d + 8 < D ? d + 8 : D - 1);
#pragma unroll
    for (int i = 0; i < N; i++) v[i] = v[i] + (i % 4 < 2 ? low : high);
}

// v[i] = residual + v[i]. T: of an element of the residual.
template <int N, typename T>
__device__ inline void add_residual(const gpu_array &x, int32_t r, int32_t live, int64_t d, int64_t D,
                                    float *v) {
    const T *at = (const T *)x.data + r * x.pitch + d;
    T add[N] = {};
#pragma unroll
    for (int i = 0; i < N; i += 4, at += 8 * x.pitch) {
        const bool low = r + i * 2 < live, high = r + i * 2 + 1 < live;
        if (low && d < D) add[i] = at[0];
        if (high && d < D) add[i + 1] = at[x.pitch];
        if (low && d + 8 < D) add[i + 2] = at[8];
        if (high && d + 8 < D) add[i + 3] = at[x.pitch + 8];
    }
#pragma unroll
    for (int i = 0; i < N; i++) v[i] = to_f32(add[i]) + v[i];
}

template <int N>
__device__ inline void store_f32(const gpu_array &y, int32_t r, int32_t live, int64_t d, int64_t D,
                                 const float *v) {
    float *at = (float *)y.data + r * y.pitch + d;
#pragma unroll
    for (int i = 0; i < N; i += 4, at += 8 * y.pitch) {
        const bool low = r + i * 2 < live, high = r + i * 2 + 1 < live;
        if (low && d < D) at[0] = v[i];
        if (high && d < D) at[y.pitch] = v[i + 1];
        if (low && d + 8 < D) at[8] = v[i + 2];
        if (high && d + 8 < D) at[y.pitch + 8] = v[i + 3];
    }
}
// Lanes of neighbouring outputs trade, so that each has two outputs of one row.
template <int N>
__device__ inline void store_bf16(const gpu_array &y, int32_t r, int32_t live, int64_t d, int64_t D,
                                  const float *v) {
    const bool odd = threadIdx.x / 4 % 2;
    r += odd, d -= odd;
    uint16_t *at = (uint16_t *)y.data + r * y.pitch + d;
#pragma unroll
    for (int i = 0; i < N; i += 4, at += 8 * y.pitch) {
#pragma unroll
        for (int k = 0; k < 4; k += 2) {
            const float theirs = __shfl_xor_sync(0xffffffffu, odd ? v[i + k] : v[i + k + 1], 4);
            const float low = odd ? theirs : v[i + k], high = odd ? v[i + k + 1] : theirs;
            if (r + i * 2 >= live) continue;
            if (d + 4 * k + 1 < D)
                *(uint32_t *)(at + 4 * k) = f32_to_bf16(low) | (uint32_t)f32_to_bf16(high) << 16;
            else if (d + 4 * k < D) at[4 * k] = f32_to_bf16(low);
        }
    }
}

// Adds the residual and stores. In parts, because registers do not suffice for all of the residual.
template <int N>
__device__ inline void store_sums(const gpu_array &y, const gpu_array &residual, int32_t r, int32_t live,
                                  int64_t d, int64_t D, float *v) {
    enum { PART = N % 16 == 0 ? 16 : N % 8 == 0 ? 8 : N };
#pragma unroll
    for (int i = 0; i < N; i += PART) {
        if (residual.data && residual.type == GPU_F32)
            add_residual<PART, float>(residual, r + 2 * i, live, d, D, v + i);
        else if (residual.data) add_residual<PART, uint16_t>(residual, r + 2 * i, live, d, D, v + i);
        if (y.type == GPU_F32) store_f32<PART>(y, r + 2 * i, live, d, D, v + i);
        else store_bf16<PART>(y, r + 2 * i, live, d, D, v + i);
    }
}

// Of a gated pair, this warpgroup has the sums of one weight. It gets those of the other weight for one half
// of the rows, number `group`, and computes the outputs of that half: the first N of `total`.
template <int ROWS>
__device__ inline void exchange_gated(const gpu_product &p, float *memory, int group,
                                      float (&total)[ROWS / 2]) {
    enum { N = ROWS / 4 };
    const int tid = (int)threadIdx.x % 128;
    float *mine = memory + group * N * 128 + tid, *theirs = memory + (1 - group) * N * 128 + tid;
    barrier_of<1, 256>(0); // the other warpgroup has read what this one wrote for the tile before
#pragma unroll
    for (int i = 0; i < N; i++) mine[i * 128] = group ? total[i] : total[N + i];
    barrier_of<1, 256>(0);
#pragma unroll
    for (int i = 0; i < N; i++) {
        const float other = theirs[i * 128], gate = group ? other : total[i],
                    up = group ? total[N + i] : other;
        total[i] = (p.gate == GPU_GATE_SILU ? silu(gate) : gelu_tanh(gate)) * up;
    }
}

template <int ROWS, bool GATED>
__device__ inline void store_tile(const gpu_product &p, const wg_tile &t, int32_t live, char *memory,
                                  float (&total)[ROWS / 2]) {
    enum { N = ROWS / 4 };
    const int group = (int)threadIdx.x / 128 - 1, warp = (int)threadIdx.x / 32 % 4,
              g = (int)threadIdx.x % 32 / 4;
    const int64_t D = p.w[t.which].D, d = t.d0 + (GATED ? 0 : 64 * group) + 16 * warp + g;
    const int32_t r = t.r0 + (int)threadIdx.x % 4 * 2;
    if (GATED) exchange_gated<ROWS>(p, (float *)memory, group, total);
    else if (p.bias[t.which].data) add_bias<ROWS / 2>(p.bias[t.which], d, D, total);
    const gpu_array &y = p.y[t.which];
    if (!GATED) store_sums<2 * N>(y, p.residual, r, live, d, D, total);
    else store_sums<N>(y, gpu_array{}, r + group * (ROWS / 2), live, d, D, total);
}

// Brings the residual of a tile to the L2 cache.
template <int ROWS>
__device__ inline void prefetch_residual(const gpu_product &p, const wg_tile &t, int32_t live) {
    const int64_t element = p.residual.type == GPU_F32 ? 4 : 2;
    const int lines = (int)(WG_OUTPUTS * element / 128);
    for (int i = (int)threadIdx.x - 128; i < ROWS * lines; i += 256) {
        const int64_t row = t.r0 + i / lines, d = t.d0 + i % lines * (128 / element);
        if (row < live && d < p.w[t.which].D)
            asm volatile("prefetch.global.L2 [%0];" ::"l"((const char *)p.residual.data +
                                                          (row * p.residual.pitch + d) * element));
    }
}

template <int ROWS, int FORM, bool GATED>
__device__ inline void wg_consume(const gpu_product &p, char *memory, int32_t live) {
    typedef wg_shape<ROWS, FORM, GATED> S;
    const int32_t n_row_tiles = (live + ROWS - 1) / ROWS, n_stages = (int32_t)(p.w[0].C / WG_COLUMNS);
    const int32_t n_work = (int32_t)((output_tiles<GATED>(p) + 1) / WG_CLUSTER) * n_row_tiles;
    const int shift = p.w[0].group == 128 ? 2 : p.w[0].group == 64;
    wg_ring<S::STAGES> ring;
    for (int32_t work = (int32_t)blockIdx.x / WG_CLUSTER; work < n_work;
         work += (int32_t)gridDim.x / WG_CLUSTER) {
        const wg_tile t = tile_of<GATED>(p, work, n_row_tiles, ROWS);
        int64_t panel;
        const gpu_weight &w = panel_of<GATED>(p, t, (int)threadIdx.x / 32 - 4, &panel);
        const char *scales = NULL;
        if (FORM != WG_DENSE) scales = (const char *)w.scales + panel * (w.C / w.group) * 64;
        if (!GATED && p.residual.data) prefetch_residual<ROWS>(p, t, live);
        float total[ROWS / 2] = {};
        wg_sum<ROWS, FORM, GATED>(memory, ring, scales, shift, n_stages, total);
        store_tile<ROWS, GATED>(p, t, live, memory + S::SUMS_AT, total);
    }
}

template <int ROWS, int FORM, bool GATED>
__global__ void __launch_bounds__(WG_THREADS, 1)
    product_wgmma(gpu_step s, gpu_product p, const __grid_constant__ wg_maps maps) {
    extern __shared__ __align__(1024) char memory[];
    typedef wg_shape<ROWS, FORM, GATED> S;
    uint64_t *full = (uint64_t *)(memory + S::BARRIERS_AT), *empty = full + S::STAGES;
    let_next_begin();
    if (threadIdx.x == 0) {
        for (int i = 0; i < S::STAGES; i++) {
            barrier_init(full + i, 1);
            barrier_init(empty + i, 8 * WG_CLUSTER); // of each warp that computes in the cluster
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    cluster_barrier();
    wait_for_inputs();
    const int32_t live = live_rows(s, p.x.rows);
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0) wg_produce<ROWS, FORM, GATED>(p, maps, memory, live);
        __syncwarp();
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        wg_consume<ROWS, FORM, GATED>(p, memory, live);
    }
    cluster_barrier();
}

// ---- launch ----

// Rows of x as boxes of box_rows rows and 64 columns.
static inline bool map_rows(const gpu_array &x, int32_t rows, int box_rows, CUtensorMap *map) {
    const cuuint64_t size[2] = {(cuuint64_t)x.cols, (cuuint64_t)rows}, pitch[1] = {(cuuint64_t)x.pitch * 2};
    const cuuint32_t box[2] = {WG_COLUMNS, (cuuint32_t)box_rows}, step[2] = {1, 1};
    return gpu_encode_map(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, x.data, size, pitch, box, step,
                          CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                          CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                          CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}
// Panels of a weight as boxes of n panels and 64 columns, which are `panel` bytes, in elements of 8 bytes.
static inline bool map_panels(const gpu_weight &w, int panel, int n, CUtensorMap *map) {
    const cuuint64_t size[2] = {(cuuint64_t)(w.C / WG_COLUMNS * (panel / 8)), (cuuint64_t)((w.D + 15) / 16)},
                     pitch[1] = {size[0] * 8};
    const cuuint32_t box[2] = {(cuuint32_t)panel / 8, (cuuint32_t)n}, step[2] = {1, 1};
    return gpu_encode_map(map, CU_TENSOR_MAP_DATA_TYPE_INT64, 2, (void *)w.data, size, pitch, box, step,
                          CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                          CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                          CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// The maps of a product whose blocks read box_rows rows of x at a time.
static inline bool map_operands(const gpu_launch *l, const gpu_product *p, int box_rows, int panel,
                                wg_maps *maps) {
    const bool gated = p->gate != GPU_NO_GATE;
    if (!map_rows(p->x, grid_rows(l, p->x.rows), box_rows, &maps->x)) return false;
    for (int i = 0; i < (gated ? 2 : p->n); i++)
        if (!map_panels(p->w[i], panel, gated ? 4 : 8, &maps->w[i])) return false;
    return true;
}

// Puts a kernel of clusters of `cluster` blocks on the stream.
static inline int launch_cluster(const gpu_launch *l, unsigned cluster, unsigned blocks, unsigned threads,
                                 size_t shared, void (*kernel)(gpu_step, gpu_product, const wg_maps),
                                 const gpu_step *s, const gpu_product *p, const wg_maps &maps) {
    cudaLaunchAttribute attribute[2] = {};
    attribute[0].id = cudaLaunchAttributeClusterDimension;
    attribute[0].val.clusterDim.x = cluster;
    attribute[0].val.clusterDim.y = attribute[0].val.clusterDim.z = 1;
    attribute[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute[1].val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t c = {};
    c.gridDim = dim3(blocks), c.blockDim = dim3(threads);
    c.dynamicSmemBytes = shared, c.stream = (cudaStream_t)l->stream;
    c.attrs = attribute, c.numAttrs = l->overlap ? 2 : 1;
    return (int)cudaLaunchKernelEx(&c, kernel, *s, *p, maps);
}
// Lets a kernel have so much shared memory, unless there was an error before.
template <typename K> static cudaError_t allow_shared(cudaError_t before, K *kernel, int bytes) {
    if (before != cudaSuccess) return before;
    return cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

// Tiles of a cluster, by number of rows of a tile.
static inline int64_t cluster_tiles(const gpu_launch *l, const gpu_product *p, int rows) {
    const int64_t pairs =
        ((int64_t)output_blocks(p, p->gate == GPU_NO_GATE ? WG_OUTPUTS : WG_OUTPUTS / 2) + 1) / 2;
    return pairs * ((grid_rows(l, p->x.rows) + rows - 1) / rows);
}

template <int ROWS, int FORM, bool GATED>
static int launch_tiles(const gpu_launch *l, const gpu_step *s, const gpu_product *p) {
    typedef wg_shape<ROWS, FORM, GATED> S;
    wg_maps maps;
    if (!map_operands(l, p, ROWS / WG_CLUSTER, S::PANEL, &maps)) return (int)cudaErrorInvalidValue;
    const int64_t clusters = l->n_multiprocessors / WG_CLUSTER, tiles = cluster_tiles(l, p, ROWS);
    return launch_cluster(l, WG_CLUSTER, (unsigned)(WG_CLUSTER * (tiles < clusters ? tiles : clusters)),
                          WG_THREADS, S::BYTES, product_wgmma<ROWS, FORM, GATED>, s, p, maps);
}

// The number of rows of a tile with which the last cluster finishes first: a tile takes the time of its rows
// and of about 30 more.
static inline int best_rows(const gpu_launch *l, const gpu_product *p) {
    static const int choices[] = {192, 176, 128};
    const int64_t clusters = l->n_multiprocessors / WG_CLUSTER;
    int best = choices[0];
    int64_t least = INT64_MAX;
    for (int rows : choices) {
        const int64_t time = (cluster_tiles(l, p, rows) + clusters - 1) / clusters * (rows + 30);
        if (time < least) least = time, best = rows;
    }
    return best;
}

template <int ROWS, int FORM>
static int launch_rows(const gpu_launch *l, const gpu_step *s, const gpu_product *p) {
    if (p->gate == GPU_NO_GATE) return launch_tiles<ROWS, FORM, false>(l, s, p);
    return launch_tiles<ROWS, FORM, true>(l, s, p);
}
template <int FORM> static int launch_wgmma(const gpu_launch *l, const gpu_step *s, const gpu_product *p) {
    switch (best_rows(l, p)) {
    case 192: return launch_rows<192, FORM>(l, s, p);
    case 176: return launch_rows<176, FORM>(l, s, p);
    default: return launch_rows<128, FORM>(l, s, p);
    }
}

template <int FORM> static cudaError_t open_wgmma(cudaError_t e) {
    e = allow_shared(e, product_wgmma<192, FORM, false>, wg_shape<192, FORM, false>::BYTES);
    e = allow_shared(e, product_wgmma<176, FORM, false>, wg_shape<176, FORM, false>::BYTES);
    e = allow_shared(e, product_wgmma<128, FORM, false>, wg_shape<128, FORM, false>::BYTES);
    e = allow_shared(e, product_wgmma<192, FORM, true>, wg_shape<192, FORM, true>::BYTES);
    e = allow_shared(e, product_wgmma<176, FORM, true>, wg_shape<176, FORM, true>::BYTES);
    return allow_shared(e, product_wgmma<128, FORM, true>, wg_shape<128, FORM, true>::BYTES);
}
