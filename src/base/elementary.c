/* The non-inline part of elementary.h: f16 conversion, elementary functions in double, the random generator.
 *
 * The elementary functions use only + - * / and fma, each rounded once by IEEE 754, so that every machine and
 * compiler computes the same bits. Each reduces its argument with a constant that is split into parts whose
 * products are exact or whose rounding errors are carried along, and evaluates a Taylor polynomial of the
 * reduced argument. Errors, measured against the C library by tests/base/test_elementary.c: exp, log, sin and
 * cos 1 ulp, tanh 3 ulp.
 *
 * The generator is counter-based: it has no state, so a sample is the same for every caller and in any
 * order. */
#include "elementary.h"
#include "base.h"
#include "cpu_features.h"
#include "exp_sum.h"

/* ---- f16 ---- */

float ln_f16_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, e = h >> 10 & 31u, m = h & 0x3ffu;
    if (e == 31) return ln_bits_f32(sign | 0x7f800000u | m << 13 | (m ? 0x400000u : 0));
    if (e) return ln_bits_f32(sign | (e + 112u) << 23 | m << 13);
    float v = (float)m * 0x1p-24f; /* subnormal: exact, and a normal f32 */
    return sign ? -v : v;
}

uint16_t ln_f32_f16(float f) {
    uint32_t u = ln_f32_bits(f), sign = u >> 16 & 0x8000u;
    u &= 0x7fffffffu;
    if (u > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (u >> 13 & 0x3ffu));
    if (u >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* 65,520 and above round to infinity */
    if (u >= 0x38800000u) return (uint16_t)(sign | (u - 0x38000000u + 0xfffu + (u >> 13 & 1u)) >> 13);
    if (u < 0x33000000u) return (uint16_t)sign; /* below half of the smallest subnormal */
    uint32_t shift = 126u - (u >> 23), m = (u & 0x7fffffu) | 0x800000u; /* 14 to 24 bits to drop */
    uint32_t kept = m >> shift, rest = m & ((1u << shift) - 1), half = 1u << (shift - 1);
    kept += rest > half || (rest == half && (kept & 1));
    return (uint16_t)(sign | kept);
}

/* ---- elementary functions in double ---- */

/* On x86-64 compiled twice, with and without the FMA instruction; the dynamic loader selects a version. fma()
 * is correctly rounded in both, so the bits are the same; the instruction is ten times faster than the
 * library call. Not with the sanitizers: the selecting function (an ifunc resolver) runs before their runtime
 * is initialised, and crashes with ThreadSanitizer. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__GLIBC__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define WITH_FMA __attribute__((target_clones("fma", "default")))
#else
#define WITH_FMA
#endif
/* The sum over a vocabulary, which every sample takes, has a version with vectors under every compiler. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define INSIDE       static inline __attribute__((always_inline))
#define WITH_VECTORS __attribute__((target("avx2,fma")))
#else
#define INSIDE static inline
#endif

static const double inf = (double)INFINITY;
/* 1/k!, the Taylor coefficients of the polynomials below. */
static const double inverse_factorial[] = {1.0,
                                           1.0,
                                           1.0 / 2,
                                           1.0 / 6,
                                           1.0 / 24,
                                           1.0 / 120,
                                           1.0 / 720,
                                           1.0 / 5040,
                                           1.0 / 40320,
                                           1.0 / 362880,
                                           1.0 / 3628800,
                                           1.0 / 39916800,
                                           1.0 / 479001600,
                                           1.0 / 6227020800.0,
                                           1.0 / 87178291200.0,
                                           1.0 / 1307674368000.0,
                                           1.0 / 20922789888000.0,
                                           1.0 / 355687428096000.0,
                                           1.0 / 6402373705728000.0,
                                           1.0 / 121645100408832000.0,
                                           1.0 / 2432902008176640000.0};

/* sum of r^(k - 2) / k! for k = 2 .. 20 */
INSIDE double exp_tail20(double r) {
    double p = inverse_factorial[20];
    for (int k = 19; k >= 2; k--) p = fma(p, r, inverse_factorial[k]);
    return p;
}

WITH_FMA double ln_exp64(double x) { return ln_exp64_core(x); }

INSIDE double log64(double x) {
    if (x != x || x == inf) return x;
    if (x == 0) return -inf;
    if (x < 0) return (double)NAN;
    int k = 0;
    if (x < 0x1p-1022) { /* subnormal */
        x *= 0x1p54;
        k = -54;
    }
    return ln_log64_core(x, k);
}

WITH_FMA double ln_log64(double x) { return log64(x); }

WITH_FMA double ln_tanh64(double x) {
    double a = x < 0 ? -x : x, t;
    if (x != x) return x;
    if (a < 0.5) {
        double y = 2 * a, e = fma(y * y, exp_tail20(y), y); /* exp(y) - 1 without cancellation */
        t = e / (e + 2);
    } else {
        t = a > 22 ? 1.0 : 1 - 2 / (ln_exp64_core(2 * a) + 1);
    }
    return x < 0 ? -t : t;
}

/* pi / 2 as the sum of three doubles. With fma, x - n * pio2_1 is exact for |x| <= 2^31; the rounding error
 * of the product with pio2_2 is kept, and pio2_3 matters only if x is close to a multiple of pi / 2. */
static const double pio2_1 = 0x1.921fb54442d18p0, pio2_2 = 0x1.1a62633145c07p-54,
                    pio2_3 = -0x1.f1976b7ed8fbcp-110;

/* x = n * pi / 2 + r + lost; returns n modulo 4. */
INSIDE int reduce(double x, double *r, double *lost) {
    double n = x * 0x1.45f306dc9c883p-1 + ln_round_f64 - ln_round_f64;
    double a = fma(n, -pio2_1, x);
    double w = n * pio2_2, w_error = fma(n, pio2_2, -w);
    double b = a - w, back = b - a; /* two-sum: b + b_error = a - w */
    double b_error = (a - (b - back)) - (w + back);
    double low = b_error - w_error - n * pio2_3;
    *r = b + low;
    *lost = (b - *r) + low;
    return (int)((int64_t)n & 3);
}

INSIDE double sin_small(double r, double lost) {
    double z = r * r, p = inverse_factorial[17];
    for (int k = 15; k >= 3; k -= 2) p = fma(p, -z, inverse_factorial[k]);
    /* sin(r + lost) = r - r^3 p + lost cos r */
    return r + fma(lost, fma(-0.5, z, 1.0), -(r * z) * p);
}

INSIDE double cos_small(double r, double lost) {
    double z = r * r, p = inverse_factorial[18];
    for (int k = 16; k >= 4; k -= 2) p = fma(p, -z, inverse_factorial[k]);
    double half = 0.5 * z, c = 1 - half;
    /* adds back what rounding c lost, before the small terms */
    return c + (((1 - c) - half) + fma(z * z, p, -r * lost));
}

WITH_FMA void ln_sincos64(double x, double *s, double *c) {
    double r, lost;
    if (!(x >= -0x1p31 && x <= 0x1p31)) {
        *s = *c = (double)NAN;
        return;
    }
    int quadrant = reduce(x, &r, &lost);
    double sr = sin_small(r, lost), cr = cos_small(r, lost);
    double vs = quadrant & 1 ? cr : sr, vc = quadrant & 1 ? sr : cr;
    *s = quadrant & 2 ? -vs : vs;
    *c = quadrant == 1 || quadrant == 2 ? -vc : vc;
}

/* ---- random generator ---- */

void ln_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
    ln_philox_core(counter, key, out);
}

