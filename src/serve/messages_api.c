/* Answers of Anthropic's /v1/messages, stateless: a message with blocks of thinking, text and calls of tools.
 * messages_body.c reads the requests. */
#include "dialect.h"

#include <string.h>

static const char *const names[] = {"stop",
                                    "stop_sequences",
                                    "tools[].function.parameters",
                                    "tools[].input_schema",
                                    "tools[].function",
                                    "tools[]",
                                    "response_format.schema",
                                    "output_config.format.schema",
                                    "response_format.type",
                                    "output_config.format.type",
                                    "response_format.json_schema",
                                    "output_config.format.schema",
                                    NULL};

/* ---- answers ---- */

static const char *stop_reason(const ln_result *r) {
    return r->finish == LN_FINISH_LENGTH ? "max_tokens"
           : r->n_tool_calls > 0         ? "tool_use"
           : r->stop_text >= 0           ? "stop_sequence"
                                         : "end_turn";
}

static void put_stop(ln_str *out, const request_context *x, const ln_result *r) {
    const bool text = r->finish == LN_FINISH_STOP && r->n_tool_calls == 0 && r->stop_text >= 0 &&
                      (size_t)r->stop_text < x->q.sampling.n_stop;
    ln_str_addf(out, "\"stop_reason\":\"%s\",\"stop_sequence\":", stop_reason(r));
    if (text) ln_str_json(out, x->q.sampling.stop[r->stop_text], strlen(x->q.sampling.stop[r->stop_text]));
    else ln_str_adds(out, "null");
}

static void put_usage(ln_str *out, const ln_result *r) {
    const ln_metrics *m = &r->metrics;
    ln_str_addf(out,
                "\"usage\":{\"input_tokens\":%lld,\"cache_creation_input_tokens\":0,\"cache_read_input_"
                "tokens\":%lld,"
                "\"output_tokens\":%lld}",
                (long long)(m->prompt_tokens - m->cached_tokens), (long long)m->cached_tokens,
                (long long)m->generated_tokens);
}

static void put_head(ln_str *out, const request_context *x) {
    ln_str_addf(out, "\"id\":\"msg_%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":", x->id + 4);
    ln_str_json(out, x->answer.model, strlen(x->answer.model));
}

/* Appends the beginning of the block of call k, up to its input. */
static void put_call(ln_str *out, const request_context *x, size_t k, const char *name) {
    char id[WIRE_CALL_ID];
    wire_call_id(id, &x->q, &x->answer, 0, k, name);
    const bool usual = strncmp(id, "call_", 5) == 0;
    ln_str_addf(out, "{\"type\":\"tool_use\",\"id\":\"%s%s\",\"name\":", usual ? "toolu_" : "",
                usual ? id + 5 : id);
    ln_str_json(out, name, strlen(name));
    ln_str_adds(out, ",\"input\":");
}

static void put_answer(ln_str *out, const request_context *x) {
    const ln_result *r = &x->choices[0].result;
    ln_str_adds(out, "{");
    put_head(out, x);
    ln_str_adds(out, ",\"content\":[");
    if (r->reasoning_bytes > 0) {
        ln_str_adds(out, "{\"type\":\"thinking\",\"thinking\":");
        ln_str_json(out, r->reasoning, r->reasoning_bytes);
        ln_str_adds(out, ",\"signature\":\"\"},");
    }
    const bool text = r->text_bytes > 0 || r->n_tool_calls == 0;
    if (text) {
        ln_str_adds(out, "{\"type\":\"text\",\"text\":");
        ln_str_json(out, r->text, r->text_bytes);
        ln_str_adds(out, "}");
    }
    for (size_t k = 0; k < r->n_tool_calls; k++) {
        if (text || k > 0) ln_str_adds(out, ",");
        put_call(out, x, k, r->tool_calls[k].name);
        ln_str_add(out, r->tool_calls[k].arguments, r->tool_calls[k].arguments_bytes);
        ln_str_adds(out, "}");
    }
    ln_str_adds(out, "],");
    put_stop(out, x, r);
    ln_str_adds(out, ",");
    put_usage(out, r);
    wire_put_warnings(out, &x->q, r, 1);
    wire_put_timings(out, &x->q, r);
    ln_str_adds(out, "}");
}

/* The types of errors that Anthropic's API documents, by status. */
static const char *error_type(int status) {
    switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    default: return status >= 500 ? "api_error" : "invalid_request_error";
    }
}

/* Anthropic's errors and the server's: both have error.type and error.message. */
static void put_error(ln_str *out, const request_context *x) {
    ln_str s = {0};
    wire_error why = x->why;
    why.type = error_type(why.http);
    wire_put_error(&s, &why);
    ln_str_adds(out, "{\"type\":\"error\",");
    if (s.len > 1) ln_str_add(out, s.data + 1, s.len - 2);
    ln_str_addf(out, ",\"request_id\":\"%s\"}", x->id);
    out->failed |= s.failed;
    ln_str_free(&s);
}

