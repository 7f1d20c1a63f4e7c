/* Answers as server-sent events.
 *
 * Log-probabilities go with the text of their tokens. While a stop text is awaited, the last tokens may still
 * turn out to be a part of it and not of the answer: they are held back until enough text follows them. */
#include "dialect.h"

#include <string.h>

static const char event_stream[] = "text/event-stream; charset=utf-8";

/* Something could not be sent: the stream ends with an error, as one that has a gap must. */
static void lack_memory(request_context *x) {
    if (x->why.http) return;
    (void)wire_fail(&x->why, LN_OOM(&x->why.error, "a stream"));
}

static void send(request_context *x, const char *data, size_t n) {
    ln_str s = {0};
    x->last_sent = ln_now();
    if (!x->c) return;
    if (x->minor == 1) http_put_chunk(&s, data, n);
    else ln_str_add(&s, data, n);
    if (!s.failed) conn_send(x->c, s.data, s.len);
    else lack_memory(x);
    ln_str_free(&s);
}

/* Frames a JSON text that was built behind "data: ". */
static void send_event(request_context *x, ln_str *s) {
    ln_str_adds(s, "\n\n");
    if (!s->failed) send(x, s->data, s->len);
    else lack_memory(x);
    ln_str_free(s);
}

static ln_str event(void) {
    ln_str s = {0};
    ln_str_adds(&s, "data: ");
    return s;
}

void stream_named(request_context *x, const char *name, ln_str *json) {
    ln_str s = {0};
    ln_str_addf(&s, "event: %s\ndata: ", name);
    ln_str_add(&s, json->data ? json->data : "", json->len);
    s.failed |= json->failed;
    ln_str_free(json);
    send_event(x, &s);
}

void stream_line(request_context *x, ln_str *json) {
    ln_str_adds(json, "\n");
    if (!json->failed) send(x, json->data, json->len);
    else lack_memory(x);
    ln_str_free(json);
}

bool stream_begin(request_context *x) {
    ln_str s = {0}, fields = {0};
    const bool keep = x->keep_alive && x->minor == 1;
    request_put_fields(x, &fields);
    ln_str_adds(&fields, "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n");
    http_put_head(&s, &(http_reply){.status = 200,
                                    .type = x->dialect && x->dialect->stream_type ? x->dialect->stream_type
                                                                                  : event_stream,
                                    .length = -1,
                                    .keep_alive = keep,
                                    .minor = x->minor,
                                    .more = fields.failed ? "" : fields.data});
    const bool good = !s.failed && !fields.failed;
    if (good) {
        x->streaming = true;
        x->status = 200;
        x->keep_alive = keep;
        x->last_sent = ln_now();
        conn_send(x->c, s.data, s.len);
    }
    ln_str_free(&s);
    ln_str_free(&fields);
    if (good && x->dialect) x->dialect->begin(x);
    return good;
}

void stream_keepalive(request_context *x) {
    ln_str s = {0};
    if (x->dialect && x->dialect->put_silence) x->dialect->put_silence(&s, x);
    else ln_str_adds(&s, ": keep-alive\n\n");
    if (!s.failed) send(x, s.data, s.len);
    ln_str_free(&s);
}

static void send_delta(request_context *x, const wire_delta *d) {
    ln_str s = event();
    wire_put_delta(&s, &x->q, &x->answer, d);
    send_event(x, &s);
}

/* A completion that repeats its prompt with log-probabilities is sent whole, once all is known. */
static bool is_whole(const request_context *x) { return x->q.echo && x->q.n_logprobs >= 0; }

/* ---- tokens with log-probabilities ---- */

