/* Thread pools; a job is a function that is called once on each of n threads of a pool.
 *
 * Every worker sleeps on a futex word of its own (`epoch`), on its own cache line: starting a job of n
 * threads wakes n - 1 workers and leaves the others asleep. The caller is thread 0. Every wait (for a new
 * epoch, for the end of a job, at a barrier) works in the same way: spin until the word changes, for at most
 * 200 us, then sleep on it by futex. If a job has more threads than there are processors no thread spins,
 * because the thread it waits for needs the processor. If there are enough processors, threads that share one
 * are separated (separate); the affinity of the caller is never changed.
 *
 * The jobs of a pool run one after the other. A job that finds the pool taken stands in a line and sleeps on
 * a futex word of its own; the job that ends hands the pool to the first in line, and none overtakes it.
 * Background jobs have a line of their own. They return when a step waits and continue after it, each thread
 * at the place in its partition at which it stopped. So the partitions do not depend on who else uses the
 * pool.
 *
 * The barrier counts arrivals. The last thread to arrive resets the count and advances the phase on which the
 * others wait, so that threads need no sense flag of their own. The environment of kernels (float_env.h) is
 * set permanently on workers and on the caller for the duration of a job, so that results depend neither on
 * the thread nor on the caller's rounding mode. Workers block
 * asynchronous signals, which are left to the threads of the program. A thread finds the pool of the job that
 * it runs by a thread-local pointer, so barriers need no argument for it. All pools are in a list: a child of
 * fork has no workers, and jobs of every pool run there on the calling thread, with the same results. */
#include "thread_pool.h"

#include "float_env.h"
#include "os.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SPIN_SECONDS 200e-6
enum { WORKER_STACK = 2 << 20, IN_VAIN = 8, ASKED = 1 << 30 };

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

/* A job that waits for the pool: on the stack of its caller. */
typedef struct waiter {
    struct waiter *next;
    word_t go;       /* a futex word: set to 1 by the thread that hands the pool over */
    uint64_t n_jobs; /* ln_pool_stats.n_jobs when it began to wait */
} waiter;
typedef struct line {
    waiter *first, *last;
} line;

struct ln_pool {
    pthread_mutex_t growing; /* protects n_threads while it grows */
    _Atomic int n_threads;   /* including the caller */
    pthread_mutex_t lock;    /* protects the next five; held for a few instructions */
    bool taken;              /* a job runs, or the pool has been handed to one */
    line steps, background;  /* jobs that wait, of ln_pool_run and of ln_pool_run_units */
    int n_first;             /* steps that have gone first while the first background job waited */
    ln_pool_stats stats;
    _Atomic bool step_waits; /* `steps` is not empty; background jobs read it without the lock */
    /* of the running job, whose caller alone writes them */
    int n_processors; /* that the threads may run on; 0: not known yet */
    time_t known_at;  /* the second in which that was asked */
    bool ending;      /* set by ln_pool_close: workers return */
    ln_job_fn *fn;
    void *user;
    int n; /* threads of the running job */
    bool spin;
    watched left;  /* workers that have not finished the job */
    watched phase; /* phase of the barrier */
    word_t arrived;
    worker workers[LN_POOL_MAX];
    /* The processor on which each thread reached its latest barrier, and ASKED: it is to move (separate) */
    _Atomic int at[LN_POOL_MAX];
    /* kept by reset() */
    ln_pool *next; /* in the list of all pools */
    void *block;   /* the allocation that contains this pool; NULL: the default pool */
};

static ln_pool the_default = {
    .growing = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER, .n_threads = 1};
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
    while (atomic_load(&w->value) == old) ln_os_sleep_on(&w->value, old);
    atomic_fetch_sub(&w->sleepers, 1);
}

/* Wakes the sleepers after the word was changed. With sequential consistency either the sleeper sees the new
 * value or this load sees the sleeper. */
static void wake(watched *w) {
    if (atomic_load(&w->sleepers)) ln_os_wake(&w->value, INT_MAX);
}

/* ---- threads that share a processor ---- */

static int processor_of(const ln_pool *p, int thread) {
    return atomic_load_explicit(&p->at[thread], memory_order_relaxed) & ~ASKED;
}

/* Moves the calling thread to a processor on which no thread of the job was seen. Not for thread 0: the
 * caller's mask belongs to the program. Returns whether it moved. */
static bool move_away(ln_pool *p, int thread) {
    int taken[LN_POOL_MAX], now;
    for (int i = 0; i < p->n; i++) taken[i] = processor_of(p, i);
    if (!ln_os_move_off(taken, p->n, &now)) return false;
    /* Publish the move now: otherwise another thread may follow before this one's next barrier. */
    atomic_store_explicit(&p->at[thread], now, memory_order_relaxed);
    return true;
}

