/* The driver token of an engine: who runs the next step, and all waiting.
 *
 * Invariants, under the lock. While the token is free and not `idle`, no thread waits in the line that would
 * take it: ln_driver_release and ln_driver_poke hand it to the first such thread. A thread that was handed
 * the token runs a step or hands it on. So no wake-up is lost, and every thread in the line has its turn.
 *
 * A request may be stopped by a signal handler, which can wake nobody. So threads do not sleep without limit
 * while the scheduler is idle with requests in it: one of them at least looks again after POLL seconds. */
#include "../base/os.h"
#include "../base/float_env.h"
#include "engine.h"
#include "../base/stop_count.h"
#include "scheduler.h"

#include <math.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#define POLL 0.02

/* ---- the line ---- */

static ln_status new_cond(pthread_cond_t *c, ln_error *err) {
    const int bad = ln_os_cond_init(c);
    return bad ? ln_fail(err, LN_EMEMORY, "out of memory for a condition variable (%d)", bad) : LN_OK;
}

static void line_up(ln_sched *s, ln_waiter *w) {
    w->next = NULL;
    w->prev = s->last;
    if (s->last) s->last->next = w;
    else s->first = w;
    s->last = w;
}

static void leave_line(ln_sched *s, ln_waiter *w) {
    if (w->prev) w->prev->next = w->next;
    else if (s->first == w) s->first = w->next;
    else return; /* it is not in the line */
    if (w->next) w->next->prev = w->prev;
    else s->last = w->prev;
    w->next = w->prev = NULL;
}

/* While the scheduler is idle, the first thread in the line looks again and again whether something was
 * stopped (wait_in_line): wakes it, because it may sleep without limit. */
static void wake_first(ln_sched *s) {
    if (s->idle && s->first) pthread_cond_signal(&s->first->cond);
}

/* Hands the token, which is taken and unused, to the first thread in the line that wants it; else frees it.
 */
static void hand_on(ln_sched *s) {
    s->held = false;
    for (ln_waiter *w = s->first; w; w = w->next) {
        if (!w->must && (s->thread_on || s->idle || s->lost)) continue;
        leave_line(s, w);
        w->token = true;
        pthread_cond_signal(&w->cond);
        return;
    }
    s->busy = false;
    if (s->thread_on) pthread_cond_signal(&s->work);
    wake_first(s);
}

static void sleep_until(ln_sched *s, pthread_cond_t *c, double until) {
    if (!(until < INFINITY)) {
        pthread_cond_wait(c, &s->lock);
        return;
    }
    const double now = ln_now();
    (void)ln_os_wait_until(c, &s->lock, now + LN_MIN(LN_MAX(until - now, 0), 1e6));
}

static void own(ln_sched *s) {
    s->held = true;
    s->owner = pthread_self();
}

void ln_driver_take(ln_sched *s) {
    ln_waiter w = {.must = true};
    if (!s->busy) {
        s->busy = true;
    } else {
        (void)new_cond(&w.cond, NULL); /* glibc and musl allocate nothing for it */
        line_up(s, &w);
        while (!w.token) pthread_cond_wait(&w.cond, &s->lock);
        pthread_cond_destroy(&w.cond);
    }
    own(s);
}

void ln_driver_release(ln_sched *s) { hand_on(s); }

void ln_driver_poke(ln_sched *s) {
    s->idle = false;
    if (s->thread_on) pthread_cond_signal(&s->work);
    if (s->busy) return;
    s->busy = true;
    hand_on(s);
}

void ln_driver_wake(ln_sched *s, ln_req *r) {
    ln_waiter *w = r->waiter;
    if (!w) return;
    w->woken = true;
    if (!w->token) leave_line(s, w);
    pthread_cond_signal(&w->cond);
}

/* Runs one step with the token and the lock; the lock is released meanwhile. */
static ln_status step(ln_sched *s, ln_error *err) {
    bool worked = false;
    own(s);
    pthread_mutex_unlock(&s->lock);
    const ln_status st = ln_sched_step(s, &worked, err);
    pthread_mutex_lock(&s->lock);
    if (!worked) s->idle = true;
    return st;
}

/* Waits in the line until the token comes, r changes, or the time is up. Returns whether it has the token. */
static bool wait_in_line(ln_sched *s, ln_req *r, double until) {
    ln_waiter w = {.must = false};
    (void)new_cond(&w.cond, NULL);
    r->waiter = &w;
    line_up(s, &w);
    while (!w.token && !w.woken && ln_now() < until) {
        const double poll = s->idle && !s->busy ? ln_now() + POLL : INFINITY;
        sleep_until(s, &w.cond, LN_MIN(until, poll));
        if (!w.token && !w.woken && ln_now() >= poll) { /* look whether something was stopped */
            s->idle = false;
            if (!s->thread_on && !s->busy && !s->lost) s->busy = w.token = true;
        }
    }
    leave_line(s, &w);
    if (!w.token) wake_first(s); /* this thread may have been the one that looks */
    r->waiter = NULL;
    pthread_cond_destroy(&w.cond);
    return w.token;
}

