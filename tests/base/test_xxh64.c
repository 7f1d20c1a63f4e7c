/* XXH64 against published values, and in pieces of every length. */
/* run: quick */
#include "cm.h"
#include "base/xxh64.h"

#include <string.h>

static uint64_t hash(const void *data, size_t bytes) {
    ln_xxh64 h;
    ln_xxh64_open(&h);
    ln_xxh64_add(&h, data, bytes);
    return ln_xxh64_value(&h);
}

static void published_values(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint64_t value;
    } of[] = {{"", UINT64_C(0xEF46DB3751D8E999)},
              {"a", UINT64_C(0xD24EC4F1A98C6E5B)},
              {"abc", UINT64_C(0x44BC2CF5AD770999)},
              {"Nobody inspects the spammish repetition", UINT64_C(0xFBCEA83C8A378BF1)}};
    for (size_t i = 0; i < LN_COUNT(of); i++)
        assert_true(hash(of[i].text, strlen(of[i].text)) == of[i].value);
}

static void pieces_do_not_matter(void **state) {
    (void)state;
    uint8_t data[200];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)(i * 37 + 11);
    for (size_t n = 0; n <= sizeof data; n++) {
        const uint64_t want = hash(data, n);
        for (size_t piece = 1; piece <= 70; piece++) {
            ln_xxh64 h;
            ln_xxh64_open(&h);
            for (size_t at = 0; at < n; at += piece) ln_xxh64_add(&h, data + at, LN_MIN(piece, n - at));
            assert_true(ln_xxh64_value(&h) == want);
        }
        if (n == 0) continue;
        data[n / 2] ^= 1;
        assert_true(hash(data, n) != want);
        data[n / 2] ^= 1;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(published_values),
                                       cmocka_unit_test(pieces_do_not_matter)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
