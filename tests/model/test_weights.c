/* Binding of weights to tensors: name prefixes, missing tensors and wrong shapes, a separate head in a
 * tied configuration, tensors that no weight uses, and the embedding scale. Models have dimensions of a
 * few elements and are made in memory; log messages are collected. */
/* run: quick asan */
#include "spec_of.h"

#include <fcntl.h>

#define LLAMA                                                                                            \
    "{\"model_type\":\"llama\",\"vocab_size\":5,\"hidden_size\":4,\"intermediate_size\":6,\"num_hidden_" \
    "layers\":2,\"num_attention_heads\":2,"                                                              \
    "\"num_key_value_heads\":1,\"head_dim\":8"
#define GEMMA                                                                                           \
    "{\"model_type\":\"gemma3_text\",\"vocab_size\":3,\"intermediate_size\":6,\"num_hidden_layers\":1," \
    "\"num_attention_heads\":2,"                                                                        \
    "\"num_key_value_heads\":1,\"head_dim\":2"

/* ---- a checkpoint under construction ---- */

typedef struct draft {
    ln_tensor_spec specs[128];
    char names[128][160];
    size_t n;
} draft;

static ln_tensor_spec *add(draft *d, const char *prefix, const char *name, int64_t d0, int64_t d1) {
    (void)snprintf(d->names[d->n], sizeof d->names[d->n], "%s%s", prefix, name);
    d->specs[d->n] =
        (ln_tensor_spec){.name = d->names[d->n], .dtype = LN_ST_BF16, .n_dims = d1 ? 2 : 1, .dims = {d0, d1}};
    return &d->specs[d->n++];
}
static ln_tensor_spec *get(draft *d, const char *name) {
    for (size_t i = 0; i < d->n; i++)
        if (strcmp(d->names[i], name) == 0) return &d->specs[i];
    fail_msg("no tensor %s", name);
    return NULL;
}
static void rename_to(draft *d, const char *name, const char *other) {
    ln_tensor_spec *t = get(d, name);
    (void)snprintf(d->names[t - d->specs], sizeof d->names[0], "%s", other);
}

/* Adds every tensor that the spec requires, under this prefix, without a head. */
static void fill(draft *d, const ln_spec *s, const char *prefix) {
    const ln_attn_spec *a = &s->attn[0];
    const int64_t Q = (int64_t)a->H * a->E, P = (int64_t)a->K * a->E, F = s->ffn[0].F;
    char p[96];
    d->n = 0;
    add(d, prefix, "embed_tokens.weight", s->V, s->D);
    add(d, prefix, "norm.weight", s->D, 0);
    for (int l = 0; l < s->L; l++) {
        (void)snprintf(p, sizeof p, "%slayers.%d.", prefix, l);
        add(d, p, "input_layernorm.weight", s->D, 0);
        add(d, p, "post_attention_layernorm.weight", s->D, 0);
        add(d, p, "self_attn.q_proj.weight", Q, s->D);
        add(d, p, "self_attn.k_proj.weight", P, s->D);
        add(d, p, "self_attn.v_proj.weight", P, s->D);
        add(d, p, "self_attn.o_proj.weight", s->D, Q);
        add(d, p, "mlp.gate_proj.weight", F, s->D);
        add(d, p, "mlp.up_proj.weight", F, s->D);
        add(d, p, "mlp.down_proj.weight", s->D, F);
        if (s->attn[0].q_bias)
            add(d, p, "self_attn.q_proj.bias", Q, 0), add(d, p, "self_attn.k_proj.bias", P, 0),
                add(d, p, "self_attn.v_proj.bias", P, 0);
        if (a->o_bias) add(d, p, "self_attn.o_proj.bias", s->D, 0);
        if (s->ffn[0].bias)
            add(d, p, "mlp.gate_proj.bias", F, 0), add(d, p, "mlp.up_proj.bias", F, 0),
                add(d, p, "mlp.down_proj.bias", s->D, 0);
        if (s->attn[0].qk_norm)
            add(d, p, "self_attn.q_norm.weight", a->E, 0), add(d, p, "self_attn.k_norm.weight", a->E, 0);
        if (s->post_norms)
            add(d, p, "pre_feedforward_layernorm.weight", s->D, 0),
                add(d, p, "post_feedforward_layernorm.weight", s->D, 0);
    }
}

