/* GEMM of bf16 weights on AMX: y = x w^T for every number of rows by one formula (linear; linear_gated
 * by gemm_bf16_gated_amx.inc.h).
 *
 * What is computed. x is split into bf16 terms, one where the value is known to be bf16 already
 * (LN_FORMAT_BF16), else three: each is the nearest bf16 number to what the terms before leave, and together
 * they are x.
 *
 *     for tiles of 32 columns in ascending order, and in each for the terms a of x, the largest first:
 *         y[r][d] = y[r][d] + P(a, w)
 *     P(a, w) = e + o: e is the sequential FMA chain over the tile's even columns, from 0,
 *               o the one over the odd columns; denormals are zero everywhere
 *
 * then + bias. Columns that are missing in the last tile are zeros. P is what TDPBF16PS computes for each
 * element of its result alone, so neither the other rows of a tile, nor how many there are, nor where the
 * columns are cut into blocks (the chains rest in y) changes a bit.
 *
 * Operands:
 *
 *     A, x stored in bf16     rows of x where they are: 16 rows x 64 bytes, a_line_bytes from row to row
 *     A, made in scratch      | row tile 0: term 0 [16][32] | term 1 | term 2 | next 32 columns | ..
 *     B, a block (pack.h)     | columns 0 .. 31: 16 lines of 16 outputs x 2 columns | columns 32 .. 63 | ..
 *     B, bf12                 compressed tiles (bf12.h), decompressed by vectors into L1
 *
 * Loop nest, more than 16 rows (MR = 2 row tiles, NR = 2 blocks of 16 outputs):
 *
 *     for MC rows
 *       for columns whose A tiles fit A_BYTES          in L2 while all blocks pass over them
 *         for 2 blocks of outputs
 *           for KC_TILES tiles of columns              two blocks' tiles in L1 while all rows pass over them
 *             for 32 rows                              micro_kernel; sums rest in scratch, at the end in y
 *
 * 16 rows or fewer: MR = 1 row tile, NR = SMALL_M_BLOCKS blocks, so that loads of weights do not wait for
 * products; of bf12 weights BF12_BLOCKS, each tile decompressed just before it is multiplied.
 *
 * One row of few columns, of one term, is over before the tile unit is ready: vectors compute P there, in
 * the unit's own order (short_k_kernel); threads that run kernels have denormals zero for vectors too
 * (thread_pool.h).
 *
 * Tile registers: 0-3 sums, 4-5 A, 6-7 B. Included once, after simd_avx512.h and simd_amx.h, or after the
 * models of both in tests/kernels. */
#include "../../../base/thread_pool.h"
#include "../../../ops/ops.h"
#include "../cpu.h"
#include "../pack/bf12_unpack.inc.h"
#include "../tuning.h"

#ifndef LN_AMX_A_BYTES /* tests define smaller ones */
#define LN_AMX_A_BYTES  tune_gemm_bf16_A_BYTES_amx
#define LN_AMX_MC       tune_gemm_bf16_MC_amx
#define LN_AMX_KC_TILES tune_gemm_bf16_KC_TILES_amx
#endif
enum {
    MAX_TERMS = 3,                                      /* bf16 terms of an f32 number */
    TILE_ROWS = 16,                                     /* rows of a tile register, outputs of a block */
    K_TILE = 32,                                        /* columns of a tile */
    ROW_BYTES = 64,                                     /* bytes of a tile's row */
    TILE_BYTES = TILE_ROWS * ROW_BYTES,                 /* of a whole tile */
    A_BYTES = LN_AMX_A_BYTES,                           /* of L2, for A tiles */
    MC = LN_AMX_MC,                                     /* rows at a time */
    KC_TILES = LN_AMX_KC_TILES,                         /* tiles along C for which two blocks stay in L1 */
    SUMS_BYTES = MC * 2 * TILE_ROWS * 4,                /* sums of MC rows and two blocks */
    SMALL_M_BLOCKS = tune_gemm_bf16_SMALL_M_BLOCKS_amx, /* blocks at once for 16 rows or fewer */
    PREFETCH_BYTES = tune_gemm_bf16_PREFETCH_BYTES_amx, /* small M: distance in each block */
    SHORT_K =
        tune_gemm_bf16_SHORT_K_amx, /* columns of one bf16 row that vectors multiply, uncompressed blocks */
    BF12_BLOCKS = tune_gemm_bf16_BF12_BLOCKS_amx, /* bf12, small M: blocks at once */
    BF12_SLOTS =
        tune_gemm_bf16_BF12_SLOTS_amx, /* bf12, small M: tiles decompressed before the oldest is multiplied */
    BF12_PREFETCH_TILES =
        tune_gemm_bf16_BF12_PREFETCH_TILES_amx, /* bf12, small M: distance in tiles of each block */
    BF12_ROOM_TILES =
        2 * KC_TILES > BF12_SLOTS ? 2 * KC_TILES : BF12_SLOTS /* decompressed tiles in scratch */
};
_Static_assert(SHORT_K / K_TILE * TILE_BYTES <= A_BYTES, "a short row's A tiles are made at once");

