/* Normalizers and character classes compared with the reference (normal.json, written by make_normal.py):
 * every code point among marks of other combining classes, random runs of marks and letters, and the
 * mappings of utf8proc. The texts of a block are hashed, so that the file stays small; a hash that differs
 * is reported with the normalizer and the block. */
/* run: slow */
#include "../tokenizer/vectors.h"

#include "tokenizer/tokenizer_internal.h"

enum { BLOCK = 0x4000, LIMIT = 0x40000, N_RANDOM = 16384, RANDOM_BLOCK = 2048, RANDOM_LENGTH = 12 };
#define FNV_START 0xcbf29ce484222325u
#define FNV_PRIME 0x100000001b3u

static uint64_t fnv(uint64_t h, const char *data, size_t n) {
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)data[i]) * FNV_PRIME;
    return h;
}

static bool surrogate(uint32_t cp) { return cp >= 0xd800 && cp <= 0xdfff; }
static void put(ln_str *s, uint32_t cp) { assert_int_equal(utf8_append_cp(s, cp, NULL), LN_OK); }

/* The text of in_context in make_normal.py. */
static void put_in_context(ln_str *s, uint32_t c) {
    const uint32_t all[] = {'a', 0x301, c, 0x316, c, 0x345, ' ', c, 0x300, c, 0x5b4, 'A', c};
    for (size_t i = 0; i < LN_COUNT(all); i++) put(s, all[i]);
}

static void put_random(ln_str *s, const json_t *ranges, uint64_t *state) {
    for (int i = 0; i < RANDOM_LENGTH; i++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        const json_t *r = json_array_get(ranges, (size_t)(*state >> 48) % json_array_size(ranges));
        uint64_t first = (uint64_t)json_integer_value(json_array_get(r, 0)),
                 last = (uint64_t)json_integer_value(json_array_get(r, 1));
        put(s, (uint32_t)(first + (*state >> 33) % 0x8000 % (last - first + 1)));
    }
}

static uint64_t add_normalized(uint64_t h, const tok_norm *n, const ln_str *in) {
    tok_regex_work w = {0};
    ln_str buf[2] = {{0}, {0}};
    const char *text = in->data;
    size_t bytes = in->len;
    bool at_start = true;
    assert_int_equal(norm_run(n, &w, buf, &text, &bytes, &at_start, NULL), LN_OK);
    h = fnv(fnv(h, text, bytes), "\n", 1);
    regex_work_close(&w);
    ln_str_free(&buf[0]);
    ln_str_free(&buf[1]);
    return h;
}

static json_t *golden;
static size_t n_wrong;

static void check(const char *what, const json_t *hashes, size_t at, uint64_t got, const char *where) {
    char text[17];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)got);
    const char *want = json_string_value(json_array_get(hashes, at));
    assert_non_null(want);
    if (strcmp(want, text) == 0) return;
    printf("%s: %s differ from the reference's\n", what, where);
    n_wrong++;
}

static void check_normalizer(const char *name, const json_t *section, const json_t *ranges,
                             const json_t *hashes) {
    tok_norm n = {0};
    size_t at = 0;
    char where[64];
    assert_int_equal(norm_read(&n, section, NULL), LN_OK);
    for (uint32_t first = 0; first < LIMIT; first += BLOCK) {
        uint64_t h = FNV_START;
        for (uint32_t cp = first; cp < first + BLOCK; cp++) {
            if (surrogate(cp)) continue;
            ln_str in = {0};
            put_in_context(&in, cp);
            h = add_normalized(h, &n, &in);
            ln_str_free(&in);
        }
        snprintf(where, sizeof where, "U+%04X to U+%04X in context", first, first + BLOCK - 1);
        check(name, hashes, at++, h, where);
    }
    uint64_t state = 1;
    for (int first = 0; first < N_RANDOM; first += RANDOM_BLOCK) {
        uint64_t h = FNV_START;
        for (int i = 0; i < RANDOM_BLOCK; i++) {
            ln_str in = {0};
            put_random(&in, ranges, &state);
            h = add_normalized(h, &n, &in);
            ln_str_free(&in);
        }
        snprintf(where, sizeof where, "random texts %d to %d", first, first + RANDOM_BLOCK - 1);
        check(name, hashes, at++, h, where);
    }
    assert_int_equal(at, json_array_size(hashes));
    norm_close(&n);
}

