/* The step loop: sequences, KV pages, sampling, stopping, scoring.
 *
 * A loaded model (ln_loaded) is immutable: files, spec, weights, tokenizer. An engine (ln_eng) is one run of it with one pool of pages
 * and up to n_parallel sequences; one thread uses it at a time. A step takes feeds: for each of some sequences the next tokens, and
 * whether logits are wanted for none, the last or all of them; they become one ragged batch. What a sequence computes does not depend
 * on its neighbours, on how its tokens are cut into steps, or on threads.
 * Everything that steps need is allocated when the engine is opened. */
#ifndef LN_ENGINE_H
#define LN_ENGINE_H

#include "../run/run.h"
#include "../text/template.h"

#include <stdatomic.h>

/* What stands around reasoning in a model's text. */
typedef struct ln_marks {
    const char *open, *end;
} ln_marks;

/* ---- loaded.c: a model's directory, opened ---- */
typedef struct ln_loaded {
    char path[4096];
    ln_config config;
    ln_spec spec;
    ln_tensors tensors;
    ln_weights weights;
    ln_tok *tok;
    ln_genconfig gen;
    bool has_template;
    ln_tmpl *tmpl;           /* NULL: none, or one that cannot be used */
    ln_error template_error; /* why it cannot be used: said when a conversation is asked for, not before */
    const ln_marks *marks;   /* of reasoning; NULL: it marks none */
    ln_controls *controls;   /* of the fixed form, where there is no template */
    ln_options opt;
    double load_seconds;
    ln_residents *residents; /* weights on devices, shared by this model's engines; has a lock of its own */
} ln_loaded;
ln_status ln_loaded_open(ln_loaded **out, const char *model, const ln_options *opt, ln_error *err);
void ln_loaded_close(ln_loaded **m);
void ln_loaded_info(const ln_loaded *m, ln_info *info);
/* Whether a prompt goes through the chat template. */
bool ln_loaded_chats(const ln_loaded *m, const ln_prompt *p);
/* Appends the ids of a prompt to *out. */
ln_status ln_loaded_prompt(const ln_loaded *m, const ln_prompt *p, ln_ids *out, ln_error *err);
/* A conversation's ids and which of them the assistant wrote. */
ln_status ln_loaded_marked(const ln_loaded *m, const ln_prompt *p, ln_marked *out, ln_error *err);
void ln_loaded_sampling(const ln_loaded *m, ln_sampling *out);

/* ---- list.c: models on this machine, without opening a tensor ---- */
ln_status ln_list_models(const char *dir_or_null, ln_found_fn *fn, void *user, ln_error *err);

/* ---- kv.c: pages ---- */
/* The pool: free pages by number, memory that was zero at first. A page is zeroed when taken, since stale NaN times zero is NaN, but where the step that takes it writes all its
 * positions. What no position has (pages.h) stays zero. */
typedef struct ln_pages {
    int32_t *free;     /* a stack */
    int64_t n_free, n;
} ln_pages;

/* One timeline of tokens. tables[c] holds n_blocks x n_sub[c] page numbers, -1 where nothing is resident. */
typedef struct ln_seq {
    int32_t *tokens;   /* [n_ctx] those whose keys and values are in the pages */
    int64_t n;
    int64_t n_prompt;  /* tokens of the prompt that it was begun with: a dynamic rope asks */
    int32_t *tables[2];
    int64_t low[2];    /* lowest resident block of the class: below it pages were dropped */
} ln_seq;

typedef struct ln_eng {
    const ln_loaded *model;
    ln_run *run;
    ln_pages pages;
    ln_seq *seqs;      /* [n_seqs] */
    /* the step block's arrays, at their bounds */
    int32_t *ids, *pos, *seq_of, *row0, *out_rows, *n_prompt;
    int32_t *tables[2];
    float *logits;     /* [V] of one row, for the sampler */
    struct ln_sampler *sampler;
    double load_seconds; /* the model's and its own */
    double checked;      /* when the model's files were last looked at */
    const _Atomic(uintptr_t) *stop; /* calls end when this word, which anybody may write, is `stop_at`; NULL: never */
    uintptr_t stop_at;
} ln_eng;

/* Which logits of a feed are wanted. */
typedef enum ln_want { LN_WANT_NONE = 0, LN_WANT_LAST, LN_WANT_ALL } ln_want;
typedef struct ln_feed {
    int seq;           /* index of the sequence */
    const int32_t *ids;
    int64_t n;
    ln_want want;
} ln_feed;

