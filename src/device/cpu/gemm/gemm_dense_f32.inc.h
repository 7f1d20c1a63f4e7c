/* linear on a vector rung: y = x w^T + b with the bits of the reference, from packed weights (pack.h).
 *
 * The specification is one chain over C per output (ops.h); lanes run along outputs. One kernel serves all: M rows times some blocks of 16
 * outputs, the accumulators in registers, weights widened as they are loaded.
 *   few rows (decode)   more blocks at once, each a stream of its own, so that chains and memory do not wait for each other
 *   many rows (prefill) NR_BLOCKS blocks x KC columns stay in a near cache while MC_TILES tiles of rows, which L2 holds, pass over them; between blocks of
 *                       KC the chains rest in y. The next turn reads the weights again, from L3: less than reading all of x for each block
 * Tight weights (bf12.h) go the same two ways. LN_BF12_SMALL_M rows and fewer unpack in registers, LN_BF12_VECTORS(M) vectors of outputs at once, and ask LN_BF12_PREFETCH_TILES tiles
 * ahead (LN_BF12_PREFETCH); LN_BF12_PANEL_M rows unpack tile by tile into L1 (gemm_bf12_panel.inc.h); more rows, and those that LN_BF12_UNPACK_FIRST(M) names, unpack a panel into scratch, once for LN_BF12_MC_TILES tiles of rows, and go on as with weights in full.
 * Threads share blocks of outputs, never C. Included once per rung, after its simd header.
 *
 * LN_BF16_DOT makes the copy for rows of bf16 numbers on machines whose vectors multiply pairs of bf16 numbers (vf_dot_bf16): a word of x, two of its numbers, meets a
 * word of w. A turn's rows are written as such words into scratch; x, ldx and columns of x are counted in words then. */
#include "../../../base/pool.h"
#include "../../../ops/ops.h"
#include "../cpu.h"
#include "../pack/bf12_unpack.inc.h"

#ifndef LN_PREFETCHES /* whether tiles of M rows and BL blocks ask for weights ahead, or leave it to the processor */
#define LN_PREFETCHES(M, BL) true
#endif
#ifndef LN_BF12_PANEL_M /* rows of tight weights that go by panels (gemm_bf12_panel.inc.h): 8, or none */
#define LN_BF12_PANEL_M 0
#endif
#ifndef LN_BF12_PREFETCH /* for a line of tight weights */
#define LN_BF12_PREFETCH(p) prefetch_l1(p)
#endif

enum { KC = LN_KC, NR_BLOCKS = LN_NR_BLOCKS, MR = LN_MR, SMALL_M = 4, MC_TILES = 8 /* tiles of rows */, PREFETCH_BYTES = LN_PREFETCH_BYTES /* bytes */,
       BF12_PREFETCH_TILES = LN_BF12_PREFETCH_TILES /* tiles */ };

typedef struct dense_gemm {
    const uint8_t *w;      /* from block w_first_block, column w_first_col on */
    int64_t block;         /* bytes of a block of w */
    int64_t w_first_block, w_first_col;
    const void *bf12;     /* w is made of this; NULL: it is the weight itself */
    const float *x;        /* from row x_first_row on */
    float *y;
    int64_t D, C, ldx, ldy, x_first_row;
    ln_dtype dtype;
} dense_gemm;

#ifdef LN_BF16_DOT
enum { X_PAIR = 2 }; /* columns in a word of x */
#else
enum { X_PAIR = 1 };
#endif

/* Number i of row m: few pointers and constant distances, for gcc keeps one pointer a row otherwise, and those in memory. */
#define X_AT(m, i) ((m) < 3 ? x : (m) < 6 ? x3 : x6)[(m) % 3 * ldx + (i)]
/* One column of every output: its weights in vectors b, one number of each row in a. Whichever are fewer are made first: the accumulators fill
 * the registers. */
#define COLUMN(load, i)                                                                                                                  \
    if (M < BL * VECTORS_PER_LINE) {                                                                                                             \
        vf a[8];                                                                                                                         \
        _Pragma("GCC unroll 8") for (int m = 0; m < M; m++) a[m] = vf_set1(X_AT(m, i));                                                     \
        _Pragma("GCC unroll 16") for (int v = 0; v < BL * VECTORS_PER_LINE; v++) {                                                               \
            const uint8_t *p = w + v / VECTORS_PER_LINE * block + v % VECTORS_PER_LINE * STEP;                                                           \
            vf b = load;                                                                                                                 \
            _Pragma("GCC unroll 8") for (int m = 0; m < M; m++) acc[m][v] = vf_fma(a[m], b, acc[m][v]);                                  \
        }                                                                                                                                \
    } else {                                                                                                                             \
        vf b[8];                                                                                                                         \
        _Pragma("GCC unroll 16") for (int v = 0; v < BL * VECTORS_PER_LINE; v++) {                                                               \
            const uint8_t *p = w + v / VECTORS_PER_LINE * block + v % VECTORS_PER_LINE * STEP;                                                           \
            b[v] = load;                                                                                                                 \
        }                                                                                                                                \
        _Pragma("GCC unroll 8") for (int m = 0; m < M; m++) {                                                                            \
            vf a = vf_set1(X_AT(m, i));                                                                                                     \
            _Pragma("GCC unroll 16") for (int v = 0; v < BL * VECTORS_PER_LINE; v++) acc[m][v] = vf_fma(a, b[v], acc[m][v]);                     \
        }                                                                                                                                \
    }

