/* glm4: GLM-4 9B and 32B (0414). glm: the GLM-4 9B before it (glm-4-9b-chat-hf) and GLM-Edge, without norms
 * of outputs. Facts from transformers: Glm4Config in configuration_glm4.py and GlmConfig in
 * configuration_glm.py (the same defaults), Glm4Attention, Glm4MLP and Glm4DecoderLayer in modeling_glm4.py,
 * GlmDecoderLayer in modeling_glm.py.
 *
 * field                     absent                 note
 * vocab_size                151,552
 * hidden_size               4,096
 * intermediate_size         13,696
 * num_hidden_layers         40
 * num_attention_heads       32
 * num_key_value_heads       2
 * head_dim                  128
 * max_position_embeddings   131,072
 * rms_norm_eps              1.5625e-7
 * hidden_act                silu
 * attention_bias            true                   q, k and v; o never
 * tie_word_embeddings       false                  the tensors decide
 * rope                      theta 10,000           of neighbouring pairs
 * partial_rotary_factor     0.5                    the part of a head that is rotated
 *
 * gate and up are the rows of one tensor, gate first. glm4 has norms of the inputs and of the outputs of
 * attention and MLP: post_attention_layernorm is that of the MLP's input. */
#include "../family.h"

static const ln_slot_name names[] = {
    {.slot = LN_W_ATTN_POST, .name = "layers.{}.post_self_attn_layernorm.weight"},
    {.slot = LN_W_FFN_POST, .name = "layers.{}.post_mlp_layernorm.weight"},
    {LN_W_GATE, "layers.{}.mlp.gate_up_proj.weight", 2, {LN_W_GATE, LN_W_UP}},
    {LN_W_UP, "layers.{}.mlp.gate_up_proj.weight", 2, {LN_W_GATE, LN_W_UP}}};

static ln_status read_with(ln_spec *s, const ln_config *c, bool post_norms, ln_error *err) {
    static const ln_sizes sizes = {.vocab = 151552,
                                   .hidden = 4096,
                                   .ffn = 13696,
                                   .layers = 40,
                                   .heads = 32,
                                   .kv_heads = 2,
                                   .head_dim = 128,
                                   .positions = 131072,
                                   .eps = 1.5625e-7};
    bool bias;
    LN_TRY(ln_read_base(s, c, &sizes, err));
    LN_TRY(ln_config_bool(c, "attention_bias", true, &bias, err));
    ln_attn_spec *a = &s->attn[0];
    a->q_bias = a->k_bias = a->v_bias = bias;
    s->post_norms = post_norms;
    s->names = names, s->n_names = LN_COUNT(names);
    LN_TRY(ln_refuse_windows(s, c, err));
    LN_TRY(ln_set_one_layer(s, 0, err));
    return ln_read_rope(s, c, &(ln_rope_facts){.theta = 10000, .partial = 0.5, .interleaved = true}, err);
}

ln_status ln_family_glm(ln_spec *s, const ln_config *c, ln_error *err) { return read_with(s, c, false, err); }

ln_status ln_family_glm4(ln_spec *s, const ln_config *c, ln_error *err) { return read_with(s, c, true, err); }
