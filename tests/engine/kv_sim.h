/* A pool of pages without kernels, for tests of the KV cache. Every position of a page holds a number that
 * names the text down to it, as keys and values depend on all the tokens before them. Sequences are checked
 * to see their own text in their pages, and zeros behind it. */
#ifndef LN_TESTS_KV_SIM_H
#define LN_TESTS_KV_SIM_H

#include <string.h>

#include "../common.h"
#include "engine/kv_tree.h"

enum { SIM_PAGES = 400, SIM_LEN = 8, SIM_SEQS = 8, SIM_CTX = 256, SIM_ENTRIES = 1024 };

typedef struct sim {
    ln_kv *kv;
    uint64_t page[SIM_PAGES][SIM_LEN];
    int32_t table[SIM_SEQS][LN_STATE_GROUPS][SIM_ENTRIES]; /* what the device would hold */
    ln_seq *seqs[SIM_SEQS];
    uint64_t key[SIM_SEQS]; /* what the texts of each sequence depend on in addition to their tokens */
    int64_t copies, copy_fails_at, in_place; /* in_place: copies of a page to itself */
} sim;

static inline ln_status sim_zero(void *user, int64_t page, ln_error *err) {
    (void)err;
    memset(((sim *)user)->page[page], 0, sizeof((sim *)user)->page[page]);
    return LN_OK;
}
static inline ln_status sim_copy(void *user, int group, int64_t to, int64_t from, int64_t n, ln_error *err) {
    sim *s = user;
    assert_true(group >= 0 && group < s->kv->o.n_groups);
    if (++s->copies == s->copy_fails_at) return ln_fail(err, LN_EDEVICE, "the copy failed");
    s->in_place += to == from;
    for (int64_t i = 0; i < SIM_LEN; i++) s->page[to][i] = i < n ? s->page[from][i] : 0;
    return LN_OK;
}
static inline void sim_set(void *user, int slot, int group, int64_t first, const int32_t *pages, int64_t n) {
    sim *s = user;
    assert_true(first >= 0 && first + n <= SIM_ENTRIES);
    memcpy(&s->table[slot][group][first], pages, (size_t)n * sizeof *pages);
}

static inline void sim_open(sim *s, const ln_kv_options *o) {
    const ln_kv_ops ops = {.user = s, .zero = sim_zero, .copy = sim_copy, .set = sim_set};
    memset(s, 0, sizeof *s);
    for (int p = 0; p < SIM_PAGES; p++) memset(s->page[p], 0xff, sizeof s->page[p]); /* never used */
    assert_true(o->n_pages <= SIM_PAGES && o->page_len <= SIM_LEN && o->n_seqs <= SIM_SEQS);
    assert_true(o->n_ctx <= SIM_CTX);
    OK(ln_kv_open(&s->kv, o, &ops, err));
}

static inline uint64_t sim_mix(uint64_t h, uint64_t x) {
    h = (h ^ x) * UINT64_C(0xff51afd7ed558ccd) + 1;
    return h ^ h >> 31;
}

/* Writes positions from .. to - 1 of a text into the sequence's pages. */
static inline void sim_write(sim *s, const ln_seq *q, const int32_t *text, int64_t from, int64_t to) {
    const ln_kv_options *o = &s->kv->o;
    uint64_t h = s->key[q->slot];
    for (int64_t t = 0; t < to; t++) {
        h = sim_mix(h, (uint64_t)text[t]);
        for (int c = 0; c < o->n_groups && t >= from; c++)
            for (int i = 0; i < o->pages_per_block[c] && t / o->page_len >= q->low[c]; i++) {
                const int32_t page = q->tables[c][t / o->page_len * o->pages_per_block[c] + i];
                assert_true(page >= 0 && s->kv->refs[page] == 1 && s->kv->node_of[page] < 0);
                s->page[page][t % o->page_len] = sim_mix(h, (uint64_t)(c * 100 + i));
            }
    }
}

