/* The group of ranks, and how rank 0 orders (ranks.h). */
#include "ranks.h"

#include "../base/memory_use.h"
#include "../base/mpi_ranks.h"
#include "../base/xxh64.h"

#include <linnet.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static ln_ranks world;

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

ln_status ln_ranks_join_world(bool shares_data, ln_error *err) {
    const ln_launch launch = ln_mpi_launch();
    pthread_mutexattr_t recursive;
    if (world.transport) return LN_OK;
    if (launch.size < 2) {
        check_alone();
        return LN_OK;
    }
    int n_local;
    LN_TRY(ln_mpi_open(&world.transport, &n_local, err));
    ln_cores_divide(n_local);
    (void)pthread_mutexattr_init(&recursive);
    (void)pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    (void)pthread_mutex_init(&world.lock, &recursive);
    (void)pthread_mutexattr_destroy(&recursive);
    check_binding(&launch);
    world.shares_data = shares_data;
    world.clock = (int64_t)time(NULL);
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

void ln_ranks_leave_world(ln_status st) {
    const ln_order end = {.what = LN_ORDER_END};
    if (!world.transport) return;
    if (ln_ranks_led() && ln_ranks_order(&world, &end, NULL, NULL) == LN_OK) ln_ranks_done(&world);
    ln_mpi_close(&world.transport, world.shares_data && st != LN_OK);
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
