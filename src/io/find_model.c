/* Finds the directory of a model: a path, an id in the Hugging Face cache, or the bundled model `tiny`.
 *
 * MODEL is a path if something with that name exists. Otherwise `org/name[@rev]` is looked up in the cache,
 * which is read in place and never written. The cache is HF_HUB_CACHE, else HUGGINGFACE_HUB_CACHE, else
 * HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub, else ~/.cache/huggingface/hub, each with `~` and `$VAR`
 * expanded. A revision is a name under refs/ (default: main) or the name of a snapshot. `tiny` is searched
 * for by bundled_model.c; a directory named tiny that is not a model does not hide it.
 *
 * A model may be a GGUF file instead, or a directory with one that lacks the files of the other layout. This
 * file opens no file of a model, except to recognise GGUF by its first bytes. The message for a model that is
 * not found has the next command to run. */
#include "directory.h"
#include "../base/c_locale.h"
#include "../base/gguf.h"
#include "gguf_files.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *env(const char *name) {
    const char *v = getenv(name);
    return v && v[0] ? v : NULL;
}

/* ---- the Hugging Face cache ---- */

/* Expands `~` and `~name` at the start of *value, and advances *value past it. huggingface_hub (constants.py)
 * expands its variables with Python's os.path.expanduser and then expandvars: `~` and `~name` become a home
 * directory, `$NAME` and `${NAME}` the values of other variables; unknown names stay as they are. */
static void add_user(ln_str *out, const char **value) {
    if ((*value)[0] != '~') return;
    size_t n = strcspn(*value, "/");
    char name[256], buf[4096];
    struct passwd entry, *found = NULL;
    const char *home = n == 1 ? env("HOME") : NULL;
    if (!home && n < sizeof name) {
        (void)snprintf(name, sizeof name, "%.*s", (int)n, *value);
        int bad = n == 1 ? getpwuid_r(getuid(), &entry, buf, sizeof buf, &found)
                         : getpwnam_r(name + 1, &entry, buf, sizeof buf, &found);
        if (bad == 0 && found) home = found->pw_dir;
    }
    if (!home) return;
    size_t len = strlen(home);
    while (len > 0 && home[len - 1] == '/') len--; /* the rest starts with a slash; a home of "/" stays "/" */
    ln_str_add(out, len || (*value)[n] ? home : "/", len || (*value)[n] ? len : 1);
    *value += n;
}

/* The value of the variable reference at `at`, which is a dollar sign; *n becomes the length of the
 * reference. NULL if it is malformed or the variable is not set. */
static const char *variable(const char *at, size_t *n) {
    static const char word[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";
    char name[256];
    bool braces = at[1] == '{';
    const char *begin = at + 1 + braces;
    size_t len = braces ? strcspn(begin, "}") : strspn(begin, word);
    if (len == 0 || len >= sizeof name || (braces && begin[len] != '}')) return NULL;
    (void)snprintf(name, sizeof name, "%.*s", (int)len, begin);
    *n = 1 + len + 2 * (size_t)braces;
    return getenv(name);
}

bool ln_expand_path(char *out, const char *value, const char *below) {
    ln_str s = {0};
    add_user(&s, &value);
    while (*value) {
        size_t n = 1;
        const char *other = *value == '$' ? variable(value, &n) : NULL;
        ln_str_add(&s, other ? other : value, other ? strlen(other) : 1);
        value += other ? n : 1;
    }
    ln_str_adds(&s, below);
    bool fits = !s.failed && s.len > 0 && s.len < LN_PATH_MAX;
    if (fits) memcpy(out, s.data, s.len + 1);
    ln_str_free(&s);
    return fits;
}

bool ln_hub_cache_dir(char *out) {
    static const struct {
        const char *name, *below;
    } places[] = {{"HF_HUB_CACHE", ""},
                  {"HUGGINGFACE_HUB_CACHE", ""},
                  {"HF_HOME", "/hub"},
                  {"XDG_CACHE_HOME", "/huggingface/hub"}};
    for (size_t i = 0; i < LN_COUNT(places); i++)
        if (env(places[i].name)) return ln_expand_path(out, env(places[i].name), places[i].below);
    return ln_expand_path(out, "~", "/.cache/huggingface/hub") && out[0] == '/';
}

/* Whether the text is safe as a path component: letters, digits, `_-.` and the characters of `also`, at most
 * 96 (the hub's limit), not starting with `.` or `-`, without `..`. */
static bool plain(const char *s, size_t n, const char *also) {
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
                    c == '-' || c == '.';
        if (!word && !(c && strchr(also, c))) return false;
    }
    return n > 0 && n <= 96 && s[0] != '.' && s[0] != '-' && !memmem(s, n, "..", 2);
}

