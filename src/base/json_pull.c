/* The pull parser: one pass over a buffer, one token per call, no recursion; strings without escapes are not
 * copied.
 *
 * The parser state is one byte per open container (`stack`), so that the grammar is a switch over seven
 * states. White space and strings are scanned eight bytes at a time, because a tokenizer.json consists of 33
 * MB of indentation and short strings. The end of a string is found first; its UTF-8 is validated only if it
 * contains a byte that is not ASCII.
 *
 * Rejected in addition to RFC 8259: lone surrogates in escapes (they have no UTF-8 encoding) and nesting
 * beyond max_depth. A number may have any length, as in RFC 8259; its reader decides which range it accepts.
 * A byte order mark at the start is skipped; the message for a UTF-16 document names the encoding. Byte
 * offsets in messages start at 0. */
#include "c_locale.h"
#include "json.h"

#include <stdio.h>
#include <string.h>

enum { TOP_VALUE, TOP_DONE, OBJ_FIRST, OBJ_VALUE, OBJ_NEXT, ARR_FIRST, ARR_NEXT };

void ln_json_open(ln_json *j, const char *name, const char *data, size_t bytes, int max_depth) {
    *j = (ln_json){.name = name, .data = data, .bytes = bytes};
    j->max_depth = LN_MAX(0, LN_MIN(max_depth, LN_JSON_MAX_DEPTH));
    j->stack[0] = TOP_VALUE;
    if (bytes >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0) j->at = 3;
}

void ln_json_close(ln_json *j) { ln_str_free(&j->unescaped); }

ln_status ln_json_fail(ln_json *j, ln_error *err, const char *fmt, ...) {
    if (!err) return LN_EINVALID;
    char text[640];
    char shown[LN_PATH_TEXT];
    va_list args;
    va_start(args, fmt);
    int n = ln_vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (n < 0) text[0] = '\0';
    return ln_fail(err, LN_EINVALID, "%s: byte %zu: %s", ln_path_text(shown, j->name), j->offset, text);
}

/* Fails at byte `at` with an excerpt of the text there. */
static ln_status fail_at(ln_json *j, size_t at, ln_error *err, const char *expected) {
    char found[80];
    j->offset = at;
    if (at >= j->bytes) return ln_json_fail(j, err, "expected %s, found the end of the document", expected);
    return ln_json_fail(j, err, "expected %s, found '%s'", expected,
                        ln_excerpt(found, j->data + at, LN_MIN(j->bytes - at, (size_t)12)));
}

/* The number of zero bytes before the first nonzero byte of w in memory order; w != 0. */
static size_t leading_zeros(uint64_t w) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    return (size_t)__builtin_ctzll(w) / 8;
#else
    return (size_t)__builtin_clzll(w) / 8;
#endif
}

static size_t pass_space(const char *data, size_t bytes, size_t at) {
    while (at < bytes) {
        char c = data[at];
        if (c != ' ' && c != '\n' && c != '\r' && c != '\t') return at;
        at++;
        uint64_t w;
        while (at + 8 <= bytes) { /* indentation */
            memcpy(&w, data + at, 8);
            w ^= 0x2020202020202020u;
            if (w) {
                at += leading_zeros(w);
                break;
            }
            at += 8;
        }
    }
    return at;
}

/* ---- strings ---- */

/* Sets the top bit of each of the eight bytes that is a quote, a backslash or a control character. Only the
 * lowest set bit is exact. */
static uint64_t ending(uint64_t w) {
    const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
    uint64_t quote = w ^ (ones * '"'), slash = w ^ (ones * '\\');
    return (((w - ones * 0x20) & ~w) | ((quote - ones) & ~quote) | ((slash - ones) & ~slash)) & tops;
}

/* Returns the first position from `at` on that ends a run of plain characters: a quote, a backslash, a
 * control character, invalid UTF-8 or the end of the document. UTF-8 is validated once for the whole run, and
 * only if a byte of it is not ASCII. */
static size_t pass_plain(const ln_json *j, size_t at) {
    const char *data = j->data;
    size_t bytes = j->bytes, from = at;
    uint64_t seen = 0, mark = 0;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    while (at + 8 <= bytes) {
        uint64_t w;
        memcpy(&w, data + at, 8);
        mark = ending(w);
        if (mark) {
            size_t n = leading_zeros(mark);
            seen |= n > 0 ? w << (64 - 8 * n) : 0;
            at += n;
            break;
        }
        seen |= w;
        at += 8;
    }
#endif
    while (!mark && at < bytes) {
        unsigned char c = (unsigned char)data[at];
        if (c < 0x20 || c == '"' || c == '\\') break;
        seen |= c;
        at++;
    }
    if ((seen & 0x8080808080808080u) == 0) return at;
    return from + ln_utf8_valid(data + from, at - from);
}

