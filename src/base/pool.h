/* The process's one thread pool. Static partition, no stealing: a job is a function called once on each of n threads (the
 * caller is thread 0). Inside a job, ln_pool_barrier waits for all of them. Waiting spins for at most 200 us, then parks.
 *
 * The pool grows to the largest n asked for and never shrinks; a second run from another thread waits its turn. FTZ and DAZ are set
 * on every thread that runs a job, the caller's for the length of the job. */
#ifndef LN_POOL_H
#define LN_POOL_H

#include "base.h"

#define LN_POOL_MAX 512 /* threads at most */

typedef void ln_job_fn(void *user, int thread, int n_threads);

/* Makes sure that n threads exist (n >= 1, the caller included). Called before memory is planned; may fail with LN_EMEMORY. */
ln_status ln_pool_reserve(int n, ln_error *err);
/* Runs fn on n threads and returns when all have; n must have been reserved. */
void ln_pool_run(int n, ln_job_fn *fn, void *user);
/* Waits until all threads of the running job have come here. */
void ln_pool_barrier(int thread);
/* The same; who has to wait, and need not leave its processor to others, calls meanwhile(user) as long as it returns true: microseconds of work that may be left undone. */
typedef bool ln_meanwhile_fn(void *user);
void ln_pool_barrier_busy(int thread, ln_meanwhile_fn *meanwhile, void *user);
/* A share of n units for one thread: [*lo, *hi). Multiples of `grain` except at the end. */
static inline void ln_share(int64_t n, int64_t grain, int thread, int n_threads, int64_t *lo, int64_t *hi) {
    if (n_threads == 1) { /* without divisions: small steps call this a hundred times */
        *lo = 0;
        *hi = n;
        return;
    }
    int64_t blocks = (n + grain - 1) / grain;
    *lo = LN_MIN(n, blocks * thread / n_threads * grain);
    *hi = LN_MIN(n, blocks * (thread + 1) / n_threads * grain);
}

#endif
