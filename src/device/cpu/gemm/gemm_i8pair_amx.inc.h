/* GEMM of int8 digit pairs on AMX: linear and linear_gated over them, for
 * every code width, group size and number of rows, with the bits of the reference (quant/block_float.h,
 * ops.h).
 *
 * What is computed. Activations are quantised per row, weights per output; both are pairs of digits in radix
 * k (256, or 30 for codes of up to 4 bits):
 *
 *     x[r][c] = u[r] (k h + l)          h, l: int8
 *     w[d][c] = d[d] (k (H - z) + L)    H, L: uint8; z: zero point of the high digit (ln_i8pair_zero_point)
 *     y[r][d] = u[r] e[d] (k sum(h (H - z)) + sum(h L + l (H - z)) + correction)
 *
 * The tiles sum h H (the high sum) and h L + l H (the low sum), three TDPBSUD for 64 columns of 16 rows and
 * 16 outputs. The zero point is taken away once at the end, by means of the row sums sum(h) and sum(l). Sums
 * are int32 and exact, so their order does not matter: the same bits for any blocking and any number of
 * threads.
 *
 * Operands:
 *
 *     A, LAYOUT_ROWS, a row of x   | h[P] int8 | l[P] int8 | u f32 | sum(h) int32 | sum(l) int32 |
 *
 *     A, LAYOUT_PANELS, 32 rows    | h row 0 | .. | h row 31 | l row 0 | .. | l row 31 |  64 columns
 *        (a row is 64 bytes)       | h row 0 | .. | h row 31 | l row 0 | .. | l row 31 |  the next 64, ..
 *
 *     B, packed, 16 outputs        | codes of group 0 | constants | codes of group 1 | constants | ..
 *
 *     B, dequantised, two tiles    | H, columns 4i .. 4i+3 of output 0 | .. of output 15 |  line i = 0 .. 15
 *        for 64 columns            | L, columns 4i .. 4i+3 of output 0 | .. of output 15 |  line i = 0 .. 15
 *
 *     sums of a row tile           | high[16 rows][16 outputs] int32 | low[16][16] int32 |
 *
 * Up to 4 bits H and L are linear in the code, so packing replaces a group's scales and biases by four bytes
 * an output, the dequantisation constants (gemm_i8pair_dequant.inc.h).
 *
 * Loop nest for more than 16 rows (MR = 2 row tiles = 32, NR = 16 outputs, tiles 64 columns deep):
 *
 *     for row block of MC rows              up to 512 rows whose digits fill a third of L2 (A_BYTES)
 *       for NC_BLOCKS blocks of outputs     1, unless whole rows do not fit L2 (LARGE_MC)
 *         for KC columns
 *           for block of 16 outputs (NR)    one panel of B, 36 KB dequantised, stays in L1
 *             for 32 rows (MR)              micro_kernel over KC / 64 tiles; partial sums rest in scratch
 *
 * Of a gated pair, blocks of gate and of up alternate: the gate's outputs are kept in scratch, and the
 * epilogue of the up block multiplies. The activation of one half of the rows is computed in the gate's
 * epilogue, of the other half in up's, so that both have some work for the vector units.
 *
 * Why it is fast. While the tile unit multiplies, the vector units do everything else, software-pipelined
 * into the same loop: the epilogue of the row tiles before, and dequantisation of the next panel (the first
 * half of it into the tiles that the last row tiles have used up, the second half while the panel's own
 * first row tiles pass). A tile cannot be loaded from stores that are still in flight, hence the distance of
 * two tiles. Lines of y are prefetched for writing PREFETCH_ROWS rows before the epilogue stores them: they
 * left the caches a layer ago, and a plain store would hold the fill buffers that loads of x need. The
 * hardware prefetcher follows panels of x and y by itself; as rows they are 64 streams on as many pages.
 * docs/performance.md has the measurements.
 *
 * 16 rows or fewer: gemm_i8pair_amx_small_m.inc.h.
 *
 * Tile registers: 0-3 sums (high and low of two blocks, or of two row tiles), 4-5 A, 6-7 B. Included once,
 * after simd_avx512.h and simd_amx.h, or after the models of both in tests/kernels. */
#include "../../../base/thread_pool.h"
#include "../../../ops/ops.h"
#include "../cpu.h"
#include "../simd/simd_activation.inc.h"
#include "../simd/simd_affine.inc.h"
#include "../pack/pack.h"
#include "../tuning.h"

