/* tangent: forward-mode derivatives (contract: graph/grad.h), for ops with a rule in the table below.
 *
 * Most of them are linear in each operand, and the rule applies the op to the tangent. The backward ops of
 * silu, gelu_tanh and softmax serve as well: their Jacobians are diagonal or symmetric. */
#include "../grad.h"

#include <stdio.h>

/* The tangent of output 0 of a node: t[k] is that of input k, -1 where it is zero; at least one is not. */
typedef ln_v tangent_fn(ln_graph *g, const char *name, const ln_node *n, const ln_v *t);

/* The node with tangents in place of the inputs that have one; for ops that are linear in all of those. */
static ln_v of_linear(ln_graph *g, const char *name, const ln_node *n, const ln_v *t) {
    ln_node m = *n;
    m.n_out = 0;
    for (int k = 0; k < n->n_in; k++)
        if (t[k] >= 0) m.in[k] = t[k];
    return ln_g_node(g, name, &m, NULL);
}
static ln_v sum_of(ln_graph *g, const char *name, ln_v a, ln_v b) {
    return a < 0 ? b : b < 0 ? a : ln_g_add(g, name, a, b);
}
static ln_v of_add(ln_graph *g, const char *name, const ln_node *n, const ln_v *t) {
    return (void)n, sum_of(g, name, t[0], t[1]);
}
/* Ops of two operands that are linear in each. */
static ln_v of_product(ln_graph *g, const char *name, const ln_node *n, const ln_v *t) {
    ln_v part[2] = {-1, -1};
    for (int k = 0; k < 2; k++) {
        const ln_v only[2] = {k == 0 ? t[0] : -1, k == 1 ? t[1] : -1};
        if (t[k] >= 0) part[k] = of_linear(g, name, n, only);
    }
    return sum_of(g, name, part[0], part[1]);
}
static ln_v of_silu(ln_graph *g, const char *name, const ln_node *n, const ln_v *t) {
    return ln_g_act_back(g, name, n->in[0], t[0], LN_ACT_SILU);
}
static ln_v of_gelu(ln_graph *g, const char *name, const ln_node *n, const ln_v *t) {
    return ln_g_act_back(g, name, n->in[0], t[0], LN_ACT_GELU_TANH);
}
static ln_v of_softmax(ln_graph *g, const char *name, const ln_node *n, const ln_v *t) {
    return ln_g_softmax_back(g, name, n->out[0], t[0]);
}
/* The sum over a row of (softmax - 1 at the target) times the tangent. */
static ln_v of_nll(ln_graph *g, const char *name, const ln_node *n, const ln_v *t) {
    const ln_v ones = ln_g_spread(g, name, -1, g->values[n->in[0]].dims[0], 1, 1),
               slope = ln_g_nll_back(g, name, n->in[0], n->in[1], ones);
    return ln_g_sum(g, name, ln_g_mul(g, name, slope, t[0]), LN_SUM_COLS);
}

