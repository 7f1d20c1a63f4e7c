/* Feed-forward layers: functions of one row. The references are the classes *MLP of the files named in
 * mixers.c. */
#include "decoder_build.h"

#include <math.h>

ln_v ln_build_activation(const ln_builder *b, const char *name, ln_v x, int l) {
    switch (ln_ffn_of(b->s, l)->act) {
    case LN_ACT_XIELU: return ln_g_xielu(b->g, name, x, &b->s->layers[l].xielu);
    case LN_ACT_RELU2: return ln_g_relu2(b->g, name, x);
    case LN_ACT_GELU_TANH: return ln_g_gelu_tanh(b->g, name, x);
    case LN_ACT_SILU: break;
    }
    return ln_g_silu(b->g, name, x);
}

ln_v ln_ffn_gated(ln_builder *b, ln_v x, int l) {
    ln_graph *g = b->g;
    if (ln_ffn_of(b->s, l)->ungated) {
        const ln_v up = ln_build_linear(b, "mlp.up", x, LN_W_UP, LN_W_UP_BIAS, l);
        return ln_build_linear(b, "mlp.down", ln_build_activation(b, "mlp.act", up, l), LN_W_DOWN,
                               LN_W_DOWN_BIAS, l);
    }
    const ln_v gate = ln_build_linear(b, "mlp.gate", x, LN_W_GATE, LN_W_GATE_BIAS, l);
    const ln_v up = ln_build_linear(b, "mlp.up", x, LN_W_UP, LN_W_UP_BIAS, l);
    const ln_v act = ln_build_activation(b, "mlp.act", gate, l);
    return ln_build_linear(b, "mlp.down", ln_g_mul(g, "mlp.y", act, up), LN_W_DOWN, LN_W_DOWN_BIAS, l);
}

/* Both read the residual stream, through norms of their own. */
static ln_v with_experts_beside(ln_builder *b, ln_v x, ln_v dense, int l) {
    const ln_v in = ln_build_norm(b, "moe.norm", x, LN_W_X_NORM, l);
    const ln_v y = ln_ffn_experts(b, in, x, l);
    return ln_g_add(b->g, "mlp.both", ln_build_norm(b, "mlp.dense_norm", dense, LN_W_MLP_POST, l),
                    ln_build_norm(b, "moe.out_norm", y, LN_W_X_POST, l));
}
ln_v ln_ffn(ln_builder *b, ln_v x, int l) {
    const ln_ffn_spec *f = ln_ffn_of(b->s, l);
    const ln_v in = b->s->pre_norms ? ln_build_norm(b, "mlp.norm", x, LN_W_FFN_NORM, l) : x;
    if (!f->F) return ln_ffn_experts(b, in, in, l);
    const ln_v y = ln_ffn_gated(b, in, l);
    return f->moe.n_experts ? with_experts_beside(b, x, y, l) : y;
}

/* As project_per_layer_inputs of the reference: the mean of what the ids say, rows of a table, and of what
 * their embedding says, each slice of it normed; times the root of 2. */
ln_v ln_layer_inputs(const ln_builder *b, ln_v x) {
    ln_graph *g = b->g;
    const ln_spec *s = b->s;
    const ln_v table = ln_build_weight(b, "inputs.table", LN_W_LAYER_EMBED, -1),
               proj = ln_build_weight(b, "inputs.proj", LN_W_LAYER_PROJ, -1),
               of_ids = ln_g_embed(g, "inputs.of_ids", table, s->per_layer_scale, s->padding);
    ln_v y = ln_g_linear(g, "inputs.projected", x, proj, -1);
    y = ln_g_scale(g, "inputs.scaled", y, (float)(1 / sqrt((double)s->D)));
    y = ln_build_norm(b, "inputs.norm", y, LN_W_LAYER_NORM, -1);
    return ln_g_scale(g, "inputs", ln_g_add(g, "inputs.sum", y, of_ids), (float)sqrt(0.5));
}

ln_v ln_add_layer_input(ln_builder *b, ln_v x, int l) {
    ln_graph *g = b->g;
    const int64_t width = b->s->per_layer;
    const ln_v all = ln_build_wanted_rows(b, "input.rows",
                                          ln_g_slice(g, "input", b->inputs, l * width, width), l),
               gate = ln_build_linear(b, "input.gate", x, LN_W_IN_GATE, LN_W_COUNT, l);
    const ln_v y = ln_g_mul(g, "input.gated", ln_build_activation(b, "input.act", gate, l), all);
    return ln_g_add(g, "input.residual", x,
                    ln_build_norm(b, "input.norm",
                                  ln_build_linear(b, "input.out", y, LN_W_IN_OUT, LN_W_COUNT, l),
                                  LN_W_IN_POST, l));
}
