/* Matrix products with weights. linear: y = x w^T + b, w as stored (f32, bf16 or f16, row-major [D, C]).
 *
 * The specification of its arithmetic: each output is one chain of fused multiply-adds over c = 0 .. C-1 in
 * order (from bf16 weights in pairs, the odd column of each first), starting at zero; then the bias is added.
 * It does not depend on the number of rows, on threads or on blocking, so decode and prefill, one sequence or
 * many, give the same bits. A kernel that vectorises over D reproduces the chain exactly.
 *
 * linear_q: the same for a weight in affine groups, s q + b unrounded, factored: s * sum(q x) + b * sum(x)
 * per group. The order is defined in ops.h. The sums of x do not depend on the output, so a kernel computes
 * them once per row.
 *
 * linear_bfp: the same for x in block floating point (the output of to_bfp; quant/block_float.h): sum(q x) is
 * then a sum of integers, exact in any order. linear_i8pair: x has one scale per row and the weights have one
 * scale per output, so all columns are one integer sum. */
#include <string.h>

#include "scalar_type.h"

static real product(const ln_arg *x, const ln_arg *w, int64_t r, int64_t d) {
    const real *xr = real_row(x, r);
    real sum = 0;
    const int64_t at = d * w->pitch;
    int64_t i = 0;
    for (; w->dtype == LN_BF16 && i + 2 <= x->cols; i += 2)
        for (int odd = 1; odd >= 0; odd--)
            sum = real_fma(real_load(w->data, w->dtype, at + i + odd), xr[i + odd], sum);
    for (; i < x->cols; i++) sum = real_fma(real_load(w->data, w->dtype, at + i), xr[i], sum);
    return sum;
}

LN_KERNEL(ln_ref_linear) {
    const ln_arg *x = &c->in[0], *w = &c->in[1], *y = &c->out[0];
    int64_t d_lo = y->cols * c->thread / c->n_threads, d_hi = y->cols * (c->thread + 1) / c->n_threads;
    for (int64_t r = 0; r < y->rows; r++)
        for (int64_t d = d_lo; d < d_hi; d++) {
            real sum = product(x, w, r, d);
            if (c->node->n_in > 2) sum = sum + real_load(c->in[2].data, c->in[2].dtype, d);
            real_row(y, r)[d] = sum;
        }
}

#define LN_GATED(name, act)                                                                                 \
    LN_KERNEL(name) {                                                                                       \
        const ln_arg *x = &c->in[0], *y = &c->out[0];                                                       \
        int64_t d_lo = y->cols * c->thread / c->n_threads, d_hi = y->cols * (c->thread + 1) / c->n_threads; \
        for (int64_t r = 0; r < y->rows; r++)                                                               \
            for (int64_t d = d_lo; d < d_hi; d++)                                                           \
                real_row(y, r)[d] =                                                                         \
                    real_stored(c, act(product(x, &c->in[1], r, d)) * product(x, &c->in[2], r, d));         \
    }
LN_GATED(ln_ref_linear_swiglu, real_silu)
LN_GATED(ln_ref_linear_geglu, real_gelu_tanh)

/* x as linear_q multiplies it: flushed to zero below LN_Q_TINY (ops.h). */
static real real_q(real x) { return x < (real)LN_Q_TINY && x > -(real)LN_Q_TINY ? 0 : x; }

static real group_sum(const real *x, int64_t n) {
    real lane[16] = {0};
    for (int64_t i = 0; i < n; i += 16)
        for (int l = 0; l < 16; l++) lane[l] = lane[l] + real_q(x[i + l]);
    return real_lanes_sum(lane);
}

LN_KERNEL(ln_ref_linear_q) {
    const ln_arg *x = &c->in[0], *y = &c->out[0];
    const ln_affine *w = c->in[1].data;
    const int64_t row_bytes = ln_affine_row_bytes(w->enc, x->cols), groups = x->cols / w->enc.group;
    int64_t d_lo = y->cols * c->thread / c->n_threads, d_hi = y->cols * (c->thread + 1) / c->n_threads;
    for (int64_t r = 0; r < y->rows; r++)
        for (int64_t d = d_lo; d < d_hi; d++) {
            real sum = 0;
            for (int64_t g = 0; g < groups; g++) {
                const real *xg = real_row(x, r) + g * w->enc.group;
                real p = 0;
                for (int64_t i = 0; i < w->enc.group; i++)
                    p = real_fma((real)ln_affine_code(w->codes + d * row_bytes, w->enc.bits,
                                                      g * w->enc.group + i),
                                 real_q(xg[i]), p);
                sum = real_fma(real_load(w->scales, w->dtype, d * groups + g), p, sum);
                sum = real_fma(real_load(w->biases, w->dtype, d * groups + g), group_sum(xg, w->enc.group),
                               sum);
            }
            if (c->node->n_in > 2) sum = sum + real_load(c->in[2].data, c->in[2].dtype, d);
            real_row(y, r)[d] = sum;
        }
}

