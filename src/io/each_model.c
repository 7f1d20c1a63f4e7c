/* Lists models: walks directories, and calls a function for each model directory and GGUF file.
 *
 * Without a directory, the places in which programs keep models: the Hugging Face cache, those of LM Studio,
 * llama.cpp and ollama, and the bundled model. */
#include "directory.h"
#include "gguf_files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* State of a directory walk: a stack of directories to visit, and a hash table of the visited ones by device
 * and inode, so that a loop of symbolic links ends. */
typedef struct place {
    dev_t dev;
    ino_t ino;
    bool taken;
} place;
typedef struct walk {
    char **todo;
    size_t n_todo, cap_todo;
    place *seen; /* [cap_seen], a power of two; linear probing */
    size_t n_seen, cap_seen;
} walk;

static ln_status later(walk *w, const char *dir, ln_error *err) {
    void *p = w->todo;
    LN_TRY(ln_grow(&p, &w->cap_todo, w->n_todo + 1, sizeof *w->todo, err));
    w->todo = p;
    char *copy = ln_strndup(dir, strlen(dir));
    if (!copy) return LN_OOM(err, "the directories to list");
    w->todo[w->n_todo++] = copy;
    return LN_OK;
}

/* Inserts p; false if the table has it already. */
static bool add_place(place *table, size_t cap, place p) {
    size_t i = (size_t)((p.ino ^ ((uint64_t)p.dev << 40)) * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (cap - 1);
    for (; table[i].taken; i = (i + 1) & (cap - 1))
        if (table[i].dev == p.dev && table[i].ino == p.ino) return false;
    table[i] = p;
    return true;
}

/* *yes: `path` is a directory, or a file, that was not visited before. Marks it as visited. */
static ln_status is_new(walk *w, const char *path, bool *yes, bool *is_dir, ln_error *err) {
    struct stat st;
    *yes = stat(path, &st) == 0 && (S_ISDIR(st.st_mode) || S_ISREG(st.st_mode));
    *is_dir = *yes && S_ISDIR(st.st_mode);
    if (!*yes) return LN_OK;
    if (2 * w->n_seen >= w->cap_seen) {
        size_t cap = w->cap_seen ? 2 * w->cap_seen : 256;
        place *table = ln_zalloc(cap, sizeof *table);
        if (!table) return LN_OOM(err, "the directories seen");
        for (size_t i = 0; i < w->cap_seen; i++)
            if (w->seen[i].taken) (void)add_place(table, cap, w->seen[i]);
        ln_free(w->seen);
        w->seen = table;
        w->cap_seen = cap;
    }
    *yes = add_place(w->seen, w->cap_seen, (place){st.st_dev, st.st_ino, true});
    w->n_seen += *yes;
    return LN_OK;
}

/* Whether a file is a model: a GGUF file, or a manifest of ollama, which names one. */
static bool is_model_file(const char *path, const char *name) {
    char blob[LN_PATH_MAX];
    bool found = false;
    if (ln_gguf_is_choice(name)) return true;
    return strstr(path, "/manifests/") && ln_ollama_blob(path, blob, &found, NULL) == LN_OK && found;
}

/* Visits `dir`: sets *model, and pushes its subdirectories and the files that are models, so that the first
 * by name is visited next. A directory that cannot be read is skipped with a warning. */
static ln_status look_into(walk *w, const char *dir, bool *model, ln_error *err) {
    char path[LN_PATH_MAX];
    ln_names names;
    ln_error why;
    ln_status st = ln_names_read(&names, dir, &why);
    *model = false;
    if (st == LN_OK && ln_names_like(&names, "", ".safetensors") &&
        ln_path_join(path, dir, "config.json", NULL) == LN_OK)
        st = ln_look(path, model, &why);
    if (st == LN_EIO) { /* it cannot be listed, or its entries not accessed */
        ln_log(LN_LOG_WARN, "%s; what it holds is not listed", why.message);
        ln_names_free(&names);
        return LN_OK;
    }
    if (st != LN_OK) {
        if (err) *err = why;
        return st;
    }
    for (size_t i = names.n; i-- > 0 && st == LN_OK;) {
        bool is_dir = false;
        if (ln_path_join(path, dir, names.items[i], NULL) != LN_OK) continue;
        if (ln_look_dir(path, &is_dir, &why) != LN_OK)
            ln_log(LN_LOG_WARN, "%s; it is not listed", why.message);
        if (is_dir || is_model_file(path, names.items[i])) st = later(w, path, err);
    }
    ln_names_free(&names);
    return st;
}

static ln_status visit_all(walk *w, ln_dir_fn *fn, void *user, ln_error *err) {
    ln_status st = LN_OK;
    while (w->n_todo > 0 && st == LN_OK) {
        char *dir = w->todo[--w->n_todo];
        bool fresh, is_dir, model = false;
        st = is_new(w, dir, &fresh, &is_dir, err);
        if (st == LN_OK && fresh && is_dir) st = look_into(w, dir, &model, err);
        if (fresh && !is_dir) model = true;
        if (st == LN_OK && model) st = fn(user, dir, err);
        ln_free(dir);
    }
    return st == LN_ECANCELLED ? LN_OK : st;
}

/* Whether the cache exists. LN_EIO: it cannot be reached or listed. */
static ln_status look_at_cache(char *dir, bool *found, ln_error *err) {
    ln_names names;
    *found = false;
    if (!ln_hub_cache_dir(dir)) return LN_OK;
    LN_TRY(ln_look_dir(dir, found, err));
    if (!*found) return LN_OK;
    LN_TRY(ln_names_read(&names, dir, err));
    ln_names_free(&names);
    return LN_OK;
}

/* Pushes the folders of other programs that exist. */
static ln_status push_others(walk *w, ln_error *err) {
    static const char *const places[] = {"/.cache/llama.cpp", "/.cache/lm-studio/models",
                                         "/.lmstudio/models"};
    char dir[LN_PATH_MAX];
    const char *llama = getenv("LLAMA_CACHE");
    ln_status st = LN_OK;
    for (int i = 0; st == LN_OK && ln_ollama_manifests(i, dir); i++)
        if (ln_is_dir(dir)) st = later(w, dir, err);
    if (st == LN_OK && llama && ln_expand_path(dir, llama, "") && ln_is_dir(dir)) st = later(w, dir, err);
    for (size_t i = 0; st == LN_OK && i < LN_COUNT(places); i++)
        if (ln_expand_path(dir, "~", places[i]) && dir[0] == '/' && ln_is_dir(dir)) st = later(w, dir, err);
    return st;
}

/* A place of its own that cannot be read does not hide the other one; its error is returned at the end. */
ln_status ln_each_model(const char *dir_or_null, ln_dir_fn *fn, void *user, ln_error *err) {
    walk w = {0};
    char dir[LN_PATH_MAX];
    ln_status st = LN_OK, later_st = LN_OK;
    ln_error why = {0};
    bool found = false;
    if (dir_or_null) {
        ln_names names;
        if (!realpath(dir_or_null, dir)) return ln_cannot_reach(dir_or_null, errno, err);
        LN_TRY(ln_names_read(&names, dir, err)); /* for the top directory, being unreadable is an error */
        ln_names_free(&names);
        LN_GO(later(&w, dir, err));
    } else {
        later_st = ln_bundled_find(dir, "config.json", &found, &why);
        if (later_st == LN_OK && found) LN_GO(later(&w, dir, err)); /* pushed first, visited last */
        LN_GO(push_others(&w, err));
        st = look_at_cache(dir, &found, later_st == LN_OK ? &why : NULL);
        if (st == LN_OK && found) LN_GO(later(&w, dir, err));
        if (later_st == LN_OK) later_st = st;
    }
    LN_GO(visit_all(&w, fn, user, err));
    if (later_st != LN_OK) st = ln_fail(err, later_st, "%s", why.message);
out:
    while (w.n_todo > 0) ln_free(w.todo[--w.n_todo]);
    ln_free(w.todo);
    ln_free(w.seen);
    return st;
}
