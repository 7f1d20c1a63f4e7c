/* linnet - runs, serves, fine-tunes and inspects language models that are stored in Hugging Face layout.
 *
 * The library has four headers, one for each kind of reader. This one is for programs that generate text, in
 * this order: errors, log, options, models, the memory plan, generating, many requests at once, tokenizers,
 * LoRA adapters, files that change. Each of the others includes it:
 *   linnet_tools.h    scoring, classifying, embedding, files of requests, chat templates, the machine,
 *                     programs node by node, benchmarks, quantising, fusing adapters
 *   linnet_train.h    fine-tuning, loss masks, gradients of graphs that the caller builds
 *   linnet_backend.h  whole models behind one table of functions
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

#define LN_VERSION "0.2.0"

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
    LN_EIO = 5,          /* the operating system failed: file absent, permission denied, disk full */
    LN_EMEMORY = 6,      /* more memory is needed than is available or than was allowed */
    LN_EDEVICE = 7,      /* the device does not exist or was lost */
    LN_ENUMERIC = 8,     /* NaN or infinity instead of a finite value */
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
/* How keys and values are stored. AUTO: as the numerics compute, f32 or bf16. Q8: in 8 bits, which takes half
 * the memory of bf16 (docs/memory.md). */
typedef enum ln_kv_type { LN_KV_AUTO = 0, LN_KV_F32, LN_KV_BF16, LN_KV_Q8 } ln_kv_type;
/* LN_DEVICE_CUDA: an NVIDIA GPU (docs/cuda.md). LN_DEVICE_MLX: dense models on MLX (docs/mlx.md). Both are
 * plug-ins; opening them fails with LN_EDEVICE and says what is missing. LN_DEVICE_AUTO: CUDA if it can be
 * opened, else the CPU; the log has the choice. LN_DEVICE_REF: plain C kernels on one thread. */
typedef enum ln_device { LN_DEVICE_AUTO, LN_DEVICE_REF, LN_DEVICE_CPU, LN_DEVICE_CUDA,
                         LN_DEVICE_MLX } ln_device;
/* How a prompt's text is read. AUTO: through the chat template if the directory ships one, else raw. RAW: as
 * text to be continued. CHAT: through the chat template, else the family's built-in template. */
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
 * LN_EUSAGE: the size is 0, as in a struct that is not from X_default, or an unknown byte is not zero.
 *
 * If a struct that the library fills begins with `size`, the caller sets it to its sizeof (LN_EUSAGE
 * otherwise). An older caller gets the fields that it knows. Fields of a newer caller that the library does
 * not know are set to zero. All elements of an array have the `size` of the first (docs/decisions/028). */

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
 * and a finite factor on all that it adds. With a factor of 1 it is used as trained. */
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
    /* 4 or 8: dense matrices are quantised when the model is loaded, in groups of 64 columns. 0: weights
     * stay as stored. Decided by ln_model_open; an engine may only repeat the model's value. */
    int quantize_bits;
    int n_threads; /* 0: the physical cores within affinity mask and cgroup quota; at most 256 are used */
    /* Positions of a sequence's context: prompt and generated tokens, the last of which needs none. 0:
     * min(the model's maximum, max(4096, n_expected)). More than the model's maximum is LN_EUSAGE. */
    int64_t n_ctx;
    /* Prompt and generated tokens that the caller means to use. If n_ctx is 0, it raises that default, and
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
    /* Name of one of the model's chat templates, or path of a file; NULL: the model's default template. */
    const char *chat_template;
    /* Keep all positions of layers with a sliding window in the KV cache; ln_inspect_keys needs it. */
    bool keep_full_kv;
    ln_progress progress;
    /* The most bytes of the pool of KV pages, which all sequences share; 0: no such limit. The pool holds
     * one context of n_ctx positions, and with n_parallel above 1 up to n_parallel contexts: as many pages
     * as kv_bytes and the limit of memory leave. If the caller gives neither kv_bytes nor a limit, the pool
     * takes at most half of what the machine leaves. Less than one context is LN_EMEMORY. */
    uint64_t kv_bytes;
    /* Requests that wait for a sequence, at most 1048576, for whose prompts of n_ctx tokens memory is
     * planned. More may wait as long as the limit leaves memory for them. */
    int n_queue;
    /* [n_adapter_parts], at most 16: the adapter of every request that names none, the sum of these. It is
     * loaded when an engine is opened and stays. */
    const ln_adapter_part *adapter;
    size_t n_adapter_parts;
    /* How many adapters ln_adapter_open may load in addition, at most 1024, and their largest rank, at most
     * 4096; 0: 16, or that of `adapter` if it is larger. Their memory is taken when an engine is opened. */
    int n_adapters, adapter_rank;
    bool embeddings; /* the memory of ln_embed is planned, and taken at the start, not at the first call */
    /* The most bytes that are planned for texts: bodies, renderings and token ids while prompts are read. At
     * least 1 MiB, 32 bytes a position of n_ctx and 8 KiB for each of n_queue are planned; more of text_bytes
     * only within a quarter of what the limit leaves. 0: the least. */
    uint64_t text_bytes;
    int64_t pool_positions; /* most positions of the KV pool, if below n_parallel contexts; 0: no limit */
    bool adapter_experts; /* adapters that are loaded later may have LoRA on experts, which takes memory */
    /* Tokens, at most 64, that a step computes ahead for a request if its text repeats itself; texts and
     * log-probabilities are the same (docs/lookup.md). 0: none. */
    int n_lookup;
    const char *add_tokens; /* texts with commas between, of tokens that training adds; NULL: none */
    ln_kv_type kv_type;     /* F32 goes with LN_EXACT only, BF16 with LN_FAST only */
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
 * Order: logit bias and ignore_eos, repeat penalty, presence and frequency penalties, forbidden tokens. Then
 * argmax if temperature is 0 or top_k is 1; otherwise temperature, top-k, top-p of what top-k keeps, min-p,
 * and a sample, which is argmax(logit + Gumbel noise) with noise from Philox(seed, position, id). */
