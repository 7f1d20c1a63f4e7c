/* The tables of keys: a key of config.json, generation_config.json, tokenizer_config.json or a
 * quantization block that asks for other behaviour than linnet's is rejected or logged with its name; real
 * files have no key that is missing from the tables; an unknown key is logged only at the level of -v. */
/* run: slow asan */
#include "../io/io_test.h"

#include "model/families/key_sets.h"
#include "model/family.h"
#include <fcntl.h>
#include "strips.h"

/* ---- log messages ---- */

static ln_level loudest;
static char remarks[8192];

static void on_remark(void *user, ln_level level, const char *text) {
    (void)user;
    size_t n = strlen(remarks);
    if (level <= loudest) (void)snprintf(remarks + n, sizeof remarks - n, "%s\n", text);
}

static void listen(ln_level level) {
    loudest = level;
    remarks[0] = '\0';
    ln_log_set(on_remark, NULL);
}

/* Returns the messages since `listen`, one a line; valid until the next call. */
static const char *heard(void) {
    ln_log_set(NULL, NULL);
    return remarks;
}

static int lines_of(const char *text) {
    int n = 0;
    for (const char *p = text; *p; p++) n += *p == '\n';
    return n;
}

/* ---- config.json ---- */

static ln_status read_spec(const char *json, ln_error *err) {
    ln_config c;
    ln_spec s;
    put_text("c/config.json", json);
    ln_status st = ln_config_open(&c, at("c"), err);
    if (st != LN_OK) return st;
    st = ln_spec_open(&s, &c, err);
    if (st == LN_OK) ln_spec_close(&s);
    ln_config_close(&c);
    return st;
}

static const char *const types[] = {"llama", "qwen2", "qwen3", "gemma3_text"};
static const unsigned bits[] = {LN_FAMILY_LLAMA, LN_FAMILY_QWEN2, LN_FAMILY_QWEN3, LN_FAMILY_GEMMA3};

static ln_status with_key(size_t family, const char *name, const char *value, ln_error *err) {
    char json[512];
    (void)snprintf(json, sizeof json, "{\"model_type\":\"%s\",\"num_hidden_layers\":2,\"%s\":%s}",
                   types[family], name, value);
    return read_spec(json, err);
}

/* Keys of configurations of the supported families and of related ones, written down independently of the
 * table. For each key: the values that are rejected and those that are accepted, separated by spaces. */
