/* Lists models with the facts that config.json and the sizes of the weight files give, without opening a
 * weight file. A directory whose config.json cannot be read is listed with empty facts, not hidden. */
#include "../io/directory.h"
#include "package.h"

#include <sys/stat.h>

typedef struct listing {
    ln_found_fn *fn;
    void *user;
} listing;

/* Counts the weight files and their bytes. A directory that cannot be listed has none, and a warning. */
static void count_files(const char *path, ln_found *f) {
    char file[LN_PATH_MAX];
    ln_names names;
    ln_error why = {0};
    if (ln_names_read(&names, path, &why) != LN_OK)
        ln_log(LN_LOG_WARN, "%s; its files are not counted", why.message);
    for (size_t i = 0; i < names.n; i++) {
        struct stat st;
        if (!ln_ends_with(names.items[i], ".safetensors")) continue;
        if (ln_path_join(file, path, names.items[i], NULL) != LN_OK) continue;
        if (stat(file, &st) != 0 || !S_ISREG(st.st_mode)) continue;
        f->n_files++;
        f->bytes += (uint64_t)st.st_size;
    }
    ln_names_free(&names);
}

static ln_status list_one(void *user, const char *path, ln_error *err) {
    listing *l = user;
    ln_config c;
    ln_found f = {.path = path, .model_type = "", .dtype = ""};
    bool open = ln_config_open(&c, path, NULL) == LN_OK;
    if (open) {
        const char *dtype = ln_config_text(&c, "dtype", NULL);
        f.model_type = c.model_type;
        f.dtype = dtype ? dtype : ln_config_text(&c, "torch_dtype", "");
        ln_quant q;
        if (ln_quant_open(&q, &c, NULL) == LN_OK) f.bits = q.code.bits, f.group = q.code.group;
        ln_quant_close(&q);
    }
    count_files(path, &f);
    ln_status said = LN_CALLBACK(l->fn(l->user, &f, err));
    if (open) ln_config_close(&c);
    return said;
}

ln_status ln_list_models(const char *dir, ln_found_fn *fn, void *user, ln_error *err) {
    listing l = {fn, user};
    return ln_each_model(dir, list_one, &l, err);
}
