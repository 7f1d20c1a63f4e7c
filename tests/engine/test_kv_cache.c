/* The KV cache: what is shared, copied, kept and evicted, in small pages. */
/* run: quick */
#include "kv_sim.h"

static sim s;
static int32_t a[SIM_CTX], b[SIM_CTX]; /* texts: a[i] = i; b parts from it at a place of the test's choice */

static const ln_kv_options plain = {.n_pages = 32,
                                    .page_len = 4,
                                    .n_ctx = 64,
                                    .n_chunk = 8,
                                    .n_seqs = 4,
                                    .n_groups = 1,
                                    .pages_per_block = {1}};

static void part_at(int64_t n) {
    for (int32_t i = 0; i < SIM_CTX; i++) a[i] = i, b[i] = i < n ? i : 1000 + i;
}
static ln_kv_counts now(void) { return ln_kv_count(s.kv); }
static const char *reason(const int32_t *ids, int64_t n) {
    ln_seq *q = sim_admit(&s, ids, n, n, 0, 0);
    assert_non_null(q);
    const char *why = q->cache_miss_reason;
    sim_close(&s, q);
    return why;
}

/* The longest prefix is found, to the token, and never the whole prompt. */
static void prefixes(void **state) {
    (void)state;
    sim_open(&s, &plain);
    part_at(10);
    assert_int_equal(sim_run(&s, a, 18, 8), 0);
    assert_int_equal(sim_run(&s, a, 18, 8), 17);
    assert_int_equal(sim_run(&s, a, 17, 8), 16);
    assert_int_equal(sim_run(&s, a, 16, 8), 15);
    assert_int_equal(sim_run(&s, a, 1, 8), 0);
    assert_int_equal(sim_run(&s, a, 2, 8), 1);
    assert_int_equal(sim_run(&s, b, 18, 8), 10);
    assert_int_equal(sim_run(&s, b, 18, 8), 17);
    assert_int_equal(sim_run(&s, a, 30, 8), 18);
    assert_int_equal(now().n_cached, 8 + 3); /* a: 8 blocks of which b shares the first two */
    sim_end(&s);
}

/* A block that a prefix ends in is copied; whole blocks are shared, also between sequences that run. */
static void sharing(void **state) {
    (void)state;
    sim_open(&s, &plain);
    part_at(10);
    ln_seq *first = sim_admit(&s, a, 20, 20, 0, 0), *second;
    for (int i = 0; i < 5; i++) sim_step(&s, first, a + 4 * i, 4);
    second = sim_admit(&s, b, 20, 20, 0, 0);
    assert_int_equal(second->n_cached, 10);
    assert_int_equal(s.copies, 1);
    assert_int_equal(now().n_used, 5 + 1);
    for (int i = 0; i < 2; i++) assert_int_equal(first->tables[0][i], second->tables[0][i]);
    assert_int_not_equal(first->tables[0][2], second->tables[0][2]);
    sim_step(&s, second, b + 10, 8);
    sim_check(&s, first);
    sim_close(&s, first);
    sim_check(&s, second);
    sim_close(&s, second);
    sim_end(&s);
}

/* Two sequences that compute the same blocks at the same time end up with one copy. */
static void computed_twice(void **state) {
    (void)state;
    sim_open(&s, &plain);
    part_at(64);
    ln_seq *q[2] = {sim_admit(&s, a, 16, 16, 0, 0), sim_admit(&s, a, 16, 16, 0, 0)};
    for (int i = 0; i < 2; i++) sim_step(&s, q[i], a, 6);
    assert_int_equal(now().n_used, 3);
    for (int i = 0; i < 2; i++) sim_step(&s, q[i], a + 6, 8);
    assert_int_equal(now().n_used, 5);
    for (int i = 0; i < 3; i++) assert_int_equal(q[0]->tables[0][i], q[1]->tables[0][i]);
    for (int i = 0; i < 2; i++) sim_close(&s, q[i]);
    assert_int_equal(now().n_cached, 4); /* of the two equal beginnings of block 3 one is kept */
    sim_end(&s);
}

/* The beginning of a block goes when the block or a longer beginning takes its place. */
static void longer_beginnings(void **state) {
    (void)state;
    sim_open(&s, &plain);
    part_at(64);
    for (int64_t n = 1; n <= 12; n++) {
        (void)sim_run(&s, a, n, 8);
        assert_int_equal(now().n_cached, (n + 3) / 4);
    }
    (void)sim_run(&s, a, 6, 8);
    assert_int_equal(now().n_cached, 3);
    sim_end(&s);
}

