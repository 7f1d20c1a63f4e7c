/* ln_evaluate: windows, strides and counted tokens as defined, the mean as transformers computes it, and the
 * same bits however many windows share a step. */
/* run: quick cuda */
#include "golden_ids.h"
#include "../common.h"
#include "class_cases.h"

#define GOLDEN LN_ROOT "/tests/golden/"
enum { N_TEXT = CLASS_N_TEXT };

static ln_model *model;
static ln_engine *engine;
static int32_t ids[N_TEXT];

static void open_model(const char *name, ln_options o) {
    char path[300];
    ln_info info = {.size = sizeof info};
    (void)snprintf(path, sizeof path, GOLDEN "%s", name);
    OK(ln_model_open(&model, path, &o, err));
    OK(ln_engine_open(&engine, model, &o, err));
    OK(ln_model_info(model, &info, err));
    make_ids(ids, N_TEXT, info.vocab_size, 99); /* the text of tools/golden_classify.py */
}

static void close_model(void) {
    ln_engine_close(&engine);
    ln_model_close(&model);
}

static ln_evaluation evaluate(size_t n, int64_t window, int64_t stride) {
    ln_evaluation out = {.size = sizeof out};
    OK(ln_evaluate(engine, ids, n, window, stride, &out, NULL, err));
    return out;
}

static void perplexity_is_that_of_transformers(void **state) {
    (void)state;
    for (size_t m = 0; m < LN_COUNT(class_cases); m++) {
        open_model(class_cases[m].model, (ln_options){.size = sizeof(ln_options),
                                                      .n_threads = 2,
                                                      .n_parallel = 3,
                                                      .n_logits = 8,
                                                      .n_chunk = 20});
        double worst = 0;
        for (int i = 0; i < CLASS_N_WINDOWS; i++) {
            ln_evaluation got = evaluate(N_TEXT, class_windows[i].window, class_windows[i].stride);
            assert_int_equal(got.tokens, N_TEXT);
            assert_int_equal(got.counted, class_cases[m].counted[i]);
            assert_int_equal(got.window, class_windows[i].window);
            assert_int_equal(got.stride, class_windows[i].stride);
            /* the error of a mean is at most that of one term */
            worst = LN_MAX(worst, fabs(got.nll - class_cases[m].nll[i]));
            assert_true(fabs(got.perplexity - exp(got.nll)) <= 4 * 0x1p-52 * got.perplexity);
        }
        print_message("%s: %.2g of the bound\n", class_cases[m].model, worst / class_cases[m].bound);
        assert_true(worst <= class_cases[m].bound);
        close_model();
    }
}

/* ---- the definition, window by window, by ln_score ---- */

typedef struct part {
    int64_t from;
    double sum;
    int64_t n;
} part;

static ln_status on_row(void *user, int64_t t, double logprob, const ln_top *top, size_t n_top,
                        const float *logits, int64_t n_vocab, ln_error *err) {
    part *p = user;
    (void)top, (void)n_top, (void)logits, (void)n_vocab, (void)err;
    if (t >= p->from && t > 0) p->sum += logprob, p->n++;
    return LN_OK;
}

static double by_definition(int64_t n, int64_t window, int64_t stride, int64_t *counted) {
    double sum = 0;
    int64_t seen = 0; /* tokens that a window before has */
    *counted = 0;
    for (int64_t begin = 0; seen < n; begin += stride) {
        int64_t end = LN_MIN(begin + window, n);
        part p = {.from = seen - begin};
        OK(ln_score(engine, ids + begin, (size_t)(end - begin), 0, on_row, &p, NULL, err));
        sum += p.sum;
        *counted += p.n;
        seen = end;
    }
    return -sum / (double)*counted;
}

static void windows_are_as_defined(void **state) {
    (void)state;
    static const int64_t cases[][3] = {{100, 32, 16}, {100, 32, 32}, {97, 32, 16}, {96, 32, 32},
                                       {97, 32, 32},  {100, 30, 7},  {100, 3, 1},  {100, 2, 2},
                                       {2, 64, 32},   {33, 32, 1},   {64, 64, 64}, {65, 64, 64}};
    open_model("gemma3-text-bf16", (ln_options){.size = sizeof(ln_options),
                                                .n_threads = 2,
                                                .n_parallel = 4,
                                                .n_logits = 8,
                                                .n_chunk = 24,
                                                .n_ctx = 64});
    for (size_t i = 0; i < LN_COUNT(cases); i++) {
        const int64_t *c = cases[i];
        int64_t counted;
        double nll = by_definition(c[0], c[1], c[2], &counted);
        ln_evaluation got = evaluate((size_t)c[0], c[1], c[2]);
        assert_int_equal(got.counted, counted);
        assert_memory_equal(&got.nll, &nll, sizeof nll);
    }
    close_model();
}

