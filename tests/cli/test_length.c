/* The length of an answer and what ends it: -n and its defaults, the context, stop texts that are special
 * tokens; and flags of generation and scoring that must have an effect or be rejected. */
/* run: slow */
#include "spawn.h"
#include "../think_model.h"

#define LONG   LN_ROOT "/tests/golden/llama-long-bf16" /* a context of 32,768 tokens */
#define GREEDY S("--temp"), S("0"), S("--ignore-eos")

static size_t count_of(const json_t *o, const char *key) { return json_array_size(json_object_get(o, key)); }

/* ---- -n and the context ---- */

static void raw_text_gets_256_tokens(void **state) {
    (void)state;
    json_t *o = json_of(RUN(S("run"), S(TINY), S("--raw"), S("Once upon a time"), GREEDY, S("--json")));
    assert_int_equal(count_of(o, "ids"), 256);
    assert_string_equal(text_of(o, "finish_reason"), "length");
    assert_string_equal(last->err, "linnet: cut at 256 tokens (-n)\n");
    json_decref(o);
    o = json_of(RUN(S("run"), S(TINY), S("--ids"), S("5,6,7"), GREEDY, S("--json")));
    assert_int_equal(count_of(o, "ids"), 256);
    json_decref(o);
    expect(RUN(S("run"), S(TINY), S("--raw"), S("Once"), GREEDY, S("-n"), S("5")), 0, "cut at 5 tokens (-n)");
    expect(RUN(S("run"), S(TINY), S("--raw"), S("Once"), S("-n"), S("0")), 0, NULL);
    assert_int_equal(last->err_bytes, 0); /* no tokens were wanted */
    expect(RUN(S("run"), S(TINY), S("Hello!")), 0, NULL);
    assert_int_equal(last->err_bytes, 0); /* the answer ended with a stop token */
}

static void a_conversation_goes_on_to_the_end_of_the_context(void **state) {
    (void)state;
    json_t *o = json_of(RUN(S("run"), S(TINY), S(STORY), GREEDY, S("--ctx"), S("400"), S("--json")));
    size_t prompt = count_of(o, "prompt_ids");
    assert_int_equal(count_of(o, "ids"), 400 - prompt + 1); /* the last token needs no position */
    assert_true(count_of(o, "ids") > 256);
    assert_string_equal(text_of(o, "finish_reason"), "length");
    assert_non_null(strstr(last->err, "the context of 400 positions is full (--ctx)"));
    json_decref(o);
    o = json_of(RUN(S("run"), S(TINY), S(STORY), GREEDY, S("--ctx"), S("400"), S("-n"), S("30"),
                    S("--json")));
    assert_int_equal(count_of(o, "ids"), 30);
    assert_string_equal(last->err, "linnet: cut at 30 tokens (-n)\n");
    json_decref(o);
    expect(RUN_IN(STORY "\n", S("chat"), S(TINY), GREEDY, S("--ctx"), S("40")), 0,
           "the context of 40 positions is full (--ctx)");
    expect(RUN_IN(STORY "\n", S("chat"), S(TINY), GREEDY, S("-n"), S("4")), 0,
           "linnet: cut at 4 tokens (-n)\n");
    expect(RUN(S("run"), S(TINY), S(STORY), S("-n"), S("1"), S("-v")), 0, "at most 1 tokens");
    expect(RUN(S("run"), S(TINY), S("Hello!"), S("-v")), 0, "to the end of the context");
}

/* One more position allows one more token, also if the prompt fills the context. */
static void every_position_counts(void **state) {
    (void)state;
    static const int contexts[] = {16, 17, 18, 31};
    for (size_t i = 0; i < LN_COUNT(contexts); i++) {
        char ctx[8];
        (void)snprintf(ctx, sizeof ctx, "%d", contexts[i]);
        json_t *o = json_of(RUN(S("run"), S(SMALL), S("--ids"), S("1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16"),
                                GREEDY, S("-n"), S("100"), S("--ctx"), ctx, S("--json")));
        assert_int_equal(count_of(o, "ids"), contexts[i] - 16 + 1);
        json_decref(o);
    }
    expect(RUN(S("run"), S(SMALL), S("--ids"), S("1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16"), S("--ctx"),
               S("15")),
           3, "the prompt has 16 tokens, the context holds 15");
}

static int64_t planned(int prompt, char *n) {
    ln_str ids = {0};
    for (int i = 0; i < prompt; i++) ln_str_addf(&ids, "%d ", 1 + i % 9);
    json_t *o = json_of(n ? RUN_IN(ids.data, S("plan"), S(LONG), S("--ids"), S("-"), S("-n"), n, S("--json"))
                          : RUN_IN(ids.data, S("plan"), S(LONG), S("--ids"), S("-"), S("--json")));
    int64_t ctx = int_of(o, "ctx");
    json_decref(o);
    ln_str_free(&ids);
    return ctx;
}

