/* Requests next to others that are cancelled. */
#ifndef LN_TEST_CANCELLED_CASES_H
#define LN_TEST_CANCELLED_CASES_H

#include "request_cases.h"

/* Stops every other request at some step, or frees it, in so many rounds; those that stay give the bits that
 * they have alone. */
static void cancel_others(ln_eng *e, const alone_results *a, int rounds) {
    for (int round = 0; round < rounds; round++) {
        uint64_t seed = (uint64_t)round;
        ln_req *r[CASES];
        size_t left = 1;
        for (int i = 0; i < CASES; i++) OK(ln_req_new(&r[i], e, &a->cases[i].opt, err));
        while (left > 0) {
            const int victim = (int)(test_random(&seed) % CASES);
            if (victim % 2 == 1 && r[victim]) {
                if (test_random(&seed) % 2) ln_req_cancel(r[victim]);
                else ln_req_free(&r[victim]);
            }
            OK(ln_driver_step(e->sched, &left, err));
        }
        for (int i = 0; i < CASES; i++) {
            ln_result got;
            if (!r[i]) continue;
            OK(ln_req_result(r[i], &got, err));
            if (i % 2 == 0) assert_same_result(&got, &a->results[i]);
            else /* it is a beginning of what it would have been */
                assert_true(got.n_ids <= a->results[i].n_ids + 1 &&
                            same(got.ids, a->results[i].ids, LN_MIN(got.n_ids, a->results[i].n_ids) * 4));
            ln_result_free(&got);
            ln_req_free(&r[i]);
        }
        assert_int_equal(ln_kv_count(e->kv).n_used, 0);
    }
}

#endif
