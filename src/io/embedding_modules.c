/* The modules of sentence-transformers after the pooling: Normalize, Dense, LayerNorm, Dropout. The weights
 * of a module are the tensors of model.safetensors in its directory; they are read where they are mapped. */
#include "embedding_files.h"

#include "directory.h"

#include <string.h>

/* ---- tensors ---- */

static ln_status open_tensors(ln_emb_module *m, const char *dir, ln_error *err) {
    char path[LN_PATH_MAX], other[LN_PATH_MAX], shown[LN_PATH_TEXT];
    bool there;
    LN_TRY(ln_path_join(path, dir, "model.safetensors", err));
    LN_TRY(ln_path_join(other, dir, "pytorch_model.bin", err));
    LN_TRY(ln_look(path, &there, err));
    if (there) return ln_tensors_open_file(&m->tensors, path, err);
    (void)ln_path_text(shown, path);
    if (!ln_exists(other)) return ln_fail(err, LN_EIO, "%s: the weights of this module do not exist", shown);
    return ln_fail(err, LN_EUNSUPPORTED,
                   "%s does not exist, only pytorch_model.bin; save the model again with a recent "
                   "sentence-transformers: SentenceTransformer(DIR).save(NEW_DIR)",
                   shown);
}

/* Stores the tensor `name` of shape [rows, columns], or [columns] if rows is 0. */
static ln_status find(const ln_emb_module *m, const char *name, int64_t rows, int64_t columns,
                      const ln_tensor **out, ln_error *err) {
    const ln_tensor *t = ln_tensors_find(&m->tensors, name);
    char shown[LN_PATH_TEXT];
    const int n_dims = rows ? 2 : 1;
    (void)ln_path_text(shown, m->tensors.files[0].path);
    if (!t) return ln_fail(err, LN_EINVALID, "%s: expected the tensor %s, found none", shown, name);
    if (t->dtype > LN_ST_F16)
        return ln_fail(err, LN_EUNSUPPORTED, "%s: %s: expected F32, BF16 or F16, found %s", shown, name,
                       ln_st_dtype_name(t->dtype));
    if (t->n_dims != n_dims || t->dims[n_dims - 1] != columns || (rows && t->dims[0] != rows))
        return ln_fail(err, LN_EINVALID,
                       "%s: %s: expected %d dimensions that config.json gives (%lld, %lld), found others",
                       shown, name, n_dims, (long long)rows, (long long)columns);
    *out = t;
    return LN_OK;
}

/* A tensor that no field of the configuration describes belongs to another computation. */
static ln_status check_count(const ln_emb_module *m, size_t n, ln_error *err) {
    char shown[LN_PATH_TEXT];
    if (m->tensors.n == n) return LN_OK;
    return ln_fail(err, LN_EINVALID, "%s: expected %zu tensors, found %zu; does config.json belong to it?",
                   ln_path_text(shown, m->tensors.files[0].path), n, m->tensors.n);
}

/* ---- kinds ---- */

static ln_status read_activation(const emb_object *o, ln_emb_activation *out, ln_error *err) {
    static const struct {
        const char *name;
        ln_emb_activation activation;
    } all[] = {{"Identity", LN_EMB_IDENTITY}, {"Tanh", LN_EMB_TANH}, {"ReLU", LN_EMB_RELU},
               {"Sigmoid", LN_EMB_SIGMOID},   {"SiLU", LN_EMB_SILU}, {"GELU", LN_EMB_GELU}};
    const json_t *v = json_object_get(o->json, "activation_function");
    const char *name = json_string_value(v), *dot = name ? strrchr(name, '.') : NULL;
    *out = LN_EMB_TANH;
    if (!v) return LN_OK;
    for (size_t i = 0; dot && strncmp(name, "torch.nn.", 9) == 0 && i < LN_COUNT(all); i++)
        if (strcmp(dot + 1, all[i].name) == 0) return *out = all[i].activation, LN_OK;
    char found[80], shown[LN_PATH_TEXT];
    return ln_fail(err, LN_EUNSUPPORTED,
                   "%s: activation_function: expected Identity, Tanh, ReLU, Sigmoid, SiLU or GELU of "
                   "torch.nn.modules, found %s",
                   ln_path_text(shown, o->path), ln_json_text(v, found));
}

