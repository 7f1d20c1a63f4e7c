/* granite: Granite 3 and 4.2, dense. Facts from transformers: GraniteConfig in configuration_granite.py
 * (defaults), GraniteAttention, GraniteDecoderLayer, GraniteModel and GraniteForCausalLM in
 * modeling_granite.py.
 *
 * field                     absent                 note
 * vocab_size                32,000
 * hidden_size               4,096
 * intermediate_size         11,008
 * num_hidden_layers         32
 * num_attention_heads       32
 * num_key_value_heads       num_attention_heads    null too
 * head_dim                  hidden / heads         not a field of the class, but used if present
 * max_position_embeddings   2,048
 * rms_norm_eps              1e-6
 * hidden_act                silu
 * attention_bias            false                  q, k, v and o alike
 * mlp_bias                  false                  gate, up and down alike
 * embedding_multiplier      1                      factor of the embedding, not rounded to its dtype
 * attention_multiplier      1                      scale of attention, in the place of head_dim's power -1/2
 * residual_multiplier       1                      factor of the outputs of attention and MLP
 * logits_scaling            1                      the logits are divided by it
 * tie_word_embeddings       false                  the tensors decide
 * rope                      theta 10,000           scaling as in llama: rope_scaling.c */
#include "../family.h"

ln_status ln_family_granite(ln_spec *s, const ln_config *c, ln_error *err) {
    static const ln_sizes sizes = {.vocab = 32000,
                                   .hidden = 4096,
                                   .ffn = 11008,
                                   .layers = 32,
                                   .heads = 32,
                                   .positions = 2048,
                                   .null_kv_heads = true};
    double embedding, attention, residual, logits;
    LN_TRY(ln_read_base(s, c, &sizes, err));
    LN_TRY(ln_read_biases(s, c, err));
    LN_TRY(ln_config_real(c, "embedding_multiplier", 1, -1e6, 1e6, &embedding, err));
    LN_TRY(ln_config_real(c, "attention_multiplier", 1, -1e6, 1e6, &attention, err));
    LN_TRY(ln_config_real(c, "residual_multiplier", 1, -1e6, 1e6, &residual, err));
    LN_TRY(ln_config_real(c, "logits_scaling", 1, 1e-6, 1e6, &logits, err));
    s->embed_scale = (float)embedding;
    s->attn[0].scale = (float)attention;
    s->residual_scale = (float)residual;
    s->logit_scale = (float)(1 / logits);
    LN_TRY(ln_refuse_windows(s, c, err));
    LN_TRY(ln_set_one_layer(s, 0, err));
    return ln_read_rope(s, c, &(ln_rope_facts){.theta = 10000}, err);
}
