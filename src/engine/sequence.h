/* Sequences of an engine: one timeline of tokens each, whose keys and values are in pages of the engine's
 * pool.
 *
 * A sequence has one of the engine's n_seqs slots; the device holds a page table for each slot. Pages are
 * reference-counted: several sequences and the prefix cache may hold the same page, which is then never
 * written. A sequence is admitted only when the pool has all pages that it may ever need, so that a step of
 * an admitted sequence never lacks one. The bookkeeping is kv_cache.h; this is its use by an engine. */
#ifndef LN_SEQUENCE_H
#define LN_SEQUENCE_H

#include "../run/run.h"
#include "kv_cache.h"

struct ln_eng;

/* The options of the cache that a run with these options and sizes needs. */
ln_kv_options ln_seq_cache_options(const ln_run_options *o, const ln_run_sizes *z);
/* Bytes of the cache of such a run and of n_seqs sequences of n_ctx positions. */
uint64_t ln_seqs_bytes(const ln_run_options *o, const ln_run_sizes *z);
/* Whether the pool could hold n positions of one sequence if nothing else used it. */
bool ln_seq_possible(const struct ln_eng *e, int64_t n);
/* Admits a sequence, with the engine's own adapter where the options name none: takes a slot, reuses the
 * longest prefix of the prompt that the prefix cache holds, at most n_prompt - 1 tokens, and commits pages
 * for n_most positions. *out is NULL with LN_OK where no slot is free or the pool cannot commit so many pages
 * now. The caller owns *out; ln_seq_close. LN_EMEMORY: an allocation failed. */
ln_status ln_seq_open(struct ln_eng *e, const ln_seq_options *opt, ln_seq **out, ln_error *err);
/* Releases slot and pages and sets *s to NULL; blocks that the prefix cache registered stay there as its
 * budget allows, the last, partly filled one too. */
void ln_seq_close(struct ln_eng *e, ln_seq **s);
/* Cuts a sequence that was opened with no_cache back to its first n tokens, 0 <= n <= s->n. LN_EINTERNAL: the
 * cache may hold its pages, or a window group dropped blocks that the row at position n attends to. For
 * measurements that repeat a step. */
ln_status ln_seq_cut(struct ln_eng *e, ln_seq *s, int64_t n, ln_error *err);

/* For eng_step.c. Takes pages for positions [n, n + add). LN_EINTERNAL: beyond n_most, or more than n_chunk.
 */
ln_status ln_seq_reserve(struct ln_eng *e, ln_seq *s, int64_t add, ln_error *err);
/* For eng_step.c, after ln_seq_reserve of all sequences of the step: takes pages for snapshots of
 * recurrent state in its rows, as far as no sequence needs them. */
void ln_seq_reserve_snapshots(struct ln_eng *e, ln_seq *s, int64_t add);
/* For eng_step.c. The step has written ids[0..add) at positions n ..: advances, registers the blocks that
 * became full in the prefix cache, and releases pages that no later row can attend to. */
void ln_seq_advance(struct ln_eng *e, ln_seq *s, const int32_t *ids, int64_t add);
/* For eng_step.c. A step has written rows beyond n that are not kept: frees their pages, and writes zeros
 * over them in the page that stays. LN_EDEVICE. */
ln_status ln_seq_truncate(struct ln_eng *e, ln_seq *s, ln_error *err);
/* For eng_step.c. Frees the pages of positions beyond n, which a failed step had taken. */
void ln_seq_free_unused(struct ln_eng *e, ln_seq *s);

#endif
