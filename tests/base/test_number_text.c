/* Numbers in text: strict parsing, and correct rounding in both directions, compared with the C library. */
/* run: slow asan */
#include "cm.h"
#include "base/base.h"

#include <ctype.h>
#include <float.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void integers(void **state) {
    (void)state;
    static const char *const bad[] = {
        "", " 1", "1 ", "1x", "1e3", "0x10", "+1", "--1", "-", "01", "18446744073709551616", "1.0", "\t1"};
    int64_t i;
    uint64_t u;
    for (size_t k = 0; k < LN_COUNT(bad); k++) {
        if (ln_parse_u64(bad[k], strlen(bad[k]), &u) || ln_parse_i64(bad[k], strlen(bad[k]), &i))
            fail_msg("'%s' was accepted", bad[k]);
    }
    assert_false(ln_parse_u64("-1", 2, &u));
    assert_true(ln_parse_u64("18446744073709551615", 20, &u) && u == UINT64_MAX);
    assert_true(ln_parse_u64("0", 1, &u) && u == 0);
    assert_true(ln_parse_i64("-9223372036854775808", 20, &i) && i == INT64_MIN);
    assert_true(ln_parse_i64("9223372036854775807", 19, &i) && i == INT64_MAX);
    assert_false(ln_parse_i64("9223372036854775808", 19, &i));
    assert_false(ln_parse_i64("-9223372036854775809", 20, &i));
    assert_true(ln_parse_i64("123456", 3, &i) && i == 123);
}

static void same_double(const char *text) {
    double mine = -1, theirs = strtod(text, NULL);
    bool ok = ln_parse_f64(text, strlen(text), &mine);
    if (!isfinite(theirs)) {
        if (ok) fail_msg("'%.80s' was accepted as %a", text, mine);
        return;
    }
    if (!ok || memcmp(&mine, &theirs, 8) != 0) fail_msg("'%.80s': %a instead of %a", text, mine, theirs);
}

static uint64_t rng_state = 88172645463325252u;
static uint64_t rng(void) {
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    return rng_state ^= rng_state << 17;
}

static void doubles_from_text(void **state) {
    (void)state;
    static const char *const good[] = {"0",
                                       "-0",
                                       "0.0",
                                       "-0.0e5",
                                       "1",
                                       "1e22",
                                       "1e23",
                                       "123456789012345678",
                                       "9007199254740993",
                                       "9007199254740992.5",
                                       "0.1",
                                       "1e-5",
                                       "2.2250738585072011e-308",
                                       "2.2250738585072014e-308",
                                       "4.9406564584124654e-324",
                                       "2.4703282292062327e-324",
                                       "2.4703282292062328e-324",
                                       "1e-400",
                                       "1.7976931348623157e308",
                                       "1.7976931348623158e308",
                                       "1.7976931348623159e308",
                                       "1e308",
                                       "1e309",
                                       "1e400",
                                       "-1e400",
                                       "8.5e-320",
                                       "0.000000000000000000000000000000000000001e39",
                                       "100000000000000000000000000000000000000000000e-44",
                                       "1e99999999999999999999",
                                       "1e-99999999999999999999",
                                       "0e99999999999999999999",
                                       "1E+2",
                                       "1e+2"};
    for (size_t i = 0; i < LN_COUNT(good); i++) same_double(good[i]);
    static const char *const bad[] = {"",    " 1",  "1 ",  "1.",    ".5",    "01",       "1e",
                                      "1e+", "+1",  "nan", "NaN",   "inf",   "Infinity", "0x1p3",
                                      "1,5", "--1", "-",   "1.5.2", "1e5e5", "-.5"};
    for (size_t i = 0; i < LN_COUNT(bad); i++) {
        double v;
        if (ln_parse_f64(bad[i], strlen(bad[i]), &v)) fail_msg("'%s' was accepted", bad[i]);
    }
    char text[2000];
    for (int i = 0; i < 5000; i++) {
        int digits = 1 + (int)(rng() % 25), at = 0;
        for (int k = 0; k < digits; k++) {
            int d = (int)(rng() % 10);
            text[at++] = (char)('0' + (k == 0 && d == 0 ? 1 : d));
            if (k == 0 && digits > 1) text[at++] = '.';
        }
        (void)snprintf(text + at, 16, "e%d", (int)(rng() % 660) - 340);
        same_double(text);
    }
    for (int i = 0; i < 2000; i++) { /* long numbers, of all magnitudes and beyond them */
        int digits = 20 + (int)(rng() % 1500), at = 0;
        for (int k = 0; k < digits; k++) text[at++] = (char)('0' + (k ? rng() % 10 : 1 + rng() % 9));
        (void)snprintf(text + at, 16, "e%d", (int)(rng() % 680) - 345 - digits);
        same_double(text);
    }
    /* The exact decimal expansion of a midpoint between two doubles, and its neighbours. */
    for (int i = 0; i < 30; i++) {
        uint64_t u = rng() & 0x7fffffffffffffffu;
        double v;
        if (i % 3 == 0) u = (u & 0xfffffffffffffu) | 0x0010000000000000u * (rng() % 3);
        memcpy(&v, &u, 8);
        if (!isfinite(v)) continue;
        long double mid = (long double)v + ((long double)nextafter(v, INFINITY) - v) / 2;
        int n = snprintf(text, sizeof text, "%.1150Le", mid);
        char *e = strchr(text, 'e');
        same_double(text);
        for (int c = -1; c <= 1; c += 2) { /* the last digit one lower and one higher */
            char other[2000];
            memcpy(other, text, (size_t)n + 1);
            char *last = other + (e - text) - 1;
            if (*last == '0' && c < 0) continue;
            *last = (char)(*last + c);
            same_double(other);
        }
    }
}

