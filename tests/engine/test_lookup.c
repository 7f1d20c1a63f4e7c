/* Tokens that are computed ahead (ln_options.n_lookup): which are proposed. Requests of all kinds are what
 * they are without, in every bit: with grammars and stop texts, at the end of the context, among others, on
 * models with windows, recurrent layers and frequencies that change with the length, after a reused
 * beginning. */
/* run: quick asan cuda */
#include "cancelled_cases.h"

#include "engine/lookup.h"

#define HYBRID LN_ROOT "/tests/golden/families/qwen3_5_text-interval-f16"
#define LONG   LN_ROOT "/tests/golden/families/phi3-long-partial-bf16"

/* ---- which tokens are proposed ---- */

static void propose(ln_lookup *l, const char *text, int64_t most, const char *want) {
    int32_t ids[100], got[LN_LOOKUP_MOST];
    char shown[LN_LOOKUP_MOST + 1] = {0};
    const int64_t n = (int64_t)strlen(text);
    for (int64_t i = 0; i < n; i++) ids[i] = text[i];
    const int64_t k = ln_lookup_propose(l, ids, n, most, got);
    for (int64_t i = 0; i < k; i++) shown[i] = (char)got[i];
    if (strcmp(shown, want) != 0) fail_msg("after '%s': '%s', expected '%s'", text, shown, want);
}

static void places(void **state) {
    (void)state;
    ln_lookup l;
    OK(ln_lookup_open(&l, 100, 8, err));
    propose(&l, "", 8, "");
    propose(&l, "ab", 8, "");
    propose(&l, "abcdefghijklmnop_abc", 8, "defg"); /* four at first */
    ln_lookup_judge(&l, 4, 4);
    propose(&l, "abcdefghijklmnop_abcdefgh", 8, "ijklmnop"); /* then twice as many */
    propose(&l, "abcdefghijklmnop_abcdefgh", 3, "ijk");      /* unless there is no space */
    ln_lookup_judge(&l, 8, 2);
    propose(&l, "abcdefghijklmnop_abcdefghijX", 8, "");
    propose(&l, "abcdefghijklmnop_abcdefghijXl", 8, "mno"); /* the place goes along with one other token */
    ln_lookup_close(&l);
    OK(ln_lookup_open(&l, 100, 64, err));
    propose(&l, "abcXabcYabc", 8, "Yabc"); /* the last place */
    propose(&l, "abababab", 8, "abab");
    ln_lookup_judge(&l, 4, 4);
    propose(&l, "ababababababa", 8, "babababa"); /* beyond the end of the text, as it goes on */
    ln_lookup_close(&l);
    propose(&l, "abababab", 8, "");
}

/* The more tokens are rejected in sequence, the longer nothing is proposed. */
static void rejected(void **state) {
    (void)state;
    int32_t ids[400], out[8];
    int64_t asked = 0, n_proposed = 0;
    ln_lookup l;
    OK(ln_lookup_open(&l, 400, 8, err));
    for (int64_t n = 0; n < 400; n++) {
        ids[n] = (int32_t)(n % 3);
        if (n < 6) continue;
        const int64_t k = ln_lookup_propose(&l, ids, n + 1, 8, out);
        asked++;
        n_proposed += k > 0;
        if (k > 0) ln_lookup_judge(&l, k, 0);
    }
    assert_true(n_proposed >= 10 && n_proposed <= asked / 10);
    ln_lookup_judge(&l, 1, 1);
    assert_true(ln_lookup_propose(&l, ids, 400, 8, out) == 0); /* until then */
    int32_t more[500];
    for (int i = 0; i < 500; i++) more[i] = i % 3;
    assert_true(ln_lookup_propose(&l, more, 440, 8, out) > 0);
    ln_lookup_close(&l);
}

/* ---- requests ---- */

static int64_t n_proposed, n_accepted; /* of all requests of a test */

static ln_eng *open_lookup(const ln_package *m, int threads, int chunk, int seqs, int n_lookup, int rows) {
    ln_eng *e;
    ln_run_options o = test_options(m, LN_DEVICE_AUTO, threads, chunk, seqs);
    o.n_ctx = LN_MIN(o.n_ctx, 128);
    o.n_prefault = o.n_ctx;
    o.n_lookup = n_lookup;
    o.n_logits = LN_MIN(o.n_chunk, rows);
    OK(ln_eng_open_with(&e, m, &o, err));
    return e;
}

/* Changes the prompt of a case so that it repeats itself. */
static void repeat_prompt(request_case *c, int i) {
    const int64_t period = 2 + i % 5;
    for (int64_t t = period; t < c->opt.n_ids; t++) c->ids[t] = c->ids[t - period];
    c->how.n_max = 1 + (i * 7) % 60;
    if (i % 2 == 0) c->how.temperature = 0.01 * i;
}

/* The cases of requests, as they are and with prompts that repeat themselves, are what they are alone without
 * lookup: one at a time and together, with space for many rows and for few. */
