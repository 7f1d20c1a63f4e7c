/* Fixed-point rows: what is lost, what is kept, the order, and that encoding what was decoded changes nothing. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/fixed.h"

static uint32_t state = 1;
static uint32_t next(void) { return state = state * 1664525u + 1013904223u; }
/* Numbers of any size but for infinities, NaN and denormals; now and then just below a power of two, or zero. */
static float number(int spread) {
    uint32_t u = next(), e = 127 + (next() >> 8) % (uint32_t)spread - (uint32_t)spread / 2, kind = next() >> 28;
    uint32_t mantissa = kind == 0 ? 0x7fffffu - (u & (next() >> 31 ? 0x3ffu : 0x3fffu)) : u & 0x7fffffu;
    return kind == 1 ? 0 : ln_bits_f32((u & 0x80000000u) | e << 23 | mantissa);
}

enum { COLS = 256, WORDS = COLS / 2 + 2 * COLS / 32 };
static const int widths[] = {2, 3, 4, 5, 6, 8}, groups[] = {32, 64, 128};

static void check(const float *x, ln_enc e) {
    float row[WORDS], back[COLS], again[WORDS];
    ln_fixed_encode(x, COLS, e, row);
    ln_fixed_decode(row, COLS, e, back);
    const int16_t *v = (const int16_t *)(const void *)row;
    for (int g = 0; g < COLS / e.group; g++) {
        float most = 0, u = ln_fixed_scales(row, COLS)[g];
        double sum = 0;
        int largest = 0;
        for (int i = g * e.group; i < (g + 1) * e.group; i++) {
            most = fmaxf(most, fabsf(x[i]));
            sum += (double)back[i];
            largest = LN_MAX(largest, v[i] < 0 ? -v[i] : v[i]);
            assert_in_range((e.bits <= 4 ? 2047 : 32767) + v[i], 0, 2 * (e.bits <= 4 ? 2047 : 32767));
            assert_true(fabsf(back[i] - x[i]) <= (u > 0 ? u / 2 : LN_FIXED_TINY));
            assert_true(x[i] == back[i] || x[i] < 0 || back[i] >= 0);
        }
        assert_true((double)ln_fixed_sums(row, COLS, e.group)[g] == sum);
        if (most < LN_FIXED_TINY) assert_true(u == 0 && largest == 0);
        else assert_true(e.bits <= 4 ? largest >= 1 << 10 && u <= most * 0x1p-10f * 1.001f : largest >= 1 << 14 && u <= most * 0x1p-14f * 1.0001f);
    }
    ln_fixed_encode(back, COLS, e, again);
    assert_memory_equal(row, again, (size_t)ln_fixed_words(COLS, e.group) * 4);
}

static void test_rows(void **s) {
    (void)s;
    for (int n = 0; n < 3000; n++) {
        static const int spreads[] = {1, 4, 20, 200};
        const ln_enc e = {widths[n % 6], groups[n / 6 % 3]};
        float x[COLS];
        for (int i = 0; i < COLS; i++) x[i] = number(spreads[n / 18 % 4]);
        for (int i = 0; n % 7 == 0 && i < e.group; i++) x[i] = n % 2 ? 0 : x[i] * 0x1p-100f * 0x1p-20f;
        check(x, e);
    }
}

static void test_places(void **s) {
    (void)s;
    for (size_t w = 0; w < LN_COUNT(widths); w++) { /* pairs of 16 bits under a mask of a word: place 2 i + h holds the code at bit 16 h + bits i */
        const int bits = widths[w], per = 32 / bits;
        bool seen[32] = {0};
        for (int p = 0; p < 32; p++) {
            int64_t c = ln_fixed_column(bits, p);
            assert_true(c >= 0 && c < 32 && !seen[c]);
            seen[c] = true;
            if (bits == 4 || bits == 8) assert_int_equal(c % per * bits, p % per / 2 * bits + p % 2 * 16);
        }
    }
}

