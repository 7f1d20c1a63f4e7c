/* linear_q on a vector rung, for every width and group: y = s sum(q x) + b sum(x) over groups, with the bits of the reference, from packed
 * weights (pack.h).
 *
 * The specification (ops.h) is one chain over each group's columns, then one over groups; lanes run along outputs, as in
 * gemm_dense_f32.inc.h. One kernel takes M rows times some blocks of 16 outputs through a run of groups; it differs only in where the codes
 * of a column come from:
 *   few rows, 4 or 8 bits   the words as they lie: code i of a word is masked in place, 2^(bits i) times too large, and meets x scaled by
 *                           2^-(bits i), so that a column costs a mask, a conversion and the multiply-adds
 *   otherwise               a panel of WIDE blocks x KC columns, unpacked once into scratch as f32 for all rows
 * The sums of x belong to no output: they are made once a call. Threads share blocks of outputs, never columns. Included once per
 * rung, after its simd header. */
#include "../../../base/pool.h"
#include "../../../ops/ops.h"
#include "../cpu.h"
#include "../simd/simd_affine.inc.h"
#include "../pack/pack.h"

enum { PER_LINE = LN_PACK_D / VL, WIDE = LN_WIDE, ROWS = LN_ROWS, KC = 256 /* whole groups of any size */, FEW_ROWS = LN_Q_FEW, FEW = 2 * ROWS,
       PANEL = WIDE * LN_PACK_D, AHEAD = LN_AHEAD /* bytes */ };
#define TINY_BITS 0x0f800000u /* of LN_Q_TINY, 2^-96 */
typedef enum codes { IN_PANEL = 0, IN_NIBBLES = 4, IN_BYTES = 8 } codes;

typedef struct linq {
    const ln_affine *w;    /* packed */
    int64_t block, group_bytes, groups;
    int64_t D, C, ldx, ldy;
    const float *x;
    float *y;
    const float *sums;     /* [rows][groups] */
    bool tiny;             /* some x counts as zero and is not */
} linq;

/* What a tile works on: M rows of x, of sums and of y; n groups; codes, and scales and biases of each group. */
typedef struct span {
    const uint8_t *codes;  /* of the first block and group; a panel, or packed groups */
    int64_t block, step;   /* bytes to the next block, to the next group */
    const float *s, *b;    /* a panel's [n][PANEL] */
    ln_dtype dtype;        /* of packed ones */
    const float *x, *sums;
    float *y;
    int64_t ldx, ld_sums, ldy, group, n;
    bool first;            /* the chains over groups begin here */
    const uint8_t *next;   /* what the memory is asked for meanwhile: the first share of `shares` in what lies there, `step` bytes a group */
    int64_t shares;
} span;

/* One column: its codes in vectors b, one number of each row in a. Whichever are fewer are made first: the accumulators fill the registers. */
#define COLUMN(load, i)                                                                                                                  \
    if (M < BL * PER_LINE) {                                                                                                             \
        vf a[8];                                                                                                                         \
        _Pragma("GCC unroll 8") for (int m = 0; m < M; m++) a[m] = vf_set1(x[m * u->ldx + (i)]);                                         \
        _Pragma("GCC unroll 16") for (int v = 0; v < BL * PER_LINE; v++) {                                                               \
            vf b = load;                                                                                                                 \
            _Pragma("GCC unroll 8") for (int m = 0; m < M; m++) acc[m][v] = vf_fma(a[m], b, acc[m][v]);                                  \
        }                                                                                                                                \
    } else {                                                                                                                             \
        vf b[8];                                                                                                                         \
        _Pragma("GCC unroll 16") for (int v = 0; v < BL * PER_LINE; v++) b[v] = load;                                                    \
        _Pragma("GCC unroll 8") for (int m = 0; m < M; m++) {                                                                            \
            vf a = vf_set1(x[m * u->ldx + (i)]);                                                                                         \
            _Pragma("GCC unroll 16") for (int v = 0; v < BL * PER_LINE; v++) acc[m][v] = vf_fma(a, b[v], acc[m][v]);                     \
        }                                                                                                                                \
    }

