/* A device that chooses tokens (ln_device_ops.sample): requests of all kinds give what they give on one that
 * does not, rows that the device leaves to the host among them. And a device that is lost when an engine is
 * opened. The devices are the CPU's with functions replaced. */
/* run: quick */
#include "../row_sampling.h"
#include "request_cases.h"

static ln_sampler *sampler;
static float *logits;
static int64_t n_vocab;
static int n_rows, n_left, n_edited, n_logprobs, n_greedy, n_masked;

/* Samples with the host's sampler. Every third row is left to the host. */
static ln_status sample(ln_exec *exec, int v, const ln_row_sampling *rows, int64_t n, int32_t *ids,
                        ln_error *e) {
    (void)e;
    for (int64_t i = 0; i < n; i++) {
        ids[i] = -1;
        if (n_rows++ % 3 == 2) {
            n_left++;
            continue;
        }
        n_edited += rows[i].n_edits > 0, n_logprobs += rows[i].logprob != NULL;
        n_greedy += rows[i].temperature <= 0, n_masked += rows[i].mask != NULL;
        OK(ln_device_cpu.value(exec, v, rows[i].row, 1, logits, false, err));
        ids[i] = sample_row(sampler, logits, n_vocab, &rows[i]);
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
    n_vocab = m->spec.V;
    logits = malloc((size_t)n_vocab * sizeof *logits);
    run_all_alone(m, &a);
    const ln_run_options o = options_with(m, &ops);
    ln_eng *e;
    ln_req *r[CASES];
    OK(ln_eng_open_with(&e, m, &o, err));
    for (int i = 0; i < CASES; i++) OK(ln_req_new(&r[i], e, &a.cases[i].opt, err));
    step_until_done(e, 5000);
    assert_all_alone(r, &a);
    assert_true(n_left > 0 && n_rows > 2 * n_left && n_edited > 0 && n_logprobs > 0 && n_greedy > 0);
    ln_eng_close(&e);
    free_results(&a);
    free(logits);
    ln_sampler_close(&sampler);
    ln_package_close(&m);
}

/* A grammar on such a device: the mask reaches it, and the answer is that of the host. */
static void a_form(void **state) {
    (void)state;
    static const char form[] =
        "{\"schema\":{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"maxItems\":3}}";
    static ln_device_ops ops;
    ops = ln_device_cpu;
    ops.sample = sample;
    ln_package *m;
    OK(ln_package_open(&m, LN_ROOT "/models/tiny", &(ln_options){0}, err));
    n_vocab = m->spec.V;
    OK(ln_sampler_open(&sampler, n_vocab, err));
    logits = malloc((size_t)n_vocab * sizeof *logits);
    const ln_sampling how = {.size = sizeof how,
                             .temperature = 1,
                             .top_p = 1,
                             .repeat_penalty = 1,
                             .has_seed = true,
                             .seed = 3,
                             .n_max = 20,
                             .grammar = form,
                             .grammar_bytes = strlen(form)};
    const int32_t ids[] = {5, 6, 7};
    ln_result got[2];
    for (int i = 0; i < 2; i++) {
        ln_run_options o = test_options(m, LN_DEVICE_CPU, 2, 16, 2);
        ln_eng *e;
        if (i) o.ops = &ops;
        OK(ln_eng_open_with(&e, m, &o, err));
        run_alone(e, &(ln_req_options){.ids = ids, .n_ids = 3, .how = &how}, &got[i]);
        ln_eng_close(&e);
    }
    assert_same_result(&got[0], &got[1]);
    assert_true(n_masked > 0);
    for (int i = 0; i < 2; i++) ln_result_free(&got[i]);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_hosts_tokens), cmocka_unit_test(a_form),
                                       cmocka_unit_test(a_lost_device)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
