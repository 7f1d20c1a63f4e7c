/* Fuzzes opening a tokenizer. The input is a tokenizer.json and, after a byte 0xFF (which no JSON document
 * contains), a text, which is encoded and decoded with the opened tokenizer. Every id must have a text, the
 * decoded text must be valid UTF-8, and the streamed text must equal it. */
#include "round_trip.h"

static void fuzz_open(void) {}

static ln_status fuzz_one(const uint8_t *data, size_t bytes, ln_error *err) {
    const uint8_t *mark = bytes ? memchr(data, 0xff, bytes) : NULL;
    size_t n = mark ? (size_t)(mark - data) : bytes;
    ln_tok *tok = NULL;
    LN_TRY(ln_tok_open_memory(&tok, "fuzz", (const char *)data, n, err));
    must(ln_tok_vocab(tok) > 0 && ln_tok_vocab(tok) <= ln_tok_count(tok) &&
         ln_tok_id(tok, "", 0) < ln_tok_count(tok));
    ln_status st = mark ? round_trip(tok, (const char *)mark + 1, bytes - n - 1, err)
                        : round_trip(tok, default_text, sizeof default_text - 1, err);
    ln_tok_close(&tok);
    return st;
}
