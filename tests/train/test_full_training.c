/* Training of all weights: what torch makes of the same start (tests/golden/trainer, made by
 * tools/golden_trainer.py), the same bits after an interruption, a result that is a model, and what is
 * rejected. */
/* run: slow cuda */
#include "train_runs.h"

#include "run/train_program.h"

enum { SPARSE = 16 };

/* Tied and separate heads, biases, norms with and without an offset, a norm of q and k, and a tensor that
 * holds the weights of gate and up. */
static void as_torch(void **state) {
    (void)state;
    static const char *const models[] = {"llama-plain-f32", "qwen2-f32", "qwen3-bias-f32", "gemma3-text-f32",
                                         "families/glm4-base-f32"};
    for (size_t i = 0; i < LN_COUNT(models); i++) {
        const char *leaf = strrchr(models[i], '/') ? strrchr(models[i], '/') + 1 : models[i];
        char model[300], rows[300], out[400], path[400], result[400], final[400];
        json_t *want;
        ln_trainer_options how = ln_trainer_options_default();
        snprintf(model, sizeof model, GOLDEN "%s", models[i]);
        snprintf(rows, sizeof rows, GOLDEN "trainer/%s/rows.jsonl", leaf);
        how.method = LN_METHOD_FULL;
        how.data = rows, how.out = at(out, "golden");
        how.no_shuffle = true, how.batch = 3, how.lr = 1e-3, how.clip = 0, how.steps = STEPS;
        OK(train(model, &how, 2, err));
        snprintf(path, sizeof path, GOLDEN "trainer/%s/full.json", leaf);
        OK(ln_json_load_file(&want, path, 10000, err));
        const double worst = worst_loss(want);
        json_decref(want);
        snprintf(path, sizeof path, "%s/model.safetensors", model);
        snprintf(final, sizeof final, GOLDEN "trainer/%s/full.safetensors", leaf);
        const double same = cosine(path, at(result, "golden/model.safetensors"), final, "", SPARSE);
        print_message("%s: losses off by at most %.1e, cosine %.8f\n", models[i], worst, same);
        assert_true(worst <= 1e-5);
        assert_true(same >= 0.9999);
        shell("rm -rf golden");
    }
}

static ln_trainer_options run_of(const char *out) {
    static char data[400];
    ln_trainer_options how = ln_trainer_options_default();
    how.method = LN_METHOD_FULL;
    how.data = at(data, "rows.jsonl"), how.out = out;
    how.batch = 2, how.accum = 2, how.lr = 1e-3, how.steps = STEPS, how.save_every = 3, how.valid_split = 0.3;
    return how;
}

/* A run that is stopped and resumed twice, on other numbers of threads, has the files of one that is not: in
 * f32, and in bf16, whose values in f32 are in the checkpoints alone. */
static void interrupted_or_not(void **state) {
    (void)state;
    static const char *const models[] = {SMALL, GOLDEN "qwen2-bf16"};
    for (size_t i = 0; i < LN_COUNT(models); i++) {
        char a[400], b[400];
        ln_trainer_options how = run_of(at(a, "whole"));
        stop_after = 0;
        OK(train(models[i], &how, 2, err));
        how = run_of(at(b, "parts"));
        for (stop_after = 4; stop_after <= 8; stop_after += 4) {
            OK(train(models[i], &how, stop_after == 4 ? 1 : 3, err));
            how.resume = true;
        }
        stop_after = 0;
        OK(train(models[i], &how, 2, err));
        shell("cmp whole/model.safetensors parts/model.safetensors");
        shell("cmp whole/best/model.safetensors parts/best/model.safetensors");
        shell("cmp whole/checkpoints/step-00000012/train_state.safetensors "
              "parts/checkpoints/step-00000012/train_state.safetensors");
        shell("cmp whole/config.json parts/config.json && cmp whole/tokenizer.json parts/tokenizer.json");
        shell("! ls whole/adapter* whole/checkpoints/*/adapter* 2>/dev/null");
        shell("test -z \"$(find . -name '*.tmp*')\"");
        shell("rm -rf whole parts");
    }
}

