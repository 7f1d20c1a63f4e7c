/* Batched sampling: the rows of logits of one step are spread over all threads. A row's result is a function
 * of the row and its request alone, so that it does not depend on the thread.
 *
 * Everything runs inside a job of the thread pool, also on one thread, so that FTZ and DAZ are always set. A
 * single row whose choice is a plain argmax is left to the device, which spreads that row over its threads.
 */
#include "../base/thread_pool.h"
#include "engine.h"
#include "logprob.h"
#include "scheduler.h"

#include <math.h>
#include <string.h>

/* Log-probabilities before bias, penalties and filters: those of the likeliest tokens, and the sum. */
static ln_status list_top(ln_req *r, const float *logits, int64_t V, ln_top *top, double *lse,
                          ln_error *err) {
    LN_TRY(ln_log_sum(logits, V, lse, err));
    ln_find_top(logits, V, *lse, top, (size_t)r->opt.n_top);
    return LN_OK;
}

/* The argmax of a row that is the next token whatever the sampling excludes; -1: the row must be looked at.
 */
static int32_t find_plain(ln_eng *e, const ln_req *r, int64_t row) {
    const int32_t top = (int32_t)ln_run_top(e->run, row);
    for (int i = 0; r->how.ignore_eos && i < r->answer.n_end_ids; i++)
        if (r->answer.end_ids[i] == top) return -1;
    return top;
}

/* The next token of a request. */
static ln_status draw_token(ln_eng *e, const ln_scratch *x, ln_req *r, int64_t row, ln_error *err) {
    const int64_t V = e->run->spec->V, n = (int64_t)r->all.n, n_generated = n - r->opt.n_ids;
    const bool plain = ln_sample_is_plain(&r->how, n_generated);
    double lse = 0;
    r->drawn = ln_answer_forced(&r->answer);
    r->drawn_logprob = NAN;
    const bool forced = r->drawn >= 0;
    if (!r->opt.logprobs && forced) return LN_OK;
    if (!r->opt.logprobs && plain) r->drawn = find_plain(e, r, row);
    if (r->drawn >= 0 && !forced) return LN_OK;
    LN_TRY(ln_run_logits(e->run, row, x->logits, err));
    if (r->opt.logprobs) LN_TRY(list_top(r, x->logits, V, r->drawn_top, &lse, err));
    if (!forced)
        LN_TRY(ln_sample(x->sampler, x->logits, &r->how, r->seed, r->all.data, n, n_generated,
                         r->answer.end_ids, r->answer.n_end_ids, &r->drawn, err));
    if (!r->opt.logprobs) return LN_OK;
    if (!forced && !plain) LN_TRY(ln_run_logits(e->run, row, x->logits, err)); /* ln_sample overwrote them */
    r->drawn_logprob = (double)x->logits[r->drawn] - lse;
    return LN_OK;
}

/* The log-probability of token t + 1 of a prompt. */
static ln_status score_token(ln_eng *e, const ln_scratch *x, ln_req *r, int64_t row, int64_t t,
                             ln_error *err) {
    double lse;
    LN_TRY(ln_run_logits(e->run, row, x->logits, err));
    LN_TRY(list_top(r, x->logits, e->run->spec->V, r->prompt_top + (t + 1) * r->opt.n_top, &lse, err));
    r->prompt_logprobs[t + 1] = (double)x->logits[r->all.data[t + 1]] - lse;
    return LN_OK;
}

static void draw_job(void *user, int thread, int n_threads) {
    ln_sched *s = user;
    (void)n_threads;
    for (int i; (i = atomic_fetch_add(&s->next_draw, 1)) < s->n_draws;) {
        ln_draw *d = &s->draws[i];
        ln_req *r = d->r;
        if (d->t < 0) {
            ln_error err;
            const ln_status st = draw_token(s->e, &s->scratch[thread], r, d->row, &err);
            if (st != LN_OK) r->fault = err;
        } else {
            d->failed = score_token(s->e, &s->scratch[thread], r, d->row, d->t, NULL) != LN_OK;
        }
    }
}

void ln_sched_draw(ln_sched *s) {
    if (s->n_draws == 0) return;
    const ln_draw *d = &s->draws[0];
    if (s->n_draws == 1 && d->t < 0 && !d->r->opt.logprobs &&
        ln_sample_is_plain(&d->r->how, (int64_t)d->r->all.n - d->r->opt.n_ids)) {
        /* an argmax, whose bits do not depend on FTZ; a NaN is left to the job, which has the message */
        const int32_t forced = ln_answer_forced(&d->r->answer);
        d->r->drawn_logprob = NAN;
        d->r->drawn = forced >= 0 ? forced : find_plain(s->e, d->r, d->row);
        if (d->r->drawn >= 0) return;
    }
    atomic_store(&s->next_draw, 0);
    ln_pool_run(ln_run_pool(&s->e->run->opt), LN_MIN(s->n_scratch, s->n_draws), draw_job, s);
    /* rows of one prompt may have failed on several threads: the first tells why */
    for (int i = 0; i < s->n_draws; i++) {
        ln_draw *f = &s->draws[i];
        if (f->failed && f->r->fault.code == LN_OK)
            (void)score_token(s->e, &s->scratch[0], f->r, f->row, f->t, &f->r->fault);
    }
}
