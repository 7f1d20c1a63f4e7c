/* The decoder steps: how each one transforms the fragments that it receives. A step that needs whole tokens
 * collects their fragments; after Fuse, which leaves one token, that is the whole text. Replace of a
 * literal, Strip and Metaspace, which published tokenizers use after Fuse, work on fragments and hold back
 * only the text that later input can change. */
#include "tokenizer_internal.h"

static ln_status take(tok_dec_state *s, const char *text, size_t bytes, ln_error *err) {
    return utf8_append(&s->held, text, bytes, err);
}

static size_t at_of(const tok_frags *in, size_t i) { return i > 0 ? in->f[i - 1].end : 0; }

/* ---- steps on whole tokens: `text` is a whole token ---- */

static ln_status replace_whole(const tok_dec_step *d, tok_regex_work *w, const char *text, size_t bytes,
                               ln_str *out, ln_error *err) {
    tok_matches m = {0};
    size_t done = 0;
    for (bool found;;) {
        LN_TRY(regex_next(&d->re, w, text, bytes, &m, &found, err));
        if (!found) return utf8_append(out, text + done, bytes - done, err);
        LN_TRY(utf8_append(out, text + done, m.start - done, err));
        LN_TRY(utf8_append(out, d->text, d->n_text, err));
        done = m.end;
    }
}

static int hex(char c) {
    return c >= '0' && c <= '9'                     ? c - '0'
           : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                    : -1;
}

/* As in the reference, the first digit may be a plus sign. */
int dec_fallback_byte(const char *t, size_t bytes) {
    if (bytes != 6 || memcmp(t, "<0x", 3) != 0 || t[5] != '>') return -1;
    int hi = t[3] == '+' ? 0 : hex(t[3]), lo = hex(t[4]);
    return hi < 0 || lo < 0 ? -1 : hi << 4 | lo;
}

/* Writes n tokens of U+FFFD: one for each byte of a run of byte tokens that is invalid UTF-8. */
static ln_status broken_bytes(size_t n, tok_frags *out, ln_error *err) {
    for (size_t i = 0; i < n; i++) {
        LN_TRY(utf8_append(&out->text, "\xef\xbf\xbd", 3, err));
        LN_TRY(frags_end(out, true, err));
    }
    return LN_OK;
}

/* Writes the run of byte tokens that ends here: as text when it is valid UTF-8. */
static ln_status end_run(tok_dec_state *s, tok_frags *out, ln_error *err) {
    if (s->held.len > 0 && s->count == s->held.len) {
        LN_TRY(utf8_append(&out->text, s->held.data, s->held.len, err));
        LN_TRY(frags_end(out, true, err));
    } else {
        LN_TRY(broken_bytes(s->held.len, out, err));
    }
    s->held.len = s->count = 0;
    s->decided = false;
    return LN_OK;
}

static ln_status fallback_token(tok_dec_state *s, const char *text, size_t bytes, tok_frags *out,
                                ln_error *err) {
    int byte = dec_fallback_byte(text, bytes);
    if (byte < 0) {
        LN_TRY(end_run(s, out, err));
        LN_TRY(utf8_append(&out->text, text, bytes, err));
        return frags_end(out, true, err);
    }
    if (s->decided) return broken_bytes(1, out, err);
    char c = (char)byte;
    LN_TRY(take(s, &c, 1, err));
    s->count += ln_utf8_valid(s->held.data + s->count, s->held.len - s->count);
    size_t rest = s->held.len - s->count;
    if (rest == 0 || utf8_is_prefix(s->held.data + s->count, rest)) return LN_OK;
    LN_TRY(broken_bytes(s->held.len, out, err)); /* one invalid byte makes the whole run invalid */
    s->held.len = s->count = 0;
    s->decided = true;
    return LN_OK;
}

static ln_status bytes_token(tok_dec_state *s, const char *text, size_t bytes, ln_error *err) {
    size_t from = s->held.len;
    LN_TRY(utf8_reserve(&s->held, bytes, err));
    for (size_t at = 0; at < bytes;) {
        uint32_t cp;
        at += utf8_next(text + at, &cp);
        int byte = byte_level_byte(cp);
        if (byte < 0) { /* not in the byte-level alphabet: the token's text is taken literally */
            s->held.len = from;
            return take(s, text, bytes, err);
        }
        s->held.data[s->held.len++] = (char)byte;
    }
    s->held.data[s->held.len] = '\0';
    return LN_OK;
}

/* Writes the complete characters of the held bytes, or with `final` all bytes. */
static ln_status give_bytes(tok_dec_state *s, bool final, tok_frags *out, ln_error *err) {
    size_t rest = 0;
    if (s->held.len > 0)
        LN_TRY(utf8_append_lossy(&out->text, s->held.data, s->held.len, final ? NULL : &rest, err));
    if (rest > 0) memmove(s->held.data, s->held.data + s->held.len - rest, rest);
    s->held.len = rest;
    return frags_end(out, final, err);
}

