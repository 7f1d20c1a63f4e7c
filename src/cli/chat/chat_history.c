/* The history file: $XDG_STATE_HOME/linnet/history, one entry per line, newest last.
 *
 * It contains what a user typed, so that only this user may read it: the directory has mode 0700, the file
 * 0600. An entry is appended by a single write, so that concurrent chats lose nothing; a newline within an
 * entry is written as \n, a backslash as \\. */
#include "chat.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HISTORY_FILE_MOST = 64 << 20 };

static ln_status refused(const char *path, ln_error *err) {
    char why[LN_ERRNO_TEXT], shown[LN_PATH_TEXT];
    int number = errno;
    return ln_fail(err, LN_EIO, "history: %s: %s", ln_path_text(shown, path), ln_errno_text(why, number));
}

/* mkdir -p with mode 0700. */
static ln_status make_dirs(char *path, ln_error *err) {
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        bool made = mkdir(path, 0700) == 0 || errno == EEXIST;
        if (!made) return refused(path, err);
        *slash = '/';
    }
    return LN_OK;
}

ln_status history_path(char *path, size_t cap, ln_error *err) {
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int n = 0;
    path[0] = '\0';
    if (state && state[0] == '/')
        n = snprintf(path, cap, "%s/linnet/history", state); /* XDG: relative paths are ignored */
    else if (home && home[0] == '/') n = snprintf(path, cap, "%s/.local/state/linnet/history", home);
    if (n < 0 || (size_t)n >= cap) {
        errno = ENAMETOOLONG;
        path[0] = '\0';
        return refused(state ? state : home, err);
    }
    return path[0] ? make_dirs(path, err) : LN_OK;
}

/* Decodes one line of the file in place; returns its length. */
static size_t unescape(char *s, size_t bytes) {
    size_t out = 0;
    for (size_t i = 0; i < bytes; i++) {
        bool escaped = s[i] == '\\' && i + 1 < bytes;
        if (escaped) i++;
        s[out++] = escaped && s[i] == 'n' ? '\n' : s[i];
    }
    return out;
}

/* Truncates the file to the lines that begin at `from`. */
static ln_status shorten(const char *path, const char *from, size_t bytes, ln_error *err) {
    ln_out o = {.fd = -1};
    ln_status st = ln_out_open_as(&o, path, true, 0600, err);
    if (st == LN_OK) st = ln_out_write(&o, from, bytes, err);
    if (st == LN_OK) st = ln_out_commit(&o, err);
    ln_out_abort(&o);
    return st;
}

ln_status history_read(const char *path, void (*entry)(void *user, const char *text, size_t bytes),
                       void *user, ln_error *err) {
    char *data;
    size_t bytes, lines = 0, skip = 0, at = 0;
    bool there;
    LN_TRY(ln_look(path, &there, err));
    if (!there) return LN_OK;
    LN_TRY(ln_read_file(path, HISTORY_FILE_MOST, &data, &bytes, err));
    for (size_t i = 0; i < bytes; i++) lines += data[i] == '\n';
    for (; lines - skip > HISTORY_MOST; at++) skip += data[at] == '\n';
    ln_status st = lines > 2 * HISTORY_MOST ? shorten(path, data + at, bytes - at, err) : LN_OK;
    while (at < bytes) {
        char *end = memchr(data + at, '\n', bytes - at);
        size_t n = end ? (size_t)(end - (data + at)) : bytes - at, next = at + n + 1;
        n = unescape(data + at, n);
        if (n > 0 && ln_utf8_valid(data + at, n) == n && !memchr(data + at, '\0', n))
            entry(user, data + at, n);
        at = next;
    }
    ln_free(data);
    return st;
}

ln_status history_add(const char *path, const char *text, size_t bytes, ln_error *err) {
    ln_str s = {0};
    ln_status st = LN_OK;
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '\n' || text[i] == '\\') ln_str_adds(&s, text[i] == '\n' ? "\\n" : "\\\\");
        else ln_str_add(&s, text + i, 1);
    }
    ln_str_add(&s, "\n", 1);
    if (s.failed) return LN_OOM(err, "history");
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
    struct stat sb;
    if (fd < 0 || fstat(fd, &sb) != 0 || !S_ISREG(sb.st_mode) ||
        ((sb.st_mode & 077) && fchmod(fd, 0600) != 0) || write(fd, s.data, s.len) != (ssize_t)s.len)
        st = refused(path, err);
    if (fd >= 0) (void)close(fd);
    ln_str_free(&s);
    return st;
}