/* The result has the dtypes of the model; what the engine computes with it are the numbers of training. */
static void result_is_a_model(void **state) {
    (void)state;
    char out[400];
    ln_tensors before, after;
    ln_trainer_options how = run_of(at(out, "out"));
    stop_after = 0;
    OK(train(GOLDEN "qwen2-bf16", &how, 2, err));
    const double last = steps[STEPS].loss;
    OK(ln_tensors_open(&before, GOLDEN "qwen2-bf16", false, err));
    OK(ln_tensors_open(&after, out, false, err));
    assert_int_equal(before.n, after.n);
    for (size_t i = 0; i < before.n; i++) {
        const ln_tensor *x = ln_tensors_find(&after, before.items[i].name);
        assert_true(x && x->dtype == before.items[i].dtype && x->bytes == before.items[i].bytes);
        assert_true(memcmp(x->data, before.items[i].data, x->bytes) != 0);
    }
    ln_tensors_close(&before), ln_tensors_close(&after);
    char model[400];
    at(model, "again");
    shell("cp -r out again && rm -r again/checkpoints");
    how = run_of(at(out, "next"));
    how.steps = 1, how.lr = 1e-12;
    how.valid_split = 0;
    OK(train(model, &how, 2, err));
    assert_true(steps[1].loss < 2 * last); /* it goes on with the trained weights */
    shell("rm -rf out again next");
}

/* The gradients of all parameters of a batch; the caller frees them. */
static float *gradients_of(const ln_package *m, ln_device device, int threads, int n_recompute, size_t *n) {
    enum { ROWS = 24 };
    static const int32_t row0[] = {0, 9, ROWS};
    int32_t ids[ROWS], targets[ROWS];
    ln_train_options o = {.size = sizeof o, .full = true, .n_recompute = n_recompute};
    ln_train_program *p;
    ln_train_result r;
    size_t n_params, at = 0;
    o.run = test_options(m, device, threads, ROWS, 2);
    o.run.numerics = LN_EXACT;
    for (int i = 0; i < ROWS; i++) ids[i] = 7 * i % 90, targets[i] = i % 5 ? 11 * i % 90 : -1;
    const ln_train_batch b = {.n_rows = ROWS, .n_seqs = 2, .ids = ids, .row0 = row0, .targets = targets};
    OK(ln_train_program_open(&p, &m->spec, &m->weights, m->weight_cache, &o, err));
    OK(ln_train_program_init(p, 0, err));
    OK(ln_train_step(p, &b, &r, err));
    assert_true(r.finite);
    const ln_train_param *x = ln_train_program_params(p, &n_params);
    *n = ln_train_program_sizes(p)->n_params;
    float *out = malloc(*n * sizeof *out);
    for (size_t i = 0; i < n_params; i++) {
        const size_t k = (size_t)(x[i].rows * x[i].cols);
        memcpy(out + at, x[i].grad, k * sizeof *out);
        at += k;
    }
    assert_int_equal(at, *n);
    ln_train_program_close(&p);
    return out;
}

/* Gradients are read while the buffers of activations are in use for others: they have the same bits whatever
 * is recomputed, on any number of threads, and except for rounding those of the reference device. */
static void gradients_are_taken_in_time(void **state) {
    (void)state;
    static const char *const models[] = {"gemma3-text-f32", "families/glm4-base-f32", "qwen2-bf16"};
    for (size_t i = 0; i < LN_COUNT(models); i++) {
        char path[300];
        ln_package *m;
        const ln_options o = {.size = sizeof o};
        size_t n;
        double off = 0, norm = 0;
        snprintf(path, sizeof path, GOLDEN "%s", models[i]);
        OK(ln_package_open(&m, path, &o, err));
        float *a = gradients_of(m, test_device(), 1, 0, &n), *b = gradients_of(m, test_device(), 3, 2, &n),
              *c = gradients_of(m, LN_DEVICE_REF, 2, 1, &n);
        assert_memory_equal(a, b, n * sizeof *a);
        for (size_t k = 0; k < n; k++) {
            const double d = (double)a[k] - (double)c[k];
            off += d * d, norm += (double)c[k] * (double)c[k];
        }
        assert_true(norm > 0 && off <= 1e-8 * norm);
        free(a), free(b), free(c);
        ln_package_close(&m);
    }
}

/* As the padding_idx of PyTorch's Embedding: rows of the padding token give the table no gradient, which is
 * large if its row is 0, as in a new model. */