#ifndef LN_I8PAIR_KC /* tests define smaller ones */
#define LN_I8PAIR_KC        tune_gemm_i8pair_KC_amx
#define LN_I8PAIR_LARGE_KC  tune_gemm_i8pair_LARGE_KC_amx
#define LN_I8PAIR_A_BYTES   tune_gemm_i8pair_A_BYTES_amx
#define LN_I8PAIR_MIN_MC    tune_gemm_i8pair_MIN_MC_amx
#define LN_I8PAIR_LARGE_MC  tune_gemm_i8pair_LARGE_MC_amx
#define LN_I8PAIR_NC_BLOCKS tune_gemm_i8pair_NC_BLOCKS_amx
#endif
enum {
    TILE_ROWS = 16,                       /* rows of a tile register */
    ROW_BYTES = 64,                       /* bytes of a tile's row: columns of x that one product takes */
    TILE_BYTES = TILE_ROWS * ROW_BYTES,   /* of a whole tile */
    KC = LN_I8PAIR_KC,                    /* columns of a panel of B, at most */
    KC_TILES = KC / ROW_BYTES,            /* the same in tiles */
    LARGE_KC = LN_I8PAIR_LARGE_KC,        /* KC where partial sums of LARGE_MC rows also want some of L1 */
    A_BYTES = LN_I8PAIR_A_BYTES,          /* of L2, for the digits of MC rows */
    MAX_MC = tune_gemm_i8pair_MAX_MC_amx, /* rows of a row block, at most */
    MIN_MC = LN_I8PAIR_MIN_MC,            /* fewer whole rows than this in A_BYTES: LARGE_MC rows instead */
    LARGE_MC = LN_I8PAIR_LARGE_MC,        /* rows of which only KC columns are in L2 at a time */
    NC_BLOCKS = LN_I8PAIR_NC_BLOCKS,      /* blocks whose partial sums wait in L2 with LARGE_MC */
    ROW_ALIGN = LN_PANEL_ROWS,            /* row blocks and partitions of rows are whole panels */
    SMALL_M_BLOCKS = 2,                   /* small M: blocks of outputs at once */
    RING_SLOTS = 3,                       /* small M: dequantised tiles of which the oldest is multiplied */
    PREFETCH_BYTES = tune_gemm_i8pair_PREFETCH_BYTES_amx, /* small M: distance in packed codes */
    PREFETCH_ROWS = tune_gemm_i8pair_PREFETCH_ROWS_amx, /* rows of y that are prefetched for writing ahead of
                                                           the epilogue */
    SUMS = 2 * TILE_ROWS * TILE_ROWS,                   /* int32 of one row tile and block: high, low */
    SUMS_INTS = 3 * MAX_MC /* int32 of ln_i8pair_sums for all rows of a row block */
};

_Static_assert(2 * (int)TILE_ROWS == (int)LN_PANEL_ROWS && (int)TILE_ROWS == (int)LN_PANEL_COLS,
               "two row tiles are one panel of y");
_Static_assert(LARGE_MC <= MAX_MC, "row sums of a row block");
_Static_assert(KC % ROW_BYTES == 0 && LARGE_KC % ROW_BYTES == 0 && LARGE_KC <= KC, "panels of B are whole "
                                                                                   "tiles");

/* How codes become digits, in 32-bit lanes of two equal 16-bit elements. Radix 30: H = a q + b, L = c q + d,
 * both bytes of an element at once. Radix 256: W = round(q' a) + b, q' being the code less its zero point, in
 * the upper bits of an element. */
typedef struct dequant {
    vi a, b, c, d;
} dequant;
/* Where in a packed block dequantisation goes on. */
typedef struct dequant_stream {
    const uint8_t *group;   /* packed group that comes next, or goes on */
    const uint8_t *factors; /* of its scales and biases; NULL: they have none */
    int64_t left;           /* groups that have these factors, from that one on */
    vf inverse_scale;       /* 1 / d of the block's outputs */
    dequant prepared; /* groups of 64: of that group, computed while the one before was dequantised, since
                             it is one long dependency chain */
} dequant_stream;
/* A panel of B: columns [k, k + n) of a block of 16 outputs. Of a gated pair blocks of both weights
 * alternate. */
typedef struct weight_panel {
    int64_t block, k, n;
} weight_panel;
typedef enum gate_act { ACT_NONE, ACT_SILU, ACT_GELU } gate_act;

