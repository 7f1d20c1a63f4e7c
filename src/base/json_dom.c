/* Loads whole JSON documents as jansson trees.
 *
 * The pull parser reads the text and builds the tree; jansson's own parser is not used. It recurses to a
 * depth of 2,048, rejects integers beyond 64 bits (some tools write `model_max_length` 1e30 in full), parses
 * numbers by the locale, and writes beyond its buffer when memory runs out (found by fuzz_config_oom and
 * fuzz_tokenizer_oom). Duplicate keys, keys that contain U+0000 and reals out of range are rejected here,
 * with key and byte offset. jansson allocates through ln_alloc. */
#include "json.h"
#include "file.h"
#include "c_locale.h"

#include <pthread.h>
#include <string.h>

static void set_allocator(void) { json_set_alloc_funcs(ln_alloc, ln_free); }

static ln_status read_number(ln_json *j, json_t **out, ln_error *err) {
    int64_t i = 0;
    double real;
    char text[80];
    if (ln_parse_i64(j->text, j->text_bytes, &i) || (j->text_bytes == 2 && memcmp(j->text, "-0", 2) == 0))
        *out = json_integer(i);
    else if (ln_parse_f64(j->text, j->text_bytes, &real)) *out = json_real(real);
    else
        return ln_json_fail(j, err, "expected numbers in the range of a double, found one beyond: %s",
                            ln_excerpt(text, j->text, j->text_bytes));
    return LN_OK;
}

/* Creates the value whose first token was read last; objects and arrays are still empty. */
static ln_status read_value(ln_json *j, json_t **out, ln_error *err) {
    switch (j->type) {
    case LN_J_OBJECT: *out = json_object(); break;
    case LN_J_ARRAY: *out = json_array(); break;
    case LN_J_STRING: *out = json_stringn_nocheck(j->text, j->text_bytes); break;
    case LN_J_NUMBER: LN_TRY(read_number(j, out, err)); break;
    case LN_J_TRUE: *out = json_true(); break;
    case LN_J_FALSE: *out = json_false(); break;
    default: *out = json_null(); break;
    }
    return *out ? LN_OK : LN_OOM(err, "a JSON document");
}

/* Copies the key that was read last; fails if the enclosing object already has it. */
static ln_status take_key(ln_json *j, const json_t *object, ln_str *key, const ln_json_limits *most,
                          ln_error *err) {
    char text[80];
    ln_excerpt(text, j->text, j->text_bytes);
    if (most->key_bytes > 0 && j->text_bytes > most->key_bytes)
        return ln_json_fail(j, err, "expected keys of at most %zu bytes, found one of %zu: '%s'",
                            most->key_bytes, j->text_bytes, text);
    if (memchr(j->text, 0, j->text_bytes))
        return ln_json_fail(j, err, "expected keys without U+0000, found '%s'", text);
    key->len = 0;
    ln_str_add(key, j->text, j->text_bytes);
    if (key->failed) return LN_OOM(err, "a JSON document");
    return json_object_get(object, key->data)
               ? ln_json_fail(j, err, "expected each key once, found a duplicate '%s'", text)
               : LN_OK;
}

/* Counts the value whose first token was read last. */
static ln_status count_value(ln_json *j, ln_json_limits *n, const ln_json_limits *most, ln_error *err) {
    n->values++;
    n->containers += j->type == LN_J_ARRAY || j->type == LN_J_OBJECT;
    if (most->values > 0 && n->values > most->values)
        return ln_json_fail(j, err, "expected at most %zu values, found more", most->values);
    if (most->containers > 0 && n->containers > most->containers)
        return ln_json_fail(j, err, "expected at most %zu arrays and objects, found more", most->containers);
    return LN_OK;
}

