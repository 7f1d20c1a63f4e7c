// Products of many bf16 rows with packed weights (fragments.cuh) on compute capability 9.0, by wgmma, with
// the bits of products_mma.cuh: wgmma adds the 16 columns of an instruction as mma.sync does.
//
// A block computes OUTPUTS outputs (128 or 192) of ROWS rows; of a gated pair, half as many outputs of both
// weights. One thread of warps 0..3 starts the copies to shared memory; each of the two or three warpgroups
// behind computes 64 outputs:
//
//     operand A    the weight, from registers: packed weights are fragments already; codes are dequantised
//     operand B    x, [ROWS][64 columns] in shared memory with a 128-byte swizzle
//     for each of the 8 segments: sum = 0; for each stage of 64 columns: sum += A B; total += sum
//
// The two blocks of a cluster compute the same rows of different outputs, so each fetches one half of x for
// both. Blocks are persistent: each of n clusters takes every n-th tile.
#pragma once
#include "fragments.cuh"
#include "hopper.cuh"
#include "products.cuh"
#include "products_output.cuh"

// Stored forms of the weight: bf16, codes of 4 bits with scales of bf16 or f16, of 8 bits. One object each.
enum { WG_DENSE, WG_CODES_BF16, WG_CODES_F16, WG_BYTES_BF16, WG_FP8_BF16 };
// Bytes of a panel, 16 outputs and 64 columns.
__host__ __device__ constexpr int wg_panel(int form) {
    return form == WG_DENSE ? 2048 : form >= WG_BYTES_BF16 ? 1024 : 512;
}
int wgmma_open_dense(void), wgmma_open_bf16(void), wgmma_open_f16(void), wgmma_open_bytes(void);
int wgmma_open_fp8(void);
int wgmma_dense(const gpu_launch *l, const gpu_step *s, const gpu_product *p);
int wgmma_bf16(const gpu_launch *l, const gpu_step *s, const gpu_product *p);
int wgmma_f16(const gpu_launch *l, const gpu_step *s, const gpu_product *p);
int wgmma_bytes(const gpu_launch *l, const gpu_step *s, const gpu_product *p);
int wgmma_fp8(const gpu_launch *l, const gpu_step *s, const gpu_product *p);

// cuTensorMapEncodeTiled of the driver, which gpu_wgmma_open finds.
typedef CUresult (*gpu_map_encoder)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                                    const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                                    const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                                    CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
extern gpu_map_encoder gpu_encode_map;

enum { WG_SEGMENTS = 8, WG_OUTPUTS = 128, WG_MORE_OUTPUTS = 192, WG_COLUMNS = 64, WG_CLUSTER = 2 };
enum { WG_SHARED = 226 << 10 }; // bytes of a block without its barriers

// The shared memory of a block: stages of x, of weights and of scales, sums of a gated pair, barriers.
template <int ROWS, int FORM, bool GATED, int N_OUTPUTS = 128> struct wg_shape {
    enum {
        OUTPUTS = N_OUTPUTS,
        THREADS = 128 + 2 * OUTPUTS,
        MOST = ROWS <= 64 ? 12 : 6, // stages; with few rows they are small
        PANEL = wg_panel(FORM),
        X_BYTES = ROWS * WG_COLUMNS * 2,
        W_BYTES = OUTPUTS / 16 * PANEL,
        S_BYTES = FORM == WG_DENSE ? 0 : OUTPUTS / 16 * 128, // at most: with groups of 32
        SUMS_BYTES = GATED ? ROWS * OUTPUTS * 2 : 0,         // half of the sums of both warpgroups
        FIT = (WG_SHARED - SUMS_BYTES) / (X_BYTES + W_BYTES + S_BYTES),
        STAGES = FIT < MOST ? FIT : MOST,
        W_AT = STAGES * X_BYTES,
        SCALES_AT = W_AT + STAGES * W_BYTES,
        SUMS_AT = SCALES_AT + STAGES * S_BYTES,
        BARRIERS_AT = SUMS_AT + SUMS_BYTES,
        BYTES = BARRIERS_AT + 2 * STAGES * 8
    };
};