INLINE void tile_body(const int M, const int BL, const codes kind, const span *u) {
    const int bits = (int)kind, per = 32 / LN_MAX(bits, 1); /* of packed codes */
    const int64_t next_line = 64 / u->shares, next_group = u->step / u->shares;
    const uint8_t *at = u->codes;
    for (int64_t g = 0; g < u->n; g++, at += u->step) {
        const float *x = u->x + g * u->group;
        const int64_t words = 64 * (kind == IN_PANEL ? 0 : u->group * bits / 32);
        vf acc[8][8]; /* of which M x BL * PER_LINE are used: registers */
#pragma GCC unroll 8
        for (int m = 0; m < M; m++)
#pragma GCC unroll 16
            for (int v = 0; v < BL * PER_LINE; v++) acc[m][v] = vf_zero();
        if (kind == IN_PANEL) {
            const float *p = (const float *)(const void *)at;
            for (int64_t k = 0; k < u->group; k++, p += PANEL) COLUMN(vf_load(p + v * VL), k)
        } else {
            const uint8_t *p = at, *next = u->next + g * next_group;
            for (int64_t k = 0; k < u->group; k += per, p += 64, next += next_line) {
                vi w[8];
#pragma GCC unroll 16
                for (int v = 0; v < BL * PER_LINE; v++) {
                    if (v % PER_LINE == 0) vf_ahead(next + v / PER_LINE * u->block);
                    w[v] = vi_load(p + v / PER_LINE * u->block + v % PER_LINE * 4 * VL);
                }
#pragma GCC unroll 8
                for (int i = 0; i + 1 < per; i++) COLUMN(vf_int(vi_mask(w[v], ((1u << bits) - 1) << (bits * i))), k + i)
                COLUMN(vf_int(vi_right(w[v], 32 - bits)), k + per - 1)
            }
        }
#pragma GCC unroll 16
        for (int v = 0; v < BL * PER_LINE; v++) {
            const uint8_t *n = at + v / PER_LINE * u->block + words;
            const int lane = v % PER_LINE * VL;
            vf s = kind == IN_PANEL ? vf_load(u->s + g * PANEL + v * VL) : number(u->dtype, n, lane);
            vf b = kind == IN_PANEL ? vf_load(u->b + g * PANEL + v * VL) : number(u->dtype, n + LN_PACK_D * ln_dtype_bytes(u->dtype), lane);
#pragma GCC unroll 8
            for (int m = 0; m < M; m++) {
                float *y = u->y + m * u->ldy + v * VL;
                vf sum = u->first && g == 0 ? vf_zero() : vf_load(y);
                vf_store(y, vf_fma(b, vf_set1(u->sums[m * u->ld_sums + g]), vf_fma(s, acc[m][v], sum)));
            }
        }
    }
}

/* One copy per number of rows, of blocks (0: as many as LN_Q_BLOCKS says for that many rows), and form. */
typedef void tile_fn(const span *u);
#define TILE(M, BL, K, N) static void tile_##N##_##M##_##K(const span *u) { tile_body(M, (BL) ? (BL) : LN_Q_BLOCKS(M), K, u); }
#define TILES_6(BL, K, N) TILE(1, BL, K, N) TILE(2, BL, K, N) TILE(3, BL, K, N) TILE(4, BL, K, N) TILE(5, BL, K, N) TILE(6, BL, K, N)
#define ROW_6(K, N) tile_##N##_1_##K, tile_##N##_2_##K, tile_##N##_3_##K, tile_##N##_4_##K, tile_##N##_5_##K, tile_##N##_6_##K
#if LN_ROWS == 8
#define TILES(BL, K, N) TILES_6(BL, K, N) TILE(7, BL, K, N) TILE(8, BL, K, N)
#define ROW(K, N) {ROW_6(K, N), tile_##N##_7_##K, tile_##N##_8_##K}
#else
#define TILES TILES_6
#define ROW(K, N) {ROW_6(K, N)}
#endif
TILES(LN_WIDE, IN_PANEL, wide)
TILES(1, IN_NIBBLES, one)
TILES(1, IN_BYTES, one)
TILES(0, IN_NIBBLES, some)
TILES(0, IN_BYTES, some)
static tile_fn *const wide_fns[ROWS] = ROW(IN_PANEL, wide);
static tile_fn *const one_fns[2][ROWS] = {ROW(IN_NIBBLES, one), ROW(IN_BYTES, one)};
static tile_fn *const some_fns[2][ROWS] = {ROW(IN_NIBBLES, some), ROW(IN_BYTES, some)};

/* ---- few rows ---- */

/* x as the masked codes want it: code i of a word is 2^(bits i) times too large, but the last, which is shifted down. */
static void scale_x(const linq *l, int64_t rows, float *out) {
    const int bits = l->w->enc.bits, per = 32 / bits;
    float by[8];
    for (int i = 0; i < per; i++) by[i] = i + 1 == per ? 1.0f : 1.0f / (float)(1u << (bits * i));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < l->C; k += per)
            for (int i = 0; i < per; i++) out[r * l->C + k + i] = ln_q_x(l->x[r * l->ldx + k + i]) * by[i];
}

