/* Page tables and fences of a queue in host memory. */
#include "host_queue.h"

#include "../base/base.h"

#include <string.h>

#ifdef LN_REAL_FLOAT

ln_status ln_host_queue_open(ln_host_queue *q, const ln_state_pool *kv, int n_slots, int n_blocks,
                             ln_error *err) {
    *q = (ln_host_queue){.n_blocks = n_blocks};
    for (int c = 0; kv && c < kv->n_groups; c++) {
        const size_t blocks = (size_t)n_slots * (size_t)n_blocks;
        size_t n, bytes = 0;
        if (ln_mul_size(blocks, (size_t)kv->groups[c].pages_per_block, &n) &&
            ln_mul_size(n, sizeof(int32_t), &bytes))
            q->pages[c] = ln_alloc(bytes);
        if (!q->pages[c]) return LN_OOM(err, "page tables");
        memset(q->pages[c], 0xff, bytes);
        q->pages_per_block[c] = kv->groups[c].pages_per_block;
    }
    return LN_OK;
}

void ln_host_queue_close(ln_host_queue *q) {
    for (int c = 0; c < LN_STATE_GROUPS; c++) ln_free(q->pages[c]);
    *q = (ln_host_queue){0};
}

uint64_t ln_host_queue_submit(ln_host_queue *q, const ln_step_block *block, ln_step *view) {
    const ln_page_change *changes = ln_step_changes(block);
    for (int32_t i = 0; i < block->n_changes; i++)
        q->pages[changes[i].group][changes[i].at] = changes[i].page;
    if (block->n_rows == 0) return ++q->n_submitted;
    *view = (ln_step){.n_rows = block->n_rows,
                      .n_out = block->n_out,
                      .n_seqs = block->n_seqs,
                      .ids = ln_step_ids(block),
                      .pos = ln_step_pos(block),
                      .seq = ln_step_seq(block),
                      .adapter = ln_step_adapter(block),
                      .row0 = ln_step_row0(block),
                      .out_rows = ln_step_out_rows(block),
                      .n_prompt = ln_step_n_prompt(block),
                      .slot = ln_step_slot(block),
                      .n_blocks = q->n_blocks};
    for (int c = 0; c < LN_STATE_GROUPS; c++)
        view->pages[c] = q->pages[c], view->pages_per_block[c] = q->pages_per_block[c];
    return ++q->n_submitted;
}

ln_status ln_host_queue_wait(const ln_host_queue *q, uint64_t fence, ln_error *err) {
    if (fence >= 1 && fence <= q->n_submitted) return LN_OK;
    return ln_fail(err, LN_EINTERNAL, "no step has the fence %llu; %llu were submitted",
                   (unsigned long long)fence, (unsigned long long)q->n_submitted);
}
#endif
