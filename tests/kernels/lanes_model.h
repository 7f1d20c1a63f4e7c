/* The vector words that device/cpu/gemm/gemm_i8pair_amx.inc.h, attn_amx.inc.h and bf12_unpack.inc.h are written in, 16 lanes, in plain C: with the model of tiles (tile_model.h) their
 * kernels run on any machine. */
#ifndef LN_LANES_MODEL_H
#define LN_LANES_MODEL_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/num.h"

enum { VL = 16 };
typedef struct vf {
    float at[16];
} vf;
typedef struct vi {
    uint32_t at[16];
} vi;

/* Each lane i of z by an expression. */
#define LANES(type, expression)                                                                                                          \
    type z;                                                                                                                              \
    for (int i = 0; i < 16; i++) z.at[i] = expression;                                                                                   \
    return z;

static inline vf vf_zero(void) { LANES(vf, 0) }
static inline vf vf_set1(float x) { LANES(vf, x) }
static inline vf vf_load(const float *p) {
    vf z;
    memcpy(z.at, p, sizeof z.at);
    return z;
}
static inline vf vf_load_bf16(const uint16_t *p) { LANES(vf, ln_bf16_f32(p[i])) }
static inline vf vf_load_f16(const uint8_t *p) { LANES(vf, ln_num_load(p, LN_F16, i)) }
static inline void vf_store(float *p, vf x) { memcpy(p, x.at, sizeof x.at); }
static inline void vf_store_first(float *p, int64_t n, vf x) { memcpy(p, x.at, (size_t)n * sizeof *p); }
static inline void vf_ahead(const uint8_t *p) { (void)p; }
static inline vf vf_mul(vf a, vf b) { LANES(vf, a.at[i] * b.at[i]) }
static inline vf vf_fma(vf a, vf b, vf c) { LANES(vf, fmaf(a.at[i], b.at[i], c.at[i])) }
static inline vf vf_fnma(vf a, vf b, vf c) { LANES(vf, fmaf(-a.at[i], b.at[i], c.at[i])) }
static inline vf vf_max(vf a, vf b) { LANES(vf, a.at[i] > b.at[i] ? a.at[i] : b.at[i]) }
static inline float vf_most(vf x) {
    float most = x.at[0];
    for (int i = 1; i < 16; i++) most = x.at[i] > most ? x.at[i] : most;
    return most;
}
static inline float vf_lanes_sum(const vf *x) {
    float at[16];
    memcpy(at, x->at, sizeof at);
    for (int half = 8; half; half /= 2)
        for (int i = 0; i < half; i++) at[i] = at[i] + at[i + half];
    return at[0];
}
static inline vf vf_among(vf x, int from, int to) { LANES(vf, from <= i && i < to ? x.at[i] : -INFINITY) }
static inline vf vf_div(vf a, vf b) { LANES(vf, a.at[i] / b.at[i]) }
static inline vf vf_above(vf x, float limit, vf a, vf b) { LANES(vf, x.at[i] > limit ? a.at[i] : b.at[i]) }
static inline vf vf_times_power(vf p, vf n) { LANES(vf, ldexpf(p.at[i], n.at[i] > -1000 && n.at[i] < 1000 ? (int)n.at[i] : 0)) }
static inline vf vf_power(vf p, vf t, vf x, float least) {
    LANES(vf, x.at[i] < least ? 0 : p.at[i] * ln_bits_f32((ln_f32_bits(t.at[i]) << 23) + 0x3f800000u))
}
static inline void vf_store_rounded(uint16_t *p, vf a, vf b) {
    uint16_t z[32];
    for (int i = 0; i < 16; i++) z[i] = ln_f32_bf16(a.at[i]), z[16 + i] = ln_f32_bf16(b.at[i]);
    memcpy(p, z, sizeof z);
}
static inline void vf_store_bf16(uint16_t *p, vf a, vf b) { vf_store_rounded(p, a, b); }
static inline vi vi_of(vf x) { LANES(vi, ln_f32_bits(x.at[i])) }
static inline vf vf_of(vi x) { LANES(vf, ln_bits_f32(x.at[i])) }
static inline vf vf_int(vi x) { LANES(vf, (float)(int32_t)x.at[i]) }
static inline vi vi_load(const uint8_t *p) {
    vi z;
    memcpy(z.at, p, sizeof z.at);
    return z;
}
static inline vi vi_set1(const void *p) {
    uint32_t word;
    memcpy(&word, p, 4);
    LANES(vi, word)
}
static inline vf vf_low_bf16(vi x) { LANES(vf, ln_bits_f32(x.at[i] << 16)) }
static inline vf vf_high_bf16(vi x) { LANES(vf, ln_bits_f32(x.at[i] & 0xffff0000u)) }
static inline void vi_store(uint8_t *p, vi x) { memcpy(p, x.at, sizeof x.at); }
static inline vi vi_add(vi a, vi b) { LANES(vi, a.at[i] + b.at[i]) }
static inline vi vi_or(vi a, vi b) { LANES(vi, a.at[i] | b.at[i]) }
static inline vi vi_mask(vi x, uint32_t m) { LANES(vi, x.at[i] & m) }
static inline vi vi_left(vi x, int n) { LANES(vi, x.at[i] << n) }
static inline vi vi_right(vi x, int n) { LANES(vi, x.at[i] >> n) }
static inline vi vi_table(uint64_t bytes) {
    vi z;
    for (int i = 0; i < 8; i++) {
        const uint64_t half = bytes | (i % 2 ? 0x8080808080808080u : 0);
        memcpy(z.at + 2 * i, &half, sizeof half);
    }
    return z;
}
static inline vi vi_bytes_at(vi table, vi at) {
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
static inline vi vi_zip_low(vi a, vi b) { return lanes_zip(a, b, 0); }
static inline vi vi_zip_high(vi a, vi b) { return lanes_zip(a, b, 8); }
static inline vf vf_add(vf a, vf b) { LANES(vf, a.at[i] + b.at[i]) }
static inline vf vf_sub(vf a, vf b) { LANES(vf, a.at[i] - b.at[i]) }
static inline vf vf_nearest(vf x) { LANES(vf, rintf(x.at[i])) }
static inline vf vf_floor(vf x) { LANES(vf, floorf(x.at[i])) }
static inline vi vi_whole(vf x) { LANES(vi, fabsf(x.at[i]) < 0x1p31f ? (uint32_t)(int32_t)rintf(x.at[i]) : 0x80000000u) }
static inline vi vi_int(int32_t x) { LANES(vi, (uint32_t)x) }
static inline vi vi_sub(vi a, vi b) { LANES(vi, a.at[i] - b.at[i]) }
static inline vi vi_turn(vi x, uint32_t m) { LANES(vi, x.at[i] ^ m) }
static inline vi vi_turn_mask(vi x, uint32_t turn, uint32_t m) { LANES(vi, (x.at[i] ^ turn) & m) }
static inline vi vi_pick(uint32_t m, vi a, vi b) { LANES(vi, (a.at[i] & m) | (b.at[i] & ~m)) }
/* Both words of each lane by an expression of i and k, how far to the left one lies. */
#define LOW(x) ((x).at[i] >> k & 0xffffu)
#define SIGNED(x) ((int32_t)(int16_t)LOW(x))
#define BOTH(expression)                                                                                                                 \
    vi z = {{0}};                                                                                                                        \
    for (int i = 0; i < 16; i++)                                                                                                         \
        for (int k = 0; k < 32; k += 16) z.at[i] |= ((uint32_t)(expression) & 0xffffu) << k;                                             \
    return z;
static inline vi vi_word_twice(vi x) { LANES(vi, (x.at[i] & 0xffffu) * 0x10001u) }
static inline vi vi_byte_4_times(vi x, const int k) { LANES(vi, (x.at[i] >> 8 * k & 0xffu) * 0x1010101u) }
static inline vi vi_signed_byte(vi x, const int k) { LANES(vi, (uint32_t)(int32_t)(int8_t)(x.at[i] >> 8 * k)) }
static inline vi vi_byte_as_words(vi x, const int k) { return vi_word_twice(vi_signed_byte(x, k)); }
static inline vi vi_words_add(vi a, vi b) { BOTH(LOW(a) + LOW(b)) }
static inline vi vi_words_mul(vi a, vi b) { BOTH(LOW(a) * LOW(b)) }
static inline vi vi_words_round(vi a, vi b) { BOTH((SIGNED(a) * SIGNED(b) + 0x4000) >> 15) }
static inline vi vi_words_left(vi x, int n) { BOTH(LOW(x) << n) }
static inline vi vi_words_right(vi x, int n) { BOTH(LOW(x) >> n) }

#endif