static const struct {
    const char *name, *refused, *fine;
    unsigned families;
} keys[] = {
    {"is_causal", "false 0 \"false\" null", "true", 15},
    {"use_bidirectional_attention", "true \"all\"", "false null",
     LN_FAMILY_LLAMA | LN_FAMILY_QWEN2 | LN_FAMILY_QWEN3},
    {"use_bidirectional_attention", "", "true false null", LN_FAMILY_GEMMA3},
    {"attention_chunk_size", "8192", "null", 15},
    {"attn_logit_softcapping", "50.0", "null", 15},
    {"final_logit_softcapping", "30.0", "null", 15},
    {"logits_scaling", "8.0", "1 1.0 null", 15},
    {"residual_multiplier", "0.22", "1.0", 15},
    {"embedding_multiplier", "12.0", "1", 15},
    {"attention_multiplier", "0.0078125", "null", 15},
    {"scale_emb", "12", "1", 15},
    {"no_rope_layers", "[1,0] [0]", "[1,1] [] null", 15},
    {"no_rope_layer_interval", "4", "null", 15},
    {"rope_interleaved", "true", "false", 15},
    {"position_embedding_type", "\"alibi\"", "\"rope\"", 15},
    {"clip_qkv", "8.0", "null", 15},
    {"per_layer_config", "{\"0\":{\"sliding_window\":2}}", "{} null", 15},
    {"block_configs", "[{}]", "null", 15},
    {"kv_sharing_modes", "[\"full\"]", "null", 15},
    {"num_kv_shared_layers", "10", "0", 15},
    {"hidden_size_per_layer_input", "256", "0", 15},
    {"num_experts", "8", "0 1 null", 15},
    {"num_local_experts", "8", "1", 15},
    {"is_encoder_decoder", "true", "false", 15},
    {"add_cross_attention", "true", "false", 15},
    {"pruned_heads", "{\"0\":[1]}", "{}", 15},
    {"mlp_bias", "true", "false", LN_FAMILY_QWEN2 | LN_FAMILY_QWEN3 | LN_FAMILY_GEMMA3},
    {"mlp_bias", "", "true false", LN_FAMILY_LLAMA},
    {"attention_bias", "", "true false", 15},
    {"qkv_bias", "true", "false null", LN_FAMILY_LLAMA | LN_FAMILY_QWEN3 | LN_FAMILY_GEMMA3},
    {"qkv_bias", "false", "true null", LN_FAMILY_QWEN2},
    {"use_qk_norm", "true", "false", LN_FAMILY_LLAMA | LN_FAMILY_QWEN2},
    {"use_qk_norm", "false", "true", LN_FAMILY_QWEN3 | LN_FAMILY_GEMMA3},
    {"query_pre_attn_scalar", "256", "null", LN_FAMILY_LLAMA | LN_FAMILY_QWEN2 | LN_FAMILY_QWEN3},
    {"query_pre_attn_scalar", "", "168", LN_FAMILY_GEMMA3},
    {"partial_rotary_factor", "0.5", "1 1.0", 15},
    {"sliding_window", "512 2047", "null 2048 131072", LN_FAMILY_LLAMA},
    {"sliding_window", "", "512", LN_FAMILY_QWEN2 | LN_FAMILY_QWEN3 | LN_FAMILY_GEMMA3},
    {"layer_types", "[\"sliding_attention\",\"full_attention\"] [\"chunked_attention\",\"full_attention\"]",
     "[\"full_attention\",\"full_attention\"] null", LN_FAMILY_LLAMA},
    {"hidden_act", "\"relu\"", "\"silu\"", LN_FAMILY_LLAMA | LN_FAMILY_QWEN2 | LN_FAMILY_QWEN3},
    {"hidden_act", "", "\"relu\"", LN_FAMILY_GEMMA3},
    {"hidden_activation", "\"relu\"", "\"gelu_pytorch_tanh\"", LN_FAMILY_GEMMA3},
    {"compression_config", "{\"format\":\"x\"}", "null", 15},
    {"pretraining_tp", "", "1 2", 15},
    {"num_nextn_predict_layers", "", "1", 15},
    {"attention_dropout", "", "0.5", 15},
    {"id2label", "", "{\"0\":\"a\",\"1\":\"b\"}", 15},
    {"dual_chunk_attention_config", "", "{\"chunk_size\":262144}", 15},
};

static int try_values(const char *values, size_t k, bool fine) {
    char value[128];
    int n = 0;
    for (const char *v = values; *v; v += strcspn(v, " "), v += *v == ' ') {
        (void)snprintf(value, sizeof value, "%.*s", (int)strcspn(v, " "), v);
        for (size_t f = 0; f < LN_COUNT(types); f++) {
            char id[256];
            ln_error err = {0};
            if (!(keys[k].families & bits[f])) continue;
            (void)snprintf(id, sizeof id, "%s: %s %s", types[f], keys[k].name, value);
            ln_status st = with_key(f, keys[k].name, value, &err);
            expect(id, fine ? LN_OK : LN_EUNSUPPORTED, keys[k].name, st, &err);
            n++;
        }
    }
    return n;
}

static void test_by_name(void **state) {
    (void)state;
    int refused = 0, fine = 0;
    for (size_t k = 0; k < LN_COUNT(keys); k++)
        refused += try_values(keys[k].refused, k, false), fine += try_values(keys[k].fine, k, true);
    print_message("  %d refused, %d fine\n", refused, fine);
    ln_error err = {0};
    expect("a window that is switched off", LN_OK, "",
           read_spec("{\"model_type\":\"llama\",\"use_sliding_window\":false,\"sliding_window\":512}", &err),
           &err);
    expect("a window in no layer", LN_OK, "",
           read_spec("{\"model_type\":\"llama\",\"num_hidden_layers\":1,\"layer_types\":[\"full_attention\"],"
                     "\"sliding_window\":512}",
                     &err),
           &err);
    /* The message has file, key, meaning, the expected and the found value, and what would go wrong. */
    expect("message", LN_EUNSUPPORTED,
           "c/config.json: is_causal: attention to later tokens is not supported: expected true, found "
           "false; linnet would compute",
           with_key(2, "is_causal", "false", &err), &err);
}

