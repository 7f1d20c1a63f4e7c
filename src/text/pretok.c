/* Pre-tokenizers at work: one text cut into pieces, each step cutting the pieces of the step before.
 *
 * A piece is a place and a length in the current buffer. Splitting steps write new places only; Metaspace and ByteLevel also change
 * the text and write a new buffer, in which pieces lie one after the other. Matches and what lies between them go through one small
 * machine (`cutter`) that knows the five behaviours. Empty pieces vanish.
 *
 * at_start: Metaspace's "first" needs to know whether a piece begins where the input began. That can only be the piece at place 0. */
#include "tok.h"

/* Cuts one text. The last part stays open until the next one comes, empty or not: an empty match separates
 * its neighbours and can be what the next part is merged with. Only what is written to `out` must not be
 * empty. */
typedef struct cutter {
    text_pieces *out;
    text_behavior behavior;
    bool invert, was_match;
    bool has_open;
    text_piece open;
} cutter;

static ln_status add_piece(text_pieces *v, size_t at, size_t bytes, ln_error *err) {
    if (v->n == v->cap) LN_TRY(ln_grow((void **)&v->p, &v->cap, v->n + 1, sizeof *v->p, err));
    v->p[v->n++] = (text_piece){at, bytes};
    return LN_OK;
}

static ln_status cut_end(cutter *c, ln_error *err) {
    bool writes = c->has_open && c->open.bytes > 0;
    c->has_open = false;
    return writes ? add_piece(c->out, c->open.at, c->open.bytes, err) : LN_OK;
}

/* Whether a part belongs to the open one, by whether they are matches. */
static bool joins(const cutter *c, bool match, bool was) {
    switch (c->behavior) {
    case SPLIT_CONTIGUOUS: return match == was;
    case SPLIT_PREVIOUS: return match && !was;
    case SPLIT_NEXT: return !match && was;
    default: return false;
    }
}

/* The next part of a text, [from, to): a match or what lies between two. */
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
    c->open = (text_piece){from, to - from};
    return LN_OK;
}

static cutter begin(text_pieces *out, text_behavior behavior, bool invert) {
    return (cutter){.out = out, .behavior = behavior, .invert = invert};
}

