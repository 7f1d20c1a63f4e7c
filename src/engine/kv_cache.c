/* Pages of sequences: committed at admission, shared with the prefix tree, taken when a step needs their
 * positions, released when no later row can attend to them, and with the sequence.
 *
 * Why ln_kv_take never fails in a step. Of groups without a window let U be the pages that sequences hold,
 * each counted once (n_held), and u(s) those that sequence s may still take (to_take). Of groups with a
 * window let W be the pages that sequences hold, h(s) those that s holds, and w(s) the most that it ever
 * holds (window_pages).
 *
 * First, U + sum u + sum w <= n_pages. Admission checks it. A page that is taken moves from u(s) to U, and
 * back when it is released: after a failed step, whose pages no other sequence holds. A sequence that is
 * closed takes its u(s) and w(s) along. One that adopts the tree's page for an equal one of its own lets go
 * of one page and holds another, which may be held already.
 *
 * Second, W <= sum h, and s never ends a reservation with h(s) > w(s): n_chunk rows from position n on
 * need the blocks from that of n - window + 1 to that of n + n_chunk - 1 (most_blocks).
 *
 * So U + W <= n_pages after the reservations of a step. A page that no sequence holds is free, or it is in
 * one of the tree's LRU lists, where repeated eviction reaches it.
 *
 * For pages of chunks the same holds of the second pool, without groups that have no window. w(s) is two
 * blocks: a step needs that of the last position before it and that of its last row. Pages for snapshots
 * are taken after the reservations of a step, and no sequence holds them when it has ended
 * (ln_kv_advance).
 *
 * A block that is copied at admission has its sources held during the copy. Those that another sequence holds
 * are in U or W anyway. So there are pages to be taken for as many as the sources that another one holds,
 * at least; the others are taken over where there are no more. */
#include "kv_tree.h"

#include <string.h>

static int64_t blocks_of(const ln_kv *kv, int64_t n) { return (n + kv->o.page_len - 1) / kv->o.page_len; }

/* The most blocks of group c that a sequence of n positions holds at once: a step of n_chunk rows needs those
 * of its rows and of the window below the first of them. */
static int64_t most_blocks(const ln_kv *kv, int c, int64_t n) {
    int64_t all = blocks_of(kv, n), w = kv->o.window[c];
    if (kv->o.chunks[c]) return LN_MIN(all, 2);
    return w == 0 ? all : LN_MIN(all, (w + kv->o.n_chunk - 2) / kv->o.page_len + 2);
}

/* Pages that a sequence of n positions is committed: those of groups without a window, and with one. */
static void commitment(const ln_kv *kv, int64_t n, int64_t *full, int64_t windowed[LN_KV_POOLS]) {
    *full = windowed[LN_KV_PAGES] = windowed[LN_KV_CHUNKS] = 0;
    for (int c = 0; c < kv->o.n_groups; c++)
        *(kv->o.window[c] ? &windowed[ln_kv_pool_of(kv, c)] : full) +=
            most_blocks(kv, c, n) * kv->o.pages_per_block[c];
}

/* ---- opening ---- */

uint64_t ln_kv_bytes(const ln_kv_options *o) {
    return sizeof(ln_kv) + (uint64_t)(o->n_pages + o->n_chunk_pages) * 12 + ln_kv_tree_bytes(o);
}

uint64_t ln_kv_seq_bytes(const ln_kv_options *o, int64_t n_most) {
    uint64_t blocks = ((uint64_t)n_most + (uint64_t)o->page_len - 1) / (uint64_t)o->page_len;
    uint64_t bytes = sizeof(ln_seq) + (uint64_t)n_most * 4;
    for (int c = 0; c < o->n_groups; c++) bytes += blocks * (uint64_t)o->pages_per_block[c] * 4;
    return bytes;
}

