// Products of few bf16 rows with bf16 weights and with weights in affine groups, on the tensor cores
// (mma.sync.m16n8k16: bf16 operands, f32 sums). An element of an affine weight is s q + b, rounded to bf16.
//
// The weight is operand A: a warp computes 16 outputs of 8 * TILES rows of x. Packed weights (fragments.cuh)
// come from memory as the registers of the instruction, 512 contiguous bytes of a dense weight at a time;
// codes of other widths than 4 bits are extracted from their rows.
//
// Order of a sum, whatever the kernel (products_gemm.cuh has the same): the columns are cut into 8 segments
// of whole units (64 columns where C is a multiple of 64, else 32), one for each warp of a block. A segment's
// sum starts at 0 and takes 16 columns after the other, one instruction for each; the segments are added in
// ascending order. So a row's bits depend on the weight and on the row alone.
#pragma once

#include "fragments.cuh"
#include "products_output.cuh"

enum { MMA_SEGMENTS = 8, MMA_OUTPUTS = TILE_ROWS, MMA_ROWS = 8 };

// The first column of a segment; of MMA_SEGMENTS: C.
__device__ inline int64_t segment_start(int64_t C, int segment) {
    const int64_t unit = C % 64 ? CHUNK : 64;
    return C / unit * segment / MMA_SEGMENTS * unit;
}

__device__ inline void mma_bf16(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// A load of weights: they are read once in a step, so they leave the L1 cache to x.
__device__ inline uint4 load_weights(const uint4 *p) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}
__device__ inline uint2 load_weights(const uint2 *p) {
    uint2 v;
    asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
    return v;
}

// ---- stored forms: how a warp reads 16 rows of a weight, `TILES_K` tiles of 16 columns at a time ----
//
// open: tile and first column; load: unit c from there on; fragment: operand A of tile j of a loaded unit.

template <int COLUMNS> struct dense_form {
    enum { TILES_K = COLUMNS / MMA_K, DEPTH = 128 / COLUMNS };
    struct unit {
        uint4 w[TILES_K];
    };
    const uint4 *from;

    __device__ inline void open(const gpu_weight &w, int64_t d0, int64_t k0) {
        from = (const uint4 *)w.data + (d0 / TILE_ROWS * (w.C / MMA_K) + k0 / MMA_K) * 32 + threadIdx.x % 32;
    }
    __device__ inline void load(unit &u, int32_t c) const {
#pragma unroll
        for (int j = 0; j < TILES_K; j++) u.w[j] = load_weights(from + (c * TILES_K + j) * 32);
    }
    __device__ inline void fragment(const unit &u, int j, uint32_t a[4]) const {
        a[0] = u.w[j].x, a[1] = u.w[j].y, a[2] = u.w[j].z, a[3] = u.w[j].w;
    }
};

// Codes of 4 bits. GROUPS: groups that a unit has columns of. BF16: the type of the scales, else f32 or f16.
template <int COLUMNS, int GROUPS, bool BF16> struct words_form {
    enum { TILES_K = COLUMNS / MMA_K, DEPTH = 256 / COLUMNS };
    struct unit {
        uint2 w[TILES_K / 2];
        uint4 scales[GROUPS]; // pairs of rows g and g + 8; of 16 bits: two words
    };
    const uint2 *from;
    const char *scales;
    int32_t pair_bytes, first, units_per_group; // of a scale and a bias; unit of k0; 2 with groups of 128

    __device__ inline void open(const gpu_weight &w, int64_t d0, int64_t k0) {
        const int64_t tile = d0 / TILE_ROWS;
        pair_bytes = w.type == GPU_F32 ? 8 : 4;
        units_per_group = w.group > COLUMNS ? w.group / COLUMNS : 1;
        first = (int32_t)(k0 / COLUMNS);
        from = (const uint2 *)w.data + (tile * (w.C / CHUNK) + k0 / CHUNK) * 32 + threadIdx.x % 32;
        scales =
            (const char *)w.scales + (tile * (w.C / w.group) * 8 + threadIdx.x % 32 / 4) * 2 * pair_bytes;
    }
    __device__ inline void load(unit &u, int32_t c) const {
#pragma unroll
        for (int j = 0; j < TILES_K / 2; j++) u.w[j] = load_weights(from + (c * (TILES_K / 2) + j) * 32);
        const int32_t group = GROUPS > 1 ? (first + c) * GROUPS : (first + c) / units_per_group;
#pragma unroll
        for (int i = 0; i < GROUPS; i++) {
            const char *at = scales + (int64_t)(group + i) * TILE_ROWS * pair_bytes;
            if (!BF16 && pair_bytes == 8) u.scales[i] = load_weights((const uint4 *)at);
            else *(uint2 *)&u.scales[i] = load_weights((const uint2 *)at);
        }
    }
    // Scale and bias of row g + 8 h in a group of the unit.
    __device__ inline affine_pair<BF16> scale(const unit &u, int i, int h) const {
        affine_pair<BF16> p;
        if constexpr (BF16) {
            const uint32_t word = h ? u.scales[i].y : u.scales[i].x;
            p.s = __byte_perm(word, 0, 0x1010), p.b = __byte_perm(word, 0, 0x3232);
        } else if (pair_bytes == 8) {
            p.s = __uint_as_float(h ? u.scales[i].z : u.scales[i].x);
            p.b = __uint_as_float(h ? u.scales[i].w : u.scales[i].y);
        } else { // f16
            const uint32_t word = h ? u.scales[i].y : u.scales[i].x;
            p.s = __half2float(__ushort_as_half((uint16_t)word));
            p.b = __half2float(__ushort_as_half((uint16_t)(word >> 16)));
        }
        return p;
    }
    __device__ inline void fragment(const unit &u, int j, uint32_t a[4]) const {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint32_t word = h ? u.w[j / 2].y : u.w[j / 2].x;
            const affine_pair<BF16> p = scale(u, j * GROUPS / TILES_K, h);
#pragma unroll
            for (int i = 0; i < 2; i++) // 0x4300 is 128 in bf16; the code fills the low bits of its mantissa
                a[h + 2 * i] = p.of((word >> (4 * (j % 2 * 2 + i)) & 0x000f000fu) | 0x43004300u);
        }
    }
};

