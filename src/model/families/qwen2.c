/* qwen2: Qwen 2 and 2.5, and the text model of Qwen2.5-VL. Facts from transformers: Qwen2Config in
 * configuration_qwen2.py (defaults), Qwen2Attention in modeling_qwen2.py.
 *
 * field                     absent                 note
 * vocab_size                151,936
 * hidden_size               4,096
 * intermediate_size         22,016
 * num_hidden_layers         32
 * num_attention_heads       32
 * num_key_value_heads       32                     num_attention_heads if null
 * head_dim                  hidden / heads         not a field of the class, but used if present
 * max_position_embeddings   32,768
 * rms_norm_eps              1e-6
 * hidden_act                silu
 * biases                                           q, k and v always, o never, whatever attention_bias says
 * tie_word_embeddings       false                  the tensors decide
 * rope                      theta 10,000           scaling as in llama: rope_scaling.c
 * use_sliding_window        false                  false: sliding_window (4,096) is ignored
 * max_window_layers         28                     with a window: layers from this index on are sliding,
 *                                                  unless layer_types is given */
#include "../family.h"

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
    LN_TRY(ln_read_base(s, c, &sizes, err));
    s->attn[0].q_bias = s->attn[0].k_bias = s->attn[0].v_bias = true;
    LN_TRY(ln_read_qwen_layers(s, c, err));
    return ln_read_rope(s, c, &(ln_rope_facts){.theta = 10000}, err);
}
