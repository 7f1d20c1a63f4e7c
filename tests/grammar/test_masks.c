/* Masks that take whole slices of a vocabulary without a walk: in every state that a random text reaches, the
 * mask is that of the tokens one by one. The patterns count words or characters, so that most states are met
 * once. */
/* run: quick asan */
#include "grammar_test.h"

enum { N_TOKENS = 500, LONGEST = 24, TOKEN_BYTES = 4 * LONGEST + 1 };

/* Tokens of random characters: of words, blanks of one and more bytes, escapes, and quotation marks; runs of
 * one. */
static void make_tokens(char store[N_TOKENS][TOKEN_BYTES], const char *tokens[N_TOKENS], uint64_t *seed) {
    static const char *const chars[] = {"a",
                                        "b",
                                        "x",
                                        "-",
                                        " ",
                                        "\xc3\xa9",
                                        "\xc2\xa0",
                                        "\xe3\x80\x80",
                                        "\xe4\xb8\xad",
                                        "\xf0\x9f\x98\x80",
                                        "\\n",
                                        "\\\"",
                                        "7",
                                        "\"",
                                        "_"};
    for (int i = 0; i < N_TOKENS; i++) {
        const uint64_t most = i % 5 == 0 ? LONGEST : i % 2 ? 4 : 9, n = 1 + test_random(seed) % most;
        const uint64_t plain = LN_COUNT(chars) - (i % 4 == 0 ? 0 : 5), run = i % 7 == 0;
        uint64_t c = test_random(seed) % plain;
        store[i][0] = '\0';
        for (uint64_t k = 0; k < n; k++) {
            strcat(store[i], chars[c]);
            if (!run) c = test_random(seed) % plain;
        }
        tokens[i] = store[i];
    }
}

/* Compares the mask with the tokens one by one, and chooses one, preferably one that does not end the
 * text. */
static int32_t choose(ln_matcher *m, const ln_vocabulary *v, const char *form, uint64_t *seed) {
    const uint64_t *mask;
    int32_t chosen = -1;
    uint64_t n = 0;
    OK(ln_matcher_mask(m, &mask, err));
    for (int32_t id = 0; id < v->n_vocab; id++) {
        bool fits;
        const bool masked = mask[id / 64] >> (id % 64) & 1;
        OK(ln_matcher_allows(m, id, &fits, err));
        if (fits != masked)
            fail_msg("%s: token '%.*s': the mask says %d", form, (int)(v->at[id + 1] - v->at[id]),
                     v->text + v->at[id], masked);
        OK(ln_matcher_mask(m, &mask, err));
        if (!masked) continue;
        const uint64_t weight = id < 257                                                      ? 1
                                : memchr(v->text + v->at[id], '"', v->at[id + 1] - v->at[id]) ? 2
                                                                                              : 40;
        n += weight;
        if (test_random(seed) % n < weight) chosen = id;
    }
    return chosen;
}

static void slices_agree_with_tokens(void **state) {
    (void)state;
    static const char *const forms[] = {
        SCHEMA("{\"type\":\"string\",\"pattern\":\"^(?:\\\\S+\\\\s+){0,9}\\\\S+$\"}"),
        SCHEMA("{\"type\":\"string\",\"pattern\":\"^$|(^(?:\\\\S+\\\\s+){0,30}\\\\S+$)\",\"minLength\":0}"),
        SCHEMA("{\"type\":\"string\",\"pattern\":\"^(?:\\\\S+\\\\s+){0,9}\\\\S+$\",\"maxLength\":60}"),
        SCHEMA("{\"type\":\"string\",\"pattern\":\"^(?:\\\\S+\\\\s+){2,30}\\\\S+$\",\"minLength\":30,"
               "\"maxLength\":50}"),
        SCHEMA("{\"type\":\"string\",\"pattern\":\"^(..)*$\",\"maxLength\":41}"),
        SCHEMA("{\"type\":\"string\",\"pattern\":\"^(.{7})*$\",\"minLength\":20,\"maxLength\":45}"),
        SCHEMA("{\"type\":\"string\",\"pattern\":\"^.{0,20}x?[^x]{0,20}$\"}"),
        SCHEMA("{\"type\":\"string\",\"pattern\":\"a.*x.*b\"}"),
        SCHEMA("{\"type\":\"string\",\"pattern\":\"^(?!.*xx)\",\"maxLength\":30}"),
        SCHEMA("{\"anyOf\":[{\"type\":\"string\",\"maxLength\":12},{\"type\":\"string\",\"pattern\":\"^(.{5})"
               "*-$\"}]}"),
        SCHEMA("{\"type\":\"array\",\"items\":{\"type\":\"string\",\"pattern\":\"^(\\\\S+ ){0,5}\\\\S+$\"}}"),
        "{\"regex\":\"(\\\\S+\\\\s+){0,6}\\\\S+\"}",
    };
    static char store[N_TOKENS][TOKEN_BYTES];
    const char *tokens[N_TOKENS];
    uint64_t seed = 7;
    ln_vocabulary v;
    make_tokens(store, tokens, &seed);
    open_vocabulary(&v, tokens, N_TOKENS, false);
    for (size_t i = 0; i < LN_COUNT(forms); i++) {
        ln_grammar *g;
        OK(ln_grammar_open(&g, forms[i], strlen(forms[i]), err));
        for (int round = 0; round < 3; round++) {
            ln_matcher *m;
            bool fits = true;
            OK(ln_matcher_open(&m, g, &v, err));
            for (int step = 0; step < 25; step++) {
                const int32_t chosen = choose(m, &v, forms[i], &seed);
                if (chosen < 0) break;
                OK(ln_matcher_take(m, chosen, &fits, err));
                assert_true(fits);
            }
            ln_matcher_close(&m);
        }
        ln_grammar_close(&g);
    }
    ln_vocabulary_free(&v);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(slices_agree_with_tokens)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
