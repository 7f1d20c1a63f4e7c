/* The programs of training against transformers and peft (tests/golden/train, made by tools/golden_train.py),
 * and what they promise: the same bits for any number of threads, sums over micro-batches, losses without
 * gradients. */
/* run: quick */
#include "../common.h"
#include "base/elementary.h"
#include "engine/logprob.h"
#include "model/weight_slots.h"
#include "ops/ops.h"
#include "run/adamw.h"
#include "run/train_program.h"

#include <math.h>

enum { RANK = 3, ROWS = 36, SEQS = 3 };
static const char *const models[] = {"llama-plain-f32",
                                     "qwen2-f32",
                                     "qwen3-bias-f32",
                                     "gemma3-text-f32",
                                     "gemma3-text-bf16",
                                     "llama-llama3-bf16",
                                     "families/arcee-biases-yarn-bf16",
                                     "families/helium-biases-bf16"};

typedef struct golden {
    ln_package *package;
    ln_tensors file;
    ln_train_batch batch;
} golden;

static const void *data_of(const golden *g, const char *name) {
    const ln_tensor *t = ln_tensors_find(&g->file, name);
    if (!t) fail_msg("no tensor %s", name);
    return t->data;
}
static void *copy_of(const golden *g, const char *name) {
    const ln_tensor *t = ln_tensors_find(&g->file, name);
    if (!t) fail_msg("no tensor %s", name);
    void *to = malloc((size_t)t->bytes);
    memcpy(to, t->data, (size_t)t->bytes);
    return to;
}
static void open_golden(golden *g, const char *model) {
    char path[512];
    const ln_options o = {.size = sizeof o};
    snprintf(path, sizeof path, "%s/tests/golden/%s", LN_ROOT, model);
    OK(ln_package_open(&g->package, path, &o, err));
    snprintf(path, sizeof path, "%s/tests/golden/train/%s.safetensors", LN_ROOT,
             strrchr(model, '/') ? strrchr(model, '/') + 1 : model);
    OK(ln_tensors_open_file(&g->file, path, err));
    g->batch = (ln_train_batch){.n_rows = ROWS,
                                .n_seqs = SEQS,
                                .ids = copy_of(g, "ids"),
                                .row0 = copy_of(g, "row0"),
                                .targets = copy_of(g, "targets")};
}
static void close_golden(golden *g) {
    free((void *)(uintptr_t)g->batch.ids);
    free((void *)(uintptr_t)g->batch.row0);
    free((void *)(uintptr_t)g->batch.targets);
    ln_tensors_close(&g->file);
    ln_package_close(&g->package);
}

static int recompute;                   /* layers that the next program recomputes */
static const ln_device_ops *device_ops; /* of its device, if they are not the usual ones */
static ln_train_program *open_program(golden *g, ln_device device, int threads, ln_numerics numerics,
                                      double dropout) {
    ln_train_program *p;
    ln_train_options o = {.size = sizeof o,
                          .run = test_options(g->package, device, threads, ROWS, SEQS),
                          .lora = {.rank = RANK, .scale = 2, .dropout = dropout, .seed = 9},
                          .n_recompute = recompute};
    o.run.numerics = numerics;
    if (device_ops) o.run.ops = device_ops;
    static const ln_slot slots[] = {LN_W_Q, LN_W_K, LN_W_V, LN_W_O, LN_W_GATE, LN_W_UP, LN_W_DOWN};
    for (size_t i = 0; i < LN_COUNT(slots); i++)
        o.lora.targets[slots[i]] = ln_slot_wanted(&g->package->spec, slots[i], 0);
    OK(ln_train_program_open(&p, &g->package->spec, &g->package->weights, g->package->weight_cache, &o, err));
    size_t n;
    ln_train_param *x = ln_train_program_params(p, &n);
    for (size_t i = 0; i < n; i++) {
        char name[200];
        snprintf(name, sizeof name, "%s.%c", x[i].path, x[i].is_b ? 'B' : 'A');
        memcpy(x[i].value, data_of(g, name), (size_t)(x[i].rows * x[i].cols) * sizeof(float));
    }
    return p;
}

