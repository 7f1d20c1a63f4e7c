/* Tests linear and embed of weights in affine groups on every ISA level against the reference kernels, and
 * the reference against the definition of the encoding: equality of bits for every bit width, group size,
 * type of scales and number of rows, at odd addresses, between guard pages. */
/* run: quick */
#include "kernels.h"

static void linear_check(int64_t rows, int64_t D, int64_t C, ln_groups enc, ln_dtype dtype, int bias,
                         bool special) {
    const int64_t ldx = C + 3, ldy = D + 5;
    weight w = weight_new(D, C, enc, dtype, special);
    guarded x = guard((size_t)((rows - 1) * ldx + C) * 4, true, 0),
            b = guard(bias >= 0 ? (size_t)(D * ln_dtype_bytes((ln_dtype)bias)) : 0, true, 1);
    size_t y_count = (size_t)((rows - 1) * ldy + D);
    guarded want = guard(y_count * 4, true, 0), got = guard(y_count * 4, true, 0);
    float *px = (float *)(void *)x.data;
    fill_f32(px, (rows - 1) * ldx + C);
    for (int i = 0; special && i < 3; i++)
        px[random_u32() % (uint32_t)C] = weight_specials[random_u32() % LN_COUNT(weight_specials)];
    for (int64_t i = 0; bias >= 0 && i < D; i++) ln_num_store(b.data, (ln_dtype)bias, i, random_f32());

    ln_pvalue values[2] = {{.n_dims = 2, .dims = {LN_DIM_T, C}},
                           {.n_dims = 2, .dims = {D, C}, .dtype = dtype, .enc = ln_encoding_of(dtype, enc)}};
    ln_pnode node;
    ln_bounds bounds = {rows, rows, 1};
    ln_call c =
        product_call(&node, LN_OP_LINEAR, (ln_arg){x.data, rows, C, ldx, LN_F32}, &w, &b, bias, &want, ldy);
    run_kernel_with(-1, &c, values, &bounds, 2);
    if (!special) { /* the reference itself, against the plain sum over s q + b in double */
        int64_t r = rows - 1, d = D - 1;
        double sum = bias >= 0 ? (double)ln_num_load(b.data, (ln_dtype)bias, d) : 0, size = fabs(sum);
        for (int64_t i = 0; i < C; i++) {
            int64_t g = d * (C / enc.group) + i / enc.group;
            double v = (double)ln_num_load(w.scales.data, dtype, g) * code_at(&w, d, i) +
                       (double)ln_num_load(w.biases.data, dtype, g);
            sum += v * (double)px[r * ldx + i];
            size += fabs(v * (double)px[r * ldx + i]);
        }
        double off = fabs(sum - (double)((float *)(void *)want.data)[r * ldy + d]);
        if (off > 1e-5 * size)
            fail_msg("reference: %d bits, group %d: off by %g of %g", enc.bits, enc.group, off, size);
    }
    char what[120];
    snprintf(what, sizeof what,
             "linear, affine: %lld rows, D %lld, C %lld, %d bits, group %d, dtype %d, bias %d",
             (long long)rows, (long long)D, (long long)C, enc.bits, enc.group, (int)dtype, bias);
    each_isa_q(&c, values, &bounds, &w, &want, &got, what);
    weight_free(&w);
    unguard(&x), unguard(&b), unguard(&want), unguard(&got);
}

static void each_form(void (*fn)(ln_groups enc, ln_dtype dtype)) {
    for (size_t w = 0; w < LN_COUNT(widths); w++)
        for (size_t g = 0; g < LN_COUNT(groups); g++)
            for (int dtype = 0; dtype < 3; dtype++) fn((ln_groups){widths[w], groups[g]}, (ln_dtype)dtype);
    for (size_t i = 0; i < LN_COUNT(small_groups); i++) fn(small_groups[i], LN_F32);
}

/* Columns of a row come in whole words of each width, 32 at a time. */
static int64_t columns(ln_groups enc, int n) { return LN_MAX(enc.group, 32) * (int64_t)n; }

