/* Tools and calls as texts, for templates that do not show them; and which templates do. */
#include "tool_text.h"
#include "../base/json_write.h"

#include <string.h>

/* ---- what a template shows ---- */

#define USER "{\"role\":\"user\",\"content\":\"probe_u\"}"
#define TOOL                                                                                           \
    "{\"type\":\"function\",\"function\":{\"name\":\"probe_t\",\"description\":\"d\",\"parameters\":{" \
    "\"type\":\"object\",\"properties\":{}}}}"
#define CALL(id, name, arguments)                                                                           \
    "{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"arguments\":" arguments \
    "}}"
#define RESULT(id, name, content) \
    ",{\"role\":\"tool\",\"tool_call_id\":\"" id "\",\"name\":\"" name "\",\"content\":\"" content "\"}"
#define ANSWER(content, calls) ",{\"role\":\"assistant\",\"content\":" content ",\"tool_calls\":[" calls "]}"
#define BARE \
    "{\"type\":\"function\",\"function\":{\"name\":\"probe_t\",\"parameters\":{\"type\":\"object\"}}}"
#define THOUGHT                                                                                        \
    ",{\"role\":\"assistant\",\"content\":\"probe_c\",\"thinking\":\"probe_w\",\"reasoning_content\":" \
    "\"probe_w\",\"tool_calls\":[" CALL("probe0001", "probe_f", OBJECT) "]}"
#define REST                 "\"add_generation_prompt\":true,\"bos_token\":\"\",\"eos_token\":\"\"}"
#define TALK(messages)       "{\"messages\":[" messages "]," REST
#define TALK_TOOLS(messages) "{\"messages\":[" messages "],\"tools\":[" TOOL "]," REST
#define ONE(content, arguments)                                              \
    TALK_TOOLS(USER ANSWER(content, CALL("probe0001", "probe_f", arguments)) \
                   RESULT("probe0001", "probe_f", "probe_r"))
#define TWO(content, arguments)                                                                              \
    TALK_TOOLS(USER ANSWER(content, CALL("probe0001", "probe_f", arguments) "," CALL("probe0002", "probe_g", \
                                                                                     arguments))             \
                   RESULT("probe0001", "probe_f", "probe_r") RESULT("probe0002", "probe_g", "probe_s"))
#define OBJECT "{\"a\":\"probe_a\"}"
#define TEXT   "\"{\\\"a\\\":\\\"probe_a\\\"}\""

/* Whether the template renders a conversation, and its text has all of `words` (NULL at the end). */
static ln_status shows(const ln_model_template *t, const char *talk, const char *const *words, bool *out,
                       ln_error *err) {
    ln_rendered r;
    ln_error why;
    const ln_status st = ln_model_template_request(t, talk, strlen(talk), &r, &why);
    *out = st == LN_OK;
    for (; *out && *words; words++) *out = memmem(r.text.text, r.text.bytes, *words, strlen(*words)) != NULL;
    ln_rendered_free(&r);
    return st == LN_EMEMORY ? ln_fail(err, st, "%s", why.message) : LN_OK;
}

/* In which of the ways to give a call the template shows it. */
static ln_status find_calls(ln_tool_support *s, const ln_model_template *t, ln_error *err) {
    static const struct {
        const char *one, *two;
        bool null_content, text_arguments;
    } ways[] = {{ONE("\"\"", OBJECT), TWO("\"\"", OBJECT), false, false},
                {ONE("null", OBJECT), TWO("null", OBJECT), true, false},
                {ONE("\"\"", TEXT), TWO("\"\"", TEXT), false, true},
                {ONE("null", TEXT), TWO("null", TEXT), true, true}};
    static const char *const one[] = {"probe_f", "probe_a", "probe_r", NULL};
    static const char *const two[] = {"probe_f", "probe_r", "probe_g", "probe_s", NULL};
    for (size_t i = 0; i < LN_COUNT(ways) && !s->shows_calls; i++) {
        LN_TRY(shows(t, ways[i].one, one, &s->shows_calls, err));
        if (!s->shows_calls) continue;
        s->null_content = ways[i].null_content;
        s->text_arguments = ways[i].text_arguments;
        LN_TRY(shows(t, ways[i].two, two, &s->several, err));
    }
    return LN_OK;
}

