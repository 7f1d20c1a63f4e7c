/* The pool of pages in which a model's layers keep what later rows read: the keys and values of attention.
 *
 * Layers whose state has one size and one lifetime form a group: the same window, heads, widths and dtype. A
 * block is the set of pages with the state of the same page_len positions, for all layers of a group. All
 * groups take pages of one size from one pool. run/ decides the layout for one device (run/state_pool.c): the
 * device says how many bytes a layer's keys and values take in a page and owns their layout there. */
#ifndef LN_STATE_POOL_H
#define LN_STATE_POOL_H

#include "../base/elementary.h"
#include "step.h"

/* Layers with one kind of state. */
typedef struct ln_state_group {
    int32_t n_layers, layers_per_page, pages_per_block; /* the last page of a block may have fewer layers */
    int32_t n_kv_heads, head_dim, v_dim;                /* heads; width of a key, width of a value */
    ln_dtype dtype;      /* of stored keys and values: f32 (exact) or bf16 (fast) */
    int64_t window;      /* positions that a query attends to; 0: all positions */
    int64_t layer_bytes; /* of a layer's keys and values in a page */
} ln_state_group;

typedef struct ln_state_pool {
    uint32_t size;              /* of this struct */
    int32_t page_len, n_groups; /* positions of a page; groups */
    int64_t page_bytes;
    ln_state_group groups[LN_STATE_GROUPS];
    /* [L], borrowed: group of a layer, which page of the block stores it, its index in that page; of layers
     * that read another one's state, those of that layer */
    const int32_t *group, *page_in_block, *layer_in_page;
} ln_state_pool;

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
    int32_t n_kv_heads, head_dim, v_dim, page_len;
    ln_dtype dtype;      /* of the pages */
    int64_t layer_bytes; /* distance of layers in a page */
    float *keys;         /* [K, E, page_len], borrowed; only read by PACK */
    float *values;       /* [K, page_len, Ev], likewise */
} ln_page_job;

#endif
