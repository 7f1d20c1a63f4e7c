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
 * the pool is zeroed when it is allocated and no kernel writes the padding.
 *
 * Pages of 8 bits (ln_p_kv.q8) hold blocks of 32 elements of a head at one position (quant/block_int8.h).
 * The codes, a byte each, have the order of f32 elements. The scales follow the codes of the layer, and are
 * in the order in which the codes are decoded:
 *
 *     K, 16 positions of lanes:   | 16 scales of block 0 of the head | of block 1 | ..
 *     V, a piece of 32 positions: | 32 scales of block 0 of the head | of block 1 | ..
 *
 * Kernels decode them to the elements that a page of ln_p_kv.dtype would hold, and then do what they do with
 * such a page, so that all that is said about the order of arithmetic holds for both. */
#ifndef LN_KV_LAYOUT_H
#define LN_KV_LAYOUT_H

#include "../graph/program.h"
#include "../graph/step.h"
#include "../quant/block_int8.h"

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
/* Bytes of a layer in a page; real_bytes: of an f32 element of the device. */
static inline int64_t ln_kv_layer_bytes(const ln_p_kv *p, int real_bytes) {
    const int64_t n = ln_kv_numbers(p->n_kv_heads, p->head_dim, p->v_dim, p->page_len);
    return p->q8 ? n + n / LN_BLOCK_INT8 : n * (p->dtype == LN_BF16 ? 2 : real_bytes);
}
/* The dtype whose order the elements of a page have. */
static inline ln_dtype ln_kv_order(const ln_p_kv *p) { return p->q8 ? LN_F32 : p->dtype; }
/* Index, in elements (codes) from the start of the layer's part of a page, of element e of the key or value
 * of a KV head at position `at` of the page (0 .. page_len - 1). */
static inline int64_t ln_kv_k_index(const ln_p_kv *p, int64_t head, int64_t e, int64_t at) {
    int64_t w = ln_kv_width(p->head_dim);
    return head * w * p->page_len + ln_kv_at(ln_kv_order(p), w, at, e);
}
static inline int64_t ln_kv_v_index(const ln_p_kv *p, int64_t head, int64_t e, int64_t at) {
    const int64_t w = ln_kv_width(p->v_dim), keys = p->n_kv_heads * ln_kv_width(p->head_dim) * p->page_len;
    return keys + (head * p->page_len + at / LN_KV_STEP * LN_KV_STEP) * w +
           ln_kv_at(ln_kv_order(p), LN_KV_STEP, e, at % LN_KV_STEP);
}
/* Index, in bytes from the start of the layer's part of a page of 8 bits, of the scale of the block that
 * holds element e. */
static inline int64_t ln_kv_k_scale(const ln_p_kv *p, int64_t head, int64_t e, int64_t at) {
    const int64_t blocks = ln_kv_width(p->head_dim) / LN_BLOCK_INT8;
    return ln_kv_numbers(p->n_kv_heads, p->head_dim, p->v_dim, p->page_len) + head * blocks * p->page_len +
           at / LN_KV_SIDE * LN_KV_SIDE * blocks + e / LN_BLOCK_INT8 * LN_KV_SIDE + at % LN_KV_SIDE;
}
static inline int64_t ln_kv_v_scale(const ln_p_kv *p, int64_t head, int64_t e, int64_t at) {
    const int64_t blocks = ln_kv_width(p->v_dim) / LN_BLOCK_INT8,
                  keys = p->n_kv_heads * ln_kv_width(p->head_dim) / LN_BLOCK_INT8 * p->page_len;
    return ln_kv_numbers(p->n_kv_heads, p->head_dim, p->v_dim, p->page_len) + keys +
           head * blocks * p->page_len + at / LN_KV_STEP * LN_KV_STEP * blocks +
           e / LN_BLOCK_INT8 * LN_KV_STEP + at % LN_KV_STEP;
}
/* Element e of the key or value of a KV head at position `at`, in a page of 8 bits. */
static inline float ln_kv_q8(const ln_p_kv *p, const void *layer, bool v, int64_t head, int64_t e,
                             int64_t at) {
    return ln_block_int8_value(((const int8_t *)
                                    layer)[v ? ln_kv_v_index(p, head, e, at) : ln_kv_k_index(p, head, e, at)],
                               ((const uint8_t *)layer)[v ? ln_kv_v_scale(p, head, e, at)
                                                          : ln_kv_k_scale(p, head, e, at)]);
}
/* Stores n elements of a key or value of a page of 8 bits, from element e on: a block, or the rest of one. */
static inline void ln_kv_put_q8(const ln_p_kv *p, void *layer, bool v, int64_t head, int64_t e, int64_t at,
                                const float *x, int n) {
    int8_t code[LN_BLOCK_INT8];
    const uint8_t scale = ln_block_int8_encode(x, n, code);
    ((uint8_t *)layer)[v ? ln_kv_v_scale(p, head, e, at) : ln_kv_k_scale(p, head, e, at)] = scale;
    for (int i = 0; i < n; i++)
        ((int8_t *)layer)[v ? ln_kv_v_index(p, head, e + i, at) : ln_kv_k_index(p, head, e + i, at)] =
            code[i];
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
