/* The tools of a conversation: a list that chat templates show to the model, checked before that so that the
 * error can name the field, and which of them are to be called. */
#include "body.h"
#include "../base/json_write.h"

#include <stdio.h>
#include <string.h>

enum { MOST_TOOLS = 128, MOST_TOOL_NAME = 64, FIELD = 96 };

static bool is_name(const json_t *v) {
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    const size_t n = json_string_length(v);
    return n > 0 && n <= MOST_TOOL_NAME && strspn(json_string_value(v), allowed) == n;
}

/* Checks the member `function` of tool i, where there is one. */
static ln_status check_function(body_reader *b, const json_t *list, size_t i, const json_t *f) {
    char field[FIELD], found[80];
    const json_t *name = json_object_get(f, "name"), *parameters = json_object_get(f, "parameters");
    (void)snprintf(field, sizeof field, "tools[%zu].function", i);
    if (!json_is_object(f))
        return wire_refuse(b->why, field, "expected an object, found %s", ln_json_text(f, found));
    (void)snprintf(field, sizeof field, "tools[%zu].function.name", i);
    if (!is_name(name))
        return wire_refuse(b->why, field,
                           "expected 1 to %d letters, digits, dots, dashes and underscores, found %s",
                           MOST_TOOL_NAME, ln_json_text(name, found));
    for (size_t k = 0; k < i; k++)
        if (json_equal(json_object_get(json_object_get(json_array_get(list, k), "function"), "name"), name))
            return wire_refuse(b->why, field, "expected distinct names, found %s twice",
                               ln_json_text(name, found));
    (void)snprintf(field, sizeof field, "tools[%zu].function.parameters", i);
    if (parameters && !json_is_null(parameters) && !json_is_object(parameters))
        return wire_refuse(b->why, field, "expected an object (a JSON schema), found %s",
                           ln_json_text(parameters, found));
    return LN_OK;
}

ln_status body_tools(body_reader *b, const char *name, const json_t *v) {
    char found[80], field[FIELD];
    if (!json_is_array(v))
        return wire_refuse(b->why, name, "expected a list of tools, found %s", ln_json_text(v, found));
    if (json_array_size(v) > MOST_TOOLS)
        return wire_refuse(b->why, name, "expected at most %d tools, found %zu", MOST_TOOLS,
                           json_array_size(v));
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *tool = json_array_get(v, i), *f = json_object_get(tool, "function");
        (void)snprintf(field, sizeof field, "%s[%zu]", name, i);
        if (!json_is_object(tool))
            return wire_refuse(b->why, field, "expected an object, found %s", ln_json_text(tool, found));
        if (f) LN_TRY(check_function(b, v, i, f));
    }
    return LN_OK;
}

/* ---- tool_choice ---- */

/* What tool_choice says. */
typedef struct choice {
    bool none, required;
    const json_t *names; /* a name, or a list of tools that may be called; NULL: all */
} choice;

static ln_status refuse_choice(body_reader *b, const json_t *v) {
    char found[80];
    return wire_refuse(b->why, "tool_choice",
                       "expected none, auto, required, {\"type\": \"function\", \"function\": {\"name\"}} or "
                       "{\"type\": \"allowed_tools\", \"allowed_tools\": {\"mode\", \"tools\"}}, found %s",
                       ln_json_text(v, found));
}

/* Reads tools as /v1/chat/completions has them, and as /v1/responses has them, which have no inner object. */
static ln_status read_choice(body_reader *b, choice *c) {
    const json_t *v = b->tool_choice, *type = json_object_get(v, "type"), *inner;
    *c = (choice){0};
    if (!v || ln_json_is_text(v, "auto")) return LN_OK;
    c->none = ln_json_is_text(v, "none");
    c->required = ln_json_is_text(v, "required");
    if (c->none || c->required) return LN_OK;
    if (ln_json_is_text(type, "function")) {
        inner = json_object_get(v, "function");
        c->required = true;
        c->names = json_object_get(inner ? inner : v, "name");
        if (json_is_string(c->names)) return LN_OK;
    } else if (ln_json_is_text(type, "allowed_tools")) {
        inner = json_object_get(v, "allowed_tools");
        inner = inner ? inner : v;
        c->required = ln_json_is_text(json_object_get(inner, "mode"), "required");
        c->names = json_object_get(inner, "tools");
        if (json_array_size(c->names) > 0 &&
            (c->required || ln_json_is_text(json_object_get(inner, "mode"), "auto")))
            return LN_OK;
    }
    return refuse_choice(b, v);
}

static const json_t *name_of(const json_t *tool) {
    const json_t *f = json_object_get(tool, "function");
    return json_object_get(f ? f : tool, "name");
}

/* Adds a name that may be called, which must be that of a tool. */
static ln_status add_name(body_reader *b, const json_t *name, const char **to) {
    char found[80];
    bool known = false;
    for (size_t i = 0; i < json_array_size(b->tools) && !known; i++)
        known = json_is_string(name) && json_equal(name_of(json_array_get(b->tools, i)), name);
    if (!known)
        return wire_refuse(b->why, "tool_choice", "expected the name of a function of \"tools\", found %s",
                           ln_json_text(name, found));
    *to = ln_arena_strndup(&b->q->arena, json_string_value(name), json_string_length(name));
    return *to ? LN_OK : wire_fail(b->why, LN_OOM(&b->why->error, "a request"));
}

