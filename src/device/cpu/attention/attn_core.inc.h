/* The micro-kernel of attention on a vector rung: y[M][BL * 16] = chain over k of x[m][k] * w[k][lanes], w in blocks of 16 lanes (pages.h).
 *
 * Each output is one chain of fused multiply-adds over k in ascending order, of bf16 numbers pair by pair, the odd one first where both are taken; `carry` says
 * whether the chain begins at zero or goes on from what y holds, so that a reduction may be cut anywhere, but not within a pair, without changing a bit. x is
 * read one number at a time from M rows (LN_BF16_DOT: one word), w in whole vectors from BL blocks, each a stream of its own.
 * M and BL are constants of each copy: the accumulators are registers.
 *
 * LN_BF16_DOT makes the copy for machines whose vectors multiply pairs of bf16 numbers (vf_dot_bf16), w in bf16 alone: x are words then, of two bf16 numbers, and ldx counts those.
 *
 * Included once per rung, after its simd header. */
#ifndef LN_ATTN_CORE_INC_H
#define LN_ATTN_CORE_INC_H

#include <stdbool.h>

enum { VECTORS_PER_LINE = 16 / VL, PREFETCH_M = 4 /* rows that are bound by memory, or nearly so, and ask for what comes next */ };

#ifdef LN_BF16_DOT
enum { X_PAIR = 2 }; /* columns in a word of x */
#else
enum { X_PAIR = 1 };
#endif

/* What one call does: columns [from, to) of x and of w, where both begin at column 0. */
typedef struct core_args {
    const float *x;
    const uint8_t *w, *prefetch; /* ahead: what will be read next: up to PREFETCH_M rows ask for as much of it as they read; of bf16 numbers BL blocks one after the other */
    float *y;
    int64_t ldx, ldy, block;  /* block: bytes from one of w to the next */
    int64_t from, to;
    bool accumulate;
} core_args;

/* Number i of row m. */
#ifdef LN_BF16_DOT
#define X_ELEMENT(m, i) ((i) % 2 ? vf_hi_bf16(vi_broadcast32(x + (m) * ldx + (i) / 2)) : vf_lo_bf16(vi_broadcast32(x + (m) * ldx + (i) / 2)))
#else
#define X_ELEMENT(m, i) vf_set1(x[(m) * ldx + (i)])
#endif
/* One column of every output in acc: `load` is vector v of it, x is one number of each row. */
#define COLUMN(load, i)                                                                                                                  \
    {                                                                                                                                    \
        vf b[16];                                                                                                                        \
        _Pragma("GCC unroll 16") for (int v = 0; v < BL * VECTORS_PER_LINE; v++) {                                                               \
            const uint8_t *p = w + v / VECTORS_PER_LINE * block + v % VECTORS_PER_LINE * 4 * VL;                                                         \
            b[v] = load;                                                                                                                 \
        }                                                                                                                                \
        _Pragma("GCC unroll 8") for (int m = 0; m < M; m++) {                                                                            \
            vf a = X_ELEMENT(m, i);                                                                                                         \
            _Pragma("GCC unroll 16") for (int v = 0; v < BL * VECTORS_PER_LINE; v++) acc[m][v] = vf_fma(a, b[v], acc[m][v]);                     \
        }                                                                                                                                \
    }
/* Columns k and k + 1 of every output. */
#ifdef LN_BF16_DOT
#define PAIR                                                                                                                             \
    {                                                                                                                                    \
        vi b[16];                                                                                                                        \
        _Pragma("GCC unroll 16") for (int v = 0; v < BL; v++) b[v] = vi_load(w + v * block);                                             \
        _Pragma("GCC unroll 8") for (int m = 0; m < M; m++) {                                                                            \
            const vi a = vi_broadcast32(x + m * ldx + k / 2);                                                                                   \
            _Pragma("GCC unroll 16") for (int v = 0; v < BL; v++) acc[m][v] = vf_dot_bf16(a, b[v], acc[m][v]);                                \
        }                                                                                                                                \
    }
#else
#define PAIR COLUMN(vf_hi_bf16(vi_load(p)), k + 1) COLUMN(vf_lo_bf16(vi_load(p)), k)
#endif
/* As much as a line of each block. Of bf16 numbers it is asked for in the order of memory, whose own streams then go along (docs/speed.md). */
#define PREFETCH_LINE                                                                                                                       \
    if (M <= PREFETCH_M) {                                                                                                                    \
        _Pragma("GCC unroll 8") for (int g = 0; g < BL; g++) prefetch_l1(prefetch + g * (bf ? 64 : block));                                    \
        prefetch += bf ? BL * 64 : 64;                                                                                                      \
    }

