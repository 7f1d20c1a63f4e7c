/* Reads the rows of logits of one step, spread over all threads: sampling, log-probabilities, on_row. A row's
 * result is a function of the row and its request alone, so that it does not depend on the thread.
 *
 * A device with a sampler chooses tokens itself. What depends on the history of a request (changes of logits,
 * the mask of a grammar) is prepared on all threads while the device still computes the step. Rows whose
 * choice is a plain argmax, whose bits do not depend on FTZ, are left to the device too. Everything else runs
 * inside a job of the thread pool, also on one thread, so that FTZ and DAZ are always set. */
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

/* Samples the next token of a request. */
static ln_status sample_token(ln_eng *e, const ln_scratch *x, const ln_sample_job *d, ln_error *err) {
    ln_req *r = d->r;
    const int64_t row = d->row;
    const int64_t V = e->run->spec->V, n = (int64_t)r->all.n, n_generated = n - r->opt.n_ids;
    const bool binds = ln_constraint_binds(&r->constraint, &r->answer);
    const bool plain = ln_sample_is_plain(&r->how, n_generated) && !binds;
    double lse = 0;
    r->sampled = d->forced;
    r->sampled_logprob = NAN;
    const bool forced = r->sampled >= 0;
    LN_TRY(ln_run_logits(e->run, row, x->logits, err));
    if (r->opt.logprobs) LN_TRY(list_top(r, x->logits, V, r->sampled_top, &lse, err));
    if (!forced && binds) LN_TRY(ln_constraint_apply(&r->constraint, &r->answer, x->logits, V, err));
    if (!forced)
        LN_TRY(ln_sample(x->sampler, x->logits, &r->how, r->seed, r->all.data, n, n_generated,
                         r->answer.end_ids, r->answer.n_end_ids, &r->sampled, err));
    if (!r->opt.logprobs) return LN_OK;
    if (!forced && !plain) LN_TRY(ln_run_logits(e->run, row, x->logits, err)); /* ln_sample overwrote them */
    r->sampled_logprob = (double)x->logits[r->sampled] - lse;
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

/* Whether the next token of the request is to be sampled after these rows. */
static bool samples_token(const ln_sample_job *d) {
    if (d->kind == LN_SAMPLE_TOKEN) return true;
    return d->kind == LN_SAMPLE_ROWS && ln_req_generates(d->r) && d->t + d->n >= d->r->opt.n_ids;
}

/* Hands rows to on_row. If they are the last ones of the prompt, also samples the token after it. */
static ln_status hand_over(ln_eng *e, const ln_scratch *x, const ln_sample_job *d, ln_error *err) {
    ln_req *r = d->r;
    for (int64_t i = 0; i < d->n; i++) {
        LN_TRY(LN_CALLBACK(r->opt.on_row(r->opt.row_user, d->t + i, d->row + i, x, err)));
        atomic_fetch_sub(&r->n_allowed, 1);
    }
    if (!samples_token(d)) return LN_OK;
    const ln_sample_job last = {.r = r, .row = d->row + d->n - 1, .forced = d->forced};
    return sample_token(e, x, &last, err);
}

static void run_jobs(void *user, int thread, int n_threads) {
    ln_sched *s = user;
    const ln_scratch *x = &s->scratch[thread];
    (void)n_threads;
    for (int i; (i = atomic_fetch_add(&s->next_job, 1)) < s->n_jobs;) {
        ln_sample_job *d = &s->jobs[i];
        ln_error err;
        if (d->done) continue;
        if (d->kind == LN_SAMPLE_SCORE) {
            d->failed = score_token(s->e, x, d->r, d->row, d->t, NULL) != LN_OK;
            continue;
        }
        const ln_status st =
            d->kind == LN_SAMPLE_ROWS ? hand_over(s->e, x, d, &err) : sample_token(s->e, x, d, &err);
        if (st != LN_OK) d->r->fault = err;
        d->r->fault.code = st; /* LN_ECANCELLED has no message */
    }
}

/* Whether the next token is the argmax of its row, unless sampling excludes it. */
static bool is_argmax(const ln_sample_job *d) {
    return d->kind == LN_SAMPLE_TOKEN && d->forced < 0 && !d->r->opt.logprobs &&
           !ln_constraint_binds(&d->r->constraint, &d->r->answer) &&
           ln_sample_is_plain(&d->r->how, (int64_t)d->r->all.n - d->r->opt.n_ids);
}
static bool is_excluded(const ln_req *r, int32_t token) {
    for (int i = 0; r->how.ignore_eos && i < r->answer.n_end_ids; i++)
        if (r->answer.end_ids[i] == token) return true;
    return false;
}
static void choose(ln_sample_job *d, int32_t token) {
    d->done = true;
    d->r->sampled = token;
    d->r->sampled_logprob = NAN;
}
enum { MOST_AT_ONCE = 64 };
/* Has the device find plain argmaxes, in runs of consecutive rows. */
static void find_argmaxes(ln_sched *s) {
    for (int i = 0, n; i < s->n_jobs; i += LN_MAX(n, 1)) {
        ln_sample_job *d = &s->jobs[i];
        int32_t ids[MOST_AT_ONCE];
        for (n = 0; n < MOST_AT_ONCE && i + n < s->n_jobs && d[n].row == d->row + n && is_argmax(&d[n]);) n++;
        if (n > 0) ln_run_argmax(s->e->run, d->row, n, ids);
        for (int k = 0; k < n; k++)
            if (ids[k] >= 0 && !is_excluded(d[k].r, ids[k])) choose(&d[k], ids[k]);
    }
}
/* ---- on the device ---- */

/* Whether the device may choose the token, with the edits that ln_edits_make writes. */
static bool suits_device(const ln_sample_job *d) {
    return d->kind == LN_SAMPLE_TOKEN && !d->done && !is_argmax(d) && d->r->opt.n_top <= LN_ROW_TOP;
}
static int64_t n_generated_of(const ln_req *r) { return (int64_t)r->all.n - r->opt.n_ids; }

enum { LEAST_EDITS = 4096 }; /* allocated at once, so that most engines never need more */

/* Lists the jobs that the device may do, with space for their edits; none if memory for them is short. */
static void list_device_rows(ln_sched *s) {
    size_t n_edits = 0;
    s->n_rows = 0;
    for (int i = 0; i < s->n_jobs; i++) {
        ln_sample_job *d = &s->jobs[i];
        const ln_req *r = d->r;
        if (!suits_device(d)) continue;
        d->edits_at = (int64_t)n_edits;
        if (d->forced < 0)
            n_edits += (size_t)ln_edits_most(&r->how, s->e->run->spec->V, (int64_t)r->all.n,
                                             n_generated_of(r), r->answer.n_end_ids);
        s->row_jobs[s->n_rows++] = i;
    }
    void *p = s->edits;
    n_edits = LN_MAX(n_edits, (size_t)LEAST_EDITS);
    if (ln_grow(&p, &s->cap_edits, n_edits, sizeof *s->edits, NULL) != LN_OK) s->n_rows = 0;
    s->edits = p;
}

/* Describes how the device samples the token of a job. False: the host does it. */
static bool describe(ln_sched *s, ln_sampler *sampler, ln_sample_job *d, ln_row_sampling *out) {
    ln_req *r = d->r;
    const ln_sampling *h = &r->how;
    const float temperature = (float)h->temperature;
    *out = (ln_row_sampling){.row = d->row,
                             .token = d->forced,
                             .temperature = temperature > 0 && h->top_k != 1 ? temperature : 0,
                             .top_k = (int32_t)h->top_k,
                             .repeat_penalty = (float)h->repeat_penalty,
                             .top_p = h->top_p,
                             .min_p = h->min_p,
                             .seed = r->seed,
                             .position = (uint64_t)r->all.n,
                             .edits = s->edits + d->edits_at};
    if (r->opt.logprobs)
        out->n_top = r->opt.n_top, out->top = r->sampled_top, out->logprob = &r->sampled_logprob;
    d->n_edits = 0;
    if (d->forced >= 0) return true;
    if (ln_constraint_binds(&r->constraint, &r->answer) &&
        ln_constraint_mask(&r->constraint, &r->answer, s->e->run->spec->V, &out->mask, NULL) != LN_OK)
        return false;
    d->n_edits = ln_edits_make(sampler, h, r->all.data, (int64_t)r->all.n, n_generated_of(r),
                               r->answer.end_ids, r->answer.n_end_ids, s->edits + d->edits_at);
    out->n_edits = (int32_t)d->n_edits;
    return d->n_edits >= 0;
}
static void describe_jobs(void *user, int thread, int n_threads) {
    ln_sched *s = user;
    (void)n_threads;
    for (int i; (i = atomic_fetch_add(&s->next_job, 1)) < s->n_rows;) {
        ln_sample_job *d = &s->jobs[s->row_jobs[i]];
        if (!describe(s, s->scratch[thread].sampler, d, &s->rows[i])) d->n_edits = -1;
    }
}

void ln_sched_sample_on_device(ln_sched *s) {
    for (int i = 0; i < s->n_jobs; i++) {
        ln_sample_job *d = &s->jobs[i];
        d->done = false;
        d->forced = samples_token(d) ? ln_constraint_forced(&d->r->constraint, &d->r->answer)
                                     : -1; /* once: it advances */
        if (d->kind == LN_SAMPLE_TOKEN && d->forced >= 0 && !d->r->opt.logprobs) choose(d, d->forced);
    }
    if (!s->e->run->ops->sample) return;
    list_device_rows(s);
    if (s->n_rows == 0) return;
    atomic_store(&s->next_job, 0);
    ln_pool_run(ln_run_pool(&s->e->run->opt), LN_MIN(s->n_scratch, s->n_rows), describe_jobs, s);
    int n = 0;
    for (int i = 0; i < s->n_rows; i++)
        if (s->jobs[s->row_jobs[i]].n_edits >= 0) {
            s->row_jobs[n] = s->row_jobs[i];
            s->rows[n++] = s->rows[i];
        }
    if (n > 0) ln_run_sample(s->e->run, s->rows, n, s->row_ids);
    for (int i = 0; i < n; i++) {
        ln_sample_job *d = &s->jobs[s->row_jobs[i]];
        if (s->row_ids[i] < 0) continue;
        d->done = true;
        d->r->sampled = s->row_ids[i];
        if (!d->r->opt.logprobs) d->r->sampled_logprob = NAN;
    }
}

/* ---- after the step ---- */

void ln_sched_sample(ln_sched *s) {
    int left = 0;
    find_argmaxes(s);
    for (int i = 0; i < s->n_jobs; i++) left += !s->jobs[i].done;
    if (left == 0) return;
    atomic_store(&s->next_job, 0);
    ln_pool_run(ln_run_pool(&s->e->run->opt), LN_MIN(s->n_scratch, left), run_jobs, s);
    /* rows of one prompt may have failed on several threads: the first tells why */
    for (int i = 0; i < s->n_jobs; i++) {
        ln_sample_job *f = &s->jobs[i];
        if (f->failed && f->r->fault.code == LN_OK)
            (void)score_token(s->e, &s->scratch[0], f->r, f->row, f->t, &f->r->fault);
    }
}
