/* GEMM of affine group-quantised weights with f32 activations and accumulation on a vector ISA level
 * (linear), for every code width and group size, with the bits of the reference.
 *
 * What is computed. Over groups g of columns, w = s q + b in each:
 *
 *     y = sum over g of  s[g] sum(q x) + b[g] sum(x)
 *
 * one sequential FMA chain over each group's columns, then one over groups (ops.h). Lanes run along outputs,
 * as in gemm_dense_f32.inc.h, so a chain is never split. The sums of x belong to no output: they are
 * computed once a call.
 *
 *     packed group (pack.h), 16 outputs:
 *         | 32 bits of codes of output 0 | .. of output 15 |   bits x group / 32 such lines of 64 bytes
 *         | 16 scales | 16 biases |                            in 8 bits if factors follow the block's groups
 *     panel, FROM_PANEL: codes as f32, [column][NR]; scales and biases apart, [group][NR]
 *
 * Micro-kernel: M rows x BL blocks of 16 outputs through n groups; it differs only in where the codes of a
 * column come from:
 *
 *     small M, 4 or 8 bits   FROM_NIBBLES, FROM_BYTES: code i of a 32-bit lane is masked in place, 2^(bits i)
 *                            times too large, and meets x scaled by 2^-(bits i), so that a column costs a
 *                            mask, a conversion and the multiply-adds
 *         for groups of blocks
 *           for tile of SMALL_M_MR rows            each prefetches its part of the next blocks
 *             for group, for line of codes
 *
 *     otherwise              FROM_PANEL
 *         for NR_BLOCKS blocks of outputs
 *           for KC columns                         panel of codes as f32, unpacked once for all rows
 *             for tile of MR rows                  chains rest in y between KC
 *
 * Threads partition blocks of outputs, never columns. Included once per ISA level, after its simd header, by
 * a file that defines the register geometry, LN_MR and LN_NR_BLOCKS. Other parameters are in tuning.def. */
#include "../../../base/thread_pool.h"
#include "../../../ops/ops.h"
#include "../cpu.h"
#include "../simd/simd_affine.inc.h"
#include "../pack/pack.h"
#include "../tuning.h"
#include "gemm_fma_column.h"

