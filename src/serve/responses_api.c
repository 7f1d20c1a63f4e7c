/* OpenAI's /v1/responses, stateless: a request becomes one of /v1/chat/completions, its answer a response
 * whose output has an item of reasoning, where there is some, and a message. */
#include "dialect.h"

#include <stdio.h>
#include <string.h>

static const char *const copied[] = {"model",
                                     "model",
                                     "max_output_tokens",
                                     "max_tokens",
                                     "temperature",
                                     "temperature",
                                     "top_p",
                                     "top_p",
                                     "stream",
                                     "stream",
                                     "top_logprobs",
                                     "top_logprobs",
                                     "seed",
                                     "seed",
                                     "stop",
                                     "stop",
                                     "chat_template_kwargs",
                                     "chat_template_kwargs",
                                     NULL};
static const char *const read_here[] = {"input",
                                        "instructions",
                                        "tools",
                                        "tool_choice",
                                        "text",
                                        "reasoning",
                                        "previous_response_id",
                                        "conversation",
                                        "background",
                                        "prompt",
                                        "store",
                                        "include",
                                        "metadata",
                                        "parallel_tool_calls",
                                        "truncation",
                                        "user",
                                        "service_tier",
                                        "safety_identifier",
                                        "prompt_cache_key",
                                        "max_tool_calls",
                                        "stream_options",
                                        NULL};
static const char *const names[] = {"max_tokens", "max_output_tokens", "messages", "input", NULL};
static const char *const text_types[] = {"input_text", "output_text", "text", NULL};

static ln_status add_item(exchange *x, size_t i, const json_t *item, json_t *list) {
    const char *role = json_string_value(json_object_get(item, "role"));
    const json_t *type = json_object_get(item, "type");
    char field[64], found[80];
    ln_str text = {0};
    (void)snprintf(field, sizeof field, "input[%zu]", i);
    if (json_is_string(type) && strcmp(json_string_value(type), "reasoning") == 0)
        return LN_OK; /* of an earlier answer */
    const bool is_message = !type || json_is_null(type) ||
                            (json_is_string(type) && strcmp(json_string_value(type), "message") == 0);
    if (!role || !is_message) {
        const ln_status st = wire_refuse(&x->why, field, "expected a message with a role, found %s",
                                         ln_json_text(item, found));
        x->why.code = "unsupported_parameter";
        return st;
    }
    (void)snprintf(field, sizeof field, "input[%zu].content", i);
    ln_status st = dialect_text(x, json_object_get(item, "content"), field, text_types, &text);
    if (st == LN_OK) st = dialect_add_message(x, list, role, &text);
    ln_str_free(&text);
    return st;
}

static ln_status add_input(exchange *x, const json_t *body, json_t *list) {
    const json_t *input = json_object_get(body, "input"), *first = json_object_get(body, "instructions");
    char found[80];
    size_t i;
    json_t *item;
    ln_str text = {0};
    ln_status st = LN_OK;
    if (first && !json_is_null(first)) {
        st = json_is_string(first) ? dialect_text(x, first, "instructions", text_types, &text)
                                   : wire_refuse(&x->why, "instructions", "expected a text, found %s",
                                                 ln_json_text(first, found));
        if (st == LN_OK) st = dialect_add_message(x, list, "system", &text);
        text.len = 0;
    }
    if (st == LN_OK && json_is_string(input)) {
        ln_str_add(&text, json_string_value(input), json_string_length(input));
        st = dialect_add_message(x, list, "user", &text);
    }
    ln_str_free(&text);
    LN_TRY(st);
    if (json_is_string(input)) return LN_OK;
    if (!json_is_array(input) || json_array_size(input) == 0)
        return wire_refuse(&x->why, "input", "expected a text or a list of messages, found %s",
                           ln_json_text(input, found));
    json_array_foreach((json_t *)(uintptr_t)input, i, item) LN_TRY(add_item(x, i, item, list));
    return LN_OK;
}

static ln_status unsupported(exchange *x, const char *field, const char *advice) {
    const ln_status st = wire_refuse(&x->why, field, "is not supported; %s", advice);
    x->why.code = "unsupported_parameter";
    return st;
}

