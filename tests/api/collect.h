/* Shared by the tests of the public functions: models, checks of a status with its message, a text callback
 * that collects what it gets. */
#ifndef LN_TESTS_COLLECT_H
#define LN_TESTS_COLLECT_H

#include <string.h>

#define MODEL     LN_ROOT "/tests/golden/gemma3-text-bf16" /* window of 16 positions: old pages are freed */
#define NO_WINDOW LN_ROOT "/tests/golden/qwen3-sharded-bf16"
#define TINY      LN_ROOT "/models/tiny"

/* Whether a call returned `want`, with a message that has `word` (NULL: any). */
static inline void expect(ln_status st, ln_status want, const ln_error *e, const char *word, int line) {
    if (st != want || (st != LN_OK && word && !strstr(e->message, word)))
        fail_msg("line %d: status %d, expected %d with '%s': %s", line, st, want, word ? word : "",
                 e->message);
}
#define EXPECT(want, word, x)                   \
    do {                                        \
        ln_error err_ = {0};                    \
        ln_error *err = &err_;                  \
        (void)err;                              \
        ln_status st_ = (x);                    \
        expect(st_, want, err, word, __LINE__); \
    } while (0)

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
