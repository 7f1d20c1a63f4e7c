/* Finds the directory of an adapter, its chat template, and the hub id of a directory in the cache. */
#include "../base/gguf.h"
#include "io.h"
#include "directory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether a text that is no path here may be an id org/name[@rev]. */
static bool may_be_id(const char *text) {
    const char *slash = strchr(text, '/');
    return slash && slash > text && text[0] != '.' && slash[1] && !strchr(slash + 1, '/');
}

ln_status ln_find_adapter(const char *dir, char path[4096], ln_error *err) {
    char shown[LN_PATH_TEXT], text[LN_ERRNO_TEXT];
    bool found = false;
    if (realpath(dir, path)) {
        LN_TRY(ln_look_dir(path, &found, err));
        if (found) return LN_OK;
        if (ln_gguf_is_file(path)) return LN_OK;
        return ln_fail(err, LN_EINVALID,
                       "%s: expected the directory of an adapter or a GGUF file, found another file",
                       ln_path_text(shown, dir));
    }
    if (errno == ENOENT && may_be_id(dir))
        return ln_find_dir(dir, "adapter_config.json", path, LN_PATH_MAX, err);
    return ln_fail(err, LN_EIO, "%s: expected the directory of an adapter: %s", ln_path_text(shown, dir),
                   ln_errno_text(text, errno));
}

ln_status ln_adapter_template(const char *dir, char path[4096], bool *found, ln_error *err) {
    char own[LN_PATH_MAX];
    *found = false;
    LN_TRY(ln_find_adapter(dir, own, err));
    if (ln_gguf_is_file(own)) return LN_OK;
    LN_TRY(ln_path_join(path, own, "chat_template.jinja", err));
    return ln_look(path, found, err);
}

bool ln_hub_id(const char *path, ln_hub_name *out) {
    static const char models[] = "models--", below[] = "/snapshots/";
    const char *end = strstr(path, below), *from = end;
    if (!end || strchr(end + sizeof below - 1, '/')) return false;
    while (from > path && from[-1] != '/') from--;
    const size_t n = (size_t)(end - from);
    if (n <= sizeof models || n >= sizeof out->id || strncmp(from, models, sizeof models - 1) != 0)
        return false;
    (void)snprintf(out->id, sizeof out->id, "%.*s", (int)(n - sizeof models + 1), from + sizeof models - 1);
    char *mark = strstr(out->id, "--");
    if (!mark || mark == out->id || !mark[2]) return false;
    *mark = '/';
    memmove(mark + 1, mark + 2, strlen(mark + 2) + 1);
    (void)snprintf(out->revision, sizeof out->revision, "%s", end + sizeof below - 1);
    return true;
}
