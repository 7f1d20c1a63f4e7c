/* Random requests, and what each of them gives alone: shared by the tests of requests and of the scheduler.
 */
#ifndef LN_REQUEST_CASES_H
#define LN_REQUEST_CASES_H

#include "../common.h"

#include <math.h>
#include <string.h>

#define GEMMA LN_ROOT "/tests/golden/gemma3-text-bf16" /* has windows */
#define QWEN  LN_ROOT "/tests/golden/qwen3-sharded-bf16"

enum { CASES = 16, LONGEST = 60, TOP = 3 };

/* One request. */
typedef struct request_case {
    int32_t ids[LONGEST];
    ln_sampling how;
    ln_req_options opt;
} request_case;

static ln_package *open_package(const char *path) {
    ln_package *m;
    ln_options o = {.size = sizeof(ln_options), .n_threads = 2};
    OK(ln_package_open(&m, path, &o, err));
    return m;
}

static ln_eng *open_engine(const ln_package *m, int threads, int chunk, int seqs) {
    ln_eng *e;
    ln_run_options o = test_options(m, LN_DEVICE_AUTO, threads, chunk, seqs);
    o.n_ctx = LN_MIN(o.n_ctx, 128);
    o.n_prefault = o.n_ctx;
    OK(ln_eng_open_with(&e, m, &o, err));
    return e;
}

/* Fills in request number i: prompts of all lengths, every kind of sampling, log-probabilities in some. */
static void make_case(const ln_package *m, int i, request_case *c) {
    static const ln_logit_bias bias[] = {{5, 2.0f}, {9, -INFINITY}};
    uint64_t state = 77 + (uint64_t)i;
    ln_package_sampling(m, &c->how);
    c->how.temperature = i % 3 == 0 ? 0 : 0.7 + 0.1 * i;
    c->how.top_k = i % 4 == 1 ? 20 : 0;
    c->how.top_p = i % 5 == 2 ? 0.9 : 1;
    c->how.repeat_penalty = i % 4 == 3 ? 1.3 : 1;
    if (i % 6 == 5) c->how.bias = bias, c->how.n_bias = 2;
    if (i % 7 == 4) c->how.presence_penalty = 0.5, c->how.frequency_penalty = 0.25;
    if (i % 7 == 6) c->how.no_repeat_ngram = 2, c->how.min_new = 3;
    c->how.has_seed = true;
    c->how.seed = (uint64_t)i * 17;
    c->how.ignore_eos = i % 2 == 0;
    c->how.n_max = 1 + test_random(&state) % 24;
    c->opt = (ln_req_options){.ids = c->ids,
                              .n_ids = 1 + test_random(&state) % LONGEST,
                              .how = &c->how,
                              .logprobs = i % 2 == 1,
                              .n_top = TOP,
                              .prompt_logprobs = i % 8 == 3};
    for (int64_t t = 0; t < c->opt.n_ids; t++) c->ids[t] = (int32_t)(test_random(&state) % m->spec.V);
}

static bool same(const void *a, const void *b, size_t bytes) {
    return bytes == 0 || memcmp(a, b, bytes) == 0;
}

/* Asserts that two results are equal in every bit but the times. */
static void assert_same_result(const ln_result *a, const ln_result *b) {
    assert_int_equal(a->n_ids, b->n_ids);
    assert_int_equal(a->finish, b->finish);
    assert_int_equal(a->seed, b->seed);
    assert_int_equal(a->stop_id, b->stop_id);
    assert_int_equal(a->stop_text, b->stop_text);
    assert_true(same(a->ids, b->ids, a->n_ids * sizeof *a->ids));
    assert_string_equal(a->text, b->text);
    assert_true((a->logprobs != NULL) == (b->logprobs != NULL) &&
                (a->prompt_logprobs != NULL) == (b->prompt_logprobs != NULL));
    const size_t n = a->n_ids, k = a->n_top;
    if (a->logprobs) {
        assert_true(same(a->logprobs, b->logprobs, n * sizeof(double)));
        for (size_t i = 0; i < n * k; i++)
            assert_true(a->top[i].id == b->top[i].id && a->top[i].logprob == b->top[i].logprob);
    }
    if (a->prompt_logprobs) {
        assert_true(isnan(a->prompt_logprobs[0]) && isnan(b->prompt_logprobs[0]));
        assert_true(same(a->prompt_logprobs + 1, b->prompt_logprobs + 1,
                         (a->n_prompt_ids - 1) * sizeof(double)));
        for (size_t i = k; i < a->n_prompt_ids * k; i++)
            assert_true(a->prompt_top[i].id == b->prompt_top[i].id &&
                        a->prompt_top[i].logprob == b->prompt_top[i].logprob);
    }
}

/* Runs one request on an engine that nothing else uses. */
static void run_alone(ln_eng *e, const ln_req_options *opt, ln_result *out) {
    ln_req *r;
    OK(ln_req_new(&r, e, opt, err));
    OK(ln_req_wait(r, err));
    OK(ln_req_result(r, out, err));
    ln_req_free(&r);
}

/* Every case, and its result alone: one row a step on one thread. */
typedef struct alone_results {
    request_case cases[CASES];
    ln_result results[CASES];
} alone_results;

static void run_all_alone(const ln_package *m, alone_results *a) {
    ln_eng *e = open_engine(m, 1, 1, 1);
    for (int i = 0; i < CASES; i++) {
        make_case(m, i, &a->cases[i]);
        run_alone(e, &a->cases[i].opt, &a->results[i]);
    }
    ln_eng_close(&e);
}

static void free_results(alone_results *a) {
    for (int i = 0; i < CASES; i++) ln_result_free(&a->results[i]);
}

/* Steps the engine until no request is left; fails after `most` steps. */
static void step_until_done(ln_eng *e, int most) {
    size_t left = 1;
    for (int i = 0; left > 0; i++) {
        assert_true(i < most);
        OK(ln_driver_step(e->sched, &left, err));
    }
}

/* Each of the requests, which have finished, gave what it gives alone; frees them. */
static void assert_all_alone(ln_req *r[CASES], const alone_results *a) {
    for (int i = 0; i < CASES; i++) {
        ln_result got;
        OK(ln_req_result(r[i], &got, err));
        assert_same_result(&got, &a->results[i]);
        ln_result_free(&got);
        ln_req_free(&r[i]);
    }
}

#endif
