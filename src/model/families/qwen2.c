/* qwen2: Qwen 2 and 2.5. qwen2_5_vl: the text model of Qwen2.5-VL, which has other defaults. Facts from
 * transformers: Qwen2Config in configuration_qwen2.py and Qwen2_5_VLTextConfig in configuration_qwen2_5_vl.py
 * (defaults), Qwen2Attention in modeling_qwen2.py.
 *
 * field                     absent                 note
 * vocab_size                151,936                152,064 in qwen2_5_vl
 * hidden_size               4,096                  8,192 in qwen2_5_vl
 * intermediate_size         22,016                 29,568 in qwen2_5_vl
 * num_hidden_layers         32                     80 in qwen2_5_vl
 * num_attention_heads       32                     64 in qwen2_5_vl
 * num_key_value_heads       32                     8 in qwen2_5_vl, num_attention_heads if null
 * head_dim                  hidden / heads         not a field of the class, but used if present
 * max_position_embeddings   32,768
 * rms_norm_eps              1e-6                   1e-5 in qwen2_5_vl
 * hidden_act                silu
 * biases                                           q, k and v always, o never, whatever attention_bias says
 * tie_word_embeddings       false                  the tensors decide
 * rope                      theta 10,000           1,000,000 in qwen2_5_vl, scaling as in llama
 * use_sliding_window        false                  false: sliding_window (4,096) is ignored
 * max_window_layers         28                     80 in qwen2_5_vl; with a window: layers from this index on
 *                                                  are sliding, unless layer_types is given */
#include "../family.h"

static ln_status read_with(ln_spec *s, const ln_config *c, const ln_sizes *sizes, double theta,
                           int64_t first_window, ln_error *err) {
    LN_TRY(ln_read_base(s, c, sizes, err));
    s->attn[0].q_bias = s->attn[0].k_bias = s->attn[0].v_bias = true;
    LN_TRY(ln_read_late_windows(s, c, first_window, err));
    return ln_read_rope(s, c, &(ln_rope_facts){.theta = theta}, err);
}

ln_status ln_family_qwen2(ln_spec *s, const ln_config *c, ln_error *err) {
    static const ln_sizes sizes = {.vocab = 151936,
                                   .hidden = 4096,
                                   .ffn = 22016,
                                   .layers = 32,
                                   .heads = 32,
                                   .kv_heads = 32,
                                   .positions = 32768,
                                   .null_kv_heads = true,
                                   .null_head_dim = true};
    return read_with(s, c, &sizes, 10000, 28, err);
}

ln_status ln_family_qwen2_5_vl(ln_spec *s, const ln_config *c, ln_error *err) {
    static const ln_sizes sizes = {.vocab = 152064,
                                   .hidden = 8192,
                                   .ffn = 29568,
                                   .layers = 80,
                                   .heads = 64,
                                   .kv_heads = 8,
                                   .positions = 32768,
                                   .null_kv_heads = true,
                                   .null_head_dim = true,
                                   .eps = 1e-5};
    return read_with(s, c, &sizes, 1e6, 80, err);
}
