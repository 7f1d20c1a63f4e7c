/* The class as which transformers opens a tokenizer, and what that class makes otherwise than tokenizer.json.
 *
 * Most classes open tokenizer.json as it is. A few (tokenizer_classes.def) take the vocabulary, the merges,
 * the added tokens and the post-processor from the file, and make normalizer, pre_tokenizer and decoder
 * themselves; for byte-level ones, add_prefix_space of tokenizer_config.json decides about a blank before
 * each text. Here that key is applied. Everything else is as the file says: it is what the model was trained
 * with, and what other programs read; `show` names the sections in which the class differs. */
#include "tokenizer_internal.h"

#include "../base/file.h"

#include <stdio.h>

struct tok_class {
    const char *name;
    bool prefix, fallback;
};
static const tok_class classes[] = {
#define CLASS(name, prefix, fallback) {name, prefix, fallback},
#define SECTIONS(name, prefix, legacy, normalizer, pre_tokenizer, decoder)
#define TYPE(model_type, class, wins)
#include "tokenizer_classes.def"
#undef CLASS
#undef SECTIONS
#undef TYPE
};
static const struct sections {
    const char *name;
    int prefix, legacy;
    const char *text[3]; /* normalizer, pre_tokenizer, decoder */
} all_sections[] = {
#define CLASS(name, prefix, fallback)
#define SECTIONS(name, prefix, legacy, normalizer, pre_tokenizer, decoder) \
    {name, prefix, legacy, {normalizer, pre_tokenizer, decoder}},
#define TYPE(model_type, class, wins)
#include "tokenizer_classes.def"
#undef CLASS
#undef SECTIONS
#undef TYPE
};
static const struct type {
    const char *model_type, *class;
    bool wins;
} types[] = {
#define CLASS(name, prefix, fallback)
#define SECTIONS(name, prefix, legacy, normalizer, pre_tokenizer, decoder)
#define TYPE(model_type, class, wins) {model_type, class, wins},
#include "tokenizer_classes.def"
#undef CLASS
#undef SECTIONS
#undef TYPE
};

/* ---- which class ---- */

/* The length of a name without the ending of older versions. */
static size_t plain(const char *name) {
    const size_t n = strlen(name);
    return n > 4 && strcmp(name + n - 4, "Fast") == 0 ? n - 4 : n;
}
static bool is_same(const char *a, const char *b) {
    return plain(a) == plain(b) && memcmp(a, b, plain(a)) == 0;
}

static const tok_class *find(const char *name) {
    for (size_t i = 0; name && i < LN_COUNT(classes); i++)
        if (is_same(name, classes[i].name)) return &classes[i];
    return NULL;
}

static const struct type *find_type(const char *model_type) {
    for (size_t i = 0; model_type && i < LN_COUNT(types); i++)
        if (strcmp(model_type, types[i].model_type) == 0) return &types[i];
    return NULL;
}

static const char *text_of(const json_t *object, const char *key) {
    return json_string_value(json_object_get(object, key));
}

/* The step of this type in a section, which may be a Sequence; NULL: none. */
static json_t *find_step(const json_t *section, const char *type) {
    size_t i;
    json_t *step;
    const json_t *list = json_object_get(section, "pretokenizers");
    if (!list) list = json_object_get(section, "normalizers");
    if (ln_json_is_text(json_object_get(section, "type"), type)) return (json_t *)(uintptr_t)section;
    json_array_foreach(list, i, step) {
        json_t *found = find_step(step, type);
        if (found) return found;
    }
    return NULL;
}

/* As AutoTokenizer of transformers decides. */
static const tok_class *choose(const text_config *c, const json_t *pre_tokenizer) {
    const struct type *type = find_type(text_of(c->model, "model_type"));
    const char *named = text_of(c->config, "tokenizer_class");
    if (!named) named = text_of(c->model, "tokenizer_class");
    const json_t *map = json_object_get(c->config, "auto_map");
    if ((json_is_array(map) || json_object_get(map, "AutoTokenizer")) && !(type && type->wins)) return NULL;
    if (!named) return type ? find(type->class) : NULL;
    if (is_same(named, "LlamaTokenizer") && !(type && type->wins) && find_step(pre_tokenizer, "ByteLevel"))
        return NULL;
    if (!type || is_same(named, type->class)) return find(named);
    return *type->class ? find(type->wins ? type->class : named) : NULL;
}

/* ---- comparing sections ---- */

/* Appends the steps of a section to `list` without what changes nothing. */
static bool add_steps(json_t *list, const json_t *section, const char *key, bool decodes) {
    size_t i;
    json_t *step;
    const json_t *steps = json_object_get(section, key);
    if (!json_is_object(section)) return true;
    if (ln_json_is_text(json_object_get(section, "type"), "Sequence")) {
        bool ok = true;
        json_array_foreach(steps, i, step) ok = ok && add_steps(list, step, key, decodes);
        return ok;
    }
    json_t *copy = ln_json_deep_copy(section);
    if (!copy) return false;
    const bool bytes = ln_json_is_text(json_object_get(copy, "type"), "ByteLevel");
    (void)json_object_del(copy, "trim_offsets");
    (void)json_object_del(copy, "str_rep");
    if (bytes && decodes) {
        (void)json_object_del(copy, "add_prefix_space");
        (void)json_object_del(copy, "use_regex");
    }
    return json_array_append_new(list, copy) == 0;
}

