/* linnet - runs, scores and inspects language models that are stored in Hugging Face layout.
 *
 * The header is ordered by reader. First comes what every program needs: errors, options, opening a model,
 * planning memory, generating text. Then what some programs need: scoring, key dumps, tokenizers, chat
 * templates, discovery, facts of the machine. Last comes what looks inside: programs node by node, benchmarks
 * and quantised weights.
 *
 * Errors. Every function that can fail returns an ln_status. Its last parameter `err` receives the code and a
 * message; when `err` is NULL, ln_last_error returns them for the calling thread. A message names the file,
 * field or tensor, what was expected, what was found and what to try next. Every such function may return
 * LN_EUSAGE (an argument or option is invalid), LN_EMEMORY (an allocation failed) and LN_EINTERNAL; the
 * contracts below list what else a caller can expect. Output parameters are defined only after LN_OK, unless
 * the contract says otherwise.
 *
 * Callbacks. A callback returns LN_OK to continue and LN_ECANCELLED to stop; the call then returns LN_OK with
 * the results so far, unless its contract says otherwise. Any other status is an error of the callback: the
 * call stops and returns it, with the message that the callback wrote to its `err` argument (never NULL in a
 * callback). All pointers that a callback receives are borrowed until it returns. A callback must return: no
 * longjmp and no C++ exception may pass through the library.
 *
 * Ownership. What an `_open` function stores in *out belongs to the caller until the matching `_close`, which
 * frees it and sets the caller's pointer to NULL; closing NULL does nothing. A pointer that was initialised
 * to NULL is still NULL after an error. Results that the caller owns have a `_free` function. Every other
 * pointer that the library returns is borrowed, for as long as its contract says. Handles are generational:
 * using a closed handle is LN_EUSAGE, never an access to freed memory. Handles may be closed in any order and
 * from any thread; the memory is freed when the last call that uses it has returned.
 *
 * Threads. Models, tokenizers and chat templates are immutable; threads may share them. An engine serves the
 * calls of any number of threads at once: their requests share its steps. One thread at a time runs a step:
 * the engine's own (ln_engine_start), else one of those that wait for a result. Calls on different engines
 * interleave step by step, because every step uses all threads of the one pool.
 *
 * Floating point. Functions and callbacks run in the default environment, rounding to nearest with all
 * exceptions masked, whatever the caller has set; on return its environment is restored, with its flags.
 *
 * Shapes. B sequences, T rows (tokens), D hidden size, H query heads, K key/value heads, E head width, V
 * vocabulary, L layers. Arrays are dense and row-major. Token ids are int32 from 0 to V - 1. Texts are UTF-8
 * with a length in bytes and may contain U+0000; a `const char *` without a length ends with a NUL byte. */
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
#define LN_API          __attribute__((visibility("default")))
#define LN_PRINTF(a, b) __attribute__((format(printf, a, b)))
#define LN_MUST_CHECK   __attribute__((warn_unused_result))
#else
#define LN_API
#define LN_PRINTF(a, b)
#define LN_MUST_CHECK
#endif

/* Returns the version of the library that is loaded, LN_VERSION of its header. Static. */
LN_API const char *ln_version(void);

/* ---- errors ---- */

/* The kinds of error that a program can act on. The command exits with the same numbers. */
typedef enum ln_status {
    LN_OK = 0,
    LN_EUSAGE = 2,       /* the call, an option or the command line is wrong */
    LN_EINVALID = 3,     /* a file or an input has invalid content */
    LN_EUNSUPPORTED = 4, /* valid, but linnet does not support it */
    LN_EIO = 5,          /* the operating system refused: file absent, permission denied, disk full */
    LN_EMEMORY = 6,      /* more memory is needed than is available or than was allowed */
    LN_EDEVICE = 7,      /* the device does not exist or was lost */
    LN_ENUMERIC = 8,     /* NaN or infinity where a finite value was expected */
    LN_ECHANGED = 9,     /* a file changed while it was in use */
    LN_EINTERNAL = 70,   /* a defect of linnet */
    LN_ECANCELLED = 130  /* the caller asked to stop */
} ln_status;

typedef struct ln_error {
    ln_status code;
    char message[1024]; /* UTF-8, NUL-terminated */
} ln_error;

/* Returns the last error of the calling thread that was reported with `err` NULL. Never NULL. The object
 * belongs to the library and is overwritten by the next such error of this thread. */
LN_API const ln_error *ln_last_error(void);

/* ---- log ---- */

/* Severity of a log message. ERROR: something failed and the library continued without it. WARN: the user
 * should look at it. INFO: a fact. DEBUG: details. */
typedef enum ln_level { LN_LOG_ERROR = 0, LN_LOG_WARN, LN_LOG_INFO, LN_LOG_DEBUG } ln_level;

/* Receives one log message: one line of NUL-terminated UTF-8 without control characters and without a line
 * break. `text` is borrowed during the call. */
typedef void ln_log_fn(void *user, ln_level level, const char *text);

/* Sets the process's log function, which receives messages of all levels; with NULL, the default, messages
 * are dropped. The library itself writes to no file descriptor unless a call names one, and never to standard
 * error.
 *
 * Any thread that is inside the library may call `fn`, one thread at a time. `fn` must return soon and must
 * not call ln_log_set. When ln_log_set returns, no thread runs the previous function any more. */
LN_API void ln_log_set(ln_log_fn *fn, void *user);

/* ---- options ---- */

/* LN_EXACT: f32 throughout. LN_FAST: operands of matrix products are rounded to bf16 or block floating point,
 * and the KV cache is bf16 (docs/numerics.md). The default is LN_FAST for bf16, f16 and quantised
 * checkpoints; dense f32 checkpoints are always exact. */
typedef enum ln_numerics { LN_NUMERICS_DEFAULT = 0, LN_EXACT, LN_FAST } ln_numerics;
/* LN_DEVICE_CUDA is an NVIDIA GPU, by the plug-in liblinnet-cuda.so (docs/cuda.md); LN_EDEVICE, with the
 * reason, where the plug-in, the driver or the GPU is absent. LN_DEVICE_AUTO is LN_DEVICE_CUDA where that can
 * be opened, else LN_DEVICE_CPU; the log says which where the plug-in is installed. LN_DEVICE_REF runs the
 * plain C reference kernels on one thread. */
typedef enum ln_device { LN_DEVICE_AUTO = 0, LN_DEVICE_REF, LN_DEVICE_CPU, LN_DEVICE_CUDA } ln_device;
/* How a prompt's text is read. AUTO: through the chat template if the directory ships one, else raw. RAW: as
 * text to be continued. CHAT: through the chat template, else the fixed form of the model's family. */
typedef enum ln_template { LN_TEMPLATE_AUTO = 0, LN_TEMPLATE_RAW, LN_TEMPLATE_CHAT } ln_template;

/* A progress callback, called on the thread that called the library. `what` is "loading" while weights are
 * loaded (`done` and `total` in bytes) and "reading" while a prompt is prefilled (in tokens). It must not
 * call the library. fn NULL: no progress. */
typedef struct ln_progress {
    void (*fn)(void *user, const char *what, int64_t done, int64_t total);
    void *user;
} ln_progress;

/* Structs of options may grow. They begin with `size`, the size of the caller's struct, which the function
 * X_default of a struct X sets. A smaller size than the library's is an older caller: fields beyond it have
 * their defaults. A larger one is a newer caller: bytes that the library does not know must be zero.
 * LN_EUSAGE: a size of 0, as of a struct that is not from X_default, or a set field that the library does not
 * know.
 *
 * Where a struct that the library fills begins with `size`, the caller sets it to its sizeof (LN_EUSAGE
 * otherwise). An older caller gets the fields that it knows; those of a newer caller that the library does
 * not know become zero. All elements of an array have the `size` of the first (docs/decisions/028). */

/* Writes the defaults of the struct X, named "X", to *out, which has `size` bytes; zeros beyond what the
 * library knows. X_default is a part of the program, so that what it returns has the program's sizeof(X). */
LN_API void ln_set_default(const char *name, void *out, uint32_t size);
#define LN_DEFAULT(X)                               \
    static inline X X##_default(void) {             \
        X x;                                        \
        ln_set_default(#X, &x, (uint32_t)sizeof x); \
        return x;                                   \
    }

/* One of the LoRA adapters whose sum a request uses: the directory that PEFT, mlx-lm or go-mlx has written,
 * and a finite factor on all that it adds (1: as trained). */
typedef struct ln_adapter_part {
    const char *dir;
    double scale;
} ln_adapter_part;

/* Options that decide memory, arithmetic and device. Start from ln_options_default; a zero field means its
 * default. The struct and its texts are borrowed during the call that takes them. */
typedef struct ln_options {
    uint32_t size; /* of the caller's struct; set by ln_options_default */
    ln_numerics numerics;
    ln_device device;
    /* 4 or 8: dense matrices are quantised when the model is loaded, in groups of 64 columns; 0: weights stay
     * as stored. Decided by ln_model_open; an engine may only repeat the model's value. */
    int quantize_bits;
    int n_threads; /* 0: the physical cores within affinity mask and cgroup quota; at most 256 are used */
    /* Positions of a sequence's context: prompt and generated tokens, the last of which needs none. 0:
     * min(the model's maximum, max(4096, n_expected)). More than the model's maximum is LN_EUSAGE. */
    int64_t n_ctx;
    /* Prompt and generated tokens that the caller means to use. Where n_ctx is 0 it raises that default, and
     * only the KV pages for these tokens are faulted in when the engine is opened. */
    int64_t n_expected;
    /* Rows (tokens) of a step, at most 1048576; 0: 512. Raised to n_parallel: each sequence needs a row. */
    int n_chunk;
    /* Sequences that an engine runs at once, at most 4096; 0: 1. Further requests wait. */
    int n_parallel;
    int n_logits; /* rows of logits that one step may yield, reduced to n_chunk; 0: n_parallel */
    /* Limit in bytes for everything the process holds; 0: what MemAvailable, cgroup and ulimit leave. */
    uint64_t memory_bytes;
    /* Lock weights and KV pages in memory (mlock), or fail with LN_EMEMORY. Weights that are read from the
     * mapped file stay locked until the model is closed. */
    bool mlock;
    bool skip_unknown; /* leave out tensors whose dtype linnet does not know, instead of refusing a file */
    /* Name of one of the model's chat templates, or path of a file to use instead of them; NULL: the model's
     * default template. */
    const char *chat_template;
    /* Keep all positions of layers with a sliding window in the KV cache; ln_inspect_keys needs it. */
    bool keep_full_kv;
    ln_progress progress;
    /* The most bytes of the pool of KV pages, which all sequences share; 0: no such limit. The pool holds one
     * context of n_ctx positions, and with n_parallel above 1 up to n_parallel contexts: as many pages as
     * kv_bytes and the limit of memory leave or, where the caller gives neither kv_bytes nor a limit, as fit
     * into half of what the machine leaves. Less than one context is LN_EMEMORY. */
    uint64_t kv_bytes;
    /* Requests that wait for a sequence, at most 1048576, for whose prompts of n_ctx tokens memory is
     * planned. More may wait as long as the limit leaves memory for them. */
    int n_queue;
    /* [n_adapter_parts], at most 16: the adapter of every request that names none, the sum of these. It is
     * loaded when an engine is opened and stays. */
    const ln_adapter_part *adapter;
    size_t n_adapter_parts;
    /* Adapters that ln_adapter_open may load besides, at most 1024, and the largest rank of one, at most
     * 4096; 0: 16, or the rank of `adapter` where that is larger. Memory for all of them is taken when an
     * engine is opened. */
    int n_adapters, adapter_rank;
    bool embeddings; /* the memory of ln_embed is planned, and taken at the start, not at the first call */
    /* The most bytes that are planned for texts: bodies, renderings and token ids while prompts are read. At
     * least 1 MiB, 32 bytes a position of n_ctx and 8 KiB for each of n_queue are planned; more of text_bytes
     * only within a quarter of what the limit leaves. 0: the least. */
    uint64_t text_bytes;
    /* The most positions that the pool of KV pages holds, if that is fewer than n_parallel contexts; at least
     * one context. 0: no such limit. */
    int64_t pool_positions;
} ln_options;

