/* What the memory of the process is used for, by class, and its peak. */
#ifndef LN_MEMORY_USE_H
#define LN_MEMORY_USE_H

#include "base.h"

/* The classes that are counted; everything else is "other". WEIGHTS: weights of devices, each copy once
 * however many engines use it. KV: pools of pages. ACTIVATIONS: temporaries and scratch of steps. ADAPTERS:
 * pools of adapters. */
typedef enum ln_memory_class {
    LN_MEMORY_WEIGHTS,
    LN_MEMORY_KV,
    LN_MEMORY_ACTIVATIONS,
    LN_MEMORY_ADAPTERS,
    LN_MEMORY_CLASSES
} ln_memory_class;

/* memory.c. Adds bytes, which may be negative, to a class; returns the bytes of a class. Thread-safe. */
void ln_memory_count(ln_memory_class c, int64_t bytes);
uint64_t ln_memory_counted(ln_memory_class c);

/* What a plan allows, in bytes, for the process and for each thread beyond the parts that it counts: code
 * pages and stacks that are not touched yet, and pages of the file that are mapped while weights are packed.
 * One fault can map a whole large page of the page cache, for codes, scales and biases each. */
#define LN_MEMORY_ALLOWANCE        ((uint64_t)15 << 19)
#define LN_MEMORY_THREAD_ALLOWANCE ((uint64_t)1 << 18)

/* machine_linux.c. Sets the peak that ln_memory_peak returns to the resident memory: through the kernel's
 * record
 * (/proc/self/clear_refs) or, if the kernel rejects that, by keeping the maximum of what ln_memory_resident
 * returns from then on. */
void ln_peak_reset(void);
/* Whether ln_memory_peak is the kernel's record. */
bool ln_peak_is_kernels(void);

/* Divides the cores of ln_cores among n processes that work together on this machine. */
void ln_cores_divide(int n);

#endif
