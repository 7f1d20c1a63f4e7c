/* The vector words of the NEON rung: 4 floats, and the 4 x 4 transpose that turns rows of a weight into lanes. The same words as
 * simd_avx512.h, which says what they mean.
 *
 * Every aarch64 machine has all of this, so there is nothing to ask at run time. vfmaq is one rounding, as fmaf is: the bits are
 * those of the other rungs on the same machine. (Between an ARM and an x86 machine they may differ where a result is just at the
 * border of the denormals: one flushes before rounding, the other after.) */
#ifndef LN_SIMD_NEON_H
#define LN_SIMD_NEON_H

#include <arm_neon.h>
#include <stdint.h>

#define LN_RUNG(name) name##_neon
#define LN_CORE_WIDE 1
#define INLINE static inline __attribute__((always_inline))

enum { VL = 4, CORE_M = 8, CORE_NV = 3 }; /* 24 of 32 registers */
typedef float32x4_t vf;
typedef uint32x4_t vi;

INLINE vf vf_zero(void) { return vdupq_n_f32(0); }
INLINE vf vf_set1(float x) { return vdupq_n_f32(x); }
INLINE vf vf_load(const float *p) { return vld1q_f32(p); }
INLINE void vf_store(float *p, vf x) { vst1q_f32(p, x); }
INLINE vf vf_fma(vf a, vf b, vf c) { return vfmaq_f32(c, a, b); }
INLINE vf vf_add(vf a, vf b) { return vaddq_f32(a, b); }
INLINE vf vf_load_bf16(const uint16_t *p) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16)); }
INLINE vf vf_low_bf16(vi x) { return vreinterpretq_f32_u32(vshlq_n_u32(x, 16)); }
INLINE vf vf_high_bf16(vi x) { return vreinterpretq_f32_u32(vandq_u32(x, vdupq_n_u32(0xffff0000u))); }
INLINE vi vi_load(const uint8_t *p) { return vreinterpretq_u32_u8(vld1q_u8(p)); }
INLINE void vi_store(uint8_t *p, vi x) { vst1q_u8(p, vreinterpretq_u8_u32(x)); }
INLINE vf vf_of(vi x) { return vreinterpretq_f32_u32(x); }

INLINE vi low_halves(vi a, vi b) { return vreinterpretq_u32_u64(vtrn1q_u64(vreinterpretq_u64_u32(a), vreinterpretq_u64_u32(b))); }
INLINE vi high_halves(vi a, vi b) { return vreinterpretq_u32_u64(vtrn2q_u64(vreinterpretq_u64_u32(a), vreinterpretq_u64_u32(b))); }
INLINE void transpose(vi t[VL]) {
    vi even01 = vtrn1q_u32(t[0], t[1]), odd01 = vtrn2q_u32(t[0], t[1]), even23 = vtrn1q_u32(t[2], t[3]), odd23 = vtrn2q_u32(t[2], t[3]);
    t[0] = low_halves(even01, even23);
    t[1] = low_halves(odd01, odd23);
    t[2] = high_halves(even01, even23);
    t[3] = high_halves(odd01, odd23);
}
INLINE void tile_words(const uint8_t *w, int64_t stride, vi t[VL]) {
#pragma GCC unroll 4
    for (int i = 0; i < VL; i++) t[i] = vi_load(w + i * stride);
    transpose(t);
}
INLINE void tile_f16(const uint8_t *w, int64_t stride, vi t[VL]) {
#pragma GCC unroll 4
    for (int i = 0; i < VL; i++)
        t[i] = vreinterpretq_u32_f32(vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(w + i * stride))));
    transpose(t);
}

#endif
