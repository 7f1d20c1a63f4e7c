/* Runs the pre-tokenizers: they split a text into pieces, each step splitting the pieces of the step before.
 *
 * A piece passes through all steps before the next one is cut, so that no list of pieces is kept: the memory
 * does not grow with their number. Splitting steps pass on parts of the text; Metaspace and ByteLevel also
 * change the text and pass on a buffer of their own, which holds one piece. Matches and the parts between
 * them are passed to a state machine (`cutter`) that implements the five split behaviours. Empty pieces are
 * dropped.
 *
 * A step has three stages: the prefix and the alphabet of ByteLevel (or Metaspace) surround the split.
 *
 * is_first: Metaspace's prepend scheme "first" depends on whether a piece begins where the input began. */
#include "tokenizer_internal.h"

enum { STAGE_PREFIX, STAGE_SPLIT, STAGE_MAP, N_STAGES };

/* What is passed on: a part of the input or of a stage's buffer. */
typedef struct piece {
    const char *text;
    size_t bytes;
    bool is_first; /* it begins where the input began */
} piece;

/* One call of pre_run. */
typedef struct pre_call {
    const tok_pre *p;
    tok_pre_work *w;
    tok_regex_work *regex;
    bool raw;
    pre_piece_fn *fn;
    void *user;
} pre_call;

/* Passes a piece, which is not empty, to a stage and those after it. */
static ln_status pass(const pre_call *c, size_t stage, piece in, ln_error *err);

/* The state machine that turns the parts of one piece (matches and the text between them) into pieces. The
 * last piece stays open until the next part, because the behaviour may merge them. A part may be empty: an
 * empty match separates its neighbours, or is merged with the next part. Empty pieces are not passed on. */
typedef struct cutter {
    const pre_call *call;
    size_t next; /* the stage that takes the pieces */
    piece in;
    tok_behavior behavior;
    bool invert, was_match;
    bool has_open;
    size_t from, to; /* the open piece */
} cutter;

static ln_status emit(const cutter *c, size_t from, size_t to, ln_error *err) {
    if (from == to) return LN_OK;
    return pass(c->call, c->next, (piece){c->in.text + from, to - from, c->in.is_first && from == 0}, err);
}

