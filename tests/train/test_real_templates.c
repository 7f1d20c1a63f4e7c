/* What trains under the real templates of published models: the assistant's text, as written down by hand.
 * The templates are read from ../shared; without them the test is skipped. */
/* run: quick */
#include "../common.h"

#include "train/dataset.h"

#include <string.h>
#include <unistd.h>

#define TEMPLATES LN_ROOT "/../shared/data/tok/templates/"

#define TALK                                                                                             \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"Q1\"},{\"role\":\"assistant\",\"content\":\"A1\"}," \
    "{\"role\":\"user\",\"content\":\"Q2\"},{\"role\":\"assistant\",\"content\":\"A2\"}]}"
#define CALL                                                                                                 \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"Q1\"},{\"role\":\"assistant\",\"content\":\"\","        \
    "\"tool_calls\":[{\"type\":\"function\",\"id\":\"abcdefghi\",\"function\":{\"name\":\"f\","              \
    "\"arguments\":"                                                                                         \
    "{\"x\":1}}}]},{\"role\":\"tool\",\"tool_call_id\":\"abcdefghi\",\"name\":\"f\",\"content\":\"2\"},"     \
    "{\"role\":\"assistant\",\"content\":\"A2\"}],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":" \
    "\"f\",\"description\":\"d\",\"parameters\":{\"type\":\"object\",\"properties\":{}}}}]}"
#define GREETING                                                                                         \
    "{\"messages\":[{\"role\":\"assistant\",\"content\":\"A1\"},{\"role\":\"user\",\"content\":\"Q2\"}," \
    "{\"role\":\"assistant\",\"content\":\"A2\"}]}"

/* The counted texts of all samples; | stands between runs of counted tokens, / between samples. */
static const struct {
    const char *name, *line, *want;
} cases[] = {
    {"qwen2.5", TALK, "A1<|im_end|>\n|A2<|im_end|>\n"},
    {"qwen2.5", GREETING, "A1<|im_end|>\n|A2<|im_end|>\n"},
    {"qwen2.5", CALL,
     "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call><|im_end|>\n|A2<|im_end|>\n"},
    {"qwen3", TALK, "<think>\n\n</think>\n\nA2<|im_end|>\n/<think>\n\n</think>\n\nA1<|im_end|>\n"},
    {"qwen3", CALL,
     "<think>\n\n</think>\n\nA2<|im_end|>\n/<think>\n\n</think>\n\n<tool_call>\n{\"name\": \"f\", "
     "\"arguments\": {\"x\": "
     "1}}\n</tool_call><|im_end|>\n"},
    {"qwq-32b", CALL,
     "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call><|im_end|>\n|A2<|im_end|>\n"},
    {"llama-3.1", TALK, "A1<|eot_id|>|A2<|eot_id|>"},
    {"llama-3.2", CALL, "{\"name\": \"f\", \"parameters\": {\"x\": 1}}<|eot_id|>|A2<|eot_id|>"},
    {"gemma-2", TALK, "A1<end_of_turn>\n|A2<end_of_turn>\n"},
    {"gemma-3", TALK, "A1<end_of_turn>\n|A2<end_of_turn>\n"},
    {"smollm2", TALK, "A1<|im_end|>\n|A2<|im_end|>\n"},
    {"smollm2", GREETING, "A1<|im_end|>\n|A2<|im_end|>\n"},
    {"mistral-nemo", TALK, "A1<|im_end|>|A2<|im_end|>"}, /* the bundled model's eos_token */
    {"mistral-nemo", CALL,
     "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"x\": 1}, \"id\": "
     "\"abcdefghi\"}]<|im_end|>|A2<|im_end|>"},
    {"zephyr-tinyllama", TALK, "A1<|im_end|>\n|A2<|im_end|>\n"},
    {"gpt-oss", TALK, "<|channel|>final<|message|>A2<|return|>/<|channel|>final<|message|>A1<|return|>"},
    {"gpt-oss", CALL,
     " to=functions.f<|channel|>commentary json<|message|>{\"x\": "
     "1}<|call|>|<|channel|>final<|message|>A2<|return|>"},
    {"deepseek-r1", TALK, "A1<｜end▁of▁sentence｜>|A2<｜end▁of▁sentence｜>"},
};

static void one(const char *name, const char *line, const char *want) {
    char template[512], file[64];
    ln_options o = ln_options_default();
    ln_package *m;
    train_data d;
    ln_str s = {0};
    (void)snprintf(template, sizeof template, TEMPLATES "%s.jinja", name);
    (void)snprintf(file, sizeof file, "/tmp/linnet-turns-%ld.jsonl", (long)getpid());
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    (void)fputs(line, f);
    (void)fclose(f);
    o.chat_template = template;
    OK(ln_package_open(&m, LN_ROOT "/models/tiny", &o, err));
    OK(train_data_open(&d, m, file, 4096, false, NULL, NULL, err));
    for (size_t i = 0; i < d.n; i++) {
        bool before = false, any = false;
        if (i > 0) ln_str_adds(&s, "/");
        for (uint32_t t = 0; t < d.samples[i].n; t++) {
            const uint32_t id = d.ids[d.samples[i].at + t];
            const bool counted = id & TRAIN_COUNTED;
            const int32_t plain = (int32_t)(id & ~TRAIN_COUNTED);
            if (counted && !before && any) ln_str_adds(&s, "|");
            if (counted) OK(ln_tok_bytes(m->tok, plain, &s, err));
            before = counted, any |= counted;
        }
    }
    ln_str_adds(&s, "");
    if (strcmp(s.data ? s.data : "", want) != 0)
        fail_msg("%s: %s\ntrains %s\nnot    %s", name, line, s.data, want);
    ln_str_free(&s);
    train_data_close(&d);
    ln_package_close(&m);
    (void)unlink(file);
}

static void turns(void **state) {
    (void)state;
    if (access(TEMPLATES "qwen3.jinja", R_OK) != 0) {
        print_message("SKIPPED: no templates in " TEMPLATES "\n");
        skip();
    }
    for (size_t i = 0; i < LN_COUNT(cases); i++) one(cases[i].name, cases[i].line, cases[i].want);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(turns)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
