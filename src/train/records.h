/* The samples of a file of training data, as the text of one JSON object each: lines of JSONL, items of one
 * JSON array, rows of a table (CSV, TSV). Internal to train/. */
#ifndef LN_RECORDS_H
#define LN_RECORDS_H

#include "../base/line_reader.h"
#include "../base/sha256.h"

typedef enum train_layout { TRAIN_LINES, TRAIN_ARRAY, TRAIN_TABLE } train_layout;

typedef struct train_records {
    ln_lines lines;
    train_layout layout;
    ln_sha256 digest; /* of all bytes that were read */
    ln_str text;      /* of the record that was read last, if it is no line */
    uint64_t line;    /* in which it begins, from 1 */
    bool began, ended;
    char separator; /* of a table's columns */
    ln_str names;   /* names of a table's columns, each with a NUL after it */
    size_t n_columns;
    ln_str cells; /* of one row, each with a NUL after it */
} train_records;

/* `fd` and `path` are the caller's until train_records_close. */
void train_records_open(train_records *r, int fd, const char *path);
void train_records_close(train_records *r);
/* Reads the next record; *text is NULL at the end of the file. The text is valid until the next call. *bad:
 * this record is no object that can be read, and reading goes on behind it; code LN_OK otherwise.
 * LN_EINVALID: the file as a whole is malformed. LN_EUNSUPPORTED: it has another format, such as Parquet.
 * LN_EIO, LN_EMEMORY. */
ln_status train_records_next(train_records *r, char **text, size_t *bytes, ln_error *bad, ln_error *err);

#endif
