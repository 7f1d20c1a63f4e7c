/* Answers of OpenAI's /v1/responses, stateless: a response whose output has an item of reasoning, where there
 * is some, a message, and calls of functions. responses_body.c reads the requests.
 *
 * A stream keeps its items as they end, so that the response at its end has the same ones. */
#include "../base/json_write.h"
#include "dialect.h"

#include <stdio.h>
#include <string.h>

static const char *const names[] = {"max_tokens",
                                    "max_output_tokens",
                                    "messages",
                                    "input",
                                    "tools[].function",
                                    "tools[]",
                                    "response_format.schema",
                                    "text.format.schema",
                                    "response_format.type",
                                    "text.format.type",
                                    "response_format.json_schema",
                                    "text.format.schema",
                                    "response_format",
                                    "text.format",
                                    NULL};

/* ---- answers ---- */

static void put_text_part(ln_str *out, const char *text, size_t n) {
    ln_str_adds(out, "{\"type\":\"output_text\",\"text\":");
    ln_str_json(out, text, n);
    ln_str_adds(out, ",\"annotations\":[],\"logprobs\":[]}");
}

static void put_reasoning(ln_str *out, const request_context *x, const ln_result *r) {
    ln_str_addf(out,
                "{\"type\":\"reasoning\",\"id\":\"rs_%s\",\"summary\":[],\"content\":[{\"type\":\"reasoning_"
                "text\",\"text\":",
                x->id + 4);
    ln_str_json(out, r->reasoning, r->reasoning_bytes);
    ln_str_adds(out, "}],\"status\":\"completed\"}");
}

/* The id of a message: there is one, unless a stream has text after a call. */
static void put_message_id(ln_str *out, const request_context *x) {
    ln_str_addf(out, "msg_%s", x->id + 4);
    if (x->n_calls > 0) ln_str_addf(out, "_%zu", x->n_calls);
}

/* A message; text NULL: it has just begun. */
static void put_message(ln_str *out, const request_context *x, const char *text, size_t n, bool cut) {
    ln_str_adds(out, "{\"type\":\"message\",\"id\":\"");
    put_message_id(out, x);
    ln_str_addf(out, "\",\"status\":\"%s\",\"role\":\"assistant\",\"content\":[",
                !text ? "in_progress"
                : cut ? "incomplete"
                      : "completed");
    if (text) put_text_part(out, text, n);
    ln_str_adds(out, "]}");
}

/* Call k. */
static void put_call(ln_str *out, const request_context *x, size_t k, const char *name, const char *arguments,
                     size_t n, const char *status) {
    char id[WIRE_CALL_ID];
    wire_call_id(id, &x->q, &x->answer, 0, k, name);
    ln_str_addf(out,
                "{\"type\":\"function_call\",\"id\":\"fc_%s_%zu\",\"call_id\":\"%s\",\"name\":", x->id + 4, k,
                id);
    ln_str_json(out, name, strlen(name));
    ln_str_adds(out, ",\"arguments\":");
    ln_str_json(out, arguments, n);
    ln_str_addf(out, ",\"status\":\"%s\"}", status);
}

/* The items of an answer that was not streamed. */
static void put_items(ln_str *out, const request_context *x, const ln_result *r) {
    if (r->reasoning_bytes > 0) {
        put_reasoning(out, x, r);
        ln_str_adds(out, ",");
    }
    const bool text = r->text_bytes > 0 || (r->n_tool_calls == 0 && !wire_cut_call(r));
    if (text) put_message(out, x, r->text, r->text_bytes, r->finish == LN_FINISH_LENGTH);
    for (size_t k = 0; k < r->n_tool_calls; k++) {
        const ln_tool_call *c = &r->tool_calls[k];
        if (text || k > 0) ln_str_adds(out, ",");
        put_call(out, x, k, c->name, c->arguments, c->arguments_bytes, "completed");
    }
    const ln_tool_call *cut = wire_cut_call(r);
    if (!cut) return;
    if (text || r->n_tool_calls > 0) ln_str_adds(out, ",");
    put_call(out, x, r->n_tool_calls, cut->name, cut->arguments, cut->arguments_bytes, "incomplete");
}

static void put_usage(ln_str *out, const ln_result *r) {
    const ln_metrics *m = &r->metrics;
    ln_str_addf(out,
                "{\"input_tokens\":%lld,\"input_tokens_details\":{\"cached_tokens\":%lld},\"output_tokens\":%"
                "lld,"
                "\"output_tokens_details\":{\"reasoning_tokens\":%lld},\"total_tokens\":%lld}",
                (long long)m->prompt_tokens, (long long)m->cached_tokens, (long long)m->generated_tokens,
                (long long)m->reasoning_tokens, (long long)(m->prompt_tokens + m->generated_tokens));
}

