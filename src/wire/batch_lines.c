/* Reads a file line by line in a buffer that grows to the longest line. */
#include "batch.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { PIECE = 1 << 16 };

void batch_lines_open(batch_lines *l, int fd, const char *path) {
    *l = (batch_lines){.fd = fd, .path = path};
}

void batch_lines_close(batch_lines *l) {
    ln_free(l->buf);
    *l = (batch_lines){.fd = -1};
}

/* Reads more of the file behind what is held. */
static ln_status fill(batch_lines *l, ln_error *err) {
    char why[LN_ERRNO_TEXT], shown[LN_PATH_TEXT];
    void *p = l->buf;
    if (l->at > 0) memmove(l->buf, l->buf + l->at, l->n - l->at);
    l->n -= l->at;
    l->at = 0;
    ln_status st = ln_grow(&p, &l->cap, l->n + PIECE + 1, 1, err);
    l->buf = p;
    LN_TRY(st);
    ssize_t got;
    do got = pread(l->fd, l->buf + l->n, l->cap - 1 - l->n, (off_t)(l->offset + l->n));
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return ln_fail(err, LN_EIO, "%s: cannot read: %s", ln_path_text(shown, l->path),
                       ln_errno_text(why, errno));
    l->ended = got == 0;
    l->n += (size_t)got;
    return LN_OK;
}

ln_status batch_lines_next(batch_lines *l, char **line, size_t *bytes, uint64_t *offset, bool *whole,
                           ln_error *err) {
    char shown[LN_PATH_TEXT];
    size_t seen = 0;
    for (;;) {
        size_t held = l->n - l->at;
        char *from = l->buf + l->at, *end = held > seen ? memchr(from + seen, '\n', held - seen) : NULL;
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
        if (held > BATCH_MOST_LINE)
            return ln_fail(err, LN_EINVALID, "%s: line %llu: longer than %d bytes",
                           ln_path_text(shown, l->path), (unsigned long long)l->number + 1, BATCH_MOST_LINE);
        seen = held;
        LN_TRY(fill(l, err));
    }
}
