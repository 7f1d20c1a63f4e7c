/* ernie4_5: ERNIE 4.5, dense. Facts from transformers: Ernie4_5Config in configuration_ernie4_5.py
 * (defaults), Ernie4_5Attention, Ernie4_5MLP and apply_rotary_pos_emb in modeling_ernie4_5.py.
 *
 * field                     absent                 note
 * vocab_size                103,424
 * hidden_size               1,024
 * intermediate_size         3,072
 * num_hidden_layers         18
 * num_attention_heads       16
 * num_key_value_heads       2                      num_attention_heads if null
 * head_dim                  128                    hidden / heads if null
 * max_position_embeddings   131,072
 * rms_norm_eps              1e-5
 * hidden_act                silu
 * use_bias                  false                  q, k, v, o, gate, up and down alike
 * tie_word_embeddings       true                   the tensors decide
 * rope                      theta 500,000          of neighbouring pairs, scaling as in llama */
#include "../family.h"

ln_status ln_family_ernie4_5(ln_spec *s, const ln_config *c, ln_error *err) {
    static const ln_sizes sizes = {.vocab = 103424,
                                   .hidden = 1024,
                                   .ffn = 3072,
                                   .layers = 18,
                                   .heads = 16,
                                   .kv_heads = 2,
                                   .head_dim = 128,
                                   .positions = 131072,
                                   .null_kv_heads = true,
                                   .null_head_dim = true,
                                   .tied = true,
                                   .eps = 1e-5};
    bool bias = false;
    LN_TRY(ln_read_base(s, c, &sizes, err));
    if (ln_config_has(c, "use_bias")) LN_TRY(ln_config_bool(c, "use_bias", false, &bias, err));
    ln_attn_spec *a = &s->attn[0];
    a->q_bias = a->k_bias = a->v_bias = a->o_bias = s->ffn[0].bias = bias;
    LN_TRY(ln_refuse_windows(s, c, err));
    LN_TRY(ln_set_one_layer(s, 0, err));
    return ln_read_rope(s, c, &(ln_rope_facts){.theta = 500000, .interleaved = true}, err);
}