// The number of tiles of outputs of all products; a gated pair counts once.
template <bool GATED, int OUTPUTS> __device__ inline int64_t output_tiles(const gpu_product &p) {
    enum { EACH = GATED ? OUTPUTS / 2 : OUTPUTS };
    int64_t n = 0;
    for (int i = 0; i < p.n; i++) n += (p.w[i].D + EACH - 1) / EACH;
    return n;
}
// A tile of a block: outputs d0.. of product `which`, rows r0...
struct wg_tile {
    int64_t d0;
    int32_t which, r0;
};
// Tile number `block` of the outputs of all products, with rows r0...
template <bool GATED, int OUTPUTS>
__device__ inline wg_tile tile_at(const gpu_product &p, int64_t block, int32_t r0) {
    enum { EACH = GATED ? OUTPUTS / 2 : OUTPUTS };
    int32_t i = 0;
    for (; i + 1 < p.n && block >= (p.w[i].D + EACH - 1) / EACH; i++) block -= (p.w[i].D + EACH - 1) / EACH;
    return wg_tile{block * EACH, i, r0};
}
template <bool GATED, int OUTPUTS>
__device__ inline wg_tile tile_of(const gpu_product &p, int32_t work, int32_t n_row_tiles, int rows) {
    return tile_at<GATED, OUTPUTS>(p, work / n_row_tiles * WG_CLUSTER + cluster_rank(),
                                   work % n_row_tiles * rows);
}
// The stage after the last of a segment, of n stages; that of segment -1 is 0.
__device__ inline int32_t segment_end(int32_t n, int segment) { return n * (segment + 1) / WG_SEGMENTS; }

// The place of a producer or consumer in the ring of stages: the present slot, and the parity of its
// barriers, which changes with each turn.
template <int STAGES> struct wg_ring {
    int slot = 0;
    uint32_t parity = 0;
    __device__ void next(void) {
        if (++slot == STAGES) slot = 0, parity ^= 1;
    }
};

// What the copies read: x as boxes of rows and 64 columns, weights and their pairs of scale and bias as boxes
// of panels (16 outputs) and 64 columns.
struct wg_maps {
    CUtensorMap x, w[GPU_PRODUCTS], scales[GPU_PRODUCTS];
};

// Bytes of the pairs of scale and bias that a panel has for a stage.
__host__ __device__ inline int32_t scale_bytes(const gpu_weight &w) { return w.group == 32 ? 128 : 64; }

// Starts the copies of the weights of a stage; barrier b expects their bytes and those of x. Panels behind
// the last are zeros.
template <class S, int FORM, bool GATED>
__device__ inline void copy_weights(const gpu_product &p, const wg_maps &maps, const wg_tile &t, char *memory,
                                    int slot, int32_t stage, uint64_t *b) {
    const int32_t panel = (int32_t)(t.d0 / 16), each = FORM == WG_DENSE ? 0 : scale_bytes(p.w[0]);
    barrier_expect(b, (uint32_t)(S::X_BYTES + S::W_BYTES + S::OUTPUTS / 16 * each));
    char *w = memory + S::W_AT + slot * S::W_BYTES, *scales = memory + S::SCALES_AT + slot * S::S_BYTES;
    copy_box(w, &maps.w[t.which], stage * (S::PANEL / 8), panel, b);
    if (GATED) copy_box(w + S::W_BYTES / 2, &maps.w[1], stage * (S::PANEL / 8), panel, b);
    if (FORM == WG_DENSE) return;
    const int32_t at = p.w[0].group == 128 ? stage / 2 * 8 : stage * (each / 8);
    copy_box(scales, &maps.scales[t.which], at, panel, b);
    if (GATED) copy_box(scales + S::OUTPUTS / 32 * each, &maps.scales[1], at, panel, b);
}

