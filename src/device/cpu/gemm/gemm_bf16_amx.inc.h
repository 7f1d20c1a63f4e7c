/* linear from bf16 weights by tiles: y = x w^T, one formula for every number of rows.
 *
 * A packed block (pack.h) is a stream of B tiles: 16 lines are 32 columns of 16 outputs. x becomes A tiles in scratch, 16 rows x 32 columns:
 * one bf16 term of each number where the value says that its numbers are bf16 (ln_value.bf16), else three: each is the nearest to what the ones
 * before leave, and together they are the number.
 *
 *   y[r][d] = chain over tiles of 32 columns in ascending order, from 0, and in each over the terms a of x, the largest first, of  y = y + P(a, w)
 *   P(a, w) = e + o,  e the fma chain over the tile's even columns, from 0, o that over the odd ones; denormals are zero everywhere
 *   then + b. Columns that are missing in the last tile are zeros.
 *
 * P is what TDPBF16PS does for each number of its result alone, so neither the other rows of a tile, nor how many it has, nor where the
 * columns are cut into blocks (the chains rest in y) changes a bit.
 *
 * Rows of bf16 numbers stored in two bytes each (ln_graph_narrow) are A tiles where they lie, and nothing is made in scratch.
 *
 *   16 rows or fewer (decode)   FEW blocks at once, so that loads of weights never wait for products
 *   more (prefill)              2 x 2 tiles over STEP tiles along C: two blocks' weights lie in L1 while all rows pass over them; the rows' A tiles, of
 *                               as many columns as fit, lie in L2 while all blocks pass. Sums rest in scratch between steps, in y between those
 *
 * Tight weights (bf12.h) are unpacked by vectors into B tiles, which L1 holds: of few rows a tile just before it is multiplied, TIGHT_FEW blocks beside each other; else as many as all
 * rows pass over.
 *
 * One row of few columns, of one term, is over before tiles are ready: vectors make P there, in the unit's own order; denormals are zero for vectors too (pool.h).
 *
 * Registers: 0-3 sums, 4-5 rows, 6-7 weights. Included once, after the vector words and the tile words (simd_amx.h; tests include it after models of them). */
#include "../../../base/pool.h"
#include "../../../ops/ops.h"
#include "../cpu.h"
#include "../pack/bf12_unpack.inc.h"

#ifndef LN_TILES_A_BYTES /* tests have smaller ones */
#define LN_TILES_A_BYTES (1 << 20)
#define LN_TILES_ROWS 1024
#define LN_TILES_STEP 16
#endif
enum { TERMS = 3, SIDE = 16, K_TILE = 32, LINE = 64, B_TILE = SIDE * LINE, FEW = 4, AHEAD = 4096 };
enum { SHORT = 512 }; /* columns of one row of bf16 numbers that vectors multiply, where blocks lie in full */
enum { A_BYTES = LN_TILES_A_BYTES, PASS_ROWS = LN_TILES_ROWS, STEP = LN_TILES_STEP, SUMS_BYTES = PASS_ROWS * 2 * SIDE * 4 };
_Static_assert(SHORT / K_TILE * B_TILE <= A_BYTES, "a short row is one part");
/* Of tight weights: blocks at once for few rows, tiles that are unpacked before they are multiplied, and how many of a block they are asked for ahead. */
enum { TIGHT_FEW = 2, SLOTS = 2, TIGHT_AHEAD = 2, UNPACKED = 2 * STEP > SLOTS ? 2 * STEP : SLOTS };

typedef struct tiles {
    const uint8_t *w;        /* dense: from the call's first block on */
    int64_t block;           /* bytes of a block of it, in full */
    const uint8_t *tight;    /* the weight is tight: its data; else NULL */
    int64_t C, first;        /* its columns; which of its blocks is the call's first */
    uint8_t *unpacked;       /* room for its tiles: SLOTS of few rows, else [2][STEP] */
    uint8_t *room;           /* for A tiles that are made of x */
    const uint8_t *a;        /* A tiles of n_k tiles along C, a_row bytes from one row of them to the next, their lines a_line apart */
    int64_t n_k, a_row, a_line;
    bool narrow, again;      /* they are the rows of x themselves, numbers of two bytes; which are near already */
    float *y, *sums;         /* sums[rows][2 * SIDE] of the blocks that are worked on */
    int64_t D, ldy;
    int terms;
    tile_config config;
} tiles;

