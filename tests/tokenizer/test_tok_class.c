/* Directories that name classes of tokenizers (classes.jsonl, written by make_classes.py): the class as which
 * transformers opens each, what that class makes otherwise than tokenizer.json, and, if that is nothing, the
 * same ids. add_prefix_space is applied if the class applies it.
 *
 * usage: test_tok_class [FILE]   directories from another file, of `make_classes.py --random` */
/* run: quick asan */
#include "vectors.h"

#include <unistd.h>

static const char *classes_path = LN_ROOT "/tests/tokenizer/classes.jsonl";
static char dir[] = "/tmp/linnet-classes-XXXXXX";
static size_t n_wrong, n_compared;
static ln_str warnings;

static void put_text(const char *name, const char *text) {
    char path[128];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void put_files(const json_t *texts, const json_t *line) {
    const char *name;
    json_t *content;
    const json_t *tokenizer = json_object_get(json_object_get(texts, "tokenizers"),
                                              json_string_value(json_object_get(line, "tokenizer")));
    char *document = json_dumps(tokenizer, 0);
    assert_non_null(document);
    put_text("tokenizer.json", document);
    free(document);
    json_object_foreach(json_object_get(line, "files"), name, content)
        put_text(name, json_string_value(content));
}

static void check_ids(const ln_tok *t, const char *name, const json_t *texts, const json_t *all) {
    ln_ids want = {0}, got = {0};
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *text = json_array_get(json_object_get(texts, "texts"), i);
        vector_ids(json_array_get(all, i), &want);
        got.n = 0;
        assert_int_equal(ln_tok_encode(t, json_string_value(text), json_string_length(text), false, &got,
                                       NULL),
                         LN_OK);
        n_compared++;
        if (got.n == want.n && (got.n == 0 || memcmp(got.data, want.data, got.n * sizeof *got.data) == 0))
            continue;
        printf("%s: '%s': other ids\n", name, json_string_value(text));
        n_wrong++;
    }
    ln_ids_free(&want);
    ln_ids_free(&got);
}

static void check_line(const json_t *texts, const json_t *line) {
    const char *name = json_string_value(json_object_get(line, "name")), *class, *differs;
    const char *want = json_string_value(json_object_get(line, "class")),
               *want_differs = json_string_value(json_object_get(line, "differs"));
    ln_tok *t = NULL;
    ln_error e = {0};
    put_files(texts, line);
    if (ln_tok_open(&t, dir, &e) != LN_OK) fail_msg("%s: %s", name, e.message);
    ln_tok_class(t, &class, &differs);
    if (strcmp(class, want) != 0 || strcmp(differs, *want ? want_differs : "") != 0) {
        printf("%s: '%s' (%s), expected '%s' (%s)\n", name, class, differs, want, want_differs);
        n_wrong++;
    }
    if (!*want_differs) check_ids(t, name, texts, json_object_get(line, "ids"));
    ln_tok_close(&t);
}

static void classes_as_transformers(void **state) {
    (void)state;
    char *text = NULL;
    size_t cap = 0, n = 0;
    json_t *texts = NULL;
    FILE *in = fopen(classes_path, "r");
    assert_non_null(in);
    while (getline(&text, &cap, in) > 0) {
        json_t *line = json_loads(text, 0, NULL);
        assert_non_null(line);
        if (!texts) texts = json_incref(line);
        else check_line(texts, line);
        json_decref(line);
        n++;
    }
    printf("%zu directories, %zu texts, %zu wrong\n", n - 1, n_compared, n_wrong);
    assert_true(n > 100 && n_compared > 100);
    assert_int_equal(n_wrong, 0);
    json_decref(texts);
    free(text);
    (void)fclose(in);
}

/* ---- keys that are not applied ---- */

static void on_log(void *user, ln_level level, const char *text) {
    (void)user;
    if (level == LN_LOG_WARN) ln_str_addf(&warnings, "%s\n", text);
}

#define CLEAN "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output"

/* A key that has no effect, because another one switches it off or the class ignores it, is not judged. */
static void keys_without_effect_are_not_judged(void **state) {
    (void)state;
    static const char llama[] =
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]},\"normalizer\":"
        "{\"type\":\"Prepend\",\"prepend\":\"\\u2581\"}}";
    static const struct {
        const char *config, *says;
    } rows[] = {
        {"{\"tokenizer_class\":\"LlamaTokenizer\",\"add_prefix_space\":false}", "add_prefix_space false is "
                                                                                "not"},
        {"{\"tokenizer_class\":\"LlamaTokenizer\",\"add_prefix_space\":true}", ""},
        {"{\"tokenizer_class\":\"LlamaTokenizer\",\"add_prefix_space\":null}", ""},
        {"{\"tokenizer_class\":\"PreTrainedTokenizerFast\",\"add_prefix_space\":false}", ""},
        {"{\"tokenizer_class\":\"GemmaTokenizer\",\"add_prefix_space\":false}", ""},
        {"{\"" CLEAN "\":true}", ""},
        {"{\"" CLEAN "\":true,\"clean_up_tokenization_spaces\":true}", CLEAN " is not applied"},
    };
    ln_log_set(on_log, NULL);
    put_text("tokenizer.json", llama);
    put_text("config.json", "not JSON"); /* a tokenizer needs no config.json */
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        ln_tok *t = NULL;
        warnings.len = 0;
        put_text("tokenizer_config.json", rows[i].config);
        assert_int_equal(ln_tok_open(&t, dir, NULL), LN_OK);
        const char *said = warnings.len ? warnings.data : "";
        if (*rows[i].says ? !strstr(said, rows[i].says) : *said) fail_msg("row %zu: '%s'", i, said);
        ln_tok_close(&t);
    }
    ln_log_set(NULL, NULL);
    ln_str_free(&warnings);
}

static int make_dir(void **state) {
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}
static int remove_dir(void **state) {
    char command[128];
    (void)state;
    (void)snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(classes_as_transformers),
                                       cmocka_unit_test(keys_without_effect_are_not_judged)};
    if (argc > 1) classes_path = argv[1];
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
