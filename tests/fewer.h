/* How many cases a test has, or how far from one to the next: under sanitizers loops of numbers take minutes, for no other code. */
#ifndef LN_TESTS_FEWER_H
#define LN_TESTS_FEWER_H

#include <stdint.h>
#include <stdlib.h>

static inline int64_t fewer(int64_t all, int64_t sanitized) { return getenv("LN_SANITIZED") ? sanitized : all; }

#endif
