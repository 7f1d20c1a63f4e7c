/* Mixtures of experts as feed-forward layers. The references are the classes *TopKRouter, *Experts and
 * *SparseMoeBlock of the modeling files in Hugging Face transformers that the files in families/ name.
 *
 *     logits = router x          [R,X]
 *     ids, weights               the k experts of each row, by ascending number (ops/route_op.c)
 *     h = act(gate x) * up x     [R*k,G], of each row with the matrices of its experts
 *     y = sum of weights down h  [R,D], in the order of ids; + the shared MLP */
#include "decoder_build.h"

#include <math.h>

/* What the router multiplies: x, or x without its length, times a vector. */
static ln_v router_input(const ln_builder *b, ln_v x, int l) {
    const ln_spec *s = b->s;
    if (!ln_ffn_of(s, l)->moe.router_norm) return x;
    const ln_v scale = ln_build_weight(b, "moe.router_scale", LN_W_ROUTER_NORM, l),
               y = ln_g_rmsnorm(b->g, "moe.router_norm", x, scale, (float)s->eps, 0);
    return ln_g_scale(b->g, "moe.router_in", y, (float)(1 / sqrt((double)s->D)));
}

/* As GptOssExperts._apply_gate: (up + 1) gate sigmoid(alpha gate), within limits. */
static ln_v limited(ln_graph *g, const ln_moe_spec *m, ln_v gate, ln_v up) {
    const ln_v low = ln_g_clamp(g, "moe.gate_limited", gate, -INFINITY, m->limit),
               high = ln_g_clamp(g, "moe.up_limited", up, -m->limit, m->limit),
               slope = ln_g_sigmoid(g, "moe.sigmoid", ln_g_scale(g, "moe.gate_scaled", low, m->alpha)),
               act = ln_g_mul(g, "moe.act", low, slope);
    return ln_g_add(g, "moe.h", ln_g_mul(g, "moe.act_up", act, high), act);
}

static ln_v product(const ln_builder *b, const char *name, ln_v x, ln_v ids, ln_slot slot, ln_slot bias,
                    int l) {
    return ln_g_experts(b->g, name, x, ln_build_weight(b, name, slot, l), ids,
                        ln_build_weight(b, name, bias, l), ln_ffn_of(b->s, l)->moe.route.top_k);
}

/* The MLP that all rows go through. */
static ln_v shared_mlp(const ln_builder *b, ln_v x, int l) {
    const ln_ffn_spec *f = ln_ffn_of(b->s, l);
    ln_graph *g = b->g;
    const ln_v gate = ln_build_linear(b, "shared.gate", x, LN_W_S_GATE, LN_W_COUNT, l),
               up = ln_build_linear(b, "shared.up", x, LN_W_S_UP, LN_W_COUNT, l),
               act = ln_build_activation(b, "shared.act", gate, l);
    const ln_v y =
        ln_build_linear(b, "shared.down", ln_g_mul(g, "shared.y", act, up), LN_W_S_DOWN, LN_W_COUNT, l);
    if (!f->moe.shared_gate) return y;
    const ln_v share = ln_build_linear(b, "shared.share", x, LN_W_S_SHARE, LN_W_COUNT, l);
    return ln_g_scale_rows(g, "shared.scaled", y, ln_g_sigmoid(g, "shared.sigmoid", share));
}

ln_v ln_ffn_experts(ln_builder *b, ln_v x, ln_v routed, int l) {
    const ln_ffn_spec *f = ln_ffn_of(b->s, l);
    const ln_moe_spec *m = &f->moe;
    ln_graph *g = b->g;
    ln_v weights;
    const ln_v logits = ln_build_linear(b, "moe.logits", router_input(b, routed, l), LN_W_ROUTER,
                                        LN_W_ROUTER_BIAS, l),
               ids = ln_g_route(g, "moe.route", logits, ln_build_weight(b, "moe.bias", LN_W_CHOICE_BIAS, l),
                                ln_build_weight(b, "moe.scale", LN_W_EXPERT_SCALE, l), &m->route, &weights),
               gate = product(b, "moe.gate", x, ids, LN_W_X_GATE, LN_W_X_GATE_BIAS, l),
               up = product(b, "moe.up", x, ids, LN_W_X_UP, LN_W_X_UP_BIAS, l);
    const ln_v h = m->limit > 0 ? limited(g, m, gate, up)
                                : ln_g_mul(g, "moe.h", ln_build_activation(b, "moe.act", gate, l), up);
    const ln_v each = product(b, "moe.down", h, ids, LN_W_X_DOWN, LN_W_X_DOWN_BIAS, l),
               y = ln_g_fold_rows(g, "moe.y", each, weights, m->route.top_k);
    return m->shared_F ? ln_g_add(g, "moe.with_shared", y, shared_mlp(b, x, l)) : y;
}
