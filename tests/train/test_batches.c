/* The order of samples, their packing into micro-batches, and the schedules of the learning rate. */
/* run: quick */
#include "../common.h"

#include "train/batches.h"
#include "train/schedule.h"

#include <math.h>
#include <string.h>

/* Every epoch is a permutation, of its own, and the same again for the same seed. */
static void orders(void **state) {
    (void)state;
    enum { N = 1000 };
    uint32_t a[N], b[N];
    bool seen[N];
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        train_shuffle(a, N, 7, epoch);
        memset(seen, 0, sizeof seen);
        for (size_t i = 0; i < N; i++) {
            assert_true(a[i] < N && !seen[a[i]]);
            seen[a[i]] = true;
        }
        train_shuffle(b, N, 7, epoch);
        assert_memory_equal(a, b, sizeof a);
        train_shuffle(b, N, 7, epoch + 1);
        assert_memory_not_equal(a, b, sizeof a);
        train_shuffle(b, N, 8, epoch);
        assert_memory_not_equal(a, b, sizeof a);
    }
}

/* All 24 orders of 4 items are about equally frequent: chi-squared with 23 degrees of freedom, 5 sigma. */
static void orders_are_uniform(void **state) {
    (void)state;
    enum { DRAWS = 24000 };
    int count[256] = {0};
    double chi = 0;
    int kinds = 0;
    for (uint64_t e = 0; e < DRAWS; e++) {
        uint32_t p[4];
        train_shuffle(p, 4, 3, e);
        count[p[0] << 6 | p[1] << 4 | p[2] << 2 | p[3]]++;
    }
    for (int i = 0; i < 256; i++)
        if (count[i]) kinds++, chi += pow(count[i] - DRAWS / 24, 2) / (DRAWS / 24);
    assert_int_equal(kinds, 24);
    assert_true(chi < 23 + 5 * sqrt(2 * 23));
}

/* The cursor alone continues an order: from any point the same samples follow. */
static void cursors(void **state) {
    (void)state;
    enum { N = 7, STEPS = 20, TAKE = 3 };
    uint32_t all[STEPS][TAKE], again[TAKE];
    train_cursor at[STEPS], c = {0};
    train_order o;
    OK(train_order_open(&o, N, 5, true, err));
    for (int s = 0; s < STEPS; s++) at[s] = c, train_order_next(&o, &c, TAKE, all[s]);
    assert_int_equal(c.epoch * N + c.at, STEPS * TAKE);
    for (int s = STEPS; s-- > 0;) {
        train_order_next(&o, &at[s], TAKE, again);
        assert_memory_equal(again, all[s], sizeof again);
    }
    train_order_close(&o);
    OK(train_order_open(&o, N, 5, false, err));
    c = (train_cursor){.at = 5};
    train_order_next(&o, &c, TAKE, again);
    assert_int_equal(again[0], 5);
    assert_int_equal(again[2], 0);
    train_order_close(&o);
}

static void packing(void **state) {
    (void)state;
    uint64_t scratch[2 * 64], random = 1;
    uint32_t bin[64], sizes[] = {3, 7, 5, 5, 2, 8}; /* 8+2, 7+3, 5+5 */
    size_t n;
    train_pack(sizes, 6, 10, bin, scratch, &n);
    assert_int_equal(n, 3);
    static const uint32_t want[] = {1, 1, 2, 2, 0, 0};
    assert_memory_equal(bin, want, sizeof want);
    for (int round = 0; round < 200; round++) {
        uint32_t s[64];
        uint64_t used[64] = {0}, total = 0;
        const size_t items = 1 + test_random(&random) % 64;
        for (size_t i = 0; i < items; i++) total += s[i] = 1 + test_random(&random) % 100;
        train_pack(s, items, 100, bin, scratch, &n);
        for (size_t i = 0; i < items; i++) assert_true(bin[i] < n), used[bin[i]] += s[i];
        for (size_t b = 0; b < n; b++) assert_true(used[b] > 0 && used[b] <= 100);
        assert_true((n - 1) * 100 < 2 * total); /* all bins but one are half full */
    }
}

static void shares(void **state) {
    (void)state;
    assert_int_equal(train_held_out(100, 0), 0);
    assert_int_equal(train_held_out(100, 0.05), 5);
    assert_int_equal(train_held_out(10, 0.001), 1);
    assert_int_equal(train_held_out(10, 1), 9);
    assert_int_equal(train_held_out(1, 0.5), 0);
}

static void schedules(void **state) {
    (void)state;
    for (int s = TRAIN_CONSTANT; s <= TRAIN_COSINE; s++) {
        assert_true(train_lr_factor(s, 1, 4, 10) == 0.25);
        assert_true(train_lr_factor(s, 4, 4, 10) == 1);
        assert_true(train_lr_factor(s, 5, 4, 10) == 1);
        assert_true(train_lr_factor(s, 1, 0, 1) == 1);
        assert_true(train_lr_factor(s, 3, 10, 5) == 0.3);
        for (int64_t step = 5; step <= 10; step++) {
            const double f = train_lr_factor(s, step, 4, 10), p = (double)(step - 5) / 6;
            const double want = s == TRAIN_CONSTANT ? 1 : s == TRAIN_LINEAR ? 1 - p : (1 + cos(M_PI * p)) / 2;
            assert_true(f > 0 && fabs(f - want) < 1e-15);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(orders),  cmocka_unit_test(orders_are_uniform),
        cmocka_unit_test(cursors), cmocka_unit_test(packing),
        cmocka_unit_test(shares),  cmocka_unit_test(schedules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
