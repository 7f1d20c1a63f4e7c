/* Workers and the completion queue: what crosses threads. A queue is bounded and has a lock of its own, which
 * is held for a few instructions. Nothing else in the server is locked.
 *
 * Work on bodies is fair by client. Each client has a virtual time, the bytes of the bodies that were read
 * for it, as in clients.c: the next work is that of the client whose time is least. Large work of one client
 * is done one after the other, so that it takes one worker at most; each worker is a thread, which the system
 * runs in slices next to the others. One worker does small work only: it is never held up by a large body,
 * whichever client sends it. */
#include "../base/os.h"
#include "server.h"

#include <errno.h>
#include <signal.h>

/* ---- the completion queue ---- */

ln_status completion_queue_open(completion_queue *q, ln_error *err) {
    char why[LN_ERRNO_TEXT];
    *q = (completion_queue){.last = &q->first};
    (void)pthread_mutex_init(&q->lock, NULL);
    if (ln_os_event_open(q->event) == 0) return LN_OK;
    return ln_fail(err, LN_EIO, "an event for the I/O thread: %s", ln_errno_text(why, errno));
}

void completion_queue_close(completion_queue *q) {
    ln_os_event_close(q->event);
    (void)pthread_mutex_destroy(&q->lock);
}

void completion_queue_wake(completion_queue *q) { ln_os_event_set(q->event[1]); }

static void completion_queue_put(completion_queue *q, work *w) {
    w->next = NULL;
    (void)pthread_mutex_lock(&q->lock);
    const bool empty = !q->first;
    *q->last = w;
    q->last = &w->next;
    (void)pthread_mutex_unlock(&q->lock);
    if (empty) completion_queue_wake(q);
}

work *completion_queue_take(completion_queue *q) {
    (void)pthread_mutex_lock(&q->lock);
    work *all = q->first;
    q->first = NULL;
    q->last = &q->first;
    (void)pthread_mutex_unlock(&q->lock);
    return all;
}

/* ---- workers ---- */

static bool is_large(const work *w) { return w->cost > WORK_SMALL; }

static client_share *share_of(const workers *c, const work *w) {
    return w->client ? &w->client->shares[c->id] : NULL;
}

/* Whether a worker may begin the work now. */
static bool may_begin(const workers *c, const work *w, bool small_only) {
    const client_share *share = share_of(c, w);
    return !is_large(w) || (!small_only && (!share || share->n_large == 0));
}

/* Takes the work whose client has had the least, the oldest of several; NULL: there is none to begin. */
static work *take(workers *c, bool small_only) {
    work **best = NULL;
    uint64_t least = 0;
    for (work **at = &c->first; *at; at = &(*at)->next) {
        const client_share *share = share_of(c, *at);
        const uint64_t read = share ? share->read : 0;
        if (!may_begin(c, *at, small_only) || (best && read >= least)) continue;
        best = at;
        least = read;
    }
    if (!best) return NULL;
    work *w = *best;
    *best = w->next;
    if (!w->next) c->last = best;
    c->n--;
    return w;
}

static work *begin_work(workers *c, bool small_only) {
    work *w = NULL;
    (void)pthread_mutex_lock(&c->lock);
    while (!c->stop && !(w = take(c, small_only))) (void)pthread_cond_wait(&c->cond, &c->lock);
    client_share *share = w ? share_of(c, w) : NULL;
    if (share) {
        c->clock = LN_MAX(c->clock, share->read);
        share->read += w->cost + 1;
        share->n_large += is_large(w);
    }
    (void)pthread_mutex_unlock(&c->lock);
    return w;
}

static void end_work(workers *c, work *w) {
    client_share *share = share_of(c, w);
    if (!share) return;
    (void)pthread_mutex_lock(&c->lock);
    share->n_all--;
    share->n_large -= is_large(w);
    if (is_large(w)) (void)pthread_cond_broadcast(&c->cond); /* the client's next large work may begin */
    (void)pthread_mutex_unlock(&c->lock);
}

static void *work_on(void *user) {
    workers *c = user;
    (void)pthread_mutex_lock(&c->lock);
    const bool small_only = c->n_named++ == 0 && c->several;
    (void)pthread_mutex_unlock(&c->lock);
    for (work *w; (w = begin_work(c, small_only));) {
        w->run(w);
        end_work(c, w);
        completion_queue_put(c->finished, w);
    }
    return NULL;
}

/* Starts one more worker. Signals go to the I/O thread. */
static int start_without_signals(workers *c) {
    sigset_t all, was;
    (void)sigfillset(&all);
    (void)sigdelset(&all, SIGBUS); /* of a truncated file; see ln_guard_files */
    (void)sigdelset(&all, SIGSEGV);
    (void)pthread_sigmask(SIG_SETMASK, &all, &was);
    const int bad = pthread_create(&c->threads[c->n_workers], NULL, work_on, c);
    c->n_workers += !bad;
    (void)pthread_sigmask(SIG_SETMASK, &was, NULL);
    return bad;
}

ln_status workers_open(workers *c, workers_id id, int n_workers, completion_queue *finished, size_t most,
                       ln_error *err) {
    char why[LN_ERRNO_TEXT];
    *c = (workers){.id = id, .finished = finished, .most = most, .several = n_workers > 1, .last = &c->first};
    (void)pthread_mutex_init(&c->lock, NULL);
    (void)pthread_cond_init(&c->cond, NULL);
    for (int i = 0; i < n_workers; i++) {
        const int bad = start_without_signals(c);
        if (bad)
            return ln_fail(err, LN_EMEMORY, "a worker thread cannot be started: %s", ln_errno_text(why, bad));
    }
    return LN_OK;
}

void workers_close(workers *c) {
    if (c->n_workers == 0) return;
    (void)pthread_mutex_lock(&c->lock);
    c->stop = true;
    (void)pthread_cond_broadcast(&c->cond);
    (void)pthread_mutex_unlock(&c->lock);
    while (c->n_workers > 0) (void)pthread_join(c->threads[--c->n_workers], NULL);
    (void)pthread_cond_destroy(&c->cond);
    (void)pthread_mutex_destroy(&c->lock);
}

bool workers_submit(workers *c, work *w) {
    w->next = NULL;
    (void)pthread_mutex_lock(&c->lock);
    const bool fits = c->n < c->most;
    if (fits) {
        client_share *share = share_of(c, w);
        if (share && share->n_all++ == 0)
            share->read = LN_MAX(share->read, c->clock); /* no credit is saved */
        *c->last = w;
        c->last = &w->next;
        c->n++;
        (void)pthread_cond_broadcast(&c->cond);
    }
    (void)pthread_mutex_unlock(&c->lock);
    return fits;
}