static ln_status is_equal(const json_t *a, const json_t *b, const char *key, bool decodes, bool *out,
                          ln_error *err) {
    json_t *x = json_array(), *y = json_array();
    const bool ok = x && y && add_steps(x, a, key, decodes) && add_steps(y, b, key, decodes);
    *out = ok && json_equal(x, y);
    json_decref(x);
    json_decref(y);
    return ok ? LN_OK : LN_OOM(err, "a tokenizer");
}

static void add_name(char *list, size_t cap, const char *name) {
    const size_t n = strlen(list);
    (void)snprintf(list + n, cap - n, "%s%s", n > 0 ? ", " : "", name);
}

/* Writes the names of the sections that the class makes otherwise to t->differs. */
static ln_status compare(ln_tok *t, const struct sections *s, json_t *const sections[3], ln_error *err) {
    static const struct {
        const char *name, *key;
    } kinds[3] = {{"normalizer", "normalizers"}, {"pre_tokenizer", "pretokenizers"}, {"decoder", "decoders"}};
    for (int i = 0; i < 3; i++) {
        json_t *made;
        bool same;
        LN_TRY(ln_json_load(&made, kinds[i].name, s->text[i], strlen(s->text[i]), err));
        const ln_status st = is_equal(made, sections[i], kinds[i].key, i == 2, &same, err);
        json_decref(made);
        LN_TRY(st);
        if (!same) add_name(t->differs, sizeof t->differs, kinds[i].name);
    }
    if (t->bpe.ignore_merges || t->bpe.byte_fallback != t->class->fallback)
        add_name(t->differs, sizeof t->differs, "model");
    return LN_OK;
}

/* ---- keys ---- */

/* Sets add_prefix_space of every ByteLevel step of a section. */
static ln_status set_prefix(json_t *section, bool prefix, ln_error *err) {
    size_t i;
    json_t *step;
    json_array_foreach(json_object_get(section, "pretokenizers"), i, step)
        LN_TRY(set_prefix(step, prefix, err));
    if (!ln_json_is_text(json_object_get(section, "type"), "ByteLevel")) return LN_OK;
    return json_object_set_new(section, "add_prefix_space", json_boolean(prefix)) == 0
               ? LN_OK
               : LN_OOM(err, "a tokenizer");
}

/* Warns if a class puts a blank before a text by Metaspace, and the key asks for another text than the file.
 */
static void check_metaspace(const tok_class *class, bool prefix, json_t *const sections[3]) {
    const json_t *space = find_step(sections[1], "Metaspace");
    const char *scheme = text_of(space, "prepend_scheme");
    const bool puts =
        find_step(sections[0], "Prepend") || (space && !(scheme && strcmp(scheme, "never") == 0));
    bool uses_key = false;
    for (size_t i = 0; i < LN_COUNT(all_sections); i++)
        uses_key |= strcmp(all_sections[i].name, class->name) == 0 && all_sections[i].prefix >= 0 &&
                    strstr(all_sections[i].text[1], "Metaspace") != NULL;
    if (uses_key && puts != prefix)
        ln_log(LN_LOG_WARN,
               "tokenizer_config.json: add_prefix_space %s is not applied: tokenizer.json puts %s before a "
               "text",
               prefix ? "true" : "false", puts ? "a blank" : "no blank");
}

ln_status class_apply(ln_tok *t, const text_config *c, json_t *const sections[3], ln_error *err) {
    const json_t *key = json_object_get(c->config, "add_prefix_space");
    t->class = choose(c, sections[1]);
    if (!t->class || !json_is_boolean(key)) return LN_OK;
    check_metaspace(t->class, json_is_true(key), sections);
    return set_prefix(sections[1], json_is_true(key), err);
}

ln_status class_compare(ln_tok *t, const text_config *c, json_t *const sections[3], ln_error *err) {
    const json_t *key = json_object_get(c->config, "add_prefix_space");
    const int legacy = json_is_true(json_object_get(c->config, "legacy"));
    if (!t->class) return LN_OK;
    const int prefix = json_is_boolean(key) ? json_is_true(key) : t->class->prefix;
    for (size_t i = 0; i < LN_COUNT(all_sections); i++) {
        const struct sections *s = &all_sections[i];
        if (strcmp(s->name, t->class->name) != 0 || (s->prefix >= 0 && s->prefix != prefix)) continue;
        if (s->legacy >= 0 && s->legacy != legacy) continue;
        LN_TRY(compare(t, s, sections, err));
        break;
    }
    if (*t->differs)
        ln_log(LN_LOG_INFO,
               "transformers opens this tokenizer as %s, whose %s differs from tokenizer.json's; the file's "
               "is used",
               t->class->name, t->differs);
    return LN_OK;
}

void ln_tok_class(const ln_tok *tok, const char **name, const char **differs) {
    *name = tok->class ? tok->class->name : "";
    *differs = tok->differs;
}
