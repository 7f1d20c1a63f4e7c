/* linear on a vector rung: y = x w^T + b with the bits of the reference, from weights exactly as they lie in the file.
 *
 * The specification is one chain over C per output, so lanes run along outputs, and rows of w must become lanes. They are
 * transposed on the fly, a tile of VL rows at a time; bf16 is transposed in pairs (32-bit words) and split by a shift and a mask.
 *   few rows (decode)   the tile goes from registers straight into the chains of all rows: w is read once, nothing is stored
 *   many rows (prefill) a panel of up to PANEL outputs x KC columns is widened into scratch, then the micro-kernel runs over all
 *                       rows; between blocks of KC the chains rest in y
 * Threads share outputs, never C. Nothing outside a weight's bytes is read: what sticks out of whole tiles is copied to
 * the stack first. Included once per rung, after its simd header. */
#include "../../base/pool.h"
#include "../../ops/ops.h"
#include "core_tmpl.h"
#include "cpu.h"

enum { FEW = 8, PANEL = CORE_NV * VL, KC = LN_KC };

typedef struct lin {
    const uint8_t *w;
    int64_t w_stride;      /* bytes between rows of w */
    const float *x;
    float *y;
    int64_t C, ldx, ldy;
    const void *bias;
    ln_dtype dtype, bias_dtype;
} lin;

/* Columns of one tile. */
INLINE int64_t tile_cols(ln_dtype t) { return t == LN_BF16 ? 2 * VL : VL; }
INLINE void tile_get(ln_dtype t, const uint8_t *w, int64_t stride, vi tile[VL]) {
    if (t == LN_F16) tile_f16(w, stride, tile);
    else tile_words(w, stride, tile);
}
/* The widened tile, out[column][VL], `ld` numbers apart. */
INLINE void tile_put(ln_dtype t, const vi tile[VL], float *out, int64_t ld) {
#pragma GCC unroll 16
    for (int i = 0; i < VL; i++) {
        if (t == LN_BF16) {
            vf_store(out + 2 * i * ld, vf_low_bf16(tile[i]));
            vf_store(out + (2 * i + 1) * ld, vf_high_bf16(tile[i]));
        } else {
            vf_store(out + i * ld, vf_of(tile[i]));
        }
    }
}
/* A tile of which only n_d rows and n_k columns exist: copied where there is room to read beyond them. */
static void tile_edge(ln_dtype t, const uint8_t *w, int64_t stride, int64_t n_d, int64_t n_k, float *out, int64_t ld) {
    uint8_t copy[VL][4 * VL] = {{0}};
    vi tile[VL];
    for (int64_t d = 0; d < n_d; d++) memcpy(copy[d], w + d * stride, (size_t)(n_k * ln_dtype_bytes(t)));
    tile_get(t, copy[0], 4 * VL, tile);
    tile_put(t, tile, out, ld);
}
static void bias_get(const lin *l, int64_t d, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i++) {
        const uint8_t *p = (const uint8_t *)l->bias + (d + i) * ln_dtype_bytes(l->bias_dtype);
        uint16_t h;
        if (l->bias_dtype == LN_F32) {
            memcpy(&out[i], p, 4);
            continue;
        }
        memcpy(&h, p, 2);
        out[i] = l->bias_dtype == LN_BF16 ? ln_bf16_f32(h) : ln_f16_f32(h);
    }
}

/* ---- few rows ---- */

/* R rows, outputs d .. d + G * VL - 1, all of which exist. */
INLINE void few_body(const int R, const int G, const ln_dtype t, const lin *l, int64_t d) {
    const int64_t cols = tile_cols(t), bytes = ln_dtype_bytes(t), stride = l->w_stride;
    const uint8_t *w = l->w + d * stride;
    /* What the next call will read, in the order of memory. Blocks too large to wait in L2 are left to the hardware. */
    const char *ahead = (const char *)w + G * VL * stride;
    const int64_t ahead_step = G * VL * stride <= LN_AHEAD_MAX ? G * VL * cols * bytes : 0;
    vf acc[FEW][4];
    float edge[2 * VL * VL];
    int64_t k = 0;
#pragma GCC unroll 8
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int g = 0; g < G; g++) acc[r][g] = vf_zero();
    for (; k + cols <= l->C; k += cols) {
        const float *x = l->x + k;
        if (ahead_step) {
#pragma GCC unroll 64
            for (int64_t i = 0; i < G * VL * cols * bytes; i += 64) __builtin_prefetch(ahead + i, 0, LN_AHEAD_HINT);
            ahead += ahead_step;
        }
#pragma GCC unroll 4
        for (int g = 0; g < G; g++) {
            vi tile[VL];
            tile_get(t, w + g * VL * stride + k * bytes, stride, tile);
#pragma GCC unroll 16
            for (int i = 0; i < VL; i++) {
                if (t == LN_BF16) {
                    vf lo = vf_low_bf16(tile[i]), hi = vf_high_bf16(tile[i]);
#pragma GCC unroll 8
                    for (int r = 0; r < R; r++) acc[r][g] = vf_fma(lo, vf_set1(x[r * l->ldx + 2 * i]), acc[r][g]);
#pragma GCC unroll 8
                    for (int r = 0; r < R; r++) acc[r][g] = vf_fma(hi, vf_set1(x[r * l->ldx + 2 * i + 1]), acc[r][g]);
                } else {
#pragma GCC unroll 8
                    for (int r = 0; r < R; r++) acc[r][g] = vf_fma(vf_of(tile[i]), vf_set1(x[r * l->ldx + i]), acc[r][g]);
                }
            }
        }
    }
    if (k < l->C)
