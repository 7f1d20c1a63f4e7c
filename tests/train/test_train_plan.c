/* The memory plan of a run: what fits into some memory fits into any larger amount; the device of a run. */
/* run: slow */
#include "../common.h"

#include <string.h>
#include <unistd.h>

#define TINY LN_ROOT "/models/tiny"

static ln_trainer_info plan(ln_model *m, const char *data, uint64_t limit) {
    ln_options o = ln_options_default();
    ln_trainer_options how = ln_trainer_options_default();
    ln_trainer_info info = {.size = sizeof info};
    o.n_threads = 1;
    o.memory_bytes = limit;
    how.data = data, how.targets = "all-linear", how.batch = 1, how.steps = 1;
    OK(ln_trainer_plan(m, &o, &how, &info, err));
    return info;
}

/* Limits go down from what the run takes without any recomputation, so that what the process holds, which is
 * part of every plan and can only grow, makes no smaller limit fit. */
static void more_memory_never_fits_less(void **state) {
    (void)state;
    char data[] = "/tmp/linnet-train-plan-XXXXXX";
    const int fd = mkstemp(data);
    FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
    uint64_t seed = 3;
    assert_non_null(f);
    for (int i = 0; i < 16; i++) {
        fprintf(f, "{\"ids\":[1");
        for (uint32_t k = 0, n = 100 + test_random(&seed) % 300; k < n; k++)
            fprintf(f, ",%u", test_random(&seed) % 500);
        fprintf(f, "]}\n");
    }
    assert_int_equal(fclose(f), 0);
    ln_model *m = NULL;
    const ln_options o = ln_options_default();
    OK(ln_model_open(&m, TINY, &o, err));
    (void)plan(m, data, 0);
    const ln_trainer_info all = plan(m, data, 0);
    assert_int_equal(all.n_recompute, 0);
    /* just below what each plan takes, so that the next one must do; then on until nothing fits any more */
    uint64_t refused = 0, limit = all.peak_bytes - all.peak_bytes / 2000;
    int n_fit = 0, most = 0;
    for (int n_refused = 0; n_refused < 12;) {
        const ln_trainer_info info = plan(m, data, limit);
        assert_true(info.fits == (info.peak_bytes <= limit));
        if (info.fits && refused)
            fail_msg("%llu bytes are refused, %llu are enough (%d layers recomputed)",
                     (unsigned long long)refused, (unsigned long long)limit, info.n_recompute);
        if (!info.fits) refused = limit, n_refused++;
        n_fit += info.fits;
        most = LN_MAX(most, info.n_recompute);
        limit = info.fits ? info.peak_bytes - all.peak_bytes / 2000 : limit - all.peak_bytes / 200;
    }
    print_message("%d plans fit, up to %d layers recomputed\n", n_fit, most);
    assert_true(n_fit >= 3 && most == 8); /* all layers of the model */
    ln_model_close(&m);
    assert_int_equal(unlink(data), 0);
}

static void on_line(void *user, ln_level level, const char *text) {
    if (strstr(text, "training runs on the CPU")) *(int *)user += level == LN_LOG_WARN;
}

/* With or without MLX, whose device has no gradients. */
static void mlx_trains_on_the_cpu(void **state) {
    (void)state;
    int said = 0;
    ln_model *m = NULL;
    char data[] = "/tmp/linnet-train-plan-XXXXXX";
    const int fd = mkstemp(data);
    assert_true(fd >= 0 && write(fd, "{\"text\":\"Once.\"}\n", 17) == 17 && close(fd) == 0);
    const ln_options o = {.size = sizeof o, .device = LN_DEVICE_MLX, .n_threads = 1};
    ln_trainer_options how = ln_trainer_options_default();
    ln_trainer_info info = {.size = sizeof info};
    how.data = data, how.steps = 1, how.batch = 1;
    OK(ln_model_open(&m, TINY, NULL, err));
    ln_log_set(on_line, &said);
    OK(ln_trainer_plan(m, &o, &how, &info, err));
    ln_log_set(NULL, NULL);
    assert_int_equal(said, 1);
    ln_model_close(&m);
    assert_int_equal(unlink(data), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(more_memory_never_fits_less),
                                       cmocka_unit_test(mlx_trains_on_the_cpu)};
    return cmocka_run_group_tests_name("train_plan", tests, NULL, NULL);
}
