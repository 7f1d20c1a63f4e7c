/* The KV cache under random schedules: sequences open, step, fail and close in any order while the budget of
 * the prefix cache changes. After every operation the cache is compared with a naive model, which is computed
 * from nothing but the open sequences' tables and the list of texts that the tree holds. Every reservation of
 * an admitted sequence must succeed. */
/* run: quick */
#include "kv_sim.h"

enum { TEXTS = 24, LONGEST = 80 };

static sim s;
static uint64_t seed;
static int n_texts;
static int64_t pick(int64_t n) { return (int64_t)(test_random(&seed) % (uint64_t)n); }

/* Texts that prompts are made from, so that they begin alike; the prompts of the open sequences. */
static int32_t texts[TEXTS][LONGEST], prompts[SIM_SEQS][LONGEST];
/* How often things happened that the schedules are about. */
static int64_t n_shared, n_partial, n_taken_over, n_refused, n_windows, n_joined, n_less, n_held;
static ln_seq *saved; /* pages that a file is written from */
static uint64_t saved_pages[LN_STATE_GROUPS][SIM_ENTRIES][SIM_LEN];

/* ---- the naive model ---- */

/* One text that the tree holds: the path from a root to a node. */
typedef struct held {
    int32_t ids[SIM_CTX], nodes[SIM_CTX];
    int64_t n, blocks;
    uint64_t adapter;
    int64_t rope;
} held;

static held text_of(int32_t node) {
    const ln_kv *kv = s.kv;
    held t = {0};
    int32_t path[SIM_CTX];
    int64_t n = 0;
    for (; kv->nodes[node].parent >= 0; node = kv->nodes[node].parent) path[n++] = node;
    t.adapter = kv->nodes[node].adapter;
    t.rope = kv->nodes[node].rope;
    while (n > 0) {
        const int32_t here = path[--n];
        t.nodes[t.blocks++] = here;
        memcpy(t.ids + t.n, ln_kv_tokens_of(kv, here), (size_t)kv->nodes[here].n * sizeof *t.ids);
        t.n += kv->nodes[here].n;
    }
    return t;
}

/* Which nodes are in use, by walking from the roots. */
static int all_nodes(int32_t *out) {
    int n = 0, at = 0;
    for (int32_t r = s.kv->roots; r >= 0; r = s.kv->nodes[r].next) out[n++] = r;
    for (; at < n; at++)
        for (int32_t c = s.kv->nodes[out[at]].child; c >= 0; c = s.kv->nodes[c].next) {
            assert_int_equal(s.kv->nodes[c].parent, out[at]);
            out[n++] = c;
        }
    return n;
}

/* The longest prefix of ids[0..n), at most n - 1 tokens, that some held text allows to reuse. */
static int64_t longest(const int32_t *ids, int64_t n, uint64_t adapter, int64_t rope) {
    static int32_t nodes[8192];
    const ln_kv *kv = s.kv;
    int64_t best = 0;
    const int n_nodes = all_nodes(nodes);
    for (int i = 0; i < n_nodes; i++) {
        const held t = text_of(nodes[i]);
        if (t.adapter != adapter || t.rope != rope) continue;
        for (int64_t p = best + 1; p <= LN_MIN(n - 1, t.n) && memcmp(t.ids, ids, (size_t)p * 4) == 0; p++) {
            bool all = true;
            for (int c = 0; c < kv->o.n_groups; c++)
                for (int64_t b = 0; b * kv->o.page_len < p; b++) {
                    const int64_t w = kv->o.window[c], end = (b + 1) * kv->o.page_len;
                    if (w > 0 && end <= p - w + 1) continue; /* below the window of position p */
                    all = all && kv->nodes[t.nodes[b]].held[c] >= LN_MIN(end, p) - b * kv->o.page_len;
                }
            if (all) best = p;
        }
    }
    return best;
}

