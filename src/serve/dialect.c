/* What the translations of bodies share. */
#include "dialect.h"
#include "../wire/body.h"

#include <string.h>

static ln_status no_room(request_context *x) {
    return wire_fail(&x->why, LN_OOM(&x->why.error, "a request"));
}

ln_status dialect_set(request_context *x, json_t *to, const char *name, json_t *v) {
    return v && json_object_set_new(to, name, v) == 0 ? LN_OK : no_room(x);
}

ln_status dialect_copy(request_context *x, const json_t *from, json_t *to, const char *const *pairs) {
    for (; pairs[0]; pairs += 2) {
        json_t *v = json_object_get(from, pairs[0]);
        if (!v || json_is_null(v)) continue;
        LN_TRY(dialect_set(x, to, pairs[1], json_incref(v)));
    }
    return LN_OK;
}

ln_status dialect_add_message(request_context *x, json_t *list, const char *role, const ln_str *text) {
    json_t *m = json_object();
    if (!m || text->failed || json_array_append_new(list, m) != 0) return no_room(x);
    LN_TRY(dialect_set(x, m, "role", json_stringn(role, strlen(role))));
    return dialect_set(x, m, "content", json_stringn(text->data ? text->data : "", text->len));
}

ln_status dialect_add_result(request_context *x, json_t *list, json_t *id, const ln_str *text) {
    LN_TRY(dialect_add_message(x, list, "tool", text));
    return dialect_set(x, json_array_get(list, json_array_size(list) - 1), "tool_call_id", json_incref(id));
}

ln_status dialect_add_call(request_context *x, json_t *calls, json_t *id, json_t *name, json_t *arguments) {
    json_t *call = json_object(), *function = json_object();
    if (!calls) json_decref(call);
    if (!calls || !call || json_array_append_new(calls, call) != 0) {
        json_decref(function);
        return no_room(x);
    }
    LN_TRY(dialect_set(x, call, "function", function));
    LN_TRY(dialect_set(x, call, "id", json_incref(id)));
    LN_TRY(dialect_set(x, call, "type", json_string("function")));
    LN_TRY(dialect_set(x, function, "name", json_incref(name)));
    return dialect_set(x, function, "arguments", json_incref(arguments));
}

ln_status dialect_add_tool(request_context *x, json_t *list, const json_t *tool, const char *parameters) {
    const char *const pairs[] = {"name",       "name",   "description", "description", parameters,
                                 "parameters", "strict", "strict",      NULL};
    json_t *outer = json_object(), *function = json_object();
    if (!outer || json_array_append_new(list, outer) != 0) {
        json_decref(function);
        return no_room(x);
    }
    LN_TRY(dialect_set(x, outer, "type", json_string("function")));
    LN_TRY(dialect_set(x, outer, "function", function));
    return dialect_copy(x, tool, function, pairs);
}

ln_status dialect_add_foreign(request_context *x, json_t *list, const json_t *tool) {
    const json_t *type = json_object_get(tool, "type");
    json_t *foreign = json_pack("{s: s}", "type", json_is_string(type) ? json_string_value(type) : "?");
    return foreign && json_array_append_new(list, foreign) == 0 ? LN_OK : no_room(x);
}

ln_status dialect_format(request_context *x, json_t *to, const json_t *format, const char *field) {
    const json_t *type = json_object_get(format, "type");
    char found[80];
    if (!format || json_is_null(format)) return LN_OK;
    if (!json_is_object(format) || !json_is_string(type))
        return wire_refuse(&x->why, field, "expected an object with a type, found %s",
                           ln_json_text(format, found));
    return dialect_set(x, to, "response_format", json_incref((json_t *)(uintptr_t)format));
}

ln_status dialect_text(request_context *x, const json_t *v, const char *field, const char *const *types,
                       ln_str *out) {
    char found[80];
    size_t i;
    json_t *part;
    if (json_is_string(v)) {
        ln_str_add(out, json_string_value(v), json_string_length(v));
        return LN_OK;
    }
    if (!json_is_array(v))
        return wire_refuse(&x->why, field, "expected a text or a list of parts, found %s",
                           ln_json_text(v, found));
    json_array_foreach((json_t *)(uintptr_t)v, i, part) {
        const json_t *type = json_object_get(part, "type"), *text = json_object_get(part, "text");
        bool known = false;
        for (const char *const *t = types; *t && json_is_string(type); t++)
            known = known || strcmp(json_string_value(type), *t) == 0;
        if (!known || !json_is_string(text)) {
            const ln_status st =
                wire_refuse(&x->why, field, "part %zu: expected one of type %s with a text, found %s", i + 1,
                            types[0], ln_json_text(part, found));
            x->why.code = "unsupported_parameter";
            return st;
        }
        if (i > 0) ln_str_adds(out, "\n");
        ln_str_add(out, json_string_value(text), json_string_length(text));
    }
    return LN_OK;
}

ln_status dialect_siblings(request_context *x, const json_t *body, const char *const *pairs) {
    for (; pairs[0]; pairs += 2) {
        const json_t *v = json_object_get(body, pairs[0]);
        if (!v || json_is_null(v)) continue;
        const ln_status st =
            wire_refuse(&x->why, pairs[0], "that is a field of another API; use \"%s\"", pairs[1]);
        x->why.code = "unsupported_parameter";
        return st;
    }
    return LN_OK;
}

void dialect_others(const json_t *body, const char *const *pairs, const char *const *names) {
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)body, key, v) {
        bool known = false;
        for (const char *const *p = pairs; *p && !known; p += 2) known = strcmp(*p, key) == 0;
        for (const char *const *p = names; *p && !known; p++) known = strcmp(*p, key) == 0;
        if (!known) body_unknown("", key);
    }
}
