/* The cases of products of int8 pairs, and main. The including file defines `check` first. Under
 * sanitizers there are fewer and smaller cases. */
static void test_forms(void **state) {
    (void)state;
    for (size_t w = 0; w < LN_COUNT(widths); w++)
        for (size_t g = 0; g < LN_COUNT(groups); g++)
            for (int dtype = 0; dtype < 3; dtype++) {
                if ((w + g + (size_t)dtype) % (size_t)fewer(1, 7)) continue;
                const ln_groups enc = {widths[w], groups[g]};
                check(random_in(1, 16), random_in(1, 100), enc.group * random_in(1, 6), enc, (ln_dtype)dtype,
                      random_in(-1, 2), false);
                check(random_in(17, 40), random_in(1, 60), enc.group * random_in(1, 6), enc, (ln_dtype)dtype,
                      random_in(-1, 2), false);
                check(random_in(1, 2), random_in(1, 100), enc.group * random_in(1, 6), enc, (ln_dtype)dtype,
                      -1, false);
                check(random_in(1, 20), random_in(1, 60), enc.group * random_in(1, 4), enc, (ln_dtype)dtype,
                      -1, true);
            }
}
static void test_rows(void **state) {
    (void)state;
    for (int rows = 1; rows <= 70; rows += (int)fewer(1, 5))
        check(rows, random_in(33, 80), rows % 2 ? 192 : 704, (ln_groups){widths[rows % 6], 64}, LN_BF16,
              random_in(-1, 2), false);
}
static void test_outputs(void **state) {
    (void)state;
    for (int D = 1; D <= 150; D += (int)fewer(1, 13))
        check(random_in(1, 20), D, 96, (ln_groups){widths[D % 6], 32}, LN_F16, random_in(-1, 2), false);
}
/* Columns, rows and outputs that are split into several blocks. */
static void test_long(void **state) {
    (void)state;
    static const int64_t rows[] = {1, 8, 35, 100};
    for (size_t w = 0; w < LN_COUNT(widths); w++)
        for (size_t i = 0; i < LN_COUNT(rows); i += (size_t)fewer(1, 2))
            check(rows[i], fewer(133, 70), i % 2 ? 1408 : 1376, (ln_groups){widths[w], i % 2 ? 128 : 32},
                  LN_BF16, -1, false);
    check(600, fewer(70, 20), 704, (ln_groups){4, 64}, LN_BF16, LN_F32, false); /* rows in two passes */
    check(fewer(291, 35), fewer(70, 40), 3072, (ln_groups){8, 32}, LN_F16, -1, false);
    check(193, fewer(70, 40), 704, (ln_groups){4, 64}, LN_BF16, -1, false); /* the last pass has one row */
}

#ifndef MORE_CASES
#define MORE_CASES
#endif
int main(void) {
    const struct CMUnitTest tests[] = {MORE_CASES cmocka_unit_test(test_forms), cmocka_unit_test(test_rows),
                                       cmocka_unit_test(test_outputs), cmocka_unit_test(test_long)};
    return cmocka_run_group_tests_name(SUITE, tests, NULL, NULL);
}
