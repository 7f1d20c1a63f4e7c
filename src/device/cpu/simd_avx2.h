/* The vector words of the AVX2 rung: 8 floats, and the 8 x 8 transpose that turns rows of a weight into lanes. The same words as
 * simd_avx512.h, which says what they mean.
 *
 * The transpose begins in the loads: half registers of rows i and i + 4 are put side by side, so that what remains stays within
 * 128-bit lanes and costs 16 shuffles. */
#ifndef LN_SIMD_AVX2_H
#define LN_SIMD_AVX2_H

#include <immintrin.h>
#include <stdint.h>

#define LN_RUNG(name) name##_avx2
#define LN_CORE_WIDE 0
#define INLINE static inline __attribute__((always_inline))

enum { VL = 8, CORE_M = 6, CORE_NV = 2 }; /* 12 of 16 registers */
typedef __m256 vf;
typedef __m256i vi;

INLINE vf vf_zero(void) { return _mm256_setzero_ps(); }
INLINE vf vf_set1(float x) { return _mm256_set1_ps(x); }
INLINE vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
INLINE void vf_store(float *p, vf x) { _mm256_storeu_ps(p, x); }
INLINE vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
INLINE vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
INLINE vf vf_load_bf16(const uint16_t *p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)), 16));
}
INLINE vf vf_low_bf16(vi x) { return _mm256_castsi256_ps(_mm256_slli_epi32(x, 16)); }
INLINE vf vf_high_bf16(vi x) { return _mm256_castsi256_ps(_mm256_and_si256(x, _mm256_set1_epi32((int)0xffff0000u))); }
INLINE vi vi_load(const uint8_t *p) { return _mm256_loadu_si256((const __m256i *)(const void *)p); }
INLINE void vi_store(uint8_t *p, vi x) { _mm256_storeu_si256((__m256i *)(void *)p, x); }
INLINE vf vf_of(vi x) { return _mm256_castsi256_ps(x); }

/* a[i]: four columns of row i in the lower half, of row i + 4 in the upper; t[i]: column i of the eight rows. */
INLINE void transpose_half(const vi a[4], vi t[4]) {
    vi u0 = _mm256_unpacklo_epi32(a[0], a[1]), u1 = _mm256_unpackhi_epi32(a[0], a[1]);
    vi u2 = _mm256_unpacklo_epi32(a[2], a[3]), u3 = _mm256_unpackhi_epi32(a[2], a[3]);
    t[0] = _mm256_unpacklo_epi64(u0, u2);
    t[1] = _mm256_unpackhi_epi64(u0, u2);
    t[2] = _mm256_unpacklo_epi64(u1, u3);
    t[3] = _mm256_unpackhi_epi64(u1, u3);
}
INLINE void tile_words(const uint8_t *w, int64_t stride, vi t[VL]) {
    const uint8_t *w4 = w + 4 * stride;
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        vi a[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            a[i] = _mm256_inserti128_si256(
                _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)(w + i * stride + 16 * half))),
                _mm_loadu_si128((const __m128i *)(const void *)(w4 + i * stride + 16 * half)), 1);
        transpose_half(a, t + 4 * half);
    }
}
INLINE void tile_f16(const uint8_t *w, int64_t stride, vi t[VL]) {
    const uint8_t *w4 = w + 4 * stride;
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        vi a[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            a[i] = _mm256_castps_si256(
                _mm256_cvtph_ps(_mm_unpacklo_epi64(_mm_loadl_epi64((const __m128i *)(const void *)(w + i * stride + 8 * half)),
                                                   _mm_loadl_epi64((const __m128i *)(const void *)(w4 + i * stride + 8 * half)))));
        transpose_half(a, t + 4 * half);
    }
}

#endif
