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

#define PARTITION_ROWS(c, lo, hi)                                                                                                                  \
    int64_t lo, hi;                                                                                                                      \
    ln_share((c)->out[0].rows, 1, (c)->thread, (c)->n_threads, &lo, &hi)

static inline const float *row_in(const ln_call *c, int i, int64_t r) { return (const float *)c->in[i].data + r * c->in[i].pitch; }
/* Number i of row r of output 0. */
static inline void *output_at(const ln_call *c, int64_t r, int64_t i) {
    return (char *)c->out[0].data + (r * c->out[0].pitch + i) * ln_dtype_bytes(c->out[0].dtype);
}
static inline float *row_out(const ln_call *c, int64_t r) { return output_at(c, r, 0); }

/* A number on its way into output 0 of an op that ROUNDS: as it is, rounded, or in two bytes. `form` is a constant in every loop: BY_STORE makes
 * one for each. */
enum { STORE_F32, STORE_ROUNDED, STORE_BF16 };
#define INLINE_ROW static inline __attribute__((always_inline)) void
INLINE_ROW store_as(void *y, int64_t i, float x, const int store) {
    if (store == STORE_BF16) ((uint16_t *)y)[i] = ln_f32_bf16(x);
    else ((float *)y)[i] = store == STORE_ROUNDED ? ln_bf16_f32(ln_f32_bf16(x)) : x;
}
#define BY_STORE(c, row, ...)                                                                                                             \
    do {                                                                                                                                 \
        if ((c)->out[0].dtype == LN_BF16) row(__VA_ARGS__, STORE_BF16);                                                                      \
        else if ((c)->out[0].bf16) row(__VA_ARGS__, STORE_ROUNDED);                                                                            \
        else row(__VA_ARGS__, STORE_F32);                                                                                                 \
    } while (0)

#define EACH_ROW(name)                                                                                                                     \
    static void name##_run(const ln_call *c) {                                                                                           \
        PARTITION_ROWS(c, lo, hi);                                                                                                                 \
        const int other = c->node->n_in - 1;                                                                                             \
        for (int64_t r = lo; r < hi; r++) BY_STORE(c, name##_row, row_in(c, 0, r), row_in(c, other, r), output_at(c, r, 0), c->out[0].cols); \
    }
#define POINTWISE(name, expr)                                                                                                            \
    INLINE_ROW name##_row(const float *a, const float *b, void *y, int64_t n, const int store) {                                          \
        (void)b;                                                                                                                         \
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) store_as(y, i, (expr), store);                                                    \
    }                                                                                                                                    \
    EACH_ROW(name)
POINTWISE(add, a[i] + b[i])
POINTWISE(mul, a[i] * b[i])

/* Of n numbers, ACT_CHUNK or fewer at a time. */
enum { ACT_CHUNK = 64 };
INLINE void activation_of(const bool gelu, const float *a, int64_t n, float *y) {
    float rest[ACT_CHUNK] = {0};
    if (n < ACT_CHUNK) memcpy(rest, a, (size_t)n * sizeof *rest), a = rest;
    for (int i = 0; i < ACT_CHUNK; i += VL) vf_store(y + i, gelu ? vf_gelu_tanh(vf_load(a + i)) : vf_silu(vf_load(a + i)));
}
#define ACTIVATION(name, gelu, expr)                                                                                                       \
    INLINE_ROW name##_row(const float *a, const float *b, void *y, int64_t n, const int store) {                                          \
        (void)b;                                                                                                                         \
        for (int64_t at = 0; at < n; at += ACT_CHUNK) {                                                                                    \
            const int64_t m = LN_MIN((int64_t)ACT_CHUNK, n - at);                                                                          \
            float f[ACT_CHUNK];                                                                                                            \
            activation_of(gelu, a + at, m, f);                                                                                             \
            if (m == ACT_CHUNK) _Pragma("GCC ivdep") for (int64_t i = 0; i < ACT_CHUNK; i++) store_as(y, at + i, (expr), store);                   \
            else for (int64_t i = 0; i < m; i++) store_as(y, at + i, (expr), store);                                                           \
        }                                                                                                                                \
    }                                                                                                                                    \
    EACH_ROW(name)
ACTIVATION(silu, false, f[i])
ACTIVATION(gelu_tanh, true, f[i])
ACTIVATION(swiglu, false, f[i] * b[at + i])
ACTIVATION(geglu, true, f[i] * b[at + i])