static bool given(const json_t *body, const char *name) {
    const json_t *v = json_object_get(body, name);
    return v && !json_is_null(v) && !json_is_false(v);
}

static ln_status check_others(exchange *x, const json_t *body) {
    const char *wanted = json_string_value(json_object_get(body, "tool_choice"));
    const json_t *format = json_object_get(json_object_get(body, "text"), "format");
    const char *type = json_string_value(json_object_get(format, "type"));
    if (given(body, "previous_response_id"))
        return unsupported(x, "previous_response_id",
                           "no response is kept: send the whole conversation as input");
    if (given(body, "conversation"))
        return unsupported(x, "conversation", "no response is kept: send the whole conversation as input");
    if (given(body, "background"))
        return unsupported(x, "background", "responses are answered at once; leave the field out");
    if (given(body, "prompt")) return unsupported(x, "prompt", "there are no stored prompts; use input");
    if (type && strcmp(type, "text") != 0)
        return unsupported(x, "text.format", "only {\"type\": \"text\"} is supported");
    if (json_array_size(json_object_get(body, "tools")) > 0 && !(wanted && strcmp(wanted, "none") == 0))
        return unsupported(x, "tools", "calls of tools are not supported yet; leave the field out");
    return LN_OK;
}

static ln_status translate(exchange *x, const json_t *body, json_t *to) {
    json_t *list = json_array();
    json_t *effort = json_object_get(json_object_get(body, "reasoning"), "effort");
    LN_TRY(dialect_set(x, to, "messages", list));
    LN_TRY(add_input(x, body, list));
    LN_TRY(check_others(x, body));
    if (effort && !json_is_null(effort)) LN_TRY(dialect_set(x, to, "reasoning_effort", json_incref(effort)));
    dialect_others(body, copied, read_here);
    return dialect_copy(x, body, to, copied);
}

/* ---- answers ---- */

static void put_text_part(ln_str *out, const char *text, size_t n) {
    ln_str_adds(out, "{\"type\":\"output_text\",\"text\":");
    ln_str_json(out, text, n);
    ln_str_adds(out, ",\"annotations\":[],\"logprobs\":[]}");
}

static void put_reasoning(ln_str *out, const exchange *x, const ln_result *r) {
    ln_str_addf(out,
                "{\"type\":\"reasoning\",\"id\":\"rs_%s\",\"summary\":[],\"content\":[{\"type\":\"reasoning_"
                "text\",\"text\":",
                x->id + 4);
    ln_str_json(out, r->reasoning, r->reasoning_bytes);
    ln_str_adds(out, "}],\"status\":\"completed\"}");
}

