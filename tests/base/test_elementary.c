/* Arithmetic: every f16 value, rounding to bf16, the elementary functions compared with the C library,
 * Philox compared with its published test vectors. */
/* run: quick */
#include "cm.h"
#include "base/base.h"
#include "base/elementary.h"
#include "base/exp_sum.h"

#include <stdio.h>

static uint64_t rng_state = 0x9e3779b97f4a7c15u;
static uint64_t rng(void) {
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    return rng_state ^= rng_state << 17;
}
static double uniform(double lo, double hi) { return lo + (hi - lo) * ((double)(rng() >> 11) * 0x1p-53); }

/* The value of f16 bits, from the definition of the format. */
static double f16_value(unsigned h) {
    int e = (int)(h >> 10 & 31), m = (int)(h & 1023);
    double v = e == 31 ? (m ? (double)NAN : (double)INFINITY) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
    return h & 0x8000 ? -v : v;
}

static void f16_all_values(void **state) {
    (void)state;
    for (unsigned h = 0; h < 65536; h++) {
        double want = f16_value(h);
        float got = ln_f16_f32((uint16_t)h);
        if (want != want) {
            assert_true(got != got);
            assert_true(ln_f16_f32(ln_f32_f16(got)) != ln_f16_f32(ln_f32_f16(got)));
            continue;
        }
        if ((double)got != want || !!__builtin_signbit(got) != h >> 15) fail_msg("f16 %04x", h);
        if (ln_f32_f16(got) != h) fail_msg("f16 %04x does not come back", h);
    }
}

/* Rounds to nearest, ties to even: compared with a search among all f16 values. */
static void f16_rounding(void **state) {
    (void)state;
    for (unsigned h = 0; h < 0x7bff; h++) { /* values between each f16 value and the next one */
        double a = f16_value(h), b = f16_value(h + 1), mid = (a + b) / 2;
        unsigned even = h & 1 ? h + 1 : h;
        float m = (float)mid;
        assert_true((double)m == mid);
        assert_int_equal(ln_f32_f16(m), even);
        assert_int_equal(ln_f32_f16(nextafterf(m, 0)), h);
        assert_int_equal(ln_f32_f16(nextafterf(m, 1e9f)), h + 1);
        assert_int_equal(ln_f32_f16(-m), even | 0x8000);
    }
    assert_int_equal(ln_f32_f16(65519.996f), 0x7bff);
    assert_int_equal(ln_f32_f16(65520.0f), 0x7c00);
    assert_int_equal(ln_f32_f16(-1e30f), 0xfc00);
    assert_int_equal(ln_f32_f16(0x1p-26f), 0);
    assert_int_equal(ln_f32_f16(0x1p-25f), 0);
    assert_int_equal(ln_f32_f16(0x1.000002p-25f), 1);
}

static void bf16_rounding(void **state) {
    (void)state;
    for (unsigned h = 0; h < 0x7f80; h++) {
        uint32_t u = h << 16;
        assert_int_equal(ln_f32_bf16(ln_bits_f32(u)), h);
        assert_int_equal(ln_f32_bf16(ln_bits_f32(u + 0x7fff)), h);
        assert_int_equal(ln_f32_bf16(ln_bits_f32(u + 0x8000)), h & 1 ? h + 1 : h);
        assert_int_equal(ln_f32_bf16(ln_bits_f32(u + 0x8001)), h + 1);
    }
    for (uint32_t u = 0x7f800001u; u < 0x80000000u; u += 4099)
        assert_true((ln_f32_bf16(ln_bits_f32(u)) & 0x7fff) > 0x7f80);
}

/* The error of a double in units in the last place (ulp); the reference is the C library's long double
 * function. */
static double ulps(double got, long double want) {
    double w = (double)want;
    if (got == w)
        return fabs((double)((long double)got - want)) / (nextafter(fabs(w), INFINITY) - fabs(w) + 0x1p-1074);
    int e;
    (void)frexp(w, &e);
    return (double)(fabsl((long double)got - want) / ldexpl(1.0L, e < -1021 ? -1074 : e - 53));
}

static void check(double *worst, double *at, double x, double got, long double want) {
    double u = ulps(got, want);
    if (u > *worst) {
        *worst = u;
        *at = x;
    }
}