/* Every row of the table: another value is rejected with the key's name in each of the row's families, the
 * row's values are accepted. */
static void test_every_row(void **state) {
    (void)state;
    int rows = 0;
    for (size_t i = 0; i < ln_config_keys.n; i++) {
        const ln_key *key = &ln_config_keys.rows[i];
        json_t *other = json_string("another value"), *object = json_object();
        assert_int_equal(json_object_set(object, key->name, other), 0);
        for (unsigned family = 1; family <= LN_FAMILY_GEMMA3; family *= 2) {
            ln_key_report report = {0};
            ln_error err = {0};
            if (ln_key_find(&ln_config_keys, family, key->name) != key) continue;
            ln_status st = ln_keys_check(&ln_config_keys, family, object, "config.json", "", &report, &err);
            expect(key->name, key->kind == LN_KEY_REFUSED ? LN_EUNSUPPORTED : LN_OK, key->name, st, &err);
            assert_int_equal(report.n_warned, key->kind == LN_KEY_WARNED);
            assert_int_equal(report.n_unknown, 0);
            ln_key_report_free(&report);
            rows++;
        }
        json_decref(other);
        json_decref(object);
        if (key->kind == LN_KEY_REFUSED || key->kind == LN_KEY_WARNED)
            assert_true(key->same[0] && key->what[0]);
    }
    print_message("  %d rows\n", rows);
}

static const struct {
    const char *name;
    ln_status want;
    bool warned;
} window_groups[] = {
    {"LlamaForCausalLM", LN_OK, false},
    {"LLaMAForCausalLM", LN_OK, false},
    {"LlamaForSequenceClassification", LN_EUNSUPPORTED, false},
    {"Qwen2ForTokenClassification", LN_EUNSUPPORTED, false},
    {"Qwen2ForRewardModel", LN_EUNSUPPORTED, false},
    {"Qwen2ForProcessRewardModel", LN_EUNSUPPORTED, false},
    {"LlamaForQuestionAnswering", LN_EUNSUPPORTED, false},
    {"LlamaForMaskedLM", LN_EUNSUPPORTED, false},
    {"LlamaBidirectionalModel", LN_EUNSUPPORTED, false},
    {"LlamaBidirectionalForCausalLM", LN_EUNSUPPORTED, false},
    {"Qwen3Model", LN_OK, true},
    {"Gemma3TextModel", LN_OK, true},
    {"SomethingElse", LN_OK, false},
};

static void test_classes(void **state) {
    (void)state;
    char json[256];
    for (size_t i = 0; i < LN_COUNT(window_groups); i++) {
        ln_error err = {0};
        (void)snprintf(json, sizeof json, "{\"model_type\":\"llama\",\"architectures\":[\"%s\"]}",
                       window_groups[i].name);
        listen(LN_LOG_WARN);
        ln_status st = read_spec(json, &err);
        const char *text = heard();
        expect(window_groups[i].name, window_groups[i].want, window_groups[i].name, st, &err);
        assert_int_equal(strstr(text, window_groups[i].name) != NULL, window_groups[i].warned);
    }
    ln_error err = {0};
    expect("two classes", LN_OK, "",
           read_spec("{\"model_type\":\"llama\",\"architectures\":[\"LlamaForSequenceClassification\","
                     "\"LlamaForCausalLM\"]}",
                     &err),
           &err);
    expect("no list", LN_OK, "", read_spec("{\"model_type\":\"llama\",\"architectures\":null}", &err), &err);
}

/* Nested configurations: both objects are checked, and the message says which one is wrong. */
static void test_nested(void **state) {
    (void)state;
    ln_error err = {0};
    expect("text_config", LN_EUNSUPPORTED, "text_config.is_causal",
           read_spec("{\"model_type\":\"gemma3\",\"text_config\":{\"is_causal\":false}}", &err), &err);
    expect("the top", LN_EUNSUPPORTED, ": is_causal",
           read_spec("{\"model_type\":\"gemma3\",\"is_causal\":false,\"text_config\":{}}", &err), &err);
    listen(LN_LOG_INFO);
    expect("unknown", LN_OK, "",
           read_spec("{\"model_type\":\"gemma3\",\"aa\":1,\"text_config\":{\"bb\":{}}}", &err), &err);
    assert_non_null(strstr(heard(), "does not read: aa, text_config.bb\n"));
}

