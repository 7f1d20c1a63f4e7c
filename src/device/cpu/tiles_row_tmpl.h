/* linear_fixed_row by tiles of bytes, for every width, group and number of rows: the reference's bits (base/fixed.h, ops.h).
 *
 * Weights are unpacked into B tiles of H and of L, a line being 4 columns of 16 outputs; rows of x are A tiles of h and of l where they lie. Two sums go
 * through all columns, of h H and of h L + l H (TDPBSUD), three products for 64 columns of 16 rows and 16 outputs; what H is more than it says, the middle, is
 * taken away at the end by the sums of h and of l. Sums are whole numbers: no order counts.
 *
 *   more than 16 rows   a row tile times two blocks of 16 outputs: A tiles are loaded once for both. PART columns of both blocks, unpacked, are 32 KB and stay in
 *                       L1 while the rows pass, of which there are as many as fit L2. Sums of a part rest in scratch. Those that are whole are finished by vectors
 *                       beside the products of the next row tile
 *   others              reading codes decides. FEW blocks are walked at once, each through a half of the thread's outputs; beside the products of 64 columns those
 *                       two further on are unpacked: a tile cannot be loaded from stores that are still on their way
 *
 * Registers: 0-3 sums of two blocks, 4-5 A, 6-7 B. Included once, after the vector words of 16 lanes and the tile words. */
#include "../../base/pool.h"
#include "../../ops/ops.h"
#include "cpu.h"
#include "numbers_tmpl.h"
#include "pack.h"

#ifndef LN_ROW_PART /* tests have smaller ones */
#define LN_ROW_PART 512
#define LN_ROW_A_BYTES (3 << 19)
#endif
enum { SIDE = 16, LINE = 64, TILE = SIDE * LINE, PART = LN_ROW_PART, K_TILES = PART / LINE, A_BYTES = LN_ROW_A_BYTES, PASS_ROWS = 512, FEW = 2, TURNS = 3, AHEAD = 3072,
       SUMS = 2 * SIDE * SIDE /* of a row tile and a block: upper, lower */, TERMS = 3 * PASS_ROWS };

typedef struct tiles {
    const ln_affine *w;
    int64_t block, group_bytes, D, C, P, ldx, ldy; /* ldx in bytes, ldy in numbers */
    const uint8_t *x;        /* rows as base/fixed.h says */
    float *y;
    uint8_t *panel;          /* B tiles: [block][H, L][K_TILES], or of few rows [TURNS][FEW][H, L] */
    int32_t *sums, *last;    /* [row tile][2 blocks][SUMS]; [2][2 blocks][SUMS], those of whole chains */
    ln_fixed_terms *terms;   /* of the rows: u, and what is taken away from the sums at the end */
    tile_config config;
} tiles;

static void shape(tiles *t, int64_t m) {
    tile_config c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        c.rows[i] = (uint8_t)(i > 5 ? SIDE : m);
        c.bytes[i] = LINE;
    }
    if (memcmp(&c, &t->config, sizeof c) == 0) return;
    t->config = c;
    tile_configure(&t->config);
}

/* ---- weights ---- */

/* H and L of a group's codes, of 16 outputs (base/fixed.c, ln_fixed_weight). Radix 30: H = mh q + ch, without the middle, L = ml q + cl. */
typedef struct linear {
    vf mh, ch, ml, cl;
} linear;
/* `numbers`: the group's scales and biases; `unit`: 1 / d. */
INLINE vf scale_of(ln_dtype t, const uint8_t *numbers, vf unit) { return vf_mul(number(t, numbers, 0), unit); }
INLINE vf bias_of(ln_dtype t, const uint8_t *numbers, vf unit) { return vf_mul(number(t, numbers + SIDE * ln_dtype_bytes(t), 0), unit); }
INLINE linear linear_of(const int bits, ln_dtype t, const uint8_t *numbers, vf unit) {
    const float half = (float)((1 << bits) - 1) / 2;
    const vf minus = vf_set1(-30), part = vf_set1(1 / 30.0f), s = scale_of(t, numbers, unit), m = vf_nearest(s);
    const vf c = vf_nearest(vf_fma(vf_sub(s, m), vf_set1(half), bias_of(t, numbers, unit)));
    linear k;
    k.mh = vf_nearest(vf_mul(m, part));
    k.ml = vf_fma(minus, k.mh, m);
    k.ch = vf_floor(vf_mul(vf_sub(c, vf_fma(vf_set1(-half), k.ml, vf_set1(113))), part));
    k.cl = vf_fma(minus, k.ch, c);
    return k;
}

