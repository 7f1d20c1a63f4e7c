/* Schedules of the learning rate (contract: schedule.h). */
#include "schedule.h"
#include "../base/elementary.h"

#include <math.h>

/* Half a cosine from 1 at p = 0 to 0 at p = 1. */
static double half_cosine(double p) {
    double sine, cosine;
    ln_sincos64(3.14159265358979323846 * p, &sine, &cosine);
    return (1 + cosine) / 2;
}
static double above(double floor, double factor) { return factor * (1 - floor) + floor; }

/* done: steps after the warm-up before this one. */
static double constant(const train_schedule *s, int64_t done, double p) {
    (void)s, (void)done, (void)p;
    return 1;
}
static double linear(const train_schedule *s, int64_t done, double p) {
    (void)s, (void)done;
    return 1 - p;
}
static double cosine(const train_schedule *s, int64_t done, double p) {
    (void)s, (void)done;
    return half_cosine(p);
}
static double restarts(const train_schedule *s, int64_t done, double p) {
    (void)done;
    return half_cosine(fmod(p * s->cycles, 1));
}
static double polynomial(const train_schedule *s, int64_t done, double p) {
    (void)done;
    return above(s->floor, ln_exp64(s->power * ln_log64(1 - p)));
}
/* Falls as 1 / sqrt(step) does; its time scale is the warm-up, or 10,000 steps. */
static double inverse_sqrt(const train_schedule *s, int64_t done, double p) {
    const double scale = s->n_warmup > 0 ? (double)s->n_warmup : 10000;
    (void)p;
    return 1 / sqrt(((double)done + scale) / scale);
}
static double min_lr(const train_schedule *s, int64_t done, double p) {
    (void)done;
    return above(s->floor, half_cosine(p));
}
static double stable(const train_schedule *s, int64_t done, double p) {
    const int64_t n = s->n_steps - s->n_warmup - s->n_decay; /* steps in which it stays */
    (void)p;
    return done < n ? 1 : above(s->floor, half_cosine((double)(done - n) / (double)s->n_decay));
}

static const struct {
    const char *name;
    double (*factor)(const train_schedule *s, int64_t done, double p);
    bool of_steps;
} rows[] = {
    [LN_SCHEDULE_CONSTANT] = {"constant", constant, false},
    [LN_SCHEDULE_LINEAR] = {"linear", linear, true},
    [LN_SCHEDULE_COSINE] = {"cosine", cosine, true},
    [LN_SCHEDULE_CONSTANT_WITH_WARMUP] = {"constant_with_warmup", constant, false},
    [LN_SCHEDULE_COSINE_WITH_RESTARTS] = {"cosine_with_restarts", restarts, true},
    [LN_SCHEDULE_POLYNOMIAL] = {"polynomial", polynomial, true},
    [LN_SCHEDULE_INVERSE_SQRT] = {"inverse_sqrt", inverse_sqrt, false},
    [LN_SCHEDULE_COSINE_WITH_MIN_LR] = {"cosine_with_min_lr", min_lr, true},
    [LN_SCHEDULE_WARMUP_STABLE_DECAY] = {"warmup_stable_decay", stable, true},
};

const char *train_schedule_name(ln_schedule kind) { return rows[kind].name; }
bool train_schedule_is_of_steps(ln_schedule kind) { return rows[kind].of_steps; }

double train_lr_factor(const train_schedule *s, int64_t step) {
    if (step <= s->n_warmup) {
        const double rises = (double)step / (double)s->n_warmup;
        return s->kind == LN_SCHEDULE_WARMUP_STABLE_DECAY ? above(s->floor, rises) : rises;
    }
    const int64_t done = step - s->n_warmup - 1, n = s->n_steps - s->n_warmup;
    return rows[s->kind].factor(s, done, n > 0 ? (double)done / (double)n : 0);
}
