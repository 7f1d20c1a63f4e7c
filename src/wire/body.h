/* Reading a body: what body.c, body_values.c and messages.c share. */
#ifndef LN_WIRE_BODY_H
#define LN_WIRE_BODY_H

#include "../base/json.h"
#include "wire.h"

/* The values of fields that are judged together once all were read; NULL: absent or null. */
typedef struct body_reader {
    wire_request *q;
    const wire_target *t;
    wire_error *why;
    const char *text; /* of the body */
    size_t bytes;
    const json_t *messages, *prompt, *tools, *tool_choice, *documents, *kwargs, *effort, *thinking;
    int64_t max_tokens, max_completion, best_of;
    bool has_max, has_completion, has_best_of, has_n;
    bool want_logprobs, has_top, has_stream_options;
    bool has_penalty, has_window;
    bool continues, no_header; /* continue_final_message; add_generation_prompt: false */
} body_reader;

/* ---- body.c ---- */

/* Reads a body as a tree, which the caller releases. Fills *why: what is not JSON, or holds more values than
 * any request needs. A tree of at most BODY_MOST_VALUES values takes about 50 MB. */
enum { BODY_MOST_VALUES = 1 << 19, BODY_MOST_CONTAINERS = 1 << 16, BODY_MOST_KEY = 4096 };
ln_status body_load(json_t **out, const char *text, size_t bytes, wire_error *why);

/* ---- body_values.c: a value of a type and range, or a refusal that names the field ---- */

/* Whether the value is an integer of 64 bits. 10.0 counts as 10: some clients have one type of number. */
bool body_integer(const json_t *v, int64_t *out);
ln_status body_real(body_reader *b, const char *name, const json_t *v, double lo, double hi, double *out);
ln_status body_int(body_reader *b, const char *name, const json_t *v, int64_t lo, int64_t hi, int64_t *out);
ln_status body_bool(body_reader *b, const char *name, const json_t *v, bool *out);
/* An unsigned or negative 64-bit seed; -1 asks for one of the system's. */
ln_status body_seed(body_reader *b, const char *name, const json_t *v);
/* A non-empty list of token ids, in the arena. */
ln_status body_ids(body_reader *b, const char *name, const json_t *v, const int32_t **ids, size_t *n);
ln_status body_bias(body_reader *b, const char *name, const json_t *v);
ln_status body_stop(body_reader *b, const char *name, const json_t *v);
/* Returns the first of the members `a` and `b` that is present and not null, and sets *name to its name.
 * NULL: neither is, and *name is `a`. `b` may be NULL. */
const json_t *body_member(const json_t *body, const char *a, const char *b, const char **name);
/* Stores a text without U+0000, borrowed from `v`. `field` names the value in a refusal. */
ln_status body_text(wire_error *why, const char *field, const json_t *v, const char **out);

/* ---- tool_list.c ---- */

/* Checks a list of tools: each is an object; the names of functions are distinct and of the characters that
 * OpenAI allows; their parameters are objects. */
ln_status body_tools(body_reader *b, const char *name, const json_t *v);
/* Judges tools and tool_choice together: which calls the sampling asks for. */
ln_status body_check_tools(body_reader *b);

/* ---- response_format.c: each sets the grammar of the answer ---- */

ln_status body_response_format(body_reader *b, const char *name, const json_t *v);
ln_status body_json_schema(body_reader *b, const char *name, const json_t *v); /* a schema, or its text */
ln_status body_regex(body_reader *b, const char *name, const json_t *v);
ln_status body_texts(body_reader *b, const char *name, const json_t *v); /* one of a list of texts */
ln_status body_form(body_reader *b, const char *name,
                    const json_t *v); /* an expression of ln_sampling.grammar */
ln_status body_grammar(body_reader *b, const char *name,
                       const json_t *v); /* GBNF or Lark's EBNF; "": none; or an expression */
ln_status body_structured(body_reader *b, const char *name, const json_t *v); /* vLLM's structured_outputs */

/* ---- messages.c ---- */

/* Makes the prompt of a conversation from messages, tools, documents and the template's arguments. */
ln_status body_conversation(body_reader *b);
/* Logs a name that nothing reads, once per process. `where` is a prefix, as in "messages[].". */
void body_unknown(const char *where, const char *name);

#endif
