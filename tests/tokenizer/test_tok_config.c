/* Directories whose other files define tokens, compared with what transformers makes of them
 * (config.jsonl, written by make_config.py), and files that are rejected.
 *
 * usage: test_tok_config [FILE]   directories from another file */
/* run: slow asan */
#include "vectors.h"

#include "tokenizer/tokenizer_internal.h"

#include <unistd.h>

static const char *const files[] = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                                    "added_tokens.json"};
static char dir[] = "/tmp/linnet-tokens-XXXXXX";

static const char *path_of(const char *name) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void put_text(const char *name, const char *text) {
    FILE *f = fopen(path_of(name), "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void put_json(const char *name, const json_t *v) {
    char *text = json_dumps(v, 0);
    assert_non_null(text);
    put_text(name, text);
    free(text);
}

static void clear(void) {
    for (size_t i = 0; i < LN_COUNT(files); i++) (void)remove(path_of(files[i]));
}

static size_t n_wrong;

static void check_text(const ln_tok *t, const char *name, const json_t *text, const json_t *ids,
                       const json_t *skipped) {
    ln_ids want = {0}, got = {0};
    ln_str out = {0};
    vector_ids(ids, &want);
    assert_int_equal(ln_tok_encode(t, json_string_value(text), json_string_length(text), true, &got, NULL),
                     LN_OK);
    if (got.n != want.n || (got.n > 0 && memcmp(got.data, want.data, got.n * sizeof *got.data) != 0)) {
        printf("%s: '%s': other ids\n", name, json_string_value(text));
        n_wrong++;
    }
    assert_int_equal(ln_tok_decode(t, want.data, want.n, true, &out, NULL), LN_OK);
    if (strcmp(out.data ? out.data : "", json_string_value(skipped)) != 0) {
        printf("%s: without special tokens '%s', not '%s'\n", name, out.data ? out.data : "",
               json_string_value(skipped));
        n_wrong++;
    }
    ln_ids_free(&want);
    ln_ids_free(&got);
    ln_str_free(&out);
}

static void check_directory(const json_t *line, const json_t *model, const json_t *texts) {
    const char *name = json_string_value(json_object_get(line, "name")), *file;
    json_t *content, *doc = json_copy(json_object_get(line, "tokenizer"));
    ln_tok *t = NULL;
    ln_error err = {0};
    clear();
    json_object_set(doc, "model", (json_t *)(uintptr_t)model);
    put_json("tokenizer.json", doc);
    json_decref(doc);
    json_object_foreach(json_object_get(line, "files"), file, content) put_json(file, content);
    if (ln_tok_open(&t, dir, &err) != LN_OK) fail_msg("%s: %s", name, err.message);
    assert_int_equal(json_array_size(json_object_get(line, "encode")), json_array_size(texts));
    for (size_t i = 0; i < json_array_size(texts); i++)
        check_text(t, name, json_array_get(texts, i), json_array_get(json_object_get(line, "encode"), i),
                   json_array_get(json_object_get(line, "skip"), i));
    ln_tok_close(&t);
}

static const char *config_path = LN_ROOT "/tests/tokenizer/config.jsonl";
static json_t *first_line; /* has the model and the texts */

static void directories_as_transformers(void **state) {
    (void)state;
    FILE *f = fopen(config_path, "r");
    if (!f) fail_msg("config.jsonl: cannot be read");
    char *line = NULL;
    size_t cap = 0, n = 0;
    n_wrong = 0;
    while (getline(&line, &cap, f) > 0) {
        json_t *o = json_loads(line, 0, NULL);
        assert_non_null(o);
        if (!first_line) {
            first_line = o;
            continue;
        }
        check_directory(o, json_object_get(first_line, "model"), json_object_get(first_line, "texts"));
        json_decref(o);
        n++;
    }
    free(line);
    fclose(f);
    assert_true(n >= 24);
    assert_int_equal(n_wrong, 0);
}

static void put_tokenizer(const char *added) {
    char text[1024];
    snprintf(text, sizeof text,
             "{\"added_tokens\":[%s],\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]}}",
             added);
    put_text("tokenizer.json", text);
}

static void refused_files(void **state) {
    (void)state;
    static const struct {
        const char *file, *text, *want;
    } cases[] = {
        {"tokenizer_config.json", "[]", "expected an object"},
        {"tokenizer_config.json", "{", "tokenizer_config.json"},
        {"tokenizer_config.json", "{\"eos_token\":5}", "eos_token: expected a token"},
        {"tokenizer_config.json", "{\"eos_token\":{\"content\":5}}", "eos_token: expected a token"},
        {"tokenizer_config.json", "{\"eos_token\":{\"content\":\"x\",\"lstrip\":1}}",
         "eos_token.lstrip: expected true or false"},
        {"tokenizer_config.json", "{\"additional_special_tokens\":\"<x>\"}",
         "additional_special_tokens: expected a list"},
        {"tokenizer_config.json", "{\"extra_special_tokens\":[5]}", "extra_special_tokens: expected a token"},
        {"tokenizer_config.json", "{\"added_tokens_decoder\":[]}",
         "added_tokens_decoder: expected an object"},
        {"tokenizer_config.json", "{\"added_tokens_decoder\":{\"x\":{\"content\":\"y\"}}}",
         "as keys, found 'x'"},
        {"tokenizer_config.json", "{\"added_tokens_decoder\":{\"5\":\"y\"}}", "an object for each token"},
        {"tokenizer_config.json", "{\"added_tokens_decoder\":{\"99999999999\":{\"content\":\"y\"}}}",
         "found '99999999999'"},
        {"tokenizer_config.json", "{\"split_special_tokens\":\"yes\"}",
         "split_special_tokens: expected true or false"},
        {"special_tokens_map.json", "{\"eos_token\":[]}",
         "special_tokens_map.json: eos_token: expected a token"},
        {"added_tokens.json", "{\"<x>\":\"5\"}", "added_tokens.json: <x>: expected an id"},
    };
    for (size_t i = 0; i < LN_COUNT(cases); i++) {
        ln_tok *t = NULL;
        ln_error err = {0};
        clear();
        put_tokenizer("");
        put_text(cases[i].file, cases[i].text);
        assert_int_equal(ln_tok_open(&t, dir, &err), LN_EINVALID);
        assert_null(t);
        if (!strstr(err.message, cases[i].want)) fail_msg("'%s': '%s'", cases[i].text, err.message);
    }
}

/* The message names the two statements of a file that contradict each other. */
static void contradictions_are_named(void **state) {
    (void)state;
    static const struct {
        const char *added, *want;
    } cases[] = {
        {"{\"id\":7,\"content\":\"a\"}", "'a': expected id 0, which the vocabulary gives it, found id 7"},
        {"{\"id\":1,\"content\":\"x\"}", "'x': expected an id that no other text has, found id 1, which is "
                                         "'b' in the vocabulary"},
        {"{\"id\":2,\"content\":\"x\"},{\"id\":3,\"content\":\"x\"}", "'x': expected one id, found 2 and 3"},
        {"{\"id\":2,\"content\":\"x\"},{\"id\":2,\"content\":\"y\"}", "id 2: expected one text, found 'x' "
                                                                      "and 'y'"}};
    for (size_t i = 0; i < LN_COUNT(cases); i++) {
        ln_tok *t = NULL;
        ln_error err = {0};
        clear();
        put_tokenizer(cases[i].added);
        assert_int_equal(ln_tok_open(&t, dir, &err), LN_EINVALID);
        if (!strstr(err.message, cases[i].want)) fail_msg("'%s': '%s'", cases[i].added, err.message);
    }
}

/* If the vocabulary's ids have a gap, an added token may get an id that the vocabulary gives to a text:
 * both then have that id. */
static void an_id_shared_with_the_vocabulary(void **state) {
    (void)state;
    ln_tok *t = NULL;
    ln_ids ids = {0};
    ln_str out = {0};
    clear();
    put_text("tokenizer.json", "{\"added_tokens\":[{\"id\":9,\"content\":\"<x>\",\"normalized\":false}],"
                               "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":2},\"merges\":[]}}");
    assert_int_equal(ln_tok_open(&t, dir, NULL), LN_OK);
    assert_int_equal(ln_tok_encode(t, "a<x>b", 5, true, &ids, NULL), LN_OK);
    assert_int_equal(ids.n, 3);
    assert_int_equal(ids.data[0], 0);
    assert_int_equal(ids.data[1], 2);
    assert_int_equal(ids.data[2], 2);
    assert_int_equal(ln_tok_decode(t, ids.data, ids.n, false, &out, NULL), LN_OK);
    assert_string_equal(out.data, "a <x> <x>"); /* without a decoder the reference joins tokens with spaces */
    ln_ids_free(&ids);
    ln_str_free(&out);
    ln_tok_close(&t);
}

