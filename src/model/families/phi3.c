/* phi3: Phi-3, Phi-3.5-mini, Phi-4, Phi-4-mini. Facts from transformers: Phi3Config in configuration_phi3.py
 * (defaults), Phi3Attention, Phi3MLP and Phi3RotaryEmbedding in modeling_phi3.py.
 *
 * field                     absent                 note
 * vocab_size                32,064
 * hidden_size               3,072
 * intermediate_size         8,192
 * num_hidden_layers         32
 * num_attention_heads       32
 * num_key_value_heads       num_attention_heads    null too
 * head_dim                  hidden / heads         not a field of the class, but used if present
 * max_position_embeddings   4,096
 * original_max_position_embeddings 4,096           precedes that of the RoPE parameters
 * rms_norm_eps              1e-5
 * hidden_act                silu
 * sliding_window            null                   of all layers
 * tie_word_embeddings       false                  the tensors decide
 * rope                      theta 10,000           default or longrope, whose older names are su and yarn
 * partial_rotary_factor     1                      the part of a head that is rotated
 * biases                                           never
 *
 * q, k and v are the rows of one tensor, and so are gate and up. */
#include "../family.h"

#define QKV \
    "layers.{}.self_attn.qkv_proj.weight", 3, { LN_W_Q, LN_W_K, LN_W_V }
#define GATE_UP \
    "layers.{}.mlp.gate_up_proj.weight", 2, { LN_W_GATE, LN_W_UP }
static const ln_slot_name names[] = {
    {LN_W_Q, QKV}, {LN_W_K, QKV}, {LN_W_V, QKV}, {LN_W_GATE, GATE_UP}, {LN_W_UP, GATE_UP}};

ln_status ln_family_phi3(ln_spec *s, const ln_config *c, ln_error *err) {
    static const ln_sizes sizes = {.vocab = 32064,
                                   .hidden = 3072,
                                   .ffn = 8192,
                                   .layers = 32,
                                   .heads = 32,
                                   .positions = 4096,
                                   .null_kv_heads = true,
                                   .eps = 1e-5};
    int64_t window;
    LN_TRY(ln_read_base(s, c, &sizes, err));
    s->names = names, s->n_names = LN_COUNT(names);
    LN_TRY(ln_read_window(c, "sliding_window", 0, &window, err));
    LN_TRY(ln_set_one_layer(s, window, err));
    return ln_read_rope(s, c,
                        &(ln_rope_facts){
                            .theta = 10000, .partial = 1, .original = 4096, .yarn_is_longrope = true},
                        err);
}