/* Pages that an open sequence of n positions may hold in group c at once, by trying every position. */
static int64_t most_at_once(int c, int64_t n) {
    const ln_kv_options *o = &s.kv->o;
    int64_t most = 0;
    for (int64_t at = 0; at < n; at++) {
        const int64_t end = LN_MIN(n, at + o->n_chunk),
                      low = o->window[c] ? LN_MAX(0, at - o->window[c] + 1) / o->page_len : 0;
        most = LN_MAX(most, (end - 1) / o->page_len - low + 1);
    }
    return most * o->pages_per_block[c];
}

/* ---- checks of the whole ---- */

static int32_t refs[SIM_PAGES], owner[SIM_PAGES];

static void check_pages(void) {
    const ln_kv *kv = s.kv;
    int64_t n_free = 0, held_full = 0, held_window = 0, cached = 0;
    int group[SIM_PAGES];
    memset(refs, 0, sizeof refs);
    for (int k = 0; k <= SIM_SEQS; k++) {
        const ln_seq *q = k < SIM_SEQS ? s.seqs[k] : saved;
        for (int c = 0; q && c < kv->o.n_groups; c++)
            for (int64_t i = 0;
                 i < (q->n_most + kv->o.page_len - 1) / kv->o.page_len * kv->o.pages_per_block[c]; i++)
                if (q->tables[c][i] >= 0) {
                    refs[q->tables[c][i]]++;
                    group[q->tables[c][i]] = c;
                }
    }
    for (int64_t i = 0; i < kv->n_free[0]; i++) {
        assert_int_equal(kv->refs[kv->free[i]], 0);
        assert_int_equal(kv->node_of[kv->free[i]], -1);
    }
    for (int32_t p = 0; p < kv->o.n_pages; p++) {
        assert_int_equal(refs[p], kv->refs[p]);
        assert_int_equal(owner[p], kv->node_of[p]);
        if (refs[p] > 0) ++*(kv->o.window[group[p]] ? &held_window : &held_full);
        else if (owner[p] >= 0) cached++;
        else n_free++;
    }
    assert_int_equal(n_free, kv->n_free[0]);
    assert_int_equal(held_full, kv->n_held);
    assert_int_equal(held_window, kv->n_window[0]);
    assert_int_equal(cached, kv->n_cached[0]);
    assert_true(kv->n_held + kv->promised[0] <= kv->o.n_pages);
    assert_true(kv->n_cached[0] <= kv->limit);
}

/* Every list has exactly the nodes that belong to it, from old to new; a parent is newer than its children.
 */
static void check_lists(const int32_t *nodes, int n) {
    const ln_kv *kv = s.kv;
    for (int l = 0; l < LN_KV_LISTS; l++) {
        uint64_t before = 0;
        int in_list = 0;
        for (int32_t i = kv->oldest[l]; i >= 0; i = kv->nodes[i].lru[l].newer, in_list++) {
            assert_true(kv->nodes[i].lru[l].stamp > before);
            before = kv->nodes[i].lru[l].stamp;
        }
        for (int k = 0; k < n; k++) {
            const ln_kv_node *node = &kv->nodes[nodes[k]];
            bool here = false, busy = false;
            for (int c = 0; node->n > 0 && c < kv->o.n_groups; c++) {
                if ((kv->o.window[c] ? c : LN_KV_WHOLE) != l) continue;
                const int32_t page = *ln_kv_pages_of(kv, nodes[k], c);
                here = here || page >= 0;
                busy = busy || (page >= 0 && refs[page] > 0);
            }
            assert_int_equal(node->lru[l].stamp > 0, here && !busy);
            in_list -= here && !busy;
            if (l == LN_KV_WHOLE && node->lru[l].stamp && kv->nodes[node->parent].lru[l].stamp)
                assert_true(node->lru[l].stamp < kv->nodes[node->parent].lru[l].stamp);
        }
        assert_int_equal(in_list, 0);
    }
}

