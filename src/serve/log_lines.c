/* One line of the log for each request: client, path, how it ended, tokens and times; never a text of the
 * request or of the answer. A log that nobody takes loses lines; it never stops the I/O thread. */
#include "../base/json_write.h"
#include "server.h"

#include <poll.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CLIENT_LEFT = 499 };

void log_line(server *s, const char *text, size_t n) {
    struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&p, 1, 0) <= 0 || !(p.revents & POLLOUT) || write(STDERR_FILENO, text, n) != (ssize_t)n)
        s->n_lost_lines++;
}

static void put_time(ln_str *out) {
    struct timespec t;
    struct tm tm = {0};
    (void)clock_gettime(CLOCK_REALTIME, &t);
    (void)gmtime_r(&t.tv_sec, &tm);
    ln_str_addf(out, "%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ", tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday,
                tm.tm_hour, tm.tm_min, tm.tm_sec, t.tv_nsec / 1000000);
}

typedef struct facts {
    const char *client, *path, *finish;
    int status;
    double seconds, first;
} facts;

static void put_json(ln_str *out, const request_context *x, const facts *f) {
    ln_str_adds(out, "{\"time\":\"");
    put_time(out);
    ln_str_adds(out, "\"");
    put_text(out, "request_id", x->id);
    put_text(out, "client", f->client);
    put_text(out, "method", http_method_name(x->method));
    put_text(out, "path", f->path);
    put_int(out, "status", f->status);
    put_bool(out, "stream", x->streaming);
    put_int(out, "prompt_tokens", x->prompt_tokens);
    put_int(out, "cached_tokens", x->cached_tokens);
    put_int(out, "generated_tokens", x->generated_tokens);
    put_real(out, "first_token_seconds", f->first);
    put_real(out, "seconds", f->seconds);
    put_text(out, "finish", f->finish);
    put_text(out, "code", x->why.code ? x->why.code : "");
    ln_str_adds(out, "}\n");
}

static void put_words(ln_str *out, const request_context *x, const facts *f) {
    put_time(out);
    ln_str_addf(out, " %s %s %s %s %d", x->id, f->client, http_method_name(x->method), f->path, f->status);
    if (x->why.code) ln_str_addf(out, " %s", x->why.code);
    if (x->generated_tokens > 0 || x->prompt_tokens > 0)
        ln_str_addf(out, " prompt %lld (%lld reused) generated %lld first %lld ms",
                    (long long)x->prompt_tokens, (long long)x->cached_tokens, (long long)x->generated_tokens,
                    (long long)(f->first * 1e3));
    ln_str_addf(out, " total %lld ms%s%s\n", (long long)(f->seconds * 1e3), f->finish[0] ? " " : "",
                f->finish);
}

void log_request(const request_context *x) {
    server *s = x->s;
    ln_str line = {0};
    const facts f = {.client = x->client ? x->client->name
                               : x->c    ? conn_address(x->c)
                                         : "-",
                     .path = x->route && x->route->path[0] ? x->route->path : "-",
                     .finish = !x->answered ? "left"
                               : x->finish  ? x->finish
                                            : "",
                     .status = x->answered ? x->status : CLIENT_LEFT,
                     .seconds = ln_now() - x->began,
                     .first = x->first > 0 ? x->first - x->began : 0};
    s->m.requests[LN_MIN(LN_MAX(f.status, 0), (int)LN_COUNT(s->m.requests) - 1)]++;
    if (x->has_request) metric_observe(&s->m.total, f.seconds);
    if (s->o->quiet) return;
    if (s->o->log_json) put_json(&line, x, &f);
    else put_words(&line, x, &f);
    if (!line.failed) log_line(s, line.data, line.len);
    ln_str_free(&line);
}