static void failing_allocations(void **state) {
    (void)state;
    static const char *const configs[] = {
        "{\"eos_token\":\"<e>\",\"added_tokens_decoder\":{\"9\":{\"content\":\"<y>\"}},\"extra_special_"
        "tokens\":[\"<x>\"]}",
        "{\"eos_token\":\"<e>\",\"x_token\":{\"content\":\"<z>\"},\"additional_special_tokens\":[\"<x>\"]}"};
    uint64_t before = ln_mem_bytes();
    for (size_t i = 0; i < LN_COUNT(configs); i++) {
        bool done = false;
        clear();
        put_tokenizer("{\"id\":2,\"content\":\"<s>\"}");
        put_text("tokenizer_config.json", configs[i]);
        put_text("special_tokens_map.json", "{\"pad_token\":\"<p>\"}");
        put_text("added_tokens.json", "{\"<a>\":5}");
        for (int64_t n = 1; !done && n < 4000; n++) {
            ln_tok *t = NULL;
            ln_error err = {0};
            ln_mem_fail_at(n, true);
            ln_status st = ln_tok_open(&t, dir, &err);
            ln_mem_fail_at(-1, false);
            done = st == LN_OK;
            if (!done && st != LN_EMEMORY) fail_msg("allocation %d: %d %s", (int)n, st, err.message);
            ln_tok_close(&t);
            assert_int_equal(ln_mem_bytes(), before);
        }
        assert_true(done);
    }
}

int main(int argc, char **argv) {
    if (argc > 1) config_path = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(directories_as_transformers), cmocka_unit_test(refused_files),
        cmocka_unit_test(contradictions_are_named), cmocka_unit_test(failing_allocations),
        cmocka_unit_test(an_id_shared_with_the_vocabulary)};
    if (!mkdtemp(dir)) return perror(dir), 1;
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    clear();
    rmdir(dir);
    json_decref(first_line);
    return rc;
}
