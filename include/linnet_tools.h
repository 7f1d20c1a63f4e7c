/* linnet_tools - scores, classifies and embeds texts, and inspects and converts models.
 *
 * In this order: scoring and keys, classifying and embedding, perplexity, files of requests, keys and values
 * as files, memory of the process, several processes, chat templates, models on this machine and the machine
 * itself, programs node by node and their speed, quantised weights and fused adapters. What linnet.h says
 * about errors, callbacks, ownership and threads holds here too. */
#ifndef LINNET_TOOLS_H
#define LINNET_TOOLS_H

#include "linnet.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- scoring and inspecting ---- */

/* Called for each row t = 0 .. n_ids - 1 in order. `logprob` is the natural log-probability of token t given
 * the tokens before it (NaN at t = 0). `logits`, f32 [V], and `top`, the n_top likeliest tokens in descending
 * order, predict token t + 1. */
typedef ln_status ln_score_fn(void *user, int64_t t, double logprob, const ln_top *top, size_t n_top,
                              const float *logits, int64_t n_vocab, ln_error *err);

/* Scores n_ids >= 1 tokens as one text and calls `fn` for each. `n_top` is reduced to V if it is more. A
 * step takes at most ln_options.n_logits rows, and at most 64: a large value scores faster. `metrics` may be
 * NULL; it has the rows scored so far even after an error. The call neither reuses nor keeps keys and
 * values. It holds a sequence while `fn` runs: `fn` must not call the engine (LN_EUSAGE) nor wait for a call
 * of it.
 *
 * LN_EINVALID: an id is not in the vocabulary, or the text is longer than the context. LN_ENUMERIC: the
 * logits hold a NaN or only infinities. LN_ECHANGED: a weight file changed. LN_ECANCELLED: ln_cancel. */
LN_API LN_MUST_CHECK ln_status ln_score(ln_engine *engine, const int32_t *ids, size_t n_ids, size_t n_top,
                                        ln_score_fn *fn, void *user, ln_metrics *metrics, ln_error *err);

/* Called for each layer in order with its keys after RoPE: f32 [K, T, E], where K is n_kv_heads, T n_rows and
 * E head_dim. */
typedef ln_status ln_keys_fn(void *user, int layer, const float *keys, int n_kv_heads, int64_t n_rows,
                             int head_dim, ln_error *err);

/* Runs n_ids >= 1 tokens as one text and hands the keys of all positions to `fn`, layer by layer; as in
 * ln_score, `fn` must not call the engine. LN_EUSAGE: the engine was opened without keep_full_kv.
 * LN_EINVALID, LN_ECHANGED, LN_ECANCELLED: as for ln_score. */
LN_API LN_MUST_CHECK ln_status ln_inspect_keys(ln_engine *engine, const int32_t *ids, size_t n_ids,
                                               ln_keys_fn *fn, void *user, ln_error *err);

/* ---- classifying and embedding ---- */

/* The score of a label. SUM: the sum of its tokens' log-probabilities. TOKENS: their mean. */
typedef enum ln_normalize { LN_NORMALIZE_SUM = 0, LN_NORMALIZE_TOKENS } ln_normalize;

typedef struct ln_classify_options {
    uint32_t size; /* set by ln_classify_options_default */
    /* [n_labels] texts, each tokenised alone without special tokens, scored as continuations of the prompt.
     * None: the next token is chosen with `sampling`. */
    const char *const *labels;
    size_t n_labels;
    ln_normalize normalize;
    /* Of the next token; NULL: greedy. Limits and stop rules do not apply. One seed serves all prompts, so
     * that a prompt gets the same token in any company. */
    const ln_sampling *sampling;
    bool want_logits; /* ln_class.logits */
} ln_classify_options;
LN_DEFAULT(ln_classify_options)

/* The class of one prompt. Borrowed during the callback. */
typedef struct ln_class {
    uint32_t size;     /* of the library's struct: sizeof(ln_class) */
    size_t index;      /* of the prompt */
    ln_status status;  /* LN_OK, or why this prompt failed; then only `error` is set as well */
    const char *error; /* message, or NULL */
    int label;         /* the likeliest label, the first on ties; -1 without labels */
    const double *scores, *probabilities; /* [n_labels]; probabilities: the softmax of the scores */
    int32_t token;                        /* without labels: the next token, its text and log-probability */
    const char *text;
    size_t text_bytes;
    double logprob;
    const float *logits; /* with want_logits: f32 [n_vocab], of the row after the prompt; else NULL */
    int64_t n_vocab;
} ln_class;
typedef ln_status ln_class_fn(void *user, const ln_class *result, ln_error *err);

