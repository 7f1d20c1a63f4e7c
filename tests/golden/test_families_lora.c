/* LoRA on the golden models of the families. Logits with an adapter on every linear layer and its gradients
 * are those of peft (tools/golden_adapted.py). The model into which it is fused has the sums. Parameters are
 * called as peft calls them, those of tensors that hold several matrices included.
 *
 * Exact numerics, on the reference device and on the CPU. Logits within 2e-4, as without adapters
 * (test_golden); the loss within 1e-4 of itself, each gradient within 1e-3 of its norm. */
/* run: quick */
#include "family_models.h"
#include "model/weight_slots.h"
#include "run/train_program.h"

enum { RANK = 2, SEQS = 3 };
static const double scale = 2; /* alpha / rank */
static char top[100], adapter[120], fused[120];

static int make_folder(void **state) {
    (void)state;
    (void)snprintf(top, sizeof top, "/tmp/linnet-families-XXXXXX");
    if (!mkdtemp(top)) return 1;
    (void)snprintf(adapter, sizeof adapter, "%s/adapter", top);
    (void)snprintf(fused, sizeof fused, "%s/fused", top);
    return 0;
}
static int remove_folder(void **state) {
    char command[140];
    (void)state;
    (void)snprintf(command, sizeof command, "rm -rf '%s'", top);
    return system(command);
}

/* The values of the tensor `name` of the adapter, as tools/golden_adapted.py makes them. */
static void make_values(const char *name, int64_t n, float *out) {
    uint32_t x = 2166136261u;
    for (const char *c = name; *c; c++) x = (x ^ (uint8_t)*c) * 16777619u;
    for (int64_t i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        out[i] = (float)(((double)(x >> 16) - 32768) / 32768 * 0.3);
    }
}

static const char gradient[] = "grad.";
/* The name of the adapter's tensor whose gradient t is; NULL: t is something else. */
static const char *adapted_name(const ln_tensor *t) {
    return strncmp(t->name, gradient, sizeof gradient - 1) == 0 ? t->name + sizeof gradient - 1 : NULL;
}

