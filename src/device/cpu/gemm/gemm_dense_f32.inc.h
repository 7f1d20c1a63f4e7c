/* linear on a vector rung: y = x w^T + b with the bits of the reference, from packed weights (pack.h).
 *
 * The specification is one chain over C per output (ops.h); lanes run along outputs. One kernel serves all: M rows times some blocks of 16
 * outputs, the accumulators in registers, weights widened as they are loaded.
 *   few rows (decode)   more blocks at once, each a stream of its own, so that chains and memory do not wait for each other
 *   many rows (prefill) WIDE blocks x KC columns stay in a near cache while TURN tiles of rows, which L2 holds, pass over them; between blocks of
 *                       KC the chains rest in y. The next turn reads the weights again, from L3: less than reading all of x for each block
 * Tight weights (bf12.h) go the same two ways. LN_TIGHT_ROWS rows and fewer unpack in registers, LN_TIGHT_VECTORS(M) vectors of outputs at once, and ask LN_TIGHT_AHEAD tiles
 * ahead (LN_TIGHT_ASK); LN_TIGHT_PANEL rows unpack tile by tile into L1 (gemm_bf12_panel.inc.h); more rows, and those that LN_TIGHT_APART(M) names, unpack a panel into scratch, once for LN_TIGHT_TURN tiles of rows, and go on as with weights in full.
 * Threads share blocks of outputs, never C. Included once per rung, after its simd header.
 *
 * LN_DOT makes the copy for rows of bf16 numbers on machines whose vectors multiply pairs of bf16 numbers (vf_dot): a word of x, two of its numbers, meets a
 * word of w. A turn's rows are written as such words into scratch; x, ldx and columns of x are counted in words then. */
#include "../../../base/pool.h"
#include "../../../ops/ops.h"
#include "../cpu.h"
#include "../pack/bf12_unpack.inc.h"

#ifndef LN_ASKS /* whether tiles of M rows and BL blocks ask for weights ahead, or leave it to the processor */
#define LN_ASKS(M, BL) true
#endif
#ifndef LN_TIGHT_PANEL /* rows of tight weights that go by panels (gemm_bf12_panel.inc.h): 8, or none */
#define LN_TIGHT_PANEL 0
#endif
#ifndef LN_TIGHT_ASK /* for a line of tight weights */
#define LN_TIGHT_ASK(p) vf_ahead(p)
#endif

enum { KC = LN_KC, WIDE = LN_WIDE, ROWS = LN_ROWS, FEW = 4, TURN = 8 /* tiles of rows */, AHEAD = LN_AHEAD /* bytes */,
       TIGHT_AHEAD = LN_TIGHT_AHEAD /* tiles */ };

typedef struct lin {
    const uint8_t *w;      /* from block w_block, column w_col on */
    int64_t block;         /* bytes of a block of w */
    int64_t w_block, w_col;
    const void *tight;     /* w is made of this; NULL: it is the weight itself */
    const float *x;        /* from row x_row on */
    float *y;
    int64_t D, C, ldx, ldy, x_row;
    ln_dtype dtype;
} lin;

#ifdef LN_DOT
enum { X_WORD = 2 }; /* columns in a word of x */
#else
enum { X_WORD = 1 };
#endif

/* Number i of row m: few pointers and constant distances, for gcc keeps one pointer a row otherwise, and those in memory. */
#define X(m, i) ((m) < 3 ? x : (m) < 6 ? x3 : x6)[(m) % 3 * ldx + (i)]
/* One column of every output: its weights in vectors b, one number of each row in a. Whichever are fewer are made first: the accumulators fill
 * the registers. */
#define COLUMN(load, i)                                                                                                                  \
    if (M < BL * PER_LINE) {                                                                                                             \
        vf a[8];                                                                                                                         \
        _Pragma("GCC unroll 8") for (int m = 0; m < M; m++) a[m] = vf_set1(X(m, i));                                                     \
        _Pragma("GCC unroll 16") for (int v = 0; v < BL * PER_LINE; v++) {                                                               \
            const uint8_t *p = w + v / PER_LINE * block + v % PER_LINE * STEP;                                                           \
            vf b = load;                                                                                                                 \
            _Pragma("GCC unroll 8") for (int m = 0; m < M; m++) acc[m][v] = vf_fma(a[m], b, acc[m][v]);                                  \
        }                                                                                                                                \
    } else {                                                                                                                             \
        vf b[8];                                                                                                                         \
        _Pragma("GCC unroll 16") for (int v = 0; v < BL * PER_LINE; v++) {                                                               \
            const uint8_t *p = w + v / PER_LINE * block + v % PER_LINE * STEP;                                                           \
            b[v] = load;                                                                                                                 \
        }                                                                                                                                \
        _Pragma("GCC unroll 8") for (int m = 0; m < M; m++) {                                                                            \
            vf a = vf_set1(X(m, i));                                                                                                     \
            _Pragma("GCC unroll 16") for (int v = 0; v < BL * PER_LINE; v++) acc[m][v] = vf_fma(a, b[v], acc[m][v]);                     \
        }                                                                                                                                \
    }

