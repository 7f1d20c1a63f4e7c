/* Thread pools. A job is a function that is called once on each of n threads of a pool; the caller is thread
 * 0. The pool does not steal work: jobs partition it statically (ln_partition) or claim chunks themselves.
 * Inside a job, ln_pool_barrier waits for all its threads. A waiting thread spins for at most 200 us and then
 * sleeps on a futex.
 *
 * A process has one default pool, which the engines share unless they are opened on another one. A pool grows
 * to the largest n reserved and never shrinks. Jobs started on one pool by different threads run one after
 * the other, first come, first served: of E threads that start jobs each waits for at most E - 1 jobs. Jobs
 * of different pools run concurrently. Every thread of a job rounds to nearest, with all exceptions masked,
 * and flushes denormals to zero, the caller's for the duration of the job. */
#ifndef LN_THREAD_POOL_H
#define LN_THREAD_POOL_H

#include "base.h"

#define LN_POOL_MAX 512 /* most threads of the pool */

typedef struct ln_pool ln_pool;
typedef void ln_job_fn(void *user, int thread, int n_threads);

/* The pool of the process. It exists from the start to the exit of the process, with the caller as its only
 * thread until more are reserved; ln_pool_close ignores it. */
ln_pool *ln_pool_default(void);
/* Opens a pool of its own, with the caller as its only thread. The caller closes it. LN_EMEMORY. */
ln_status ln_pool_open(ln_pool **out, ln_error *err);
/* Ends the pool's threads and frees it; no job of the pool may be running or be started. NULL: does nothing.
 * In a child of fork it frees a pool that the parent opened, whose threads the child does not have. */
void ln_pool_close(ln_pool **pool);
/* Ensures that n threads exist, the caller included. Called before memory is planned. LN_EUSAGE unless 1 <=
 * n <= LN_POOL_MAX; LN_EMEMORY if the system cannot create a thread. */
ln_status ln_pool_reserve(ln_pool *pool, int n, ln_error *err);
/* Runs fn on n threads and returns when all have returned. n must have been reserved. Inside a job, of this
 * or of another pool, it calls fn on the calling thread only, with n_threads = 1. */
void ln_pool_run(ln_pool *pool, int n, ln_job_fn *fn, void *user);
/* A function that processes units [lo, hi) of a background job on the calling thread, number `thread`. */
typedef void ln_units_fn(void *user, int thread, int64_t lo, int64_t hi);
/* Runs fn for all of n_units units on up to n threads, each of which processes its partition (ln_partition
 * with a grain of 1) in order, and returns when all have been processed. For long work next to which steps
 * must not stall, such as packing weights: all threads together process at most `slice` units, or one each
 * if that is more, and then let the jobs of ln_pool_run go first that wait, up to LN_POOL_STEPS_FIRST of
 * them. Such a job waits for one slice at most. Inside a job it calls fn on the calling thread only,
 * once. */
enum { LN_POOL_STEPS_FIRST = 4, LN_POOL_SLICE_BYTES = 8 << 20 /* of a file or of memory: a usual slice */ };
void ln_pool_run_units(ln_pool *pool, int n, int64_t n_units, int64_t slice, ln_units_fn *fn, void *user);
/* What a pool has counted since it was opened. */
typedef struct ln_pool_stats {
    uint64_t n_jobs;   /* jobs begun */
    uint64_t n_waited; /* of them: those that found the pool taken, and those that wait now */
    /* The most jobs that ran while one job waited: of [0] ln_pool_run, [1] ln_pool_run_units. */
    uint64_t most_passed[2];
} ln_pool_stats;
void ln_pool_get_stats(ln_pool *pool, ln_pool_stats *out);
/* Waits until all threads of the job that the calling thread runs have arrived. `thread`: number of the
 * calling thread in that job. */
void ln_pool_barrier(int thread);
/* The same, but a thread that spins here calls `meanwhile`(user) as long as it returns true. A call should
 * take microseconds and do optional work such as prefetching; it is not called if the job has more threads
 * than processors. */
typedef bool ln_idle_fn(void *user);
void ln_pool_barrier_idle(int thread, ln_idle_fn *meanwhile, void *user);
/* The part of n units that thread `thread` of n_threads processes: [*lo, *hi). The bounds are multiples of
 * `grain`, except for n itself. */
static inline void ln_partition(int64_t n, int64_t grain, int thread, int n_threads, int64_t *lo,
                                int64_t *hi) {
    if (n_threads == 1) { /* avoids the divisions: small steps call this about a hundred times */
        *lo = 0;
        *hi = n;
        return;
    }
    int64_t blocks = (n + grain - 1) / grain;
    *lo = LN_MIN(n, blocks * thread / n_threads * grain);
    *hi = LN_MIN(n, blocks * (thread + 1) / n_threads * grain);
}

#endif
