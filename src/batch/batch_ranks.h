/* How ranks share a file of requests (decision 063): each has the whole model and answers some of the lines,
 * and rank 0 writes the answers of all.
 *
 * A thread of each rank exchanges what has changed fifty times a second, so that steps of one rank do not
 * wait for those of another: how many further lines a rank wants, which all ranks then assign in the same
 * way, and the answers that it has finished. The group ends when rank 0 has written everything, or when a
 * rank fails. */
#ifndef LN_BATCH_RANKS_H
#define LN_BATCH_RANKS_H

#include "../base/rank_exchange.h"

typedef struct batch_ranks batch_ranks;

/* What a rank has done with a line. */
typedef enum batch_outcome { BATCH_ANSWERED, BATCH_FAILED, BATCH_LEFT } batch_outcome;
typedef struct batch_share {
    uint64_t line;
    batch_outcome outcome;
    const char *text; /* [bytes] the line of the answer; of BATCH_LEFT: why it is left for a later run */
    size_t bytes;
} batch_share;

/* Begins to share the n lines of a file. done[i]: line i has an answer already, which rank 0 knows and tells
 * the others. st, *err: whether this rank is ready. digest is of the file, the model and the conditions. *out
 * is NULL if t is, in a process that is alone. Errors are those of the first rank that is not ready.
 * LN_EUSAGE: a rank has another digest. */
ln_status batch_ranks_open(batch_ranks **out, ln_transport *t, uint8_t *done, size_t n, ln_status st,
                           uint64_t digest, ln_error *err);
/* Sets *line to a line of this rank that it has not begun. False: there is none now. `wanted`: lines that it
 * would like to have in store. */
bool batch_ranks_take(batch_ranks *k, size_t wanted, size_t *line);
/* Sends what a rank other than 0 has done to rank 0. */
ln_status batch_ranks_give(batch_ranks *k, const batch_share *share, ln_error *err);
/* In rank 0: takes what the others have sent, in *shares, which the caller frees with ln_str_free; then
 * batch_ranks_next reads them one by one from *at on. */
void batch_ranks_receive(batch_ranks *k, ln_str *shares);
bool batch_ranks_next(const ln_str *shares, size_t *at, batch_share *out);
/* Waits until something has changed, at most `seconds`. Returns the first failure of a rank. *ended: rank 0
 * has. */
ln_status batch_ranks_wait(batch_ranks *k, double seconds, bool *ended, ln_error *err);
/* Ends the work of this rank: rank 0 has written all, or st is a failure, which ends all ranks. Waits for the
 * others and frees *k. Returns the first failure of a rank. */
ln_status batch_ranks_close(batch_ranks **k, ln_status st, ln_error *err);

#endif