/* What a template that shows tools and calls requires beside that. */
static ln_status find_needs(ln_tool_support *s, const ln_model_template *t, ln_error *err) {
    static const char *const tools[] = {"probe_t", NULL}, *const calls[] = {"probe_f", NULL};
    static const char bare[] = "{\"messages\":[" USER "],\"tools\":[" BARE "]," REST;
    bool works;
    if (s->shows_tools) {
        LN_TRY(shows(t, bare, tools, &works, err));
        s->wants_about = !works;
    }
    if (s->shows_calls && !s->null_content && !s->text_arguments) {
        LN_TRY(shows(t, TALK_TOOLS(USER THOUGHT RESULT("probe0001", "probe_f", "probe_r")), calls, &works,
                     err));
        s->one_text = !works;
    }
    return LN_OK;
}

ln_status ln_tool_support_find(ln_tool_support *out, const ln_model_template *t, ln_error *err) {
    static const char *const system[] = {"probe_s", "probe_u", NULL}, *const tools[] = {"probe_t", NULL};
    size_t bytes;
    *out = (ln_tool_support){.format = ln_call_format_generic(), .takes_system = true, .several = true};
    if (!t) return LN_OK;
    const ln_call_format *own = ln_call_format_in(ln_model_template_tools_source(t, &bytes));
    LN_TRY(shows(t, TALK("{\"role\":\"system\",\"content\":\"probe_s\"}," USER), system, &out->takes_system,
                 err));
    if (!own) return LN_OK; /* it may show tools, but no format in which they are called */
    out->format = own;
    LN_TRY(shows(t, TALK_TOOLS(USER), tools, &out->shows_tools, err));
    LN_TRY(find_calls(out, t, err));
    LN_TRY(find_needs(out, t, err));
    out->several = out->several || !out->shows_calls;
    return LN_OK;
}

void ln_tool_support_forget(ln_tool_support *s) {
    *s = (ln_tool_support){
        .format = ln_call_format_generic(), .takes_system = s->takes_system, .several = true};
}

/* ---- the tools in the system text ---- */

/* Appends what the model is told about its tools. */
static void put_tools(const ln_tool_support *s, const json_t *tools, ln_str *out) {
    ln_str_adds(out, "# Tools\n\nYou can call functions to answer. Each function is described by an object "
                     "of JSON "
                     "with its name and the JSON schema of its parameters:\n<tools>\n");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i), *function = json_object_get(tool, "function");
        ln_str_json_value(out, function ? function : tool);
        ln_str_adds(out, "\n");
    }
    ln_str_adds(out, "</tools>\n\nTo call a function, write its name and its arguments in this format, and "
                     "nothing "
                     "after it:\n");
    ln_call_text_put(out, s->format, "NAME", "{\"PARAMETER\": VALUE}", strlen("{\"PARAMETER\": VALUE}"));
    ln_str_adds(out, "\nThe result is then given to you. Answer without a call where no function helps.");
}

/* ---- messages ---- */

/* The conversation as it becomes. */
typedef struct rewriter {
    const ln_tool_support *s;
    json_t *list; /* of messages */
    ln_error *err;
} rewriter;

static ln_status no_room(const rewriter *r) { return LN_OOM(r->err, "a request"); }

static ln_status set_text(const rewriter *r, json_t *m, const ln_str *text) {
    json_t *v = text->failed ? NULL : json_stringn(text->data ? text->data : "", text->len);
    return v && json_object_set_new(m, "content", v) == 0 ? LN_OK : no_room(r);
}

static ln_status add_message(const rewriter *r, const char *role, const ln_str *text, bool first) {
    json_t *m = json_pack("{s: s}", "role", role);
    if (!m || (first ? json_array_insert_new(r->list, 0, m) : json_array_append_new(r->list, m)) != 0)
        return no_room(r);
    return set_text(r, m, text);
}

/* Appends a content, a text or a list of parts with texts. */
static void put_content(ln_str *out, const json_t *content) {
    if (json_is_string(content)) ln_str_add(out, json_string_value(content), json_string_length(content));
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *text = json_object_get(json_array_get(content, i), "text");
        if (i > 0) ln_str_adds(out, "\n");
        if (json_is_string(text)) ln_str_add(out, json_string_value(text), json_string_length(text));
    }
}

