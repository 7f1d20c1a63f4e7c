/* Files: mapped for reading, read whole under a limit, written whole or not at all.
 *
 * Opening never blocks and never follows a device: O_NONBLOCK | O_CLOEXEC, then S_ISREG is checked. Every error names the path
 * (escaped) and the reason: ENOENT, EACCES, EIO -> LN_EIO; not a regular file -> LN_EINVALID. */
#ifndef LN_FILE_H
#define LN_FILE_H

#include "base.h"

typedef struct ln_map {
    const uint8_t *data; /* NULL for an empty file */
    size_t bytes;
} ln_map;

ln_status ln_map_open(ln_map *out, const char *path, ln_error *err);
void ln_map_close(ln_map *m);

/* Reads a whole file of at most `limit` bytes; *data is terminated with a NUL beyond *bytes; ln_free it. */
ln_status ln_read_file(const char *path, size_t limit, char **data, size_t *bytes, ln_error *err);

/* Reads an open descriptor (a pipe, say) to its end in the same way; `name` is for messages. */
ln_status ln_read_stream(int fd, const char *name, size_t limit, char **data, size_t *bytes, ln_error *err);

bool ln_exists(const char *path);
bool ln_is_dir(const char *path);

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
ln_status ln_out_commit(ln_out *o, ln_error *err);
void ln_out_abort(ln_out *o); /* fine after commit, and on a zeroed struct */

#endif
