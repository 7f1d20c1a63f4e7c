/* What ranks exchange other than values of a program (transport.h): whether all have succeeded, and results
 * of different sizes. */
#ifndef LN_RANK_EXCHANGE_H
#define LN_RANK_EXCHANGE_H

#include "transport.h"

/* Called by all ranks: whether all have done what was ordered (st, *err), and with the same result, whose
 * digest they compare; `what` names it. Returns the status of the first rank that failed, whose message then
 * names it; LN_EUSAGE: the digests differ. */
ln_status ln_ranks_agree(ln_transport *t, ln_status st, uint64_t digest, const char *what, ln_error *err);

/* Called by all ranks: gives each the bytes of all, those of rank r at *all + ends[r - 1] (0 for rank 0) up
 * to ends[r]. ends: [size]. The caller frees *all. LN_EDEVICE, LN_EMEMORY. */
ln_status ln_ranks_collect(ln_transport *t, const void *mine, size_t bytes, char **all, size_t *ends,
                           ln_error *err);

#endif
