/* Feed-forward layers: functions of one row. The references are the classes *MLP of the files named in
 * mixers.c. */
#include "decoder_build.h"

ln_v ln_ffn_gated(ln_builder *b, ln_v x, int l) {
    ln_graph *g = b->g;
    const ln_v gate = ln_build_linear(b, "mlp.gate", x, LN_W_GATE, LN_W_GATE_BIAS, l);
    const ln_v up = ln_build_linear(b, "mlp.up", x, LN_W_UP, LN_W_UP_BIAS, l);
    const ln_v act = ln_ffn_of(b->s, l)->act == LN_ACT_SILU ? ln_g_silu(g, "mlp.act", gate)
                                                            : ln_g_gelu_tanh(g, "mlp.act", gate);
    return ln_build_linear(b, "mlp.down", ln_g_mul(g, "mlp.y", act, up), LN_W_DOWN, LN_W_DOWN_BIAS, l);
}
