/* Bodies of OpenAI's /v1/responses: a request becomes one of /v1/chat/completions. */
#include "../base/json_write.h"
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
                                     "tool_choice",
                                     "tool_choice",
                                     "parallel_tool_calls",
                                     "parallel_tool_calls",
                                     NULL};
static const char *const read_here[] = {"input",
                                        "instructions",
                                        "tools",
                                        "text",
                                        "reasoning",
                                        "previous_response_id",
                                        "conversation",
                                        "background",
                                        "prompt",
                                        "store",
                                        "include",
                                        "metadata",
                                        "truncation",
                                        "user",
                                        "service_tier",
                                        "safety_identifier",
                                        "prompt_cache_key",
                                        "max_tool_calls",
                                        "stream_options",
                                        NULL};
static const char *const siblings[] = {"max_tokens",
                                       "max_output_tokens",
                                       "max_completion_tokens",
                                       "max_output_tokens",
                                       "response_format",
                                       "text.format",
                                       "messages",
                                       "input",
                                       "system",
                                       "instructions",
                                       "stop_sequences",
                                       "stop",
                                       "reasoning_effort",
                                       "reasoning.effort",
                                       "thinking",
                                       "reasoning.effort",
                                       "functions",
                                       "tools",
                                       "format",
                                       "text.format",
                                       "output_config",
                                       "text.format",
                                       NULL};
static const char *const text_types[] = {"input_text", "output_text", "text", NULL};

static ln_status unsupported(request_context *x, const char *field, const char *advice) {
    const ln_status st = wire_refuse(&x->why, field, "is not supported; %s", advice);
    x->why.code = "unsupported_parameter";
    return st;
}

/* Calls belong to the message of the assistant before them, else to one without a text. */
static ln_status add_call(request_context *x, const char *field, const json_t *item, json_t *list) {
    json_t *id = json_object_get(item, "call_id"), *name = json_object_get(item, "name");
    json_t *arguments = json_object_get(item, "arguments");
    char found[80];
    if (!json_is_string(id) || !json_is_string(name) || !json_is_string(arguments))
        return wire_refuse(&x->why, field,
                           "expected a function_call with the texts call_id, name and arguments, found %s",
                           ln_json_text(item, found));
    json_t *last = json_array_get(list, json_array_size(list) - 1);
    if (json_array_size(list) == 0 || !ln_json_is_text(json_object_get(last, "role"), "assistant")) {
        const ln_str none = {0};
        LN_TRY(dialect_add_message(x, list, "assistant", &none));
        last = json_array_get(list, json_array_size(list) - 1);
        LN_TRY(dialect_set(x, last, "content", json_null()));
    }
    if (!json_object_get(last, "tool_calls")) LN_TRY(dialect_set(x, last, "tool_calls", json_array()));
    return dialect_add_call(x, json_object_get(last, "tool_calls"), id, name, arguments);
}

static ln_status add_output(request_context *x, const char *field, const json_t *item, json_t *list) {
    json_t *id = json_object_get(item, "call_id");
    char inner[80], found[80];
    ln_str text = {0};
    if (!json_is_string(id))
        return wire_refuse(&x->why, field, "expected a function_call_output with a call_id, found %s",
                           ln_json_text(item, found));
    (void)snprintf(inner, sizeof inner, "%s.output", field);
    ln_status st = dialect_text(x, json_object_get(item, "output"), inner, text_types, &text);
    if (st == LN_OK) st = dialect_add_result(x, list, id, &text);
    ln_str_free(&text);
    return st;
}

static bool is_role(const char *role) {
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool", "function"};
    bool is = false;
    for (size_t i = 0; i < LN_COUNT(roles) && !is; i++) is = strcmp(role, roles[i]) == 0;
    return is;
}

static ln_status add_item(request_context *x, size_t i, const json_t *item, json_t *list) {
    const char *role = json_string_value(json_object_get(item, "role"));
    const json_t *type = json_object_get(item, "type");
    char field[64], found[80];
    ln_str text = {0};
    (void)snprintf(field, sizeof field, "input[%zu]", i);
    if (ln_json_is_text(json_object_get(item, "type"), "reasoning")) return LN_OK; /* of an earlier answer */
    if (ln_json_is_text(json_object_get(item, "type"), "function_call"))
        return add_call(x, field, item, list);
    if (ln_json_is_text(json_object_get(item, "type"), "function_call_output"))
        return add_output(x, field, item, list);
    if (!role ||
        !(!type || json_is_null(type) || ln_json_is_text(json_object_get(item, "type"), "message"))) {
        const ln_status st = wire_refuse(&x->why, field,
                                         "expected a message with a role, a function_call or a "
                                         "function_call_output, found %s",
                                         ln_json_text(item, found));
        x->why.code = "unsupported_parameter";
        return st;
    }
    if (!is_role(role)) {
        (void)snprintf(field, sizeof field, "input[%zu].role", i);
        return wire_refuse(&x->why, field, "expected system, developer, user or assistant, found %s",
                           ln_json_text(json_object_get(item, "role"), found));
    }
    (void)snprintf(field, sizeof field, "input[%zu].content", i);
    ln_status st = dialect_text(x, json_object_get(item, "content"), field, text_types, &text);
    if (st == LN_OK) st = dialect_add_message(x, list, role, &text);
    ln_str_free(&text);
    return st;
}

