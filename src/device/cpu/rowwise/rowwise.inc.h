/* The ops that go row by row, on a vector rung: plain C over the functions of base/num.h, vectorised by the compiler, and words of the
 * rung where it does not see how.
 *
 * The source of the arithmetic is the reference's (base/num.h, and the lanes of rmsnorm as ops.h orders them), so the bits are too;
 * what the rung adds is wide instructions and fmaf as one of them. Every kernel takes ln_share(rows, 1), because the nodes of a
 * stage follow each other row by row without a barrier. Pointers are not restrict: an output may lie on input 0, and no
 * loop reads an element after writing it. Included once per rung, after its simd header. */
#include "../../../base/pool.h"
#include "../../../ops/ops.h"
#include "../cpu.h"
#include "../simd/simd_activation.inc.h"
#include "../pack/bf12.h"

#define ROWS(c, lo, hi)                                                                                                                  \
    int64_t lo, hi;                                                                                                                      \
    ln_share((c)->out[0].rows, 1, (c)->thread, (c)->n_threads, &lo, &hi)

static inline const float *row_in(const ln_call *c, int i, int64_t r) { return (const float *)c->in[i].data + r * c->in[i].pitch; }
/* Number i of row r of output 0. */
static inline void *out_at(const ln_call *c, int64_t r, int64_t i) {
    return (char *)c->out[0].data + (r * c->out[0].pitch + i) * ln_dtype_bytes(c->out[0].dtype);
}
static inline float *row_out(const ln_call *c, int64_t r) { return out_at(c, r, 0); }

/* A number on its way into output 0 of an op that ROUNDS: as it is, rounded, or in two bytes. `form` is a constant in every loop: BY_FORM makes
 * one for each. */
enum { AS_IT_IS, ROUNDED, NARROW };
#define INLINE_ROW static inline __attribute__((always_inline)) void
INLINE_ROW put(void *y, int64_t i, float x, const int form) {
    if (form == NARROW) ((uint16_t *)y)[i] = ln_f32_bf16(x);
    else ((float *)y)[i] = form == ROUNDED ? ln_bf16_f32(ln_f32_bf16(x)) : x;
}
#define BY_FORM(c, row, ...)                                                                                                             \
    do {                                                                                                                                 \
        if ((c)->out[0].dtype == LN_BF16) row(__VA_ARGS__, NARROW);                                                                      \
        else if ((c)->out[0].bf16) row(__VA_ARGS__, ROUNDED);                                                                            \
        else row(__VA_ARGS__, AS_IT_IS);                                                                                                 \
    } while (0)

#define BY_ROW(name)                                                                                                                     \
    static void name##_run(const ln_call *c) {                                                                                           \
        ROWS(c, lo, hi);                                                                                                                 \
        const int other = c->node->n_in - 1;                                                                                             \
        for (int64_t r = lo; r < hi; r++) BY_FORM(c, name##_row, row_in(c, 0, r), row_in(c, other, r), out_at(c, r, 0), c->out[0].cols); \
    }
#define POINTWISE(name, expr)                                                                                                            \
    INLINE_ROW name##_row(const float *a, const float *b, void *y, int64_t n, const int form) {                                          \
        (void)b;                                                                                                                         \
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) put(y, i, (expr), form);                                                    \
    }                                                                                                                                    \
    BY_ROW(name)
POINTWISE(add, a[i] + b[i])
POINTWISE(mul, a[i] * b[i])

/* Of n numbers, AT_ONCE or fewer at a time. */
enum { AT_ONCE = 64 };
INLINE void function_of(const bool gelu, const float *a, int64_t n, float *y) {
    float rest[AT_ONCE] = {0};
    if (n < AT_ONCE) memcpy(rest, a, (size_t)n * sizeof *rest), a = rest;
    for (int i = 0; i < AT_ONCE; i += VL) vf_store(y + i, gelu ? gelu_of(vf_load(a + i)) : silu_of(vf_load(a + i)));
}
#define FUNCTION(name, gelu, expr)                                                                                                       \
    INLINE_ROW name##_row(const float *a, const float *b, void *y, int64_t n, const int form) {                                          \
        (void)b;                                                                                                                         \
        for (int64_t at = 0; at < n; at += AT_ONCE) {                                                                                    \
            const int64_t m = LN_MIN((int64_t)AT_ONCE, n - at);                                                                          \
            float f[AT_ONCE];                                                                                                            \
            function_of(gelu, a + at, m, f);                                                                                             \
            if (m == AT_ONCE) _Pragma("GCC ivdep") for (int64_t i = 0; i < AT_ONCE; i++) put(y, at + i, (expr), form);                   \
            else for (int64_t i = 0; i < m; i++) put(y, at + i, (expr), form);                                                           \
        }                                                                                                                                \
    }                                                                                                                                    \
    BY_ROW(name)
