/* Texts that the model writes while it trains: those of its result, the same after an interruption, and no
 * bit of training is another. */
/* run: slow */
#include "../fewer.h"
#include "train_runs.h"

#include <linnet_train.h>

#define TINY LN_ROOT "/models/tiny"

enum { MOST_TEXTS = 16, EVERY = 2, LAST = 6 };
static const char *const asked[] = {"Once", "Tell me about the number 3."};

static struct {
    int64_t step, n_tokens;
    char prompt[400], text[400];
    bool ended;
} texts[MOST_TEXTS];
static size_t n_texts;
static bool fails_at_second; /* on_text cancels the run after the second text of step 4 */

static ln_status take_text(void *user, const ln_text_report *r, ln_error *err) {
    (void)user;
    assert_true(n_texts < MOST_TEXTS && r->index < r->n);
    texts[n_texts].step = r->step, texts[n_texts].n_tokens = r->n_tokens, texts[n_texts].ended = r->ended;
    snprintf(texts[n_texts].prompt, 400, "%.*s", (int)r->prompt_bytes, r->prompt);
    snprintf(texts[n_texts++].text, 400, "%.*s", (int)r->text_bytes, r->text);
    return fails_at_second && r->step == 4 && r->index == 0 ? ln_fail(err, LN_ECANCELLED, "stopped") : LN_OK;
}

/* Writes pairs of prompt and completion, or pairs of answers, and returns options that train on them. */
static ln_trainer_options run_of(const char *out, bool prefers) {
    static char path[400];
    char lines[4000] = "";
    for (int i = 0; i < 8; i++)
        snprintf(lines + strlen(lines), sizeof lines - strlen(lines),
                 prefers
                     ? "{\"prompt\":\"Tell me about the number %d.\",\"chosen\":\"It is a small number.\","
                       "\"rejected\":\"No.\"}\n"
                     : "{\"prompt\":\"Tell me about the number %d.\",\"completion\":\"It is a small number, "
                       "and Tim liked it.\"}\n",
                 i);
    ln_trainer_options how = ln_trainer_options_default();
    how.data = put(path, prefers ? "answers.jsonl" : "pairs.jsonl", lines);
    how.out = out, how.steps = LAST, how.batch = 2, how.lr = 2e-3, how.save_every = 3;
    how.preference = prefers ? LN_PREFERENCE_DPO : LN_PREFERENCE_NONE;
    return how;
}
static void with_texts(ln_trainer_options *how) {
    how->sample_every = EVERY, how->sample_tokens = 12;
    how->sample_prompts = asked, how->n_sample_prompts = LN_COUNT(asked);
    n_texts = 0;
}

/* Fails unless the last texts are what an engine generates with the result of the run. */
static void as_generated(const char *result, bool full) {
    const ln_adapter_part adapter = {result, 1};
    ln_options o = ln_options_default();
    ln_model *m = NULL;
    ln_engine *e = NULL;
    ln_sampling how;
    o.numerics = LN_EXACT, o.n_threads = 1;
    if (!full) o.adapter = &adapter, o.n_adapter_parts = 1;
    OK(ln_model_open(&m, full ? result : TINY, &o, err));
    OK(ln_engine_open(&e, m, &o, err));
    OK(ln_sampling_default(m, &how, err));
    how.temperature = 0, how.n_max = 12;
    for (size_t i = 0; i < LN_COUNT(asked); i++) {
        const ln_message turn = {"user", asked[i], strlen(asked[i])};
        ln_prompt prompt = ln_prompt_default();
        ln_result r = {.size = sizeof r};
        prompt.messages = &turn, prompt.n_messages = 1;
        OK(ln_generate(e, &prompt, &how, NULL, NULL, &r, err));
        assert_string_equal(texts[n_texts - LN_COUNT(asked) + i].text, r.text);
        ln_result_free(&r);
    }
    ln_engine_close(&e);
    ln_model_close(&m);
}

/* The lines of metrics.jsonl that have a text. */
static void recorded_texts(const char *run, char out[8000]) {
    char path[400], line[1000];
    snprintf(line, sizeof line, "%s/metrics.jsonl", run);
    FILE *f = fopen(at(path, line), "rb");
    assert_non_null(f);
    out[0] = '\0';
    while (fgets(line, sizeof line, f))
        if (strstr(line, "\"text\":")) strncat(out, line, 7999 - strlen(out));
    fclose(f);
}

