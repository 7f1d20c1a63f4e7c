/* linear_fixed_row, linear_fixed_row_swiglu and _geglu by tiles of bytes, for every width, group and number of rows: the reference's bits (base/fixed.h, ops.h).
 *
 * Weights are unpacked into B tiles of H and of L, a line being 4 columns of 16 outputs; rows of x are A tiles of h and of l where they lie. Two sums go
 * through all columns, of h H and of h L + l H (TDPBSUD), three products for 64 columns of 16 rows and 16 outputs; what H is more than it says, the middle, is
 * taken away at the end by the sums of h and of l. Sums are whole numbers: no order counts. Rows may lie in panels (ln_fixed_panel), as those of many columns do, which L2 does not hold:
 * the processor follows a panel by itself, where rows are 64 streams on as many pages.
 *
 *   more than 16 rows   two row tiles times a block of 16 outputs. A part is up to KC columns of a block, 36 KB unpacked that stay in L1 while the
 *                       rows pass, of which there are as many as fit a third of L2 (more of them meet others in its sets, where pages lie badly). Sums of a part that is not the last rest in scratch, which costs: a row tile times two
 *                       blocks of half a part would load half as many A tiles, but rests twice as often. Beside the products, vectors
 *                       finish sums of the row tiles before that are whole, of the part before too, and unpack the next part: half of it into the tiles that the last row tiles
 *                       leave, half while its own first ones pass (groups of 64). What goes on beside them hides in part only (docs/speed.md).
 *                       y's lines are asked for a few rows before they are written: they left the caches a layer ago, and writing them unasked keeps
 *                       the buffers that loads of x need. Where y lies in panels (graph.h) the processor asks by itself, in time. Of a pair (gate, up and their function) blocks take turns: a first one's numbers rest in scratch,
 *                       and what a second one's finish writes is y; the function of half the rows is made with the first, of the others with the second
 *                       Where less than MIN_MC whole rows fit L2, so that weights would be unpacked again for every few row tiles, LARGE_MC rows
 *                       are taken part by part of their columns, LARGE_KC at most since sums want some of L1 too, each for up to NC_BLOCKS blocks, whose sums rest in
 *                       L2 from part to part
 *   others              reading codes decides. SMALL_M_BLOCKS blocks are walked at once, each through a half of the thread's outputs, or a pair's two weights beside each
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

#ifndef LN_I8PAIR_KC /* tests have smaller ones */
#define LN_I8PAIR_KC 1152
#define LN_I8PAIR_LARGE_KC 896
#define LN_I8PAIR_A_BYTES (5 << 17)
#define LN_I8PAIR_MIN_MC 128
#define LN_I8PAIR_LARGE_MC 256
#define LN_I8PAIR_NC_BLOCKS 24
#endif
enum { TILE_ROWS = 16, ROW_BYTES = 64, TILE_BYTES = TILE_ROWS * ROW_BYTES, KC = LN_I8PAIR_KC, LARGE_KC = LN_I8PAIR_LARGE_KC, KC_TILES = KC / ROW_BYTES, A_BYTES = LN_I8PAIR_A_BYTES, MAX_MC = 512, SMALL_M_BLOCKS = 2, RING_SLOTS = 3, PREFETCH_ROWS = 8 /* rows */, ROW_ALIGN = LN_PANEL_ROWS /* of passes and shares of rows */, PREFETCH_BYTES = 2048,
       SUMS = 2 * TILE_ROWS * TILE_ROWS /* of a row tile and a block: upper, lower; of two row tiles: both upper ones, both lower ones */, SUMS_INTS = 3 * MAX_MC,
       MIN_MC = LN_I8PAIR_MIN_MC, LARGE_MC = LN_I8PAIR_LARGE_MC, NC_BLOCKS = LN_I8PAIR_NC_BLOCKS };

_Static_assert(2 * (int)TILE_ROWS == (int)LN_PANEL_ROWS && (int)TILE_ROWS == (int)LN_PANEL_COLS, "two row tiles are finished as one panel");
_Static_assert(LARGE_MC <= MAX_MC, "terms of a pass's rows");
_Static_assert(KC % ROW_BYTES == 0 && LARGE_KC % ROW_BYTES == 0 && LARGE_KC <= KC, "parts are whole tiles");

/* H and L of a group's codes in words of two 16-bit numbers, both alike. Radix 30: H = a q + b, L = c q + d for both bytes of a word at once. Radix 256:
 * W = round(q' a) + b, q' being the code less its middle, at the top of a word. */
typedef struct dequant {
    vi a, b, c, d;
} dequant;
typedef struct dequant_stream { /* a packed block */
    const uint8_t *group;    /* that comes next or goes on */
    vf inverse_scale;                 /* 1 / d */
    dequant prepared;             /* of groups of 64: of that one, made while the one before was unpacked, since making it takes long and waits for itself */
} dequant_stream;
typedef struct weight_panel { /* columns [k, k + n) of a block; of two weights' blocks in turn where there are two */
    int64_t block, k, n;
} weight_panel;
typedef enum gate_act { ACT_NONE, ACT_SILU, ACT_GELU } gate_act;

