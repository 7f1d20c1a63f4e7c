/* Elementwise ops: add, mul, silu, gelu_tanh, relu2 (the square of the positive part; So et al. 2021),
 * xielu, sigmoid, softcap (c tanh(x / c)), and gated, the product of an activation and another
 * value.
 *
 * y[r][c] is a function of a[r][c] and b[r][c] alone, so the output may share the buffer of input 0. The
 * elementary functions are those of base/elementary.h: SiLU x / (1 + exp(-x)) (Elfwing et al. 2017; Hendrycks
 * and Gimpel 2016) and GELU in its tanh form (Hendrycks and Gimpel 2016, eq. in section 2), as Hugging Face's
 * "silu" and "gelu_pytorch_tanh" compute them. */
#include "../graph/grad.h"
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
/* NaN stays NaN. */
LN_POINTWISE(ln_ref_relu2, real_stored(c, a[i] <= 0 ? 0 : a[i] * a[i]))
LN_POINTWISE(ln_ref_sigmoid, 1 / (1 + real_exp(-a[i])))
LN_POINTWISE(ln_ref_softcap, real_capped(a[i], c->node->p.scale.factor))
static real clamped(const ln_call *c, real x) {
    const real low = (real)c->node->p.clamp.low, high = (real)c->node->p.clamp.high;
    return x < low ? low : x > high ? high : x;
}
LN_POINTWISE(ln_ref_clamp, c->node->n_in == 1 ? clamped(c, a[i]) : clamped(c, a[i]) == a[i] ? b[i] : 0)
LN_POINTWISE(ln_ref_gated, real_stored(c, real_act(c->node->p.gate.act, a[i]) * b[i]))

/* exp(z) - 1 for z <= 0: near 0 seven terms of its series, else a difference. */
static real expm1_of(real z) {
    real sum = 1;
    if (z <= (real)-0.03) return real_exp(z) - 1;
    for (int i = 7; i > 1; i--) sum = 1 + z / (real)i * sum;
    return z * sum;
}
static real xielu_of(const ln_p_xielu *p, real x) {
    const real eps = (real)p->eps, linear = (real)p->beta * x;
    if (x > 0) return (real)p->alpha_p * x * x + linear;
    return (real)p->alpha_n * (expm1_of(x < eps ? x : eps) - x) + linear;
}
static real xielu_slope(const ln_p_xielu *p, real x) {
    if (x > 0) return 2 * (real)p->alpha_p * x + (real)p->beta;
    return (real)p->alpha_n * ((x < (real)p->eps ? real_exp(x) : 0) - 1) + (real)p->beta;
}
LN_POINTWISE(ln_ref_xielu, xielu_of(&c->node->p.xielu, a[i]))
LN_POINTWISE(ln_ref_xielu_back, b[i] * xielu_slope(&c->node->p.xielu, a[i]))

/* act'(x). SiLU, s = sigmoid(x): s (1 + x (1 - s)). GELU, s = sigmoid(2u) as in real_gelu_tanh: s + x s (1 -
 * s) (2u)'. relu2: 2 max(x, 0). */
static real act_slope(ln_act act, real x) {
    if (act == LN_ACT_RELU2) return x <= 0 ? 0 : 2 * x;
    const real once = (real)1.5957691216057308, cube = (real)0.0713548162726;
    const real u = act == LN_ACT_SILU ? x : x * (once + cube * x * x), s = 1 / (1 + real_exp(-u));
    return act == LN_ACT_SILU ? s * (1 + x * (1 - s)) : s + x * s * (1 - s) * (once + 3 * cube * x * x);
}
LN_POINTWISE(ln_ref_act_back, b[i] * act_slope(c->node->p.gate.act, a[i]))

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
ln_status ln_shape_xielu(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    return shape_same(g, n, out, err);
}
ln_status ln_shape_xielu_back(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    return shape_same(g, n, out, err);
}
ln_status ln_shape_relu2(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    return shape_same(g, n, out, err);
}
ln_status ln_shape_sigmoid(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    return shape_same(g, n, out, err);
}
ln_status ln_shape_softcap(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    if (!(n->p.scale.factor > 0)) return ln_shape_fail(g, n, err, "a cap above 0");
    return shape_same(g, n, out, err);
}
ln_status ln_shape_clamp(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    if (!(n->p.clamp.low <= n->p.clamp.high)) return ln_shape_fail(g, n, err, "bounds in order");
    return shape_same(g, n, out, err);
}
ln_status ln_shape_gated(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    return shape_same(g, n, out, err);
}
LN_COST_OF_OPERANDS(add)
LN_COST_OF_OPERANDS(mul)
LN_COST_OF_OPERANDS(silu)
LN_COST_OF_OPERANDS(gelu_tanh)
LN_COST_OF_OPERANDS(relu2)
LN_COST_OF_OPERANDS(xielu)
LN_COST_OF_OPERANDS(xielu_back)
LN_COST_OF_OPERANDS(sigmoid)
LN_COST_OF_OPERANDS(softcap)
LN_COST_OF_OPERANDS(clamp)
LN_COST_OF_OPERANDS(gated)
LN_COST_OF_OPERANDS(act_back)

