/* Qwen 3.5, 3.6 and 3.8: the text models, dense and with experts (35B-A3B), and Qwen3-Next (80B-A3B, Coder),
 * which precedes them. Facts from transformers:
 * Qwen3_5TextConfig in configuration_qwen3_5.py and Qwen3_5MoeTextConfig in configuration_qwen3_5_moe.py
 * (defaults), Qwen3_5Attention, Qwen3_5GatedDeltaNet and Qwen3_5RMSNorm in modeling_qwen3_5.py,
 * Qwen3_5MoeSparseMoeBlock in modeling_qwen3_5_moe.py. The vision tower and the multi-token prediction
 * layers (`mtp.*`) are skipped.
 *
 * field                     absent, with experts   note
 * vocab_size                248,320
 * hidden_size               4,096    2,048
 * intermediate_size         12,288   -             with experts no layer has a dense MLP
 * num_hidden_layers         32       40
 * num_attention_heads       16
 * num_key_value_heads       4        2
 * head_dim                  256
 * max_position_embeddings   32,768
 * rms_norm_eps              1e-6
 * hidden_act                silu                   of the MLP and of the convolution; others are rejected
 * attention_bias            false                  q, k, v and o alike
 * tie_word_embeddings       false                  the tensors decide
 * rope                      theta 10,000           mrope is plain RoPE for text
 * partial_rotary_factor     0.25                   the part of a head that is rotated
 * layer_types               full if i + 1 is a     else linear_attention
 *                           multiple of
 *                           full_attention_interval (4)
 * linear_conv_kernel_dim    4
 * linear_key_head_dim       128
 * linear_value_head_dim     128
 * linear_num_key_heads      16
 * linear_num_value_heads    32
 * num_experts               -        256
 * num_experts_per_tok       -        8
 * moe_intermediate_size     -        512
 * shared_expert_intermediate_size    512           its output is multiplied by a sigmoid (shared_expert_gate)
 *
 * qwen3_next (Qwen3NextConfig in configuration_qwen3_next.py, fix_query_key_value_ordering in
 * modeling_qwen3_next.py) is qwen3_5_moe with other values (vocab_size 151,936, 48 layers,
 * intermediate_size 5,632, num_experts 512, num_experts_per_tok 10, norm_topk_prob true), with layers without
 * experts by decoder_sparse_step (1) and mlp_only_layers ([]). Two tensors hold the four products of a linear
 * layer by key heads. in_proj_qkvz has its query, its key, then values and gates of its value heads.
 * in_proj_ba has betas and what decays come from.
 *
 * Full layers: q_proj has, of each head, the query and then the gate of its output; norms of q and k by
 * head. All norms are stored as w - 1 except that of a linear layer's output; mlx-lm's files have 1
 * added. The router: softmax over all experts, then the largest, whose weights add up to 1. */
#include "../family.h"

enum { MAX_TAPS = 32, MAX_RECUR_HEADS = 4096, MAX_RECUR_DIM = 1024 };

static ln_status read_delta(ln_spec *s, const ln_config *c, ln_error *err) {
    int64_t taps, k_dim, v_dim, k_heads, v_heads;
    LN_TRY(ln_config_int(c, "linear_conv_kernel_dim", 4, 1, MAX_TAPS, &taps, err));
    LN_TRY(ln_config_int(c, "linear_key_head_dim", 128, 1, MAX_RECUR_DIM, &k_dim, err));
    LN_TRY(ln_config_int(c, "linear_value_head_dim", 128, 1, MAX_RECUR_DIM, &v_dim, err));
    LN_TRY(ln_config_int(c, "linear_num_key_heads", 16, 1, MAX_RECUR_HEADS, &k_heads, err));
    LN_TRY(ln_config_int(c, "linear_num_value_heads", 32, 1, MAX_RECUR_HEADS, &v_heads, err));
    if (v_heads % k_heads) {
        char shown[LN_PATH_TEXT];
        return ln_fail(err, LN_EINVALID,
                       "%s: linear_num_value_heads is %lld, expected a multiple of linear_num_key_heads, "
                       "%lld",
                       ln_path_text(shown, c->path), (long long)v_heads, (long long)k_heads);
    }
    if (s->ffn[0].act != LN_ACT_SILU) { /* the convolution's too in the reference */
        char shown[LN_PATH_TEXT], text[80];
        return ln_fail(err, LN_EUNSUPPORTED,
                       "%s: hidden_act: expected silu in a model with layers of type linear_attention, found "
                       "%s; linnet computes their convolution with silu only",
                       ln_path_text(shown, c->path),
                       ln_json_text(json_object_get(c->text, "hidden_act"), text));
    }
    const ln_recur_sizes sizes = {.taps = (int32_t)taps,
                                  .channels = (int32_t)(2 * k_heads * k_dim + v_heads * v_dim),
                                  .n_k_heads = (int32_t)k_heads,
                                  .n_v_heads = (int32_t)v_heads,
                                  .k_dim = (int32_t)k_dim,
                                  .v_dim = (int32_t)v_dim};
    return ln_add_recurrent(s, &(ln_recur_spec){.sizes = sizes, .norm_eps = s->eps}, err);
}

