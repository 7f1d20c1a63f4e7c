/* One product by row, a kernel against the reference: equality of bits, between guard pages. */
#ifndef LN_TEST_ROW_CHECK_H
#define LN_TEST_ROW_CHECK_H

#include "kernels.h"

/* Rows of x by the reference: numbers, now and then a row of the largest, of one large number, of none, or with what is no number. */
static inline void row_fill(float *x, int64_t C, bool special) {
    fill_f32(x, C);
    switch (random_u32() % 8) {
    case 0:
        for (int64_t i = 0; i < C; i++) x[i] = random_u32() % 4 ? 32512.0f : -32512.0f;
        break;
    case 1: x[random_u32() % (uint32_t)C] = 1e5f; break;
    case 2: memset(x, 0, (size_t)C * sizeof *x); break;
    case 3: /* lower limbs that sum to -1, in radix 30 */
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

static inline void row_check(const ln_kernel *kernel, const char *name, int64_t rows, int64_t D, int64_t C, ln_enc enc, ln_dtype dtype, int bias, bool special) {
    const int64_t ldy = D + 5, pitch = ln_fixed_row_words(C) + 3, y_count = (rows - 1) * ldy + D;
    weight w = weight_new(D, C, enc, dtype, special);
    if (random_u32() % 4 == 0) /* the largest codes alone, biases far from their middle */
        memset(w.codes.data, random_u32() % 2 ? 0xff : 0, w.codes.bytes);
    for (int64_t d = 3; d < D; d += 7) { /* outputs without weights, or with less than counts as one */
        const int64_t n = C / enc.group;
        const float x = random_u32() % 2 ? 0 : 0x1p-100f;
        for (int64_t g = d * n; g < (d + 1) * n; g++) ln_num_store(w.scales.data, dtype, g, x), ln_num_store(w.biases.data, dtype, g, -x);
    }
    guarded v = guard((size_t)((rows - 1) * pitch + ln_fixed_row_words(C)) * 4, true, 0);
    guarded b = guard(bias >= 0 ? (size_t)(D * ln_dtype_bytes((ln_dtype)bias)) : 0, true, 1);
    guarded want = guard((size_t)y_count * 4, true, 0), got = guard((size_t)y_count * 4, true, 0);
    float *x = calloc((size_t)C, sizeof *x);
    assert_non_null(x);
    for (int64_t r = 0; r < rows; r++) {
        row_fill(x, C, special);
        ln_fixed_row_encode(x, C, enc.bits, v.data + r * pitch * 4);
    }
    for (int64_t i = 0; bias >= 0 && i < D; i++) ln_num_store(b.data, (ln_dtype)bias, i, random_f32());
    ln_value values[2] = {{.n_dims = 2, .dims = {LN_DIM_T, C}, .enc = enc, .by_row = true}, {.n_dims = 2, .dims = {D, C}, .dtype = dtype, .enc = enc}};
    ln_node node;
    ln_bounds bounds = {rows + random_in(0, 40), 1, 1};
    ln_call c = product_call(&node, LN_OP_LINEAR_FIXED_ROW, (ln_arg){v.data, rows, C, pitch, LN_F32}, &w, &b, bias, &want, ldy);
    memset(want.data, 0xa5, want.bytes);
    run_kernel_with(-1, &c, values, &bounds, 1);
    row_weight packed = row_packed(&w.a, D, C);
    c.in[1].data = &packed.a;
    c.out[0].data = got.data;
    for (size_t n = 0; n < LN_COUNT(thread_counts); n++) {
        char what[160];
        snprintf(what, sizeof what, "linear_fixed_row by %s: %lld rows, D %lld, C %lld, %d bits, group %d, dtype %d, bias %d, %d threads", name, (long long)rows, (long long)D,
                 (long long)C, enc.bits, enc.group, (int)dtype, bias, thread_counts[n]);
        memset(got.data, 0xa5, got.bytes);
        run_this(kernel, &c, values, &bounds, thread_counts[n]);
        assert_same((float *)(void *)want.data, (float *)(void *)got.data, 1, y_count, 0, what);
    }
    c.in[0].rows = c.out[0].rows = 0; /* a head has none where no logits are wanted */
    memset(got.data, 0xa5, got.bytes);
    run_this(kernel, &c, values, &bounds, 2);
    for (size_t i = 0; i < got.bytes; i++) assert_int_equal(got.data[i], 0xa5);
    free(x);
    weight_free(&w);
    unguard(&v), unguard(&b), unguard(&want), unguard(&got), unguard(&packed.codes), unguard(&packed.units);
}

#endif
