/* The one micro-kernel of matrix products and of attention: y[M][NV * VL] = chain over k of x[m][k] * w[k][lanes].
 *
 * Each output is one chain of fused multiply-adds over k in ascending order; `carry` says whether the chain begins at zero or
 * goes on from what y holds, so that a reduction may be cut into blocks anywhere without changing a bit. x is read one number
 * at a time from M rows, w in whole vectors from rows `ldw` numbers apart, widened from bf16 when `bf` is set.
 * M and NV are constants of each copy: the accumulators are registers.
 *
 * Included once per rung, after its simd header. */
#ifndef LN_CORE_TMPL_H
#define LN_CORE_TMPL_H

#include <stdbool.h>

INLINE void core_body(const int M, const int NV, const bool bf, const float *x, int64_t ldx, const void *w, int64_t ldw, int64_t n_k, float *y,
                      int64_t ldy, bool carry) {
    const int64_t size = bf ? 2 : 4;
    vf acc[8][8]; /* of which M x NV are used: registers */
#pragma GCC unroll 8
    for (int m = 0; m < M; m++)
#pragma GCC unroll 8
        for (int v = 0; v < NV; v++) acc[m][v] = carry ? vf_load(y + m * ldy + v * VL) : vf_zero();
    for (int64_t k = 0; k < n_k; k++) {
        vf b[8];
        if (M <= 2) /* bound by memory: what these rows read next, where they follow each other */
#pragma GCC unroll 8
            for (int64_t line = 0; line < NV * VL * size; line += 64) vf_ahead((const uint8_t *)w + k * ldw * size + line + 1024);
#pragma GCC unroll 8
        for (int v = 0; v < NV; v++)
            b[v] = bf ? vf_load_bf16((const uint16_t *)w + k * ldw + v * VL) : vf_load((const float *)w + k * ldw + v * VL);
#pragma GCC unroll 8
        for (int m = 0; m < M; m++) {
            vf a = vf_set1(x[m * ldx + k]);
#pragma GCC unroll 8
            for (int v = 0; v < NV; v++) acc[m][v] = vf_fma(a, b[v], acc[m][v]);
        }
    }
#pragma GCC unroll 8
    for (int m = 0; m < M; m++)
#pragma GCC unroll 8
        for (int v = 0; v < NV; v++) vf_store(y + m * ldy + v * VL, acc[m][v]);
}

typedef void core_fn(const float *x, int64_t ldx, const void *w, int64_t ldw, int64_t n_k, float *y, int64_t ldy, bool carry);
#define CORE(M, NV, BF)                                                                                                                  \
    static void core_##M##_##NV##_##BF(const float *x, int64_t ldx, const void *w, int64_t ldw, int64_t n_k, float *y, int64_t ldy,      \
                                       bool carry) {                                                                                     \
        core_body(M, NV, BF, x, ldx, w, ldw, n_k, y, ldy, carry);                                                                        \
    }
#define CORE_6(NV, BF) CORE(1, NV, BF) CORE(2, NV, BF) CORE(3, NV, BF) CORE(4, NV, BF) CORE(5, NV, BF) CORE(6, NV, BF)
#define CORE_ROW_6(NV, BF)                                                                                                               \
    core_1_##NV##_##BF, core_2_##NV##_##BF, core_3_##NV##_##BF, core_4_##NV##_##BF, core_5_##NV##_##BF, core_6_##NV##_##BF
/* For one or two rows more vectors at once, so that their chains do not wait for each other: few_BF[M - 1][4 or 8 of them]. */
#define CORES_FEW(BF)                                                                                                                    \
    CORE(1, 4, BF) CORE(1, 8, BF) CORE(2, 4, BF) CORE(2, 8, BF)                                                                          \
    static core_fn *const few_##BF[2][2] = {{core_1_4_##BF, core_1_8_##BF}, {core_2_4_##BF, core_2_8_##BF}};

/* All copies for weights in f32 (BF 0) or bf16 (BF 1): cores_BF[NV - 1][M - 1]. */
#if LN_CORE_WIDE
#define CORE_8(NV, BF) CORE_6(NV, BF) CORE(7, NV, BF) CORE(8, NV, BF)
#define CORE_ROW_8(NV, BF) {CORE_ROW_6(NV, BF), core_7_##NV##_##BF, core_8_##NV##_##BF}
#define CORES(BF)                                                                                                                        \
    CORE_8(1, BF) CORE_8(2, BF) CORE_8(3, BF)                                                                                            \
    static core_fn *const cores_##BF[CORE_NV][CORE_M] = {CORE_ROW_8(1, BF), CORE_ROW_8(2, BF), CORE_ROW_8(3, BF)};
#else
#define CORES(BF)                                                                                                                        \
    CORE_6(1, BF) CORE_6(2, BF)                                                                                                          \
    static core_fn *const cores_##BF[CORE_NV][CORE_M] = {{CORE_ROW_6(1, BF)}, {CORE_ROW_6(2, BF)}};
#endif

#endif