LN_KERNEL(ln_ref_to_bfp) {
    const ln_arg *x = &c->in[0], *y = &c->out[0];
    const ln_enc e = c->node->p.fixed.enc;
    LN_MY_ROWS(c, y->rows, lo, hi);
    for (int64_t r = lo; r < hi; r++) {
        void *row = real_row(y, r);
        for (int64_t g = 0; g < x->cols / e.group; g++) {
            float numbers[128];
            for (int i = 0; i < e.group; i++) numbers[i] = (float)real_row(x, r)[g * e.group + i];
            ln_bfp_group(numbers, e, (int16_t *)row + g * e.group, ln_bfp_scales(row, x->cols) + g,
                         ln_bfp_sums(row, x->cols, e.group) + g);
        }
    }
}

LN_KERNEL(ln_ref_linear_bfp) {
    const ln_arg *x = &c->in[0], *y = &c->out[0];
    const ln_affine *w = c->in[1].data;
    const int64_t row_bytes = ln_affine_row_bytes(w->enc, x->cols), groups = x->cols / w->enc.group;
    int64_t d_lo = y->cols * c->thread / c->n_threads, d_hi = y->cols * (c->thread + 1) / c->n_threads;
    for (int64_t r = 0; r < y->rows; r++) {
        const void *row = real_row(x, r);
        const int16_t *v = row;
        const float *scales = ln_bfp_scales(row, x->cols), *sums = ln_bfp_sums(row, x->cols, w->enc.group);
        for (int64_t d = d_lo; d < d_hi; d++) {
            real sum = 0;
            for (int64_t g = 0; g < groups; g++) {
                int32_t p = 0;
                for (int64_t i = 0; i < w->enc.group; i++)
                    p += v[g * w->enc.group + i] *
                         (int32_t)ln_affine_code(w->codes + d * row_bytes, w->enc.bits,
                                                 g * w->enc.group + ln_bfp_column(w->enc.bits, i));
                sum =
                    real_fma(real_load(w->scales, w->dtype, d * groups + g), (real)p * (real)scales[g], sum);
                sum = real_fma(real_load(w->biases, w->dtype, d * groups + g), (real)sums[g], sum);
            }
            if (c->node->n_in > 2) sum = sum + real_load(c->in[2].data, c->in[2].dtype, d);
            real_row(y, r)[d] = sum;
        }
    }
}

/* In a row panel the output may overwrite its input (ln_i8pair_panel), so each row is copied before it is
 * encoded. */
LN_KERNEL(ln_ref_to_i8pair) {
    const ln_arg *x = &c->in[0], *y = &c->out[0];
    const int bits = c->node->p.fixed.enc.bits;
    float numbers[LN_I8PAIR_MAX_COLS];
    LN_MY_ROWS(c, y->rows, lo, hi);
    for (int64_t r = lo; r < hi; r++) { /* ln_i8pair_encode_at takes float: rows of double are converted */
        for (int64_t i = 0; i < x->cols; i++) numbers[i] = (float)((const real *)x->data)[ln_arg_at(x, r, i)];
        ln_i8pair_encode_at(numbers, x->cols, bits, ln_arg_bfp(y, r, sizeof(real)));
    }
}

/* Output d of row r, without bias; `by` and `e` are the output's reciprocal and combined scale from row_unit
 * (ln_i8pair_output_scale). */
