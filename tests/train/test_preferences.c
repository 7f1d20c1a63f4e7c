/* Preferences: what peft and torch make of the formulas of TRL's losses (tests/golden/trainer, made by
 * tools/golden_trainer.py), the same bits after an interruption, layouts of data, and what is rejected. */
/* run: slow cuda */
#include "train_runs.h"

#include "train/preference.h"

enum { SPARSE = 4 };

static void as_formulas_of_trl(void **state) {
    (void)state;
    static const char *const models[] = {"llama-plain-f32", "qwen2-f32", "qwen3-bias-f32", "gemma3-text-f32"};
    for (size_t i = 0; i < LN_COUNT(models); i++) {
        char model[300], data[300], init[300], out[400], path[400], result[400], recorded[400], before[32];
        json_t *want;
        snprintf(model, sizeof model, GOLDEN "%s", models[i]);
        snprintf(data, sizeof data, GOLDEN "trainer/%s/pairs.jsonl", models[i]);
        snprintf(init, sizeof init, GOLDEN "trainer/%s/init", models[i]);
        snprintf(path, sizeof path, GOLDEN "trainer/%s/preferences.json", models[i]);
        snprintf(recorded, sizeof recorded, GOLDEN "trainer/%s/preferences.safetensors", models[i]);
        OK(ln_json_load_file(&want, path, 10000, err));
        for (int kind = LN_PREFERENCE_DPO; kind <= LN_PREFERENCE_ORPO; kind++) {
            const char *name = train_preferences[kind].name;
            ln_trainer_options how = ln_trainer_options_default();
            how.preference = (ln_preference)kind;
            how.data = data, how.init_adapter = init, how.out = at(out, "golden");
            how.no_shuffle = true, how.batch = 3, how.lr = 1e-3, how.clip = 0, how.steps = STEPS;
            OK(train(model, &how, 2, err));
            const double worst = worst_loss(json_object_get(want, name));
            snprintf(path, sizeof path, "%s/adapter_model.safetensors", init);
            snprintf(before, sizeof before, "%s.", name);
            const double same =
                cosine(path, at(result, "golden/adapter_model.safetensors"), recorded, before, SPARSE);
            print_message("%s, %s: losses off by at most %.1e, cosine %.8f\n", models[i], name, worst, same);
            assert_true(worst <= 1e-5);
            assert_true(same >= 0.9999);
            shell("rm -rf golden");
        }
        json_decref(want);
    }
}

/* The derivatives of the table are the difference quotients of its losses. */
static void slopes_are_derivatives(void **state) {
    (void)state;
    const train_pair at_ = {.chosen = -7.5, .rejected = -5, .was_chosen = -8, .was_rejected = -6.5, 5, 3};
    const double h = 1e-5;
    for (int kind = LN_PREFERENCE_DPO; kind <= LN_PREFERENCE_ORPO; kind++) {
        const train_preference *x = &train_preferences[kind];
        train_pair more = at_, less = at_;
        const train_slopes s = x->slopes(&at_, 0.3);
        more.chosen += h, less.chosen -= h;
        double d = (x->slopes(&more, 0.3).loss - x->slopes(&less, 0.3).loss) / (2 * h);
        assert_true(fabs(d - s.chosen) <= 1e-7);
        assert_true(s.chosen < 0);
        more = less = at_;
        more.rejected += h, less.rejected -= h;
        d = (x->slopes(&more, 0.3).loss - x->slopes(&less, 0.3).loss) / (2 * h);
        assert_true(fabs(d - s.rejected) <= 1e-7);
        assert_true(s.rejected > 0);
    }
}

static ln_trainer_options run_of(const char *out, ln_preference preference) {
    static char data[400];
    ln_trainer_options how = ln_trainer_options_default();
    how.preference = preference, how.beta = 0.2;
    how.data = put(data, "pairs.jsonl",
                   "{\"prompt_ids\":[1,5],\"chosen_ids\":[7,8,9],\"rejected_ids\":[3]}\n"
                   "{\"prompt_ids\":[4,5,6],\"chosen_ids\":[7,2],\"rejected_ids\":[3,3,3,4]}\n"
                   "{\"prompt_ids\":[11],\"chosen_ids\":[17,28,39,4],\"rejected_ids\":[13,6]}\n"
                   "{\"prompt_ids\":[9,9],\"chosen_ids\":[27,8],\"rejected_ids\":[33,5,5]}\n"
                   "{\"prompt_ids\":[2,5],\"chosen_ids\":[7],\"rejected_ids\":[8]}\n");
    how.out = out, how.batch = 2, how.accum = 2, how.lr = 0.01, how.steps = STEPS;
    how.save_every = 3, how.valid_split = 0.2, how.eval_every = 4, how.rank = 2;
    return how;
}

