/* Sampling parameters, the stop set, and what else the small files of a directory tell (chat template,
 * tokenizer).
 *
 * The stop set is the union of all files: `eos_token_id` of config.json (top-level object and text_config)
 * and of generation_config.json, each a number or a list, and the eos token of tokenizer_config.json. With
 * only one of them, generation may not end. Sampling parameters come from generation_config.json; absent ones
 * have the reference's defaults (temperature 1, top-k 50, top-p 1), and without `do_sample: true` generation
 * is greedy. The file also lists forbidden tokens and sequences, and stop strings. All other keys are checked
 * against generation_keys.def. */
#include "directory.h"
#include "gguf_generation.h"

#include <sys/stat.h>

#include <string.h>

typedef struct gen {
    ln_genconfig *out;
    ln_error *err;
    int64_t vocab;
    ln_config file; /* the file being read, wrapped so that the field readers of config.json apply */
} gen;

/* ---- the stop set ---- */

static ln_status add_eos(gen *g, const json_t *value, const char *where) {
    int64_t id = 0;
    LN_TRY(ln_config_int_at(&g->file, value, where, 0, g->vocab - 1, &id, g->err));
    for (int i = 0; i < g->out->n_eos; i++)
        if (g->out->eos[i] == (int32_t)id) return LN_OK;
    if (g->out->n_eos == (int)LN_COUNT(g->out->eos))
        return ln_fail(g->err, LN_EINVALID,
                       "%s: expected at most %d stop ids in all files together, found more", where,
                       (int)LN_COUNT(g->out->eos));
    g->out->eos[g->out->n_eos++] = (int32_t)id;
    return LN_OK;
}

static ln_status add_all_eos(gen *g, const json_t *object, const char *where) {
    const json_t *value = json_object_get(object, "eos_token_id");
    if (!value || json_is_null(value)) return LN_OK;
    if (!json_is_array(value)) return add_eos(g, value, where);
    if (json_array_size(value) > 1024)
        return ln_config_fail(&g->file, value, where, "at most 32 stop ids", g->err);
    size_t i;
    json_t *item;
    json_array_foreach(value, i, item) LN_TRY(add_eos(g, item, where));
    return LN_OK;
}

/* ---- generation_config.json ---- */

/* Reads a number. Absent and null both give the default: the reference writes null for a parameter that is
 * not set. */
static ln_status real(gen *g, const char *field, double dflt, double lo, double hi, double *out) {
    *out = dflt;
    return ln_config_has(&g->file, field) ? ln_config_real(&g->file, field, dflt, lo, hi, out, g->err)
                                          : LN_OK;
}

/* Without do_sample the other fields have no effect, and their values are not checked. */
static ln_status read_sampling(gen *g) {
    ln_genconfig *o = g->out;
    int64_t top_k = 50;
    o->temperature = o->top_p = 1;
    o->top_k = (int)top_k;
    LN_TRY(real(g, "repetition_penalty", 1, 1e-6, 1e6, &o->repeat_penalty));
    if (ln_config_has(&g->file, "do_sample"))
        LN_TRY(ln_config_bool(&g->file, "do_sample", false, &o->do_sample, g->err));
    if (!o->do_sample) return LN_OK;
    LN_TRY(real(g, "temperature", 1, 0, 1e6, &o->temperature));
    LN_TRY(real(g, "top_p", 1, 0, 1, &o->top_p));
    LN_TRY(real(g, "min_p", 0, 0, 1, &o->min_p));
    if (ln_config_has(&g->file, "top_k"))
        LN_TRY(ln_config_int(&g->file, "top_k", 50, -1, INT32_MAX, &top_k, g->err));
    o->top_k = top_k < 0 ? 0 : (int)top_k; /* some engines write -1 for off */
    return LN_OK;
}

/* ---- forbidden tokens and stop strings ---- */

