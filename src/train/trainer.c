/* Steps, validations, checkpoints, and the loop over them. */
#include "methods.h"
#include "moments.h"

#include "../base/file.h"
#include "../base/float_env.h"
#include "../base/thread_pool.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_SKIPPED = 3 }; /* steps in a row without a finite loss that end a run */

const ln_trainer_info *train_info(const train_trainer *t) { return &t->info; }
size_t train_count(const train_trainer *t) { return t->state.n_params; }
ln_trained train_matrix(const train_trainer *t, size_t i) {
    const train_param *p = &t->state.params[i];
    return (ln_trained){.name = p->name, .rows = p->rows, .cols = p->cols, .values = p->value};
}

/* ---- micro-batches ---- */

static const train_sample *sample_at(const train_data *d, uint32_t i) { return &d->samples[i]; }

/* Appends the rows of a sample: row t predicts token t + 1. Rows after the last counted target are left out,
 * since nothing but a dynamic rope depends on them, which follows ln_train_batch.lengths. x: of a preference.
 * Returns the rows after them. */
static int32_t add_rows(train_trainer *t, const train_data *d, uint32_t i, const train_scored *x,
                        int32_t at) {
    const train_sample *s = sample_at(d, i);
    const uint32_t *ids = d->ids + s->at;
    const bool whole = x && x->whole;
    uint32_t last = s->n - 1;
    while (last > 0 && !whole && !(ids[last] & TRAIN_COUNTED)) last--;
    for (uint32_t k = 0; k < last; k++, at++) {
        const bool counts = ids[k + 1] & TRAIN_COUNTED;
        t->ids[at] = (int32_t)(ids[k] & ~TRAIN_COUNTED);
        t->targets[at] = counts || whole ? (int32_t)(ids[k + 1] & ~TRAIN_COUNTED) : -1;
        if (x) t->weights[at] = (float)((counts ? x->by : 0) + x->by_all);
    }
    return at;
}

/* Adds the losses of a sample's rows, the first of which is `row`, to its scores. */
static void add_scores(const train_trainer *t, const train_data *d, uint32_t i, int32_t row, int32_t end,
                       train_scored *x) {
    const uint32_t *ids = d->ids + sample_at(d, i)->at;
    for (int32_t r = row; r < end; r++) {
        if (t->targets[r] < 0) continue;
        x->all -= (double)t->row_losses[r];
        if (ids[r - row + 1] & TRAIN_COUNTED) x->logp -= (double)t->row_losses[r];
    }
}

/* Fills the step with the samples of bin b, and counts their tokens. */
static void fill_batch(train_trainer *t, const train_data *d, size_t n, size_t b, uint64_t use0, bool trains,
                       ln_train_batch *batch, train_sums *out) {
    *batch = (ln_train_batch){.ids = t->ids,
                              .row0 = t->row0,
                              .lengths = t->lengths,
                              .targets = t->targets,
                              .weights = trains ? t->weights : NULL,
                              .losses = trains ? NULL : t->row_losses,
                              .samples = t->uses};
    for (size_t i = 0; i < n; i++) {
        if (t->bins[i] != b) continue;
        t->uses[batch->n_seqs] = use0 + i;
        t->lengths[batch->n_seqs] = (int32_t)t->sizes[i];
        t->row0[batch->n_seqs++] = batch->n_rows;
        batch->n_rows = add_rows(t, d, t->chosen[i], t->scored ? &t->scored[i] : NULL, batch->n_rows);
        out->n_tokens += t->sizes[i];
    }
    t->row0[batch->n_seqs] = batch->n_rows;
}

/* Adds the losses of the samples of bin b to their scores. */
static void score_bin(train_trainer *t, const train_data *d, size_t n, size_t b) {
    for (size_t i = 0, q = 0; i < n; i++) {
        if (t->bins[i] != b) continue;
        add_scores(t, d, t->chosen[i], t->row0[q], t->row0[q + 1], &t->scored[i]);
        q++;
    }
}

