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
#include "engine/generate.h"
#include "engine/scheduler.h"
#include "engine/score.h"
#include "fewer.h"
#include "test_device.h"

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

/* Whether a log-probability of a generated token is the one that the host computes from the same row: with
 * the same bits or, from a device that adds the exponentials in another order, within device.h's bound. */
static inline bool same_logprob(double a, double b) {
    if (memcmp(&a, &b, sizeof a) == 0) return true;
    const double apart = a < b ? b - a : a - b, size = b < 0 ? -b : b;
    return test_device() == LN_DEVICE_CUDA && apart <= 1e-12 * LN_MAX(size, 1.0);
}

static inline uint32_t test_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}
static inline float test_normal(uint64_t *state) {
    float s = 0;
    for (int i = 0; i < 12; i++) s += (float)test_random(state) / 2147483648.0f;
    return s - 6.0f;
}

/* Whether a device other than the CPU has no kernels for a model. */
static inline bool device_lacks(ln_device device, const ln_package *m) {
    return device == LN_DEVICE_MLX &&
           (ln_weights_have_experts(&m->weights) || m->spec.n_recur || ln_weights_are_coded(&m->weights));
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

/* A sequence with space for n_most tokens, of which n_prompt are the prompt, that neither reuses nor leaves
 * anything. */
static inline ln_seq *test_seq(ln_eng *e, int64_t n_prompt, int64_t n_most) {
    const ln_seq_options o = {.n_prompt = n_prompt, .n_most = n_most, .no_cache = true};
    ln_seq *s;
    OK(ln_seq_open(e, &o, &s, err));
    assert_non_null(s);
    return s;
}
/* A sequence that may reuse what the prefix cache holds of its prompt. */
static inline ln_seq *test_prompt(ln_eng *e, const int32_t *ids, int64_t n_prompt, int64_t n_most) {
    const ln_seq_options o = {.ids = ids, .n_prompt = n_prompt, .n_most = n_most};
    ln_seq *s;
    OK(ln_seq_open(e, &o, &s, err));
    assert_non_null(s);
    return s;
}
#endif
