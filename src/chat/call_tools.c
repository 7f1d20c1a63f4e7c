/* The tools that calls may name, as the parser of calls needs them. */
#include "tool_calls.h"

#include <string.h>

enum { MOST_REFERENCES = 16 };

/* The name of a tool and its parameters, as templates find them: in its function, or in the tool itself. */
static const json_t *function_of(const json_t *tool) {
    const json_t *function = json_object_get(tool, "function");
    return function ? function : tool;
}

const json_t *ln_call_tool_name(const json_t *tool) {
    const json_t *name = json_object_get(function_of(tool), "name");
    return json_is_string(name) ? name : NULL;
}

const json_t *ln_call_tool_schema(const json_t *tool) {
    const json_t *schema = json_object_get(function_of(tool), "parameters");
    return json_is_object(schema) ? schema : NULL;
}

bool ln_call_tool_is_lenient(const json_t *tool) {
    return json_is_false(json_object_get(function_of(tool), "strict")) ||
           json_is_false(json_object_get(tool, "strict"));
}

/* ---- kinds of parameters ---- */

/* The value that a pointer of a reference (RFC 6901) leads to. Escapes (~0, ~1, %) are not read: no name of a
 * definition that is known has one. */
static const json_t *pointed(const json_t *root, const char *at) {
    char name[256];
    while (root && *at == '/') {
        const size_t n = strcspn(++at, "/");
        if (n >= sizeof name) return NULL;
        memcpy(name, at, n);
        name[n] = '\0';
        root = json_object_get(root, name);
        at += n;
    }
    return *at ? NULL : root;
}

const json_t *ln_call_resolve(const json_t *root, const json_t *schema) {
    for (int i = 0; i < MOST_REFERENCES; i++) {
        const char *ref = json_string_value(json_object_get(schema, "$ref"));
        if (!ref) return schema;
        schema = *ref == '#' ? pointed(root, ref + 1) : NULL;
    }
    return NULL;
}

static unsigned kinds_of_type(const json_t *type) {
    static const struct {
        const char *name;
        unsigned kinds;
    } types[] = {{"string", LN_PARAM_TEXT},
                 {"null", LN_PARAM_NULL},
                 {"boolean", LN_PARAM_BOOL},
                 {"integer", LN_PARAM_INTEGER},
                 {"number", LN_PARAM_INTEGER | LN_PARAM_NUMBER},
                 {"array", LN_PARAM_ARRAY},
                 {"object", LN_PARAM_OBJECT}};
    unsigned kinds = 0;
    for (size_t i = 0; i < LN_COUNT(types); i++)
        if (ln_json_is_text(type, types[i].name)) kinds = types[i].kinds;
    for (size_t i = 0; i < json_array_size(type); i++) kinds |= kinds_of_type(json_array_get(type, i));
    return kinds;
}

static unsigned kinds_of_value(const json_t *v) {
    switch (json_typeof(v)) {
    case JSON_STRING: return LN_PARAM_TEXT;
    case JSON_INTEGER: return LN_PARAM_INTEGER;
    case JSON_REAL: return LN_PARAM_NUMBER;
    case JSON_ARRAY: return LN_PARAM_ARRAY;
    case JSON_OBJECT: return LN_PARAM_OBJECT;
    case JSON_NULL: return LN_PARAM_NULL;
    default: return LN_PARAM_BOOL;
    }
}

static unsigned kinds_of(const json_t *root, const json_t *schema, int depth) {
    static const char *const lists[] = {"anyOf", "oneOf", "allOf"};
    const json_t *s = ln_call_resolve(root, schema), *all = json_object_get(s, "enum");
    const json_t *one = json_object_get(s, "const");
    unsigned kinds = one ? kinds_of_value(one) : kinds_of_type(json_object_get(s, "type"));
    if (kinds) return kinds;
    for (size_t i = 0; i < json_array_size(all); i++) kinds |= kinds_of_value(json_array_get(all, i));
    for (size_t k = 0; k < LN_COUNT(lists) && !kinds && depth < MOST_REFERENCES; k++) {
        const json_t *list = json_object_get(s, lists[k]);
        for (size_t i = 0; i < json_array_size(list); i++)
            kinds |= kinds_of(root, json_array_get(list, i), depth + 1);
    }
    return kinds ? kinds : LN_PARAM_ANY;
}

unsigned ln_call_param_kinds(const json_t *root, const json_t *schema) { return kinds_of(root, schema, 0); }

/* ---- lists ---- */

static bool is_among(const json_t *name, const char *const *names, size_t n) {
    for (size_t i = 0; name && i < n; i++)
        if (ln_json_is_text(name, names[i])) return true;
    return false;
}

static bool fill_tool(ln_arena *a, const json_t *tool, ln_call_tool *out) {
    const json_t *schema = ln_call_tool_schema(tool), *name = ln_call_tool_name(tool);
    json_t *properties = json_object_get(schema, "properties"), *property;
    const char *key;
    ln_call_param *params = ln_arena_alloc(a, json_object_size(properties) * sizeof *params + 1);
    *out = (ln_call_tool){ln_arena_strndup(a, json_string_value(name), json_string_length(name)), params, 0};
    if (!out->name || !params) return false;
    json_object_foreach(properties, key, property) {
        ln_call_param *p = &params[out->n_params++];
        *p = (ln_call_param){ln_arena_strndup(a, key, strlen(key)), ln_call_param_kinds(schema, property)};
        if (!p->name) return false;
    }
    return true;
}

ln_status ln_call_tools(ln_arena *a, const json_t *tools, const char *const *names, size_t n,
                        const ln_call_tool **out, size_t *n_out, ln_error *err) {
    const size_t most = json_array_size(tools);
    ln_call_tool *list = ln_arena_alloc(a, most * sizeof *list + 1);
    bool good = list != NULL;
    *out = list;
    *n_out = 0;
    for (size_t i = 0; good && i < most; i++) {
        const json_t *tool = json_array_get(tools, i);
        if (is_among(ln_call_tool_name(tool), names, n)) good = fill_tool(a, tool, &list[(*n_out)++]);
    }
    return good ? LN_OK : LN_OOM(err, "the tools of a request");
}

ln_status ln_call_tools_copy(ln_arena *a, const ln_call_tool *tools, size_t n, const ln_call_tool **out,
                             ln_error *err) {
    ln_call_tool *list = ln_arena_alloc(a, n * sizeof *list + 1);
    *out = list;
    for (size_t i = 0; list && i < n; i++) {
        ln_call_param *params = ln_arena_alloc(a, tools[i].n_params * sizeof *params + 1);
        list[i] = (ln_call_tool){ln_arena_strndup(a, tools[i].name, strlen(tools[i].name)), params,
                                 tools[i].n_params};
        bool good = params && list[i].name;
        for (size_t k = 0; good && k < list[i].n_params; k++) {
            params[k] = tools[i].params[k];
            params[k].name = ln_arena_strndup(a, params[k].name, strlen(params[k].name));
            good = params[k].name != NULL;
        }
        if (!good) list = NULL;
    }
    return list ? LN_OK : LN_OOM(err, "the tools of a request");
}
