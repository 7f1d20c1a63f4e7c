/* Stop texts: generated text is released only when it can no longer become part of a stop text.
 *
 * After each piece the earliest complete stop text ends the generation; otherwise the longest tail that is a
 * prefix of a stop text is held back. Stop texts that are special tokens never occur in the text:
 * answer_text.c compares their ids. There are at most 16 stop texts of the caller and those of
 * generation_config.json, of at most 1,024 bytes each, so that the quadratic search is short. */
#include "stop_text.h"

#include <string.h>

void ln_stop_open(ln_stop *s, const char *const *texts, size_t n) {
    memset(s, 0, sizeof *s);
    s->texts = texts;
    s->n_texts = n;
}

void ln_stop_close(ln_stop *s) {
    ln_str_free(&s->pending);
    ln_str_free(&s->ready);
}

static ln_status emit(ln_stop *s, size_t bytes, ln_error *err) {
    s->ready.len = 0;
    ln_str_add(&s->ready, s->pending.data, bytes);
    if (s->ready.failed) return LN_OOM(err, "generated text");
    memmove(s->pending.data, s->pending.data + bytes, s->pending.len - bytes);
    s->pending.len -= bytes;
    s->shown += bytes;
    return LN_OK;
}

/* Returns where the earliest complete stop text begins, or the length of the pending text. */
static size_t find_stop(ln_stop *s, bool *found) {
    for (size_t at = 0; at < s->pending.len; at++)
        for (size_t i = 0; i < s->n_texts; i++) {
            size_t n = strlen(s->texts[i]);
            if (n > 0 && n <= s->pending.len - at && memcmp(s->pending.data + at, s->texts[i], n) == 0) {
                *found = true;
                s->which = i;
                return at;
            }
        }
    *found = false;
    return s->pending.len;
}

/* Returns where the longest tail that is a proper prefix of a stop text begins, or the length. */
static size_t find_tail(const ln_stop *s) {
    for (size_t at = 0; at < s->pending.len; at++)
        for (size_t i = 0; i < s->n_texts; i++) {
            size_t left = s->pending.len - at;
            if (left < strlen(s->texts[i]) && memcmp(s->pending.data + at, s->texts[i], left) == 0) return at;
        }
    return s->pending.len;
}

ln_status ln_stop_push(ln_stop *s, const char *text, size_t bytes, ln_error *err) {
    s->ready.len = 0;
    if (s->hit || bytes == 0) return LN_OK;
    ln_str_add(&s->pending, text, bytes);
    if (s->pending.failed) return LN_OOM(err, "generated text");
    size_t at = find_stop(s, &s->hit);
    LN_TRY(emit(s, s->hit ? at : find_tail(s), err));
    if (s->hit) s->pending.len = 0;
    return LN_OK;
}

ln_status ln_stop_flush(ln_stop *s, ln_error *err) {
    s->ready.len = 0;
    if (s->hit || s->pending.len == 0) return LN_OK;
    return emit(s, s->pending.len, err);
}