/* A document of long numbers is read in time that is proportional to its length: a number of 700 digits takes
 * at most as many comparisons of big integers as the estimate leaves, not one for each bit of a double. The
 * bound allows 20 times what an idle host needs. */
static void long_numbers_take_little_time(void **state) {
    (void)state;
    enum { NUMBERS = 1000 };
    char text[800];
    double v, sum = 0, start = ln_now();
    for (int i = 0; i < NUMBERS; i++) {
        for (int k = 0; k < 700; k++) text[k] = (char)('1' + rng() % 9);
        (void)snprintf(text + 700, 16, "e%d", (int)(rng() % 600) - 300 - 700);
        assert_true(ln_parse_f64(text, strlen(text), &v));
        sum += v;
    }
    double us = 1e6 * (ln_now() - start) / NUMBERS;
    print_message("  a number of 700 digits takes %.1f us\n", us);
    assert_true(sum > 0);
    if (!getenv("LN_SANITIZED") && !getenv("LN_EMULATED")) assert_true(us < 2000);
}

static void doubles_to_text(void **state) {
    (void)state;
    ln_str s = {0};
    static const struct {
        double v;
        const char *text;
    } known[] = {{0, "0"},
                 {-0.0, "-0.0"},
                 {1, "1"},
                 {-1.5, "-1.5"},
                 {0.1, "0.1"},
                 {1e22, "1e22"},
                 {1e16, "10000000000000000"},
                 {123456.789, "123456.789"},
                 {1e-5, "0.00001"},
                 {1.25e-7, "1.25e-7"},
                 {5e-324, "5e-324"},
                 {DBL_MAX, "1.7976931348623157e308"},
                 {0.3, "0.3"},
                 {1.0 / 3, "0.3333333333333333"},
                 {NAN, "null"},
                 {INFINITY, "null"},
                 {-INFINITY, "null"},
                 {2e-5, "0.00002"},
                 {100, "100"},
                 {9007199254740993.0, "9007199254740992"}};
    for (size_t i = 0; i < LN_COUNT(known); i++) {
        s.len = 0;
        ln_str_double(&s, known[i].v);
        assert_string_equal(s.data, known[i].text);
    }
    for (int i = 0; i < 6000; i++) {
        uint64_t u = rng();
        if (i % 4 == 0) u &= 0x800fffffffffffffu; /* subnormals */
        if (i % 4 == 1) u &= 0xfff0000000000000u; /* powers of two */
        double v, back;
        memcpy(&v, &u, 8);
        if (!isfinite(v)) continue;
        s.len = 0;
        ln_str_double(&s, v);
        back = strtod(s.data, NULL);
        if (memcmp(&back, &v, 8) != 0) fail_msg("%a became '%s'", v, s.data);
        char fewer[40];
        for (int p = 1; p < 17; p++) { /* no rounding to fewer digits reads back as the same value */
            (void)snprintf(fewer, sizeof fewer, "%.*e", p - 1, v);
            if (strtod(fewer, NULL) != v) continue;
            int digits = 0, zeros = 0;
            for (const char *c = s.data; *c && *c != 'e'; c++) {
                if (*c < '0' || *c > '9' || (digits == 0 && *c == '0')) continue;
                digits++;
                zeros = *c == '0' ? zeros + 1 : 0;
            }
            if (digits - zeros > p) fail_msg("%a became '%s', '%s' is shorter", v, s.data, fewer);
            break;
        }
    }
    ln_str_free(&s);
}