/* Line l of two columns; with eight accumulators two lines a turn leave registers. */
#define LOW(p) vf_low_bf16(vi_load(p))
#define LOW_NEXT(p) (M == 1 && BL <= LN_FEW_1 ? vf_low_bf16_at(p) : LOW(p)) /* one row, which has few other instructions */
#define LINE(l, low) COLUMN(vf_high_bf16(vi_load(p + 64 * (l))), 2 * (l) + 1) COLUMN(low(p + 64 * (l)), 2 * (l))
#define LINE_AHEAD(l)                                                                                                                    \
    if (LN_ASKS(M, BL)) {                                                                                                                \
        _Pragma("GCC unroll 8") for (int g = 0; g < BL; g++) vf_ahead(next.at + (l) * next.step + g * block);                            \
    }

#ifdef LN_DOT
/* A pair of columns of every output, or the even one of a last pair alone. */
#define PAIR(dot)                                                                                                                        \
    {                                                                                                                                    \
        vi b[8];                                                                                                                         \
        _Pragma("GCC unroll 8") for (int v = 0; v < BL; v++) b[v] = vi_load(w + v * block);                                              \
        _Pragma("GCC unroll 8") for (int m = 0; m < M; m++) {                                                                            \
            const vi a = vi_set1(x + m * ldx + k / 2);                                                                                   \
            _Pragma("GCC unroll 8") for (int v = 0; v < BL; v++)                                                                         \
                acc[m][v] = dot ? vf_dot(a, b[v], acc[m][v]) : vf_fma(vf_low_bf16(a), vf_low_bf16(b[v]), acc[m][v]);                     \
        }                                                                                                                                \
    }
#endif

/* What a tile asks the memory for beside what it reads: `step` bytes on for each line that it reads. */
typedef struct ahead {
    const uint8_t *at;
    int64_t step;
} ahead;

/* y[M][BL * 16] (+)= columns of w from n_k columns of x; `carry`: the chains go on from what y holds. */
INLINE void tile_body(const int M, const int BL, const ln_dtype t, const uint8_t *w, int64_t block, ahead next, const float *x, int64_t ldx, int64_t n_k,
                      float *y, int64_t ldy, bool carry) {
    const float *x3 = M > 3 ? x + 3 * ldx : x, *x6 = M > 6 ? x + 6 * ldx : x;
    vf acc[8][12]; /* of which M x BL * PER_LINE are used: registers */
#pragma GCC unroll 8
    for (int m = 0; m < M; m++)
#pragma GCC unroll 16
        for (int v = 0; v < BL * PER_LINE; v++) acc[m][v] = carry ? vf_load(y + m * ldy + v * VL) : vf_zero();
    if (t == LN_BF16) {
        enum { STEP = 4 * VL };
        int64_t k = 0;
#ifdef LN_DOT
        for (; k + 2 <= n_k; k += 2, w += 64, next.at += next.step) {
            LINE_AHEAD(0)
            PAIR(true)
        }
        if (k < n_k) PAIR(false)
#else
        if (M == 1 && n_k >= 2) { /* before the first line there may be nothing to read */
            LINE_AHEAD(0)
            LINE(0, LOW)
            k = 2, w += 64, x += 2, x3 += 2, x6 += 2, next.at += next.step;
        }
        for (; M * BL * PER_LINE <= 8 && k + 4 <= n_k; k += 4, w += 128, x += 4, x3 += 4, x6 += 4, next.at += 2 * next.step) {
            __asm__("" : "+r"(x), "+r"(x3));
            LINE_AHEAD(0)
            LINE(0, LOW_NEXT)
            __asm__ volatile("" : "+r"(w), "+r"(x), "+r"(x3));
            LINE_AHEAD(1)
            LINE(1, LOW_NEXT)
        }
        for (; k + 2 <= n_k; k += 2, w += 64, x += 2, x3 += 2, x6 += 2, next.at += next.step) {
            __asm__("" : "+r"(x), "+r"(x3));
            LINE_AHEAD(0)
            LINE(0, LOW_NEXT)
        }
        if (k < n_k) {
            COLUMN(vf_low_bf16(vi_load(p)), 0)
        }
#endif
    } else if (t == LN_F16) {
        enum { STEP = 2 * VL };
        for (int64_t k = 0; k < n_k; k++, x++, x3++, x6++, w += 32) COLUMN(vf_load_f16(p), 0)
    } else {
        enum { STEP = 4 * VL };
        for (int64_t k = 0; k < n_k; k++, x++, x3++, x6++, w += 64) COLUMN(vf_of(vi_load(p)), 0)
    }
#pragma GCC unroll 8
    for (int m = 0; m < M; m++)
#pragma GCC unroll 16
        for (int v = 0; v < BL * PER_LINE; v++) vf_store(y + m * ldy + v * VL, acc[m][v]);
}