LN_DEFAULT(ln_options) /* all fields but `size` zero */

/* Receives the next piece of generated text: complete UTF-8 characters, and nothing that could still become
 * part of a stop text. `text` has `bytes` bytes and no terminator. */
typedef ln_status ln_text_fn(void *user, const char *text, size_t bytes, ln_error *err);

typedef struct ln_logit_bias {
    int32_t id;
    float bias; /* added to the logit; below +infinity, -INFINITY excludes the token */
} ln_logit_bias;

/* A sequence of n token ids. */
typedef struct ln_id_list {
    const int32_t *ids;
    size_t n;
} ln_id_list;

/* Whether an answer may call tools. */
typedef enum ln_tool_choice {
    LN_TOOLS_OFF = 0, /* calls stay in the text */
    LN_TOOLS_AUTO,    /* the model decides; calls are split off the text, and what has begun becomes one */
    LN_TOOLS_REQUIRED /* the answer is one or more calls, and their arguments meet the tools' schemas */
} ln_tool_choice;

/* How the next token is chosen from the logits. Start from ln_sampling_default; a zeroed struct is invalid
 * (repeat_penalty 0). All pointers are borrowed during the call that takes the struct.
 *
 * Order: logit bias and ignore_eos; repeat penalty; presence and frequency penalties; forbidden tokens;
 * argmax when temperature is 0 or top_k is 1; else temperature, top-k, top-p of what top-k keeps, min-p,
 * draw. A draw is argmax(logit + Gumbel noise), where the noise is a function of Philox(seed, position, id).
 */
typedef struct ln_sampling {
    uint32_t size;      /* of the caller's struct: sizeof(ln_sampling) */
    double temperature; /* 0: greedy, the lowest id on ties; at most 1e6 */
    int top_k;          /* candidates to keep; 0: off */
    double top_p;       /* probability mass to keep, 0 .. 1; 1: off */
    double min_p;       /* least probability relative to the likeliest token's, 0 .. 1; 0: off */
    /* Divides positive logits, and multiplies negative ones, of tokens that occur in prompt or generated
     * text; 1: off. */
    double repeat_penalty;
    int repeat_last; /* how many of the last tokens repeat_penalty looks at; 0: off, -1: all */
    /* Over generated tokens only: logit -= presence_penalty + frequency_penalty * occurrences, each -100 ..
     * 100 */
    double presence_penalty;
    double frequency_penalty;
    const ln_logit_bias *bias; /* [n_bias] */
    size_t n_bias;
    /* [n_stop], at most 16 texts of 1 to 1024 bytes, NUL-terminated. Generation ends where one of them occurs
     * in the text, which excludes it. A stop text that is one special token ends generation at that token.
     * What counts is the generated text: an occurrence that begins in the prompt, which would end generation
     * in transformers, does not. The text leaves special tokens out, so that a stop text that contains one
     * beside other text never occurs; ln_generate logs a warning about it. */
    const char *const *stop;
    size_t n_stop;
    bool ignore_eos; /* the logits of the model's stop ids that `stop` does not name become minus infinity */
    bool has_seed;   /* false: a seed is drawn from the system; ln_result.seed has it */
    uint64_t seed;
    /* Maximum number of tokens to generate; 0: none; -1: up to the end of the context where a chat template
     * is used, else 256. */
    int64_t n_max;
    bool has_think_budget; /* false: reasoning is not limited */
    /* Tokens of reasoning after which the delimiter that ends it is appended for the model; 0: the model
     * answers at once. */
    int64_t think_budget;
    /* Receives the reasoning piece by piece, with the `user` argument of the call; NULL: the reasoning is in
     * ln_result only. */
    ln_text_fn *on_reasoning;
    /* What the model's generation_config.json forbids, as the logits processors of transformers define it:
     * the logits become minus infinity. ln_sampling_default points these fields into the model, where they
     * are valid until the model and its engines are closed. Zero: nothing is forbidden. */
    const int32_t *suppress; /* [n_suppress] suppress_tokens: ids that are never generated */
    size_t n_suppress;
    const int32_t *begin_suppress; /* [n_begin_suppress] begin_suppress_tokens: not as the first token */
    size_t n_begin_suppress;
    /* [n_bad_words] bad_words_ids: sequences whose last id must not follow the others; a sequence that is a
     * single stop id is ignored. */
    const ln_id_list *bad_words;
    size_t n_bad_words;
    /* no_repeat_ngram_size: no sequence of this many tokens of prompt and text occurs twice; 0: off. */
    int64_t no_repeat_ngram;
    int64_t min_new;               /* min_new_tokens: no stop id before this many tokens are generated */
    const char *const *model_stop; /* [n_model_stop] stop_strings: stop texts in addition to `stop` */
    size_t n_model_stop;
    const int32_t *stop_ids; /* [n_stop_ids] ids that end the generation, besides the model's stop ids */
    size_t n_stop_ids;
    /* Calls of the tools of ln_prompt.request, in the form that the chat template asks the model for: they
     * are split off the text, to LN_EVENT_TOOL_ARGUMENTS, LN_EVENT_TOOL_CALL and ln_result.tool_calls. A call
     * that the model has begun is held to that form, to the names of the tools and to their schemas; with
     * AUTO a tool whose schema has a keyword that is not supported takes any object. With `form` the answer
     * is of the form, or calls; REQUIRED excludes `form`. */
    ln_tool_choice tool_choice;
    /* [n_tool_names] names of the tools that may be called; a call of another one is text. None: all tools
     * of the request. */
    const char *const *tool_names;
    size_t n_tool_names;
    bool single_tool_call; /* generation ends after the first call */
    /* [form_bytes] The form of the answer, a JSON text (docs/structured.md); NULL: free. An expression is
     *   {"schema": S}         a JSON value that meets the JSON schema S ("open": true beside it: as the
     *                         standard reads S, with other properties and types than those that it names),
     *   {"text": "..."}       this text; a text alone means the same,
     *   {"regex": "..."}      a text that the regular expression matches as a whole,
     *   {"grammar": "..."}    a text of a grammar in GBNF or Lark's EBNF,
     *   {"token": "..."}      the special token of this name, which gives no text,
     *   {"sequence": [E...]}  expressions one after the other,
     *   {"choice": [E...]}    one of them,
     *   {"repeat": E, "min": 0, "max": N}  E so many times; without max any number.
     * Tokens that do not continue the form are excluded before the bias is added to the logits; generation
     * ends where nothing may follow. Reasoning is free, and the form begins after it. A cancelled answer, or
     * one that n_max or a stop text ends, is the beginning of a text of the form. Borrowed during the call.
     */
    const char *form;
    size_t form_bytes;
} ln_sampling;

/* Checks an ln_sampling.form of `bytes` bytes. LN_EINVALID: it is malformed, no text has it, or it has a
 * keyword that is not supported; the message begins with its place, as in "schema.properties.a.contains". */
LN_API LN_MUST_CHECK ln_status ln_form_check(const char *form, size_t bytes, ln_error *err);

/* ---- models ---- */

typedef struct ln_model ln_model;
typedef struct ln_adapter ln_adapter; /* an adapter that an engine has loaded: see ln_adapter_open */

/* Opens the Hugging Face directory `model`: a path, else a cache id `org/name[@rev]`, else `tiny`, the
 * bundled model. Reads config.json and the tokenizer, maps the weight files and checks every tensor; reads no
 * weights and takes no KV memory. `opt` NULL: the defaults. The caller owns *out; ln_model_close.
 *
 * LN_EIO: no such model, or a file cannot be read. LN_EINVALID: a file contradicts its format or another
 * file. LN_EUNSUPPORTED: an architecture, dtype or tokenizer that linnet does not know. LN_ECHANGED: a file
 * changed meanwhile. Without tokenizer.json, calls that need a text fail. A chat template that cannot be used
 * is an error here only where opt->chat_template names it. */
LN_API LN_MUST_CHECK ln_status ln_model_open(ln_model **out, const char *model, const ln_options *opt,
                                             ln_error *err);
/* Closes the handle. Engines that were opened on the model stay usable and keep its memory. */
LN_API void ln_model_close(ln_model **model);

typedef struct ln_info {
    uint32_t size;   /* of the caller's struct: sizeof(ln_info) */
    char path[4096]; /* absolute, of the directory */
    char model_type[64];
    char dtype[16];  /* of the checkpoint: bfloat16, float16 or float32 */
    int bits, group; /* of quantised weights, columns in a group; 0 when all are dense */
    int n_layers, n_heads, n_kv_heads, head_dim;
    /* width: hidden_size; ffn_width: intermediate_size; n_ctx_max: the maximum context length; window: the
     * largest sliding window, in positions, 0: none */
    int64_t width, ffn_width, vocab_size, n_ctx_max, window;
    bool tied;             /* the output head is the embedding table */
    bool has_template;     /* the directory ships a chat template */
    bool has_reasoning;    /* reasoning delimiters (<think>) are known, as tokens or from the chat template */
    bool has_think_switch; /* the chat template reads enable_thinking */
    uint64_t n_parameters, weights_bytes; /* weights_bytes: in the encoding that is loaded */
    int32_t eos_ids[32];                  /* the first n_eos are set */
    int n_eos;
    ln_numerics numerics; /* that the model's options give: LN_EXACT or LN_FAST */
    int n_files;          /* weight files */
    /* The form in which the model calls tools: hermes, llama3, mistral, ... (docs/templates.md); generic: the
     * chat template shows none, and the tools are described in the system text. */
    char tool_form[16];
    int64_t embedding_width; /* values of an embedding; 0: the files of its modules cannot be used */
    /* The class of transformers that builds the tokenizer from code ("": it takes tokenizer.json as it is),
     * and what it makes otherwise than that file ("pre_tokenizer, decoder"), which is used. */
    char tokenizer_class[40], tokenizer_differs[64];
    double embed_scale; /* factor of token embeddings: 1, or sqrt(width) rounded to `dtype` (Gemma) */
    /* What the chat template takes of earlier calls in a request: one call a message; null as the content
     * beside calls; arguments as a text of JSON, not as an object. */
    bool single_tool_call, null_tool_content, text_tool_arguments;
} ln_info;