typedef struct i8pair_gemm {
    const ln_affine *w;     /* the weight; of a gated pair the gate projection */
    const ln_affine *up;    /* of a gated pair the up projection, else NULL */
    gate_act function;      /* activation of the gate; ACT_NONE: one weight */
    float *gate_out;        /* outputs of the gate's block: [row][TILE_ROWS] */
    int64_t block;          /* bytes of a packed block */
    int64_t group_bytes;    /* bytes of a packed group */
    int64_t shared;         /* groups that share factors; 0: there are none, or constants in their place */
    int64_t tile_bytes;     /* packed bytes of 64 columns of a block */
    int64_t D, C, P;        /* outputs, columns, bytes of one digit of a row */
    int64_t ldx, ldy;       /* from row to row: bytes of x, elements of y */
    const uint8_t *x;       /* the row block's first row; in panels it begins one */
    int64_t x_rows, y_rows; /* rows from that one to the end, also those of later row blocks */
    bool x_panels, panels;  /* layout of x, of y (ln_arg_in_panels) */
    float *y, radix;
    uint8_t *panel; /* dequantised B: large M [KC_TILES][H, L]; small M [RING_SLOTS][SMALL_M_BLOCKS][H, L] */
    int32_t *sums;  /* partial sums [block of NC_BLOCKS][row tile][SUMS] */
    int32_t *last;  /* complete sums of the row tiles whose epilogue is pending: [2][SUMS] */
    int64_t done_row, done_rows, done_block; /* which rows and block those are */
    int64_t lo, hi;                          /* blocks of this partition, a gated pair's both counted */
    int64_t group;                           /* NC in blocks: so many go through a KC before the next KC */
    int64_t row_tiles;                       /* of the row block, an even number */
    int64_t kc;                              /* columns of a panel */
    ln_i8pair_sums *row_sums; /* of each row: u, and what the epilogue takes away from both sums */
    tile_config config;
    dequant_stream next_stream; /* of the panel that is being dequantised */
} i8pair_gemm;

/* The weight that block b belongs to, and its number there. */
INLINE const ln_affine *weight_of_block(const i8pair_gemm *t, int64_t b) {
    return t->function && b % 2 ? t->up : t->w;
}
INLINE int64_t output_block(const i8pair_gemm *t, int64_t b) { return t->function ? b / 2 : b; }
INLINE const uint8_t *codes_of_block(const i8pair_gemm *t, int64_t b) {
    return weight_of_block(t, b)->codes + output_block(t, b) * t->block;
}
/* Where outputs of row r and block b are stored, and the pitch to the next row; in panels up to the end of
 * one. */
INLINE float *y_at(const i8pair_gemm *t, int64_t r, int64_t b) {
    return t->y + (t->panels ? ln_panel_at(t->y_rows, t->ldy, r, output_block(t, b) * TILE_ROWS)
                             : r * t->ldy + output_block(t, b) * TILE_ROWS);
}
INLINE int64_t y_pitch(const i8pair_gemm *t) { return t->panels ? LN_PANEL_COLS : t->ldy; }
/* The factors of group g of a block, which follow its groups. */
INLINE const uint8_t *factors_of_group(const i8pair_gemm *t, int64_t b, int64_t g) {
    if (!t->shared) return NULL;
    const int64_t groups = t->C / t->w->code.group;
    return codes_of_block(t, b) + groups * t->group_bytes + g / t->shared * LN_PACK_FACTOR_BYTES;
}
INLINE vf inverse_scale_of(const i8pair_gemm *t, int64_t b) {
    return vf_load(weight_of_block(t, b)->units + output_block(t, b) * LN_PACK_OUTPUT_SCALES);
}
INLINE vf output_scale_of(const i8pair_gemm *t, int64_t b) {
    return vf_load(weight_of_block(t, b)->units + output_block(t, b) * LN_PACK_OUTPUT_SCALES + TILE_ROWS);
}

/* Strides of A in bytes: from row to row, from high to low digits, and to the next 64 columns. */
typedef struct a_layout {
    int64_t row, low_offset, step;
} a_layout;
typedef enum layout_kind {
    LAYOUT_ROWS,   /* row after row */
    LAYOUT_PANELS, /* whole panels of 32 rows: strides are constants */
    LAYOUT_ANY     /* decided at run time */
} layout_kind;
INLINE a_layout a_layout_of(const layout_kind how, const i8pair_gemm *t, int64_t r) {
    if (how == LAYOUT_PANELS || (how == LAYOUT_ANY && t->x_panels)) {
        const int64_t n =
            how == LAYOUT_PANELS ? (int64_t)LN_PANEL_ROWS : LN_MIN((int64_t)LN_PANEL_ROWS, t->x_rows - r);
        return (a_layout){ROW_BYTES, n * ROW_BYTES, 2 * n * ROW_BYTES};
    }
    return (a_layout){t->ldx, t->P, ROW_BYTES};
}

