/* arcee: AFM 4.5B. Facts from transformers: ArceeConfig in configuration_arcee.py (defaults), ArceeMLP and
 * ArceeAttention in modeling_arcee.py.
 *
 * field                     absent                 note
 * vocab_size                32,000
 * hidden_size               2,560
 * intermediate_size         18,432
 * num_hidden_layers         32
 * num_attention_heads       32
 * num_key_value_heads       num_attention_heads    null too
 * head_dim                  hidden / heads         null too
 * max_position_embeddings   4,096
 * rms_norm_eps              1e-5
 * hidden_act                relu2
 * attention_bias            false                  q, k, v and o alike
 * mlp_bias                  false                  up and down alike
 * tie_word_embeddings       false                  the tensors decide
 * rope                      theta 10,000           scaling as in llama (rope_scaling.c)
 *
 * The MLP has no gate: down(relu2(up x)). */
#include "../family.h"

ln_status ln_family_arcee(ln_spec *s, const ln_config *c, ln_error *err) {
    static const ln_sizes sizes = {.vocab = 32000,
                                   .hidden = 2560,
                                   .ffn = 18432,
                                   .layers = 32,
                                   .heads = 32,
                                   .positions = 4096,
                                   .null_kv_heads = true,
                                   .null_head_dim = true,
                                   .eps = 1e-5};
    LN_TRY(ln_read_base(s, c, &sizes, err));
    LN_TRY(ln_read_act(s, c, "hidden_act", "relu2", err));
    LN_TRY(ln_read_biases(s, c, err));
    s->ffn[0].ungated = true;
    LN_TRY(ln_refuse_windows(s, c, err));
    LN_TRY(ln_set_one_layer(s, 0, err));
    return ln_read_rope(s, c, &(ln_rope_facts){.theta = 10000}, err);
}
