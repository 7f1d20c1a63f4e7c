/* Optimisers other than AdamW, and adapters of some layers: what torch and peft make of the same start
 * (tests/golden/trainer, made by tools/golden_trainer.py), the same bits after an interruption, and what is
 * rejected. */
/* run: slow */
#include "train_runs.h"

#include "train/moments.h"

enum { SPARSE = 4 };

static const char *const models[] = {"llama-plain-f32", "qwen2-f32", "qwen3-bias-f32", "gemma3-text-f32"};

/* Trains from the adapter `init` of a golden model as its recorded run `name` did, and compares. */
static void as_recorded(const char *model, const char *init, const char *name, ln_trainer_options how) {
    char path[300], rows[300], from[300], recorded[300], file[400], out[400], result[400];
    json_t *want;
    snprintf(path, sizeof path, GOLDEN "%s", model);
    model = strrchr(model, '/') ? strrchr(model, '/') + 1 : model;
    snprintf(rows, sizeof rows, GOLDEN "trainer/%s/%s.jsonl", model, add_tokens ? "tokens" : "rows");
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

/* DoRA: magnitudes are in the file under PEFT's name, and move as there. */
static void dora_as_peft(void **state) {
    (void)state;
    ln_trainer_options how = ln_trainer_options_default();
    how.lr = 1e-3;
    for (size_t i = 0; i < LN_COUNT(models); i++) {
        char path[400];
        json_t *config;
        as_recorded(models[i], "dora", "dora", how);
        OK(ln_json_load_file(&config, at(path, "golden/adapter_config.json"), 10000, err));
        assert_true(json_is_true(json_object_get(config, "use_dora")));
        json_decref(config);
        shell("rm -r golden");
    }
}

/* Models with recurrent layers: the gated delta rule, with its projections apart and in two tensors by key
 * heads, and short convolutions. */
static void hybrids_as_peft(void **state) {
    (void)state;
    static const char *const hybrids[] = {"families/qwen3_5_text-interval-f16",
                                          "families/qwen3_next-list-bf16", "families/lfm2-bias-bf16"};
    ln_trainer_options how = ln_trainer_options_default();
    how.lr = 1e-3;
    for (size_t i = 0; i < LN_COUNT(hybrids); i++) {
        as_recorded(hybrids[i], "init", "lora", how);
        shell("rm -r golden");
    }
}

/* LoRA on the embedding and on the head, which two of the models tie: each has an adapter of its own. */
static void tables_as_peft(void **state) {
    (void)state;
    ln_trainer_options how = ln_trainer_options_default();
    how.lr = 1e-3;
    for (size_t i = 0; i < LN_COUNT(models); i++) {
        char path[300], run[400], to[400];
        ln_fuse_options fuse = ln_fuse_options_default();
        ln_fuse_report r = {.size = sizeof r};
        as_recorded(models[i], "tables", "tables", how);
        snprintf(path, sizeof path, GOLDEN "%s", models[i]);
        OK(ln_fuse(path, at(run, "golden"), at(to, "fused"), &fuse, NULL, NULL, &r,
                   err)); /* it is read again */
        assert_true(r.difference <= 1e-4 && r.change > 0.01);
        shell("rm -r golden fused");
    }
}

/* The embedding and the head trained as a whole next to LoRA, which two of the models tie: each then has
 * values of its own. What is written is read again. */
static void whole_modules_as_peft(void **state) {
    (void)state;
    ln_trainer_options how = ln_trainer_options_default();
    how.lr = 1e-3;
    for (size_t i = 0; i < LN_COUNT(models); i++) {
        char path[400], run[400], to[400];
        json_t *config;
        ln_fuse_options fuse = ln_fuse_options_default();
        ln_fuse_report r = {.size = sizeof r};
        as_recorded(models[i], "whole", "whole", how);
        OK(ln_json_load_file(&config, at(path, "golden/adapter_config.json"), 10000, err));
        assert_int_equal(json_array_size(json_object_get(config, "modules_to_save")), 2);
        json_decref(config);
        snprintf(path, sizeof path, GOLDEN "%s", models[i]);
        OK(ln_fuse(path, at(run, "golden"), at(to, "fused"), &fuse, NULL, NULL, &r, err));
        assert_true(r.difference <= 1e-4 && r.change > 0.01);
        shell("rm -r golden fused");
    }
}

/* Two tokens that the vocabulary lacks: their rows begin as the mean of the others and are trained, those of
 * a head that is a matrix of its own, too. What is written has the tokenizer, and is read again. */
static void tokens_as_peft(void **state) {
    (void)state;
    ln_trainer_options how = ln_trainer_options_default();
    how.lr = 1e-3;
    add_tokens = "<one>,<two>";
    for (size_t i = 0; i < LN_COUNT(models); i++) {
        char path[300], run[400], to[400];
        ln_fuse_options fuse = ln_fuse_options_default();
        ln_fuse_report r = {.size = sizeof r};
        ln_model *m;
        ln_info *info = ln_zalloc(1, sizeof *info);
        as_recorded(models[i], "tokens", "tokens", how);
        snprintf(path, sizeof path, GOLDEN "%s", models[i]);
        OK(ln_fuse(path, at(run, "golden"), at(to, "fused"), &fuse, NULL, NULL, &r, err));
        assert_true(r.difference <= 1e-4);
        OK(ln_model_open(&m, to, NULL, err));
        info->size = sizeof *info;
        OK(ln_model_info(m, info, err));
        ln_prompt p = ln_prompt_default();
        int32_t ids[8];
        size_t n;
        p.text = "a<two>", p.text_bytes = 6, p.tmpl = LN_TEMPLATE_RAW;
        OK(ln_prompt_ids(m, &p, ids, 8, &n, err));
        assert_int_equal(ids[n - 1], info->vocab_size - 1);
        ln_free(info), ln_model_close(&m);
        shell("rm -r golden fused");
    }
    add_tokens = NULL;
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

/* Without an adapter to begin with, magnitudes are the lengths of the model's rows, so that the first loss is
 * that of the model, and of LoRA. */
static void dora_begins_as_the_model(void **state) {
    (void)state;
    char out[400];
    double first[2];
    for (int dora = 0; dora < 2; dora++) {
        ln_trainer_options how = run_of(at(out, "out"));
        how.dora = dora, how.steps = 1, how.targets = "all-linear";
        OK(train(SMALL, &how, 1, err));
        first[dora] = steps[1].loss;
        shell("rm -r out");
    }
    assert_true(fabs(first[1] - first[0]) <= 1e-6 * first[0]);
    ln_trainer_options how = run_of(out);
    how.dora = true, how.dropout = 0.1;
    FAILS(LN_EUNSUPPORTED, "dropout of 0", train(SMALL, &how, 1, err));
    how.dropout = 0, how.method = LN_METHOD_FULL;
    FAILS(LN_EUSAGE, "ln_trainer_options.dora", train(SMALL, &how, 1, err));
}

static void interrupted_or_not(void **state) {
    (void)state;
    for (int kind = 0; kind < 8; kind++) {
        char a[400], b[400];
        ln_trainer_options how = run_of(at(a, "whole"));
        how.optimizer = kind < 3 ? LN_OPTIMIZER_SGD : LN_OPTIMIZER_ADAMW;
        how.momentum = kind == 1 ? 0.9 : 0;
        how.method = kind == 2 ? LN_METHOD_FULL : LN_METHOD_LORA;
        how.layers = kind == 3 ? " 0 , 0-0" : NULL;
        how.targets = kind == 6 ? "v_proj,embed_tokens,lm_head" : "q_proj,v_proj";
        how.modules_to_save = kind == 7 ? "lm_head, embed_tokens" : NULL;
        how.dora = kind == 4, how.moment_bits = kind == 5 ? 8 : 32;
        how.schedule = LN_SCHEDULE_WARMUP_STABLE_DECAY, how.decay_steps = 4, how.min_lr = 0.01,
        how.warmup = 3;
        stop_after = 0;
        OK(train(SMALL, &how, 2, err));
        assert_true(steps[STEPS].loss < steps[1].loss);
        how.out = at(b, "parts");
        stop_after = 5;
        OK(train(SMALL, &how, 1, err));
        stop_after = 0, how.resume = true;
        if (kind == 5) {
            how.moment_bits = 32;
            FAILS(LN_EUSAGE, "moments", train(SMALL, &how, 1, err));
            how.moment_bits = 8;
        }
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

/* Moments of 8 bits: numbers are off by at most the bound of moments.h, a root is never 0 unless it was, and
 * what has a code stays. */
static void codes_of_moments(void **state) {
    (void)state;
    enum { N = TRAIN_BLOCK + 37 };
    static uint8_t m8[N], v8[N];
    float m[N], v[N], m2[N], v2[N], most[2][2];
    uint64_t seed = 3;
    train_param p = {.rows = N, .cols = 1, .m8 = m8, .v8 = v8, .m_most = most[0], .v_most = most[1]};
    for (int i = 0; i < N; i++) { /* over 12 powers of ten */
        m[i] = (float)(test_normal(&seed) * exp(3 * (double)test_normal(&seed)));
        v[i] = i % 50 == 7 ? 0 : (float)exp(4 * (double)test_normal(&seed));
    }
    for (int64_t at = 0; at < N; at += TRAIN_BLOCK) {
        const int64_t n = LN_MIN((int64_t)TRAIN_BLOCK, N - at);
        train_codes_write(&p, at, n, m + at, v + at);
        train_codes_read(&p, at, n, m2 + at, v2 + at);
        for (int64_t i = at; i < at + n; i++) {
            const double off = fabs((double)m2[i] - (double)m[i]),
                         root = fabs(sqrt((double)v2[i]) - sqrt((double)v[i])),
                         m_most = (double)most[0][at / TRAIN_BLOCK],
                         v_most = (double)most[1][at / TRAIN_BLOCK];
            assert_true(off <= fmax(0.0453 * fabs((double)m[i]), m_most * exp2(-16.7)));
            assert_true(root <= fmax(0.0222 * sqrt((double)v[i]), v_most * exp2(-15.8)));
            assert_int_equal(v2[i] > 0, v[i] > 0);
        }
        train_codes_write(&p, at, n, m2 + at, v2 + at);
        float m3[TRAIN_BLOCK], v3[TRAIN_BLOCK];
        train_codes_read(&p, at, n, m3, v3);
        for (int64_t i = 0; i < n; i++)
            assert_true(m3[i] == m2[at + i] && fabsf(v3[i] - v2[at + i]) <= 1e-6f * v3[i]);
    }
}

/* Moments of 8 bits follow those of f32. Losses were off by 5e-5, and the cosine of the movements was 0.9997.
 */
static void moments_of_8_bits(void **state) {
    (void)state;
    double most = 0, least = 1;
    for (size_t i = 0; i < LN_COUNT(models); i++) {
        char path[300], rows[300], from[300], file[400], a[400], b[400], out[400];
        double loss[STEPS + 1];
        snprintf(path, sizeof path, GOLDEN "%s", models[i]);
        snprintf(rows, sizeof rows, GOLDEN "trainer/%s/rows.jsonl", models[i]);
        snprintf(from, sizeof from, GOLDEN "trainer/%s/init", models[i]);
        ln_trainer_options how = ln_trainer_options_default();
        how.data = rows, how.init_adapter = from, how.no_shuffle = true, how.batch = 3, how.steps = STEPS,
        how.lr = 1e-3;
        how.out = at(out, "f32");
        OK(train(path, &how, 2, err));
        for (int k = 1; k <= STEPS; k++) loss[k] = steps[k].loss;
        how.moment_bits = 8, how.out = at(out, "of8");
        OK(train(path, &how, 2, err));
        for (int k = 1; k <= STEPS; k++) most = fmax(most, fabs(steps[k].loss - loss[k]) / loss[k]);
        snprintf(file, sizeof file, "%s/adapter_model.safetensors", from);
        least = fmin(least, cosine(file, at(a, "of8/adapter_model.safetensors"),
                                   at(b, "f32/adapter_model.safetensors"), "", 1));
        shell("rm -r f32 of8");
    }
    print_message("moments of 8 bits: losses off by at most %.1e, cosine at least %.5f\n", most, least);
    assert_true(most <= 2e-4);
    assert_true(least >= 0.999);
}

/* SGD has no moments, or one; moments of 8 bits take about a quarter of those of f32. */
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
    ln_trainer_info f = {.size = sizeof f};
    ln_trainer_options how = run_of(at(out, "none"));
    how.moment_bits = 8;
    OK(ln_trainer_plan(m, NULL, &how, &f, err));
    assert_true(f.optimizer_bytes >= 2 * (uint64_t)f.n_trainable && f.optimizer_bytes <= bytes[2] / 3);
    ln_model_close(&m);
}

/* The layouts of other programs have the same adapter: fused into the model they make the same bytes.
 * mlx-lm's has A and B the other way round, and DoRA. */
static void layouts_of_other_programs(void **state) {
    (void)state;
    static const char *const files[] = {"adapter_model.safetensors", "adapters.safetensors",
                                        "adapter.safetensors"};
    for (int dora = 0; dora < 2; dora++) {
        char out[400], to[400], path[400], name[100];
        ln_tensors t;
        for (int as = 0; as < 3 - dora; as++) {
            ln_trainer_options how = run_of(at(out, "run"));
            ln_fuse_options fuse = ln_fuse_options_default();
            how.adapter_as = (ln_adapter_as)as, how.dora = dora, how.targets = "q_proj,down_proj",
            how.layers = "1";
            OK(train(SMALL, &how, 1, err));
            snprintf(name, sizeof name, "run/%s", files[as]);
            OK(ln_tensors_open_file(&t, at(path, name), err));
            assert_int_equal(t.n, dora ? 6 : 4);
            const ln_tensor *x = ln_tensors_find(&t, "model.layers.1.mlp.down_proj.lora_a");
            assert_int_equal(x != NULL, as == LN_ADAPTER_AS_MLX_LM);
            if (x) assert_true(x->dims[0] > x->dims[1] && x->dims[1] == how.rank);
            ln_tensors_close(&t);
            snprintf(name, sizeof name, "fused%d", as);
            OK(ln_fuse(SMALL, out, at(to, name), &fuse, NULL, NULL, NULL, err));
            how.resume = true; /* its checkpoints are the same */
            OK(train(SMALL, &how, 1, err));
            shell("rm -r run");
        }
        shell(dora ? "cmp fused0/model.safetensors fused1/model.safetensors"
                   : "cmp fused0/model.safetensors fused1/model.safetensors && "
                     "cmp fused0/model.safetensors fused2/model.safetensors");
        shell("rm -r fused*");
    }
    char out[400];
    ln_trainer_options how = run_of(at(out, "run"));
    how.adapter_as = LN_ADAPTER_AS_GO_MLX, how.dora = true;
    FAILS(LN_EUSAGE, "has no DoRA", train(SMALL, &how, 1, err));
    how.dora = false, how.layers = "0";
    FAILS(LN_EUSAGE, "the last ones", train(SMALL, &how, 1, err));
    how.layers = NULL, how.method = LN_METHOD_FULL;
    FAILS(LN_EUSAGE, "ln_trainer_options.adapter_as", train(SMALL, &how, 1, err));
    how.method = LN_METHOD_LORA, how.adapter_as = (ln_adapter_as)7;
    FAILS(LN_EUSAGE, "ln_trainer_options.adapter_as", train(SMALL, &how, 1, err));
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
    how.targets = "q_proj, lm_head", how.dora = true;
    FAILS(LN_EUNSUPPORTED, "lm_head: DoRA", train(SMALL, &how, 1, err));
    how.dora = false, how.layers = "1";
    FAILS(LN_EUSAGE, "ln_trainer_options.layers", train(SMALL, &how, 1, err));
    how.layers = NULL, how.adapter_as = LN_ADAPTER_AS_MLX_LM, how.targets = "embed_tokens";
    FAILS(LN_EUSAGE, "ln_trainer_options.adapter_as", train(SMALL, &how, 1, err));
    how = run_of(out);
    how.momentum = 0.9;
    FAILS(LN_EUSAGE, "ln_trainer_options.momentum", train(SMALL, &how, 1, err));
    how.momentum = 0, how.moment_bits = 16;
    FAILS(LN_EUSAGE, "ln_trainer_options.moment_bits", train(SMALL, &how, 1, err));
    how.moment_bits = 8, how.optimizer = LN_OPTIMIZER_SGD;
    FAILS(LN_EUSAGE, "ln_trainer_options.moment_bits", train(SMALL, &how, 1, err));
    how.moment_bits = 32, how.optimizer = (ln_optimizer)5;
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(sgd_as_torch),
                                       cmocka_unit_test(some_layers_as_peft),
                                       cmocka_unit_test(dora_as_peft),
                                       cmocka_unit_test(hybrids_as_peft),
                                       cmocka_unit_test(tokens_as_peft),
                                       cmocka_unit_test(tables_as_peft),
                                       cmocka_unit_test(whole_modules_as_peft),
                                       cmocka_unit_test(dora_begins_as_the_model),
                                       cmocka_unit_test(layouts_of_other_programs),
                                       cmocka_unit_test(codes_of_moments),
                                       cmocka_unit_test(moments_of_8_bits),
                                       cmocka_unit_test(interrupted_or_not),
                                       cmocka_unit_test(memory_of_moments),
                                       cmocka_unit_test(several_files),
                                       cmocka_unit_test(held_out_by_hash),
                                       cmocka_unit_test(what_is_rejected)};
    return cmocka_run_group_tests_name("methods of training", tests, begin, remove_dir);
}
