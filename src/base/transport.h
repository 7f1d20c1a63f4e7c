/* Ranks: several processes, or several threads in tests, that run one model together. Each has a share of the
 * outputs of each matrix (decision 055). A transport is how they exchange bytes.
 *
 * All ranks call the same collective operations in the same order, one at a time in each rank. After a
 * failure, which names the rank that failed if it is known, every further operation fails with the same
 * message. */
#ifndef LN_TRANSPORT_H
#define LN_TRANSPORT_H

#include "base.h"

typedef struct ln_transport ln_transport;
struct ln_transport {
    int rank, size;
    ln_error failed; /* the first failure; code LN_OK: none */
    /* Sets all[size * bytes] to the `bytes` bytes that each rank passes in `mine`, in the order of ranks.
     * LN_EDEVICE: a rank has ended or does not answer. */
    ln_status (*all_gather)(ln_transport *t, const void *mine, size_t bytes, void *all);
    /* Sets data[bytes] of every rank to that of rank 0. Errors: those of all_gather. */
    ln_status (*broadcast)(ln_transport *t, void *data, size_t bytes);
    /* Returns the first failure, without an exchange: another rank has ended. Any thread may call it. */
    ln_status (*check)(ln_transport *t);
    /* Ends this rank with a failure: operations of all ranks fail from now on, also those that wait. */
    void (*end)(ln_transport *t, const ln_error *why);
};

/* Sets *err to the first failure of a transport and returns its code. t: NULL if there is one rank. */
static inline ln_status ln_ranks_failed(const ln_transport *t, ln_error *err) {
    if (t && t->failed.code != LN_OK && err) *err = t->failed;
    return t ? t->failed.code : LN_OK;
}

/* The part of a dimension that a rank computes: indices first .. first + n - 1 of `all`. */
typedef struct ln_share {
    int64_t all, first, n;
} ln_share;
/* Returns the share of a rank. Shares of all ranks are equally large, so that all run one program: of
 * ceil(units / size) units of so many indices. If these are more than there are, the last shares overlap, and
 * ranks compute the same values. */
static inline ln_share ln_share_of(int64_t all, int64_t unit, int size, int rank) {
    const int64_t units = (all + unit - 1) / unit, n = LN_MIN(all, (units + size - 1) / size * unit);
    return (ln_share){all, LN_MIN(n * rank, all - n), n};
}

/* ---- thread_ranks.c: ranks that are threads of one process ---- */
typedef struct ln_thread_ranks ln_thread_ranks;
/* Allocates the transports of `size` ranks, each to be used by one thread at a time. The caller frees *out
 * after all threads have ended. LN_EMEMORY. */
ln_status ln_thread_ranks_new(ln_thread_ranks **out, int size, ln_error *err);
ln_transport *ln_thread_ranks_at(ln_thread_ranks *r, int rank);
/* Ends a rank: every operation of all ranks fails from now on, also those that wait. */
void ln_thread_ranks_end(ln_thread_ranks *r, int rank, const ln_error *why_or_null);
void ln_thread_ranks_free(ln_thread_ranks **r);

#endif
