/* GEMM of bf16 weights that are stored compressed to 12 bits (bf12.h). The sums are those of uncompressed
 * bf16 weights, in the same order.
 *
 *     block of 16 outputs:  | tables, 8 bytes a tile | list of exceptions | tile 0, 768 bytes | tile 1 | .. |
 *
 *     small M        for BF12_VECTORS(M) vectors of outputs (16 / VL a block)
 *                      for tile of 32 columns
 *                        for 8 pairs of lines        decompress two lines into registers, multiply by M rows
 *     8 rows, AVX2   gemm_bf12_panel.inc.h           into L1, since 16 registers hold no more chains
 *     others         unpack_panel                    a panel into scratch, then as uncompressed weights
 *
 * A tile with exceptions, and a last tile of fewer columns, is decompressed into memory first. Prefetched
 * are compressed bytes, BF12_PREFETCH_TILES tiles ahead. Part of gemm_dense_f32.inc.h, whose names it uses.
 */
enum {
    BF12_SMALL_M = LN_BF12_SMALL_M, /* rows that are multiplied from registers */
    BF12_MC_TILES =
        LN_ISA(tune_gemm_dense_BF12_MC_TILES), /* row tiles for which a panel is decompressed once */
    BF12_PREFETCH_TILES = LN_ISA(tune_gemm_dense_BF12_PREFETCH_TILES),
    BF12_UNPACK_FROM = LN_ISA(tune_gemm_dense_BF12_UNPACK_FROM), /* of so many rows, */
    BF12_UNPACK_TO = LN_ISA(tune_gemm_dense_BF12_UNPACK_TO) /* up to so many, a panel is decompressed first */
};
#define BF12_VECTORS(M) \
    ((int)LN_ISA(tune_gemm_dense_BF12_VECTORS_##M)) /* of outputs at once, M a literal \
                                                     */
static bool bf12_unpacks_first(int64_t rows) {
    const int64_t from = BF12_UNPACK_FROM, to = BF12_UNPACK_TO; /* at some levels no number is between them */
    return from <= rows && rows <= to;
}
INLINE void bf12_prefetch(const uint8_t *p) {
    if (LN_ISA(tune_gemm_dense_BF12_PREFETCH_LEVEL) == 2) prefetch_l2(p);
    else prefetch_l1(p);
}

/* Decompresses columns k .. k + n_k - 1, whole tiles but for the last, of blocks [lo, hi) into scratch, where
 * l's weights are from now on. The blocks are as far apart there as compressed ones are: one distance serves
 * loads and prefetches. */
static void unpack_panel(dense_gemm *l, int64_t lo, int64_t hi, int64_t k, int64_t n_k, uint8_t *panel) {
    const int64_t tiles = ln_bf12_tile_count(n_k), first = k / LN_BF12_TILE_COLS;
    l->w = panel;
    l->w_first_block = lo;
    l->w_first_col = k;
    for (; lo < hi; lo++, panel += l->block) {
        const uint8_t *full = ln_bf12_uncompressed(l->bf12, l->C, lo);
        if (full) memcpy(panel, full + 1024 * first, (size_t)(1024 * tiles));
        else
            for (int64_t i = 0; i < tiles; i++)
                bf12_unpack_tile(panel + 1024 * i,
                                 (const uint8_t *)l->bf12 + LN_BF12_HEADER_BYTES +
                                     lo * ln_bf12_block_bytes(l->C),
                                 l->C, first + i);
    }
}

/* Element i of row m of x, a pair of columns, times a line of weights b; and the even column alone of a last
 * pair. */
INLINE vf bf12_fma_pair(const float *x, int64_t ldx, int m, int64_t i, vi b, vf acc) {
#ifdef LN_BF16_DOT
    return vf_dot_bf16_mem(x + m * ldx + i, b, acc);
#else
    return vf_fma(vf_set1(x[m * ldx + 2 * i]), vf_lo_bf16(b),
                  vf_fma(vf_set1(x[m * ldx + 2 * i + 1]), vf_hi_bf16(b), acc));
#endif
}
INLINE vf bf12_fma_last(const float *x, int64_t ldx, int m, int64_t i, vi b, vf acc) {
#ifdef LN_BF16_DOT
    return vf_fma(vf_lo_bf16(vi_broadcast32(x + m * ldx + i)), vf_lo_bf16(b), acc);
#else
    return vf_fma(vf_set1(x[m * ldx + 2 * i]), vf_lo_bf16(b), acc);
#endif
}
/* What is prefetched while tile t of a block, at p, is multiplied: BF12_PREFETCH_TILES tiles on, in this
 * block or the next ones; but where less than a block's outputs are made at once and these are its last ones,
 * the same tile of the next block, whose first outputs come after. */
INLINE const uint8_t *bf12_prefetch_target(const int V, const int first, const uint8_t *w, const uint8_t *p,
                                           const uint8_t *next, int64_t head, int64_t t, int64_t tiles) {
    if (V < VECTORS_PER_LINE && first + V == VECTORS_PER_LINE) return p + (next - w);
    if (t + BF12_PREFETCH_TILES < tiles) return p + BF12_PREFETCH_TILES * LN_BF12_TILE_BYTES;
    return next + head + (t + BF12_PREFETCH_TILES - tiles) * LN_BF12_TILE_BYTES;
}
/* M rows of all columns, V vectors of outputs from vector `first` of the bf12 blocks at w on, l->block apart;
 * next: the blocks that come then. */
INLINE void bf12_kernel(const int M, const int V, const int first, const dense_gemm *l, const uint8_t *w,
                        const uint8_t *next, float *y, int64_t ldy) {
    enum { STEP = 4 * VL };
    const int BL = (V + VECTORS_PER_LINE - 1) / VECTORS_PER_LINE;
    const int64_t tiles = ln_bf12_tile_count(l->C), whole = l->C / LN_BF12_TILE_COLS,
                  head = ln_bf12_tiles_offset(l->C), block = l->block;
    const float *x = l->x;
    vf acc[8][8];
#pragma GCC unroll 8
    for (int m = 0; m < M; m++)
#pragma GCC unroll 8
        for (int v = 0; v < V; v++) acc[m][v] = vf_zero();
    for (int64_t t = 0; t < tiles; t++, x += LN_BF12_TILE_COLS / X_PAIR) {
        uint64_t flags = 0;
        const uint8_t *p = w + head + t * LN_BF12_TILE_BYTES,
                      *bf12_next = bf12_prefetch_target(V, first, w, p, next, head, t, tiles);
#pragma GCC unroll 4
        for (int g = 0; g < BL; g++) flags |= ln_bf12_table(w + g * block, t);
        if (t == whole || flags & LN_BF12_HAS_EXCEPTIONS) {
            _Alignas(64) uint8_t panel[4 * 1024];
            for (int g = 0; g < BL; g++) bf12_unpack_tile(panel + 1024 * g, w + g * block, l->C, t);
            const int64_t pairs = LN_MIN((int64_t)LN_BF12_TILE_COLS, l->C - t * LN_BF12_TILE_COLS) / 2;
            for (int64_t i = 0; i < pairs; i++)
#pragma GCC unroll 8
                for (int v = 0; v < V; v++) {
                    const vi b = vi_load(panel + (first + v) / VECTORS_PER_LINE * 1024 + 64 * i +
                                         (first + v) % VECTORS_PER_LINE * STEP);
#pragma GCC unroll 8
                    for (int m = 0; m < M; m++) acc[m][v] = bf12_fma_pair(x, l->ldx, m, i, b, acc[m][v]);
                }
            if (t == whole && l->C % 2)
#pragma GCC unroll 8
                for (int v = 0; v < V; v++) {
                    const vi b = vi_load(panel + (first + v) / VECTORS_PER_LINE * 1024 + 64 * pairs +
                                         (first + v) % VECTORS_PER_LINE * STEP);
#pragma GCC unroll 8
                    for (int m = 0; m < M; m++) acc[m][v] = bf12_fma_last(x, l->ldx, m, pairs, b, acc[m][v]);
                }
            continue;
        }
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) {
            vi b[8][2];
#pragma GCC unroll 8
            for (int v = 0; v < V; v++) {
                const int64_t at = (first + v) / VECTORS_PER_LINE * block;
                if (V < VECTORS_PER_LINE ||
                    (first + v) % VECTORS_PER_LINE == 0) { /* in the order of memory */
#pragma GCC unroll 2
                    for (int i = 3 * j / 2; i < 3 * (j + 1) / 2; i++) bf12_prefetch(bf12_next + at + 64 * i);
                }
                bf12_unpack_lines(b[v], p + at, j, (first + v) % VECTORS_PER_LINE,
                                  vi_lut_load(ln_bf12_table(w + at, t)));
            }
#pragma GCC unroll 2
            for (int i = 0; i < 2; i++)
#pragma GCC unroll 8
                for (int m = 0; m < M; m++)
#pragma GCC unroll 8
                    for (int v = 0; v < V; v++)
                        acc[m][v] = bf12_fma_pair(x, l->ldx, m, 2 * j + i, b[v][i], acc[m][v]);
        }
    }
#pragma GCC unroll 8
    for (int m = 0; m < M; m++)
#pragma GCC unroll 8
        for (int v = 0; v < V; v++) vf_store(y + m * ldy + (first + v) * VL, acc[m][v]);
}
typedef void bf12_kernel_fn(const dense_gemm *l, const uint8_t *w, const uint8_t *next, float *y,
                            int64_t ldy);
#define BF12_KERNEL(M, V, N)                                                                           \
    static void bf12_##N##_##M(const dense_gemm *l, const uint8_t *w, const uint8_t *next, float *y,   \
                               int64_t ldy) {                                                          \
        _Pragma("GCC unroll 4") for (int first = 0; first < LN_MAX(V, VECTORS_PER_LINE); first += (V)) \
            bf12_kernel(M, V, first, l, w, next, y, ldy);                                              \
    }
