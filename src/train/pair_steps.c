/* Steps and validations of preferences (preference.h). */
#include "trainer.h"

#include "preference.h"

#include <math.h>
#include <string.h>

bool train_is_in_pairs(const train_trainer *t) { return t->preference->slopes != NULL; }

/* Prepares the n samples in t->chosen, pairs of a chosen and a rejected one, for an evaluation. */
static void begin_scores(train_trainer *t, size_t n) {
    for (size_t i = 0; i < n; i++)
        t->scored[i] = (train_scored){.whole = t->preference->learns_chosen && i % 2 == 0};
}

/* What the pairs of an evaluation amount to. */
typedef struct pair_sums {
    double loss, margin;    /* sums over pairs; without the loss of all tokens of chosen samples */
    double all_loss, n_all; /* of these tokens */
    size_t n, n_right;
} pair_sums;

/* Adds the losses of n samples that were evaluated, and writes its derivatives to their scores. */
static void add_pairs(train_trainer *t, const train_data *d, const double *was, size_t n, pair_sums *out) {
    for (size_t i = 0; i < n; i += 2) {
        train_scored *c = &t->scored[i], *r = &t->scored[i + 1];
        const uint32_t a = t->chosen[i], b = t->chosen[i + 1];
        const train_pair p = {.chosen = c->logp,
                              .rejected = r->logp,
                              .was_chosen = was ? was[a] : 0,
                              .was_rejected = was ? was[b] : 0,
                              .n_chosen = d->samples[a].n_counted,
                              .n_rejected = d->samples[b].n_counted};
        const train_slopes s = t->preference->slopes(&p, t->how.beta);
        c->by = -s.chosen, r->by = -s.rejected;
        out->loss += s.loss, out->margin += s.margin;
        out->n_right += s.margin > 0;
        out->n++;
        if (c->whole) out->all_loss -= c->all, out->n_all += d->samples[a].n - 1;
    }
}

static double loss_of(const pair_sums *s) {
    return s->loss / (double)s->n + (s->n_all > 0 ? s->all_loss / s->n_all : 0);
}

ln_status train_pairs_step(train_trainer *t, uint64_t use0, ln_step_report *out, bool *finite,
                           ln_error *err) {
    const size_t n = 2 * t->per_step;
    train_sums s = {.finite = true};
    pair_sums p = {0};
    begin_scores(t, n);
    LN_TRY(train_run_samples(t, &t->data, n, use0, false, &s, err));
    add_pairs(t, &t->data, t->was, n, &p);
    for (size_t i = 0; i < n; i++) {
        t->scored[i].by /= (double)p.n;
        t->scored[i].by_all = t->scored[i].whole ? 1 / p.n_all : 0;
    }
    out->tokens = s.n_tokens;
    out->n_targets = s.n_counted;
    out->loss = loss_of(&p);
    out->accuracy = (double)p.n_right / (double)p.n;
    out->margin = p.margin / (double)p.n;
    LN_TRY(train_run_samples(t, &t->data, n, use0, true, &s, err));
    *finite = s.finite && isfinite(out->loss);
    return LN_OK;
}

ln_status train_pairs_eval(train_trainer *t, const train_data *d, ln_valid_report *out, ln_error *err) {
    const double *was = t->valid_is_split ? t->was : t->was_valid;
    pair_sums p = {0};
    for (size_t i = 0; i < t->n_valid; i += EVAL_SAMPLES / 2) {
        const size_t n = LN_MIN(t->n_valid - i, (size_t)EVAL_SAMPLES / 2);
        train_sums s = {.finite = true};
        for (size_t k = 0; k < n; k++) {
            t->chosen[2 * k] = 2 * t->valid_rows[i + k];
            t->chosen[2 * k + 1] = 2 * t->valid_rows[i + k] + 1;
        }
        begin_scores(t, 2 * n);
        LN_TRY(train_run_samples(t, d, 2 * n, 0, false, &s, err));
        add_pairs(t, d, was, 2 * n, &p);
    }
    out->loss = loss_of(&p);
    out->perplexity = (double)NAN;
    out->accuracy = (double)p.n_right / (double)p.n;
    out->margin = p.margin / (double)p.n;
    return LN_OK;
}

/* Evaluates all samples of the data with the parameters as they are. */
static ln_status evaluate_all(train_trainer *t, const train_data *d, double *out, ln_error *err) {
    for (size_t i = 0; i < d->n; i += EVAL_SAMPLES) {
        const size_t n = LN_MIN(d->n - i, (size_t)EVAL_SAMPLES);
        train_sums s = {.finite = true};
        for (size_t k = 0; k < n; k++) t->chosen[k] = (uint32_t)(i + k), t->scored[k] = (train_scored){0};
        LN_TRY(train_run_samples(t, d, n, 0, false, &s, err));
        for (size_t k = 0; k < n; k++) out[i + k] = t->scored[k].logp;
        ln_say_progress(&t->program_options.run, "reference", (int64_t)(i + n), (int64_t)d->n);
    }
    return LN_OK;
}

ln_status train_pairs_open(train_trainer *t, ln_error *err) {
    if (!t->preference->has_reference) return LN_OK;
    t->was = ln_arena_alloc(&t->arena, (t->data.n + 1) * sizeof *t->was);
    t->was_valid = ln_arena_alloc(&t->arena, (t->valid.n + 1) * sizeof *t->was_valid);
    return t->was && t->was_valid ? LN_OK : LN_OOM(err, "log-probabilities of the answers");
}

ln_status train_pairs_begin(train_trainer *t, ln_error *err) {
    if (!t->preference->has_reference) return LN_OK;
    LN_TRY(evaluate_all(t, &t->data, t->was, err));
    return t->valid.n > 0 ? evaluate_all(t, &t->valid, t->was_valid, err) : LN_OK;
}
