/* Connections: sockets, deadlines, and the order of requests on them.
 *
 * READING -> (a request is complete) -> WAITING -> (its answer is complete) -> READING, or
 *         -> FLUSHING (the answer leaves) -> LINGERING (the client's last bytes are read and dropped, because
 *            closing with unread bytes would reset the connection and take the answer away) -> closed.
 *
 * While an answer is being made, further requests wait unparsed in the input buffer. A client that has left
 * is noticed by a reset; one whose stream has merely ended may still read, so it is sent something that costs
 * it nothing (an interim 102, a comment of SSE), to which a socket that is gone answers with a reset.
 *
 * A large body waits in its socket, unread, while other large bodies of the same client fill a third of its
 * share of memory: the rest of the share is for what workers make of them. */
#include "../base/os.h"
#include "server.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const double LINGER_SECONDS = 2, BODY_RATE = 1024, BODY_WINDOW = 10, PROBE_SECONDS = 1;

typedef enum conn_state { READING = 0, WAITING, FLUSHING, LINGERING } conn_state;

struct conn {
    server *s;
    conn *next, *prev;
    struct bufferevent *bev;
    int fd;
    char address[48];
    conn_state state;
    http_reader in;
    request_context *x; /* of the request that is read or answered */
    bool used;          /* it has had a request */
    bool in_head, in_body;
    bool ended;   /* the client sends nothing more */
    bool watched; /* counted in server.n_watched */
    bool advancing;
    bool paused;         /* its body waits until others of its client are done; counted in server.n_paused */
    double since;        /* READING: its last state's beginning; LINGERING: its end */
    double moved;        /* when output last left */
    double mark;         /* of a body: the beginning of a window of BODY_WINDOW seconds */
    uint64_t mark_bytes; /* that had come then */
    double probed;       /* when the client was last asked whether it is still there */
};

const char *conn_address(const conn *c) { return c->address; }
const http_head *conn_head(const conn *c) { return &c->in.head; }
size_t conn_unsent(const conn *c) { return evbuffer_get_length(bufferevent_get_output(c->bev)); }

bool conn_is_read(const conn *c) { return !c->in_head && !c->in_body; }

void conn_send(conn *c, const char *data, size_t n) {
    if (n == 0) return;
    if (conn_unsent(c) == 0) c->moved = ln_now();
    if (bufferevent_write(c->bev, data, n) != 0)
        (void)shutdown(c->fd, SHUT_RDWR); /* out of memory: better no end than an answer with a gap */
}

void conn_give(conn *c, request_context *x, ln_str *text) {
    struct evbuffer *out = bufferevent_get_output(c->bev);
    if (evbuffer_add_reference(out, text->data, text->len, texts_free_sent, NULL) != 0) {
        (void)shutdown(c->fd, SHUT_RDWR);
        return;
    }
    texts_to_buffer(x, text);
    *text = (ln_str){0};
}

static void watch(conn *c, bool on) {
    if (c->watched == on) return;
    c->watched = on;
    c->s->n_watched += on ? 1 : -1;
    const struct timeval soon = {0, 20000};
    if (on && c->s->n_watched == 1) (void)event_add(c->s->watch_event, &soon);
}

void conn_close(conn *c) {
    server *s = c->s;
    request_context *x = c->x;
    c->x = NULL;
    watch(c, false);
    s->n_paused -= c->paused;
    if (c->prev) c->prev->next = c->next;
    else s->conns = c->next;
    if (c->next) c->next->prev = c->prev;
    s->n_conns--;
    bufferevent_free(c->bev); /* closes the socket */
    http_reader_free(&c->in);
    ln_free(c);
    if (x) request_abandon(x);
}

/* ---- ends ---- */

static void begin_lingering(conn *c) {
    c->state = LINGERING;
    c->since = ln_now() + LINGER_SECONDS;
    (void)shutdown(c->fd, SHUT_WR);
    struct evbuffer *in = bufferevent_get_input(c->bev);
    (void)evbuffer_drain(in, evbuffer_get_length(in));
    if (c->ended) bufferevent_trigger_event(c->bev, BEV_EVENT_EOF, BEV_TRIG_DEFER_CALLBACKS);
}

/* Closes once what was written has left. */
static void leave(conn *c) {
    c->state = FLUSHING;
    if (conn_unsent(c) == 0) conn_close(c);
}