/* ---- streams ---- */

/* Tokens of the prompt, which is tokenised already. */
static size_t count_prompt(const request_context *x) {
    ln_result r = {.size = sizeof r};
    ln_error err;
    const size_t n = ln_request_result(x->choices[0].request, &r, &err) == LN_OK ? r.n_prompt_ids : 0;
    ln_result_free(&r);
    return n;
}

static void begin(request_context *x) {
    ln_str s = {0};
    x->block = -1;
    ln_str_adds(&s, "{\"type\":\"message_start\",\"message\":{");
    put_head(&s, x);
    ln_str_addf(&s,
                ",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":{\"input_tokens\":%zu,"
                "\"output_tokens\":0}}}",
                count_prompt(x));
    stream_named(x, "message_start", &s);
    ln_str_adds(&s, "{\"type\":\"ping\"}");
    stream_named(x, "ping", &s);
}

static void end_block(request_context *x) {
    ln_str s = {0};
    if (!x->block_kind) return;
    ln_str_addf(&s, "{\"type\":\"content_block_stop\",\"index\":%d}", x->block);
    stream_named(x, "content_block_stop", &s);
    x->block_kind = 0;
}

static void begin_block(request_context *x, char kind) {
    ln_str s = {0};
    if (x->block_kind == kind) return;
    end_block(x);
    x->block++;
    x->block_kind = kind;
    ln_str_addf(&s, "{\"type\":\"content_block_start\",\"index\":%d,\"content_block\":%s}", x->block,
                kind == 't' ? "{\"type\":\"text\",\"text\":\"\"}"
                            : "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}");
    stream_named(x, "content_block_start", &s);
}

static void begin_call(choice *c, const ln_event *ev) {
    request_context *x = c->x;
    ln_str s = {0};
    end_block(x);
    x->block++;
    x->block_kind = 'c';
    ln_str_addf(&s, "{\"type\":\"content_block_start\",\"index\":%d,\"content_block\":", x->block);
    put_call(&s, x, c->n_calls, ev->name);
    ln_str_adds(&s, "{}}}");
    stream_named(x, "content_block_start", &s);
}

/* A piece of a call: its block begins with the first one. */
static void send_arguments(choice *c, const ln_event *ev) {
    request_context *x = c->x;
    ln_str s = {0};
    if (x->block_kind != 'c') begin_call(c, ev);
    ln_str_addf(&s,
                "{\"type\":\"content_block_delta\",\"index\":%d,\"delta\":{\"type\":\"input_json_delta\","
                "\"partial_json\":",
                x->block);
    ln_str_json(&s, ev->text, ev->bytes);
    ln_str_adds(&s, "}}");
    stream_named(x, "content_block_delta", &s);
}

static void event(choice *c, const ln_event *ev) {
    request_context *x = c->x;
    ln_str s = {0};
    if (ev->kind == LN_EVENT_TOKEN) return;
    if (ev->kind == LN_EVENT_TOOL_CALL) end_block(x);
    else if (ev->kind == LN_EVENT_TOOL_ARGUMENTS) send_arguments(c, ev);
    if (ev->kind == LN_EVENT_TOOL_CALL || ev->kind == LN_EVENT_TOOL_ARGUMENTS) return;
    const bool text = ev->kind == LN_EVENT_TEXT;
    begin_block(x, text ? 't' : 'r');
    ln_str_addf(&s,
                "{\"type\":\"content_block_delta\",\"index\":%d,\"delta\":{\"type\":\"%s\",\"%s\":", x->block,
                text ? "text_delta" : "thinking_delta", text ? "text" : "thinking");
    ln_str_json(&s, ev->text, ev->bytes);
    ln_str_adds(&s, "}}");
    stream_named(x, "content_block_delta", &s);
}

static void finish(choice *c) {
    request_context *x = c->x;
    ln_str s = {0};
    end_block(x);
    ln_str_adds(&s, "{\"type\":\"message_delta\",\"delta\":{");
    put_stop(&s, x, &c->result);
    ln_str_adds(&s, "},");
    put_usage(&s, &c->result);
    wire_put_warnings(&s, &x->q, &c->result, 1);
    wire_put_timings(&s, &x->q, &c->result);
    ln_str_adds(&s, "}");
    stream_named(x, "message_delta", &s);
}

static void end(request_context *x, bool failed) {
    ln_str s = {0};
    if (failed) put_error(&s, x);
    else ln_str_adds(&s, "{\"type\":\"message_stop\"}");
    stream_named(x, failed ? "error" : "message_stop", &s);
}

const dialect dialect_messages = {.translate = messages_translate,
                                  .names = names,
                                  .put_answer = put_answer,
                                  .put_error = put_error,
                                  .begin = begin,
                                  .event = event,
                                  .finish = finish,
                                  .end = end};