static ln_status expect_list(gen *g, const json_t *value, const char *field, const char *wanted) {
    return json_is_array(value) ? LN_OK : ln_config_fail(&g->file, value, field, wanted, g->err);
}

/* Reads a list of ids into the arena. Ids outside the vocabulary are dropped, as they are never generated;
 * *all = false if some were. */
static ln_status read_ids(gen *g, const json_t *list, const char *field, int32_t **out, size_t *n,
                          bool *all) {
    size_t i;
    json_t *item;
    LN_TRY(expect_list(g, list, field, "a list of token ids"));
    *n = 0;
    *out = ln_arena_alloc(&g->out->arena, (json_array_size(list) + 1) * sizeof **out);
    if (!*out) return LN_OOM(g->err, field);
    json_array_foreach(list, i, item) {
        if (!json_is_integer(item)) return ln_config_fail(&g->file, item, field, "a token id", g->err);
        json_int_t id = json_integer_value(item);
        if (id >= 0 && id < g->vocab) (*out)[(*n)++] = (int32_t)id;
    }
    *all = *n == json_array_size(list);
    if (!*all) {
        char shown[LN_PATH_TEXT];
        ln_log(LN_LOG_INFO, "%s: %s: ids outside the vocabulary of %lld are left out",
               ln_path_text(shown, g->file.path), field, (long long)g->vocab);
    }
    return LN_OK;
}

static ln_status read_id_field(gen *g, const char *field, int32_t **out, size_t *n) {
    bool all;
    return ln_config_has(&g->file, field)
               ? read_ids(g, json_object_get(g->file.root, field), field, out, n, &all)
               : LN_OK;
}

/* A sequence with an id outside the vocabulary can never be completed and is dropped. */
static ln_status read_bad_words(gen *g) {
    static const char field[] = "bad_words_ids";
    const json_t *lists = json_object_get(g->file.root, field);
    size_t i;
    json_t *item;
    if (!ln_config_has(&g->file, field)) return LN_OK;
    LN_TRY(expect_list(g, lists, field, "a list of lists of token ids"));
    g->out->bad_words =
        ln_arena_alloc(&g->out->arena, (json_array_size(lists) + 1) * sizeof *g->out->bad_words);
    if (!g->out->bad_words) return LN_OOM(g->err, field);
    json_array_foreach(lists, i, item) {
        int32_t *ids;
        size_t n;
        bool all;
        LN_TRY(read_ids(g, item, field, &ids, &n, &all));
        if (json_array_size(item) == 0)
            return ln_config_fail(&g->file, item, field, "lists that are not empty", g->err);
        if (all) g->out->bad_words[g->out->n_bad_words++] = (ln_id_list){ids, n};
    }
    return LN_OK;
}

static ln_status add_stop(gen *g, const json_t *value) {
    size_t n = json_string_length(value);
    if (!json_is_string(value) || n == 0 || n > LN_STOP_MOST || memchr(json_string_value(value), 0, n))
        return ln_config_fail(&g->file, value, "stop_strings", "texts of 1 to 1024 bytes without U+0000",
                              g->err);
    const char *copy = ln_arena_strndup(&g->out->arena, json_string_value(value), n);
    if (!copy) return LN_OOM(g->err, "stop_strings");
    g->out->stop[g->out->n_stop++] = copy;
    return LN_OK;
}

static ln_status read_stops(gen *g) {
    const json_t *value = json_object_get(g->file.root, "stop_strings");
    size_t i, n = json_is_array(value) ? json_array_size(value) : 1;
    json_t *item;
    if (!ln_config_has(&g->file, "stop_strings")) return LN_OK;
    if (n > LN_STOP_MOST)
        return ln_config_fail(&g->file, value, "stop_strings", "at most 1024 texts", g->err);
    g->out->stop = ln_arena_alloc(&g->out->arena, (n + 1) * sizeof *g->out->stop);
    if (!g->out->stop) return LN_OOM(g->err, "stop_strings");
    if (!json_is_array(value)) return add_stop(g, value);
    json_array_foreach(value, i, item) LN_TRY(add_stop(g, item));
    return LN_OK;
}