/* The parts of org/name[@rev], each safe as part of a path. */
typedef struct id {
    char org[104], name[104], rev[104];
} id;

static bool parse_id(id *out, const char *text) {
    const char *slash = strchr(text, '/'), *at = strchr(text, '@');
    if (!slash || (at && at < slash)) return false;
    const char *end = at ? at : text + strlen(text);
    size_t n_org = (size_t)(slash - text), n_name = (size_t)(end - slash - 1);
    if (!plain(text, n_org, "") || !plain(slash + 1, n_name, "")) return false;
    if (at && !plain(at + 1, strlen(at + 1), "/")) return false;
    (void)snprintf(out->org, sizeof out->org, "%.*s", (int)n_org, text);
    (void)snprintf(out->name, sizeof out->name, "%.*s", (int)n_name, slash + 1);
    (void)snprintf(out->rev, sizeof out->rev, "%s", at ? at + 1 : "main");
    return true;
}

/* Reads the commit in refs/REV. *found = false: no such reference, or its content is not safe as a name. */
static ln_status read_ref(char commit[104], const char *entry, const char *rev, bool *found, ln_error *err) {
    char refs[LN_PATH_MAX], path[LN_PATH_MAX], *data = NULL;
    size_t n = 0;
    *found = false;
    LN_TRY(ln_path_join(refs, entry, "refs", err));
    LN_TRY(ln_path_join(path, refs, rev, err));
    LN_TRY(ln_look(path, found, err));
    if (!*found) return LN_OK;
    ln_error why = {0};
    ln_status st = ln_read_file(path, 256, &data, &n, &why);
    *found = false;
    if (st == LN_EINVALID) return LN_OK; /* not a reference: a directory, or too long */
    if (st != LN_OK) return ln_fail(err, st, "%s", why.message);
    while (n && (data[n - 1] == '\n' || data[n - 1] == '\r' || data[n - 1] == ' ')) n--;
    *found = plain(data, n, "");
    if (*found) (void)snprintf(commit, 104, "%.*s", (int)n, data);
    ln_free(data);
    return LN_OK;
}

/* Resolves the snapshot of an id in the cache directory `hub`. */
static ln_status snapshot(char *path, const char *hub, const id *what, bool *found, ln_error *err) {
    char entry[LN_PATH_MAX], dir[LN_PATH_MAX], name[256], commit[104];
    (void)snprintf(name, sizeof name, "models--%s--%s", what->org, what->name);
    LN_TRY(ln_path_join(entry, hub, name, err));
    LN_TRY(read_ref(commit, entry, what->rev, found, err));
    if (!*found) {
        if (strchr(what->rev, '/')) return LN_OK;
        (void)snprintf(commit, sizeof commit, "%s", what->rev);
    }
    LN_TRY(ln_path_join(dir, entry, "snapshots", err));
    LN_TRY(ln_path_join(entry, dir, commit, err));
    LN_TRY(ln_look_dir(entry, found, err));
    return *found && !realpath(entry, path) ? ln_cannot_reach(entry, errno, err) : LN_OK;
}

/* ---- ids ---- */

static ln_status find_cached(const id *what, const char *needs, char *path, ln_error *err) {
    char hub[LN_PATH_MAX], file[LN_PATH_MAX], shown[LN_PATH_TEXT];
    const char *flag = strcmp(what->rev, "main") ? " --revision " : "", *rev = flag[0] ? what->rev : "";
    if (!ln_hub_cache_dir(hub))
        return ln_fail(err, LN_EIO,
                       "%s/%s: no such directory, and no Hugging Face cache: neither HF_HUB_CACHE, HF_HOME "
                       "nor HOME is set",
                       what->org, what->name);
    bool found;
    ln_path_text(shown, hub);
    LN_TRY(snapshot(path, hub, what, &found, err));
    if (!found)
        return ln_fail(err, LN_EIO,
                       "%s/%s%s%s: no such directory, and not in the Hugging Face cache at %s; fetch it: hf "
                       "download "
                       "%s/%s%s%s",
                       what->org, what->name, flag[0] ? "@" : "", rev, shown, what->org, what->name, flag,
                       rev);
    LN_TRY(ln_path_join(file, path, needs, err));
    LN_TRY(ln_look(file, &found, err));
    bool chosen = false, alone;
    LN_TRY(ln_gguf_alone(path, &alone, err));
    if (!found || alone) LN_TRY(ln_gguf_choose(path, &chosen, err));
    found = found || chosen;
    if (!found && strcmp(needs, "tokenizer.json") == 0) LN_TRY(ln_check_tokenizer(path, err));
    if (!found)
        return ln_fail(err, LN_EIO,
                       "%s/%s: the copy in the Hugging Face cache has no %s; complete it: hf download "
                       "%s/%s%s%s",
                       what->org, what->name, needs, what->org, what->name, flag, rev);
    return LN_OK;
}

