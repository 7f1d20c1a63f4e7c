/* Answers with a grammar (ln_sampling.grammar) and the bundled model: each matches, and other requests of
 * the same steps change nothing. */
/* run: quick asan tsan-long */
#include "../common.h"
#include "grammar/grammar.h"

static ln_model *model;
static ln_engine *engine;

static int open_all(void **state) {
    (void)state;
    const ln_options o = {.size = sizeof o, .n_parallel = 6, .n_ctx = 512, .n_threads = 2};
    OK(ln_model_open(&model, LN_ROOT "/models/tiny", &o, err));
    OK(ln_engine_open(&engine, model, &o, err));
    return 0;
}
static int close_all(void **state) {
    (void)state;
    ln_engine_close(&engine);
    ln_model_close(&model);
    return 0;
}

#define PERSON                                                                                             \
    "{\"schema\":{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":9},"     \
    "\"age\":{\"type\":\"integer\",\"minimum\":18,\"maximum\":99},\"tags\":{\"type\":\"array\",\"items\":" \
    "{\"enum\":[\"a\",\"b\"]},\"maxItems\":2}},\"required\":[\"name\",\"age\",\"tags\"]}}"
static const char *const grammars[] = {
    PERSON,
    "{\"schema\":{}}",
    "{\"choice\":[\"yes\",\"no\"]}",
    "{\"regex\":\"[0-9]{3}-[a-z]+\"}",
    "{\"sequence\":[\"<a>\",{\"repeat\":{\"regex\":\"[\\\\u00e0-\\\\u00ff]\"},\"min\":2,\"max\":4},\"</"
    "a>\"]}",
    "{\"schema\":{\"type\":\"number\",\"minimum\":0.25,\"maximum\":0.75}}",
};

static ln_sampling sampling(const char *grammar, uint64_t seed) {
    ln_sampling how = {.size = sizeof how};
    OK(ln_sampling_default(model, &how, err));
    how.temperature = seed ? 1 : 0;
    how.has_seed = true;
    how.seed = seed;
    how.n_max = 120;
    how.grammar = grammar;
    how.grammar_bytes = grammar ? strlen(grammar) : 0;
    return how;
}

static const ln_prompt prompt = {.size = sizeof(ln_prompt), .text = "Tell me of it", .text_bytes = 13};

/* Whether a text begins a match; *whole: and is complete. */
static bool matches_grammar(const char *grammar, const char *text, size_t bytes, bool *whole) {
    ln_vocabulary v = {0};
    ln_grammar *g;
    ln_matcher *m;
    bool fits;
    v.at = ln_zalloc(1, sizeof *v.at);
    assert_non_null(v.at);
    OK(ln_vocabulary_sort(&v, err));
    OK(ln_grammar_open(&g, grammar, strlen(grammar), err));
    OK(ln_matcher_open(&m, g, &v, err));
    OK(ln_matcher_push(m, text, bytes, &fits, err));
    *whole = fits && ln_matcher_complete(m);
    ln_matcher_close(&m);
    ln_grammar_close(&g);
    ln_vocabulary_free(&v);
    return fits;
}

static void answers_match_their_grammar(void **state) {
    (void)state;
    int n_whole = 0;
    for (size_t i = 0; i < LN_COUNT(grammars); i++)
        for (uint64_t seed = 0; seed < 6; seed++) {
            const ln_sampling how = sampling(grammars[i], seed);
            ln_result r = {.size = sizeof r};
            bool whole;
            OK(ln_generate(engine, &prompt, &how, NULL, NULL, &r, err));
            if (!matches_grammar(grammars[i], r.text, r.text_bytes, &whole))
                fail_msg("%s\n%s", grammars[i], r.text);
            if (r.finish == LN_FINISH_STOP && !whole) fail_msg("%s\nended: %s", grammars[i], r.text);
            if (r.finish == LN_FINISH_LENGTH) assert_int_equal(r.n_ids, how.n_max);
            n_whole += whole;
            ln_result_free(&r);
        }
    print_message("  %d of %zu answers are whole\n", n_whole, 6 * LN_COUNT(grammars));
    assert_true(n_whole >= 25); /* any JSON may nest beyond n_max */
}

/* The same ids alone as with requests of other grammars and of none, and with log-probabilities, which are
 * those of the model. */
