/* gemma2 is Gemma 2. Facts from transformers: Gemma2Config in configuration_gemma2.py (defaults),
 * Gemma2Attention, Gemma2RMSNorm, Gemma2DecoderLayer, Gemma2Model and Gemma2ForCausalLM in
 * modeling_gemma2.py.
 *
 * field                     absent                 note
 * vocab_size                256,000
 * hidden_size               2,304
 * intermediate_size         9,216
 * num_hidden_layers         26
 * num_attention_heads       8
 * num_key_value_heads       4                      never null
 * head_dim                  256                    never null
 * max_position_embeddings   8,192
 * rms_norm_eps              1e-6
 * hidden_activation         gelu_pytorch_tanh      hidden_act is not read
 * query_pre_attn_scalar     256                    its power -1/2 is the scale of attention, not head_dim's
 * attn_logit_softcapping    50                     cap on scaled scores, null means none
 * final_logit_softcapping   30                     cap on logits, null means none
 * attention_bias            false                  q, k, v and o alike
 * sliding_window            4,096                  null means no window
 * layer_types               alternating            layer 0 has a window, layer 1 none
 * rope                      theta 10,000           of all layers, scaled as in llama (rope_scaling.c)
 * tie_word_embeddings       true                   the tensors decide
 *
 * Norms are stored as w - 1 (Gemma2RMSNorm.forward). There are four in a layer, and none of q and k.
 * Embeddings are scaled by sqrt(hidden_size), which weights.c rounds to the dtype of the table
 * (Gemma2TextScaledWordEmbedding.forward). */
#include "../family.h"

#include <math.h>

static const ln_slot_name names[] = {
    {.slot = LN_W_FFN_NORM, .name = "layers.{}.pre_feedforward_layernorm.weight"}};

/* A cap, which is absent (the class's default), null (*out = 0) or a number. */
static ln_status read_cap(const ln_config *c, const char *field, double dflt, float *out, ln_error *err) {
    double cap = 0;
    if (!json_is_null(json_object_get(c->text, field)))
        LN_TRY(ln_config_real(c, field, dflt, 1e-6, 1e9, &cap, err));
    *out = (float)cap;
    return LN_OK;
}

ln_status ln_family_gemma2(ln_spec *s, const ln_config *c, ln_error *err) {
    static const ln_sizes sizes = {.vocab = 256000,
                                   .hidden = 2304,
                                   .ffn = 9216,
                                   .layers = 26,
                                   .heads = 8,
                                   .kv_heads = 4,
                                   .head_dim = 256,
                                   .positions = 8192};
    int64_t scalar, window;
    bool bias;
    LN_TRY(ln_read_sizes(s, c, &sizes, err));
    LN_TRY(ln_read_act(s, c, "hidden_activation", "gelu_pytorch_tanh", err));
    LN_TRY(ln_config_int(c, "query_pre_attn_scalar", 256, 1, INT32_MAX, &scalar, err));
    ln_attn_spec *a = &s->attn[0];
    a->scale = (float)(1.0 / sqrt((double)scalar));
    LN_TRY(read_cap(c, "attn_logit_softcapping", 50, &a->softcap, err));
    LN_TRY(read_cap(c, "final_logit_softcapping", 30, &s->logit_softcap, err));
    LN_TRY(ln_config_bool(c, "attention_bias", false, &bias, err));
    a->q_bias = a->k_bias = a->v_bias = a->o_bias = bias;
    s->pre_norms = s->post_norms = true;
    s->names = names, s->n_names = LN_COUNT(names);
    s->norm_offset = 1;
    s->embed_scale = (float)sqrt((double)s->D);
    s->embed_scale_rounded = true;
    LN_TRY(ln_config_bool(c, "tie_word_embeddings", true, &s->tied, err));
    LN_TRY(ln_read_window(c, "sliding_window", 4096, &window, err));
    LN_TRY(ln_read_pattern_layers(s, c, 2, window, err));
    return ln_read_rope(s, c, &(ln_rope_facts){.theta = 10000}, err);
}