/* Returns the draft's file, all zero except for the head's first byte when `differs`. The caller frees it. */
static uint8_t *render(const draft *d, bool differs, size_t *bytes) {
    ln_str s = {0};
    OK(ln_tensors_header(&s, d->specs, d->n, err));
    size_t data = 0, head = 0;
    for (size_t i = 0; i < d->n; i++) {
        size_t n =
            d->specs[i].dtype == LN_ST_F32 || d->specs[i].dtype == LN_ST_I32 || d->specs[i].dtype == LN_ST_U32
                ? 4
                : 2;
        for (int k = 0; k < d->specs[i].n_dims; k++) n *= (size_t)d->specs[i].dims[k];
        if (strstr(d->names[i], "lm_head")) head = data;
        data += n;
    }
    *bytes = s.len + data;
    uint8_t *p = calloc(1, *bytes + 1);
    memcpy(p, s.data, s.len);
    if (differs) p[s.len + head] = 1;
    ln_str_free(&s);
    return p;
}

/* Binds the draft's tensors. Log messages are in `logged`, one a line. The weights are closed; `keep` gets
 * a copy for its counts. */
static char logged[4096];
static void on_remark(void *user, ln_level level, const char *text) {
    (void)user;
    size_t n = strlen(logged);
    if (level <= LN_LOG_WARN) (void)snprintf(logged + n, sizeof logged - n, "%s\n", text);
}

static ln_status bind_draft(const draft *d, bool differs, ln_spec *s, ln_weights *keep, ln_error *err) {
    size_t bytes;
    uint8_t *mem = render(d, differs, &bytes);
    ln_tensors t;
    ln_weights w;
    OK(ln_tensors_open_memory(&t, "m.safetensors", mem, bytes, err));
    logged[0] = '\0';
    ln_log_set(on_remark, NULL);
    ln_status st = ln_weights_bind(&w, s, &t, err);
    ln_log_set(NULL, NULL);
    if (st == LN_OK) {
        if (keep) *keep = w; /* only its counts may be used: the tensors are closed below */
        ln_weights_close(&w);
    }
    ln_tensors_close(&t);
    free(mem);
    return st;
}

static int lines(const char *text) {
    int n = 0;
    for (; *text; text++) n += *text == '\n';
    return n;
}

/* ---- tests ---- */

static void test_prefixes(void **state) {
    (void)state;
    static const char *const prefixes[] = {"model.", "language_model.", "language_model.model.",
                                           "model.language_model.", ""};
    static draft d;
    for (size_t i = 0; i < LN_COUNT(prefixes); i++)
        for (int head = 0; head < 3; head++) {
            ln_spec s;
            spec_of(head ? LLAMA "}" : LLAMA ",\"tie_word_embeddings\":true}", &s);
            fill(&d, &s, prefixes[i]);
            if (head) add(&d, "", head == 1 ? "lm_head.weight" : "language_model.lm_head.weight", 5, 4);
            ln_weights w;
            OK(bind_draft(&d, false, &s, &w, err));
            assert_string_equal(logged, "");
            assert_int_equal(s.tied, head == 0);
            assert_int_equal(w.n, 2 + 2 * 9 + (head > 0));
            assert_int_equal(w.n_parameters,
                             20 + 4 + 2 * (4 + 4 + 64 + 32 + 32 + 64 + 24 + 24 + 24) + (head ? 20 : 0));
            assert_int_equal(w.bytes, 2 * w.n_parameters);
            ln_spec_close(&s);
        }
}

/* The tensor of each weight, and its shape and type. */
static void test_index(void **state) {
    (void)state;
    static draft d;
    ln_spec s;
    spec_of(LLAMA ",\"attention_bias\":true,\"mlp_bias\":true,\"tie_word_embeddings\":true}", &s);
    fill(&d, &s, "model.");
    size_t bytes;
    uint8_t *mem = render(&d, false, &bytes);
    ln_tensors t;
    ln_weights w;
    OK(ln_tensors_open_memory(&t, "m", mem, bytes, err));
    OK(ln_weights_bind(&w, &s, &t, err));
    assert_int_equal(w.index_fixed[LN_W_HEAD], -1);
    assert_string_equal(w.items[w.index_fixed[LN_W_EMBED]].tensor->name, "model.embed_tokens.weight");
    const ln_weight *k = &w.items[w.index_layer[1][LN_W_K]];
    assert_string_equal(k->tensor->name, "model.layers.1.self_attn.k_proj.weight");
    assert_true(k->layer == 1 && k->slot == LN_W_K && k->d0 == 8 && k->d1 == 4 && k->dtype == LN_BF16);
    const ln_weight *b = &w.items[w.index_layer[0][LN_W_DOWN_BIAS]];
    assert_true(b->d0 == 4 && b->d1 == 0 &&
                strcmp(b->tensor->name, "model.layers.0.mlp.down_proj.bias") == 0);
    assert_int_equal(w.index_layer[0][LN_W_Q_NORM], -1);
    assert_int_equal(w.index_layer[0][LN_W_EMBED], -1);
    ln_weights_close(&w);
    ln_tensors_close(&t);
    free(mem);
    ln_spec_close(&s);
}

