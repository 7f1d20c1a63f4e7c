/* What every device in host memory needs for its queues: page tables, fences, and the view that kernels have
 * of a step. */
#ifndef LN_HOST_QUEUE_H
#define LN_HOST_QUEUE_H

#include "../base/base.h"
#include "../graph/state_pool.h"
#include "../graph/step.h"

/* pages[c]: [n_slots, n_blocks, pages_per_block[c]], owned; NULL beyond the pool's window groups. */
typedef struct ln_host_queue {
    int32_t *pages[LN_STATE_GROUPS];
    int32_t pages_per_block[LN_STATE_GROUPS];
    int32_t n_blocks;
    uint64_t n_submitted; /* the last fence */
} ln_host_queue;

/* Allocates the page tables of n_slots slots of n_blocks blocks each; all entries are -1. kv, NULL without a
 * KV pool, is read during the call only. *q is to be closed after an error, too. LN_EMEMORY. */
ln_status ln_host_queue_open(ln_host_queue *q, const ln_state_pool *kv, int n_slots, int n_blocks,
                             ln_error *err);
void ln_host_queue_close(ln_host_queue *q);
/* The beginning of a submit: applies the step's changes and returns the step's fence. Of a step with rows it
 * also sets *view for the kernels, which borrows the block and the page tables. */
uint64_t ln_host_queue_submit(ln_host_queue *q, const ln_step_block *block, ln_step *view);
/* The wait of a device that runs a step within its submit. LN_EINTERNAL: no step has this fence. */
ln_status ln_host_queue_wait(const ln_host_queue *q, uint64_t fence, ln_error *err);

#endif