static void forms(ln_groups enc, ln_dtype dtype) {
    linear_check(random_in(1, 20), random_in(1, 100), columns(enc, random_in(1, 6)), enc, dtype,
                 random_in(-1, 2), false);
    linear_check(1, random_in(1, 100), columns(enc, random_in(1, 6)), enc, dtype, -1, false);
    linear_check(random_in(1, 9), random_in(1, 60), columns(enc, random_in(1, 4)), enc, dtype, -1, true);
}
static void test_forms(void **state) {
    (void)state;
    each_form(forms);
}

static void test_rows(void **state) {
    (void)state;
    for (int rows = 1; rows <= 33; rows++)
        linear_check(rows, random_in(33, 120), 192, (ln_groups){widths[rows % 6], 64}, LN_BF16,
                     random_in(-1, 2), false);
}
static void test_outputs(void **state) {
    (void)state;
    for (int D = 1; D <= 100; D++)
        linear_check(random_in(1, 8), D, 96, (ln_groups){widths[D % 6], 32}, LN_F16, random_in(-1, 2), false);
}
static void test_long(void **state) {
    (void)state;
    for (size_t w = 0; w < LN_COUNT(widths); w++) {
        linear_check(9, 50, 2944, (ln_groups){widths[w], 128}, LN_BF16, -1, false);
        linear_check(1, 50, 2976, (ln_groups){widths[w], 32}, LN_BF16, -1, false);
    }
}

static void embed_check(ln_groups enc, ln_dtype dtype) {
    enum { V = 9, T = 21 };
    const int64_t C = columns(enc, random_in(1, 3)), ldy = C + 7;
    weight w = weight_new(V, C, enc, dtype, false);
    int32_t ids[T];
    for (int i = 0; i < T; i++) ids[i] = random_in(0, V - 1);
    ids[0] = V - 1;
    ln_step step = {.n_rows = T, .ids = ids};
    ln_pnode node = {.op = LN_OP_EMBED, .n_in = 1, .n_out = 1, .p.embed.scale = 33.94f};
    ln_bounds bounds = {T, 1, 1};
    ln_call c = {.node = &node, .step = &step};
    guarded want = guard((size_t)((T - 1) * ldy + C) * 4, true, 0),
            got = guard((size_t)((T - 1) * ldy + C) * 4, true, 0);
    float *y = (float *)(void *)want.data;
    for (int64_t r = 0; r < T; r++)
        for (int64_t i = 0; i < C; i++) {
            int64_t g = ids[r] * (C / enc.group) + i / enc.group;
            y[r * ldy + i] = fmaf(ln_num_load(w.scales.data, dtype, g), (float)code_at(&w, ids[r], i),
                                  ln_num_load(w.biases.data, dtype, g)) *
                             33.94f;
        }
    c.in[0] = (ln_arg){&w.a, V, C, C, dtype, ln_format_of(LN_FORMAT_F32, enc)};
    c.out[0] = (ln_arg){got.data, T, C, ldy, LN_F32};
    for (int isa = -1; isa < LN_ISA_COUNT; isa++)
        for (size_t n = 0; n < LN_COUNT(thread_counts) && (isa < 0 || isa_available(isa)); n++) {
            memset(got.data, 0xa5, got.bytes);
            ln_affine a = w.a;
            guarded packed = packed_q_for(isa, &a, V, C);
            c.in[0].data = &a;
            run_kernel(isa, &c, &bounds, isa < 0 ? 1 : thread_counts[n]);
            assert_same(y, (float *)(void *)got.data, 1, (T - 1) * ldy + C, 0, "embed, affine");
            if (!packed.map) continue;
            const ln_pack_units units = ln_packed_numbers(&a);
            const int64_t group = ln_packed_group_bytes(&a), bytes = ln_pack_units_bytes(units),
                          all = C / enc.group, block = ln_packed_block_bytes(&a, C);
            guarded numbers =
                guard((size_t)(ln_pack_blocks(V) * (all * bytes + ln_pack_factors_bytes(units, all))), true,
                      0); /* in a separate block, as for products of int8 pairs, which store other data in
                             their place */
            assert_true(ln_pack_scales(numbers.data, &w.a, V, C, 0, ln_pack_blocks(V)));
            for (int64_t i = 0; i < ln_pack_blocks(V) * all; i++)
                memset(packed.data + i / all * block + (i % all + 1) * group - bytes, 0xee, (size_t)bytes);
            a.scales = numbers.data;
            memset(got.data, 0xa5, got.bytes);
            run_kernel(isa, &c, &bounds, thread_counts[n]);
            assert_same(y, (float *)(void *)got.data, 1, (T - 1) * ldy + C, 0,
                        "embed, affine, scales and biases apart");
            unguard(&numbers), unguard(&packed);
        }
    weight_free(&w);
    unguard(&want), unguard(&got);
}
static void test_embed(void **state) {
    (void)state;
    each_form(embed_check);
}