typedef struct ln_sampling {
    uint32_t size;      /* of the caller's struct: sizeof(ln_sampling) */
    double temperature; /* 0: greedy, the lowest id on ties; at most 1e6 */
    int top_k;          /* candidates to keep; 0: off */
    double top_p;       /* probability mass to keep, 0 .. 1; 1: off */
    double min_p;       /* least probability relative to the likeliest token's, 0 .. 1; 0: off */
    /* Divides positive logits, multiplies negative ones, of tokens of the prompt and the answer; 1: off. */
    double repeat_penalty;
    int repeat_last; /* how many of the last tokens repeat_penalty looks at (0: off, -1: all) */
    /* -100 .. 100. Over generated tokens: logit -= presence_penalty + frequency_penalty * occurrences */
    double presence_penalty;
    double frequency_penalty;
    const ln_logit_bias *bias; /* [n_bias] */
    size_t n_bias;
    /* [n_stop], at most 16 texts of 1 to 1024 bytes, NUL-terminated. Generation ends where one of them
     * occurs in the text, which excludes it. A stop text that is one special token ends generation at that
     * token. What counts is the generated text: an occurrence that begins in the prompt, which would end
     * generation in transformers, does not. The text leaves special tokens out: a stop text that contains
     * one and other text never occurs, and ln_generate logs a warning about it. */
    const char *const *stop;
    size_t n_stop;
    bool ignore_eos; /* the logits of the model's stop ids that `stop` does not name become minus infinity */
    bool has_seed;   /* false: the seed comes from the system; ln_result.seed has it */
    uint64_t seed;
    /* The most tokens to generate. 0: none. -1: to the end of the context after a chat template, else 256. */
    int64_t n_max;
    bool has_think_budget; /* false: reasoning is not limited */
    /* Tokens of reasoning after which its closing delimiter is appended; 0: the model answers at once. */
    int64_t think_budget;
    /* Receives the reasoning piece by piece, with the `user` argument of the call. NULL: ln_result has it. */
    ln_text_fn *on_reasoning;
    /* What the model's generation_config.json forbids, as the logits processors of transformers define it:
     * the logits become minus infinity. ln_sampling_default points these fields into the model; they are
     * valid until the model and its engines are closed. Zero: nothing is forbidden. */
    const int32_t *suppress; /* [n_suppress] suppress_tokens: ids that are never generated */
    size_t n_suppress;
    const int32_t *begin_suppress; /* [n_begin_suppress] begin_suppress_tokens: not as the first token */
    size_t n_begin_suppress;
    /* [n_bad_words] bad_words_ids: the last id must not follow the others; single stop ids are ignored */
    const ln_id_list *bad_words;
    size_t n_bad_words;
    /* no_repeat_ngram_size: no sequence of this many tokens of prompt and text occurs twice. 0: off. */
    int64_t no_repeat_ngram;
    int64_t min_new;               /* min_new_tokens: no stop id before this many tokens are generated */
    const char *const *model_stop; /* [n_model_stop] stop_strings: stop texts in addition to `stop` */
    size_t n_model_stop;
    const int32_t *stop_ids; /* [n_stop_ids] ids that end the generation, as the model's stop ids do */
    size_t n_stop_ids;
    /* Calls of the tools of ln_prompt.request, in the format that the chat template asks the model for: they
     * are split off the text, to LN_EVENT_TOOL_ARGUMENTS, LN_EVENT_TOOL_CALL and ln_result.tool_calls. A call
     * that the model has begun is held to that format, to the names of the tools and to their schemas. A
     * keyword that is not supported there is LN_EINVALID, naming tool and place; with AUTO and "strict":
     * false in the tool's definition its arguments are any object instead. With `grammar` the answer matches
     * the grammar, or is calls; REQUIRED excludes `grammar`. */
    ln_tool_choice tool_choice;
    /* [n_tool_names] tools that may be called; a call of another one is text. None: all of the request. */
    const char *const *tool_names;
    size_t n_tool_names;
    bool single_tool_call; /* generation ends after the first call */
    /* [grammar_bytes] The grammar of the answer, an expression in JSON (docs/structured.md); NULL: the answer
     * is free. An expression is
     *   {"schema": S}         a JSON value that meets the JSON schema S ("open": true as a second member: as
     *                         the standard reads S, with other properties and types than those it names),
     *   {"text": "..."}       this text; a JSON string alone means the same,
     *   {"regex": "..."}      a text that the regular expression matches as a whole,
     *   {"grammar": "..."}    a text of a grammar in GBNF or Lark's EBNF,
     *   {"token": "..."}      the special token of this name, which gives no text,
     *   {"sequence": [E...]}  expressions one after the other,
     *   {"choice": [E...]}    one of them,
     *   {"repeat": E, "min": 0, "max": N}  E so many times; without max any number.
     * Tokens that do not continue a match are excluded before the bias is added to the logits; generation
     * ends when nothing may follow. Reasoning is free, and the grammar applies after it. A cancelled answer,
     * or one that n_max or a stop text ends, is the beginning of a match. Borrowed during the call. */
    const char *grammar;
    size_t grammar_bytes;
} ln_sampling;

