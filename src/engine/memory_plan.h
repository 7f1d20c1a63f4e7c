/* Memory planning: how large the KV pool of an engine becomes, and whether the engine fits into the limit.
 * engine.h declares ln_eng_options, ln_eng_plan, ln_eng_largest and ln_plan_check. */
#ifndef LN_MEMORY_PLAN_H
#define LN_MEMORY_PLAN_H

#include "engine.h"

/* Plans an engine, checks the plan against the limit, and writes the options of its run, with the pages of
 * its pool, to *out, the bytes that opening it takes to *bytes, and those of them that are for texts to
 * *text_bytes. LN_EMEMORY: the plan does not fit; the
 * message has both sizes, the name of the limit and what would fit. Other errors: those of ln_eng_options. */
ln_status ln_eng_fit(const ln_package *m, const ln_options *opt, ln_run_options *out, uint64_t *bytes,
                     uint64_t *text_bytes, ln_error *err);

/* Bytes that the plan has for the records of requests: those of n_seqs, whose prompts and answers have as
 * many tokens together as the pool holds positions, and n_queue prompts that fill a context. */
uint64_t ln_requests_bytes(const ln_run_options *o, const ln_run_sizes *z, int64_t n_queue);
/* Bytes that the process may take yet, besides those that open engines have planned for their pools; *limit
 * names what limits it. memory_bytes: see ln_options. */
uint64_t ln_memory_room(uint64_t memory_bytes, const char **limit);
/* Returns how many of `left` bytes beyond one context the pool may take if the caller set no limit: half of
 * them, or, on a GPU of `total` bytes (0: none) whose memory no other process holds, as many as fill 90 % of
 * it together with the `need` bytes of the rest. `available`: bytes of the GPU that are free. */
uint64_t ln_pool_share(uint64_t left, uint64_t need, uint64_t total, uint64_t available);

#endif