typedef struct bf16_gemm {
    const uint8_t *w;         /* uncompressed: from the call's first block on */
    const uint8_t *bf12;      /* the data of a bf12 weight, else NULL */
    int64_t block;            /* bytes of an uncompressed block */
    int64_t C, first_block;   /* columns of the weight; number of the call's first block */
    uint8_t *unpacked;        /* decompressed tiles: [BF12_SLOTS] for small M, else [2][KC_TILES] */
    uint8_t *a_room;          /* room for A tiles that are made of x */
    const uint8_t *a;         /* A tiles: n_k along C */
    int64_t n_k, a_row_bytes; /* a_row_bytes: from one row of tiles to the next */
    int64_t a_line_bytes;     /* from one row of x to the next */
    bool x_is_bf16;           /* A tiles are rows of x themselves, of two-byte elements */
    bool x_is_near;           /* this thread has read x not long ago */
    float *y, *partial_sums;  /* partial_sums: [rows][2 * TILE_ROWS] of the blocks that are worked on */
    int64_t D, ldy;
    int terms;
    tile_config config;
} bf16_gemm;

/* One run of a micro-kernel: n_k tiles of w and a. */
typedef struct kernel_args {
    const uint8_t *w, *a, *a1; /* a1: the second row tile */
    int64_t block;             /* bytes from a block of w to the next */
    int64_t n_k;
    const float *from; /* sums so far; NULL: zero */
    float *to;
    int64_t ld_from, ld_to;    /* in bytes */
    const uint8_t *prefetch;   /* two row tiles: weights of the next blocks, */
    int64_t prefetch_block;    /* bytes from one of these blocks to the next, */
    int64_t prefetch_step;     /* and bytes of each at every step along C */
    const uint8_t *prefetch_a; /* the rows after these, where they are still far away; else NULL */
    int64_t prefetch_y_rows;   /* rows of `to`, prefetched for writing at every step */
    int64_t prefetch_turn; /* one row tile: from this step on, near the end of a block, the prefetch goes on
                              where the next blocks begin; -1: no prefetch */
} kernel_args;

/* One step along C of one row tile: block j, whose tile at `at` goes through register b. Macros with explicit
 * arguments, since registers are literals in the instruction. */
#define MULTIPLY(j, b, at, terms, a, a_tile, a_line)  \
    {                                                 \
        tile_load(b, at, ROW_BYTES);                  \
        tile_load(4, a, a_line);                      \
        tile_dpbf16(j, 4, b);                         \
        if ((terms) > 1) {                            \
            tile_load(5, (a) + (a_tile), a_line);     \
            tile_dpbf16(j, 5, b);                     \
            tile_load(4, (a) + 2 * (a_tile), a_line); \
            tile_dpbf16(j, 4, b);                     \
        }                                             \
    }

/* The sums of M row tiles and N blocks, those that there are: op(register, address, bytes from row to row).
 */
#define EACH_SUM(op, M, N, at, ld)                         \
    op(0, at, ld);                                         \
    if ((N) > 1) op(1, (at) + TILE_ROWS, ld);              \
    if ((N) > 2) op(2, (at) + 2 * TILE_ROWS, ld);          \
    if ((N) > 3) op(3, (at) + 3 * TILE_ROWS, ld);          \
    if ((M) > 1) op(2, (at) + TILE_ROWS * ((ld) / 4), ld); \
    if ((M) > 1 && (N) > 1) op(3, (at) + TILE_ROWS * ((ld) / 4) + TILE_ROWS, ld);