static ln_status count(gen *g, const char *field, int64_t *out) {
    return ln_config_has(&g->file, field) ? ln_config_int(&g->file, field, 0, 0, INT32_MAX, out, g->err)
                                          : LN_OK;
}

static ln_status read_forbidden(gen *g) {
    ln_genconfig *o = g->out;
    LN_TRY(read_id_field(g, "suppress_tokens", &o->suppress, &o->n_suppress));
    LN_TRY(read_id_field(g, "begin_suppress_tokens", &o->begin_suppress, &o->n_begin_suppress));
    LN_TRY(read_bad_words(g));
    LN_TRY(count(g, "no_repeat_ngram_size", &o->no_repeat_ngram));
    LN_TRY(count(g, "min_new_tokens", &o->min_new));
    return read_stops(g);
}

/* ---- keys ---- */

static ln_status check_keys(gen *g, const ln_keys *table, unsigned group) {
    ln_key_report report = {0};
    ln_status st = ln_keys_check(table, group, g->file.root, g->file.path, "", &report, g->err);
    if (st == LN_OK) ln_key_report_say(&report, g->file.path);
    ln_key_report_free(&report);
    return st;
}

/* Without generation_config.json transformers takes these keys from config.json. linnet does not, and logs a
 * warning. */
static ln_status check_without_file(gen *g, const ln_config *c) {
    const char *name;
    json_t *value;
    char text[80], shown[LN_PATH_TEXT];
    const unsigned group =
        json_is_true(json_object_get(c->text, "do_sample")) ? LN_KEYS_DRAWN : LN_KEYS_GREEDY;
    ln_str names = {0};
    json_object_foreach(c->text, name, value) {
        const ln_key *key = ln_key_find(&ln_generation_keys, group, name);
        if (!key || key->kind == LN_KEY_HARMLESS || ln_key_is_same(key, value)) continue;
        ln_str_addf(&names, "%s%s %s", names.len ? ", " : "", key->name, ln_json_text(value, text));
    }
    if (names.len)
        ln_log(LN_LOG_WARN,
               "%s: keys of generation are read from generation_config.json, which does not exist; not "
               "applied: %s",
               ln_path_text(shown, c->path), names.data);
    ln_status st = names.failed ? LN_OOM(g->err, "the names of keys") : LN_OK;
    ln_str_free(&names);
    return st;
}

static ln_status open_file(gen *g, const char *dir, const char *name, bool *found) {
    LN_TRY(ln_path_join(g->file.path, dir, name, g->err));
    struct stat st;
    *found = lstat(g->file.path, &st) == 0; /* a dangling link is a damaged file, not an absent one */
    if (!*found) return ln_look(g->file.path, found, g->err);
    LN_TRY(ln_json_object_file(&g->file.root, g->file.path, g->err));
    g->file.text = g->file.root;
    return LN_OK;
}

static ln_status read_generation(gen *g, const char *dir) {
    LN_TRY(open_file(g, dir, "generation_config.json", &g->out->present));
    ln_status st = LN_OK;
    if (g->out->present) {
        st = read_sampling(g);
        if (st == LN_OK) st = read_forbidden(g);
        if (st == LN_OK)
            st = check_keys(g, &ln_generation_keys, g->out->do_sample ? LN_KEYS_DRAWN : LN_KEYS_GREEDY);
        if (st == LN_OK) st = add_all_eos(g, g->file.root, "eos_token_id");
    }
    ln_config_close(&g->file);
    return st;
}

/* Reads tokenizer_config.json: checks its keys and adds the eos token, a string or an object with it as
 * `content`. */
