/* Products of temps, and products with weights from the other side, on a vector ISA level, with the bits of
 * the reference: matmul, linear_back, and the cross-entropy of a product (ops/matmul_op.c,
 * ops/linear_back_op.c).
 *
 * What is computed. y[m][n] (+)= sum over k of a[m][k] b[k][n], each output one chain of fma over k ascending
 * (in pairs, the odd k first, where linear has that order). Lanes run along n, so a chain is never split.
 *
 *     a: rows of f32 with two strides, one element broadcast to all lanes
 *     b: f32 with two strides, KC x NR elements of which are copied to a panel, zero where n ends
 *
 *     for MC rows of a
 *       for KC of k                         MC x KC of a stay in L2
 *         for NR columns of b               panel: a copy, in L1
 *           for MR rows of a                kernel; chains rest in y between KC
 *
 * Weights are in the layout of pack.h, or coded rows.
 * Blocks of 16 outputs are unpacked to rows of f32, which serve all rows
 * of a: CHUNK outputs of all columns, or of the thread's columns, at a time. linear_back is partitioned by
 * columns of dx, cross-entropy by rows, matmul by rows or columns of y.
 *
 * Included once per ISA level, after its simd header, by a file that defines LN_ROWS_MR rows of a
 * micro-kernel. */
#include "../../../base/thread_pool.h"
#include "../../../ops/ops.h"
#include "../cpu.h"
#include "../pack/bf12_unpack.inc.h"
#include "../simd/simd_affine.inc.h"

enum {
    MR = LN_ROWS_MR,
    NV = 3,             /* vectors of a micro-kernel */
    NR = NV * VL,       /* columns of a panel */
    KC = 256,           /* rows of a panel; even */
    MC = 128,           /* rows of a block of a */
    CHUNK = LN_CE_SPLIT /* outputs of a weight that are unpacked at a time */
};

/* The operands of one product. */
typedef struct rows_product {
    int64_t M, N, K;
    const float *a;
    int64_t a_m, a_k;
    const float *b;
    int64_t b_k, b_n;
    float *y;
    int64_t ldy;
    bool accumulate, pairs; /* pairs: k in pairs, the odd one first */
} rows_product;

/* One step of the chains: row k of the panel. */
INLINE void rows_step(const int M, const int V, const float *a, int64_t a_m, const float *panel,
                      vf acc[MR][NV]) {
    vf b[NV];
#pragma GCC unroll 4
    for (int v = 0; v < V; v++) b[v] = vf_load(panel + v * VL);
#pragma GCC unroll 8
    for (int m = 0; m < M; m++) {
        const vf x = vf_set1(a[m * a_m]);
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) acc[m][v] = vf_fma(x, b[v], acc[m][v]);
    }
}
INLINE void rows_kernel(const int M, const int V, const bool pairs, int64_t n_k, const float *a, int64_t a_m,
                        int64_t a_k, const float *panel, float *y, int64_t ldy, bool accumulate) {
    vf acc[MR][NV];
#pragma GCC unroll 8
    for (int m = 0; m < M; m++)
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) acc[m][v] = accumulate ? vf_load(y + m * ldy + v * VL) : vf_zero();
    int64_t k = 0;
    for (; pairs && k + 2 <= n_k; k += 2)
#pragma GCC unroll 2
        for (int odd = 1; odd >= 0; odd--)
            rows_step(M, V, a + (k + odd) * a_k, a_m, panel + (k + odd) * V * VL, acc);
    for (; k < n_k; k++) rows_step(M, V, a + k * a_k, a_m, panel + k * V * VL, acc);
#pragma GCC unroll 8
    for (int m = 0; m < M; m++)
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) vf_store(y + m * ldy + v * VL, acc[m][v]);
}
/* One copy for each number of rows (MR or 1) and of vectors. */
typedef void rows_kernel_fn(bool pairs, int64_t n_k, const float *a, int64_t a_m, int64_t a_k,
                            const float *panel, float *y, int64_t ldy, bool accumulate);
#define ROWS_KERNEL(NAME, M, V)                                                                             \
    static void rows_kernel_##NAME##_##V(bool pairs, int64_t n_k, const float *a, int64_t a_m, int64_t a_k, \
                                         const float *panel, float *y, int64_t ldy, bool accumulate) {      \
        if (pairs) rows_kernel(M, V, true, n_k, a, a_m, a_k, panel, y, ldy, accumulate);                    \
        else rows_kernel(M, V, false, n_k, a, a_m, a_k, panel, y, ldy, accumulate);                         \
    }
