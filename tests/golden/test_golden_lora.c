/* Compares models with adapters with what peft computes (tools/golden_lora.py): PEFT's, mlx-lm's and go-mlx's
 * adapters, ranks and scales by pattern, biases, sums with factors, on dense and quantised bases. Exact
 * numerics, on the reference device and on the CPU (with LN_TEST_DEVICE=cuda on the GPU alone): |logit|
 * differences <= 2e-4, as without adapters (test_golden). Adapters of f32 models are fused, too: a sum that
 * is rounded once to f32 differs by less than that bound. */
/* run: quick cuda */
#include "../common.h"

#include <math.h>
#include <unistd.h>

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

/* The directory of the base of a case. */
static void base_of(const json_t *row, char base[PATH]) {
    snprintf(base, PATH, DIR_GOLDEN "%s", json_string_value(json_object_get(row, "base")));
}

/* Opens an engine of the case, or of the model into which its adapter was fused (fused, else NULL); the
 * caller closes both. */
static void open_case(const json_t *row, ln_device device, const char *fused, ln_package **m, ln_eng **e) {
    char base[PATH], dirs[PARTS][PATH];
    ln_adapter_part parts[PARTS];
    const json_t *list = fused ? NULL : json_object_get(row, "parts");
    base_of(row, base);
    if (fused) snprintf(base, PATH, "%s", fused);
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

static void check_case(const json_t *row, ln_device device, const char *fused) {
    ln_package *m;
    ln_eng *e;
    const char *name = json_string_value(json_object_get(row, "name"));
    const ln_tensor *ids = find(name, "ids"), *want = find(name, "logits");
    const int64_t T = ids->dims[0], n = want->dims[0], V = want->dims[1];
    int32_t all[64];
    memcpy(all, ids->data, (size_t)T * sizeof *all);
    open_case(row, device, fused, &m, &e);
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
        if (test_device() == LN_DEVICE_CPU) check_case(json_array_get(index, i), LN_DEVICE_REF, NULL);
        check_case(json_array_get(index, i), test_device(), NULL);
    }
    print_message("%zu cases, largest difference of a logit %.2e\n", json_array_size(index), worst);
    ln_tensors_close(&recorded);
    json_decref(index);
}

/* The model into which an adapter was fused gives the logits of the adapter. */
static void test_fused(void **state) {
    (void)state;
    char dir[100], base[PATH], adapter[PATH], command[120];
    json_t *index = json_load_file(DIR_GOLDEN "lora/index.json", 0, NULL);
    int n = 0;
    worst = 0;
    OK(ln_tensors_open_file(&recorded, DIR_GOLDEN "lora/logits.safetensors", err));
    snprintf(dir, sizeof dir, "/tmp/linnet-golden-fused-%ld", (long)getpid());
    for (size_t i = 0; i < json_array_size(index); i++) {
        const json_t *row = json_array_get(index, i), *parts = json_object_get(row, "parts"),
                     *part = json_array_get(parts, 0);
        const char *name = json_string_value(json_object_get(part, "dir"));
        ln_fuse_options o = ln_fuse_options_default();
        base_of(row, base);
        if (json_array_size(parts) != 1 || !strstr(base, "-f32")) continue;
        snprintf(adapter, PATH, DIR_GOLDEN "lora/%s", name);
        o.scale = json_number_value(json_object_get(part, "scale")), o.force = true, o.n_threads = 2;
        if (strcmp(name, "llama-lora-bias") == 0) { /* of projections that have none in the model */
            FAILS(LN_EUNSUPPORTED, "has a bias, and the model has none",
                  ln_fuse(base, adapter, dir, &o, NULL, NULL, NULL, err));
            continue;
        }
        OK(ln_fuse(base, adapter, dir, &o, NULL, NULL, NULL, err));
        check_case(row, test_device(), dir);
        n++;
    }
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    assert_int_equal(system(command), 0);
    print_message("%d adapters fused, largest difference of a logit %.2e\n", n, worst);
    assert_true(n >= 5);
    ln_tensors_close(&recorded);
    json_decref(index);
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]); /* for tools/mutants */
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases), cmocka_unit_test(test_fused)};
    return cmocka_run_group_tests_name("lora", tests, NULL, NULL);
}
