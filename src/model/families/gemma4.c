/* gemma4 and gemma4_text are Gemma 4 E2B, E4B and 31B, the dense text models. gemma4_unified and
 * gemma4_unified_text are its 12B. Facts from transformers: Gemma4TextConfig in configuration_gemma4.py
 * (defaults), Gemma4TextAttention, Gemma4TextDecoderLayer and Gemma4TextModel in modeling_gemma4.py.
 *
 * field                     absent                 note
 * vocab_size                262,144
 * hidden_size               2,304
 * intermediate_size         9,216
 * num_hidden_layers         30
 * num_attention_heads       8
 * num_key_value_heads       4                      of layers with a window
 * head_dim                  256                    of layers with a window
 * global_head_dim           512                    of the others
 * num_global_key_value_heads                       of the others, if attention_k_eq_v, else as above
 * per_layer_config          from the two before    replaces them if it is present
 * max_position_embeddings   131,072                262,144 in gemma4_unified
 * rms_norm_eps              1e-6
 * hidden_activation         gelu_pytorch_tanh      hidden_act is not read
 * attention_k_eq_v          false                  values of layers without a window are their keys
 * sliding_window            512                    1,024 in gemma4_unified
 * layer_types               every sixth is full    the last layer is full whatever the list says
 * enable_moe_block          false                  experts next to the MLP: num_experts, top_k_experts,
 *                                                  moe_intermediate_size
 * num_kv_shared_layers      0                      so many last layers attend to keys of an earlier one
 * use_double_wide_mlp       false                  those have an MLP of twice the width
 * final_logit_softcapping   null                   cap on logits
 * rope of sliding layers    theta 10,000           rope_parameters.sliding_attention
 * rope of full layers       theta 1,000,000        rope_parameters.full_attention, a quarter, proportional
 * tie_word_embeddings       true                   the tensors decide
 *
 * The scale of attention is 1. Norms are plain, four in a layer, those of q and k by head, that of v without
 * a weight. Each layer multiplies its output by layer_scalar, and adds an input of its own to it
 * (hidden_size_per_layer_input, 256 if it is absent), of which E2B and E4B have a table. */
#include "../family.h"

#include <math.h>
#include <string.h>

static const ln_slot_name names[] = {
    {.slot = LN_W_FFN_NORM, .name = "layers.{}.pre_feedforward_layernorm.weight"},
    {.slot = LN_W_ROUTER, .name = "layers.{}.router.proj.weight"}};

/* Experts next to the MLP of each layer (26B-A4B), as in Gemma4TextRouter and Gemma4TextExperts: a softmax
 * over all, the largest, whose weights add up to 1 and are multiplied by a factor of each expert. */
static ln_status read_experts(ln_spec *s, const ln_config *c, ln_error *err) {
    static const ln_moe_sizes dflt = {
        .experts = 128, .top_k = 8, .F = 704, .moe_F = "moe_intermediate_size", .chosen = "top_k_experts"};
    const int64_t F = s->ffn[0].F;
    bool experts;
    LN_TRY(ln_config_bool(c, "enable_moe_block", false, &experts, err));
    if (!experts) return LN_OK;
    LN_TRY(ln_read_experts(s, c, &dflt, err));
    ln_moe_spec *m = &s->ffn[0].moe;
    s->ffn[0].F = F;
    m->route.normed = true;
    m->router_norm = m->expert_scale = m->beside = true;
    return LN_OK;
}

/* What layers of a model may differ in. */
typedef struct sizes {
    bool *sliding, equal; /* [L]; keys are values in layers without a window */
    int64_t window, shared, full_dim, full_kv;
    bool wide;
} sizes;

static bool unified(const ln_config *c) { return strstr(c->model_type, "unified") != NULL; }

static ln_status read_layer_sizes(const ln_spec *s, const ln_config *c, sizes *z, ln_error *err) {
    bool found;
    LN_TRY(ln_config_bool(c, "attention_k_eq_v", false, &z->equal, err));
    LN_TRY(ln_config_bool(c, "use_double_wide_mlp", false, &z->wide, err));
    LN_TRY(ln_config_int(c, "sliding_window", unified(c) ? 1024 : 512, 1, INT32_MAX, &z->window, err));
    LN_TRY(ln_config_int(c, "num_kv_shared_layers", 0, 0, s->L, &z->shared, err));
    LN_TRY(ln_config_int(c, "global_head_dim", 512, 2, 1024, &z->full_dim, err));
    z->full_kv = s->attn[0].K;
    if (z->equal && ln_config_has(c, "num_global_key_value_heads"))
        LN_TRY(ln_config_int(c, "num_global_key_value_heads", 0, 1, 4096, &z->full_kv, err));
    LN_TRY(ln_read_layer_types(s, c, z->sliding, &found, err));
    for (int l = 0; l < s->L && !found; l++) z->sliding[l] = (l + 1) % 6 != 0;
    z->sliding[s->L - 1] = false;
    return LN_OK;
}