/* Loss within 1e-4 of itself, gradients within 1e-3 of their norm: the gates of the issue. Both are computed
 * in f32 by different orders of summation. */
static void check_golden(const char *model, ln_device device, ln_numerics numerics) {
    golden g;
    ln_train_result r;
    size_t n;
    open_golden(&g, model);
    ln_train_program *p = open_program(&g, device, 2, numerics, 0);
    float want;
    memcpy(&want, data_of(&g, "loss"), 4);
    OK(ln_train_evaluate(p, &g.batch, &r, err));
    const double evaluated = r.loss;
    OK(ln_train_step(p, &g.batch, &r, err));
    assert_true(r.finite && r.loss == evaluated);
    if (!(fabs(r.loss - (double)want) <= 1e-4 * (double)want))
        fail_msg("%s: loss %.7g, peft has %.7g", model, r.loss, (double)want);
    ln_train_param *x = ln_train_program_params(p, &n);
    double worst = 0;
    for (size_t i = 0; i < n; i++) {
        char name[200];
        double off = 0, norm = 0;
        snprintf(name, sizeof name, "grad.%s.%c", x[i].path, x[i].is_b ? 'B' : 'A');
        const void *grad = data_of(&g, name);
        for (int64_t k = 0; k < x[i].rows * x[i].cols; k++) {
            const double y = (double)ln_num_load(grad, LN_F32, k), d = (double)x[i].grad[k] - y;
            off += d * d;
            norm += y * y;
        }
        worst = LN_MAX(worst, sqrt(off / norm));
        if (!(off <= 1e-6 * norm))
            fail_msg("%s: %s is off by %.2g of its norm", model, name, sqrt(off / norm));
    }
    print_message("%s: loss off by %.1e, gradients by at most %.1e\n", model,
                  fabs(r.loss - (double)want) / (double)want, worst);
    ln_train_program_close(&p);
    close_golden(&g);
}
static void losses_and_gradients_are_those_of_peft(void **state) {
    (void)state;
    for (size_t i = 0; i < LN_COUNT(models); i++) {
        check_golden(models[i], LN_DEVICE_REF, LN_EXACT);
        check_golden(models[i], LN_DEVICE_CPU, LN_EXACT);
    }
}

static void copy_gradients(ln_train_program *p, float **out, size_t *bytes) {
    size_t n, at = 0;
    ln_train_param *x = ln_train_program_params(p, &n);
    *bytes = 0;
    for (size_t i = 0; i < n; i++) *bytes += (size_t)(x[i].rows * x[i].cols) * sizeof(float);
    *out = malloc(*bytes);
    for (size_t i = 0; i < n; i++) {
        memcpy(*out + at, x[i].grad, (size_t)(x[i].rows * x[i].cols) * sizeof(float));
        at += (size_t)(x[i].rows * x[i].cols);
    }
}

/* The CPU device with any number of threads, and, of f32 models, the reference device: AMX has an order of
 * its own for products with bf16 weights. With dropout. */
static void bits_depend_on_no_thread(void **state) {
    (void)state;
    for (size_t m = 0; m < LN_COUNT(models); m += fewer(1, 2)) {
        golden g;
        float *want = NULL, *got;
        double loss = 0;
        size_t bytes;
        open_golden(&g, models[m]);
        for (int threads = strstr(models[m], "f32") ? 0 : 1; threads <= 3; threads++) {
            ln_train_result r;
            ln_train_program *p =
                open_program(&g, threads ? LN_DEVICE_CPU : LN_DEVICE_REF, LN_MAX(threads, 1), LN_EXACT, 0.25);
            OK(ln_train_step(p, &g.batch, &r, err));
            copy_gradients(p, &got, &bytes);
            if (!want) want = got, loss = r.loss;
            if (loss != r.loss || memcmp(want, got, bytes) != 0)
                fail_msg("%s: other bits on %d threads", models[m], threads);
            if (want != got) free(got);
            ln_train_program_close(&p);
        }
        free(want);
        close_golden(&g);
    }
}

/* Recomputation of some or all layers changes no bit, on either device, with dropout and bf16 operands, and
 * takes less memory. */