/* Classifies n prompts, many in each step, and calls `fn` for each in the order of the prompts. `opt` NULL:
 * the defaults. A prompt that fails (LN_EINVALID, LN_EUSAGE, LN_EUNSUPPORTED, LN_ENUMERIC; LN_EMEMORY if the
 * pool could never hold it) does not stop the others. All prompts have the same `size`. Prompt and label
 * need a position for each token but the label's last. With want_logits at most 16 prompts share steps,
 * because each needs a row of its own. `metrics` may be NULL.
 *
 * LN_EUSAGE: a label is empty or has no tokens, or a field of `sampling` is out of range. LN_EINVALID: a
 * label is not UTF-8. LN_ECANCELLED: ln_cancel. LN_ECHANGED: a weight file changed. */
LN_API LN_MUST_CHECK ln_status ln_classify(ln_engine *engine, const ln_prompt *prompts, size_t n,
                                           const ln_classify_options *opt, ln_class_fn *fn, void *user,
                                           ln_metrics *metrics, ln_error *err);

/* How the states of a text after the final norm become a vector: the last token's, their mean, the first
 * token's, the largest of each value, their sum divided by the root of their number, or their mean weighted
 * by position. AUTO: as modules.json says; without one LAST for a class ...ForCausalLM, else MEAN. */
typedef enum ln_pooling {
    LN_POOLING_AUTO = 0,
    LN_POOLING_LAST,
    LN_POOLING_MEAN,
    LN_POOLING_CLS,
    LN_POOLING_MAX,
    LN_POOLING_MEAN_SQRT_LEN,
    LN_POOLING_WEIGHTED_MEAN
} ln_pooling;
/* Whether vectors are divided by their length. AUTO: as modules.json says, and yes unless the model's files
 * compare vectors by dot product or distance. */
typedef enum ln_unit_length { LN_UNIT_LENGTH_AUTO = 0, LN_UNIT_LENGTH_YES, LN_UNIT_LENGTH_NO } ln_unit_length;
typedef struct ln_embed_options {
    uint32_t size; /* set by ln_embed_options_default */
    ln_pooling pooling;
    int64_t dimensions; /* only so many values, the first ones; 0: as the model's files say, else all */
    /* The prompt of config_sentence_transformers.json that is put before each text; NULL: its
     * default_prompt_name. "query" and "document" are "" if the file has no such prompt. */
    const char *prompt_name;
    ln_unit_length normalize;
} ln_embed_options;
LN_DEFAULT(ln_embed_options)
typedef struct ln_embedding { /* borrowed during the callback; the first fields are those of ln_class */
    uint32_t size;
    size_t index;
    ln_status status;
    const char *error;
    const float *values; /* [n_values]; see ln_unit_length */
    int64_t n_values, n_tokens;
} ln_embedding;
typedef ln_status ln_embed_fn(void *user, const ln_embedding *result, ln_error *err);
/* As ln_classify, in any company to the same bits; docs/embeddings.md. A text with LN_TEMPLATE_AUTO goes
 * without a template, with special tokens; it is cut to max_seq_length, and the log says so. Token ids and
 * conversations get no prompt. LN_EUSAGE: *opt is out of range, or prompt_name has no prompt, or an input
 * gets none. LN_EUNSUPPORTED, LN_EINVALID, LN_EIO: the model's files cannot be used. */
LN_API LN_MUST_CHECK ln_status ln_embed(ln_engine *engine, const ln_prompt *prompts, size_t n,
                                        const ln_embed_options *opt, ln_embed_fn *fn, void *user,
                                        ln_metrics *metrics, ln_error *err);

/* ---- evaluating ---- */

/* The perplexity of a text. */
typedef struct ln_evaluation {
    uint32_t size;           /* of the caller's struct: sizeof(ln_evaluation) */
    int64_t tokens, counted; /* tokens of the text, and those whose probability counts */
    double nll, perplexity;  /* mean negative log-likelihood of the counted tokens, natural; exp(nll) */
    int64_t window, stride;  /* that were used */
} ln_evaluation;
/* Scores ids[0..n_ids) in windows of `window` tokens that begin at multiples of `stride`. `window` 0:
 * min(n_ctx, 2048); more is cut to n_ctx. `stride` 0: half a window; at most the window. The last window is
 * short, not shifted. A token counts once, in the first window that has it; the first token of a window
 * never counts. `metrics` may be NULL; its prompt_tokens are those of all windows. LN_EINVALID: fewer than
 * two tokens, or an id that is not in the vocabulary. LN_EUSAGE: a window of one token, or a stride beyond
 * the window. LN_ECANCELLED: ln_cancel. */
LN_API LN_MUST_CHECK ln_status ln_evaluate(ln_engine *engine, const int32_t *ids, size_t n_ids,
                                           int64_t window, int64_t stride, ln_evaluation *out,
                                           ln_metrics *metrics, ln_error *err);