/* m rows from r of n blocks from b; of one only if n is 1, and then the last may hold fewer outputs than y has room for: those rest beside it. */
static void few_blocks(const linq *l, tile_fn *fn, int64_t r, int64_t m, int64_t b, int64_t n, const float *x, const uint8_t *next, int64_t shares) {
    const int64_t d = b * LN_PACK_D, n_d = LN_MIN(n * LN_PACK_D, l->D - d);
    float *y = l->y + r * l->ldy + d, rest[ROWS][LN_PACK_D];
    const bool whole = n_d == n * LN_PACK_D;
    span u = {.codes = l->w->codes + b * l->block, .block = l->block, .step = l->group_bytes, .dtype = l->w->dtype, .x = x + r * l->C,
              .sums = l->sums + r * l->groups, .y = whole ? y : rest[0], .ldx = l->C, .ld_sums = l->groups, .ldy = whole ? l->ldy : LN_PACK_D,
              .group = l->w->enc.group, .n = l->groups, .first = true, .next = next, .shares = shares};
    if (shares == 1 && l->block > AHEAD + u.step) { /* the last groups go apart: they ask for the beginnings of the next n blocks */
        const int64_t g = (l->block - AHEAD) / u.step;
        u.n = g;
        fn(&u);
        u.codes += g * u.step, u.x += g * u.group, u.sums += g;
        u.next = l->w->codes + (b + n) * l->block;
        u.n = l->groups - g;
        u.first = false;
    }
    fn(&u);
    for (int64_t i = 0; i < m && !whole; i++) memcpy(y + i * l->ldy, rest[i], (size_t)n_d * sizeof *y);
}

/* Rows are dealt evenly to tiles, which pass over n blocks in turn, so that these stay near; each asks for its share of the next n meanwhile. */
static void few(const linq *l, int64_t rows, int64_t lo, int64_t hi, const float *x) {
    const int form = l->w->enc.bits == 8;
    const int64_t tiles = (rows + FEW_ROWS - 1) / FEW_ROWS, n = LN_Q_BLOCKS(rows / tiles); /* of the smallest tile: the most */
    for (int64_t b = lo; b < hi; b += n)
        for (int64_t i = 0; i < tiles; i++) {
            const int64_t r = rows * i / tiles, m = rows * (i + 1) / tiles - r, some = LN_Q_BLOCKS(m), end = LN_MIN(b + n, hi);
            const int64_t ahead = tiles == 1 ? AHEAD : n * l->block + i * l->block / tiles;
            for (int64_t at = b; at < end;) {
                const uint8_t *next = l->w->codes + at * l->block + ahead;
                const bool whole = at + some <= end && (at + some) * LN_PACK_D <= l->D;
                few_blocks(l, whole ? some_fns[form][m - 1] : one_fns[form][m - 1], r, m, at, whole ? some : 1, x, next, tiles);
                at += whole ? some : 1;
            }
        }
}

/* ---- many rows ---- */

/* Codes of groups [g, g + n_g) of WIDE blocks as numbers: panel[columns][PANEL]; their scales and biases. Missing blocks are zero. */
static void panel_fill(const linq *l, int64_t b, int64_t n_b, int64_t g, int64_t n_g, float *panel, float s[][PANEL], float bias[][PANEL]) {
    const int bits = l->w->enc.bits;
    const uint32_t mask = (1u << bits) - 1;
    const int64_t group = l->w->enc.group, words = 64 * (group * bits / 32);
    const ln_dtype t = l->w->dtype;
    for (int64_t i = 0; i < n_b * n_g; i++) {
        const int64_t h = i / n_b, at = i % n_b * LN_PACK_D;
        const uint8_t *from = l->w->codes + (b + i % n_b) * l->block + (g + h) * l->group_bytes, *word = from;
        float *out = panel + h * group * PANEL + at;
        for (int64_t k = 0, off = 0; k < group; k++, out += PANEL) {
            vf_ahead(word + AHEAD);
            for (int v = 0; v < PER_LINE; v++, word += 4 * VL) {
                vi code = vi_right(vi_load(word), (int)off);
                if (off + bits > 32) code = vi_or(code, vi_left(vi_load(word + 64), (int)(32 - off)));
                vf_store(out + v * VL, vf_int(vi_mask(code, mask)));
            }
            off += bits;
            word -= off < 32 ? 64 : 0;
            off -= off < 32 ? 0 : 32;
        }
        for (int v = 0; v < PER_LINE; v++) {
            vf_store(s[h] + at + v * VL, number(t, from + words, v * VL));
            vf_store(bias[h] + at + v * VL, number(t, from + words + LN_PACK_D * ln_dtype_bytes(t), v * VL));
        }
    }
}

/* The x of a tile, each number as linear_q counts it: a copy where that is not what it is. */
static void tile_x(const linq *l, int64_t r, int64_t m, int64_t k, int64_t n_k, float *out) {
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n_k; j++) out[i * KC + j] = ln_q_x(l->x[(r + i) * l->ldx + k + j]);
}