static float row_product(const ln_arg *x, const ln_affine *w, int64_t r, int64_t d, float by, float e) {
    const int bits = w->enc.bits, middle = ln_i8pair_zero_point(bits);
    const int64_t row_bytes = ln_affine_row_bytes(w->enc, x->cols), groups = x->cols / w->enc.group;
    const ln_i8pair_layout row = ln_arg_bfp(x, r, sizeof(real));
    ln_i8pair_sums terms;
    int32_t upper = 0, lower = 0;
    memcpy(&terms, row.terms, sizeof terms);
    for (int64_t p = 0; p < x->cols; p++) {
        const int64_t i = ln_i8pair_column(bits, p), g = d * groups + i / w->enc.group;
        const int8_t *h = row.digits + p / 64 * row.step + p % 64;
        int H, L;
        ln_i8pair_weight(bits, ln_num_load(w->scales, w->dtype, g), ln_num_load(w->biases, w->dtype, g), by,
                         ln_affine_code(w->codes + d * row_bytes, bits, i), &H, &L);
        upper += *h * (H - middle);
        lower += *h * L + h[row.lower] * (H - middle);
    }
    return fmaf((float)upper, (float)ln_i8pair_radix(bits),
                (float)(lower + ln_i8pair_correction(bits, terms.l))) *
           (terms.u * e);
}
static void row_unit(const ln_affine *w, int64_t cols, int64_t d, float *by, float *e) {
    const int64_t groups = cols / w->enc.group, size = ln_dtype_bytes(w->dtype);
    ln_i8pair_output_scale((const char *)w->scales + d * groups * size,
                           (const char *)w->biases + d * groups * size, w->dtype, groups, w->enc.bits, by, e);
}
LN_KERNEL(ln_ref_linear_i8pair) {
    const ln_arg *x = &c->in[0], *y = &c->out[0];
    const ln_affine *w = c->in[1].data;
    int64_t d_lo = y->cols * c->thread / c->n_threads, d_hi = y->cols * (c->thread + 1) / c->n_threads;
    for (int64_t d = d_lo; d < d_hi; d++) {
        float by, e;
        row_unit(w, x->cols, d, &by, &e);
        for (int64_t r = 0; r < y->rows; r++) {
            real_row(y, r)[d] = row_product(x, w, r, d, by, e);
            if (c->node->n_in > 2)
                real_row(y, r)[d] = real_row(y, r)[d] + real_load(c->in[2].data, c->in[2].dtype, d);
        }
    }
}
#define LN_GATED_ROW(name, act)                                                                             \
    LN_KERNEL(name) {                                                                                       \
        const ln_arg *x = &c->in[0], *y = &c->out[0];                                                       \
        const ln_affine *g = c->in[1].data, *u = c->in[2].data;                                             \
        int64_t d_lo = y->cols * c->thread / c->n_threads, d_hi = y->cols * (c->thread + 1) / c->n_threads; \
        for (int64_t d = d_lo; d < d_hi; d++) {                                                             \
            float g_by, g_e, u_by, u_e;                                                                     \
            row_unit(g, x->cols, d, &g_by, &g_e);                                                           \
            row_unit(u, x->cols, d, &u_by, &u_e);                                                           \
            for (int64_t r = 0; r < y->rows; r++)                                                           \
                ((real *)y->data)[ln_arg_at(y, r, d)] = act((real)row_product(x, g, r, d, g_by, g_e)) *     \
                                                        (real)row_product(x, u, r, d, u_by, u_e);           \
        }                                                                                                   \
    }
LN_GATED_ROW(ln_ref_linear_i8pair_swiglu, real_silu)
LN_GATED_ROW(ln_ref_linear_i8pair_geglu, real_gelu_tanh)

