/* olmoe: OLMoE 1B-7B. Facts from transformers: OlmoeConfig in configuration_olmoe.py (defaults),
 * OlmoeAttention, OlmoeTopKRouter and OlmoeExperts in modeling_olmoe.py.
 *
 * field                     absent                 note
 * vocab_size                50,304
 * hidden_size               2,048
 * intermediate_size         2,048                  of an expert
 * num_hidden_layers         16
 * num_attention_heads       16
 * num_key_value_heads       num_attention_heads
 * max_position_embeddings   4,096
 * rms_norm_eps              1e-5
 * hidden_act                silu
 * attention_bias            false                  q, k, v and o alike
 * clip_qkv                  null                   bound of the elements of q, k and v, before RoPE
 * tie_word_embeddings       false                  the tensors decide
 * rope                      theta 10,000
 * num_experts               64                     num_local_experts in some files
 * num_experts_per_tok       8
 * norm_topk_prob            false                  weights of a row's experts add up to 1
 * q_norm, k_norm                                   RMS norm over all heads, before RoPE
 *
 * The router: softmax over all experts, then the largest. All layers have experts. */
#include "../family.h"

ln_status ln_family_olmoe(ln_spec *s, const ln_config *c, ln_error *err) {
    static const ln_sizes sizes = {.vocab = 50304,
                                   .hidden = 2048,
                                   .ffn = 2048,
                                   .layers = 16,
                                   .heads = 16,
                                   .positions = 4096,
                                   .eps = 1e-5,
                                   .null_kv_heads = true};
    static const ln_moe_sizes moe = {.experts = 64, .top_k = 8, .moe_F = "intermediate_size", .F = 2048};
    bool bias, norm;
    double clip = 0;
    LN_TRY(ln_read_base(s, c, &sizes, err));
    LN_TRY(ln_config_bool(c, "attention_bias", false, &bias, err));
    LN_TRY(ln_config_bool(c, "norm_topk_prob", false, &norm, err));
    if (ln_config_has(c, "clip_qkv")) LN_TRY(ln_config_real(c, "clip_qkv", 0, 1e-9, 1e9, &clip, err));
    ln_attn_spec *a = &s->attn[0];
    a->q_bias = a->k_bias = a->v_bias = a->o_bias = bias;
    a->qk_norm = LN_QK_NORM_WHOLE;
    a->clip = (float)clip;
    LN_TRY(ln_set_one_layer(s, 0, err));
    LN_TRY(ln_read_experts(s, c, &moe, err));
    s->ffn[0].moe.route.normed = norm;
    return ln_read_rope(s, c, &(ln_rope_facts){.theta = 10000}, err);
}