/* clang-format off */
#if LN_BF12_SMALL_M == 8
#define BF12_EACH_M(DO) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8)
#else
#define BF12_EACH_M(DO) DO(1) DO(2) DO(3) DO(4)
#endif
#define BF12_KERNELS(M) \
    BF12_KERNEL(M, LN_MIN(BF12_VECTORS(M), VECTORS_PER_LINE), edge) BF12_KERNEL(M, BF12_VECTORS(M), small)
BF12_EACH_M(BF12_KERNELS)
#define BF12_EDGE(M) bf12_edge_##M,
#define BF12_SMALL(M) bf12_small_##M,
#define BF12_BLOCKS(M) (BF12_VECTORS(M) + VECTORS_PER_LINE - 1) / VECTORS_PER_LINE,
static bf12_kernel_fn *const bf12_edge_kernels[LN_BF12_SMALL_M] = {BF12_EACH_M(BF12_EDGE)};
static bf12_kernel_fn *const bf12_kernels[LN_BF12_SMALL_M] = {BF12_EACH_M(BF12_SMALL)};
static const int bf12_blocks[LN_BF12_SMALL_M] = {BF12_EACH_M(BF12_BLOCKS)};
/* clang-format on */

#ifdef LN_BF12_PANEL
#include "gemm_bf12_panel.inc.h"
#else
enum { BF12_PANEL_M = 0, PANEL_BLOCKS = 1 };
static void run_bf12_panel(const dense_gemm *l, const uint8_t *w, const uint8_t *next, int n_blocks,
                           float *y) {
    (void)l, (void)w, (void)next, (void)n_blocks, (void)y;
}
#endif
static bool takes_bf12_panel(const dense_gemm *l, int64_t rows) {
    return rows == BF12_PANEL_M && l->C % LN_BF12_TILE_COLS == 0;
}