static void test_unknown(void **state) {
    (void)state;
    ln_error err = {0};
    ln_str many = {0};
    static const char one[] =
        "{\"model_type\":\"llama\",\"my_key\":1,\"another\\u001bkey\":[],\"temperature\":1.0}";
    listen(LN_LOG_WARN);
    expect("quiet", LN_OK, "", read_spec(one, &err), &err);
    assert_string_equal(heard(), "");
    listen(LN_LOG_INFO);
    expect("told", LN_OK, "", read_spec(one, &err), &err);
    const char *text = heard();
    assert_non_null(strstr(text, "config.json: keys that linnet does not know and does not read: my_key, "
                                 "another"));
    assert_null(strstr(text, "temperature")); /* a key of generation_config.json: not checked here */
    assert_int_equal(lines_of(text), 1);
    ln_str_adds(&many, "{\"model_type\":\"llama\"");
    for (int i = 0; i < 100; i++) ln_str_addf(&many, ",\"key%d\":0", i);
    ln_str_adds(&many, "}");
    listen(LN_LOG_INFO);
    expect("many", LN_OK, "", read_spec(many.data, &err), &err);
    text = heard();
    assert_non_null(strstr(text, "key31, ...\n"));
    assert_null(strstr(text, "key32"));
    ln_str_free(&many);
    listen(LN_LOG_WARN);
    expect("not applied", LN_OK, "", with_key(1, "dual_chunk_attention_config", "{\"chunk_size\":8}", &err),
           &err);
    assert_non_null(strstr(heard(), "linnet does not apply dual_chunk_attention_config {\"chunk_size\":8} "
                                    "(attention in chunks"));
}

/* ---- real files have no key that the tables lack ---- */

static void check_real(const ln_keys *table, unsigned group, const json_t *object, const char *name) {
    ln_key_report report = {0};
    ln_error err = {0};
    expect(name, LN_OK, "", ln_keys_check(table, group, object, name, "", &report, &err), &err);
    if (report.n_unknown || report.n_warned)
        fail_msg("%s: unknown: %s; not applied: %s", name, report.n_unknown ? report.unknown.data : "",
                 report.n_warned ? report.warned.data : "");
    ln_key_report_free(&report);
}

static unsigned family_of(const json_t *root) {
    const char *type = json_string_value(json_object_get(root, "model_type"));
    for (size_t f = 0; type && f < LN_COUNT(types); f++)
        if (strncmp(type, types[f], 5) == 0 && strncmp(type, "gemma", 5) != 0 && strcmp(type, types[f]) == 0)
            return bits[f];
    return LN_FAMILY_GEMMA3;
}

static void check_dir(const char *dir) {
    static const struct {
        const char *name;
        const ln_keys *table;
        unsigned group;
    } files[] = {{"config.json", &ln_config_keys, 0},
                 {"generation_config.json", &ln_generation_keys, LN_KEYS_DRAWN},
                 {"tokenizer_config.json", &ln_tokenizer_keys, 1}};
    char path[512];
    for (size_t i = 0; i < LN_COUNT(files); i++) {
        (void)snprintf(path, sizeof path, "%s/%s", dir, files[i].name);
        json_t *root = json_load_file(path, 0, NULL), *text = json_object_get(root, "text_config");
        if (!root) continue;
        check_real(files[i].table, files[i].group ? files[i].group : family_of(root), root, path);
        if (text) check_real(files[i].table, LN_FAMILY_GEMMA3, text, path);
        json_decref(root);
    }
}