enum {
    VECTORS_PER_LINE = LN_PACK_NR / VL, /* vectors of a block's 16 outputs */
    NR_BLOCKS = LN_NR_BLOCKS,
    NR = NR_BLOCKS * LN_PACK_NR, /* outputs of a panel */
    MR = LN_MR,
    KC = LN_ISA(tune_gemm_affine_KC),                 /* columns of a panel */
    SMALL_M_MR = LN_ISA(tune_gemm_affine_SMALL_M_MR), /* rows of a tile of small M */
    SMALL_M = 2 * MR,                                 /* rows that read packed codes */
    PREFETCH_BYTES = LN_ISA(tune_gemm_affine_PREFETCH_BYTES)
};
#define SMALL_M_BLOCKS(M) \
    ((int)LN_ISA(tune_gemm_affine_SMALL_M_BLOCKS_##M)) /* blocks at once, M a literal \
                                                        */
static int small_m_blocks(int64_t m) {
    static const int8_t blocks[8] = {SMALL_M_BLOCKS(1), SMALL_M_BLOCKS(2), SMALL_M_BLOCKS(3),
                                     SMALL_M_BLOCKS(4), SMALL_M_BLOCKS(5), SMALL_M_BLOCKS(6),
                                     SMALL_M_BLOCKS(7), SMALL_M_BLOCKS(8)};
    return blocks[m - 1];
}
#define TINY_BITS 0x0f800000u /* of LN_Q_TINY, 2^-96 */
typedef enum code_source {
    FROM_PANEL = 0,
    FROM_NIBBLES = 4,
    FROM_BYTES = 8
} code_source; /* bits of packed codes */

typedef struct affine_gemm {
    const ln_affine *w; /* packed */
    ln_pack_units units;
    int64_t block, group_bytes, groups;
    int64_t D, C, ldx, ldy;
    const float *x;
    float *y;
    const float *sums; /* [rows][groups] */
    bool tiny;         /* some x counts as zero and is not */
} affine_gemm;

/* One run of the micro-kernel: M rows of x, of sums and of y; n groups. */
typedef struct kernel_args {
    const uint8_t *codes; /* of the first block and group: a panel, or packed groups */
    int64_t block, step;  /* bytes to the next block, to the next group */
    const float *s, *b;   /* a panel's [n][NR] */
    ln_pack_units units; /* how packed ones are stored; their factors, of the first block and its first group,
                             and the number of the first group here */
    const uint8_t *factors;
    int64_t g0;
    const float *x, *sums;
    float *y;
    int64_t ldx, ld_sums, ldy, group, n;
    bool begins;         /* the chains over groups begin here, at zero */
    const uint8_t *next; /* prefetched meanwhile: the first of prefetch_parts parts of what is there, `step`
                            bytes a group */
    int64_t prefetch_parts;
} kernel_args;

INLINE void micro_kernel(const int M, const int BL, const code_source kind, const kernel_args *u) {
    const int bits = (int)kind, per = 32 / LN_MAX(bits, 1); /* of packed codes */
    const int64_t next_line = 64 / u->prefetch_parts, next_group = u->step / u->prefetch_parts;
    const uint8_t *at = u->codes;
    for (int64_t g = 0; g < u->n; g++, at += u->step) {
        const float *x = u->x + g * u->group;
        const int64_t codes_bytes = 64 * (kind == FROM_PANEL ? 0 : u->group * bits / 32);
        vf acc[8][8]; /* of which M x BL * VECTORS_PER_LINE are used: registers */
#pragma GCC unroll 8
        for (int m = 0; m < M; m++)
#pragma GCC unroll 16
            for (int v = 0; v < BL * VECTORS_PER_LINE; v++) acc[m][v] = vf_zero();
        if (kind == FROM_PANEL) {
            const float *p = (const float *)(const void *)at;
            for (int64_t k = 0; k < u->group; k++, p += NR)
                FMA_COLUMN(M, BL * VECTORS_PER_LINE, acc, vf_load(p + v * VL), x[m * u->ldx + k])
        } else {
            const uint8_t *p = at, *next = u->next + g * next_group;
            for (int64_t k = 0; k < u->group; k += per, p += 64, next += next_line) {
                vi w[8];
#pragma GCC unroll 16
                for (int v = 0; v < BL * VECTORS_PER_LINE; v++) {
                    if (v % VECTORS_PER_LINE == 0) prefetch_l1(next + v / VECTORS_PER_LINE * u->block);
                    w[v] = vi_load(p + v / VECTORS_PER_LINE * u->block + v % VECTORS_PER_LINE * 4 * VL);
                }
#pragma GCC unroll 8
                for (int i = 0; i + 1 < per; i++)
                    FMA_COLUMN(M, BL * VECTORS_PER_LINE, acc,
                               vf_from_i32(vi_and32(w[v], ((1u << bits) - 1) << (bits * i))),
                               x[m * u->ldx + (k + i)])
                FMA_COLUMN(M, BL * VECTORS_PER_LINE, acc, vf_from_i32(vi_shr32(w[v], 32 - bits)),
                           x[m * u->ldx + (k + per - 1)])
            }
        }
#pragma GCC unroll 16
        for (int v = 0; v < BL * VECTORS_PER_LINE; v++) {
            const int64_t block = v / VECTORS_PER_LINE * u->block;
            const uint8_t *n = at + block + codes_bytes,
                          *factors = kind == FROM_PANEL || !u->factors
                                         ? NULL
                                         : ln_pack_factors_at(u->units, u->factors, u->g0 + g) + block;
            const int lane = v % VECTORS_PER_LINE * VL;
            vf s = kind == FROM_PANEL ? vf_load(u->s + g * NR + v * VL)
                                      : load_unit(u->units.dtype, n, factors, lane);
            vf b = kind == FROM_PANEL ? vf_load(u->b + g * NR + v * VL)
                                      : load_unit(u->units.dtype, n, factors, LN_PACK_NR + lane);
#pragma GCC unroll 8
            for (int m = 0; m < M; m++) {
                float *y = u->y + m * u->ldy + v * VL;
                vf sum = u->begins && g == 0 ? vf_zero() : vf_load(y);
                vf_store(y, vf_fma(b, vf_set1(u->sums[m * u->ld_sums + g]), vf_fma(s, acc[m][v], sum)));
            }
        }
    }
}

/* One copy per number of rows, of blocks (0: SMALL_M_BLOCKS of that many rows), and code source. */
typedef void micro_kernel_fn(const kernel_args *u);
#define KERNEL(M, BL, K, N)                                     \
    static void kernel_##N##_##M##_##K(const kernel_args *u) {  \
        micro_kernel(M, (BL) ? (BL) : SMALL_M_BLOCKS(M), K, u); \
    }
#define KERNELS_6(BL, K, N) \
    KERNEL(1, BL, K, N)     \
    KERNEL(2, BL, K, N) KERNEL(3, BL, K, N) KERNEL(4, BL, K, N) KERNEL(5, BL, K, N) KERNEL(6, BL, K, N)
#define ROW_6(K, N)                                                                                     \
    kernel_##N##_1_##K, kernel_##N##_2_##K, kernel_##N##_3_##K, kernel_##N##_4_##K, kernel_##N##_5_##K, \
        kernel_##N##_6_##K
#if LN_MR == 8
#define KERNELS(BL, K, N) KERNELS_6(BL, K, N) KERNEL(7, BL, K, N) KERNEL(8, BL, K, N)
#define ROW(K, N) \
    { ROW_6(K, N), kernel_##N##_7_##K, kernel_##N##_8_##K }
#else
#define KERNELS KERNELS_6
#define ROW(K, N) \
    { ROW_6(K, N) }
#endif
KERNELS(LN_NR_BLOCKS, FROM_PANEL, wide)
KERNELS(1, FROM_NIBBLES, edge)
KERNELS(1, FROM_BYTES, edge)
KERNELS(0, FROM_NIBBLES, small)
KERNELS(0, FROM_BYTES, small)
static micro_kernel_fn *const wide_kernels[MR] = ROW(FROM_PANEL, wide);
static micro_kernel_fn *const edge_kernels[2][MR] = {ROW(FROM_NIBBLES, edge), ROW(FROM_BYTES, edge)};
static micro_kernel_fn *const small_m_kernels[2][MR] = {ROW(FROM_NIBBLES, small), ROW(FROM_BYTES, small)};

/* ---- small M ---- */

/* x for codes that are masked in place: code i of a lane is 2^(bits i) times too large, but the last, which
 * is shifted down. */
static void scale_x(const affine_gemm *l, int64_t rows, float *out) {
    const int bits = l->w->code.bits, per = 32 / bits;
    float by[8];
    for (int i = 0; i < per; i++) by[i] = i + 1 == per ? 1.0f : 1.0f / (float)(1u << (bits * i));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < l->C; k += per)
            for (int i = 0; i < per; i++) out[r * l->C + k + i] = ln_q_x(l->x[r * l->ldx + k + i]) * by[i];
}

/* m rows from r of n blocks from b; of one block only if n is 1, and then the last may have fewer outputs
 * than the kernel writes: they go through `edge`. */
static void run_small_m_blocks(const affine_gemm *l, micro_kernel_fn *fn, int64_t r, int64_t m, int64_t b,
                               int64_t n, const float *x, const uint8_t *next, int64_t prefetch_parts) {
    const int64_t d = b * LN_PACK_NR, n_d = LN_MIN(n * LN_PACK_NR, l->D - d);
    float *y = l->y + r * l->ldy + d, edge[MR][LN_PACK_NR];
    const bool whole = n_d == n * LN_PACK_NR;
    kernel_args u = {
        .codes = l->w->codes + b * l->block,
        .block = l->block,
        .step = l->group_bytes,
        .units = l->units,
        .factors = ln_pack_factors_at(l->units, l->w->codes + b * l->block + l->groups * l->group_bytes, 0),
        .x = x + r * l->C,
        .sums = l->sums + r * l->groups,
        .y = whole ? y : edge[0],
        .ldx = l->C,
        .ld_sums = l->groups,
        .ldy = whole ? l->ldy : LN_PACK_NR,
        .group = l->w->code.group,
        .n = l->groups,
        .begins = true,
        .next = next,
        .prefetch_parts = prefetch_parts};
    if (prefetch_parts == 1 &&
        l->block > PREFETCH_BYTES + u.step) { /* the last groups are a run of their own, which prefetches the
                                                 beginnings of the next n blocks */
        const int64_t g = (l->block - PREFETCH_BYTES) / u.step;
        u.n = g;
        fn(&u);
        u.codes += g * u.step, u.x += g * u.group, u.sums += g, u.g0 = g;
        u.next = l->w->codes + (b + n) * l->block;
        u.n = l->groups - g;
        u.begins = false;
    }
    fn(&u);
    for (int64_t i = 0; i < m && !whole; i++) memcpy(y + i * l->ldy, edge[i], (size_t)n_d * sizeof *y);
}

/* Rows are dealt evenly to tiles, which pass over n blocks one after the other, so that these stay in L1 and
 * L2; each prefetches its part of the next n meanwhile. */
static void run_small_m(const affine_gemm *l, int64_t rows, int64_t lo, int64_t hi, const float *x) {
    const int form = l->w->code.bits == 8;
    const int64_t tiles = (rows + SMALL_M_MR - 1) / SMALL_M_MR,
                  n = small_m_blocks(rows / tiles); /* of the smallest tile, which takes the most */
    for (int64_t b = lo; b < hi; b += n)
        for (int64_t i = 0; i < tiles; i++) {
            const int64_t r = rows * i / tiles, m = rows * (i + 1) / tiles - r, n_blocks = small_m_blocks(m),
                          end = LN_MIN(b + n, hi);
            const int64_t ahead = tiles == 1 ? PREFETCH_BYTES : n * l->block + i * l->block / tiles;
            for (int64_t at = b; at < end;) {
                const uint8_t *next = l->w->codes + at * l->block + ahead;
                const bool whole = at + n_blocks <= end && (at + n_blocks) * LN_PACK_NR <= l->D;
                run_small_m_blocks(l, whole ? small_m_kernels[form][m - 1] : edge_kernels[form][m - 1], r, m,
                                   at, whole ? n_blocks : 1, x, next, tiles);
                at += whole ? n_blocks : 1;
            }
        }
}

/* ---- large M ---- */

/* Codes of groups [g, g + n_g) of NR_BLOCKS blocks as floats, panel[columns][NR], and their scales and
 * biases. Missing blocks are zero. */
static void unpack_panel(const affine_gemm *l, int64_t b, int64_t n_b, int64_t g, int64_t n_g, float *panel,
                         float s[][NR], float bias[][NR]) {
    const int bits = l->w->code.bits;
    const uint32_t mask = (1u << bits) - 1;
    const int64_t group = l->w->code.group, codes_bytes = 64 * (group * bits / 32);
    const ln_dtype t = l->units.dtype;
    for (int64_t i = 0; i < n_b * n_g; i++) {
        const int64_t h = i / n_b, at = i % n_b * LN_PACK_NR;
        const uint8_t *block = l->w->codes + (b + i % n_b) * l->block,
                      *from = block + (g + h) * l->group_bytes, *codes = from,
                      *factors = ln_pack_factors_at(l->units, block + l->groups * l->group_bytes, g + h);
        float *out = panel + h * group * NR + at;
        for (int64_t k = 0, off = 0; k < group; k++, out += NR) {
            prefetch_l1(codes + PREFETCH_BYTES);
            for (int v = 0; v < VECTORS_PER_LINE; v++, codes += 4 * VL) {
                vi code = vi_shr32(vi_load(codes), (int)off);
                if (off + bits > 32) code = vi_or(code, vi_shl32(vi_load(codes + 64), (int)(32 - off)));
                vf_store(out + v * VL, vf_from_i32(vi_and32(code, mask)));
            }
            off += bits;
            codes -= off < 32 ? 64 : 0;
            off -= off < 32 ? 0 : 32;
        }
        for (int v = 0; v < VECTORS_PER_LINE; v++) {
            vf_store(s[h] + at + v * VL, load_unit(t, from + codes_bytes, factors, v * VL));
            vf_store(bias[h] + at + v * VL, load_unit(t, from + codes_bytes, factors, LN_PACK_NR + v * VL));
        }
    }
}

/* The x of a tile as F32_AFFINE counts it, tiny numbers as zero: a copy where some are. */
static void flush_rows(const affine_gemm *l, int64_t r, int64_t m, int64_t k, int64_t n_k, float *out) {
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n_k; j++) out[i * KC + j] = ln_q_x(l->x[(r + i) * l->ldx + k + j]);
}

