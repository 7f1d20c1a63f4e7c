/* Files: memory-mapped for reading, read as a whole up to a limit, written atomically.
 *
 * A path is opened once, and every check and read uses the descriptor, so that the file that was checked is
 * the file that is read. Opening a FIFO or a device does not block (O_NONBLOCK), and S_ISREG rejects it
 * before anything is read. The exception is ln_read_input, which reads a file that the user names.
 *
 * Output is written to a temporary file in the target's directory. Commit syncs it and renames it to the
 * target, so that after a crash or on a full disk readers see the old file or the new one, never a part.
 * Without `force` the rename itself rejects an existing target, because the check at opening could race with
 * another writer. */
#include "file.h"
#include "os.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static ln_status fail_errno(ln_error *err, const char *path, const char *doing, int number) {
    char shown[LN_PATH_TEXT], why[LN_ERRNO_TEXT];
    ln_status code = number == ENOMEM ? LN_EMEMORY : LN_EIO;
    return ln_fail(err, code, "%s: cannot %s: %s%s", ln_path_text(shown, path), doing,
                   ln_errno_text(why, number), ln_errno_hint(number));
}

static int open_again(const char *path, int flags, mode_t mode) {
    int fd;
    do fd = open(path, flags | O_CLOEXEC | O_NOCTTY, mode);
    while (fd < 0 && errno == EINTR);
    return fd;
}

static ln_status open_regular(int *fd, struct stat *st, const char *path, ln_error *err) {
    char shown[LN_PATH_TEXT];
    *fd = open_again(path, O_RDONLY | O_NONBLOCK, 0);
    /* Opening a socket fails with ENXIO: report it as "no regular file" too. */
    if (*fd < 0 && errno != ENXIO) return fail_errno(err, path, "open", errno);
    if (*fd >= 0 && fstat(*fd, st) != 0) {
        int number = errno;
        close(*fd);
        *fd = -1;
        return fail_errno(err, path, "inspect", number);
    }
    if (*fd >= 0 && S_ISREG(st->st_mode)) return LN_OK;
    const char *kind = *fd < 0                 ? "a socket or a device without a driver"
                       : S_ISDIR(st->st_mode)  ? "a directory"
                       : S_ISFIFO(st->st_mode) ? "a FIFO"
                                               : "a device";
    if (*fd >= 0) close(*fd);
    *fd = -1;
    return ln_fail(err, LN_EINVALID, "%s: expected a regular file, found %s", ln_path_text(shown, path),
                   kind);
}