static void many(const linq *l, int64_t rows, int64_t lo, int64_t hi, float *panel) {
    const int64_t group = l->w->enc.group, tiles = (rows + ROWS - 1) / ROWS;
    float s[KC / 32][PANEL] = {{0}}, bias[KC / 32][PANEL] = {{0}}, x[ROWS * KC], rest[ROWS][PANEL] = {{0}};
    span u = {.codes = (const uint8_t *)panel, .step = group * PANEL * 4, .s = s[0], .b = bias[0], .ld_sums = l->groups, .group = group, .shares = 1};
    for (int64_t b = lo; b < hi; b += WIDE) {
        const int64_t n_b = LN_MIN((int64_t)WIDE, hi - b), d = b * LN_PACK_D, n_d = LN_MIN(n_b * LN_PACK_D, l->D - d);
        memset(panel, 0, n_b < WIDE ? sizeof(float) * KC * PANEL : 0);
        for (int64_t k = 0; k < l->C; k += KC) {
            u.n = LN_MIN((int64_t)KC, l->C - k) / group;
            u.first = k == 0;
            panel_fill(l, b, n_b, k / group, u.n, panel, s, bias);
            for (int64_t i = 0; i < tiles; i++) {
                const int64_t r = rows * i / tiles, m = rows * (i + 1) / tiles - r;
                float *y = l->y + r * l->ldy + d;
                u.x = l->tiny ? x : l->x + r * l->ldx + k;
                u.ldx = l->tiny ? KC : l->ldx;
                if (l->tiny) tile_x(l, r, m, k, u.n * group, x);
                u.sums = l->sums + r * l->groups + k / group;
                u.y = n_d < PANEL ? rest[0] : y;
                u.ldy = n_d < PANEL ? PANEL : l->ldy;
                for (int64_t j = 0; j < m && n_d < PANEL && k > 0; j++) memcpy(rest[j], y + j * l->ldy, (size_t)n_d * sizeof *y);
                wide_fns[m - 1](&u);
                for (int64_t j = 0; j < m && n_d < PANEL; j++) memcpy(y + j * l->ldy, rest[j], (size_t)n_d * sizeof *y);
            }
        }
    }
}

/* ---- both ---- */

/* The sum of a group: 16 lanes, added in halves. `tiny` gathers whether a number was met that only counts as zero: one whose magnitude,
 * as an integer less 1, is below the limit's (zero itself becomes the largest integer). */
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
    return vf_lanes_sum(sum);
}

/* The sums of all rows and groups; whether a number was met that only counts as zero. */
static bool group_sums(const linq *l, int64_t rows, float *sums) {
    const int64_t group = l->w->enc.group;
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

static bool direct(ln_enc e, int64_t rows) { return (e.bits == 4 || e.bits == 8) && rows <= FEW; }

/* Sums, then the panel or the scaled x: whichever the bound asks more for. */
static size_t linear_q_scratch(const ln_node *n, const ln_value *values, const ln_bounds *b) {
    const ln_value *x = &values[n->in[0]], *w = &values[n->in[1]];
    const int64_t rows = ln_dim(x->dims[0], b), C = w->dims[1];
    return sizeof(float) * (size_t)(rows * (C / w->enc.group) + LN_MAX((int64_t)KC * PANEL, LN_MIN(rows, (int64_t)FEW) * C));
}

static void linear_q_run(const ln_call *c) {
    const ln_arg *x = &c->in[0], *y = &c->out[0];
    const ln_affine *w = c->in[1].data;
    const int64_t rows = y->rows, groups = x->cols / w->enc.group;
    float *sums = c->scratch, *room = sums + rows * groups;
    linq l = {.w = w, .block = ln_pack_block_q(w->enc, w->dtype, x->cols), .group_bytes = ln_pack_group_q(w->enc, w->dtype), .groups = groups, .D = y->cols,
              .C = x->cols, .ldx = x->pitch, .ldy = y->pitch, .x = x->data, .y = y->data, .sums = sums};
    int64_t lo, hi;
    ln_share(ln_pack_blocks(l.D), 1, c->thread, c->n_threads, &lo, &hi);
    if (lo >= hi || rows < 1) return;
    l.tiny = group_sums(&l, rows, sums);
    if (direct(w->enc, rows)) {
        scale_x(&l, rows, room);
        few(&l, rows, lo, hi, room);
    } else {
        many(&l, rows, lo, hi, room);
    }
    if (c->node->n_in > 2) ln_cpu_add_bias(&c->in[2], l.y, l.ldy, rows, lo * LN_PACK_D, LN_MIN(hi * LN_PACK_D, l.D));
}

void LN_RUNG(ln_cpu_linear_q)(ln_kernel table[LN_OP_COUNT]) { table[LN_OP_LINEAR_Q] = (ln_kernel){.fn = linear_q_run, .scratch = linear_q_scratch}; }
