/* Thread pools: every thread runs once, barriers hold, denormals are flushed (FTZ, DAZ) inside a run and
 * unchanged outside, concurrent runs of one pool wait for each other, and pools are independent. */
/* run: slow tsan */
#include "cm.h"
#include "base/thread_pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BARRIERS = 100000 };

static _Atomic int calls[LN_POOL_MAX];

static void count_call(void *user, int thread, int n) {
    if (n != *(int *)user || thread < 0 || thread >= n) calls[0] += 1000;
    calls[thread]++;
}

static void every_thread_runs_once(void **state) {
    (void)state;
    static const int sizes[] = {1, 2, 3, 8, 2, 1, 5, 8};
    assert_int_equal(ln_pool_reserve(ln_pool_default(), 8, NULL), LN_OK);
    for (int round = 0; round < 500; round++) {
        int n = sizes[round % (int)LN_COUNT(sizes)];
        memset(calls, 0, sizeof calls);
        ln_pool_run(ln_pool_default(), n, count_call, &n);
        for (int i = 0; i < LN_POOL_MAX; i++) assert_int_equal(calls[i], i < n);
    }
}

typedef struct rounds {
    int n_rounds;
    _Alignas(64) _Atomic int64_t sum;
    _Atomic int wrong;
    int64_t slot[16][8]; /* one cache line a thread */
} rounds;

/* Between two barriers each thread writes its slot and then reads all others' slots: a barrier that lets a
 * thread through early is detected. */
static void step(void *user, int thread, int n) {
    rounds *r = user;
    for (int64_t i = 1; i <= r->n_rounds; i++) {
        r->slot[thread][0] = i;
        ln_pool_barrier(thread);
        for (int k = 0; k < n; k++)
            if (r->slot[k][0] != i) r->wrong++;
        ln_pool_barrier(thread);
    }
}

static void barriers_hold(void **state) {
    (void)state;
    static const int sizes[] = {1, 2, 3, 8};
    for (size_t s = 0; s < LN_COUNT(sizes); s++) {
        rounds r = {.n_rounds = BARRIERS / 2};
        assert_int_equal(ln_pool_reserve(ln_pool_default(), sizes[s], NULL), LN_OK);
        double t = ln_now(), cpu = cpu_seconds();
        ln_pool_run(ln_pool_default(), sizes[s], step, &r);
        print_message("%d threads: %d barriers in %.2f s, %.2f s of processor time\n", sizes[s], BARRIERS,
                      ln_now() - t, cpu_seconds() - cpu);
        assert_int_equal(r.wrong, 0);
    }
}

/* Thread 0 waits at a barrier for a thread that arrives later. During that time the pool calls its idle
 * callback `wanted` times, or until the barrier opens. */
typedef struct waiting {
    int wanted; /* calls after which the callback returns false; < 0: never */
    int calls;
    _Atomic int came;
    bool early;
} waiting;
static bool meanwhile(void *user) {
    waiting *w = user;
    return ++w->calls != w->wanted;
}
static void wait_busily(void *user, int thread, int n) {
    (void)n;
    waiting *w = user, mine = {0};
    for (double end = ln_now() + 0.02; thread == 1 && ln_now() < end;) {
    }
    if (thread == 1) w->came = 1;
    ln_pool_barrier_idle(thread, meanwhile, thread == 0 ? w : &mine);
    if (thread == 0) w->early = !w->came;
}
static void who_waits_does_something(void **state) {
    (void)state;
    if (ln_logical_cores() < 2) {
        print_message("SKIP: one processor, which a waiting thread leaves to others\n");
        skip();
    }
    for (int wanted = -1; wanted < 6; wanted += 6) {
        waiting w = {.wanted = wanted};
        for (int tries = 0; tries < 20 && w.calls < (wanted > 0 ? wanted : 101);
             tries++) { /* thread 0 may arrive late or not be scheduled */
            w.came = w.calls = 0;
            ln_pool_run(ln_pool_default(), 2, wait_busily, &w);
        }
        assert_false(w.early);
        if (wanted > 0) assert_int_equal(w.calls, wanted);
        else assert_true(w.calls > 100);
    }
}

