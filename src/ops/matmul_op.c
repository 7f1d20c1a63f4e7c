/* Ops of user graphs and of gradients: load, products of two temps, scaling, sums, and their opposite,
 * spread.
 *
 * `load` is the only one of them that reads bound memory (trainables and inputs, in their storage type), so
 * that all other ops compute with temps. matmul is one op with three forms (a b^T, a b, a^T b), each of which
 * has its gradients among the three. Orders of accumulation: ops.h. */
#include "../graph/grad.h"
#include "scalar_type.h"

LN_KERNEL(ln_ref_load) {
    const ln_arg *x = &c->in[0];
    LN_MY_ROWS(c, c->out[0].rows, lo, hi);
    for (int64_t r = lo; r < hi; r++)
        for (int64_t i = 0; i < x->cols; i++)
            real_row(&c->out[0], r)[i] = real_load(x->data, x->dtype, r * x->cols + i);
}

LN_KERNEL(ln_ref_matmul_nt) {
    const ln_arg *a = &c->in[0], *b = &c->in[1], *y = &c->out[0];
    LN_MY_ROWS(c, y->rows, lo, hi);
    for (int64_t r = lo; r < hi; r++)
        for (int64_t d = 0; d < y->cols; d++) {
            const real *x = real_row(a, r), *w = real_row(b, d);
            real sum = 0;
            for (int64_t i = 0; i < a->cols; i++) sum = real_fma(x[i], w[i], sum);
            real_row(y, r)[d] = sum;
        }
}
/* Row r of y: the sum over i of f(i) times row i of b. */
static void sum_of_rows(const ln_arg *y, int64_t r, const ln_arg *b, const real *f, int64_t step, int64_t n) {
    real *to = real_row(y, r);
    for (int64_t d = 0; d < y->cols; d++) to[d] = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t d = 0; d < y->cols; d++) to[d] = real_fma(f[i * step], real_row(b, i)[d], to[d]);
}
LN_KERNEL(ln_ref_matmul_nn) {
    LN_MY_ROWS(c, c->out[0].rows, lo, hi);
    for (int64_t r = lo; r < hi; r++)
        sum_of_rows(&c->out[0], r, &c->in[1], real_row(&c->in[0], r), 1, c->in[0].cols);
}
LN_KERNEL(ln_ref_matmul_tn) {
    LN_MY_ROWS(c, c->out[0].rows, lo, hi);
    for (int64_t r = lo; r < hi; r++)
        sum_of_rows(&c->out[0], r, &c->in[1], real_row(&c->in[0], 0) + r, c->in[0].pitch, c->in[0].rows);
}

LN_KERNEL(ln_ref_scale) {
    LN_MY_ROWS(c, c->out[0].rows, lo, hi);
    for (int64_t r = lo; r < hi; r++)
        for (int64_t i = 0; i < c->out[0].cols; i++)
            real_row(&c->out[0], r)[i] = real_row(&c->in[0], r)[i] * (real)c->node->p.scale.factor;
}
LN_KERNEL(ln_ref_scale_rows) {
    LN_MY_ROWS(c, c->out[0].rows, lo, hi);
    for (int64_t r = lo; r < hi; r++)
        for (int64_t i = 0; i < c->out[0].cols; i++)
            real_row(&c->out[0], r)[i] = real_row(&c->in[0], r)[i] * real_row(&c->in[1], r)[0];
}

static real row_sum(const ln_arg *x, int64_t r) {
    real lane[16] = {0};
    for (int64_t i = 0; i < x->cols; i++) lane[i % 16] = lane[i % 16] + real_row(x, r)[i];
    return real_lanes_sum(lane);
}
LN_KERNEL(ln_ref_sum) {
    const ln_arg *x = &c->in[0], *y = &c->out[0];
    const ln_sum_kind kind = c->node->p.sum.kind;
    LN_MY_ROWS(c, kind == LN_SUM_ROWS ? y->cols : y->rows, lo, hi);
    for (int64_t i = lo; i < hi; i++) { /* an output */
        real sum = 0;
        for (int64_t r = 0; kind == LN_SUM_ALL && r < x->rows; r++) sum = sum + row_sum(x, r);
        for (int64_t r = 0; kind == LN_SUM_ROWS && r < x->rows; r++) sum = sum + real_row(x, r)[i];
        if (kind == LN_SUM_COLS) sum = row_sum(x, i);
        if (kind == LN_SUM_COLS) real_row(y, i)[0] = sum;
        else real_row(y, 0)[i] = sum;
    }
}