/* A run that is resumed compares with the model before the first step, not with that of the checkpoint. */
static void interrupted_or_not(void **state) {
    (void)state;
    for (int kind = LN_PREFERENCE_DPO; kind <= LN_PREFERENCE_ORPO; kind++)
        for (int full = 0; full < 2; full++) {
            char a[400], b[400];
            ln_trainer_options how = run_of(at(a, "whole"), (ln_preference)kind);
            how.method = full ? LN_METHOD_FULL : LN_METHOD_LORA;
            stop_after = 0;
            OK(train(SMALL, &how, 2, err));
            assert_true(steps[STEPS].loss < steps[1].loss && steps[STEPS].accuracy == 1);
            assert_true(steps[STEPS].margin > steps[1].margin);
            assert_true(isfinite(valid.loss) && isnan(valid.perplexity));
            how.out = at(b, "parts");
            stop_after = 5;
            OK(train(SMALL, &how, 1, err));
            stop_after = 0, how.resume = true;
            OK(train(SMALL, &how, 3, err));
            shell("cmp whole/checkpoints/step-00000012/train_state.safetensors "
                  "parts/checkpoints/step-00000012/train_state.safetensors");
            shell("rm -rf whole parts");
        }
}

/* Micro-batches of one pair, and of single samples, change no more than the order of sums. */
static void micro_batches(void **state) {
    (void)state;
    char out[400];
    double want[STEPS + 1];
    ln_trainer_options how = run_of(at(out, "out"), LN_PREFERENCE_ORPO);
    stop_after = 0;
    OK(train(SMALL, &how, 2, err));
    for (int i = 1; i <= STEPS; i++) want[i] = steps[i].loss;
    shell("rm -rf out");
    how.batch = 1, how.accum = 4;
    OK(train(SMALL, &how, 2, err));
    for (int i = 1; i <= STEPS; i++) assert_true(fabs(steps[i].loss - want[i]) <= 1e-5 * want[i]);
    shell("rm -rf out");
}

/* Texts, lists of messages with and without a prompt of their own, and token ids are the same pairs; their
 * first samples have the prompt and an answer, of which the answer counts. */
static void layouts_of_data(void **state) {
    (void)state;
    static const char *const same[] = {
        "{\"prompt\":\"a\",\"chosen\":\"b\",\"rejected\":\"c\"}",
        "{\"prompt\":[{\"role\":\"user\",\"content\":\"a\"}],\"chosen\":[{\"role\":\"assistant\",\"content\":"
        "\"b\"}],"
        "\"rejected\":[{\"role\":\"assistant\",\"content\":\"c\"}]}",
        "{\"prompt\":\"a\",\"chosen\":[{\"role\":\"assistant\",\"content\":\"b\"}],"
        "\"rejected\":[{\"role\":\"assistant\",\"content\":\"c\"}]}",
        "{\"chosen\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"}],"
        "\"rejected\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"c\"}]}"};
    ln_model *m;
    ln_token_mask want[2] = {{0}, {0}};
    OK(ln_model_open(&m, "tiny", NULL, err));
    for (size_t i = 0; i < LN_COUNT(same); i++) {
        char path[400];
        ln_token_mask got[3];
        size_t n;
        ln_trainer_options how = ln_trainer_options_default();
        how.preference = LN_PREFERENCE_DPO;
        how.data = put(path, "pair.jsonl", same[i]);
        OK(ln_training_samples(m, &how, got, 3, &n, err));
        assert_int_equal(n, 2);
        for (int k = 0; k < 2; k++) {
            if (i == 0) want[k] = got[k];
            assert_int_equal(got[k].n_ids, want[k].n_ids);
            assert_memory_equal(got[k].ids, want[k].ids, want[k].n_ids * sizeof *want[k].ids);
            assert_memory_equal(got[k].mask, want[k].mask, want[k].n_ids);
            if (i > 0) ln_token_mask_free(&got[k]);
        }
    }
    assert_true(memcmp(want[0].ids, want[1].ids, want[0].n_ids * sizeof *want[0].ids) != 0);
    ln_token_mask_free(&want[0]), ln_token_mask_free(&want[1]);
    ln_model_close(&m);
}

