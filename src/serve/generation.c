/* Requests that generate: a body becomes choices, choices wait, run and end.
 *
 * A choice is one ln_request. Its states: opened by the worker (deferred: checked, not queued), started by
 * the queue, done once its last event was read. A started choice is never closed before it is done, because
 * closing a running request waits for a step; it is cancelled, and closed when its last event comes. */
#include "../base/json_write.h"
#include "../wire/body.h"
#include "dialect.h"

#include <stdio.h>
#include <string.h>

/* ---- the worker's part ---- */

/* Called by the engine's thread, and by calls on the request. */
static void on_ready(void *user) { choice_wake(user); }

void choice_wake(choice *c) {
    completion_queue *m = &c->x->s->completions;
    if (atomic_exchange(&c->is_ready, true)) return;
    c->next_ready = atomic_load_explicit(&m->ready, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&m->ready, &c->next_ready, c, memory_order_release,
                                                  memory_order_relaxed)) {
    }
    completion_queue_wake(m);
}

static ln_status open_choice(request_context *x, size_t i) {
    ln_prompt prompt;
    ln_sampling how = {.size = sizeof how};
    ln_request_options o = ln_request_options_default();
    choice *c = &x->choices[i];
    *c = (choice){.x = x, .index = i, .result.size = sizeof c->result, .tokens.size = sizeof c->tokens};
    wire_choice(&x->q, i, &prompt, &how, &o);
    o.defer = true;
    o.on_ready = on_ready;
    o.user = c;
    const ln_status st = ln_request_open(&c->request, x->s->engine, &prompt, &o, &x->why.error);
    if (st == LN_OK) return LN_OK;
    (void)wire_fail_request(&x->why, &x->q, st);
    return model_list_check(x, x->q.model, st, &x->why);
}

static ln_status open_all(request_context *x) {
    const size_t n = wire_n_choices(&x->q);
    if (n > SERVE_MOST_CHOICES)
        return wire_refuse(&x->why, x->q.n_prompts > 1 ? "prompt" : "n",
                           "expected at most %d choices, found %zu prompts x %d", SERVE_MOST_CHOICES,
                           x->q.n_prompts, x->q.n);
    if (n > (size_t)(x->s->o->max_queue + x->s->plan.n_parallel)) /* it could never be taken */
        return wire_refuse(&x->why, x->q.n_prompts > 1 ? "prompt" : "n",
                           "the server runs and queues at most %d choices, found %zu prompts x %d",
                           x->s->o->max_queue + x->s->plan.n_parallel, x->q.n_prompts, x->q.n);
    x->choices = ln_zalloc(n, sizeof *x->choices);
    if (!x->choices) return wire_fail(&x->why, LN_OOM(&x->why.error, "a request"));
    for (x->n_choices = 0; x->n_choices < n; x->n_choices++) LN_TRY(open_choice(x, x->n_choices));
    return LN_OK;
}

/* Translates the body of another dialect of the API. */
static ln_status translate(request_context *x, ln_str *out) {
    json_t *body = NULL, *to = json_object();
    char found[80];
    ln_status st = to ? body_load(&body, x->body.data ? x->body.data : "", x->body.len, &x->why)
                      : wire_fail(&x->why, LN_OOM(&x->why.error, "a request"));
    if (st == LN_OK && !json_is_object(body))
        st = wire_refuse(&x->why, "", "expected the body to be an object, found %s",
                         ln_json_text(body, found));
    else if (st == LN_OK) st = x->dialect->translate(x, body, to);
    if (st == LN_OK) ln_str_json_value(out, to);
    if (st == LN_OK && out->failed) st = wire_fail(&x->why, LN_OOM(&x->why.error, "a request"));
    json_decref(body);
    json_decref(to);
    return st;
}

/* Whether a field begins with `pattern`, in which [] stands for an index. *rest is what follows, *index the
 * index and *n its bytes. */