FUNCTION(silu, false, f[i])
FUNCTION(gelu_tanh, true, f[i])
FUNCTION(swiglu, false, f[i] * b[at + i])
FUNCTION(geglu, true, f[i] * b[at + i])

INLINE_ROW copy_row(const float *a, void *y, int64_t n, const int form) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) put(y, i, a[i], form);
}
static void round_bf16_run(const ln_call *c) {
    ROWS(c, lo, hi);
    for (int64_t r = lo; r < hi; r++) copy_row(row_in(c, 0, r), out_at(c, r, 0), c->out[0].cols, ROUNDED);
}
static void gather_rows_run(const ln_call *c) {
    ROWS(c, lo, hi);
    for (int64_t r = lo; r < hi; r++) BY_FORM(c, copy_row, row_in(c, 0, c->step->out_rows[r]), out_at(c, r, 0), c->out[0].cols);
}

/* One group of base/fixed.h: words of two numbers, first and second being `apart` columns of each `per` apart. */
INLINE_ROW fixed_group(const float *x, const ln_enc e, const int per, uint32_t *v, float *u, float *t) {
    const int n = e.group;
    uint32_t most = 0;
    int32_t whole[128], sum = 0;
    for (int i = 0; i < n; i++) most = LN_MAX(most, ln_f32_bits(x[i]) & 0x7fffffffu);
    *u = ln_fixed_scale(most, ln_fixed_bits(e.bits));
    const bool some = *u > 0;
    const float by = some ? 1 / *u : 0;
    for (int i = 0; i < n; i++) {
        whole[i] = some ? (int32_t)rintf(x[i] * by) : 0;
        sum += whole[i];
    }
    for (int i = 0; i < n; i += 2 * per)
        for (int j = 0; j < per; j++) v[i / 2 + j] = ((uint32_t)whole[i + j] & 0xffffu) | (uint32_t)whole[i + j + per] << 16;
    *t = *u * (float)sum;
}
static void fixed_run(const ln_call *c) {
    const ln_enc e = c->node->p.fixed.enc;
    const int64_t cols = c->in[0].cols, groups = cols / e.group;
    ROWS(c, lo, hi);
    for (int64_t r = lo; r < hi; r++) {
        float *row = row_out(c, r), *u = ln_fixed_scales(row, cols), *t = ln_fixed_sums(row, cols, e.group);
        for (int64_t g = 0; g < groups; g++) {
            const float *x = row_in(c, 0, r) + g * e.group;
            uint32_t *v = (uint32_t *)(void *)row + g * e.group / 2;
            if (e.bits == 4) fixed_group(x, e, 4, v, u + g, t + g);
            else if (e.bits == 8) fixed_group(x, e, 2, v, u + g, t + g);
            else fixed_group(x, e, 1, v, u + g, t + g);
        }
    }
}

