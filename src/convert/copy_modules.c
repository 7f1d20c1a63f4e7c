/* Copies the modules of sentence-transformers, so that a converted model gives the embeddings of its source:
 * config.json and the weights in each directory that modules.json names, and 1_Pooling, which is read without
 * modules.json too. */
#include "convert.h"

#include "../io/directory.h"
#include "../io/embedding_files.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

/* Creates the directory to/path and those that it is in, and writes its name to made[LN_PATH_MAX]. */
static ln_status make_dirs(char *made, const char *to, const char *path, ln_error *err) {
    char shown[LN_PATH_TEXT];
    LN_TRY(ln_path_join(made, to, path, err));
    for (char *at = made + strlen(to) + 1;; at++) {
        const char end = *at;
        if (end != '/' && end) continue;
        *at = '\0';
        const bool is = mkdir(made, 0777) == 0 || errno == EEXIST;
        if (!is)
            return ln_fail(err, LN_EIO, "%s: cannot create: %s", ln_path_text(shown, made), strerror(errno));
        *at = end;
        if (!end) return LN_OK;
    }
}

static ln_status copy_module(const ln_convert *c, const char *to, const char *path, ln_error *err) {
    static const char *const names[] = {"config.json", "model.safetensors", "pytorch_model.bin"};
    char from[LN_PATH_MAX], made[LN_PATH_MAX], file[LN_PATH_MAX];
    bool there;
    LN_TRY(ln_path_join(from, c->from, path, err));
    LN_TRY(ln_look_dir(from, &there, err));
    if (!there) return LN_OK;
    LN_TRY(make_dirs(made, to, path, err));
    for (size_t i = 0; i < LN_COUNT(names); i++) {
        bool copied;
        LN_TRY(ln_path_join(file, from, names[i], err));
        LN_TRY(ln_look(file, &there, err));
        LN_TRY(ln_path_join(file, made, names[i], err));
        LN_TRY(ln_look(file, &copied, err)); /* two modules may share a directory */
        if (there && !copied) LN_TRY(ln_convert_copy(from, made, names[i], err));
    }
    return LN_OK;
}

/* A list that cannot be read is copied as it is; ln_embed reports the error. */
ln_status ln_convert_modules(const ln_convert *c, const char *to, ln_error *err) {
    char path[LN_PATH_MAX];
    json_t *list = NULL;
    ln_error why = {0};
    bool there;
    LN_TRY(ln_path_join(path, c->from, "modules.json", err));
    LN_TRY(ln_look(path, &there, err));
    if (there && ln_json_load_file(&list, path, LN_CONFIG_LIMIT, &why) != LN_OK)
        return why.code == LN_EINVALID ? LN_OK : ln_fail(err, why.code, "%s", why.message);
    ln_status st = copy_module(c, to, "1_Pooling", err);
    for (size_t i = 0; st == LN_OK && i < json_array_size(list); i++) {
        const char *module = json_string_value(json_object_get(json_array_get(list, i), "path"));
        if (module && ln_emb_path_stays(module) && !ln_emb_path_is_here(module))
            st = copy_module(c, to, module, err);
    }
    json_decref(list);
    return st;
}