static void make_denormal(void *user, int thread, int n) {
    (void)n;
    volatile float tiny = 1e-38f, *out = user;
    out[thread] = tiny * 0.1f; /* FTZ: 0 */
    volatile float denormal = ln_now() > 0 ? 1e-40f : 0;
    out[8 + thread] = denormal * 1e20f; /* DAZ: 0 */
}

static void denormals_are_off_inside_only(void **state) {
    (void)state;
#if defined(__x86_64__)
    volatile float out[16], tiny = 1e-38f;
    for (int i = 0; i < 16; i++) out[i] = 1;
    ln_pool_run(ln_pool_default(), 8, make_denormal, (void *)(uintptr_t)out);
    for (int i = 0; i < 16; i++) assert_true(out[i] == 0);
    volatile float after = tiny * 0.1f;
    assert_true(after > 0);
#else
    print_message("SKIP: checked on x86-64 only\n");
#endif
}

static void nested_step(void *user, int thread, int n) {
    if (n != 1 || thread != 0) *(_Atomic int *)user += 100;
    ln_pool_barrier(thread);
    ++*(_Atomic int *)user;
}

static void nested_outer(void *user, int thread, int n) {
    ln_pool_run(ln_pool_default(), 3, nested_step, user);
    ln_pool_barrier(thread);
    (void)n;
}

static void a_job_inside_a_job_runs_alone(void **state) {
    (void)state;
    _Atomic int count = 0;
    ln_pool_run(ln_pool_default(), 3, nested_outer, &count);
    assert_int_equal(count, 3);
}

static _Atomic int inside, overlaps;

static void exclusive(void *user, int thread, int n) {
    (void)user;
    (void)n;
    if (thread == 0 && atomic_fetch_add(&inside, 1) != 0) overlaps++;
    ln_pool_barrier(thread);
    if (thread == 0) atomic_fetch_sub(&inside, 1);
}

static void *many_runs(void *arg) {
    (void)arg;
    for (int i = 0; i < 2000; i++) ln_pool_run(ln_pool_default(), 1 + i % 3, exclusive, NULL);
    return NULL;
}

static void a_second_run_waits_its_turn(void **state) {
    (void)state;
    pthread_t t[3];
    for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&t[i], NULL, many_runs, NULL), 0);
    for (int i = 0; i < 3; i++) pthread_join(t[i], NULL);
    assert_int_equal(overlaps, 0);
    assert_int_equal(inside, 0);
}

/* Jobs get the pool in the order in which they began to wait: a line of WAITING threads, each of which is
 * seen in the line before the next one starts, behind a job that runs until all stand there. */
enum { WAITING = 5 };
static ln_pool *lined_up;
static _Atomic int order[2 * WAITING], n_ordered;
static void note_order(void *user, int thread, int n) {
    (void)n;
    if (thread == 0) order[n_ordered++] = (int)(intptr_t)user;
}
static void *stand_in_line(void *number) {
    for (int i = 0; i < 2; i++) ln_pool_run(lined_up, 2, note_order, number);
    return NULL;
}
static void hold_until_all_wait(void *user, int thread, int n) {
    (void)n;
    pthread_t *t = user;
    ln_pool_stats s;
    for (int i = 0; thread == 0 && i < WAITING; i++) {
        if (pthread_create(&t[i], NULL, stand_in_line, (void *)(intptr_t)i)) abort();
        do {
            sched_yield();
            ln_pool_get_stats(lined_up, &s);
        } while (s.n_waited != (uint64_t)i + 1);
    }
}
static void first_come_first_served(void **state) {
    (void)state;
    pthread_t t[WAITING];
    ln_pool_stats s;
    assert_int_equal(ln_pool_open(&lined_up, NULL), LN_OK);
    assert_int_equal(ln_pool_reserve(lined_up, 2, NULL), LN_OK);
    ln_pool_run(lined_up, 2, hold_until_all_wait, t);
    for (int i = 0; i < WAITING; i++) pthread_join(t[i], NULL);
    ln_pool_get_stats(lined_up, &s);
    assert_int_equal(s.n_jobs, 1 + 2 * WAITING);
    assert_int_equal(s.most_passed[0], WAITING); /* of the last one: the job that ran, and four of the line */
    assert_true(s.n_waited >= WAITING && s.n_waited <= 2 * WAITING);
    for (int i = 0; i < WAITING; i++) assert_int_equal(order[i], i);
    ln_pool_close(&lined_up);
}