/* Returns the error for a directory without a configuration; the message says what it is instead. */
static ln_status no_model(const char *path, const char *needs, const char *shown, ln_error *err) {
    static const struct {
        const char *file, *says;
    } kinds[] = {{"adapter_config.json", "an adapter, not a model; give its base model, and this directory "
                                         "as the adapter"},
                 {"model_index.json", "a pipeline of diffusers, which has no language model of its own"},
                 {"params.json", "the layout of its makers (params.json); expected the same model in Hugging "
                                 "Face layout"}};
    char file[LN_PATH_MAX];
    for (size_t i = 0; i < LN_COUNT(kinds) && strcmp(needs, "config.json") == 0; i++) {
        bool found;
        LN_TRY(ln_path_join(file, path, kinds[i].file, err));
        LN_TRY(ln_look(file, &found, err));
        if (found) return ln_fail(err, LN_EINVALID, "%s: no %s there: %s", shown, needs, kinds[i].says);
    }
    return ln_fail(err, LN_EINVALID, "%s: no %s there; expected a model directory in Hugging Face layout",
                   shown, needs);
}

/* ---- MODEL ---- */

static ln_status check_dir(const char *model, const char *needs, char *path, ln_error *err) {
    char file[LN_PATH_MAX], shown[LN_PATH_TEXT];
    bool found;
    ln_path_text(shown, model);
    if (!realpath(model, path)) return ln_cannot_reach(model, errno, err);
    LN_TRY(ln_look_dir(path, &found, err));
    if (!found && ln_gguf_is_file(path)) return LN_OK; /* ollama's files have no extension */
    if (!found) {
        LN_TRY(ln_ollama_blob(path, path, &found, err));
        if (found) return LN_OK;
    }
    if (!found)
        return ln_fail(err, LN_EINVALID,
                       "%s: expected a GGUF file or a model directory in Hugging Face layout, found a file "
                       "that is neither; give the directory that holds it",
                       shown);
    LN_TRY(ln_path_join(file, path, needs, err));
    LN_TRY(ln_look(file, &found, err));
    bool chosen, alone;
    LN_TRY(ln_gguf_alone(path, &alone, err));
    if (found && !alone) return LN_OK;
    LN_TRY(ln_gguf_choose(path, &chosen, err));
    if (found || chosen) return LN_OK;
    if (strcmp(needs, "tokenizer.json") == 0) return ln_check_tokenizer(path, err);
    return no_model(path, needs, shown, err);
}

static ln_status find(const char *model, const char *needs, char *path, ln_error *err) {
    char shown[LN_PATH_TEXT];
    bool tiny = !model || strcmp(model, "tiny") == 0, found = false;
    if (model && !model[0])
        return ln_fail(err, LN_EUSAGE, "the model's name is empty; give a directory, org/name or tiny");
    if (model && !tiny) {
        LN_TRY(ln_look(model, &found, err));
        if (found) return check_dir(model, needs, path, err);
    }
    if (tiny) {
        ln_error why = {0};
        if (model && ln_look(model, &found, &why) == LN_OK && found &&
            check_dir(model, needs, path, &why) == LN_OK)
            return LN_OK;
        if (why.code == LN_EIO) ln_log(LN_LOG_WARN, "%s; using the bundled model", why.message);
        LN_TRY(ln_bundled_find(path, needs, &found, err));
        if (found) return LN_OK;
        return ln_bundled_missing(err);
    }
    LN_TRY(ln_ollama_find(model, path, &found, err));
    if (found) return LN_OK;
    id what;
    size_t n = strlen(model);
    ln_path_text(shown, model);
    if (n > 5 && ln_same_ascii(model + n - 5, ".gguf"))
        return ln_fail(err, LN_EIO, "%s: no such file", shown);
    if (parse_id(&what, model)) return find_cached(&what, needs, path, err);
    if (n >= LN_PATH_MAX) return ln_cannot_reach(model, ENAMETOOLONG, err);
    return ln_fail(err, LN_EIO,
                   "%s: no such directory; a model is a directory, a GGUF file, an id org/name[@rev] in the "
                   "Hugging Face cache (get it with: hf download org/name) or tiny",
                   shown);
}

ln_status ln_find_dir(const char *model, const char *needs, char *path, size_t cap, ln_error *err) {
    char found[LN_PATH_MAX];
    LN_TRY(find(model, needs, found, err));
    size_t n = strlen(found);
    if (n >= cap) return ln_fail(err, LN_EINVALID, "the path of the model is longer than %zu bytes", cap - 1);
    memcpy(path, found, n + 1);
    return LN_OK;
}

ln_status ln_find_model(const char *model, char *path, size_t cap, ln_error *err) {
    return ln_find_dir(model, "config.json", path, cap, err);
}