/* The response; r NULL: it has just begun. */
static void put_response(ln_str *out, const request_context *x, const ln_result *r, bool failed) {
    const bool cut = r && r->finish == LN_FINISH_LENGTH;
    ln_str_addf(out,
                "{\"id\":\"resp_%s\",\"object\":\"response\",\"created_at\":%lld,\"status\":\"%s\","
                "\"error\":",
                x->id + 4, (long long)x->answer.created,
                failed ? "failed"
                : !r   ? "in_progress"
                : cut  ? "incomplete"
                       : "completed");
    if (failed) {
        ln_str_adds(out, "{\"code\":\"server_error\",\"message\":");
        ln_str_json(out, x->why.error.message, strlen(x->why.error.message));
        ln_str_adds(out, "}");
    } else {
        ln_str_adds(out, "null");
    }
    ln_str_adds(out, cut ? ",\"incomplete_details\":{\"reason\":\"max_output_tokens\"},\"model\":"
                         : ",\"incomplete_details\":null,\"model\":");
    ln_str_json(out, x->answer.model, strlen(x->answer.model));
    ln_str_adds(out, ",\"output\":[");
    if (r && !x->streaming) put_items(out, x, r);
    else if (r) ln_str_add(out, x->items.data ? x->items.data : "", x->items.len);
    out->failed |= x->items.failed;
    ln_str_adds(out, "],");
    ln_str_add(out, x->asked.data, x->asked.len);
    ln_str_adds(out, ",\"instructions\":null,\"metadata\":{},"
                     "\"store\":false,\"truncation\":\"disabled\","
                     "\"temperature\":");
    ln_str_double(out, x->q.sampling.temperature);
    ln_str_adds(out, ",\"top_p\":");
    ln_str_double(out, x->q.sampling.top_p);
    ln_str_adds(out, ",\"usage\":");
    if (r) put_usage(out, r);
    else ln_str_adds(out, "null");
    if (r) wire_put_warnings(out, &x->q, r, 1);
    if (r) wire_put_timings(out, &x->q, r);
    ln_str_adds(out, "}");
}

static void put_answer(ln_str *out, const request_context *x) {
    put_response(out, x, &x->choices[0].result, false);
}

static void put_error(ln_str *out, const request_context *x) { wire_put_error(out, &x->why); }

/* ---- streams ---- */

/* Begins an event, with its type and its number in the stream. */
static ln_str event_of(request_context *x, const char *type) {
    ln_str s = {0};
    ln_str_addf(&s, "{\"type\":\"%s\",\"sequence_number\":%d,", type, x->sequence++);
    return s;
}

static void send_response(request_context *x, const char *type, const ln_result *r, bool failed) {
    ln_str s = event_of(x, type);
    ln_str_adds(&s, "\"response\":");
    put_response(&s, x, r, failed);
    ln_str_adds(&s, "}");
    stream_named(x, type, &s);
}

static void begin(request_context *x) {
    send_response(x, "response.created", NULL, false);
    send_response(x, "response.in_progress", NULL, false);
}

static void put_place(ln_str *s, const request_context *x) {
    ln_str_adds(s, "\"item_id\":\"");
    if (x->block_kind == 'r') ln_str_addf(s, "rs_%s", x->id + 4);
    else put_message_id(s, x);
    ln_str_addf(s, "\",\"output_index\":%d,\"content_index\":0,", x->block);
}

/* Sends the item at items[from ..), which is complete, and goes on to the next one. */
static void send_done(request_context *x, size_t from) {
    ln_str s = event_of(x, "response.output_item.done");
    ln_str_addf(&s, "\"output_index\":%d,\"item\":", x->block);
    ln_str_add(&s, x->items.data ? x->items.data + from : "", x->items.len - from);
    s.failed |= x->items.failed;
    ln_str_adds(&s, "}");
    stream_named(x, "response.output_item.done", &s);
    x->block++;
    x->block_kind = 0;
}

/* Appends a comma after the item before; returns where the next one begins. */
static size_t next_item(request_context *x) {
    if (x->items.len > 0) ln_str_adds(&x->items, ",");
    return x->items.len;
}

static void end_text(request_context *x) {
    const char *text = x->said.data ? x->said.data : "";
    ln_str s = event_of(x, "response.output_text.done");
    put_place(&s, x);
    ln_str_adds(&s, "\"logprobs\":[],\"text\":");
    ln_str_json(&s, text, x->said.len);
    ln_str_adds(&s, "}");
    s.failed |= x->said.failed;
    stream_named(x, "response.output_text.done", &s);
    s = event_of(x, "response.content_part.done");
    put_place(&s, x);
    ln_str_adds(&s, "\"part\":");
    put_text_part(&s, text, x->said.len);
    ln_str_adds(&s, "}");
    stream_named(x, "response.content_part.done", &s);
}

