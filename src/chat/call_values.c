/* The values of a call's arguments in other notations than JSON's, as JSON. Each value is read by one
 * function that calls itself for what it holds, at most MOST_NESTED deep. */
#include "tool_calls.h"
#include "../base/json_write.h"

#include <string.h>

enum { MOST_NESTED = 64 };

/* A text that is read; bad: it is no value. */
typedef struct value_reader {
    const char *s;
    size_t n, at;
    const char *quote; /* of a QUOTED format; NULL: Python */
    int depth;
    bool bad;
    ln_str *out;
} value_reader;

static bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

static void skip_blanks(value_reader *r) {
    while (r->at < r->n && is_blank(r->s[r->at])) r->at++;
}

static char peek(const value_reader *r) { return r->at < r->n ? r->s[r->at] : '\0'; }

static bool take(value_reader *r, const char *text) {
    const size_t n = strlen(text);
    if (n > r->n - r->at || memcmp(r->s + r->at, text, n) != 0) return false;
    r->at += n;
    return true;
}

static void fail(value_reader *r) { r->bad = true; }

/* ---- single values ---- */

/* What kinds of parameters a text is a value of, as one value of JSON; 0: it is none. */
static unsigned json_kinds(const char *text, size_t n) {
    ln_json j;
    unsigned kinds = 0;
    ln_json_open(&j, "a value", text, n, LN_JSON_MAX_DEPTH);
    ln_status st = ln_json_next(&j, NULL);
    const ln_jtype type = j.type;
    bool whole = true;
    for (size_t i = 0; i < n; i++) whole = whole && !strchr(".eE", text[i]);
    if (st == LN_OK) st = ln_json_skip(&j, NULL);
    if (st == LN_OK) st = ln_json_want(&j, LN_J_END, NULL);
    ln_json_close(&j);
    if (st != LN_OK) return 0;
    if (type == LN_J_NUMBER) kinds = whole ? LN_PARAM_INTEGER : LN_PARAM_NUMBER;
    else if (type == LN_J_TRUE || type == LN_J_FALSE) kinds = LN_PARAM_BOOL;
    else if (type == LN_J_STRING) kinds = LN_PARAM_TEXT;
    else if (type == LN_J_NULL) kinds = LN_PARAM_NULL;
    else kinds = type == LN_J_OBJECT ? LN_PARAM_OBJECT : LN_PARAM_ARRAY;
    return kinds;
}

static bool is_json(const char *text, size_t n) { return json_kinds(text, n) != 0; }

/* Words that stand for JSON's: those of Python, which templates write for values that are no texts. */
static const char *json_word(const char *word, size_t n) {
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"},
                                           {"true", "true"}, {"false", "false"}, {"null", "null"},
                                           {"nil", "null"},  {"TRUE", "true"},   {"FALSE", "false"}};
    for (size_t i = 0; i < LN_COUNT(words); i++)
        if (strlen(words[i][0]) == n && memcmp(words[i][0], word, n) == 0) return words[i][1];
    return NULL;
}

void ln_call_put_value(ln_str *out, unsigned kinds, const char *text, size_t bytes) {
    size_t from = 0, to = bytes;
    while (from < to && is_blank(text[from])) from++;
    while (to > from && is_blank(text[to - 1])) to--;
    const char *word = json_word(text + from, to - from);
    const char *json = word ? word : text + from;
    const size_t n = word ? strlen(word) : to - from;
    unsigned found = json_kinds(json, n);
    if (kinds != LN_PARAM_ANY) found &= ~(unsigned)LN_PARAM_TEXT; /* quotation marks belong to a text */
    if (found & kinds) ln_str_add(out, json, n);
    else ln_str_json(out, text, bytes);
}

/* ---- texts ---- */

/* A text between quotation marks, in JSON's or Python's escapes. */
static void put_string(value_reader *r) {
    const char quote = r->s[r->at++];
    ln_str text = {0};
    bool closed = false;
    while (r->at < r->n && !closed) {
        char c = r->s[r->at++];
        if (c == quote) {
            closed = true;
        } else if (c != '\\' || r->at == r->n) {
            ln_str_add(&text, &c, 1);
        } else {
            static const char from[] = "nrtbf0", to[] = "\n\r\t\b\f";
            const char *known;
            c = r->s[r->at++];
            known = strchr(from, c);
            if (c == 'u' && r->n - r->at >= 4) { /* by the reader of JSON, with the other half of a pair */
                const size_t more =
                    r->n - r->at >= 10 && r->s[r->at + 4] == '\\' && r->s[r->at + 5] == 'u' ? 10 : 4;
                char json[16] = "\"\\u";
                ln_json j;
                memcpy(json + 3, r->s + r->at, more);
                json[3 + more] = '"';
                ln_json_open(&j, "a text", json, more + 4, 1);
                size_t used = more;
                if (ln_json_next(&j, NULL) != LN_OK && more == 10) {
                    ln_json_close(&j);
                    json[7] = '"', used = 4;
                    ln_json_open(&j, "a text", json, 8, 1);
                    if (ln_json_next(&j, NULL) != LN_OK) fail(r);
                } else if (j.type != LN_J_STRING) {
                    fail(r);
                }
                if (!r->bad) ln_str_add(&text, j.text, j.text_bytes);
                ln_json_close(&j);
                r->at += used;
            } else if (known && *known) {
                ln_str_add(&text, &to[known - from], 1);
            } else {
                ln_str_add(&text, &c, 1);
            }
        }
    }
    if (!closed) fail(r);
    ln_str_json(r->out, text.data ? text.data : "", text.len);
    r->out->failed |= text.failed;
    ln_str_free(&text);
}