/* Writes the facts of an open model to *info, which the caller owns. */
LN_API LN_MUST_CHECK ln_status ln_model_info(const ln_model *model, ln_info *info, ln_error *err);
/* Writes the same facts of a model that is opened for this call alone; no weight is read. Errors: those of
 * ln_model_open. */
LN_API LN_MUST_CHECK ln_status ln_show(const char *model, const ln_options *opt, ln_info *info,
                                       ln_error *err);
/* Writes the model's sampling defaults to *out: those of generation_config.json, with the tokens that it
 * forbids and its stop texts; without the file, greedy. The caller sets out->size. n_max is -1, repeat_last
 * 64 (-1 with a repetition_penalty of the file). Pointers in *out are borrowed from the model, until it and
 * its engines are closed. */
LN_API LN_MUST_CHECK ln_status ln_sampling_default(const ln_model *model, ln_sampling *out, ln_error *err);

/* ---- memory, planned before any is taken ---- */

typedef struct ln_plan {
    uint32_t size;       /* of the caller's struct: sizeof(ln_plan) */
    uint64_t peak_bytes; /* what the process will hold at its peak: the four parts below and text_bytes */
    uint64_t weights_bytes;
    uint64_t kv_bytes;
    uint64_t activation_bytes; /* temporaries of a step, and the buffer of ln_inspect_keys */
    uint64_t other_bytes;      /* what the process holds now, tokenizer, code, stacks, tables */
    uint64_t available_bytes;  /* what the machine or the caller allows the process */
    int64_t n_ctx;             /* positions of a sequence, after defaults */
    ln_numerics numerics;      /* after defaults: LN_EXACT or LN_FAST */
    bool fits;                 /* peak_bytes <= available_bytes */
    /* the largest n_ctx that fits with all else equal, where the pool may hold fewer contexts; 0: none */
    int64_t largest_ctx;
    /* Which limit decides available_bytes: "MemAvailable", "cgroup", "RLIMIT_AS", "RLIMIT_DATA",
     * "ln_options.memory_bytes" or "ln_memory_set_limit". Static. */
    const char *limit;
    int n_parallel;     /* sequences that run at once, after defaults */
    int64_t n_contexts; /* how many of them can have n_ctx positions at once, by the size of the KV pool */
    uint64_t adapter_bytes; /* of the pool of adapters, a part of other_bytes unless it is on a GPU */
    /* A device with memory of its own (a GPU): weights_bytes, kv_bytes, activation_bytes and adapter_bytes
     * are there; peak_bytes is other_bytes then. device_bytes: what will be taken of it, their sum without
     * weights that are there already; device_available_bytes: what is free of it. `fits` says that both fit.
     * 0: the device uses the memory of the process. */
    uint64_t device_bytes, device_available_bytes;
    uint64_t text_bytes; /* ln_options.text_bytes as planned: the share of texts */
} ln_plan;

/* Computes the memory that ln_model_open and ln_engine_open with the same options would take, and writes it
 * to *out. A plan that does not fit is LN_OK with out->fits false. Errors: those of ln_model_open,
 * LN_EDEVICE; LN_EMEMORY: ln_options.kv_bytes is less than one context. */
LN_API LN_MUST_CHECK ln_status ln_plan_memory(const char *model, const ln_options *opt, ln_plan *out,
                                              ln_error *err);

/* ---- generating ---- */

typedef struct ln_engine ln_engine;

/* Opens an engine for `model`; it keeps what it needs of the model after the model's handle is closed. Loads
 * the weights, which the engines of a model share, and takes all memory that its steps will use. `opt` NULL:
 * the defaults. The caller owns *out; ln_engine_close.
 *
 * LN_EMEMORY, before anything is taken: the plan does not fit; the message has both numbers and what would
 * fit. LN_EUSAGE: n_ctx beyond the model's maximum, or another quantize_bits than the model's. LN_EDEVICE: no
 * such device. LN_ECHANGED: a weight file changed. LN_ENUMERIC: quantize_bits met a NaN or an infinity. */
LN_API LN_MUST_CHECK ln_status ln_engine_open(ln_engine **out, ln_model *model, const ln_options *opt,
                                              ln_error *err);
/* Closes the handle. Its requests are asked to stop as by ln_cancel; the engine is freed when its last call
 * has returned and its last request is closed. */
LN_API void ln_engine_close(ln_engine **engine);

/* One message of a conversation. */
typedef struct ln_message {
    const char *role; /* system, user, assistant, or another role that the chat template knows */
    const char *content;
    size_t content_bytes;
} ln_message;

/* A prompt: exactly one of text, ids, messages and request is set. Start from ln_prompt_default. Everything
 * is borrowed during the call.
 *
 * `ids` are used as they are. A `text` becomes one user message where `tmpl` says that a chat template is
 * used, else it is tokenised with the tokens that the post-processor adds (bos). `messages` and `request` are
 * conversations: they always go through a chat template, with the header of the assistant's answer after
 * them, and are LN_EUSAGE where `tmpl` excludes one. The template is the model's, else the fixed form of its
 * family. Usually a system message comes first and a user's message last; what the template rejects (an
 * unknown role, roles that do not alternate) is LN_EINVALID. The text of a message can never become a control
 * token, whatever it spells. */
typedef struct ln_prompt {
    uint32_t size; /* of the caller's struct; set by ln_prompt_default */
    const char *text;
    size_t text_bytes;
    const char *system; /* system message in front of `text`, with a chat template only; or NULL */
    size_t system_bytes;
    const int32_t *ids; /* [n_ids] */
    size_t n_ids;
    const ln_message *messages; /* [n_messages], at least one */
    size_t n_messages;
    const char *request; /* a conversation as JSON, which may have tools: see ln_chat_template_render */
    size_t request_bytes;
    /* A JSON object whose members become variables of the template (enable_thinking); or NULL. */
    const char *template_args;
    size_t template_args_bytes;
    ln_template tmpl;
    const ln_adapter *adapter; /* of the same engine; NULL: that of ln_options.adapter, if there is one */
} ln_prompt;
LN_DEFAULT(ln_prompt) /* all fields but `size` zero */

/* Writes the first min(*n_ids, cap) token ids of `prompt` to ids[cap] and their full count to *n_ids; `ids`
 * may be NULL when cap is 0. LN_EINVALID: a text is not UTF-8, or the template rejects the conversation.
 * LN_EUNSUPPORTED: the model's chat template cannot be used, or there is none and no fixed form. */
LN_API LN_MUST_CHECK ln_status ln_prompt_ids(const ln_model *model, const ln_prompt *prompt, int32_t *ids,
                                             size_t cap, size_t *n_ids, ln_error *err);

/* Owned by the caller; ln_token_mask_free frees the contents. */
typedef struct ln_token_mask {
    int32_t *ids;  /* [n_ids] */
    uint8_t *mask; /* [n_ids]: 1 for tokens that the assistant wrote, including the end of its turn, else 0 */
    size_t n_ids;
    /* Turns of the assistant that could not be located, because the template renders them differently once
     * more messages follow; their tokens have mask 0. */
    size_t n_unmatched;
} ln_token_mask;

/* Computes the ids of a whole conversation (messages or request), without a header after it, and which of
 * them the assistant wrote: the loss mask of fine-tuning. Where the template marks generated text ({%
 * generation %}) the mask is that; else a turn is what it adds to the rendering of the messages before it and
 * the header of an answer. LN_EUNSUPPORTED: the model has no usable chat template. LN_EINVALID: as for
 * ln_prompt_ids. *out is overwritten, not freed; after an error it is empty. */
LN_API LN_MUST_CHECK ln_status ln_assistant_mask(const ln_model *model, const ln_prompt *conversation,
                                                 ln_token_mask *out, ln_error *err);
/* Frees the contents and zeroes the struct; NULL and an empty struct are fine. */
LN_API void ln_token_mask_free(ln_token_mask *marked);

/* Measurements of one call. Times are wall-clock seconds without the time spent in the caller's callbacks.
 * The struct lies inside others, so its size never changes: new fields take the place of reserved ones. */
typedef struct ln_metrics {
    /* cached_tokens: of the prompt, the prefix whose keys and values the engine still held */
    int64_t prompt_tokens, generated_tokens, cached_tokens;
    int64_t reasoning_tokens; /* of the generated ones, including the delimiter at their end */
    /* load: of opening model and engine; total: prefill + decode; first_token: from the start of the call */
    double load_seconds, prefill_seconds, decode_seconds, total_seconds, first_token_seconds;
    double prefill_tok_s, decode_tok_s; /* tokens per second; 0 where there is no such time */
    uint64_t active_bytes, peak_bytes;  /* resident memory of the process now, and its peak (ln_memory) */
    double queue_seconds;               /* from the start of the call to its admission; part of prefill */
    /* Why cached_tokens is less than what the engine had held of this prompt, or of a text that begins as it
     * does; "" where it is not. "evicted": its pages were needed or dropped. "window": positions that its
     * last row attends to were dropped, because the window had moved on. "diverged": the held text continues
     * with another token. "adapter", "rope": it was computed with another adapter, or with other rotary
     * frequencies. "disabled": ln_request_options.no_cache. Static. */
    const char *cache_miss_reason;
    uint64_t reserved[16]; /* zero */
} ln_metrics;

/* STOP: a stop id or stop text. LENGTH: n_max or the context ended. CANCELLED: a callback, ln_cancel or an
 * error stopped it. */
typedef enum ln_finish { LN_FINISH_STOP = 0, LN_FINISH_LENGTH, LN_FINISH_CANCELLED } ln_finish;

/* A token and its log-probability. */
typedef struct ln_top {
    int32_t id;
    double logprob; /* natural logarithm */
} ln_top;

/* A call of a tool that a model has asked for. The texts belong to the result. */
typedef struct ln_tool_call {
    const char *name;
    const char *arguments; /* [arguments_bytes] and a NUL byte: a JSON object, as the model wrote it */
    size_t arguments_bytes;
} ln_tool_call;

/* The result of ln_generate. Owned by the caller; ln_result_free frees the contents.
 *
 * ids and text exclude the stop token or stop text. Where a chat template is used and the model knows
 * reasoning delimiters, the output is split: `reasoning` has what is between them, without the delimiters and
 * the newlines next to them; `text` has the answer, and stop texts apply to the answer alone. `ids` has all
 * of the output. Other output is not split. */
