/* Tests convert to BFP and linear of it on every ISA level against the reference kernels: equality of bits
 * for every bit width, group size, type of scales and number of rows, at odd addresses, between guard
 * pages. The values of the reference itself are tested by tests/quant/test_block_float.c and, here, by a
 * plain sum. */
/* run: quick */
#include "kernels.h"

static const float x_specials[] = {NAN,         INFINITY,    -INFINITY,      0.0f,       -0.0f,
                                   1e-42f,      1e-30f,      3e38f,          -3e38f,     0x1p-97f,
                                   0x1.fffep0f, 0x1.ffffp0f, -0x1.ffffffp0f, 0x1.ffep0f, 0x1.ffdep0f};

static void special_x(float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (random_u32() % 61 == 0) x[i] = x_specials[random_u32() % LN_COUNT(x_specials)];
}

/* Converts the rows of x to BFP with the reference, and compares every ISA level that this machine has.
 * Returns the reference's block. */
static guarded fixed_check(const float *x, int64_t rows, int64_t C, int64_t ldx, ln_groups enc,
                           int64_t pitch) {
    const size_t bytes = (size_t)((rows - 1) * pitch + ln_bfp_words(C, enc.group)) * 4;
    guarded want = guard(bytes, true, 0), got = guard(bytes, true, 0);
    ln_pnode node = {
        .op = LN_OP_CONVERT, .n_in = 1, .n_out = 1, .p.convert = {ln_format_of(LN_FORMAT_BFP, enc)}};
    ln_bounds bounds = {rows, rows, 1};
    ln_call c = {.node = &node};
    c.in[0] = (ln_arg){(void *)(uintptr_t)x, rows, C, ldx, LN_F32};
    c.out[0] = (ln_arg){want.data, rows, C, pitch, LN_F32};
    memset(want.data, 0xa5, bytes);
    run_kernel(-1, &c, &bounds, 1);
    char what[100];
    snprintf(what, sizeof what, "fixed: %lld rows, C %lld, %d bits, group %d", (long long)rows, (long long)C,
             enc.bits, enc.group);
    each_isa_bytes(&c, &bounds, &want, &got, what);
    unguard(&got);
    return want;
}