INLINE void core_kernel(const int M, const int BL, const bool bf, const core_args *o) {
    const int64_t ldx = o->ldx, ldy = o->ldy, block = o->block, to = o->to;
    const float *x = o->x;
    float *y = o->y;
    int64_t k = o->from;
    const uint8_t *w = o->w + (bf ? k / 2 : k) * 64, *prefetch = o->prefetch + (bf ? k / 2 * BL : k) * 64;
    vf acc[8][16]; /* of which M x BL * VECTORS_PER_LINE are used: registers */
#pragma GCC unroll 8
    for (int m = 0; m < M; m++)
#pragma GCC unroll 16
        for (int v = 0; v < BL * VECTORS_PER_LINE; v++) acc[m][v] = o->accumulate ? vf_load(y + m * ldy + v * VL) : vf_zero();
    if (bf) {
        if (k % 2 && k < to) {
            COLUMN(vf_hi_bf16(vi_load(p)), k)
            k++, w += 64, prefetch += BL * 64;
        }
        for (; k + 2 <= to; k += 2, w += 64) {
            PREFETCH_LINE
            PAIR
        }
        if (k < to) COLUMN(vf_lo_bf16(vi_load(p)), k)
    } else {
        for (; k < to; k++, w += 64) {
            PREFETCH_LINE
            COLUMN(vf_cast(vi_load(p)), k)
        }
    }
#pragma GCC unroll 8
    for (int m = 0; m < M; m++)
#pragma GCC unroll 16
        for (int v = 0; v < BL * VECTORS_PER_LINE; v++) vf_store(y + m * ldy + v * VL, acc[m][v]);
}

typedef void core_fn(const core_args *o);
#define CORE(M, BL, BF) \
    static void core_##M##_##BL##_##BF(const core_args *o) { core_kernel(M, BL, BF, o); }
#define CORE_6(BL, BF) CORE(1, BL, BF) CORE(2, BL, BF) CORE(3, BL, BF) CORE(4, BL, BF) CORE(5, BL, BF) CORE(6, BL, BF)
#define CORE_ROW_6(BL, BF)                                                                                                               \
    core_1_##BL##_##BF, core_2_##BL##_##BF, core_3_##BL##_##BF, core_4_##BL##_##BF, core_5_##BL##_##BF, core_6_##BL##_##BF

/* All copies for weights in f32 (BF 0) or bf16 (BF 1): cores_BF[BL - 1][M - 1]; for few rows more blocks at once, so that their chains do not
 * wait for each other: few_BF[M - 1]. */
#if LN_WIDE_MICROKERNEL
#define CORE_8(BL, BF) CORE_6(BL, BF) CORE(7, BL, BF) CORE(8, BL, BF)
#define CORE_ROW_8(BL, BF) {CORE_ROW_6(BL, BF), core_7_##BL##_##BF, core_8_##BL##_##BF}
#define CORES(BF)                                                                                                                        \
    CORE_8(1, BF) CORE_8(2, BF) CORE_8(3, BF) CORE(1, 4, BF) CORE(2, 4, BF) CORE(3, 4, BF) CORE(4, 4, BF)                                \
    static core_fn *const cores_##BF[CORE_NR_BLOCKS][CORE_MR] = {CORE_ROW_8(1, BF), CORE_ROW_8(2, BF), CORE_ROW_8(3, BF)};                       \
    static core_fn *const few_##BF[SMALL_M] = {core_1_4_##BF, core_2_4_##BF, core_3_4_##BF, core_4_4_##BF};
enum { CORE_MR = 8, CORE_NR_BLOCKS = 3, SMALL_M = 4, SMALL_M_BLOCKS_1 = 4, SMALL_M_BLOCKS_2 = 4 }; /* 24 of 32 registers */
#else
#define CORES(BF)                                                                                                                        \
    CORE_6(1, BF) CORE(1, 4, BF) CORE(2, 2, BF)                                                                                          \
    static core_fn *const cores_##BF[CORE_NR_BLOCKS][CORE_MR] = {{CORE_ROW_6(1, BF)}};                                                           \
    static core_fn *const few_##BF[SMALL_M] = {core_1_4_##BF, core_2_2_##BF};
enum { CORE_MR = 6, CORE_NR_BLOCKS = 1, SMALL_M = 2, SMALL_M_BLOCKS_1 = 4, SMALL_M_BLOCKS_2 = 2 }; /* 12 of 16 registers, 24 of 32 */
#endif

#endif
