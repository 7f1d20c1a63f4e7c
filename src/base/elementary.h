/* Storage types, bf16 and f16 conversion, elementary functions, the counter-based random generator.
 *
 * No value that affects a logit comes from libm: exp, log, tanh, sin and cos are implemented here, with fmaf
 * and fma called explicitly, so that the same source gives the same bits in plain C, AVX2, AVX-512 and NEON.
 * The compiler may vectorise the code; it is built with -ffp-contract=off. fmaf and sqrtf are correctly
 * rounded by IEEE 754 and therefore the same everywhere. */
#ifndef LN_ELEMENTARY_H
#define LN_ELEMENTARY_H

#include "elementary_inline.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef enum ln_dtype { LN_F32 = 0, LN_BF16, LN_F16, LN_I32, LN_DTYPE_COUNT } ln_dtype;
static inline int ln_dtype_bytes(ln_dtype t) { return t == LN_BF16 || t == LN_F16 ? 2 : 4; }

float ln_f16_f32(uint16_t h);
uint16_t ln_f32_f16(float f);

static const float ln_exp_terms[6] = LN_EXP_TERMS; /* for the SIMD versions */
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
/* Computes two normal numbers of mean 0 and deviation 1 from such bits (Box and Muller 1958). */
void ln_normal_pair(const uint32_t counter[4], const uint32_t key[2], double out[2]);
/* Gumbel noise -log(-log(u)) for one token of one sample, u in (0, 1) from Philox with key `seed` and
 * counter (position, id). */
double ln_gumbel(uint64_t seed, uint64_t position, uint32_t id);
/* The index i in [0, n) for which logits[ids[i]] + ln_gumbel(seed, position, ids[i]) is largest, that with
 * the lowest id on ties. n > 0; no logit is NaN. Samples from softmax(logits[ids]) (Gumbel-max trick). */
size_t ln_gumbel_argmax(const float *logits, const int32_t *ids, size_t n, uint64_t seed, uint64_t position);
/* The sum of exp(x[i]) over n values, in double. */
double ln_exp_sum(const float *x, size_t n);

#endif
