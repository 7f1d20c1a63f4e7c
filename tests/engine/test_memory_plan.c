/* The size of the KV pool: a context for each sequence, reduced to ln_options.kv_bytes and to what the limit
 * leaves, never less than one context. */
/* run: quick */
#include "../common.h"
#include "engine/memory_plan.h"
#include "engine/scheduler.h"

#include <malloc.h>

#define LONG LN_ROOT "/tests/golden/llama-long-bf16" /* 32,768 positions, no window */
#define GEMMA \
    LN_ROOT "/tests/golden/gemma3-long-bf16" /* 32,768 positions, a window of 512 on some layers \
                                              */

enum { CTX = 32768 };

static ln_package *opened(const char *path) {
    ln_package *m;
    OK(ln_package_open(&m, path, &(ln_options){.n_threads = 2}, err));
    return m;
}

static ln_plan plan_of(const ln_package *m, const ln_options *o) {
    ln_plan p;
    OK(ln_eng_plan(m, o, &p, err));
    assert_int_equal(p.peak_bytes,
                     p.weights_bytes + p.kv_bytes + p.activation_bytes + p.text_bytes + p.other_bytes);
    return p;
}

static ln_options of(int n_parallel, uint64_t kv_bytes) {
    return (ln_options){
        .n_threads = 2, .n_chunk = 256, .n_ctx = CTX, .n_parallel = n_parallel, .kv_bytes = kv_bytes};
}

static void test_kv_bytes(void **state) {
    (void)state;
    static const char *const models[] = {LONG, GEMMA};
    for (size_t i = 0; i < LN_COUNT(models); i++) {
        ln_package *m = opened(models[i]);
        ln_options o = of(1, 0);
        const uint64_t one = plan_of(m, &o).kv_bytes;
        o = of(3, 0);
        ln_plan p = plan_of(m, &o);
        assert_int_equal(p.kv_bytes, 3 * one); /* tiny compared with half of any machine's memory */
        assert_int_equal(p.n_contexts, 3);
        assert_int_equal(p.n_parallel, 3);
        o = of(256, 2 * one + one / 2);
        p = plan_of(m, &o);
        assert_true(p.kv_bytes <= o.kv_bytes && p.kv_bytes > 2 * one);
        assert_int_equal(p.n_contexts, 2);
        o = of(2, 100 * one); /* more than the sequences can use */
        assert_int_equal(plan_of(m, &o).kv_bytes, 2 * one);
        o = of(1, 100 * one);
        assert_int_equal(plan_of(m, &o).kv_bytes, one);
        ln_package_close(&m);
    }
}

/* Less than one context is rejected, in the plan and when an engine is opened; the context that the message
 * names fits. */
static void test_less_than_a_context(void **state) {
    (void)state;
    ln_package *m = opened(LONG);
    ln_options o = of(2, 0);
    const uint64_t one = plan_of(m, &o).kv_bytes / 2;
    o.kv_bytes = one;
    assert_int_equal(plan_of(m, &o).n_contexts, 1);
    o.kv_bytes = one - 1;
    ln_plan p;
    ln_eng *e;
    ln_error said = {0};
    assert_int_equal(ln_eng_plan(m, &o, &p, &said), LN_EMEMORY);
    assert_non_null(strstr(said.message, "ln_options.kv_bytes"));
    FAILS(LN_EMEMORY, "less than the KV pages of one context of 32768 positions",
          ln_eng_open(&e, m, &o, err));
    const char *at = strstr(said.message, "ln_options.n_ctx ");
    assert_non_null(at);
    o.n_ctx = strtol(at + 17, NULL, 10);
    assert_int_equal(o.n_ctx, CTX - 64); /* one page less */
    OK(ln_eng_open(&e, m, &o, err));
    ln_eng_close(&e);
    o.kv_bytes = 1;
    o.n_ctx = CTX;
    FAILS(LN_EMEMORY, "no ln_options.n_ctx is small enough", ln_eng_plan(m, &o, &p, err));
    ln_package_close(&m);
}

/* A limit that the caller set may be used up, except for the reserve of 1 MiB; without one an engine takes
 * half of what the machine leaves, so a second one fits as well. */
