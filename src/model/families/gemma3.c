/* gemma3 and gemma3_text: Gemma 3, the text model; multimodal checkpoints have its configuration in
 * text_config. Facts from transformers: Gemma3TextConfig in configuration_gemma3.py (defaults),
 * Gemma3Attention, Gemma3RMSNorm, Gemma3TextScaledWordEmbedding and Gemma3DecoderLayer in modeling_gemma3.py.
 *
 * field                     absent                 note
 * vocab_size                262,208                Gemma3-4B omits it, the heads and head_dim
 * hidden_size               2,304
 * intermediate_size         9,216
 * num_hidden_layers         26
 * num_attention_heads       8
 * num_key_value_heads       4                      never null
 * head_dim                  256                    never null
 * max_position_embeddings   131,072
 * rms_norm_eps              1e-6
 * hidden_activation         gelu_pytorch_tanh      hidden_act is not read
 * query_pre_attn_scalar     256                    scale of attention: its power -1/2, not head_dim's
 * attention_bias            false                  q, k, v and o alike
 * sliding_window            4,096                  null: no window
 * layer_types               from                   layer i has full attention if i + 1 is a multiple of
 *                           sliding_window_pattern sliding_window_pattern (6), else a sliding window
 * rope of full layers       theta 1,000,000        rope_theta, scaled by the older rope_scaling
 * rope of sliding layers    theta 10,000           rope_local_base_freq, never scaled by rope_scaling;
 *                                                  in rope_parameters each layer kind has its own type
 * tie_word_embeddings       true                   of the top-level object; the tensors decide
 *
 * Norms: stored as w - 1 (Gemma3RMSNorm.forward); four a layer, and one each for the heads of q and k.
 * Embeddings: scaled by sqrt(hidden_size), which weights.c rounds to the dtype of the table
 * (Gemma3TextScaledWordEmbedding.forward).
 * attn_logit_softcapping, final_logit_softcapping (null in every Gemma 3) and use_bidirectional_attention:
 * refused by config_keys.def when they are set. */
#include "../family.h"

#include <math.h>
#include <string.h>

static ln_status read_layers(ln_spec *s, const ln_config *c, bool **out, ln_error *err) {
    int64_t window = 0, pattern = 6;
    bool found, *sliding = ln_arena_alloc(&s->arena, (size_t)s->L * sizeof *sliding);
    if (!sliding) return LN_OOM(err, "the layers");
    if (!json_is_null(json_object_get(c->text, "sliding_window")))
        LN_TRY(ln_config_int(c, "sliding_window", 4096, 1, INT32_MAX, &window, err));
    LN_TRY(ln_read_layer_types(s, c, sliding, &found, err));
    if (!found) LN_TRY(ln_config_int(c, "sliding_window_pattern", 6, 1, INT32_MAX, &pattern, err));
    for (int l = 0; l < s->L && !found; l++) sliding[l] = (l + 1) % pattern != 0;
    *out = sliding;
    return ln_set_layers(s, sliding, window, err);
}

/* As Gemma3TextConfig.convert_rope_params_to_dict: one object per layer kind, with rope_scaling merged into
 * that of the full layers. Members of rope_parameters other than these two objects are not read. In the older
 * format a `type` does not replace the `rope_type` "default" with which the class starts. *out is a new
 * reference. */
static ln_status kind_params(const ln_config *c, const json_t *params, const json_t *scaling,
                             const char *kind, double theta, json_t **out, ln_error *err) {
    json_t *p = NULL;
    if (params) LN_TRY(ln_rope_object(c, params, kind, &p, err));
    if (!p) p = json_pack("{s:s}", "rope_type", "default");
    bool ok = p && (!scaling || json_object_update(p, (json_t *)(uintptr_t)scaling) == 0);
    if (ok && !json_object_get(p, "rope_theta"))
        ok = json_object_set_new(p, "rope_theta", json_real(theta)) == 0;
    if (!ok) {
        json_decref(p);
        return LN_OOM(err, "rope parameters");
    }
    *out = p;
    return LN_OK;
}

static ln_status add_kind(ln_spec *s, const ln_config *c, const json_t *params, const json_t *scaling,
                          const char *kind, double theta, ln_error *err) {
    json_t *p = NULL;
    ln_rope_rule rule;
    LN_TRY(kind_params(c, params, scaling, kind, theta, &p, err));
    ln_status st = ln_rope_read(s, c, p, params, kind, &rule, err);
    json_decref(p);
    return st == LN_OK ? ln_rope_add(s, &rule, s->attn[0].E, err) : st;
}

