/* The SIMD wrappers that device/cpu/gemm/gemm_i8pair_amx.inc.h, attn_amx.inc.h and bf12_unpack.inc.h are
 * written in, with 16 lanes, in plain C. Together with the model of tiles (tile_model.h) it lets their
 * kernels run on any machine. */
#ifndef LN_LANES_MODEL_H
#define LN_LANES_MODEL_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/elementary.h"
#include "device/cpu/simd/prefetch.h"

enum { VL = 16 };
typedef struct vf {
    float at[16];
} vf;
typedef struct vi {
    uint32_t at[16];
} vi;

/* Sets each lane i of z to an expression of i. */
#define LANES(type, expression)                        \
    type z;                                            \
    for (int i = 0; i < 16; i++) z.at[i] = expression; \
    return z;

static inline vf vf_zero(void) { LANES(vf, 0) }
static inline vf vf_set1(float x) { LANES(vf, x) }
static inline vf vf_load(const float *p) {
    vf z;
    memcpy(z.at, p, sizeof z.at);
    return z;
}
static inline vf vf_from_i8(const int8_t *p) { LANES(vf, (float)p[i]) }
static inline vf vf_load_bf16(const uint16_t *p) { LANES(vf, ln_bf16_f32(p[i])) }
static inline vf vf_load_f16(const uint8_t *p) { LANES(vf, ln_num_load(p, LN_F16, i)) }
static inline void vf_store(float *p, vf x) { memcpy(p, x.at, sizeof x.at); }
static inline void vf_store_n(float *p, int64_t n, vf x) { memcpy(p, x.at, (size_t)n * sizeof *p); }
static inline vf vf_mul(vf a, vf b) { LANES(vf, a.at[i] * b.at[i]) }
static inline vf vf_fma(vf a, vf b, vf c) { LANES(vf, fmaf(a.at[i], b.at[i], c.at[i])) }
static inline vf vf_fnma(vf a, vf b, vf c) { LANES(vf, fmaf(-a.at[i], b.at[i], c.at[i])) }
static inline vf vf_max(vf a, vf b) { LANES(vf, a.at[i] > b.at[i] ? a.at[i] : b.at[i]) }
static inline float vf_reduce_max(vf x) {
    float most = x.at[0];
    for (int i = 1; i < 16; i++) most = x.at[i] > most ? x.at[i] : most;
    return most;
}
static inline float vf_reduce_add16(const vf *x) {
    float at[16];
    memcpy(at, x->at, sizeof at);
    for (int half = 8; half; half /= 2)
        for (int i = 0; i < half; i++) at[i] = at[i] + at[i + half];
    return at[0];
}
static inline vf vf_mask_range(vf x, int from, int to) {
    LANES(vf, from <= i && i < to ? x.at[i] : -INFINITY)
}
static inline vf vf_div(vf a, vf b) { LANES(vf, a.at[i] / b.at[i]) }
static inline vf vf_select_gt(vf x, float limit, vf a, vf b) {
    LANES(vf, x.at[i] > limit ? a.at[i] : b.at[i])
}
static inline vf vf_scale_pow2(vf p, vf n) {
    LANES(vf, ldexpf(p.at[i], n.at[i] > -1000 && n.at[i] < 1000 ? (int)n.at[i] : 0))
}
static inline vf vf_apply_exp2(vf p, vf t, vf x, float least) {
    LANES(vf, x.at[i] < least ? 0 : p.at[i] * ln_bits_f32((ln_f32_bits(t.at[i]) << 23) + 0x3f800000u))
}
static inline void vf_store_round_bf16(uint16_t *p, vf a, vf b) {
    uint16_t z[32];
    for (int i = 0; i < 16; i++) z[i] = ln_f32_bf16(a.at[i]), z[16 + i] = ln_f32_bf16(b.at[i]);
    memcpy(p, z, sizeof z);
}
static inline void vf_store_bf16(uint16_t *p, vf a, vf b) { vf_store_round_bf16(p, a, b); }
static inline vi vi_cast(vf x) { LANES(vi, ln_f32_bits(x.at[i])) }
static inline vf vf_cast(vi x) { LANES(vf, ln_bits_f32(x.at[i])) }
static inline vf vf_from_i32(vi x) { LANES(vf, (float)(int32_t)x.at[i]) }
static inline vi vi_load(const uint8_t *p) {
    vi z;
    memcpy(z.at, p, sizeof z.at);
    return z;
}
static inline vi vi_load_u8(const uint8_t *p) { LANES(vi, p[i]) }
static inline vf vf_load_i8(const uint8_t *p) { LANES(vf, (float)(int8_t)p[i]) }
static inline vi vi_broadcast32(const void *p) {
    uint32_t word;
    memcpy(&word, p, 4);
    LANES(vi, word)
}
static inline vf vf_lo_bf16(vi x) { LANES(vf, ln_bits_f32(x.at[i] << 16)) }
static inline vf vf_hi_bf16(vi x) { LANES(vf, ln_bits_f32(x.at[i] & 0xffff0000u)) }
static inline void vi_store(uint8_t *p, vi x) { memcpy(p, x.at, sizeof x.at); }
static inline vi vi_add(vi a, vi b) { LANES(vi, a.at[i] + b.at[i]) }
static inline vi vi_or(vi a, vi b) { LANES(vi, a.at[i] | b.at[i]) }
static inline vi vi_and32(vi x, uint32_t m) { LANES(vi, x.at[i] & m) }
static inline vi vi_shl32(vi x, int n) { LANES(vi, x.at[i] << n) }
static inline vi vi_shr32(vi x, int n) { LANES(vi, x.at[i] >> n) }
static inline vi vi_lut_load(uint64_t bytes) {
    vi z;
    for (int i = 0; i < 8; i++) {
        const uint64_t half = bytes | (i % 2 ? 0x8080808080808080u : 0);
        memcpy(z.at + 2 * i, &half, sizeof half);
    }
    return z;
}
static inline vi vi_lut_bytes(vi table, vi at) {
    uint8_t t[64], n[64];
    memcpy(t, table.at, 64), memcpy(n, at.at, 64);
    for (int i = 0; i < 64; i++) n[i] = n[i] & 0x80 ? 0 : t[i / 16 * 16 + n[i] % 16];
    memcpy(at.at, n, 64);
    return at;
}
static inline vi lanes_zip(vi a, vi b, int from) {
    uint8_t x[64], y[64], z[64];
    memcpy(x, a.at, 64), memcpy(y, b.at, 64);
    for (int i = 0; i < 64; i++) z[i] = (i % 2 ? y : x)[i / 16 * 16 + from + i % 16 / 2];
    memcpy(a.at, z, 64);
    return a;
}
static inline vi vi_unpack_lo8(vi a, vi b) { return lanes_zip(a, b, 0); }
static inline vi vi_unpack_hi8(vi a, vi b) { return lanes_zip(a, b, 8); }
static inline vf vf_add(vf a, vf b) { LANES(vf, a.at[i] + b.at[i]) }
static inline vf vf_sub(vf a, vf b) { LANES(vf, a.at[i] - b.at[i]) }
static inline vf vf_round(vf x) { LANES(vf, rintf(x.at[i])) }
static inline vf vf_floor(vf x) { LANES(vf, floorf(x.at[i])) }
static inline vi vi_round_i32(vf x) {
    LANES(vi, fabsf(x.at[i]) < 0x1p31f ? (uint32_t)(int32_t)rintf(x.at[i]) : 0x80000000u)
}
static inline vi vi_set32(int32_t x) { LANES(vi, (uint32_t)x) }
static inline vi vi_sub(vi a, vi b) { LANES(vi, a.at[i] - b.at[i]) }
static inline vi vi_xor32(vi x, uint32_t m) { LANES(vi, x.at[i] ^ m) }
static inline vi vi_xor_and32(vi x, uint32_t turn, uint32_t m) { LANES(vi, (x.at[i] ^ turn) & m) }
static inline vi vi_select_bits(uint32_t m, vi a, vi b) { LANES(vi, (a.at[i] & m) | (b.at[i] & ~m)) }
/* Sets both 16-bit elements of each lane to an expression of i and k, the bit offset of the element. */
#define LOW(x)    ((x).at[i] >> k & 0xffffu)
#define SIGNED(x) ((int32_t)(int16_t)LOW(x))
#define BOTH(expression)                                                                   \
    vi z = {{0}};                                                                          \
    for (int i = 0; i < 16; i++)                                                           \
        for (int k = 0; k < 32; k += 16) z.at[i] |= ((uint32_t)(expression)&0xffffu) << k; \
    return z;
static inline vi vi_dup_low16(vi x) { LANES(vi, (x.at[i] & 0xffffu) * 0x10001u) }
static inline vi vi_dup_byte(vi x, const int k) { LANES(vi, (x.at[i] >> 8 * k & 0xffu) * 0x1010101u) }
static inline vi vi_byte_i32(vi x, const int k) { LANES(vi, (uint32_t)(int32_t)(int8_t)(x.at[i] >> 8 * k)) }
static inline vi vi_dup_byte_i16(vi x, const int k) { return vi_dup_low16(vi_byte_i32(x, k)); }
static inline vi vi_add16(vi a, vi b) { BOTH(LOW(a) + LOW(b)) }
static inline vi vi_mul16(vi a, vi b) { BOTH(LOW(a) * LOW(b)) }
static inline vi vi_mulrs16(vi a, vi b) { BOTH((SIGNED(a) * SIGNED(b) + 0x4000) >> 15) }
static inline vi vi_shl16(vi x, int n) { BOTH(LOW(x) << n) }
static inline vi vi_shr16(vi x, int n) { BOTH(LOW(x) >> n) }

#endif
