/* linear_fixed on a vector rung, for every width and group: y = s u sum(q v) + b t over groups, v being 16-bit integers, with the bits of the
 * reference, from packed weights (pack.h).
 *
 * Products of a group are added as integers, so only the order of groups counts. Lanes run along outputs. A word of
 * codes is shifted and masked into pairs of 16-bit numbers, each of which meets a pair of x (ops.h says in which order columns of x
 * lie for that) in one instruction. One kernel takes M rows times BL blocks of 16 outputs through a run of groups, whose words hold
 *   few rows, 4 or 8 bits   codes as they are packed; of up to four rows LN_BLOCKS(M) blocks at once
 *   otherwise               pairs of 16-bit numbers: a panel of WIDE blocks x KC columns in scratch, unpacked once for all rows, and otherwise
 *                           laid out as packed weights are
 * Threads share blocks of outputs, never columns. Included once per rung, after its simd header. */
#include "../../../base/pool.h"
#include "../../../ops/ops.h"
#include "../cpu.h"
#include "../simd/simd_affine.inc.h"
#include "../pack/pack.h"

#ifndef LN_AHEAD_1 /* bytes ahead of one block; LN_AHEAD: of each of several */
#define LN_AHEAD_1 LN_AHEAD
#endif
#ifdef LN_SPLIT /* of few numbers each pair of a word has sums of its own, which then do not wait for each other; they are whole, so that order does not count */
#define SPLIT(M, V, PAIRS) ((M) * (V) <= HELD ? (PAIRS) : 1)
#else
#define SPLIT(M, V, PAIRS) 1
#endif

enum { PER_LINE = LN_PACK_D / VL, WIDE = LN_WIDE, ROWS = LN_ROWS, FEW = LN_FEW, MOST = 8 /* vectors beside each other */, HELD = 4,
       AHEAD = LN_AHEAD, AHEAD_1 = LN_AHEAD_1, SUMS = ROWS > 4 * HELD ? ROWS : 4 * HELD, PANEL_D = MOST / PER_LINE * LN_PACK_D, KC = 256 /* whole groups of any size */, PANEL_BYTES = WIDE * (KC / 2 * 64 + KC / 32 * 128) };

/* What a tile works on: n groups of M rows. Of each block: lines of words of a group, then scales, then biases. */
typedef struct span {
    const uint8_t *codes;        /* of the first block and group */
    int64_t block, step;         /* bytes to the next block (0: all are the same one), to the next group */
    ln_dtype dtype;              /* of scales and biases */
    const float *x, *u;          /* words of two numbers; their scales, and their sums `groups` on */
    float *y;
    int64_t ldx, ldy, groups, group, n;
    bool first;                  /* the chains over groups begin here */
    const uint8_t *near, *far;   /* what the memory is asked for meanwhile: for `turn` groups near, then far; as many bytes on for each line, each group */
    int64_t turn, next_line, next_group;
} span;

/* One line of each block: words w of PAIRS pairs of codes meet as many words of x. */
INLINE void line(const int M, const int BL, const int PAIRS, const span *s, const uint8_t *p, const uint8_t *next, const float *x, vi acc[SUMS][MOST]) {
    const int V = BL * PER_LINE, bits = 16 / PAIRS, split = SPLIT(M, V, PAIRS);
    const uint32_t mask = 0x10001u * ((1u << bits) - 1);
    vi w[MOST], q[MOST];
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) {
        if (PAIRS > 1 && v % PER_LINE == 0) vf_ahead(next + v / PER_LINE * s->block);
        w[v] = vi_load(p + v / PER_LINE * s->block + v % PER_LINE * 4 * VL);
    }
#pragma GCC unroll 4
    for (int j = 0; j < PAIRS; j++) {
#pragma GCC unroll 8
        for (int v = 0; v < V; v++)
            q[v] = PAIRS == 1 ? w[v] : j == PAIRS - 1 ? vi_words_right(w[v], 16 - bits) : vi_mask(j ? vi_right(w[v], j * bits) : w[v], mask);
#pragma GCC unroll 8
        for (int m = 0; m < M; m++) {
            const vi a = vi_set1(x + m * s->ldx + j);
#pragma GCC unroll 8
            for (int v = 0; v < V; v++) acc[m * split + j % split][v] = vi_dot(q[v], a, acc[m * split + j % split][v]);
        }
    }
}