static void the_context_holds_an_answer(void **state) {
    (void)state;
    assert_int_equal(planned(10, NULL), 4096);
    assert_int_equal(planned(2048, NULL), 4096);
    assert_int_equal(planned(2049, NULL), 4097);
    assert_int_equal(planned(5000, NULL), 7048);
    assert_int_equal(planned(5000, S("10")), 5010);
    assert_int_equal(planned(10, S("10000")), 10010);
    assert_int_equal(planned(32000, NULL), 32768); /* the model's maximum */
    ln_str ids = {0};
    for (int i = 0; i < 32769; i++) ln_str_adds(&ids, "1 ");
    expect(RUN_IN(ids.data, S("run"), S(LONG), S("--ids"), S("-")), 3,
           "the prompt has 32769 tokens, the context holds 32768");
    ln_str_free(&ids);
}

/* The library has the same defaults as the command. */
static void the_library_has_the_same_defaults(void **state) {
    (void)state;
    static const char text[] = STORY;
    const ln_message turn = {"user", text, sizeof text - 1};
    ln_model *model = NULL;
    ln_engine *engine = NULL;
    ln_options opt = ln_options_default();
    ln_sampling how = {.size = sizeof how};
    ln_result r = {.size = sizeof r};
    ln_error err;
    opt.n_ctx = 400;
    assert_int_equal(ln_model_open(&model, TINY, &opt, &err), LN_OK);
    assert_int_equal(ln_engine_open(&engine, model, &opt, &err), LN_OK);
    assert_int_equal(ln_sampling_default(model, &how, &err), LN_OK);
    assert_int_equal(how.n_max, -1);
    how.temperature = 0, how.ignore_eos = true;
    const ln_prompt prompts[] = {
        {.size = sizeof(ln_prompt), .text = text, .text_bytes = sizeof text - 1, .tmpl = LN_TEMPLATE_RAW},
        {.size = sizeof(ln_prompt), .text = text, .text_bytes = sizeof text - 1},
        {.size = sizeof(ln_prompt), .messages = &turn, .n_messages = 1}};
    for (size_t i = 0; i < LN_COUNT(prompts); i++) {
        assert_int_equal(ln_generate(engine, &prompts[i], &how, NULL, NULL, &r, &err), LN_OK);
        assert_int_equal(r.finish, LN_FINISH_LENGTH);
        assert_int_equal(r.n_ids, i == 0 ? 256 : 400 - r.n_prompt_ids + 1);
        ln_result_free(&r);
    }
    how.n_max = -2;
    assert_int_equal(ln_generate(engine, &prompts[0], &how, NULL, NULL, &r, &err), LN_EUSAGE);
    ln_engine_close(&engine);
    ln_model_close(&model);
}

/* ---- stop texts that are tokens ---- */

/* Changes the model so that it writes `a`, a special token and `b`, in this order, after any prompt. */
#define SPELLS(a, special, b) \
    a, special, b, S("--presence-penalty=100"), S("--frequency-penalty=100"), S("--temp"), S("0")

static void a_special_token_is_a_stop(void **state) {
    (void)state;
    char first[40], second[40], special[] = "--logit-bias=262=990"; /* <s6> */
    ln_tokenizer *tok;
    assert_int_equal(ln_tokenizer_open(&tok, SMALL, NULL), LN_OK);
    (void)snprintf(first, sizeof first, "--logit-bias=%d=1000", think_id(tok, 'a'));
    (void)snprintf(second, sizeof second, "--logit-bias=%d=980", think_id(tok, 'b'));
    ln_tokenizer_close(&tok);
    json_t *o = json_of(RUN(S("run"), S(SMALL), S("--ids"), S("1,2"), SPELLS(first, special, second), S("-n"),
                            S("3"), S("--json")));
    assert_string_equal(text_of(o, "text"), "ab");
    assert_int_equal(json_integer_value(json_array_get(json_object_get(o, "ids"), 1)), 262);
    json_decref(o);
    o = json_of(RUN(S("run"), S(SMALL), S("--ids"), S("1,2"), SPELLS(first, special, second), S("-n"), S("3"),
                    S("--stop"), S("<s6>"), S("--json")));
    assert_string_equal(text_of(o, "text"), "a");
    assert_int_equal(count_of(o, "ids"), 1);
    assert_string_equal(text_of(o, "finish_reason"), "stop");
    json_decref(o);
    /* --ignore-eos affects only the model's own stop tokens. */
    expect(RUN(S("run"), S(SMALL), S("--raw"), S("x"), SPELLS(first, special, second), S("-n"), S("3"),
               S("--stop=<s6>"), S("--stop=q"), S("--ignore-eos")),
           0, NULL);
    assert_string_equal(last->out, "a");
}