static void cases_are_the_same(void **state) {
    (void)state;
    static const char *const models[] = {QWEN, GEMMA, HYBRID};
    /* threads, n_chunk, n_seqs, n_lookup, n_logits */
    static const int forms[][5] = {{1, 64, 1, 8, 64}, {2, 16, 3, 5, 9}, {2, 128, 16, 64, 64}};
    n_proposed = n_accepted = 0;
    for (size_t k = 0; k < LN_COUNT(models); k += (size_t)fewer(1, 2)) {
        ln_package *m = open_package(models[k]);
        static alone_results a;
        ln_eng *plain = open_engine(m, 1, 1, 1);
        for (int i = 0; i < CASES; i++) {
            make_case(m, i, &a.cases[i]);
            if (i % 4 != 3) repeat_prompt(&a.cases[i], i);
            run_alone(plain, &a.cases[i].opt, &a.results[i]);
            assert_int_equal(a.results[i].metrics.proposed_tokens, 0);
        }
        ln_eng_close(&plain);
        for (size_t f = 0; f < LN_COUNT(forms); f += (size_t)fewer(1, 2)) {
            ln_eng *e = open_lookup(m, forms[f][0], forms[f][1], forms[f][2], forms[f][3], forms[f][4]);
            ln_req *r[CASES];
            for (int i = 0; i < CASES; i++) OK(ln_req_new(&r[i], e, &a.cases[i].opt, err));
            step_until_done(e, 5000);
            n_proposed += (int64_t)e->sched->stats.proposed_tokens;
            n_accepted += (int64_t)e->sched->stats.accepted_tokens;
            assert_all_alone(r, &a);
            assert_int_equal(ln_kv_count(e->kv).n_used, 0);
            ln_eng_close(&e);
        }
        free_results(&a);
        ln_package_close(&m);
    }
    print_message("%lld tokens proposed, %lld accepted\n", (long long)n_proposed, (long long)n_accepted);
    assert_true(n_accepted > 30 && n_proposed - n_accepted > 30);
}

/* Requests that are cancelled or freed while tokens are computed ahead change no other. */
static void others_are_cancelled(void **state) {
    (void)state;
    ln_package *m = open_package(GEMMA);
    static alone_results a;
    ln_eng *e = open_engine(m, 1, 1, 1);
    for (int i = 0; i < CASES; i++) {
        make_case(m, i, &a.cases[i]);
        repeat_prompt(&a.cases[i], i);
        run_alone(e, &a.cases[i].opt, &a.results[i]);
    }
    ln_eng_close(&e);
    e = open_lookup(m, 2, 64, 6, 8, 48);
    cancel_others(e, &a, (int)fewer(4, 1));
    ln_eng_close(&e);
    free_results(&a);
    ln_package_close(&m);
}

/* Runs a greedy request of a prompt of n tokens that repeat themselves, whose answer has three tokens alone.
 */
static void run_repeated(ln_eng *e, int64_t n, int64_t period, int64_t n_max, ln_result *out) {
    int32_t ids[600];
    ln_sampling how = {.size = sizeof how,
                       .n_max = n_max,
                       .repeat_penalty = 1,
                       .top_p = 1,
                       .ignore_eos = true,
                       .has_seed = true};
    static const ln_logit_bias bias[] = {{5, 50}, {6, 50}, {7, 50}};
    how.bias = bias, how.n_bias = 3;
    for (int64_t i = 0; i < n; i++) ids[i] = (int32_t)(5 + i % period);
    run_alone(e, &(ln_req_options){.ids = ids, .n_ids = n, .how = &how, .logprobs = true, .n_top = 2}, out);
}

/* An answer that grows to the end of the context, and beyond the length from which on the whole text has
 * other frequencies. */
static void to_the_end(void **state) {
    (void)state;
    static const char *const models[] = {GEMMA, LONG};
    for (size_t k = 0; k < LN_COUNT(models); k++) {
        ln_package *m = open_package(models[k]);
        const int64_t grows = ln_spec_rope_switch(&m->spec);
        assert_true(k == 0 || (grows > 20 && grows < 128));
        for (int64_t n = k == 0 ? 20 : 6; n < (k == 0 ? 128 : grows); n += k == 0 ? 36 : 1) {
            ln_result want, got;
            ln_eng *e = open_engine(m, 1, 128, 1);
            run_repeated(e, n, k == 0 ? 7 : 3, 500, &want);
            ln_eng_close(&e);
            e = open_lookup(m, 1, 128, 1, 16, 17);
            run_repeated(e, n, k == 0 ? 7 : 3, 500, &got);
            assert_same_result(&got, &want);
            assert_int_equal(got.n_ids, 128 - n + 1);
            ln_result_free(&got);
            ln_result_free(&want);
            ln_eng_close(&e);
        }
        ln_package_close(&m);
    }
}