static void test_what_the_limit_leaves(void **state) {
    (void)state;
    if (getenv("LN_SANITIZED")) skip(); /* a sanitizer's own memory counts, and grows */
    ln_package *m = opened(LONG);
    ln_options o = of(1, 0);
    const ln_plan one = plan_of(m, &o);
    o = of(4096, 0);
    o.n_logits = 8;
    ln_plan p = plan_of(m, &o);
    assert_true(p.fits);
    if (p.n_contexts < 4096) {
        const uint64_t rest = p.peak_bytes - p.kv_bytes, left = p.available_bytes - rest - one.kv_bytes;
        assert_true(p.kv_bytes <= one.kv_bytes + left / 2 && p.kv_bytes > left / 4);
    }
    o.kv_bytes = 5 * one.kv_bytes;
    o.memory_bytes = plan_of(m, &o).peak_bytes + (3 << 19);
    o.kv_bytes = 0;
    p = plan_of(m, &o);
    assert_string_equal(p.limit, "ln_options.memory_bytes");
    assert_true(p.fits && p.peak_bytes <= o.memory_bytes);
    assert_int_equal(p.n_contexts, 5);
    OK(ln_eng_largest(m, &o, &p, err));
    assert_int_equal(p.largest_ctx, CTX); /* the model's maximum: the pool holds fewer contexts then */
    o.kv_bytes = one.kv_bytes;            /* the least */
    o.memory_bytes = 0;
    o.memory_bytes = plan_of(m, &o).peak_bytes - one.kv_bytes / 2;
    o.kv_bytes = 0;
    p = plan_of(m, &o);
    assert_false(p.fits);
    assert_int_equal(p.kv_bytes, one.kv_bytes);
    OK(ln_eng_largest(m, &o, &p, err));
    assert_true(p.largest_ctx > 0 && p.largest_ctx < CTX);
    o.n_ctx = p.largest_ctx;
    assert_true(plan_of(m, &o).fits);
    ln_package_close(&m);
}

/* If no context fits, fewer rows a step or fewer sequences are advised, and they fit. */
static void test_advice_for_many_sequences(void **state) {
    (void)state;
    if (getenv("LN_SANITIZED")) skip(); /* a sanitizer's own memory counts, and grows */
    ln_package *m = opened(LONG);
    ln_options o = of(1, 0);
    o.n_ctx = 256;
    o.memory_bytes = plan_of(m, &o).peak_bytes + (2 << 20);
    o.n_parallel = 4096;
    ln_eng *e;
    ln_error said = {0};
    assert_int_equal(ln_eng_open(&e, m, &o, &said), LN_EMEMORY);
    const char *at = strstr(said.message, "; ln_options.n_parallel ");
    if (!at) fail_msg("no advice: %s", said.message);
    o.n_parallel = (int)strtol(at + 24, NULL, 10);
    assert_true(o.n_parallel > 1 && o.n_parallel < 4096);
    at = strstr(said.message, "ln_options.n_ctx ");
    assert_non_null(at);
    o.n_ctx = strtol(at + 17, NULL, 10);
    if (strstr(said.message, "ln_options.n_chunk 32")) o.n_chunk = 32;
    OK(ln_eng_open(&e, m, &o, err));
    ln_eng_close(&e);
    ln_package_close(&m);
}

/* 256 sequences of 32k positions each open in a pool of a few MB; the process then holds no more than the
 * plan says. */
static void test_many_long_sequences_open(void **state) {
    (void)state;
    static const char *const models[] = {LONG, GEMMA};
    for (size_t i = 0; i < LN_COUNT(models); i++) {
        ln_package *m = opened(models[i]);
        ln_options o = of(1, 0);
        o = of(256, 2 * plan_of(m, &o).kv_bytes);
        ln_plan p = plan_of(m, &o);
        ln_eng *e;
        OK(ln_eng_open(&e, m, &o, err));
        assert_int_equal(e->run->sizes.kv_bytes, p.kv_bytes);
        assert_int_equal(e->run->sizes.n_pages, 2 * e->run->sizes.seq_pages);
        assert_true(e->run->sizes.ready_bytes <= p.kv_bytes);
        assert_true(ln_memory_resident() <= p.peak_bytes);
        ln_eng_close(&e);
        ln_package_close(&m);
    }
}