static ln_status open_pages(ln_kv *kv, ln_error *err) {
    const int64_t n = kv->n_all = kv->o.n_pages + kv->o.n_chunk_pages;
    kv->free = ln_zalloc((size_t)n, sizeof *kv->free);
    kv->refs = ln_zalloc((size_t)n, sizeof *kv->refs);
    kv->node_of = ln_zalloc((size_t)n, sizeof *kv->node_of);
    if (!kv->free || !kv->refs || !kv->node_of) return LN_OOM(err, "the KV cache");
    for (int64_t i = n; i-- > 0;) {
        kv->node_of[i] = -1;
        ln_kv_free_page(kv, (int32_t)i); /* the first page of each pool is taken first */
    }
    return ln_kv_tree_open(kv, err);
}

ln_status ln_kv_open(ln_kv **out, const ln_kv_options *o, const ln_kv_ops *ops, ln_error *err) {
    *out = NULL;
    ln_kv *kv = ln_zalloc(1, sizeof *kv);
    if (!kv) return LN_OOM(err, "the KV cache");
    kv->o = *o;
    kv->ops = *ops;
    kv->limit = INT64_MAX;
    const ln_status st = open_pages(kv, err);
    if (st != LN_OK) ln_kv_close(&kv);
    *out = kv;
    return st;
}

void ln_kv_close(ln_kv **kv) {
    if (!*kv) return;
    ln_kv_tree_close(*kv);
    ln_free((*kv)->free);
    ln_free((*kv)->refs);
    ln_free((*kv)->node_of);
    ln_free(*kv);
    *kv = NULL;
}

static ln_kv_counts counts_of(const ln_kv *kv, int pool) {
    return (ln_kv_counts){.n_pages = pool == LN_KV_CHUNKS ? kv->o.n_chunk_pages : kv->o.n_pages,
                          .n_free = kv->n_free[pool],
                          .n_used = (pool == LN_KV_PAGES ? kv->n_held : 0) + kv->n_window[pool],
                          .n_cached = kv->n_cached[pool],
                          .n_evicted = kv->n_evicted};
}

ln_kv_counts ln_kv_count(const ln_kv *kv) { return counts_of(kv, LN_KV_PAGES); }
ln_kv_counts ln_kv_count_chunks(const ln_kv *kv) { return counts_of(kv, LN_KV_CHUNKS); }

int64_t ln_kv_set_limit(ln_kv *kv, int64_t n_pages) {
    const int64_t before = kv->limit;
    kv->limit = n_pages;
    ln_kv_trim(kv);
    return before;
}

void ln_kv_clear(ln_kv *kv) { (void)ln_kv_set_limit(kv, ln_kv_set_limit(kv, 0)); }

/* ---- entries of a sequence's tables ---- */

static int32_t *entry(const ln_kv *kv, const ln_seq *s, int c, int64_t block) {
    return &s->tables[c][block * kv->o.pages_per_block[c]];
}

/* Tells the device about the entries of blocks first .. end - 1. */
static void show(const ln_kv *kv, const ln_seq *s, int c, int64_t first, int64_t end) {
    const int n = kv->o.pages_per_block[c];
    if (first < end)
        kv->ops.set(kv->ops.user, s->slot, c, first * n, entry(kv, s, c, first), (end - first) * n);
}

/* A sequence holds one page more, or one less, that no other entry of its tables names. */
static void hold(ln_kv *kv, int c, int32_t page) {
    if (kv->refs[page]++ == 0) ++*(kv->o.window[c] ? &kv->n_window[ln_kv_pool_of(kv, c)] : &kv->n_held);
}
static void let_go(ln_kv *kv, int c, int32_t page) {
    if (--kv->refs[page] > 0) return;
    --*(kv->o.window[c] ? &kv->n_window[ln_kv_pool_of(kv, c)] : &kv->n_held);
    if (kv->node_of[page] < 0) ln_kv_free_page(kv, page);
}

