/* Matrix products with weights, and the conversions of their operands. linear: y = x w^T + b; linear_gated:
 * the activation of one product times another.
 *
 * The formula of a product depends on the format of x and the stored form of w; quant/formats.def lists the
 * pairs, and each row names the function below that computes one output. The specification of its arithmetic
 * is in ops.h. An output does not depend on the number of rows, on threads or on blocking, so decode and
 * prefill, one sequence or many, give the same bits.
 *
 * product_dense and product_pairs are one chain of fused multiply-adds over the columns; product_rounded is
 * one with the weights of affine groups rounded to bf16. product_affine is factored by group of columns; the
 * sums of x do not depend on the output, so a kernel computes them once per row. product_bfp has an integer
 * sum for each group, exact in any order. product_coded has 16 lanes, so that a kernel reads rows as they are
 * stored. product_i8pair has one scale for a row of x and one for an output,
 * so all columns are one integer sum. */
#include <string.h>

#include "scalar_type.h"

/* The chain over the columns from `from` on, which continues `sum`. */
static real chain(const ln_arg *x, const ln_arg *w, int64_t r, int64_t d, int64_t from, real sum) {
    const real *xr = real_row(x, r);
    for (int64_t i = from; i < x->cols; i++)
        sum = real_fma(real_load(w->data, w->dtype, d * w->pitch + i), xr[i], sum);
    return sum;
}
static real product_dense(const ln_arg *x, const ln_arg *w, int64_t r, int64_t d) {
    return chain(x, w, r, d, 0, 0);
}
static real product_pairs(const ln_arg *x, const ln_arg *w, int64_t r, int64_t d) {
    const real *xr = real_row(x, r);
    real sum = 0;
    int64_t i = 0;
    for (; i + 2 <= x->cols; i += 2)
        for (int odd = 1; odd >= 0; odd--)
            sum = real_fma(real_load(w->data, LN_BF16, d * w->pitch + i + odd), xr[i + odd], sum);
    return chain(x, w, r, d, i, sum);
}

/* x as product_affine multiplies it: flushed to zero below LN_Q_TINY (ops.h). */
static real real_q(real x) { return x < (real)LN_Q_TINY && x > -(real)LN_Q_TINY ? 0 : x; }

static real group_sum(const real *x, int64_t n) {
    real lane[16] = {0};
    for (int64_t i = 0; i < n; i += 16)
        for (int l = 0; l < 16; l++) lane[l] = lane[l] + real_q(x[i + l]);
    return real_lanes_sum(lane);
}

static real product_affine(const ln_arg *x, const ln_arg *weight, int64_t r, int64_t d) {
    const ln_affine *w = weight->data;
    const int64_t row_bytes = ln_affine_row_bytes(w->code, x->cols), groups = x->cols / w->code.group;
    real sum = 0;
    for (int64_t g = 0; g < groups; g++) {
        const real *xg = real_row(x, r) + g * w->code.group;
        real p = 0;
        for (int64_t i = 0; i < w->code.group; i++)
            p = real_fma((real)ln_affine_code(w->codes + d * row_bytes, w->code.bits, g * w->code.group + i),
                         real_q(xg[i]), p);
        sum = real_fma(real_load(w->scales, w->dtype, d * groups + g), p, sum);
        sum = real_fma(real_load(w->biases, w->offset, d * groups + g), group_sum(xg, w->code.group), sum);
    }
    return sum;
}

/* s q + b rounded to bf16. With bf16 scales it is rounded once: the fused sum in double is turned into a
 * float by rounding to odd, so that the second rounding has the result of a single one. With f32 and f16
 * scales the fused sum in f32 is rounded. */
static float rounded_weight(const ln_affine *w, int64_t g, uint32_t q) {
    const float s = ln_num_load(w->scales, w->dtype, g), b = ln_num_load(w->biases, w->offset, g);
    if (w->dtype != LN_BF16 || w->offset != LN_BF16) return ln_bf16_f32(ln_f32_bf16(fmaf(s, (float)q, b)));
    const double exact = fma((double)s, (double)q, (double)b);
    float f = (float)exact;
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    const double rounded = (double)f;
    if (rounded != exact && isfinite(f)) {
        if (fabs(rounded) > fabs(exact)) u--;
        u |= 1;
    }
    memcpy(&f, &u, sizeof f);
    return ln_bf16_f32(ln_f32_bf16(f));
}
static real product_rounded(const ln_arg *x, const ln_arg *weight, int64_t r, int64_t d) {
    const ln_affine *w = weight->data;
    const int64_t row_bytes = ln_affine_row_bytes(w->code, x->cols), groups = x->cols / w->code.group;
    real sum = 0;
    for (int64_t i = 0; i < x->cols; i++)
        sum = real_fma((real)rounded_weight(w, d * groups + i / w->code.group,
                                            ln_affine_code(w->codes + d * row_bytes, w->code.bits, i)),
                       real_row(x, r)[i], sum);
    return sum;
}