static ln_status add_input(request_context *x, const json_t *body, json_t *list) {
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

static bool given(const json_t *body, const char *name) {
    const json_t *v = json_object_get(body, name);
    return v && !json_is_null(v) && !json_is_false(v);
}

static ln_status check_others(request_context *x, const json_t *body) {
    if (given(body, "previous_response_id"))
        return unsupported(x, "previous_response_id",
                           "no response is kept: send the whole conversation as input");
    if (given(body, "conversation"))
        return unsupported(x, "conversation", "no response is kept: send the whole conversation as input");
    if (given(body, "background"))
        return unsupported(x, "background", "responses are answered at once; leave the field out");
    if (given(body, "prompt")) return unsupported(x, "prompt", "there are no stored prompts; use input");
    return LN_OK;
}

/* ---- tools ---- */

static ln_status add_tools(request_context *x, const json_t *body, json_t *to) {
    const json_t *tools = json_object_get(body, "tools");
    char field[64], found[80];
    size_t i;
    json_t *tool;
    if (!tools || json_is_null(tools)) return LN_OK;
    if (!json_is_array(tools))
        return wire_refuse(&x->why, "tools", "expected a list of tools, found %s",
                           ln_json_text(tools, found));
    json_t *list = json_array();
    LN_TRY(dialect_set(x, to, "tools", list));
    json_array_foreach((json_t *)(uintptr_t)tools, i, tool) {
        (void)snprintf(field, sizeof field, "tools[%zu]", i);
        if (!json_is_object(tool))
            return wire_refuse(&x->why, field, "expected an object, found %s", ln_json_text(tool, found));
        if (!ln_json_is_text(json_object_get(tool, "type"), "function")) {
            LN_TRY(dialect_add_foreign(x, list, tool));
            continue;
        }
        LN_TRY(dialect_add_tool(x, list, tool, "parameters"));
    }
    return LN_OK;
}

static void put_or(ln_str *out, const json_t *body, const char *name, const char *usual) {
    const json_t *v = json_object_get(body, name);
    ln_str_addf(out, "\"%s\":", name);
    if (v && !json_is_null(v)) ln_str_json_value(out, v);
    else ln_str_adds(out, usual);
}

/* A response repeats what was asked for about tools and the format of the text. */
static ln_status keep_asked(request_context *x, const json_t *body) {
    put_or(&x->asked, body, "parallel_tool_calls", "true");
    ln_str_adds(&x->asked, ",");
    put_or(&x->asked, body, "tool_choice", "\"auto\"");
    ln_str_adds(&x->asked, ",");
    put_or(&x->asked, body, "tools", "[]");
    ln_str_adds(&x->asked, ",\"text\":{");
    put_or(&x->asked, json_object_get(body, "text"), "format", "{\"type\":\"text\"}");
    ln_str_adds(&x->asked, "}");
    return x->asked.failed ? wire_fail(&x->why, LN_OOM(&x->why.error, "a request")) : LN_OK;
}

ln_status responses_translate(request_context *x, const json_t *body, json_t *to) {
    json_t *list = json_array();
    json_t *effort = json_object_get(json_object_get(body, "reasoning"), "effort");
    LN_TRY(dialect_set(x, to, "messages", list));
    LN_TRY(dialect_siblings(x, body, siblings));
    LN_TRY(add_input(x, body, list));
    LN_TRY(check_others(x, body));
    LN_TRY(add_tools(x, body, to));
    LN_TRY(keep_asked(x, body));
    LN_TRY(dialect_format(x, to, json_object_get(json_object_get(body, "text"), "format"), "text.format"));
    if (effort && !json_is_null(effort)) LN_TRY(dialect_set(x, to, "reasoning_effort", json_incref(effort)));
    dialect_others(body, copied, read_here);
    return dialect_copy(x, body, to, copied);
}
