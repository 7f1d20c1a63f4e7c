/* The micro-kernel of attention on a vector rung: y[M][BL * 16] = chain over k of x[m][k] * w[k][lanes], w in blocks of 16 lanes (pages.h).
 *
 * Each output is one chain of fused multiply-adds over k in ascending order, of bf16 numbers pair by pair, the odd one first where both are taken; `carry` says
 * whether the chain begins at zero or goes on from what y holds, so that a reduction may be cut anywhere, but not within a pair, without changing a bit. x is
 * read one number at a time from M rows (LN_DOT: one word), w in whole vectors from BL blocks, each a stream of its own.
 * M and BL are constants of each copy: the accumulators are registers.
 *
 * LN_DOT makes the copy for machines whose vectors multiply pairs of bf16 numbers (vf_dot), w in bf16 alone: x are words then, of two bf16 numbers, and ldx counts those.
 *
 * Included once per rung, after its simd header. */
#ifndef LN_CORE_TMPL_H
#define LN_CORE_TMPL_H

#include <stdbool.h>

enum { PER_LINE = 16 / VL, ASK_M = 4 /* rows that are bound by memory, or nearly so, and ask for what comes next */ };

#ifdef LN_DOT
enum { X_WORD = 2 }; /* columns in a word of x */
#else
enum { X_WORD = 1 };
#endif

/* What one call does: columns [from, to) of x and of w, where both begin at column 0. */
typedef struct core_work {
    const float *x;
    const uint8_t *w, *ahead; /* ahead: what will be read next: up to ASK_M rows ask for as much of it as they read; of bf16 numbers BL blocks one after the other */
    float *y;
    int64_t ldx, ldy, block;  /* block: bytes from one of w to the next */
    int64_t from, to;
    bool carry;
} core_work;

/* Number i of row m. */
#ifdef LN_DOT
#define NUMBER(m, i) ((i) % 2 ? vf_high_bf16(vi_set1(x + (m) * ldx + (i) / 2)) : vf_low_bf16(vi_set1(x + (m) * ldx + (i) / 2)))
#else
#define NUMBER(m, i) vf_set1(x[(m) * ldx + (i)])
#endif
/* One column of every output in acc: `load` is vector v of it, x is one number of each row. */
#define COLUMN(load, i)                                                                                                                  \
    {                                                                                                                                    \
        vf b[16];                                                                                                                        \
        _Pragma("GCC unroll 16") for (int v = 0; v < BL * PER_LINE; v++) {                                                               \
            const uint8_t *p = w + v / PER_LINE * block + v % PER_LINE * 4 * VL;                                                         \
            b[v] = load;                                                                                                                 \
        }                                                                                                                                \
        _Pragma("GCC unroll 8") for (int m = 0; m < M; m++) {                                                                            \
            vf a = NUMBER(m, i);                                                                                                         \
            _Pragma("GCC unroll 16") for (int v = 0; v < BL * PER_LINE; v++) acc[m][v] = vf_fma(a, b[v], acc[m][v]);                     \
        }                                                                                                                                \
    }
/* Columns k and k + 1 of every output. */
#ifdef LN_DOT
#define PAIR                                                                                                                             \
    {                                                                                                                                    \
        vi b[16];                                                                                                                        \
        _Pragma("GCC unroll 16") for (int v = 0; v < BL; v++) b[v] = vi_load(w + v * block);                                             \
        _Pragma("GCC unroll 8") for (int m = 0; m < M; m++) {                                                                            \
            const vi a = vi_set1(x + m * ldx + k / 2);                                                                                   \
            _Pragma("GCC unroll 16") for (int v = 0; v < BL; v++) acc[m][v] = vf_dot(a, b[v], acc[m][v]);                                \
        }                                                                                                                                \
    }
#else
#define PAIR COLUMN(vf_high_bf16(vi_load(p)), k + 1) COLUMN(vf_low_bf16(vi_load(p)), k)
#endif
/* As much as a line of each block. Of bf16 numbers it is asked for in the order of memory, whose own streams then go along (docs/speed.md). */
#define LINE_AHEAD                                                                                                                       \
    if (M <= ASK_M) {                                                                                                                    \
        _Pragma("GCC unroll 8") for (int g = 0; g < BL; g++) vf_ahead(ahead + g * (bf ? 64 : block));                                    \
        ahead += bf ? BL * 64 : 64;                                                                                                      \
    }