/* M rows, BL blocks; PAIRS: of codes in a word. */
INLINE void tile_body(const int M, const int BL, const int PAIRS, const span *s) {
    const int V = BL * PER_LINE, split = SPLIT(M, V, PAIRS);
    const bool held = M * V <= HELD; /* the chains over groups in registers too, otherwise in y */
    const int64_t lines = s->group / (2 * PAIRS);
    const uint8_t *at = s->codes;
    vf chain[ROWS][MOST];
#pragma GCC unroll 8
    for (int m = 0; m < M; m++)
#pragma GCC unroll 8
        for (int v = 0; v < V; v++) chain[m][v] = held && !s->first ? vf_load(s->y + m * s->ldy + v * VL) : vf_zero();
    for (int64_t g = 0; g < s->n; g++, at += s->step) {
        const float *x = s->x + g * (s->group / 2);
        const uint8_t *p = at, *next = g < s->turn ? s->near + g * s->next_group : s->far + (g - s->turn) * s->next_group;
        vi acc[SUMS][MOST]; /* of which M split x V are used: registers */
#pragma GCC unroll 16
        for (int m = 0; m < M * split; m++)
#pragma GCC unroll 8
            for (int v = 0; v < V; v++) acc[m][v] = vi_zero();
        if (held) /* lines come by fours */
            for (int64_t i = 0; i < lines; i += 4)
#pragma GCC unroll 4
                for (int j = 0; j < 4; j++, p += 64, next += s->next_line, x += PAIRS) line(M, BL, PAIRS, s, p, next, x, acc);
        else
            for (int64_t i = 0; i < lines; i++, p += 64, next += s->next_line, x += PAIRS) line(M, BL, PAIRS, s, p, next, x, acc);
#pragma GCC unroll 8
        for (int v = 0; v < V; v++) {
            const uint8_t *n = at + v / PER_LINE * s->block + 64 * lines;
            const int lane = v % PER_LINE * VL;
            const vf scale = number(s->dtype, n, lane), bias = number(s->dtype, n + LN_PACK_D * ln_dtype_bytes(s->dtype), lane);
#pragma GCC unroll 8
            for (int m = 0; m < M; m++) {
                const float *u = s->u + m * s->ldx + g;
                vi whole = acc[m * split][v];
                for (int j = 1; j < split; j++) whole = vi_add(whole, acc[m * split + j][v]);
                float *y = s->y + m * s->ldy + v * VL;
                const vf sum = held ? chain[m][v] : s->first && g == 0 ? vf_zero() : vf_load(y);
                chain[m][v] = vf_fma(bias, vf_set1(u[s->groups]), vf_fma(scale, vf_mul(vf_int(whole), vf_set1(*u)), sum));
                if (!held) vf_store(y, chain[m][v]);
            }
        }
    }
#pragma GCC unroll 8
    for (int m = 0; m < M; m++)
#pragma GCC unroll 8
        for (int v = 0; v < V && held; v++) vf_store(s->y + m * s->ldy + v * VL, chain[m][v]);
}

typedef void tile_fn(const span *s);
#define TILE(M, BL, P, N) static void tile_##N##_##M##_##P(const span *s) { tile_body(M, BL, P, s); }
#define TILES_6(P) TILE(1, WIDE, P, wide) TILE(2, WIDE, P, wide) TILE(3, WIDE, P, wide) TILE(4, WIDE, P, wide) TILE(5, WIDE, P, wide) TILE(6, WIDE, P, wide)
#define ROW_6(P) tile_wide_1_##P, tile_wide_2_##P, tile_wide_3_##P, tile_wide_4_##P, tile_wide_5_##P, tile_wide_6_##P
#if LN_ROWS == 8
#define TILES(P) TILES_6(P) TILE(7, WIDE, P, wide) TILE(8, WIDE, P, wide)
#define ROW(P) {ROW_6(P), tile_wide_7_##P, tile_wide_8_##P}
#else
#define TILES TILES_6
#define ROW(P) {ROW_6(P)}
#endif
TILES(1)
TILES(2)
TILES(4)
static tile_fn *const tile_fns[3][ROWS] = {ROW(1), ROW(2), ROW(4)};
#if LN_WIDE == 3 /* many rows: what is left of a share, two times two of four */
TILE(1, 2, 1, two) TILE(2, 2, 1, two) TILE(3, 2, 1, two) TILE(4, 2, 1, two) TILE(5, 2, 1, two) TILE(6, 2, 1, two) TILE(7, 2, 1, two) TILE(8, 2, 1, two)
enum { TWO = 2 };
static tile_fn *const two_fns[ROWS] = {tile_two_1_1, tile_two_2_1, tile_two_3_1, tile_two_4_1, tile_two_5_1, tile_two_6_1, tile_two_7_1, tile_two_8_1};
#else
enum { TWO = 0 };
static tile_fn *const two_fns[1];
#endif
/* Up to four rows of 4 and 8 bits, which memory bounds. */
enum { FEWEST = 4 };
#define TILES_FEW(P) TILE(1, LN_BLOCKS(1), P, few) TILE(2, LN_BLOCKS(2), P, few) TILE(3, LN_BLOCKS(3), P, few) TILE(4, LN_BLOCKS(4), P, few)
#define FEW_ROW(P) {tile_few_1_##P, tile_few_2_##P, tile_few_3_##P, tile_few_4_##P}
TILES_FEW(4) TILES_FEW(2)
static tile_fn *const few_fns[2][FEWEST] = {FEW_ROW(4), FEW_ROW(2)}; /* [8 bits] */

