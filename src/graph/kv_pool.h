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

#endif
