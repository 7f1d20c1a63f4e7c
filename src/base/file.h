/* Files: mapped for reading, read whole under a limit, written whole or not at all.
 *
 * Opening never blocks and never follows a device: O_NONBLOCK | O_CLOEXEC, then S_ISREG is checked. Every
 * error names the path (escaped) and the reason: ENOENT, EACCES, EIO -> LN_EIO; not a regular file ->
 * LN_EINVALID. ln_read_input alone reads pipes and devices: a model's files never lead to one. */
#ifndef LN_FILE_H
#define LN_FILE_H

#include "base.h"

/* Some file systems (FUSE, 9p, network mounts) cannot map files: then the file is read into memory as a
 * whole, which the log says once.
 * Such a copy does not change with the file and is not guarded. */
typedef struct ln_map {
    const uint8_t *data; /* NULL for an empty file */
    size_t bytes;
    uint64_t dev, ino;   /* the file that was mapped */
    int64_t changed[2];  /* and when it was written last: seconds, nanoseconds */
    int guard;
    bool copied;         /* data is such a copy */
} ln_map;

ln_status ln_map_open(ln_map *out, const char *path, ln_error *err);
void ln_map_close(ln_map *m);
/* LN_ECHANGED when the file was cut short or written to since it was mapped: what was read from it means nothing. Another file under
 * the same name is none of our business. */
ln_status ln_map_check(const ln_map *m, const char *path, ln_error *err);
/* The part of it that needs no system call: a page was touched that is not there (see ln_guard_install). */
bool ln_map_broken(const ln_map *m);

/* guard.c: with the handler of SIGBUS installed, pages of a mapping that are lost read as zeros and the mapping is broken; without, the
 * process dies of them. Once per process; SIGBUS of other origin goes to the handler that was there before. */
ln_status ln_guard_install(ln_error *err);
int ln_guard_add(const void *data, size_t bytes); /* 0: not guarded */
void ln_guard_drop(int guard);
bool ln_guard_broken(int guard);
/* Where [data, data + bytes) lies in a mapping: maps its pages at once; gives its memory back, to be read from the file again when it is
 * touched again. */
void ln_guard_fetch(const void *data, size_t bytes);
void ln_guard_release(const void *data, size_t bytes);

/* Reads a whole file of at most `limit` bytes; *data is terminated with a NUL beyond *bytes; ln_free it. */
ln_status ln_read_file(const char *path, size_t limit, char **data, size_t *bytes, ln_error *err);

/* The same for a text or a list that a person names: a pipe or a device (/dev/stdin, <(command)) is read to
 * its end too, and opening a FIFO waits for its writer. */
ln_status ln_read_input(const char *path, size_t limit, char **data, size_t *bytes, ln_error *err);

/* Reads an open descriptor (a pipe, say) to its end in the same way; `name` is for messages. */
ln_status ln_read_stream(int fd, const char *name, size_t limit, char **data, size_t *bytes, ln_error *err);

/* Whether there is something at `path`, or a directory. No such name, a component that is no directory and a
 * name that is too long are
 * answers; whatever else keeps the system from telling (no permission on the way there, a circle of links)
 * is LN_EIO with the reason. */
ln_status ln_look(const char *path, bool *there, ln_error *err);
ln_status ln_look_dir(const char *path, bool *is_dir, ln_error *err);
/* The same for those who need no reason: false when the system cannot tell. */
bool ln_exists(const char *path);
bool ln_is_dir(const char *path);
bool ln_is_stream(const char *path); /* a pipe or a device of characters */

/* A file written beside its name and renamed when complete: open, write, commit (fsync, rename, fsync of the directory).
 * Without commit, abort removes it. An existing target is refused unless `force`. */
typedef struct ln_out {
    int fd;
    char *path, *tmp;
    char *buf;
    size_t n_buf;
    uint64_t written;
    bool force;
} ln_out;
ln_status ln_out_open(ln_out *o, const char *path, bool force, ln_error *err);
ln_status ln_out_write(ln_out *o, const void *data, size_t bytes, ln_error *err);
/* Writes at a place of its own, beyond what ln_out_write wrote; threads may do so at the same time. */
ln_status ln_out_at(const ln_out *o, uint64_t at, const void *data, size_t bytes, ln_error *err);
ln_status ln_out_commit(ln_out *o, ln_error *err);
void ln_out_abort(ln_out *o); /* fine after commit, and on a zeroed struct */

/* renameat2 by its number: musl has neither it nor its flags. */
enum { LN_RENAME_NOREPLACE = 1, LN_RENAME_EXCHANGE = 2 };
int ln_rename(const char *from, const char *to, unsigned how);

/* The same for a directory (out_dir.c): fill `tmp`, then commit gives it its name. A target that exists and is not empty is refused;
 * with `force`, unless it is a model's directory, which is replaced. */
typedef struct ln_out_dir {
    char *path, *tmp;
    bool made, replace;
} ln_out_dir;
ln_status ln_out_dir_open(ln_out_dir *o, const char *path, bool force, ln_error *err);
ln_status ln_out_dir_commit(ln_out_dir *o, ln_error *err);
void ln_out_dir_abort(ln_out_dir *o); /* fine after commit, and on a zeroed struct */

#endif