static void check(int64_t rows, int64_t D, int64_t C, ln_groups enc, ln_dtype dtype, int bias, bool special) {
    const int64_t ldx = C + 3, ldy = D + 5, pitch = ln_bfp_words(C, enc.group) + 3;
    weight w = weight_new(D, C, enc, dtype, special);
    guarded x = guard((size_t)((rows - 1) * ldx + C) * 4, true, 0),
            b = guard(bias >= 0 ? (size_t)(D * ln_dtype_bytes((ln_dtype)bias)) : 0, true, 1);
    const size_t y_count = (size_t)((rows - 1) * ldy + D);
    guarded want = guard(y_count * 4, true, 0), got = guard(y_count * 4, true, 0);
    float *px = (float *)(void *)x.data;
    fill_f32(px, (rows - 1) * ldx + C);
    if (special) special_x(px, (rows - 1) * ldx + C);
    for (int64_t i = 0; bias >= 0 && i < D; i++) ln_num_store(b.data, (ln_dtype)bias, i, random_f32());
    guarded v = fixed_check(px, rows, C, ldx, enc, pitch);

    ln_pvalue values[2] = {{.n_dims = 2, .dims = {LN_DIM_T, C}, .format = ln_format_of(LN_FORMAT_BFP, enc)},
                           {.n_dims = 2, .dims = {D, C}, .dtype = dtype, .enc = ln_encoding_of(dtype, enc)}};
    ln_pnode node;
    ln_bounds bounds = {rows, rows, 1};
    ln_call c = product_call(&node, LN_OP_LINEAR, (ln_arg){v.data, rows, C, pitch, LN_F32, values[0].format},
                             &w, &b, bias, &want, ldy);
    run_kernel_with(-1, &c, values, &bounds, 2);
    if (!special) { /* the reference itself, against the plain sum over s q + b in double: x is off by at
                       most 2^(1-n) of its group's largest magnitude */
        int64_t r = rows - 1, d = D - 1;
        double sum = bias >= 0 ? (double)ln_num_load(b.data, (ln_dtype)bias, d) : 0, size = fabs(sum);
        for (int64_t i = 0; i < C; i++) {
            int64_t g = d * (C / enc.group) + i / enc.group;
            double s = (double)ln_num_load(w.scales.data, dtype, g),
                   t = (double)ln_num_load(w.biases.data, dtype, g);
            sum += (s * code_at(&w, d, i) + t) * (double)px[r * ldx + i];
            size += fabs(s * code_at(&w, d, i)) + fabs(t);
        }
        double off = fabs(sum - (double)((float *)(void *)want.data)[r * ldy + d]);
        if (off > 2 * (enc.bits <= 4 ? 0x1p-11 : 0x1p-15) * size)
            fail_msg("reference: %d bits, group %d: off by %g of %g", enc.bits, enc.group, off, size);
    }
    char what[120];
    snprintf(what, sizeof what,
             "linear, BFP: %lld rows, D %lld, C %lld, %d bits, group %d, dtype %d, bias %d", (long long)rows,
             (long long)D, (long long)C, enc.bits, enc.group, (int)dtype, bias);
    each_isa_q(&c, values, &bounds, &w, &want, &got, what);
#if defined(__x86_64__)
    /* The ISA level's other kernels: without VNNI, with VNNI, with VNNI on AMD. */
    const ln_kernel_row *const lists[] = {ln_cpu_bfp_avx512, ln_cpu_bfp_vnni, ln_cpu_bfp_vnni_amd};
    const int n_lists = !ln_cpu_isa_here(LN_ISA_AVX512) ? 0 : __builtin_cpu_supports("avx512vnni") ? 3 : 1;
    for (int i = 0; i < n_lists; i++) {
        ln_affine a = w.a;
        guarded packed = packed_q_for(LN_ISA_AVX512, &a, D, C);
        memset(got.data, 0xa5, got.bytes);
        c.in[1].data = &a;
        c.out[0].data = got.data;
        run_this(&(ln_kernel[]){kernel_of_list(lists[i], &c)}[0], &c, values, &bounds, 2);
        assert_same((float *)(void *)want.data, (float *)(void *)got.data, 1, (int64_t)y_count, 0, what);
        unguard(&packed);
    }
#endif
    weight_free(&w);
    unguard(&x), unguard(&b), unguard(&v), unguard(&want), unguard(&got);
}

static void test_forms(void **state) {
    (void)state;
    for (size_t w = 0; w < LN_COUNT(widths); w++)
        for (size_t g = 0; g < LN_COUNT(groups); g++)
            for (int dtype = 0; dtype < 3; dtype++) {
                const ln_groups enc = {widths[w], groups[g]};
                check(random_in(1, 20), random_in(1, 100), enc.group * random_in(1, 6), enc, (ln_dtype)dtype,
                      random_in(-1, 2), false);
                check(1, random_in(1, 100), enc.group * random_in(1, 6), enc, (ln_dtype)dtype, -1, false);
                check(random_in(1, 9), random_in(1, 60), enc.group * random_in(1, 4), enc, (ln_dtype)dtype,
                      -1, true);
            }
}
static void test_small_groups(void **state) {
    (void)state;
    for (size_t i = 0; i < LN_COUNT(small_groups); i++)
        for (int rows = 1; rows <= 20; rows += rows < 5 ? 1 : 5)
            check(rows, random_in(1, 100), 32 * random_in(1, 20), small_groups[i], LN_F32, random_in(-1, 2),
                  rows % 2 == 0);
}
static void test_rows(void **state) {
    (void)state;
    for (int rows = 1; rows <= 33; rows++)
        check(rows, random_in(33, 220), 192, (ln_groups){widths[rows % 6], 64}, LN_BF16, random_in(-1, 2),
              false);
    for (int rows = 1; rows <= 18; rows++)
        check(rows, random_in(33, 220), 320, (ln_groups){rows % 2 ? 4 : 8, 32}, LN_BF16, -1, rows % 3 == 0);
}
static void test_outputs(void **state) {
    (void)state;
    for (int D = 1; D <= 100; D++)
        check(random_in(1, 8), D, 96, (ln_groups){widths[D % 6], 32}, LN_F16, random_in(-1, 2), false);
}
static void test_long(void **state) {
    (void)state;
    for (size_t w = 0; w < LN_COUNT(widths); w++) {
        check(19, 50, 2944, (ln_groups){widths[w], 128}, LN_BF16, -1, false);
        check(1, 50, 2976, (ln_groups){widths[w], 32}, LN_BF16, -1, false);
    }
}