INLINE void begin_sums(const int M, const int N, const kernel_args *o) {
    if (o->from) {
        EACH_SUM(tile_load, M, N, o->from, o->ld_from)
    } else {
        tile_zero(0);
        tile_zero(1);
        tile_zero(2);
        tile_zero(3);
    }
}
/* A whole tile, if it is wanted. */
INLINE void prefetch_tile(const uint8_t *p, bool wanted) {
    for (int i = 0; i < TILE_BYTES && wanted; i += ROW_BYTES) prefetch_l2(p + i);
}

INLINE void micro_kernel(const int M, const int N, const int terms, const bf16_gemm *l,
                         const kernel_args *o) {
    const int64_t block = o->block, prefetch_block = o->prefetch_block, a_line_bytes = l->a_line_bytes,
                  a_tile = l->config.rows[4] * ROW_BYTES, a1_tile = l->config.rows[5] * ROW_BYTES;
    const int64_t a_step_bytes = l->x_is_bf16 ? ROW_BYTES : terms * a_tile,
                  a1_step = l->x_is_bf16 ? ROW_BYTES : terms * a1_tile;
    const uint8_t *w = o->w, *a = o->a, *a1 = o->a1, *prefetch = o->prefetch, *to = (const uint8_t *)o->to;
    const bool prefetches = o->prefetch_turn >= 0;
    begin_sums(M, N, o);
    for (int64_t k = 0; k < o->n_k; k++, w += TILE_BYTES, a += a_step_bytes, a1 += a1_step) {
        if (M == 1) {
            const int64_t prefetch_offset =
                k < o->prefetch_turn ? PREFETCH_BYTES : PREFETCH_BYTES + (N - 1) * block;
            prefetch_tile(w + prefetch_offset, prefetches);
            MULTIPLY(0, 6, w, terms, a, a_tile, a_line_bytes)
            if (N > 1) {
                prefetch_tile(w + block + prefetch_offset, prefetches);
                MULTIPLY(1, 7, w + block, terms, a, a_tile, a_line_bytes)
            }
            if (N > 2) {
                prefetch_tile(w + 2 * block + prefetch_offset, prefetches);
                MULTIPLY(2, 6, w + 2 * block, terms, a, a_tile, a_line_bytes)
            }
            if (N > 3) {
                prefetch_tile(w + 3 * block + prefetch_offset, prefetches);
                MULTIPLY(3, 7, w + 3 * block, terms, a, a_tile, a_line_bytes)
            }
        } else {
            for (int64_t i = 0; i < o->prefetch_step; i += ROW_BYTES, prefetch += ROW_BYTES) {
                prefetch_l2(prefetch);
                if (N > 1) prefetch_l2(prefetch + prefetch_block);
            }
            for (int i = 0; o->prefetch_a && i < 2 * TILE_ROWS; i++)
                prefetch_l2(o->prefetch_a + i * a_line_bytes + k * ROW_BYTES);
            for (int64_t i = 0; i < o->prefetch_y_rows; i++, to += o->ld_to) {
                prefetch_w(to);
                if (N > 1) prefetch_w(to + ROW_BYTES);
            }
            tile_load(6, w, ROW_BYTES);
            if (N > 1) tile_load(7, w + block, ROW_BYTES);
#pragma GCC unroll 3
            for (int t = 0; t < terms; t++) {
                tile_load_t1(4, a + t * a_tile, a_line_bytes);
                tile_dpbf16(0, 4, 6);
                if (N > 1) tile_dpbf16(1, 4, 7);
                tile_load_t1(5, a1 + t * a1_tile, a_line_bytes);
                tile_dpbf16(2, 5, 6);
                if (N > 1) tile_dpbf16(3, 5, 7);
            }
        }
    }
    EACH_SUM(tile_store, M, N, o->to, o->ld_to)
}

/* One copy per number of row tiles, of blocks, and of terms. */
typedef void micro_kernel_fn(const bf16_gemm *l, const kernel_args *o);
#define KERNEL(M, N, T)                                                            \
    static void kernel_##M##_##N##_##T(const bf16_gemm *l, const kernel_args *o) { \
        micro_kernel(M, N, T, l, o);                                               \
    }
