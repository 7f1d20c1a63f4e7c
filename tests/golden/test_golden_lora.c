/* Compares models with adapters with what peft computes (tools/golden_lora.py): PEFT's, mlx-lm's and go-mlx's
 * adapters, ranks and scales by pattern, biases, sums with factors, on dense and quantised bases. Exact
 * numerics, on the reference device and on the CPU: |logit| differences <= 2e-4, as without adapters
 * (test_golden). */
#include "../common.h"

#include <math.h>

#define DIR_GOLDEN LN_ROOT "/tests/golden/"

enum { PARTS = 4, PATH = 600 };
static ln_tensors recorded;
static double worst;

static const ln_tensor *find(const char *name, const char *what) {
    char full[120];
    snprintf(full, sizeof full, "%s.%s", name, what);
    const ln_tensor *t = ln_tensors_find(&recorded, full);
    if (!t) fail_msg("logits.safetensors lacks %s", full);
    return t;
}

/* Opens an engine of the case; the caller closes both. */
static void open_case(const json_t *row, ln_device device, ln_package **m, ln_eng **e) {
    char base[PATH], dirs[PARTS][PATH];
    ln_adapter_part parts[PARTS];
    const json_t *list = json_object_get(row, "parts");
    snprintf(base, sizeof base, DIR_GOLDEN "%s", json_string_value(json_object_get(row, "base")));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *part = json_array_get(list, i);
        snprintf(dirs[i], PATH, DIR_GOLDEN "lora/%s", json_string_value(json_object_get(part, "dir")));
        parts[i] = (ln_adapter_part){dirs[i], json_number_value(json_object_get(part, "scale"))};
    }
    const ln_options o = {.device = device,
                          .numerics = LN_EXACT,
                          .n_threads = 2,
                          .n_chunk = 7,
                          .n_logits = 7,
                          .adapter = parts,
                          .n_adapter_parts = json_array_size(list)};
    ln_run_options r;
    OK(ln_package_open(m, base, &o, err));
    OK(ln_eng_options(*m, &o, &r, err));
    r.n_ctx = 64;
    r.page_len = 32;
    OK(ln_eng_open_with(e, *m, &r, err));
}

static void check_case(const json_t *row, ln_device device) {
    ln_package *m;
    ln_eng *e;
    const char *name = json_string_value(json_object_get(row, "name"));
    const ln_tensor *ids = find(name, "ids"), *want = find(name, "logits");
    const int64_t T = ids->dims[0], n = want->dims[0], V = want->dims[1];
    int32_t all[64];
    memcpy(all, ids->data, (size_t)T * sizeof *all);
    open_case(row, device, &m, &e);
    assert_int_equal(V, m->spec.V);
    ln_seq *seq = test_seq(e, T, T);
    OK(ln_eng_prefill(e, seq, all, T - n, false, err));
    const ln_batch_item last = {seq, all + T - n, n, LN_LOGITS_ALL};
    OK(ln_eng_step(e, &last, 1, err));
    for (int64_t i = 0; i < n; i++) {
        OK(ln_run_logits(e->run, i, e->sched->scratch->logits, err));
        for (int64_t v = 0; v < V; v++) {
            float ref;
            memcpy(&ref, want->data + 4 * (i * V + v), sizeof ref);
            const double d = fabs((double)ref - (double)e->sched->scratch->logits[v]);
            if (!(d <= 2e-4))
                fail_msg("%s: row %lld, token %lld: off by %g", name, (long long)i, (long long)v, d);
            worst = LN_MAX(worst, d);
        }
    }
    ln_seq_close(e, &seq);
    ln_eng_close(&e);
    ln_package_close(&m);
}

static void test_cases(void **state) {
    (void)state;
    json_t *index = json_load_file(DIR_GOLDEN "lora/index.json", 0, NULL);
    assert_true(json_array_size(index) > 0);
    OK(ln_tensors_open_file(&recorded, DIR_GOLDEN "lora/logits.safetensors", err));
    for (size_t i = 0; i < json_array_size(index); i++) {
        check_case(json_array_get(index, i), LN_DEVICE_REF);
        check_case(json_array_get(index, i), LN_DEVICE_CPU);
    }
    print_message("%zu cases, largest difference of a logit %.2e\n", json_array_size(index), worst);
    ln_tensors_close(&recorded);
    json_decref(index);
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]); /* for tools/mutants */
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases)};
    return cmocka_run_group_tests_name("lora", tests, NULL, NULL);
}
