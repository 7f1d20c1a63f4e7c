/* lfm2, lfm2_moe: LFM2 and LFM2.5, dense (350M to 2.6B) and with experts (8B-A1B). Facts from transformers:
 * Lfm2Config in configuration_lfm2.py, Lfm2MoeConfig in configuration_lfm2_moe.py (defaults), Lfm2MLP,
 * Lfm2Attention and Lfm2ShortConv in modeling_lfm2.py, Lfm2MoeTopKRouter in modeling_lfm2_moe.py.
 *
 * field                     absent, with experts   note
 * vocab_size                65,536
 * hidden_size               2,560    2,048
 * intermediate_size         12,288   7,168         block_ff_dim precedes it; adjusted, see below
 * num_hidden_layers         32
 * num_attention_heads       32
 * num_key_value_heads       8
 * head_dim                  hidden / heads
 * max_position_embeddings   128,000
 * norm_eps                  1e-5
 * tie_word_embeddings       true                   tie_embedding precedes it; the tensors decide
 * rope                      theta 1,000,000
 * layer_types               by full_attn_idxs;     conv or full_attention
 *                           with experts rejected
 * full_attn_idxs            all                    of the dense class, layers with attention
 * conv_L_cache              3                      taps of the convolution
 * conv_bias                 false                  of in_proj, conv and out_proj alike
 * block_auto_adjust_ff_dim  true                   of the dense class: F becomes 2/3 of it, times
 * block_ffn_dim_multiplier  1.0                    this (null: without the next step), then the next
 * block_multiple_of         256                    multiple of this
 * num_dense_layers          2                      so many first layers have a dense MLP
 * moe_intermediate_size     1,792
 * num_experts               32
 * num_experts_per_tok       4
 * use_expert_bias           true                   chosen by sigmoid + expert_bias
 * norm_topk_prob            true                   weights are divided by their sum + 1e-6
 * routed_scaling_factor     1                      and multiplied by this
 *
 * The activation is silu, whatever hidden_act says. Norms of q and k by head, before RoPE. */
#include "../family.h"

enum { MAX_TAPS = 32, MAX_FFN = 1 << 22 };

static const ln_slot_name names[] = {
    {.slot = LN_W_NORM, .name = "embedding_norm.weight"},
    {.slot = LN_W_ATTN_NORM, .name = "layers.{}.operator_norm.weight"},
    {.slot = LN_W_FFN_NORM, .name = "layers.{}.ffn_norm.weight"},
    {.slot = LN_W_O, .name = "layers.{}.self_attn.out_proj.weight"},
    {.slot = LN_W_Q_NORM, .name = "layers.{}.self_attn.q_layernorm.weight"},
    {.slot = LN_W_K_NORM, .name = "layers.{}.self_attn.k_layernorm.weight"},
    {.slot = LN_W_CONV, .name = "layers.{}.conv.conv.weight"},
    {.slot = LN_W_GATE, .name = "layers.{}.feed_forward.w1.weight"},
    {.slot = LN_W_UP, .name = "layers.{}.feed_forward.w3.weight"},
    {.slot = LN_W_DOWN, .name = "layers.{}.feed_forward.w2.weight"},
    {.slot = LN_W_ROUTER, .name = "layers.{}.feed_forward.gate.weight"},
    {.slot = LN_W_CHOICE_BIAS, .name = "layers.{}.feed_forward.expert_bias"}};

/* The layers with a convolution, by layer_types or by full_attn_idxs. */
static ln_status read_layers(ln_spec *s, const ln_config *c, ln_error *err) {
    static const char field[] = "full_attn_idxs";
    const json_t *list = json_object_get(c->text, field);
    const bool by_types =
        ln_config_has(c, "layer_types") && !json_is_null(json_object_get(c->text, "layer_types"));
    if (by_types || !list || json_is_null(list)) return ln_read_recurrent_layers(s, c, "conv", 1, err);
    if (!json_is_array(list)) return ln_config_fail(c, list, field, "a list of layers", err);
    bool *is = ln_arena_alloc(&s->arena, (size_t)s->L * sizeof *is);
    if (!is) return LN_OOM(err, "the layers");
    for (int l = 0; l < s->L; l++) is[l] = true;
    for (size_t i = 0; i < json_array_size(list); i++) {
        int64_t l;
        LN_TRY(ln_config_int_at(c, json_array_get(list, i), field, 0, INT32_MAX, &l, err));
        if (l < s->L) is[l] = false;
    }
    return ln_set_recurrent_layers(s, c, is, err);
}

static ln_status read_conv(ln_spec *s, const ln_config *c, ln_error *err) {
    ln_recur_spec row = {0};
    int64_t taps;
    LN_TRY(ln_config_int(c, "conv_L_cache", 3, 1, MAX_TAPS, &taps, err));
    LN_TRY(ln_config_bool(c, "conv_bias", false, &row.bias, err));
    row.sizes = (ln_recur_sizes){.taps = (int32_t)taps, .channels = (int32_t)s->D};
    return ln_add_recurrent(s, &row, err);
}