typedef struct i8pair_gemm {
    const ln_affine *w, *up; /* second: of a pair, whose first goes through the function */
    gate_act function;        /* ACT_NONE: there is one weight */
    float *gate_out;            /* the first's numbers of a block, [row][TILE_ROWS] */
    int64_t block, group_bytes, D, C, P, ldx, ldy; /* ldx in bytes, ldy in numbers */
    const uint8_t *x;        /* rows as base/fixed.h says, or in panels, the first of which it begins */
    int64_t x_rows;          /* from that one on, and not only those of a pass */
    bool x_panels;
    float *y, radix;
    int64_t y_rows;          /* from y's first one on, and not only those of a pass */
    bool panels;             /* ln_arg.panels of y; its first row then begins a panel */
    uint8_t *panel;           /* B tiles: of a part [KC_TILES][H, L]; of few rows [RING_SLOTS][SMALL_M_BLOCKS][H, L] */
    int32_t *sums, *last;    /* [block of a group][row tile][SUMS]; [2][SUMS], those of all columns */
    int64_t done_row, done_rows, done_block; /* whose they are: of how many rows from which one on, and of which block. They become numbers beside the next products */
    int64_t lo, hi, group;   /* blocks, a pair's both counted, and how many of them go through a part's columns before the next */
    int64_t row_tiles;       /* of the rows, an even number */
    int64_t kc;         /* of a part */
    ln_fixed_terms *row_sums;   /* of the rows: u, and what is taken away from the sums at the end */
    tile_config config;
    int64_t tile_bytes;      /* packed bytes of 64 columns of a block */
    dequant_stream next_stream;           /* of the part that is being unpacked */
} i8pair_gemm;

/* Whose block a part is of, and which. */
INLINE const ln_affine *weight_of_block(const i8pair_gemm *t, int64_t b) { return t->function && b % 2 ? t->up : t->w; }
INLINE int64_t output_block(const i8pair_gemm *t, int64_t b) { return t->function ? b / 2 : b; }
INLINE const uint8_t *codes_of_block(const i8pair_gemm *t, int64_t b) { return weight_of_block(t, b)->codes + output_block(t, b) * t->block; }
/* Where row r's numbers of block b go, and how far apart the next rows' lie; of panels up to the end of one. */
INLINE float *y_at(const i8pair_gemm *t, int64_t r, int64_t b) { return t->y + (t->panels ? ln_panel_at(t->y_rows, t->ldy, r, output_block(t, b) * TILE_ROWS) : r * t->ldy + output_block(t, b) * TILE_ROWS); }
INLINE int64_t y_pitch(const i8pair_gemm *t) { return t->panels ? LN_PANEL_COLS : t->ldy; }
INLINE vf inverse_scale_of(const i8pair_gemm *t, int64_t b) { return vf_load(weight_of_block(t, b)->units + output_block(t, b) * LN_PACK_OUTPUT_SCALES); }
INLINE vf output_scale_of(const i8pair_gemm *t, int64_t b) { return vf_load(weight_of_block(t, b)->units + output_block(t, b) * LN_PACK_OUTPUT_SCALES + TILE_ROWS); }

/* How row tiles lie: rows and limbs in bytes from each other, the next 64 columns' lines in bytes from these. */
typedef struct a_layout {
    int64_t row, low_offset, step;
} a_layout;
typedef enum layout_kind { LAYOUT_ROWS, LAYOUT_PANELS, LAYOUT_ANY } layout_kind; /* LAYOUT_PANELS: of 32 rows, in lines at places that are constants */
INLINE a_layout a_layout_of(const layout_kind how, const i8pair_gemm *t, int64_t r) {
    if (how == LAYOUT_PANELS || (how == LAYOUT_ANY && t->x_panels)) {
        const int64_t n = how == LAYOUT_PANELS ? (int64_t)LN_PANEL_ROWS : LN_MIN((int64_t)LN_PANEL_ROWS, t->x_rows - r);
        return (a_layout){ROW_BYTES, n * ROW_BYTES, 2 * n * ROW_BYTES};
    }
    return (a_layout){t->ldx, t->P, ROW_BYTES};
}

/* Rows of the A tile in register 4 and the sums 0 and 1, and of that in 5 and the sums 2 and 3. */
static void configure_tiles(i8pair_gemm *t, int64_t m, int64_t m1) {
    if (t->config.palette && t->config.rows[0] == m && t->config.rows[2] == m1) return;
    tile_config c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        c.rows[i] = (uint8_t)(i > 5 ? TILE_ROWS : i == 2 || i == 3 || i == 5 ? m1 : m);
        c.bytes[i] = ROW_BYTES;
    }
    t->config = c;
    tile_configure(&t->config);
}

/* ---- weights ---- */

