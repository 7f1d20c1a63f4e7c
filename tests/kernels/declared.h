/* Turns the lines of declared.def into calls of kernels: a node, inputs filled with values, a step over KV
 * pages. The test and the benchmark of a kernel both start here, so that what is timed is what is checked.
 * The caller provides the weight of a product: the test packs one, the benchmark reads successive copies
 * in memory. */
#ifndef LN_DECLARED_H
#define LN_DECLARED_H

#include "../../src/device/cpu/pack/panel.h"
#include "../../src/graph/graph.h"
#include "../../src/ops/ops.h"
#include "../../src/ops/kv_layout.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { DECLARED_PAGE = 64, DECLARED_GROUP = 64 };

typedef struct declared {
    const char *name;
    ln_op op;
    int n_in;
    int64_t size[4]; /* declared.def gives the meaning for each op */
} declared;
static const declared all_declared[] = {
#define DECLARED(name, OP, n_in, ...) {name, LN_OP_##OP, n_in, {__VA_ARGS__}},
#include "declared.def"
#undef DECLARED
};

/* Sizes and types of a call: rows from position `depth` on; weights in `dtype` or, with bits, in affine
 * groups; fast: the input of a product or of attention is bf16, and so are the KV pages. */
typedef struct declared_how {
    int64_t rows, depth;
    ln_dtype dtype;
    int bits;
    bool fast, per_row; /* per_row: fast products with affine groups read x as int8 pairs
                           instead of BFP */
} declared_how;

typedef struct declared_call {
    ln_pnode node;
    ln_pvalue values[2];
    ln_bounds bounds;
    ln_call call;
    ln_step step;
    int64_t rows, cols;  /* of the output */
    double flops, bytes; /* flops: of products and attention; bytes: read and written, without a product's
                            weight and the pages of attention */
    int64_t pool_bytes;  /* of attention and kv_write: all pages (input 0 or 1) */
    void *block[8];
    int n_blocks;
} declared_call;

static inline void *declared_block(declared_call *m, size_t bytes) {
    const size_t huge = (size_t)2 << 20,
                 unit = bytes < huge / 2 ? 64 : huge; /* large blocks are on huge pages, as a device's are */
    const size_t all = (bytes + unit) / unit * unit;
    void *p = NULL;
    if (posix_memalign(&p, unit, all)) abort();
    if (unit == huge) (void)madvise(p, all, MADV_HUGEPAGE);
    memset(p, 0, all);
    return m->block[m->n_blocks++] = p;
}

/* Allocates n values in (-1, 1), rounded to bf16 if a fast run has bf16 values. The call owns the block. */
static inline float *declared_numbers(declared_call *m, int64_t n, bool bf16) {
    float *p = declared_block(m, (size_t)n * sizeof *p);
    uint32_t u = (uint32_t)m->n_blocks;
    for (int64_t i = 0; i < n; i++) {
        u = u * 1664525u + 1013904223u;
        p[i] = (float)(int32_t)u * 0x1p-31f;
        if (bf16) p[i] = ln_bf16_f32(ln_f32_bf16(p[i]));
    }
    return p;
}

static inline ln_arg declared_input(declared_call *m, int64_t rows, int64_t cols, bool bf16) {
    int64_t pitch = ln_cpu_pitch((ln_format){0}, LN_LAYOUT_ROWS, cols);
    return (ln_arg){.data = declared_numbers(m, rows * pitch, bf16),
                    .rows = rows,
                    .cols = cols,
                    .pitch = pitch,
                    .format = {bf16 ? LN_FORMAT_BF16 : LN_FORMAT_F32, 0, 0}};
}

/* Replaces x by the same values as BFP or, with per_row, as int8 pairs. */
static inline void declared_fixed(declared_call *m, ln_arg *x, ln_groups enc, bool per_row) {
    const ln_format to = ln_format_of(per_row ? LN_FORMAT_I8PAIR : LN_FORMAT_BFP, enc);
    const int64_t pitch = ln_cpu_pitch(to, LN_LAYOUT_ROWS, x->cols);
    float *rows = declared_block(m, (size_t)(x->rows * pitch) * sizeof *rows);
    for (int64_t r = 0; r < x->rows; r++)
        ln_format_encode(to, (const float *)x->data + r * x->pitch, x->cols, rows + r * pitch);
    *x = (ln_arg){.data = rows, .rows = x->rows, .cols = x->cols, .pitch = pitch, .format = to};
}

/* Allocates the pages of one layer for one sequence, filled with random keys and values, and the step over
 * its last rows. */
static inline ln_arg declared_pages(declared_call *m, const declared_how *how, ln_p_kv *kv, int64_t kv_heads,
                                    int64_t width) {
    int64_t n = how->rows, blocks = (how->depth + n + DECLARED_PAGE - 1) / DECLARED_PAGE,
            numbers = ln_kv_numbers(kv_heads, width, width, DECLARED_PAGE);
    *kv = (ln_p_kv){.pages_per_block = 1,
                    .n_kv_heads = (int)kv_heads,
                    .head_dim = (int)width,
                    .v_dim = (int)width,
                    .page_len = DECLARED_PAGE,
                    .dtype = how->fast ? LN_BF16 : LN_F32};
    kv->page_bytes = kv->layer_bytes = numbers * ln_dtype_bytes(kv->dtype);
    m->pool_bytes = blocks * kv->page_bytes;
    float *from = declared_numbers(m, numbers, how->fast);
    char *pool = declared_block(m, (size_t)m->pool_bytes);
    for (int64_t i = 0; i < blocks * numbers; i++) ln_num_store(pool, kv->dtype, i, from[i % numbers]);
    int32_t *lists = declared_block(m, (size_t)(2 * n + 2 + blocks) * sizeof *lists), *seq = lists + n,
            *row0 = seq + n, *pages = row0 + 2;
    for (int64_t i = 0; i < n; i++) lists[i] = (int32_t)(how->depth + i);
    for (int64_t i = 0; i < blocks; i++) pages[i] = (int32_t)(blocks - 1 - i);
    row0[1] = (int32_t)n;
    m->step = (ln_step){.n_rows = (int32_t)n,
                        .n_seqs = 1,
                        .pos = lists,
                        .seq = seq,
                        .row0 = row0,
                        .n_blocks = (int32_t)blocks};
    m->step.pages[0] = pages;
    m->step.pages_per_block[0] = 1;
    return (ln_arg){.data = pool, .rows = 1, .cols = 1, .pitch = 1, .dtype = (uint8_t)kv->dtype};
}

