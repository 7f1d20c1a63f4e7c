/* The two files of sentence-transformers about a whole model. config_sentence_transformers.json: prompts,
 * dimensions and how vectors are compared. sentence_bert_config.json: how texts become tokens, and arguments
 * for the classes of transformers, of which only those are accepted that change no value. */
#include "embedding_files.h"

#include "directory.h"

#include <string.h>

/* ---- config_sentence_transformers.json ---- */

static ln_status read_prompts(ln_emb_files *f, const emb_object *o, ln_error *err) {
    const emb_object prompts = {f, json_object_get(o->json, "prompts"), o->path, "prompts."};
    const json_t *name = json_object_get(o->json, "default_prompt_name");
    const char *key;
    json_t *text;
    if (prompts.json && !json_is_object(prompts.json)) return emb_bad(o, "prompts", "an object", err);
    json_object_foreach((json_t *)(uintptr_t)prompts.json, key, text) {
        if (!json_is_string(text) && !json_is_null(text)) return emb_bad(&prompts, key, "a text", err);
    }
    f->prompts = prompts.json;
    if (!name || json_is_null(name)) return LN_OK;
    const char *text_or_null;
    size_t bytes;
    if (!json_is_string(name)) return emb_bad(o, "default_prompt_name", "a text", err);
    f->default_prompt = json_string_value(name);
    const ln_status st = ln_emb_prompt(f, f->default_prompt, &text_or_null, &bytes, err);
    char shown[LN_PATH_TEXT];
    return st == LN_OK ? LN_OK : ln_prefix(err, st, "%s: default_prompt_name", ln_path_text(shown, o->path));
}

/* Vectors that are compared by a product or a distance keep their length. */
static void read_similarity(ln_emb_files *f, const emb_object *o) {
    static const char *const by_length[] = {"dot", "euclidean", "manhattan"};
    char found[80], shown[LN_PATH_TEXT];
    const json_t *v = json_object_get(o->json, "similarity_fn_name");
    if (!v || json_is_null(v) || ln_json_is_text(v, "cosine")) return;
    for (size_t i = 0; i < LN_COUNT(by_length); i++) f->keep_length |= ln_json_is_text(v, by_length[i]);
    if (f->keep_length) return;
    ln_str_addf(&f->warnings,
                "%s: similarity_fn_name: expected cosine, dot, euclidean or manhattan, found %s\n",
                ln_path_text(shown, o->path), ln_json_text(v, found));
}

ln_status emb_read_model_config(ln_emb_files *f, const char *dir, ln_error *err) {
    char path[LN_PATH_MAX];
    LN_TRY(emb_load(&f->config, path, dir, "config_sentence_transformers.json", err));
    const emb_object o = {f, f->config, path, ""};
    if (!f->config) return LN_OK;
    LN_TRY(emb_check_keys(&o, EMB_MODEL, err));
    LN_TRY(read_prompts(f, &o, err));
    LN_TRY(emb_count(&o, "truncate_dim", true, &f->dimensions, err));
    read_similarity(f, &o);
    return f->warnings.failed ? LN_OOM(err, "warnings") : LN_OK;
}

/* Prompts of every model: empty ones, unless the file has them. */
static const char *const always[] = {"query", "document"};

static ln_status unknown_prompt(const ln_emb_files *f, const char *name, ln_error *err) {
    ln_str names = {0};
    char shown[80];
    const char *key;
    json_t *item;
    json_object_foreach((json_t *)(uintptr_t)f->prompts, key, item) {
        if (item && names.len < 400) ln_str_addf(&names, ", %s", ln_excerpt(shown, key, strlen(key)));
    }
    for (size_t i = 0; i < LN_COUNT(always); i++)
        if (!json_object_get(f->prompts, always[i])) ln_str_addf(&names, ", %s", always[i]);
    const ln_status st = ln_fail(err, LN_EINVALID, "expected the name of a prompt (%s), found '%s'",
                                 names.len > 2 ? names.data + 2 : "", ln_excerpt(shown, name, strlen(name)));
    ln_str_free(&names);
    return st;
}

ln_status ln_emb_prompt(const ln_emb_files *f, const char *name, const char **text, size_t *bytes,
                        ln_error *err) {
    const json_t *v = json_object_get(f->prompts, name);
    bool known = v != NULL;
    for (size_t i = 0; i < LN_COUNT(always); i++) known |= strcmp(name, always[i]) == 0;
    *text = json_is_string(v) ? json_string_value(v) : "";
    *bytes = json_is_string(v) ? json_string_length(v) : 0;
    return known ? LN_OK : unknown_prompt(f, name, err);
}

/* ---- sentence_bert_config.json ---- */