typedef struct ln_result {
    uint32_t size;       /* of the caller's struct: sizeof(ln_result) */
    int32_t *prompt_ids; /* [n_prompt_ids] */
    size_t n_prompt_ids;
    int32_t *ids; /* [n_ids] */
    size_t n_ids;
    char *text; /* [text_bytes] and a NUL byte */
    size_t text_bytes;
    char *reasoning; /* [reasoning_bytes] and a NUL byte; "" when there is none */
    size_t reasoning_bytes;
    ln_finish finish;
    uint64_t seed; /* that the draws used */
    ln_metrics metrics;
    /* Log-probabilities, where ln_request_options.n_logprobs asks for them; else NULL. logprobs [n_ids]: of
     * the generated ids; top [n_ids, n_top]: the likeliest tokens, in descending order. They are those of the
     * logits before bias, penalties, temperature and filters. prompt_logprobs [n_prompt_ids] (NaN at 0) and
     * prompt_top [n_prompt_ids, n_top] with ln_request_options.prompt_logprobs. */
    double *logprobs;
    ln_top *top;
    size_t n_top;
    double *prompt_logprobs;
    ln_top *prompt_top;
    /* What ended the text where finish is LN_FINISH_STOP: the id of the stop token, else -1, with the number
     * of the stop text in ln_sampling.stop (then in model_stop) in stop_text, else -1. */
    int32_t stop_id;
    int stop_text;
    /* [n_tool_calls] calls of tools, where ln_sampling.tool_choice asks for them; NULL when there is none. */
    ln_tool_call *tool_calls;
    size_t n_tool_calls;
    /* A call that the end of the text has cut: its arguments are the beginning of a JSON text. It is in
     * neither `text` nor `tool_calls`. NULL: there is none. */
    ln_tool_call *cut_tool_call;
    size_t n_malformed_calls; /* tags of calls in `text` after which there was no call */
} ln_result;

/* Generates text after `prompt`. `sampling` NULL: ln_sampling_default. `on_text` receives the answer piece by
 * piece, on the calling thread; NULL: no streaming. `out` receives the result and is overwritten, not freed;
 * NULL: no result. The engine keeps the keys and values of earlier requests as its pool allows, and a prompt
 * that begins with the same tokens reuses them.
 *
 * When a callback returns LN_ECANCELLED or ln_cancel stops the call, it returns LN_OK, *out has what was
 * generated and finish is LN_FINISH_CANCELLED. After an error in mid-generation *out has what came before it,
 * with the same finish; after an earlier error *out has neither ids nor texts.
 *
 * LN_EUSAGE: the prompt is empty, or a field of `sampling` is out of range. LN_EINVALID: the prompt is longer
 * than the context. Also the errors of ln_prompt_ids. LN_ENUMERIC: the logits hold a NaN, or every token is
 * excluded. LN_ECHANGED: a weight file changed. */
LN_API LN_MUST_CHECK ln_status ln_generate(ln_engine *engine, const ln_prompt *prompt,
                                           const ln_sampling *sampling, ln_text_fn *on_text, void *user,
                                           ln_result *out, ln_error *err);
/* Frees the contents and zeroes all fields but `size`; NULL and an empty struct are fine. */
LN_API void ln_result_free(ln_result *result);
/* Sets (stop true) or clears (false) the engine's stop request. While it is set, all its requests end after
 * the current step (one token, or one chunk of the prompt) and later ones end at once; it stays set until it
 * is cleared, so that a stop that arrives just before a call is not lost. ln_generate then ends with
 * LN_FINISH_CANCELLED, ln_score and ln_inspect_keys with LN_ECANCELLED. May be called from any thread and
 * from a signal handler (it is async-signal-safe); a closed handle is ignored. */
LN_API void ln_cancel(ln_engine *engine, bool stop);

/* ---- many requests at once ---- */

typedef struct ln_request ln_request;

/* What a request asks for besides its prompt. Start from ln_request_options_default. */
typedef struct ln_request_options {
    uint32_t size;               /* of the caller's struct; set by ln_request_options_default */
    const ln_sampling *sampling; /* copied; NULL: ln_sampling_default */
    int n_logprobs; /* -1: none; 0 .. 20: log-probabilities of the chosen token and of the n likeliest */
    bool prompt_logprobs; /* with n_logprobs >= 0: of the prompt's tokens too. Nothing is reused then. */
    bool no_cache;        /* neither reuse keys and values of earlier requests nor keep this one's */
    /* Called when an event can be read after none could: from the thread that runs the step, or from a call
     * on this request. It must return at once and must not call the library; a server writes to an eventfd
     * here. NULL: none. It is not called any more when ln_request_close has returned. */
    void (*on_ready)(void *user);
    void *user;
    /* Rendered, tokenised and checked by ln_request_open, but not queued before ln_request_start: for a
     * caller that decides itself whose request is next. */
    bool defer;
} ln_request_options;
LN_DEFAULT(ln_request_options) /* the model's sampling, no log-probabilities, reuse */

/* Hands a prompt to an engine and returns at once. The prompt is rendered and tokenised by this call; steps
 * are run by ln_engine_step, by the engine's thread or by ln_request_next. Requests are admitted in their
 * order, as soon as a sequence is free and the pool has the pages that prompt and answer may need. The caller
 * owns *out; ln_request_close. `opt` NULL: the defaults.
 *
 * LN_EMEMORY: the pool could never hold prompt and answer (the message says what would fit), or the limit of
 * memory leaves too little for the records of the requests that are open and of this one. Other errors: as
 * for ln_generate. */
LN_API LN_MUST_CHECK ln_status ln_request_open(ln_request **out, ln_engine *engine, const ln_prompt *prompt,
                                               const ln_request_options *opt, ln_error *err);

/* Queues a request that was opened with ln_request_options.defer. Until then it has no events, takes no
 * sequence and no pages, and closing it waits for no step. Does nothing for a request that is queued already.
 * LN_EUSAGE: the engine cannot go on after a fork. */
LN_API LN_MUST_CHECK ln_status ln_request_start(ln_request *request, ln_error *err);

/* TOKEN: a generated token. TEXT, REASONING: the next piece of the answer, or of its reasoning: complete
 * UTF-8 characters. TOOL_ARGUMENTS: the call of a tool that is being written goes on with this piece of its
 * arguments, the first of which begins the call. TOOL_CALL: a whole call of a tool, after all of its pieces.
 * FINISH: the last event. NONE: there is no event yet. */
typedef enum ln_event_kind {
    LN_EVENT_NONE = 0,
    LN_EVENT_TOKEN,
    LN_EVENT_TEXT,
    LN_EVENT_REASONING,
    LN_EVENT_FINISH,
    LN_EVENT_TOOL_CALL,
    LN_EVENT_TOOL_ARGUMENTS
} ln_event_kind;

/* Pointers in an event are borrowed until the next ln_request_next or ln_request_close of the request. */
typedef struct ln_event {
    uint32_t size; /* of the caller's struct: sizeof(ln_event); events of a newer library are cut to it */
    ln_event_kind kind;
    /* TOKEN: its id and, with n_logprobs, its log-probability (else NaN) and the n_top likeliest tokens */
    int32_t id;
    double logprob;
    const ln_top *top;
    size_t n_top;
    /* TEXT, REASONING: [bytes], no terminator. TOOL_CALL: the arguments, a JSON object; TOOL_ARGUMENTS: a
     * piece of them. FINISH: the error's message or NULL */
    const char *text;
    size_t bytes;
    ln_finish finish; /* FINISH */
    ln_status status; /* FINISH: LN_OK, or the error that ended this request alone */
    const char *name; /* TOOL_CALL, TOOL_ARGUMENTS: the tool */
} ln_event;

/* Takes the request's next event, in the order in which they happened. Waits for one at most `seconds` (0:
 * not at all; negative: without limit) and stores LN_EVENT_NONE when there is none. While it waits, it runs
 * the engine's steps itself where no other thread does; a step that it has begun it completes. Unread events
 * wait in the request; a slow reader delays no step. After LN_EVENT_FINISH every further call stores it
 * again. One thread at a time per request. */
LN_API LN_MUST_CHECK ln_status ln_request_next(ln_request *request, double seconds, ln_event *out,
                                               ln_error *err);
/* Asks one request to end: it finishes with LN_FINISH_CANCELLED after the current step, wherever it is (in
 * the queue, in its prompt, in its answer). May be called from any thread and from a signal handler; a closed
 * handle is ignored. */
LN_API void ln_request_cancel(ln_request *request);
/* Copies what the request has generated so far to *out: all of it once LN_EVENT_FINISH was read. *out is
 * overwritten, not freed; ln_result_free. Returns the error that ended the request, if one did, with *out as
 * after an error of ln_generate. */
LN_API LN_MUST_CHECK ln_status ln_request_result(ln_request *request, ln_result *out, ln_error *err);
/* Cancels the request if it has not finished, and closes the handle. */
LN_API void ln_request_close(ln_request **request);

/* Runs one step of the engine on the calling thread, in the caller's own loop: admits waiting requests, runs
 * one batch (a row for each sequence that decodes, then chunks of prompts), samples and appends events.
 * *n_active, which may be NULL, is the number of requests that have not finished. With no request to run it
 * returns at once. Errors of single requests are in their events; an error here (LN_EDEVICE, LN_ECHANGED)
 * has ended all of them. LN_EUSAGE: the engine's thread runs. */
LN_API LN_MUST_CHECK ln_status ln_engine_step(ln_engine *engine, size_t *n_active, ln_error *err);
/* Starts the engine's own thread, which runs steps while there are requests and sleeps otherwise. */
LN_API LN_MUST_CHECK ln_status ln_engine_start(ln_engine *engine, ln_error *err);
/* Ends the engine's thread after its current step; requests stay as they are. */
LN_API void ln_engine_stop(ln_engine *engine);

/* The state of an engine. */
typedef struct ln_engine_stats {
    uint32_t size;                            /* of the caller's struct: sizeof(ln_engine_stats) */
    int64_t n_running, n_waiting, n_parallel; /* requests that have a sequence, that wait; sequences */
    /* pages of the pool: all, those of running requests, those kept for reuse */
    int64_t n_pages, n_used, n_cached;
    uint64_t page_bytes;
    uint64_t n_steps, n_requests;                            /* so far */
    uint64_t prompt_tokens, cached_tokens, generated_tokens; /* so far, of finished and running requests */
    double step_seconds;                                     /* of the last step */
} ln_engine_stats;
LN_API LN_MUST_CHECK ln_status ln_engine_get_stats(const ln_engine *engine, ln_engine_stats *out,
                                                   ln_error *err);

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

/* ---- classifying, evaluating ---- */

/* SUM: the score of a label is the sum of its tokens' log-probabilities; TOKENS: their mean. */
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
    ln_status status;  /* LN_OK, or why this prompt failed; then only `error` is set besides */
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
 * the defaults. A prompt that fails (LN_EINVALID, LN_EUSAGE, LN_EUNSUPPORTED, LN_ENUMERIC; LN_EMEMORY where
 * the pool could never hold it) does not stop the others. All prompts have the same `size`. Prompt and label
 * need a position for each token but the label's last. With want_logits at most 16 prompts share steps,
 * because each needs a row of its own. `metrics` may be NULL.
 *
 * LN_EUSAGE: a label is empty or has no tokens, or a field of `sampling` is out of range. LN_EINVALID: a
 * label is not UTF-8. LN_ECANCELLED: ln_cancel. LN_ECHANGED: a weight file changed. */
LN_API LN_MUST_CHECK ln_status ln_classify(ln_engine *engine, const ln_prompt *prompts, size_t n,
                                           const ln_classify_options *opt, ln_class_fn *fn, void *user,
                                           ln_metrics *metrics, ln_error *err);