static ln_status read_tokenizer(gen *g, const char *dir, int32_t (*token_id)(void *, const char *, size_t),
                                void *user) {
    bool found;
    LN_TRY(open_file(g, dir, "tokenizer_config.json", &found));
    if (!found) return LN_OK;
    const json_t *token = json_object_get(g->file.root, "eos_token");
    if (json_is_object(token)) token = json_object_get(token, "content");
    ln_status st = check_keys(g, &ln_tokenizer_keys, 1);
    if (st == LN_OK && token && !json_is_string(token) && !json_is_null(token)) {
        st = ln_config_fail(&g->file, token, "eos_token", "a text, an object with one as content, or null",
                            g->err);
    } else if (st == LN_OK && json_is_string(token)) {
        int32_t id = token_id(user, json_string_value(token), json_string_length(token));
        json_t *value = id >= 0 && id < g->vocab ? json_integer(id) : NULL;
        if (value) st = add_eos(g, value, "eos_token");
        json_decref(value);
    }
    ln_config_close(&g->file);
    return st;
}

/* Reads the ids of config.json, which is already open; g->file borrows it so that messages name the file. */
static ln_status read_config(gen *g, const ln_config *c) {
    g->file = *c;
    const json_t *bos = json_object_get(c->text, "bos_token_id");
    if (json_is_integer(bos) && json_integer_value(bos) >= 0 && json_integer_value(bos) < g->vocab)
        g->out->bos = (int32_t)json_integer_value(bos);
    ln_status st = add_all_eos(g, c->root, "eos_token_id");
    if (st == LN_OK && c->text != c->root) st = add_all_eos(g, c->text, "text_config.eos_token_id");
    g->file = (ln_config){0};
    return st;
}

static ln_status read_all(gen *g, const char *dir, const ln_config *c,
                          int32_t (*token_id)(void *, const char *, size_t), void *user) {
    LN_TRY(read_config(g, c));
    LN_TRY(read_generation(g, dir));
    if (!g->out->present) LN_TRY(check_without_file(g, c));
    return token_id ? read_tokenizer(g, dir, token_id, user) : LN_OK;
}

ln_status ln_genconfig_open(ln_genconfig *out, const char *dir, const ln_config *c, int64_t vocab,
                            int32_t (*token_id)(void *user, const char *text, size_t bytes), void *user,
                            ln_error *err) {
    *out = (ln_genconfig){.temperature = 1, .top_p = 1, .repeat_penalty = 1, .top_k = 50, .bos = -1};
    gen g = {.out = out, .err = err, .vocab = vocab};
    out->repeat_penalty = 1;
    ln_status st = ln_gguf_is_file(dir) ? ln_genconfig_of_gguf(out, dir, vocab, err)
                                        : read_all(&g, dir, c, token_id, user);
    if (st != LN_OK) ln_genconfig_close(out);
    return st;
}

void ln_genconfig_close(ln_genconfig *g) {
    ln_arena_free(&g->arena);
    *g = (ln_genconfig){0};
}

ln_status ln_check_tokenizer_keys(const char *dir, ln_error *err) {
    gen g = {.err = err};
    bool found;
    ln_status st = open_file(&g, dir, "tokenizer_config.json", &found);
    if (st == LN_OK && found) st = check_keys(&g, &ln_tokenizer_keys, 1);
    ln_config_close(&g.file);
    return st == LN_EMEMORY ? st : LN_OK;
}

/* ---- chat template and tokenizer ---- */

/* Stores whether a GGUF file has a key with a text, or a list. */
static ln_status has_key(const char *path, const char *key, bool *out, ln_error *err) {
    ln_gguf *g;
    LN_TRY(ln_gguf_open(&g, path, err));
    const ln_gguf_value *v = ln_gguf_find(g, key);
    *out = v && v->n > 0 && (v->is_array || ln_gguf_text_at(v, 0).bytes > 0);
    ln_gguf_close(&g);
    return LN_OK;
}