/* Two jobs that wait for each other: they end only if they run at the same time. */
static _Atomic int met;
static void meet(void *user, int thread, int n) {
    (void)user;
    if (thread == 0) met++;
    while (met < 2) sched_yield();
    ln_pool_barrier(thread);
    if (n != 2) met = 1000;
}
static void *meet_in(void *pool) {
    ln_pool_run(pool, 2, meet, NULL);
    return NULL;
}

static void two_pools_run_at_once(void **state) {
    (void)state;
    ln_pool *other = NULL;
    pthread_t t;
    met = 0;
    assert_int_equal(ln_pool_open(&other, NULL), LN_OK);
    assert_int_equal(ln_pool_reserve(other, 2, NULL), LN_OK);
    assert_int_equal(pthread_create(&t, NULL, meet_in, other), 0);
    meet_in(ln_pool_default());
    pthread_join(t, NULL);
    assert_int_equal(met, 2);
    /* a job of one pool inside a job of the other runs on the calling thread */
    _Atomic int count = 0;
    ln_pool_run(other, 2, nested_outer, &count);
    assert_int_equal(count, 2);
    ln_pool_close(&other);
    assert_null(other);
}

/* Threads of this process, from /proc/self/status. */
static int n_threads_now(void) {
    char line[256];
    int n = -1;
    FILE *f = fopen("/proc/self/status", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) (void)sscanf(line, "Threads: %d", &n);
    (void)fclose(f);
    return n;
}

/* Waits up to a second until so many threads exist: a joined thread may remain in the kernel's count for a
 * moment. Returns how many exist. */
static int n_threads_soon(int expected) {
    for (int tries = 0; n_threads_now() != expected && tries < 1000; tries++) usleep(1000);
    return n_threads_now();
}

static void a_closed_pool_leaves_nothing(void **state) {
    (void)state;
    int before = n_threads_now();
    for (int i = 0; i < 20; i++, usleep(1000)) before = LN_MIN(before, n_threads_now());
    const uint64_t bytes = ln_mem_bytes();
    for (int i = 0; i < 50; i++) {
        ln_pool *p = NULL;
        int n = 1 + i % 4;
        assert_int_equal(ln_pool_open(&p, NULL), LN_OK);
        assert_int_equal(ln_pool_reserve(p, n, NULL), LN_OK);
        assert_int_equal(n_threads_soon(before + n - 1), before + n - 1);
        memset(calls, 0, sizeof calls);
        if (i % 3) ln_pool_run(p, n, count_call, &n); /* else it is closed before its first job */
        assert_int_equal(calls[n - 1], i % 3 != 0);
        ln_pool_close(&p);
    }
    assert_int_equal(n_threads_soon(before), before);
    assert_int_equal(ln_mem_bytes(), bytes);
    ln_pool *none = NULL, *all = ln_pool_default();
    ln_pool_close(&none);
    ln_pool_close(&all); /* ignored */
    int n = 8;
    ln_pool_run(ln_pool_default(), 8, count_call, &n);
    ln_mem_fail_at(1, false);
    assert_int_equal(ln_pool_open(&none, NULL), LN_EMEMORY);
    ln_mem_fail_at(0, false);
    assert_null(none);
}

/* The number of threads that a job on 3 threads gets. */
static void count_n(void *user, int thread, int n) {
    if (thread == 0) *(int *)user = n;
    ln_pool_barrier(thread);
}

static void a_child_of_fork_has_every_pool(void **state) {
    (void)state;
#if defined(__SANITIZE_THREAD__)
    skip(); /* its runtime starts no threads in a child of a process with threads */
#endif
    ln_pool *pool[2] = {ln_pool_default(), NULL};
    assert_int_equal(ln_pool_open(&pool[1], NULL), LN_OK);
    assert_int_equal(ln_pool_reserve(pool[1], 3, NULL), LN_OK);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int bad = 0, n = 0;
        alarm(30);
        for (int i = 0; i < 2; i++) {
            ln_pool_run(pool[i], 3, count_n, &n); /* on the calling thread */
            bad += n != 1;
            bad += ln_pool_reserve(pool[i], 3, NULL) != LN_OK;
            ln_pool_run(pool[i], 3, count_n, &n); /* with workers of the child */
            bad += n != 3;
        }
        ln_pool_close(&pool[1]);
        _exit(bad);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    int n = 0;
    ln_pool_run(pool[1], 3, count_n, &n); /* the parent's pool is as before */
    assert_int_equal(n, 3);
    ln_pool_close(&pool[1]);
}