ROWS_KERNEL(mr, MR, 1)
ROWS_KERNEL(mr, MR, 2)
ROWS_KERNEL(mr, MR, 3)
ROWS_KERNEL(one, 1, 1)
ROWS_KERNEL(one, 1, 2)
ROWS_KERNEL(one, 1, 3)
static rows_kernel_fn *const rows_kernels[2][NV] = {{rows_kernel_one_1, rows_kernel_one_2, rows_kernel_one_3},
                                                    {rows_kernel_mr_1, rows_kernel_mr_2, rows_kernel_mr_3}};

/* Copies n_k rows and n columns of b to a panel of V vectors. */
static void rows_pack(const rows_product *p, int64_t k, int64_t n_k, int64_t at, int64_t n, int64_t V,
                      float *panel) {
    const float *b = p->b + k * p->b_k + at * p->b_n;
    const int64_t width = V * VL;
    if (p->b_n == 1 && n == width) {
        for (int64_t i = 0; i < n_k; i++)
            for (int64_t v = 0; v < V; v++)
                vf_store(panel + i * width + v * VL, vf_load(b + i * p->b_k + v * VL));
        return;
    }
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < n_k; i++) panel[i * width + j] = b[i * p->b_k + j * p->b_n];
    for (int64_t i = 0; i < n_k; i++)
        for (int64_t j = n; j < width; j++) panel[i * width + j] = 0;
}

/* M rows of one panel: n of its V * VL columns are columns of y. */
static void rows_panel(const rows_product *p, int64_t k, int64_t n_k, int64_t at, int64_t n, int64_t V,
                       const float *panel) {
    const bool go_on = p->accumulate || k > 0;
    float edge[MR * NR];
    for (int64_t m = 0; m < p->M;) {
        const bool whole = m + MR <= p->M;
        const int64_t rows = whole ? MR : 1, width = V * VL;
        float *y = p->y + m * p->ldy + at;
        const float *a = p->a + m * p->a_m + k * p->a_k;
        if (n == width) rows_kernels[whole][V - 1](p->pairs, n_k, a, p->a_m, p->a_k, panel, y, p->ldy, go_on);
        else {
            memset(edge, 0, sizeof edge);
            for (int64_t i = 0; go_on && i < rows; i++)
                memcpy(edge + i * width, y + i * p->ldy, (size_t)n * sizeof *y);
            rows_kernels[whole][V - 1](p->pairs, n_k, a, p->a_m, p->a_k, panel, edge, width, go_on);
            for (int64_t i = 0; i < rows; i++)
                memcpy(y + i * p->ldy, edge + i * width, (size_t)n * sizeof *y);
        }
        m += rows;
    }
}

/* The rows of a block of a: KC columns of them stay in L2 while the panels of b pass. */
static void rows_block(const rows_product *p) {
    _Alignas(64) float panel[KC * NR];
    for (int64_t k = 0; k < p->K; k += KC)
        for (int64_t at = 0; at < p->N; at += NR) {
            const int64_t n_k = LN_MIN((int64_t)KC, p->K - k), n = LN_MIN((int64_t)NR, p->N - at),
                          V = (n + VL - 1) / VL;
            rows_pack(p, k, n_k, at, n, V, panel);
            rows_panel(p, k, n_k, at, n, V, panel);
        }
    for (int64_t m = 0; p->K == 0 && !p->accumulate && m < p->M; m++)
        memset(p->y + m * p->ldy, 0, (size_t)p->N * sizeof *p->y);
}
static void rows_run(const rows_product *p) {
    for (int64_t m = 0; m < p->M; m += MC) {
        rows_product block = *p;
        block.M = LN_MIN((int64_t)MC, p->M - m);
        block.a += m * p->a_m;
        block.y += m * p->ldy;
        rows_block(&block);
    }
}

/* ---- matmul ---- */

