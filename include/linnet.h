/* linnet - language models in Hugging Face layout: run, score and inspect them.
 *
 * Ordered by reader: what every program needs comes first (errors, options, open, plan, generate, close), then what some need
 * (scoring, attention, tokenizer, discovery, the machine), then what looks inside (programs, their speed, quantised weights).
 *
 * One rule for errors: every function that can fail returns an ln_status and takes a last `ln_error *err`, which may be NULL
 * (ln_last_error then has it). A message names the file, field or tensor, what was expected, what was found, and what to try next.
 *
 * One rule for callbacks: LN_OK goes on; LN_ECANCELLED stops, and the call ends well with what there is; any other status is an error
 * of yours, which the call hands back, with the message that you wrote to `err` (never NULL in a callback). A callback returns: no
 * longjmp and no exception passes through the library.
 *
 * One rule for ownership: what an `_open` function gave you, you own, until its `_close` takes it back and nulls your
 * pointer (closing NULL is fine). Everything `const` that you are handed is borrowed, until the call named beside it. A
 * handle that was closed is recognised: using it is LN_EUSAGE, never a crash. Handles may be closed in any order and from any thread:
 * memory goes when the last call that uses it has returned.
 *
 * One rule for threads: models and tokenizers are immutable and may be shared; an engine runs one call at a time, and refuses a
 * second (from another thread, or from its own callback) with LN_EUSAGE. Calls on different engines take turns, step by step.
 *
 * Shapes: B sequences, T rows (tokens), D width, H query heads, K key/value heads, E head width, V vocabulary, L layers.
 * Every text carries a length in bytes and is UTF-8; U+0000 is a character.
 */
#ifndef LINNET_H
#define LINNET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LN_VERSION "0.1.0"

#if defined(__GNUC__)
#define LN_API __attribute__((visibility("default")))
#define LN_PRINTF(a, b) __attribute__((format(printf, a, b)))
#define LN_MUST_CHECK __attribute__((warn_unused_result))
#else
#define LN_API
#define LN_PRINTF(a, b)
#define LN_MUST_CHECK
#endif

/* The version of the library, LN_VERSION. */
LN_API const char *ln_version(void);

/* ---- errors ------------------------------------------------------------------------------------------------------ */

/* What went wrong, in kinds that a program can act on. The command exits with the same number. */
typedef enum ln_status {
    LN_OK = 0,
    LN_EUSAGE = 2,        /* the call or the command line is wrong */
    LN_EINVALID = 3,      /* a file or an input has invalid content */
    LN_EUNSUPPORTED = 4,  /* valid, but linnet cannot do it */
    LN_EIO = 5,           /* the operating system refused: absent, denied, disk full */
    LN_EMEMORY = 6,       /* more memory than there is, or than was allowed */
    LN_EDEVICE = 7,       /* no such device, or the device was lost */
    LN_ENUMERIC = 8,      /* NaN or infinity where a number was needed */
    LN_ECHANGED = 9,      /* a file changed while in use */
    LN_EINTERNAL = 70,    /* a defect of linnet */
    LN_ECANCELLED = 130   /* the caller asked to stop */
} ln_status;

typedef struct ln_error {
    ln_status code;
    char message[1024];
} ln_error;

/* The last error of this thread that was reported with `err` NULL; valid until the next such error. Never NULL. */
LN_API const ln_error *ln_last_error(void);

/* ---- log --------------------------------------------------------------------------------------------------------- */

/* How much a remark matters: something failed that the library did without; something to look at; a fact; details for debugging. */
typedef enum ln_level { LN_LOG_ERROR = 0, LN_LOG_WARN, LN_LOG_INFO, LN_LOG_DEBUG } ln_level;

/* Takes a remark: one line of UTF-8 without control characters and without a line break, borrowed during the call. */
typedef void ln_log_fn(void *user, ln_level level, const char *text);