/* One pass of a micro-kernel: n_k tiles from w and a on; sums begin as `from` or, when that is NULL, as 0. `ahead`: where each block's
 * weights go on that are wanted later, ahead_step bytes of which are asked for at every step. */
typedef struct work {
    const uint8_t *w, *a, *a1, *ahead; /* a1: the second row of tiles */
    int64_t block, ahead_block; /* bytes from a block of w to the next, and of `ahead` */
    const uint8_t *a_ahead;  /* the rows after these two, where they may still be far away; else NULL */
    int64_t rows_ahead;      /* of `to`, that are asked for at every step: some lie far away */
    int64_t n_k, ahead_step;
    int64_t turn;            /* one row of tiles: from this step on, near the end of a block, what is asked for lies where the next blocks begin; -1: nothing is */
    const float *from;
    float *to;
    int64_t ld_from, ld_to;  /* in bytes */
} work;

/* One step along C of one row of tiles: block j, whose weights at `at` go through register b. */
#define PRODUCT(j, b, at)                                                                                                                \
    {                                                                                                                                    \
        tile_load(b, at, LINE);                                                                                                          \
        tile_load(4, a, a_line);                                                                                                         \
        tile_dp(j, 4, b);                                                                                                                \
        if (terms > 1) {                                                                                                                 \
            tile_load(5, a + a_tile, a_line);                                                                                            \
            tile_dp(j, 5, b);                                                                                                            \
            tile_load(4, a + 2 * a_tile, a_line);                                                                                        \
            tile_dp(j, 4, b);                                                                                                            \
        }                                                                                                                                \
    }
#define BLOCK(j, b)                                                                                                                      \
    if (N > j) {                                                                                                                         \
        for (int i = 0; i < B_TILE && asks; i += LINE) tile_ahead(w + j * block + soon + i);                                             \
        PRODUCT(j, b, w + j * block)                                                                                                     \
    }

/* Sums of M rows of tiles and N blocks, of those that there are: op(register, address, distance of lines). */
#define SUMS(op, at, ld)                                                                                                                 \
    op(0, at, ld);                                                                                                                       \
    if (N > 1) op(1, at + SIDE, ld);                                                                                                     \
    if (N > 2) op(2, at + 2 * SIDE, ld);                                                                                                 \
    if (N > 3) op(3, at + 3 * SIDE, ld);                                                                                                 \
    if (M > 1) op(2, at + SIDE * (ld / 4), ld);                                                                                          \
    if (M > 1 && N > 1) op(3, at + SIDE * (ld / 4) + SIDE, ld);
#define SUMS_BEGIN                                                                                                                       \
    if (o->from) {                                                                                                                       \
        SUMS(tile_load, o->from, o->ld_from)                                                                                             \
    } else {                                                                                                                             \
        tile_zero(0);                                                                                                                    \
        tile_zero(1);                                                                                                                    \
        tile_zero(2);                                                                                                                    \
        tile_zero(3);                                                                                                                    \
    }

