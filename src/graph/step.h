/* The step block: the implicit input of every program, one ragged batch of T rows. Each row is a token with
 * its position and its sequence. Rows of one sequence are consecutive, and their positions ascend by one.
 * Kernels read the live counts here. The arrays are borrowed.
 *
 * Page tables: for window group c, the pages that hold block `blk` (positions blk * page_len ...) of sequence
 * b are pages[c][(b * n_blocks + blk) * pages_per_block[c] + k] for k = 0 .. pages_per_block[c] - 1, each for
 * some of the group's layers (ln_p_kv.page_in_block). An entry is -1 where no page is resident, which is
 * below the window of every row of the step. */
#ifndef LN_STEP_H
#define LN_STEP_H

#include <stdint.h>

#define LN_MAX_WINDOW_GROUPS 4

typedef struct ln_step {
    int32_t n_rows, n_out, n_seqs;  /* T, N, B */
    const int32_t *ids, *pos, *seq; /* [T] */
    const int32_t *row0;            /* [B + 1] first row of each sequence; row0[B] = T */
    const int32_t *out_rows;        /* [N] rows whose logits are wanted */
    const int32_t *n_prompt; /* [B] length of the prompt that each sequence began with, in tokens; NULL: 0 for
                                all */
    const int32_t *pages[LN_MAX_WINDOW_GROUPS];
    int32_t pages_per_block[LN_MAX_WINDOW_GROUPS];
    int32_t n_blocks;
} ln_step;

#endif