static ln_v of_sigmoid(ln_graph *g, const char *name, const ln_node *n, const ln_v *t) {
    const ln_v y = n->out[0], ty = ln_g_mul(g, name, t[0], y);
    return ln_g_add(g, name, ty, ln_g_scale(g, name, ln_g_mul(g, name, ty, y), -1));
}
/* 1 - tanh^2, and the output is `by` tanh. */
static ln_v of_softcap(ln_graph *g, const char *name, const ln_node *n, const ln_v *t) {
    const float by = n->p.scale.factor;
    const ln_v square = ln_g_mul(g, name, n->out[0], n->out[0]), lost = ln_g_mul(g, name, square, t[0]);
    return ln_g_add(g, name, t[0], ln_g_scale(g, name, lost, -1 / (by * by)));
}
/* The op with a second operand is that operand between the bounds, else 0. */
static ln_v of_clamp(ln_graph *g, const char *name, const ln_node *n, const ln_v *t) {
    const ln_node m = {.op = LN_OP_CLAMP, .n_in = 2, .in = {n->in[0], t[0]}, .p = n->p};
    return ln_g_node(g, name, &m, NULL);
}
/* exp: y t. log: t / a. sqrt: t / (2 y). a / b: (ta - y tb) / b. */
static ln_v of_pointwise(ln_graph *g, const char *name, const ln_node *n, const ln_v *t) {
    const ln_v y = n->out[0];
    ln_v over = n->in[n->n_in - 1], up = t[0];
    if (n->p.pointwise.kind == LN_POINTWISE_EXP) return ln_g_mul(g, name, y, t[0]);
    if (n->p.pointwise.kind == LN_POINTWISE_SQRT) over = ln_g_scale(g, name, y, 2);
    if (n->n_in > 1 && t[1] >= 0)
        up = sum_of(g, name, t[0], ln_g_scale(g, name, ln_g_mul(g, name, y, t[1]), -1));
    return ln_g_pointwise(g, name, LN_POINTWISE_DIV, up, over);
}
/* Without a weight the Jacobian is symmetric. */
static ln_v of_rmsnorm(ln_graph *g, const char *name, const ln_node *n, const ln_v *t) {
    const ln_node m = {.op = LN_OP_RMSNORM_BACK, .n_in = 2, .in = {n->in[0], t[0]}, .p = n->p};
    if (n->n_in == 1) return ln_g_node(g, name, &m, NULL);
    (void)ln_fail(&g->error, LN_EUNSUPPORTED, "tangent of %s: op rmsnorm with a weight has no tangent rule",
                  name);
    return -1;
}

static tangent_fn *const rules[LN_OP_COUNT] = {[LN_OP_ADD] = of_add,
                                               [LN_OP_MUL] = of_product,
                                               [LN_OP_MATMUL] = of_product,
                                               [LN_OP_SCALE_ROWS] = of_product,
                                               [LN_OP_SCALE] = of_linear,
                                               [LN_OP_SUM] = of_linear,
                                               [LN_OP_SPREAD] = of_linear,
                                               [LN_OP_GATHER_ROWS] = of_linear,
                                               [LN_OP_SCATTER_ROWS] = of_linear,
                                               [LN_OP_SILU] = of_silu,
                                               [LN_OP_GELU_TANH] = of_gelu,
                                               [LN_OP_SOFTMAX] = of_softmax,
                                               [LN_OP_SLICE] = of_linear,
                                               [LN_OP_SLICE_BACK] = of_linear,
                                               [LN_OP_SIGMOID] = of_sigmoid,
                                               [LN_OP_SOFTCAP] = of_softcap,
                                               [LN_OP_CLAMP] = of_clamp,
                                               [LN_OP_POINTWISE] = of_pointwise,
                                               [LN_OP_RESHAPE] = of_linear,
                                               [LN_OP_RMSNORM] = of_rmsnorm,
                                               [LN_OP_NLL] = of_nll};

ln_status ln_graph_tangent(ln_graph *g, ln_v y, const ln_v *wrt, const ln_v *tangents, size_t n, ln_v *dy,
                           ln_error *err) {
    const size_t n_values = g->n_values, n_nodes = g->n_nodes;
    ln_v *t = ln_alloc((n_values + 1) * sizeof *t);
    ln_status st = t ? g->error.code : LN_OOM(err, "tangents");
    for (size_t i = 0; t && i < n_values; i++) t[i] = -1;
    for (size_t i = 0; t && i < n; i++) t[wrt[i]] = tangents[i];
    for (size_t i = 0; i < n_nodes && st == LN_OK; i++) {
        const ln_node m = g->nodes[i];
        ln_v of_in[LN_NODE_IN];
        bool any = false;
        char name[64];
        for (int k = 0; k < m.n_in; k++) any = (of_in[k] = t[m.in[k]]) >= 0 || any;
        if (m.dead || !any || t[m.out[0]] >= 0) continue;
        if (!rules[m.op]) {
            st = ln_fail(err, LN_EUNSUPPORTED, "tangent of %s: op %s has no tangent rule; take gradients",
                         g->values[m.out[0]].name, ln_ops[m.op].name);
            break;
        }
        (void)snprintf(name, sizeof name, "t.%.60s", g->values[m.out[0]].name);
        t[m.out[0]] = rules[m.op](g, name, &m, of_in);
        st = g->error.code;
        if (err && st != LN_OK) *err = g->error;
    }
    if (st == LN_OK) *dy = t[y];
    ln_free(t);
    return st;
}
