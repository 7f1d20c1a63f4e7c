/* What holds of every tokenizer that opens: a text is encoded and decoded, each id has a text, the decoded
 * text is valid UTF-8, and the streamed text equals it. */
#ifndef LN_FUZZ_ROUND_TRIP_H
#define LN_FUZZ_ROUND_TRIP_H

#include "fuzz.h"

#include "tokenizer/tokenizer.h"

static const char default_text[] =
    "The caf\xc3\xa9 <s> 12 a\xff\xe2\x96\x81 \n\n\xf0\x9f\x91\xa9\xe2\x80\x8d";

static ln_status round_trip(const ln_tok *tok, const char *text, size_t bytes, ln_error *err) {
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

#endif
