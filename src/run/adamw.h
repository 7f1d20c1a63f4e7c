/* AdamW (Loshchilov and Hutter 2019) and the global norm of gradients, in one fixed order on the host: the
 * same bits whatever the threads. */
#ifndef LN_ADAMW_STEP_H
#define LN_ADAMW_STEP_H

#include "../base/base.h"

typedef struct ln_adamw_rates {
    double lr, beta1, beta2, eps, weight_decay;
} ln_adamw_rates;

/* Step t (from 1) of n elements, with the gradient g * by (by: 1 / targets, times the factor of clipping):
 *
 *     m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
 *     p = p (1 - lr weight_decay) - lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)
 *
 * The arithmetic of an element is in double; p, m and v are stored in f32. */
void ln_adamw_update(const ln_adamw_rates *o, int64_t t, int64_t n, float *p, const float *g, double by,
                     float *m, float *v);

/* Returns whether such a step leaves finite numbers in p, m and v. */
bool ln_adamw_is_finite(const ln_adamw_rates *o, int64_t t, int64_t n, const float *p, const float *g,
                        double by, const float *m, const float *v);

/* The sum of the squares of n elements, in order, added to `sum`. */
double ln_square_sum(const float *g, int64_t n, double sum);

#endif
