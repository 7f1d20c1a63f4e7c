/* linear_fixed by tiles of bytes, for every width and group: the reference's bits (base/fixed.h, ops.h).
 *
 * A number v of x is two limbs, h signed and l not; TDPBSUD and TDPBUUD multiply them with codes, 64 columns (or the group's 32) of 16 rows and 16
 * outputs at a time, and a group's whole number is exact. A tile cannot be scaled, so sums are stored, and vectors read them, one group later so as not
 * to wait, and go on with  y = fma(s, p u, y), y = fma(b, t, y).
 *
 *   two sums  v = 256 h + l: 256 times the sum over h plus the one over l
 *   one sum   v = 16 h + l of 12 bits: h meets B tiles of 16 q, l those of q, which are bytes as well. A store less, and two of six vector operations
 *   B tiles   a line is 4 columns of 16 outputs, one byte a code. Codes of 8 bits lie packed like that and are loaded where they lie; others are
 *             unpacked into a panel once for all rows
 *   A tiles   made from x once for all blocks
 *
 *   more than 16 rows   a row tile passes a panel of blocks, PART columns at a time: its A tiles stay in L1 and the B tiles come from L2. y of 16 rows
 *                       and a block rests in registers from group to group, and the next block's products go on while a block's last groups are
 *                       finished. One sum where v has 12 bits. (Two row tiles times two blocks would load half as many tiles, but with y in memory its
 *                       vectors take a fifth longer)
 *   others (decode)     the reading of codes decides. Two sums: unpacking 16 q as well costs more than one saves. FEW streams of blocks are walked at
 *                       once, each through a quarter of the thread's outputs; group g + 1 of a stream is unpacked beside the products of group g, and group g - 1
 *                       of all of them is finished
 *
 * Registers: 0-3 sums (0 and 2 or h, l and another two), 4-5 A, 6-7 B. Included once, after the vector words of 16 lanes and the tile words. */
#include "../../base/pool.h"
#include "../../ops/ops.h"
#include "cpu.h"
#include "limbs.h"
#include "numbers_tmpl.h"
#include "pack.h"

#ifndef LN_FIXED_PART /* tests have smaller ones */
#define LN_FIXED_PART 512
#define LN_FIXED_ROWS 512
#define LN_FIXED_PANEL 32
#endif
enum { SIDE = 16, LINE = 64, PART = LN_FIXED_PART /* columns */, PASS_ROWS = LN_FIXED_ROWS, PANEL = LN_FIXED_PANEL /* blocks, if there is one form of B tiles */,
       FEW = 4, AHEAD = 3072, SLOTS = 2 * FEW, SUMS = 2 * SIDE * SIDE /* of a slot */ };

typedef struct tiles {
    const ln_affine *w;
    int64_t block, group_bytes, groups, D, C, ldx, ldy;
    int64_t group, width, n_tiles; /* columns of a group, of a tile; tiles of a group */
    bool one;                      /* sum, where there are more than 16 rows */
    const float *x;                /* rows as base/fixed.h says */
    float *y;
    int32_t *sums;                 /* [SLOTS][h, l][16 rows][16 outputs] */
    uint8_t *a, *panel;
    float *terms;                  /* of a row tile: [group][u, t][16 rows] */
    tile_config config;
} tiles;

/* A row tile through n groups of some blocks: where things of a group lie. */
typedef struct work {
    const uint8_t *b, *numbers, *a;    /* B tiles, scales and biases, A tiles */
    int64_t b_step, a_tile, rows, n;   /* bytes to the next group's B tiles, of an A tile of one limb */
    float *y;
    int64_t ldy;
    const uint8_t *ahead;              /* what is asked for meanwhile: lines [from, to) of a group there, group_bytes on at each group */
    int64_t from, to;
    /* of some blocks: */
    int64_t blocks, b_block;           /* bytes to the next block's B tiles */
    float *last;                       /* y of the last block, where it is not beside the one before, 16 apart; else NULL */
    const float *y_ahead;              /* y of the next row tile */
    bool first;                        /* the chains over groups begin here */
} work;

