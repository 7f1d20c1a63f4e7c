/* JSON twice: a strict pull reader for what is large or hostile (tokenizer.json, safetensors headers), and
 * jansson behind one loader for everything else.
 *
 * The pull reader walks a buffer once, never recurses, never copies unless a string holds an escape, and
 * gives byte offsets in its errors. It refuses whatever RFC 8259 refuses, invalid UTF-8, and depth over its
 * limit; it passes over a byte order mark before the document. It does not notice duplicate keys: the caller,
 * who knows which keys matter, does. */
#ifndef LN_JSON_H
#define LN_JSON_H

#include "base.h"
#include <jansson.h>

typedef enum ln_jtype {
    LN_J_OBJECT, LN_J_OBJECT_END, LN_J_ARRAY, LN_J_ARRAY_END, LN_J_KEY, LN_J_STRING, LN_J_NUMBER, LN_J_TRUE, LN_J_FALSE, LN_J_NULL,
    LN_J_END  /* the document is complete and only white space follows */
} ln_jtype;

#define LN_JSON_MAX_DEPTH 64 /* configurations and tokenizers go 7 deep */
/* Bytes of a JSON file that becomes a tree, tokenizer_config.json for instance, which repeats every added
 * token in about 185 bytes: 12 MB
 * for the 65,800 of Llasa, 1.2 MB for Gemma 3. */
#define LN_CONFIG_LIMIT (64 << 20)

/* Zero-initialise through ln_json_open; ln_json_close frees the unescape buffer. */
typedef struct ln_json {
    const char *name;        /* of the file, for messages */
    const char *data;
    size_t bytes, at;
    int depth, max_depth;
    uint8_t stack[LN_JSON_MAX_DEPTH + 1]; /* object or array, and what may come next */
    ln_str unescaped;
    /* the token last read */
    ln_jtype type;
    const char *text;        /* of a key or string (unescaped) or a number (as written); valid until the next call */
    size_t text_bytes;
    size_t offset;           /* where it began */
} ln_json;

void ln_json_open(ln_json *j, const char *name, const char *data, size_t bytes, int max_depth);
void ln_json_close(ln_json *j);
/* Reads the next token. Errors are LN_EINVALID with name and byte offset. */
ln_status ln_json_next(ln_json *j, ln_error *err);
/* Reads the next token and requires its type. */
ln_status ln_json_want(ln_json *j, ln_jtype type, ln_error *err);
/* Passes over the value whose first token was just read (or that follows the key just read). */
ln_status ln_json_skip(ln_json *j, ln_error *err);
/* Inside an object: the next key, or *more = false at its end. */
ln_status ln_json_key(ln_json *j, bool *more, ln_error *err);
/* Inside an array: reads the next value's first token, or *more = false at its end. */
ln_status ln_json_item(ln_json *j, bool *more, ln_error *err);
/* Inside an array: when the next item is an array of exactly two strings without escapes, passes over it, hands out both texts (borrowed
 * from the document) and returns true. Otherwise the reader stays where it is. What half a million merges are read by. */
bool ln_json_pair(ln_json *j, const char *text[2], size_t bytes[2]);
/* The token last read as text, integer, bool; LN_EINVALID naming `what` when it is something else. */
ln_status ln_json_u64(ln_json *j, const char *what, uint64_t *out, ln_error *err);
ln_status ln_json_bool(ln_json *j, const char *what, bool *out, ln_error *err);
bool ln_json_is(const ln_json *j, const char *text); /* the key or string last read equals `text` */
/* The token last read, for messages: a scalar as it is written, a container by its kind. Returns buf or a constant. */
const char *ln_json_found(const ln_json *j, char buf[80]);
ln_status ln_json_fail(ln_json *j, ln_error *err, const char *fmt, ...) LN_PRINTF(3, 4);

/* The whole document as jansson's tree, any value at the top: depth over 64 and doubled keys are refused,
 * U+0000 is a character of strings but not of keys, integers beyond 64 bits are read as reals. json_decref
 * the result. */
ln_status ln_json_load(json_t **out, const char *name, const char *data, size_t bytes, ln_error *err);
/* The same from a file of at most `limit` bytes. */
ln_status ln_json_load_file(json_t **out, const char *path, size_t limit, ln_error *err);
/* The same for a file that a person names, which may be a pipe or a device (ln_read_input). */
ln_status ln_json_load_input(json_t **out, const char *path, size_t limit, ln_error *err);
/* A value for messages: "nothing" for NULL, else as compact JSON, an excerpt of it when it is long. Returns buf or a constant. */
const char *ln_json_text(const json_t *value, char buf[80]);

#endif