/* The perplexity of a text. */
typedef struct ln_evaluation {
    uint32_t size;           /* of the caller's struct: sizeof(ln_evaluation) */
    int64_t tokens, counted; /* tokens of the text, and those whose probability counts */
    double nll, perplexity;  /* mean negative log-likelihood of the counted tokens, natural; exp(nll) */
    int64_t window, stride;  /* that were used */
} ln_evaluation;
/* Scores ids[0..n_ids) in windows of `window` tokens (0: min(n_ctx, 2048); more is cut to n_ctx) that begin
 * at multiples of `stride` (0: half a window; at most the window). The last window is short, not shifted. A
 * token counts once, in the first window that has it; the first token of a window never counts. `metrics` may
 * be NULL; its prompt_tokens are those of all windows. LN_EINVALID: fewer than two tokens, or an id that is
 * not in the vocabulary. LN_EUSAGE: a window of one token, or a stride beyond the window. LN_ECANCELLED:
 * ln_cancel. */
LN_API LN_MUST_CHECK ln_status ln_evaluate(ln_engine *engine, const int32_t *ids, size_t n_ids,
                                           int64_t window, int64_t stride, ln_evaluation *out,
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
/* Whether vectors are divided by their length. AUTO: yes, unless the model's files compare vectors by dot
 * product or distance: as modules.json says. */
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
    bool force; /* begin anew, replacing the answers */
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
    /* Requests in `in`; answered by this call, and by earlier ones; answers in `out` that are errors, those
     * of earlier calls included. */
    size_t n_requests, n_done, n_earlier, n_failed;
} ln_batch_report;
/* Reads the file `in` as ln_batch does, before an engine is opened, and sets those of options->n_ctx,
 * pool_positions and text_bytes that are 0 to what its requests need with options->n_parallel at once. A
 * request without a number of tokens counts as one of 2,048, or of as many as make 4,096 positions. Adapters
 * of *opt count by their names and may be NULL.
 *
 * LN_EINVALID besides what ln_batch says about `in`: its bodies name models, and none of them is known; the
 * message has the first of these lines. */
LN_API LN_MUST_CHECK ln_status ln_batch_size(ln_model *model, const char *in, const ln_batch_options *opt,
                                             ln_options *options, ln_error *err);
/* Answers the requests of the file `in` (lines of OpenAI's batch form: custom_id, method, url, body) and adds
 * a line to the file `out` as each finishes, each line whole. A file beside it, `out`.state, has the digests
 * of `in`, model and conditions until all is done: a call that was interrupted is completed by the same call
 * again, which drops a torn last line and repeats no request. A request that fails has its error in its line.
 * One that lacks memory waits for others to end.
 *
 * LN_ECANCELLED: on_answer or ln_cancel ended the call; the answers so far are in `out`. LN_EMEMORY: all
 * others are answered, but some requests lack memory even alone; the same call answers them when there is
 * more. LN_EINVALID: `in` has a line that is no request or a custom_id twice, or `out` was begun with other
 * digests. LN_EIO: `out` exists and is no unfinished answer to `in`; a file cannot be read or written. */
LN_API LN_MUST_CHECK ln_status ln_batch(ln_engine *engine, const char *in, const char *out,
                                        const ln_batch_options *opt, ln_batch_report *report, ln_error *err);

/* ---- memory of the process ---- */

/* Sets the limit in bytes for everything the process holds (0: none but the machine's) and returns the
 * previous one. Engines that are opened later are planned within the smaller of it and
 * ln_options.memory_bytes; engines that are open keep what they have. */
LN_API uint64_t ln_memory_set_limit(uint64_t bytes);
/* Sets how many bytes of KV pages each engine keeps for reuse (UINT64_MAX, the default: as many as its pool
 * has free; 0: none) and returns the previous value. Pages beyond it are dropped in the next step. */
LN_API uint64_t ln_cache_set_limit(uint64_t bytes);
/* Drops the KV pages that all engines keep for reuse; running requests keep theirs. */
LN_API void ln_cache_clear(void);
/* Makes the memory that the process holds now its peak. Linux resets its own record of the peak on request
 * (/proc/self/clear_refs); where it refuses, the library keeps the peak from then on: the largest resident
 * memory that it saw when an engine was opened, when a request ended, and in ln_memory_stats. */
LN_API void ln_memory_reset_peak(void);

/* Memory of the process, in bytes. The classes are what all open engines planned and took. */
typedef struct ln_memory {
    uint32_t size;                     /* of the caller's struct: sizeof(ln_memory) */
    uint64_t active_bytes, peak_bytes; /* resident now; its maximum since the start or the last reset */
    uint64_t weights_bytes, kv_bytes, activation_bytes, adapter_bytes; /* by class; kv: the pools of pages */
    uint64_t cache_bytes;                    /* the part of kv_bytes whose pages are kept for reuse only */
    uint64_t other_bytes;                    /* active_bytes beyond the classes; 0 where these are larger */
    uint64_t limit_bytes, cache_limit_bytes; /* of ln_memory_set_limit and ln_cache_set_limit */
    bool kernel_peak;    /* peak_bytes is the kernel's record; false: the library's (ln_memory_reset_peak) */
    uint64_t text_bytes; /* a class of its own: texts that are being read, rendered or tokenised */
} ln_memory;
/* Writes the figures to *out, whose `size` the caller has set. NULL and a size of 0, or of no struct, are
 * ignored. */
LN_API void ln_memory_stats(ln_memory *out);

/* ---- scoring and inspecting ---- */

/* Called for each row t = 0 .. n_ids - 1 in order. `logprob` is the natural log-probability of token t given
 * the tokens before it (NaN at t = 0). `logits`, f32 [V], and `top`, the n_top likeliest tokens in descending
 * order, predict token t + 1. */
typedef ln_status ln_score_fn(void *user, int64_t t, double logprob, const ln_top *top, size_t n_top,
                              const float *logits, int64_t n_vocab, ln_error *err);

/* Scores n_ids >= 1 tokens as one text and calls `fn` for each. `n_top` is reduced to V where it is more. A
 * step takes at most ln_options.n_logits rows, and at most 64: a large value scores faster. `metrics` may be
 * NULL; it has the rows scored so far even after an error. The call neither reuses nor keeps keys and values.
 * It holds a sequence while `fn` runs: `fn` must not call the engine (LN_EUSAGE) nor wait for a call of it.
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

/* ---- tokenizers ---- */

typedef struct ln_tokenizer ln_tokenizer;

/* Opens the tokenizer of `model` without the model: only the tokenizer's files are needed. The caller owns
 * *out; ln_tokenizer_close. LN_EIO: no such model, or no tokenizer.json. LN_EINVALID: a file contradicts
 * itself. LN_EUNSUPPORTED: a tokenizer type or setting that linnet does not know. */
LN_API LN_MUST_CHECK ln_status ln_tokenizer_open(ln_tokenizer **out, const char *model, ln_error *err);
/* Closes the handle. For a borrowed tokenizer (ln_model_tokenizer) it only sets the pointer to NULL. */
LN_API void ln_tokenizer_close(ln_tokenizer **tok);
/* Returns the tokenizer of an open model, so that its files are not read again. Borrowed: it is valid until
 * the model's handle is closed (later uses are LN_EUSAGE; a call that runs meanwhile completes) and needs no
 * close. NULL when the model's handle is closed or NULL; ln_last_error then has the reason. */
LN_API const ln_tokenizer *ln_model_tokenizer(const ln_model *model);
/* Converts a text to ids. Special tokens that occur in the text are recognised; with `add_special` the
 * post-processor's tokens (bos, eos) are added. Writes the first min(*n_ids, cap) ids to ids[cap] and their
 * full count to *n_ids; `ids` may be NULL when cap is 0. LN_EINVALID: the text is not UTF-8. */
LN_API LN_MUST_CHECK ln_status ln_tokenize(const ln_tokenizer *tok, const char *text, size_t bytes,
                                           bool add_special, int32_t *ids, size_t cap, size_t *n_ids,
                                           ln_error *err);
/* Converts n_ids ids to text; with `skip_special`, without special tokens. Writes the first min(*bytes, cap)
 * bytes to text[cap], without a terminator, and the full count to *bytes; `text` may be NULL when cap is 0.
 * An id without a text gives none. LN_EINVALID: an id is negative. */
LN_API LN_MUST_CHECK ln_status ln_detokenize(const ln_tokenizer *tok, const int32_t *ids, size_t n_ids,
                                             bool skip_special, char *text, size_t cap, size_t *bytes,
                                             ln_error *err);

/* Writes the first min(*bytes, cap) bytes of one token to out[cap], without a terminator, and their full
 * count to *bytes, 0 for an id without a text; `out` may be NULL when cap is 0. A token may be a part of a
 * character, so that the bytes need not be UTF-8; those of the tokens of a text, without special tokens, make
 * up the text. *special (which may be NULL): texts leave the token out. */
LN_API LN_MUST_CHECK ln_status ln_token_bytes(const ln_tokenizer *tok, int32_t id, char *out, size_t cap,
                                              size_t *bytes, bool *special, ln_error *err);

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
    const char *dtype;      /* as config.json names it; "" when it does not */
    int bits, group;        /* of quantised weights, columns in a group; 0 when dense */
    int n_files;            /* .safetensors files */
    uint64_t bytes;         /* of these files */
} ln_found;

/* Called for each model directory. */
typedef ln_status ln_found_fn(void *user, const ln_found *found, ln_error *err);

/* Calls `fn` for each model in `dir` and below it: directories with config.json and a .safetensors file, each
 * once; symbolic links are followed. NULL: the models in the Hugging Face cache and the bundled model. A
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
    /* Memory that measuring would take now: 1 GiB, or less where less is available; 0: too little is. */
    uint64_t measure_bytes;
    /* Measured of the GPU, else 0: a copy within its memory, 10^9 bytes read or written a second; a product
     * of bf16 matrices by cuBLAS, operations a second (0, too, where that library is not found). */
    double gpu_copy_gb_s, gpu_flop_s;
} ln_machine;

/* Writes the facts of this machine to *out. With `measure` it also measures the machine's ceilings on
 * n_threads threads (0: the default), which takes about two seconds and measure_bytes of memory. LN_EMEMORY,
 * before anything is taken: measuring needs 576 MiB available, because caches hold smaller buffers. */
LN_API LN_MUST_CHECK ln_status ln_doctor(bool measure, int n_threads, ln_machine *out, ln_error *err);
/* ln_doctor with `measure` where the whole process must not hold more than memory_bytes (0: what the machine
 * allows). LN_EMEMORY, before anything is taken: the limit leaves less than 576 MiB. */
LN_API LN_MUST_CHECK ln_status ln_doctor_within(uint64_t memory_bytes, int n_threads, ln_machine *out,
                                                ln_error *err);

/* Installs a SIGBUS handler, once per process. Some weights are read directly from mapped files, and a file
 * that is truncated while it is mapped raises SIGBUS, which ends the process. With the handler the call that
 * touched the lost pages returns LN_ECHANGED instead. Any other SIGBUS goes to the handler that was installed
 * before. The library installs no signal handler without this call. */
LN_API LN_MUST_CHECK ln_status ln_guard_files(ln_error *err);

/* ---- adapters ---- */