INLINE_ROW copy_row(const float *a, void *y, int64_t n, const int store) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) store_as(y, i, a[i], store);
}
static void round_bf16_run(const ln_call *c) {
    PARTITION_ROWS(c, lo, hi);
    for (int64_t r = lo; r < hi; r++) copy_row(row_in(c, 0, r), output_at(c, r, 0), c->out[0].cols, STORE_ROUNDED);
}
static void gather_rows_run(const ln_call *c) {
    PARTITION_ROWS(c, lo, hi);
    for (int64_t r = lo; r < hi; r++) BY_STORE(c, copy_row, row_in(c, 0, c->step->out_rows[r]), output_at(c, r, 0), c->out[0].cols);
}

/* One group of base/fixed.h: words of two numbers, first and second being `apart` columns of each `per` apart. */
INLINE_ROW bfp_group(const float *x, const ln_enc e, const int per, uint32_t *v, float *u, float *t) {
    const int n = e.group;
    uint32_t amax = 0;
    int32_t mantissas[128], sum = 0;
    for (int i = 0; i < n; i++) amax = LN_MAX(amax, ln_f32_bits(x[i]) & 0x7fffffffu);
    *u = ln_fixed_scale(amax, ln_fixed_bits(e.bits));
    const bool some = *u > 0;
    const float by = some ? 1 / *u : 0;
    for (int i = 0; i < n; i++) {
        mantissas[i] = some ? (int32_t)rintf(x[i] * by) : 0;
        sum += mantissas[i];
    }
    for (int i = 0; i < n; i += 2 * per)
        for (int j = 0; j < per; j++) v[i / 2 + j] = ((uint32_t)mantissas[i + j] & 0xffffu) | (uint32_t)mantissas[i + j + per] << 16;
    *t = *u * (float)sum;
}
static void bfp_convert_run(const ln_call *c) {
    const ln_enc e = c->node->p.fixed.enc;
    const int64_t cols = c->in[0].cols, groups = cols / e.group;
    PARTITION_ROWS(c, lo, hi);
    for (int64_t r = lo; r < hi; r++) {
        float *row = row_out(c, r), *u = ln_fixed_scales(row, cols), *t = ln_fixed_sums(row, cols, e.group);
        for (int64_t g = 0; g < groups; g++) {
            const float *x = row_in(c, 0, r) + g * e.group;
            uint32_t *v = (uint32_t *)(void *)row + g * e.group / 2;
            if (e.bits == 4) bfp_group(x, e, 4, v, u + g, t + g);
            else if (e.bits == 8) bfp_group(x, e, 2, v, u + g, t + g);
            else bfp_group(x, e, 1, v, u + g, t + g);
        }
    }
}