ln_status train_run_samples(train_trainer *t, const train_data *d, size_t n, uint64_t use0, bool trains,
                            train_sums *out, ln_error *err) {
    const size_t size = t->ranks ? (size_t)t->ranks->size : 1, rank = t->ranks ? (size_t)t->ranks->rank : 0;
    size_t n_bins;
    for (size_t i = 0; i < n; i++) t->sizes[i] = sample_at(d, t->chosen[i])->n;
    train_pack(t->sizes, n, (uint64_t)t->info.n_rows, t->bins, t->scratch, &n_bins);
    if (t->ranks && trains) train_ranks_clear(t);
    ln_train_result r = {.finite = true};
    ln_status st = LN_OK;
    for (size_t b = 0; b < n_bins; b++) {
        ln_train_batch batch;
        fill_batch(t, d, n, b, use0, trains, &batch, out);
        if (b % size == rank) {
            if (t->ranks) ln_train_clear(t->program);
            st = trains ? ln_train_step(t->program, &batch, &r, err)
                        : ln_train_evaluate(t->program, &batch, &r, err);
            if (st == LN_OK && t->scored && !trains) score_bin(t, d, n, b);
        }
        if (t->ranks) {
            if ((b + 1) % size && b + 1 < n_bins) continue;
            LN_TRY(train_ranks_round(t, st, b % size >= rank ? &r : NULL, trains, out, err));
            continue;
        }
        LN_TRY(st);
        out->loss += r.loss;
        out->n_counted += r.n_counted;
        out->finite = out->finite && r.finite;
    }
    if (t->ranks && trains) train_ranks_finish(t);
    return t->ranks && t->scored && !trains ? train_ranks_scores(t, n, err) : LN_OK;
}

/* ---- a step ---- */

/* The factor of the gradients: their mean over the targets, clipped to a norm, as torch's clip_grad_norm_. */
static double gradient_factor(const train_trainer *t, int64_t n_counted, double *norm) {
    size_t n;
    double sum = 0;
    const ln_train_param *x = ln_train_program_params(t->program, &n);
    for (size_t i = 0; i < n; i++) sum = ln_square_sum(x[i].grad, x[i].rows * x[i].cols, sum);
    *norm = sqrt(sum) / (double)n_counted;
    const double factor = t->how.clip > 0 ? t->how.clip / (*norm + 1e-6) : 1;
    return LN_MIN(factor, 1.0) / (double)n_counted;
}

/* An update of all parameters, or the question whether it leaves finite numbers, on several threads. */
typedef struct updating {
    train_trainer *t;
    const ln_train_param *x;
    size_t n;
    double lr, by;
    bool writes, failed; /* failed: atomic */
} updating;
/* Elements [from, to) of a parameter as one by itself. */
static train_param part_of(const train_param *p, int64_t from, int64_t to) {
    return (train_param){.rows = 1,
                         .cols = to - from,
                         .value = p->value + from,
                         .m = p->m ? p->m + from : NULL,
                         .v = p->v ? p->v + from : NULL,
                         .m8 = p->m8 ? p->m8 + from : NULL,
                         .v8 = p->v8 ? p->v8 + from : NULL,
                         .m_most = p->m_most ? p->m_most + from / TRAIN_BLOCK : NULL,
                         .v_most = p->v_most ? p->v_most + from / TRAIN_BLOCK : NULL};
}
/* A thread has a part of each parameter, of whole blocks of moments. Denormals are kept, as outside a job. */
static void update_some(void *user, int thread, int n_threads) {
    updating *a = user;
    train_trainer *t = a->t;
    ln_float_env env;
    ln_float_env_default(&env);
    for (size_t i = 0; i < a->n; i++) {
        const train_param *all = &t->state.params[i];
        const int64_t n = all->rows * all->cols, blocks = train_blocks(n),
                      from = LN_MIN(n, blocks * thread / n_threads * TRAIN_BLOCK),
                      to = LN_MIN(n, blocks * (thread + 1) / n_threads * TRAIN_BLOCK);
        train_param part = part_of(all, from, to);
        const train_update u = {.lr = a->lr,
                                .weight_decay = a->x[i].decays ? t->how.weight_decay : 0,
                                .momentum = t->how.momentum,
                                .t = t->state.n_updates + 1,
                                .grad = a->x[i].grad + from,
                                .by = a->by};
        if (a->writes) t->optimiser->update(&part, &u);
        else if (!t->optimiser->is_finite(&part, &u)) __atomic_store_n(&a->failed, true, __ATOMIC_RELAXED);
    }
    ln_float_env_restore(&env);
}