static real product_bfp(const ln_arg *x, const ln_arg *weight, int64_t r, int64_t d) {
    const ln_affine *w = weight->data;
    const int64_t row_bytes = ln_affine_row_bytes(w->code, x->cols), groups = x->cols / w->code.group;
    const void *row = real_row(x, r);
    const int16_t *v = row;
    const float *scales = ln_bfp_scales(row, x->cols), *sums = ln_bfp_sums(row, x->cols, w->code.group);
    real sum = 0;
    for (int64_t g = 0; g < groups; g++) {
        int32_t p = 0;
        for (int64_t i = 0; i < w->code.group; i++)
            p += v[g * w->code.group + i] *
                 (int32_t)ln_affine_code(w->codes + d * row_bytes, w->code.bits,
                                         g * w->code.group + ln_bfp_column(w->code.bits, i));
        sum = real_fma(real_load(w->scales, w->dtype, d * groups + g), (real)p * (real)scales[g], sum);
        sum = real_fma(real_load(w->biases, w->offset, d * groups + g), (real)sums[g], sum);
    }
    return sum;
}

static real product_coded(const ln_arg *x, const ln_arg *w, int64_t r, int64_t d) {
    real lane[16] = {0};
    for (int64_t i = 0; i < x->cols; i++)
        lane[i % 16] = real_fma((real)ln_coded_at(w->data, d, i), real_row(x, r)[i], lane[i % 16]);
    return real_lanes_sum(lane);
}

static real product_coded_rounded(const ln_arg *x, const ln_arg *w, int64_t r, int64_t d) {
    real lane[16] = {0};
    for (int64_t i = 0; i < x->cols; i++)
        lane[i % 16] = real_fma((real)ln_coded_rounded_at(w->data, d, i), real_row(x, r)[i], lane[i % 16]);
    return real_lanes_sum(lane);
}

