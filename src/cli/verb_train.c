/* linnet train: trains a LoRA adapter, or all weights, and prints how it goes: the plan, then a line a
 * report, or with --json a line a step. */
#include "cli.h"
#include "flags.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_LINES = 50, BAR = 24 };

typedef struct training {
    const args *a;
    int64_t every;                       /* steps of a printed line */
    double loss, norm, accuracy, margin; /* sums since the last one; NaN: not of preferences */
    int64_t n, n_tokens;
    double seconds, start;
    int64_t first; /* steps that were done before */
} training;

/* ---- options ---- */

/* Flags of adapters, if all weights are trained. */
static ln_status check_method(const args *a, ln_error *err) {
    static const flag of_adapters[] = {F_RANK,   F_ALPHA,          F_DROPOUT,        F_TARGETS,
                                       F_RSLORA, F_PARAM_DTYPE,    F_INIT_ADAPTER,   F_LAYERS,
                                       F_DORA,   F_ADAPTER_LAYOUT, F_MODULES_TO_SAVE};
    for (size_t i = 0; has(a, F_METHOD) && a->flag[F_METHOD].i == LN_METHOD_FULL && i < LN_COUNT(of_adapters);
         i++)
        if (has(a, of_adapters[i]))
            return ln_fail(err, LN_EUSAGE,
                           "%s is of adapters, and --method full trains all weights; leave it out",
                           flag_rows[of_adapters[i]].name);
    return LN_OK;
}

/* Flags whose values an adapter that training begins with decides. */
static ln_status check_init(const args *a, ln_error *err) {
    static const flag decided[] = {F_RANK, F_ALPHA, F_TARGETS, F_RSLORA, F_LAYERS, F_DORA};
    for (size_t i = 0; has(a, F_INIT_ADAPTER) && i < LN_COUNT(decided); i++)
        if (has(a, decided[i]))
            return ln_fail(err, LN_EUSAGE,
                           "the adapter of --init-adapter decides rank, scale, targets and layers; leave "
                           "--rank, --alpha, --targets, --layers, --rslora and --dora out");
    return LN_OK;
}

static const char *text_of(const args *a, flag f) { return has(a, f) ? a->flag[f].text : NULL; }

