// Stored forms of weights: how a warp of the kernel of few rows (products_mma.cuh) reads 16 rows of a weight
// and makes operand A of mma.sync.m16n8k16.
//
// A form reads units of TILES_K tiles of 16 columns. open sets the tile of rows and the first column; load
// loads unit c from there on into registers; fragment makes operand A of tile j of a loaded unit. DEPTH: the
// units that a warp loads ahead, divided by the number of groups of 8 rows of x; DEPTH_OF_8_ROWS: the same
// if there is one such group.
#pragma once

#include "fragments.cuh"

// Loads of weights, which a step reads once: they do not stay in the L1 cache.
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

template <int COLUMNS> struct dense_form {
    enum { TILES_K = COLUMNS / MMA_K, DEPTH = 256 / COLUMNS, DEPTH_OF_8_ROWS = DEPTH };
    struct unit {
        uint4 w[TILES_K];
    };
    const uint4 *from;

    __device__ inline void open(const gpu_weight &w, int32_t tile, int32_t k0) {
        from = (const uint4 *)w.data + ((int64_t)tile * ((uint32_t)w.C / MMA_K) + (uint32_t)k0 / MMA_K) * 32 +
               threadIdx.x % 32;
    }
    __device__ inline void load(unit &u, int32_t c) const {
#pragma unroll
        for (int j = 0; j < TILES_K; j++) u.w[j] = load_weights(from + (c * TILES_K + j) * 32);
    }
    __device__ inline void fragment(const unit &u, int j, uint32_t a[4]) const {
        a[0] = u.w[j].x, a[1] = u.w[j].y, a[2] = u.w[j].z, a[3] = u.w[j].w;
    }
};

// f16, packed like bf16. An element is the sum of two bf16 numbers, what it is rounded to and the rest, so
// each tile is multiplied twice: the product is that of x in bf16 and the exact weight.
template <int COLUMNS> struct half_form : dense_form<COLUMNS> {
    typedef typename dense_form<COLUMNS>::unit unit;
    static __device__ inline uint32_t part_of(uint32_t word, int part) {
        const float lo = __half2float(__ushort_as_half((uint16_t)word)),
                    hi = __half2float(__ushort_as_half((uint16_t)(word >> 16)));
        const uint32_t rounded = round_pair(lo, hi);
        return part ? round_pair(lo - low_float(rounded), hi - high_float(rounded)) : rounded;
    }
    __device__ inline void fragment_part(const unit &u, int j, int part, uint32_t a[4]) const {
        a[0] = part_of(u.w[j].x, part), a[1] = part_of(u.w[j].y, part);
        a[2] = part_of(u.w[j].z, part), a[3] = part_of(u.w[j].w, part);
    }
};
// How many numbers an element is the sum of, and operand A of one of them.
template <typename FORM> struct parts_of {
    enum { N = 1 };
    static __device__ inline void fragment(const FORM &f, const typename FORM::unit &u, int j, int,
                                           uint32_t a[4]) {
        f.fragment(u, j, a);
    }
};
template <int COLUMNS> struct parts_of<half_form<COLUMNS>> {
    enum { N = 2 };
    typedef half_form<COLUMNS> form;
    static __device__ inline void fragment(const form &f, const typename form::unit &u, int j, int part,
                                           uint32_t a[4]) {
        f.fragment_part(u, j, part, a);
    }
};

// What the scales of a form are. ANY_SCALES: f16 or f32, an element is rounded to f32 and then to bf16.
// FP8_SCALES: bf16, of codes in e4m3. SMALL_SCALES: bf16, none of which is large (gpu_weight); LARGE_SCALES:
// bf16, some may be large. Elements of
// both are rounded to bf16 once, so their bits are equal; small scales take fewer instructions.
enum { ANY_SCALES, SMALL_SCALES, LARGE_SCALES, FP8_SCALES };

