/* Memory: a step allocates nothing; any allocation may fail, and the only effect is LN_EMEMORY; everything
 * is freed; pages are conserved; windowed layers hold the pages of one window. */
/* run: slow */
#include "../common.h"
#include "base/thread_pool.h"

#define GEMMA LN_ROOT "/tests/golden/gemma3-text-bf16"
#define QWEN  LN_ROOT "/tests/golden/qwen3-sharded-bf16"

static void test_steps_allocate_nothing(void **s) {
    (void)s;
    static const char *const models[] = {GEMMA, QWEN};
    for (size_t i = 0; i < LN_COUNT(models); i++) {
        ln_package *m;
        ln_eng *e;
        ln_options o = {.n_threads = 2, .n_chunk = 16};
        OK(ln_package_open(&m, models[i], &o, err));
        OK(ln_eng_open(&e, m, &o, err));
        int32_t ids[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, id;
        ln_sampling how;
        ln_package_sampling(m, &how);
        ln_seq *seq = test_seq(e, 16, LN_MIN(m->spec.n_ctx, 400));
        uint64_t before = ln_mem_bytes();
        ln_mem_fail_at(1, true); /* every allocation from here on fails */
        OK(ln_eng_prefill(e, seq, ids, 16, true, err));
        for (int64_t t = 16; t < LN_MIN(m->spec.n_ctx, 400); t++) {
            OK(ln_run_logits(e->run, 0, e->sched->scratch->logits, err));
            OK(ln_sample(e->sched->scratch->sampler, e->sched->scratch->logits, &how, 1, ids, 16, 0, NULL, 0,
                         &id, err));
            ln_batch_item f = {seq, &id, 1, LN_LOGITS_LAST};
            OK(ln_eng_step(e, &f, 1, err));
        }
        ln_mem_fail_at(-1, false);
        assert_int_equal(ln_mem_bytes(), before);
        ln_eng_close(&e);
        ln_package_close(&m);
    }
}

/* One life of the library: open, generate, score, close. */
static ln_status life(ln_error *err) {
    ln_package *m = NULL;
    ln_eng *e = NULL;
    ln_result out = {0};
    ln_options o = {.n_threads = 1, .n_ctx = 64, .n_chunk = 8};
    static const char *const stops[] = {"zzz"};
    ln_prompt p = {.text = "Hello, world", .text_bytes = 12, .tmpl = LN_TEMPLATE_RAW};
    ln_sampling how = {.top_p = 0.9,
                       .temperature = 1,
                       .repeat_penalty = 1.1,
                       .repeat_last = 8,
                       .n_max = 8,
                       .has_seed = true,
                       .stop = stops,
                       .n_stop = 1};
    ln_status st = LN_OK;
    LN_GO(ln_package_open(&m, GEMMA, &o, err));
    LN_GO(ln_eng_open(&e, m, &o, err));
    LN_GO(ln_eng_generate(e, &p, &how, NULL, NULL, &out, err));
out:
    ln_free(out.ids), ln_free(out.prompt_ids), ln_free(out.text), ln_free(out.reasoning);
    ln_eng_close(&e);
    ln_package_close(&m);
    return st;
}

static void test_every_allocation_may_fail(void **s) {
    (void)s;
    OK(ln_pool_reserve(ln_pool_default(), 1, err));
    OK(life(err)); /* allocations that last for the process's life are made now */
    uint64_t before = ln_mem_bytes();
    int64_t n = 1, refused = 0;
    for (;; n++) {
        ln_status st = LN_OK;
        for (int persistent = 0; persistent < 2; persistent++) {
            ln_error e = {0};
            ln_mem_fail_at(n, persistent);
            st = life(&e);
            ln_mem_fail_at(-1, false);
            if (ln_mem_bytes() != before)
                fail_msg("allocation %lld failed: %lld bytes are lost", (long long)n,
                         (long long)(ln_mem_bytes() - before));
            if (st != LN_OK && st != LN_EMEMORY)
                fail_msg("allocation %lld failed: status %d: %s", (long long)n, st, e.message);
        }
        if (st == LN_OK)
            break; /* All allocations from the n-th on fail and the call succeeds: there is no n-th one.
                      If the n-th alone fails, the call may do without it. */
        refused++;
        if (n > 200000) fail_msg("never succeeds");
    }
    print_message("  %lld allocations failed one by one\n", (long long)refused);
    assert_true(refused > 50);
}

static void test_pages(void **s) {
    (void)s;
    ln_package *m;
    ln_eng *e;
    ln_options o = {.n_threads = 1};
    OK(ln_package_open(&m, GEMMA, &o, err));
    ln_run_options r = test_options(m, LN_DEVICE_REF, 1, 8, 2);
    r.page_len = 32;
    OK(ln_eng_open_with(&e, m, &r, err));
    int windowed = e->run->kv.groups[0].window ? 0 : 1;
    assert_int_equal(e->run->kv.n_groups, 2);
    assert_int_equal(e->run->kv.groups[windowed].window, 16);
    int32_t ids[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    int64_t most = LN_MIN(r.n_ctx, 200) / 8;
    ln_seq *seqs[2];
    for (int q = 0; q < 2; q++) seqs[q] = test_seq(e, 8, most * 8);
    for (int64_t i = 0; i < most; i++)
        for (int q = 0; q < 2; q++) {
            ln_batch_item f = {seqs[q], ids, 8, LN_LOGITS_NONE};
            OK(ln_eng_step(e, &f, 1, err));
            int resident[2] = {0, 0};
            for (int c = 0; c < 2; c++)
                for (int b = 0; b < (most * 8 + 31) / 32; b++)
                    resident[c] += seqs[q]->tables[c][b * e->run->kv.groups[c].pages_per_block] >= 0;
            assert_int_equal(resident[1 - windowed], (seqs[q]->n + 31) / 32);
            assert_true(resident[windowed] <= e->run->sizes.blocks[windowed]);
            assert_true(resident[windowed] <= 2); /* 16 + 8 positions touch two pages of 32 positions at
                                                     most */
        }
    FAILS(LN_EINTERNAL, "was admitted for", ln_seq_reserve(e, seqs[0], 1, err));
    ln_seq_close(e, &seqs[0]);
    ln_seq_close(e, &seqs[1]);
    assert_int_equal(ln_kv_count(e->kv).n_free, ln_kv_count(e->kv).n_pages);
    ln_eng_close(&e);
    ln_package_close(&m);
}

/* Without a context that the caller set, opening an engine prefaults only the pages of the expected
 * tokens; pages that are not prefaulted work as well. */
static void test_what_is_faulted_in(void **s) {
    (void)s;
    static const struct {
        int64_t n_ctx, n_expected, n_prefault; /* n_prefault 0: the whole context */
    } of[] = {{0, 0, 0}, {0, 4, 4}, {256, 4, 0}, {0, 1 << 20, 0}};
    ln_package *m;
    OK(ln_package_open(&m, QWEN, &(ln_options){.n_threads = 2, .n_chunk = 16}, err));
    for (size_t i = 0; i < LN_COUNT(of); i++) {
        ln_eng *e;
        OK(ln_eng_open(&e, m,
                       &(ln_options){.n_threads = 2,
                                     .n_chunk = 16,
                                     .n_ctx = of[i].n_ctx,
                                     .n_expected = of[i].n_expected},
                       err));
        const ln_run_sizes *z = &e->run->sizes;
        assert_int_equal(e->run->opt.n_prefault, of[i].n_prefault ? of[i].n_prefault : e->run->opt.n_ctx);
        if (of[i].n_prefault)
            assert_int_equal(z->ready_bytes,
                             e->run->kv.page_bytes * e->run->kv.groups[0].pages_per_block); /* one KV block */
        else assert_int_equal(z->ready_bytes, z->kv_bytes);
        assert_true(z->kv_bytes >
                    (uint64_t)e->run->kv.page_bytes * (uint64_t)e->run->kv.groups[0].pages_per_block);
        int32_t ids[200];
        for (int t = 0; t < 200; t++) ids[t] = 1 + t;
        OK(ln_eng_prefill(e, test_seq(e, 200, 200), ids, 200, true, err));
        ln_eng_close(&e);
    }
    ln_package_close(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps_allocate_nothing), cmocka_unit_test(test_every_allocation_may_fail),
        cmocka_unit_test(test_pages), cmocka_unit_test(test_what_is_faulted_in)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
