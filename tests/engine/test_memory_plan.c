/* The size of the KV pool: a context for each sequence, reduced to ln_options.kv_bytes and to what the limit
 * leaves, never less than one context. */
#include "../common.h"
#include "engine/memory_plan.h"

#define LONG LN_ROOT "/tests/golden/llama-long-bf16" /* 32,768 positions, no window */
#define GEMMA                                                                                    \
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
    assert_int_equal(p.peak_bytes, p.weights_bytes + p.kv_bytes + p.activation_bytes + p.other_bytes);
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
        assert_int_equal(p.kv_bytes, 3 * one); /* tiny beside half of any machine's memory */
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

/* Less than one context is refused, in the plan and when an engine is opened; the context that the message
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

/* A limit that the caller set may be used up, but for the reserve of 1 MiB; without one an engine takes half
 * of what the machine leaves, so a second one fits as well. */
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
    o.memory_bytes = p.peak_bytes - p.kv_bytes + one.kv_bytes / 2;
    p = plan_of(m, &o);
    assert_false(p.fits);
    assert_int_equal(p.kv_bytes, one.kv_bytes);
    OK(ln_eng_largest(m, &o, &p, err));
    assert_true(p.largest_ctx > 0 && p.largest_ctx < CTX);
    o.n_ctx = p.largest_ctx;
    assert_true(plan_of(m, &o).fits);
    ln_package_close(&m);
}

/* Where no context fits, fewer rows a step or fewer sequences are advised, and they fit. */
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kv_bytes), cmocka_unit_test(test_less_than_a_context),
        cmocka_unit_test(test_what_the_limit_leaves), cmocka_unit_test(test_advice_for_many_sequences),
        cmocka_unit_test(test_many_long_sequences_open)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
