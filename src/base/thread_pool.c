/* Thread pools; a job is a function that is called once on each of n threads of a pool.
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
 * asynchronous signals, which are left to the threads of the program. A thread finds the pool of the job that
 * it runs by a thread-local pointer, so barriers need no argument for it. All pools are in a list: a child of
 * fork has no workers, and jobs of every pool run there on the calling thread, with the same results. */
#include "thread_pool.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
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

typedef struct worker {
    watched epoch; /* advanced to start a job on this thread, or to end the thread */
    ln_pool *pool;
    int number; /* 1 .. LN_POOL_MAX - 1 */
    pthread_t id;
} worker;

struct ln_pool {
    pthread_mutex_t growing; /* protects n_threads while it grows */
    pthread_mutex_t running; /* held for the duration of a job */
    _Atomic int n_threads;   /* including the caller */
    bool ending;             /* set by ln_pool_close: workers return */
    ln_job_fn *fn;
    void *user;
    int n; /* threads of the running job */
    bool spin;
    watched left;  /* workers that have not finished the job */
    watched phase; /* phase of the barrier */
    word_t arrived;
    worker workers[LN_POOL_MAX];
    _Atomic int at[LN_POOL_MAX]; /* processor on which each thread reached its latest barrier */
    /* kept by reset() */
    ln_pool *next; /* in the list of all pools */
    void *block;   /* the allocation that contains this pool; NULL: the default pool */
};

static ln_pool the_default = {
    .growing = PTHREAD_MUTEX_INITIALIZER, .running = PTHREAD_MUTEX_INITIALIZER, .n_threads = 1};
static ln_pool *pools = &the_default;
static pthread_mutex_t registry = PTHREAD_MUTEX_INITIALIZER; /* protects the list */

/* The job that this thread runs: its pool and its number of threads; 0: none. */
static _Thread_local struct {
    ln_pool *pool;
    int n;
} job;