/* Roots: adapters and rotary frequencies do not mix, and positions beyond `rope` are not registered. */
static void roots(void **state) {
    (void)state;
    static const struct {
        uint64_t adapter;
        int64_t rope;
        const char *why;
    } of[] = {{7, 0, ""}, {0, 0, "adapter"}, {7, 20, "rope"}, {9, 0, "adapter"}};
    sim_open(&s, &plain);
    part_at(64);
    for (size_t i = 0; i < LN_COUNT(of); i++)
        for (int again = 0; again < 2; again++) {
            ln_seq *q = sim_admit(&s, a, 12, 24, of[i].adapter, of[i].rope);
            assert_int_equal(q->n_cached, again ? 11 : 0);
            assert_string_equal(q->cache_miss_reason, again ? "" : of[i].why);
            while (q->n < 24) sim_step(&s, q, a + q->n, LN_MIN(8, 24 - q->n));
            sim_close(&s, q);
        }
    ln_seq *q = sim_admit(&s, a, 24, 24, 7, 20);
    assert_int_equal(q->n_cached, 20);
    sim_close(&s, q);
    ln_kv_clear(s.kv);
    assert_int_equal(s.kv->roots, -1);
    sim_end(&s);
}

/* A window that has moved on: a prefix is reusable if its window is held, and only then. */
static void windows(void **state) {
    (void)state;
    static const ln_kv_options o = {.n_pages = 40,
                                    .page_len = 4,
                                    .n_ctx = 64,
                                    .n_chunk = 4,
                                    .n_seqs = 2,
                                    .n_groups = 2,
                                    .window = {0, 6},
                                    .pages_per_block = {1, 2}};
    sim_open(&s, &o);
    part_at(22);
    (void)sim_run(&s, a, 40, 4);
    assert_int_equal(now().n_cached, 10 + 20);
    assert_int_equal(sim_run(&s, b, 40, 4), 22); /* needs pages: a's oldest blocks of the window group go */
    assert_int_equal(*ln_kv_pages_of(s.kv, s.kv->nodes[s.kv->roots].child, 1), -1);
    ln_seq *q = sim_admit(&s, a, 6, 6, 0, 0); /* [0, 4) and [4, 5) of the window group were needed */
    assert_int_equal(q->n_cached, 0);
    assert_string_equal(q->cache_miss_reason, "window");
    sim_close(&s, q);
    q = sim_admit(&s, a, 41, 44, 0, 0);
    assert_int_equal(q->n_cached, 40);
    assert_int_equal(q->low[1], 8);
    assert_string_equal(q->cache_miss_reason, "");
    sim_close(&s, q);
    sim_end(&s);
}

/* Pages are evicted from the least recently used text, from its end. */
static void least_recent_first(void **state) {
    (void)state;
    sim_open(&s, &plain);
    int32_t text[5][SIM_CTX];
    for (int t = 0; t < 5; t++)
        for (int32_t i = 0; i < SIM_CTX; i++) text[t][i] = 100 * t + i;
    for (int t = 0; t < 4; t++) (void)sim_run(&s, text[t], 32, 8); /* fills the pool */
    assert_int_equal(now().n_free, 0);
    assert_int_equal(sim_run(&s, text[0], 32, 8), 31); /* used again: text 1 is the oldest now */
    (void)sim_run(&s, text[4], 12, 8);
    assert_int_equal(now().n_evicted, 1 + 2); /* one page was copied for the reuse, then three more */
    assert_string_equal(reason(text[1], 32), "evicted");
    /* text 1 was looked up just now, so that the next page that is copied is one of text 2 */
    static const int64_t left[] = {31, 20, 28, 31, 11};
    for (int t = 4; t >= 0; t--) {
        ln_seq *q = sim_admit(&s, text[t], t == 4 ? 12 : 32, 32, 0, 0);
        assert_non_null(q);
        if (q->n_cached != left[t]) fail_msg("text %d: %lld tokens left", t, (long long)q->n_cached);
        sim_close(&s, q);
        (void)ln_kv_set_limit(s.kv, INT64_MAX);
    }
    sim_end(&s);
}

/* A text that a longer one stands for makes that one the newest, even if nothing of it was reused. */
static void stood_for(void **state) {
    (void)state;
    sim_open(&s, &plain);
    part_at(0);
    (void)sim_run(&s, a, 8, 8);
    (void)sim_run(&s, b, 8, 8);
    const ln_seq_options opt = {.ids = a, .n_prompt = 6, .n_most = 6, .n_fresh = 6};
    OK(ln_kv_admit(s.kv, 0, 0, &opt, &s.seqs[0], err));
    assert_int_equal(s.seqs[0]->n_cached, 0);
    s.key[0] = sim_mix(0, 0);
    sim_step(&s, s.seqs[0], a, 6);
    sim_close(&s, s.seqs[0]);
    assert_int_equal(now().n_cached, 4);
    (void)ln_kv_set_limit(s.kv, 3);
    ln_seq *q = sim_admit(&s, a, 9, 9, 0, 0);
    assert_int_equal(q->n_cached, 8);
    sim_close(&s, q);
    sim_end(&s);
}

