/* Lists models with the facts that config.json and the sizes of the weight files give, or the metadata of a
 * GGUF file, without reading weights. A directory whose config.json cannot be read is listed with empty
 * facts, not hidden. */
#include "../base/gguf.h"
#include "../checkpoint/gguf_blocks.h"
#include "../io/directory.h"
#include "package.h"

#include <stdio.h>
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

/* The type of a GGUF file's most bytes, its groups, and the sizes of its files. */
static void read_gguf(const char *file, ln_found *f) {
    enum { TYPES = 64 };
    uint64_t sums[TYPES] = {0};
    size_t most = 0;
    ln_gguf *g;
    if (ln_gguf_open(&g, file, NULL) != LN_OK) return;
    for (size_t i = 0; i < g->n_tensors; i++) {
        const size_t type = (size_t)g->tensors[i].type;
        if (type < TYPES && (sums[type] += g->tensors[i].bytes) > sums[most]) most = type;
    }
    const ln_ggml_block block = ln_ggml_block_of((uint32_t)most);
    const ln_gguf_form *form = ln_gguf_form_of((uint32_t)most);
    if (block.name) f->dtype = block.name;
    if (form) f->bits = form->code.bits, f->group = form->code.group;
    for (size_t i = 0; i < g->n_files; i++) f->n_files++, f->bytes += g->files[i].map.bytes;
    ln_gguf_close(&g);
}

/* Lists a GGUF file, or a manifest that names one. */
static ln_status list_file(const listing *l, const char *path, ln_error *err) {
    char file[LN_PATH_MAX];
    ln_config c;
    ln_found f = {.path = path, .model_type = "", .dtype = ""};
    if (ln_find_model(path, file, sizeof file, NULL) != LN_OK) (void)snprintf(file, sizeof file, "%s", path);
    const bool open = ln_config_open(&c, file, NULL) == LN_OK;
    if (open) f.model_type = c.model_type;
    read_gguf(file, &f);
    const ln_status said = LN_CALLBACK(l->fn(l->user, &f, err));
    if (open) ln_config_close(&c);
    return said;
}

static ln_status list_one(void *user, const char *path, ln_error *err) {
    listing *l = user;
    ln_config c;
    ln_found f = {.path = path, .model_type = "", .dtype = ""};
    if (!ln_is_dir(path)) return list_file(l, path, err);
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