static void exp_log_tanh(void **state) {
    (void)state;
    double e = 0, l = 0, t = 0, ea = 0, la = 0, ta = 0;
    for (int i = 0; i < 400000; i++) {
        double x = i % 2 ? uniform(-745, 709.7) : uniform(-2, 2);
        if (x > -708) check(&e, &ea, x, ln_exp64(x), expl((long double)x));
        double y = i % 3 == 0   ? uniform(0.5, 2)
                   : i % 3 == 1 ? exp(uniform(-740, 709))
                                : 1 + ldexp(uniform(-1, 1), -(int)(rng() % 50));
        check(&l, &la, y, ln_log64(y), logl((long double)y));
        double z = i % 2 ? uniform(-25, 25) : ldexp(uniform(-1, 1), -(int)(rng() % 40));
        check(&t, &ta, z, ln_tanh64(z), tanhl((long double)z));
    }
    print_message("exp %.2f ulp (at %a), log %.2f (at %a), tanh %.2f (at %a)\n", e, ea, l, la, t, ta);
    assert_true(e < 1.0 && l < 1.0 && t < 3.0);
    assert_true(ln_exp64(0) == 1 && ln_exp64(-800) == 0 && isinf(ln_exp64(710)) && isnan(ln_exp64(NAN)) &&
                ln_exp64(-INFINITY) == 0);
    assert_true(ln_exp64(-740) > 0 && fabs(ln_exp64(-740) / exp(-740) - 1) < 1e-3);
    assert_true(ln_log64(1) == 0 && ln_log64(0) == -INFINITY && isnan(ln_log64(-1)) &&
                ln_log64(INFINITY) == INFINITY && isnan(ln_log64(NAN)));
    assert_true(ln_log64(0x1p-1074) == log(0x1p-1074));
    assert_true(ln_tanh64(100) == 1 && ln_tanh64(-100) == -1 && ln_tanh64(0) == 0 && isnan(ln_tanh64(NAN)) &&
                ln_tanh64(INFINITY) == 1);
}

/* The sum of exponentials of a row has the bits of the plain loop, whatever the length. */
static void exp_down_sum(void **state) {
    (void)state;
    enum { MOST = 1000 };
    float x[MOST];
    for (int rep = 0; rep < 400; rep++) {
        const size_t n = (size_t)(rng() % MOST);
        const double most = uniform(-40, 40), spread = rep % 3 == 0 ? 2 : rep % 3 == 1 ? 40 : 900;
        double sum = 0;
        for (size_t i = 0; i < n; i++) {
            x[i] = (float)fmin(uniform(most - spread, most), nextafter(most, -INFINITY));
            if ((double)x[i] > most) x[i] = nextafterf(x[i], -INFINITY);
            if (rng() % 50 == 0) x[i] = -INFINITY;
            sum += ln_exp64((double)x[i] - most);
        }
        assert_true(ln_exp_down_sum(x, n, most) == sum);
    }
    x[0] = 3;
    assert_true(ln_exp_down_sum(x, 1, 3) == 1 && ln_exp_down_sum(x, 0, 3) == 0);
}

static void sin_cos(void **state) {
    (void)state;
    double s = 0, c = 0, sa = 0, ca = 0, vs, vc;
    for (int i = 0; i < 400000; i++) {
        double x;
        if (i % 4 == 0) x = uniform(-0x1p31, 0x1p31);
        else if (i % 4 == 1) x = uniform(-10, 10);
        else if (i % 4 == 2) x = (double)(int64_t)(rng() % 0x80000000u); /* positions, frequency 1 */
        else { /* close to multiples of pi / 2: there the range reduction must not lose precision */
            x = (double)(1 + rng() % 1300000000u) * 1.5707963267948966;
            for (int k = (int)(rng() % 5); k > 0; k--) x = nextafter(x, (double)INFINITY);
        }
        if (fabs(x) > 0x1p31) continue;
        ln_sincos64(x, &vs, &vc);
        check(&s, &sa, x, vs, sinl((long double)x));
        check(&c, &ca, x, vc, cosl((long double)x));
    }
    print_message("sin %.2f ulp (at %a), cos %.2f (at %a)\n", s, sa, c, ca);
    assert_true(s < 1.0 && c < 1.0);
    /* The classical hard case, 6381956970095103 * 2^797, is out of range; these are the hardest cases of
     * their binades below 2^31. */
    static const double hard[] = {0x1.921fb54442d18p0, 0x1.921fb54442d18p1, 0x1.2d97c7f3321d2p2,
                                  0x1.6ac5b262ca1ffp849};
    for (size_t i = 0; i < 3; i++) {
        ln_sincos64(hard[i], &vs, &vc);
        assert_true(ulps(vs, sinl((long double)hard[i])) < 1 && ulps(vc, cosl((long double)hard[i])) < 1);
    }
    ln_sincos64(hard[3], &vs, &vc);
    assert_true(isnan(vs) && isnan(vc));
    ln_sincos64(0, &vs, &vc);
    assert_true(vs == 0 && vc == 1);
}

static void f32_functions(void **state) {
    (void)state;
    double e = 0, g = 0;
    for (int i = 0; i < 400000; i++) {
        float x = (float)uniform(-87, 88),
              y = i % 2 ? (float)uniform(-9, 9) : (float)ldexp(uniform(-1, 1), -(int)(rng() % 20));
        double we = exp((double)x), u = 0.7978845608028654 * ((double)y + 0.044715 * (double)y * y * y),
               wg = y / (1 + exp(-2 * u));
        e = LN_MAX(e, fabs((double)ln_expf(x) / we - 1) * 0x1p23);
        if (y != 0) g = LN_MAX(g, fabs((double)ln_gelu_tanhf(y) / wg - 1) * 0x1p23 / (1 + 2 * fabs(u)));
    }
    print_message("expf %.2f, gelu %.2f for each 1 + 2|u| (in 2^-23 of the value)\n", e, g);
    assert_true(e < 2 && g < 3); /* gelu: u has six roundings of half an ulp each and occurs as 2 u in an
                                    exponent */
    assert_true(ln_expf(-100) == 0 && isinf(ln_expf(89)) && isnan(ln_expf(NAN)) && ln_expf(0) == 1 &&
                ln_expf(-INFINITY) == 0);
    assert_true(ln_gelu_tanhf(50) == 50 && ln_gelu_tanhf(-50) == 0 && ln_gelu_tanhf(0) == 0 &&
                isnan(ln_gelu_tanhf(NAN)) && isnan(ln_siluf(NAN)));
}

