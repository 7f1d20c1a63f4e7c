/* Fuzzes the encoding of a text. The first byte selects the tokenizer, the rest is the text, which may be
 * invalid UTF-8. Every id must have a text. Encoding a second time must append the same ids. A byte-level
 * tokenizer without a normalizer must decode the ids to the text, with U+FFFD for invalid UTF-8. */

#include "tokenizers.h"

static void fuzz_open(void) { open_tokenizers(); }

/* Whether `back` is the text with its invalid bytes replaced by U+FFFD. The comparison ignores U+FFFD, so
 * that it does not depend on how many of them the tokenizer writes. */
static bool same_text(const char *text, size_t bytes, const ln_str *back) {
    size_t at = 0;
    for (size_t i = 0; i < bytes;) {
        uint32_t cp;
        int n = ln_utf8_get(text + i, bytes - i, &cp);
        if (n == 0) {
            i++;
            continue;
        }
        while (at + 3 <= back->len && memcmp(back->data + at, "\xef\xbf\xbd", 3) == 0 && cp != 0xfffd)
            at += 3;
        if (cp != 0xfffd) {
            if (at + (size_t)n > back->len || memcmp(back->data + at, text + i, (size_t)n) != 0) return false;
            at += (size_t)n;
        }
        i += (size_t)n;
    }
    while (at + 3 <= back->len && memcmp(back->data + at, "\xef\xbf\xbd", 3) == 0) at += 3;
    return at == back->len;
}

/* Encodes with a guard. Text that is all data must give no special token, text that is all from the template
 * must give the ids of ln_tok_encode, and a text of mixed origin must be encoded without an error. */
static ln_status guarded(const ln_tok *tok, const char *text, size_t bytes, const ln_ids *plain,
                         size_t n_plain, ln_error *err) {
    ln_controls *controls = NULL;
    ln_ids ids = {0};
    uint8_t *origin = malloc(bytes + 1);
    ln_status st;
    must(origin != NULL);
    for (size_t i = 0; i < bytes; i++)
        origin[i] = hash_of((const uint8_t *)text, i < 64 ? i : 64) >> (i % 60) & 1;
    LN_GO(ln_controls_open(&controls, tok, "x<s>y\0ab c", 11, err));
    LN_GO(ln_tok_encode_guarded(tok, text, bytes, false, &(ln_guard){.all_data = true, .controls = controls},
                                &ids, err));
    for (size_t i = 0; i < ids.n; i++) must(!ln_tok_is_special(tok, ids.data[i]));
    ids.n = 0;
    LN_GO(ln_tok_encode_guarded(tok, text, bytes, false, &(ln_guard){.controls = controls}, &ids, err));
    must(ids.n == n_plain && (ids.n == 0 || memcmp(ids.data, plain->data, ids.n * sizeof *ids.data) == 0));
    LN_GO(ln_tok_encode_guarded(tok, text, bytes, true, &(ln_guard){.origin = origin, .controls = controls},
                                &ids, err));
out:
    ln_controls_close(&controls);
    ln_ids_free(&ids);
    free(origin);
    return st;
}

static ln_status fuzz_one(const uint8_t *data, size_t bytes, ln_error *err) {
    if (bytes == 0) return LN_OK;
    size_t which = data[0] % LN_COUNT(kinds), first;
    const ln_tok *tok = toks[which];
    const char *text = (const char *)data + 1;
    bool special = data[0] & 0x80;
    ln_ids ids = {0};
    ln_str back = {0};
    ln_status st;
    bytes--;
    LN_GO(ln_tok_encode(tok, text, bytes, special, &ids, err));
    first = ids.n;
    for (size_t i = 0; i < first; i++) {
        size_t n;
        must(ids.data[i] >= 0 && ln_tok_content(tok, ids.data[i], &n));
    }
    LN_GO(ln_tok_encode(tok, text, bytes, special, &ids, err));
    must(ids.n == 2 * first &&
         (first == 0 || memcmp(ids.data, ids.data + first, first * sizeof *ids.data) == 0));
    if (!special && ln_utf8_valid(text, bytes) == bytes) LN_GO(guarded(tok, text, bytes, &ids, first, err));
    if (which < 2) {
        LN_GO(ln_tok_decode(tok, ids.data, first, false, &back, err));
        must(same_text(text, bytes, &back));
    }
out:
    ln_str_free(&back);
    ln_ids_free(&ids);
    return st;
}