/* Sets the function that the library hands its remarks to, of all levels; NULL, the default: remarks are dropped. The library itself
 * never writes to a file descriptor that you did not ask it to write to, standard error among them. There is one such function in a
 * process. It may be called from any thread that calls the library and from the library's own, by one of them at a time; it must return
 * soon, and what it calls of the library must not be this function. When ln_log_set has returned, no thread runs the function that was
 * set before. */
LN_API void ln_log_set(ln_log_fn *fn, void *user);

/* ---- options ----------------------------------------------------------------------------------------------------- */

typedef enum ln_numerics { LN_NUMERICS_DEFAULT = 0, LN_EXACT, LN_FAST } ln_numerics;
typedef enum ln_device { LN_DEVICE_AUTO = 0, LN_DEVICE_REF, LN_DEVICE_CPU, LN_DEVICE_CUDA } ln_device;
typedef enum ln_template { LN_TEMPLATE_AUTO = 0, LN_TEMPLATE_RAW, LN_TEMPLATE_CHAT } ln_template;

/* Called, when there is one, as weights are made resident ("loading", in bytes) and as a prompt goes through ("reading", in tokens), with
 * how much of the total is done. It must not call the library. */
typedef struct ln_progress {
    void (*fn)(void *user, const char *what, int64_t done, int64_t total);
    void *user;
} ln_progress;

/* What decides memory, arithmetic and place. Zero means: the default. */
typedef struct ln_options {
    ln_numerics numerics; /* exact: f32 throughout; fast, the default: products and KV in bf16; checkpoints in f32 are always exact */
    ln_device device;
    int quantize_bits;    /* 4 or 8: dense matrices are quantised when the model is loaded, in groups of 64; 0: as stored */
    int n_threads;        /* 0: physical cores within affinity and cgroup quota */
    int64_t n_ctx;        /* positions a sequence may have (the last token generated needs none); 0: min(the
                             model's maximum, max(4096, n_needed)) */
    int64_t n_needed;     /* prompt + generated tokens you mean to use, for that default; then only their pages are faulted in at once */
    int n_chunk;          /* prefill rows a step; 0: 512 */
    int n_parallel;       /* sequences alive at once; 0: 1 */
    int n_logits;         /* rows of logits a step may yield; 0: n_parallel */
    uint64_t memory_bytes;/* limit for everything; 0: what MemAvailable and the cgroup leave */
    bool mlock;           /* lock weights and KV in memory, or fail with LN_EMEMORY; weights read in place stay so until the model is closed */
    bool skip_unknown;    /* tensors of a dtype that linnet does not know are left out instead of refusing the file */
    const char *chat_template; /* the name of one of the model's chat templates, or a file to use instead of them; NULL: the usual one */
    bool keep_all;        /* keep all positions of windowed layers resident (ln_attention needs it) */
    ln_progress progress;
} ln_options;

/* The defaults, all zero. */
LN_API ln_options ln_options_default(void);

/* A piece of text as it becomes certain: whole characters, nothing of a stop text. */
typedef ln_status ln_text_fn(void *user, const char *text, size_t bytes, ln_error *err);

typedef struct ln_logit_bias {
    int32_t id;
    float bias;
} ln_logit_bias;

/* A sequence of token ids. */
typedef struct ln_id_list {
    const int32_t *ids;
    size_t n;
} ln_id_list;

/* How tokens are chosen. The order is: bias, repeat penalty, presence and frequency, what is forbidden,
 * (temperature 0 or top-k 1: argmax), temperature, top-p, top-k, min-p, draw. A draw is argmax(logit +
 * Gumbel(Philox(seed, position, id))). */
