/* glm4_moe: GLM-4.5, 4.6 and 4.7. Facts from transformers: Glm4MoeConfig in configuration_glm4_moe.py
 * (defaults), Glm4MoeAttention, Glm4MoeTopkRouter and Glm4MoeMoE in modeling_glm4_moe.py.
 *
 * field                     absent                 note
 * vocab_size                151,552
 * hidden_size               4,096
 * intermediate_size         10,944                 of the layers without experts
 * num_hidden_layers         46
 * num_attention_heads       96
 * num_key_value_heads       8
 * head_dim                  hidden / heads
 * max_position_embeddings   131,072
 * rms_norm_eps              1e-5
 * hidden_act                silu
 * attention_bias            false                  q, k and v; o never
 * use_qk_norm               false                  RMS norm of each head of q and k, before RoPE
 * tie_word_embeddings       false                  the tensors decide
 * rope                      theta 10,000           of halves
 * partial_rotary_factor     0.5                    the part of a head that is rotated
 * moe_intermediate_size     1,408
 * n_routed_experts          128
 * num_experts_per_tok       8
 * n_shared_experts          1                      an MLP of so many widths for all rows
 * n_group, topk_group       1                      experts are chosen from the topk_group best groups
 * first_k_dense_replace     1                      so many first layers have a dense MLP
 * norm_topk_prob            true                   weights are divided by their sum + 1e-20
 * routed_scaling_factor     1                      and multiplied by this
 *
 * The router: sigmoids, chosen by sigmoid + e_score_correction_bias. */
#include "../family.h"

static const ln_slot_name names[] = {
    {.slot = LN_W_S_GATE, .name = "layers.{}.mlp.shared_experts.gate_proj.weight"},
    {.slot = LN_W_S_UP, .name = "layers.{}.mlp.shared_experts.up_proj.weight"},
    {.slot = LN_W_S_DOWN, .name = "layers.{}.mlp.shared_experts.down_proj.weight"}};

/* The router's groups. */
static ln_status read_groups(ln_moe_spec *m, const ln_config *c, ln_error *err) {
    int64_t groups, top;
    LN_TRY(ln_config_int(c, "n_group", 1, 1, m->n_experts, &groups, err));
    LN_TRY(ln_config_int(c, "topk_group", 1, 1, groups, &top, err));
    if (m->n_experts % groups)
        return ln_config_fail(c, json_object_get(c->text, "n_group"), "n_group",
                              "a divisor of n_routed_experts", err);
    if (m->route.top_k > m->n_experts / groups * top)
        return ln_config_fail(c, json_object_get(c->text, "topk_group"), "topk_group",
                              "groups with num_experts_per_tok experts", err);
    m->route.n_groups = (int)groups, m->route.top_groups = (int)top;
    return LN_OK;
}

static ln_status read_router(ln_spec *s, const ln_config *c, ln_error *err) {
    ln_moe_spec *m = &s->ffn[0].moe;
    double factor;
    int64_t shared;
    LN_TRY(read_groups(m, c, err));
    LN_TRY(ln_config_bool(c, "norm_topk_prob", true, &m->route.normed, err));
    LN_TRY(ln_config_real(c, "routed_scaling_factor", 1, -1e6, 1e6, &factor, err));
    LN_TRY(ln_config_int(c, "n_shared_experts", 1, 0, 1024, &shared, err));
    m->route.kind = LN_ROUTE_SIGMOID;
    m->route.eps = 1e-20f;
    m->route.factor = (float)factor;
    m->choice_bias = true;
    m->shared_F = shared * m->F;
    return LN_OK;
}

ln_status ln_family_glm4_moe(ln_spec *s, const ln_config *c, ln_error *err) {
    static const ln_sizes sizes = {.vocab = 151552,
                                   .hidden = 4096,
                                   .ffn = 10944,
                                   .layers = 46,
                                   .heads = 96,
                                   .kv_heads = 8,
                                   .positions = 131072,
                                   .eps = 1e-5,
                                   .null_head_dim = true};
    static const ln_moe_sizes moe = {.experts = 128,
                                     .top_k = 8,
                                     .F = 1408,
                                     .moe_F = "moe_intermediate_size",
                                     .number = "n_routed_experts"};
    bool bias, norm;
    int64_t dense;
    LN_TRY(ln_read_base(s, c, &sizes, err));
    LN_TRY(ln_config_bool(c, "attention_bias", false, &bias, err));
    LN_TRY(ln_config_bool(c, "use_qk_norm", false, &norm, err));
    LN_TRY(ln_config_int(c, "first_k_dense_replace", 1, 0, s->L, &dense, err));
    const int64_t F = s->ffn[0].F;
    ln_attn_spec *a = &s->attn[0];
    a->q_bias = a->k_bias = a->v_bias = bias;
    if (norm) a->qk_norm = LN_QK_NORM_HEADS;
    s->names = names, s->n_names = LN_COUNT(names);
    LN_TRY(ln_refuse_windows(s, c, err));
    LN_TRY(ln_set_one_layer(s, 0, err));
    LN_TRY(ln_read_experts(s, c, &moe, err));
    LN_TRY(read_router(s, c, err));
    for (int l = 0; l < dense; l++) s->layers[l].ffn = 1;
    ln_dense_layers(s, F);
    return ln_read_rope(s, c, &(ln_rope_facts){.theta = 10000, .partial = 0.5}, err);
}