static void neighbours_change_nothing(void **state) {
    (void)state;
    enum { N = 6 };
    ln_request *req[N];
    ln_result crowd[N], alone = {.size = sizeof alone}, none = {.size = sizeof none};
    ln_sampling how[N];
    for (size_t i = 0; i < N; i++) {
        how[i] = sampling(i == 5 ? NULL : grammars[i], i + 1);
        const ln_request_options o = {.size = sizeof o, .sampling = &how[i], .n_logprobs = i % 2 ? 2 : -1};
        OK(ln_request_open(&req[i], engine, &prompt, &o, err));
    }
    for (size_t i = 0; i < N; i++) {
        ln_event v = {.size = sizeof v};
        while (v.kind != LN_EVENT_FINISH) OK(ln_request_next(req[i], -1, &v, err));
        crowd[i].size = sizeof crowd[i];
        OK(ln_request_result(req[i], &crowd[i], err));
        ln_request_close(&req[i]);
    }
    for (size_t i = 0; i < N; i++) {
        OK(ln_generate(engine, &prompt, &how[i], NULL, NULL, &alone, err));
        assert_int_equal(alone.n_ids, crowd[i].n_ids);
        assert_memory_equal(alone.ids, crowd[i].ids, alone.n_ids * sizeof *alone.ids);
        ln_result_free(&alone);
    }
    how[0] = sampling(NULL, 1);
    ln_request_options o = {.size = sizeof o, .sampling = &how[0], .n_logprobs = 2};
    OK(ln_request_open(&req[0], engine, &prompt, &o, err));
    ln_event v = {.size = sizeof v};
    while (v.kind != LN_EVENT_FINISH) OK(ln_request_next(req[0], -1, &v, err));
    OK(ln_request_result(req[0], &none, err));
    ln_request_close(&req[0]);
    assert_true(none.top[0].logprob == crowd[1].top[0].logprob && none.top[0].id == crowd[1].top[0].id);
    ln_result_free(&none);
    for (size_t i = 0; i < N; i++) ln_result_free(&crowd[i]);
}

/* If several texts are complete, the model's end of the text decides; ignore_eos goes on to the longest.
 */
static void the_end_is_the_models_or_the_forms(void **state) {
    (void)state;
    static const char grammar[] = "{\"repeat\":\"ab\",\"min\":1,\"max\":5}";
    ln_sampling how = sampling(grammar, 0);
    ln_result r = {.size = sizeof r};
    how.ignore_eos = true;
    OK(ln_generate(engine, &prompt, &how, NULL, NULL, &r, err));
    assert_string_equal(r.text, "ababababab");
    assert_int_equal(r.finish, LN_FINISH_STOP);
    assert_int_equal(r.stop_id, -1);
    ln_result_free(&r);
    how.ignore_eos = false;
    ln_info info = {.size = sizeof info};
    OK(ln_model_info(model, &info, err));
    ln_logit_bias bias[LN_COUNT(info.eos_ids)];
    for (int i = 0; i < info.n_eos; i++) bias[i] = (ln_logit_bias){info.eos_ids[i], 1000};
    how.bias = bias;
    how.n_bias = (size_t)info.n_eos;
    OK(ln_generate(engine, &prompt, &how, NULL, NULL, &r, err));
    assert_string_equal(r.text, "ab"); /* not before */
    assert_true(r.finish == LN_FINISH_STOP && r.stop_id >= 0);
    ln_result_free(&r);
}

static void forms_that_cannot_be(void **state) {
    (void)state;
    ln_sampling how = sampling("{\"schema\":{\"properties\":{\"a\":{\"uniqueItems\":true}}}}", 1);
    ln_result r = {.size = sizeof r};
    FAILS(LN_EINVALID,
          "ln_sampling.grammar: schema.properties.a.uniqueItems: this keyword is supported where",
          ln_generate(engine, &prompt, &how, NULL, NULL, &r, err));
    how.grammar_bytes = 0;
    FAILS(LN_EUSAGE, "ln_sampling.grammar: expected a JSON text",
          ln_generate(engine, &prompt, &how, NULL, NULL, &r, err));
    how.grammar = NULL, how.grammar_bytes = 3;
    FAILS(LN_EUSAGE, "ln_sampling.grammar: expected a JSON text",
          ln_generate(engine, &prompt, &how, NULL, NULL, &r, err));
    FAILS(LN_EUSAGE, "the grammar is NULL or empty", ln_grammar_check(NULL, 0, err));
    FAILS(LN_EINVALID, "the grammar", ln_grammar_check("x", 1, err));
    FAILS(LN_EINVALID, "needs more than 16384 states",
          ln_grammar_check("{\"regex\":\"(a?){60000}\"}", 23, err));
    OK(ln_grammar_check(PERSON, strlen(PERSON), err));
    /* the model has no special token of this name: no token begins the text */
    how = sampling("{\"sequence\":[{\"token\":\"<none>\"},\"a\"]}", 1);
    FAILS(LN_EINVALID, "ln_sampling.grammar: no token of the model begins it",
          ln_generate(engine, &prompt, &how, NULL, NULL, &r, err));
    ln_result_free(&r);
    /* what a grammar needs beyond its beginning is rejected before the first token */
    how = sampling("{\"regex\":\"(.{1,50}){1,50}\"}", 1);
    FAILS(LN_EINVALID, "needs more than 16384 states",
          ln_generate(engine, &prompt, &how, NULL, NULL, &r, err));
    ln_result_free(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_match_their_grammar), cmocka_unit_test(neighbours_change_nothing),
        cmocka_unit_test(the_end_is_the_models_or_the_forms), cmocka_unit_test(forms_that_cannot_be)};
    return cmocka_run_group_tests(tests, open_all, close_all);
}