void ln_driver_wait(ln_sched *s, ln_req *r, uint64_t seen, double until) {
    while (r->changes == seen && r->state != LN_REQ_DONE && ln_now() < until) {
        bool mine = !s->busy && !s->thread_on && !s->idle && !s->lost;
        if (mine) s->busy = true;
        else mine = wait_in_line(s, r, until);
        if (!mine) continue;
        if (r->changes == seen && r->state != LN_REQ_DONE) (void)step(s, NULL);
        ln_driver_release(s); /* an error of the step has ended r, which has its message */
    }
}

/* ---- who drives ---- */

const char ln_driver_lost[] = "another thread ran a step of this engine when the process forked; the child "
                              "must open an engine of its own";

ln_status ln_driver_pause(ln_sched *s, ln_error *err) {
    pthread_mutex_lock(&s->lock);
    const bool lost = s->lost;
    if (!lost) ln_driver_take(s);
    pthread_mutex_unlock(&s->lock);
    return lost ? ln_fail(err, LN_EUSAGE, "%s", ln_driver_lost) : LN_OK;
}
void ln_driver_resume(ln_sched *s) {
    pthread_mutex_lock(&s->lock);
    ln_driver_release(s);
    pthread_mutex_unlock(&s->lock);
}

ln_status ln_driver_step(ln_sched *s, size_t *n_active, ln_error *err) {
    ln_status st = LN_OK;
    pthread_mutex_lock(&s->lock);
    if (s->thread_on)
        st = ln_fail(err, LN_EUSAGE,
                     "the engine's own thread runs its steps; end it with ln_engine_stop first");
    else if (s->lost) st = ln_fail(err, LN_EUSAGE, "%s", ln_driver_lost);
    if (st == LN_OK) {
        ln_driver_take(s);
        st = step(s, err);
        if (n_active) *n_active = (size_t)(s->n_waiting + s->n_running);
        ln_driver_release(s);
    }
    pthread_mutex_unlock(&s->lock);
    return st;
}

