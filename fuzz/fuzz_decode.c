/* Fuzzes the decoding of ids. The first byte selects the tokenizer; every two bytes are an id, mostly a valid
 * one. The text of ln_tok_decode and the streamed text must be equal and valid UTF-8, the latter after every
 * push. An id without a text adds nothing to either; for a negative id both return an error. */

#include "tokenizers.h"

static void fuzz_open(void) { open_tokenizers(); }

static ln_status stream(const ln_tok *tok, const int32_t *ids, size_t n, bool skip, ln_str *out,
                        ln_error *err) {
    ln_detok d;
    ln_status st = LN_OK;
    ln_detok_open(&d, tok, skip);
    for (size_t i = 0; i <= n && st == LN_OK; i++) {
        st = i < n ? ln_detok_push(&d, ids[i], err) : ln_detok_flush(&d, err);
        if (st != LN_OK) break;
        must(ln_utf8_valid(d.text.data, d.text.len) == d.text.len);
        ln_str_add(out, d.text.data, d.text.len);
    }
    ln_detok_close(&d);
    return st == LN_OK && out->failed ? LN_OOM(err, "the streamed text") : st;
}

static ln_status fuzz_one(const uint8_t *data, size_t bytes, ln_error *err) {
    if (bytes == 0) return LN_OK;
    const ln_tok *tok = toks[data[0] % LN_COUNT(kinds)];
    bool skip = data[0] & 0x80, negative = false;
    size_t n = (bytes - 1) / 2;
    int32_t *ids = malloc((n + 1) * sizeof *ids);
    ln_str whole = {0}, streamed = {0};
    must(ids != NULL);
    for (size_t i = 0; i < n; i++) {
        ids[i] = data[1 + 2 * i] | data[2 + 2 * i] << 8;
        if (ids[i] == 0xffff) ids[i] = INT32_MIN;
        else if (ids[i] == 0xfffe) ids[i] = INT32_MAX;
        else if (ids[i] < 0xff00) ids[i] %= ln_tok_count(tok);
        negative |= ids[i] < 0;
    }
    ln_status st = ln_tok_decode(tok, ids, n, skip, &whole, err);
    must(st == LN_EMEMORY || (st == LN_OK) == !negative);
    must(st != LN_OK || ln_utf8_valid(whole.data, whole.len) == whole.len);
    ln_error other = {0};
    ln_status st2 = stream(tok, ids, n, skip, &streamed, &other);
    must(st2 == LN_EMEMORY || (st2 == LN_OK) == !negative);
    if (st == LN_OK && st2 == LN_OK)
        must(whole.len == streamed.len &&
             (whole.len == 0 || memcmp(whole.data, streamed.data, whole.len) == 0));
    ln_str_free(&whole);
    ln_str_free(&streamed);
    free(ids);
    if (st == LN_OK && st2 == LN_EMEMORY) *err = other;
    return st == LN_OK && st2 == LN_EMEMORY ? st2 : st;
}