/* A line of 64 columns of base/fixed.h by row, n of which are there: limbs in order; what they sum to. */
typedef int8_t limbs16 __attribute__((vector_size(16)));
INLINE_ROW fixed_line(const float *x, const int n, const int bits, float by, int8_t *h, int8_t *l, int32_t *sum_h, int32_t *sum_l) {
    int8_t upper[64] = {0}, lower[64] = {0};
    int32_t a = 0, b = 0;
    for (int i = 0; i < n; i++) {
        const int32_t v = (int32_t)rintf(x[i] * by), up = ln_fixed_upper(bits, v), low = v - ln_fixed_radix(bits) * up;
        upper[i] = (int8_t)up;
        lower[i] = (int8_t)low;
        a += up;
        b += low;
    }
    *sum_h += a;
    *sum_l += b;
    for (int i = 0; i < 64 && bits == 4; i += 16) { /* ln_fixed_row_column */
        limbs16 v, w;
        memcpy(&v, upper + i, sizeof v);
        memcpy(&w, lower + i, sizeof w);
        v = __builtin_shufflevector(v, v, 0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
        w = __builtin_shufflevector(w, w, 0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
        memcpy(upper + i, &v, sizeof v);
        memcpy(lower + i, &w, sizeof w);
    }
    memcpy(h, upper, sizeof upper);
    memcpy(l, lower, sizeof lower);
}
#ifdef LN_BYTES_OF
/* The largest magnitude of n numbers, whole sixteens, as its bits: above those of infinity if one is NaN. `apart`: numbers from 16 of them to the next 16. */
INLINE uint32_t most_of(const float *x, const int64_t apart, int64_t n) {
    vi most[4] = {vi_zero(), vi_zero(), vi_zero(), vi_zero()};
    int64_t i = 0;
    for (; i + 4 * VL <= n; i += 4 * VL, x += 4 * apart)
#pragma GCC unroll 4
        for (int v = 0; v < 4; v++) most[v] = vi_most(most[v], vi_mask(vi_load((const uint8_t *)(x + v * apart)), 0x7fffffffu));
    for (; i + VL <= n; i += VL, x += apart) most[0] = vi_most(most[0], vi_mask(vi_load((const uint8_t *)x), 0x7fffffffu));
    return vi_most_of(vi_most(vi_most(most[0], most[1]), vi_most(most[2], most[3])));
}
/* Rows of a panel whose lines meet registers together; what is asked for so many numbers ahead. */
enum { PANEL = 8, SOON = 2048 };
/* The largest magnitudes of `rows` rows of a panel, a multiple of PANEL. All of a panel's rows go together, as one stream; L2 has them when limbs are made. */
INLINE void mosts_of(const float *x, int64_t apart, int64_t rows, int64_t cols, uint32_t *out) {
    vi most[LN_PANEL_ROWS];
    for (int64_t r = 0; r < rows; r++) most[r] = vi_zero();
    for (int64_t i = 0; i < cols; i += 4 * VL, x += 4 * apart)
        for (int64_t r = 0; r < rows; r += PANEL) {
            vi m[PANEL];
#pragma GCC unroll 8
            for (int k = 0; k < PANEL; k++) m[k] = most[r + k];
#pragma GCC unroll 32
            for (int k = 0; k < 4 * PANEL; k++) vf_ahead_far((const uint8_t *)(x + SOON + k / PANEL * apart + (r + k % PANEL) * VL));
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++)
#pragma GCC unroll 8
                for (int k = 0; k < PANEL; k++) m[k] = vi_most(m[k], vi_mask(vi_load((const uint8_t *)(x + j * apart + (r + k) * VL)), 0x7fffffffu));
#pragma GCC unroll 8
            for (int k = 0; k < PANEL; k++) most[r + k] = m[k];
        }
    for (int64_t r = 0; r < rows; r++) out[r] = vi_most_of(most[r]);
}
/* ln_fixed_upper of words. */
INLINE vi upper_of(const int bits, vi v) {
    const int k = ln_fixed_radix(bits);
    if (k == 256) return vi_words_right_signed(vi_words_add(v, vi_words(k / 2)), 8);
    return vi_words_sub(vi_words_right(vi_words_mul_high(vi_words_add(v, vi_words(k / 2 + 128 * k)), vi_words(34953)), 4), vi_words(128)); /* 2^20 / 30, exact up to 8,000 */
}
/* The same as fixed_line of a whole line, in the words of the rung; what limbs sum to is added in 16 lanes. */
INLINE void fixed_line_of_words(const float *x, const int64_t apart, const int bits, vf by, int8_t *h, int8_t *l, vi *sum_h, vi *sum_l) {
    vi upper[2], lower[2];
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++, x += 2 * apart) {
        const vf first = bits == 4 ? vf_even_first(vf_load(x)) : vf_load(x), second = bits == 4 ? vf_even_first(vf_load(x + apart)) : vf_load(x + apart);
        const vi v = vi_words_of(vi_whole(vf_mul(first, by)), vi_whole(vf_mul(second, by)));
        upper[i] = upper_of(bits, v);
        lower[i] = vi_words_sub(v, ln_fixed_radix(bits) == 256 ? vi_words_left(upper[i], 8) : vi_words_mul(upper[i], vi_words(ln_fixed_radix(bits))));
    }
    *sum_h = vi_add(*sum_h, vi_pairs_sum(vi_words_add(upper[0], upper[1])));
    *sum_l = vi_add(*sum_l, vi_pairs_sum(vi_words_add(lower[0], lower[1])));
    vi_store((uint8_t *)h, vi_bytes_of(upper[0], upper[1]));
    vi_store((uint8_t *)l, vi_bytes_of(lower[0], lower[1]));
}
/* Whole lines of a row; how many columns they are. Meanwhile the next row, `pitch` numbers further on, is asked for: a wide product's rows have left the caches. */
INLINE int64_t fixed_lines(const float *x, const int64_t apart, int64_t pitch, int64_t cols, const int bits, float by, ln_fixed_place to, ln_fixed_terms *sums) {
    vi sum_h = vi_zero(), sum_l = vi_zero();
    int32_t of_h[VL], of_l[VL];
    int64_t i = 0;
    for (; i + 64 <= cols; i += 64, x += 4 * apart, to.limbs += to.step) {
        for (int j = 0; j < 4; j++) vf_ahead_far((const uint8_t *)(x + pitch + j * apart));
        fixed_line_of_words(x, apart, bits, vf_set1(by), to.limbs, to.limbs + to.lower, &sum_h, &sum_l);
    }
    vi_store((uint8_t *)of_h, sum_h);
    vi_store((uint8_t *)of_l, sum_l);
    for (int j = 0; j < VL; j++) sums->h += of_h[j], sums->l += of_l[j];
    return i;
}
/* Limbs of those rows; `to`: of the first row, others' are `pitch` bytes apart. */
INLINE void fixed_panel(const float *x, int64_t apart, int64_t rows, int64_t cols, const int bits, const float *by, ln_fixed_place to, int64_t pitch, ln_fixed_terms *terms) {
    vi sum_h[LN_PANEL_ROWS], sum_l[LN_PANEL_ROWS];
    int32_t of_h[VL], of_l[VL];
    for (int64_t r = 0; r < rows; r++) sum_h[r] = sum_l[r] = vi_zero();
    for (int64_t i = 0; i < cols; i += 64, x += 4 * apart, to.limbs += to.step)
        for (int64_t r = 0; r < rows; r++) fixed_line_of_words(x + r * VL, apart, bits, vf_set1(by[r]), to.limbs + r * pitch, to.limbs + r * pitch + to.lower, &sum_h[r], &sum_l[r]);
    for (int64_t r = 0; r < rows; r++) {
        vi_store((uint8_t *)of_h, sum_h[r]);
        vi_store((uint8_t *)of_l, sum_l[r]);
        for (int j = 0; j < VL; j++) terms[r].h += of_h[j], terms[r].l += of_l[j];
    }
}
#else
INLINE uint32_t most_of(const float *x, const int64_t apart, int64_t n) {
    uint32_t most = 0;
    for (int64_t i = 0; i < n; i++) most = LN_MAX(most, ln_f32_bits(x[i / LN_PANEL_COLS * apart + i % LN_PANEL_COLS]) & 0x7fffffffu);
    return most;
}
INLINE int64_t fixed_lines(const float *x, const int64_t apart, int64_t pitch, int64_t cols, const int bits, float by, ln_fixed_place to, ln_fixed_terms *sums) {
    (void)pitch;
    int64_t i = 0;
    for (; i + 64 <= cols; i += 64, to.limbs += to.step) {
        float line[64];
        for (int j = 0; j < 64; j++) line[j] = x[(i + j) / LN_PANEL_COLS * apart + j % LN_PANEL_COLS];
        fixed_line(line, 64, bits, by, to.limbs, to.limbs + to.lower, &sums->h, &sums->l);
    }
    return i;
}
#endif
/* A row whose largest magnitude is known. */
INLINE void fixed_row_of(const float *x, const int64_t apart, int64_t pitch, int64_t cols, int bits, uint32_t most, ln_fixed_place to) {
    ln_fixed_terms terms = {0};
    float by;
    ln_fixed_row_scale(most, bits, &terms.u, &by);
    if (!(by > 0))
        for (int64_t i = 0; i < cols; i += 64, to.limbs += to.step) memset(to.limbs, 0, 64), memset(to.limbs + to.lower, 0, 64);
    else {
        const int64_t i = bits == 4   ? fixed_lines(x, apart, pitch, cols, 4, by, to, &terms)
                          : bits == 8 ? fixed_lines(x, apart, pitch, cols, 8, by, to, &terms)
                                      : fixed_lines(x, apart, pitch, cols, bits, by, to, &terms);
        if (i < cols) { /* half a line */
            float line[32];
            for (int j = 0; j < 32; j++) line[j] = x[(i + j) / LN_PANEL_COLS * apart + j % LN_PANEL_COLS];
            int8_t *h = to.limbs + i / 64 * to.step;
            fixed_line(line, 32, bits, by, h, h + to.lower, &terms.h, &terms.l);
        }
    }
    memcpy(to.terms, &terms, sizeof terms);
}
#ifdef LN_BYTES_OF
/* n rows from r on, which lie in one panel at x, a multiple of PANEL. Returns false where one of them has nothing to scale, and nothing was done. */
static bool fixed_rows_of_panel(const ln_call *c, int64_t r, int64_t n, const float *x, int64_t apart, int bits) {
    const int64_t cols = c->in[0].cols, pitch = c->out[0].panels ? 64 : c->out[0].pitch * (int64_t)sizeof(float);
    const ln_fixed_place to = ln_arg_fixed(&c->out[0], r, sizeof(float));
    ln_fixed_terms terms[LN_PANEL_ROWS] = {0};
    float by[LN_PANEL_ROWS];
    uint32_t most[LN_PANEL_ROWS];
    mosts_of(x, apart, n, cols, most);
    for (int64_t i = 0; i < n; i++) {
        ln_fixed_row_scale(most[i], bits, &terms[i].u, &by[i]);
        if (!(by[i] > 0)) return false;
    }
    if (bits == 4) fixed_panel(x, apart, n, cols, 4, by, to, pitch, terms);
    else if (bits == 8) fixed_panel(x, apart, n, cols, 8, by, to, pitch, terms);
    else fixed_panel(x, apart, n, cols, bits, by, to, pitch, terms);
    for (int64_t i = 0; i < n; i++) memcpy(ln_arg_fixed(&c->out[0], r + i, sizeof(float)).terms, &terms[i], sizeof terms[i]);
    return true;
}
#endif
/* In panels what is made may lie on the numbers it is made of: a line is stored when those of its columns are loaded, what rows sum to when nobody's numbers are there. */
static void fixed_row_run(const ln_call *c) {
    const int bits = c->node->p.fixed.enc.bits;
    const ln_arg *x = &c->in[0];
    ROWS(c, lo, hi);
    if (!x->panels) {
        for (int64_t r = lo; r < hi; r++)
            fixed_row_of(row_in(c, 0, r), LN_PANEL_COLS, x->pitch, x->cols, bits, most_of(row_in(c, 0, r), LN_PANEL_COLS, x->cols), ln_arg_fixed(&c->out[0], r, sizeof(float)));
        return;
    }
    for (int64_t r = lo; r < hi; r++) {
        const int64_t first = r - r % LN_PANEL_ROWS, of_panel = LN_MIN(x->rows - first, (int64_t)LN_PANEL_ROWS), apart = LN_PANEL_COLS * of_panel;
        const float *row = (const float *)x->data + ln_panel_at(x->rows, x->pitch, r, 0);
#ifdef LN_BYTES_OF
        const int64_t n = (LN_MIN(hi, first + of_panel) - r) / PANEL * PANEL;
        if (x->cols % 64 == 0 && n && fixed_rows_of_panel(c, r, n, row, apart, bits)) {
            r += n - 1;
            continue;
        }
#endif
        fixed_row_of(row, apart, 0, x->cols, bits, most_of(row, apart, x->cols), ln_arg_fixed(&c->out[0], r, sizeof(float)));
    }
}