typedef struct ln_sampling {
    double temperature;       /* 0: greedy, lowest id on ties */
    int top_k;                /* 0: off */
    double top_p;             /* 1: off */
    double min_p;             /* 0: off */
    double repeat_penalty;    /* 1: off; over prompt and generated tokens */
    int repeat_last;          /* how many of the last tokens; 0: off, -1: all */
    double presence_penalty;  /* over generated tokens */
    double frequency_penalty;
    const ln_logit_bias *bias; /* n_bias entries, borrowed during the call */
    size_t n_bias;
    const char *const *stop; /* n_stop texts, borrowed during the call; they end the text and are not part of
                                it. One that is a special token of the model ends it at that token */
    size_t n_stop;
    bool ignore_eos;          /* the stop ids' logits become minus infinity */
    bool has_seed;            /* false: a seed is taken from the system */
    uint64_t seed;
    int64_t n_max;            /* tokens at most; 0 generates nothing; -1: to the end of the context in a
                                 conversation, 256 of other text */
    bool has_think_budget;    /* false: a model may reason as long as it likes */
    int64_t think_budget;     /* tokens of reasoning, after which its end is written for the model; 0: it answers at once */
    ln_text_fn *on_reasoning; /* gets the reasoning, piece by piece, with the `user` of the call; NULL: it is in the result only */
    /* What the model's generation_config.json forbids, as transformers' processors of these names do: the
     * logits become minus infinity. ln_sampling_default points these fields into the model: they are valid
     * until the model and its engines are closed. Zero: nothing is forbidden. */
    const int32_t *suppress;  /* suppress_tokens: n_suppress ids that are never generated */
    size_t n_suppress;
    const int32_t *begin_suppress; /* begin_suppress_tokens: n_begin_suppress ids that do not come first */
    size_t n_begin_suppress;
    const ln_id_list *bad_words; /* bad_words_ids: n_bad_words sequences whose last id does not follow the
                                    others; one that is only a stop id is passed over */
    size_t n_bad_words;
    int64_t no_repeat_ngram;  /* no_repeat_ngram_size: a sequence of so many tokens, of prompt and text, does
                                 not occur again; 0: off */
    int64_t min_new;          /* min_new_tokens: no stop id before so many tokens are generated */
    const char *const *model_stop; /* stop_strings: n_model_stop texts that end it, beside `stop` */
    size_t n_model_stop;
} ln_sampling;

/* ---- a model ----------------------------------------------------------------------------------------------------- */

typedef struct ln_model ln_model;

/* Opens the Hugging Face directory `model`: a path, else a cache id `org/name[@rev]`, else `tiny`, the bundled model. Reads
 * config.json and the tokenizer, maps the weights, checks every tensor. Takes no KV memory. You own *out. */
LN_API LN_MUST_CHECK ln_status ln_model_open(ln_model **out, const char *model, const ln_options *opt, ln_error *err);
LN_API void ln_model_close(ln_model **model);

typedef struct ln_info {
    char path[4096];
    char model_type[64];
    char dtype[16];           /* of the weights as stored: bfloat16, float16, float32 */
    int bits, group;          /* of quantised weights; 0 when dense */
    int n_layers, n_heads, n_kv_heads, head_dim;
    int64_t width, ffn_width, vocab_size, n_ctx_max, window; /* window 0: none */
    bool tied;
    bool has_template;
    bool has_reasoning;       /* it knows marks of reasoning (<think>), as tokens or in its chat template */
    bool has_think_switch;    /* its chat template reads enable_thinking */
    uint64_t n_parameters, weights_bytes;
    int32_t eos_ids[32];
    int n_eos;
    ln_numerics numerics;     /* as loaded, or as a load would choose */
    int n_files;
} ln_info;

/* The facts of an opened model; *info is yours. */
LN_API LN_MUST_CHECK ln_status ln_model_info(const ln_model *model, ln_info *info, ln_error *err);
/* The same from the directory, read for this call alone; no weight is touched. */
LN_API LN_MUST_CHECK ln_status ln_show(const char *model, const ln_options *opt, ln_info *info, ln_error *err);
/* The model's own sampling defaults: generation_config.json, with what it forbids and its stop texts; else
 * greedy; n_max -1, repeat_last 64. */
LN_API LN_MUST_CHECK ln_status ln_sampling_default(const ln_model *model, ln_sampling *out, ln_error *err);

/* ---- memory, before the first byte is taken ------------------------------------------------------------------------ */