static inline void declared_make(declared_call *m, const declared *d, const declared_how *how) {
    const int64_t rows = how->rows, *size = d->size;
    int64_t wide = size[0] * size[1]; /* of most ops: the columns of all groups */
    *m = (declared_call){.node = {.op = d->op, .n_in = d->n_in, .n_out = 1, .in = {0, 1}},
                         .bounds = {rows, rows, 1},
                         .rows = rows};
    ln_call *c = &m->call;
    switch (d->op) {
    case LN_OP_LINEAR:
        wide = size[0];
        c->in[0] = declared_input(m, rows, size[1], how->fast);
        if (how->bits && how->fast)
            declared_fixed(m, &c->in[0], (ln_groups){how->bits, DECLARED_GROUP}, how->per_row);
        c->in[1] = (ln_arg){
            .rows = size[0],
            .cols = size[1],
            .pitch = size[1],
            .dtype = (uint8_t)how->dtype,
            .format = ln_format_of(LN_FORMAT_F32, (ln_groups){how->bits, how->bits ? DECLARED_GROUP : 0})};
        m->values[0] = (ln_pvalue){.n_dims = 2, .dims = {LN_DIM_T, size[1]}, .format = c->in[0].format};
        m->values[1] = (ln_pvalue){.n_dims = 2,
                                   .dims = {size[0], size[1]},
                                   .dtype = how->dtype,
                                   .enc = ln_encoding_of(how->dtype, (ln_groups){how->bits, DECLARED_GROUP})};
        m->flops = 2.0 * (double)(rows * size[0] * size[1]);
        break;
    case LN_OP_ATTN_PAGED:
        wide = size[0] * size[2];
        c->in[0] = declared_input(m, rows, wide, how->fast);
        m->node.p.attn = (ln_p_attn){.n_heads = (int)size[0], .scale = 0.1f, .window = size[3]};
        c->in[1] = declared_pages(m, how, &m->node.p.attn.kv, size[1], size[2]);
        for (int64_t p = how->depth; p < how->depth + rows; p++)
            m->flops += 4.0 * (double)(wide * (size[3] ? LN_MIN(p + 1, size[3]) : p + 1));
        break;
    case LN_OP_CONVERT:
        m->node.p.convert.to =
            ln_format_of((ln_format_kind)size[2],
                         size[2] < LN_FORMAT_BFP ? (ln_groups){0}
                                                 : (ln_groups){how->bits ? how->bits : 4, DECLARED_GROUP});
        c->in[0] = declared_input(m, rows, wide, false);
        break;
    case LN_OP_GATED:
        m->node.p.gate.act = (ln_act)size[2];
        for (int i = 0; i < 2; i++) c->in[i] = declared_input(m, rows, wide, false);
        break;
    case LN_OP_KV_WRITE:
        c->in[0] = declared_pages(m, how, &m->node.p.kv, size[0], size[1]);
        c->in[1] = declared_input(m, rows, wide, false);
        c->in[2] = declared_input(m, rows, wide, false);
        break;
    case LN_OP_ROPE:
        m->node.p.heads = (ln_p_heads){.n_heads = (int)size[0], .head_dim = (int)size[1]};
        c->in[0] = declared_input(m, rows, wide, false);
        c->in[1] = declared_input(m, rows, size[1], false);
        break;
    case LN_OP_RMSNORM:
        m->node.p.norm = (ln_p_norm){.eps = 1e-6f};
        c->in[0] = declared_input(m, rows, wide, false);
        c->in[1] = (ln_arg){
            .data = declared_numbers(m, size[1], false), .rows = 1, .cols = size[1], .pitch = size[1]};
        break;
    default:
        for (int i = 0; i < d->n_in; i++) c->in[i] = declared_input(m, rows, wide, false);
    }
    m->cols = wide;
    c->out[0] = d->op == LN_OP_KV_WRITE ? c->in[0] : declared_input(m, rows, wide, false);
    if (how->fast && (ln_ops[m->node.op].props & LN_PROP_ROUNDS)) c->out[0].format.kind = LN_FORMAT_BF16;
    if (d->op == LN_OP_CONVERT) c->out[0].format = m->node.p.convert.to;
    for (int i = 0; i < d->n_in; i++)
        m->bytes += c->in[i].rows > 1 || rows == 1 ? 4.0 * (double)(rows * c->in[i].cols) : 0;
    m->bytes += 4.0 * (double)(rows * wide);
}

/* Returns the call with pointers to m's node and step; m must not be moved afterwards. */
static inline ln_call declared_call_of(const declared_call *m) {
    ln_call c = m->call;
    c.node = &m->node;
    c.step = &m->step;
    return c;
}

static inline void declared_free(declared_call *m) {
    for (int i = 0; i < m->n_blocks; i++) free(m->block[i]);
    m->n_blocks = 0;
}

#endif
