/* How a checkpoint wants to be sampled from, where its texts end, and whether it is an instruct model.
 *
 * The stop set is the union of what all files say: `eos_token_id` of config.json (top and text_config) and generation_config.json, each
 * a number or a list, and the eos token that tokenizer_config.json names. Taking only one of them is how answers become endless.
 * Sampling parameters come from generation_config.json; absent ones are the reference's (temperature 1, top-k 50, top-p 1), and without
 * `do_sample: true` generation is greedy. */
#include "dir.h"

#include <sys/stat.h>

#include <string.h>

typedef struct gen {
    ln_genconfig *out;
    ln_error *err;
    int64_t vocab;
    ln_config file;        /* stands for the file being read, so that its fields are read as config.json's are */
} gen;

/* ---- the stop set ---- */

static ln_status add_eos(gen *g, const json_t *value, const char *where) {
    int64_t id = 0;
    LN_TRY(ln_config_int_at(&g->file, value, where, 0, g->vocab - 1, &id, g->err));
    for (int i = 0; i < g->out->n_eos; i++)
        if (g->out->eos[i] == (int32_t)id) return LN_OK;
    if (g->out->n_eos == (int)LN_COUNT(g->out->eos)) return ln_fail(g->err, LN_EINVALID, "%s: expected at most %d stop ids in all files together, found more", where, (int)LN_COUNT(g->out->eos));
    g->out->eos[g->out->n_eos++] = (int32_t)id;
    return LN_OK;
}

static ln_status add_all_eos(gen *g, const json_t *object, const char *where) {
    const json_t *value = json_object_get(object, "eos_token_id");
    if (!value || json_is_null(value)) return LN_OK;
    if (!json_is_array(value)) return add_eos(g, value, where);
    if (json_array_size(value) > 1024) return ln_config_fail(&g->file, value, where, "at most 32 stop ids", g->err);
    size_t i;
    json_t *item;
    json_array_foreach(value, i, item) LN_TRY(add_eos(g, item, where));
    return LN_OK;
}

/* ---- generation_config.json ---- */

/* Absent and null both mean the default here: the reference writes null for what is not set. */
static ln_status real(gen *g, const char *field, double dflt, double lo, double hi, double *out) {
    *out = dflt;
    return ln_config_has(&g->file, field) ? ln_config_real(&g->file, field, dflt, lo, hi, out, g->err) : LN_OK;
}

static ln_status read_sampling(gen *g) {
    ln_genconfig *o = g->out;
    int64_t top_k = 50;
    if (ln_config_has(&g->file, "do_sample")) LN_TRY(ln_config_bool(&g->file, "do_sample", false, &o->do_sample, g->err));
    LN_TRY(real(g, "temperature", 1, 0, 1e6, &o->temperature));
    LN_TRY(real(g, "top_p", 1, 0, 1, &o->top_p));
    LN_TRY(real(g, "min_p", 0, 0, 1, &o->min_p));
    LN_TRY(real(g, "repetition_penalty", 1, 1e-6, 1e6, &o->repeat_penalty));
    if (ln_config_has(&g->file, "top_k")) LN_TRY(ln_config_int(&g->file, "top_k", 50, -1, INT32_MAX, &top_k, g->err));
    o->top_k = top_k < 0 ? 0 : (int)top_k; /* -1 is another engine's way to say off */
    return LN_OK;
}

static ln_status open_file(gen *g, const char *dir, const char *name, bool *found) {
    LN_TRY(ln_path_join(g->file.path, dir, name, g->err));
    struct stat st;
    *found = lstat(g->file.path, &st) == 0; /* a link that leads nowhere is a damaged file, not an absent one */
    if (!*found) return LN_OK;
    LN_TRY(ln_json_object_file(&g->file.root, g->file.path, g->err));
    g->file.text = g->file.root;
    return LN_OK;
}

static ln_status read_generation(gen *g, const char *dir) {
    LN_TRY(open_file(g, dir, "generation_config.json", &g->out->present));
    ln_status st = LN_OK;
    if (g->out->present) {
        st = read_sampling(g);
        if (st == LN_OK) st = add_all_eos(g, g->file.root, "eos_token_id");
    }
    ln_config_close(&g->file);
    return st;
}

