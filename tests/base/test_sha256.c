/* SHA-256 against the examples of FIPS 180-4 and its successors, in one piece and in pieces of every size. */
/* run: quick */
#include "cm.h"

#include "base/sha256.h"

#include <string.h>

static void digest(char out[LN_SHA256_HEX], const char *data, size_t bytes, size_t piece) {
    ln_sha256 h;
    ln_sha256_open(&h);
    for (size_t at = 0; at < bytes; at += piece) ln_sha256_add(&h, data + at, LN_MIN(piece, bytes - at));
    ln_sha256_hex(&h, out);
}

static void standard_examples(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", "248d6a61d20638b8e5c026930c3e6039a33ce45"
                                                                     "964ff2167f6ecedd419db06c1"},
        {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmno"
         "p"
         "qrstnopqrstu",
         "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"}};
    char out[LN_SHA256_HEX];
    for (size_t i = 0; i < LN_COUNT(cases); i++)
        for (size_t piece = 1; piece <= strlen(cases[i][0]) + 1; piece++) {
            digest(out, cases[i][0], strlen(cases[i][0]), piece);
            assert_string_equal(out, cases[i][1]);
        }
}

static void a_million_letters(void **state) {
    (void)state;
    static char text[1000000];
    char out[LN_SHA256_HEX];
    memset(text, 'a', sizeof text);
    for (size_t piece = 63; piece <= 65; piece++) {
        digest(out, text, sizeof text, piece);
        assert_string_equal(out, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    }
}

/* Every length around the padding's borders: two pieces and one piece agree. */
static void every_length(void **state) {
    (void)state;
    char text[200], one[LN_SHA256_HEX], two[LN_SHA256_HEX], before[LN_SHA256_HEX] = "";
    for (size_t n = 0; n < sizeof text; n++) {
        text[n] = (char)n;
        digest(one, text, n, n + 1);
        digest(two, text, n, 1 + n / 2);
        assert_string_equal(one, two);
        assert_string_not_equal(one, before);
        memcpy(before, one, sizeof before);
    }
}

static void texts_have_lengths(void **state) {
    (void)state;
    char one[LN_SHA256_HEX], two[LN_SHA256_HEX];
    ln_sha256 h;
    ln_sha256_open(&h);
    ln_sha256_add_text(&h, "ab", 2);
    ln_sha256_add_text(&h, "c", 1);
    ln_sha256_hex(&h, one);
    ln_sha256_open(&h);
    ln_sha256_add_text(&h, "a", 1);
    ln_sha256_add_text(&h, "bc", 2);
    ln_sha256_hex(&h, two);
    assert_string_not_equal(one, two);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(standard_examples),
                                       cmocka_unit_test(a_million_letters), cmocka_unit_test(every_length),
                                       cmocka_unit_test(texts_have_lengths)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
