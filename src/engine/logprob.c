/* Log-probabilities of a row of logits. */
#include "logprob.h"

#include "../base/elementary.h"
#include "../base/exp_sum.h"

#include <math.h>

ln_status ln_log_sum(const float *l, int64_t V, double *out, ln_error *err) {
    double max = -INFINITY;
    for (int64_t i = 0; i < V; i++) {
        if (l[i] != l[i])
            return ln_fail(err, LN_ENUMERIC,
                           "logits: NaN for token %lld; the weights or the arithmetic are broken",
                           (long long)i);
        if (l[i] > max) max = l[i];
    }
    if (max == INFINITY || max == -INFINITY)
        return ln_fail(err, LN_ENUMERIC, "logits: infinite; the weights or the arithmetic are broken");
    *out = max + ln_log64(ln_exp_down_sum(l, (size_t)V, max));
    return LN_OK;
}

/* The list is kept sorted by insertion. */
void ln_find_top(const float *l, int64_t V, double lse, ln_top *top, size_t n) {
    size_t have = 0;
    for (int64_t i = 0; i < V && n > 0; i++) {
        double lp = (double)l[i] - lse;
        if (have == n && lp <= top[n - 1].logprob) continue;
        size_t at = have < n ? have++ : n - 1;
        for (; at > 0 && top[at - 1].logprob < lp; at--) top[at] = top[at - 1];
        top[at] = (ln_top){(int32_t)i, lp};
    }
}
