/* linear_fixed_row, linear_fixed_row_swiglu and _geglu by tiles of bytes, for every width, group and number of rows: the reference's bits (base/fixed.h, ops.h).
 *
 * Weights are unpacked into B tiles of H and of L, a line being 4 columns of 16 outputs; rows of x are A tiles of h and of l where they lie. Two sums go
 * through all columns, of h H and of h L + l H (TDPBSUD), three products for 64 columns of 16 rows and 16 outputs; what H is more than it says, the middle, is
 * taken away at the end by the sums of h and of l. Sums are whole numbers: no order counts. Rows may lie in panels (ln_fixed_panel), as those of many columns do, which L2 does not hold:
 * the processor follows a panel by itself, where rows are 64 streams on as many pages.
 *
 *   more than 16 rows   two row tiles times a block of 16 outputs. A part is up to PART columns of a block, 36 KB unpacked that stay in L1 while the
 *                       rows pass, of which there are as many as fit a third of L2 (more of them meet others in its sets, where pages lie badly). Sums of a part that is not the last rest in scratch, which costs: a row tile times two
 *                       blocks of half a part would load half as many A tiles, but rests twice as often. Beside the products, vectors
 *                       finish sums of the row tiles before that are whole, of the part before too, and unpack the next part: half of it into the tiles that the last row tiles
 *                       leave, half while its own first ones pass (groups of 64). What goes on beside them hides in part only (docs/speed.md).
 *                       y's lines are asked for a few rows before they are written: they left the caches a layer ago, and writing them unasked keeps
 *                       the buffers that loads of x need. Where y lies in panels (graph.h) the processor asks by itself, in time. Of a pair (gate, up and their function) blocks take turns: a first one's numbers rest in scratch,
 *                       and what a second one's finish writes is y; the function of half the rows is made with the first, of the others with the second
 *                       Where less than NEAR_ROWS whole rows fit L2, so that weights would be unpacked again for every few row tiles, WIDE_ROWS rows
 *                       are taken part by part of their columns, WIDE_PART at most since sums want some of L1 too, each for up to GROUP blocks, whose sums rest in
 *                       L2 from part to part
 *   others              reading codes decides. FEW blocks are walked at once, each through a half of the thread's outputs, or a pair's two weights beside each
 *                       other. Beside the products of 64 columns those two further on are unpacked (a tile cannot be loaded from stores that are still on
 *                       their way), and a row of the blocks before is finished
 *
 * Where H and L are linear in the codes, up to 4 bits, a group's scales and biases were made into coefficients when the weight was packed (coefficients).
 *
 * Registers: 0-3 sums of two blocks, or of two row tiles, 4-5 A, 6-7 B. Included once,
 * after the vector words of 16 lanes and the tile words. */
#include "../../../base/pool.h"
#include "../../../ops/ops.h"
#include "../cpu.h"
#include "../simd/simd_activation.inc.h"
#include "../simd/simd_affine.inc.h"
#include "../pack/pack.h"

#ifndef LN_ROW_PART /* tests have smaller ones */
#define LN_ROW_PART 1152
#define LN_ROW_WIDE_PART 896
#define LN_ROW_A_BYTES (5 << 17)
#define LN_ROW_NEAR_ROWS 128
#define LN_ROW_WIDE_ROWS 256
#define LN_ROW_GROUP 24
#endif
enum { SIDE = 16, LINE = 64, TILE = SIDE * LINE, PART = LN_ROW_PART, WIDE_PART = LN_ROW_WIDE_PART, K_TILES = PART / LINE, A_BYTES = LN_ROW_A_BYTES, PASS_ROWS = 512, FEW = 2, TURNS = 3, SOON = 8 /* rows */, ALIGN = LN_PANEL_ROWS /* of passes and shares of rows */, AHEAD = 2048,
       SUMS = 2 * SIDE * SIDE /* of a row tile and a block: upper, lower; of two row tiles: both upper ones, both lower ones */, TERMS = 3 * PASS_ROWS,
       NEAR_ROWS = LN_ROW_NEAR_ROWS, WIDE_ROWS = LN_ROW_WIDE_ROWS, GROUP = LN_ROW_GROUP };