/* H and L of a group's codes, of 16 outputs (base/fixed.c, ln_fixed_weight). Radix 30: H = mh q + ch, without the middle, L = ml q + cl. */
typedef struct linear_digits {
    vf mh, ch, ml, cl;
} linear_digits;
/* `numbers`: the group's scales and biases; `unit`: 1 / d. */
INLINE vf scaled_scale(ln_dtype t, const uint8_t *numbers, vf inverse_scale) { return vf_mul(load_scale(t, numbers, 0), inverse_scale); }
INLINE vf scaled_bias(ln_dtype t, const uint8_t *numbers, vf inverse_scale) { return vf_mul(load_scale(t, numbers + TILE_ROWS * ln_dtype_bytes(t), 0), inverse_scale); }
INLINE linear_digits linear_digits_of(const int bits, ln_dtype t, const uint8_t *numbers, vf inverse_scale) {
    const float half = (float)((1 << bits) - 1) / 2;
    const vf minus = vf_set1(-30), over = vf_set1(1 / 30.0f), s = scaled_scale(t, numbers, inverse_scale), m = vf_round(s);
    const vf c = vf_round(vf_fma(vf_sub(s, m), vf_set1(half), scaled_bias(t, numbers, inverse_scale)));
    linear_digits k;
    k.mh = vf_round(vf_mul(m, over));
    k.ml = vf_fma(minus, k.mh, m);
    k.ch = vf_floor(vf_mul(vf_sub(c, vf_fma(vf_set1(-half), k.ml, vf_set1(113))), over));
    k.cl = vf_fma(minus, k.ch, c);
    return k;
}
/* Four bytes an output, in a lane: mh, ch + middle, ml, cl. All of them are what bytes hold: H and L are there for code 0 as for any. They take the place of the group's
 * scales and biases in packed blocks [lo, hi), which begin at `packed`; `units`: those blocks' (pack.h). */
static void pack_dequant_constants(uint8_t *packed, const float *units, ln_enc enc, ln_dtype dtype, int64_t C, int64_t lo, int64_t hi) {
    for (int64_t b = lo; b < hi; b++) {
        uint8_t *numbers = packed + b * ln_pack_block_bytes_q(enc, dtype, C) + ROW_BYTES * (enc.group * enc.bits / 32);
        const vf inverse_scale = vf_load(units + b * LN_PACK_OUTPUT_SCALES);
        for (int64_t g = 0; g < C / enc.group; g++, numbers += ln_pack_group_bytes_q(enc, dtype)) {
            const linear_digits k = linear_digits_of(enc.bits, dtype, numbers, inverse_scale);
            const vi middle = vi_set32(ln_fixed_middle(enc.bits)), h = vi_or(vi_and32(vi_round_i32(k.mh), 0xff), vi_shl32(vi_add(vi_round_i32(k.ch), middle), 8));
            vi_store(numbers, vi_or(h, vi_or(vi_shl32(vi_and32(vi_round_i32(k.ml), 0xff), 16), vi_shl32(vi_round_i32(k.cl), 24))));
        }
    }
}

/* `numbers`: of a group, up to 4 bits its coefficients, else its scales and biases. */
INLINE dequant load_dequant(const int bits, ln_dtype t, const uint8_t *numbers, vf inverse_scale) {
    if (bits <= 4) {
        const vi k = vi_load(numbers);
        return (dequant){vi_dup_byte_i16(k, 0), vi_dup_byte(k, 1), vi_dup_byte_i16(k, 2), vi_dup_byte(k, 3)};
    }
    const vf s = scaled_scale(t, numbers, inverse_scale), half = vf_set1((float)(1 << (bits - 1)));
    return (dequant){.a = vi_dup_low16(vi_round_i32(vf_mul(s, half))), .b = vi_xor32(vi_dup_low16(vi_round_i32(vf_fma(s, half, scaled_bias(t, numbers, inverse_scale)))), 0x80008000u)};
}

/* 4 columns of 16 outputs: lines of H and L. Radix 30: q are the four codes. Radix 256: `even` and `odd` columns as words of codes less their middle, at the top. */
INLINE void store_linear_lines(const dequant *k, vi q, uint8_t *h, uint8_t *l) {
    vi_store(h, vi_add16(vi_mul16(q, k->a), k->b));
    vi_store(l, vi_add16(vi_mul16(q, k->c), k->d));
}
INLINE void rounded_lines(const dequant *k, vi even, vi odd, vi *H, vi *L) {
    const vi e = vi_add16(vi_mulrs16(even, k->a), k->b), o = vi_add16(vi_mulrs16(odd, k->a), k->b);
    *H = vi_select_bits(0x00ff00ff, vi_shr16(e, 8), o);
    *L = vi_select_bits(0x00ff00ff, e, vi_shl16(o, 8));
}
/* A word of four codes of 8 bits as the two of them. */
INLINE vi even_of_8(vi w) { return vi_xor32(vi_shl16(w, 8), 0x80008000u); }
INLINE vi odd_of_8(vi w) { return vi_xor_and32(w, 0x80008000u, 0xff00ff00u); }