static ln_status add_token(choice *c, const ln_event *ev) {
    ln_result *r = &c->tokens;
    const size_t n = r->n_ids;
    void *ids = r->ids, *logprobs = r->logprobs, *top = r->top;
    ln_error err;
    LN_TRY(ln_grow(&ids, &c->cap_ids, n + 1, sizeof *r->ids, &err));
    r->ids = ids;
    LN_TRY(ln_grow(&logprobs, &c->cap_logprobs, n + 1, sizeof *r->logprobs, &err));
    r->logprobs = logprobs;
    LN_TRY(ln_grow(&top, &c->cap_top, (n + 1) * ev->n_top + 1, sizeof *r->top, &err));
    r->top = top;
    r->ids[n] = ev->id;
    r->logprobs[n] = ev->logprob;
    r->n_top = ev->n_top;
    if (ev->n_top > 0) memcpy(r->top + n * ev->n_top, ev->top, ev->n_top * sizeof *r->top);
    r->n_ids++;
    return LN_OK;
}

static size_t longest_stop(const ln_sampling *s) {
    size_t most = 0;
    for (size_t i = 0; i < s->n_stop; i++) most = LN_MAX(most, strlen(s->stop[i]));
    for (size_t i = 0; i < s->n_model_stop; i++) most = LN_MAX(most, strlen(s->model_stop[i]));
    return most;
}

/* How many of the tokens cannot be a part of a stop text that is still to come. */
static size_t certain_tokens(const choice *c) {
    const request_context *x = c->x;
    const size_t stop = longest_stop(&x->q.sampling);
    size_t n = c->tokens.n_ids, after = 0;
    ln_str s = {0};
    for (; n > c->n_sent && after + 1 < stop; n--) {
        bool special;
        s.len = 0;
        x->q.target->token(x->q.target->user, c->tokens.ids[n - 1], &special, &s);
        after += s.len;
    }
    ln_str_free(&s);
    return n;
}

bool stream_tokens(choice *c, size_t *from, size_t *to) {
    *from = c->n_sent;
    *to = c->x->q.n_logprobs < 0 ? *from : certain_tokens(c);
    c->n_sent = LN_MAX(*to, *from);
    return *to > *from;
}

/* Puts the tokens up to `to` into a chunk. */
static void put_tokens(choice *c, wire_delta *d, const ln_result *r, size_t to) {
    if (c->x->q.n_logprobs < 0 || to <= c->n_sent) return;
    d->tokens = r;
    d->from = c->n_sent;
    d->to = to;
    d->place = &c->place;
    c->n_sent = to;
}

/* ---- chunks ---- */

static void echo_prompt(choice *c) {
    const request_context *x = c->x;
    const ln_prompt *p = &x->q.prompts[c->index / (size_t)x->q.n];
    ln_str text = {0};
    if (p->text) ln_str_add(&text, p->text, p->text_bytes);
    else x->q.target->text(x->q.target->user, p->ids, p->n_ids, &text);
    if (!text.failed && text.len > 0)
        send_delta(c->x, &(wire_delta){.index = c->index, .text = text.data, .text_bytes = text.len});
    if (text.failed) lack_memory(c->x);
    ln_str_free(&text);
}

static void begin_choice(choice *c) {
    if (c->begun) return;
    c->begun = true;
    if (c->x->q.kind == WIRE_CHAT) send_delta(c->x, &(wire_delta){.index = c->index, .role = true});
    else if (c->x->q.echo && !is_whole(c->x)) echo_prompt(c);
}

bool choice_follow_call(choice *c, ln_event_kind kind) {
    const bool begins = kind == LN_EVENT_TOOL_ARGUMENTS && !c->in_call;
    if (kind == LN_EVENT_TOOL_ARGUMENTS) c->in_call = true;
    if (kind == LN_EVENT_TOKEN || kind == LN_EVENT_TOOL_ARGUMENTS || !c->in_call) return begins;
    c->in_call = false; /* the call is whole, or its beginning has become none */
    c->n_calls++;
    return false;
}

