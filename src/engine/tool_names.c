/* The tools that a request may call. */
#include "tool_names.h"
#include "../base/json.h"

#include <string.h>

/* Loads the member `tools` of a request; *out stays NULL where there is none. Of the messages, which may be
 * long, no tree is made. */
static ln_status load_tools(const ln_prompt *p, json_t **out, ln_error *err) {
    ln_json j;
    bool more = true;
    *out = NULL;
    ln_json_open(&j, "the request", p->request, p->request_bytes, LN_JSON_MAX_DEPTH);
    ln_status st = ln_json_want(&j, LN_J_OBJECT, err);
    while (st == LN_OK && more && !*out) {
        st = ln_json_key(&j, &more, err);
        if (st != LN_OK || !more) break;
        const bool is_tools = ln_json_is(&j, "tools");
        st = ln_json_next(&j, err);
        const size_t from = j.offset;
        if (st == LN_OK) st = ln_json_skip(&j, err);
        if (st == LN_OK && is_tools)
            st = ln_json_load(out, "the request's tools", p->request + from, j.at - from, err);
    }
    ln_json_close(&j);
    return st;
}

/* The name of a tool, as templates find it: that of its function, or its own. */
static const json_t *name_of(const json_t *tool) {
    const json_t *function = json_object_get(tool, "function");
    return json_object_get(function ? function : tool, "name");
}

static ln_status fill_names(const json_t *tools, ln_arena *a, ln_sampling *how, ln_error *err) {
    const size_t n = json_array_size(tools);
    const char **names = ln_arena_alloc(a, n * sizeof *names + 1);
    size_t n_names = 0;
    if (!names) return LN_OOM(err, "the names of tools");
    for (size_t i = 0; i < n; i++) {
        const json_t *name = name_of(json_array_get(tools, i));
        if (!json_is_string(name)) continue; /* a tool that cannot be called by a name */
        names[n_names] = ln_arena_strndup(a, json_string_value(name), json_string_length(name));
        if (!names[n_names++]) return LN_OOM(err, "the names of tools");
    }
    how->tool_names = names;
    how->n_tool_names = n_names;
    if (n_names > 0) return LN_OK;
    return ln_fail(err, LN_EUSAGE,
                   "ln_sampling.tool_choice needs tools with names in ln_prompt.request; set it to "
                   "LN_TOOLS_OFF where there are none");
}

static ln_status check_name(const json_t *tools, const char *wanted, ln_error *err) {
    char shown[80];
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const char *name = json_string_value(name_of(json_array_get(tools, i)));
        if (name && strcmp(name, wanted) == 0) return LN_OK;
    }
    return ln_fail(err, LN_EUSAGE,
                   "ln_sampling.tool_names: expected names of tools of ln_prompt.request, found '%s'",
                   ln_excerpt(shown, wanted, strlen(wanted)));
}

ln_status ln_eng_tool_names(const ln_package *m, const ln_prompt *p, ln_arena *a, ln_sampling *how,
                            ln_error *err) {
    json_t *tools = NULL;
    ln_status st = LN_OK;
    if (how->tool_choice == LN_TOOLS_OFF) return LN_OK;
    if (!m->calls)
        return ln_fail(err, LN_EUNSUPPORTED,
                       "ln_sampling.tool_choice: the model's chat template shows no form of calls that is "
                       "known (<tool_call>, [TOOL_CALLS], or JSON as Llama 3 writes it); with LN_TOOLS_OFF "
                       "the answer is text");
    if (p->request) LN_TRY(load_tools(p, &tools, err));
    if (how->n_tool_names == 0) st = fill_names(tools, a, how, err);
    for (size_t i = 0; st == LN_OK && i < how->n_tool_names; i++)
        st = check_name(tools, how->tool_names[i], err);
    json_decref(tools);
    return st;
}
