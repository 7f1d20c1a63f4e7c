/* Writers of members of JSON objects. */
#include "json_write.h"

#include <string.h>

void put_key(ln_str *s, const char *key) {
    if (s->len > 0 && s->data[s->len - 1] != '{' && s->data[s->len - 1] != '[') ln_str_add(s, ",", 1);
    ln_str_json(s, key, strlen(key));
    ln_str_add(s, ":", 1);
}

void put_object(ln_str *s, const char *key) {
    put_key(s, key);
    ln_str_add(s, "{", 1);
}

void put_list(ln_str *s, const char *key) {
    put_key(s, key);
    ln_str_add(s, "[", 1);
}

void put_bytes(ln_str *s, const char *key, const char *value, size_t bytes) {
    put_key(s, key);
    if (value) ln_str_json(s, value, bytes);
    else ln_str_adds(s, "null");
}

void put_text(ln_str *s, const char *key, const char *value) {
    put_bytes(s, key, value, value ? strlen(value) : 0);
}

void put_int(ln_str *s, const char *key, int64_t v) {
    put_key(s, key);
    ln_str_addf(s, "%lld", (long long)v);
}

void put_uint(ln_str *s, const char *key, uint64_t v) {
    put_key(s, key);
    ln_str_addf(s, "%llu", (unsigned long long)v);
}

void put_real(ln_str *s, const char *key, double v) {
    put_key(s, key);
    ln_str_double(s, v);
}

void put_bool(ln_str *s, const char *key, bool v) {
    put_key(s, key);
    ln_str_adds(s, v ? "true" : "false");
}

void put_ids(ln_str *s, const char *key, const int32_t *ids, size_t n) {
    put_list(s, key);
    for (size_t i = 0; i < n; i++) ln_str_addf(s, i ? ",%d" : "%d", ids[i]);
    ln_str_add(s, "]", 1);
}

void ln_str_json_value(ln_str *out, const json_t *v) {
    const char *key, *before = "";
    json_t *item, *all = (json_t *)(uintptr_t)v;
    size_t i, from = out->len;
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        ln_str_adds(out, "{");
        json_object_foreach(all, key, item) {
            ln_str_adds(out, before);
            ln_str_json(out, key, strlen(key));
            ln_str_adds(out, ":");
            ln_str_json_value(out, item); /* at most LN_JSON_MAX_DEPTH levels */
            before = ",";
        }
        ln_str_adds(out, "}");
        break;
    case JSON_ARRAY:
        ln_str_adds(out, "[");
        json_array_foreach(all, i, item) {
            ln_str_adds(out, i ? "," : "");
            ln_str_json_value(out, item);
        }
        ln_str_adds(out, "]");
        break;
    case JSON_STRING: ln_str_json(out, json_string_value(v), json_string_length(v)); break;
    case JSON_INTEGER: ln_str_addf(out, "%lld", (long long)json_integer_value(v)); break;
    case JSON_REAL:
        ln_str_double(out, json_real_value(v));
        if (out->data && !strpbrk(out->data + from, ".eE")) ln_str_adds(out, ".0"); /* it stays a real */
        break;
    case JSON_TRUE: ln_str_adds(out, "true"); break;
    case JSON_FALSE: ln_str_adds(out, "false"); break;
    default: ln_str_adds(out, "null"); break;
    }
}

bool ln_str_call_arguments(ln_str *s, const char *text, size_t bytes) {
    json_t *parsed = NULL;
    if (ln_json_load(&parsed, "arguments", text, bytes, &(ln_error){0}) == LN_EMEMORY) s->failed = true;
    const bool is_object = json_is_object(parsed);
    if (is_object) ln_str_json_value(s, parsed);
    json_decref(parsed);
    return is_object;
}
