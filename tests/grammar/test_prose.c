/* Free text with marks: what follows a mark is held to its expression, and everything else is free. */
/* run: quick */
#include "grammar_test.h"

#define CALL                                                                                                 \
    "{\"prose\":[{\"after\":[\"<c>\",\"<cc\"],\"then\":{\"sequence\":[{\"choice\":[\"f\",\"gh\"]},\";\"]}}]" \
    "}"
#define START                                                                                \
    "{\"at_start\":true,\"prose\":[{\"after\":[\"{\\\"n\\\"\",[{\"token\":\"<t>\"},\"{\"]]," \
    "\"then\":\":1}\"}]}"

static const text_case cases[] = {
    /* a text that is no mark is free, however much of one it has */
    {CALL,
     {"", "any <text> <", "<c", "<<c>f;", "a<c>gh;<c>f; b", "\xff<c>f;", "\x80\xfe<cf", "<c<ccf;"},
     {"<c>", "<c>g", "x<c>f;<cc"},
     {"<c> ", "<c>x", "<c>ff", "<ccx", "a<c>f;<c>;"}},
    /* of two marks that end together either counts; one may lie within another */
    {"{\"prose\":[{\"after\":[\"abcd\"],\"then\":\"1\"},{\"after\":[\"bc\"],\"then\":\"2\"}]}",
     {"ab", "bc2", "abc2", "xabc2d", "ac"},
     {"abc", "bc"},
     {"abcd", "abcd1", "bc1", "abc1"}},
    {START,
     {"", "x{\"n\"", "{\"m\":2}", " \n{\"n\":1}", "{\"n\":1}", "\xff<t>{:1}", "\xff<t>x{", "{ \"n\""},
     {"{\"n\"", " {\"n\":", "\xff<t>{"},
     {"{\"n\" ", "{\"n\"x", "{\"n\":1}x", "\xff<t>{}"}},
    /* characters are whole, and no control character but white space stands in such a text */
    {"{\"sequence\":[{\"without\":[\"</p>\"]},\"</p>\"]}",
     {"</p>", "a\n<b></p>", "<</p>", "</p</p>", "\xc3\xa9\t</p>", "</\xe2\x82\xac</p>"},
     {"", "a</p", "\xc3"},
     {"</p>x", "\xff</p>", "\x80", "\x01", "\xc3<", "a</p></p>"}},
};

static void texts(void **state) {
    (void)state;
    for (size_t i = 0; i < LN_COUNT(cases); i++) {
        const text_case *c = &cases[i];
        for (size_t k = 0; k < LN_COUNT(c->whole) && c->whole[k]; k++)
            if (judge(c->form, c->whole[k], strlen(c->whole[k])) != WHOLE)
                fail_msg("%s: '%s' is whole", c->form, c->whole[k]);
        for (size_t k = 0; k < LN_COUNT(c->begin) && c->begin[k]; k++)
            if (judge(c->form, c->begin[k], strlen(c->begin[k])) != BEGINS)
                fail_msg("%s: '%s' is the beginning of one", c->form, c->begin[k]);
        for (size_t k = 0; k < LN_COUNT(c->wrong) && c->wrong[k]; k++)
            if (judge(c->form, c->wrong[k], strlen(c->wrong[k])) != WRONG)
                fail_msg("%s: '%s' is wrong", c->form, c->wrong[k]);
    }
}

/* A long text of beginnings of marks keeps a matcher in its few states, and a token that has a mark and what
 * must not follow it is excluded, alone among all. */
static void long_texts_and_masks(void **state) {
    (void)state;
    static const char *const more[] = {"x<c>", "<c>f;", "<c>x", " <c>g", "y<c><c>"};
    ln_grammar *g;
    ln_matcher *m;
    ln_vocabulary v;
    const uint64_t *mask;
    bool fits;
    open_vocabulary(&v, more, LN_COUNT(more), false);
    OK(ln_grammar_open(&g, CALL, strlen(CALL), err));
    OK(ln_matcher_open(&m, g, &v, err));
    for (int i = 0; i < 200000; i++) {
        OK(ln_matcher_take(m, "<c<<cxc"[i % 7], &fits, err));
        assert_true(fits);
    }
    OK(ln_matcher_take(m, 'x', &fits, err));
    OK(ln_matcher_mask(m, &mask, err));
    for (int64_t id = 0; id < v.n_vocab; id++) {
        const bool allowed = mask[id / 64] >> (id % 64) & 1;
        const bool expected = id != 256 && id != 257 + 2 && id != 257 + 4;
        if (allowed != expected) fail_msg("token %d", (int)id);
    }
    ln_matcher_close(&m);
    ln_grammar_close(&g);
    ln_vocabulary_free(&v);
}

static void refusals(void **state) {
    (void)state;
    static const char *const rows[][2] = {
        {"{\"prose\":{}}", "prose: expected a list"},
        {"{\"prose\":[{\"after\":[],\"then\":\"a\"}]}", "prose[0]: expected an object"},
        {"{\"prose\":[{\"after\":[\"\"],\"then\":\"a\"}]}", "prose[0].after: expected a text"},
        {"{\"prose\":[{\"after\":[\"a\"],\"then\":1}]}", "prose[0].then"},
        {"{\"without\":[]}", "without: expected a list of texts of ASCII"},
        {"{\"without\":[\"\\u00e9\"]}", "without: expected a list of texts of ASCII"},
    };
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        ln_grammar *g;
        FAILS(LN_EINVALID, rows[i][1], ln_grammar_open(&g, rows[i][0], strlen(rows[i][0]), err));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(texts), cmocka_unit_test(long_texts_and_masks),
                                       cmocka_unit_test(refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