void conn_end(conn *c, bool keep_alive) {
    c->x = NULL;
    watch(c, false);
    if (keep_alive && conn_is_read(c)) {
        c->state = READING;
        http_reader_reset(&c->in);
        c->since = ln_now();
        if (!c->advancing)
            bufferevent_trigger(c->bev, EV_READ, BEV_TRIG_IGNORE_WATERMARKS | BEV_TRIG_DEFER_CALLBACKS);
        return;
    }
    c->state = FLUSHING;
    if (conn_unsent(c) == 0) begin_lingering(c);
}

/* ---- reading ---- */

/* Refuses what is no request, or comes too slowly. */
static void refuse_bytes(conn *c, int status, const char *why) {
    static const char *const codes[] = {"bad_request", "timeout", "too_large"};
    if (!c->x) c->x = request_new(c->s, c);
    c->s->m.malformed++;
    if (!c->x) { /* out of memory */
        c->state = FLUSHING;
        begin_lingering(c);
        return;
    }
    c->x->keep_alive = false;
    if (c->in.head.method == HTTP_HEAD && c->in_body) c->x->method = HTTP_HEAD;
    request_reject(c->x, status, codes[status == 408 ? 1 : status == 413 ? 2 : 0], "%s", why);
}

/* ---- large bodies ---- */

/* Tells a client that waits for it that the body may come. */
static void ask_for_body(conn *c) {
    static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
    if (c->in.head.expects_continue && c->in_body && c->in.body == 0) conn_send(c, text, sizeof text - 1);
}

/* Whether the client may send so many bytes more now. */
static bool admits(const client *t, uint64_t bytes) {
    return t->large_bytes == 0 || t->large_bytes + bytes <= t->texts.limit / 3;
}

static void admit(request_context *x, uint64_t bytes) {
    x->large_bytes += bytes;
    x->client->large_bytes += bytes;
}

/* Admits `bytes` of a body that is large, or stops reading it. */
static void ask_for_large(conn *c, uint64_t bytes) {
    if (admits(c->x->client, bytes)) {
        admit(c->x, bytes);
        return;
    }
    c->paused = true;
    c->s->n_paused++;
    (void)bufferevent_disable(c->bev, EV_READ);
}

/* The bytes for which a body that waits asks. */
static uint64_t waits_for(const conn *c) {
    return c->in.head.has_length ? c->in.head.length : LN_MAX(c->x->body.len, (size_t)WORK_SMALL);
}

void conn_large_done(request_context *x) {
    server *s = x->s;
    client *t = x->client;
    if (x->large_bytes == 0) return;
    t->large_bytes -= x->large_bytes;
    x->large_bytes = 0;
    while (s->n_paused > 0) {
        conn *first = NULL;
        for (conn *c = s->conns; c; c = c->next)
            if (c->paused && c->x && c->x->client == t && (!first || c->since <= first->since)) first = c;
        if (!first || !admits(t, waits_for(first))) return;
        admit(first->x, waits_for(first));
        first->paused = false;
        s->n_paused--;
        first->since = first->mark = ln_now();
        first->mark_bytes = first->in.body;
        ask_for_body(first);
        (void)bufferevent_enable(first->bev, EV_READ);
        bufferevent_trigger(first->bev, EV_READ, BEV_TRIG_IGNORE_WATERMARKS | BEV_TRIG_DEFER_CALLBACKS);
    }
}

static void begin_request(conn *c) {
    const http_head *h = &c->in.head;
    c->in_head = false;
    c->in_body = h->chunked || h->length > 0;
    c->since = c->mark = ln_now();
    c->mark_bytes = 0;
    c->used = true;
    c->x = request_new(c->s, c);
    if (!c->x) {
        c->state = FLUSHING;
        begin_lingering(c);
        return;
    }
    if (!route_begin(c->x, h)) return;
    if (c->x->client) c->x->texts.budget = &c->x->client->texts;
    const bool is_body = h->method == HTTP_POST && c->x->client != NULL;
    if (is_body && h->has_length && h->length > c->x->texts.budget->limit) {
        (void)ln_account_fits(&c->x->texts, h->length);
        texts_refuse(c->x);
        return;
    }
    if (is_body && h->has_length && h->length > WORK_SMALL) ask_for_large(c, h->length);
    if (!c->paused) ask_for_body(c);
}