/* Why a prompt is not reused as far as the cache had it. */
static void reasons(void **state) {
    (void)state;
    ln_seq *q;
    sim_open(&s, &plain);
    part_at(10);
    assert_string_equal(reason(a, 18), "");
    (void)sim_run(&s, a, 18, 8);
    assert_string_equal(reason(a, 18), "");
    assert_string_equal(reason(a, 30), "");         /* all of it is reused, and the prompt goes on */
    assert_string_equal(reason(b, 18), "diverged"); /* within a block */
    part_at(8);
    assert_string_equal(reason(b, 18), "diverged"); /* at the end of one */
    assert_string_equal(reason(b + 8, 4), "");      /* no token in common */
    for (int64_t fresh = 0; fresh <= 18; fresh++) { /* rows that are computed all the same */
        const ln_seq_options some = {.ids = a, .n_prompt = 18, .n_most = 18, .n_fresh = fresh};
        OK(ln_kv_admit(s.kv, 0, 0, &some, &q, err));
        assert_int_equal(q->n_cached, 18 - LN_MAX(fresh, 1));
        assert_string_equal(q->cache_miss_reason, "");
        ln_kv_release(s.kv, &q);
    }
    const ln_seq_options no = {.ids = a, .n_prompt = 18, .n_most = 18, .no_cache = true};
    OK(ln_kv_admit(s.kv, 0, 0, &no, &q, err));
    assert_string_equal(q->cache_miss_reason, "disabled");
    assert_int_equal(q->n_cached, 0);
    ln_kv_release(s.kv, &q);
    ln_kv_clear(s.kv);
    assert_int_equal(now().n_free, 32);
    assert_string_equal(reason(a, 18), "evicted");
    assert_string_equal(reason(b, 18), "evicted");
    (void)sim_run(&s, a, 18, 8);
    assert_string_equal(reason(a, 18), "");
    sim_end(&s);
}

/* A prompt that shares only a part of an evicted block with it: the beginning, or more than a neighbour that
 * is still cached. */
static void evicted_in_part(void **state) {
    (void)state;
    const ln_kv_options wide = {.n_pages = 8,
                                .page_len = 8,
                                .n_ctx = 64,
                                .n_chunk = 8,
                                .n_seqs = 2,
                                .n_groups = 1,
                                .pages_per_block = {1}};
    sim_open(&s, &wide);
    part_at(2);
    (void)sim_run(&s, a, 7, 7);
    (void)sim_run(&s, b + 20, 64, 8); /* needs the whole pool */
    assert_string_equal(reason(a, 5), "evicted");
    assert_string_equal(reason(a + 1, 5), "");
    sim_end(&s);
    sim_open(&s, &wide);
    (void)sim_run(&s, a, 7, 7);
    (void)sim_run(&s, b, 7, 7);
    (void)sim_run(&s, b + 20, 56, 8); /* needs the page of a */
    ln_seq *q = sim_admit(&s, a, 5, 5, 0, 0);
    assert_int_equal(q->n_cached, 2); /* of b */
    assert_string_equal(q->cache_miss_reason, "evicted");
    sim_close(&s, q);
    sim_end(&s);
}

/* The budget: at most so many pages are kept for reuse; sequences share what they hold all the same. */
static void budget(void **state) {
    (void)state;
    sim_open(&s, &plain);
    part_at(64);
    assert_int_equal(ln_kv_set_limit(s.kv, 3), INT64_MAX);
    (void)sim_run(&s, a, 32, 8);
    assert_int_equal(now().n_cached, 3);
    assert_int_equal(sim_run(&s, a, 32, 8), 12);
    assert_int_equal(ln_kv_set_limit(s.kv, 0), 3);
    assert_int_equal(now().n_cached, 0);
    ln_seq *first = sim_admit(&s, a, 16, 16, 0, 0);
    sim_step(&s, first, a, 8);
    ln_seq *second = sim_admit(&s, a, 16, 16, 0, 0);
    assert_int_equal(second->n_cached, 8);
    sim_close(&s, first);
    sim_check(&s, second);
    sim_close(&s, second);
    assert_int_equal(now().n_free, 32);
    sim_end(&s);
}

