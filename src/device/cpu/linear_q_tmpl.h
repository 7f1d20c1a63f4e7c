/* linear_q on a vector rung, for every width and group: y = s sum(q x) + b sum(x) over groups, with the bits of the reference.
 *
 * The specification (ops.h) is one chain over each group's columns, then one over groups: lanes run along outputs, as in
 * linear_tmpl.h. A panel of PANEL outputs x KC columns is unpacked once into codes as f32, in scratch; the micro-kernel runs the
 * chains of a group over it for up to CORE_M rows; scales and biases come in once a group. The sums of x belong to no output: they are made
 * once a call. One formula and one path for every number of rows. Unpacking is plain C over lanes, vectorised by the compiler: 32
 * columns of an output are `bits` words, whatever the width. Threads share outputs, never columns.
 *
 * A kernel for one width may take over its own case in linear_q_run; it must give the same bits, which tests/kernels checks for all
 * widths alike. Included once per rung, after its simd header. */
#include "../../base/pool.h"
#include "../../ops/ops.h"
#include "core_tmpl.h"
#include "cpu.h"

CORES(0)

enum { PANEL = CORE_NV * VL, KC = 256, BLOCK = 32, MAX_BITS = 8 }; /* KC holds whole groups of any size */

typedef struct linq {
    const ln_affine *w;
    int64_t C, row_bytes, groups;
    const float *x;
    float *y;
    int64_t ldx, ldy;
    const void *bias;
    ln_dtype bias_dtype;
    const float *sums;     /* [rows][groups] */
} linq;

/* Words of BLOCK columns from column k of outputs d .. d + n_d - 1, word j of all outputs side by side. */
static void block_words(const linq *l, int64_t d, int64_t n_d, int64_t k, uint32_t words[MAX_BITS + 1][PANEL]) {
    const int bits = l->w->enc.bits;
    const uint8_t *p = l->w->codes + d * l->row_bytes + k / BLOCK * bits * 4;
    for (int64_t o = 0; o < n_d; o++, p += l->row_bytes)
        for (int j = 0; j < bits; j++) memcpy(&words[j][o], p + 4 * j, 4);
}

/* Codes of columns k .. k + n_k - 1 as numbers: panel[n_k][PANEL]. Lanes beyond n_d hold zeros. */
static void panel_codes(const linq *l, int64_t d, int64_t n_d, int64_t k, int64_t n_k, float *panel) {
    const int bits = l->w->enc.bits;
    const uint32_t mask = (1u << bits) - 1;
    uint32_t words[MAX_BITS + 1][PANEL] = {{0}};
    for (int64_t at = 0; at < n_k; at += BLOCK) {
        block_words(l, d, n_d, k + at, words);
        for (int i = 0; i < BLOCK; i++) {
            const int j = i * bits / 32, off = i * bits % 32;
            const uint32_t *lo = words[j], *hi = words[j + 1];
            float *out = panel + (at + i) * PANEL;
            if (off + bits <= 32)
                for (int o = 0; o < PANEL; o++) out[o] = (float)(int32_t)(lo[o] >> off & mask);
            else
                for (int o = 0; o < PANEL; o++) out[o] = (float)(int32_t)((lo[o] >> off | hi[o] << (32 - off)) & mask);
        }
    }
}

/* Scales or biases of groups g .. g + n_g - 1: out[n_g][PANEL]. */
static void panel_numbers(const linq *l, const uint8_t *from, int64_t d, int64_t n_d, int64_t g, int64_t n_g, float out[KC / BLOCK][PANEL]) {
    for (int64_t o = 0; o < n_d; o++)
        for (int64_t i = 0; i < n_g; i++) out[i][o] = ln_num_load(from, l->w->dtype, (d + o) * l->groups + g + i);
}

/* y = fma(s, p, y), then fma(b, t, y); from zero at the first group. */
static void add_group(float *y, const float *p, const float *s, const float *b, float t, int64_t n, bool first) {
    if (first)
        for (int64_t o = 0; o < n; o++) y[o] = fmaf(b[o], t, fmaf(s[o], p[o], 0.0f));
    else
        for (int64_t o = 0; o < n; o++) y[o] = fmaf(b[o], t, fmaf(s[o], p[o], y[o]));
}