typedef struct ln_plan {
    uint64_t peak_bytes;       /* everything below, summed: what the process will hold at most */
    uint64_t weights_bytes;
    uint64_t kv_bytes;
    uint64_t activation_bytes; /* temporary values of a step, and the keys that ln_attention gathers */
    uint64_t other_bytes;      /* tokenizer, code, stacks, tables */
    uint64_t available_bytes;  /* what the machine or `memory_bytes` allows */
    int64_t n_ctx;
    ln_numerics numerics;
    bool fits;           /* peak_bytes <= available_bytes */
    int64_t largest_ctx; /* the largest n_ctx that fits when nothing else changes; 0: none does */
    const char *limit; /* what decides available_bytes: "MemAvailable", "cgroup", "RLIMIT_AS", "RLIMIT_DATA",
                          or "ln_options.memory_bytes"; static */
} ln_plan;

/* What ln_model_open and ln_engine_open with the same options would take. */
LN_API LN_MUST_CHECK ln_status ln_plan_memory(const char *model, const ln_options *opt, ln_plan *out, ln_error *err);

/* ---- generating ---------------------------------------------------------------------------------------------------- */

typedef struct ln_engine ln_engine;

/* An engine for `model`, which it keeps for as long as it needs it. Takes and faults in all memory it will ever use; LN_EMEMORY with both numbers
 * before it takes any, when that is more than allowed. You own *out. */
LN_API LN_MUST_CHECK ln_status ln_engine_open(ln_engine **out, ln_model *model, const ln_options *opt, ln_error *err);
/* When a call is running, it is asked to stop, and the engine's memory goes when it has returned. */
LN_API void ln_engine_close(ln_engine **engine);

/* One turn of a conversation. */
typedef struct ln_message {
    const char *role;         /* system, user or assistant */
    const char *content;
    size_t content_bytes;
} ln_message;

/* Exactly one of text, ids, messages and request is set; all of it is borrowed during the call. A text goes through the chat template as
 * one user turn when `tmpl` says so; a conversation always does, and the answer to it is generated. Its last turn is the user's, usually; a
 * system text comes first. The template is the model's own, else its family's fixed form. What it cannot say (an unknown role, turns
 * that do not alternate) is LN_EINVALID. No control token comes out of what the messages spell: they are characters. */
typedef struct ln_prompt {
    const char *text;
    size_t text_bytes;
    const char *system;       /* or NULL; with text only */
    size_t system_bytes;
    const int32_t *ids;
    size_t n_ids;
    const ln_message *messages;
    size_t n_messages;
    const char *request;      /* or a conversation as JSON, with tools and all: see ln_chat_template_render */
    size_t request_bytes;
    const char *template_args;/* JSON: an object whose members the template finds as variables (enable_thinking); or NULL */
    size_t template_args_bytes;
    ln_template tmpl;         /* auto: the chat template if the directory ships one, else raw */
} ln_prompt;

/* The ids that a prompt becomes. Writes at most `cap` of them to `ids`, the full count to *n_ids. */
LN_API LN_MUST_CHECK ln_status ln_prompt_ids(const ln_model *model, const ln_prompt *prompt, int32_t *ids, size_t cap, size_t *n_ids,
                               ln_error *err);

/* Owned by you; ln_marked_free gives it back. */
typedef struct ln_marked {
    int32_t *ids;
    uint8_t *mask;            /* n_ids bytes: 1 for tokens that the assistant wrote, the end of its turn among them */
    size_t n_ids;
    size_t n_left;            /* turns of the assistant that could not be found: the template writes them otherwise when more follows */
} ln_marked;

/* The ids of a whole conversation (messages or request), and which of them the assistant wrote: what fine-tuning learns from. They are what
 * the template marks as generated, else what it adds to the conversation before with the header of an answer. LN_EUNSUPPORTED without a
 * chat template. */
LN_API LN_MUST_CHECK ln_status ln_marked_ids(const ln_model *model, const ln_prompt *conversation, ln_marked *out, ln_error *err);
LN_API void ln_marked_free(ln_marked *marked);