INLINE void tiles_body(const int M, const int N, const int terms, const tiles *l, const work *o) {
    const int64_t block = o->block, ahead_block = o->ahead_block, a_line = l->a_line, a_tile = l->config.rows[4] * LINE, a1_tile = l->config.rows[5] * LINE;
    const int64_t a_step = l->narrow ? LINE : terms * a_tile, a1_step = l->narrow ? LINE : terms * a1_tile;
    const uint8_t *w = o->w, *a = o->a, *a1 = o->a1, *ahead = o->ahead, *to = (const uint8_t *)o->to;
    const bool asks = o->turn >= 0;
    SUMS_BEGIN
    for (int64_t k = 0; k < o->n_k; k++, w += B_TILE, a += a_step, a1 += a1_step) {
        if (M == 1) {
            const int64_t soon = k < o->turn ? AHEAD : AHEAD + (N - 1) * block;
            BLOCK(0, 6)
            BLOCK(1, 7)
            BLOCK(2, 6)
            BLOCK(3, 7)
        } else {
            for (int64_t i = 0; i < o->ahead_step; i += LINE, ahead += LINE) {
                tile_ahead(ahead);
                if (N > 1) tile_ahead(ahead + ahead_block);
            }
            for (int i = 0; o->a_ahead && i < 2 * SIDE; i++) tile_ahead(o->a_ahead + i * a_line + k * LINE);
            for (int64_t i = 0; i < o->rows_ahead; i++, to += o->ld_to) {
                tile_ahead_to(to);
                if (N > 1) tile_ahead_to(to + LINE);
            }
            tile_load(6, w, LINE);
            if (N > 1) tile_load(7, w + block, LINE);
#pragma GCC unroll 3
            for (int t = 0; t < terms; t++) {
                tile_load_once(4, a + t * a_tile, a_line);
                tile_dp(0, 4, 6);
                if (N > 1) tile_dp(1, 4, 7);
                tile_load_once(5, a1 + t * a1_tile, a_line);
                tile_dp(2, 5, 6);
                if (N > 1) tile_dp(3, 5, 7);
            }
        }
    }
    SUMS(tile_store, o->to, o->ld_to)
}

/* One copy per number of rows of tiles, of blocks, and of terms. */
typedef void tiles_fn(const tiles *l, const work *o);
#define BODY(M, N, T) \
    static void body_##M##_##N##_##T(const tiles *l, const work *o) { tiles_body(M, N, T, l, o); }
#define BODIES(T) BODY(1, 1, T) BODY(1, 2, T) BODY(1, 4, T) BODY(2, 1, T) BODY(2, 2, T)
BODIES(1) BODIES(3)
#define BODY_ROW(T) {{body_1_1_##T, body_1_2_##T, body_1_4_##T}, {body_2_1_##T, body_2_2_##T}}
static tiles_fn *const bodies[2][2][3] = {BODY_ROW(1), BODY_ROW(3)}; /* [terms > 1][rows of tiles - 1][blocks / 2] */

/* ---- tight weights (bf12.h) ---- */

/* Block b of them, in tiles. */
static const uint8_t *tight_block(const tiles *l, int64_t b) { return l->tight + LN_TIGHT_ROOM + (l->first + b) * ln_tight_block(l->C); }
static const uint8_t *tight_tile(const tiles *l, int64_t b, int64_t k) { return tight_block(l, b) + ln_tight_head(l->C) + k * LN_TIGHT_TILE; }
/* Its tiles [k, k + n) to `to`. */
static void unpack_tiles(const tiles *l, int64_t b, int64_t k, int64_t n, uint8_t *to) {
    const uint8_t *full = ln_tight_full(l->tight, l->C, l->first + b);
    if (full) memcpy(to, full + k * B_TILE, (size_t)(n * B_TILE));
    else
        for (int64_t i = 0; i < n; i++) unpack_tile(to + i * B_TILE, tight_block(l, b), l->C, k + i);
}
/* One pass of few rows, from tile k of a block on. A tile is unpacked into one of SLOTS and multiplied when the others were unpacked too, since it cannot be loaded from stores
 * that are still on their way. */
