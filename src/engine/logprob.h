/* Log-probabilities of a row of logits: the log-softmax of the f32 logits, summed in double: log p = l - max
 * - log(sum exp(l - max)). */
#ifndef LN_LOGPROB_H
#define LN_LOGPROB_H

#include "../base/base.h"

/* Computes log(sum exp) of a row of V logits. LN_ENUMERIC: a NaN, +infinity, or all minus infinity. */
ln_status ln_log_sum(const float *l, int64_t V, double *out, ln_error *err);
/* Writes the n <= V likeliest tokens to top[n] in descending order, the lowest id first on ties; `lse` is
 * ln_log_sum of the row. */
void ln_find_top(const float *l, int64_t V, double lse, ln_top *top, size_t n);

#endif