typedef struct linf {
    const ln_affine *w;          /* packed */
    int64_t block, group_bytes, groups;
    int64_t rows, D, C, ldx, ldy;
    const float *x;
    float *y;
} linf;

/* ---- the panel ---- */

/* One group of a block: its codes in pairs, in the order of x; scales and biases in f32. */
static void panel_group(const linf *l, const uint8_t *from, uint8_t *to) {
    const int bits = l->w->enc.bits, group = l->w->enc.group;
    const bool masked = bits == 4 || bits == 8;
    const uint8_t *numbers = from + 64 * (group * bits / 32);
    for (int at = 0; at < 64; at += 4 * VL)
        for (int i = 0; i < group / 2; i++) {
            const int per = 16 / bits; /* pairs of a word, if masks give them */
            if (at == 0 && i % per == 0) vf_ahead(from + i / per * 64 + AHEAD);
            const vi pair = masked ? vi_mask(vi_right(vi_load(from + i / per * 64 + at), i % per * bits), 0x10001u * ((1u << bits) - 1))
                                   : vi_or(code(from + at, bits, 2 * i), vi_left(code(from + at, bits, 2 * i + 1), 16));
            vi_store(to + i * 64 + at, pair);
        }
    for (int i = 0; i < 2 * LN_PACK_D; i += VL) vf_store((float *)(void *)(to + 32 * group) + i, number(l->w->dtype, numbers, i));
}

/* ---- all rows over n blocks from b: as many as a kernel takes at once, two of many rows, or one ---- */

/* Tile i: rows [r, r + m) of the groups that s spans, of the outputs from d on. Where y has no room for all blocks of a kernel they rest beside it. */
static void tile(const linf *l, span *s, tile_fn *fn, int64_t r, int64_t m, int64_t d, int64_t n_d, bool whole) {
    float *y = l->y + r * l->ldy + d, rest[ROWS][PANEL_D];
    if (!whole) memset(rest, 0, sizeof rest);
    s->y = whole ? y : rest[0];
    s->ldy = whole ? l->ldy : PANEL_D;
    for (int64_t i = 0; i < m && !whole && !s->first; i++) memcpy(rest[i], y + i * l->ldy, (size_t)n_d * sizeof *y);
    fn(s);
    for (int64_t i = 0; i < m && !whole; i++) memcpy(y + i * l->ldy, rest[i], (size_t)n_d * sizeof *y);
}

static bool is_direct(const linf *l) { return (l->w->enc.bits == 4 || l->w->enc.bits == 8) && l->rows <= FEW; }
static bool is_fewest(const linf *l) { return is_direct(l) && l->rows <= FEWEST; }
static int64_t wide_of(const linf *l) { return is_fewest(l) ? LN_BLOCKS(l->rows) : WIDE; }