/* Line l of two columns; with eight accumulators two lines a turn leave registers. */
#define LOAD_LO(p) vf_lo_bf16(vi_load(p))
#define LOAD_LO_NEXT(p) (M == 1 && BL <= LN_SMALL_M_BLOCKS_1 ? vf_lo_bf16_mem(p) : LOAD_LO(p)) /* one row, which has few other instructions */
#define LINE(l, low) COLUMN(vf_hi_bf16(vi_load(p + 64 * (l))), 2 * (l) + 1) COLUMN(low(p + 64 * (l)), 2 * (l))
#define PREFETCH_LINE(l)                                                                                                                    \
    if (LN_PREFETCHES(M, BL)) {                                                                                                                \
        _Pragma("GCC unroll 8") for (int g = 0; g < BL; g++) prefetch_l1(next.at + (l) * next.step + g * block);                            \
    }

#ifdef LN_BF16_DOT
/* A pair of columns of every output, or the even one of a last pair alone. */
#define COLUMN_PAIR(dot)                                                                                                                        \
    {                                                                                                                                    \
        vi b[8];                                                                                                                         \
        _Pragma("GCC unroll 8") for (int v = 0; v < BL; v++) b[v] = vi_load(w + v * block);                                              \
        _Pragma("GCC unroll 8") for (int m = 0; m < M; m++) {                                                                            \
            const vi a = vi_broadcast32(x + m * ldx + k / 2);                                                                                   \
            _Pragma("GCC unroll 8") for (int v = 0; v < BL; v++)                                                                         \
                acc[m][v] = dot ? vf_dot_bf16(a, b[v], acc[m][v]) : vf_fma(vf_lo_bf16(a), vf_lo_bf16(b[v]), acc[m][v]);                     \
        }                                                                                                                                \
    }
#endif

/* What a tile asks the memory for beside what it reads: `step` bytes on for each line that it reads. */
typedef struct prefetch_stream {
    const uint8_t *at;
    int64_t step;
} prefetch_stream;

/* y[M][BL * 16] (+)= columns of w from n_k columns of x; `carry`: the chains go on from what y holds. */
INLINE void micro_kernel(const int M, const int BL, const ln_dtype t, const uint8_t *w, int64_t block, prefetch_stream next, const float *x, int64_t ldx, int64_t n_k,
                      float *y, int64_t ldy, bool accumulate) {
    const float *x3 = M > 3 ? x + 3 * ldx : x, *x6 = M > 6 ? x + 6 * ldx : x;
    vf acc[8][12]; /* of which M x BL * VECTORS_PER_LINE are used: registers */
#pragma GCC unroll 8
    for (int m = 0; m < M; m++)
#pragma GCC unroll 16
        for (int v = 0; v < BL * VECTORS_PER_LINE; v++) acc[m][v] = accumulate ? vf_load(y + m * ldy + v * VL) : vf_zero();
    if (t == LN_BF16) {
        enum { STEP = 4 * VL };
        int64_t k = 0;
#ifdef LN_BF16_DOT
        for (; k + 2 <= n_k; k += 2, w += 64, next.at += next.step) {
            PREFETCH_LINE(0)
            COLUMN_PAIR(true)
        }
        if (k < n_k) COLUMN_PAIR(false)
#else
        if (M == 1 && n_k >= 2) { /* before the first line there may be nothing to read */
            PREFETCH_LINE(0)
            LINE(0, LOAD_LO)
            k = 2, w += 64, x += 2, x3 += 2, x6 += 2, next.at += next.step;
        }
        for (; M * BL * VECTORS_PER_LINE <= 8 && k + 4 <= n_k; k += 4, w += 128, x += 4, x3 += 4, x6 += 4, next.at += 2 * next.step) {
            __asm__("" : "+r"(x), "+r"(x3));
            PREFETCH_LINE(0)
            LINE(0, LOAD_LO_NEXT)
            __asm__ volatile("" : "+r"(w), "+r"(x), "+r"(x3));
            PREFETCH_LINE(1)
            LINE(1, LOAD_LO_NEXT)
        }
        for (; k + 2 <= n_k; k += 2, w += 64, x += 2, x3 += 2, x6 += 2, next.at += next.step) {
            __asm__("" : "+r"(x), "+r"(x3));
            PREFETCH_LINE(0)
            LINE(0, LOAD_LO_NEXT)
        }
        if (k < n_k) {
            COLUMN(vf_lo_bf16(vi_load(p)), 0)
        }
#endif
    } else if (t == LN_F16) {
        enum { STEP = 2 * VL };
        for (int64_t k = 0; k < n_k; k++, x++, x3++, x6++, w += 32) COLUMN(vf_load_f16(p), 0)
    } else {
        enum { STEP = 4 * VL };
        for (int64_t k = 0; k < n_k; k++, x++, x3++, x6++, w += 64) COLUMN(vf_cast(vi_load(p)), 0)
    }
#pragma GCC unroll 8
    for (int m = 0; m < M; m++)
#pragma GCC unroll 16
        for (int v = 0; v < BL * VECTORS_PER_LINE; v++) vf_store(y + m * ldy + v * VL, acc[m][v]);
}

