/* Requests: one asked-for answer each, with its own sampling, stop rules, cancel and events.
 *
 * A request belongs to an engine's scheduler from ln_req_new until it has finished. Fields under "step" are
 * touched only by the thread that holds the driver token; `record` and what follows is guarded by the
 * engine's lock. */
#ifndef LN_REQUEST_H
#define LN_REQUEST_H

#include "../package/package.h"
#include "eng_step.h"

typedef struct ln_req ln_req;

/* Reads the logits of a prompt's rows inside the step that computed them: row `row` of the step's logits
 * (ln_run_logits) follows token t of the prompt. Runs on the thread that runs the step. LN_ECANCELLED ends
 * the request without an error; other errors end it with that error. */
typedef ln_status ln_row_fn(void *user, int64_t t, int64_t row, ln_error *err);

/* What a request asks for. Everything is copied but `on_row` and `user`. */
typedef struct ln_req_options {
    const int32_t *ids; /* [n_ids] prompt, checked by ln_eng_check_ids */
    int64_t n_ids;
    const ln_sampling *how; /* NULL: no token is generated (scoring) */
    bool split_reasoning;   /* the prompt went through a chat template */
    int n_logprobs;         /* -1: none */
    bool prompt_logprobs, no_cache;
    /* Rows first_row .. n_ids - 1 of the prompt are handed to on_row, in order; NULL: none. Rows before
     * first_row may come from the prefix cache. */
    ln_row_fn *on_row;
    void *row_user;
    int64_t first_row;
    /* Called with the sequence when all prompt rows are computed, before it is released; NULL: none. For
     * reading pages. */
    ln_status (*on_prompt)(void *user, ln_seq *seq, ln_error *err);
    void *prompt_user;
    uint64_t adapter;
    void (*on_ready)(void *user);
    void *user;
} ln_req_options;

/* Creates a request and appends it to the queue. The caller owns *out; ln_req_free. LN_EMEMORY: the pool
 * could never hold it, or an allocation failed. LN_EUSAGE: an empty prompt. */
ln_status ln_req_new(ln_req **out, struct ln_eng *e, const ln_req_options *opt, ln_error *err);
/* Asks the request to end; any thread. */
void ln_req_cancel(ln_req *r);
/* ln_request_next. */
ln_status ln_req_next(ln_req *r, double seconds, ln_event *out, ln_error *err);
/* Runs steps, or waits for the thread that does, until the request has finished; returns its status. */
ln_status ln_req_wait(ln_req *r, ln_error *err);
/* ln_request_result. */
ln_status ln_req_result(ln_req *r, ln_result *out, ln_error *err);
/* Cancels the request, waits until the scheduler has let go of it, frees it and sets *r to NULL. */
void ln_req_free(ln_req **r);

#endif