_Static_assert(2 * (int)SIDE == (int)LN_PANEL_ROWS && (int)SIDE == (int)LN_PANEL_COLS, "two row tiles are finished as one panel");
_Static_assert(WIDE_ROWS <= PASS_ROWS, "terms of a pass's rows");
_Static_assert(PART % LINE == 0 && WIDE_PART % LINE == 0 && WIDE_PART <= PART, "parts are whole tiles");

/* H and L of a group's codes in words of two 16-bit numbers, both alike. Radix 30: H = a q + b, L = c q + d for both bytes of a word at once. Radix 256:
 * W = round(q' a) + b, q' being the code less its middle, at the top of a word. */
typedef struct maker {
    vi a, b, c, d;
} maker;
typedef struct stream { /* a packed block */
    const uint8_t *group;    /* that comes next or goes on */
    vf unit;                 /* 1 / d */
    maker ready;             /* of groups of 64: of that one, made while the one before was unpacked, since making it takes long and waits for itself */
} stream;
typedef struct part { /* columns [k, k + n) of a block; of two weights' blocks in turn where there are two */
    int64_t block, k, n;
} part;
typedef enum gate_fn { NONE, SILU, GELU } gate_fn;

typedef struct tiles {
    const ln_affine *w, *second; /* second: of a pair, whose first goes through the function */
    gate_fn function;        /* NONE: there is one weight */
    float *first;            /* the first's numbers of a block, [row][SIDE] */
    int64_t block, group_bytes, D, C, P, ldx, ldy; /* ldx in bytes, ldy in numbers */
    const uint8_t *x;        /* rows as base/fixed.h says, or in panels, the first of which it begins */
    int64_t x_rows;          /* from that one on, and not only those of a pass */
    bool x_panels;
    float *y, radix;
    int64_t y_rows;          /* from y's first one on, and not only those of a pass */
    bool panels;             /* ln_arg.panels of y; its first row then begins a panel */
    uint8_t *room;           /* B tiles: of a part [K_TILES][H, L]; of few rows [TURNS][FEW][H, L] */
    int32_t *sums, *last;    /* [block of a group][row tile][SUMS]; [2][SUMS], those of all columns */
    int64_t wait_row, wait_rows, wait_block; /* whose they are: of how many rows from which one on, and of which block. They become numbers beside the next products */
    int64_t lo, hi, group;   /* blocks, a pair's both counted, and how many of them go through a part's columns before the next */
    int64_t row_tiles;       /* of the rows, an even number */
    int64_t columns;         /* of a part */
    ln_fixed_terms *terms;   /* of the rows: u, and what is taken away from the sums at the end */
    tile_config config;
    int64_t tile_bytes;      /* packed bytes of 64 columns of a block */
    stream coming;           /* of the part that is being unpacked */
} tiles;

/* Whose block a part is of, and which. */
INLINE const ln_affine *weight_of(const tiles *t, int64_t b) { return t->function && b % 2 ? t->second : t->w; }
INLINE int64_t block_of(const tiles *t, int64_t b) { return t->function ? b / 2 : b; }
INLINE const uint8_t *codes_of(const tiles *t, int64_t b) { return weight_of(t, b)->codes + block_of(t, b) * t->block; }
/* Where row r's numbers of block b go, and how far apart the next rows' lie; of panels up to the end of one. */
INLINE float *y_at(const tiles *t, int64_t r, int64_t b) { return t->y + (t->panels ? ln_panel_at(t->y_rows, t->ldy, r, block_of(t, b) * SIDE) : r * t->ldy + block_of(t, b) * SIDE); }
INLINE int64_t y_apart(const tiles *t) { return t->panels ? LN_PANEL_COLS : t->ldy; }
INLINE vf unit_of(const tiles *t, int64_t b) { return vf_load(weight_of(t, b)->units + block_of(t, b) * LN_PACK_UNITS); }
INLINE vf e_of(const tiles *t, int64_t b) { return vf_load(weight_of(t, b)->units + block_of(t, b) * LN_PACK_UNITS + SIDE); }

/* How row tiles lie: rows and limbs in bytes from each other, the next 64 columns' lines in bytes from these. */
typedef struct lying {
    int64_t row, lower, step;
} lying;
typedef enum lies { IN_ROWS, IN_PANELS, IN_EITHER } lies; /* IN_PANELS: of 32 rows, in lines at places that are constants */
INLINE lying lying_of(const lies how, const tiles *t, int64_t r) {
    if (how == IN_PANELS || (how == IN_EITHER && t->x_panels)) {
        const int64_t n = how == IN_PANELS ? (int64_t)LN_PANEL_ROWS : LN_MIN((int64_t)LN_PANEL_ROWS, t->x_rows - r);
        return (lying){LINE, n * LINE, 2 * n * LINE};
    }
    return (lying){t->ldx, t->P, LINE};
}