/* ---- files of requests ---- */

/* An adapter and the name by which the `model` of a body chooses it. */
typedef struct ln_named_adapter {
    const char *name;
    const ln_adapter *adapter;
} ln_named_adapter;

typedef struct ln_batch_options {
    uint32_t size;          /* set by ln_batch_options_default */
    const char *model_name; /* the `model` of bodies and responses; NULL: "model" */
    /* Text that states under which conditions the file is answered (flags, adapters); answers are added only
     * to a file that was begun under the same one. NULL: "". */
    const char *conditions;
    bool force; /* start again from the first request, replacing the answers */
    /* Called on the calling thread after each answer. LN_ECANCELLED: running requests are dropped, and a
     * later call does them; any other status is an error. NULL: none. */
    ln_status (*on_answer)(void *user, size_t n_done, size_t n_requests, ln_error *err);
    void *user;
    const ln_named_adapter *adapters; /* [n_adapters] that bodies may choose; names differ, model_name too */
    size_t n_adapters;
    /* [n_aliases] further names of the model that bodies may have; "*": every name that is no adapter's. */
    const char *const *aliases;
    size_t n_aliases;
} ln_batch_options;
LN_DEFAULT(ln_batch_options)

typedef struct ln_batch_report {
    uint32_t size;
    /* Requests in `in`, requests answered by this call and by earlier ones, and answers in `out` that are
     * errors, those of earlier calls included. */
    size_t n_requests, n_done, n_earlier, n_failed;
} ln_batch_report;
/* Reads the file `in` as ln_batch does, before an engine is opened, and sets those of options->n_ctx,
 * pool_positions and text_bytes that are 0 to what its requests need with options->n_parallel at once. A
 * request without a number of tokens counts as one of 2,048, or of as many as make 4,096 positions. Adapters
 * of *opt count by their names and may be NULL.
 *
 * LN_EINVALID, in addition to what ln_batch says about `in`: its bodies name models, and none of them is
 * known. The message has the first of these lines. */
LN_API LN_MUST_CHECK ln_status ln_batch_size(ln_model *model, const char *in, const ln_batch_options *opt,
                                             ln_options *options, ln_error *err);
/* Answers the requests of the file `in` (lines of OpenAI's batch files: custom_id, method, url, body) and
 * adds a line to the file `out` as each finishes, each line whole. A file next to it, `out`.state, has the
 * digests of `in`, model and conditions until all is done: a call that was interrupted is completed by the
 * same call again, which drops an incomplete last line and repeats no request. A request that fails has its
 * error in its line. One that lacks memory waits for others to end.
 *
 * LN_ECANCELLED: on_answer or ln_cancel ended the call; the answers so far are in `out`. LN_EMEMORY: all
 * others are answered, but some requests lack memory even alone; the same call answers them when there is
 * more. LN_EINVALID: `in` has a line that is no request or a custom_id twice, or `out` was begun with other
 * digests. LN_EIO: `out` exists and is no unfinished answer to `in`; a file cannot be read or written. */
LN_API LN_MUST_CHECK ln_status ln_batch(ln_engine *engine, const char *in, const char *out,
                                        const ln_batch_options *opt, ln_batch_report *report, ln_error *err);

/* ---- keys and values as files ---- */

/* Saves the keys and values of ids[0..n_ids), or of the longest beginning of it that the engine holds, to a
 * safetensors file that only this user may read, which appears complete or not at all and replaces a file of
 * that name. *n_saved: tokens in it. The first call for a model reads all of its weights, for their digest.
 * Other requests continue during the call, unless they may need every page of the pool. LN_EINVALID: the
 * engine holds no beginning of it, or an id is outside the vocabulary. LN_EIO: the file cannot be written. */
LN_API LN_MUST_CHECK ln_status ln_seq_save(ln_engine *engine, const int32_t *ids, size_t n_ids,
                                           const char *path, size_t *n_saved, ln_error *err);
/* Does the same, but never replaces a file: LN_EIO if one of that name exists when it is complete. */
LN_API LN_MUST_CHECK ln_status ln_seq_save_new(ln_engine *engine, const int32_t *ids, size_t n_ids,
                                               const char *path, size_t *n_saved, ln_error *err);
/* Loads such a file into the engine's prefix cache; *n_loaded: tokens that a prompt which begins with them
 * can reuse. After an error the engine is as it was. LN_EINVALID: the file is damaged or belongs to other
 * weights, another tokenizer, adapter, numerics or KV type (the message says which). LN_EMEMORY: the pool
 * cannot hold it now. LN_EIO: the file cannot be read. */
LN_API LN_MUST_CHECK ln_status ln_seq_load(ln_engine *engine, const char *path, size_t *n_loaded,
                                           ln_error *err);