/* Keys and values of tokens that were computed ahead serve later requests, those of rejected ones do not. */
static void beginnings_are_reused(void **state) {
    (void)state;
    static const char *const models[] = {QWEN, HYBRID};
    for (size_t k = 0; k < LN_COUNT(models); k++) {
        ln_package *m = open_package(models[k]);
        ln_eng *plain = open_engine(m, 1, 128, 1), *e = open_lookup(m, 1, 128, 1, 16, 17);
        ln_result first, want, got;
        run_repeated(e, 30, 7, 70, &first);
        assert_true(first.metrics.proposed_tokens > 0);
        assert_true(first.metrics.proposed_tokens >= first.metrics.accepted_tokens);
        int32_t ids[101];
        const ln_sampling how = {
            .size = sizeof how, .n_max = 20, .repeat_penalty = 1, .top_p = 1, .has_seed = true};
        memcpy(ids, first.prompt_ids, 30 * sizeof *ids);
        memcpy(ids + 30, first.ids, 70 * sizeof *ids);
        ids[100] = 9;
        const ln_req_options o = {.ids = ids, .n_ids = 101, .how = &how, .logprobs = true};
        run_alone(plain, &o, &want);
        run_alone(e, &o, &got);
        assert_int_equal(got.metrics.cached_tokens, 99);
        assert_same_result(&got, &want);
        ln_result_free(&first), ln_result_free(&want), ln_result_free(&got);
        ln_eng_close(&plain);
        ln_eng_close(&e);
        ln_package_close(&m);
    }
}

/* ---- texts ---- */

typedef struct text_case {
    const char *prompt, *grammar, *stop;
    double temperature, penalty;
    int64_t n_max;
} text_case;
static const text_case texts[] = {
    {.prompt = "One two three. One two three. One two", .n_max = 80},
    {.prompt = "Tell me", .grammar = "{\"regex\":\"(ab ab ab cd ){2,12}\"}", .n_max = 120},
    {.prompt = "Tell me",
     .grammar = "{\"schema\":{\"type\":\"array\",\"items\":{\"const\":\"hello there\"},\"minItems\":6,"
                "\"maxItems\":6}}",
     .n_max = 200},
    {.prompt = "Tell me",
     .grammar = "{\"schema\":{\"type\":\"array\",\"items\":{\"const\":\"hello there\"},\"minItems\":9}}",
     .penalty = 0.5,
     .temperature = 0.8,
     .n_max = 90},
    {.prompt = "Tell me", .grammar = "{\"choice\":[\"so so so so so so so so it is\"]}", .n_max = 100},
    {.prompt = "Tell me",
     .grammar = "{\"regex\":\"(yes no maybe ){20}\"}",
     .stop = "no maybe yes no maybe yes",
     .n_max = 99},
    {.prompt = "Tell me", .grammar = "{\"regex\":\"(yes no maybe ){20}\"}", .n_max = 37},
};

static void answer(ln_engine *e, const ln_model *model, const text_case *c, ln_result *out) {
    ln_sampling how = {.size = sizeof how};
    OK(ln_sampling_default(model, &how, err));
    how.temperature = c->temperature, how.presence_penalty = c->penalty;
    how.has_seed = true, how.seed = 11, how.n_max = c->n_max;
    if (c->grammar) how.grammar = c->grammar, how.grammar_bytes = strlen(c->grammar);
    const ln_prompt p = {.size = sizeof p, .text = c->prompt, .text_bytes = strlen(c->prompt)};
    const char *stops[1] = {c->stop};
    if (c->stop) how.stop = stops, how.n_stop = 1;
    *out = (ln_result){.size = sizeof *out};
    OK(ln_generate(e, &p, &how, NULL, NULL, out, err));
}

static void texts_are_the_same(void **state) {
    (void)state;
    ln_options o = {.size = sizeof o, .n_threads = 2, .n_ctx = 512};
    ln_model *model;
    ln_engine *plain, *e;
    int64_t accepted = 0, stopped = 0;
    OK(ln_model_open(&model, LN_ROOT "/models/tiny", &o, err));
    OK(ln_engine_open(&plain, model, &o, err));
    o.n_lookup = 12;
    OK(ln_engine_open(&e, model, &o, err));
    for (size_t i = 0; i < LN_COUNT(texts); i++) {
        ln_result want, got;
        answer(plain, model, &texts[i], &want);
        answer(e, model, &texts[i], &got);
        assert_same_result(&got, &want);
        accepted += got.metrics.accepted_tokens;
        stopped += got.stop_text >= 0;
        ln_result_free(&want);
        ln_result_free(&got);
    }
    ln_engine_stats s = {.size = sizeof s};
    OK(ln_engine_get_stats(e, &s, err));
    assert_int_equal(s.accepted_tokens, accepted);
    assert_true(accepted > 40 && stopped > 0 && s.proposed_tokens > s.accepted_tokens);
    ln_engine_close(&plain);
    ln_engine_close(&e);
    o.n_lookup = 65;
    FAILS(LN_EUSAGE, "n_lookup: expected at most 64", ln_engine_open(&e, model, &o, err));
    ln_model_close(&model);
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(places),
                                       cmocka_unit_test(rejected),
                                       cmocka_unit_test(cases_are_the_same),
                                       cmocka_unit_test(others_are_cancelled),
                                       cmocka_unit_test(to_the_end),
                                       cmocka_unit_test(beginnings_are_reused),
                                       cmocka_unit_test(texts_are_the_same)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