ln_status train_options(const args *a, ln_trainer_options *o, ln_error *err) {
    const struct {
        flag flag;
        int *i;
        int64_t *n;
        double *x;
    } numbers[] = {{F_MAX_LENGTH, NULL, &o->max_length, NULL},
                   {F_RANK, &o->rank, NULL, NULL},
                   {F_ALPHA, NULL, NULL, &o->alpha},
                   {F_DROPOUT, NULL, NULL, &o->dropout},
                   {F_BETA, NULL, NULL, &o->beta},
                   {F_MIN_LR, NULL, NULL, &o->min_lr},
                   {F_MOMENTUM, NULL, NULL, &o->momentum},
                   {F_POWER, NULL, NULL, &o->power},
                   {F_CYCLES, &o->cycles, NULL, NULL},
                   {F_DECAY_STEPS, NULL, &o->decay_steps, NULL},
                   {F_LR, NULL, NULL, &o->lr},
                   {F_BATCH, &o->batch, NULL, NULL},
                   {F_ACCUM, &o->accum, NULL, NULL},
                   {F_EPOCHS, NULL, &o->epochs, NULL},
                   {F_STEPS, NULL, &o->steps, NULL},
                   {F_WARMUP, NULL, &o->warmup, NULL},
                   {F_CLIP, NULL, NULL, &o->clip},
                   {F_WEIGHT_DECAY, NULL, NULL, &o->weight_decay},
                   {F_VALID_SPLIT, NULL, NULL, &o->valid_split},
                   {F_EVAL_EVERY, NULL, &o->eval_every, NULL},
                   {F_SAVE_EVERY, NULL, &o->save_every, NULL},
                   {F_SAMPLE_EVERY, NULL, &o->sample_every, NULL},
                   {F_SAMPLE_TOKENS, &o->sample_tokens, NULL, NULL},
                   {F_KEEP_LAST, &o->keep, NULL, NULL},
                   {F_EARLY_STOP, &o->early_stop, NULL, NULL}};
    *o = ln_trainer_options_default();
    for (size_t k = 0; k < LN_COUNT(numbers); k++) {
        if (!has(a, numbers[k].flag)) continue;
        const flag_value *v = &a->flag[numbers[k].flag];
        if (numbers[k].i) *numbers[k].i = (int)v->i;
        if (numbers[k].n) *numbers[k].n = v->i;
        if (numbers[k].x) *numbers[k].x = v->f;
    }
    LN_TRY(check_init(a, err));
    LN_TRY(check_method(a, err));
    if (has(a, F_BETA) && a->flag[F_PREFERENCE].i == LN_PREFERENCE_NONE)
        return ln_fail(err, LN_EUSAGE, "--beta is of preferences; add --preference dpo, or leave it out");
    if (has(a, F_SAMPLE_TOKENS) && !has(a, F_SAMPLE_EVERY))
        return ln_fail(err, LN_EUSAGE,
                       "--sample-tokens is of texts that the model writes; add "
                       "--sample-every N, or leave it out");
    o->sample_prompts = a->n_prompts ? a->prompts : NULL, o->n_sample_prompts = a->n_prompts;
    o->data = text_of(a, F_DATA);
    o->valid = text_of(a, F_VALID);
    o->fields = a->fields[0] ? a->fields : NULL;
    o->targets = has(a, F_TARGETS) ? a->flag[F_TARGETS].text : o->targets;
    o->init_adapter = text_of(a, F_INIT_ADAPTER);
    o->layers = text_of(a, F_LAYERS);
    o->modules_to_save = text_of(a, F_MODULES_TO_SAVE);
    o->rslora = has(a, F_RSLORA);
    o->dora = has(a, F_DORA);
    o->adapter_as = (ln_adapter_as)a->flag[F_ADAPTER_LAYOUT].i;
    o->moment_bits = has(a, F_MOMENTS) && a->flag[F_MOMENTS].i == 1 ? 8 : 32;
    o->bf16 = has(a, F_PARAM_DTYPE) && a->flag[F_PARAM_DTYPE].i == 1;
    o->preference = (ln_preference)a->flag[F_PREFERENCE].i;
    o->method = (ln_method)a->flag[F_METHOD].i;
    o->optimizer = (ln_optimizer)a->flag[F_OPTIMIZER].i;
    o->schedule = (ln_schedule)a->flag[F_SCHEDULE].i;
    o->mix = a->mix, o->n_mix = a->n_mix;
    o->split_by_hash = has(a, F_SPLIT_BY) && a->flag[F_SPLIT_BY].i == 1;
    o->event_file = has(a, F_TENSORBOARD);
    o->no_shuffle = has(a, F_NO_SHUFFLE);
    o->resume = has(a, F_RESUME);
    o->out = text_of(a, F_OUTPUT);
    return seed_of(a, &o->seed, err);
}

/* ---- the first samples ---- */

/* Whether samples are shown in colours: counted tokens are green on a terminal, unless NO_COLOR is set. */
static bool in_colours(void) {
    const char *no = getenv("NO_COLOR");
    return out_is_tty() && !(no && no[0]);
}

static ln_status print_token(ln_str *s, const ln_tokenizer *tok, int32_t id, bool counted, ln_error *err) {
    const bool green = counted && in_colours();
    char bytes[256];
    size_t n;
    LN_TRY(ln_token_bytes(tok, id, bytes, sizeof bytes, &n, NULL, err));
    ln_str_addf(s, "%s%7d  %s  ", green ? "\x1b[32m" : "", id, counted ? "counts" : "      ");
    ln_str_json(s, bytes, LN_MIN(n, sizeof bytes));
    ln_str_adds(s, green ? "\x1b[0m\n" : "\n");
    return LN_OK;
}

static void sample_json(ln_str *s, const ln_token_mask *m) {
    ln_str_adds(s, "{");
    put_key(s, "ids");
    for (size_t i = 0; i < m->n_ids; i++) ln_str_addf(s, "%s%d", i ? "," : "[", m->ids[i]);
    ln_str_adds(s, "]");
    put_key(s, "mask");
    for (size_t i = 0; i < m->n_ids; i++) ln_str_addf(s, "%s%d", i ? "," : "[", m->mask[i]);
    ln_str_adds(s, "]}\n");
}

static ln_status sample_text(ln_str *s, const ln_tokenizer *tok, const ln_token_mask *m, size_t i,
                             ln_error *err) {
    if (i == 0) ln_str_adds(s, "the first sample, token by token:\n");
    else ln_str_addf(s, "sample %zu:\n", i + 1);
    for (size_t k = 0; k < m->n_ids; k++) LN_TRY(print_token(s, tok, m->ids[k], m->mask[k] != 0, err));
    return LN_OK;
}