/* ---- memory of the process ---- */

/* Sets the limit in bytes for everything the process holds (0: none but the machine's) and returns the
 * previous one. Engines that are opened later are planned within the smaller of it and
 * ln_options.memory_bytes; engines that are open keep what they have. */
LN_API uint64_t ln_memory_set_limit(uint64_t bytes);
/* Sets how many bytes of KV pages each engine keeps for reuse, and returns the previous value. UINT64_MAX,
 * the default: as many as its pool has free. 0: none. Pages beyond it are dropped in the next step. */
LN_API uint64_t ln_cache_set_limit(uint64_t bytes);
/* Drops the KV pages that all engines keep for reuse; running requests keep theirs. */
LN_API void ln_cache_clear(void);
/* Resets the peak to the memory that the process holds now. Linux resets its own record of the peak on
 * request (/proc/self/clear_refs). If it does not, the library keeps the peak from then on: the largest
 * resident memory that it saw when an engine was opened, when a request ended, and in ln_memory_stats. */
LN_API void ln_memory_reset_peak(void);

/* Memory of the process, in bytes. The classes are what all open engines planned and took. */
typedef struct ln_memory {
    uint32_t size;                     /* of the caller's struct: sizeof(ln_memory) */
    uint64_t active_bytes, peak_bytes; /* resident now; its maximum since the start or the last reset */
    uint64_t weights_bytes, kv_bytes, activation_bytes, adapter_bytes; /* by class; kv: the pools of pages */
    uint64_t cache_bytes;                    /* the part of kv_bytes whose pages are kept for reuse only */
    uint64_t other_bytes;                    /* active_bytes beyond the classes; 0 if these are larger */
    uint64_t limit_bytes, cache_limit_bytes; /* of ln_memory_set_limit and ln_cache_set_limit */
    bool kernel_peak;    /* peak_bytes is the kernel's record; false: the library's (ln_memory_reset_peak) */
    uint64_t text_bytes; /* a class of its own: texts that are being read, rendered or tokenised */
} ln_memory;
/* Writes the figures to *out, whose `size` the caller has set. NULL and a size of 0, or of no struct, are
 * ignored. */
LN_API void ln_memory_stats(ln_memory *out);

/* ---- several processes ---- */

/* What ranks share. MODEL: rank 0 opens models, and each rank has a share of their weights and KV pages and
 * computes a share of every step; the other ranks call ln_ranks_follow. DATA: all ranks make the same calls,
 * each with whole models. Trainers divide the micro-batches of a step, ln_batch the requests, ln_classify the
 * prompts and ln_evaluate the windows. All get all results, and rank 0 alone writes files. */
typedef enum ln_ranks_use { LN_RANKS_MODEL = 0, LN_RANKS_DATA } ln_ranks_use;
/* Joins the processes that mpirun (Open MPI) or srun has started together with this one: ranks 0 to size - 1,
 * on one host or several. Results have the bits of one process (docs/ranks.md). To be called once, before any
 * model is opened. A process that was started alone becomes rank 0 of 1, and nothing else happens.
 * If a rank ends or hangs, calls of the others return LN_EDEVICE, with a message that names it, and a process
 * that has not called ln_ranks_leave 1.5 s later ends with exit code 7.
 * LN_EDEVICE: no MPI is installed, or a rank has failed. LN_EUSAGE: a rank has another version. */
LN_API LN_MUST_CHECK ln_status ln_ranks_join(ln_ranks_use use, int *rank, int *size, ln_error *err);
/* Chooses the NVIDIA GPUs of this process, before models are opened or CUDA is used; models run on all of
 * them, with the bits of one. The i-th rank of a host uses gpus[i], without this call GPU i. If n > 1, set
 * CUDA_MODULE_LOADING=EAGER before (docs/ranks.md). LN_EUSAGE: n is above 16, or less than its ranks. */
LN_API LN_MUST_CHECK ln_status ln_ranks_gpus(const int *gpus, int n, ln_error *err);
LN_API int ln_gpu_count(ln_error *err); /* 0, with the reason: no GPU can be used */
/* In every rank but 0: does what rank 0 orders, until rank 0 calls ln_ranks_leave. LN_EDEVICE: a rank has
 * failed. LN_EUSAGE: this process is rank 0. */
LN_API LN_MUST_CHECK ln_status ln_ranks_follow(ln_error *err);
/* Plans from now on count the memory of one of n ranks, and engines are not opened. Returns the previous n.
 */
LN_API int ln_ranks_plan(int n);
/* Ends the group: rank 0, after it has closed its models, ends the others, which leave after ln_ranks_follow.
 * st: how the work of this process ended; one of a DATA group that failed does not wait for the others, and
 * must end, upon which the launcher ends them. Does nothing in a process that is alone. */