static void padding_has_no_gradient(void **state) {
    (void)state;
    ln_package *m;
    size_t n, again, first = 0, last = 0;
    const ln_options o = {.size = sizeof o};
    OK(ln_package_open(&m, GOLDEN "llama-plain-f32", &o, err));
    const int64_t D = m->spec.D;
    m->spec.padding = 0;
    float *all = gradients_of(m, LN_DEVICE_CPU, 2, 0, &n);
    m->spec.padding = 1 + 7; /* ids has it once */
    float *but = gradients_of(m, LN_DEVICE_CPU, 2, 0, &again);
    assert_int_equal(n, again);
    for (size_t i = 0; i < n; i++)
        if (memcmp(&all[i], &but[i], sizeof *all) != 0) {
            if (last == 0) first = i;
            last = i + 1;
            if (!m->spec.tied) assert_true(but[i] == 0);
        }
    assert_int_equal(first % (size_t)D, 0); /* one row of the table, whatever its place among the tensors */
    assert_int_equal(last - first, D);
    free(all), free(but);
    ln_package_close(&m);
}

/* Micro-batches of one sample change no more than the order of sums. */
static void smaller_micro_batches_have_the_same_steps(void **state) {
    (void)state;
    char out[400];
    double want[STEPS + 1];
    ln_trainer_options how = run_of(at(out, "out"));
    stop_after = 0;
    how.lr = 1e-3;
    OK(train(SMALL, &how, 2, err));
    for (int i = 1; i <= STEPS; i++) want[i] = steps[i].loss;
    shell("rm -rf out");
    how.batch = 1, how.accum = 4;
    OK(train(SMALL, &how, 2, err));
    for (int i = 1; i <= STEPS; i++) assert_true(fabs(steps[i].loss - want[i]) <= 1e-5 * want[i]);
    shell("rm -rf out");
}

static void what_is_rejected(void **state) {
    (void)state;
    char out[400], init[400];
    ln_trainer_options how = run_of(at(out, "out"));
    stop_after = 0;
    FAILS(LN_EUNSUPPORTED, "is quantised", train(GOLDEN "quantised/qwen2-q3-g64-f32", &how, 1, err));
    FAILS(LN_EUNSUPPORTED, "is of experts", train(GOLDEN "families/qwen3_moe-step-bf16", &how, 1, err));
    FAILS(LN_EUNSUPPORTED, "alpha_p", train(GOLDEN "families/apertus-bias-bf16", &how, 1, err));
    how.dropout = 0.1;
    FAILS(LN_EUSAGE, "ln_trainer_options.dropout", train(SMALL, &how, 1, err));
    how.dropout = 0, how.bf16 = true;
    FAILS(LN_EUSAGE, "ln_trainer_options.bf16", train(SMALL, &how, 1, err));
    how.bf16 = false, how.init_adapter = at(init, "init");
    FAILS(LN_EUSAGE, "ln_trainer_options.init_adapter", train(SMALL, &how, 1, err));
    how.init_adapter = NULL, how.method = (ln_method)7;
    FAILS(LN_EUSAGE, "ln_trainer_options.method", train(SMALL, &how, 1, err));
    how.method = LN_METHOD_FULL, how.out = SMALL;
    FAILS(LN_EIO, "config.json", train(SMALL, &how, 1, err));
    assert_int_not_equal(access(out, F_OK), 0);
    /* a run of the other method is not continued */
    how.out = at(out, "out"), how.steps = 2;
    OK(train(SMALL, &how, 1, err));
    how.method = LN_METHOD_LORA, how.resume = true;
    shell("rm out/config.json");
    FAILS(LN_EUSAGE, "method: \"full\" then, nothing now", train(SMALL, &how, 1, err));
    shell("rm -rf out");
}

static int make_files(void **state) {
    (void)state;
    char path[400];
    assert_int_equal(make_dir("test_full_training"), 0);
    uint64_t seed = 4;
    FILE *f = fopen(at(path, "rows.jsonl"), "wb");
    assert_non_null(f);
    for (int i = 0; i < 11; i++) {
        const int n = 3 + (int)(test_random(&seed) % 14);
        fprintf(f, "{\"ids\":[");
        for (int k = 0; k < n; k++) fprintf(f, "%s%u", k ? "," : "", (unsigned)(test_random(&seed) % 260));
        fprintf(f, "]}\n");
    }
    assert_int_equal(fclose(f), 0);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_torch),
                                       cmocka_unit_test(interrupted_or_not),
                                       cmocka_unit_test(result_is_a_model),
                                       cmocka_unit_test(gradients_are_taken_in_time),
                                       cmocka_unit_test(padding_has_no_gradient),
                                       cmocka_unit_test(smaller_micro_batches_have_the_same_steps),
                                       cmocka_unit_test(what_is_rejected)};
    return cmocka_run_group_tests_name("full training", tests, make_files, remove_dir);
}
