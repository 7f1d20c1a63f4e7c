/* From config.json to the model's specification: real configurations of every family with each field
 * removed in turn, compared with what the reference's classes derive from them (strips.h); the catalogue
 * of bad configurations (C-1 ...); the two spellings of the RoPE parameters. */
/* run: quick asan */
#include "../io/io_test.h"

#include "model/spec.h"
#include "strips.h"

/* Writes the text as test_dir/NAME/config.json and reads it as a spec. */
static ln_status read_spec(const char *json, size_t bytes, ln_spec *s, ln_error *err) {
    put("c/config.json", json, bytes);
    ln_config c;
    ln_status st = ln_config_open(&c, at("c"), err);
    if (st != LN_OK) return st;
    st = ln_spec_open(s, &c, err);
    ln_config_close(&c);
    return st;
}

/* ---- facts as text, name=value ---- */

static void add_rope(char *out, size_t cap, const ln_spec *s, const char *name, const ln_layer *l) {
    size_t n = strlen(out);
    if (!l) {
        (void)snprintf(out + n, cap - n, " %s=-", name);
        return;
    }
    const ln_rope *r = &s->ropes[s->attn[l->attn].rope];
    (void)snprintf(out + n, cap - n, " %s=%.4g/%.4g/%.4g", name, r->theta, (double)r->freqs[r->n / 2],
                   (double)r->freqs[r->n - 1]);
}

/* Writes the facts of a spec in the format of strips.h. */
static void describe(char *out, size_t cap, const ln_spec *s) {
    const ln_layer *full = NULL, *local = NULL;
    int sliding = 0, first = -1;
    int64_t window = 0;
    for (int l = s->L - 1; l >= 0; l--) {
        int64_t w = ln_attn_of(s, l)->window;
        if (w) window = w, sliding++, first = l, local = &s->layers[l];
        else full = &s->layers[l];
    }
    (void)snprintf(out, cap,
                   "V=%lld D=%lld F=%lld L=%d H=%d K=%d E=%d ctx=%lld eps=%.4g act=%s scale=%.4g "
                   "bias=%d%d%d%d mlp=%d qk=%d post=%d off=%d es=%.4g "
                   "tied=%d window=%lld sliding=%d first=%d",
                   (long long)s->V, (long long)s->D, (long long)s->ffn[0].F, s->L, s->attn[0].H, s->attn[0].K,
                   s->attn[0].E, (long long)s->n_ctx, s->eps, s->ffn[0].act == LN_ACT_SILU ? "silu" : "gelu",
                   (double)s->attn[0].scale, s->attn[0].q_bias, s->attn[0].k_bias, s->attn[0].v_bias,
                   s->attn[0].o_bias, s->ffn[0].bias, s->attn[0].qk_norm, s->post_norms, (int)s->norm_offset,
                   (double)s->embed_scale, s->tied, (long long)window, sliding, first);
    add_rope(out, cap, s, "full", full);
    add_rope(out, cap, s, "local", local);
}

/* Writes `full` with the facts of `changes` in place of those of the same name. */
static void change(char *out, size_t cap, const char *full, const char *changes) {
    out[0] = '\0';
    for (const char *w = full; *w;) {
        size_t len = strcspn(w, " "), name = strcspn(w, "=") + 1, n = strlen(out);
        const char *take = w;
        size_t take_len = len;
        for (const char *c = changes; *c; c += strcspn(c, " "), c += *c == ' ')
            if (strncmp(c, w, name) == 0) take = c, take_len = strcspn(c, " ");
        (void)snprintf(out + n, cap - n, "%s%.*s", n ? " " : "", (int)take_len, take);
        w += len + (w[len] == ' ');
    }
}

