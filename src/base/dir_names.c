/* Listings of directories, sorted by bytes, so that results that depend on their order (which shard a message
 * names first, the order of `ls`) do not depend on the file system.
 *
 * readdir returns NULL at the end and on an error. A listing that fails in the middle (a failing disk, NFS)
 * is an error as a whole: a directory that was copied from a part of its names would lack files in silence.
 */
#include "dir_names.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int by_bytes(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static ln_status cannot_list(const char *dir, int number, ln_error *err) {
    char text[LN_PATH_TEXT], why[LN_ERRNO_TEXT];
    return ln_fail(err, LN_EIO, "%s: cannot be listed: %s%s", ln_path_text(text, dir),
                   ln_errno_text(why, number), ln_errno_hint(number));
}

static ln_status add_name(ln_names *out, const char *name, ln_error *err) {
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) return LN_OK;
    LN_TRY(ln_grow((void **)&out->items, &out->cap, out->n + 1, sizeof *out->items, err));
    char *copy = ln_arena_strndup(&out->arena, name, strlen(name));
    if (!copy) return LN_OOM(err, "a directory's names");
    out->items[out->n++] = copy;
    return LN_OK;
}

static ln_status add_names(ln_names *out, DIR *d, const char *dir, ln_error *err) {
    for (;;) {
        errno = 0;
        const struct dirent *e = readdir(d);
        if (!e) return errno ? cannot_list(dir, errno, err) : LN_OK;
        LN_TRY(add_name(out, e->d_name, err));
    }
}

ln_status ln_names_read(ln_names *out, const char *dir, ln_error *err) {
    *out = (ln_names){0};
    DIR *d = opendir(dir);
    if (!d) return cannot_list(dir, errno, err);
    const ln_status st = add_names(out, d, dir, err);
    (void)closedir(d);
    if (st != LN_OK) ln_names_free(out);
    else if (out->n > 1) qsort(out->items, out->n, sizeof *out->items, by_bytes);
    return st;
}

void ln_names_free(ln_names *names) {
    ln_arena_free(&names->arena);
    ln_free(names->items);
    *names = (ln_names){0};
}

bool ln_ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && memcmp(text + n - m, end, m) == 0;
}

const char *ln_names_like(const ln_names *names, const char *begin, const char *end) {
    size_t least = strlen(begin) + strlen(end);
    for (size_t i = 0; i < names->n; i++)
        if (strlen(names->items[i]) >= least && strncmp(names->items[i], begin, strlen(begin)) == 0 &&
            ln_ends_with(names->items[i], end))
            return names->items[i];
    return NULL;
}