LN_KERNEL(ln_ref_spread) {
    const ln_arg *s = &c->in[0], *y = &c->out[0];
    const real by = (real)c->node->p.spread.factor;
    LN_MY_ROWS(c, y->rows, lo, hi);
    for (int64_t r = lo; r < hi; r++)
        for (int64_t i = 0; i < y->cols; i++)
            real_row(y, r)[i] =
                c->node->n_in ? real_row(s, s->rows == 1 ? 0 : r)[s->cols == 1 ? 0 : i] * by : by;
}

#ifdef LN_REAL_FLOAT
/* Whether v is a temp of f32, a matrix or rows. */
static bool is_rows(const ln_value *v) {
    return v->kind == LN_KIND_TEMP && v->n_dims == 2 && v->format.kind == LN_FORMAT_F32;
}
static bool is_factor(const ln_value *v) {
    return v->kind == LN_KIND_TEMP && v->n_dims == 2 && v->format.kind <= LN_FORMAT_BF16;
}

ln_status ln_shape_load(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_value *x = ln_in(g, n, 0);
    if ((x->kind != LN_KIND_TRAINABLE && x->kind != LN_KIND_INPUT) || x->n_dims != 2 || x->dtype == LN_I32 ||
        !ln_encoding_is_dense(x->enc))
        return ln_shape_fail(g, n, err, "a trainable or an input x[R,C] in f32, bf16 or f16");
    ln_shape_like(out, x->dims[0], x->dims[1]);
    return LN_OK;
}
ln_status ln_shape_matmul(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_value *a = ln_in(g, n, 0), *b = ln_in(g, n, 1);
    if (!is_factor(a) || !is_factor(b)) return ln_shape_fail(g, n, err, "two temps a and b in f32 or bf16");
    switch (n->p.matmul.kind) {
    case LN_MATMUL_NT:
        if (b->dims[0] < 1 || a->dims[1] != b->dims[1])
            return ln_shape_fail(g, n, err, "a[R,C] and b[D,C], for a b^T");
        ln_shape_like(out, a->dims[0], b->dims[0]);
        return LN_OK;
    case LN_MATMUL_NN:
        if (a->dims[1] != b->dims[0]) return ln_shape_fail(g, n, err, "a[R,C] and b[C,D], for a b");
        ln_shape_like(out, a->dims[0], b->dims[1]);
        return LN_OK;
    default:
        if (a->dims[0] != b->dims[0]) return ln_shape_fail(g, n, err, "a[R,C] and b[R,D], for a^T b");
        ln_shape_like(out, a->dims[1], b->dims[1]);
        return LN_OK;
    }
}
ln_status ln_shape_scale(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_value *x = ln_in(g, n, 0);
    if (!is_rows(x)) return ln_shape_fail(g, n, err, "x[R,C] in f32");
    ln_shape_like(out, x->dims[0], x->dims[1]);
    return LN_OK;
}
ln_status ln_shape_scale_rows(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_value *x = ln_in(g, n, 0), *s = ln_in(g, n, 1);
    if (!is_rows(x) || !is_rows(s) || s->dims[0] != x->dims[0] || s->dims[1] != 1)
        return ln_shape_fail(g, n, err, "x[R,C] and s[R,1] in f32");
    ln_shape_like(out, x->dims[0], x->dims[1]);
    return LN_OK;
}
ln_status ln_shape_sum(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_value *x = ln_in(g, n, 0);
    if (!is_rows(x)) return ln_shape_fail(g, n, err, "x[R,C] in f32");
    const ln_sum_kind kind = n->p.sum.kind;
    ln_shape_like(out, kind == LN_SUM_COLS ? x->dims[0] : 1, kind == LN_SUM_ROWS ? x->dims[1] : 1);
    return LN_OK;
}
ln_status ln_shape_spread(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_p_spread *p = &n->p.spread;
    const ln_value *s = n->n_in ? ln_in(g, n, 0) : NULL;
    if (p->rows == 0 || p->cols < 1 ||
        (s && (!is_rows(s) || (s->dims[0] != 1 && s->dims[0] != p->rows) ||
               (s->dims[1] != 1 && s->dims[1] != p->cols))))
        return ln_shape_fail(g, n, err, "s[1,1], s[1,C] or s[R,1]");
    ln_shape_like(out, p->rows, p->cols);
    return LN_OK;
}
LN_COST_OF_OPERANDS(load)
LN_COST_OF_OPERANDS(scale)
LN_COST_OF_OPERANDS(scale_rows)
LN_COST_OF_OPERANDS(sum)
LN_COST_OF_OPERANDS(spread)
ln_cost ln_cost_matmul(const ln_program *p, const ln_pnode *n, const ln_bounds *live, int64_t depth) {
    const ln_pvalue *a = ln_program_value(p, n->in[0]), *y = ln_program_value(p, n->out[0]);
    const int64_t summed = n->p.matmul.kind == LN_MATMUL_TN ? a->dims[0] : a->dims[1];
    ln_cost c = ln_cost_of_operands(p, n, live);
    (void)depth;
    c.flops = 2.0 * (double)ln_dim(y->dims[0], live) * (double)y->dims[1] * (double)ln_dim(summed, live);
    return c;
}