/* With --ignore-eos the model's end tokens are banned, except one that the caller names as a stop. */
static void a_named_end_token_is_not_banned(void **state) {
    (void)state;
    static char bias[] = "--logit-bias=257=1000", other[] = "--logit-bias=262=990"; /* <eos>, <s6> */
    json_t *o = json_of(RUN(S("run"), S(SMALL), S("--ids"), S("1,2"), bias, other, S("-n"), S("3"),
                            S("--ignore-eos"), S("--json")));
    assert_int_equal(json_integer_value(json_array_get(json_object_get(o, "ids"), 0)), 262);
    assert_string_equal(text_of(o, "finish_reason"), "length");
    json_decref(o);
    o = json_of(RUN(S("run"), S(SMALL), S("--ids"), S("1,2"), bias, other, S("-n"), S("3"), S("--ignore-eos"),
                    S("--stop"), S("q"), S("--stop"), S("<eos>"), S("--json")));
    assert_int_equal(count_of(o, "ids"), 0);
    assert_string_equal(text_of(o, "finish_reason"), "stop");
    json_decref(o);
    /* Of several end tokens only the one that is named. */
    o = json_of(RUN(S("run"), S(TINY), S(STORY), S("--logit-bias=4093=1000"), S("--logit-bias=4095=990"),
                    S("-n"), S("3"), S("--ignore-eos"), S("--stop"), S("<|im_end|>"), S("--json")));
    assert_int_equal(count_of(o, "ids"), 0);
    assert_string_equal(text_of(o, "finish_reason"), "stop");
    json_decref(o);
}

/* A stop text with a special token and other text ends the answer without a warning. */
static void a_mixed_stop_is_a_stop(void **state) {
    (void)state;
    json_t *whole = json_of(RUN(S("run"), S(TINY), S("-p"), S("Hello!"), S("--json")));
    const char *text = text_of(whole, "text");
    char stop[64];
    (void)snprintf(stop, sizeof stop, "%s<|im_end|>", text + strlen(text) - 3);
    json_t *o = json_of(RUN(S("run"), S(TINY), S("-p"), S("Hello!"), S("--stop"), stop, S("--json")));
    assert_int_equal(last->err_bytes, 0);
    assert_string_equal(text_of(o, "finish_reason"), "stop");
    assert_int_equal(strlen(text_of(o, "text")), strlen(text) - 3);
    assert_memory_equal(text_of(o, "text"), text, strlen(text) - 3);
    json_decref(o);
    json_decref(whole);
}

/* The delimiters of reasoning are not part of the answer's text, but they may be stop texts. */
static void a_mark_of_reasoning_is_a_stop(void **state) {
    (void)state;
    char model[100], bias[6][40];
    ln_tokenizer *tok;
    (void)snprintf(model, sizeof model, "%s/m", dir);
    think_make(model, AS_QWEN, true);
    assert_int_equal(ln_tokenizer_open(&tok, model, NULL), LN_OK);
    for (size_t i = 0; i < 6; i++)
        (void)snprintf(bias[i], sizeof bias[i], "--logit-bias=%d=%g", think_id(tok, "{ab}cd"[i]),
                       (double)think_bias(i));
    ln_tokenizer_close(&tok);
    json_t *o = json_of(RUN(S("run"), model, S("-p"), S("Q"), bias[0], bias[1], bias[2], bias[3], bias[4],
                            bias[5], S("--presence-penalty=100"), S("--frequency-penalty=100"), S("--stop"),
                            S("</think>"), S("-n"), S("6"), S("--json")));
    assert_string_equal(text_of(o, "reasoning"), "ab");
    assert_string_equal(text_of(o, "text"), "");
    assert_string_equal(text_of(o, "finish_reason"), "stop");
    json_decref(o);
    /* with other text they never occur in the answer: a warning names them */
    expect(RUN(S("run"), model, S("-p"), S("x"), S("--stop"), S("</think>.")), 0,
           "warning: --stop '</think>.' never ends the text: it contains </think>");
    /* the template of this model has the switch, that of the bundled model does not */
    expect(RUN(S("run"), model, S("-p"), S("x"), S("--no-think"), S("-n"), S("0")), 0, NULL);
    assert_int_equal(last->err_bytes, 0);
    think_remove(model);
    expect(RUN(S("run"), S(TINY), S("-p"), S("x"), S("--no-think"), S("-n"), S("0")), 0,
           "--no-think: this model's chat template has no switch");
    expect(RUN(S("run"), S(TINY), S("-p"), S("x"), S("--think"), S("-n"), S("0")), 0,
           "--think: this model's chat template has no switch");
    expect(RUN_IN("", S("chat"), S(TINY), S("--think")), 0,
           "--think: this model's chat template has no switch");
}

/* ---- a banned token, a line for each token ---- */

