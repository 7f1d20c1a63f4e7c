/* The sampler: chooses the next token from a row of logits. */
#ifndef LN_SAMPLER_H
#define LN_SAMPLER_H

#include "../base/base.h"
#include "../run/run.h"

typedef struct ln_sampler ln_sampler; /* the scratch arrays of sampling, for one thread */
ln_status ln_sampler_open(ln_sampler **out, int64_t n_vocab, ln_error *err);
void ln_sampler_close(ln_sampler **s);
/* Bytes of a sampler's arrays. */
uint64_t ln_sampler_bytes(int64_t n_vocab);

/* Chooses the next token from logits f32 [V], which it overwrites, and writes its id to *out. `history` has
 * the n_history tokens so far, of which the last n_generated were generated. The logits of stop ids become
 * minus infinity when how->ignore_eos. LN_ENUMERIC: a NaN, +infinity when a token is sampled, or every token
 * is excluded. */
ln_status ln_sample(ln_sampler *s, float *logits, const ln_sampling *how, uint64_t seed,
                    const int32_t *history, int64_t n_history, int64_t n_generated, const int32_t *stop_ids,
                    int n_stop_ids, int32_t *out, ln_error *err);
/* Whether the next token is the argmax of the unmodified logits, unless that is a stop id that
 * how->ignore_eos excludes. */
bool ln_sample_is_plain(const ln_sampling *how, int64_t n_generated);
/* logit_edits.c: what ln_sample does to the logits before the temperature, as a list for a device
 * (ln_logit_edit), each token once. ln_edits_most: the most edits of it, at most n_vocab. ln_edits_make:
 * writes them to `out` and returns their number; -1: they cannot be written as one edit for each token (two
 * biases of one). The arguments are those of ln_sample. */
int64_t ln_edits_most(const ln_sampling *how, int64_t n_vocab, int64_t n_history, int64_t n_generated,
                      int n_stop_ids);
int64_t ln_edits_make(ln_sampler *s, const ln_sampling *how, const int32_t *history, int64_t n_history,
                      int64_t n_generated, const int32_t *stop_ids, int n_stop_ids, ln_logit_edit *out);
/* Scratch [V] of a sampler, all zero between uses. */
uint32_t *ln_sampler_marks(ln_sampler *s);

/* forbid.c. ln_forbids: whether `how` forbids any token once n_generated tokens are generated. ln_forbid:
 * sets the logits of the forbidden tokens to minus infinity. */
bool ln_forbids(const ln_sampling *how, int64_t n_generated);
typedef void ln_forbid_fn(void *user, int32_t id);
/* Calls fn for each forbidden token, for some more than once. */
void ln_forbid_each(const ln_sampling *how, const int32_t *history, int64_t n_history, int64_t n_generated,
                    const int32_t *stop_ids, int n_stop_ids, ln_forbid_fn *fn, void *user);
void ln_forbid(float *logits, const ln_sampling *how, const int32_t *history, int64_t n_history,
               int64_t n_generated, const int32_t *stop_ids, int n_stop_ids);

/* sampling_copy.c. Copies a sampling with everything that it points to into an arena. LN_EMEMORY. */
ln_status ln_sampling_copy(ln_arena *arena, const ln_sampling *from, ln_sampling *out, ln_error *err);
/* The seed that a sampling names, else one from the system. */
uint64_t ln_sampling_seed(const ln_sampling *how);

#endif