static bool begins_with(const char *param, const char *pattern, const char **rest, const char **index,
                        size_t *n) {
    for (; *pattern; pattern++, param++) {
        if (*pattern != *param) return false;
        if (pattern[0] != '[' || pattern[1] != ']') continue;
        *index = param + 1;
        *n = strspn(param + 1, "0123456789");
        param += *n;
    }
    *rest = param;
    return *param == '\0' || *param == '[' || *param == '.';
}

/* Names fields as the client knows them, in the message too, which begins with the field. */
static void rename_field(request_context *x) {
    const char *rest, *index = "";
    char old[sizeof x->why.param], message[sizeof x->why.error.message];
    size_t n = 0;
    const char *const *names = x->dialect->names;
    while (*names && !begins_with(x->why.param, names[0], &rest, &index, &n)) names += 2;
    if (!*names) return;
    (void)snprintf(old, sizeof old, "%s", x->why.param);
    const size_t head = strcspn(names[1], "[]"), k = strlen(old);
    const char *tail = names[1] + head + (names[1][head] == '[' && names[1][head + 1] == ']' ? 2 : 0);
    rest = old + (rest - x->why.param), index = n > 0 ? old + (index - x->why.param) : "";
    if (tail > names[1] + head)
        (void)snprintf(x->why.param, sizeof x->why.param, "%.*s[%.*s]%s%s", (int)head, names[1], (int)n,
                       index, tail, rest);
    else (void)snprintf(x->why.param, sizeof x->why.param, "%s%s", names[1], rest);
    (void)snprintf(message, sizeof message, "%s", x->why.error.message);
    if (strncmp(message, old, k) == 0 && message[k] == ':')
        (void)ln_fail(&x->why.error, x->why.error.code, "%s%s", x->why.param, message + k);
}

bool generation_read(request_context *x, wire_kind kind) {
    ln_str text = {0};
    const ln_str *body = x->dialect ? &text : &x->body;
    x->has_request = true;
    if (!x->dialect || translate(x, &text) == LN_OK) { /* a translation names fields as the client does */
        if (x->raw) kind = WIRE_COMPLETION;
        if (x->out.len == 0)
            (void)wire_request_open(&x->q, &x->models->target, kind, body->data ? body->data : "", body->len,
                                    &x->why);
        if (x->dialect && x->why.http) rename_field(x);
    }
    ln_str_free(&text);
    if (x->note[0]) (void)snprintf(x->q.note, sizeof x->q.note, "%s", x->note);
    return x->why.http == 0 && x->out.len == 0;
}

static void prepare(work *w, wire_kind kind) {
    request_context *x = (request_context *)(void *)w;
    if (!generation_read(x, kind)) return;
    if (open_all(x) == LN_OK) wire_request_trim(&x->q);
    else if (x->dialect) rename_field(x);
}

static void prepare_chat(work *w) { prepare(w, WIRE_CHAT); }
static void prepare_completion(work *w) { prepare(w, WIRE_COMPLETION); }

/* ---- admission ---- */

static void prepared(work *w) {
    request_context *x = request_of(w);
    if (!x) return;
    if (x->cut) {
        generation_cancel(x);
        request_reject(x, 503, "shutting_down", "the server is about to stop");
        return;
    }
    if (x->why.http == 0 && x->out.len > 0) { /* it was answered by the translation */
        request_answer_now(x);
        return;
    }
    if (x->why.http == 0) {
        const int full = fair_check(x->s, x->client, x->n_choices);
        if (full) {
            x->s->m.rejected++;
            generation_cancel(x);
            request_reject(x, full, "overloaded",
                           full == 429 ? "too many requests of this key wait; try again"
                                       : "too many requests wait; try again");
            return;
        }
    } else {
        generation_cancel(x);
        request_reply_error(x);
        return;
    }
    x->answer = wire_answer_of(&x->q);
    x->answer.timings = true;
    if (x->q.stream && !stream_begin(x)) {
        generation_cancel(x);
        request_reject(x, 503, "out_of_memory", "out of memory for an answer");
        return;
    }
    fair_add(x);
    fair_pump(x->s);
}

