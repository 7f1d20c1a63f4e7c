/* Files of training data as people have them: each is trained on, with the targets that are written down here
 * by hand, or rejected with the line at fault. The model is the bundled one; test_real_templates has the
 * targets under the templates of other families. */
/* run: slow */
#include "train_runs.h"

#define U "{\"role\":\"user\",\"content\":\"q\"}"
#define A "{\"role\":\"assistant\",\"content\":\"a\"}"
#define S "{\"role\":\"system\",\"content\":\"s\"}"
#define H "{\"from\":\"human\",\"value\":\"q\"}"
#define G "{\"from\":\"gpt\",\"value\":\"a\"}"
#define F "{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\",\"parameters\":{}}}"
#define E "<|im_end|>\n"

/* The targets of all samples: | stands before a run of them that others precede, / before a sample. */
static const struct {
    const char *name, *text, *want;
    bool pairs; /* of preferences */
} good[] = {
    {"a.jsonl", "{\"messages\":[" U "," A "]}\n", "a" E, false},
    {"a.jsonl", "{\"messages\":[" S "," U "," A "," U "," A "]}\n{\"messages\":[" U "," A "]}",
     "a" E "|a" E "/a" E, false},
    {"a.json", "[{\"messages\":[" U "," A "]},{\"messages\":[" U "," A "]}]", "a" E "/a" E, false},
    {"a.json", "[\n  {\n    \"messages\": [\n      " U ",\n      " A "\n    ]\n  }\n]\n", "a" E, false},
    {"a.jsonl",
     "\xef\xbb\xbf{\"messages\":[" U "," A "]}\r\n\r\n{\"id\":null,\"messages\":[" U "," A "]}\r\n",
     "a" E "/a" E, false},
    {"a.jsonl", "{\"messages\":[" U "," A "],\"tools\":[" F "]}\n", "a" E, false},
    {"a.jsonl", "{\"messages\":[" U "," A "],\"tools\":\"[{\\\"name\\\":\\\"f\\\"}]\"}\n", "a" E, false},
    {"a.jsonl",
     "{\"messages\":[" U ",{\"role\":\"assistant\",\"content\":\"b\",\"train\":false}," U "," A "]}\n", "a" E,
     false},
    {"a.jsonl",
     "{\"messages\":[" U ",{\"role\":\"assistant\",\"content\":\"b\",\"weight\":0}," U "," A "]}\n", "a" E,
     false},
    {"a.jsonl",
     "{\"messages\":[" U ",{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}]}]}\n",
     "a" E, false},
    {"a.jsonl", "{\"messages\":[" A "," U "," A "]}\n", "a" E "|a" E, false},
    {"a.jsonl", "{\"prompt\":\"x\",\"prompt_id\":\"1\",\"messages\":[" U "," A "]}\n", "a" E, false},
    {"sharegpt.json", "[{\"id\":\"1\",\"conversations\":[" H "," G "," H "," G "]}]", "a" E "|a" E, false},
    {"sharegpt.jsonl", "{\"conversations\":[" H "," G "],\"system\":\"s\",\"tools\":\"\"}\n", "a" E, false},
    {"sharegpt.jsonl", "{\"conversations\":[{\"from\":\"system\",\"value\":\"s\"}," H "," G "]}\n", "a" E,
     false},
    {"sharegpt.jsonl", "{\"conversations\":[" U "," A "]}\n", "a" E, false},
    {"alpaca.json",
     "[{\"instruction\":\"i\",\"input\":\"\",\"output\":\"o\"},{\"instruction\":\"i\",\"input\":\"n\","
     "\"output\":\"p\"}]",
     "o" E "/p" E, false},
    {"alpaca.jsonl",
     "{\"instruction\":\"i\",\"input\":\"\",\"output\":\"o\",\"system\":\"s\",\"history\":[[\"q\",\"a\"]]}\n",
     "a" E "|o" E, false},
    {"dolly.jsonl", "{\"instruction\":\"i\",\"context\":\"c\",\"response\":\"r\",\"category\":\"x\"}\n",
     "r" E, false},
    {"qa.jsonl", "{\"question\":\"q\",\"answer\":\"a\"}\n", "a" E, false},
    {"qa.jsonl", "{\"query\":\"q\",\"response\":\"a\"}\n", "a" E, false},
    {"qa.jsonl", "{\"prompt\":\"q\",\"response\":\"a\"}\n", "a" E, false},
    {"qa.jsonl", "{\"input\":\"q\",\"output\":\"a\"}\n", "a" E, false},
    {"trl.jsonl", "{\"prompt\":\"q\",\"completion\":\"a\"}\n", "a" E, false},
    {"trl.jsonl", "{\"prompt\":[" U "," A "," U "],\"completion\":[" A "]}\n", "a" E, false},
    {"trl.jsonl", "{\"prompt\":\"q\",\"completion\":[" A "]}\n", "a" E, false},
    {"text.jsonl", "{\"text\":\"Once upon\"}\n", " upon<|im_end|>", false},
    {"text.json", "[{\"text\":\"Once upon\",\"meta\":{\"a\":1}}]", " upon<|im_end|>", false},
    {"ids.jsonl", "{\"ids\":[5,6,7],\"mask\":[0,0,1]}\n", NULL, false},
    {"ids.jsonl", "{\"input_ids\":[5,6,7],\"labels\":[-100,6,7]}\n", NULL, false},
    {"ids.jsonl", "{\"input_ids\":[5,6,7,0],\"attention_mask\":[1,1,1,0],\"labels\":[-100,6,7,-100]}\n", NULL,
     false},
    {"table.csv", "prompt,completion\r\n\"q, \"\"q\"\"\nq\",a\r\nq,b\r\n", "a" E "/b" E, false},
    {"table.csv", "instruction;input;output\ni;;o\n", "o" E, false},
    {"table.tsv", "id\ttext\n1\tOnce upon\n", " upon<|im_end|>", false},
    {"table.csv",
     "messages\n\"[{\"\"role\"\":\"\"user\"\",\"\"content\"\":\"\"q\"\"},{\"\"role\"\":\"\"assistant\"\","
     "\"\"content\"\":\"\"a\"\"}]\"\n",
     "a" E, false},
    {"pairs.jsonl", "{\"prompt\":\"q\",\"chosen\":\"a\",\"rejected\":\"b\"}\n", "a" E "/b" E, true},
    {"pairs.jsonl",
     "{\"chosen\":[" U "," A "],\"rejected\":[" U ",{\"role\":\"assistant\",\"content\":\"b\"}]}\n",
     "a" E "/b" E, true},
    {"pairs.jsonl",
     "{\"prompt\":[" U "],\"chosen\":[" A "],\"rejected\":[{\"role\":\"assistant\",\"content\":\"b\"}]}\n",
     "a" E "/b" E, true},
    {"pairs.csv", "prompt,chosen,rejected\nq,a,b\n", "a" E "/b" E, true},
    {"pairs.json", "[{\"prompt_ids\":[5],\"chosen_ids\":[6,7],\"rejected_ids\":[8]}]", NULL, true},
};