/* Decided options: defaults filled in for this model and machine. LN_EUSAGE for what cannot be. */
ln_status ln_eng_options(const ln_loaded *m, const ln_options *opt, ln_run_options *out, ln_error *err);
/* What an engine with these options will hold, and the machine's limit. `largest_ctx` is 0. */
ln_status ln_eng_plan(const ln_loaded *m, const ln_options *opt, ln_plan *out, ln_error *err);
/* Fills in `largest_ctx` of a plan that ln_eng_plan made with the same options. */
ln_status ln_eng_largest(const ln_loaded *m, const ln_options *opt, ln_plan *plan, ln_error *err);
/* LN_EMEMORY with both numbers, the limit and what to do when the peak is beyond the limit. */
ln_status ln_plan_check(const ln_plan *plan, const char *advice, ln_error *err);
ln_status ln_eng_open(ln_eng **out, const ln_loaded *m, const ln_options *opt, ln_error *err);
/* The same with decided options, unchecked against memory; for tests. */
ln_status ln_eng_open_with(ln_eng **out, const ln_loaded *m, const ln_run_options *opt, ln_error *err);
void ln_eng_close(ln_eng **e);

/* Makes the resident tokens of a sequence a prefix of ids[0..n): keeps the longest common prefix whose pages every window class
 * still holds, drops the rest, all where the rotary frequencies of a text of n tokens are others. Returns
 * how many tokens are kept (at
 * most n - 1, so that there is a row to compute). */
int64_t ln_seq_sync(ln_eng *e, int seq, const int32_t *ids, int64_t n);
void ln_seq_clear(ln_eng *e, int seq);
/* Empties a sequence for a text whose first n tokens go through as one prompt, in however many steps. */
void ln_seq_begin(ln_eng *e, int seq, int64_t n);
/* Makes pages resident for positions [n, n + add). LN_EMEMORY names the pool when it is spent. */
ln_status ln_seq_reserve(ln_eng *e, int seq, int64_t add, ln_error *err);
/* Drops the pages that no row at or after position n can see. */
void ln_seq_drop_below(ln_eng *e, int seq);
/* Gives back the pages of positions that the sequence has not: a step that failed had taken them. */
void ln_seq_drop_unused(ln_eng *e, int seq);

/* One step. Sequences must be distinct, rows <= n_chunk. Logits rows are numbered in the order of feeds and rows. */
ln_status ln_eng_step(ln_eng *e, ln_mode mode, const ln_feed *feeds, int n_feeds, ln_error *err);
/* Steps through ids in chunks, logits wanted for the last row only; checks ln_eng_cancelled between steps (LN_ECANCELLED). */
ln_status ln_eng_prefill(ln_eng *e, ln_mode mode, int seq, const int32_t *ids, int64_t n, ln_error *err);

/* ---- sample.c ---- */
typedef struct ln_sampler ln_sampler;
ln_status ln_sampler_open(ln_sampler **out, int64_t n_vocab, ln_error *err);
void ln_sampler_close(ln_sampler **s);
/* Chooses the next token from logits[V], which it changes. history: all tokens so far, the last n_generated of them generated; stop ids
 * become -inf when sampling.ignore_eos. LN_ENUMERIC on NaN or when nothing can be chosen. */
ln_status ln_sample(ln_sampler *s, float *logits, const ln_sampling *how, uint64_t seed, const int32_t *history, int64_t n_history,
                    int64_t n_generated, const int32_t *stop_ids, int n_stop_ids, int32_t *out, ln_error *err);
/* forbid.c: whether any token is forbidden at this step, and their logits to minus infinity. */
bool ln_forbids(const ln_sampling *how, int64_t n_generated);
void ln_forbid(float *logits, const ln_sampling *how, const int32_t *history, int64_t n_history,
               int64_t n_generated, const int32_t *stop_ids, int n_stop_ids);
uint64_t ln_sampler_bytes(int64_t n_vocab);
/* The next token after row `row` of the last step: ln_sample with the engine's sampler and the model's stop ids, of logits that stay where they are where the
 * largest is all that counts. */
ln_status ln_eng_choose(ln_eng *e, int64_t row, const ln_sampling *how, uint64_t seed, const int32_t *history, int64_t n_history, int64_t n_generated,
                        int32_t *out, ln_error *err);