/* One copy per number of rows, of blocks, and type. */
typedef void tile_fn(const uint8_t *w, int64_t block, ahead next, const float *x, int64_t ldx, int64_t n_k, float *y, int64_t ldy, bool carry);
#define TILE(M, BL, T, N)                                                                                                                \
    static void tile_##N##_##M##_##T(const uint8_t *w, int64_t block, ahead next, const float *x, int64_t ldx, int64_t n_k, float *y,     \
                                     int64_t ldy, bool carry) {                                                                          \
        tile_body(M, BL, T, w, block, next, x, ldx, n_k, y, ldy, carry);                                                                 \
    }
#ifdef LN_DOT
#define TILES(M, BL, N) TILE(M, BL, LN_BF16, N)
#define TYPES(ROW) {[LN_BF16] = ROW(LN_BF16)}
#else
#define TILES(M, BL, N) TILE(M, BL, LN_F32, N) TILE(M, BL, LN_BF16, N) TILE(M, BL, LN_F16, N)
#define TYPES(ROW) {ROW(LN_F32), ROW(LN_BF16), ROW(LN_F16)}
#endif
TILES(1, LN_FEW_1, few) TILES(2, LN_FEW_2, few) TILES(3, LN_FEW_3, few) TILES(4, LN_FEW_4, few)
#define FEW_ROW(T) {tile_few_1_##T, tile_few_2_##T, tile_few_3_##T, tile_few_4_##T}
static tile_fn *const few_fns[3][FEW] = TYPES(FEW_ROW);
static const int few_blocks[FEW] = {LN_FEW_1, LN_FEW_2, LN_FEW_3, LN_FEW_4};
#ifdef LN_SHORT_1 /* blocks at once of one row of SHORT_K columns or fewer: more chains, which memory's streams need not be */
enum { SHORT_K = 512 };
TILES(1, LN_SHORT_1, short)
#define SHORT_ROW(T) tile_short_1_##T
static tile_fn *const short_fns[3] = TYPES(SHORT_ROW);
#endif

#define TILES_6(BL, N) TILES(1, BL, N) TILES(2, BL, N) TILES(3, BL, N) TILES(4, BL, N) TILES(5, BL, N) TILES(6, BL, N)
#define ROW_6(T, N) tile_##N##_1_##T, tile_##N##_2_##T, tile_##N##_3_##T, tile_##N##_4_##T, tile_##N##_5_##T, tile_##N##_6_##T
#if LN_ROWS == 8
#define TILES_ALL(BL, N) TILES_6(BL, N) TILES(7, BL, N) TILES(8, BL, N)
#define ROW_ALL(T, N) {ROW_6(T, N), tile_##N##_7_##T, tile_##N##_8_##T}
#else
#define TILES_ALL(BL, N) TILES_6(BL, N)
#define ROW_ALL(T, N) {ROW_6(T, N)}
#endif
TILES_ALL(1, one)
TILES_ALL(LN_WIDE, wide)
#define ONE_ROW(T) ROW_ALL(T, one)
#define WIDE_ROW(T) ROW_ALL(T, wide)
static tile_fn *const one_fns[3][ROWS] = TYPES(ONE_ROW), *const wide_fns[3][ROWS] = TYPES(WIDE_ROW);

/* What m rows from r take of columns k .. k + n_k - 1. While it does, tiles ask for the columns that come next, in this block or where the blocks after
 * it begin, each for a part: from `from` bytes on, `step` for each line that it reads. One tile, whose step is a whole line, asks for what follows soon. */
typedef struct part {
    int64_t r, m, k, n_k, from, step;
    const uint8_t *ask; /* of tight weights: what the next unpack reads */
} part;