/* Checks an ln_sampling.grammar of `bytes` bytes. LN_EINVALID: it is malformed, no text matches it, or
 * a keyword is not supported; the message begins with its place, as in "schema.properties.a.contains". */
LN_API LN_MUST_CHECK ln_status ln_grammar_check(const char *grammar, size_t bytes, ln_error *err);

/* ---- models ---- */

typedef struct ln_model ln_model;
typedef struct ln_adapter ln_adapter; /* an adapter that an engine has loaded: see ln_adapter_open */

/* Opens the Hugging Face directory `model`: a path, else a cache id `org/name[@rev]`, else `tiny`, the
 * bundled model. Reads config.json and the tokenizer, maps the weight files and checks every tensor; reads no
 * weights and takes no KV memory. `opt` NULL: the defaults. The caller owns *out; ln_model_close.
 *
 * LN_EIO: no such model, or a file cannot be read. LN_EINVALID: a file contradicts its format or another
 * file. LN_EUNSUPPORTED: an architecture, dtype or tokenizer that linnet does not know. LN_ECHANGED: a file
 * changed during the call. Without tokenizer.json, calls that need a text fail. A chat template that cannot
 * be used is an error here only if opt->chat_template names it. */
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
    /* hidden_size, intermediate_size, vocabulary, maximum context length, largest window in positions or 0 */
    int64_t width, ffn_width, vocab_size, n_ctx_max, window;
    bool tied;             /* the output head is the embedding table */
    bool has_template;     /* the directory ships a chat template */
    bool has_reasoning;    /* reasoning delimiters (<think>) are known, as tokens or from the chat template */
    bool has_think_switch; /* the chat template reads enable_thinking or thinking */
    uint64_t n_parameters, weights_bytes; /* weights_bytes: in the encoding that is loaded */
    int32_t eos_ids[32];                  /* the first n_eos are set */
    int n_eos;
    ln_numerics numerics; /* that the model's options give: LN_EXACT or LN_FAST */
    int n_files;          /* weight files */
    /* The format in which the model calls tools: hermes, llama3, mistral, ... (docs/templates.md); generic:
     * the chat template shows none, and the tools are described in the system text. */
    char tool_format[16];
    int64_t embedding_width; /* values of an embedding; 0: the files of its modules cannot be used */
    /* The class of transformers that builds the tokenizer from code ("": it takes tokenizer.json as it is),
     * and what it makes otherwise than that file ("pre_tokenizer, decoder"), which is used. */
    char tokenizer_class[40], tokenizer_differs[64];
    double embed_scale; /* factor of token embeddings: 1, or sqrt(width) rounded to `dtype` (Gemma) */
    /* What the chat template accepts of earlier calls: one for each message, null as content, JSON text */
    bool single_tool_call, null_tool_content, text_tool_arguments;
    char stored[32], kept[160]; /* format of the files: "gptq"; matrices in memory: "14 in fp8, 1 in bf16" */
    uint64_t n_active_parameters; /* that a token is multiplied with: of experts, those of the chosen */
} ln_info;