static void take_body(conn *c, const char *data, size_t n) {
    request_context *x = c->x;
    server *s = c->s;
    if (!x || !(x->route->methods & 1u << HTTP_POST)) return; /* nothing reads it */
    if (!texts_add_body(x, conn_head(c), data, n)) {
        texts_refuse(x);
        return;
    }
    s->held += n;
    x->held += n;
    if (conn_head(c)->has_length || x->body.len <= WORK_SMALL || !x->client) return;
    if (x->large_bytes > 0) admit(x, n); /* a body of unknown length */
    else ask_for_large(c, x->body.len);
}

/* Reads what has come, request by request. */
static void advance(conn *c) {
    struct evbuffer *in = bufferevent_get_input(c->bev);
    c->advancing = true;
    while (c->state == READING && !c->paused && conn_unsent(c) <= SERVE_MOST_OUTPUT) {
        const size_t n = evbuffer_get_contiguous_space(in);
        const char *data = n > 0 ? (const char *)evbuffer_pullup(in, (ev_ssize_t)n) : "";
        size_t used, at, piece;
        if (n > 0 && !c->in_head && !c->in_body && !c->x) c->in_head = true, c->since = ln_now();
        const http_event e = http_read(&c->in, data, n, &used, &at, &piece);
        if (e == HTTP_DATA) take_body(c, data + at, piece);
        (void)evbuffer_drain(in, used);
        if (e == HTTP_GOT_HEAD) begin_request(c);
        if (e == HTTP_ERROR) refuse_bytes(c, c->in.status, c->in.why);
        if (e == HTTP_END && c->state == READING) {
            c->in_body = false;
            c->state = WAITING;
            c->x->route->handle(c->x);
        }
        if (e == HTTP_MORE && evbuffer_get_length(in) == 0) break;
    }
    c->advancing = false;
}

/* Asks whether a client whose stream has ended is still there. In HTTP/1.0 there is nothing to ask with. */
static void probe(conn *c) {
    static const char interim[] = "HTTP/1.1 102 Processing\r\n\r\n";
    c->probed = ln_now();
    watch(c, true);
    if (c->x->streaming) stream_keepalive(c->x);
    else if (c->x->minor == 1) conn_send(c, interim, sizeof interim - 1);
}

/* ---- events ---- */

static void on_read(struct bufferevent *bev, void *user) {
    conn *c = user;
    struct evbuffer *in = bufferevent_get_input(bev);
    if (c->state == LINGERING) (void)evbuffer_drain(in, evbuffer_get_length(in));
    if (c->state == WAITING && evbuffer_get_length(in) >= SERVE_MOST_INPUT)
        watch(c, true); /* no read sees its end */
    advance(c);
    if (c->ended && c->state == READING && evbuffer_get_length(in) == 0) leave(c);
}

static void on_write(struct bufferevent *bev, void *user) {
    conn *c = user;
    (void)bev;
    if (c->state == FLUSHING && conn_unsent(c) == 0) begin_lingering(c);
    else if (c->state == WAITING && c->x) generation_resume(c->x);
    else if (c->state == READING) on_read(bev, user);
}

static void on_event(struct bufferevent *bev, short what, void *user) {
    conn *c = user;
    (void)bev;
    if (!(what & BEV_EVENT_EOF)) {
        conn_close(c);
        return;
    }
    c->ended = true;
    if (c->state == FLUSHING) return; /* the answer is still on its way */
    if (c->state == WAITING && c->x) probe(c);
    else if (c->state != READING) conn_close(c);
    else if (evbuffer_get_length(bufferevent_get_input(c->bev)) == 0) leave(c);
}

static void on_output(struct evbuffer *out, const struct evbuffer_cb_info *info, void *user) {
    conn *c = user;
    (void)out;
    if (info->n_deleted > 0) c->moved = ln_now();
}

/* ---- beginning ---- */

static bool too_many(const server *s, const char *address, bool loopback) {
    int n = 0;
    if (s->n_conns >= SERVE_MOST_CONNECTIONS) return true;
    for (const conn *c = s->conns; c && !loopback; c = c->next) n += strcmp(c->address, address) == 0;
    return n >= SERVE_MOST_OF_ADDRESS;
}

/* Answers without a connection object. */
static void turn_away(int fd) {
    static const char text[] = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n"
                               "Content-Length: 0\r\n\r\n";
    const ssize_t n = send(fd, text, sizeof text - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)n;
    (void)close(fd);
}