#define KERNELS(T) KERNEL(1, 1, T) KERNEL(1, 2, T) KERNEL(1, 4, T) KERNEL(2, 1, T) KERNEL(2, 2, T)
KERNELS(1)
KERNELS(3)
#define KERNEL_ROW(T)                                                                        \
    {                                                                                        \
        {kernel_1_1_##T, kernel_1_2_##T, kernel_1_4_##T}, { kernel_2_1_##T, kernel_2_2_##T } \
    }
static micro_kernel_fn *const kernels[2][2][3] = {
    KERNEL_ROW(1), KERNEL_ROW(3)}; /* [terms > 1][rows of tiles - 1][blocks / 2] */

/* ---- bf12 weights (bf12.h) ---- */

/* Block b of a bf12 weight, and its tile k. */
static const uint8_t *bf12_block_at(const bf16_gemm *l, int64_t b) {
    return l->bf12 + LN_BF12_HEADER_BYTES + (l->first_block + b) * ln_bf12_block_bytes(l->C);
}
static const uint8_t *bf12_tile_at(const bf16_gemm *l, int64_t b, int64_t k) {
    return bf12_block_at(l, b) + ln_bf12_tiles_offset(l->C) + k * LN_BF12_TILE_BYTES;
}
/* Decompresses its tiles [k, k + n) into `to`. */
static void bf12_unpack_tiles(const bf16_gemm *l, int64_t b, int64_t k, int64_t n, uint8_t *to) {
    const uint8_t *full = ln_bf12_uncompressed(l->bf12, l->C, l->first_block + b);
    if (full) memcpy(to, full + k * TILE_BYTES, (size_t)(n * TILE_BYTES));
    else
        for (int64_t i = 0; i < n; i++)
            bf12_unpack_tile(to + i * TILE_BYTES, bf12_block_at(l, b), l->C, k + i);
}
/* The micro-kernel of small M over bf12 blocks, from tile k of block b on. A tile is decompressed into one of
 * BF12_SLOTS and multiplied after the others were, since it cannot be loaded from stores that are still in
 * flight. */
INLINE void bf12_kernel(const int N, const int terms, const bf16_gemm *l, const kernel_args *o, int64_t b,
                        int64_t k) {
    const int M = 1, slots = BF12_SLOTS / N;
    const int64_t block = o->block, a_line_bytes = l->a_line_bytes, a_tile = l->config.rows[4] * ROW_BYTES,
                  a_step_bytes = l->x_is_bf16 ? ROW_BYTES : terms * a_tile;
    const int64_t tables = ln_bf12_tiles_offset(l->C) / ROW_BYTES, n_k = o->n_k;
    const uint8_t *a = o->a, *w = bf12_block_at(l, b), *begin = bf12_tile_at(l, b, k), *full[BF12_BLOCKS];
    for (int j = 0; j < N; j++) full[j] = ln_bf12_uncompressed(l->bf12, l->C, l->first_block + b + j);
    begin_sums(M, N, o);
    for (int64_t t = 0; t < n_k + slots; t++) {
        uint8_t *slot = l->unpacked + t % slots * N * TILE_BYTES;
        const bool here = t + BF12_PREFETCH_TILES < n_k; /* the prefetch is still within these blocks */
        const int64_t prefetch_offset = here ? t + BF12_PREFETCH_TILES : t + BF12_PREFETCH_TILES - n_k,
                      next = here ? 0 : N * block;
        const uint8_t *next_tile = begin + next + prefetch_offset * LN_BF12_TILE_BYTES;
#pragma GCC unroll 2
        for (int j = 0; j < N; j++, slot += TILE_BYTES) {
            if (t >= slots && j == 0) MULTIPLY(0, 6, slot, terms, a, a_tile, a_line_bytes)
            if (t >= slots && j == 1) MULTIPLY(1, 7, slot, terms, a, a_tile, a_line_bytes)
            if (t >= n_k) continue;
            if (prefetch_offset < tables) prefetch_l2(w + j * block + next + prefetch_offset * ROW_BYTES);
            if (__builtin_expect(full[j] != NULL, 0)) {
                memcpy(slot, full[j] + (k + t) * TILE_BYTES, TILE_BYTES);
                continue;
            }
            const uint64_t table_bits = ln_bf12_table(w + j * block, k + t);
            bf12_unpack_tile_lines(true, slot, begin + j * block + t * LN_BF12_TILE_BYTES, table_bits,
                                   next_tile + j * block);
            if (__builtin_expect(table_bits & LN_BF12_HAS_EXCEPTIONS, 0))
                ln_bf12_patch(slot, w + j * block, l->C, k + t);
        }
        if (t >= slots) a += a_step_bytes;
    }
    EACH_SUM(tile_store, M, N, o->to, o->ld_to)
}
typedef void bf12_kernel_fn(const bf16_gemm *l, const kernel_args *o, int64_t b, int64_t k);
#define BF12_KERNEL(N, T)                                                                               \
    static void bf12_kernel_##N##_##T(const bf16_gemm *l, const kernel_args *o, int64_t b, int64_t k) { \
        bf12_kernel(N, T, l, o, b, k);                                                                  \
    }
