/* Products with weights in coded rows (quant/coded.h) on every ISA level against the reference kernels,
 * forward and backward: equality of bits for every kind, type of scales, group, order of columns and number
 * of rows, with codes and scales flush against guard pages. And the numbers themselves: each byte of fp8. */
/* run: quick */
#include "kernels.h"

#include "quant/coded.h"

/* ---- a weight ---- */

typedef struct coded {
    ln_coded w;
    guarded codes, scales, zeros, columns;
    ln_pvalue value;
} coded;

static coded coded_new(int64_t D, int64_t C, ln_encoding e, bool ordered) {
    const ln_row_bytes row = ln_encoding_row(e, C);
    const int64_t units = ln_coded_units(e, C);
    coded k = {.codes = guard((size_t)(D * row.data), true, 0),
               .scales = guard((size_t)(D * row.scales), true, 0),
               .zeros = guard((size_t)(D * row.offsets), true, 0),
               .columns = guard(ordered ? 0 : (size_t)C * 2, true, 0),
               .value = {.n_dims = 2, .dims = {D, C}, .enc = e}};
    for (int64_t i = 0; i < D * row.data; i++) do
            k.codes.data[i] = (uint8_t)random_u32();
        while ((e.kind == LN_STORED_E4M3 && (k.codes.data[i] & 0x7f) == 0x7f) ||
               (e.kind == LN_STORED_E5M2 && (k.codes.data[i] & 0x7c) == 0x7c));
    for (int64_t i = 0; i < D * units; i++) {
        ln_num_store(k.scales.data, (ln_dtype)e.scale, i, random_f32());
        if (row.offsets)
            ln_num_store(k.zeros.data, (ln_dtype)e.offset, i, (float)random_in(0, (1 << e.bits)));
    }
    for (int64_t i = 0; i < C && !ordered; i++)
        ((uint16_t *)(void *)k.columns.data)[i] = (uint16_t)random_in(0, (int)units - 1);
    k.w = (ln_coded){.enc = e,
                     .rows = {k.codes.data, k.scales.data, row.offsets ? k.zeros.data : NULL,
                              ordered ? NULL : (const uint16_t *)(void *)k.columns.data},
                     .cols = C};
    return k;
}
static void coded_free(coded *k) {
    unguard(&k->codes), unguard(&k->scales), unguard(&k->zeros), unguard(&k->columns);
}

/* Runs the call on every ISA level and number of threads; want and got are outputs of n bytes. */
static void compare(ln_call *c, const ln_pvalue *values, const ln_bounds *bounds, guarded *want, guarded *got,
                    const char *what) {
    c->out[0].data = want->data;
    run_kernel_with(-1, c, values, bounds, 1);
    c->out[0].data = got->data;
    for (int isa = LN_ISA_PLAIN; isa < LN_ISA_COUNT; isa++)
        for (size_t n = 0; n < LN_COUNT(thread_counts) && ln_cpu_isa_here((ln_isa)isa); n++) {
            memset(got->data, 0xa5, got->bytes);
            run_kernel_with(isa, c, values, bounds, thread_counts[n]);
            for (int64_t r = 0; r < c->out[0].rows; r++)
                if (memcmp(want->data + r * c->out[0].pitch * 4, got->data + r * c->out[0].pitch * 4,
                           (size_t)c->out[0].cols * 4) != 0)
                    fail_msg("%s, on %s: other bits than the reference's", what,
                             ln_cpu_isa_name((ln_isa)isa));
        }
}