/* Updates the parameters, or none of them and returns false if a value would not be finite. */
static bool update(train_trainer *t, double lr, double by) {
    const ln_run_options *o = &t->program_options.run;
    updating a = {.t = t, .lr = lr, .by = by};
    a.x = ln_train_program_params(t->program, &a.n);
    ln_pool_run(ln_run_pool(o), o->n_threads, update_some, &a);
    if (a.failed) return false;
    a.writes = true;
    ln_pool_run(ln_run_pool(o), o->n_threads, update_some, &a);
    t->state.n_updates++;
    ln_train_values_changed(t->program);
    return true;
}

static ln_status not_finite(const train_trainer *t, ln_error *err) {
    return ln_fail(err, LN_ENUMERIC,
                   "step %lld: loss or gradient was NaN or infinite in %d steps in a row; the last "
                   "checkpoint is "
                   "as it was: lower ln_trainer_options.lr",
                   (long long)t->state.step, MOST_SKIPPED);
}

/* Chooses the samples of the next step: of preferences both of each pair. */
static void choose_samples(train_trainer *t) {
    const uint32_t per = (uint32_t)train_per_unit(t);
    train_order_next(&t->order, &t->state.cursor, t->per_step, t->chosen);
    for (size_t i = t->per_step; i-- > 0;)
        for (uint32_t k = per, row = t->train_rows[t->chosen[i]]; k-- > 0;)
            t->chosen[per * i + k] = per * row + k;
}

static ln_status run_step(train_trainer *t, ln_step_report *out, ln_error *err) {
    train_sums s = {.finite = true};
    const uint64_t use0 = t->state.cursor.epoch * t->n_epoch + t->state.cursor.at;
    double by = 0;
    choose_samples(t);
    ln_train_clear(t->program);
    if (train_is_in_pairs(t)) {
        LN_TRY(train_pairs_step(t, use0, out, &s.finite, err));
        by = gradient_factor(t, 1, &out->grad_norm);
    } else {
        LN_TRY(train_run_samples(t, &t->data, t->per_step, use0, true, &s, err));
        out->loss = s.loss / (double)s.n_counted;
        out->tokens = s.n_tokens;
        out->n_targets = s.n_counted;
        by = gradient_factor(t, s.n_counted, &out->grad_norm);
    }
    out->lr = t->how.lr * train_lr_factor(&t->schedule, out->step);
    out->skipped = !s.finite || !isfinite(out->grad_norm) || !update(t, out->lr, by);
    return LN_OK;
}

ln_status train_step(train_trainer *t, ln_step_report *out, ln_error *err) {
    const double start = ln_now();
    if (t->state.n_bad >= MOST_SKIPPED) return not_finite(t, err);
    if (t->state.step >= t->info.n_steps)
        return ln_fail(err, LN_EUSAGE, "all %lld steps of the run are done", (long long)t->info.n_steps);
    *out = (ln_step_report){.size = sizeof *out,
                            .step = t->state.step + 1,
                            .steps = t->info.n_steps,
                            .accuracy = (double)NAN,
                            .margin = (double)NAN};
    LN_TRY(run_step(t, out, err));
    LN_TRY(ln_tensors_check(&t->m->tensors, true, err));
    t->state.step++;
    t->state.n_tokens += (uint64_t)out->tokens;
    t->state.n_bad = out->skipped ? t->state.n_bad + 1 : 0;
    out->epoch = (double)t->state.cursor.epoch + (double)t->state.cursor.at / (double)t->n_epoch;
    out->seconds = ln_now() - start;
    out->tok_s = out->seconds > 0 ? (double)out->tokens / out->seconds : 0;
    out->peak_bytes = ln_memory_peak();
    if (out->skipped)
        ln_log(LN_LOG_WARN, "step %lld: loss or gradient is NaN or infinite; nothing was updated",
               (long long)out->step);
    return t->state.n_bad >= MOST_SKIPPED ? not_finite(t, err) : LN_OK;
}

