/* What the command reports about keys that it does not apply: exit 4 with the key's name, one warning, or
 * a line with -v; and that the keys of generation_config.json take effect, together with the flags. */
/* run: quick */
#include "spawn.h"

static const char *const files[] = {"config.json", "model.safetensors", "tokenizer.json",
                                    "generation_config.json", "tokenizer_config.json"};

static void write_file(const char *name, const char *text) {
    char leaf[64];
    (void)snprintf(leaf, sizeof leaf, "m/%s", name);
    (void)unlink(at(0, leaf));
    FILE *f = fopen(at(0, leaf), "wb");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* Creates a model: the golden one with `key` in its config.json, and files with these contents (NULL: none).
 * Returns its directory. */
static char *model(const char *key, const char *generation, const char *tokenizer) {
    char leaf[64], from[300];
    (void)mkdir(at(0, "m"), 0700);
    for (size_t i = 0; i < LN_COUNT(files); i++) {
        (void)snprintf(leaf, sizeof leaf, "m/%s", files[i]);
        (void)unlink(at(0, leaf));
    }
    json_t *root = json_load_file(LN_ROOT "/tests/golden/llama-plain-f32/config.json", 0, NULL),
           *more = json_loads(key, 0, NULL);
    assert_true(root && more && json_object_update(root, more) == 0);
    char *text = json_dumps(root, 0);
    write_file("config.json", text);
    free(text);
    json_decref(root);
    json_decref(more);
    for (size_t i = 1; i < 3; i++) {
        (void)snprintf(leaf, sizeof leaf, "m/%s", files[i]);
        (void)snprintf(from, sizeof from, LN_ROOT "/tests/golden/llama-plain-f32/%s", files[i]);
        assert_int_equal(symlink(from, at(0, leaf)), 0);
    }
    if (generation) write_file("generation_config.json", generation);
    if (tokenizer) write_file("tokenizer_config.json", tokenizer);
    return at(1, "m");
}

static void test_refused(void **state) {
    (void)state;
    char *m = model("{\"is_causal\":false}", NULL, NULL);
    expect(RUN(S("score"), m, S("--ids"), S("5,17,20")), 4,
           "config.json: is_causal: attention to later tokens");
    expect(RUN(S("run"), m, S("--ids"), S("5,17,20"), S("-n"), S("1")), 4, "is_causal");
    expect(RUN(S("show"), m), 4, "is_causal");
    expect(RUN(S("plan"), m), 4, "is_causal");
    m = model("{\"architectures\":[\"LlamaForSequenceClassification\"]}", NULL, NULL);
    expect(RUN(S("score"), m, S("--ids"), S("5,17,20")), 4, "LlamaForSequenceClassification");
    expect(RUN(S("score"), model("{\"is_causal\":true}", NULL, NULL), S("--ids"), S("5,17,20")), 0, NULL);
    assert_string_equal(last->err, "");
}

static void test_unknown(void **state) {
    (void)state;
    char *m = model("{\"my_key\":7}", "{\"other_key\":7}", "{\"third_key\":7}");
    expect(RUN(S("score"), m, S("--ids"), S("5,17,20")), 0, NULL);
    assert_string_equal(last->err, "");
    expect(RUN(S("score"), m, S("--ids"), S("5,17,20"), S("-v")), 0,
           "config.json: keys that linnet does not know and does not read: my_key\n");
    assert_non_null(strstr(last->err, "does not read: other_key\n"));
    assert_non_null(strstr(last->err, "does not read: third_key\n"));
    expect(RUN_IN("a", S("tokenize"), m, S("-v")), 0, "does not read: third_key\n");
}

static void test_warned(void **state) {
    (void)state;
    char *m = model("{}", "{\"num_beams\":4,\"penalty_alpha\":0.6}", "{\"do_lower_case\":true}");
    expect(RUN(S("score"), m, S("--ids"), S("5,17,20")), 0,
           "linnet does not apply num_beams 4 (beam search), penalty_alpha 0.6 (contrastive search)\n");
    assert_non_null(strstr(last->err, "linnet does not apply do_lower_case true ("));
    expect(RUN_IN("a", S("tokenize"), m), 0, "warning: ");
    assert_non_null(strstr(last->err, "do_lower_case"));
}

/* The file forbids the first token of the text: the run gives another text. */
static void test_applied(void **state) {
    (void)state;
    char keys[128];
#define GENERATE(...) \
    RUN(S("run"), m, S("--ids"), S("5,17,20,44,3,9,50,7"), S("-n"), S("8"), S("--json"), __VA_ARGS__)
    char *m = model("{}", "{}", NULL);
    json_t *whole = json_of(GENERATE(S("--seed"), S("1"))), *ids = json_object_get(whole, "ids");
    assert_int_equal(json_array_size(ids), 8);
    int64_t first = json_integer_value(json_array_get(ids, 0));
    (void)snprintf(keys, sizeof keys, "{\"begin_suppress_tokens\":[%d]}", (int)first);
    m = model("{}", keys, NULL);
    json_t *other = json_of(GENERATE(S("-v")));
    assert_true(json_integer_value(json_array_get(json_object_get(other, "ids"), 0)) != first);
    assert_non_null(strstr(last->err, "generation_config.json: 0 suppress_tokens, 1 begin_suppress_tokens, 0 "
                                      "bad_words_ids"));
    json_decref(other);
    /* a stop text of the file takes effect in addition to --stop */
    const char *text = text_of(whole, "text");
    char stop[8];
    size_t n = 1;
    while (((unsigned char)text[n] & 0xc0) == 0x80) n++;
    (void)snprintf(stop, sizeof stop, "%.*s", (int)n, text);
    ln_str json = {0};
    ln_str_adds(&json, "{\"stop_strings\":[");
    ln_str_json(&json, stop, strlen(stop));
    ln_str_adds(&json, "]}");
    m = model("{}", json.data, NULL);
    other = json_of(GENERATE(S("--stop"), S("never seen")));
    assert_string_equal(text_of(other, "text"), "");
    assert_string_equal(text_of(other, "finish_reason"), "stop");
    json_decref(other);
    ln_str_free(&json);
    json_decref(whole);
}

static int remove_all(void **state) {
    char leaf[64];
    for (size_t i = 0; i < LN_COUNT(files); i++) {
        (void)snprintf(leaf, sizeof leaf, "m/%s", files[i]);
        (void)unlink(at(0, leaf));
    }
    (void)rmdir(at(0, "m"));
    return remove_dir(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_refused), cmocka_unit_test(test_unknown),
                                       cmocka_unit_test(test_warned), cmocka_unit_test(test_applied)};
    return cmocka_run_group_tests(tests, make_dir, remove_all);
}
