/* Files: memory-mapped for reading, read as a whole up to a limit, written atomically.
 *
 * Opening never blocks and never opens a device: O_NONBLOCK | O_CLOEXEC, then S_ISREG is checked. Every
 * error message names the path (escaped) and the reason. ENOENT, EACCES, EIO and the like are LN_EIO, a path
 * that is not a regular file is LN_EINVALID, ENOMEM is LN_EMEMORY. Only ln_read_input, which never opens the
 * files of a model, reads pipes and devices. */
#ifndef LN_FILE_H
#define LN_FILE_H

#include "base.h"

/* A file mapped read-only. Some file systems (FUSE, 9p, network mounts) cannot map files; then the file is
 * read into memory as a whole, which is logged once per process. Later changes of the file do not affect such
 * a copy, and it needs no SIGBUS guard. */
typedef struct ln_map {
    const uint8_t *data; /* NULL for an empty file */
    size_t bytes;
    uint64_t dev, ino;  /* identity of the mapped file */
    int64_t changed[2]; /* its modification time: seconds, nanoseconds */
    int guard;
    bool copied; /* data is allocated memory, not a mapping */
} ln_map;

/* Maps a regular file and guards the mapping (ln_guard_add). *out is released with ln_map_close. LN_EMEMORY
 * if neither a mapping nor a copy fits. */
ln_status ln_map_open(ln_map *out, const char *path, ln_error *err);
void ln_map_close(ln_map *m);
/* LN_ECHANGED if the file was truncated or written to since it was mapped: values computed from it are
 * invalid. A different file that now has the same path is not an error. */
ln_status ln_map_check(const ln_map *m, const char *path, ln_error *err);
/* The part of ln_map_check that needs no system call: whether an access touched a page that no longer exists
 * (ln_guard_install). */
bool ln_map_broken(const ln_map *m);

/* The SIGBUS guard (sigbus_guard.c). With the handler installed, lost pages of a guarded mapping read as
 * zeros and the mapping is marked broken; without it the process dies. Installed once per process; further
 * calls do nothing. Every other SIGBUS is passed on to the previous handler. LN_EIO if the handler cannot be
 * installed. */
ln_status ln_guard_install(ln_error *err);
int ln_guard_add(const void *data, size_t bytes); /* returns a handle; 0: the table is full, not guarded */
void ln_guard_drop(int guard);
bool ln_guard_broken(int guard);
/* If [data, data + bytes) is part of a guarded mapping: fetch faults its pages in at once, release drops them
 * from memory until they are accessed again. Both are hints. */
void ln_guard_fetch(const void *data, size_t bytes);
void ln_guard_release(const void *data, size_t bytes);

/* Reads a whole file of at most `limit` bytes (LN_EINVALID if it is longer). *data has a NUL after its *bytes
 * bytes; the caller releases it with ln_free. */
ln_status ln_read_file(const char *path, size_t limit, char **data, size_t *bytes, ln_error *err);

/* The same for a file that the user names: a pipe or a device (/dev/stdin, <(command)) is read to its end
 * too, and opening a FIFO waits for its writer. */
ln_status ln_read_input(const char *path, size_t limit, char **data, size_t *bytes, ln_error *err);

/* The same from an open descriptor, for example of a pipe; `name` is for messages. */
ln_status ln_read_stream(int fd, const char *name, size_t limit, char **data, size_t *bytes, ln_error *err);

/* LN_OK if a read of 0 bytes at offset `at` is the end of what `fd` refers to. LN_EIO if it is a regular file
 * that has more (a failing disk or network mount). */
ln_status ln_check_end(int fd, uint64_t at, const char *path, ln_error *err);

/* Opens a file that the user names for reading, which may be a pipe or a device (/dev/stdin, <(command)); the
 * caller closes *fd. Opening a FIFO waits for its writer. LN_EINVALID: a directory. */
ln_status ln_open_input(const char *path, int *fd, ln_error *err);

/* Whether `path` exists, or is a directory. A missing name, a path component that is not a directory and a
 * name that is too long give false. If the system cannot tell (no permission, a loop of symbolic links),
 * LN_EIO with the reason. */
ln_status ln_look(const char *path, bool *there, ln_error *err);
ln_status ln_look_dir(const char *path, bool *is_dir, ln_error *err);
/* The same without the reason: false if the system cannot tell. */
bool ln_exists(const char *path);
bool ln_is_dir(const char *path);
bool ln_is_stream(const char *path); /* a FIFO or a character device */

/* A file that is written under a temporary name in the target's directory and renamed when it is complete:
 * open, write, then commit (fsync, rename, fsync of the directory) or abort, which removes the temporary
 * file. Open and commit fail with LN_EIO if the target exists, unless `force`. */
typedef struct ln_out {
    int fd;
    char *path, *tmp;
    char *buf;
    size_t n_buf;
    uint64_t written;
    bool force;
} ln_out;
ln_status ln_out_open(ln_out *o, const char *path, bool force, ln_error *err);
/* The same for a file with these permissions: 0600 for what other users may not read. */
ln_status ln_out_open_as(ln_out *o, const char *path, bool force, unsigned mode, ln_error *err);
/* Opens the file as ln_out_open does, and removes the temporary file again: whether the file may be written
 * is known before the work whose result it gets. */
ln_status ln_out_try(const char *path, bool force, ln_error *err);
ln_status ln_out_write(ln_out *o, const void *data, size_t bytes, ln_error *err);
/* Writes at offset `at`, which must be beyond everything that ln_out_write wrote. Threads may call it
 * concurrently for disjoint ranges. */
ln_status ln_out_at(const ln_out *o, uint64_t at, const void *data, size_t bytes, ln_error *err);
ln_status ln_out_commit(ln_out *o, ln_error *err);
void ln_out_abort(ln_out *o); /* does nothing after commit and on a zeroed struct */

/* Renames and, as `how` says, fails with EEXIST if `to` exists, or exchanges the two (os_linux.c). */
enum { LN_RENAME_NOREPLACE = 1, LN_RENAME_EXCHANGE = 2 };
int ln_rename(const char *from, const char *to, unsigned how);

/* A directory that is written in the same way (output_dir.c): the caller fills the directory `tmp`; commit
 * renames it to `path`. An existing target that is not empty is LN_EIO, unless `force` is set and it is a
 * model directory, which is then replaced. Opening removes, and logs, what killed processes have left of the
 * same target. */
typedef struct ln_out_dir {
    char *path, *tmp;
    bool made, replace;
    bool locked; /* `lock` is a descriptor of `tmp`, which is locked as long as it is open */
    int lock;
} ln_out_dir;
/* Creates a directory, and the ones above it that do not exist. LN_EIO: the message names the one that cannot
 * be created. */
ln_status ln_make_dirs(const char *path, ln_error *err);
/* Writes the entries of a directory to the disk: names that were given or taken. LN_EIO. */
ln_status ln_sync_dir(const char *path, ln_error *err);
ln_status ln_out_dir_open(ln_out_dir *o, const char *path, bool force, ln_error *err);
ln_status ln_out_dir_commit(ln_out_dir *o, ln_error *err);
void ln_out_dir_abort(ln_out_dir *o); /* does nothing after commit and on a zeroed struct */

#endif
