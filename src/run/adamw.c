/* AdamW (contract: adamw.h). */
#include "adamw.h"

#include <math.h>

/* base^t by squaring: no libm in anything that reaches a parameter. */
static double power(double base, int64_t t) {
    double y = 1;
    for (; t > 0; t /= 2, base *= base)
        if (t % 2) y *= base;
    return y;
}

void ln_adamw_update(const ln_adamw_rates *o, int64_t t, int64_t n, float *p, const float *g, double by,
                     float *m, float *v) {
    const double keep = 1 - o->lr * o->weight_decay, m_by = 1 / (1 - power(o->beta1, t)),
                 v_by = 1 / (1 - power(o->beta2, t));
    for (int64_t i = 0; i < n; i++) {
        const double x = (double)g[i] * by, m1 = o->beta1 * (double)m[i] + (1 - o->beta1) * x,
                     v1 = o->beta2 * (double)v[i] + (1 - o->beta2) * x * x;
        m[i] = (float)m1;
        v[i] = (float)v1;
        p[i] = (float)((double)p[i] * keep - o->lr * (m1 * m_by) / (sqrt(v1 * v_by) + o->eps));
    }
}

double ln_square_sum(const float *g, int64_t n, double sum) {
    for (int64_t i = 0; i < n; i++) sum += (double)g[i] * (double)g[i];
    return sum;
}
