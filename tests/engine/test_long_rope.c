/* LongRoPE while a text grows: an answer that passes the original context is computed again with the other
 * frequencies, as in transformers. Every token is the one that a fresh request for the text so far chooses,
 * with the same log-probability to the bit: alone and among others, in a pool for one text alone, and with
 * what earlier answers left for reuse. */
/* run: quick asan cuda */
#include "../common.h"

#include <string.h>

#define MODEL LN_ROOT "/tests/golden/families/phi3-long-partial-bf16"
enum { FROM = 24, N_NEW = 30, MOST = 4, CONTEXT = 96 };

static ln_package *model;
static int open_model(void **state) {
    (void)state;
    OK(ln_package_open(&model, MODEL, &(ln_options){0}, err));
    assert_int_equal(ln_spec_rope_switch(&model->spec), FROM);
    return 0;
}
static int close_model(void **state) {
    (void)state;
    ln_package_close(&model);
    return 0;
}

static ln_eng *engine(int seqs, uint64_t kv_bytes) {
    const ln_options o = {.n_chunk = 16,
                          .n_parallel = seqs,
                          .n_logits = 8,
                          .n_threads = 2,
                          .n_ctx = CONTEXT,
                          .kv_bytes = kv_bytes};
    ln_run_options r;
    ln_eng *e;
    OK(ln_eng_options(model, &o, &r, err));
    r.page_len = 32;
    OK(ln_eng_open_with(&e, model, &r, err));
    return e;
}

static ln_req *ask(ln_eng *e, const int32_t *ids, int64_t n, int64_t n_new, bool no_cache) {
    const ln_sampling how = {.top_p = 1, .repeat_penalty = 1, .n_max = n_new, .ignore_eos = true};
    const ln_prompt p = {.ids = ids, .n_ids = (size_t)n};
    const ln_req_options o = {.how = &how, .logprobs = true, .no_cache = no_cache};
    ln_req *r;
    OK(ln_eng_request(&r, e, &p, &o, err));
    return r;
}
static ln_result answer_of(ln_req *r) {
    ln_result out = {0};
    OK(ln_req_wait(r, err));
    OK(ln_req_result(r, &out, err));
    ln_req_free(&r);
    return out;
}
static void free_answer(ln_result *r) {
    ln_free(r->ids), ln_free(r->prompt_ids), ln_free(r->text), ln_free(r->reasoning);
    ln_free(r->logprobs), ln_free(r->top);
}

static void make_prompt(int32_t *ids, int64_t n, int salt) {
    for (int64_t i = 0; i < n; i++) ids[i] = (int32_t)(1 + (i * i + i * 7 + salt * 31) % 250);
}

/* Compares each token of an answer with that of a fresh request for the text before it. */
static void check(const int32_t *prompt, int64_t n, const ln_result *got) {
    int32_t ids[128];
    ln_eng *fresh = engine(1, 0);
    assert_int_equal(got->n_ids, N_NEW);
    memcpy(ids, prompt, (size_t)n * sizeof *ids);
    memcpy(ids + n, got->ids, N_NEW * sizeof *ids);
    for (int64_t i = 0; i < N_NEW; i++) {
        ln_result one = answer_of(ask(fresh, ids, n + i, 1, true));
        if (one.ids[0] != got->ids[i] || memcmp(one.logprobs, &got->logprobs[i], sizeof *one.logprobs) != 0)
            fail_msg("prompt of %lld, token %lld: %d with %.17g, of a fresh request %d with %.17g",
                     (long long)n, (long long)i, got->ids[i], got->logprobs[i], one.ids[0], one.logprobs[0]);
        free_answer(&one);
    }
    ln_eng_close(&fresh);
}

static const int64_t lengths[] = {1, 10, FROM - 1, FROM, FROM + 1, 40};

static void alone_and_after_others(void **state) {
    int32_t ids[64];
    int64_t reused = 0;
    (void)state;
    ln_eng *e = engine(1, 0); /* its pool keeps what was computed */
    for (int again = 0; again < 2; again++)
        for (size_t i = 0; i < LN_COUNT(lengths); i++) {
            make_prompt(ids, lengths[i], 0);
            ln_result got = answer_of(ask(e, ids, lengths[i], N_NEW, false));
            check(ids, lengths[i], &got);
            assert_int_equal(got.metrics.prompt_tokens, lengths[i]);
            assert_int_equal(got.metrics.generated_tokens, N_NEW);
            reused += got.metrics.cached_tokens;
            free_answer(&got);
        }
    assert_true(reused > 0);
    ln_eng_close(&e);
}

/* Several answers that pass the original context at different steps, in a pool of any size. */
static void check_crowd(uint64_t kv_bytes) {
    int32_t ids[MOST][64];
    ln_req *r[MOST];
    ln_eng *e = engine(MOST, kv_bytes);
    for (int i = 0; i < MOST; i++) {
        make_prompt(ids[i], lengths[i], i + 1);
        r[i] = ask(e, ids[i], lengths[i], N_NEW, false);
    }
    for (int i = 0; i < MOST; i++) {
        ln_result got = answer_of(r[i]);
        check(ids[i], lengths[i], &got);
        free_answer(&got);
    }
    ln_eng_close(&e);
}
static void among_others(void **state) {
    (void)state;
    ln_eng *e = engine(1, 0);
    const uint64_t one = (uint64_t)e->run->sizes.n_pages * (uint64_t)e->run->kv.page_bytes;
    ln_eng_close(&e);
    check_crowd(0);
    check_crowd(one); /* the answers wait for each other */
}

/* An answer that is cancelled after it was computed again ends as any other. */
static void cancelled(void **state) {
    int32_t ids[64];
    (void)state;
    ln_eng *e = engine(2, 0);
    make_prompt(ids, FROM - 1, 5);
    for (int i = 0; i < 20; i++) {
        ln_req *r = ask(e, ids, FROM - 1, N_NEW, false);
        ln_req_free(&r);
    }
    ln_result got = answer_of(ask(e, ids, FROM - 1, N_NEW, false));
    check(ids, FROM - 1, &got);
    free_answer(&got);
    assert_int_equal(ln_kv_count(e->kv).n_used, 0);
    ln_eng_close(&e);
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(alone_and_after_others),
                                       cmocka_unit_test(among_others), cmocka_unit_test(cancelled)};
    return cmocka_run_group_tests_name("long_rope", tests, open_model, close_model);
}
