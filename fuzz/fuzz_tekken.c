/* Fuzzes opening tekken.json, the vocabulary of Mistral's models. The input is the file and, after a byte
 * 0xFF (which no JSON document contains), a text, with what holds of each tokenizer (round_trip.h). */
#include "round_trip.h"

#include "tokenizer/tokenizer_internal.h"

static void fuzz_open(void) {}

static ln_status fuzz_one(const uint8_t *data, size_t bytes, ln_error *err) {
    const uint8_t *mark = bytes ? memchr(data, 0xff, bytes) : NULL;
    const size_t n = mark ? (size_t)(mark - data) : bytes;
    ln_tok *tok = NULL;
    LN_TRY(tok_open_tekken(&tok, "fuzz", (const char *)data, n, false, err));
    must(ln_tok_vocab(tok) > 0 && ln_tok_vocab(tok) <= ln_tok_count(tok));
    const ln_status st = mark ? round_trip(tok, (const char *)mark + 1, bytes - n - 1, err)
                              : round_trip(tok, default_text, sizeof default_text - 1, err);
    ln_tok_close(&tok);
    return st;
}
