/* SIMD wrappers of the AVX2 level: 8 lanes. The same as those of simd_avx512.h, which says what they
 * compute. */
#ifndef LN_SIMD_AVX2_H
#define LN_SIMD_AVX2_H

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "prefetch.h"

#define LN_ISA(name)        name##_avx2
#define LN_WIDE_MICROKERNEL 0
#define INLINE              static inline __attribute__((always_inline))

enum { VL = 8 };
typedef __m256 vf;
typedef __m256i vi;

INLINE vf vf_zero(void) { return _mm256_setzero_ps(); }
INLINE vf vf_set1(float x) { return _mm256_set1_ps(x); }
INLINE vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
INLINE void vf_store(float *p, vf x) { _mm256_storeu_ps(p, x); }
INLINE vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
INLINE vf vf_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
INLINE vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
INLINE vf vf_from_i8(const int8_t *p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}
INLINE vf vf_load_bf16(const uint16_t *p) {
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)), 16));
}
INLINE vf vf_lo_bf16(vi x) { return _mm256_castsi256_ps(_mm256_slli_epi32(x, 16)); }
INLINE vf vf_hi_bf16(vi x) {
    return _mm256_castsi256_ps(_mm256_and_si256(x, _mm256_set1_epi32((int)0xffff0000u)));
}
INLINE vi vi_load(const uint8_t *p) { return _mm256_loadu_si256((const __m256i *)(const void *)p); }
INLINE vi vi_load_u8(const uint8_t *p) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
}
INLINE vf vf_load_i8(const uint8_t *p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}
INLINE vf vf_gather(const float *table, const uint16_t *at) {
    return _mm256_i32gather_ps(table,
                               _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)at)), 4);
}
/* vf_lo_bf16 of memory at p; the two bytes before it may be read. */
INLINE vf vf_lo_bf16_mem(const uint8_t *p) {
    return _mm256_castsi256_ps(_mm256_and_si256(vi_load(p - 2), _mm256_set1_epi32((int)0xffff0000u)));
}
/* Of each 32-bit lane: the bits of a mask; shifts by n; an integer below 2^31 as a float. */
INLINE vi vi_and32(vi x, uint32_t m) { return _mm256_and_si256(x, _mm256_set1_epi32((int)m)); }
INLINE vi vi_shr32(vi x, int n) { return _mm256_srli_epi32(x, n); }
INLINE vi vi_shr16(vi x, int n) { return _mm256_srli_epi16(x, n); }
INLINE vi vi_shl32(vi x, int n) { return _mm256_slli_epi32(x, n); }
INLINE vi vi_or(vi a, vi b) { return _mm256_or_si256(a, b); }
INLINE vi vi_add(vi a, vi b) { return _mm256_add_epi32(a, b); }
INLINE vf vf_from_i32(vi x) { return _mm256_cvtepi32_ps(x); }
INLINE vi vi_zero(void) { return _mm256_setzero_si256(); }
INLINE vi vi_broadcast32(const void *p) {
    int32_t word;
    memcpy(&word, p, 4);
    return _mm256_set1_epi32(word);
}
INLINE void vi_store(uint8_t *p, vi x) { _mm256_storeu_si256((__m256i *)(void *)p, x); }
INLINE vi vi_dot_i16(vi a, vi b, vi c) {
    vi t;
    __asm__("vpmaddwd %2, %3, %1\n\tvpaddd %1, %0, %0" : "+v"(c), "=&v"(t) : "v"(a), "v"(b));
    return c;
}
INLINE vi vi_lut_load(uint64_t bytes) {
    const int64_t signs = INT64_MIN | 0x0080808080808080;
    return _mm256_or_si256(_mm256_set1_epi64x((long long)bytes), _mm256_setr_epi64x(0, signs, 0, signs));
}
INLINE vi vi_lut_bytes(vi table, vi at) { return _mm256_shuffle_epi8(table, at); }
INLINE vi vi_unpack_lo8(vi a, vi b) { return _mm256_unpacklo_epi8(a, b); }
INLINE vi vi_unpack_hi8(vi a, vi b) { return _mm256_unpackhi_epi8(a, b); }
INLINE vf vf_cast(vi x) { return _mm256_castsi256_ps(x); }
INLINE vf vf_load_f16(const uint8_t *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}
INLINE vf vf_fnma(vf a, vf b, vf c) { return _mm256_fnmadd_ps(a, b, c); }
INLINE vf vf_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
INLINE vi vi_cast(vf x) { return _mm256_castps_si256(x); }
INLINE vf vf_max(vf a, vf b) { return _mm256_max_ps(a, b); }
INLINE float vf_reduce_max(vf x) {
    __m128 h = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    h = _mm_max_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_max_ss(h, _mm_movehdup_ps(h)));
}
INLINE float vf_reduce_add16(const vf *x) {
    const __m256 a = _mm256_add_ps(x[0], x[1]);
    const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1)),
                 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
INLINE vf vf_mask_range(vf x, int from, int to) {
    const vi at = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const vi out = _mm256_or_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(from), at),
                                   _mm256_cmpgt_epi32(at, _mm256_set1_epi32(to - 1)));
    return _mm256_blendv_ps(x, _mm256_set1_ps(-INFINITY), _mm256_castsi256_ps(out));
}
INLINE vf vf_div(vf a, vf b) { return _mm256_div_ps(a, b); }
INLINE vf vf_select_gt(vf x, float limit, vf a, vf b) {
    return _mm256_blendv_ps(b, a, _mm256_cmp_ps(x, _mm256_set1_ps(limit), _CMP_GT_OQ));
}
INLINE vf vf_scale_pow2(vf p, vf n) { /* in two factors: n may be 128 */
    const vi k = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(k, 1), rest = _mm256_sub_epi32(k, half),
             one = _mm256_set1_epi32(127);
    p = _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, one), 23)));
    return _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, one), 23)));
}
INLINE vf vf_apply_exp2(vf p, vf t, vf x, float least) {
    const vf by = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(_mm256_castps_si256(t), 23),
                                                       _mm256_set1_epi32(0x3f800000)));
    return _mm256_and_ps(_mm256_mul_ps(p, by), _mm256_cmp_ps(x, _mm256_set1_ps(least), _CMP_NLT_UQ));
}

#endif