LN_API void ln_ranks_leave(ln_status st);

/* ---- chat templates ---- */

typedef struct ln_chat_template ln_chat_template;

/* Opens a chat template without a model: the template of the model `model`, or the template file `model` when
 * its name ends in .jinja or it is a pipe. `choice` is the name of one of the model's templates, or a file to
 * use instead of them; NULL: the model's default template. The caller owns *out; ln_chat_template_close.
 * LN_EIO: no such model or file, or the model ships no chat template or none of that name. LN_EINVALID: the
 * template has an error. */
LN_API LN_MUST_CHECK ln_status ln_chat_template_open(ln_chat_template **out, const char *model,
                                                     const char *choice, ln_error *err);
/* Closes the handle. */
LN_API void ln_chat_template_close(ln_chat_template **tmpl);
/* Writes the first min(*bytes, cap) bytes of the template's source to text[cap], without a terminator, and
 * its full length to *bytes; `text` may be NULL when cap is 0. */
LN_API LN_MUST_CHECK ln_status ln_chat_template_source(const ln_chat_template *tmpl, char *text, size_t cap,
                                                       size_t *bytes, ln_error *err);

/* Owned by the caller; ln_rendering_free frees the contents. */
typedef struct ln_rendering {
    char *text; /* [text_bytes] and a NUL byte; NULL after an error */
    size_t text_bytes;
    /* The message of the template's raise_exception when it rejected the conversation (the call then fails
     * with LN_EINVALID); else NULL. */
    char *refused;
    size_t refused_bytes;
} ln_rendering;

/* Renders a conversation given as a JSON object: {"messages", "tools"?, "documents"?, "kwargs"?,
 * "add_generation_prompt"?, "bos_token"?, "eos_token"?, "now"?}; or a template with arbitrary variables:
 * {"template"?, "context", "trim_blocks"?, "lstrip_blocks"?, "keep_trailing_newline"?, "now"?}. Other members
 * are ignored. `tmpl` may be NULL when the request has a "template". LN_EINVALID: the request is malformed or
 * the template fails; the message names line and column. *out is overwritten, not freed; the caller frees it
 * after an error too. */
LN_API LN_MUST_CHECK ln_status ln_chat_template_render(const ln_chat_template *tmpl, const char *request,
                                                       size_t bytes, ln_rendering *out, ln_error *err);
/* Frees the contents and zeroes the struct; NULL and an empty struct are fine. */
LN_API void ln_rendering_free(ln_rendering *rendering);

/* ---- models on this machine, and the machine ---- */

typedef struct ln_found {
    const char *path;
    const char *model_type; /* "" when config.json cannot be read */
    const char *dtype;      /* as config.json names it, or "", or the GGUF type of most bytes */
    int bits, group;        /* of quantised weights, columns in a group; 0 when dense */
    int n_files;            /* .safetensors or .gguf files */
    uint64_t bytes;         /* of these files */
} ln_found;

/* Called for each model. */
typedef ln_status ln_found_fn(void *user, const ln_found *found, ln_error *err);

/* Calls `fn` once for each model in `dir` and below it: directories with config.json and a .safetensors file,
 * GGUF files, manifests of ollama. Symbolic links are followed. NULL: the models in the Hugging Face cache,
 * in the folders of LM Studio, llama.cpp and ollama, and the bundled model. A
 * directory below that cannot be read is logged as a warning and skipped. LN_EIO: `dir` does not exist or
 * cannot be listed; the cache cannot be listed (after the bundled model was reported). */
LN_API LN_MUST_CHECK ln_status ln_list(const char *dir, ln_found_fn *fn, void *user, ln_error *err);

typedef struct ln_machine {
    uint32_t size; /* of the caller's struct: sizeof(ln_machine) */
    char cpu[128];
    char isa[32];       /* ISA level of the kernels in use: plain, avx2, avx512, amx or neon */
    char isas[96];      /* ISA levels that this machine supports, separated by spaces */
    char quantised[64]; /* how products with quantised weights are computed at this ISA level */
    int n_cores;        /* physical cores within affinity mask and cgroup quota: the default of n_threads */
    int n_logical;      /* logical processors */
    uint64_t memory_bytes, available_bytes;
    /* Measured, else 0. Memory bandwidth in 10^9 bytes a second, the larger of vector and AMX tile loads (0
     * without tiles); multiply-adds, two operations each, a second: bf16 with AMX tiles, else f32. */
    double read_gb_s, vector_read_gb_s, tile_read_gb_s, peak_flop_s;
    char devices[256]; /* names of the devices that can be opened here */
    char gpu[1024];    /* the GPU: name, compute capability, memory; or why there is none */
    /* Memory that measuring would take now: 1 GiB, or what is available if that is less; 0 if it is too
     * little. */
    uint64_t measure_bytes;
    /* Measured of the GPU, else 0: a copy within its memory, 10^9 bytes read or written a second; a product
     * of bf16 matrices by cuBLAS, operations a second (0, too, if that library is not found). */
    double gpu_copy_gb_s, gpu_flop_s;
} ln_machine;

