/* The number of cases (or the distance between two cases) of a test: `all` normally; `sample` under
 * sanitizers, with which loops over values take minutes and cover no additional code, and in .ci/run
 * (LN_SAMPLE), which has to end within twelve minutes. */
#ifndef LN_TESTS_FEWER_H
#define LN_TESTS_FEWER_H

#include <stdint.h>
#include <stdlib.h>

static inline int64_t fewer(int64_t all, int64_t sample) {
    return getenv("LN_SANITIZED") || getenv("LN_SAMPLE") ? sample : all;
}

#endif