/* The text of the eos token: a string, or an object that holds it as `content`. */
static ln_status read_tokenizer(gen *g, const char *dir, int32_t (*token_id)(void *, const char *, size_t), void *user) {
    bool found;
    LN_TRY(open_file(g, dir, "tokenizer_config.json", &found));
    if (!found) return LN_OK;
    const json_t *token = json_object_get(g->file.root, "eos_token");
    if (json_is_object(token)) token = json_object_get(token, "content");
    ln_status st = LN_OK;
    if (token && !json_is_string(token) && !json_is_null(token)) {
        st = ln_config_fail(&g->file, token, "eos_token", "a text, an object with one as content, or null", g->err);
    } else if (json_is_string(token)) {
        int32_t id = token_id(user, json_string_value(token), json_string_length(token));
        json_t *value = id >= 0 && id < g->vocab ? json_integer(id) : NULL;
        if (value) st = add_eos(g, value, "eos_token");
        json_decref(value);
    }
    ln_config_close(&g->file);
    return st;
}

/* config.json is open already: its object is lent to the reader for the messages' sake. */
static ln_status read_config(gen *g, const ln_config *c) {
    g->file = *c;
    const json_t *bos = json_object_get(c->text, "bos_token_id");
    if (json_is_integer(bos) && json_integer_value(bos) >= 0 && json_integer_value(bos) < g->vocab) g->out->bos = (int32_t)json_integer_value(bos);
    ln_status st = add_all_eos(g, c->root, "eos_token_id");
    if (st == LN_OK && c->text != c->root) st = add_all_eos(g, c->text, "text_config.eos_token_id");
    g->file = (ln_config){0};
    return st;
}

ln_status ln_genconfig_open(ln_genconfig *out, const char *dir, const ln_config *c, int64_t vocab,
                            int32_t (*token_id)(void *user, const char *text, size_t bytes), void *user, ln_error *err) {
    *out = (ln_genconfig){.temperature = 1, .top_p = 1, .repeat_penalty = 1, .top_k = 50, .bos = -1};
    gen g = {.out = out, .err = err, .vocab = vocab};
    LN_TRY(read_config(&g, c));
    LN_TRY(read_generation(&g, dir));
    return token_id ? read_tokenizer(&g, dir, token_id, user) : LN_OK;
}

/* ---- what else a directory tells ---- */

ln_status ln_has_template(const char *dir, bool *out, ln_error *err) {
    char path[LN_PATH_MAX];
    static const char *const files[] = {"chat_template.jinja", "chat_template.json"};
    *out = false;
    for (size_t i = 0; i < LN_COUNT(files) && !*out; i++) {
        LN_TRY(ln_path_join(path, dir, files[i], err));
        *out = ln_exists(path);
    }
    if (*out) return LN_OK;
    ln_names names;
    LN_TRY(ln_path_join(path, dir, "chat_templates", err));
    if (ln_is_dir(path)) {
        LN_TRY(ln_names_read(&names, path, err));
        *out = ln_names_like(&names, "", ".jinja") != NULL;
        ln_names_free(&names);
    }
    LN_TRY(ln_path_join(path, dir, "tokenizer_config.json", err));
    if (*out || !ln_exists(path)) return LN_OK;
    json_t *root = NULL;
    LN_TRY(ln_json_object_file(&root, path, err));
    const json_t *t = json_object_get(root, "chat_template");
    *out = json_is_string(t) ? json_string_length(t) > 0 : json_is_array(t) ? json_array_size(t) > 0 : t && !json_is_null(t);
    json_decref(root);
    return LN_OK;
}

/* The first bytes of a file that may be a pointer; real files are larger than a pointer can be. */
static ln_status check_pointer(const char *path, ln_error *err) {
    char *data = NULL;
    size_t bytes = 0;
    ln_status st = ln_read_file(path, 1024, &data, &bytes, err);
    if (st == LN_EMEMORY) return st;
    if (st != LN_OK) return LN_OK; /* larger, or for its reader to refuse */
    st = ln_refuse_pointer(path, data, bytes, err);
    ln_free(data);
    return st;
}

ln_status ln_check_tokenizer(const char *dir, ln_error *err) {
    char path[LN_PATH_MAX], other[LN_PATH_MAX], shown[LN_PATH_TEXT];
    ln_path_text(shown, dir);
    LN_TRY(ln_path_join(path, dir, "tokenizer.json", err));
    if (ln_exists(path)) return check_pointer(path, err);
    LN_TRY(ln_path_join(path, dir, "tokenizer.model", err));
    LN_TRY(ln_path_join(other, dir, "vocab.json", err));
    const char *what = ln_exists(path) ? "tokenizer.model" : ln_exists(other) ? "vocab.json and merges.txt" : NULL;
    if (what)
        return ln_fail(err, LN_EUNSUPPORTED,
                       "%s: only %s, no tokenizer.json; convert it: python3 -c \"from transformers import AutoTokenizer as T; "
                       "T.from_pretrained('%s').save_pretrained('%s')\"",
                       shown, what, shown, shown);
    return ln_fail(err, LN_EIO, "%s: no tokenizer.json; fetch the model with `hf download`", shown);
}
