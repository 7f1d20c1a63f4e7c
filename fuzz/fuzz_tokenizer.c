/* Fuzzes opening a tokenizer. The input is a tokenizer.json and, after a byte 0xFF (which no JSON document
 * contains), a text, which is encoded and decoded with the opened tokenizer. Every id must have a text, the
 * decoded text must be valid UTF-8, and the streamed text must equal it. */
#include "fuzz.h"

#include "tokenizer/tokenizer.h"

static const char default_text[] =
    "The caf\xc3\xa9 <s> 12 a\xff\xe2\x96\x81 \n\n\xf0\x9f\x91\xa9\xe2\x80\x8d";

static void fuzz_open(void) {}

static ln_status through(const ln_tok *tok, const char *text, size_t bytes, ln_error *err) {
    ln_ids ids = {0};
    ln_str whole = {0}, streamed = {0};
    ln_detok d;
    ln_status st;
    ln_detok_open(&d, tok, bytes & 1);
    LN_GO(ln_tok_encode(tok, text, bytes, true, &ids, err));
    for (size_t i = 0; i < ids.n; i++) {
        size_t n;
        must(ids.data[i] >= 0 && ids.data[i] < ln_tok_count(tok) && ln_tok_content(tok, ids.data[i], &n));
        (void)ln_tok_is_special(tok, ids.data[i]);
    }
    LN_GO(ln_tok_decode(tok, ids.data, ids.n, bytes & 1, &whole, err));
    for (size_t i = 0; i <= ids.n; i++) {
        LN_GO(i < ids.n ? ln_detok_push(&d, ids.data[i], err) : ln_detok_flush(&d, err));
        ln_str_add(&streamed, d.text.data, d.text.len);
    }
    if (streamed.failed) LN_GO(LN_OOM(err, "the streamed text"));
    must(whole.len == streamed.len && (whole.len == 0 || memcmp(whole.data, streamed.data, whole.len) == 0));
    must(ln_utf8_valid(whole.data, whole.len) == whole.len);
out:
    ln_detok_close(&d);
    ln_str_free(&whole);
    ln_str_free(&streamed);
    ln_ids_free(&ids);
    return st;
}

static ln_status fuzz_one(const uint8_t *data, size_t bytes, ln_error *err) {
    const uint8_t *mark = bytes ? memchr(data, 0xff, bytes) : NULL;
    size_t n = mark ? (size_t)(mark - data) : bytes;
    ln_tok *tok = NULL;
    LN_TRY(ln_tok_open_memory(&tok, "fuzz", (const char *)data, n, err));
    must(ln_tok_vocab(tok) > 0 && ln_tok_vocab(tok) <= ln_tok_count(tok) &&
         ln_tok_id(tok, "", 0) < ln_tok_count(tok));
    ln_status st = mark ? through(tok, (const char *)mark + 1, bytes - n - 1, err)
                        : through(tok, default_text, sizeof default_text - 1, err);
    ln_tok_close(&tok);
    return st;
}
