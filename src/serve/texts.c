/* The server's memory for texts: its share of the plan, the share of each client, and that of connections.
 *
 * Each request has an account of its client's budget, which is half of the server's where there may be
 * several clients. The account holds the body, what a worker makes of it, and the answer until it is sent.
 * The buffers of libevent are one account: all of them are allocated on the I/O thread. */
#include "../base/os.h"
#include "../wire/body.h"
#include "server.h"

#include <event2/event.h>
#include <string.h>

/* Bytes that a worker may have freed before the C library is asked to return them to the system. */
enum { MUCH = 4 << 20 };

/* ---- libevent ---- */

static ln_account connections; /* libevent's functions have no argument for it; a process has one server */

static void *buffer_alloc(size_t bytes) {
    ln_account *outer = ln_account_enter(&connections);
    void *p = ln_alloc(bytes);
    ln_account_leave(outer);
    return p;
}

static void *buffer_realloc(void *p, size_t bytes) {
    ln_account *outer = ln_account_enter(&connections);
    void *q = ln_realloc(p, bytes);
    ln_account_leave(outer);
    return q;
}

static void buffer_free(void *p) {
    ln_account *outer = ln_account_enter(&connections);
    ln_free(p);
    ln_account_leave(outer);
}

void texts_count_buffers(void) { event_set_mem_functions(buffer_alloc, buffer_realloc, buffer_free); }

void texts_to_buffer(request_context *x, ln_str *text) {
    ln_account_move(&x->texts, &connections, ln_os_block_bytes(text->data));
}

void texts_free_sent(const void *data, size_t bytes, void *user) {
    (void)bytes, (void)user;
    buffer_free((void *)(uintptr_t)data);
}

/* ---- shares ---- */

void texts_open(server *s) {
    const uint64_t held = connections.bytes;
    s->texts = (ln_budget){.limit = s->plan.text_bytes, .limited_by = "the server's memory plan"};
    ln_account_close(&connections);
    connections.budget = &s->texts;
    (void)ln_account_add(&connections, held);
}

void texts_close(server *s) {
    (void)s;
    ln_account_close(&connections);
    connections.budget = NULL;
}

void texts_of_client(server *s, client *t) {
    const uint64_t all = s->texts.limit; /* 0 while the model loads: no body is taken then */
    t->texts.parent = &s->texts;
    t->texts.limit = s->n_keys == 1 ? all : all / 2;
    t->texts.limited_by = s->n_keys == 1 ? s->texts.limited_by : "the share of one client";
}

/* ---- work ---- */

void texts_run(work *w) {
    request_context *x = (request_context *)(void *)w;
    ln_account *outer = ln_account_enter(&x->texts);
    x->run(w);
    ln_account_leave(outer);
    if (x->texts.peak > MUCH) ln_os_heap_trim();
}

void texts_trim(server *s) {
    if (!s->untrimmed) return;
    s->untrimmed = false;
    ln_os_heap_trim();
}

/* Makes of a lack of memory that the account has caused an answer with both numbers: 413 where a smaller text
 * helps, 429 where this client's other texts are in the way, 503 where those of others are. */
void texts_explain(request_context *x) {
    ln_account *a = &x->texts;
    const bool lacks = x->why.error.code == LN_EMEMORY && x->why.http >= 500;
    if (!lacks || a->asked == 0) return;
    const bool never = ln_account_never_fits(a), own = a->limit < x->s->texts.limit;
    x->why.http = never ? 413 : own ? 429 : 503;
    x->why.type = never ? "invalid_request_error" : own ? "rate_limit_error" : "unavailable_error";
    x->why.code = never ? "too_large" : "overloaded";
    x->why.param[0] = '\0';
    (void)ln_account_error(a, LN_EMEMORY, &x->why.error);
}

void texts_refuse(request_context *x) {
    (void)wire_fail(&x->why, LN_EMEMORY);
    texts_explain(x);
    request_reply_error(x);
}

/* Grows by halves of itself, at most to the length that the head states. */
bool texts_add_body(request_context *x, const http_head *h, const char *data, size_t n) {
    ln_str *b = &x->body;
    ln_account *outer = ln_account_enter(&x->texts);
    if (b->len + n >= b->cap) {
        size_t want = LN_MAX(b->len + n + 1, b->cap + b->cap / 2);
        if (h->has_length && h->length < SERVE_MOST_BODY && want > h->length)
            want = LN_MAX((size_t)h->length, b->len + n) + 1;
        char *more = ln_realloc(b->data, want);
        b->failed = !more;
        if (more) b->data = more, b->cap = want;
    }
    if (!b->failed) {
        memcpy(b->data + b->len, data, n);
        b->len += n;
        b->data[b->len] = '\0';
    }
    ln_account_leave(outer);
    return !b->failed;
}
