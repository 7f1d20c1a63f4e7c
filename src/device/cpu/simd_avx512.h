/* The vector words of the AVX-512 rung: 16 floats, and the 16 x 16 transpose that turns rows of a weight into lanes.
 *
 * linear_tmpl.h, attn_tmpl.h and core_tmpl.h are written in these words only, and simd_avx2.h defines the same ones for 8 lanes.
 * Loads and stores take any alignment. All helpers are forced inline: the arrays they pass are registers. */
#ifndef LN_SIMD_AVX512_H
#define LN_SIMD_AVX512_H

#include <immintrin.h>
#include <stdint.h>

#define LN_RUNG(name) name##_avx512
#define LN_CORE_WIDE 1
#define INLINE static inline __attribute__((always_inline))

enum { VL = 16, CORE_M = 8, CORE_NV = 3 }; /* lanes; rows and vectors of the largest micro-kernel: 24 of 32 registers */
typedef __m512 vf;
typedef __m512i vi;

INLINE vf vf_zero(void) { return _mm512_setzero_ps(); }
INLINE vf vf_set1(float x) { return _mm512_set1_ps(x); }
INLINE vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
INLINE void vf_store(float *p, vf x) { _mm512_storeu_ps(p, x); }
INLINE vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
INLINE vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
INLINE vf vf_load_bf16(const uint16_t *p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p)), 16));
}
/* The two bf16 numbers of each 32-bit lane: the lower one (the even column) and the upper one. */
INLINE vf vf_low_bf16(vi x) { return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16)); }
INLINE vf vf_high_bf16(vi x) { return _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32((int)0xffff0000u))); }
INLINE vi vi_load(const uint8_t *p) { return _mm512_loadu_si512(p); }
INLINE void vi_store(uint8_t *p, vi x) { _mm512_storeu_si512(p, x); }
INLINE vf vf_of(vi x) { return _mm512_castsi512_ps(x); }

INLINE void transpose(vi t[VL]) {
    vi a[VL], b[VL];
#pragma GCC unroll 16
    for (int i = 0; i < VL; i += 2) {
        a[i] = _mm512_unpacklo_epi32(t[i], t[i + 1]);
        a[i + 1] = _mm512_unpackhi_epi32(t[i], t[i + 1]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < VL; i += 4) {
        b[i] = _mm512_unpacklo_epi64(a[i], a[i + 2]);
        b[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 2]);
        b[i + 2] = _mm512_unpacklo_epi64(a[i + 1], a[i + 3]);
        b[i + 3] = _mm512_unpackhi_epi64(a[i + 1], a[i + 3]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 4; i++) { /* b[4 q + i] lane l: rows 4 q .. 4 q + 3 of column 4 l + i */
        vi x0 = _mm512_shuffle_i32x4(b[i], b[4 + i], 0x88), x1 = _mm512_shuffle_i32x4(b[i], b[4 + i], 0xdd);
        vi y0 = _mm512_shuffle_i32x4(b[8 + i], b[12 + i], 0x88), y1 = _mm512_shuffle_i32x4(b[8 + i], b[12 + i], 0xdd);
        t[i] = _mm512_shuffle_i32x4(x0, y0, 0x88);
        t[4 + i] = _mm512_shuffle_i32x4(x1, y1, 0x88);
        t[8 + i] = _mm512_shuffle_i32x4(x0, y0, 0xdd);
        t[12 + i] = _mm512_shuffle_i32x4(x1, y1, 0xdd);
    }
}
/* t[i] = column i of VL rows of 32-bit words, `stride` bytes apart. */
INLINE void tile_words(const uint8_t *w, int64_t stride, vi t[VL]) {
#pragma GCC unroll 16
    for (int i = 0; i < VL; i += 4) {
        const uint8_t *p = w + i * stride;
        t[i] = _mm512_loadu_si512(p);
        t[i + 1] = _mm512_loadu_si512(p + stride);
        t[i + 2] = _mm512_loadu_si512(p + 2 * stride);
        t[i + 3] = _mm512_loadu_si512(p + 3 * stride);
    }
    transpose(t);
}
/* The same from f16, widened. */
INLINE void tile_f16(const uint8_t *w, int64_t stride, vi t[VL]) {
#pragma GCC unroll 16
    for (int i = 0; i < VL; i++)
        t[i] = _mm512_castps_si512(_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(w + i * stride))));
    transpose(t);
}

#endif
