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
 * use_bidirectional_attention false                tokens attend to later ones (EmbeddingGemma), and windows
 *                                                  have sliding_window // 2 + 1 positions each way
 * tie_word_embeddings       true                   of the top-level object; the tensors decide
 *
 * Norms: stored as w - 1 (Gemma3RMSNorm.forward); four a layer, and one each for the heads of q and k.
 * Embeddings: scaled by sqrt(hidden_size), which weights.c rounds to the dtype of the table
 * (Gemma3TextScaledWordEmbedding.forward).
 * attn_logit_softcapping, final_logit_softcapping (null in every Gemma 3): refused by config_keys.def when
 * they are set. */
#include "../family.h"

#include <math.h>

static const ln_slot_name names[] = {
    {.slot = LN_W_FFN_NORM, .name = "layers.{}.pre_feedforward_layernorm.weight"}};

ln_status ln_family_gemma3(ln_spec *s, const ln_config *c, ln_error *err) {
    static const ln_sizes sizes = {.vocab = 262208,
                                   .hidden = 2304,
                                   .ffn = 9216,
                                   .layers = 26,
                                   .heads = 8,
                                   .kv_heads = 4,
                                   .head_dim = 256,
                                   .positions = 131072};
    int64_t scalar, window, pattern = 6;
    double full, sliding;
    bool bias;
    LN_TRY(ln_read_sizes(s, c, &sizes, err));
    LN_TRY(ln_read_act(s, c, "hidden_activation", "gelu_pytorch_tanh", err));
    LN_TRY(ln_config_int(c, "query_pre_attn_scalar", 256, 1, INT32_MAX, &scalar, err));
    ln_attn_spec *a = &s->attn[0];
    a->scale = (float)(1.0 / sqrt((double)scalar));
    LN_TRY(ln_config_bool(c, "attention_bias", false, &bias, err));
    a->q_bias = a->k_bias = a->v_bias = a->o_bias = bias;
    a->qk_norm = LN_QK_NORM_HEADS;
    s->pre_norms = s->post_norms = true;
    s->names = names, s->n_names = LN_COUNT(names);
    s->norm_offset = 1;
    s->embed_scale = (float)sqrt((double)s->D);
    s->embed_scale_rounded = true;
    ln_config top = *c;
    top.text = c->root;
    if (json_is_null(json_object_get(c->root, "tie_word_embeddings")))
        s->tied = true; /* Gemma3Config allows null */
    else LN_TRY(ln_config_bool(&top, "tie_word_embeddings", true, &s->tied, err));
    if (!json_is_null(json_object_get(c->text, "use_bidirectional_attention")))
        LN_TRY(ln_config_bool(c, "use_bidirectional_attention", false, &a->both_ways, err));
    LN_TRY(ln_read_window(c, "sliding_window", 4096, &window, err));
    if (a->both_ways && window > 0) window = window / 2 + 1;
    if (!ln_config_has(c, "layer_types"))
        LN_TRY(ln_config_int(c, "sliding_window_pattern", 6, 1, INT32_MAX, &pattern, err));
    LN_TRY(ln_read_pattern_layers(s, c, pattern, window, err));
    LN_TRY(ln_config_real(c, "rope_theta", 1000000, 1e-6, 1e30, &full, err));
    LN_TRY(ln_config_real(c, "rope_local_base_freq", 10000, 1e-6, 1e30, &sliding, err));
    return ln_read_kind_ropes(s, c, full, sliding, err);
}
