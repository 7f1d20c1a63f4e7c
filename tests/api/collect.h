/* A text callback that collects what it gets, shared by the tests of the public functions. */
#ifndef LN_TESTS_COLLECT_H
#define LN_TESTS_COLLECT_H

#include <string.h>

typedef struct collected {
    char text[4096];
    size_t n;
    int calls, stop_after; /* stop_after: the call that asks to stop; -1: none */
} collected;
static inline ln_status collect(void *user, const char *text, size_t bytes, ln_error *err) {
    collected *c = user;
    assert_true(c->n + bytes < sizeof c->text);
    memcpy(c->text + c->n, text, bytes);
    c->n += bytes;
    (void)err;
    return ++c->calls != c->stop_after ? LN_OK : LN_ECANCELLED;
}

#endif