typedef struct ln_metrics {
    int64_t prompt_tokens, generated_tokens, cached_tokens;
    int64_t reasoning_tokens; /* of those generated, with the mark at their end */
    double load_seconds, prefill_seconds, decode_seconds, total_seconds, first_token_seconds;
    double prefill_tok_s, decode_tok_s;
    uint64_t active_bytes, peak_bytes; /* resident now, and at most so far */
} ln_metrics;

typedef enum ln_finish { LN_FINISH_STOP = 0, LN_FINISH_LENGTH, LN_FINISH_CANCELLED } ln_finish;

/* Owned by you; ln_result_free gives it back (an empty one is fine). ids and text exclude the stop token or text. A conversation's answer
 * is split: `reasoning` holds what a model marks as such before it answers (not the marks, nor the newlines beside them), `text` the
 * answer, which alone stop texts apply to; `ids` are all of it. Text that goes through no template is not split. */
typedef struct ln_result {
    int32_t *prompt_ids;
    size_t n_prompt_ids;
    int32_t *ids;
    size_t n_ids;
    char *text;
    size_t text_bytes;
    char *reasoning;          /* "" where there is none */
    size_t reasoning_bytes;
    ln_finish finish;
    uint64_t seed;
    ln_metrics metrics;
} ln_result;

/* Generates after `prompt`. `sampling` NULL: the model's defaults (ln_sampling_default). `on_text` gets the answer; NULL: nobody does. `out`
 * gets the result; NULL: it is not wanted. Whoever stops it, the callback or ln_cancel: the result is what there is, and finish is
 * LN_FINISH_CANCELLED. So it is after an error in mid-generation (the callback's own; LN_ENUMERIC: the logits hold a NaN;
 * LN_ECHANGED): *out, where there is one, holds what came before it. */
LN_API LN_MUST_CHECK ln_status ln_generate(ln_engine *engine, const ln_prompt *prompt, const ln_sampling *sampling, ln_text_fn *on_text,
                             void *user, ln_result *out, ln_error *err);
LN_API void ln_result_free(ln_result *result);
/* With `stop`, the engine's running call ends after the current step (a token, or a chunk of the prompt), and later ones at once,
 * until it is called with false: so a wish to stop cannot fall into the gap before a call, and you say when it has done its
 * work. From any thread and any signal handler, whenever you like: on a closed handle it does nothing. ln_generate ends
 * with LN_FINISH_CANCELLED, ln_score and ln_attention with LN_ECANCELLED. */
LN_API void ln_cancel(ln_engine *engine, bool stop);

/* ---- scoring and inspecting ---------------------------------------------------------------------------------------- */

typedef struct ln_top {
    int32_t id;
    double logprob;
} ln_top;

/* Called for each row t = 0 .. n_ids - 1 in order. `logits` is f32 [V] and predicts token t + 1; `logprob` is that of token t
 * given those before it (NaN at t = 0); `top` holds the n_top likeliest tokens at t + 1. Borrowed during the call. */
typedef ln_status ln_score_fn(void *user, int64_t t, double logprob, const ln_top *top, size_t n_top, const float *logits,
                              int64_t n_vocab, ln_error *err);

/* Scores n_ids tokens as one text; metrics may be NULL. */
LN_API LN_MUST_CHECK ln_status ln_score(ln_engine *engine, const int32_t *ids, size_t n_ids, size_t n_top, ln_score_fn *fn, void *user,
                          ln_metrics *metrics, ln_error *err);

/* Called for each layer in order with its keys after RoPE, f32 [K, T, E]. Borrowed during the call. */
typedef ln_status ln_keys_fn(void *user, int layer, const float *keys, int n_kv_heads, int64_t n_rows, int head_dim, ln_error *err);

/* The keys of all n_ids positions on every layer. The engine must have been opened with keep_all. */
LN_API LN_MUST_CHECK ln_status ln_attention(ln_engine *engine, const int32_t *ids, size_t n_ids, ln_keys_fn *fn, void *user, ln_error *err);

/* ---- words and ids ------------------------------------------------------------------------------------------------- */

