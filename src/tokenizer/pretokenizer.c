/* Runs the pre-tokenizers: they split a text into pieces, each step splitting the pieces of the step before.
 *
 * A piece is an offset and a length in the current buffer. Splitting steps write new pieces only; Metaspace
 * and ByteLevel also change the text and write a new buffer, in which the pieces follow each other. Matches
 * and the parts between them are passed to a state machine (`cutter`) that implements the five split
 * behaviours. Empty pieces are dropped.
 *
 * at_start: Metaspace's prepend scheme "first" depends on whether a piece begins where the input began. Only
 * the piece at offset 0 can. */
#include "tokenizer_internal.h"

/* The state machine that turns the parts of one text (matches and the text between them) into pieces. The
 * last piece stays open until the next part, because the behaviour may merge them. A part may be empty: an
 * empty match separates its neighbours, or is merged with the next part. Empty pieces are not written to
 * `out`. */
typedef struct cutter {
    tok_pieces *out;
    tok_behavior behavior;
    bool invert, was_match;
    bool has_open;
    tok_piece open;
} cutter;

static ln_status add_piece(tok_pieces *v, size_t at, size_t bytes, ln_error *err) {
    if (v->n == v->cap) LN_TRY(ln_grow((void **)&v->p, &v->cap, v->n + 1, sizeof *v->p, err));
    v->p[v->n++] = (tok_piece){at, bytes};
    return LN_OK;
}

/* Writes the open piece. */
static ln_status cut_end(cutter *c, ln_error *err) {
    bool writes = c->has_open && c->open.bytes > 0;
    c->has_open = false;
    return writes ? add_piece(c->out, c->open.at, c->open.bytes, err) : LN_OK;
}

/* Whether a part is merged into the open piece. `match`: the part is a match; `was`: the previous one was. */
static bool joins(const cutter *c, bool match, bool was) {
    switch (c->behavior) {
    case SPLIT_CONTIGUOUS: return match == was;
    case SPLIT_PREVIOUS: return match && !was;
    case SPLIT_NEXT: return !match && was;
    default: return false;
    }
}

/* Takes the next part of the text, bytes [from, to): a match, or the text before or between matches. */
static ln_status cut(cutter *c, size_t from, size_t to, bool match, ln_error *err) {
    bool was = c->was_match;
    if (c->invert) match = !match;
    c->was_match = match;
    if (c->has_open && joins(c, match, was)) {
        c->open.bytes += to - from;
        return LN_OK;
    }
    LN_TRY(cut_end(c, err));
    if (match && c->behavior == SPLIT_REMOVED) return LN_OK;
    c->has_open = true;
    c->open = (tok_piece){from, to - from};
    return LN_OK;
}

static cutter begin(tok_pieces *out, tok_behavior behavior, bool invert) {
    return (cutter){.out = out, .behavior = behavior, .invert = invert};
}

static ln_status split_regex(const tok_regex *re, tok_regex_work *w, const char *text, tok_piece p, cutter *c,
                             ln_error *err) {
    tok_matches m = {0};
    size_t done = 0;
    for (bool found;;) {
        LN_TRY(regex_next(re, w, text + p.at, p.bytes, &m, &found, err));
        if (!found) break;
        if (m.start > done) LN_TRY(cut(c, p.at + done, p.at + m.start, false, err));
        LN_TRY(cut(c, p.at + m.start, p.at + m.end, true, err));
        done = m.end;
    }
    if (done < p.bytes) LN_TRY(cut(c, p.at + done, p.at + p.bytes, false, err));
    return cut_end(c, err);
}

static bool char_matches(const tok_pre_step *s, uint32_t cp) {
    switch (s->kind) {
    case PRE_DIGITS: return unicode_is_number(cp);
    case PRE_PUNCT: return unicode_is_punct(cp);
    case PRE_SPACE: return unicode_is_space(cp);
    default: return cp == s->cp;
    }
}