/* The layer that a key of per_layer_config names, a number that may begin with zeros. -1: no layer. */
static int layer_of(const ln_spec *s, const char *key) {
    uint64_t number;
    while (key[0] == '0' && key[1]) key++;
    return ln_parse_u64(key, strlen(key), &number) && number < (uint64_t)s->L ? (int)number : -1;
}
/* Checks per_layer_config. *all = NULL: the file has none. */
static ln_status find_configs(const ln_spec *s, const ln_config *c, const json_t **all, ln_error *err) {
    static const char field[] = "per_layer_config";
    const char *key;
    json_t *value;
    *all = json_object_get(c->text, field);
    if (json_is_null(*all)) *all = NULL;
    if (!*all) return LN_OK;
    if (!json_is_object(*all))
        return ln_config_fail(c, *all, field, "an object whose members are layers", err);
    json_object_foreach((json_t *)(uintptr_t)*all, key,
                        value) if (layer_of(s, key) <
                                   0) return ln_config_fail(c, *all, field, "numbers of layers as keys", err);
    return LN_OK;
}
/* The object of a layer; NULL: it has none. */
static const json_t *config_of(const ln_spec *s, const json_t *all, int l) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)all, key, value) if (layer_of(s, key) == l) return value;
    return NULL;
}
/* Applies per_layer_config to the row of a layer. */
static ln_status apply_config(const ln_config *c, const json_t *own, ln_attn_spec *a, ln_error *err) {
    static const char field[] = "per_layer_config";
    const char *key;
    json_t *value;
    if (!json_is_object(own)) return ln_config_fail(c, own, field, "an object for each layer", err);
    json_object_foreach((json_t *)(uintptr_t)own, key, value) {
        const bool dim = strcmp(key, "head_dim") == 0;
        int64_t n;
        if (!dim && strcmp(key, "num_key_value_heads") != 0)
            return ln_config_fail(c, own, field, "head_dim and num_key_value_heads alone", err);
        LN_TRY(ln_config_int_at(c, value, key, 1, dim ? 1024 : 4096, &n, err));
        if (dim) a->E = (int)n;
        else a->K = (int)n;
    }
    return LN_OK;
}

/* The row of layer l. */
static ln_status row_of(const ln_spec *s, const ln_config *c, const sizes *z, const ln_attn_spec *one, int l,
                        ln_attn_spec *a, ln_error *err) {
    const json_t *all, *own;
    LN_TRY(find_configs(s, c, &all, err));
    *a = *one;
    a->sliding = z->sliding[l];
    a->window = a->sliding ? z->window : 0;
    a->k_is_v = z->equal && !a->sliding;
    if (all) {
        own = config_of(s, all, l);
        if (own) LN_TRY(apply_config(c, own, a, err));
    } else if (!a->sliding) a->E = (int)z->full_dim, a->K = (int)z->full_kv;
    const bool odd = a->E % 2 != 0;
    if (!odd && a->H % a->K == 0) return LN_OK;
    if (all) return ln_config_fail(c, all, "per_layer_config", "even widths, and heads that divide", err);
    const char *field = odd ? "global_head_dim" : "num_global_key_value_heads";
    return ln_config_fail(c, json_object_get(c->text, field), field,
                          odd ? "an even number" : "a divisor of num_attention_heads", err);
}

/* The layer whose keys and values layer l attends to: one of the last `shared` takes those of the last layer
 * of its kind before them. -1: there is none. */
static int state_of(const ln_spec *s, const sizes *z, int l) {
    const int first = s->L - (int)z->shared;
    if (l < first) return l;
    for (int k = first - 1; k >= 0; k--)
        if (z->sliding[k] == z->sliding[l]) return k;
    return -1;
}

static ln_status read_layers(ln_spec *s, const ln_config *c, ln_error *err) {
    sizes z = {.sliding = ln_arena_alloc(&s->arena, (size_t)s->L * sizeof *z.sliding)};
    const ln_attn_spec one = s->attn[0];
    ln_ffn_spec *ffn = ln_arena_alloc(&s->arena, 2 * sizeof *ffn);
    if (!z.sliding || !ffn) return LN_OOM(err, "the layers");
    LN_TRY(read_layer_sizes(s, c, &z, err));
    LN_TRY(ln_set_one_layer(s, 0, err));
    ffn[0] = ffn[1] = s->ffn[0];
    ffn[1].F *= 2;
    s->ffn = ffn;
    s->n_ffn = z.wide && z.shared > 0 ? 2 : 1;
    s->n_attn = 0;
    for (int l = 0; l < s->L; l++) {
        ln_attn_spec a;
        const int from = state_of(s, &z, l);
        LN_TRY(row_of(s, c, &z, &one, l, &a, err));
        if (from < 0)
            return ln_config_fail(c, json_object_get(c->text, "num_kv_shared_layers"), "num_kv_shared_layers",
                                  "a layer of each kind before the shared ones", err);
        s->layers[l] = (ln_layer){.attn = ln_attn_row(s, &a), .ffn = from != l && z.wide, .state_from = from};
    }
    return LN_OK;
}

