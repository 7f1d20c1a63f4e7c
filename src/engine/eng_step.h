/* One step: batch items of distinct sequences become one ragged batch, the program runs on it, the sequences
 * advance. This is the only place that runs a model. */
#ifndef LN_ENG_STEP_H
#define LN_ENG_STEP_H

#include "sequence.h"

/* The rows of a batch item whose logits are wanted. */
typedef enum ln_logits_mode { LN_LOGITS_NONE = 0, LN_LOGITS_LAST, LN_LOGITS_ALL } ln_logits_mode;
/* The next n >= 1 tokens of one sequence. */
typedef struct ln_batch_item {
    ln_seq *seq;
    const int32_t *ids; /* [n], borrowed during the step */
    int64_t n;
    ln_logits_mode want;
} ln_batch_item;

/* Runs one step and keeps all of it: of at most n_chunk rows, n_logits rows of logits and n_seqs items. Rows
 * of logits are numbered from 0 in the order of items and of rows within them. After an error no sequence has
 * advanced. LN_EINTERNAL: a bound is exceeded. LN_ECHANGED: a weight file changed. */
ln_status ln_eng_step(struct ln_eng *e, const ln_batch_item *items, int n_items, ln_error *err);
/* A step in two calls, of which some rows may not be kept: ln_eng_run computes all rows of the items, and
 * ln_eng_commit keeps the first n_accepted of one item's rows, once for each item, before anything else
 * happens to the sequences. What is not accepted leaves no keys and values, and is not registered for reuse.
 * After an error of ln_eng_run no sequence has advanced, and there is nothing to commit. LN_EINTERNAL: more
 * rows than the item has; LN_EDEVICE. */
ln_status ln_eng_run(struct ln_eng *e, const ln_batch_item *items, int n_items, ln_error *err);
ln_status ln_eng_commit(struct ln_eng *e, const ln_batch_item *item, int64_t n_accepted, ln_error *err);
/* The same for a step of whose wanted rows only the hidden states are read (ln_run_hidden): it computes no
 * logits and may have n_chunk wanted rows. The run has the program without the head. */
ln_status ln_eng_step_headless(struct ln_eng *e, const ln_batch_item *items, int n_items, ln_error *err);
/* Runs ids[0..n) through a sequence in chunks of n_chunk rows; the last row has logits where `logits`. For
 * inspection and tests: requests are run by the scheduler. */
ln_status ln_eng_prefill(struct ln_eng *e, ln_seq *s, const int32_t *ids, int64_t n, bool logits,
                         ln_error *err);

#endif