static void test_real(void **state) {
    (void)state;
    static const char *const real[] = {llama31_8b_json, llama32_1b_json, qwen25_05b_json, qwen3_06b_json,
                                       gemma3_1b_json,  gemma3_4b_json,  qwen3_new_json,  gemma3_new_json};
    static const char *const dirs[] = {"models/tiny",
                                       "tests/golden/gemma3-long-bf16",
                                       "tests/golden/gemma3-nested-bf16",
                                       "tests/golden/llama-llama3-bf16",
                                       "tests/golden/qwen2-bf16",
                                       "tests/golden/qwen3-f16",
                                       "tests/golden/llama-plain-f32"};
    char path[512];
    for (size_t i = 0; i < LN_COUNT(real); i++) {
        json_t *root = json_loads(real[i], 0, NULL), *text = json_object_get(root, "text_config");
        check_real(&ln_config_keys, family_of(root), root, "a real configuration");
        if (text) check_real(&ln_config_keys, LN_FAMILY_GEMMA3, text, "a real text_config");
        json_decref(root);
    }
    for (size_t i = 0; i < LN_COUNT(dirs); i++) {
        (void)snprintf(path, sizeof path, LN_ROOT "/%s", dirs[i]);
        check_dir(path);
    }
}

/* ---- generation_config.json ---- */

static ln_status read_gen(const char *config, const char *gen, const char *tok, ln_genconfig *g,
                          ln_error *err) {
    ln_config c;
    put_text("g/config.json", config);
    (void)unlink(at("g/generation_config.json"));
    (void)unlink(at("g/tokenizer_config.json"));
    if (gen) put_text("g/generation_config.json", gen);
    if (tok) put_text("g/tokenizer_config.json", tok);
    ln_status st = ln_config_open(&c, at("g"), err);
    if (st != LN_OK) return st;
    st = ln_genconfig_open(g, at("g"), &c, 100, NULL, NULL, err);
    if (st == LN_OK && tok) st = ln_check_tokenizer_keys(at("g"), err);
    ln_config_close(&c);
    return st;
}

/* Returns the log messages that one of the files causes. */
static const char *said(const char *config, const char *gen, const char *tok, ln_level level) {
    ln_genconfig g = {0};
    ln_error err = {0};
    listen(level);
    ln_status st = read_gen(config, gen, tok, &g, &err);
    const char *text = heard();
    expect(gen ? gen : tok ? tok : config, LN_OK, "", st, &err);
    ln_genconfig_close(&g);
    return text;
}

static void test_generation(void **state) {
    (void)state;
    static const char *const quiet[] = {
        "{}",
        "{\"num_beams\":1,\"penalty_alpha\":null,\"typical_p\":1.0,\"max_length\":4096,\"max_new_tokens\":"
        "2048,\"length_penalty\":2.0,"
        "\"renormalize_logits\":true,\"transformers_version\":\"5\",\"cache_implementation\":\"hybrid\","
        "\"sequence_bias\":null}",
        /* filters of sampling: not used, as do_sample is not set */
        "{\"typical_p\":0.9,\"top_h\":0.4,\"epsilon_cutoff\":0.0003,\"eta_cutoff\":0.0003}",
        "{\"suppress_tokens\":[1],\"begin_suppress_tokens\":[2],\"bad_words_ids\":[[3]],\"no_repeat_ngram_"
        "size\":3,\"min_new_tokens\":2,"
        "\"stop_strings\":\"x\"}",
    };
    for (size_t i = 0; i < LN_COUNT(quiet); i++)
        assert_string_equal(said("{}", quiet[i], NULL, LN_LOG_WARN), "");
    const char *text = said("{}",
                            "{\"num_beams\":4,\"penalty_alpha\":0.6,\"x\":1,\"do_sample\":true,\"typical_p\":"
                            "0.9,\"min_length\":3}",
                            NULL, LN_LOG_WARN);
    assert_non_null(strstr(text, "generation_config.json: linnet does not apply num_beams 4 (beam search), "
                                 "penalty_alpha 0.6 (contrastive search), "
                                 "typical_p 0.9 (locally typical sampling), min_length 3 ("));
    assert_int_equal(lines_of(text), 1);
    assert_non_null(strstr(said("{}", "{\"my_key\":1}", NULL, LN_LOG_INFO), "does not read: my_key\n"));
    assert_string_equal(said("{}", "{\"my_key\":1}", NULL, LN_LOG_WARN), "");
    /* Every row of the table that is not applied is named in the log. */
    for (size_t i = 0; i < ln_generation_keys.n; i++) {
        char json[128];
        const ln_key *key = &ln_generation_keys.rows[i];
        if (key->kind != LN_KEY_WARNED) continue;
        (void)snprintf(json, sizeof json, "{\"do_sample\":true,\"%s\":\"another\"}", key->name);
        assert_non_null(strstr(said("{}", json, NULL, LN_LOG_WARN), key->name));
    }
}