/* Every code and every element of x at its largest: sums reach 2^30 (with 12 bits of x 2^22) without
 * overflow. */
static void test_largest(void **state) {
    (void)state;
    enum { D = 17, C = 128, ROWS = 20 };
    for (size_t k = 0; k < LN_COUNT(widths); k++) {
        const ln_groups enc = {widths[k], 128};
        weight w = weight_new(D, C, enc, LN_F32, false);
        memset(w.codes.data, 0xff, w.codes.bytes);
        const float largest = enc.bits <= 4 ? 2047.0f : 32767.0f;
        float x[ROWS * C], y[ROWS * D], v[ROWS * (C / 2 + 2)];
        for (int i = 0; i < ROWS * C; i++) x[i] = i / C % 2 ? -largest : largest;
        for (int r = 0; r < ROWS; r++) ln_bfp_encode(x + r * C, C, enc, v + r * (C / 2 + 2));
        ln_pnode node = {.op = LN_OP_LINEAR, .n_in = 2, .n_out = 1, .in = {0, 1}};
        for (int isa = 0; isa < LN_ISA_COUNT; isa++)
            for (int rows = 1; rows <= ROWS && isa_available(isa); rows += 19) {
                ln_affine a = w.a;
                guarded packed = packed_q_for(isa, &a, D, C);
                ln_bounds bounds = {rows, rows, 1};
                ln_call c = {.node = &node};
                c.in[0] = (ln_arg){v, rows, C, C / 2 + 2, LN_F32, ln_format_of(LN_FORMAT_BFP, enc)};
                c.in[1] = (ln_arg){&a, D, C, C, LN_F32, ln_format_of(LN_FORMAT_F32, enc)};
                c.out[0] = (ln_arg){y, rows, D, D, LN_F32};
                ln_pvalue values[2] = {
                    {.n_dims = 2, .dims = {LN_DIM_T, C}, .format = ln_format_of(LN_FORMAT_BFP, enc)},
                    {.n_dims = 2, .dims = {D, C}, .enc = ln_encoding_of(LN_F32, enc)}};
                run_kernel_with(isa, &c, values, &bounds, 1);
                for (int i = 0; i < rows * D; i++) {
                    const float sum = largest * 128 * (i / D % 2 ? -1.0f : 1.0f),
                                code = (float)((1 << enc.bits) - 1);
                    const float p = fmaf(ln_num_load(w.scales.data, LN_F32, i % D),
                                         (float)((int32_t)sum * (int32_t)code), 0.0f);
                    const float want = fmaf(ln_num_load(w.biases.data, LN_F32, i % D), sum, p);
                    if (!same_bits(want, y[i]))
                        fail_msg("%d bits on %s: expected %.9g, found %.9g", enc.bits,
                                 ln_cpu_isa_name((ln_isa)isa), (double)want, (double)y[i]);
                }
                if (packed.map) unguard(&packed);
            }
        weight_free(&w);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_forms), cmocka_unit_test(test_small_groups),
                                       cmocka_unit_test(test_rows),  cmocka_unit_test(test_outputs),
                                       cmocka_unit_test(test_long),  cmocka_unit_test(test_largest)};
    return cmocka_run_group_tests_name("linear_bfp", tests, NULL, NULL);
}