/* n columns, whole lines of a tile, of a packed group from its column `from` on. */
INLINE void dequant_lines(const int bits, const dequant *k, const uint8_t *words, int64_t from, int64_t n, uint8_t *h, uint8_t *l) {
    for (int64_t i = from; i < from + n; i += bits == 4 ? 8 : 4, h += ROW_BYTES, l += ROW_BYTES) {
        if (bits == 4) {
            const vi w = vi_load(words + i / 8 * ROW_BYTES);
            store_linear_lines(k, vi_and32(w, 0x0f0f0f0f), h, l);
            store_linear_lines(k, vi_and32(vi_shr32(w, 4), 0x0f0f0f0f), h += ROW_BYTES, l += ROW_BYTES);
            continue;
        }
        vi H, L;
        if (bits == 8) {
            const vi w = vi_load(words + i / 4 * ROW_BYTES);
            rounded_lines(k, even_of_8(w), odd_of_8(w), &H, &L);
        } else {
            const vi even = vi_or(load_code(words, bits, i), vi_shl32(load_code(words, bits, i + 2), 16)), odd = vi_or(load_code(words, bits, i + 1), vi_shl32(load_code(words, bits, i + 3), 16));
            if (bits < 4) {
                store_linear_lines(k, vi_or(even, vi_shl32(odd, 8)), h, l);
                continue;
            }
            rounded_lines(k, vi_xor32(vi_shl32(even, 16 - bits), 0x80008000u), vi_xor32(vi_shl32(odd, 16 - bits), 0x80008000u), &H, &L);
        }
        vi_store(h, H);
        vi_store(l, L);
    }
}
/* Block b from column k on, a whole tile's. */
INLINE dequant_stream stream_at(const i8pair_gemm *t, int64_t b, int64_t k) {
    return (dequant_stream){.group = codes_of_block(t, b) + k / t->w->enc.group * t->group_bytes, .inverse_scale = inverse_scale_of(t, b)};
}
INLINE dequant group_dequant(const int bits, const int64_t group, const i8pair_gemm *t, const dequant_stream *s) { return load_dequant(bits, t->w->dtype, s->group + ROW_BYTES * (group * bits / 32), s->inverse_scale); }
/* The next 64 columns of a stream, from k on, as B tiles of H and of L; `first` of them. `group` is a power of two. */
INLINE void dequant_tiles(const int bits, const int64_t group, const i8pair_gemm *t, dequant_stream *s, bool is_first, int64_t k, uint8_t *h) {
    if (group == ROW_BYTES) {
        if (is_first) s->prepared = group_dequant(bits, group, t, s);
        dequant_lines(bits, &s->prepared, s->group, 0, ROW_BYTES, h, h + TILE_BYTES);
        s->group += t->group_bytes;
        if (k + ROW_BYTES < t->C) s->prepared = group_dequant(bits, group, t, s);
        return;
    }
    const int64_t n = group % ROW_BYTES ? LN_MIN((int64_t)ROW_BYTES, t->C - k) : ROW_BYTES, some = LN_MIN(group, (int64_t)ROW_BYTES);
    for (int64_t i = 0, from = k & (LN_MAX(group, (int64_t)ROW_BYTES) - 1); i < n; i += some, from = 0, h += some * TILE_ROWS) {
        const dequant numbers = group_dequant(bits, group, t, s);
        dequant_lines(bits, &numbers, s->group, from, some, h, h + TILE_BYTES);
        if (from + some == group) s->group += t->group_bytes;
    }
    if (n < ROW_BYTES) memset(h, 0, TILE_BYTES / 2), memset(h + TILE_BYTES, 0, TILE_BYTES / 2);
}
/* A copy for each width; for groups of 64 of the usual ones, whose loops then have no ends. */
static void dequant_tile(const i8pair_gemm *t, dequant_stream *s, bool is_first, int64_t k, uint8_t *h) {
    const int64_t group = t->w->enc.group;
    switch (t->w->enc.bits) {
    case 2: dequant_tiles(2, group, t, s, is_first, k, h); break;
    case 3: dequant_tiles(3, group, t, s, is_first, k, h); break;
    case 4: group == ROW_BYTES ? dequant_tiles(4, ROW_BYTES, t, s, is_first, k, h) : dequant_tiles(4, group, t, s, is_first, k, h); break;
    case 5: dequant_tiles(5, group, t, s, is_first, k, h); break;
    case 6: dequant_tiles(6, group, t, s, is_first, k, h); break;
    default: group == ROW_BYTES ? dequant_tiles(8, ROW_BYTES, t, s, is_first, k, h) : dequant_tiles(8, group, t, s, is_first, k, h);
    }
}

#include "gemm_i8pair_epilogue.inc.h"

/* Two sums of a block, in registers u and l, `lower` numbers from each other. */
#define SUMS_LOAD(u, l, from, low_offset)                                                                                                     \
    {                                                                                                                                    \
        tile_load(u, from, ROW_BYTES);                                                                                                        \
        tile_load(l, (from) + (low_offset), ROW_BYTES);                                                                                            \
    }
#define SUMS_STORE(u, l, to, low_offset)                                                                                                      \
    {                                                                                                                                    \
        tile_store(u, to, ROW_BYTES);                                                                                                         \
        tile_store(l, (to) + (low_offset), ROW_BYTES);                                                                                             \
    }

#include "gemm_i8pair_amx_small_m.inc.h"

/* ---- more ---- */

