/* Runs of the trainer in tests: a directory for files, one call for a run, what its steps reported, and how
 * far it moved in the direction of recorded numbers. */
#ifndef TESTS_TRAIN_RUNS_H
#define TESTS_TRAIN_RUNS_H

#include "../common.h"

#include "base/json.h"
#include "io/io.h"

#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GOLDEN LN_ROOT "/tests/golden/"
#define SMALL  GOLDEN "qwen2-f32"
enum { STEPS = 12 }; /* of a recorded run (tools/golden_trainer.py) */

static char top[100];                   /* the directory of the test's files */
static ln_step_report steps[STEPS + 1]; /* of the last run, by step */
static ln_valid_report valid;           /* its last validation */
static const char *add_tokens;          /* ln_options.add_tokens of runs */
static int stop_after;                  /* the step after which runs are cancelled; 0: none */
static ln_status (*on_text)(void *user, const ln_text_report *r, ln_error *err); /* of runs; NULL: none */

/* Runs a command of the shell in the directory. */
static inline void shell(const char *command) {
    char line[1200];
    snprintf(line, sizeof line, "cd '%s' && %s", top, command);
    if (system(line) != 0) fail_msg("%s", line);
}
static inline const char *at(char path[400], const char *name) {
    snprintf(path, 400, "%s/%s", top, name);
    return path;
}
static inline const char *put(char path[400], const char *name, const char *text) {
    FILE *f = fopen(at(path, name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    assert_int_equal(fclose(f), 0);
    return path;
}
static inline int make_dir(const char *name) {
    snprintf(top, sizeof top, "/tmp/%s.%ld", name, (long)getpid());
    return mkdir(top, 0777);
}
static inline int remove_dir(void **state) {
    (void)state;
    shell("rm -rf \"$PWD\"");
    return 0;
}

static inline ln_status runs_on_step(void *user, const ln_step_report *r, ln_error *err) {
    (void)user;
    if (r->step <= STEPS) steps[r->step] = *r;
    return r->step == stop_after ? ln_fail(err, LN_ECANCELLED, "stopped") : LN_OK;
}
static inline ln_status runs_on_valid(void *user, const ln_valid_report *r, ln_error *err) {
    (void)user, (void)err;
    valid = *r;
    return LN_OK;
}
/* Trains `model` as `how` says, with exact numerics. */
static inline ln_status train(const char *model, const ln_trainer_options *how, int threads, ln_error *err) {
    ln_options o = ln_options_default();
    const ln_trainer_events on = {
        .size = sizeof on, .on_step = runs_on_step, .on_valid = runs_on_valid, .on_text = on_text};
    ln_model *m = NULL;
    ln_trainer *t = NULL;
    ln_trainer_result r = {.size = sizeof r};
    o.numerics = LN_EXACT;
    o.n_threads = threads;
    o.add_tokens = add_tokens;
    ln_status st = ln_model_open(&m, model, &o, err);
    if (st == LN_OK) st = ln_trainer_new(&t, m, &o, how, err);
    if (st == LN_OK) st = ln_trainer_run(t, &on, &r, err);
    ln_trainer_free(&t);
    ln_model_close(&m);
    return st;
}

/* Returns how far the losses of the last run are from the recorded ones, relative to these. */
static inline double worst_loss(const json_t *want) {
    double worst = 0;
    for (size_t k = 0; k < STEPS; k++) {
        const double w = json_number_value(json_array_get(want, k));
        worst = fmax(worst, fabs(steps[k + 1].loss - w) / fabs(w));
    }
    return worst;
}

/* Returns the cosine between two movements of all tensors from those of the file `from`: to those of `to`,
 * and to the recorded ones, which have every sparse-th number and names with `before` in front. */
static inline double cosine(const char *from, const char *to, const char *recorded, const char *before,
                            int64_t sparse) {
    ln_tensors f, x, y;
    double dot = 0, xx = 0, yy = 0;
    OK(ln_tensors_open_file(&f, from, err));
    OK(ln_tensors_open_file(&x, to, err));
    OK(ln_tensors_open_file(&y, recorded, err));
    assert_int_equal(x.n, f.n);
    for (size_t i = 0; i < f.n; i++) {
        char name[300];
        snprintf(name, sizeof name, "%s%.*s", before, (int)f.items[i].name_bytes, f.items[i].name);
        const ln_tensor *p = ln_tensors_find(&x, f.items[i].name), *q = ln_tensors_find(&y, name);
        assert_true(p && q && p->bytes == f.items[i].bytes);
        const int64_t n = (int64_t)(p->bytes / 4);
        assert_int_equal(q->bytes / 4, (n + sparse - 1) / sparse);
        for (int64_t k = 0; k < n; k += sparse) {
            const double z = (double)ln_num_load(f.items[i].data, LN_F32, k),
                         u = (double)ln_num_load(p->data, LN_F32, k) - z,
                         v = (double)ln_num_load(q->data, LN_F32, k / sparse) - z;
            dot += u * v, xx += u * u, yy += v * v;
        }
    }
    ln_tensors_close(&f), ln_tensors_close(&x), ln_tensors_close(&y);
    return dot / sqrt(xx * yy);
}

#endif
