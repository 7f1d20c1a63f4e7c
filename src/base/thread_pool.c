/* The process-wide thread pool; a job is a function that is called once on each of n threads.
 *
 * Every worker sleeps on a futex word of its own (`epoch`), on its own cache line: starting a job of n
 * threads wakes n - 1 workers and leaves the others asleep. The caller is thread 0. Every wait (for a new
 * epoch, for the end of a job, at a barrier) works in the same way: spin until the word changes, for at most
 * 200 us, then sleep on it by futex. If a job has more threads than there are processors no thread spins,
 * because the thread it waits for needs the processor. If there are enough processors, threads that share one
 * are separated (step_aside).
 *
 * The barrier counts arrivals. The last thread to arrive resets the count and advances the phase on which the
 * others wait, so that threads need no sense flag of their own. FTZ and DAZ are set permanently on workers
 * and on the caller for the duration of a job, so that results do not depend on the thread. Workers block
 * asynchronous signals, which are left to the threads of the program. A child of fork has no workers: jobs
 * there run on the calling thread, with the same results. */
#include "thread_pool.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SPIN_SECONDS 200e-6
enum { WORKER_STACK = 2 << 20, IN_VAIN = 8 };

typedef _Atomic uint32_t word_t;

/* A futex word, and the number of threads that sleep on it. */
typedef struct watched {
    _Alignas(64) word_t value;
    word_t sleepers;
} watched;

static struct pool {
    pthread_mutex_t growing; /* protects n_threads while it grows */
    pthread_mutex_t running; /* held for the duration of a job */
    _Atomic int n_threads;   /* including the caller */
    ln_job_fn *fn;
    void *user;
    int n; /* threads of the running job */
    bool spin;
    watched left;  /* workers that have not finished the job */
    watched phase; /* phase of the barrier */
    word_t arrived;
    watched epoch[LN_POOL_MAX];
    _Atomic int at[LN_POOL_MAX]; /* processor on which each thread reached its latest barrier */
} pool = {.growing = PTHREAD_MUTEX_INITIALIZER, .running = PTHREAD_MUTEX_INITIALIZER, .n_threads = 1};

static _Thread_local int job_n; /* number of threads of the job that this thread runs; 0: none */

/* ---- waiting ---- */

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Spins until the word changes; false if the time is up. While `meanwhile` returns true it is called instead
 * of pausing, without a time limit. */
static bool spun(watched *w, uint32_t old, ln_idle_fn *meanwhile, void *user) {
    double until = 0;
    while (meanwhile && meanwhile(user))
        if (atomic_load_explicit(&w->value, memory_order_acquire) != old) return true;
    for (int round = 0;; round++) {
        for (int i = 0; i < 32; i++) {
            if (atomic_load_explicit(&w->value, memory_order_acquire) != old) return true;
            relax();
        }
        double now = ln_now();
        if (round == 0) until = now + SPIN_SECONDS;
        else if (now >= until) return false;
    }
}

static void wait_change(watched *w, uint32_t old, bool spin) {
    if (spin && spun(w, old, NULL, NULL)) return;
    atomic_fetch_add(&w->sleepers, 1);
    while (atomic_load(&w->value) == old)
        (void)syscall(SYS_futex, &w->value, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
    atomic_fetch_sub(&w->sleepers, 1);
}

/* Separates threads of a job that share a processor. When one of them sleeps while the other runs, the
 * scheduler sees no reason to move either and leaves them there for seconds. A thread that has waited several
 * times on the processor of another thread migrates to a processor without one, by narrowing its affinity
 * mask and restoring it. Returns whether it moved. */
static bool step_aside(int thread) {
    static _Thread_local int in_vain;
    const int here = sched_getcpu();
    bool beside = false;
    cpu_set_t may, free;
    for (int i = 0; i < pool.n; i++)
        beside |= i != thread && atomic_load_explicit(&pool.at[i], memory_order_relaxed) == here;
    in_vain = beside ? in_vain + 1 : 0;
    if (in_vain < IN_VAIN || sched_getaffinity(0, sizeof may, &may) != 0) return false;
    in_vain = 0;
    free = may;
    for (int i = 0; i < pool.n; i++)
        CPU_CLR((size_t)atomic_load_explicit(&pool.at[i], memory_order_relaxed), &free);
    if (CPU_COUNT(&free) == 0 || sched_setaffinity(0, sizeof free, &free) != 0) return false;
    /* Publish the move now: otherwise the other thread may follow before this one's next barrier. */
    atomic_store_explicit(&pool.at[thread], sched_getcpu(), memory_order_relaxed);
    return sched_setaffinity(0, sizeof may, &may) == 0;
}

/* Wakes the sleepers after the word was changed. With sequential consistency either the sleeper sees the new
 * value or this load sees the sleeper. */
static void wake(watched *w) {
    if (atomic_load(&w->sleepers))
        (void)syscall(SYS_futex, &w->value, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* ---- arithmetic mode ---- */

#if defined(__x86_64__)
static uint32_t mode_set(void) {
    uint32_t old = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(old | 0x8040u); /* FTZ | DAZ */
    return old;
}
static void mode_back(uint32_t old) {
    uint32_t flags = __builtin_ia32_stmxcsr() & 0x3fu; /* keep the caller's exception flags */
    __builtin_ia32_ldmxcsr(old | flags);
}
#elif defined(__aarch64__)
static uint32_t mode_set(void) {
    uint64_t old;
    __asm__ volatile("mrs %0, fpcr" : "=r"(old));
    __asm__ volatile("msr fpcr, %0" : : "r"(old | 1u << 24));
    return (uint32_t)old;
}
static void mode_back(uint32_t old) { __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)old)); }
#else
static uint32_t mode_set(void) { return 0; }
static void mode_back(uint32_t old) { (void)old; }
#endif

