/* The geometry of row panels (device/cpu/pack/panel.h): no two elements share an address, and panels are the
 * streams that kernels read and write. */
/* run: quick */
#include "kernels.h"

/* Every element has an offset of its own in the buffer of the rows; 16 elements of a row are contiguous,
 * and so are the rows of a panel. */
static void test_panel_at(void **state) {
    (void)state;
    static const int64_t counts[] = {1, 2, 31, 32, 33, 64, 71};
    enum { COLS = 48, PITCH = 51 };
    for (size_t k = 0; k < LN_COUNT(counts); k++) {
        const int64_t rows = counts[k];
        bool taken[71 * PITCH] = {false};
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < COLS; c++) {
                const int64_t at = ln_panel_at(rows, PITCH, r, c);
                assert_in_range(at, 0, (rows - 1) * PITCH + COLS - 1);
                assert_false(taken[at]);
                taken[at] = true;
                if (c % 16) assert_int_equal(at, ln_panel_at(rows, PITCH, r, c - 1) + 1);
                else if (r % 32) assert_int_equal(at, ln_panel_at(rows, PITCH, r - 1, c) + 16);
                else if (c)
                    assert_int_equal(at, ln_panel_at(rows, PITCH, LN_MIN(rows, r + 32) - 1, c - 1) + 1);
                else assert_int_equal(at, r * PITCH);
            }
    }
}
/* The same for the bytes of int8 pairs. Order of a panel: 64 columns of the high digits of each row, the
 * same columns of the low digits of each row, the next 64 columns; the sums of the rows come at the end. */
static void test_fixed_panel(void **state) {
    (void)state;
    static const int64_t counts[] = {1, 2, 31, 32, 33, 64, 71};
    enum { COLS = 160, P = 192, WORDS = P / 2 + 3, PITCH = 4 * WORDS + 20 };
    assert_int_equal(ln_i8pair_words(COLS), WORDS);
    for (size_t k = 0; k < LN_COUNT(counts); k++) {
        const int64_t rows = counts[k];
        char data[71 * PITCH] = {0};
        for (int64_t r = 0; r < rows; r++) {
            const ln_i8pair_layout at = ln_i8pair_panel(data, rows, PITCH, r);
            const int64_t first = r / 32 * 32, n = LN_MIN(rows - first, (int64_t)32);
            assert_ptr_equal(at.digits, data + first * PITCH + (r - first) * 64);
            assert_ptr_equal(at.terms, data + (first + n) * PITCH - 12 * (r - first + 1));
            assert_int_equal(at.lower, n * 64);
            assert_int_equal(at.step, n * 128);
            for (int64_t i = 0; i < P; i += 64)
                for (int digit = 0; digit < 2; digit++)
                    for (int64_t j = 0; j < 64; j++) {
                        int8_t *byte = at.digits + i / 64 * at.step + digit * at.lower + j;
                        assert_in_range(byte - (int8_t *)data, 0, rows * PITCH - 1);
                        assert_int_equal(*byte, 0);
                        *byte = 1;
                    }
            for (size_t j = 0; j < sizeof(ln_i8pair_sums); j++) {
                char *byte = (char *)at.terms + j;
                assert_in_range(byte - data, 0, rows * PITCH - 1);
                assert_int_equal(*byte, 0);
                *byte = 1;
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_panel_at), cmocka_unit_test(test_fixed_panel)};
    return cmocka_run_group_tests_name("panels", tests, NULL, NULL);
}