static void check_all(void) {
    static int32_t nodes[8192];
    const ln_kv *kv = s.kv;
    const int n = all_nodes(nodes);
    memset(owner, 0xff, sizeof owner);
    for (int k = 0; k < n; k++) {
        const ln_kv_node *node = &kv->nodes[nodes[k]];
        int pages = 0;
        assert_true(node->n > 0 || node->parent < 0);
        assert_true(node->child < 0 || node->n == 0 || node->n == kv->o.page_len);
        for (int c = 0; node->n > 0 && c < kv->o.n_groups; c++)
            for (int i = 0; i < kv->o.pages_per_block[c]; i++) {
                const int32_t page = ln_kv_pages_of(kv, nodes[k], c)[i];
                assert_int_equal(page >= 0, *ln_kv_pages_of(kv, nodes[k], c) >= 0);
                assert_true(page >= 0 || kv->o.window[c] > 0); /* only window groups lose pages alone */
                assert_true(page >= 0 ? node->held[c] > 0 && node->held[c] <= node->n : node->held[c] == 0);
                n_less += page >= 0 && node->held[c] < node->n;
                if (page >= 0) owner[page] = nodes[k], pages++;
            }
        assert_true(pages > 0 || node->child >= 0 || node->n_pins > 0); /* nothing useless stays */
        int32_t prev = -1, before;
        for (int32_t c = node->child; c >= 0; prev = c, c = kv->nodes[c].next) {
            assert_int_equal(kv->nodes[c].prev, prev);
            assert_int_equal(ln_kv_child_at(kv, nodes[k], ln_kv_tokens_of(kv, c), kv->nodes[c].n, &before),
                             c);
            assert_int_equal(before, prev);
        }
        for (int32_t c = node->child; c >= 0; c = kv->nodes[c].next) /* no child begins another */
            for (int32_t d = node->child; d >= 0; d = kv->nodes[d].next)
                if (c != d && kv->nodes[c].n <= kv->nodes[d].n)
                    assert_int_not_equal(memcmp(ln_kv_tokens_of(kv, c), ln_kv_tokens_of(kv, d),
                                                (size_t)kv->nodes[c].n * 4),
                                         0);
    }
    check_pages();
    check_lists(nodes, n);
}

/* ---- operations ---- */

static bool copy_may_fail;

/* The text of a sequence down to its n tokens, as sim_write names it. */
static uint64_t path_of(const ln_seq *q) {
    uint64_t h = s.key[q->slot];
    for (int64_t t = 0; t < q->n; t++) h = sim_mix(h, (uint64_t)q->tokens[t]);
    return h;
}

static void open_one(void) {
    const ln_kv_options *o = &s.kv->o;
    int slot = 0;
    while (slot < o->n_seqs && s.seqs[slot]) slot++;
    if (slot == o->n_seqs) return;
    int32_t *ids = prompts[slot];
    const int64_t n = pick(5) ? 1 + pick(LONGEST) : LONGEST - pick(4), n_most = n + pick(o->n_ctx - n + 1);
    memcpy(ids, texts[pick(n_texts)], (size_t)n * sizeof *ids);
    if (pick(3) == 0) ids[pick(n)] = (int32_t)pick(3);
    const uint64_t adapter = (uint64_t)(pick(6) == 0);
    const int64_t rope = pick(8) == 0 ? LN_MAX(n, 16) : 0;
    const ln_seq_options opt = {
        .ids = ids, .n_prompt = n, .n_most = n_most, .adapter = adapter, .no_cache = pick(10) == 0};
    const int64_t want = opt.no_cache ? 0 : longest(ids, n, adapter, rope);
    /* what admission must compare with the pool: a shared page that is held already costs nothing */
    int64_t need = s.kv->n_held + s.kv->promised[0];
    for (int c = 0; c < o->n_groups; c++) need += most_at_once(c, n_most);
    ln_error err = {0};
    s.key[slot] = sim_mix(adapter, (uint64_t)rope);
    s.copy_fails_at = copy_may_fail && pick(4) == 0 ? s.copies + 1 + pick(3) : 0;
    const ln_status st = ln_kv_admit(s.kv, slot, rope, &opt, &s.seqs[slot], &err);
    if (st != LN_OK) {
        assert_int_equal(st, LN_EDEVICE);
        assert_int_equal(s.copies, s.copy_fails_at);
        assert_null(s.seqs[slot]);
        return;
    }
    if (!s.seqs[slot]) {
        assert_true(need > o->n_pages);
        n_refused++;
        return;
    }
    n_shared += want >= o->page_len;
    n_partial += want % o->page_len > 0;
    n_windows += strcmp(s.seqs[slot]->cache_miss_reason, "window") == 0;
    assert_int_equal(s.seqs[slot]->n, want);
    assert_int_equal(s.seqs[slot]->n_cached, want);
    sim_check(&s, s.seqs[slot]);
}

