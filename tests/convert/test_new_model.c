/* ln_init_model: a new model has the tensors of the models that transformers made of the same configurations,
 * and the initial values that transformers gives them; it learns. */
/* run: quick */
#include "../train/train_runs.h"

#define FAMILIES GOLDEN "families/"

static ln_status make(const char *config, const char *name, const ln_init_options *o, ln_error *err) {
    char path[400];
    return ln_init_model(config, at(path, name), o, NULL, NULL, err);
}

/* Compares names, shapes and dtypes with those of the model that the configuration is of. */
static void check_tensors(const char *config, const char *name) {
    ln_tensors x, y;
    char path[400];
    OK(ln_tensors_open(&x, at(path, name), false, err));
    OK(ln_tensors_open(&y, config, false, err));
    assert_int_equal(x.n, y.n);
    for (size_t i = 0; i < x.n; i++) {
        const ln_tensor *want = ln_tensors_find(&y, x.items[i].name);
        if (!want) fail_msg("%s: %s: the reference has no such tensor", config, x.items[i].name);
        assert_int_equal(x.items[i].dtype, want->dtype);
        assert_int_equal(x.items[i].n_dims, want->n_dims);
        assert_memory_equal(x.items[i].dims, want->dims, (size_t)want->n_dims * sizeof *want->dims);
    }
    ln_tensors_close(&x), ln_tensors_close(&y);
}

static void tensors_of_the_reference(void **state) {
    (void)state;
    static const char *const models[] = {GOLDEN "llama-plain-f32",
                                         GOLDEN "llama-bias-bf16",
                                         GOLDEN "qwen2-f32",
                                         GOLDEN "qwen3-bias-f32",
                                         GOLDEN "gemma3-text-f16",
                                         FAMILIES "arcee-biases-yarn-bf16",
                                         FAMILIES "cohere2-base-bf16",
                                         FAMILIES "ernie4_5-base-bf16",
                                         FAMILIES "exaone4-base-bf16",
                                         FAMILIES "gemma-base-bf16",
                                         FAMILIES "gemma2-base-bf16",
                                         FAMILIES "glm-base-bf16",
                                         FAMILIES "glm4-base-f32",
                                         FAMILIES "granite-base-bf16",
                                         FAMILIES "helium-biases-bf16",
                                         FAMILIES "hunyuan_v1_dense-base-bf16",
                                         FAMILIES "internlm3-biases-wide-bf16",
                                         FAMILIES "ministral-types-bf16",
                                         FAMILIES "ministral3-window-bf16",
                                         FAMILIES "mistral-window-yarn-bf16",
                                         FAMILIES "olmo2-base-bf16",
                                         FAMILIES "olmo3-base-bf16",
                                         FAMILIES "phi3-long-partial-bf16",
                                         FAMILIES "seed_oss-base-f16",
                                         FAMILIES "smollm3-window-bf16"};
    const ln_init_options o = {.size = sizeof o, .force = true, .n_threads = 2};
    for (size_t i = 0; i < LN_COUNT(models); i++) {
        OK(make(models[i], "new", &o, err));
        check_tensors(models[i], "new");
    }
}

/* Mean and standard deviation of a tensor without the row `skip`, which is 0. */
static void moments(const ln_tensor *t, int64_t skip, double *mean, double *deviation) {
    const int64_t cols = t->n_dims > 1 ? t->dims[1] : 1, n = t->dims[0] * cols;
    const ln_dtype dtype = t->dtype == LN_ST_F32 ? LN_F32 : LN_BF16;
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) {
        const double v = (double)ln_num_load(t->data, dtype, i);
        if (i / cols == skip) assert_true(v == 0);
        sum += v, squares += v * v;
    }
    const double count = (double)(skip < 0 ? n : n - cols);
    *mean = sum / count;
    *deviation = sqrt(squares / count - *mean * *mean);
}

/* Matrices are normal, norms change nothing, biases are 0, the padding token's embedding is 0. */
static void values_of_the_reference(void **state) {
    (void)state;
    static const char config[] =
        "{\"model_type\":\"%s\",\"hidden_size\":64,\"intermediate_size\":128,\"num_hidden_layers\":2,"
        "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":16,\"vocab_size\":500,"
        "\"max_position_embeddings\":256,\"rms_norm_eps\":1e-6,\"pad_token_id\":7%s}";
    static const struct {
        const char *type, *more;
        double deviation, norm;
    } cases[] = {{"llama", "", 0.02, 1},
                 {"qwen2", ",\"initializer_range\":0.05", 0.05, 1},
                 {"gemma2", ",\"initializer_range\":null", 0.02, 0},
                 {"gemma3_text", ",\"query_pre_attn_scalar\":16", 0.02, 0}};
    for (size_t i = 0; i < LN_COUNT(cases); i++) {
        char text[900], file[400], path[400];
        ln_init_options o = ln_init_options_default();
        ln_tensors t;
        o.force = true, o.seed = 3;
        snprintf(text, sizeof text, config, cases[i].type, cases[i].more);
        OK(make(put(file, "config-of-mine.json", text), "new", &o, err));
        OK(ln_tensors_open(&t, at(path, "new"), false, err));
        for (size_t k = 0; k < t.n; k++) {
            const ln_tensor *x = &t.items[k];
            const bool norm = strstr(x->name, "norm") != NULL;
            double mean, deviation;
            assert_int_equal(x->dtype, LN_ST_F32);
            moments(x, strstr(x->name, "embed_tokens") ? 7 : -1, &mean, &deviation);
            const double n = (double)(x->bytes / 4), want = x->n_dims > 1 ? cases[i].deviation : 0;
            if (x->n_dims < 2) assert_true(mean == (norm ? cases[i].norm : 0) && deviation < 1e-7);
            else
                assert_true(fabs(mean) <= 5 * want / sqrt(n) &&
                            fabs(deviation - want) <= 5 * want / sqrt(2 * n));
        }
        ln_tensors_close(&t);
        shell("test $(ls new | tr '\\n' ' ' | wc -w) = 2 && grep -q '\"dtype\": \"float32\"' "
              "new/config.json");
    }
}

