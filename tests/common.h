/* Helpers that the tests of several modules share: opening models, checking a status, random values.
 * Included by tests only. */
#ifndef LN_TESTS_COMMON_H
#define LN_TESTS_COMMON_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "engine/engine.h"
#include "fewer.h"

#define OK(x)                                                               \
    do {                                                                    \
        ln_error e_ = {0};                                                  \
        ln_error *err = &e_;                                                \
        (void)err;                                                          \
        ln_status s_ = (x);                                                 \
        if (s_ != LN_OK) fail_msg("%s: status %d: %s", #x, s_, e_.message); \
    } while (0)
/* Asserts that the call x fails with this status and that its message contains `word`. */
#define FAILS(status, word, x)                                                                           \
    do {                                                                                                 \
        ln_error e_ = {0};                                                                               \
        ln_error *err = &e_;                                                                             \
        ln_status s_ = (x);                                                                              \
        if (s_ != (status)) fail_msg("%s: status %d, expected %d: %s", #x, s_, status, e_.message);      \
        if (!strstr(e_.message, word)) fail_msg("%s: the message lacks '%s': %s", #x, word, e_.message); \
    } while (0)

static inline uint32_t test_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}
static inline float test_normal(uint64_t *state) {
    float s = 0;
    for (int i = 0; i < 12; i++) s += (float)test_random(state) / 2147483648.0f;
    return s - 6.0f;
}

/* Resolved run options for a test engine. */
static inline ln_run_options test_options(const ln_package *m, ln_device device, int threads, int chunk,
                                          int seqs) {
    ln_options o = {.n_chunk = chunk,
                    .n_parallel = seqs,
                    .n_threads = threads,
                    .device = device,
                    .n_ctx = LN_MIN(m->spec.n_ctx, 512)};
    ln_run_options r;
    OK(ln_eng_options(m, &o, &r, err));
    return r;
}
#endif
