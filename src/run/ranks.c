/* The group of ranks, and how rank 0 orders (ranks.h). */
#include "ranks.h"

#include "../base/memory_use.h"
#include "../base/mpi_ranks.h"
#include "../base/xxh64.h"

#include <linnet.h>
#include <sched.h>
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
static void check_binding(int rank) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) == 1 &&
        sysconf(_SC_NPROCESSORS_ONLN) > 1)
        ln_log(LN_LOG_WARN,
               "rank %d is bound to one core of %ld, as mpirun does by default; tell mpirun to bind to none",
               rank, sysconf(_SC_NPROCESSORS_ONLN));
}

ln_status ln_ranks_agree(ln_transport *t, ln_status st, uint64_t digest, const char *what, ln_error *err) {
    typedef struct answer {
        int32_t status;
        uint64_t digest;
        char message[sizeof((ln_error *)0)->message];
    } answer;
    answer mine = {.status = st, .digest = digest}, *all = ln_zalloc((size_t)t->size, sizeof *all);
    if (!all) return LN_OOM(err, "ranks");
    if (st != LN_OK && err) memcpy(mine.message, err->message, sizeof mine.message);
    ln_status got = t->all_gather(t, &mine, sizeof mine, all);
    if (got != LN_OK && err) *err = t->failed;
    for (int i = 0; i < t->size && got == LN_OK; i++) {
        all[i].message[sizeof all[i].message - 1] = '\0';
        if (all[i].status != LN_OK && i == 0)
            got = ln_fail(err, (ln_status)all[i].status, "%s", all[i].message);
        else if (all[i].status != LN_OK)
            got = ln_fail(err, (ln_status)all[i].status, "rank %d of %d: %s", i, t->size, all[i].message);
    }
    for (int i = 1; i < t->size && got == LN_OK; i++)
        if (all[i].digest != all[0].digest)
            got = ln_fail(err, LN_EUSAGE, "rank %d of %d: its %s; all ranks must have the same", i, t->size,
                          what);
    ln_free(all);
    return got;
}

ln_status ln_ranks_join_world(bool shares_data, ln_error *err) {
    const ln_launch launch = ln_mpi_launch();
    pthread_mutexattr_t recursive;
    if (world.transport || launch.size < 2) return LN_OK;
    ln_cores_divide(launch.local_size);
    LN_TRY(ln_mpi_open(&world.transport, err));
    (void)pthread_mutexattr_init(&recursive);
    (void)pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    (void)pthread_mutex_init(&world.lock, &recursive);
    (void)pthread_mutexattr_destroy(&recursive);
    check_binding(launch.rank);
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

void ln_ranks_leave_world(void) {
    const ln_order end = {.what = LN_ORDER_END};
    if (!world.transport) return;
    if (ln_ranks_led() && ln_ranks_order(&world, &end, NULL, NULL) == LN_OK) ln_ranks_done(&world);
    ln_mpi_close(&world.transport);
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
