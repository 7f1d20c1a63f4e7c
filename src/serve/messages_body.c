/* Bodies of Anthropic's /v1/messages: a request becomes one of /v1/chat/completions. Blocks of a message
 * become its text, its reasoning and its calls of tools; results of tools become messages of their own. */
#include "dialect.h"

#include <stdio.h>
#include <string.h>

/* Fields with another name, or the same. */
static const char *const copied[] = {"model",          "model", "max_tokens", "max_tokens", "temperature",
                                     "temperature",    "top_p", "top_p",      "top_k",      "top_k",
                                     "stop_sequences", "stop",  "stream",     "stream",     "seed",
                                     "seed",           NULL};
static const char *const read_here[] = {"messages",      "system",   "thinking",     "tools",
                                        "tool_choice",   "metadata", "service_tier", "output_config",
                                        "output_format", NULL};
static const char *const siblings[] = {"stop",
                                       "stop_sequences",
                                       "response_format",
                                       "output_config.format",
                                       "max_output_tokens",
                                       "max_tokens",
                                       "max_completion_tokens",
                                       "max_tokens",
                                       "input",
                                       "messages",
                                       "instructions",
                                       "system",
                                       "reasoning_effort",
                                       "thinking",
                                       "enable_thinking",
                                       "thinking",
                                       "text",
                                       "output_config.format",
                                       "format",
                                       "output_config.format",
                                       "functions",
                                       "tools",
                                       NULL};

static ln_status add_system(request_context *x, const json_t *body, json_t *list) {
    static const char *const types[] = {"text", NULL};
    const json_t *v = json_object_get(body, "system");
    ln_str text = {0};
    if (!v || json_is_null(v)) return LN_OK;
    ln_status st = dialect_text(x, v, "system", types, &text);
    if (st == LN_OK) st = dialect_add_message(x, list, "system", &text);
    ln_str_free(&text);
    return st;
}

/* ---- messages ---- */

/* What the blocks of a message have become so far. */
typedef struct turn {
    const char *role, *field;
    json_t *list;          /* of messages */
    ln_str text, thinking; /* blocks joined by newlines */
    bool has_text;
    json_t *calls; /* NULL: none */
} turn;

static ln_status no_room(request_context *x) {
    return wire_fail(&x->why, LN_OOM(&x->why.error, "a request"));
}

static ln_status refuse_block(request_context *x, const turn *t, size_t i, const char *expected,
                              const json_t *block) {
    char found[80];
    const ln_status st = wire_refuse(&x->why, t->field, "part %zu: expected %s, found %s", i + 1, expected,
                                     ln_json_text(block, found));
    x->why.code = "unsupported_parameter";
    return st;
}

static void join(ln_str *to, bool more, const json_t *text) {
    if (more) ln_str_adds(to, "\n");
    ln_str_add(to, json_string_value(text), json_string_length(text));
}

/* Adds the message that the blocks so far make, if they make one; with `always` an empty one too. */
static ln_status end_turn(request_context *x, turn *t, bool always) {
    json_t *m;
    if (!t->has_text && !t->calls && t->thinking.len == 0 && !always) return LN_OK;
    LN_TRY(dialect_add_message(x, t->list, t->role, &t->text));
    m = json_array_get(t->list, json_array_size(t->list) - 1);
    if (t->thinking.failed) return no_room(x);
    if (t->thinking.len > 0)
        LN_TRY(dialect_set(x, m, "reasoning_content", json_stringn(t->thinking.data, t->thinking.len)));
    if (t->calls) LN_TRY(dialect_set(x, m, "tool_calls", json_incref(t->calls)));
    if (t->calls && !t->has_text) LN_TRY(dialect_set(x, m, "content", json_null()));
    t->text.len = t->thinking.len = 0;
    t->has_text = false;
    json_decref(t->calls);
    t->calls = NULL;
    return LN_OK;
}

