/* The micro-kernel of attention on a vector ISA level, for scores and for outputs: y[M][BL * 16] += x[M][k]
 * w[k][lanes].
 *
 *     w, a block of 16 lanes (kv_layout.h)
 *         f32   | w[k][0] | w[k][1] | .. | w[k][15] |                   64 bytes a k
 *         bf16  | w[k][0], w[k+1][0] | .. | w[k][15], w[k+1][15] |      64 bytes two k
 *     x: M rows of f32, ldx elements apart; LN_BF16_DOT: pairs of bf16, 32 bits
 *
 *     for k in [from, to)              one column, of bf16 pair by pair
 *       for BL blocks, for M rows      accumulators in registers; each block is a stream of its own
 *
 * Each output is one sequential chain of fused multiply-adds over k in ascending order, of bf16 pair by
 * pair, the odd one first where both are taken. With `accumulate` the chain goes on from y, so that a
 * reduction may be cut anywhere, but not within a pair, without changing a bit. M and BL are constants of
 * each copy.
 *
 * LN_BF16_DOT makes the copy for machines with AVX512_BF16, of bf16 pages alone: one VDPBF16PS a pair.
 *
 * Included once per ISA level, after its simd header. */
#ifndef LN_ATTN_CORE_INC_H
#define LN_ATTN_CORE_INC_H

#include <stdbool.h>

#include "../tuning.h"

enum {
    VECTORS_PER_LINE = 16 / VL,
    PREFETCH_M =
        tune_attn_PREFETCH_M_all /* up to as many rows are bound by memory, or nearly so: they prefetch */
};

#ifdef LN_BF16_DOT
enum { X_PAIR = 2 }; /* columns in an element of x */
#else
enum { X_PAIR = 1 };
#endif

/* One run: columns [from, to) of x and of w, both of which begin at column 0. */
typedef struct core_args {
    const float *x;
    const uint8_t *w, *prefetch; /* prefetch: what will be read next: up to PREFETCH_M rows prefetch as much
                                    of it as they read; of bf16 BL blocks one after the other */
    float *y;
    int64_t ldx, ldy, block; /* block: bytes from one of w to the next */
    int64_t from, to;
    bool accumulate;
} core_args;

/* How a vector of w is loaded: f32, or the odd or even one of a bf16 pair. */
typedef enum core_load { CORE_F32, CORE_BF16_ODD, CORE_BF16_EVEN } core_load;
INLINE vf core_w(const core_load how, const uint8_t *p) {
    const vi line = vi_load(p);
    return how == CORE_F32 ? vf_cast(line) : how == CORE_BF16_ODD ? vf_hi_bf16(line) : vf_lo_bf16(line);
}
/* Column i of row m of x in every lane. */
INLINE vf core_x(const float *x, int64_t ldx, int m, int64_t i) {
#ifdef LN_BF16_DOT
    return i % 2 ? vf_hi_bf16(vi_broadcast32(x + m * ldx + i / 2))
                 : vf_lo_bf16(vi_broadcast32(x + m * ldx + i / 2));
#else
    return vf_set1(x[m * ldx + i]);
#endif
}
/* Column i of every output in acc. */
INLINE void core_column(const int M, const int BL, const core_load how, const uint8_t *w, int64_t block,
                        const float *x, int64_t ldx, int64_t i, vf acc[8][16]) {
    vf b[16];
#pragma GCC unroll 16
    for (int v = 0; v < BL * VECTORS_PER_LINE; v++)
        b[v] = core_w(how, w + v / VECTORS_PER_LINE * block + v % VECTORS_PER_LINE * 4 * VL);
#pragma GCC unroll 8
    for (int m = 0; m < M; m++) {
        const vf a = core_x(x, ldx, m, i);
#pragma GCC unroll 16
        for (int v = 0; v < BL * VECTORS_PER_LINE; v++) acc[m][v] = vf_fma(a, b[v], acc[m][v]);
    }
}
/* Columns k and k + 1 of every output. */
INLINE void core_pair(const int M, const int BL, const uint8_t *w, int64_t block, const float *x, int64_t ldx,
                      int64_t k, vf acc[8][16]) {
#ifdef LN_BF16_DOT
    vi b[16];
#pragma GCC unroll 16
    for (int v = 0; v < BL; v++) b[v] = vi_load(w + v * block);
#pragma GCC unroll 8
    for (int m = 0; m < M; m++) {
        const vi a = vi_broadcast32(x + m * ldx + k / 2);
#pragma GCC unroll 16
        for (int v = 0; v < BL; v++) acc[m][v] = vf_dot_bf16(a, b[v], acc[m][v]);
    }
#else
    core_column(M, BL, CORE_BF16_ODD, w, block, x, ldx, k + 1, acc);
    core_column(M, BL, CORE_BF16_EVEN, w, block, x, ldx, k, acc);
#endif
}
/* Prefetches as much as a line of each block; of bf16 in the order of memory, which the hardware prefetcher
 * then follows (docs/performance.md). Returns where the next line's are. */