static ahead next_of(const lin *l, const part *p, const uint8_t *w, int64_t hi) {
    if (l->tight) return (ahead){p->ask + p->from, p->step};
    if (p->step == 64) return (ahead){w + AHEAD, 64};
    const uint8_t *next = p->k + p->n_k < l->C ? w + ln_pack_at(l->dtype, l->C, 0, p->n_k) : l->w + hi * l->block;
    return (ahead){next + p->from, p->step};
}

static const uint8_t *weights_at(const lin *l, int64_t b, int64_t k) { return l->w + (b - l->w_block) * l->block + ln_pack_at(l->dtype, l->C, 0, k - l->w_col); }

/* One block. The last one may hold fewer outputs than y has room for: those rest beside y. */
static void one_block(const lin *l, const part *p, int64_t b) {
    const uint8_t *w = weights_at(l, b, p->k);
    const float *x = l->x + (p->r - l->x_row) * l->ldx + p->k / X_WORD;
    float *y = l->y + p->r * l->ldy + b * LN_PACK_D, rest[ROWS][LN_PACK_D] = {{0}};
    const int64_t n_d = LN_MIN((int64_t)LN_PACK_D, l->D - b * LN_PACK_D);
    const ahead next = next_of(l, p, w, b + 1);
    tile_fn *fn = one_fns[l->dtype][p->m - 1];
    if (n_d == LN_PACK_D) {
        fn(w, l->block, next, x, l->ldx, p->n_k, y, l->ldy, p->k > 0);
        return;
    }
    for (int64_t i = 0; i < p->m && p->k > 0; i++) memcpy(rest[i], y + i * l->ldy, (size_t)n_d * sizeof *y);
    fn(w, l->block, next, x, l->ldx, p->n_k, rest[0], LN_PACK_D, p->k > 0);
    for (int64_t i = 0; i < p->m; i++) memcpy(y + i * l->ldy, rest[i], (size_t)n_d * sizeof *y);
}

/* n whole blocks from b. Where they end soon and nobody else asks for what comes then, the tile's last columns go apart: they ask for the
 * beginnings of the next n. */
static void n_blocks(const lin *l, tile_fn *fn, int n, const part *p, int64_t b) {
    const uint8_t *w = weights_at(l, b, p->k);
    const float *x = l->x + (p->r - l->x_row) * l->ldx + p->k / X_WORD;
    float *y = l->y + p->r * l->ldy + b * LN_PACK_D;
    ahead next = next_of(l, p, w, b + n);
    int64_t k = 0;
    if (LN_ASKS(p->m, n) && p->step == 64 && p->k + p->n_k == l->C) {
        k = LN_MAX((int64_t)0, p->n_k - AHEAD / 32) / 2 * 2;
        if (k > 0) fn(w, l->block, next, x, l->ldx, k, y, l->ldy, p->k > 0);
        next.at = l->w + (b + n) * l->block;
    }
    fn(w + ln_pack_at(l->dtype, l->C, 0, k), l->block, next, x + k / X_WORD, l->ldx, p->n_k - k, y, l->ldy, p->k + k > 0);
}

/* Blocks [lo, hi), n at a time as long as they are whole. */
static void blocks(const lin *l, tile_fn *fn, int n, const part *p, int64_t lo, int64_t hi) {
    int64_t b = lo;
    for (; b + n <= hi && (b + n) * LN_PACK_D <= l->D; b += n) n_blocks(l, fn, n, p, b);
    for (; b < hi; b++) one_block(l, p, b);
}

#ifdef LN_SHORT_1
/* Of one short row LN_SHORT_1 blocks at a time; where just two times LN_FEW_1 are left, they are left to those. Which comes next. */
static int64_t short_blocks(const lin *l, const part *p, int64_t b, int64_t hi) {
    for (int64_t n = LN_SHORT_1; b + n <= hi && hi - b != 2 * LN_FEW_1 && (b + n) * LN_PACK_D <= l->D; b += n) n_blocks(l, short_fns[l->dtype], (int)n, p, b);
    return b;
}
#endif

/* ---- tight weights (bf12.h) ---- */

/* Columns k .. k + n_k - 1, whole tiles but for the last, of blocks [lo, hi) into room, which l's weights are from now on, as far apart as they are where they come
 * from: one distance serves what is read and what is asked for. */