ln_status ln_grad_load(ln_graph *g, const ln_node *n, const ln_v *dy, const bool *wanted, ln_v *dx,
                       ln_error *err) {
    (void)g, (void)n, (void)wanted, (void)err;
    dx[0] = dy[0];
    return LN_OK;
}
ln_status ln_grad_matmul(ln_graph *g, const ln_node *n, const ln_v *dy, const bool *wanted, ln_v *dx,
                         ln_error *err) {
    const ln_v a = n->in[0], b = n->in[1], d = dy[0];
    const struct {
        ln_v left, right;
        ln_matmul_kind kind;
    } rules[3][2] = {[LN_MATMUL_NT] = {{d, b, LN_MATMUL_NN}, {d, a, LN_MATMUL_TN}},
                     [LN_MATMUL_NN] = {{d, b, LN_MATMUL_NT}, {a, d, LN_MATMUL_TN}},
                     [LN_MATMUL_TN] = {{b, d, LN_MATMUL_NT}, {a, d, LN_MATMUL_NN}}};
    char name[64];
    (void)err;
    for (int k = 0; k < 2; k++)
        if (wanted[k])
            dx[k] = ln_g_matmul(g, ln_grad_name(g, n->in[k], name), rules[n->p.matmul.kind][k].left,
                                rules[n->p.matmul.kind][k].right, rules[n->p.matmul.kind][k].kind);
    return LN_OK;
}
ln_status ln_grad_scale(ln_graph *g, const ln_node *n, const ln_v *dy, const bool *wanted, ln_v *dx,
                        ln_error *err) {
    char name[64];
    (void)wanted, (void)err;
    dx[0] = ln_g_scale(g, ln_grad_name(g, n->in[0], name), dy[0], n->p.scale.factor);
    return LN_OK;
}
ln_status ln_grad_scale_rows(ln_graph *g, const ln_node *n, const ln_v *dy, const bool *wanted, ln_v *dx,
                             ln_error *err) {
    char name[64];
    (void)err;
    if (wanted[0]) dx[0] = ln_g_scale_rows(g, ln_grad_name(g, n->in[0], name), dy[0], n->in[1]);
    if (wanted[1])
        dx[1] = ln_g_sum(g, ln_grad_name(g, n->in[1], name), ln_g_mul(g, "d.scaled", n->in[0], dy[0]),
                         LN_SUM_COLS);
    return LN_OK;
}
ln_status ln_grad_sum(ln_graph *g, const ln_node *n, const ln_v *dy, const bool *wanted, ln_v *dx,
                      ln_error *err) {
    const ln_value *x = &g->values[n->in[0]];
    char name[64];
    (void)wanted, (void)err;
    dx[0] = ln_g_spread(g, ln_grad_name(g, n->in[0], name), dy[0], x->dims[0], x->dims[1], 1);
    return LN_OK;
}
ln_status ln_grad_spread(ln_graph *g, const ln_node *n, const ln_v *dy, const bool *wanted, ln_v *dx,
                         ln_error *err) {
    const ln_value *s = &g->values[n->in[0]];
    const ln_sum_kind kind = s->dims[0] != 1 ? LN_SUM_COLS : s->dims[1] != 1 ? LN_SUM_ROWS : LN_SUM_ALL;
    char name[64];
    (void)wanted, (void)err;
    if (s->dims[0] != 1 && s->dims[1] != 1) dx[0] = dy[0];
    else dx[0] = ln_g_sum(g, ln_grad_name(g, n->in[0], name), dy[0], kind);
    dx[0] = ln_g_scale(g, ln_grad_name(g, n->in[0], name), dx[0], n->p.spread.factor);
    return LN_OK;
}
#endif