#pragma GCC unroll 4
        for (int g = 0; g < G; g++) {
            tile_edge(t, w + g * VL * stride + k * bytes, stride, VL, l->C - k, edge, VL);
            for (int64_t i = 0; i < l->C - k; i++)
#pragma GCC unroll 8
                for (int r = 0; r < R; r++) acc[r][g] = vf_fma(vf_load(edge + i * VL), vf_set1(l->x[r * l->ldx + k + i]), acc[r][g]);
        }
#pragma GCC unroll 4
    for (int g = 0; g < G; g++) {
        if (l->bias) bias_get(l, d + g * VL, VL, edge);
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) vf_store(l->y + r * l->ldy + d + g * VL, l->bias ? vf_add(acc[r][g], vf_load(edge)) : acc[r][g]);
    }
}

/* Fewer than VL outputs, the last ones of w. */
static void few_edge(const lin *l, int64_t rows, int64_t d, int64_t n_d) {
    const int64_t cols = tile_cols(l->dtype), bytes = ln_dtype_bytes(l->dtype);
    float acc[FEW][VL] = {{0}}, edge[2 * VL * VL], bias[VL] = {0};
    for (int64_t k = 0; k < l->C; k += cols) {
        int64_t n_k = LN_MIN(cols, l->C - k);
        tile_edge(l->dtype, l->w + d * l->w_stride + k * bytes, l->w_stride, n_d, n_k, edge, VL);
        for (int64_t r = 0; r < rows; r++) {
            vf a = vf_load(acc[r]);
            for (int64_t i = 0; i < n_k; i++) a = vf_fma(vf_load(edge + i * VL), vf_set1(l->x[r * l->ldx + k + i]), a);
            vf_store(acc[r], a);
        }
    }
    if (l->bias) bias_get(l, d, n_d, bias);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < n_d; i++) l->y[r * l->ldy + d + i] = l->bias ? acc[r][i] + bias[i] : acc[r][i];
}

/* One copy per number of rows and type: several outputs at once where one row's chains could not hide the latency, then singles. */
typedef void few_fn(const lin *l, int64_t lo, int64_t hi);
#define FEW_FN(R, G, T)                                                                                                                  \
    static void few_##R##_##T(const lin *l, int64_t lo, int64_t hi) {                                                                    \
        int64_t d = lo;                                                                                                                  \
        for (; d + (G)*VL <= hi; d += (G)*VL) few_body(R, G, T, l, d);                                                                   \
        if ((G) > 1)                                                                                                                     \
            for (; d + VL <= hi; d += VL) few_body(R, 1, T, l, d);                                                                       \
        if (d < hi) few_edge(l, R, d, hi - d);                                                                                           \
    }
#define FEW_TYPES(R, G) FEW_FN(R, G, LN_F32) FEW_FN(R, G, LN_BF16) FEW_FN(R, G, LN_F16)
FEW_TYPES(1, LN_G1)
FEW_TYPES(2, LN_G2)
FEW_TYPES(3, LN_G3)
FEW_TYPES(4, LN_G4)
FEW_TYPES(5, 1)
FEW_TYPES(6, 1)
FEW_TYPES(7, 1)
FEW_TYPES(8, 1)
#define FEW_ROW(T) {few_1_##T, few_2_##T, few_3_##T, few_4_##T, few_5_##T, few_6_##T, few_7_##T, few_8_##T}
static few_fn *const few_fns[3][FEW] = {FEW_ROW(LN_F32), FEW_ROW(LN_BF16), FEW_ROW(LN_F16)};

/* ---- many rows ---- */

CORES(0)

/* Columns k .. k + n_k - 1 of outputs d .. d + n_d - 1, widened: panel[n_k][PANEL]. */
static void panel_fill(const lin *l, int64_t d, int64_t n_d, int64_t k, int64_t n_k, float *panel) {
    const ln_dtype t = l->dtype;
    const int64_t cols = tile_cols(t), bytes = ln_dtype_bytes(t), stride = l->w_stride;
    for (int64_t g = 0; g < n_d; g += VL) {
        const uint8_t *w = l->w + (d + g) * stride + k * bytes;
        int64_t i = 0;
        vi tile[VL];
        if (n_d - g >= VL)
            for (; i + cols <= n_k; i += cols) {
                float *out = panel + i * PANEL + g;
                if (t == LN_BF16) tile_words(w + i * bytes, stride, tile), tile_put(LN_BF16, tile, out, PANEL);
                else if (t == LN_F16) tile_f16(w + i * bytes, stride, tile), tile_put(LN_F16, tile, out, PANEL);
                else tile_words(w + i * bytes, stride, tile), tile_put(LN_F32, tile, out, PANEL);
            }
        for (; i < n_k; i += cols) {
            float edge[2 * VL * VL];
            int64_t n = LN_MIN(cols, n_k - i);
            tile_edge(t, w + i * bytes, stride, LN_MIN((int64_t)VL, n_d - g), n, edge, VL);
            for (int64_t j = 0; j < n; j++) vf_store(panel + (i + j) * PANEL + g, vf_load(edge + j * VL));
        }
    }
}