static void refuses(const char *id, const draft *d, ln_spec *s, ln_status want, const char *word) {
    ln_error err = {0};
    expect(id, want, word, bind_draft(d, false, s, NULL, &err), &err);
}

static void test_refusals(void **state) {
    (void)state;
    static draft d;
    ln_spec s;
    spec_of(LLAMA ",\"tie_word_embeddings\":true}", &s);
    fill(&d, &s, "model.");
    rename_to(&d, "model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.other");
    refuses("S-57 one", &d, &s, LN_EINVALID,
            "1 tensors do not match config.json: model.layers.1.mlp.up_proj.weight is missing");

    fill(&d, &s, "model.");
    for (size_t i = 0; i < d.n; i++) (void)snprintf(d.names[i], sizeof d.names[i], "x.%zu", i);
    refuses("S-57 all", &d, &s, LN_EINVALID, "20 tensors do not match");
    ln_error err = {0};
    assert_int_equal(bind_draft(&d, false, &s, NULL, &err), LN_EINVALID);
    int names = 0;
    for (const char *p = err.message; (p = strstr(p, "is missing")) != NULL; p++) names++;
    assert_int_equal(names, 8);
    assert_non_null(strstr(err.message, "and more"));

    fill(&d, &s, "model.");
    get(&d, "model.layers.0.mlp.down_proj.weight")->dims[0] = 6;
    get(&d, "model.layers.0.mlp.down_proj.weight")->dims[1] = 4;
    get(&d, "model.norm.weight")->dims[0] = 3;
    rename_to(&d, "model.layers.0.self_attn.q_proj.weight", "model.q");
    refuses("S-58 transposed", &d, &s, LN_EINVALID,
            "model.layers.0.mlp.down_proj.weight: expected [4, 6], found [6, 4]");
    refuses("S-58 vector", &d, &s, LN_EINVALID, "model.norm.weight: expected [4], found [3]");
    refuses("S-57 and S-58 together", &d, &s, LN_EINVALID, "3 tensors");

    fill(&d, &s, "model.");
    get(&d, "model.embed_tokens.weight")->dims[0] = 6;
    refuses("C-10 more rows", &d, &s, LN_EINVALID, "expected [5, 4], found [6, 4]");
    fill(&d, &s, "model.");
    get(&d, "model.norm.weight")->n_dims = 2;
    get(&d, "model.norm.weight")->dims[1] = 1;
    refuses("rank", &d, &s, LN_EINVALID, "found [4, 1]");

    fill(&d, &s, "model.");
    get(&d, "model.norm.weight")->dtype = LN_ST_I32;
    refuses("S-38", &d, &s, LN_EUNSUPPORTED, "model.norm.weight is stored as I32");
    fill(&d, &s, "model.");
    add(&d, "model.", "extra", 3, 0)->dtype = LN_ST_I32;
    refuses("S-38 not needed", &d, &s, LN_OK, "");

    fill(&d, &s, "model.");
    add(&d, "model.", "layers.2.mlp.up_proj.weight", 6, 4);
    refuses("C-9", &d, &s, LN_EINVALID, "num_hidden_layers is 2");
    ln_spec_close(&s);

    spec_of("{\"model_type\":\"qwen3\",\"vocab_size\":5,\"hidden_size\":4,\"intermediate_size\":6,\"num_"
            "hidden_layers\":1,\"num_attention_heads\":2,"
            "\"num_key_value_heads\":1,\"head_dim\":8,\"tie_word_embeddings\":true}",
            &s);
    fill(&d, &s, "model.");
    refuses("qwen3", &d, &s, LN_OK, "");
    rename_to(&d, "model.layers.0.self_attn.k_norm.weight", "k");
    refuses("qwen3 without k_norm", &d, &s, LN_EINVALID, "k_norm.weight is missing");
    ln_spec_close(&s);
}