void stream_event(choice *c, const ln_event *ev) {
    wire_delta d = {.index = c->index};
    const bool begins = choice_follow_call(c, ev->kind), token = ev->kind == LN_EVENT_TOKEN;
    if (is_whole(c->x)) return;
    if (token && c->x->q.n_logprobs >= 0 && add_token(c, ev) != LN_OK) ln_request_cancel(c->request);
    if (c->x->dialect) {
        c->x->dialect->event(c, ev);
        return;
    }
    begin_choice(c);
    if (token) return;
    if (!c->tokens.text && ev->kind == LN_EVENT_TEXT && c->x->q.n_logprobs >= 0) {
        c->tokens.text = ln_strndup(ev->text, ev->bytes); /* its first character decides where tokens begin */
        c->tokens.text_bytes = c->tokens.text ? ev->bytes : 0;
    }
    if (ev->kind == LN_EVENT_TEXT) d.text = ev->text, d.text_bytes = ev->bytes;
    else if (ev->kind == LN_EVENT_TOOL_ARGUMENTS) d.call = ev, d.n_call = c->n_calls, d.begins_call = begins;
    else if (ev->kind == LN_EVENT_TOOL_CALL) return; /* its pieces were sent */
    else d.reasoning = ev->text, d.reasoning_bytes = ev->bytes;
    if (c->x->q.n_logprobs >= 0) put_tokens(c, &d, &c->tokens, certain_tokens(c));
    send_delta(c->x, &d);
}

static void send_whole(choice *c, wire_delta *d) {
    const request_context *x = c->x;
    const ln_prompt *p = &x->q.prompts[c->index / (size_t)x->q.n];
    const ln_result *r = &c->result;
    ln_str text = {0};
    if (p->text) ln_str_add(&text, p->text, p->text_bytes);
    else x->q.target->text(x->q.target->user, r->prompt_ids, r->n_prompt_ids, &text);
    ln_str_add(&text, r->text, r->text_bytes);
    d->text = text.data ? text.data : "";
    d->text_bytes = text.len;
    d->tokens = r;
    d->to = r->n_ids;
    d->place = &c->place;
    send_delta(c->x, d);
    ln_str_free(&text);
}

/* The results of all choices; NULL: out of memory. The texts stay the choices'. */
ln_result *request_results(const request_context *x) {
    ln_result *results = ln_zalloc(x->n_choices, sizeof *results);
    for (size_t i = 0; results && i < x->n_choices; i++) results[i] = x->choices[i].result;
    return results;
}

void stream_finish(choice *c) {
    request_context *x = c->x;
    if (x->dialect) {
        x->dialect->finish(c);
        return;
    }
    wire_delta d = {.index = c->index, .finish = wire_finish_of(&c->result), .ended = &c->result};
    const bool last = x->n_done + 1 == x->n_choices && !x->q.include_usage;
    ln_result *results = last ? request_results(x) : NULL;
    d.timings = results;
    begin_choice(c);
    if (is_whole(x)) {
        send_whole(c, &d);
    } else {
        put_tokens(c, &d, &c->result, c->result.n_ids);
        send_delta(x, &d);
    }
    ln_free(results);
}

/* ---- ends ---- */

static void finish_stream(request_context *x) {
    static const char done[] = "data: [DONE]\n\n";
    ln_str s = {0};
    if (!x->dialect) send(x, done, sizeof done - 1);
    if (x->minor == 1) http_put_last_chunk(&s);
    if (s.failed) lack_memory(x);
    if (s.failed) x->keep_alive = false; /* the missing last chunk tells of the gap */
    else if (s.len > 0) conn_send(x->c, s.data, s.len);
    ln_str_free(&s);
    request_complete(x);
}

void stream_end(request_context *x) {
    ln_str s = {0};
    if (x->dialect) {
        x->dialect->end(x, false);
        finish_stream(x);
        return;
    }
    ln_result *results = x->q.include_usage ? request_results(x) : NULL;
    if (x->q.include_usage && !results) {
        lack_memory(x);
        stream_error(x);
        return;
    }
    s = event();
    if (results) {
        wire_put_usage_delta(&s, &x->q, &x->answer, results);
        send_event(x, &s);
    }
    ln_str_free(&s);
    ln_free(results);
    finish_stream(x);
}

void stream_error(request_context *x) {
    ln_str s = {0};
    request_reword(x);
    x->keep_alive = false;
    if (x->dialect) {
        x->dialect->end(x, true);
        finish_stream(x);
        return;
    }
    s = event();
    wire_put_error(&s, &x->why);
    send_event(x, &s);
    finish_stream(x);
}
