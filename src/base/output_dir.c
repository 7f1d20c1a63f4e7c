/* A directory that is written completely or not at all: it is filled under a temporary name next to the
 * target and then renamed.
 *
 * An existing target is replaced only with `force`, and only if it is a model directory, like the one that is
 * written. Both directories are exchanged in one rename, so that a reader always finds either the old or the
 * new one; the old one is removed last.
 *
 * The temporary directory is PATH.PID-SERIAL.tmp. Its process holds a lock (flock) on it; one that no
 * process locks is what a killed process has left, and the next process that writes to PATH removes it. If a
 * file system has no such locks, nothing is removed. */
#include "dir_names.h"
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static ln_status fail_errno(ln_error *err, const char *path, const char *doing) {
    char shown[LN_PATH_TEXT], why[128];
    int number = errno;
    return ln_fail(err, number == ENOMEM ? LN_EMEMORY : LN_EIO, "%s: cannot %s: %s",
                   ln_path_text(shown, path), doing, ln_errno_text(why, number));
}

/* Whether the existing target is empty, and whether it is a model directory. */
static ln_status look(const char *path, bool *empty, bool *model, ln_error *err) {
    ln_names names;
    LN_TRY(ln_names_read(&names, path, err));
    *empty = names.n == 0;
    *model = false;
    for (size_t i = 0; i < names.n; i++) *model |= strcmp(names.items[i], "config.json") == 0;
    *model = *model && ln_names_like(&names, "", ".safetensors");
    ln_names_free(&names);
    return LN_OK;
}

