/* Opens the files of sentence-transformers: modules.json, the Pooling module, and the keys of all of them
 * (embedding_keys.def). embedding_config.c reads the files of the whole model, embedding_modules.c the
 * modules after the pooling. */
#include "embedding_files.h"

#include "directory.h"

#include <string.h>

static const ln_key rows[] = {
#define KEY(groups, name, kind, same, what) {groups, name, LN_KEY_##kind, same, what},
#include "embedding_keys.def"
#undef KEY
};
static const ln_keys table = {rows, LN_COUNT(rows), NULL, false, {NULL, NULL}};

/* ---- values of the files ---- */

ln_status emb_check_keys(const emb_object *o, unsigned group, ln_error *err) {
    ln_key_report r = {0};
    char shown[LN_PATH_TEXT];
    ln_str *w = &o->files->warnings;
    ln_status st = ln_keys_check(&table, group, o->json, o->path, o->where, &r, err);
    (void)ln_path_text(shown, o->path);
    if (st == LN_OK && r.n_warned) ln_str_addf(w, "%s: linnet does not apply %s\n", shown, r.warned.data);
    if (st == LN_OK && r.n_unknown)
        ln_str_addf(w, "%s: keys that linnet does not know and does not apply: %s\n", shown, r.unknown.data);
    if (st == LN_OK && r.n_unknown && group == EMB_CONFIG_ARGS) st = emb_refuse(o->path, r.unknown.data, err);
    ln_key_report_free(&r);
    return st == LN_OK && w->failed ? LN_OOM(err, "warnings") : st;
}

ln_status emb_bad(const emb_object *o, const char *key, const char *wanted, ln_error *err) {
    char shown[LN_PATH_TEXT], found[80];
    return ln_fail(err, LN_EINVALID, "%s: %s%s: expected %s, found %s", ln_path_text(shown, o->path),
                   o->where, key, wanted, ln_json_text(json_object_get(o->json, key), found));
}

ln_status emb_refuse(const char *path, const char *what, ln_error *err) {
    char shown[LN_PATH_TEXT], name[80];
    return ln_fail(err, LN_EUNSUPPORTED,
                   "%s: '%s' is not supported; embeddings are computed by one Transformer in the directory "
                   "itself, one Pooling, and Normalize, Dense, LayerNorm and Dropout modules after it; a "
                   "request that names "
                   "a pooling (ln_embed_options.pooling) gets it without these modules",
                   ln_path_text(shown, path), ln_excerpt(name, what, strlen(what)));
}

ln_status emb_bool(const emb_object *o, const char *key, bool dflt, bool *out, ln_error *err) {
    const json_t *v = json_object_get(o->json, key);
    *out = v ? json_is_true(v) : dflt;
    return v && !json_is_boolean(v) ? emb_bad(o, key, "true or false", err) : LN_OK;
}

ln_status emb_count(const emb_object *o, const char *key, bool null_too, int64_t *out, ln_error *err) {
    const json_t *v = json_object_get(o->json, key);
    if (!v || (null_too && json_is_null(v))) return LN_OK;
    if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > INT32_MAX)
        return emb_bad(o, key, "an integer from 1 to 2147483647", err);
    *out = json_integer_value(v);
    return LN_OK;
}

ln_status emb_load(json_t **root, char *path, const char *dir, const char *name, ln_error *err) {
    bool there;
    *root = NULL;
    LN_TRY(ln_path_join(path, dir, name, err));
    LN_TRY(ln_look(path, &there, err));
    return there ? ln_json_object_file(root, path, err) : LN_OK;
}

/* ---- pooling ---- */