/* ---- validation ---- */

static ln_status eval_samples(train_trainer *t, const train_data *d, ln_valid_report *out, ln_error *err) {
    train_sums s = {.finite = true};
    for (size_t i = 0; i < t->n_valid; i += EVAL_SAMPLES) {
        const size_t n = LN_MIN(t->n_valid - i, (size_t)EVAL_SAMPLES);
        memcpy(t->chosen, t->valid_rows + i, n * sizeof *t->chosen);
        LN_TRY(train_run_samples(t, d, n, 0, false, &s, err));
    }
    out->loss = s.loss / (double)s.n_counted;
    out->perplexity = exp(out->loss);
    return LN_OK;
}

ln_status train_eval(train_trainer *t, ln_valid_report *out, ln_error *err) {
    const train_data *d = t->valid_is_split ? &t->data : &t->valid;
    if (t->n_valid == 0)
        return ln_fail(err, LN_EUSAGE,
                       "there are no samples for validation: set ln_trainer_options.valid or "
                       "ln_trainer_options.valid_split");
    *out = (ln_valid_report){
        .size = sizeof *out, .step = t->state.step, .accuracy = (double)NAN, .margin = (double)NAN};
    LN_TRY(train_is_in_pairs(t) ? train_pairs_eval(t, d, out, err) : eval_samples(t, d, out, err));
    const double loss = out->loss;
    const bool best = isfinite(loss) && (t->state.best_step == 0 || loss < t->state.best_loss);
    out->best = best;
    t->state.valid_step = t->state.step;
    if (best) t->state.best_loss = loss, t->state.best_step = LN_MAX(t->state.step, 1), t->state.n_worse = 0;
    else t->state.n_worse++;
    return LN_OK;
}

/* ---- files ---- */

static ln_status need_out(const train_trainer *t, ln_error *err) {
    return t->how.out ? LN_OK
                      : ln_fail(err, LN_EUSAGE, "ln_trainer_options.out: expected a directory to write to");
}

void train_checkpoints(const train_trainer *t, char path[4096 + 16]) {
    (void)snprintf(path, 4096 + 16, "%s/checkpoints", t->how.out);
}

ln_status train_checkpoint(train_trainer *t, ln_error *err) {
    char path[4096 + 16], shown[LN_PATH_TEXT], why[LN_ERRNO_TEXT];
    LN_TRY(need_out(t, err));
    if (!t->writes) return LN_OK; /* rank 0 does */
    train_checkpoints(t, path);
    if (mkdir(path, 0777) != 0 && errno != EEXIST) /* another process may have removed it */
        return ln_fail(err, LN_EIO, "%s: cannot create: %s", ln_path_text(shown, path),
                       ln_errno_text(why, errno));
    return train_checkpoint_write(path, &t->state,
                                  &(train_save){.settings = t->settings,
                                                .time = t->time,
                                                .adapter_config = t->adapter_config,
                                                .bf16 = t->how.bf16,
                                                .keep = t->how.keep},
                                  err);
}

ln_status train_resume_from(train_trainer *t, const train_found *f, int64_t *step, ln_error *err) {
    *step = f->step;
    if (!f->manifest && f->n_damaged > 0)
        return ln_fail(err, LN_EINVALID,
                       "%s: all checkpoints are damaged; move the directory away to start again", t->how.out);
    if (!f->manifest) return LN_OK;
    LN_TRY(train_settings_check(f, t->settings, err));
    ln_train_values_changed(t->program);
    return train_checkpoint_read(f, &t->state, err);
}