INLINE void tight_body(const int N, const int terms, const tiles *l, const work *o, int64_t b, int64_t k) {
    const int M = 1, turns = SLOTS / N;
    const int64_t block = o->block, a_line = l->a_line, a_tile = l->config.rows[4] * LINE, a_step = l->narrow ? LINE : terms * a_tile;
    const int64_t tables = ln_tight_head(l->C) / LINE, n_k = o->n_k;
    const uint8_t *a = o->a, *w = tight_block(l, b), *begin = tight_tile(l, b, k), *full[TIGHT_FEW];
    for (int j = 0; j < N; j++) full[j] = ln_tight_full(l->tight, l->C, l->first + b + j);
    SUMS_BEGIN
    for (int64_t t = 0; t < n_k + turns; t++) {
        uint8_t *slot = l->unpacked + t % turns * N * B_TILE;
        const bool here = t + TIGHT_AHEAD < n_k; /* what is asked for is of these blocks */
        const int64_t soon = here ? t + TIGHT_AHEAD : t + TIGHT_AHEAD - n_k, next = here ? 0 : N * block;
        const uint8_t *ask = begin + next + soon * LN_TIGHT_TILE;
#pragma GCC unroll 2
        for (int j = 0; j < N; j++, slot += B_TILE) {
            if (t >= turns && j == 0) PRODUCT(0, 6, slot)
            if (t >= turns && j == 1) PRODUCT(1, 7, slot)
            if (t >= n_k) continue;
            if (soon < tables) tile_ahead(w + j * block + next + soon * LINE);
            if (__builtin_expect(full[j] != NULL, 0)) {
                memcpy(slot, full[j] + (k + t) * B_TILE, B_TILE);
                continue;
            }
            const uint64_t word = ln_tight_table(w + j * block, k + t);
            unpack_lines(true, slot, begin + j * block + t * LN_TIGHT_TILE, word, ask + j * block);
            if (__builtin_expect(word & LN_TIGHT_ODD, 0)) ln_tight_mend(slot, w + j * block, l->C, k + t);
        }
        if (t >= turns) a += a_step;
    }
    SUMS(tile_store, o->to, o->ld_to)
}
typedef void tight_fn(const tiles *l, const work *o, int64_t b, int64_t k);
#define TIGHT_BODY(N, T) \
    static void tight_body_##N##_##T(const tiles *l, const work *o, int64_t b, int64_t k) { tight_body(N, T, l, o, b, k); }
TIGHT_BODY(1, 1) TIGHT_BODY(2, 1) TIGHT_BODY(1, 3) TIGHT_BODY(2, 3)
static tight_fn *const tight_bodies[2][2] = {{tight_body_1_1, tight_body_2_1}, {tight_body_1_3, tight_body_2_3}}; /* [terms > 1][blocks / 2] */

/* Registers for rows m0 and m1 and outputs n_d; left as they are where they already fit. */
static void shape(tiles *l, int64_t m0, int64_t m1, int64_t n_d) {
    tile_config c = {.palette = 1};
    for (int t = 0; t < 8; t++) {
        bool a = t == 4 || t == 5, b = t > 5, second = t == 5 || t == 2 || t == 3;
        c.rows[t] = (uint8_t)(b ? SIDE : second ? m1 : m0);
        c.bytes[t] = (uint16_t)(a ? LINE : 4 * n_d);
    }
    if (memcmp(&c, &l->config, sizeof c) == 0) return;
    l->config = c;
    tile_configure(&l->config);
}

/* From one A tile of m rows to the next along C. */
static int64_t a_step(const tiles *l, int64_t m) { return l->narrow ? LINE : l->terms * m * LINE; }

/* n blocks from b, or the last one, which may hold fewer outputs, for all rows; the tiles of A are those from number k on of a block. `first`: nobody
 * has read them yet. */
