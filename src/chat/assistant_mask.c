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
    char *missed; /* a byte a message: 1: a turn that counts and is not located yet; NULL: not asked for */
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

static bool is_data(const jinja_text *t, size_t at) { return t->origin ? t->origin[at] != 0 : t->all_data; }

/* Returns the end of a header of an answer, `tail`, that the template writes in a turn from byte `from` on or
 * after a text of its own, such as a default system message; 0: nowhere. */
static size_t header_after(const char *tail, size_t n, const jinja_text *turn, size_t from) {
    for (size_t at = from; n > 0 && at + n <= turn->bytes && !is_data(turn, at); at++)
        if (memcmp(turn->text + at, tail, n) == 0) return at + n;
    return 0;
}

/* Returns where a turn and the header of an answer part, both after the first `least` bytes; 0: at once. What
 * a message begins with may happen to be what the header goes on with, so that bytes of the message do not
 * count, except its role. */
static size_t parts_at(size_t least, const jinja_text *header, const jinja_text *turn) {
    static const char role[] = "assistant";
    const size_t most = LN_MIN(header->bytes, turn->bytes), n_role = sizeof role - 1;
    size_t end = least;
    while (end < most && header->text[end] == turn->text[end]) end++;
    size_t at = end;
    while (at > least && is_data(turn, at - 1)) at--;
    if (end - at == n_role && memcmp(turn->text + at, role, n_role) == 0) at = end;
    /* <think> and <tool_call> part before their common beginning. */
    for (size_t mark = at; mark > least; mark--)
        if (strchr("\n>]", turn->text[mark - 1])) return mark;
    while (at > least && at < turn->bytes && ((unsigned char)turn->text[at] & 0xc0) == 0x80) at--;
    return at > least ? at : 0;
}

/* The renderings that locate a turn: of the messages before it, with the header of an answer, and without;
 * of those up to and including it. */
typedef struct turn_texts {
    ln_rendered header, before, with;
    bool parted; /* the turn lacks the end of the header */
} turn_texts;

/* Finds where the first message begins for a template that needs one: the header is what follows that
 * message. */
static ln_status first_begins_at(const marking *m, turn_texts *r, size_t *from, ln_error *why) {
    LN_TRY(model_template_render(m->t, m->talk, 1, false, &r->with, why));
    LN_TRY(model_template_render(m->t, m->talk, 1, true, &r->header, why));
    const size_t n = r->with.text.bytes;
    if (begins(m->text, &r->with.text) && begins(&r->header.text, &r->with.text))
        *from = header_after(r->header.text.text + n, r->header.text.bytes - n, &r->with.text, 0);
    return LN_OK;
}

/* Finds the byte at which the turn begins; 0: nowhere. */
static ln_status begins_at(const marking *m, size_t i, turn_texts *r, size_t *from, ln_error *why) {
    *from = 0;
    const ln_status st = model_template_render(m->t, m->talk, i, true, &r->header, why);
    if (i == 0 && refused(st)) {
        ln_rendered_free(&r->header);
        return first_begins_at(m, r, from, why);
    }
    LN_TRY(st);
    LN_TRY(model_template_render(m->t, m->talk, i + 1, false, &r->with, why));
    if (!begins(m->text, &r->with.text)) return LN_OK;
    if (begins(&r->with.text, &r->header.text)) {
        *from = r->header.text.bytes;
        return LN_OK;
    }
    LN_TRY(model_template_render(m->t, m->talk, i, false, &r->before, why));
    const jinja_text *before = &r->before.text, *header = &r->header.text, *with = &r->with.text;
    const size_t n = before->bytes;
    if (!begins(header, before) || !begins(with, before)) return LN_OK;
    *from = header_after(header->text + n, header->bytes - n, with, n);
    if (*from > 0) return LN_OK;
    *from = parts_at(n, header, with);
    r->parted = *from > 0;
    return LN_OK;
}

/* Marks the turn of message i: from the end of the header of an answer, or where the turn and that header
 * part, to the end of the messages up to and including it. It is unmatched when that is no beginning of the
 * whole text, or when the template refuses a rendering. */