static void unpack(lin *l, int64_t lo, int64_t hi, int64_t k, int64_t n_k, uint8_t *room) {
    const int64_t tiles = ln_tight_tiles(n_k), first = k / LN_TIGHT_COLS;
    l->w = room;
    l->w_block = lo;
    l->w_col = k;
    for (; lo < hi; lo++, room += l->block) {
        const uint8_t *full = ln_tight_full(l->tight, l->C, lo);
        if (full) memcpy(room, full + 1024 * first, (size_t)(1024 * tiles));
        else
            for (int64_t i = 0; i < tiles; i++) unpack_tile(room + 1024 * i, (const uint8_t *)l->tight + LN_TIGHT_ROOM + lo * ln_tight_block(l->C), l->C, first + i);
    }
}

/* A pair of columns, word i of x, of part v, lines b; and an even one that has no partner. */
#ifdef LN_DOT
#define TIGHT_PAIR(m, i, b) vf_dot_at(x + (m) * l->ldx + (i), b, acc[m][v])
#define TIGHT_LAST(m, i, b) vf_fma(vf_low_bf16(vi_set1(x + (m) * l->ldx + (i))), vf_low_bf16(b), acc[m][v])
#else
#define TIGHT_LAST(m, i, b) vf_fma(vf_set1(x[(m) * l->ldx + 2 * (i)]), vf_low_bf16(b), acc[m][v])
#define TIGHT_PAIR(m, i, b) vf_fma(vf_set1(x[(m) * l->ldx + 2 * (i)]), vf_low_bf16(b), vf_fma(vf_set1(x[(m) * l->ldx + 2 * (i) + 1]), vf_high_bf16(b), acc[m][v]))
#endif
/* M rows of all columns, V vectors of outputs from vector `first` of tight blocks on, which begin at w, l->block apart; `next`: where the blocks begin that come then. */
INLINE void tight_body(const int M, const int V, const int first, const lin *l, const uint8_t *w, const uint8_t *next, float *y, int64_t ldy) {
    enum { STEP = 4 * VL };
    const int BL = (V + PER_LINE - 1) / PER_LINE;
    const int64_t tiles = ln_tight_tiles(l->C), whole = l->C / LN_TIGHT_COLS, head = ln_tight_head(l->C), block = l->block;
    const float *x = l->x;
    vf acc[8][8];
#pragma GCC unroll 8
    for (int m = 0; m < M; m++)
#pragma GCC unroll 8
        for (int v = 0; v < V; v++) acc[m][v] = vf_zero();
    for (int64_t t = 0; t < tiles; t++, x += LN_TIGHT_COLS / X_WORD) {
        uint64_t marks = 0;
        const uint8_t *p = w + head + t * LN_TIGHT_TILE, *ask = V < PER_LINE && first + V == PER_LINE ? p + (next - w) : t + TIGHT_AHEAD < tiles ? p + TIGHT_AHEAD * LN_TIGHT_TILE : next + head + (t + TIGHT_AHEAD - tiles) * LN_TIGHT_TILE;
#pragma GCC unroll 4
        for (int g = 0; g < BL; g++) marks |= ln_tight_table(w + g * block, t);
        if (t == whole || marks & LN_TIGHT_ODD) {
            _Alignas(64) uint8_t room[4 * 1024];
            for (int g = 0; g < BL; g++) unpack_tile(room + 1024 * g, w + g * block, l->C, t);
            const int64_t pairs = LN_MIN((int64_t)LN_TIGHT_COLS, l->C - t * LN_TIGHT_COLS) / 2;
            for (int64_t i = 0; i < pairs; i++)
#pragma GCC unroll 8
                for (int v = 0; v < V; v++) {
                    const vi b = vi_load(room + (first + v) / PER_LINE * 1024 + 64 * i + (first + v) % PER_LINE * STEP);
#pragma GCC unroll 8
                    for (int m = 0; m < M; m++) acc[m][v] = TIGHT_PAIR(m, i, b);
                }
            if (t == whole && l->C % 2)
#pragma GCC unroll 8
                for (int v = 0; v < V; v++) {
                    const vi b = vi_load(room + (first + v) / PER_LINE * 1024 + 64 * pairs + (first + v) % PER_LINE * STEP);
#pragma GCC unroll 8
                    for (int m = 0; m < M; m++) acc[m][v] = TIGHT_LAST(m, pairs, b);
                }
            continue;
        }
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) {
            vi b[8][2];
#pragma GCC unroll 8
            for (int v = 0; v < V; v++) {
                const int64_t at = (first + v) / PER_LINE * block;
                if (V < PER_LINE || (first + v) % PER_LINE == 0) { /* in the order of memory */
#pragma GCC unroll 2
                    for (int i = 3 * j / 2; i < 3 * (j + 1) / 2; i++) LN_TIGHT_ASK(ask + at + 64 * i);
                }
                tight_lines(b[v], p + at, j, (first + v) % PER_LINE, vi_table(ln_tight_table(w + at, t)));
            }
#pragma GCC unroll 2
            for (int i = 0; i < 2; i++)
#pragma GCC unroll 8
                for (int m = 0; m < M; m++)
#pragma GCC unroll 8
                    for (int v = 0; v < V; v++) acc[m][v] = TIGHT_PAIR(m, 2 * j + i, b[v][i]);
        }
    }
