/* llama: Llama 2, 3, 3.1, 3.2, 3.3 and models with their architecture. Facts from transformers: LlamaConfig
 * in configuration_llama.py (defaults), LlamaAttention and LlamaMLP in modeling_llama.py.
 *
 * field                     absent                 note
 * vocab_size                32,000
 * hidden_size               4,096
 * intermediate_size         11,008
 * num_hidden_layers         32
 * num_attention_heads       32
 * num_key_value_heads       num_attention_heads    null too
 * head_dim                  hidden / heads         null too
 * max_position_embeddings   2,048
 * rms_norm_eps              1e-6
 * hidden_act                silu
 * attention_bias            false                  q, k, v and o alike
 * mlp_bias                  false                  gate, up and down alike
 * tie_word_embeddings       false                  the tensors decide
 * rope                      theta 10,000           default, linear, dynamic, yarn, llama3: rope_scaling.c
 *
 * layer_types, sliding_window: the class has no such fields and its layers attend to all positions. But the
 * cache of transformers' generate applies a sliding_window that is present, so that generation and a plain
 * forward pass disagree. Such a model is refused, unless all layer_types are full or use_sliding_window is
 * false. */
#include "../family.h"

ln_status ln_family_llama(ln_spec *s, const ln_config *c, ln_error *err) {
    static const ln_sizes sizes = {.vocab = 32000,
                                   .hidden = 4096,
                                   .ffn = 11008,
                                   .layers = 32,
                                   .heads = 32,
                                   .positions = 2048,
                                   .null_kv_heads = true,
                                   .null_head_dim = true};
    LN_TRY(ln_read_base(s, c, &sizes, err));
    LN_TRY(ln_read_biases(s, c, err));
    LN_TRY(ln_refuse_windows(s, c, err));
    LN_TRY(ln_set_one_layer(s, 0, err));
    return ln_read_rope(s, c, &(ln_rope_facts){.theta = 10000}, err);
}