static ln_status build(ln_json *j, json_t **root, ln_str *key, const ln_json_limits *most, ln_error *err) {
    ln_json_limits n = {0};
    /* the open container at each depth; borrowed from the root */
    json_t *open[LN_JSON_MAX_DEPTH + 1] = {NULL};
    for (;;) {
        int depth = j->depth;
        json_t *around = open[depth], *value = NULL;
        LN_TRY(ln_json_next(j, err));
        if (j->type == LN_J_END) return LN_OK;
        if (j->type == LN_J_OBJECT_END || j->type == LN_J_ARRAY_END) continue;
        if (j->type == LN_J_KEY) {
            LN_TRY(take_key(j, around, key, most, err));
            continue;
        }
        LN_TRY(count_value(j, &n, most, err));
        LN_TRY(read_value(j, &value, err));
        int bad = 0; /* jansson takes ownership of the value even if it fails */
        if (!around) *root = value;
        else if (json_is_array(around)) bad = json_array_append_new(around, value);
        else bad = json_object_set_new_nocheck(around, key->data, value);
        if (bad) return LN_OOM(err, "a JSON document");
        if (j->depth > depth) open[j->depth] = value;
    }
}

ln_status ln_json_load_limited(json_t **out, const char *name, const char *data, size_t bytes,
                               const ln_json_limits *most, ln_error *err) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_allocator);
    *out = NULL;
    ln_json j;
    ln_str key = {0};
    ln_json_open(&j, name, data, bytes, LN_JSON_MAX_DEPTH);
    ln_status st = build(&j, out, &key, most, err);
    ln_json_close(&j);
    ln_str_free(&key);
    if (st != LN_OK && *out) json_decref(*out);
    if (st != LN_OK) *out = NULL;
    return st;
}

ln_status ln_json_load(json_t **out, const char *name, const char *data, size_t bytes, ln_error *err) {
    return ln_json_load_limited(out, name, data, bytes, &(ln_json_limits){0}, err);
}

/* Returns the copy, or frees it and returns NULL unless it is equal to the value. */
static json_t *whole(json_t *copy, const json_t *value) {
    if (copy && json_equal(copy, value)) return copy;
    json_decref(copy);
    return NULL;
}
json_t *ln_json_copy(const json_t *value) { return whole(json_copy((json_t *)(uintptr_t)value), value); }
json_t *ln_json_deep_copy(const json_t *value) { return whole(json_deep_copy(value), value); }

bool ln_json_is_text(const json_t *value, const char *text) {
    return json_is_string(value) && strcmp(json_string_value(value), text) == 0;
}

const char *ln_json_text(const json_t *value, char buf[80]) {
    char text[256];                   /* enough: ln_excerpt cuts long values anyway */
    locale_t was = ln_locale_enter(); /* jansson prints reals with printf */
    size_t n =
        value ? json_dumpb(value, text, sizeof text, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15))
              : 0;
    ln_locale_leave(was);
    if (n > 0 && n <= sizeof text) return ln_excerpt(buf, text, n);
    if (!value) return "nothing";
    if (json_is_string(value)) return ln_excerpt(buf, json_string_value(value), json_string_length(value));
    return json_is_array(value) ? "a long list" : "a large object";
}

typedef ln_status read_fn(const char *path, size_t limit, char **data, size_t *bytes, ln_error *err);

static ln_status load_with(read_fn *read, json_t **out, const char *path, size_t limit, ln_error *err) {
    char *data;
    size_t bytes;
    *out = NULL;
    LN_TRY(read(path, limit, &data, &bytes, err));
    ln_status st = ln_json_load(out, path, data, bytes, err);
    ln_free(data);
    return st;
}

static _Thread_local ln_json_memo *memo;

void ln_json_memo_begin(ln_json_memo *m, const char *path) {
    *m = (ln_json_memo){.path = path, .outer = memo};
    memo = m;
}
void ln_json_memo_end(ln_json_memo *m) {
    memo = m->outer;
    json_decref(m->root);
    m->root = NULL;
}
json_t *ln_json_memo_get(const char *path) {
    return memo && memo->root && strcmp(memo->path, path) == 0 ? json_incref(memo->root) : NULL;
}
void ln_json_memo_put(const char *path, json_t *root) {
    if (memo && !memo->root && strcmp(memo->path, path) == 0) memo->root = json_incref(root);
}

ln_status ln_json_load_file(json_t **out, const char *path, size_t limit, ln_error *err) {
    *out = ln_json_memo_get(path);
    if (*out) return LN_OK;
    LN_TRY(load_with(ln_read_file, out, path, limit, err));
    ln_json_memo_put(path, *out);
    return LN_OK;
}
ln_status ln_json_load_input(json_t **out, const char *path, size_t limit, ln_error *err) {
    return load_with(ln_read_input, out, path, limit, err);
}