/* Whether size and modification time of the file are still those of `then`. */
static bool unchanged(int fd, const struct stat *then) {
    struct stat now;
    if (fstat(fd, &now) != 0 || now.st_size != then->st_size) return false;
    const struct timespec a = ln_os_changed(&now), b = ln_os_changed(then);
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

static ln_status read_exactly(int fd, const struct stat *info, char *to, const char *path, ln_error *err) {
    char shown[LN_PATH_TEXT];
    size_t n = 0;
    while (n < (size_t)info->st_size) {
        ssize_t got = pread(fd, to + n, (size_t)info->st_size - n, (off_t)n);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return fail_errno(err, path, "read", errno);
        if (got == 0) LN_TRY(ln_check_end(fd, n, path, err));
        if (got == 0) break;
        n += (size_t)got;
    }
    if (n == (size_t)info->st_size && unchanged(fd, info)) return LN_OK;
    return ln_fail(err, LN_ECHANGED,
                   "%s: changed while it was read; the files of a model must stay as they are",
                   ln_path_text(shown, path));
}

/* Reads the file into memory after mmap failed with errno `number`. */
static ln_status copy_file(ln_map *out, int fd, const struct stat *info, const char *path, int number,
                           ln_error *err) {
    static atomic_flag said = ATOMIC_FLAG_INIT;
    char shown[LN_PATH_TEXT], why[LN_ERRNO_TEXT];
    const uint64_t left = ln_memory_available();
    const char *reason = ln_errno_text(why, number);
    ln_path_text(shown, path);
    if ((uint64_t)info->st_size > left)
        return ln_fail(err, LN_EMEMORY,
                       "%s: this file system cannot map it (%s), and a copy needs %llu bytes, %llu are "
                       "available; copy the model to a local disk",
                       shown, reason, (unsigned long long)info->st_size, (unsigned long long)left);
    char *data = ln_alloc((size_t)info->st_size);
    if (!data) return LN_OOM(err, "a copy of a file that cannot be mapped");
    ln_status st = read_exactly(fd, info, data, path, err);
    if (st != LN_OK) {
        ln_free(data);
        return st;
    }
    *out = (ln_map){.data = (const uint8_t *)data, .bytes = (size_t)info->st_size, .copied = true};
    if (!atomic_flag_test_and_set(&said))
        ln_log(LN_LOG_WARN,
               "%s: this file system cannot map files (%s): they are read into memory instead, and "
               "ln_plan_memory counts them",
               shown, reason);
    return LN_OK;
}

ln_status ln_map_open(ln_map *out, const char *path, ln_error *err) {
    int fd;
    struct stat st;
    *out = (ln_map){0};
    LN_TRY(open_regular(&fd, &st, path, err));
    if (st.st_size == 0) {
        close(fd);
        return LN_OK;
    }
    void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    int number = errno;
    ln_status copied =
        p == MAP_FAILED && number != ENOMEM ? copy_file(out, fd, &st, path, number, err) : LN_OK;
    close(fd);
    if (p == MAP_FAILED) return number == ENOMEM ? fail_errno(err, path, "map", number) : copied;
    const struct timespec changed = ln_os_changed(&st);
    *out = (ln_map){.data = p,
                    .bytes = (size_t)st.st_size,
                    .dev = (uint64_t)st.st_dev,
                    .ino = st.st_ino,
                    .changed = {changed.tv_sec, changed.tv_nsec}};
    out->guard = ln_guard_add(p, out->bytes);
    return LN_OK;
}

void ln_map_close(ln_map *m) {
    ln_guard_drop(m->guard);
    if (m->copied) ln_free((void *)(uintptr_t)m->data);
    else if (m->data) munmap((void *)(uintptr_t)m->data, m->bytes);
    *m = (ln_map){0};
}

bool ln_map_broken(const ln_map *m) { return ln_guard_broken(m->guard); }

ln_status ln_map_check(const ln_map *m, const char *path, ln_error *err) {
    struct stat st;
    char shown[LN_PATH_TEXT];
    if (!m->data || m->copied) return LN_OK;
    bool same = stat(path, &st) == 0 && (uint64_t)st.st_dev == m->dev && st.st_ino == m->ino;
    const struct timespec changed = same ? ln_os_changed(&st) : (struct timespec){0};
    if (same && (uint64_t)st.st_size < m->bytes)
        return ln_fail(err, LN_ECHANGED,
                       "%s: changed while it was in use: it had %zu bytes and has %lld; the files of a model "
                       "must stay as they are",
                       ln_path_text(shown, path), m->bytes, (long long)st.st_size);
    if (same && ((uint64_t)st.st_size != m->bytes || changed.tv_sec != m->changed[0] ||
                 changed.tv_nsec != m->changed[1]))
        return ln_fail(err, LN_ECHANGED,
                       "%s: changed while it was in use: it was written to; the files of a model must stay "
                       "as they are",
                       ln_path_text(shown, path));
    if (ln_map_broken(m))
        return ln_fail(err, LN_ECHANGED,
                       "%s: changed while it was in use, or could not be read; the files of a model must "
                       "stay as they are",
                       ln_path_text(shown, path));
    return LN_OK;
}

ln_status ln_check_end(int fd, uint64_t at, const char *path, ln_error *err) {
    struct stat st;
    char shown[LN_PATH_TEXT];
    if (fstat(fd, &st) != 0) return fail_errno(err, path, "inspect", errno);
    if (!S_ISREG(st.st_mode) || at >= (uint64_t)st.st_size || ln_os_size_is_guess(fd)) return LN_OK;
    return ln_fail(err, LN_EIO,
                   "%s: cannot read: it has %lld bytes, and reading stopped after %llu; check the disk or "
                   "the "
                   "network mount that it is on",
                   ln_path_text(shown, path), (long long)st.st_size, (unsigned long long)at);
}

/* Reads the whole file. Its size is only a hint (files of /proc and /sys report 0 or 4096). */
static ln_status read_fd(int fd, const char *path, size_t hint, size_t limit, char **data, size_t *bytes,
                         ln_error *err) {
    char shown[LN_PATH_TEXT];
    void *buf = NULL;
    size_t cap = 0, n = 0;
    ln_status st = LN_OK;
    LN_GO(ln_grow(&buf, &cap, LN_MIN(hint, limit) + 2, 1, err));
    for (;;) {
        ssize_t got = read(fd, (char *)buf + n, cap - n - 1);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            st = fail_errno(err, path, "read", errno);
            goto out;
        }
        if (got == 0) break;
        n += (size_t)got;
        if (n > limit) {
            st = ln_fail(err, LN_EINVALID, "%s: more than the %zu bytes allowed for such a file",
                         ln_path_text(shown, path), limit);
            goto out;
        }
        if (cap - n < 2) LN_GO(ln_grow(&buf, &cap, cap + 4096, 1, err));
    }
    const off_t at = lseek(fd, 0, SEEK_CUR); /* a descriptor of the caller may begin anywhere */
    if (at >= 0) LN_GO(ln_check_end(fd, (uint64_t)at, path, err));
    ((char *)buf)[n] = '\0';
    *data = buf;
    *bytes = n;
    return LN_OK;
out:
    ln_free(buf);
    return st;
}

