/* AMX in plain C: the wrappers of src/device/cpu/simd_amx.h, with the arithmetic of TDPBF16PS, element by
 * element as the hardware does it. On a machine with AMX, test_amx compares the two bit by bit; elsewhere
 * this model tests the ISA level's kernel. */
#ifndef LN_TILE_MODEL_H
#define LN_TILE_MODEL_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "quant/block_float.h"
#include "base/elementary.h"
#include "device/cpu/pack/pack.h"
#include "device/cpu/simd/prefetch.h"

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
    for (int r = 0; r < unit.config.rows[t]; r++)
        memcpy(unit.tile[t][r], (const uint8_t *)p + r * stride, unit.config.bytes[t]);
}
static inline void model_store(int t, void *p, int64_t stride) {
    for (int r = 0; r < unit.config.rows[t]; r++)
        memcpy((uint8_t *)p + r * stride, unit.tile[t][r], unit.config.bytes[t]);
}
/* Denormals count as zero, as operands and as results. */
static inline float flushed(float x) {
    return (ln_f32_bits(x) & 0x7f800000u) == 0 ? ln_bits_f32(ln_f32_bits(x) & 0x80000000u) : x;
}
static inline float model_fma(float a, float b, float c) {
    return flushed(fmaf(flushed(a), flushed(b), flushed(c)));
}
/* The sum that a tile product adds to one element, from n columns (32 in a whole tile): the even and the
 * odd columns are two separate FMA chains, which start from zero. */
static inline float model_sum(const uint16_t *a, const uint16_t *b, int64_t n) {
    float even = 0, odd = 0;
    for (int64_t i = 0; i < n; i += 2) {
        even = model_fma(ln_bf16_f32(a[i]), ln_bf16_f32(b[i]), even);
        if (i + 1 < n) odd = model_fma(ln_bf16_f32(a[i + 1]), ln_bf16_f32(b[i + 1]), odd);
    }
    return flushed(even + odd);
}
/* Tile shapes that do not match are a fault. */
static inline void model_fit(int y, int a, int b) {
    if (unit.config.rows[y] != unit.config.rows[a] || unit.config.bytes[y] != unit.config.bytes[b] ||
        unit.config.bytes[a] != 4 * unit.config.rows[b])
        abort();
}
static inline void model_dp(int y, int a, int b) {
    model_fit(y, a, b);
    for (int m = 0; m < unit.config.rows[y]; m++)
        for (int n = 0; n < unit.config.bytes[y] / 4; n++) {
            uint16_t line[32], column[32];
            float sum;
            memcpy(line, unit.tile[a][m], 64);
            for (int k = 0; k < unit.config.bytes[a] / 4; k++)
                memcpy(column + 2 * k, &unit.tile[b][k][4 * n], 4);
            memcpy(&sum, &unit.tile[y][m][4 * n], 4);
            sum = flushed(flushed(sum) + model_sum(line, column, unit.config.bytes[a] / 2));
            memcpy(&unit.tile[y][m][4 * n], &sum, 4);
        }
}

/* TDPBSUD and TDPBUUD. */
static inline void model_dp_bytes(int y, int a, int b, bool sign) {
    model_fit(y, a, b);
    for (int m = 0; m < unit.config.rows[y]; m++)
        for (int n = 0; n < unit.config.bytes[y] / 4; n++) {
            int32_t sum;
            memcpy(&sum, &unit.tile[y][m][4 * n], 4);
            for (int i = 0; i < unit.config.bytes[a]; i++) {
                const int32_t v = unit.tile[a][m][i];
                sum += (sign && v > 127 ? v - 256 : v) * unit.tile[b][i / 4][4 * n + i % 4];
            }
            memcpy(&unit.tile[y][m][4 * n], &sum, 4);
        }
}
#define tile_configure(c)          model_configure(c)
#define tile_release()             memset(&unit, 0, sizeof unit)
#define tile_zero(t)               memset(unit.tile[t], 0, sizeof unit.tile[t])
#define tile_load(t, p, stride)    model_load(t, p, stride)
#define tile_load_t1(t, p, stride) model_load(t, p, stride)
#define tile_store(t, p, stride)   model_store(t, p, stride)
#define tile_dpbf16(y, a, b)       model_dp(y, a, b)
#define tile_dpbsud(y, a, b)       model_dp_bytes(y, a, b, true)
#define tile_dpbuud(y, a, b)       model_dp_bytes(y, a, b, false)

#endif