void ln_normal_pair(const uint32_t counter[4], const uint32_t key[2], double out[2]) {
    uint32_t u[4];
    double s, c;
    ln_philox(counter, key, u);
    const double r = sqrt(-2 * ln_log64(((double)u[0] + 0.5) * 0x1p-32));
    ln_sincos64(6.283185307179586 * ((double)u[1] * 0x1p-32), &s, &c);
    out[0] = r * c;
    out[1] = r * s;
}

enum { SOME = 64 };
/* Whether one of SOME values is above `top` or NaN. The loop vectorises; ln_argmax skips most blocks by
 * it. */
static bool worth_a_look(const float *x, float top) {
    int any = 0;
    for (int i = 0; i < SOME; i++) any |= !(x[i] <= top);
    return any;
}
int64_t ln_argmax(const float *x, int64_t n) {
    int64_t best = 0;
    for (int64_t from = 0, end; from < n; from = end) {
        end = LN_MIN(from + SOME, n);
        if (from > 0 && end == from + SOME && !worth_a_look(x + from, x[best])) continue;
        for (int64_t i = from; i < end; i++) {
            if (x[i] != x[i]) return -1;
            if (x[i] > x[best]) best = i;
        }
    }
    return best;
}

WITH_FMA double ln_gumbel(uint64_t seed, uint64_t position, uint32_t id) {
    return ln_gumbel_of(ln_random_bits(seed, position, id));
}