/* Rows of the A tile in register 4 and the sums 0 and 1, and of that in 5 and the sums 2 and 3. */
static void shape(tiles *t, int64_t m, int64_t m1) {
    if (t->config.palette && t->config.rows[0] == m && t->config.rows[2] == m1) return;
    tile_config c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        c.rows[i] = (uint8_t)(i > 5 ? SIDE : i == 2 || i == 3 || i == 5 ? m1 : m);
        c.bytes[i] = LINE;
    }
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
INLINE linear linear_from(const int bits, ln_dtype t, const uint8_t *numbers, vf unit) {
    const float half = (float)((1 << bits) - 1) / 2;
    const vf minus = vf_set1(-30), over = vf_set1(1 / 30.0f), s = scale_of(t, numbers, unit), m = vf_nearest(s);
    const vf c = vf_nearest(vf_fma(vf_sub(s, m), vf_set1(half), bias_of(t, numbers, unit)));
    linear k;
    k.mh = vf_nearest(vf_mul(m, over));
    k.ml = vf_fma(minus, k.mh, m);
    k.ch = vf_floor(vf_mul(vf_sub(c, vf_fma(vf_set1(-half), k.ml, vf_set1(113))), over));
    k.cl = vf_fma(minus, k.ch, c);
    return k;
}
/* Four bytes an output, in a lane: mh, ch + middle, ml, cl. All of them are what bytes hold: H and L are there for code 0 as for any. They take the place of the group's
 * scales and biases in packed blocks [lo, hi), which begin at `packed`; `units`: those blocks' (pack.h). */
static void coefficients(uint8_t *packed, const float *units, ln_enc enc, ln_dtype dtype, int64_t C, int64_t lo, int64_t hi) {
    for (int64_t b = lo; b < hi; b++) {
        uint8_t *numbers = packed + b * ln_pack_block_q(enc, dtype, C) + LINE * (enc.group * enc.bits / 32);
        const vf unit = vf_load(units + b * LN_PACK_UNITS);
        for (int64_t g = 0; g < C / enc.group; g++, numbers += ln_pack_group_q(enc, dtype)) {
            const linear k = linear_from(enc.bits, dtype, numbers, unit);
            const vi middle = vi_int(ln_fixed_middle(enc.bits)), h = vi_or(vi_mask(vi_whole(k.mh), 0xff), vi_left(vi_add(vi_whole(k.ch), middle), 8));
            vi_store(numbers, vi_or(h, vi_or(vi_left(vi_mask(vi_whole(k.ml), 0xff), 16), vi_left(vi_whole(k.cl), 24))));
        }
    }
}