/* Returns the value of four hexadecimal digits at `at`; -1 if there are fewer. */
static int32_t hex4(const ln_json *j, size_t at) {
    int32_t v = 0;
    if (j->bytes - at < 4) return -1;
    for (size_t i = 0; i < 4; i++) {
        char c = j->data[at + i];
        int d = c >= '0' && c <= '9'                     ? c - '0'
                : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                         : -1;
        if (d < 0) return -1;
        v = v << 4 | d;
    }
    return v;
}

/* Appends the character of the escape at *at (a backslash) to the unescaped text; *at becomes the position
 * after it. */
static ln_status take_escape(ln_json *j, size_t *at, ln_error *err) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    size_t i = *at + 1;
    if (i >= j->bytes) return fail_at(j, i, err, "an escape");
    const char *known = memchr(from, j->data[i], sizeof from - 1);
    if (known) {
        ln_str_add(&j->unescaped, to + (known - from), 1);
        *at = i + 1;
        return LN_OK;
    }
    if (j->data[i] != 'u')
        return fail_at(j, *at, err, "one of the escapes \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\u");
    int32_t hi = hex4(j, i + 1);
    if (hi < 0) return fail_at(j, *at, err, "four hexadecimal digits after \\u");
    i += 5;
    uint32_t cp = (uint32_t)hi;
    if (hi >= 0xd800 && hi <= 0xdfff) {
        int32_t lo = hi < 0xdc00 && j->bytes - i >= 6 && j->data[i] == '\\' && j->data[i + 1] == 'u'
                         ? hex4(j, i + 2)
                         : -1;
        if (lo < 0xdc00 || lo > 0xdfff)
            return fail_at(j, *at, err, "a surrogate pair (a lone surrogate is no character)");
        cp = 0x10000u + ((uint32_t)(hi - 0xd800) << 10) + (uint32_t)(lo - 0xdc00);
        i += 6;
    }
    char utf8[4];
    ln_str_add(&j->unescaped, utf8, (size_t)ln_utf8_put(utf8, cp));
    *at = i;
    return LN_OK;
}

/* Reads the string whose opening quote is at j->at. */
static ln_status take_string(ln_json *j, ln_error *err) {
    size_t from = j->at + 1, at = pass_plain(j, from);
    if (at < j->bytes && j->data[at] == '"') {
        j->text = j->data + from;
        j->text_bytes = at - from;
        j->at = at + 1;
        return LN_OK;
    }
    j->unescaped.len = 0;
    for (;;) {
        ln_str_add(&j->unescaped, j->data + from, at - from);
        if (at >= j->bytes) return fail_at(j, at, err, "the closing quote of a string");
        if (j->data[at] == '"') break;
        if ((unsigned char)j->data[at] < 0x20)
            return fail_at(j, at, err, "an escape for a control character in a string");
        if (j->data[at] != '\\') return fail_at(j, at, err, "valid UTF-8 in a string");
        LN_TRY(take_escape(j, &at, err));
        from = at;
        at = pass_plain(j, at);
    }
    if (j->unescaped.failed) return LN_OOM(err, "a string");
    j->text = j->unescaped.data ? j->unescaped.data : "";
    j->text_bytes = j->unescaped.len;
    j->at = at + 1;
    return LN_OK;
}

/* ---- values ---- */

static bool digit_at(const ln_json *j, size_t at) {
    return at < j->bytes && j->data[at] >= '0' && j->data[at] <= '9';
}

static ln_status take_number(ln_json *j, ln_error *err) {
    size_t at = j->at;
    if (j->data[at] == '-') at++;
    if (!digit_at(j, at)) return fail_at(j, at, err, "a digit");
    if (j->data[at] == '0' && digit_at(j, at + 1))
        return fail_at(j, j->at, err, "a number without leading zeros");
    while (digit_at(j, at)) at++;
    if (at < j->bytes && j->data[at] == '.') {
        if (!digit_at(j, ++at)) return fail_at(j, at, err, "a digit after the decimal point");
        while (digit_at(j, at)) at++;
    }
    if (at < j->bytes && (j->data[at] | 0x20) == 'e') {
        at++;
        if (at < j->bytes && (j->data[at] == '-' || j->data[at] == '+')) at++;
        if (!digit_at(j, at)) return fail_at(j, at, err, "a digit in the exponent");
        while (digit_at(j, at)) at++;
    }
    j->text = j->data + j->at;
    j->text_bytes = at - j->at;
    j->type = LN_J_NUMBER;
    j->at = at;
    return LN_OK;
}

