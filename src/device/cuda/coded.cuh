// Elements of weights in coded rows (GPU_CODED): those of quant/coded.c, with the same bits.
#pragma once

#include "cuda_common.cuh"

__device__ inline float number_of_e4m3(uint32_t v) {
    const float f = v & 0x78 ? __uint_as_float(((v & 0x7f) << 20) + (120u << 23)) : (float)(v & 7) * 0x1p-9f;
    return (v & 0x7f) == 0x7f ? __uint_as_float(0x7fc00000u) : v & 0x80 ? -f : f;
}
__device__ inline float number_of_e5m2(uint32_t v) {
    return __half2float(__ushort_as_half((uint16_t)(v << 8)));
}
__device__ inline float number_of_e2m1(uint32_t v) {
    const float half = v & 1 ? 0.5f : 0.0f,
                f = v & 6 ? (1.0f + half) * (float)(1 << (v >> 1 & 3)) * 0.5f : half;
    return v & 8 ? -f : f;
}
// Code k of a row that is a stream of bits from its first byte on; the row has whole words.
__device__ inline uint32_t coded_bits(const uint8_t *row, int32_t bits, int64_t k) {
    const int64_t at = k * bits;
    const uint32_t shift = (uint32_t)(at & 7), first = row[at >> 3];
    const uint32_t v = shift + (uint32_t)bits > 8 ? first | (uint32_t)row[(at >> 3) + 1] << 8 : first;
    return v >> shift & ((1u << bits) - 1u);
}

// Row d of a weight, whose columns are read in ascending order. NUMBERS: gpu_weight.numbers. rounds: scales
// are rounded to bf16, and elements.
template <int NUMBERS> struct coded_row {
    const gpu_weight &w;
    const uint8_t *codes;
    int64_t unit, end; // the scale of the present group, and the first column after it
    float scale;
    bool rounds;

    __device__ coded_row(const gpu_weight &of, int64_t d, bool is_rounded = false)
        : w(of), unit(0), end(0), scale(0), rounds(is_rounded) {
        const int64_t row = NUMBERS == GPU_E2M1     ? (w.C + 1) / 2
                            : NUMBERS == GPU_ZEROED ? (w.C * w.bits + 31) / 32 * 4
                                                    : w.C,
                      groups = (w.C + w.group - 1) / w.group;
        codes = (const uint8_t *)w.data + d * row;
        unit = d * groups - 1;
    }
    __device__ float at(int64_t k) {
        if (NUMBERS == GPU_ZEROED) {
            const int64_t g = unit + 1 + w.columns[k];
            return load_element(w.scales, w.type, g) *
                   ((float)coded_bits(codes, w.bits, k) - load_element(w.biases, GPU_F16, g));
        }
        if (k >= end) {
            const int64_t further = (k - end) / w.group + 1;
            unit += further, end += further * w.group;
            scale = rounded(load_element(w.scales, w.type, unit));
        }
        return rounded(scale * (NUMBERS == GPU_E4M3   ? number_of_e4m3(codes[k])
                                : NUMBERS == GPU_E5M2 ? number_of_e5m2(codes[k])
                                                      : number_of_e2m1(codes[k / 2] >> (k & 1) * 4 & 15u)));
    }
    __device__ float rounded(float x) const { return rounds ? bf16_to_f32(f32_to_bf16(x)) : x; }
};
__device__ inline float coded_element(const gpu_weight &w, int64_t d, int64_t k) {
    switch (w.numbers) {
    case GPU_E4M3: return coded_row<GPU_E4M3>(w, d).at(k);
    case GPU_E5M2: return coded_row<GPU_E5M2>(w, d).at(k);
    case GPU_E2M1: return coded_row<GPU_E2M1>(w, d).at(k);
    default: return coded_row<GPU_ZEROED>(w, d).at(k);
    }
}