// Starts the copies of all stages. Those of the first weights do not wait for the end of the kernel before.
template <int ROWS, int FORM, bool GATED, int OUTPUTS>
__device__ inline void wg_produce(const gpu_product &p, const wg_maps &maps, char *memory, int32_t live) {
    typedef wg_shape<ROWS, FORM, GATED, OUTPUTS> S;
    uint64_t *full = (uint64_t *)(memory + S::BARRIERS_AT), *empty = full + S::STAGES;
    const int32_t n_row_tiles = (live + ROWS - 1) / ROWS, n_stages = (int32_t)(p.w[0].C / WG_COLUMNS);
    const int32_t n_work = (int32_t)((output_tiles<GATED, OUTPUTS>(p) + 1) / WG_CLUSTER) * n_row_tiles;
    const int32_t first = (int32_t)blockIdx.x / WG_CLUSTER;
    const int32_t ahead = first >= n_work ? 0 : n_stages < S::STAGES ? n_stages : (int32_t)S::STAGES;
    const uint32_t rank = cluster_rank();
    for (int32_t k = 0; k < ahead; k++)
        copy_weights<S, FORM, GATED>(p, maps, tile_of<GATED, OUTPUTS>(p, first, n_row_tiles, ROWS), memory, k,
                                     k, full + k);
    wait_for_inputs();
    wg_ring<S::STAGES> ring;
    for (int32_t work = first; work < n_work; work += (int32_t)gridDim.x / WG_CLUSTER) {
        const wg_tile t = tile_of<GATED, OUTPUTS>(p, work, n_row_tiles, ROWS);
        for (int32_t k = 0; k < n_stages; k++, ring.next()) {
            uint64_t *b = full + ring.slot;
            if (work > first || k >= ahead) {
                barrier_wait(empty + ring.slot, ring.parity ^ 1);
                copy_weights<S, FORM, GATED>(p, maps, t, memory, ring.slot, k, b);
            }
            copy_box_to(memory + ring.slot * S::X_BYTES + rank * (S::X_BYTES / WG_CLUSTER), &maps.x,
                        k * WG_COLUMNS, t.r0 + (int32_t)rank * (ROWS / WG_CLUSTER), b, (1 << WG_CLUSTER) - 1);
        }
    }
}

// Scales and biases of a thread's two outputs for the two halves of a stage, as they are stored.
template <int FORM> struct wg_scales {
    uint2 raw[2];
    // From the pairs of a panel, `each` bytes in shared memory.
    __device__ void load(const char *pairs, int32_t each, int g) {
        if constexpr (FORM != WG_DENSE) {
            raw[0] = *(const uint2 *)(pairs + g * 8);
            raw[1] = *(const uint2 *)(pairs + each - 64 + g * 8);
        }
    }
    // Two weights of codes, which codes_of, bytes_of or fp8_of made. row: 0 or 1, of outputs g and g + 8.
    __device__ uint32_t weights(uint32_t codes, int half, int row) const {
        const uint32_t word = row ? raw[half].y : raw[half].x;
        affine_pair<FORM != WG_CODES_F16> pair;
        set(pair, word);
        return FORM >= WG_BYTES_BF16 ? pair.of_numbers(codes) : pair.of(codes);
    }
    static __device__ void set(affine_pair<true> &pair, uint32_t word) {
        pair.s = __byte_perm(word, word, 0x1010), pair.b = __byte_perm(word, word, 0x3232);
    }
    static __device__ void set(affine_pair<false> &pair, uint32_t word) {
        pair.s = __half2float(__ushort_as_half((uint16_t)word));
        pair.b = __half2float(__ushort_as_half((uint16_t)(word >> 16)));
    }
};

struct wg_codes { // of 32 columns, of which fragments are made
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
    if (FORM >= WG_BYTES_BF16) {
        const uint2 v = *(const uint2 *)(w + k * 256 + lane * 8);
#pragma unroll
        for (int i = 0; i < 4; i++)
            a[i] = scales.weights(byte_pair<FORM == WG_FP8_BF16>(i % 2 ? v.y : v.x, i / 2), k / 2, i % 2);
        return;
    }
    if (k % 2 == 0) codes.word = *(const uint2 *)(w + k / 2 * 256 + lane * 8);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t word = i % 2 ? codes.word.y : codes.word.x;
        a[i] = scales.weights(codes_of(word >> (4 * (i / 2 + 2 * (k % 2)))), k / 2, i % 2);
    }
}

