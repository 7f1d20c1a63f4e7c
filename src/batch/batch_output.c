/* The file of answers and its state.
 *
 * The state appears, complete and synced, before the first answer, and goes after the last was synced, so
 * that a file of answers without one is finished or belongs to another program. An answer is one write of a
 * whole line at the end of the complete lines: a process that is killed leaves complete lines and at most
 * one incomplete one, which the next one drops. Answers are synced once a second, for the sake of a machine
 * that stops: a killed process loses nothing that it has written. */
#include "../base/os.h"
#include "../base/file.h"
#include "batch.h"
#include "../base/json_write.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STATE_MOST = 1 << 20 };
static const double SYNC_SECONDS = 1;
static const char temporary[] = ".tmp";
static const char again[] = "ln_batch_options.force starts again";

static ln_status fail_errno(ln_error *err, const char *path, const char *what) {
    char why[LN_ERRNO_TEXT], shown[LN_PATH_TEXT];
    int number = errno;
    return ln_fail(err, LN_EIO, "%s: cannot %s: %s", ln_path_text(shown, path), what,
                   ln_errno_text(why, number));
}

/* ---- the state ---- */

/* Writes all of the text to a new file and makes it durable. */
static ln_status write_file(const char *path, const ln_str *text, ln_error *err) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    if (fd < 0) return fail_errno(err, path, "create");
    ssize_t n = write(fd, text->data, text->len); /* at most a few hundred bytes */
    ln_status st = n == (ssize_t)text->len && fsync(fd) == 0 ? LN_OK : fail_errno(err, path, "write");
    close(fd);
    if (st != LN_OK) (void)unlink(path);
    return st;
}

/* The lock of OUT is held, so that the temporary name needs no number, and a process that was killed here
 * leaves a file that the next one uses. */
static ln_status write_state(const batch_output *o, const batch_binding *to, ln_error *err) {
    ln_str s = {0}, tmp = {0};
    ln_str_adds(&tmp, o->state);
    ln_str_adds(&tmp, temporary);
    ln_str_adds(&s, "{");
    put_int(&s, "linnet_batch", 1);
    put_text(&s, "in", to->digest);
    put_text(&s, "model", to->model);
    put_text(&s, "conditions", to->conditions);
    ln_str_adds(&s, "}\n");
    ln_status st = s.failed || tmp.failed ? LN_OOM(err, "the state of a file of answers")
                                          : write_file(tmp.data, &s, err);
    if (st == LN_OK && rename(tmp.data, o->state) != 0) {
        st = fail_errno(err, o->state, "create");
        (void)unlink(tmp.data);
    }
    ln_str_free(&s);
    ln_str_free(&tmp);
    return st;
}

/* Rejects to add answers to a file that was begun with other requests, another model or other conditions. */
static ln_status check_state(const batch_output *o, const char *in, const batch_binding *to, ln_error *err) {
    char shown[LN_PATH_TEXT], input[LN_PATH_TEXT];
    json_t *root = NULL;
    LN_TRY(ln_json_load_file(&root, o->state, STATE_MOST, err));
    const char *was = json_string_value(json_object_get(root, "conditions"));
    ln_path_text(shown, o->path);
    ln_status st = LN_OK;
    if (json_integer_value(json_object_get(root, "linnet_batch")) != 1 || !was)
        st =
            ln_fail(err, LN_EINVALID, "%s: expected the state of a file of answers, found something else; %s",
                    ln_path_text(shown, o->state), again);
    else if (!ln_json_is_text(json_object_get(root, "in"), to->digest))
        st = ln_fail(err, LN_EINVALID, "%s was begun for other requests than those that %s has now; %s",
                     shown, ln_path_text(input, in), again);
    else if (!ln_json_is_text(json_object_get(root, "model"), to->model))
        st = ln_fail(err, LN_EINVALID, "%s was begun with another model, or its files have changed; %s",
                     shown, again);
    else if (strcmp(was, to->conditions) != 0)
        st = ln_fail(err, LN_EINVALID, "%s was begun with '%.200s', and this is '%.200s'; %s", shown, was,
                     to->conditions, again);
    json_decref(root);
    return st;
}

/* ---- existing answers ---- */

static ln_status mark_done(batch_output *o, batch_input *in, const ln_lines *l, const char *text,
                           size_t bytes, ln_error *err) {
    char shown[LN_PATH_TEXT];
    json_t *root = NULL;
    size_t i = SIZE_MAX;
    ln_error why = {0};
    ln_status st = ln_json_load(&root, "JSON", text, bytes, &why);
    const json_t *id = json_object_get(root, "custom_id"), *failed = json_object_get(root, "error");
    if (st == LN_EMEMORY) return LN_OOM(err, "an answer");
    if (st == LN_OK && json_is_string(id))
        st = batch_input_find(in, json_string_value(id), json_string_length(id), &i, err);
    if (st == LN_OK && i != SIZE_MAX && !in->done[i]) {
        in->done[i] = 1;
        o->n_failed += failed && !json_is_null(failed);
    } else if (st == LN_OK || st == LN_EINVALID) {
        st = ln_fail(err, LN_EINVALID, "%s: line %llu: expected the answer to a request, found %s; %s",
                     ln_path_text(shown, o->path), (unsigned long long)l->number,
                     i == SIZE_MAX ? "something else" : "a second answer", again);
    }
    json_decref(root);
    return st;
}