/* transformers reads config.json if there is no generation_config.json. */
static void test_without_file(void **state) {
    (void)state;
    assert_string_equal(said("{\"temperature\":0.7,\"num_beams\":1,\"do_sample\":false,\"max_length\":20}",
                             NULL, NULL, LN_LOG_WARN),
                        "");
    const char *text =
        said("{\"do_sample\":true,\"temperature\":0.7,\"top_k\":50,\"suppress_tokens\":[1],\"num_beams\":4}",
             NULL, NULL, LN_LOG_WARN);
    assert_non_null(strstr(text, "does not exist; not applied: do_sample true, temperature 0.7, "
                                 "suppress_tokens "
                                 "[1], num_beams 4\n"));
    assert_string_equal(said("{\"do_sample\":true,\"temperature\":0.7}", "{}", NULL, LN_LOG_WARN), "");
}

static void test_forbidden(void **state) {
    (void)state;
    ln_genconfig g;
    ln_error err = {0};
    expect("all", LN_OK, "",
           read_gen("{}",
                    "{\"suppress_tokens\":[5,100,6,-1],\"begin_suppress_tokens\":[],\"bad_words_ids\":[[7],["
                    "8,9],[1,100]],"
                    "\"no_repeat_ngram_size\":3,\"min_new_tokens\":4,\"stop_strings\":[\"a\",\"b\\n\"]}",
                    NULL, &g, &err),
           &err);
    assert_int_equal(g.n_suppress, 2); /* ids beyond the vocabulary cannot be generated */
    assert_int_equal(g.suppress[1], 6);
    assert_int_equal(g.n_begin_suppress, 0);
    assert_int_equal(g.n_bad_words, 2);
    assert_true(g.bad_words[1].n == 2 && g.bad_words[1].ids[1] == 9);
    assert_true(g.no_repeat_ngram == 3 && g.min_new == 4 && g.n_stop == 2);
    assert_string_equal(g.stop[1], "b\n");
    ln_genconfig_close(&g);
    static const char *const bad[] = {
        "\"suppress_tokens\":1",        "\"suppress_tokens\":[\"1\"]",   "\"suppress_tokens\":[1.5]",
        "\"begin_suppress_tokens\":{}", "\"bad_words_ids\":[1]",         "\"bad_words_ids\":[[]]",
        "\"bad_words_ids\":[[null]]",   "\"no_repeat_ngram_size\":-1",   "\"no_repeat_ngram_size\":2.0",
        "\"min_new_tokens\":\"3\"",     "\"stop_strings\":[\"\"]",       "\"stop_strings\":7",
        "\"stop_strings\":[[\"a\"]]",   "\"stop_strings\":\"a\\u0000b\""};
    for (size_t i = 0; i < LN_COUNT(bad); i++) {
        char json[128], name[32];
        (void)snprintf(json, sizeof json, "{%s}", bad[i]);
        (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(bad[i] + 1, "\""), bad[i] + 1);
        ln_error e = {0};
        expect(bad[i], LN_EINVALID, name, read_gen("{}", json, NULL, &g, &e), &e);
    }
}

static void test_tokenizer(void **state) {
    (void)state;
    assert_string_equal(said("{}", NULL,
                             "{\"add_bos_token\":true,\"split_special_tokens\":false,\"model_max_length\":"
                             "1e30}",
                             LN_LOG_WARN),
                        "");
    assert_non_null(strstr(said("{}", NULL, "{\"do_lower_case\":true}", LN_LOG_WARN),
                           "tokenizer_config.json: linnet does not apply do_lower_case true ("));
    assert_non_null(strstr(said("{}", NULL, "{\"my_key\":1}", LN_LOG_INFO), "does not read: my_key\n"));
    assert_string_equal(said("{}", NULL, "[]", LN_LOG_INFO),
                        ""); /* the tokenizer itself does not need the file */
}