/* Fills an empty entry, or empties it with page -1. The caller holds the page. */
static void set_entry(ln_kv *kv, ln_seq *s, int c, int32_t *at, int32_t page) {
    if (kv->o.window[c] == 0) {
        const int taken = (page >= 0) - (*at >= 0);
        s->to_take -= taken, kv->promised[LN_KV_PAGES] -= taken;
    }
    *at = page;
}

/* Takes the pages of one block; `zero`: the coming step does not write all of it. */
static ln_status take_block(ln_kv *kv, ln_seq *s, int c, int64_t block, bool zero, ln_error *err) {
    int32_t *pages = entry(kv, s, c, block);
    for (int i = 0; i < kv->o.pages_per_block[c]; i++) {
        const int32_t page = ln_kv_take(kv, ln_kv_pool_of(kv, c));
        if (page < 0)
            return ln_fail(err, LN_EINTERNAL, "the KV pool of %lld pages lacks one that was committed",
                           (long long)kv->o.n_pages);
        hold(kv, c, page);
        set_entry(kv, s, c, &pages[i], page);
        if (zero) LN_TRY(kv->ops.zero(kv->ops.user, page, err));
    }
    show(kv, s, c, block, block + 1);
    return LN_OK;
}

/* Releases the pages of one block. The device's table keeps the entries: no row will attend to them. */
static void drop_block(ln_kv *kv, ln_seq *s, int c, int64_t block) {
    int32_t *pages = entry(kv, s, c, block), node = -1;
    for (int i = 0; i < kv->o.pages_per_block[c]; i++) {
        const int32_t page = pages[i];
        if (page < 0) continue;
        node = kv->node_of[page];
        set_entry(kv, s, c, &pages[i], -1);
        let_go(kv, c, page);
    }
    ln_kv_relist(kv, node);
}

/* Releases the pages of all blocks from first_block on, the last block first (kv_tree.h says why). */
static void drop_from(ln_kv *kv, ln_seq *s, int64_t first_block) {
    const int64_t blocks = blocks_of(kv, s->n_most);
    int64_t end[LN_STATE_GROUPS] = {0}, last = 0;
    for (int c = 0; c < kv->o.n_groups; c++) { /* resident blocks are contiguous, except chunks */
        end[c] = LN_MAX(first_block, s->low[c]);
        if (kv->o.chunks[c]) end[c] = LN_MAX(end[c], blocks);
        while (end[c] < blocks && *entry(kv, s, c, end[c]) >= 0) end[c]++;
        last = LN_MAX(last, end[c]);
    }
    for (int64_t b = last - 1; b >= first_block; b--)
        for (int c = 0; c < kv->o.n_groups; c++)
            if (b < end[c] && b >= s->low[c]) drop_block(kv, s, c, b);
}

/* ---- admission ---- */

bool ln_kv_possible(const ln_kv *kv, int64_t n) {
    int64_t full, windowed[LN_KV_POOLS];
    commitment(kv, n, &full, windowed);
    return n <= kv->o.n_ctx && full + windowed[LN_KV_PAGES] <= kv->o.n_pages &&
           windowed[LN_KV_CHUNKS] <= kv->o.n_chunk_pages;
}

static void free_seq(ln_seq **s) {
    if (!*s) return;
    ln_free((*s)->tokens);
    for (int c = 0; c < LN_STATE_GROUPS; c++) ln_free((*s)->tables[c]);
    ln_free(*s);
    *s = NULL;
}

/* Commits pages of groups with a window to a sequence. */
static void promise(ln_kv *kv, ln_seq *s, const int64_t windowed[LN_KV_POOLS]) {
    for (int i = 0; i < LN_KV_POOLS; i++) s->window_pages[i] = windowed[i], kv->promised[i] += windowed[i];
}