/* A call that the assistant made in an earlier turn. */
static ln_status add_call(request_context *x, turn *t, size_t i, const json_t *block) {
    json_t *name = json_object_get(block, "name"), *input = json_object_get(block, "input");
    json_t *id = json_object_get(block, "id");
    if (!json_is_string(name) || !json_is_string(id) || !json_is_object(input))
        return refuse_block(x, t, i, "a tool_use with the texts id and name, and an object input", block);
    if (!t->calls) t->calls = json_array();
    return dialect_add_call(x, t->calls, id, name, input);
}

/* Appends a member of a document that is a text, with a newline behind it. */
static void put_line(ln_str *out, const json_t *v) {
    if (!json_is_string(v) || json_string_length(v) == 0) return;
    ln_str_add(out, json_string_value(v), json_string_length(v));
    ln_str_adds(out, "\n");
}

/* A document is its title, its context and its text, or blocks of text. */
static ln_status add_document(request_context *x, const turn *t, size_t i, const json_t *block, ln_str *out) {
    static const char *const types[] = {"text", NULL};
    const json_t *source = json_object_get(block, "source"), *type = json_object_get(source, "type");
    const json_t *media = json_object_get(source, "media_type"), *data = json_object_get(source, "data");
    if (json_is_true(json_object_get(json_object_get(block, "citations"), "enabled")))
        return refuse_block(x, t, i, "a document without citations, which are not made", block);
    put_line(out, json_object_get(block, "title"));
    put_line(out, json_object_get(block, "context"));
    if (ln_json_is_text(type, "content"))
        return dialect_text(x, json_object_get(source, "content"), t->field, types, out);
    if (!ln_json_is_text(type, "text") || !json_is_string(data) ||
        (media && !ln_json_is_text(media, "text/plain")))
        return refuse_block(x, t, i,
                            "a document with a source of type text (media_type text/plain, and data) or of "
                            "type content; only text is supported",
                            block);
    ln_str_add(out, json_string_value(data), json_string_length(data));
    return LN_OK;
}

/* A result of a search of the client's is its title, its source and its text. */
static ln_status add_found(request_context *x, const turn *t, const json_t *block, ln_str *out) {
    static const char *const types[] = {"text", NULL};
    put_line(out, json_object_get(block, "title"));
    put_line(out, json_object_get(block, "source"));
    return dialect_text(x, json_object_get(block, "content"), t->field, types, out);
}

/* Appends the text of a block that a user's message and the result of a tool may have. */
static ln_status add_text(request_context *x, const turn *t, size_t i, const json_t *block, ln_str *out) {
    const json_t *type = json_object_get(block, "type"), *text = json_object_get(block, "text");
    if (ln_json_is_text(type, "document")) return add_document(x, t, i, block, out);
    if (ln_json_is_text(type, "search_result")) return add_found(x, t, block, out);
    if (!ln_json_is_text(type, "text") || !json_is_string(text))
        return refuse_block(x, t, i, "one of type text with a text, or of type document", block);
    ln_str_add(out, json_string_value(text), json_string_length(text));
    return LN_OK;
}

static ln_status add_texts(request_context *x, const turn *t, const json_t *blocks, ln_str *out) {
    char found[80];
    size_t i;
    json_t *block;
    if (json_is_string(blocks)) {
        ln_str_add(out, json_string_value(blocks), json_string_length(blocks));
        return LN_OK;
    }
    if (!json_is_array(blocks))
        return wire_refuse(&x->why, t->field, "expected a text or a list of parts, found %s",
                           ln_json_text(blocks, found));
    json_array_foreach((json_t *)(uintptr_t)blocks, i, block) {
        if (i > 0) ln_str_adds(out, "\n");
        LN_TRY(add_text(x, t, i, block, out));
    }
    return LN_OK;
}

/* The result of a call is a message of its own, with a text or blocks of text. That it is an error
 * (`is_error`) no template shows: its text says so. */