ln_status ln_has_template(const char *dir, bool *out, ln_error *err) {
    char path[LN_PATH_MAX];
    if (ln_gguf_is_file(dir)) return has_key(dir, "tokenizer.chat_template", out, err);
    static const char *const files[] = {"chat_template.jinja", "chat_template.json"};
    *out = false;
    for (size_t i = 0; i < LN_COUNT(files) && !*out; i++) {
        LN_TRY(ln_path_join(path, dir, files[i], err));
        LN_TRY(ln_look(path, out, err));
    }
    if (*out) return LN_OK;
    static const char *const folders[] = {"additional_chat_templates", "chat_templates"};
    ln_names names;
    bool there;
    for (size_t i = 0; i < LN_COUNT(folders) && !*out; i++) {
        LN_TRY(ln_path_join(path, dir, folders[i], err));
        LN_TRY(ln_look_dir(path, &there, err));
        if (!there) continue;
        LN_TRY(ln_names_read(&names, path, err));
        *out = ln_names_like(&names, "", ".jinja") != NULL;
        ln_names_free(&names);
    }
    LN_TRY(ln_path_join(path, dir, "tokenizer_config.json", err));
    LN_TRY(ln_look(path, &there, err));
    if (*out || !there) return LN_OK;
    json_t *root = NULL;
    LN_TRY(ln_json_object_file(&root, path, err));
    const json_t *t = json_object_get(root, "chat_template");
    *out = json_is_string(t)  ? json_string_length(t) > 0
           : json_is_array(t) ? json_array_size(t) > 0
                              : t && !json_is_null(t);
    json_decref(root);
    return LN_OK;
}

/* Whether a small file is a Git LFS pointer; larger files cannot be one. */
static ln_status check_pointer(const char *path, ln_error *err) {
    char *data = NULL;
    size_t bytes = 0;
    ln_error why = {0}; /* a call that succeeds leaves the caller's error as it was */
    ln_status st = ln_read_file(path, 1024, &data, &bytes, &why);
    if (st == LN_EMEMORY) return ln_fail(err, st, "%s", why.message);
    if (st != LN_OK) return LN_OK; /* too large, or an error that its reader reports */
    st = ln_refuse_pointer(path, data, bytes, err);
    ln_free(data);
    return st;
}

ln_status ln_check_tokenizer(const char *dir, ln_error *err) {
    char path[LN_PATH_MAX], other[LN_PATH_MAX], shown[LN_PATH_TEXT];
    ln_path_text(shown, dir);
    bool there, model, vocab;
    if (ln_gguf_is_file(dir)) {
        LN_TRY(has_key(dir, "tokenizer.ggml.model", &there, err));
        return there ? LN_OK : ln_fail(err, LN_EIO, "%s: no tokenizer in the file", shown);
    }
    LN_TRY(ln_path_join(path, dir, "tokenizer.json", err));
    LN_TRY(ln_look(path, &there, err));
    if (there) return check_pointer(path, err);
    LN_TRY(ln_path_join(path, dir, "tekken.json", err));
    LN_TRY(ln_look(path, &there, err));
    if (there) return check_pointer(path, err);
    LN_TRY(ln_path_join(path, dir, "tokenizer.model", err));
    LN_TRY(ln_path_join(other, dir, "vocab.json", err));
    LN_TRY(ln_look(path, &model, err));
    LN_TRY(ln_look(other, &vocab, err));
    const char *what = model ? "tokenizer.model" : vocab ? "vocab.json and merges.txt" : NULL;
    if (what)
        return ln_fail(err, LN_EUNSUPPORTED,
                       "%s: only %s, no tokenizer.json; convert it: python3 -c \"from transformers import "
                       "AutoTokenizer as T; "
                       "T.from_pretrained('%s').save_pretrained('%s')\"",
                       shown, what, shown, shown);
    return ln_fail(err, LN_EIO, "%s: no tokenizer.json; fetch the model with `hf download`", shown);
}