/* The same in words of two 16-bit numbers, both alike. Radix 30: H = a q + b, L = c q + d for both bytes of a word at once. Radix 256: W = round(q' a) + b, q'
 * being the code less its middle, at the top of a word. */
typedef struct maker {
    vi a, b, c, d;
} maker;
INLINE maker make(const int bits, ln_dtype t, const uint8_t *numbers, vf unit) {
    if (bits <= 4) {
        const linear k = linear_of(bits, t, numbers, unit);
        const vi at_0 = vi_whole(vf_add(k.ch, vf_set1((float)ln_fixed_middle(bits))));
        return (maker){vi_word_twice(vi_whole(k.mh)), vi_byte_4_times(at_0), vi_word_twice(vi_whole(k.ml)), vi_byte_4_times(vi_whole(k.cl))};
    }
    const vf s = scale_of(t, numbers, unit), half = vf_set1((float)(1 << (bits - 1)));
    return (maker){.a = vi_word_twice(vi_whole(vf_mul(s, half))), .b = vi_turn(vi_word_twice(vi_whole(vf_fma(s, half, bias_of(t, numbers, unit)))), 0x80008000u)};
}

/* 4 columns of 16 outputs: lines of H and L. Radix 30: q are the four codes. Radix 256: `even` and `odd` columns as words of codes less their middle, at the top. */
INLINE void linear_lines(const maker *k, vi q, uint8_t *h, uint8_t *l) {
    vi_store(h, vi_words_add(vi_words_mul(q, k->a), k->b));
    vi_store(l, vi_words_add(vi_words_mul(q, k->c), k->d));
}
INLINE void rounded_lines(const maker *k, vi even, vi odd, vi *H, vi *L) {
    const vi e = vi_words_add(vi_words_round(even, k->a), k->b), o = vi_words_add(vi_words_round(odd, k->a), k->b);
    *H = vi_pick(0x00ff00ff, vi_words_right(e, 8), o);
    *L = vi_pick(0x00ff00ff, e, vi_words_left(o, 8));
}
/* A word of four codes of 8 bits as the two of them. */
INLINE vi even_of_8(vi w) { return vi_turn(vi_words_left(w, 8), 0x80008000u); }
INLINE vi odd_of_8(vi w) { return vi_turn_mask(w, 0x80008000u, 0xff00ff00u); }