static ln_status add_result(request_context *x, turn *t, size_t i, const json_t *block) {
    const json_t *content = json_object_get(block, "content");
    json_t *id = json_object_get(block, "tool_use_id");
    ln_str text = {0};
    if (!json_is_string(id)) return refuse_block(x, t, i, "a tool_result with a tool_use_id", block);
    LN_TRY(end_turn(x, t, false));
    ln_status st = !content || json_is_null(content) ? LN_OK : add_texts(x, t, content, &text);
    if (st == LN_OK) st = dialect_add_result(x, t->list, id, &text);
    ln_str_free(&text);
    return st;
}

static ln_status add_block(request_context *x, turn *t, size_t i, const json_t *block, bool *result) {
    const json_t *text = json_object_get(block, "text"), *thinking = json_object_get(block, "thinking");
    const bool user = strcmp(t->role, "user") == 0;
    const bool document = ln_json_is_text(json_object_get(block, "type"), "document") ||
                          ln_json_is_text(json_object_get(block, "type"), "search_result");
    if (user && document) {
        if (t->has_text) ln_str_adds(&t->text, "\n");
        t->has_text = true;
        return add_text(x, t, i, block, &t->text);
    }
    if (ln_json_is_text(json_object_get(block, "type"), "text") && json_is_string(text)) {
        join(&t->text, t->has_text, text);
        t->has_text = true;
        return LN_OK;
    }
    if (user && ln_json_is_text(json_object_get(block, "type"), "tool_result")) {
        *result = true;
        return add_result(x, t, i, block);
    }
    if (!user && ln_json_is_text(json_object_get(block, "type"), "tool_use")) return add_call(x, t, i, block);
    if (!user && ln_json_is_text(json_object_get(block, "type"), "thinking") && json_is_string(thinking)) {
        join(&t->thinking, t->thinking.len > 0, thinking);
        return LN_OK;
    }
    if (!user && ln_json_is_text(json_object_get(block, "type"), "redacted_thinking"))
        return LN_OK; /* encrypted by the provider; ignored */
    return refuse_block(x, t, i,
                        user ? "one of type text with a text, or of type document or tool_result"
                             : "one of type text with a text, or of type tool_use or thinking",
                        block);
}

static ln_status add_blocks(request_context *x, turn *t, const json_t *content) {
    char found[80];
    size_t i;
    json_t *block;
    bool result = false;
    if (json_is_string(content)) {
        join(&t->text, false, content);
        return end_turn(x, t, true);
    }
    if (!json_is_array(content))
        return wire_refuse(&x->why, t->field, "expected a text or a list of parts, found %s",
                           ln_json_text(content, found));
    json_array_foreach((json_t *)(uintptr_t)content, i, block) LN_TRY(add_block(x, t, i, block, &result));
    return end_turn(x, t, !result);
}

static ln_status add_messages(request_context *x, const json_t *body, json_t *list) {
    const json_t *all = json_object_get(body, "messages");
    char field[64], found[80];
    size_t i;
    json_t *m;
    if (!json_is_array(all) || json_array_size(all) == 0)
        return wire_refuse(&x->why, "messages", "expected a list of at least one message, found %s",
                           ln_json_text(all, found));
    json_array_foreach((json_t *)(uintptr_t)all, i, m) {
        turn t = {.role = json_string_value(json_object_get(m, "role")), .field = field, .list = list};
        (void)snprintf(field, sizeof field, "messages[%zu].role", i);
        if (!t.role || (strcmp(t.role, "user") != 0 && strcmp(t.role, "assistant") != 0))
            return wire_refuse(&x->why, field, "expected user or assistant, found %s",
                               ln_json_text(json_object_get(m, "role"), found));
        (void)snprintf(field, sizeof field, "messages[%zu].content", i);
        const ln_status st = add_blocks(x, &t, json_object_get(m, "content"));
        ln_str_free(&t.text);
        ln_str_free(&t.thinking);
        json_decref(t.calls);
        LN_TRY(st);
    }
    return LN_OK;
}

/* ---- tools ---- */