static ln_status split_regex(const text_regex *re, text_regex_work *w, const char *text, text_piece p, cutter *c, ln_error *err) {
    text_matches m = {0};
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

static bool char_matches(const text_pre_step *s, uint32_t cp) {
    switch (s->kind) {
    case PRE_DIGITS: return text_is_number(cp);
    case PRE_PUNCT: return text_is_punct(cp);
    case PRE_SPACE: return text_is_space(cp);
    default: return cp == s->cp;
    }
}

static ln_status split_chars(const text_pre_step *s, const char *text, text_piece p, cutter *c, ln_error *err) {
    size_t done = p.at, end = p.at + p.bytes;
    for (size_t at = p.at; at < end;) {
        uint32_t cp;
        size_t n = text_cp(text + at, &cp);
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

/* Runs of word characters and runs of what is neither word nor space. */
static ln_status split_words(const char *text, text_piece p, text_pieces *out, ln_error *err) {
    size_t from = p.at, end = p.at + p.bytes;
    int was = 0;
    for (size_t at = p.at; at < end;) {
        uint32_t cp;
        size_t n = text_cp(text + at, &cp);
        int kind = text_is_word(cp) ? 1 : text_is_space(cp) ? 0 : 2;
        if (kind != was) {
            if (was != 0) LN_TRY(add_piece(out, from, at - from, err));
            from = at;
            was = kind;
        }
        at += n;
    }
    return was != 0 ? add_piece(out, from, end - from, err) : LN_OK;
}

static ln_status split_length(size_t length, const char *text, text_piece p, text_pieces *out, ln_error *err) {
    size_t from = p.at, end = p.at + p.bytes, n_chars = 0;
    for (size_t at = p.at; at < end;) {
        uint32_t cp;
        at += text_cp(text + at, &cp);
        if (++n_chars < length && at < end) continue;
        LN_TRY(add_piece(out, from, at - from, err));
        from = at;
        n_chars = 0;
    }
    return LN_OK;
}

static ln_status split_step(const text_pre_step *s, text_regex_work *rw, const char *text, text_piece p, text_pieces *out, ln_error *err) {
    cutter c = begin(out, s->behavior, s->invert);
    switch (s->kind) {
    case PRE_SPLIT:
    case PRE_BYTES: return split_regex(&s->re, rw, text, p, &c, err);
    case PRE_WORDS: return split_words(text, p, out, err);
    case PRE_LENGTH: return split_length(s->length, text, p, out, err);
    default: return split_chars(s, text, p, &c, err);
    }
}

static void take_spare(text_pre_work *w) {
    text_pieces t = w->pieces;
    w->pieces = w->spare;
    w->spare = t;
}

static ln_status split_all(const text_pre_step *s, text_pre_work *w, text_regex_work *rw, ln_error *err) {
    w->spare.n = 0;
    for (size_t i = 0; i < w->pieces.n; i++) LN_TRY(split_step(s, rw, w->text, w->pieces.p[i], &w->spare, err));
    take_spare(w);
    return LN_OK;
}

/* The buffer that the current text does not lie in, emptied. */
static ln_str *other_buffer(text_pre_work *w) {
    ln_str *b = w->text && w->text == w->buf[0].data ? &w->buf[1] : &w->buf[0];
    b->len = 0;
    return b;
}

/* The pieces now lie in `b`; the first of them begins at 0 there, whatever it was before. */
static void use_buffer(text_pre_work *w, const ln_str *b) {
    if (w->pieces.n > 0 && w->pieces.p[0].at != 0) w->at_start = false;
    w->text = b->data;
    take_spare(w);
}

static ln_status metaspace(const text_pre_step *s, text_pre_work *w, ln_error *err) {
    ln_str *b = other_buffer(w);
    w->spare.n = 0;
    LN_TRY(text_room(b, 0, err));
    for (size_t i = 0; i < w->pieces.n; i++) {
        text_piece p = w->pieces.p[i];
        const char *t = w->text + p.at;
        size_t from = b->len;
        bool has = t[0] == ' ' || (p.bytes >= s->n_rep && memcmp(t, s->rep, s->n_rep) == 0);
        bool first = w->at_start && p.at == 0;
        if (!has && (s->prepend == PREPEND_ALWAYS || (s->prepend == PREPEND_FIRST && first))) LN_TRY(text_add(b, s->rep, s->n_rep, err));
        for (size_t k = 0; k < p.bytes;) {
            const char *blank = memchr(t + k, ' ', p.bytes - k);
            size_t n = blank ? (size_t)(blank - t) - k : p.bytes - k;
            LN_TRY(text_add(b, t + k, n, err));
            k += n;
            if (blank) {
                LN_TRY(text_add(b, s->rep, s->n_rep, err));
                k++;
            }
        }
        if (!s->split) {
            LN_TRY(add_piece(&w->spare, from, b->len - from, err));
            continue;
        }
        text_regex rep = {.literal = (char *)(uintptr_t)s->rep, .n_literal = s->n_rep};
        text_regex_work none = {0};
        cutter c = begin(&w->spare, SPLIT_NEXT, false);
        LN_TRY(split_regex(&rep, &none, b->data, (text_piece){from, b->len - from}, &c, err));
    }
    use_buffer(w, b);
    return LN_OK;
}

static ln_status prefix_spaces(text_pre_work *w, ln_error *err) {
    ln_str *b = other_buffer(w);
    w->spare.n = 0;
    LN_TRY(text_room(b, 0, err));
    for (size_t i = 0; i < w->pieces.n; i++) {
        text_piece p = w->pieces.p[i];
        size_t from = b->len;
        if (w->text[p.at] != ' ') LN_TRY(text_add(b, " ", 1, err));
        LN_TRY(text_add(b, w->text + p.at, p.bytes, err));
        LN_TRY(add_piece(&w->spare, from, b->len - from, err));
    }
    use_buffer(w, b);
    return LN_OK;
}

static ln_status map_bytes(text_pre_work *w, ln_error *err) {
    ln_str *b = other_buffer(w);
    w->spare.n = 0;
    LN_TRY(text_room(b, 0, err));
    for (size_t i = 0; i < w->pieces.n; i++) {
        text_piece p = w->pieces.p[i];
        size_t from = b->len;
        LN_TRY(text_room(b, p.bytes * 2, err));
        for (size_t k = 0; k < p.bytes; k++)
            text_grown(b, (size_t)ln_utf8_put(b->data + b->len, text_byte_cp[(unsigned char)w->text[p.at + k]]));
        LN_TRY(add_piece(&w->spare, from, b->len - from, err));
    }
    use_buffer(w, b);
    return LN_OK;
}

ln_status pre_run(const text_pre *p, text_pre_work *w, text_regex_work *rw, const char *text, size_t bytes, bool at_start, bool raw, ln_error *err) {
    w->pieces.n = 0;
    w->text = text;
    w->at_start = at_start;
    if (bytes > 0) LN_TRY(add_piece(&w->pieces, 0, bytes, err));
    for (size_t i = 0; i < p->n && w->pieces.n > 0; i++) {
        const text_pre_step *s = &p->steps[i];
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

void pre_work_close(text_pre_work *w) {
    ln_free(w->pieces.p);
    ln_free(w->spare.p);
    ln_str_free(&w->buf[0]);
    ln_str_free(&w->buf[1]);
    *w = (text_pre_work){0};
}