static void the_locale_has_no_say(void **state) {
    (void)state;
    if (!setlocale(LC_ALL, "de_DE.UTF-8") && !setlocale(LC_ALL, "fr_FR.UTF-8") &&
        !setlocale(LC_ALL, "de_DE")) {
        print_message("SKIP: no locale with a decimal comma is installed\n");
        return;
    }
    ln_str s = {0};
    double v = 0;
    ln_str_double(&s, 1.0 / 3);
    assert_string_equal(s.data, "0.3333333333333333");
    assert_true(ln_parse_f64("2.5", 3, &v) && v == 2.5);
    ln_str_free(&s);
    setlocale(LC_ALL, "C");
}

/* The fewest digits, from 15 on, that read back: by printf and strtod alone. */
static void shortest_by_printf(char text[40], double v) {
    for (int n = 15; n <= 17; n++) {
        (void)snprintf(text, 40, "%.*e", n - 1, v);
        if (strtod(text, NULL) == v) return;
        char *last = strchr(text, 'e') - 1;
        if (*last < '9') {
            ++*last;
            if (strtod(text, NULL) == v) return;
        }
    }
    (void)snprintf(text, 40, "%.16e", v);
}

/* Numbers of the size of log-probabilities, near powers of two and ten and with few digits: the digits are
 * those that printf finds. */
static void numbers_are_shortest(void **state) {
    (void)state;
    uint64_t seed = 1;
    for (int i = 0; i < 300000; i++) {
        char text[40], digits[40];
        ln_str s = {0};
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        const double unit = (double)(seed >> 11) * 0x1p-53;
        double v = i % 5 == 0   ? unit * 20
                   : i % 5 == 1 ? ldexp(0.5 + unit / 2, (int)(seed % 90) - 40)
                   : i % 5 == 2
                       ? ldexp(1, (int)(seed % 70) - 30) * (1 + (double)((int)(seed >> 40 & 7) - 3) * 0x1p-52)
                   : i % 5 == 3 ? (double)(seed >> 50) / 1000
                                : pow(10, (int)(seed % 24) - 10) * (1 - (double)(seed >> 60) * 0x1p-53);
        if (v == 0) continue;
        shortest_by_printf(text, v);
        ln_str_double(&s, v);
        double back = strtod(s.data, NULL);
        if (back != v) fail_msg("%.17g is written as %s", v, s.data);
        /* compares digits without the point, the zeros at both ends and the exponent */
        char *to = digits;
        for (const char *p = s.data; *p && *p != 'e'; p++)
            if (isdigit((unsigned char)*p) && (to > digits || *p != '0')) *to++ = *p;
        while (to > digits && to[-1] == '0') to--;
        *to = '\0';
        to = text;
        for (const char *p = text; *p && *p != 'e'; p++)
            if (isdigit((unsigned char)*p)) *to++ = *p;
        while (to > text && to[-1] == '0') to--;
        *to = '\0';
        if (strcmp(digits, text) != 0) fail_msg("%.17g is written as %s, not %s", v, digits, text);
        ln_str_free(&s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(integers),
                                       cmocka_unit_test(doubles_from_text),
                                       cmocka_unit_test(long_numbers_take_little_time),
                                       cmocka_unit_test(doubles_to_text),
                                       cmocka_unit_test(numbers_are_shortest),
                                       cmocka_unit_test(the_locale_has_no_say)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