/* Only the hidden states of a text are computed, and no text is put into a chat template. */
static ln_status check_modalities(const emb_object *o, ln_error *err) {
    const json_t *all = json_object_get(o->json, "modality_config"), *text = json_object_get(all, "text");
    if (!all) return LN_OK;
    if (!json_is_object(all)) return emb_bad(o, "modality_config", "an object", err);
    if (json_object_get(all, "message"))
        return emb_refuse(o->path, "modality_config.message: texts as messages of a chat template", err);
    const json_t *output = json_object_get(text, "method_output_name");
    if (json_is_array(output) && json_array_size(output) == 1) output = json_array_get(output, 0);
    if (!ln_json_is_text(json_object_get(text, "method"), "forward") ||
        !ln_json_is_text(output, "last_hidden_state"))
        return emb_refuse(o->path, "modality_config: text by another way than last_hidden_state of forward",
                          err);
    return LN_OK;
}

/* Checks the keys of an object within an object, whose key with a dot after it is `where`; out->json NULL:
 * absent. */
static ln_status read_part(const emb_object *o, const char *where, unsigned group, emb_object *out,
                           ln_error *err) {
    char key[40];
    (void)snprintf(key, sizeof key, "%.*s", (int)strlen(where) - 1, where);
    const json_t *v = json_object_get(o->json, key);
    *out = (emb_object){o->files, NULL, o->path, where};
    if (!v) return LN_OK;
    if (!json_is_object(v)) return emb_bad(o, key, "an object", err);
    out->json = v;
    return emb_check_keys(out, group, err);
}

static ln_status read_arguments(ln_emb_files *f, const emb_object *o, ln_error *err) {
    static const struct {
        const char *where;
        unsigned group;
    } parts[] = {{"model_args.", EMB_MODEL_ARGS},         {"model_kwargs.", EMB_MODEL_ARGS},
                 {"config_args.", EMB_CONFIG_ARGS},       {"config_kwargs.", EMB_CONFIG_ARGS},
                 {"tokenizer_args.", EMB_TOKENIZER_ARGS}, {"processor_kwargs.", EMB_TOKENIZER_ARGS}};
    for (size_t i = 0; i < LN_COUNT(parts); i++) {
        emb_object part;
        LN_TRY(read_part(o, parts[i].where, parts[i].group, &part, err));
        if (parts[i].group != EMB_TOKENIZER_ARGS || !part.json) continue;
        LN_TRY(emb_count(&part, "model_max_length", true, &f->max_tokens, err));
        const json_t *side = json_object_get(part.json, "truncation_side");
        if (side) f->cut_left = ln_json_is_text(side, "left");
    }
    return LN_OK;
}

static ln_status read_processing(ln_emb_files *f, const emb_object *o, ln_error *err) {
    emb_object all, part;
    LN_TRY(read_part(o, "processing_kwargs.", EMB_PROCESSING, &all, err));
    LN_TRY(read_part(&all, "text.", EMB_PROCESSING_TEXT, &part, err));
    LN_TRY(emb_count(&part, "max_length", true, &f->max_tokens, err));
    LN_TRY(read_part(&all, "common.", EMB_PROCESSING_TEXT, &part, err));
    return emb_count(&part, "max_length", true, &f->max_tokens, err);
}

/* Without a limit in the file, the tokenizer's and the model's hold. */
static ln_status read_tokenizer_limits(ln_emb_files *f, const char *dir, const ln_emb_model *m, bool named,
                                       ln_error *err) {
    char path[LN_PATH_MAX];
    json_t *root;
    LN_TRY(emb_load(&root, path, dir, "tokenizer_config.json", err));
    const double most = json_number_value(json_object_get(root, "model_max_length"));
    if (!named) f->max_tokens = most >= 1 && most < (double)m->n_ctx ? (int64_t)most : m->n_ctx;
    f->cut_left |= ln_json_is_text(json_object_get(root, "truncation_side"), "left");
    json_decref(root);
    return LN_OK;
}

static ln_status read_object(ln_emb_files *f, const emb_object *o, ln_error *err) {
    LN_TRY(emb_check_keys(o, EMB_TRANSFORMER, err));
    LN_TRY(check_modalities(o, err));
    LN_TRY(emb_bool(o, "do_lower_case", false, &f->lower_case, err));
    LN_TRY(emb_count(o, "max_seq_length", true, &f->max_tokens, err));
    LN_TRY(read_arguments(f, o, err));
    return read_processing(f, o, err);
}

ln_status emb_read_transformer(ln_emb_files *f, const char *dir, const ln_emb_model *m, ln_error *err) {
    static const char *const names[] = {"bert",   "roberta",     "distilbert", "camembert",
                                        "albert", "xlm-roberta", "xlnet"};
    char name[64], path[LN_PATH_MAX];
    json_t *root = NULL;
    ln_status st = LN_OK;
    for (size_t i = 0; i < LN_COUNT(names) && json_object_size(root) == 0; i++) {
        json_decref(root);
        (void)snprintf(name, sizeof name, "sentence_%s_config.json", names[i]);
        LN_TRY(emb_load(&root, path, dir, name, err));
    }
    const emb_object o = {f, root, path, ""};
    if (root) st = read_object(f, &o, err);
    json_decref(root);
    return st == LN_OK ? read_tokenizer_limits(f, dir, m, f->max_tokens > 0, err) : st;
}
