/* Ranks that are threads of one process: an operation copies what each rank passes into a buffer that all
 * share, and waits until all have done so, then until all have read it. */
#include "transport.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

typedef struct thread_rank {
    ln_transport t; /* first: what the functions are passed */
    ln_thread_ranks *all;
} thread_rank;

struct ln_thread_ranks {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int size, arrived;
    bool looks;                /* each rank has a core */
    _Atomic int ended;         /* a rank that has; -1: none */
    ln_error why;              /* of that rank; code LN_OK: it has not said */
    _Atomic uint64_t meetings; /* how often all ranks have met */
    char *buffer;
    size_t cap;
    thread_rank *ranks; /* [size] */
};

/* Keeps the failure of a rank, with the lock held. */
static ln_status keep(ln_transport *t, const ln_thread_ranks *r) {
    if (t->failed.code == LN_OK && r->why.code != LN_OK)
        (void)ln_fail(&t->failed, LN_EDEVICE, "rank %d of %d: %s", r->ended, r->size, r->why.message);
    if (t->failed.code == LN_OK)
        (void)ln_fail(&t->failed, LN_EDEVICE, "rank %d of %d has ended", r->ended, r->size);
    return t->failed.code;
}

/* A rank that waits looks for a while before it sleeps: steps follow each other within milliseconds, and
 * being woken takes tens of microseconds. */
static void look(const ln_thread_ranks *r, uint64_t now) {
    enum { LOOKS = 64 };
    const double since = ln_now();
    while (r->looks && ln_now() - since < 2e-3)
        for (int i = 0; i < LOOKS; i++)
            if (r->meetings != now || r->ended >= 0) return;
}

/* Waits until all ranks have called it, with the lock held. */
static ln_status meet(ln_transport *t, ln_thread_ranks *r) {
    const uint64_t now = r->meetings;
    if (++r->arrived == r->size) {
        r->arrived = 0;
        r->meetings++;
        (void)pthread_cond_broadcast(&r->changed);
        return LN_OK;
    }
    (void)pthread_mutex_unlock(&r->lock);
    look(r, now);
    (void)pthread_mutex_lock(&r->lock);
    while (r->meetings == now && r->ended < 0) (void)pthread_cond_wait(&r->changed, &r->lock);
    return r->meetings == now ? keep(t, r) : LN_OK;
}

/* Exchanges the parts that ranks pass, at the given offsets of a buffer of `total` bytes. */
static ln_status exchange(ln_transport *t, const void *mine, size_t at, size_t bytes, void *out,
                          size_t total) {
    ln_thread_ranks *r = ((thread_rank *)t)->all;
    (void)pthread_mutex_lock(&r->lock);
    ln_status st = r->ended >= 0 ? keep(t, r) : LN_OK;
    void *buffer = r->buffer;
    if (st == LN_OK) st = ln_grow(&buffer, &r->cap, total, 1, &t->failed);
    r->buffer = buffer;
    if (st == LN_OK && bytes) memcpy(r->buffer + at, mine, bytes);
    if (st == LN_OK) st = meet(t, r);
    if (st == LN_OK) memcpy(out, r->buffer, total);
    if (st == LN_OK) st = meet(t, r);
    (void)pthread_mutex_unlock(&r->lock);
    return st;
}

static ln_status all_gather(ln_transport *t, const void *mine, size_t bytes, void *all) {
    return exchange(t, mine, (size_t)t->rank * bytes, bytes, all, (size_t)t->size * bytes);
}
static ln_status broadcast(ln_transport *t, void *data, size_t bytes) {
    return exchange(t, data, 0, t->rank ? 0 : bytes, data, bytes);
}

static ln_status check(ln_transport *t) {
    ln_thread_ranks *r = ((thread_rank *)t)->all;
    if (r->ended < 0) return LN_OK;
    (void)pthread_mutex_lock(&r->lock);
    const ln_status st = keep(t, r);
    (void)pthread_mutex_unlock(&r->lock);
    return st;
}
static void end(ln_transport *t, const ln_error *why) {
    ln_thread_ranks_end(((thread_rank *)t)->all, t->rank, why);
}

ln_status ln_thread_ranks_new(ln_thread_ranks **out, int size, ln_error *err) {
    ln_thread_ranks *r = ln_zalloc(1, sizeof *r);
    *out = NULL;
    if (r) r->ranks = ln_zalloc((size_t)size, sizeof *r->ranks);
    if (!r || !r->ranks) {
        ln_free(r);
        return LN_OOM(err, "ranks");
    }
    (void)pthread_mutex_init(&r->lock, NULL);
    (void)pthread_cond_init(&r->changed, NULL);
    r->size = size;
    r->ended = -1;
    r->looks = ln_cores() >= size;
    for (int i = 0; i < size; i++)
        r->ranks[i] = (thread_rank){.t = {.rank = i,
                                          .size = size,
                                          .all_gather = all_gather,
                                          .broadcast = broadcast,
                                          .check = check,
                                          .end = end},
                                    .all = r};
    *out = r;
    return LN_OK;
}

ln_transport *ln_thread_ranks_at(ln_thread_ranks *r, int rank) { return &r->ranks[rank].t; }

void ln_thread_ranks_end(ln_thread_ranks *r, int rank, const ln_error *why) {
    (void)pthread_mutex_lock(&r->lock);
    if (r->ended < 0) {
        if (why) r->why = *why;
        r->ended = rank;
    }
    (void)pthread_cond_broadcast(&r->changed);
    (void)pthread_mutex_unlock(&r->lock);
}

void ln_thread_ranks_free(ln_thread_ranks **ranks) {
    ln_thread_ranks *r = *ranks;
    if (!r) return;
    (void)pthread_mutex_destroy(&r->lock);
    (void)pthread_cond_destroy(&r->changed);
    ln_free(r->buffer);
    ln_free(r->ranks);
    ln_free(r);
    *ranks = NULL;
}