typedef struct model {
    const char *name, *json, *full;
    const strip *strips;
    size_t n_strips;
} model;
#define MODEL(x) \
    { #x, x##_json, x##_full, x##_strips, LN_COUNT(x##_strips) }
static const model models[] = {MODEL(llama31_8b), MODEL(llama32_1b), MODEL(qwen25_05b), MODEL(qwen3_06b),
                               MODEL(gemma3_1b),  MODEL(gemma3_4b),  MODEL(qwen3_new),  MODEL(gemma3_new)};

static void check_one(const model *m, const char *field, json_t *root, const char *changes) {
    char got[1024], want[1024], id[128];
    (void)snprintf(id, sizeof id, "%s without %s", m->name, field);
    char *text = json_dumps(root, 0);
    ln_error err = {0};
    ln_spec s;
    ln_status st = read_spec(text, strlen(text), &s, &err);
    free(text);
    if (!changes) {
        expect(id, LN_EINVALID, "expected", st, &err);
        return;
    }
    expect(id, LN_OK, "", st, &err);
    describe(got, sizeof got, &s);
    change(want, sizeof want, m->full, changes);
    if (strcmp(got, want) != 0) fail_msg("%s:\n  got  %s\n  want %s", id, got, want);
    ln_spec_close(&s);
}

static int check_fields(const model *m, json_t *root, const char *prefix, bool *matched) {
    char field[128];
    int n = 0;
    json_t *whole = json_loads(m->json, 0, NULL),
           *object = prefix[0] ? json_object_get(whole, "text_config") : whole;
    for (void *it = json_object_iter(object); it; it = json_object_iter_next(object, it), n++) {
        const char *key = json_object_iter_key(it), *changes = "";
        (void)snprintf(field, sizeof field, "%s%s", prefix, key);
        for (size_t k = 0; k < m->n_strips; k++)
            if (strcmp(m->strips[k].field, field) == 0) changes = m->strips[k].changes, matched[k] = true;
        json_t *copy = json_deep_copy(root);
        assert_int_equal(json_object_del(prefix[0] ? json_object_get(copy, "text_config") : copy, key), 0);
        check_one(m, field, copy, changes);
        json_decref(copy);
    }
    json_decref(whole);
    return n;
}

static void test_strips(void **state) {
    (void)state;
    int n = 0;
    for (size_t i = 0; i < LN_COUNT(models); i++) {
        bool matched[64] = {false};
        json_t *root = json_loads(models[i].json, 0, NULL);
        assert_non_null(root);
        check_one(&models[i], "nothing", root, "");
        n += check_fields(&models[i], root, "", matched);
        if (json_object_get(root, "text_config"))
            n += check_fields(&models[i], root, "text_config.", matched);
        for (size_t k = 0; k < models[i].n_strips; k++)
            if (!matched[k]) fail_msg("%s: no field %s", models[i].name, models[i].strips[k].field);
        json_decref(root);
    }
    print_message("%zu configurations, %d fields stripped\n", LN_COUNT(models), n);
    assert_true(n > 150);
}

/* ---- bad configurations ---- */

#define LLAMA "\"model_type\":\"llama\""
#define SMALL LLAMA ",\"hidden_size\":64,\"num_attention_heads\":4,\"num_key_value_heads\":2"
#define QWEN  "\"model_type\":\"qwen3\",\"num_hidden_layers\":2"
#define GEMMA "\"model_type\":\"gemma3_text\""

static const struct {
    const char *id, *json;
    ln_status want;
    const char *word;
} rows[] = {
    {"C-1 empty", "", LN_EINVALID, "empty"},
    {"C-1 not JSON", "hello", LN_EINVALID, ""},
    {"C-1 array", "[]", LN_EINVALID, "object"},
    {"C-2", "{" LLAMA ",\"hidden_size\":64,\"hidden_size\":65}", LN_EINVALID, ""},
    {"C-3", "{\"model_type\":\"mamba\"}", LN_EUNSUPPORTED, "gemma3, gemma3_text, gemma4, gemma4_text, "},
    {"C-3 gemma3n", "{\"model_type\":\"gemma3n\"}", LN_EUNSUPPORTED, "gemma3n"},
    {"C-3 mistral4", "{\"model_type\":\"mistral4\"}", LN_EUNSUPPORTED, "mistral4"},
    {"C-3 experts", "{\"model_type\":\"deepseek_v3\"}", LN_EUNSUPPORTED,
     "deepseek_v3 is not supported: it needs latent attention (MLA); linnet knows"},
    {"C-3 none", "{}", LN_EUNSUPPORTED, "no model_type"},
    {"C-3 architecture", "{\"architectures\":[\"MambaForCausalLM\"]}", LN_EUNSUPPORTED, "model_type"},
    {"C-3 known architecture", "{\"architectures\":[\"LlamaForCausalLM\"]}", LN_OK, ""},
    {"C-3 number", "{\"model_type\":1}", LN_EINVALID, "model_type"},
    {"C-3 escape", "{\"model_type\":\"\\u001b[31m\"}", LN_EUNSUPPORTED, "\\u001b"},
    {"C-4", "{" LLAMA ",\"auto_map\":{\"AutoModel\":\"x.py\"}}", LN_OK, ""},
    {"C-5 0", "{" LLAMA ",\"num_attention_heads\":0}", LN_EINVALID,
     "num_attention_heads: expected an integer from 1 to 4096, found 0"},
    {"C-5 -1", "{" LLAMA ",\"num_attention_heads\":-1}", LN_EINVALID, "found -1"},
    {"C-5 2^31", "{" LLAMA ",\"num_attention_heads\":2147483648}", LN_EINVALID, "num_attention_heads"},
    {"C-5 1.5", "{" LLAMA ",\"num_attention_heads\":1.5}", LN_EINVALID, "found 1.5"},
    {"C-5 32.0", "{" LLAMA ",\"num_attention_heads\":32.0}", LN_EINVALID, "num_attention_heads"},
    {"C-5 text", "{" LLAMA ",\"num_attention_heads\":\"32\"}", LN_EINVALID, "found \"32\""},
    {"C-5 null", "{" LLAMA ",\"num_attention_heads\":null}", LN_EINVALID, "found null"},
    {"C-5 true", "{" LLAMA ",\"num_attention_heads\":true}", LN_EINVALID, "found true"},
    {"C-5 1e30", "{" LLAMA ",\"num_attention_heads\":1000000000000000000000000000000}", LN_EINVALID,
     "num_attention_heads"},
    {"C-6", "{" LLAMA ",\"hidden_size\":65,\"num_attention_heads\":4}", LN_EINVALID, "hidden_size is 65"},
    {"C-6 with head_dim", "{" LLAMA ",\"hidden_size\":65,\"num_attention_heads\":4,\"head_dim\":16}", LN_OK,
     ""},
    {"C-7 0", "{" LLAMA ",\"num_key_value_heads\":0}", LN_EINVALID, "num_key_value_heads"},
    {"C-7 more than heads", "{" LLAMA ",\"num_key_value_heads\":64}", LN_EINVALID,
     "num_key_value_heads is 64"},
    {"C-7 no divisor", "{" LLAMA ",\"num_key_value_heads\":5}", LN_EINVALID, "expected a divisor"},
    {"C-7 null", "{" LLAMA ",\"num_key_value_heads\":null}", LN_OK, ""},
    {"C-7 null, gemma", "{" GEMMA ",\"num_key_value_heads\":null}", LN_EINVALID, "found null"},
    {"C-8 0", "{" LLAMA ",\"head_dim\":0}", LN_EINVALID, "head_dim"},
    {"C-8 odd", "{" LLAMA ",\"head_dim\":15}", LN_EINVALID, "even"},
    {"C-8 10^6", "{" LLAMA ",\"head_dim\":1000000}", LN_EINVALID, "head_dim"},
    {"C-8 1,024", "{" LLAMA ",\"head_dim\":1024}", LN_OK, ""},
    {"C-8 1,026", "{" LLAMA ",\"head_dim\":1026}", LN_EINVALID, "1024"},
    {"C-8 null", "{" LLAMA ",\"head_dim\":null}", LN_OK, ""},
    {"C-8 null, qwen3", "{" QWEN ",\"head_dim\":null}", LN_EINVALID, "found null"},
    {"C-9 0", "{" LLAMA ",\"num_hidden_layers\":0}", LN_EINVALID, "num_hidden_layers"},
    {"C-9 10^9", "{" LLAMA ",\"num_hidden_layers\":1000000000}", LN_EINVALID, "num_hidden_layers"},
    {"limit: 4,096 layers", "{" SMALL ",\"num_hidden_layers\":4096}", LN_OK, ""},
    {"limit: 4,097 layers", "{" SMALL ",\"num_hidden_layers\":4097}", LN_EINVALID, "num_hidden_layers"},
    {"limit: width 2^20", "{" LLAMA ",\"hidden_size\":1048576,\"head_dim\":64}", LN_OK, ""},
    {"limit: width 2^20 + 1", "{" LLAMA ",\"hidden_size\":1048577,\"head_dim\":64}", LN_EINVALID,
     "hidden_size"},
    {"limit: 4,096 heads", "{" LLAMA ",\"num_attention_heads\":4096,\"head_dim\":64}", LN_OK, ""},
    {"limit: 4,097 heads", "{" LLAMA ",\"num_attention_heads\":4097,\"head_dim\":64}", LN_EINVALID,
     "num_attention_heads"},
    {"limit: vocabulary 2^22", "{" LLAMA ",\"vocab_size\":4194304}", LN_OK, ""},
    {"limit: vocabulary 2^22 + 1", "{" LLAMA ",\"vocab_size\":4194305}", LN_EINVALID, "vocab_size"},
    {"C-11 0", "{" LLAMA ",\"max_position_embeddings\":0}", LN_EINVALID, "max_position_embeddings"},
    {"C-11 2^63", "{" LLAMA ",\"max_position_embeddings\":9223372036854775808}", LN_EINVALID,
     "max_position_embeddings"},
    {"C-12 0", "{" LLAMA ",\"rope_theta\":0}", LN_EINVALID, "rope_theta"},
    {"C-12 negative", "{" LLAMA ",\"rope_theta\":-10000.0}", LN_EINVALID, "rope_theta"},
    {"C-12 NaN", "{" LLAMA ",\"rope_theta\":NaN}", LN_EINVALID, ""},
    {"C-12 Infinity", "{" LLAMA ",\"rope_theta\":Infinity}", LN_EINVALID, ""},
    {"C-12 1e400", "{" LLAMA ",\"rope_theta\":1e400}", LN_EINVALID, ""},
    {"C-12 inside", "{" LLAMA ",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":0}}",
     LN_EINVALID, "rope_parameters.rope_theta"},
    {"C-13 yarn", "{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4.0}}", LN_OK, ""},
    {"C-13 yarn without a factor", "{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"yarn\"}}", LN_EINVALID,
     "rope_scaling.factor"},
    {"C-13 yarn, theta 1",
     "{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4.0,\"rope_theta\":1}}", LN_EINVALID,
     "a rope_theta above 1"},
    {"C-13 yarn, negative attention_factor",
     "{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4.0,\"attention_factor\":-1}}",
     LN_EINVALID, "attention_factor"},
    {"C-13 yarn, truncate",
     "{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4.0,\"truncate\":\"no\"}}", LN_EINVALID,
     "truncate"},
    {"C-13 dynamic, old name", "{" LLAMA ",\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":4.0}}", LN_OK,
     ""},
    {"C-13 dynamic without a factor", "{" LLAMA ",\"rope_scaling\":{\"type\":\"dynamic\"}}", LN_EINVALID,
     "rope_scaling.factor"},
    {"C-13 dynamic below 1", "{" LLAMA ",\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":0.5}}",
     LN_EINVALID, "rope_scaling.factor"},
    {"C-13 longrope", "{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"longrope\",\"long_factor\":[1]}}",
     LN_EINVALID, "rope_scaling.short_factor"},
    {"C-13 gemma, one kind",
     "{" GEMMA ",\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"longrope\",\"factor\":2}}}",
     LN_EINVALID, "full_attention.short_factor"},
    {"C-13 unknown type", "{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"spiral\"}}", LN_EUNSUPPORTED,
     "spiral"},
    {"part of a head, odd", "{\"model_type\":\"glm4\",\"partial_rotary_factor\":0.04}", LN_EINVALID,
     "partial_rotary_factor"},
    {"list of layers without RoPE", "{\"model_type\":\"smollm3\",\"no_rope_layers\":[1,2]}", LN_EINVALID,
     "no_rope_layers"},
    {"wrapper of another text model",
     "{\"model_type\":\"mistral3\",\"text_config\":{\"model_type\":\"mistral4\"}}", LN_EUNSUPPORTED,
     "text_config.model_type mistral4"},
    {"window of a class without", "{\"model_type\":\"granite\",\"sliding_window\":128}", LN_EUNSUPPORTED,
     "sliding_window"},
    {"an input for each layer", "{\"model_type\":\"gemma4_text\"}", LN_OK, ""},
    {"a table of inputs that lacks ids",
     "{\"model_type\":\"gemma4_text\",\"vocab_size\":300,\"vocab_size_per_layer_input\":299}", LN_EINVALID,
     "vocab_size_per_layer_input: expected at least vocab_size"},
    {"no input for each layer", "{\"model_type\":\"gemma4_text\",\"hidden_size_per_layer_input\":0}", LN_OK,
     ""},
    {"a unified model has none",
     "{\"model_type\":\"gemma4_unified_text\",\"use_bidirectional_attention\":\"vision\"}", LN_OK, ""},
    {"text that is not causal",
     "{\"model_type\":\"gemma4_unified_text\",\"use_bidirectional_attention\":\"all\"}", LN_EUNSUPPORTED,
     "use_bidirectional_attention"},
    {"shared layers without an owner",
     "{\"model_type\":\"gemma4_unified_text\",\"num_hidden_layers\":6,\"num_kv_shared_layers\":6}",
     LN_EINVALID, "num_kv_shared_layers"},
    {"a layer's own unknown number",
     "{\"model_type\":\"gemma4_unified_text\",\"per_layer_config\":{\"05\":{\"hidden_size\":8}}}",
     LN_EINVALID, "per_layer_config"},
    {"numbers of a layer that does not exist",
     "{\"model_type\":\"gemma4_unified_text\",\"per_layer_config\":{\"30\":{\"head_dim\":8}}}", LN_EINVALID,
     "numbers of layers as keys"},
    {"heads that do not divide",
     "{\"model_type\":\"gemma4_unified_text\",\"per_layer_config\":{\"05\":{\"num_key_value_heads\":3}}}",
     LN_EINVALID, "per_layer_config"},
    {"caps null",
     "{\"model_type\":\"gemma2\",\"attn_logit_softcapping\":null,\"final_logit_softcapping\":null}", LN_OK,
     ""},
    {"cap 0", "{\"model_type\":\"gemma2\",\"attn_logit_softcapping\":0}", LN_EINVALID,
     "attn_logit_softcapping"},
    {"cap text", "{\"model_type\":\"gemma2\",\"final_logit_softcapping\":\"30\"}", LN_EINVALID,
     "final_logit_softcapping"},
    {"bases of too few layers",
     "{\"model_type\":\"granite_swa\",\"num_hidden_layers\":3,\"layer_rope_theta\":[1e4]}", LN_EINVALID,
     "a list of 3 bases"},
    {"a base below 0", "{\"model_type\":\"granite_swa\",\"num_hidden_layers\":1,\"layer_rope_theta\":[-1]}",
     LN_EINVALID, "layer_rope_theta"},
    {"a base that is text",
     "{\"model_type\":\"granite_swa\",\"num_hidden_layers\":1,\"layer_rope_theta\":[\"1\"]}", LN_EINVALID,
     "layer_rope_theta"},
    {"bases by layer and by kind",
     "{\"model_type\":\"granite_swa\",\"num_hidden_layers\":3,\"layer_rope_theta\":[1,2,3],\"rope_"
     "parameters\":{"
     "\"sliding_attention\":{\"rope_type\":\"default\"}}}",
     LN_EINVALID, "rope_parameters: expected parameters for all layers"},
    {"bases by layer, scaling by kind",
     "{\"model_type\":\"granite_swa\",\"num_hidden_layers\":1,\"layer_rope_theta\":[1],\"rope_scaling\":{"
     "\"full_attention\":{\"rope_type\":\"default\"}}}",
     LN_EINVALID, "rope_scaling: expected parameters for all layers"},
    {"an odd width of full layers", "{\"model_type\":\"gemma4_unified_text\",\"global_head_dim\":511}",
     LN_EINVALID, "global_head_dim: expected an even number"},
    {"key heads of full layers that do not divide",
     "{\"model_type\":\"gemma4_unified_text\",\"attention_k_eq_v\":true,\"num_global_key_value_heads\":3}",
     LN_EINVALID, "num_global_key_value_heads: expected a divisor"},
    {"no temperature",
     "{\"model_type\":\"ministral3\",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":1e4}}",
     LN_EINVALID, "llama_4_scaling_beta"},
    {"no positions of the temperature",
     "{\"model_type\":\"ministral3\",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":1e4,"
     "\"llama_4_scaling_beta\":0.1}}",
     LN_EINVALID, "original_max_position_embeddings"},
    {"key of another family", "{\"model_type\":\"mistral\",\"embedding_multiplier\":12}", LN_EUNSUPPORTED,
     "embedding_multiplier"},
    {"an older name of an activation", "{\"model_type\":\"gemma\",\"hidden_act\":\"gelu\"}", LN_OK, ""},
    {"biases of attention alone", "{\"model_type\":\"internlm3\",\"qkv_bias\":true}", LN_EUNSUPPORTED,
     "qkv_bias (attention_bias) is true and bias (mlp_bias) is false"},
    {"names of one class, mixed", "{\"model_type\":\"internlm3\",\"qkv_bias\":true,\"mlp_bias\":true}", LN_OK,
     ""},
    {"the older name precedes",
     "{\"model_type\":\"internlm3\",\"attention_bias\":true,\"qkv_bias\":false,\"bias\":true}",
     LN_EUNSUPPORTED, "qkv_bias (attention_bias) is false and bias (mlp_bias) is true"},
    {"layers by number", "{\"model_type\":\"lfm2\",\"full_attn_idxs\":[2,5,8],\"num_heads\":3}", LN_OK, ""},
    {"layers by number, none", "{\"model_type\":\"lfm2\",\"full_attn_idxs\":[]}", LN_EUNSUPPORTED,
     "a model without full_attention"},
    {"layers by number, no list", "{\"model_type\":\"lfm2\",\"full_attn_idxs\":3}", LN_EINVALID,
     "full_attn_idxs"},
    {"a class without default layers", "{\"model_type\":\"lfm2_moe\"}", LN_EINVALID, "layer_types"},
    {"a kind that the class lacks",
     "{\"model_type\":\"lfm2\",\"num_hidden_layers\":2,\"layer_types\":[\"full_attention\","
     "\"sliding_attention\"]}",
     LN_EUNSUPPORTED, "sliding_attention"},
    {"key that the class ignores", "{\"model_type\":\"hunyuan_v1_dense\",\"use_qk_norm\":true}", LN_OK, ""},
    {"C-13 no factor", "{" LLAMA ",\"rope_scaling\":{\"type\":\"linear\"}}", LN_EINVALID, "factor"},
    {"C-13 factor 0", "{" LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":0}}", LN_EINVALID,
     "factor"},
    {"C-13 factor text", "{" LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":\"2\"}}", LN_EINVALID,
     "factor"},
    {"C-13 llama3, no low",
     "{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"high_freq_factor\":4}}",
     LN_EINVALID, "low_freq_factor"},
    {"C-13 llama3, low = high",
     "{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"high_freq_factor\":4,\"low_freq_"
     "factor\":4}}",
     LN_EINVALID, "high_freq_factor"},
    {"C-13 llama3, original 0",
     "{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"high_freq_factor\":4,\"low_freq_"
     "factor\":1,"
     "\"original_max_position_embeddings\":0}}",
     LN_EINVALID, "original_max_position_embeddings"},
    {"C-13 a list", "{" LLAMA ",\"rope_scaling\":[1]}", LN_EINVALID, "rope_scaling"},
    {"C-13 type a number", "{" LLAMA ",\"rope_scaling\":{\"type\":1}}", LN_EINVALID, "rope_type"},
    {"C-13 partial", "{" LLAMA ",\"partial_rotary_factor\":0.5}", LN_EUNSUPPORTED, "partial_rotary_factor"},
    {"C-13 partial of 1", "{" LLAMA ",\"partial_rotary_factor\":1.0}", LN_OK, ""},
    {"C-13 null", "{" LLAMA ",\"rope_scaling\":null}", LN_OK, ""},
    {"C-14 0", "{" LLAMA ",\"rms_norm_eps\":0}", LN_OK, ""},
    {"C-14 negative", "{" LLAMA ",\"rms_norm_eps\":-1e-6}", LN_EINVALID, "rms_norm_eps"},
    {"C-14 1e400", "{" LLAMA ",\"rms_norm_eps\":1e400}", LN_EINVALID, ""},
    {"C-14 text", "{" LLAMA ",\"rms_norm_eps\":\"1e-6\"}", LN_EINVALID, "rms_norm_eps"},
    {"C-15", "{" LLAMA ",\"hidden_act\":\"relu\"}", LN_EUNSUPPORTED, "relu"},
    {"C-15 exact gelu", "{" GEMMA ",\"hidden_activation\":\"gelu\"}", LN_EUNSUPPORTED, "gelu"},
    {"C-15 swish", "{" LLAMA ",\"hidden_act\":\"swish\"}", LN_OK, ""},
    {"C-15 number", "{" LLAMA ",\"hidden_act\":1}", LN_EINVALID, "hidden_act"},
    {"C-15 gemma does not read hidden_act", "{" GEMMA ",\"hidden_act\":\"relu\"}", LN_OK, ""},
    {"C-17 gptq", "{" LLAMA ",\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4}}", LN_OK, ""},
    {"C-17 hqq", "{" LLAMA ",\"quantization_config\":{\"quant_method\":\"hqq\",\"nbits\":4}}",
     LN_EUNSUPPORTED, "hqq"},
    {"C-17 mlx", "{" LLAMA ",\"quantization\":{\"bits\":4,\"group_size\":64}}", LN_OK, ""},
    {"C-17 mlx for the hub",
     "{" LLAMA ",\"quantization_config\":{\"bits\":3,\"group_size\":32,\"mode\":\"affine\"}}", LN_OK, ""},
    {"C-17 first block counts",
     "{" LLAMA ",\"quantization\":{\"bits\":8,\"group_size\":128},\"quantization_config\":{\"quant_method\":"
     "\"x\"}}",
     LN_OK, ""},
    {"C-17 7 bits", "{" LLAMA ",\"quantization\":{\"bits\":7,\"group_size\":64}}", LN_EUNSUPPORTED, "7 bits"},
    {"C-17 bits as text", "{" LLAMA ",\"quantization\":{\"bits\":\"4\",\"group_size\":64}}", LN_EINVALID,
     "quantization.bits"},
    {"C-17 bits 0", "{" LLAMA ",\"quantization\":{\"bits\":0,\"group_size\":64}}", LN_EINVALID,
     "quantization.bits"},
    {"C-17 no bits", "{" LLAMA ",\"quantization\":{\"group_size\":64}}", LN_EINVALID, "quantization.bits"},
    {"C-17 no group", "{" LLAMA ",\"quantization\":{\"bits\":4}}", LN_EINVALID, "quantization.group_size"},
    {"C-17 group 16", "{" LLAMA ",\"quantization\":{\"bits\":4,\"group_size\":16}}", LN_EUNSUPPORTED,
     "groups of 16"},
    {"C-17 mxfp4", "{" LLAMA ",\"quantization\":{\"bits\":4,\"group_size\":32,\"mode\":\"mxfp4\"}}", LN_OK,
     ""},
    {"C-17 nvfp4", "{" LLAMA ",\"quantization_config\":{\"bits\":4,\"group_size\":16,\"mode\":\"nvfp4\"}}",
     LN_OK, ""},
    {"C-17 mxfp8 alone", "{" LLAMA ",\"quantization\":{\"mode\":\"mxfp8\"}}", LN_OK, ""},
    {"C-17 mxfp4 in groups of 64",
     "{" LLAMA ",\"quantization\":{\"bits\":4,\"group_size\":64,\"mode\":\"mxfp4\"}}", LN_EINVALID,
     "quantization.group_size: expected 32, which mxfp4 has, found 64"},
    {"C-17 another mode", "{" LLAMA ",\"quantization\":{\"bits\":4,\"group_size\":32,\"mode\":\"mxfp6\"}}",
     LN_EUNSUPPORTED, "mxfp6"},
    {"C-17 mode 4", "{" LLAMA ",\"quantization\":{\"bits\":4,\"group_size\":32,\"mode\":4}}", LN_EINVALID,
     "quantization.mode"},
    {"C-17 true", "{" LLAMA ",\"quantization\":true}", LN_EINVALID, "quantization"},
    {"C-17 null", "{" LLAMA ",\"quantization_config\":null}", LN_OK, ""},
    {"C-17 nested",
     "{\"model_type\":\"gemma3\",\"text_config\":{\"quantization_config\":{\"quant_method\":\"aqlm\"}}}",
     LN_EUNSUPPORTED, "aqlm"},
    {"C-19 0", "{" QWEN ",\"use_sliding_window\":true,\"sliding_window\":0}", LN_EINVALID, "sliding_window"},
    {"C-19 negative", "{" GEMMA ",\"sliding_window\":-1}", LN_EINVALID, "sliding_window"},
    {"C-19 null", "{" QWEN ",\"use_sliding_window\":true,\"sliding_window\":null}", LN_OK, ""},
    {"C-19 off", "{" QWEN ",\"use_sliding_window\":false,\"sliding_window\":-5,\"max_window_layers\":-1}",
     LN_OK, ""},
    {"C-19 no pattern",
     "{" GEMMA ",\"num_hidden_layers\":1,\"layer_types\":[\"full_attention\"],\"sliding_window_pattern\":0}",
     LN_OK, ""},
    {"C-19 null, gemma", "{" GEMMA ",\"sliding_window\":null}", LN_OK, ""},
    {"C-19 pattern 0", "{" GEMMA ",\"sliding_window_pattern\":0}", LN_EINVALID, "sliding_window_pattern"},
    {"layer_types, wrong length", "{" QWEN ",\"layer_types\":[\"full_attention\"]}", LN_EINVALID, "2 kinds"},
    {"layer_types, unknown", "{" QWEN ",\"layer_types\":[\"full_attention\",\"linear_attention\"]}",
     LN_EUNSUPPORTED, "linear_attention"},
    {"layer_types, number", "{" QWEN ",\"layer_types\":[1,2]}", LN_EINVALID, "layer_types"},
    {"layer_types without a window",
     "{" QWEN ",\"layer_types\":[\"full_attention\",\"sliding_attention\"],\"sliding_window\":8}",
     LN_EINVALID, "use_sliding_window"},
    {"soft cap, attention", "{" GEMMA ",\"attn_logit_softcapping\":50.0}", LN_EUNSUPPORTED,
     "attn_logit_softcapping"},
    {"soft cap, logits", "{" GEMMA ",\"final_logit_softcapping\":30.0}", LN_EUNSUPPORTED,
     "final_logit_softcapping"},
    {"bidirectional", "{" GEMMA ",\"use_bidirectional_attention\":true}", LN_OK, ""},
    {"bidirectional in words", "{" GEMMA ",\"use_bidirectional_attention\":\"all\"}", LN_EINVALID,
     "use_bidirectional_attention"},
    {"bidirectional, another family", "{" LLAMA ",\"use_bidirectional_attention\":true}", LN_EUNSUPPORTED,
     "use_bidirectional_attention"},
    {"not bidirectional", "{" GEMMA ",\"use_bidirectional_attention\":false}", LN_OK, ""},
    {"query_pre_attn_scalar 0", "{" GEMMA ",\"query_pre_attn_scalar\":0}", LN_EINVALID,
     "query_pre_attn_scalar"},
    {"text_config no object", "{\"model_type\":\"gemma3\",\"text_config\":1}", LN_EINVALID, "text_config"},
    {"text_config of another type",
     "{\"model_type\":\"gemma3\",\"text_config\":{\"model_type\":\"gemma3n_text\"}}", LN_EUNSUPPORTED,
     "gemma3n_text"},
    {"bool as number", "{" LLAMA ",\"attention_bias\":1}", LN_EINVALID, "true or false"},
    {"C-23 01", "{" LLAMA ",\"hidden_size\":01}", LN_EINVALID, ""},
    {"C-23 +1", "{" LLAMA ",\"hidden_size\":+1}", LN_EINVALID, ""},
    {"C-23 .5", "{" LLAMA ",\"rope_theta\":.5}", LN_EINVALID, ""},
    {"C-23 1.", "{" LLAMA ",\"rope_theta\":1.}", LN_EINVALID, ""},
    {"C-23 0x10", "{" LLAMA ",\"hidden_size\":0x10}", LN_EINVALID, ""},
    {"C-23 1e99999", "{" LLAMA ",\"rope_theta\":1e99999}", LN_EINVALID, ""},
    {"C-24 comment", "{" LLAMA " /* x */}", LN_EINVALID, ""},
    {"C-24 trailing comma", "{" LLAMA ",}", LN_EINVALID, ""},
    {"C-24 single quotes", "{'model_type':'llama'}", LN_EINVALID, ""},
    {"C-25 BOM", "\xef\xbb\xbf{" LLAMA "}", LN_OK, ""},
    {"C-25 UTF-16", "\xff\xfe{", LN_EINVALID, "UTF-16LE"},
    {"C-29", "{" LLAMA ",\"_name_or_path\":\"/etc/shadow\"}", LN_OK, ""},
    {"pointer", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", LN_EINVALID,
     "Git LFS pointer"},
};

