/* Tokenizers of the size of the largest real ones: Llasa adds 65,800 tokens to Llama 3.2's, and its
 * tokenizer_config.json repeats each of them. */
/* run: quick */
#include "../io/io_test.h"

#include "tokenizer/tokenizer.h"

enum { ADDED = 65800, BASE = 256 };

static void added_tokens(void **state) {
    (void)state;
    ln_str s = {0};
    ln_str_adds(&s, "{\"added_tokens\":[");
    for (int i = 0; i < ADDED; i++)
        ln_str_addf(&s,
                    "%s{\"id\":%d,\"content\":\"<|s_%d|>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":"
                    "false,\"normalized\":false,\"special\":true}",
                    i ? "," : "", BASE + i, i);
    ln_str_adds(&s, "],\"normalizer\":null,\"pre_tokenizer\":null,\"post_processor\":null,\"decoder\":null,"
                    "\"model\":{\"type\":\"BPE\",\"vocab\":{");
    for (int i = 0; i < BASE; i++) ln_str_addf(&s, "%s\"t%d\":%d", i ? "," : "", i, i);
    ln_str_adds(&s, "},\"merges\":[]}}");
    assert_false(s.failed);
    ln_tok *t;
    OK(ln_tok_open_memory(&t, "llasa", s.data, s.len, err));
    ln_ids ids = {0};
    OK(ln_tok_encode(t, "<|s_65799|><|s_0|>", 18, false, &ids, err));
    assert_int_equal(ids.n, 2);
    assert_true(ids.data[0] == BASE + 65799 && ids.data[1] == BASE);
    ln_ids_free(&ids);
    ln_tok_close(&t);
    ln_str_free(&s);
}

/* The same tokens as transformers writes them to tokenizer_config.json: a large file, read for the eos
 * token and the template. */
static void their_configuration(void **state) {
    (void)state;
    ln_str s = {0};
    bool has;
    ln_str_adds(&s, "{\n  \"added_tokens_decoder\": {\n");
    for (int i = 0; i < 3 * ADDED / 2; i++) /* half as many again as Llasa has */
        ln_str_addf(&s,
                    "%s    \"%d\": {\n      \"content\": \"<|s_%d|>\",\n      \"lstrip\": false,\n      "
                    "\"normalized\": false,\n      \"rstrip\": false,\n"
                    "      \"single_word\": false,\n      \"special\": true\n    }",
                    i ? ",\n" : "", 128256 + i, i);
    ln_str_adds(&s, "\n  },\n  \"chat_template\": \"{{ 1 }}\"\n}\n");
    assert_false(s.failed);
    assert_true(s.len > 16u << 20);
    put("config/tokenizer_config.json", s.data, s.len);
    ln_str_free(&s);
    OK(ln_has_template(at("config"), &has, err));
    assert_true(has);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(added_tokens), cmocka_unit_test(their_configuration)};
    return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
