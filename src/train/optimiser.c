/* The table of optimisers (contract: optimiser.h). */
#include "optimiser.h"

#include "../run/adamw.h"
#include "moments.h"

#include <math.h>

/* ---- AdamW ---- */

static ln_adamw_rates rates_of(const train_update *u) {
    return (ln_adamw_rates){
        .lr = u->lr, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = u->weight_decay};
}
static int adamw_moments(const ln_trainer_options *how) {
    (void)how;
    return 2;
}
/* Updates a parameter whose moments have 8 bits, a block at a time, or says whether that would leave finite
 * numbers. */
static bool adamw_blocks(train_param *p, const train_update *u, bool writes) {
    const ln_adamw_rates rates = rates_of(u);
    float m[TRAIN_BLOCK], v[TRAIN_BLOCK];
    const int64_t all = p->rows * p->cols;
    for (int64_t at = 0; at < all; at += TRAIN_BLOCK) {
        const int64_t n = LN_MIN((int64_t)TRAIN_BLOCK, all - at);
        float *value = p->value + at;
        const float *grad = u->grad + at;
        train_codes_read(p, at, n, m, v);
        if (!writes && !ln_adamw_is_finite(&rates, u->t, n, value, grad, u->by, m, v)) return false;
        if (!writes) continue;
        ln_adamw_update(&rates, u->t, n, value, grad, u->by, m, v);
        train_codes_write(p, at, n, m, v);
    }
    return true;
}
static bool adamw_is_finite(train_param *p, const train_update *u) {
    const ln_adamw_rates rates = rates_of(u);
    if (p->m8) return adamw_blocks(p, u, false);
    return ln_adamw_is_finite(&rates, u->t, p->rows * p->cols, p->value, u->grad, u->by, p->m, p->v);
}
static void adamw_update(train_param *p, const train_update *u) {
    const ln_adamw_rates rates = rates_of(u);
    if (p->m8) (void)adamw_blocks(p, u, true);
    else ln_adamw_update(&rates, u->t, p->rows * p->cols, p->value, u->grad, u->by, p->m, p->v);
}

/* ---- SGD, as torch.optim.SGD: the decay is a part of the gradient ---- */

typedef struct element {
    float p, m;
} element;
static inline element next_of(const train_update *u, element e, double gradient) {
    const double g = gradient + u->weight_decay * (double)e.p, m = u->momentum * (double)e.m + g;
    return (element){(float)((double)e.p - u->lr * m), (float)m};
}
static int sgd_moments(const ln_trainer_options *how) { return how->momentum > 0 ? 1 : 0; }
static element element_of(const train_param *p, const train_update *u, int64_t i) {
    return next_of(u, (element){p->value[i], p->m ? p->m[i] : 0}, (double)u->grad[i] * u->by);
}
static bool sgd_is_finite(train_param *p, const train_update *u) {
    for (int64_t i = 0; i < p->rows * p->cols; i++) {
        const element e = element_of(p, u, i);
        if (!isfinite(e.p) || !isfinite(e.m)) return false;
    }
    return true;
}
static void sgd_update(train_param *p, const train_update *u) {
    for (int64_t i = 0; i < p->rows * p->cols; i++) {
        const element e = element_of(p, u, i);
        p->value[i] = e.p;
        if (p->m) p->m[i] = e.m;
    }
}

const train_optimiser train_optimisers[] = {
    [LN_OPTIMIZER_ADAMW] = {"adamw", adamw_moments, adamw_is_finite, adamw_update},
    [LN_OPTIMIZER_SGD] = {"sgd", sgd_moments, sgd_is_finite, sgd_update},
};
