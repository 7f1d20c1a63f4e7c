/* Listings of directories. */
#ifndef LN_DIR_NAMES_H
#define LN_DIR_NAMES_H

#include "base.h"

/* The names in a directory without `.` and `..`, sorted by bytes. Release with ln_names_free. */
typedef struct ln_names {
    ln_arena arena;
    char **items;
    size_t n, cap;
} ln_names;
/* Lists the directory. LN_EIO if it cannot be listed to its end; *out is empty then. */
ln_status ln_names_read(ln_names *out, const char *dir, ln_error *err);
void ln_names_free(ln_names *names);
/* Returns the first name with the given beginning and end; NULL if no name has both. */
const char *ln_names_like(const ln_names *names, const char *begin, const char *end);

bool ln_ends_with(const char *text, const char *end);

#endif
