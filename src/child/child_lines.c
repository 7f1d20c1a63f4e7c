/* Messages to and from a child process: lines over a socket that does not block. */
#include "child_internal.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

/* Waits for an event of the socket until the time `end`; false when it has passed. */
static bool wait_for(const ln_child *c, short events, double end) {
    for (;;) {
        const double left = end - ln_now();
        struct pollfd p = {.fd = c->fd, .events = events};
        const int r = poll(&p, 1, left <= 0 ? 0 : (int)LN_MIN(left * 1000 + 1, 1e9));
        if (r > 0) return true;
        if (r == 0 && ln_now() >= end) return false;
    }
}

static ln_status is_broken(const ln_child *c, ln_error *err) {
    if (c->broken.code == LN_OK) return LN_OK;
    return ln_fail(err, LN_EIO, "the process has failed before: %.800s", c->broken.message);
}

/* The connection is closed: says how the process ended, if it did. */
static ln_status ended(ln_child *c, bool in_message, ln_error *err) {
    ln_str s = {0};
    const char *how = ln_child_wait(c, 1.0) ? "ended" : "closed its connection";
    ln_child_last_words(c, &s);
    const ln_status st =
        ln_fail(err, LN_EIO, "the process has %s%s: %s", how, in_message ? " in the middle of a message" : "",
                s.data && !s.failed ? s.data : "out of memory");
    ln_str_free(&s);
    return st;
}

ln_status ln_child_send(ln_child *c, const char *line, size_t bytes, double seconds, ln_error *err) {
    const double end = ln_now() + seconds;
    LN_TRY(is_broken(c, err));
    while (bytes > 0) {
        const ssize_t n = send(c->fd, line, bytes, MSG_NOSIGNAL);
        if (n > 0) {
            line += n;
            bytes -= (size_t)n;
        } else if (n < 0 && errno != EAGAIN && errno != EINTR) {
            return ended(c, false, err);
        } else if (!wait_for(c, POLLOUT, end)) {
            return ln_fail(err, LN_EIO, "the process has read no request for %.0f s", seconds);
        }
    }
    return LN_OK;
}

/* The end of the line at c->at, or NULL. */
static char *find_end(const ln_child *c) {
    return c->n > c->at ? memchr(c->buf + c->at, '\n', c->n - c->at) : NULL;
}

/* Frees space for more bytes: moves what was not given to the beginning of the buffer, and grows it. */
static ln_status reserve(ln_child *c, ln_error *err) {
    if (c->at > 0) memmove(c->buf, c->buf + c->at, c->n - c->at);
    c->n -= c->at;
    c->at = 0;
    if (c->n > LN_CHILD_LINE)
        return ln_fail(err, LN_EIO, "the process sent a line of more than %d bytes", LN_CHILD_LINE);
    void *p = c->buf;
    LN_TRY(ln_grow(&p, &c->cap, c->n + (64 << 10), 1, err));
    c->buf = p;
    return LN_OK;
}

ln_status ln_child_receive(ln_child *c, double seconds, char **line, size_t *bytes, ln_error *err) {
    const double end = ln_now() + seconds;
    char *stop;
    *line = NULL;
    LN_TRY(is_broken(c, err));
    while (!(stop = find_end(c))) {
        LN_TRY(reserve(c, err));
        const ssize_t n = recv(c->fd, c->buf + c->n, c->cap - c->n, 0);
        if (n > 0) c->n += (size_t)n;
        else if (n == 0 || (errno != EAGAIN && errno != EINTR)) return ended(c, c->n > 0, err);
        else if (!wait_for(c, POLLIN, end)) return LN_OK;
    }
    *stop = '\0';
    *line = c->buf + c->at;
    *bytes = (size_t)(stop - *line);
    c->at = (size_t)(stop - c->buf) + 1;
    if (*bytes > LN_CHILD_LINE)
        return ln_fail(err, LN_EIO, "the process sent a line of more than %d bytes", LN_CHILD_LINE);
    return LN_OK;
}