/* The facts of a LoRA adapter. */
typedef struct ln_adapter_info {
    uint32_t size;            /* of the caller's struct: sizeof(ln_adapter_info) */
    char path[4096];          /* absolute, of the directory */
    char layout[16];          /* PEFT, mlx-lm or go-mlx */
    char targets[256];        /* last names of its modules, separated by commas: q_proj,v_proj */
    char digest[65];          /* SHA-256 of all that it adds, in hexadecimal digits */
    int n_modules, n_tensors; /* matrices of the model that it changes, or their biases; its tensors */
    int n_applied;            /* those that add something, or -1 where no model was named */
    int64_t rank_min, rank_max;
    double scale_min, scale_max; /* factor of B A */
    uint64_t n_parameters;
} ln_adapter_info;

/* Reads the adapter in the directory `dir`, as PEFT, mlx-lm or go-mlx writes it, and with `model` (not NULL)
 * checks that every tensor has a place of its shape in that model. LN_EINVALID: the files contradict each
 * other or the model. LN_EUNSUPPORTED: not plain LoRA on layers, or another embedding. LN_EIO. */
LN_API LN_MUST_CHECK ln_status ln_adapter_show(const char *dir, const char *model, ln_adapter_info *out,
                                               ln_error *err);

/* Loads the sum of n_parts (1 .. 16) adapters into an engine that was opened with ln_options.n_adapters,
 * between two of its steps; no weight is read again. Requests use it through ln_prompt.adapter, any number of
 * adapters in one step. A request computes the same bits as alone, and one without adapter those of the plain
 * model. The caller owns *out; ln_adapter_close.
 * LN_EMEMORY: n_adapters are loaded already (ln_adapter_room is 0). LN_EUSAGE: the sum of the ranks is more
 * than ln_options.adapter_rank. LN_EINVALID, LN_EUNSUPPORTED, LN_EIO: as ln_adapter_show. */
LN_API LN_MUST_CHECK ln_status ln_adapter_open(ln_adapter **out, ln_engine *engine,
                                               const ln_adapter_part *parts, size_t n_parts, ln_error *err);
/* How many more adapters the engine has room for now; 0 for a closed handle too. */
LN_API int ln_adapter_room(const ln_engine *engine);
/* Closes the handle. Requests that use the adapter go on; its place is free when the last one is closed. */
LN_API void ln_adapter_close(ln_adapter **adapter);
/* Sets the factor on all that the adapter adds, 1 at first. LN_EUSAGE: an open request uses the adapter, or
 * the factor is not finite. LN_ECHANGED: a file of the adapter changed; it can only be closed then. */
LN_API LN_MUST_CHECK ln_status ln_adapter_set_scale(ln_adapter *adapter, double scale, ln_error *err);
/* Writes the facts of a loaded adapter to *out. Of a sum, path and layout are those of the first part, the
 * digest covers the parts and their factors, and everything else is of all parts together; scales have the
 * factors. */
LN_API LN_MUST_CHECK ln_status ln_adapter_describe(const ln_adapter *adapter, ln_adapter_info *out,
                                                   ln_error *err);

/* ---- fine-tuning ---- */

/* A run that trains a LoRA adapter; the model itself stays as it is. A handle, as an engine is; one thread at
 * a time uses it. */
typedef struct ln_trainer ln_trainer;
typedef enum ln_schedule { LN_SCHEDULE_CONSTANT = 0, LN_SCHEDULE_LINEAR, LN_SCHEDULE_COSINE } ln_schedule;

/* A run before its first step. Bytes: peak is the sum of the six parts; available and limit as in ln_plan.
 * Samples: that train, that validate; longer than max_length, and dropped without a counted target; tokens of
 * the longest; counted tokens of an epoch. Steps: of the whole run; done before it. n_trainable, n_matrices:
 * values and matrices of the adapter. n_rows: tokens of a micro-batch, into which samples are packed.
 * n_recompute: layers whose activations are computed again for the gradients, to save memory. */
typedef struct ln_trainer_info {
    uint32_t size; /* of the caller's struct: sizeof(ln_trainer_info) */
    uint64_t weights_bytes, adapter_bytes, optimizer_bytes, activation_bytes, data_bytes, other_bytes;
    uint64_t peak_bytes, available_bytes;
    const char *limit;
    bool fits;
    uint64_t n_trainable, n_parameters;
    int64_t n_matrices, n_rows, n_samples, n_valid, n_cut, n_dropped, longest, n_steps, step;
    uint64_t n_targets;
    int samples_per_step, n_recompute;
    ln_numerics numerics;
} ln_trainer_info;

/* What is trained, on what, and how. Start from ln_trainer_options_default, which sets the values in
 * brackets. The struct and its texts are borrowed during the call that takes them. */
typedef struct ln_trainer_options {
    uint32_t size; /* of the caller's struct; set by ln_trainer_options_default */
    /* JSONL (docs/training.md): a file, or a directory with train.jsonl and valid.jsonl; samples for
     * validation, NULL: those of the directory; or the share of `data` that validates, 0 .. below 1 [0] */
    const char *data, *valid;
    double valid_split;
    int64_t max_length;  /* tokens of a sample, which is cut to them [2048, at most the model's context] */
    bool no_shuffle;     /* samples in the order of the file in every epoch */
    int rank;            /* of A and B [8] */
    double alpha;        /* B A is multiplied by alpha / rank [16] */
    bool rslora;         /* by alpha / sqrt(rank) instead */
    double dropout;      /* of the input of A, 0 .. below 1 [0] */
    const char *targets; /* q_proj to down_proj with commas between, or all-linear [q_proj,v_proj] */
    bool bf16;           /* A and B are computed with and saved in bf16; the optimiser has f32 values */
    /* Directory of an adapter to begin with, which decides rank, scale and targets; NULL: A is normal with
     * deviation 1 / sqrt(n_in), B is 0. */
    const char *init_adapter;
    double lr, weight_decay; /* of AdamW [1e-4]; decoupled [0.01] */
    double clip;             /* largest norm of the gradient; 0: no limit [1] */
    int batch, accum;        /* a step takes batch * accum samples, `batch` of them at once [4, 1] */
    int64_t epochs, steps;   /* steps 0: as many as `epochs` [1] take */
    int64_t warmup;          /* steps in which the learning rate rises [0]; then `schedule` [constant] */
    ln_schedule schedule;
    uint64_t seed;   /* of the order of samples, A and dropout [0] */
    const char *out; /* directory of the result, checkpoints and metrics; NULL: nothing is written */
    /* Steps between validations, 0: at the end of each epoch and of the run [0]; between checkpoints, 0: only
     * at the end [100]. */
    int64_t eval_every, save_every;
    int keep, early_stop; /* checkpoints that stay [2, the least]; validations without a better loss that end
                             the run, 0: off [0] */
    bool resume;          /* continue the run in `out` at its last checkpoint */
    /* Called by ln_trainer_new before it takes the memory; a status but LN_OK ends it. NULL: not called. */
    ln_status (*on_plan)(void *user, const ln_trainer_info *plan, ln_error *err);
    void *user;
} ln_trainer_options;
LN_DEFAULT(ln_trainer_options)

/* Reads the data and writes the plan to *out. Errors: those of ln_trainer_new but LN_EMEMORY: out->fits. */
LN_API LN_MUST_CHECK ln_status ln_trainer_plan(ln_model *model, const ln_options *opt,
                                               const ln_trainer_options *how, ln_trainer_info *out,
                                               ln_error *err);
/* Gives the first sample of how->data; mask 1: the token counts as a target. Overwrites *out. */
LN_API LN_MUST_CHECK ln_status ln_training_sample(ln_model *model, const ln_trainer_options *how,
                                                  ln_token_mask *out, ln_error *err);
/* Reads and checks the data, loads the model and makes a run ready for its next step. Of `opt` (NULL: the
 * defaults) numerics, device, n_threads, memory_bytes and progress count. The caller owns *out.
 *
 * LN_EINVALID: bad lines (the first 20 are logged), nothing to learn, an initial adapter that does not fit,
 * all checkpoints damaged, or of other data or another model. LN_EUSAGE: an option out of its range, or not
 * that of the checkpoint. LN_EIO: `out` holds a run and how->resume is false, another process writes it, or
 * it cannot be written. LN_EMEMORY, before anything is taken: the plan does not fit. LN_EUNSUPPORTED. */
LN_API LN_MUST_CHECK ln_status ln_trainer_new(ln_trainer **out, ln_model *model, const ln_options *opt,
                                              const ln_trainer_options *how, ln_error *err);
LN_API void ln_trainer_free(ln_trainer **trainer);
LN_API LN_MUST_CHECK ln_status ln_trainer_get_info(const ln_trainer *trainer, ln_trainer_info *out,
                                                   ln_error *err);

/* One step. step, steps: done, from 1; of the whole run. epoch: epochs that are done. loss: mean over the
 * counted targets, before the update; grad_norm: its gradient's, before clipping. tokens: of the samples;
 * n_targets: those that count. skipped: loss or gradient was not finite, and nothing was updated. */
typedef struct ln_step_report {
    uint32_t size; /* sizeof(ln_step_report) */
    int64_t step, steps, tokens, n_targets;
    double epoch, loss, lr, grad_norm, seconds, tok_s;
    uint64_t peak_bytes; /* maximum resident memory of the process so far */
    bool skipped;
} ln_step_report;
/* A validation: mean loss over all counted targets, exp(loss); whether it is the lowest so far. */
typedef struct ln_valid_report {
    uint32_t size; /* sizeof(ln_valid_report) */
    int64_t step;
    double loss, perplexity;
    bool best;
} ln_valid_report;
/* Runs one step, then AdamW. The third step in a row without a finite loss and gradient, and each after it,
 * is LN_ENUMERIC. LN_EUSAGE: all steps are done. The caller sets out->size. */
LN_API LN_MUST_CHECK ln_status ln_trainer_step(ln_trainer *trainer, ln_step_report *out, ln_error *err);
/* Validates (LN_EUSAGE: no samples); writes a checkpoint of the last step below `out`/checkpoints, whole or
 * not at all. */
LN_API LN_MUST_CHECK ln_status ln_trainer_eval(ln_trainer *trainer, ln_valid_report *out, ln_error *err);
LN_API LN_MUST_CHECK ln_status ln_trainer_save(ln_trainer *trainer, ln_error *err);
/* Goes back, or on, to the last valid checkpoint in `out`; *step: its number, 0 where there is none. */
LN_API LN_MUST_CHECK ln_status ln_trainer_resume(ln_trainer *trainer, int64_t *step, ln_error *err);
/* Writes the adapter as it is now to `dir` in PEFT's layout, with the chat template. LN_EIO. */
LN_API LN_MUST_CHECK ln_status ln_trainer_export(ln_trainer *trainer, const char *dir, ln_error *err);
/* A or B of matrix i / 2, i < 2 n_matrices: its name in PEFT's layout and its values, f32 [rows, cols],
 * borrowed until the trainer is freed; they change with each step. */
typedef struct ln_trained {
    const char *name;
    int64_t rows, cols;
    const float *values;
} ln_trained;
LN_API LN_MUST_CHECK ln_status ln_trainer_matrix(const ln_trainer *trainer, size_t i, ln_trained *out,
                                                 ln_error *err);

