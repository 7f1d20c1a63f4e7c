/* Workers and the mailbox: what crosses threads. A queue is bounded and has a lock of its own, which is held
 * for a few instructions; nothing else in the server is locked.
 *
 * Work on bodies is fair by client. Each client has a virtual time, the bytes of the bodies that were read
 * for it, as in tenants.c: the next work is that of the client whose time is least. Large work of one client
 * is done one after the other, so that it takes one worker at most; each worker is a thread, which the system
 * runs in slices beside the others. One worker does small work only: it is never held up by a large body,
 * whichever client sends it. */
#include "server.h"

#include <errno.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* ---- the mailbox ---- */

ln_status mailbox_open(mailbox *m, ln_error *err) {
    char why[LN_ERRNO_TEXT];
    *m = (mailbox){.last = &m->first};
    (void)pthread_mutex_init(&m->lock, NULL);
    m->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return m->fd >= 0 ? LN_OK : ln_fail(err, LN_EIO, "eventfd: %s", ln_errno_text(why, errno));
}

void mailbox_close(mailbox *m) {
    if (m->fd >= 0) (void)close(m->fd);
    (void)pthread_mutex_destroy(&m->lock);
}

void mailbox_wake(mailbox *m) {
    const uint64_t one = 1;
    const ssize_t n = write(m->fd, &one, sizeof one); /* a full counter is readable, too */
    (void)n;
}

static void mailbox_put(mailbox *m, work *w) {
    w->next = NULL;
    (void)pthread_mutex_lock(&m->lock);
    const bool empty = !m->first;
    *m->last = w;
    m->last = &w->next;
    (void)pthread_mutex_unlock(&m->lock);
    if (empty) mailbox_wake(m);
}

work *mailbox_take(mailbox *m) {
    (void)pthread_mutex_lock(&m->lock);
    work *all = m->first;
    m->first = NULL;
    m->last = &m->first;
    (void)pthread_mutex_unlock(&m->lock);
    return all;
}

/* ---- workers ---- */

static bool is_large(const work *w) { return w->cost > CREW_SMALL; }

static crew_share *share_of(const crew *c, const work *w) { return w->who ? &w->who->shares[c->id] : NULL; }

/* Whether a worker may begin the work now. */
static bool may_begin(const crew *c, const work *w, bool small_only) {
    const crew_share *share = share_of(c, w);
    return !is_large(w) || (!small_only && (!share || share->n_large == 0));
}

/* Takes the work whose client has had the least, the oldest of several; NULL: there is none to begin. */
static work *take(crew *c, bool small_only) {
    work **best = NULL;
    uint64_t least = 0;
    for (work **at = &c->first; *at; at = &(*at)->next) {
        const crew_share *share = share_of(c, *at);
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

static work *begin_work(crew *c, bool small_only) {
    work *w = NULL;
    (void)pthread_mutex_lock(&c->lock);
    while (!c->stop && !(w = take(c, small_only))) (void)pthread_cond_wait(&c->cond, &c->lock);
    crew_share *share = w ? share_of(c, w) : NULL;
    if (share) {
        c->clock = LN_MAX(c->clock, share->read);
        share->read += w->cost + 1;
        share->n_large += is_large(w);
    }
    (void)pthread_mutex_unlock(&c->lock);
    return w;
}

static void end_work(crew *c, work *w) {
    crew_share *share = share_of(c, w);
    if (!share) return;
    (void)pthread_mutex_lock(&c->lock);
    share->n_all--;
    share->n_large -= is_large(w);
    if (is_large(w)) (void)pthread_cond_broadcast(&c->cond); /* the client's next large work may begin */
    (void)pthread_mutex_unlock(&c->lock);
}

static void *work_on(void *user) {
    crew *c = user;
    (void)pthread_mutex_lock(&c->lock);
    const bool small_only = c->n_named++ == 0 && c->several;
    (void)pthread_mutex_unlock(&c->lock);
    for (work *w; (w = begin_work(c, small_only));) {
        w->run(w);
        end_work(c, w);
        mailbox_put(c->box, w);
    }
    return NULL;
}

/* Starts one more worker. Signals go to the I/O thread. */
static int start_without_signals(crew *c) {
    sigset_t all, was;
    (void)sigfillset(&all);
    (void)sigdelset(&all, SIGBUS); /* of a truncated file; see ln_guard_files */
    (void)sigdelset(&all, SIGSEGV);
    (void)pthread_sigmask(SIG_SETMASK, &all, &was);
    const int bad = pthread_create(&c->workers[c->n_workers], NULL, work_on, c);
    c->n_workers += !bad;
    (void)pthread_sigmask(SIG_SETMASK, &was, NULL);
    return bad;
}

ln_status crew_open(crew *c, crew_id id, int n_workers, mailbox *box, size_t most, ln_error *err) {
    char why[LN_ERRNO_TEXT];
    *c = (crew){.id = id, .box = box, .most = most, .several = n_workers > 1, .last = &c->first};
    (void)pthread_mutex_init(&c->lock, NULL);
    (void)pthread_cond_init(&c->cond, NULL);
    for (int i = 0; i < n_workers; i++) {
        const int bad = start_without_signals(c);
        if (bad)
            return ln_fail(err, LN_EMEMORY, "a worker thread cannot be started: %s", ln_errno_text(why, bad));
    }
    return LN_OK;
}

void crew_close(crew *c) {
    if (c->n_workers == 0) return;
    (void)pthread_mutex_lock(&c->lock);
    c->stop = true;
    (void)pthread_cond_broadcast(&c->cond);
    (void)pthread_mutex_unlock(&c->lock);
    while (c->n_workers > 0) (void)pthread_join(c->workers[--c->n_workers], NULL);
    (void)pthread_cond_destroy(&c->cond);
    (void)pthread_mutex_destroy(&c->lock);
}

bool crew_submit(crew *c, work *w) {
    w->next = NULL;
    (void)pthread_mutex_lock(&c->lock);
    const bool fits = c->n < c->most;
    if (fits) {
        crew_share *share = share_of(c, w);
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