static void step_one(ln_seq *q) {
    int32_t ids[SIM_CTX];
    const int64_t wanted = 1 + pick(s.kv->o.n_chunk), n = LN_MIN(wanted, q->n_most - q->n);
    if (n < 1) return;
    for (int64_t i = 0; i < n; i++)
        ids[i] = q->n + i < q->n_prompt ? prompts[q->slot][q->n + i] : (int32_t)(pick(8) == 0);
    if (pick(6) == 0) { /* a step that fails */
        OK(ln_kv_reserve(s.kv, q, n, err));
        ln_kv_free_unused(s.kv, q);
        sim_check(&s, q);
        return;
    }
    sim_step(&s, q, ids, n);
    for (int64_t b = 0; b < q->n_registered; b++)
        n_joined += s.kv->refs[q->tables[0][b * s.kv->o.pages_per_block[0]] < 0
                                   ? 0
                                   : q->tables[0][b * s.kv->o.pages_per_block[0]]] > 1;
}

/* Holds the pages of a text that is kept, as ln_seq_save does, or releases them: no sequence wrote to
 * them. */
static void save_or_not(void) {
    const ln_kv_options *o = &s.kv->o;
    static int32_t table[LN_STATE_GROUPS][SIM_ENTRIES];
    int32_t *pages[LN_STATE_GROUPS];
    for (int c = 0; c < LN_STATE_GROUPS; c++) pages[c] = table[c];
    if (saved) {
        for (int c = 0; c < o->n_groups; c++)
            for (int64_t i = saved->low[c] * o->pages_per_block[c];
                 i < (saved->n + o->page_len - 1) / o->page_len * o->pages_per_block[c]; i++)
                assert_memory_equal(s.page[saved->tables[c][i]], saved_pages[c][i],
                                    (size_t)o->page_len * sizeof(uint64_t));
        ln_kv_release(s.kv, &saved);
        return;
    }
    int64_t rope;
    const int64_t n = ln_kv_lookup(s.kv, 0, texts[pick(n_texts)], 1 + pick(LONGEST), &rope, pages);
    if (n == 0) return;
    OK(ln_kv_hold(s.kv, n, pages, &saved, err));
    if (!saved) return;
    n_held++;
    for (int c = 0; c < o->n_groups; c++)
        for (int64_t i = saved->low[c] * o->pages_per_block[c];
             i < (n + o->page_len - 1) / o->page_len * o->pages_per_block[c]; i++)
            memcpy(saved_pages[c][i], s.page[saved->tables[c][i]], (size_t)o->page_len * sizeof(uint64_t));
}

static void operate(void) {
    ln_seq *q = s.seqs[pick(s.kv->o.n_seqs)];
    const int64_t what = pick(100);
    if (what < 25) open_one();
    else if (what < 80 && q) step_one(q);
    else if (what < 96 && q) sim_close(&s, q);
    else if (what == 96) save_or_not();
    else if (what == 98 && pick(4) == 0)
        (void)ln_kv_set_limit(s.kv, pick(2) ? INT64_MAX : pick(s.kv->o.n_pages));
    else if (what == 99 && pick(8) == 0) ln_kv_clear(s.kv);
}