static void submit(request_context *x, void (*run)(work *w)) {
    const int full = fair_check(x->s, x->client, 1); /* before the work of reading the body */
    if (full) {
        x->s->m.rejected++;
        request_reject(x, full, "overloaded", "too many requests wait; try again");
        return;
    }
    request_work(x, &x->s->preparing, run, prepared);
}

void handle_chat(request_context *x) { submit(x, prepare_chat); }
void handle_completion(request_context *x) { submit(x, prepare_completion); }

void handle_messages(request_context *x) {
    x->dialect = &dialect_messages;
    submit(x, prepare_chat);
}

void handle_responses(request_context *x) {
    x->dialect = &dialect_responses;
    submit(x, prepare_chat);
}

void handle_ollama_chat(request_context *x) {
    x->dialect = &dialect_ollama;
    submit(x, prepare_chat);
}

void handle_ollama_generate(request_context *x) {
    x->dialect = &dialect_ollama_generate;
    submit(x, prepare_chat);
}

/* ---- ends ---- */

static void count_result(request_context *x, const choice *c) {
    const ln_metrics *m = &c->result.metrics;
    if (c->index % (size_t)x->q.n == 0) {
        x->prompt_tokens += m->prompt_tokens;
        x->cached_tokens += m->cached_tokens;
    }
    x->generated_tokens += m->generated_tokens;
    fair_charge(x->client, (double)(m->prompt_tokens - m->cached_tokens) - x->weight);
    metric_observe(&x->s->m.queue, m->queue_seconds);
}

/* The answer to a request that does not stream. */
static void reply(request_context *x) {
    ln_str s = {0};
    ln_account *outer = ln_account_enter(&x->texts);
    ln_result *results = request_results(x);
    if (results && x->dialect) x->dialect->put_answer(&s, x);
    else if (results) wire_put_answer(&s, &x->q, &x->answer, results);
    ln_free(results);
    if (s.failed) ln_str_free(&s);
    ln_account_leave(outer);
    if (!results || !s.data) request_reject(x, 503, "out_of_memory", "out of memory for an answer");
    else request_give(x, &s);
}

static void end_request(request_context *x) {
    if (!x->c || x->ended) {
        request_release(x);
    } else if (x->streaming) {
        if (x->why.http) stream_error(x);
        else stream_end(x);
    } else if (x->why.http) {
        request_reply_error(x);
    } else {
        reply(x);
    }
}

static void close_choice(choice *c) {
    request_context *x = c->x;
    ln_request_close(&c->request);
    x->n_open--;
}

static void end_choice(choice *c) {
    request_context *x = c->x;
    server *s = x->s;
    c->done = true;
    close_choice(c);
    x->n_done++;
    x->client->n_running--;
    s->n_running--;
    if (x->n_done == x->n_started && (x->why.http || x->ended)) { /* nothing more will run of it */
        for (size_t i = x->n_started; i < x->n_choices; i++)
            if (x->choices[i].request) close_choice(&x->choices[i]);
        fair_remove(x);
    }
    fair_pump(s);
    if (x->n_open == 0) end_request(x);
}

static void cancel_others(request_context *x) {
    for (size_t i = 0; i < x->n_choices; i++) {
        choice *c = &x->choices[i];
        if (c->started && !c->done) ln_request_cancel(c->request);
    }
}

void generation_cancel(request_context *x) {
    fair_remove(x);
    cancel_others(x);
    for (size_t i = x->n_started; i < x->n_choices; i++)
        if (x->choices[i].request) close_choice(&x->choices[i]);
}

void generation_cut(request_context *x) {
    if (x->ended || x->cut) return;
    x->cut = true;
    if (x->n_pins > 0) {              /* `prepared` or request_answer refuses it */
        atomic_store(&x->left, true); /* a call of the engine ends with its next result */
        return;
    }
    if (x->why.http == 0) {
        x->why = (wire_error){.http = 503, .type = "unavailable_error", .code = "shutting_down"};
        (void)ln_fail(&x->why.error, LN_ECANCELLED, "the server is about to stop");
    }
    generation_cancel(x);
    if (x->n_open == 0 && x->has_request) end_request(x);
}

