/* The part of the elementary functions and of the random generator that is inline: C and CUDA compile this
 * header, so that the CPU and an NVIDIA GPU compute the same bits. base/elementary.h, which includes it,
 * states the contract; the double functions are the cores of those of elementary.c.
 *
 * Every operation is rounded once by IEEE 754: products and sums are fused only if fma is written
 * (-ffp-contract=off of gcc, -fmad=false of nvcc). */
#ifndef LN_ELEMENTARY_INLINE_H
#define LN_ELEMENTARY_INLINE_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* LN_BOTH: a function of the host and of the GPU. LN_CORE: one that is also inlined into every caller,
 * because elementary.c compiles the callers for several instruction sets. nvcc unrolls the loops below, so
 * that no array is in memory. */
#ifdef __CUDACC__
#define LN_BOTH __host__ __device__ static inline
#define LN_CORE __host__ __device__ static __forceinline__
#else
#define LN_BOTH static inline
#define LN_CORE static inline __attribute__((always_inline))
#endif

LN_BOTH float ln_bits_f32(uint32_t u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}
LN_BOTH uint32_t ln_f32_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}
LN_CORE double ln_bits_f64(uint64_t u) {
    double v;
    memcpy(&v, &u, sizeof v);
    return v;
}
LN_CORE uint64_t ln_f64_bits(double v) {
    uint64_t u;
    memcpy(&u, &v, sizeof u);
    return u;
}

LN_BOTH float ln_bf16_f32(uint16_t h) { return ln_bits_f32((uint32_t)h << 16); }
/* f32 to bf16: rounds to nearest even; NaN stays NaN. */
LN_BOTH uint16_t ln_f32_bf16(float f) {
    uint32_t u = ln_f32_bits(f), even = u + 0x7fffu + ((u >> 16) & 1u), nan = u | 0x400000u;
    /* no branch, so that loops over it vectorise */
    return (uint16_t)(((u & 0x7fffffffu) > 0x7f800000u ? nan : even) >> 16);
}

/* ---- f32 ---- */

/* Constants of expf, shared with the SIMD versions (device/cpu/attention/attn_paged.inc.h,
 * simd_activation.inc.h). log2e = 1 / ln 2. Adding and subtracting round = 1.5 * 2^23 rounds to the nearest
 * integer. hi + lo = -ln 2, the Cody-Waite split of the range reduction. */
static const float ln_exp_log2e = 1.44269504088896341f, ln_exp_round = 12582912.0f,
                   ln_exp_hi = -0.693145751953125f, ln_exp_lo = -1.42860682030941723e-6f;
/* exp(r) = 1 + r + r^2 q(r) on |r| <= 0.3466, with the minimax polynomial q of degree 4 (highest coefficient
 * first; the last entry is the coefficient of r). Relative error 3e-9, for which a Taylor polynomial needs
 * one more term. */
#define LN_EXP_TERMS \
    { 0x1.6a236ep-10f, 0x1.123a1ep-7f, 0x1.5558f4p-5f, 0x1.555492p-3f, 0x1.fffffcp-2f, 1.0f }
static const float ln_exp_least = -87.33f; /* exp is 0 below it: no denormal results */
/* exp(c - n ln 2) for |c - n ln 2| <= 0.3466. */
LN_BOTH float ln_exp_rest(float c, float n) {
    const float terms[6] = LN_EXP_TERMS;
    float r = fmaf(n, ln_exp_lo, fmaf(n, ln_exp_hi, c)), p = terms[0];
    p = fmaf(p, r, terms[1]);
    p = fmaf(p, r, terms[2]);
    p = fmaf(p, r, terms[3]);
    p = fmaf(p, r, terms[4]);
    p = fmaf(p, r, terms[5]);
    return fmaf(p, r, 1.0f);
}
/* exp in f32: at most 2 ulp on [-87, 88]. Returns 0 below -87.33 (no denormals), inf above 88.72, NaN for
 * NaN. */
LN_BOTH float ln_expf(float x) {
    float c = x < ln_exp_least ? ln_exp_least : x;
    c = c > 88.72f ? 88.72f : c;
    float n = fmaf(c, ln_exp_log2e, ln_exp_round) - ln_exp_round; /* rounds to the nearest integer */
    float p = ln_exp_rest(c, n);
    int32_t k = (int32_t)n, k1 = k >> 1, k2 = k - k1; /* 2^k as two factors, since k may be 128 */
    p = p * ln_bits_f32((uint32_t)(k1 + 127) << 23) * ln_bits_f32((uint32_t)(k2 + 127) << 23);
    p = x < ln_exp_least ? 0.0f : p;
    p = x > 88.72f ? ln_bits_f32(0x7f800000u) : p;
    return x != x ? x : p;
}
LN_BOTH float ln_siluf(float x) { return x / (1.0f + ln_expf(-x)); }
/* GELU, tanh approximation (Hendrycks and Gimpel 2016, "gelu_pytorch_tanh"): x/2 (1 + tanh u), computed as x
 * / (1 + exp(-2u)), which has no cancellation; 2u = x (2 sqrt(2/pi) + 2 sqrt(2/pi) 0.044715 x^2). */
static const float ln_gelu_once = 1.5957691216057308f, ln_gelu_cube = 0.0713548162726f;
LN_BOTH float ln_gelu_tanhf(float x) {
    return x / (1.0f + ln_expf(-(x * fmaf(ln_gelu_cube * x, x, ln_gelu_once))));
}
/* tanh in f32: at most 2 ulp. x + x^3 p(x^2), with the polynomial p of degree 4 that has the least largest
 * error, below 0.625; else 1 - 2 / (exp(2 |x|) + 1) with the sign of x. */
