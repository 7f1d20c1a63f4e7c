/* The prefix tree: nodes, LRU lists, eviction, matching, registration. kv_tree.h has the invariants. */
#include "kv_tree.h"

#include <string.h>

/* ---- opening ---- */

static int64_t nodes_for(const ln_kv_options *o) {
    int full = 0, least = INT32_MAX;
    for (int c = 0; c < o->n_groups; c++) {
        if (o->window[c] == 0) full += o->pages_per_block[c];
        least = LN_MIN(least, o->pages_per_block[c]);
    }
    /* Roots, and nodes that a window has left without pages, need room too: without a group that keeps all
     * positions as many as the blocks of some contexts. */
    const int64_t more = 2 * (int64_t)o->n_seqs + 64, blocks = (o->n_ctx + o->page_len - 1) / o->page_len;
    if (full) return o->n_pages / full + more;
    return o->n_pages / least + LN_MIN(o->n_seqs, 16) * blocks + more;
}

uint64_t ln_kv_tree_bytes(const ln_kv_options *o) {
    uint64_t node = sizeof(ln_kv_node) + (uint64_t)o->page_len * 4;
    for (int c = 0; c < o->n_groups; c++) node += (uint64_t)o->pages_per_block[c] * 4;
    return (uint64_t)nodes_for(o) * node;
}

ln_status ln_kv_tree_open(ln_kv *kv, ln_error *err) {
    const ln_kv_options *o = &kv->o;
    const size_t n = (size_t)(kv->n_nodes = nodes_for(o));
    bool ok = true;
    kv->nodes = ln_zalloc(n, sizeof *kv->nodes);
    kv->tokens = ln_zalloc(n * (size_t)o->page_len, sizeof *kv->tokens);
    for (int c = 0; c < o->n_groups; c++) {
        kv->pages[c] = ln_zalloc(n * (size_t)o->pages_per_block[c], sizeof(int32_t));
        ok = ok && kv->pages[c];
        if (o->window[c] == 0) kv->full_pages += o->pages_per_block[c];
    }
    if (!ok || !kv->nodes || !kv->tokens) return LN_OOM(err, "the prefix cache");
    for (size_t i = 0; i < n; i++) kv->nodes[i].next = i + 1 < n ? (int32_t)i + 1 : -1;
    for (int l = 0; l < LN_KV_LISTS; l++) kv->oldest[l] = kv->newest[l] = -1;
    kv->roots = -1;
    return LN_OK;
}

void ln_kv_tree_close(ln_kv *kv) {
    ln_free(kv->nodes);
    ln_free(kv->tokens);
    for (int c = 0; c < LN_STATE_GROUPS; c++) ln_free(kv->pages[c]);
}

/* ---- LRU lists ---- */

static int list_of(const ln_kv *kv, int c) { return kv->o.window[c] ? c : LN_KV_WHOLE; }
static int list_pages(const ln_kv *kv, int list) {
    return list == LN_KV_WHOLE ? kv->full_pages : kv->o.pages_per_block[list];
}

static int list_pool(const ln_kv *kv, int list) {
    return list == LN_KV_WHOLE ? LN_KV_PAGES : ln_kv_pool_of(kv, list);
}

static void list_remove(ln_kv *kv, int list, int32_t node) {
    ln_kv_link *l = &kv->nodes[node].lru[list];
    if (l->stamp == 0) return;
    *(l->older < 0 ? &kv->oldest[list] : &kv->nodes[l->older].lru[list].newer) = l->newer;
    *(l->newer < 0 ? &kv->newest[list] : &kv->nodes[l->newer].lru[list].older) = l->older;
    l->stamp = 0;
    kv->n_cached[list_pool(kv, list)] -= list_pages(kv, list);
}

