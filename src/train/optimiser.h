/* Optimisers: a row of optimiser.c for each. They run on the host, in the order of the parameters, with the
 * arithmetic of an element in double: the same bits whatever the threads. */
#ifndef LN_OPTIMISER_H
#define LN_OPTIMISER_H

#include <linnet_train.h>

#include "checkpoint.h"

/* What an update of one parameter depends on. */
typedef struct train_update {
    double lr, weight_decay, momentum;
    int64_t t;         /* of the update, from 1 */
    const float *grad; /* of p, times `by`: its gradient */
    double by;
} train_update;

typedef struct train_optimiser {
    const char *name;
    /* Returns how many moments a number has: train_param.m, and v. */
    int (*n_moments)(const ln_trainer_options *how);
    /* Returns whether an update leaves finite numbers; makes it. */
    bool (*is_finite)(train_param *p, const train_update *u);
    void (*update)(train_param *p, const train_update *u);
} train_optimiser;

/* By ln_optimizer. */
extern const train_optimiser train_optimisers[LN_OPTIMIZER_SGD + 1];

#endif