BF12_KERNEL(1, 1)
BF12_KERNEL(2, 1)
BF12_KERNEL(1, 3)
BF12_KERNEL(2, 3)
static bf12_kernel_fn *const bf12_kernels[2][2] = {
    {bf12_kernel_1_1, bf12_kernel_2_1}, {bf12_kernel_1_3, bf12_kernel_2_3}}; /* [terms > 1][blocks / 2] */

/* Shapes of the tile registers for row tiles of m0 and m1 rows and n_d outputs; configured only where they
 * change. */
static void configure_tiles(bf16_gemm *l, int64_t m0, int64_t m1, int64_t n_d) {
    tile_config c = {.palette = 1};
    for (int t = 0; t < 8; t++) {
        bool a = t == 4 || t == 5, b = t > 5, second = t == 5 || t == 2 || t == 3;
        c.rows[t] = (uint8_t)(b ? TILE_ROWS : second ? m1 : m0);
        c.bytes[t] = (uint16_t)(a ? ROW_BYTES : 4 * n_d);
    }
    if (memcmp(&c, &l->config, sizeof c) == 0) return;
    l->config = c;
    tile_configure(&l->config);
}

/* Bytes from one A tile of m rows to the next along C. */
static int64_t a_step_bytes(const bf16_gemm *l, int64_t m) {
    return l->x_is_bf16 ? ROW_BYTES : l->terms * m * ROW_BYTES;
}

/* n blocks from b, or the last one, which may have fewer outputs, for all rows; the A tiles are those from
 * tile k of a block on. x_is_far: no thread of this core has read them yet. */
static void run_blocks(bf16_gemm *l, int64_t rows, int64_t b, int64_t n, int64_t k, bool x_is_far) {
    const int64_t pairs = (rows + 2 * TILE_ROWS - 1) / (2 * TILE_ROWS),
                  step = pairs > 1 || l->bf12 ? KC_TILES : l->n_k;
    const int64_t tile_lines = l->bf12 ? LN_BF12_TILE_BYTES / ROW_BYTES : TILE_ROWS,
                  lines = (tile_lines + pairs - 1) / pairs;
    const int64_t n_d = LN_MIN((int64_t)TILE_ROWS, l->D - b * TILE_ROWS);
    for (int64_t i = 0; i < l->n_k; i += step) {
        const int64_t n_k = LN_MIN(step, l->n_k - i);
        const uint8_t *w = l->bf12 ? l->unpacked : l->w + b * l->block + (k + i) * TILE_BYTES;
        for (int64_t j = 0; j < n && l->bf12; j++)
            bf12_unpack_tiles(l, b + j, k + i, n_k, l->unpacked + j * KC_TILES * TILE_BYTES);
        for (int64_t r = 0; r < rows; r += 2 * TILE_ROWS) {
            const int64_t m0 = LN_MIN((int64_t)TILE_ROWS, rows - r),
                          m1 = LN_MIN((int64_t)TILE_ROWS, rows - r - m0),
                          prefetch_part = r / (2 * TILE_ROWS) * lines;
            const bool two = m1 > 0;
            const uint8_t *a = l->a + r / TILE_ROWS * l->a_row_bytes;
            float *y = l->y + r * l->ldy + b * TILE_ROWS, *partial_sums = l->partial_sums + r * 2 * TILE_ROWS;
            kernel_args o = {.w = w,
                             .a = a + i * a_step_bytes(l, m0),
                             .n_k = n_k,
                             .to = partial_sums,
                             .ld_to = 2 * ROW_BYTES};
            o.block = l->bf12 ? KC_TILES * TILE_BYTES : l->block;
            o.prefetch_block = l->bf12 ? ln_bf12_block_bytes(l->C) : l->block;
            if (two) o.a1 = a + l->a_row_bytes + i * a_step_bytes(l, m1);
            if (x_is_far && l->x_is_bf16) o.prefetch_a = o.a + 2 * l->a_row_bytes;
            o.prefetch = (l->bf12 ? bf12_tile_at(l, b + n, k + i) : w + n * l->block) +
                         prefetch_part * n_k * ROW_BYTES;
            o.prefetch_step = prefetch_part < tile_lines
                                  ? lines * ROW_BYTES
                                  : 0; /* this row pair's part of the same tiles of the next n blocks */
            o.prefetch_turn = l->bf12 ? -1
                              : (k + i + n_k) * TILE_BYTES < l->block
                                  ? n_k
                                  : LN_MAX((int64_t)0, n_k - PREFETCH_BYTES / TILE_BYTES);
            if (i > 0) o.from = partial_sums, o.ld_from = o.ld_to;
            else if (k > 0) o.from = y, o.ld_from = l->ldy * (int64_t)sizeof *y;
            if (i + step >= l->n_k)
                o.to = y, o.ld_to = l->ldy * (int64_t)sizeof *y,
                o.prefetch_y_rows = (m0 + m1 + n_k - 1) / n_k;
            configure_tiles(l, m0, two ? m1 : m0, n_d);
            kernels[l->terms > 1][two][n / 2](l, &o);
        }
    }
}

