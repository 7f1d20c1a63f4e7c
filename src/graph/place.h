/* Internal to the memory plan: offsets of buffers. */
#ifndef LN_PLACE_H
#define LN_PLACE_H

#include "graph.h"

/* Assigns offsets in storage[n_values] to the n values of the queue, whose sizes and lifetimes are known
 * there, so that no two that live at the same stage overlap. `bound`: the largest sum of bytes live at one
 * stage. *bytes becomes the size of the block; it is `bound` where the first strategy of place.c succeeds.
 * The queue is reordered. LN_EMEMORY.
 */
ln_status ln_graph_place(ln_storage *storage, size_t n_values, ln_v *queue, size_t n, int64_t bound,
                         int64_t *bytes, ln_error *err);

#endif
