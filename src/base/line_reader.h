/* Reads a file line by line in a buffer that grows to the longest line. Only LF ends a line. */
#ifndef LN_LINE_READER_H
#define LN_LINE_READER_H

#include "base.h"

typedef struct ln_lines {
    int fd;
    const char *path; /* for messages; borrowed */
    size_t most;      /* bytes of the longest line that is read */
    char *buf;
    size_t cap, n, at; /* buf[at, n) was read and not yet given */
    uint64_t offset;   /* of buf[at] in the file */
    uint64_t number;   /* of the line that was given last, from 1 */
    bool ended;
} ln_lines;

/* `fd`, which stays the caller's, is read from its beginning; a pipe or a device from where it is. */
void ln_lines_open(ln_lines *l, int fd, const char *path, size_t most);
void ln_lines_close(ln_lines *l);
/* Reads the next line, without its newline; *line is NULL at the end of the file. *whole: a newline ends it.
 * The text has a NUL after it and is valid until the next call. LN_EINVALID: a line is too long. LN_EIO,
 * LN_EMEMORY. */
ln_status ln_lines_next(ln_lines *l, char **line, size_t *bytes, uint64_t *offset, bool *whole,
                        ln_error *err);
/* Stores in *data the bytes that are read and not yet given, after reading more if there are none; *bytes 0:
 * the file has ended. Valid until the next call. LN_EIO, LN_EMEMORY. */
ln_status ln_lines_held(ln_lines *l, const char **data, size_t *bytes, ln_error *err);
/* Passes over bytes that ln_lines_held stored; lines that end in them are counted. */
void ln_lines_skip(ln_lines *l, size_t bytes);

#endif
