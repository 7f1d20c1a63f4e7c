/* Rank 0 leads, the others follow (decision 055). Before rank 0 changes what a run has in the memory of its
 * device, it broadcasts an order, and every follower does the same to its own part: it opens models and runs,
 * submits steps, zeroes and copies pages, writes adapters.
 *
 * Rank 0 holds the lock of the group from an order to the end of what it orders, so that engines and threads
 * of one process do not mix their collectives. Followers obey in one thread (package/follow.c). */
#ifndef LN_RANKS_H
#define LN_RANKS_H

#include "../base/rank_exchange.h"

#include <pthread.h>

enum {
    LN_ORDER_MODEL,       /* open a model: payload ln_follow_model */
    LN_ORDER_MODEL_CLOSE, /* id: of a model */
    LN_ORDER_RUN,         /* open a run. a: id of its model; payload ln_run_options */
    LN_ORDER_RUN_CLOSE,   /* id: of a run, here and below */
    LN_ORDER_HIDDEN,      /* prepare the program without the head. a: bytes that it may take */
    LN_ORDER_STEP,        /* a: the program. b: 1 if it is traced. payload the used bytes of a step block */
    LN_ORDER_ZERO,        /* a: page */
    LN_ORDER_COPY,        /* a, b, c, d: group, page to write, page to read, positions */
    LN_ORDER_ADAPTER,     /* a: offset in the pool; payload the bytes */
    LN_ORDER_END          /* rank 0 has ended */
};
typedef struct ln_order {
    int32_t what, id;
    int64_t a, b, c, d;
    uint64_t bytes; /* of the payload */
} ln_order;

enum { LN_MOST_GPUS = 16 };
/* How a follower that is a thread of this process obeys, until rank 0 ends it: ln_ranks_follow_all. */
typedef ln_status ln_follow_fn(ln_transport *t, ln_error *err);

typedef struct ln_ranks {
    ln_transport *transport;
    pthread_mutex_t lock; /* recursive */
    bool shares_data;     /* no rank leads */
    int64_t clock;        /* of rank 0, when it joined */
    int32_t last_id;      /* of the models and runs that rank 0 has opened */
} ln_ranks;

/* The group that this process leads or follows; NULL: it is alone. Set once, before any model is opened. */
ln_ranks *ln_ranks_world(void);
/* Joins the group if mpirun or srun has started this process as one of several. LN_EDEVICE; LN_EUSAGE: ranks
 * have different versions. */
ln_status ln_ranks_join_world(bool shares_data, ln_error *err);
/* Chooses the GPUs of this process: gpus[0] of a process that is alone or, of several that mpirun has
 * started, that of its number on this host. If it is alone and n > 1, it becomes rank 0 of n, of which rank i
 * uses gpus[i]; the others are threads, which `follow`. LN_EUSAGE: too few for the ranks of this host, or a
 * group of another kind; LN_EMEMORY. */
ln_status ln_ranks_choose_gpus(const int *gpus, int n, ln_follow_fn *follow, ln_error *err);
/* The part of it that is for tests: rank i uses gpus[i % n]. */
void ln_ranks_set_gpus(const int *gpus, int n);
/* Starts n - 1 threads that `follow` this process, which becomes rank 0 of n. To be called once. */
ln_status ln_ranks_start_threads(int n, ln_follow_fn *follow, ln_error *err);
/* The GPU of a rank, or of this process if ranks are processes. *by_rank: it was not chosen, and the number
 * is that of the process on its host. */
int ln_ranks_gpu(int rank, bool *by_rank);
/* How many GPUs the ranks of this process use: 1, unless they are threads. */
int ln_ranks_n_gpus(void);
/* Leaves it; st: how the work of this rank ended. A rank that leads ends its followers before; one of a group
 * that shares data and has failed does not wait for the others. */
void ln_ranks_leave_world(ln_status st);
/* Sets for how many ranks memory is planned, and returns the previous number. */
int ln_ranks_plan_for(int n);
int ln_ranks_planned(void);
/* The group if this process leads it, else NULL. */
ln_ranks *ln_ranks_led(void);
/* The transport of a group whose ranks all make the same calls and share data, else NULL. *clock: the time at
 * which rank 0 joined. */
ln_transport *ln_ranks_data(int64_t *clock_or_null);

/* Broadcasts an order and takes the lock until ln_ranks_done. k NULL: there is one rank, both do nothing.
 * LN_EDEVICE: a rank has failed; the lock is not held. */
ln_status ln_ranks_order(ln_ranks *k, const ln_order *order, const void *payload, ln_error *err);
void ln_ranks_done(ln_ranks *k);

#endif
