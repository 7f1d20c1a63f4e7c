/* The learning rate of a step: a pure function of the step, so that a resumed run needs no state for it. */
#ifndef LN_SCHEDULE_H
#define LN_SCHEDULE_H

#include "../base/base.h"

typedef enum train_schedule { TRAIN_CONSTANT, TRAIN_LINEAR, TRAIN_COSINE } train_schedule;

/* The factor of the learning rate in step 1 .. n_steps. It rises linearly over the first n_warmup steps,
 * step / n_warmup, and is 1 in the last of them. After them it is 1 (constant), or falls to 0 at step
 * n_steps + 1, linearly or as half a cosine: with p = (step - n_warmup - 1) / (n_steps - n_warmup) it is
 * 1 - p or (1 + cos(pi p)) / 2, so that the first step after the warm-up has factor 1 and no step has 0. */
double train_lr_factor(train_schedule s, int64_t step, int64_t n_warmup, int64_t n_steps);

#endif
