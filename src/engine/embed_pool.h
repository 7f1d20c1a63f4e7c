/* Pooling of the hidden states of one text, and the modules after it: all in double precision, in one order,
 * so that a text gives the same bits in any company. */
#ifndef LN_EMBED_POOL_H
#define LN_EMBED_POOL_H

#include <linnet_tools.h>

#include "../io/embedding_files.h"

/* The states of a text while they are added. */
typedef struct embed_pool {
    const ln_pooling *ways; /* [n_ways], borrowed */
    size_t n_ways;
    int64_t width;   /* D of a state */
    int64_t skip;    /* states of the first `skip` tokens are not pooled */
    int64_t n;       /* states that were pooled */
    double weights;  /* sum of the weights of LN_POOLING_WEIGHTED_MEAN */
    double *values;  /* [n_ways, D], or what the modules make of it */
    double *scratch; /* as large as `values` */
} embed_pool;
/* Allocates the buffers for these files, pooled in `ways`. LN_EUSAGE: the modules do not fit to `ways`. */
ln_status embed_pool_open(embed_pool *p, const ln_emb_files *f, const ln_pooling *ways, size_t n_ways,
                          int64_t width, ln_error *err);
void embed_pool_close(embed_pool *p);
/* The first row whose state is needed, of a text of n tokens. */
int64_t embed_pool_first(const embed_pool *p, int64_t n);
/* Begins a text whose first `skip` tokens are not pooled. */
void embed_pool_begin(embed_pool *p, int64_t skip);
/* Adds the state of token t. */
void embed_pool_add(embed_pool *p, int64_t t, const float *state);
/* Pools the states and applies the modules; the result is the first values of p->values. LN_EINVALID: no
 * token was pooled. */
ln_status embed_pool_finish(embed_pool *p, const ln_emb_files *f, ln_error *err);

#endif
