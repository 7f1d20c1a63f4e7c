// Packed weights (GPU_FRAGMENTS): matrices stored in the order in which a warp reads them as operand A of
// mma.sync.m16n8k16 and of wgmma with A in registers.
//
// Rows are cut into tiles of 16, and D is rounded up to whole tiles; elements of rows >= D are zeros. Lane
// l = 4 g + t of a warp holds rows g and g + 8 of a tile.
//
//     dense        [tiles][C / 16][32 lanes][4 words]: word r is register a_r of the instruction: row
//                  g + 8 (r % 2), columns 8 (r / 2) + 2 t + {0, 1} of the 16; bf16 or f16
//     4-bit codes  [tiles][C / 32][32 lanes][2 words]: word h has the 8 codes of row g + 8 h: nibbles i and
//                  i + 4 are columns 8 i + 2 t + {0, 1} of the 32
//     8-bit codes  [tiles][C / 16][32 lanes][2 words]: word h has the 4 codes of row g + 8 h: bytes i and
//                  i + 2 are columns 8 i + 2 t + {0, 1} of the 16
//     scales       [tiles][C / group][8 g][2 h][2]: scale and bias of row g + 8 h
//
// A word belongs to one row, so that an upload may write any range of rows.
#pragma once

#include "coded.cuh"

enum { TILE_ROWS = 16, MMA_K = 16, CHUNK = 32 };

// The lane that holds columns k and k ^ 1 of row d, and which of its two rows d is.
__host__ __device__ inline int32_t lane_of(int64_t d, int64_t k) { return (int32_t)(d % 8 * 4 + k % 8 / 2); }
__host__ __device__ inline int32_t half_of(int64_t d) { return (int32_t)(d % 16 / 8); }

// Index of element (d, k) of a dense packed weight, in elements.
__host__ __device__ inline int64_t dense_index(int64_t C, int64_t d, int64_t k) {
    const int64_t tile = d / TILE_ROWS * (C / MMA_K) + k / MMA_K;
    return (tile * 32 + lane_of(d, k)) * 8 + (k % MMA_K / 8 * 2 + half_of(d)) * 2 + k % 2;
}
// Columns whose codes of 4 or 8 bits are in one word of each of four lanes.
__host__ __device__ constexpr int32_t word_columns(int32_t bits) { return 128 / bits; }
// Index of the word that has the code (d, k), and the position of the code's lowest bit in it.
__host__ __device__ inline int64_t code_word(int32_t bits, int64_t C, int64_t d, int64_t k) {
    const int32_t n = word_columns(bits);
    return ((d / TILE_ROWS * (C / n) + k / n) * 32 + lane_of(d, k)) * 2 + half_of(d);
}
__host__ __device__ inline uint32_t code_shift(int32_t bits, int64_t k) {
    return (uint32_t)(k % word_columns(bits) / 8 * bits + k % 2 * 16);
}
// Index of the pair of scale and bias of row d and group g, of `groups` groups.
__host__ __device__ inline int64_t scale_index(int64_t groups, int64_t d, int64_t g) {
    return (d / TILE_ROWS * groups + g) * TILE_ROWS + d % 8 * 2 + half_of(d);
}

// The number that a code stands for (gpu_weight.numbers), of those that are packed.
__device__ inline float number_of(int32_t numbers, uint32_t code) {
    return numbers == GPU_E4M3   ? number_of_e4m3(code)
           : numbers == GPU_E5M2 ? number_of_e5m2(code)
                                 : (float)code;
}

// Element (d, k) of any weight, in f32: of an affine one fma(s, q, b).
__device__ inline float weight_element(const gpu_weight &w, int64_t d, int64_t k) {
    const bool packed = w.form == GPU_FRAGMENTS;
    if (!w.bits) return load_element(w.data, w.type, packed ? dense_index(w.C, d, k) : d * w.C + k);
    const int64_t groups = w.C / w.group, g = k / w.group;
    if (packed) {
        const uint32_t word = ((const uint32_t *)w.data)[code_word(w.bits, w.C, d, k)],
                       q = word >> code_shift(w.bits, k) & ((1u << w.bits) - 1u);
        const int64_t i = 2 * scale_index(groups, d, g);
        return fmaf(load_element(w.scales, w.type, i), number_of(w.numbers, q),
                    load_element(w.scales, w.type, i + 1));
    }
    return fmaf(load_element(w.scales, w.type, d * groups + g),
                (float)affine_code(affine_row(w, d), w.bits, k),
                load_element(w.biases, w.type, d * groups + g));
}

