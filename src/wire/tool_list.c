/* The list of tools of a conversation. A chat template writes the tools into the prompt as they are, so that
 * their members are checked here, where the error can name the field. */
#include "body.h"

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