static void run_large_m(const affine_gemm *l, int64_t rows, int64_t lo, int64_t hi, float *panel) {
    const int64_t group = l->w->code.group, tiles = (rows + MR - 1) / MR;
    float s[KC / 16][NR] = {{0}}, bias[KC / 16][NR] = {{0}}, x[MR * KC], edge[MR][NR] = {{0}};
    kernel_args u = {.codes = (const uint8_t *)panel,
                     .step = group * NR * 4,
                     .s = s[0],
                     .b = bias[0],
                     .ld_sums = l->groups,
                     .group = group,
                     .prefetch_parts = 1};
    for (int64_t b = lo; b < hi; b += NR_BLOCKS) {
        const int64_t n_b = LN_MIN((int64_t)NR_BLOCKS, hi - b), d = b * LN_PACK_NR,
                      n_d = LN_MIN(n_b * LN_PACK_NR, l->D - d);
        memset(panel, 0, n_b < NR_BLOCKS ? sizeof(float) * KC * NR : 0);
        for (int64_t k = 0; k < l->C; k += KC) {
            u.n = LN_MIN((int64_t)KC, l->C - k) / group;
            u.begins = k == 0;
            unpack_panel(l, b, n_b, k / group, u.n, panel, s, bias);
            for (int64_t i = 0; i < tiles; i++) {
                const int64_t r = rows * i / tiles, m = rows * (i + 1) / tiles - r;
                float *y = l->y + r * l->ldy + d;
                u.x = l->tiny ? x : l->x + r * l->ldx + k;
                u.ldx = l->tiny ? KC : l->ldx;
                if (l->tiny) flush_rows(l, r, m, k, u.n * group, x);
                u.sums = l->sums + r * l->groups + k / group;
                u.y = n_d < NR ? edge[0] : y;
                u.ldy = n_d < NR ? NR : l->ldy;
                for (int64_t j = 0; j < m && n_d < NR && k > 0; j++)
                    memcpy(edge[j], y + j * l->ldy, (size_t)n_d * sizeof *y);
                wide_kernels[m - 1](&u);
                for (int64_t j = 0; j < m && n_d < NR; j++)
                    memcpy(y + j * l->ldy, edge[j], (size_t)n_d * sizeof *y);
            }
        }
    }
}

