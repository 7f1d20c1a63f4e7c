/* Recurrent mixers: the gated delta rule behind a short convolution, and the short convolution alone. The
 * references are the classes *GatedDeltaNet and *ShortConv of the modeling files in Hugging Face transformers
 * that the files in families/ name. */
#include "decoder_build.h"

/* The place of the state of layer l in the pool. */
static ln_p_recur place_of(const ln_builder *b, int l) {
    const ln_state_pool *pool = b->pool;
    const int group = pool->group[l];
    const ln_state_group *c = &pool->groups[group];
    const ln_recur_sizes *z = &c->recur;
    return (ln_p_recur){.layer = l,
                        .group = group,
                        .pages_per_block = c->pages_per_block,
                        .page_in_block = pool->page_in_block[l],
                        .layer_in_page = pool->layer_in_page[l],
                        .page_len = pool->page_len,
                        .taps = z->taps,
                        .channels = z->channels,
                        .n_k_heads = z->n_k_heads,
                        .n_v_heads = z->n_v_heads,
                        .k_dim = z->k_dim,
                        .v_dim = z->v_dim,
                        .dtype = c->dtype,
                        .page_bytes = pool->recur_page_bytes,
                        .layer_bytes = c->layer_bytes};
}

/* Decays and betas of all value heads. */
static ln_v gates_of(const ln_builder *b, ln_v x, int l) {
    return ln_g_delta_gates(b->g, "delta.gates",
                            ln_build_linear(b, "delta.a", x, LN_W_DELTA_A, LN_W_COUNT, l),
                            ln_build_linear(b, "delta.b", x, LN_W_DELTA_B, LN_W_COUNT, l),
                            ln_build_weight(b, "delta.a_log", LN_W_A_LOG, l),
                            ln_build_weight(b, "delta.dt_bias", LN_W_DT_BIAS, l), 1);
}

/* The delta rule behind its convolution. In training the sequences of a step are whole, and there is no
 * state. */
static ln_v delta_rule(ln_builder *b, ln_v x, int l) {
    const ln_recur_sizes *z = &ln_recur_of(b->s, l)->sizes;
    const ln_v in = ln_build_linear(b, "delta.qkv_in", x, LN_W_DELTA_QKV, LN_W_COUNT, l),
               w = ln_build_weight(b, "delta.qkv", LN_W_CONV, l);
    if (!b->pool) {
        const ln_p_delta p = {z->n_k_heads, z->n_v_heads, z->k_dim, z->v_dim};
        const ln_v sums = ln_g_conv(b->g, "delta.conv", in, w, -1, &(ln_p_conv){.taps = z->taps});
        return ln_g_delta(b->g, "delta.y", gates_of(b, x, l), ln_g_silu(b->g, "delta.qkv", sums), &p);
    }
    ln_p_recur p = place_of(b, l);
    p.silu = true;
    const ln_v qkv = ln_g_short_conv(b->g, "delta.qkv", &b->recurrent, in, w, -1, &p);
    p.silu = false;
    return ln_g_gated_delta(b->g, "delta.y", &b->recurrent, gates_of(b, x, l), qkv, -1, -1, &p);
}

/* The gate of the output. In training a product that shares its tensor has all rows, as the others of it. */
static ln_v gate_of(ln_builder *b, ln_v x, int l) {
    const bool all = !b->pool && b->s->parts_by_head;
    if (!all) x = ln_build_wanted_rows(b, "delta.z_rows", x, l);
    const ln_v z = ln_build_linear(b, "delta.z", x, LN_W_DELTA_Z, LN_W_COUNT, l);
    return all ? ln_build_wanted_rows(b, "delta.z_rows", z, l) : z;
}

ln_v ln_mix_delta(ln_builder *b, ln_v x, int l) {
    ln_v y = delta_rule(b, x, l);
    y = ln_build_wanted_rows(b, "delta.y_rows", y, l);
    y = ln_g_rmsnorm(b->g, "delta.norm", y, ln_build_weight(b, "delta.norm", LN_W_DELTA_NORM, l),
                     (float)ln_recur_of(b->s, l)->norm_eps, 0);
    y = ln_g_mul(b->g, "delta.gated", ln_g_silu(b->g, "delta.z_act", gate_of(b, x, l)), y);
    return ln_build_linear(b, "delta.o", y, LN_W_DELTA_OUT, LN_W_COUNT, l);
}

ln_v ln_mix_conv(ln_builder *b, ln_v x, int l) {
    const ln_recur_sizes *z = &ln_recur_of(b->s, l)->sizes;
    const int64_t width = z->channels;
    const ln_v all = ln_build_linear(b, "conv.in", x, LN_W_CONV_IN, LN_W_CONV_IN_BIAS, l);
    ln_v y = ln_g_mul(b->g, "conv.bx", ln_g_slice(b->g, "conv.b", all, 0, width),
                      ln_g_slice(b->g, "conv.x", all, 2 * width, width));
    const ln_v w = ln_build_weight(b, "conv.w", LN_W_CONV, l),
               bias = ln_build_weight(b, "conv.bias", LN_W_CONV_BIAS, l);
    if (b->pool) {
        const ln_p_recur p = place_of(b, l);
        y = ln_g_short_conv(b->g, "conv.y", &b->recurrent, y, w, bias, &p);
    } else y = ln_g_conv(b->g, "conv.y", y, w, bias, &(ln_p_conv){.taps = z->taps});
    y = ln_build_wanted_rows(b, "conv.y_rows", y, l);
    const ln_v c = ln_g_slice(b->g, "conv.c", ln_build_wanted_rows(b, "conv.c_rows", all, l), width, width);
    return ln_build_linear(b, "conv.out", ln_g_mul(b->g, "conv.gated", c, y), LN_W_CONV_OUT,
                           LN_W_CONV_OUT_BIAS, l);
}