/* ln_tanhf: both of its formulas, near 0 relative to the value, odd, saturated at 1. */
static void f32_tanh(void **state) {
    (void)state;
    double worst = 0;
    for (int i = 0; i < 400000; i++) {
        const float x = i % 3 == 0   ? (float)uniform(-11, 11)
                        : i % 3 == 1 ? (float)uniform(-0.7, 0.7)
                                     : (float)ldexp(uniform(-1, 1), -(int)(rng() % 60));
        if (x != 0) worst = LN_MAX(worst, fabs((double)ln_tanhf(x) / tanh((double)x) - 1) * 0x1p23);
        assert_true(ln_f32_bits(ln_tanhf(-x)) == ln_f32_bits(-ln_tanhf(x)) || x == 0);
    }
    print_message("tanhf %.2f (in 2^-23 of the value)\n", worst);
    /* below 0.625 three roundings after x + x^3 p; above an exponential of 2 ulp times its share, and two
     * more */
    assert_true(worst < 2);
    assert_true(ln_tanhf(100) == 1 && ln_tanhf(-INFINITY) == -1 && ln_tanhf(0) == 0 && isnan(ln_tanhf(NAN)));
    assert_true(ln_softcapf(1e30f, 50) == 50 && ln_softcapf(-1e30f, 50) == -50 &&
                isnan(ln_softcapf(NAN, 50)));
}

/* ln_exp_downf, the short variant of ln_expf, has the same bits for every argument it may be used with. */
static void f32_exp_down(void **state) {
    (void)state;
    for (uint32_t u = 0x80000000u; u < 0xff800000u + 1000;
         u += u >= 0xc2ae0000u && u < 0xc2af0000u ? 1 : 997) {
        float x = ln_bits_f32(u), a = ln_expf(x), b = ln_exp_downf(x);
        assert_true(ln_f32_bits(a) == ln_f32_bits(b) || (a != a && b != b));
    }
    assert_true(ln_exp_downf(-INFINITY) == 0 && ln_exp_downf(0) == 1 && ln_exp_downf(-0.0f) == 1 &&
                isnan(ln_exp_downf(NAN)));
}

static void philox_known_answers(void **state) {
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } kat[] = {{{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
               {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
                {0xffffffff, 0xffffffff},
                {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
               {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                {0xa4093822, 0x299f31d0},
                {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}};
    for (size_t i = 0; i < LN_COUNT(kat); i++) {
        uint32_t out[4];
        ln_philox(kat[i].counter, kat[i].key, out);
        assert_memory_equal(out, kat[i].out, sizeof out);
    }
}

static void gumbel_has_its_distribution(void **state) {
    (void)state;
    const int n = 200000;
    double sum = 0, square = 0, below = 0;
    for (int i = 0; i < n; i++) {
        double g = ln_gumbel(42, (uint64_t)i % 1000, (uint32_t)i / 1000);
        assert_true(isfinite(g));
        sum += g;
        square += g * g;
        below += g < 0.36651292058166435; /* the median, -log log 2 */
    }
    double mean = sum / n, var = square / n - mean * mean;
    assert_true(fabs(mean - 0.5772156649) < 0.012 && fabs(var - 1.6449340668) < 0.04 &&
                fabs(below / n - 0.5) < 0.005);
    assert_true(ln_gumbel(1, 2, 3) == ln_gumbel(1, 2, 3));
    assert_true(ln_gumbel(1, 2, 3) != ln_gumbel(2, 2, 3) && ln_gumbel(1, 2, 3) != ln_gumbel(1, 3, 3) &&
                ln_gumbel(1, 2, 3) != ln_gumbel(1, 2, 4));
    assert_true(ln_gumbel(1ull << 32, 2, 3) != ln_gumbel(0, 2, 3) &&
                ln_gumbel(1, 1ull << 32, 3) != ln_gumbel(1, 0, 3));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(f16_all_values),
                                       cmocka_unit_test(f16_rounding),
                                       cmocka_unit_test(bf16_rounding),
                                       cmocka_unit_test(exp_log_tanh),
                                       cmocka_unit_test(exp_down_sum),
                                       cmocka_unit_test(sin_cos),
                                       cmocka_unit_test(f32_functions),
                                       cmocka_unit_test(f32_tanh),
                                       cmocka_unit_test(f32_exp_down),
                                       cmocka_unit_test(philox_known_answers),
                                       cmocka_unit_test(gumbel_has_its_distribution)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