/* Stores the value of `key`, which must be `expected` (0: anything). */
static ln_status read_size(const emb_object *o, const char *key, int64_t expected, int64_t *out,
                           ln_error *err) {
    char wanted[96];
    *out = 0;
    LN_TRY(emb_count(o, key, false, out, err));
    (void)snprintf(wanted, sizeof wanted, "%lld, the values of the module before", (long long)expected);
    if (*out == 0) return emb_bad(o, key, "an integer", err);
    return expected && *out != expected ? emb_bad(o, key, wanted, err) : LN_OK;
}

static ln_status read_dense(ln_emb_module *m, const emb_object *o, const char *dir, ln_error *err) {
    bool bias;
    LN_TRY(read_size(o, "in_features", m->n_in, &m->n_in, err));
    LN_TRY(read_size(o, "out_features", 0, &m->n_out, err));
    LN_TRY(emb_bool(o, "bias", true, &bias, err));
    LN_TRY(emb_bool(o, "use_residual", false, &m->adds_input, err));
    LN_TRY(read_activation(o, &m->activation, err));
    LN_TRY(open_tensors(m, dir, err));
    LN_TRY(find(m, "linear.weight", m->n_out, m->n_in, &m->weight, err));
    if (bias) LN_TRY(find(m, "linear.bias", 0, m->n_out, &m->bias, err));
    if (m->adds_input && m->n_in != m->n_out)
        LN_TRY(find(m, "residual.weight", m->n_out, m->n_in, &m->residual, err));
    return check_count(m, (size_t)1 + bias + (m->residual != NULL), err);
}

static ln_status read_layer_norm(ln_emb_module *m, const emb_object *o, const char *dir, ln_error *err) {
    LN_TRY(read_size(o, "dimension", m->n_in, &m->n_out, err));
    LN_TRY(open_tensors(m, dir, err));
    LN_TRY(find(m, "norm.weight", 0, m->n_out, &m->weight, err));
    LN_TRY(find(m, "norm.bias", 0, m->n_out, &m->bias, err));
    return check_count(m, 2, err);
}

static const struct kind {
    const char *type;
    unsigned group;
    ln_emb_kind kind;
    ln_status (*read)(ln_emb_module *m, const emb_object *o, const char *dir, ln_error *err); /* or NULL */
} kinds[] = {{"Normalize", EMB_NORMALIZE, LN_EMB_NORMALIZE, NULL},
             {"Dropout", EMB_DROPOUT, LN_EMB_NORMALIZE, NULL}, /* does nothing after training */
             {"Dense", EMB_DENSE, LN_EMB_DENSE, read_dense},
             {"LayerNorm", EMB_LAYER_NORM, LN_EMB_LAYER_NORM, read_layer_norm}};

ln_status emb_read_module(ln_emb_files *f, const char *type, const char *dir, ln_error *err) {
    const struct kind *k = NULL;
    char path[LN_PATH_MAX], shown[LN_PATH_TEXT];
    json_t *root;
    for (size_t i = 0; i < LN_COUNT(kinds); i++)
        if (strcmp(type, kinds[i].type) == 0) k = &kinds[i];
    LN_TRY(emb_load(&root, path, dir, "config.json", err));
    const emb_object o = {f, root, path, ""};
    ln_status st = LN_OK;
    if (!k || (k->group != EMB_DROPOUT && f->n_modules == LN_EMB_MOST_MODULES))
        LN_GO(emb_refuse(dir, type, err));
    if (!root && k->read)
        LN_GO(ln_fail(err, LN_EIO, "%s: this file of a module of modules.json does not exist",
                      ln_path_text(shown, path)));
    if (root) LN_GO(emb_check_keys(&o, k->group, err));
    if (k->group == EMB_DROPOUT) goto out;
    ln_emb_module *m = &f->modules[f->n_modules++];
    *m = (ln_emb_module){.kind = k->kind, .n_in = f->n_values, .n_out = f->n_values};
    if (k->read) LN_GO(k->read(m, &o, dir, err));
    f->n_values = m->n_out;
out:
    json_decref(root);
    return st;
}
