/* The record of a request: what the token's holder appends, and the result that is made of it. */
#include "engine.h"
#include "scheduler.h"

#include <math.h>
#include <string.h>

static ln_status add_event(ln_req *r, ln_event_kind kind, size_t at, size_t n, ln_error *err) {
    void *p = r->events;
    LN_TRY(ln_grow(&p, &r->cap_events, r->n_events + 1, sizeof *r->events, err));
    r->events = p;
    r->events[r->n_events++] = (ln_req_event){kind, at, n};
    return LN_OK;
}

/* Appends piece[from .. to) and its event. After an error the text may have it and the events not. */
static ln_status add_text(ln_req *r, ln_event_kind kind, ln_str *all, const ln_str *piece, size_t from,
                          size_t to, ln_error *err) {
    const size_t at = all->len;
    if (to == from) return LN_OK;
    ln_str_add(all, piece->data + from, to - from);
    if (all->failed) return LN_OOM(err, "generated text");
    return add_event(r, kind, at, to - from, err);
}

static ln_status add_pieces(ln_req *r, ln_error *err) {
    const ln_answer *a = &r->answer;
    size_t at = 0;
    LN_TRY(add_text(r, LN_EVENT_REASONING, &r->reasoning, &a->reasoning, 0, a->reasoning.len, err));
    for (size_t i = 0; i < a->n_calls; i++) {
        const ln_answer_call *c = &a->new_calls[i];
        LN_TRY(add_text(r, LN_EVENT_TEXT, &r->text, &a->text, at, c->at, err));
        const bool whole = c->kind == LN_EVENT_TOOL_CALL;
        LN_TRY(add_text(r, c->kind, whole ? &r->calls : &r->call_pieces, &a->found, c->name, c->end, err));
        r->n_calls += whole;
        at = c->at;
    }
    return add_text(r, LN_EVENT_TEXT, &r->text, &a->text, at, a->text.len, err);
}

/* Appends the sampled token. Everything is allocated before anything is appended. */
static ln_status add_token(ln_req *r, ln_error *err) {
    const size_t i = r->all.n - (size_t)r->opt.n_ids, n_top = (size_t)r->opt.n_top;
    void *p = r->logprobs, *q = r->top;
    if (r->opt.logprobs) {
        LN_TRY(ln_grow(&p, &r->cap_logprobs, i + 1, sizeof *r->logprobs, err));
        r->logprobs = p;
        LN_TRY(ln_grow(&q, &r->cap_top, (i + 1) * n_top + 1, sizeof *r->top, err));
        r->top = q;
        r->logprobs[i] = r->sampled_logprob;
        if (n_top > 0) memcpy(r->top + i * n_top, r->sampled_top, n_top * sizeof *r->top);
    }
    LN_TRY(add_event(r, LN_EVENT_TOKEN, i, 1, err));
    const ln_status st = ln_ids_add(&r->all, r->sampled, err);
    if (st != LN_OK) r->n_events--;
    return st;
}

ln_status ln_req_take(ln_req *r, bool *done, ln_finish *how, ln_error *err) {
    ln_sched *s = r->e->sched;
    ln_status st = LN_OK;
    int stop_text;
    *done = true;
    *how = LN_FINISH_STOP;
    const bool ends = ln_answer_ends_at(&r->answer, r->sampled, &stop_text);
    const ln_constraint_before before = ln_constraint_look(&r->answer);
    LN_TRY(ends ? ln_answer_end(&r->answer, r->sampled, err) : ln_answer_push(&r->answer, r->sampled, err));
    if (!ends && ln_constrains(&r->constraint))
        LN_TRY(ln_constraint_take(&r->constraint, &r->answer, before, r->sampled, err));
    const bool over = r->answer.stop.hit || r->answer.calls.ended || ln_constraint_done(&r->constraint);
    pthread_mutex_lock(&s->lock);
    if (ends) {
        r->stop_id = r->sampled;
        r->stop_text = stop_text;
    } else {
        LN_GO(add_token(r, err));
        s->stats.generated_tokens++;
        LN_GO(add_pieces(r, err));
        const int64_t n = (int64_t)r->all.n - r->opt.n_ids;
        if (ln_req_cancelled(r)) *how = LN_FINISH_CANCELLED;
        else if (n >= r->how.n_max || (int64_t)r->all.n > r->e->run->opt.n_ctx) *how = LN_FINISH_LENGTH;
        else *done = over;
        if (over) *how = LN_FINISH_STOP;
        if (!*done) ln_req_changed(r);
    }
out:
    pthread_mutex_unlock(&s->lock);
    return st;
}

