/* The base library: memory, arenas, strings, UTF-8, errors. */
/* run: quick */
#include "cm.h"
#include "base/base.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static void counts_what_is_held(void **state) {
    (void)state;
    uint64_t before = ln_mem_bytes();
    void *p = ln_alloc(1000), *q = ln_zalloc(10, 100);
    assert_true(ln_mem_bytes() >= before + 2000 && ln_mem_bytes() < before + 2400);
    assert_int_equal((uintptr_t)p % 16, 0);
    for (int i = 0; i < 1000; i++) assert_int_equal(((char *)q)[i], 0);
    p = ln_realloc(p, 100000);
    assert_true(ln_mem_bytes() >= before + 101000);
    ln_free(p);
    ln_free(q);
    ln_free(NULL);
    assert_int_equal(ln_mem_bytes(), before);
}

static void refuses_sizes_that_overflow(void **state) {
    (void)state;
    uint64_t before = ln_mem_bytes();
    assert_null(ln_zalloc(SIZE_MAX / 2, 3));
    assert_null(ln_strndup("x", SIZE_MAX));
    void *p = NULL;
    size_t cap = 0;
    ln_error err;
    assert_int_equal(ln_grow(&p, &cap, SIZE_MAX / 4, 16, &err), LN_EMEMORY);
    assert_null(p);
    ln_arena a = {0};
    assert_null(ln_arena_alloc(&a, SIZE_MAX - 4));
    ln_arena_free(&a);
    assert_int_equal(ln_mem_bytes(), before);
}

static void fails_where_it_is_told(void **state) {
    (void)state;
    ln_mem_fail_at(2, false);
    void *a = ln_alloc(1), *b = ln_alloc(1), *c = ln_alloc(1);
    assert_non_null(a);
    assert_null(b);
    assert_non_null(c);
    ln_mem_fail_at(1, true);
    assert_null(ln_alloc(1));
    assert_null(ln_zalloc(1, 1));
    assert_null(ln_realloc(a, 100));
    assert_null(ln_strndup("a", 1));
    ln_mem_fail_at(-1, false);
    void *d = ln_alloc(1);
    assert_non_null(d);
    ln_free(a);
    ln_free(c);
    ln_free(d);
}

static void grows_and_keeps(void **state) {
    (void)state;
    void *p = NULL;
    size_t cap = 0;
    for (size_t i = 0; i < 10000; i++) {
        assert_int_equal(ln_grow(&p, &cap, i + 1, sizeof(size_t), NULL), LN_OK);
        ((size_t *)p)[i] = i;
    }
    for (size_t i = 0; i < 10000; i++) assert_int_equal(((size_t *)p)[i], i);
    ln_mem_fail_at(1, false);
    size_t old = cap;
    assert_int_equal(ln_grow(&p, &cap, cap + 1, sizeof(size_t), NULL), LN_EMEMORY);
    assert_int_equal(cap, old);
    assert_int_equal(((size_t *)p)[9999], 9999);
    ln_free(p);
}

static void *churn(void *arg) {
    void *kept[64] = {0};
    unsigned x = (unsigned)(uintptr_t)arg + 1;
    for (int i = 0; i < 50000; i++) {
        x = x * 1664525u + 1013904223u;
        void **slot = &kept[x >> 26];
        ln_free(*slot);
        *slot = ln_alloc(x >> 20);
    }
    for (size_t i = 0; i < LN_COUNT(kept); i++) ln_free(kept[i]);
    return NULL;
}

static void counts_across_threads(void **state) {
    (void)state;
    uint64_t before = ln_mem_bytes();
    pthread_t t[4];
    for (size_t i = 0; i < 4; i++) assert_int_equal(pthread_create(&t[i], NULL, churn, (void *)i), 0);
    for (size_t i = 0; i < 4; i++) pthread_join(t[i], NULL);
    assert_int_equal(ln_mem_bytes(), before);
}