static ln_status replace_all(ln_str *text, const char *from, const char *to, ln_error *err) {
    ln_str out = {0};
    tok_regex_work none = {0};
    size_t n = strlen(from), m = strlen(to);
    tok_dec_step d = {.re = {.literal = (char *)(uintptr_t)from, .n_literal = n},
                      .text = (char *)(uintptr_t)to,
                      .n_text = m};
    ln_status st = replace_whole(&d, &none, text->data, text->len, &out, err);
    if (st == LN_OK) {
        ln_str_free(text);
        *text = out;
    } else {
        ln_str_free(&out);
    }
    return st;
}

static ln_status wordpiece_token(const tok_dec_step *d, tok_dec_state *s, ln_str *out, ln_error *err) {
    static const char *const clean[][2] = {
        {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
        {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    ln_str t = {0};
    size_t n = s->held.len;
    bool piece = n >= d->n_text && memcmp(s->held.data, d->text, d->n_text) == 0;
    ln_status st = LN_OK;
    if (s->n_tokens > 0 && !piece) LN_GO(utf8_append(&t, " ", 1, err));
    size_t skip = s->n_tokens > 0 && piece ? d->n_text : 0;
    LN_GO(utf8_append(&t, s->held.data + skip, n - skip, err));
    for (size_t i = 0; d->cleanup && i < LN_COUNT(clean); i++)
        LN_GO(replace_all(&t, clean[i][0], clean[i][1], err));
    st = utf8_append(out, t.data, t.len, err);
out:
    ln_str_free(&t);
    return st;
}

static ln_status bpe_token(const tok_dec_step *d, tok_dec_state *s, bool last, tok_frags *out,
                           ln_error *err) {
    tok_regex_work none = {0};
    tok_dec_step r = {.re = {.literal = d->text, .n_literal = d->n_text},
                      .text = (char *)(uintptr_t) " ",
                      .n_text = last ? 0 : 1};
    LN_TRY(replace_whole(&r, &none, s->held.data, s->held.len, &out->text, err));
    s->held.len = 0;
    return frags_end(out, true, err);
}

/* Transforms the whole token in s->held. */
static ln_status whole_token(const tok_dec_step *d, tok_dec_state *s, tok_regex_work *w, tok_frags *out,
                             ln_error *err) {
    switch (d->kind) {
    case DEC_REPLACE: LN_TRY(replace_whole(d, w, s->held.data, s->held.len, &out->text, err)); break;
    case DEC_WORDPIECE: LN_TRY(wordpiece_token(d, s, &out->text, err)); break;
    default: LN_TRY(utf8_append(&out->text, s->held.data, s->held.len, err)); break;
    }
    s->held.len = 0;
    return frags_end(out, true, err);
}

/* ---- steps on fragments ---- */

/* Replaces a literal in a text that continues: writes all of it except an end that may be the beginning of
 * the literal. */
static ln_status replace_fragment(const tok_dec_step *d, tok_dec_state *s, bool last, tok_frags *out,
                                  ln_error *err) {
    tok_regex_work none = {0};
    tok_matches m = {0};
    size_t done = 0, keep = 0;
    for (bool found;;) {
        LN_TRY(regex_next(&d->re, &none, s->held.data, s->held.len, &m, &found, err));
        if (!found) break;
        LN_TRY(utf8_append(&out->text, s->held.data + done, m.start - done, err));
        LN_TRY(utf8_append(&out->text, d->text, d->n_text, err));
        done = m.end;
    }
    size_t left = s->held.len - done;
    if (!last)
        for (keep = LN_MIN(left, d->re.n_literal - 1); keep > 0; keep--)
            if (memcmp(s->held.data + s->held.len - keep, d->re.literal, keep) == 0) break;
    LN_TRY(utf8_append(&out->text, s->held.data + done, left - keep, err));
    memmove(s->held.data, s->held.data + s->held.len - keep, keep);
    s->held.len = keep;
    return frags_end(out, last, err);
}

static ln_status strip_fragment(const tok_dec_step *d, tok_dec_state *s, const char *text, size_t bytes,
                                bool last, tok_frags *out, ln_error *err) {
    for (size_t at = 0; at < bytes;) {
        uint32_t cp;
        at += utf8_next(text + at, &cp);
        if (!s->decided && s->count < d->start && cp == d->cp) {
            s->count++;
            continue;
        }
        s->decided = true;
        if (cp == d->cp && s->n_tail < d->stop) {
            s->n_tail++;
            continue;
        }
        if (cp != d->cp)
            for (; s->n_tail > 0; s->n_tail--) LN_TRY(utf8_append_cp(&out->text, d->cp, err));
        LN_TRY(utf8_append_cp(&out->text, cp, err));
    }
    if (last) {
        s->count = s->n_tail = 0;
        s->decided = false;
    }
    return frags_end(out, last, err);
}

static ln_status metaspace_fragment(const tok_dec_step *d, tok_dec_state *s, const char *text, size_t bytes,
                                    bool last, tok_frags *out, ln_error *err) {
    bool drop = d->drop_first && s->n_tokens == 0;
    for (size_t at = 0; at < bytes;) {
        uint32_t cp;
        size_t n = utf8_next(text + at, &cp);
        if (cp != d->cp) LN_TRY(utf8_append(&out->text, text + at, n, err));
        else if (!drop) LN_TRY(utf8_append(&out->text, " ", 1, err));
        at += n;
    }
    return frags_end(out, last, err);
}

/* ---- dispatch ---- */

static ln_status fragment(const tok_dec_step *d, tok_dec_state *s, tok_regex_work *w, const char *text,
                          size_t bytes, bool last, tok_frags *out, ln_error *err) {
    switch (d->kind) {
    case DEC_JOIN:
        if (s->n_tokens > 0) LN_TRY(utf8_append(&out->text, " ", 1, err));
        LN_TRY(utf8_append(&out->text, text, bytes, err));
        return frags_end(out, last, err);
    case DEC_FUSE: LN_TRY(utf8_append(&out->text, text, bytes, err)); return frags_end(out, false, err);
    case DEC_METASPACE: return metaspace_fragment(d, s, text, bytes, last, out, err);
    case DEC_STRIP: return strip_fragment(d, s, text, bytes, last, out, err);
    case DEC_BPE:
        if (s->whole) LN_TRY(bpe_token(d, s, false, out, err));
        s->whole = last;
        return take(s, text, bytes, err);
    case DEC_BYTES:
        if (d->fused)
            return take(s, text, bytes, err); /* whether the one token is byte-level shows at its end */
        LN_TRY(bytes_token(s, text, bytes, err));
        return give_bytes(s, false, out, err);
    case DEC_FALLBACK:
        if (!d->fused) return fallback_token(s, text, bytes, out, err);
        LN_TRY(take(s, text, bytes, err));
        if (!last) return LN_OK;
        { /* the one token is complete */
            int byte = dec_fallback_byte(s->held.data, s->held.len);
            char c = (char)byte;
            if (byte >= 0x80) LN_TRY(utf8_append(&out->text, "\xef\xbf\xbd", 3, err));
            else if (byte >= 0) LN_TRY(utf8_append(&out->text, &c, 1, err));
            else LN_TRY(utf8_append(&out->text, s->held.data, s->held.len, err));
            s->held.len = 0;
            return frags_end(out, true, err);
        }
    case DEC_REPLACE:
        LN_TRY(take(s, text, bytes, err));
        if (d->fused && !d->re.code) return replace_fragment(d, s, last, out, err);
        return last ? whole_token(d, s, w, out, err) : LN_OK;
    default: LN_TRY(take(s, text, bytes, err)); return last ? whole_token(d, s, w, out, err) : LN_OK;
    }
}

/* The end of the input: writes the text that is still held back. */
static ln_status finish(const tok_dec_step *d, tok_dec_state *s, tok_frags *out, ln_error *err) {
    if (d->kind == DEC_FUSE) return s->open ? frags_end(out, true, err) : LN_OK;
    if (d->kind == DEC_BPE) return s->whole ? bpe_token(d, s, true, out, err) : LN_OK;
    if (d->kind == DEC_FALLBACK && !d->fused) return end_run(s, out, err);
    if (d->kind != DEC_BYTES || !s->open) return LN_OK;
    if (d->fused) {
        ln_str token = s->held;
        s->held = (ln_str){0};
        ln_status st = bytes_token(s, token.data ? token.data : "", token.len, err);
        ln_str_free(&token);
        LN_TRY(st);
    }
    return give_bytes(s, true, out, err);
}

ln_status dec_step(const tok_dec_step *d, tok_dec_state *s, tok_regex_work *w, const tok_frags *in,
                   tok_frags *out, bool final, ln_error *err) {
    for (size_t i = 0; i < in->n; i++) {
        size_t from = at_of(in, i);
        s->open = true;
        LN_TRY(utf8_reserve(&s->held, 0, err));
        LN_TRY(fragment(d, s, w, in->text.data + from, in->f[i].end - from, in->f[i].last, out, err));
        s->n_tokens += in->f[i].last;
    }
    return final ? finish(d, s, out, err) : LN_OK;
}
