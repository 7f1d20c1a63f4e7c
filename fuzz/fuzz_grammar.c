/* Fuzzes grammars and their matcher. The input is an expression and a text, separated by a byte 0xFF (which
 * no JSON text contains). The text goes to two matchers, byte by byte and at once, which must agree; the
 * mask of each state must agree with the single tokens; and a text that a schema's grammar calls complete
 * must be JSON. */
#include "fuzz.h"

#include "base/json.h"
#include "grammar/grammar.h"

enum { MOST_STEPS = 64 };

static void fuzz_open(void) {}

/* All bytes, and a few longer tokens. */
static ln_status open_vocabulary(ln_vocabulary *v, ln_error *err) {
    static const char *const more[] = {"{\"",   "\":", "\",\"", "true", "  ",
                                       "\\u00", "12",  "}]",    "abc",  "\xc3\xa9"};
    size_t at = 256;
    *v = (ln_vocabulary){.n_vocab = 256 + LN_COUNT(more)};
    v->at = ln_zalloc((size_t)v->n_vocab + 1, sizeof *v->at);
    v->text = ln_alloc(512);
    if (!v->at || !v->text) return LN_OOM(err, "a vocabulary");
    for (unsigned i = 0; i < 256; i++) v->text[i] = (char)i, v->at[i + 1] = i + 1;
    for (size_t i = 0; i < LN_COUNT(more); i++) {
        memcpy(v->text + at, more[i], strlen(more[i]));
        at += strlen(more[i]);
        v->at[257 + i] = (uint32_t)at;
    }
    return ln_vocabulary_sort(v, err);
}

static ln_status check_mask(ln_matcher *m, const ln_vocabulary *v, ln_error *err) {
    const uint64_t *mask;
    uint64_t copy[8];
    LN_TRY(ln_matcher_mask(m, &mask, err));
    memcpy(copy, mask, ((size_t)v->n_vocab + 63) / 64 * sizeof *copy);
    for (int32_t id = 0; id < v->n_vocab; id += 3) {
        bool fits;
        LN_TRY(ln_matcher_allows(m, id, &fits, err));
        must(fits == (copy[id / 64] >> (id % 64) & 1));
    }
    return LN_OK;
}

/* Whether the expression is a schema, so that its texts are JSON. */
static bool is_schema(const char *form, size_t bytes) {
    json_t *v = NULL;
    const bool yes = ln_json_load(&v, "form", form, bytes, NULL) == LN_OK && json_object_get(v, "schema");
    json_decref(v);
    return yes;
}

static ln_status match(const ln_grammar *g, const ln_vocabulary *v, bool schema, const char *text,
                       size_t bytes, ln_error *err) {
    ln_matcher *a = NULL, *b = NULL;
    bool fits = true, at_once;
    size_t n = 0;
    ln_status st = LN_OK;
    LN_GO(ln_matcher_open(&a, g, v, err));
    LN_GO(ln_matcher_open(&b, g, v, err));
    while (n < bytes && n < MOST_STEPS) {
        LN_GO(check_mask(a, v, err));
        LN_GO(ln_matcher_take(a, (unsigned char)text[n], &fits, err));
        if (!fits) break;
        n++;
    }
    LN_GO(ln_matcher_push(b, text, n, &at_once, err));
    must(at_once && ln_matcher_complete(a) == ln_matcher_complete(b) &&
         ln_matcher_final(a) == ln_matcher_final(b));
    if (schema && ln_matcher_complete(a)) {
        json_t *json = NULL;
        ln_error why;
        st = ln_json_load(&json, "text", text, n, &why);
        /* the reader rejects more: keys that come twice or have U+0000, deep nesting */
        must(st != LN_EINVALID || strstr(why.message, "key") || strstr(why.message, "nest") ||
             strstr(why.message, "deep") || strstr(why.message, "U+0000"));
        json_decref(json);
        st = st == LN_EMEMORY ? LN_OOM(err, "a tree") : LN_OK;
    }
out:
    ln_matcher_close(&a);
    ln_matcher_close(&b);
    return st;
}

static ln_status fuzz_one(const uint8_t *data, size_t bytes, ln_error *err) {
    const char *form = (const char *)data;
    const char *end = bytes ? memchr(form, 0xff, bytes) : NULL;
    const size_t n = end ? (size_t)(end - form) : bytes;
    ln_grammar *g = NULL;
    ln_vocabulary v = {0};
    LN_TRY(ln_grammar_open(&g, form, n, err));
    ln_status st = open_vocabulary(&v, err);
    if (st == LN_OK) st = match(g, &v, is_schema(form, n), end ? end + 1 : "", end ? bytes - n - 1 : 0, err);
    ln_vocabulary_free(&v);
    ln_grammar_close(&g);
    return st;
}
