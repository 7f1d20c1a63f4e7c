/* The engine: sequences, KV pages, the step loop, sampling, stop texts, scoring.
 *
 * A package (ln_package) is immutable: files, spec, weights, tokenizer. An engine (ln_eng) runs it, with one
 * pool of KV pages and up to n_parallel sequences; one thread at a time uses it. A step takes batch items:
 * each names a sequence, its next tokens, and whether logits are wanted for none, the last or all of them.
 * The items become one ragged batch.
 *
 * Invariants. What a sequence computes does not depend on the other sequences of the batch, on how its tokens
 * are cut into steps, or on the number of threads. All memory that steps need is allocated when the engine is
 * opened. */
#ifndef LN_ENGINE_H
#define LN_ENGINE_H

#include "../package/package.h"

#include <stdatomic.h>

/* ---- kv_pages.c: pages ---- */
/* The free list of the KV pool: indices of free pages. The pool's memory is zeroed when it is allocated. A
 * page is zeroed again when a sequence takes it, because a stale NaN times a zero probability is NaN, unless
 * the coming step writes all its positions. Padding that belongs to no position (kv_layout.h) stays zero. */
typedef struct ln_pages {
    int32_t *free;     /* [n], a stack of n_free page indices */
    int64_t n_free, n; /* free pages, all pages */
} ln_pages;

/* One sequence of tokens. tables[c], the page table of window group c, is [n_blocks, pages_per_block[c]] page
 * indices, -1 where no page is resident. */
typedef struct ln_seq {
    int32_t *tokens; /* [n_ctx] ids of the n tokens whose keys and values are in the pages */
    int64_t n;
    int64_t n_prompt; /* tokens of the prompt that began it: dynamic RoPE scaling depends on it */
    int32_t *tables[2];
    int64_t low[2]; /* lowest resident block of window group c: the pages below it were evicted */
} ln_seq;

typedef struct ln_eng {
    const ln_package *model;
    ln_run *run;
    ln_pages pages;
    ln_seq *seqs; /* [n_seqs] */
    /* arrays of the step block: ids, pos, seq_of [n_chunk]; row0 [n_seqs + 1]; out_rows [n_logits]; n_prompt
     * [n_seqs]; tables[c] [n_seqs, n_blocks, pages_per_block[c]] */
    int32_t *ids, *pos, *seq_of, *row0, *out_rows, *n_prompt;
    int32_t *tables[2];
    float *logits; /* [V] of one row, for the sampler */
    struct ln_sampler *sampler;
    double load_seconds; /* time to open the package and this engine */
    double checked;      /* when the model's files were last checked for changes, by ln_now */
    /* A stop request: calls end while *stop, which any thread or signal handler may write, equals stop_at.
     * NULL: there are no stop requests. */
    const _Atomic(uintptr_t) *stop;
    uintptr_t stop_at;
    uint64_t stops_warned; /* hash of the stop texts that were last warned about, which is done once */
} ln_eng;

/* The rows of a batch item whose logits are wanted. */
typedef enum ln_logits_mode { LN_LOGITS_NONE = 0, LN_LOGITS_LAST, LN_LOGITS_ALL } ln_logits_mode;
/* The next n >= 1 tokens of one sequence. */
typedef struct ln_batch_item {
    int seq;            /* index of the sequence */
    const int32_t *ids; /* [n], borrowed during the step */
    int64_t n;
    ln_logits_mode want;
} ln_batch_item;

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
void ln_eng_close(ln_eng **e);

/* Prefix reuse: cuts a sequence back to its longest common prefix with ids[0..n) whose pages every window
 * group still holds, and frees the other pages. Nothing is kept where the rotary frequencies of a prompt of n
 * tokens differ from those in the pages. Returns the tokens kept, at most n - 1, so that the next step
 * computes a row. */
int64_t ln_seq_match_prefix(ln_eng *e, int seq, const int32_t *ids, int64_t n);
/* Empties a sequence and frees its pages. */
void ln_seq_clear(ln_eng *e, int seq);
/* Empties a sequence for a new text whose first n tokens are its prompt, in however many steps. */
void ln_seq_begin(ln_eng *e, int seq, int64_t n);
/* Takes pages for positions [n, n + add), n being the sequence's length. LN_EINVALID: the context would be
 * exceeded. LN_EMEMORY: the pool has no free page. */
ln_status ln_seq_reserve(ln_eng *e, int seq, int64_t add, ln_error *err);
/* Frees the pages that no row at or after position n, the sequence's length, can attend to. */
void ln_seq_evict_below(ln_eng *e, int seq);
/* Frees the pages of positions beyond the sequence's length, which a failed step had taken. */
void ln_seq_free_unused(ln_eng *e, int seq);

