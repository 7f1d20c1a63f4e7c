/* seed_oss: Seed-OSS. Facts from transformers: SeedOssConfig in configuration_seed_oss.py (defaults),
 * SeedOssAttention and SeedOssMLP in modeling_seed_oss.py.
 *
 * field                     absent                 note
 * vocab_size                155,136
 * hidden_size               4,096
 * intermediate_size         27,648
 * num_hidden_layers         64
 * num_attention_heads       80
 * num_key_value_heads       8                      num_attention_heads if null
 * head_dim                  128                    hidden / heads if null
 * max_position_embeddings   524,288
 * rms_norm_eps              1e-6
 * hidden_act                silu
 * attention_bias            true                   q, k and v
 * attention_out_bias        false                  o
 * mlp_bias                  false                  gate, up and down alike
 * tie_word_embeddings       false                  the tensors decide
 * rope                      theta 10,000           scaling as in llama: rope_scaling.c */
#include "../family.h"

ln_status ln_family_seed_oss(ln_spec *s, const ln_config *c, ln_error *err) {
    static const ln_sizes sizes = {.vocab = 155136,
                                   .hidden = 4096,
                                   .ffn = 27648,
                                   .layers = 64,
                                   .heads = 80,
                                   .kv_heads = 8,
                                   .head_dim = 128,
                                   .positions = 524288,
                                   .null_kv_heads = true,
                                   .null_head_dim = true};
    bool bias;
    LN_TRY(ln_read_base(s, c, &sizes, err));
    ln_attn_spec *a = &s->attn[0];
    LN_TRY(ln_config_bool(c, "attention_bias", true, &bias, err));
    a->q_bias = a->k_bias = a->v_bias = bias;
    LN_TRY(ln_config_bool(c, "attention_out_bias", false, &a->o_bias, err));
    LN_TRY(ln_config_bool(c, "mlp_bias", false, &s->ffn[0].bias, err));
    LN_TRY(ln_refuse_windows(s, c, err));
    LN_TRY(ln_set_one_layer(s, 0, err));
    return ln_read_rope(s, c, &(ln_rope_facts){.theta = 10000}, err);
}
