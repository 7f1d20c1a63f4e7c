// Products of bf16 rows with bf16 weights and with weights in affine groups, on the tensor cores
// (mma.sync.m16n8k16: bf16 operands, f32 sums).
//
// The weight is operand A: a warp computes 16 outputs of 8 * TILES rows. The columns are cut into chunks of
// 32. Thread t of the four that share a row of a fragment reads the 8 columns 8 t .. 8 t + 7 of the chunk, 16
// bytes of each operand, straight from memory; they are the fragments of two mma instructions:
//
//     dense     first mma: columns 8 t + {0, 1, 2, 3}; second: 8 t + {4, 5, 6, 7}
//     affine    first mma: columns 8 t + {0, 4, 1, 5}; second: 8 t + {2, 6, 3, 7}, the order in which masking
//               extracts codes of 4 bits from a word as pairs of 16 bits
//
// (affine: of the group of columns, thread t has GROUP / 4 columns that follow each other, 8 for each chunk.)
// A code is exact in bf16. The products of a group are one sum p; then y = fma(s, p, y), y = fma(b, t, y),
// where t, the sum of the group's x, comes from an mma with ones. Codes of 4 bits enter as q + 128, which
// costs no instruction, and b as b - 128 s.
//
// The columns are cut into 8 segments of whole units (a unit is a chunk, or a group of more columns), one for
// each warp of a block; a segment's sum starts at 0, and the segments are added in ascending order. The order
// of a row's sums thus depends on the weight alone, not on the number of rows.
#pragma once

#include "products_output.cuh"

enum { MMA_SEGMENTS = 8, MMA_OUTPUTS = 16, MMA_ROWS = 8, CHUNK = 32 };

// The type of a load of so many words.
template <int WORDS> struct vector_of;
template <> struct vector_of<1> { typedef uint32_t type; };
template <> struct vector_of<2> { typedef uint2 type; };
template <> struct vector_of<4> { typedef uint4 type; };