static void recomputation_changes_no_bit(void **state) {
    (void)state;
    for (size_t m = 0; m < LN_COUNT(models); m += fewer(1, 2))
        for (int device = 0; device < 2; device++) {
            golden g;
            float *want = NULL, *got;
            double loss = 0;
            size_t bytes;
            uint64_t activations = 0;
            open_golden(&g, models[m]);
            for (recompute = 0; recompute <= g.package->spec.L; recompute++) {
                ln_train_result r;
                ln_train_program *p =
                    open_program(&g, device ? LN_DEVICE_CPU : LN_DEVICE_REF, 2, LN_FAST, 0.25);
                assert_int_equal(ln_train_program_sizes(p)->n_recompute, recompute);
                if (!recompute) activations = ln_train_program_sizes(p)->activation_bytes;
                if (recompute == g.package->spec.L)
                    assert_true(ln_train_program_sizes(p)->activation_bytes < activations);
                OK(ln_train_step(p, &g.batch, &r, err));
                copy_gradients(p, &got, &bytes);
                if (!want) want = got, loss = r.loss;
                if (loss != r.loss || memcmp(want, got, bytes) != 0)
                    fail_msg("%s: other bits with %d recomputed layers", models[m], recompute);
                if (want != got) free(got);
                ln_train_program_close(&p);
            }
            recompute = 0;
            free(want);
            close_golden(&g);
        }
}

static void describe_memory(const ln_dev *dev, ln_dev_info *out) {
    ln_device_cpu.describe(dev, out);
    out->memory_total = out->memory_free = (uint64_t)1 << 40;
}
/* A device with memory of its own makes rows that cost little again, which takes less memory and changes no
 * bit. */
static void cheap_rows_change_no_bit(void **state) {
    (void)state;
    ln_device_ops ops = ln_device_cpu;
    ops.describe = describe_memory;
    for (size_t m = 0; m < LN_COUNT(models); m += fewer(1, 2)) {
        golden g;
        float *want = NULL;
        double loss = 0;
        uint64_t activations = 0;
        open_golden(&g, models[m]);
        for (int own = 0; own < 2; own++) {
            float *got;
            size_t bytes;
            ln_train_result r;
            device_ops = own ? &ops : NULL;
            ln_train_program *p = open_program(&g, LN_DEVICE_CPU, 2, LN_FAST, 0.25);
            const uint64_t takes = ln_train_program_sizes(p)->activation_bytes;
            OK(ln_train_step(p, &g.batch, &r, err));
            copy_gradients(p, &got, &bytes);
            if (own && (loss != r.loss || memcmp(want, got, bytes) != 0))
                fail_msg("%s: other bits", models[m]);
            if (own) assert_true(takes < activations || strstr(models[m], "arcee")); /* its relu2 is kept */
            free(want);
            want = got, loss = r.loss, activations = takes;
            ln_train_program_close(&p);
        }
        device_ops = NULL;
        free(want);
        close_golden(&g);
    }
}

/* Gradients of micro-batches add up, and a sequence alone has the loss that it has in a packed batch. */
static void micro_batches_add_up(void **state) {
    (void)state;
    golden g;
    open_golden(&g, "gemma3-text-f32");
    ln_train_program *p = open_program(&g, LN_DEVICE_REF, 1, LN_EXACT, 0);
    ln_train_result whole, part;
    float *want, *got;
    size_t bytes;
    double loss = 0;
    OK(ln_train_step(p, &g.batch, &whole, err));
    copy_gradients(p, &want, &bytes);
    ln_train_clear(p);
    for (int q = 0; q < SEQS; q++) {
        const int32_t from = g.batch.row0[q], row0[2] = {0, g.batch.row0[q + 1] - from};
        const ln_train_batch one = {.n_rows = row0[1],
                                    .n_seqs = 1,
                                    .ids = g.batch.ids + from,
                                    .row0 = row0,
                                    .targets = g.batch.targets + from};
        OK(ln_train_step(p, &one, &part, err));
        loss += part.loss;
    }
    copy_gradients(p, &got, &bytes);
    assert_true(fabs(loss - whole.loss) <= 1e-12 * whole.loss); /* each target's loss has the same bits */
    double off = 0, norm = 0;
    for (size_t i = 0; i < bytes / sizeof(float); i++) {
        off += ((double)got[i] - (double)want[i]) * ((double)got[i] - (double)want[i]);
        norm += (double)want[i] * (double)want[i];
    }
    assert_true(off <= 0x1p-40 * norm); /* sums of three parts, each rounded to 24 bits */
    free(want), free(got);
    /* nothing that counts: nothing is added */
    ln_train_clear(p);
    int32_t none[ROWS];
    for (int i = 0; i < ROWS; i++) none[i] = -1;
    ln_train_batch silent = g.batch;
    silent.targets = none;
    OK(ln_train_step(p, &silent, &part, err));
    assert_true(part.n_counted == 0 && part.loss == 0 && part.finite);
    ln_train_program_close(&p);
    close_golden(&g);
}