ln_status train_resume(train_trainer *t, int64_t *step, ln_error *err) {
    char path[4096 + 16];
    train_found f;
    LN_TRY(need_out(t, err));
    train_checkpoints(t, path);
    LN_TRY(train_checkpoint_find(path, &f, err));
    ln_status st = train_resume_from(t, &f, step, err);
    if (st == LN_OK && f.manifest) { /* the lines of steps that will be done again are cut off */
        train_metrics_close(&t->metrics);
        st = train_metrics_open(&t->metrics, t->how.out, *step, t->state.valid_step, err);
        train_events_close(&t->events);
        if (st == LN_OK && t->how.event_file) st = train_events_open(&t->events, t->how.out, *step, err);
    }
    train_found_free(&f);
    return st;
}

/* Writes the chat template of the model next to the adapter. */
static ln_status write_template(const train_trainer *t, const char *dir, ln_error *err) {
    size_t bytes;
    if (!t->m->tmpl) return LN_OK;
    const char *text = ln_model_template_source(t->m->tmpl, &bytes);
    return train_file_write(dir, "chat_template.jinja", &(train_part){text, bytes}, 1, NULL, err);
}

ln_status train_export(train_trainer *t, const char *dir, ln_error *err) {
    LN_TRY(ln_make_dirs(dir, err));
    LN_TRY(t->method->write(t, dir, err));
    return write_template(t, dir, err);
}

/* ---- the loop ---- */

typedef struct looping {
    train_trainer *t;
    const ln_trainer_events *on;
    ln_trainer_result *out;
} looping;

static ln_status validate(looping *l, ln_error *err) {
    train_trainer *t = l->t;
    char path[4096 + 16];
    ln_valid_report r;
    LN_TRY(train_eval(t, &r, err));
    if (t->writes) {
        LN_TRY(train_metrics_valid(&t->metrics, &r, err));
        LN_TRY(train_events_valid(&t->events, &r, err));
        (void)snprintf(path, sizeof path, "%s/best", t->how.out);
        if (r.best) LN_TRY(train_export(t, path, err));
        LN_TRY(train_chart_write(&t->metrics, t->how.out, err));
    }
    l->out->stopped_early = t->how.early_stop > 0 && t->state.n_worse >= t->how.early_stop;
    return l->on->on_valid ? LN_CALLBACK(l->on->on_valid(l->on->user, &r, err)) : LN_OK;
}

/* Returns the number of texts of the last step that were written. */
static size_t texts_written(const train_trainer *t) {
    return t->metrics.text_step == t->state.step ? t->metrics.n_texts : 0;
}
/* Whether the last step is one after which the model writes texts. */
static bool has_texts(const train_trainer *t) {
    const int64_t step = t->state.step, every = t->how.sample_every;
    return every > 0 && step > 0 && step % every == 0;
}

static ln_status report_text(looping *l, size_t i, ln_str *text, ln_error *err) {
    train_trainer *t = l->t;
    ln_text_report r;
    LN_TRY(train_text(t, i, text, &r, err));
    if (t->writes) LN_TRY(train_metrics_text(&t->metrics, &r, err));
    if (t->writes) LN_TRY(train_events_text(&t->events, &r, err));
    return l->on->on_text ? LN_CALLBACK(l->on->on_text(l->on->user, &r, err)) : LN_OK;
}
/* Writes the texts that are missing, if this is rank 0. */
static ln_status write_texts(looping *l, ln_error *err) {
    ln_status st = LN_OK;
    if (l->t->ranks && l->t->ranks->rank > 0) return LN_OK;
    for (size_t i = texts_written(l->t); i < l->t->n_prompts && st == LN_OK; i++) {
        ln_str text = {0};
        st = report_text(l, i, &text, err);
        ln_str_free(&text);
    }
    return st;
}