/* n columns, whole lines of a tile, of a packed group from its column `from` on. */
INLINE void lines_of(const int bits, const maker *k, const uint8_t *words, int64_t from, int64_t n, uint8_t *h, uint8_t *l) {
    for (int64_t i = from; i < from + n; i += bits == 4 ? 8 : 4, h += LINE, l += LINE) {
        if (bits == 4) {
            const vi w = vi_load(words + i / 8 * LINE);
            linear_lines(k, vi_mask(w, 0x0f0f0f0f), h, l);
            linear_lines(k, vi_mask(vi_right(w, 4), 0x0f0f0f0f), h += LINE, l += LINE);
            continue;
        }
        vi H, L;
        if (bits == 8) {
            const vi w = vi_load(words + i / 4 * LINE);
            rounded_lines(k, even_of_8(w), odd_of_8(w), &H, &L);
        } else {
            const vi even = vi_or(code(words, bits, i), vi_left(code(words, bits, i + 2), 16)), odd = vi_or(code(words, bits, i + 1), vi_left(code(words, bits, i + 3), 16));
            if (bits < 4) {
                linear_lines(k, vi_or(even, vi_left(odd, 8)), h, l);
                continue;
            }
            rounded_lines(k, vi_turn(vi_left(even, 16 - bits), 0x80008000u), vi_turn(vi_left(odd, 16 - bits), 0x80008000u), &H, &L);
        }
        vi_store(h, H);
        vi_store(l, L);
    }
}
/* Columns [k, k + n) of block b as B tiles; n a multiple of 32, zeros up to one of 64. */
INLINE void b_tiles(const int bits, const tiles *t, int64_t b, int64_t k, int64_t n, uint8_t *h, uint8_t *l) {
    const int64_t group = t->w->enc.group;
    const vf unit = vf_load(t->w->units + b * LN_PACK_UNITS);
    const uint8_t *at = t->w->codes + b * t->block;
    for (int64_t i = k; i < k + n;) {
        const int64_t g = i / group, from = i - g * group, some = LN_MIN(group - from, k + n - i);
        const maker make_of = make(bits, t->w->dtype, at + g * t->group_bytes + LINE * (group * bits / 32), unit);
        lines_of(bits, &make_of, at + g * t->group_bytes, from, some, h, l);
        i += some;
        h += some * SIDE;
        l += some * SIDE;
    }
    if (n % LINE) memset(h, 0, TILE / 2), memset(l, 0, TILE / 2);
}
static void unpack(const tiles *t, int64_t b, int64_t k, int64_t n, uint8_t *h, uint8_t *l) {
    switch (t->w->enc.bits) { /* a copy for each */
    case 2: b_tiles(2, t, b, k, n, h, l); break;
    case 3: b_tiles(3, t, b, k, n, h, l); break;
    case 4: b_tiles(4, t, b, k, n, h, l); break;
    case 5: b_tiles(5, t, b, k, n, h, l); break;
    case 6: b_tiles(6, t, b, k, n, h, l); break;
    default: b_tiles(8, t, b, k, n, h, l);
    }
}

/* ---- sums to numbers ---- */

/* Of a row; `middle`: what H is too large by in the sums. */
static ln_fixed_terms terms_of(const tiles *t, int64_t r, int32_t middle) {
    ln_fixed_terms terms;
    memcpy(&terms, t->x + r * t->ldx + 2 * t->P, sizeof terms);
    return (ln_fixed_terms){terms.u, middle * terms.h, middle * terms.l - ln_fixed_rest(t->w->enc.bits, terms.l)};
}
/* y of a row and a block. */
INLINE vf finished(int bits, vi upper, vi lower, const ln_fixed_terms *terms, vf e) {
    upper = vi_sub(upper, vi_int(terms->h));
    lower = vi_sub(lower, vi_int(terms->l));
    return vf_mul(vf_fma(vf_int(upper), vf_set1((float)ln_fixed_radix(bits)), vf_int(lower)), vf_mul(vf_set1(terms->u), e));
}
/* Rows [from, to) of a row tile from r on, N blocks from b. */
INLINE void finish(const int N, const tiles *t, const int32_t *sums, int64_t r, int64_t b, int64_t from, int64_t to) {
    const int64_t d = (b + N - 1) * SIDE, n_d = LN_MIN((int64_t)SIDE, t->D - d); /* y may have no room for 16 outputs of the last block */
    for (int64_t i = from; i < to; i++) {
        float *y = t->y + (r + i) * t->ldy + b * SIDE, rest[SIDE];
#pragma GCC unroll 2
        for (int j = 0; j < N; j++) {
            const uint8_t *upper = (const uint8_t *)(sums + j * SUMS + i * SIDE), *lower = (const uint8_t *)(sums + j * SUMS + SUMS / 2 + i * SIDE);
            const vf v = finished(t->w->enc.bits, vi_load(upper), vi_load(lower), t->terms + r + i, vf_load(t->w->units + (b + j) * LN_PACK_UNITS + SIDE));
            if (j < N - 1 || n_d == SIDE) vf_store(y + j * SIDE, v);
            else vf_store(rest, v), memcpy(y + j * SIDE, rest, (size_t)n_d * sizeof *y);
        }
    }
}