/* A line of 64 columns of base/fixed.h by row, n of which are there: limbs in order; what they sum to. */
typedef int8_t digits16 __attribute__((vector_size(16)));
INLINE_ROW split_line(const float *x, const int n, const int bits, float by, int8_t *h, int8_t *l, int32_t *sum_h, int32_t *sum_l) {
    int8_t high[64] = {0}, low[64] = {0};
    int32_t a = 0, b = 0;
    for (int i = 0; i < n; i++) {
        const int32_t v = (int32_t)rintf(x[i] * by), up = ln_fixed_upper(bits, v), down = v - ln_fixed_radix(bits) * up;
        high[i] = (int8_t)up;
        low[i] = (int8_t)down;
        a += up;
        b += down;
    }
    *sum_h += a;
    *sum_l += b;
    for (int i = 0; i < 64 && bits == 4; i += 16) { /* ln_fixed_row_column */
        digits16 v, w;
        memcpy(&v, high + i, sizeof v);
        memcpy(&w, low + i, sizeof w);
        v = __builtin_shufflevector(v, v, 0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
        w = __builtin_shufflevector(w, w, 0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
        memcpy(high + i, &v, sizeof v);
        memcpy(low + i, &w, sizeof w);
    }
    memcpy(h, high, sizeof high);
    memcpy(l, low, sizeof low);
}
#ifdef LN_HAS_PACK_I8
/* The largest magnitude of n numbers, whole sixteens, as its bits: above those of infinity if one is NaN. `apart`: numbers from 16 of them to the next 16. */
INLINE uint32_t row_amax(const float *x, const int64_t apart, int64_t n) {
    vi amax[4] = {vi_zero(), vi_zero(), vi_zero(), vi_zero()};
    int64_t i = 0;
    for (; i + 4 * VL <= n; i += 4 * VL, x += 4 * apart)
#pragma GCC unroll 4
        for (int v = 0; v < 4; v++) amax[v] = vi_max_u32(amax[v], vi_and32(vi_load((const uint8_t *)(x + v * apart)), 0x7fffffffu));
    for (; i + VL <= n; i += VL, x += apart) amax[0] = vi_max_u32(amax[0], vi_and32(vi_load((const uint8_t *)x), 0x7fffffffu));
    return vi_reduce_max_u32(vi_max_u32(vi_max_u32(amax[0], amax[1]), vi_max_u32(amax[2], amax[3])));
}
/* Rows of a panel whose lines meet registers together; what is asked for so many numbers ahead. */
enum { PANEL_UNROLL = 8, PREFETCH_ELEMENTS = 2048 };
/* The largest magnitudes of `rows` rows of a panel, a multiple of PANEL_UNROLL. All of a panel's rows go together, as one stream; L2 has them when limbs are made. */
INLINE void panel_amax(const float *x, int64_t apart, int64_t rows, int64_t cols, uint32_t *out) {
    vi amax[LN_PANEL_ROWS];
    for (int64_t r = 0; r < rows; r++) amax[r] = vi_zero();
    for (int64_t i = 0; i < cols; i += 4 * VL, x += 4 * apart)
        for (int64_t r = 0; r < rows; r += PANEL_UNROLL) {
            vi m[PANEL_UNROLL];
#pragma GCC unroll 8
            for (int k = 0; k < PANEL_UNROLL; k++) m[k] = amax[r + k];
#pragma GCC unroll 32
            for (int k = 0; k < 4 * PANEL_UNROLL; k++) prefetch_l2((const uint8_t *)(x + PREFETCH_ELEMENTS + k / PANEL_UNROLL * apart + (r + k % PANEL_UNROLL) * VL));
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++)
#pragma GCC unroll 8
                for (int k = 0; k < PANEL_UNROLL; k++) m[k] = vi_max_u32(m[k], vi_and32(vi_load((const uint8_t *)(x + j * apart + (r + k) * VL)), 0x7fffffffu));
#pragma GCC unroll 8
            for (int k = 0; k < PANEL_UNROLL; k++) amax[r + k] = m[k];
        }
    for (int64_t r = 0; r < rows; r++) out[r] = vi_reduce_max_u32(amax[r]);
}
/* ln_fixed_upper of words. */
INLINE vi high_digits_of(const int bits, vi v) {
    const int k = ln_fixed_radix(bits);
    if (k == 256) return vi_sra16(vi_add16(v, vi_set16(k / 2)), 8);
    return vi_sub16(vi_shr16(vi_mulhi_u16(vi_add16(v, vi_set16(k / 2 + 128 * k)), vi_set16(34953)), 4), vi_set16(128)); /* 2^20 / 30, exact up to 8,000 */
}
/* The same as split_line of a whole line, in the words of the rung; what limbs sum to is added in 16 lanes. */
INLINE void split_line_simd(const float *x, const int64_t apart, const int bits, vf by, int8_t *h, int8_t *l, vi *sum_h, vi *sum_l) {
    vi high[2], low[2];
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++, x += 2 * apart) {
        const vf first = bits == 4 ? vf_deinterleave8(vf_load(x)) : vf_load(x), second = bits == 4 ? vf_deinterleave8(vf_load(x + apart)) : vf_load(x + apart);
        const vi v = vi_pack_i16(vi_round_i32(vf_mul(first, by)), vi_round_i32(vf_mul(second, by)));
        high[i] = high_digits_of(bits, v);
        low[i] = vi_sub16(v, ln_fixed_radix(bits) == 256 ? vi_shl16(high[i], 8) : vi_mul16(high[i], vi_set16(ln_fixed_radix(bits))));
    }
    *sum_h = vi_add(*sum_h, vi_add_pairs16(vi_add16(high[0], high[1])));
    *sum_l = vi_add(*sum_l, vi_add_pairs16(vi_add16(low[0], low[1])));
    vi_store((uint8_t *)h, vi_pack_i8(high[0], high[1]));
    vi_store((uint8_t *)l, vi_pack_i8(low[0], low[1]));
}
/* Whole lines of a row; how many columns they are. Meanwhile the next row, `pitch` numbers further on, is asked for: a wide product's rows have left the caches. */
INLINE int64_t split_lines(const float *x, const int64_t apart, int64_t pitch, int64_t cols, const int bits, float by, ln_fixed_place to, ln_fixed_terms *sums) {
    vi sum_h = vi_zero(), sum_l = vi_zero();
    int32_t of_h[VL], of_l[VL];
    int64_t i = 0;
    for (; i + 64 <= cols; i += 64, x += 4 * apart, to.limbs += to.step) {
        for (int j = 0; j < 4; j++) prefetch_l2((const uint8_t *)(x + pitch + j * apart));
        split_line_simd(x, apart, bits, vf_set1(by), to.limbs, to.limbs + to.lower, &sum_h, &sum_l);
    }
    vi_store((uint8_t *)of_h, sum_h);
    vi_store((uint8_t *)of_l, sum_l);
    for (int j = 0; j < VL; j++) sums->h += of_h[j], sums->l += of_l[j];
    return i;
}
/* Limbs of those rows; `to`: of the first row, others' are `pitch` bytes apart. */
INLINE void split_panel(const float *x, int64_t apart, int64_t rows, int64_t cols, const int bits, const float *by, ln_fixed_place to, int64_t pitch, ln_fixed_terms *terms) {
    vi sum_h[LN_PANEL_ROWS], sum_l[LN_PANEL_ROWS];
    int32_t of_h[VL], of_l[VL];
    for (int64_t r = 0; r < rows; r++) sum_h[r] = sum_l[r] = vi_zero();
    for (int64_t i = 0; i < cols; i += 64, x += 4 * apart, to.limbs += to.step)
        for (int64_t r = 0; r < rows; r++) split_line_simd(x + r * VL, apart, bits, vf_set1(by[r]), to.limbs + r * pitch, to.limbs + r * pitch + to.lower, &sum_h[r], &sum_l[r]);
    for (int64_t r = 0; r < rows; r++) {
        vi_store((uint8_t *)of_h, sum_h[r]);
        vi_store((uint8_t *)of_l, sum_l[r]);
        for (int j = 0; j < VL; j++) terms[r].h += of_h[j], terms[r].l += of_l[j];
    }
}
#else
INLINE uint32_t row_amax(const float *x, const int64_t apart, int64_t n) {
    uint32_t amax = 0;
    for (int64_t i = 0; i < n; i++) amax = LN_MAX(amax, ln_f32_bits(x[i / LN_PANEL_COLS * apart + i % LN_PANEL_COLS]) & 0x7fffffffu);
    return amax;
}
INLINE int64_t split_lines(const float *x, const int64_t apart, int64_t pitch, int64_t cols, const int bits, float by, ln_fixed_place to, ln_fixed_terms *sums) {
    (void)pitch;
    int64_t i = 0;
    for (; i + 64 <= cols; i += 64, to.limbs += to.step) {
        float line[64];
        for (int j = 0; j < 64; j++) line[j] = x[(i + j) / LN_PANEL_COLS * apart + j % LN_PANEL_COLS];
        split_line(line, 64, bits, by, to.limbs, to.limbs + to.lower, &sums->h, &sums->l);
    }
    return i;
}
#endif
/* A row whose largest magnitude is known. */
INLINE void split_row(const float *x, const int64_t apart, int64_t pitch, int64_t cols, int bits, uint32_t amax, ln_fixed_place to) {
    ln_fixed_terms terms = {0};
    float by;
    ln_fixed_row_scale(amax, bits, &terms.u, &by);
    if (!(by > 0))
        for (int64_t i = 0; i < cols; i += 64, to.limbs += to.step) memset(to.limbs, 0, 64), memset(to.limbs + to.lower, 0, 64);
    else {
        const int64_t i = bits == 4   ? split_lines(x, apart, pitch, cols, 4, by, to, &terms)
                          : bits == 8 ? split_lines(x, apart, pitch, cols, 8, by, to, &terms)
                                      : split_lines(x, apart, pitch, cols, bits, by, to, &terms);
        if (i < cols) { /* half a line */
            float line[32];
            for (int j = 0; j < 32; j++) line[j] = x[(i + j) / LN_PANEL_COLS * apart + j % LN_PANEL_COLS];
            int8_t *h = to.limbs + i / 64 * to.step;
            split_line(line, 32, bits, by, h, h + to.lower, &terms.h, &terms.l);
        }
    }
    memcpy(to.terms, &terms, sizeof terms);
}
#ifdef LN_HAS_PACK_I8
/* n rows from r on, which lie in one panel at x, a multiple of PANEL_UNROLL. Returns false where one of them has nothing to scale, and nothing was done. */
static bool split_panel_rows(const ln_call *c, int64_t r, int64_t n, const float *x, int64_t apart, int bits) {
    const int64_t cols = c->in[0].cols, pitch = c->out[0].panels ? 64 : c->out[0].pitch * (int64_t)sizeof(float);
    const ln_fixed_place to = ln_arg_fixed(&c->out[0], r, sizeof(float));
    ln_fixed_terms terms[LN_PANEL_ROWS] = {0};
    float by[LN_PANEL_ROWS];
    uint32_t amax[LN_PANEL_ROWS];
    panel_amax(x, apart, n, cols, amax);
    for (int64_t i = 0; i < n; i++) {
        ln_fixed_row_scale(amax[i], bits, &terms[i].u, &by[i]);
        if (!(by[i] > 0)) return false;
    }
    if (bits == 4) split_panel(x, apart, n, cols, 4, by, to, pitch, terms);
    else if (bits == 8) split_panel(x, apart, n, cols, 8, by, to, pitch, terms);
    else split_panel(x, apart, n, cols, bits, by, to, pitch, terms);
    for (int64_t i = 0; i < n; i++) memcpy(ln_arg_fixed(&c->out[0], r + i, sizeof(float)).terms, &terms[i], sizeof terms[i]);
    return true;
}
#endif
/* In panels what is made may lie on the numbers it is made of: a line is stored when those of its columns are loaded, what rows sum to when nobody's numbers are there. */
static void i8pair_convert_run(const ln_call *c) {
    const int bits = c->node->p.fixed.enc.bits;
    const ln_arg *x = &c->in[0];
    PARTITION_ROWS(c, lo, hi);
    if (!x->panels) {
        for (int64_t r = lo; r < hi; r++)
            split_row(row_in(c, 0, r), LN_PANEL_COLS, x->pitch, x->cols, bits, row_amax(row_in(c, 0, r), LN_PANEL_COLS, x->cols), ln_arg_fixed(&c->out[0], r, sizeof(float)));
        return;
    }
    for (int64_t r = lo; r < hi; r++) {
        const int64_t first = r - r % LN_PANEL_ROWS, of_panel = LN_MIN(x->rows - first, (int64_t)LN_PANEL_ROWS), apart = LN_PANEL_COLS * of_panel;
        const float *row = (const float *)x->data + ln_panel_at(x->rows, x->pitch, r, 0);
#ifdef LN_HAS_PACK_I8
        const int64_t n = (LN_MIN(hi, first + of_panel) - r) / PANEL_UNROLL * PANEL_UNROLL;
        if (x->cols % 64 == 0 && n && split_panel_rows(c, r, n, row, apart, bits)) {
            r += n - 1;
            continue;
        }
#endif
        split_row(row, apart, 0, x->cols, bits, row_amax(row, apart, x->cols), ln_arg_fixed(&c->out[0], r, sizeof(float)));
    }
}

