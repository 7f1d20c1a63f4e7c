/* Long texts: the bound of their ids from below, which no text may have fewer ids than; and the memory that
 * encoding takes, which grows with the ids. */
/* run: slow */
#include "../common.h"
#include "base/text_memory.h"
#include "tokenizer/tokenizer.h"

static ln_tok *opened(const char *dir) {
    ln_tok *t;
    OK(ln_tok_open(&t, dir, err));
    return t;
}

static size_t count(const ln_tok *t, const char *text, size_t bytes) {
    ln_ids ids = {0};
    OK(ln_tok_encode(t, text, bytes, false, &ids, err));
    const size_t n = ids.n;
    ln_ids_free(&ids);
    return n;
}

/* Texts that need few ids for their bytes: the longest tokens, blanks, letters that a normalizer shrinks. */
static void no_text_has_fewer_ids(void **state) {
    (void)state;
    static const char *const models[] = {LN_ROOT "/models/tiny", LN_ROOT "/tests/golden/llama-long-bf16",
                                         LN_ROOT "/tests/golden/gemma3-long-bf16"};
    static const char *const units[] = {" ",
                                        "\n",
                                        "\t",
                                        "abc ",
                                        "Once upon a time ",
                                        "\xe2\x84\xaa", /* Kelvin's sign */
                                        "e\xcc\x81",    /* e and an acute accent */
                                        "\xf0\x9d\x90\x80",
                                        "\xed\x95\x9c",
                                        "_",
                                        "========",
                                        "<|im_end|>",
                                        "\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab"};
    bool bounded = false;
    for (size_t m = 0; m < LN_COUNT(models); m++) {
        ln_tok *t = opened(models[m]);
        size_t bytes;
        for (int32_t id = -1; id < ln_tok_count(t); id += 97) {
            ln_str s = {0};
            const char *unit = id >= 0 ? ln_tok_content(t, id, &bytes) : NULL;
            for (size_t u = 0; u < (unit ? 1 : LN_COUNT(units)); u++) {
                s.len = 0;
                while (s.len < 20000) ln_str_adds(&s, unit && unit[0] ? unit : units[u]);
                const size_t fewest = ln_tok_fewest(t, s.data, s.len), n = count(t, s.data, s.len);
                if (fewest > n)
                    fail_msg("%s: %.20s: %zu ids, the bound is %zu", models[m], s.data, n, fewest);
                bounded = bounded || fewest > 10;
            }
            ln_str_free(&s);
        }
        assert_int_equal(ln_tok_fewest(t, "", 0), 0);
        ln_tok_close(&t);
    }
    assert_true(bounded);
}

/* A text that is too long for the list of ids is rejected before it is encoded. */
static void too_long_a_text_is_refused(void **state) {
    (void)state;
    ln_tok *t = opened(LN_ROOT "/models/tiny");
    ln_str s = {0};
    while (s.len < 4 << 20) ln_str_adds(&s, "Once upon a time there was a girl. ");
    ln_ids ids = {.most = 1000};
    ln_account a = {0};
    ln_error why = {0};
    ln_account_enter(&a);
    assert_int_equal(ln_tok_encode(t, s.data, s.len, false, &ids, &why), LN_EINVALID);
    ln_account_leave(NULL);
    assert_true(ids.fewest > 1000 && ids.n == 0 && a.peak < 4096);
    assert_non_null(strstr(why.message, "tokens, expected at most 1000"));
    ids.most = 1 << 22;
    OK(ln_tok_encode(t, s.data, s.len, false, &ids, err));
    ln_ids_free(&ids);
    ln_account_close(&a);
    ln_str_free(&s);
    ln_tok_close(&t);
}

/* In addition to the text and its normalised copy, encoding takes a few bytes an id, and not lists of all
 * pieces. */
static void memory_grows_with_the_ids(void **state) {
    (void)state;
    static const char *const models[] = {LN_ROOT "/models/tiny", LN_ROOT "/tests/golden/llama-long-bf16"};
    for (size_t m = 0; m < LN_COUNT(models); m++) {
        ln_tok *t = opened(models[m]);
        ln_str s = {0};
        while (s.len < 4 << 20) ln_str_adds(&s, "Once upon a time there was a girl. ");
        ln_ids ids = {0};
        ln_account a = {0};
        ln_account_enter(&a);
        OK(ln_tok_encode(t, s.data, s.len, false, &ids, err));
        ln_account_leave(NULL);
        const uint64_t most =
            ids.n * sizeof *ids.data * 5 / 2 + (1 << 20); /* a list grows by half of itself */
        if (a.peak > most)
            fail_msg("%s: %zu ids took %llu bytes, at most %llu are expected", models[m], ids.n,
                     (unsigned long long)a.peak, (unsigned long long)most);
        ln_ids_free(&ids);
        ln_account_close(&a);
        ln_str_free(&s);
        ln_tok_close(&t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_text_has_fewer_ids),
                                       cmocka_unit_test(too_long_a_text_is_refused),
                                       cmocka_unit_test(memory_grows_with_the_ids)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
