/* Builders of the ops that training adds (contract: grad.h). */
#include "grad.h"

#include <stdio.h>

static ln_v unary(ln_graph *g, const char *name, ln_op op, ln_v x) {
    const ln_node n = {.op = op, .n_in = 1, .in = {x}};
    return ln_g_node(g, name, &n, NULL);
}
static ln_v binary(ln_graph *g, const char *name, ln_op op, ln_v a, ln_v b) {
    const ln_node n = {.op = op, .n_in = 2, .in = {a, b}};
    return ln_g_node(g, name, &n, NULL);
}

ln_v ln_g_load(ln_graph *g, const char *name, ln_v x) { return unary(g, name, LN_OP_LOAD, x); }
ln_v ln_g_matmul(ln_graph *g, const char *name, ln_v a, ln_v b, ln_matmul_kind kind) {
    const ln_node n = {.op = LN_OP_MATMUL, .n_in = 2, .in = {a, b}, .p.matmul = {kind}};
    return ln_g_node(g, name, &n, NULL);
}
ln_v ln_g_linear_back(ln_graph *g, const char *name, ln_v dy, ln_v w) {
    return binary(g, name, LN_OP_LINEAR_BACK, dy, w);
}
ln_v ln_g_scale(ln_graph *g, const char *name, ln_v x, float by) {
    const ln_node n = {.op = LN_OP_SCALE, .n_in = 1, .in = {x}, .p.scale = {by}};
    return ln_g_node(g, name, &n, NULL);
}
ln_v ln_g_scale_rows(ln_graph *g, const char *name, ln_v x, ln_v s) {
    return binary(g, name, LN_OP_SCALE_ROWS, x, s);
}
ln_v ln_g_sum(ln_graph *g, const char *name, ln_v x, ln_sum_kind kind) {
    const ln_node n = {.op = LN_OP_SUM, .n_in = 1, .in = {x}, .p.sum = {kind}};
    return ln_g_node(g, name, &n, NULL);
}
ln_v ln_g_spread(ln_graph *g, const char *name, ln_v s, int64_t rows, int64_t cols, float by) {
    const ln_node n = {.op = LN_OP_SPREAD,
                       .n_in = s >= 0,
                       .in = {LN_MAX(s, 0)},
                       .p.spread = {.rows = rows, .cols = cols, .factor = by}};
    return ln_g_node(g, name, &n, NULL);
}
ln_v ln_g_softmax(ln_graph *g, const char *name, ln_v x) { return unary(g, name, LN_OP_SOFTMAX, x); }
ln_v ln_g_softmax_back(ln_graph *g, const char *name, ln_v y, ln_v dy) {
    return binary(g, name, LN_OP_SOFTMAX_BACK, y, dy);
}
ln_v ln_g_nll(ln_graph *g, const char *name, ln_v x, ln_v targets) {
    return binary(g, name, LN_OP_NLL, x, targets);
}
ln_v ln_g_nll_back(ln_graph *g, const char *name, ln_v x, ln_v targets, ln_v dy) {
    const ln_node n = {.op = LN_OP_NLL_BACK, .n_in = 3, .in = {x, targets, dy}};
    return ln_g_node(g, name, &n, NULL);
}
ln_v ln_g_act_back(ln_graph *g, const char *name, ln_v x, ln_v dy, ln_act act) {
    const ln_node n = {.op = LN_OP_ACT_BACK, .n_in = 2, .in = {x, dy}, .p.gate = {act}};
    return ln_g_node(g, name, &n, NULL);
}
ln_v ln_g_attn(ln_graph *g, const char *name, ln_v q, ln_v k, ln_v v, ln_v sinks, const ln_p_packed *p,
               ln_v *lse) {
    const ln_node n = {
        .op = LN_OP_ATTN, .n_in = sinks < 0 ? 3 : 4, .in = {q, k, v, sinks < 0 ? 0 : sinks}, .p.packed = *p};
    ln_v out[LN_NODE_OUT];
    const ln_v y = ln_g_node(g, name, &n, out);
    if (lse) *lse = out[1];
    return y;
}
ln_v ln_g_conv(ln_graph *g, const char *name, ln_v x, ln_v w, ln_v bias, const ln_p_conv *p) {
    const ln_node n = {
        .op = LN_OP_CONV, .n_in = bias < 0 ? 2 : 3, .in = {x, w, LN_MAX(bias, 0)}, .p.conv = *p};
    return ln_g_node(g, name, &n, NULL);
}
ln_v ln_g_delta(ln_graph *g, const char *name, ln_v gates, ln_v qkv, const ln_p_delta *p) {
    const ln_node n = {.op = LN_OP_DELTA, .n_in = 2, .in = {gates, qkv}, .p.delta = *p};
    return ln_g_node(g, name, &n, NULL);
}
ln_v ln_g_linear_cross_entropy(ln_graph *g, const char *name, ln_v x, ln_v w, ln_v targets) {
    const ln_node n = {.op = LN_OP_LINEAR_CROSS_ENTROPY, .n_in = 3, .in = {x, w, targets}};
    return ln_g_node(g, name, &n, NULL);
}
ln_v ln_g_slice_back(ln_graph *g, const char *name, ln_v x, int64_t at, int64_t cols) {
    const ln_node n = {
        .op = LN_OP_SLICE_BACK, .n_in = 1, .in = {x}, .p.slice = {.at = at, .cols = cols, .every = 0}};
    return ln_g_node(g, name, &n, NULL);
}
ln_v ln_g_dropout(ln_graph *g, const char *name, ln_v x, ln_v samples, const ln_p_dropout *p) {
    const ln_node n = {.op = LN_OP_DROPOUT, .n_in = 2, .in = {x, samples}, .p.dropout = *p};
    return ln_g_node(g, name, &n, NULL);
}
ln_v ln_g_pointwise(ln_graph *g, const char *name, ln_pointwise kind, ln_v a, ln_v b) {
    const ln_node n = {
        .op = LN_OP_POINTWISE, .n_in = b < 0 ? 1 : 2, .in = {a, LN_MAX(b, 0)}, .p.pointwise = {kind}};
    return ln_g_node(g, name, &n, NULL);
}
ln_v ln_g_reshape(ln_graph *g, const char *name, ln_v x, int64_t rows, int64_t cols) {
    const ln_node n = {.op = LN_OP_RESHAPE, .n_in = 1, .in = {x}, .p.spread = {.rows = rows, .cols = cols}};
    return ln_g_node(g, name, &n, NULL);
}
