/* The bytes of a single token. A text cannot show a token that ends within a character; its bytes can.
 *
 * Tokens of the byte-level alphabet and of byte fallback are bytes by definition. Any other token is what it
 * adds to a text: decoders change the beginning of a text (they drop its first blank), so that the token is
 * decoded twice in a row, and the second time counts. */
#include "tokenizer_internal.h"
#include "../unicode/unicode.h"

static bool has_step(const ln_tok *tok, unsigned kind) {
    for (size_t i = 0; i < tok->dec.n; i++)
        if (tok->dec.steps[i].kind == kind) return true;
    return false;
}

/* Appends the bytes of a text of the byte-level alphabet; false, with *out as before, for any other text. */
static bool alphabet_bytes(const char *text, size_t bytes, ln_str *out) {
    size_t from = out->len;
    for (size_t at = 0; at < bytes;) {
        uint32_t cp;
        int n = ln_utf8_get(text + at, bytes - at, &cp), byte = n > 0 ? byte_level_byte(cp) : -1;
        if (byte < 0) {
            out->len = from;
            return false;
        }
        char c = (char)byte;
        ln_str_add(out, &c, 1);
        at += (size_t)n;
    }
    return true;
}

static ln_status added_text(const ln_tok *tok, int32_t id, ln_str *out, ln_error *err) {
    const int32_t twice[] = {id, id};
    ln_str one = {0}, two = {0};
    ln_status st = ln_tok_decode(tok, twice, 1, false, &one, err);
    if (st == LN_OK) st = ln_tok_decode(tok, twice, 2, false, &two, err);
    if (st == LN_OK && two.len >= one.len) ln_str_add(out, two.data + one.len, two.len - one.len);
    ln_str_free(&one);
    ln_str_free(&two);
    return st;
}

ln_status ln_tok_bytes(const ln_tok *tok, int32_t id, ln_str *out, ln_error *err) {
    size_t bytes;
    bool skip;
    const char *text = id >= 0 ? tok_shown(tok, id, &bytes, &skip) : NULL;
    int byte = text && has_step(tok, DEC_FALLBACK) ? dec_fallback_byte(text, bytes) : -1;
    char c = (char)byte;
    ln_status st = ln_tok_check(tok, err);
    if (byte >= 0) ln_str_add(out, &c, 1);
    else if (text && !(has_step(tok, DEC_BYTES) && alphabet_bytes(text, bytes, out)))
        st = added_text(tok, id, out, err);
    return st == LN_OK && out->failed ? LN_OOM(err, "the text of a token") : st;
}
