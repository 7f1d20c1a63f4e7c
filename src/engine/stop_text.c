/* Stop texts: generated text is released only when it can no longer become part of a stop text.
 *
 * After each piece the earliest complete stop text ends the generation; otherwise the longest tail that is a
 * prefix of a stop text is held back. There are at most 16 stop texts of the caller and those of
 * generation_config.json, of at most 1,024 bytes each, so that the quadratic search is short.
 *
 * Tokens that the text leaves out are marks: `pending` has their text, which is never released. A stop text
 * that contains such tokens (a mixed one) is compared with all of `pending`, any other with the text without
 * the marks. A stop text that is such a token alone does not come here: answer_text.c compares its id. */
#include "stop_text.h"

#include <string.h>

void ln_stop_open(ln_stop *s, const char *const *texts, const bool *mixed, size_t n) {
    memset(s, 0, sizeof *s);
    s->texts = texts;
    s->mixed = mixed;
    s->n_texts = n;
    s->token = SIZE_MAX;
}

void ln_stop_close(ln_stop *s) {
    ln_str_free(&s->pending);
    ln_str_free(&s->ready);
    ln_free(s->marks);
    s->marks = NULL;
}

/* The mark that the byte `at` of pending belongs to; NULL: it is text. */
static const ln_stop_mark *mark_at(const ln_stop *s, size_t at) {
    for (size_t i = 0; i < s->n_marks; i++)
        if (at >= s->marks[i].at && at < s->marks[i].at + s->marks[i].bytes) return &s->marks[i];
    return NULL;
}

/* Removes the first bytes of pending, and releases those that are text. */
static ln_status emit(ln_stop *s, size_t bytes, ln_error *err) {
    size_t n = 0, from = 0;
    s->ready.len = 0;
    for (size_t i = 0; i < s->n_marks; i++) {
        const ln_stop_mark m = s->marks[i];
        if (m.at >= bytes) {
            s->marks[n++] = (ln_stop_mark){m.at - bytes, m.bytes, m.token};
            continue;
        }
        ln_str_add(&s->ready, s->pending.data + from, m.at - from);
        from = m.at + m.bytes;
    }
    s->n_marks = n;
    if (bytes > from) ln_str_add(&s->ready, s->pending.data + from, bytes - from);
    if (s->ready.failed) return LN_OOM(err, "generated text");
    memmove(s->pending.data, s->pending.data + bytes, s->pending.len - bytes);
    s->pending.len -= bytes;
    s->shown += s->ready.len;
    return LN_OK;
}

/* How many bytes of stop text i pending has from `at` on: all of them, or those up to the end of pending; 0
 * if they differ before. */
static size_t common(const ln_stop *s, size_t i, size_t at) {
    const char *text = s->texts[i];
    const size_t n = strlen(text);
    size_t k = 0;
    const bool mixed = s->mixed && s->mixed[i];
    const ln_stop_mark *m = mark_at(s, at);
    if (m && (!mixed || m->at != at)) return 0; /* a match does not begin inside a mark */
    while (at < s->pending.len && k < n) {
        m = mixed ? NULL : mark_at(s, at);
        if (m) {
            at = m->at + m->bytes;
            continue;
        }
        if (s->pending.data[at++] != text[k++]) return 0;
    }
    return k;
}

/* Returns where the earliest complete stop text begins, or the length of the pending text. */
static size_t find_stop(ln_stop *s, bool *found) {
    for (size_t at = 0; at < s->pending.len; at++)
        for (size_t i = 0; i < s->n_texts; i++) {
            const size_t n = strlen(s->texts[i]);
            if (n == 0 || common(s, i, at) < n) continue;
            const ln_stop_mark *m = mark_at(s, at);
            s->token = m ? m->token : SIZE_MAX;
            s->which = i;
            *found = true;
            return at;
        }
    *found = false;
    return s->pending.len;
}

/* Returns where the longest tail that is a proper prefix of a stop text begins, or the length. */
static size_t find_tail(const ln_stop *s) {
    for (size_t at = 0; at < s->pending.len; at++)
        for (size_t i = 0; i < s->n_texts; i++)
            if (common(s, i, at) > 0) return at;
    return s->pending.len;
}

static ln_status search(ln_stop *s, ln_error *err) {
    if (s->pending.failed) return LN_OOM(err, "generated text");
    const size_t at = find_stop(s, &s->hit);
    LN_TRY(emit(s, s->hit ? at : find_tail(s), err));
    if (s->hit) s->pending.len = s->n_marks = 0;
    return LN_OK;
}

ln_status ln_stop_push(ln_stop *s, const char *text, size_t bytes, ln_error *err) {
    s->ready.len = 0;
    s->taken += bytes;
    if (s->hit || bytes == 0) return LN_OK;
    ln_str_add(&s->pending, text, bytes);
    return search(s, err);
}

ln_status ln_stop_push_mark(ln_stop *s, const char *text, size_t bytes, size_t token, ln_error *err) {
    void *p = s->marks;
    s->ready.len = 0;
    if (s->hit || bytes == 0) return LN_OK;
    LN_TRY(ln_grow(&p, &s->cap_marks, s->n_marks + 1, sizeof *s->marks, err));
    s->marks = p;
    s->marks[s->n_marks++] = (ln_stop_mark){s->pending.len, bytes, token};
    ln_str_add(&s->pending, text, bytes);
    return search(s, err);
}

ln_status ln_stop_flush(ln_stop *s, ln_error *err) {
    s->ready.len = 0;
    if (s->hit || s->pending.len == 0) return LN_OK;
    return emit(s, s->pending.len, err);
}
