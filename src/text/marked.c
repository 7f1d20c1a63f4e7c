/* Which tokens the assistant wrote.
 *
 * Two ways lead to ranges of bytes: the template's own {% generation %} marks, or renderings of prefixes of the conversation. One way leads
 * from bytes to tokens: the ids of the text up to a place, as far as they agree with the ids of the whole. A token that lies across the
 * place belongs to what follows it. */
#include "marked.h"

#include <string.h>

typedef struct marking {
    const ln_tmpl *t;
    const ln_tok *tok;
    const ln_talk *talk;
    const jinja_text *text; /* of the whole conversation */
    const ln_ids *ids;
    size_t first;           /* where its ids begin in *ids */
    uint8_t *mask;
    ln_ids part;
} marking;

/* How many ids of the whole come from its first `bytes`. */
static ln_status ids_before(marking *m, size_t bytes, size_t *n, ln_error *err) {
    size_t most = m->ids->n - m->first;
    m->part.n = 0;
    *n = 0;
    LN_TRY(tmpl_ids(m->t, m->tok, m->text, bytes, &m->part, err));
    while (*n < m->part.n && *n < most && m->part.data[*n] == m->ids->data[m->first + *n]) ++*n;
    return LN_OK;
}

static ln_status mark(marking *m, size_t from, size_t to, ln_error *err) {
    size_t a, b;
    LN_TRY(ids_before(m, from, &a, err));
    LN_TRY(ids_before(m, to, &b, err));
    if (a < b) memset(m->mask + a, 1, b - a);
    return LN_OK;
}

static bool begins(const jinja_text *whole, const jinja_text *part) {
    return part->bytes <= whole->bytes && memcmp(whole->text, part->text, part->bytes) == 0;
}

/* The turn of message i: from the conversation before it, with the header of an answer, to the conversation with it. */
static ln_status mark_turn(marking *m, size_t i, bool *found, ln_error *err) {
    ln_rendered before, with = {0};
    ln_status st = tmpl_render(m->t, m->talk, i, true, &before, err);
    if (st == LN_OK) st = tmpl_render(m->t, m->talk, i + 1, false, &with, err);
    *found = st == LN_OK && begins(m->text, &before.text) && begins(m->text, &with.text) && before.text.bytes <= with.text.bytes;
    if (*found) st = mark(m, before.text.bytes, with.text.bytes, err);
    ln_rendered_free(&before);
    ln_rendered_free(&with);
    return st;
}

static ln_status mark_all(marking *m, const ln_rendered *r, size_t *n_left, ln_error *err) {
    for (size_t i = 0; i < r->text.n_generated; i++) LN_TRY(mark(m, r->text.generated[i].from, r->text.generated[i].to, err));
    if (r->text.n_generated > 0) return LN_OK;
    for (size_t i = 0; i < jinja_messages(r->run); i++) {
        bool found = true;
        if (jinja_is_assistant(r->run, i)) LN_TRY(mark_turn(m, i, &found, err));
        *n_left += !found;
    }
    return LN_OK;
}

ln_status ln_tmpl_marked(const ln_tmpl *t, const ln_tok *tok, const ln_talk *talk, ln_ids *ids, ln_str *mask, size_t *n_left, ln_error *err) {
    ln_rendered r;
    marking m = {.t = t, .tok = tok, .talk = talk, .text = &r.text, .ids = ids, .first = ids->n};
    *n_left = 0;
    ln_status st = tmpl_render(t, talk, SIZE_MAX, false, &r, err);
    if (st == LN_OK) st = tmpl_ids(t, tok, &r.text, r.text.bytes, ids, err);
    size_t n = ids->n - m.first;
    m.mask = ln_zalloc(n + 1, 1);
    if (st == LN_OK && !m.mask) st = LN_OOM(err, "a mask");
    if (st == LN_OK) st = mark_all(&m, &r, n_left, err);
    if (st == LN_OK) ln_str_add(mask, (const char *)m.mask, n);
    if (st == LN_OK && mask->failed) st = LN_OOM(err, "a mask");
    if (st != LN_OK) ids->n = m.first;
    ln_free(m.mask);
    ln_ids_free(&m.part);
    ln_rendered_free(&r);
    return st;
}
