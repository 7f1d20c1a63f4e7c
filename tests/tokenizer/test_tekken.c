/* tekken.json: the ids of mistral-common (tekken_cases.jsonl, written by tools/golden_tekken.py), what is
 * rejected and with which words, and the cases in which the file is read. */
/* run: quick asan */
#include "../common.h"
#include "tokenizer/tokenizer.h"

#include <unistd.h>

static char dir[64], path[100];

static int make_dir(void **state) {
    (void)state;
    (void)snprintf(dir, sizeof dir, "/tmp/linnet-tekken-XXXXXX");
    if (!mkdtemp(dir)) return 1;
    (void)snprintf(path, sizeof path, "%s/tekken.json", dir);
    return 0;
}
static int remove_dir(void **state) {
    (void)state;
    return unlink(path) || rmdir(dir);
}

static void put(const char *text) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    assert_int_equal(fclose(f), 0);
}

static void check_text(const ln_tok *tok, const json_t *c) {
    const char *text = json_string_value(json_object_get(c, "text"));
    const json_t *want = json_object_get(c, "ids");
    ln_ids ids = {0};
    ln_str back = {0};
    OK(ln_tok_encode(tok, text, strlen(text), true, &ids, err));
    if (ids.n != json_array_size(want))
        fail_msg("'%s': %zu ids, expected %zu", text, ids.n, json_array_size(want));
    for (size_t i = 0; i < ids.n; i++)
        if (ids.data[i] != json_integer_value(json_array_get(want, i)))
            fail_msg("'%s': id %zu is %d, expected %d", text, i, ids.data[i],
                     (int)json_integer_value(json_array_get(want, i)));
    OK(ln_tok_decode(tok, ids.data, ids.n, true, &back, err));
    assert_int_equal(back.len, strlen(text));
    assert_memory_equal(back.data ? back.data : "", text, back.len);
    ln_ids_free(&ids);
    ln_str_free(&back);
}

static json_t *next_case(FILE *in) {
    char *line = NULL;
    size_t cap = 0;
    json_t *c = getline(&line, &cap, in) > 0 ? json_loads(line, 0, NULL) : NULL;
    free(line);
    return c;
}

static void ids_are_those_of_mistral_common(void **state) {
    (void)state;
    FILE *in = fopen(LN_ROOT "/tests/tokenizer/tekken_cases.jsonl", "r");
    json_t *c, *one;
    size_t n = 0, i;
    assert_non_null(in);
    for (; (c = next_case(in)); n++, json_decref(c)) {
        ln_tok *tok;
        put(json_string_value(json_object_get(c, "file")));
        OK(ln_tok_open(&tok, dir, err));
        json_array_foreach(json_object_get(c, "cases"), i, one) check_text(tok, one);
        assert_int_equal(ln_tok_id(tok, "<s>", 3), 1);
        assert_true(ln_tok_is_special(tok, 1));
        if (n == 0) assert_int_equal(ln_tok_id(tok, "<SPECIAL_23>", 12), 23);
        if (n == 1) assert_false(ln_tok_is_special(tok, ln_tok_id(tok, "plain", 5)));
        ln_tok_close(&tok);
    }
    assert_int_equal(n, 2);
    (void)fclose(in);
}

#define CONFIG(size, version)                                                                           \
    "\"config\":{\"pattern\":\"a|b\",\"default_vocab_size\":" size ",\"default_num_special_tokens\":2," \
    "\"version\":\"" version "\"}"
#define A "{\"rank\":0,\"token_bytes\":\"YQ==\"}"
#define B "{\"rank\":1,\"token_bytes\":\"Yg==\"}"

static void what_is_wrong_is_named(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"[]", "tekken.json"},
        {"{}", "config: expected an object, found nothing"},
        {"{" CONFIG("0", "v3") ",\"vocab\":[]}", "config.default_vocab_size: expected 1"},
        {"{" CONFIG("2", "v3") ",\"vocab\":[]}", "more than default_num_special_tokens 2, found 2"},
        {"{" CONFIG("4", "3") ",\"vocab\":[" A "," B "]}", "config.version"},
        {"{" CONFIG("4", "v11") ",\"vocab\":[" A "," B "]}", "special_tokens: expected in a file of version "
                                                             "v11"},
        {"{" CONFIG("4", "v3") ",\"vocab\":[" A "]}", "vocab: rank 1 is missing"},
        {"{" CONFIG("4", "v3") "}", "vocab: rank 0 is missing"},
        {"{" CONFIG("4", "v3") ",\"vocab\":[" A "," A "]}", "vocab"},
        {"{" CONFIG("3", "v3") ",\"vocab\":[{\"rank\":0,\"token_bytes\":\"Y?==\"}]}", "in base64"},
        {"{" CONFIG("3", "v3") ",\"vocab\":[{\"rank\":0,\"token_bytes\":\"YQ=\"}]}", "in base64"},
        {"{" CONFIG("3", "v3") ",\"vocab\":[{\"token_bytes\":\"YQ==\"}]}", "expected a rank and token_bytes"},
        {"{" CONFIG("3", "v3") ",\"vocab\":[7]}", "vocab: expected objects"},
        {"{" CONFIG("3", "v13") ",\"vocab\":[" A "],\"special_tokens\":[{\"rank\":1,\"token_str\":\"x\"}]}",
         "special_tokens[0]: expected a token_str and rank 0"},
        {"{" CONFIG("3", "v13") ",\"vocab\":[" A "],\"special_tokens\":7}", "special_tokens: expected a "
                                                                            "list"},
    };
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        ln_tok *tok = NULL;
        ln_error e = {0};
        put(rows[i].text);
        const ln_status st = ln_tok_open(&tok, dir, &e);
        if (st != LN_EINVALID || !strstr(e.message, rows[i].says) || !strstr(e.message, "tekken.json"))
            fail_msg("%s: status %d, %s", rows[i].text, (int)st, e.message);
        assert_null(tok);
    }
}

static void files_that_are_cut_are_rejected(void **state) {
    (void)state;
    FILE *in = fopen(LN_ROOT "/tests/tokenizer/tekken_cases.jsonl", "r");
    assert_non_null(in);
    json_t *c = next_case(in);
    const char *whole = json_string_value(json_object_get(c, "file"));
    for (size_t n = 0; n < strlen(whole); n += 499) {
        char *cut = strndup(whole, n);
        ln_tok *tok = NULL;
        ln_error e = {0};
        put(cut);
        assert_int_equal(ln_tok_open(&tok, dir, &e), LN_EINVALID);
        assert_null(tok);
        free(cut);
    }
    json_decref(c);
    (void)fclose(in);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(ids_are_those_of_mistral_common),
                                       cmocka_unit_test(what_is_wrong_is_named),
                                       cmocka_unit_test(files_that_are_cut_are_rejected)};
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
