/* The group of ranks, and how rank 0 orders (ranks.h). */
#include "ranks.h"

#include "../base/memory_use.h"
#include "../base/mpi_ranks.h"
#include "../base/xxh64.h"

#include <linnet.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static ln_ranks world;
static int n_local = 1; /* ranks on this host, if they are processes */

/* The GPUs of this process; n 0: none are chosen. */
static struct { int n, gpus[LN_MOST_GPUS]; } chosen;

/* Ranks that are threads of this process, if it has started some. */
typedef struct rank_thread {
    pthread_t thread;
    ln_transport *transport;
    ln_follow_fn *follow;
} rank_thread;
static struct {
    ln_thread_ranks *group;
    rank_thread *threads; /* [n], of ranks 1 .. n */
    int n;
} inside;

ln_ranks *ln_ranks_world(void) { return world.transport ? &world : NULL; }
ln_ranks *ln_ranks_led(void) {
    return world.transport && !world.shares_data && world.transport->rank == 0 ? &world : NULL;
}
ln_transport *ln_ranks_data(int64_t *clock) {
    if (clock) *clock = world.clock;
    return world.shares_data ? world.transport : NULL;
}

static atomic_int planned = 1;
int ln_ranks_plan_for(int n) { return atomic_exchange(&planned, LN_MAX(n, 1)); }
int ln_ranks_planned(void) { return atomic_load(&planned); }

/* mpirun binds a rank to one core unless it is told otherwise. */
static void check_binding(const ln_launch *l) {
    if (ln_logical_cores() != 1 || sysconf(_SC_NPROCESSORS_ONLN) <= 1) return;
    ln_log(LN_LOG_WARN, "rank %d is bound to one core of %ld, as %s does by default; tell it to %s", l->rank,
           sysconf(_SC_NPROCESSORS_ONLN), l->by_slurm ? "srun" : "mpirun",
           l->by_slurm ? "give each task more cores" : "bind to none");
}

/* Processes that a launcher starts without Open MPI do not know of each other. */
static void check_alone(void) {
    const int n = ln_mpi_others_alone();
    if (n)
        ln_log(LN_LOG_WARN,
               "this is one of %d processes that were started together without Open MPI: each works alone; "
               "to "
               "share a model, start them with Open MPI's mpirun, or with srun and PMIx",
               n);
}

static void begin_world(ln_transport *t, bool shares_data) {
    pthread_mutexattr_t recursive;
    (void)pthread_mutexattr_init(&recursive);
    (void)pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    (void)pthread_mutex_init(&world.lock, &recursive);
    (void)pthread_mutexattr_destroy(&recursive);
    world.shares_data = shares_data;
    world.clock = (int64_t)time(NULL);
    world.transport = t;
}

ln_status ln_ranks_join_world(bool shares_data, ln_error *err) {
    const ln_launch launch = ln_mpi_launch();
    ln_transport *t;
    if (world.transport) return LN_OK;
    if (launch.size < 2) {
        check_alone();
        return LN_OK;
    }
    LN_TRY(ln_mpi_open(&t, &n_local, err));
    ln_cores_divide(n_local);
    begin_world(t, shares_data);
    check_binding(&launch);
    if (world.transport->broadcast(world.transport, &world.clock, sizeof world.clock) != LN_OK) {
        *err = world.transport->failed;
        return err->code;
    }
    const char *version = ln_version();
    ln_xxh64 h;
    ln_xxh64_open(&h);
    ln_xxh64_add(&h, version, strlen(version));
    const uint64_t digest = ln_xxh64_value(&h);
    return ln_ranks_agree(world.transport, LN_OK, digest,
                          "version of linnet is another one than that of rank 0", err);
}

/* ---- ranks that are threads ---- */

static void *follow(void *user) {
    rank_thread *r = user;
    ln_error why = {0};
    static const int faults[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL};
    sigset_t others; /* which the threads of the program take */
    (void)sigfillset(&others);
    for (size_t i = 0; i < LN_COUNT(faults); i++) (void)sigdelset(&others, faults[i]);
    (void)pthread_sigmask(SIG_BLOCK, &others, NULL);
    if (r->follow(r->transport, &why) != LN_OK) r->transport->end(r->transport, &why);
    return NULL;
}