/* One copy per number of rows, of blocks, and type. */
typedef void micro_kernel_fn(const uint8_t *w, int64_t block, prefetch_stream next, const float *x, int64_t ldx, int64_t n_k, float *y, int64_t ldy, bool accumulate);
#define KERNEL(M, BL, T, N)                                                                                                                \
    static void tile_##N##_##M##_##T(const uint8_t *w, int64_t block, prefetch_stream next, const float *x, int64_t ldx, int64_t n_k, float *y,     \
                                     int64_t ldy, bool accumulate) {                                                                          \
        micro_kernel(M, BL, T, w, block, next, x, ldx, n_k, y, ldy, accumulate);                                                                 \
    }
#ifdef LN_BF16_DOT
#define KERNELS(M, BL, N) KERNEL(M, BL, LN_BF16, N)
#define BY_DTYPE(ROW) {[LN_BF16] = ROW(LN_BF16)}
#else
#define KERNELS(M, BL, N) KERNEL(M, BL, LN_F32, N) KERNEL(M, BL, LN_BF16, N) KERNEL(M, BL, LN_F16, N)
#define BY_DTYPE(ROW) {ROW(LN_F32), ROW(LN_BF16), ROW(LN_F16)}
#endif
KERNELS(1, LN_SMALL_M_BLOCKS_1, few) KERNELS(2, LN_SMALL_M_BLOCKS_2, few) KERNELS(3, LN_SMALL_M_BLOCKS_3, few) KERNELS(4, LN_SMALL_M_BLOCKS_4, few)
#define SMALL_M_ROW(T) {tile_few_1_##T, tile_few_2_##T, tile_few_3_##T, tile_few_4_##T}
static micro_kernel_fn *const small_m_kernels[3][SMALL_M] = BY_DTYPE(SMALL_M_ROW);
static const int small_m_blocks[SMALL_M] = {LN_SMALL_M_BLOCKS_1, LN_SMALL_M_BLOCKS_2, LN_SMALL_M_BLOCKS_3, LN_SMALL_M_BLOCKS_4};
#ifdef LN_SHORT_K_BLOCKS /* blocks at once of one row of SHORT_K columns or fewer: more chains, which memory's streams need not be */
enum { SHORT_K = 512 };
KERNELS(1, LN_SHORT_K_BLOCKS, short)
#define SHORT_K_ROW(T) tile_short_1_##T
static micro_kernel_fn *const short_k_kernels[3] = BY_DTYPE(SHORT_K_ROW);
#endif

#define KERNELS_6(BL, N) KERNELS(1, BL, N) KERNELS(2, BL, N) KERNELS(3, BL, N) KERNELS(4, BL, N) KERNELS(5, BL, N) KERNELS(6, BL, N)
#define ROW_6(T, N) tile_##N##_1_##T, tile_##N##_2_##T, tile_##N##_3_##T, tile_##N##_4_##T, tile_##N##_5_##T, tile_##N##_6_##T
#if LN_MR == 8
#define KERNELS_MR(BL, N) KERNELS_6(BL, N) KERNELS(7, BL, N) KERNELS(8, BL, N)
#define ROW_MR(T, N) {ROW_6(T, N), tile_##N##_7_##T, tile_##N##_8_##T}
#else
#define KERNELS_MR(BL, N) KERNELS_6(BL, N)
#define ROW_MR(T, N) {ROW_6(T, N)}
#endif
KERNELS_MR(1, one)
KERNELS_MR(LN_NR_BLOCKS, wide)
#define EDGE_ROW(T) ROW_MR(T, one)
#define WIDE_ROW(T) ROW_MR(T, wide)
static micro_kernel_fn *const edge_kernels[3][MR] = BY_DTYPE(EDGE_ROW), *const wide_kernels[3][MR] = BY_DTYPE(WIDE_ROW);