#ifdef LN_REAL_FLOAT
static bool per_row(ln_op op) {
    return op == LN_OP_LINEAR_I8PAIR || op == LN_OP_LINEAR_I8PAIR_SWIGLU || op == LN_OP_LINEAR_I8PAIR_GEGLU;
}
static ln_status shape_linear(ln_graph *g, ln_node *n, bool encoded, bool fixed, const char *wants,
                              ln_error *err) {
    const ln_value *x = ln_in(g, n, 0), *w = ln_in(g, n, 1);
    const ln_enc has = fixed ? w->enc : (ln_enc){0};
    if (x->dtype != LN_F32 || x->n_dims != 2 || x->enc.bits != has.bits || x->enc.group != has.group ||
        w->kind != LN_KIND_WEIGHT || w->n_dims != 2 || w->dims[1] != x->dims[1] ||
        x->per_row != per_row(n->op) || (w->enc.bits != 0) != encoded ||
        (encoded && w->dims[1] % w->enc.group != 0))
        return ln_shape_fail(g, n, err, wants);
    if (n->n_in == 3) {
        const ln_value *b = ln_in(g, n, 2);
        if (b->kind != LN_KIND_WEIGHT || b->n_dims != 1 || b->dims[0] != w->dims[0])
            return ln_shape_fail(g, n, err, "a bias b[D]");
    }
    ln_shape_like(g, n, x->dims[0], w->dims[0]);
    return LN_OK;
}
ln_status ln_shape_linear(ln_graph *g, ln_node *n, ln_error *err) {
    return shape_linear(g, n, false, false, "x[R,C] in f32 and a dense weight w[D,C]", err);
}
ln_status ln_shape_linear_q(ln_graph *g, ln_node *n, ln_error *err) {
    return shape_linear(g, n, true, false, "x[R,C] in f32 and a weight w[D,C] in whole affine groups", err);
}
ln_status ln_shape_linear_bfp(ln_graph *g, ln_node *n, ln_error *err) {
    return shape_linear(g, n, true, true,
                        "x[R,C] in fixed point for the encoding of w, a weight w[D,C] in whole affine groups",
                        err);
}
ln_status ln_shape_to_bfp(ln_graph *g, ln_node *n, ln_error *err) {
    const ln_value *x = ln_in(g, n, 0);
    const ln_enc e = n->p.fixed.enc;
    if (x->dtype != LN_F32 || x->n_dims != 2 || x->enc.bits || !ln_enc_bits_ok(e.bits) ||
        !ln_enc_group_ok(e.group) || x->dims[1] % e.group != 0)
        return ln_shape_fail(g, n, err, "x[R,C] in f32, in whole groups of an encoding");
    ln_shape_like(g, n, x->dims[0], x->dims[1]);
    g->values[n->out[0]].enc = e;
    return LN_OK;
}
ln_status ln_shape_linear_i8pair(ln_graph *g, ln_node *n, ln_error *err) {
    return shape_linear(g, n, true, true,
                        "x[R,C] in fixed point by row for the encoding of w, a weight w[D,C] in whole affine "
                        "groups",
                        err);
}
ln_status ln_shape_to_i8pair(ln_graph *g, ln_node *n, ln_error *err) {
    if (g->values[n->in[0]].dims[1] > LN_I8PAIR_MAX_COLS)
        return ln_shape_fail(g, n, err, "x[R,C] with no more columns than 32 bits can sum");
    LN_TRY(ln_shape_to_bfp(g, n, err));
    g->values[n->out[0]].per_row = true;
    return LN_OK;
}
static ln_status shape_gated(ln_graph *g, ln_node *n, bool fixed, const char *wants, ln_error *err) {
    LN_TRY(shape_linear(g,
                        &(ln_node){.op = n->op,
                                   .n_in = 2,
                                   .n_out = 1,
                                   .in = {n->in[0], n->in[1]},
                                   .out = {n->out[0]}},
                        fixed, fixed, wants, err));
    const ln_value *a = ln_in(g, n, 1), *b = ln_in(g, n, 2);
    if (a->dtype != b->dtype || a->dims[0] != b->dims[0] || a->dims[1] != b->dims[1] ||
        a->enc.bits != b->enc.bits || a->enc.group != b->enc.group)
        return ln_shape_fail(g, n, err, "two weights of one shape");
    return LN_OK;
}
static const char dense_pair[] = "x[R,C] in f32 and dense weights g[F,C], u[F,C]",
                  row_pair[] = "x[R,C] in fixed point by row for the encoding of g[F,C], u[F,C]";
ln_status ln_shape_linear_swiglu(ln_graph *g, ln_node *n, ln_error *err) {
    return shape_gated(g, n, false, dense_pair, err);
}
ln_status ln_shape_linear_geglu(ln_graph *g, ln_node *n, ln_error *err) {
    return shape_gated(g, n, false, dense_pair, err);
}
ln_status ln_shape_linear_i8pair_swiglu(ln_graph *g, ln_node *n, ln_error *err) {
    return shape_gated(g, n, true, row_pair, err);
}
ln_status ln_shape_linear_i8pair_geglu(ln_graph *g, ln_node *n, ln_error *err) {
    return shape_gated(g, n, true, row_pair, err);
}
#endif
