/* Mixtures of experts: route chooses the experts of each row, fold_rows adds what they make of it. The
 * products between are the op experts (linear_op.c).
 *
 * route, of a row of logits (Shazeer et al. 2017; Fedus et al. 2021; DeepSeek-V3 for groups and biases):
 *
 *     scores    SOFTMAX: e[x] = exp(logit[x] - max), s[x] = e[x] / (sum of e in order of x)
 *               SIGMOID: s[x] = 1 / (1 + exp(-logit[x])). CHOSEN: the logits themselves
 *     groups    of equally many experts in a row: the top_groups with the largest sums of their two largest
 *               s[x] + bias[x] remain
 *     choice    top_k times the largest s[x] + bias[x] that is left, of equal ones the first
 *     weights   s of the chosen; CHOSEN: their softmax, summed in order of x. Normed: / (sum in order of x +
 *               eps). Then * factor, and * scale[x]
 *
 * The chosen experts are listed by ascending x. So fold_rows adds what experts make of a row in the order of
 * their numbers, and the bits of a row depend on nothing else in the batch.
 *
 * A value [R*k,1] has k rows, one for each choice, for each row of the logits. */
#include "../graph/grad.h"
#include "scalar_type.h"

#include "route_row.h"

/* Operand after the logits: the bias of the choice, and the scale of the weights; NULL: there is none. */
static const ln_arg *bias_of(const ln_call *c) { return c->node->p.route.biased ? &c->in[1] : NULL; }
static const ln_arg *scale_of(const ln_call *c) {
    const ln_p_route *p = &c->node->p.route;
    if (!p->scaled) return NULL;
    return &c->in[c->node->op == LN_OP_ROUTE_BACK ? 3 : 1 + p->biased];
}

LN_KERNEL(ln_ref_route) {
    const ln_arg *logits = &c->in[0];
    const ln_p_route *p = &c->node->p.route;
    LN_MY_ROWS(c, logits->rows, lo, hi);
    for (int64_t r = lo; r < hi; r++)
        route_row(p, bias_of(c), scale_of(c), real_row(logits, r), logits->cols,
                  (real *)c->out[0].data + r * p->top_k, (real *)c->out[1].data + r * p->top_k);
}

/* With s the scores of the chosen, S the divisor and g the slope by a normed score: ds = (g - sum(g s) / S) /
 * S if they are normed; then the slope of the softmax or of the sigmoid. */
static void slopes(const ln_p_route *p, const real *s, const real *ids, real *g, real *dlogits, int64_t X) {
    real each[LN_ROUTE_MOST], sum = 0;
    chosen_scores(p, s, ids, each);
    const real S = divisor_of(p, each);
    for (int k = 0; p->normed && k < p->top_k; k++) sum += g[k] * each[k];
    for (int k = 0; p->normed && k < p->top_k; k++) g[k] = (g[k] - sum / S) / S;
    real all = 0;
    for (int k = 0; k < p->top_k; k++) all += g[k] * each[k];
    for (int64_t x = 0; x < X; x++) dlogits[x] = p->kind == LN_ROUTE_SOFTMAX ? -s[x] * all : 0;
    for (int k = 0; k < p->top_k; k++) {
        real *d = &dlogits[(int64_t)ids[k]];
        *d = p->kind == LN_ROUTE_SOFTMAX   ? *d + each[k] * g[k]
             : p->kind == LN_ROUTE_SIGMOID ? g[k] * each[k] * (1 - each[k])
                                           : each[k] * (g[k] - all);
    }
}
LN_KERNEL(ln_ref_route_back) {
    const ln_arg *logits = &c->in[0], *scale = scale_of(c);
    const ln_p_route *p = &c->node->p.route;
    real g[LN_ROUTE_MOST], s[LN_ROUTE_EXPERTS];
    LN_MY_ROWS(c, logits->rows, lo, hi);
    for (int64_t r = lo; r < hi; r++) {
        const real *ids = (const real *)c->in[1].data + r * p->top_k,
                   *dw = (const real *)c->in[2].data + r * p->top_k;
        score(p->kind, real_row(logits, r), logits->cols, s);
        for (int k = 0; k < p->top_k; k++) {
            g[k] = dw[k] * (real)p->factor;
            if (scale) g[k] = g[k] * real_load(scale->data, scale->dtype, (int64_t)ids[k]);
        }
        slopes(p, s, ids, g, real_row(&c->out[0], r), logits->cols);
    }
}

