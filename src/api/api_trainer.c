/* The public API of fine-tuning: checks arguments and forwards; the contracts are in linnet.h. */
#include "../train/train.h"
#include "check.h"
#include "../args/handle.h"

#include <string.h>

/* The arguments of a call on a model: options with defaults, and a reference to the package, which
 * ln_handle_done(model) releases. */
typedef struct call {
    ln_options opt;
    ln_trainer_options how;
    ln_package *m;
} call;

static ln_status begin(call *c, const ln_model *model, const ln_options *opt, const ln_trainer_options *how,
                       ln_error *err) {
    void *m;
    c->how = ln_trainer_options_default();
    LN_TRY(ln_api_options(opt, &c->opt, err));
    LN_TRY(ln_api_copy_sized(&c->how, sizeof c->how, how, "ln_trainer_options", err));
    LN_TRY(ln_handle_use(LN_HANDLE_MODEL, model, &m, err));
    c->m = m;
    return LN_OK;
}

ln_status ln_trainer_plan(ln_model *model, const ln_options *opt, const ln_trainer_options *how,
                          ln_trainer_info *out, ln_error *err) {
    call c;
    ln_trainer_info all;
    ARG(how && out, "how and out must not be NULL");
    LN_TRY(ln_api_check_size(out, sizeof out->size, "ln_trainer_info", err));
    LN_TRY(begin(&c, model, opt, how, err));
    const ln_status st = train_plan(c.m, &c.opt, &c.how, &all, err);
    if (st == LN_OK) ln_api_give_sized(out, sizeof all, &all);
    ln_handle_done(model);
    return st;
}

ln_status ln_training_samples(ln_model *model, const ln_trainer_options *how, ln_token_mask *out, size_t most,
                              size_t *n, ln_error *err) {
    call c;
    ARG(how && out && n, "how, out and n must not be NULL");
    *n = 0;
    for (size_t i = 0; i < most; i++) out[i] = (ln_token_mask){0};
    LN_TRY(begin(&c, model, NULL, how, err));
    const ln_status st = train_samples(c.m, &c.how, out, most, n, err);
    for (size_t i = 0; st != LN_OK && i < most; i++) ln_token_mask_free(&out[i]);
    if (st != LN_OK) *n = 0;
    ln_handle_done(model);
    return st;
}

static void free_trainer(void *object) {
    train_trainer *own = object;
    train_close(&own);
}

ln_status ln_trainer_new(ln_trainer **out, ln_model *model, const ln_options *opt,
                         const ln_trainer_options *how, ln_error *err) {
    call c;
    train_trainer *t;
    void *handle = NULL;
    ARG(out && how, "out and how must not be NULL");
    *out = NULL;
    LN_TRY(begin(&c, model, opt, how, err));
    ln_status st = train_open(&t, c.m, &c.opt, &c.how, err);
    if (st == LN_OK) { /* the trainer's handle owns the reference to the model then */
        st = ln_handle_new(LN_HANDLE_TRAINER,
                           &(ln_handle_object){.object = t, .free = free_trainer, .base = model}, &handle,
                           err);
        if (st != LN_OK) train_close(&t);
    }
    if (st != LN_OK) ln_handle_done(model);
    *out = handle;
    return st;
}

void ln_trainer_free(ln_trainer **trainer) {
    ENTER;
    if (!trainer) return;
    ln_handle_close(LN_HANDLE_TRAINER, *trainer);
    *trainer = NULL;
}

static ln_status use(const ln_trainer *trainer, train_trainer **t, ln_error *err) {
    void *object;
    LN_TRY(ln_handle_use(LN_HANDLE_TRAINER, trainer, &object, err));
    *t = object;
    return LN_OK;
}
static ln_status done(const ln_trainer *trainer, ln_status st) {
    ln_handle_done(trainer);
    return st;
}

