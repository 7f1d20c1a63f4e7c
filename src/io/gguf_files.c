/* Finds GGUF files: in a directory, and among ollama's, whose manifests name them by digest. */
#include "gguf_files.h"

#include "../base/c_locale.h"
#include "../base/gguf.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool ln_gguf_is_choice(const char *name) {
    unsigned number = 1, count;
    const size_t n = strlen(name);
    if (n <= 5 || name[n - 5] != '.' || !ln_same_ascii(name + n - 4, "gguf")) return false;
    for (size_t i = 0; i + 6 <= n; i++)
        if (strncmp(name + i, "mmproj", 6) == 0 || strncmp(name + i, "MMPROJ", 6) == 0) return false;
    return !ln_gguf_split_name(name, &number, &count) || number == 1;
}

/* Lists a directory; *names is empty if it cannot be listed, which is reported by who needs another file. */
static ln_status list(ln_names *names, const char *dir, ln_error *err) {
    ln_error why = {0};
    const ln_status st = ln_names_read(names, dir, &why);
    return st == LN_EMEMORY ? ln_fail(err, st, "%s", why.message) : LN_OK;
}

ln_status ln_gguf_alone(const char *dir, bool *yes, ln_error *err) {
    ln_names names;
    LN_TRY(list(&names, dir, err));
    *yes = ln_names_like(&names, "", ".gguf") != NULL && !ln_names_like(&names, "", ".safetensors");
    ln_names_free(&names);
    return LN_OK;
}

/* The message for a directory with several GGUF files. */
static ln_status refuse_several(const char *dir, const ln_names *names, ln_error *err) {
    char shown[LN_PATH_TEXT], one[80];
    ln_str list = {0};
    size_t n = 0;
    const char *first = "";
    for (size_t i = 0; i < names->n; i++) {
        if (!ln_gguf_is_choice(names->items[i])) continue;
        if (n == 0) first = names->items[i];
        if (n++ < 8)
            ln_str_addf(&list, "%s%s", n > 1 ? ", " : "",
                        ln_excerpt(one, names->items[i], strlen(names->items[i])));
    }
    const ln_status st = ln_fail(err, LN_EINVALID, "%s: %zu GGUF files: %s%s; name one of them: %s/%s",
                                 ln_path_text(shown, dir), n, list.data ? list.data : "",
                                 n > 8 ? ", ..." : "", shown, ln_excerpt(one, first, strlen(first)));
    ln_str_free(&list);
    return st;
}

ln_status ln_gguf_choose(char *path, bool *found, ln_error *err) {
    char file[LN_PATH_MAX];
    ln_names names;
    const char *one = NULL;
    size_t n = 0;
    *found = false;
    LN_TRY(list(&names, path, err));
    for (size_t i = 0; i < names.n; i++)
        if (ln_gguf_is_choice(names.items[i])) one = names.items[i], n++;
    ln_status st = n > 1 ? refuse_several(path, &names, err) : LN_OK;
    if (n == 1) st = ln_path_join(file, path, one, err);
    ln_names_free(&names);
    if (st != LN_OK || n == 0) return st;
    memcpy(path, file, strlen(file) + 1);
    *found = true;
    return LN_OK;
}

/* ---- ollama ---- */

/* Whether the text is safe as a component of a path. */
static bool is_part(const char *s, size_t n) {
    static const char word[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
    return n > 0 && n < 200 && s[0] != '.' && s[0] != '-' && strspn(s, word) >= n;
}

/* The folders in which ollama may keep its models: the one that its variable names, or its defaults for a
 * user and for the service. */
static bool ollama_dir(int i, char path[LN_PATH_MAX]) {
    const char *own = getenv("OLLAMA_MODELS");
    if (own && own[0]) return i == 0 && ln_expand_path(path, own, "");
    if (i == 0) return ln_expand_path(path, "~", "/.ollama/models");
    return i == 1 && ln_expand_path(path, "/usr/share/ollama/.ollama/models", "");
}

bool ln_ollama_manifests(int i, char path[LN_PATH_MAX]) {
    char dir[LN_PATH_MAX];
    return ollama_dir(i, dir) && ln_path_join(path, dir, "manifests", NULL) == LN_OK;
}

/* The digest of the model's file in a manifest; NULL: it names none. */
static const char *digest_of(const json_t *manifest) {
    const json_t *layers = json_object_get(manifest, "layers"), *layer;
    size_t i;
    json_array_foreach((json_t *)(uintptr_t)layers, i, layer) {
        const char *digest = json_string_value(json_object_get(layer, "digest"));
        if (!ln_json_is_text(json_object_get(layer, "mediaType"), "application/vnd.ollama.image.model"))
            continue;
        if (digest && strncmp(digest, "sha256:", 7) == 0 && is_part(digest + 7, strlen(digest + 7)))
            return digest + 7;
    }
    return NULL;
}

/* manifests/HOST/NAMESPACE/NAME/TAG has the file blobs/sha256-DIGEST next to manifests. */
ln_status ln_ollama_blob(const char *manifest, char *path, bool *found, ln_error *err) {
    enum { MOST = 1 << 20 };
    char dir[LN_PATH_MAX], blob[LN_PATH_MAX], shown[LN_PATH_TEXT];
    json_t *root = NULL;
    *found = false;
    (void)snprintf(dir, sizeof dir, "%s", manifest);
    for (int up = 0; up < 4; up++) {
        char *slash = strrchr(dir, '/');
        if (!slash || slash == dir) return LN_OK;
        *slash = '\0';
    }
    if (!ln_ends_with(dir, "/manifests")) return LN_OK;
    ln_error why = {0};
    const ln_status st = ln_json_load_file(&root, manifest, MOST, &why);
    if (st == LN_EMEMORY) return ln_fail(err, st, "%s", why.message);
    if (st != LN_OK) return LN_OK; /* no manifest */
    const char *digest = digest_of(root);
    dir[strlen(dir) - strlen("/manifests")] = '\0';
    const int n = digest ? snprintf(blob, sizeof blob, "%s/blobs/sha256-%s", dir, digest) : 0;
    json_decref(root);
    if (!digest || n < 0 || n >= (int)sizeof blob) return LN_OK;
    if (!realpath(blob, path)) {
        ln_path_text(shown, manifest);
        return ln_prefix(err, ln_cannot_reach(blob, errno, err), "%s names a file that is missing", shown);
    }
    *found = true;
    return LN_OK;
}

ln_status ln_ollama_find(const char *name, char *path, bool *found, ln_error *err) {
    static const char *const before[] = {"registry.ollama.ai/library/", "registry.ollama.ai/", ""};
    char dir[LN_PATH_MAX], rest[512], manifest[LN_PATH_MAX];
    const char *colon = strrchr(name, ':'), *part = name;
    int slashes = 0;
    *found = false;
    if (!colon || !is_part(colon + 1, strlen(colon + 1))) return LN_OK;
    for (const char *p = name; p <= colon; p++) {
        if (*p != '/' && p != colon) continue;
        if (!is_part(part, (size_t)(p - part))) return LN_OK;
        slashes += *p == '/';
        part = p + 1;
    }
    if (slashes > 2) return LN_OK;
    const int n =
        snprintf(rest, sizeof rest, "%s%.*s/%s", before[slashes], (int)(colon - name), name, colon + 1);
    for (int i = 0; n > 0 && n < (int)sizeof rest && !*found && ln_ollama_manifests(i, dir); i++) {
        LN_TRY(ln_path_join(manifest, dir, rest, err));
        if (ln_exists(manifest)) LN_TRY(ln_ollama_blob(manifest, path, found, err));
    }
    return LN_OK;
}
