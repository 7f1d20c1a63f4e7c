/* cmocka wants the first four before its own header. And the clock for what must not cost too much: it stands still while others have
 * the processor, so that a loaded machine does not count. */
#ifndef LN_TESTS_CM_H
#define LN_TESTS_CM_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <cmocka.h>

static inline double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
#endif
