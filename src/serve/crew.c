/* Workers and the mailbox: what crosses threads. A queue is bounded and has a lock of its own, which is held
 * for a few instructions; nothing else in the server is locked. */
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

static work *next_work(crew *c) {
    (void)pthread_mutex_lock(&c->lock);
    while (!c->first && !c->stop) (void)pthread_cond_wait(&c->cond, &c->lock);
    work *w = c->stop ? NULL : c->first;
    if (w) {
        c->first = w->next;
        if (!c->first) c->last = &c->first;
        c->n--;
    }
    (void)pthread_mutex_unlock(&c->lock);
    return w;
}

static void *work_on(void *user) {
    crew *c = user;
    for (work *w; (w = next_work(c));) {
        w->run(w);
        mailbox_put(c->box, w);
    }
    return NULL;
}

/* Signals go to the I/O thread. */
static int start_without_signals(crew *c) {
    sigset_t all, was;
    (void)sigfillset(&all);
    (void)sigdelset(&all, SIGBUS); /* of a truncated file; see ln_guard_files */
    (void)sigdelset(&all, SIGSEGV);
    (void)pthread_sigmask(SIG_SETMASK, &all, &was);
    const int bad = pthread_create(&c->thread, NULL, work_on, c);
    (void)pthread_sigmask(SIG_SETMASK, &was, NULL);
    return bad;
}

ln_status crew_open(crew *c, mailbox *box, size_t most, ln_error *err) {
    char why[LN_ERRNO_TEXT];
    *c = (crew){.box = box, .most = most, .last = &c->first};
    (void)pthread_mutex_init(&c->lock, NULL);
    (void)pthread_cond_init(&c->cond, NULL);
    const int bad = start_without_signals(c);
    c->started = !bad;
    return bad ? ln_fail(err, LN_EMEMORY, "a worker thread cannot be started: %s", ln_errno_text(why, bad))
               : LN_OK;
}

void crew_close(crew *c) {
    if (!c->started) return;
    (void)pthread_mutex_lock(&c->lock);
    c->stop = true;
    (void)pthread_cond_signal(&c->cond);
    (void)pthread_mutex_unlock(&c->lock);
    (void)pthread_join(c->thread, NULL);
    (void)pthread_cond_destroy(&c->cond);
    (void)pthread_mutex_destroy(&c->lock);
    c->started = false;
}

bool crew_submit(crew *c, work *w) {
    w->next = NULL;
    (void)pthread_mutex_lock(&c->lock);
    const bool fits = c->n < c->most;
    if (fits) {
        *c->last = w;
        c->last = &w->next;
        c->n++;
        (void)pthread_cond_signal(&c->cond);
    }
    (void)pthread_mutex_unlock(&c->lock);
    return fits;
}