static void matmul_run(const ln_call *c) {
    const ln_arg *a = &c->in[0], *b = &c->in[1], *y = &c->out[0];
    const ln_matmul_kind kind = c->node->p.matmul.kind;
    const bool by_rows = y->rows >= y->cols;
    int64_t lo, hi;
    ln_partition(by_rows ? y->rows : y->cols, by_rows ? 1 : 16, c->thread, c->n_threads, &lo, &hi);
    const int64_t m = by_rows ? lo : 0, n = by_rows ? 0 : lo;
    rows_product p = {.M = by_rows ? hi - lo : y->rows,
                      .N = by_rows ? y->cols : hi - lo,
                      .K = kind == LN_MATMUL_TN ? a->rows : a->cols,
                      .a_m = kind == LN_MATMUL_TN ? 1 : a->pitch,
                      .a_k = kind == LN_MATMUL_TN ? a->pitch : 1,
                      .b_k = kind == LN_MATMUL_NT ? 1 : b->pitch,
                      .b_n = kind == LN_MATMUL_NT ? b->pitch : 1,
                      .y = (float *)y->data + m * y->pitch + n,
                      .ldy = y->pitch};
    p.a = (const float *)a->data + m * p.a_m;
    p.b = (const float *)b->data + n * p.b_n;
    rows_run(&p);
}

/* ---- packed weights as columns and as rows ---- */

enum { LINES = 32 /* columns of a block that are unpacked at a time */ };

/* Columns of a packed block, a line of 16 outputs each, as f32 to `to`, lines of pitch ld. Column 0 of
 * `block` is column c of the weight; bf16: even. */
INLINE void bf16_lines(const uint8_t *pairs, int64_t n, float *to, int64_t ld) {
    for (int64_t i = 0; i < n; i += 2)
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS_PER_LINE; v++) {
            const vi x = vi_load(pairs + i * 32 + 4 * VL * v);
            vf_store(to + i * ld + v * VL, vf_lo_bf16(x));
            if (i + 1 < n) vf_store(to + (i + 1) * ld + v * VL, vf_hi_bf16(x));
        }
}
static void dense_lines(const uint8_t *block, ln_dtype dtype, int64_t C, int64_t c, int64_t n, float *to,
                        int64_t ld) {
    const uint8_t *from = block + ln_pack_offset(dtype, C, 0, c);
    if (dtype == LN_BF16) {
        bf16_lines(from, n, to, ld);
        return;
    }
    for (int64_t i = 0; i < n; i++)
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS_PER_LINE; v++)
            vf_store(to + i * ld + v * VL, dtype == LN_F32 ? vf_cast(vi_load(from + 64 * i + 4 * VL * v))
                                                           : vf_load_f16(from + 32 * i + 2 * VL * v));
}
static void bf12_lines(const ln_arg *w, int64_t b, int64_t C, int64_t c, int64_t n, float *to, int64_t ld) {
    const uint8_t *full = ln_bf12_uncompressed(w->data, C, b);
    _Alignas(64) uint8_t tile[1024];
    ln_bf12 t;
    memcpy(&t, w->data, sizeof t);
    const uint8_t *block = (const uint8_t *)w->data + LN_BF12_HEADER_BYTES + b * t.block;
    if (full) dense_lines(full, LN_BF16, C, c, n, to, ld);
    for (int64_t i = 0; i < n && !full; i += LN_BF12_TILE_COLS) {
        bf12_unpack_tile(tile, block, C, (c + i) / LN_BF12_TILE_COLS);
        bf16_lines(tile, LN_MIN((int64_t)LN_BF12_TILE_COLS, n - i), to + i * ld, ld);
    }
}
static void affine_lines(const ln_affine *w, int64_t b, int64_t C, int64_t c, int64_t n, float *to,
                         int64_t ld) {
    const int64_t group = w->code.group, words = 64 * (group * w->code.bits / 32);
    const ln_pack_units units = ln_packed_units(w);
    const int64_t group_bytes = ln_packed_group_bytes(w);
    const uint8_t *block = w->codes + b * ln_packed_block_bytes(w, C);
    for (int64_t i = 0; i < n; i++) {
        const int64_t g = (c + i) / group;
        const uint8_t *at = block + g * group_bytes, *scales = at + words,
                      *factors = ln_pack_factors_at(units, block + C / group * group_bytes, g);
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS_PER_LINE; v++)
            vf_store(to + i * ld + v * VL,
                     vf_fma(load_unit(units.dtype, scales, factors, v * VL),
                            vf_from_i32(load_code(at + 4 * VL * v, w->code.bits, (c + i) % group)),
                            load_unit(units.dtype, scales, factors, LN_PACK_NR + v * VL)));
    }
}
/* Of coded rows, which are not packed. */
static void coded_lines(const ln_arg *w, int64_t b, int64_t c, int64_t n, float *to, int64_t ld) {
    float row[LINES];
    for (int64_t l = 0; l < LN_PACK_NR; l++)
        for (int64_t i = 0; i < n; i += LINES) {
            const int64_t some = LN_MIN((int64_t)LINES, n - i), d = b * LN_PACK_NR + l;
            memset(row, 0, sizeof row);
            if (d < w->rows) ln_coded_load(w->data, d, c + i, some, row);
            for (int64_t k = 0; k < some; k++) to[(i + k) * ld + l] = row[k];
        }
}
/* Columns [c, c + n) of block b of w[D,C]; c is a multiple of 32. */
static void unpack_lines(const ln_arg *w, int64_t C, int64_t b, int64_t c, int64_t n, float *to, int64_t ld) {
    if (w->coded) coded_lines(w, b, c, n, to, ld);
    else if (w->format.bits) affine_lines(w->data, b, C, c, n, to, ld);
    else if (w->bf12) bf12_lines(w, b, C, c, n, to, ld);
    else
        dense_lines((const uint8_t *)w->data + b * ln_pack_block_bytes((ln_dtype)w->dtype, C),
                    (ln_dtype)w->dtype, C, c, n, to, ld);
}
/* Outputs [d, d + n_d) of w[D,C], all columns, as columns of `to`[C][CHUNK], with whole blocks of 16. */
static void unpack_columns(const ln_arg *w, int64_t C, int64_t d, int64_t n_d, float *to) {
    for (int64_t b = 0; b * LN_PACK_NR < n_d; b++)
        unpack_lines(w, C, d / LN_PACK_NR + b, 0, C, to + b * LN_PACK_NR, CHUNK);
}