static void schedules_do_not_change_it(void **state) {
    (void)state;
    static const ln_options options[] = {{.size = sizeof(ln_options),
                                          .n_threads = 1,
                                          .n_parallel = 1,
                                          .n_logits = 1,
                                          .n_chunk = 7,
                                          .n_ctx = 40},
                                         {.size = sizeof(ln_options),
                                          .n_threads = 2,
                                          .n_parallel = 8,
                                          .n_logits = 64,
                                          .n_chunk = 64,
                                          .n_ctx = 40},
                                         {.size = sizeof(ln_options),
                                          .n_threads = 3,
                                          .n_parallel = 3,
                                          .n_logits = 5,
                                          .n_chunk = 33,
                                          .n_ctx = 64}};
    ln_evaluation first = {0};
    for (size_t i = 0; i < LN_COUNT(options); i++) {
        open_model("gemma3-text-f16", options[i]);
        ln_evaluation got = evaluate(N_TEXT, 40, 9), again = evaluate(N_TEXT, 40, 9);
        assert_memory_equal(&got.nll, &again.nll, sizeof got.nll);
        if (i == 0) first = got;
        assert_memory_equal(&got.nll, &first.nll, sizeof got.nll);
        close_model();
    }
}

/* A text that repeats itself: windows begin with the same tokens, which the prefix cache holds. */
static void a_repeating_text_reuses_what_it_may(void **state) {
    (void)state;
    open_model("gemma3-text-bf16",
               (ln_options){
                   .size = sizeof(ln_options), .n_threads = 2, .n_parallel = 2, .n_logits = 16, .n_ctx = 80});
    for (int i = 10; i < N_TEXT; i++) ids[i] = ids[i % 10];
    int64_t counted;
    double nll = by_definition(N_TEXT, 80, 10, &counted);
    ln_evaluation got = evaluate(N_TEXT, 80, 10);
    assert_memory_equal(&got.nll, &nll, sizeof nll);
    close_model();
}

static void defaults(void **state) {
    (void)state;
    open_model("llama-plain-f32", (ln_options){.size = sizeof(ln_options), .n_threads = 1, .n_ctx = 51});
    ln_evaluation got = evaluate(N_TEXT, 0, 0);
    assert_true(got.window == 51 && got.stride == 25);
    got = evaluate(N_TEXT, 1000, 0); /* cut to the context */
    assert_true(got.window == 51 && got.stride == 25);
    struct {
        ln_evaluation out;
        char behind[8];
    } small = {.out = {.size = offsetof(ln_evaluation, window)}}, untouched = small;
    OK(ln_evaluate(engine, ids, N_TEXT, 0, 0, &small.out, NULL, err)); /* an older caller's struct */
    assert_memory_equal(&small.out.nll, &got.nll, sizeof got.nll);
    assert_memory_equal(&small.out.window, &untouched.out.window,
                        sizeof small - offsetof(ln_evaluation, window));
    close_model();
}

static void bad_calls_are_refused(void **state) {
    (void)state;
    ln_evaluation out = {.size = sizeof out};
    ln_metrics m;
    open_model("llama-plain-f32", (ln_options){.size = sizeof(ln_options), .n_threads = 1, .n_ctx = 64});
    FAILS(LN_EINVALID, "1 token", ln_evaluate(engine, ids, 1, 0, 0, &out, NULL, err));
    FAILS(LN_EINVALID, "0 tokens", ln_evaluate(engine, NULL, 0, 0, 0, &out, NULL, err));
    FAILS(LN_EUSAGE, "window", ln_evaluate(engine, ids, N_TEXT, 1, 1, &out, NULL, err));
    FAILS(LN_EUSAGE, "stride", ln_evaluate(engine, ids, N_TEXT, 32, 33, &out, NULL, err));
    FAILS(LN_EUSAGE, "stride", ln_evaluate(engine, ids, N_TEXT, 1000, 65, &out, NULL, err));
    FAILS(LN_EUSAGE, "negative", ln_evaluate(engine, ids, N_TEXT, -1, 0, &out, NULL, err));
    FAILS(LN_EUSAGE, "negative", ln_evaluate(engine, ids, N_TEXT, 0, -1, &out, NULL, err));
    FAILS(LN_EUSAGE, "NULL", ln_evaluate(engine, ids, N_TEXT, 0, 0, NULL, NULL, err));
    FAILS(LN_EUSAGE, "NULL", ln_evaluate(engine, NULL, N_TEXT, 0, 0, &out, NULL, err));
    out.size = 4;
    FAILS(LN_EUSAGE, "size", ln_evaluate(engine, ids, N_TEXT, 0, 0, &out, NULL, err));
    out.size = sizeof out;
    ids[70] = 9999;
    FAILS(LN_EINVALID, "token 70 is 9999", ln_evaluate(engine, ids, N_TEXT, 0, 0, &out, NULL, err));
    ids[70] = 5;
    ln_cancel(engine, true);
    FAILS(LN_ECANCELLED, "", ln_evaluate(engine, ids, N_TEXT, 0, 0, &out, NULL, err));
    ln_cancel(engine, false);
    OK(ln_evaluate(engine, ids, N_TEXT, 0, 0, &out, &m, err));
    assert_int_equal(m.prompt_tokens, 64 + 64 + 36); /* windows at 0, 32 and 64 */
    assert_true(m.prefill_seconds > 0);
    close_model();
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(perplexity_is_that_of_transformers),
                                       cmocka_unit_test(windows_are_as_defined),
                                       cmocka_unit_test(schedules_do_not_change_it),
                                       cmocka_unit_test(a_repeating_text_reuses_what_it_may),
                                       cmocka_unit_test(defaults),
                                       cmocka_unit_test(bad_calls_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
