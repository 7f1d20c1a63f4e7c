/* The engine: runs a package with one pool of KV pages and up to n_parallel sequences.
 *
 * A package (ln_package) is immutable: files, spec, weights, tokenizer. Requests (request.h) are what an
 * engine is asked for, and its scheduler (scheduler.h) runs all of them, step by step; generating, scoring
 * and the rest are clients of requests. Code that uses sequences (sequence.h) and steps (eng_step.h) directly
 * needs the engine for itself: ln_driver_enter.
 *
 * Invariants. What a sequence computes does not depend on the other sequences of the batch, on how its tokens
 * are cut into steps, or on the number of threads. All memory that steps need is allocated when the engine is
 * opened; a request allocates its own record. */
#ifndef LN_ENGINE_H
#define LN_ENGINE_H

#include "../package/package.h"
#include "adapters.h"
#include "eng_step.h"

#include <stdatomic.h>

struct ln_sched;

typedef struct ln_eng {
    const ln_package *model;
    ln_run *run;
    ln_kv *kv;
    ln_seq **seqs; /* [n_seqs] the open sequence of each slot, or NULL */
    struct ln_sched *sched;
    ln_adapter_slot *adapters;          /* [run->opt.n_adapters]; NULL: there are none */
    uint64_t cache_limit, cache_clears; /* what ln_cache_apply has applied */
    bool counted;                       /* by ln_eng_count */
    uint64_t memory_bytes;              /* ln_options.memory_bytes, 0: no such limit */
    uint64_t text_bytes;                /* planned for texts (ln_texts_plan) */
    double load_seconds;                /* time to open the package and this engine */
    _Atomic bool embeds;                /* the run has the program without the head */
    _Atomic bool embed_warned;          /* what of the files about embeddings is not applied was logged */
    double checked;                     /* when the model's files were last checked for changes, by ln_now */
    /* A stop request: all requests end while *stop, which any thread or signal handler may write, equals
     * stop_at. NULL: there are no stop requests. */
    const _Atomic(uintptr_t) *stop;
    uintptr_t stop_at;
    struct ln_vocabulary *vocabulary; /* for grammars, since the first; NULL: see constraint.c */
    _Atomic uint64_t stops_warned;    /* hash of the stop texts that were last warned about: once is enough */
} ln_eng;

/* Fills in the defaults for this model and machine. LN_EUSAGE: n_ctx is beyond the model's maximum, or
 * quantize_bits is not the package's. */
ln_status ln_eng_options(const ln_package *m, const ln_options *opt, ln_run_options *out, ln_error *err);
/* Computes the bytes that the process will hold with an engine of these options, and the limit of machine or
 * options. out->largest_ctx is 0. LN_OK although the plan may not fit. */
ln_status ln_eng_plan(const ln_package *m, const ln_options *opt, ln_plan *out, ln_error *err);
/* Fills in largest_ctx of a plan that ln_eng_plan made with the same options. */
ln_status ln_eng_largest(const ln_package *m, const ln_options *opt, ln_plan *plan, ln_error *err);
/* LN_EMEMORY when the plan's peak is beyond its limit; the message has both numbers, the name of the limit
 * and `advice`. */
ln_status ln_plan_check(const ln_plan *plan, const char *advice, ln_error *err);
/* Plans, checks the plan against the limit, loads the weights and takes all memory. `m` must outlive the
 * engine. The caller owns *out; NULL after an error. Errors: see ln_engine_open. */
ln_status ln_eng_open(ln_eng **out, const ln_package *m, const ln_options *opt, ln_error *err);
/* The same with options that ln_eng_options has filled in, without comparing the plan with the memory that is
 * available; for tests and ln_diff_model. */
ln_status ln_eng_open_with(ln_eng **out, const ln_package *m, const ln_run_options *opt, ln_error *err);
/* Ends the engine's thread and frees everything. No request may be left. */
void ln_eng_close(ln_eng **e);

/* sequence.c. The engine's KV cache and slots. Closing releases sequences that are still open. */
ln_status ln_seqs_open(ln_eng *e, ln_error *err);
void ln_seqs_close(ln_eng *e);

/* Whether the caller has asked all calls to stop. */
static inline bool ln_eng_cancelled(const ln_eng *e) {
    return e->stop && atomic_load_explicit(e->stop, memory_order_relaxed) == e->stop_at;
}
/* generate.c. Appends the ids of a prompt; a prompt that is too long for the context by its bytes alone is
 * refused before it is rendered and encoded, with LN_EINVALID. Other errors: see ln_prompt_ids. */
ln_status ln_eng_encode(const ln_eng *e, const ln_prompt *p, ln_ids *ids, ln_error *err);
/* generate.c. LN_EINVALID unless all ids are in [0, V) and there are at most n_ctx. */
ln_status ln_eng_check_ids(const ln_eng *e, const int32_t *ids, size_t n, ln_error *err);

#endif
