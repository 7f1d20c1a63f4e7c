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

/* The factors that all elements of a step share. */
typedef struct factors {
    double keep, m_by, v_by;
} factors;
static factors factors_of(const ln_adamw_rates *o, int64_t t) {
    return (factors){1 - o->lr * o->weight_decay, 1 / (1 - power(o->beta1, t)), 1 / (1 - power(o->beta2, t))};
}

typedef struct element {
    float p, m, v;
} element;
static inline element next_of(const ln_adamw_rates *o, const factors *f, element e, double x) {
    const double m1 = o->beta1 * (double)e.m + (1 - o->beta1) * x,
                 v1 = o->beta2 * (double)e.v + (1 - o->beta2) * x * x;
    return (element){(float)((double)e.p * f->keep - o->lr * (m1 * f->m_by) / (sqrt(v1 * f->v_by) + o->eps)),
                     (float)m1, (float)v1};
}

void ln_adamw_update(const ln_adamw_rates *o, int64_t t, int64_t n, float *p, const float *g, double by,
                     float *m, float *v) {
    const factors f = factors_of(o, t);
    for (int64_t i = 0; i < n; i++) {
        const element e = next_of(o, &f, (element){p[i], m[i], v[i]}, (double)g[i] * by);
        p[i] = e.p, m[i] = e.m, v[i] = e.v;
    }
}

bool ln_adamw_is_finite(const ln_adamw_rates *o, int64_t t, int64_t n, const float *p, const float *g,
                        double by, const float *m, const float *v) {
    const factors f = factors_of(o, t);
    for (int64_t i = 0; i < n; i++) {
        const element e = next_of(o, &f, (element){p[i], m[i], v[i]}, (double)g[i] * by);
        if (!isfinite(e.p) || !isfinite(e.m) || !isfinite(e.v)) return false;
    }
    return true;
}

double ln_square_sum(const float *g, int64_t n, double sum) {
    for (int64_t i = 0; i < n; i++) sum += (double)g[i] * (double)g[i];
    return sum;
}