/* A few steps of AdamW lower the loss of their batch; the initial B of zeros leaves the base as it is. */
static void steps_lower_the_loss(void **state) {
    (void)state;
    golden g;
    open_golden(&g, "qwen3-bias-f32");
    ln_train_program *p = open_program(&g, LN_DEVICE_CPU, 2, LN_EXACT, 0);
    ln_train_result first = {0}, r;
    size_t n, bytes;
    float *moments;
    ln_train_param *x = ln_train_program_params(p, &n);
    OK(ln_train_program_init(p, 1, err));
    copy_gradients(p, &moments, &bytes);
    float *second = calloc(1, bytes);
    memset(moments, 0, bytes);
    const ln_adamw_rates rates = {
        .lr = 0.02, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01};
    for (int step = 1; step <= 12; step++) {
        ln_train_clear(p);
        OK(ln_train_step(p, &g.batch, &r, err));
        if (step == 1) first = r;
        size_t at = 0;
        for (size_t i = 0; i < n; i++) {
            const int64_t k = x[i].rows * x[i].cols;
            ln_adamw_update(&rates, step, k, x[i].value, x[i].grad, 1 / r.weight, moments + at, second + at);
            at += (size_t)k;
        }
        ln_train_values_changed(p);
    }
    OK(ln_train_evaluate(p, &g.batch, &r, err));
    assert_true(r.loss < 0.9 * first.loss);
    free(moments), free(second);
    ln_train_program_close(&p);
    close_golden(&g);
}

/* A base in affine groups (QLoRA): the CPU device has the bits of the reference, in both policies the same,
 * since activations are never quantised in training. Parameters in bf16: the program computes with the
 * rounded values. */
static void quantised_bases_and_bf16_parameters(void **state) {
    (void)state;
    enum { N = 12 };
    static const int32_t row0[] = {0, 5, N};
    int32_t ids[N], targets[N];
    ln_package *m;
    ln_options how = {.size = sizeof how, .quantize_bits = 4};
    float *want = NULL, *got;
    size_t n, bytes;
    OK(ln_package_open(&m, "tiny", &how, err));
    for (int i = 0; i < N; i++) ids[i] = 300 + 31 * i, targets[i] = i == 4 || i == N - 1 ? -1 : 331 + 31 * i;
    const ln_train_batch batch = {.n_rows = N, .n_seqs = 2, .ids = ids, .row0 = row0, .targets = targets};
    for (int form = 0; form < 4; form++) {
        ln_train_options o = {.size = sizeof o,
                              .run = test_options(m, form ? LN_DEVICE_CPU : LN_DEVICE_REF, 2, N, 2),
                              .lora = {.rank = 4, .scale = 1, .dtype = form == 3 ? LN_BF16 : LN_F32}};
        ln_train_program *p;
        ln_train_result r;
        o.run.numerics = form == 2 ? LN_FAST : LN_EXACT;
        o.lora.targets[LN_W_Q] = o.lora.targets[LN_W_DOWN] = true;
        OK(ln_train_program_open(&p, &m->spec, &m->weights, m->weight_cache, &o, err));
        OK(ln_train_program_init(p, 3, err));
        ln_train_param *x = ln_train_program_params(p, &n);
        for (size_t i = 0; i < n; i++)
            for (int64_t k = 0; k < x[i].rows * x[i].cols; k++)
                x[i].value[k] =
                    ln_bf16_f32(ln_f32_bf16(x[i].is_b ? 0.01f * (float)(k % 7 - 3) : x[i].value[k]));
        OK(ln_train_step(p, &batch, &r, err));
        assert_true(r.finite && r.n_counted == N - 2 && r.loss > 0);
        copy_gradients(p, &got, &bytes);
        if (!want) want = got;
        if (memcmp(want, got, bytes) != 0) fail_msg("form %d has other bits than the reference", form);
        if (want != got) free(got);
        ln_train_program_close(&p);
    }
    free(want);
    ln_package_close(&m);
}