/* What m rows from r take of columns k .. k + n_k - 1. While it does, tiles ask for the columns that come next, in this block or where the blocks after
 * it begin, each for a part: from `from` bytes on, `step` for each line that it reads. One tile, whose step is a whole line, asks for what follows soon. */
typedef struct tile_work {
    int64_t r, m, k, n_k, prefetch_from, step;
    const uint8_t *bf12_next; /* of tight weights: what the next unpack reads */
} tile_work;

static prefetch_stream prefetch_of(const dense_gemm *l, const tile_work *p, const uint8_t *w, int64_t hi) {
    if (l->bf12) return (prefetch_stream){p->bf12_next + p->prefetch_from, p->step};
    if (p->step == 64) return (prefetch_stream){w + PREFETCH_BYTES, 64};
    const uint8_t *next = p->k + p->n_k < l->C ? w + ln_pack_offset(l->dtype, l->C, 0, p->n_k) : l->w + hi * l->block;
    return (prefetch_stream){next + p->prefetch_from, p->step};
}

static const uint8_t *weights_at(const dense_gemm *l, int64_t b, int64_t k) { return l->w + (b - l->w_first_block) * l->block + ln_pack_offset(l->dtype, l->C, 0, k - l->w_first_col); }

/* One block. The last one may hold fewer outputs than y has room for: those rest beside y. */
static void run_edge_block(const dense_gemm *l, const tile_work *p, int64_t b) {
    const uint8_t *w = weights_at(l, b, p->k);
    const float *x = l->x + (p->r - l->x_first_row) * l->ldx + p->k / X_PAIR;
    float *y = l->y + p->r * l->ldy + b * LN_PACK_NR, rest[MR][LN_PACK_NR] = {{0}};
    const int64_t n_d = LN_MIN((int64_t)LN_PACK_NR, l->D - b * LN_PACK_NR);
    const prefetch_stream next = prefetch_of(l, p, w, b + 1);
    micro_kernel_fn *fn = edge_kernels[l->dtype][p->m - 1];
    if (n_d == LN_PACK_NR) {
        fn(w, l->block, next, x, l->ldx, p->n_k, y, l->ldy, p->k > 0);
        return;
    }
    for (int64_t i = 0; i < p->m && p->k > 0; i++) memcpy(rest[i], y + i * l->ldy, (size_t)n_d * sizeof *y);
    fn(w, l->block, next, x, l->ldx, p->n_k, rest[0], LN_PACK_NR, p->k > 0);
    for (int64_t i = 0; i < p->m; i++) memcpy(y + i * l->ldy, rest[i], (size_t)n_d * sizeof *y);
}

/* n whole blocks from b. Where they end soon and nobody else asks for what comes then, the tile's last columns go apart: they ask for the
 * beginnings of the next n. */
static void run_block_group(const dense_gemm *l, micro_kernel_fn *fn, int n, const tile_work *p, int64_t b) {
    const uint8_t *w = weights_at(l, b, p->k);
    const float *x = l->x + (p->r - l->x_first_row) * l->ldx + p->k / X_PAIR;
    float *y = l->y + p->r * l->ldy + b * LN_PACK_NR;
    prefetch_stream next = prefetch_of(l, p, w, b + n);
    int64_t k = 0;
    if (LN_PREFETCHES(p->m, n) && p->step == 64 && p->k + p->n_k == l->C) {
        k = LN_MAX((int64_t)0, p->n_k - PREFETCH_BYTES / 32) / 2 * 2;
        if (k > 0) fn(w, l->block, next, x, l->ldx, k, y, l->ldy, p->k > 0);
        next.at = l->w + (b + n) * l->block;
    }
    fn(w + ln_pack_offset(l->dtype, l->C, 0, k), l->block, next, x + k / X_PAIR, l->ldx, p->n_k - k, y, l->ldy, p->k + k > 0);
}

/* Blocks [lo, hi), n at a time as long as they are whole. */
static void run_blocks(const dense_gemm *l, micro_kernel_fn *fn, int n, const tile_work *p, int64_t lo, int64_t hi) {
    int64_t b = lo;
    for (; b + n <= hi && (b + n) * LN_PACK_NR <= l->D; b += n) run_block_group(l, fn, n, p, b);
    for (; b < hi; b++) run_edge_block(l, p, b);
}

#ifdef LN_SHORT_K_BLOCKS
/* Of one short row LN_SHORT_K_BLOCKS blocks at a time; where just two times LN_SMALL_M_BLOCKS_1 are left, they are left to those. Which comes next. */
static int64_t run_short_k(const dense_gemm *l, const tile_work *p, int64_t b, int64_t hi) {
    for (int64_t n = LN_SHORT_K_BLOCKS; b + n <= hi && hi - b != 2 * LN_SMALL_M_BLOCKS_1 && (b + n) * LN_PACK_NR <= l->D; b += n) run_block_group(l, short_k_kernels[l->dtype], (int)n, p, b);
    return b;
}
#endif

