/* internlm3: InternLM3 8B. Facts from transformers: InternLM3Config in configuration_internlm3.py (defaults,
 * attribute_map, validate_architecture); modeling_auto.py maps the family to LlamaForCausalLM.
 *
 * field                     absent                 note
 * vocab_size                128,512
 * hidden_size               4,096
 * intermediate_size         10,240
 * num_hidden_layers         48
 * num_attention_heads       32
 * num_key_value_heads       2                      num_attention_heads if null
 * head_dim                  128                    hidden / heads if null
 * max_position_embeddings   32,768
 * rms_norm_eps              1e-5
 * hidden_act                silu
 * qkv_bias                  false                  or attention_bias: q, k, v and o alike
 * bias                      false                  or mlp_bias: gate, up and down alike
 * tie_word_embeddings       false                  the tensors decide
 * rope                      theta 10,000           scaling as in llama (rope_scaling.c)
 *
 * If a file has both names of a key, the class reads qkv_bias and bias. The class rejects a file whose two
 * biases differ, and so does linnet. */
#include "../family.h"

/* Reads a key that has two names; the first one precedes. */
static ln_status read_bias(const ln_config *c, const char *name, const char *other, bool *out,
                           ln_error *err) {
    return ln_config_bool(c, json_object_get(c->text, name) ? name : other, false, out, err);
}

ln_status ln_family_internlm3(ln_spec *s, const ln_config *c, ln_error *err) {
    static const ln_sizes sizes = {.vocab = 128512,
                                   .hidden = 4096,
                                   .ffn = 10240,
                                   .layers = 48,
                                   .heads = 32,
                                   .kv_heads = 2,
                                   .head_dim = 128,
                                   .positions = 32768,
                                   .null_kv_heads = true,
                                   .null_head_dim = true,
                                   .eps = 1e-5};
    bool attention, mlp;
    LN_TRY(ln_read_base(s, c, &sizes, err));
    LN_TRY(read_bias(c, "qkv_bias", "attention_bias", &attention, err));
    LN_TRY(read_bias(c, "bias", "mlp_bias", &mlp, err));
    if (attention != mlp) {
        char shown[LN_PATH_TEXT];
        return ln_fail(err, LN_EUNSUPPORTED,
                       "%s: qkv_bias (attention_bias) is %s and bias (mlp_bias) is %s, expected equal "
                       "values: "
                       "internlm3 has biases in all of its matrices or in none",
                       ln_path_text(shown, c->path), attention ? "true" : "false", mlp ? "true" : "false");
    }
    ln_attn_spec *a = &s->attn[0];
    a->q_bias = a->k_bias = a->v_bias = a->o_bias = s->ffn[0].bias = mlp;
    LN_TRY(ln_refuse_windows(s, c, err));
    LN_TRY(ln_set_one_layer(s, 0, err));
    return ln_read_rope(s, c, &(ln_rope_facts){.theta = 10000}, err);
}