INLINE void core_body(const int M, const int BL, const bool bf, const core_work *o) {
    const int64_t ldx = o->ldx, ldy = o->ldy, block = o->block, to = o->to;
    const float *x = o->x;
    float *y = o->y;
    int64_t k = o->from;
    const uint8_t *w = o->w + (bf ? k / 2 : k) * 64, *ahead = o->ahead + (bf ? k / 2 * BL : k) * 64;
    vf acc[8][16]; /* of which M x BL * PER_LINE are used: registers */
#pragma GCC unroll 8
    for (int m = 0; m < M; m++)
#pragma GCC unroll 16
        for (int v = 0; v < BL * PER_LINE; v++) acc[m][v] = o->carry ? vf_load(y + m * ldy + v * VL) : vf_zero();
    if (bf) {
        if (k % 2 && k < to) {
            COLUMN(vf_high_bf16(vi_load(p)), k)
            k++, w += 64, ahead += BL * 64;
        }
        for (; k + 2 <= to; k += 2, w += 64) {
            LINE_AHEAD
            PAIR
        }
        if (k < to) COLUMN(vf_low_bf16(vi_load(p)), k)
    } else {
        for (; k < to; k++, w += 64) {
            LINE_AHEAD
            COLUMN(vf_of(vi_load(p)), k)
        }
    }
#pragma GCC unroll 8
    for (int m = 0; m < M; m++)
#pragma GCC unroll 16
        for (int v = 0; v < BL * PER_LINE; v++) vf_store(y + m * ldy + v * VL, acc[m][v]);
}

typedef void core_fn(const core_work *o);
#define CORE(M, BL, BF) \
    static void core_##M##_##BL##_##BF(const core_work *o) { core_body(M, BL, BF, o); }
#define CORE_6(BL, BF) CORE(1, BL, BF) CORE(2, BL, BF) CORE(3, BL, BF) CORE(4, BL, BF) CORE(5, BL, BF) CORE(6, BL, BF)
#define CORE_ROW_6(BL, BF)                                                                                                               \
    core_1_##BL##_##BF, core_2_##BL##_##BF, core_3_##BL##_##BF, core_4_##BL##_##BF, core_5_##BL##_##BF, core_6_##BL##_##BF

/* All copies for weights in f32 (BF 0) or bf16 (BF 1): cores_BF[BL - 1][M - 1]; for few rows more blocks at once, so that their chains do not
 * wait for each other: few_BF[M - 1]. */
#if LN_CORE_WIDE
#define CORE_8(BL, BF) CORE_6(BL, BF) CORE(7, BL, BF) CORE(8, BL, BF)
#define CORE_ROW_8(BL, BF) {CORE_ROW_6(BL, BF), core_7_##BL##_##BF, core_8_##BL##_##BF}
#define CORES(BF)                                                                                                                        \
    CORE_8(1, BF) CORE_8(2, BF) CORE_8(3, BF) CORE(1, 4, BF) CORE(2, 4, BF) CORE(3, 4, BF) CORE(4, 4, BF)                                \
    static core_fn *const cores_##BF[CORE_BL][CORE_M] = {CORE_ROW_8(1, BF), CORE_ROW_8(2, BF), CORE_ROW_8(3, BF)};                       \
    static core_fn *const few_##BF[FEW_M] = {core_1_4_##BF, core_2_4_##BF, core_3_4_##BF, core_4_4_##BF};
enum { CORE_M = 8, CORE_BL = 3, FEW_M = 4, FEW_BL_1 = 4, FEW_BL_2 = 4 }; /* 24 of 32 registers */
#else
#define CORES(BF)                                                                                                                        \
    CORE_6(1, BF) CORE(1, 4, BF) CORE(2, 2, BF)                                                                                          \
    static core_fn *const cores_##BF[CORE_BL][CORE_M] = {{CORE_ROW_6(1, BF)}};                                                           \
    static core_fn *const few_##BF[FEW_M] = {core_1_4_##BF, core_2_2_##BF};
enum { CORE_M = 6, CORE_BL = 1, FEW_M = 2, FEW_BL_1 = 4, FEW_BL_2 = 2 }; /* 12 of 16 registers, 24 of 32 */
#endif

#endif
