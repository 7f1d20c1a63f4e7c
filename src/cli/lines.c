/* Lines of stdin, one answer each: the form of --jsonl.
 *
 * Every input line gives its output before the next one is waited for, so that another program can talk to the command. A line longer
 * than the limit is passed over and handed on as NULL: what becomes of it is the caller's matter. */
#include "cli.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct reader {
    line_fn *fn;
    void *user;
    size_t most;
    uint64_t number;
    bool passing; /* the rest of a line that is too long */
} reader;

static ln_status one(reader *r, const char *line, size_t bytes, ln_str *out, ln_error *err) {
    ++r->number;
    ln_status st = r->fn(r->user, line, bytes, out, err);
    if (st != LN_OK) (void)ln_prefix(err, st, "stdin: line %llu", (unsigned long long)r->number);
    return st;
}

/* Complete lines of the buffer; *used is how many bytes they were. */
static ln_status take(reader *r, const char *data, size_t bytes, bool last, size_t *used, ln_error *err) {
    ln_str out = {0};
    ln_status st = LN_OK;
    *used = 0;
    while (*used < bytes && st == LN_OK && !out_closed()) {
        const char *from = data + *used, *end = memchr(from, '\n', bytes - *used);
        size_t n = end ? (size_t)(end - from) : bytes - *used;
        bool whole = end || last, too_long = n > r->most;
        if (!whole && !too_long) break;
        *used += n + (end != NULL);
        if (!r->passing) st = one(r, too_long ? NULL : from, n, &out, err);
        r->passing = !whole;
        if (out.len > 1 << 20 || st != LN_OK) { /* what was good before a bad line is still said */
            ln_error later;
            ln_status wrote = out_str(&out, st == LN_OK ? err : &later);
            if (st == LN_OK) st = wrote;
        }
    }
    if (st == LN_OK) return out_str(&out, err);
    ln_str_free(&out);
    return st;
}

ln_status lines_each(line_fn *fn, void *user, size_t most, ln_error *err) {
    reader r = {.fn = fn, .user = user, .most = most};
    void *buf = NULL;
    size_t cap = 0, n = 0, used;
    ln_status st = LN_OK;
    for (bool last = false; !last && !out_closed();) {
        LN_GO(ln_grow(&buf, &cap, n + 65536, 1, err));
        ssize_t got = read(STDIN_FILENO, (char *)buf + n, cap - n);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) LN_GO(ln_fail(err, LN_EIO, "stdin: cannot read"));
        last = got == 0;
        n += (size_t)got;
        LN_GO(take(&r, buf, n, last, &used, err));
        memmove(buf, (char *)buf + used, n - used);
        n -= used;
    }
out:
    ln_free(buf);
    return st;
}