static ln_status add_names(body_reader *b, const choice *c) {
    ln_sampling *s = &b->q->sampling;
    const bool one = json_is_string(c->names);
    const size_t n = one ? 1 : json_array_size(c->names);
    const char **names = ln_arena_alloc(&b->q->arena, (n + 1) * sizeof *names);
    if (!names) return wire_fail(b->why, LN_OOM(&b->why->error, "a request"));
    for (size_t i = 0; i < n; i++)
        LN_TRY(add_name(b, one ? c->names : name_of(json_array_get(c->names, i)), &names[i]));
    s->tool_names = names;
    s->n_tool_names = n;
    return LN_OK;
}

static bool is_function(const json_t *tool) {
    const json_t *type = json_object_get(tool, "type");
    return (!type || json_is_null(type) || ln_json_is_text(type, "function")) &&
           json_object_get(tool, "function");
}

/* Notes the type of a tool that is left out. */
static void note_skipped(body_reader *b, const json_t *tool) {
    const char *type = json_string_value(json_object_get(tool, "type"));
    char shown[80], *to = b->q->skipped;
    const size_t n = strlen(to);
    type = ln_excerpt(shown, type ? type : "a tool without a function", type ? strlen(type) : 25);
    (void)snprintf(to + n, sizeof b->q->skipped - n, "%s%s", n > 0 ? ", " : "", type);
    ln_log(LN_LOG_WARN, "tools: %s is no function and is left out; nothing here runs it", type);
}

/* Leaves out tools that a provider runs itself, or that are no functions, as long as a function remains:
 * agents send them beside their own. */
static ln_status check_callable(body_reader *b) {
    char field[FIELD], found[80];
    const size_t n = json_array_size(b->tools);
    size_t n_functions = 0, first = n;
    for (size_t i = 0; i < n; i++) {
        const bool is = is_function(json_array_get(b->tools, i));
        n_functions += is;
        if (!is && first == n) first = i;
    }
    (void)snprintf(field, sizeof field, "tools[%zu]", first);
    if (n_functions == 0)
        return wire_refuse(b->why, field,
                           "expected a tool of type \"function\" with a \"function\", found %s; nothing here "
                           "runs "
                           "another tool: leave it out",
                           ln_json_text(json_array_get(b->tools, first), found));
    if (n_functions == n) return LN_OK;
    json_t *functions = json_array();
    bool good = functions != NULL;
    for (size_t i = 0; good && i < n; i++) {
        json_t *tool = json_array_get(b->tools, i);
        if (is_function(tool)) good = json_array_append(functions, tool) == 0;
        else note_skipped(b, tool);
    }
    b->tools = functions;
    if (good) good = json_object_set_new(b->q->root, "tools", functions) == 0;
    else json_decref(functions);
    return good ? LN_OK : wire_fail(b->why, LN_OOM(&b->why->error, "a request"));
}

static bool may_call(const body_reader *b, const json_t *name) {
    const ln_sampling *s = &b->q->sampling;
    bool may = s->n_tool_names == 0;
    for (size_t i = 0; i < s->n_tool_names && !may; i++) may = ln_json_is_text(name, s->tool_names[i]);
    return may;
}

/* Whether arguments may be outside the tool's schema if they cannot be constrained to it. */
static bool is_lenient(const json_t *tool) {
    return json_is_false(json_object_get(tool, "strict")) ||
           json_is_false(json_object_get(json_object_get(tool, "function"), "strict"));
}

/* Checks that arguments can be constrained to the schemas of the tools that may be called. */
static ln_status check_schemas(body_reader *b) {
    char field[FIELD], found[80];
    for (size_t i = 0; i < json_array_size(b->tools); i++) {
        const json_t *f = json_object_get(json_array_get(b->tools, i), "function");
        const json_t *schema = json_object_get(f, "parameters"), *type = json_object_get(schema, "type");
        ln_str grammar = {0};
        ln_error why;
        const bool auto_call = b->q->sampling.tool_choice == LN_TOOLS_AUTO;
        if (!json_is_object(schema) || !may_call(b, json_object_get(f, "name"))) continue;
        if (auto_call && is_lenient(json_array_get(b->tools, i))) continue;
        (void)snprintf(field, sizeof field, "tools[%zu].function.parameters", i);
        if (type && !ln_json_is_text(type, "object"))
            return wire_refuse(b->why, field, "expected a schema of type \"object\", found %s",
                               ln_json_text(type, found));
        ln_str_adds(&grammar, "{\"schema\":");
        ln_str_json_value(&grammar, schema);
        ln_str_adds(&grammar, "}");
        ln_status st =
            grammar.failed ? LN_OOM(&why, "a request") : ln_grammar_check(grammar.data, grammar.len, &why);
        ln_str_free(&grammar);
        if (st == LN_EINVALID)
            return wire_refuse(b->why, field, "%s%s", why.message,
                               auto_call ? "; \"strict\": false in the function permits any object" : "");
        if (st == LN_OK) continue;
        b->why->error = why;
        return wire_fail(b->why, st);
    }
    return LN_OK;
}

ln_status body_check_tools(body_reader *b) {
    ln_sampling *s = &b->q->sampling;
    choice c;
    LN_TRY(read_choice(b, &c));
    if (!b->tools && (c.required || c.names))
        return wire_refuse(b->why, "tool_choice", "needs \"tools\", which the request does not have");
    if (!b->tools || c.none) return LN_OK;
    LN_TRY(check_callable(b));
    LN_TRY(c.names ? add_names(b, &c) : LN_OK);
    s->tool_choice = c.required ? LN_TOOLS_REQUIRED : LN_TOOLS_AUTO;
    s->single_tool_call = s->single_tool_call || json_is_string(c.names);
    if (c.required)
        s->grammar = NULL, s->grammar_bytes = 0; /* a call has no text that could have a grammar */
    return check_schemas(b);
}