static ln_status split_chars(const tok_pre_step *s, const char *text, tok_piece p, cutter *c, ln_error *err) {
    size_t done = p.at, end = p.at + p.bytes;
    for (size_t at = p.at; at < end;) {
        uint32_t cp;
        size_t n = utf8_next(text + at, &cp);
        if (char_matches(s, cp)) {
            if (at > done) LN_TRY(cut(c, done, at, false, err));
            LN_TRY(cut(c, at, at + n, true, err));
            done = at + n;
        }
        at += n;
    }
    if (done < end) LN_TRY(cut(c, done, end, false, err));
    return cut_end(c, err);
}

/* Splits into runs of word characters and runs of characters that are neither word characters nor spaces. */
static ln_status split_words(const char *text, tok_piece p, tok_pieces *out, ln_error *err) {
    size_t from = p.at, end = p.at + p.bytes;
    int was = 0;
    for (size_t at = p.at; at < end;) {
        uint32_t cp;
        size_t n = utf8_next(text + at, &cp);
        int kind = unicode_is_word(cp) ? 1 : unicode_is_space(cp) ? 0 : 2;
        if (kind != was) {
            if (was != 0) LN_TRY(add_piece(out, from, at - from, err));
            from = at;
            was = kind;
        }
        at += n;
    }
    return was != 0 ? add_piece(out, from, end - from, err) : LN_OK;
}

static ln_status split_length(size_t length, const char *text, tok_piece p, tok_pieces *out, ln_error *err) {
    size_t from = p.at, end = p.at + p.bytes, n_chars = 0;
    for (size_t at = p.at; at < end;) {
        uint32_t cp;
        at += utf8_next(text + at, &cp);
        if (++n_chars < length && at < end) continue;
        LN_TRY(add_piece(out, from, at - from, err));
        from = at;
        n_chars = 0;
    }
    return LN_OK;
}

static ln_status split_step(const tok_pre_step *s, tok_regex_work *rw, const char *text, tok_piece p,
                            tok_pieces *out, ln_error *err) {
    cutter c = begin(out, s->behavior, s->invert);
    switch (s->kind) {
    case PRE_SPLIT:
    case PRE_BYTES: return split_regex(&s->re, rw, text, p, &c, err);
    case PRE_WORDS: return split_words(text, p, out, err);
    case PRE_LENGTH: return split_length(s->length, text, p, out, err);
    default: return split_chars(s, text, p, &c, err);
    }
}

static void take_spare(tok_pre_work *w) {
    tok_pieces t = w->pieces;
    w->pieces = w->spare;
    w->spare = t;
}

static ln_status split_all(const tok_pre_step *s, tok_pre_work *w, tok_regex_work *rw, ln_error *err) {
    w->spare.n = 0;
    for (size_t i = 0; i < w->pieces.n; i++)
        LN_TRY(split_step(s, rw, w->text, w->pieces.p[i], &w->spare, err));
    take_spare(w);
    return LN_OK;
}

/* The buffer that does not hold the current text, emptied. */
static ln_str *other_buffer(tok_pre_work *w) {
    ln_str *b = w->text && w->text == w->buf[0].data ? &w->buf[1] : &w->buf[0];
    b->len = 0;
    return b;
}

/* Makes `b` the current text and w->spare the pieces in it. The first piece begins at offset 0 of `b`, so
 * at_start is cleared when it did not begin at 0 before. */
static void use_buffer(tok_pre_work *w, const ln_str *b) {
    if (w->pieces.n > 0 && w->pieces.p[0].at != 0) w->at_start = false;
    w->text = b->data;
    take_spare(w);
}

