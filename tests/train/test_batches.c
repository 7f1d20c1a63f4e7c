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

/* Rows of several files: each epoch has so many of each, those of a share in passes of which each has all. */
static void mixtures(void **state) {
    (void)state;
    const train_share files[] = {{0, 4, 4}, {4, 6, 3}, {10, 2, 5}};
    for (int shuffle = 0; shuffle < 2; shuffle++) {
        train_order o;
        train_cursor c = {0, 0};
        uint32_t rows[4][12];
        int times[12] = {0};
        OK(train_order_open(&o, 12, 7, shuffle, err));
        OK(train_order_mix(&o, files, 3, err));
        assert_int_equal(o.n, 12);
        for (int e = 0; e < 4; e++) {
            int n[3] = {0};
            train_order_next(&o, &c, 12, rows[e]);
            for (int i = 0; i < 12; i++) {
                const uint32_t r = rows[e][i];
                n[r < 4 ? 0 : r < 10 ? 1 : 2]++, times[r]++;
            }
            assert_true(n[0] == 4 && n[1] == 3 && n[2] == 5);
        }
        for (int i = 0; i < 12; i++) assert_int_equal(times[i], i < 4 ? 4 : i < 10 ? 2 : 10);
        /* the order is a function of the position alone: in the middle of an epoch, and backwards */
        for (int e = 3; e >= 0; e--) {
            uint32_t again[7];
            train_order_close(&o);
            OK(train_order_open(&o, 12, 7, shuffle, err));
            OK(train_order_mix(&o, files, 3, err));
            c = (train_cursor){(uint64_t)e, 5};
            train_order_next(&o, &c, 7, again);
            assert_memory_equal(again, rows[e] + 5, sizeof again);
        }
        train_order_close(&o);
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
    for (int k = LN_SCHEDULE_CONSTANT; k <= LN_SCHEDULE_WARMUP_STABLE_DECAY; k++) {
        const train_schedule
            s = {.kind = (ln_schedule)k, .n_warmup = 4, .n_steps = 10, .n_decay = 3, .power = 1, .cycles = 1},
            short_one = {.kind = (ln_schedule)k, .n_warmup = 10, .n_steps = 5, .power = 1, .cycles = 1},
            single = {.kind = (ln_schedule)k, .n_steps = 1, .n_decay = 1, .power = 1, .cycles = 1};
        assert_true(train_lr_factor(&s, 1) == 0.25);
        assert_true(train_lr_factor(&s, 4) == 1);
        assert_true(train_lr_factor(&s, 5) == 1);
        assert_true(train_lr_factor(&single, 1) == 1);
        assert_true(train_lr_factor(&short_one, 3) == 0.3);
        for (int64_t step = 5; step <= 10; step++) assert_true(train_lr_factor(&s, step) > 0);
    }
}

/* The rates of transformers' get_scheduler after the warm-up: 3 of 12 steps, 2 restarts, power 2, a tenth of
 * the rate at the end, 4 steps of decay. */
static void schedules_of_transformers(void **state) {
    (void)state;
    static const double want[][9] = {
        {1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0},
        {1.0, 0.8888888888888888, 0.7777777777777778, 0.6666666666666666, 0.5555555555555556,
         0.4444444444444444, 0.3333333333333333, 0.2222222222222222, 0.1111111111111111},
        {1.0, 0.9698463103929543, 0.883022221559489, 0.75, 0.5868240888334653, 0.41317591116653485,
         0.2500000000000001, 0.11697777844051103, 0.03015368960704584},
        {1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0},
        {1.0, 0.883022221559489, 0.5868240888334653, 0.2500000000000001, 0.03015368960704584,
         0.9698463103929543, 0.7500000000000002, 0.41317591116653485, 0.11697777844051103},
        {1.0000000000000002, 0.811111111111111, 0.6444444444444445, 0.5000000000000001, 0.3777777777777778,
         0.2777777777777778, 0.2, 0.14444444444444443, 0.11111111111111113},
        {1.0, 0.8660254037844386, 0.7745966692414834, 0.7071067811865475, 0.6546536707079771,
         0.6123724356957945, 0.5773502691896258, 0.5477225575051661, 0.5222329678670935},
        {1.0, 0.9728616793536587, 0.89471999940354, 0.775, 0.6281416799501187, 0.4718583200498814,
         0.3250000000000001, 0.20528000059645996, 0.12713832064634126},
        {1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.8681980515339465, 0.55, 0.23180194846605368},
    };
    for (int k = 0; k < (int)LN_COUNT(want); k++) {
        const train_schedule s = {.kind = (ln_schedule)k,
                                  .n_warmup = 3,
                                  .n_steps = 12,
                                  .n_decay = 4,
                                  .floor = 0.1,
                                  .power = 2,
                                  .cycles = 2};
        for (int i = 0; i < 9; i++) assert_true(fabs(train_lr_factor(&s, 4 + i) - want[k][i]) < 1e-14);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(orders),    cmocka_unit_test(orders_are_uniform),
        cmocka_unit_test(cursors),   cmocka_unit_test(packing),
        cmocka_unit_test(shares),    cmocka_unit_test(mixtures),
        cmocka_unit_test(schedules), cmocka_unit_test(schedules_of_transformers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