/* ---- tight weights (bf12.h) ---- */

/* Columns k .. k + n_k - 1, whole tiles but for the last, of blocks [lo, hi) into room, which l's weights are from now on, as far apart as they are where they come
 * from: one distance serves what is read and what is asked for. */
static void unpack_panel(dense_gemm *l, int64_t lo, int64_t hi, int64_t k, int64_t n_k, uint8_t *panel) {
    const int64_t tiles = ln_bf12_tile_count(n_k), first = k / LN_BF12_TILE_COLS;
    l->w = panel;
    l->w_first_block = lo;
    l->w_first_col = k;
    for (; lo < hi; lo++, panel += l->block) {
        const uint8_t *full = ln_bf12_uncompressed(l->bf12, l->C, lo);
        if (full) memcpy(panel, full + 1024 * first, (size_t)(1024 * tiles));
        else
            for (int64_t i = 0; i < tiles; i++) bf12_unpack_tile(panel + 1024 * i, (const uint8_t *)l->bf12 + LN_BF12_HEADER_BYTES + lo * ln_bf12_block_bytes(l->C), l->C, first + i);
    }
}

/* A pair of columns, word i of x, of part v, lines b; and an even one that has no partner. */
#ifdef LN_BF16_DOT
#define BF12_FMA_PAIR(m, i, b) vf_dot_bf16_mem(x + (m) * l->ldx + (i), b, acc[m][v])
#define BF12_FMA_LAST(m, i, b) vf_fma(vf_lo_bf16(vi_broadcast32(x + (m) * l->ldx + (i))), vf_lo_bf16(b), acc[m][v])
#else
#define BF12_FMA_LAST(m, i, b) vf_fma(vf_set1(x[(m) * l->ldx + 2 * (i)]), vf_lo_bf16(b), acc[m][v])
#define BF12_FMA_PAIR(m, i, b) vf_fma(vf_set1(x[(m) * l->ldx + 2 * (i)]), vf_lo_bf16(b), vf_fma(vf_set1(x[(m) * l->ldx + 2 * (i) + 1]), vf_hi_bf16(b), acc[m][v]))
#endif
/* M rows of all columns, V vectors of outputs from vector `first` of tight blocks on, which begin at w, l->block apart; `next`: where the blocks begin that come then. */
INLINE void bf12_kernel(const int M, const int V, const int first, const dense_gemm *l, const uint8_t *w, const uint8_t *next, float *y, int64_t ldy) {
    enum { STEP = 4 * VL };
    const int BL = (V + VECTORS_PER_LINE - 1) / VECTORS_PER_LINE;
    const int64_t tiles = ln_bf12_tile_count(l->C), whole = l->C / LN_BF12_TILE_COLS, head = ln_bf12_tiles_offset(l->C), block = l->block;
    const float *x = l->x;
    vf acc[8][8];
#pragma GCC unroll 8
    for (int m = 0; m < M; m++)
#pragma GCC unroll 8
        for (int v = 0; v < V; v++) acc[m][v] = vf_zero();
    for (int64_t t = 0; t < tiles; t++, x += LN_BF12_TILE_COLS / X_PAIR) {
        uint64_t flags = 0;
        const uint8_t *p = w + head + t * LN_BF12_TILE_BYTES, *bf12_next = V < VECTORS_PER_LINE && first + V == VECTORS_PER_LINE ? p + (next - w) : t + BF12_PREFETCH_TILES < tiles ? p + BF12_PREFETCH_TILES * LN_BF12_TILE_BYTES : next + head + (t + BF12_PREFETCH_TILES - tiles) * LN_BF12_TILE_BYTES;
#pragma GCC unroll 4
        for (int g = 0; g < BL; g++) flags |= ln_bf12_table(w + g * block, t);
        if (t == whole || flags & LN_BF12_HAS_EXCEPTIONS) {
            _Alignas(64) uint8_t panel[4 * 1024];
            for (int g = 0; g < BL; g++) bf12_unpack_tile(panel + 1024 * g, w + g * block, l->C, t);
            const int64_t pairs = LN_MIN((int64_t)LN_BF12_TILE_COLS, l->C - t * LN_BF12_TILE_COLS) / 2;
            for (int64_t i = 0; i < pairs; i++)
#pragma GCC unroll 8
                for (int v = 0; v < V; v++) {
                    const vi b = vi_load(panel + (first + v) / VECTORS_PER_LINE * 1024 + 64 * i + (first + v) % VECTORS_PER_LINE * STEP);
#pragma GCC unroll 8
                    for (int m = 0; m < M; m++) acc[m][v] = BF12_FMA_PAIR(m, i, b);
                }
            if (t == whole && l->C % 2)
#pragma GCC unroll 8
                for (int v = 0; v < V; v++) {
                    const vi b = vi_load(panel + (first + v) / VECTORS_PER_LINE * 1024 + 64 * pairs + (first + v) % VECTORS_PER_LINE * STEP);
#pragma GCC unroll 8
                    for (int m = 0; m < M; m++) acc[m][v] = BF12_FMA_LAST(m, pairs, b);
                }
            continue;
        }
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) {
            vi b[8][2];
#pragma GCC unroll 8
            for (int v = 0; v < V; v++) {
                const int64_t at = (first + v) / VECTORS_PER_LINE * block;
                if (V < VECTORS_PER_LINE || (first + v) % VECTORS_PER_LINE == 0) { /* in the order of memory */
#pragma GCC unroll 2
                    for (int i = 3 * j / 2; i < 3 * (j + 1) / 2; i++) LN_BF12_PREFETCH(bf12_next + at + 64 * i);
                }
                bf12_unpack_lines(b[v], p + at, j, (first + v) % VECTORS_PER_LINE, vi_lut_load(ln_bf12_table(w + at, t)));
            }
#pragma GCC unroll 2
            for (int i = 0; i < 2; i++)
#pragma GCC unroll 8
                for (int m = 0; m < M; m++)
#pragma GCC unroll 8
                    for (int v = 0; v < V; v++) acc[m][v] = BF12_FMA_PAIR(m, 2 * j + i, b[v][i]);
        }
    }