static ln_status mark_turn(marking *m, size_t i, ln_mask_report *report, ln_error *err) {
    turn_texts r = {0};
    ln_error why;
    size_t from = 0;
    ln_status st = begins_at(m, i, &r, &from, &why);
    if (refused(st)) st = LN_OK, from = 0;
    else if (st != LN_OK) *err = why;
    report->n_unmatched += st == LN_OK && from == 0;
    report->n_parted += from > 0 && r.parted;
    if (m->missed) m->missed[i] = st == LN_OK && from == 0;
    if (st == LN_OK && from > 0) st = mark(m, from, r.with.text.bytes, false, err);
    ln_rendered_free(&r.header);
    ln_rendered_free(&r.before);
    ln_rendered_free(&r.with);
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

/* Marks the turns that count; of the first n messages those that were missed before, unless n is SIZE_MAX. */
static ln_status mark_all(marking *m, const ln_rendered *r, size_t n, ln_mask_report *report, ln_error *err) {
    if (n == SIZE_MAX && r->text.n_generated > 0) return mark_blocks(m, r, err);
    for (size_t i = 0; i < LN_MIN(n, jinja_messages(r->run)); i++) {
        bool counts;
        if (n != SIZE_MAX && !m->missed[i]) continue;
        if (!jinja_is_assistant(r->run, i)) continue;
        LN_TRY(jinja_weight(r->run, i, &counts, err));
        if (counts) LN_TRY(mark_turn(m, i, report, err));
    }
    return LN_OK;
}

/* Encodes the first n messages (SIZE_MAX: all of them) and their mask. */
static ln_status encode(marking *m, size_t n, ln_str *missed, ln_ids *ids, ln_str *mask,
                        ln_mask_report *report, ln_error *err) {
    ln_rendered r;
    m->text = &r.text;
    *report = (ln_mask_report){0};
    ln_status st = model_template_render(m->t, m->talk, n, false, &r, err);
    if (st == LN_OK) st = model_template_ids(m->t, m->tok, &r.text, r.text.bytes, ids, err);
    const size_t n_ids = ids->n - m->first;
    m->mask = ln_zalloc(n_ids + 1, 1);
    if (st == LN_OK && !m->mask) st = LN_OOM(err, "a mask");
    if (st == LN_OK && missed && n == SIZE_MAX) {
        for (size_t i = jinja_messages(r.run); i > 0; i--) ln_str_add(missed, "", 1);
        if (missed->failed) st = LN_OOM(err, "a mask");
    }
    m->missed = missed ? missed->data : NULL;
    if (st == LN_OK) st = mark_all(m, &r, n, report, err);
    if (st == LN_OK) ln_str_add(mask, (const char *)m->mask, n_ids);
    if (st == LN_OK && mask->failed) st = LN_OOM(err, "a mask");
    if (st != LN_OK) ids->n = m->first;
    ln_free(m->mask);
    ln_ids_free(&m->part);
    ln_rendered_free(&r);
    return st;
}

ln_status ln_model_template_assistant_mask(const ln_model_template *t, const ln_tok *tok,
                                           const ln_conversation *talk, ln_ids *ids, ln_str *mask,
                                           ln_str *missed, ln_mask_report *report, ln_error *err) {
    marking m = {.t = t, .tok = tok, .talk = talk, .ids = ids, .first = ids->n};
    return encode(&m, SIZE_MAX, missed, ids, mask, report, err);
}

ln_status ln_model_template_missed_turns(const ln_model_template *t, const ln_tok *tok,
                                         const ln_conversation *talk, ln_str *missed, ln_ids *ids,
                                         ln_str *mask, ln_mask_report *report, ln_error *err) {
    marking m = {.t = t, .tok = tok, .talk = talk, .ids = ids, .first = ids->n};
    size_t n = missed->len;
    while (n > 0 && !missed->data[n - 1]) n--;
    *report = (ln_mask_report){0};
    if (n == 0) return LN_OK;
    ln_error why = {0};
    const ln_status st = encode(&m, n, missed, ids, mask, report, &why);
    if (st != LN_OK && !refused(st)) return ln_fail(err, st, "%s", why.message);
    missed->len = n - 1;
    report->n_unmatched = missed->data[n - 1] != 0;
    return LN_OK;
}
