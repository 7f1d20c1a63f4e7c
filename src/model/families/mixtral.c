/* mixtral: Mixtral 8x7B and 8x22B. Facts from transformers: MixtralConfig in configuration_mixtral.py
 * (defaults), MixtralTopKRouter and MixtralExperts in modeling_mixtral.py.
 *
 * field                     absent                 note
 * vocab_size                32,000
 * hidden_size               4,096
 * intermediate_size         14,336                 of an expert
 * num_hidden_layers         32
 * num_attention_heads       32
 * num_key_value_heads       8
 * head_dim                  hidden / heads         may be null
 * max_position_embeddings   131,072
 * rms_norm_eps              1e-5
 * hidden_act                silu
 * tie_word_embeddings       false                  the tensors decide
 * rope                      theta 1,000,000
 * sliding_window            null                   of all layers
 * num_local_experts         8                      num_experts in some files
 * num_experts_per_tok       2
 *
 * The router: softmax over all experts, then the largest, whose weights add up to 1. All layers have experts,
 * and no biases. */
#include "../family.h"

static const ln_slot_name names[] = {{.slot = LN_W_ROUTER, .name = "layers.{}.block_sparse_moe.gate.weight"}};

ln_status ln_family_mixtral(ln_spec *s, const ln_config *c, ln_error *err) {
    static const ln_sizes sizes = {.vocab = 32000,
                                   .hidden = 4096,
                                   .ffn = 14336,
                                   .layers = 32,
                                   .heads = 32,
                                   .kv_heads = 8,
                                   .positions = 131072,
                                   .eps = 1e-5,
                                   .null_head_dim = true};
    static const ln_moe_sizes moe = {.experts = 8, .top_k = 2, .moe_F = "intermediate_size", .F = 14336};
    int64_t window;
    LN_TRY(ln_read_base(s, c, &sizes, err));
    LN_TRY(ln_read_window(c, "sliding_window", 0, &window, err));
    LN_TRY(ln_set_one_layer(s, window, err));
    LN_TRY(ln_read_experts(s, c, &moe, err));
    s->ffn[0].moe.route.normed = true;
    s->names = names, s->n_names = LN_COUNT(names);
    return ln_read_rope(s, c, &(ln_rope_facts){.theta = 1e6}, err);
}
