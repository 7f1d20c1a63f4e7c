/* Which samples a step of the optimiser takes, and how they are packed into micro-batches.
 *
 * The order of an epoch is a pure function of seed and epoch, so that two integers, epoch and position, are
 * the whole state of the data: a resumed run continues with the sample after the last one. A step takes the
 * next n samples of the order and goes on in the next epoch when one ends, so that every step has n.
 *
 * The samples of a step are packed into micro-batches of at most `budget` rows (tokens) by best fit in
 * decreasing order of length. Sequences of a ragged batch do not attend to each other, so that packing
 * changes only the order of the sums of the gradients. */
#ifndef LN_BATCHES_H
#define LN_BATCHES_H

#include "../base/base.h"

/* Writes a permutation of 0 .. n - 1 that depends on seed and epoch alone. n < 2^32. */
void train_shuffle(uint32_t *order, size_t n, uint64_t seed, uint64_t epoch);

/* The start of the next step. */
typedef struct train_cursor {
    uint64_t epoch, at; /* at: samples of the epoch that were taken */
} train_cursor;

/* Rows of one file of several: an epoch takes per_epoch of rows first .. first + n - 1. If these are fewer
 * than n, later epochs take the others; if they are more, each row comes as often as any other, or once
 * more. */
typedef struct train_share {
    uint32_t first;
    size_t n, per_epoch;
} train_share;

typedef struct train_order {
    uint32_t *order; /* [n] of the epoch `epoch` */
    size_t n;
    const train_share *shares; /* [n_shares]; 0: an epoch takes all n rows */
    size_t n_shares;
    uint32_t *rows,
        *pass; /* [n] those that the epoch takes; [most rows of a share] the order of one of them */
    uint64_t seed, epoch;
    bool shuffle; /* false: the order of the file in every epoch */
    bool ready;
} train_order;
/* n >= 1. The caller closes *o. */
ln_status train_order_open(train_order *o, size_t n, uint64_t seed, bool shuffle, ln_error *err);
/* Changes *o to an order of the rows of shares, which the caller keeps. LN_EMEMORY. */
ln_status train_order_mix(train_order *o, const train_share *shares, size_t n, ln_error *err);
void train_order_close(train_order *o);
/* Writes the indices of the next n samples to out[n] and moves the cursor behind them. */
void train_order_next(train_order *o, train_cursor *c, size_t n, uint32_t *out);

/* Assigns n items of sizes[i] <= budget rows to bins: bin[i], 0 .. *n_bins - 1, in the order in which the
 * bins are opened. Items are placed in decreasing order of size, equal ones in the order of their indices,
 * each in the fullest bin with space for it, the first of these. `scratch`: [2 n]. */
void train_pack(const uint32_t *sizes, size_t n, uint64_t budget, uint32_t *bin, uint64_t *scratch,
                size_t *n_bins);

/* How many of n samples are held out for `share` (0 .. 1) of them: round(n * share), at least one if share >
 * 0, and at most n - 1. */
size_t train_held_out(size_t n, double share);

#endif
