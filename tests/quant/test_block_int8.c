/* Blocks of 8 bits (quant/block_int8.h): the stated error, that decoded elements are exact in bf16, and that
 * encoding them again gives the same block. */
/* run: quick */
#include "../common.h"
#include "quant/block_int8.h"

static uint64_t seed = 5;

/* Encodes x[n], checks what holds of every block, and decodes it into y. */
static void check_block(const float *x, int n, float *y) {
    int8_t code[LN_BLOCK_INT8] = {0}, again[LN_BLOCK_INT8];
    float most = 0;
    const uint8_t scale = ln_block_int8_encode(x, n, code);
    for (int i = 0; i < n; i++) most = LN_MAX(most, fabsf(x[i]));
    for (int i = 0; i < n; i++) {
        y[i] = ln_block_int8_value(code[i], scale);
        if (most >= LN_BLOCK_INT8_TINY &&
            fabs((double)y[i] - (double)x[i]) > LN_BLOCK_INT8_ERROR * (double)most)
            fail_msg("element %d is %.9g, decoded %.9g, the largest of the block %.9g", i, (double)x[i],
                     (double)y[i], (double)most);
        assert_true(ln_bf16_f32(ln_f32_bf16(y[i])) == y[i]);
        assert_true(code[i] >= -LN_BLOCK_INT8_MOST);
    }
    if (most < LN_BLOCK_INT8_TINY) assert_int_equal(scale, 0);
    assert_int_equal(ln_block_int8_encode(y, n, again), scale);
    if (scale) assert_memory_equal(again, code, (size_t)n);
}

static void test_random_blocks(void **state) {
    (void)state;
    for (int turn = 0; turn < 20000; turn++) {
        float x[LN_BLOCK_INT8], y[LN_BLOCK_INT8];
        const int n = 1 + turn % LN_BLOCK_INT8, exponent = (int)(test_random(&seed) % 240) - 118;
        for (int i = 0; i < n; i++)
            x[i] = (float)ldexp((double)test_normal(&seed) * (turn % 3 || i ? 1 : 30), exponent);
        for (int i = 0; i < n; i++)
            if (!isfinite(x[i])) x[i] = 1;
        check_block(x, n, y);
    }
}
/* Largest magnitudes at the borders of scales, and elements at the borders of codes. */
static void test_borders(void **state) {
    (void)state;
    const float most[] = {1,      0x1.fcp0f,  0x1.fdp0f, 0x1.fep0f, 0x1.fffffep0f,   2,  64,      127,
                          127.5f, 127.99999f, 0x1p-120f, 0x1p-119f, 0x1.fffffep127f, -1, -127.75f};
    for (size_t k = 0; k < LN_COUNT(most); k++) {
        float x[LN_BLOCK_INT8], y[LN_BLOCK_INT8];
        for (int i = 0; i < LN_BLOCK_INT8; i++) x[i] = most[k] * (((float)(i - 16) * 0.5f + 0.25f) / 128);
        x[7] = most[k];
        check_block(x, LN_BLOCK_INT8, y);
        x[3] = -most[k];
        check_block(x, LN_BLOCK_INT8, y);
    }
    /* the largest error, that of an element that would be 128 */
    const float close[] = {127.99999f};
    int8_t code[LN_BLOCK_INT8];
    const uint8_t scale = ln_block_int8_encode(close, 1, code);
    assert_true(ln_block_int8_value(code[0], scale) == 127);
}
static void test_special(void **state) {
    (void)state;
    float x[LN_BLOCK_INT8] = {0}, y[LN_BLOCK_INT8];
    int8_t code[LN_BLOCK_INT8];
    check_block(x, LN_BLOCK_INT8, y);
    x[5] = 0x1p-121f;
    check_block(x, LN_BLOCK_INT8, y);
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t k = 0; k < LN_COUNT(bad); k++) {
        for (int i = 0; i < LN_BLOCK_INT8; i++) x[i] = (float)i;
        x[9] = bad[k];
        const uint8_t scale = ln_block_int8_encode(x, LN_BLOCK_INT8, code);
        for (int i = 0; i < LN_BLOCK_INT8; i++) assert_true(isnan(ln_block_int8_value(code[i], scale)));
    }
}
/* The errors that the decision record states: of Gaussian elements, relative to their rms. */
static void test_gaussian(void **state) {
    (void)state;
    double error = 0, square = 0;
    for (int turn = 0; turn < 20000; turn++) {
        float x[LN_BLOCK_INT8];
        int8_t code[LN_BLOCK_INT8];
        for (int i = 0; i < LN_BLOCK_INT8; i++) x[i] = (float)test_normal(&seed);
        const uint8_t scale = ln_block_int8_encode(x, LN_BLOCK_INT8, code);
        for (int i = 0; i < LN_BLOCK_INT8; i++) {
            const double d = (double)ln_block_int8_value(code[i], scale) - (double)x[i];
            error += d * d, square += (double)x[i] * (double)x[i];
        }
    }
    const double rms = sqrt(error / square);
    print_message("  rms error %.3f %%\n", 100 * rms);
    assert_true(rms < 0.0085);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_blocks), cmocka_unit_test(test_borders),
                                       cmocka_unit_test(test_special), cmocka_unit_test(test_gaussian)};
    return cmocka_run_group_tests_name("block_int8", tests, NULL, NULL);
}