/* The sums of a group, in registers h and l or both in h: its B tiles, its A tiles, and what the memory is asked for meanwhile. */
#define PRODUCTS(one, h, l, b_at, a_at, ahead_at)                                                                                        \
    {                                                                                                                                    \
        const uint8_t *w = b_at, *a = a_at;                                                                                              \
        for (int64_t i = o->from; i < o->to; i++) tile_ahead((ahead_at) + i * LINE);                                                     \
        tile_zero(h);                                                                                                                    \
        if (!one) tile_zero(l);                                                                                                          \
        for (int64_t i = 0; i < t->n_tiles; i++, w += (one ? 2 : 1) * t->width * SIDE, a += 2 * o->a_tile) {                             \
            tile_load_once(6, w, LINE);                                                                                                  \
            tile_load(4, a, t->width);                                                                                                   \
            tile_dp_su(h, 4, 6);                                                                                                         \
            if (one) tile_load_once(7, w + t->width * SIDE, LINE);                                                                       \
            tile_load(5, a + o->a_tile, t->width);                                                                                       \
            if (one) tile_dp_uu(h, 5, 7);                                                                                                \
            else tile_dp_uu(l, 5, 6);                                                                                                    \
        }                                                                                                                                \
    }
#define STORE(one, h, l, slot)                                                                                                           \
    {                                                                                                                                    \
        tile_store(h, t->sums + (slot) * SUMS, LINE);                                                                                    \
        if (!one) tile_store(l, t->sums + (slot) * SUMS + SUMS / 2, LINE);                                                               \
    }

/* A pointer that the compiler shall add constants to and nothing else: it would keep sixteen, in memory. */
#define ONE_POINTER(p) __asm__("" : "+r"(p))

/* y of one row and group more. */
INLINE vf add_group(const bool one, vf y, const int32_t *sums, const float *terms, vf scale, vf bias) {
    vi p = vi_load((const uint8_t *)sums);
    if (!one) p = vi_add(vi_left(p, 8), vi_load((const uint8_t *)(sums + SUMS / 2)));
    return vf_fma(bias, vf_set1(terms[SIDE]), vf_fma(scale, vf_mul(vf_int(p), vf_set1(*terms)), y));
}
/* y of all rows and a group more, whose numbers, sums and terms these are. M: rows if they are known, and then y is registers. */
INLINE void finish(const int M, const bool one, const tiles *t, const uint8_t *at, const int32_t *sums, const float *terms, int64_t rows, float *to, int64_t ldy, vf *y) {
    const vf scale = number(t->w->dtype, at, 0), bias = number(t->w->dtype, at + SIDE * ln_dtype_bytes(t->w->dtype), 0);
    ONE_POINTER(sums);
    ONE_POINTER(terms);
#pragma GCC unroll 16
    for (int r = 0; r < M; r++) y[r] = add_group(one, y[r], sums + r * SIDE, terms + r, scale, bias);
    for (int64_t r = 0; M == 0 && r < rows; r++) vf_store(to + r * ldy, add_group(one, vf_load(to + r * ldy), sums + r * SIDE, terms + r, scale, bias));
}

/* y of a block begins: registers, if M rows are known. */
INLINE void begin(const int M, const work *o, float *to, int64_t ldy, vf *y) {
#pragma GCC unroll 16
    for (int r = 0; r < M; r++) y[r] = o->first ? vf_zero() : vf_load(to + r * ldy);
    for (int64_t r = 0; M == 0 && o->first && r < o->rows; r++) vf_store(to + r * ldy, vf_zero());
}

/* Step s: the products of a group in (h, l), the sums of the one before stored from (was_h, was_l), those of the one before that finished. So the
 * tile unit goes on while a block's last groups are finished. */
