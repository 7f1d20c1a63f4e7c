/* Facts of single architectures of GGUF files that are more than a key: Gemma 4's kinds of layers, experts,
 * recurrent layers and convolutions, and layers that predict further tokens. */
#include "gguf_making.h"

#include <stdio.h>
#include <string.h>

/* ---- Gemma 4 ---- */

static ln_status need_array(const ln_gguf_making *m, const char *suffix, uint64_t layers,
                            const ln_gguf_value **out) {
    char key[LN_GGUF_KEY_BYTES];
    LN_TRY(ln_gguf_array(m->g, ln_gguf_arch_key(key, m->arch, suffix), LN_GGUF_I64, out, m->err));
    return *out && (*out)->n >= layers ? LN_OK : ln_gguf_fail(m->g, key, "a value for each layer", m->err);
}

/* A number that layers of one kind have in common, from an array or one value. */
static ln_status of_kind(const ln_gguf_making *m, const char *suffix, bool sliding, int64_t *out) {
    char key[LN_GGUF_KEY_BYTES];
    const ln_gguf_value *v = ln_gguf_find(m->g, ln_gguf_arch_key(key, m->arch, suffix));
    const json_t *types = json_object_get(m->out, "layer_types");
    if (!v || !v->is_array) return ln_gguf_need_int(m, suffix, out);
    LN_TRY(need_array(m, suffix, json_array_size(types), &v));
    for (size_t l = 0; l < json_array_size(types); l++)
        if (ln_json_is_text(json_array_get(types, l), "sliding_attention") == sliding)
            *out = ln_gguf_int_at(v, l);
    return LN_OK;
}

static ln_status put_wide_layers(const ln_gguf_making *m) {
    char key[LN_GGUF_KEY_BYTES];
    int64_t layers = 0, first = 0, last;
    LN_TRY(ln_gguf_need_int(m, "block_count", &layers));
    const ln_gguf_value *v = ln_gguf_find(m->g, ln_gguf_arch_key(key, m->arch, "feed_forward_length"));
    if (v && v->is_array && layers > 0) {
        LN_TRY(need_array(m, "feed_forward_length", (uint64_t)layers, &v));
        first = ln_gguf_int_at(v, 0), last = ln_gguf_int_at(v, (uint64_t)layers - 1);
    } else {
        LN_TRY(ln_gguf_need_int(m, "feed_forward_length", &first));
        last = first;
    }
    LN_TRY(ln_gguf_put(m, m->out, "intermediate_size", json_integer(first)));
    return ln_gguf_put(m, m->out, "use_double_wide_mlp", json_boolean(last != first));
}

/* The frequencies of full layers are those of the columns that have no divisor, or a divisor of 1. */
static ln_status put_kinds_of_rope(const ln_gguf_making *m) {
    json_t *full = json_object(), *sliding = json_object(), *rope = json_object(), *list;
    ln_status st = ln_gguf_put(m, m->out, "rope_parameters", rope);
    if (st == LN_OK) st = ln_gguf_put(m, rope, "full_attention", json_incref(full));
    if (st == LN_OK) st = ln_gguf_put(m, rope, "sliding_attention", json_incref(sliding));
    if (full) json_decref(full);
    if (sliding) json_decref(sliding);
    LN_TRY(st);
    LN_TRY(ln_gguf_put_real(m, full, "rope_theta", "rope.freq_base"));
    LN_TRY(ln_gguf_put_real(m, sliding, "rope_theta", "rope.freq_base_swa"));
    LN_TRY(ln_gguf_put(m, sliding, "rope_type", json_string("default")));
    LN_TRY(ln_gguf_put(m, full, "rope_type", json_string("proportional")));
    LN_TRY(ln_gguf_divisors(m, "rope_freqs.weight", &list));
    size_t n = json_array_size(list), turning = 0;
    for (size_t i = 0; i < n; i++) turning += json_real_value(json_array_get(list, i)) == 1;
    json_decref(list);
    return ln_gguf_put(m, full, "partial_rotary_factor", json_real(n ? (double)turning / (double)n : 1));
}