/* Called by ln_trainer_run; NULL: not called. LN_ECANCELLED ends the run after a checkpoint is saved. */
typedef struct ln_trainer_events {
    uint32_t size; /* sizeof(ln_trainer_events) */
    void *user;
    ln_status (*on_step)(void *user, const ln_step_report *report, ln_error *err);
    ln_status (*on_valid)(void *user, const ln_valid_report *report, ln_error *err);
} ln_trainer_events;
typedef struct ln_trainer_result {
    uint32_t size;            /* of the caller's struct: sizeof(ln_trainer_result) */
    int64_t steps, best_step; /* done; of the lowest validation loss, 0: there was none */
    double best_loss;
    bool stopped_early, cancelled; /* by early_stop; by a callback */
} ln_trainer_result;
/* Runs the steps that are left, with validations and checkpoints in between. Writes below `out` the adapter
 * of the last step, that of the lowest validation loss (best/), checkpoints/, metrics.jsonl and loss.svg.
 * `events` NULL: none. Errors: those of ln_trainer_step, _eval and _save; the last checkpoint is intact. */
LN_API LN_MUST_CHECK ln_status ln_trainer_run(ln_trainer *trainer, const ln_trainer_events *events,
                                              ln_trainer_result *out, ln_error *err);

/* ---- backends: whole models behind one table of functions ---- */

/* What a backend is given when it loads a model. */
typedef struct ln_backend_options {
    uint32_t size; /* set by ln_backend_options_default */
    /* native: all of it. mlx_lm: n_ctx (0: the model's maximum), n_chunk and progress; any other field that
     * is set is LN_EUSAGE. NULL: the defaults. */
    const ln_options *options;
    const char *adapter;  /* directory of a LoRA adapter; NULL: none, or options->adapter */
    double adapter_scale; /* factor on the scale that the adapter itself states; 1 by default */
    /* mlx_lm: the Python interpreter, or the directory of a virtual environment; NULL: python3 on PATH. */
    const char *python;
    /* mlx_lm: the most seconds that starting Python and loading may take (0: 600), and that the process may
     * be silent while it answers (0: 120). */
    double load_seconds, reply_seconds;
} ln_backend_options;
LN_DEFAULT(ln_backend_options)

/* Where a backend puts what it generates, and how it learns that it shall stop. Made by the library; the
 * functions copy what they are given. A status that is not LN_OK ends the generation: the backend returns it,
 * but for LN_ECANCELLED, after which it returns LN_OK with finish LN_FINISH_CANCELLED. */
typedef struct ln_backend_sink {
    uint32_t size;
    void *user; /* the first argument of the functions */
    /* The prompt's token ids, in one or several parts, before the first token; a backend without tokens
     * leaves it out. */
    ln_status (*on_prompt)(void *user, const int32_t *ids, size_t n_ids, ln_error *err);
    /* A generated token, without the stop token. */
    ln_status (*on_token)(void *user, int32_t id, ln_error *err);
    /* The next piece of the answer or of its reasoning: complete characters, no part of a stop text. */
    ln_status (*on_text)(void *user, const char *text, size_t bytes, bool reasoning, ln_error *err);
    /* Whether ln_backend_cancel asks to stop; to be called before each token and at least every 50 ms while a
     * backend waits. Takes no lock. */
    bool (*stopped)(void *user);
} ln_backend_sink;

/* How a generation ended: the fields of ln_result of these names. Set to STOP, zero and -1 beforehand. */
typedef struct ln_backend_end {
    uint32_t size;
    ln_finish finish;
    uint64_t seed;
    int32_t stop_id;
    int stop_text;
    ln_metrics metrics;
} ln_backend_end;

/* The functions of a backend. `user` is that of the table, `model` what load stored. The library checks the
 * ranges of a sampling, the backend its prompts; a field that it does not honour it refuses by name. NULL
 * where a comment says so: the library then answers LN_EUNSUPPORTED in its place. What the functions are
 * given has the library's `size`, which they leave as it is: a backend writes no field of *out or an end
 * beyond it, and takes it for the distance of the elements of an array. */
typedef struct ln_backend {
    uint32_t size;    /* sizeof(ln_backend) of the program that registers it */
    const char *name; /* 1 to 31 of a-z, 0-9, _ and - */
    const char *what; /* one line for people */
    void *user;
    /* Calls on one model may run at the same time. False: the library runs one at a time. */
    bool concurrent;
    /* LN_OK, or why no model can be loaded here. NULL: always available. */
    ln_status (*available)(void *user, const ln_backend_options *opt, ln_error *err);
    ln_status (*load)(void **model, void *user, const char *path, const ln_backend_options *opt,
                      ln_error *err);
    void (*close)(void *model); /* after the last call has returned */
    /* A text or ids (generate) and a conversation (chat: prompt->messages or ->request); chat may be NULL. */
    ln_status (*generate)(void *model, const ln_prompt *prompt, const ln_sampling *sampling,
                          const ln_backend_sink *sink, ln_backend_end *end, ln_error *err);
    ln_status (*chat)(void *model, const ln_prompt *prompt, const ln_sampling *sampling,
                      const ln_backend_sink *sink, ln_backend_end *end, ln_error *err);
    /* As ln_classify and ln_inspect_keys; of the sink only `stopped` is used. Both may be NULL. */
    ln_status (*classify)(void *model, const ln_prompt *prompts, size_t n, const ln_classify_options *opt,
                          ln_class_fn *fn, void *user, const ln_backend_sink *sink, ln_metrics *metrics,
                          ln_error *err);
    ln_status (*inspect)(void *model, const int32_t *ids, size_t n_ids, ln_keys_fn *fn, void *user,
                         const ln_backend_sink *sink, ln_error *err);
    /* Answers n prompts, several at once where the backend can; sinks[i] and ends[i] belong to prompt i,
     * status[i] becomes its error, with a message in errors[i]. NULL: generate or chat, one after another. */
    ln_status (*batch)(void *model, const ln_prompt *prompts, size_t n, const ln_sampling *sampling,
                       const ln_backend_sink *sinks, ln_backend_end *ends, ln_error *errors, ln_error *err);
    /* Facts of the model, and its own defaults of sampling, valid until close. NULL: none, greedy. */
    ln_status (*info)(void *model, ln_info *out, ln_error *err);
    ln_status (*defaults)(void *model, ln_sampling *out, ln_error *err);
    /* Interrupts the calls that run, from another thread; for backends that cannot ask sink->stopped. It is
     * called once for each running call, at most 20 ms after ln_backend_cancel. May be NULL. */
    void (*cancel)(void *model);
} ln_backend;

/* Adds a backend for the rest of the process; the table and its texts are copied. LN_EUSAGE: a name that is
 * taken or has other characters, or a table without load, close or generate. Backends are never removed. Any
 * thread may call this and the next three at any time. */
LN_API LN_MUST_CHECK ln_status ln_backend_register(const ln_backend *backend, ln_error *err);
/* The backend of that name, as the library keeps it, or NULL. Borrowed for ever. */
LN_API const ln_backend *ln_backend_get(const char *name);
/* The first backend that is available, in the order of their registration: "native", which always is, before
 * "mlx_lm" and all others. `opt` NULL: the defaults. LN_EUNSUPPORTED: none is; the message says why. */
LN_API LN_MUST_CHECK ln_status ln_backend_default(const ln_backend **out, const ln_backend_options *opt,
                                                  ln_error *err);
/* Called for each backend; `why` is NULL where it is available, else the reason. No lock is held. */
typedef ln_status ln_backend_fn(void *user, const ln_backend *backend, const char *why, ln_error *err);
/* Calls `fn` for all backends in the order of their registration. `opt` NULL: the defaults. Whether mlx_lm is
 * available takes a start of Python, a fraction of a second. */
LN_API LN_MUST_CHECK ln_status ln_backend_list(const ln_backend_options *opt, ln_backend_fn *fn, void *user,
                                               ln_error *err);

/* A model that a backend has loaded: a handle, as an engine is. */
typedef struct ln_backend_model ln_backend_model;

/* Loads `model` with the backend of that name (NULL: the default). The caller owns *out; ln_backend_close.
 * LN_EUSAGE: no such backend. Otherwise the errors of the backend: those of ln_model_open and ln_engine_open;
 * mlx_lm: LN_EIO: no such interpreter, or the process ended; LN_EUNSUPPORTED: the interpreter has no mlx-lm,
 * or mlx-lm refuses the model. Messages quote what the process wrote to its standard error. */
LN_API LN_MUST_CHECK ln_status ln_backend_load(ln_backend_model **out, const char *backend, const char *model,
                                               const ln_backend_options *opt, ln_error *err);
/* Closes the handle and asks running calls to stop. A second close of a copy of the pointer does nothing. */
LN_API void ln_backend_close(ln_backend_model **model);
/* As ln_generate. Errors of mlx_lm besides: LN_EIO: the process ended, said nothing for reply_seconds or sent
 * what is no message; the model can only be closed then. LN_EUNSUPPORTED: a field that it does not honour. */
LN_API LN_MUST_CHECK ln_status ln_backend_generate(ln_backend_model *model, const ln_prompt *prompt,
                                                   const ln_sampling *sampling, ln_text_fn *on_text,
                                                   void *user, ln_result *out, ln_error *err);
/* The same for a conversation: prompt->messages or prompt->request. */
LN_API LN_MUST_CHECK ln_status ln_backend_chat(ln_backend_model *model, const ln_prompt *prompt,
                                               const ln_sampling *sampling, ln_text_fn *on_text, void *user,
                                               ln_result *out, ln_error *err);
/* Answers n prompts of either kind. results[i] and errors[i] (code LN_OK, or why prompt i failed) belong to
 * prompt i; the caller sets the same `size` in all results and frees each with ln_result_free. An error of
 * the call itself ends it; the results are defined then too. After ln_backend_cancel it returns LN_OK, and
 * prompts without an answer have the finish LN_FINISH_CANCELLED. */
LN_API LN_MUST_CHECK ln_status ln_backend_batch(ln_backend_model *model, const ln_prompt *prompts, size_t n,
                                                const ln_sampling *sampling, ln_result *results,
                                                ln_error *errors, ln_error *err);
/* As ln_batch, one request after another. A row that asks for log-probabilities or for an echo of its prompt
 * gets an error. */
LN_API LN_MUST_CHECK ln_status ln_backend_batch_file(ln_backend_model *model, const char *in, const char *out,
                                                     const ln_batch_options *opt, ln_batch_report *report,
                                                     ln_error *err);
/* As ln_classify, ln_inspect_keys, ln_model_info and ln_sampling_default. */
LN_API LN_MUST_CHECK ln_status ln_backend_classify(ln_backend_model *model, const ln_prompt *prompts,
                                                   size_t n, const ln_classify_options *opt, ln_class_fn *fn,
                                                   void *user, ln_metrics *metrics, ln_error *err);
LN_API LN_MUST_CHECK ln_status ln_backend_inspect(ln_backend_model *model, const int32_t *ids, size_t n_ids,
                                                  ln_keys_fn *fn, void *user, ln_error *err);
