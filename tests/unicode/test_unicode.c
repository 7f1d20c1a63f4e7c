/* Facts about characters that the tokenizer relies on, checked for every code point: which ones
 * normalization never changes, the byte-level alphabet, and the character classes of patterns. Normalisation
 * is in test_normal.c. */
/* run: quick */
#include "../tokenizer/vectors.h"

#include "tokenizer/tokenizer_internal.h"

enum { LAST = 0x10ffff };
static bool surrogate(uint32_t cp) { return cp >= 0xd800 && cp <= 0xdfff; }

/* The code points of the normalisation of one code point. */
static size_t normal(unicode_form form, uint32_t cp, uint32_t list[32]) {
    char text[4];
    ln_str out = {0};
    size_t n = 0;
    assert_int_equal(unicode_normalize(form, text, (size_t)ln_utf8_put(text, cp), &out, NULL), LN_OK);
    for (size_t at = 0; at < out.len;) {
        assert_true(n < 32);
        at += utf8_next(out.data + at, &list[n++]);
    }
    ln_str_free(&out);
    return n;
}

/* Inert: the character is its own canonical decomposition, no mark, and not the second of any composition. A
 * text of inert characters is therefore in NFC. */
static void inert_characters_are_inert(void **state) {
    (void)state;
    static bool second[LAST + 1];
    uint32_t d[32];
    size_t n_inert = 0;
    for (uint32_t cp = 0; cp <= LAST; cp++)
        if (!surrogate(cp))
            for (size_t i = 1, n = normal(UNICODE_NFD, cp, d); i < n; i++) second[d[i]] = true;
    for (uint32_t cp = 0; cp <= LAST; cp++) {
        if (surrogate(cp) || !unicode_nfc_inert(cp)) continue;
        if (normal(UNICODE_NFC, cp, d) != 1 || d[0] != cp || text_combining(cp) != 0 || second[cp])
            fail_msg("U+%04X is not inert", cp);
        n_inert++;
    }
    assert_true(n_inert > 90000);
}

static void alphabet(void **state) {
    (void)state;
    size_t n = 0;
    for (uint32_t cp = 0; cp < 0x1000; cp++) n += byte_level_byte(cp) >= 0;
    assert_int_equal(n, 256);
    for (int b = 0; b < 256; b++) assert_int_equal(byte_level_byte(byte_level_cp[b]), b);
    assert_int_equal(byte_level_cp[' '], 0x120);
    assert_int_equal(byte_level_cp[0xad], 0x143);
}

static bool matches(const tok_regex *re, tok_regex_work *w, uint32_t cp) {
    char s[4];
    size_t n = (size_t)ln_utf8_put(s, cp);
    tok_matches m = {0};
    bool found = false;
    assert_int_equal(regex_next(re, w, s, n, &m, &found, NULL), LN_OK);
    return found && m.end > m.start;
}

static bool is_space(uint32_t cp) { return unicode_is_space(cp); }
static bool no_space(uint32_t cp) { return !unicode_is_space(cp); }
static bool is_word(uint32_t cp) {
    return (unicode_is_word(cp) && cp != 0x200c && cp != 0x200d) || cp == 0xb2 || cp == 0xb3 || cp == 0xb9 ||
           (cp >= 0xbc && cp <= 0xbe);
}
static bool no_word(uint32_t cp) { return !is_word(cp); }
static bool word_in_set(uint32_t cp) { return unicode_is_word(cp) && cp != 0x200c && cp != 0x200d; }
static bool neither(uint32_t cp) { return !unicode_is_space(cp) && cp != 'a'; }

static void sets_of_patterns(void **state) {
    (void)state;
    static const struct {
        const char *pattern;
        bool (*want)(uint32_t);
    } cases[] = {{"\\s", is_space},       {"\\S", no_space},    {"[\\s]", is_space},
                 {"[^\\S]", is_space},    {"[\\S]", no_space},  {"[^\\s]", no_space},
                 {"\\w", is_word},        {"\\W", no_word},     {"[\\w]", word_in_set},
                 {"[^\\W]", word_in_set}, {"[^a\\s]", neither}, {"[[:space:]]", is_space}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tok_regex re;
        tok_regex_work w = {0};
        assert_int_equal(regex_open(&re, "test", cases[i].pattern, strlen(cases[i].pattern), false, NULL),
                         LN_OK);
        for (uint32_t cp = 0; cp < 0x20000; cp++)
            if (!surrogate(cp) && cp != '\n' && matches(&re, &w, cp) != cases[i].want(cp))
                fail_msg("%s: U+%04X", cases[i].pattern, cp);
        regex_work_close(&w);
        regex_close(&re);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(inert_characters_are_inert),
                                       cmocka_unit_test(alphabet), cmocka_unit_test(sets_of_patterns)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