static ln_status new_seq(const ln_kv *kv, const ln_seq_options *opt, ln_seq **out, ln_error *err) {
    ln_seq *s = *out = ln_zalloc(1, sizeof *s);
    if (!s) return LN_OOM(err, "a sequence");
    s->n_most = opt->n_most;
    s->n_prompt = opt->n_prompt;
    s->adapter_slot = opt->adapter_slot;
    s->no_cache = opt->no_cache;
    s->tail = -1;
    s->tokens = ln_zalloc((size_t)opt->n_most, sizeof *s->tokens);
    if (!s->tokens) return LN_OOM(err, "a sequence");
    for (int c = 0; c < kv->o.n_groups; c++) {
        size_t n = (size_t)(blocks_of(kv, opt->n_most) * kv->o.pages_per_block[c]);
        s->tables[c] = ln_zalloc(n, sizeof *s->tables[c]);
        if (!s->tables[c]) return LN_OOM(err, "a page table");
        memset(s->tables[c], 0xff, n * sizeof *s->tables[c]);
    }
    return LN_OK;
}

/* Pages of groups without a window, on the path down to `node`, that no sequence holds yet. Where one holds a
 * node's, it holds those of the ancestors too. */
static int64_t newly_held(const ln_kv *kv, int32_t node) {
    int64_t n = 0;
    for (; node >= 0 && kv->nodes[node].n > 0; node = kv->nodes[node].parent)
        for (int c = 0; c < kv->o.n_groups; c++)
            if (kv->o.window[c] == 0 && kv->refs[*ln_kv_pages_of(kv, node, c)] == 0)
                n += kv->o.pages_per_block[c];
    return n;
}

/* The sequence holds the whole blocks of a match, down to m->whole. */
static void share_blocks(ln_kv *kv, ln_seq *s, const ln_kv_match *m) {
    int32_t node = m->whole;
    for (int64_t b = m->n / kv->o.page_len - 1; b >= 0; b--, node = kv->nodes[node].parent) {
        for (int c = 0; c < kv->o.n_groups; c++) {
            if (b < s->low[c]) continue;
            for (int i = 0; i < kv->o.pages_per_block[c]; i++) {
                const int32_t page = ln_kv_pages_of(kv, node, c)[i];
                hold(kv, c, page);
                set_entry(kv, s, c, &entry(kv, s, c, b)[i], page);
            }
        }
        ln_kv_relist(kv, node);
    }
}

/* Gives the sequence its own page for `source`, which its entry names so far: a copy or, where no other page
 * can be had and no other sequence holds it, the page itself. */
static ln_status own_page(ln_kv *kv, int c, int32_t *at, int64_t n, ln_error *err) {
    const int32_t source = *at, page = ln_kv_take(kv, ln_kv_pool_of(kv, c));
    if (page >= 0) {
        hold(kv, c, page);
        *at = page;
        const ln_status st = kv->ops.copy(kv->ops.user, c, page, source, n, err);
        const int32_t node = kv->node_of[source];
        let_go(kv, c, source);
        ln_kv_relist(kv, node);
        return st;
    }
    if (kv->refs[source] > 1)
        return ln_fail(err, LN_EINTERNAL, "the KV pool of %lld pages lacks one that was committed",
                       (long long)kv->o.n_pages);
    if (kv->node_of[source] >= 0) ln_kv_detach(kv, kv->node_of[source], c);
    return kv->ops.copy(kv->ops.user, c, source, source, n, err);
}

/* Gives the sequence its own pages for the block that a match ends in. The sources are held during the copy,
 * so that they are not evicted for it. */
static ln_status copy_block(ln_kv *kv, ln_seq *s, const ln_kv_match *m, ln_error *err) {
    const int64_t b = m->n / kv->o.page_len, n = m->n % kv->o.page_len;
    for (int c = 0; c < kv->o.n_groups; c++)
        for (int i = 0; b >= s->low[c] && i < kv->o.pages_per_block[c]; i++) {
            const int32_t page = ln_kv_pages_of(kv, m->source, c)[i];
            hold(kv, c, page);
            set_entry(kv, s, c, &entry(kv, s, c, b)[i], page);
        }
    ln_kv_relist(kv, m->source);
    for (int c = 0; c < kv->o.n_groups; c++)
        for (int i = 0; b >= s->low[c] && i < kv->o.pages_per_block[c]; i++)
            LN_TRY(own_page(kv, c, &entry(kv, s, c, b)[i], n, err));
    return LN_OK;
}

