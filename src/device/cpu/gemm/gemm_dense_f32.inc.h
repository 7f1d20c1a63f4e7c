/* GEMM of dense weights (f32, bf16, f16, and bf16 compressed as bf12) with f32 accumulation on a vector ISA
 * level: y = x w^T + b, with the bits of the reference (linear).
 *
 * What is computed. Each output is one sequential chain of fused multiply-adds over C, in ascending order,
 * of bf16 weights pair by pair, the odd column first (ops.h). Lanes run along outputs, so that a chain is
 * never split: neither rows nor threads nor blocking change a bit.
 *
 *     w, a packed block (pack.h): 16 outputs, column after column (bf16: pair after pair), 64 bytes a line
 *         f32   | w[0][c] | w[1][c] | .. | w[15][c] |                            64 bytes a column
 *         bf16  | w[0][c], w[0][c+1] | w[1][c], w[1][c+1] | .. | w[15][..] |     64 bytes two columns
 *         f16   | w[0][c] | w[1][c] | .. | w[15][c] |                            32 bytes a column
 *     x: rows of f32, ldx elements apart, each element broadcast to all lanes
 *     y: rows of f32, ldy elements apart
 *
 * Micro-kernel: M rows x BL blocks of 16 outputs, accumulators in registers, weights widened as they are
 * loaded.
 *
 *     small M (decode)
 *         for groups of SMALL_M_BLOCKS blocks       each block is a stream of its own: neither chains nor
 *             micro_kernel over all of C            loads from memory wait for each other
 *     large M (prefill)
 *         for MC_TILES tiles of MR rows             L2 holds these rows of x
 *             for NR_BLOCKS blocks of outputs
 *                 for KC columns                    this panel of w stays in L1 and L2
 *                     for tile of MR rows
 *                         micro_kernel              between two KC the chains are stored in y
 *
 * The next MC reads the weights again, from L3: less than reading all of x for each block.
 *
 * bf12 weights (bf12.h) go the same two ways, gemm_bf12.inc.h; for large M a panel is decompressed into
 * scratch, once for BF12_MC_TILES tiles of rows. Threads partition blocks of outputs, never C.
 *
 * LN_BF16_DOT makes the copy for rows of bf16 values on machines with AVX512_BF16: an element of x is then a
 * pair of columns, 32 bits, that meets a pair of w in one VDPBF16PS. The rows of an MC are converted to such
 * pairs in scratch; x and ldx count pairs then.
 *
 * Included once per ISA level, after its simd header, by a file that defines the register geometry: LN_MR
 * rows and LN_NR_BLOCKS blocks of the largest micro-kernel, LN_BF12_SMALL_M. All other parameters are in
 * tuning.def. */
#include "../../../base/thread_pool.h"
#include "../../../ops/ops.h"
#include "../cpu.h"
#include "../pack/bf12_unpack.inc.h"
#include "../tuning.h"
#include "gemm_fma_column.h"