/* 16 lanes of squares of M groups, `apart` from each other, each added in halves: a group's are one chain, so several go beside each other. */
INLINE void sum_squares(const int M, const float *x, int64_t apart, int64_t n, float *out) {
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
        out[m] = vf_reduce_add16(sum[m]);
    }
}
INLINE_ROW normalize_group(const float *x, float scale, void *y, int64_t n, const void *w, const ln_dtype dtype, float offset, const int store) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) store_as(y, i, (x[i] * scale) * (ln_num_load(w, dtype, i) + offset), store);
}
INLINE_ROW add_offset(float *by, const void *w, const ln_dtype dtype, int64_t n, float offset) {
    for (int64_t i = 0; i < n; i++) by[i] = ln_num_load(w, dtype, i) + offset;
}
/* What a group is multiplied by was made before. */
INLINE_ROW normalize_group_by(const float *x, float scale, void *y, int64_t n, const float *by, const int store) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) store_as(y, i, (x[i] * scale) * by[i], store);
}
/* What becomes of a group whose squares are summed. */
INLINE_ROW normalize_one(const ln_call *c, const float *x, float scale, void *y, const float *by) {
    const ln_arg *w = &c->in[1];
    const float offset = c->node->p.norm.offset;
    if (by) BY_STORE(c, normalize_group_by, x, scale, y, w->cols, by);
    else if (w->dtype == LN_F32) BY_STORE(c, normalize_group, x, scale, y, w->cols, w->data, LN_F32, offset);
    else if (w->dtype == LN_BF16) BY_STORE(c, normalize_group, x, scale, y, w->cols, w->data, LN_BF16, offset);
    else BY_STORE(c, normalize_group, x, scale, y, w->cols, w->data, LN_F16, offset);
}
/* Groups go GROUPS_AT_ONCE at a time, whole rows ROWS_AT_ONCE: a sum and its root are a long chain, and those of several run beside each other. Weight and offset are put together once where
 * that is for MIN_GROUPS groups. */