static void check(int64_t rows, int64_t D, int64_t C, ln_encoding e, bool ordered, int bias) {
    const int64_t ldx = C + 3, ldy = LN_MAX(D, C) + 5;
    coded k = coded_new(D, C, e, ordered);
    guarded x = guard((size_t)((rows - 1) * ldx + C) * 4, true, 0),
            dy = guard((size_t)((rows - 1) * (D + 1) + D) * 4, true, 0),
            b = guard(bias >= 0 ? (size_t)(D * ln_dtype_bytes((ln_dtype)bias)) : 0, true, 1),
            want = guard((size_t)(rows * ldy) * 4, true, 0), got = guard((size_t)(rows * ldy) * 4, true, 0);
    char what[120];
    fill_f32((float *)(void *)x.data, (rows - 1) * ldx + C);
    fill_f32((float *)(void *)dy.data, (rows - 1) * (D + 1) + D);
    for (int64_t i = 0; bias >= 0 && i < D; i++) ln_num_store(b.data, (ln_dtype)bias, i, random_f32());
    ln_pvalue values[2] = {{.n_dims = 2, .dims = {LN_DIM_T, C}}, k.value};
    const ln_bounds bounds = {rows, rows, 1};
    ln_pnode node = {.op = LN_OP_LINEAR, .n_in = bias >= 0 ? 3 : 2, .n_out = 1, .in = {0, 1, 2}};
    ln_call c = {.node = &node};
    c.in[0] = (ln_arg){x.data, rows, C, ldx, LN_F32};
    c.in[1] = (ln_arg){.data = &k.w, .rows = D, .cols = C, .pitch = C, .coded = true};
    c.in[2] = (ln_arg){b.data, 1, D, D, (uint8_t)LN_MAX(bias, 0)};
    c.out[0] = (ln_arg){want.data, rows, D, ldy, LN_F32};
    snprintf(what, sizeof what, "%s: %lld rows, D %lld, C %lld, group %d, bias %d%s", ln_stored_name(e.kind),
             (long long)rows, (long long)D, (long long)C, e.group, bias,
             ordered ? "" : ", columns in no order");
    compare(&c, values, &bounds, &want, &got, what);
    node = (ln_pnode){.op = LN_OP_LINEAR_BACK, .n_in = 2, .n_out = 1, .in = {0, 1}};
    c.in[0] = (ln_arg){dy.data, rows, D, D + 1, LN_F32};
    c.out[0] = (ln_arg){want.data, rows, C, ldy, LN_F32};
    values[0].dims[1] = D;
    compare(&c, values, &bounds, &want, &got, what);
    unguard(&x), unguard(&dy), unguard(&b), unguard(&want), unguard(&got);
    coded_free(&k);
}

static void test_products(void **state) {
    (void)state;
    static const int16_t fp8_groups[] = {0, 1, 16, 128}, groups[] = {0, 8, 24, 100};
    for (int i = 0; i < fewer(60, 12); i++) {
        const int64_t rows = i % 3 ? random_in(1, 9) : 1, D = random_in(1, 40), C = random_in(1, 300);
        for (int kind = LN_STORED_E4M3; kind <= LN_STORED_E2M1; kind++)
            check(rows, D, C, ln_encoding_floats((ln_stored)kind, (ln_dtype)(i % 3), fp8_groups[i % 4]), true,
                  i % 4 - 1);
        for (int ordered = 0; ordered < 2; ordered++)
            check(rows, D, C, ln_encoding_zeroed(random_in(1, 8), (ln_dtype)(i % 3), groups[i % 4]), ordered,
                  i % 4 - 1);
    }
}

/* ---- numbers ---- */

/* Every byte against its definition: sign, exponent, fraction. */
static void test_numbers(void **state) {
    (void)state;
    for (int v = 0; v < 256; v++) {
        const double sign = v & 0x80 ? -1 : 1;
        const int e4 = v >> 3 & 15, m4 = v & 7, e5 = v >> 2 & 31, m5 = v & 3;
        const double a = sign * (e4 ? ldexp(1 + m4 / 8.0, e4 - 7) : ldexp(m4 / 8.0, -6)),
                     b = sign * (e5 ? ldexp(1 + m5 / 4.0, e5 - 15) : ldexp(m5 / 4.0, -14));
        if (e4 == 15 && m4 == 7) assert_true(isnan(ln_e4m3_f32((uint8_t)v)));
        else assert_true((double)ln_e4m3_f32((uint8_t)v) == a);
        if (e5 == 31) assert_true(!isfinite(ln_e5m2_f32((uint8_t)v)));
        else assert_true((double)ln_e5m2_f32((uint8_t)v) == b);
        assert_true(v < 0x80 || signbit(ln_e4m3_f32((uint8_t)v)) != 0 || isnan(ln_e4m3_f32((uint8_t)v)));
    }
}

/* A row of codes against the formula, with the last group short. */
static void test_rows(void **state) {
    (void)state;
    const ln_encoding e = ln_encoding_zeroed(3, LN_F16, 8);
    coded k = coded_new(2, 20, e, true);
    float row[20];
    ln_encoding_decode(e, &k.w.rows, 1, 20, row);
    assert_int_equal(ln_encoding_row(e, 20).data, 8);   /* 60 bits in words */
    assert_int_equal(ln_encoding_row(e, 20).scales, 6); /* 8, 8 and 4 columns */
    for (int i = 0; i < 20; i++) {
        const float s = ln_num_load(k.scales.data, LN_F16, 3 + i / 8),
                    z = ln_num_load(k.zeros.data, LN_F16, 3 + i / 8);
        assert_true(row[i] == s * ((float)ln_affine_code(k.codes.data + 8, 3, i) - z));
    }
    coded_free(&k);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_products), cmocka_unit_test(test_numbers),
                                       cmocka_unit_test(test_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