/* Writes the facts of this machine to *out. With `measure` it also measures the machine's ceilings on
 * n_threads threads (0: the default), which takes about two seconds and measure_bytes of memory. LN_EMEMORY,
 * before anything is taken: measuring needs 576 MiB available, because caches hold smaller buffers. */
LN_API LN_MUST_CHECK ln_status ln_doctor(bool measure, int n_threads, ln_machine *out, ln_error *err);
/* Does what ln_doctor does with `measure`, while the whole process holds at most memory_bytes (0: what the
 * machine allows). LN_EMEMORY, before anything is taken: the limit leaves less than 576 MiB. */
LN_API LN_MUST_CHECK ln_status ln_doctor_within(uint64_t memory_bytes, int n_threads, ln_machine *out,
                                                ln_error *err);

/* ---- programs and their speed ---- */

/* One node (operation) of a model's program. */
typedef struct ln_node_report {
    int index, stage, layer;      /* threads synchronise between stages; layer -1: outside the layers */
    const char *op, *kernel;      /* kernel: the ISA level it was written for */
    const char *makes, *reads;    /* outputs and inputs with their shapes: layers.0.attn.q[T,2048] */
    double flops, bytes, seconds; /* ln_explain: of one step; else 0 */
    /* ln_diff: the largest absolute difference of an output element from the reference's, and the largest
     * that is allowed. If the summation order is free and the sum is rounded to bf16, one rounding step of
     * bf16 is not counted. */
    double difference, bound;
} ln_node_report;

/* Called for each node in the order in which the nodes run. */
typedef ln_status ln_node_fn(void *user, const ln_node_report *node, ln_error *err);

typedef struct ln_program_report {
    uint32_t size; /* of the caller's struct: sizeof(ln_program_report) */
    int n_nodes, n_stages, n_threads;
    int64_t n_rows, depth; /* of the step that was run */
    uint64_t temp_bytes;   /* the buffer that all intermediate values share */
    double seconds;        /* median time of a whole step without per-node timing */
} ln_program_report;

/* Runs a step of n_rows tokens (1: decoding, 0: a full chunk of n_chunk) at positions depth, depth + 1, ...,
 * n_reps (1 .. 1000) times, and reports each node with the median of its times. LN_EUSAGE: the engine has
 * requests, n_rows is more than ln_options.n_chunk, or the rows do not fit the context. *out has the whole
 * step's report. */
LN_API LN_MUST_CHECK ln_status ln_explain(ln_engine *engine, int64_t n_rows, int64_t depth, int n_reps,
                                          ln_node_fn *fn, void *user, ln_program_report *out, ln_error *err);

/* Runs n_ids tokens (0: pseudo-random ones) on the reference device and on the device of `opt`, compares the
 * outputs node by node and reports each node. A node beyond its bound is LN_EINTERNAL, after all nodes were
 * reported; the message names the first. LN_EMEMORY: the two engines do not fit together. LN_EINVALID: as for
 * ln_score. */
LN_API LN_MUST_CHECK ln_status ln_diff(const ln_model *model, const ln_options *opt, const int32_t *ids,
                                       size_t n_ids, ln_node_fn *fn, void *user, ln_error *err);

#define LN_BENCH_STREAMS 512 /* maximum number of streams of a benchmark */
/* PREFILL: a prompt. DECODE: one sequence after a text. STREAMS: several sequences decoded in one batch. */
typedef enum ln_work { LN_WORK_PREFILL = 0, LN_WORK_DECODE, LN_WORK_STREAMS } ln_work;

/* What to measure. Start from ln_bench_options_default; a zero field means its default. Borrowed during the
 * call. */
typedef struct ln_bench_options {
    uint32_t size;         /* of the caller's struct; set by ln_bench_options_default */
    int64_t n_prefill;     /* tokens of the prompt; 0: min(512, the model's maximum) */
    const int64_t *depths; /* [n_depths] tokens that precede the decoded ones; none: depth 0 alone */
    size_t n_depths;
    const int *streams; /* [n_streams] sequences decoded at once, 1 .. LN_BENCH_STREAMS, at depth 256 */
    size_t n_streams;
    int n_reps; /* repetitions, whose median is reported, at most 1000; 0: 5 */
} ln_bench_options;
LN_DEFAULT(ln_bench_options)

