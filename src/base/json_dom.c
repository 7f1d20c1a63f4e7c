/* Whole documents through jansson, behind one door.
 *
 * The pull reader walks the text first: it refuses everything that RFC 8259 refuses, depth over 64 (jansson would recurse to 2,048)
 * and lone surrogates, with byte offsets; and it notes integers beyond 64 bits, which jansson would refuse, so that they can
 * be handed over as reals (`model_max_length` 1e30 is written out in full by some tools). What jansson may still find is a
 * duplicate key, a real out of range, a NUL in a key - or no memory: it allocates through ln_alloc like everyone else. */
#include "json.h"
#include "file.h"

#include <pthread.h>
#include <string.h>

static void set_allocator(void) { json_set_alloc_funcs(ln_alloc, ln_free); }

/* Passes the whole document; writes to `fixed` what of it was seen, with ".0" after integers beyond 64 bits. `fixed` stays empty when
 * there is none. */
static ln_status scan(ln_json *j, ln_str *fixed, ln_error *err) {
    size_t copied = 0;
    do {
        LN_TRY(ln_json_next(j, err));
        int64_t fits;
        if (j->type != LN_J_NUMBER || ln_parse_i64(j->text, j->text_bytes, &fits)) continue;
        if (memchr(j->text, '.', j->text_bytes) || memchr(j->text, 'e', j->text_bytes) || memchr(j->text, 'E', j->text_bytes)) continue;
        if (j->text_bytes == 2 && memcmp(j->text, "-0", 2) == 0) continue;
        ln_str_add(fixed, j->data + copied, j->at - copied);
        ln_str_adds(fixed, ".0");
        copied = j->at;
    } while (j->type != LN_J_END);
    if (copied) ln_str_add(fixed, j->data + copied, j->bytes - copied);
    return fixed->failed ? LN_OOM(err, "a JSON document") : LN_OK;
}

static ln_status explain(const json_error_t *je, const char *name, ln_error *err) {
    char shown[LN_PATH_TEXT], text[80];
    const char *what = ln_excerpt(text, je->text, strnlen(je->text, sizeof je->text));
    switch (json_error_code(je)) {
    case json_error_duplicate_key:
        return ln_fail(err, LN_EINVALID, "%s: line %d: expected each key once, found a duplicate: %s", ln_path_text(shown, name), je->line, what);
    case json_error_numeric_overflow:
        return ln_fail(err, LN_EINVALID, "%s: line %d: expected numbers in the range of a double, found one beyond: %s",
                       ln_path_text(shown, name), je->line, what);
    case json_error_null_byte_in_key:
        return ln_fail(err, LN_EINVALID, "%s: line %d: expected keys without U+0000: %s", ln_path_text(shown, name), je->line, what);
    default: /* the grammar has been checked: only memory is left */
        return ln_fail(err, LN_EMEMORY, "%s: out of memory while reading it (%s)", ln_path_text(shown, name), what);
    }
}

ln_status ln_json_load(json_t **out, const char *name, const char *data, size_t bytes, ln_error *err) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_allocator);
    *out = NULL;
    ln_json j;
    ln_str fixed = {0};
    ln_json_open(&j, name, data, bytes, LN_JSON_MAX_DEPTH);
    ln_status st = scan(&j, &fixed, err);
    ln_json_close(&j);
    if (st == LN_OK) {
        json_error_t je = {0};
        size_t flags = JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES | JSON_DECODE_ANY;
        *out = fixed.len ? json_loadb(fixed.data, fixed.len, flags, &je) : json_loadb(data, bytes, flags, &je);
        if (!*out) st = explain(&je, name, err);
    }
    ln_str_free(&fixed);
    return st;
}

const char *ln_json_text(const json_t *value, char buf[80]) {
    char text[256]; /* a long value is cut by the excerpt anyway */
    size_t n = value ? json_dumpb(value, text, sizeof text, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15)) : 0;
    if (n > 0 && n <= sizeof text) return ln_excerpt(buf, text, n);
    if (!value) return "nothing";
    if (json_is_string(value)) return ln_excerpt(buf, json_string_value(value), json_string_length(value));
    return json_is_array(value) ? "a long list" : "a large object";
}

ln_status ln_json_load_file(json_t **out, const char *path, size_t limit, ln_error *err) {
    char *data;
    size_t bytes;
    *out = NULL;
    LN_TRY(ln_read_file(path, limit, &data, &bytes, err));
    ln_status st = ln_json_load(out, path, data, bytes, err);
    ln_free(data);
    return st;
}
