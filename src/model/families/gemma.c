/* gemma: Gemma 1 and 1.1, CodeGemma. Facts from transformers: GemmaConfig in configuration_gemma.py
 * (defaults, __post_init__), GemmaAttention, GemmaRMSNorm and GemmaTextScaledWordEmbedding in
 * modeling_gemma.py.
 *
 * field                     absent                 note
 * vocab_size                256,000
 * hidden_size               3,072
 * intermediate_size         24,576
 * num_hidden_layers         28
 * num_attention_heads       16
 * num_key_value_heads       16                     never null
 * head_dim                  256                    never null
 * max_position_embeddings   8,192
 * rms_norm_eps              1e-6
 * hidden_act                gelu_pytorch_tanh      gelu means the same, hidden_activation is not read
 * attention_bias            false                  q, k, v and o alike
 * tie_word_embeddings       true                   the tensors decide
 * rope                      theta 10,000           scaling as in llama (rope_scaling.c)
 *
 * Norms are stored as w - 1 (GemmaRMSNorm.forward). Embeddings are scaled by sqrt(hidden_size), which
 * weights.c rounds to the dtype of the table (GemmaTextScaledWordEmbedding.forward). */
#include "../family.h"

#include <math.h>
#include <string.h>

/* Reads hidden_act, of which the first files have the value gelu. */
static ln_status read_act(ln_spec *s, const ln_config *c, ln_error *err) {
    const char *name = json_string_value(json_object_get(c->text, "hidden_act"));
    if (!name || strcmp(name, "gelu") != 0) return ln_read_act(s, c, "hidden_act", "gelu_pytorch_tanh", err);
    s->ffn[0].act = LN_ACT_GELU_TANH;
    return LN_OK;
}

ln_status ln_family_gemma(ln_spec *s, const ln_config *c, ln_error *err) {
    static const ln_sizes sizes = {.vocab = 256000,
                                   .hidden = 3072,
                                   .ffn = 24576,
                                   .layers = 28,
                                   .heads = 16,
                                   .kv_heads = 16,
                                   .head_dim = 256,
                                   .positions = 8192};
    bool bias;
    LN_TRY(ln_read_sizes(s, c, &sizes, err));
    LN_TRY(read_act(s, c, err));
    LN_TRY(ln_config_bool(c, "attention_bias", false, &bias, err));
    ln_attn_spec *a = &s->attn[0];
    a->q_bias = a->k_bias = a->v_bias = a->o_bias = bias;
    s->pre_norms = true;
    s->norm_offset = 1;
    s->embed_scale = (float)sqrt((double)s->D);
    s->embed_scale_rounded = true;
    LN_TRY(ln_config_bool(c, "tie_word_embeddings", true, &s->tied, err));
    LN_TRY(ln_refuse_windows(s, c, err));
    LN_TRY(ln_set_one_layer(s, 0, err));
    return ln_read_rope(s, c, &(ln_rope_facts){.theta = 10000}, err);
}