/* Adds the table of one kind of layer and sets it in the rows of that kind. */
static ln_status add_rope(ln_spec *s, const ln_config *c, const json_t *params, bool sliding, ln_error *err) {
    static const ln_rope_facts facts = {0};
    const char *kind = sliding ? "sliding_attention" : "full_attention",
               *absent = sliding ? "{\"rope_type\":\"default\",\"rope_theta\":10000.0}"
                                 : "{\"rope_type\":\"proportional\",\"partial_rotary_factor\":0.25,"
                                   "\"rope_theta\":1000000.0}";
    const int rope = s->n_ropes;
    int E = 0;
    json_t *p = NULL;
    ln_rope_rule rule;
    for (int i = 0; i < s->n_attn; i++) {
        if (s->attn[i].sliding != sliding) continue;
        if (E && E != s->attn[i].E)
            return ln_config_fail(c, NULL, "per_layer_config", "one head_dim for each kind of layer", err);
        E = s->attn[i].E;
        s->attn[i].rope = rope;
    }
    if (!E) return LN_OK;
    if (params) LN_TRY(ln_rope_object(c, params, kind, &p, err));
    if (!p) LN_TRY(ln_json_load(&p, "the parameters of RoPE", absent, strlen(absent), err));
    ln_status st = ln_rope_read(s, c, &facts, E, p, params, kind, &rule, err);
    json_decref(p);
    return st == LN_OK ? ln_rope_add(s, &rule, err) : st;
}

ln_status ln_family_gemma4(ln_spec *s, const ln_config *c, ln_error *err) {
    const ln_sizes dflt = {.vocab = 262144,
                           .hidden = 2304,
                           .ffn = 9216,
                           .layers = 30,
                           .heads = 8,
                           .kv_heads = 4,
                           .head_dim = 256,
                           .positions = unified(c) ? 262144 : 131072};
    double cap = 0;
    bool bias;
    json_t *params = NULL;
    LN_TRY(ln_read_sizes(s, c, &dflt, err));
    LN_TRY(ln_read_act(s, c, "hidden_activation", "gelu_pytorch_tanh", err));
    if (!unified(c))
        LN_TRY(ln_config_int(c, "hidden_size_per_layer_input", 256, 0, 1 << 20, &s->per_layer, err));
    LN_TRY(ln_config_int(c, "vocab_size_per_layer_input", 262144, 1, 1 << 22, &s->per_layer_rows, err));
    if (s->per_layer && s->per_layer_rows < s->V) /* every id reads a row of the table */
        return ln_config_fail(c, json_object_get(c->text, "vocab_size_per_layer_input"),
                              "vocab_size_per_layer_input", "at least vocab_size", err);
    s->per_layer_scale = (float)sqrt((double)s->per_layer);
    LN_TRY(ln_config_bool(c, "attention_bias", false, &bias, err));
    ln_attn_spec *a = &s->attn[0];
    a->q_bias = a->k_bias = a->v_bias = a->o_bias = bias;
    a->scale = 1;
    a->qk_norm = LN_QK_NORM_HEADS;
    a->v_norm = true;
    s->pre_norms = s->post_norms = s->layer_scales = true;
    s->names = names, s->n_names = LN_COUNT(names);
    s->embed_scale = (float)sqrt((double)s->D);
    s->embed_scale_rounded = true;
    if (!json_is_null(json_object_get(c->text, "final_logit_softcapping")) && ln_config_has(c, "final_logit_"
                                                                                               "softcapping"))
        LN_TRY(ln_config_real(c, "final_logit_softcapping", 30, 1e-6, 1e9, &cap, err));
    s->logit_softcap = (float)cap;
    LN_TRY(ln_config_bool(c, "tie_word_embeddings", true, &s->tied, err));
    LN_TRY(read_experts(s, c, err));
    LN_TRY(read_layers(s, c, err));
    LN_TRY(ln_rope_object(c, c->text, "rope_parameters", &params, err));
    ln_status st = add_rope(s, c, params, true, err);
    if (st == LN_OK) st = add_rope(s, c, params, false, err);
    json_decref(params);
    ln_rope_settle_context(s);
    return st;
}
