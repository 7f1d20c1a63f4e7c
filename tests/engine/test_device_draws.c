/* A device that draws tokens (ln_device_ops.sample): requests give what they give on one that does not, rows
 * that the device leaves to the host among them, and only rows whose logits nothing changes reach it. And a
 * device that is lost when an engine is opened. The devices are the CPU's with functions replaced. */
/* run: quick */
#include "request_cases.h"

static ln_sampler *sampler;
static float *logits;
static int n_rows, n_left;

/* Draws with the host's sampler. Every third row is left to the host. */
static ln_status sample(ln_exec *exec, int v, int64_t row, const ln_row_sampling *how, int64_t n,
                        int32_t *ids, ln_error *e) {
    static const int32_t history[256];
    (void)e;
    for (int64_t i = 0; i < n; i++) {
        const ln_row_sampling *h = &how[i];
        const uint64_t number = h->seed / 17; /* of the case: neither greedy nor with log-probabilities */
        assert_true(h->temperature > 0 && number % 3 != 0 && number % 2 == 0);
        ids[i] = -1;
        if (n_rows++ % 3 == 2) {
            n_left++;
            continue;
        }
        const ln_sampling s = {.temperature = (double)h->temperature,
                               .top_k = h->top_k,
                               .top_p = h->top_p,
                               .min_p = h->min_p,
                               .repeat_penalty = 1,
                               .ignore_eos = h->n_excluded > 0};
        assert_true(h->position <= LN_COUNT(history));
        OK(ln_device_cpu.value(exec, v, row + i, 1, logits, false, err));
        OK(ln_sample(sampler, logits, &s, h->seed, history, (int64_t)h->position, 0, h->excluded,
                     h->n_excluded, &ids[i], err));
    }
    return LN_OK;
}

static ln_run_options options_with(const ln_package *m, const ln_device_ops *ops) {
    ln_run_options o = test_options(m, LN_DEVICE_CPU, 2, 16, 6);
    o.n_ctx = LN_MIN(o.n_ctx, 128);
    o.n_prefault = o.n_ctx;
    o.ops = ops;
    return o;
}

static void the_hosts_tokens(void **state) {
    (void)state;
    static alone_results a;
    static ln_device_ops ops;
    ops = ln_device_cpu;
    ops.sample = sample;
    ln_package *m = open_package(GEMMA);
    OK(ln_sampler_open(&sampler, m->spec.V, err));
    logits = malloc((size_t)m->spec.V * sizeof *logits);
    run_all_alone(m, &a);
    const ln_run_options o = options_with(m, &ops);
    ln_eng *e;
    ln_req *r[CASES];
    OK(ln_eng_open_with(&e, m, &o, err));
    for (int i = 0; i < CASES; i++) OK(ln_req_new(&r[i], e, &a.cases[i].opt, err));
    step_until_done(e, 5000);
    assert_all_alone(r, &a);
    assert_true(n_left > 0 && n_rows > 2 * n_left);
    ln_eng_close(&e);
    free_results(&a);
    free(logits);
    ln_sampler_close(&sampler);
    ln_package_close(&m);
}

static void describe_lost(const ln_dev *dev, ln_dev_info *out) {
    ln_device_cpu.describe(dev, out);
    out->memory_total = 1 << 30;
    out->memory_free = 0;
}
static ln_status alloc_lost(ln_dev *dev, size_t bytes, size_t ready, void **out, ln_error *err) {
    (void)dev, (void)bytes, (void)ready;
    *out = NULL;
    return ln_fail(err, LN_EDEVICE, "the device is lost");
}
/* Its free memory reads as 0: the error is the device's, not that memory is short. */
static void a_lost_device(void **state) {
    (void)state;
    static ln_device_ops ops;
    ops = ln_device_cpu;
    ops.describe = describe_lost;
    ops.alloc = alloc_lost;
    ln_package *m = open_package(GEMMA);
    const ln_run_options o = options_with(m, &ops);
    ln_eng *e;
    ln_run_sizes sizes;
    FAILS(LN_EDEVICE, "the device is lost", ln_eng_open_with(&e, m, &o, err));
    FAILS(LN_EDEVICE, "the device is lost", ln_run_measure(&m->spec, &m->weights, &o, &sizes, err));
    ln_package_close(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_hosts_tokens), cmocka_unit_test(a_lost_device)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