enum {
    KC = LN_ISA(tune_gemm_dense_KC),                         /* columns of a panel */
    NR_BLOCKS = LN_NR_BLOCKS,                                /* blocks of outputs of a panel */
    MR = LN_MR,                                              /* rows of the largest micro-kernel */
    MC_TILES = LN_ISA(tune_gemm_dense_MC_TILES),             /* tiles of MR rows that pass over a panel */
    SMALL_M = 4,                                             /* rows that one run over the weights serves */
    PREFETCH_BYTES = LN_ISA(tune_gemm_dense_PREFETCH_BYTES), /* distance in each block */
    /* micro-kernels of up to as many blocks prefetch weights; others leave it to the hardware */
    PREFETCH_MAX_BLOCKS = LN_ISA(tune_gemm_dense_PREFETCH_MAX_BLOCKS),
};
#define SMALL_M_BLOCKS(M) \
    ((int)LN_ISA(tune_gemm_dense_SMALL_M_BLOCKS_##M)) /* blocks at once, M a literal \
                                                       */

typedef struct dense_gemm {
    const uint8_t *w; /* from block w_first_block, column w_first_col on */
    int64_t block;    /* bytes of a block of w */
    int64_t w_first_block, w_first_col;
    const void *bf12; /* the bf12 weight that w is decompressed from; NULL: w is the weight itself */
    const float *x;   /* from row x_first_row on */
    float *y;
    int64_t D, C, ldx, ldy, x_first_row;
    ln_dtype dtype;
} dense_gemm;

#ifdef LN_BF16_DOT
enum { X_PAIR = 2 }; /* columns in an element of x */
#else
enum { X_PAIR = 1 };
#endif

/* Column i of row m of x. Three pointers and constant distances from them, for gcc would keep one pointer a
 * row, in memory; and a macro, since as a function gcc 12 makes a few more instructions of it. */
#define X_AT(x, x3, x6, ldx, m, i) ((m) < 3 ? (x) : (m) < 6 ? (x3) : (x6))[(m) % 3 * (ldx) + (i)]
/* Vector v of a line of BL blocks, `step` bytes a vector. */
INLINE const uint8_t *w_at(const uint8_t *w, int64_t block, int step, int v) {
    return w + v / VECTORS_PER_LINE * block + v % VECTORS_PER_LINE * step;
}
INLINE vf load_even(const uint8_t *p) { return vf_lo_bf16(vi_load(p)); }
/* The same for small M, where a row has few other instructions: loaded two bytes early instead of shifted. */
INLINE vf load_even_mem(const int M, const int BL, const uint8_t *p) {
    return M == 1 && BL <= SMALL_M_BLOCKS(1) ? vf_lo_bf16_mem(p) : load_even(p);
}
/* Columns 2l and 2l + 1 of x, line l of bf16 blocks, the odd one first; EVEN is how the even one is loaded
 * from p. */
#define FMA_LINE(M, BL, acc, l, EVEN, w, block, x, x3, x6, ldx)                                         \
    FMA_COLUMN(M, BL *VECTORS_PER_LINE, acc, vf_hi_bf16(vi_load(w_at(w, block, 4 * VL, v) + 64 * (l))), \
               X_AT(x, x3, x6, ldx, m, 2 * (l) + 1))                                                    \
    FMA_COLUMN(M, BL *VECTORS_PER_LINE, acc, EVEN(M, BL, w_at(w, block, 4 * VL, v) + 64 * (l)),         \
               X_AT(x, x3, x6, ldx, m, 2 * (l)))
#define LOAD_EVEN(M, BL, p) load_even(p)
#ifdef LN_BF16_DOT
/* A pair of columns of every output, element i of x; or, of a last pair, the even column alone. */
INLINE void dot_pair(const int M, const int BL, const bool whole, const uint8_t *w, int64_t block,
                     const float *x, int64_t ldx, int64_t i, vf acc[8][12]) {
    vi b[8];
#pragma GCC unroll 8
    for (int v = 0; v < BL; v++) b[v] = vi_load(w + v * block);
#pragma GCC unroll 8
    for (int m = 0; m < M; m++) {
        const vi a = vi_broadcast32(x + m * ldx + i);
#pragma GCC unroll 8
        for (int v = 0; v < BL; v++)
            acc[m][v] =
                whole ? vf_dot_bf16(a, b[v], acc[m][v]) : vf_fma(vf_lo_bf16(a), vf_lo_bf16(b[v]), acc[m][v]);
    }
}
#endif

/* What a micro-kernel prefetches beside what it reads: `step` bytes on for each line that it reads, of every
 * block. */
typedef struct prefetch_stream {
    const uint8_t *at;
    int64_t step;
} prefetch_stream;
INLINE void prefetch_line(const int BL, prefetch_stream s, int l, int64_t block) {
    if (BL > PREFETCH_MAX_BLOCKS) return;
#pragma GCC unroll 8
    for (int g = 0; g < BL; g++) prefetch_l1(s.at + l * s.step + g * block);
}

/* y[M][BL * 16] (+)= n_k columns of w and x; accumulate: the chains go on from y (beta = 1). */
INLINE void micro_kernel(const int M, const int BL, const ln_dtype t, const uint8_t *w, int64_t block,
                         prefetch_stream next, const float *x, int64_t ldx, int64_t n_k, float *y,
                         int64_t ldy, bool accumulate) {
    const float *x3 = M > 3 ? x + 3 * ldx : x, *x6 = M > 6 ? x + 6 * ldx : x;
    vf acc[8][12]; /* of which M x BL * VECTORS_PER_LINE are used: registers */
#pragma GCC unroll 8
    for (int m = 0; m < M; m++)
#pragma GCC unroll 16
        for (int v = 0; v < BL * VECTORS_PER_LINE; v++)
            acc[m][v] = accumulate ? vf_load(y + m * ldy + v * VL) : vf_zero();
    if (t == LN_BF16) {
        int64_t k = 0;
#ifdef LN_BF16_DOT
        for (; k + 2 <= n_k; k += 2, w += 64, next.at += next.step) {
            prefetch_line(BL, next, 0, block);
            dot_pair(M, BL, true, w, block, x, ldx, k / 2, acc);
        }
        if (k < n_k) dot_pair(M, BL, false, w, block, x, ldx, k / 2, acc);
#else
        if (M == 1 && n_k >= 2) { /* but not of the first line, before which there may be nothing to read */
            prefetch_line(BL, next, 0, block);
            FMA_LINE(M, BL, acc, 0, LOAD_EVEN, w, block, x, x3, x6, ldx)
            k = 2, w += 64, x += 2, x3 += 2, x6 += 2, next.at += next.step;
        }
        /* with up to eight accumulators there are registers for two lines */
        for (; M * BL * VECTORS_PER_LINE <= 8 && k + 4 <= n_k;
             k += 4, w += 128, x += 4, x3 += 4, x6 += 4, next.at += 2 * next.step) {
            __asm__("" : "+r"(x), "+r"(x3)); /* else gcc keeps more pointers, in memory */
            prefetch_line(BL, next, 0, block);
            FMA_LINE(M, BL, acc, 0, load_even_mem, w, block, x, x3, x6, ldx)
            __asm__ volatile("" : "+r"(w), "+r"(x), "+r"(x3));
            prefetch_line(BL, next, 1, block);
            FMA_LINE(M, BL, acc, 1, load_even_mem, w, block, x, x3, x6, ldx)
        }
        for (; k + 2 <= n_k; k += 2, w += 64, x += 2, x3 += 2, x6 += 2, next.at += next.step) {
            __asm__("" : "+r"(x), "+r"(x3));
            prefetch_line(BL, next, 0, block);
            FMA_LINE(M, BL, acc, 0, load_even_mem, w, block, x, x3, x6, ldx)
        }
        if (k < n_k) {
            FMA_COLUMN(M, BL * VECTORS_PER_LINE, acc, load_even(w_at(w, block, 4 * VL, v)),
                       X_AT(x, x3, x6, ldx, m, 0))
        }
#endif
    } else if (t == LN_F16) {
        for (int64_t k = 0; k < n_k; k++, x++, x3++, x6++, w += 32)
            FMA_COLUMN(M, BL * VECTORS_PER_LINE, acc, vf_load_f16(w_at(w, block, 2 * VL, v)),
                       X_AT(x, x3, x6, ldx, m, 0))
    } else {
        for (int64_t k = 0; k < n_k; k++, x++, x3++, x6++, w += 64)
            FMA_COLUMN(M, BL * VECTORS_PER_LINE, acc, vf_cast(vi_load(w_at(w, block, 4 * VL, v))),
                       X_AT(x, x3, x6, ldx, m, 0))
    }
#pragma GCC unroll 8
    for (int m = 0; m < M; m++)
#pragma GCC unroll 16
        for (int v = 0; v < BL * VECTORS_PER_LINE; v++) vf_store(y + m * ldy + v * VL, acc[m][v]);
}

/* One copy per number of rows, of blocks, and type. */
typedef void micro_kernel_fn(const uint8_t *w, int64_t block, prefetch_stream next, const float *x,
                             int64_t ldx, int64_t n_k, float *y, int64_t ldy, bool accumulate);
#define KERNEL(M, BL, T, N)                                                                             \
    static void kernel_##N##_##M##_##T(const uint8_t *w, int64_t block, prefetch_stream next,           \
                                       const float *x, int64_t ldx, int64_t n_k, float *y, int64_t ldy, \
                                       bool accumulate) {                                               \
        micro_kernel(M, BL, T, w, block, next, x, ldx, n_k, y, ldy, accumulate);                        \
    }
#ifdef LN_BF16_DOT
#define KERNELS(M, BL, N) KERNEL(M, BL, LN_BF16, N)
#define BY_DTYPE(ROW) \
    { [LN_BF16] = ROW(LN_BF16) }
#else
#define KERNELS(M, BL, N) KERNEL(M, BL, LN_F32, N) KERNEL(M, BL, LN_BF16, N) KERNEL(M, BL, LN_F16, N)
#define BY_DTYPE(ROW) \
    { ROW(LN_F32), ROW(LN_BF16), ROW(LN_F16) }
#endif
/* clang-format off */
KERNELS(1, SMALL_M_BLOCKS(1), small) KERNELS(2, SMALL_M_BLOCKS(2), small)
KERNELS(3, SMALL_M_BLOCKS(3), small) KERNELS(4, SMALL_M_BLOCKS(4), small)
/* clang-format on */
#define SMALL_M_ROW(T) \
    { kernel_small_1_##T, kernel_small_2_##T, kernel_small_3_##T, kernel_small_4_##T }
    static micro_kernel_fn *const small_m_kernels[3][SMALL_M] = BY_DTYPE(SMALL_M_ROW);
static const int small_m_blocks[SMALL_M] = {SMALL_M_BLOCKS(1), SMALL_M_BLOCKS(2), SMALL_M_BLOCKS(3),
                                            SMALL_M_BLOCKS(4)};
#ifdef LN_SHORT_K_KERNEL
/* One row of few columns takes more blocks at once: more chains, though memory needs no more streams. */
enum { SHORT_K = LN_ISA(tune_gemm_dense_SHORT_K), SHORT_K_BLOCKS = LN_ISA(tune_gemm_dense_SHORT_K_BLOCKS) };
KERNELS(1, SHORT_K_BLOCKS, short)
#define SHORT_K_ROW(T) kernel_short_1_##T
static micro_kernel_fn *const short_k_kernels[3] = BY_DTYPE(SHORT_K_ROW);
#endif

/* clang-format off */
#define KERNELS_6(BL, N) \
    KERNELS(1, BL, N) KERNELS(2, BL, N) KERNELS(3, BL, N) \
    KERNELS(4, BL, N) KERNELS(5, BL, N) KERNELS(6, BL, N)
#define ROW_6(T, N) \
    kernel_##N##_1_##T, kernel_##N##_2_##T, kernel_##N##_3_##T, kernel_##N##_4_##T, kernel_##N##_5_##T, \
    kernel_##N##_6_##T
#if LN_MR == 8
#define KERNELS_MR(BL, N) KERNELS_6(BL, N) KERNELS(7, BL, N) KERNELS(8, BL, N)
#define ROW_MR(T, N) {ROW_6(T, N), kernel_##N##_7_##T, kernel_##N##_8_##T}
#else
#define KERNELS_MR(BL, N) KERNELS_6(BL, N)
#define ROW_MR(T, N) {ROW_6(T, N)}
#endif
KERNELS_MR(1, edge)
KERNELS_MR(LN_NR_BLOCKS, wide)
#define EDGE_ROW(T) ROW_MR(T, edge)
#define WIDE_ROW(T) ROW_MR(T, wide)
static micro_kernel_fn *const edge_kernels[3][MR] = BY_DTYPE(EDGE_ROW);
static micro_kernel_fn *const wide_kernels[3][MR] = BY_DTYPE(WIDE_ROW);
/* clang-format on */

/* Work of one tile of rows: m rows from r, columns k .. k + n_k - 1. */
typedef struct tile_work {
    int64_t r, m, k, n_k;
    int64_t prefetch_from, step; /* meanwhile the columns that come next are prefetched, each row tile its
                                    part of them: from prefetch_from bytes on, `step` bytes for each line that
                                    it reads. A single tile (step 64) prefetches PREFETCH_BYTES ahead */
    const uint8_t *bf12_next;    /* bf12: compressed tiles that are decompressed next */
} tile_work;

/* Where tile p prefetches while it reads at w; hi: the block after those it works on. */
static prefetch_stream prefetch_of(const dense_gemm *l, const tile_work *p, const uint8_t *w, int64_t hi) {
    if (l->bf12) return (prefetch_stream){p->bf12_next + p->prefetch_from, p->step};
    if (p->step == 64) return (prefetch_stream){w + PREFETCH_BYTES, 64};
    const uint8_t *next =
        p->k + p->n_k < l->C ? w + ln_pack_offset(l->dtype, l->C, 0, p->n_k) : l->w + hi * l->block;
    return (prefetch_stream){next + p->prefetch_from, p->step};
}

static const uint8_t *weights_at(const dense_gemm *l, int64_t b, int64_t k) {
    return l->w + (b - l->w_first_block) * l->block + ln_pack_offset(l->dtype, l->C, 0, k - l->w_first_col);
}

/* One block. The last one may have fewer outputs than the kernel writes: they go through `edge`. */
static void run_edge_block(const dense_gemm *l, const tile_work *p, int64_t b) {
    const uint8_t *w = weights_at(l, b, p->k);
    const float *x = l->x + (p->r - l->x_first_row) * l->ldx + p->k / X_PAIR;
    float *y = l->y + p->r * l->ldy + b * LN_PACK_NR, edge[MR][LN_PACK_NR] = {{0}};
    const int64_t n_d = LN_MIN((int64_t)LN_PACK_NR, l->D - b * LN_PACK_NR);
    const prefetch_stream next = prefetch_of(l, p, w, b + 1);
    micro_kernel_fn *fn = edge_kernels[l->dtype][p->m - 1];
    if (n_d == LN_PACK_NR) {
        fn(w, l->block, next, x, l->ldx, p->n_k, y, l->ldy, p->k > 0);
        return;
    }
    for (int64_t i = 0; i < p->m && p->k > 0; i++) memcpy(edge[i], y + i * l->ldy, (size_t)n_d * sizeof *y);
    fn(w, l->block, next, x, l->ldx, p->n_k, edge[0], LN_PACK_NR, p->k > 0);
    for (int64_t i = 0; i < p->m; i++) memcpy(y + i * l->ldy, edge[i], (size_t)n_d * sizeof *y);
}

/* n whole blocks from b. Where they end soon and no other row tile prefetches what comes then, the last
 * columns are a run of their own, which prefetches the beginnings of the next n. */
static void run_block_group(const dense_gemm *l, micro_kernel_fn *fn, int n, const tile_work *p, int64_t b) {
    const uint8_t *w = weights_at(l, b, p->k);
    const float *x = l->x + (p->r - l->x_first_row) * l->ldx + p->k / X_PAIR;
    float *y = l->y + p->r * l->ldy + b * LN_PACK_NR;
    prefetch_stream next = prefetch_of(l, p, w, b + n);
    int64_t k = 0;
    if (n <= PREFETCH_MAX_BLOCKS && p->step == 64 && p->k + p->n_k == l->C) {
        k = LN_MAX((int64_t)0, p->n_k - PREFETCH_BYTES / 32) / 2 * 2;
        if (k > 0) fn(w, l->block, next, x, l->ldx, k, y, l->ldy, p->k > 0);
        next.at = l->w + (b + n) * l->block;
    }
    fn(w + ln_pack_offset(l->dtype, l->C, 0, k), l->block, next, x + k / X_PAIR, l->ldx, p->n_k - k, y,
       l->ldy, p->k + k > 0);
}

/* Blocks [lo, hi), n at a time as long as they are whole. */
static void run_blocks(const dense_gemm *l, micro_kernel_fn *fn, int n, const tile_work *p, int64_t lo,
                       int64_t hi) {
    int64_t b = lo;
    for (; b + n <= hi && (b + n) * LN_PACK_NR <= l->D; b += n) run_block_group(l, fn, n, p, b);
    for (; b < hi; b++) run_edge_block(l, p, b);
}

#ifdef LN_SHORT_K_KERNEL
/* One row of few columns, SHORT_K_BLOCKS blocks at a time; returns the block that comes next. Where just two
 * times SMALL_M_BLOCKS(1) are left, they are left to those kernels. */
static int64_t run_short_k(const dense_gemm *l, const tile_work *p, int64_t b, int64_t hi) {
    for (int64_t n = SHORT_K_BLOCKS;
         b + n <= hi && hi - b != 2 * SMALL_M_BLOCKS(1) && (b + n) * LN_PACK_NR <= l->D; b += n)
        run_block_group(l, short_k_kernels[l->dtype], (int)n, p, b);
    return b;
}
#endif

#include "gemm_bf12.inc.h"

/* ---- large M ---- */

/* Columns of a panel: as even as can be, KC or up to a quarter more; of bf12 weights whole tiles, three
 * quarters of a compressed block at most. */
static int64_t kc_columns(const dense_gemm *l) {
    const int64_t parts = LN_MAX((int64_t)1, (l->C + KC * 3 / 4 - 1) / KC),
                  unit = l->bf12 ? LN_BF12_TILE_COLS : 2,
                  k = (l->C + unit * parts - 1) / (unit * parts) * unit;
    return !l->bf12 || 32 * k <= l->block
               ? k
               : (k / 2 + LN_BF12_TILE_COLS - 1) / LN_BF12_TILE_COLS * LN_BF12_TILE_COLS;
}

/* Row tiles [from, to) of `tiles`, to which all rows are dealt evenly, over blocks [lo, hi). */
static void run_large_m(dense_gemm *l, int64_t rows, int64_t tiles, int64_t from, int64_t to, int64_t lo,
                        int64_t hi, uint8_t *panel) {
    const int64_t part_k = kc_columns(l), row_tiles = to - from;
    for (int64_t b = lo; b < hi; b += NR_BLOCKS)
        for (int64_t k = 0; k < l->C; k += part_k) {
            tile_work p = {
                .r = rows * from / tiles, .k = k, .n_k = LN_MIN(part_k, l->C - k), .step = 64 / row_tiles};
            int64_t tile_bytes = ln_pack_offset(l->dtype, l->C, 0, p.n_k) / row_tiles;
            if (l->bf12) {
                unpack_panel(l, b, LN_MIN(b + NR_BLOCKS, hi), k, p.n_k, panel);
                p.step = p.step * 3 / 4, tile_bytes = tile_bytes * 3 / 4;
                p.bf12_next =
                    k + part_k < l->C ? bf12_tiles_at(l, b, k + part_k) : bf12_tiles_at(l, b + NR_BLOCKS, 0);
            }
            for (int64_t i = from, remainder = rows * from % tiles; i < to;
                 i++, p.r += p.m, p.prefetch_from += tile_bytes) { /* rows rows * i / tiles .. */
                p.m = rows / tiles;
                if ((remainder += rows % tiles) >= tiles) p.m++, remainder -= tiles;
                run_blocks(l, wide_kernels[l->dtype][p.m - 1], NR_BLOCKS, &p, b, LN_MIN(b + NR_BLOCKS, hi));
            }
        }
}

/* MC in row tiles: a bf12 panel is decompressed again for each MC. Rows that are converted to pairs fill no
 * more than half of L2. */
static int64_t mc_tiles(int64_t C, bool bf12) {
    enum { MOST = BF12_MC_TILES, PAIRS_BYTES = 1024 << 10 };
    return !bf12         ? MC_TILES
           : X_PAIR == 1 ? MOST
                         : LN_MAX((int64_t)MC_TILES, LN_MIN((int64_t)MOST, PAIRS_BYTES / (2 * C * MR)));
}

#ifdef LN_BF16_DOT
/* Rows [r, end) of x, bf16 values in f32, as pairs in scratch. */
static void convert_rows(dense_gemm *l, const ln_arg *x, int64_t r, int64_t end, uint32_t *to) {
    l->x = (const float *)(const void *)to;
    l->x_first_row = r;
    for (; r < end; r++, to += l->ldx) {
        const float *from = (const float *)x->data + r * x->pitch;
        for (int64_t i = 0; i < x->cols / 2; i++)
            to[i] = ln_f32_bits(from[2 * i]) >> 16 | (ln_f32_bits(from[2 * i + 1]) & 0xffff0000u);
        if (x->cols % 2) to[x->cols / 2] = ln_f32_bits(from[x->cols - 1]) >> 16;
    }
}
/* Bytes of so many rows as pairs, in whole cache lines. */
static size_t pair_bytes(int64_t rows, int64_t C) {
    return (size_t)(rows * ((C + 1) / 2) * 4 + 63) / 64 * 64;
}
static size_t scratch(const ln_program *p, const ln_pnode *n, const ln_bounds *b) {
    const ln_pvalue *x = ln_program_value(p, n->in[0]);
    return pair_bytes(LN_MIN(ln_dim(x->dims[0], b), MR * mc_tiles(x->dims[1], true)), x->dims[1]) +
           panel_bytes(p, n);
}
#else
static size_t scratch(const ln_program *p, const ln_pnode *n, const ln_bounds *b) {
    return (void)b, panel_bytes(p, n);
}
#endif

/* Whether one run over the weights serves all rows. */
static bool is_small_m(const ln_call *c) {
    return c->out[0].rows <= (c->in[1].bf12 ? BF12_SMALL_M : SMALL_M) &&
           !(c->in[1].bf12 && bf12_unpacks_first(c->out[0].rows));
}
static int small_m_blocks_of(const ln_call *c) {
    const int64_t i = LN_MAX((int64_t)1, LN_MIN(c->out[0].rows, (int64_t)SMALL_M)) - 1;
    return c->in[1].bf12 ? bf12_blocks[i] : small_m_blocks[i];
}
/* A thread's blocks; for small M whole groups of those that are taken at once. */
static void partition(const ln_call *c, int64_t *lo, int64_t *hi) {
    const ln_arg *y = &c->out[0];
    ln_partition(ln_pack_blocks(y->cols), y->rows >= 1 && y->rows <= SMALL_M ? small_m_blocks_of(c) : 1,
                 c->thread, c->n_threads, lo, hi);
}
static void linear_reads(const ln_call *c, ln_reads *out) {
    int64_t lo, hi;
    partition(c, &lo, &hi);
    *out = ln_cpu_dense_reads(&c->in[1], c->in[0].cols, lo, hi, small_m_blocks_of(c));
}

static void linear_run(const ln_call *c) {
    const ln_arg *x = &c->in[0], *w = &c->in[1], *y = &c->out[0];
    dense_gemm l = {.w = w->data,
                    .block = ln_cpu_dense_block_bytes(w, x->cols),
                    .bf12 = w->bf12 ? w->data : NULL,
                    .x = x->data,
                    .y = y->data,
                    .D = y->cols,
                    .C = x->cols,
                    .ldx = x->pitch,
                    .ldy = y->pitch,
                    .dtype = w->dtype};
    const int64_t rows = y->rows, tiles = (rows + MR - 1) / MR, mc = mc_tiles(x->cols, w->bf12),
                  mcs = (tiles + mc - 1) / mc;
    int64_t lo, hi;
    partition(c, &lo, &hi);
    uint8_t *panel = c->scratch;
    if (lo >= hi || rows < 1) return;
#ifdef LN_BF16_DOT
    l.ldx = (l.C + 1) / 2;
    panel += pair_bytes(LN_MIN(rows, MR * mc), l.C);
    if (is_small_m(c)) convert_rows(&l, x, 0, rows, c->scratch);
#endif
    if (l.bf12 && is_small_m(c)) run_bf12_small_m(&l, rows, lo, hi);
    else if (is_small_m(c)) {
        const tile_work all = {.m = rows, .n_k = l.C, .step = 64};
        int64_t b = lo;
#ifdef LN_SHORT_K_KERNEL
        if (rows == 1 && l.C <= SHORT_K) b = run_short_k(&l, &all, lo, hi);
#endif
        run_blocks(&l, small_m_kernels[l.dtype][rows - 1], small_m_blocks[rows - 1], &all, b, hi);
    } else
        for (int64_t j = 0; j < mcs; j++) {
            const int64_t from = tiles * j / mcs, to = tiles * (j + 1) / mcs;
#ifdef LN_BF16_DOT
            convert_rows(&l, x, rows * from / tiles, rows * to / tiles, c->scratch);
#endif
            run_large_m(&l, rows, tiles, from, to, lo, hi, panel);
        }
    if (c->node->n_in > 2)
        ln_cpu_add_bias(&c->in[2], l.y, l.ldy, rows, lo * LN_PACK_NR, LN_MIN(hi * LN_PACK_NR, l.D));
}

#ifndef LN_BF16_DOT
const ln_kernel_row LN_ISA(ln_cpu_dense)[] = {
    {LN_OP_LINEAR,
     LN_ANY_DENSE_PRODUCT,
     {.fn = linear_run, .scratch = scratch, .pieces = LN_ISA(tune_gemm_dense_CHUNKS), .reads = linear_reads}},
    {0},
};
#endif