void ln_req_finish(ln_req *r, ln_finish how, const ln_error *error) {
    ln_error fault;
    r->n_visible = r->all.n - (size_t)r->opt.n_ids;
    if (!error && r->opt.how) {
        size_t n = r->n_visible;
        if (add_pieces(r, &fault) != LN_OK ||
            ln_answer_visible(&r->answer, r->all.data + r->opt.n_ids, &n, &fault) != LN_OK)
            error = &fault;
        else r->n_visible = n;
        if (r->answer.stop.hit) {
            how = LN_FINISH_STOP;
            r->stop_id = -1;
            r->stop_text = (int)r->answer.stop.which;
        }
    }
    r->finish = error ? LN_FINISH_CANCELLED : how;
    if (r->opt.how) r->metrics.reasoning_tokens = r->answer.n_reasoning;
    if (error) r->error = *error;
    r->state = LN_REQ_DONE;
    ln_req_changed(r);
}

/* ---- results ---- */

static void fill_metrics(const ln_req *r, ln_metrics *m) {
    *m = r->metrics;
    m->prompt_tokens = r->opt.n_ids;
    m->generated_tokens = (int64_t)r->all.n - r->opt.n_ids;
    m->load_seconds = r->e->load_seconds;
    m->total_seconds = m->prefill_seconds + m->decode_seconds;
    if (m->prefill_seconds > 0)
        m->prefill_tok_s = (double)(m->prompt_tokens - m->cached_tokens) / m->prefill_seconds;
    /* the first token comes from the prefill's logits, without a decode step */
    if (m->decode_seconds > 0 && m->generated_tokens > 1)
        m->decode_tok_s = (double)(m->generated_tokens - 1) / m->decode_seconds;
}

/* A copy of n items, of at least one byte; NULL when the allocation fails. */
static void *copy_of(const void *from, size_t n, size_t item) {
    void *to = ln_alloc(n * item + 1);
    if (to && n > 0) memcpy(to, from, n * item);
    return to;
}

/* The log-probabilities of the prompt's tokens, as far as they are known. */
static bool fill_prompt(const ln_req *r, ln_result *out) {
    const size_t n = (size_t)r->opt.n_ids, n_top = (size_t)r->opt.n_top;
    const size_t known = r->n_read > 0 ? LN_MIN((size_t)r->n_read + 1, n) : 0;
    out->prompt_logprobs = ln_zalloc(n + 1, sizeof *out->prompt_logprobs);
    out->prompt_top = ln_zalloc(n * n_top + 1, sizeof *out->prompt_top);
    if (!out->prompt_logprobs || !out->prompt_top) return false;
    for (size_t i = 0; i < n; i++) {
        const bool have = i > 0 && i < known;
        out->prompt_logprobs[i] = have ? r->prompt_logprobs[i] : NAN;
        for (size_t k = 0; k < n_top; k++)
            out->prompt_top[i * n_top + k] =
                have ? r->prompt_top[i * n_top + k] : (ln_top){.id = -1, .logprob = NAN};
    }
    return true;
}

/* Copies the calls of tools into one allocation: the array, then the texts. */
static bool fill_calls(const ln_req *r, ln_result *out) {
    const size_t bytes = r->n_calls * sizeof *out->tool_calls;
    if (r->n_calls == 0) return true;
    out->tool_calls = ln_alloc(bytes + r->calls.len);
    if (!out->tool_calls) return false;
    const char *at = memcpy((char *)out->tool_calls + bytes, r->calls.data, r->calls.len);
    for (size_t i = 0; i < r->n_calls; i++) {
        ln_tool_call *c = &out->tool_calls[i];
        c->name = at;
        c->arguments = at + strlen(at) + 1;
        c->arguments_bytes = strlen(c->arguments);
        at = c->arguments + c->arguments_bytes + 1;
    }
    out->n_tool_calls = r->n_calls;
    return true;
}