__device__ inline void mma_bf16(float c[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// 8 codes as four pairs of bf16: codes 0 and 4, 1 and 5, 2 and 6, 3 and 7. p: the first of their BITS bytes.
template <int BITS> __device__ inline void pairs_of_bytes(const uint8_t *p, uint32_t pair[4]) {
    uint64_t v = 0;
#pragma unroll
    for (int i = 0; i < BITS; i++) v |= (uint64_t)p[i] << (8 * i);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t lo = (uint32_t)(v >> (BITS * i)) & ((1u << BITS) - 1u),
                       hi = (uint32_t)(v >> (BITS * (i + 4))) & ((1u << BITS) - 1u);
        pair[i] = __float_as_uint((float)lo) >> 16 | (__float_as_uint((float)hi) & 0xffff0000u);
    }
}
// The same of 8 codes of 4 bits in a word, each 128 too large.
__device__ inline void pairs_of_word(uint32_t word, uint32_t pair[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++) // 0x4300 is 128; the code fills the low bits of its mantissa
        pair[i] = (word >> (4 * i) & 0x000f000fu) | 0x43004300u;
}

// The fragments of a row's 8 columns of x; zeros for a row that is not live.
__device__ inline uint4 row_fragment(const gpu_array &x, int32_t r, int32_t live, int64_t k) {
    if (r >= live) return make_uint4(0, 0, 0, 0);
    return *(const uint4 *)((const uint16_t *)x.data + (int64_t)r * x.pitch + k);
}

// A load of weights: they are read once in a step, so they leave the L1 cache to x.
__device__ inline uint4 load_weights(const uint4 *p) {
    uint4 v;
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
        : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
        : "l"(p));
    return v;
}
__device__ inline uint2 load_weights(const uint2 *p) {
    uint2 v;
    asm("ld.global.nc.L1::no_allocate.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
    return v;
}
__device__ inline uint32_t load_weights(const uint32_t *p) {
    uint32_t v;
    asm("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(v) : "l"(p));
    return v;
}

// Adds columns [from, to) of the products of outputs d[2] (of this thread's two fragment rows) and x. The
// weights of the next DEPTH chunks are on their way while those of the present ones are multiplied.
template <int TILES>
__device__ inline void sum_dense(const gpu_array &x, const gpu_weight &w, int32_t r0, int32_t live,
                                 const int64_t d[2], int64_t from, int64_t to, float y[TILES][4]) {
    enum { DEPTH = TILES == 1 ? 4 : 2 };
    const int32_t g = (int32_t)(threadIdx.x % 32) / 4, t = (int32_t)threadIdx.x % 4;
    const uint4 *row0 = (const uint4 *)((const uint16_t *)w.data + d[0] * w.C + from) + t,
                *row1 = (const uint4 *)((const uint16_t *)w.data + d[1] * w.C + from) + t;
    const int32_t n = (int32_t)((to - from) / CHUNK);
    uint4 next[2][DEPTH] = {};
    auto load = [&](int32_t c) {
#pragma unroll
        for (int i = 0; i < DEPTH; i++)
            if (c + i < n) {
                next[0][i] = load_weights(row0 + 4 * (c + i));
                next[1][i] = load_weights(row1 + 4 * (c + i));
            }
    };
    load(0);
    for (int32_t c = 0; c < n; c += DEPTH) {
        uint4 now[2][DEPTH];
#pragma unroll
        for (int i = 0; i < DEPTH; i++) now[0][i] = next[0][i], now[1][i] = next[1][i];
        load(c + DEPTH);
#pragma unroll
        for (int k = 0; k < DEPTH; k++) {
            if (c + k >= n) break;
            const uint4 a = now[0][k], b = now[1][k];
#pragma unroll
            for (int i = 0; i < TILES; i++) {
                const uint4 v = row_fragment(x, r0 + 8 * i + g, live, from + CHUNK * (c + k) + 8 * t);
                mma_bf16(y[i], a.x, b.x, a.y, b.y, v.x, v.y);
                mma_bf16(y[i], a.z, b.z, a.w, b.w, v.z, v.w);
            }
        }
    }
}

// Multiplies the 8 columns from k on, in pairs as codes have them, and adds up x.
template <int TILES>
__device__ inline void multiply_codes(const gpu_array &x, int32_t row, int32_t live, int64_t k,
                                      const uint32_t a[4], const uint32_t b[4], float p[TILES][4],
                                      float sums[TILES][4]) {
    const uint32_t one = 0x3f803f80u; // two ones
#pragma unroll
    for (int i = 0; i < TILES; i++) {
        const uint4 v = row_fragment(x, row + 8 * i, live, k);
        const uint32_t v04 = __byte_perm(v.x, v.z, 0x5410), v15 = __byte_perm(v.x, v.z, 0x7632),
                       v26 = __byte_perm(v.y, v.w, 0x5410), v37 = __byte_perm(v.y, v.w, 0x7632);
        mma_bf16(p[i], a[0], b[0], a[1], b[1], v04, v15);
        mma_bf16(p[i], a[2], b[2], a[3], b[3], v26, v37);
        mma_bf16(sums[i], one, one, one, one, v04, v15);
        mma_bf16(sums[i], one, one, one, one, v26, v37);
    }
}

// Adds a group: y = fma(s, p, y), y = fma(b, t, y), for the two outputs of a fragment.
template <int TILES>
__device__ inline void add_group(float y[TILES][4], const float p[TILES][4], const float sums[TILES][4],
                                 float s0, float s1, float b0, float b1) {
#pragma unroll
    for (int i = 0; i < TILES; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            y[i][j] = fmaf(j < 2 ? b0 : b1, sums[i][j], fmaf(j < 2 ? s0 : s1, p[i][j], y[i][j]));
}

// Codes of any width but 4 bits.
template <int TILES, int BITS>
__device__ inline void sum_codes(const gpu_array &x, const gpu_weight &w, int32_t r0, int32_t live,
                                 const int64_t d[2], int64_t from, int64_t to, float y[TILES][4]) {
    const int32_t g = (int32_t)(threadIdx.x % 32) / 4, t = (int32_t)threadIdx.x % 4;
    const int64_t groups = w.C / w.group;
    const uint8_t *row0 = (const uint8_t *)affine_row(w, d[0]), *row1 = (const uint8_t *)affine_row(w, d[1]);
    for (int64_t k0 = from; k0 < to; k0 += w.group) {
        float p[TILES][4] = {}, sums[TILES][4] = {};
        for (int64_t k = k0 + 8 * t; k < k0 + w.group; k += CHUNK) {
            uint32_t a[4], b[4];
            pairs_of_bytes<BITS>(row0 + k / 8 * BITS, a);
            pairs_of_bytes<BITS>(row1 + k / 8 * BITS, b);
            multiply_codes<TILES>(x, r0 + g, live, k, a, b, p, sums);
        }
        const int64_t i0 = d[0] * groups + k0 / w.group, i1 = d[1] * groups + k0 / w.group;
        add_group<TILES>(y, p, sums, load_element(w.scales, w.type, i0), load_element(w.scales, w.type, i1),
                         load_element(w.biases, w.type, i0), load_element(w.biases, w.type, i1));
    }
}

// A scale or a bias of 32 bits or of 16, without a branch: it is read as a part of a word.
__device__ inline float load_scale(const void *p, int32_t type, int64_t i) {
    const bool wide = type == GPU_F32;
    const uint32_t word = ((const uint32_t *)p)[wide ? i : i / 2];
    const uint16_t half = (uint16_t)(i % 2 ? word >> 16 : word);
    const float f16 = __half2float(__ushort_as_half(half)), bf16 = bf16_to_f32(half);
    return wide ? __uint_as_float(word) : type == GPU_BF16 ? bf16 : f16;
}

// Codes of 4 bits. A group of GROUP columns is GROUP / 32 chunks. Of its columns, thread t has GROUP / 4 that
// follow each other: one vector of codes. Codes and scales of the next group are on their way while those of
// the present one are multiplied.
template <int TILES, int GROUP>
__device__ inline void sum_words(const gpu_array &x, const gpu_weight &w, int32_t r0, int32_t live,
                                 const int64_t d[2], int64_t from, int64_t to, float y[TILES][4]) {
    enum { WORDS = GROUP / CHUNK, COLUMNS = GROUP / 4 };
    typedef typename vector_of<WORDS>::type vector;
    const int32_t g = (int32_t)(threadIdx.x % 32) / 4, t = (int32_t)threadIdx.x % 4;
    const int64_t groups = w.C / GROUP, first = from / GROUP;
    const int32_t n = (int32_t)((to - from) / GROUP);
    const char *row0 = (const char *)affine_row(w, d[0]), *row1 = (const char *)affine_row(w, d[1]);
    vector next0 = {}, next1 = {};
    float next_s[4] = {};
    auto load = [&](int32_t i) {
        if (i >= n) return;
        const int64_t at = (from + (int64_t)i * GROUP + COLUMNS * t) / 2;
        next0 = load_weights((const vector *)(row0 + at));
        next1 = load_weights((const vector *)(row1 + at));
        next_s[0] = load_scale(w.scales, w.type, d[0] * groups + first + i);
        next_s[1] = load_scale(w.scales, w.type, d[1] * groups + first + i);
        next_s[2] = load_scale(w.biases, w.type, d[0] * groups + first + i);
        next_s[3] = load_scale(w.biases, w.type, d[1] * groups + first + i);
    };
    load(0);
#pragma unroll 2
    for (int32_t c = 0; c < n; c++) {
        const int64_t k = from + (int64_t)c * GROUP + COLUMNS * t;
        const vector now0 = next0, now1 = next1;
        const float s0 = next_s[0], s1 = next_s[1], b0 = next_s[2], b1 = next_s[3];
        load(c + 1);
        float p[TILES][4] = {}, sums[TILES][4] = {};
#pragma unroll
        for (int i = 0; i < WORDS; i++) {
            uint32_t a[4], b[4];
            pairs_of_word(((const uint32_t *)&now0)[i], a);
            pairs_of_word(((const uint32_t *)&now1)[i], b);
            multiply_codes<TILES>(x, r0 + g, live, k + 8 * i, a, b, p, sums);
        }
        add_group<TILES>(y, p, sums, s0, s1, fmaf(-128.0f, s0, b0), fmaf(-128.0f, s1, b1));
    }
}

template <int TILES, int BITS>
__device__ inline void segment_sum(const gpu_array &x, const gpu_weight &w, int32_t r0, int32_t live,
                                   const int64_t d[2], int segment, float y[TILES][4]) {
    const int64_t unit = BITS && w.group > CHUNK ? w.group : CHUNK, n = w.C / unit;
    const int64_t from = n * segment / MMA_SEGMENTS * unit, to = n * (segment + 1) / MMA_SEGMENTS * unit;
    if (BITS == 4 && w.group == 32) sum_words<TILES, 32>(x, w, r0, live, d, from, to, y);
    else if (BITS == 4 && w.group == 64) sum_words<TILES, 64>(x, w, r0, live, d, from, to, y);
    else if (BITS == 4) sum_words<TILES, 128>(x, w, r0, live, d, from, to, y);
    else if (BITS) sum_codes<TILES, BITS>(x, w, r0, live, d, from, to, y);
    else sum_dense<TILES>(x, w, r0, live, d, from, to, y);
}

// Brings the first of the block's rows of weights to the L2 cache while the kernel before still runs.
template <bool GATED> __device__ inline void prefetch_weights(const gpu_product &p) {
#if __CUDA_ARCH__ >= 900
    enum { MOST = 16 << 20 }; // of all blocks: a part of the L2 cache
    const int64_t each = MOST / (gridDim.x * (GATED ? 2 : 1));
    int32_t which = 0;
    const int64_t d0 = first_output(p, MMA_OUTPUTS, &which);
    for (int m = 0; m < (GATED ? 2 : 1); m++) {
        const gpu_weight &w = p.w[GATED ? m : which];
        const int64_t row = w.bits ? w.C / 32 * 4 * w.bits : 2 * w.C,
                      rows = d0 + MMA_OUTPUTS <= w.D ? MMA_OUTPUTS : w.D - d0, bytes = rows * row;
        const char *from = (const char *)w.data + d0 * row;
        const uint32_t n = (uint32_t)(bytes < each ? bytes : each) / 16 * 16;
        if ((uintptr_t)from % 16 == 0 && n > 0)
            asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(n) : "memory");
    }
#endif
}

// A block computes 16 outputs of 8 * TILES rows: warp i the segment i.
template <int TILES, int BITS, bool GATED>
__global__ void __launch_bounds__(32 * MMA_SEGMENTS) product_mma(gpu_step s, gpu_product p) {
    __shared__ float part[GATED ? 2 : 1][MMA_SEGMENTS][TILES * MMA_ROWS][MMA_OUTPUTS + 1];
    let_next_begin();
    if (threadIdx.x == 0) prefetch_weights<GATED>(p);
    wait_for_inputs();
    const int32_t live = live_rows(s, p.x.rows), r0 = (int32_t)blockIdx.y * MMA_ROWS * TILES;
    if (r0 >= live) return;
    const int warp = (int)threadIdx.x / 32, g = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;
    int32_t which = 0;
    const int64_t d0 = first_output(p, MMA_OUTPUTS, &which), D = p.w[which].D;
    // outputs beyond the last are computed from the last row of the weight, and not stored
    const int64_t d[2] = {d0 + g < D ? d0 + g : D - 1, d0 + g + 8 < D ? d0 + g + 8 : D - 1};
#pragma unroll
    for (int m = 0; m < (GATED ? 2 : 1); m++) {
        float acc[TILES][4] = {};
        segment_sum<TILES, BITS>(p.x, p.w[GATED ? m : which], r0, live, d, warp, acc);
#pragma unroll
        for (int i = 0; i < TILES; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) part[m][warp][8 * i + 2 * t + j % 2][g + j / 2 * 8] = acc[i][j];
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < TILES * MMA_ROWS * MMA_OUTPUTS; i += 32 * MMA_SEGMENTS) {
        const int row = i / MMA_OUTPUTS, col = i % MMA_OUTPUTS;
        if (r0 + row >= live || d0 + col >= D) continue;
        float v[2] = {0, 0};
        for (int m = 0; m < (GATED ? 2 : 1); m++)
            for (int k = 0; k < MMA_SEGMENTS; k++) v[m] = v[m] + part[m][k][row][col];
        store_output<GATED>(p, which, r0 + row, d0 + col, v[0], v[1]);
    }
}

template <int TILES, int BITS>
static void launch_tiles(const gpu_launch *l, const gpu_step *s, const gpu_product *p) {
    const dim3 grid(output_blocks(p, MMA_OUTPUTS),
                    (unsigned)((grid_rows(l, p->x.rows) + MMA_ROWS * TILES - 1) / (MMA_ROWS * TILES)));
    if (p->gate == GPU_NO_GATE) run(l, grid, 32 * MMA_SEGMENTS, 0, product_mma<TILES, BITS, false>, *s, *p);
    else run(l, grid, 32 * MMA_SEGMENTS, 0, product_mma<TILES, BITS, true>, *s, *p);
}

template <int BITS> static void launch_mma(const gpu_launch *l, const gpu_step *s, const gpu_product *p) {
    const int32_t rows = grid_rows(l, p->x.rows);
    if (rows <= 8) launch_tiles<1, BITS>(l, s, p);
    else if (rows <= 16) launch_tiles<2, BITS>(l, s, p);
    else launch_tiles<4, BITS>(l, s, p);
}