/* m rows of one panel. Outputs that are no whole number of vectors rest beside y while the micro-kernel works. */
static void panel_rows(const lin *l, const float *panel, int64_t r, int64_t m, int64_t d, int64_t n_d, int64_t k, int64_t n_k) {
    int64_t nv = (n_d + VL - 1) / VL;
    core_fn *fn = cores_0[nv - 1][m - 1];
    float *y = l->y + r * l->ldy + d;
    const float *x = l->x + r * l->ldx + k;
    if (n_d == nv * VL) {
        fn(x, l->ldx, panel, PANEL, n_k, y, l->ldy, k > 0);
        return;
    }
    float rest[CORE_M][PANEL] = {{0}};
    for (int64_t i = 0; i < m && k > 0; i++) memcpy(rest[i], y + i * l->ldy, (size_t)n_d * sizeof *y);
    fn(x, l->ldx, panel, PANEL, n_k, rest[0], PANEL, k > 0);
    for (int64_t i = 0; i < m; i++) memcpy(y + i * l->ldy, rest[i], (size_t)n_d * sizeof *y);
}

/* The lines of a block of w that will be widened next, asked for a few at a time while the micro-kernel works. */
typedef struct coming {
    const uint8_t *w;
    int64_t stride, n_d, bytes, d, at;
} coming;
static coming coming_block(const lin *l, int64_t hi, int64_t d, int64_t k) {
    if (k >= l->C) k = 0, d += PANEL;
    if (d >= hi) return (coming){0};
    const int64_t bytes = ln_dtype_bytes(l->dtype);
    return (coming){l->w + d * l->w_stride + k * bytes, l->w_stride, LN_MIN((int64_t)PANEL, hi - d), LN_MIN((int64_t)KC, l->C - k) * bytes, 0, 0};
}
INLINE void coming_lines(coming *c, int64_t n) {
    for (; n > 0 && c->d < c->n_d; n--) {
        __builtin_prefetch(c->w + c->d * c->stride + c->at, 0, LN_AHEAD_HINT);
        c->at += 64;
        if (c->at >= c->bytes) c->at = 0, c->d++;
    }
}

static void many(const lin *l, int64_t rows, int64_t lo, int64_t hi, float *panel) {
    const int64_t tiles = (rows + CORE_M - 1) / CORE_M, lines = PANEL * (KC * ln_dtype_bytes(l->dtype) / 64 + 1) / tiles + 1;
    for (int64_t d = lo; d < hi; d += PANEL) {
        int64_t n_d = LN_MIN((int64_t)PANEL, hi - d);
        for (int64_t k = 0; k < l->C; k += KC) {
            int64_t n_k = LN_MIN((int64_t)KC, l->C - k);
            coming next = coming_block(l, hi, d, k + KC);
            panel_fill(l, d, n_d, k, n_k, panel);
            for (int64_t r = 0; r < rows; r += CORE_M) {
                coming_lines(&next, lines);
                panel_rows(l, panel, r, LN_MIN((int64_t)CORE_M, rows - r), d, n_d, k, n_k);
            }
        }
        if (!l->bias) continue;
        float bias[PANEL];
        bias_get(l, d, n_d, bias);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t i = 0; i < n_d; i++) l->y[r * l->ldy + d + i] = l->y[r * l->ldy + d + i] + bias[i];
    }
}

static size_t linear_scratch(const ln_node *n, const ln_value *values, const ln_bounds *b) {
    (void)n, (void)values, (void)b;
    return sizeof(float) * KC * PANEL;
}

static void linear_run(const ln_call *c) {
    const ln_arg *x = &c->in[0], *w = &c->in[1], *y = &c->out[0];
    lin l = {.w = w->data,
             .w_stride = w->pitch * ln_dtype_bytes(w->dtype),
             .x = x->data,
             .y = y->data,
             .C = x->cols,
             .ldx = x->pitch,
             .ldy = y->pitch,
             .dtype = w->dtype};
    int64_t lo, hi;
    if (c->node->n_in > 2) l.bias = c->in[2].data, l.bias_dtype = c->in[2].dtype;
    ln_share(y->cols, VL, c->thread, c->n_threads, &lo, &hi);
    if (lo >= hi || y->rows < 1) return;
    if (y->rows <= FEW) few_fns[l.dtype][y->rows - 1](&l, lo, hi);
    else many(&l, y->rows, lo, hi, c->scratch);
}

void LN_RUNG(ln_cpu_linear)(ln_kernel table[LN_OP_COUNT]) { table[LN_OP_LINEAR] = (ln_kernel){linear_run, linear_scratch}; }