/* The memory that a plan names is that of the open program. */
static void sizes_are_known_before(void **state) {
    (void)state;
    golden g;
    ln_train_sizes before;
    open_golden(&g, "llama-plain-f32");
    ln_train_options o = {.size = sizeof o,
                          .run = test_options(g.package, LN_DEVICE_CPU, 2, ROWS, SEQS),
                          .lora = {.rank = RANK, .scale = 2}};
    FAILS(LN_EINVALID, "q_proj",
          ln_train_program_measure(&g.package->spec, &g.package->weights, &o, &before, err));
    o.lora.targets[LN_W_NORM] = true;
    FAILS(LN_EUNSUPPORTED, "norm",
          ln_train_program_measure(&g.package->spec, &g.package->weights, &o, &before, err));
    o.lora.targets[LN_W_NORM] = false;
    o.lora.targets[LN_W_Q] = o.lora.targets[LN_W_V] = true;
    OK(ln_train_program_measure(&g.package->spec, &g.package->weights, &o, &before, err));
    assert_int_equal(before.n_params,
                     2 * RANK * (2 * 32 + 48 + 24)); /* two layers, D 32, q 48 and v 24 wide */
    ln_train_program *p;
    OK(ln_train_program_open(&p, &g.package->spec, &g.package->weights, g.package->weight_cache, &o, err));
    ln_train_sizes after = *ln_train_program_sizes(p);
    assert_in_range(after.graph_bytes, before.graph_bytes * 9 / 10, before.graph_bytes * 11 / 10);
    after.graph_bytes = before.graph_bytes; /* the allocator may give a little more than is asked for */
    assert_memory_equal(&before, &after, sizeof before);
    ln_train_program_close(&p);
    ln_train_sizes all; /* recomputed layers, of which there are no more than the model has */
    o.n_recompute = g.package->spec.L + 1;
    OK(ln_train_program_measure(&g.package->spec, &g.package->weights, &o, &all, err));
    assert_int_equal(all.n_recompute, g.package->spec.L);
    assert_true(all.activation_bytes < before.activation_bytes);
    close_golden(&g);
}

/* The loss of a row of logits in the order of the op linear_cross_entropy. */
static float loss_of(const float *logits, int64_t V, int32_t target) {
    float M = 0, L = 0;
    for (int64_t v = 0; v < V; v += LN_CE_SPLIT) {
        const int64_t end = LN_MIN(v + LN_CE_SPLIT, V);
        float lane[16] = {0}, m = -INFINITY;
        for (int64_t i = v; i < end; i++) m = fmaxf(m, logits[i]);
        for (int64_t i = v; i < end; i++) lane[i % 16] += ln_expf(logits[i] - m);
        for (int half = 8; half > 0; half /= 2)
            for (int l = 0; l < half; l++) lane[l] += lane[l + half];
        const float most = v == 0 ? m : fmaxf(m, M);
        L = v == 0 ? lane[0] : L * ln_expf(M - most) + lane[0] * ln_expf(m - most);
        M = most;
    }
    return (float)ln_log64((double)L) + (M - logits[target]);
}

/* How far -loss may be from the log-probability that scoring sums in double. L has V terms: 16 additions in a
 * lane, 4 of lanes, two roundings a split, and exponentials of two units in the last place whose arguments
 * are rounded, which matters in proportion to the argument times its weight, at most log V; then the
 * logarithm, the difference and their sum are rounded. In units of 2^-24, each allowed twice. */
