/* What the rewriting of training lines shares: values as they are written. Internal to train/. */
#ifndef LN_FOREIGN_VALUES_H
#define LN_FOREIGN_VALUES_H

#include "../base/json.h"

/* A value as it is written in the line. */
typedef struct raw {
    const char *text;
    size_t bytes;
    ln_jtype type;
    bool seen;
    const char *name; /* in the line, for messages */
} raw;

/* Appends a value; the characters of a text as written, without its quotes. */
static inline void raw_put(ln_str *s, const raw *v) { ln_str_add(s, v->text, v->bytes); }
static inline void raw_put_inside(ln_str *s, const raw *v) { ln_str_add(s, v->text + 1, v->bytes - 2); }

static inline bool raw_is_text(const raw *v) { return v->seen && v->type == LN_J_STRING; }
static inline bool raw_is_empty(const raw *v) {
    return !v->seen || v->type == LN_J_NULL || (raw_is_text(v) && v->bytes == 2);
}
/* Describes a value for a message. Returns buf or a constant. */
const char *raw_found(const raw *v, char buf[80]);
/* LN_EINVALID: the value has another type; `wanted` describes the expected one. */
ln_status raw_want(const raw *v, ln_jtype type, const char *wanted, ln_error *err);
/* Reads the value that follows a key. */
ln_status raw_read(ln_json *j, raw *v, ln_error *err);
/* Appends the characters that a text stands for. */
ln_status raw_unescape(const raw *v, ln_str *out, ln_error *err);

/* Appends the items of a list of messages, with commas between; `first`: none precedes. Messages whose
 * members have other names than templates read are rewritten, and *changed is set. `off`: those of the
 * assistant are not trained on. */
ln_status foreign_messages(ln_str *s, const raw *list, bool first, bool off, bool *changed, ln_error *err);
/* Appends the tools of a JSON list; one that is a bare function is wrapped, and *changed is set. `name` is
 * that of the list. */
ln_status foreign_tools(ln_str *s, const char *name, const char *text, size_t bytes, bool *changed,
                        ln_error *err);

#endif