static ln_status metaspace(const tok_pre_step *s, tok_pre_work *w, ln_error *err) {
    ln_str *b = other_buffer(w);
    w->spare.n = 0;
    LN_TRY(utf8_reserve(b, 0, err));
    for (size_t i = 0; i < w->pieces.n; i++) {
        tok_piece p = w->pieces.p[i];
        const char *t = w->text + p.at;
        size_t from = b->len;
        bool has = t[0] == ' ' || (p.bytes >= s->n_rep && memcmp(t, s->rep, s->n_rep) == 0);
        bool first = w->at_start && p.at == 0;
        if (!has && (s->prepend == PREPEND_ALWAYS || (s->prepend == PREPEND_FIRST && first)))
            LN_TRY(utf8_append(b, s->rep, s->n_rep, err));
        for (size_t k = 0; k < p.bytes;) {
            const char *blank = memchr(t + k, ' ', p.bytes - k);
            size_t n = blank ? (size_t)(blank - t) - k : p.bytes - k;
            LN_TRY(utf8_append(b, t + k, n, err));
            k += n;
            if (blank) {
                LN_TRY(utf8_append(b, s->rep, s->n_rep, err));
                k++;
            }
        }
        if (!s->split) {
            LN_TRY(add_piece(&w->spare, from, b->len - from, err));
            continue;
        }
        tok_regex rep = {.literal = (char *)(uintptr_t)s->rep, .n_literal = s->n_rep};
        tok_regex_work none = {0};
        cutter c = begin(&w->spare, SPLIT_NEXT, false);
        LN_TRY(split_regex(&rep, &none, b->data, (tok_piece){from, b->len - from}, &c, err));
    }
    use_buffer(w, b);
    return LN_OK;
}

static ln_status prefix_spaces(tok_pre_work *w, ln_error *err) {
    ln_str *b = other_buffer(w);
    w->spare.n = 0;
    LN_TRY(utf8_reserve(b, 0, err));
    for (size_t i = 0; i < w->pieces.n; i++) {
        tok_piece p = w->pieces.p[i];
        size_t from = b->len;
        if (w->text[p.at] != ' ') LN_TRY(utf8_append(b, " ", 1, err));
        LN_TRY(utf8_append(b, w->text + p.at, p.bytes, err));
        LN_TRY(add_piece(&w->spare, from, b->len - from, err));
    }
    use_buffer(w, b);
    return LN_OK;
}

static ln_status map_bytes(tok_pre_work *w, ln_error *err) {
    ln_str *b = other_buffer(w);
    w->spare.n = 0;
    LN_TRY(utf8_reserve(b, 0, err));
    for (size_t i = 0; i < w->pieces.n; i++) {
        tok_piece p = w->pieces.p[i];
        size_t from = b->len;
        LN_TRY(utf8_reserve(b, p.bytes * 2, err));
        for (size_t k = 0; k < p.bytes; k++)
            utf8_grown(b, (size_t)ln_utf8_put(b->data + b->len,
                                              byte_level_cp[(unsigned char)w->text[p.at + k]]));
        LN_TRY(add_piece(&w->spare, from, b->len - from, err));
    }
    use_buffer(w, b);
    return LN_OK;
}

ln_status pre_run(const tok_pre *p, tok_pre_work *w, tok_regex_work *rw, const char *text, size_t bytes,
                  bool at_start, bool raw, ln_error *err) {
    w->pieces.n = 0;
    w->text = text;
    w->at_start = at_start;
    if (bytes > 0) LN_TRY(add_piece(&w->pieces, 0, bytes, err));
    for (size_t i = 0; i < p->n && w->pieces.n > 0; i++) {
        const tok_pre_step *s = &p->steps[i];
        if (s->kind == PRE_METASPACE) {
            LN_TRY(metaspace(s, w, err));
            continue;
        }
        if (s->kind == PRE_BYTES && s->prefix_space) LN_TRY(prefix_spaces(w, err));
        if (s->kind != PRE_BYTES || s->use_regex) LN_TRY(split_all(s, w, rw, err));
        if (s->kind == PRE_BYTES && !(raw && i + 1 == p->n)) LN_TRY(map_bytes(w, err));
    }
    return LN_OK;
}

void pre_work_close(tok_pre_work *w) {
    ln_free(w->pieces.p);
    ln_free(w->spare.p);
    ln_str_free(&w->buf[0]);
    ln_str_free(&w->buf[1]);
    *w = (tok_pre_work){0};
}
