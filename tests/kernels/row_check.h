/* Tests one product of int8 pairs and, with the same rows, a gated pair of products with its activation:
 * kernels against the reference, equality of bits, between guard pages. */
#ifndef LN_TEST_ROW_CHECK_H
#define LN_TEST_ROW_CHECK_H

#include "kernels.h"

/* Fills a row of x with random values or, now and then, with the largest value everywhere, with one
 * outlier, or with zeros; `special`: also with a NaN, an infinity or tiny values. */
static inline void row_fill(float *x, int64_t C, bool special) {
    fill_f32(x, C);
    switch (random_u32() % 8) {
    case 0:
        for (int64_t i = 0; i < C; i++) x[i] = random_u32() % 4 ? 32512.0f : -32512.0f;
        break;
    case 1: x[random_u32() % (uint32_t)C] = 1e5f; break;
    case 2: memset(x, 0, (size_t)C * sizeof *x); break;
    case 3: /* low digits that sum to -1, in radix 30 */
        memset(x, 0, (size_t)C * sizeof *x);
        x[0] = 1;
        x[C - 1] = -1.0f / 3810;
        break;
    default: break;
    }
    if (special && random_u32() % 3 == 0) x[random_u32() % (uint32_t)C] = random_u32() % 2 ? NAN : INFINITY;
    if (special && random_u32() % 5 == 0)
        for (int64_t i = 0; i < C; i++) x[i] *= 1e-38f;
}

/* Sets the weights of every 7th output, beginning with `first`, to zero or to values below LN_BFP_TINY. */
static inline void row_empty(weight *w, int64_t C, int64_t first) {
    const int64_t n = C / w->a.code.group;
    for (int64_t d = first; d < w->D; d += 7) {
        const float x = random_u32() % 2 ? 0 : 0x1p-100f;
        for (int64_t g = d * n; g < (d + 1) * n; g++)
            ln_num_store(w->scales.data, w->a.dtype, g, x), ln_num_store(w->biases.data, w->a.dtype, g, -x);
    }
}
/* Computes the reference of c into c->out[0]: the reference kernels read and write rows, so x is `rows`, the
 * same values in that layout, and an output in panels is moved there. */
static inline void row_reference_of(const ln_call *c, const ln_arg *rows, const ln_pvalue *values,
                                    const ln_bounds *bounds) {
    const ln_arg *y = &c->out[0];
    ln_call r = *c;
    r.in[0] = *rows;
    r.out[0].layout = LN_LAYOUT_ROWS;
    run_kernel_with(-1, &r, values, bounds, 1);
    if (!ln_arg_in_panels(y)) return;
    float *copy = malloc((size_t)(y->rows * y->cols) * sizeof *copy), *at = y->data;
    const size_t bytes = (size_t)((y->rows - 1) * y->pitch + y->cols) * sizeof *at;
    assert_non_null(copy);
    for (int64_t i = 0; i < y->rows; i++)
        memcpy(copy + i * y->cols, at + i * y->pitch, (size_t)y->cols * sizeof *at);
    memset(at, 0xa5, bytes);
    for (int64_t i = 0; i < y->rows * y->cols; i++) at[ln_arg_at(y, i / y->cols, i % y->cols)] = copy[i];
    free(copy);
}
/* Runs the kernel of c's node and compares it with the reference, which it computes first. */
static inline void row_compare(const ln_kernel *kernel, ln_call *c, const ln_arg *rows_of_x,
                               const ln_pvalue *values, const guarded *want, const guarded *got,
                               row_weight *packed, int n_weights, const char *what) {
    const int64_t y_count = (int64_t)(want->bytes / 4);
    const int64_t more[] = {0, random_in(1, 40), 600};
    const ln_bounds bounds = {c->out[0].rows + more[random_u32() % LN_COUNT(more)], 1,
                              1}; /* scratch may be sized for more rows */
    memset(want->data, 0xa5, want->bytes);
    c->out[0].data = want->data;
    row_reference_of(c, rows_of_x, values, &bounds);
    for (int k = 0; k < n_weights; k++) {
        packed[k] = row_packed(c->in[1 + k].data, c->out[0].cols, c->in[0].cols);
        c->in[1 + k].data = &packed[k].a;
    }
    c->out[0].data = got->data;
    for (size_t n = 0; n < LN_COUNT(thread_counts); n++) {
        char all[240];
        snprintf(all, sizeof all, "%s %s: %lld rows, D %lld, C %lld, %d bits, group %d, dtype %d, %d threads",
                 ln_op_name(c->node->op), what, (long long)c->out[0].rows, (long long)c->out[0].cols,
                 (long long)c->in[0].cols, values[1].enc.bits, values[1].enc.group, (int)values[1].dtype,
                 thread_counts[n]);
        memset(got->data, 0xa5, got->bytes);
        run_this(kernel, c, values, &bounds, thread_counts[n]);
        assert_same((float *)(void *)want->data, (float *)(void *)got->data, 1, y_count, 0, all);
    }
    const int64_t rows = c->out[0].rows;
    c->in[0].rows = c->out[0].rows = 0; /* the logits' product has no rows in a step that wants no logits */
    memset(got->data, 0xa5, got->bytes);
    run_this(kernel, c, values, &bounds, 2);
    for (size_t i = 0; i < got->bytes; i++) assert_int_equal(got->data[i], 0xa5);
    c->in[0].rows = c->out[0].rows = rows;
    for (int k = 0; k < n_weights; k++) unguard(&packed[k].codes), unguard(&packed[k].units);
}