static void rmsnorm_run(const ln_call *c) {
    enum { GROUPS_AT_ONCE = 16, ROWS_AT_ONCE = 4, MIN_GROUPS = 4, WIDTH = 4096 };
    const ln_p_norm *p = &c->node->p.norm;
    const ln_arg *w = &c->in[1];
    const int64_t n = w->cols, groups = c->in[0].cols / n;
    PARTITION_ROWS(c, lo, hi);
    float numbers[WIDTH], *by = (hi - lo) * groups >= MIN_GROUPS && n <= WIDTH ? numbers : NULL;
    if (by && w->dtype == LN_F32) add_offset(by, w->data, LN_F32, n, p->offset);
    else if (by && w->dtype == LN_BF16) add_offset(by, w->data, LN_BF16, n, p->offset);
    else if (by) add_offset(by, w->data, LN_F16, n, p->offset);
    int64_t r = lo;
    for (; groups == 1 && r + ROWS_AT_ONCE <= hi; r += ROWS_AT_ONCE) {
        float scale[ROWS_AT_ONCE];
        sum_squares(ROWS_AT_ONCE, row_in(c, 0, r), c->in[0].pitch, n, scale);
        for (int i = 0; i < ROWS_AT_ONCE; i++) scale[i] = 1 / sqrtf(scale[i] / (float)n + p->eps);
        for (int i = 0; i < ROWS_AT_ONCE; i++) normalize_one(c, row_in(c, 0, r + i), scale[i], row_out(c, r + i), by);
    }
    for (; r < hi; r++)
        for (int64_t g = 0; g < groups; g += GROUPS_AT_ONCE) {
            const int some = (int)LN_MIN((int64_t)GROUPS_AT_ONCE, groups - g);
            const float *x = row_in(c, 0, r) + g * n;
            float scale[GROUPS_AT_ONCE] = {0};
            for (int i = 0; i < some; i++) sum_squares(1, x + i * n, 0, n, &scale[i]);
            if (some > 1)
                for (int i = 0; i < GROUPS_AT_ONCE; i++) scale[i] = 1 / sqrtf(scale[i] / (float)n + p->eps);
            else scale[0] = 1 / sqrtf(scale[0] / (float)n + p->eps);
            for (int i = 0; i < some; i++) normalize_one(c, x + i * n, scale[i], output_at(c, r, (g + i) * n), by);
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
    PARTITION_ROWS(c, lo, hi);
    for (int64_t r = lo; r < hi; r++) {
        int64_t n = c->out[0].cols;
        if (t->tight) {
            ln_bf12_row(row_out(c, r), t->data, n, c->step->ids[r], scale);
            continue;
        }
        const uint8_t *w = (const uint8_t *)t->data + ln_pack_offset(t->dtype, n, c->step->ids[r], 0);
        if (t->dtype == LN_F32) embed_row(w, LN_F32, n, scale, row_out(c, r));
        else if (t->dtype == LN_BF16) embed_row(w, LN_BF16, n, scale, row_out(c, r));
        else embed_row(w, LN_F16, n, scale, row_out(c, r));
    }
}

/* A row's words lie in lines of their own, far from the last row's. */
static void prefetch_row_q(const uint8_t *at, const uint8_t *scales, int64_t words, int64_t numbers, int64_t group_bytes, int64_t next, int64_t groups) {
    for (int64_t g = 0; g < groups; g++, at += group_bytes, scales += next) {
        for (int64_t i = 0; i < words; i += 64) prefetch_l1(at + i);
        for (int64_t i = 0; i < numbers; i += 64) prefetch_l1(scales + i);
    }
}
/* The same of an encoded table. */
static void embed_q_run(const ln_call *c) {
    const ln_affine *w = c->in[0].data;
    const int64_t cols = c->out[0].cols, group = w->enc.group, words = 64 * (group * w->enc.bits / 32), group_bytes = ln_pack_group_bytes_q(w->enc, w->dtype);
    const int64_t numbers = ln_pack_scales_bytes_q(w->dtype), next = w->scales ? numbers : group_bytes;
    float scale = c->node->p.embed.scale;
    PARTITION_ROWS(c, lo, hi);
    const int64_t block = ln_pack_block_bytes_q(w->enc, w->dtype, cols), groups = cols / group;
    for (int64_t r = lo; r < hi; r++) {
        const int64_t id = c->step->ids[r], lane = id % LN_PACK_NR, soon = r + 1 < hi ? c->step->ids[r + 1] / LN_PACK_NR : -1;
        const uint8_t *at = w->codes + id / LN_PACK_NR * block, *scales = w->scales ? w->scales + id / LN_PACK_NR * groups * numbers : at + words;
        if (soon >= 0) prefetch_row_q(w->codes + soon * block, w->scales ? w->scales + soon * groups * numbers : w->codes + soon * block + words, words, numbers, group_bytes, next, groups);
        float *y = row_out(c, r);
        for (int64_t g = 0; g < cols; g += group, at += group_bytes, scales += next) {
            float s = ln_num_load(scales, w->dtype, lane), b = ln_num_load(scales, w->dtype, LN_PACK_NR + lane);
            for (int64_t i = 0; i < group; i++) y[g + i] = fmaf(s, (float)ln_pack_code(at + 4 * lane, w->enc.bits, i), b) * scale;
        }
    }
}

/* One head: x and y are its first half, and its second `half` numbers on. */
INLINE_ROW rope_head(const float *x, const float *t, void *y, int64_t half, const int store) {
#pragma GCC ivdep
    for (int64_t i = 0; i < half; i++) {
        float a = x[i], b = x[i + half], co = t[i], s = t[i + half];
        store_as(y, i, a * co - b * s, store);
        store_as(y, i + half, b * co + a * s, store);
    }
}
static void rope_run(const ln_call *c) {
    const ln_p_heads *p = &c->node->p.heads;
    const int64_t E = p->head_dim;
    PARTITION_ROWS(c, lo, hi);
    for (int64_t r = lo; r < hi; r++)
        for (int64_t h = 0; h < p->n_heads; h++) BY_STORE(c, rope_head, row_in(c, 0, r) + h * E, row_in(c, 1, r), output_at(c, r, h * E), E / 2);
}

/* Pairs of bf16 numbers of 8 rows become those of 8 lines. */
typedef uint32_t pairs8 __attribute__((vector_size(32)));
static inline void transpose_pairs(pairs8 v[8]) {
#define EXCHANGE(d, first, second)                                                                                                           \
    for (int i = 0; i < 8; i++)                                                                                                          \
        if (!(i & (d))) {                                                                                                                \
            const pairs8 a = v[i], b = v[i + (d)];                                                                                       \
            v[i] = __builtin_shufflevector(a, b, first);                                                                                 \
            v[i + (d)] = __builtin_shufflevector(a, b, second);                                                                          \
        }
#define LIST(...) __VA_ARGS__
    EXCHANGE(1, LIST(0, 8, 2, 10, 4, 12, 6, 14), LIST(1, 9, 3, 11, 5, 13, 7, 15))
    EXCHANGE(2, LIST(0, 1, 8, 9, 4, 5, 12, 13), LIST(2, 3, 10, 11, 6, 7, 14, 15))
    EXCHANGE(4, LIST(0, 1, 2, 3, 8, 9, 10, 11), LIST(4, 5, 6, 7, 12, 13, 14, 15))
#undef LIST
#undef EXCHANGE
}
/* Keys of 8 positions, from number e on, 16 numbers each, into 8 lines from `to` on. */
static inline void store_keys_8(uint16_t *to, const float *k, int64_t pitch) {
    pairs8 v[8];
    for (int r = 0; r < 8; r++) {
        uint16_t some[16];
        for (int i = 0; i < 16; i++) some[i] = ln_f32_bf16(k[r * pitch + i]);
        memcpy(&v[r], some, sizeof some);
    }
    transpose_pairs(v);
    for (int i = 0; i < 8; i++) memcpy(to + i * 2 * LN_KV_SIDE, &v[i], sizeof v[i]);
}
/* A head's keys of n positions that lie in one block (pages.h), from lane `at` of it on; k[n][E], `pitch` numbers apart. */
static inline void store_keys(void *block, ln_dtype t, int64_t at, const float *k, int64_t pitch, int64_t n, int64_t E) {
    enum { GROUPS_AT_ONCE = 64 };
    uint16_t some[GROUPS_AT_ONCE];
    int64_t r = 0;
    for (; t == LN_BF16 && E % 16 == 0 && r + 8 <= n; r += 8, k += 8 * pitch)
        for (int64_t e = 0; e < E; e += 16) store_keys_8((uint16_t *)block + 2 * (at + r) + e * LN_KV_SIDE, k + e, pitch);
    for (; r < n; r++, k += pitch)
        if (t == LN_F32) {
            float *to = (float *)block + at + r;
            for (int64_t e = 0; e < E; e++) to[e * LN_KV_SIDE] = k[e];
        } else {
            uint16_t *to = (uint16_t *)block + 2 * (at + r);
            for (int64_t e = 0; e < E; e += GROUPS_AT_ONCE, to += GROUPS_AT_ONCE * LN_KV_SIDE) { /* rounded by vectors, then stored pair by pair */
                const int64_t m = LN_MIN((int64_t)GROUPS_AT_ONCE, E - e);
                for (int64_t i = 0; i < m; i++) some[i] = ln_f32_bf16(k[e + i]);
                for (int64_t i = 0; i + 2 <= m; i += 2) memcpy(to + i * LN_KV_SIDE, some + i, 2 * sizeof *some);
                if (m % 2) to[(m - 1) * LN_KV_SIDE] = some[m - 1];
            }
        }
}
/* Values of two positions as one line of n lanes. */
static inline void store_value_pairs(uint16_t *line, const float *even, const float *odd, int64_t n) {
    uint32_t pairs[LN_KV_SIDE];
    for (int64_t i = 0; i < n; i++) pairs[i] = (uint32_t)ln_f32_bf16(even[i]) | (uint32_t)ln_f32_bf16(odd[i]) << 16;
    memcpy(line, pairs, (size_t)n * sizeof *pairs);
}
/* A head's values of n positions from `at` on of a piece of LN_KV_STEP: v[n][E]. */
static inline void store_values(void *piece, ln_dtype t, int64_t at, const float *v, int64_t pitch, int64_t n, int64_t E) {
    for (int64_t e = 0; e < E; e += LN_KV_SIDE) {
        const int64_t lanes = LN_MIN((int64_t)LN_KV_SIDE, E - e), block = ln_kv_at(t, LN_KV_STEP, e, 0);
        for (int64_t r = 0, two; r < n; r += 1 + two) {
            const float *from = v + r * pitch + e;
            two = t == LN_BF16 && (at + r) % 2 == 0 && r + 1 < n;
            uint16_t *line = (uint16_t *)piece + block + (at + r) / 2 * 2 * LN_KV_SIDE + (at + r) % 2;
            if (t == LN_F32) memcpy((float *)piece + block + (at + r) * LN_KV_SIDE, from, (size_t)lanes * sizeof *v);
            else if (!two)
                for (int64_t i = 0; i < lanes; i++) line[2 * i] = ln_f32_bf16(from[i]);
            else if (lanes == LN_KV_SIDE) store_value_pairs(line, from, from + pitch, LN_KV_SIDE);
            else store_value_pairs(line, from, from + pitch, lanes);
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
            store_keys(layer + ln_kv_k_index(p, h, 0, at - lane) * size, p->dtype, lane, row_in(c, 1, r) + h * E, c->in[1].pitch, n, E);
            store_values(layer + ln_kv_v_index(p, h, 0, at - at % LN_KV_STEP) * size, p->dtype, at % LN_KV_STEP, row_in(c, 2, r) + h * E, c->in[2].pitch, n, E);
        }
    }
}

void LN_ISA(ln_cpu_rowwise)(ln_kernel table[LN_OP_COUNT]) {
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
    table[LN_OP_FIXED].fn = bfp_convert_run;
    table[LN_OP_FIXED_ROW].fn = i8pair_convert_run;
    table[LN_OP_KV_WRITE].fn = kv_write_run;
    table[LN_OP_GATHER_ROWS].fn = gather_rows_run;
}