static const struct {
    ln_status status;
    const char *name, *text, *word;
} bad[] = {
    {LN_EUNSUPPORTED, "a.parquet", "PAR1xxxx", "Parquet"},
    {LN_EUNSUPPORTED, "a.jsonl", "\x1f\x8b\x08", "gzip"},
    {LN_EUNSUPPORTED, "a.arrow", "ARROW1xx", "Arrow"},
    {LN_EINVALID, "a.jsonl", "", "expected a sample in each line, found none"},
    {LN_EINVALID, "a.jsonl", "{\"text\":\"Once upon\"}\n{\"text\":\n", ":2:"},
    {LN_EINVALID, "a.jsonl", "{\"text\":\"Once upon\"}\n{\"ids\":[1,2]}\n", ":2:"},
    {LN_EINVALID, "a.jsonl", "{\"text\":\"Once upon\"}\n\n{\"text\":null}\n", ":3:"},
    {LN_EINVALID, "a.json", "[\n{\"text\":\"Once upon\"},\n{\"text\":7}\n]", ":3:"},
    {LN_EINVALID, "a.jsonl", "{\"messages\":[" U "," A "]}\n{\"messages\":[" U ",null]}\n", ":2:"},
    {LN_EINVALID, "a.jsonl",
     "{\"messages\":[" U ",{\"role\":\"assistant\",\"content\":[{\"type\":\"image\"}]}]}\n", ":1:"},
    {LN_EINVALID, "a.jsonl",
     "{\"conversations\":[" H "," G "]}\n{\"conversations\":[{\"from\":\"narrator\",\"value\":\"x\"}]}\n",
     ":2:"},
    {LN_EINVALID, "a.json",
     "[{\"instruction\":\"i\",\"output\":\"o\"},\n{\"instruction\":\"i\",\"output\":null}]", ":2:"},
    {LN_EINVALID, "a.jsonl", "{\"input_ids\":[1,2],\"labels\":[1,3]}\n", ":1:"},
    {LN_EINVALID, "a.jsonl", "{\"ids\":[1,2]}\n{\"ids\":[1,9999999]}\n", ":2:"},
    {LN_EINVALID, "a.csv", "prompt,completion\na,b\na,b,c\n", ":3:"},
    {LN_EINVALID, "a.jsonl", "{\"prompt\":\"q\",\"chosen\":\"a\",\"rejected\":\"b\"}\n", ":1:"},
};

