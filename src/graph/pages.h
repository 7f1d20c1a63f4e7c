/* Where keys and values lie in a page: the order that kernels read, the same for all of them, in the way of packed weights (device/cpu/pack/pack.h).
 *
 * For each kv head, K of a page is a matrix [page_len, E], and V of each 32 positions one of [E, 32], in blocks of 16 rows. A block goes column by
 * column in lines of 16 numbers side by side: of K 16 positions, of V 16 places of the head. In bf16 a line holds two columns, as 16 pairs: so 16
 * lines are a B tile of AMX, and the halves of a 32-bit word are what a vector lane multiplies next. Either way 32 positions are one piece of memory, and
 * go on with the next 32. Head widths are rounded up to whole tiles; what is too much is zero, because the pool is zero at first and
 * nothing is ever written there. */
#ifndef LN_PAGES_H
#define LN_PAGES_H

#include "graph.h"
#include "step.h"

enum { LN_KV_SIDE = 16, LN_KV_STEP = 32 }; /* rows of a block; positions of a piece */

/* Numbers that a head takes of a position, in K and in V. */
static inline int64_t ln_kv_width(int64_t head_dim) { return (head_dim + 31) / 32 * 32; }
/* Numbers of a layer in a page: K of all heads, then V of all heads. */
static inline int64_t ln_kv_numbers(int64_t n_kv_heads, int64_t head_dim, int64_t page_len) { return 2 * n_kv_heads * ln_kv_width(head_dim) * page_len; }

/* Number [row][col] of a matrix of `cols` columns. */
static inline int64_t ln_kv_at(ln_dtype t, int64_t cols, int64_t row, int64_t col) {
    int64_t block = row / LN_KV_SIDE * LN_KV_SIDE * cols, lane = row % LN_KV_SIDE;
    return block + (t == LN_BF16 ? col / 2 * 2 * LN_KV_SIDE + 2 * lane + col % 2 : col * LN_KV_SIDE + lane);
}
/* Where key and value e of a head at position `at` of a page lie in the layer's part of the page. */
static inline int64_t ln_kv_k_index(const ln_p_kv *p, int64_t head, int64_t e, int64_t at) {
    int64_t w = ln_kv_width(p->head_dim);
    return head * w * p->page_len + ln_kv_at(p->dtype, w, at, e);
}
static inline int64_t ln_kv_v_index(const ln_p_kv *p, int64_t head, int64_t e, int64_t at) {
    int64_t w = ln_kv_width(p->head_dim);
    return ((p->n_kv_heads + head) * p->page_len + at / LN_KV_STEP * LN_KV_STEP) * w + ln_kv_at(p->dtype, LN_KV_STEP, e, at % LN_KV_STEP);
}
/* The layer's part of the page that holds position `pos` of sequence b. */
static inline const void *ln_kv_layer(const ln_p_kv *p, const void *base, const ln_step *s, int b, int64_t pos) {
    int32_t page = s->pages[p->cls][((int64_t)b * s->n_blocks + pos / p->page_len) * p->n_sub + p->sub];
    return (const char *)base + (int64_t)page * p->page_bytes + (int64_t)p->lane * p->layer_bytes;
}

#endif