static void panel(tiles *l, int64_t rows, int64_t b, int64_t n, int64_t k, bool first) {
    const int64_t pairs = (rows + 2 * SIDE - 1) / (2 * SIDE), step = pairs > 1 || l->tight ? STEP : l->n_k;
    const int64_t tile_lines = l->tight ? LN_TIGHT_TILE / LINE : SIDE, lines = (tile_lines + pairs - 1) / pairs;
    const int64_t n_d = LN_MIN((int64_t)SIDE, l->D - b * SIDE);
    for (int64_t i = 0; i < l->n_k; i += step) {
        const int64_t n_k = LN_MIN(step, l->n_k - i);
        const uint8_t *w = l->tight ? l->unpacked : l->w + b * l->block + (k + i) * B_TILE;
        for (int64_t j = 0; j < n && l->tight; j++) unpack_tiles(l, b + j, k + i, n_k, l->unpacked + j * STEP * B_TILE);
        for (int64_t r = 0; r < rows; r += 2 * SIDE) {
            const int64_t m0 = LN_MIN((int64_t)SIDE, rows - r), m1 = LN_MIN((int64_t)SIDE, rows - r - m0), part = r / (2 * SIDE) * lines;
            const bool two = m1 > 0;
            const uint8_t *a = l->a + r / SIDE * l->a_row;
            float *y = l->y + r * l->ldy + b * SIDE, *sums = l->sums + r * 2 * SIDE;
            work o = {.w = w, .a = a + i * a_step(l, m0), .n_k = n_k, .to = sums, .ld_to = 2 * LINE};
            o.block = l->tight ? STEP * B_TILE : l->block;
            o.ahead_block = l->tight ? ln_tight_block(l->C) : l->block;
            if (two) o.a1 = a + l->a_row + i * a_step(l, m1);
            if (first && l->narrow) o.a_ahead = o.a + 2 * l->a_row;
            o.ahead = (l->tight ? tight_tile(l, b + n, k + i) : w + n * l->block) + part * n_k * LINE;
            o.ahead_step = part < tile_lines ? lines * LINE : 0; /* a share of the next n blocks' same tiles */
            o.turn = l->tight ? -1 : (k + i + n_k) * B_TILE < l->block ? n_k : LN_MAX((int64_t)0, n_k - AHEAD / B_TILE);
            if (i > 0) o.from = sums, o.ld_from = o.ld_to;
            else if (k > 0) o.from = y, o.ld_from = l->ldy * (int64_t)sizeof *y;
            if (i + step >= l->n_k) o.to = y, o.ld_to = l->ldy * (int64_t)sizeof *y, o.rows_ahead = (m0 + m1 + n_k - 1) / n_k;
            shape(l, m0, two ? m1 : m0, n_d);
            bodies[l->terms > 1][two][n / 2](l, &o);
        }
    }
}

/* n blocks from b, or the last one, of a tight weight for few rows. */
static void tight_panel(tiles *l, int64_t rows, int64_t b, int64_t n, int64_t k) {
    const int64_t ld = l->ldy * (int64_t)sizeof(float);
    float *y = l->y + b * SIDE;
    shape(l, rows, rows, LN_MIN((int64_t)SIDE, l->D - b * SIDE));
    tight_bodies[l->terms > 1][n / 2](l, &(work){.a = l->a, .block = ln_tight_block(l->C), .n_k = l->n_k, .from = k ? y : NULL, .to = y, .ld_from = ld, .ld_to = ld}, b, k);
}

/* ---- one row of few columns ---- */

/* N blocks from w on: what tile_dp gives, where it gives it (P above). Nothing is asked for: the processor does, and asking was slower (docs/speed.md). */
INLINE void short_body(const int N, const tiles *l, const uint8_t *w, float *y) {
    _Alignas(LINE) float x[2 * SIDE]; /* the even numbers of a line of A, then the odd ones */
    const uint8_t *a = l->a;
    vf sum[FEW], even[FEW], odd[FEW];
    for (int j = 0; j < N; j++) sum[j] = vf_zero();
    for (int64_t k = 0; k < l->n_k; k++, w += B_TILE, a += LINE) {
        const uint8_t *at[FEW];
        for (int j = 0; j < N; j++) {
            at[j] = w + j * l->block;
            __asm__("" : "+r"(at[j])); /* else gcc keeps a sum for each line of them */
            even[j] = odd[j] = vf_zero();
        }
        vf_store(x, vf_low_bf16(vi_load(a)));
        vf_store(x + SIDE, vf_high_bf16(vi_load(a)));
        __asm__("" : "+m"(x)); /* else gcc takes numbers out of the vectors, which keeps the units of products from theirs */
#pragma GCC unroll 16
        for (int i = 0; i < SIDE; i++) {
            const vf x_even = vf_set1(x[i]), x_odd = vf_set1(x[SIDE + i]);
            for (int j = 0; j < N; j++) {
                const vi line = vi_load(at[j] + i * LINE);
                even[j] = vf_fma(x_even, vf_low_bf16(line), even[j]);
                odd[j] = vf_fma(x_odd, vf_high_bf16(line), odd[j]);
            }
        }
        for (int j = 0; j < N; j++) sum[j] = vf_add(sum[j], vf_add(even[j], odd[j]));
    }
    for (int j = 0; j < N; j++) vf_store(y + j * SIDE, sum[j]);
}

