/* Scales, biases and the bias of a product in the words of a rung; included after its simd header. */
#ifndef LN_NUMBERS_TMPL_H
#define LN_NUMBERS_TMPL_H

#include "../../ops/ops.h"

/* VL numbers of a type, from number i of those at p on. */
INLINE vf number(ln_dtype t, const uint8_t *p, int i) {
    return t == LN_F32 ? vf_load((const float *)(const void *)p + i) : t == LN_BF16 ? vf_load_bf16((const uint16_t *)(const void *)p + i) : vf_load_f16(p + 2 * i);
}

/* y[rows][lo .. hi) + bias, by the owner of those outputs. */
static inline void add_bias(const ln_arg *bias, float *y, int64_t ldy, int64_t rows, int64_t lo, int64_t hi) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t d = lo; d < hi; d++) y[r * ldy + d] = y[r * ldy + d] + ln_num_load(bias->data, bias->dtype, d);
}

#endif