static ln_status print_samples(const args *a, ln_model *model, const ln_trainer_options *o, ln_error *err) {
    const size_t most = has(a, F_SHOW_SAMPLES) ? (size_t)a->flag[F_SHOW_SAMPLES].i : 1;
    ln_token_mask *all = ln_zalloc(most, sizeof *all);
    size_t n = 0;
    ln_str s = {0};
    if (!all) return LN_OOM(err, "samples");
    ln_status st = ln_training_samples(model, o, all, most, &n, err);
    for (size_t i = 0; st == LN_OK && i < n; i++) {
        if (has(a, F_JSON)) sample_json(&s, &all[i]);
        else st = sample_text(&s, ln_model_tokenizer(model), &all[i], i, err);
    }
    for (size_t i = 0; i < n; i++) ln_token_mask_free(&all[i]);
    ln_free(all);
    if (st == LN_OK) return out_str(&s, err);
    ln_str_free(&s);
    return st;
}

/* ---- the plan ---- */

static void add_bytes(ln_str *s, const char *what, uint64_t bytes) {
    char text[32];
    ln_str_addf(s, "  %-12s %10s\n", what, bytes_text(text, bytes));
}

void train_plan_text(ln_str *s, const ln_trainer_info *f) {
    char have[32];
    const bool full = f->method == LN_METHOD_FULL;
    const uint64_t all = f->n_parameters + (full ? 0 : f->n_trainable);
    ln_str_addf(s, "trains %llu of %llu parameters (%.3f %%) in %lld %s\n",
                (unsigned long long)f->n_trainable, (unsigned long long)all,
                100 * (double)f->n_trainable / (double)all, (long long)f->n_matrices,
                full ? "tensors" : "matrices");
    ln_str_addf(s, "%lld samples, %llu targets, the longest of %lld tokens; %lld for validation\n",
                (long long)f->n_samples, (unsigned long long)f->n_targets, (long long)f->longest,
                (long long)f->n_valid);
    ln_str_addf(s, "%lld steps of %d samples, packed into micro-batches of at most %lld tokens\n",
                (long long)f->n_steps, f->samples_per_step, (long long)f->n_rows);
    if (f->n_recompute)
        ln_str_addf(s, "activations of %d layers are computed again for the gradients\n", f->n_recompute);
    add_bytes(s, "weights", f->weights_bytes);
    add_bytes(s, full ? "trained" : "adapter", f->adapter_bytes);
    add_bytes(s, "optimiser", f->optimizer_bytes);
    add_bytes(s, "activations", f->activation_bytes);
    add_bytes(s, "data", f->data_bytes);
    add_bytes(s, "other", f->other_bytes);
    add_bytes(s, "peak", f->peak_bytes);
    if (f->device_available_bytes) {
        add_bytes(s, "GPU peak", f->device_bytes);
        add_bytes(s, "GPU free", f->device_available_bytes);
    }
    ln_str_addf(s, "%s: %s are available (", f->fits ? "fits" : "does NOT fit",
                bytes_text(have, f->available_bytes));
    advice_add(s, f->limit);
    ln_str_adds(s, ")\n");
}

static ln_status print_plan(void *user, const ln_trainer_info *f, ln_error *err) {
    const args *a = user;
    ln_str s = {0};
    train_plan_text(&s, f);
    if (!has(a, F_JSON)) return out_str(&s, err);
    ssize_t done = s.failed ? 0 : write(STDERR_FILENO, s.data, s.len);
    (void)done;
    ln_str_free(&s);
    return LN_OK;
}

/* ---- the run ---- */

static void time_text(char out[32], double seconds) {
    const int64_t t = (int64_t)(seconds + 0.5);
    if (t >= 3600)
        (void)snprintf(out, 32, "%lld:%02lld:%02lld", (long long)(t / 3600), (long long)(t / 60 % 60),
                       (long long)(t % 60));
    else (void)snprintf(out, 32, "%lld:%02lld", (long long)(t / 60), (long long)(t % 60));
}

static double seconds_left(const training *t, const ln_step_report *r) {
    const int64_t done = r->step - t->first;
    return done > 0 ? (ln_now() - t->start) / (double)done * (double)(r->steps - r->step) : 0;
}

static void show_bar(const training *t, const ln_step_report *r) {
    enum { LEAST = 5 };
    char bar[BAR + 1], left[32], numbers[100], line[160];
    const int columns = terminal_columns(STDERR_FILENO);
    if (!isatty(STDERR_FILENO)) return;
    time_text(left, seconds_left(t, r));
    const int n = snprintf(numbers, sizeof numbers, "%lld/%lld, %s left", (long long)r->step,
                           (long long)r->steps, left);
    const int width =
        columns > 0 ? LN_MIN((int)BAR, columns - 1 - n - 3) : BAR; /* of the bar, in a narrow terminal */
    if (width < LEAST) {
        progress_show(numbers);
        return;
    }
    memset(bar, '-', (size_t)width);
    memset(bar, '#', (size_t)(width * r->step / r->steps));
    bar[width] = '\0';
    (void)snprintf(line, sizeof line, "[%s] %s", bar, numbers);
    progress_show(line);
}

