/* Block floating point and int8 pairs: rounding errors, exact values, the order of elements, and that
 * encoding a decoded row changes nothing. */
/* run: quick */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "quant/block_float.h"

static uint32_t state = 1;
static uint32_t next(void) { return state = state * 1664525u + 1013904223u; }
/* Random values of any magnitude except infinities, NaN and denormals; now and then just below a power of
 * two, or zero. */
static float number(int spread) {
    uint32_t u = next(), e = 127 + (next() >> 8) % (uint32_t)spread - (uint32_t)spread / 2,
             kind = next() >> 28;
    uint32_t mantissa = kind == 0 ? 0x7fffffu - (u & (next() >> 31 ? 0x3ffu : 0x3fffu)) : u & 0x7fffffu;
    return kind == 1 ? 0 : ln_bits_f32((u & 0x80000000u) | e << 23 | mantissa);
}

enum { COLS = 256, WORDS = COLS / 2 + 2 * COLS / 32 };
static const int widths[] = {2, 3, 4, 5, 6, 8}, groups[] = {32, 64, 128};

static void check(const float *x, ln_groups e) {
    float row[WORDS], back[COLS], again[WORDS];
    ln_bfp_encode(x, COLS, e, row);
    ln_bfp_decode(row, COLS, e, back);
    const int16_t *v = (const int16_t *)(const void *)row;
    for (int g = 0; g < COLS / e.group; g++) {
        float most = 0, u = ln_bfp_scales(row, COLS)[g];
        double sum = 0;
        int largest = 0;
        for (int i = g * e.group; i < (g + 1) * e.group; i++) {
            most = fmaxf(most, fabsf(x[i]));
            sum += (double)back[i];
            largest = LN_MAX(largest, v[i] < 0 ? -v[i] : v[i]);
            assert_in_range((e.bits <= 4 ? 2047 : 32767) + v[i], 0, 2 * (e.bits <= 4 ? 2047 : 32767));
            assert_true(fabsf(back[i] - x[i]) <= (u > 0 ? u / 2 : LN_BFP_TINY));
            assert_true(x[i] == back[i] || x[i] < 0 || back[i] >= 0);
        }
        assert_true((double)ln_bfp_sums(row, COLS, e.group)[g] == sum);
        if (most < LN_BFP_TINY) assert_true(u == 0 && largest == 0);
        else
            assert_true(e.bits <= 4 ? largest >= 1 << 10 && u <= most * 0x1p-10f * 1.001f
                                    : largest >= 1 << 14 && u <= most * 0x1p-14f * 1.0001f);
    }
    ln_bfp_encode(back, COLS, e, again);
    assert_memory_equal(row, again, (size_t)ln_bfp_words(COLS, e.group) * 4);
}

static void test_rows(void **s) {
    (void)s;
    for (int n = 0; n < 3000; n++) {
        static const int spreads[] = {1, 4, 20, 200};
        const ln_groups e = {widths[n % 6], groups[n / 6 % 3]};
        float x[COLS];
        for (int i = 0; i < COLS; i++) x[i] = number(spreads[n / 18 % 4]);
        for (int i = 0; n % 7 == 0 && i < e.group; i++) x[i] = n % 2 ? 0 : x[i] * 0x1p-100f * 0x1p-20f;
        check(x, e);
    }
}

static void test_places(void **s) {
    (void)s;
    for (size_t w = 0; w < LN_COUNT(widths); w++) { /* pairs of 16-bit elements under a mask of a 32-bit
                                                       word: element 2 i + h is the code at bit 16 h + bits
                                                       i */
        const int bits = widths[w], per = 32 / bits;
        bool seen[32] = {0};
        for (int p = 0; p < 32; p++) {
            int64_t c = ln_bfp_column(bits, p);
            assert_true(c >= 0 && c < 32 && !seen[c]);
            seen[c] = true;
            if (bits == 4 || bits == 8) assert_int_equal(c % per * bits, p % per / 2 * bits + p % 2 * 16);
            c = ln_i8pair_column(bits, p); /* int8 pairs: element 4 h + i is the code at bit 8 i + 4 h;
                                              other widths are unpacked one by one, in order */
            assert_int_equal(c, bits == 4 ? p / 8 * 8 + (p % 4 * 8 + p % 8 / 4 * 4) / bits : p);
        }
    }
}