#define STEP(s, h, l, was_h, was_l)                                                                                                      \
    if ((s) < steps) {                                                                                                                   \
        PRODUCTS(one, h, l, b_now, a_now, ahead)                                                                                         \
        b_now += o->b_step, a_now += 2 * t->n_tiles * o->a_tile, ahead += t->group_bytes;                                                \
        if (--groups == 0) groups = o->n, a_now = o->a, b_now += o->b_block - o->n * o->b_step, ahead += t->block - o->n * t->group_bytes; \
    }                                                                                                                                    \
    if ((s) > 0 && (s) <= steps) STORE(one, was_h, was_l, ((s) - 1) % SLOTS)                                                             \
    if ((s) > 1 && (s) <= steps + 1) {                                                                                                   \
        finish(M, one, t, numbers, t->sums + ((s) - 2) % SLOTS * SUMS, terms, o->rows, y_at, ldy, y);                                    \
        numbers += t->group_bytes, terms += 2 * SIDE;                                                                                    \
        if (--finished == 0) {                                                                                                           \
            _Pragma("GCC unroll 16") for (int r = 0; r < M; r++) vf_store(y_at + r * ldy, y[r]);                                         \
            finished = o->n, terms = t->terms, numbers += t->block - o->n * t->group_bytes;                                              \
            y_at += SIDE;                                                                                                                \
            if (--blocks == 1 && o->last) y_at = o->last, ldy = SIDE;                                                                    \
            if (blocks > 0) begin(M, o, y_at, ldy, y);                                                                                   \
        }                                                                                                                                \
        for (int64_t r = (finished - 1) * each; r < finished * each; r++) tile_ahead_to(blocks > 1 ? y_at + SIDE + r * ldy : o->y_ahead + r * o->ldy); \
    }
INLINE void body(const int M, const bool one, const tiles *t, const work *o) {
    const int64_t steps = o->blocks * o->n, each = (SIDE + o->n - 1) / o->n; /* rows of the y that comes next, asked for at each step */
    const uint8_t *b_now = o->b, *a_now = o->a, *ahead = o->ahead, *numbers = o->numbers;
    const float *terms = t->terms;
    int64_t groups = o->n, finished = o->n, blocks = o->blocks, ldy = o->ldy;
    float *y_at = o->y;
    vf y[SIDE];
    if (blocks == 1 && o->last) y_at = o->last, ldy = SIDE;
    begin(M, o, y_at, ldy, y);
    for (int64_t s = 0; s < steps + 2; s += 2) {
        STEP(s, 0, 1, 2, 3)
        STEP(s + 1, 2, 3, 0, 1)
    }
}
static void whole_one(const tiles *t, const work *o) { body(SIDE, true, t, o); }
static void whole_two(const tiles *t, const work *o) { body(SIDE, false, t, o); }
static void any_one(const tiles *t, const work *o) { body(0, true, t, o); }
static void any_two(const tiles *t, const work *o) { body(0, false, t, o); }

/* ---- operands ---- */

/* A tiles of groups [g, g + n) of m rows: [group][tile][h, l][m][width]; l has `low` bits. */
static void a_tiles(const tiles *t, const float *x, int64_t m, int low, int64_t g, int64_t n, uint8_t *to) {
    for (int64_t r = 0; r < m; r++) {
        const int16_t *v = (const int16_t *)(const void *)(x + r * t->ldx) + g * t->group;
        uint8_t *h = to + r * t->width;
        ln_cpu_limbs_amx(t->w->enc.bits, low, v, t->width, n * t->n_tiles, h, h + m * t->width, 2 * m * t->width);
    }
}

/* Scales and biases of a packed group lie behind its words (pack.h). */
static const uint8_t *numbers_of(const tiles *t, const uint8_t *group) { return group + LINE * (t->group * t->w->enc.bits / 32); }

/* u and t of groups [g, g + n) of m rows. */
static void terms_of(const tiles *t, const float *x, int64_t m, int64_t g, int64_t n) {
    for (int64_t r = 0; r < m; r++) {
        const float *u = x + r * t->ldx + t->C / 2 + g;
        for (int64_t i = 0; i < n; i++) t->terms[i * 2 * SIDE + r] = u[i], t->terms[i * 2 * SIDE + SIDE + r] = u[t->groups + i];
    }
}