static bool is_short(const tiles *l, int64_t rows) { return rows == 1 && l->terms == 1 && !l->tight && l->C <= SHORT; }
/* n blocks from b, or the last one, which may hold fewer outputs: all columns are there. */
static void short_panel(const tiles *l, int64_t b, int64_t n) {
    const int64_t n_d = LN_MIN((int64_t)SIDE, l->D - b * SIDE);
    const uint8_t *w = l->w + b * l->block;
    float *y = l->y + b * SIDE, last[SIDE];
    if (n > 1) short_body(FEW, l, w, y);
    else short_body(1, l, w, n_d < SIDE ? last : y);
    if (n_d < SIDE) memcpy(y, last, (size_t)n_d * sizeof *y);
}

/* The bf16 number nearest to x as an f32: finite for a finite x. What it leaves of x is 0 for one that is not. */
INLINE float term(float x, float *rest) {
    uint32_t u = ln_f32_bits(x), up = u + 0x7fffu + ((u >> 16) & 1u), cut = u & 0xffff0000u;
    bool special = (u & 0x7f800000u) == 0x7f800000u, over = (up & 0x7f800000u) == 0x7f800000u;
    float t = ln_bits_f32(special || over ? cut | (x != x ? 0x400000u : 0) : up & 0xffff0000u);
    *rest = special ? 0 : x - t;
    return t;
}

/* 32 numbers of x, n of which are there, as lines of A tiles, `apart` numbers from term to term. One loop per term: they become vectors. */
INLINE void a_line(const float *x, const int64_t n, const int terms, uint16_t *to, int64_t apart) {
    float rest[K_TILE] = {0};
    for (int64_t i = 0; i < n; i++) rest[i] = x[i];
    for (int t = 0; t < terms; t++, to += apart)
        for (int64_t i = 0; i < K_TILE; i++) to[i] = (uint16_t)(ln_f32_bits(terms > 1 ? term(rest[i], &rest[i]) : rest[i]) >> 16);
}

/* Columns of one row of x as lines of its A tiles. */
INLINE void a_row(const float *x, int64_t n, const int terms, uint16_t *to, int64_t apart) {
    int64_t i = 0;
    for (; i + K_TILE <= n; i += K_TILE, to += terms * apart) a_line(x + i, K_TILE, terms, to, apart);
    if (i < n) a_line(x + i, n - i, terms, to, apart);
}

static void a_tiles(const tiles *l, const float *x, int64_t ldx, int64_t rows, int64_t n) {
    for (int64_t r = 0; r < rows; r++) {
        const int64_t m = LN_MIN((int64_t)SIDE, rows - r / SIDE * SIDE);
        uint16_t *to = (uint16_t *)(void *)(l->room + r / SIDE * l->a_row + r % SIDE * LINE);
        if (l->terms == 1) a_row(x + r * ldx, n, 1, to, m * K_TILE);
        else a_row(x + r * ldx, n, TERMS, to, m * K_TILE);
    }
}

/* The A tiles of n_k tiles of columns from number k on, of `rows` rows of x from r on: made in scratch, or where they lie. */
static void take_rows(tiles *l, const ln_arg *x, int64_t r, int64_t rows, int64_t k) {
    l->narrow = x->dtype == LN_BF16;
    l->a_line = l->narrow ? x->pitch * 2 : LINE;
    l->a_row = l->narrow ? SIDE * l->a_line : l->n_k * l->terms * B_TILE;
    l->a = l->narrow ? (const uint8_t *)x->data + r * l->a_line + k * LINE : l->room;
    if (!l->narrow) a_tiles(l, (const float *)x->data + r * x->pitch + k * K_TILE, x->pitch, rows, LN_MIN(l->n_k * K_TILE, x->cols - k * K_TILE));
}