static void an_idle_pool_sleeps(void **state) {
    (void)state;
    int n = 8;
    ln_pool_run(ln_pool_default(), 8, count_call, &n);
    usleep(5000);
    double cpu = cpu_seconds();
    usleep(200000);
    assert_true(cpu_seconds() - cpu < 0.01);
}

static void signal_mask(void *user, int thread, int n) {
    (void)n;
    sigset_t set;
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    bool good =
        sigismember(&set, SIGINT) == 1 && sigismember(&set, SIGBUS) == 0 && sigismember(&set, SIGSEGV) == 0;
    if (thread > 0 && !good) ++*(_Atomic int *)user;
}

static void workers_leave_signals_to_the_program(void **state) {
    (void)state;
    _Atomic int wrong = 0;
    ln_pool_run(ln_pool_default(), 4, signal_mask, &wrong);
    assert_int_equal(wrong, 0);
}

static void reserving_is_checked(void **state) {
    (void)state;
    ln_error err;
    assert_int_equal(ln_pool_reserve(ln_pool_default(), 0, &err), LN_EUSAGE);
    assert_int_equal(ln_pool_reserve(ln_pool_default(), -3, &err), LN_EUSAGE);
    assert_int_equal(ln_pool_reserve(ln_pool_default(), LN_POOL_MAX + 1, &err), LN_EUSAGE);
    int n = 8; /* more threads than reserved: the run gets the reserved ones */
    memset(calls, 0, sizeof calls);
    ln_pool_run(ln_pool_default(), 100, count_call, &n);
    assert_int_equal(calls[0], 1);
    assert_int_equal(calls[7], 1);
}

static void shares_cover_everything_once(void **state) {
    (void)state;
    for (int64_t n = 0; n < 200; n += 7)
        for (int64_t grain = 1; grain < 40; grain += 6)
            for (int threads = 1; threads < 9; threads++) {
                int64_t at = 0;
                for (int t = 0; t < threads; t++) {
                    int64_t lo, hi;
                    ln_partition(n, grain, t, threads, &lo, &hi);
                    assert_int_equal(lo, at);
                    assert_true(hi >= lo && (hi % grain == 0 || hi == n));
                    at = hi;
                }
                assert_int_equal(at, n);
            }
}

static void the_machine(void **state) {
    (void)state;
    int cores = ln_cores(), logical = ln_logical_cores();
    print_message("%d cores, %d logical, %.1f of %.1f GB, resident %.1f MB, peak %.1f MB\n", cores, logical,
                  1e-9 * (double)ln_memory_available(), 1e-9 * (double)ln_memory_total(),
                  1e-6 * (double)ln_memory_resident(), 1e-6 * (double)ln_memory_peak());
    assert_true(cores >= 1 && cores <= logical);
    assert_true(ln_memory_available() > 0 && ln_memory_available() <= ln_memory_total());
    assert_true(ln_memory_resident() > 100000 && ln_memory_resident() <= ln_memory_peak());
    double a = ln_now();
    assert_true(ln_now() >= a);
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_thread_runs_once),
                                       cmocka_unit_test(barriers_hold),
                                       cmocka_unit_test(who_waits_does_something),
                                       cmocka_unit_test(denormals_are_off_inside_only),
                                       cmocka_unit_test(a_job_inside_a_job_runs_alone),
                                       cmocka_unit_test(a_second_run_waits_its_turn),
                                       cmocka_unit_test(first_come_first_served),
                                       cmocka_unit_test(two_pools_run_at_once),
                                       cmocka_unit_test(a_closed_pool_leaves_nothing),
                                       cmocka_unit_test(a_child_of_fork_has_every_pool),
                                       cmocka_unit_test(an_idle_pool_sleeps),
                                       cmocka_unit_test(workers_leave_signals_to_the_program),
                                       cmocka_unit_test(reserving_is_checked),
                                       cmocka_unit_test(shares_cover_everything_once),
                                       cmocka_unit_test(the_machine)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
