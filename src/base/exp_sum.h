/* The sum of exponentials of a row of logits, for log-probabilities. */
#ifndef LN_EXP_SUM_H
#define LN_EXP_SUM_H

#include <stddef.h>

/* elementary.c. The sum of ln_exp64(x[i] - most) over n values, in order and with the same bits, in a third
 * of the time. Every x[i] is at most `most`, which is finite; none is NaN. */
double ln_exp_down_sum(const float *x, size_t n, double most);

#endif
