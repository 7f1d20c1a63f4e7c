/* The pool of KV pages of a model: how many layers and positions a page holds, and which page stores what.
 *
 * run/ decides it for one device: the device says how many bytes a layer's keys and values take in a page and
 * owns their layout there. A block is the set of pages with the keys and values of the same page_len
 * positions, for all layers of a window group. */
#ifndef LN_KV_POOL_H
#define LN_KV_POOL_H

#include "../base/elementary.h"
#include "step.h"

typedef struct ln_kv_pool {
    uint32_t size;                                 /* of this struct */
    int32_t page_len, n_groups;                    /* positions of a page; window groups */
    int32_t layers_per_page;                       /* layers of a page */
    int32_t pages_per_block[LN_MAX_WINDOW_GROUPS]; /* by window group */
    ln_dtype dtype;                                /* of stored keys and values: f32 (exact) or bf16 (fast) */
    int64_t page_bytes, layer_bytes;
    /* [L], borrowed: window group of a layer, which page of the block stores it, its index in that page */
    const int32_t *window_group, *page_in_block, *layer_in_page;
} ln_kv_pool;

/* A job on pages in the device's memory. to, from: offsets in the pool, in bytes, of the part of a page that
 * stores the first of n_layers consecutive layers. */
enum {
    LN_PAGE_PACK,   /* writes the keys and values of one layer, all positions, to a page that has been zeroed;
                       NULL: not these. Where the page is bf16, their low 16 bits must be zero */
    LN_PAGE_UNPACK, /* reads them; NULL: not these */
    LN_PAGE_COPY /* copies the first n positions of n_layers layers; `to` may be `from`. The other positions
                    become zero, so that nothing of another text stays in them */
};
typedef struct ln_page_job {
    uint32_t size; /* of this struct */
    int32_t op;
    void *pool;
    int64_t to, from;
    int64_t n; /* COPY: positions kept */
    int32_t n_layers;
    int32_t n_kv_heads, head_dim, page_len;
    ln_dtype dtype;      /* of the pages */
    int64_t layer_bytes; /* distance of layers in a page */
    float *keys;         /* [K, E, page_len], borrowed; only read by PACK */
    float *values;       /* [K, page_len, E], likewise */
} ln_page_job;

#endif
