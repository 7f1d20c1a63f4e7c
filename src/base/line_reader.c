/* Reads a file line by line in a buffer that grows to the longest line. */
#include "file.h"
#include "line_reader.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { PIECE = 1 << 16 };

void ln_lines_open(ln_lines *l, int fd, const char *path, size_t most) {
    *l = (ln_lines){.fd = fd, .path = path, .most = most};
}

void ln_lines_close(ln_lines *l) {
    ln_free(l->buf);
    *l = (ln_lines){.fd = -1};
}

static ssize_t read_more(const ln_lines *l) {
    const ssize_t got = pread(l->fd, l->buf + l->n, l->cap - 1 - l->n, (off_t)(l->offset + l->n));
    return got < 0 && errno == ESPIPE ? read(l->fd, l->buf + l->n, l->cap - 1 - l->n) : got;
}

/* Reads more of the file behind what is held. */
static ln_status fill(ln_lines *l, ln_error *err) {
    char why[LN_ERRNO_TEXT], shown[LN_PATH_TEXT];
    void *p = l->buf;
    if (l->at > 0) memmove(l->buf, l->buf + l->at, l->n - l->at);
    l->n -= l->at;
    l->at = 0;
    ln_status st = ln_grow(&p, &l->cap, l->n + PIECE + 1, 1, err);
    l->buf = p;
    LN_TRY(st);
    ssize_t got;
    do got = read_more(l);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return ln_fail(err, LN_EIO, "%s: cannot read: %s", ln_path_text(shown, l->path),
                       ln_errno_text(why, errno));
    if (got == 0) LN_TRY(ln_check_end(l->fd, l->offset + l->n, l->path, err));
    l->ended = got == 0;
    l->n += (size_t)got;
    return LN_OK;
}

ln_status ln_lines_next(ln_lines *l, char **line, size_t *bytes, uint64_t *offset, bool *whole,
                        ln_error *err) {
    char shown[LN_PATH_TEXT];
    size_t seen = 0;
    for (;;) {
        size_t held = l->n - l->at;
        char *from = held > 0 ? l->buf + l->at : NULL, /* no buffer is allocated yet if nothing is held */
            *end = held > seen ? memchr(from + seen, '\n', held - seen) : NULL;
        if (end || l->ended) {
            *whole = end != NULL;
            *bytes = end ? (size_t)(end - from) : held;
            *line = held > 0 ? from : NULL;
            *offset = l->offset;
            if (held > 0) from[*bytes] = '\0';
            l->at += *bytes + *whole;
            l->offset += *bytes + *whole;
            l->number++;
            return LN_OK;
        }
        if (held > l->most)
            return ln_fail(err, LN_EINVALID, "%s: line %llu: longer than %zu bytes",
                           ln_path_text(shown, l->path), (unsigned long long)l->number + 1, l->most);
        seen = held;
        LN_TRY(fill(l, err));
    }
}

ln_status ln_lines_held(ln_lines *l, const char **data, size_t *bytes, ln_error *err) {
    while (l->n == l->at && !l->ended) LN_TRY(fill(l, err));
    *bytes = l->n - l->at;
    *data = *bytes > 0 ? l->buf + l->at : "";
    return LN_OK;
}

void ln_lines_skip(ln_lines *l, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) l->number += l->buf[l->at + i] == '\n';
    l->at += bytes;
    l->offset += bytes;
}
