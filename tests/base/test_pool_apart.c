/* The pool separates threads of a job that share a processor (separate in base/thread_pool.c), and
 * never changes the affinity of the caller. The test
 * runs on a simulated machine whose processors are integers.
 *
 * It replaces the three calls with which the pool queries and sets processors (the linker takes these
 * definitions before the C library's). The threads run on any real processor; only the simulated numbers
 * say which threads share one, so that nothing depends on the operating system's load balancing, which may
 * separate two such threads at once or after ten seconds. Nothing depends on timing either: a thread
 * arrives late at a barrier because it sleeps, so that the other threads have waited in vain; a barrier at
 * which they arrived later still does not count. */
/* run: quick tsan */
#include "cm.h"
#include "base/thread_pool.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum { PROCESSORS = 4, THREADS = 3, LATE_US = 200, ROUNDS = 20000, MORE = 60 };

static bool refuse;
static _Atomic int asked; /* calls of sched_setaffinity */
static _Atomic int asked_by_caller;
static _Thread_local int number; /* of the thread in the job */
static _Thread_local int on;
static _Thread_local unsigned may = (1u << PROCESSORS) - 1;

int sched_getcpu(void) { return on; }

int sched_getaffinity(pid_t who, size_t bytes, cpu_set_t *set) {
    (void)who;
    memset(set, 0, bytes);
    for (int i = 0; i < PROCESSORS; i++)
        if (may >> i & 1) CPU_SET((size_t)i, set);
    return 0;
}

int sched_setaffinity(pid_t who, size_t bytes, const cpu_set_t *set) {
    asked++;
    asked_by_caller += number == 0;
    (void)who, (void)bytes;
    unsigned wanted = 0;
    for (int i = 0; i < PROCESSORS; i++) wanted |= (unsigned)CPU_ISSET((size_t)i, set) << i;
    if (!wanted || refuse) {
        errno = wanted ? EPERM : EINVAL;
        return -1;
    }
    may = wanted;
    if (!(may >> on & 1)) on = __builtin_ctz(may);
    return 0;
}

typedef struct play {
    int from[THREADS]; /* the processor on which each thread starts */
    unsigned may;      /* bit mask of the processors on which all of them may run */
    int late[2];       /* the thread that is late at even and at odd barriers */
    _Atomic int until; /* number of barriers; lowered once all threads are on different processors */
    _Atomic int at[THREADS];
    unsigned may_after[THREADS];
} play;

static bool apart(const play *p, int n) {
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++)
            if (p->at[i] == p->at[k]) return false;
    return true;
}

static void wait_together(void *user, int thread, int n) {
    play *p = user;
    const bool ends = thread == 0 && p->until == ROUNDS;
    bool seen = false;
    number = thread;
    on = p->from[thread];
    may = p->may;
    p->at[thread] = on;
    for (int i = 0; i < p->until; i++) {
        if (thread == p->late[i % 2]) usleep(LATE_US);
        if (ends && !seen && apart(p, n)) { /* Goes on for MORE barriers, to catch a thread that moves too
                                               late. All threads have this barrier before them, so they
                                               agree on the end. */
            seen = true;
            p->until = i + MORE;
        }
        ln_pool_barrier(thread);
        p->at[thread] = on;
    }
    p->may_after[thread] = may;
}

static void run(play *p, int n) {
    assert_int_equal(ln_pool_reserve(ln_pool_default(), n, NULL), LN_OK);
    asked = 0;
    ln_pool_run(ln_pool_default(), n, wait_together, p);
    for (int i = 0; i < n; i++) assert_int_equal(p->may_after[i], p->may); /* no thread stays bound */
    assert_int_equal(asked_by_caller, 0);
}

static void who_waits_in_vain_moves(void **state) {
    (void)state;
    play p = {.from = {2, 2}, .may = 15, .late = {0, 0}, .until = ROUNDS};
    run(&p, 2);
    assert_true(apart(&p, 2));
    assert_int_equal(asked, 2); /* one call to move, one to restore the mask */
}

/* The caller waits at every barrier for a worker on its processor: the worker moves, though it never waits.
 */
static void the_worker_moves_for_the_caller(void **state) {
    (void)state;
    play p = {.from = {2, 2}, .may = 15, .late = {1, 1}, .until = ROUNDS};
    run(&p, 2);
    assert_true(apart(&p, 2));
    assert_int_equal(p.at[0], 2);
    assert_int_equal(asked, 2);
    play three = {.from = {1, 1, 1}, .may = 15, .late = {2, 1}, .until = ROUNDS};
    run(&three, 3);
    assert_true(apart(&three, 3));
    assert_int_equal(three.at[0], 1);
}

/* Each of two threads waits for the other alternately: both have a reason to move, and only one may, or
 * both would meet again on the new processor. */
static void one_of_two_moves(void **state) {
    (void)state;
    for (int times = 0; times < 4; times++) {
        play p = {.from = {1, 1}, .may = 15, .late = {0, 1}, .until = ROUNDS};
        run(&p, 2);
        assert_true(apart(&p, 2));
        assert_int_equal(asked, 2);
    }
}

static void three_are_taken_apart(void **state) {
    (void)state;
    play p = {.from = {3, 3, 3}, .may = 15, .late = {0, 1}, .until = ROUNDS};
    run(&p, 3);
    assert_true(apart(&p, 3));
}

static void only_where_they_may_run(void **state) {
    (void)state;
    play p = {.from = {1, 1}, .may = 1u << 1 | 1u << 3, .late = {0, 0}, .until = ROUNDS};
    run(&p, 2);
    assert_int_equal(p.at[0] + p.at[1], 1 + 3);
}

static void nobody_moves_without_reason(void **state) {
    (void)state;
    play alone = {.from = {0, 1, 2}, .may = 15, .late = {0, 1}, .until = MORE}; /* apart already */
    run(&alone, 3);
    assert_int_equal(asked, 0);
    play once = {.from = {0, 0}, .may = 15, .late = {0, 0}, .until = 3}; /* three waits are too few */
    run(&once, 2);
    assert_int_equal(asked, 0);
    play full = {.from = {0, 0, 1}, .may = 3, .late = {0, 1}, .until = MORE}; /* no processor is free */
    run(&full, 3);
    assert_int_equal(asked, 0);
}

static void a_refusal_changes_nothing(void **state) {
    (void)state;
    play p = {.from = {0, 0}, .may = 15, .late = {0, 0}, .until = 5 * MORE};
    refuse = true;
    run(&p, 2);
    refuse = false;
    assert_true(!apart(&p, 2) && asked > 0);
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_waits_in_vain_moves),  cmocka_unit_test(the_worker_moves_for_the_caller),
        cmocka_unit_test(one_of_two_moves),         cmocka_unit_test(three_are_taken_apart),
        cmocka_unit_test(only_where_they_may_run),  cmocka_unit_test(nobody_moves_without_reason),
        cmocka_unit_test(a_refusal_changes_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