static ln_status take_word(ln_json *j, const char *word, size_t n, ln_jtype type, ln_error *err) {
    if (j->bytes - j->at < n || memcmp(j->data + j->at, word, n) != 0)
        return fail_at(j, j->at, err, "a value");
    j->type = type;
    j->at += n;
    return LN_OK;
}

static ln_status open_container(ln_json *j, ln_jtype type, uint8_t state, ln_error *err) {
    if (j->depth >= j->max_depth)
        return ln_json_fail(j, err, "expected at most %d nested levels, found more", j->max_depth);
    j->type = type;
    j->stack[++j->depth] = state;
    j->at++;
    return LN_OK;
}

/* Reads the first token of a value at j->at. The caller has already advanced the state of the enclosing
 * container. */
static ln_status take_value(ln_json *j, ln_error *err) {
    if (j->at >= j->bytes) return fail_at(j, j->at, err, "a value");
    j->offset = j->at;
    switch (j->data[j->at]) {
    case '"': j->type = LN_J_STRING; return take_string(j, err);
    case '{': return open_container(j, LN_J_OBJECT, OBJ_FIRST, err);
    case '[': return open_container(j, LN_J_ARRAY, ARR_FIRST, err);
    case 't': return take_word(j, "true", 4, LN_J_TRUE, err);
    case 'f': return take_word(j, "false", 5, LN_J_FALSE, err);
    case 'n': return take_word(j, "null", 4, LN_J_NULL, err);
    case '-':
    case '0':
    case '1':
    case '2':
    case '3':
    case '4':
    case '5':
    case '6':
    case '7':
    case '8':
    case '9': return take_number(j, err);
    default: return fail_at(j, j->at, err, "a value");
    }
}

static ln_status take_key(ln_json *j, ln_error *err) {
    if (j->at >= j->bytes || j->data[j->at] != '"') return fail_at(j, j->at, err, "a key in quotes");
    j->offset = j->at;
    j->type = LN_J_KEY;
    j->stack[j->depth] = OBJ_VALUE;
    return take_string(j, err);
}

static ln_status close_container(ln_json *j, ln_jtype type) {
    j->type = type;
    j->offset = j->at++;
    j->depth--;
    return LN_OK;
}

/* After a complete member or item: reads the comma and the next token, or the end of the container. */
static ln_status take_next(ln_json *j, bool object, ln_error *err) {
    char c = j->at < j->bytes ? j->data[j->at] : '\0';
    if (c == (object ? '}' : ']')) return close_container(j, object ? LN_J_OBJECT_END : LN_J_ARRAY_END);
    if (c != ',') return fail_at(j, j->at, err, object ? "',' or '}'" : "',' or ']'");
    j->at = pass_space(j->data, j->bytes, j->at + 1);
    return object ? take_key(j, err) : take_value(j, err);
}

/* The encoding of a document in UTF-16 or UTF-32, detected by its byte order mark or by a zero byte next to
 * its first character; NULL for any other document. */
static const char *other_encoding(const char *data, size_t bytes) {
    const char *name = ln_other_encoding(data, bytes);
    if (name || bytes < 2 || !data[0] == !data[1]) return name;
    return data[0] ? "UTF-16LE" : "UTF-16BE";
}

/* The first token of the document. */
static ln_status take_top(ln_json *j, ln_error *err) {
    const char *other = other_encoding(j->data, j->bytes);
    j->offset = 0;
    if (other)
        return ln_json_fail(j, err,
                            "expected JSON in UTF-8, found %s; convert the file: iconv -f %s -t UTF-8", other,
                            other);
    j->stack[0] = TOP_DONE;
    return take_value(j, err);
}

ln_status ln_json_next(ln_json *j, ln_error *err) {
    j->at = pass_space(j->data, j->bytes, j->at);
    char c = j->at < j->bytes ? j->data[j->at] : '\0';
    uint8_t *state = &j->stack[j->depth];
    j->text = NULL;
    j->text_bytes = 0;
    switch (*state) {
    case TOP_VALUE: return take_top(j, err);
    case TOP_DONE:
        if (j->at < j->bytes) return fail_at(j, j->at, err, "the end of the document");
        j->offset = j->at;
        j->type = LN_J_END;
        return LN_OK;
    case OBJ_FIRST: return c == '}' ? close_container(j, LN_J_OBJECT_END) : take_key(j, err);
    case OBJ_VALUE:
        if (c != ':') return fail_at(j, j->at, err, "':' after a key");
        j->at = pass_space(j->data, j->bytes, j->at + 1);
        *state = OBJ_NEXT;
        return take_value(j, err);
    case ARR_FIRST:
        if (c == ']') return close_container(j, LN_J_ARRAY_END);
        *state = ARR_NEXT;
        return take_value(j, err);
    default: return take_next(j, *state == OBJ_NEXT, err);
    }
}

