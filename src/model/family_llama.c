/* llama: Llama 2, 3, 3.1, 3.2, 3.3 and what is trained in their form. Facts from transformers: LlamaConfig in
 * configuration_llama.py (defaults), LlamaAttention and LlamaMLP in modeling_llama.py.
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
 * rope                      theta 10,000           default, linear, llama3
 * layer_types, sliding_window are no fields of the class: every layer sees everything. */
#include "family.h"

ln_status ln_family_llama(ln_spec *s, const ln_config *c, ln_error *err) {
    static const ln_sizes sizes = {.vocab = 32000, .hidden = 4096, .ffn = 11008, .layers = 32, .heads = 32, .positions = 2048, .null_kv_heads = true,
                                   .null_head_dim = true};
    bool bias;
    LN_TRY(ln_read_sizes(s, c, &sizes, err));
    LN_TRY(ln_read_act(s, c, "hidden_act", "silu", err));
    LN_TRY(ln_config_bool(c, "attention_bias", false, &bias, err));
    s->q_bias = s->k_bias = s->v_bias = s->o_bias = bias;
    LN_TRY(ln_config_bool(c, "mlp_bias", false, &s->mlp_bias, err));
    LN_TRY(ln_config_bool(c, "tie_word_embeddings", false, &s->tied, err));
    LN_TRY(ln_set_layers(s, NULL, 0, err));
    return ln_read_rope(s, c, err);
}
