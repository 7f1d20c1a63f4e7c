/* What ln_device_ops.sample asks for, done by the host: mask and edits as device.h describes them, then the
 * sampler of the engine without penalties. */
#ifndef LN_ROW_SAMPLING_H
#define LN_ROW_SAMPLING_H

#include "common.h"
#include "engine/logprob.h"
#include "engine/sampler.h"

#include <math.h>

static inline void edit_logits(float *logits, int64_t V, const ln_row_sampling *r) {
    for (int64_t i = 0; r->mask && i < V; i++)
        if (!(r->mask[i / 64] >> (i % 64) & 1)) logits[i] = -INFINITY;
    for (int i = 0; i < r->n_edits; i++) {
        const ln_logit_edit *e = &r->edits[i];
        float *x = &logits[e->id];
        if (e->what & LN_EDIT_ADD) *x += e->add;
        if (e->what & LN_EDIT_REPEAT) *x = *x > 0 ? *x / r->repeat_penalty : *x * r->repeat_penalty;
        if (e->what & LN_EDIT_SUBTRACT) *x -= e->subtract;
        if (e->what & LN_EDIT_FORBID) *x = -INFINITY;
    }
}

/* The token of a row, and what else is asked for. `logits` [V] are overwritten. */
static inline int32_t sample_row(ln_sampler *s, float *logits, int64_t V, const ln_row_sampling *r) {
    float *raw = malloc((size_t)V * sizeof *raw);
    int32_t id = r->token;
    double lse = 0;
    memcpy(raw, logits, (size_t)V * sizeof *raw);
    if (r->logprob) {
        OK(ln_log_sum(raw, V, &lse, err));
        ln_find_top(raw, V, lse, r->top, (size_t)r->n_top);
    }
    if (id < 0) {
        const ln_sampling how = {.temperature = (double)r->temperature,
                                 .top_k = r->top_k,
                                 .top_p = r->top_p,
                                 .min_p = r->min_p,
                                 .repeat_penalty = 1};
        int32_t *history = calloc((size_t)r->position + 1, sizeof *history);
        edit_logits(logits, V, r);
        OK(ln_sample(s, logits, &how, r->seed, history, (int64_t)r->position, 0, NULL, 0, &id, err));
        free(history);
    }
    if (r->logprob) *r->logprob = (double)raw[id] - lse;
    free(raw);
    return id;
}
#endif