static void test_left_over(void **state) {
    (void)state;
    static draft d;
    ln_spec s;
    spec_of(LLAMA ",\"tie_word_embeddings\":true}", &s);
    fill(&d, &s, "model.");
    add(&d, "", "vision_tower.layers.7.mlp.up_proj.weight", 2, 2);
    add(&d, "model.", "vision_tower.vision_model.encoder.layers.26.self_attn.q_proj.weight", 2, 2);
    add(&d, "", "multi_modal_projector.mm_input_projection_weight", 2, 2);
    add(&d, "", "model.layers.0.self_attn.rotary_emb.inv_freq", 4, 0)->dtype = LN_ST_F32;
    refuses("known extras", &d, &s, LN_OK, "");
    assert_string_equal(logged, "");
    add(&d, "", "model.layers.0.self_attn.q_proj.bias", 16, 0);
    refuses("one more", &d, &s, LN_OK, "");
    assert_int_equal(lines(logged), 1);
    assert_non_null(strstr(logged, "1 tensors are not used: model.layers.0.self_attn.q_proj.bias"));
    for (int i = 0; i < 6; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "z\x1b%d", i);
        add(&d, "", name, 1, 0);
    }
    refuses("seven", &d, &s, LN_OK, "");
    assert_int_equal(lines(logged), 1);
    assert_non_null(strstr(logged, "7 tensors are not used"));
    assert_null(strchr(logged, 0x1b));
    ln_spec_close(&s);
}

static void test_heads(void **state) {
    (void)state;
    static draft d;
    static const struct {
        const char *id;
        bool config_tied, head, differs, tied;
        int lines;
    } cases[] = {
        {"tied, no head", true, false, false, true, 0},
        {"S-60 tied, the same head", true, true, false, true, 0},
        {"S-60 tied, another head", true, true, true, false, 1},
        {"untied, no head", false, false, false, true, 1},
        {"untied, a head", false, true, true, false, 0},
        {"untied, the same head", false, true, false, false, 0},
    };
    for (size_t i = 0; i < LN_COUNT(cases); i++) {
        ln_spec s;
        spec_of(cases[i].config_tied ? LLAMA ",\"tie_word_embeddings\":true}" : LLAMA "}", &s);
        fill(&d, &s, "model.");
        if (cases[i].head) add(&d, "", "lm_head.weight", 5, 4);
        ln_weights w;
        ln_error err = {0};
        expect(cases[i].id, LN_OK, "", bind_draft(&d, cases[i].differs, &s, &w, &err), &err);
        if (s.tied != cases[i].tied) fail_msg("%s: tied is %d", cases[i].id, s.tied);
        if (lines(logged) != cases[i].lines) fail_msg("%s: %d lines: %s", cases[i].id, lines(logged), logged);
        assert_int_equal(w.n, 20 + !cases[i].tied);
        ln_spec_close(&s);
    }
    /* A separate head of another dtype in a tied configuration unties the model; one of another shape is
     * rejected. */
    ln_spec s;
    spec_of(LLAMA ",\"tie_word_embeddings\":true}", &s);
    fill(&d, &s, "model.");
    add(&d, "", "lm_head.weight", 5, 4)->dtype = LN_ST_F32;
    refuses("another dtype", &d, &s, LN_OK, "");
    assert_false(s.tied);
    ln_spec_close(&s);
    spec_of(LLAMA ",\"tie_word_embeddings\":true}", &s);
    fill(&d, &s, "model.");
    add(&d, "", "lm_head.weight", 7, 4);
    refuses("another shape", &d, &s, LN_EINVALID, "lm_head.weight: expected [5, 4], found [7, 4]");
    ln_spec_close(&s);
}

/* safetensors.torch.save_model keeps one name of two tied tensors, lm_head.weight: it is the table of a
 * tied model, without a warning. */
static void test_table_under_the_heads_name(void **state) {
    (void)state;
    static draft d;
    static const char *const names[] = {"lm_head.weight", "language_model.lm_head.weight"};
    for (size_t i = 0; i < LN_COUNT(names); i++) {
        ln_spec s;
        ln_weights w;
        spec_of(LLAMA ",\"tie_word_embeddings\":true}", &s);
        fill(&d, &s, "model.");
        rename_to(&d, "model.embed_tokens.weight", names[i]);
        OK(bind_draft(&d, true, &s, &w, err));
        assert_string_equal(logged, "");
        assert_true(s.tied);
        assert_int_equal(w.n, 20);
        ln_spec_close(&s);
    }
    /* An untied model lacks its table then. */
    ln_spec s;
    spec_of(LLAMA "}", &s);
    fill(&d, &s, "model.");
    rename_to(&d, "model.embed_tokens.weight", "lm_head.weight");
    refuses("untied", &d, &s, LN_EINVALID, "model.embed_tokens.weight is missing");
    ln_spec_close(&s);
}

