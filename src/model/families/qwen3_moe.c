/* qwen3_moe: Qwen 3 with experts (30B-A3B, 235B-A22B, Coder). Facts from transformers: Qwen3MoeConfig in
 * configuration_qwen3_moe.py (defaults), Qwen3MoeTopKRouter, Qwen3MoeExperts and Qwen3MoeDecoderLayer in
 * modeling_qwen3_moe.py.
 *
 * field                     absent                 note
 * vocab_size                151,936
 * hidden_size               2,048
 * intermediate_size         6,144                  of the layers without experts
 * num_hidden_layers         24
 * num_attention_heads       32
 * num_key_value_heads       4
 * head_dim                  hidden / heads
 * max_position_embeddings   32,768
 * rms_norm_eps              1e-6
 * hidden_act                silu                   of experts, too
 * attention_bias            false                  q, k, v and o alike
 * tie_word_embeddings       false                  the tensors decide
 * rope                      theta 10,000
 * use_sliding_window        false                  true: sliding_window (4,096) in all layers
 * moe_intermediate_size     768
 * num_experts               128                    num_local_experts if it is absent
 * num_experts_per_tok       8
 * norm_topk_prob            false                  weights of a row's experts add up to 1
 * decoder_sparse_step       1                      layer i has experts if it divides i + 1, and
 * mlp_only_layers           []                     does not list i
 * q_norm, k_norm                                   RMS norm of each head, before RoPE
 *
 * The router: softmax over all experts, then the largest. */
#include "../family.h"

ln_status ln_family_qwen3_moe(ln_spec *s, const ln_config *c, ln_error *err) {
    static const ln_sizes sizes = {.vocab = 151936,
                                   .hidden = 2048,
                                   .ffn = 6144,
                                   .layers = 24,
                                   .heads = 32,
                                   .kv_heads = 4,
                                   .positions = 32768,
                                   .null_head_dim = true};
    static const ln_moe_sizes moe = {.experts = 128, .top_k = 8, .F = 768, .moe_F = "moe_intermediate_size"};
    bool bias, norm, use;
    int64_t window = 0;
    LN_TRY(ln_read_base(s, c, &sizes, err));
    LN_TRY(ln_config_bool(c, "attention_bias", false, &bias, err));
    LN_TRY(ln_config_bool(c, "use_sliding_window", false, &use, err));
    if (use) LN_TRY(ln_read_window(c, "sliding_window", 4096, &window, err));
    ln_attn_spec *a = &s->attn[0];
    a->q_bias = a->k_bias = a->v_bias = a->o_bias = bias;
    a->qk_norm = LN_QK_NORM_HEADS;
    LN_TRY(ln_set_one_layer(s, window, err));
    LN_TRY(ln_read_experts(s, c, &moe, err));
    LN_TRY(ln_config_bool(c, "norm_topk_prob", false, &norm, err));
    s->ffn[0].moe.route.normed = norm;
    LN_TRY(ln_read_sparse_layers(s, c, sizes.ffn, err));
    return ln_read_rope(s, c, &(ln_rope_facts){.theta = 10000}, err);
}