ln_status ln_gguf_put_gemma4(const ln_gguf_making *m) {
    char name[40];
    int64_t kv = 0, kv_full = 0;
    const json_t *types = json_object_get(m->out, "layer_types");
    const ln_gguf_tensor *inputs = ln_gguf_tensor_named(m->g, "per_layer_token_embd.weight");
    bool shared = false;
    LN_TRY(of_kind(m, "attention.head_count_kv", true, &kv));
    LN_TRY(of_kind(m, "attention.head_count_kv", false, &kv_full));
    LN_TRY(ln_gguf_put(m, m->out, "num_key_value_heads", json_integer(kv)));
    for (size_t l = 0; l < json_array_size(types) && !shared; l++) {
        (void)snprintf(name, sizeof name, "blk.%zu.attn_k.weight", l);
        const bool keys = ln_gguf_has(m, name);
        (void)snprintf(name, sizeof name, "blk.%zu.attn_v.weight", l);
        shared = keys && !ln_gguf_has(m, name);
    }
    LN_TRY(ln_gguf_put(m, m->out, "attention_k_eq_v", json_boolean(shared)));
    if (shared) LN_TRY(ln_gguf_put(m, m->out, "num_global_key_value_heads", json_integer(kv_full)));
    if (inputs) LN_TRY(ln_gguf_put(m, m->out, "vocab_size_per_layer_input", json_integer(inputs->dims[1])));
    LN_TRY(put_wide_layers(m));
    return put_kinds_of_rope(m);
}

/* ---- experts ---- */

/* Rejects files with shared experts of Granite, which the family does not have. */
static ln_status refuse_shared(const ln_gguf_making *m) {
    char key[LN_GGUF_KEY_BYTES];
    int64_t width = 0;
    bool found;
    LN_TRY(ln_gguf_read_int(m, "expert_shared_feed_forward_length", &width, &found));
    if (width == 0) return LN_OK;
    return ln_gguf_fail(m->g, ln_gguf_arch_key(key, m->arch, "expert_shared_feed_forward_length"),
                        "0, since shared experts are not supported", m->err);
}

static ln_status put_flag(const ln_gguf_making *m, const char *suffix, const char *field) {
    char key[LN_GGUF_KEY_BYTES];
    bool on = false, found;
    LN_TRY(ln_gguf_bool(m->g, ln_gguf_arch_key(key, m->arch, suffix), &on, &found, m->err));
    return found ? ln_gguf_put(m, m->out, field, json_boolean(on)) : LN_OK;
}

/* ---- layers ---- */

/* Files count the layers that predict further tokens among the blocks. */
static ln_status drop_predicting_layers(const ln_gguf_making *m) {
    char key[LN_GGUF_KEY_BYTES];
    int64_t layers = 0, more = 0;
    bool found;
    LN_TRY(ln_gguf_read_int(m, "nextn_predict_layers", &more, &found));
    LN_TRY(ln_gguf_need_int(m, "block_count", &layers));
    if (more >= layers && more > 0)
        return ln_gguf_fail(m->g, ln_gguf_arch_key(key, m->arch, "nextn_predict_layers"),
                            "less than block_count", m->err);
    return ln_gguf_put(m, m->out, "num_hidden_layers", json_integer(layers - more));
}