/* Appends a call of an earlier turn as the model would have written it. */
static void put_call(const rewriter *r, const json_t *call, ln_str *out) {
    const json_t *f = json_object_get(call, "function"), *arguments;
    ln_str text = {0};
    f = f ? f : call;
    arguments = json_object_get(f, "arguments");
    if (json_is_string(arguments))
        ln_str_add(&text, json_string_value(arguments), json_string_length(arguments));
    else if (arguments) ln_str_json_value(&text, arguments);
    else ln_str_adds(&text, "{}");
    const char *name = json_string_value(json_object_get(f, "name"));
    ln_call_text_put(out, r->s->format, name ? name : "", text.data ? text.data : "", text.len);
    out->failed |= text.failed;
    ln_str_free(&text);
}

/* The last message, where a text of the user can be added to it: results of tools belong to one message, and
 * templates want the roles to alternate. */
static json_t *open_user(const rewriter *r, const bool *may_join) {
    json_t *last = json_array_get(r->list, json_array_size(r->list) - 1);
    return *may_join && json_array_size(r->list) > 0 && ln_json_is_text(json_object_get(last, "role"), "user")
               ? last
               : NULL;
}

static ln_status add_user(const rewriter *r, const ln_str *text, const bool *may_join) {
    json_t *last = open_user(r, may_join);
    ln_str all = {0};
    if (!last) return add_message(r, "user", text, false);
    put_content(&all, json_object_get(last, "content"));
    ln_str_adds(&all, "\n");
    ln_str_add(&all, text->data ? text->data : "", text->len);
    const ln_status st = set_text(r, last, &all);
    ln_str_free(&all);
    return st;
}

/* Rewrites a message; *joins: the one before it was a result, so that a text of the user follows in the same
 * message. */
static ln_status rewrite(const rewriter *r, json_t *m, bool *joins) {
    const json_t *calls = json_object_get(m, "tool_calls"), *role = json_object_get(m, "role");
    const bool result = ln_json_is_text(role, "tool") || ln_json_is_text(role, "function");
    ln_str text = {0};
    ln_status st = LN_OK;
    put_content(&text, json_object_get(m, "content"));
    if (result) {
        ln_str all = {0};
        ln_str_adds(&all, "<tool_response>\n");
        ln_str_add(&all, text.data ? text.data : "", text.len);
        ln_str_adds(&all, "\n</tool_response>");
        st = add_user(r, &all, joins);
        ln_str_free(&all);
    } else if (json_array_size(calls) > 0) {
        for (size_t i = 0; i < json_array_size(calls); i++) {
            if (text.len > 0) ln_str_adds(&text, "\n");
            put_call(r, json_array_get(calls, i), &text);
        }
        st = add_message(r, "assistant", &text, false);
    } else if (*joins && ln_json_is_text(role, "user")) {
        st = add_user(r, &text, joins);
    } else if (json_array_append(r->list, m) != 0) {
        st = no_room(r);
    }
    *joins = result;
    ln_str_free(&text);
    return st;
}

static const json_t *reasoning_of(const json_t *m) {
    static const char *const names[] = {"thinking", "reasoning_content", "reasoning"};
    for (size_t i = 0; i < LN_COUNT(names); i++) {
        const json_t *v = json_object_get(m, names[i]);
        if (json_string_length(v) > 0) return v;
    }
    return NULL;
}

/* The text beside a call joins the reasoning before it, where the template takes one of the two. */
static ln_status join_texts(const rewriter *r, json_t *m) {
    const json_t *reasoning = reasoning_of(m);
    ln_str text = {0}, content = {0};
    ln_status st = LN_OK;
    put_content(&content, json_object_get(m, "content"));
    if (reasoning && content.len > 0 && json_array_size(json_object_get(m, "tool_calls")) > 0) {
        ln_str_add(&text, json_string_value(reasoning), json_string_length(reasoning));
        ln_str_adds(&text, "\n\n");
        ln_str_add(&text, content.data, content.len);
        json_t *v = text.failed ? NULL : json_stringn(text.data, text.len);
        if (!v || json_object_set(m, "thinking", v) != 0 || json_object_set(m, "reasoning_content", v) != 0 ||
            json_object_set_new(m, "content", json_string("")) != 0)
            st = no_room(r);
        json_decref(v);
    }
    if (content.failed) st = no_room(r);
    ln_str_free(&content);
    ln_str_free(&text);
    return st;
}