/* Ends the threads; after a failure they end by themselves. */
static void end_threads(void) {
    for (int i = 0; i < inside.n; i++) (void)pthread_join(inside.threads[i].thread, NULL);
    ln_free(inside.threads);
    inside.threads = NULL;
    inside.n = 0;
    ln_thread_ranks_free(&inside.group);
}

ln_status ln_ranks_start_threads(int n, ln_follow_fn *fn, ln_error *err) {
    if (world.transport) return ln_fail(err, LN_EUSAGE, "this process belongs to a group of ranks already");
    LN_TRY(ln_thread_ranks_new(&inside.group, n, err));
    inside.threads = ln_zalloc((size_t)n, sizeof *inside.threads);
    bool ok = inside.threads != NULL;
    for (int i = 1; ok && i < n; i++) {
        rank_thread *r = &inside.threads[i - 1];
        *r = (rank_thread){.transport = ln_thread_ranks_at(inside.group, i), .follow = fn};
        ok = pthread_create(&r->thread, NULL, follow, r) == 0;
        inside.n += ok;
    }
    if (!ok) {
        ln_thread_ranks_end(inside.group, 0, NULL);
        end_threads();
        return LN_OOM(err, "the threads of ranks");
    }
    begin_world(ln_thread_ranks_at(inside.group, 0), false);
    return LN_OK;
}

ln_status ln_ranks_choose_gpus(const int *gpus, int n, ln_follow_fn *fn, ln_error *err) {
    if (n < 1 || n > LN_MOST_GPUS)
        return ln_fail(err, LN_EUSAGE, "%d GPUs; expected 1 to %d", n, (int)LN_MOST_GPUS);
    if (world.transport && !inside.group && n > 1 && n_local > n)
        return ln_fail(err, LN_EUSAGE,
                       "%d ranks run on this host, and %d GPUs are chosen; choose one for each", n_local, n);
    if (!world.transport && n > 1) LN_TRY(ln_ranks_start_threads(n, fn, err));
    ln_ranks_set_gpus(gpus, n);
    return LN_OK;
}

void ln_ranks_set_gpus(const int *gpus, int n) {
    chosen.n = n;
    memcpy(chosen.gpus, gpus, (size_t)n * sizeof *gpus);
}

int ln_ranks_gpu(int rank, bool *by_rank) {
    const bool processes = world.transport && !inside.group;
    const int here = processes ? ln_mpi_local_rank() : rank;
    *by_rank = processes && chosen.n == 0 && here > 0;
    if (chosen.n > 0) return chosen.gpus[here % chosen.n];
    return processes ? here : 0;
}
int ln_ranks_n_gpus(void) { return inside.group ? LN_MAX(1, chosen.n) : 1; }

void ln_ranks_leave_world(ln_status st) {
    const ln_order end = {.what = LN_ORDER_END};
    if (!world.transport) return;
    if (ln_ranks_led() && ln_ranks_order(&world, &end, NULL, NULL) == LN_OK) ln_ranks_done(&world);
    if (inside.group) {
        world.transport = NULL;
        end_threads();
    } else {
        ln_mpi_close(&world.transport, world.shares_data && st != LN_OK);
    }
}

ln_status ln_ranks_order(ln_ranks *k, const ln_order *order, const void *payload, ln_error *err) {
    if (!k) return LN_OK;
    ln_transport *t = k->transport;
    ln_order copy = *order;
    (void)pthread_mutex_lock(&k->lock);
    ln_status st = t->broadcast(t, &copy, sizeof copy);
    if (st == LN_OK && order->bytes)
        st = t->broadcast(t, (void *)(uintptr_t)payload, order->bytes); /* read only */
    if (st == LN_OK) return LN_OK;
    if (err) *err = t->failed;
    (void)pthread_mutex_unlock(&k->lock);
    return st;
}

void ln_ranks_done(ln_ranks *k) {
    if (k) (void)pthread_mutex_unlock(&k->lock);
}