/* n blocks from b, or the last one, of a bf12 weight for small M. */
static void run_bf12_blocks(bf16_gemm *l, int64_t rows, int64_t b, int64_t n, int64_t k) {
    const int64_t ld = l->ldy * (int64_t)sizeof(float);
    float *y = l->y + b * TILE_ROWS;
    configure_tiles(l, rows, rows, LN_MIN((int64_t)TILE_ROWS, l->D - b * TILE_ROWS));
    bf12_kernels[l->terms > 1][n / 2](l,
                                      &(kernel_args){.a = l->a,
                                                     .block = ln_bf12_block_bytes(l->C),
                                                     .n_k = l->n_k,
                                                     .from = k ? y : NULL,
                                                     .to = y,
                                                     .ld_from = ld,
                                                     .ld_to = ld},
                                      b, k);
}

/* ---- one row of few columns ---- */

/* N blocks from w on: what TDPBF16PS computes (P above). No prefetch: the hardware's is enough, and
 * prefetching was slower (docs/performance.md). */
INLINE void short_k_kernel(const int N, const bf16_gemm *l, const uint8_t *w, float *y) {
    _Alignas(ROW_BYTES) float x[2 * TILE_ROWS]; /* the even elements of a row of A, then the odd ones */
    const uint8_t *a = l->a;
    vf sum[SMALL_M_BLOCKS], even[SMALL_M_BLOCKS], odd[SMALL_M_BLOCKS];
    for (int j = 0; j < N; j++) sum[j] = vf_zero();
    for (int64_t k = 0; k < l->n_k; k++, w += TILE_BYTES, a += ROW_BYTES) {
        const uint8_t *at[SMALL_M_BLOCKS];
        for (int j = 0; j < N; j++) {
            at[j] = w + j * l->block;
            __asm__("" : "+r"(at[j])); /* else gcc keeps an address for each line of them */
            even[j] = odd[j] = vf_zero();
        }
        vf_store(x, vf_lo_bf16(vi_load(a)));
        vf_store(x + TILE_ROWS, vf_hi_bf16(vi_load(a)));
        __asm__(""
                : "+m"(x)); /* else gcc extracts elements from the vectors, which keeps the multiply units
                               from their work */
#pragma GCC unroll 16
        for (int i = 0; i < TILE_ROWS; i++) {
            const vf x_even = vf_set1(x[i]), x_odd = vf_set1(x[TILE_ROWS + i]);
            for (int j = 0; j < N; j++) {
                const vi line = vi_load(at[j] + i * ROW_BYTES);
                even[j] = vf_fma(x_even, vf_lo_bf16(line), even[j]);
                odd[j] = vf_fma(x_odd, vf_hi_bf16(line), odd[j]);
            }
        }
        for (int j = 0; j < N; j++) sum[j] = vf_add(sum[j], vf_add(even[j], odd[j]));
    }
    for (int j = 0; j < N; j++) vf_store(y + j * TILE_ROWS, sum[j]);
}