LN_BOTH float ln_tanhf(float x) {
    const float a = x < 0 ? -x : x, z = x * x;
    float p = fmaf(-0x1.76ac1ap-8f, z, 0x1.5256d8p-6f);
    p = fmaf(p, z, -0x1.b84448p-5f);
    p = fmaf(p, z, 0x1.110768p-3f);
    p = fmaf(p, z, -0x1.555534p-2f);
    const float small = fmaf(p * z, x, x),
                big = 1.0f - 2.0f / (ln_expf(2.0f * (a > 10.0f ? 10.0f : a)) + 1.0f);
    return a < 0.625f ? small : x < 0 ? -big : big;
}
/* c tanh(x / c): x, but never beyond -c and c (Gemma 2). */
LN_BOTH float ln_softcapf(float x, float c) { return ln_tanhf(x / c) * c; }

/* ---- f64 ---- */

/* ln 2 = hi + lo; hi has 21 trailing zero bits, so that k * hi is exact for |k| < 2^21. Adding and
 * subtracting round_f64 rounds to the nearest integer. */
static const double ln_ln2_hi = 0x1.62e42feep-1, ln_ln2_lo = 0x1.a39ef35793c76p-33, ln_round_f64 = 0x1.8p52;

/* 1/k! for k = 2 .. 14, the highest first: sum of r^(k - 2) / k!. */
LN_CORE double ln_exp_tail14(double r) {
    double p = 1.0 / 87178291200.0;
    p = fma(p, r, 1.0 / 6227020800.0);
    p = fma(p, r, 1.0 / 479001600);
    p = fma(p, r, 1.0 / 39916800);
    p = fma(p, r, 1.0 / 3628800);
    p = fma(p, r, 1.0 / 362880);
    p = fma(p, r, 1.0 / 40320);
    p = fma(p, r, 1.0 / 5040);
    p = fma(p, r, 1.0 / 720);
    p = fma(p, r, 1.0 / 120);
    p = fma(p, r, 1.0 / 24);
    p = fma(p, r, 1.0 / 6);
    return fma(p, r, 1.0 / 2);
}
/* ln_exp64 */
LN_CORE double ln_exp64_core(double x) {
    if (x != x) return x;
    if (x > 709.782712893384) return ln_bits_f64(0x7ff0000000000000u); /* infinity */
    if (x < -745.2) return 0;
    double n = x * 0x1.71547652b82fep0 + ln_round_f64 - ln_round_f64;
    double a = fma(n, -ln_ln2_hi, x), b = n * ln_ln2_lo; /* a is exact */
    double r = a - b, lost = (a - r) - b;
    /* 1 + (r + (lost + r^2 * tail)): added from the smallest term to the largest */
    double p = 1.0 + (r + fma(r * r, ln_exp_tail14(r), lost));
    int k = (int)n, k1 = k / 2, k2 = k - k1;
    return p * ln_bits_f64((uint64_t)(k1 + 1023) << 52) * ln_bits_f64((uint64_t)(k2 + 1023) << 52);
}
/* k ln 2 + log x, for x positive and normal. */
LN_CORE double ln_log64_core(double x, int k) {
    uint64_t u = ln_f64_bits(x);
    k += (int)(u >> 52) - 1023;
    double m = ln_bits_f64((u & 0xfffffffffffffu) | 0x3ff0000000000000u);
    if (m > 0x1.6a09e667f3bcdp0) { /* sqrt 2: reduces m to (0.707, 1.414] */
        m *= 0.5;
        k++;
    }
    /* log m = 2 atanh s, s = f / (2 + f); written as f - f^2/2 + s (f^2/2 + R) the first term is exact. */
    double f = m - 1, s = f / (2 + f), z = s * s, half = 0.5 * f * f, tail = 2.0 / 25;
    for (int d = 23; d >= 3; d -= 2) tail = fma(tail, z, 2.0 / d);
    double small = fma(s, fma(z, tail, half), (double)k * ln_ln2_lo);
    return (double)k * ln_ln2_hi - ((half - small) - f);
}

/* ---- random generator ---- */

/* ln_philox */
LN_CORE void ln_philox_core(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xd2511f53u * c0, b = (uint64_t)0xcd9e8d57u * c2;
        uint32_t n0 = (uint32_t)(b >> 32) ^ c1 ^ k0, n2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)b;
        c3 = (uint32_t)a;
        c0 = n0;
        c2 = n2;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}
/* The 52 random bits of a token: Philox of (position, id) with the key `seed`. */
LN_CORE uint64_t ln_random_bits(uint64_t seed, uint64_t position, uint32_t id) {
    uint32_t counter[4] = {(uint32_t)position, (uint32_t)(position >> 32), id, 0},
             key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t r[4];
    ln_philox_core(counter, key, r);
    return (uint64_t)r[0] << 20 | r[1] >> 12;
}
/* The uniform number of 52 random bits: with a half added, it is neither 0 nor 1. */
LN_CORE double ln_uniform_of(uint64_t bits) { return ((double)bits + 0.5) * 0x1p-52; }
/* The Gumbel noise of 52 random bits. */
LN_CORE double ln_gumbel_of(uint64_t bits) {
    return -ln_log64_core(-ln_log64_core(ln_uniform_of(bits), 0), 0);
}

#endif
