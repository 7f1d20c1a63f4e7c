/* Accounts and budgets of text memory: what is counted, what is rejected and with which words, and the limit
 * of the process. */
/* run: quick asan tsan */
#include "cm.h"
#include "base/memory_use.h"
#include "base/text_memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)

/* What an account holds is what was allocated inside it; all of it is given back. */
static void counts_what_is_allocated_inside(void **state) {
    (void)state;
    const uint64_t before = ln_texts_used();
    ln_budget b = {.limit = 10 * MIB, .limited_by = "the test"};
    ln_account a = {.budget = &b};
    void *outside = ln_alloc(100000);
    assert_null(ln_account_enter(&a));
    char *p = ln_alloc(100000), *q = ln_zalloc(10, 1000);
    assert_true(p && q);
    assert_in_range(a.bytes, 110000, 112000);
    assert_true(a.reserved >= a.bytes && b.used == a.reserved);
    p = ln_realloc(p, 300000);
    assert_in_range(a.bytes, 310000, 316000);
    p = ln_realloc(p, 1000);
    assert_in_range(a.bytes, 11000, 20000);
    assert_ptr_equal(ln_account_enter(NULL), &a); /* not counted */
    void *apart = ln_alloc(200000);
    ln_account_enter(&a);
    assert_in_range(a.bytes, 11000, 20000);
    ln_free(q);
    ln_account_leave(NULL);
    assert_true(a.reserved < 16384 && ln_texts_used() == before + a.reserved);
    assert_in_range(a.peak, 310000, 320000);
    ln_free(p); /* outside: counted until the account is closed */
    assert_true(a.bytes > 0);
    ln_account_close(&a);
    assert_int_equal(b.used, 0);
    assert_int_equal(ln_texts_used(), before);
    ln_free(outside);
    ln_free(apart);
}

/* The budget rejects before memory is taken; the message has both numbers, and says whether others are in
 * the way. A budget above rejects as well. */
static void refuses_with_both_numbers(void **state) {
    (void)state;
    const uint64_t before = ln_texts_used(), held = ln_mem_bytes();
    ln_budget all = {.limit = 8 * MIB, .limited_by = "the server"},
              one = {.parent = &all, .limit = 5 * MIB, .limited_by = "the share"};
    ln_account a = {.budget = &one}, b = {.budget = &all};
    ln_error err = {0};
    ln_account_enter(&a);
    assert_null(ln_alloc(6 * MIB));
    void *p = ln_alloc(3 * MIB), *null = NULL;
    size_t cap = 0;
    assert_int_equal(ln_grow(&null, &cap, 3 * MIB, 1, &err), LN_EMEMORY);
    ln_str s = {0};
    while (!s.failed) ln_str_add(&s, "0123456789abcdef", 16);
    assert_true(s.len < 2 * MIB);
    ln_account_leave(NULL);
    assert_true(ln_account_never_fits(&a));
    assert_int_equal(ln_account_error(&a, LN_EMEMORY, &err), LN_EMEMORY);
    assert_string_equal(err.message, "reading this text takes 6.3 MB or more, and the share leaves 5.2 MB "
                                     "for texts");
    assert_int_equal(ln_account_error(&a, LN_EINVALID, &err), LN_EINVALID); /* another error stays */
    ln_account_enter(&b);
    assert_null(ln_alloc(5 * MIB));
    ln_account_leave(NULL);
    assert_false(ln_account_never_fits(&b));
    (void)ln_account_error(&b, LN_EMEMORY, &err);
    assert_non_null(strstr(err.message, "the server leaves 8.4 MB for texts, "));
    assert_non_null(strstr(err.message, "of which are in use"));
    assert_false(ln_account_fits(&a, 5 * MIB));
    assert_false(ln_account_add(&b, 8 * MIB));
    assert_true(ln_account_add(&b, 2 * MIB) && all.used >= 5 * MIB);
    ln_account_move(&b, &a, 2 * MIB);
    assert_true(one.used >= 5 * MIB && b.bytes == 0);
    ln_free(p);
    ln_str_free(&s);
    ln_account_close(&a);
    ln_account_close(&b);
    assert_int_equal(all.used + one.used, 0);
    assert_int_equal(ln_texts_used(), before);
    assert_int_equal(ln_mem_bytes(), held);
}

/* Without a budget the limit of the process counts: what it leaves, and what was planned for texts. */
static void keeps_the_limit_of_the_process(void **state) {
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* a sanitizer's own memory counts */
#endif
    if (getenv("LN_SANITIZED")) skip();
    const uint64_t before = ln_texts_used();
    ln_error err = {0};
    ln_text_work w, inner;
    (void)ln_limit_set(ln_memory_resident() + 24 * MIB);
    ln_text_begin(&w);
    ln_text_begin(&inner); /* counts in the same account */
    void *p = ln_alloc(12 * MIB), *q = ln_alloc(24 * MIB);
    assert_true(p && !q);
    assert_int_equal(ln_text_end(&inner, LN_EMEMORY, &err), LN_EMEMORY);
    assert_int_equal(err.code, LN_OK);
    assert_int_equal(ln_text_end(&w, LN_EMEMORY, &err), LN_EMEMORY);
    assert_non_null(strstr(err.message, "takes 37.8 MB or more, and ln_memory_set_limit leaves "));
    ln_free(p);
    ln_texts_plan((int64_t)(64 * MIB)); /* an engine has planned for it */
    assert_int_equal(ln_texts_unused(), 64 * MIB);
    ln_text_begin(&w);
    p = ln_alloc(40 * MIB);
    assert_non_null(p);
    assert_true(ln_texts_unused() < 25 * MIB);
    ln_free(p);
    assert_int_equal(ln_text_end(&w, LN_OK, &err), LN_OK);
    ln_texts_plan(-(int64_t)(64 * MIB));
    (void)ln_limit_set(0);
    assert_int_equal(ln_texts_used(), before);
}

static void *allocate(void *user) {
    ln_account a = {.budget = user};
    ln_account_enter(&a);
    for (int i = 0; i < 20000; i++) ln_free(ln_alloc((size_t)(i * 37 % 90000)));
    ln_account_leave(NULL);
    ln_account_close(&a);
    return NULL;
}

/* Accounts of several threads share a budget; at the end it holds nothing. */
static void threads_share_a_budget(void **state) {
    (void)state;
    const uint64_t before = ln_texts_used();
    ln_budget b = {.limit = 200000, .limited_by = "the test"};
    pthread_t t[4];
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&t[i], NULL, allocate, &b), 0);
    for (int i = 0; i < 4; i++) (void)pthread_join(t[i], NULL);
    assert_int_equal(b.used, 0);
    assert_int_equal(ln_texts_used(), before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_what_is_allocated_inside), cmocka_unit_test(refuses_with_both_numbers),
        cmocka_unit_test(keeps_the_limit_of_the_process), cmocka_unit_test(threads_share_a_budget)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