/* A group of a block as B tiles of q, or of 16 q and of q in turn. */
INLINE void b_tiles(const bool one, const tiles *t, const uint8_t *from, uint8_t *to) {
    const int bits = t->w->enc.bits;
    const int64_t q = one ? t->width * SIDE : 0; /* from a tile of 16 q to that of q */
    for (int64_t k = 0; k < (one ? t->group : 1); k += t->width, to += q) /* tile by tile, or all at once */
        if (bits == 4)
            for (int64_t i = 0; i < (one ? t->width : t->group); i += 8, from += LINE, to += 2 * LINE) {
                const vi w = vi_load(from), low = vi_mask(w, 0x0f0f0f0f);
                vi_store(to + q, low);
                vi_store(to + q + LINE, vi_mask(vi_right(w, 4), 0x0f0f0f0f));
                if (one) vi_store(to, vi_left(low, 4)), vi_store(to + LINE, vi_mask(w, 0xf0f0f0f0));
            }
        else
            for (int64_t i = k; i < (one ? k + t->width : t->group); i += 4, to += LINE) {
                const vi low = vi_or(code(from, bits, i), vi_left(code(from, bits, i + 1), 8));
                const vi all = vi_or(low, vi_left(vi_or(code(from, bits, i + 2), vi_left(code(from, bits, i + 3), 8)), 16));
                vi_store(to + q, all);
                if (one) vi_store(to, vi_left(all, 4));
            }
}

static void shape(tiles *t, int64_t m) {
    tile_config c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        c.rows[i] = (uint8_t)(i > 5 ? t->width / 4 : m);
        c.bytes[i] = (uint16_t)(i == 4 || i == 5 ? t->width : LINE);
    }
    if (memcmp(&c, &t->config, sizeof c) == 0) return;
    t->config = c;
    tile_configure(&t->config);
}

/* ---- few rows ---- */

/* Stream j of group g, sums in registers h and l. */
#define STREAM(j, h, l)                                                                                                                  \
    if (n > j) {                                                                                                                         \
        const work *o = &work_of[j];                                                                                                     \
        uint8_t *now = t->panel + (g % 2 * FEW + j) * tile_bytes, *next = t->panel + ((g + 1) % 2 * FEW + j) * tile_bytes;               \
        PRODUCTS(false, h, l, packed ? o->b + g * t->group_bytes : now, o->a + g * 2 * t->n_tiles * o->a_tile, o->b + g * t->group_bytes + AHEAD) \
        STORE(false, h, l, g % 2 * FEW + j)                                                                                              \
        if (!packed && g + 1 < t->groups) b_tiles(false, t, o->b + (g + 1) * t->group_bytes, next);                                      \
    }

/* n blocks, b and every `apart` after it, for `rows` rows. */
static void few(tiles *t, int64_t rows, int64_t b, int64_t n, int64_t apart) {
    const int64_t tile_bytes = t->group * SIDE;
    const bool packed = t->w->enc.bits == 8;
    work work_of[FEW];
    float rest[SIDE * SIDE];
    for (int64_t j = 0; j < n; j++) {
        const uint8_t *at = t->w->codes + (b + j * apart) * t->block;
        const bool whole = (b + j * apart + 1) * SIDE <= t->D;
        work_of[j] = (work){.b = at, .numbers = numbers_of(t, at), .a = t->a, .a_tile = rows * t->width, .rows = rows,
                            .y = whole ? t->y + (b + j * apart) * SIDE : rest, .ldy = whole ? t->ldy : SIDE, .to = t->group_bytes / LINE};
        for (int64_t r = 0; r < rows; r++) vf_store(work_of[j].y + r * work_of[j].ldy, vf_zero());
        if (!packed) b_tiles(false, t, at, t->panel + j * tile_bytes);
    }
    for (int64_t g = 0; g <= t->groups; g++) {
        if (g < t->groups) {
            STREAM(0, 0, 1)
            STREAM(1, 2, 3)
            STREAM(2, 0, 1)
            STREAM(3, 2, 3)
        }
        for (int64_t j = 0; j < n && g > 0; j++) {
            const work *o = &work_of[j];
            finish(0, false, t, o->numbers + (g - 1) * t->group_bytes, t->sums + ((g - 1) % 2 * FEW + j) * SUMS, t->terms + (g - 1) * 2 * SIDE, rows, o->y, o->ldy, NULL);
        }
    }
    for (int64_t j = 0; j < n; j++) /* the last block of all, at most */
        for (int64_t r = 0; r < rows && work_of[j].y == rest; r++) {
            const int64_t d = (b + j * apart) * SIDE;
            memcpy(t->y + r * t->ldy + d, rest + r * SIDE, (size_t)(t->D - d) * sizeof(float));
        }
}

