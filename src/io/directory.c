/* Directories and small files: joining paths, sorted listings, JSON objects, Git LFS pointers.
 *
 * Listings are sorted by bytes, so that results that depend on their order (which shard a message names
 * first, the order of `ls`) do not depend on the file system. A Git LFS pointer is a text of a few lines that
 * a clone contains instead of a file that was not fetched. It is recognised by its first line and reported as
 * such, because any other message about it would be misleading. */
#include "directory.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ln_status ln_path_join(char *path, const char *dir, const char *name, ln_error *err) {
    size_t n = strlen(dir);
    bool slash = n > 0 && dir[n - 1] == '/';
    int len = snprintf(path, LN_PATH_MAX, "%s%s%s", dir, slash ? "" : "/", name);
    if (len >= 0 && len < LN_PATH_MAX) return LN_OK;
    char text[LN_PATH_TEXT];
    return ln_fail(err, LN_EINVALID, "%s: the path is longer than %d bytes", ln_path_text(text, dir),
                   LN_PATH_MAX - 1);
}

static int by_bytes(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

ln_status ln_names_read(ln_names *out, const char *dir, ln_error *err) {
    *out = (ln_names){0};
    DIR *d = opendir(dir);
    if (!d) {
        char text[LN_PATH_TEXT];
        return ln_fail(err, LN_EIO, "%s: cannot be listed: %s", ln_path_text(text, dir), strerror(errno));
    }
    ln_status st = LN_OK;
    for (struct dirent *e; st == LN_OK && (e = readdir(d)) != NULL;) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        st = ln_grow((void **)&out->items, &out->cap, out->n + 1, sizeof *out->items, err);
        if (st != LN_OK) break;
        char *name = ln_arena_strndup(&out->arena, e->d_name, strlen(e->d_name));
        if (!name) st = LN_OOM(err, "a directory's names");
        else out->items[out->n++] = name;
    }
    closedir(d);
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

ln_status ln_refuse_pointer(const char *path, const char *data, size_t bytes, ln_error *err) {
    static const char first[] = "version https://git-lfs";
    if (bytes < sizeof first - 1 || memcmp(data, first, sizeof first - 1) != 0) return LN_OK;
    char text[LN_PATH_TEXT];
    return ln_fail(err, LN_EINVALID,
                   "%s: this is a Git LFS pointer, not the file itself; run `git lfs pull` in the clone, or "
                   "fetch it with `hf download`",
                   ln_path_text(text, path));
}

ln_status ln_json_object_file(json_t **out, const char *path, ln_error *err) {
    char text[LN_PATH_TEXT], *data = NULL;
    size_t bytes = 0;
    json_t *root = NULL;
    *out = NULL;
    ln_path_text(text, path);
    LN_TRY(ln_read_file(path, LN_CONFIG_LIMIT, &data, &bytes, err));
    ln_status st = ln_refuse_pointer(path, data, bytes, err);
    if (st == LN_OK && bytes == 0)
        st = ln_fail(err, LN_EINVALID, "%s: the file is empty, expected a JSON object", text);
    if (st == LN_OK) st = ln_json_load(&root, text, data, bytes, err);
    ln_free(data);
    if (st == LN_OK && !json_is_object(root)) {
        json_decref(root);
        return ln_fail(err, LN_EINVALID, "%s: expected a JSON object at the top", text);
    }
    if (st == LN_OK) *out = root;
    return st;
}

ln_status ln_cannot_reach(const char *path, int number, ln_error *err) {
    char shown[LN_PATH_TEXT], why[LN_ERRNO_TEXT];
    return ln_fail(err, LN_EIO, "%s: cannot reach: %s%s", ln_path_text(shown, path),
                   ln_errno_text(why, number),
                   number == EACCES ? "; check its permissions and those of the directories above it" : "");
}
