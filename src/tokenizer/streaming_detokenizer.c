/* Converts ids to text, a list at once or one id at a time. Both push the text of each token through the same
 * chain of decoders (token_decoder.c). */
#include "tokenizer_internal.h"

ln_status ln_tok_decode(const ln_tok *tok, const int32_t *ids, size_t n, bool skip_special, ln_str *out,
                        ln_error *err) {
    tok_decoding *g = NULL;
    size_t from = out->len;
    ln_status st;
    LN_TRY(ln_tok_check(tok, err));
    LN_GO(dec_open(&tok->dec, &g, err));
    for (size_t i = 0; i < n; i++) {
        size_t bytes;
        bool skip;
        if (ids[i] < 0)
            LN_GO(ln_fail(err, LN_EINVALID, "ids[%zu]: expected an id of at least 0, found %d", i,
                          (int)ids[i]));
        const char *text = tok_shown(tok, ids[i], &bytes, &skip);
        if (!text || (skip_special && skip)) continue;
        LN_GO(dec_push(&tok->dec, g, text, bytes, out, err));
    }
    LN_GO(dec_push(&tok->dec, g, NULL, 0, out, err));
out:
    if (st != LN_OK && out->data) {
        out->len = from;
        out->data[from] = '\0';
    }
    dec_free(&tok->dec, g);
    return st;
}

void ln_detok_open(ln_detok *d, const ln_tok *tok, bool skip_special) {
    *d = (ln_detok){.tok = tok, .skip_special = skip_special};
    for (size_t i = 0; i < LN_COUNT(d->keep); i++) d->keep[i] = -1;
}

static ln_status begin(ln_detok *d, ln_error *err) {
    LN_TRY(ln_tok_check(d->tok, err));
    d->text.len = 0;
    LN_TRY(utf8_reserve(&d->text, 0, err));
    d->text.data[0] = '\0';
    return d->state ? LN_OK : dec_open(&d->tok->dec, &d->state, err);
}

/* Inserts the byte 0xFF before the special token that a text ends with. */
static ln_status mark_end(ln_str *text, const char *token, size_t bytes, ln_error *err) {
    if (text->len < bytes || memcmp(text->data + text->len - bytes, token, bytes) != 0) return LN_OK;
    ln_str_add(text, "", 1);
    if (text->failed) return LN_OOM(err, "generated text");
    char *at = text->data + text->len - 1 - bytes;
    memmove(at + 1, at, bytes);
    *at = '\xff';
    return LN_OK;
}

ln_status ln_detok_push(ln_detok *d, int32_t id, ln_error *err) {
    LN_TRY(begin(d, err));
    if (id < 0)
        return ln_fail(err, LN_EINVALID, "detokenizer: expected an id of at least 0, found %d", (int)id);
    size_t bytes;
    bool skip;
    const char *text = tok_shown(d->tok, id, &bytes, &skip);
    for (size_t i = 0; i < LN_COUNT(d->keep); i++) skip = skip && id != d->keep[i];
    if (!text || (d->skip_special && skip)) return LN_OK;
    LN_TRY(dec_push(&d->tok->dec, d->state, text, bytes, &d->text, err));
    return d->marks && ln_tok_is_special(d->tok, id) ? mark_end(&d->text, text, bytes, err) : LN_OK;
}

ln_status ln_detok_flush(ln_detok *d, ln_error *err) {
    LN_TRY(begin(d, err));
    ln_status st = dec_push(&d->tok->dec, d->state, NULL, 0, &d->text, err);
    dec_free(&d->tok->dec, d->state);
    d->state = NULL;
    return st;
}

void ln_detok_close(ln_detok *d) {
    if (d->state) dec_free(&d->tok->dec, d->state);
    ln_str_free(&d->text);
    *d = (ln_detok){0};
}
