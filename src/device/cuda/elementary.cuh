// ln_exp64, ln_log64 and the uniform numbers of base/elementary.c on the GPU: the same operations, hence the
// same bits. Double products and sums are fused only where the source says fma.
#pragma once

#include <math_constants.h>
#include <stdint.h>

__device__ inline double exp_f64(double x) {
    const double ln2_hi = 0x1.62e42feep-1, ln2_lo = 0x1.a39ef35793c76p-33, magic = 0x1.8p52;
    if (x != x) return x;
    if (x > 709.782712893384) return CUDART_INF;
    if (x < -745.2) return 0;
    const double n = x * 0x1.71547652b82fep0 + magic - magic;
    const double a = fma(n, -ln2_hi, x), b = n * ln2_lo, r = a - b, lost = (a - r) - b;
    double p = 1.0 / 87178291200.0; // 1 / 14!
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
    p = fma(p, r, 1.0 / 2);
    p = 1.0 + (r + fma(r * r, p, lost));
    const int k = (int)n, k1 = k / 2, k2 = k - k1;
    return p * __longlong_as_double((int64_t)(k1 + 1023) << 52) *
           __longlong_as_double((int64_t)(k2 + 1023) << 52);
}

// x is positive and normal, as -log(u) and u are.
__device__ inline double log_f64(double x) {
    const double ln2_hi = 0x1.62e42feep-1, ln2_lo = 0x1.a39ef35793c76p-33;
    const uint64_t u = (uint64_t)__double_as_longlong(x);
    int k = (int)(u >> 52) - 1023;
    double m = __longlong_as_double((int64_t)((u & 0xfffffffffffffULL) | 0x3ff0000000000000ULL));
    if (m > 0x1.6a09e667f3bcdp0) {
        m *= 0.5;
        k++;
    }
    const double f = m - 1, s = f / (2 + f), z = s * s, half = 0.5 * f * f;
    double tail = 2.0 / 25;
#pragma unroll
    for (int d = 23; d >= 3; d -= 2) tail = fma(tail, z, 2.0 / d);
    const double small = fma(s, fma(z, tail, half), (double)k * ln2_lo);
    return (double)k * ln2_hi - ((half - small) - f);
}

// The 52 random bits of a token: Philox 4x32-10 of (position, id) under the seed.
__device__ inline uint64_t random_bits(uint64_t seed, uint64_t position, uint32_t id) {
    uint32_t c0 = (uint32_t)position, c1 = (uint32_t)(position >> 32), c2 = id, c3 = 0, k0 = (uint32_t)seed,
             k1 = (uint32_t)(seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xd2511f53u * c0, b = (uint64_t)0xcd9e8d57u * c2;
        const uint32_t n0 = (uint32_t)(b >> 32) ^ c1 ^ k0, n2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)b, c3 = (uint32_t)a, c0 = n0, c2 = n2;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    return (uint64_t)c0 << 20 | c1 >> 12;
}
// The Gumbel noise of those bits.
__device__ inline double gumbel_of(uint64_t bits) {
    const double u = ((double)bits + 0.5) * 0x1p-52;
    return -log_f64(-log_f64(u));
}
