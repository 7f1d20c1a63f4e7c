/* Processing stdin or a file line by line, for --jsonl.
 *
 * The output for each input line is written before the program waits for the next one, so that another
 * program can interact with it. Blank lines are skipped. A bad line produces {"error"}, processing
 * continues, and the final exit code is 3. A line that exceeds the limit is passed as NULL and skipped to
 * its end. */
#include "cli.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct reader {
    const char *name; /* of the input, for messages */
    int fd;
    line_fn *fn;
    void *user;
    size_t most;
    uint64_t number, n_bad, first_bad;
    ln_error why; /* the error of the first bad line */
    bool passing; /* skipping the rest of a line that is too long */
} reader;

static bool is_blank(const char *line, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r') return false;
    return true;
}

/* Whether an error concerns one line only, so that the next line may be good. */
static bool is_of_line(ln_status st) { return st == LN_EINVALID || st == LN_EUSAGE || st == LN_EUNSUPPORTED; }

static ln_status answer_bad(reader *r, ln_str *out, size_t from, const ln_error *why, ln_error *err) {
    if (r->n_bad++ == 0) {
        r->first_bad = r->number;
        r->why = *why;
    }
    out->len = from; /* discards a partial answer */
    ln_str_add(out, "{", 1);
    put_key(out, "error");
    ln_str_json(out, why->message, strlen(why->message));
    ln_str_adds(out, "}\n");
    return out->failed ? LN_OOM(err, "an answer") : LN_OK;
}

/* Processes one line; `line` is NULL when it is too long. */
static ln_status one(reader *r, const char *line, size_t bytes, ln_str *out, ln_error *err) {
    size_t skip = 0, from = out->len;
    ln_error why = {0};
    ++r->number;
    ln_status st = line ? ln_utf8_mark(r->name, line, bytes, &skip, &why) : LN_OK;
    if (st != LN_OK && r->number == 1)
        return ln_fail(err, st, "%s", why.message); /* another encoding: all lines are unreadable */
    if (line && is_blank(line + skip, bytes - skip)) return LN_OK;
    if (st == LN_OK) st = r->fn(r->user, line ? line + skip : NULL, bytes - skip, out, &why);
    if (st == LN_OK) return LN_OK;
    if (is_of_line(st)) return answer_bad(r, out, from, &why, err);
    char shown[LN_PATH_TEXT];
    return ln_fail(err, st, "%s: line %llu: %s", ln_path_text(shown, r->name), (unsigned long long)r->number,
                   why.message);
}

/* Processes the complete lines of the buffer; *used is their length in bytes. */
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
        if (out.len > 1 << 20 || st != LN_OK) { /* the results before an error are still written */
            ln_error later;
            ln_status wrote = out_str(&out, st == LN_OK ? err : &later);
            if (st == LN_OK) st = wrote;
        }
    }
    if (st == LN_OK) return out_str(&out, err);
    ln_str_free(&out);
    return st;
}

/* The final status: LN_EINVALID when there were bad lines. */
static ln_status verdict(const reader *r, ln_error *err) {
    char more[60] = "", shown[LN_PATH_TEXT];
    if (r->n_bad == 0) return LN_OK;
    if (r->n_bad > 1)
        (void)snprintf(more, sizeof more, " (and %llu more bad lines)", (unsigned long long)r->n_bad - 1);
    return ln_fail(err, LN_EINVALID, "%s: line %llu: %s%s", ln_path_text(shown, r->name),
                   (unsigned long long)r->first_bad, r->why.message, more);
}

static ln_status read_all(reader *r, ln_error *err) {
    void *buf = NULL;
    size_t cap = 0, n = 0, used;
    char shown[LN_PATH_TEXT], why[LN_ERRNO_TEXT];
    ln_status st = LN_OK;
    for (bool last = false; !last && !out_closed();) {
        LN_GO(ln_grow(&buf, &cap, n + 65536, 1, err));
        ssize_t got = read(r->fd, (char *)buf + n, cap - n);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            LN_GO(ln_fail(err, LN_EIO, "%s: cannot read: %s", ln_path_text(shown, r->name),
                          ln_errno_text(why, errno)));
        last = got == 0;
        const off_t at = last ? lseek(r->fd, 0, SEEK_CUR) : -1;
        if (at >= 0) LN_GO(ln_check_end(r->fd, (uint64_t)at, r->name, err));
        n += (size_t)got;
        LN_GO(take(r, buf, n, last, &used, err));
        memmove(buf, (char *)buf + used, n - used);
        n -= used;
    }
    st = verdict(r, err);
out:
    ln_free(buf);
    return st;
}

ln_status lines_each(const char *path, line_fn *fn, void *user, size_t most, ln_error *err) {
    reader r = {.name = "stdin", .fd = STDIN_FILENO, .fn = fn, .user = user, .most = most};
    if (!path || is_stdin(path)) return read_all(&r, err);
    r.name = path;
    LN_TRY(ln_open_input(path, &r.fd, err));
    ln_status st = read_all(&r, err);
    close(r.fd);
    return st;
}
