/* Schedules of the learning rate. */
#include "schedule.h"
#include "../base/elementary.h"

double train_lr_factor(train_schedule s, int64_t step, int64_t n_warmup, int64_t n_steps) {
    double sine, cosine;
    if (step <= n_warmup) return (double)step / (double)n_warmup;
    if (s == TRAIN_CONSTANT || n_steps <= n_warmup) return 1;
    const double p = (double)(step - n_warmup - 1) / (double)(n_steps - n_warmup);
    if (s == TRAIN_LINEAR) return 1 - p;
    ln_sincos64(3.14159265358979323846 * p, &sine, &cosine);
    return (1 + cosine) / 2;
}