/* n lines of 16 outputs to rows of the pitch ld. */
typedef float floats4 __attribute__((vector_size(16)));
static void lines_to_rows(const float *lines, int64_t n, float *to, int64_t ld) {
    for (int64_t i = 0; i + 4 <= n; i += 4)
        for (int64_t l = 0; l < LN_PACK_NR; l += 4) {
            floats4 r[4], lo[2], hi[2];
            for (int k = 0; k < 4; k++) memcpy(&r[k], lines + (i + k) * LN_PACK_NR + l, sizeof r[k]);
            for (int k = 0; k < 2; k++) {
                lo[k] = __builtin_shufflevector(r[2 * k], r[2 * k + 1], 0, 4, 1, 5);
                hi[k] = __builtin_shufflevector(r[2 * k], r[2 * k + 1], 2, 6, 3, 7);
            }
            r[0] = __builtin_shufflevector(lo[0], lo[1], 0, 1, 4, 5);
            r[1] = __builtin_shufflevector(lo[0], lo[1], 2, 3, 6, 7);
            r[2] = __builtin_shufflevector(hi[0], hi[1], 0, 1, 4, 5);
            r[3] = __builtin_shufflevector(hi[0], hi[1], 2, 3, 6, 7);
            for (int k = 0; k < 4; k++) memcpy(to + (l + k) * ld + i, &r[k], sizeof r[k]);
        }
    for (int64_t i = n / 4 * 4; i < n; i++)
        for (int64_t l = 0; l < LN_PACK_NR; l++) to[l * ld + i] = lines[i * LN_PACK_NR + l];
}
/* Outputs [d, d + n_d) and columns [c, c + n) of w[D,C] as rows of `to`, of pitch ld, with space for whole
 * blocks of 16 rows; d is a multiple of 16, c of 32. */
static void unpack_rows(const ln_arg *w, int64_t C, int64_t d, int64_t n_d, int64_t c, int64_t n, float *to,
                        int64_t ld) {
    _Alignas(64) float lines[LINES * LN_PACK_NR];
    for (int64_t b = d / LN_PACK_NR; b * LN_PACK_NR < d + n_d; b++, to += LN_PACK_NR * ld)
        for (int64_t i = 0; i < n; i += LINES) {
            const int64_t some = LN_MIN((int64_t)LINES, n - i);
            unpack_lines(w, C, b, c + i, some, lines, LN_PACK_NR);
            lines_to_rows(lines, some, to + i, ld);
        }
}

/* ---- linear_back ---- */