/* Shapes for m rows (A in register 4, sums in 0 and 1) and m1 rows (A in 5, sums in 2 and 3). */
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

#include "gemm_i8pair_dequant.inc.h"
#include "gemm_i8pair_epilogue.inc.h"

/* The high and the low sums of a row tile and a block, in registers u and l, low_offset elements apart in
 * memory. */
#define SUMS_LOAD(u, l, from, low_offset)               \
    {                                                   \
        tile_load(u, from, ROW_BYTES);                  \
        tile_load(l, (from) + (low_offset), ROW_BYTES); \
    }
#define SUMS_STORE(u, l, to, low_offset)               \
    {                                                  \
        tile_store(u, to, ROW_BYTES);                  \
        tile_store(l, (to) + (low_offset), ROW_BYTES); \
    }

#include "gemm_i8pair_amx_small_m.inc.h"

/* ---- large M ---- */

/* The panel after p: the same columns of the next block of NC, or the next columns of its first block, or the
 * next NC. */
static weight_panel panel_after(const i8pair_gemm *t, weight_panel p) {
    const int64_t first = p.block - (p.block - t->lo) % t->group, end = LN_MIN(first + t->group, t->hi);
    if (++p.block == end) p = (weight_panel){.block = first, .k = p.k + t->kc};
    if (p.k >= t->C) p = (weight_panel){.block = end};
    p.n = LN_MIN(t->kc, t->C - p.k);
    return p;
}
/* The stream of a panel begins. Field by field: a struct copied as a whole right after it was written would
 * wait for all earlier stores, and those of sums wait for products. */
static void begin_stream(i8pair_gemm *t, const weight_panel *p) {
    const dequant_stream s = stream_at(t, p->block, p->k);
    t->next_stream.group = s.group;
    t->next_stream.factors = s.factors;
    t->next_stream.left = s.left;
    t->next_stream.inverse_scale = s.inverse_scale;
}
/* Tile i of a panel, in ascending order. */
static void dequant_panel_tile(i8pair_gemm *t, const weight_panel *p, int64_t i) {
    if (i == 0) begin_stream(t, p);
    dequant_tile(t, &t->next_stream, i == 0, p->k + i * ROW_BYTES, t->panel + i * 2 * TILE_BYTES);
}
/* Half j of a panel's tiles, for groups of 64: a few vector instructions at each 64 columns fit between tile
 * products, many at once do not. */
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
    next_group(bits, t, s);
    if (p->k + (i + 1) * ROW_BYTES < t->C) s->prepared = group_dequant(bits, ROW_BYTES, t, s);
}
static void dequant_half_tile_4(i8pair_gemm *t, const weight_panel *p, int64_t j) {
    dequant_half_tile(4, t, p, j);
}
static void dequant_half_tile_8(i8pair_gemm *t, const weight_panel *p, int64_t j) {
    dequant_half_tile(8, t, p, j);
}
typedef void half_tile_fn(i8pair_gemm *t, const weight_panel *p, int64_t j);
static half_tile_fn *half_tile_of(const i8pair_gemm *t) {
    return t->w->code.group != ROW_BYTES ? NULL
           : t->w->code.bits == 4        ? dequant_half_tile_4
           : t->w->code.bits == 8        ? dequant_half_tile_8
                                         : NULL;
}

static int64_t tiles_of_panel(const weight_panel *p) { return (p->n + ROW_BYTES - 1) / ROW_BYTES; }
/* Tiles of a panel that are dequantised before it begins. The others are while its own first row tiles pass,
 * half a tile at each 64 columns, and are complete two tiles before they are multiplied. */
