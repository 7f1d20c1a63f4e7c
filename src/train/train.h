/* What api/ calls of the trainer; the contracts are in linnet.h. */
#ifndef LN_TRAIN_H
#define LN_TRAIN_H

#include "../package/package.h"

typedef struct train_trainer train_trainer;

/* trainer_open.c: fills in everything up to the memory plan (info), or opens the whole trainer. The caller
 * owns *out. Errors: see ln_trainer_plan and ln_trainer_new. */
ln_status train_plan(const ln_package *m, const ln_options *opt, const ln_trainer_options *how,
                     ln_trainer_info *out, ln_error *err);
ln_status train_open(train_trainer **out, const ln_package *m, const ln_options *opt,
                     const ln_trainer_options *how, ln_error *err);
void train_close(train_trainer **t);
ln_status train_samples(const ln_package *m, const ln_trainer_options *how, ln_token_mask *out, size_t most,
                        size_t *n, ln_error *err);

/* trainer.c. What the trainer knows before its next step, and its trained matrices. */
const ln_trainer_info *train_info(const train_trainer *t);
size_t train_count(const train_trainer *t);
ln_trained train_matrix(const train_trainer *t, size_t i);
ln_status train_step(train_trainer *t, ln_step_report *out, ln_error *err);
ln_status train_eval(train_trainer *t, ln_valid_report *out, ln_error *err);
ln_status train_checkpoint(train_trainer *t, ln_error *err);
ln_status train_resume(train_trainer *t, int64_t *step, ln_error *err);
ln_status train_export(train_trainer *t, const char *dir, ln_error *err);
ln_status train_run(train_trainer *t, const ln_trainer_events *events, ln_trainer_result *out, ln_error *err);

/* plot_runs.c: ln_plot_runs. */
ln_status train_plot(const char *const *dirs, size_t n, const char *out, bool force, ln_error *err);

#endif
