/* Writers of JSON objects: each call appends the member `"key":value` to a text, after a comma unless it is
 * the first member of its object ('{' or '[' precedes it). The caller writes the braces. A text that cannot
 * grow sets ln_str.failed, as all appends do. */
#ifndef LN_JSON_WRITE_H
#define LN_JSON_WRITE_H

#include "json.h"

void put_key(ln_str *s, const char *key);                     /* the value follows */
void put_object(ln_str *s, const char *key);                  /* with the brace that opens it */
void put_list(ln_str *s, const char *key);                    /* with the bracket */
void put_text(ln_str *s, const char *key, const char *value); /* NULL: null */
void put_bytes(ln_str *s, const char *key, const char *value, size_t bytes); /* a text; NULL: null */
void put_int(ln_str *s, const char *key, int64_t v);
void put_uint(ln_str *s, const char *key, uint64_t v);
void put_real(ln_str *s, const char *key, double v); /* null for NaN and infinities */
void put_bool(ln_str *s, const char *key, bool v);
void put_ids(ln_str *s, const char *key, const int32_t *ids, size_t n);

/* Appends a value as compact JSON; its nesting is that of a document which ln_json_load took. */
void ln_str_json_value(ln_str *s, const json_t *v);
/* Appends the arguments of a function call, which the API sends as a text of JSON, as the object that chat
 * templates expect. Returns false and appends nothing if the text is no JSON object; templates then get the
 * text. Requests and training data share this function, so that a model is trained on the text that it is
 * later given. */
bool ln_str_call_arguments(ln_str *s, const char *text, size_t bytes);

#endif