static bool is_short_k(const bf16_gemm *l, int64_t rows) {
    return rows == 1 && l->terms == 1 && !l->bf12 && l->C <= SHORT_K;
}
/* n blocks from b, or the last one, which may have fewer outputs; all columns are there. */
static void run_short_k(const bf16_gemm *l, int64_t b, int64_t n) {
    const int64_t n_d = LN_MIN((int64_t)TILE_ROWS, l->D - b * TILE_ROWS);
    const uint8_t *w = l->w + b * l->block;
    float *y = l->y + b * TILE_ROWS, last[TILE_ROWS];
    if (n > 1) short_k_kernel(SMALL_M_BLOCKS, l, w, y);
    else short_k_kernel(1, l, w, n_d < TILE_ROWS ? last : y);
    if (n_d < TILE_ROWS) memcpy(y, last, (size_t)n_d * sizeof *y);
}

/* The bf16 number nearest to x as an f32, finite for a finite x; *remainder: what it leaves of x, 0 for an x
 * that is not finite. */
INLINE float split_term(float x, float *remainder) {
    uint32_t u = ln_f32_bits(x), up = u + 0x7fffu + ((u >> 16) & 1u), cut = u & 0xffff0000u;
    bool special = (u & 0x7f800000u) == 0x7f800000u, over = (up & 0x7f800000u) == 0x7f800000u;
    float t = ln_bits_f32(special || over ? cut | (x != x ? 0x400000u : 0) : up & 0xffff0000u);
    *remainder = special ? 0 : x - t;
    return t;
}

/* 32 columns of x, n of which are there, as rows of A tiles, `apart` elements from term to term. One loop per
 * term, which vectorises. */
INLINE void convert_line(const float *x, const int64_t n, const int terms, uint16_t *to, int64_t apart) {
    float remainder[K_TILE] = {0};
    for (int64_t i = 0; i < n; i++) remainder[i] = x[i];
    for (int t = 0; t < terms; t++, to += apart)
        for (int64_t i = 0; i < K_TILE; i++)
            to[i] =
                (uint16_t)(ln_f32_bits(terms > 1 ? split_term(remainder[i], &remainder[i]) : remainder[i]) >>
                           16);
}

/* Columns of one row of x as rows of its A tiles. */
INLINE void convert_row(const float *x, int64_t n, const int terms, uint16_t *to, int64_t apart) {
    int64_t i = 0;
    for (; i + K_TILE <= n; i += K_TILE, to += terms * apart) convert_line(x + i, K_TILE, terms, to, apart);
    if (i < n) convert_line(x + i, n - i, terms, to, apart);
}

static void convert_rows(const bf16_gemm *l, const float *x, int64_t ldx, int64_t rows, int64_t n) {
    for (int64_t r = 0; r < rows; r++) {
        const int64_t m = LN_MIN((int64_t)TILE_ROWS, rows - r / TILE_ROWS * TILE_ROWS);
        uint16_t *to =
            (uint16_t *)(void *)(l->a_room + r / TILE_ROWS * l->a_row_bytes + r % TILE_ROWS * ROW_BYTES);
        if (l->terms == 1) convert_row(x + r * ldx, n, 1, to, m * K_TILE);
        else convert_row(x + r * ldx, n, MAX_TERMS, to, m * K_TILE);
    }
}

/* The A tiles of n_k tiles along C from tile k on, of `rows` rows of x from r on: made in scratch, or the
 * rows of x themselves. */
static void set_a_tiles(bf16_gemm *l, const ln_arg *x, int64_t r, int64_t rows, int64_t k) {
    l->x_is_bf16 = x->dtype == LN_BF16;
    l->a_line_bytes = l->x_is_bf16 ? x->pitch * 2 : ROW_BYTES;
    l->a_row_bytes = l->x_is_bf16 ? TILE_ROWS * l->a_line_bytes : l->n_k * l->terms * TILE_BYTES;
    l->a = l->x_is_bf16 ? (const uint8_t *)x->data + r * l->a_line_bytes + k * ROW_BYTES : l->a_room;
    if (!l->x_is_bf16)
        convert_rows(l, (const float *)x->data + r * x->pitch + k * K_TILE, x->pitch, rows,
                     LN_MIN(l->n_k * K_TILE, x->cols - k * K_TILE));
}

static int64_t k_tile_count(int64_t C) { return (C + K_TILE - 1) / K_TILE; }
/* Bytes of A tiles of 32 columns. */
static int64_t a_column_bytes(int64_t rows, int terms) {
    return (rows + TILE_ROWS - 1) / TILE_ROWS * TILE_BYTES * terms;
}