/* The sequence begins with what the tree holds of its prompt. */
static ln_status begin(ln_kv *kv, ln_seq *s, int64_t rope, const ln_seq_options *opt, const ln_kv_match *m,
                       ln_error *err) {
    s->tail = m->whole >= 0 ? m->whole : ln_kv_root(kv, opt->adapter, rope);
    ln_kv_pin(kv, s->tail);
    s->n_shareable = LN_MIN(rope ? rope : INT64_MAX, opt->n_share > 0 ? opt->n_share : INT64_MAX);
    for (int c = 0; c < kv->o.n_groups; c++) s->low[c] = ln_kv_lowest(kv, c, m->n);
    share_blocks(kv, s, m);
    if (m->source >= 0) LN_TRY(copy_block(kv, s, m, err));
    for (int c = 0; c < kv->o.n_groups; c++) show(kv, s, c, s->low[c], blocks_of(kv, m->n));
    if (m->n > 0) memcpy(s->tokens, opt->ids, (size_t)m->n * sizeof *opt->ids);
    s->n = s->n_cached = m->n;
    s->n_registered = m->n / kv->o.page_len;
    s->branch = m->seen;
    s->interval = LN_KV_INTERVAL;
    ln_kv_space_snapshots(kv, s);
    return LN_OK;
}

/* What can be reused of a prompt. */
static ln_kv_match match(const ln_kv *kv, int64_t rope, const ln_seq_options *opt) {
    const int64_t most = opt->n_prompt - LN_MAX(opt->n_fresh, 1);
    if (!opt->no_cache && most > 0) return ln_kv_find(kv, opt->adapter, rope, opt->ids, opt->n_prompt, most);
    return (ln_kv_match){.whole = -1, .source = -1, .reason = opt->no_cache ? "disabled" : ""};
}

ln_status ln_kv_admit(ln_kv *kv, int slot, int64_t rope, const ln_seq_options *opt, ln_seq **out,
                      ln_error *err) {
    int64_t full, windowed[LN_KV_POOLS];
    ln_seq *s = NULL;
    *out = NULL;
    if (opt->n_prompt < 0 || opt->n_most < LN_MAX(opt->n_prompt, 1) || opt->n_most > kv->o.n_ctx)
        return ln_fail(err, LN_EINTERNAL, "a sequence of %lld positions for a prompt of %lld, at most %lld",
                       (long long)opt->n_most, (long long)opt->n_prompt, (long long)kv->o.n_ctx);
    const ln_kv_match m = match(kv, rope, opt);
    commitment(kv, opt->n_most, &full, windowed);
    const int64_t shared = m.n / kv->o.page_len * kv->full_pages;
    if (kv->n_held + newly_held(kv, m.whole) + kv->promised[LN_KV_PAGES] + full - shared +
                windowed[LN_KV_PAGES] >
            kv->o.n_pages ||
        kv->promised[LN_KV_CHUNKS] + windowed[LN_KV_CHUNKS] > kv->o.n_chunk_pages)
        return LN_OK;
    ln_status st = new_seq(kv, opt, &s, err);
    if (st != LN_OK) {
        free_seq(&s);
        return st;
    }
    s->slot = slot;
    s->cache_miss_reason = m.reason;
    s->to_take = full;
    promise(kv, s, windowed);
    kv->promised[LN_KV_PAGES] += full;
    if (!opt->no_cache) st = begin(kv, s, rope, opt, &m, err);
    if (st != LN_OK) ln_kv_release(kv, &s);
    *out = s;
    return st;
}

/* ---- steps ---- */

