/* Anthropic's /v1/messages, stateless: a request becomes one of /v1/chat/completions, its answer a message
 * with blocks of thinking and text. */
#include "dialect.h"

#include <stdio.h>
#include <string.h>

/* Fields with another name, or the same. */
static const char *const copied[] = {"model",          "model", "max_tokens", "max_tokens", "temperature",
                                     "temperature",    "top_p", "top_p",      "top_k",      "top_k",
                                     "stop_sequences", "stop",  "stream",     "stream",     "seed",
                                     "seed",           NULL};
static const char *const read_here[] = {"messages",    "system",   "thinking",     "tools",
                                        "tool_choice", "metadata", "service_tier", NULL};
static const char *const names[] = {"stop", "stop_sequences", NULL};

static ln_status add_system(exchange *x, const json_t *body, json_t *list) {
    static const char *const types[] = {"text", NULL};
    const json_t *v = json_object_get(body, "system");
    ln_str text = {0};
    if (!v || json_is_null(v)) return LN_OK;
    ln_status st = dialect_text(x, v, "system", types, &text);
    if (st == LN_OK) st = dialect_add_message(x, list, "system", &text);
    ln_str_free(&text);
    return st;
}

static ln_status add_messages(exchange *x, const json_t *body, json_t *list) {
    static const char *const types[] = {"text", NULL};
    const json_t *all = json_object_get(body, "messages");
    char field[64], found[80];
    size_t i;
    json_t *m;
    if (!json_is_array(all) || json_array_size(all) == 0)
        return wire_refuse(&x->why, "messages", "expected a list of at least one message, found %s",
                           ln_json_text(all, found));
    json_array_foreach((json_t *)(uintptr_t)all, i, m) {
        const char *role = json_string_value(json_object_get(m, "role"));
        ln_str text = {0};
        (void)snprintf(field, sizeof field, "messages[%zu].role", i);
        if (!role || (strcmp(role, "user") != 0 && strcmp(role, "assistant") != 0))
            return wire_refuse(&x->why, field, "expected user or assistant, found %s",
                               ln_json_text(json_object_get(m, "role"), found));
        (void)snprintf(field, sizeof field, "messages[%zu].content", i);
        ln_status st = dialect_text(x, json_object_get(m, "content"), field, types, &text);
        if (st == LN_OK) st = dialect_add_message(x, list, role, &text);
        ln_str_free(&text);
        LN_TRY(st);
    }
    return LN_OK;
}

/* Tools are not called yet, as in /v1/chat/completions. */
static ln_status check_tools(exchange *x, const json_t *body) {
    const json_t *tools = json_object_get(body, "tools"), *wanted = json_object_get(body, "tool_choice");
    const char *type = json_string_value(json_object_get(wanted, "type"));
    if (json_array_size(tools) == 0 || (type && strcmp(type, "none") == 0)) return LN_OK;
    const ln_status st =
        wire_refuse(&x->why, "tools", "calls of tools are not supported yet; leave the field out");
    x->why.code = "unsupported_parameter";
    return st;
}

static ln_status translate(exchange *x, const json_t *body, json_t *to) {
    const json_t *max = json_object_get(body, "max_tokens"), *stops = json_object_get(body, "stop_sequences");
    char found[80];
    const char *thinking = json_string_value(json_object_get(json_object_get(body, "thinking"), "type"));
    json_t *list = json_array();
    LN_TRY(dialect_set(x, to, "messages", list));
    if ((!max || json_is_null(max)) && !x->route->counts)
        return wire_refuse(&x->why, "max_tokens", "is required");
    LN_TRY(add_system(x, body, list));
    LN_TRY(add_messages(x, body, list));
    LN_TRY(check_tools(x, body));
    if (stops && !json_is_null(stops) && !json_is_array(stops))
        return wire_refuse(&x->why, "stop_sequences", "expected a list of texts, found %s",
                           ln_json_text(stops, found));
    if (thinking)
        LN_TRY(dialect_set(x, to, "enable_thinking", json_boolean(strcmp(thinking, "disabled") != 0)));
    dialect_others(body, copied, read_here);
    return dialect_copy(x, body, to, copied);
}

/* ---- answers ---- */

static const char *stop_reason(const ln_result *r) {
    return r->finish == LN_FINISH_LENGTH ? "max_tokens" : r->stop_text >= 0 ? "stop_sequence" : "end_turn";
}

static void put_stop(ln_str *out, const exchange *x, const ln_result *r) {
    const bool text =
        r->finish == LN_FINISH_STOP && r->stop_text >= 0 && (size_t)r->stop_text < x->q.sampling.n_stop;
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

static void put_head(ln_str *out, const exchange *x) {
    ln_str_addf(out, "\"id\":\"msg_%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":", x->id + 4);
    ln_str_json(out, x->answer.model, strlen(x->answer.model));
}

static void put_answer(ln_str *out, const exchange *x) {
    const ln_result *r = &x->choices[0].result;
    ln_str_adds(out, "{");
    put_head(out, x);
    ln_str_adds(out, ",\"content\":[");
    if (r->reasoning_bytes > 0) {
        ln_str_adds(out, "{\"type\":\"thinking\",\"thinking\":");
        ln_str_json(out, r->reasoning, r->reasoning_bytes);
        ln_str_adds(out, ",\"signature\":\"\"},");
    }
    ln_str_adds(out, "{\"type\":\"text\",\"text\":");
    ln_str_json(out, r->text, r->text_bytes);
    ln_str_adds(out, "}],");
    put_stop(out, x, r);
    ln_str_adds(out, ",");
    put_usage(out, r);
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

/* Anthropic's form and the server's: both have error.type and error.message. */
static void put_error(ln_str *out, const exchange *x) {
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
static size_t count_prompt(const exchange *x) {
    ln_result r = {.size = sizeof r};
    ln_error err;
    const size_t n = ln_request_result(x->choices[0].request, &r, &err) == LN_OK ? r.n_prompt_ids : 0;
    ln_result_free(&r);
    return n;
}

static void begin(exchange *x) {
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

static void end_block(exchange *x) {
    ln_str s = {0};
    if (!x->block_kind) return;
    ln_str_addf(&s, "{\"type\":\"content_block_stop\",\"index\":%d}", x->block);
    stream_named(x, "content_block_stop", &s);
    x->block_kind = 0;
}

static void begin_block(exchange *x, char kind) {
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

static void event(choice *c, const ln_event *ev) {
    exchange *x = c->x;
    ln_str s = {0};
    if (ev->kind == LN_EVENT_TOKEN) return;
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
    exchange *x = c->x;
    ln_str s = {0};
    end_block(x);
    ln_str_adds(&s, "{\"type\":\"message_delta\",\"delta\":{");
    put_stop(&s, x, &c->result);
    ln_str_adds(&s, "},");
    put_usage(&s, &c->result);
    wire_put_timings(&s, &x->q, &c->result);
    ln_str_adds(&s, "}");
    stream_named(x, "message_delta", &s);
}

static void end(exchange *x, bool failed) {
    ln_str s = {0};
    if (failed) put_error(&s, x);
    else ln_str_adds(&s, "{\"type\":\"message_stop\"}");
    stream_named(x, failed ? "error" : "message_stop", &s);
}

const dialect dialect_messages = {.translate = translate,
                                  .names = names,
                                  .put_answer = put_answer,
                                  .put_error = put_error,
                                  .begin = begin,
                                  .event = event,
                                  .finish = finish,
                                  .end = end};