static ln_status check_target(ln_out_dir *o, bool force, ln_error *err) {
    struct stat st;
    char shown[LN_PATH_TEXT];
    bool empty = true, model = false;
    if (lstat(o->path, &st) != 0) return errno == ENOENT ? LN_OK : fail_errno(err, o->path, "create");
    if (!S_ISDIR(st.st_mode))
        return ln_fail(err, LN_EIO, "%s: exists and is not a directory; name another one to write to",
                       ln_path_text(shown, o->path));
    LN_TRY(look(o->path, &empty, &model, err));
    o->replace = !empty;
    if (empty || (force && model)) return LN_OK;
    if (!force)
        return ln_fail(err, LN_EIO,
                       "%s: exists already; ln_quantize_options.force replaces it, or name another directory",
                       ln_path_text(shown, o->path));
    return ln_fail(err, LN_EIO,
                   "%s: is not a model's directory, and only such a one is replaced; name another one to "
                   "write to",
                   ln_path_text(shown, o->path));
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at) {
    (void)st, (void)at;
    return kind == FTW_DP ? rmdir(path) : unlink(path);
}
static void remove_tree(const char *path) {
    (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

/* ---- what killed processes leave ---- */

/* The rest of a temporary name after "BASE.", NULL if it is none: two numbers and ".tmp", in a name that was
 * set aside (exchange) ".tmp.old". */
static const char *after_numbers(const char *s) {
    const size_t pid = strspn(s, "0123456789");
    const size_t serial = pid && s[pid] == '-' ? strspn(s + pid + 1, "0123456789") : 0;
    return serial ? s + pid + 1 + serial : NULL;
}

/* Opens a directory and locks it; -1: it cannot be. *held: another process holds it. */
static int lock_dir(const char *path, bool *held) {
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    *held = false;
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
    *held = errno == EWOULDBLOCK;
    close(fd);
    return -1;
}

static void sweep_one(const char *dir, const char *name, const char *rest) {
    char path[4096], shown[LN_PATH_TEXT];
    bool held;
    const int n = snprintf(path, sizeof path, "%s/%s", dir, name);
    if (n < 0 || (size_t)n >= sizeof path) return;
    if (strcmp(rest, ".tmp.old") == 0)
        ln_log(LN_LOG_WARN,
               "%s: an earlier run was killed while it replaced a model, whose files these are; move them "
               "back, or remove them",
               ln_path_text(shown, path));
    if (strcmp(rest, ".tmp") != 0) return;
    const int fd = lock_dir(path, &held);
    if (fd < 0) return;
    remove_tree(path);
    close(fd);
    ln_log(LN_LOG_INFO, "%s: removed; a run that was killed had left it", ln_path_text(shown, path));
}

/* Removes what killed processes have left of the target, which is checked already. If the directory cannot be
 * listed, they stay for a later run. */
static void sweep(const char *path) {
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    const size_t n = strlen(base);
    char *dir = slash ? ln_strndup(path, slash == path ? 1 : (size_t)(slash - path)) : ln_strndup(".", 1);
    ln_names names = {0};
    if (dir) (void)ln_names_read(&names, dir, NULL);
    for (size_t i = 0; i < names.n; i++) {
        const char *name = names.items[i];
        const bool ours = strncmp(name, base, n) == 0 && name[n] == '.';
        const char *rest = ours ? after_numbers(name + n + 1) : NULL;
        if (rest) sweep_one(dir, name, rest);
    }
    ln_names_free(&names);
    ln_free(dir);
}

static void unlock(ln_out_dir *o) {
    if (o->locked) close(o->lock);
    o->locked = false;
}

/* Creates the temporary directory and locks it. Between the two another process may take it for one that was
 * left, and remove it: then there is another name. */
static ln_status make_tmp(ln_out_dir *o, size_t bytes, ln_error *err) {
    static _Atomic unsigned serial;
    struct stat st;
    bool held;
    for (int tries = 0; tries < 16; tries++) {
        (void)snprintf(o->tmp, bytes, "%s.%ld-%u.tmp", o->path, (long)getpid(), atomic_fetch_add(&serial, 1));
        if (mkdir(o->tmp, 0777) != 0) return fail_errno(err, o->path, "create");
        o->lock = lock_dir(o->tmp, &held);
        o->locked = o->lock >= 0;
        o->made = !held && lstat(o->tmp, &st) == 0;
        if (o->made) return LN_OK;
        unlock(o);
    }
    return ln_fail(err, LN_EIO, "%s: its temporary directory is removed by other processes; try again",
                   o->path);
}

/* ---- opening ---- */

ln_status ln_out_dir_open(ln_out_dir *o, const char *path, bool force, ln_error *err) {
    size_t n = strlen(path);
    *o = (ln_out_dir){0};
    while (n > 1 && path[n - 1] == '/') n--;
    o->path = ln_strndup(path, n);
    o->tmp = ln_alloc(n + 48);
    ln_status st = o->path && o->tmp ? LN_OK : LN_OOM(err, "a directory's name");
    if (st == LN_OK && n == 0) st = ln_fail(err, LN_EUSAGE, "the name of the directory to write is empty");
    if (st == LN_OK) st = check_target(o, force, err);
    if (st == LN_OK) {
        sweep(o->path);
        st = make_tmp(o, n + 48, err);
    }
    if (st != LN_OK) ln_out_dir_abort(o);
    return st;
}

ln_status ln_sync_dir(const char *path, ln_error *err) {
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return fail_errno(err, path, "open");
    const int bad = fsync(fd);
    const int number = errno;
    (void)close(fd);
    errno = number;
    return bad ? fail_errno(err, path, "sync") : LN_OK;
}

/* Exchanges the new directory with the old one, which then has the temporary name. */
static int exchange(const ln_out_dir *o) {
    if (ln_rename(o->tmp, o->path, LN_RENAME_EXCHANGE) == 0) return 0;
    if (errno != EINVAL && errno != ENOSYS) return -1;
    size_t n = strlen(o->tmp) + 5;
    char *aside = ln_alloc(n); /* for a file system that cannot exchange: rename twice */
    if (!aside) return -1;
    (void)snprintf(aside, n, "%s.old", o->tmp);
    int bad = rename(o->path, aside);
    if (!bad && (bad = rename(o->tmp, o->path)) != 0) (void)rename(aside, o->path);
    if (!bad) bad = rename(aside, o->tmp);
    ln_free(aside);
    return bad;
}

ln_status ln_out_dir_commit(ln_out_dir *o, ln_error *err) {
    ln_status st = LN_OK;
    (void)ln_sync_dir(o->tmp, NULL);
    if ((o->replace ? exchange(o) : rename(o->tmp, o->path)) != 0)
        st = fail_errno(err, o->path, "rename into place");
    else if (!o->replace) o->made = false;
    if (st == LN_OK) {
        char *slash = strrchr(o->path, '/');
        if (slash && slash != o->path) {
            *slash = '\0';
            (void)ln_sync_dir(o->path, NULL);
            *slash = '/';
        } else (void)ln_sync_dir(slash ? "/" : ".", NULL);
    }
    ln_out_dir_abort(o);
    return st;
}

void ln_out_dir_abort(ln_out_dir *o) {
    if (o->made) remove_tree(o->tmp);
    unlock(o);
    ln_free(o->path);
    ln_free(o->tmp);
    *o = (ln_out_dir){0};
}

ln_status ln_make_dirs(const char *path, ln_error *err) {
    const size_t n = strlen(path);
    char *part = ln_strndup(path, n), why[LN_ERRNO_TEXT], shown[LN_PATH_TEXT];
    ln_status st = LN_OK;
    if (!part) return LN_OOM(err, "a path");
    for (size_t i = 1; st == LN_OK && i <= n; i++) {
        if (path[i] && path[i] != '/') continue;
        part[i] = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST && (i == n || errno != EROFS))
            st = ln_fail(err, LN_EIO, "%s: cannot create: %s", ln_path_text(shown, part),
                         ln_errno_text(why, errno));
        part[i] = path[i];
    }
    ln_free(part);
    return st;
}
