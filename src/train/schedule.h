/* The learning rate of a step: a pure function of the step, so that a resumed run needs no state for it. The
 * schedules are those of transformers (optimization.py), a row of schedule.c for each. */
#ifndef LN_SCHEDULE_H
#define LN_SCHEDULE_H

#include <linnet_train.h>

#include "../base/base.h"

/* A schedule with its numbers. */
typedef struct train_schedule {
    ln_schedule kind;
    int64_t n_warmup, n_steps;
    int64_t n_decay; /* of warmup_stable_decay: the steps in which the rate falls */
    double floor;    /* the smallest factor of a schedule that does not fall to 0 */
    double power;    /* of polynomial */
    int cycles;      /* of cosine_with_restarts */
} train_schedule;

/* Returns the name of a schedule, and whether its rates depend on the number of steps. */
const char *train_schedule_name(ln_schedule kind);
bool train_schedule_is_of_steps(ln_schedule kind);

/* Returns the factor of the learning rate in step 1 .. n_steps. It rises linearly over the first n_warmup
 * steps, step / n_warmup, and is 1 in the last of them, and in the step after it. Then it is that of the
 * schedule at p = (step - n_warmup - 1) / (n_steps - n_warmup), so that no step has p = 1. */
double train_lr_factor(const train_schedule *s, int64_t step);

#endif