/* ---- both ---- */

/* The sum of a group: 16 lanes, then their pairwise sum. tiny gathers whether a number was met that counts as
 * zero and is not: one whose magnitude as an integer, less 1, is below the limit's (zero itself becomes the
 * largest integer). */
static float group_sum(const float *x, int64_t n, uint32_t tiny[16]) {
    float lane[16] = {0};
    for (int64_t i = 0; i < n; i += 16)
        for (int j = 0; j < 16; j++) {
            uint32_t u;
            memcpy(&u, x + i + j, 4);
            lane[j] = lane[j] + x[i + j];
            tiny[j] |= (u & 0x7fffffffu) - 1u < TINY_BITS - 1u ? 1u : 0u;
        }
    vf sum[16 / VL];
    for (int v = 0; v < 16 / VL; v++) sum[v] = vf_load(lane + v * VL);
    return vf_reduce_add16(sum);
}

/* The sums of all rows and groups; returns whether a number was met that counts as zero and is not. */
static bool group_sums(const affine_gemm *l, int64_t rows, float *sums) {
    const int64_t group = l->w->code.group;
    uint32_t any = 0;
    for (int64_t r = 0; r < rows; r++) {
        uint32_t tiny[16] = {0}, here = 0;
        const float *x = l->x + r * l->ldx;
        float *s = sums + r * l->groups, counted[128];
        for (int64_t g = 0; g < l->groups; g++) s[g] = group_sum(x + g * group, group, tiny);
        for (int j = 0; j < 16; j++) here |= tiny[j];
        for (int64_t g = 0; g < l->groups && here; g++) {
            for (int64_t i = 0; i < group; i++) counted[i] = ln_q_x(x[g * group + i]);
            s[g] = group_sum(counted, group, tiny);
        }
        any |= here;
    }
    return any != 0;
}