static void few_rows(tiles *t, int64_t rows, int64_t lo, int64_t hi) {
    const int64_t each = (hi - lo) / FEW, more = (hi - lo) % FEW;
    a_tiles(t, t->x, rows, 8, 0, t->groups, t->a);
    terms_of(t, t->x, rows, 0, t->groups);
    shape(t, rows);
    for (int64_t b = lo; b < lo + each; b++) few(t, rows, b, FEW, each);
    if (more) few(t, rows, hi - more, more, 1);
}

/* ---- more ---- */

/* Blocks [b, b + n), groups [g, g + n_g) of some rows, whose A tiles are made. */
static void panel(tiles *t, int64_t rows, int64_t b, int64_t n, int64_t g, int64_t n_g) {
    const uint8_t *codes = t->w->codes + b * t->block + g * t->group_bytes;
    const int64_t row_tiles = (rows + SIDE - 1) / SIDE, lines = t->group_bytes / LINE, tile_bytes = t->group * SIDE * (t->one ? 2 : 1);
    const bool packed = t->w->enc.bits == 8;
    for (int64_t i = 0; i < n * n_g && !packed; i++) {
        const uint8_t *from = codes + i / n_g * t->block + i % n_g * t->group_bytes;
        if (t->one) b_tiles(true, t, from, t->panel + i * tile_bytes);
        else b_tiles(false, t, from, t->panel + i * tile_bytes);
    }
    const int64_t d = (b + n - 1) * SIDE, n_d = LN_MIN((int64_t)SIDE, t->D - d); /* of the last block, which y may have no room for 16 outputs of */
    for (int64_t k = 0; k < row_tiles; k++) {
        const int64_t r = k * SIDE, m = LN_MIN((int64_t)SIDE, rows - r);
        float *y = t->y + r * t->ldy, rest[SIDE * SIDE];
        work o = {.b = packed ? codes : t->panel, .numbers = numbers_of(t, codes), .a = t->a + r * 2 * n_g * t->group, .a_tile = m * t->width, .rows = m, .n = n_g,
                  .b_step = packed ? t->group_bytes : tile_bytes, .y = y + b * SIDE, .ldy = t->ldy, .ahead = codes + n * t->block /* the next panel */,
                  .from = lines * k / row_tiles, .to = lines * (k + 1) / row_tiles, .blocks = n, .last = n_d < SIDE ? rest : NULL,
                  .y_ahead = t->y + LN_MIN(r + SIDE, rows - m) * t->ldy + b * SIDE, .first = g == 0};
        o.b_block = packed ? t->block : n_g * tile_bytes;
        terms_of(t, t->x + r * t->ldx, m, g, n_g);
        shape(t, m);
        for (int64_t i = 0; i < m && o.last && g > 0; i++) memcpy(rest + i * SIDE, y + i * t->ldy + d, (size_t)n_d * sizeof *y);
        if (m == SIDE) (t->one ? whole_one : whole_two)(t, &o);
        else (t->one ? any_one : any_two)(t, &o);
        for (int64_t i = 0; i < m && o.last; i++) memcpy(y + i * t->ldy + d, rest + i * SIDE, (size_t)n_d * sizeof *y);
    }
}