/* Two sums of a block, in registers u and l: the tiles of h (4), l (5), H and L (6, 7). */
#define SUMS_LOAD(u, l, from)                                                                                                            \
    {                                                                                                                                    \
        tile_load(u, from, LINE);                                                                                                        \
        tile_load(l, (from) + SUMS / 2, LINE);                                                                                           \
    }
#define SUMS_STORE(u, l, to)                                                                                                             \
    {                                                                                                                                    \
        tile_store(u, to, LINE);                                                                                                         \
        tile_store(l, (to) + SUMS / 2, LINE);                                                                                            \
    }

/* ---- few rows ---- */

/* Block b + j * apart of n: the products of 64 columns, tile k; those of tile k + 2 unpacked. */
#define STREAM(j, u, l)                                                                                                                  \
    if (n > j && k >= 0) {                                                                                                               \
        const uint8_t *now = t->panel + (k % TURNS * FEW + j) * 2 * TILE, *a = t->x + k * LINE;                                          \
        tile_load(4, a, t->ldx);                                                                                                         \
        tile_load(6, now, LINE);                                                                                                         \
        tile_dp_su(u, 4, 6);                                                                                                             \
        tile_load(7, now + TILE, LINE);                                                                                                  \
        tile_dp_su(l, 4, 7);                                                                                                             \
        tile_load(5, a + t->P, t->ldx);                                                                                                  \
        tile_dp_su(l, 5, 6);                                                                                                             \
    }                                                                                                                                    \
    if (n > j && k + 2 < k_tiles) few_unpack(t, b + (j) * apart, k + 2, t->panel + ((k + 2) % TURNS * FEW + j) * 2 * TILE);
static void few_unpack(const tiles *t, int64_t b, int64_t k, uint8_t *to) {
    const int64_t k_tiles = t->P / LINE, lines = (t->group_bytes * LINE / t->w->enc.group + LINE - 1) / LINE;
    const uint8_t *ahead = t->w->codes + b * t->block + k * t->block / k_tiles + AHEAD;
    for (int64_t i = 0; i < lines; i++) tile_ahead(ahead + i * LINE);
    unpack(t, b, k * LINE, LN_MIN((int64_t)LINE, t->C - k * LINE), to, to + TILE);
}
static void few(tiles *t, int64_t rows, int64_t b, int64_t n, int64_t apart) {
    const int64_t k_tiles = t->P / LINE;
    tile_zero(0);
    tile_zero(1);
    tile_zero(2);
    tile_zero(3);
    for (int64_t k = -2; k < k_tiles; k++) {
        STREAM(0, 0, 1)
        STREAM(1, 2, 3)
    }
    SUMS_STORE(0, 1, t->last)
    finish(1, t, t->last, 0, b, 0, rows);
    if (n < 2) return;
    SUMS_STORE(2, 3, t->last + SUMS)
    finish(1, t, t->last + SUMS, 0, b + apart, 0, rows);
}
static void few_rows(tiles *t, int64_t rows, int64_t lo, int64_t hi) {
    const int64_t each = (hi - lo) / FEW;
    shape(t, rows);
    for (int64_t b = lo; b < lo + each; b++) few(t, rows, b, FEW, each);
    if ((hi - lo) % FEW) few(t, rows, hi - 1, 1, 1);
}

/* ---- more ---- */