/* The part after p: the same columns of the group's next block, or the next ones of its first, or the next group's first. */
static weight_panel panel_after(const i8pair_gemm *t, weight_panel p) {
    const int64_t first = p.block - (p.block - t->lo) % t->group, end = LN_MIN(first + t->group, t->hi);
    if (++p.block == end) p = (weight_panel){.block = first, .k = p.k + t->kc};
    if (p.k >= t->C) p = (weight_panel){.block = end};
    p.n = LN_MIN(t->kc, t->C - p.k);
    return p;
}
/* The stream of a part: field by field, since what is copied as a whole right after it was written waits for all stores before, and those of sums wait for products. */
static void begin_stream(i8pair_gemm *t, const weight_panel *p) {
    const dequant_stream s = stream_at(t, p->block, p->k);
    t->next_stream.group = s.group;
    t->next_stream.inverse_scale = s.inverse_scale;
}
/* Tile i of a part, into its room: 0, 1, 2, ... */
static void dequant_panel_tile(i8pair_gemm *t, const weight_panel *p, int64_t i) {
    if (i == 0) begin_stream(t, p);
    dequant_tile(t, &t->next_stream, i == 0, p->k + i * ROW_BYTES, t->panel + i * 2 * TILE_BYTES);
}
/* Half h of a part's tiles: beside products a few vectors at each 64 columns find room that many at once do not. For groups of a tile's columns. */
INLINE void dequant_half_tile(const int bits, i8pair_gemm *t, const weight_panel *p, int64_t j) {
    dequant_stream *s = &t->next_stream;
    const int64_t i = j / 2, half = j % 2;
    if (j == 0) {
        begin_stream(t, p);
        s->prepared = group_dequant(bits, ROW_BYTES, t, s);
    }
    uint8_t *h = t->panel + i * 2 * TILE_BYTES + half * TILE_BYTES / 2;
    dequant_lines(bits, &s->prepared, s->group, half * ROW_BYTES / 2, ROW_BYTES / 2, h, h + TILE_BYTES);
    if (half == 0) return;
    s->group += t->group_bytes;
    if (p->k + (i + 1) * ROW_BYTES < t->C) s->prepared = group_dequant(bits, ROW_BYTES, t, s);
}
static void dequant_half_tile_4(i8pair_gemm *t, const weight_panel *p, int64_t j) { dequant_half_tile(4, t, p, j); }
static void dequant_half_tile_8(i8pair_gemm *t, const weight_panel *p, int64_t j) { dequant_half_tile(8, t, p, j); }
typedef void half_tile_fn(i8pair_gemm *t, const weight_panel *p, int64_t j);
static half_tile_fn *half_tile_of(const i8pair_gemm *t) { return t->w->enc.group != ROW_BYTES ? NULL : t->w->enc.bits == 4 ? dequant_half_tile_4 : t->w->enc.bits == 8 ? dequant_half_tile_8 : NULL; }

static int64_t tiles_of_panel(const weight_panel *p) { return (p->n + ROW_BYTES - 1) / ROW_BYTES; }
/* How many of a part's tiles are unpacked before it begins. The others are while its first row tiles pass, half a tile at each 64 columns, and complete two tiles before they are
 * multiplied: a tile cannot be loaded from stores that are still on their way. */
static int64_t early_tiles_of(const i8pair_gemm *t, const weight_panel *p, int64_t rows) { return rows > 2 * TILE_ROWS && half_tile_of(t) ? LN_MIN((tiles_of_panel(p) + 3) / 2, tiles_of_panel(p)) : tiles_of_panel(p); }
/* What goes on beside the products of two row tiles and a part. */
typedef struct overlap_work {
    const weight_panel *dequant_panel;     /* whose tiles are unpacked: at first the part's own last ones, by the last row tiles, which leave room tile by tile, the next part's; NULL: nobody's */
    half_tile_fn *half;           /* unpacks half a tile; NULL: tiles are unpacked whole */
    int64_t j, end, halves;  /* halves [j, end) are left, of which so many are unpacked at each 64 columns, 2 at most */
    const uint8_t *prefetch_at, *prefetch_end; /* the part after that, a line of which is asked for at each 64 columns, and so many before the first: evenly, since what is on its way holds what loads of x need */
    int64_t prefetch_first;
    int64_t row_pairs;          /* twos of rows that are finished at 64 columns */
} overlap_work;

