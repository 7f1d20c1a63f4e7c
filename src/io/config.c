/* config.json: opens the file and reads typed fields of the text model's object.
 *
 * Multimodal checkpoints keep the fields of the text model in `text_config`; the rest of the project reads
 * only that object, and the top-level one for facts about the whole checkpoint. A field is read by the code
 * that uses it, usually a family file, because the meaning of an absent field depends on the family: it has
 * the default of the reference's configuration class. A present field must have the type and range that the
 * class requires. Nothing in the file is ever opened as a path or run as code. */
#include "../base/c_locale.h"
#include "directory.h"
#include "gguf_model.h"

#include <stdio.h>
#include <string.h>

/* The model_type of configurations that name a class but no model_type. */
static const struct {
    const char *architecture, *model_type;
} architectures[] = {
    {"LlamaForCausalLM", "llama"},
    {"Qwen2ForCausalLM", "qwen2"},
    {"Qwen3ForCausalLM", "qwen3"},
    {"Gemma3ForCausalLM", "gemma3_text"},
    {"Gemma3ForConditionalGeneration", "gemma3"},
};

static ln_status read_type(ln_config *c, ln_error *err) {
    const json_t *type = json_object_get(c->root, "model_type");
    if (json_is_string(type)) {
        size_t n = json_string_length(type);
        if (n >= sizeof c->model_type || memchr(json_string_value(type), 0, n))
            return ln_config_fail(c, type, "model_type", "the name of a model type", err);
        memcpy(c->model_type, json_string_value(type), n + 1);
        return LN_OK;
    }
    if (type && !json_is_null(type)) return ln_config_fail(c, type, "model_type", "a string", err);
    const char *name = json_string_value(json_array_get(json_object_get(c->root, "architectures"), 0));
    for (size_t i = 0; name && i < LN_COUNT(architectures); i++)
        if (strcmp(name, architectures[i].architecture) == 0)
            (void)snprintf(c->model_type, sizeof c->model_type, "%s", architectures[i].model_type);
    return LN_OK;
}

static ln_status read_root(ln_config *c, ln_error *err) {
    LN_TRY(ln_json_object_file(&c->root, c->path, err));
    json_t *text = json_object_get(c->root, "text_config");
    if (text && !json_is_null(text) && !json_is_object(text))
        return ln_config_fail(c, text, "text_config", "an object", err);
    c->text = json_is_object(text) ? text : c->root;
    LN_TRY(read_type(c, err));
    if (json_object_get(c->root, "auto_map")) {
        char shown[LN_PATH_TEXT];
        ln_log(LN_LOG_WARN,
               "%s: auto_map names code of the checkpoint's own; it is ignored, linnet runs no code from "
               "model files",
               ln_path_text(shown, c->path));
    }
    return LN_OK;
}

ln_status ln_config_open(ln_config *out, const char *dir, ln_error *err) {
    *out = (ln_config){0};
    const bool is_gguf = ln_is_gguf(dir);
    ln_status st =
        is_gguf ? ln_config_of_gguf(out, dir, err) : ln_path_join(out->path, dir, "config.json", err);
    if (st == LN_OK && !is_gguf) st = read_root(out, err);
    if (st != LN_OK) ln_config_close(out);
    return st;
}

ln_status ln_config_open_file(ln_config *out, const char *path, ln_error *err) {
    *out = (ln_config){0};
    if (strlen(path) >= sizeof out->path) return ln_fail(err, LN_EINVALID, "the name of a file is too long");
    (void)snprintf(out->path, sizeof out->path, "%s", path);
    const ln_status st = read_root(out, err);
    if (st != LN_OK) ln_config_close(out);
    return st;
}

void ln_config_close(ln_config *c) {
    if (c->root) json_decref(c->root);
    *c = (ln_config){0};
}

ln_status ln_config_fail(const ln_config *c, const json_t *value, const char *where, const char *wanted,
                         ln_error *err) {
    char text[80], shown[LN_PATH_TEXT];
    return ln_fail(err, LN_EINVALID, "%s: %s: expected %s, found %s", ln_path_text(shown, c->path), where,
                   wanted, ln_json_text(value, text));
}

ln_status ln_config_int_at(const ln_config *c, const json_t *value, const char *where, int64_t lo, int64_t hi,
                           int64_t *out, ln_error *err) {
    if (json_is_integer(value) && json_integer_value(value) >= lo && json_integer_value(value) <= hi) {
        *out = json_integer_value(value);
        return LN_OK;
    }
    char wanted[96];
    (void)snprintf(wanted, sizeof wanted, "an integer from %lld to %lld", (long long)lo, (long long)hi);
    return ln_config_fail(c, value, where, wanted, err);
}

ln_status ln_config_real_at(const ln_config *c, const json_t *value, const char *where, double lo, double hi,
                            double *out, ln_error *err) {
    if (json_is_number(value)) {
        double v = json_number_value(value);
        if (v >= lo && v <= hi) { /* false for NaN */
            *out = v;
            return LN_OK;
        }
    }
    char wanted[96];
    (void)ln_snprintf(wanted, sizeof wanted, "a number from %g to %g", lo, hi);
    return ln_config_fail(c, value, where, wanted, err);
}

ln_status ln_config_int(const ln_config *c, const char *field, int64_t dflt, int64_t lo, int64_t hi,
                        int64_t *out, ln_error *err) {
    const json_t *value = json_object_get(c->text, field);
    *out = dflt;
    return value ? ln_config_int_at(c, value, field, lo, hi, out, err) : LN_OK;
}

ln_status ln_config_real(const ln_config *c, const char *field, double dflt, double lo, double hi,
                         double *out, ln_error *err) {
    const json_t *value = json_object_get(c->text, field);
    *out = dflt;
    return value ? ln_config_real_at(c, value, field, lo, hi, out, err) : LN_OK;
}

ln_status ln_config_bool(const ln_config *c, const char *field, bool dflt, bool *out, ln_error *err) {
    const json_t *value = json_object_get(c->text, field);
    *out = dflt;
    if (!value) return LN_OK;
    if (!json_is_boolean(value)) return ln_config_fail(c, value, field, "true or false", err);
    *out = json_is_true(value);
    return LN_OK;
}

const char *ln_config_text(const ln_config *c, const char *field, const char *dflt) {
    const char *text = json_string_value(json_object_get(c->text, field));
    return text ? text : dflt;
}

bool ln_config_has(const ln_config *c, const char *field) {
    const json_t *value = json_object_get(c->text, field);
    return value && !json_is_null(value);
}