static double loss_bound(int64_t V, double loss) {
    return 2 * 0x1p-24 * (24 + 2 * ((double)V / LN_CE_SPLIT + 1) + 3 * (log((double)V) + loss));
}

/* Logits of all rows of one sequence by an engine; the caller frees them. */
static float *logits_of(const golden *g, ln_device device, const int32_t *ids, int32_t n) {
    const ln_options o = {
        .device = device, .numerics = LN_EXACT, .n_threads = 2, .n_chunk = n, .n_logits = n};
    ln_run_options r;
    ln_eng *e;
    const int64_t V = g->package->spec.V;
    float *out = malloc((size_t)(n * V) * sizeof *out);
    OK(ln_eng_options(g->package, &o, &r, err));
    r.n_ctx = 64, r.page_len = 32;
    OK(ln_eng_open_with(&e, g->package, &r, err));
    ln_seq *seq = test_seq(e, n, n);
    const ln_batch_item all = {seq, ids, n, LN_LOGITS_ALL};
    OK(ln_eng_step(e, &all, 1, err));
    for (int32_t i = 0; i < n; i++) OK(ln_run_logits(e->run, i, out + i * V, err));
    ln_seq_close(e, &seq);
    ln_eng_close(&e);
    return out;
}

/* In exact numerics a trainer and a server agree: the forward pass of training has the logits of inference,
 * bit for bit, if the adapter adds 0 (A x is summed in another order). The log-probability is not the same
 * number: the op of training sums in f32, scoring in double. bf16 models run on the reference device,
 * because the products of AMX have an order of their own. */
static void logits_are_those_of_inference(void **state) {
    (void)state;
    double worst = 0;
    for (size_t k = 0; k < LN_COUNT(models); k++) {
        golden g;
        size_t n;
        open_golden(&g, models[k]);
        const ln_device device = strstr(models[k], "f32") ? LN_DEVICE_CPU : LN_DEVICE_REF;
        ln_train_program *p = open_program(&g, device, 2, LN_EXACT, 0);
        ln_train_param *x = ln_train_program_params(p, &n);
        for (size_t i = 0; i < n; i++) memset(x[i].value, 0, (size_t)(x[i].rows * x[i].cols) * sizeof(float));
        const int32_t rows = g.batch.row0[1], row0[2] = {0, rows};
        const int64_t V = g.package->spec.V;
        float *logits = logits_of(&g, device, g.batch.ids, rows);
        for (int32_t t = 0; t + 1 < rows; t++) {
            int32_t targets[ROWS];
            ln_train_result r;
            double lse;
            for (int32_t i = 0; i < rows; i++) targets[i] = i == t ? g.batch.ids[t + 1] : -1;
            const ln_train_batch one = {
                .n_rows = rows, .n_seqs = 1, .ids = g.batch.ids, .row0 = row0, .targets = targets};
            OK(ln_train_step(p, &one, &r, err));
            if ((float)r.loss != loss_of(logits + t * V, V, targets[t]))
                fail_msg("%s, row %d: loss %.9g, of the logits of inference %.9g", models[k], t, r.loss,
                         (double)loss_of(logits + t * V, V, targets[t]));
            OK(ln_log_sum(logits + t * V, V, &lse, err));
            const double off = fabs(r.loss - (lse - (double)logits[t * V + targets[t]]));
            assert_true(off <= loss_bound(V, r.loss));
            worst = LN_MAX(worst, off);
        }
        free(logits);
        ln_train_program_close(&p);
        close_golden(&g);
    }
    print_message("log-probabilities of training and of scoring differ by at most %.1e\n", worst);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(losses_and_gradients_are_those_of_peft),
                                       cmocka_unit_test(bits_depend_on_no_thread),
                                       cmocka_unit_test(recomputation_changes_no_bit),
                                       cmocka_unit_test(cheap_rows_change_no_bit),
                                       cmocka_unit_test(micro_batches_add_up),
                                       cmocka_unit_test(steps_lower_the_loss),
                                       cmocka_unit_test(quantised_bases_and_bf16_parameters),
                                       cmocka_unit_test(sizes_are_known_before),
                                       cmocka_unit_test(logits_are_those_of_inference)};
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("train_program", tests, NULL, NULL);
}
