/* Optimisers other than AdamW, and adapters of some layers: what torch and peft make of the same start
 * (tests/golden/trainer, made by tools/golden_trainer.py), the same bits after an interruption, and what is
 * rejected. */
/* run: slow asan */
#include "train_runs.h"

enum { SPARSE = 4 };

static const char *const models[] = {"llama-plain-f32", "qwen2-f32", "qwen3-bias-f32", "gemma3-text-f32"};

/* Trains from the adapter `init` of a golden model as its recorded run `name` did, and compares. */
static void as_recorded(const char *model, const char *init, const char *name, ln_trainer_options how) {
    char path[300], rows[300], from[300], recorded[300], file[400], out[400], result[400];
    json_t *want;
    snprintf(path, sizeof path, GOLDEN "%s", model);
    snprintf(rows, sizeof rows, GOLDEN "trainer/%s/rows.jsonl", model);
    snprintf(from, sizeof from, GOLDEN "trainer/%s/%s", model, init);
    how.data = rows, how.init_adapter = from, how.out = at(out, "golden");
    how.no_shuffle = true, how.batch = 3, how.clip = 0, how.steps = STEPS;
    OK(train(path, &how, 2, err));
    snprintf(file, sizeof file, GOLDEN "trainer/%s/%s.json", model, name);
    OK(ln_json_load_file(&want, file, 10000, err));
    const double worst = worst_loss(want);
    json_decref(want);
    snprintf(recorded, sizeof recorded, GOLDEN "trainer/%s/%s.safetensors", model, name);
    snprintf(file, sizeof file, "%s/adapter_model.safetensors", from);
    const double same = cosine(file, at(result, "golden/adapter_model.safetensors"), recorded, "", SPARSE);
    print_message("%s, %s: losses off by at most %.1e, cosine %.8f\n", model, name, worst, same);
    assert_true(worst <= 1e-5);
    assert_true(same >= 0.9999);
}

static void sgd_as_torch(void **state) {
    (void)state;
    ln_trainer_options how = ln_trainer_options_default();
    how.optimizer = LN_OPTIMIZER_SGD, how.momentum = 0.9, how.lr = 0.1;
    for (size_t i = 0; i < LN_COUNT(models); i++) {
        as_recorded(models[i], "init", "sgd", how);
        shell("rm -r golden");
    }
}

/* The configuration that is written names the layers as PEFT does. */
static void some_layers_as_peft(void **state) {
    (void)state;
    ln_trainer_options how = ln_trainer_options_default();
    how.lr = 1e-3;
    for (size_t i = 0; i < LN_COUNT(models); i++) {
        char path[400];
        json_t *config;
        as_recorded(models[i], "layers", "layers", how);
        OK(ln_json_load_file(&config, at(path, "golden/adapter_config.json"), 10000, err));
        const json_t *layers = json_object_get(config, "layers_to_transform");
        assert_int_equal(json_array_size(layers), 1);
        assert_int_equal(json_integer_value(json_array_get(layers, 0)), 1);
        json_decref(config);
        shell("rm -r golden");
    }
}

static ln_trainer_options run_of(const char *out) {
    static char data[400];
    ln_trainer_options how = ln_trainer_options_default();
    how.data =
        put(data, "rows.jsonl",
            "{\"ids\":[1,5,7,8,9]}\n{\"ids\":[4,5,6,3,2,2,9]}\n{\"ids\":[11,17,28]}\n{\"ids\":[9,3,1,4]}\n");
    how.out = out, how.batch = 2, how.lr = 0.05, how.steps = STEPS, how.save_every = 3, how.rank = 2;
    return how;
}

static void interrupted_or_not(void **state) {
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        char a[400], b[400];
        ln_trainer_options how = run_of(at(a, "whole"));
        how.optimizer = kind < 3 ? LN_OPTIMIZER_SGD : LN_OPTIMIZER_ADAMW;
        how.momentum = kind == 1 ? 0.9 : 0;
        how.method = kind == 2 ? LN_METHOD_FULL : LN_METHOD_LORA;
        how.layers = kind == 3 ? " 0 , 0-0" : NULL;
        how.schedule = LN_SCHEDULE_WARMUP_STABLE_DECAY, how.decay_steps = 4, how.min_lr = 0.01,
        how.warmup = 3;
        stop_after = 0;
        OK(train(SMALL, &how, 2, err));
        assert_true(steps[STEPS].loss < steps[1].loss);
        how.out = at(b, "parts");
        stop_after = 5;
        OK(train(SMALL, &how, 1, err));
        stop_after = 0, how.resume = true;
        if (kind == 1) {
            how.momentum = 0.8;
            FAILS(LN_EUSAGE, "momentum", train(SMALL, &how, 1, err));
            how.momentum = 0.9;
        }
        OK(train(SMALL, &how, 3, err));
        shell("cmp whole/checkpoints/step-00000012/train_state.safetensors "
              "parts/checkpoints/step-00000012/train_state.safetensors");
        shell("rm -rf whole parts");
    }
}