/* A text between the quotes of a QUOTED format, which has no escapes. */
static void put_quoted(value_reader *r) {
    const size_t from = r->at, k = strlen(r->quote);
    while (r->n - r->at >= k && memcmp(r->s + r->at, r->quote, k) != 0) r->at++;
    if (r->n - r->at < k) {
        fail(r);
        return;
    }
    ln_str_json(r->out, r->s + from, r->at - from);
    r->at += k;
}

/* ---- values ---- */

static void put_value(value_reader *r);

/* A number or a word, up to what ends it. */
static void put_word(value_reader *r) {
    const size_t from = r->at;
    while (r->at < r->n && !strchr(",]})", r->s[r->at]) && !is_blank(r->s[r->at])) r->at++;
    const size_t n = r->at - from;
    const char *word = json_word(r->s + from, n);
    if (word) ln_str_adds(r->out, word);
    else if (n > 0 && is_json(r->s + from, n)) ln_str_add(r->out, r->s + from, n);
    else fail(r);
}

/* The name of a member, and what stands behind it. */
static void put_name(value_reader *r, char behind) {
    const size_t from = r->at;
    if (r->quote && take(r, r->quote)) {
        put_quoted(r);
    } else if (peek(r) == '"' || peek(r) == '\'') {
        put_string(r);
    } else {
        while (r->at < r->n && r->s[r->at] != behind && !strchr(",{}[]()", r->s[r->at])) r->at++;
        size_t end = r->at;
        while (end > from && is_blank(r->s[end - 1])) end--;
        if (end == from) fail(r);
        ln_str_json(r->out, r->s + from, end - from);
    }
    skip_blanks(r);
    if (peek(r) != behind) fail(r);
    else r->at++;
    ln_str_adds(r->out, ":");
}

/* What stands between brackets, up to `end`, which is taken; behind: of names, NUL: there are none. */
static void put_items(value_reader *r, char end, char behind) {
    bool first = true;
    for (skip_blanks(r); !r->bad && peek(r) != end; skip_blanks(r)) {
        if (r->at >= r->n || (!first && peek(r) != ',')) {
            fail(r);
            return;
        }
        if (!first) r->at++;
        skip_blanks(r);
        if (!first && peek(r) == end) break; /* a comma after the last one */
        if (!first) ln_str_adds(r->out, ",");
        if (behind) put_name(r, behind);
        skip_blanks(r);
        put_value(r);
        first = false;
    }
    r->at++;
}

static void put_value(value_reader *r) {
    const char c = peek(r);
    if (r->bad) return;
    if (++r->depth > MOST_NESTED) fail(r);
    else if (r->quote && take(r, r->quote)) put_quoted(r);
    else if (c == '"' || c == '\'') put_string(r);
    else if (c == '{' || c == '[' || (c == '(' && !r->quote)) {
        r->at++;
        ln_str_adds(r->out, c == '{' ? "{" : "[");
        put_items(r, c == '{' ? '}' : c == '[' ? ']' : ')', c == '{' ? ':' : '\0');
        ln_str_adds(r->out, c == '{' ? "}" : "]");
    } else {
        put_word(r);
    }
    r->depth--;
}

bool ln_call_put_quoted(ln_str *out, const char *quote, const char *text, size_t bytes) {
    value_reader r = {.s = text, .n = bytes, .quote = quote, .out = out};
    skip_blanks(&r);
    if (peek(&r) != '{') return false;
    put_value(&r);
    skip_blanks(&r);
    return !r.bad && r.at == r.n;
}

bool ln_call_put_python(ln_str *out, const char *text, size_t bytes) {
    value_reader r = {.s = text, .n = bytes, .out = out};
    ln_str_adds(out, "{");
    while (skip_blanks(&r), r.at < r.n && !r.bad) {
        if (out->data && out->data[out->len - 1] != '{') {
            if (!take(&r, ",")) return false;
            skip_blanks(&r);
            if (r.at == r.n) break;
            ln_str_adds(out, ",");
        }
        put_name(&r, '=');
        skip_blanks(&r);
        if (!r.bad) put_value(&r);
    }
    ln_str_adds(out, "}");
    return !r.bad;
}