static void what_is_rejected(void **state) {
    (void)state;
    static const struct {
        const char *line, *word;
    } bad[] = {{"{\"prompt\":\"a\",\"chosen\":\"b\"}", "\"rejected\": a text"},
               {"{\"prompt\":\"a\",\"completion\":\"b\"}", "\"chosen\": a text or a list"},
               {"{\"chosen\":\"b\",\"rejected\":\"c\"}", "\"prompt\": a text"},
               {"{\"prompt\":\"a\",\"chosen\":\"b\",\"rejected\":[{}]}", "\"rejected\": a text"},
               {"{\"prompt_ids\":[1],\"chosen_ids\":[2]}", "\"rejected_ids\": a list"},
               {"[1]", "an object with"}};
    char path[400], out[400];
    ln_trainer_options how = run_of(at(out, "out"), LN_PREFERENCE_DPO);
    stop_after = 0;
    for (size_t i = 0; i < LN_COUNT(bad); i++) {
        how.data = put(path, "bad.jsonl", bad[i].line);
        FAILS(LN_EINVALID, bad[i].word, train(SMALL, &how, 1, err));
    }
    how = run_of(at(out, "out"), LN_PREFERENCE_DPO);
    how.dropout = 0.1;
    FAILS(LN_EUSAGE, "ln_trainer_options.dropout", train(SMALL, &how, 1, err));
    how.dropout = 0, how.beta = 0;
    FAILS(LN_EUSAGE, "ln_trainer_options.beta", train(SMALL, &how, 1, err));
    how.beta = 0.2, how.preference = (ln_preference)9;
    FAILS(LN_EUSAGE, "ln_trainer_options.preference", train(SMALL, &how, 1, err));
}

/* The plan has a number for each sample if there is a reference, and for each row if there are pairs. */
static void plans_have_the_numbers_of_pairs(void **state) {
    (void)state;
    enum { PAIRS = 3000 };
    char path[400];
    ln_str text = {0};
    ln_model *m;
    ln_trainer_info f[2] = {{.size = sizeof *f}, {.size = sizeof *f}};
    for (int i = 0; i < PAIRS; i++)
        ln_str_addf(&text, "{\"prompt_ids\":[%d],\"chosen_ids\":[7,%d],\"rejected_ids\":[8]}\n", i % 200,
                    i % 9);
    ln_trainer_options how = ln_trainer_options_default();
    how.data = put(path, "many.jsonl", text.data);
    OK(ln_model_open(&m, SMALL, NULL, err));
    for (int i = 0; i < 2; i++) {
        how.preference = i ? LN_PREFERENCE_DPO : LN_PREFERENCE_ORPO;
        OK(ln_trainer_plan(m, NULL, &how, &f[i], err));
    }
    assert_int_equal(f[1].data_bytes - f[0].data_bytes, 2 * PAIRS * sizeof(double));
    assert_int_equal(f[0].data_bytes, PAIRS * (5 * sizeof(uint32_t) + sizeof(uint32_t)));
    assert_int_equal(f[1].activation_bytes, f[0].activation_bytes);
    ln_model_close(&m);
    ln_str_free(&text);
}

static int make_files(void **state) {
    (void)state;
    return make_dir("test_preferences");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_formulas_of_trl),
                                       cmocka_unit_test(slopes_are_derivatives),
                                       cmocka_unit_test(micro_batches),
                                       cmocka_unit_test(interrupted_or_not),
                                       cmocka_unit_test(layouts_of_data),
                                       cmocka_unit_test(what_is_rejected),
                                       cmocka_unit_test(plans_have_the_numbers_of_pairs)};
    return cmocka_run_group_tests_name("preferences", tests, make_files, remove_dir);
}