/* Writes the facts of an open model to *info, which the caller owns. */
LN_API LN_MUST_CHECK ln_status ln_model_info(const ln_model *model, ln_info *info, ln_error *err);
/* Writes the same facts of a model that this call opens, without its weights. Errors: see ln_model_open. */
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
    uint64_t weights_bytes, kv_bytes;
    uint64_t activation_bytes; /* temporaries of a step, and the buffer of ln_inspect_keys */
    uint64_t other_bytes;      /* what the process holds now, tokenizer, code, stacks, tables */
    uint64_t available_bytes;  /* what the machine or the caller allows the process */
    int64_t n_ctx;             /* positions of a sequence, after defaults */
    ln_numerics numerics;      /* after defaults: LN_EXACT or LN_FAST */
    bool fits;                 /* peak_bytes <= available_bytes */
    /* the largest n_ctx that fits with all else equal, if the pool may hold fewer contexts; 0: none */
    int64_t largest_ctx;
    /* Which limit decides available_bytes: "MemAvailable", "cgroup", "RLIMIT_AS", "RLIMIT_DATA",
     * "ln_options.memory_bytes" or "ln_memory_set_limit". Static. */
    const char *limit;
    int n_parallel;     /* sequences that run at once, after defaults */
    int64_t n_contexts; /* how many of them can have n_ctx positions at once, by the size of the KV pool */
    uint64_t adapter_bytes; /* of the pool of adapters, a part of other_bytes unless it is on a GPU */
    /* For a device with memory of its own (a GPU), weights_bytes, kv_bytes, activation_bytes and
     * adapter_bytes count the device's memory, and peak_bytes is other_bytes. device_bytes: what will be
     * taken of the device's memory, without weights that are loaded already. device_available_bytes: what is
     * free of it. `fits` is true if both fit. 0: the device uses the memory of the process. */
    uint64_t device_bytes, device_available_bytes;
    uint64_t text_bytes;  /* ln_options.text_bytes as planned: the share of texts */
    uint64_t state_bytes; /* of the pool of recurrent state, a part of peak_bytes; 0: the model has none */
    int64_t n_snapshots;  /* of it, for reuse, that remain while n_contexts sequences run */
} ln_plan;

/* Computes the memory that ln_model_open and ln_engine_open with the same options would take, and writes it
 * to *out. A plan that does not fit is LN_OK with out->fits false. Errors: those of ln_model_open, and
 * LN_EDEVICE. LN_EMEMORY: ln_options.kv_bytes is less than one context. */
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
 * `ids` are used as they are. A `text` becomes one user message if `tmpl` says that a chat template is used;
 * otherwise it is tokenised with the tokens that the post-processor adds (bos). `messages` and `request` are
 * conversations: they always go through a chat template, with the header of the assistant's answer after
 * them, and are LN_EUSAGE if `tmpl` excludes one. The template is the model's, else the built-in one of its
 * family; what it rejects (an unknown role, roles that do not alternate) is LN_EINVALID. The text of a
 * message can never become a control token. */
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
    /* The answer goes on after the last message, of role assistant, which the template must show as it is,
     * else LN_EINVALID. A grammar holds for what is generated. */
    bool continue_last;
} ln_prompt;
LN_DEFAULT(ln_prompt) /* all fields but `size` zero */