static void blocks(const linf *l, int64_t b, int64_t n, uint8_t *panel) {
    const ln_enc e = l->w->enc;
    const bool direct = is_direct(l);
    const int64_t tiles = (l->rows + ROWS - 1) / ROWS, d = b * LN_PACK_D, n_d = LN_MIN(n * LN_PACK_D, l->D - d), most = direct ? l->groups : KC / e.group;
    const uint8_t *codes = l->w->codes + b * l->block, *next = codes + n * l->block;
    const bool two = n == TWO && !direct;
    tile_fn *const *fns = two ? two_fns : is_fewest(l) ? few_fns[e.bits == 8] : tile_fns[!direct ? 0 : e.bits == 8 ? 1 : 2];
    for (int64_t g = 0; g < l->groups; g += most) {
        span s = {.codes = panel, .step = 32 * e.group + 128, .dtype = LN_F32, .ldx = l->ldx, .groups = l->groups, .group = e.group,
                  .n = LN_MIN(most, l->groups - g), .first = g == 0, .near = next, .far = next};
        s.block = n > 1 ? most * s.step : 0;
        if (direct) {
            s.codes = codes, s.step = l->group_bytes, s.dtype = l->w->dtype;
            s.block = n > 1 ? l->block : 0;
            if (tiles == 1) { /* soon the same blocks, at their end the beginnings of the next */
                const int64_t ahead = LN_MIN((n > 1 ? AHEAD : AHEAD_1) / s.step + 1, l->groups);
                s.near = codes + ahead * s.step;
                s.turn = l->groups - ahead;
            }
        }
        s.next_line = 64 / tiles, s.next_group = s.step / tiles;
        for (int64_t i = 0; i < n * s.n && !direct; i++)
            panel_group(l, codes + i / s.n * l->block + (g + i % s.n) * l->group_bytes, panel + i / s.n * s.block + i % s.n * s.step);
        for (int64_t i = 0; i < tiles; i++) {
            const int64_t r = l->rows * i / tiles, m = l->rows * (i + 1) / tiles - r;
            const float *x = l->x + r * l->ldx;
            s.x = x + g * e.group / 2;
            s.u = x + l->C / 2 + g;
            if (tiles > 1) s.far = next + i * l->block / tiles;
            tile(l, &s, fns[m - 1], r, m, d, n_d, n_d == (two ? 2 : wide_of(l)) * LN_PACK_D);
        }
    }
}

static size_t linear_fixed_scratch(const ln_node *n, const ln_value *values, const ln_bounds *b) {
    (void)n, (void)values, (void)b;
    return PANEL_BYTES;
}

static linf linf_of(const ln_call *c) {
    const ln_arg *x = &c->in[0], *y = &c->out[0];
    const ln_affine *w = c->in[1].data;
    return (linf){.w = w, .block = ln_pack_block_q(w->enc, w->dtype, x->cols), .group_bytes = ln_pack_group_q(w->enc, w->dtype), .groups = x->cols / w->enc.group,
                  .rows = y->rows, .D = y->cols, .C = x->cols, .ldx = x->pitch, .ldy = y->pitch, .x = x->data, .y = y->data};
}

/* Blocks of a share; of few rows whole tiles of them. */
static void share_of(const linf *l, const ln_call *c, int64_t *lo, int64_t *hi) {
    ln_share(ln_pack_blocks(l->D), is_direct(l) ? wide_of(l) : 1, c->thread, c->n_threads, lo, hi);
}
static void linear_fixed_reads(const ln_call *c, ln_reads *out) {
    const linf l = linf_of(c);
    int64_t lo, hi;
    share_of(&l, c, &lo, &hi);
    *out = ln_cpu_reads(l.w->codes, l.block, lo, hi, wide_of(&l));
}

static void linear_fixed_run(const ln_call *c) {
    const linf l = linf_of(c);
    if (l.rows == 0) return;
    int64_t lo, hi;
    share_of(&l, c, &lo, &hi);
    const int64_t wide = wide_of(&l), n = hi - lo < wide ? 1 : wide;
    if (TWO && !is_direct(&l))
        for (int64_t b = lo, some; b < hi; b += some) blocks(&l, b, some = hi - b == 4 ? 2 : LN_MIN(wide, hi - b), c->scratch);
    else
        for (int64_t b = lo; b < hi; b += n) blocks(&l, LN_MIN(b, hi - n), n, c->scratch); /* the last ones may be made twice */
    if (c->node->n_in > 2) ln_cpu_add_bias(&c->in[2], l.y, l.ldy, l.rows, lo * LN_PACK_D, LN_MIN(hi * LN_PACK_D, l.D));
}

void LN_RUNG(ln_cpu_linear_fixed)(ln_kernel table[LN_OP_COUNT]) {
    table[LN_OP_LINEAR_FIXED] = (ln_kernel){.fn = linear_fixed_run, .scratch = linear_fixed_scratch, .pieces = LN_PIECES, .reads = linear_fixed_reads};
}
