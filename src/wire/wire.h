/* The bodies of OpenAI's API: a JSON body becomes the prompts and options of requests, and their results
 * become a JSON body again. `linnet batch` and the server share this module; it opens no file and runs no
 * model.
 *
 * A body is read by the table in body_fields.def: every field is read, known to change nothing, or refused
 * by name; a field that the table does not have is accepted and logged once per process. Nothing that would
 * change an answer is ignored in silence.
 *
 * A body asks for n_prompts x n choices. Choice i belongs to prompt i / n and is a request of its own, whose
 * seed is that of the body plus i % n. */
#ifndef LN_WIRE_H
#define LN_WIRE_H

#include "../base/base.h"

/* ---- errors ---- */

/* An error as the API reports it. `error` has the message and the library's status. */
typedef struct wire_error {
    int http;                /* status code: 400, 404, ... */
    const char *type, *code; /* static; code may be NULL */
    char param[96];          /* the field at fault, "" where there is none */
    ln_error error;
} wire_error;

/* Fills *why with status 400 and the message "PARAM: ..."; returns LN_EINVALID. */
ln_status wire_refuse(wire_error *why, const char *param, const char *fmt, ...) LN_PRINTF(3, 4);
/* Fills *why from a status of the library whose message is in why->error: 400 where the request is at fault,
 * else 500 or 503. Returns the status. */
ln_status wire_fail(wire_error *why, ln_status st);
/* The same for a request that ln_request_open or ln_request_result refused: a prompt that is too long for the
 * context has a code of its own, and so has one that the KV pool can never hold. */
struct wire_request;
ln_status wire_fail_request(wire_error *why, const struct wire_request *q, ln_status st);
/* Appends {"error": {"message", "type", "param", "code"}}. */
void wire_put_error(ln_str *out, const wire_error *why);

/* ---- what answers ---- */

/* Appends the bytes of one token, which may be a part of a character; *special: whether texts leave it out.
 */
typedef void wire_token_fn(void *user, int32_t id, bool *special, ln_str *out);
/* Appends the text of token ids, without special tokens. */
typedef void wire_text_fn(void *user, const int32_t *ids, size_t n, ln_str *out);

/* The model that answers bodies. Everything is borrowed. */
typedef struct wire_target {
    const char *const *names; /* [n_names] that `model` may have; names[0] is that of the base model */
    size_t n_names;
    bool any_name; /* an unknown name is that of the base model */
    /* [n_names] adapter of each name, NULL: that of the engine, if there is one; or NULL: all are */
    const ln_adapter *const *adapters;
    const char *fingerprint; /* `system_fingerprint` of answers: wire_fingerprint; NULL: null */
    int64_t n_vocab;
    bool has_template;       /* the model has a chat template, which takes tools and arguments */
    bool always_reasons;     /* the model reasons, and its template has no switch for that */
    const char *tool_format; /* ln_info.tool_format; NULL or "": calls of tools cannot be asked for */
    bool single_tool_call, null_tool_content, text_tool_arguments; /* as in ln_info */
    ln_sampling sampling; /* of fields that a body leaves out: wire_sampling_default */
    wire_token_fn *token;
    wire_text_fn *text;
    void *user;
} wire_target;

enum { WIRE_FINGERPRINT = 48 };
/* Writes what decides the numbers of answers besides the model: the library's version and the numerics. */
void wire_fingerprint(char out[WIRE_FINGERPRINT], ln_numerics numerics);

/* Sets *out to the index of the name[0..n) in target->names; an empty name is the base model. Otherwise fills
 * *why with status 404, the names that exist, and the field `model`. */
ln_status wire_find_model(size_t *out, const wire_target *target, const char *name, size_t n,
                          wire_error *why);

/* Changes the model's defaults (ln_sampling_default) to those of the API: what generation_config.json in the
 * directory `dir` states itself with do_sample, else temperature 1, top_p 1 and top_k off. LN_EINVALID,
 * LN_EIO: the file cannot be read. */
ln_status wire_sampling_default(ln_sampling *how, const char *dir, ln_error *err);

/* ---- bodies of requests ---- */

typedef enum wire_kind { WIRE_CHAT = 0, WIRE_COMPLETION } wire_kind;
enum { WIRE_MOST_CHOICES = 2048, WIRE_MOST_N = 128, WIRE_MOST_LOGPROBS = 20 };

/* A body that was read. Everything that the pointers reach belongs to it. */
typedef struct wire_request {
    wire_kind kind;
    const wire_target *target;
    size_t model;       /* index of `model` in wire_target.names */
    ln_prompt *prompts; /* [n_prompts] */
    size_t n_prompts;
    int n;                /* choices of each prompt */
    ln_sampling sampling; /* of choice 0 */
    int n_logprobs;       /* -1: none; else how many of the likeliest tokens */
    bool echo;            /* the text begins with the prompt */
    bool stream, include_usage;
    ln_arena arena;
    struct json_t *root;
    ln_str request, arguments; /* texts of the prompt of a conversation */
    ln_str grammar;            /* that sampling.grammar points to */
    char skipped[120];         /* types of tools that were left out */
    char note[120];            /* what else the answer warns about; the caller may set one of its own */
} wire_request;

/* Reads a body. The target must outlive *out, which the caller closes, after an error too. LN_EINVALID: *why
 * says which field is refused. LN_EMEMORY. */
ln_status wire_request_open(wire_request *out, const wire_target *target, wire_kind kind, const char *body,
                            size_t bytes, wire_error *why);
