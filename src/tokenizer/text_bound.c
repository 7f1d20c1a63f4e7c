/* The fewest ids that a text can have, from its length alone: a text that is longer than a context can hold
 * is rejected before it is rendered, normalised or encoded.
 *
 * No id stands for more bytes of the text than the longest token has, times what the normalizers can shrink
 * it. A tokenizer that drops characters, or encodes a run of any length as one token, has no such bound. */
#include "tokenizer_internal.h"

/* The most bytes of a normalizer's input that become one byte of its output; 0: any number. Kelvin's sign (3
 * bytes) composes to K; NFKC and NFKD make a letter of a mathematical one (4 bytes). */
static double norm_shrink(const tok_norm_step *s) {
    switch (s->kind) {
    case NORM_FORM: return s->form == UNICODE_NFKC || s->form == UNICODE_NFKD ? 4 : 3;
    case NORM_LOWER: return 3;
    case NORM_PREPEND:
    case NORM_BYTES: return 1;
    case NORM_REPLACE:
        if (s->re.code || s->n_text == 0) return 0;
        return LN_MAX((double)s->re.n_literal / (double)s->n_text, 1.0);
    default: return 0;
    }
}

static bool pre_drops(const tok_pre_step *s) {
    return s->behavior == SPLIT_REMOVED &&
           (s->kind == PRE_SPLIT || s->kind == PRE_CHAR || s->kind == PRE_WORDS || s->kind == PRE_SPACE);
}

/* Whether every character becomes a token of its own at least. */
static bool keeps_all(const tok_bpe *b, bool byte_level) {
    bool bytes = b->byte_fallback && !byte_level;
    if (bytes || byte_level) {
        for (int i = 0; i < 0xf5; i++) /* the bytes of UTF-8 */
            if (i != 0xc0 && i != 0xc1 && (bytes ? b->byte_id[i] : b->level_id[i]) < 0)
                bytes = byte_level = false;
        if (bytes || byte_level) return true;
    }
    return b->has_unk && b->unk_id >= 0 && !b->fuse_unk;
}

size_t tok_longest(const ln_tok *t) {
    double times = 1;
    size_t most = LN_MAX(t->bpe.vocab.longest, (size_t)4);
    for (size_t i = 0; i < t->added.n; i++) most = LN_MAX(most, t->added.t[i].bytes);
    for (size_t i = 0; i < t->norm.n; i++) times *= norm_shrink(&t->norm.steps[i]);
    for (size_t i = 0; i < t->pre.n; i++)
        if (pre_drops(&t->pre.steps[i])) times = 0;
    if (!keeps_all(&t->bpe, t->pre.has_bytes)) times = 0;
    return (size_t)((double)most * times);
}

/* White space next to an added token that absorbs it belongs to that one token. */
static bool takes_blanks(const ln_tok *t) {
    for (size_t i = 0; i < t->added.n; i++)
        if (t->added.t[i].lstrip || t->added.t[i].rstrip) return true;
    return false;
}

size_t ln_tok_fewest(const ln_tok *tok, const char *text, size_t bytes) {
    size_t n = bytes;
    if (tok->longest == 0 || bytes < tok->longest) return 0;
    if (takes_blanks(tok)) {
        n = 0;
        for (size_t at = 0; at < bytes;) {
            uint32_t cp;
            const int k = ln_utf8_get(text + at, bytes - at, &cp);
            if (k == 0 || !unicode_is_space(cp)) n += (size_t)LN_MAX(k, 1);
            at += (size_t)LN_MAX(k, 1);
        }
    }
    return n / tok->longest;
}