ln_status ln_read_file(const char *path, size_t limit, char **data, size_t *bytes, ln_error *err) {
    int fd;
    struct stat info;
    char shown[LN_PATH_TEXT];
    *data = NULL;
    *bytes = 0;
    LN_TRY(open_regular(&fd, &info, path, err));
    ln_status st = LN_OK;
    if ((uint64_t)info.st_size > limit)
        st = ln_fail(err, LN_EINVALID, "%s: %llu bytes, more than the %zu allowed for such a file",
                     ln_path_text(shown, path), (unsigned long long)info.st_size, limit);
    else st = read_fd(fd, path, (size_t)info.st_size, limit, data, bytes, err);
    close(fd);
    return st;
}

ln_status ln_read_stream(int fd, const char *name, size_t limit, char **data, size_t *bytes, ln_error *err) {
    *data = NULL;
    *bytes = 0;
    return read_fd(fd, name, 4096, limit, data, bytes, err);
}

/* The descriptor that a path under /dev or /proc/self/fd refers to, or -1. Needed because a socket or the
 * terminal of another user cannot be opened by that path. */
static int named_descriptor(const char *path) {
    static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
    int64_t fd;
    if (strcmp(path, "/dev/stdin") == 0) return STDIN_FILENO;
    for (size_t i = 0; i < LN_COUNT(folders); i++) {
        size_t n = strlen(folders[i]);
        if (strncmp(path, folders[i], n) == 0 && ln_parse_i64(path + n, strlen(path + n), &fd) && fd >= 0 &&
            fd <= INT_MAX)
            return (int)fd;
    }
    return -1;
}

ln_status ln_open_input(const char *path, int *fd, ln_error *err) {
    struct stat info;
    char shown[LN_PATH_TEXT];
    int number, named = named_descriptor(path);
    *fd = open_again(path, O_RDONLY, 0), number = errno;
    if (*fd < 0 && named >= 0) *fd = fcntl(named, F_DUPFD_CLOEXEC, 3);
    if (*fd < 0) return fail_errno(err, path, "open", number);
    ln_status st = LN_OK;
    if (fstat(*fd, &info) != 0) st = fail_errno(err, path, "inspect", errno);
    else if (S_ISDIR(info.st_mode))
        st = ln_fail(err, LN_EINVALID, "%s: expected a file, a pipe or a device, found a directory",
                     ln_path_text(shown, path));
    if (st == LN_OK) return LN_OK;
    close(*fd);
    *fd = -1;
    return st;
}