enum { BACK_COLUMNS = 256 /* of dx at a time */ };
static size_t linear_back_scratch(const ln_program *p, const ln_pnode *n, const ln_bounds *b) {
    (void)n, (void)p, (void)b;
    return (size_t)(CHUNK * BACK_COLUMNS) * sizeof(float);
}
static void linear_back_run(const ln_call *c) {
    const ln_arg *dy = &c->in[0], *w = &c->in[1], *dx = &c->out[0];
    float *rows = c->scratch;
    int64_t lo, hi;
    ln_partition(dx->cols, 32, c->thread, c->n_threads, &lo, &hi);
    for (int64_t at = lo; at < hi && dx->rows > 0; at += BACK_COLUMNS) {
        const int64_t n = LN_MIN((int64_t)BACK_COLUMNS, hi - at);
        for (int64_t d = 0; d < dy->cols; d += CHUNK) {
            const int64_t n_d = LN_MIN((int64_t)CHUNK, dy->cols - d);
            unpack_rows(w, dx->cols, d, n_d, at, n, rows, BACK_COLUMNS);
            rows_run(&(rows_product){.M = dx->rows,
                                     .N = n,
                                     .K = n_d,
                                     .a = (const float *)dy->data + d,
                                     .a_m = dy->pitch,
                                     .a_k = 1,
                                     .b = rows,
                                     .b_k = BACK_COLUMNS,
                                     .b_n = 1,
                                     .y = (float *)dx->data + at,
                                     .ldy = dx->pitch,
                                     .accumulate = d > 0});
        }
    }
}

/* ---- cross-entropy of a product ---- */

enum { CE_ROWS = 256 /* rows of a tile of logits */ };
/* Per row of a partition: maximum, sum and the target's logit so far. */
typedef struct ce_row {
    float most, sum, hit;
} ce_row;
static size_t cross_entropy_scratch(const ln_program *p, const ln_pnode *n, const ln_bounds *b) {
    const ln_pvalue *x = ln_program_value(p, n->in[0]);
    return sizeof(float) * (size_t)(2 * CHUNK * x->dims[1] + CE_ROWS * CHUNK) +
           sizeof(ce_row) * (size_t)ln_dim(x->dims[0], b);
}
/* The scratch of a call. */
typedef struct ce_work {
    float *columns, *rows, *logits; /* the unpacked outputs [C][CHUNK] and [CHUNK][C]; [CE_ROWS][CHUNK] */
    ce_row *state;
} ce_work;
static ce_work ce_work_of(const ln_call *c) {
    ce_work w = {.columns = c->scratch};
    w.rows = w.columns + CHUNK * c->in[0].cols;
    w.logits = w.rows + CHUNK * c->in[0].cols;
    w.state = (ce_row *)(void *)(w.logits + CE_ROWS * CHUNK);
    return w;
}
static bool ce_has_slope(const ln_call *c) { return c->node->p.scale.factor != 0; }
static float *ce_slope(const ln_call *c, int64_t r) { return (float *)c->out[1].data + r * c->out[1].pitch; }
/* Logits [n][CHUNK] of rows from r on and the n_v outputs that are unpacked. */
static void ce_logits(const ln_call *c, const ce_work *work, int64_t r, int64_t n, int64_t n_v) {
    const ln_arg *x = &c->in[0], *w = &c->in[1];
    rows_run(&(rows_product){.M = n,
                             .N = n_v,
                             .K = x->cols,
                             .a = (const float *)x->data + r * x->pitch,
                             .a_m = x->pitch,
                             .a_k = 1,
                             .b = work->columns,
                             .b_k = CHUNK,
                             .b_n = 1,
                             .y = work->logits,
                             .ldy = CHUNK,
                             .pairs = w->dtype == LN_BF16 && !w->format.bits && !w->coded});
}
/* slope (+)= weights of the rows from r on times the n_v outputs that are unpacked. */
static void ce_mix(const ln_call *c, const ce_work *work, int64_t r, int64_t n, int64_t v, int64_t n_v) {
    const int64_t C = c->in[0].cols;
    rows_run(&(rows_product){.M = n,
                             .N = C,
                             .K = n_v,
                             .a = work->logits,
                             .a_m = CHUNK,
                             .a_k = 1,
                             .b = work->rows,
                             .b_k = C,
                             .b_n = 1,
                             .y = ce_slope(c, r),
                             .ldy = c->out[1].pitch,
                             .accumulate = v > 0});
}
static int32_t ce_target(const ln_call *c, int64_t r) { return ((const int32_t *)c->in[2].data)[r]; }

/* Adds a split of n_v logits to row r. With a slope its sums so far are scaled to the new maximum, and the
 * logits become the weights of the outputs. */