typedef struct ln_tokenizer ln_tokenizer;

/* Opens the tokenizer of a model by itself: it needs the tokenizer's files only. You own *out. */
LN_API LN_MUST_CHECK ln_status ln_tokenizer_open(ln_tokenizer **out, const char *model, ln_error *err);
/* NULL and a borrowed tokenizer (ln_model_tokenizer) are fine: nothing is closed, the pointer is nulled. */
LN_API void ln_tokenizer_close(ln_tokenizer **tok);
/* The tokenizer that `model` was opened with, so that its files are not read again. Borrowed: it needs no close, may be used by several
 * threads, and is closed with the model: later uses are LN_EUSAGE, and a call that runs meanwhile ends well. NULL when the model's
 * handle is closed or NULL; ln_last_error then has it. */
LN_API const ln_tokenizer *ln_model_tokenizer(const ln_model *model);
/* text -> ids. Special tokens in the text are recognised; `add_special`: what the post-processor adds (bos, eos). Writes at most
 * `cap` ids, the full count to *n_ids. */
LN_API LN_MUST_CHECK ln_status ln_tokenize(const ln_tokenizer *tok, const char *text, size_t bytes, bool add_special, int32_t *ids,
                             size_t cap, size_t *n_ids, ln_error *err);
/* ids -> text. Writes at most `cap` bytes (no terminator), the full count to *bytes. */
LN_API LN_MUST_CHECK ln_status ln_detokenize(const ln_tokenizer *tok, const int32_t *ids, size_t n_ids, bool skip_special, char *text,
                               size_t cap, size_t *bytes, ln_error *err);

/* ---- chat templates ------------------------------------------------------------------------------------------------ */

typedef struct ln_chat_template ln_chat_template;

/* Opens a chat template by itself: that of `model`, or the file `model` when it ends in .jinja or is a pipe.
 * `choice`: the name of one of a model's templates, or a file to use instead of them; NULL: the usual one.
 * LN_EIO when there is none. You own *out. */
LN_API LN_MUST_CHECK ln_status ln_chat_template_open(ln_chat_template **out, const char *model, const char *choice, ln_error *err);
LN_API void ln_chat_template_close(ln_chat_template **tmpl);
/* Its source. Writes at most `cap` bytes (no terminator), the full count to *bytes. */
LN_API LN_MUST_CHECK ln_status ln_chat_template_source(const ln_chat_template *tmpl, char *text, size_t cap, size_t *bytes, ln_error *err);

/* Owned by you; ln_rendering_free gives it back. */
typedef struct ln_rendering {
    char *text;
    size_t text_bytes;
    char *refused;            /* what the template said when it refused the conversation (raise_exception); then the call failed */
    size_t refused_bytes;
} ln_rendering;

/* Renders a conversation given as JSON: {"messages", "tools"?, "documents"?, "kwargs"?, "add_generation_prompt"?, "bos_token"?, "eos_token"?,
 * "now"?}, or any variables: {"template"?, "context", "trim_blocks"?, "lstrip_blocks"?, "keep_trailing_newline"?, "now"?}. Other members
 * are passed over. tmpl may be NULL when the request brings its template. A template that cannot be rendered is LN_EINVALID; the message
 * names line and column. *out is yours, whatever is returned. */
LN_API LN_MUST_CHECK ln_status ln_chat_template_render(const ln_chat_template *tmpl, const char *request, size_t bytes, ln_rendering *out,
                                           ln_error *err);
LN_API void ln_rendering_free(ln_rendering *rendering);

/* ---- what is there ------------------------------------------------------------------------------------------------- */

typedef struct ln_found {
    const char *path;
    const char *model_type;   /* "" when config.json could not be read */
    const char *dtype;
    int bits, group;
    int n_files;
    uint64_t bytes;
} ln_found;

/* Called for each model directory; everything is borrowed during the call. */
typedef ln_status ln_found_fn(void *user, const ln_found *found, ln_error *err);

