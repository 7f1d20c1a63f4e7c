/* granite is Granite 3 and 4.2, dense. granite_swa is at the end. Facts from transformers: GraniteConfig in
 * configuration_granite.py (defaults), GraniteAttention, GraniteDecoderLayer, GraniteModel and
 * GraniteForCausalLM in modeling_granite.py.
 *
 * field                     absent                 note
 * vocab_size                32,000
 * hidden_size               4,096
 * intermediate_size         11,008
 * num_hidden_layers         32
 * num_attention_heads       32
 * num_key_value_heads       num_attention_heads    null too
 * head_dim                  hidden / heads         not a field of the class, but used if present
 * max_position_embeddings   2,048
 * rms_norm_eps              1e-6
 * hidden_act                silu
 * attention_bias            false                  q, k, v and o alike
 * mlp_bias                  false                  gate, up and down alike
 * embedding_multiplier      1                      factor of the embedding, not rounded to its dtype
 * attention_multiplier      1                      scale of attention, in the place of head_dim's power -1/2
 * residual_multiplier       1                      factor of the outputs of attention and MLP
 * logits_scaling            1                      the logits are divided by it
 * tie_word_embeddings       false                  the tensors decide
 * rope                      theta 10,000           scaling as in llama: rope_scaling.c */
#include "../family.h"

/* The four factors, which granite and granite_swa have. */
static ln_status read_factors(ln_spec *s, const ln_config *c, ln_error *err) {
    double embedding, attention, residual, logits;
    LN_TRY(ln_config_real(c, "embedding_multiplier", 1, -1e6, 1e6, &embedding, err));
    LN_TRY(ln_config_real(c, "attention_multiplier", 1, -1e6, 1e6, &attention, err));
    LN_TRY(ln_config_real(c, "residual_multiplier", 1, -1e6, 1e6, &residual, err));
    LN_TRY(ln_config_real(c, "logits_scaling", 1, 1e-6, 1e6, &logits, err));
    s->embed_scale = (float)embedding;
    s->attn[0].scale = (float)attention;
    s->residual_scale = (float)residual;
    s->logit_scale = (float)(1 / logits);
    return LN_OK;
}

ln_status ln_family_granite(ln_spec *s, const ln_config *c, ln_error *err) {
    static const ln_sizes sizes = {.vocab = 32000,
                                   .hidden = 4096,
                                   .ffn = 11008,
                                   .layers = 32,
                                   .heads = 32,
                                   .positions = 2048,
                                   .null_kv_heads = true};
    LN_TRY(ln_read_base(s, c, &sizes, err));
    LN_TRY(ln_read_biases(s, c, err));
    LN_TRY(read_factors(s, c, err));
    LN_TRY(ln_refuse_windows(s, c, err));
    LN_TRY(ln_set_one_layer(s, 0, err));
    return ln_read_rope(s, c, &(ln_rope_facts){.theta = 10000}, err);
}

/* ---- granitemoe ----
 * Granite 3 1B-A400M and 3B-A800M. GraniteMoeConfig in configuration_granitemoe.py, GraniteMoeTopKRouter and
 * GraniteMoeExperts in modeling_granitemoe.py. What differs from granite: there is no mlp_bias, and each
 * layer has experts of width intermediate_size, num_local_experts (8) of them and num_experts_per_tok (2) a
 * row. The router: the largest logits, and the softmax of these. */
static const ln_slot_name moe_names[] = {
    {.slot = LN_W_ROUTER, .name = "layers.{}.block_sparse_moe.router.layer.weight"}};

ln_status ln_family_granitemoe(ln_spec *s, const ln_config *c, ln_error *err) {
    static const ln_moe_sizes moe = {.experts = 8, .top_k = 2, .moe_F = "intermediate_size", .F = 11008};
    LN_TRY(ln_family_granite(s, c, err));
    LN_TRY(ln_read_experts(s, c, &moe, err));
    s->ffn[0].bias = false;
    s->ffn[0].moe.route.kind = LN_ROUTE_CHOSEN;
    s->names = moe_names, s->n_names = LN_COUNT(moe_names);
    return LN_OK;
}

/* ---- granite_swa ----
 * GraniteSWAConfig in configuration_granite_swa.py, GraniteSWAAttention and GraniteSWAModel in
 * modeling_granite_swa.py. What differs from granite:
 *
 * field                     absent                 note
 * sizes                     those of the 3B model
 * rms_norm_eps              1e-5
 * tie_word_embeddings       true                   the tensors decide
 * sliding_window            128                    null: no window
 * layer_types               full if l % 4 = 0, else a sliding window
 * layer_rope_theta          null                   base of RoPE of each layer, in the place of rope_theta,
 *                                                  or 0: no RoPE
 *
 * Every layer has sinks: the output times sigmoid(logsumexp of the scores - sink) is a softmax with one more
 * score, which has no value. */