// Codes of 4 or 8 bits, packed. GROUPS: the groups of columns in a unit, 1 if a group is a unit or more.
template <int BITS, int COLUMNS, int GROUPS, int SCALES> struct words_form {
    enum {
        BF16 = SCALES != ANY_SCALES,
        SUBNORMAL = SCALES == SMALL_SCALES && BITS == 4, // codes are read as subnormal numbers
        TILES_K = COLUMNS / MMA_K,
        WORDS = COLUMNS / word_columns(BITS), // of a row, in a unit
        WORD_TILES = TILES_K / WORDS,
        DEPTH = 1024 / BITS / COLUMNS,
        FAST = SCALES == SMALL_SCALES || SCALES == FP8_SCALES,
        DEPTH_OF_8_ROWS = FAST && COLUMNS == 64 ? 2 * DEPTH : DEPTH
    };
    struct unit {
        uint2 w[WORDS];
        uint4 scales[GROUPS]; // pairs of rows g and g + 8; of 16 bits: two words
    };
    const uint2 *from;
    const char *scales;
    int32_t type, pair_bytes; // of a scale and a bias
    int32_t first, shift;     // the unit of the first column; log2 of the units of a group
    int32_t numbers;          // gpu_weight.numbers, read for 8 bits with ANY_SCALES

    __device__ inline void open(const gpu_weight &w, int32_t tile, int32_t k0) {
        const uint32_t C = (uint32_t)w.C, groups = w.group == 32 ? C / 32 : w.group == 64 ? C / 64 : C / 128;
        type = w.type, numbers = w.numbers;
        pair_bytes = !BF16 && type == GPU_F32 ? 8 : 4;
        shift = w.group / COLUMNS / 2; // a group has 1, 2 or 4 units
        first = (int32_t)((uint32_t)k0 / COLUMNS);
        from = (const uint2 *)w.data +
               ((int64_t)tile * (C / word_columns(BITS)) + (uint32_t)k0 / word_columns(BITS)) * 32 +
               threadIdx.x % 32;
        scales =
            (const char *)w.scales + ((int64_t)tile * groups * 8 + threadIdx.x % 32 / 4) * 2 * pair_bytes;
    }
    __device__ inline void load(unit &u, int32_t c) const {
#pragma unroll
        for (int j = 0; j < WORDS; j++) u.w[j] = load_weights(from + (c * WORDS + j) * 32);
        const int32_t group = GROUPS > 1 ? (first + c) * GROUPS : (first + c) >> shift;
#pragma unroll
        for (int i = 0; i < GROUPS; i++) {
            const char *at = scales + (group + i) * (TILE_ROWS * pair_bytes);
            if (!BF16 && pair_bytes == 8) u.scales[i] = load_weights((const uint4 *)at);
            else *(uint2 *)&u.scales[i] = load_weights((const uint2 *)at);
        }
    }
    // Scale and bias of row g + 8 h in a group of the unit; if SUBNORMAL, the scale times 2^129.
    __device__ inline affine_pair<BF16 != 0> scale(const unit &u, int i, int h) const {
        affine_pair<BF16 != 0> p;
        const uint32_t word = h ? u.scales[i].y : u.scales[i].x;
        if constexpr (BF16) {
            p.s = __byte_perm(word, 0, 0x1010), p.b = __byte_perm(word, 0, 0x3232);
            if (SUBNORMAL) p.s = times_2_129(p.s);
        } else if (pair_bytes == 8) {
            p.s = __uint_as_float(h ? u.scales[i].z : u.scales[i].x);
            p.b = __uint_as_float(h ? u.scales[i].w : u.scales[i].y);
        } else if (type == GPU_F16) {
            p.s = __half2float(__ushort_as_half((uint16_t)word));
            p.b = __half2float(__ushort_as_half((uint16_t)(word >> 16)));
        } else p.s = low_float(word), p.b = high_float(word);
        return p;
    }
    __device__ inline void fragment(const unit &u, int j, uint32_t a[4]) const {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint32_t word = h ? u.w[j / WORD_TILES].y : u.w[j / WORD_TILES].x;
            const affine_pair<BF16 != 0> p = scale(u, j * GROUPS / TILES_K, h);
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int nibble = j % 2 * 2 + i;
                if constexpr (BITS == 8 && SCALES == FP8_SCALES)
                    a[h + 2 * i] = p.of_numbers(fp8_of(word, i, GPU_E4M3));
                else if constexpr (BITS == 8)
                    a[h + 2 * i] = p.of_numbers(BF16 || numbers == GPU_INTEGERS ? bytes_of(word, i)
                                                                                : fp8_of(word, i, numbers));
                else if constexpr (SUBNORMAL)
                    a[h + 2 * i] =
                        p.of_numbers(subnormal_codes(nibble ? word >> (4 * nibble - 4) : word << 4));
                else a[h + 2 * i] = p.of(codes_of(word >> (4 * nibble)));
            }
        }
    }
};

// Codes of any width, stored row by row.
template <int BITS> struct rows_form {
    enum { TILES_K = CHUNK / MMA_K, DEPTH = 1, DEPTH_OF_8_ROWS = 1 };
    struct unit {
        uint32_t pair[2][4];    // codes 8 i + 2 t + {0, 1} of rows g and g + 8, as bf16
        float s[2][2], b[2][2]; // scales and biases of the two rows, in both tiles of 16 columns
    };
    const uint32_t *row[2];
    const gpu_weight *weight;
    int64_t first, group[2];

    // Outputs beyond the last are computed from the last row, and not stored.
    __device__ inline void open(const gpu_weight &w, int32_t tile, int32_t k0) {
        weight = &w, first = k0;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int64_t d = (int64_t)tile * TILE_ROWS + threadIdx.x % 32 / 4 + 8 * h, last = w.D - 1;
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
#pragma unroll
            for (int j = 0; j < TILES_K; j++) {
                const int64_t g = group[h] + (k + j * MMA_K) / weight->group;
                u.s[h][j] = load_element(weight->scales, weight->type, g);
                u.b[h][j] = load_element(weight->biases, weight->type, g);
            }
        }
    }
    template <bool BF16> __device__ inline void pairs(const unit &u, int j, uint32_t a[4]) const {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            affine_pair<BF16> p;
            p.set(u.s[h][j], u.b[h][j]);
            a[h] = p.of_numbers(u.pair[h][2 * j]), a[h + 2] = p.of_numbers(u.pair[h][2 * j + 1]);
        }
    }
    __device__ inline void fragment(const unit &u, int j, uint32_t a[4]) const {
        if (weight->type == GPU_BF16) pairs<true>(u, j, a);
        else pairs<false>(u, j, a);
    }
};

// A form with fewer units ahead, whose buffers of x are smaller.
template <typename FORM> struct shallow_form : FORM {
    enum { DEPTH_OF_8_ROWS = FORM::DEPTH };
};