/* The largest magnitude of a group, on both sides of the value from which it counts as the next power of
 * two. */
static void test_edges(void **s) {
    (void)s;
    for (size_t w = 0; w < LN_COUNT(widths); w++) {
        const int n = widths[w] <= 4 ? 12 : 16;
        const float step = ln_bits_f32((uint32_t)(127 + 2 - n) << 23); /* of values from 1 to 2 */
        const float x[] = {2 - step * 0.5f, 2 - step * 0.51f, -2 + step * 0.5f, -2 + step * 0.51f, 1, 2},
                    want[] = {2, 2 - step, -2, -2 + step, 1, 2};
        for (size_t k = 0; k < LN_COUNT(x); k++) {
            float numbers[32] = {x[k]}, u, t;
            int16_t v[32];
            ln_bfp_group(numbers, (ln_groups){widths[w], 32}, v, &u, &t);
            assert_true(v[0] * u == want[k] && t == want[k]);
            assert_true(u == (fabsf(want[k]) == 2 ? 2 : 1) * step);
        }
    }
}

static void test_not_finite(void **s) {
    (void)s;
    static const float bad[] = {INFINITY, -INFINITY, NAN};
    for (size_t k = 0; k < 3; k++) {
        float x[COLS], row[WORDS];
        for (int i = 0; i < COLS; i++) x[i] = 1;
        x[70] = bad[k];
        ln_bfp_encode(x, COLS, (ln_groups){4, 64}, row);
        for (int g = 0; g < 4; g++) {
            const float u = ln_bfp_scales(row, COLS)[g], t = ln_bfp_sums(row, COLS, 64)[g];
            if (g == 1) assert_true(u != u && t != t);
            else assert_true(u == 0x1p-10f && t == 64);
        }
        for (int i = 64; i < 128; i++) assert_int_equal(((const int16_t *)(const void *)row)[i], 0);
    }
}

/* int8 pairs: every value is within half a unit, digits are in their range, sums are right, and encoding
 * the decoded row changes nothing. */
static void test_by_row(void **state_of_test) {
    (void)state_of_test;
    for (int k = 0; k < 600; k++) {
        enum { MOST = 160 };
        const int bits = widths[k % 6], cols = 32 * (1 + k % 5), P = (int)ln_i8pair_digit_bytes(cols),
                  radix = ln_i8pair_radix(bits);
        float x[MOST], back[MOST], row[MOST + 64], again[MOST + 64], most = 0;
        memset(row, 0xa5, sizeof row);
        memset(again, 0xa5, sizeof again);
        for (int i = 0; i < cols; i++) x[i] = number(1 + k % 30), most = fmaxf(most, fabsf(x[i]));
        ln_i8pair_encode(x, cols, bits, row);
        ln_i8pair_decode(row, cols, bits, back);
        ln_i8pair_encode(back, cols, bits, again);
        assert_memory_equal(row, again, sizeof row);
        const ln_i8pair_sums *terms = ln_i8pair_row_sums(row, cols);
        const int8_t *h = (const int8_t *)row, *l = h + P;
        int32_t sum_h = 0, sum_l = 0;
        for (int p = 0; p < P; p++) {
            sum_h += h[p], sum_l += l[p];
            assert_in_range(128 + h[p], 1, 255);
            assert_in_range(radix / 2 + l[p], 0, radix);
            if (p < cols) assert_true(fabsf(back[p] - x[p]) <= terms->u * 0.51f + LN_BFP_TINY);
            else assert_true(h[p] == 0 && l[p] == 0);
        }
        assert_true(terms->h == sum_h && terms->l == sum_l);
        assert_true(most < LN_BFP_TINY ? terms->u == 0 : terms->u == most / ln_i8pair_row_max(bits));
    }
}