/* An empty description for each tool that has none. */
static ln_status describe(const rewriter *r, const json_t *tools) {
    for (size_t i = 0; i < json_array_size(tools); i++) {
        json_t *tool = json_array_get(tools, i), *f = json_object_get(tool, "function");
        f = f ? f : tool;
        if (json_is_object(f) && !json_is_string(json_object_get(f, "description")) &&
            json_object_set_new(f, "description", json_string("")) != 0)
            return no_room(r);
    }
    return LN_OK;
}

static ln_status rewrite_messages(rewriter *r, const json_t *messages) {
    bool joins = false;
    r->list = json_array();
    if (!r->list) return no_room(r);
    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_t *m = json_array_get(messages, i);
        if (!r->s->shows_calls) LN_TRY(rewrite(r, m, &joins));
        else if (json_array_append(r->list, m) != 0) return no_room(r);
        else if (r->s->one_text) LN_TRY(join_texts(r, m));
    }
    return LN_OK;
}

/* Puts the text about the tools behind the system text, or where the template takes none before the first
 * text of the user. */
static ln_status add_tools(const rewriter *r, const json_t *tools) {
    json_t *first = json_array_get(r->list, 0);
    const bool system = ln_json_is_text(json_object_get(first, "role"), "system");
    ln_str text = {0};
    ln_status st;
    if (strcmp(r->s->format->name, "phi4") == 0) { /* its template reads them from the system message */
        ln_str none = {0};
        if (!system) LN_TRY(add_message(r, "system", &none, true));
        ln_str_json_value(&text, tools);
        first = json_array_get(r->list, 0);
        json_t *list = text.failed ? NULL : json_stringn(text.data, text.len);
        ln_str_free(&text);
        return list && json_object_set_new(first, "tools", list) == 0 ? LN_OK : no_room(r);
    }
    if (system) put_content(&text, json_object_get(first, "content"));
    if (text.len > 0) ln_str_adds(&text, "\n\n");
    put_tools(r->s, tools, &text);
    if (system && r->s->takes_system) {
        st = set_text(r, first, &text);
    } else if (r->s->takes_system) {
        st = add_message(r, "system", &text, true);
    } else {
        if (system && json_array_remove(r->list, 0) != 0) return no_room(r);
        first = json_array_get(r->list, 0);
        if (ln_json_is_text(json_object_get(first, "role"), "user")) {
            ln_str_adds(&text, "\n\n");
            put_content(&text, json_object_get(first, "content"));
            st = set_text(r, first, &text);
        } else {
            st = add_message(r, "user", &text, true);
        }
    }
    ln_str_free(&text);
    return st;
}

ln_status ln_tool_text(const ln_tool_support *s, const char *json, size_t bytes, ln_str *out, ln_error *err) {
    json_t *root = NULL;
    rewriter r = {.s = s, .err = err};
    ln_status st = ln_json_load(&root, "request", json, bytes, err);
    json_t *messages = json_object_get(root, "messages"), *tools = json_object_get(root, "tools");
    if (st != LN_OK || !json_is_array(messages)) { /* the renderer says what is wrong with it */
        json_decref(root);
        if (st == LN_OK) ln_str_add(out, json, bytes);
        return st;
    }
    LN_GO(rewrite_messages(&r, messages));
    if (s->shows_tools && s->wants_about) LN_GO(describe(&r, tools));
    if (!s->shows_tools && json_array_size(tools) > 0) {
        LN_GO(add_tools(&r, tools));
        if (json_object_del(root, "tools") != 0) LN_GO(no_room(&r));
    }
    if (json_object_set(root, "messages", r.list) != 0) LN_GO(no_room(&r));
    ln_str_json_value(out, root);
    if (out->failed) st = no_room(&r);
out:
    json_decref(r.list);
    json_decref(root);
    return st;
}
