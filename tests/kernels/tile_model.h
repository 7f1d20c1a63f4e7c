/* AMX in plain C: the words of src/device/cpu/simd_amx.h, with the arithmetic of TDPBF16PS number by number as machines do it. Where there is
 * AMX, test_amx compares the two bit by bit; elsewhere the rung's kernel is tested on this. */
#ifndef LN_TILE_MODEL_H
#define LN_TILE_MODEL_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/num.h"
#include "device/cpu/pack.h"
#include "device/cpu/unpack.h"

#define INLINE static inline

typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} tile_config;

static _Thread_local struct tile_unit {
    tile_config config;
    uint8_t tile[8][16][64];
} unit;

static inline void model_configure(const tile_config *c) {
    unit.config = *c;
    memset(unit.tile, 0, sizeof unit.tile);
}
static inline void model_load(int t, const void *p, int64_t stride) {
    memset(unit.tile[t], 0, sizeof unit.tile[t]);
    for (int r = 0; r < unit.config.rows[t]; r++) memcpy(unit.tile[t][r], (const uint8_t *)p + r * stride, unit.config.bytes[t]);
}
static inline void model_store(int t, void *p, int64_t stride) {
    for (int r = 0; r < unit.config.rows[t]; r++) memcpy((uint8_t *)p + r * stride, unit.tile[t][r], unit.config.bytes[t]);
}
/* Denormals are zero, as operands and as results. */
static inline float flushed(float x) { return (ln_f32_bits(x) & 0x7f800000u) == 0 ? ln_bits_f32(ln_f32_bits(x) & 0x80000000u) : x; }
static inline float model_fma(float a, float b, float c) { return flushed(fmaf(flushed(a), flushed(b), flushed(c))); }
/* What a product adds to one number, from n columns (all of a tile, or as many as there are): even and odd ones are chains of their own, from zero. */
static inline float model_sum(const uint16_t *a, const uint16_t *b, int64_t n) {
    float even = 0, odd = 0;
    for (int64_t i = 0; i < n; i += 2) {
        even = model_fma(ln_bf16_f32(a[i]), ln_bf16_f32(b[i]), even);
        if (i + 1 < n) odd = model_fma(ln_bf16_f32(a[i + 1]), ln_bf16_f32(b[i + 1]), odd);
    }
    return flushed(even + odd);
}
static inline void model_dp(int y, int a, int b) {
    for (int m = 0; m < unit.config.rows[y]; m++)
        for (int n = 0; n < unit.config.bytes[y] / 4; n++) {
            uint16_t line[32], column[32];
            float sum;
            memcpy(line, unit.tile[a][m], 64);
            for (int k = 0; k < unit.config.bytes[a] / 4; k++) memcpy(column + 2 * k, &unit.tile[b][k][4 * n], 4);
            memcpy(&sum, &unit.tile[y][m][4 * n], 4);
            sum = flushed(flushed(sum) + model_sum(line, column, unit.config.bytes[a] / 2));
            memcpy(&unit.tile[y][m][4 * n], &sum, 4);
        }
}

/* unpack.h in plain C. */
static inline void model_transpose(const uint8_t *from, uint8_t *to) {
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++) memcpy(to + 64 * j + 4 * i, from + 64 * i + 4 * j, 4);
}
static inline uint16_t model_number(int bits, float q, float s, float b) {
    s = flushed(s * LN_TILE_CUT), b = flushed(b * LN_TILE_CUT);
    if (bits == 8) q += LN_TILE_BYTE, b = model_fma(-LN_TILE_BYTE, s, b);
    return (uint16_t)(ln_f32_bits(model_fma(s, q, b)) >> 16);
}
static inline void model_unpack_lines(const ln_affine *w, const uint8_t *group, int64_t n, uint8_t *to) {
    const uint8_t *scales = group + 64 * (w->enc.group * w->enc.bits / 32), *biases = scales + 16 * ln_dtype_bytes(w->dtype);
    for (int64_t i = 0; i < n * 16 * 32; i++, to += 2) {
        const int64_t o = i / 32 % 16, c = i / 512 * 32 + ln_tile_column(w->enc.bits, i % 32);
        const float q = (float)ln_pack_code(group + 4 * o, w->enc.bits, c);
        const uint16_t h = model_number(w->enc.bits, q, ln_num_load(scales, w->dtype, o), ln_num_load(biases, w->dtype, o));
        memcpy(to, &h, 2);
    }
}
static inline void model_unpack(const ln_affine *w, const uint8_t *group, int64_t t, int64_t n, uint8_t *to) {
    uint8_t lines[4 * 1024];
    model_unpack_lines(w, group, t + n, lines);
    for (int64_t i = t; i < t + n; i++, to += 1024) model_transpose(lines + i * 1024, to);
}
static inline void model_places(int bits, uint8_t *lines, int64_t n) {
    for (; n > 0; n--, lines += 64) {
        uint16_t from[32], to[32];
        memcpy(from, lines, 64);
        for (int p = 0; p < 32; p++) to[p] = from[ln_tile_column(bits, p)];
        memcpy(lines, to, 64);
    }
}
#define tile_unpack model_unpack
#define tile_unpack_lines model_unpack_lines
#define tile_places model_places
#define tile_transpose model_transpose
#define tile_configure(c) model_configure(c)
#define tile_release() memset(&unit, 0, sizeof unit)
#define tile_zero(t) memset(unit.tile[t], 0, sizeof unit.tile[t])
#define tile_load(t, p, stride) model_load(t, p, stride)
#define tile_load_once(t, p, stride) model_load(t, p, stride)
#define tile_store(t, p, stride) model_store(t, p, stride)
#define tile_dp(y, a, b) model_dp(y, a, b)
#define tile_ahead(p) (void)(p)

#endif