#pragma GCC unroll 8
    for (int m = 0; m < M; m++)
#pragma GCC unroll 8
        for (int v = 0; v < V; v++) vf_store(y + m * ldy + (first + v) * VL, acc[m][v]);
}
typedef void bf12_kernel_fn(const dense_gemm *l, const uint8_t *w, const uint8_t *next, float *y, int64_t ldy);
#define BF12_KERNEL(M, V, N)                                                                                                                   \
    static void tight_##N##_##M(const dense_gemm *l, const uint8_t *w, const uint8_t *next, float *y, int64_t ldy) {                            \
        _Pragma("GCC unroll 4") for (int first = 0; first < LN_MAX(V, VECTORS_PER_LINE); first += (V)) bf12_kernel(M, V, first, l, w, next, y, ldy); \
    }
#if LN_BF12_SMALL_M == 8
#define BF12_EACH_M(DO) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8)
#else
#define BF12_EACH_M(DO) DO(1) DO(2) DO(3) DO(4)
#endif
#define BF12_KERNELS(M) BF12_KERNEL(M, LN_MIN(LN_BF12_VECTORS(M), VECTORS_PER_LINE), one) BF12_KERNEL(M, LN_BF12_VECTORS(M), few)
BF12_EACH_M(BF12_KERNELS)
#define BF12_EDGE(M) tight_one_##M,
#define BF12_GROUP(M) tight_few_##M,
#define BF12_BLOCKS(M) (LN_BF12_VECTORS(M) + VECTORS_PER_LINE - 1) / VECTORS_PER_LINE,
static bf12_kernel_fn *const bf12_edge_kernels[LN_BF12_SMALL_M] = {BF12_EACH_M(BF12_EDGE)}, *const bf12_kernels[LN_BF12_SMALL_M] = {BF12_EACH_M(BF12_GROUP)};
static const int bf12_blocks[LN_BF12_SMALL_M] = {BF12_EACH_M(BF12_BLOCKS)};

#if LN_BF12_PANEL_M
#include "gemm_bf12_panel.inc.h"
#else
enum { PANEL_BLOCKS = 1 };
static void run_bf12_panel(const dense_gemm *l, const uint8_t *w, const uint8_t *next, int run_block_group, float *y) { (void)l, (void)w, (void)next, (void)run_block_group, (void)y; }
#endif
static bool takes_bf12_panel(const dense_gemm *l, int64_t rows) { return rows == LN_BF12_PANEL_M && l->C % LN_BF12_TILE_COLS == 0; }