/* In half of the cases D is rounded up to a multiple of a panel's columns. Only rows of more than 4 are
 * stored in panels, as in every program. */
static inline void row_check(const ln_kernel *kernel, const char *name, int64_t rows, int64_t some, int64_t C,
                             ln_groups enc, ln_dtype dtype, int bias, bool special) {
    const int64_t D = random_u32() % 2 ? some : (some + LN_PANEL_COLS - 1) / LN_PANEL_COLS * LN_PANEL_COLS;
    const int64_t ldy = random_u32() % 2 ? D + 5 : (D + 15) / 16 * 16 + 16, pitch = ln_i8pair_words(C) + 3,
                  y_count = (rows - 1) * ldy + D;
    weight w = weight_new(D, C, enc, dtype, special),
           second = weight_new_of(D, C, enc, dtype, special, w.a.shared);
    if (random_u32() % 4 == 0) { /* only the largest or the smallest codes: far from the zero point */
        const weight *of = random_u32() % 2 ? &w : &second;
        memset(of->codes.data, random_u32() % 2 ? 0xff : 0, of->codes.bytes);
    }
    row_empty(&w, C, 3);
    row_empty(&second, C, 5);
    guarded v = guard((size_t)(rows * pitch) * 4, true, 0);
    guarded b = guard(bias >= 0 ? (size_t)(D * ln_dtype_bytes((ln_dtype)bias)) : 0, true, 1);
    guarded want = guard((size_t)y_count * 4, true, 0), got = guard((size_t)y_count * 4, true, 0);
    float *x = calloc((size_t)C, sizeof *x);
    assert_non_null(x);
    const ln_arg in = {.data = v.data,
                       .rows = rows,
                       .cols = C,
                       .pitch = pitch,
                       .dtype = LN_F32,
                       .format = ln_format_of(LN_FORMAT_I8PAIR, enc),
                       .layout = rows > 4 && random_u32() % 2 ? LN_CPU_PANELS : LN_LAYOUT_ROWS};
    const bool x_panels = ln_arg_in_panels(&in);
    ln_arg plain = in; /* the same values in rows, for the reference */
    plain.layout = LN_LAYOUT_ROWS;
    plain.data = calloc((size_t)(rows * pitch), 4);
    assert_non_null(plain.data);
    for (int64_t r = 0; r < rows; r++) {
        row_fill(x, C, special);
        ln_i8pair_encode_at(x, C, enc.bits, ln_arg_i8pair(&in, r));
        ln_i8pair_encode(x, C, enc.bits, (float *)plain.data + r * pitch);
    }
    for (int64_t i = 0; bias >= 0 && i < D; i++) ln_num_store(b.data, (ln_dtype)bias, i, random_f32());
    const ln_pvalue weight_value = {
        .n_dims = 2, .dims = {D, C}, .dtype = dtype, .enc = ln_encoding_of(dtype, enc)};
    ln_pvalue values[3] = {
        {.n_dims = 2, .dims = {LN_DIM_T, C}, .format = in.format}, weight_value, weight_value};
    row_weight packed[2];
    ln_pnode node;
    const bool panels = D % LN_PANEL_COLS == 0 && random_u32() % 4;
    char layout[100];
    ln_call c = product_call(&node, LN_OP_LINEAR, in, &w, &b, bias, &want, ldy);
    snprintf(layout, sizeof layout, "%s%s", name, x_panels ? ", x in panels" : "");
    row_compare(kernel, &c, &plain, values, &want, &got, packed, 1, layout);
    c = product_call(&node, LN_OP_LINEAR_GATED, in, &w, &b, -1, &want, ldy);
    node.p.gate.act = random_u32() % 2 ? LN_ACT_SILU : LN_ACT_GELU_TANH;
    c.in[2] = c.in[1];
    c.in[2].data = &second.a;
    node.n_in = 3;
    node.in[2] = 2;
    c.out[0].layout = panels ? LN_CPU_PANELS : LN_LAYOUT_ROWS;
    snprintf(layout, sizeof layout, "%s%s%s", name, panels ? " in panels" : "",
             x_panels ? ", x in panels" : "");
    row_compare(kernel, &c, &plain, values, &want, &got, packed, 2, layout);
    free(x), free(plain.data);
    weight_free(&w);
    weight_free(&second);
    unguard(&v), unguard(&b), unguard(&want), unguard(&got);
}

#endif
