/* Backward products with bf16 weights on AMX, for operands that are rounded to bf16: linear_back, and the
 * cross-entropy of a product with its slope (ops/linear_back_op.c has the formulas).
 *
 *     linear_back     dx^T = w^T dy^T
 *     cross-entropy   logits = x w^T by gemm_bf16_amx.inc.h; slope^T = w^T p^T, p the softmax weights of a
 *                     chunk of outputs, rounded to bf16, relative to the maximum so far
 *
 * Both sums are over the outputs d of w[D,C]. In packed weights (pack.h) a line has the pair of columns c and
 * c + 1 of 16 outputs, so the even and the odd elements of the lines of two blocks are two rows of w^T of 32
 * outputs: operand A, made with two permutations for two rows. The rows of dy, transposed by pairs of
 * outputs, are operand B.
 *
 *     A, "turned"   | 32 columns c [32][32 outputs] | next 32 outputs | ..
 *     B, "pairs"    for 16 rows: | 16 pairs of outputs [16][16 rows] | next 32 outputs | ..
 *     sums          for 32 columns and 32 rows: four tiles [16 columns][16 rows]
 *
 *     for BACK_ROWS rows
 *       for BACK_PART tiles of outputs          pairs in L2
 *         for 32 columns
 *           for BACK_K tiles of outputs         turned in L1 while all rows pass over it
 *             for 32 rows                       back_kernel
 *
 * An element is the sum of parts of BACK_PART tiles in ascending order, each of them tile after tile from 0
 * as TDPBF16PS adds (gemm_bf16_amx.inc.h). So its bits depend neither on the other rows nor on threads.
 *
 * Included after gemm_bf16_amx.inc.h and a simd header, or after their models in tests/kernels. */
#include "../simd/simd_activation.inc.h"

enum {
    BACK_ROWS = 256, /* rows at a time; a multiple of 32 */
    BACK_PAIRS = BACK_ROWS / (2 * TILE_ROWS),
    BACK_PART = 64, /* tiles of outputs whose pairs are in L2 */
    BACK_K = 16,    /* tiles of outputs that are turned at a time */
    BACK_SUMS = 4 * TILE_ROWS * TILE_ROWS,
    LOSS_CHUNK = LN_CE_SPLIT,
    LOSS_TILES = LOSS_CHUNK / K_TILE
};

typedef uint32_t words16 __attribute__((vector_size(64)));
typedef uint16_t halves32 __attribute__((vector_size(64)));

/* One step of the transposition of 16 x 16 words: exchanges the blocks of S x S beside the diagonal. */
#define EXCHANGE(S, LO, HI)                                                 \
    _Pragma("GCC unroll 16") for (int i = 0; i < 16; i++) if (!(i & (S))) { \
        const words16 a = r[i], b = r[i + (S)];                             \
        r[i] = __builtin_shufflevector(a, b, LO);                           \
        r[i + (S)] = __builtin_shufflevector(a, b, HI);                     \
    }
#define LIST(...) __VA_ARGS__
INLINE void transpose16(words16 r[16]) {
    EXCHANGE(8, LIST(0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23),
             LIST(8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31))
    EXCHANGE(4, LIST(0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27),
             LIST(4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31))
    EXCHANGE(2, LIST(0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29),
             LIST(2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31))
    EXCHANGE(1, LIST(0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30),
             LIST(1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31))
}

/* ---- operands ---- */