/* Few rows of block b: one that is tight, one in full, or the last, which may hold fewer outputs than y has room for. */
static void run_bf12_block(const dense_gemm *l, int64_t rows, int64_t b) {
    const uint8_t *w = (const uint8_t *)l->bf12 + LN_BF12_HEADER_BYTES + b * l->block, *full = ln_bf12_uncompressed(l->bf12, l->C, b);
    if (full) {
        dense_gemm one = *l;
        one.bf12 = NULL;
        one.block = ln_pack_block_bytes(l->dtype, l->C);
        one.w = full;
        one.w_first_block = b;
        for (int64_t r = 0; r < rows; r += SMALL_M) run_edge_block(&one, &(tile_work){.r = r, .m = LN_MIN((int64_t)SMALL_M, rows - r), .n_k = l->C, .step = 64}, b);
        return;
    }
    float *y = l->y + b * LN_PACK_NR, rest[LN_BF12_SMALL_M][LN_PACK_NR];
    const int64_t n_d = LN_MIN((int64_t)LN_PACK_NR, l->D - b * LN_PACK_NR);
    if (n_d == LN_PACK_NR && takes_bf12_panel(l, rows)) run_bf12_panel(l, w, w + l->block, 1, y);
    else if (n_d == LN_PACK_NR) bf12_edge_kernels[rows - 1](l, w, w + l->block, y, l->ldy);
    else {
        bf12_edge_kernels[rows - 1](l, w, w, rest[0], LN_PACK_NR);
        for (int64_t i = 0; i < rows; i++) memcpy(y + i * l->ldy, rest[i], (size_t)n_d * sizeof *y);
    }
}
static void run_bf12_small_m(const dense_gemm *l, int64_t rows, int64_t lo, int64_t hi) {
    const int64_t n = takes_bf12_panel(l, rows) ? PANEL_BLOCKS : bf12_blocks[rows - 1];
    for (int64_t b = lo, full; b < hi; b += full ? 1 : n) {
        const uint8_t *w = (const uint8_t *)l->bf12 + LN_BF12_HEADER_BYTES + b * l->block;
        full = b + n > hi || (b + n) * LN_PACK_NR > l->D;
        for (int64_t i = 0; i < n && !full; i++) full = (ln_bf12_table(w + i * l->block, 0) & LN_BF12_UNCOMPRESSED) != 0;
        if (full) run_bf12_block(l, rows, b);
        else if (takes_bf12_panel(l, rows)) run_bf12_panel(l, w, w + n * l->block, PANEL_BLOCKS, l->y + b * LN_PACK_NR);
        else bf12_kernels[rows - 1](l, w, w + n * l->block, l->y + b * LN_PACK_NR, l->ldy);
    }
}
static size_t panel_bytes(const ln_node *n, const ln_value *values) {
    const ln_value *w = &values[n->in[1]];
    return w->dtype == LN_BF16 ? (size_t)((NR_BLOCKS - 1) * ln_bf12_block_bytes(w->dims[1]) + LN_MIN((KC * 5 / 4 + LN_BF12_TILE_COLS) * 32, ln_pack_block_bytes(LN_BF16, w->dims[1]))) : 0;
}

/* Where the tiles of block b lie from column k on. */
static const uint8_t *bf12_tiles_at(const dense_gemm *l, int64_t b, int64_t k) {
    return (const uint8_t *)l->bf12 + LN_BF12_HEADER_BYTES + b * ln_bf12_block_bytes(l->C) + ln_bf12_tiles_offset(l->C) + k / LN_BF12_TILE_COLS * LN_BF12_TILE_BYTES;
}

/* Columns that go at once: even parts of KC, or up to a quarter more; of tight weights tiles, three quarters of a block of theirs at most. */
static int64_t kc_columns(const dense_gemm *l) {
    const int64_t parts = LN_MAX((int64_t)1, (l->C + KC * 3 / 4 - 1) / KC), unit = l->bf12 ? LN_BF12_TILE_COLS : 2, k = (l->C + unit * parts - 1) / (unit * parts) * unit;
    return !l->bf12 || 32 * k <= l->block ? k : (k / 2 + LN_BF12_TILE_COLS - 1) / LN_BF12_TILE_COLS * LN_BF12_TILE_COLS;
}

/* Tiles [from, to) of `tiles`, to which all rows are dealt evenly, over blocks [lo, hi). */
static void run_large_m(dense_gemm *l, int64_t rows, int64_t tiles, int64_t from, int64_t to, int64_t lo, int64_t hi, uint8_t *panel) {
    const int64_t part_k = kc_columns(l), row_tiles = to - from;
    for (int64_t b = lo; b < hi; b += NR_BLOCKS)
        for (int64_t k = 0; k < l->C; k += part_k) {
            tile_work p = {.r = rows * from / tiles, .k = k, .n_k = LN_MIN(part_k, l->C - k), .step = 64 / row_tiles};
            int64_t each = ln_pack_offset(l->dtype, l->C, 0, p.n_k) / row_tiles;
            if (l->bf12) {
                unpack_panel(l, b, LN_MIN(b + NR_BLOCKS, hi), k, p.n_k, panel);
                p.step = p.step * 3 / 4, each = each * 3 / 4;
                p.bf12_next = k + part_k < l->C ? bf12_tiles_at(l, b, k + part_k) : bf12_tiles_at(l, b + NR_BLOCKS, 0);
            }
            for (int64_t i = from, rest = rows * from % tiles; i < to; i++, p.r += p.m, p.prefetch_from += each) { /* rows rows * i / tiles .. */
                p.m = rows / tiles;
                if ((rest += rows % tiles) >= tiles) p.m++, rest -= tiles;
                run_blocks(l, wide_kernels[l->dtype][p.m - 1], NR_BLOCKS, &p, b, LN_MIN(b + NR_BLOCKS, hi));
            }
        }
}