static int64_t early_tiles_of(const i8pair_gemm *t, const weight_panel *p, int64_t rows) {
    return rows > 2 * TILE_ROWS && half_tile_of(t) ? LN_MIN((tiles_of_panel(p) + 3) / 2, tiles_of_panel(p))
                                                   : tiles_of_panel(p);
}
/* What overlaps with the products of two row tiles and a panel. */
typedef struct overlap_work {
    const weight_panel *dequant_panel; /* panel to dequantise: first this panel's own last tiles; with the
                                          last row tiles, which free tile after tile, the next panel's; or
                                          NULL */
    half_tile_fn *half;                /* dequantises half a tile; NULL: whole tiles only */
    int64_t j, end;                    /* halves [j, end) are left */
    int64_t halves;                    /* of them at each 64 columns, 2 at most */
    const uint8_t *prefetch_at;  /* packed codes of the panel after next: one line at each 64 columns, */
    const uint8_t *prefetch_end; /* evenly, since lines in flight hold fill buffers that x needs */
    int64_t prefetch_first;      /* lines before the first 64 columns */
    int64_t row_pairs;           /* pairs of rows whose epilogue runs at each 64 columns */
} overlap_work;

/* The micro-kernel: M row tiles from row r on times one panel, while `o` and the pending epilogue overlap. */
INLINE void micro_kernel(const int M, const epilogue what, const bool dequant_panel, const layout_kind how,
                         i8pair_gemm *t, const weight_panel *p, int64_t r, overlap_work *o) {
    const a_layout x = a_layout_of(how, t, r);
    const int64_t k_tiles = (p->n + ROW_BYTES - 1) / ROW_BYTES;
    const uint8_t *a = t->x + r * t->ldx + p->k / ROW_BYTES * x.step, *w = t->panel,
                  *prefetch_at = o->prefetch_at;
    int32_t *sums = t->sums + ((p->block - t->lo) % t->group * t->row_tiles + r / TILE_ROWS) * SUMS,
            *to = p->k + p->n >= t->C ? t->last : sums; /* its epilogue is through by then */
    epilogue_state pending =
        epilogue_begin(t, t->last, SUMS * sizeof(int32_t), t->done_row, t->done_rows, t->done_block);
    const int64_t y_prefetch_bytes =
        PREFETCH_ROWS * t->ldy; /* distance to the rows that come that much later; run_rows prefetches a
                                   panel's first ones. A gated pair's y is in panels */
    const uint8_t *partial_sums = (const uint8_t *)(sums + 2 * SUMS); /* of the next row tiles: prefetched */
    const int64_t sum_lines =
        p->k ? (2 * SUMS * (int64_t)sizeof *sums / ROW_BYTES + k_tiles - 1) / k_tiles : 0;
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
    /* Loads come together, and products follow each other: where a sibling thread has half of the core, a
     * load between two products costs more than itself. Loads come before the vector work, which hides them.
     */
#define LOAD_FIRST(M, a, w, row) /* a macro: tile registers are literals in the instruction */ \
    {                                                                                          \
        tile_load(6, w, ROW_BYTES);                                                            \
        tile_load_t1(4, a, row);                                                               \
        if ((M) > 1) tile_load_t1(5, (a) + TILE_ROWS * (row), row);                            \
        tile_load(7, (w) + TILE_BYTES, ROW_BYTES);                                             \
    }
    LOAD_FIRST(M, a, w, x.row)
    for (int64_t i = 0; i < k_tiles; i++) {
        tile_dpbsud(0, 4, 6);
        if (M > 1) tile_dpbsud(2, 5, 6);
        tile_dpbsud(1, 4, 7);
        if (M > 1) tile_dpbsud(3, 5, 7);
        tile_load_t1(4, a + x.low_offset, x.row);
        if (M > 1) tile_load_t1(5, a + x.low_offset + TILE_ROWS * x.row, x.row);
        if (prefetch_at < o->prefetch_end) prefetch_l2(prefetch_at), prefetch_at += ROW_BYTES;
        for (int64_t j = 0; j < sum_lines; j++, partial_sums += ROW_BYTES) prefetch_l1(partial_sums);
        if (dequant_panel && o->half && o->j < o->end) o->half(t, o->dequant_panel, o->j++);
        for (int64_t j = o->row_pairs; j > 0 && pending.rows_left > 1; j--) {
            for (int i2 = 0; i2 < 2; i2++) {
                if (what == STORE) prefetch_w(pending.y + y_prefetch_bytes);
                epilogue_next(what, &pending, 1);
            }
        }
        tile_dpbsud(1, 4, 6);
        if (M > 1) tile_dpbsud(3, 5, 6);
        a += x.step, w += 2 * TILE_BYTES;
        if (i + 1 < k_tiles) LOAD_FIRST(M, a, w, x.row)
        if (dequant_panel && o->halves > 1 &&
            (o->half ? o->end - o->j > k_tiles - 1 - i
                     : o->j < o->end)) { /* a second half only while one at each 64 columns is too few */
            if (o->half) o->half(t, o->dequant_panel, o->j++);
            else dequant_panel_tile(t, o->dequant_panel, o->j / 2), o->j += 2;
        }
    }
#undef LOAD_FIRST
    epilogue_next(what, &pending, pending.rows_left); /* an odd row */
    o->prefetch_at = prefetch_at;
    SUMS_STORE(0, 1, to, SUMS)
    if (M > 1) SUMS_STORE(2, 3, to + SUMS / 2, SUMS)
}
typedef void micro_kernel_fn(i8pair_gemm *t, const weight_panel *p, int64_t r, overlap_work *o);
/* One copy per number of row tiles, epilogue and layout. No program of today has a gated pair with x in
 * panels: such rows take LAYOUT_ANY. */