/* The kinds of layers, if the file lists which are recurrent. */
static ln_status put_recurrent(const ln_gguf_making *m) {
    char key[LN_GGUF_KEY_BYTES];
    int64_t values = 0, heads = 0;
    const uint64_t layers = (uint64_t)json_integer_value(json_object_get(m->out, "num_hidden_layers"));
    ln_gguf_arch_key(key, m->arch, "attention.recurrent_layers");
    const ln_gguf_value *v = ln_gguf_find(m->g, key);
    LN_TRY(ln_gguf_need_int(m, "ssm.inner_size", &values));
    LN_TRY(ln_gguf_need_int(m, "ssm.time_step_rank", &heads));
    if (heads < 1 || values % heads)
        return ln_gguf_fail(m->g, ln_gguf_arch_key(key, m->arch, "ssm.time_step_rank"),
                            "a divisor of ssm.inner_size", m->err);
    LN_TRY(ln_gguf_put(m, m->out, "linear_value_head_dim", json_integer(values / heads)));
    if (!v) return LN_OK;
    LN_TRY(ln_gguf_array(m->g, key, v->type == LN_GGUF_BOOL ? LN_GGUF_BOOL : LN_GGUF_I64, &v, m->err));
    if (v->n < layers) return ln_gguf_fail(m->g, key, "a value for each layer", m->err);
    json_t *list = json_array();
    LN_TRY(ln_gguf_put(m, m->out, "layer_types", list));
    for (uint64_t l = 0; l < layers; l++)
        if (json_array_append_new(list, json_string(ln_gguf_int_at(v, l) ? "linear_attention"
                                                                         : "full_attention")) != 0)
            return LN_OOM(m->err, "a configuration");
    return LN_OK;
}

ln_status ln_gguf_put_conv_layers(const ln_gguf_making *m, int64_t *kv) {
    char key[LN_GGUF_KEY_BYTES];
    int64_t layers = 0;
    const ln_gguf_value *v;
    json_t *list = json_array();
    LN_TRY(ln_gguf_put(m, m->out, "layer_types", list));
    LN_TRY(ln_gguf_need_int(m, "block_count", &layers));
    LN_TRY(need_array(m, "attention.head_count_kv", (uint64_t)layers, &v));
    *kv = 0;
    for (int64_t l = 0; l < layers; l++) {
        const int64_t n = ln_gguf_int_at(v, (uint64_t)l);
        if (n < 0 || (n > 0 && *kv > 0 && n != *kv))
            return ln_gguf_fail(m->g, ln_gguf_arch_key(key, m->arch, "attention.head_count_kv"),
                                "the same number in each layer with attention, 0 in the others", m->err);
        if (n > 0) *kv = n;
        if (json_array_append_new(list, json_string(n > 0 ? "full_attention" : "conv")) != 0)
            return LN_OOM(m->err, "a configuration");
    }
    return LN_OK;
}

/* ---- Muse Glimmer ---- */

/* Reads the number that all elements of a tensor are. */
static ln_status read_uniform(const ln_gguf_making *m, const char *name, double *out) {
    char path[LN_PATH_TEXT];
    json_t *list;
    LN_TRY(ln_gguf_divisors(m, name, &list));
    bool same = json_array_size(list) > 0;
    *out = json_real_value(json_array_get(list, 0));
    for (size_t i = 0; i < json_array_size(list); i++)
        same = same && json_real_value(json_array_get(list, i)) == *out;
    json_decref(list);
    if (same) return LN_OK;
    return ln_fail(m->err, LN_EINVALID, "%s: tensor %s: expected one number for all columns, found %s",
                   ln_path_text(path, m->g->files[0].path), name, list ? "several" : "no such tensor");
}