/* A row tile from r on times N blocks from b, k_tiles tiles of columns from k on. `before`: the row tile that is finished meanwhile, or -1. `ahead`: as many lines
 * of packed weights in two blocks, which are asked for meanwhile, one at each tile: all at once would hold the buffers that tiles come through. */
INLINE void step(const int N, tiles *t, int64_t r, int64_t m, int64_t b, int64_t k, int64_t k_tiles, bool last, int64_t before, const uint8_t *ahead, int64_t lines) {
    const uint8_t *a = t->x + r * t->ldx + k, *p = t->panel;
    const int64_t P = t->P, ldx = t->ldx, each = (SIDE + k_tiles - 1) / k_tiles;
    int32_t *sums = t->sums + r / SIDE * 2 * SUMS, *to = last ? t->last + r / SIDE % 2 * 2 * SUMS : sums;
    const int32_t *done = t->last + (1 - r / SIDE % 2) * 2 * SUMS;
    if (k) {
        SUMS_LOAD(0, 1, sums)
        if (N > 1) SUMS_LOAD(2, 3, sums + SUMS)
    } else {
        tile_zero(0);
        tile_zero(1);
        tile_zero(2);
        tile_zero(3);
    }
    for (int64_t i = 0; i < k_tiles; i++, a += LINE, p += TILE) {
        tile_load_once(4, a, ldx);
        tile_load(6, p, LINE);
        tile_dp_su(0, 4, 6);
        if (N > 1) {
            tile_load(7, p + 2 * K_TILES * TILE, LINE);
            tile_dp_su(2, 4, 7);
        }
        tile_load_once(5, a + P, ldx);
        tile_dp_su(1, 5, 6);
        if (N > 1) tile_dp_su(3, 5, 7);
        tile_load(6, p + K_TILES * TILE, LINE);
        tile_dp_su(1, 4, 6);
        if (N > 1) {
            tile_load(7, p + 3 * K_TILES * TILE, LINE);
            tile_dp_su(3, 4, 7);
        }
        for (int64_t j = i; j < lines; j += k_tiles) {
            tile_ahead(ahead + j * LINE);
            if (N > 1) tile_ahead(ahead + t->block + j * LINE);
        }
        if (before >= 0) finish(N, t, done, before, b, LN_MIN(i * each, (int64_t)SIDE), LN_MIN((i + 1) * each, (int64_t)SIDE));
        for (int64_t j = LN_MIN(i * each, m); last && j < LN_MIN((i + 1) * each, m); j++) {
            const float *y = t->y + (r + j) * t->ldy + b * SIDE;
            tile_ahead_to(y);
            if (N > 1) tile_ahead_to(y + SIDE);
        }
    }
    SUMS_STORE(0, 1, to)
    if (N > 1) SUMS_STORE(2, 3, to + SUMS)
}
/* All rows times N blocks from b. */
INLINE void blocks(const int N, tiles *t, int64_t rows, int64_t b) {
    const int64_t row_tiles = (rows + SIDE - 1) / SIDE;
    for (int64_t k = 0; k < t->C; k += PART) {
        const int64_t n = LN_MIN((int64_t)PART, t->C - k), k_tiles = (n + LINE - 1) / LINE;
        const bool last = k + PART >= t->C;
        for (int j = 0; j < N; j++) unpack(t, b + j, k, n, t->panel + j * 2 * K_TILES * TILE, t->panel + (j * 2 + 1) * K_TILES * TILE);
        /* the packed bytes that are unpacked next */
        const uint8_t *next = t->w->codes + (last ? (b + N) * t->block : b * t->block + t->block / t->P * (k + PART));
        const int64_t lines = (t->block / t->P * PART + row_tiles * LINE - 1) / (row_tiles * LINE); /* a row tile's share */
        for (int64_t i = 0; i < row_tiles; i++) {
            const int64_t m = LN_MIN((int64_t)SIDE, rows - i * SIDE);
            shape(t, m);
            step(N, t, i * SIDE, m, b, k, k_tiles, last, last && i > 0 ? (i - 1) * SIDE : -1, next + i * lines * LINE, lines);
        }
        if (last) finish(N, t, t->last + (row_tiles - 1) % 2 * 2 * SUMS, (row_tiles - 1) * SIDE, b, 0, rows - (row_tiles - 1) * SIDE);
    }
}
static void one_block(tiles *t, int64_t rows, int64_t b) { blocks(1, t, rows, b); }
static void two_blocks(tiles *t, int64_t rows, int64_t b) { blocks(2, t, rows, b); }