/* Tile k of block b of the weight, where it is or in `room`; zeros behind the last block. */
static const uint8_t *weight_tile(const bf16_gemm *l, int64_t b, int64_t k, uint8_t *room) {
    if (b * TILE_ROWS >= l->D) return memset(room, 0, TILE_BYTES);
    if (!l->bf12) return l->w + b * l->block + k * TILE_BYTES;
    bf12_unpack_tiles(l, b, k, 1, room);
    return room;
}
/* 32 rows of w^T, columns from 32 k on, of the 32 outputs of two tiles. */
static void turn_tiles(const uint8_t *first, const uint8_t *second, uint8_t *to) {
    for (int i = 0; i < TILE_ROWS; i++) {
        halves32 a, b, even, odd;
        memcpy(&a, first + i * ROW_BYTES, sizeof a);
        memcpy(&b, second + i * ROW_BYTES, sizeof b);
        even = __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32,
                                       34, 36, 38, 40, 42, 44, 46, 48, 50, 52, 54, 56, 58, 60, 62);
        odd = __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31, 33, 35,
                                      37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63);
        memcpy(to + 2 * i * ROW_BYTES, &even, sizeof even);
        memcpy(to + (2 * i + 1) * ROW_BYTES, &odd, sizeof odd);
    }
}
/* Columns from 32 k on of n tiles of 32 outputs, from block b on. */
static void turn_weight(const bf16_gemm *l, int64_t k, int64_t b, int64_t n, uint8_t *to) {
    _Alignas(ROW_BYTES) uint8_t room[2][TILE_BYTES];
    for (int64_t i = 0; i < n; i++, to += 2 * TILE_BYTES)
        turn_tiles(weight_tile(l, b + 2 * i, k, room[0]), weight_tile(l, b + 2 * i + 1, k, room[1]), to);
}

/* n columns, 32 at most, of a row of bf16 values in f32, as bf16. */
INLINE void row_halves(const float *x, int64_t n, words16 *to) {
    float some[K_TILE] = {0};
    halves32 a, b;
    if (n < K_TILE) x = memcpy(some, x, (size_t)n * sizeof *x);
    memcpy(&a, x, sizeof a);
    memcpy(&b, x + K_TILE / 2, sizeof b);
    a = __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31, 33, 35, 37,
                                39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63);
    memcpy(to, &a, sizeof *to);
}
/* Pairs of 16 rows from r on, of which some may be missing, and of columns from c on. */
static void pair_tile(const ln_arg *x, int64_t r, int64_t c, uint8_t *to) {
    words16 rows[TILE_ROWS];
    const int64_t n = LN_MIN((int64_t)K_TILE, x->cols - c);
#pragma GCC unroll 16
    for (int i = 0; i < TILE_ROWS; i++) {
        const int64_t at = (r + i) * x->pitch + c;
        if (r + i >= x->rows) memset(&rows[i], 0, sizeof rows[i]);
        else if (x->dtype == LN_BF16) memcpy(&rows[i], (const uint16_t *)x->data + at, sizeof rows[i]);
        else row_halves((const float *)x->data + at, n, &rows[i]);
    }
    transpose16(rows);
#pragma GCC unroll 16
    for (int i = 0; i < TILE_ROWS; i++) memcpy(to + i * ROW_BYTES, &rows[i], ROW_BYTES);
}
/* Pairs of n_pairs times 32 rows from r on, and of n tiles of columns from c on; `apart` bytes from 16 rows
 * to the next. */
static void make_pairs(const ln_arg *x, int64_t r, int64_t n_pairs, int64_t c, int64_t n, int64_t apart,
                       uint8_t *to) {
    for (int64_t i = 0; i < 2 * n_pairs; i++)
        for (int64_t k = 0; k < n; k++)
            pair_tile(x, r + i * TILE_ROWS, c + k * K_TILE, to + i * apart + k * TILE_BYTES);
}

/* ---- the product ---- */