#define KERNEL(M, what, dequant_panel, how, name)                                                           \
    static void kernel_##what##_##name(i8pair_gemm *t, const weight_panel *p, int64_t r, overlap_work *o) { \
        micro_kernel(M, what, dequant_panel, how, t, p, r, o);                                              \
    }
#define KERNELS(what)                      \
    KERNEL(1, what, true, LAYOUT_ANY, one) \
    KERNEL(2, what, true, LAYOUT_ANY, two) \
    KERNEL(2, what, false, LAYOUT_ROWS, many) KERNEL(2, what, true, LAYOUT_ROWS, last)
/* clang-format off */
KERNELS(STORE)
KERNELS(KEEP_GATE) KERNELS(KEEP_GATE_SILU) KERNELS(KEEP_GATE_GELU)
KERNELS(MUL_UP) KERNELS(SILU_MUL_UP) KERNELS(GELU_MUL_UP)
KERNEL(2, STORE, false, LAYOUT_PANELS, panel)
KERNEL(2, STORE, true, LAYOUT_PANELS, last_panel)
#define KERNEL_ROW(what) \
    [what] = {kernel_##what##_one, kernel_##what##_two, kernel_##what##_many, kernel_##what##_last}
static micro_kernel_fn *const kernels[][4] = {KERNEL_ROW(STORE),          KERNEL_ROW(KEEP_GATE),
                                              KERNEL_ROW(KEEP_GATE_SILU), KERNEL_ROW(KEEP_GATE_GELU),
                                              KERNEL_ROW(MUL_UP),         KERNEL_ROW(SILU_MUL_UP),
                                              KERNEL_ROW(GELU_MUL_UP)};
/* clang-format on */
#undef KERNEL
#undef KERNELS
#undef KERNEL_ROW
/* The copy for m rows from r on. */
static micro_kernel_fn *kernel_of(const i8pair_gemm *t, epilogue what, int64_t r, int64_t m,
                                  bool dequant_panel) {
    if (m <= TILE_ROWS) return kernels[what][0];
    if (!t->x_panels) return kernels[what][dequant_panel ? 3 : 2];
    if (what != STORE || m < (int64_t)LN_PANEL_ROWS || t->x_rows - r < (int64_t)LN_PANEL_ROWS)
        return kernels[what][1];
    return dequant_panel ? kernel_STORE_last_panel : kernel_STORE_panel;
}

/* All rows times panel p, whose early tiles are dequantised; the next panel's early tiles are dequantised
 * then, but for those that p leaves no room for. next: NULL at the end. Codes of `after` are prefetched. */
static void run_rows(i8pair_gemm *t, const weight_panel *p, int64_t rows, const weight_panel *next,
                     const weight_panel *after) {
    const bool last_panel = p->k + p->n >= t->C;
    const int64_t k_tiles = tiles_of_panel(p), some = 2 * TILE_ROWS, n = (rows + some - 1) / some * k_tiles;
    overlap_work o = {.prefetch_at = codes_of_block(t, after->block) + after->k / ROW_BYTES * t->tile_bytes,
                      .row_pairs = (TILE_ROWS + k_tiles - 1) / k_tiles,
                      .half = half_tile_of(t)};
    o.prefetch_end = o.prefetch_at + after->n * t->tile_bytes / ROW_BYTES;
    o.prefetch_first =
        LN_MAX((int64_t)0, (after->n * t->tile_bytes / (ROW_BYTES * ROW_BYTES) - n) * k_tiles / n + 1);
    if (last_panel && !t->function)
        for (int64_t i = 0; i < LN_MIN(rows, (int64_t)PREFETCH_ROWS); i++) prefetch_w(y_at(t, i, p->block));
    for (int64_t r = 0; r < rows; r += some) {
        const int64_t m = LN_MIN(some, rows - r);
        o.dequant_panel = NULL;
        if (r == 0 && early_tiles_of(t, p, rows) < k_tiles)
            o.dequant_panel = p, o.j = 2 * early_tiles_of(t, p, rows), o.end = 2 * k_tiles, o.halves = 1;
        if (r + m == rows && next)
            o.dequant_panel = next, o.j = 0, o.end = 2 * LN_MIN(early_tiles_of(t, next, rows), k_tiles),
            o.halves = o.half ? (o.end + k_tiles - 1) / k_tiles : 2;
        configure_tiles(t, LN_MIN(m, (int64_t)TILE_ROWS), m > TILE_ROWS ? m - TILE_ROWS : m);
        /* half of the activations are computed beside either block */
        kernel_of(t, epilogue_of(t, t->done_block, t->done_row < rows / 2), r, m,
                  o.dequant_panel != NULL)(t, p, r, &o);
        t->done_rows = 0;
        if (last_panel) t->done_row = r, t->done_rows = m, t->done_block = p->block;
    }
}

/* KC or LARGE_KC columns at most, as even as whole tiles can be. */
static int64_t kc_columns(int64_t C, int64_t most) {
    const int64_t parts = (C + most - 1) / most;
    return ((C + parts - 1) / parts + ROW_BYTES - 1) / ROW_BYTES * ROW_BYTES;
}
/* Chooses KC and NC for so many rows and blocks [lo, hi), one at least. */
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
        for (int64_t i = tiles_of_panel(&p); more && i < early_tiles_of(t, &next, rows); i++)
            dequant_panel_tile(t, &next, i);
        p = next;
    }
    epilogue_state pending =
        epilogue_begin(t, t->last, SUMS * sizeof(int32_t), t->done_row, t->done_rows, t->done_block);
    epilogue_run(epilogue_of(t, t->done_block, t->done_row < rows / 2), &pending);
}