static ln_status add_tools(request_context *x, const json_t *body, json_t *to) {
    const json_t *tools = json_object_get(body, "tools");
    json_t *list, *tool;
    char field[64], found[80];
    size_t i;
    if (!tools || json_is_null(tools)) return LN_OK;
    if (!json_is_array(tools))
        return wire_refuse(&x->why, "tools", "expected a list of tools, found %s",
                           ln_json_text(tools, found));
    list = json_array();
    LN_TRY(dialect_set(x, to, "tools", list));
    json_array_foreach((json_t *)(uintptr_t)tools, i, tool) {
        const json_t *type = json_object_get(tool, "type");
        (void)snprintf(field, sizeof field, "tools[%zu]", i);
        if (!json_is_object(tool))
            return wire_refuse(&x->why, field,
                               "expected an object with name, description and input_schema, found %s",
                               ln_json_text(tool, found));
        if (type && !json_is_null(type) && !ln_json_is_text(type, "custom")) {
            LN_TRY(dialect_add_foreign(x, list, tool));
            continue;
        }
        LN_TRY(dialect_add_tool(x, list, tool, "input_schema"));
    }
    return LN_OK;
}

static ln_status add_tool_choice(request_context *x, const json_t *body, json_t *to) {
    const json_t *v = json_object_get(body, "tool_choice");
    json_t *name = json_object_get(v, "name"), *single = json_object_get(v, "disable_parallel_tool_use");
    const char *type = json_string_value(json_object_get(v, "type"));
    char found[80];
    if (!v || json_is_null(v)) return LN_OK;
    if (single && !json_is_null(single)) {
        if (!json_is_boolean(single))
            return wire_refuse(&x->why, "tool_choice.disable_parallel_tool_use",
                               "expected true or false, found %s", ln_json_text(single, found));
        LN_TRY(dialect_set(x, to, "parallel_tool_calls", json_boolean(!json_is_true(single))));
    }
    const char *word = !type                       ? NULL
                       : strcmp(type, "any") == 0  ? "required"
                       : strcmp(type, "auto") == 0 ? "auto"
                       : strcmp(type, "none") == 0 ? "none"
                                                   : NULL;
    if (word) return dialect_set(x, to, "tool_choice", json_string(word));
    if (!type || strcmp(type, "tool") != 0 || !json_is_string(name))
        return wire_refuse(&x->why, "tool_choice",
                           "expected an object of type auto, any or none, or of type tool with a name, found "
                           "%s",
                           ln_json_text(v, found));
    json_t *wanted = json_object();
    LN_TRY(dialect_set(x, to, "tool_choice", wanted));
    LN_TRY(dialect_set(x, wanted, "type", json_string("function")));
    return dialect_set(x, wanted, "name", json_incref(name));
}

ln_status messages_translate(request_context *x, const json_t *body, json_t *to) {
    const json_t *max = json_object_get(body, "max_tokens"), *stops = json_object_get(body, "stop_sequences");
    char found[80];
    const char *thinking = json_string_value(json_object_get(json_object_get(body, "thinking"), "type"));
    json_t *list = json_array();
    LN_TRY(dialect_set(x, to, "messages", list));
    LN_TRY(dialect_siblings(x, body, siblings));
    if ((!max || json_is_null(max)) && !(x->route->flags & ROUTE_COUNTS))
        return wire_refuse(&x->why, "max_tokens", "is required");
    LN_TRY(add_system(x, body, list));
    LN_TRY(add_messages(x, body, list));
    LN_TRY(add_tools(x, body, to));
    LN_TRY(add_tool_choice(x, body, to));
    if (stops && !json_is_null(stops) && !json_is_array(stops))
        return wire_refuse(&x->why, "stop_sequences", "expected a list of texts, found %s",
                           ln_json_text(stops, found));
    if (thinking)
        LN_TRY(dialect_set(x, to, "enable_thinking", json_boolean(strcmp(thinking, "disabled") != 0)));
    const json_t *format = json_object_get(json_object_get(body, "output_config"), "format");
    LN_TRY(dialect_format(x, to, format, "output_config.format"));
    if (!format) LN_TRY(dialect_format(x, to, json_object_get(body, "output_format"), "output_format"));
    dialect_others(body, copied, read_here);
    return dialect_copy(x, body, to, copied);
}