/* Tiles of rows a turn: tight weights are unpacked again for each. Rows that are written as words are no more than L2 holds half of. */
static int64_t mc_tiles(int64_t C, bool bf12) {
    enum { MOST = LN_BF12_MC_TILES, WORDS = 1024 << 10 };
    return !bf12 ? MC_TILES : X_PAIR == 1 ? MOST : LN_MAX((int64_t)MC_TILES, LN_MIN((int64_t)MOST, WORDS / (2 * C * MR)));
}

#ifdef LN_BF16_DOT
/* Rows [r, end) of x, bf16 numbers in f32, as words in scratch. */
static void convert_rows(dense_gemm *l, const ln_arg *x, int64_t r, int64_t end, uint32_t *to) {
    l->x = (const float *)(const void *)to;
    l->x_first_row = r;
    for (; r < end; r++, to += l->ldx) {
        const float *from = (const float *)x->data + r * x->pitch;
        for (int64_t i = 0; i < x->cols / 2; i++) to[i] = ln_f32_bits(from[2 * i]) >> 16 | (ln_f32_bits(from[2 * i + 1]) & 0xffff0000u);
        if (x->cols % 2) to[x->cols / 2] = ln_f32_bits(from[x->cols - 1]) >> 16;
    }
}
/* So many rows as words, in whole lines. */
static size_t pair_bytes(int64_t rows, int64_t C) { return (size_t)(rows * ((C + 1) / 2) * 4 + 63) / 64 * 64; }
static size_t scratch(const ln_node *n, const ln_value *values, const ln_bounds *b) {
    const ln_value *x = &values[n->in[0]];
    return pair_bytes(LN_MIN(ln_dim(x->dims[0], b), MR * mc_tiles(x->dims[1], true)), x->dims[1]) + panel_bytes(n, values);
}
#else
static size_t scratch(const ln_node *n, const ln_value *values, const ln_bounds *b) { return (void)b, panel_bytes(n, values); }
#endif

/* Whether rows are few: one pass over the weights serves them. */
static bool is_small_m(const ln_call *c) { return c->out[0].rows <= (c->in[1].tight ? LN_BF12_SMALL_M : SMALL_M) && !(c->in[1].tight && LN_BF12_UNPACK_FIRST(c->out[0].rows)); }
static int small_m_blocks_of(const ln_call *c) {
    const int64_t i = LN_MAX((int64_t)1, LN_MIN(c->out[0].rows, (int64_t)SMALL_M)) - 1;
    return c->in[1].tight ? bf12_blocks[i] : small_m_blocks[i];
}
/* Blocks of a share; of few rows whole tiles of them. */
static void partition(const ln_call *c, int64_t *lo, int64_t *hi) {
    const ln_arg *y = &c->out[0];
    ln_share(ln_pack_blocks(y->cols), y->rows >= 1 && y->rows <= SMALL_M ? small_m_blocks_of(c) : 1, c->thread, c->n_threads, lo, hi);
}
static void linear_reads(const ln_call *c, ln_reads *out) {
    int64_t lo, hi;
    partition(c, &lo, &hi);
    *out = ln_cpu_dense_reads(&c->in[1], c->in[0].cols, lo, hi, small_m_blocks_of(c));
}

void LN_ISA(ln_cpu_linear_run)(const ln_call *c) {
    const ln_arg *x = &c->in[0], *w = &c->in[1], *y = &c->out[0];
    dense_gemm l = {.w = w->data,
             .block = ln_cpu_dense_block_bytes(w, x->cols),
             .bf12 = w->tight ? w->data : NULL,
             .x = x->data,
             .y = y->data,
             .D = y->cols,
             .C = x->cols,
             .ldx = x->pitch,
             .ldy = y->pitch,
             .dtype = w->dtype};
    const int64_t rows = y->rows, tiles = (rows + MR - 1) / MR, mc = mc_tiles(x->cols, w->tight), mcs = (tiles + mc - 1) / mc;
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
#ifdef LN_SHORT_K_BLOCKS
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
    if (c->node->n_in > 2) ln_cpu_add_bias(&c->in[2], l.y, l.ldy, rows, lo * LN_PACK_NR, LN_MIN(hi * LN_PACK_NR, l.D));
}

#ifndef LN_BF16_DOT
void LN_ISA(ln_cpu_linear)(ln_kernel table[LN_OP_COUNT]) { table[LN_OP_LINEAR] = (ln_kernel){.fn = LN_ISA(ln_cpu_linear_run), .scratch = scratch, .pieces = LN_CHUNKS, .reads = linear_reads}; }
#endif
