/* Fuzzes both JSON parsers: the pull parser, token by token (the first byte of the input selects the
 * functions that are called), and the parser of whole documents into trees. The pull parser must accept
 * every document that the tree parser accepts. The tree parser may reject more only for a duplicate key, a
 * real out of range, or a key with U+0000. A tree that is written out and parsed again must be equal. */
#include "fuzz.h"

#include "base/json.h"

static void fuzz_open(void) {}

/* Reads the document with the functions for keys, items, skipping, pairs, numbers and booleans. */
static ln_status walk(ln_json *j, unsigned how, ln_error *err) {
    for (unsigned step = how;; step = how ? step * 5 + 3 : 0) {
        const char *text[2];
        size_t bytes[2];
        char found[80];
        uint64_t u;
        bool b;
        if (step & 1 && j->depth > 0 && ln_json_pair(j, text, bytes))
            must(ln_utf8_valid(text[0], bytes[0]) == bytes[0]);
        LN_TRY(ln_json_next(j, err));
        must(j->at <= j->bytes && j->offset <= j->at && j->depth <= j->max_depth);
        must(strlen(ln_json_found(j, found)) < sizeof found);
        if (j->type == LN_J_KEY || j->type == LN_J_STRING)
            must(ln_utf8_valid(j->text, j->text_bytes) == j->text_bytes &&
                 !(ln_json_is(j, "k") && j->text_bytes != 1));
        if (j->type == LN_J_END) return LN_OK;
        if (j->type == LN_J_NUMBER && step & 2) LN_TRY(ln_json_u64(j, "a number", &u, err));
        if ((j->type == LN_J_TRUE || j->type == LN_J_STRING) && step & 4)
            LN_TRY(ln_json_bool(j, "a flag", &b, err));
        if (step & 8 && (j->type == LN_J_OBJECT || j->type == LN_J_ARRAY || j->type == LN_J_KEY))
            LN_TRY(ln_json_skip(j, err));
        if (step & 16 && j->type == LN_J_OBJECT) LN_TRY(ln_json_key(j, &b, err));
        if (step & 32 && j->depth > 0) LN_TRY(ln_json_item(j, &b, err));
        if (step & 64 && j->depth > 0) LN_TRY(ln_json_key(j, &b, err));
        if (step & 128) LN_TRY(ln_json_want(j, (ln_jtype)(step >> 8 & 7), err));
    }
}

static ln_status whole(const char *data, size_t bytes, bool passed, ln_error *err) {
    json_t *root, *again;
    char text[80];
    ln_status st = ln_json_load(&root, "fuzz", data, bytes, err);
    if (st != LN_OK) {
        must(root == NULL);
        must(!passed || st == LN_EMEMORY || strstr(err->message, "duplicate") ||
             strstr(err->message, "beyond") || strstr(err->message, "U+0000"));
        return st;
    }
    must(passed && strlen(ln_json_text(root, text)) < sizeof text);
    ln_mem_fail_at(-1, false); /* linnet does not use jansson's writer, so it need not survive a failure */
    char *out = json_dumps(root, JSON_ENCODE_ANY | JSON_COMPACT);
    must(out != NULL && ln_json_load(&again, "written", out, strlen(out), err) == LN_OK &&
         json_equal(root, again));
    json_decref(again);
    json_decref(root);
    ln_free(out);
    return LN_OK;
}

static ln_status fuzz_one(const uint8_t *data, size_t bytes, ln_error *err) {
    ln_json j;
    unsigned how = bytes ? data[0] : 0;
    const char *text = (const char *)data + (bytes > 0);
    bytes -= bytes > 0;
    ln_json_open(&j, "fuzz", text, bytes, how & 3 ? LN_JSON_MAX_DEPTH : 3);
    ln_status st = walk(&j, how & ~3u, err);
    ln_json_close(&j);
    if (st == LN_EMEMORY || how > 3) return st;
    bool passed = st == LN_OK;
    if (how == 0 && !passed) return st; /* depth 3 */
    return whole(text, bytes, passed, err);
}
