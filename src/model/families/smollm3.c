/* smollm3: SmolLM3. Facts from transformers: SmolLM3Config in configuration_smollm3.py (defaults),
 * SmolLM3Attention in modeling_smollm3.py.
 *
 * field                     absent                 note
 * vocab_size                128,256
 * hidden_size               2,048
 * intermediate_size         11,008
 * num_hidden_layers         36
 * num_attention_heads       16
 * num_key_value_heads       4                      num_attention_heads if null
 * head_dim                  hidden / heads         not a field of the class, but used if present
 * max_position_embeddings   32,768
 * rms_norm_eps              1e-6
 * hidden_act                silu
 * attention_bias            false                  q, k, v and o alike
 * mlp_bias                  false                  gate, up and down alike
 * no_rope_layers            from                   1 for a layer with RoPE, else 0. Absent: layer i
 *                           no_rope_layer_interval has none if i + 1 is a multiple of the interval (4)
 * layer_types               from                   with use_sliding_window (false) and sliding_window
 *                           no_rope_layers         (null) the layers without RoPE have the window. Layers
 *                                                  that layer_types calls sliding have it anyway
 * tie_word_embeddings       true                   the tensors decide
 * rope                      theta 2,000,000        scaling as in llama: rope_scaling.c */
#include "../family.h"

/* Which layers have RoPE. */
static ln_status read_rotated(const ln_spec *s, const ln_config *c, bool *rotated, ln_error *err) {
    const json_t *list = json_object_get(c->text, "no_rope_layers");
    char wanted[64];
    int64_t interval;
    LN_TRY(ln_config_int(c, "no_rope_layer_interval", 4, 1, INT32_MAX, &interval, err));
    for (int l = 0; l < s->L; l++) rotated[l] = (l + 1) % interval != 0;
    if (!list || json_is_null(list)) return LN_OK;
    bool ok = json_is_array(list) && json_array_size(list) >= (size_t)s->L;
    for (int l = 0; l < s->L && ok; l++) {
        const json_t *x = json_array_get(list, (size_t)l);
        ok = json_is_boolean(x) || (json_is_integer(x) && (uint64_t)json_integer_value(x) <= 1);
        rotated[l] = json_is_true(x) || (json_is_integer(x) && json_integer_value(x) == 1);
    }
    (void)snprintf(wanted, sizeof wanted, "a list of at least %d numbers 0 or 1", s->L);
    return ok ? LN_OK : ln_config_fail(c, list, "no_rope_layers", wanted, err);
}

/* The rows of attention: with and without RoPE, with and without a window. */
static ln_status read_layers(ln_spec *s, const ln_config *c, ln_error *err) {
    bool use, found, *sliding = ln_arena_alloc(&s->arena, 2 * (size_t)s->L * sizeof *sliding);
    int64_t window;
    if (!sliding) return LN_OOM(err, "the layers");
    bool *rotated = sliding + s->L;
    LN_TRY(read_rotated(s, c, rotated, err));
    LN_TRY(ln_config_bool(c, "use_sliding_window", false, &use, err));
    LN_TRY(ln_read_window(c, "sliding_window", 0, &window, err));
    LN_TRY(ln_read_layer_types(s, c, sliding, &found, err));
    for (int l = 0; l < s->L && !found; l++) sliding[l] = use && window > 0 && !rotated[l];
    return ln_set_rotated_layers(s, sliding, window, rotated, err);
}

ln_status ln_family_smollm3(ln_spec *s, const ln_config *c, ln_error *err) {
    static const ln_sizes sizes = {.vocab = 128256,
                                   .hidden = 2048,
                                   .ffn = 11008,
                                   .layers = 36,
                                   .heads = 16,
                                   .kv_heads = 4,
                                   .positions = 32768,
                                   .null_kv_heads = true,
                                   .tied = true};
    LN_TRY(ln_read_base(s, c, &sizes, err));
    LN_TRY(ln_read_biases(s, c, err));
    LN_TRY(read_layers(s, c, err));
    return ln_read_rope(s, c, &(ln_rope_facts){.theta = 2000000}, err);
}
