/* One request and its answer, from the head to the last byte, or until the client leaves. */
#include "dialect.h"
#include "../base/c_locale.h"
#include "../wire/body.h"

#include <string.h>
#include <time.h>

request_context *request_new(server *s, conn *c) {
    request_context *x = ln_zalloc(1, sizeof *x);
    if (!x) return NULL;
    x->s = s;
    x->c = c;
    x->texts.budget = &s->texts;
    x->minor = 1;
    x->began = x->last_sent = ln_now();
    x->created = (int64_t)time(NULL);
    memcpy(x->id, "req-", 4);
    wire_random_hex(x->id + 4, 20);
    x->next = s->requests;
    if (s->requests) s->requests->prev = x;
    s->requests = x;
    s->n_requests++;
    return x;
}

static void drop_body(request_context *x) {
    x->s->held -= x->held;
    x->held = 0;
    conn_large_done(x);
    ln_account *outer = ln_account_enter(&x->texts);
    ln_str_free(&x->body);
    ln_account_leave(outer);
}

static void free_request(request_context *x) {
    server *s = x->s;
    generation_free(x);
    ln_str_free(&x->path);
    ln_str_free(&x->fields);
    ln_str_free(&x->out);
    ln_str_free(&x->asked);
    ln_str_free(&x->items);
    ln_str_free(&x->said);
    ln_account_close(&x->texts);
    client_leave(s, x->client);
    model_list_release(x->models);
    lora_change_free(x->change);
    s->n_requests--;
    ln_free(x);
}

/* Whether a choice is on the completion queue's stack, or was taken from it and not read yet. */
static bool is_in_completions(const request_context *x) {
    for (size_t i = 0; i < x->n_choices; i++)
        if (atomic_load(&x->choices[i].is_ready)) return true;
    return false;
}

void request_release(request_context *x) {
    server *s = x->s;
    if (x->c || x->n_pins > 0 || x->n_open > 0) return;
    fair_remove(x);
    drop_body(x);
    if (x->prev) x->prev->next = x->next;
    else s->requests = x->next;
    if (x->next) x->next->prev = x->prev;
    if (!is_in_completions(x)) {
        free_request(x);
        return;
    }
    x->next = s->garbage;
    s->garbage = x;
}

void request_sweep(server *s) {
    for (request_context **at = &s->garbage; *at;) {
        request_context *x = *at;
        if (is_in_completions(x)) {
            at = &x->next;
            continue;
        }
        *at = x->next;
        free_request(x);
    }
}

/* The answer is complete: counts it, and lets the connection go on. */
void request_complete(request_context *x) {
    conn *c = x->c;
    x->ended = x->answered = true;
    x->s->untrimmed = x->s->untrimmed || x->n_choices > 0;
    log_request(x);
    x->c = NULL;
    if (c) conn_end(c, x->keep_alive && x->s->phase < PHASE_DRAINING);
    request_release(x);
}

void request_abandon(request_context *x) {
    x->c = NULL;
    atomic_store(&x->left, true);
    if (!x->ended) {
        x->ended = true;
        x->s->m.cancelled++;
        log_request(x);
    }
    if (x->n_pins == 0) generation_cancel(x);
    request_release(x);
}

void request_put_fields(const request_context *x, ln_str *out) {
    ln_str_addf(out, "x-request-id: %s\r\n", x->id);
    ln_str_add(out, x->fields.data ? x->fields.data : "", x->fields.len);
    out->failed |= x->fields.failed;
}

void request_reply(request_context *x, int status, const char *type, const char *body, size_t bytes,
                   const char *more) {
    ln_str s = {0}, fields = {0};
    x->status = status;
    request_put_fields(x, &fields);
    ln_str_adds(&fields, more ? more : "");
    const bool keep = x->keep_alive && x->s->phase < PHASE_DRAINING && (!x->c || conn_is_read(x->c));
    http_put_head(&s, &(http_reply){.status = status,
                                    .type = type,
                                    .length = (int64_t)bytes,
                                    .keep_alive = keep,
                                    .minor = x->minor,
                                    .more = fields.failed ? "" : fields.data});
    if (x->method != HTTP_HEAD) ln_str_add(&s, body, bytes);
    if (s.failed) x->keep_alive = false; /* out of memory: the connection is closed without an answer */
    else if (x->c) conn_send(x->c, s.data, s.len);
    ln_str_free(&s);
    ln_str_free(&fields);
    request_complete(x);
}