static void ce_split(const ln_call *c, int64_t r, ce_row *s, float *logits, int64_t v, int64_t n_v) {
    const int32_t target = ce_target(c, r);
    float lane[16] = {0}, e[CHUNK], m = -INFINITY;
    for (int64_t i = 0; i < n_v; i++) m = logits[i] <= m ? m : logits[i];
    for (int64_t i = 0; i < n_v; i++) e[i] = ln_expf(logits[i] - m);
    for (int64_t i = 0; i < n_v; i++) lane[i % 16] = lane[i % 16] + e[i];
    for (int half = 8; half > 0; half /= 2)
        for (int l = 0; l < half; l++) lane[l] = lane[l] + lane[l + half];
    if (target >= v && target < v + n_v) s->hit = logits[target - v];
    const float most = v == 0 || !(m <= s->most) ? m : s->most, a = v == 0 ? 0 : ln_expf(s->most - most),
                f = ln_expf(m - most);
    s->sum = v == 0 ? lane[0] : s->sum * a + lane[0] * f;
    s->most = most;
    if (!ce_has_slope(c)) return;
    float *slope = ce_slope(c, r);
    for (int64_t i = 0; v > 0 && a != 1 && i < c->in[0].cols; i++) slope[i] = slope[i] * a;
    for (int64_t i = 0; i < n_v; i++) logits[i] = e[i] * f;
}
/* The loss of a row, and its slope from the sums. */
static void ce_end(const ln_call *c, const ce_work *work, int64_t r, const ce_row *s) {
    const int32_t target = ce_target(c, r);
    const int64_t C = c->in[0].cols;
    ((float *)c->out[0].data)[r * c->out[0].pitch] =
        target < 0 ? 0 : (float)ln_log64((double)s->sum) + (s->most - s->hit);
    if (!ce_has_slope(c)) return;
    float *slope = ce_slope(c, r);
    if (target < 0) {
        memset(slope, 0, (size_t)C * sizeof *slope);
        return;
    }
    unpack_rows(&c->in[1], C, target / LN_PACK_NR * LN_PACK_NR, LN_PACK_NR, 0, C, work->rows, C);
    const float *w = work->rows + target % LN_PACK_NR * C, by = 1 / s->sum;
    for (int64_t i = 0; i < C; i++) slope[i] = fmaf(slope[i], by, -w[i]);
}
static void cross_entropy_run(const ln_call *c) {
    const ln_arg *x = &c->in[0], *w = &c->in[1];
    const ce_work work = ce_work_of(c);
    int64_t lo, hi;
    ln_partition(x->rows, 1, c->thread, c->n_threads, &lo, &hi);
    for (int64_t v = 0; v < w->rows && lo < hi; v += CHUNK) {
        const int64_t n_v = LN_MIN((int64_t)CHUNK, w->rows - v);
        unpack_columns(w, x->cols, v, n_v, work.columns);
        if (ce_has_slope(c)) unpack_rows(w, x->cols, v, n_v, 0, x->cols, work.rows, x->cols);
        for (int64_t r = lo; r < hi; r += CE_ROWS) {
            const int64_t n = LN_MIN((int64_t)CE_ROWS, hi - r);
            ce_logits(c, &work, r, n, n_v);
            for (int64_t i = 0; i < n; i++)
                ce_split(c, r + i, &work.state[r + i - lo], work.logits + i * CHUNK, v, n_v);
            if (ce_has_slope(c)) ce_mix(c, &work, r, n, v, n_v);
        }
    }
    for (int64_t r = lo; r < hi; r++) ce_end(c, &work, r, &work.state[r - lo]);
}

#include "../attention/attn_packed.inc.h"

const ln_kernel_row LN_ISA(ln_cpu_train)[] = {
    {LN_OP_MATMUL, 1 << LN_MATMUL_NT | 1 << LN_MATMUL_NN | 1 << LN_MATMUL_TN, {.fn = matmul_run}},
    {LN_OP_LINEAR_BACK, LN_ANY_STORED | LN_CODED, {.fn = linear_back_run, .scratch = linear_back_scratch}},
    {LN_OP_LINEAR_CROSS_ENTROPY,
     LN_ANY_STORED | LN_CODED,
     {.fn = cross_entropy_run, .scratch = cross_entropy_scratch}},
    {LN_OP_ATTN, 1, {.fn = attn_packed_run, .scratch = attn_packed_scratch}},
    {LN_OP_ATTN_BACK, 1, {.fn = attn_packed_back_run, .scratch = attn_packed_scratch}},
    {0},
};
