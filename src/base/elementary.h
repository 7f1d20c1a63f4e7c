/* Storage types, bf16 and f16 conversion, elementary functions, the counter-based random generator.
 *
 * No value that affects a logit comes from libm: exp, log, tanh, sin and cos are implemented here, with fmaf
 * and fma called explicitly, so that the same source gives the same bits in plain C, AVX2, AVX-512 and NEON.
 * The compiler may vectorise the code; it is built with -ffp-contract=off. fmaf and sqrtf are correctly
 * rounded by IEEE 754 and therefore the same everywhere. */
#ifndef LN_ELEMENTARY_H
#define LN_ELEMENTARY_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef enum ln_dtype { LN_F32 = 0, LN_BF16, LN_F16, LN_I32, LN_DTYPE_COUNT } ln_dtype;
static inline int ln_dtype_bytes(ln_dtype t) { return t == LN_BF16 || t == LN_F16 ? 2 : 4; }

static inline float ln_bits_f32(uint32_t u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}
static inline uint32_t ln_f32_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

static inline float ln_bf16_f32(uint16_t h) { return ln_bits_f32((uint32_t)h << 16); }
/* f32 to bf16: rounds to nearest even; NaN stays NaN. */
static inline uint16_t ln_f32_bf16(float f) {
    uint32_t u = ln_f32_bits(f), even = u + 0x7fffu + ((u >> 16) & 1u), nan = u | 0x400000u;
    /* no branch, so that loops over it vectorise */
    return (uint16_t)(((u & 0x7fffffffu) > 0x7f800000u ? nan : even) >> 16);
}
float ln_f16_f32(uint16_t h);
uint16_t ln_f32_f16(float f);

/* Constants of expf, shared with the SIMD versions (device/cpu/attention/attn_paged.inc.h,
 * simd_activation.inc.h). log2e = 1 / ln 2. Adding and subtracting round = 1.5 * 2^23 rounds to the nearest
 * integer. hi + lo = -ln 2, the Cody-Waite split of the range reduction. */
static const float ln_exp_log2e = 1.44269504088896341f, ln_exp_round = 12582912.0f,
                   ln_exp_hi = -0.693145751953125f, ln_exp_lo = -1.42860682030941723e-6f;
/* exp(r) = 1 + r + r^2 q(r) on |r| <= 0.3466, with the minimax polynomial q of degree 4 (highest coefficient
 * first; the last entry is the coefficient of r). Relative error 3e-9, for which a Taylor polynomial needs
 * one more term. */
static const float ln_exp_terms[6] = {0x1.6a236ep-10f, 0x1.123a1ep-7f, 0x1.5558f4p-5f,
                                      0x1.555492p-3f,  0x1.fffffcp-2f, 1.0f};
static const float ln_exp_least = -87.33f; /* exp is 0 below it: no denormal results */
/* exp(c - n ln 2) for |c - n ln 2| <= 0.3466. */
static inline float ln_exp_rest(float c, float n) {
    float r = fmaf(n, ln_exp_lo, fmaf(n, ln_exp_hi, c)), p = ln_exp_terms[0];
    p = fmaf(p, r, ln_exp_terms[1]);
    p = fmaf(p, r, ln_exp_terms[2]);
    p = fmaf(p, r, ln_exp_terms[3]);
    p = fmaf(p, r, ln_exp_terms[4]);
    p = fmaf(p, r, ln_exp_terms[5]);
    return fmaf(p, r, 1.0f);
}
/* exp in f32: at most 2 ulp on [-87, 88]. Returns 0 below -87.33 (no denormals), inf above 88.72, NaN for
 * NaN. */
static inline float ln_expf(float x) {
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
/* exp for x <= 0 or NaN, in fewer instructions and with the same bits as ln_expf. The result for any other x
 * is unspecified. */
static inline float ln_exp_downf(float x) {
    float c = x < ln_exp_least ? ln_exp_least : x;
    float t = fmaf(c, ln_exp_log2e, ln_exp_round), n = t - ln_exp_round;
    float p = ln_exp_rest(c, n);
    p = p * ln_bits_f32((ln_f32_bits(t) << 23) +
                        0x3f800000u); /* the low bits of t hold n, -126 to 0, so that 2^n is one factor */
    return x < ln_exp_least ? 0.0f : p;
}
static inline float ln_siluf(float x) { return x / (1.0f + ln_expf(-x)); }
/* GELU, tanh approximation (Hendrycks and Gimpel 2016; "gelu_pytorch_tanh"): x/2 (1 + tanh u), computed as x
 * / (1 + exp(-2u)), which has no cancellation; 2u = x (2 sqrt(2/pi) + 2 sqrt(2/pi) 0.044715 x^2). */
static const float ln_gelu_once = 1.5957691216057308f, ln_gelu_cube = 0.0713548162726f;
static inline float ln_gelu_tanhf(float x) {
    return x / (1.0f + ln_expf(-(x * fmaf(ln_gelu_cube * x, x, ln_gelu_once))));
}

/* Double precision, for the reference kernels and for tables; the error is a few ulp. */
double ln_exp64(double x);
double ln_log64(double x); /* x > 0 */
double ln_tanh64(double x);
/* base ^ x for base > 0, computed in double and rounded once. */
static inline float ln_powf(float base, float x) {
    return (float)ln_exp64((double)x * ln_log64((double)base));
}
void ln_sincos64(double x, double *s, double *c); /* |x| <= 2^31, else NaN */

/* The index of the largest of n > 0 values, the first among equals; -1 if one of them is NaN. */
int64_t ln_argmax(const float *x, int64_t n);

/* Philox-4x32-10 (Salmon et al., SC 2011): 128 random bits, a pure function of counter and key. */
void ln_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);
/* Gumbel noise -log(-log(u)) for one token of one draw, u in (0, 1) from Philox with key `seed` and counter
 * (position, id). */
double ln_gumbel(uint64_t seed, uint64_t position, uint32_t id);
/* The index i in [0, n) for which logits[ids[i]] + ln_gumbel(seed, position, ids[i]) is largest, that with
 * the lowest id on ties. n > 0; no logit is NaN. Samples from softmax(logits[ids]) (Gumbel-max trick). */
size_t ln_gumbel_argmax(const float *logits, const int32_t *ids, size_t n, uint64_t seed, uint64_t position);
/* The sum of exp(x[i]) over n values, in double. */
double ln_exp_sum(const float *x, size_t n);

#endif