#pragma GCC unroll 8
    for (int m = 0; m < M; m++)
#pragma GCC unroll 8
        for (int v = 0; v < V; v++) vf_store(y + m * ldy + (first + v) * VL, acc[m][v]);
}
typedef void tight_fn(const lin *l, const uint8_t *w, const uint8_t *next, float *y, int64_t ldy);
#define TIGHT(M, V, N)                                                                                                                   \
    static void tight_##N##_##M(const lin *l, const uint8_t *w, const uint8_t *next, float *y, int64_t ldy) {                            \
        _Pragma("GCC unroll 4") for (int first = 0; first < LN_MAX(V, PER_LINE); first += (V)) tight_body(M, V, first, l, w, next, y, ldy); \
    }
#if LN_TIGHT_ROWS == 8
#define TIGHT_ROWS(DO) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8)
#else
#define TIGHT_ROWS(DO) DO(1) DO(2) DO(3) DO(4)
#endif
#define TIGHT_FNS(M) TIGHT(M, LN_MIN(LN_TIGHT_VECTORS(M), PER_LINE), one) TIGHT(M, LN_TIGHT_VECTORS(M), few)
TIGHT_ROWS(TIGHT_FNS)
#define TIGHT_ONE(M) tight_one_##M,
#define TIGHT_MORE(M) tight_few_##M,
#define TIGHT_BLOCKS(M) (LN_TIGHT_VECTORS(M) + PER_LINE - 1) / PER_LINE,
static tight_fn *const tight_one[LN_TIGHT_ROWS] = {TIGHT_ROWS(TIGHT_ONE)}, *const tight_few[LN_TIGHT_ROWS] = {TIGHT_ROWS(TIGHT_MORE)};
static const int tight_blocks[LN_TIGHT_ROWS] = {TIGHT_ROWS(TIGHT_BLOCKS)};

#if LN_TIGHT_PANEL
#include "gemm_bf12_panel.inc.h"
#else
enum { PANEL_BLOCKS = 1 };
static void panel_rows(const lin *l, const uint8_t *w, const uint8_t *next, int n_blocks, float *y) { (void)l, (void)w, (void)next, (void)n_blocks, (void)y; }
#endif
static bool in_panels(const lin *l, int64_t rows) { return rows == LN_TIGHT_PANEL && l->C % LN_TIGHT_COLS == 0; }

/* Few rows of block b: one that is tight, one in full, or the last, which may hold fewer outputs than y has room for. */
static void tight_block(const lin *l, int64_t rows, int64_t b) {
    const uint8_t *w = (const uint8_t *)l->tight + LN_TIGHT_ROOM + b * l->block, *full = ln_tight_full(l->tight, l->C, b);
    if (full) {
        lin one = *l;
        one.tight = NULL;
        one.block = ln_pack_block(l->dtype, l->C);
        one.w = full;
        one.w_block = b;
        for (int64_t r = 0; r < rows; r += FEW) one_block(&one, &(part){.r = r, .m = LN_MIN((int64_t)FEW, rows - r), .n_k = l->C, .step = 64}, b);
        return;
    }
    float *y = l->y + b * LN_PACK_D, rest[LN_TIGHT_ROWS][LN_PACK_D];
    const int64_t n_d = LN_MIN((int64_t)LN_PACK_D, l->D - b * LN_PACK_D);
    if (n_d == LN_PACK_D && in_panels(l, rows)) panel_rows(l, w, w + l->block, 1, y);
    else if (n_d == LN_PACK_D) tight_one[rows - 1](l, w, w + l->block, y, l->ldy);
    else {
        tight_one[rows - 1](l, w, w, rest[0], LN_PACK_D);
        for (int64_t i = 0; i < rows; i++) memcpy(y + i * l->ldy, rest[i], (size_t)n_d * sizeof *y);
    }
}
static void tight_rows(const lin *l, int64_t rows, int64_t lo, int64_t hi) {
    const int64_t n = in_panels(l, rows) ? PANEL_BLOCKS : tight_blocks[rows - 1];
    for (int64_t b = lo, full; b < hi; b += full ? 1 : n) {
        const uint8_t *w = (const uint8_t *)l->tight + LN_TIGHT_ROOM + b * l->block;
        full = b + n > hi || (b + n) * LN_PACK_D > l->D;
        for (int64_t i = 0; i < n && !full; i++) full = (ln_tight_table(w + i * l->block, 0) & LN_TIGHT_FULL) != 0;
        if (full) tight_block(l, rows, b);
        else if (in_panels(l, rows)) panel_rows(l, w, w + n * l->block, PANEL_BLOCKS, l->y + b * LN_PACK_D);
        else tight_few[rows - 1](l, w, w + n * l->block, l->y + b * LN_PACK_D, l->ldy);
    }
}
static size_t room_bytes(const ln_node *n, const ln_value *values) {
    const ln_value *w = &values[n->in[1]];
    return w->dtype == LN_BF16 ? (size_t)((WIDE - 1) * ln_tight_block(w->dims[1]) + LN_MIN((KC * 5 / 4 + LN_TIGHT_COLS) * 32, ln_pack_block(LN_BF16, w->dims[1]))) : 0;
}