/* Several files: resumed to the same bits, and not with other weights; a bad line is named with its file. */
static void several_files(void **state) {
    (void)state;
    char a[400], b[400], more[400], bad[400];
    ln_trainer_info f = {.size = sizeof f};
    ln_model *m;
    put(more, "more.jsonl", "{\"ids\":[21,22,23]}\n{\"ids\":[24,25,26,27]}\n");
    ln_train_file files[] = {{more, 1.5}};
    ln_trainer_options how = run_of(at(a, "whole"));
    how.lr = 0.01, how.mix = files, how.n_mix = 1;
    OK(ln_model_open(&m, SMALL, NULL, err));
    how.steps = 0;
    OK(ln_trainer_plan(m, NULL, &how, &f, err));
    ln_model_close(&m);
    assert_int_equal(f.n_samples, 6);
    assert_int_equal(f.n_steps, 4); /* 4 samples and 3, two a step */
    how.steps = STEPS;
    stop_after = 0;
    OK(train(SMALL, &how, 2, err));
    how.out = at(b, "parts");
    stop_after = 5;
    OK(train(SMALL, &how, 1, err));
    stop_after = 0, how.resume = true, files[0].weight = 2;
    FAILS(LN_EUSAGE, "weights", train(SMALL, &how, 1, err));
    files[0].weight = 1.5;
    OK(train(SMALL, &how, 3, err));
    shell("cmp whole/checkpoints/step-00000012/train_state.safetensors "
          "parts/checkpoints/step-00000012/train_state.safetensors");
    shell("rm -rf whole parts");
    files[0].path = put(bad, "bad.jsonl", "{\"ids\":[1,2]}\n{\"ids\":[1,-2]}\n");
    how.resume = false;
    FAILS(LN_EINVALID, "bad.jsonl:2:", train(SMALL, &how, 1, err));
    files[0].weight = 0;
    FAILS(LN_EUSAGE, "ln_trainer_options.mix", train(SMALL, &how, 1, err));
}

/* Plans a run whose validation is chosen by hash; *n: the samples that validate. */
static ln_status plan_held(const char *text, uint64_t seed, double share, int64_t *n, ln_error *err) {
    char data[400];
    ln_trainer_info f = {.size = sizeof f};
    ln_trainer_options how = ln_trainer_options_default();
    ln_model *m;
    how.data = put(data, "hash.jsonl", text), how.seed = seed;
    how.valid_split = share, how.split_by_hash = true;
    OK(ln_model_open(&m, SMALL, NULL, err));
    const ln_status st = ln_trainer_plan(m, NULL, &how, &f, err);
    ln_model_close(&m);
    *n = f.n_valid;
    return st;
}

/* A sample is held out by its own tokens: with other samples, in another order and with another seed it is
 * so, too, and the share is that of the samples on average. */
static void held_out_by_hash(void **state) {
    (void)state;
    ln_str one = {0}, other = {0}, both = {0};
    int64_t n[3];
    for (int i = 0; i < 400; i++) {
        char line[80];
        snprintf(line, sizeof line, "{\"ids\":[%d,%d,7]}\n", i % 20, i / 20);
        ln_str_adds(i % 2 ? &one : &other, line);
    }
    ln_str_adds(&both, other.data);
    ln_str_adds(&both, one.data);
    OK(plan_held(one.data, 0, 0.2, &n[0], err));
    OK(plan_held(other.data, 1, 0.2, &n[1], err));
    OK(plan_held(both.data, 2, 0.2, &n[2], err));
    assert_int_equal(n[2], n[0] + n[1]);
    assert_true(n[2] > 55 && n[2] < 105); /* 80, and three deviations of it */
    FAILS(LN_EUSAGE, "by their hashes", plan_held("{\"ids\":[1,2]}\n{\"ids\":[1,2]}\n", 0, 0.5, &n[0], err));
    ln_str_free(&one), ln_str_free(&other), ln_str_free(&both);
    char out[400];
    ln_trainer_options how = run_of(at(out, "out"));
    how.split_by_hash = true;
    FAILS(LN_EUSAGE, "ln_trainer_options.valid_split", train(SMALL, &how, 1, err));
}

