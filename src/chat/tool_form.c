/* The form of an answer that must call tools, as an expression of ln_sampling.form: the text of a model's
 * calls (tool_calls.c) with the JSON schema of each tool's parameters in its place. */
#include "tool_calls.h"
#include "../base/json_write.h"

#include <string.h>

/* The name of a tool and its parameters, as templates find them: in its function, or in the tool itself. */
static const json_t *function_of(const json_t *tool) {
    const json_t *function = json_object_get(tool, "function");
    return function ? function : tool;
}

const json_t *ln_call_tool_name(const json_t *tool) {
    const json_t *name = json_object_get(function_of(tool), "name");
    return json_is_string(name) ? name : NULL;
}

/* Appends {"text": "..."}, or {"token": "..."} for a text that is a special token. */
static void put_literal(ln_str *out, const ln_tok *tok, const char *text, size_t bytes) {
    const int32_t id = ln_tok_id(tok, text, bytes);
    ln_str_adds(out, id >= 0 && ln_tok_is_special(tok, id) ? "{\"token\":" : "{\"text\":");
    ln_str_json(out, text, bytes);
    ln_str_adds(out, "}");
}

static void put_schema(ln_str *out, const json_t *parameters) {
    const char *key;
    json_t *v;
    ln_str_adds(out, "{\"schema\":{");
    json_object_foreach((json_t *)(uintptr_t)parameters, key, v) {
        put_key(out, key);
        ln_str_json_value(out, v);
    }
    if (!json_object_get(parameters, "type")) put_text(out, "type", "object"); /* arguments are one */
    ln_str_adds(out, "}}");
}

/* Appends the object of a call. Its name is JSON inside the text, which is JSON again. */
static void put_object_of(ln_str *out, const ln_call_form *f, const json_t *tool) {
    const json_t *name = ln_call_tool_name(tool);
    ln_str head = {0};
    ln_str_adds(&head, "{\"name\": ");
    ln_str_json(&head, json_string_value(name), json_string_length(name));
    ln_str_addf(&head, ", \"%s\": ", f->arguments);
    ln_str_adds(out, "{\"sequence\":[");
    ln_str_json(out, head.data ? head.data : "", head.len);
    out->failed |= head.failed;
    ln_str_free(&head);
    ln_str_adds(out, ",");
    put_schema(out, json_object_get(function_of(tool), "parameters"));
    ln_str_adds(out, ",\"}\"]}");
}

static bool may_call(const json_t *tool, const char *const *names, size_t n) {
    const json_t *name = ln_call_tool_name(tool);
    for (size_t i = 0; name && i < n; i++)
        if (strcmp(names[i], json_string_value(name)) == 0) return true;
    return false;
}

/* Appends the choice of the calls' objects. */
static void put_objects(ln_str *out, const ln_call_form *f, const json_t *tools, const char *const *names,
                        size_t n) {
    bool first = true;
    ln_str_adds(out, "{\"choice\":[");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i);
        if (!may_call(tool, names, n)) continue;
        if (!first) ln_str_adds(out, ",");
        put_object_of(out, f, tool);
        first = false;
    }
    ln_str_adds(out, "]}");
}

static void put_tagged(ln_str *out, const ln_call_form *f, const ln_tok *tok, const json_t *tools,
                       const char *const *names, size_t n) {
    ln_str_adds(out, "{\"sequence\":[");
    put_literal(out, tok, f->open, strlen(f->open));
    ln_str_adds(out, ",\"\\n\",");
    put_objects(out, f, tools, names, n);
    ln_str_adds(out, ",\"\\n\",");
    put_literal(out, tok, f->end, strlen(f->end));
    ln_str_adds(out, "]}");
}

/* Appends a list of calls. Some templates show a blank after the tag. */
static void put_listed(ln_str *out, const ln_call_form *f, const ln_tok *tok, const json_t *tools,
                       const char *const *names, size_t n, bool single) {
    ln_str_adds(out, "{\"sequence\":[");
    put_literal(out, tok, f->open, strlen(f->open));
    ln_str_adds(out, ",{\"repeat\":\" \",\"max\":1},\"[\",");
    put_objects(out, f, tools, names, n);
    if (!single) {
        ln_str_adds(out, ",{\"repeat\":{\"sequence\":[\", \",");
        put_objects(out, f, tools, names, n);
        ln_str_adds(out, "]}}");
    }
    ln_str_adds(out, ",\"]\"]}");
}

void ln_call_form_put(ln_str *out, const ln_call_form *f, const ln_tok *tok, const json_t *tools,
                      const char *const *names, size_t n, bool single) {
    if (f->style == LN_CALLS_WHOLE) { /* templates with this form take one call at a time */
        put_objects(out, f, tools, names, n);
    } else if (f->style == LN_CALLS_LISTED) {
        put_listed(out, f, tok, tools, names, n, single);
    } else if (single) {
        put_tagged(out, f, tok, tools, names, n);
    } else {
        ln_str_adds(out, "{\"repeat\":{\"sequence\":[");
        put_tagged(out, f, tok, tools, names, n);
        ln_str_adds(out, ",{\"repeat\":\"\\n\",\"max\":1}]},\"min\":1}");
    }
}