/* Ends the item that is open; `cut`: the answer was cut within it. */
static void end_item(request_context *x, bool cut) {
    if (!x->block_kind) return;
    if (x->block_kind == 't') end_text(x);
    char *text = x->said.data ? x->said.data : (char *)(uintptr_t) "";
    const ln_result reasoning = {.reasoning = text, .reasoning_bytes = x->said.len};
    const size_t from = next_item(x);
    if (x->block_kind == 't') put_message(&x->items, x, text, x->said.len, cut);
    else if (x->block_kind == 'c') /* it was not completed */
        put_call(&x->items, x, x->n_calls++, x->called, text, x->said.len, "incomplete");
    else put_reasoning(&x->items, x, &reasoning);
    x->items.failed |= x->said.failed;
    send_done(x, from);
    x->said.len = 0;
}

static ln_str begin_added(request_context *x) {
    ln_str s = event_of(x, "response.output_item.added");
    ln_str_addf(&s, "\"output_index\":%d,\"item\":", x->block);
    return s;
}

static void begin_item(request_context *x, char kind) {
    if (x->block_kind == kind) return;
    end_item(x, false);
    x->block_kind = kind;
    ln_str s = begin_added(x);
    if (kind == 't') put_message(&s, x, NULL, 0, false);
    else
        ln_str_addf(&s, "{\"type\":\"reasoning\",\"id\":\"rs_%s\",\"summary\":[],\"status\":\"in_progress\"}",
                    x->id + 4);
    ln_str_adds(&s, "}");
    stream_named(x, "response.output_item.added", &s);
    if (kind != 't') return;
    s = event_of(x, "response.content_part.added");
    put_place(&s, x);
    ln_str_adds(&s, "\"part\":");
    put_text_part(&s, "", 0);
    ln_str_adds(&s, "}");
    stream_named(x, "response.content_part.added", &s);
}

/* An event of the call that is open, with a text of its arguments. */
static void send_arguments(request_context *x, const char *type, const char *name, const ln_event *ev) {
    ln_str s = event_of(x, type);
    ln_str_addf(&s, "\"item_id\":\"fc_%s_%zu\",\"output_index\":%d,\"%s\":", x->id + 4, x->n_calls, x->block,
                name);
    ln_str_json(&s, ev->text, ev->bytes);
    if (strcmp(name, "arguments") == 0) put_text(&s, "name", ev->name);
    ln_str_adds(&s, "}");
    stream_named(x, type, &s);
}

/* A piece of a call: its item begins with the first one. */
static void send_piece(request_context *x, const ln_event *ev) {
    if (x->block_kind != 'c') {
        end_item(x, false);
        x->block_kind = 'c';
        (void)snprintf(x->called, sizeof x->called, "%s", ev->name);
        ln_str s = begin_added(x);
        put_call(&s, x, x->n_calls, ev->name, "", 0, "in_progress");
        ln_str_adds(&s, "}");
        stream_named(x, "response.output_item.added", &s);
    }
    ln_str_add(&x->said, ev->text, ev->bytes);
    send_arguments(x, "response.function_call_arguments.delta", "delta", ev);
}

static void end_call(request_context *x, const ln_event *ev) {
    const size_t from = next_item(x);
    send_arguments(x, "response.function_call_arguments.done", "arguments", ev);
    put_call(&x->items, x, x->n_calls++, ev->name, ev->text, ev->bytes, "completed");
    send_done(x, from);
    x->said.len = 0;
}

static void event(choice *c, const ln_event *ev) {
    request_context *x = c->x;
    if (ev->kind == LN_EVENT_TOKEN) return;
    if (ev->kind == LN_EVENT_TOOL_CALL) end_call(x, ev);
    else if (ev->kind == LN_EVENT_TOOL_ARGUMENTS) send_piece(x, ev);
    if (ev->kind == LN_EVENT_TOOL_CALL || ev->kind == LN_EVENT_TOOL_ARGUMENTS) return;
    const bool text = ev->kind == LN_EVENT_TEXT;
    const char *type = text ? "response.output_text.delta" : "response.reasoning_text.delta";
    begin_item(x, text ? 't' : 'r');
    ln_str_add(&x->said, ev->text, ev->bytes);
    ln_str s = event_of(x, type);
    put_place(&s, x);
    ln_str_adds(&s, text ? "\"logprobs\":[],\"delta\":" : "\"delta\":");
    ln_str_json(&s, ev->text, ev->bytes);
    ln_str_adds(&s, "}");
    stream_named(x, type, &s);
}

static void finish(choice *c) {
    request_context *x = c->x;
    const ln_result *r = &c->result;
    const bool cut = r->finish == LN_FINISH_LENGTH;
    if (r->n_tool_calls == 0 && !wire_cut_call(r))
        begin_item(x, 't'); /* an answer without a text has an empty message */
    end_item(x, cut);
    send_response(x, cut ? "response.incomplete" : "response.completed", r, false);
}

static void end(request_context *x, bool failed) {
    if (failed) send_response(x, "response.failed", NULL, true);
}

const dialect dialect_responses = {.translate = responses_translate,
                                   .names = names,
                                   .put_answer = put_answer,
                                   .put_error = put_error,
                                   .begin = begin,
                                   .event = event,
                                   .finish = finish,
                                   .end = end};