/* Packs one row of 16 groups of 16 columns, of which all share factors, and returns whether that is possible;
 * then the lookup has the scales and biases to the bit. */
static bool shares(const float scales[16], const float biases[16]) {
    enum { N = 16, GROUP = 16 };
    const ln_groups enc = {6, GROUP};
    uint8_t codes[N * GROUP * 6 / 8] = {0};
    const ln_affine w = {.codes = codes,
                         .scales = (const uint8_t *)scales,
                         .biases = (const uint8_t *)biases,
                         .dtype = LN_F32,
                         .offset = LN_F32,
                         .code = enc,
                         .shared = N};
    const ln_pack_units units = ln_packed_numbers(&w);
    const int64_t group = ln_packed_group_bytes(&w), block = ln_packed_block_bytes(&w, (int64_t)N * GROUP);
    uint8_t *packed = malloc((size_t)block);
    assert_non_null(packed);
    const bool ok = ln_pack_q(packed, &w, 1, (int64_t)N * GROUP, 0, 1);
    for (int g = 0; g < N && ok; g++)
        for (int which = 0; which < 2; which++) {
            const float found =
                ln_pack_unit(LN_F32, packed + g * group + ln_pack_codes_bytes(enc),
                             ln_pack_factors_at(units, packed + N * group, g), (int64_t)which * LN_PACK_NR);
            assert_int_equal(ln_f32_bits(found), ln_f32_bits(which ? biases[g] : scales[g]));
        }
    free(packed);
    return ok;
}
/* Two levels of scales: 4.75 bits a weight for the groups of Q4_K and 7.25 for those of Q6_K. What no number
 * divides is rejected. */
static void test_factors(void **state) {
    (void)state;
    float ints[16], zeros[16] = {0}, odd[16], tiny[16], both[16], lowest[16], multiples[16];
    for (int i = 0; i < 16; i++) {
        ints[i] = (float)(8 * i - 60) * 0.0123291015625f;
        odd[i] = i ? 1.0f : 0.7f;
        tiny[i] = (float)(i * i % 64) * 0x1.8p-24f;
        both[i] = i % 2 ? 128.0f : -128.0f - (float)(i == 2);
        lowest[i] = i == 5 ? -128.0f : (float)(7 * i);
        multiples[i] = (float)(6 * (i % 7)) * 0x1.7fcp-3f; /* their divisor is 6 times the number */
    }
    assert_true(shares(ints, zeros));
    assert_true(shares(zeros, zeros));
    assert_true(shares(tiny, multiples));
    assert_true(shares(lowest, ints));
    lowest[5] = 128.0f, lowest[6] = -42.0f;
    assert_true(shares(lowest, ints));
    assert_false(shares(odd, zeros));
    assert_false(shares(zeros, odd));
    assert_false(shares(both, zeros));
    assert_int_equal(ln_pack_block_bytes_q((ln_groups){4, 32}, (ln_pack_units){LN_F32, 8}, 256) * 8,
                     LN_PACK_NR * 256 * 475 / 100);
    assert_int_equal(ln_pack_block_bytes_q((ln_groups){6, 16}, (ln_pack_units){LN_F32, 16}, 256) * 8,
                     LN_PACK_NR * 256 * 725 / 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_forms),   cmocka_unit_test(test_rows),
                                       cmocka_unit_test(test_outputs), cmocka_unit_test(test_long),
                                       cmocka_unit_test(test_embed),   cmocka_unit_test(test_factors)};
    return cmocka_run_group_tests_name("quantised", tests, NULL, NULL);
}