static void *drive(void *arg) {
    ln_sched *s = arg;
    ln_float_env inherited;
    ln_float_env_default(&inherited);
    pthread_mutex_lock(&s->lock);
    while (!s->thread_stop) {
        const bool any = s->n_waiting + s->n_running > 0;
        if (!any || s->idle) {
            const double poll = any ? ln_now() + POLL : INFINITY;
            sleep_until(s, &s->work, poll);
            if (ln_now() >= poll) s->idle = false;
            continue;
        }
        ln_driver_take(s);
        (void)step(s, NULL); /* an error has ended all requests, which have its message */
        ln_driver_release(s);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* Where the engine's thread was asked to end, waits until it has. */
static void wait_for_end(ln_sched *s) {
    while (s->thread_on && s->thread_stop) pthread_cond_wait(&s->ended, &s->lock);
}

ln_status ln_driver_start(ln_sched *s, ln_error *err) {
    sigset_t all, old;
    ln_status st = LN_OK;
    sigfillset(&all); /* asynchronous signals are for the threads of the program */
    static const int own[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    for (size_t i = 0; i < LN_COUNT(own); i++) sigdelset(&all, own[i]);
    pthread_mutex_lock(&s->lock);
    wait_for_end(s);
    if (s->lost) st = ln_fail(err, LN_EUSAGE, "%s", ln_driver_lost);
    if (st == LN_OK && !s->thread_on) {
        pthread_sigmask(SIG_SETMASK, &all, &old);
        const int bad = pthread_create(&s->thread, NULL, drive, s);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        s->thread_on = bad == 0;
        char text[LN_ERRNO_TEXT];
        if (bad)
            st = ln_fail(err, LN_EMEMORY,
                         "the system refuses a thread (%s); raise the limits of this process (ulimit -u)",
                         ln_errno_text(text, bad));
    }
    pthread_mutex_unlock(&s->lock);
    return st;
}

void ln_driver_stop(ln_sched *s) {
    pthread_mutex_lock(&s->lock);
    wait_for_end(s); /* another call ends it */
    const bool mine = s->thread_on;
    const pthread_t thread = s->thread;
    if (mine) {
        s->thread_stop = true;
        pthread_cond_signal(&s->work);
    }
    pthread_mutex_unlock(&s->lock);
    if (!mine) return;
    pthread_join(thread, NULL);
    pthread_mutex_lock(&s->lock);
    s->thread_on = s->thread_stop = false;
    pthread_cond_broadcast(&s->ended);
    ln_driver_poke(s); /* threads that wait for results run the steps now */
    pthread_mutex_unlock(&s->lock);
}

ln_status ln_driver_enter(ln_sched *s, ln_error *err) {
    ln_status st = LN_OK;
    pthread_mutex_lock(&s->lock);
    if (s->lost) st = ln_fail(err, LN_EUSAGE, "%s", ln_driver_lost);
    if (st == LN_OK) {
        ln_driver_take(s);
        const int64_t n = s->n_waiting + s->n_running;
        if (n > 0) {
            st = ln_fail(err, LN_EUSAGE,
                         "the engine has %lld requests, and this call needs it alone; close them first",
                         (long long)n);
            ln_driver_release(s);
        }
    }
    pthread_mutex_unlock(&s->lock);
    return st;
}

void ln_driver_leave(ln_sched *s) {
    pthread_mutex_lock(&s->lock);
    ln_driver_release(s);
    pthread_mutex_unlock(&s->lock);
}

/* ---- fork ---- */

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static ln_sched *open_scheds;

static void watch(ln_sched *s) {
    pthread_mutex_lock(&open_lock);
    s->next_open = open_scheds;
    s->link = &open_scheds;
    if (open_scheds) open_scheds->link = &s->next_open;
    open_scheds = s;
    pthread_mutex_unlock(&open_lock);
    s->listed = true;
}

static void unwatch(ln_sched *s) {
    pthread_mutex_lock(&open_lock);
    *s->link = s->next_open;
    if (s->next_open) s->next_open->link = s->link;
    pthread_mutex_unlock(&open_lock);
}

void ln_driver_each(void (*fn)(void *user, ln_sched *s), void *user) {
    pthread_mutex_lock(&open_lock);
    for (ln_sched *s = open_scheds; s; s = s->next_open) {
        pthread_mutex_lock(&s->lock);
        fn(user, s);
        pthread_mutex_unlock(&s->lock);
    }
    pthread_mutex_unlock(&open_lock);
}

ln_status ln_driver_open(ln_sched *s, ln_error *err) {
    LN_TRY(new_cond(&s->work, err));
    if (new_cond(&s->ended, err) != LN_OK) {
        pthread_cond_destroy(&s->work);
        return LN_EMEMORY;
    }
    const int bad = pthread_mutex_init(&s->lock, NULL);
    if (bad) {
        pthread_cond_destroy(&s->work);
        pthread_cond_destroy(&s->ended);
        return ln_fail(err, LN_EMEMORY, "out of memory for a lock (%d)", bad);
    }
    watch(s);
    return LN_OK;
}

void ln_driver_close(ln_sched *s) {
    if (!s->listed) return; /* it was not opened; `link` changes as neighbours in the list close */
    ln_driver_stop(s);
    unwatch(s);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->work);
    pthread_cond_destroy(&s->ended);
}

static void before_fork(void) {
    pthread_mutex_lock(&open_lock);
    for (ln_sched *s = open_scheds; s; s = s->next_open) pthread_mutex_lock(&s->lock);
}

static void in_parent(void) {
    for (ln_sched *s = open_scheds; s; s = s->next_open) pthread_mutex_unlock(&s->lock);
    pthread_mutex_unlock(&open_lock);
}

/* Ends a request whose engine was lost. Its sequence stays as it is. */
static void lose(ln_req *r) {
    r->state = LN_REQ_DONE;
    r->finish = LN_FINISH_CANCELLED;
    (void)ln_fail(&r->error, LN_EUSAGE, "%s", ln_driver_lost);
}

/* The child has the forking thread alone: not the engine's thread, nor those that wait, whose requests are
 * dropped. If another thread ran a step, its work is lost half done, and the engine with it. */
static void in_child(void) {
    atomic_fetch_add(&ln_stop_count, 1);
    for (ln_sched *s = open_scheds; s; s = s->next_open) {
        s->first = s->last = NULL;
        s->thread_on = s->thread_stop = s->idle = false;
        (void)new_cond(&s->work, NULL);
        (void)new_cond(&s->ended, NULL);
        s->lost = s->lost || (s->held && !pthread_equal(s->owner, pthread_self()));
        s->busy = s->held =
            s->held && !s->lost; /* not held: it was handed to a thread that did not wake yet */
        for (int i = 0; i < s->n_running; i++) s->running[i]->cancel |= s->running[i]->waiter != NULL;
        for (ln_req *r = s->queue; r; r = r->next) r->cancel |= r->waiter != NULL;
        for (int i = 0; i < s->n_running; i++) s->running[i]->waiter = NULL;
        for (ln_req *r = s->queue; r; r = r->next) r->waiter = NULL;
        if (s->lost) {
            for (int i = 0; i < s->n_running; i++) lose(s->running[i]);
            for (ln_req *r = s->queue; r; r = r->next) lose(r);
            s->n_running = 0;
            s->n_waiting = 0;
            s->queue = s->queue_end = NULL;
        }
    }
    in_parent();
}

__attribute__((constructor)) static void watch_forks(void) {
    (void)pthread_atfork(before_fork, in_parent, in_child);
}