/* Writes the first min(*n_ids, cap) token ids of `prompt` to ids[cap] and their full count to *n_ids; `ids`
 * may be NULL when cap is 0. LN_EINVALID: a text is not UTF-8, or the template rejects the conversation.
 * LN_EUNSUPPORTED: the chat template cannot be used, or neither the model nor its family has one. */
LN_API LN_MUST_CHECK ln_status ln_prompt_ids(const ln_model *model, const ln_prompt *prompt, int32_t *ids,
                                             size_t cap, size_t *n_ids, ln_error *err);

/* Measurements of one call. Times are wall-clock seconds without the time spent in the caller's callbacks.
 * The struct lies inside others, so its size never changes: new fields take the place of reserved ones. */
typedef struct ln_metrics {
    /* cached_tokens: of the prompt, the prefix whose keys and values the engine still held */
    int64_t prompt_tokens, generated_tokens, cached_tokens;
    int64_t reasoning_tokens; /* of the generated ones, including the delimiter at their end */
    /* to open model and engine, prefill, decoding, prefill + decoding, from the call's start to a token */
    double load_seconds, prefill_seconds, decode_seconds, total_seconds, first_token_seconds;
    double prefill_tok_s, decode_tok_s; /* tokens per second; 0 if there is no such time */
    uint64_t active_bytes, peak_bytes;  /* resident memory of the process now, and its peak (ln_memory) */
    double queue_seconds;               /* from the start of the call to its admission; part of prefill */
    /* Why cached_tokens is less than what the engine had held of this prompt, or of a text that begins as it
     * does; "" if it is not less. "evicted": its pages were needed or dropped. "window": positions that its
     * last row attends to were dropped with the window. "state": no snapshot of recurrent state is near
     * (docs/memory.md). "diverged": the held text continues with another token. "adapter", "rope": another
     * adapter, or other rotary frequencies. "disabled": ln_request_options.no_cache. Static. */
    const char *cache_miss_reason;
    int64_t proposed_tokens, accepted_tokens; /* tokens that were computed ahead, and kept of these */
    uint64_t reserved[14];                    /* zero */
} ln_metrics;

/* STOP: stop id or text. LENGTH: n_max or the context ended. CANCELLED: a callback, ln_cancel or an error */
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
 * ids and text exclude the stop token or stop text. If a chat template is used and the model knows reasoning
 * delimiters, the output is split. `reasoning` has what is between them, without the delimiters and the
 * newlines next to them. `text` has the answer, and stop texts apply to the answer alone. `ids` has all of
 * the output. Other output is not split. */
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
    uint64_t seed; /* that sampling used */
    ln_metrics metrics;
    /* Log-probabilities if ln_request_options.n_logprobs asks for them, else NULL. logprobs [n_ids] are of
     * the generated ids. top [n_ids, n_top] has the likeliest tokens, in descending order. They are those of
     * the logits before bias, penalties, temperature and filters. prompt_logprobs [n_prompt_ids] (NaN at 0)
     * and prompt_top [n_prompt_ids, n_top] with ln_request_options.prompt_logprobs. */
    double *logprobs;
    ln_top *top;
    size_t n_top;
    double *prompt_logprobs;
    ln_top *prompt_top;
    /* What ended the text if finish is LN_FINISH_STOP: the id of the stop token, else -1, with the number of
     * the stop text in ln_sampling.stop (then in model_stop) in stop_text, else -1. */
    int32_t stop_id;
    int stop_text;
    /* [n_tool_calls] calls of tools, if ln_sampling.tool_choice asks for them; NULL if there is none. */
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

/* What a request asks for in addition to its prompt. Start from ln_request_options_default. */
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

/* Submits a prompt to an engine and returns at once. This call renders and tokenises the prompt; steps are
 * run by ln_engine_step, by the engine's thread or by ln_request_next. Requests are admitted in their order,
 * as soon as a sequence is free and the pool has the pages that prompt and answer may need. The caller owns
 * *out; ln_request_close. `opt` NULL: the defaults.
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

/* TOKEN: a generated token. TEXT, REASONING: the next piece of the answer, or of its reasoning, in complete
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
    /* TEXT, REASONING: [bytes], no terminator. TOOL_CALL: the arguments, a JSON object. TOOL_ARGUMENTS: a
     * piece of them. FINISH: the error's message or NULL */
    const char *text;
    size_t bytes;
    ln_finish finish; /* FINISH */
    ln_status status; /* FINISH: LN_OK, or the error that ended this request alone */
    const char *name; /* TOOL_CALL, TOOL_ARGUMENTS: the tool */
} ln_event;