// sum_segment for tiles of up to 128 rows: while the four products of a stage run, the four fragments of the
// next stage are loaded (faster than one by one: bench/log/attempts.csv).
template <class S, int FORM, int SUMS, class release_slot>
__device__ inline void sum_few_rows(const char *memory, wg_ring<S::STAGES> &ring, int32_t each, int32_t k,
                                    int32_t end, int panel, float (&sum)[SUMS], release_slot release) {
    uint64_t *full = (uint64_t *)(memory + S::BARRIERS_AT);
    const int lane = (int)threadIdx.x % 32;
    const char *w = memory + S::W_AT + panel * S::PANEL, *pairs = memory + S::SCALES_AT + panel * each;
    int before = -1;
    uint32_t a[2][4][4];
    const auto stage = [&](uint32_t(&fragment)[4][4]) {
        wg_scales<FORM> scales;
        wg_codes codes;
        const uint64_t x = rows_descriptor(memory + ring.slot * S::X_BYTES);
        barrier_wait(full + ring.slot, ring.parity);
        scales.load(pairs + ring.slot * S::S_BYTES, each, lane / 4);
#pragma unroll
        for (int i = 0; i < 4; i++)
            load_fragment<FORM>(w + ring.slot * S::W_BYTES, i, lane, scales, codes, fragment[i]);
        wgmma_begin();
#pragma unroll
        for (int i = 0; i < 4; i++) wgmma(sum, fragment[i], x + 2 * i, i > 0 || before >= 0);
        wgmma_commit();
        wgmma_wait<1>();
        if (before >= 0) release(before);
        before = ring.slot, ring.next();
    };
    for (; k + 1 < end; k += 2) stage(a[0]), stage(a[1]);
    if (k < end) stage(a[0]);
    wgmma_wait<0>();
    release(before);
}

