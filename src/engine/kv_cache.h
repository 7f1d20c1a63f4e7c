/* The KV cache: which page of the pool holds which block of which sequence, and which blocks are kept for
 * prompts that begin alike.
 *
 * All groups of layers (graph/state_pool.h) share one pool. A block is page_len positions; a group takes
 * pages_per_block pages for each. For a sequence of n tokens, a group with window w keeps the blocks from
 * the one of position n - w + 1, the oldest that the next row attends to; a group without a window keeps
 * all. Between a group's lowest resident block and the sequence's last one all blocks are resident.
 *
 * Commitment. A sequence is admitted only when the pool has every page that it may ever need:
 *     pages held by groups without a window, each counted once
 *   + sum over open sequences of the pages that those groups still have to take
 *   + sum over open sequences of the most pages that groups with a window hold at once
 * <= n_pages. ln_kv_reserve never lacks a page then: what sequences hold after it is at most the left
 * side, and every other page is free or can be evicted (kv_tree.h). A windowed group's shared pages are
 * counted for each sequence, because a page that one sequence leaves is not free while another holds it,
 * and the first one takes a new page at the other end of its window.
 *
 * Sharing. The prefix tree (kv_tree.h) registers blocks when they become full, and the last, partly filled
 * block when its sequence is closed. A sequence begins with the longest prefix of its prompt that the tree
 * holds. Whole blocks are shared; of a block that the prefix ends in, the sequence gets a copy, so that a
 * shared page is never written. Pages that only the tree holds are evicted when others are needed, the
 * least recently used first.
 *
 * Chunks. Groups of recurrent layers (LN_STATE_CHUNKS) take pages from a second pool, whose indices follow
 * those of the first. They are groups with a window of LN_CHUNK_WINDOW positions, of which only some
 * blocks have pages: the block of the sequence's last position, and, while a step runs, that of its last
 * row and those that are to be snapshots. The page of a block holds what a row anywhere in it needs of
 * the text before it, so a kept page lets a prompt begin within that block. Such snapshots are kept in the
 * tree of the blocks in which a prompt ended and the one before, in which a prompt left the path of
 * others, and of every interval-th block: 16 blocks apart at first, twice as far each time that a text has
 * n_spaced of them. Each pool commits and evicts by itself.
 *
 * The cache knows pages by their index only: what is in them is the business of the functions in
 * ln_kv_ops.
 */
#ifndef LN_KV_CACHE_H
#define LN_KV_CACHE_H

#include "../base/base.h"
#include "../graph/step.h"

typedef struct ln_kv ln_kv;

/* What the cache asks of the owner of the pages. */
typedef struct ln_kv_ops {
    void *user;
    ln_status (*zero)(void *user, int64_t page, ln_error *err);
    /* Copies the keys and values of the first n positions of a page of a group, which may be the same one;
     * the other positions become zero. */
    ln_status (*copy)(void *user, int group, int64_t to, int64_t from, int64_t n, ln_error *err);
    /* Sets entries first .. first + n - 1 of a slot's page table of one group. */
    void (*set)(void *user, int slot, int group, int64_t first, const int32_t *pages, int64_t n);
} ln_kv_ops;

enum { LN_KV_PAGES, LN_KV_CHUNKS, LN_KV_POOLS }; /* pools of pages */
enum { LN_KV_INTERVAL = 16 };                    /* blocks between two snapshots of a text, at first */

typedef struct ln_kv_options {
    int64_t n_pages, n_ctx;
    int64_t n_chunk_pages; /* of the second pool */
    int64_t chunk_weight; /* how many pages of the first pool are as large as one of the second, rounded up */
    int n_spaced;         /* snapshots at intervals that a text keeps at most */
    bool chunks[LN_STATE_GROUPS]; /* the group is one of chunks; window is LN_CHUNK_WINDOW */
    int page_len, n_chunk, n_seqs, n_groups;
    int64_t window[LN_STATE_GROUPS]; /* 0: the group keeps all positions */
    int pages_per_block[LN_STATE_GROUPS];
} ln_kv_options;

/* One timeline of tokens. */
typedef struct ln_seq {
    int slot;                      /* of the device's page tables; -1 in ln_kv_insert */
    int adapter_slot;              /* of the pool of adapters plus 1; 0: none */
    int64_t n;                     /* tokens whose keys and values are in the pages */
    int64_t n_most;                /* positions that were committed at admission: n never exceeds it */
    int64_t n_prompt;              /* tokens of the prompt: dynamic RoPE scaling depends on it */
    int64_t n_cached;              /* tokens that were reused at admission */
    const char *cache_miss_reason; /* of ln_metrics; never NULL */
    int32_t *tokens;               /* [n_most] the n tokens */
    /* [c]: [blocks of n_most positions, pages_per_block[c]] page indices, -1 where none is resident */
    int32_t *tables[LN_STATE_GROUPS];
    int64_t low[LN_STATE_GROUPS]; /* lowest resident block of window group c */
    /* The cache's own. to_take: pages of groups without a window that are committed and not held;
     * window_pages: pages of each pool that are committed for groups with a window */
    int64_t to_take, window_pages[LN_KV_POOLS];
    int64_t n_registered; /* blocks that the tree has registered, down to the node `tail` */
    int32_t tail;         /* -1: nothing is registered */
    int64_t n_shareable;  /* positions from here on are not registered */
    int64_t branch;       /* tokens that the prompt has in common with some path of the tree */
    int64_t interval;     /* blocks between its snapshots, */
    int n_spaced;         /* and how many of those it has */
    bool no_cache;
} ln_seq;