/* Checks that a sequence has what its next row attends to, and that it is its own. */
static inline void sim_check(sim *s, const ln_seq *q) {
    const ln_kv_options *o = &s->kv->o;
    const int64_t blocks = (q->n + o->page_len - 1) / o->page_len;
    uint64_t path[SIM_CTX], h = s->key[q->slot];
    for (int64_t t = 0; t < q->n; t++) path[t] = h = sim_mix(h, (uint64_t)q->tokens[t]);
    for (int c = 0; c < o->n_groups; c++) {
        assert_int_equal(q->low[c], ln_kv_lowest(s->kv, c, q->n));
        for (int64_t at = 0; at < (q->n_most + o->page_len - 1) / o->page_len * o->pages_per_block[c]; at++) {
            const int64_t b = at / o->pages_per_block[c];
            const int32_t page = q->tables[c][at];
            assert_int_equal(page >= 0, b >= q->low[c] && b < blocks);
            if (page < 0) continue;
            assert_int_equal(page, s->table[q->slot][c][at]);
            for (int64_t i = 0; i < o->page_len; i++) {
                const int64_t t = b * o->page_len + i;
                const uint64_t want =
                    t < q->n ? sim_mix(path[t], (uint64_t)(c * 100 + at % o->pages_per_block[c])) : 0;
                if (s->page[page][i] != want)
                    fail_msg("slot %d group %d: position %lld of %lld is not its own", q->slot, c,
                             (long long)t, (long long)q->n);
            }
        }
    }
}

/* Opens a sequence in a free slot; NULL: the pool cannot commit it. */
static inline ln_seq *sim_admit(sim *s, const int32_t *ids, int64_t n, int64_t n_most, uint64_t adapter,
                                int64_t rope) {
    const ln_seq_options opt = {.ids = ids, .n_prompt = n, .n_most = n_most, .adapter = adapter};
    int slot = 0;
    while (s->seqs[slot]) slot++;
    assert_true(slot < s->kv->o.n_seqs);
    s->key[slot] = sim_mix(adapter, (uint64_t)rope);
    OK(ln_kv_admit(s->kv, slot, rope, &opt, &s->seqs[slot], err));
    if (s->seqs[slot]) sim_check(s, s->seqs[slot]);
    return s->seqs[slot];
}
/* A reservation leaves no more windowed pages with a sequence than it was committed. */
static inline void sim_check_window(const sim *s, const ln_seq *q) {
    const ln_kv_options *o = &s->kv->o;
    int64_t n = 0;
    for (int c = 0; c < o->n_groups; c++)
        for (int64_t i = 0;
             o->window[c] && i < (q->n_most + o->page_len - 1) / o->page_len * o->pages_per_block[c]; i++)
            n += q->tables[c][i] >= 0;
    assert_true(n <= q->window_pages[0]);
}
static inline void sim_step(sim *s, ln_seq *q, const int32_t *ids, int64_t n) {
    int32_t text[SIM_CTX];
    OK(ln_kv_reserve(s->kv, q, n, err));
    sim_check_window(s, q);
    memcpy(text, q->tokens, (size_t)q->n * sizeof *text);
    memcpy(text + q->n, ids, (size_t)n * sizeof *text);
    sim_write(s, q, text, q->n, q->n + n);
    ln_kv_advance(s->kv, q, ids, n);
    sim_check(s, q);
}
static inline void sim_close(sim *s, ln_seq *q) {
    ln_seq **at = &s->seqs[q->slot];
    assert_ptr_equal(*at, q);
    ln_kv_release(s->kv, at);
    assert_null(*at);
}
/* Runs a text to its end in steps of `chunk`; returns how many tokens were reused. */
static inline int64_t sim_run(sim *s, const int32_t *ids, int64_t n, int64_t chunk) {
    ln_seq *q = sim_admit(s, ids, n, n, 0, 0);
    assert_non_null(q);
    const int64_t cached = q->n_cached;
    while (q->n < n) sim_step(s, q, ids + q->n, LN_MIN(chunk, n - q->n));
    sim_close(s, q);
    return cached;
}

/* Nothing is held, and after ln_kv_clear everything is free: pages and nodes. */
static inline void sim_end(sim *s) {
    for (int i = 0; i < SIM_SEQS; i++)
        if (s->seqs[i]) sim_close(s, s->seqs[i]);
    ln_kv_clear(s->kv);
    const ln_kv_counts n = ln_kv_count(s->kv);
    assert_int_equal(n.n_free, n.n_pages);
    assert_int_equal(n.n_used + n.n_cached, 0);
    assert_int_equal(s->kv->promised[0], 0);
    int64_t nodes = 0;
    for (int32_t i = s->kv->free_nodes; i >= 0; i = s->kv->nodes[i].next) nodes++;
    assert_int_equal(nodes, s->kv->n_nodes);
    ln_kv_close(&s->kv);
}
#endif