/* Registers the blocks that have become full. */
static void register_full(ln_kv *kv, ln_seq *s) {
    const int len = kv->o.page_len;
    while (s->tail >= 0 && (s->n_registered + 1) * len <= LN_MIN(s->n, s->n_shareable)) {
        const int32_t node = ln_kv_register(kv, s, s->n_registered, len), before = s->tail;
        ln_kv_pin(kv, node);
        s->tail = node;
        s->n_registered++;
        ln_kv_unpin(kv, before);
        if (s->n_registered % s->interval == 0) ln_kv_space_snapshots(kv, s);
    }
}

void ln_kv_release(ln_kv *kv, ln_seq **out) {
    ln_seq *s = *out;
    if (!s) return;
    const int64_t done = s->n_registered * kv->o.page_len, rest = LN_MIN(s->n, s->n_shareable) - done;
    drop_from(kv, s, blocks_of(kv, s->n));
    if (s->tail >= 0 && rest > 0 && rest < kv->o.page_len)
        (void)ln_kv_register(kv, s, s->n_registered, (int)rest);
    if (s->tail >= 0 && rest == 0 && done > 0) ln_kv_register_end(kv, s);
    drop_from(kv, s, 0);
    ln_kv_unpin(kv, s->tail);
    kv->promised[LN_KV_PAGES] -= s->to_take;
    for (int i = 0; i < LN_KV_POOLS; i++) kv->promised[i] -= s->window_pages[i];
    ln_kv_trim(kv);
    free_seq(out);
}

/* Whether a sequence that is cut to n tokens would lack the recurrent state that its next row needs. */
static bool lacks_chunk(const ln_kv *kv, const ln_seq *s, int c, int64_t n) {
    return kv->o.chunks[c] && n > 0 && *entry(kv, s, c, (n - 1) / kv->o.page_len) < 0;
}

ln_status ln_kv_cut(ln_kv *kv, ln_seq *s, int64_t n, ln_error *err) {
    if (n < 0 || n > s->n || !s->no_cache)
        return ln_fail(err, LN_EINTERNAL, "a sequence of %lld tokens cannot be cut to %lld%s",
                       (long long)s->n, (long long)n, s->no_cache ? "" : ": its blocks are shared");
    for (int c = 0; c < kv->o.n_groups; c++)
        if (ln_kv_lowest(kv, c, n) < s->low[c] || lacks_chunk(kv, s, c, n))
            return ln_fail(err, LN_EINTERNAL, "a window has moved on: the sequence cannot be cut to %lld",
                           (long long)n);
    s->n = n;
    ln_kv_free_unused(kv, s);
    return LN_OK;
}

void ln_kv_free_unused(ln_kv *kv, ln_seq *s) { drop_from(kv, s, blocks_of(kv, s->n)); }

/* The last block of a sequence is its own if it is not full: what is registered are whole blocks. */
ln_status ln_kv_truncate(ln_kv *kv, ln_seq *s, ln_error *err) {
    const int64_t b = s->n / kv->o.page_len, n = s->n % kv->o.page_len;
    for (int c = 0; c < kv->o.n_groups; c++)
        if (lacks_chunk(kv, s, c, s->n))
            return ln_fail(err, LN_EINTERNAL,
                           "no recurrent state was kept for position %lld of a step that is cut there",
                           (long long)s->n);
    ln_kv_free_unused(kv, s);
    for (int c = 0; n > 0 && c < kv->o.n_groups; c++)
        for (int i = 0; b >= s->low[c] && i < kv->o.pages_per_block[c]; i++) {
            const int32_t page = entry(kv, s, c, b)[i];
            LN_TRY(kv->ops.copy(kv->ops.user, c, page, page, n, err));
        }
    return LN_OK;
}

/* Reserves the page of the last block of a step, and tells the device which blocks of it have none. */
static ln_status reserve_chunk(ln_kv *kv, ln_seq *s, int c, int64_t add, ln_error *err) {
    const int64_t len = kv->o.page_len, first = s->n / len, last = (s->n + add - 1) / len;
    if (*entry(kv, s, c, last) < 0) LN_TRY(take_block(kv, s, c, last, false, err));
    show(kv, s, c, first, last);
    return LN_OK;
}