INLINE const uint8_t *core_prefetch(const int M, const int BL, const bool bf, const uint8_t *p,
                                    int64_t block) {
    if (M > PREFETCH_M) return p;
#pragma GCC unroll 8
    for (int g = 0; g < BL; g++) prefetch_l1(p + g * (bf ? 64 : block));
    return p + (bf ? BL * 64 : 64);
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
        for (int v = 0; v < BL * VECTORS_PER_LINE; v++)
            acc[m][v] = o->accumulate ? vf_load(y + m * ldy + v * VL) : vf_zero();
    if (bf) {
        if (k % 2 && k < to) {
            core_column(M, BL, CORE_BF16_ODD, w, block, x, ldx, k, acc);
            k++, w += 64, prefetch += BL * 64;
        }
        for (; k + 2 <= to; k += 2, w += 64) {
            prefetch = core_prefetch(M, BL, bf, prefetch, block);
            core_pair(M, BL, w, block, x, ldx, k, acc);
        }
        if (k < to) core_column(M, BL, CORE_BF16_EVEN, w, block, x, ldx, k, acc);
    } else {
        for (; k < to; k++, w += 64) {
            prefetch = core_prefetch(M, BL, bf, prefetch, block);
            core_column(M, BL, CORE_F32, w, block, x, ldx, k, acc);
        }
    }
#pragma GCC unroll 8
    for (int m = 0; m < M; m++)
#pragma GCC unroll 16
        for (int v = 0; v < BL * VECTORS_PER_LINE; v++) vf_store(y + m * ldy + v * VL, acc[m][v]);
}

typedef void core_fn(const core_args *o);
/* clang-format off */
#define CORE(M, BL, BF) \
    static void core_##M##_##BL##_##BF(const core_args *o) { core_kernel(M, BL, BF, o); }
#define CORE_6(BL, BF) \
    CORE(1, BL, BF) CORE(2, BL, BF) CORE(3, BL, BF) CORE(4, BL, BF) CORE(5, BL, BF) CORE(6, BL, BF)
#define CORE_ROW_6(BL, BF) \
    core_1_##BL##_##BF, core_2_##BL##_##BF, core_3_##BL##_##BF, core_4_##BL##_##BF, core_5_##BL##_##BF, \
    core_6_##BL##_##BF

/* All copies for w in f32 (BF 0) or bf16 (BF 1): cores_BF[BL - 1][M - 1]; for small M more blocks at once,
 * so that their chains do not wait for each other: small_m_BF[M - 1]. */
#if LN_WIDE_MICROKERNEL
enum {
    CORE_MR = 8,          /* rows */
    CORE_NR_BLOCKS = 3,   /* blocks: 24 of 32 registers */
    SMALL_M = 4,          /* rows that take */
    SMALL_M_BLOCKS_1 = 4, /* so many blocks: one row, */
    SMALL_M_BLOCKS_2 = 4  /* more rows */
};
#define CORE_8(BL, BF) CORE_6(BL, BF) CORE(7, BL, BF) CORE(8, BL, BF)
#define CORE_ROW_8(BL, BF) {CORE_ROW_6(BL, BF), core_7_##BL##_##BF, core_8_##BL##_##BF}
#define CORES(BF) \
    CORE_8(1, BF) CORE_8(2, BF) CORE_8(3, BF) CORE(1, 4, BF) CORE(2, 4, BF) CORE(3, 4, BF) CORE(4, 4, BF) \
    static core_fn *const cores_##BF[CORE_NR_BLOCKS][CORE_MR] = { \
        CORE_ROW_8(1, BF), CORE_ROW_8(2, BF), CORE_ROW_8(3, BF)}; \
    static core_fn *const small_m_##BF[SMALL_M] = { \
        core_1_4_##BF, core_2_4_##BF, core_3_4_##BF, core_4_4_##BF};
#else
enum {
    CORE_MR = 6,          /* rows */
    CORE_NR_BLOCKS = 1,   /* blocks: 12 of 16 registers, 24 of 32 */
    SMALL_M = 2,          /* rows that take */
    SMALL_M_BLOCKS_1 = 4, /* so many blocks: one row, */
    SMALL_M_BLOCKS_2 = 2  /* two rows */
};
#define CORES(BF) \
    CORE_6(1, BF) CORE(1, 4, BF) CORE(2, 2, BF) \
    static core_fn *const cores_##BF[CORE_NR_BLOCKS][CORE_MR] = {{CORE_ROW_6(1, BF)}}; \
    static core_fn *const small_m_##BF[SMALL_M] = { \
        core_1_4_##BF, core_2_2_##BF};
#endif
/* clang-format on */

#endif