static void test_rows(void **state) {
    (void)state;
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        ln_error err = {0};
        ln_spec s;
        ln_status st = read_spec(rows[i].json, strlen(rows[i].json), &s, &err);
        expect(rows[i].id, rows[i].want, rows[i].word, st, &err);
        if (st == LN_OK) ln_spec_close(&s);
    }
    print_message("%zu configurations\n", LN_COUNT(rows));
    ln_config c;
    ln_error err = {0};
    expect("C-1 missing", LN_EIO, "config.json", ln_config_open(&c, at("nowhere"), &err), &err);
    static const char utf16[] = "{\0}\0";
    ln_spec s;
    expect("C-25 UTF-16", LN_EINVALID, "", read_spec(utf16, 4, &s, &err), &err);
    size_t n = 1000000;
    char *deep = malloc(n);
    memset(deep, '[', n);
    expect("C-28", LN_EINVALID, "", read_spec(deep, n, &s, &err), &err);
    free(deep);
}

/* ---- RoPE parameters, both spellings ---- */

/* Writes the RoPE facts of a configuration: base/frequency, one for each RoPE. */
static void ropes_of(const char *json, char *out, size_t cap) {
    ln_spec s;
    OK(read_spec(json, strlen(json), &s, err));
    out[0] = '\0';
    for (int i = 0; i < s.n_ropes; i++) {
        size_t n = strlen(out);
        (void)snprintf(out + n, cap - n, "%s%.4g/%.4g", n ? " " : "", s.ropes[i].theta,
                       (double)s.ropes[i].freqs[s.ropes[i].n / 2]);
    }
    ln_spec_close(&s);
}

