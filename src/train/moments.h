/* Moments of AdamW in 8 bits: each block of 256 numbers has its largest magnitude in f32, and a code for each
 * number. A first moment is plus or minus that times 2^(-k/8), k below 127, or 0; the root of a second one
 * that times 2^(-k/16), k below 255, or 0. A number is rounded to the nearest one that has a code, so that it
 * is off by at most 4.4 % (2.2 % of a root), or by 2^-16.7 of the largest in its block; a root is never
 * rounded to 0. */
#ifndef LN_MOMENTS_H
#define LN_MOMENTS_H

#include "checkpoint.h"

enum { TRAIN_BLOCK = 256 };
static inline int64_t train_blocks(int64_t n) { return (n + TRAIN_BLOCK - 1) / TRAIN_BLOCK; }
/* Bytes of both moments of n numbers in so many parameters, at most. */
uint64_t train_codes_bytes(uint64_t n, uint64_t n_params);
/* Writes the moments of numbers at .. at + n - 1 of a parameter, a block, to m[n] and v[n]. */
void train_codes_read(const train_param *p, int64_t at, int64_t n, float *m, float *v);
/* Replaces them. */
void train_codes_write(train_param *p, int64_t at, int64_t n, const float *m, const float *v);

#endif