/* Where the tiles of block b lie from column k on. */
static const uint8_t *tight_tiles(const lin *l, int64_t b, int64_t k) {
    return (const uint8_t *)l->tight + LN_TIGHT_ROOM + b * ln_tight_block(l->C) + ln_tight_head(l->C) + k / LN_TIGHT_COLS * LN_TIGHT_TILE;
}

/* Columns that go at once: even parts of KC, or up to a quarter more; of tight weights tiles, three quarters of a block of theirs at most. */
static int64_t part_columns(const lin *l) {
    const int64_t parts = LN_MAX((int64_t)1, (l->C + KC * 3 / 4 - 1) / KC), unit = l->tight ? LN_TIGHT_COLS : 2, k = (l->C + unit * parts - 1) / (unit * parts) * unit;
    return !l->tight || 32 * k <= l->block ? k : (k / 2 + LN_TIGHT_COLS - 1) / LN_TIGHT_COLS * LN_TIGHT_COLS;
}

/* Tiles [from, to) of `tiles`, to which all rows are dealt evenly, over blocks [lo, hi). */
static void many(lin *l, int64_t rows, int64_t tiles, int64_t from, int64_t to, int64_t lo, int64_t hi, uint8_t *room) {
    const int64_t part_k = part_columns(l), shares = to - from;
    for (int64_t b = lo; b < hi; b += WIDE)
        for (int64_t k = 0; k < l->C; k += part_k) {
            part p = {.r = rows * from / tiles, .k = k, .n_k = LN_MIN(part_k, l->C - k), .step = 64 / shares};
            int64_t each = ln_pack_at(l->dtype, l->C, 0, p.n_k) / shares;
            if (l->tight) {
                unpack(l, b, LN_MIN(b + WIDE, hi), k, p.n_k, room);
                p.step = p.step * 3 / 4, each = each * 3 / 4;
                p.ask = k + part_k < l->C ? tight_tiles(l, b, k + part_k) : tight_tiles(l, b + WIDE, 0);
            }
            for (int64_t i = from, rest = rows * from % tiles; i < to; i++, p.r += p.m, p.from += each) { /* rows rows * i / tiles .. */
                p.m = rows / tiles;
                if ((rest += rows % tiles) >= tiles) p.m++, rest -= tiles;
                blocks(l, wide_fns[l->dtype][p.m - 1], WIDE, &p, b, LN_MIN(b + WIDE, hi));
            }
        }
}

/* Tiles of rows a turn: tight weights are unpacked again for each. Rows that are written as words are no more than L2 holds half of. */
static int64_t turn_of(int64_t C, bool tight) {
    enum { MOST = LN_TIGHT_TURN, WORDS = 1024 << 10 };
    return !tight ? TURN : X_WORD == 1 ? MOST : LN_MAX((int64_t)TURN, LN_MIN((int64_t)MOST, WORDS / (2 * C * ROWS)));
}