void request_give(request_context *x, ln_str *body) {
    ln_str s = {0};
    x->status = 200;
    request_put_fields(x, &s);
    const bool keep = x->keep_alive && x->s->phase < PHASE_DRAINING && (!x->c || conn_is_read(x->c));
    ln_str head = {0};
    http_put_head(&head, &(http_reply){.status = 200,
                                       .type = "application/json",
                                       .length = (int64_t)body->len,
                                       .keep_alive = keep,
                                       .minor = x->minor,
                                       .more = s.failed ? "" : s.data});
    if (head.failed) x->keep_alive = false; /* out of memory: the connection is closed without an answer */
    else if (x->c) conn_send(x->c, head.data, head.len);
    if (!head.failed && x->c && x->method != HTTP_HEAD && body->len > 0) conn_give(x->c, x, body);
    ln_str_free(&s);
    ln_str_free(&head);
    ln_str_free(body);
    request_complete(x);
}

void request_reword(request_context *x) {
    ln_str s = {0};
    if (!x->s->o->reword || !strstr(x->why.error.message, "ln_")) return;
    x->s->o->reword(&s, x->why.error.message);
    if (!s.failed && s.data) (void)ln_fail(&x->why.error, x->why.error.code, "%s", s.data);
    ln_str_free(&s);
}

void request_reply_error(request_context *x) {
    ln_str s = {0}, more = {0};
    const int status = x->why.http;
    request_reword(x);
    if (x->dialect) x->dialect->put_error(&s, x);
    else wire_put_error(&s, &x->why);
    if (status == 503 || status == 429)
        ln_str_addf(&more, "Retry-After: %d\r\n", LN_MAX(x->retry_seconds, 1));
    if (status == 500 || status == 501) ln_str_adds(&more, "x-should-retry: false\r\n");
    if (status == 401) ln_str_adds(&more, "WWW-Authenticate: Bearer\r\n");
    if (status == 405 && x->route) ln_str_addf(&more, "Allow: %s\r\n", route_methods(x->route));
    request_reply(x, status, "application/json", s.data ? s.data : "", s.len, more.data);
    ln_str_free(&s);
    ln_str_free(&more);
}

static const char *type_of(int status) {
    switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 429: return "rate_limit_error";
    case 500:
    case 501: return "server_error";
    case 503: return "unavailable_error";
    default: return "invalid_request_error";
    }
}

void request_reject(request_context *x, int status, const char *code, const char *fmt, ...) {
    va_list args;
    char text[sizeof x->why.error.message];
    va_start(args, fmt);
    (void)ln_vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    x->why = (wire_error){.http = status, .type = type_of(status), .code = code};
    (void)ln_fail(&x->why.error, LN_EINVALID, "%s", text);
    request_reply_error(x);
}

/* ---- workers ---- */

void request_work(request_context *x, workers *c, void (*run)(work *w), void (*done)(work *w)) {
    x->job = (work){.run = texts_run, .done = done, .client = x->client, .cost = x->body.len};
    x->run = run;
    x->n_pins++;
    if (workers_submit(c, &x->job)) return;
    x->n_pins--;
    x->s->m.rejected++;
    request_reject(x, 503, "overloaded", "too many requests wait; try again");
}

request_context *request_of(work *w) {
    request_context *x = (request_context *)(void *)w; /* job is its first member */
    x->n_pins--;
    x->n_open = x->n_choices; /* that the worker opened */
    x->weight = (double)x->body.len / 4;
    drop_body(x);
    texts_explain(x);
    if (x->c) return x;
    generation_cancel(x);
    request_release(x);
    return NULL;
}

void request_answer(work *w) {
    request_context *x = request_of(w);
    if (!x) return;
    if (x->cut) {
        request_reject(x, 503, "shutting_down", "the server is about to stop");
        return;
    }
    request_answer_now(x);
}

void request_answer_now(request_context *x) {
    if (x->why.http == 0 && x->out.failed) (void)wire_fail(&x->why, LN_OOM(&x->why.error, "an answer"));
    texts_explain(x);
    if (x->why.http) request_reply_error(x);
    else request_give(x, &x->out);
}

ln_status request_read_object(request_context *x, json_t **root) {
    char found[80];
    LN_TRY(body_load(root, x->body.data ? x->body.data : "", x->body.len, &x->why));
    if (json_is_object(*root)) return LN_OK;
    return wire_refuse(&x->why, "", "expected the body to be an object, found %s",
                       ln_json_text(*root, found));
}