static void arena_gives_zeroed_aligned_separate_blocks(void **state) {
    (void)state;
    uint64_t before = ln_mem_bytes();
    ln_arena a = {0};
    unsigned char *piece[500];
    size_t size[500];
    for (size_t i = 0; i < 500; i++) {
        size[i] = (i * 7919) % 5000;
        piece[i] = ln_arena_alloc(&a, size[i]);
        assert_non_null(piece[i]);
        assert_int_equal((uintptr_t)piece[i] % 16, 0);
        for (size_t k = 0; k < size[i]; k++) assert_int_equal(piece[i][k], 0);
        memset(piece[i], (int)(i & 255), size[i]);
    }
    for (size_t i = 0; i < 500; i++)
        for (size_t k = 0; k < size[i]; k++) assert_int_equal(piece[i][k], i & 255);
    char *big = ln_arena_alloc(&a, 10 << 20);
    assert_non_null(big);
    assert_string_equal(ln_arena_strndup(&a, "hello world", 5), "hello");
    ln_arena_free(&a);
    assert_int_equal(ln_mem_bytes(), before);
    for (int n = 1; n < 6; n++) {
        ln_arena f = {0};
        ln_mem_fail_at(n, false);
        int failures = 0;
        for (int i = 0; i < 200; i++) failures += ln_arena_alloc(&f, 1000) == NULL;
        ln_mem_fail_at(-1, false);
        assert_int_equal(failures, 1);
        ln_arena_free(&f);
    }
    assert_int_equal(ln_mem_bytes(), before);
}

static void string_failure_is_sticky(void **state) {
    (void)state;
    ln_str s = {0};
    ln_str_adds(&s, "abc");
    ln_str_addf(&s, "%d-%s", 12, "x");
    ln_str_add(&s, "\0z", 2);
    assert_int_equal(s.len, 9);
    assert_memory_equal(s.data, "abc12-x\0z", 10);
    ln_mem_fail_at(1, false);
    for (int i = 0; i < 100; i++) ln_str_adds(&s, "0123456789");
    ln_mem_fail_at(-1, false);
    assert_true(s.failed);
    size_t len = s.len;
    ln_str_adds(&s, "more");
    assert_int_equal(s.len, len);
    ln_str_free(&s);
    assert_null(s.data);
    assert_false(s.failed);
}

static void json_text(void **state) {
    (void)state;
    ln_str s = {0};
    static const char in[] = "a\"\\\n\t\r\x01\x7f\0\xc3\xa9\xff\xed\xa0\x80 /\xf0\x9f\x98\x80";
    ln_str_json(&s, in, sizeof in - 1);
    assert_string_equal(s.data, "\"a\\\"\\\\\\n\\t\\r\\u0001\\u007f\\u0000\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd"
                                "\xef\xbf\xbd\xef\xbf\xbd /\xf0\x9f\x98\x80\"");
    ln_str_free(&s);
}

static void utf8_round_trip_of_everything(void **state) {
    (void)state;
    for (uint32_t cp = 0; cp <= 0x10ffff; cp++) {
        char out[4];
        uint32_t back = 0;
        if (cp >= 0xd800 && cp <= 0xdfff) continue;
        int n = ln_utf8_put(out, cp);
        if (ln_utf8_get(out, (size_t)n, &back) != n || back != cp)
            fail_msg("U+%04X does not come back", (unsigned)cp);
        if (n > 1 && ln_utf8_get(out, (size_t)n - 1, &back) != 0)
            fail_msg("U+%04X accepted when cut", (unsigned)cp);
    }
}