/* Admission: what is promised exists when it is taken; a shared page costs nothing. */
static void admission(void **state) {
    (void)state;
    sim_open(&s, &plain);
    part_at(64);
    assert_true(ln_kv_possible(s.kv, 64));
    assert_false(ln_kv_possible(s.kv, 65));
    ln_seq *q[3] = {sim_admit(&s, a, 40, 64, 0, 0)}; /* 16 pages */
    for (int i = 0; i < 5; i++) sim_step(&s, q[0], a + 8 * i, 8);
    q[1] = sim_admit(&s, a, 41, 64, 0, 0); /* shares 10 and needs 6 */
    assert_int_equal(q[1]->n_cached, 40);
    assert_null(sim_admit(&s, a + 1, 44, 44, 0, 0)); /* 11, and 10 are left */
    q[2] = sim_admit(&s, a + 1, 40, 40, 0, 0);
    assert_non_null(q[2]);
    for (int i = 0; i < 5; i++) sim_step(&s, q[2], a + 1 + 8 * i, 8);
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 2; k++) sim_step(&s, q[k], a + 100 * (k + 1) + 8 * i, 8);
    assert_int_equal(now().n_free, 0);
    for (int k = 0; k < 3; k++) sim_close(&s, q[k]);
    sim_end(&s);
}

/* If a prefix ends in a block and no other page is available, the block's page itself is taken over, unless
 * a sequence holds it. */
static void taken_over(void **state) {
    (void)state;
    ln_kv_options o = plain;
    o.n_pages = 4, o.n_ctx = 16, o.n_seqs = 1;
    sim_open(&s, &o);
    part_at(15);
    (void)sim_run(&s, a, 16, 8);
    assert_int_equal(sim_run(&s, b, 16, 8), 15);
    assert_int_equal(s.in_place, 1);
    assert_int_equal(sim_run(&s, a, 16, 8), 15);
    sim_end(&s);

    o = (ln_kv_options){.n_pages = 12,
                        .page_len = 4,
                        .n_ctx = 16,
                        .n_chunk = 4,
                        .n_seqs = 1,
                        .n_groups = 2,
                        .window = {5, 0},
                        .pages_per_block = {2, 1}};
    sim_open(&s, &o);
    (void)sim_run(&s, a, 16, 4);
    assert_int_equal(now().n_free, 0);
    ln_seq *q = sim_admit(&s, b, 16, 16, 0, 0);
    assert_int_equal(q->n_cached, 15);
    sim_step(&s, q, b + 15, 1);
    sim_close(&s, q);
    sim_end(&s);
}

/* After a step that failed, and after a copy that failed, pages and promises are as before. */
static void failures(void **state) {
    (void)state;
    sim_open(&s, &plain);
    part_at(10);
    ln_seq *q = sim_admit(&s, a, 20, 20, 0, 0);
    sim_step(&s, q, a, 6);
    const int64_t used = now().n_used, promised = s.kv->promised[0];
    OK(ln_kv_reserve(s.kv, q, 8, err));
    ln_kv_free_unused(s.kv, q);
    assert_int_equal(now().n_used, used);
    assert_int_equal(s.kv->promised[0], promised);
    OK(ln_kv_reserve(s.kv, q, 8, err)); /* the sequence is closed after the error */
    sim_close(&s, q);
    assert_int_equal(now().n_cached, 2);
    s.copy_fails_at = 1;
    const ln_seq_options opt = {.ids = b, .n_prompt = 20, .n_most = 20};
    FAILS(LN_EDEVICE, "the copy failed", ln_kv_admit(s.kv, 0, 0, &opt, &q, err));
    assert_null(q);
    assert_int_equal(now().n_cached, 2);
    assert_int_equal(s.kv->promised[0], 0);
    FAILS(LN_EINTERNAL, "at most 64", ln_kv_admit(s.kv, 0, 0, &(ln_seq_options){.n_most = 65}, &q, err));
    assert_int_equal(sim_run(&s, a, 20, 8), 6);
    sim_end(&s);
}