/* MC: rows whose digits fit A_BYTES, or KC columns of theirs do; as even as can be, all but the last whole
 * panels. */
static int64_t max_mc_rows(int64_t P) {
    const int64_t fit = A_BYTES / (2 * P) / ROW_ALIGN * ROW_ALIGN;
    return fit < MIN_MC ? (int64_t)LARGE_MC : LN_MIN((int64_t)MAX_MC, fit);
}
static int64_t mc_rows(int64_t rows, int64_t P) {
    const int64_t most = max_mc_rows(P), row_blocks = (rows + most - 1) / most;
    return ((rows + row_blocks - 1) / row_blocks + ROW_ALIGN - 1) / ROW_ALIGN * ROW_ALIGN;
}

/* A gated pair's activation, and the bytes of the gate's outputs, which come first in scratch. */
static gate_act gate_act_of(const ln_pnode *n) {
    return n->op != LN_OP_LINEAR_GATED ? ACT_NONE : n->p.gate.act == LN_ACT_SILU ? ACT_SILU : ACT_GELU;
}
static size_t gate_bytes(const ln_pnode *n, int64_t rows) {
    return gate_act_of(n) ? (size_t)LN_MIN(rows, (int64_t)MAX_MC) * TILE_ROWS * sizeof(float) : 0;
}
/* The operands of a call. */
static i8pair_gemm gemm_of_call(const ln_call *c) {
    const ln_arg *x = &c->in[0], *y = &c->out[0];
    const ln_affine *w = c->in[1].data;
    const gate_act function = gate_act_of(c->node);
    return (i8pair_gemm){.w = w,
                         .up = function ? c->in[2].data : NULL,
                         .function = function,
                         .gate_out = c->scratch,
                         .panel = (uint8_t *)c->scratch + gate_bytes(c->node, y->rows),
                         .block = ln_packed_block_bytes(w, x->cols),
                         .group_bytes = ln_packed_group_bytes(w),
                         .shared = ln_packed_units(w).shared,
                         .D = y->cols,
                         .C = x->cols,
                         .P = ln_i8pair_digit_bytes(x->cols),
                         .ldx = x->pitch * (int64_t)sizeof(float),
                         .ldy = y->pitch,
                         .x = x->data,
                         .x_rows = x->rows,
                         .x_panels = ln_arg_in_panels(x),
                         .y = y->data,
                         .y_rows = y->rows,
                         .panels = ln_arg_in_panels(y),
                         .radix = (float)ln_i8pair_radix(w->code.bits)};
}