ln_status ln_trainer_get_info(const ln_trainer *trainer, ln_trainer_info *out, ln_error *err) {
    train_trainer *t;
    ARG(out, "out must not be NULL");
    LN_TRY(ln_api_check_size(out, sizeof out->size, "ln_trainer_info", err));
    LN_TRY(use(trainer, &t, err));
    ln_api_give_sized(out, sizeof(ln_trainer_info), train_info(t));
    return done(trainer, LN_OK);
}

ln_status ln_trainer_step(ln_trainer *trainer, ln_step_report *out, ln_error *err) {
    train_trainer *t;
    ln_step_report r = {0};
    ARG(out, "out must not be NULL");
    LN_TRY(ln_api_check_size(out, sizeof out->size, "ln_step_report", err));
    LN_TRY(use(trainer, &t, err));
    const ln_status st = train_step(t, &r, err);
    ln_api_give_sized(out, sizeof r, &r);
    return done(trainer, st);
}

ln_status ln_trainer_eval(ln_trainer *trainer, ln_valid_report *out, ln_error *err) {
    train_trainer *t;
    ln_valid_report r = {0};
    ARG(out, "out must not be NULL");
    LN_TRY(ln_api_check_size(out, sizeof out->size, "ln_valid_report", err));
    LN_TRY(use(trainer, &t, err));
    const ln_status st = train_eval(t, &r, err);
    ln_api_give_sized(out, sizeof r, &r);
    return done(trainer, st);
}

ln_status ln_trainer_save(ln_trainer *trainer, ln_error *err) {
    train_trainer *t;
    ENTER;
    err = ln_api_error(err);
    LN_TRY(use(trainer, &t, err));
    return done(trainer, train_checkpoint(t, err));
}

ln_status ln_trainer_resume(ln_trainer *trainer, int64_t *step, ln_error *err) {
    train_trainer *t;
    ARG(step, "step must not be NULL");
    LN_TRY(use(trainer, &t, err));
    return done(trainer, train_resume(t, step, err));
}

ln_status ln_trainer_export(ln_trainer *trainer, const char *dir, ln_error *err) {
    train_trainer *t;
    ARG(dir, "dir must not be NULL");
    LN_TRY(use(trainer, &t, err));
    return done(trainer, train_export(t, dir, err));
}

ln_status ln_trainer_matrix(const ln_trainer *trainer, size_t i, ln_trained *out, ln_error *err) {
    train_trainer *t;
    ARG(out, "out must not be NULL");
    LN_TRY(use(trainer, &t, err));
    if (i >= train_count(t))
        return done(trainer, ln_fail(err, LN_EUSAGE, "%s: i: expected 0 to %zu, found %zu", __func__,
                                     train_count(t) - 1, i));
    *out = train_matrix(t, i);
    return done(trainer, LN_OK);
}

ln_status ln_trainer_run(ln_trainer *trainer, const ln_trainer_events *events, ln_trainer_result *out,
                         ln_error *err) {
    train_trainer *t;
    ln_trainer_events on = {.size = sizeof on};
    ln_trainer_result r = {0};
    ARG(out, "out must not be NULL");
    LN_TRY(ln_api_check_size(out, sizeof out->size, "ln_trainer_result", err));
    if (events) LN_TRY(ln_api_copy_sized(&on, sizeof on, events, "ln_trainer_events", err));
    LN_TRY(use(trainer, &t, err));
    const ln_status st = train_run(t, &on, &r, err);
    ln_api_give_sized(out, sizeof r, &r);
    return done(trainer, st);
}

ln_status ln_plot_runs(const char *const *dirs, size_t n, const char *out, bool force, ln_error *err) {
    ARG(dirs && out && out[0], "dirs and out must not be NULL");
    for (size_t i = 0; i < n; i++)
        if (!dirs[i] || !dirs[i][0])
            return ln_fail(err, LN_EUSAGE, "ln_plot_runs: directory %zu must not be NULL or empty", i + 1);
    return train_plot(dirs, n, out, force, err);
}