/* The models in `dir` and all below it: directories with config.json and a .safetensors file, each once, links followed; NULL: those in
 * the Hugging Face cache and the bundled one. */
LN_API LN_MUST_CHECK ln_status ln_list(const char *dir, ln_found_fn *fn, void *user, ln_error *err);

typedef struct ln_machine {
    char cpu[128];
    char rung[32];            /* plain, avx2, avx512, neon: the kernels in use */
    char rungs[96];           /* those this machine has */
    char quantised[64];       /* the form of quantised products on this rung */
    int n_cores;              /* physical cores within affinity and quota: the default of n_threads */
    int n_logical;
    uint64_t memory_bytes, available_bytes;
    double read_gb_s;         /* memory read at best, 10^9 bytes a second, the larger of the next two; 0 unless measured */
    double vector_read_gb_s, tile_read_gb_s; /* tiles: 0 where there are none */
    double peak_flop_s;       /* multiply-adds at best, two operations each: bf16 where there are tiles, else f32; 0 unless measured */
    char devices[256];
    uint64_t measure_bytes;   /* memory that measuring takes now: 1 GiB, or less where less is available; 0: there is too little to measure */
} ln_machine;

/* `measure`: its ceilings too, with n_threads (0: the default); about two seconds and measure_bytes of memory. LN_EMEMORY, before anything is
 * taken, where less than 576 MiB are available: caches hold smaller buffers. */
LN_API LN_MUST_CHECK ln_status ln_doctor(bool measure, int n_threads, ln_machine *out, ln_error *err);

/* Weights are read where they lie, in the mapped files, and a file that is cut short while it is open raises SIGBUS. After this call, once
 * per process, that is no death but LN_ECHANGED from the call that met it. Any other SIGBUS goes to the handler that was there before. The
 * library installs no handler unless it is asked to. */
LN_API LN_MUST_CHECK ln_status ln_guard_files(ln_error *err);


/* ---- programs and their speed -------------------------------------------------------------------------------------- */

/* One node of a model's program. Texts are borrowed during the call. */
typedef struct ln_node_report {
    int index, stage, layer;      /* threads meet between stages; layer -1: outside the layers */
    const char *op, *kernel;      /* kernel: the rung it was written for */
    const char *makes, *reads;    /* values with their shapes: layers.0.attn.q[T,2048] */
    double flops, bytes, seconds; /* ln_explain: of one step */
    double difference, bound;     /* ln_diff: the largest difference of a number from the reference's, and what is allowed. Where sums are free and then
                                     rounded to bf16, a step of that does not count */
} ln_node_report;

/* Called for each node in the order it runs. */
typedef ln_status ln_node_fn(void *user, const ln_node_report *node, ln_error *err);

typedef struct ln_program_report {
    int n_nodes, n_stages, n_threads;
    int64_t n_rows, depth;
    uint64_t temp_bytes;          /* the block that all intermediate values share */
    double seconds;               /* of the whole step, not timed node by node */
} ln_program_report;

/* Runs a step of n_rows (1: decoding; 0: a full chunk of a prompt) at positions from `depth` on, n_reps times, and reports each
 * node with the median of its times. */
LN_API LN_MUST_CHECK ln_status ln_explain(ln_engine *engine, int64_t n_rows, int64_t depth, int n_reps, ln_node_fn *fn, void *user,
                                          ln_program_report *out, ln_error *err);

/* Feeds the ids (n_ids 0: some) to the reference device and to that of `opt`, node by node, and reports each node's difference. A
 * node beyond its bound is LN_EINTERNAL, after all were reported; the message names the first. */
LN_API LN_MUST_CHECK ln_status ln_diff(const ln_model *model, const ln_options *opt, const int32_t *ids, size_t n_ids, ln_node_fn *fn,
                                       void *user, ln_error *err);

#define LN_BENCH_STREAMS 64       /* streams at most */
typedef enum ln_work { LN_WORK_PREFILL = 0, LN_WORK_DECODE, LN_WORK_STREAMS } ln_work;