static size_t bf16_amx_scratch(const ln_program *p, const ln_pnode *n, const ln_bounds *b) {
    const ln_pvalue *x = ln_program_value(p, n->in[0]);
    const int64_t column = a_column_bytes(LN_MIN(ln_dim(x->dims[0], b), (int64_t)MC),
                                          x->format.kind == LN_FORMAT_BF16 ? 1 : MAX_TERMS);
    return SUMS_BYTES + BF12_ROOM_TILES * TILE_BYTES +
           (x->layout == LN_LAYOUT_NARROW
                ? 0
                : (size_t)LN_MIN((int64_t)A_BYTES, k_tile_count(x->dims[1]) * column));
}

/* y of blocks [lo, hi), without bias, for `rows` rows of x from r on. */
static void run_rows(bf16_gemm *l, const ln_arg *x, int64_t r, int64_t rows, int64_t lo, int64_t hi) {
    const bool small_m_bf12 = l->bf12 && rows <= TILE_ROWS;
    const int64_t n = small_m_bf12        ? BF12_BLOCKS
                      : rows <= TILE_ROWS ? SMALL_M_BLOCKS
                                          : 2,
                  all = k_tile_count(x->cols), most = A_BYTES / a_column_bytes(rows, l->terms),
                  parts = (all + most - 1) / most;
    const int64_t columns = (all + parts - 1) / parts;
    for (int64_t k = 0; k < all; k += columns) {
        l->n_k = LN_MIN(columns, all - k);
        set_a_tiles(l, x, r, rows, k);
        int64_t b = lo;
        for (int64_t some; b < hi; b += some) {
            some = b + n <= hi && (b + n) * TILE_ROWS <= l->D ? n : 1;
            if (small_m_bf12) run_bf12_blocks(l, rows, b, some, k);
            else if (is_short_k(l, rows)) run_short_k(l, b, some);
            else run_blocks(l, rows, b, some, k, b == lo && !l->x_is_near);
        }
    }
}

/* A thread's blocks; for small M whole groups of those that are taken at once. */
static void bf16_amx_partition(const ln_call *c, int64_t *lo, int64_t *hi) {
    const int n = c->in[1].bf12 ? BF12_BLOCKS : SMALL_M_BLOCKS;
    ln_partition(ln_pack_blocks(c->out[0].cols), c->out[0].rows <= TILE_ROWS ? n : 1, c->thread, c->n_threads,
                 lo, hi);
}

/* x_is_near: this thread has read x not long ago. first_block: the weight's block that the outputs begin
 * with. */
static void bf16_amx_product(const ln_call *c, bool x_is_near, int64_t first_block) {
    const ln_arg *x = &c->in[0], *w = &c->in[1], *y = &c->out[0];
    const int64_t block = ln_pack_block_bytes(w->dtype, x->cols);
    bf16_gemm l = {.w = (const uint8_t *)w->data + (w->bf12 ? 0 : first_block * block),
                   .block = block,
                   .bf12 = w->bf12 ? w->data : NULL,
                   .C = x->cols,
                   .first_block = first_block,
                   .D = y->cols,
                   .ldy = y->pitch,
                   .terms = ln_arg_is_bf16(x) ? 1 : MAX_TERMS,
                   .x_is_near = x_is_near,
                   .partial_sums = c->scratch};
    l.unpacked = (uint8_t *)c->scratch + SUMS_BYTES;
    l.a_room = l.unpacked + BF12_ROOM_TILES * TILE_BYTES;
    int64_t lo, hi;
    bf16_amx_partition(c, &lo, &hi);
    if (lo >= hi || y->rows < 1) return;
    for (int64_t r = 0; r < y->rows; r += MC) {
        const int64_t rows = LN_MIN((int64_t)MC, y->rows - r);
        l.y = (float *)y->data + r * l.ldy;
        run_rows(&l, x, r, rows, lo, hi);
        if (c->node->n_in > 2)
            ln_cpu_add_bias(&c->in[2], l.y, l.ldy, rows, lo * TILE_ROWS, LN_MIN(hi * TILE_ROWS, l.D));
    }
    if (l.config.palette) tile_release();
}
static inline void bf16_amx_run(const ln_call *c) { bf16_amx_product(c, false, 0); }