/* ---- stop.c: text that may not be shown yet ---- */
typedef struct ln_stop {
    const char *const *texts;
    size_t n_texts;
    ln_str pending;    /* not shown: might become a stop text */
    ln_str ready;      /* shown by the last push; valid until the next */
    uint64_t shown;    /* bytes so far */
    bool hit;
} ln_stop;
void ln_stop_open(ln_stop *s, const char *const *texts, size_t n);
/* Adds text; what is certain is in s->ready. Sets hit when a stop text is complete: the text before it is ready, the rest is gone. */
ln_status ln_stop_push(ln_stop *s, const char *text, size_t bytes, ln_error *err);
/* The end: what is pending becomes ready. */
ln_status ln_stop_flush(ln_stop *s, ln_error *err);
void ln_stop_close(ln_stop *s);

/* ---- think.c: reasoning and answer ---- */
/* The marks that a model knows: as tokens, or because its template writes or reads them. NULL: none. */
const ln_marks *ln_marks_of(const ln_tok *tok, const ln_tmpl *tmpl_or_null);
/* Whether a prompt ends with the opening mark: then what follows is reasoning. */
ln_status ln_marks_opened(const ln_marks *marks, const ln_tok *tok, const int32_t *ids, size_t n, bool *opened, ln_error *err);
typedef struct ln_think {
    const ln_marks *marks;
    enum { LN_THINK_MAYBE, LN_THINK_REASONING, LN_THINK_ANSWER } state;
    bool begun, closed; /* something of this state was given; reasoning came to its end */
    ln_str held;        /* might become a mark, or belongs to one */
    ln_str reasoning;   /* certain since the last push, and */
    ln_str answer;      /* what comes after it; both valid until the next */
    uint64_t before;    /* bytes of the text that are no answer */
} ln_think;
/* Without marks all is answer. */
void ln_think_open(ln_think *t, const ln_marks *marks_or_null, bool opened);
ln_status ln_think_push(ln_think *t, const char *text, size_t bytes, ln_error *err);
/* The end: what is held is what it stands in. */
ln_status ln_think_flush(ln_think *t, ln_error *err);
void ln_think_close(ln_think *t);

/* ---- generate.c, score.c ---- */
static inline bool ln_eng_cancelled(const ln_eng *e) { return e->stop && atomic_load_explicit(e->stop, memory_order_relaxed) == e->stop_at; }
/* Calls a caller's function whose last argument is `err`, not NULL, and returns what it said. Of an error *err then has the code, and a message
 * where the function wrote none. */
#define LN_CALL(call) (err->message[0] = '\0', ln_said((call), err))
ln_status ln_said(ln_status said, ln_error *err);
ln_status ln_eng_generate(ln_eng *e, const ln_prompt *p, const ln_sampling *how, ln_text_fn *on_text, void *user, ln_result *out, ln_error *err);
ln_status ln_eng_score(ln_eng *e, const int32_t *ids, size_t n, size_t n_top, ln_score_fn *fn, void *user, ln_metrics *metrics, ln_error *err);
ln_status ln_eng_attention(ln_eng *e, const int32_t *ids, size_t n, ln_keys_fn *fn, void *user, ln_error *err);
/* ---- explain.c, bench.c: looking at programs, and at their speed (contracts: linnet.h) ---- */
ln_status ln_eng_explain(ln_eng *e, int64_t n_rows, int64_t depth, int n_reps, ln_node_fn *fn, void *user, ln_program_report *out, ln_error *err);
/* Feeds both engines ids[0..n) a few rows at a time; their sequences 0 must be empty and their chunks and logits alike. */
ln_status ln_eng_diff(ln_eng *ref, ln_eng *other, const int32_t *ids, int64_t n, ln_node_fn *fn, void *user, ln_error *err);
ln_status ln_diff_model(const ln_loaded *m, const ln_options *opt, const int32_t *ids, int64_t n, ln_node_fn *fn, void *user, ln_error *err);
ln_status ln_bench_model(const ln_loaded *m, const ln_options *opt, const ln_bench_options *how, ln_bench_fn *fn, void *user, ln_bench_report *out,
                         ln_error *err);
/* n ids of the vocabulary, the same in every run; owned, NULL when memory is short. */
int32_t *ln_eng_random_ids(const ln_loaded *m, int64_t n);
/* Makes ids[0..depth) the resident tokens of a sequence, whatever it held. */
ln_status ln_eng_stand(ln_eng *e, int seq, const int32_t *ids, int64_t depth, ln_error *err);
double ln_median(double *x, int n); /* of n > 0 numbers, which it sorts */

/* ids must be in [0, V) and fit the context. */
ln_status ln_eng_check_ids(const ln_eng *e, const int32_t *ids, size_t n, ln_error *err);

#endif