static void normalizers_as_the_reference(void **state) {
    (void)state;
    const json_t *hashes = json_object_get(golden, "hashes"), *ranges = json_object_get(golden, "ranges");
    const char *name;
    json_t *section;
    n_wrong = 0;
    assert_int_equal(json_object_size(hashes), 9);
    json_object_foreach(json_object_get(golden, "normalizers"), name, section)
        check_normalizer(name, section, ranges, json_object_get(hashes, name));
    assert_int_equal(n_wrong, 0);
}

static void classes_as_the_reference(void **state) {
    (void)state;
    const json_t *hashes = json_object_get(golden, "classes");
    size_t at = 0;
    n_wrong = 0;
    for (uint32_t first = 0; first < LIMIT; first += BLOCK) {
        uint64_t h = FNV_START;
        char where[64];
        for (uint32_t cp = first; cp < first + BLOCK; cp++) {
            char bits = (char)(unicode_is_word(cp) | unicode_is_punct(cp) << 1 | unicode_is_number(cp) << 2);
            if (!surrogate(cp)) h = fnv(h, &bits, 1);
        }
        snprintf(where, sizeof where, "U+%04X to U+%04X", first, first + BLOCK - 1);
        check("word, punctuation and number classes", hashes, at++, h, where);
    }
    assert_int_equal(at, json_array_size(hashes));
    assert_int_equal(n_wrong, 0);
}

/* Readable single cases from the reference: there, marks newer than Unicode 10 have combining class 0 and
 * end a reordering. */
static void newer_marks_are_not_reordered(void **state) {
    (void)state;
    static const struct {
        unicode_form form;
        const char *in, *out;
    } cases[] = {{UNICODE_NFC, "\u09fe\u09cd", "\u09fe\u09cd"},
                 {UNICODE_NFC, "a\u07f3\u07fd", "a\u07f3\u07fd"},
                 {UNICODE_NFC, "a\u0898\u0316", "a\u0898\u0316"},
                 {UNICODE_NFC, "\u1ac1\u0316x", "\u1ac1\u0316x"},
                 {UNICODE_NFC, "a\u0898\u0301", "a\u0898\u0301"}, /* composition does not reach over them
                                                                     either */
                 {UNICODE_NFC, "a\u0301\u0316", "\u00e1\u0316"},
                 {UNICODE_NFD, "\u00e1\u0316", "a\u0316\u0301"},
                 {UNICODE_NFKC, "\U00011935\U00011930", "\U00011935\U00011930"}};
    for (size_t i = 0; i < LN_COUNT(cases); i++) {
        ln_str out = {0};
        assert_int_equal(unicode_normalize(cases[i].form, cases[i].in, strlen(cases[i].in), &out, NULL),
                         LN_OK);
        assert_string_equal(out.data, cases[i].out);
        ln_str_free(&out);
    }
    assert_int_equal(text_combining(0x301), 230);
    assert_int_equal(text_combining(0x345), 240);
    assert_int_equal(text_combining(0x898), 0);
    assert_int_equal(text_combining('a'), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(normalizers_as_the_reference),
                                       cmocka_unit_test(classes_as_the_reference),
                                       cmocka_unit_test(newer_marks_are_not_reordered)};
    golden = json_load_file(LN_ROOT "/tests/unicode/normal.json", 0, NULL);
    if (!golden) return fprintf(stderr, "tests/unicode/normal.json: cannot be read\n"), 1;
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    json_decref(golden);
    return rc;
}
