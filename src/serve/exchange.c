/* An exchange: one request and its answer, from the head to the last byte or to the client's leaving. */
#include "dialect.h"
#include "../base/c_locale.h"
#include "../wire/body.h"

#include <string.h>
#include <time.h>

exchange *exchange_new(server *s, conn *c) {
    exchange *x = ln_zalloc(1, sizeof *x);
    if (!x) return NULL;
    x->s = s;
    x->c = c;
    x->texts.budget = &s->texts;
    x->minor = 1;
    x->began = x->last_sent = ln_now();
    x->created = (int64_t)time(NULL);
    memcpy(x->id, "req-", 4);
    wire_random_hex(x->id + 4, 20);
    x->next = s->exchanges;
    if (s->exchanges) s->exchanges->prev = x;
    s->exchanges = x;
    s->n_exchanges++;
    return x;
}

static void drop_body(exchange *x) {
    x->s->held -= x->held;
    x->held = 0;
    conn_large_done(x);
    ln_account *outer = ln_account_enter(&x->texts);
    ln_str_free(&x->body);
    ln_account_leave(outer);
}

static void free_exchange(exchange *x) {
    server *s = x->s;
    generation_free(x);
    ln_str_free(&x->path);
    ln_str_free(&x->fields);
    ln_str_free(&x->out);
    ln_str_free(&x->asked);
    ln_str_free(&x->items);
    ln_str_free(&x->said);
    ln_account_close(&x->texts);
    tenant_leave(s, x->who);
    roster_release(x->roster);
    lora_change_free(x->change);
    s->n_exchanges--;
    ln_free(x);
}

/* Whether a choice is on the mailbox's stack, or was taken from it and not read yet. */
static bool is_in_mailbox(const exchange *x) {
    for (size_t i = 0; i < x->n_choices; i++)
        if (atomic_load(&x->choices[i].is_ready)) return true;
    return false;
}

void exchange_release(exchange *x) {
    server *s = x->s;
    if (x->c || x->n_pins > 0 || x->n_open > 0) return;
    fair_remove(x);
    drop_body(x);
    if (x->prev) x->prev->next = x->next;
    else s->exchanges = x->next;
    if (x->next) x->next->prev = x->prev;
    if (!is_in_mailbox(x)) {
        free_exchange(x);
        return;
    }
    x->next = s->garbage;
    s->garbage = x;
}

void exchange_sweep(server *s) {
    for (exchange **at = &s->garbage; *at;) {
        exchange *x = *at;
        if (is_in_mailbox(x)) {
            at = &x->next;
            continue;
        }
        *at = x->next;
        free_exchange(x);
    }
}

/* The answer is complete: counts it, and lets the connection go on. */
void exchange_complete(exchange *x) {
    conn *c = x->c;
    x->ended = x->answered = true;
    x->s->untrimmed = x->s->untrimmed || x->n_choices > 0;
    log_exchange(x);
    x->c = NULL;
    if (c) conn_end(c, x->keep_alive && x->s->phase < PHASE_DRAINING);
    exchange_release(x);
}

void exchange_abandon(exchange *x) {
    x->c = NULL;
    atomic_store(&x->left, true);
    if (!x->ended) {
        x->ended = true;
        x->s->m.cancelled++;
        log_exchange(x);
    }
    if (x->n_pins == 0) generation_cancel(x);
    exchange_release(x);
}

void exchange_put_fields(const exchange *x, ln_str *out) {
    ln_str_addf(out, "x-request-id: %s\r\n", x->id);
    ln_str_add(out, x->fields.data ? x->fields.data : "", x->fields.len);
    out->failed |= x->fields.failed;
}

void exchange_reply(exchange *x, int status, const char *type, const char *body, size_t bytes,
                    const char *more) {
    ln_str s = {0}, fields = {0};
    x->status = status;
    exchange_put_fields(x, &fields);
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
    exchange_complete(x);
}

void exchange_give(exchange *x, ln_str *body) {
    ln_str s = {0};
    x->status = 200;
    exchange_put_fields(x, &s);
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
    exchange_complete(x);
}

void exchange_reword(exchange *x) {
    ln_str s = {0};
    if (!x->s->o->reword || !strstr(x->why.error.message, "ln_")) return;
    x->s->o->reword(&s, x->why.error.message);
    if (!s.failed && s.data) (void)ln_fail(&x->why.error, x->why.error.code, "%s", s.data);
    ln_str_free(&s);
}

void exchange_reply_error(exchange *x) {
    ln_str s = {0}, more = {0};
    const int status = x->why.http;
    exchange_reword(x);
    if (x->form) x->form->put_error(&s, x);
    else wire_put_error(&s, &x->why);
    if (status == 503 || status == 429)
        ln_str_addf(&more, "Retry-After: %d\r\n", LN_MAX(x->retry_seconds, 1));
    if (status == 500 || status == 501) ln_str_adds(&more, "x-should-retry: false\r\n");
    if (status == 401) ln_str_adds(&more, "WWW-Authenticate: Bearer\r\n");
    if (status == 405 && x->route) ln_str_addf(&more, "Allow: %s\r\n", route_methods(x->route));
    exchange_reply(x, status, "application/json", s.data ? s.data : "", s.len, more.data);
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

void exchange_refuse(exchange *x, int status, const char *code, const char *fmt, ...) {
    va_list args;
    char text[sizeof x->why.error.message];
    va_start(args, fmt);
    (void)ln_vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    x->why = (wire_error){.http = status, .type = type_of(status), .code = code};
    (void)ln_fail(&x->why.error, LN_EINVALID, "%s", text);
    exchange_reply_error(x);
}

/* ---- workers ---- */

void exchange_work(exchange *x, crew *c, void (*run)(work *w), void (*done)(work *w)) {
    x->job = (work){.run = texts_run, .done = done, .who = x->who, .cost = x->body.len};
    x->run = run;
    x->n_pins++;
    if (crew_submit(c, &x->job)) return;
    x->n_pins--;
    x->s->m.rejected++;
    exchange_refuse(x, 503, "overloaded", "too many requests wait; try again");
}

exchange *exchange_of(work *w) {
    exchange *x = (exchange *)(void *)w; /* job is its first member */
    x->n_pins--;
    x->n_open = x->n_choices; /* that the worker opened */
    x->weight = (double)x->body.len / 4;
    drop_body(x);
    texts_explain(x);
    if (x->c) return x;
    generation_cancel(x);
    exchange_release(x);
    return NULL;
}

void exchange_answer(work *w) {
    exchange *x = exchange_of(w);
    if (!x) return;
    if (x->cut) {
        exchange_refuse(x, 503, "shutting_down", "the server is about to stop");
        return;
    }
    exchange_answer_now(x);
}

void exchange_answer_now(exchange *x) {
    if (x->why.http == 0 && x->out.failed) (void)wire_fail(&x->why, LN_OOM(&x->why.error, "an answer"));
    texts_explain(x);
    if (x->why.http) exchange_reply_error(x);
    else exchange_give(x, &x->out);
}

ln_status exchange_read_object(exchange *x, json_t **root) {
    char found[80];
    LN_TRY(body_load(root, x->body.data ? x->body.data : "", x->body.len, &x->why));
    if (json_is_object(*root)) return LN_OK;
    return wire_refuse(&x->why, "", "expected the body to be an object, found %s",
                       ln_json_text(*root, found));
}
