/* Background jobs of a thread pool (ln_pool_run_units): every unit is processed once, by the thread to which
 * the partition gives it; a step that waits gets the pool after one slice at most; a background job is not
 * starved by steps.
 *
 * Nothing is timed: threads wait until the pool has counted what they need (ln_pool_get_stats). */
/* run: quick tsan */
#include "cm.h"
#include "base/thread_pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 3, UNITS = 1000, SLICE = 60, SHARE = SLICE / THREADS };

static ln_pool *pool;
static _Atomic int done[UNITS];

static int open_pool(void **state) {
    (void)state;
    return ln_pool_open(&pool, NULL) != LN_OK || ln_pool_reserve(pool, THREADS, NULL) != LN_OK;
}
static int close_pool(void **state) {
    (void)state;
    ln_pool_close(&pool);
    return 0;
}

static ln_pool_stats stats_now(void) {
    ln_pool_stats s;
    ln_pool_get_stats(pool, &s);
    return s;
}
static void until_waited(uint64_t n) {
    while (stats_now().n_waited < n) sched_yield();
}

typedef struct work {
    int n_threads;
    int64_t n_units;
    _Atomic int wrong; /* units outside the thread's partition, or more than its share of a slice */
    int64_t share;     /* expected size of a call; the last one of a partition may be smaller */
    int64_t next[THREADS];
} work;

static void count_units(void *user, int thread, int64_t lo, int64_t hi) {
    work *w = user;
    int64_t from, to;
    ln_partition(w->n_units, 1, thread, w->n_threads, &from, &to);
    w->wrong += lo < from || hi > to || lo >= hi || hi - lo > w->share || (hi - lo < w->share && hi < to);
    w->wrong += lo != from + w->next[thread]; /* in order */
    w->next[thread] += hi - lo;
    for (int64_t i = lo; i < hi; i++) done[i]++;
}

static void every_unit_once(void **state) {
    (void)state;
    static const int64_t sizes[] = {0, 1, 2, 3, 7, 59, 60, 61, UNITS}, slices[] = {1, 2, 5, SLICE, 5000};
    for (size_t s = 0; s < LN_COUNT(sizes); s++)
        for (size_t k = 0; k < LN_COUNT(slices); k++)
            for (int n = 1; n <= THREADS + 2; n++) { /* more than reserved: as many as there are */
                work w = {.n_threads = (int)LN_MAX(1, LN_MIN(sizes[s], LN_MIN(n, THREADS))),
                          .n_units = sizes[s]};
                w.share = LN_MAX(1, slices[k] / w.n_threads);
                memset(done, 0, sizeof done);
                const uint64_t jobs = stats_now().n_jobs;
                ln_pool_run_units(pool, n, sizes[s], slices[k], count_units, &w);
                assert_int_equal(w.wrong, 0);
                for (int64_t i = 0; i < UNITS; i++) assert_int_equal(done[i], i < sizes[s]);
                assert_int_equal(stats_now().n_jobs - jobs, sizes[s] > 0); /* no thread waits: one job */
            }
}

static void units_inside(void *user, int thread, int n) {
    (void)n;
    if (thread > 0) return;
    work *w = user;
    ln_pool_run_units(pool, THREADS, w->n_units, SLICE, count_units, w);
}
static void inside_a_job_on_the_caller(void **state) {
    (void)state;
    work w = {.n_threads = 1, .n_units = UNITS, .share = UNITS};
    memset(done, 0, sizeof done);
    ln_pool_run(pool, THREADS, units_inside, &w);
    assert_int_equal(w.wrong, 0);
    for (int i = 0; i < UNITS; i++) assert_int_equal(done[i], 1);
}

static void a_step(void *user, int thread, int n) {
    (void)n;
    if (thread == 0) ++*(_Atomic int *)user;
}

/* A step arrives while a background job runs: the job starts the step's thread, and all of its threads wait
 * in their units until the step stands in the line. Each then completes its share, and no other unit is begun
 * before the step. */
static struct {
    pthread_t thread;
    uint64_t wanted; /* ln_pool_stats.n_waited once the step waits */
    _Atomic int n_calls, n_before, n_steps;
} meeting;
static void *run_a_step(void *arg) {
    ln_pool_run(pool, THREADS, a_step, &meeting.n_steps);
    return arg;
}
static void meet_a_step(void *user, int thread, int64_t lo, int64_t hi) {
    (void)user, (void)thread;
    if (meeting.n_calls++ == 0 && pthread_create(&meeting.thread, NULL, run_a_step, NULL)) abort();
    until_waited(meeting.wanted);
    if (!meeting.n_steps) meeting.n_before += (int)(hi - lo);
    for (int64_t i = lo; i < hi; i++) done[i]++;
}
static void a_step_waits_for_one_slice(void **state) {
    (void)state;
    for (int times = 0; times < 50; times++) {
        const ln_pool_stats before = stats_now();
        memset(done, 0, sizeof done);
        meeting.wanted = before.n_waited + 1;
        meeting.n_calls = meeting.n_before = meeting.n_steps = 0;
        ln_pool_run_units(pool, THREADS, UNITS, SLICE, meet_a_step, NULL);
        pthread_join(meeting.thread, NULL);
        assert_int_equal(meeting.n_before, SLICE);
        assert_int_equal(meeting.n_steps, 1);
        assert_int_equal(stats_now().n_jobs - before.n_jobs, 3); /* the background job before and after it */
        for (int i = 0; i < UNITS; i++) assert_int_equal(done[i], 1);
    }
    assert_int_equal(stats_now().most_passed[0], 1);
}

/* Two threads run steps without a pause while a third has units: it gets the pool after LN_POOL_STEPS_FIRST
 * steps that came while it waited, and one that ran already. */
static _Atomic bool over;
static void *run_steps(void *n) {
    while (!over) ln_pool_run(pool, THREADS, a_step, n);
    return NULL;
}
static void steps_do_not_starve_it(void **state) {
    (void)state;
    pthread_t t[2];
    _Atomic int n_steps = 0;
    work w = {.n_threads = THREADS, .n_units = UNITS, .share = 1};
    over = false;
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&t[i], NULL, run_steps, &n_steps), 0);
    while (n_steps < 10) sched_yield();
    memset(done, 0, sizeof done);
    ln_pool_run_units(pool, THREADS, UNITS, THREADS, count_units, &w);
    over = true;
    for (int i = 0; i < 2; i++) pthread_join(t[i], NULL);
    assert_int_equal(w.wrong, 0);
    for (int i = 0; i < UNITS; i++) assert_int_equal(done[i], 1);
    const ln_pool_stats s = stats_now();
    print_message("%d steps, %llu jobs; most that passed a step %llu, a background job %llu\n", n_steps,
                  (unsigned long long)s.n_jobs, (unsigned long long)s.most_passed[0],
                  (unsigned long long)s.most_passed[1]);
    assert_in_range(s.most_passed[1], 1, LN_POOL_STEPS_FIRST + 1);
    assert_in_range(s.most_passed[0], 1, 2); /* the other thread's step and a slice */
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_unit_once, open_pool, close_pool),
        cmocka_unit_test_setup_teardown(inside_a_job_on_the_caller, open_pool, close_pool),
        cmocka_unit_test_setup_teardown(a_step_waits_for_one_slice, open_pool, close_pool),
        cmocka_unit_test_setup_teardown(steps_do_not_starve_it, open_pool, close_pool)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
