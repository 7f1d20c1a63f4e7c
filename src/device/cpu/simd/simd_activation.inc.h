/* exp, silu and gelu of base/elementary.h on vectors, with the same bits; included after a simd header. */
#ifndef LN_SIMD_ACTIVATION_INC_H
#define LN_SIMD_ACTIVATION_INC_H

#include "../../../base/elementary.h"

/* ln_expf up to 88.72 and for anything above; below ln_exp_least, where ln_expf is 0, it is too small for
 * callers that add it to 1. */
INLINE vf vf_exp(vf x) {
    const vf c = vf_max(vf_set1(ln_exp_least), x),
             n = vf_sub(vf_fma(c, vf_set1(ln_exp_log2e), vf_set1(ln_exp_round)), vf_set1(ln_exp_round));
    const vf r = vf_fma(n, vf_set1(ln_exp_lo), vf_fma(n, vf_set1(ln_exp_hi), c));
    vf p = vf_set1(ln_exp_terms[0]);
    for (int k = 1; k < 6; k++) p = vf_fma(p, r, vf_set1(ln_exp_terms[k]));
    return vf_scale_pow2(vf_fma(p, r, vf_set1(1)), n);
}
/* a / (1 + exp(m)). */
INLINE vf vf_gated(vf a, vf m) {
    const vf e = vf_exp(m); /* beyond 88.72 it is infinite */
    return vf_div(a, vf_add(vf_set1(1), vf_select_gt(m, 88.72f, vf_set1(INFINITY), e)));
}
/* ln_siluf. */
INLINE vf vf_silu(vf a) { return vf_gated(a, vf_sub(vf_set1(-0.0f), a)); }
/* ln_gelu_tanhf. */
INLINE vf vf_gelu_tanh(vf x) {
    return vf_gated(x, vf_mul(x, vf_fma(vf_mul(vf_set1(-ln_gelu_cube), x), x, vf_set1(-ln_gelu_once))));
}

#endif