// Codes of any width in rows.
template <int BITS> struct rows_form {
    enum { TILES_K = CHUNK / MMA_K, DEPTH = 1 };
    struct unit {
        uint32_t pair[2][4]; // codes 8 i + 2 t + {0, 1} of rows g and g + 8, as bf16
        int64_t scale[2];    // indices
    };
    const uint32_t *row[2];
    const gpu_weight *weight;
    int64_t first, group[2];

    // Outputs beyond the last are computed from the last row, and not stored.
    __device__ inline void open(const gpu_weight &w, int64_t d0, int64_t k0) {
        weight = &w, first = k0;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int64_t d = d0 + threadIdx.x % 32 / 4 + 8 * h, last = w.D - 1;
            row[h] = affine_row(w, d < w.D ? d : last);
            group[h] = (d < w.D ? d : last) * (w.C / w.group);
        }
    }
    __device__ inline uint32_t pair_at(const uint32_t *codes, int64_t k) const {
        const uint32_t at = (uint32_t)k * BITS, shift = at & 31, mask = (1u << BITS) - 1;
        const uint32_t *p = codes + (at >> 5);
        const uint32_t v = shift + 2 * BITS > 32 ? __funnelshift_r(p[0], p[1], shift) : p[0] >> shift;
        return __float_as_uint((float)(v & mask)) >> 16 |
               (__float_as_uint((float)(v >> BITS & mask)) & 0xffff0000u);
    }
    __device__ inline void load(unit &u, int32_t c) const {
        const int64_t k = first + (int64_t)c * CHUNK;
#pragma unroll
        for (int h = 0; h < 2; h++) {
#pragma unroll
            for (int i = 0; i < 4; i++) u.pair[h][i] = pair_at(row[h], k + 8 * i + threadIdx.x % 4 * 2);
            u.scale[h] = group[h] + k / weight->group;
        }
    }
    template <bool BF16> __device__ inline void pairs(const unit &u, int j, uint32_t a[4]) const {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            affine_pair<BF16> p;
            p.set(weight->scales, weight->biases, weight->type, u.scale[h], u.scale[h]);
            a[h] = p.of_numbers(u.pair[h][2 * j]), a[h + 2] = p.of_numbers(u.pair[h][2 * j + 1]);
        }
    }
    __device__ inline void fragment(const unit &u, int j, uint32_t a[4]) const {
        if (weight->type == GPU_BF16) pairs<true>(u, j, a);
        else pairs<false>(u, j, a);
    }
};

// ---- the kernel ----

// The rows of x that a lane reads: row g of each group of 8; NULL: not live.
template <int TILES> struct x_rows {
    const uint32_t *row[TILES];
    __device__ inline void open(const gpu_array &x, int32_t r0, int32_t live, int64_t k0) {
        const int32_t g = (int32_t)threadIdx.x % 32 / 4, t = (int32_t)threadIdx.x % 4;
#pragma unroll
        for (int i = 0; i < TILES; i++) {
            const int32_t r = r0 + 8 * i + g;
            row[i] = r < live ? (const uint32_t *)((const uint16_t *)x.data + r * x.pitch + k0) + t : NULL;
        }
    }
};

