/* OLMo 2 and OLMo 3. Facts from transformers: Olmo2Config and Olmo3Config in
 * configuration_olmo2.py and configuration_olmo3.py (defaults), Olmo2Attention and Olmo2DecoderLayer in
 * modeling_olmo2.py, Olmo3Model.forward in modeling_olmo3.py.
 *
 * field                     absent                 note
 * vocab_size                50,304
 * hidden_size               4,096
 * intermediate_size         11,008
 * num_hidden_layers         32
 * num_attention_heads       32
 * num_key_value_heads       num_attention_heads    null too
 * head_dim                  hidden / heads         not a field of the class, but used if present
 * max_position_embeddings   2,048
 * rms_norm_eps              1e-5
 * hidden_act                silu
 * attention_bias            false                  q, k, v and o alike
 * tie_word_embeddings       false                  the tensors decide
 * rope (olmo2)              theta 10,000           scaling as in llama: rope_scaling.c
 * rope (olmo3)              theta 500,000          of each kind of layer; an older rope_scaling applies
 *                                                  to the full layers alone
 * sliding_window (olmo3)    4,096
 * layer_types (olmo3)       full if i + 1 is a     else a sliding window
 *                           multiple of 4
 *
 * Norms: of the outputs of attention and MLP, none of their inputs; of q and k over all heads together,
 * before RoPE (Olmo2Attention.forward). */
#include "../family.h"

static ln_status read_common(ln_spec *s, const ln_config *c, ln_error *err) {
    static const ln_sizes sizes = {.vocab = 50304,
                                   .hidden = 4096,
                                   .ffn = 11008,
                                   .layers = 32,
                                   .heads = 32,
                                   .positions = 2048,
                                   .null_kv_heads = true,
                                   .eps = 1e-5};
    bool bias;
    LN_TRY(ln_read_base(s, c, &sizes, err));
    LN_TRY(ln_config_bool(c, "attention_bias", false, &bias, err));
    ln_attn_spec *a = &s->attn[0];
    a->q_bias = a->k_bias = a->v_bias = a->o_bias = bias;
    a->qk_norm = LN_QK_NORM_WHOLE;
    s->pre_norms = false, s->post_norms = true;
    return LN_OK;
}

ln_status ln_family_olmo2(ln_spec *s, const ln_config *c, ln_error *err) {
    LN_TRY(read_common(s, c, err));
    LN_TRY(ln_refuse_windows(s, c, err));
    LN_TRY(ln_set_one_layer(s, 0, err));
    return ln_read_rope(s, c, &(ln_rope_facts){.theta = 10000}, err);
}

ln_status ln_family_olmo3(ln_spec *s, const ln_config *c, ln_error *err) {
    int64_t window;
    double theta;
    LN_TRY(read_common(s, c, err));
    LN_TRY(ln_read_window(c, "sliding_window", 4096, &window, err));
    LN_TRY(ln_read_pattern_layers(s, c, 4, window, err));
    LN_TRY(ln_config_real(c, "rope_theta", 500000, 1e-6, 1e30, &theta, err));
    return ln_read_kind_ropes(s, c, theta, theta, err);
}