/* Limits of a row's unit, ties, and values that are not finite. */
static void test_by_row_edges(void **state_of_test) {
    (void)state_of_test;
    static const float largest[] = {LN_BFP_TINY, LN_BFP_TINY * 0x1.fffffep-1f, INFINITY, -INFINITY, NAN};
    for (size_t w = 0; w < LN_COUNT(widths); w++) {
        const int bits = widths[w];
        const float most = ln_i8pair_row_max(bits), want[8] = {most, -most, 0, 2, 2, 0, -2, -2};
        float row[64], back[32],
            x[32] = {most, -most, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f}; /* the unit is 1 */
        ln_i8pair_encode(x, 32, bits, row);
        ln_i8pair_decode(row, 32, bits, back);
        assert_true(ln_i8pair_row_sums(row, 32)->u == 1);
        for (int i = 0; i < 8; i++) assert_true(back[i] == want[i]);
        for (size_t k = 0; k < LN_COUNT(largest); k++) {
            float u, by;
            for (int i = 0; i < 32; i++) x[i] = i == 5 ? largest[k] : 0x1p-100f;
            ln_i8pair_encode(x, 32, bits, row);
            ln_i8pair_scale(ln_f32_bits(largest[k]) & 0x7fffffffu, bits, &u, &by);
            assert_true(k == 0 ? u == LN_BFP_TINY / most && by == most / LN_BFP_TINY
                               : by == 0 && (k == 1 ? u == 0 : u != u));
            assert_memory_equal(&ln_i8pair_row_sums(row, 32)->u, &u, sizeof u);
            for (int p = 0; p < 128 && k > 0; p++) assert_int_equal(((const int8_t *)row)[p], 0);
        }
    }
}

/* 128 sum(l) / k, rounded to nearest, for every sum that a row may have; the constant and the product are
 * each rounded by 2^-24 of the result; the same for both signs. */
static void test_rest(void **state_of_test) {
    (void)state_of_test;
    assert_true((int64_t)LN_I8PAIR_MAX_COLS * (127 + 128) * 255 <=
                INT32_MAX); /* sum(h L + l H), before the contribution of the zero point is subtracted */
    for (size_t w = 0; w < LN_COUNT(widths); w++) {
        const int bits = widths[w], k = ln_i8pair_radix(bits), last = k / 2 * LN_I8PAIR_MAX_COLS;
        for (int l = 0; l <= last; l += l < 4096 ? 1 : 997) {
            const double want = 128.0 * l / k;
            assert_true(fabs(ln_i8pair_correction(bits, l) - want) <= 0.5 + want * 0x1p-23);
            assert_int_equal(ln_i8pair_correction(bits, -l), -ln_i8pair_correction(bits, l));
        }
    }
}

/* The unit follows from the largest magnitude at either end of any group. That is rounded once, 1 / d once
 * more, e twice more, each time by at most 2^-24. */