/* What the largest of a group becomes, on both sides of the number that counts as the next power of two. */
static void test_edges(void **s) {
    (void)s;
    for (size_t w = 0; w < LN_COUNT(widths); w++) {
        const int n = widths[w] <= 4 ? 12 : 16;
        const float step = ln_bits_f32((uint32_t)(127 + 2 - n) << 23); /* of numbers from 1 to 2 */
        const float x[] = {2 - step * 0.5f, 2 - step * 0.51f, -2 + step * 0.5f, -2 + step * 0.51f, 1, 2}, want[] = {2, 2 - step, -2, -2 + step, 1, 2};
        for (size_t k = 0; k < LN_COUNT(x); k++) {
            float numbers[32] = {x[k]}, u, t;
            int16_t v[32];
            ln_fixed_group(numbers, (ln_enc){widths[w], 32}, v, &u, &t);
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
        ln_fixed_encode(x, COLS, (ln_enc){4, 64}, row);
        for (int g = 0; g < 4; g++) {
            const float u = ln_fixed_scales(row, COLS)[g], t = ln_fixed_sums(row, COLS, 64)[g];
            if (g == 1) assert_true(u != u && t != t);
            else assert_true(u == 0x1p-10f && t == 64);
        }
        for (int i = 64; i < 128; i++) assert_int_equal(((const int16_t *)(const void *)row)[i], 0);
    }
}

/* By row: every number within half a unit, limbs in their range, sums, and that encoding what was decoded changes nothing. */
static void test_by_row(void **state_of_test) {
    (void)state_of_test;
    for (int k = 0; k < 600; k++) {
        enum { MOST = 160 };
        const int bits = widths[k % 6], cols = 32 * (1 + k % 5), P = (int)ln_fixed_limb(cols), radix = ln_fixed_radix(bits);
        float x[MOST], back[MOST], row[MOST + 64], again[MOST + 64], most = 0;
        memset(row, 0xa5, sizeof row);
        memset(again, 0xa5, sizeof again);
        for (int i = 0; i < cols; i++) x[i] = number(1 + k % 30), most = fmaxf(most, fabsf(x[i]));
        ln_fixed_row_encode(x, cols, bits, row);
        ln_fixed_row_decode(row, cols, bits, back);
        ln_fixed_row_encode(back, cols, bits, again);
        assert_memory_equal(row, again, sizeof row);
        const ln_fixed_terms *terms = ln_fixed_row_terms(row, cols);
        const int8_t *h = (const int8_t *)row, *l = h + P;
        int32_t sum_h = 0, sum_l = 0;
        for (int p = 0; p < P; p++) {
            sum_h += h[p], sum_l += l[p];
            assert_in_range(128 + h[p], 1, 255);
            assert_in_range(radix / 2 + l[p], 0, radix);
            if (p < cols) assert_true(fabsf(back[p] - x[p]) <= terms->u * 0.51f + LN_FIXED_TINY);
            else assert_true(h[p] == 0 && l[p] == 0);
        }
        assert_true(terms->h == sum_h && terms->l == sum_l);
        assert_true(most < LN_FIXED_TINY ? terms->u == 0 : terms->u == most / ln_fixed_row_most(bits));
    }
}

/* H and L are bytes whatever a group is like, as long as the unit is its output's, and their number is near s q + b. */
static void test_weights(void **state_of_test) {
    (void)state_of_test;
    for (int k = 0; k < 200000; k++) {
        const int bits = widths[k % 6], top = (1 << bits) - 1, n = 1 + k % 4;
        float s[4], b[4], by, e;
        for (int g = 0; g < n; g++) {
            const float first = (float)(int32_t)next() * 0x1p-31f, last = k % 3 ? (float)(int32_t)next() * 0x1p-31f : -first;
            b[g] = first, s[g] = (last - first) / (float)top;
        }
        ln_fixed_unit(s, b, LN_F32, n, bits, &by, &e);
        for (int g = 0; g < n && by > 0; g++)
            for (int q = 0; q <= top; q += k % 2 ? top : 1) {
                int H, L;
                ln_fixed_weight(bits, s[g], b[g], by, (uint32_t)q, &H, &L);
                assert_in_range(H, 0, 255);
                assert_in_range(L, 0, 255);
                const double W = ln_fixed_radix(bits) * (H - ln_fixed_middle(bits)) + L, want = ((double)s[g] * q + (double)b[g]) * (double)by;
                assert_true(fabs(W - want) <= (bits <= 4 ? 4.3 : 1.6));
            }
    }
}

/* A unit does not depend on whether denormal numbers count where it is made: here one breaks a tie, and pools of threads make them zero. */
static void test_unit_denormal(void **state) {
    (void)state;
    const float s = 1 + 12 * 0x1p-23f, none = 0, tiny = 1e-42f;
    float by[2], e[2];
    ln_fixed_unit(&s, &none, LN_F32, 1, 4, &by[0], &e[0]);
    ln_fixed_unit(&s, &tiny, LN_F32, 1, 4, &by[1], &e[1]);
    assert_memory_equal(&by[0], &by[1], sizeof by[0]);
    assert_memory_equal(&e[0], &e[1], sizeof e[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_by_row), cmocka_unit_test(test_weights), cmocka_unit_test(test_rows), cmocka_unit_test(test_places), cmocka_unit_test(test_edges), cmocka_unit_test(test_not_finite),
                                       cmocka_unit_test(test_unit_denormal)};
    return cmocka_run_group_tests_name("fixed-point rows", tests, NULL, NULL);
}
