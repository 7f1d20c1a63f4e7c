/* Layout of the recurrent state of a layer in a page of the devices in host memory: the reference and the
 * CPU. Another device may have another layout; nothing outside a device knows it.
 *
 * A page belongs to one chunk of page_len positions. Parts, each aligned to 64 bytes:
 *
 *     S [Hv, E, Ev]             the matrices of the delta rule before the first row of the chunk
 *     decays [Hv, page_len]     of each row, the sum of the logarithms of decays from the chunk's start
 *     keys [K, E, page_len]     of each row, the key of the delta rule; a line has the rows of one column
 *     values [Hv, page_len, Ev] of each row, the corrected value beta (v - S^T k)
 *     inputs [taps - 1 + page_len, C]
 *                               inputs of the convolution: of the taps - 1 positions before the chunk, which
 *                               are 0 before the text, then of its rows
 *
 * S and decays are f32 (double on ln_device_ref_double), the other parts have the dtype of the state. What
 * a row has not written yet is never read. */
#ifndef LN_RECUR_LAYOUT_H
#define LN_RECUR_LAYOUT_H

#include "../graph/program.h"
#include "../graph/step.h"

/* Offsets in bytes from the start of a layer's part of a page. */
typedef struct ln_recur_parts {
    int64_t s, decays, keys, values, inputs, bytes;
} ln_recur_parts;

static inline int64_t ln_recur_element(const ln_p_recur *p, int real_bytes) {
    return p->dtype == LN_BF16 ? 2 : real_bytes;
}
static inline ln_recur_parts ln_recur_parts_of(const ln_p_recur *p, int real_bytes) {
    enum { ALIGN = 64 };
    const int64_t row = ln_recur_element(p, real_bytes), heads = p->n_v_heads, len = p->page_len;
    const int64_t sizes[] = {heads * p->k_dim * p->v_dim * real_bytes, heads * len * real_bytes,
                             (heads ? p->n_k_heads * (int64_t)p->k_dim * len : 0) * row,
                             heads * len * p->v_dim * row, (p->taps - 1 + len) * p->channels * row};
    int64_t at[sizeof sizes / sizeof *sizes + 1] = {0};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        at[i + 1] = at[i] + (sizes[i] + ALIGN - 1) / ALIGN * ALIGN;
    return (ln_recur_parts){at[0], at[1], at[2], at[3], at[4], at[5]};
}
/* Address of the layer's part of the page of a chunk of sequence b; NULL: the chunk has no page. */
static inline char *ln_recur_page(const ln_p_recur *p, const void *base, const ln_step *s, int b,
                                  int64_t chunk) {
    const int64_t slot = s->slot ? s->slot[b] : b;
    const int32_t page =
        s->pages[p->group][(slot * s->n_blocks + chunk) * p->pages_per_block + p->page_in_block];
    /* temps and states are the only memory that kernels write */
    return page < 0 ? NULL
                    : (char *)(uintptr_t)base + (int64_t)page * p->page_bytes +
                          (int64_t)p->layer_in_page * p->layer_bytes;
}

#endif
