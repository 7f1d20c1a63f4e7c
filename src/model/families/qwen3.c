/* qwen3: Qwen 3, dense. qwen3_vl: the text model of Qwen3-VL, which has other defaults. Facts from
 * transformers: Qwen3Config in configuration_qwen3.py and Qwen3VLTextConfig in configuration_qwen3_vl.py
 * (defaults), Qwen3Attention in modeling_qwen3.py.
 *
 * field                     absent                 note
 * vocab_size                151,936
 * hidden_size               4,096
 * intermediate_size         22,016
 * num_hidden_layers         32
 * num_attention_heads       32
 * num_key_value_heads       32                     num_attention_heads if null
 * head_dim                  128                    independent of hidden / heads; never null
 * max_position_embeddings   32,768                 128,000 in qwen3_vl
 * rms_norm_eps              1e-6
 * hidden_act                silu
 * attention_bias            false                  q, k, v and o alike
 * tie_word_embeddings       false                  the tensors decide
 * rope                      theta 10,000           500,000 in qwen3_vl, scaling as in llama
 * use_sliding_window        false                  false: sliding_window (4,096) is ignored
 * max_window_layers         28                     with a window: layers from this index on are sliding,
 *                                                  unless layer_types is given
 * q_norm, k_norm                                   RMS norm of each head, before RoPE */
#include "../family.h"

static ln_status read_with(ln_spec *s, const ln_config *c, int64_t positions, double theta, ln_error *err) {
    const ln_sizes sizes = {.vocab = 151936,
                            .hidden = 4096,
                            .ffn = 22016,
                            .layers = 32,
                            .heads = 32,
                            .kv_heads = 32,
                            .head_dim = 128,
                            .positions = positions,
                            .null_kv_heads = true};
    bool bias;
    LN_TRY(ln_read_base(s, c, &sizes, err));
    LN_TRY(ln_config_bool(c, "attention_bias", false, &bias, err));
    ln_attn_spec *a = &s->attn[0];
    a->q_bias = a->k_bias = a->v_bias = a->o_bias = bias;
    a->qk_norm = LN_QK_NORM_HEADS;
    LN_TRY(ln_read_late_windows(s, c, 28, err));
    return ln_read_rope(s, c, &(ln_rope_facts){.theta = theta}, err);
}

ln_status ln_family_qwen3(ln_spec *s, const ln_config *c, ln_error *err) {
    return read_with(s, c, 32768, 10000, err);
}

ln_status ln_family_qwen3_vl(ln_spec *s, const ln_config *c, ln_error *err) {
    return read_with(s, c, 128000, 500000, err);
}
