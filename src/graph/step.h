/* The step block: the one implicit input of every program. One ragged batch: T rows, each a token with its position and its
 * sequence. Rows of one sequence are consecutive and their positions ascend by one. A program reads the live counts here.
 *
 * Page tables: for window class c, the page that holds block `blk` (positions blk * page_len ...) of sequence b, part `sub`, is
 * pages[c][(b * n_blocks + blk) * n_sub[c] + sub]; -1 where nothing is resident (below every pending row's window). */
#ifndef LN_STEP_H
#define LN_STEP_H

#include <stdint.h>

#define LN_MAX_CLASSES 4

typedef struct ln_step {
    int32_t n_rows, n_out, n_seqs;   /* T, N, B */
    const int32_t *ids, *pos, *seq;  /* [T] */
    const int32_t *row0;             /* [B + 1] first row of each sequence */
    const int32_t *out_rows;         /* [N] */
    const int32_t *n_prompt;         /* [B] tokens of the prompt that it was begun with; NULL: 0 for each */
    const int32_t *pages[LN_MAX_CLASSES];
    int32_t n_sub[LN_MAX_CLASSES];
    int32_t n_blocks;
} ln_step;

#endif