/* 32 columns and 32 rows: adds n tiles of outputs to the sums, which begin at 0 unless go_on. */
static void back_kernel(int64_t n, const uint8_t *turned, const uint8_t *pairs, int64_t apart, float *sums,
                        bool go_on) {
    enum { SUM = TILE_ROWS * TILE_ROWS };
    if (go_on) {
        tile_load(0, sums, ROW_BYTES);
        tile_load(1, sums + SUM, ROW_BYTES);
        tile_load(2, sums + 2 * SUM, ROW_BYTES);
        tile_load(3, sums + 3 * SUM, ROW_BYTES);
    } else {
        tile_zero(0);
        tile_zero(1);
        tile_zero(2);
        tile_zero(3);
    }
    for (int64_t k = 0; k < n; k++, turned += 2 * TILE_BYTES, pairs += TILE_BYTES) {
        tile_load(4, turned, ROW_BYTES);
        tile_load_t1(6, pairs, ROW_BYTES);
        tile_dpbf16(0, 4, 6);
        tile_load_t1(7, pairs + apart, ROW_BYTES);
        tile_dpbf16(1, 4, 7);
        tile_load(5, turned + TILE_BYTES, ROW_BYTES);
        tile_dpbf16(2, 5, 6);
        tile_dpbf16(3, 5, 7);
    }
    tile_store(0, sums, ROW_BYTES);
    tile_store(1, sums + SUM, ROW_BYTES);
    tile_store(2, sums + 2 * SUM, ROW_BYTES);
    tile_store(3, sums + 3 * SUM, ROW_BYTES);
}
/* Adds the outputs of n tiles, from block b on, to the sums of 32 columns from 32 k on and all rows. */
static void back_columns(bf16_gemm *l, int64_t k, int64_t b, int64_t n, const uint8_t *pairs, int64_t apart,
                         int64_t n_pairs, uint8_t *turned, float *sums, bool go_on) {
    configure_tiles(l, TILE_ROWS, TILE_ROWS, TILE_ROWS);
    for (int64_t i = 0; i < n; i += BACK_K) {
        const int64_t some = LN_MIN((int64_t)BACK_K, n - i);
        turn_weight(l, k, b + 2 * i, some, turned);
        for (int64_t p = 0; p < n_pairs; p++)
            back_kernel(some, turned, pairs + 2 * p * apart + i * TILE_BYTES, apart, sums + p * BACK_SUMS,
                        go_on || i > 0);
    }
}
/* Stores a tile of sums, or adds it, as n columns of n_rows rows. */
static void store_sums(const float *sums, int64_t n_rows, int64_t n, float *to, int64_t ld, bool add) {
    typedef float floats16 __attribute__((vector_size(64)));
    words16 r[TILE_ROWS];
    if (n <= 0) return;
#pragma GCC unroll 16
    for (int i = 0; i < TILE_ROWS; i++) memcpy(&r[i], sums + i * TILE_ROWS, ROW_BYTES);
    transpose16(r);
    for (int64_t i = 0; i < n_rows; i++, to += ld) {
        floats16 x, y;
        memcpy(&y, &r[i], sizeof y);
        if (add) {
            memset(&x, 0, sizeof x);
            memcpy(&x, to, (size_t)n * sizeof *to);
            y = x + y;
        }
        memcpy(to, &y, (size_t)n * sizeof *to);
    }
}
/* The sums of 32 columns from c on, of the rows from r on, to y. */
static void store_columns(const ln_arg *y, int64_t r, int64_t rows, int64_t c, const float *sums, bool add) {
    for (int64_t m = 0; m < rows; m += TILE_ROWS)
        for (int64_t i = 0; i < 2; i++)
            store_sums(sums + m / (2 * TILE_ROWS) * BACK_SUMS +
                           (2 * i + m / TILE_ROWS % 2) * TILE_ROWS * TILE_ROWS,
                       LN_MIN((int64_t)TILE_ROWS, rows - m),
                       LN_MIN((int64_t)TILE_ROWS, y->cols - c - i * TILE_ROWS),
                       (float *)y->data + (r + m) * y->pitch + c + i * TILE_ROWS, y->pitch, add);
}
static int64_t pairs_of(int64_t rows) { return (rows + 2 * TILE_ROWS - 1) / (2 * TILE_ROWS); }

/* ---- linear_back ---- */