LN_API LN_MUST_CHECK ln_status ln_backend_info(ln_backend_model *model, ln_info *out, ln_error *err);
LN_API LN_MUST_CHECK ln_status ln_backend_sampling(ln_backend_model *model, ln_sampling *out, ln_error *err);
/* The measurements of the last call that finished; zero before the first. */
LN_API LN_MUST_CHECK ln_status ln_backend_metrics(ln_backend_model *model, ln_metrics *out, ln_error *err);
/* As ln_cancel: sets or clears the request to stop; async-signal-safe. */
LN_API void ln_backend_cancel(ln_backend_model *model, bool stop);

/* ---- programs and their speed ---- */

/* One node (operation) of a model's program. */
typedef struct ln_node_report {
    int index, stage, layer;      /* threads synchronise between stages; layer -1: outside the layers */
    const char *op, *kernel;      /* kernel: the ISA level it was written for */
    const char *makes, *reads;    /* outputs and inputs with their shapes: layers.0.attn.q[T,2048] */
    double flops, bytes, seconds; /* ln_explain: of one step; else 0 */
    /* ln_diff: the largest absolute difference of an output element from the reference's, and the largest
     * that is allowed. Where the summation order is free and the sum is rounded to bf16, one rounding step of
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

/* Runs a step of n_rows tokens (1: decoding; 0: a full chunk of n_chunk) at positions depth, depth + 1, ...,
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

#define LN_BENCH_STREAMS 64 /* maximum number of streams of a benchmark */
/* PREFILL: a prompt. DECODE: one sequence after a text. STREAMS: several sequences decoded in one batch. */
typedef enum ln_work { LN_WORK_PREFILL = 0, LN_WORK_DECODE, LN_WORK_STREAMS } ln_work;

/* What to measure. Start from ln_bench_options_default; a zero field means its default. Borrowed during the
 * call. */
typedef struct ln_bench_options {
    uint32_t size;         /* of the caller's struct; set by ln_bench_options_default */
    int64_t n_prefill;     /* tokens of the prompt; 0: 512, or the model's maximum where that is less */
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
    int streams;        /* sequences; 1 but for LN_WORK_STREAMS */
    double tok_s;       /* tokens per second of all streams together */
    double bytes_token; /* bytes of weights, keys and values that must be read for each token */
    double flops_token; /* floating-point operations that each token needs */
} ln_bench_row;

/* Called for each row as it is measured. */
typedef ln_status ln_bench_fn(void *user, const ln_bench_row *row, ln_error *err);

typedef struct ln_bench_report {
    uint32_t size; /* of the caller's struct: sizeof(ln_bench_report) */
    /* load: of opening model and engine; first_token: median time from the start of the prefill row's prompt
     * to the first token after it */
    double load_seconds, first_token_seconds;
    uint64_t peak_bytes; /* maximum resident memory of the process so far */
    ln_numerics numerics;
    int n_threads;
    char isa[32]; /* ISA level of the kernels */
} ln_bench_report;

/* Measures tokens per second on engines that it opens on `model` with `opt`: the prompt, then each depth,
 * then each number of streams. The prompt is run once before it is timed. `how` must not be NULL. ln_doctor
 * measures the ceilings to compare with. A number of streams that does not fit in memory is skipped, which is
 * logged as a warning. Errors: those of ln_engine_open; LN_EUSAGE: a count is beyond the model's context. */
LN_API LN_MUST_CHECK ln_status ln_bench(const ln_model *model, const ln_options *opt,
                                        const ln_bench_options *how, ln_bench_fn *fn, void *user,
                                        ln_bench_report *out, ln_error *err);

/* ---- quantised weights ---- */

/* A width of their own for some matrices: every matrix whose module path is `name` or contains it between
 * dots (lm_head, down_proj, layers.0). Where the output head is tied to the embedding table, lm_head means
 * that table. */
typedef struct ln_keep {
    const char *name;
    int bits; /* 2, 3, 4, 5, 6 or 8; 16: the matrix stays dense */
} ln_keep;

/* Start from ln_quantize_options_default; a zero field means its default. Borrowed during the call. */
typedef struct ln_quantize_options {
    uint32_t size;       /* of the caller's struct; set by ln_quantize_options_default */
    int bits, group;     /* bits: 2, 3, 4, 5, 6, 8; group: 32, 64, 128 columns; 0: 4 and 64 */
    const ln_keep *keep; /* [n_keep]; of several entries that match a matrix the last one holds */
    size_t n_keep;
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
    /* rms_error: root mean square of the weights' errors, relative to that of the weights; max_error: the
     * largest absolute error of a weight */
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
 * LN_EUNSUPPORTED: the model is quantised already, or no matrix can be quantised. LN_EUSAGE: a keep entry
 * matches no matrix, or `out` contains the model. LN_EIO: `out` exists and is not
 * empty (`force` replaces a model directory, nothing else), or it cannot be written. LN_ENUMERIC: a
 * weight is NaN or infinite. Other errors: as for ln_model_open. */
LN_API LN_MUST_CHECK ln_status ln_quantize(const char *model, const char *out, const ln_quantize_options *opt,
                                           ln_quantized_fn *fn, void *user, ln_error *err);

/* Start from ln_fuse_options_default; a zero field but `scale` is its default. Borrowed during the call. */
typedef struct ln_fuse_options {
    uint32_t size;   /* of the caller's struct; set by ln_fuse_options_default */
    double scale;    /* factor on the scale that the adapter itself states; finite; 1 by default */
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

/* ---- graphs: gradients of a computation that the caller builds ---- */

/* A graph of values, each a matrix [rows, cols] of f32; a scalar is [1, 1]. Builders return the number of the
 * new value, -1 after a mistake: the first one is kept, and every later call that returns a status returns it
 * (LN_EUSAGE, with the shapes). Values need not be used, and building may go on after a run. One thread at a
 * time uses a graph. */
typedef struct ln_graph ln_graph;
/* Makes an empty graph. `opt` NULL: the defaults; device and n_threads are read. The caller owns *out;
 * ln_graph_free. LN_EDEVICE: there is no such device. */
LN_API LN_MUST_CHECK ln_status ln_graph_new(ln_graph **out, const ln_options *opt, ln_error *err);
LN_API void ln_graph_free(ln_graph **graph);

/* Values with data: an input; a trainable, which ln_graph_adamw may change; class labels [rows, 1], int32. */
LN_API int32_t ln_graph_input(ln_graph *graph, int64_t rows, int64_t cols);
LN_API int32_t ln_graph_trainable(ln_graph *graph, int64_t rows, int64_t cols);
LN_API int32_t ln_graph_labels(ln_graph *graph, int64_t rows);
/* Elementwise, of values of one shape: a + b, a - b, a * b, a * by, a * a, SiLU, GELU in its tanh form. */
LN_API int32_t ln_graph_add(ln_graph *graph, int32_t a, int32_t b);
LN_API int32_t ln_graph_sub(ln_graph *graph, int32_t a, int32_t b);
LN_API int32_t ln_graph_mul(ln_graph *graph, int32_t a, int32_t b);
LN_API int32_t ln_graph_scale(ln_graph *graph, int32_t a, float by);
LN_API int32_t ln_graph_square(ln_graph *graph, int32_t a);
LN_API int32_t ln_graph_silu(ln_graph *graph, int32_t a);
LN_API int32_t ln_graph_gelu(ln_graph *graph, int32_t a);
/* a[R, C] b[C, D] -> [R, D]; softmax of each row; sum and mean of all elements, [1, 1]. */
LN_API int32_t ln_graph_matmul(ln_graph *graph, int32_t a, int32_t b);
LN_API int32_t ln_graph_softmax(ln_graph *graph, int32_t a);
LN_API int32_t ln_graph_sum(ln_graph *graph, int32_t a);
LN_API int32_t ln_graph_mean(ln_graph *graph, int32_t a);
/* Losses, [1, 1]: the mean over rows of log sum exp(logits) - logits[label]; the same weighted by an input
 * mask[rows, 1], divided by its sum (a run refuses a mask whose sum is 0 with LN_EINVALID); the mean of (a -
 * b)^2. */
LN_API int32_t ln_graph_cross_entropy(ln_graph *graph, int32_t logits, int32_t labels);
LN_API int32_t ln_graph_masked_cross_entropy(ln_graph *graph, int32_t logits, int32_t labels, int32_t mask);
LN_API int32_t ln_graph_mse(ln_graph *graph, int32_t a, int32_t b);

/* Copies data [rows * cols] into an input or a trainable, labels [rows] into labels (each from 0 below the
 * columns of the logits, else a run is LN_EINVALID), and out of an input or a trainable. */
LN_API LN_MUST_CHECK ln_status ln_graph_set(ln_graph *graph, int32_t value, const float *data, ln_error *err);
LN_API LN_MUST_CHECK ln_status ln_graph_set_labels(ln_graph *graph, int32_t value, const int32_t *labels,
                                                   ln_error *err);
LN_API LN_MUST_CHECK ln_status ln_graph_get(ln_graph *graph, int32_t value, float *out, ln_error *err);

/* Computes y into value (its rows * cols elements; NULL: not wanted), and for each of n values wrt[i] the
 * gradient of the scalar y into grads[i], of the shape of wrt[i]; zeros where y does not depend on it. n 0: y
 * alone, which may then have any shape. The first call for the same y and wrt prepares a program, which later
 * calls use. */
LN_API LN_MUST_CHECK ln_status ln_graph_value_and_grad(ln_graph *graph, int32_t y, const int32_t *wrt,
                                                       size_t n, float *value, float *const *grads,
                                                       ln_error *err);
/* The vector-Jacobian product: gradients of the sum of cotangent * y, cotangent having the shape of y. */
LN_API LN_MUST_CHECK ln_status ln_graph_vjp(ln_graph *graph, int32_t y, const float *cotangent,
                                            const int32_t *wrt, size_t n, float *value, float *const *grads,
                                            ln_error *err);
/* The Jacobian-vector product: the derivative of y in the direction tangents[i] of each wrt[i], into
 * `tangent`, of the shape of y. LN_EUNSUPPORTED: an op, which the message names, has no rule for it. */
LN_API LN_MUST_CHECK ln_status ln_graph_jvp(ln_graph *graph, int32_t y, const int32_t *wrt,
                                            const float *const *tangents, size_t n, float *value,
                                            float *tangent, ln_error *err);

/* AdamW, decoupled decay: m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2; p = p (1 - lr
 * weight_decay) - lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps). */
typedef struct ln_adamw {
    uint32_t size;
    double lr, beta1, beta2, eps, weight_decay;
} ln_adamw;
LN_DEFAULT(ln_adamw) /* lr 1e-5, beta1 0.9, beta2 0.999, eps 1e-8, weight_decay 0.01 */
/* Updates n different trainables by their gradients. The graph keeps the moments of each and the number t of
 * calls. LN_ENUMERIC: a gradient, or what would become of a value, is NaN or infinite; nothing is updated. */
LN_API LN_MUST_CHECK ln_status ln_graph_adamw(ln_graph *graph, const ln_adamw *how, const int32_t *params,
                                              const float *const *grads, size_t n, ln_error *err);
/* Forgets the moments and the number of calls. */
LN_API LN_MUST_CHECK ln_status ln_graph_adamw_reset(ln_graph *graph, ln_error *err);

#ifdef __cplusplus
}
#endif
#endif
