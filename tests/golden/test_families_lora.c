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
                                 "\"lora_alpha\": 4, \"target_modules\": \".*\", \"target_parameters\": "
                                 "[\"experts.gate_up_proj\", \"experts.down_proj\"]}";
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
static int n_experts; /* mixtures that have been compared */

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

/* ---- experts ---- */

/* Values of the tensor of an adapter for the experts of a layer: lora_A or lora_B of both matrices before the
 * activation, or of the one after it. The caller frees it. */
static float *values_of_experts(const family_model *f, int layer, bool down, char half, int64_t *rows,
                                int64_t *cols) {
    char at[60], end[60];
    (void)snprintf(at, sizeof at, "layers.%d.", layer);
    (void)snprintf(end, sizeof end, ".experts%s.lora_%c.weight", down ? "" : ".base_layer", half);
    for (size_t i = 0; i < f->adapted.n; i++) {
        const ln_tensor *t = &f->adapted.items[i];
        const char *name = adapted_name(t);
        if (!name || !strstr(name, at) || !strstr(name, end)) continue;
        *rows = t->dims[0], *cols = t->dims[1];
        float *v = calloc((size_t)(*rows * *cols), sizeof *v);
        make_values(name, *rows * *cols, v);
        return v;
    }
    fail_msg("%s: no %s of layer %d", f->name, end, layer);
    return NULL;
}

/* Reads row r of a weight as numbers. */
static void read_row(ln_package *m, const ln_weight *w, int64_t r, float *out) {
    const ln_source_work work = {ln_pool_default(), 1};
    const ln_source *s = m->weights.source;
    ln_encoded_rows row;
    void *buffer = aligned_alloc(64, (ln_source_bytes(w, 1) + 127) / 64 * 64);
    OK(s->ops->rows(s, w, r, 1, &work, buffer, &row, err));
    ln_encoding_decode(w->enc, &row, 0, w->d1, out);
    free(buffer);
}

/* The rows of a weight of experts in the fused model: W + scale B A by PEFT's layout, A [X r, in] and
 * B [out, r X] with the expert last, rounded to f32 and to the type of the weight. */
static void check_expert_rows(const family_model *f, ln_package *m, size_t i) {
    const ln_weight *w = &f->m->weights.items[i];
    const int64_t D = w->d0 / w->n_experts, X = w->n_experts;
    const bool down = w->slot == LN_W_X_DOWN, in_turn = ln_ffn_of(&f->m->spec, w->layer)->moe.interleaved;
    const int64_t second = w->slot == LN_W_X_UP ? (in_turn ? 1 : D) : 0, step = in_turn && !down ? 2 : 1;
    int64_t rows, cols;
    float *A = values_of_experts(f, w->layer, down, 'A', &rows, &cols),
          *B = values_of_experts(f, w->layer, down, 'B', &rows, &cols), was[FAMILY_MOST], is[FAMILY_MOST];
    assert_true(w->d1 <= FAMILY_MOST && cols == RANK * X);
    for (int64_t r = 0; r < w->d0; r++) {
        const int64_t x = r / D, row = second + r % D * step;
        read_row(f->m, w, r, was);
        read_row(m, &m->weights.items[i], r, is);
        for (int64_t k = 0; k < w->d1; k++) {
            double sum = 0;
            uint8_t bytes[4];
            for (int j = 0; j < RANK; j++)
                sum += (double)B[row * cols + j * X + x] * (double)A[(x * RANK + j) * w->d1 + k];
            ln_num_store(bytes, w->dtype, 0, (float)((double)was[k] + scale * sum));
            if (ln_num_load(bytes, w->dtype, 0) != is[k])
                fail_msg("%s: slot %d of layer %d, row %lld, column %lld is not the sum", f->name, w->slot,
                         w->layer, (long long)r, (long long)k);
        }
    }
    free(A), free(B);
}
static void fuse_experts(const family_model *f) {
    ln_fuse_options o = ln_fuse_options_default();
    ln_package *m;
    ln_error why = {0};
    size_t n = 0;
    o.force = true, o.n_threads = 2;
    const ln_status st = ln_fuse(f->path, adapter, fused, &o, NULL, NULL, NULL, &why);
    if (st == LN_EUNSUPPORTED && strstr(why.message, "in a format to which nothing is added")) return;
    if (st != LN_OK) fail_msg("%s: %s", f->name, why.message);
    OK(ln_package_open(&m, fused, &(ln_options){0}, err));
    OK(ln_pool_reserve(ln_pool_default(), 1, err));
    for (size_t i = 0; i < f->m->weights.n; i++)
        if (f->m->weights.items[i].n_experts && f->m->weights.items[i].d1) check_expert_rows(f, m, i), n++;
    assert_true(n > 0);
    ln_package_close(&m);
}

