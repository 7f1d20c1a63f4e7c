/* The inside of the KV cache: the pool's pages and the prefix tree over them. For kv_cache.c and kv_tree.c.
 *
 * A node is one block of page_len tokens, the last of a text may be shorter; its children are the blocks that
 * followed. A root stands for (adapter, rotary frequencies) and has no tokens. No sibling's tokens are a
 * prefix of another's, so a text has one path. Tokens are compared, never hashes of them.
 *
 * A page is free, or held by sequences (refs), or in the tree (node_of), or both. Pages that only the tree
 * holds are in one of the LRU lists: one for each window group, whose pages are evicted block by block, and
 * one for the groups without a window, whose pages are evicted with their node. A sequence that holds a
 * node's pages of groups without a window holds those of its ancestors too, and when it lets go, it does so
 * from its last block to its first. So in that list a parent is always newer than its children, and the
 * oldest node is a leaf. */
#ifndef LN_KV_TREE_H
#define LN_KV_TREE_H

#include "kv_cache.h"

enum {
    LN_KV_WHOLE = LN_STATE_GROUPS, /* the LRU list of nodes by their pages of groups without a window */
    LN_KV_LISTS,
    LN_KV_TRACED = 4096 /* entries of ln_kv.traced */
};

typedef struct ln_kv_link {
    int32_t older, newer; /* -1: none */
    uint64_t stamp;       /* the clock when the node was added; 0: it is not in the list */
} ln_kv_link;

typedef struct ln_kv_node {
    /* child: the first one; next, prev: siblings in the order of their tokens, or other roots; -1: none */
    int32_t parent, child, next, prev;
    int32_t top, left, right; /* kv_children.c: of the treap of its children; its place in its parent's */
    int32_t n;                /* tokens; 0: a root */
    int32_t n_pins;           /* open sequences whose blocks are registered down to this node */
    /* tokens of the block, from the first on, that its pages of each group hold; 0: it has no pages. Fewer
     * than n where a shorter text has left its pages of a window group in the place of those evicted */
    int32_t held[LN_STATE_GROUPS];
    uint64_t hash;    /* of the path, for `traced` */
    uint64_t adapter; /* of a root */
    int64_t rope;     /* of a root */
    ln_kv_link lru[LN_KV_LISTS];
} ln_kv_node;

struct ln_kv {
    ln_kv_options o;
    ln_kv_ops ops;
    int64_t n_all; /* pages of both pools */
    /* [n_all] of each pool, from its first page on, a stack of n_free page indices */
    int32_t *free;
    int64_t n_free[LN_KV_POOLS];
    int32_t *refs;    /* [n_all] open sequences that hold the page */
    int32_t *node_of; /* [n_all] the node that has registered the page; -1: none */
    int64_t n_held;   /* pages of groups without a window that open sequences hold, each counted once */
    int64_t n_window[LN_KV_POOLS]; /* the same count for groups with a window */
    int64_t promised[LN_KV_POOLS]; /* sum over open sequences of to_take (first pool) + window_pages */
    int64_t n_cached[LN_KV_POOLS]; /* pages that only the tree holds */
    int64_t limit;                 /* the most of them */
    uint64_t n_evicted, clock;
    int full_pages; /* sum of pages_per_block of the groups without a window */
    ln_kv_node *nodes;
    int64_t n_nodes;
    int32_t free_nodes, roots;       /* first of the free nodes (by next), first of the roots; -1: none */
    int32_t *tokens;                 /* [n_nodes, page_len] */
    int32_t *pages[LN_STATE_GROUPS]; /* [n_nodes, pages_per_block[c]]; -1: not held */
    int32_t oldest[LN_KV_LISTS], newest[LN_KV_LISTS];
    uint64_t traced[LN_KV_TRACED]; /* hashes of paths that were evicted: for reasons, never for reuse */
};

static inline int32_t *ln_kv_pages_of(const ln_kv *kv, int32_t node, int c) {
    return &kv->pages[c][(int64_t)node * kv->o.pages_per_block[c]];
}
static inline int ln_kv_pool_of(const ln_kv *kv, int c) {
    return kv->o.chunks[c] ? LN_KV_CHUNKS : LN_KV_PAGES;
}
/* Frees a page that nothing holds. */
static inline void ln_kv_free_page(ln_kv *kv, int32_t page) {
    const int pool = page >= kv->o.n_pages;
    kv->free[(pool ? kv->o.n_pages : 0) + kv->n_free[pool]++] = page;
}
static inline int32_t *ln_kv_tokens_of(const ln_kv *kv, int32_t node) {
    return &kv->tokens[(int64_t)node * kv->o.page_len];
}
/* The lowest block of group c that the row at position n attends to. */
static inline int64_t ln_kv_lowest(const ln_kv *kv, int c, int64_t n) {
    const int64_t w = kv->o.window[c];
    return w == 0 || n < w ? 0 : (n - w + 1) / kv->o.page_len;
}

