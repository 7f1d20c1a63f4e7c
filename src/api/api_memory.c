/* The public API of memory: of the process, and of keys and values in files. Checks arguments and forwards
 * the calls. */
#include "../base/memory_use.h"
#include "../engine/memory_control.h"

#include <string.h>

uint64_t ln_memory_set_limit(uint64_t bytes) { return ln_limit_set(bytes); }

uint64_t ln_cache_set_limit(uint64_t bytes) { return ln_cache_limit_set(bytes); }

void ln_cache_clear(void) { ln_cache_clear_all(); }

void ln_memory_reset_peak(void) { ln_peak_reset(); }

void ln_memory_stats(ln_memory *out) {
    if (!out || out->size == 0) return;
    ln_memory all = {.size = out->size};
    ln_memory_figures(&all);
    memcpy(out, &all, LN_MIN(sizeof all, (size_t)out->size));
}
