/* The pools of pages in which a model's layers keep what later rows read: the keys and values of
 * attention, and the recurrent state of short convolutions and of the delta rule (decision 049).
 *
 * Layers whose state has one size and one lifetime form a group: the same window, heads, widths and dtype.
 * A block is the set of pages with the state of the same page_len positions, for all layers of a group.
 * All groups of attention take pages of one size from one pool. Groups of recurrent layers take theirs
 * from a second pool: their pages are larger by orders, and a sequence needs those of its last two blocks
 * only. run/ decides the layout for one device (run/state_pool.c): the device says how many bytes a
 * layer's state takes in a page and owns its layout there. */
#ifndef LN_STATE_POOL_H
#define LN_STATE_POOL_H

#include "../base/elementary.h"
#include "step.h"

#include <stdbool.h>

enum {
    LN_STATE_PAGED, /* keys and values, of all positions of the window */
    /* recurrent: what the rows of a block need of the text before it, and what they add. A block may have no
     * page between two that have one: the kernels carry the state through it */
    LN_STATE_CHUNKS
};
/* The sizes of recurrent state (ln_p_recur). */
typedef struct ln_recur_sizes {
    int32_t taps, channels;                     /* of the convolution */
    int32_t n_k_heads, n_v_heads, k_dim, v_dim; /* of the delta rule; n_v_heads 0: there is none */
} ln_recur_sizes;

/* A part of the state of a recurrent layer in a page: S, decays, keys, values, inputs, in the order of
 * ops/recur_layout.h. It is `outer` blocks of `rows` rows. The positions of the chunk are its rows from
 * `lead` on if it is `by_row`, and its columns if it is `by_col`. */
typedef struct ln_recur_part {
    int64_t outer, rows, cols, lead;
    bool by_row, by_col;
} ln_recur_part;
enum { LN_RECUR_PARTS = 5 };
/* Sets *out to part i of a page of `len` positions, and returns its numbers. */
static inline int64_t ln_recur_part_of(const ln_recur_sizes *z, int64_t len, int i, ln_recur_part *out) {
    const int64_t heads = z->n_v_heads, keys = heads ? z->n_k_heads : 0;
    const ln_recur_part parts[LN_RECUR_PARTS] = {
        {heads, z->k_dim, z->v_dim, 0, false, false},
        {1, heads, len, 0, false, true},
        {keys, z->k_dim, len, 0, false, true},
        {heads, len, z->v_dim, 0, true, false},
        {1, z->taps - 1 + len, z->channels, z->taps - 1, true, false}};
    *out = parts[i];
    return out->outer * out->rows * out->cols;
}

/* Layers with one kind of state. */
typedef struct ln_state_group {
    int32_t kind;                                       /* LN_STATE_PAGED, LN_STATE_CHUNKS */
    int32_t n_layers, layers_per_page, pages_per_block; /* the last page of a block may have fewer layers */
    int32_t n_kv_heads, head_dim, v_dim;                /* heads; width of a key, width of a value */
    ln_dtype dtype;       /* of keys and values as attention reads them: f32 (exact) or bf16 (fast) */
    bool q8;              /* keys and values are stored in 8 bits (quant/block_int8.h) */
    int64_t window;       /* positions that a query attends to; 0: all positions. Of chunks LN_CHUNK_WINDOW */
    int64_t layer_bytes;  /* of a layer's state in a page */
    ln_recur_sizes recur; /* of chunks */
} ln_state_group;
/* The row at a position needs the pages of its own block and of that of the position before it. */
enum { LN_CHUNK_WINDOW = 2 };

typedef struct ln_state_pool {
    uint32_t size;                        /* of this struct */
    int32_t page_len, n_groups;           /* positions of a page; groups */
    int64_t page_bytes, recur_page_bytes; /* of groups of attention, and of chunks; 0: there are none */
    ln_state_group groups[LN_STATE_GROUPS];
    /* [L], borrowed: group of a layer, which page of the block stores it, its index in that page; of layers
     * that read another one's state, those of that layer */
    const int32_t *group, *page_in_block, *layer_in_page;
} ln_state_pool;

/* A job on pages in the device's memory. to, from: offsets in the pool, in bytes, of the part of a page that
 * stores the first of n_layers consecutive layers. */
enum {
    LN_PAGE_PACK,   /* writes the keys and values of one layer, all positions, to a page that has been zeroed;
                       NULL: not these. If the page is bf16, their low 16 bits must be zero; pages of 8 bits
                       keep what they can hold. Of chunks
                       `keys` has the whole state of the layer, the parts of ops/recur_layout.h in order */
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
    ln_dtype dtype;       /* of the pages */
    bool q8;              /* as in ln_state_group */
    int64_t layer_bytes;  /* distance of layers in a page */
    int32_t kind;         /* LN_STATE_PAGED, LN_STATE_CHUNKS */
    ln_recur_sizes recur; /* of chunks */
    float *keys;          /* [K, E, page_len], borrowed; only read by PACK */
    float *values;        /* [K, page_len, Ev], likewise */
} ln_page_job;

#endif