enum {
    BACK_PAIR_BYTES = BACK_ROWS / TILE_ROWS * BACK_PART * TILE_BYTES,
    BACK_TURNED_BYTES = BACK_K * 2 * TILE_BYTES,
    BACK_SUM_BYTES = BACK_PAIRS * BACK_SUMS * (int)sizeof(float)
};
static size_t back_amx_scratch(const ln_program *p, const ln_pnode *n, const ln_bounds *b) {
    (void)p, (void)n, (void)b;
    return BACK_PAIR_BYTES + BACK_TURNED_BYTES + BACK_SUM_BYTES;
}
static bf16_gemm back_gemm(const ln_arg *w) {
    return (bf16_gemm){.w = w->data,
                       .block = ln_pack_block_bytes(LN_BF16, w->cols),
                       .bf12 = w->bf12 ? w->data : NULL,
                       .C = w->cols,
                       .D = w->rows,
                       .terms = 1};
}
/* Columns [lo, hi) of `rows` rows of dx from r on; lo is a multiple of 32. */
static void back_rows(const ln_call *c, bf16_gemm *l, int64_t r, int64_t rows, int64_t lo, int64_t hi) {
    uint8_t *pairs = c->scratch, *turned = pairs + BACK_PAIR_BYTES;
    float *sums = (float *)(void *)(turned + BACK_TURNED_BYTES);
    const int64_t all = k_tile_count(c->in[0].cols), n_pairs = pairs_of(rows), apart = BACK_PART * TILE_BYTES;
    for (int64_t d = 0; d < all; d += BACK_PART) {
        const int64_t n = LN_MIN((int64_t)BACK_PART, all - d);
        make_pairs(&c->in[0], r, n_pairs, d * K_TILE, n, apart, pairs);
        for (int64_t at = lo; at < hi; at += K_TILE) {
            back_columns(l, at / K_TILE, 2 * d, n, pairs, apart, n_pairs, turned, sums, false);
            store_columns(&c->out[0], r, rows, at, sums, d > 0);
        }
    }
}
/* Threads share the rows where there are many, so that each row is transposed once, else the columns. */
static void back_amx_run(const ln_call *c) {
    const ln_arg *dx = &c->out[0];
    const bool by_rows = dx->rows >= (int64_t)c->n_threads * BACK_ROWS / 2;
    bf16_gemm l = back_gemm(&c->in[1]);
    int64_t lo, hi;
    ln_partition(by_rows ? dx->rows : dx->cols, K_TILE, c->thread, c->n_threads, &lo, &hi);
    const int64_t end = by_rows ? hi : dx->rows;
    for (int64_t r = by_rows ? lo : 0; lo < hi && r < end; r += BACK_ROWS)
        back_rows(c, &l, r, LN_MIN((int64_t)BACK_ROWS, end - r), by_rows ? 0 : lo, by_rows ? dx->cols : hi);
    if (l.config.palette) tile_release();
}

/* ---- cross-entropy of a product ---- */

/* The scratch of a call, and what it computes for BACK_ROWS rows. */
typedef struct loss_block {
    const ln_call *c;
    float *sums;       /* [C / 32][BACK_PAIRS] sums of the slope */
    float *logits;     /* [BACK_ROWS][LOSS_CHUNK] */
    uint16_t *weights; /* the same in bf16: softmax weights, not yet divided by their sum */
    uint8_t *pairs, *turned;
    float *row;    /* [C] a row of the weight */
    uint8_t *gemm; /* scratch of the logits' product */
    bool slope;
    float most[BACK_ROWS], sum[BACK_ROWS], hit[BACK_ROWS], factor[BACK_ROWS];
} loss_block;
enum {
    LOSS_LOGIT_BYTES = BACK_ROWS * LOSS_CHUNK * (int)sizeof(float),
    LOSS_PAIR_BYTES = BACK_ROWS / TILE_ROWS * LOSS_TILES * TILE_BYTES
};
static int64_t loss_sum_bytes(int64_t C) { return k_tile_count(C) * BACK_SUM_BYTES; }
static size_t loss_amx_scratch(const ln_program *p, const ln_pnode *n, const ln_bounds *b) {
    const int64_t C = ln_program_value(p, n->in[0])->dims[1];
    return (size_t)(loss_sum_bytes(C) + LOSS_LOGIT_BYTES + LOSS_LOGIT_BYTES / 2 + LOSS_PAIR_BYTES +
                    BACK_TURNED_BYTES + k_tile_count(C) * K_TILE * (int64_t)sizeof(float)) +
           bf16_amx_scratch(p, n, b);
}
static void loss_open(loss_block *s, const ln_call *c) {
    const int64_t C = c->in[0].cols;
    uint8_t *at = c->scratch;
    s->c = c;
    s->slope = c->node->p.scale.factor != 0;
    s->sums = (float *)(void *)at, at += loss_sum_bytes(C);
    s->logits = (float *)(void *)at, at += LOSS_LOGIT_BYTES;
    s->weights = (uint16_t *)(void *)at, at += LOSS_LOGIT_BYTES / 2;
    s->pairs = at, at += LOSS_PAIR_BYTES;
    s->turned = at, at += BACK_TURNED_BYTES;
    s->row = (float *)(void *)at, at += k_tile_count(C) * K_TILE * (int64_t)sizeof(float);
    s->gemm = at;
}

