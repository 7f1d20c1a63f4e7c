/* muse_glimmer: the text model of Muse Glimmer. Facts from transformers: MuseGlimmerTextConfig in
 * configuration_muse_glimmer.py (defaults), MuseGlimmerTextAttention, MuseGlimmerTextDecoderLayer and
 * MuseGlimmerTextModel in modeling_muse_glimmer.py.
 *
 * field                     absent                 note
 * vocab_size                202,048
 * hidden_size               6,656
 * intermediate_size         19,968
 * num_hidden_layers         52
 * num_attention_heads       32
 * num_key_value_heads       2
 * head_dim                  128
 * max_position_embeddings   131,072
 * rms_norm_eps              1e-5
 * post_norm_eps             1e-8                   of the norms of the outputs of attention and MLP
 * hidden_activation         silu
 * attention_bias            false                  q, k, v and o alike
 * qk_scale_factor           3.87                   factor of queries after their norm
 * sliding_window            2,048
 * layer_types               full if L - 1 - i is   else a sliding window
 *                           a multiple of 4
 * layer_rope_theta          0 for full layers      0 for a layer without RoPE; the others have rope_theta
 * rope                      theta 10,000           default alone
 * output_multiplier         26^-1/2                factor of the logits, before the cap
 * final_logit_softcapping   20                     cap of logits
 * tie_word_embeddings       false                  the tensors decide
 *
 * Norms are stored as w - 1 except the last one; those of the embedding and of q and k have no weight. The
 * output of attention is multiplied by sigmoid(self_attn.gate_proj x). */
#include "../family.h"

#include <math.h>

static const ln_slot_name names[] = {
    {.slot = LN_W_FFN_NORM, .name = "layers.{}.pre_feedforward_layernorm.weight"}};

/* Which layers have RoPE: those whose base is not 0. Another base than rope_theta has no effect. */
static ln_status read_rotated(const ln_spec *s, const ln_config *c, bool *rotated, ln_error *err) {
    const json_t *list = json_object_get(c->text, "layer_rope_theta");
    char wanted[64];
    for (int l = 0; l < s->L; l++) rotated[l] = (s->L - 1 - l) % 4 != 0;
    if (!list || json_is_null(list)) return LN_OK;
    bool ok = json_is_array(list) && json_array_size(list) == (size_t)s->L;
    for (int l = 0; l < s->L && ok; l++) {
        const json_t *x = json_array_get(list, (size_t)l);
        ok = json_is_number(x) && json_number_value(x) >= 0;
        rotated[l] = json_number_value(x) != 0;
    }
    (void)snprintf(wanted, sizeof wanted, "a list of %d numbers of at least 0", s->L);
    return ok ? LN_OK : ln_config_fail(c, list, "layer_rope_theta", wanted, err);
}

static ln_status read_layers(ln_spec *s, const ln_config *c, ln_error *err) {
    bool found, *sliding = ln_arena_alloc(&s->arena, 2 * (size_t)s->L * sizeof *sliding);
    int64_t window;
    if (!sliding) return LN_OOM(err, "the layers");
    bool *rotated = sliding + s->L;
    LN_TRY(ln_read_window(c, "sliding_window", 2048, &window, err));
    LN_TRY(ln_read_layer_types(s, c, sliding, &found, err));
    for (int l = 0; l < s->L && !found; l++) sliding[l] = (s->L - 1 - l) % 4 != 0;
    LN_TRY(read_rotated(s, c, rotated, err));
    LN_TRY(ln_set_rotated_layers(s, sliding, window, rotated, err));
    return ln_read_rope(s, c, &(ln_rope_facts){.theta = 10000}, err);
}

ln_status ln_family_muse_glimmer(ln_spec *s, const ln_config *c, ln_error *err) {
    static const ln_sizes sizes = {.vocab = 202048,
                                   .hidden = 6656,
                                   .ffn = 19968,
                                   .layers = 52,
                                   .heads = 32,
                                   .kv_heads = 2,
                                   .head_dim = 128,
                                   .positions = 131072,
                                   .eps = 1e-5};
    double factor, output, cap;
    bool bias;
    LN_TRY(ln_read_sizes(s, c, &sizes, err));
    LN_TRY(ln_read_act(s, c, "hidden_activation", "silu", err));
    LN_TRY(ln_config_real(c, "post_norm_eps", 1e-8, 0, 1, &s->post_eps, err));
    LN_TRY(ln_config_real(c, "qk_scale_factor", 3.87, -1e6, 1e6, &factor, err));
    LN_TRY(ln_config_real(c, "output_multiplier", 0.19611613513818404, -1e6, 1e6, &output, err));
    LN_TRY(ln_config_real(c, "final_logit_softcapping", 20, 1e-6, 1e30, &cap, err));
    LN_TRY(ln_config_bool(c, "attention_bias", false, &bias, err));
    LN_TRY(ln_config_bool(c, "tie_word_embeddings", false, &s->tied, err));
    ln_attn_spec *a = &s->attn[0];
    a->q_bias = a->k_bias = a->v_bias = a->o_bias = bias;
    a->scale = (float)(factor / sqrt((double)a->E));
    a->qk_norm = LN_QK_NORM_PLAIN;
    a->out_gate = true;
    s->logit_scale = (float)output, s->logit_softcap = (float)cap;
    s->norm_offset = 1, s->last_norm_plain = true;
    s->embed_norm = s->pre_norms = s->post_norms = true;
    s->names = names, s->n_names = LN_COUNT(names);
    return read_layers(s, c, err);
}
