/* SIMD wrappers of the NEON level: 4 lanes. The same as those of simd_avx512.h, which says what they
 * compute.
 *
 * Every aarch64 machine has all of this, so there is nothing to detect at run time. vfmaq is one rounding,
 * as fmaf is: the bits are those of the other levels on the same machine. (Between an ARM and an x86 machine
 * they may differ where a result is just at the border of the denormals: one flushes before rounding, the
 * other after.) */
#ifndef LN_SIMD_NEON_H
#define LN_SIMD_NEON_H

#include <arm_neon.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "prefetch.h"

#define LN_ISA(name)        name##_neon
#define LN_WIDE_MICROKERNEL 0
#define INLINE              static inline __attribute__((always_inline))

enum { VL = 4 };
typedef float32x4_t vf;
typedef uint32x4_t vi;

INLINE vf vf_zero(void) { return vdupq_n_f32(0); }
INLINE vf vf_set1(float x) { return vdupq_n_f32(x); }
INLINE vf vf_load(const float *p) { return vld1q_f32(p); }
INLINE void vf_store(float *p, vf x) { vst1q_f32(p, x); }
INLINE vf vf_fma(vf a, vf b, vf c) { return vfmaq_f32(c, a, b); }
INLINE vf vf_mul(vf a, vf b) { return vmulq_f32(a, b); }
INLINE vf vf_add(vf a, vf b) { return vaddq_f32(a, b); }
INLINE vf vf_from_i8(const int8_t *p) {
    int32_t word;
    memcpy(&word, p, 4);
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8((uint32_t)word)))));
}
INLINE vf vf_load_bf16(const uint16_t *p) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16)); }
INLINE vf vf_lo_bf16(vi x) { return vreinterpretq_f32_u32(vshlq_n_u32(x, 16)); }
INLINE vf vf_hi_bf16(vi x) { return vreinterpretq_f32_u32(vandq_u32(x, vdupq_n_u32(0xffff0000u))); }
INLINE vi vi_load(const uint8_t *p) { return vreinterpretq_u32_u8(vld1q_u8(p)); }
INLINE vi vi_load_u8(const uint8_t *p) {
    uint32_t word;
    memcpy(&word, p, 4);
    return vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(word))));
}
INLINE vf vf_load_i8(const uint8_t *p) {
    uint32_t word;
    memcpy(&word, p, 4);
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8(word)))));
}
INLINE vf vf_gather(const float *table, const uint16_t *at) {
    const float x[4] = {table[at[0]], table[at[1]], table[at[2]], table[at[3]]};
    return vld1q_f32(x);
}
/* vf_lo_bf16 of memory at p; the two bytes before it may be read. */
INLINE vf vf_lo_bf16_mem(const uint8_t *p) { return vf_lo_bf16(vi_load(p)); }
/* Of each 32-bit lane: the bits of a mask; shifts by n; an integer below 2^31 as a float. */
INLINE vi vi_and32(vi x, uint32_t m) { return vandq_u32(x, vdupq_n_u32(m)); }
INLINE vi vi_shr32(vi x, int n) { return vshlq_u32(x, vdupq_n_s32(-n)); }
INLINE vi vi_shr16(vi x, int n) {
    return vreinterpretq_u32_u16(vshlq_u16(vreinterpretq_u16_u32(x), vdupq_n_s16((int16_t)-n)));
}
INLINE vi vi_shl32(vi x, int n) { return vshlq_u32(x, vdupq_n_s32(n)); }
INLINE vi vi_or(vi a, vi b) { return vorrq_u32(a, b); }
INLINE vi vi_add(vi a, vi b) { return vaddq_u32(a, b); }
INLINE vf vf_from_i32(vi x) { return vcvtq_f32_s32(vreinterpretq_s32_u32(x)); }
INLINE vi vi_zero(void) { return vdupq_n_u32(0); }
INLINE vi vi_broadcast32(const void *p) {
    uint32_t word;
    memcpy(&word, p, 4);
    return vdupq_n_u32(word);
}
INLINE void vi_store(uint8_t *p, vi x) { vst1q_u8(p, vreinterpretq_u8_u32(x)); }
INLINE vi vi_dot_i16(vi a, vi b, vi c) {
    const int16x8_t x = vreinterpretq_s16_u32(a), y = vreinterpretq_s16_u32(b);
    const int32x4_t low = vmull_s16(vget_low_s16(x), vget_low_s16(y)), high = vmull_high_s16(x, y);
    return vaddq_u32(c, vreinterpretq_u32_s32(vpaddq_s32(low, high)));
}
INLINE vi vi_lut_load(uint64_t bytes) {
    return vreinterpretq_u32_u64(vcombine_u64(vcreate_u64(bytes), vcreate_u64(bytes | 0x8080808080808080u)));
}
INLINE vi vi_lut_bytes(vi table, vi at) {
    return vreinterpretq_u32_u8(vqtbl1q_u8(vreinterpretq_u8_u32(table), vreinterpretq_u8_u32(at)));
}
INLINE vi vi_unpack_lo8(vi a, vi b) {
    return vreinterpretq_u32_u8(vzip1q_u8(vreinterpretq_u8_u32(a), vreinterpretq_u8_u32(b)));
}
INLINE vi vi_unpack_hi8(vi a, vi b) {
    return vreinterpretq_u32_u8(vzip2q_u8(vreinterpretq_u8_u32(a), vreinterpretq_u8_u32(b)));
}
INLINE vf vf_cast(vi x) { return vreinterpretq_f32_u32(x); }
INLINE vf vf_load_f16(const uint8_t *p) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p))); }
INLINE vf vf_fnma(vf a, vf b, vf c) { return vfmsq_f32(c, a, b); }
INLINE vf vf_sub(vf a, vf b) { return vsubq_f32(a, b); }
INLINE vi vi_cast(vf x) { return vreinterpretq_u32_f32(x); }
INLINE vf vf_max(vf a, vf b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
INLINE float vf_reduce_max(vf x) { return vmaxvq_f32(x); }
INLINE float vf_reduce_add16(const vf *x) {
    const vf b = vaddq_f32(vaddq_f32(x[0], x[2]), vaddq_f32(x[1], x[3]));
    const float32x2_t c = vadd_f32(vget_low_f32(b), vget_high_f32(b));
    return vget_lane_f32(c, 0) + vget_lane_f32(c, 1);
}
INLINE vf vf_mask_range(vf x, int from, int to) {
    static const int32_t lanes[VL] = {0, 1, 2, 3};
    const int32x4_t at = vld1q_s32(lanes);
    return vbslq_f32(vandq_u32(vcgeq_s32(at, vdupq_n_s32(from)), vcltq_s32(at, vdupq_n_s32(to))), x,
                     vdupq_n_f32(-INFINITY));
}
INLINE vf vf_div(vf a, vf b) { return vdivq_f32(a, b); }
INLINE vf vf_select_gt(vf x, float limit, vf a, vf b) {
    return vbslq_f32(vcgtq_f32(x, vdupq_n_f32(limit)), a, b);
}
INLINE vf vf_scale_pow2(vf p, vf n) { /* in two factors: n may be 128 */
    const int32x4_t k = vcvtnq_s32_f32(n), half = vshrq_n_s32(k, 1), rest = vsubq_s32(k, half),
                    one = vdupq_n_s32(127);
    p = vmulq_f32(p, vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(half, one), 23)));
    return vmulq_f32(p, vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(rest, one), 23)));
}
INLINE vf vf_apply_exp2(vf p, vf t, vf x, float least) {
    const vf y = vmulq_f32(p, vf_cast(vaddq_u32(vshlq_n_u32(vi_cast(t), 23), vdupq_n_u32(0x3f800000u))));
    return vf_cast(vbicq_u32(vi_cast(y), vcltq_f32(x, vdupq_n_f32(least))));
}

#endif
