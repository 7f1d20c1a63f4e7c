/* A dynamic rope in training: the frequencies follow the length of the whole sample, as in one prompt of it,
 * although rows after the last counted target are left out. */
/* run: quick cuda */
#include "../common.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 120, RANGE = 40 /* max_position_embeddings of the first model; 50 of the second */ };

static int32_t id_of(int i) { return (7 * i * i + 3 * i + 5) % 250; }

static ln_status add_row(void *user, int64_t t, double logprob, const ln_top *top, size_t n_top,
                         const float *logits, int64_t n_vocab, ln_error *err) {
    double *all = user;
    (void)top, (void)n_top, (void)logits, (void)n_vocab, (void)err;
    all[t] = logprob;
    return LN_OK;
}

/* The loss of the first `counted` targets of one sample of n ids, of a step and of a validation. */
static void losses(ln_model *m, int n, int counted, double out[2]) {
    char data[] = "/tmp/linnet-train-rope-XXXXXX";
    const int fd = mkstemp(data);
    FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
    ln_options o = ln_options_default();
    ln_trainer_options how = ln_trainer_options_default();
    ln_step_report step = {.size = sizeof step};
    ln_valid_report valid = {.size = sizeof valid};
    ln_trainer *t = NULL;
    assert_non_null(f);
    fprintf(f, "{\"ids\":[");
    for (int i = 0; i < n; i++) fprintf(f, "%s%d", i ? "," : "", id_of(i));
    fprintf(f, "],\"mask\":[");
    for (int i = 0; i < n; i++) fprintf(f, "%s%d", i ? "," : "", i > 0 && i <= counted);
    fprintf(f, "]}\n");
    assert_int_equal(fclose(f), 0);
    o.numerics = LN_EXACT, o.n_threads = 1;
    how.data = how.valid = data, how.batch = how.steps = 1;
    OK(ln_trainer_new(&t, m, &o, &how, err));
    OK(ln_trainer_eval(t, &valid, err));
    OK(ln_trainer_step(t, &step, err));
    assert_int_equal(step.n_targets, counted);
    out[0] = step.loss, out[1] = valid.loss;
    ln_trainer_free(&t);
    assert_int_equal(unlink(data), 0);
}

static void lengths_are_those_of_samples(void **state) {
    (void)state;
    static const char *const models[] = {"llama-dynamic-f32", "gemma3-dynamic-bf16"};
    static const int lengths[] = {RANGE - 10, RANGE, RANGE + 1, RANGE + 2, 70, MOST};
    double worst = 0;
    for (size_t k = 0; k < LN_COUNT(models); k++) {
        char path[300];
        ln_model *m = NULL;
        ln_engine *e = NULL;
        ln_options o = ln_options_default();
        o.numerics = LN_EXACT, o.n_threads = 1, o.n_ctx = MOST;
        snprintf(path, sizeof path, LN_ROOT "/tests/golden/%s", models[k]);
        OK(ln_model_open(&m, path, &o, err));
        OK(ln_engine_open(&e, m, &o, err));
        for (size_t i = 0; i < LN_COUNT(lengths); i++) {
            const int n = lengths[i];
            int32_t ids[MOST];
            double logprobs[MOST] = {0};
            for (int t = 0; t < n; t++) ids[t] = id_of(t);
            OK(ln_score(e, ids, (size_t)n, 0, add_row, logprobs, NULL, err));
            for (int part = 0; part < 2; part++) { /* all targets count, or those of the first third */
                const int counted = part ? n / 3 : n - 1;
                double want = 0, got[2];
                for (int t = 1; t <= counted; t++) want -= logprobs[t] / counted;
                losses(m, n, counted, got);
                for (int w = 0; w < 2; w++) {
                    worst = fmax(worst, fabs(got[w] - want));
                    if (!(fabs(got[w] - want) <= 1.1e-5)) /* docs/training.md, of log-probabilities */
                        fail_msg("%s, %d of %d targets: %s loss %.9f, expected %.9f", models[k], counted, n,
                                 w ? "validation" : "training", got[w], want);
                }
            }
        }
        ln_engine_close(&e);
        ln_model_close(&m);
    }
    print_message("losses off by at most %.1e\n", worst);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(lengths_are_those_of_samples)};
    return cmocka_run_group_tests_name("train_rope", tests, NULL, NULL);
}
