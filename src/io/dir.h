/* What the files of this room share about directories: names joined with a limit, listings in a fixed order, and the look at the
 * first bytes of a file that is not what its name says. For src/io and src/convert. */
#ifndef LN_IO_DIR_H
#define LN_IO_DIR_H

#include "io.h"

#define LN_PATH_MAX 4096

/* DIR/NAME into path[LN_PATH_MAX]; LN_EINVALID when it does not fit. */
ln_status ln_path_join(char *path, const char *dir, const char *name, ln_error *err);

/* The names in a directory, without `.` and `..`, sorted by bytes. */
typedef struct ln_names {
    ln_arena arena;
    char **items;
    size_t n, cap;
} ln_names;
ln_status ln_names_read(ln_names *out, const char *dir, ln_error *err);
void ln_names_free(ln_names *names);
/* The first name with this beginning and end; NULL when there is none. */
const char *ln_names_like(const ln_names *names, const char *begin, const char *end);

bool ln_ends_with(const char *text, const char *end);

/* LN_EINVALID when the bytes are a Git LFS pointer, which stands in for a file that was never fetched. `path` as for messages. */
ln_status ln_refuse_pointer(const char *path, const char *data, size_t bytes, ln_error *err);
/* A JSON file of at most LN_CONFIG_LIMIT bytes with an object at the top: pointers are refused by name, then
 * strict parsing. */
ln_status ln_json_object_file(json_t **out, const char *path, ln_error *err);

/* Opens one tensor file and adds its tensors (unsorted) to *t. safetensors.c */
ln_status ln_tensors_add_file(ln_tensors *t, const char *path, const char *real, ln_error *err);
/* Sorts by name and refuses a name that occurs twice. safetensors.c */
ln_status ln_tensors_finish(ln_tensors *t, ln_error *err);

#endif
