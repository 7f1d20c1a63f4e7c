/* The number of cases (or the distance between two cases) of a test: `all` in a normal build, `sanitized`
 * under sanitizers, where loops over values take minutes and cover no additional code. */
#ifndef LN_TESTS_FEWER_H
#define LN_TESTS_FEWER_H

#include <stdint.h>
#include <stdlib.h>

static inline int64_t fewer(int64_t all, int64_t sanitized) {
    return getenv("LN_SANITIZED") ? sanitized : all;
}

#endif
