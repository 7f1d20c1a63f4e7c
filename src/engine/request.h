/* Requests: one asked-for answer each, with its own sampling, stop rules, cancel and events.
 *
 * A request belongs to the scheduler (scheduler.h) from ln_req_new until it has finished. Its record only
 * grows: ids, log-probabilities, text, events. A reader has a cursor in the events, so that a slow reader
 * delays no step. The thread that holds the driver token writes the record, under the engine's lock; readers
 * copy from it under the same lock. */
#ifndef LN_REQUEST_H
#define LN_REQUEST_H

#include "answer_text.h"
#include "constraint.h"
#include "eng_step.h"
#include "lookup.h"

#include <stdatomic.h>

enum { LN_TOP_MOST = 20 }; /* likeliest tokens that a request may ask for */

struct ln_eng;
struct ln_scratch;
struct ln_waiter;
typedef struct ln_req ln_req;

/* Reads the logits of a prompt's rows inside the step that computed them: row `row` of the step's logits
 * (ln_run_logits) follows token t of the prompt. The rows of one request come in order, one at a time; those
 * of different requests are read at the same time, on the threads of the pool. `x` has scratch arrays of the
 * thread. The function must be quick and call no function of this header. LN_ECANCELLED ends the request
 * without an error; other errors end it with that error. */
typedef ln_status ln_row_fn(void *user, int64_t t, int64_t row, const struct ln_scratch *x, ln_error *err);

/* What a request asks for. Everything is copied but `on_row`, `on_ready` and their users. */
typedef struct ln_req_options {
    const int32_t *ids; /* [n_ids] prompt, checked by ln_eng_check_ids */
    int64_t n_ids;
    const ln_sampling *how; /* its n_max is not -1; NULL: no token is generated (scoring) */
    bool split_reasoning;   /* the prompt went through a chat template */
    ln_answer_tools tools;  /* that may be called; copied */
    bool prose;             /* how->grammar leaves the text free but for calls of tools */
    bool logprobs;          /* of the generated tokens, with the n_top likeliest (at most LN_TOP_MOST) */
    int n_top;
    bool prompt_logprobs; /* the same of the prompt's tokens; nothing is reused then */
    bool no_cache;
    /* Rows first_row .. n_ids - 1 of the prompt are handed to on_row, in order; NULL: none. Rows before
     * first_row may come from the prefix cache. Where n_allowed is positive, only so many rows are handed
     * over until ln_req_allow allows more. */
    ln_row_fn *on_row;
    void *row_user;
    int64_t first_row, n_allowed;
    bool no_logits;   /* on_row reads the hidden states (ln_run_hidden), not the logits */
    int64_t n_share;  /* tokens whose keys and values later requests may reuse; 0: all */
    int n_lookup;     /* set by ln_req_new: see ln_options */
    bool hold;        /* without `how`: keep the sequence after the prompt, until ln_req_free */
    bool defer;       /* not queued before ln_req_start */
    int adapter_slot; /* slot of its adapter plus 1; 0: that of the engine, if there is one */
    uint64_t adapter; /* key of the adapter in the prefix cache; set by ln_req_new where it has a slot */
    void (*on_ready)(void *user); /* see ln_request_options */
    void *user;
    double opened; /* ln_now at the start of the call, for metrics; 0: now */
} ln_req_options;

typedef enum ln_req_state { LN_REQ_WAITING = 0, LN_REQ_RUNNING, LN_REQ_HELD, LN_REQ_DONE } ln_req_state;

/* A range of the record that became readable together. */
typedef struct ln_req_event {
    ln_event_kind kind;
    size_t at, n; /* TOKEN: number of the generated token; TEXT, REASONING, TOOL_CALL: bytes of that text */
} ln_req_event;

struct ln_req {
    /* ---- constant once the request is in the queue ---- */
    struct ln_eng *e;
    ln_req_options opt; /* ids: NULL, they are in `all` */
    ln_arena arena;
    ln_sampling how;
    int64_t n_most; /* positions that prompt and answer may need */
    uint64_t seed;
    bool holds_adapter; /* it is a user of its adapter's slot */
    uint64_t bytes,
        untouched; /* ln_req_bytes and its sampling; those that it has not taken when it is created */

    /* ---- of the thread that holds the driver token ---- */
    ln_seq *seq;
    /* tokens that are read before the next one is chosen: those of the prompt, or the whole text when it grew
     * so long that all of it is computed again (ln_spec_rope_switch) */
    int64_t n_prompt;
    ln_answer answer;
    ln_constraint constraint;
    int64_t share, grant; /* rows, and rows of logits, in the step that is being built */
    uint64_t turn;        /* number of the step that last computed logits for it, or that admitted it */
    int32_t sampled;      /* what the sampler chose in this step */
    double sampled_logprob;
    ln_top sampled_top[LN_TOP_MOST];
    ln_error fault;          /* of this step, unless its code is LN_OK */
    ln_lookup lookup;
    int64_t n_proposed, n_accepted; /* tokens that this step has rows of; how many of them were sampled */
    bool over;                      /* a token that was proposed has ended the answer in this step, */
    ln_finish over_how;             /* in this way */
    double *prompt_logprobs; /* [n_ids], where asked for */
    ln_top *prompt_top;      /* [n_ids, n_top] */