static void a_token_can_be_banned(void **state) {
    (void)state;
    char bias[40];
    json_int_t id[2];
    for (int banned = 0; banned < 2; banned++) {
        json_t *o = json_of(banned ? RUN(S("run"), S(SMALL), S("--ids"), S("1,2,3"), S("--temp"), S("0"),
                                         S("-n"), S("1"), S("--logit-bias"), bias, S("--json"))
                                   : RUN(S("run"), S(SMALL), S("--ids"), S("1,2,3"), S("--temp"), S("0"),
                                         S("-n"), S("1"), S("--json")));
        id[banned] = json_integer_value(json_array_get(json_object_get(o, "ids"), 0));
        (void)snprintf(bias, sizeof bias, "%lld=-inf", (long long)id[0]);
        json_decref(o);
    }
    assert_int_not_equal(id[0], id[1]);
    /* A banned token is never sampled at any temperature. */
    json_t *o = json_of(RUN(S("run"), S(SMALL), S("--ids"), S("1,2,3"), S("--temp"), S("1000"), S("--top-p"),
                            S("1"), S("--top-k"), S("0"), S("-n"), S("200"), S("--ignore-eos"),
                            S("--logit-bias"), bias, S("--seed"), S("1"), S("--json")));
    assert_int_equal(count_of(o, "ids"), 200);
    for (size_t i = 0; i < 200; i++)
        assert_int_not_equal(json_integer_value(json_array_get(json_object_get(o, "ids"), i)), id[0]);
    json_decref(o);
    static const char *const bad[] = {"1=inf", "1=+inf", "1=nan", "1=-Inf ", "1=-infinite", "1=--inf"};
    for (size_t i = 0; i < LN_COUNT(bad); i++) {
        (void)snprintf(bias, sizeof bias, "%s", bad[i]);
        expect(RUN(S("run"), S(SMALL), S("--ids"), S("1"), S("--logit-bias"), bias), 2, "--logit-bias");
    }
}

static void score_prints_a_line_a_token(void **state) {
    (void)state;
    json_t *o = json_of(RUN(S("score"), S(TINY), S("Hello world\n"), S("--top"), S("2"), S("--json")));
    size_t n = count_of(o, "ids");
    assert_true(n > 1);
    expect(RUN(S("score"), S(TINY), S("Hello world\n"), S("--top"), S("2")), 0, NULL);
    char *line = last->out;
    ln_str text = {0};
    for (size_t t = 0; t < n; t++) {
        char want[120], *end = strchr(line, '\n');
        const json_t *top = json_array_get(json_object_get(o, "top"), t),
                     *p = json_array_get(json_object_get(o, "logprobs"), t);
        assert_non_null(end);
        *end = '\0';
        int at = snprintf(want, sizeof want, "%zu\t%lld\t", t,
                          (long long)json_integer_value(json_array_get(json_object_get(o, "ids"), t)));
        if (t > 0) at += snprintf(want + at, sizeof want - (size_t)at, "%.6f", json_number_value(p));
        else want[at++] = '-';
        (void)snprintf(want + at, sizeof want - (size_t)at, "\t\"");
        if (strncmp(line, want, strlen(want)) != 0) fail_msg("'%s' does not begin with '%s'", line, want);
        char *quoted = line + strlen(want);
        ln_str_add(&text, quoted, strcspn(quoted, "\""));
        for (size_t i = 0; i < 2; i++) {
            const json_t *e = json_array_get(top, i);
            (void)snprintf(want, sizeof want, "\t%lld \"", (long long)int_of(e, "id"));
            char *found = strstr(line, want);
            if (!found) fail_msg("'%s' lacks '%s'", line, want);
            (void)snprintf(want, sizeof want, "\" %.6f", json_number_value(json_object_get(e, "logprob")));
            assert_non_null(strstr(found, want));
        }
        line = end + 1;
    }
    assert_string_equal(text.data, "Hello world\\n");
    assert_memory_equal(line, "tokens ", 7); /* the totals follow */
    ln_str_free(&text);
    json_decref(o);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(raw_text_gets_256_tokens),
                                       cmocka_unit_test(a_conversation_goes_on_to_the_end_of_the_context),
                                       cmocka_unit_test(every_position_counts),
                                       cmocka_unit_test(the_context_holds_an_answer),
                                       cmocka_unit_test(the_library_has_the_same_defaults),
                                       cmocka_unit_test(a_special_token_is_a_stop),
                                       cmocka_unit_test(a_named_end_token_is_not_banned),
                                       cmocka_unit_test(a_mixed_stop_is_a_stop),
                                       cmocka_unit_test(a_mark_of_reasoning_is_a_stop),
                                       cmocka_unit_test(a_token_can_be_banned),
                                       cmocka_unit_test(score_prints_a_line_a_token)};
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
