/* Dialects of the API: OpenAI's chat completions are the server's own; others are translated to its bodies by
 * the worker, and their answers and streams are written from the same events. */
#ifndef LN_DIALECT_H
#define LN_DIALECT_H

#include "server.h"
#include "../base/json.h"

typedef struct dialect {
    /* Translates the body to one of /v1/chat/completions, on the worker. Otherwise fills x->why. */
    ln_status (*translate)(request_context *x, const json_t *body, json_t *to);
    /* Names of fields in x->why that have another name here: pairs, NULL at the end. [] is an index. */
    const char *const *names;
    const char *stream_type; /* Content-Type of a stream; NULL: server-sent events */
    void (*put_answer)(ln_str *out, const request_context *x);
    void (*put_error)(ln_str *out, const request_context *x);
    /* Appends what keeps a silent stream alive; NULL: a comment of server-sent events. */
    void (*put_silence)(ln_str *out, const request_context *x);
    void (*begin)(request_context *x); /* of a stream, after its head */
    void (*event)(choice *c, const ln_event *ev);
    void (*finish)(choice *c);
    void (*end)(request_context *x, bool failed); /* sends the last events */
} dialect;

extern const dialect dialect_messages, dialect_responses, dialect_ollama, dialect_ollama_generate;
ln_status messages_translate(request_context *x, const json_t *body, json_t *to);
ln_status responses_translate(request_context *x, const json_t *body, json_t *to);
ln_status ollama_chat_translate(request_context *x, const json_t *body, json_t *to);
ln_status ollama_generate_translate(request_context *x, const json_t *body, json_t *to);

/* Returns the name of the model that a body of ollama's asks for, without the tag :latest unless that is part
 * of a name here. The caller releases it. NULL: none, or out of memory. */
json_t *ollama_model(const request_context *x, const json_t *body);
/* Appends the answer to a request without a text, which loads the model. */
void ollama_put_loaded(ln_str *out, const request_context *x, const char *model);
/* Appends the current time as ollama writes it. */
void ollama_put_time(ln_str *out);

/* Sends one event with its name, and frees the JSON text. */
void stream_named(request_context *x, const char *name, ln_str *json);
/* Sends a line of JSON, and frees it. */
void stream_line(request_context *x, ln_str *json);
/* Whether tokens with log-probabilities go with the text of this event: c->tokens from *from to *to. */
bool stream_tokens(choice *c, size_t *from, size_t *to);

/* Reads a value that is a text, or a list of parts whose `type` is one of `types` (NULL at the end) and whose
 * text is joined by newlines. Fills x->why with `field`. */
ln_status dialect_text(request_context *x, const json_t *v, const char *field, const char *const *types,
                       ln_str *out);
/* Copies members of these names (pairs: here, there; NULL at the end) that are present and not null. */
ln_status dialect_copy(request_context *x, const json_t *from, json_t *to, const char *const *pairs);
/* Sets a member to a text or a value, which is consumed. LN_EMEMORY in x->why. */
ln_status dialect_set(request_context *x, json_t *to, const char *name, json_t *v);
ln_status dialect_add_message(request_context *x, json_t *list, const char *role, const ln_str *text);
/* Appends a message with the result of the call `id`. */
ln_status dialect_add_result(request_context *x, json_t *list, json_t *id, const ln_str *text);
/* Appends a call to a list of tool_calls, which may be NULL after a lack of memory. */
ln_status dialect_add_call(request_context *x, json_t *calls, json_t *id, json_t *name, json_t *arguments);
/* Appends a tool that has its members in one object, the parameters by the name `parameters`. */
ln_status dialect_add_tool(request_context *x, json_t *list, const json_t *tool, const char *parameters);
/* Appends a tool that is no function: a type, by which it is left out. */
ln_status dialect_add_foreign(request_context *x, json_t *list, const json_t *tool);
/* Sets response_format from a format that has its schema beside its type; NULL and {"type": "text"} change
 * nothing. `field` is its name, for x->why. */
ln_status dialect_format(request_context *x, json_t *to, const json_t *format, const char *field);
/* Refuses members that a sibling API has (pairs: there, here; NULL at the end), naming the right one. */
ln_status dialect_siblings(request_context *x, const json_t *body, const char *const *pairs);
/* Logs the members that none of the lists (pairs, then names) has. */
void dialect_others(const json_t *body, const char *const *pairs, const char *const *names);

#endif