/* `numbers`: of a group, up to 4 bits its coefficients, else its scales and biases. */
INLINE maker make(const int bits, ln_dtype t, const uint8_t *numbers, vf unit) {
    if (bits <= 4) {
        const vi k = vi_load(numbers);
        return (maker){vi_byte_as_words(k, 0), vi_byte_4_times(k, 1), vi_byte_as_words(k, 2), vi_byte_4_times(k, 3)};
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
/* Block b from column k on, a whole tile's. */
INLINE stream stream_at(const tiles *t, int64_t b, int64_t k) {
    return (stream){.group = codes_of(t, b) + k / t->w->enc.group * t->group_bytes, .unit = unit_of(t, b)};
}
INLINE maker made(const int bits, const int64_t group, const tiles *t, const stream *s) { return make(bits, t->w->dtype, s->group + LINE * (group * bits / 32), s->unit); }
/* The next 64 columns of a stream, from k on, as B tiles of H and of L; `first` of them. `group` is a power of two. */
INLINE void tiles_of(const int bits, const int64_t group, const tiles *t, stream *s, bool first, int64_t k, uint8_t *h) {
    if (group == LINE) {
        if (first) s->ready = made(bits, group, t, s);
        lines_of(bits, &s->ready, s->group, 0, LINE, h, h + TILE);
        s->group += t->group_bytes;
        if (k + LINE < t->C) s->ready = made(bits, group, t, s);
        return;
    }
    const int64_t n = group % LINE ? LN_MIN((int64_t)LINE, t->C - k) : LINE, some = LN_MIN(group, (int64_t)LINE);
    for (int64_t i = 0, from = k & (LN_MAX(group, (int64_t)LINE) - 1); i < n; i += some, from = 0, h += some * SIDE) {
        const maker numbers = made(bits, group, t, s);
        lines_of(bits, &numbers, s->group, from, some, h, h + TILE);
        if (from + some == group) s->group += t->group_bytes;
    }
    if (n < LINE) memset(h, 0, TILE / 2), memset(h + TILE, 0, TILE / 2);
}
/* A copy for each width; for groups of 64 of the usual ones, whose loops then have no ends. */
static void unpack(const tiles *t, stream *s, bool first, int64_t k, uint8_t *h) {
    const int64_t group = t->w->enc.group;
    switch (t->w->enc.bits) {
    case 2: tiles_of(2, group, t, s, first, k, h); break;
    case 3: tiles_of(3, group, t, s, first, k, h); break;
    case 4: group == LINE ? tiles_of(4, LINE, t, s, first, k, h) : tiles_of(4, group, t, s, first, k, h); break;
    case 5: tiles_of(5, group, t, s, first, k, h); break;
    case 6: tiles_of(6, group, t, s, first, k, h); break;
    default: group == LINE ? tiles_of(8, LINE, t, s, first, k, h) : tiles_of(8, group, t, s, first, k, h);
    }
}

#include "gemm_i8pair_epilogue.inc.h"

/* Two sums of a block, in registers u and l, `lower` numbers from each other. */
#define SUMS_LOAD(u, l, from, lower)                                                                                                     \
    {                                                                                                                                    \
        tile_load(u, from, LINE);                                                                                                        \
        tile_load(l, (from) + (lower), LINE);                                                                                            \
    }
#define SUMS_STORE(u, l, to, lower)                                                                                                      \
    {                                                                                                                                    \
        tile_store(u, to, LINE);                                                                                                         \
        tile_store(l, (to) + (lower), LINE);                                                                                             \
    }

#include "gemm_i8pair_amx_small_m.inc.h"

/* ---- more ---- */

/* The part after p: the same columns of the group's next block, or the next ones of its first, or the next group's first. */
static part part_after(const tiles *t, part p) {
    const int64_t first = p.block - (p.block - t->lo) % t->group, end = LN_MIN(first + t->group, t->hi);
    if (++p.block == end) p = (part){.block = first, .k = p.k + t->columns};
    if (p.k >= t->C) p = (part){.block = end};
    p.n = LN_MIN(t->columns, t->C - p.k);
    return p;
}
/* The stream of a part: field by field, since what is copied as a whole right after it was written waits for all stores before, and those of sums wait for products. */
static void begin(tiles *t, const part *p) {
    const stream s = stream_at(t, p->block, p->k);
    t->coming.group = s.group;
    t->coming.unit = s.unit;
}
/* Tile i of a part, into its room: 0, 1, 2, ... */
static void unpack_tile(tiles *t, const part *p, int64_t i) {
    if (i == 0) begin(t, p);
    unpack(t, &t->coming, i == 0, p->k + i * LINE, t->room + i * 2 * TILE);
}
/* Half h of a part's tiles: beside products a few vectors at each 64 columns find room that many at once do not. For groups of a tile's columns. */
INLINE void unpack_half(const int bits, tiles *t, const part *p, int64_t j) {
    stream *s = &t->coming;
    const int64_t i = j / 2, half = j % 2;
    if (j == 0) {
        begin(t, p);
        s->ready = made(bits, LINE, t, s);
    }
    uint8_t *h = t->room + i * 2 * TILE + half * TILE / 2;
    lines_of(bits, &s->ready, s->group, half * LINE / 2, LINE / 2, h, h + TILE);
    if (half == 0) return;
    s->group += t->group_bytes;
    if (p->k + (i + 1) * LINE < t->C) s->ready = made(bits, LINE, t, s);
}
static void unpack_half_4(tiles *t, const part *p, int64_t j) { unpack_half(4, t, p, j); }
static void unpack_half_8(tiles *t, const part *p, int64_t j) { unpack_half(8, t, p, j); }
typedef void half_fn(tiles *t, const part *p, int64_t j);
static half_fn *half_of(const tiles *t) { return t->w->enc.group != LINE ? NULL : t->w->enc.bits == 4 ? unpack_half_4 : t->w->enc.bits == 8 ? unpack_half_8 : NULL; }

static int64_t tiles_in(const part *p) { return (p->n + LINE - 1) / LINE; }
/* How many of a part's tiles are unpacked before it begins. The others are while its first row tiles pass, half a tile at each 64 columns, and complete two tiles before they are
 * multiplied: a tile cannot be loaded from stores that are still on their way. */
static int64_t early_tiles(const tiles *t, const part *p, int64_t rows) { return rows > 2 * SIDE && half_of(t) ? LN_MIN((tiles_in(p) + 3) / 2, tiles_in(p)) : tiles_in(p); }
/* What goes on beside the products of two row tiles and a part. */
typedef struct beside {
    const part *unpacks;     /* whose tiles are unpacked: at first the part's own last ones, by the last row tiles, which leave room tile by tile, the next part's; NULL: nobody's */
    half_fn *half;           /* unpacks half a tile; NULL: tiles are unpacked whole */
    int64_t j, end, halves;  /* halves [j, end) are left, of which so many are unpacked at each 64 columns, 2 at most */
    const uint8_t *ahead, *ahead_end; /* the part after that, a line of which is asked for at each 64 columns, and so many before the first: evenly, since what is on its way holds what loads of x need */
    int64_t more;
    int64_t each;            /* twos of rows that are finished at 64 columns */
} beside;

/* M row tiles from r on times a part. */
INLINE void step(const int M, const becomes what, const bool unpacks, const lies how, tiles *t, const part *p, int64_t r, beside *o) {
    const lying x = lying_of(how, t, r);
    const int64_t k_tiles = (p->n + LINE - 1) / LINE;
    const uint8_t *a = t->x + r * t->ldx + p->k / LINE * x.step, *w = t->room, *ahead = o->ahead;
    int32_t *sums = t->sums + ((p->block - t->lo) % t->group * t->row_tiles + r / SIDE) * SUMS, *to = p->k + p->n >= t->C ? t->last : sums; /* what was there is finished by then */
    finishing before = finishing_of(t, t->last, SUMS * sizeof(int32_t), t->wait_row, t->wait_rows, t->wait_block);
    const int64_t soon = SOON * t->ldy; /* to rows that come that much later; of a part's first ones it is asked for before. A pair's lie in panels */
    const uint8_t *resting = (const uint8_t *)(sums + 2 * SUMS); /* those of the next row tiles, which are asked for where there are any */
    const int64_t rest = p->k ? (2 * SUMS * (int64_t)sizeof *sums / LINE + k_tiles - 1) / k_tiles : 0;
    for (int64_t j = 0; j < o->more; j++, ahead += LINE) tile_ahead(ahead);
    if (p->k) {
        SUMS_LOAD(0, 1, sums, SUMS)
        if (M > 1) SUMS_LOAD(2, 3, sums + SUMS / 2, SUMS)
    } else {
        tile_zero(0);
        tile_zero(1);
        tile_zero(2);
        tile_zero(3);
    }
    /* Tiles are loaded some at a time, and products follow each other: where a neighbour has half of the core, a load between two products costs more than itself.
     * Loads come before the vectors' work, beside which they hide. */
#define FRONT(a, w)                                                                                                                      \
    {                                                                                                                                    \
        tile_load(6, w, LINE);                                                                                                           \
        tile_load_once(4, a, x.row);                                                                                                     \
        if (M > 1) tile_load_once(5, (a) + SIDE * x.row, x.row);                                                                         \
        tile_load(7, (w) + TILE, LINE);                                                                                                  \
    }
    FRONT(a, w)
    for (int64_t i = 0; i < k_tiles; i++) {
        tile_dp_su(0, 4, 6);
        if (M > 1) tile_dp_su(2, 5, 6);
        tile_dp_su(1, 4, 7);
        if (M > 1) tile_dp_su(3, 5, 7);
        tile_load_once(4, a + x.lower, x.row);
        if (M > 1) tile_load_once(5, a + x.lower + SIDE * x.row, x.row);
        if (ahead < o->ahead_end) tile_ahead(ahead), ahead += LINE;
        for (int64_t j = 0; j < rest; j++, resting += LINE) vf_ahead(resting);
        if (unpacks && o->half && o->j < o->end) o->half(t, o->unpacks, o->j++);
        for (int64_t j = o->each; j > 0 && before.left > 1; j--) {
            for (int two = 0; two < 2; two++) {
                if (what == Y) tile_ahead_to(before.y + soon);
                finish(what, &before, 1);
            }
        }
        tile_dp_su(1, 4, 6);
        if (M > 1) tile_dp_su(3, 5, 6);
        a += x.step, w += 2 * TILE;
        if (i + 1 < k_tiles) FRONT(a, w)
        if (unpacks && o->halves > 1 && (o->half ? o->end - o->j > k_tiles - 1 - i : o->j < o->end)) { /* a second half only as long as one at each 64 columns is too few */
            if (o->half) o->half(t, o->unpacks, o->j++);
            else unpack_tile(t, o->unpacks, o->j / 2), o->j += 2;
        }
    }
#undef FRONT
    finish(what, &before, before.left); /* a row without another */
    o->ahead = ahead;
    SUMS_STORE(0, 1, to, SUMS)
    if (M > 1) SUMS_STORE(2, 3, to + SUMS / 2, SUMS)
}
typedef void step_fn(tiles *t, const part *p, int64_t r, beside *o);
/* A pair's rows do not lie in panels in any program of today: those that do go a way that is not made for it. */
#define STEP(M, what, unpacks, how, name) \
    static void step_##what##_##name(tiles *t, const part *p, int64_t r, beside *o) { step(M, what, unpacks, how, t, p, r, o); }
#define STEPS(what) STEP(1, what, true, IN_EITHER, one) STEP(2, what, true, IN_EITHER, two) STEP(2, what, false, IN_ROWS, many) STEP(2, what, true, IN_ROWS, last)
STEPS(Y) STEPS(FIRST) STEPS(FIRST_SILU) STEPS(FIRST_GELU) STEPS(SECOND) STEPS(SECOND_SILU) STEPS(SECOND_GELU)
STEP(2, Y, false, IN_PANELS, panel) STEP(2, Y, true, IN_PANELS, last_panel)
#define STEP_ROW(what) [what] = {step_##what##_one, step_##what##_two, step_##what##_many, step_##what##_last}
static step_fn *const steps[][4] = {STEP_ROW(Y), STEP_ROW(FIRST), STEP_ROW(FIRST_SILU), STEP_ROW(FIRST_GELU), STEP_ROW(SECOND), STEP_ROW(SECOND_SILU), STEP_ROW(SECOND_GELU)};
#undef STEP
#undef STEPS
#undef STEP_ROW
/* Which of them m rows from r on go through. */
static step_fn *step_of(const tiles *t, becomes what, int64_t r, int64_t m, bool unpacks) {
    if (m <= SIDE) return steps[what][0];
    if (!t->x_panels) return steps[what][unpacks ? 3 : 2];
    if (what != Y || m < (int64_t)LN_PANEL_ROWS || t->x_rows - r < (int64_t)LN_PANEL_ROWS) return steps[what][1];
    return unpacks ? step_Y_last_panel : step_Y_panel;
}

/* All rows times the part p, whose early tiles are unpacked; then the next one's are, but for those that p has no room for; NULL: there is none. `after` is asked for. */
static void rows_of_part(tiles *t, const part *p, int64_t rows, const part *next, const part *after) {
    const bool whole = p->k + p->n >= t->C;
    const int64_t k_tiles = tiles_in(p), some = 2 * SIDE, n = (rows + some - 1) / some * k_tiles;
    beside o = {.ahead = codes_of(t, after->block) + after->k / LINE * t->tile_bytes, .each = (SIDE + k_tiles - 1) / k_tiles, .half = half_of(t)};
    o.ahead_end = o.ahead + after->n * t->tile_bytes / LINE;
    o.more = LN_MAX((int64_t)0, (after->n * t->tile_bytes / (LINE * LINE) - n) * k_tiles / n + 1);
    if (whole && !t->function)
        for (int64_t i = 0; i < LN_MIN(rows, (int64_t)SOON); i++) tile_ahead_to(y_at(t, i, p->block));
    for (int64_t r = 0; r < rows; r += some) {
        const int64_t m = LN_MIN(some, rows - r);
        o.unpacks = NULL;
        if (r == 0 && early_tiles(t, p, rows) < k_tiles) o.unpacks = p, o.j = 2 * early_tiles(t, p, rows), o.end = 2 * k_tiles, o.halves = 1;
        if (r + m == rows && next) o.unpacks = next, o.j = 0, o.end = 2 * LN_MIN(early_tiles(t, next, rows), k_tiles), o.halves = o.half ? (o.end + k_tiles - 1) / k_tiles : 2;
        shape(t, LN_MIN(m, (int64_t)SIDE), m > SIDE ? m - SIDE : m);
        /* half of a function's work is done beside either block */
        step_of(t, becomes_of(t, t->wait_block, t->wait_row < rows / 2), r, m, o.unpacks != NULL)(t, p, r, &o);
        t->wait_rows = 0;
        if (whole) t->wait_row = r, t->wait_rows = m, t->wait_block = p->block;
    }
}

/* Columns of a part, PART or WIDE_PART at most: as even as whole tiles can be. */
static int64_t part_columns(int64_t C, int64_t most) {
    const int64_t parts = (C + most - 1) / most;
    return ((C + parts - 1) / parts + LINE - 1) / LINE * LINE;
}
/* How rows and blocks [lo, hi), of which there is one, are walked through. */
static void plan_walk(tiles *t, int64_t rows, int64_t lo, int64_t hi) {
    t->lo = lo, t->hi = hi, t->row_tiles = (rows + 2 * SIDE - 1) / (2 * SIDE) * 2;
    const int64_t groups = (hi - lo + GROUP - 1) / GROUP; /* as even as can be */
    const bool wide = 2 * rows * t->P > A_BYTES;
    t->columns = part_columns(t->C, wide ? WIDE_PART : PART);
    t->group = wide ? (hi - lo + groups - 1) / groups : 1;
}
static void many_rows(tiles *t, int64_t rows, int64_t lo, int64_t hi) {
    plan_walk(t, rows, lo, hi);
    part p = {.block = lo, .n = LN_MIN(t->columns, t->C)};
    t->wait_row = t->wait_rows = 0, t->wait_block = lo;
    for (int64_t i = 0; i < early_tiles(t, &p, rows); i++) unpack_tile(t, &p, i);
    while (p.block < hi) {
        const part next = part_after(t, p), after = part_after(t, next);
        const bool more = next.block < hi;
        rows_of_part(t, &p, rows, more ? &next : NULL, &after);
        for (int64_t i = tiles_in(&p); more && i < early_tiles(t, &next, rows); i++) unpack_tile(t, &next, i);
        p = next;
    }
    finishing rest = finishing_of(t, t->last, SUMS * sizeof(int32_t), t->wait_row, t->wait_rows, t->wait_block);
    finish_as(becomes_of(t, t->wait_block, t->wait_row < rows / 2), &rest);
}

/* Rows at a time: whole tiles whose limbs fit, or a part's columns of theirs; in passes as even as can be, each of whole panels but the last. */
static int64_t most_rows(int64_t P) {
    const int64_t fit = A_BYTES / (2 * P) / ALIGN * ALIGN;
    return fit < NEAR_ROWS ? (int64_t)WIDE_ROWS : LN_MIN((int64_t)PASS_ROWS, fit);
}
static int64_t pass_rows(int64_t rows, int64_t P) {
    const int64_t most = most_rows(P), passes = (rows + most - 1) / most;
    return ((rows + passes - 1) / passes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Of a pair the function that its first goes through; numbers of that first, which rest in scratch before all else. */
static gate_fn function_of(const ln_node *n) { return n->op == LN_OP_LINEAR_FIXED_ROW_SWIGLU ? SILU : n->op == LN_OP_LINEAR_FIXED_ROW_GEGLU ? GELU : NONE; }
static size_t first_bytes(const ln_node *n, int64_t rows) { return function_of(n) ? (size_t)LN_MIN(rows, (int64_t)PASS_ROWS) * SIDE * sizeof(float) : 0; }
/* How a call's operands lie. */
static tiles tiles_of_call(const ln_call *c) {
    const ln_arg *x = &c->in[0], *y = &c->out[0];
    const ln_affine *w = c->in[1].data;
    const gate_fn function = function_of(c->node);
    return (tiles){.w = w, .second = function ? c->in[2].data : NULL, .function = function, .first = c->scratch, .room = (uint8_t *)c->scratch + first_bytes(c->node, y->rows),
                   .block = ln_pack_block_q(w->enc, w->dtype, x->cols), .group_bytes = ln_pack_group_q(w->enc, w->dtype), .D = y->cols, .C = x->cols,
                   .P = ln_fixed_limb(x->cols), .ldx = x->pitch * (int64_t)sizeof(float), .ldy = y->pitch, .x = x->data, .x_rows = x->rows, .x_panels = x->panels, .y = y->data, .y_rows = y->rows, .panels = y->panels,
                   .radix = (float)ln_fixed_radix(w->enc.bits)};
}

enum { OF_MANY = 2 * K_TILES * TILE, OF_FEW = TURNS * FEW * 2 * TILE, ROOM_BYTES = OF_MANY > OF_FEW ? OF_MANY : OF_FEW };
static size_t tiles_row_scratch(const ln_node *n, const ln_value *values, const ln_bounds *b) {
    const ln_value *x = &values[n->in[0]];
    const int64_t rows_planned = ln_dim(x->dims[0], b), P = ln_fixed_limb(x->dims[1]), rows = LN_MIN(rows_planned, most_rows(P)), row_tiles = (rows + 2 * SIDE - 1) / (2 * SIDE) * 2;
    return first_bytes(n, rows_planned) + ROOM_BYTES + (size_t)((row_tiles * (2 * rows * P > A_BYTES ? GROUP : 1) + 2) * SUMS + TERMS) * sizeof(int32_t);
}

static int64_t passes_of(int64_t rows, int64_t P) { return (rows + pass_rows(rows, P) - 1) / pass_rows(rows, P); }
/* A thread's outputs, of rows [row, end). Where weights are unpacked for several passes anyway, and halves of the rows need no more, an even number of parts
 * has halves, as row-wise ops share rows: on two threads x and y then stay with one core. */
static void share_of(const ln_call *c, int64_t *row, int64_t *end, int64_t *lo, int64_t *hi) {
    const ln_arg *y = &c->out[0];
    const int64_t P = ln_fixed_limb(c->in[0].cols), passes = passes_of(y->rows, P);
    const int64_t panels = (y->rows + ALIGN - 1) / ALIGN, half = LN_MIN(y->rows, (panels + 1) / 2 * ALIGN);
    const int halves = passes > 1 && c->n_threads % 2 == 0 && 2 * passes_of(half, P) <= passes ? 2 : 1, each = c->n_threads / halves;
    ln_share(y->rows, ALIGN, c->thread / each, halves, row, end);
    ln_share(ln_pack_blocks(y->cols), y->rows <= SIDE && !function_of(c->node) ? FEW : 1, c->thread % each, each, lo, hi);
}

/* One product, or a pair: in[1] through the function, times in[2]. */
static void tiles_row_run(const ln_call *c) {
    const ln_arg *x = &c->in[0], *y = &c->out[0];
    if (y->rows < 1) return;
    tiles t = tiles_of_call(c);
    const ln_enc enc = t.w->enc;
    const int of = t.function ? 2 : 1; /* blocks for each of y's */
    int64_t row, end, lo, hi;
    share_of(c, &row, &end, &lo, &hi);
    if (lo >= hi || row >= end) return;
    t.tile_bytes = t.group_bytes * LINE / enc.group;
    t.last = (int32_t *)(void *)(t.room + ROOM_BYTES);
    t.terms = (ln_fixed_terms *)(void *)(t.last + 2 * SUMS);
    t.sums = t.last + 2 * SUMS + TERMS;
    const int64_t some = pass_rows(end - row, t.P);
    for (int64_t r = row; r < end; r += some) {
        t.x = (const uint8_t *)x->data + r * t.ldx;
        t.y = (float *)y->data + r * t.ldy;
        t.x_rows = t.y_rows = y->rows - r;
        const int64_t rows = LN_MIN(some, end - r);
        for (int64_t i = 0; i < rows; i++) t.terms[i] = terms_of(&t, i, ln_fixed_middle(enc.bits));
        if (rows <= SIDE) few_rows(&t, rows, of * lo, of * hi);
        else many_rows(&t, rows, of * lo, of * hi);
    }
    tile_release();
    if (!t.function && c->node->n_in > 2) ln_cpu_add_bias(&c->in[2], (float *)y->data + row * t.ldy, t.ldy, end - row, lo * SIDE, LN_MIN(hi * SIDE, t.D));
}