LN_KERNEL(ln_ref_fold_rows) {
    const ln_arg *x = &c->in[0], *y = &c->out[0];
    const int n = c->node->p.fold.n;
    const real *s = c->node->n_in > 1 ? c->in[1].data : NULL;
    LN_MY_ROWS(c, y->rows, lo, hi);
    for (int64_t r = lo; r < hi; r++)
        for (int64_t i = 0; i < y->cols; i++) {
            real sum = 0;
            for (int64_t p = r * n; p < r * n + n; p++)
                sum = s ? real_fma(s[p], real_row(x, p)[i], sum) : sum + real_row(x, p)[i];
            real_row(y, r)[i] = sum;
        }
}
LN_KERNEL(ln_ref_repeat_rows) {
    const ln_arg *x = &c->in[0], *y = &c->out[0];
    LN_MY_ROWS(c, y->rows, lo, hi);
    for (int64_t r = lo; r < hi; r++)
        memcpy(real_row(y, r), real_row(x, r / c->node->p.fold.n), (size_t)y->cols * sizeof(real));
}

#ifdef LN_REAL_FLOAT
static bool is_rows(const ln_value *v) { return ln_is_float(v) && v->n_dims == 2; }
static bool is_each(const ln_value *v, const ln_value *logits, int top_k) {
    return is_rows(v) && v->dims[1] == 1 && v->dims[0] == ln_dim_times(logits->dims[0], top_k);
}
static bool is_of_experts(const ln_value *v, const ln_value *logits) {
    return ln_is_vector(v) && v->dims[0] == logits->dims[1];
}
static ln_status check_route(const ln_graph *g, const ln_node *n, ln_error *err) {
    const ln_value *x = ln_in(g, n, 0);
    const ln_p_route *p = &n->p.route;
    if (!is_rows(x) || p->top_k < 1 || x->dims[1] > LN_ROUTE_EXPERTS ||
        p->top_k > LN_MIN(x->dims[1], (int64_t)LN_ROUTE_MOST))
        return ln_shape_fail(g, n, err, "logits[R,X] in f32 and k of X experts");
    if (p->n_groups > 1 && (x->dims[1] % p->n_groups || p->top_groups < 1 || p->top_groups > p->n_groups ||
                            p->top_k > x->dims[1] / p->n_groups * p->top_groups))
        return ln_shape_fail(g, n, err, "groups of equally many experts, which hold k in the top groups");
    return LN_OK;
}
ln_status ln_shape_route(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_value *x = ln_in(g, n, 0);
    const ln_p_route *p = &n->p.route;
    LN_TRY(check_route(g, n, err));
    if (n->n_in != 1 + p->biased + p->scaled) return ln_shape_fail(g, n, err, "the operands that it names");
    for (int k = 1; k < n->n_in; k++)
        if (!is_of_experts(ln_in(g, n, k), x)) return ln_shape_fail(g, n, err, "a number for each expert");
    for (int k = 0; k < 2; k++) ln_shape_like(&out[k], ln_dim_times(x->dims[0], p->top_k), 1);
    return LN_OK;
}
ln_status ln_shape_route_back(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_value *x = ln_in(g, n, 0);
    const ln_p_route *p = &n->p.route;
    LN_TRY(check_route(g, n, err));
    if (!is_each(ln_in(g, n, 1), x, p->top_k) || !is_each(ln_in(g, n, 2), x, p->top_k) ||
        n->n_in != 3 + p->scaled || (p->scaled && !is_of_experts(ln_in(g, n, 3), x)))
        return ln_shape_fail(g, n, err, "ids[R*k,1], dweights[R*k,1] and a scale if it names one");
    ln_shape_like(out, x->dims[0], x->dims[1]);
    return LN_OK;
}
ln_status ln_shape_fold_rows(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_value *x = ln_in(g, n, 0);
    const int64_t rows = is_rows(x) && n->p.fold.n > 0 ? ln_dim_part(x->dims[0], n->p.fold.n) : 0;
    if (!rows) return ln_shape_fail(g, n, err, "x[R*n,C] in f32");
    if (n->n_in > 1) {
        const ln_value *s = ln_in(g, n, 1);
        if (!is_rows(s) || s->dims[0] != x->dims[0] || s->dims[1] != 1)
            return ln_shape_fail(g, n, err, "s[R*n,1] in f32");
    }
    ln_shape_like(out, rows, x->dims[1]);
    return LN_OK;
}
ln_status ln_shape_repeat_rows(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_value *x = ln_in(g, n, 0);
    if (!is_rows(x) || n->p.fold.n < 1) return ln_shape_fail(g, n, err, "x[R,C] in f32");
    ln_shape_like(out, ln_dim_times(x->dims[0], n->p.fold.n), x->dims[1]);
    return LN_OK;
}
LN_COST_OF_OPERANDS(route)
LN_COST_OF_OPERANDS(route_back)
LN_COST_OF_OPERANDS(fold_rows)
LN_COST_OF_OPERANDS(repeat_rows)