static void put_message(ln_str *out, const exchange *x, const ln_result *r) {
    ln_str_addf(out,
                "{\"type\":\"message\",\"id\":\"msg_%s\",\"status\":\"%s\",\"role\":\"assistant\","
                "\"content\":[",
                x->id + 4,
                !r                              ? "in_progress"
                : r->finish == LN_FINISH_LENGTH ? "incomplete"
                                                : "completed");
    if (r) put_text_part(out, r->text, r->text_bytes);
    ln_str_adds(out, "]}");
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
static void put_response(ln_str *out, const exchange *x, const ln_result *r, bool failed) {
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
    if (r && r->reasoning_bytes > 0) {
        put_reasoning(out, x, r);
        ln_str_adds(out, ",");
    }
    if (r) put_message(out, x, r);
    ln_str_adds(out, "],\"parallel_tool_calls\":false,\"tool_choice\":\"none\",\"tools\":[],\"instructions\":"
                     "null,\"metadata\":{},"
                     "\"store\":false,\"truncation\":\"disabled\",\"text\":{\"format\":{\"type\":\"text\"}},"
                     "\"temperature\":");
    ln_str_double(out, x->q.sampling.temperature);
    ln_str_adds(out, ",\"top_p\":");
    ln_str_double(out, x->q.sampling.top_p);
    ln_str_adds(out, ",\"usage\":");
    if (r) put_usage(out, r);
    else ln_str_adds(out, "null");
    if (r) wire_put_timings(out, &x->q, r);
    ln_str_adds(out, "}");
}

static void put_answer(ln_str *out, const exchange *x) { put_response(out, x, &x->choices[0].result, false); }

static void put_error(ln_str *out, const exchange *x) { wire_put_error(out, &x->why); }

/* ---- streams ---- */

/* Begins an event, with its type and its number in the stream. */
static ln_str event_of(exchange *x, const char *type) {
    ln_str s = {0};
    ln_str_addf(&s, "{\"type\":\"%s\",\"sequence_number\":%d,", type, x->sequence++);
    return s;
}

static void send_response(exchange *x, const char *type, const ln_result *r, bool failed) {
    ln_str s = event_of(x, type);
    ln_str_adds(&s, "\"response\":");
    put_response(&s, x, r, failed);
    ln_str_adds(&s, "}");
    stream_named(x, type, &s);
}

static void begin(exchange *x) {
    send_response(x, "response.created", NULL, false);
    send_response(x, "response.in_progress", NULL, false);
}

/* Ids of the two kinds of items; output_index of the message follows that of the reasoning. */
static void put_place(ln_str *s, const exchange *x) {
    ln_str_addf(s, "\"item_id\":\"%s_%s\",\"output_index\":%d,\"content_index\":0,",
                x->block_kind == 'r' ? "rs" : "msg", x->id + 4, x->block);
}

static void end_item(exchange *x, const ln_result *r) {
    if (x->block_kind == 't') {
        const char *text = r ? r->text : "";
        const size_t n = r ? r->text_bytes : 0;
        ln_str s = event_of(x, "response.output_text.done");
        put_place(&s, x);
        ln_str_adds(&s, "\"logprobs\":[],\"text\":");
        ln_str_json(&s, text, n);
        ln_str_adds(&s, "}");
        stream_named(x, "response.output_text.done", &s);
        s = event_of(x, "response.content_part.done");
        put_place(&s, x);
        ln_str_adds(&s, "\"part\":");
        put_text_part(&s, text, n);
        ln_str_adds(&s, "}");
        stream_named(x, "response.content_part.done", &s);
    }
    if (x->block_kind) {
        ln_str s = event_of(x, "response.output_item.done");
        ln_str_addf(&s, "\"output_index\":%d,\"item\":", x->block);
        if (x->block_kind == 't' && r) put_message(&s, x, r);
        else
            ln_str_addf(&s,
                        "{\"type\":\"reasoning\",\"id\":\"rs_%s\",\"summary\":[],\"status\":\"completed\"}",
                        x->id + 4);
        ln_str_adds(&s, "}");
        stream_named(x, "response.output_item.done", &s);
        x->block++;
    }
    x->block_kind = 0;
}

static void begin_item(exchange *x, char kind) {
    if (x->block_kind == kind) return;
    end_item(x, NULL);
    x->block_kind = kind;
    ln_str s = event_of(x, "response.output_item.added");
    ln_str_addf(&s, "\"output_index\":%d,\"item\":", x->block);
    if (kind == 't') put_message(&s, x, NULL);
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

static void event(choice *c, const ln_event *ev) {
    exchange *x = c->x;
    if (ev->kind == LN_EVENT_TOKEN) return;
    const bool text = ev->kind == LN_EVENT_TEXT;
    const char *type = text ? "response.output_text.delta" : "response.reasoning_text.delta";
    begin_item(x, text ? 't' : 'r');
    ln_str s = event_of(x, type);
    put_place(&s, x);
    ln_str_adds(&s, text ? "\"logprobs\":[],\"delta\":" : "\"delta\":");
    ln_str_json(&s, ev->text, ev->bytes);
    ln_str_adds(&s, "}");
    stream_named(x, type, &s);
}

static void finish(choice *c) {
    exchange *x = c->x;
    const ln_result *r = &c->result;
    begin_item(x, 't'); /* an answer without a text has an empty message */
    end_item(x, r);
    send_response(x, r->finish == LN_FINISH_LENGTH ? "response.incomplete" : "response.completed", r, false);
}

static void end(exchange *x, bool failed) {
    if (failed) send_response(x, "response.failed", NULL, true);
}

const dialect dialect_responses = {.translate = translate,
                                   .names = names,
                                   .put_answer = put_answer,
                                   .put_error = put_error,
                                   .begin = begin,
                                   .event = event,
                                   .finish = finish,
                                   .end = end};
