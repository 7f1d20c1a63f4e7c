/* Stop texts: generated text is released only when it can no longer become part of one. */
#ifndef LN_STOP_TEXT_H
#define LN_STOP_TEXT_H

#include "../base/base.h"

typedef struct ln_stop {
    const char *const *texts;
    size_t n_texts;
    ln_str pending; /* held back: the beginning of a stop text */
    ln_str ready;   /* text that the last push or flush released; valid until the next */
    uint64_t shown; /* bytes released so far */
    bool hit;       /* a stop text is complete: texts[which] */
    size_t which;
} ln_stop;
/* `texts` [n], NUL-terminated, are borrowed until close. */
void ln_stop_open(ln_stop *s, const char *const *texts, size_t n);
/* Appends text; s->ready then has what can no longer become part of a stop text. When a stop text is
 * complete, sets s->hit and s->which, releases the text before it and discards the rest. */
ln_status ln_stop_push(ln_stop *s, const char *text, size_t bytes, ln_error *err);
/* Ends the text: what is held back is released. */
ln_status ln_stop_flush(ln_stop *s, ln_error *err);
void ln_stop_close(ln_stop *s);

#endif
