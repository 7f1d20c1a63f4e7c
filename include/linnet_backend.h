/* linnet_backend - runs whole models behind one table of functions: the native engine, mlx-lm in a child
 * process, and what a program registers.
 *
 * First comes the table, for programs that bring a backend, then the registry, then models that a backend
 * loaded. What linnet.h says about errors, callbacks, ownership and threads holds here too. */
#ifndef LINNET_BACKEND_H
#define LINNET_BACKEND_H

#include "linnet.h"
#include "linnet_tools.h" /* classifying, keys and files of requests, which a backend answers too */

#ifdef __cplusplus
extern "C" {
#endif

/* ---- backends: whole models behind one table of functions ---- */

/* What a backend is given when it loads a model. */
typedef struct ln_backend_options {
    uint32_t size; /* set by ln_backend_options_default */
    /* native uses all of it, mlx_lm n_ctx (0: the model's maximum), n_chunk and progress; any other field
     * that is set is LN_EUSAGE. NULL: the defaults. */
    const ln_options *options;
    const char *adapter;  /* directory of a LoRA adapter; NULL: none, or options->adapter */
    double adapter_scale; /* factor on the scale that the adapter itself states; 1 by default */
    /* Of mlx_lm: the Python interpreter, or the directory of a virtual environment. NULL: python3 on
     * PATH. */
    const char *python;
    /* Of mlx_lm: the most seconds that starting Python and loading may take (0 means 600), and that the
     * process may be silent while it answers (0 means 120). */
    double load_seconds, reply_seconds;
} ln_backend_options;
LN_DEFAULT(ln_backend_options)

/* Receives what a backend generates, and tells it when to stop. Made by the library; the functions copy what
 * they are given. A status that is not LN_OK ends the generation: the backend returns it, except
 * LN_ECANCELLED, after which it returns LN_OK with finish LN_FINISH_CANCELLED. */
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
 * ranges of a sampling, the backend its prompts; it rejects by name a field that it does not honour. A
 * function may be NULL if its comment says so; the library then answers LN_EUNSUPPORTED in its place. What
 * the functions are given has the library's `size`, which they leave as it is: a backend writes no field of
 * *out or an end beyond it, and takes it for the distance of the elements of an array. */
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
    /* Answers n prompts, several at once if the backend can. sinks[i] and ends[i] belong to prompt i,
     * whose error is stored in errors[i]. NULL: generate or chat, one after another. */
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
/* Called for each backend; `why` is NULL if it is available, else the reason. No lock is held. */
typedef ln_status ln_backend_fn(void *user, const ln_backend *backend, const char *why, ln_error *err);
/* Calls `fn` for all backends in the order of their registration. `opt` NULL: the defaults. Whether mlx_lm is
 * available takes a start of Python, a fraction of a second. */
LN_API LN_MUST_CHECK ln_status ln_backend_list(const ln_backend_options *opt, ln_backend_fn *fn, void *user,
                                               ln_error *err);

/* A model that a backend has loaded: a handle, as an engine is. */
typedef struct ln_backend_model ln_backend_model;

/* Loads `model` with the backend of that name (NULL: the default). The caller owns *out; ln_backend_close.
 * LN_EUSAGE: no such backend. Otherwise the errors of the backend: those of ln_model_open and
 * ln_engine_open. With mlx_lm, LN_EIO: no such interpreter, or the process ended. LN_EUNSUPPORTED: the
 * interpreter has no mlx-lm, or mlx-lm rejects the model. Messages quote what the process wrote to its
 * standard error. */
LN_API LN_MUST_CHECK ln_status ln_backend_load(ln_backend_model **out, const char *backend, const char *model,
                                               const ln_backend_options *opt, ln_error *err);
/* Closes the handle and asks running calls to stop. A second close of a copy of the pointer does nothing. */
LN_API void ln_backend_close(ln_backend_model **model);
/* As ln_generate. mlx_lm has further errors. LN_EIO: the process ended, was silent for reply_seconds or sent
 * what is no message; the model can only be closed then. LN_EUNSUPPORTED: a field that it does not
 * honour. */
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

#ifdef __cplusplus
}
#endif
#endif