/* ---- quantization blocks ---- */

static void test_blocks(void **state) {
    (void)state;
    static const struct {
        const char *keys, *word;
    } rows[] = {
        {"\"load_in_8bit\":true", "load_in_8bit"},
        {"\"load_in_4bit\":true", "load_in_4bit"},
        {"\"w_bit\":4,\"q_group_size\":128", "AWQ"},
        {"\"bits\":4,\"group_size\":128,\"desc_act\":false,\"sym\":true", "desc_act: quantisation by GPTQ"},
        {"\"config_groups\":{\"group_0\":{}},\"format\":\"pack-quantized\"", "config_groups"},
        {"\"quant_algo\":\"FP8\"", "quant_algo"},
        {"\"weight_block_size\":[128,128],\"fmt\":\"e4m3\"", "weight_block_size"},
        {"\"nbits\":4", "HQQ"},
        {"\"bits\":4,\"group_size\":64,\"quantize_activations\":true", "quantize_activations"},
        {"\"bits\":4,\"group_size\":64,\"lm_head\":{\"bits\":8,\"fmt\":\"e4m3\"}", "quantization_config.lm_"
                                                                                   "head.fmt"},
    };
    char json[512];
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        ln_error err = {0};
        (void)snprintf(json, sizeof json, "{\"model_type\":\"llama\",\"quantization_config\":{%s}}",
                       rows[i].keys);
        expect(rows[i].keys, LN_EUNSUPPORTED, rows[i].word, read_spec(json, &err), &err);
    }
    ln_error err = {0};
    listen(LN_LOG_INFO);
    expect("a block of MLX's", LN_OK, "",
           read_spec("{\"model_type\":\"llama\",\"quantization\":{\"group_size\":64,\"bits\":4,\"mode\":"
                     "\"affine\","
                     "\"model.layers.0.mlp.up_proj\":false,"
                     "\"lm_head\":{\"bits\":8,\"group_size\":64,\"odd\":1},\"strange\":7,\"load_in_8bit\":"
                     "false}}",
                     &err),
           &err);
    assert_non_null(strstr(heard(), "does not read: quantization.strange, quantization.lm_head.odd\n"));
    expect("a method that is no text", LN_EINVALID, "quant_method",
           read_spec("{\"model_type\":\"llama\",\"quantization\":{\"group_size\":64,\"bits\":4,\"quant_"
                     "method\":7}}",
                     &err),
           &err);
}

/* Every allocation fails in turn: an error, and no memory is leaked. */
static void test_no_memory(void **state) {
    (void)state;
    uint64_t before = ln_mem_bytes();
    int failures = 0;
    for (int persistent = 0; persistent < 2; persistent++)
        for (int64_t n = 1;; n++) {
            ln_genconfig g = {0};
            ln_error err = {0};
            listen(LN_LOG_ERROR);
            ln_mem_fail_at(n, persistent);
            ln_status st = read_gen("{\"model_type\":\"llama\",\"unknown\":1}",
                                    "{\"suppress_tokens\":[1,2],\"bad_words_ids\":[[1],[2,3]],\"stop_"
                                    "strings\":[\"a\"],\"num_beams\":2,\"odd\":1}",
                                    NULL, &g, &err);
            ln_mem_fail_at(-1, false);
            (void)heard();
            if (st == LN_OK) ln_genconfig_close(&g);
            if (ln_mem_bytes() != before) fail_msg("allocation %d: memory is lost", (int)n);
            if (st == LN_OK) break;
            assert_int_equal(st, LN_EMEMORY);
            failures++;
        }
    assert_true(failures > 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_name),    cmocka_unit_test(test_every_row),
        cmocka_unit_test(test_classes),    cmocka_unit_test(test_nested),
        cmocka_unit_test(test_unknown),    cmocka_unit_test(test_real),
        cmocka_unit_test(test_generation), cmocka_unit_test(test_without_file),
        cmocka_unit_test(test_forbidden),  cmocka_unit_test(test_tokenizer),
        cmocka_unit_test(test_blocks),     cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