// Multiplies stages [k, end) of one segment: sum = A B. each: scale_bytes of the weight. release(slot): the
// slot is free again. Up to four products of 16 columns run at a time, each with a fragment of its own, while
// the next fragment is loaded.
template <class S, int FORM, int SUMS, class release_slot>
__device__ inline void sum_segment(const char *memory, wg_ring<S::STAGES> &ring, int32_t each, int32_t k,
                                   int32_t end, int panel, float (&sum)[SUMS], release_slot release) {
    if constexpr (SUMS <= 64) {
        sum_few_rows<S, FORM>(memory, ring, each, k, end, panel, sum, release);
        return;
    }
    uint64_t *full = (uint64_t *)(memory + S::BARRIERS_AT);
    const int lane = (int)threadIdx.x % 32;
    const char *w = memory + S::W_AT + panel * S::PANEL, *pairs = memory + S::SCALES_AT + panel * each;
    int before = -1; // the slot whose products may still run
    for (; k < end; k++, ring.next()) {
        wg_scales<FORM> scales;
        const uint64_t x = rows_descriptor(memory + ring.slot * S::X_BYTES);
        wg_codes codes;
        uint32_t a[4][4];
        barrier_wait(full + ring.slot, ring.parity);
        scales.load(pairs + ring.slot * S::S_BYTES, each, lane / 4);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            wgmma_wait<3>();
            if (i == 3 && before >= 0) release(before);
            load_fragment<FORM>(w + ring.slot * S::W_BYTES, i, lane, scales, codes, a[i]);
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
template <int ROWS, int FORM, bool GATED, int OUTPUTS>
__device__ inline void wg_sum(const char *memory, wg_ring<wg_shape<ROWS, FORM, GATED, OUTPUTS>::STAGES> &ring,
                              int32_t each, int32_t n_stages, float (&total)[ROWS / 2]) {
    typedef wg_shape<ROWS, FORM, GATED, OUTPUTS> S;
    uint64_t *empty = (uint64_t *)(memory + S::BARRIERS_AT) + S::STAGES;
    const int lane = (int)threadIdx.x % 32, panel = (int)threadIdx.x / 32 - 4;
    int32_t k = 0;
    for (int segment = 0; segment < WG_SEGMENTS; segment++) {
        const int32_t end = segment_end(n_stages, segment);
        if (k == end) continue;
        float sum[ROWS / 2];
        sum_segment<S, FORM>(memory, ring, each, k, end, panel, sum, [&](int slot) {
            if (lane < WG_CLUSTER) barrier_arrive(empty + slot, (uint32_t)lane);
        });
        k = end;
#pragma unroll
        for (int i = 0; i < ROWS / 2; i++) total[i] = total[i] + sum[i];
    }
}

// A barrier of the THREADS threads of a block that compute. Number 1: 0 is that of __syncthreads.
template <int THREADS> __device__ inline void compute_barrier(void) {
    asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
}

// ---- outputs ----
//
// Lane 4 g + q of a warp has four sums of each 8 rows: those of rows 2 q and 2 q + 1 of output g, then of
// output g + 8. Below v[0..N) are the sums of N / 4 times 8 rows; d is the first of the two outputs, r the
// first row.

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

// Of a gated pair, this warp has the sums of one weight. It gets those of the other weight for one half of
// the rows, number `half`, and computes the outputs of that half: the first N of `total`. warp: its number
// among those that compute.
template <int ROWS, int OUTPUTS>
__device__ inline void exchange_gated(const gpu_product &p, float *memory, int warp,
                                      float (&total)[ROWS / 2]) {
    enum { N = ROWS / 4, WARPS = OUTPUTS / 16 };
    const int lane = (int)threadIdx.x % 32, half = warp / (WARPS / 2);
    float *mine = memory + warp * N * 32 + lane,
          *theirs = memory + (warp + WARPS / 2) % WARPS * N * 32 + lane;
    compute_barrier<2 * OUTPUTS>(); // the other warps have read what this one wrote for the tile before
#pragma unroll
    for (int i = 0; i < N; i++) mine[i * 32] = half ? total[i] : total[N + i];
    compute_barrier<2 * OUTPUTS>();
#pragma unroll
    for (int i = 0; i < N; i++) {
        const float other = theirs[i * 32], gate = half ? other : total[i], up = half ? total[N + i] : other;
        total[i] = activation(p.gate, gate) * up;
    }
}

// Stores the tile of the sums `total`.
template <int ROWS, bool GATED, int OUTPUTS>
__device__ inline void store_tile(const gpu_product &p, const wg_tile &t, int32_t live, char *memory,
                                  float (&total)[ROWS / 2]) {
    enum { N = ROWS / 4, WARPS = OUTPUTS / 16 };
    const int warp = (int)threadIdx.x / 32 - 4, g = (int)threadIdx.x % 32 / 4;
    const int64_t D = p.w[t.which].D, d = t.d0 + 16 * (GATED ? warp % (WARPS / 2) : warp) + g;
    const int32_t r = t.r0 + (int)threadIdx.x % 4 * 2;
    if (GATED) exchange_gated<ROWS, OUTPUTS>(p, (float *)memory, warp, total);
    else if (p.bias[t.which].data) add_bias<ROWS / 2>(p.bias[t.which], d, D, total);
    const gpu_array &y = p.y[t.which];
    if (!GATED) store_sums<2 * N>(y, p.residual, r, live, d, D, total);
    else store_sums<N>(y, gpu_array{}, r + warp / (WARPS / 2) * (ROWS / 2), live, d, D, total);
}

// Brings the residual of a tile to the L2 cache.
template <int ROWS, int OUTPUTS>
__device__ inline void prefetch_residual(const gpu_product &p, const wg_tile &t, int32_t live) {
    const int64_t element = p.residual.type == GPU_F32 ? 4 : 2;
    const int lines = (int)(OUTPUTS * element / 128);
    for (int i = (int)threadIdx.x - 128; i < ROWS * lines; i += 2 * OUTPUTS) {
        const int64_t row = t.r0 + i / lines, d = t.d0 + i % lines * (128 / element);
        if (row < live && d < p.w[t.which].D)
            asm volatile("prefetch.global.L2 [%0];" ::"l"((const char *)p.residual.data +
                                                          (row * p.residual.pitch + d) * element));
    }
}

template <int ROWS, int FORM, bool GATED, int OUTPUTS>
__device__ inline void wg_consume(const gpu_product &p, char *memory, int32_t live) {
    typedef wg_shape<ROWS, FORM, GATED, OUTPUTS> S;
    const int32_t n_row_tiles = (live + ROWS - 1) / ROWS, n_stages = (int32_t)(p.w[0].C / WG_COLUMNS);
    const int32_t n_work = (int32_t)((output_tiles<GATED, OUTPUTS>(p) + 1) / WG_CLUSTER) * n_row_tiles;
    wg_ring<S::STAGES> ring;
    for (int32_t work = (int32_t)blockIdx.x / WG_CLUSTER; work < n_work;
         work += (int32_t)gridDim.x / WG_CLUSTER) {
        const wg_tile t = tile_of<GATED, OUTPUTS>(p, work, n_row_tiles, ROWS);
        if (!GATED && p.residual.data) prefetch_residual<ROWS, OUTPUTS>(p, t, live);
        float total[ROWS / 2] = {};
        wg_sum<ROWS, FORM, GATED, OUTPUTS>(memory, ring, scale_bytes(p.w[0]), n_stages, total);
        store_tile<ROWS, GATED, OUTPUTS>(p, t, live, memory + S::SUMS_AT, total);
    }
}

template <int ROWS, int FORM, bool GATED, int OUTPUTS>
__global__ void __launch_bounds__(wg_shape<ROWS, FORM, GATED, OUTPUTS>::THREADS, 1)
    product_wgmma(gpu_step s, gpu_product p, const __grid_constant__ wg_maps maps) {
    extern __shared__ __align__(1024) char memory[];
    typedef wg_shape<ROWS, FORM, GATED, OUTPUTS> S;
    uint64_t *full = (uint64_t *)(memory + S::BARRIERS_AT), *empty = full + S::STAGES;
    let_next_begin();
    if (threadIdx.x == 0) {
        for (int i = 0; i < S::STAGES; i++) {
            barrier_init(full + i, 1);
            barrier_init(empty + i, OUTPUTS / 16 * WG_CLUSTER); // of each warp that computes in the cluster
        }
        asm volatile("fence.mbarrier_init.release.cluster; fence.proxy.async;" ::: "memory");
    }
    cluster_barrier();
    const int32_t live = live_rows(s, p.x.rows);
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0) wg_produce<ROWS, FORM, GATED, OUTPUTS>(p, maps, memory, live);
        __syncwarp();
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(OUTPUTS == 128 ? 232 : 152));
        wait_for_inputs();
        wg_consume<ROWS, FORM, GATED, OUTPUTS>(p, memory, live);
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
// Panels as boxes of n panels, `each` bytes of a panel's `bytes`, in elements of 8 bytes.
static inline bool map_panels(const void *data, int64_t D, int64_t bytes, int each, int n, CUtensorMap *map) {
    const cuuint64_t size[2] = {(cuuint64_t)bytes / 8, (cuuint64_t)((D + 15) / 16)},
                     pitch[1] = {(cuuint64_t)bytes};
    const cuuint32_t box[2] = {(cuuint32_t)each / 8, (cuuint32_t)n}, step[2] = {1, 1};
    return gpu_encode_map(map, CU_TENSOR_MAP_DATA_TYPE_INT64, 2, (void *)data, size, pitch, box, step,
                          CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                          CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                          CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// The maps of a product whose blocks read box_rows rows of x at a time.
static inline bool map_operands(const gpu_launch *l, const gpu_product *p, int box_rows, int panel,
                                int outputs, wg_maps *maps) {
    const bool gated = p->gate != GPU_NO_GATE;
    if (!map_rows(p->x, grid_rows(l, p->x.rows), box_rows, &maps->x)) return false;
    for (int i = 0; i < (gated ? 2 : p->n); i++) {
        const gpu_weight &w = p->w[i];
        const int n = outputs / (gated ? 32 : 16);
        if (!map_panels(w.data, w.D, w.C / WG_COLUMNS * panel, panel, n, &maps->w[i])) return false;
        if (w.bits && !map_panels(w.scales, w.D, w.C / w.group * 64, scale_bytes(w), n, &maps->scales[i]))
            return false;
    }
    return true;
}

// Puts a kernel of clusters of `cluster` blocks on the stream, as `run` does.
static inline int launch_cluster(const gpu_launch *l, unsigned cluster, unsigned blocks, unsigned threads,
                                 size_t shared, void (*kernel)(gpu_step, gpu_product, const wg_maps),
                                 const gpu_step *s, const gpu_product *p, const wg_maps &maps) {
    cudaLaunchAttribute attributes[3] = {};
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim.x = l->bad_clusters ? 3 * blocks : cluster;
    attributes[0].val.clusterDim.y = attributes[0].val.clusterDim.z = 1;
    attributes[1].id = cudaLaunchAttributePreferredSharedMemoryCarveout;
    attributes[1].val.sharedMemCarveout = cudaSharedmemCarveoutMaxShared;
    attributes[2].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[2].val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t c = {};
    c.gridDim = dim3(blocks), c.blockDim = dim3(threads);
    c.dynamicSmemBytes = shared, c.stream = (cudaStream_t)l->stream;
    c.attrs = attributes, c.numAttrs = l->overlap ? 3 : 2;
    return (int)cudaLaunchKernelEx(&c, kernel, *s, *p, maps);
}
// Lets a kernel have so much shared memory, unless there was an error before.
template <typename K> static cudaError_t allow_shared(cudaError_t before, K *kernel, int bytes) {
    if (before != cudaSuccess) return before;
    return cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

// The number of pairs of tiles, which are what a cluster takes, with so many rows and outputs in a tile.
static inline int64_t cluster_tiles(const gpu_launch *l, const gpu_product *p, int rows, int outputs) {
    const int64_t pairs = ((int64_t)output_blocks(p, p->gate == GPU_NO_GATE ? outputs : outputs / 2) + 1) / 2;
    return pairs * ((grid_rows(l, p->x.rows) + rows - 1) / rows);
}

template <int ROWS, int FORM, bool GATED, int OUTPUTS>
static int launch_tiles(const gpu_launch *l, const gpu_step *s, const gpu_product *p) {
    typedef wg_shape<ROWS, FORM, GATED, OUTPUTS> S;
    wg_maps maps;
    if (!map_operands(l, p, ROWS / WG_CLUSTER, S::PANEL, OUTPUTS, &maps)) return (int)cudaErrorInvalidValue;
    const int64_t clusters = l->n_multiprocessors / WG_CLUSTER, tiles = cluster_tiles(l, p, ROWS, OUTPUTS);
    return launch_cluster(l, WG_CLUSTER, (unsigned)(WG_CLUSTER * (tiles < clusters ? tiles : clusters)),
                          S::THREADS, S::BYTES, product_wgmma<ROWS, FORM, GATED, OUTPUTS>, s, p, maps);
}

// The number of rows of a tile with which the last cluster should finish first. The estimate of a tile's time
// is its rows and 30 more, for what does not depend on the rows. 64 if those of 128 leave half of the
// clusters without work.
static inline int best_rows(const gpu_launch *l, const gpu_product *p) {
    static const int choices[] = {192, 176, 128};
    const int64_t clusters = l->n_multiprocessors / WG_CLUSTER;
    if (p->gate == GPU_NO_GATE && 2 * cluster_tiles(l, p, 128, WG_OUTPUTS) <= clusters) return 64;
    int best = choices[0];
    int64_t least = INT64_MAX;
    for (int rows : choices) {
        const int64_t time = (cluster_tiles(l, p, rows, WG_OUTPUTS) + clusters - 1) / clusters * (rows + 30);
        if (time < least) least = time, best = rows;
    }
    return best;
}

template <int ROWS, int FORM>
static int launch_rows(const gpu_launch *l, const gpu_step *s, const gpu_product *p) {
    if (p->gate == GPU_NO_GATE) return launch_tiles<ROWS, FORM, false, WG_OUTPUTS>(l, s, p);
    return launch_tiles<ROWS, FORM, true, WG_OUTPUTS>(l, s, p);
}
template <int FORM> static int launch_wgmma(const gpu_launch *l, const gpu_step *s, const gpu_product *p) {
    switch (best_rows(l, p)) {
    case 192: return launch_rows<192, FORM>(l, s, p);
    case 176: return launch_rows<176, FORM>(l, s, p);
    case 64: return launch_tiles<64, FORM, false, WG_OUTPUTS>(l, s, p);
    default: return launch_rows<128, FORM>(l, s, p);
    }
}

template <int ROWS, int FORM, bool GATED, int OUTPUTS> static cudaError_t allow_tiles(cudaError_t e) {
    return allow_shared(e, product_wgmma<ROWS, FORM, GATED, OUTPUTS>,
                        wg_shape<ROWS, FORM, GATED, OUTPUTS>::BYTES);
}
template <int FORM, bool GATED> static cudaError_t open_tiles(cudaError_t e) {
    if (!GATED) e = allow_tiles<64, FORM, GATED, WG_OUTPUTS>(e);
    e = allow_tiles<192, FORM, GATED, WG_OUTPUTS>(e);
    e = allow_tiles<176, FORM, GATED, WG_OUTPUTS>(e);
    return allow_tiles<128, FORM, GATED, WG_OUTPUTS>(e);
}
template <int FORM> static cudaError_t open_wgmma(cudaError_t e) {
    return open_tiles<FORM, true>(open_tiles<FORM, false>(e));
}
