/* The step block: the implicit input of every program, one ragged batch of T rows. Each row is a token with
 * its position and its sequence. Rows of one sequence are consecutive, and their positions ascend by one.
 * Kernels read the live counts here. The arrays are borrowed.
 *
 * Page tables are state that the device holds between steps, one table for each slot; a step names the slot
 * of each of its sequences and carries the entries that have changed. For window group c, the pages that hold
 * block `blk` (positions blk * page_len ...) of the sequence in slot s are pages[c][(s * n_blocks + blk) *
 * pages_per_block[c] + k] for k = 0 .. pages_per_block[c] - 1, each for some of the group's layers
 * (ln_p_kv.page_in_block). Entries of blocks that no row of the step attends to may be -1 or stale. */
#ifndef LN_STEP_H
#define LN_STEP_H

#include <stdint.h>

#define LN_MAX_WINDOW_GROUPS 4

/* A changed entry of a page table: pages[group][at] becomes `page`. */
typedef struct ln_page_change {
    int32_t group, page;
    int64_t at;
} ln_page_change;

typedef struct ln_step {
    int32_t n_rows, n_out, n_seqs;  /* T, N, B */
    const int32_t *ids, *pos, *seq; /* [T] */
    const int32_t *row0;            /* [B + 1] first row of each sequence; row0[B] = T */
    const int32_t *out_rows;        /* [N] rows whose logits are wanted */
    const int32_t *n_prompt; /* [B] length of the prompt that each sequence began with, in tokens; NULL: 0 for
                                all */
    const int32_t *slot;     /* [B] slot of each sequence; NULL: sequence b has slot b */
    /* [n_changes] entries that changed since the last step, in order; the device applies them before the
     * program runs */
    const ln_page_change *changes;
    int64_t n_changes;
    const int32_t *pages[LN_MAX_WINDOW_GROUPS]; /* the device's page tables */
    int32_t pages_per_block[LN_MAX_WINDOW_GROUPS];
    int32_t n_blocks;
} ln_step;

#endif