ln_status ln_kv_reserve(ln_kv *kv, ln_seq *s, int64_t add, ln_error *err) {
    const int64_t len = kv->o.page_len;
    if (add < 1 || add > kv->o.n_chunk || s->n + add > s->n_most)
        return ln_fail(err, LN_EINTERNAL, "%lld rows at position %lld: the sequence was admitted for %lld",
                       (long long)add, (long long)s->n, (long long)s->n_most);
    for (int c = 0; c < kv->o.n_groups; c++) {
        if (kv->o.chunks[c]) {
            LN_TRY(reserve_chunk(kv, s, c, add, err));
            continue;
        }
        for (int64_t b = LN_MAX(s->n / len, s->low[c]); b <= (s->n + add - 1) / len; b++) {
            const bool filled = b * len >= s->n && (b + 1) * len <= s->n + add;
            if (*entry(kv, s, c, b) < 0) LN_TRY(take_block(kv, s, c, b, !filled, err));
        }
    }
    return LN_OK;
}

void ln_kv_reserve_snapshots(ln_kv *kv, ln_seq *s, int64_t add) {
    const int len = kv->o.page_len;
    for (int c = 0; c < kv->o.n_groups; c++)
        for (int64_t b = blocks_of(kv, s->n); kv->o.chunks[c] && b < (s->n + add - 1) / len; b++) {
            const int64_t spare = kv->n_free[LN_KV_CHUNKS] + kv->n_cached[LN_KV_CHUNKS];
            if (s->tail < 0 || !ln_kv_keeps_chunk(kv, s, b) || *entry(kv, s, c, b) >= 0 ||
                spare < kv->o.pages_per_block[c] || (b + 1) * len > s->n_shareable)
                continue;
            (void)take_block(kv, s, c, b, false, NULL); /* cannot fail: there are so many */
        }
}

void ln_kv_advance(ln_kv *kv, ln_seq *s, const int32_t *ids, int64_t add) {
    memcpy(s->tokens + s->n, ids, (size_t)add * sizeof *ids);
    s->n += add;
    register_full(kv, s);
    for (int c = 0; c < kv->o.n_groups; c++)
        for (int64_t low = ln_kv_lowest(kv, c, s->n); s->low[c] < low; s->low[c]++)
            if (s->low[c] < blocks_of(kv, s->n_most)) drop_block(kv, s, c, s->low[c]);
    ln_kv_trim(kv);
}

/* ---- pages that a file is written from ---- */

ln_status ln_kv_hold(ln_kv *kv, int64_t n, int32_t *const pages[LN_STATE_GROUPS], ln_seq **out,
                     ln_error *err) {
    const ln_seq_options opt = {.n_prompt = n, .n_most = n};
    int64_t newly = 0, full = 0, windowed[LN_KV_POOLS] = {0};
    *out = NULL;
    for (int c = 0; c < kv->o.n_groups; c++) {
        const int per = kv->o.pages_per_block[c];
        const bool all = kv->o.window[c] == 0;
        for (int64_t i = ln_kv_lowest(kv, c, n) * per; i < blocks_of(kv, n) * per; i++) {
            ++*(all ? &full : &windowed[ln_kv_pool_of(kv, c)]);
            newly += all && kv->refs[pages[c][i]] == 0;
        }
    }
    if (kv->n_held + newly + kv->promised[LN_KV_PAGES] + windowed[LN_KV_PAGES] > kv->o.n_pages ||
        kv->promised[LN_KV_CHUNKS] + windowed[LN_KV_CHUNKS] > kv->o.n_chunk_pages)
        return LN_OK;
    ln_status st = new_seq(kv, &opt, out, err);
    if (st != LN_OK) {
        free_seq(out);
        return st;
    }
    ln_seq *s = *out;
    s->slot = -1;
    s->n = n;
    s->to_take = full;
    kv->promised[LN_KV_PAGES] += full;
    promise(kv, s, windowed);
    for (int c = 0; c < kv->o.n_groups; c++) {
        const int per = kv->o.pages_per_block[c];
        s->low[c] = ln_kv_lowest(kv, c, n);
        for (int64_t i = s->low[c] * per; i < blocks_of(kv, n) * per; i++) {
            hold(kv, c, pages[c][i]);
            set_entry(kv, s, c, &s->tables[c][i], pages[c][i]);
            ln_kv_relist(kv, kv->node_of[pages[c][i]]);
        }
    }
    return LN_OK;
}