// Adds columns [from, to) of the products of the 16 outputs from d0 on.
template <int TILES, typename FORM>
__device__ inline void segment_sum(const gpu_array &x, const gpu_weight &w, int32_t r0, int32_t live,
                                   int64_t d0, int64_t from, int64_t to, float y[TILES][4]) {
    enum { COLUMNS = FORM::TILES_K * MMA_K, DEPTH = FORM::DEPTH };
    const int32_t n = (int32_t)((to - from) / COLUMNS);
    FORM form;
    x_rows<TILES> rows;
    typename FORM::unit units[DEPTH];
    form.open(w, d0, from);
    rows.open(x, r0, live, from);
#pragma unroll
    for (int i = 0; i < DEPTH; i++)
        if (i < n) form.load(units[i], i);
    for (int32_t c = 0; c < n; c += DEPTH) {
#pragma unroll
        for (int i = 0; i < DEPTH; i++) {
            if (c + i >= n) break;
            uint32_t v[TILES][2 * FORM::TILES_K];
#pragma unroll
            for (int j = 0; j < 2 * FORM::TILES_K; j++)
#pragma unroll
                for (int r = 0; r < TILES; r++)
                    v[r][j] = rows.row[r] ? rows.row[r][(c + i) * (COLUMNS / 2) + 4 * j] : 0;
#pragma unroll
            for (int j = 0; j < FORM::TILES_K; j++) {
                uint32_t a[4];
                form.fragment(units[i], j, a);
#pragma unroll
                for (int r = 0; r < TILES; r++) mma_bf16(y[r], a, v[r][2 * j], v[r][2 * j + 1]);
            }
            if (c + i + DEPTH < n) form.load(units[i], c + i + DEPTH);
        }
    }
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
        const bool packed = w.form == GPU_FRAGMENTS;
        const int64_t row = w.bits ? w.C / 32 * 4 * w.bits : 2 * w.C,
                      rows = packed || d0 + MMA_OUTPUTS <= w.D ? MMA_OUTPUTS : w.D - d0, bytes = rows * row;
        const char *from = (const char *)w.data + d0 * row;
        const uint32_t n = (uint32_t)(bytes < each ? bytes : each) / 16 * 16;
        if ((uintptr_t)from % 16 == 0 && n > 0)
            asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(n) : "memory");
    }
#endif
}

// A block computes 16 outputs of 8 * TILES rows: warp i the segment i.
template <int TILES, typename FORM, bool GATED>
__global__ void __launch_bounds__(32 * MMA_SEGMENTS) product_mma(gpu_step s, gpu_product p) {
    __shared__ float part[GATED ? 2 : 1][MMA_SEGMENTS][TILES * MMA_ROWS][MMA_OUTPUTS + 1];
    let_next_begin();
    if (threadIdx.x == 0) prefetch_weights<GATED>(p);
    wait_for_inputs();
    const int32_t live = live_rows(s, p.x.rows), r0 = (int32_t)blockIdx.y * MMA_ROWS * TILES;
    if (r0 >= live) return;
    const int warp = (int)threadIdx.x / 32, g = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;
    int32_t which = 0;
    const int64_t d0 = first_output(p, MMA_OUTPUTS, &which), D = p.w[which].D, C = p.w[which].C;
    const int64_t from = segment_start(C, warp), to = segment_start(C, warp + 1);
#pragma unroll
    for (int m = 0; m < (GATED ? 2 : 1); m++) {
        float acc[TILES][4] = {};
        segment_sum<TILES, FORM>(p.x, p.w[GATED ? m : which], r0, live, d0, from, to, acc);
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

template <int TILES, typename FORM>
static void launch_tiles(const gpu_launch *l, const gpu_step *s, const gpu_product *p) {
    const dim3 grid(output_blocks(p, MMA_OUTPUTS),
                    (unsigned)((grid_rows(l, p->x.rows) + MMA_ROWS * TILES - 1) / (MMA_ROWS * TILES)));
    if (p->gate == GPU_NO_GATE) run(l, grid, 32 * MMA_SEGMENTS, 0, product_mma<TILES, FORM, false>, *s, *p);
    else run(l, grid, 32 * MMA_SEGMENTS, 0, product_mma<TILES, FORM, true>, *s, *p);
}

template <typename FORM>
static void launch_form(const gpu_launch *l, const gpu_step *s, const gpu_product *p) {
    const int32_t rows = grid_rows(l, p->x.rows);
    if (rows <= 8) launch_tiles<1, FORM>(l, s, p);
    else if (rows <= 16) launch_tiles<2, FORM>(l, s, p);
    else launch_tiles<4, FORM>(l, s, p);
}

#if GPU_CODE_BITS == 0
static void launch_mma(const gpu_launch *l, const gpu_step *s, const gpu_product *p) {
    if (p->w[0].C % 64 == 0) launch_form<dense_form<64>>(l, s, p);
    else launch_form<dense_form<32>>(l, s, p);
}
#elif GPU_CODE_BITS == 4
template <bool BF16> static void launch_words(const gpu_launch *l, const gpu_step *s, const gpu_product *p) {
    if (p->w[0].C % 64) launch_form<words_form<32, 1, BF16>>(l, s, p);
    else if (p->w[0].group == 32) launch_form<words_form<64, 2, BF16>>(l, s, p);
    else launch_form<words_form<64, 1, BF16>>(l, s, p);
}
static void launch_mma(const gpu_launch *l, const gpu_step *s, const gpu_product *p) {
    if (p->w[0].type == GPU_BF16) launch_words<true>(l, s, p);
    else launch_words<false>(l, s, p);
}
#else
static void launch_mma(const gpu_launch *l, const gpu_step *s, const gpu_product *p) {
    launch_form<rows_form<GPU_CODE_BITS>>(l, s, p);
}
#endif
