/* Elementwise ops: add, mul, silu, gelu_tanh, and gated, the product of an activation and another value.
 *
 * y[r][c] is a function of a[r][c] and b[r][c] alone, so the output may share the buffer of input 0. The
 * elementary functions are those of base/elementary.h: SiLU x / (1 + exp(-x)) (Elfwing et al. 2017; Hendrycks
 * and Gimpel 2016) and GELU in its tanh form (Hendrycks and Gimpel 2016, eq. in section 2), as Hugging Face's
 * "silu" and "gelu_pytorch_tanh" compute them. */
#include "scalar_type.h"

#define LN_POINTWISE(name, expr)                                                                         \
    LN_KERNEL(name) {                                                                                    \
        LN_MY_ROWS(c, c->out[0].rows, lo, hi);                                                           \
        for (int64_t r = lo; r < hi; r++) {                                                              \
            const real *a = real_row(&c->in[0], r), *b = c->node->n_in > 1 ? real_row(&c->in[1], r) : a; \
            real *y = real_row(&c->out[0], r);                                                           \
            (void)b;                                                                                     \
            for (int64_t i = 0; i < c->out[0].cols; i++) y[i] = (expr);                                  \
        }                                                                                                \
    }

LN_POINTWISE(ln_ref_add, a[i] + b[i])
LN_POINTWISE(ln_ref_mul, a[i] * b[i])
LN_POINTWISE(ln_ref_silu, real_silu(a[i]))
LN_POINTWISE(ln_ref_gelu_tanh, real_gelu_tanh(a[i]))
LN_POINTWISE(ln_ref_gated, real_stored(c, real_act(c->node->p.gate.act, a[i]) * b[i]))

#ifdef LN_REAL_FLOAT
static ln_status shape_same(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_value *a = ln_in(g, n, 0);
    if (!ln_is_float(a) || a->n_dims != 2) return ln_shape_fail(g, n, err, "a[R,C] in f32");
    if (n->n_in == 2) {
        const ln_value *b = ln_in(g, n, 1);
        if (!ln_is_float(b) || b->n_dims != 2 || b->dims[0] != a->dims[0] || b->dims[1] != a->dims[1])
            return ln_shape_fail(g, n, err, "two operands of one shape");
    }
    ln_shape_like(out, a->dims[0], a->dims[1]);
    return LN_OK;
}
ln_status ln_shape_add(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    return shape_same(g, n, out, err);
}
ln_status ln_shape_mul(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    return shape_same(g, n, out, err);
}
ln_status ln_shape_silu(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    return shape_same(g, n, out, err);
}
ln_status ln_shape_gelu_tanh(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    return shape_same(g, n, out, err);
}
ln_status ln_shape_gated(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    return shape_same(g, n, out, err);
}
LN_COST_OF_OPERANDS(add)
LN_COST_OF_OPERANDS(mul)
LN_COST_OF_OPERANDS(silu)
LN_COST_OF_OPERANDS(gelu_tanh)
LN_COST_OF_OPERANDS(gated)
#endif
