/* exaone4: EXAONE 4.0. Facts from transformers: Exaone4Config in configuration_exaone4.py (defaults),
 * Exaone4Attention and Exaone4DecoderLayer in modeling_exaone4.py.
 *
 * field                     absent                 note
 * vocab_size                102,400
 * hidden_size               4,096
 * intermediate_size         16,384
 * num_hidden_layers         32
 * num_attention_heads       32
 * num_key_value_heads       32
 * head_dim                  hidden / heads         not a field of the class, but used if present
 * max_position_embeddings   2,048
 * rms_norm_eps              1e-5
 * hidden_act                silu
 * sliding_window            4,096                  null: no window, and RoPE in all layers
 * layer_types               from                   layer i is full if i + 1 is a multiple of
 *                           sliding_window_pattern sliding_window_pattern (4)
 * tie_word_embeddings       false                  the tensors decide
 * rope                      theta 10,000           of sliding layers alone if the model has a window
 * biases                                           never
 *
 * Norms of the outputs of attention and MLP, none of their inputs; of each head of q and k, before RoPE. */
#include "../family.h"

static ln_status read_layers(ln_spec *s, const ln_config *c, ln_error *err) {
    bool found, *sliding = ln_arena_alloc(&s->arena, (size_t)s->L * sizeof *sliding);
    int64_t window, pattern = 4;
    if (!sliding) return LN_OOM(err, "the layers");
    LN_TRY(ln_read_window(c, "sliding_window", 4096, &window, err));
    LN_TRY(ln_read_layer_types(s, c, sliding, &found, err));
    if (!found && window > 0) /* files with a pattern in letters, such as LLLG, have layer_types too */
        LN_TRY(ln_config_int(c, "sliding_window_pattern", 4, 1, INT32_MAX, &pattern, err));
    for (int l = 0; l < s->L && !found; l++) sliding[l] = window > 0 && (l + 1) % pattern != 0;
    return ln_set_rotated_layers(s, sliding, window, window > 0 ? sliding : NULL, err);
}

ln_status ln_family_exaone4(ln_spec *s, const ln_config *c, ln_error *err) {
    static const ln_sizes sizes = {.vocab = 102400,
                                   .hidden = 4096,
                                   .ffn = 16384,
                                   .layers = 32,
                                   .heads = 32,
                                   .kv_heads = 32,
                                   .positions = 2048,
                                   .eps = 1e-5};
    LN_TRY(ln_read_base(s, c, &sizes, err));
    s->attn[0].qk_norm = LN_QK_NORM_HEADS;
    s->pre_norms = false, s->post_norms = true;
    LN_TRY(read_layers(s, c, err));
    return ln_read_rope(s, c, &(ln_rope_facts){.theta = 10000}, err);
}
