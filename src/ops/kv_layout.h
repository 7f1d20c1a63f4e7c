/* Layout of keys and values in a page of the devices in host memory (reference and CPU): the order in which
 * attention kernels read them, the same for every ISA level and analogous to packed weights
 * (device/cpu/pack/pack.h). Another device may have another layout; nothing outside a device knows it.
 *
 * For each KV head, K of a page is a matrix [page_len, E], and V of each 32 positions is a matrix [Ev, 32],
 * both in blocks of 16 rows. A block is stored column by column, in lines of 16 adjacent elements, one for
 * each row of the block: of K 16 positions, of V 16 columns of the head. In bf16 a line holds two columns as
 * 16 pairs, so 16 lines are a B tile of AMX (VNNI layout), and the two halves of a 32-bit lane are the
 * operands that a vector kernel multiplies next. In both formats 32 positions are contiguous, and the next 32
 * positions follow. Head widths are rounded up to a multiple of 32, a whole tile; the padding is zero because
 * the pool is zeroed when it is allocated and no kernel writes the padding. */
#ifndef LN_KV_LAYOUT_H
#define LN_KV_LAYOUT_H

#include "../graph/program.h"
#include "../graph/step.h"

enum { LN_KV_SIDE = 16, LN_KV_STEP = 32 }; /* rows of a block; positions stored contiguously */

/* Elements stored for each position of a head, in K or in V: its width rounded up to a multiple of 32. */
static inline int64_t ln_kv_width(int64_t width) { return (width + 31) / 32 * 32; }
/* Elements of a layer in a page: K of all heads, then V of all heads. */
static inline int64_t ln_kv_numbers(int64_t n_kv_heads, int64_t head_dim, int64_t v_dim, int64_t page_len) {
    return n_kv_heads * (ln_kv_width(head_dim) + ln_kv_width(v_dim)) * page_len;
}

/* Index, in elements, of [row][col] of a matrix of `cols` columns. */
static inline int64_t ln_kv_at(ln_dtype t, int64_t cols, int64_t row, int64_t col) {
    int64_t block = row / LN_KV_SIDE * LN_KV_SIDE * cols, lane = row % LN_KV_SIDE;
    return block + (t == LN_BF16 ? col / 2 * 2 * LN_KV_SIDE + 2 * lane + col % 2 : col * LN_KV_SIDE + lane);
}
/* Index, in elements from the start of the layer's part of a page, of element e of the key or value of a KV
 * head at position `at` of the page (0 .. page_len - 1). */
static inline int64_t ln_kv_k_index(const ln_p_kv *p, int64_t head, int64_t e, int64_t at) {
    int64_t w = ln_kv_width(p->head_dim);
    return head * w * p->page_len + ln_kv_at(p->dtype, w, at, e);
}
static inline int64_t ln_kv_v_index(const ln_p_kv *p, int64_t head, int64_t e, int64_t at) {
    const int64_t w = ln_kv_width(p->v_dim), keys = p->n_kv_heads * ln_kv_width(p->head_dim) * p->page_len;
    return keys + (head * p->page_len + at / LN_KV_STEP * LN_KV_STEP) * w +
           ln_kv_at(p->dtype, LN_KV_STEP, e, at % LN_KV_STEP);
}
/* Address of the layer's part of the page that holds position `pos` of sequence b. `base`: the pool. The
 * position must be resident: the entry of the page table is not checked for -1. */
static inline const void *ln_kv_layer(const ln_p_kv *p, const void *base, const ln_step *s, int b,
                                      int64_t pos) {
    int64_t slot = s->slot ? s->slot[b] : b;
    int32_t page = s->pages[p->window_group]
                           [(slot * s->n_blocks + pos / p->page_len) * p->pages_per_block + p->page_in_block];
    return (const char *)base + (int64_t)page * p->page_bytes + (int64_t)p->layer_in_page * p->layer_bytes;
}

#endif
