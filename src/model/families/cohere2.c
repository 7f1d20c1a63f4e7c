/* cohere2: Command R7B, Command A. Facts from transformers: Cohere2Config in configuration_cohere2.py
 * (defaults), Cohere2Attention, Cohere2LayerNorm, Cohere2DecoderLayer and Cohere2ForCausalLM in
 * modeling_cohere2.py.
 *
 * field                     absent                 note
 * vocab_size                256,000
 * hidden_size               8,192
 * intermediate_size         22,528
 * num_hidden_layers         40
 * num_attention_heads       64
 * num_key_value_heads       num_attention_heads    null too
 * head_dim                                         hidden / heads, whatever the file says
 * max_position_embeddings   8,192
 * layer_norm_eps            1e-5                   of LayerNorms without bias
 * hidden_act                silu
 * attention_bias            false                  q, k, v and o alike
 * logit_scale               0.0625                 factor of the logits
 * sliding_window            4,096
 * layer_types               from                   layer i is full if i + 1 is a multiple of
 *                           sliding_window_pattern sliding_window_pattern (4)
 * rope                      theta 10,000           of neighbouring pairs, of sliding layers alone
 * tie_word_embeddings       true                   the tensors decide
 *
 * Attention and MLP have the same normed input, and both outputs are added to the residual stream. */
#include "../family.h"

static ln_status read_layers(ln_spec *s, const ln_config *c, ln_error *err) {
    bool found, *sliding = ln_arena_alloc(&s->arena, (size_t)s->L * sizeof *sliding);
    int64_t window, pattern = 4;
    if (!sliding) return LN_OOM(err, "the layers");
    LN_TRY(ln_read_window(c, "sliding_window", 4096, &window, err));
    LN_TRY(ln_read_layer_types(s, c, sliding, &found, err));
    if (!found) LN_TRY(ln_config_int(c, "sliding_window_pattern", 4, 1, INT32_MAX, &pattern, err));
    for (int l = 0; l < s->L && !found; l++) sliding[l] = (l + 1) % pattern != 0;
    return ln_set_rotated_layers(s, sliding, window, sliding, err);
}

ln_status ln_family_cohere2(ln_spec *s, const ln_config *c, ln_error *err) {
    static const ln_sizes sizes = {.vocab = 256000,
                                   .hidden = 8192,
                                   .ffn = 22528,
                                   .layers = 40,
                                   .heads = 64,
                                   .positions = 8192,
                                   .null_kv_heads = true,
                                   .null_head_dim = true,
                                   .tied = true,
                                   .eps = 1e-5};
    double scale;
    bool bias;
    LN_TRY(ln_read_base(s, c, &sizes, err));
    LN_TRY(ln_config_real(c, "layer_norm_eps", 1e-5, 0, 1, &s->eps, err));
    LN_TRY(ln_config_real(c, "logit_scale", 0.0625, -1e6, 1e6, &scale, err));
    LN_TRY(ln_config_bool(c, "attention_bias", false, &bias, err));
    ln_attn_spec *a = &s->attn[0];
    a->q_bias = a->k_bias = a->v_bias = a->o_bias = bias;
    if (a->E != s->D / a->H || s->D % a->H)
        return ln_config_fail(c, json_object_get(c->text, "head_dim"), "head_dim",
                              "hidden_size / num_attention_heads", err);
    s->logit_scale = (float)scale;
    s->centred_norms = s->parallel = true;
    LN_TRY(read_layers(s, c, err));
    return ln_read_rope(s, c, &(ln_rope_facts){.theta = 10000, .interleaved = true}, err);
}
