/* The scheduler of an engine: the queue, the running requests, the driver token, and the step that serves all
 * of them (docs/decisions/017).
 *
 * The thread that holds the driver token runs the next step: the engine's thread, a caller's ln_engine_step,
 * or a thread that waits for its own request. Threads that want the token get it in the order in which they
 * asked; a thread whose request has something to read leaves the line. driver.c owns the token and all
 * waiting, scheduler.c the step.
 *
 * The lock is held for short times only, never while a step or a callback of text runs. */
#ifndef LN_SCHEDULER_H
#define LN_SCHEDULER_H

#include "../base/stop_count.h"
#include "request.h"
#include "sampler.h"

#include <pthread.h>

/* A thread that waits for the token, for its request, or for both. On the stack of that thread. */
typedef struct ln_waiter {
    pthread_cond_t cond;
    bool must;  /* wants the token whatever happens; else only while the engine has no thread of its own */
    bool token; /* was given the token */
    bool woken; /* its request has changed */
    struct ln_waiter *next, *prev;
} ln_waiter;

/* Scratch of one thread that reads rows of logits. */
typedef struct ln_scratch {
    ln_sampler *sampler;
    float *logits; /* [V] */
} ln_scratch;

/* Rows of the step's logits that one thread of the sampling job reads.
 * LN_SAMPLE_TOKEN: row `row`, for the next token of the request.
 * LN_SAMPLE_SCORE: row `row`, for the log-probability of token t + 1 of its prompt.
 * LN_SAMPLE_ROWS: rows row .. row + n - 1, for on_row, which follow tokens t .. t + n - 1 of the prompt.
 * Then, if the last of them ends the prompt of a request that generates, its next token. */
typedef enum ln_sample_kind { LN_SAMPLE_TOKEN, LN_SAMPLE_SCORE, LN_SAMPLE_ROWS } ln_sample_kind;
typedef struct ln_sample_job {
    ln_req *r;
    ln_sample_kind kind;
    int64_t row, t, n;
    int32_t forced;            /* the next token if it does not depend on the row, else -1 */
    bool done;                 /* LN_SAMPLE_TOKEN: it is chosen */
    bool failed;               /* LN_SAMPLE_SCORE */
    int64_t edits_at, n_edits; /* for the device, in ln_sched.edits; n_edits -1: the host chooses the token */
} ln_sample_job;

/* prefill_budget.c: recent times, for the choice of how many rows of prefill a step takes. */
enum { LN_STEP_TIMES = 9 };
typedef struct ln_prefill_budget {
    double decode[LN_STEP_TIMES]; /* seconds of the last steps without prefill, a ring */
    int n_decode, at_decode;
    int64_t start_rows;   /* decoding sequences of the last step with rows of prompts; 0: no prompt is read */
    double start_seconds; /* the median decode step when so many first decoded together with a prompt */
    int n_mixed;          /* steps with rows of prompts since the last without */
    double row_seconds;   /* seconds that a row of prefill adds to a step; 0: not known yet */
} ln_prefill_budget;
/* Records a step of n_decode rows of decoding sequences and n_prefill rows of prompts. */
void ln_prefill_budget_record(ln_prefill_budget *p, int64_t n_decode, int64_t n_prefill, double seconds);
/* How many rows of prompts a step takes while sequences decode, before other bounds; 0 in some steps. */
int64_t ln_prefill_budget_rows(const ln_prefill_budget *p);

typedef struct ln_sched {
    struct ln_eng *e;
    pthread_mutex_t lock;

    /* ---- driver.c, guarded by the lock ---- */
    bool busy; /* the token is taken, or was handed to a thread that has not woken yet */
    bool held; /* it is taken by the thread `owner` */
    pthread_t owner;
    bool idle; /* the last step found nothing to do, and nothing has happened since */
    bool lost; /* a fork took away the thread that ran a step: the engine cannot go on */
    ln_waiter *first, *last;
    bool thread_on, thread_stop;
    pthread_t thread;
    pthread_cond_t work;                /* the engine's thread sleeps here */
    pthread_cond_t ended;               /* threads that wait for its end do */
    bool listed;                        /* in the list below: set once, before the engine is used */
    struct ln_sched *next_open, **link; /* list of all schedulers, for fork; has a lock of its own */

    /* ---- guarded by the lock ---- */
    ln_req *queue, *queue_end;
    ln_req **running; /* [n_seqs], in the order of admission; the token's holder alone changes it */
    int n_running;
    int64_t n_waiting;
    ln_engine_stats stats; /* counters so far */
    /* Bytes of the requests that are not freed (ln_req.bytes, .untouched); those that the plan has for them;
     * those up to which no limit needs to be looked at */
    uint64_t request_bytes, request_untouched, request_planned, request_allowed;

    /* ---- of the token's holder ---- */
    ln_batch_item *items; /* [n_seqs] of the step that is being built */
    ln_req **parts;       /* [n_seqs] whose items they are */
    ln_req **order;       /* [n_seqs] scratch */
    int n_items;
    int32_t *proposed;   /* [n_logits] with n_lookup: last tokens and those proposed after them */
    bool headless;       /* no request needs logits of the step, which computes none */
    ln_sample_job *jobs; /* [max(n_logits, n_seqs)] */
    int n_jobs;
    _Atomic int next_job;
    /* Of the jobs that the device does: their parameters [n_rows], tokens, and changes of logits. */
    ln_row_sampling *rows; /* [max(n_logits, n_seqs)] */
    int32_t *row_ids;      /* as many */
    int *row_jobs;         /* indices of these jobs; as many */
    int n_rows;
    ln_logit_edit *edits; /* [cap_edits], grows */
    size_t cap_edits;
    ln_scratch *scratch; /* [n_scratch] */
    int n_scratch;
    uint64_t n_steps;
    uint64_t n_stops;    /* ln_stop_count at the last look for cancelled requests */
    double late_seconds; /* of the last step's delivery */
    ln_prefill_budget prefill_budget;
} ln_sched;

