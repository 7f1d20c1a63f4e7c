/* linear_fixed by tiles of bytes (device/cpu/tiles_fixed_tmpl.h) against the reference kernel: equality of bits for every width, group, type of scales and
 * number of rows, between guard pages. The kernel runs on models of the tile and vector instructions, cut into smaller parts than it really is;
 * test_linear_fixed runs it on the instructions where the machine has them. */
#include "kernels.h"

#define LN_FIXED_PART 256
#define LN_FIXED_ROWS 48
#define LN_FIXED_PANEL 6
#include "tile_model.h"
#include "lanes_model.h"
#include "device/cpu/limbs.h"
#define ln_cpu_limbs_amx model_limbs
#include "device/cpu/tiles_fixed_tmpl.h"
#undef ln_cpu_limbs_amx

static void check(int64_t rows, int64_t D, int64_t C, ln_enc enc, ln_dtype dtype, int bias, bool special) {
    const int64_t ldy = D + 5, pitch = ln_fixed_words(C, enc.group) + 3, y_count = (rows - 1) * ldy + D;
    weight w = weight_new(D, C, enc, dtype, special);
    guarded v = guard((size_t)((rows - 1) * pitch + ln_fixed_words(C, enc.group)) * 4, true, 0);
    guarded b = guard(bias >= 0 ? (size_t)(D * ln_dtype_bytes((ln_dtype)bias)) : 0, true, 1);
    guarded want = guard((size_t)y_count * 4, true, 0), got = guard((size_t)y_count * 4, true, 0);
    float *x = calloc((size_t)C, sizeof *x);
    assert_non_null(x);
    for (int64_t r = 0; r < rows; r++) {
        fill_f32(x, C);
        if (special && random_u32() % 3 == 0) x[random_u32() % (uint32_t)C] = random_u32() % 2 ? NAN : INFINITY;
        if (random_u32() % 5 == 0) x[random_u32() % (uint32_t)C] = -32768.0f;
        if (random_u32() % 5 == 0) { /* a group whose numbers are the largest there are */
            const int64_t g = random_u32() % (uint32_t)(C / enc.group), most = enc.bits <= 4 ? 2047 : 32767;
            for (int64_t i = 0; i < enc.group; i++) x[g * enc.group + i] = (float)(random_u32() % 4 ? most : -most);
        }
        ln_fixed_encode(x, C, enc, v.data + r * pitch * 4);
    }
    for (int64_t i = 0; bias >= 0 && i < D; i++) ln_num_store(b.data, (ln_dtype)bias, i, random_f32());
    ln_value values[2] = {{.n_dims = 2, .dims = {LN_DIM_T, C}, .enc = enc}, {.n_dims = 2, .dims = {D, C}, .dtype = dtype, .enc = enc}};
    ln_node node;
    ln_bounds bounds = {rows + random_in(0, 40), 1, 1};
    ln_call c = product_call(&node, LN_OP_LINEAR_FIXED, (ln_arg){v.data, rows, C, pitch, LN_F32}, &w, &b, bias, &want, ldy);
    memset(want.data, 0xa5, want.bytes);
    run_kernel_with(-1, &c, values, &bounds, 1);
    ln_affine a = w.a;
    guarded packed = packed_q_for(1, &a, D, C);
    c.in[1].data = &a;
    c.out[0].data = got.data;
    for (size_t n = 0; n < LN_COUNT(thread_counts); n++) {
        char what[160];
        snprintf(what, sizeof what, "linear_fixed by tiles: %lld rows, D %lld, C %lld, %d bits, group %d, dtype %d, bias %d, %d threads", (long long)rows, (long long)D,
                 (long long)C, enc.bits, enc.group, (int)dtype, bias, thread_counts[n]);
        memset(got.data, 0xa5, got.bytes);
        run_this(&(ln_kernel){tiles_fixed_run, tiles_fixed_scratch}, &c, values, &bounds, thread_counts[n]);
        assert_same((float *)(void *)want.data, (float *)(void *)got.data, 1, y_count, 0, what);
    }
    free(x);
    weight_free(&w);
    unguard(&v), unguard(&b), unguard(&want), unguard(&got), unguard(&packed);
}

static void test_forms(void **state) {
    (void)state;
    for (size_t w = 0; w < LN_COUNT(widths); w++)
        for (size_t g = 0; g < LN_COUNT(groups); g++)
            for (int dtype = 0; dtype < 3; dtype++) {
                const ln_enc enc = {widths[w], groups[g]};
                check(random_in(1, 16), random_in(1, 100), enc.group * random_in(1, 6), enc, (ln_dtype)dtype, random_in(-1, 2), false);
                check(random_in(17, 40), random_in(1, 60), enc.group * random_in(1, 6), enc, (ln_dtype)dtype, random_in(-1, 2), false);
                check(1, random_in(1, 100), enc.group * random_in(1, 6), enc, (ln_dtype)dtype, -1, false);
                check(random_in(1, 20), random_in(1, 60), enc.group * random_in(1, 4), enc, (ln_dtype)dtype, -1, true);
            }
}
static void test_rows(void **state) {
    (void)state;
    for (int rows = 1; rows <= 70; rows++) check(rows, random_in(33, 80), 192, (ln_enc){widths[rows % 6], 64}, LN_BF16, random_in(-1, 2), false);
}
static void test_outputs(void **state) {
    (void)state;
    for (int D = 1; D <= 150; D++) check(random_in(1, 20), D, 96, (ln_enc){widths[D % 6], 32}, LN_F16, random_in(-1, 2), false);
}
/* Columns, rows and outputs that are cut into several parts. */
static void test_long(void **state) {
    (void)state;
    static const int64_t rows[] = {1, 8, 33, 100};
    for (size_t w = 0; w < LN_COUNT(widths); w++)
        for (size_t i = 0; i < LN_COUNT(rows); i++) check(rows[i], 133, 1408, (ln_enc){widths[w], i % 2 ? 128 : 64}, LN_BF16, -1, false);
}

/* The vectors' limbs are plain C's. */
static void test_limbs(void **state) {
    (void)state;
#if defined(__x86_64__)
    if (!ln_cpu_rung_here(LN_RUNG_AVX512)) skip();
    for (int i = 0; i < 600; i++) {
        enum { MOST = 3 * 64, STEP = 200 };
        const int bits = widths[i % 6], width = 32 * (1 + i % 2), n = 1 + i % 3;
        int16_t v[MOST];
        uint8_t want[3 * STEP] = {0}, got[3 * STEP] = {0};
        const int low = i % 5 < 2 ? 4 : 8, most = low == 4 ? 2048 : 32768;
        for (int k = 0; k < width * n; k++) v[k] = (int16_t)random_in(-most, most - 1);
        model_limbs(bits, low, v, width, n, want, want + width, STEP);
        ln_cpu_limbs_amx(bits, low, v, width, n, got, got + width, STEP);
        for (int k = 0; k < width; k++) assert_true(v[k] >= -most && want[width + k] < 1 << low);
        assert_memory_equal(want, got, sizeof want);
    }
#else
    skip();
#endif
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_forms), cmocka_unit_test(test_rows), cmocka_unit_test(test_outputs), cmocka_unit_test(test_long),
                                       cmocka_unit_test(test_limbs)};
    return cmocka_run_group_tests_name("amx fixed", tests, NULL, NULL);
}
