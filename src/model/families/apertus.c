/* apertus: Apertus 8B and 70B. Facts from transformers: ApertusConfig in configuration_apertus.py (defaults),
 * ApertusMLP, ApertusAttention and ApertusDecoderLayer in modeling_apertus.py, XIELUActivation in
 * activations.py.
 *
 * field                     absent                 note
 * vocab_size                131,072
 * hidden_size               4,096
 * intermediate_size         14,336
 * num_hidden_layers         32
 * num_attention_heads       32
 * num_key_value_heads       num_attention_heads    null too
 * head_dim                  hidden / heads         not a field of the class, but used if present
 * max_position_embeddings   65,536
 * rms_norm_eps              1e-5
 * hidden_act                xielu                  with numbers of each layer, mlp.act_fn
 * attention_bias            false                  q, k, v and o alike
 * tie_word_embeddings       false                  the tensors decide
 * rope                      theta 12,000,000       absent: llama3 with factor 8 of 8,192 positions
 *
 * The MLP has no gate: down(act(up x)). Norms of q and k by head, before RoPE. */
#include "../family.h"

static const ln_slot_name names[] = {
    {.slot = LN_W_ATTN_NORM, .name = "layers.{}.attention_layernorm.weight"},
    {.slot = LN_W_FFN_NORM, .name = "layers.{}.feedforward_layernorm.weight"}};

static const char rope[] = "{\"rope_type\":\"llama3\",\"rope_theta\":12000000.0,\"factor\":8.0,"
                           "\"original_max_position_embeddings\":8192,\"low_freq_factor\":1.0,"
                           "\"high_freq_factor\":4.0}";

ln_status ln_family_apertus(ln_spec *s, const ln_config *c, ln_error *err) {
    static const ln_sizes sizes = {.vocab = 131072,
                                   .hidden = 4096,
                                   .ffn = 14336,
                                   .layers = 32,
                                   .heads = 32,
                                   .positions = 65536,
                                   .null_kv_heads = true,
                                   .eps = 1e-5};
    bool bias;
    LN_TRY(ln_read_base(s, c, &sizes, err));
    LN_TRY(ln_read_act(s, c, "hidden_act", "xielu", err));
    LN_TRY(ln_config_bool(c, "attention_bias", false, &bias, err));
    ln_attn_spec *a = &s->attn[0];
    a->q_bias = a->k_bias = a->v_bias = a->o_bias = bias;
    a->qk_norm = LN_QK_NORM_HEADS;
    s->ffn[0].ungated = true;
    s->names = names, s->n_names = LN_COUNT(names);
    LN_TRY(ln_refuse_windows(s, c, err));
    LN_TRY(ln_set_one_layer(s, 0, err));
    return ln_read_rope(s, c, &(ln_rope_facts){.theta = 12000000, .absent = rope}, err);
}