/* Separates threads of a job that share a processor. When one of them sleeps while the other runs, the
 * scheduler sees no reason to move either and leaves them there for seconds. Called by a thread that is about
 * to sleep at a barrier. When it has slept at IN_VAIN of them on the processor of another thread, the
 * higher-numbered one of the two moves: this thread at once, the other one when it arrives at its next
 * barrier. Returns whether this thread moved. */
static bool separate(ln_pool *p, int thread) {
    static _Thread_local int in_vain;
    const int here = ln_os_processor();
    int other = -1; /* the highest-numbered one on this processor */
    if (here < 0) return false;
    for (int i = 0; i < p->n; i++)
        if (i != thread && processor_of(p, i) == here) other = i;
    in_vain = other >= 0 ? in_vain + 1 : 0;
    if (in_vain < IN_VAIN) return false;
    in_vain = 0;
    if (other < thread) return move_away(p, thread);
    atomic_fetch_or_explicit(&p->at[other], ASKED, memory_order_relaxed);
    return false;
}

/* Notes on which processor a thread has arrived at a barrier. A thread that was asked to move does so if it
 * still shares the processor with a lower-numbered one. */
static void arrive(ln_pool *p, int thread) {
    const int here = ln_os_processor();
    if (here < 0 || here == atomic_load_explicit(&p->at[thread], memory_order_relaxed)) return;
    const int before = atomic_exchange_explicit(&p->at[thread], here, memory_order_relaxed);
    if (before != (here | ASKED)) return;
    for (int i = 0; i < thread; i++)
        if (processor_of(p, i) == here) {
            (void)move_away(p, thread);
            return;
        }
}

/* ---- the line ---- */

static void append(line *l, waiter *w) {
    if (l->last) l->last->next = w;
    else l->first = w;
    l->last = w;
}

static waiter *take_first(line *l) {
    waiter *w = l->first;
    if (!w) return NULL;
    l->first = w->next;
    if (!w->next) l->last = NULL;
    return w;
}

/* Acquires the pool for a job of the calling thread, or waits in a line until it is handed over. It sleeps
 * at once: the running job needs the processors. */
static void take(ln_pool *p, bool background) {
    waiter me = {0};
    (void)pthread_mutex_lock(&p->lock);
    const bool wait = p->taken;
    p->taken = true;
    me.n_jobs = p->stats.n_jobs;
    p->stats.n_waited += wait;
    p->stats.n_jobs += !wait;
    if (wait && background && !p->background.first) p->n_first = 0;
    if (wait) append(background ? &p->background : &p->steps, &me);
    if (wait && !background) atomic_store(&p->step_waits, true);
    (void)pthread_mutex_unlock(&p->lock);
    while (wait && !atomic_load(&me.go)) ln_os_sleep_on(&me.go, 0);
}

/* With the lock: takes the job that is next out of its line; NULL: none waits. */
static waiter *take_next(ln_pool *p) {
    const bool background = p->background.first && (!p->steps.first || p->n_first >= LN_POOL_STEPS_FIRST);
    waiter *next = take_first(background ? &p->background : &p->steps);
    p->n_first = background ? 0 : p->n_first + 1;
    if (!next) return NULL;
    atomic_store(&p->step_waits, p->steps.first != NULL);
    /* those begun since it came, and the one that ran at that time */
    const uint64_t passed = p->stats.n_jobs - next->n_jobs + 1;
    uint64_t *most = &p->stats.most_passed[background];
    *most = LN_MAX(*most, passed);
    p->stats.n_jobs++;
    return next;
}

/* Ends a job: hands the pool to the next one. A line is served in order, so that no job overtakes another. */
static void hand_over(ln_pool *p) {
    (void)pthread_mutex_lock(&p->lock);
    waiter *next = take_next(p);
    p->taken = next != NULL;
    (void)pthread_mutex_unlock(&p->lock);
    if (!next) return;
    word_t *go = &next->go;
    atomic_store(go, 1); /* its caller may return at once: *go is not read any more */
    ln_os_wake(go, 1);
}

void ln_pool_get_stats(ln_pool *p, ln_pool_stats *out) {
    (void)pthread_mutex_lock(&p->lock);
    *out = p->stats;
    (void)pthread_mutex_unlock(&p->lock);
}

/* ---- workers ---- */