/* The factor of queries is stored as a norm of theirs, and that of keys is 1. Full layers have no RoPE. */
static ln_status put_muse(const ln_gguf_making *m) {
    char name[64], path[LN_PATH_TEXT];
    const json_t *types = json_object_get(m->out, "layer_types");
    double theta = 10000, factor = 1, first = 1, keys = 1;
    bool found;
    json_t *thetas = json_array();
    LN_TRY(ln_gguf_put(m, m->out, "layer_rope_theta", thetas));
    LN_TRY(ln_gguf_read_real(m, "rope.freq_base", &theta, &found));
    if (json_array_size(types) == 0)
        return ln_gguf_fail(m->g, "muse-glimmer.attention.sliding_window_pattern", "a value for each layer",
                            m->err);
    for (size_t l = 0; l < json_array_size(types); l++) {
        const bool turns = ln_json_is_text(json_array_get(types, l), "sliding_attention");
        (void)snprintf(name, sizeof name, "blk.%zu.attn_q_norm.weight", l);
        LN_TRY(read_uniform(m, name, &factor));
        (void)snprintf(name, sizeof name, "blk.%zu.attn_k_norm.weight", l);
        LN_TRY(read_uniform(m, name, &keys));
        if (l == 0) first = factor;
        if (keys != 1 || factor != first)
            return ln_fail(m->err, LN_EUNSUPPORTED,
                           "%s: tensor %s: factors of queries that differ by layer, or factors of keys, are "
                           "not supported",
                           ln_path_text(path, m->g->files[0].path), name);
        if (json_array_append_new(thetas, turns ? ln_gguf_real_of(theta) : json_integer(0)) != 0)
            return LN_OOM(m->err, "a configuration");
    }
    return ln_gguf_put(m, m->out, "qk_scale_factor", ln_gguf_real_of(first));
}

/* ---- Granite with windows ---- */

/* The bases of RoPE by layer, 0 for none, if the file lists which layers turn. */
static ln_status put_turning_layers(const ln_gguf_making *m) {
    char key[LN_GGUF_KEY_BYTES];
    double theta = 10000;
    bool found;
    const uint64_t layers = (uint64_t)json_integer_value(json_object_get(m->out, "num_hidden_layers"));
    const ln_gguf_value *v = ln_gguf_find(m->g, ln_gguf_arch_key(key, m->arch, "attention.rope_pattern"));
    if (!v) return LN_OK;
    LN_TRY(ln_gguf_array(m->g, key, v->type == LN_GGUF_BOOL ? LN_GGUF_BOOL : LN_GGUF_I64, &v, m->err));
    if (v->n < layers) return ln_gguf_fail(m->g, key, "a value for each layer", m->err);
    LN_TRY(ln_gguf_read_real(m, "rope.freq_base", &theta, &found));
    json_t *list = json_array();
    LN_TRY(ln_gguf_put(m, m->out, "layer_rope_theta", list));
    for (uint64_t l = 0; l < layers; l++)
        if (json_array_append_new(list, ln_gguf_int_at(v, l) ? ln_gguf_real_of(theta) : json_integer(0)) != 0)
            return LN_OOM(m->err, "a configuration");
    return LN_OK;
}

/* ---- the whole ---- */

ln_status ln_gguf_put_facts(const ln_gguf_making *m) {
    switch (m->arch) {
    case LN_GGUF_ARCH_GEMMA4: return ln_gguf_put_gemma4(m);
    case LN_GGUF_ARCH_QWEN3MOE: /* llama.cpp implies it */
        return ln_gguf_put(m, m->out, "norm_topk_prob", json_true());
    case LN_GGUF_ARCH_GRANITEMOE: return refuse_shared(m);
    case LN_GGUF_ARCH_GLM4MOE:
        LN_TRY(put_flag(m, "expert_weights_norm", "norm_topk_prob"));
        return drop_predicting_layers(m);
    case LN_GGUF_ARCH_QWEN35:
    case LN_GGUF_ARCH_QWEN35MOE: LN_TRY(drop_predicting_layers(m)); return put_recurrent(m);
    case LN_GGUF_ARCH_LFM2: /* the width of the file is the adjusted one */
        return ln_gguf_put(m, m->out, "block_auto_adjust_ff_dim", json_false());
    case LN_GGUF_ARCH_MUSE_GLIMMER: return put_muse(m);
    case LN_GGUF_ARCH_GRANITE_SWA: return put_turning_layers(m);
    default: return LN_OK;
    }
}
