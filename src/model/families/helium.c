/* helium: Helium 1 2B. Facts from transformers: HeliumConfig in configuration_helium.py (defaults),
 * HeliumAttention, HeliumMLP and apply_rotary_pos_emb in modeling_helium.py.
 *
 * field                     absent                 note
 * vocab_size                48,000
 * hidden_size               2,560
 * intermediate_size         7,040
 * num_hidden_layers         24
 * num_attention_heads       20
 * num_key_value_heads       20
 * head_dim                  128                    o_proj is [hidden, hidden], as heads x head_dim
 * max_position_embeddings   4,096
 * rms_norm_eps              1e-8
 * hidden_act                silu
 * attention_bias            false                  q, k and v; o never
 * mlp_bias                  false                  gate, up and down alike
 * tie_word_embeddings       false                  the tensors decide
 * rope                      theta 100,000          of neighbouring pairs, scaling as in llama */
#include "../family.h"

ln_status ln_family_helium(ln_spec *s, const ln_config *c, ln_error *err) {
    static const ln_sizes sizes = {.vocab = 48000,
                                   .hidden = 2560,
                                   .ffn = 7040,
                                   .layers = 24,
                                   .heads = 20,
                                   .kv_heads = 20,
                                   .head_dim = 128,
                                   .positions = 4096,
                                   .eps = 1e-8};
    LN_TRY(ln_read_base(s, c, &sizes, err));
    LN_TRY(ln_read_biases(s, c, err));
    s->attn[0].o_bias = false;
    LN_TRY(ln_refuse_windows(s, c, err));
    LN_TRY(ln_set_one_layer(s, 0, err));
    return ln_read_rope(s, c, &(ln_rope_facts){.theta = 100000, .interleaved = true}, err);
}