static void list_add(ln_kv *kv, int list, int32_t node) {
    ln_kv_link *l = &kv->nodes[node].lru[list];
    if (l->stamp != 0) return;
    *l = (ln_kv_link){.older = kv->newest[list], .newer = -1, .stamp = ++kv->clock};
    *(l->older < 0 ? &kv->oldest[list] : &kv->nodes[l->older].lru[list].newer) = node;
    kv->newest[list] = node;
    kv->n_cached[list_pool(kv, list)] += list_pages(kv, list);
}

/* Whether only the tree holds the node's pages that a list is about. */
static bool evictable(const ln_kv *kv, int32_t node, int list) {
    bool some = false;
    for (int c = 0; c < kv->o.n_groups; c++) {
        if (list_of(kv, c) != list) continue;
        const int32_t *pages = ln_kv_pages_of(kv, node, c);
        for (int i = 0; i < kv->o.pages_per_block[c]; i++) {
            if (pages[i] < 0 || kv->refs[pages[i]] > 0) return false;
            some = true;
        }
    }
    return some;
}

void ln_kv_relist(ln_kv *kv, int32_t node) {
    if (node < 0) return;
    for (int l = 0; l < LN_KV_LISTS; l++) {
        if (evictable(kv, node, l)) list_add(kv, l, node);
        else list_remove(kv, l, node);
    }
}

void ln_kv_touch(ln_kv *kv, int32_t node) {
    for (int l = 0; l < LN_KV_LISTS; l++) list_remove(kv, l, node);
    ln_kv_relist(kv, node);
}

/* ---- nodes ---- */

/* Takes the pages of group c out of the node; those that no sequence holds become free. */
static void give_pages(ln_kv *kv, int32_t node, int c) {
    int32_t *pages = ln_kv_pages_of(kv, node, c);
    kv->nodes[node].held[c] = 0;
    for (int i = 0; i < kv->o.pages_per_block[c]; i++) {
        if (pages[i] < 0) continue;
        kv->node_of[pages[i]] = -1;
        if (kv->refs[pages[i]] == 0) ln_kv_free_page(kv, pages[i]);
        pages[i] = -1;
    }
}

static void remove_root(ln_kv *kv, const ln_kv_node *n) {
    *(n->prev < 0 ? &kv->roots : &kv->nodes[n->prev].next) = n->next;
    if (n->next >= 0) kv->nodes[n->next].prev = n->prev;
}

/* Takes a node without children out of the tree. */
static void remove_node(ln_kv *kv, int32_t node) {
    ln_kv_node *n = &kv->nodes[node];
    for (int l = 0; l < LN_KV_LISTS; l++) list_remove(kv, l, node);
    for (int c = 0; n->n > 0 && c < kv->o.n_groups; c++) give_pages(kv, node, c);
    if (n->parent >= 0) ln_kv_remove_child(kv, node);
    else remove_root(kv, n);
    n->next = kv->free_nodes;
    kv->free_nodes = node;
}

static bool has_pages(const ln_kv *kv, int32_t node) {
    for (int c = 0; kv->nodes[node].n > 0 && c < kv->o.n_groups; c++)
        if (*ln_kv_pages_of(kv, node, c) >= 0) return true;
    return false;
}

/* Frees a node that holds nothing and that nothing needs, then its ancestors likewise. */
static void prune(ln_kv *kv, int32_t node) {
    while (node >= 0 && kv->nodes[node].child < 0 && kv->nodes[node].n_pins == 0 && !has_pages(kv, node)) {
        const int32_t parent = kv->nodes[node].parent;
        remove_node(kv, node);
        node = parent;
    }
}