void wire_request_close(wire_request *q);
/* Frees what only the opening of requests reads: texts of prompts (unless they are repeated by `echo`),
 * tools, the grammar of the answer, fields that nothing reads. The prompts are gone then; wire_choice may not
 * be called any more. */
void wire_request_trim(wire_request *q);
static inline size_t wire_n_choices(const wire_request *q) { return q->n_prompts * (size_t)q->n; }
/* Writes prompt and sampling of choice i, and sets the fields of *opt that a body decides, `sampling`
 * included. All are borrowed from `q` and `how`. */
void wire_choice(const wire_request *q, size_t i, ln_prompt *prompt, ln_sampling *how,
                 ln_request_options *opt);

/* ---- bodies of answers ---- */

/* The identity of an answer, which all chunks of a stream repeat. */
typedef struct wire_answer {
    char id[40]; /* chatcmpl-... or cmpl-... */
    int64_t created;
    const char *model, *fingerprint; /* fingerprint may be NULL */
    bool timings;                    /* the answer has an object of them */
} wire_answer;
wire_answer wire_answer_of(const wire_request *q);
/* Writes n (at most 32) random hexadecimal digits and a NUL. */
void wire_random_hex(char *out, int n);
enum { WIRE_CALL_ID = 96 };
/* Writes the id of call k of a choice, of the tool `name`, the same whenever it is asked for: call_ and
 * digits; nine digits for models with Mistral's formats of calls, whose templates take no other ids;
 * functions.NAME:K for Kimi's, whose template shows the id. */
void wire_call_id(char out[WIRE_CALL_ID], const wire_request *q, const wire_answer *a, size_t choice,
                  size_t k, const char *name);
/* Appends the members id, type and function of a call; `arguments` are the JSON text of an object. */
void wire_put_call(ln_str *out, const wire_request *q, const wire_answer *a, size_t choice, size_t k,
                   const char *name, const char *arguments, size_t bytes);

/* Returns the call that the end of the answer has cut, NULL if there is none or nothing is certain of its
 * arguments: then no stream has it either, and a warning names it. */
const ln_tool_call *wire_cut_call(const ln_result *r);

/* Appends the members id, object, created, model and system_fingerprint. */
void wire_put_head(ln_str *out, const wire_answer *a, const char *object);
/* Appends the object of log-probabilities of a choice, for tokens [from, to) of its answer; null where none
 * are asked for. In a completion with `echo` and from = 0 the prompt's tokens come first. */
void wire_put_logprobs(ln_str *out, const wire_request *q, const ln_result *r, size_t from, size_t to);
/* Appends the list of tokens [from, to) with their log-probabilities, as a conversation has it. */
void wire_put_token_logprobs(ln_str *out, const wire_request *q, const ln_result *r, size_t from, size_t to);
/* The same for the parts of a stream, in their order: *at, zero at first, keeps where the next token begins
 * in the text, so that the tokens before `from` are not read again. */
typedef struct wire_place {
    size_t t, at; /* tokens that were passed; characters of the text */
    bool begun;   /* one of them had a text */
} wire_place;
void wire_put_logprobs_after(ln_str *out, const wire_request *q, const ln_result *r, size_t from, size_t to,
                             wire_place *at);
/* The word for a finish, "stop" or "length"; NULL for a cancelled request. */
const char *wire_finish(ln_finish finish);
/* The same for a result: "tool_calls" where it stopped and has calls of tools. */
const char *wire_finish_of(const ln_result *r);
/* Appends the member `usage` for results[wire_n_choices]. A prompt counts once, however many choices it has.
 */
void wire_put_usage(ln_str *out, const wire_request *q, const ln_result *results);
/* Appends the member `warnings` where tools of the request were left out, or where one of results[0..n) has a
 * call that was cut, or tags of calls without one. */
void wire_put_warnings(ln_str *out, const wire_request *q, const ln_result *results, size_t n);
/* Appends the whole body for results[wire_n_choices]: chat.completion or text_completion. */
void wire_put_answer(ln_str *out, const wire_request *q, const wire_answer *a, const ln_result *results);
/* Appends the member `timings` as llama.cpp has it: tokens that were reused (cache_n), computed (prompt_n)
 * and generated (predicted_n), all choices together; the milliseconds of the slowest choice, and tokens per
 * second. */
void wire_put_timings(ln_str *out, const wire_request *q, const ln_result *results);

/* ---- streams ---- */

/* What one chunk of a stream says about one choice. */
typedef struct wire_delta {
    size_t index;
    bool role;                    /* the first chunk of a choice of a conversation */
    const char *text, *reasoning; /* NULL: none */
    size_t text_bytes, reasoning_bytes;
    const ln_event *call; /* LN_EVENT_TOOL_ARGUMENTS, of the n_call-th call of the choice; NULL: none */
    size_t n_call;
    bool begins_call;        /* its first piece */
    const ln_result *tokens; /* with log-probabilities: those of tokens [from, to); NULL: none */
    size_t from, to;
    wire_place *place;        /* with tokens */
    const char *finish;       /* NULL: the choice goes on */
    const ln_result *ended;   /* with finish: for `warnings`; NULL: none */
    const ln_result *timings; /* results[wire_n_choices] for the member `timings`; NULL: none */
} wire_delta;

/* Appends a chunk: chat.completion.chunk, or text_completion with a part of the text. */
void wire_put_delta(ln_str *out, const wire_request *q, const wire_answer *a, const wire_delta *d);
/* Appends the chunk without choices that ends a stream with include_usage. */
void wire_put_usage_delta(ln_str *out, const wire_request *q, const wire_answer *a, const ln_result *results);

#endif
