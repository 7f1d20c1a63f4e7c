/* Ops that only graphs of callers have: pointwise, which is exp, log, sqrt or a quotient, and reshape.
 *
 * The gradients of pointwise are made of itself, products and scales, so that it has no backward op. */
#include "../graph/grad.h"
#include "scalar_type.h"

#include <math.h>

/* log of 0 is minus infinity, of a number below 0 NaN, as in the C library. */
static real log_of(real x) {
    if (x > 0) return isinf(x) ? x : real_log(x);
    return x < 0 || isnan(x) ? (real)NAN : -(real)INFINITY;
}

LN_KERNEL(ln_ref_pointwise) {
    const ln_pointwise kind = c->node->p.pointwise.kind;
    LN_MY_ROWS(c, c->out[0].rows, lo, hi);
    for (int64_t r = lo; r < hi; r++) {
        const real *a = real_row(&c->in[0], r), *b = c->node->n_in > 1 ? real_row(&c->in[1], r) : a;
        real *y = real_row(&c->out[0], r);
        for (int64_t i = 0; i < c->out[0].cols; i++)
            y[i] = kind == LN_POINTWISE_EXP    ? real_exp(a[i])
                   : kind == LN_POINTWISE_LOG  ? log_of(a[i])
                   : kind == LN_POINTWISE_SQRT ? real_sqrt(a[i])
                                               : a[i] / b[i];
    }
}

/* Rows of values may be longer in memory than their columns. */
LN_KERNEL(ln_ref_reshape) {
    const ln_arg *x = &c->in[0], *y = &c->out[0];
    LN_MY_ROWS(c, y->rows, lo, hi);
    for (int64_t r = lo; r < hi; r++)
        for (int64_t i = 0, at = r * y->cols; i < y->cols; i++, at++)
            real_row(y, r)[i] = real_row(x, at / x->cols)[at % x->cols];
}

#ifdef LN_REAL_FLOAT
ln_status ln_shape_pointwise(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_value *a = ln_in(g, n, 0), *b = ln_in(g, n, n->n_in - 1);
    if ((n->p.pointwise.kind == LN_POINTWISE_DIV) != (n->n_in == 2))
        return ln_shape_fail(g, n, err, "two operands of a quotient, else one");
    if (!ln_is_float(a) || a->n_dims != 2 || !ln_is_float(b) || b->n_dims != 2 || b->dims[0] != a->dims[0] ||
        b->dims[1] != a->dims[1])
        return ln_shape_fail(g, n, err, "operands of one shape [R,C] in f32");
    ln_shape_like(out, a->dims[0], a->dims[1]);
    return LN_OK;
}
ln_status ln_shape_reshape(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_value *x = ln_in(g, n, 0);
    const ln_p_spread *p = &n->p.spread;
    const bool fixed = x->n_dims == 2 && x->dims[0] > 0 && x->dims[1] > 0 && p->rows > 0 && p->cols > 0;
    if (!ln_is_float(x) || !fixed || p->rows > INT32_MAX / p->cols ||
        p->rows * p->cols != x->dims[0] * x->dims[1])
        return ln_shape_fail(g, n, err, "x[R,C] in f32 and a shape of as many elements");
    ln_shape_like(out, p->rows, p->cols);
    return LN_OK;
}
LN_COST_OF_OPERANDS(pointwise)
LN_COST_OF_OPERANDS(reshape)

/* exp: dy y. log: dy / a. sqrt: dy / (2 y). a / b: dy / b, and -(dy / b) y. */
ln_status ln_grad_pointwise(ln_graph *g, const ln_node *n, const ln_v *dy, const bool *wanted, ln_v *dx,
                            ln_error *err) {
    const ln_v y = n->out[0];
    ln_v over = n->in[n->n_in - 1];
    char name[64];
    (void)err;
    if (n->p.pointwise.kind == LN_POINTWISE_EXP) {
        dx[0] = ln_g_mul(g, ln_grad_name(g, n->in[0], name), dy[0], y);
        return LN_OK;
    }
    if (n->p.pointwise.kind == LN_POINTWISE_SQRT) over = ln_g_scale(g, "d.twice", y, 2);
    dx[0] = ln_g_pointwise(g, ln_grad_name(g, n->in[0], name), LN_POINTWISE_DIV, dy[0], over);
    if (n->n_in == 2 && wanted[1])
        dx[1] = ln_g_scale(g, ln_grad_name(g, n->in[1], name), ln_g_mul(g, "d.quotient", dx[0], y), -1);
    return LN_OK;
}
ln_status ln_grad_reshape(ln_graph *g, const ln_node *n, const ln_v *dy, const bool *wanted, ln_v *dx,
                          ln_error *err) {
    const ln_value x = g->values[n->in[0]];
    char name[64];
    (void)wanted, (void)err;
    dx[0] = ln_g_reshape(g, ln_grad_name(g, n->in[0], name), dy[0], x.dims[0], x.dims[1]);
    return LN_OK;
}
#endif
