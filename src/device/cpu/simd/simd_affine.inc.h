/* Loading scales, biases and codes of packed affine groups into vectors (pack.h); included after a simd
 * header. */
#ifndef LN_SIMD_AFFINE_INC_H
#define LN_SIMD_AFFINE_INC_H

#include "../../../ops/ops.h"
#include "../pack/pack.h"

/* VL scales or biases of a type, from number i of those at p on. */
INLINE vf load_scale(ln_dtype t, const uint8_t *p, int i) {
    return t == LN_F32    ? vf_load((const float *)(const void *)p + i)
           : t == LN_BF16 ? vf_load_bf16((const uint16_t *)(const void *)p + i)
                          : vf_load_f16(p + 2 * i);
}

/* VL scales (from i = lane on) or biases (from LN_PACK_NR + lane on) of a packed group, whose scales are at
 * p; factors: NULL if they have none. */
INLINE vf load_unit(ln_dtype t, const uint8_t *p, const uint8_t *factors, int i) {
    return factors
               ? vf_mul(vf_from_i8((const int8_t *)p + i), vf_load((const float *)(const void *)factors + i))
               : load_scale(t, p, i);
}

/* Code i of a packed group (pack.h) of VL outputs, in 32-bit lanes. */
INLINE vi load_code(const uint8_t *words, int bits, int64_t i) {
    const int64_t at = i * bits, off = at % 32;
    vi v = vi_shr32(vi_load(words + at / 32 * 64), (int)off);
    if (off + bits > 32) v = vi_or(v, vi_shl32(vi_load(words + (at / 32 + 1) * 64), (int)(32 - off)));
    return vi_and32(v, (1u << bits) - 1);
}

#endif
