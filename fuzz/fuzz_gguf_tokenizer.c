/* Fuzzes opening a tokenizer from the metadata of a GGUF file, with what holds of each (round_trip.h). What
 * opens can be written as tokenizer.json. */
#include "round_trip.h"

#include "base/gguf.h"

#include <jansson.h>

static void fuzz_open(void) {}

static ln_status write_json(const ln_gguf *g, ln_error *err) {
    json_t *tokenizer, *config;
    const ln_status st = ln_tok_json_of_gguf(&tokenizer, &config, g, err);
    must(st == LN_OK ? json_object_size(tokenizer) > 0 && json_object_size(config) > 0 : st == LN_EMEMORY);
    json_decref(tokenizer);
    json_decref(config);
    return st;
}

static ln_status fuzz_one(const uint8_t *data, size_t bytes, ln_error *err) {
    ln_gguf *g;
    ln_tok *tok = NULL;
    LN_TRY(ln_gguf_open_memory(&g, "fuzz", data, bytes, err));
    const bool any = ln_gguf_find(g, "tokenizer.ggml.model") != NULL; /* else LN_EIO: there is no tokenizer */
    ln_status st = any ? ln_tok_open_gguf(&tok, g, err) : LN_OK;
    if (tok) {
        must(ln_tok_vocab(tok) > 0 && ln_tok_vocab(tok) <= ln_tok_count(tok));
        st = round_trip(tok, default_text, sizeof default_text - 1, err);
    }
    if (tok && st == LN_OK) st = write_json(g, err);
    if (tok) ln_tok_close(&tok);
    ln_gguf_close(&g);
    return st;
}