ln_status ln_read_input(const char *path, size_t limit, char **data, size_t *bytes, ln_error *err) {
    struct stat info;
    char shown[LN_PATH_TEXT];
    int fd;
    *data = NULL;
    *bytes = 0;
    LN_TRY(ln_open_input(path, &fd, err));
    ln_status st = LN_OK;
    if (fstat(fd, &info) != 0) st = fail_errno(err, path, "inspect", errno);
    else if (S_ISREG(info.st_mode) && (uint64_t)info.st_size > limit)
        st = ln_fail(err, LN_EINVALID, "%s: %llu bytes, more than the %zu allowed for such a file",
                     ln_path_text(shown, path), (unsigned long long)info.st_size, limit);
    else st = read_fd(fd, path, S_ISREG(info.st_mode) ? (size_t)info.st_size : 4096, limit, data, bytes, err);
    close(fd);
    return st;
}

static ln_status look(const char *path, struct stat *st, bool *there, ln_error *err) {
    *there = stat(path, st) == 0;
    if (*there || errno == ENOENT || errno == ENOTDIR || errno == ENAMETOOLONG) return LN_OK;
    return fail_errno(err, path, "reach", errno);
}

ln_status ln_look(const char *path, bool *there, ln_error *err) {
    struct stat st;
    return look(path, &st, there, err);
}

ln_status ln_look_dir(const char *path, bool *is_dir, ln_error *err) {
    struct stat st;
    LN_TRY(look(path, &st, is_dir, err));
    *is_dir = *is_dir && S_ISDIR(st.st_mode);
    return LN_OK;
}

bool ln_exists(const char *path) {
    bool there;
    return ln_look(path, &there, &(ln_error){0}) == LN_OK && there;
}

bool ln_is_dir(const char *path) {
    bool is_dir;
    return ln_look_dir(path, &is_dir, &(ln_error){0}) == LN_OK && is_dir;
}

bool ln_is_stream(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode));
}

/* ---- writing ---- */

enum { OUT_BUFFER = 1 << 16 };

/* Sets o->path to the file to be replaced: `path` itself, or the target of a symbolic link. Rejects an
 * existing target without `force`. */
static ln_status out_target(ln_out *o, const char *path, bool force, ln_error *err) {
    struct stat st;
    char shown[LN_PATH_TEXT];
    char *real = NULL;
    if (path[0] == '\0') return fail_errno(err, path, "create a file without a name", ENOENT);
    if (lstat(path, &st) == 0) {
        if (S_ISLNK(st.st_mode)) {
            real = realpath(path, NULL);
            if (!real) return fail_errno(err, path, "follow the link", errno);
            if (stat(real, &st) != 0) st.st_mode = 0;
        }
        if (!S_ISREG(st.st_mode) || !force) {
            free(real);
            return S_ISREG(st.st_mode)
                       ? ln_fail(err, LN_EIO, "%s: exists already; ln_quantize_options.force overwrites it",
                                 ln_path_text(shown, path))
                       : ln_fail(err, LN_EIO, "%s: is not a regular file; name another one to write to",
                                 ln_path_text(shown, path));
        }
    } else if (errno != ENOENT) {
        return fail_errno(err, path, "create", errno);
    }
    const char *target = real ? real : path;
    o->path = ln_strndup(target, strlen(target));
    free(real);
    return o->path ? LN_OK : LN_OOM(err, "a file name");
}

ln_status ln_out_open(ln_out *o, const char *path, bool force, ln_error *err) {
    return ln_out_open_as(o, path, force, 0666, err);
}

ln_status ln_out_try(const char *path, bool force, ln_error *err) {
    ln_out o;
    LN_TRY(ln_out_open(&o, path, force, err));
    ln_out_abort(&o);
    return LN_OK;
}

ln_status ln_out_open_as(ln_out *o, const char *path, bool force, unsigned mode, ln_error *err) {
    static _Atomic unsigned serial;
    *o = (ln_out){.fd = -1};
    ln_status st = out_target(o, path, force, err);
    if (st != LN_OK) goto out;
    size_t n = strlen(o->path) + 48;
    o->tmp = ln_alloc(n);
    o->buf = ln_alloc(OUT_BUFFER);
    if (!o->tmp || !o->buf) {
        st = LN_OOM(err, "a write buffer");
        goto out;
    }
    for (int tries = 0; tries < 100 && o->fd < 0; tries++) {
        (void)snprintf(o->tmp, n, "%s.%ld-%u.tmp", o->path, (long)getpid(), atomic_fetch_add(&serial, 1));
        o->fd = open_again(o->tmp, O_WRONLY | O_CREAT | O_EXCL, (mode_t)mode);
        if (o->fd < 0 && errno != EEXIST) break;
    }
    if (o->fd < 0) {
        st = fail_errno(err, path, "create", errno);
        ln_free(o->tmp); /* there is no temporary file to remove */
        o->tmp = NULL;
        goto out;
    }
    o->force = force;
    return LN_OK;
out:
    ln_out_abort(o);
    return st;
}

