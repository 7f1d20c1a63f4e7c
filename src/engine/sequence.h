/* Sequences: one timeline of tokens each, whose keys and values are in pages of the engine's pool.
 *
 * A sequence has one of the engine's n_seqs slots; the device holds a page table for each slot. Pages are
 * reference-counted: several sequences and the prefix cache (kv_cache.h) may hold the same page, which is
 * then never written. A sequence is admitted only when the pool has all pages that it may ever need, so that
 * a step of an admitted sequence never lacks one. */
#ifndef LN_SEQUENCE_H
#define LN_SEQUENCE_H

#include "../run/run.h"

struct ln_eng;

typedef struct ln_seq {
    int slot;                      /* of the device's page tables */
    int64_t n;                     /* tokens whose keys and values are in the pages */
    int64_t n_most;                /* positions that were committed at admission: n never exceeds it */
    int64_t n_prompt;              /* tokens of the prompt: dynamic RoPE scaling depends on it */
    int64_t n_cached;              /* tokens that were reused at admission */
    const char *cache_miss_reason; /* of ln_metrics; never NULL */
    int32_t *tokens;               /* [n_most] the n tokens */
    int32_t *tables[2]; /* [c]: [blocks of n_most positions, pages_per_block[c]] page indices, -1 where none
                           is resident */
    int64_t low[2];     /* lowest resident block of window group c */
} ln_seq;

/* What a sequence is admitted for. */
typedef struct ln_seq_options {
    const int32_t *ids; /* [n_prompt] the prompt; borrowed during the call */
    int64_t n_prompt;
    int64_t n_most;   /* positions that prompt and answer may need, n_prompt .. n_ctx */
    bool no_cache;    /* neither match the prompt against the prefix cache nor register what is computed */
    uint64_t adapter; /* digest of the adapter that computes it; 0: none */
} ln_seq_options;

/* Whether the pool could hold n positions of one sequence if nothing else used it. */
bool ln_seq_possible(const struct ln_eng *e, int64_t n);
/* Admits a sequence: takes a slot, reuses the longest prefix of the prompt that the prefix cache holds, at
 * most n_prompt - 1 tokens, and commits pages for n_most positions. *out is NULL with LN_OK where no slot is
 * free or the pool cannot commit so many pages now. The caller owns *out; ln_seq_close. LN_EMEMORY: an
 * allocation failed. */
ln_status ln_seq_open(struct ln_eng *e, const ln_seq_options *opt, ln_seq **out, ln_error *err);
/* Releases slot and pages and sets *s to NULL; blocks that the prefix cache registered stay there as its
 * budget allows, the last, partly filled one too. */
void ln_seq_close(struct ln_eng *e, ln_seq **s);
/* Cuts a sequence back to its first n tokens, 0 <= n <= s->n. Every window group must still hold the blocks
 * that the row at position n attends to (LN_EINTERNAL). For measurements that repeat a step. */
ln_status ln_seq_cut(struct ln_eng *e, ln_seq *s, int64_t n, ln_error *err);

/* For step.c. Takes pages for positions [n, n + add) and copies a shared page that they begin in.
 * LN_EINTERNAL: beyond n_most. */
ln_status ln_seq_reserve(struct ln_eng *e, ln_seq *s, int64_t add, ln_error *err);
/* For step.c. The step has written ids[0..add) at positions n ..: advances, registers the blocks that became
 * full in the prefix cache, and releases pages that no later row can attend to. */
void ln_seq_advance(struct ln_eng *e, ln_seq *s, const int32_t *ids, int64_t add);
/* For step.c. Frees the pages of positions beyond n, which a failed step had taken. */
void ln_seq_free_unused(struct ln_eng *e, ln_seq *s);

#endif
