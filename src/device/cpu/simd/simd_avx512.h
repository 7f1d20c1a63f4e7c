/* SIMD wrappers of the AVX-512 level: 16 lanes.
 *
 * The templates that are compiled once per vector ISA level are written in these wrappers only; simd_avx2.h
 * defines the same ones for 8 lanes, simd_neon.h for 4. vf is a vector of f32; vi one of integers, of which
 * the name says the width: 32 bits a lane, 16 for two elements a lane, 8 for four. Loads and stores take any
 * alignment. All helpers are forced inline: the arrays they pass are registers. */
#ifndef LN_SIMD_AVX512_H
#define LN_SIMD_AVX512_H

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "prefetch.h"

#define LN_ISA(name)        name##_avx512
#define LN_WIDE_MICROKERNEL 1
#define INLINE              static inline __attribute__((always_inline))

enum { VL = 16 }; /* lanes */
typedef __m512 vf;
typedef __m512i vi;

INLINE vf vf_zero(void) { return _mm512_setzero_ps(); }
INLINE vf vf_set1(float x) { return _mm512_set1_ps(x); }
INLINE vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
INLINE void vf_store(float *p, vf x) { _mm512_storeu_ps(p, x); }
INLINE void vf_store_n(float *p, int64_t n, vf x) {
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), x);
} /* its first n elements, 16 at most */
INLINE vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
INLINE vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
INLINE vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
INLINE vf vf_from_i8(const int8_t *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}
INLINE vf vf_load_bf16(const uint16_t *p) {
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p)), 16));
}
/* The two bf16 elements of each 32-bit lane: the lower one (the even column) and the upper one. */
INLINE vf vf_lo_bf16(vi x) { return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16)); }
INLINE vf vf_hi_bf16(vi x) {
    return _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32((int)0xffff0000u)));
}
INLINE vi vi_load(const uint8_t *p) { return _mm512_loadu_si512(p); }
/* As many bytes as there are lanes, one in each (vf_load_i8: signed, as floats); elements of a table, whose
 * indices are below 2^15. */
INLINE vi vi_load_u8(const uint8_t *p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}
INLINE vf vf_load_i8(const uint8_t *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}
INLINE vf vf_gather(const float *table, const uint16_t *at) {
    return _mm512_i32gather_ps(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)at)),
                               table, 4);
}
/* vf_lo_bf16 of memory at p; the two bytes before it may be read. */
INLINE vf vf_lo_bf16_mem(const uint8_t *p) { return vf_lo_bf16(vi_load(p)); }
/* Of each 32-bit lane: the bits of a mask; shifts by n; an integer below 2^31 as a float. */
INLINE vi vi_and32(vi x, uint32_t m) { return _mm512_and_si512(x, _mm512_set1_epi32((int)m)); }
INLINE vi vi_shr32(vi x, int n) { return _mm512_srli_epi32(x, (unsigned)n); }
/* (uint8_t): compilers declare the count of a 16-bit shift as int or as unsigned, and one of them warns of
 * either. */
INLINE vi vi_shr16(vi x, int n) { return _mm512_srli_epi16(x, (uint8_t)n); }
INLINE vi vi_shl32(vi x, int n) { return _mm512_slli_epi32(x, (unsigned)n); }
INLINE vi vi_or(vi a, vi b) { return _mm512_or_si512(a, b); }
INLINE vi vi_add(vi a, vi b) { return _mm512_add_epi32(a, b); }
INLINE vf vf_from_i32(vi x) { return _mm512_cvtepi32_ps(x); }
/* 32 bits of memory in every lane; c plus the sums of the products of both pairs of int16 of a lane. */
INLINE vi vi_zero(void) { return _mm512_setzero_si512(); }
INLINE vi vi_broadcast32(const void *p) {
    int32_t word;
    memcpy(&word, p, 4);
    return _mm512_set1_epi32(word);
}
INLINE void vi_store(uint8_t *p, vi x) { _mm512_storeu_si512(p, x); }
INLINE vi vi_dot_i16(vi a, vi b, vi c) {
#ifdef LN_VNNI
    __asm__("vpdpwssd %1, %2, %0" : "+v"(c) : "v"(a), "v"(b));
#else
    vi t;
    __asm__("vpmaddwd %2, %3, %1\n\tvpaddd %1, %0, %0" : "+v"(c), "=&v"(t) : "v"(a), "v"(b));
#endif
    return c;
}
/* c plus the products of both pairs of bf16 of a lane, the upper one first, as two FMAs with denormals zero
 * (AVX512_BF16). */
