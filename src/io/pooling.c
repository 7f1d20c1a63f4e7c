/* The files that sentence-transformers writes beside a model: modules.json lists what follows it, and
 * 1_Pooling/config.json says how its hidden states become one vector. Both are optional.
 *
 * 1_Pooling/config.json has a switch for each way, of which exactly one is true, or (since version 5) the
 * name of the way in `pooling_mode`. Every embedding is normalised, so that a Normalize module adds nothing.
 */
#include "pooling.h"

#include "../base/file.h"
#include "../base/json.h"

#include <string.h>

/* Loads an optional file; *root NULL: there is none. `path` gets its name. */
static ln_status load(const char *dir, const char *name, ln_str *path, json_t **root, ln_error *err) {
    ln_str_addf(path, "%s/%s", dir, name);
    if (path->failed) return LN_OOM(err, "the name of a file");
    *root = NULL;
    return ln_exists(path->data) ? ln_json_load_file(root, path->data, LN_CONFIG_LIMIT, err) : LN_OK;
}

static ln_status refuse(ln_error *err, const char *path, const char *what) {
    char shown[LN_PATH_TEXT], name[80];
    return ln_fail(err, LN_EUNSUPPORTED,
                   "%s: '%s' is not computed; expected the pooling of the last token or the mean, and no "
                   "module behind it but Normalize; ln_embed_options.pooling chooses without this file",
                   ln_path_text(shown, path), ln_excerpt(name, what, strlen(what)));
}

/* The switches of the ways, and the names in `pooling_mode`. */
static const struct way {
    const char *field, *name;
    ln_pooling pooling; /* AUTO: not computed here */
} ways[] = {{"pooling_mode_lasttoken", "lasttoken", LN_POOLING_LAST},
            {"pooling_mode_mean_tokens", "mean", LN_POOLING_MEAN},
            {"pooling_mode_cls_token", "cls", LN_POOLING_AUTO},
            {"pooling_mode_max_tokens", "max", LN_POOLING_AUTO},
            {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", LN_POOLING_AUTO},
            {"pooling_mode_weightedmean_tokens", "weightedmean", LN_POOLING_AUTO}};

static ln_status read_ways(const json_t *root, const char *path, ln_pooling *out, ln_error *err) {
    char shown[LN_PATH_TEXT], found[80];
    const json_t *named = json_object_get(root, "pooling_mode");
    const struct way *chosen = NULL;
    if (named && !json_is_string(named))
        return ln_fail(err, LN_EINVALID, "%s: pooling_mode: expected a text, found %s",
                       ln_path_text(shown, path), ln_json_text(named, found));
    for (size_t i = 0; i < LN_COUNT(ways); i++) {
        const json_t *v = json_object_get(root, ways[i].field);
        if (v && !json_is_boolean(v))
            return ln_fail(err, LN_EINVALID, "%s: %s: expected true or false, found %s",
                           ln_path_text(shown, path), ways[i].field, ln_json_text(v, found));
        if (!json_is_true(v) && !(named && strcmp(json_string_value(named), ways[i].name) == 0)) continue;
        if (chosen) return refuse(err, path, "several ways of pooling at once");
        chosen = &ways[i];
    }
    if (!chosen) return refuse(err, path, named ? json_string_value(named) : "no way of pooling");
    if (chosen->pooling == LN_POOLING_AUTO) return refuse(err, path, chosen->name);
    *out = chosen->pooling;
    return LN_OK;
}

static ln_status check_modules(const json_t *root, const char *path, ln_error *err) {
    static const char *const known[] = {"Transformer", "Pooling", "Normalize"};
    char shown[LN_PATH_TEXT], found[80];
    size_t i;
    json_t *module;
    if (!json_is_array(root))
        return ln_fail(err, LN_EINVALID, "%s: expected a list of modules, found %s",
                       ln_path_text(shown, path), ln_json_text(root, found));
    json_array_foreach(root, i, module) {
        const char *type = json_string_value(json_object_get(module, "type"));
        const char *dot = type ? strrchr(type, '.') : NULL; /* sentence_transformers.models.Pooling */
        bool is = false;
        for (size_t k = 0; k < LN_COUNT(known); k++) is |= strcmp(dot ? dot + 1 : "", known[k]) == 0;
        if (!is) return refuse(err, path, type ? type : "a module without a type");
    }
    return LN_OK;
}

ln_status ln_pooling_read(const char *dir, ln_pooling *out, ln_error *err) {
    ln_str modules = {0}, pooling = {0};
    json_t *list = NULL, *config = NULL;
    ln_status st = LN_OK;
    *out = LN_POOLING_AUTO;
    LN_GO(load(dir, "modules.json", &modules, &list, err));
    LN_GO(load(dir, "1_Pooling/config.json", &pooling, &config, err));
    if (list) LN_GO(check_modules(list, modules.data, err));
    if (config) LN_GO(read_ways(config, pooling.data, out, err));
out:
    json_decref(list);
    json_decref(config);
    ln_str_free(&modules);
    ln_str_free(&pooling);
    return st;
}