/* How many tokens of a node's block and tokens[0..n) have in common. */
static inline int64_t ln_kv_common(const ln_kv *kv, int32_t node, const int32_t *tokens, int64_t n) {
    const int32_t *own = ln_kv_tokens_of(kv, node);
    int64_t k = 0;
    n = LN_MIN(n, (int64_t)kv->nodes[node].n);
    while (k < n && own[k] == tokens[k]) k++;
    return k;
}

/* kv_children.c. The first child that does not come before tokens[0..n), -1 where all do; *prev: the last one
 * that does. A child that begins with these tokens does not. */
int32_t ln_kv_child_at(const ln_kv *kv, int32_t parent, const int32_t *tokens, int64_t n, int32_t *prev);
/* Makes a node, which has its tokens, a child of `parent`; takes it out again. */
void ln_kv_add_child(ln_kv *kv, int32_t parent, int32_t node);
void ln_kv_remove_child(ln_kv *kv, int32_t node);

/* What the tree holds of a prompt. */
typedef struct ln_kv_match {
    int64_t n;      /* tokens that can be reused; 0: none */
    int32_t whole;  /* node of the last whole block of them, or the root */
    int32_t source; /* node whose pages hold the n % page_len tokens after it; -1: there are none */
    int64_t seen; /* tokens that some path has in common with the prompt, whether its pages are held or not */
    const char *reason;
} ln_kv_match;

ln_status ln_kv_tree_open(ln_kv *kv, ln_error *err);
void ln_kv_tree_close(ln_kv *kv);
uint64_t ln_kv_tree_bytes(const ln_kv_options *o);
/* Finds the longest prefix of ids[0..n), at most `most` < n tokens, that can be reused, and the reason why it
 * is not longer. */
ln_kv_match ln_kv_find(const ln_kv *kv, uint64_t adapter, int64_t rope, const int32_t *ids, int64_t n,
                       int64_t most);
/* The root of (adapter, rope), made where there is none; -1: no node is free. */
int32_t ln_kv_root(ln_kv *kv, uint64_t adapter, int64_t rope);
/* Finds or makes the node of the m tokens of block b of a sequence, whose last registered node is s->tail.
 * The pages of a whole block become shared: where the node has such pages the sequence takes them instead of
 * its own, else the node takes the sequence's. A longer node takes pages of groups whose own hold fewer
 * tokens. Returns -1 where no node is free, a longer one stands
 * for it, or windows have left the block. */
int32_t ln_kv_register(ln_kv *kv, ln_seq *s, int64_t b, int m);
/* Pins a node, and unpins it; a node that nothing needs any more is freed. -1 is fine. */
void ln_kv_pin(ln_kv *kv, int32_t node);
void ln_kv_unpin(ln_kv *kv, int32_t node);
/* Puts a node into the LRU lists that it belongs to, and takes it out of the others, after refs of its pages
 * have changed. */
void ln_kv_relist(ln_kv *kv, int32_t node);
/* Makes a node the newest of its LRU lists. */
void ln_kv_touch(ln_kv *kv, int32_t node);
/* Whether block b of a sequence is one whose chunk is kept as a snapshot. */
bool ln_kv_keeps_chunk(const ln_kv *kv, const ln_seq *s, int64_t b);
/* Keeps the page of chunks of the last block of a sequence that ends with it, a whole one. */
void ln_kv_register_end(ln_kv *kv, ln_seq *s);
/* Counts the snapshots at intervals on the path down to s->tail, and doubles the interval, dropping those in
 * between, until there are at most n_spaced. */
void ln_kv_space_snapshots(ln_kv *kv, ln_seq *s);
/* Takes the pages of group c out of a node; with a group without a window, the whole node out of the tree. */
void ln_kv_detach(ln_kv *kv, int32_t node, int c);
/* A free page of a pool, after evicting what is the oldest in it; -1: there is none. */
int32_t ln_kv_take(ln_kv *kv, int pool);
/* Evicts the oldest pages until at most kv->limit are kept. */
void ln_kv_trim(ln_kv *kv);

#endif