/* ---- workers ---- */

static void *worker(void *arg) {
    int me = (int)(intptr_t)arg;
    watched *mine = &pool.epoch[me];
    (void)mode_set();
    bool spin = false; /* a new worker has no job to wait for yet */
    for (uint32_t seen = 0;;) {
        wait_change(mine, seen, spin);
        seen = atomic_load(&mine->value);
        spin = pool.spin;
        job_n = pool.n;
        pool.fn(pool.user, me, pool.n);
        if (atomic_fetch_sub(&pool.left.value, 1) == 1) wake(&pool.left);
    }
    return NULL;
}

static void in_child(void) {
    static const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    memset(&pool, 0, sizeof pool);
    pool.growing = pool.running = fresh;
    atomic_store(&pool.n_threads, 1);
    job_n = 0;
}
/* Registered when the library is loaded: the first fork may happen during a job that needed no worker. */
__attribute__((constructor)) static void watch_forks(void) { (void)pthread_atfork(NULL, NULL, in_child); }

static int start_worker(int me) {
    pthread_attr_t attr;
    pthread_t id;
    sigset_t all, old;
    int bad = pthread_attr_init(&attr);
    if (bad) return bad;
    (void)pthread_attr_setstacksize(&attr, WORKER_STACK);
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    sigfillset(&all); /* except those that the thread itself causes, which must reach its handler */
    static const int own[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    for (size_t i = 0; i < LN_COUNT(own); i++) sigdelset(&all, own[i]);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    bad = pthread_create(&id, &attr, worker, (void *)(intptr_t)me);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    return bad;
}

ln_status ln_pool_reserve(int n, ln_error *err) {
    if (n < 1 || n > LN_POOL_MAX)
        return ln_fail(err, LN_EUSAGE, "threads: expected 1 to %d, found %d", LN_POOL_MAX, n);
    ln_status st = LN_OK;
    pthread_mutex_lock(&pool.growing);
    for (int have = atomic_load(&pool.n_threads); have < n && st == LN_OK; have++) {
        int bad = start_worker(have);
        if (bad == 0) atomic_store(&pool.n_threads, have + 1);
        else
            st = ln_fail(err, LN_EMEMORY,
                         "threads: expected %d, the system gave %d (%s); lower ln_options.n_threads, or "
                         "raise the limits "
                         "of this process (ulimit -u, ulimit -v)",
                         n, have, strerror(bad));
    }
    pthread_mutex_unlock(&pool.growing);
    return st;
}

/* The number of processors in the affinity mask, which is how many threads can run concurrently. */
static int processors(void) {
    static _Atomic int known;
    int n = atomic_load(&known);
    if (n) return n;
    cpu_set_t set;
    n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1024;
    atomic_store(&known, n);
    return n;
}

void ln_pool_run(int n, ln_job_fn *fn, void *user) {
    int outer = job_n;
    if (outer) { /* a nested job runs on the calling thread only */
        job_n = 1;
        fn(user, 0, 1);
        job_n = outer;
        return;
    }
    n = LN_MAX(1, LN_MIN(n, atomic_load(&pool.n_threads)));
    pthread_mutex_lock(&pool.running);
    uint32_t mode = mode_set();
    job_n = n;
    pool.fn = fn;
    pool.user = user;
    pool.n = n;
    pool.spin = n <= processors();
    atomic_store(&pool.left.value, (uint32_t)(n - 1));
    for (int i = 1; i < n; i++) {
        atomic_fetch_add(&pool.epoch[i].value, 1);
        wake(&pool.epoch[i]);
    }
    fn(user, 0, n);
    for (uint32_t left; (left = atomic_load(&pool.left.value)) != 0;)
        wait_change(&pool.left, left, pool.spin);
    job_n = 0;
    mode_back(mode);
    pthread_mutex_unlock(&pool.running);
}

void ln_pool_barrier(int thread) { ln_pool_barrier_idle(thread, NULL, NULL); }

void ln_pool_barrier_idle(int thread, ln_idle_fn *meanwhile, void *user) {
    if (job_n <= 1) return;
    const int here = sched_getcpu();
    if (here != atomic_load_explicit(&pool.at[thread], memory_order_relaxed))
        atomic_store_explicit(&pool.at[thread], here, memory_order_relaxed);
    uint32_t phase = atomic_load(&pool.phase.value);
    if (atomic_fetch_add(&pool.arrived, 1) + 1 == (uint32_t)job_n) {
        atomic_store(&pool.arrived, 0);
        atomic_store(&pool.phase.value, phase + 1);
        wake(&pool.phase);
        return;
    }
    if (pool.spin && spun(&pool.phase, phase, meanwhile, user)) return;
    wait_change(&pool.phase, phase, pool.spin && step_aside(thread));
}