/* The same seed gives the same bytes, on any number of threads; another one gives others. */
static void bytes_of_a_seed(void **state) {
    (void)state;
    ln_init_options o = ln_init_options_default();
    o.n_threads = 1, o.dtype = "bfloat16";
    OK(make("tiny", "a", &o, err));
    o.n_threads = 3;
    OK(make("tiny", "b", &o, err));
    shell("cmp a/model.safetensors b/model.safetensors && cmp a/config.json b/config.json");
    shell("cmp a/tokenizer.json " LN_ROOT "/models/tiny/tokenizer.json");
    shell("cmp a/generation_config.json " LN_ROOT "/models/tiny/generation_config.json");
    o.seed = 1, o.force = true;
    OK(make("tiny", "b", &o, err));
    shell("! cmp -s a/model.safetensors b/model.safetensors");
    o.force = false;
    FAILS(LN_EIO, "exists already", make("tiny", "b", &o, err));
    shell("rm -r a b");
}

static void it_learns(void **state) {
    (void)state;
    char model[400], out[400], data[400];
    ln_init_options o = ln_init_options_default();
    o.dtype = "bfloat16";
    OK(make(SMALL, "fresh", &o, err));
    shell("test -f fresh/tokenizer.json");
    ln_trainer_options how = ln_trainer_options_default();
    how.method = LN_METHOD_FULL, how.lr = 1e-2, how.steps = STEPS, how.batch = 2;
    how.data = put(data, "rows.jsonl", "{\"ids\":[1,2,3,4,5,6]}\n{\"ids\":[9,8,7,6,5,4]}\n");
    how.out = at(out, "trained");
    OK(train(at(model, "fresh"), &how, 2, err));
    assert_true(steps[1].loss > 5 && steps[STEPS].loss < steps[1].loss / 2); /* log(260) is 5.56 */
}

static void what_is_rejected(void **state) {
    (void)state;
    char path[400], file[400];
    ln_init_options o = ln_init_options_default();
    o.tokenizer = "tiny";
    FAILS(LN_EUNSUPPORTED, "mlp.experts", make(FAMILIES "mixtral-base-bf16", "x", NULL, err));
    FAILS(LN_EUNSUPPORTED, "there is no rule", make(FAMILIES "gpt_oss-limit-bf16", "x", NULL, err));
    FAILS(LN_EUNSUPPORTED, "there is no rule", make(FAMILIES "qwen3_5_text-interval-f16", "x", NULL, err));
    FAILS(LN_EUNSUPPORTED, "text_config", make(GOLDEN "gemma3-nested-bf16", "x", NULL, err));
    FAILS(LN_EINVALID, "vocab_size", make(SMALL, "x", &o, err));
    FAILS(LN_EIO, "no-such", make("/no-such/config.json", "x", NULL, err));
    FAILS(LN_EUNSUPPORTED, "model_type",
          make(put(file, "odd.json", "{\"model_type\":\"odd\"}"), "x", NULL, err));
    o = ln_init_options_default();
    o.dtype = "float8";
    FAILS(LN_EUSAGE, "ln_init_options.dtype", make(SMALL, "x", &o, err));
    o.dtype = NULL, o.n_threads = -1;
    FAILS(LN_EUSAGE, "ln_init_options.n_threads", make(SMALL, "x", &o, err));
    FAILS(LN_EUSAGE, "must not be NULL", ln_init_model(NULL, "x", NULL, NULL, NULL, err));
    assert_int_not_equal(access(at(path, "x"), F_OK), 0);
    shell("! ls -d x.* 2>/dev/null");
}

static int begin(void **state) {
    (void)state;
    return make_dir("test_new_model");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_of_the_reference), cmocka_unit_test(values_of_the_reference),
        cmocka_unit_test(bytes_of_a_seed), cmocka_unit_test(it_learns), cmocka_unit_test(what_is_rejected)};
    return cmocka_run_group_tests_name("new models", tests, begin, remove_dir);
}