static void run(const ln_kv_options *o, int64_t operations) {
    sim_open(&s, o);
    for (int64_t i = 0; i < operations; i++) {
        operate();
        check_all();
    }
    s.copy_fails_at = 0;
    if (saved) save_or_not();
    sim_end(&s);
}

static void random_schedules(void **state) {
    (void)state;
    static const ln_kv_options of[] = {
        {.n_pages = 40, .page_len = 4, .n_chunk = 9, .n_seqs = 4, .n_groups = 1, .pages_per_block = {1}},
        {.n_pages = 120,
         .page_len = 4,
         .n_chunk = 6,
         .n_seqs = 5,
         .n_groups = 2,
         .window = {0, 7},
         .pages_per_block = {1, 2}},
        {.n_pages = 100,
         .page_len = 4,
         .n_chunk = 7,
         .n_seqs = 5,
         .n_groups = 2,
         .window = {12, 0},
         .pages_per_block = {1, 1}}, /* a window of three pages */
        {.n_pages = 60,
         .page_len = 4,
         .n_chunk = 5,
         .n_seqs = 3,
         .n_groups = 2,
         .window = {5, 13},
         .pages_per_block = {2, 1}},
        {.n_pages = 200,
         .page_len = 8,
         .n_chunk = 20,
         .n_seqs = 6,
         .n_groups = 2,
         .window = {0, 3},
         .pages_per_block = {2, 3}},
        {.n_pages = 48,
         .page_len = 4,
         .n_chunk = 4,
         .n_seqs = 4,
         .n_groups = 2,
         .window = {0, 0},
         .pages_per_block = {1, 1}}, /* all positions are kept */
        {.n_pages = 20,
         .page_len = 4,
         .n_chunk = 20,
         .n_seqs = 1,
         .n_groups = 1,
         .pages_per_block = {1}}, /* a single context */
        {.n_pages = 26,
         .page_len = 4,
         .n_chunk = 3,
         .n_seqs = 2,
         .n_groups = 2,
         .window = {6, 0},
         .pages_per_block = {2, 1}},
        {.n_pages = 24,
         .page_len = 4,
         .n_chunk = 60,
         .n_seqs = 2,
         .n_groups = 1,
         .window = {9},
         .pages_per_block = {1}},
        {.n_pages = 60,
         .page_len = 8,
         .n_chunk = 5,
         .n_seqs = 4,
         .n_groups = 4,
         .window = {0, 9, 0, 17},
         .pages_per_block = {1, 1, 2, 1}}};
    for (size_t i = 0; i < LN_COUNT(of); i++) {
        ln_kv_options o = of[i];
        o.n_ctx = LONGEST;
        n_texts = o.n_seqs <= 2 ? 2 : TEXTS;
        seed = 1000 + i;
        copy_may_fail = i % 2 == 0;
        for (int t = 0; t < TEXTS; t++) {
            const int64_t same = t ? pick(LONGEST) : 0;
            for (int64_t k = 0; k < LONGEST; k++)
                texts[t][k] = k < same ? texts[pick(4) ? t - 1 : 0][k] : (int32_t)pick(3);
        }
        run(&o, fewer(100000, 30000) / (int64_t)LN_COUNT(of) + 1);
        n_taken_over += s.in_place;
    }
    assert_true(n_shared > 0 && n_partial > 0 && n_taken_over > 0 && n_refused > 0 && n_windows > 0 &&
                n_joined > 0 && n_less > 0 && n_held > 0);
    print_message("  shared %lld, partial %lld, taken over %lld, refused %lld, windows %lld, joined %lld, "
                  "fewer "
                  "positions held %lld, saved %lld\n",
                  (long long)n_shared, (long long)n_partial, (long long)n_taken_over, (long long)n_refused,
                  (long long)n_windows, (long long)n_joined, (long long)n_less, (long long)n_held);
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_schedules)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