/* Rejects parameters of RoPE by kind of layer, which would contradict bases by layer. */
static ln_status refuse_kinds(const ln_config *c, ln_error *err) {
    static const char *const fields[] = {"rope_scaling", "rope_parameters"};
    static const char *const kinds[] = {"full_attention", "sliding_attention"};
    for (size_t i = 0; i < LN_COUNT(fields) * LN_COUNT(kinds); i++) {
        const json_t *params = json_object_get(c->text, fields[i / 2]);
        if (json_is_object(json_object_get(params, kinds[i % 2])))
            return ln_config_fail(c, params, fields[i / 2],
                                  "parameters for all layers, because layer_rope_theta has the bases", err);
    }
    return LN_OK;
}

/* Reads layer_rope_theta into theta[L]: 0 means no RoPE. *found = false: the file has none. */
static ln_status read_thetas(const ln_spec *s, const ln_config *c, double *theta, bool *found,
                             ln_error *err) {
    static const char field[] = "layer_rope_theta";
    const json_t *list = json_object_get(c->text, field);
    char wanted[64];
    *found = list && !json_is_null(list);
    if (!*found) return LN_OK;
    LN_TRY(refuse_kinds(c, err));
    (void)snprintf(wanted, sizeof wanted, "a list of %d bases, 0 for no RoPE", s->L);
    if (!json_is_array(list) || json_array_size(list) != (size_t)s->L)
        return ln_config_fail(c, list, field, wanted, err);
    for (int l = 0; l < s->L; l++) {
        const json_t *x = json_array_get(list, (size_t)l);
        theta[l] = json_number_value(x);
        if (!json_is_number(x) || !(theta[l] >= 0 && theta[l] <= 1e30))
            return ln_config_fail(c, x, field, wanted, err);
    }
    return LN_OK;
}

/* The table of a base, which is added if there is none: those of the layers before l are in the spec. */
static ln_status rope_of(ln_spec *s, const ln_config *c, const double *theta, int l, int *rope,
                         ln_error *err) {
    const ln_rope_facts facts = {.theta = 10000, .forced_theta = theta[l]};
    *rope = -1;
    if (theta[l] == 0) return LN_OK;
    for (int i = 0; i < s->n_ropes; i++)
        if (s->ropes[i].theta == theta[l]) *rope = i;
    if (*rope >= 0) return LN_OK;
    *rope = s->n_ropes;
    return ln_read_rope(s, c, &facts, err);
}

/* The rows of attention by window and base. */
static ln_status read_bases(ln_spec *s, const ln_config *c, const double *theta, const bool *sliding,
                            int64_t window, ln_error *err) {
    const ln_attn_spec one = s->attn[0];
    const int64_t n_ctx = s->n_ctx;
    LN_TRY(ln_set_one_layer(s, 0, err));
    s->n_attn = 0;
    for (int l = 0; l < s->L; l++) {
        ln_attn_spec a = one;
        s->n_ctx = n_ctx; /* each table is that of the context that the file states */
        LN_TRY(rope_of(s, c, theta, l, &a.rope, err));
        a.sliding = sliding[l];
        a.window = sliding[l] ? window : 0;
        s->layers[l].attn = ln_attn_row(s, &a);
    }
    for (int i = 0; i < s->n_ropes; i++) s->n_ctx = LN_MAX(s->n_ctx, s->ropes[i].n_ctx);
    return LN_OK;
}

ln_status ln_family_granite_swa(ln_spec *s, const ln_config *c, ln_error *err) {
    static const ln_sizes sizes = {.vocab = 100352,
                                   .hidden = 2560,
                                   .ffn = 8192,
                                   .layers = 24,
                                   .heads = 20,
                                   .kv_heads = 4,
                                   .positions = 8192,
                                   .null_kv_heads = true,
                                   .tied = true,
                                   .eps = 1e-5};
    bool found, *sliding;
    int64_t window;
    LN_TRY(ln_read_base(s, c, &sizes, err));
    LN_TRY(ln_read_biases(s, c, err));
    LN_TRY(read_factors(s, c, err));
    s->attn[0].sinks = true;
    double *theta = ln_arena_alloc(&s->arena, (size_t)s->L * (sizeof *theta + sizeof *sliding));
    if (!theta) return LN_OOM(err, "the layers");
    sliding = (bool *)(theta + s->L);
    LN_TRY(ln_read_window(c, "sliding_window", 128, &window, err));
    LN_TRY(ln_read_layer_types(s, c, sliding, &found, err));
    for (int l = 0; l < s->L && !found; l++) sliding[l] = l % 4 != 0;
    LN_TRY(read_thetas(s, c, theta, &found, err));
    if (found) return read_bases(s, c, theta, sliding, window, err);
    LN_TRY(ln_set_layers(s, sliding, window, err));
    return ln_read_rope(s, c, &(ln_rope_facts){.theta = 10000}, err);
}