static ln_status print_report(training *t, const ln_step_report *r, ln_error *err) {
    ln_str s = {0};
    char left[32], peak[32];
    time_text(left, seconds_left(t, r));
    ln_str_addf(&s, "step %lld/%lld  loss %.4f", (long long)r->step, (long long)r->steps,
                t->loss / (double)t->n);
    if (!isnan(t->accuracy))
        ln_str_addf(&s, "  accuracy %.3f  margin %.3g", t->accuracy / (double)t->n, t->margin / (double)t->n);
    ln_str_addf(&s, "  lr %.3g  |g| %.3g  %.0f tok/s  ETA %s  peak %s\n", r->lr, t->norm / (double)t->n,
                t->seconds > 0 ? (double)t->n_tokens / t->seconds : 0, left, bytes_text(peak, r->peak_bytes));
    t->n = t->n_tokens = 0;
    t->loss = t->norm = t->accuracy = t->margin = t->seconds = 0;
    progress_wipe();
    return out_str(&s, err);
}

static ln_status step_json(const ln_step_report *r, ln_error *err) {
    ln_str s = {0};
    ln_str_adds(&s, "{");
    put_int(&s, "step", r->step);
    put_real(&s, "loss", r->loss);
    put_real(&s, "lr", r->lr);
    put_real(&s, "grad_norm", r->grad_norm);
    put_int(&s, "tokens", r->tokens);
    put_real(&s, "tok_s", r->tok_s);
    put_real(&s, "seconds", r->seconds);
    put_uint(&s, "peak_bytes", r->peak_bytes);
    if (!isnan(r->accuracy)) put_real(&s, "accuracy", r->accuracy), put_real(&s, "margin", r->margin);
    if (r->skipped) ln_str_adds(&s, ",\"skipped\":true");
    ln_str_adds(&s, "}\n");
    return out_str(&s, err);
}

static ln_status on_step(void *user, const ln_step_report *r, ln_error *err) {
    training *t = user;
    t->loss += r->loss;
    t->norm += r->grad_norm;
    t->accuracy += r->accuracy;
    t->margin += r->margin;
    t->n_tokens += r->tokens;
    t->seconds += r->seconds;
    t->n++;
    if (has(t->a, F_JSON)) LN_TRY(step_json(r, err));
    else if (r->step % t->every == 0 || r->step == r->steps) LN_TRY(print_report(t, r, err));
    show_bar(t, r);
    return signals_seen() ? ln_fail(err, LN_ECANCELLED, "stopped") : LN_OK;
}

static ln_status on_valid(void *user, const ln_valid_report *r, ln_error *err) {
    const training *t = user;
    ln_str s = {0};
    progress_wipe();
    if (!has(t->a, F_JSON)) {
        const bool pairs = !isnan(r->accuracy);
        ln_str_addf(&s, "step %lld  validation loss %.4f, %s %.4g%s\n", (long long)r->step, r->loss,
                    pairs ? "accuracy" : "perplexity", pairs ? r->accuracy : r->perplexity,
                    r->best ? ", the best so far" : "");
        return out_str(&s, err);
    }
    ln_str_adds(&s, "{");
    put_int(&s, "step", r->step);
    put_real(&s, "valid_loss", r->loss);
    put_real(&s, "valid_perplexity", r->perplexity);
    if (!isnan(r->accuracy))
        put_real(&s, "valid_accuracy", r->accuracy), put_real(&s, "valid_margin", r->margin);
    ln_str_adds(&s, "}\n");
    return out_str(&s, err);
}

static ln_status text_json(const ln_text_report *r, ln_error *err) {
    ln_str s = {0};
    ln_str_adds(&s, "{");
    put_int(&s, "step", r->step);
    put_uint(&s, "sample", r->index + 1);
    put_key(&s, "prompt");
    ln_str_json(&s, r->prompt, r->prompt_bytes);
    put_key(&s, "text");
    ln_str_json(&s, r->text, r->text_bytes);
    put_int(&s, "tokens", r->n_tokens);
    ln_str_addf(&s, ",\"ended\":%s}\n", r->ended ? "true" : "false");
    return out_str(&s, err);
}

