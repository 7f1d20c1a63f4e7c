/* AMX in plain C: the words of src/device/cpu/simd_amx.h, with the arithmetic of TDPBF16PS number by number as machines do it. Where there is
 * AMX, test_amx compares the two bit by bit; elsewhere the rung's kernel is tested on this. */
#ifndef LN_TILE_MODEL_H
#define LN_TILE_MODEL_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/num.h"

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
static inline float model_bf16(const uint8_t *p) {
    uint16_t h;
    memcpy(&h, p, 2);
    return ln_bf16_f32(h);
}
/* Even and odd columns are chains of their own, from zero; their sum is added to y. */
static inline void model_dp(int y, int a, int b) {
    for (int m = 0; m < unit.config.rows[y]; m++)
        for (int n = 0; n < unit.config.bytes[y] / 4; n++) {
            float even = 0, odd = 0, sum;
            for (int k = 0; k < unit.config.bytes[a] / 4; k++) {
                even = model_fma(model_bf16(&unit.tile[a][m][4 * k]), model_bf16(&unit.tile[b][k][4 * n]), even);
                odd = model_fma(model_bf16(&unit.tile[a][m][4 * k + 2]), model_bf16(&unit.tile[b][k][4 * n + 2]), odd);
            }
            memcpy(&sum, &unit.tile[y][m][4 * n], 4);
            sum = flushed(flushed(sum) + flushed(even + odd));
            memcpy(&unit.tile[y][m][4 * n], &sum, 4);
        }
}

#define tile_configure(c) model_configure(c)
#define tile_release() memset(&unit, 0, sizeof unit)
#define tile_zero(t) memset(unit.tile[t], 0, sizeof unit.tile[t])
#define tile_load(t, p, stride) model_load(t, p, stride)
#define tile_load_once(t, p, stride) model_load(t, p, stride)
#define tile_store(t, p, stride) model_store(t, p, stride)
#define tile_dp(y, a, b) model_dp(y, a, b)
#define tile_ahead(p) (void)(p)

#endif
