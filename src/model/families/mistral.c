/* mistral is Mistral 7B, Nemo, Small 3. ministral is Ministral 8B of 2024. ministral3, at the end, is
 * Ministral 3. mistral3 is Mistral Small 3.1 and 3.2, and Ministral 3 as it is shipped: their text model is
 * in text_config. Facts from transformers: MistralConfig in configuration_mistral.py (defaults),
 * MistralAttention and MistralModel.forward in modeling_mistral.py, Mistral3Config in
 * configuration_mistral3.py.
 *
 * field                     absent                 note
 * vocab_size                32,000
 * hidden_size               4,096
 * intermediate_size         14,336
 * num_hidden_layers         32
 * num_attention_heads       32
 * num_key_value_heads       8                      num_attention_heads if null
 * head_dim                  hidden / heads         null too (Nemo has 128 and not 160)
 * max_position_embeddings   131,072
 * rms_norm_eps              1e-6
 * hidden_act                silu
 * sliding_window            4,096                  of all layers, whatever layer_types says; none if null
 * tie_word_embeddings       false                  the tensors decide
 * rope                      theta 10,000           scaling as in llama: rope_scaling.c
 * biases                                           never */
#include "../family.h"

ln_status ln_family_mistral(ln_spec *s, const ln_config *c, ln_error *err) {
    static const ln_sizes sizes = {.vocab = 32000,
                                   .hidden = 4096,
                                   .ffn = 14336,
                                   .layers = 32,
                                   .heads = 32,
                                   .kv_heads = 8,
                                   .positions = 131072,
                                   .null_kv_heads = true,
                                   .null_head_dim = true};
    int64_t window;
    LN_TRY(ln_read_base(s, c, &sizes, err));
    LN_TRY(ln_read_window(c, "sliding_window", 4096, &window, err));
    LN_TRY(ln_set_one_layer(s, window, err));
    return ln_read_rope(s, c, &(ln_rope_facts){.theta = 10000}, err);
}

/* MinistralConfig in configuration_ministral.py: as mistral, but layer_types says which layers have the
 * window; without it all have it. num_key_value_heads is never null. */
ln_status ln_family_ministral(ln_spec *s, const ln_config *c, ln_error *err) {
    static const ln_sizes sizes = {.vocab = 32000,
                                   .hidden = 4096,
                                   .ffn = 14336,
                                   .layers = 32,
                                   .heads = 32,
                                   .kv_heads = 8,
                                   .positions = 131072,
                                   .null_head_dim = true};
    int64_t window;
    bool found;
    LN_TRY(ln_read_base(s, c, &sizes, err));
    LN_TRY(ln_read_window(c, "sliding_window", 4096, &window, err));
    bool *sliding = ln_arena_alloc(&s->arena, (size_t)s->L * sizeof *sliding);
    if (!sliding) return LN_OOM(err, "the layers");
    LN_TRY(ln_read_layer_types(s, c, sliding, &found, err));
    for (int l = 0; l < s->L && !found; l++) sliding[l] = window > 0;
    LN_TRY(ln_set_layers(s, sliding, window, err));
    return ln_read_rope(s, c, &(ln_rope_facts){.theta = 10000}, err);
}

/* Ministral3Config in configuration_ministral3.py: the sizes of the 8B model, eps 1e-5, no window unless the
 * file has one. rope_parameters has YaRN, and llama_4_scaling_beta, by which queries grow with the position
 * (Ministral3Attention.forward). */
ln_status ln_family_ministral3(ln_spec *s, const ln_config *c, ln_error *err) {
    static const ln_sizes sizes = {.vocab = 131072,
                                   .hidden = 4096,
                                   .ffn = 14336,
                                   .layers = 34,
                                   .heads = 32,
                                   .kv_heads = 8,
                                   .head_dim = 128,
                                   .positions = 262144,
                                   .null_kv_heads = true,
                                   .null_head_dim = true,
                                   .eps = 1e-5};
    static const ln_rope_facts rope = {
        .theta = 1000000,
        .q_scale = true,
        .absent = "{\"type\":\"yarn\",\"rope_theta\":1000000.0,\"factor\":16.0,"
                  "\"original_max_position_embeddings\":16384,\"beta_fast\":32.0,\"beta_slow\":1.0,"
                  "\"mscale\":1.0,\"mscale_all_dim\":1.0,\"llama_4_scaling_beta\":0.1}"};
    int64_t window;
    LN_TRY(ln_read_base(s, c, &sizes, err));
    LN_TRY(ln_read_window(c, "sliding_window", 0, &window, err));
    LN_TRY(ln_set_one_layer(s, window, err));
    return ln_read_rope(s, c, &rope, err);
}

/* Mistral3Config wraps either; its own default is a mistral text model. */
ln_status ln_family_mistral3(ln_spec *s, const ln_config *c, ln_error *err) {
    const char *type = json_string_value(json_object_get(c->text, "model_type"));
    return type && strcmp(type, "ministral3") == 0 ? ln_family_ministral3(s, c, err)
                                                   : ln_family_mistral(s, c, err);
}