/* Frees what no thread can reach any more: every choice is closed and taken from the completion queue. */
void generation_free(request_context *x) {
    for (size_t i = 0; i < x->n_choices; i++) {
        choice *c = &x->choices[i];
        ln_result_free(&c->result);
        ln_result_free(&c->tokens);
    }
    ln_free(x->choices);
    x->choices = NULL;
    if (x->has_request) wire_request_close(&x->q);
    x->has_request = false;
}

/* ---- events ---- */

static void finish(choice *c, const ln_event *ev) {
    request_context *x = c->x;
    ln_status st = ev->status;
    if (st == LN_OK) st = ln_request_result(c->request, &c->result, &x->why.error);
    else
        (void)ln_fail(&x->why.error, st, "%.*s", (int)LN_MIN(ev->bytes, (size_t)1000),
                      ev->text ? ev->text : "");
    x->s->m.finishes[st == LN_OK ? ev->finish : 3]++;
    if (st == LN_EDEVICE || st == LN_ECHANGED || (st == LN_EUSAGE && ev->status == st)) x->s->lost = true;
    if (st == LN_OK && ev->finish == LN_FINISH_CANCELLED && !x->ended && x->why.http == 0) {
        x->why = (wire_error){.http = 503, .type = "unavailable_error", .code = "shutting_down"};
        (void)ln_fail(&x->why.error, LN_ECANCELLED, "the server is about to stop");
    } else if (st != LN_OK) {
        if (x->why.http == 0) (void)wire_fail_request(&x->why, &x->q, st);
        cancel_others(x);
    } else {
        count_result(x, c);
        x->finish = wire_finish_of(&c->result);
        if (x->streaming && !x->ended) stream_finish(c);
    }
    end_choice(c);
}

static void note_token(choice *c) {
    request_context *x = c->x;
    server *s = x->s;
    const double now = ln_now();
    s->m.generated_tokens++;
    fair_charge(x->client, 1);
    if (x->first == 0) {
        x->first = now;
        metric_observe(&s->m.first_token, now - x->began);
    } else if (c->last_token > 0) {
        metric_observe(&s->m.between_tokens, now - c->last_token);
    }
    c->last_token = now;
}

/* Reads the events of a choice until there are none, or the reader of its stream has enough to take. */
static void read_events(choice *c) {
    request_context *x = c->x;
    for (;;) {
        ln_event ev = {.size = sizeof ev};
        ln_error err;
        if (x->streaming && x->c && !x->ended && conn_unsent(x->c) > SERVE_MOST_OUTPUT) {
            c->last_token = 0; /* the gap that follows is the reader's */
            return;
        }
        const ln_status st = ln_request_next(c->request, 0, &ev, &err);
        if (st != LN_OK) { /* out of memory: the event is still the next, and the request is ended */
            ev = (ln_event){
                .kind = LN_EVENT_FINISH, .status = st, .text = err.message, .bytes = strlen(err.message)};
            ln_request_cancel(c->request);
        }
        if (ev.kind == LN_EVENT_NONE) return;
        if (ev.kind == LN_EVENT_FINISH) {
            finish(c, &ev);
            return;
        }
        if (ev.kind == LN_EVENT_TOKEN) note_token(c);
        if (x->streaming && !x->ended) stream_event(c, &ev);
    }
}

void choice_ready(choice *c) {
    if (c->failed && !c->done) {
        end_choice(c);
        return;
    }
    if (c->done || !c->started) return;
    read_events(c);
}

void generation_resume(request_context *x) {
    x->n_pins++; /* the end of its last choice must not free it yet */
    for (size_t i = 0; i < x->n_started; i++)
        if (!x->choices[i].done) read_events(&x->choices[i]);
    x->n_pins--;
    request_release(x);
}