static void test_units(void **state_of_test) {
    (void)state_of_test;
    for (int k = 0; k < 6000; k++) {
        const int bits = widths[k % 6], n = 1 + k % 4;
        const double most = (double)ln_i8pair_weight_max(bits);
        float s[4], b[4], by, e;
        double largest = 0;
        for (int g = 0; g < n; g++) {
            s[g] = number(20), b[g] = number(20);
            largest = fmax(largest,
                           fmax(fabs((double)b[g]), fabs((double)s[g] * ((1 << bits) - 1) + (double)b[g])));
        }
        ln_i8pair_output_scale(s, b, LN_F32, LN_F32, n, bits, &by, &e);
        if (largest == 0) assert_true(by == 0 && e == 0);
        else
            assert_true(fabs((double)by * largest / most - 1) < 2.01 * 0x1p-24 &&
                        fabs((double)e * most / (largest * ln_i8pair_radix(bits)) - 1) < 3.01 * 0x1p-24);
    }
    static const float limits[][2] = {{0, LN_BFP_TINY}, {0, -LN_BFP_TINY * 0x1.fffffep-1f},
                                      {INFINITY, 1},    {1, -INFINITY},
                                      {NAN, 1},         {1, NAN},
                                      {3e38f, 1}}; /* s, b */
    for (size_t k = 0; k < 6 * LN_COUNT(limits); k++) {
        const float *of = limits[k / 6], s[2] = {0, of[0]}, b[2] = {0, of[1]};
        const int bits = widths[k % 6];
        float by, e;
        int H, L;
        ln_i8pair_output_scale(s, b, LN_F32, LN_F32, 2, bits, &by, &e);
        if (k / 6 == 0) assert_true(by == ln_i8pair_weight_max(bits) / LN_BFP_TINY && e > 0);
        else assert_true(by == 0 && (k / 6 == 1 ? e == 0 : e != e));
        for (uint32_t q = 0; q < 1u << bits && by == 0; q++) { /* such a weight is zero */
            ln_i8pair_weight(bits, of[0], of[1], by, q, &H, &L);
            assert_true(ln_i8pair_radix(bits) * (H - ln_i8pair_zero_point(bits)) + L == 0 && H >= 0 &&
                        H <= 255 && L >= 0 && L <= 255);
        }
    }
}

/* Groups that are closest to overflow, with d = 1: every integer m, and almost half a unit more and less,
 * with b such that the value at one end of the codes is the largest. In radix 30, H is largest there, and
 * L takes all its values within k of that b; both are linear in the code, so the extremes are at the ends. */
static void test_weight_limits(void **state_of_test) {
    (void)state_of_test;
    for (uint32_t q = 127; q <= 129; q++) { /* m is 64, c is 0: halves are rounded up, as by VPMULHRSW */
        int H, L;
        ln_i8pair_weight(8, 0.5f, -64, 1, q, &H, &L);
        assert_int_equal(256 * (H - 128) + L, q == 129);
    }
    for (size_t w = 0; w < LN_COUNT(widths); w++) {
        const int bits = widths[w], top = (1 << bits) - 1, half = bits <= 4 ? 1 : 1 << (bits - 1),
                  near = bits <= 4 ? 30 : 0;
        const float most = ln_i8pair_weight_max(bits);
        const int m_most = (int)(2 * most * (float)half / (float)top);
        assert_true(most > 64 * (float)ln_i8pair_radix(bits) &&
                    ln_i8pair_row_max(bits) >
                        64 * (float)ln_i8pair_radix(bits)); /* |H - zero point| and |h| use all seven bits */
        assert_in_range(m_most, 0, 32766); /* in radix 256, m is a signed 16-bit factor of VPMULHRSW;
                                              rounding adds at most one */
        for (int i = 0; i < 3 * (2 * m_most + 1); i++) {
            const float s = ((float)(i / 3 - m_most) + (float)(i % 3 - 1) * 0.499f) / (float)half,
                        across = s * (float)top;
            const float lo = fmaxf(-most, -most - across), hi = fminf(most, most - across);
            for (int j = 0; j <= 2 * near + 1 && lo <= hi; j++)
                for (int q = 0; q <= top; q += top) {
                    const float b = j <= near ? lo + (float)j : hi - (float)(j - near - 1);
                    int H, L;
                    ln_i8pair_weight(bits, s, b, 1, (uint32_t)q, &H, &L);
                    if (H < 0 || H > 255 || L < 0 || L > 255)
                        fail_msg("%d bits: s %g, b %g, code %d: H %d, L %d", bits, (double)s, (double)b, q, H,
                                 L);
                }
        }
    }
}

