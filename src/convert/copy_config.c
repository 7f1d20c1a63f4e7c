/* Writes the files of a new model other than tensors: config.json and the index as mlx-lm writes them, and
 * copies of the tokenizer's files.
 *
 * config.json is the original with the quantization block added under both of its names, sorted by its
 * top-level keys. As in mlx-lm, the stop ids of generation_config.json replace its own. Components that are
 * not converted (a vision tower) lose their entry. */
#include "../io/directory.h"
#include "convert.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- indented JSON ---- */

static void indent(ln_str *s, int depth) {
    ln_str_adds(s, "\n");
    for (int i = 0; i < depth; i++) ln_str_adds(s, "    ");
}

static void add_real(ln_str *s, double v) {
    size_t begin = s->len;
    ln_str_double(s, v);
    /* a real must not become an integer */
    if (!s->failed && !strpbrk(s->data + begin, ".eE")) ln_str_adds(s, ".0");
}

/* Recursive; the loader limits the depth (LN_JSON_MAX_DEPTH). */
static void add_json(ln_str *s, const json_t *v, int depth) {
    const char *key;
    json_t *item;
    size_t i, n = 0;
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        ln_str_adds(s, "{");
        json_object_foreach((json_t *)(uintptr_t)v, key,
                            item) { /* the macro needs a non-const object but only reads it */
            ln_str_adds(s, n++ ? "," : "");
            indent(s, depth + 1);
            ln_str_json(s, key, strlen(key));
            ln_str_adds(s, ": ");
            add_json(s, item, depth + 1);
        }
        if (n) indent(s, depth);
        ln_str_adds(s, "}");
        break;
    case JSON_ARRAY:
        ln_str_adds(s, "[");
        json_array_foreach(v, i, item) {
            ln_str_adds(s, i ? "," : "");
            indent(s, depth + 1);
            add_json(s, item, depth + 1);
        }
        if (json_array_size(v)) indent(s, depth);
        ln_str_adds(s, "]");
        break;
    case JSON_STRING: ln_str_json(s, json_string_value(v), json_string_length(v)); break;
    case JSON_INTEGER: ln_str_addf(s, "%lld", (long long)json_integer_value(v)); break;
    case JSON_REAL: add_real(s, json_real_value(v)); break;
    case JSON_TRUE: ln_str_adds(s, "true"); break;
    case JSON_FALSE: ln_str_adds(s, "false"); break;
    default: ln_str_adds(s, "null"); break;
    }
}