static void many_rows(tiles *t, int64_t rows, int64_t lo, int64_t hi) {
    int64_t b = lo;
    for (; b + 2 <= hi; b += 2) two_blocks(t, rows, b);
    if (b < hi) one_block(t, rows, b);
}

/* Rows at a time: whole tiles whose limbs fit, in passes as even as can be. */
static int64_t pass_rows(int64_t rows, int64_t P) {
    const int64_t most = LN_MAX((int64_t)2 * SIDE, LN_MIN((int64_t)PASS_ROWS, A_BYTES / (2 * P)) / SIDE * SIDE), passes = (rows + most - 1) / most;
    return ((rows + passes - 1) / passes + SIDE - 1) / SIDE * SIDE;
}

enum { OF_MANY = 4 * K_TILES * TILE, OF_FEW = TURNS * FEW * 2 * TILE, PANEL_BYTES = OF_MANY > OF_FEW ? OF_MANY : OF_FEW };
static size_t tiles_row_scratch(const ln_node *n, const ln_value *values, const ln_bounds *b) {
    const ln_value *x = &values[n->in[0]];
    const int64_t rows = LN_MIN(ln_dim(x->dims[0], b), (int64_t)PASS_ROWS);
    return PANEL_BYTES + (size_t)(((rows + SIDE - 1) / SIDE + 2) * 2 * SUMS + TERMS) * sizeof(int32_t);
}

static void tiles_row_run(const ln_call *c) {
    const ln_arg *x = &c->in[0], *y = &c->out[0];
    const ln_affine *w = c->in[1].data;
    tiles t = {.w = w, .block = ln_pack_block_q(w->enc, w->dtype, x->cols), .group_bytes = ln_pack_group_q(w->enc, w->dtype), .D = y->cols, .C = x->cols,
               .P = ln_fixed_limb(x->cols), .ldx = x->pitch * (int64_t)sizeof(float), .ldy = y->pitch, .panel = c->scratch};
    int64_t lo, hi;
    ln_share(ln_pack_blocks(t.D), 1, c->thread, c->n_threads, &lo, &hi);
    if (lo >= hi || y->rows < 1) return;
    t.last = (int32_t *)(void *)(t.panel + PANEL_BYTES);
    t.terms = (ln_fixed_terms *)(void *)(t.last + 4 * SUMS);
    t.sums = t.last + 4 * SUMS + TERMS;
    const int64_t some = y->rows <= SIDE ? SIDE : pass_rows(y->rows, t.P);
    for (int64_t r = 0; r < y->rows; r += some) {
        t.x = (const uint8_t *)x->data + r * t.ldx;
        t.y = (float *)y->data + r * t.ldy;
        const int64_t rows = LN_MIN(some, y->rows - r);
        for (int64_t i = 0; i < rows; i++) t.terms[i] = terms_of(&t, i, ln_fixed_middle(w->enc.bits));
        if (rows <= SIDE) few_rows(&t, rows, lo, hi);
        else many_rows(&t, rows, lo, hi);
    }
    tile_release();
    if (c->node->n_in > 2) ln_cpu_add_bias(&c->in[2], y->data, t.ldy, y->rows, lo * SIDE, LN_MIN(hi * SIDE, t.D));
}