    /* ---- guarded by the engine's lock; the token's holder alone changes what is above `cancel` ---- */
    ln_req_state state;
    bool queued;                /* ln_req_start was called */
    struct ln_req *next, *prev; /* in the queue */
    ln_ids all;                 /* prompt and generated tokens */
    double *logprobs;           /* [generated tokens] */
    ln_top *top;                /* [generated tokens, n_top] */
    size_t cap_logprobs, cap_top;
    ln_str text, reasoning;
    ln_str calls;       /* [n_calls] names and arguments of calls of tools, each with a NUL byte at its end */
    ln_str call_pieces; /* names and pieces of arguments in the same form, for events */
    size_t n_calls;
    ln_req_event *events;
    size_t n_events, cap_events;
    int64_t n_read; /* tokens of the prompt whose keys and values are computed or reused */
    ln_error error; /* that ended it, unless its code is LN_OK */
    ln_finish finish;
    int32_t stop_id;
    int stop_text;
    size_t n_visible; /* generated ids of the result, once it has finished */
    ln_metrics metrics;
    uint64_t changes; /* counts what a waiting thread may want to see */
    bool cancel;
    const _Atomic(uintptr_t) *stop; /* see ln_eng.stop; NULL: none */
    uintptr_t stop_at;
    struct ln_waiter *waiter; /* of the thread that waits for it */

    _Atomic int64_t n_allowed; /* rows that may be handed to on_row */

    /* ---- of the one thread that reads ---- */
    atomic_bool reading;
    size_t cursor; /* events that were read */
    bool told;     /* on_ready was called since the reader found no event (guarded by the lock) */
    ln_str piece;  /* text of the event that was read last */
    ln_top read_top[LN_TOP_MOST];
};

/* The most bytes that the record of a request with these options takes which may need n_most positions. A
 * token is counted with TEXT_BYTES of text, which only a degenerate answer exceeds. */
uint64_t ln_req_bytes(const ln_req_options *opt, int64_t n_most);
/* Creates a request and appends it to the queue. The caller owns *out; ln_req_free. LN_EMEMORY: the pool
 * could never hold it, the limit of memory leaves too little for its record, or an allocation failed.
 * LN_EUSAGE: an empty prompt; a callback of ln_score or
 * ln_inspect_keys on the same engine; the engine was lost in a fork. */
ln_status ln_req_new(ln_req **out, struct ln_eng *e, const ln_req_options *opt, ln_error *err);
/* Queues a request that was made with `defer`, once. */
ln_status ln_req_start(ln_req *r, ln_error *err);
/* Whether tokens are generated after the prompt. */
static inline bool ln_req_generates(const ln_req *r) { return r->opt.how && r->how.n_max > 0; }
/* Sets the word with which ln_request_cancel stops the request. */
void ln_req_watch(ln_req *r, const _Atomic(uintptr_t) *stop, uintptr_t stop_at);
/* Calls on_ready no more. */
void ln_req_mute(ln_req *r);
/* Asks the request to end; any thread. */
void ln_req_cancel(ln_req *r);
/* ln_request_next. LN_EUSAGE: a callback of ln_score or ln_inspect_keys would wait for a request that waits
 * for a sequence, perhaps for the one that the callback holds. */
ln_status ln_req_next(ln_req *r, double seconds, ln_event *out, ln_error *err);
/* Waits, as ln_req_next does, until the record has more events, rows or prompt tokens than when r->changes
 * was `seen`, or the request has finished. Returns the new count. */
uint64_t ln_req_wait_change(ln_req *r, uint64_t seen, double seconds);
/* Runs steps, or waits for the thread that does, until the request has finished; returns its status. */
ln_status ln_req_wait(ln_req *r, ln_error *err);
/* Allows n more rows to be handed to on_row. */
void ln_req_allow(ln_req *r, int64_t n);
/* How far a request is: tokens of the prompt that are computed or reused, and those that were reused. */
typedef struct ln_req_view {
    ln_req_state state;
    uint64_t changes;
    int64_t n_read, n_cached;
    int64_t n_generated;
} ln_req_view;
ln_req_view ln_req_look(ln_req *r);
/* ln_request_result. */
ln_status ln_req_result(ln_req *r, ln_result *out, ln_error *err);
/* Cancels the request, waits until the scheduler has let go of it, frees it and sets *r to NULL. */
void ln_req_free(ln_req **r);
/* Brackets the time in which a callback of ln_score or ln_inspect_keys runs on this thread: the request holds
 * a sequence meanwhile, so that requests of the callback might wait for ever and are refused. Callbacks on
 * other engines may be nested in it. The struct is the caller's, until ln_req_callback_end. */
typedef struct ln_req_callback {
    const struct ln_eng *e;
    const struct ln_req_callback *outer; /* the callback of which this one is a part; NULL: none */
} ln_req_callback;
void ln_req_callback_begin(ln_req_callback *c, const struct ln_eng *e);
void ln_req_callback_end(const ln_req_callback *c);

/* ---- for the scheduler, all with the driver token ---- */

/* Whether it was asked to end. Takes no lock: call it with the lock. */
bool ln_req_cancelled(const ln_req *r);
/* Appends the token r->sampled and its text to the record, unless it is a stop id. *done: the answer ends
 * here, and *how says why. After an error the request must be ended. */
ln_status ln_req_take(ln_req *r, bool *done, ln_finish *how, ln_error *err);
/* Appends what ln_answer_flush released, unless `error` is set, and marks the request as finished. The
 * scheduler must have let go of it: another thread may free it as soon as the lock is free. With the lock. */
void ln_req_finish(ln_req *r, ln_finish how, const ln_error *error);
/* Says that something became readable: wakes the reader. Call it with the lock. */
void ln_req_changed(ln_req *r);

#endif