/* A peer that is cut off sends no end: unacknowledged bytes and silent connections have limits of time. */
static void set_options(const server *s, int fd) {
    const int on = 1, buffer = SERVE_MOST_OUTPUT / 2;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer); /* else the kernel holds megabytes */
    ln_os_keep_alive(fd, 2 * s->o->stall_seconds); /* a stall is told and counted first */
}

void conn_accept(server *s, int fd, const char *address, bool loopback) {
    s->m.connections++;
    if (too_many(s, address, loopback)) {
        s->m.rejected++;
        turn_away(fd);
        return;
    }
    conn *c = ln_zalloc(1, sizeof *c);
    struct bufferevent *bev = c ? bufferevent_socket_new(s->base, fd, BEV_OPT_CLOSE_ON_FREE) : NULL;
    if (!bev) {
        ln_free(c);
        turn_away(fd);
        return;
    }
    set_options(s, fd);
    c->s = s;
    c->bev = bev;
    c->fd = fd;
    c->in.most_body = SERVE_MOST_BODY;
    http_reader_reset(&c->in);
    memcpy(c->address, address, LN_MIN(strlen(address), sizeof c->address - 1));
    c->since = c->moved = ln_now();
    c->next = s->conns;
    if (s->conns) s->conns->prev = c;
    s->conns = c;
    s->n_conns++;
    bufferevent_setcb(bev, on_read, on_write, on_event, c);
    bufferevent_setwatermark(bev, EV_READ, 0, SERVE_MOST_INPUT);
    bufferevent_setwatermark(bev, EV_WRITE, SERVE_MOST_OUTPUT / 4, 0);
    (void)evbuffer_add_cb(bufferevent_get_output(bev), on_output, c);
    (void)bufferevent_enable(bev, EV_READ | EV_WRITE);
}

/* ---- deadlines ---- */

/* A body has its rate as a whole, and in each window: else a burst would pay for hours of silence. */
static bool too_slow(conn *c, double now) {
    const double taken = now - c->since;
    if (c->paused) return false;
    if (c->in_head) return taken > c->s->o->head_seconds;
    if (!c->in_body || taken <= SERVE_BODY_SECONDS) return false;
    if ((double)c->in.body < BODY_RATE * (taken - SERVE_BODY_SECONDS)) return true;
    if (now - c->mark < BODY_WINDOW) return false;
    const bool slow = (double)(c->in.body - c->mark_bytes) < BODY_RATE * BODY_WINDOW;
    c->mark = now;
    c->mark_bytes = c->in.body;
    return slow;
}

static void tick(conn *c, double now) {
    const ln_serve_options *o = c->s->o;
    const bool busy = c->in_head || c->in_body;
    const double idle = c->used ? o->idle_seconds : o->head_seconds;
    if (conn_unsent(c) > 0 && now - c->moved > o->stall_seconds) {
        c->s->m.stalled++;
        conn_close(c);
    } else if (c->state == LINGERING ? now > c->since
                                     : c->state == READING && !busy &&
                                           (now - c->since > idle || c->s->phase >= PHASE_DRAINING)) {
        if (c->state == LINGERING) conn_close(c);
        else leave(c);
    } else if (c->state == READING && too_slow(c, now)) {
        refuse_bytes(c, 408, "the request came too slowly");
    } else if (c->state == WAITING && c->x && c->x->streaming &&
               now - c->x->last_sent > o->keepalive_seconds) {
        stream_keepalive(c->x);
    } else if (c->state == WAITING && c->x && c->ended && now - c->probed > PROBE_SECONDS) {
        probe(c); /* a client that had left when it was asked before would not have answered */
    }
}

void conn_tick_all(server *s, double now) {
    for (conn *c = s->conns, *next; c; c = next) {
        next = c->next;
        tick(c, now);
    }
}

void conn_watch_all(server *s) {
    const struct timeval soon = {0, 20000};
    for (conn *c = s->conns, *next; c; c = next) {
        next = c->next;
        if (!c->watched) continue;
        const ln_os_peer peer = ln_os_peer_of(c->fd);
        if (peer == LN_OS_PEER_GONE) conn_close(c);
        else if (peer == LN_OS_PEER_ENDED && !c->ended && c->x) c->ended = true, probe(c);
    }
    if (s->n_watched > 0) (void)event_add(s->watch_event, &soon);
}

bool conn_any_busy(const server *s) {
    for (const conn *c = s->conns; c; c = c->next)
        if (c->x || conn_unsent(c) > 0) return true;
    return false;
}

void conn_close_all(server *s) {
    while (s->conns) conn_close(s->conns);
}