static bool reads_packed_codes(ln_groups e, int64_t rows) {
    return (e.bits == 4 || e.bits == 8) && rows <= SMALL_M;
}

/* Sums, then the panel or the scaled x, whichever needs more at these bounds. */
static size_t affine_gemm_scratch(const ln_program *p, const ln_pnode *n, const ln_bounds *b) {
    const ln_pvalue *x = ln_program_value(p, n->in[0]), *w = ln_program_value(p, n->in[1]);
    const int64_t rows = ln_dim(x->dims[0], b), C = w->dims[1];
    return sizeof(float) * (size_t)(rows * (C / ln_encoding_groups(w->enc).group) +
                                    LN_MAX((int64_t)KC * NR, LN_MIN(rows, (int64_t)SMALL_M) * C));
}

static void affine_gemm_run(const ln_call *c) {
    const ln_arg *x = &c->in[0], *y = &c->out[0];
    const ln_affine *w = c->in[1].data;
    const int64_t rows = y->rows, groups = x->cols / w->code.group;
    float *sums = c->scratch, *scratch = sums + rows * groups;
    affine_gemm l = {.w = w,
                     .units = ln_packed_units(w),
                     .block = ln_packed_block_bytes(w, x->cols),
                     .group_bytes = ln_packed_group_bytes(w),
                     .groups = groups,
                     .D = y->cols,
                     .C = x->cols,
                     .ldx = x->pitch,
                     .ldy = y->pitch,
                     .x = x->data,
                     .y = y->data,
                     .sums = sums};
    int64_t lo, hi;
    ln_partition(ln_pack_blocks(l.D), 1, c->thread, c->n_threads, &lo, &hi);
    if (lo >= hi || rows < 1) return;
    l.tiny = group_sums(&l, rows, sums);
    if (reads_packed_codes(w->code, rows)) {
        scale_x(&l, rows, scratch);
        run_small_m(&l, rows, lo, hi, scratch);
    } else {
        run_large_m(&l, rows, lo, hi, scratch);
    }
    if (c->node->n_in > 2)
        ln_cpu_add_bias(&c->in[2], l.y, l.ldy, rows, lo * LN_PACK_NR, LN_MIN(hi * LN_PACK_NR, l.D));
}

const ln_kernel_row LN_ISA(ln_cpu_affine)[] = {
    {LN_OP_LINEAR, 1 << LN_PRODUCT_F32_AFFINE, {.fn = affine_gemm_run, .scratch = affine_gemm_scratch}},
    {0},
};
