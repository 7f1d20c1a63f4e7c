/* The table of losses (contract: preference.h). */
#include "preference.h"

#include "../base/elementary.h"

/* log(1 / (1 + exp(-x))), and 1 / (1 + exp(-x)). */
static double log_sigmoid(double x) {
    return x < 0 ? x - ln_log64(1 + ln_exp64(x)) : -ln_log64(1 + ln_exp64(-x));
}
static double sigmoid(double x) {
    const double e = ln_exp64(x < 0 ? x : -x);
    return x < 0 ? e / (1 + e) : 1 / (1 + e);
}

static double score_of_chosen(const train_pair *p) { return p->chosen - p->was_chosen; }
static double score_of_rejected(const train_pair *p) { return p->rejected - p->was_rejected; }

/* Rafailov et al. 2023: -log sigmoid(beta d), d the difference of the scores. */
static train_slopes dpo(const train_pair *p, double beta) {
    const double x = beta * (score_of_chosen(p) - score_of_rejected(p)), s = beta * sigmoid(-x);
    return (train_slopes){-log_sigmoid(x), -s, s, x};
}

/* DPO of scores by token. */
static train_slopes dpo_norm(const train_pair *p, double beta) {
    const double x = beta * (score_of_chosen(p) / p->n_chosen - score_of_rejected(p) / p->n_rejected),
                 s = beta * sigmoid(-x);
    return (train_slopes){-log_sigmoid(x), -s / p->n_chosen, s / p->n_rejected, x};
}

/* Azar et al. 2023, scores by token: (d - 1 / (2 beta))^2. */
static train_slopes ipo(const train_pair *p, double beta) {
    const double d = score_of_chosen(p) / p->n_chosen - score_of_rejected(p) / p->n_rejected,
                 off = d - 1 / (2 * beta);
    return (train_slopes){off * off, 2 * off / p->n_chosen, -2 * off / p->n_rejected, beta * d};
}

/* 1 - exp(x), x a mean log-probability; that of a certain text is above 0, too. */
static double unlikely(double x) { return LN_MAX(1 - ln_exp64(x), 1e-12); }

/* Hong et al. 2024: -beta log sigmoid(the logarithm of the ratio of odds). */
static train_slopes orpo(const train_pair *p, double beta) {
    const double c = p->chosen / p->n_chosen, r = p->rejected / p->n_rejected, not_c = unlikely(c),
                 not_r = unlikely(r), x = c - r - (ln_log64(not_c) - ln_log64(not_r)), s = beta * sigmoid(-x);
    return (train_slopes){-beta * log_sigmoid(x), -s / not_c / p->n_chosen, s / not_r / p->n_rejected,
                          beta * (c - r)};
}

const train_preference train_preferences[] = {
    [LN_PREFERENCE_NONE] = {.name = "none"},
    [LN_PREFERENCE_DPO] = {.name = "dpo", .has_reference = true, .slopes = dpo},
    [LN_PREFERENCE_DPO_NORM] = {.name = "dpo-norm", .has_reference = true, .slopes = dpo_norm},
    [LN_PREFERENCE_IPO] = {.name = "ipo", .has_reference = true, .slopes = ipo},
    [LN_PREFERENCE_ORPO] = {.name = "orpo", .learns_chosen = true, .slopes = orpo},
};