WITH_FMA size_t ln_gumbel_argmax(const float *logits, const int32_t *ids, size_t n, uint64_t seed,
                                 uint64_t position) {
    size_t best = 0;
    double top = -inf;
    for (size_t i = 0; i < n; i++) {
        double l = (double)logits[ids[i]];
        if (l == -inf) continue;
        double u = ln_uniform_of(ln_random_bits(seed, position, (uint32_t)ids[i]));
        /* -log u >= 1 - u, so noise exceeds x only if 1 - u < exp(-x); a margin of 1e-9 covers exp's
         * rounding */
        if (top > -inf && l + 45 > top && l < top && 1 - u > ln_exp64_core(l - top) * (1 + 1e-9)) continue;
        double x = l - log64(-log64(u));
        if (x > top || (x == top && ids[i] < ids[best])) top = x, best = i;
    }
    return best;
}

/* exp64 for x <= 0 without branches and loops, so that a loop over it can be vectorised: the same operations.
 * The low bits of `at` hold k, so that -k is a difference of bits. */
INSIDE double exp64_down(double x) {
    const double *c = inverse_factorial;
    double y = x < -745.2 ? -745.2 : x, at = y * 0x1.71547652b82fep0 + ln_round_f64, n = at - ln_round_f64;
    double a = fma(n, -ln_ln2_hi, y), b = n * ln_ln2_lo;
    double r = a - b, lost = (a - r) - b;
    double p = fma(fma(fma(fma(c[14], r, c[13]), r, c[12]), r, c[11]), r, c[10]);
    p = fma(fma(fma(fma(p, r, c[9]), r, c[8]), r, c[7]), r, c[6]);
    p = fma(fma(fma(fma(p, r, c[5]), r, c[4]), r, c[3]), r, c[2]);
    p = 1.0 + (r + fma(r * r, p, lost));
    uint64_t k = ln_f64_bits(ln_round_f64) - ln_f64_bits(at), k1 = k / 2, k2 = k - k1;
    p = p * ln_bits_f64((1023 - k1) << 52) * ln_bits_f64((1023 - k2) << 52);
    return x < -745.2 ? 0 : p;
}

/* The exponentials of a block are independent of each other; their sum is in order. */
INSIDE double exp_down_sum(const float *x, size_t n, double most) {
    enum { BLOCK = 64 };
    double sum = 0, e[BLOCK];
    size_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK) {
        for (size_t k = 0; k < BLOCK; k++) e[k] = exp64_down((double)x[i + k] - most);
        for (size_t k = 0; k < BLOCK; k++) sum += e[k];
    }
    for (; i < n; i++) sum += exp64_down((double)x[i] - most);
    return sum;
}

#ifdef WITH_VECTORS
WITH_VECTORS static double exp_down_sum_avx2(const float *x, size_t n, double most) {
    return exp_down_sum(x, n, most);
}
#endif

WITH_FMA static double exp_down_sum_plain(const float *x, size_t n, double most) {
    return exp_down_sum(x, n, most);
}

double ln_exp_down_sum(const float *x, size_t n, double most) {
#ifdef WITH_VECTORS
    if (ln_cpu_has(LN_CPU_AVX2)) return exp_down_sum_avx2(x, n, most);
#endif
    return exp_down_sum_plain(x, n, most);
}

WITH_FMA double ln_exp_sum(const float *x, size_t n) {
    double sum[4] = {0, 0, 0, 0};
    for (size_t i = 0; i < n; i++) sum[i % 4] += ln_exp64_core((double)x[i]);
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}