/* M row tiles from r on times a part. */
INLINE void micro_kernel(const int M, const epilogue what, const bool dequant_panel, const layout_kind how, i8pair_gemm *t, const weight_panel *p, int64_t r, overlap_work *o) {
    const a_layout x = a_layout_of(how, t, r);
    const int64_t k_tiles = (p->n + ROW_BYTES - 1) / ROW_BYTES;
    const uint8_t *a = t->x + r * t->ldx + p->k / ROW_BYTES * x.step, *w = t->panel, *prefetch_at = o->prefetch_at;
    int32_t *sums = t->sums + ((p->block - t->lo) % t->group * t->row_tiles + r / TILE_ROWS) * SUMS, *to = p->k + p->n >= t->C ? t->last : sums; /* what was there is finished by then */
    epilogue_state pending = epilogue_begin(t, t->last, SUMS * sizeof(int32_t), t->done_row, t->done_rows, t->done_block);
    const int64_t y_prefetch_bytes = PREFETCH_ROWS * t->ldy; /* to rows that come that much later; of a part's first ones it is asked for before. A pair's lie in panels */
    const uint8_t *partial_sums = (const uint8_t *)(sums + 2 * SUMS); /* those of the next row tiles, which are asked for where there are any */
    const int64_t rest = p->k ? (2 * SUMS * (int64_t)sizeof *sums / ROW_BYTES + k_tiles - 1) / k_tiles : 0;
    for (int64_t j = 0; j < o->prefetch_first; j++, prefetch_at += ROW_BYTES) prefetch_l2(prefetch_at);
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
#define LOAD_FIRST(a, w)                                                                                                                      \
    {                                                                                                                                    \
        tile_load(6, w, ROW_BYTES);                                                                                                           \
        tile_load_t1(4, a, x.row);                                                                                                     \
        if (M > 1) tile_load_t1(5, (a) + TILE_ROWS * x.row, x.row);                                                                         \
        tile_load(7, (w) + TILE_BYTES, ROW_BYTES);                                                                                                  \
    }
    LOAD_FIRST(a, w)
    for (int64_t i = 0; i < k_tiles; i++) {
        tile_dpbsud(0, 4, 6);
        if (M > 1) tile_dpbsud(2, 5, 6);
        tile_dpbsud(1, 4, 7);
        if (M > 1) tile_dpbsud(3, 5, 7);
        tile_load_t1(4, a + x.low_offset, x.row);
        if (M > 1) tile_load_t1(5, a + x.low_offset + TILE_ROWS * x.row, x.row);
        if (prefetch_at < o->prefetch_end) prefetch_l2(prefetch_at), prefetch_at += ROW_BYTES;
        for (int64_t j = 0; j < rest; j++, partial_sums += ROW_BYTES) prefetch_l1(partial_sums);
        if (dequant_panel && o->half && o->j < o->end) o->half(t, o->dequant_panel, o->j++);
        for (int64_t j = o->row_pairs; j > 0 && pending.rows_left > 1; j--) {
            for (int two = 0; two < 2; two++) {
                if (what == STORE) prefetch_w(pending.y + y_prefetch_bytes);
                epilogue_next(what, &pending, 1);
            }
        }
        tile_dpbsud(1, 4, 6);
        if (M > 1) tile_dpbsud(3, 5, 6);
        a += x.step, w += 2 * TILE_BYTES;
        if (i + 1 < k_tiles) LOAD_FIRST(a, w)
        if (dequant_panel && o->halves > 1 && (o->half ? o->end - o->j > k_tiles - 1 - i : o->j < o->end)) { /* a second half only as long as one at each 64 columns is too few */
            if (o->half) o->half(t, o->dequant_panel, o->j++);
            else dequant_panel_tile(t, o->dequant_panel, o->j / 2), o->j += 2;
        }
    }
#undef LOAD_FIRST
    epilogue_next(what, &pending, pending.rows_left); /* a row without another */
    o->prefetch_at = prefetch_at;
    SUMS_STORE(0, 1, to, SUMS)
    if (M > 1) SUMS_STORE(2, 3, to + SUMS / 2, SUMS)
}
typedef void micro_kernel_fn(i8pair_gemm *t, const weight_panel *p, int64_t r, overlap_work *o);
/* A pair's rows do not lie in panels in any program of today: those that do go a way that is not made for it. */
#define KERNEL(M, what, dequant_panel, how, name) \
    static void kernel_##what##_##name(i8pair_gemm *t, const weight_panel *p, int64_t r, overlap_work *o) { micro_kernel(M, what, dequant_panel, how, t, p, r, o); }
#define KERNELS(what) KERNEL(1, what, true, LAYOUT_ANY, one) KERNEL(2, what, true, LAYOUT_ANY, two) KERNEL(2, what, false, LAYOUT_ROWS, many) KERNEL(2, what, true, LAYOUT_ROWS, last)
KERNELS(STORE) KERNELS(KEEP_GATE) KERNELS(KEEP_GATE_SILU) KERNELS(KEEP_GATE_GELU) KERNELS(MUL_UP) KERNELS(SILU_MUL_UP) KERNELS(GELU_MUL_UP)
KERNEL(2, STORE, false, LAYOUT_PANELS, panel) KERNEL(2, STORE, true, LAYOUT_PANELS, last_panel)
#define KERNEL_ROW(what) [what] = {kernel_##what##_one, kernel_##what##_two, kernel_##what##_many, kernel_##what##_last}
static micro_kernel_fn *const kernels[][4] = {KERNEL_ROW(STORE), KERNEL_ROW(KEEP_GATE), KERNEL_ROW(KEEP_GATE_SILU), KERNEL_ROW(KEEP_GATE_GELU), KERNEL_ROW(MUL_UP), KERNEL_ROW(SILU_MUL_UP), KERNEL_ROW(GELU_MUL_UP)};
#undef KERNEL
#undef KERNELS
#undef KERNEL_ROW
/* Which of them m rows from r on go through. */
static micro_kernel_fn *kernel_of(const i8pair_gemm *t, epilogue what, int64_t r, int64_t m, bool dequant_panel) {
    if (m <= TILE_ROWS) return kernels[what][0];
    if (!t->x_panels) return kernels[what][dequant_panel ? 3 : 2];
    if (what != STORE || m < (int64_t)LN_PANEL_ROWS || t->x_rows - r < (int64_t)LN_PANEL_ROWS) return kernels[what][1];
    return dequant_panel ? kernel_STORE_last_panel : kernel_STORE_panel;
}

