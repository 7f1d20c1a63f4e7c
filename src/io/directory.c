/* Directories and small files: joining paths, JSON objects, Git LFS pointers.
 *
 * A Git LFS pointer is a text of a few lines that a clone contains instead of a file that was not fetched. It
 * is recognised by its first line and reported as such, because any other message about it would be
 * misleading. */
#include "directory.h"

#include <errno.h>
#include <stdio.h>
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
    ln_status st = LN_OK;
    if (!(root = ln_json_memo_get(path))) {
        LN_TRY(ln_read_file(path, LN_CONFIG_LIMIT, &data, &bytes, err));
        st = ln_refuse_pointer(path, data, bytes, err);
        if (st == LN_OK && bytes == 0)
            st = ln_fail(err, LN_EINVALID, "%s: the file is empty, expected a JSON object", text);
        if (st == LN_OK) st = ln_json_load(&root, text, data, bytes, err);
        ln_free(data);
        if (st == LN_OK) ln_json_memo_put(path, root);
    }
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
                   ln_errno_text(why, number), ln_errno_hint(number));
}