INLINE vf vf_dot_bf16(vi a, vi b, vf c) {
    __asm__("vdpbf16ps %1, %2, %0" : "+v"(c) : "v"(a), "v"(b));
    return c;
}
/* The same with 32 bits of memory in every lane of a. */
INLINE vf vf_dot_bf16_mem(const void *a, vi b, vf c) {
    __asm__("vdpbf16ps %1%{1to16%}, %2, %0" : "+v"(c) : "m"(*(const uint32_t *)a), "v"(b));
    return c;
}
/* For int8 digit pairs: rounding, and integers of 32 and 16 bits. */
INLINE vf vf_round(vf x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
INLINE vf vf_floor(vf x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); }
INLINE vi vi_round_i32(vf x) { return _mm512_cvtps_epi32(x); }
/* 32 int32 as int16, four of a, four of b, the next four of a, ..; 64 int16 of -128 .. 127, two such vectors,
 * as int8, in order. */
#define LN_HAS_PACK_I8 1
INLINE vi vi_pack_i16(vi a, vi b) { return _mm512_packs_epi32(a, b); }
INLINE vi vi_pack_i8(vi a, vi b) {
    const vi quads = _mm512_packs_epi16(a, b);
    return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15),
                                    quads);
}
/* The larger of two uint32; the largest of all lanes. */
INLINE vi vi_max_u32(vi a, vi b) { return _mm512_max_epu32(a, b); }
INLINE uint32_t vi_reduce_max_u32(vi x) { return _mm512_reduce_max_epu32(x); }
/* Of each eight lanes the even ones first. */
INLINE vf vf_deinterleave8(vf x) {
    return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15), x);
}
INLINE vi vi_set32(int32_t x) { return _mm512_set1_epi32(x); }
INLINE vi vi_sub(vi a, vi b) { return _mm512_sub_epi32(a, b); }
INLINE vi vi_xor32(vi x, uint32_t m) { return _mm512_xor_si512(x, _mm512_set1_epi32((int)m)); }
INLINE vi vi_xor_and32(vi x, uint32_t turn, uint32_t m) {
    return _mm512_ternarylogic_epi32(x, _mm512_set1_epi32((int)turn), _mm512_set1_epi32((int)m), 0x28);
}
/* The bits of a where the mask has ones, else those of b. */
INLINE vi vi_select_bits(uint32_t m, vi a, vi b) {
    return _mm512_ternarylogic_epi32(_mm512_set1_epi32((int)m), a, b, 0xca);
}
/* Of each lane: its low 16 bits in both halves; byte k in all four; byte k, sign-extended, as both int16 and
 * as int32. k is a constant. */
INLINE vi vi_dup_low16(vi x) {
    return _mm512_shuffle_epi8(x, _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 0, 1, 4, 5, 4, 5, 8, 9, 8, 9, 12,
                                                                       13, 12, 13)));
}
INLINE vi vi_dup_byte(vi x, const int k) {
    const int at = k * 0x1010101; /* else gcc would add vectors each time */
    return _mm512_shuffle_epi8(x, _mm512_broadcast_i32x4(_mm_setr_epi32(at, at + 0x4040404, at + 0x8080808,
                                                                        at + 0xc0c0c0c)));
}
INLINE vi vi_dup_byte_i16(vi x, const int k) { return _mm512_srai_epi16(vi_dup_byte(x, k), 8); }
INLINE vi vi_byte_i32(vi x, const int k) {
    return _mm512_srai_epi32(_mm512_slli_epi32(x, (unsigned)(24 - 8 * k)), 24);
}
INLINE vi vi_add16(vi a, vi b) { return _mm512_add_epi16(a, b); }
INLINE vi vi_set16(int x) { return _mm512_set1_epi16((short)x); }
INLINE vi vi_sub16(vi a, vi b) { return _mm512_sub_epi16(a, b); }
INLINE vi vi_sra16(vi x, int n) { return _mm512_srai_epi16(x, (uint8_t)n); }
INLINE vi vi_mulhi_u16(vi a, vi b) { return _mm512_mulhi_epu16(a, b); }
INLINE vi vi_add_pairs16(vi x) {
    return _mm512_madd_epi16(x, _mm512_set1_epi16(1));
} /* of both int16 of each lane */
INLINE vi vi_mul16(vi a, vi b) { return _mm512_mullo_epi16(a, b); }
INLINE vi vi_mulrs16(vi a, vi b) { return _mm512_mulhrs_epi16(a, b); } /* (a b + 2^14) >> 15 */
INLINE vi vi_shl16(vi x, int n) { return _mm512_slli_epi16(x, (uint8_t)n); }
#ifdef LN_VNNI
/* c plus the products of four bytes of a lane, those of a unsigned, those of b signed. */
INLINE vi vi_dot_u8i8(vi a, vi b, vi c) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));
    return c;
}
#endif
/* For bf12 (bf12.h), all of it in each 128-bit quarter: a lookup table of 8 bytes, and again with their top
 * bits set; bytes of a table by indices below 16; the lower 8 bytes of a and of b interleaved, the upper
 * ones. */