ln_pool *ln_pool_default(void) { return &the_default; }

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
static bool step_aside(ln_pool *p, int thread) {
    static _Thread_local int in_vain;
    const int here = sched_getcpu();
    bool beside = false;
    cpu_set_t may, free;
    for (int i = 0; i < p->n; i++)
        beside |= i != thread && atomic_load_explicit(&p->at[i], memory_order_relaxed) == here;
    in_vain = beside ? in_vain + 1 : 0;
    if (in_vain < IN_VAIN || sched_getaffinity(0, sizeof may, &may) != 0) return false;
    in_vain = 0;
    free = may;
    for (int i = 0; i < p->n; i++)
        CPU_CLR((size_t)atomic_load_explicit(&p->at[i], memory_order_relaxed), &free);
    if (CPU_COUNT(&free) == 0 || sched_setaffinity(0, sizeof free, &free) != 0) return false;
    /* Publish the move now: otherwise the other thread may follow before this one's next barrier. */
    atomic_store_explicit(&p->at[thread], sched_getcpu(), memory_order_relaxed);
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

static void *work(void *arg) {
    worker *me = arg;
    ln_pool *p = me->pool;
    (void)mode_set();
    bool spin = false; /* a new worker has no job to wait for yet */
    for (uint32_t seen = 0;;) {
        wait_change(&me->epoch, seen, spin);
        seen = atomic_load(&me->epoch.value);
        if (p->ending) return NULL;
        spin = p->spin;
        job.pool = p;
        job.n = p->n;
        p->fn(p->user, me->number, p->n);
        if (atomic_fetch_sub(&p->left.value, 1) == 1) wake(&p->left);
    }
}

/* Sets a pool to its state without workers. */
static void reset(ln_pool *p) {
    static const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    memset(p, 0, offsetof(ln_pool, next));
    p->growing = p->running = fresh;
    atomic_store(&p->n_threads, 1);
}

static void before_fork(void) { (void)pthread_mutex_lock(&registry); }
static void in_parent(void) { (void)pthread_mutex_unlock(&registry); }
static void in_child(void) {
    for (ln_pool *p = pools; p; p = p->next) reset(p);
    job.pool = NULL;
    job.n = 0;
    (void)pthread_mutex_unlock(&registry);
}
/* Registered when the library is loaded: the first fork may happen during a job that needed no worker. */
__attribute__((constructor)) static void watch_forks(void) {
    (void)pthread_atfork(before_fork, in_parent, in_child);
}

static int start_worker(ln_pool *p, int number) {
    pthread_attr_t attr;
    sigset_t all, old;
    worker *w = &p->workers[number];
    int bad = pthread_attr_init(&attr);
    if (bad) return bad;
    (void)pthread_attr_setstacksize(&attr, WORKER_STACK);
    if (!p->block) (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED); /* never joined */
    w->pool = p;
    w->number = number;
    sigfillset(&all); /* except those that the thread itself causes, which must reach its handler */
    static const int own[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    for (size_t i = 0; i < LN_COUNT(own); i++) sigdelset(&all, own[i]);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    bad = pthread_create(&w->id, &attr, work, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    return bad;
}

ln_status ln_pool_open(ln_pool **out, ln_error *err) {
    *out = NULL;
    char *block = ln_zalloc(1, sizeof(ln_pool) + _Alignof(ln_pool));
    if (!block) return LN_OOM(err, "a thread pool");
    ln_pool *p = (ln_pool *)(void *)(block + (_Alignof(ln_pool) - (uintptr_t)block % _Alignof(ln_pool)));
    p->block = block;
    reset(p);
    (void)pthread_mutex_lock(&registry);
    p->next = pools;
    pools = p;
    (void)pthread_mutex_unlock(&registry);
    *out = p;
    return LN_OK;
}

void ln_pool_close(ln_pool **pool) {
    ln_pool *p = *pool;
    *pool = NULL;
    if (!p || !p->block) return;
    p->ending = true;
    for (int i = 1; i < atomic_load(&p->n_threads); i++) {
        atomic_fetch_add(&p->workers[i].epoch.value, 1);
        wake(&p->workers[i].epoch);
        (void)pthread_join(p->workers[i].id, NULL);
    }
    (void)pthread_mutex_lock(&registry);
    ln_pool **at = &pools;
    while (*at != p) at = &(*at)->next;
    *at = p->next;
    (void)pthread_mutex_unlock(&registry);
    ln_free(p->block);
}

ln_status ln_pool_reserve(ln_pool *p, int n, ln_error *err) {
    if (n < 1 || n > LN_POOL_MAX)
        return ln_fail(err, LN_EUSAGE, "threads: expected 1 to %d, found %d", LN_POOL_MAX, n);
    ln_status st = LN_OK;
    pthread_mutex_lock(&p->growing);
    for (int have = atomic_load(&p->n_threads); have < n && st == LN_OK; have++) {
        int bad = start_worker(p, have);
        if (bad == 0) atomic_store(&p->n_threads, have + 1);
        else
            st = ln_fail(err, LN_EMEMORY,
                         "threads: expected %d, the system gave %d (%s); lower ln_options.n_threads, or "
                         "raise the limits "
                         "of this process (ulimit -u, ulimit -v)",
                         n, have, strerror(bad));
    }
    pthread_mutex_unlock(&p->growing);
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

void ln_pool_run(ln_pool *p, int n, ln_job_fn *fn, void *user) {
    int outer = job.n;
    if (outer) { /* a nested job runs on the calling thread only */
        job.n = 1;
        fn(user, 0, 1);
        job.n = outer;
        return;
    }
    n = LN_MAX(1, LN_MIN(n, atomic_load(&p->n_threads)));
    pthread_mutex_lock(&p->running);
    uint32_t mode = mode_set();
    job.pool = p;
    job.n = n;
    p->fn = fn;
    p->user = user;
    p->n = n;
    p->spin = n <= processors();
    atomic_store(&p->left.value, (uint32_t)(n - 1));
    for (int i = 1; i < n; i++) {
        atomic_fetch_add(&p->workers[i].epoch.value, 1);
        wake(&p->workers[i].epoch);
    }
    fn(user, 0, n);
    for (uint32_t left; (left = atomic_load(&p->left.value)) != 0;) wait_change(&p->left, left, p->spin);
    job.n = 0;
    mode_back(mode);
    pthread_mutex_unlock(&p->running);
}

void ln_pool_barrier(int thread) { ln_pool_barrier_idle(thread, NULL, NULL); }

void ln_pool_barrier_idle(int thread, ln_idle_fn *meanwhile, void *user) {
    if (job.n <= 1) return;
    ln_pool *p = job.pool;
    const int here = sched_getcpu();
    if (here != atomic_load_explicit(&p->at[thread], memory_order_relaxed))
        atomic_store_explicit(&p->at[thread], here, memory_order_relaxed);
    uint32_t phase = atomic_load(&p->phase.value);
    if (atomic_fetch_add(&p->arrived, 1) + 1 == (uint32_t)job.n) {
        atomic_store(&p->arrived, 0);
        atomic_store(&p->phase.value, phase + 1);
        wake(&p->phase);
        return;
    }
    if (p->spin && spun(&p->phase, phase, meanwhile, user)) return;
    wait_change(&p->phase, phase, p->spin && step_aside(p, thread));
}