ln_status ln_shape_act_back(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    return shape_same(g, n, out, err);
}
ln_status ln_grad_add(ln_graph *g, const ln_node *n, const ln_v *dy, const bool *wanted, ln_v *dx,
                      ln_error *err) {
    (void)g, (void)n, (void)wanted, (void)err;
    dx[0] = dx[1] = dy[0];
    return LN_OK;
}
/* A factor for the reverse pass: a row or a number that was spread is spread again, so that its rows need not
 * be kept. */
static ln_v factor(ln_graph *g, ln_v v) {
    const ln_value x = g->values[v];
    if (x.def < 0 || g->nodes[x.def].op != LN_OP_SPREAD || g->nodes[x.def].n_in == 0) return v;
    const ln_node made = g->nodes[x.def];
    return ln_g_spread(g, x.name, made.in[0], x.dims[0], x.dims[1], made.p.spread.factor);
}
ln_status ln_grad_mul(ln_graph *g, const ln_node *n, const ln_v *dy, const bool *wanted, ln_v *dx,
                      ln_error *err) {
    char name[64];
    (void)err;
    for (int k = 0; k < 2; k++)
        if (wanted[k]) dx[k] = ln_g_mul(g, ln_grad_name(g, n->in[k], name), dy[0], factor(g, n->in[1 - k]));
    return LN_OK;
}
/* y (1 - y). */
ln_status ln_grad_sigmoid(ln_graph *g, const ln_node *n, const ln_v *dy, const bool *wanted, ln_v *dx,
                          ln_error *err) {
    char name[64];
    (void)wanted, (void)err;
    const ln_v y = n->out[0], square = ln_g_mul(g, "d.square", y, y),
               slope = ln_g_add(g, "d.slope", y, ln_g_scale(g, "d.negated", square, -1));
    dx[0] = ln_g_mul(g, ln_grad_name(g, n->in[0], name), slope, dy[0]);
    return LN_OK;
}
/* 1 - (y / c)^2; the factor 1 / c is rounded to f32, which is exact if c is a power of 2. */
ln_status ln_grad_softcap(ln_graph *g, const ln_node *n, const ln_v *dy, const bool *wanted, ln_v *dx,
                          ln_error *err) {
    char name[64];
    (void)wanted, (void)err;
    const ln_v t = ln_g_scale(g, "d.tanh", n->out[0], 1 / n->p.scale.factor),
               lost = ln_g_mul(g, "d.lost", dy[0], ln_g_mul(g, "d.square", t, t));
    dx[0] = ln_g_add(g, ln_grad_name(g, n->in[0], name), dy[0], ln_g_scale(g, "d.negated", lost, -1));
    return LN_OK;
}
/* Of the op with dy with respect to dy: the same op. x has none there: its slope is 0 almost everywhere. */
ln_status ln_grad_clamp(ln_graph *g, const ln_node *n, const ln_v *dy, const bool *wanted, ln_v *dx,
                        ln_error *err) {
    const ln_node back = {.op = LN_OP_CLAMP, .n_in = 2, .in = {n->in[0], dy[0]}, .p.clamp = n->p.clamp};
    const int k = n->n_in - 1;
    char name[64];
    (void)err;
    if (wanted[k]) dx[k] = ln_g_node(g, ln_grad_name(g, n->in[k], name), &back, NULL);
    return LN_OK;
}
ln_status ln_grad_silu(ln_graph *g, const ln_node *n, const ln_v *dy, const bool *wanted, ln_v *dx,
                       ln_error *err) {
    char name[64];
    (void)wanted, (void)err;
    dx[0] = ln_g_act_back(g, ln_grad_name(g, n->in[0], name), n->in[0], dy[0], LN_ACT_SILU);
    return LN_OK;
}
ln_status ln_grad_gelu_tanh(ln_graph *g, const ln_node *n, const ln_v *dy, const bool *wanted, ln_v *dx,
                            ln_error *err) {
    char name[64];
    (void)wanted, (void)err;
    dx[0] = ln_g_act_back(g, ln_grad_name(g, n->in[0], name), n->in[0], dy[0], LN_ACT_GELU_TANH);
    return LN_OK;
}
ln_status ln_grad_xielu(ln_graph *g, const ln_node *n, const ln_v *dy, const bool *wanted, ln_v *dx,
                        ln_error *err) {
    const ln_node back = {.op = LN_OP_XIELU_BACK, .n_in = 2, .in = {n->in[0], dy[0]}, .p.xielu = n->p.xielu};
    char name[64];
    (void)wanted, (void)err;
    dx[0] = ln_g_node(g, ln_grad_name(g, n->in[0], name), &back, NULL);
    return LN_OK;
}
ln_status ln_grad_relu2(ln_graph *g, const ln_node *n, const ln_v *dy, const bool *wanted, ln_v *dx,
                        ln_error *err) {
    char name[64];
    (void)wanted, (void)err;
    dx[0] = ln_g_act_back(g, ln_grad_name(g, n->in[0], name), n->in[0], dy[0], LN_ACT_RELU2);
    return LN_OK;
}
#endif
