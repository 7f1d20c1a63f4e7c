/* Includes cmocka; its header needs the first four includes before it. Also defines cpu_seconds, the
 * process's CPU time, for bounds on cost: it does not advance while other processes have the CPU, so that
 * a loaded host does not fail a test. */
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