LN_KERNEL(ln_ref_convert_bf16) {
    LN_MY_ROWS(c, c->out[0].rows, lo, hi);
    for (int64_t r = lo; r < hi; r++)
        for (int64_t i = 0; i < c->out[0].cols; i++)
            real_row(&c->out[0], r)[i] = real_round_bf16(real_row(&c->in[0], r)[i]);
}
LN_KERNEL(ln_ref_convert_bfp) {
    const ln_arg *x = &c->in[0], *y = &c->out[0];
    const ln_groups e = ln_format_groups(c->node->p.convert.to);
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

LN_KERNEL(ln_ref_convert_i8pair) {
    const ln_arg *x = &c->in[0], *y = &c->out[0];
    const int bits = c->node->p.convert.to.bits;
    float numbers[LN_I8PAIR_MAX_COLS];
    LN_MY_ROWS(c, y->rows, lo, hi);
    for (int64_t r = lo; r < hi; r++) { /* ln_i8pair_encode_at takes float: rows of double are converted */
        for (int64_t i = 0; i < x->cols; i++) numbers[i] = (float)real_row(x, r)[i];
        ln_i8pair_encode(numbers, x->cols, bits, real_row(y, r));
    }
}

/* Output d of row r, without bias; `by` and `e` are the output's reciprocal and combined scale from row_unit
 * (ln_i8pair_output_scale). */
static float row_product(const ln_arg *x, const ln_affine *w, int64_t r, int64_t d, float by, float e) {
    const int bits = w->code.bits, middle = ln_i8pair_zero_point(bits);
    const int64_t row_bytes = ln_affine_row_bytes(w->code, x->cols), groups = x->cols / w->code.group;
    const ln_i8pair_layout row = ln_i8pair_row_layout(real_row(x, r), x->cols);
    ln_i8pair_sums terms;
    int32_t upper = 0, lower = 0;
    memcpy(&terms, row.terms, sizeof terms);
    for (int64_t p = 0; p < x->cols; p++) {
        const int64_t i = ln_i8pair_column(bits, p), g = d * groups + i / w->code.group;
        const int8_t *h = row.digits + p / 64 * row.step + p % 64;
        int H, L;
        ln_i8pair_weight(bits, ln_num_load(w->scales, w->dtype, g), ln_num_load(w->biases, w->offset, g), by,
                         ln_affine_code(w->codes + d * row_bytes, bits, i), &H, &L);
        upper += *h * (H - middle);
        lower += *h * L + h[row.lower] * (H - middle);
    }
    return fmaf((float)upper, (float)ln_i8pair_radix(bits),
                (float)(lower + ln_i8pair_correction(bits, terms.l))) *
           (terms.u * e);
}
static void row_unit(const ln_affine *w, int64_t cols, int64_t d, float *by, float *e) {
    const int64_t groups = cols / w->code.group;
    ln_i8pair_output_scale((const char *)w->scales + d * groups * ln_dtype_bytes(w->dtype),
                           (const char *)w->biases + d * groups * ln_dtype_bytes(w->offset), w->dtype,
                           w->offset, groups, w->code.bits, by, e);
}
static real product_i8pair(const ln_arg *x, const ln_arg *w, int64_t r, int64_t d) {
    float by, e;
    row_unit(w->data, x->cols, d, &by, &e);
    return (real)row_product(x, w->data, r, d, by, e);
}

/* The outputs of this call's partition. */
typedef real product_fn(const ln_arg *x, const ln_arg *w, int64_t r, int64_t d);
static void linear_of(const ln_call *c, product_fn *product) {
    const ln_arg *x = &c->in[0], *y = &c->out[0];
    int64_t d_lo = y->cols * c->thread / c->n_threads, d_hi = y->cols * (c->thread + 1) / c->n_threads;
    for (int64_t r = 0; r < y->rows; r++)
        for (int64_t d = d_lo; d < d_hi; d++) {
            real sum = product(x, &c->in[1], r, d);
            if (c->node->n_in > 2) sum = sum + real_load(c->in[2].data, c->in[2].dtype, d);
            real_row(y, r)[d] = sum;
        }
}
static void linear_gated_of(const ln_call *c, product_fn *product) {
    const ln_arg *x = &c->in[0], *y = &c->out[0];
    const ln_act act = c->node->p.gate.act;
    int64_t d_lo = y->cols * c->thread / c->n_threads, d_hi = y->cols * (c->thread + 1) / c->n_threads;
    for (int64_t r = 0; r < y->rows; r++)
        for (int64_t d = d_lo; d < d_hi; d++)
            real_row(y, r)[d] =
                real_stored(c, real_act(act, product(x, &c->in[1], r, d)) * product(x, &c->in[2], r, d));
}
/* Row p of y is a product with rows D e .. D e + D - 1 of the weight, which holds the matrices of the experts
 * one after another. */
static void experts_of(const ln_call *c, product_fn *product) {
    const ln_arg *x = &c->in[0], *y = &c->out[0];
    const ln_p_experts *p = &c->node->p.experts;
    const int64_t D = y->cols, d_lo = D * c->thread / c->n_threads, d_hi = D * (c->thread + 1) / c->n_threads;
    for (int64_t r = 0; r < y->rows; r++) {
        const int64_t first = (int64_t)real_row(&c->in[2], r)[0] * D;
        for (int64_t d = d_lo; d < d_hi; d++) {
            real sum = product(x, &c->in[1], p->shared ? r / p->top_k : r, first + d);
            if (c->node->n_in > 3) sum = sum + real_load(c->in[3].data, c->in[3].dtype, first + d);
            real_row(y, r)[d] = sum;
        }
    }
}
#define LN_PRODUCT(NAME, x, w, kernel, x_unit, w_unit, rest, formula)     \
    LN_KERNEL(ln_ref_linear_##NAME) { linear_of(c, kernel); }             \
    LN_KERNEL(ln_ref_linear_gated_##NAME) { linear_gated_of(c, kernel); } \
    LN_KERNEL(ln_ref_experts_##NAME) { experts_of(c, kernel); }
#include "../quant/formats.def"
#undef LN_PRODUCT

#ifdef LN_REAL_FLOAT
/* Whether x[R,C] can be multiplied with rows w[C], of a weight or a trainable: in a format for which w's
 * stored form has a product and, if it depends on an encoding, for that of w. */
static bool multiplies_rows(const ln_value *x, const ln_value *w) {
    const bool encoded = x->format.kind >= LN_FORMAT_BFP;
    return x->dtype == LN_F32 && x->n_dims == 2 && ln_cols(w) == x->dims[1] &&
           ln_product_of(x->format, (ln_stored)w->enc.kind) < LN_PRODUCT_COUNT &&
           (!encoded || ln_format_same(x->format, ln_format_of((ln_format_kind)x->format.kind,
                                                               ln_encoding_groups(w->enc))));
}
static bool multiplies(const ln_value *x, const ln_value *w) {
    return ln_is_matrix(w) && multiplies_rows(x, w);
}
static const char operands[] = "x[R,C] and a weight w[D,C], dense, in whole affine groups or in coded rows, "
                               "with a product for the format of x";
ln_status ln_shape_linear(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_value *x = ln_in(g, n, 0), *w = ln_in(g, n, 1);
    if (!multiplies(x, w)) return ln_shape_fail(g, n, err, operands);
    if (n->n_in == 3) {
        const ln_value *b = ln_in(g, n, 2);
        if (!ln_is_vector(b) || b->dims[0] != w->dims[0]) return ln_shape_fail(g, n, err, "a bias b[D]");
    }
    ln_shape_like(out, x->dims[0], w->dims[0]);
    return LN_OK;
}
ln_status ln_shape_linear_gated(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_value *x = ln_in(g, n, 0), *a = ln_in(g, n, 1), *b = ln_in(g, n, 2);
    if (!multiplies(x, a) || !multiplies(x, b)) return ln_shape_fail(g, n, err, operands);
    if (a->dtype != b->dtype || a->dims[0] != b->dims[0] || !ln_encoding_same(a->enc, b->enc))
        return ln_shape_fail(g, n, err, "two weights of one shape");
    ln_shape_like(out, x->dims[0], a->dims[0]);
    return LN_OK;
}
ln_status ln_shape_experts(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_value *x = ln_in(g, n, 0), *w = ln_in(g, n, 1), *ids = ln_in(g, n, 2);
    const ln_p_experts *p = &n->p.experts;
    if (p->top_k < 1 || !ln_is_float(ids) || ids->n_dims != 2 || ids->dims[1] != 1 ||
        (p->shared ? ln_dim_times(x->dims[0], p->top_k) : x->dims[0]) != ids->dims[0])
        return ln_shape_fail(g, n, err, "a row of x for each of ids[R*k,1], or for k of them");
    if (!ln_is_experts(w) || w->kind != LN_KIND_WEIGHT || !multiplies_rows(x, w))
        return ln_shape_fail(g, n, err, "x[R,C] and a weight w[X,D,C] with a product for the format of x");
    if (n->n_in > 3) {
        const ln_value *b = ln_in(g, n, 3);
        if (!ln_is_vector(b) || b->dims[0] != w->dims[0] * w->dims[1])
            return ln_shape_fail(g, n, err, "biases b[X*D]");
    }
    ln_shape_like(out, ids->dims[0], w->dims[1]);
    return LN_OK;
}
ln_status ln_shape_convert(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_value *x = ln_in(g, n, 0);
    const ln_format to = n->p.convert.to;
    if (!ln_is_float(x) || x->n_dims != 2) return ln_shape_fail(g, n, err, "x[R,C] in f32");
    if (to.kind >= LN_FORMAT_BFP &&
        (!ln_affine_bits_ok(to.bits) || !(ln_affine_group_ok(to.group) || to.group == 16) ||
         x->dims[1] % to.group != 0))
        return ln_shape_fail(g, n, err, "x[R,C] in whole groups of an encoding");
    if (to.kind == LN_FORMAT_I8PAIR && x->dims[1] > LN_I8PAIR_MAX_COLS)
        return ln_shape_fail(g, n, err, "x[R,C] with no more columns than 32 bits can sum");
    ln_shape_like(out, x->dims[0], x->dims[1]);
    out->format = to;
    return LN_OK;
}
ln_cost ln_cost_linear(const ln_program *p, const ln_pnode *n, const ln_bounds *live, int64_t depth) {
    return (void)depth, ln_cost_of_products(p, n, live, 1);
}
ln_cost ln_cost_linear_gated(const ln_program *p, const ln_pnode *n, const ln_bounds *live, int64_t depth) {
    return (void)depth, ln_cost_of_products(p, n, live, 2);
}
LN_COST_OF_OPERANDS(convert)
/* The matrices of the experts that rows choose, if all choices are equally likely. */
ln_cost ln_cost_experts(const ln_program *p, const ln_pnode *n, const ln_bounds *live, int64_t depth) {
    const ln_pvalue *w = ln_program_value(p, n->in[1]), *ids = ln_program_value(p, n->in[2]);
    const double choices = (double)ln_dim(ids->dims[0], live), X = (double)w->dims[0];
    ln_cost c = ln_cost_of_operands(p, n, live);
    (void)depth;
    const double unused = c.weight_bytes * pow(1 - 1 / X, choices);
    c.weight_bytes -= unused;
    c.bytes -= unused;
    c.flops = 2 * choices * (double)w->dims[1] * (double)w->dims[2];
    return c;
}
#endif