/* Removes the request's next event and stores it in *out, in the order in which events happened. Waits for
 * one at most `seconds` (0: not at all, negative: without limit) and stores LN_EVENT_NONE if there is none.
 * While it waits, it runs the engine's steps itself unless another thread does; it completes a step that it
 * has begun. Unread events wait in the request; a slow reader delays no step. After LN_EVENT_FINISH every
 * further call stores it again. One thread at a time per request. */
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
    int64_t n_state_pages, n_state_used, n_state_cached;     /* likewise, of recurrent state */
    uint64_t state_page_bytes, proposed_tokens, accepted_tokens; /* tokens so far, as in ln_metrics */
} ln_engine_stats;
LN_API LN_MUST_CHECK ln_status ln_engine_get_stats(const ln_engine *engine, ln_engine_stats *out,
                                                   ln_error *err);

/* ---- tokenizers ---- */

typedef struct ln_tokenizer ln_tokenizer;

/* Opens the tokenizer of `model` without the model: only the tokenizer's files are needed. The caller owns
 * *out; ln_tokenizer_close. LN_EIO: no such model, or no tokenizer.json. LN_EINVALID: a file contradicts
 * itself. LN_EUNSUPPORTED: a tokenizer type or setting that linnet does not know. */
LN_API LN_MUST_CHECK ln_status ln_tokenizer_open(ln_tokenizer **out, const char *model, ln_error *err);
/* Closes the handle. For a borrowed tokenizer (ln_model_tokenizer) it only sets the pointer to NULL. */
LN_API void ln_tokenizer_close(ln_tokenizer **tok);
/* Returns the tokenizer of an open model, so that its files are not read again. Borrowed: it is valid until
 * the model's handle is closed (later uses are LN_EUSAGE; a call that runs at that moment completes) and
 * needs no close. NULL when the model's handle is closed or NULL; ln_last_error then has the reason. */
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

/* ---- adapters ---- */

/* The facts of a LoRA adapter. */
typedef struct ln_adapter_info {
    uint32_t size;            /* of the caller's struct: sizeof(ln_adapter_info) */
    char path[4096];          /* absolute, of the directory */
    char layout[16];          /* PEFT, mlx-lm or go-mlx */
    char targets[256];        /* last names of its modules, separated by commas: q_proj,v_proj */
    char digest[65];          /* SHA-256 of all that it adds, in hexadecimal digits */
    int n_modules, n_tensors; /* matrices of the model that it changes, or their biases; its tensors */
    int n_applied;            /* those that add something, or -1 if no model was named */
    int64_t rank_min, rank_max;
    double scale_min, scale_max; /* factor of B A */
    uint64_t n_parameters;
    int64_t n_experts; /* of a layer, on which it has LoRA, at least; 0: on none */
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
/* Returns how many more adapters the engine can load now; 0 for a closed handle too. */
LN_API int ln_adapter_room(const ln_engine *engine);
/* Closes the handle. Requests that use the adapter go on; its place is free when the last one is closed. */
LN_API void ln_adapter_close(ln_adapter **adapter);
/* Sets the factor on all that the adapter adds, 1 at first. LN_EUSAGE: an open request uses the adapter, or
 * the factor is not finite. LN_ECHANGED: a file of the adapter changed; it can only be closed then. */
LN_API LN_MUST_CHECK ln_status ln_adapter_set_scale(ln_adapter *adapter, double scale, ln_error *err);
/* Writes the facts of a loaded adapter to *out. Of a sum, path and layout are those of the first part, the
 * digest covers the parts and their factors; the rest is of all parts, scales with their factors. */
LN_API LN_MUST_CHECK ln_status ln_adapter_describe(const ln_adapter *adapter, ln_adapter_info *out,
                                                   ln_error *err);

/* ---- files that change ---- */

/* Installs a SIGBUS handler, once per process. Some weights are read directly from mapped files, and a file
 * that is truncated while it is mapped raises SIGBUS, which ends the process. With the handler the call that
 * touched the lost pages returns LN_ECHANGED instead. Any other SIGBUS goes to the handler that was installed
 * before. The library installs no signal handler without this call. */
LN_API LN_MUST_CHECK ln_status ln_guard_files(ln_error *err);

#ifdef __cplusplus
}
#endif
#endif