/* All rows times the part p, whose early tiles are unpacked; then the next one's are, but for those that p has no room for; NULL: there is none. `after` is asked for. */
static void run_rows(i8pair_gemm *t, const weight_panel *p, int64_t rows, const weight_panel *next, const weight_panel *after) {
    const bool last_panel = p->k + p->n >= t->C;
    const int64_t k_tiles = tiles_of_panel(p), some = 2 * TILE_ROWS, n = (rows + some - 1) / some * k_tiles;
    overlap_work o = {.prefetch_at = codes_of_block(t, after->block) + after->k / ROW_BYTES * t->tile_bytes, .row_pairs = (TILE_ROWS + k_tiles - 1) / k_tiles, .half = half_tile_of(t)};
    o.prefetch_end = o.prefetch_at + after->n * t->tile_bytes / ROW_BYTES;
    o.prefetch_first = LN_MAX((int64_t)0, (after->n * t->tile_bytes / (ROW_BYTES * ROW_BYTES) - n) * k_tiles / n + 1);
    if (last_panel && !t->function)
        for (int64_t i = 0; i < LN_MIN(rows, (int64_t)PREFETCH_ROWS); i++) prefetch_w(y_at(t, i, p->block));
    for (int64_t r = 0; r < rows; r += some) {
        const int64_t m = LN_MIN(some, rows - r);
        o.dequant_panel = NULL;
        if (r == 0 && early_tiles_of(t, p, rows) < k_tiles) o.dequant_panel = p, o.j = 2 * early_tiles_of(t, p, rows), o.end = 2 * k_tiles, o.halves = 1;
        if (r + m == rows && next) o.dequant_panel = next, o.j = 0, o.end = 2 * LN_MIN(early_tiles_of(t, next, rows), k_tiles), o.halves = o.half ? (o.end + k_tiles - 1) / k_tiles : 2;
        configure_tiles(t, LN_MIN(m, (int64_t)TILE_ROWS), m > TILE_ROWS ? m - TILE_ROWS : m);
        /* half of a function's work is done beside either block */
        kernel_of(t, epilogue_of(t, t->done_block, t->done_row < rows / 2), r, m, o.dequant_panel != NULL)(t, p, r, &o);
        t->done_rows = 0;
        if (last_panel) t->done_row = r, t->done_rows = m, t->done_block = p->block;
    }
}

/* Columns of a part, KC or LARGE_KC at most: as even as whole tiles can be. */
static int64_t kc_columns(int64_t C, int64_t most) {
    const int64_t parts = (C + most - 1) / most;
    return ((C + parts - 1) / parts + ROW_BYTES - 1) / ROW_BYTES * ROW_BYTES;
}
/* How rows and blocks [lo, hi), of which there is one, are walked through. */
static void plan_blocking(i8pair_gemm *t, int64_t rows, int64_t lo, int64_t hi) {
    t->lo = lo, t->hi = hi, t->row_tiles = (rows + 2 * TILE_ROWS - 1) / (2 * TILE_ROWS) * 2;
    const int64_t groups = (hi - lo + NC_BLOCKS - 1) / NC_BLOCKS; /* as even as can be */
    const bool wide = 2 * rows * t->P > A_BYTES;
    t->kc = kc_columns(t->C, wide ? LARGE_KC : KC);
    t->group = wide ? (hi - lo + groups - 1) / groups : 1;
}
static void run_large_m(i8pair_gemm *t, int64_t rows, int64_t lo, int64_t hi) {
    plan_blocking(t, rows, lo, hi);
    weight_panel p = {.block = lo, .n = LN_MIN(t->kc, t->C)};
    t->done_row = t->done_rows = 0, t->done_block = lo;
    for (int64_t i = 0; i < early_tiles_of(t, &p, rows); i++) dequant_panel_tile(t, &p, i);
    while (p.block < hi) {
        const weight_panel next = panel_after(t, p), after = panel_after(t, next);
        const bool more = next.block < hi;
        run_rows(t, &p, rows, more ? &next : NULL, &after);
        for (int64_t i = tiles_of_panel(&p); more && i < early_tiles_of(t, &next, rows); i++) dequant_panel_tile(t, &next, i);
        p = next;
    }
    epilogue_state rest = epilogue_begin(t, t->last, SUMS * sizeof(int32_t), t->done_row, t->done_rows, t->done_block);
    epilogue_run(epilogue_of(t, t->done_block, t->done_row < rows / 2), &rest);
}

/* Rows at a time: whole tiles whose limbs fit, or a part's columns of theirs; in passes as even as can be, each of whole panels but the last. */
static int64_t max_mc_rows(int64_t P) {
    const int64_t fit = A_BYTES / (2 * P) / ROW_ALIGN * ROW_ALIGN;
    return fit < MIN_MC ? (int64_t)LARGE_MC : LN_MIN((int64_t)MAX_MC, fit);
}
static int64_t mc_rows(int64_t rows, int64_t P) {
    const int64_t most = max_mc_rows(P), row_blocks = (rows + most - 1) / most;
    return ((rows + row_blocks - 1) / row_blocks + ROW_ALIGN - 1) / ROW_ALIGN * ROW_ALIGN;
}