/* Runs one step. The sequences of the items must be distinct; at most n_chunk rows and n_logits rows of
 * logits. Rows of logits are numbered from 0 in the order of items and of rows within them. After an error no
 * sequence has advanced. LN_EINTERNAL: a bound is exceeded. LN_ECHANGED: a weight file changed. Also the
 * errors of ln_seq_reserve. */
ln_status ln_eng_step(ln_eng *e, ln_mode mode, const ln_batch_item *feeds, int n_feeds, ln_error *err);
/* Runs ids[0..n) through a sequence in chunks of n_chunk rows; in LN_MODE_LOGITS the last row has logits.
 * Checks ln_eng_cancelled between steps (LN_ECANCELLED). */
ln_status ln_eng_prefill(ln_eng *e, ln_mode mode, int seq, const int32_t *ids, int64_t n, ln_error *err);

/* ---- sampler.c ---- */
typedef struct ln_sampler ln_sampler; /* the scratch arrays of sampling */
ln_status ln_sampler_open(ln_sampler **out, int64_t n_vocab, ln_error *err);
void ln_sampler_close(ln_sampler **s);
/* Chooses the next token from logits f32 [V], which it overwrites, and writes its id to *out. `history` has
 * the n_history tokens so far, of which the last n_generated were generated. The logits of stop ids become
 * minus infinity when how->ignore_eos. LN_ENUMERIC: a NaN, +infinity in a draw, or every token is excluded.
 */
ln_status ln_sample(ln_sampler *s, float *logits, const ln_sampling *how, uint64_t seed,
                    const int32_t *history, int64_t n_history, int64_t n_generated, const int32_t *stop_ids,
                    int n_stop_ids, int32_t *out, ln_error *err);
/* forbid.c. ln_forbids: whether `how` forbids any token once n_generated tokens are generated. ln_forbid:
 * sets the logits of the forbidden tokens to minus infinity. */
bool ln_forbids(const ln_sampling *how, int64_t n_generated);
void ln_forbid(float *logits, const ln_sampling *how, const int32_t *history, int64_t n_history,
               int64_t n_generated, const int32_t *stop_ids, int n_stop_ids);
/* Bytes of a sampler's arrays. */
uint64_t ln_sampler_bytes(int64_t n_vocab);
/* Chooses the token after row `row` of the last step's logits: ln_sample with the engine's sampler. Where the
 * choice is a plain argmax, the device finds it and no logits are downloaded. */
ln_status ln_eng_choose(ln_eng *e, int64_t row, const ln_sampling *how, uint64_t seed, const int32_t *history,
                        int64_t n_history, int64_t n_generated, const int32_t *stop_ids, int n_stop_ids,
                        int32_t *out, ln_error *err);

/* ---- stop_text.c: holds back text that could become a stop text ---- */
typedef struct ln_stop {
    const char *const *texts;
    size_t n_texts;
    ln_str pending; /* held back: the beginning of a stop text */
    ln_str ready;   /* text that the last push or flush released; valid until the next */
    uint64_t shown; /* bytes released so far */
    bool hit;       /* a stop text is complete */
} ln_stop;
/* `texts` [n], NUL-terminated, are borrowed until close. */
void ln_stop_open(ln_stop *s, const char *const *texts, size_t n);
/* Appends text; s->ready then has what can no longer become part of a stop text. When a stop text is
 * complete, sets s->hit, releases the text before it and discards the rest. */
ln_status ln_stop_push(ln_stop *s, const char *text, size_t bytes, ln_error *err);
/* Ends the text: what is held back is released. */
ln_status ln_stop_flush(ln_stop *s, ln_error *err);
void ln_stop_close(ln_stop *s);

/* ---- generate.c, score.c; the contracts are those of ln_generate, ln_score, ln_inspect_keys ---- */
/* Whether the caller has asked the running call to stop. */
static inline bool ln_eng_cancelled(const ln_eng *e) {
    return e->stop && atomic_load_explicit(e->stop, memory_order_relaxed) == e->stop_at;
}
ln_status ln_eng_generate(ln_eng *e, const ln_prompt *p, const ln_sampling *how, ln_text_fn *on_text,
                          void *user, ln_result *out, ln_error *err);
ln_status ln_eng_score(ln_eng *e, const int32_t *ids, size_t n, size_t n_top, ln_score_fn *fn, void *user,
                       ln_metrics *metrics, ln_error *err);
ln_status ln_eng_inspect_keys(ln_eng *e, const int32_t *ids, size_t n, ln_keys_fn *fn, void *user,
                              ln_error *err);
/* LN_EINVALID unless all ids are in [0, V) and there are at most n_ctx. */
ln_status ln_eng_check_ids(const ln_eng *e, const int32_t *ids, size_t n, ln_error *err);

#endif