typedef struct ln_bench_row {
    ln_work work;
    int64_t n, depth;   /* tokens of the prompt, or tokens decoded by each stream; tokens before them */
    int streams;        /* sequences; 1 except for LN_WORK_STREAMS */
    double tok_s;       /* tokens per second of all streams together */
    double bytes_token; /* bytes of weights, keys and values that must be read for each token */
    double flops_token; /* floating-point operations that each token needs */
} ln_bench_row;

/* Called for each row as it is measured. */
typedef ln_status ln_bench_fn(void *user, const ln_bench_row *row, ln_error *err);

typedef struct ln_bench_report {
    uint32_t size; /* of the caller's struct: sizeof(ln_bench_report) */
    /* Time to open model and engine, and median time from the start of the prefill row's prompt to the first
     * token after it. */
    double load_seconds, first_token_seconds;
    uint64_t peak_bytes; /* maximum resident memory of the process so far */
    ln_numerics numerics;
    int n_threads;
    char isa[32]; /* ISA level of the kernels */
} ln_bench_report;

/* Measures tokens per second on engines that it opens on `model` with `opt`: the prompt, then each depth,
 * then each number of streams. The prompt is run once before it is timed. `how` must not be NULL. ln_doctor
 * measures the ceilings to compare with. A number of streams that does not fit in memory is skipped, which
 * is logged as a warning. Errors: those of ln_engine_open. LN_EUSAGE: a count is beyond the model's
 * context. */
LN_API LN_MUST_CHECK ln_status ln_bench(const ln_model *model, const ln_options *opt,
                                        const ln_bench_options *how, ln_bench_fn *fn, void *user,
                                        ln_bench_report *out, ln_error *err);

/* ---- quantised weights ---- */

/* A width of their own for some matrices: every matrix whose module path is `name` or contains it between
 * dots (lm_head, down_proj, layers.0). If the output head is tied to the embedding table, lm_head means that
 * table. */
typedef struct ln_quantize_override {
    const char *name;
    int bits; /* 2, 3, 4, 5, 6 or 8; 16: the matrix stays dense */
} ln_quantize_override;

/* Start from ln_quantize_options_default; a zero field means its default. Borrowed during the call. */
typedef struct ln_quantize_options {
    uint32_t size;   /* of the caller's struct; set by ln_quantize_options_default */
    int bits, group; /* 2, 3, 4, 5, 6 or 8 bits (0: 4) and 32, 64 or 128 columns (0: 64) */
    /* [n_overrides]; of several entries that match a matrix the last one counts */
    const ln_quantize_override *overrides;
    size_t n_overrides;
    int n_threads; /* 0: the physical cores within affinity mask and cgroup quota */
    bool force;    /* replace an existing model directory */
} ln_quantize_options;
LN_DEFAULT(ln_quantize_options)

/* The report on one tensor. */
typedef struct ln_quantized {
    const char *name;
    int64_t rows, cols; /* cols 0: a vector */
    int bits, group;    /* bits 0: written dense */
    uint64_t bytes_before, bytes;
    /* Root mean square of the weights' errors, relative to that of the weights, and the largest absolute
     * error of a weight. */
    double rms_error, max_error;
} ln_quantized;
/* Called for each tensor as it is written. */
typedef ln_status ln_quantized_fn(void *user, const ln_quantized *tensor, ln_error *err);

/* Quantises the dense model `model` into the directory `out`, as mlx_lm.convert does: the same tensors,
 * bytes, shards, index and configuration, and copies of the tokenizer's files. The directory appears complete
 * or not at all. Takes a few MB of memory a thread. `opt` NULL: the defaults. `fn` (may be NULL) is called
 * for each tensor; any status but LN_OK, LN_ECANCELLED included, ends the call with that status, and nothing
 * is written.
 *
 * LN_EUNSUPPORTED: the model is quantised already, or no matrix can be quantised. LN_EUSAGE: an override
 * matches no matrix, or `out` contains the model. LN_EIO: `out` exists and is not
 * empty (`force` replaces a model directory, nothing else), or it cannot be written. LN_ENUMERIC: a
 * weight is NaN or infinite. Other errors: as for ln_model_open. */
LN_API LN_MUST_CHECK ln_status ln_quantize(const char *model, const char *out, const ln_quantize_options *opt,
                                           ln_quantized_fn *fn, void *user, ln_error *err);

/* Start from ln_convert_options_default; a zero field means its default. Borrowed during the call. */
typedef struct ln_convert_options {
    uint32_t size;   /* of the caller's struct; set by ln_convert_options_default */
    int bits, group; /* bits 0: dense; else as in ln_quantize_options */
    bool f32;        /* dense tensors, scales and biases in float32 instead of bfloat16 */
    int n_threads;   /* 0: the physical cores within affinity mask and cgroup quota */
    bool force;      /* replace an existing model directory */
} ln_convert_options;
LN_DEFAULT(ln_convert_options)