/* Of a pair the function that its first goes through; numbers of that first, which rest in scratch before all else. */
static gate_act gate_act_of(const ln_node *n) { return n->op == LN_OP_LINEAR_FIXED_ROW_SWIGLU ? ACT_SILU : n->op == LN_OP_LINEAR_FIXED_ROW_GEGLU ? ACT_GELU : ACT_NONE; }
static size_t gate_bytes(const ln_node *n, int64_t rows) { return gate_act_of(n) ? (size_t)LN_MIN(rows, (int64_t)MAX_MC) * TILE_ROWS * sizeof(float) : 0; }
/* How a call's operands lie. */
static i8pair_gemm gemm_of_call(const ln_call *c) {
    const ln_arg *x = &c->in[0], *y = &c->out[0];
    const ln_affine *w = c->in[1].data;
    const gate_act function = gate_act_of(c->node);
    return (i8pair_gemm){.w = w, .up = function ? c->in[2].data : NULL, .function = function, .gate_out = c->scratch, .panel = (uint8_t *)c->scratch + gate_bytes(c->node, y->rows),
                   .block = ln_pack_block_bytes_q(w->enc, w->dtype, x->cols), .group_bytes = ln_pack_group_bytes_q(w->enc, w->dtype), .D = y->cols, .C = x->cols,
                   .P = ln_fixed_limb(x->cols), .ldx = x->pitch * (int64_t)sizeof(float), .ldy = y->pitch, .x = x->data, .x_rows = x->rows, .x_panels = x->panels, .y = y->data, .y_rows = y->rows, .panels = y->panels,
                   .radix = (float)ln_fixed_radix(w->enc.bits)};
}

enum { LARGE_M_BYTES = 2 * KC_TILES * TILE_BYTES, SMALL_M_BYTES = RING_SLOTS * SMALL_M_BLOCKS * 2 * TILE_BYTES, PANEL_BYTES = LARGE_M_BYTES > SMALL_M_BYTES ? LARGE_M_BYTES : SMALL_M_BYTES };
static size_t i8pair_amx_scratch(const ln_node *n, const ln_value *values, const ln_bounds *b) {
    const ln_value *x = &values[n->in[0]];
    const int64_t rows_planned = ln_dim(x->dims[0], b), P = ln_fixed_limb(x->dims[1]), rows = LN_MIN(rows_planned, max_mc_rows(P)), row_tiles = (rows + 2 * TILE_ROWS - 1) / (2 * TILE_ROWS) * 2;
    return gate_bytes(n, rows_planned) + PANEL_BYTES + (size_t)((row_tiles * (2 * rows * P > A_BYTES ? NC_BLOCKS : 1) + 2) * SUMS + SUMS_INTS) * sizeof(int32_t);
}

static int64_t n_row_blocks(int64_t rows, int64_t P) { return (rows + mc_rows(rows, P) - 1) / mc_rows(rows, P); }
/* A thread's outputs, of rows [row, end). Where weights are unpacked for several passes anyway, and halves of the rows need no more, an even number of parts
 * has halves, as row-wise ops share rows: on two threads x and y then stay with one core. */
static void partition(const ln_call *c, int64_t *row, int64_t *end, int64_t *lo, int64_t *hi) {
    const ln_arg *y = &c->out[0];
    const int64_t P = ln_fixed_limb(c->in[0].cols), row_blocks = n_row_blocks(y->rows, P);
    const int64_t panels = (y->rows + ROW_ALIGN - 1) / ROW_ALIGN, half = LN_MIN(y->rows, (panels + 1) / 2 * ROW_ALIGN);
    const int halves = row_blocks > 1 && c->n_threads % 2 == 0 && 2 * n_row_blocks(half, P) <= row_blocks ? 2 : 1, each = c->n_threads / halves;
    ln_share(y->rows, ROW_ALIGN, c->thread / each, halves, row, end);
    ln_share(ln_pack_blocks(y->cols), y->rows <= TILE_ROWS && !gate_act_of(c->node) ? SMALL_M_BLOCKS : 1, c->thread % each, each, lo, hi);
}

/* One product, or a pair: in[1] through the function, times in[2]. */
static void i8pair_amx_run(const ln_call *c) {
    const ln_arg *x = &c->in[0], *y = &c->out[0];
    if (y->rows < 1) return;
    i8pair_gemm t = gemm_of_call(c);
    const ln_enc enc = t.w->enc;
    const int of = t.function ? 2 : 1; /* blocks for each of y's */
    int64_t row, end, lo, hi;
    partition(c, &row, &end, &lo, &hi);
    if (lo >= hi || row >= end) return;
    t.tile_bytes = t.group_bytes * ROW_BYTES / enc.group;
    t.last = (int32_t *)(void *)(t.panel + PANEL_BYTES);
    t.row_sums = (ln_fixed_terms *)(void *)(t.last + 2 * SUMS);
    t.sums = t.last + 2 * SUMS + SUMS_INTS;
    const int64_t some = mc_rows(end - row, t.P);
    for (int64_t r = row; r < end; r += some) {
        t.x = (const uint8_t *)x->data + r * t.ldx;
        t.y = (float *)y->data + r * t.ldy;
        t.x_rows = t.y_rows = y->rows - r;
        const int64_t rows = LN_MIN(some, end - r);
        for (int64_t i = 0; i < rows; i++) t.row_sums[i] = row_sums_of(&t, i, ln_fixed_middle(enc.bits));
        if (rows <= TILE_ROWS) run_small_m(&t, rows, of * lo, of * hi);
        else run_large_m(&t, rows, of * lo, of * hi);
    }
    tile_release();
    if (!t.function && c->node->n_in > 2) ln_cpu_add_bias(&c->in[2], (float *)y->data + row * t.ldy, t.ldy, end - row, lo * TILE_ROWS, LN_MIN(hi * TILE_ROWS, t.D));
}
