/* gpt_oss: gpt-oss 20b and 120b. Facts from transformers: GptOssConfig in configuration_gpt_oss.py
 * (defaults), GptOssAttention, GptOssTopKRouter and GptOssExperts in modeling_gpt_oss.py.
 *
 * field                     absent                 note
 * vocab_size                201,088
 * hidden_size               2,880
 * intermediate_size         2,880                  of an expert
 * num_hidden_layers         36
 * num_attention_heads       64
 * num_key_value_heads       8
 * head_dim                  64
 * max_position_embeddings   131,072
 * rms_norm_eps              1e-5
 * attention_bias            true                   q, k, v and o alike
 * sliding_window            128                    null: no window
 * layer_types               sliding if l is even, else full
 * tie_word_embeddings       false                  the tensors decide
 * rope                      theta 150,000          yarn, factor 32 of 4,096 positions, bounds not rounded
 * num_local_experts         128                    num_experts in some files
 * num_experts_per_tok       4                      experts_per_token in some files
 * swiglu_limit              7                      gate <= limit, |up| <= limit
 * swiglu_alpha              1.702                  (up + 1) gate sigmoid(alpha gate)
 *
 * Each head has a sink. The router and the experts have biases. The router: the largest logits, and the
 * softmax of these. Files hold gate and up in one tensor, row by row in turn; unless they are in mxfp4, with
 * outputs as the last axis. */
#include "../family.h"

static const ln_slot_name names[] = {{.slot = LN_W_ROUTER, .name = "layers.{}.mlp.router.weight"},
                                     {.slot = LN_W_ROUTER_BIAS, .name = "layers.{}.mlp.router.bias"}};

ln_status ln_family_gpt_oss(ln_spec *s, const ln_config *c, ln_error *err) {
    static const ln_sizes sizes = {.vocab = 201088,
                                   .hidden = 2880,
                                   .ffn = 2880,
                                   .layers = 36,
                                   .heads = 64,
                                   .kv_heads = 8,
                                   .head_dim = 64,
                                   .positions = 131072,
                                   .eps = 1e-5,
                                   .null_kv_heads = true,
                                   .null_head_dim = true};
    static const ln_moe_sizes moe = {.experts = 128, .top_k = 4, .moe_F = "intermediate_size", .F = 2880};
    static const ln_rope_facts rope = {.theta = 150000,
                                       .absent = "{\"rope_type\":\"yarn\",\"factor\":32.0,\"beta_fast\":32.0,"
                                                 "\"beta_slow\":1.0,\"truncate\":false,"
                                                 "\"original_max_position_embeddings\":4096}"};
    bool bias;
    int64_t window;
    double limit, alpha;
    LN_TRY(ln_read_base(s, c, &sizes, err));
    LN_TRY(ln_config_bool(c, "attention_bias", true, &bias, err));
    LN_TRY(ln_read_window(c, "sliding_window", 128, &window, err));
    LN_TRY(ln_config_real(c, "swiglu_limit", 7, 1e-6, 1e9, &limit, err));
    LN_TRY(ln_config_real(c, "swiglu_alpha", 1.702, -1e6, 1e6, &alpha, err));
    ln_attn_spec *a = &s->attn[0];
    a->q_bias = a->k_bias = a->v_bias = a->o_bias = bias;
    a->sinks = true;
    LN_TRY(ln_read_pattern_layers(s, c, 2, window, err));
    LN_TRY(ln_read_experts(s, c, &moe, err));
    ln_moe_spec *m = &s->ffn[0].moe;
    m->route.kind = LN_ROUTE_CHOSEN;
    m->router_bias = m->bias = m->interleaved = true;
    m->limit = (float)limit, m->alpha = (float)alpha;
    s->names = names, s->n_names = LN_COUNT(names);
    return ln_read_rope(s, c, &rope, err);
}
