/* Fixed-point rows, one number at a time: fixed.h says what they are. The specification of every kernel that makes them. */
#include "fixed.h"

#include <math.h>

void ln_fixed_group(const float *x, ln_enc e, int16_t *v, float *u, float *t) {
    uint32_t most = 0;
    int32_t sum = 0;
    for (int i = 0; i < e.group; i++) most = LN_MAX(most, ln_f32_bits(x[i]) & 0x7fffffffu);
    *u = ln_fixed_scale(most, ln_fixed_bits(e.bits));
    const float by = *u > 0 ? 1 / *u : 0; /* exact */
    for (int p = 0; p < e.group; p++) {
        v[p] = by > 0 ? (int16_t)rintf(x[ln_fixed_column(e.bits, p)] * by) : 0;
        sum += v[p];
    }
    *t = *u * (float)sum;
}

void ln_fixed_encode(const float *x, int64_t cols, ln_enc e, void *row) {
    for (int64_t g = 0; g < cols / e.group; g++)
        ln_fixed_group(x + g * e.group, e, (int16_t *)row + g * e.group, ln_fixed_scales(row, cols) + g, ln_fixed_sums(row, cols, e.group) + g);
}

void ln_fixed_decode(const void *row, int64_t cols, ln_enc e, float *x) {
    const int16_t *v = row;
    const float *scales = ln_fixed_scales(row, cols);
    for (int64_t i = 0; i < cols; i++) {
        const int64_t g = i / e.group;
        x[g * e.group + ln_fixed_column(e.bits, i % e.group)] = (float)v[i] * scales[g];
    }
}