/* In the order in which the switches' results are concatenated. */
static const struct way {
    const char *key, *name;
    ln_pooling pooling;
} ways[] = {{"pooling_mode_cls_token", "cls", LN_POOLING_CLS},
            {"pooling_mode_max_tokens", "max", LN_POOLING_MAX},
            {"pooling_mode_mean_tokens", "mean", LN_POOLING_MEAN},
            {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", LN_POOLING_MEAN_SQRT_LEN},
            {"pooling_mode_weightedmean_tokens", "weightedmean", LN_POOLING_WEIGHTED_MEAN},
            {"pooling_mode_lasttoken", "lasttoken", LN_POOLING_LAST}};

static ln_pooling pooling_named(const char *name) {
    for (size_t i = 0; i < LN_COUNT(ways); i++)
        if (strcmp(ways[i].name, name) == 0) return ways[i].pooling;
    return LN_POOLING_AUTO;
}

/* Reads `pooling_mode`: a name, or a list of names. */
static ln_status read_names(const emb_object *o, const json_t *v, ln_error *err) {
    ln_emb_files *f = o->files;
    const size_t n = json_is_array(v) ? json_array_size(v) : 1;
    if (n == 0 || n > LN_EMB_MOST_WAYS) return emb_bad(o, "pooling_mode", "1 to 16 ways of pooling", err);
    for (size_t i = 0; i < n; i++) {
        const char *name = json_string_value(json_is_array(v) ? json_array_get(v, i) : v);
        if (!name) return emb_bad(o, "pooling_mode", "a text or a list of texts", err);
        f->pooling[i] = pooling_named(name);
        if (f->pooling[i] == LN_POOLING_AUTO)
            return emb_bad(o, "pooling_mode",
                           "cls, max, mean, mean_sqrt_len_tokens, weightedmean or lasttoken", err);
    }
    f->n_pooling = n;
    return LN_OK;
}

/* Reads the switches of versions before 5. */
static ln_status read_switches(const emb_object *o, ln_error *err) {
    ln_emb_files *f = o->files;
    f->n_pooling = 0;
    for (size_t i = 0; i < LN_COUNT(ways); i++) {
        bool is;
        LN_TRY(emb_bool(o, ways[i].key, false, &is, err));
        if (is) f->pooling[f->n_pooling++] = ways[i].pooling;
    }
    if (f->n_pooling == 0) f->pooling[f->n_pooling++] = LN_POOLING_MEAN;
    return LN_OK;
}

static ln_status read_pooling(ln_emb_files *f, const json_t *root, const char *path, int64_t width,
                              ln_error *err) {
    const emb_object o = {f, root, path, ""};
    const json_t *mode = json_object_get(root, "pooling_mode");
    bool include;
    int64_t n = width;
    LN_TRY(emb_check_keys(&o, EMB_POOLING, err));
    LN_TRY(emb_bool(&o, "include_prompt", true, &include, err));
    LN_TRY(emb_count(&o, "word_embedding_dimension", false, &n, err));
    LN_TRY(emb_count(&o, "embedding_dimension", false, &n, err));
    if (n != width) {
        char shown[LN_PATH_TEXT];
        return ln_fail(err, LN_EINVALID,
                       "%s: embedding_dimension: expected %lld, the width of the model, found %lld; is it "
                       "another model's?",
                       ln_path_text(shown, path), (long long)width, (long long)n);
    }
    f->skip_prompt = !include;
    if (mode) LN_TRY(read_names(&o, mode, err));
    else LN_TRY(read_switches(&o, err));
    f->n_values = (int64_t)f->n_pooling * width;
    return LN_OK;
}

/* ---- modules.json ---- */

/* What is known while the list is read. */
typedef struct walk {
    ln_emb_files *f;
    const char *dir, *path; /* of modules.json */
    const ln_emb_model *model;
    const json_t *list;
    bool has_transformer, has_pooling;
} walk;

bool ln_emb_path_stays(const char *p) {
    if (*p == '/' || *p == '\\' || (*p && p[1] == ':')) return false;
    for (size_t n; *p; p += n + (p[n] != '\0')) {
        n = strcspn(p, "/\\");
        if (n == 2 && p[0] == '.' && p[1] == '.') return false;
    }
    return true;
}

bool ln_emb_path_is_here(const char *p) { return strspn(p, "./") == strlen(p); }

static ln_status read_text(const emb_object *o, const char *key, const char **out, ln_error *err) {
    const json_t *v = json_object_get(o->json, key);
    *out = json_string_value(v);
    return *out && strlen(*out) == json_string_length(v) ? LN_OK : emb_bad(o, key, "a text", err);
}

static ln_status read_pooling_module(walk *w, const char *dir, ln_error *err) {
    char path[LN_PATH_MAX], shown[LN_PATH_TEXT];
    json_t *root;
    if (w->has_pooling) return emb_refuse(w->path, "a second Pooling", err);
    w->has_pooling = true;
    LN_TRY(emb_load(&root, path, dir, "config.json", err));
    if (!root)
        return ln_fail(err, LN_EIO, "%s: this file of the Pooling module of modules.json does not exist",
                       ln_path_text(shown, path));
    const ln_status st = read_pooling(w->f, root, path, w->model->width, err);
    json_decref(root);
    return st;
}

/* Reads one entry; `name` receives its name. */
static ln_status read_entry(walk *w, const json_t *entry, size_t i, const char **name, ln_error *err) {
    static const char package[] = "sentence_transformers.";
    char where[32], dir[LN_PATH_MAX];
    (void)snprintf(where, sizeof where, "[%zu].", i);
    const emb_object o = {w->f, entry, w->path, where};
    const char *type, *path;
    if (!json_is_object(entry)) return emb_refuse(w->path, "an entry that is not an object", err);
    LN_TRY(emb_check_keys(&o, EMB_ENTRY, err));
    LN_TRY(read_text(&o, "name", name, err));
    LN_TRY(read_text(&o, "type", &type, err));
    LN_TRY(read_text(&o, "path", &path, err));
    if (!ln_emb_path_stays(path)) return emb_bad(&o, "path", "a path within the directory", err);
    if (strncmp(type, package, strlen(package)) != 0) return emb_refuse(w->path, type, err);
    const char *class = strrchr(type, '.') + 1;
    LN_TRY(ln_path_join(dir, w->dir, path, err));
    if (strcmp(class, "Transformer") == 0) {
        if (w->has_transformer || i > 0) return emb_refuse(w->path, "a second Transformer", err);
        if (!ln_emb_path_is_here(path)) return emb_refuse(w->path, "a Transformer in another directory", err);
        w->has_transformer = true;
        return emb_read_transformer(w->f, dir, w->model, err);
    }
    if (!w->has_transformer) return emb_refuse(w->path, type, err);
    if (strcmp(class, "Pooling") == 0) return read_pooling_module(w, dir, err);
    if (w->has_pooling) return emb_read_module(w->f, class, dir, err);
    /* before the pooling, Normalize finds no sentence_embedding and changes nothing */
    return strcmp(class, "Normalize") == 0 ? LN_OK : emb_refuse(w->path, type, err);
}

static ln_status read_list(walk *w, ln_error *err) {
    char shown[LN_PATH_TEXT], found[80];
    const size_t n = json_array_size(w->list);
    const char *names[LN_EMB_MOST_MODULES + 2];
    if (!json_is_array(w->list) || n == 0 || n > LN_COUNT(names))
        return ln_fail(err, LN_EINVALID, "%s: expected a list of 1 to %zu modules, found %s",
                       ln_path_text(shown, w->path), LN_COUNT(names), ln_json_text(w->list, found));
    for (size_t i = 0; i < n; i++) {
        LN_TRY(read_entry(w, json_array_get(w->list, i), i, &names[i], err));
        for (size_t k = 0; k < i; k++)
            if (strcmp(names[i], names[k]) == 0)
                return ln_fail(err, LN_EINVALID,
                               "%s: expected modules with different names, found '%s' twice",
                               ln_path_text(shown, w->path), ln_excerpt(found, names[i], strlen(names[i])));
    }
    return w->has_pooling ? LN_OK : emb_refuse(w->path, "no Pooling module", err);
}

/* Reads a directory without modules.json: how it pools, and nothing else. */
static ln_status read_without_list(ln_emb_files *f, const char *dir, const ln_emb_model *m, ln_error *err) {
    char path[LN_PATH_MAX], shown[LN_PATH_TEXT];
    json_t *root;
    LN_TRY(emb_load(&root, path, dir, "1_Pooling/config.json", err));
    if (!root) return LN_OK;
    ln_str_addf(&f->warnings,
                "%s is applied although the directory has no modules.json, which would name it\n",
                ln_path_text(shown, path));
    const ln_status st = read_pooling(f, root, path, m->width, err);
    json_decref(root);
    return st;
}

void ln_emb_files_reset(ln_emb_files *f, const ln_emb_model *m) {
    ln_emb_files_close(f);
    f->pooling[0] = m->causal_head ? LN_POOLING_LAST : LN_POOLING_MEAN;
    f->n_pooling = 1;
    f->n_values = m->width;
}

ln_status ln_emb_files_open(ln_emb_files *out, const char *dir, const ln_emb_model *model, ln_error *err) {
    char path[LN_PATH_MAX];
    json_t *list = NULL;
    *out = (ln_emb_files){0};
    ln_emb_files_reset(out, model);
    LN_TRY(ln_path_join(path, dir, "modules.json", err));
    LN_TRY(ln_look(path, &out->present, err));
    if (!out->present) return read_without_list(out, dir, model, err);
    ln_status st = ln_json_load_file(&list, path, LN_CONFIG_LIMIT, err);
    walk w = {.f = out, .dir = dir, .path = path, .model = model, .list = list};
    if (st == LN_OK) st = emb_read_model_config(out, dir, err);
    if (st == LN_OK) st = read_list(&w, err);
    json_decref(list);
    return st;
}

void ln_emb_files_close(ln_emb_files *f) {
    for (size_t i = 0; i < f->n_modules; i++) ln_tensors_close(&f->modules[i].tensors);
    json_decref(f->config);
    ln_str_free(&f->warnings);
    *f = (ln_emb_files){0};
}

void ln_emb_files_warn(const ln_emb_files *f) {
    for (const char *at = f->warnings.data ? f->warnings.data : ""; *at;) {
        const size_t n = strcspn(at, "\n");
        ln_log(LN_LOG_WARN, "%.*s", (int)n, at);
        at += n + (at[n] == '\n');
    }
}