static void put(const char *name, const void *data, size_t bytes) {
    char path[200];
    (void)snprintf(path, sizeof path, "%s/%s", adapter, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
}

/* Writes the adapter as peft saves it. */
static void write_adapter(const family_model *f) {
    static const char config[] = "{\"peft_type\": \"LORA\", \"task_type\": \"CAUSAL_LM\", \"r\": 2, "
                                 "\"lora_alpha\": 4, \"target_modules\": \".*\"}";
    ln_tensor_spec *specs = calloc(f->adapted.n + 1, sizeof *specs);
    char command[200];
    size_t n = 0;
    ln_str s = {0};
    (void)snprintf(command, sizeof command, "mkdir -p '%s'", adapter);
    assert_int_equal(system(command), 0);
    for (size_t i = 0; i < f->adapted.n; i++) {
        const ln_tensor *t = &f->adapted.items[i];
        if (adapted_name(t))
            specs[n++] = (ln_tensor_spec){adapted_name(t), LN_ST_F32, 2, {t->dims[0], t->dims[1]}};
    }
    assert_true(n > 0);
    OK(ln_tensors_header(&s, specs, n, err));
    for (size_t i = 0; i < n; i++) {
        const int64_t count = specs[i].dims[0] * specs[i].dims[1];
        float *values = calloc((size_t)count, sizeof *values);
        make_values(specs[i].name, count, values);
        ln_str_add(&s, (const char *)values, (size_t)count * sizeof *values);
        free(values);
    }
    put("adapter_model.safetensors", s.data, s.len);
    put("adapter_config.json", config, sizeof config - 1);
    ln_str_free(&s);
    free(specs);
}

/* ---- logits ---- */

static double worst;

/* Compares the logits of the last rows of the text with those of peft. */
static void check_logits(const family_model *f, ln_package *m, bool with_adapter, ln_device device,
                         const char *what) {
    const ln_tensor *want = family_tensor(&f->adapted, "logits");
    const int64_t n = want->dims[0], V = want->dims[1];
    const ln_adapter_part part = {adapter, 1};
    const ln_options o = {.size = sizeof o,
                          .device = device,
                          .numerics = LN_EXACT,
                          .n_threads = 2,
                          .n_chunk = 7,
                          .n_logits = 7,
                          .n_ctx = FAMILY_MOST,
                          .adapter = &part,
                          .n_adapter_parts = with_adapter};
    float *logits = calloc((size_t)V, sizeof *logits);
    ln_eng *e;
    assert_int_equal(V, f->V);
    OK(ln_eng_open(&e, m, &o, err));
    ln_seq *s = test_seq(e, f->T, f->T);
    OK(ln_eng_prefill(e, s, f->ids, f->T - n, false, err));
    const ln_batch_item last = {s, f->ids + f->T - n, n, LN_LOGITS_ALL};
    OK(ln_eng_step(e, &last, 1, err));
    for (int64_t i = 0; i < n; i++) {
        OK(ln_run_logits(e->run, i, logits, err));
        for (int64_t v = 0; v < V; v++) {
            const double off = fabs((double)logits[v] - (double)family_float(want, i * V + v));
            if (!(off <= 2e-4))
                fail_msg("%s, %s: row %lld, token %lld: off by %g", f->name, what, (long long)i, (long long)v,
                         off);
            worst = fmax(worst, off);
        }
    }
    ln_seq_close(e, &s);
    ln_eng_close(&e);
    free(logits);
}

static void logits(family_model *f) {
    write_adapter(f);
    check_logits(f, f->m, true, LN_DEVICE_REF, "ref");
    check_logits(f, f->m, true, LN_DEVICE_CPU, "cpu");
}
static void logits_are_those_of_peft(void **state) {
    (void)state;
    worst = 0;
    each_family(logits, true);
    print_message("largest difference of a logit: %.1e\n", worst);
}

/* ---- fused ---- */

/* B A of the module of a tensor NAME.weight, with the sums in double; zeros if the adapter has none for it.
 * The caller frees it. */
static double *delta_of(const family_model *f, const ln_tensor *w) {
    double *sum = calloc((size_t)(w->dims[0] * w->dims[1]), sizeof *sum);
    for (size_t i = 0; i < f->adapted.n; i++) {
        static const char outer[] = "base_model.model.", leaf[] = ".lora_A.weight";
        const ln_tensor *t = &f->adapted.items[i];
        const char *a = adapted_name(t);
        char b[300];
        if (!a || strlen(a) < sizeof outer + sizeof leaf || !strstr(a, leaf)) continue;
        const char *path = a + sizeof outer - 1, *end = strstr(path, leaf);
        const char *own = strstr(w->name, "layers."), *of = strstr(path, "layers.");
        if (!own) own = w->name, of = path; /* outside the layers both have all prefixes */
        if (!of) continue;
        const size_t n = (size_t)(end - of);
        if (strncmp(own, of, n) != 0 || strcmp(own + n, ".weight") != 0) continue;
        float *A = calloc((size_t)(RANK * w->dims[1]), sizeof *A),
              *B = calloc((size_t)(RANK * w->dims[0]), sizeof *B);
        (void)snprintf(b, sizeof b, "%.*s.lora_B.weight", (int)(end - a), a);
        make_values(a, RANK * w->dims[1], A);
        make_values(b, RANK * w->dims[0], B);
        for (int64_t r = 0; r < w->dims[0]; r++)
            for (int64_t k = 0; k < w->dims[1]; k++)
                for (int j = 0; j < RANK; j++)
                    sum[r * w->dims[1] + k] += (double)B[r * RANK + j] * (double)A[j * w->dims[1] + k];
        free(A), free(B);
    }
    return sum;
}

/* Every tensor of the fused model is called as before, and is the sum, rounded once to f32 and once to its
 * type. */
static void fuse(family_model *f) {
    ln_fuse_options o = ln_fuse_options_default();
    ln_tensors now;
    ln_package *m;
    size_t changed = 0, modules = 0;
    write_adapter(f);
    o.force = true, o.n_threads = 2;
    ln_error why = {0};
    const ln_status st = ln_fuse(f->path, adapter, fused, &o, NULL, NULL, NULL, &why);
    if (st == LN_EUNSUPPORTED && strstr(why.message, "holds several experts")) return; /* mxfp4 */
    if (st != LN_OK) fail_msg("%s: %s", f->name, why.message);
    OK(ln_tensors_open(&now, fused, false, err));
    for (size_t i = 0; i < f->adapted.n; i++) modules += adapted_name(&f->adapted.items[i]) != NULL;
    assert_int_equal(now.n, f->m->tensors.n);
    for (size_t i = 0; i < now.n; i++) {
        const ln_tensor *x = &now.items[i], *w = ln_tensors_find(&f->m->tensors, x->name);
        ln_dtype dtype;
        if (!w || w->bytes != x->bytes) fail_msg("%s: %s: not as in the model", f->name, x->name);
        if (w->n_dims != 2 || !ln_tensor_is_computed(w, &dtype)) {
            assert_memory_equal(w->data, x->data, w->bytes);
            continue;
        }
        double *delta = delta_of(f, w);
        bool any = false;
        for (int64_t k = 0; k < w->dims[0] * w->dims[1]; k++) any = any || delta[k] != 0;
        if (!any) assert_memory_equal(w->data, x->data, w->bytes);
        for (int64_t k = 0; any && k < w->dims[0] * w->dims[1]; k++) {
            uint8_t bytes[4];
            ln_num_store(bytes, dtype, 0, (float)((double)ln_num_load(w->data, dtype, k) + scale * delta[k]));
            if (memcmp(x->data + k * ln_dtype_bytes(dtype), bytes, (size_t)ln_dtype_bytes(dtype)) != 0)
                fail_msg("%s: %s: element %lld is not the sum", f->name, x->name, (long long)k);
        }
        changed += any;
        free(delta);
    }
    assert_int_equal(2 * changed, modules);
    ln_tensors_close(&now);
    OK(ln_package_open(&m, fused, &(ln_options){0}, err));
    if (f->is_f32) check_logits(f, m, false, LN_DEVICE_CPU, "fused"); /* others were rounded */
    ln_package_close(&m);
}
static void fused_weights_are_the_sums(void **state) {
    (void)state;
    each_family(fuse, true);
}

/* ---- gradients ---- */

/* Opens a program that trains every matrix that can be, as all-linear means, with the adapter's values. */
static ln_train_program *open_program(family_model *f, ln_device device) {
    ln_train_program *p;
    ln_train_options o = {.size = sizeof o,
                          .run = test_options(f->m, device, 2, FAMILY_MOST, SEQS),
                          .lora = {.rank = RANK, .scale = scale}};
    o.run.numerics = LN_EXACT;
    for (int i = 0; i < LN_W_COUNT; i++)
        for (int l = -1; l < f->m->spec.L; l++)
            if (i != LN_W_HEAD && (ln_slot_rows[i].flags & LN_WF_LORA) && ln_slot_wanted(&f->m->spec, i, l))
                o.lora.targets[i] = true;
    OK(ln_train_program_open(&p, &f->m->spec, &f->m->weights, f->m->weight_cache, &o, err));
    return p;
}

/* The recorded gradient of a parameter, under the name that peft has for it. */
static const ln_tensor *gradient_of(const family_model *f, const ln_train_param *x) {
    const char *outer = f->m->config.text != f->m->config.root ? "language_model." : "";
    char name[300];
    (void)snprintf(name, sizeof name, "%sbase_model.model.model.%s%s.lora_%c.weight", gradient, outer,
                   x->path, x->is_b ? 'B' : 'A');
    const ln_tensor *t = family_tensor(&f->adapted, name);
    if (t->dims[0] != x->rows || t->dims[1] != x->cols) fail_msg("%s: %s: other shape", f->name, name);
    return t;
}

static double worst_loss;
static void check_gradients(family_model *f, ln_device device) {
    static const int32_t row0[SEQS + 1] = {0, 40, 57, 60};
    int32_t targets[FAMILY_MOST];
    ln_train_result r;
    size_t n, recorded = 0;
    assert_int_equal(f->T, row0[SEQS]);
    for (int q = 0; q < SEQS; q++)
        for (int32_t i = row0[q], k = 0; i < row0[q + 1]; i++, k++)
            targets[i] = k < (row0[q + 1] - row0[q]) / 4 || i + 1 == row0[q + 1] ? -1 : f->ids[i + 1];
    ln_train_program *p = open_program(f, device);
    ln_train_param *x = ln_train_program_params(p, &n);
    for (size_t i = 0; i < f->adapted.n; i++) recorded += adapted_name(&f->adapted.items[i]) != NULL;
    assert_int_equal(n, recorded);
    for (size_t i = 0; i < n; i++)
        make_values(adapted_name(gradient_of(f, &x[i])), x[i].rows * x[i].cols, x[i].value);
    const ln_train_batch batch = {
        .n_rows = (int32_t)f->T, .n_seqs = SEQS, .ids = f->ids, .row0 = row0, .targets = targets};
    OK(ln_train_step(p, &batch, &r, err));
    const double want = (double)family_float(family_tensor(&f->adapted, "loss"), 0);
    worst_loss = fmax(worst_loss, fabs(r.loss - want) / want);
    if (!(fabs(r.loss - want) <= 1e-4 * want))
        fail_msg("%s: loss %.7g, peft has %.7g", f->name, r.loss, want);
    for (size_t i = 0; i < n; i++) {
        const ln_tensor *t = gradient_of(f, &x[i]);
        double off = 0, norm = 0;
        for (int64_t k = 0; k < x[i].rows * x[i].cols; k++) {
            const double y = (double)family_float(t, k), d = (double)x[i].grad[k] - y;
            off += d * d, norm += y * y;
        }
        worst = fmax(worst, sqrt(off / norm));
        if (!(off <= 1e-6 * norm))
            fail_msg("%s: %s.%c is off by %.2g of its norm", f->name, x[i].path, x[i].is_b ? 'B' : 'A',
                     sqrt(off / norm));
    }
    ln_train_program_close(&p);
}
static void gradients(family_model *f) {
    check_gradients(f, LN_DEVICE_REF);
    check_gradients(f, LN_DEVICE_CPU);
}
static void gradients_are_those_of_peft(void **state) {
    (void)state;
    worst = 0;
    each_family(gradients, true);
    print_message("losses within %.1e, gradients within %.1e\n", worst_loss, worst);
}

/* ---- the trainer ---- */

/* One step of the trainer, from the adapter or from an initial one. */
static void train(const family_model *f, const char *targets, const char *init) {
    static const char rows[] = "{\"ids\": [5, 6, 7, 8, 9], \"mask\": [0, 1, 1, 1, 1]}\n";
    const ln_options o = {.size = sizeof o, .n_threads = 2, .numerics = LN_EXACT};
    const ln_trainer_events on = {.size = sizeof on};
    ln_trainer_options how = ln_trainer_options_default();
    ln_trainer_result r = {.size = sizeof r};
    char data[200];
    ln_model *m;
    ln_trainer *t;
    (void)snprintf(data, sizeof data, "%s/rows.jsonl", adapter);
    put("rows.jsonl", rows, sizeof rows - 1);
    how.data = data, how.init_adapter = init, how.targets = targets, how.out = fused;
    how.steps = how.batch = 1, how.valid_split = 0, how.rank = RANK, how.alpha = RANK * scale;
    OK(ln_model_open(&m, f->path, &o, err));
    OK(ln_trainer_new(&t, m, &o, &how, err));
    OK(ln_trainer_run(t, &on, &r, err));
    ln_trainer_free(&t);
    ln_model_close(&m);
}

static void clear_folder(const char *path) {
    char command[200];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", path);
    assert_int_equal(system(command), 0);
}

/* The result of the trainer has the tensors that peft's adapter has: those of all linear layers, from new
 * values and from peft's; and it can be applied. */
static void train_all(family_model *f) {
    write_adapter(f);
    for (int way = 0; way < 2; way++) {
        char path[200];
        ln_tensors got;
        size_t n = 0;
        ln_adapter_info info = {.size = sizeof info};
        clear_folder(fused);
        train(f, way ? NULL : "all-linear", way ? adapter : NULL);
        (void)snprintf(path, sizeof path, "%s/adapter_model.safetensors", fused);
        OK(ln_tensors_open_file(&got, path, err));
        for (size_t i = 0; i < f->adapted.n; i++) {
            const char *name = adapted_name(&f->adapted.items[i]);
            const ln_tensor *t = name ? ln_tensors_find(&got, name) : NULL;
            if (name && (!t || memcmp(t->dims, f->adapted.items[i].dims, sizeof t->dims) != 0))
                fail_msg("%s: the trained adapter lacks %s", f->name, name);
            n += name != NULL;
        }
        assert_int_equal(got.n, n);
        ln_tensors_close(&got);
        OK(ln_adapter_show(fused, f->path, &info, err));
        assert_int_equal(info.n_applied, n);
    }
    clear_folder(fused);
    train(f, NULL, NULL); /* q_proj and v_proj, or the tensors that hold them */
}
static void trained_adapters_have_the_names_of_peft(void **state) {
    (void)state;
    each_family(train_all, true);
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(logits_are_those_of_peft),
                                       cmocka_unit_test(fused_weights_are_the_sums),
                                       cmocka_unit_test(gradients_are_those_of_peft),
                                       cmocka_unit_test(trained_adapters_have_the_names_of_peft)};
    return cmocka_run_group_tests_name("families_lora", tests, make_folder, remove_folder);
}