/* 16 lanes of squares of M groups, `apart` from each other, each added in halves: a group's are one chain, so several go beside each other. */
INLINE void squares(const int M, const float *x, int64_t apart, int64_t n, float *out) {
    enum { VECTORS = 16 / VL, MOST = 4 };
    vf sum[MOST][VECTORS];
    int64_t i = 0;
    for (int m = 0; m < M; m++)
        for (int v = 0; v < VECTORS; v++) sum[m][v] = vf_zero();
    for (; i + 16 <= n; i += 16)
#pragma GCC unroll 4
        for (int m = 0; m < M; m++)
            for (int v = 0; v < VECTORS; v++) {
                const vf a = vf_load(x + m * apart + i + v * VL);
                sum[m][v] = vf_fma(a, a, sum[m][v]);
            }
    for (int m = 0; m < M; m++) {
        if (i < n) {
            float rest[16] = {0};
            memcpy(rest, x + m * apart + i, (size_t)(n - i) * sizeof *rest);
            for (int v = 0; v < VECTORS; v++) sum[m][v] = vf_fma(vf_load(rest + v * VL), vf_load(rest + v * VL), sum[m][v]);
        }
        out[m] = vf_lanes_sum(sum[m]);
    }
}
INLINE_ROW norm_group(const float *x, float scale, void *y, int64_t n, const void *w, const ln_dtype dtype, float offset, const int form) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) put(y, i, (x[i] * scale) * (ln_num_load(w, dtype, i) + offset), form);
}
INLINE_ROW norm_weights(float *by, const void *w, const ln_dtype dtype, int64_t n, float offset) {
    for (int64_t i = 0; i < n; i++) by[i] = ln_num_load(w, dtype, i) + offset;
}
/* What a group is multiplied by was made before. */
INLINE_ROW norm_group_by(const float *x, float scale, void *y, int64_t n, const float *by, const int form) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) put(y, i, (x[i] * scale) * by[i], form);
}
/* What becomes of a group whose squares are summed. */
INLINE_ROW norm_one(const ln_call *c, const float *x, float scale, void *y, const float *by) {
    const ln_arg *w = &c->in[1];
    const float offset = c->node->p.norm.offset;
    if (by) BY_FORM(c, norm_group_by, x, scale, y, w->cols, by);
    else if (w->dtype == LN_F32) BY_FORM(c, norm_group, x, scale, y, w->cols, w->data, LN_F32, offset);
    else if (w->dtype == LN_BF16) BY_FORM(c, norm_group, x, scale, y, w->cols, w->data, LN_BF16, offset);
    else BY_FORM(c, norm_group, x, scale, y, w->cols, w->data, LN_F16, offset);
}
/* Groups go SOME at a time, whole rows TOGETHER: a sum and its root are a long chain, and those of several run beside each other. Weight and offset are put together once where
 * that is for MANY groups. */