static void test_spellings(void **state) {
    (void)state;
    static const struct {
        const char *json, *want;
    } cases[] = {
        {"{" LLAMA "}", "1e+04/0.01"},
        {"{" LLAMA ",\"rope_theta\":1000000}", "1e+06/0.001"},
        {"{" LLAMA ",\"rope_parameters\":{\"rope_theta\":1000000}}", "1e+06/0.001"},
        {"{" LLAMA ",\"rope_parameters\":{\"rope_type\":\"default\"},\"rope_theta\":1000000}", "1e+06/0.001"},
        {"{" LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}}", "1e+04/0.0025"},
        {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"linear\",\"type\":\"yarn\",\"factor\":4}}", "1e+04/"
                                                                                                   "0.0025"},
        /* if the old object (rope_scaling) has any content, it replaces rope_parameters as a whole */
        {"{" LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.0},\"rope_parameters\":{\"rope_"
         "theta\":5e5},\"rope_theta\":1e6}",
         "1e+06/0.0005"},
        {"{" LLAMA ",\"rope_scaling\":{},\"rope_parameters\":{\"rope_theta\":1e6},\"rope_theta\":9}",
         "1e+06/0.001"},
        /* the default of the original context is the model's own, 2,048 here, so that low frequencies
         * differ */
        {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,\"high_"
         "freq_factor\":4}}",
         "1e+04/0.00784"},
        {"{" QWEN ",\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"linear\",\"factor\":2,\"rope_"
         "theta\":1e6}}}",
         "1e+06/0.0005"},
        {"{" GEMMA "}", "1e+06/0.001 1e+04/0.01"},
        {"{" GEMMA ",\"rope_theta\":1e8,\"rope_local_base_freq\":100}", "1e+08/0.0001 100/0.1"},
        {"{" GEMMA ",\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8}}", "1e+06/0.000125 1e+04/0.01"},
        /* the reference's class starts with rope_type "default", which a `type` does not replace */
        {"{" GEMMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":8}}", "1e+06/0.001 1e+04/0.01"},
        {"{" GEMMA ",\"rope_parameters\":{\"full_attention\":{\"type\":\"linear\",\"factor\":8}}}",
         "1e+06/0.000125 1e+04/0.01"},
        {"{" GEMMA ",\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"linear\",\"factor\":8}},\"rope_"
         "theta\":1e8}",
         "1e+08/1.25e-05 1e+04/0.01"},
        {"{" GEMMA ",\"rope_parameters\":{\"sliding_attention\":{\"rope_type\":\"linear\",\"factor\":4}}}",
         "1e+06/0.001 1e+04/0.0025"},
        /* this class does not read a flat rope_parameters object */
        {"{" GEMMA ",\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":8,\"rope_theta\":5e5},\"rope_"
         "theta\":1e8}",
         "1e+08/0.0001 1e+04/0.01"},
        {"{" GEMMA ",\"sliding_window_pattern\":1}", "1e+06/0.001"},
        {"{" GEMMA ",\"num_hidden_layers\":5}", "1e+04/0.01"},
    };
    char got[256];
    for (size_t i = 0; i < LN_COUNT(cases); i++) {
        ropes_of(cases[i].json, got, sizeof got);
        if (strcmp(got, cases[i].want) != 0)
            fail_msg("%s: got %s, expected %s", cases[i].json, got, cases[i].want);
    }
}

/* Every allocation fails, once and permanently, while a configuration with all RoPE types is read: an
 * error, and no memory is leaked. */
static void test_no_memory(void **state) {
    (void)state;
    uint64_t before = ln_mem_bytes();
    int failures = 0;
    for (int persistent = 0; persistent < 2; persistent++)
        for (size_t m = 0; m < LN_COUNT(models); m++)
            for (int64_t n = 1;; n++) {
                ln_spec s;
                put_text("c/config.json", models[m].json);
                ln_config c;
                ln_error err = {0};
                ln_mem_fail_at(n, persistent);
                ln_status st = ln_config_open(&c, at("c"), &err);
                if (st == LN_OK) {
                    st = ln_spec_open(&s, &c, &err);
                    ln_config_close(&c);
                }
                ln_mem_fail_at(-1, false);
                if (st == LN_OK) ln_spec_close(&s);
                if (ln_mem_bytes() != before)
                    fail_msg("%s, allocation %d: memory is lost", models[m].name, (int)n);
                if (st == LN_OK) break;
                failures++;
            }
    print_message("%d failed allocations\n", failures);
    assert_true(failures > 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strips),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_spellings),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