/* ---- records of requests ---- */

static uint64_t taken(const ln_req *r) {
    return sizeof *r + r->all.cap * sizeof *r->all.data + r->cap_events * sizeof *r->events +
           r->cap_logprobs * sizeof *r->logprobs + r->cap_top * sizeof *r->top +
           r->answer.cap_ends * sizeof *r->answer.ends + r->text.cap + r->reasoning.cap + r->arena.total +
           (r->prompt_logprobs
                ? (size_t)r->opt.n_ids * (sizeof(double) + (size_t)r->opt.n_top * sizeof(ln_top))
                : 0);
}

/* What a request takes is at most what was counted for it, and that is counted off again. */
static void test_records_are_counted(void **state) {
    (void)state;
    ln_package *m = opened(LONG);
    ln_options o = {.n_threads = 2, .n_ctx = 1024};
    ln_eng *e;
    int32_t ids[300];
    const ln_sampling how = {.top_p = 1, .repeat_penalty = 1, .n_max = 700, .ignore_eos = true};
    for (int i = 0; i < 300; i++) ids[i] = 1 + i % 200;
    OK(ln_eng_open(&e, m, &o, err));
    for (int i = 0; i < 6; i++) {
        const ln_req_options opt = {.ids = ids,
                                    .n_ids = i % 2 ? 300 : 1,
                                    .how = i == 5 ? NULL : &how,
                                    .logprobs = i >= 2,
                                    .n_top = i >= 3 ? 20 : 0,
                                    .prompt_logprobs = i >= 4};
        ln_req *r;
        OK(ln_req_new(&r, e, &opt, err));
        OK(ln_req_wait(r, err));
        if (taken(r) > r->bytes)
            fail_msg("case %d: %llu bytes, counted were %llu", i, (unsigned long long)taken(r),
                     (unsigned long long)r->bytes);
        assert_int_equal(e->sched->request_bytes, r->bytes);
        ln_req_free(&r);
        assert_int_equal(e->sched->request_bytes + e->sched->request_untouched, 0);
    }
    ln_eng_close(&e);
    ln_package_close(&m);
}

/* Requests that wait are in the plan; beyond it a request is rejected if the limit leaves too little, and
 * accepted again when others are gone. */
static void test_the_limit_holds_for_requests(void **state) {
    (void)state;
    ln_package *m = opened(LONG);
    ln_options o = of(1, 0);
    ln_plan none = plan_of(m, &o);
    o.n_queue = 50;
    const uint64_t each = sizeof(ln_req) + CTX * 4;
    assert_in_range(plan_of(m, &o).other_bytes - none.other_bytes, 50 * each, 50 * each + (64 << 10));
    o.n_queue = 0;
    o.memory_bytes = none.peak_bytes + (8 << 20);
    ln_eng *e;
    OK(ln_eng_open(&e, m, &o, err));
    enum { MOST = 4096 };
    static int32_t ids[CTX];
    static ln_req *r[MOST];
    int n = 0;
    ln_status st = LN_OK;
    for (int i = 0; i < CTX; i++) ids[i] = 1 + i % 200;
    const ln_req_options opt = {.ids = ids, .n_ids = CTX - 1, .how = &(ln_sampling){.n_max = 1, .top_p = 1}};
    ln_error why = {0};
    while (n < MOST && (st = ln_req_new(&r[n], e, &opt, &why)) == LN_OK) n++;
    assert_int_equal(st, LN_EMEMORY);
    assert_non_null(strstr(why.message, "ln_options.memory_bytes"));
    assert_in_range(n, 20, (o.memory_bytes >> 17) + 1); /* 128 kB each */
    if (ln_memory_resident() > o.memory_bytes)
        fail_msg("%d requests: %llu of %llu bytes", n, (unsigned long long)ln_memory_resident(),
                 (unsigned long long)o.memory_bytes);
    for (int i = n / 2; i < n; i++) ln_req_free(&r[i]);
    OK(ln_req_new(&r[n / 2], e, &opt, err));
    for (int i = 0; i <= n / 2; i++) ln_req_free(&r[i]);
    assert_int_equal(e->sched->request_bytes, 0);
    ln_eng_close(&e);
    ln_package_close(&m);
}

