/* Counts the requests to stop in this process, so that a loop checks for them only after a new one. */
#ifndef LN_STOP_COUNT_H
#define LN_STOP_COUNT_H

#include <stdatomic.h>
#include <stdint.h>

/* To be incremented after the word of the request to stop is written. */
extern _Atomic uint64_t ln_stop_count;

#endif