static ln_status write_all(ln_out *o, const char *p, size_t n, ln_error *err) {
    while (n > 0) {
        ssize_t done = write(o->fd, p, n);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return fail_errno(err, o->path, "write", errno);
        p += done;
        n -= (size_t)done;
    }
    return LN_OK;
}

static ln_status flush(ln_out *o, ln_error *err) {
    size_t n = o->n_buf;
    o->n_buf = 0;
    return write_all(o, o->buf, n, err);
}

ln_status ln_out_write(ln_out *o, const void *data, size_t bytes, ln_error *err) {
    if (o->fd < 0) return ln_fail(err, LN_EUSAGE, "writing to a file that is not open");
    if (bytes > OUT_BUFFER - o->n_buf) LN_TRY(flush(o, err));
    if (bytes >= OUT_BUFFER) {
        LN_TRY(write_all(o, data, bytes, err));
    } else if (bytes) {
        memcpy(o->buf + o->n_buf, data, bytes);
        o->n_buf += bytes;
    }
    o->written += bytes;
    return LN_OK;
}

ln_status ln_out_at(const ln_out *o, uint64_t at, const void *data, size_t bytes, ln_error *err) {
    const char *p = data;
    while (bytes > 0) {
        ssize_t done = pwrite(o->fd, p, bytes, (off_t)at);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return fail_errno(err, o->path, "write", errno);
        p += done;
        at += (uint64_t)done;
        bytes -= (size_t)done;
    }
    return LN_OK;
}

/* Renames the temporary file to the target. Without `force` it must not replace a file: RENAME_NOREPLACE, or
 * a hard link if the file system does not support that flag. */
static int give_name(const ln_out *o) {
    if (o->force) return rename(o->tmp, o->path);
    if (ln_rename(o->tmp, o->path, LN_RENAME_NOREPLACE) == 0) return 0;
    if (errno != EINVAL && errno != ENOSYS) return -1;
    if (link(o->tmp, o->path) != 0) return -1;
    return unlink(o->tmp);
}

/* Syncs the directory, so that the rename is durable. A file system that cannot sync directories is not an
 * error. */
static void sync_directory(const char *path) {
    const char *slash = strrchr(path, '/');
    char *dir = slash ? ln_strndup(path, LN_MAX((size_t)(slash - path), (size_t)1)) : ln_strndup(".", 1);
    int fd = dir ? open_again(dir, O_RDONLY | O_DIRECTORY, 0) : -1;
    if (fd >= 0) {
        (void)fsync(fd);
        close(fd);
    }
    ln_free(dir);
}

ln_status ln_out_commit(ln_out *o, ln_error *err) {
    if (o->fd < 0) return ln_fail(err, LN_EUSAGE, "committing a file that is not open");
    ln_status st = flush(o, err);
    if (st == LN_OK && fsync(o->fd) != 0) st = fail_errno(err, o->path, "write", errno);
    int fd = o->fd;
    o->fd = -1;
    if (close(fd) != 0 && st == LN_OK) st = fail_errno(err, o->path, "write", errno);
    if (st == LN_OK && give_name(o) != 0)
        st = fail_errno(err, o->path,
                        errno == EEXIST ? "create without ln_quantize_options.force" : "rename into place",
                        errno);
    if (st == LN_OK) {
        ln_free(o->tmp);
        o->tmp = NULL;
        sync_directory(o->path);
    }
    ln_out_abort(o);
    return st;
}

void ln_out_abort(ln_out *o) {
    if (!o->path) return; /* a zeroed struct: fd 0 is not its descriptor */
    if (o->fd >= 0) close(o->fd);
    if (o->tmp) (void)unlink(o->tmp);
    ln_free(o->path);
    ln_free(o->tmp);
    ln_free(o->buf);
    *o = (ln_out){.fd = -1};
}