// ---- pairs of bf16 ----

__device__ inline uint32_t fma_bf16x2(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t d;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}
// Two floats rounded to bf16, lo in the low half.
__device__ inline uint32_t round_pair(float lo, float hi) {
    uint32_t d;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(hi), "f"(lo));
    return d;
}
// The codes at bits 0 to 3 and 16 to 19 of a word as a pair of bf16 numbers 128 + q: 0x4300 is 128, and a
// code fills the low bits of its mantissa. Written as one lop3, because the compiler makes two instructions
// of the expression.
__device__ inline uint32_t codes_of(uint32_t word) {
    uint32_t d;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(d) : "r"(word), "r"(0x000f000fu), "r"(0x43004300u));
    return d;
}
// The codes at bits 4 to 7 and 20 to 23 of a word as a pair of bf16 numbers q 2^-129. Bits 0 to 7 of a bf16
// number that is otherwise zero count multiples of the least subnormal number, 2^-133. The scale times 2^129
// multiplied by such a number is s q, exactly, so that a pair of elements takes one instruction. Scales must
// be below SCALES_BELOW, as s 2^129 would be infinite.
__device__ inline uint32_t subnormal_codes(uint32_t word) { return word & 0x00f000f0u; }
#define SCALES_BELOW 0x3f00 // 0.5 in bf16
__device__ inline uint32_t times_2_129(uint32_t s) {
    const uint32_t power_127 = 0x7f007f00u, four = 0x40804080u, minus_zero = 0x80008000u;
    return fma_bf16x2(fma_bf16x2(s, power_127, minus_zero), four, minus_zero);
}
// The codes in bytes i and i + 2 of a word, i 0 or 1, as a pair of bf16 numbers q: the subnormal numbers
// q 2^-133 times 2^127 and 2^6.
__device__ inline uint32_t bytes_of(uint32_t word, int i) {
    const uint32_t power_127 = 0x7f007f00u, power_6 = 0x42804280u;
    const uint32_t q = __byte_perm(word, 0, i ? 0x4341 : 0x4240);
    return fma_bf16x2(fma_bf16x2(q, power_127, 0), power_6, 0);
}
// Bytes i and i + 2 of a word in fp8 as a pair of bf16 numbers. Sign, exponent and mantissa take their places
// in bf16; a multiplication corrects the exponent's bias, also of numbers below the least normal one.
__device__ inline uint32_t fp8_of(uint32_t word, int i, int32_t numbers) {
    const uint32_t q = __byte_perm(word, 0, i ? 0x4341 : 0x4240), sign = (q & 0x00800080u) << 8;
    const bool e4m3 = numbers == GPU_E4M3;
    return fma_bf16x2((q & 0x007f007fu) << (e4m3 ? 4 : 5) | sign, e4m3 ? 0x7b807b80u : 0x77807780u, 0);
}
template <bool E4M3> __device__ inline uint32_t byte_pair(uint32_t word, int i) {
    return E4M3 ? fp8_of(word, i, GPU_E4M3) : bytes_of(word, i);
}
__device__ inline float low_float(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ inline float high_float(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }

// Scale and bias of a row in a group, in the form in which pairs of elements are dequantised. BF16: the
// scales are stored in bf16; s and b have each number twice. Else s and b are f32.
template <bool BF16> struct affine_pair {
    uint32_t s, b;
    // The elements s q + b, rounded to bf16 once, of a pair of codes that codes_of has made.
    __device__ inline uint32_t of(uint32_t codes) const {
        const uint32_t one = 0x3f803f80u, minus_128 = 0xc300c300u;
        return fma_bf16x2(s, fma_bf16x2(codes, one, minus_128), b);
    }
    // The same of a pair of bf16 numbers q.
    __device__ inline uint32_t of_numbers(uint32_t q) const { return fma_bf16x2(s, q, b); }
    __device__ inline void set(float scale, float bias) {
        s = __byte_perm(__float_as_uint(scale), 0, 0x3232), b = __byte_perm(__float_as_uint(bias), 0, 0x3232);
    }
};
template <> struct affine_pair<false> {
    float s, b;
    __device__ inline uint32_t of(uint32_t codes) const {
        return round_pair(fmaf(s, low_float(codes) - 128.0f, b), fmaf(s, high_float(codes) - 128.0f, b));
    }
    __device__ inline uint32_t of_numbers(uint32_t q) const {
        return round_pair(fmaf(s, low_float(q), b), fmaf(s, high_float(q), b));
    }
    __device__ inline void set(float scale, float bias) { s = scale, b = bias; }
};