static void rmsnorm_run(const ln_call *c) {
    enum { SOME = 16, TOGETHER = 4, MANY = 4, WIDTH = 4096 };
    const ln_p_norm *p = &c->node->p.norm;
    const ln_arg *w = &c->in[1];
    const int64_t n = w->cols, groups = c->in[0].cols / n;
    ROWS(c, lo, hi);
    float numbers[WIDTH], *by = (hi - lo) * groups >= MANY && n <= WIDTH ? numbers : NULL;
    if (by && w->dtype == LN_F32) norm_weights(by, w->data, LN_F32, n, p->offset);
    else if (by && w->dtype == LN_BF16) norm_weights(by, w->data, LN_BF16, n, p->offset);
    else if (by) norm_weights(by, w->data, LN_F16, n, p->offset);
    int64_t r = lo;
    for (; groups == 1 && r + TOGETHER <= hi; r += TOGETHER) {
        float scale[TOGETHER];
        squares(TOGETHER, row_in(c, 0, r), c->in[0].pitch, n, scale);
        for (int i = 0; i < TOGETHER; i++) scale[i] = 1 / sqrtf(scale[i] / (float)n + p->eps);
        for (int i = 0; i < TOGETHER; i++) norm_one(c, row_in(c, 0, r + i), scale[i], row_out(c, r + i), by);
    }
    for (; r < hi; r++)
        for (int64_t g = 0; g < groups; g += SOME) {
            const int some = (int)LN_MIN((int64_t)SOME, groups - g);
            const float *x = row_in(c, 0, r) + g * n;
            float scale[SOME] = {0};
            for (int i = 0; i < some; i++) squares(1, x + i * n, 0, n, &scale[i]);
            if (some > 1)
                for (int i = 0; i < SOME; i++) scale[i] = 1 / sqrtf(scale[i] / (float)n + p->eps);
            else scale[0] = 1 / sqrtf(scale[0] / (float)n + p->eps);
            for (int i = 0; i < some; i++) norm_one(c, x + i * n, scale[i], out_at(c, r, (g + i) * n), by);
        }
}

