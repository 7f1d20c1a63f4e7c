/* Stop texts: generated text is released only when it can no longer become part of one. */
#ifndef LN_STOP_TEXT_H
#define LN_STOP_TEXT_H

#include "../base/base.h"

/* A token that the text leaves out, while it may still be part of a stop text. */
typedef struct ln_stop_mark {
    size_t at, bytes; /* its text in `pending` */
    size_t token;     /* its number */
} ln_stop_mark;

typedef struct ln_stop {
    const char *const *texts;
    const bool *mixed; /* [n_texts] whether a text contains tokens that are left out; NULL: none does */
    size_t n_texts;
    ln_str pending;      /* held back: the beginning of a stop text, with the texts of the marks in it */
    ln_stop_mark *marks; /* [n_marks] in `pending`, in their order */
    size_t n_marks, cap_marks;
    ln_str ready;   /* text that the last push or flush released; valid until the next */
    uint64_t taken; /* bytes of text pushed so far */
    uint64_t shown; /* bytes released so far */
    bool hit;       /* a stop text is complete: texts[which] */
    size_t which;
    size_t token; /* the number of the token with which texts[which] begins, if that is left out; SIZE_MAX */
} ln_stop;
/* `texts` and `mixed` [n], the texts NUL-terminated, are borrowed until close. */
void ln_stop_open(ln_stop *s, const char *const *texts, const bool *mixed, size_t n);
/* Appends text; s->ready then has what can no longer become part of a stop text. When a stop text is
 * complete, sets s->hit and s->which, releases the text before it and discards the rest. */
ln_status ln_stop_push(ln_stop *s, const char *text, size_t bytes, ln_error *err);
/* Appends the text of a token that the text leaves out: only mixed stop texts see it. */
ln_status ln_stop_push_mark(ln_stop *s, const char *text, size_t bytes, size_t token, ln_error *err);
/* Ends the text: what is held back is released. */
ln_status ln_stop_flush(ln_stop *s, ln_error *err);
void ln_stop_close(ln_stop *s);

#endif