/* A way to train: each has texts of its own values, and the steps that it has without texts. */
static void method(const char *targets, bool dora, bool full, bool prefers, double dropout) {
    char out[400], both[8000], parts[8000];
    ln_step_report before[LAST + 1];
    ln_trainer_options how = run_of(at(out, "plain"), prefers);
    how.targets = targets, how.dora = dora, how.method = full ? LN_METHOD_FULL : LN_METHOD_LORA;
    how.dropout = dropout;
    on_text = take_text;
    n_texts = 0;
    OK(train(TINY, &how, 2, err));
    assert_int_equal(n_texts, 0);
    memcpy(before, steps, sizeof before);
    how.out = at(out, "texts");
    with_texts(&how);
    OK(train(TINY, &how, 1, err));
    assert_int_equal(n_texts, LAST / EVERY * LN_COUNT(asked));
    for (int i = 1; i <= LAST; i++)
        assert_true(steps[i].loss == before[i].loss && steps[i].grad_norm == before[i].grad_norm);
    shell("for f in plain/*.safetensors; do cmp $f texts/${f#plain/}; done");
    as_generated(at(out, "texts"), full);
    recorded_texts("texts", both);
    /* interrupted between two texts, and killed after a checkpoint: each text is recorded once */
    how.out = at(out, "parts"), n_texts = 0;
    fails_at_second = true;
    OK(train(TINY, &how, 1, err));
    fails_at_second = false, how.resume = true;
    OK(train(TINY, &how, 1, err));
    assert_int_equal(n_texts, LAST / EVERY * LN_COUNT(asked));
    recorded_texts("parts", parts);
    assert_string_equal(both, parts);
    shell("cmp plain/*.safetensors parts/*.safetensors && rm -r plain texts parts");
}

static void of_lora(void **state) {
    (void)state;
    method("all-linear", false, false, false, 0.1);
    if (fewer(1, 0)) method("q_proj,embed_tokens,lm_head", false, false, false, 0);
}
static void of_dora(void **state) {
    (void)state;
    if (fewer(1, 0)) method("q_proj,down_proj", true, false, false, 0);
}
static void of_all_weights(void **state) {
    (void)state;
    if (fewer(1, 0)) method(NULL, false, true, false, 0);
}
static void of_preferences(void **state) {
    (void)state;
    if (fewer(1, 0)) method("q_proj,v_proj", false, false, true, 0);
}

/* Without prompts of the caller a sample that validates has it. Texts without a template are continued as
 * they are. */
static void prompts_of_the_data(void **state) {
    (void)state;
    char out[400], path[400];
    ln_trainer_options how = run_of(at(out, "run"), false);
    with_texts(&how);
    how.sample_prompts = NULL, how.n_sample_prompts = 0, how.valid_split = 0.3;
    OK(train(TINY, &how, 1, err));
    assert_int_equal(n_texts, LAST / EVERY);
    assert_non_null(strstr(texts[0].prompt, "user\nTell me about the number"));
    assert_non_null(strstr(texts[0].prompt, "assistant\n"));
    assert_null(strstr(texts[0].prompt, "small"));
    how = run_of(at(out, "raw"), false);
    with_texts(&how);
    how.data = put(path, "texts.jsonl", "{\"text\":\"Once there was a cat. The cat was small.\"}\n");
    OK(train(TINY, &how, 1, err));
    assert_string_equal(texts[0].prompt, "Once");
    assert_true(texts[0].n_tokens > 0 && texts[0].n_tokens <= 12);
}

/* The plan has the memory of texts. */
static void planned(void **state) {
    (void)state;
    enum { MANY = 1000 };
    char out[400];
    ln_model *m;
    ln_trainer_info f[2];
    OK(ln_model_open(&m, TINY, NULL, err));
    for (int i = 0; i < 2; i++) {
        ln_trainer_options how = run_of(at(out, "none"), false);
        f[i].size = sizeof f[i], how.batch = 1;
        if (i) with_texts(&how), how.sample_tokens = MANY;
        OK(ln_trainer_plan(m, NULL, &how, &f[i], err));
    }
    assert_true(f[0].activation_bytes < MANY * 4000 * sizeof(float)); /* of logits, of a micro-batch fewer */
    assert_true(f[1].activation_bytes > MANY * 4000 * sizeof(float));
    ln_model_close(&m);
}

static void what_is_rejected(void **state) {
    (void)state;
    char out[400];
    ln_trainer_options how = run_of(at(out, "none"), false);
    with_texts(&how);
    how.sample_tokens = 4096;
    FAILS(LN_EUSAGE, "exceed the context of", train(TINY, &how, 1, err));
    how.sample_tokens = 0;
    FAILS(LN_EUSAGE, "ln_trainer_options.sample_tokens", train(TINY, &how, 1, err));
    how.sample_tokens = 5, how.sample_every = 0;
    FAILS(LN_EUSAGE, "ln_trainer_options.sample_every", train(TINY, &how, 1, err));
    how.sample_every = 1, how.n_sample_prompts = 65;
    FAILS(LN_EUSAGE, "ln_trainer_options.sample_prompts", train(TINY, &how, 1, err));
}

static int begin(void **state) {
    (void)state;
    return make_dir("test_train_texts");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(of_lora),
                                       cmocka_unit_test(of_dora),
                                       cmocka_unit_test(of_all_weights),
                                       cmocka_unit_test(of_preferences),
                                       cmocka_unit_test(prompts_of_the_data),
                                       cmocka_unit_test(planned),
                                       cmocka_unit_test(what_is_rejected)};
    return cmocka_run_group_tests_name("texts of a run", tests, begin, remove_dir);
}