/* Writes the GGUF file `model` as a model directory `out` in Hugging Face layout: its weights, each rounded
 * once, config.json, the chat template and the ids that end a text. `opt` and `fn` may be NULL. Otherwise as
 * ln_quantize.
 *
 * LN_EUSAGE: `model` is a directory, or `out` contains it. LN_EUNSUPPORTED: as for ln_model_open, or with
 * bits no matrix can be quantised. */
LN_API LN_MUST_CHECK ln_status ln_convert_model(const char *model, const char *out,
                                                const ln_convert_options *opt, ln_quantized_fn *fn,
                                                void *user, ln_error *err);

/* Start from ln_init_options_default. Borrowed during the call. */
typedef struct ln_init_options {
    uint32_t size; /* of the caller's struct; set by ln_init_options_default */
    /* The model whose tokenizer, chat template and generation_config.json are copied; NULL: those that are
     * next to the configuration. */
    const char *tokenizer;
    const char *dtype; /* float32, bfloat16, float16; NULL: that of the configuration, else float32 */
    uint64_t seed;     /* of the weights; default 0 */
    int n_threads;     /* 0: the physical cores within affinity mask and cgroup quota */
    bool force;        /* replace an existing model directory */
} ln_init_options;
LN_DEFAULT(ln_init_options)

/* Writes a model that is not trained yet to the directory `out`: the tensors that the configuration `config`
 * (a config.json, or a model that has it) describes, with the initial values of transformers. Matrices are
 * normal numbers of the deviation initializer_range (0.02), biases are 0, norms change nothing. `opt` and
 * `fn` may be NULL.
 *
 * LN_EUSAGE: a dtype that is none. LN_EINVALID: the tokenizer has more tokens than vocab_size.
 * LN_EUNSUPPORTED: a model of experts, of recurrent layers or of images. Otherwise as ln_quantize. */
LN_API LN_MUST_CHECK ln_status ln_init_model(const char *config, const char *out, const ln_init_options *opt,
                                             ln_quantized_fn *fn, void *user, ln_error *err);

/* Start from ln_fuse_options_default; a zero field but `scale` is its default. Borrowed during the call. */
typedef struct ln_fuse_options {
    uint32_t size;   /* of the caller's struct; set by ln_fuse_options_default */
    double scale;    /* finite factor on the scale that the adapter itself states; 1 by default */
    int bits, group; /* bits 0: a dense model; else as in ln_quantize_options */
    int n_threads;   /* 0: the physical cores within affinity mask and cgroup quota */
    bool force;      /* replace an existing model directory */
} ln_fuse_options;
LN_DEFAULT(ln_fuse_options)

/* Logits of n_rows tokens, LN_EXACT, of the result and of `model` with the adapter applied. */
typedef struct ln_fuse_report {
    uint32_t size;             /* of the caller's struct: sizeof(ln_fuse_report) */
    int n_modules, n_rows;     /* added; n_rows 0: not compared for lack of memory, which is logged */
    double difference, change; /* largest difference of a logit; largest that the adapter makes */
} ln_fuse_report;

/* Adds the LoRA adapter in the directory `adapter` to the weights of `model` and writes the result to the
 * directory `out`: W + scale * B A, summed in double and rounded once. A dense result has the names, dtypes
 * and files of `model`, or of a quantised model the dtype of its scales. With `bits` it is what ln_quantize
 * makes of the dense one. Compares the result before it gets its name. `opt`, `fn`, `report` may be NULL.
 *
 * LN_EINVALID: a module has no place in the model. LN_EUNSUPPORTED: not plain LoRA. LN_ENUMERIC: the adapter
 * or a sum is NaN or infinite. Otherwise as ln_quantize. */
LN_API LN_MUST_CHECK ln_status ln_fuse(const char *model, const char *adapter, const char *out,
                                       const ln_fuse_options *opt, ln_quantized_fn *fn, void *user,
                                       ln_fuse_report *report, ln_error *err);

/* Dequantises affine groups in the packing of MLX. `codes` holds [rows, cols] codes of `bits` (2, 3, 4, 5, 6,
 * 8) bits; `scales` and `biases`, each [rows, cols / group], hold one element for each `group` (32, 64, 128)
 * of columns, in `dtype` (bfloat16, float16, float32), as does `out`, [rows, cols]. Rounds as MLX does: scale
 * * code, then + bias, each rounded to the dtype. (A model computes with the unrounded weight.) The caller
 * owns all buffers; any alignment will do. */
LN_API LN_MUST_CHECK ln_status ln_dequantize(const void *codes, const void *scales, const void *biases,
                                             const char *dtype, int bits, int group, int64_t rows,
                                             int64_t cols, void *out, ln_error *err);

#ifdef __cplusplus
}
#endif
#endif