static ln_status save(looping *l, ln_error *err) {
    return l->t->writes ? train_checkpoint(l->t, err) : LN_OK;
}

/* Whether the step that was done ends an epoch. */
static bool ends_epoch(const train_trainer *t) {
    const int64_t per = (int64_t)t->per_step, n = (int64_t)t->n_epoch, step = t->state.step;
    return step * per / n > (step - 1) * per / n;
}

/* Whether the last step is one after which the run validates, and it has not been done. */
static bool validation_is_due(const train_trainer *t) {
    const int64_t step = t->state.step;
    if (t->n_valid == 0 || step == 0 || t->state.valid_step == step) return false;
    if (step == t->info.n_steps) return true;
    return t->how.eval_every ? step % t->how.eval_every == 0 : ends_epoch(t);
}

static ln_status after_step(looping *l, ln_error *err) {
    const train_trainer *t = l->t;
    const int64_t step = t->state.step;
    if (validation_is_due(t)) LN_TRY(validate(l, err));
    if (has_texts(t)) LN_TRY(write_texts(l, err));
    if (step < t->info.n_steps && !l->out->stopped_early && t->how.save_every &&
        step % t->how.save_every == 0)
        return save(l, err);
    return LN_OK;
}

/* Ends all ranks if one ends, because rank 0 may be stopped, or unable to write. Called after all that a rank
 * does alone and before the next exchange, whatever the status, so that all ranks make the same exchanges. */
static ln_status agree(const train_trainer *t, ln_status st, ln_error *err) {
    return t->ranks ? ln_ranks_agree(t->ranks, st, 0, "", err) : st;
}
/* Writes what a step with status st had as result, and calls the caller. */
static ln_status report_step(const looping *l, const ln_step_report *r, ln_status st, ln_error *err) {
    train_trainer *t = l->t;
    if (st != LN_OK && st != LN_ENUMERIC) return st;
    if (t->writes && r->step) LN_TRY(train_metrics_step(&t->metrics, r, st == LN_OK ? err : NULL));
    if (st != LN_OK) return st;
    if (t->writes) LN_TRY(train_events_step(&t->events, r, err));
    return l->on->on_step ? LN_CALLBACK(l->on->on_step(l->on->user, r, err)) : LN_OK;
}

static ln_status run_steps(looping *l, ln_error *err) {
    train_trainer *t = l->t;
    if (validation_is_due(t)) LN_TRY(agree(t, validate(l, err), err)); /* the run was stopped before it */
    if (t->how.out && has_texts(t)) LN_TRY(agree(t, write_texts(l, err), err));
    l->out->stopped_early = t->how.early_stop > 0 && t->state.n_worse >= t->how.early_stop;
    while (t->state.step < t->info.n_steps && !l->out->stopped_early) {
        ln_step_report r;
        const ln_status st = train_step(t, &r, err);
        LN_TRY(agree(t, report_step(l, &r, st, err), err));
        LN_TRY(agree(t, after_step(l, err), err));
    }
    return LN_OK;
}

ln_status train_run(train_trainer *t, const ln_trainer_events *events, ln_trainer_result *out,
                    ln_error *err) {
    looping l = {.t = t, .on = events, .out = out};
    *out = (ln_trainer_result){.size = sizeof *out};
    ln_status st = run_steps(&l, err);
    const bool failed = st != LN_OK && st != LN_ECANCELLED;
    out->cancelled = st == LN_ECANCELLED;
    if (st == LN_OK || out->cancelled) st = save(&l, err);
    if (st == LN_ECANCELLED) out->cancelled = true, st = LN_OK;
    if (st == LN_OK && t->writes) st = train_export(t, t->how.out, err);
    if (st == LN_OK && t->writes) st = train_chart_write(&t->metrics, t->how.out, err);
    if (!failed) st = agree(t, st, err); /* the others stay until rank 0 has written */
    out->steps = t->state.step;
    out->best_step = t->state.best_step;
    out->best_loss = t->state.best_loss;
    return st;
}