/* Of the weights alone. The bias and the scale are frozen. */
ln_status ln_grad_route(ln_graph *g, const ln_node *n, const ln_v *dy, const bool *wanted, ln_v *dx,
                        ln_error *err) {
    const ln_p_route *p = &n->p.route;
    ln_node back = {.op = LN_OP_ROUTE_BACK, .n_in = 3, .in = {n->in[0], n->out[0], dy[1]}, .p.route = *p};
    char name[64];
    if (n->n_in > 1 && wanted[n->n_in - 1])
        return ln_fail(err, LN_EUNSUPPORTED,
                       "gradient of %s: op route has none with respect to biases and scales of experts",
                       g->values[n->out[1]].name);
    if (!wanted[0] || dy[1] < 0) return LN_OK;
    if (p->scaled) back.in[back.n_in++] = n->in[n->n_in - 1];
    dx[0] = ln_g_node(g, ln_grad_name(g, n->in[0], name), &back, NULL);
    return LN_OK;
}
static ln_v repeated(ln_graph *g, const char *name, ln_v x, int n) {
    const ln_node node = {.op = LN_OP_REPEAT_ROWS, .n_in = 1, .in = {x}, .p.fold = {.n = n}};
    return ln_g_node(g, name, &node, NULL);
}
ln_status ln_grad_fold_rows(ln_graph *g, const ln_node *n, const ln_v *dy, const bool *wanted, ln_v *dx,
                            ln_error *err) {
    char name[64];
    (void)err;
    const ln_v each = repeated(g, "d.each", dy[0], n->p.fold.n);
    if (wanted[0])
        dx[0] = n->n_in > 1 ? ln_g_scale_rows(g, ln_grad_name(g, n->in[0], name), each, n->in[1]) : each;
    if (n->n_in > 1 && wanted[1])
        dx[1] = ln_g_sum(g, ln_grad_name(g, n->in[1], name), ln_g_mul(g, "d.folded", n->in[0], each),
                         LN_SUM_COLS);
    return LN_OK;
}
ln_status ln_grad_repeat_rows(ln_graph *g, const ln_node *n, const ln_v *dy, const bool *wanted, ln_v *dx,
                              ln_error *err) {
    char name[64];
    (void)wanted, (void)err;
    dx[0] = ln_g_fold_rows(g, ln_grad_name(g, n->in[0], name), dy[0], -1, n->p.fold.n);
    return LN_OK;
}
#endif