/* ---- blocks that were computed elsewhere ---- */

/* Takes and fills the pages of all blocks that windows have not left. */
static ln_status fill_blocks(ln_kv *kv, ln_seq *s, const ln_kv_blocks *in, ln_error *err) {
    for (int64_t b = 0; b < blocks_of(kv, in->n); b++)
        for (int c = 0; c < kv->o.n_groups; c++) {
            for (int i = 0; b >= s->low[c] && i < kv->o.pages_per_block[c]; i++) {
                const int32_t page = ln_kv_take(kv, ln_kv_pool_of(kv, c));
                if (page < 0) return ln_fail(err, LN_EINTERNAL, "the KV pool lacks a page that was counted");
                hold(kv, c, page);
                set_entry(kv, s, c, &entry(kv, s, c, b)[i], page);
                LN_TRY(kv->ops.zero(kv->ops.user, page, err));
                LN_TRY(in->fill(in->user, c, b, i, page, err));
            }
        }
    return in->check(in->user, err);
}

static ln_status check_pages(const ln_kv *kv, const ln_kv_blocks *in, ln_error *err) {
    int64_t need[LN_KV_POOLS] = {0};
    for (int c = 0; c < kv->o.n_groups; c++)
        need[ln_kv_pool_of(kv, c)] +=
            (blocks_of(kv, in->n) - ln_kv_lowest(kv, c, in->n)) * kv->o.pages_per_block[c];
    for (int i = 0; i < LN_KV_POOLS; i++)
        if (need[i] > kv->n_free[i] + kv->n_cached[i])
            return ln_fail(err, LN_EMEMORY,
                           "%lld %s are needed, and %lld are not held by running requests; use a larger "
                           "ln_options.kv_bytes or ln_options.n_ctx, or wait",
                           (long long)need[i], i == LN_KV_CHUNKS ? "pages of recurrent state" : "KV pages",
                           (long long)(kv->n_free[i] + kv->n_cached[i]));
    return LN_OK;
}

ln_status ln_kv_insert(ln_kv *kv, const ln_kv_blocks *in, ln_error *err) {
    const ln_seq_options opt = {.n_prompt = in->n, .n_most = in->n, .adapter = in->adapter};
    ln_seq *s = NULL;
    if (ln_kv_match_length(kv, in->adapter, in->rope, in->ids, in->n) == in->n) return LN_OK;
    LN_TRY(check_pages(kv, in, err));
    ln_status st = new_seq(kv, &opt, &s, err);
    if (st != LN_OK) {
        free_seq(&s);
        return st;
    }
    s->slot = -1;
    s->n_shareable = in->rope ? in->rope : INT64_MAX;
    s->interval = LN_KV_INTERVAL;
    for (int c = 0; c < kv->o.n_groups; c++) s->low[c] = ln_kv_lowest(kv, c, in->n);
    memcpy(s->tokens, in->ids, (size_t)in->n * sizeof *in->ids);
    st = fill_blocks(kv, s, in, err);
    if (st == LN_OK) {
        s->n = in->n;
        s->tail = ln_kv_root(kv, in->adapter, in->rope);
        ln_kv_pin(kv, s->tail);
        register_full(kv, s);
    }
    ln_kv_release(kv, &s);
    return st;
}