static uint64_t mix(uint64_t hash, uint64_t x) {
    hash = (hash ^ (x + 1)) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

/* Remembers that a node was evicted: its path, and beginnings of its block of 1, 4, 16, ... tokens, so that a
 * prompt that goes on with a part of the block only is told too. */
static void trace(ln_kv *kv, int32_t node) {
    const ln_kv_node *n = &kv->nodes[node];
    const int32_t *tokens = ln_kv_tokens_of(kv, node);
    uint64_t hash = kv->nodes[n->parent].hash;
    for (int64_t i = 1, next = 1; i <= n->n; i++) {
        hash = mix(hash, (uint64_t)tokens[i - 1]);
        if (i < next && i < n->n) continue;
        kv->traced[hash % LN_KV_TRACED] = hash;
        next *= 4;
    }
}

static int64_t free_pages(const ln_kv *kv) { return kv->n_free[LN_KV_PAGES] + kv->n_free[LN_KV_CHUNKS]; }

/* Evicts the oldest node, or the oldest pages of a window group in a node, whichever is older: of one
 * pool, or with LN_KV_POOLS of any. */
static bool evict(ln_kv *kv, int pool) {
    int list = -1;
    for (int l = 0; l < LN_KV_LISTS; l++) {
        if (kv->oldest[l] < 0 || (pool < LN_KV_POOLS && list_pool(kv, l) != pool)) continue;
        if (list < 0 || kv->nodes[kv->oldest[l]].lru[l].stamp < kv->nodes[kv->oldest[list]].lru[list].stamp)
            list = l;
    }
    if (list < 0) return false;
    const int32_t node = kv->oldest[list], parent = kv->nodes[node].parent;
    const int64_t before = free_pages(kv);
    if (list == LN_KV_WHOLE || kv->full_pages == 0) trace(kv, node);
    if (list == LN_KV_WHOLE) {
        remove_node(kv, node);
        prune(kv, parent);
    } else {
        list_remove(kv, list, node);
        give_pages(kv, node, list);
        prune(kv, node);
    }
    kv->n_evicted += (uint64_t)(free_pages(kv) - before);
    return true;
}

int32_t ln_kv_take(ln_kv *kv, int pool) {
    while (kv->n_free[pool] == 0)
        if (!evict(kv, pool)) return -1;
    return kv->free[(pool == LN_KV_CHUNKS ? kv->o.n_pages : 0) + --kv->n_free[pool]];
}

void ln_kv_trim(ln_kv *kv) {
    while (kv->n_cached[LN_KV_PAGES] + kv->n_cached[LN_KV_CHUNKS] * kv->o.chunk_weight > kv->limit &&
           evict(kv, LN_KV_POOLS)) {
    }
}

void ln_kv_detach(ln_kv *kv, int32_t node, int c) {
    const int32_t parent = kv->nodes[node].parent;
    if (kv->o.window[c] == 0) {
        trace(kv, node);
        remove_node(kv, node);
        prune(kv, parent);
        return;
    }
    list_remove(kv, list_of(kv, c), node);
    give_pages(kv, node, c);
    prune(kv, node);
}

/* A node without pages and place; -1: none is free. Where all groups have windows, evicting the oldest pages
 * would empty the tree before a node became free. */
static int32_t new_node(ln_kv *kv) {
    while (kv->free_nodes < 0)
        if (kv->full_pages == 0 || !evict(kv, LN_KV_PAGES)) return -1;
    const int32_t node = kv->free_nodes;
    kv->free_nodes = kv->nodes[node].next;
    kv->nodes[node] = (ln_kv_node){.parent = -1, .prev = -1, .child = -1, .top = -1};
    for (int c = 0; c < kv->o.n_groups; c++)
        for (int i = 0; i < kv->o.pages_per_block[c]; i++) ln_kv_pages_of(kv, node, c)[i] = -1;
    return node;
}

void ln_kv_pin(ln_kv *kv, int32_t node) {
    if (node >= 0) kv->nodes[node].n_pins++;
}
void ln_kv_unpin(ln_kv *kv, int32_t node) {
    if (node < 0) return;
    kv->nodes[node].n_pins--;
    prune(kv, node);
}

static int32_t find_root(const ln_kv *kv, uint64_t adapter, int64_t rope) {
    int32_t r = kv->roots;
    while (r >= 0 && (kv->nodes[r].adapter != adapter || kv->nodes[r].rope != rope)) r = kv->nodes[r].next;
    return r;
}

int32_t ln_kv_root(ln_kv *kv, uint64_t adapter, int64_t rope) {
    int32_t r = find_root(kv, adapter, rope);
    if (r >= 0) return r;
    r = new_node(kv);
    if (r < 0) return -1;
    kv->nodes[r].next = kv->roots;
    if (kv->roots >= 0) kv->nodes[kv->roots].prev = r;
    kv->roots = r;
    kv->nodes[r].adapter = adapter;
    kv->nodes[r].rope = rope;
    kv->nodes[r].hash = mix(mix(0, adapter), (uint64_t)rope);
    return r;
}

/* ---- matching ---- */

/* A walk from a root along a prompt. */
typedef struct walk {
    int64_t seen; /* tokens that some path has in common with the prompt, whether its pages are held or not */
    bool diverged;                /* that path goes on with another token */
    int32_t last;                 /* the last node of it that is a whole block, or the root */
    int64_t depth;                /* blocks down to `last` */
    int64_t run[LN_STATE_GROUPS]; /* blocks from here to `depth` have all their positions in group c */
    int64_t without_chunks;       /* tokens that could be reused if chunks had all their pages */
    ln_kv_match best;
} walk;

/* Whether the windows of a prefix that ends after k tokens of a block at w->depth reach only blocks above it
 * that have their pages; chunks: those of recurrent groups count, too. */
static bool within(const ln_kv *kv, const walk *w, int64_t k, bool chunks) {
    for (int c = 0; c < kv->o.n_groups; c++)
        if ((chunks || !kv->o.chunks[c]) && w->run[c] > ln_kv_lowest(kv, c, w->depth * kv->o.page_len + k))
            return false;
    return true;
}

/* How many of the first k tokens of a node's block can be reused: its pages hold them. */
static int64_t usable(const ln_kv *kv, int32_t node, int64_t k, bool chunks) {
    const ln_kv_node *n = &kv->nodes[node];
    for (int c = 0; c < kv->o.n_groups; c++)
        if (chunks || !kv->o.chunks[c]) k = LN_MIN(k, (int64_t)n->held[c]);
    return k;
}

/* Considers a child of w->last that has k > 0 tokens in common with the prompt, of which `left` may be
 * reused. */
static void consider(const ln_kv *kv, walk *w, int32_t child, int64_t k, int64_t left) {
    const int64_t base = w->depth * kv->o.page_len;
    if (base + k > w->seen) w->seen = base + k, w->diverged = k < left && k < kv->nodes[child].n;
    const int64_t most = usable(kv, child, k, false);
    if (most > 0 && within(kv, w, most, false)) w->without_chunks = LN_MAX(w->without_chunks, base + most);
    k = usable(kv, child, k, true);
    if (k == 0 || base + k <= w->best.n || !within(kv, w, k, true)) return;
    const bool all = k == kv->o.page_len;
    w->best.n = base + k;
    w->best.whole = all ? child : w->last;
    w->best.source = all ? -1 : child;
}

/* Looks at the children of w->last, from the prompt's place in their order outwards, as far as they could be
 * better than what was found. Returns the one that is a whole block of the prompt, or -1. */
static int32_t look(const ln_kv *kv, walk *w, const int32_t *ids, int64_t most) {
    const int64_t base = w->depth * kv->o.page_len, left = most - base;
    int32_t prev;
    const int32_t next =
        ln_kv_child_at(kv, w->last, ids + base, LN_MIN(left, (int64_t)kv->o.page_len), &prev);
    for (int up = 0; up < 2; up++)
        for (int32_t c = up ? next : prev; c >= 0; c = up ? kv->nodes[c].next : kv->nodes[c].prev) {
            const int64_t k = ln_kv_common(kv, c, ids + base, left);
            if (k == 0 || base + k <= w->best.n) break;
            consider(kv, w, c, k, left);
        }
    return next >= 0 && ln_kv_common(kv, next, ids + base, left) == kv->o.page_len ? next : -1;
}

static walk walk_from(const ln_kv *kv, int32_t root, const int32_t *ids, int64_t most) {
    walk w = {.last = root, .best = {.whole = root, .source = -1}};
    while (root >= 0 && w.depth * kv->o.page_len < most) {
        const int32_t whole = look(kv, &w, ids, most);
        if (whole < 0) break;
        w.last = whole;
        w.depth++;
        w.diverged = w.depth * kv->o.page_len < most && kv->nodes[whole].child >= 0;
        for (int c = 0; c < kv->o.n_groups; c++)
            if (kv->nodes[whole].held[c] < kv->o.page_len) w.run[c] = w.depth;
    }
    return w;
}

/* Whether a block that continues the walk along ids[0..n) was evicted. */
static bool was_evicted(const ln_kv *kv, const walk *w, uint64_t hash, const int32_t *ids, int64_t n) {
    const int64_t end = LN_MIN(n, (w->depth + 1) * kv->o.page_len);
    for (int64_t i = w->depth * kv->o.page_len; i < end; i++) {
        hash = mix(hash, (uint64_t)ids[i]);
        if (i + 1 > w->seen && kv->traced[hash % LN_KV_TRACED] == hash) return true;
    }
    return false;
}

/* The name of what separates another root from this one, where its path goes further; "" where none does. */
static const char *elsewhere(const ln_kv *kv, uint64_t adapter, int64_t rope, const int32_t *ids,
                             int64_t most, int64_t seen) {
    const char *reason = "";
    for (int32_t r = kv->roots; r >= 0; r = kv->nodes[r].next) {
        if (kv->nodes[r].adapter == adapter && kv->nodes[r].rope == rope) continue;
        const int64_t here = walk_from(kv, r, ids, most).seen;
        const bool same = kv->nodes[r].adapter == adapter;
        if (here > seen || (here == seen && same && reason[0] != '\0'))
            seen = here, reason = same ? "rope" : "adapter";
    }
    return reason;
}

ln_kv_match ln_kv_find(const ln_kv *kv, uint64_t adapter, int64_t rope, const int32_t *ids, int64_t n,
                       int64_t most) {
    const int32_t root = find_root(kv, adapter, rope);
    walk w = walk_from(kv, root, ids, most);
    const uint64_t hash = root < 0 ? mix(mix(0, adapter), (uint64_t)rope) : kv->nodes[w.last].hash;
    w.best.reason = "";
    w.best.seen = w.seen;
    if (w.best.n < w.seen) w.best.reason = w.best.n < w.without_chunks ? "state" : "window";
    else if (w.seen >= most) return w.best;
    else if (was_evicted(kv, &w, hash, ids, n)) w.best.reason = "evicted";
    else {
        w.best.reason = elsewhere(kv, adapter, rope, ids, most, w.seen);
        if (w.best.reason[0] == '\0' && w.diverged) w.best.reason = "diverged";
    }
    return w.best;
}

/* ---- registration ---- */

static int32_t *entry(const ln_kv *kv, const ln_seq *s, int c, int64_t block) {
    return &s->tables[c][block * kv->o.pages_per_block[c]];
}

/* The node takes the sequence's pages of group c, which hold m tokens, instead of those that it has. */
static void donate(ln_kv *kv, ln_seq *s, int64_t b, int32_t node, int c, int m) {
    const int32_t *own = entry(kv, s, c, b);
    list_remove(kv, list_of(kv, c), node);
    give_pages(kv, node, c);
    kv->nodes[node].held[c] = m;
    for (int i = 0; i < kv->o.pages_per_block[c]; i++) {
        ln_kv_pages_of(kv, node, c)[i] = own[i];
        kv->node_of[own[i]] = node;
    }
}

/* The sequence takes the node's pages of group c, whose bits are those of its own. */
static void adopt(ln_kv *kv, ln_seq *s, int64_t b, int32_t node, int c) {
    int32_t *own = entry(kv, s, c, b);
    const int32_t *pages = ln_kv_pages_of(kv, node, c);
    int64_t *n_held = kv->o.window[c] ? &kv->n_window[ln_kv_pool_of(kv, c)] : &kv->n_held;
    for (int i = 0; i < kv->o.pages_per_block[c]; i++) {
        kv->refs[own[i]] = 0;
        ln_kv_free_page(kv, own[i]);
        *n_held -= 1;
        own[i] = pages[i];
        *n_held += kv->refs[own[i]]++ == 0;
    }
    if (s->slot >= 0)
        kv->ops.set(kv->ops.user, s->slot, c, b * kv->o.pages_per_block[c], own, kv->o.pages_per_block[c]);
}

/* Makes a node of m tokens, a child of `tail`; -1: none is free. A child that is a beginning of these tokens
 * comes right before them and is removed. Its pages are not shared: only whole blocks
 * are. */
static int32_t make_child(ln_kv *kv, int32_t tail, const int32_t *tokens, int m) {
    int32_t prev;
    (void)ln_kv_child_at(kv, tail, tokens, m, &prev);
    if (prev >= 0 && ln_kv_common(kv, prev, tokens, m) == kv->nodes[prev].n) remove_node(kv, prev);
    const int32_t node = new_node(kv);
    if (node < 0) return -1;
    ln_kv_node *n = &kv->nodes[node];
    n->n = m;
    n->hash = kv->nodes[tail].hash;
    for (int i = 0; i < m; i++) n->hash = mix(n->hash, (uint64_t)tokens[i]);
    memcpy(ln_kv_tokens_of(kv, node), tokens, (size_t)m * sizeof *tokens);
    ln_kv_add_child(kv, tail, node);
    return node;
}

/* The child of `tail` that stands for these m tokens: it begins with them. -1: there is none. */
static int32_t find_child(const ln_kv *kv, int32_t tail, const int32_t *tokens, int m) {
    int32_t prev;
    const int32_t next = ln_kv_child_at(kv, tail, tokens, m, &prev);
    return next >= 0 && ln_kv_common(kv, next, tokens, m) == m ? next : -1;
}

/* Whether the sequence still holds pages of block b. */
static bool holds(const ln_kv *kv, const ln_seq *s, int64_t b) {
    for (int c = 0; c < kv->o.n_groups; c++)
        if (*entry(kv, s, c, b) >= 0) return true;
    return false;
}

int64_t ln_kv_match_length(const ln_kv *kv, uint64_t adapter, int64_t rope, const int32_t *ids, int64_t n) {
    return walk_from(kv, find_root(kv, adapter, rope), ids, n).best.n;
}

int64_t ln_kv_lookup(const ln_kv *kv, uint64_t adapter, const int32_t *ids, int64_t n, int64_t *rope,
                     int32_t *const pages[LN_STATE_GROUPS]) {
    ln_kv_match best = {.n = 0};
    for (int32_t r = kv->roots; r >= 0; r = kv->nodes[r].next) {
        const ln_kv_match m = walk_from(kv, r, ids, n).best;
        if (kv->nodes[r].adapter != adapter || m.n <= best.n) continue;
        best = m;
        *rope = kv->nodes[r].rope;
    }
    int32_t node = best.source >= 0 ? best.source : best.whole;
    for (int64_t b = (best.n + kv->o.page_len - 1) / kv->o.page_len - 1; b >= 0 && best.n > 0; b--) {
        for (int c = 0; c < kv->o.n_groups; c++) {
            const int per = kv->o.pages_per_block[c];
            for (int i = 0; i < per; i++)
                pages[c][b * per + i] = b < ln_kv_lowest(kv, c, best.n) ? -1 : ln_kv_pages_of(kv, node, c)[i];
        }
        node = kv->nodes[node].parent;
    }
    return best.n;
}

int32_t ln_kv_register(ln_kv *kv, ln_seq *s, int64_t b, int m) {
    const int32_t *tokens = s->tokens + b * kv->o.page_len;
    if (s->slot >= 0 && !holds(kv, s, b)) return -1;
    int32_t node = find_child(kv, s->tail, tokens, m);
    if (node < 0) node = make_child(kv, s->tail, tokens, m);
    if (node < 0) return -1;
    for (int c = 0; c < kv->o.n_groups; c++) {
        if (*entry(kv, s, c, b) < 0) continue; /* the window has left the block */
        if (kv->o.chunks[c] && m == kv->o.page_len && kv->nodes[node].held[c] < m &&
            !ln_kv_keeps_chunk(kv, s, b))
            continue;
        if (kv->nodes[node].held[c] < m) donate(kv, s, b, node, c, m);
        else if (m == kv->o.page_len) adopt(kv, s, b, node, c);
    }
    ln_kv_touch(kv, node);
    return kv->nodes[node].n > m ? -1 : node;
}

/* ---- snapshots of recurrent state ---- */

/* Whether a snapshot in block b is worth keeping whatever its distance from others: a prompt ended there
 * or right after it, left the path of other texts, or began with a part of it. */
static bool landmark(const ln_kv *kv, const ln_seq *s, int64_t b) {
    const int len = kv->o.page_len;
    const int64_t prompt = (s->n_prompt - 1) / len, branch = (s->branch - 1) / len,
                  reused = s->n_cached / len;
    if (s->n_prompt > 0 && (b == prompt || b == prompt - 1)) return true;
    return (s->branch > 0 && b == branch) || (s->n_cached % len > 0 && b == reused);
}

bool ln_kv_keeps_chunk(const ln_kv *kv, const ln_seq *s, int64_t b) {
    return landmark(kv, s, b) || (s->interval > 0 && (b + 1) % s->interval == 0);
}

void ln_kv_register_end(ln_kv *kv, ln_seq *s) {
    const int64_t b = s->n_registered - 1;
    for (int c = 0; c < kv->o.n_groups; c++) {
        if (!kv->o.chunks[c] || *entry(kv, s, c, b) < 0 || kv->nodes[s->tail].n != kv->o.page_len) continue;
        if (kv->nodes[s->tail].held[c] < kv->o.page_len) donate(kv, s, b, s->tail, c, kv->o.page_len);
    }
    ln_kv_touch(kv, s->tail);
}

/* Counts the snapshots of a sequence at multiples of its interval, and drops those at odd multiples that
 * nothing else needs. */
static int spaced_on_path(ln_kv *kv, const ln_seq *s, bool drop) {
    int n = 0;
    int32_t node = s->tail;
    int64_t b = s->n_registered;
    for (; node >= 0 && kv->nodes[node].n > 0; node = kv->nodes[node].parent, b--)
        for (int c = 0; c < kv->o.n_groups; c++) {
            const int32_t page = *ln_kv_pages_of(kv, node, c);
            if (!kv->o.chunks[c] || page < 0 || b % s->interval) continue;
            n++;
            if (!drop || b / s->interval % 2 == 0 || kv->refs[page] > 0 || landmark(kv, s, b - 1)) continue;
            list_remove(kv, c, node); /* its pages of other groups keep the node */
            give_pages(kv, node, c);
        }
    return n;
}

void ln_kv_space_snapshots(ln_kv *kv, ln_seq *s) {
    if (kv->o.n_chunk_pages == 0 || s->tail < 0) return;
    while ((s->n_spaced = spaced_on_path(kv, s, false)) > LN_MAX(kv->o.n_spaced, 1)) {
        (void)spaced_on_path(kv, s, true);
        s->interval *= 2;
    }
}