enum {
    LARGE_M_BYTES = 2 * KC_TILES * TILE_BYTES,
    SMALL_M_BYTES = RING_SLOTS * SMALL_M_BLOCKS * 2 * TILE_BYTES,
    PANEL_BYTES = LARGE_M_BYTES > SMALL_M_BYTES ? LARGE_M_BYTES : SMALL_M_BYTES
};
static size_t i8pair_amx_scratch(const ln_program *p, const ln_pnode *n, const ln_bounds *b) {
    const ln_pvalue *x = ln_program_value(p, n->in[0]);
    const int64_t rows_planned = ln_dim(x->dims[0], b), P = ln_i8pair_digit_bytes(x->dims[1]),
                  rows = LN_MIN(rows_planned, max_mc_rows(P)),
                  row_tiles = (rows + 2 * TILE_ROWS - 1) / (2 * TILE_ROWS) * 2;
    return gate_bytes(n, rows_planned) + PANEL_BYTES +
           (size_t)((row_tiles * (2 * rows * P > A_BYTES ? NC_BLOCKS : 1) + 2) * SUMS + SUMS_INTS) *
               sizeof(int32_t);
}

static int64_t n_row_blocks(int64_t rows, int64_t P) {
    return (rows + mc_rows(rows, P) - 1) / mc_rows(rows, P);
}
/* A thread's rows [row, end) and blocks [lo, hi). Where panels are dequantised for several row blocks anyway,
 * and halves of the rows need no more of those, each half of the threads takes half of the rows, as row-wise
 * ops do: on two threads x and y then stay with one core. */
static void partition(const ln_call *c, int64_t *row, int64_t *end, int64_t *lo, int64_t *hi) {
    const ln_arg *y = &c->out[0];
    const int64_t P = ln_i8pair_digit_bytes(c->in[0].cols), row_blocks = n_row_blocks(y->rows, P);
    const int64_t panels = (y->rows + ROW_ALIGN - 1) / ROW_ALIGN,
                  half = LN_MIN(y->rows, (panels + 1) / 2 * ROW_ALIGN);
    const int halves =
                  row_blocks > 1 && c->n_threads % 2 == 0 && 2 * n_row_blocks(half, P) <= row_blocks ? 2 : 1,
              each = c->n_threads / halves;
    ln_partition(y->rows, ROW_ALIGN, c->thread / each, halves, row, end);
    ln_partition(ln_pack_blocks(y->cols), y->rows <= TILE_ROWS && !gate_act_of(c->node) ? SMALL_M_BLOCKS : 1,
                 c->thread % each, each, lo, hi);
}

/* One product, or a gated pair: act(x in[1]) (x in[2]). */
static void i8pair_amx_run(const ln_call *c) {
    const ln_arg *x = &c->in[0], *y = &c->out[0];
    if (y->rows < 1) return;
    i8pair_gemm t = gemm_of_call(c);
    const ln_groups code = t.w->code;
    const int of = t.function ? 2 : 1; /* weight blocks for each block of y */
    int64_t row, end, lo, hi;
    partition(c, &row, &end, &lo, &hi);
    if (lo >= hi || row >= end) return;
    t.tile_bytes = t.group_bytes * ROW_BYTES / code.group;
    t.last = (int32_t *)(void *)(t.panel + PANEL_BYTES);
    t.row_sums = (ln_i8pair_sums *)(void *)(t.last + 2 * SUMS);
    t.sums = t.last + 2 * SUMS + SUMS_INTS;
    const int64_t mc = mc_rows(end - row, t.P);
    for (int64_t r = row; r < end; r += mc) {
        t.x = (const uint8_t *)x->data + r * t.ldx;
        t.y = (float *)y->data + r * t.ldy;
        t.x_rows = t.y_rows = y->rows - r;
        const int64_t rows = LN_MIN(mc, end - r);
        for (int64_t i = 0; i < rows; i++)
            t.row_sums[i] = row_sums_of(&t, i, ln_i8pair_zero_point(code.bits));
        if (rows <= TILE_ROWS) run_small_m(&t, rows, of * lo, of * hi);
        else run_large_m(&t, rows, of * lo, of * hi);
    }
    tile_release();
    if (!t.function && c->node->n_in > 2)
        ln_cpu_add_bias(&c->in[2], (float *)y->data + row * t.ldy, t.ldy, end - row, lo * TILE_ROWS,
                        LN_MIN(hi * TILE_ROWS, t.D));
}