static ln_status on_text(void *user, const ln_text_report *r, ln_error *err) {
    const training *t = user;
    enum { MOST_SHOWN = 56 }; /* bytes of the end of a prompt */
    char prompt[80];
    ln_str s = {0};
    progress_wipe();
    if (has(t->a, F_JSON)) LN_TRY(text_json(r, err));
    else {
        size_t from = r->prompt_bytes > MOST_SHOWN ? r->prompt_bytes - MOST_SHOWN : 0;
        while (from < r->prompt_bytes && (r->prompt[from] & 0xc0) == 0x80) from++; /* within a character */
        ln_str_addf(&s, "step %lld  sample %zu of %zu  %s%s\n", (long long)r->step, r->index + 1, r->n,
                    from ? "..." : "", ln_excerpt(prompt, r->prompt + from, r->prompt_bytes - from));
        LN_TRY(out_str(&s, err));
        LN_TRY(out_text(r->text, r->text_bytes, err));
        LN_TRY(out_write(r->ended ? "\n" : " ...\n", r->ended ? 1 : 5, err));
    }
    return signals_seen() ? ln_fail(err, LN_ECANCELLED, "stopped") : LN_OK;
}

static ln_status print_end(const args *a, const ln_trainer_result *r, ln_error *err) {
    const char *dir = a->flag[F_OUTPUT].text;
    char shown[LN_PATH_TEXT];
    ln_str s = {0};
    progress_wipe();
    if (has(a, F_JSON)) {
        ln_str_addf(&s, "{\"done\":%s", r->cancelled ? "false" : "true");
        put_int(&s, "steps", r->steps);
        put_real(&s, "best", r->best_step ? r->best_loss : (double)NAN); /* NaN becomes null */
        put_text(&s, "path", dir);
        ln_str_adds(&s, "}\n");
        return out_str(&s, err);
    }
    if (r->stopped_early)
        ln_str_addf(&s, "stopped early: the validation loss did not improve %lld times\n",
                    (long long)a->flag[F_EARLY_STOP].i);
    if (r->best_step)
        ln_str_addf(&s, "lowest validation loss %.4f at step %lld: %s/best\n", r->best_loss,
                    (long long)r->best_step, ln_path_text(shown, dir));
    ln_str_addf(&s,
                r->cancelled ? "stopped after step %lld; --resume continues: %s\n" : "%lld steps done: %s\n",
                (long long)r->steps, ln_path_text(shown, dir));
    return out_str(&s, err);
}

static ln_status run(const args *a, ln_trainer *trainer, const ln_trainer_info *f, ln_error *err) {
    training t = {.a = a,
                  .every = f->n_steps <= MOST_LINES        ? 1
                           : f->n_steps <= 10 * MOST_LINES ? 10
                                                           : f->n_steps / MOST_LINES,
                  .start = ln_now(),
                  .first = f->step};
    ln_trainer_result r = {.size = sizeof r};
    const ln_trainer_events on = {
        .size = sizeof on, .user = &t, .on_step = on_step, .on_valid = on_valid, .on_text = on_text};
    if (f->step) note("continues after step %lld", (long long)f->step);
    const ln_status st = ln_trainer_run(trainer, &on, &r, err);
    progress_wipe();
    return st == LN_OK ? print_end(a, &r, err) : st;
}

ln_status cmd_train(const args *a, ln_error *err) {
    ln_options opt;
    ln_trainer_options o;
    ln_model *model = NULL;
    ln_trainer *trainer = NULL;
    ln_trainer_info f = {.size = sizeof f};
    ln_status st = LN_OK;
    LN_GO(options_of(a, &opt, err));
    LN_GO(train_options(a, &o, err));
    LN_GO(ln_model_open(&model, a->model, &opt, err));
    if (has(a, F_DRY_RUN)) {
        LN_GO(print_samples(a, model, &o, err));
        LN_GO(ln_trainer_plan(model, &opt, &o, &f, err));
        LN_GO(print_plan((void *)(uintptr_t)a, &f, err));
        goto out;
    }
    signals_note(true);
    o.on_ready = print_plan;
    o.user = (void *)(uintptr_t)a;
    LN_GO(ln_trainer_new(&trainer, model, &opt, &o, err));
    LN_GO(ln_trainer_get_info(trainer, &f, err));
    st = run(a, trainer, &f, err);
out:
    signals_note(false);
    ln_trainer_free(&trainer);
    ln_model_close(&model);
    return st;
}

ln_status cmd_plot(const args *a, ln_error *err) {
    return ln_plot_runs(a->runs, a->n_runs, a->flag[F_OUTPUT].text, has(a, F_FORCE), err);
}