/* sqrt(1152) is 33.94: 34 in bf16, 33.9375 in f16. */
static void test_embed_scale(void **state) {
    (void)state;
    static draft d;
    static const struct {
        const char *rest;
        ln_st_dtype stored;
        ln_dtype dtype;
        float scale;
    } cases[] = {
        {",\"hidden_size\":1152,\"torch_dtype\":\"bfloat16\"}", LN_ST_BF16, LN_BF16, 34.0f},
        {",\"hidden_size\":1152,\"dtype\":\"bfloat16\"}", LN_ST_F16, LN_F16, 33.9375f},
        {",\"hidden_size\":1152,\"dtype\":\"bfloat16\"}", LN_ST_F32, LN_F32, 33.941125497f},
        {",\"hidden_size\":1152}", LN_ST_BF16, LN_BF16, 34.0f},
        {",\"hidden_size\":2560}", LN_ST_BF16, LN_BF16, 50.5f},
        {",\"hidden_size\":64}", LN_ST_BF16, LN_BF16, 8.0f},
    };
    for (size_t i = 0; i < LN_COUNT(cases); i++) {
        ln_spec s;
        char json[400];
        (void)snprintf(json, sizeof json, GEMMA "%s", cases[i].rest);
        spec_of(json, &s);
        fill(&d, &s, "model.");
        get(&d, "model.embed_tokens.weight")->dtype = cases[i].stored;
        refuses(cases[i].rest, &d, &s, LN_OK, "");
        assert_int_equal(s.dtype, cases[i].dtype);
        if (s.embed_scale != cases[i].scale)
            fail_msg("%s: scale %.9g, expected %.9g", cases[i].rest, (double)s.embed_scale,
                     (double)cases[i].scale);
        ln_spec_close(&s);
    }
    ln_spec s;
    spec_of(LLAMA ",\"tie_word_embeddings\":true,\"dtype\":\"float32\"}", &s);
    fill(&d, &s, "model.");
    refuses("C-16", &d, &s, LN_OK, "");
    assert_true(s.embed_scale == 1 && s.dtype == LN_BF16);
    ln_spec_close(&s);
}

static void test_no_memory(void **state) {
    (void)state;
    static draft d;
    ln_spec s;
    spec_of(LLAMA ",\"tie_word_embeddings\":true}", &s);
    fill(&d, &s, "model.");
    add(&d, "", "extra", 3, 0);
    size_t bytes;
    uint8_t *mem = render(&d, false, &bytes);
    ln_tensors t;
    OK(ln_tensors_open_memory(&t, "m", mem, bytes, err));
    uint64_t before = ln_mem_bytes();
    int failures = 0;
    for (int64_t n = 1;; n++) {
        ln_weights w;
        ln_mem_fail_at(n, false);
        ln_status st = ln_weights_bind(&w, &s, &t, NULL);
        ln_mem_fail_at(-1, false);
        if (st == LN_OK) ln_weights_close(&w);
        assert_int_equal(ln_mem_bytes(), before);
        if (st == LN_OK && n > 8) break;
        failures += st == LN_EMEMORY;
    }
    assert_true(failures >= 2);
    ln_tensors_close(&t);
    free(mem);
    ln_spec_close(&s);
}

/* Tensors that a tool has packed, in a directory whose config.json does not say so. */
static void test_packed_without_a_block(void **state) {
    (void)state;
    static const struct {
        const char *end, *tool;
    } cases[] = {{"qweight", "GPTQ or AWQ"},
                 {"g_idx", "quantize_config.json"},
                 {"qzeros", "AWQ"},
                 {"weight_packed", "compressed-tensors"},
                 {"weight_scale_inv", "fp8"}};
    static draft d;
    for (size_t i = 0; i < LN_COUNT(cases); i++) {
        ln_spec s;
        char name[80];
        spec_of(LLAMA "}", &s);
        fill(&d, &s, "model.");
        (void)snprintf(name, sizeof name, "layers.0.self_attn.q_proj.%s", cases[i].end);
        add(&d, "model.", name, 8, 4);
        refuses("packed", &d, &s, LN_EUNSUPPORTED, cases[i].tool);
        ln_spec_close(&s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prefixes),
        cmocka_unit_test(test_index),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_left_over),
        cmocka_unit_test(test_heads),
        cmocka_unit_test(test_packed_without_a_block),
        cmocka_unit_test(test_table_under_the_heads_name),
        cmocka_unit_test(test_embed_scale),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