/* Logits of the last row of the text for each of some sequences, which are in one step or in one each. */
static void logits_of(ln_eng *e, const family_model *f, const int *slots, int n, bool together, float *out) {
    ln_batch_item items[3];
    ln_seq *seqs[3];
    for (int i = 0; i < n; i++) {
        const ln_seq_options o = {
            .n_prompt = f->T, .n_most = f->T, .no_cache = true, .adapter_slot = slots[i]};
        OK(ln_seq_open(e, &o, &seqs[i], err));
        items[i] = (ln_batch_item){seqs[i], f->ids, 9 + i, LN_LOGITS_LAST};
        if (!together) {
            OK(ln_eng_step(e, &items[i], 1, err));
            OK(ln_run_logits(e->run, 0, out + i * f->V, err));
        }
    }
    if (together) OK(ln_eng_step(e, items, (size_t)n, err));
    for (int i = 0; i < n; i++) {
        if (together) OK(ln_run_logits(e->run, i, out + i * f->V, err));
        ln_seq_close(e, &seqs[i]);
    }
}
/* A row has the same bits next to rows of another adapter as alone; of an engine without memory for experts
 * the adapter is rejected by name. */
static void batch_experts(const family_model *f) {
    enum { N = 2 };
    const ln_adapter_part part = {adapter, 1}, half = {adapter, 0.5};
    ln_options o = {.size = sizeof o,
                    .numerics = LN_FAST,
                    .n_threads = 2,
                    .n_logits = 4,
                    .n_parallel = 3,
                    .n_ctx = FAMILY_MOST,
                    .n_adapters = 2,
                    .adapter_rank = RANK,
                    .adapter_experts = true};
    ln_adapter_ref *refs[N], *none;
    float *alone = calloc((size_t)(N * f->V), sizeof *alone),
          *both = calloc((size_t)(N * f->V), sizeof *both);
    ln_eng *e;
    OK(ln_eng_open(&e, f->m, &o, err));
    OK(ln_adapter_load(&refs[0], e, &part, 1, err));
    OK(ln_adapter_load(&refs[1], e, &half, 1, err));
    const int slots[N] = {refs[0]->slot + 1, refs[1]->slot + 1};
    logits_of(e, f, slots, N, false, alone);
    logits_of(e, f, slots, N, true, both);
    assert_memory_equal(alone, both, (size_t)(N * f->V) * sizeof *alone);
    for (int i = 0; i < N; i++) ln_adapter_unload(&refs[i]);
    ln_eng_close(&e);
    o.adapter_experts = false;
    ln_error why = {0};
    OK(ln_eng_open(&e, f->m, &o, err));
    assert_int_equal(ln_adapter_load(&none, e, &part, 1, &why), LN_EUSAGE);
    if (!strstr(why.message, "no memory for LoRA on experts")) fail_msg("%s: %s", f->name, why.message);
    ln_eng_close(&e);
    free(alone), free(both);
}

