/* linear of few rows of bf16 numbers from bf16 weights, by vectors, with the bits that tiles give (tiles_tmpl.h): the AMX rung reads weights faster
 * so, and needs no tile unit, which neighbours may be using.
 *
 *   y[r][d] = chain over tiles of 32 columns, from 0, of  y = y + (e + o),  e the fma chain over the tile's even columns, from 0, o that over the odd ones
 *
 * A line of a packed block (pack.h) is a pair of columns of 16 outputs: a shift and a mask make both of them floats. Denormals are zero everywhere, as
 * operands and as results, which is a mode of the processor; columns that are missing are zeros. Chains begin anew at every tile, so that they do not wait for
 * each other. Some blocks are walked at once, each a stream of its own; the fewer the rows, the more. */
#include "../../base/pool.h"
#include "../../ops/ops.h"
#include "cpu.h"
#include "pack.h"
#include "simd_avx512.h"

enum { LINE = 64, LINES = 16, K_TILE = 2 * LINES, B_TILE = LINE * LINES, BLOCKS_MOST = 4, AHEAD = 1024, FLUSHING = 0x8040 /* of MXCSR: FTZ, DAZ */ };

typedef struct pairs {
    const uint8_t *w;
    int64_t block, n_k;    /* bytes of a block of w; tiles of it */
    const float *x;        /* [rows][n_k * K_TILE] */
    float *y;
    int64_t D, ldy, rows;
} pairs;

/* M rows of BL blocks from w on. */
INLINE void body(const int M, const int BL, const pairs *l, const uint8_t *w, float *to, int64_t ldy) {
    const int64_t ldx = l->n_k * K_TILE, block = l->block;
    const float *x = l->x;
    vf y[LN_PAIRS_ROWS][BLOCKS_MOST];
#pragma GCC unroll 4
    for (int m = 0; m < M; m++)
#pragma GCC unroll 4
        for (int g = 0; g < BL; g++) y[m][g] = vf_zero();
    for (int64_t k = 0; k < l->n_k; k++) {
        vf even[LN_PAIRS_ROWS][BLOCKS_MOST], odd[LN_PAIRS_ROWS][BLOCKS_MOST];
#pragma GCC unroll 4
        for (int m = 0; m < M; m++)
#pragma GCC unroll 4
            for (int g = 0; g < BL; g++) even[m][g] = odd[m][g] = vf_zero();
        for (int i = 0; i < LINES; i++, w += LINE, x += 2) {
#pragma GCC unroll 4
            for (int g = 0; g < BL; g++) {
                const vi p = vi_load(w + g * block);
                vf_ahead(w + g * block + AHEAD);
                const vf low = vf_low_bf16(p), high = vf_high_bf16(p);
#pragma GCC unroll 4
                for (int m = 0; m < M; m++) {
                    even[m][g] = vf_fma(vf_set1(x[m * ldx]), low, even[m][g]);
                    odd[m][g] = vf_fma(vf_set1(x[m * ldx + 1]), high, odd[m][g]);
                }
            }
        }
#pragma GCC unroll 4
        for (int m = 0; m < M; m++)
#pragma GCC unroll 4
            for (int g = 0; g < BL; g++) y[m][g] = vf_add(y[m][g], vf_add(even[m][g], odd[m][g]));
    }
#pragma GCC unroll 4
    for (int m = 0; m < M; m++)
#pragma GCC unroll 4
        for (int g = 0; g < BL; g++) vf_store(to + m * ldy + g * LN_PACK_D, y[m][g]);
}

/* One copy per number of rows and of blocks. */
typedef void body_fn(const pairs *l, const uint8_t *w, float *to, int64_t ldy);
#define BODY(M, BL) \
    static void body_##M##_##BL(const pairs *l, const uint8_t *w, float *to, int64_t ldy) { body(M, BL, l, w, to, ldy); }
BODY(1, 1) BODY(2, 1) BODY(3, 1) BODY(4, 1) BODY(1, 4) BODY(2, 4) BODY(3, 2) BODY(4, 2)
static body_fn *const one[LN_PAIRS_ROWS] = {body_1_1, body_2_1, body_3_1, body_4_1}, *const some[LN_PAIRS_ROWS] = {body_1_4, body_2_4, body_3_2, body_4_2};
static const int blocks_of[LN_PAIRS_ROWS] = {4, 4, 2, 2};

/* Blocks [lo, hi). The last one may hold fewer outputs than y has room for. A function of its own: it runs in a mode of its own. */
static __attribute__((noinline)) void blocks(const pairs *l, int64_t lo, int64_t hi) {
    const int n = blocks_of[l->rows - 1];
    int64_t b = lo;
    for (; b + n <= hi && (b + n) * LN_PACK_D <= l->D; b += n) some[l->rows - 1](l, l->w + b * l->block, l->y + b * LN_PACK_D, l->ldy);
    for (; b < hi; b++) {
        float rest[LN_PAIRS_ROWS * LN_PACK_D];
        one[l->rows - 1](l, l->w + b * l->block, rest, LN_PACK_D);
        for (int64_t r = 0; r < l->rows; r++)
            memcpy(l->y + r * l->ldy + b * LN_PACK_D, rest + r * LN_PACK_D, (size_t)LN_MIN((int64_t)LN_PACK_D, l->D - b * LN_PACK_D) * sizeof *rest);
    }
}

void ln_cpu_linear_pairs_avx512(const ln_call *c) {
    const ln_arg *x = &c->in[0], *w = &c->in[1], *y = &c->out[0];
    const int64_t n_k = (x->cols + K_TILE - 1) / K_TILE;
    float *row = c->scratch;
    pairs l = {.w = w->data, .block = ln_pack_block(w->dtype, x->cols), .n_k = n_k, .x = row, .y = y->data, .D = y->cols, .ldy = y->pitch, .rows = y->rows};
    int64_t lo, hi;
    ln_share(ln_pack_blocks(l.D), 1, c->thread, c->n_threads, &lo, &hi);
    if (lo >= hi || y->rows < 1) return;
    for (int64_t r = 0; r < y->rows; r++, row += n_k * K_TILE) {
        for (int64_t i = 0; i < x->cols; i++) row[i] = x->dtype == LN_BF16 ? ln_bf16_f32(((const uint16_t *)x->data)[r * x->pitch + i]) : ((const float *)x->data)[r * x->pitch + i];
        memset(row + x->cols, 0, (size_t)(n_k * K_TILE - x->cols) * sizeof *row);
    }
    const unsigned mode = _mm_getcsr();
    _mm_setcsr(mode | FLUSHING);
    blocks(&l, lo, hi);
    _mm_setcsr(mode);
    if (c->node->n_in > 2) ln_cpu_add_bias(&c->in[2], l.y, l.ldy, y->rows, lo * LN_PACK_D, LN_MIN(hi * LN_PACK_D, l.D));
}