/* Bytes of a scheduler's arrays for an engine of these options. */
uint64_t ln_sched_bytes(const ln_run_options *o, int64_t n_vocab);
ln_status ln_sched_open(ln_sched **out, struct ln_eng *e, ln_error *err);
/* Ends the engine's thread. No request may be left. */
void ln_sched_close(ln_sched **s);

/* ---- driver.c ---- */

extern const char ln_driver_lost[]; /* the message of a lost engine */
/* ln_engine_step, ln_engine_start, ln_engine_stop. */
ln_status ln_driver_step(ln_sched *s, size_t *n_active, ln_error *err);
ln_status ln_driver_start(ln_sched *s, ln_error *err);
void ln_driver_stop(ln_sched *s);
/* Takes the token for direct use of sequences and steps, and waits for it. LN_EUSAGE: there are requests.
 * ln_driver_leave gives it back; no callback of a caller may run before. */
ln_status ln_driver_enter(ln_sched *s, ln_error *err);
void ln_driver_leave(ln_sched *s);
/* Takes the token while requests may be there: no step runs until ln_driver_resume. LN_EUSAGE: the engine was
 * lost in a fork. */
ln_status ln_driver_pause(ln_sched *s, ln_error *err);
void ln_driver_resume(ln_sched *s);
/* Takes and gives back the token whatever runs. With the lock, which is released while waiting. */
void ln_driver_take(ln_sched *s);
void ln_driver_release(ln_sched *s);
/* With the lock: runs steps or waits until r->changes is not `seen`, or until the time `until` (ln_now;
 * INFINITY: for ever). */
void ln_driver_wait(ln_sched *s, ln_req *r, uint64_t seen, double until);
/* With the lock: there may be something to do, after all. */
void ln_driver_poke(ln_sched *s);
/* With the lock: r has changed; wakes the thread that waits for it. */
void ln_driver_wake(ln_sched *s, ln_req *r);
/* Calls fn for the scheduler of each open engine, with its lock. */
void ln_driver_each(void (*fn)(void *user, ln_sched *s), void *user);
/* Sets up the fields of the driver; ends the engine's thread and frees them. */
ln_status ln_driver_open(ln_sched *s, ln_error *err);
void ln_driver_close(ln_sched *s);

/* ---- sample_rows.c ---- */

/* Chooses the tokens of s->jobs that do not depend on a row, and those that the device chooses behind the
 * step, which may still run. */
void ln_sched_sample_on_device(ln_sched *s);
/* Runs the rest of s->jobs after the step, on all threads: each request's sampled_* and fault, or its
 * prompt_logprobs and prompt_top, or its on_row. */
void ln_sched_sample(ln_sched *s);

/* ---- propose.c ---- */

/* Adds rows of proposed tokens to the first n_decode items, which have one row each, up to
 * n_chunk rows and n_logits rows of logits. */
void ln_sched_propose(ln_sched *s, int n_decode);
/* After the first token of each item with proposals was sampled: samples those that follow, as long as a
 * token is the one that was proposed, and appends all but the last to the request. Keeps the rows whose
 * tokens are in the text. LN_EDEVICE. */
ln_status ln_sched_accept(ln_sched *s, ln_error *err);

/* ---- scheduler.c ---- */

/* Rows of logits that an item has. */
static inline int64_t ln_sched_rows_out(const ln_batch_item *item) {
    return item->want == LN_LOGITS_ALL ? item->n : item->want == LN_LOGITS_LAST;
}
/* Appends an entry to s->jobs. */
static inline void ln_sched_add_job(ln_sched *s, ln_sample_job d) { s->jobs[s->n_jobs++] = d; }
/* Runs one step, with the token. *worked: there was something to do. */
ln_status ln_sched_step(ln_sched *s, bool *worked, ln_error *err);
/* With the lock: appends to the queue; takes from the queue or from the running requests. */
void ln_sched_enqueue(ln_sched *s, ln_req *r);
void ln_sched_remove(ln_sched *s, ln_req *r);
/* With the lock: whether a request is in the queue. */
bool ln_sched_waits(const ln_sched *s, const ln_req *r);
/* With the token, without the lock: releases the sequence of a request, takes it out and finishes it. Another
 * thread may free the request at once. */
void ln_sched_end(ln_sched *s, ln_req *r, ln_finish how, const ln_error *error);
/* ln_engine_get_stats. */
void ln_sched_stats(ln_sched *s, ln_engine_stats *out);

#endif