/* ---- helpers for callers ---- */

static const char *type_name(ln_jtype t) {
    static const char *const names[] = {"an object",
                                        "the end of an object",
                                        "an array",
                                        "the end of an array",
                                        "a key",
                                        "a string",
                                        "a number",
                                        "true",
                                        "false",
                                        "null",
                                        "the end of the document"};
    return names[t];
}

const char *ln_json_found(const ln_json *j, char buf[80]) {
    if (j->type != LN_J_STRING && j->type != LN_J_KEY && j->type != LN_J_NUMBER) return type_name(j->type);
    return ln_excerpt(buf, j->data + j->offset, j->at - j->offset);
}

ln_status ln_json_want(ln_json *j, ln_jtype type, ln_error *err) {
    LN_TRY(ln_json_next(j, err));
    if (j->type != type)
        return ln_json_fail(j, err, "expected %s, found %s", type_name(type), type_name(j->type));
    return LN_OK;
}

ln_status ln_json_skip(ln_json *j, ln_error *err) {
    if (j->type == LN_J_KEY) LN_TRY(ln_json_next(j, err));
    if (j->type != LN_J_OBJECT && j->type != LN_J_ARRAY) return LN_OK;
    for (int outside = j->depth - 1; j->depth > outside;) LN_TRY(ln_json_next(j, err));
    return LN_OK;
}

ln_status ln_json_key(ln_json *j, bool *more, ln_error *err) {
    LN_TRY(ln_json_next(j, err));
    *more = j->type == LN_J_KEY;
    if (!*more && j->type != LN_J_OBJECT_END)
        return ln_json_fail(j, err, "expected a key, found %s", type_name(j->type));
    return LN_OK;
}

ln_status ln_json_item(ln_json *j, bool *more, ln_error *err) {
    LN_TRY(ln_json_next(j, err));
    *more = j->type != LN_J_ARRAY_END;
    if (j->type == LN_J_KEY || j->type == LN_J_OBJECT_END || j->type == LN_J_END)
        return ln_json_fail(j, err, "expected an item of an array, found %s", type_name(j->type));
    return LN_OK;
}

static bool char_at(const ln_json *j, size_t at, char c) { return at < j->bytes && j->data[at] == c; }

bool ln_json_pair(ln_json *j, const char *text[2], size_t bytes[2]) {
    uint8_t *state = &j->stack[j->depth];
    size_t at = pass_space(j->data, j->bytes, j->at);
    if ((*state != ARR_FIRST && *state != ARR_NEXT) || j->depth >= j->max_depth) return false;
    if (*state == ARR_NEXT) {
        if (!char_at(j, at, ',')) return false;
        at = pass_space(j->data, j->bytes, at + 1);
    }
    size_t item = at;
    for (int k = 0; k < 2; k++) {
        if (!char_at(j, at, k ? ',' : '[')) return false;
        at = pass_space(j->data, j->bytes, at + 1);
        if (!char_at(j, at, '"')) return false;
        size_t end = pass_plain(j, ++at);
        if (!char_at(j, end, '"')) return false;
        text[k] = j->data + at;
        bytes[k] = end - at;
        at = pass_space(j->data, j->bytes, end + 1);
    }
    if (!char_at(j, at, ']')) return false;
    *state = ARR_NEXT;
    j->type = LN_J_ARRAY_END;
    j->text = NULL;
    j->text_bytes = 0;
    j->offset = item;
    j->at = at + 1;
    return true;
}

ln_status ln_json_u64(ln_json *j, const char *what, uint64_t *out, ln_error *err) {
    char found[80];
    if (j->type == LN_J_NUMBER && ln_parse_u64(j->text, j->text_bytes, out)) return LN_OK;
    return ln_json_fail(j, err, "%s: expected an integer from 0 to 2^64 - 1, found %s", what,
                        ln_json_found(j, found));
}

ln_status ln_json_bool(ln_json *j, const char *what, bool *out, ln_error *err) {
    char found[80];
    if (j->type != LN_J_TRUE && j->type != LN_J_FALSE)
        return ln_json_fail(j, err, "%s: expected true or false, found %s", what, ln_json_found(j, found));
    *out = j->type == LN_J_TRUE;
    return LN_OK;
}

bool ln_json_is(const ln_json *j, const char *text) {
    size_t n = strlen(text);
    return (j->type == LN_J_KEY || j->type == LN_J_STRING) && j->text_bytes == n &&
           memcmp(j->text, text, n) == 0;
}