/* A row of a packed table (pack.h): one lane of a block, a step apart from column to column. */
static inline void embed_row(const uint8_t *w, ln_dtype dtype, int64_t n, float scale, float *y) {
    const int64_t step = dtype == LN_F16 ? 32 : 64;
    if (dtype == LN_BF16)
        for (int64_t i = 0; i + 2 <= n; i += 2, w += step) y[i] = ln_num_load(w, LN_BF16, 0) * scale, y[i + 1] = ln_num_load(w, LN_BF16, 1) * scale;
    else
        for (int64_t i = 0; i < n; i++, w += step) y[i] = ln_num_load(w, dtype, 0) * scale;
    if (dtype == LN_BF16 && n % 2) y[n - 1] = ln_num_load(w, LN_BF16, 0) * scale; /* w has come to the half pair */
}
static void embed_run(const ln_call *c) {
    const ln_arg *t = &c->in[0];
    float scale = c->node->p.embed.scale;
    ROWS(c, lo, hi);
    for (int64_t r = lo; r < hi; r++) {
        int64_t n = c->out[0].cols;
        if (t->tight) {
            ln_tight_row(row_out(c, r), t->data, n, c->step->ids[r], scale);
            continue;
        }
        const uint8_t *w = (const uint8_t *)t->data + ln_pack_at(t->dtype, n, c->step->ids[r], 0);
        if (t->dtype == LN_F32) embed_row(w, LN_F32, n, scale, row_out(c, r));
        else if (t->dtype == LN_BF16) embed_row(w, LN_BF16, n, scale, row_out(c, r));
        else embed_row(w, LN_F16, n, scale, row_out(c, r));
    }
}

/* A row's words lie in lines of their own, far from the last row's. */
static void ask_for_row_q(const uint8_t *at, const uint8_t *scales, int64_t words, int64_t numbers, int64_t group_bytes, int64_t next, int64_t groups) {
    for (int64_t g = 0; g < groups; g++, at += group_bytes, scales += next) {
        for (int64_t i = 0; i < words; i += 64) vf_ahead(at + i);
        for (int64_t i = 0; i < numbers; i += 64) vf_ahead(scales + i);
    }
}
/* The same of an encoded table. */
static void embed_q_run(const ln_call *c) {
    const ln_affine *w = c->in[0].data;
    const int64_t cols = c->out[0].cols, group = w->enc.group, words = 64 * (group * w->enc.bits / 32), group_bytes = ln_pack_group_q(w->enc, w->dtype);
    const int64_t numbers = ln_pack_numbers_q(w->dtype), next = w->scales ? numbers : group_bytes;
    float scale = c->node->p.embed.scale;
    ROWS(c, lo, hi);
    const int64_t block = ln_pack_block_q(w->enc, w->dtype, cols), groups = cols / group;
    for (int64_t r = lo; r < hi; r++) {
        const int64_t id = c->step->ids[r], lane = id % LN_PACK_D, soon = r + 1 < hi ? c->step->ids[r + 1] / LN_PACK_D : -1;
        const uint8_t *at = w->codes + id / LN_PACK_D * block, *scales = w->scales ? w->scales + id / LN_PACK_D * groups * numbers : at + words;
        if (soon >= 0) ask_for_row_q(w->codes + soon * block, w->scales ? w->scales + soon * groups * numbers : w->codes + soon * block + words, words, numbers, group_bytes, next, groups);
        float *y = row_out(c, r);
        for (int64_t g = 0; g < cols; g += group, at += group_bytes, scales += next) {
            float s = ln_num_load(scales, w->dtype, lane), b = ln_num_load(scales, w->dtype, LN_PACK_D + lane);
            for (int64_t i = 0; i < group; i++) y[g + i] = fmaf(s, (float)ln_pack_code(at + 4 * lane, w->enc.bits, i), b) * scale;
        }
    }
}

