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