/* H and L are bytes for every group, given the unit of its output. The weight that they encode is s q + b
 * with these errors, in units. Radix 30: m is off by 1/2 for each code from the middle on, and c by 1/2.
 * Radix 256: m is off by 1/2, which is scaled by the code's distance from the middle code in halves of the
 * range; its product is off by 1/2 except at the middle code; and c is off by 1/2. s, b and the middle are
 * floats of at most 2, 1 and 1 times the largest magnitude (s times the last code), off by 2^-24 of that.
 * Radix 30: L in the middle of the codes is within k / 2 of 128, as ln_i8pair_correction assumes. */
static void test_weights(void **state_of_test) {
    (void)state_of_test;
    for (int k = 0; k < 200000; k++) {
        const int bits = widths[k % 6], top = (1 << bits) - 1, n = 1 + k % 4;
        float s[4], b[4], by, e;
        for (int g = 0; g < n; g++) {
            const float first = (float)(int32_t)next() * 0x1p-31f,
                        last = k % 3 ? (float)(int32_t)next() * 0x1p-31f : -first;
            b[g] = first, s[g] = (last - first) / (float)top;
        }
        ln_i8pair_output_scale(s, b, LN_F32, LN_F32, n, bits, &by, &e);
        for (int g = 0, first_L = 0; g < n && by > 0; g++)
            for (int q = 0; q <= top; q += k % 2 ? top : 1) {
                int H, L;
                ln_i8pair_weight(bits, s[g], b[g], by, (uint32_t)q, &H, &L);
                assert_in_range(H, 0, 255);
                assert_in_range(L, 0, 255);
                const double W = ln_i8pair_radix(bits) * (H - ln_i8pair_zero_point(bits)) + L,
                             want = ((double)s[g] * q + (double)b[g]) * (double)by;
                const double half = (1 << bits) / 2,
                             rounded = bits <= 4 ? fabs(q - top / 2.0) / 2 + 0.5
                                                 : fabs(q - half) / half / 2 + (q == half ? 0.5 : 1);
                assert_true(fabs(W - want) <= rounded + 4.01 * 0x1p-24 * (double)ln_i8pair_weight_max(bits));
                if (q == 0) first_L = L;
                if (q == top && bits <= 4) assert_in_range(first_L + L - 256 + 30, 0, 60);
            }
    }
}

/* A unit does not depend on whether denormals count as zero on the thread that computes it, as in a pool:
 * here a denormal breaks a tie. */
static void test_unit_denormal(void **state) {
    (void)state;
    const float s = 1 + 12 * 0x1p-23f, none = 0, tiny = 1e-42f;
    float by[2], e[2];
    ln_i8pair_output_scale(&s, &none, LN_F32, LN_F32, 1, 4, &by[0], &e[0]);
    ln_i8pair_output_scale(&s, &tiny, LN_F32, LN_F32, 1, 4, &by[1], &e[1]);
    assert_memory_equal(&by[0], &by[1], sizeof by[0]);
    assert_memory_equal(&e[0], &e[1], sizeof e[0]);
    static const float scales[] = {0, 0x1.fffffcp-127f,
                                   0x1p-126f}; /* the largest denormal and the next float: 255 times either
                                                  is 2^-22 of b, more than rounding hides */
    const float b = LN_BFP_TINY;
    for (int k = 1; k < 3; k++) {
        for (int i = 0; i < 2; i++)
            ln_i8pair_output_scale(&scales[i * k], &b, LN_F32, LN_F32, 1, 8, &by[i], &e[i]);
        assert_true((by[0] == by[1]) == (k == 1) && (e[0] == e[1]) == (k == 1));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_row),        cmocka_unit_test(test_by_row_edges),
        cmocka_unit_test(test_rest),          cmocka_unit_test(test_units),
        cmocka_unit_test(test_weight_limits), cmocka_unit_test(test_weights),
        cmocka_unit_test(test_rows),          cmocka_unit_test(test_places),
        cmocka_unit_test(test_edges),         cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_unit_denormal)};
    return cmocka_run_group_tests_name("fixed-point rows", tests, NULL, NULL);
}
