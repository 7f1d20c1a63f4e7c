/* What the tokenizer believes of characters, walked over all of them: which ones normalization never touches, the byte-level alphabet,
 * the four forms against utf8proc's own, and sets of patterns on every code point of a plane. */
#include "vectors.h"

#include "text/tok.h"

#include <utf8proc.h>

enum { LAST = 0x10ffff };
static bool surrogate(uint32_t cp) { return cp >= 0xd800 && cp <= 0xdfff; }

static size_t decompose(uint32_t cp, utf8proc_int32_t out[32]) {
    int last = 0;
    utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)cp, out, 32, UTF8PROC_DECOMPOSE | UTF8PROC_STABLE, &last);
    assert_true(n >= 0 && n <= 32);
    return (size_t)n;
}

/* Inert: its own canonical form, no mark, and second in no composition. Then a text of inert characters is in NFC. */
static void inert_characters_are_inert(void **state) {
    (void)state;
    static bool second[LAST + 1];
    utf8proc_int32_t d[32];
    size_t n_inert = 0;
    for (uint32_t cp = 0; cp <= LAST; cp++)
        if (!surrogate(cp))
            for (size_t i = 1, n = decompose(cp, d); i < n; i++) second[d[i]] = true;
    for (uint32_t cp = 0; cp <= LAST; cp++) {
        if (surrogate(cp) || !text_nfc_inert(cp)) continue;
        utf8proc_ssize_t n = (utf8proc_ssize_t)decompose(cp, d);
        n = utf8proc_normalize_utf32(d, n, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
        if (n != 1 || d[0] != (utf8proc_int32_t)cp || utf8proc_get_property((utf8proc_int32_t)cp)->combining_class != 0 || second[cp])
            fail_msg("U+%04X is not inert", cp);
        n_inert++;
    }
    assert_true(n_inert > 90000);
}

static void alphabet(void **state) {
    (void)state;
    size_t n = 0;
    for (uint32_t cp = 0; cp < 0x1000; cp++) n += text_cp_byte(cp) >= 0;
    assert_int_equal(n, 256);
    for (int b = 0; b < 256; b++) assert_int_equal(text_cp_byte(text_byte_cp[b]), b);
    assert_int_equal(text_byte_cp[' '], 0x120);
    assert_int_equal(text_byte_cp[0xad], 0x143);
}

/* Characters whose decomposition the reference is too old for; utf8proc has it. */
static bool newer(uint32_t cp) {
    return cp == 0x32ff || (cp >= 0xa7f2 && cp <= 0xa7f4) || cp == 0xab69 || (cp >= 0x10781 && cp <= 0x107ba) || cp == 0x11938 ||
           (cp >= 0x1e030 && cp <= 0x1e06d) || cp == 0x1f16c || (cp >= 0x1fbf0 && cp <= 0x1fbf9);
}

static void forms_as_utf8proc_has_them(void **state) {
    (void)state;
    static const utf8proc_option_t how[] = {UTF8PROC_COMPOSE, UTF8PROC_DECOMPOSE, UTF8PROC_COMPOSE | UTF8PROC_COMPAT, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT};
    static const uint32_t starts[] = {0x20, 0xc0, 0x300, 0x340, 0x900, 0x1100, 0x1e00, 0x2100, 0x3040, 0xac00, 0xf900, 0xfb00, 0xff00, 0x1d100, 0x2f800};
    uint32_t seed = 1;
    for (int i = 0; i < 40000; i++) {
        ln_str in = {0}, out = {0};
        for (int k = 0; k < 8; k++) {
            seed = seed * 1664525u + 1013904223u;
            uint32_t cp = starts[(seed >> 8) % (sizeof starts / sizeof *starts)] + (seed >> 20) % 0x180;
            if (seed >> 31) cp = 0x300 + (seed >> 16) % 0x50;
            if (!surrogate(cp) && !newer(cp)) assert_int_equal(text_add_cp(&in, cp, NULL), LN_OK);
        }
        text_form form = (text_form)(i % 4);
        utf8proc_uint8_t *want = NULL;
        utf8proc_ssize_t n = utf8proc_map((const utf8proc_uint8_t *)in.data, (utf8proc_ssize_t)in.len, &want, how[form] | UTF8PROC_STABLE);
        assert_true(n >= 0);
        assert_int_equal(text_normal(form, in.data, in.len, &out, NULL), LN_OK);
        if (out.len != (size_t)n || memcmp(out.data, want, out.len) != 0) fail_msg("form %d of '%s': '%s', not '%s'", form, in.data, out.data, (char *)want);
        if (text_is_normal(form, in.data, in.len)) assert_memory_equal(in.data, out.data, in.len);
        free(want);
        ln_str_free(&in);
        ln_str_free(&out);
    }
}

static bool matches(const text_regex *re, text_regex_work *w, uint32_t cp) {
    char s[4];
    size_t n = (size_t)ln_utf8_put(s, cp);
    text_matches m = {0};
    bool found = false;
    assert_int_equal(regex_next(re, w, s, n, &m, &found, NULL), LN_OK);
    return found && m.end > m.start;
}

static bool is_space(uint32_t cp) { return text_is_space(cp); }
static bool no_space(uint32_t cp) { return !text_is_space(cp); }
static bool is_word(uint32_t cp) {
    return (text_is_word(cp) && cp != 0x200c && cp != 0x200d) || cp == 0xb2 || cp == 0xb3 || cp == 0xb9 || (cp >= 0xbc && cp <= 0xbe);
}
static bool no_word(uint32_t cp) { return !is_word(cp); }
static bool word_in_set(uint32_t cp) { return text_is_word(cp) && cp != 0x200c && cp != 0x200d; }
static bool neither(uint32_t cp) { return !text_is_space(cp) && cp != 'a'; }

static void sets_of_patterns(void **state) {
    (void)state;
    static const struct {
        const char *pattern;
        bool (*want)(uint32_t);
    } cases[] = {{"\\s", is_space}, {"\\S", no_space}, {"[\\s]", is_space}, {"[^\\S]", is_space}, {"[\\S]", no_space}, {"[^\\s]", no_space},
                 {"\\w", is_word}, {"\\W", no_word}, {"[\\w]", word_in_set}, {"[^\\W]", word_in_set}, {"[^a\\s]", neither}, {"[[:space:]]", is_space}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        text_regex re;
        text_regex_work w = {0};
        assert_int_equal(regex_open(&re, "test", cases[i].pattern, strlen(cases[i].pattern), false, NULL), LN_OK);
        for (uint32_t cp = 0; cp < 0x20000; cp++)
            if (!surrogate(cp) && cp != '\n' && matches(&re, &w, cp) != cases[i].want(cp)) fail_msg("%s: U+%04X", cases[i].pattern, cp);
        regex_work_close(&w);
        regex_close(&re);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(inert_characters_are_inert), cmocka_unit_test(alphabet), cmocka_unit_test(forms_as_utf8proc_has_them),
                                       cmocka_unit_test(sets_of_patterns)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