static void many_rows(tiles *t, int64_t rows, int64_t lo, int64_t hi) {
    const int64_t most = LN_MAX(1, PART / t->group), blocks = t->one ? PANEL / 2 : PANEL; /* a panel of as many bytes */
    for (int64_t g = 0; g < t->groups; g += most) {
        const int64_t n_g = LN_MIN(most, t->groups - g);
        for (int64_t r = 0; r < rows; r += SIDE) a_tiles(t, t->x + r * t->ldx, LN_MIN((int64_t)SIDE, rows - r), t->one ? 4 : 8, g, n_g, t->a + r * 2 * n_g * t->group);
        for (int64_t b = lo; b < hi; b += blocks) panel(t, rows, b, LN_MIN(blocks, hi - b), g, n_g);
    }
}

static size_t a_bytes(int64_t rows, int64_t C) { return (size_t)(2 * (rows <= SIDE ? rows * C : LN_MAX((int64_t)SIDE * C, rows * LN_MIN(C, (int64_t)PART)))); }
static size_t panel_bytes(int64_t C, int64_t group) { return (size_t)(SIDE * LN_MAX(2 * FEW * group, PANEL * LN_MIN(C, (int64_t)PART))); }

static size_t terms_bytes(int64_t groups) { return (size_t)groups * 2 * SIDE * sizeof(float); }

static size_t tiles_fixed_scratch(const ln_node *n, const ln_value *values, const ln_bounds *b) {
    const ln_value *x = &values[n->in[0]];
    return SLOTS * SUMS * sizeof(int32_t) + terms_bytes(x->dims[1] / x->enc.group) + a_bytes(LN_MIN(ln_dim(x->dims[0], b), (int64_t)PASS_ROWS), x->dims[1]) + (x->enc.bits == 8 ? 0 : panel_bytes(x->dims[1], x->enc.group));
}

static void tiles_fixed_run(const ln_call *c) {
    const ln_arg *x = &c->in[0], *y = &c->out[0];
    const ln_affine *w = c->in[1].data;
    tiles t = {.w = w, .block = ln_pack_block_q(w->enc, w->dtype, x->cols), .group_bytes = ln_pack_group_q(w->enc, w->dtype), .groups = x->cols / w->enc.group,
               .D = y->cols, .C = x->cols, .ldx = x->pitch, .ldy = y->pitch, .group = w->enc.group, .width = LN_MIN(w->enc.group, LINE),
               .n_tiles = w->enc.group / LN_MIN(w->enc.group, LINE), .one = ln_fixed_bits(w->enc.bits) == 12, .sums = c->scratch};
    int64_t lo, hi;
    ln_share(ln_pack_blocks(t.D), 1, c->thread, c->n_threads, &lo, &hi);
    if (lo >= hi || y->rows < 1) return;
    t.terms = (float *)(void *)(t.sums + SLOTS * SUMS);
    t.a = (uint8_t *)t.terms + terms_bytes(t.groups);
    t.panel = t.a + a_bytes(LN_MIN(y->rows, (int64_t)PASS_ROWS), t.C);
    for (int64_t r = 0; r < y->rows; r += PASS_ROWS) {
        t.x = (const float *)x->data + r * x->pitch;
        t.y = (float *)y->data + r * t.ldy;
        const int64_t rows = LN_MIN((int64_t)PASS_ROWS, y->rows - r);
        if (rows <= SIDE) few_rows(&t, rows, lo, hi);
        else many_rows(&t, rows, lo, hi);
    }
    tile_release();
    if (c->node->n_in > 2) ln_cpu_add_bias(&c->in[2], y->data, t.ldy, y->rows, lo * SIDE, LN_MIN(hi * SIDE, t.D));
}
