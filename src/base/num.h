/* Numbers: storage types, bf16 and f16, our own elementary functions, the counter-based random generator.
 *
 * Nothing that reaches a logit comes from libm: exp, log, tanh, sin and cos are here, written with fmaf/fma by name only, so that
 * the same source gives the same bits in plain C, AVX2, AVX-512 and NEON (the compiler may vectorise it, -ffp-contract=off). fmaf and
 * sqrtf are exactly rounded by IEEE 754 and therefore the same everywhere. */
#ifndef LN_NUM_H
#define LN_NUM_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef enum ln_dtype { LN_F32 = 0, LN_BF16, LN_F16, LN_I32, LN_DTYPE_COUNT } ln_dtype;
static inline int ln_dtype_bytes(ln_dtype t) { return t == LN_BF16 || t == LN_F16 ? 2 : 4; }

static inline float ln_bits_f32(uint32_t u) { float f; memcpy(&f, &u, 4); return f; }
static inline uint32_t ln_f32_bits(float f) { uint32_t u; memcpy(&u, &f, 4); return u; }

static inline float ln_bf16_f32(uint16_t h) { return ln_bits_f32((uint32_t)h << 16); }
/* Round to nearest even; NaN stays NaN. */
static inline uint16_t ln_f32_bf16(float f) {
    uint32_t u = ln_f32_bits(f), even = u + 0x7fffu + ((u >> 16) & 1u), nan = u | 0x400000u;
    return (uint16_t)(((u & 0x7fffffffu) > 0x7f800000u ? nan : even) >> 16); /* no branch: loops over it become vectors */
}
float ln_f16_f32(uint16_t h);
uint16_t ln_f32_f16(float f);

/* The numbers of exp, which vectors read too (device/cpu/attention/attn_paged.inc.h, simd_activation.inc.h): 1 / ln 2; 1.5 * 2^23, which rounds what it is added to; ln 2 = hi + lo
 * (Cody-Waite), negative; Taylor to degree 7 on |r| <= 0.3466, from the highest term to the second, 5e-9; the rest is 1 + r (...). */
static const float ln_exp_log2e = 1.44269504088896341f, ln_exp_round = 12582912.0f, ln_exp_hi = -0.693145751953125f, ln_exp_lo = -1.42860682030941723e-6f;
/* 1 + r + r^2 q(r), q of degree 4 with the least largest relative error: 3e-9, where the series needs one term more. */
static const float ln_exp_terms[6] = {0x1.6a236ep-10f, 0x1.123a1ep-7f, 0x1.5558f4p-5f, 0x1.555492p-3f, 0x1.fffffcp-2f, 1.0f};
static const float ln_exp_least = -87.33f; /* below it exp is 0: no denormals */
/* exp(c - n ln 2), |c - n ln 2| <= 0.3466. */
static inline float ln_exp_rest(float c, float n) {
    float r = fmaf(n, ln_exp_lo, fmaf(n, ln_exp_hi, c)), p = ln_exp_terms[0];
    p = fmaf(p, r, ln_exp_terms[1]);
    p = fmaf(p, r, ln_exp_terms[2]);
    p = fmaf(p, r, ln_exp_terms[3]);
    p = fmaf(p, r, ln_exp_terms[4]);
    p = fmaf(p, r, ln_exp_terms[5]);
    return fmaf(p, r, 1.0f);
}
/* exp for f32: |relative error| <= 2 ulp on [-87, 88]; 0 below -87.33 (no denormals), inf above 88.72, NaN stays NaN. */
static inline float ln_expf(float x) {
    float c = x < ln_exp_least ? ln_exp_least : x;
    c = c > 88.72f ? 88.72f : c;
    float n = fmaf(c, ln_exp_log2e, ln_exp_round) - ln_exp_round; /* round to nearest by the 1.5 * 2^23 trick */
    float p = ln_exp_rest(c, n);
    int32_t k = (int32_t)n, k1 = k >> 1, k2 = k - k1;                   /* 2^k in two factors: k may be 128 */
    p = p * ln_bits_f32((uint32_t)(k1 + 127) << 23) * ln_bits_f32((uint32_t)(k2 + 127) << 23);
    p = x < ln_exp_least ? 0.0f : p;
    p = x > 88.72f ? ln_bits_f32(0x7f800000u) : p;
    return x != x ? x : p;
}
/* The same bits for x <= 0 and NaN, in fewer steps; what it gives for other x is a number that may be anything. */
static inline float ln_exp_downf(float x) {
    float c = x < ln_exp_least ? ln_exp_least : x;
    float t = fmaf(c, ln_exp_log2e, ln_exp_round), n = t - ln_exp_round;
    float p = ln_exp_rest(c, n);
    p = p * ln_bits_f32((ln_f32_bits(t) << 23) + 0x3f800000u);          /* t ends in n, from -126 to 0: 2^n is one factor */
    return x < ln_exp_least ? 0.0f : p;
}
static inline float ln_siluf(float x) { return x / (1.0f + ln_expf(-x)); }
/* GELU, tanh form (Hendrycks and Gimpel 2016; "gelu_pytorch_tanh"): x/2 (1 + tanh u), which is x / (1 + exp(-2u)), where nothing cancels;
 * 2u = x (2 sqrt(2/pi) + 2 sqrt(2/pi) 0.044715 x^2). */
static const float ln_gelu_once = 1.5957691216057308f, ln_gelu_cube = 0.0713548162726f;
static inline float ln_gelu_tanhf(float x) {
    return x / (1.0f + ln_expf(-(x * fmaf(ln_gelu_cube * x, x, ln_gelu_once))));
}

/* In double, for reference kernels and tables: a few ulp. */
double ln_exp64(double x);
double ln_log64(double x);           /* x > 0 */
double ln_tanh64(double x);
/* base ^ x, computed in double and rounded once; base > 0. */
static inline float ln_powf(float base, float x) {
    return (float)ln_exp64((double)x * ln_log64((double)base));
}
void ln_sincos64(double x, double *s, double *c); /* |x| up to 2^31 */

/* The place of the largest of n > 0 numbers, the first of equals; -1: one of them is none. */
int64_t ln_argmax(const float *x, int64_t n);

/* Philox-4x32-10 (Salmon et al., SC 2011): 128 random bits for a counter and a key; a pure function. */
void ln_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);
/* Gumbel noise for a draw: -log(-log(u)), u in (0, 1) from Philox(seed; position, id). */
double ln_gumbel(uint64_t seed, uint64_t position, uint32_t id);
/* Which of ids[0..n) has the largest logits[id] + ln_gumbel(seed, position, id); the lowest id on ties. n > 0, no NaN. */
size_t ln_gumbel_argmax(const float *logits, const int32_t *ids, size_t n, uint64_t seed, uint64_t position);
/* The sum of exp(x[i]), in double. */
double ln_exp_sum(const float *x, size_t n);

#endif