/* What a sequence is admitted for. */
typedef struct ln_seq_options {
    const int32_t *ids; /* [n_prompt] the prompt; borrowed during the call; not read with no_cache */
    int64_t n_prompt;
    int64_t n_most; /* positions that prompt and answer may need, n_prompt .. n_ctx */
    /* Rows at the end of the prompt that are computed even where the cache holds them; 0 means 1, the least.
     */
    int64_t n_fresh;
    int64_t n_share;  /* tokens, from the first on, that are registered for reuse; 0: all */
    bool no_cache;    /* neither match the prompt against the prefix cache nor register what is computed */
    uint64_t adapter; /* digest of the adapter that computes it; 0: none */
    int adapter_slot; /* where that is in the pool of adapters plus 1; 0: none */
} ln_seq_options;

/* The caller owns *out; ln_kv_close. */
ln_status ln_kv_open(ln_kv **out, const ln_kv_options *o, const ln_kv_ops *ops, ln_error *err);
void ln_kv_close(ln_kv **kv);
/* Bytes that ln_kv_open allocates, and that admitting a sequence of n_most positions allocates. */
uint64_t ln_kv_bytes(const ln_kv_options *o);
uint64_t ln_kv_seq_bytes(const ln_kv_options *o, int64_t n_most);
/* Pages of the pool; those that are free, that open sequences hold (each counted once), that are kept for
 * reuse only; how many were evicted so far. */
typedef struct ln_kv_counts {
    int64_t n_pages, n_free, n_used, n_cached;
    uint64_t n_evicted;
} ln_kv_counts;
ln_kv_counts ln_kv_count(const ln_kv *kv);
/* The same counts for the pool of chunks. */
ln_kv_counts ln_kv_count_chunks(const ln_kv *kv);
/* Sets how many pages are kept for reuse only, INT64_MAX at first, and evicts those beyond; a page of chunks
 * counts as chunk_weight pages. Returns the previous value. */
int64_t ln_kv_set_limit(ln_kv *kv, int64_t n_pages);
/* Evicts all pages that are kept for reuse only. */
void ln_kv_clear(ln_kv *kv);
/* Finds the longest beginning of ids[0..n) that is kept, of an adapter and any rotary frequencies; returns
 * its tokens, and in *rope which frequencies it has. pages[c], [blocks of n positions, pages_per_block[c]],
 * receives its pages; -1 in blocks that the window of group c has left. */
int64_t ln_kv_lookup(const ln_kv *kv, uint64_t adapter, const int32_t *ids, int64_t n, int64_t *rope,
                     int32_t *const pages[LN_STATE_GROUPS]);
/* Holds the pages that ln_kv_lookup has found for n tokens, so that they are neither evicted nor written
 * until ln_kv_release of *out. *out is NULL with LN_OK where sequences that are open may need these pages. */
ln_status ln_kv_hold(ln_kv *kv, int64_t n, int32_t *const pages[LN_STATE_GROUPS], ln_seq **out,
                     ln_error *err);
/* How many tokens of ids[0..n) can be reused with an adapter and rotary frequencies. */
int64_t ln_kv_match_length(const ln_kv *kv, uint64_t adapter, int64_t rope, const int32_t *ids, int64_t n);
/* Blocks that were computed elsewhere. */
typedef struct ln_kv_blocks {
    const int32_t *ids; /* [n] */
    int64_t n;
    uint64_t adapter;
    int64_t rope;
    void *user;
    /* Fills page i of block b of group c, which is zeroed. Not called for blocks that the windows have left.
     */
    ln_status (*fill)(void *user, int c, int64_t b, int i, int64_t page, ln_error *err);
    /* Called once all pages are filled; after an error nothing is kept. */
    ln_status (*check)(void *user, ln_error *err);
} ln_kv_blocks;
/* Keeps such blocks for reuse, as if a sequence of these tokens had ended. LN_EMEMORY, with the cache as it
 * was: the pool has not enough pages that no sequence holds. Where a later error ends the call, older pages
 * that are kept for reuse may have been evicted. */
ln_status ln_kv_insert(ln_kv *kv, const ln_kv_blocks *blocks, ln_error *err);
/* The functions of sequence.h, which have the contracts. `slot` must be free. `rope` names the rotary
 * frequencies of the prompt: positions beyond it have others, and are not registered; 0: all have the same.
 */
bool ln_kv_possible(const ln_kv *kv, int64_t n);
ln_status ln_kv_admit(ln_kv *kv, int slot, int64_t rope, const ln_seq_options *opt, ln_seq **out,
                      ln_error *err);
void ln_kv_release(ln_kv *kv, ln_seq **s);
ln_status ln_kv_cut(ln_kv *kv, ln_seq *s, int64_t n, ln_error *err);
ln_status ln_kv_reserve(ln_kv *kv, ln_seq *s, int64_t add, ln_error *err);
/* Reserves pages for the snapshots that a reserved step should leave behind, as far as the pool has pages
 * that no sequence needs: after ln_kv_reserve of all sequences of the step. */
void ln_kv_reserve_snapshots(ln_kv *kv, ln_seq *s, int64_t add);
void ln_kv_advance(ln_kv *kv, ln_seq *s, const int32_t *ids, int64_t add);
ln_status ln_kv_truncate(ln_kv *kv, ln_seq *s, ln_error *err);
void ln_kv_free_unused(ln_kv *kv, ln_seq *s);

#endif
