/* Software prefetch: hints to the memory system for lines that will be read or written soon. Any address will
 * do, also one beyond the end of a buffer: a hint never faults.
 *
 * Distances are in tuning.def, with what was measured. */
#ifndef LN_PREFETCH_H
#define LN_PREFETCH_H

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* Into every level, L1 too: for what is read within some hundred cycles (PREFETCHT0). */
static inline __attribute__((always_inline)) void prefetch_l1(const void *p) {
#if defined(__x86_64__)
    _mm_prefetch(p, _MM_HINT_T0);
#else
    __builtin_prefetch(p, 0, 3);
#endif
}
/* Into L2 only, which holds more and so may be prefetched earlier (PREFETCHT1). */
static inline __attribute__((always_inline)) void prefetch_l2(const void *p) { __builtin_prefetch(p, 0, 2); }
/* For writing: the line becomes this core's own, so that stores to it do not wait and do not hold the fill
 * buffers that loads need. */
static inline __attribute__((always_inline)) void prefetch_w(const void *p) {
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0"
                     :
                     : "m"(*(const char *)p)); /* gcc would emit PREFETCHT0 without -mprfchw */
#else
    __builtin_prefetch(p, 1, 3);
#endif
}

#endif
