/* The assistant mask: which tokens of a conversation the assistant wrote.
 *
 * Byte ranges of the rendered text come from the template's {% generation %} blocks, or from rendering
 * prefixes of the conversation. A byte offset is mapped to a token index by encoding the text before it: the
 * ids that agree with those of the whole text are before it, and of the ids after them those that end before
 * it, by their bytes. A token that crosses the beginning of a range belongs to it. One that crosses the end
 * belongs to a block, as in transformers (a token that overlaps a block), and not to a turn, after which the
 * next header begins. */
#include "chat_render.h"

#include <string.h>

typedef struct marking {
    const ln_model_template *t;
    const ln_tok *tok;
    const ln_conversation *talk;
    const jinja_text *text; /* the rendering of the whole conversation */
    const ln_ids *ids;
    size_t first; /* index of the conversation's first id in *ids */
    uint8_t *mask;
    ln_ids part;
} marking;

static ln_status bytes_of(const marking *m, int32_t id, size_t *bytes, ln_error *err) {
    ln_str s = {0};
    const ln_status st = ln_tok_bytes(m->tok, id, &s, err);
    *bytes = s.len;
    ln_str_free(&s);
    return st;
}

/* The number of ids of the whole text that end within its first `bytes` bytes; *crosses: the next one begins
 * there, too. Near its end the encoding of the beginning may have other ids than the whole text, for the same
 * bytes. */
static ln_status ids_before(marking *m, size_t bytes, size_t *n, bool *crosses, ln_error *err) {
    const size_t most = m->ids->n - m->first;
    const int32_t *whole = m->ids->data + m->first;
    size_t left = 0, one = 0;
    m->part.n = 0;
    *n = 0;
    LN_TRY(model_template_ids(m->t, m->tok, m->text, bytes, &m->part, err));
    while (*n < m->part.n && *n < most && m->part.data[*n] == whole[*n]) ++*n;
    for (size_t i = *n; i < m->part.n; i++) {
        LN_TRY(bytes_of(m, m->part.data[i], &one, err));
        left += one;
    }
    for (; *n < most && left > 0; ++*n) {
        LN_TRY(bytes_of(m, whole[*n], &one, err));
        if (one > left) break;
        left -= one;
    }
    *crosses = *n < most && left > 0;
    return LN_OK;
}

/* Marks the tokens of a range of bytes; `block`: with one that crosses its end. */
static ln_status mark(marking *m, size_t from, size_t to, bool block, ln_error *err) {
    size_t a, b;
    bool crosses;
    if (from >= to) return LN_OK;
    LN_TRY(ids_before(m, from, &a, &crosses, err));
    LN_TRY(ids_before(m, to, &b, &crosses, err));
    if (block && crosses) b++;
    if (a < b) memset(m->mask + a, 1, b - a);
    return LN_OK;
}

static bool begins(const jinja_text *whole, const jinja_text *part) {
    return part->bytes <= whole->bytes && memcmp(whole->text, part->text, part->bytes) == 0;
}

/* Whether the template refused a beginning of the conversation: those of many models need a first message. */
static bool refused(ln_status st) { return st == LN_EINVALID || st == LN_EUNSUPPORTED; }

/* Marks the turn of message i: from the end of the messages before it with the header of an answer, to the
 * end of the messages up to and including it. *found is false when these renderings are not prefixes of
 * the whole text, or when the template refuses one of them. */
static ln_status mark_turn(marking *m, size_t i, bool *found, ln_error *err) {
    ln_rendered before, with = {0};
    ln_error why;
    ln_status st = model_template_render(m->t, m->talk, i, true, &before, &why);
    if (st == LN_OK) st = model_template_render(m->t, m->talk, i + 1, false, &with, &why);
    *found = st == LN_OK && begins(m->text, &before.text) && begins(m->text, &with.text) &&
             before.text.bytes <= with.text.bytes;
    if (refused(st)) st = LN_OK;
    else if (st != LN_OK) *err = why;
    if (*found) st = mark(m, before.text.bytes, with.text.bytes, false, err);
    ln_rendered_free(&before);
    ln_rendered_free(&with);
    return st;
}

/* Marks the template's {% generation %} blocks, but those of turns whose weight is 0: a turn is a block then.
 */
static ln_status mark_blocks(marking *m, const ln_rendered *r, ln_error *err) {
    size_t n_turns = 0, n_weightless = 0;
    for (size_t i = 0; i < jinja_messages(r->run); i++) {
        bool counts;
        if (!jinja_is_assistant(r->run, i)) continue;
        LN_TRY(jinja_weight(r->run, i, &counts, err));
        if (counts && n_turns < r->text.n_generated)
            LN_TRY(mark(m, r->text.generated[n_turns].from, r->text.generated[n_turns].to, true, err));
        n_turns++, n_weightless += !counts;
    }
    if (n_turns == r->text.n_generated) return LN_OK;
    if (n_weightless > 0)
        return ln_fail(err, LN_EUNSUPPORTED,
                       "messages: a turn has weight 0, and the template marks %zu texts as generated for %zu "
                       "turns of the assistant; expected one for each",
                       r->text.n_generated, n_turns);
    for (size_t i = 0; i < r->text.n_generated; i++)
        LN_TRY(mark(m, r->text.generated[i].from, r->text.generated[i].to, true, err));
    return LN_OK;
}

static ln_status mark_all(marking *m, const ln_rendered *r, size_t *n_unmatched, ln_error *err) {
    if (r->text.n_generated > 0) return mark_blocks(m, r, err);
    for (size_t i = 0; i < jinja_messages(r->run); i++) {
        bool found = true, counts;
        if (!jinja_is_assistant(r->run, i)) continue;
        LN_TRY(jinja_weight(r->run, i, &counts, err));
        if (counts) LN_TRY(mark_turn(m, i, &found, err));
        *n_unmatched += !found;
    }
    return LN_OK;
}

ln_status ln_model_template_assistant_mask(const ln_model_template *t, const ln_tok *tok,
                                           const ln_conversation *talk, ln_ids *ids, ln_str *mask,
                                           size_t *n_unmatched, ln_error *err) {
    ln_rendered r;
    marking m = {.t = t, .tok = tok, .talk = talk, .text = &r.text, .ids = ids, .first = ids->n};
    *n_unmatched = 0;
    ln_status st = model_template_render(t, talk, SIZE_MAX, false, &r, err);
    if (st == LN_OK) st = model_template_ids(t, tok, &r.text, r.text.bytes, ids, err);
    size_t n = ids->n - m.first;
    m.mask = ln_zalloc(n + 1, 1);
    if (st == LN_OK && !m.mask) st = LN_OOM(err, "a mask");
    if (st == LN_OK) st = mark_all(&m, &r, n_unmatched, err);
    if (st == LN_OK) ln_str_add(mask, (const char *)m.mask, n);
    if (st == LN_OK && mask->failed) st = LN_OOM(err, "a mask");
    if (st != LN_OK) ids->n = m.first;
    ln_free(m.mask);
    ln_ids_free(&m.part);
    ln_rendered_free(&r);
    return st;
}