static void panel_rows(const linq *l, int64_t rows, int64_t d, int64_t n_d, float *panel) {
    const int64_t group = l->w->enc.group, nv = (n_d + VL - 1) / VL;
    float s[KC / BLOCK][PANEL], b[KC / BLOCK][PANEL], p[CORE_M][PANEL];
    for (int64_t k = 0; k < l->C; k += KC) {
        const int64_t n_k = LN_MIN((int64_t)KC, l->C - k), g0 = k / group, n_g = n_k / group;
        panel_codes(l, d, n_d, k, n_k, panel);
        panel_numbers(l, l->w->scales, d, n_d, g0, n_g, s);
        panel_numbers(l, l->w->biases, d, n_d, g0, n_g, b);
        for (int64_t r = 0; r < rows; r += CORE_M) {
            const int64_t m = LN_MIN((int64_t)CORE_M, rows - r);
            for (int64_t g = 0; g < n_g; g++) {
                cores_0[nv - 1][m - 1](l->x + r * l->ldx + k + g * group, l->ldx, panel + g * group * PANEL, PANEL, group, p[0], PANEL, false);
                for (int64_t i = 0; i < m; i++)
                    add_group(l->y + (r + i) * l->ldy + d, p[i], s[g], b[g], l->sums[(r + i) * l->groups + g0 + g], n_d, g0 + g == 0);
            }
        }
    }
    for (int64_t r = 0; l->bias && r < rows; r++)
        for (int64_t o = 0; o < n_d; o++) l->y[r * l->ldy + d + o] = l->y[r * l->ldy + d + o] + ln_num_load(l->bias, l->bias_dtype, d + o);
}

/* The sums of x over each group: 16 lanes, added in halves. */
static void group_sums(const linq *l, int64_t rows, float *sums) {
    const int64_t group = l->w->enc.group;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t g = 0; g < l->groups; g++) {
            const float *x = l->x + r * l->ldx + g * group;
            float lane[16] = {0};
            for (int64_t i = 0; i < group; i += 16)
                for (int j = 0; j < 16; j++) lane[j] = lane[j] + x[i + j];
            for (int half = 8; half > 0; half /= 2)
                for (int j = 0; j < half; j++) lane[j] = lane[j] + lane[j + half];
            sums[r * l->groups + g] = lane[0];
        }
}

static size_t linear_q_scratch(const ln_node *n, const ln_value *values, const ln_bounds *b) {
    const ln_value *x = &values[n->in[0]], *w = &values[n->in[1]];
    return sizeof(float) * ((size_t)KC * PANEL + (size_t)ln_dim(x->dims[0], b) * (size_t)(w->dims[1] / w->enc.group));
}

static void linear_q_run(const ln_call *c) {
    const ln_arg *x = &c->in[0], *y = &c->out[0];
    const ln_affine *w = c->in[1].data;
    float *panel = c->scratch, *sums = panel + KC * PANEL;
    linq l = {.w = w, .C = x->cols, .row_bytes = ln_affine_row_bytes(w->enc, x->cols), .groups = x->cols / w->enc.group, .x = x->data, .y = y->data,
              .ldx = x->pitch, .ldy = y->pitch, .sums = sums};
    int64_t lo, hi;
    if (c->node->n_in > 2) l.bias = c->in[2].data, l.bias_dtype = c->in[2].dtype;
    ln_share(y->cols, VL, c->thread, c->n_threads, &lo, &hi);
    if (lo >= hi || y->rows < 1) return;
    group_sums(&l, y->rows, sums);
    for (int64_t d = lo; d < hi; d += PANEL) panel_rows(&l, y->rows, d, LN_MIN((int64_t)PANEL, hi - d), panel);
}

void LN_RUNG(ln_cpu_linear_q)(ln_kernel table[LN_OP_COUNT]) { table[LN_OP_LINEAR_Q] = (ln_kernel){linear_q_run, linear_q_scratch}; }