/* Small M, block b: a compressed one, an uncompressed one, or the last, which may have fewer outputs than the
 * kernel writes. */
static void run_bf12_block(const dense_gemm *l, int64_t rows, int64_t b) {
    const uint8_t *w = (const uint8_t *)l->bf12 + LN_BF12_HEADER_BYTES + b * l->block,
                  *full = ln_bf12_uncompressed(l->bf12, l->C, b);
    if (full) {
        dense_gemm one = *l;
        one.bf12 = NULL;
        one.block = ln_pack_block_bytes(l->dtype, l->C);
        one.w = full;
        one.w_first_block = b;
        for (int64_t r = 0; r < rows; r += SMALL_M)
            run_edge_block(&one,
                           &(tile_work){
                               .r = r, .m = LN_MIN((int64_t)SMALL_M, rows - r), .n_k = l->C, .step = 64},
                           b);
        return;
    }
    float *y = l->y + b * LN_PACK_NR, edge[LN_BF12_SMALL_M][LN_PACK_NR];
    const int64_t n_d = LN_MIN((int64_t)LN_PACK_NR, l->D - b * LN_PACK_NR);
    if (n_d == LN_PACK_NR && takes_bf12_panel(l, rows)) run_bf12_panel(l, w, w + l->block, 1, y);
    else if (n_d == LN_PACK_NR) bf12_edge_kernels[rows - 1](l, w, w + l->block, y, l->ldy);
    else {
        bf12_edge_kernels[rows - 1](l, w, w, edge[0], LN_PACK_NR);
        for (int64_t i = 0; i < rows; i++) memcpy(y + i * l->ldy, edge[i], (size_t)n_d * sizeof *y);
    }
}
static void run_bf12_small_m(const dense_gemm *l, int64_t rows, int64_t lo, int64_t hi) {
    const int64_t n = takes_bf12_panel(l, rows) ? PANEL_BLOCKS : bf12_blocks[rows - 1];
    for (int64_t b = lo, full; b < hi; b += full ? 1 : n) {
        const uint8_t *w = (const uint8_t *)l->bf12 + LN_BF12_HEADER_BYTES + b * l->block;
        full = b + n > hi || (b + n) * LN_PACK_NR > l->D;
        for (int64_t i = 0; i < n && !full; i++)
            full = (ln_bf12_table(w + i * l->block, 0) & LN_BF12_UNCOMPRESSED) != 0;
        if (full) run_bf12_block(l, rows, b);
        else if (takes_bf12_panel(l, rows))
            run_bf12_panel(l, w, w + n * l->block, PANEL_BLOCKS, l->y + b * LN_PACK_NR);
        else bf12_kernels[rows - 1](l, w, w + n * l->block, l->y + b * LN_PACK_NR, l->ldy);
    }
}
/* Scratch for a decompressed panel. */
static size_t panel_bytes(const ln_program *p, const ln_pnode *n) {
    const ln_pvalue *w = ln_program_value(p, n->in[1]);
    return w->dtype == LN_BF16 ? (size_t)((NR_BLOCKS - 1) * ln_bf12_block_bytes(w->dims[1]) +
                                          LN_MIN((KC * 5 / 4 + LN_BF12_TILE_COLS) * 32,
                                                 ln_pack_block_bytes(LN_BF16, w->dims[1])))
                               : 0;
}

/* The tiles of block b from column k on. */
static const uint8_t *bf12_tiles_at(const dense_gemm *l, int64_t b, int64_t k) {
    return (const uint8_t *)l->bf12 + LN_BF12_HEADER_BYTES + b * ln_bf12_block_bytes(l->C) +
           ln_bf12_tiles_offset(l->C) + k / LN_BF12_TILE_COLS * LN_BF12_TILE_BYTES;
}