/* Copies a call that the end of the text has cut, like fill_calls. */
static bool fill_cut(const ln_req *r, ln_result *out) {
    const ln_str *cut = &r->answer.cut;
    if (!r->answer.has_cut || r->state != LN_REQ_DONE) return true;
    out->cut_tool_call = ln_alloc(sizeof *out->cut_tool_call + cut->len + 1);
    if (!out->cut_tool_call) return false;
    char *text = (char *)(out->cut_tool_call + 1);
    memcpy(text, cut->data, cut->len);
    text[cut->len] = '\0';
    const size_t name = strlen(text) + 1;
    *out->cut_tool_call = (ln_tool_call){text, text + name, cut->len - name};
    return true;
}

/* Copies the record into *out, which then owns the copies; also after an error. */
static bool fill_result(const ln_req *r, ln_result *out) {
    const size_t n = r->state == LN_REQ_DONE ? r->n_visible : r->all.n - (size_t)r->opt.n_ids;
    out->n_prompt_ids = (size_t)r->opt.n_ids;
    out->n_ids = n;
    out->text_bytes = r->text.len;
    out->reasoning_bytes = r->reasoning.len;
    out->finish = r->state == LN_REQ_DONE ? r->finish : LN_FINISH_CANCELLED;
    out->seed = r->seed;
    out->stop_id = r->stop_id;
    out->stop_text = r->stop_text;
    out->n_top = (size_t)r->opt.n_top;
    out->prompt_ids = copy_of(r->all.data, out->n_prompt_ids, sizeof *out->prompt_ids);
    out->ids = copy_of(r->all.data + r->opt.n_ids, n, sizeof *out->ids);
    out->text = ln_strndup(r->text.data ? r->text.data : "", r->text.len);
    out->reasoning = ln_strndup(r->reasoning.data ? r->reasoning.data : "", r->reasoning.len);
    if (!out->prompt_ids || !out->ids || !out->text || !out->reasoning || !fill_calls(r, out) ||
        !fill_cut(r, out))
        return false;
    out->n_malformed_calls = r->answer.calls.n_malformed;
    if (!r->opt.logprobs) return true;
    out->logprobs = copy_of(r->logprobs, n, sizeof *out->logprobs);
    out->top = copy_of(r->top, n * out->n_top, sizeof *out->top);
    return out->logprobs && out->top && (!r->opt.prompt_logprobs || fill_prompt(r, out));
}

static void empty(ln_result *r) {
    ln_free(r->prompt_ids);
    ln_free(r->ids);
    ln_free(r->text);
    ln_free(r->reasoning);
    ln_free(r->logprobs);
    ln_free(r->top);
    ln_free(r->prompt_logprobs);
    ln_free(r->prompt_top);
    ln_free(r->tool_calls);
    ln_free(r->cut_tool_call);
    *r = (ln_result){.size = sizeof *r};
}

ln_status ln_req_result(ln_req *r, ln_result *out, ln_error *err) {
    ln_sched *s = r->e->sched;
    *out = (ln_result){.size = sizeof *out};
    pthread_mutex_lock(&s->lock);
    const ln_error error = r->error;
    const bool any = error.code == LN_OK || (int64_t)r->all.n > r->opt.n_ids;
    const bool filled = any && fill_result(r, out);
    if (any && !filled) empty(out);
    fill_metrics(r, &out->metrics);
    pthread_mutex_unlock(&s->lock);
    out->metrics.active_bytes = ln_memory_resident();
    out->metrics.peak_bytes = ln_memory_peak();
    if (error.code != LN_OK) return ln_fail(err, error.code, "%s", error.message);
    return filled ? LN_OK : LN_OOM(err, "the result");
}
