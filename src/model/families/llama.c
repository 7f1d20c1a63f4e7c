/* llama: Llama 2, 3, 3.1, 3.2, 3.3 and models with their architecture. Facts from transformers: LlamaConfig
 * in configuration_llama.py (defaults), LlamaAttention and LlamaMLP in modeling_llama.py.
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
 * rope                      theta 10,000           default, linear, dynamic, yarn, llama3: rope_scaling.c
 *
 * layer_types, sliding_window: the class has no such fields and its layers attend to all positions. But the
 * cache of transformers' generate applies a sliding_window that is present, so that generation and a plain
 * forward pass disagree. Such a model is refused, unless all layer_types are full or use_sliding_window is
 * false. */
#include "../family.h"

static ln_status refuse(const ln_config *c, const char *field, ln_error *err) {
    char shown[LN_PATH_TEXT], text[80];
    return ln_fail(err, LN_EUNSUPPORTED,
                   "%s: %s: a window of attention is not supported in llama models, found %s; linnet would "
                   "compute another model than "
                   "this one, use software that knows this key",
                   ln_path_text(shown, c->path), field, ln_json_text(json_object_get(c->text, field), text));
}

static ln_status refuse_windows(const ln_spec *s, const ln_config *c, ln_error *err) {
    int64_t window = 0;
    bool found, *sliding = ln_alloc((size_t)s->L * sizeof *sliding);
    if (!sliding) return LN_OOM(err, "the layers");
    ln_status st = ln_read_layer_types(s, c, sliding, &found, err);
    bool any = false;
    for (int l = 0; l < s->L && st == LN_OK && found; l++) any = any || sliding[l];
    ln_free(sliding);
    LN_TRY(st);
    if (any) return refuse(c, "layer_types", err);
    if (found) return LN_OK;
    if (!ln_config_has(c, "sliding_window") || json_is_false(json_object_get(c->text, "use_sliding_window")))
        return LN_OK;
    LN_TRY(ln_config_int(c, "sliding_window", 0, 1, INT32_MAX, &window, err));
    return window < s->n_ctx ? refuse(c, "sliding_window", err) : LN_OK;
}

ln_status ln_family_llama(ln_spec *s, const ln_config *c, ln_error *err) {
    static const ln_sizes sizes = {.vocab = 32000,
                                   .hidden = 4096,
                                   .ffn = 11008,
                                   .layers = 32,
                                   .heads = 32,
                                   .positions = 2048,
                                   .null_kv_heads = true,
                                   .null_head_dim = true};
    bool bias;
    LN_TRY(ln_read_sizes(s, c, &sizes, err));
    LN_TRY(ln_read_act(s, c, "hidden_act", "silu", err));
    LN_TRY(ln_config_bool(c, "attention_bias", false, &bias, err));
    ln_attn_spec *a = &s->attn[0];
    a->q_bias = a->k_bias = a->v_bias = a->o_bias = bias;
    LN_TRY(ln_config_bool(c, "mlp_bias", false, &s->ffn[0].bias, err));
    LN_TRY(ln_config_bool(c, "tie_word_embeddings", false, &s->tied, err));
    LN_TRY(refuse_windows(s, c, err));
    LN_TRY(ln_set_layers(s, NULL, 0, err));
    return ln_read_rope(s, c, err);
}