static int64_t k_tiles(int64_t C) { return (C + K_TILE - 1) / K_TILE; }
/* Bytes that a column of A tiles takes. */
static int64_t a_column(int64_t rows, int terms) { return (rows + SIDE - 1) / SIDE * B_TILE * terms; }

static size_t tiles_scratch(const ln_node *n, const ln_value *values, const ln_bounds *b) {
    const ln_value *x = &values[n->in[0]];
    const int64_t column = a_column(LN_MIN(ln_dim(x->dims[0], b), (int64_t)PASS_ROWS), x->bf16 ? 1 : TERMS);
    return SUMS_BYTES + UNPACKED * B_TILE + (x->dtype == LN_BF16 ? 0 : (size_t)LN_MIN((int64_t)A_BYTES, k_tiles(x->dims[1]) * column));
}

/* y of blocks [lo, hi), without bias, for `rows` rows of x from `r` on. */
static void pass(tiles *l, const ln_arg *x, int64_t r, int64_t rows, int64_t lo, int64_t hi) {
    const bool few_tight = l->tight && rows <= SIDE;
    const int64_t n = few_tight ? TIGHT_FEW : rows <= SIDE ? FEW : 2, all = k_tiles(x->cols), most = A_BYTES / a_column(rows, l->terms), parts = (all + most - 1) / most;
    const int64_t columns = (all + parts - 1) / parts;
    for (int64_t k = 0; k < all; k += columns) {
        l->n_k = LN_MIN(columns, all - k);
        take_rows(l, x, r, rows, k);
        int64_t b = lo;
        for (int64_t some; b < hi; b += some) {
            some = b + n <= hi && (b + n) * SIDE <= l->D ? n : 1;
            if (few_tight) tight_panel(l, rows, b, some, k);
            else if (is_short(l, rows)) short_panel(l, b, some);
            else panel(l, rows, b, some, k, b == lo && !l->again);
        }
    }
}

/* Blocks of a share; of few rows as they are taken at once. */
static void tiles_share(const ln_call *c, int64_t *lo, int64_t *hi) {
    const int few = c->in[1].tight ? TIGHT_FEW : FEW;
    ln_share(ln_pack_blocks(c->out[0].cols), c->out[0].rows <= SIDE ? few : 1, c->thread, c->n_threads, lo, hi);
}

/* `again`: this thread has read x not long ago. `first`: the weight's block that outputs begin with. */
static void tiles_product(const ln_call *c, bool again, int64_t first) {
    const ln_arg *x = &c->in[0], *w = &c->in[1], *y = &c->out[0];
    const int64_t block = ln_pack_block(w->dtype, x->cols);
    tiles l = {.w = (const uint8_t *)w->data + (w->tight ? 0 : first * block), .block = block, .tight = w->tight ? w->data : NULL, .C = x->cols, .first = first,
               .D = y->cols, .ldy = y->pitch, .terms = x->bf16 ? 1 : TERMS, .again = again, .sums = c->scratch};
    l.unpacked = (uint8_t *)c->scratch + SUMS_BYTES;
    l.room = l.unpacked + UNPACKED * B_TILE;
    int64_t lo, hi;
    tiles_share(c, &lo, &hi);
    if (lo >= hi || y->rows < 1) return;
    for (int64_t r = 0; r < y->rows; r += PASS_ROWS) {
        const int64_t rows = LN_MIN((int64_t)PASS_ROWS, y->rows - r);
        l.y = (float *)y->data + r * l.ldy;
        pass(&l, x, r, rows, lo, hi);
        if (c->node->n_in > 2) ln_cpu_add_bias(&c->in[2], l.y, l.ldy, rows, lo * SIDE, LN_MIN(hi * SIDE, l.D));
    }
    if (l.config.palette) tile_release();
}
static void tiles_run(const ln_call *c) { tiles_product(c, false, 0); }