static void *work(void *arg) {
    worker *me = arg;
    ln_pool *p = me->pool;
    ln_float_env inherited; /* from the thread that reserved the worker */
    ln_float_env_default(&inherited);
    ln_float_env_flush(&inherited);
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
    p->growing = p->lock = fresh;
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
                         "of this process (ulimit -u, -v, -d)",
                         n, have, strerror(bad));
    }
    pthread_mutex_unlock(&p->growing);
    return st;
}

/* The number of processors in the affinity mask of the caller, which is how many threads can run
 * concurrently. It is asked for again in every second in which there is a job, because mask and cgroup may
 * change. */
static int processors(ln_pool *p) {
    const int64_t now = ln_os_second();
    if (p->n_processors && now == p->known_at) return p->n_processors;
    p->known_at = now;
    return p->n_processors = ln_logical_cores();
}

/* Runs a job, which is not nested, on n threads. */
static void run_job(ln_pool *p, int n, ln_job_fn *fn, void *user, bool background) {
    n = LN_MAX(1, LN_MIN(n, atomic_load(&p->n_threads)));
    take(p, background);
    ln_float_env callers;
    ln_float_env_flush(&callers);
    job.pool = p;
    job.n = n;
    p->fn = fn;
    p->user = user;
    p->n = n;
    p->spin = n > 1 && n <= processors(p);
    atomic_store(&p->left.value, (uint32_t)(n - 1));
    for (int i = 1; i < n; i++) {
        atomic_fetch_add(&p->workers[i].epoch.value, 1);
        wake(&p->workers[i].epoch);
    }
    fn(user, 0, n);
    for (uint32_t left; (left = atomic_load(&p->left.value)) != 0;) wait_change(&p->left, left, p->spin);
    job.n = 0;
    ln_float_env_unflush(&callers);
    hand_over(p);
}

void ln_pool_run(ln_pool *p, int n, ln_job_fn *fn, void *user) {
    const int outer = job.n;
    if (!outer) {
        run_job(p, n, fn, user, false);
        return;
    }
    job.n = 1; /* a nested job runs on the calling thread only */
    fn(user, 0, 1);
    job.n = outer;
}

/* A background job: the place at which each of its n partitions continues. */
typedef struct units {
    ln_pool *pool;
    ln_units_fn *fn;
    void *user;
    int n;
    int64_t share; /* units that a thread processes before it looks whether a step waits */
    int64_t at[LN_POOL_MAX], end[LN_POOL_MAX];
} units;

/* Processes at least one share of each partition, and more while no step waits. */
static void run_shares(void *user, int thread, int n_threads) {
    units *u = user;
    for (int i = thread; i < u->n; i += n_threads) /* one partition, but in a child of fork */
        while (u->at[i] < u->end[i]) {
            const int64_t lo = u->at[i], hi = LN_MIN(lo + u->share, u->end[i]);
            u->fn(u->user, i, lo, hi);
            u->at[i] = hi;
            if (atomic_load_explicit(&u->pool->step_waits, memory_order_relaxed)) break;
        }
}

void ln_pool_run_units(ln_pool *p, int n, int64_t n_units, int64_t slice, ln_units_fn *fn, void *user) {
    if (n_units < 1) return;
    if (job.n) {
        fn(user, 0, 0, n_units);
        return;
    }
    units u = {.pool = p, .fn = fn, .user = user};
    u.n = (int)LN_MAX(1, LN_MIN(n_units, LN_MIN(n, atomic_load(&p->n_threads))));
    u.share = LN_MAX(1, slice / u.n);
    for (int i = 0; i < u.n; i++) ln_partition(n_units, 1, i, u.n, &u.at[i], &u.end[i]);
    for (bool left = true; left;) {
        run_job(p, u.n, run_shares, &u, true);
        left = false;
        for (int i = 0; i < u.n; i++) left |= u.at[i] < u.end[i];
    }
}

void ln_pool_barrier(int thread) { ln_pool_barrier_idle(thread, NULL, NULL); }

void ln_pool_barrier_idle(int thread, ln_idle_fn *meanwhile, void *user) {
    if (job.n <= 1) return;
    ln_pool *p = job.pool;
    arrive(p, thread);
    uint32_t phase = atomic_load(&p->phase.value);
    if (atomic_fetch_add(&p->arrived, 1) + 1 == (uint32_t)job.n) {
        atomic_store(&p->arrived, 0);
        atomic_store(&p->phase.value, phase + 1);
        wake(&p->phase);
        return;
    }
    if (p->spin && spun(&p->phase, phase, meanwhile, user)) return;
    wait_change(&p->phase, phase, p->spin && separate(p, thread));
}
