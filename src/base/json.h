/* Two JSON readers: a strict pull parser for large or untrusted input (tokenizer.json, safetensors headers),
 * and a loader that builds a jansson tree for everything else.
 *
 * The pull parser makes one pass over a buffer, does not recurse, copies only strings that contain an escape,
 * and reports byte offsets in its errors. It rejects everything that RFC 8259 forbids, invalid UTF-8, and
 * nesting beyond its limit; it skips a byte order mark before the document. It does not detect duplicate
 * keys: the caller knows which keys matter and has to. */
#ifndef LN_JSON_H
#define LN_JSON_H

#include "base.h"
#include <jansson.h>

typedef enum ln_jtype {
    LN_J_OBJECT,
    LN_J_OBJECT_END,
    LN_J_ARRAY,
    LN_J_ARRAY_END,
    LN_J_KEY,
    LN_J_STRING,
    LN_J_NUMBER,
    LN_J_TRUE,
    LN_J_FALSE,
    LN_J_NULL,
    LN_J_END /* the document is complete; only white space followed */
} ln_jtype;

#define LN_JSON_MAX_DEPTH 64 /* the deepest known configuration or tokenizer has 7 levels */
/* The largest JSON file that is loaded as a tree, in bytes. tokenizer_config.json is the largest: it repeats
 * every added token in about 185 bytes, 12 MB for the 65,800 of Llasa, 1.2 MB for Gemma 3. */
#define LN_CONFIG_LIMIT (64 << 20)

/* A pull parser: ln_json_open initialises it, ln_json_close frees the buffer for unescaped strings. The
 * document is borrowed. */
typedef struct ln_json {
    const char *name; /* of the file, for messages */
    const char *data;
    size_t bytes, at;
    int depth, max_depth;
    /* state of every open container: object or array, and which token may follow */
    uint8_t stack[LN_JSON_MAX_DEPTH + 1];
    ln_str unescaped;
    /* the token read last */
    ln_jtype type;
    const char *text; /* key or string (unescaped) or number (as written); valid until the next call */
    size_t text_bytes;
    size_t offset; /* of its first byte in the document */
} ln_json;

void ln_json_open(ln_json *j, const char *name, const char *data, size_t bytes, int max_depth);
void ln_json_close(ln_json *j);
/* Reads the next token. LN_EINVALID with name and byte offset for malformed input. */
ln_status ln_json_next(ln_json *j, ln_error *err);
/* Reads the next token; LN_EINVALID unless it has the given type. */
ln_status ln_json_want(ln_json *j, ln_jtype type, ln_error *err);
/* Skips the value whose first token was read last, or the value of the key that was read last. */
ln_status ln_json_skip(ln_json *j, ln_error *err);
/* Inside an object: reads the next key; *more = false at the end of the object. */
ln_status ln_json_key(ln_json *j, bool *more, ln_error *err);
/* Inside an array: reads the first token of the next item; *more = false at the end of the array. */
ln_status ln_json_item(ln_json *j, bool *more, ln_error *err);
/* A fast path for the merges of a tokenizer (half a million pairs). If the next item of the array is an array
 * of exactly two strings without escapes, reads it, sets both texts (borrowed from the document) and returns
 * true; otherwise the parser does not move. */
bool ln_json_pair(ln_json *j, const char *text[2], size_t bytes[2]);
/* The value of the token read last as an integer or a bool; LN_EINVALID naming `what` if it has another
 * type. */
ln_status ln_json_u64(ln_json *j, const char *what, uint64_t *out, ln_error *err);
ln_status ln_json_bool(ln_json *j, const char *what, bool *out, ln_error *err);
bool ln_json_is(const ln_json *j, const char *text); /* whether the key or string read last equals `text` */
/* The token read last as text for messages: a scalar as written, a container by its kind. Returns buf or a
 * constant. */
const char *ln_json_found(const ln_json *j, char buf[80]);
ln_status ln_json_fail(ln_json *j, ln_error *err, const char *fmt, ...) LN_PRINTF(3, 4);

/* Loads a whole document as a jansson tree; the top-level value may have any type. Rejected with
 * LN_EINVALID: nesting beyond 64 levels, duplicate keys, reals out of range, U+0000 in keys (strings may
 * contain it). Integers beyond 64 bits are read as reals. The caller releases *out with json_decref. */
ln_status ln_json_load(json_t **out, const char *name, const char *data, size_t bytes, ln_error *err);
/* The most that a document may hold; a field that is 0 sets no limit. An empty array takes two bytes of text
 * and more than a hundred of memory, so that the length of a text does not bound the tree. */
typedef struct ln_json_limits {
    size_t values;     /* of all kinds, containers included */
    size_t containers; /* arrays and objects */
    size_t key_bytes;  /* of the longest key */
} ln_json_limits;
/* The same for a document from outside. LN_EINVALID: it is beyond one of the limits. */
ln_status ln_json_load_limited(json_t **out, const char *name, const char *data, size_t bytes,
                               const ln_json_limits *most, ln_error *err);
/* The same from a file of at most `limit` bytes. */
ln_status ln_json_load_file(json_t **out, const char *path, size_t limit, ln_error *err);
/* While a memo is set, the calling thread reads the file at `path` once: ln_json_load_file and every reader
 * that asks ln_json_memo_get first share its tree, so that all of them see one version of the file. The path
 * is borrowed, and compared as text. ln_json_memo_end releases the memo's reference; trees that were returned
 * stay valid, must not be changed, and are released on this thread. Memos nest: the innermost counts. */
typedef struct ln_json_memo {
    const char *path;
    json_t *root; /* NULL: not read yet */
    struct ln_json_memo *outer;
} ln_json_memo;
void ln_json_memo_begin(ln_json_memo *m, const char *path);
void ln_json_memo_end(ln_json_memo *m);
/* Returns a new reference to the tree of that file, or NULL if no memo has it. */
json_t *ln_json_memo_get(const char *path);
/* Stores a tree, of which the caller keeps its own reference, if the memo is of that file. */
void ln_json_memo_put(const char *path, json_t *root);
/* The same from a file that the user names, which may be a pipe or a device (ln_read_input). */
ln_status ln_json_load_input(json_t **out, const char *path, size_t limit, ln_error *err);
/* Copies a value; the members of an object or array are shared, or copied too. The caller owns the result.
 * NULL: out of memory; json_copy and json_deep_copy drop members then, and return what is left. */
json_t *ln_json_copy(const json_t *value);
json_t *ln_json_deep_copy(const json_t *value);
/* Whether a value, which may be NULL, is this text. */
bool ln_json_is_text(const json_t *value, const char *text);
/* A value as text for messages: "nothing" for NULL, else compact JSON, shortened if it is long. Returns buf
 * or a constant. */
const char *ln_json_text(const json_t *value, char buf[80]);

#endif