/* Adds the logits of outputs [v, v + n) to the maximum and sum of row i of the block, whose target is given,
 * and stores their weights relative to the new maximum. */
static void loss_row(loss_block *s, int64_t i, int32_t target, int64_t v, int64_t n) {
    float *logits = s->logits + i * LOSS_CHUNK;
    uint16_t *weights = s->weights + i * LOSS_CHUNK;
    vf m = vf_set1(-INFINITY), sum = vf_zero();
    if (target >= v && target < v + n) s->hit[i] = logits[target - v];
    for (int64_t j = 0; j < n; j += VL) {
        const vf x = vf_mask_range(vf_load(logits + j), 0, (int)LN_MIN((int64_t)VL, n - j));
        vf_store(logits + j, x);
        m = vf_max(x, m);
    }
    const int64_t whole = (n + VL - 1) / VL * VL;
    if (whole % K_TILE) vf_store(logits + whole, vf_set1(-INFINITY)); /* the last tile has 32 outputs */
    const float largest = vf_reduce_max(m), most = v && largest <= s->most[i] ? s->most[i] : largest;
    for (int64_t j = 0; j < whole; j += K_TILE) {
        const vf a = vf_exp(vf_sub(vf_load(logits + j), vf_set1(most))),
                 b = vf_exp(vf_sub(vf_load(logits + j + VL), vf_set1(most)));
        sum = vf_add(sum, vf_add(a, b));
        if (s->slope) vf_store_round_bf16(weights + j, a, b);
    }
    s->factor[i] = v ? ln_expf(s->most[i] - most) : 0;
    s->sum[i] = (v ? s->sum[i] * s->factor[i] : 0) + vf_reduce_add16(&sum);
    s->most[i] = most;
}
/* Scales the sums of the rows whose maximum has grown. */
static void loss_rescale(loss_block *s, int64_t rows) {
    const int64_t n = k_tile_count(s->c->in[0].cols);
    for (int64_t r = rows; r < (rows + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS; r++) s->factor[r] = 1;
    for (int64_t r = 0; r < rows; r += TILE_ROWS) {
        bool grown = false;
        for (int i = 0; i < TILE_ROWS; i++) grown |= s->factor[r + i] != 1;
        const vf by = vf_load(s->factor + r);
        for (int64_t k = 0; k < n && grown; k++)
            for (int64_t i = 0; i < 2 * TILE_ROWS; i++) {
                float *at = s->sums + (k * BACK_PAIRS + r / (2 * TILE_ROWS)) * BACK_SUMS +
                            (i / TILE_ROWS * 2 + r / TILE_ROWS % 2) * TILE_ROWS * TILE_ROWS +
                            i % TILE_ROWS * TILE_ROWS;
                vf_store(at, vf_mul(vf_load(at), by));
            }
    }
}
/* Adds the weights of outputs [v, v + n) times the outputs' rows of w to the sums. */
static void loss_mix(loss_block *s, bf16_gemm *l, int64_t rows, int64_t n, bool go_on) {
    const ln_arg weights = {
        .data = s->weights, .rows = rows, .cols = LOSS_CHUNK, .pitch = LOSS_CHUNK, .dtype = LN_BF16};
    const int64_t tiles = k_tile_count(n), n_pairs = pairs_of(rows), apart = LOSS_TILES * TILE_BYTES;
    if (go_on) loss_rescale(s, rows);
    make_pairs(&weights, 0, n_pairs, 0, tiles, apart, s->pairs);
    for (int64_t k = 0; k < k_tile_count(l->C); k++)
        back_columns(l, k, 0, tiles, s->pairs, apart, n_pairs, s->turned,
                     s->sums + k * BACK_PAIRS * BACK_SUMS, go_on);
}
/* Row d of a packed bf16 weight as f32. */
static void weight_row(const ln_arg *w, int64_t d, float *to) {
    if (w->bf12) {
        ln_bf12_row(to, w->data, w->cols, d, 1);
        return;
    }
    for (int64_t i = 0; i < w->cols; i++) {
        uint16_t x;
        memcpy(&x, (const uint8_t *)w->data + ln_pack_offset(LN_BF16, w->cols, d, i), sizeof x);
        to[i] = ln_bf16_f32(x);
    }
}
/* The losses of `rows` rows from r on, and their slopes from the sums. */
static void loss_end(loss_block *s, int64_t r, int64_t rows) {
    const ln_arg *w = &s->c->in[1], *loss = &s->c->out[0], *y = &s->c->out[1];
    for (int64_t k = 0; s->slope && k < k_tile_count(w->cols); k++)
        store_columns(y, r, rows, k * K_TILE, s->sums + k * BACK_PAIRS * BACK_SUMS, false);
    for (int64_t i = 0; i < rows; i++) {
        const int32_t target = ((const int32_t *)s->c->in[2].data)[r + i];
        ((float *)loss->data)[(r + i) * loss->pitch] =
            target < 0 ? 0 : (float)ln_log64((double)s->sum[i]) + (s->most[i] - s->hit[i]);
        if (!s->slope) continue;
        float *slope = (float *)y->data + (r + i) * y->pitch;
        const float by = 1 / s->sum[i];
        if (target < 0) {
            memset(slope, 0, (size_t)w->cols * sizeof *slope);
            continue;
        }
        weight_row(w, target, s->row);
        for (int64_t k = 0; k < w->cols; k++) slope[k] = fmaf(slope[k], by, -s->row[k]);
    }
}
static void loss_rows(loss_block *s, bf16_gemm *l, int64_t r, int64_t rows) {
    const ln_arg *x = &s->c->in[0], *w = &s->c->in[1];
    for (int64_t v = 0; v < w->rows; v += LOSS_CHUNK) {
        const int64_t n = LN_MIN((int64_t)LOSS_CHUNK, w->rows - v);
        l->first_block = v / TILE_ROWS;
        l->w = (const uint8_t *)w->data + (w->bf12 ? 0 : l->first_block * l->block);
        l->D = n;
        l->y = s->logits;
        l->ldy = LOSS_CHUNK;
        run_rows(l, x, r, rows, 0, ln_pack_blocks(n));
        for (int64_t i = 0; i < rows; i++) loss_row(s, i, ((const int32_t *)s->c->in[2].data)[r + i], v, n);
        if (s->slope) loss_mix(s, l, rows, n, v > 0);
    }
    loss_end(s, r, rows);
}
/* Threads share the rows. */
static void loss_amx_run(const ln_call *c) {
    loss_block s;
    bf16_gemm l = back_gemm(&c->in[1]);
    int64_t lo, hi;
    loss_open(&s, c);
    l.partial_sums = (float *)(void *)s.gemm;
    l.unpacked = s.gemm + SUMS_BYTES;
    l.a_room = l.unpacked + BF12_ROOM_TILES * TILE_BYTES;
    ln_partition(c->in[0].rows, 2 * TILE_ROWS, c->thread, c->n_threads, &lo, &hi);
    for (int64_t r = lo; r < hi; r += BACK_ROWS) loss_rows(&s, &l, r, LN_MIN((int64_t)BACK_ROWS, hi - r));
    if (l.config.palette) tile_release();
}