/* A text that ends within a block, of which a longer text has left all but the pages of its windows. */
static void behind_a_longer_block(void **state) {
    (void)state;
    ln_kv_options o = plain;
    o.n_groups = 2;
    o.window[1] = 4;
    o.pages_per_block[1] = 1;
    sim_open(&s, &o);
    part_at(64);
    (void)sim_run(&s, a, 40, 8);
    for (int32_t k = s.kv->oldest[1]; k >= 0; k = s.kv->oldest[1])
        ln_kv_detach(s.kv, k, 1); /* as if evicted */
    assert_string_equal(reason(a, 23), "window");
    assert_int_equal(sim_run(&s, a, 22, 8), 0);
    assert_int_equal(sim_run(&s, a, 23, 8), 22);
    assert_int_equal(sim_run(&s, a, 23, 8), 22); /* what a + 22 has added replaces it */
    assert_int_equal(sim_run(&s, a, 30, 8), 23);
    assert_int_equal(sim_run(&s, a, 25, 8), 24); /* the whole block is cached again */
    sim_end(&s);
}

/* Pages that are held for a file stay as they are, whatever else runs, and their commitment is counted. */
static void held_for_a_file(void **state) {
    (void)state;
    static int32_t table[LN_STATE_GROUPS][SIM_ENTRIES];
    int32_t *pages[LN_STATE_GROUPS];
    for (int c = 0; c < LN_STATE_GROUPS; c++) pages[c] = table[c];
    int64_t rope;
    ln_seq *held;
    sim_open(&s, &plain);
    part_at(0);
    (void)sim_run(&s, a, 30, 8);
    assert_int_equal(ln_kv_lookup(s.kv, 0, a, 64, &rope, pages), 30);
    OK(ln_kv_hold(s.kv, 30, pages, &held, err));
    assert_int_equal(now().n_used, 8);
    uint64_t before[8][4];
    for (int i = 0; i < 8; i++) memcpy(before[i], s.page[held->tables[0][i]], sizeof before[i]);
    ln_kv_clear(s.kv);
    ln_seq *one = sim_admit(&s, b + 2, 64, 64, 0, 0);
    assert_non_null(one);
    assert_null(sim_admit(&s, b + 3, 64, 64, 0, 0)); /* two contexts and 8 pages are more than the pool has */
    sim_close(&s, one);
    (void)sim_run(&s, b, 64, 8);
    (void)sim_run(&s, b + 1, 64, 8);
    for (int i = 0; i < 8; i++) assert_memory_equal(s.page[held->tables[0][i]], before[i], sizeof before[i]);
    ln_kv_release(s.kv, &held);
    assert_int_equal(sim_run(&s, a, 30, 8), 29);
    ln_seq *q = sim_admit(&s, b, 64, 64, 0, 0), *other = sim_admit(&s, b + 2, 64, 64, 0, 0);
    assert_true(q && other); /* both are promised the pool */
    OK(ln_kv_hold(s.kv, 30, pages, &held, err));
    assert_null(held);
    sim_close(&s, q), sim_close(&s, other);
    sim_end(&s);
}

/* Cutting back: for sequences that share nothing, as far as their windows reach. */
static void cutting(void **state) {
    (void)state;
    ln_kv_options o = plain;
    o.n_groups = 2, o.window[1] = 5, o.pages_per_block[1] = 1;
    sim_open(&s, &o);
    part_at(64);
    const ln_seq_options opt = {.n_prompt = 20, .n_most = 20, .no_cache = true};
    OK(ln_kv_admit(s.kv, 0, 0, &opt, &s.seqs[0], err));
    ln_seq *q = s.seqs[0];
    for (int i = 0; i < 5; i++) sim_step(&s, q, a + 4 * i, 4);
    FAILS(LN_EINTERNAL, "window", ln_kv_cut(s.kv, q, 10, err));
    FAILS(LN_EINTERNAL, "cannot be cut to 21", ln_kv_cut(s.kv, q, 21, err));
    OK(ln_kv_cut(s.kv, q, 20, err));
    sim_close(&s, q);
    assert_int_equal(now().n_free, 32);
    q = sim_admit(&s, a, 8, 8, 0, 0);
    FAILS(LN_EINTERNAL, "its blocks are shared", ln_kv_cut(s.kv, q, 0, err));
    sim_close(&s, q);
    sim_end(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(prefixes),
                                       cmocka_unit_test(sharing),
                                       cmocka_unit_test(computed_twice),
                                       cmocka_unit_test(longer_beginnings),
                                       cmocka_unit_test(roots),
                                       cmocka_unit_test(windows),
                                       cmocka_unit_test(least_recent_first),
                                       cmocka_unit_test(stood_for),
                                       cmocka_unit_test(reasons),
                                       cmocka_unit_test(evicted_in_part),
                                       cmocka_unit_test(budget),
                                       cmocka_unit_test(admission),
                                       cmocka_unit_test(taken_over),
                                       cmocka_unit_test(failures),
                                       cmocka_unit_test(behind_a_longer_block),
                                       cmocka_unit_test(held_for_a_file),
                                       cmocka_unit_test(cutting)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