#ifdef LN_DOT
/* Rows [r, end) of x, bf16 numbers in f32, as words in scratch. */
static void take_rows(lin *l, const ln_arg *x, int64_t r, int64_t end, uint32_t *to) {
    l->x = (const float *)(const void *)to;
    l->x_row = r;
    for (; r < end; r++, to += l->ldx) {
        const float *from = (const float *)x->data + r * x->pitch;
        for (int64_t i = 0; i < x->cols / 2; i++) to[i] = ln_f32_bits(from[2 * i]) >> 16 | (ln_f32_bits(from[2 * i + 1]) & 0xffff0000u);
        if (x->cols % 2) to[x->cols / 2] = ln_f32_bits(from[x->cols - 1]) >> 16;
    }
}
/* So many rows as words, in whole lines. */
static size_t word_bytes(int64_t rows, int64_t C) { return (size_t)(rows * ((C + 1) / 2) * 4 + 63) / 64 * 64; }
static size_t scratch(const ln_node *n, const ln_value *values, const ln_bounds *b) {
    const ln_value *x = &values[n->in[0]];
    return word_bytes(LN_MIN(ln_dim(x->dims[0], b), ROWS * turn_of(x->dims[1], true)), x->dims[1]) + room_bytes(n, values);
}
#else
static size_t scratch(const ln_node *n, const ln_value *values, const ln_bounds *b) { return (void)b, room_bytes(n, values); }
#endif

/* Whether rows are few: one pass over the weights serves them. */
static bool are_few(const ln_call *c) { return c->out[0].rows <= (c->in[1].tight ? LN_TIGHT_ROWS : FEW) && !(c->in[1].tight && LN_TIGHT_APART(c->out[0].rows)); }
static int blocks_of_few(const ln_call *c) {
    const int64_t i = LN_MAX((int64_t)1, LN_MIN(c->out[0].rows, (int64_t)FEW)) - 1;
    return c->in[1].tight ? tight_blocks[i] : few_blocks[i];
}
/* Blocks of a share; of few rows whole tiles of them. */
static void share_of(const ln_call *c, int64_t *lo, int64_t *hi) {
    const ln_arg *y = &c->out[0];
    ln_share(ln_pack_blocks(y->cols), y->rows >= 1 && y->rows <= FEW ? blocks_of_few(c) : 1, c->thread, c->n_threads, lo, hi);
}
static void linear_reads(const ln_call *c, ln_reads *out) {
    int64_t lo, hi;
    share_of(c, &lo, &hi);
    *out = ln_cpu_reads_numbers(&c->in[1], c->in[0].cols, lo, hi, blocks_of_few(c));
}

void LN_RUNG(ln_cpu_linear_run)(const ln_call *c) {
    const ln_arg *x = &c->in[0], *w = &c->in[1], *y = &c->out[0];
    lin l = {.w = w->data,
             .block = ln_cpu_block(w, x->cols),
             .tight = w->tight ? w->data : NULL,
             .x = x->data,
             .y = y->data,
             .D = y->cols,
             .C = x->cols,
             .ldx = x->pitch,
             .ldy = y->pitch,
             .dtype = w->dtype};
    const int64_t rows = y->rows, tiles = (rows + ROWS - 1) / ROWS, turn = turn_of(x->cols, w->tight), turns = (tiles + turn - 1) / turn;
    int64_t lo, hi;
    share_of(c, &lo, &hi);
    uint8_t *room = c->scratch;
    if (lo >= hi || rows < 1) return;
#ifdef LN_DOT
    l.ldx = (l.C + 1) / 2;
    room += word_bytes(LN_MIN(rows, ROWS * turn), l.C);
    if (are_few(c)) take_rows(&l, x, 0, rows, c->scratch);
#endif
    if (l.tight && are_few(c)) tight_rows(&l, rows, lo, hi);
    else if (are_few(c)) {
        const part all = {.m = rows, .n_k = l.C, .step = 64};
        int64_t b = lo;
#ifdef LN_SHORT_1
        if (rows == 1 && l.C <= SHORT_K) b = short_blocks(&l, &all, lo, hi);
#endif
        blocks(&l, few_fns[l.dtype][rows - 1], few_blocks[rows - 1], &all, b, hi);
    } else
        for (int64_t j = 0; j < turns; j++) {
            const int64_t from = tiles * j / turns, to = tiles * (j + 1) / turns;
#ifdef LN_DOT
            take_rows(&l, x, rows * from / tiles, rows * to / tiles, c->scratch);
#endif
            many(&l, rows, tiles, from, to, lo, hi, room);
        }
    if (c->node->n_in > 2) ln_cpu_add_bias(&c->in[2], l.y, l.ldy, rows, lo * LN_PACK_D, LN_MIN(hi * LN_PACK_D, l.D));
}

#ifndef LN_DOT
void LN_RUNG(ln_cpu_linear)(ln_kernel table[LN_OP_COUNT]) { table[LN_OP_LINEAR] = (ln_kernel){.fn = LN_RUNG(ln_cpu_linear_run), .scratch = scratch, .pieces = LN_PIECES, .reads = linear_reads}; }
#endif
