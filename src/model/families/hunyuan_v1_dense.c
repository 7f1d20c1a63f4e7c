/* hunyuan_v1_dense: Hunyuan 0.5B to 7B. Facts from transformers: HunYuanDenseV1Config in
 * configuration_hunyuan_v1_dense.py (defaults), HunYuanDenseV1Attention and HunYuanDenseV1RotaryEmbedding in
 * modeling_hunyuan_v1_dense.py.
 *
 * field                     absent                 note
 * vocab_size                290,943
 * hidden_size               4,096
 * intermediate_size         11,008
 * num_hidden_layers         32
 * num_attention_heads       32
 * num_key_value_heads       num_attention_heads    null too
 * head_dim                  hidden / heads         null too
 * max_position_embeddings   2,048
 * rms_norm_eps              1e-5
 * hidden_act                silu
 * attention_bias            false                  q, k, v and o alike
 * tie_word_embeddings       false                  the tensors decide
 * rope                      theta 10,000           type dynamic with alpha: a larger base for all lengths
 *
 * query_layernorm and key_layernorm: RMS norms of each head of q and k, after RoPE. use_qk_norm and use_cla
 * are not read. */
#include "../family.h"

static const ln_slot_name names[] = {
    {.slot = LN_W_Q_NORM, .name = "layers.{}.self_attn.query_layernorm.weight"},
    {.slot = LN_W_K_NORM, .name = "layers.{}.self_attn.key_layernorm.weight"}};

ln_status ln_family_hunyuan(ln_spec *s, const ln_config *c, ln_error *err) {
    static const ln_sizes sizes = {.vocab = 290943,
                                   .hidden = 4096,
                                   .ffn = 11008,
                                   .layers = 32,
                                   .heads = 32,
                                   .positions = 2048,
                                   .null_kv_heads = true,
                                   .null_head_dim = true,
                                   .eps = 1e-5};
    bool bias;
    LN_TRY(ln_read_base(s, c, &sizes, err));
    LN_TRY(ln_config_bool(c, "attention_bias", false, &bias, err));
    ln_attn_spec *a = &s->attn[0];
    a->q_bias = a->k_bias = a->v_bias = a->o_bias = bias;
    a->qk_norm = LN_QK_NORM_HEADS, a->qk_norm_last = true;
    s->names = names, s->n_names = LN_COUNT(names);
    LN_TRY(ln_refuse_windows(s, c, err));
    LN_TRY(ln_set_one_layer(s, 0, err));
    return ln_read_rope(s, c, &(ln_rope_facts){.theta = 10000, .alpha = true}, err);
}