/* LoRA on parameters of experts (target_parameters), and on attention. */
static void experts(family_model *f) {
    family_model x = *f;
    ln_adapter_info info = {.size = sizeof info};
    if (!f->has_experts) return;
    x.adapted = f->experts;
    write_adapter(&x);
    check_logits(&x, f->m, true, LN_DEVICE_REF, "ref");
    check_logits(&x, f->m, true, LN_DEVICE_CPU, "cpu");
    OK(ln_adapter_show(adapter, f->path, &info, err));
    assert_true(info.n_experts > 1 && strstr(info.targets, "experts") && info.rank_max == RANK);
    assert_int_equal(info.n_applied, info.n_tensors);
    batch_experts(&x);
    fuse_experts(&x);
    n_experts++;
}
static void experts_are_those_of_peft(void **state) {
    (void)state;
    worst = 0, n_experts = 0;
    each_family(experts, false);
    assert_true(n_experts > 0 || getenv("LN_FAMILY") || getenv("LN_GOLDEN") || getenv("LN_SANITIZED"));
    print_message("%d mixtures, largest difference of a logit: %.1e\n", n_experts, worst);
}

/* ---- gradients ---- */

/* Whether the recorded adapter has a module of a slot in some layer. */
static bool is_recorded(const family_model *f, int slot) {
    bool any = false;
    for (int l = 0; l < f->m->spec.L; l++) {
        char name[160], end[200];
        if (!ln_slot_wanted(&f->m->spec, slot, (ln_slot_rows[slot].flags & LN_WF_LAYER) ? l : -1)) continue;
        ln_weight_name(name, &f->m->spec, (ln_slot)slot, l);
        const int n = (int)(strlen(name) - strlen(".weight"));
        (void)snprintf(end, sizeof end, ".%.*s.lora_A.weight", n, name);
        for (size_t i = 0; i < f->adapted.n; i++) {
            const char *has = adapted_name(&f->adapted.items[i]);
            any = any ||
                  (has && strlen(has) > strlen(end) && strcmp(has + strlen(has) - strlen(end), end) == 0);
        }
    }
    return any;
}

/* Opens a program that trains the kinds of matrices that the recorded adapter has, which are all but
 * those of MLPs if PEFT takes these for experts, with the adapter's values. */
static ln_train_program *open_program(family_model *f, ln_device device) {
    ln_train_program *p;
    ln_train_options o = {.size = sizeof o,
                          .run = test_options(f->m, device, 2, FAMILY_MOST, SEQS),
                          .lora = {.rank = RANK, .scale = scale}};
    o.run.numerics = LN_EXACT;
    for (int i = 0; i < LN_W_COUNT; i++)
        for (int l = -1; l < f->m->spec.L; l++)
            if (i != LN_W_HEAD && (ln_slot_rows[i].flags & LN_WF_LORA) && ln_slot_wanted(&f->m->spec, i, l))
                o.lora.targets[i] = is_recorded(f, i);
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
    /* of a recurrent model a text goes through more than one chunk */
    static const int32_t texts[2][SEQS + 1] = {{0, 40, 57, 60}, {0, 70, 77, 80}};
    const int32_t *row0 = texts[f->T > 60];
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

/* Whether the recorded adapter has no module of an MLP. */
static bool lacks_mlps(const family_model *f) {
    bool any = false;
    for (int i = LN_W_GATE; i <= LN_W_DOWN; i++) any = any || is_recorded(f, i);
    return !any && !is_recorded(f, LN_W_S_UP);
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
        assert_true(got.n == n || (way == 0 && lacks_mlps(f)));
        ln_tensors_close(&got);
        OK(ln_adapter_show(fused, f->path, &info, err));
        assert_true((size_t)info.n_applied == n || (way == 0 && lacks_mlps(f)));
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_those_of_peft), cmocka_unit_test(fused_weights_are_the_sums),
        cmocka_unit_test(experts_are_those_of_peft), cmocka_unit_test(gradients_are_those_of_peft),
        cmocka_unit_test(trained_adapters_have_the_names_of_peft)};
    return cmocka_run_group_tests_name("families_lora", tests, make_folder, remove_folder);
}
