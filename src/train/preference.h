/* Losses of preferences: of each pair of answers to one prompt, the chosen one is made likelier than the
 * rejected one. A row of preference.c for each loss; the formulas are those of TRL.
 *
 * A step evaluates the samples of its pairs, takes from the table how the loss changes with the
 * log-probability of each answer, and runs the samples again with these numbers as weights of their targets.
 * The gradient is that of the loss itself. */
#ifndef LN_PREFERENCE_H
#define LN_PREFERENCE_H

#include <linnet_train.h>

#include "../base/base.h"

/* A pair: sums of the log-probabilities of the targets of each answer, now and before the first step. */
typedef struct train_pair {
    double chosen, rejected, was_chosen, was_rejected;
    double n_chosen, n_rejected; /* targets */
} train_pair;
/* The loss of a pair, its derivatives with respect to `chosen` and `rejected`, and by how much the reward of
 * the chosen answer is above that of the rejected one. */
typedef struct train_slopes {
    double loss, chosen, rejected, margin;
} train_slopes;

typedef struct train_preference {
    const char *name;
    bool has_reference; /* was_chosen and was_rejected are read */
    bool learns_chosen; /* the mean loss of all tokens of the chosen samples, prompts included, is added */
    train_slopes (*slopes)(const train_pair *p, double beta);
} train_preference;

/* By ln_preference; the first row has no slopes. */
extern const train_preference train_preferences[LN_PREFERENCE_ORPO + 1];

#endif