/* Warns of parameters directly in rope_parameters: besides the objects of the two layer kinds the reference
 * reads only `truncate` there. */
static void warn_unread(const ln_config *c, const json_t *params) {
    static const char *const read[] = {"full_attention", "sliding_attention", "truncate"};
    const char *field;
    json_t *value;
    char shown[LN_PATH_TEXT], text[80];
    json_object_foreach((json_t *)(uintptr_t)params, field, value) {
        bool known = json_is_null(value);
        for (size_t i = 0; i < LN_COUNT(read); i++) known |= strcmp(field, read[i]) == 0;
        if (known) continue;
        ln_log(LN_LOG_WARN,
               "%s: rope_parameters.%s is not read: this model has its parameters in full_attention and "
               "sliding_attention",
               ln_path_text(shown, c->path), ln_excerpt(text, field, strlen(field)));
    }
}

static ln_status read_ropes(ln_spec *s, const ln_config *c, const bool *sliding, ln_error *err) {
    double global, local;
    json_t *params = NULL, *scaling = NULL;
    bool some_full = false, some_sliding = false;
    for (int l = 0; l < s->L; l++) *(sliding[l] ? &some_sliding : &some_full) = true;
    LN_TRY(ln_config_real(c, "rope_theta", 1000000, 1e-6, 1e30, &global, err));
    LN_TRY(ln_config_real(c, "rope_local_base_freq", 10000, 1e-6, 1e30, &local, err));
    LN_TRY(ln_rope_object(c, c->text, "rope_parameters", &params, err));
    warn_unread(c, params);
    ln_status st = ln_rope_object(c, c->text, "rope_scaling", &scaling, err);
    if (st == LN_OK && some_full) st = add_kind(s, c, params, scaling, "full_attention", global, err);
    if (st == LN_OK && some_sliding) st = add_kind(s, c, params, NULL, "sliding_attention", local, err);
    json_decref(params);
    json_decref(scaling);
    for (int l = 0; l < s->L; l++) s->attn[s->layers[l].attn].rope = some_full && sliding[l];
    ln_rope_settle_context(s);
    return st;
}

ln_status ln_family_gemma3(ln_spec *s, const ln_config *c, ln_error *err) {
    static const ln_sizes sizes = {.vocab = 262208,
                                   .hidden = 2304,
                                   .ffn = 9216,
                                   .layers = 26,
                                   .heads = 8,
                                   .kv_heads = 4,
                                   .head_dim = 256,
                                   .positions = 131072};
    int64_t scalar;
    bool bias, *sliding = NULL;
    const char *type = ln_config_text(c, "model_type", "gemma3_text");
    if (c->text != c->root && strcmp(type, "gemma3_text") != 0) {
        char shown[LN_PATH_TEXT], text[80];
        return ln_fail(err, LN_EUNSUPPORTED,
                       "%s: text_config.model_type %s is not supported; expected gemma3_text",
                       ln_path_text(shown, c->path), ln_excerpt(text, type, strlen(type)));
    }
    LN_TRY(ln_read_sizes(s, c, &sizes, err));
    LN_TRY(ln_read_act(s, c, "hidden_activation", "gelu_pytorch_tanh", err));
    LN_TRY(ln_config_int(c, "query_pre_attn_scalar", 256, 1, INT32_MAX, &scalar, err));
    ln_attn_spec *a = &s->attn[0];
    a->scale = (float)(1.0 / sqrt((double)scalar));
    LN_TRY(ln_config_bool(c, "attention_bias", false, &bias, err));
    a->q_bias = a->k_bias = a->v_bias = a->o_bias = bias;
    a->qk_norm = s->post_norms = true;
    s->norm_offset = 1;
    s->embed_scale = (float)sqrt((double)s->D);
    ln_config top = *c;
    top.text = c->root;
    if (json_is_null(json_object_get(c->root, "tie_word_embeddings")))
        s->tied = true; /* Gemma3Config allows null */
    else LN_TRY(ln_config_bool(&top, "tie_word_embeddings", true, &s->tied, err));
    LN_TRY(read_layers(s, c, &sliding, err));
    return read_ropes(s, c, sliding, err);
}