static int by_key(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* A copy of an object with its top-level keys sorted; a new reference, NULL if memory runs out. */
static json_t *sorted(const json_t *v) {
    size_t n = 0, size = json_object_size(v);
    const char *key, **keys = ln_zalloc(size + 1, sizeof *keys);
    json_t *item, *out = keys ? json_object() : NULL;
    if (out) {
        json_object_foreach((json_t *)(uintptr_t)v, key, item) keys[n++] = key;
        qsort(keys, n, sizeof *keys, by_key);
    }
    for (size_t i = 0; out && i < n; i++)
        if (json_object_set(out, keys[i], json_object_get(v, keys[i])) != 0) json_decref(out), out = NULL;
    ln_free(keys);
    return out;
}

ln_status ln_convert_text(const char *to, const char *name, const char *text, size_t bytes, ln_error *err) {
    char path[LN_PATH_MAX];
    ln_out o = {0};
    ln_status st = LN_OK;
    LN_GO(ln_path_join(path, to, name, err));
    LN_GO(ln_out_open(&o, path, false, err));
    LN_GO(ln_out_write(&o, text, bytes, err));
    LN_GO(ln_out_commit(&o, err));
out:
    ln_out_abort(&o);
    return st;
}

ln_status ln_convert_json(const char *to, const char *name, const json_t *v, ln_error *err) {
    ln_str s = {0};
    add_json(&s, v, 0);
    ln_str_adds(&s, "\n");
    const ln_status st =
        s.failed ? LN_OOM(err, "a configuration") : ln_convert_text(to, name, s.data, s.len, err);
    ln_str_free(&s);
    return st;
}

ln_status ln_convert_copy(const char *from, const char *to, const char *name, ln_error *err) {
    char source[LN_PATH_MAX], target[LN_PATH_MAX];
    ln_map m = {0};
    ln_out o = {0};
    ln_status st = LN_OK;
    bool is_dir;
    LN_GO(ln_path_join(source, from, name, err));
    LN_GO(ln_path_join(target, to, name, err));
    LN_GO(ln_look_dir(source, &is_dir, err));
    if (is_dir) goto out;
    LN_GO(ln_map_open(&m, source, err));
    LN_GO(ln_out_open(&o, target, false, err));
    LN_GO(ln_out_write(&o, m.data, m.bytes, err));
    LN_GO(ln_out_commit(&o, err));
    st = ln_map_check(&m, source, err);
out:
    ln_out_abort(&o);
    ln_map_close(&m);
    return st;
}

/* ---- config.json and the index ---- */

static json_t *form(ln_groups e, const char *mode) {
    return json_pack("{s:i, s:i, s:s}", "group_size", e.group, "bits", e.bits, "mode", mode);
}

static bool add_block(const ln_convert *c, json_t *config) {
    json_t *block = form(c->code, "affine");
    bool ok = block != NULL;
    for (size_t i = 0; ok && i < c->n_items; i++) {
        const ln_convert_item *x = &c->items[i];
        char path[192];
        (void)snprintf(path, sizeof path, "%.*s", (int)x->path_bytes, x->name);
        if (x->entry)
            ok = json_object_set_new(block, path, form(x->code, x->mxfp4 ? "mxfp4" : "affine")) == 0;
    }
    ok = ok && json_object_set(config, "quantization", block) == 0 &&
         json_object_set(config, "quantization_config", block) == 0;
    json_decref(block);
    return ok;
}

/* The stop ids of generation_config.json take precedence over those of config.json. */
static ln_status add_eos(const ln_convert *c, json_t *config, ln_error *err) {
    char path[LN_PATH_MAX];
    json_t *gen;
    LN_TRY(ln_path_join(path, c->from, "generation_config.json", err));
    bool there;
    LN_TRY(ln_look(path, &there, err));
    if (!there) return LN_OK;
    LN_TRY(ln_json_object_file(&gen, path, err));
    json_t *eos = json_object_get(gen, "eos_token_id");
    bool none = !eos || json_is_null(eos) || json_is_false(eos) ||
                (json_is_integer(eos) && json_integer_value(eos) == 0) ||
                (json_is_array(eos) && json_array_size(eos) == 0);
    bool ok = none || json_object_set(config, "eos_token_id", eos) == 0;
    json_decref(gen);
    return ok ? LN_OK : LN_OOM(err, "a configuration");
}

/* States the dtype of a model that was a GGUF file or is new; that of a directory is stated already. */
static bool add_dtype(const ln_convert *c, json_t *config) {
    static const char *const names[] = {[LN_F32] = "float32", [LN_BF16] = "bfloat16", [LN_F16] = "float16"};
    if (c->is_new) (void)json_object_del(config, "torch_dtype");
    return (!c->config.of_gguf && !c->is_new) ||
           json_object_set_new(config, "dtype", json_string(names[c->items[0].dtype])) == 0;
}

/* Removes the quantization blocks of the source. */
static void delete_blocks(json_t *config) {
    static const char *const blocks[] = {"quantization", "quantization_config"};
    for (size_t i = 0; i < LN_COUNT(blocks); i++) {
        (void)json_object_del(config, blocks[i]);
        (void)json_object_del(json_object_get(config, "text_config"), blocks[i]);
    }
}

/* States what an adapter has changed: whether the head is tied, and the size of the vocabulary. */
static bool add_changes(const ln_convert *c, json_t *config) {
    json_t *text = c->config.text == c->config.root ? config : json_object_get(config, "text_config");
    bool ok = true;
    if (c->unties) ok = json_object_set_new(text, "tie_word_embeddings", json_false()) == 0;
    if (c->unties && text != config) /* which says it of wrappers */
        ok = json_object_set_new(config, "tie_word_embeddings", json_false()) == 0 && ok;
    if (c->grows)
        ok = json_object_set_new(text, "vocab_size", json_integer((json_int_t)c->spec.V)) == 0 && ok;
    return ok;
}

/* config.json of a dense model: the source's, without the quantization blocks of a quantised one. */
static ln_status write_dense_config(const ln_convert *c, const char *to, ln_error *err) {
    if (!ln_weights_are_quantised(&c->weights) && !c->config.of_gguf && !c->is_new && !c->unties && !c->grows)
        return ln_convert_copy(c->from, to, "config.json", err);
    json_t *config = ln_json_deep_copy(c->config.root);
    if (!config) return LN_OOM(err, "a configuration");
    delete_blocks(config);
    const ln_status st = add_changes(c, config) && add_dtype(c, config)
                             ? ln_convert_json(to, "config.json", config, err)
                             : LN_OOM(err, "a configuration");
    json_decref(config);
    return st;
}

static ln_status write_config(const ln_convert *c, const char *to, ln_error *err) {
    json_t *config = ln_json_deep_copy(c->config.root), *in_order = NULL;
    ln_status st = LN_OK;
    bool ok = config != NULL;
    if (ok) {
        (void)json_object_del(config, "_name_or_path");
        (void)json_object_del(config, "vision_config");
        delete_blocks(config);
        if (!c->config.of_gguf) st = add_eos(c, config, err);
    }
    if (ok && c->spec.tied != c->tied_there) { /* the tensors contradicted config.json */
        json_t *text = c->config.text == c->config.root ? config : json_object_get(config, "text_config");
        ok = json_object_set_new(text, "tie_word_embeddings", json_boolean(c->spec.tied)) == 0;
    }
    ok = ok && add_changes(c, config) && add_dtype(c, config) && add_block(c, config) &&
         (in_order = sorted(config)) != NULL;
    if (st == LN_OK && !ok) st = LN_OOM(err, "a configuration");
    if (st == LN_OK) st = ln_convert_json(to, "config.json", in_order, err);
    json_decref(in_order);
    json_decref(config);
    return st;
}

static ln_status write_index(const ln_convert *c, const char *to, ln_error *err) {
    json_t *map = json_object(), *in_order = NULL, *index = NULL;
    bool ok = map != NULL;
    for (size_t i = 0; ok && i < c->n_items; i++)
        for (int k = 0; ok && k < ln_convert_parts(&c->items[i]); k++) {
            char name[224], shard[64];
            ln_tensor_spec part = ln_convert_part(&c->items[i], k, name);
            ln_convert_shard_name(c, c->items[i].shard[k], shard);
            ok = json_object_set_new(map, part.name, json_string(shard)) == 0;
        }
    ok = ok && (in_order = sorted(map)) != NULL;
    if (ok)
        index = json_pack("{s:{s:I, s:I}, s:O}", "metadata", "total_size", (json_int_t)c->bytes,
                          "total_parameters", (json_int_t)c->weights.n_parameters, "weight_map", in_order);
    ln_status st =
        index ? ln_convert_json(to, "model.safetensors.index.json", index, err) : LN_OOM(err, "an index");
    json_decref(index);
    json_decref(in_order);
    json_decref(map);
    return st;
}

ln_status ln_convert_config(const ln_convert *c, const char *to, ln_error *err) {
    LN_TRY(c->code.bits ? write_config(c, to, err) : write_dense_config(c, to, err));
    return c->code.bits || c->n_shards > 1 ? write_index(c, to, err) : LN_OK;
}

/* ---- files that are copied unchanged ---- */

static bool carried(const char *name) {
    static const char *const names[] = {"tokenizer.json",
                                        "tekken.json",
                                        "tokenizer_config.json",
                                        "special_tokens_map.json",
                                        "added_tokens.json",
                                        "vocab.json",
                                        "merges.txt",
                                        "tokenizer.model",
                                        "chat_template.jinja",
                                        "chat_template.json",
                                        "generation_config.json",
                                        "modules.json",
                                        "config_sentence_transformers.json"};
    for (size_t i = 0; i < LN_COUNT(names); i++)
        if (strcmp(name, names[i]) == 0) return true;
    if (strncmp(name, "sentence_", 9) == 0 && ln_ends_with(name, "_config.json")) return true;
    return ln_ends_with(name, ".py") || ln_ends_with(name, ".tiktoken") || strncmp(name, "LICENSE", 7) == 0 ||
           strncmp(name, "NOTICE", 6) == 0;
}
/* A dense result is the source with other weights: what other programs read of it stays, too. */
static bool carried_plain(const char *name) {
    return carried(name) || (ln_ends_with(name, ".json") && strcmp(name, "config.json") != 0 &&
                             !ln_ends_with(name, ".index.json"));
}
static bool template(const char *name) { return ln_ends_with(name, ".jinja"); }

static ln_status copy_all(const char *from, const char *to, bool (*wanted)(const char *name), ln_error *err) {
    ln_names names;
    LN_TRY(ln_names_read(&names, from, err));
    ln_status st = LN_OK;
    for (size_t i = 0; i < names.n && st == LN_OK; i++)
        if (wanted(names.items[i])) st = ln_convert_copy(from, to, names.items[i], err);
    ln_names_free(&names);
    return st;
}

ln_status ln_convert_files(const ln_convert *c, const char *to, ln_error *err) {
    static const char *const folders[] = {"chat_templates", "additional_chat_templates"};
    LN_TRY(copy_all(c->from, to, c->code.bits || c->is_new ? carried : carried_plain, err));
    for (size_t i = 0; i < LN_COUNT(folders); i++) {
        char from[LN_PATH_MAX], target[LN_PATH_MAX], shown[LN_PATH_TEXT];
        LN_TRY(ln_path_join(from, c->from, folders[i], err));
        bool there;
        LN_TRY(ln_look_dir(from, &there, err));
        if (!there) continue;
        LN_TRY(ln_path_join(target, to, folders[i], err));
        if (mkdir(target, 0777) != 0)
            return ln_fail(err, LN_EIO, "%s: cannot create: %s", ln_path_text(shown, target),
                           strerror(errno));
        LN_TRY(copy_all(from, target, template, err));
    }
    return ln_convert_modules(c, to, err);
}