/* One head: x and y are its first half, and its second `half` numbers on. */
INLINE_ROW rope_head(const float *x, const float *t, void *y, int64_t half, const int form) {
#pragma GCC ivdep
    for (int64_t i = 0; i < half; i++) {
        float a = x[i], b = x[i + half], co = t[i], s = t[i + half];
        put(y, i, a * co - b * s, form);
        put(y, i + half, b * co + a * s, form);
    }
}
static void rope_run(const ln_call *c) {
    const ln_p_heads *p = &c->node->p.heads;
    const int64_t E = p->head_dim;
    ROWS(c, lo, hi);
    for (int64_t r = lo; r < hi; r++)
        for (int64_t h = 0; h < p->n_heads; h++) BY_FORM(c, rope_head, row_in(c, 0, r) + h * E, row_in(c, 1, r), out_at(c, r, h * E), E / 2);
}

/* Pairs of bf16 numbers of 8 rows become those of 8 lines. */
typedef uint32_t pairs8 __attribute__((vector_size(32)));
static inline void turn_pairs(pairs8 v[8]) {
#define TURN(d, first, second)                                                                                                           \
    for (int i = 0; i < 8; i++)                                                                                                          \
        if (!(i & (d))) {                                                                                                                \
            const pairs8 a = v[i], b = v[i + (d)];                                                                                       \
            v[i] = __builtin_shufflevector(a, b, first);                                                                                 \
            v[i + (d)] = __builtin_shufflevector(a, b, second);                                                                          \
        }
#define LIST(...) __VA_ARGS__
    TURN(1, LIST(0, 8, 2, 10, 4, 12, 6, 14), LIST(1, 9, 3, 11, 5, 13, 7, 15))
    TURN(2, LIST(0, 1, 8, 9, 4, 5, 12, 13), LIST(2, 3, 10, 11, 6, 7, 14, 15))
    TURN(4, LIST(0, 1, 2, 3, 8, 9, 10, 11), LIST(4, 5, 6, 7, 12, 13, 14, 15))
#undef LIST
#undef TURN
}
/* Keys of 8 positions, from number e on, 16 numbers each, into 8 lines from `to` on. */
static inline void put_keys_of_8(uint16_t *to, const float *k, int64_t pitch) {
    pairs8 v[8];
    for (int r = 0; r < 8; r++) {
        uint16_t some[16];
        for (int i = 0; i < 16; i++) some[i] = ln_f32_bf16(k[r * pitch + i]);
        memcpy(&v[r], some, sizeof some);
    }
    turn_pairs(v);
    for (int i = 0; i < 8; i++) memcpy(to + i * 2 * LN_KV_SIDE, &v[i], sizeof v[i]);
}
/* A head's keys of n positions that lie in one block (pages.h), from lane `at` of it on; k[n][E], `pitch` numbers apart. */
static inline void put_keys(void *block, ln_dtype t, int64_t at, const float *k, int64_t pitch, int64_t n, int64_t E) {
    enum { SOME = 64 };
    uint16_t some[SOME];
    int64_t r = 0;
    for (; t == LN_BF16 && E % 16 == 0 && r + 8 <= n; r += 8, k += 8 * pitch)
        for (int64_t e = 0; e < E; e += 16) put_keys_of_8((uint16_t *)block + 2 * (at + r) + e * LN_KV_SIDE, k + e, pitch);
    for (; r < n; r++, k += pitch)
        if (t == LN_F32) {
            float *to = (float *)block + at + r;
            for (int64_t e = 0; e < E; e++) to[e * LN_KV_SIDE] = k[e];
        } else {
            uint16_t *to = (uint16_t *)block + 2 * (at + r);
            for (int64_t e = 0; e < E; e += SOME, to += SOME * LN_KV_SIDE) { /* rounded by vectors, then stored pair by pair */
                const int64_t m = LN_MIN((int64_t)SOME, E - e);
                for (int64_t i = 0; i < m; i++) some[i] = ln_f32_bf16(k[e + i]);
                for (int64_t i = 0; i + 2 <= m; i += 2) memcpy(to + i * LN_KV_SIDE, some + i, 2 * sizeof *some);
                if (m % 2) to[(m - 1) * LN_KV_SIDE] = some[m - 1];
            }
        }
}
/* Values of two positions as one line of n lanes. */
static inline void put_line(uint16_t *line, const float *even, const float *odd, int64_t n) {
    uint32_t pairs[LN_KV_SIDE];
    for (int64_t i = 0; i < n; i++) pairs[i] = (uint32_t)ln_f32_bf16(even[i]) | (uint32_t)ln_f32_bf16(odd[i]) << 16;
    memcpy(line, pairs, (size_t)n * sizeof *pairs);
}
/* A head's values of n positions from `at` on of a piece of LN_KV_STEP: v[n][E]. */
static inline void put_values(void *piece, ln_dtype t, int64_t at, const float *v, int64_t pitch, int64_t n, int64_t E) {
    for (int64_t e = 0; e < E; e += LN_KV_SIDE) {
        const int64_t lanes = LN_MIN((int64_t)LN_KV_SIDE, E - e), block = ln_kv_at(t, LN_KV_STEP, e, 0);
        for (int64_t r = 0, two; r < n; r += 1 + two) {
            const float *from = v + r * pitch + e;
            two = t == LN_BF16 && (at + r) % 2 == 0 && r + 1 < n;
            uint16_t *line = (uint16_t *)piece + block + (at + r) / 2 * 2 * LN_KV_SIDE + (at + r) % 2;
            if (t == LN_F32) memcpy((float *)piece + block + (at + r) * LN_KV_SIDE, from, (size_t)lanes * sizeof *v);
            else if (!two)
                for (int64_t i = 0; i < lanes; i++) line[2 * i] = ln_f32_bf16(from[i]);
            else if (lanes == LN_KV_SIDE) put_line(line, from, from + pitch, LN_KV_SIDE);
            else put_line(line, from, from + pitch, lanes);
        }
    }
}
/* As many rows at once as lie in one block of K: whole words and lines are written where both halves are at hand. */
static void kv_write_run(const ln_call *c) {
    const ln_p_kv *p = &c->node->p.kv;
    const ln_step *s = c->step;
    const int64_t E = p->head_dim, size = ln_dtype_bytes(p->dtype);
    int64_t lo, hi, n;
    ln_share(c->in[1].rows, 1, c->thread, c->n_threads, &lo, &hi);
    for (int64_t r = lo; r < hi; r += n) {
        const int64_t pos = s->pos[r], at = pos % p->page_len, lane = at % LN_KV_SIDE;
        n = LN_MIN(LN_MIN(hi, (int64_t)s->row0[s->seq[r] + 1]) - r, LN_KV_SIDE - lane);
        /* the pool is the only thing that kernels write besides temps */
        char *layer = (char *)(uintptr_t)ln_kv_layer(p, c->in[0].data, s, s->seq[r], pos);
        for (int64_t h = 0; h < p->n_kv_heads; h++) {
            put_keys(layer + ln_kv_k_index(p, h, 0, at - lane) * size, p->dtype, lane, row_in(c, 1, r) + h * E, c->in[1].pitch, n, E);
            put_values(layer + ln_kv_v_index(p, h, 0, at - at % LN_KV_STEP) * size, p->dtype, at % LN_KV_STEP, row_in(c, 2, r) + h * E, c->in[2].pitch, n, E);
        }
    }
}

void LN_RUNG(ln_cpu_rows)(ln_kernel table[LN_OP_COUNT]) {
    table[LN_OP_EMBED].fn = embed_run;
    table[LN_OP_EMBED_Q].fn = embed_q_run;
    table[LN_OP_RMSNORM].fn = rmsnorm_run;
    table[LN_OP_ADD].fn = add_run;
    table[LN_OP_MUL].fn = mul_run;
    table[LN_OP_SILU].fn = silu_run;
    table[LN_OP_GELU_TANH].fn = gelu_tanh_run;
    table[LN_OP_SWIGLU].fn = swiglu_run;
    table[LN_OP_GEGLU].fn = geglu_run;
    table[LN_OP_ROPE].fn = rope_run;
    table[LN_OP_ROUND_BF16].fn = round_bf16_run;
    table[LN_OP_FIXED].fn = fixed_run;
    table[LN_OP_FIXED_ROW].fn = fixed_row_run;
    table[LN_OP_KV_WRITE].fn = kv_write_run;
    table[LN_OP_GATHER_ROWS].fn = gather_rows_run;
}