/* SGD has no moments, or one. */
static void memory_of_moments(void **state) {
    (void)state;
    char out[400];
    ln_model *m;
    uint64_t bytes[3];
    OK(ln_model_open(&m, SMALL, NULL, err));
    for (int i = 0; i < 3; i++) {
        ln_trainer_info f = {.size = sizeof f};
        ln_trainer_options how = run_of(at(out, "none"));
        how.optimizer = i < 2 ? LN_OPTIMIZER_SGD : LN_OPTIMIZER_ADAMW, how.momentum = i == 1 ? 0.5 : 0;
        OK(ln_trainer_plan(m, NULL, &how, &f, err));
        bytes[i] = f.optimizer_bytes;
        assert_int_equal(f.optimizer_bytes, (uint64_t)i * f.n_trainable * sizeof(float));
    }
    assert_true(bytes[2] > 0);
    ln_model_close(&m);
}

static void what_is_rejected(void **state) {
    (void)state;
    static const char *const layers[] = {
        "", ",", "1,", "4", "1-9", "2-1", "-1", "one", "1 2", "1-", "99999999999999999999"};
    char out[400], init[400];
    ln_trainer_options how = run_of(at(out, "out"));
    for (size_t i = 0; i < LN_COUNT(layers); i++) {
        how.layers = layers[i];
        FAILS(LN_EUSAGE, "ln_trainer_options.layers", train(SMALL, &how, 1, err));
    }
    how.layers = "0", how.init_adapter = at(init, "init");
    FAILS(LN_EUSAGE, "ln_trainer_options.layers", train(SMALL, &how, 1, err));
    how.init_adapter = NULL, how.method = LN_METHOD_FULL;
    FAILS(LN_EUSAGE, "ln_trainer_options.layers", train(SMALL, &how, 1, err));
    how = run_of(out);
    how.momentum = 0.9;
    FAILS(LN_EUSAGE, "ln_trainer_options.momentum", train(SMALL, &how, 1, err));
    how.momentum = 0, how.optimizer = (ln_optimizer)5;
    FAILS(LN_EUSAGE, "ln_trainer_options.optimizer", train(SMALL, &how, 1, err));
    how = run_of(out);
    how.schedule = LN_SCHEDULE_WARMUP_STABLE_DECAY;
    FAILS(LN_EUSAGE, "ln_trainer_options.decay_steps", train(SMALL, &how, 1, err));
    how.decay_steps = 100;
    FAILS(LN_EUSAGE, "ln_trainer_options.decay_steps", train(SMALL, &how, 1, err));
    how = run_of(out);
    how.decay_steps = 1;
    FAILS(LN_EUSAGE, "ln_trainer_options.decay_steps", train(SMALL, &how, 1, err));
    how = run_of(out);
    how.min_lr = 0.001;
    FAILS(LN_EUSAGE, "ln_trainer_options.min_lr", train(SMALL, &how, 1, err));
    how.min_lr = 0, how.power = 0;
    FAILS(LN_EUSAGE, "ln_trainer_options.power", train(SMALL, &how, 1, err));
    how.power = 1, how.cycles = 0;
    FAILS(LN_EUSAGE, "ln_trainer_options.cycles", train(SMALL, &how, 1, err));
    how.cycles = 1, how.schedule = (ln_schedule)99;
    FAILS(LN_EUSAGE, "ln_trainer_options.schedule", train(SMALL, &how, 1, err));
    assert_int_not_equal(access(out, F_OK), 0);
}

static int begin(void **state) {
    (void)state;
    return make_dir("test_train_methods");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sgd_as_torch),       cmocka_unit_test(some_layers_as_peft),
        cmocka_unit_test(interrupted_or_not), cmocka_unit_test(memory_of_moments),
        cmocka_unit_test(several_files),      cmocka_unit_test(held_out_by_hash),
        cmocka_unit_test(what_is_rejected)};
    return cmocka_run_group_tests_name("methods of training", tests, begin, remove_dir);
}