/* What to measure; zero means: the default. */
typedef struct ln_bench_options {
    int64_t n_prefill;            /* rows of the prompt; 0: 512 */
    const int64_t *depths;        /* [n_depths] how many tokens precede those that are decoded; none: depth 0 */
    size_t n_depths;
    const int *streams;           /* [n_streams] sequences decoded at once, at depth 256; none: no such row */
    size_t n_streams;
    int n_reps;                   /* repetitions, whose median counts; 0: 5 */
} ln_bench_options;

typedef struct ln_bench_row {
    ln_work work;
    int64_t n, depth;             /* tokens of the prompt, or decoded by each stream; tokens before them */
    int streams;
    double tok_s;                 /* of all streams together */
    double bytes_token;           /* of weights, keys and values that a token must read */
    double flops_token;           /* operations that it must do */
} ln_bench_row;

/* Called for each row as it is measured. */
typedef ln_status ln_bench_fn(void *user, const ln_bench_row *row, ln_error *err);

typedef struct ln_bench_report {
    double load_seconds, first_token_seconds; /* the first token after the prompt of the prefill row, which ran once before */
    uint64_t peak_bytes;          /* resident at most so far */
    ln_numerics numerics;
    int n_threads;
    char rung[32];
} ln_bench_report;

/* Measures engines of its own on `model`. What the machine could give at best: ln_doctor. */
LN_API LN_MUST_CHECK ln_status ln_bench(const ln_model *model, const ln_options *opt, const ln_bench_options *how, ln_bench_fn *fn,
                                        void *user, ln_bench_report *out, ln_error *err);

/* ---- quantised weights --------------------------------------------------------------------------------------------- */

/* What is kept at another width: every matrix whose module path is `name` or has it between dots (lm_head, down_proj, layers.0).
 * bits 16: it stays as it is. In a model whose head is its table, lm_head means the table. */
typedef struct ln_keep {
    const char *name;
    int bits;
} ln_keep;

typedef struct ln_quantize_options {
    int bits, group;          /* 2, 3, 4, 5, 6, 8 and 32, 64, 128; 0: 4 and 64 */
    const ln_keep *keep;      /* n_keep entries, borrowed during the call; the last that names a matrix counts */
    size_t n_keep;
    int n_threads;            /* 0: physical cores within affinity and cgroup quota */
    bool force;               /* replace a model's directory that is there already */
} ln_quantize_options;

/* What became of one tensor. Borrowed during the call. */
typedef struct ln_quantized {
    const char *name;
    int64_t rows, cols;       /* cols 0: a vector */
    int bits, group;          /* bits 0: written dense */
    uint64_t bytes_before, bytes;
    double rms_error, max_error; /* of the weights: relative to their root mean square; the largest */
} ln_quantized;
typedef ln_status ln_quantized_fn(void *user, const ln_quantized *tensor, ln_error *err);

/* Writes `model`, a dense one, quantised into the directory `out`, as mlx_lm.convert does: the same tensors, bytes, shards, index and
 * configuration, with the tokenizer's files beside them. Written whole or not at all. A few MB of memory a thread. `fn` (may be
 * NULL) is called for each tensor; another status than LN_OK ends the call with it. */
LN_API LN_MUST_CHECK ln_status ln_quantize(const char *model, const char *out, const ln_quantize_options *opt, ln_quantized_fn *fn, void *user,
                             ln_error *err);

/* Dense numbers from affine groups as MLX packs them: [rows, cols] codes of `bits` (2, 3, 4, 5, 6, 8), for each `group` (32, 64, 128) of
 * columns a scale and a bias in `dtype` (bfloat16, float16, float32), which `out` [rows, cols] has too. MLX's rounding: scale * code,
 * then + bias, each rounded to the dtype. (A model computes with the unrounded weight.) Any alignment. */
LN_API LN_MUST_CHECK ln_status ln_dequantize(const void *codes, const void *scales, const void *biases, const char *dtype, int bits, int group,
                               int64_t rows, int64_t cols, void *out, ln_error *err);

#ifdef __cplusplus
}
#endif
#endif