/* What both classes have. */
static ln_status read_hybrid(ln_spec *s, const ln_config *c, const ln_sizes *sizes, ln_error *err) {
    LN_TRY(ln_read_base(s, c, sizes, err));
    LN_TRY(ln_config_real(c, "norm_eps", 1e-5, 0, 1, &s->eps, err));
    LN_TRY(ln_config_bool(c, "tie_embedding", s->tied, &s->tied, err));
    s->ffn[0].act = LN_ACT_SILU;
    s->attn[0].qk_norm = LN_QK_NORM_HEADS;
    s->names = names, s->n_names = LN_COUNT(names);
    LN_TRY(read_layers(s, c, err));
    LN_TRY(read_conv(s, c, err));
    return ln_read_rope(s, c, &(ln_rope_facts){.theta = 1000000}, err);
}

/* The width of the MLP, as Lfm2MLP computes it. */
static ln_status read_width(ln_spec *s, const ln_config *c, ln_error *err) {
    bool adjusts;
    double by = 1;
    int64_t F = s->ffn[0].F, multiple;
    LN_TRY(ln_config_int(c, "block_ff_dim", F, 1, MAX_FFN, &F, err));
    LN_TRY(ln_config_bool(c, "block_auto_adjust_ff_dim", true, &adjusts, err));
    LN_TRY(ln_config_int(c, "block_multiple_of", 256, 1, MAX_FFN, &multiple, err));
    const bool rounds = !json_is_null(json_object_get(c->text, "block_ffn_dim_multiplier"));
    if (rounds) LN_TRY(ln_config_real(c, "block_ffn_dim_multiplier", 1, 0, 1000, &by, err));
    if (adjusts) {
        F = (int64_t)((double)(2 * F) / 3);
        if (rounds) F = ((int64_t)(by * (double)F) + multiple - 1) / multiple * multiple;
    }
    if (F < 1 || F > MAX_FFN)
        return ln_config_fail(c, json_object_get(c->text, "block_ffn_dim_multiplier"),
                              "block_ffn_dim_multiplier", "a factor that leaves a width from 1 to 4,194,304",
                              err);
    s->ffn[0].F = F;
    return LN_OK;
}

ln_status ln_family_lfm2(ln_spec *s, const ln_config *c, ln_error *err) {
    static const ln_sizes sizes = {.vocab = 65536,
                                   .hidden = 2560,
                                   .ffn = 12288,
                                   .layers = 32,
                                   .heads = 32,
                                   .kv_heads = 8,
                                   .positions = 128000,
                                   .tied = true,
                                   .eps = 1e-5};
    LN_TRY(read_hybrid(s, c, &sizes, err));
    return read_width(s, c, err);
}

static ln_status read_router(ln_spec *s, const ln_config *c, ln_error *err) {
    ln_moe_spec *m = &s->ffn[0].moe;
    double factor;
    LN_TRY(ln_config_bool(c, "use_expert_bias", true, &m->choice_bias, err));
    LN_TRY(ln_config_bool(c, "norm_topk_prob", true, &m->route.normed, err));
    LN_TRY(ln_config_real(c, "routed_scaling_factor", 1, -1e6, 1e6, &factor, err));
    m->route.kind = LN_ROUTE_SIGMOID;
    m->route.eps = 1e-6f;
    m->route.factor = (float)factor;
    return LN_OK;
}

ln_status ln_family_lfm2_moe(ln_spec *s, const ln_config *c, ln_error *err) {
    static const ln_sizes sizes = {.vocab = 65536,
                                   .hidden = 2048,
                                   .ffn = 7168,
                                   .layers = 32,
                                   .heads = 32,
                                   .kv_heads = 8,
                                   .positions = 128000,
                                   .tied = true,
                                   .eps = 1e-5};
    static const ln_moe_sizes moe = {.experts = 32, .top_k = 4, .F = 1792, .moe_F = "moe_intermediate_size"};
    int64_t dense;
    if (!json_is_array(json_object_get(c->text, "layer_types")))
        return ln_config_fail(c, json_object_get(c->text, "layer_types"), "layer_types",
                              "a list of conv and full_attention, one a layer", err);
    LN_TRY(read_hybrid(s, c, &sizes, err));
    const int64_t F = s->ffn[0].F;
    LN_TRY(ln_config_int(c, "num_dense_layers", 2, 0, INT32_MAX, &dense, err));
    LN_TRY(ln_read_experts(s, c, &moe, err));
    LN_TRY(read_router(s, c, err));
    for (int l = 0; l < LN_MIN(dense, (int64_t)s->L); l++) s->layers[l].ffn = 1;
    ln_dense_layers(s, F);
    return LN_OK;
}
