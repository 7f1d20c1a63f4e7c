/* Memory of the process as a whole: the limit for all engines, what the caches of prefixes may keep, and how
 * much of what is planned has not been taken yet. The contracts are those of the functions of linnet.h. */
#ifndef LN_MEMORY_CONTROL_H
#define LN_MEMORY_CONTROL_H

#include <linnet_tools.h>

#include "engine.h"

/* ln_cache_set_limit, ln_cache_clear: done at once in engines that run no step, and by the step that runs in
 * the others. */
uint64_t ln_cache_limit_set(uint64_t bytes);
void ln_cache_clear_all(void);
/* Brings an engine's cache to the limit, and clears it where that was asked for since the last call. By the
 * holder of the driver token, or before the engine has one. */
void ln_cache_apply(ln_eng *e);

/* Bytes that open engines have planned and that are not resident: pages of their KV pools that no sequence
 * has used yet, what engines have planned for texts and no text uses, and what engines that are being opened
 * now will take. */
uint64_t ln_memory_to_come(void);
/* Adds to what engines that are being opened will take, unless it is not `seen` any more; false then. */
bool ln_memory_reserve(uint64_t seen, uint64_t bytes);
uint64_t ln_memory_reserved(void);
void ln_memory_unreserve(uint64_t bytes);

/* Counts the memory of an engine (add true) when it is opened, and when it is closed. */
void ln_eng_count(const ln_eng *e, bool add);
/* ln_memory_stats; out->size is set. */
void ln_memory_figures(ln_memory *out);

#endif