INLINE vi vi_lut_load(uint64_t bytes) {
    const int64_t signs = INT64_MIN | 0x0080808080808080;
    return _mm512_or_si512(_mm512_set1_epi64((long long)bytes),
                           _mm512_setr_epi64(0, signs, 0, signs, 0, signs, 0, signs));
}
INLINE vi vi_lut_bytes(vi table, vi at) { return _mm512_shuffle_epi8(table, at); }
INLINE vi vi_unpack_lo8(vi a, vi b) { return _mm512_unpacklo_epi8(a, b); }
INLINE vi vi_unpack_hi8(vi a, vi b) { return _mm512_unpackhi_epi8(a, b); }
INLINE vf vf_cast(vi x) { return _mm512_castsi512_ps(x); }
INLINE vf vf_load_f16(const uint8_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
/* c - a b. */
INLINE vf vf_fnma(vf a, vf b, vf c) { return _mm512_fnmadd_ps(a, b, c); }
INLINE vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
INLINE vi vi_cast(vf x) { return _mm512_castps_si512(x); }
/* The larger of two, b where one is NaN; the largest lane. */
INLINE vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
INLINE float vf_reduce_max(vf x) { return _mm512_reduce_max_ps(x); }
/* The pairwise sum of 16 lanes in 16 / VL vectors: l + (l + 8), then 4, 2 and 1 apart. */
INLINE float vf_reduce_add16(const vf *x) {
    const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(*x), _mm512_extractf32x8_ps(*x, 1));
    const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1)),
                 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
/* -inf but in lanes from <= i < to. */
INLINE vf vf_mask_range(vf x, int from, int to) {
    const vi at = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __mmask16 in = _mm512_mask_cmplt_epi32_mask(_mm512_cmpge_epi32_mask(at, _mm512_set1_epi32(from)),
                                                      at, _mm512_set1_epi32(to));
    return _mm512_mask_mov_ps(_mm512_set1_ps(-INFINITY), in, x);
}
INLINE vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
/* a where x < limit, else b. */
INLINE vf vf_select_gt(vf x, float limit, vf a, vf b) {
    return _mm512_mask_mov_ps(b, _mm512_cmp_ps_mask(x, _mm512_set1_ps(limit), _CMP_GT_OQ), a);
}
/* p 2^n for integer n, -127 < n <= 128, which may be infinite; for other n anything. */
INLINE vf vf_scale_pow2(vf p, vf n) { return _mm512_scalef_ps(p, n); }
/* p 2^n, which is no denormal, where t is n + 1.5 * 2^23; 0 where x < least. */
INLINE vf vf_apply_exp2(vf p, vf t, vf x, float least) {
    const vf by = _mm512_castsi512_ps(_mm512_add_epi32(_mm512_slli_epi32(_mm512_castps_si512(t), 23),
                                                       _mm512_set1_epi32(0x3f800000)));
    return _mm512_maskz_mul_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(least), _CMP_NLT_UQ), p, by);
}
/* Stores two vectors of bf16 values, two bytes each. */
INLINE void vf_store_bf16(uint16_t *p, vf a, vf b) {
    const vi order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7); /* packs go by 128-bit quarters */
    _mm512_storeu_si512(p, _mm512_permutexvar_epi64(order,
                                                    _mm512_packus_epi32(_mm512_srli_epi32(vi_cast(a), 16),
                                                                        _mm512_srli_epi32(vi_cast(b), 16))));
}
/* Two vectors as ln_f32_bf16 rounds them. */
INLINE vi vf_round_bf16(vf x) {
    const vi u = vi_cast(x), half = _mm512_set1_epi32(0x7fff), bit = _mm512_set1_epi32(0x10000);
    const vi even = _mm512_mask_add_epi32(_mm512_add_epi32(u, half), _mm512_test_epi32_mask(u, bit), u,
                                          _mm512_set1_epi32(0x8000));
    return _mm512_mask_or_epi32(even, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), u, _mm512_set1_epi32(0x400000));
}
INLINE void vf_store_round_bf16(uint16_t *p, vf a, vf b) {
    vf_store_bf16(p, vf_cast(vf_round_bf16(a)), vf_cast(vf_round_bf16(b)));
}

#endif