/* Passes on the open piece. */
static ln_status cut_end(cutter *c, ln_error *err) {
    if (!c->has_open) return LN_OK;
    c->has_open = false;
    return emit(c, c->from, c->to, err);
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

/* Handles the next part of the text, bytes [from, to): a match, or the text before or between matches. */
static ln_status cut(cutter *c, size_t from, size_t to, bool match, ln_error *err) {
    bool was = c->was_match;
    if (c->invert) match = !match;
    c->was_match = match;
    if (c->has_open && joins(c, match, was)) {
        c->to += to - from;
        return LN_OK;
    }
    LN_TRY(cut_end(c, err));
    if (match && c->behavior == SPLIT_REMOVED) return LN_OK;
    c->has_open = true;
    c->from = from;
    c->to = to;
    return LN_OK;
}

static ln_status split_regex(const tok_regex *re, cutter *c, ln_error *err) {
    tok_matches m = {0};
    size_t done = 0;
    for (bool found;;) {
        LN_TRY(regex_next(re, c->call->regex, c->in.text, c->in.bytes, &m, &found, err));
        if (!found) break;
        if (m.start > done) LN_TRY(cut(c, done, m.start, false, err));
        LN_TRY(cut(c, m.start, m.end, true, err));
        done = m.end;
    }
    if (done < c->in.bytes) LN_TRY(cut(c, done, c->in.bytes, false, err));
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

static ln_status split_chars(const tok_pre_step *s, cutter *c, ln_error *err) {
    size_t done = 0;
    for (size_t at = 0; at < c->in.bytes;) {
        uint32_t cp;
        size_t n = utf8_next(c->in.text + at, &cp);
        if (char_matches(s, cp)) {
            if (at > done) LN_TRY(cut(c, done, at, false, err));
            LN_TRY(cut(c, at, at + n, true, err));
            done = at + n;
        }
        at += n;
    }
    if (done < c->in.bytes) LN_TRY(cut(c, done, c->in.bytes, false, err));
    return cut_end(c, err);
}

/* Splits into runs of word characters and runs of characters that are neither word characters nor spaces. */
static ln_status split_words(const cutter *c, ln_error *err) {
    size_t from = 0;
    int was = 0;
    for (size_t at = 0; at < c->in.bytes;) {
        uint32_t cp;
        size_t n = utf8_next(c->in.text + at, &cp);
        int kind = unicode_is_word(cp) ? 1 : unicode_is_space(cp) ? 0 : 2;
        if (kind != was) {
            if (was != 0) LN_TRY(emit(c, from, at, err));
            from = at;
            was = kind;
        }
        at += n;
    }
    return was != 0 ? emit(c, from, c->in.bytes, err) : LN_OK;
}

static ln_status split_length(size_t length, const cutter *c, ln_error *err) {
    size_t from = 0, n_chars = 0;
    for (size_t at = 0; at < c->in.bytes;) {
        uint32_t cp;
        at += utf8_next(c->in.text + at, &cp);
        if (++n_chars < length && at < c->in.bytes) continue;
        LN_TRY(emit(c, from, at, err));
        from = at;
        n_chars = 0;
    }
    return LN_OK;
}

static ln_status split(const tok_pre_step *s, cutter *c, ln_error *err) {
    switch (s->kind) {
    case PRE_SPLIT:
    case PRE_BYTES: return split_regex(&s->re, c, err);
    case PRE_WORDS: return split_words(c, err);
    case PRE_LENGTH: return split_length(s->length, c, err);
    default: return split_chars(s, c, err);
    }
}

/* The buffer of a stage, emptied: what it held has passed all stages after it. */
static ln_status buffer_of(const pre_call *c, size_t stage, ln_str **out, ln_error *err) {
    tok_pre_work *w = c->w;
    if (!w->buf) w->buf = ln_zalloc(c->p->n * N_STAGES, sizeof *w->buf);
    if (!w->buf) return LN_OOM(err, "a text");
    w->n_buf = c->p->n * N_STAGES;
    *out = &w->buf[stage];
    (*out)->len = 0;
    return utf8_reserve(*out, 0, err);
}

static ln_status metaspace(const tok_pre_step *s, const pre_call *c, size_t stage, piece in, ln_error *err) {
    ln_str *b;
    LN_TRY(buffer_of(c, stage, &b, err));
    bool has = in.text[0] == ' ' || (in.bytes >= s->n_rep && memcmp(in.text, s->rep, s->n_rep) == 0);
    if (!has && (s->prepend == PREPEND_ALWAYS || (s->prepend == PREPEND_FIRST && in.is_first)))
        LN_TRY(utf8_append(b, s->rep, s->n_rep, err));
    for (size_t k = 0; k < in.bytes;) {
        const char *blank = memchr(in.text + k, ' ', in.bytes - k);
        size_t n = blank ? (size_t)(blank - in.text) - k : in.bytes - k;
        LN_TRY(utf8_append(b, in.text + k, n, err));
        k += n;
        if (blank) {
            LN_TRY(utf8_append(b, s->rep, s->n_rep, err));
            k++;
        }
    }
    const piece out = {b->data, b->len, in.is_first};
    const size_t next = stage - stage % N_STAGES + N_STAGES;
    if (!s->split) return pass(c, next, out, err);
    tok_regex rep = {.literal = (char *)(uintptr_t)s->rep, .n_literal = s->n_rep};
    cutter cut_at = {.call = c, .next = next, .in = out, .behavior = SPLIT_NEXT};
    return split_regex(&rep, &cut_at, err);
}

static ln_status prefix_space(const pre_call *c, size_t stage, piece *in, ln_error *err) {
    ln_str *b;
    if (in->text[0] == ' ') return LN_OK;
    LN_TRY(buffer_of(c, stage, &b, err));
    LN_TRY(utf8_append(b, " ", 1, err));
    LN_TRY(utf8_append(b, in->text, in->bytes, err));
    in->text = b->data;
    in->bytes = b->len;
    return LN_OK;
}

static ln_status map_bytes(const pre_call *c, size_t stage, piece *in, ln_error *err) {
    ln_str *b;
    LN_TRY(buffer_of(c, stage, &b, err));
    LN_TRY(utf8_reserve(b, in->bytes * 2, err));
    for (size_t k = 0; k < in->bytes; k++)
        utf8_grown(b, (size_t)ln_utf8_put(b->data + b->len, byte_level_cp[(unsigned char)in->text[k]]));
    in->text = b->data;
    in->bytes = b->len;
    return LN_OK;
}

static ln_status pass(const pre_call *c, size_t stage, piece in, ln_error *err) {
    for (; stage < c->p->n * N_STAGES; stage++) {
        const size_t i = stage / N_STAGES;
        const tok_pre_step *s = &c->p->steps[i];
        const bool is_bytes = s->kind == PRE_BYTES;
        switch (stage % N_STAGES) {
        case STAGE_PREFIX:
            if (s->kind == PRE_METASPACE) return metaspace(s, c, stage, in, err);
            if (is_bytes && s->prefix_space) LN_TRY(prefix_space(c, stage, &in, err));
            break;
        case STAGE_SPLIT:
            if (!is_bytes || s->use_regex) {
                cutter cut_at = {
                    .call = c, .next = stage + 1, .in = in, .behavior = s->behavior, .invert = s->invert};
                return split(s, &cut_at, err);
            }
            break;
        default:
            if (is_bytes && !(c->raw && i + 1 == c->p->n)) LN_TRY(map_bytes(c, stage, &in, err));
        }
    }
    return c->fn(c->user, in.text, in.bytes, err);
}

ln_status pre_run(const tok_pre *p, tok_pre_work *w, tok_regex_work *rw, const char *text, size_t bytes,
                  bool is_first, bool raw, pre_piece_fn *fn, void *user, ln_error *err) {
    const pre_call c = {p, w, rw, raw, fn, user};
    return bytes > 0 ? pass(&c, 0, (piece){text, bytes, is_first}, err) : LN_OK;
}

void pre_work_close(tok_pre_work *w) {
    for (size_t i = 0; i < w->n_buf; i++) ln_str_free(&w->buf[i]);
    ln_free(w->buf);
    *w = (tok_pre_work){0};
}