static void utf8_refusals(void **state) {
    (void)state;
    static const char *const bad[] = {"\x80",
                                      "\xbf",
                                      "\xc0\x80",
                                      "\xc1\xbf",
                                      "\xe0\x80\x80",
                                      "\xe0\x9f\xbf",
                                      "\xed\xa0\x80",
                                      "\xed\xbf\xbf",
                                      "\xf0\x80\x80\x80",
                                      "\xf0\x8f\xbf\xbf",
                                      "\xf4\x90\x80\x80",
                                      "\xf5\x80\x80\x80",
                                      "\xff",
                                      "\xfe",
                                      "\xc3(",
                                      "\xe2\x82(",
                                      "\xf0\x9f\x98("};
    for (size_t i = 0; i < LN_COUNT(bad); i++) {
        uint32_t cp;
        char text[64] = "0123456789abcdef";
        memcpy(text + 16, bad[i], strlen(bad[i]) + 1);
        assert_int_equal(ln_utf8_get(bad[i], strlen(bad[i]), &cp), 0);
        assert_int_equal(ln_utf8_valid(text, strlen(text)), 16);
    }
    assert_int_equal(ln_utf8_valid("", 0), 0);
    assert_int_equal(ln_utf8_valid("\0\0\0\0\0\0\0\0\0", 9), 9);
}

static void messages_are_one_clean_line(void **state) {
    (void)state;
    ln_error err = {0};
    char long_text[3000];
    memset(long_text, 'x', sizeof long_text);
    for (size_t i = 0; i + 2 < sizeof long_text; i += 2) memcpy(long_text + i, "\xc3\xa9", 2);
    long_text[sizeof long_text - 1] = '\0';
    for (int shift = 0; shift < 2; shift++) {
        assert_int_equal(ln_fail(&err, LN_EIO, "%s%s", shift ? "y" : "", long_text), LN_EIO);
        size_t n = strlen(err.message);
        assert_true(n >= 1021 && n <= 1023);
        assert_int_equal(ln_utf8_valid(err.message, n), n);
    }
    (void)ln_fail(&err, LN_EINVALID, "two\nlines %d", 5);
    assert_string_equal(err.message, "two lines 5");
    assert_int_equal(ln_prefix(&err, LN_EIO, "file %s", "a"), LN_EINVALID);
    assert_string_equal(err.message, "file a: two lines 5");
    assert_int_equal(ln_fail(NULL, LN_EIO, "x"), LN_EIO);
    assert_int_equal(ln_prefix(NULL, LN_EIO, "x"), LN_EIO);
}

static void excerpts_are_safe(void **state) {
    (void)state;
    char buf[80];
    assert_string_equal(ln_excerpt(buf, "a\x1b[2Jb\n\xff", 8), "a\\u001b[2Jb\\n\\xff");
}

static void excerpts_are_bounded(void **state) {
    (void)state;
    char buf[80], in[400];
    for (size_t n = 0; n < sizeof in; n++) {
        for (size_t i = 0; i < n; i++) in[i] = (char)(i * 37);
        assert_true(strlen(ln_excerpt(buf, in, n)) <= 67);
    }
    memset(in, 'a', sizeof in);
    assert_int_equal(strlen(ln_excerpt(buf, in, 64)), 64);
    assert_string_equal(ln_excerpt(buf, in, 65) + 60, "aaaa...");
    assert_string_equal(ln_excerpt(buf, "\xe2\x80\xae\xc2\x9b", 5), "\\u202e\\u009b");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(counts_what_is_held),
                                       cmocka_unit_test(refuses_sizes_that_overflow),
                                       cmocka_unit_test(fails_where_it_is_told),
                                       cmocka_unit_test(grows_and_keeps),
                                       cmocka_unit_test(counts_across_threads),
                                       cmocka_unit_test(arena_gives_zeroed_aligned_separate_blocks),
                                       cmocka_unit_test(string_failure_is_sticky),
                                       cmocka_unit_test(json_text),
                                       cmocka_unit_test(utf8_round_trip_of_everything),
                                       cmocka_unit_test(utf8_refusals),
                                       cmocka_unit_test(messages_are_one_clean_line),
                                       cmocka_unit_test(excerpts_are_safe),
                                       cmocka_unit_test(excerpts_are_bounded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