/* The pool without a limit: half of the host's memory or of a shared GPU, 90 % of a GPU alone. */
static void test_the_share_of_a_gpu(void **state) {
    (void)state;
    const uint64_t gb = (uint64_t)1 << 30;
    assert_true(ln_pool_share(8 * gb, 3 * gb, 0, 0) == 4 * gb);
    assert_true(ln_pool_share(60 * gb, 19 * gb, 80 * gb, 79 * gb + gb / 2) == 53 * gb);
    assert_true(ln_pool_share(2 * gb, 70 * gb, 80 * gb, 80 * gb) == 2 * gb);   /* no more than is left */
    assert_true(ln_pool_share(7 * gb, 73 * gb, 80 * gb, 80 * gb) == 0);        /* 90 % are in use */
    assert_true(ln_pool_share(60 * gb, 10 * gb, 80 * gb, 70 * gb) == 30 * gb); /* others hold 10 */
}

/* Grammars and matchers of requests that wait are counted: they never take more than that, a request is
 * rejected if the limit leaves too little for one, and nothing is left when they are closed. */
static void test_grammars_of_waiting_requests(void **state) {
    (void)state;
    static const char grammar[] = "{\"prose\":[{\"after\":[\"<tool_call>\"],\"then\":{\"schema\":{\"type\":"
                                  "\"object\",\"properties\":{\"a\":{"
                                  "\"type\":\"string\",\"maxLength\":400},\"b\":{\"type\":\"array\","
                                  "\"items\":{\"type\":\"integer\"}}}}}}]}";
    enum { MOST = 256, MORE = 96 << 20 };
    static ln_req *r[MOST];
    ln_package *m = opened(LONG);
    ln_options o = of(1, 0);
    const ln_plan none = plan_of(m, &o);
    const ln_sampling how = {.n_max = 1, .top_p = 1, .grammar = grammar, .grammar_bytes = sizeof grammar - 1};
    const int32_t id = 1;
    const ln_req_options opt = {.ids = &id, .n_ids = 1, .how = &how, .prose = true};
    ln_eng *e;
    ln_error why = {0};
    ln_status st = LN_OK;
    uint64_t counted = 0;
    int n = 0;
    o.memory_bytes = none.peak_bytes + MORE;
    OK(ln_eng_open(&e, m, &o, err));
    OK(ln_req_new(&r[0], e, &opt, err)); /* the engine keeps the vocabulary that this makes */
    ln_req_free(&r[0]);
    const size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
    while (n < MOST && (st = ln_req_new(&r[n], e, &opt, &why)) == LN_OK) counted += r[n++]->bytes;
    assert_int_equal(st, LN_EMEMORY);
    assert_non_null(strstr(why.message, "ln_options.memory_bytes"));
    assert_int_equal(e->sched->request_bytes, counted);
    assert_true(n >= 4 && (uint64_t)n <= 1 + (uint64_t)MORE * 2 / ln_matcher_bytes(m->spec.V));
    const size_t after = mallinfo2().uordblks + mallinfo2().hblkhd;
    if (after - before > counted)
        fail_msg("%d requests take %zu bytes, counted were %llu", n, after - before,
                 (unsigned long long)counted);
    for (int i = 0; i < n; i++) ln_req_free(&r[i]);
    assert_int_equal(e->sched->request_bytes + e->sched->request_untouched, 0);
    ln_eng_close(&e);
    ln_package_close(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kv_bytes),
                                       cmocka_unit_test(test_less_than_a_context),
                                       cmocka_unit_test(test_what_the_limit_leaves),
                                       cmocka_unit_test(test_advice_for_many_sequences),
                                       cmocka_unit_test(test_many_long_sequences_open),
                                       cmocka_unit_test(test_records_are_counted),
                                       cmocka_unit_test(test_the_share_of_a_gpu),
                                       cmocka_unit_test(test_the_limit_holds_for_requests),
                                       cmocka_unit_test(test_grammars_of_waiting_requests)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