/* Everything but the feed-forward layers. */
static ln_status read_hybrid(ln_spec *s, const ln_config *c, const ln_sizes *sizes, ln_error *err) {
    bool bias;
    int64_t interval;
    LN_TRY(ln_read_base(s, c, sizes, err));
    LN_TRY(ln_config_bool(c, "attention_bias", false, &bias, err));
    LN_TRY(ln_config_int(c, "full_attention_interval", 4, 1, LN_MAX_LAYERS, &interval, err));
    ln_attn_spec *a = &s->attn[0];
    a->q_bias = a->k_bias = a->v_bias = a->o_bias = bias;
    a->qk_norm = LN_QK_NORM_HEADS;
    a->out_gate = a->gate_in_q = true;
    s->norm_offset = 1;
    s->conv_tells_norms = true;
    LN_TRY(ln_read_recurrent_layers(s, c, "linear_attention", interval, err));
    LN_TRY(read_delta(s, c, err));
    return ln_read_rope(s, c, &(ln_rope_facts){.theta = 10000, .partial = 0.25}, err);
}

ln_status ln_family_qwen3_5(ln_spec *s, const ln_config *c, ln_error *err) {
    static const ln_sizes sizes = {.vocab = 248320,
                                   .hidden = 4096,
                                   .ffn = 12288,
                                   .layers = 32,
                                   .heads = 16,
                                   .kv_heads = 4,
                                   .head_dim = 256,
                                   .positions = 32768};
    return read_hybrid(s, c, &sizes, err);
}

/* Experts, and an MLP for all rows that a sigmoid weighs. */
static ln_status read_shared_experts(ln_spec *s, const ln_config *c, const ln_moe_sizes *moe, ln_error *err) {
    LN_TRY(ln_read_experts(s, c, moe, err));
    ln_moe_spec *m = &s->ffn[0].moe;
    m->shared_gate = true;
    return ln_config_int(c, "shared_expert_intermediate_size", 512, 1, 1 << 22, &m->shared_F, err);
}

ln_status ln_family_qwen3_5_moe(ln_spec *s, const ln_config *c, ln_error *err) {
    static const ln_sizes sizes = {.vocab = 248320,
                                   .hidden = 2048,
                                   .ffn = 512,
                                   .layers = 40,
                                   .heads = 16,
                                   .kv_heads = 2,
                                   .head_dim = 256,
                                   .positions = 32768};
    static const ln_moe_sizes moe = {.experts = 256, .top_k = 8, .F = 512, .moe_F = "moe_intermediate_size"};
    LN_TRY(read_hybrid(s, c, &sizes, err));
    LN_TRY(read_shared_experts(s, c, &moe, err));
    s->ffn[0].moe.route.normed = true;
    return LN_OK;
}

ln_status ln_family_qwen3_next(ln_spec *s, const ln_config *c, ln_error *err) {
#define LINEAR "layers.{}.linear_attn."
    static const ln_slot_name names[] = {
        {LN_W_DELTA_QKV, LINEAR "in_proj_qkvz.weight", 2, {LN_W_DELTA_QKV, LN_W_DELTA_Z}},
        {LN_W_DELTA_Z, LINEAR "in_proj_qkvz.weight", 2, {LN_W_DELTA_QKV, LN_W_DELTA_Z}},
        {LN_W_DELTA_B, LINEAR "in_proj_ba.weight", 2, {LN_W_DELTA_B, LN_W_DELTA_A}},
        {LN_W_DELTA_A, LINEAR "in_proj_ba.weight", 2, {LN_W_DELTA_B, LN_W_DELTA_A}}};
#undef LINEAR
    static const ln_sizes sizes = {.vocab = 151936,
                                   .hidden = 2048,
                                   .ffn = 5632,
                                   .layers = 48,
                                   .heads = 16,
                                   .kv_heads = 2,
                                   .head_dim = 256,
                                   .positions = 32768};
    static const ln_moe_sizes moe = {.experts = 512, .top_k = 10, .F = 512, .moe_F = "moe_intermediate_size"};
    LN_TRY(read_hybrid(s, c, &sizes, err));
    LN_TRY(read_shared_experts(s, c, &moe, err));
    s->names = names;
    s->n_names = LN_COUNT(names);
    s->parts_by_head = true;
    LN_TRY(ln_config_bool(c, "norm_topk_prob", true, &s->ffn[0].moe.route.normed, err));
    return ln_read_sparse_layers(s, c, sizes.ffn, err);
}