static ln_model *tiny;

/* Adds the targets of a sample. */
static void add_targets(ln_str *s, const ln_token_mask *m) {
    bool before = false, any = false;
    for (size_t t = 0; t < m->n_ids; t++) {
        char bytes[64];
        size_t n;
        if (m->mask[t] && any && !before) ln_str_adds(s, "|");
        if (m->mask[t]) {
            OK(ln_token_bytes(ln_model_tokenizer(tiny), m->ids[t], bytes, sizeof bytes, &n, NULL, err));
            ln_str_add(s, bytes, n);
        }
        before = m->mask[t] != 0, any = any || before;
    }
}

static void check_targets(const ln_trainer_options *how, const char *text, const char *want) {
    ln_token_mask samples[4];
    ln_str s = {0};
    size_t n;
    OK(ln_training_samples(tiny, how, samples, LN_COUNT(samples), &n, err));
    for (size_t i = 0; i < n; i++) {
        if (i > 0) ln_str_adds(&s, "/");
        add_targets(&s, &samples[i]);
        ln_token_mask_free(&samples[i]);
    }
    if (want && strcmp(s.data, want) != 0) fail_msg("%s\ntrains %s\nnot    %s", text, s.data, want);
    ln_str_free(&s);
}

static void each_is_trained_on(void **state) {
    (void)state;
    assert_true(LN_COUNT(good) + LN_COUNT(bad) >= 40);
    for (size_t i = 0; i < LN_COUNT(good); i++) {
        char path[400];
        ln_trainer *t;
        ln_step_report r = {.size = sizeof r};
        ln_options o = ln_options_default();
        ln_trainer_options how = ln_trainer_options_default();
        o.n_threads = 1;
        how.data = put(path, good[i].name, good[i].text);
        how.preference = good[i].pairs ? LN_PREFERENCE_ORPO : LN_PREFERENCE_NONE;
        how.batch = how.steps = 1;
        check_targets(&how, good[i].text, good[i].want);
        OK(ln_trainer_new(&t, tiny, &o, &how, err));
        OK(ln_trainer_step(t, &r, err));
        assert_true(isfinite(r.loss) && r.loss > 0 && r.n_targets > 0);
        ln_trainer_free(&t);
    }
}

static void each_is_rejected(void **state) {
    (void)state;
    for (size_t i = 0; i < LN_COUNT(bad); i++) {
        char path[400], place[480];
        ln_token_mask sample;
        size_t n;
        ln_trainer_options how = ln_trainer_options_default();
        how.data = put(path, bad[i].name, bad[i].text);
        snprintf(place, sizeof place, "%s%s", bad[i].word[0] == ':' ? path : "", bad[i].word);
        FAILS(bad[i].status, place, ln_training_samples(tiny, &how, &sample, 1, &n, err));
    }
}

static int begin(void **state) {
    (void)state;
    OK(ln_model_open(&tiny, "tiny", NULL, err));
    return make_dir("test_data_files");
}
static int end(void **state) {
    ln_model_close(&tiny);
    return remove_dir(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_is_trained_on),
                                       cmocka_unit_test(each_is_rejected)};
    return cmocka_run_group_tests_name("data files", tests, begin, end);
}