/* Reads the existing answers and drops an incomplete last line. */
static ln_status read_answers(batch_output *o, batch_input *in, ln_error *err) {
    ln_lines l;
    ln_status st = LN_OK;
    ln_lines_open(&l, o->fd, o->path, BATCH_MOST_LINE);
    for (;;) {
        char *text;
        size_t bytes;
        uint64_t offset;
        bool whole;
        LN_GO(ln_lines_next(&l, &text, &bytes, &offset, &whole, err));
        if (!text || !whole) break;
        LN_GO(mark_done(o, in, &l, text, bytes, err));
        o->end = l.offset;
    }
    if (ftruncate(o->fd, (off_t)o->end) != 0) st = fail_errno(err, o->path, "shorten");
out:
    ln_lines_close(&l);
    return st;
}

/* ---- opening ---- */

static bool same_file(const struct stat *a, int fd) {
    struct stat b;
    return fstat(fd, &b) == 0 && a->st_dev == b.st_dev && a->st_ino == b.st_ino;
}

static ln_status open_file(batch_output *o, const batch_input *in, bool *made, ln_error *err) {
    char shown[LN_PATH_TEXT];
    struct stat st, state;
    o->fd = open(o->path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (o->fd < 0 && errno == ENOENT) {
        o->fd = open(o->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        *made = o->fd >= 0;
    }
    if (o->fd < 0) return fail_errno(err, o->path, "open for writing");
    if (fstat(o->fd, &st) != 0) return fail_errno(err, o->path, "inspect");
    if (!S_ISREG(st.st_mode))
        return ln_fail(err, LN_EIO, "%s: is not a regular file; name another one for the answers",
                       ln_path_text(shown, o->path));
    if (same_file(&st, in->fd) || (stat(o->state, &state) == 0 && same_file(&state, in->fd)))
        return ln_fail(err, LN_EUSAGE, "%s: it or its state is the file of the requests; name another one",
                       ln_path_text(shown, o->path));
    if (flock(o->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return ln_fail(err, LN_EIO, "%s: another process is writing answers to it",
                       ln_path_text(shown, o->path));
    return LN_OK;
}

static ln_status begin_or_continue(batch_output *o, batch_input *in, const batch_binding *to, bool force,
                                   ln_error *err) {
    char shown[LN_PATH_TEXT];
    struct stat st;
    bool has_state;
    LN_TRY(ln_look(o->state, &has_state, err));
    if (force && ftruncate(o->fd, 0) != 0) return fail_errno(err, o->path, "empty");
    if (has_state && !force) {
        LN_TRY(check_state(o, in->path, to, err));
        return read_answers(o, in, err);
    }
    if (fstat(o->fd, &st) != 0) return fail_errno(err, o->path, "inspect");
    if (st.st_size > 0)
        return ln_fail(err, LN_EIO,
                       "%s: exists already and is no unfinished file of answers (there is no %s.state); "
                       "ln_batch_options.force replaces it",
                       ln_path_text(shown, o->path), ln_path_text((char[LN_PATH_TEXT]){0}, o->path));
    return write_state(o, to, err);
}

ln_status batch_output_open(batch_output *o, const char *path, batch_input *in, const batch_binding *to,
                            bool force, ln_error *err) {
    bool made = false;
    ln_str state = {0};
    *o = (batch_output){.fd = -1, .path = path, .synced = ln_now()};
    ln_str_adds(&state, path);
    ln_str_adds(&state, ".state");
    o->state = state.data;
    if (state.failed) return LN_OOM(err, "a file name");
    ln_status status = open_file(o, in, &made, err);
    if (status == LN_OK) status = begin_or_continue(o, in, to, force, err);
    if (status != LN_OK && made) (void)unlink(path); /* nothing was begun */
    return status;
}

void batch_output_close(batch_output *o) {
    if (o->fd >= 0) close(o->fd);
    ln_free(o->state);
    *o = (batch_output){.fd = -1};
}

/* ---- adding ---- */

ln_status batch_output_add(batch_output *o, const char *line, size_t bytes, ln_error *err) {
    size_t done = 0;
    while (done < bytes) {
        ssize_t n = pwrite(o->fd, line + done, bytes - done, (off_t)(o->end + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            ln_status st = fail_errno(err, o->path, "write");
            if (ftruncate(o->fd, (off_t)o->end) != 0)
                return st; /* an incomplete line: dropped when the file is continued */
            return st;
        }
        done += (size_t)n;
    }
    o->end += bytes;
    if (ln_now() - o->synced < SYNC_SECONDS) return LN_OK;
    if (ln_os_sync_data(o->fd) != 0) return fail_errno(err, o->path, "write");
    o->synced = ln_now();
    return LN_OK;
}

ln_status batch_output_finish(batch_output *o, ln_error *err) {
    if (fsync(o->fd) != 0) return fail_errno(err, o->path, "write");
    return unlink(o->state) == 0 || errno == ENOENT ? LN_OK : fail_errno(err, o->state, "remove");
}
