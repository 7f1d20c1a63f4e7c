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

static ln_status fill_names(const json_t *tools, ln_arena *a, ln_sampling *how, ln_error *err) {
    const size_t n = json_array_size(tools);
    const char **names = ln_arena_alloc(a, n * sizeof *names + 1);
    size_t n_names = 0;
    if (!names) return LN_OOM(err, "the names of tools");
    for (size_t i = 0; i < n; i++) {
        const json_t *name = ln_call_tool_name(json_array_get(tools, i));
        if (!name) continue; /* a tool that cannot be called by a name */
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
        const char *name = json_string_value(ln_call_tool_name(json_array_get(tools, i)));
        if (name && strcmp(name, wanted) == 0) return LN_OK;
    }
    return ln_fail(err, LN_EUSAGE,
                   "ln_sampling.tool_names: expected names of tools of ln_prompt.request, found '%s'",
                   ln_excerpt(shown, wanted, strlen(wanted)));
}

/* Sets the form of an answer that must call tools, or may where it has a form of its own. */
static ln_status set_form(const ln_package *m, const json_t *tools, ln_arena *a, ln_sampling *how,
                          ln_error *err) {
    const bool must = how->tool_choice == LN_TOOLS_REQUIRED;
    ln_str s = {0};
    if (!must && !how->form) return LN_OK;
    if (must && how->form)
        return ln_fail(err, LN_EUSAGE,
                       "ln_sampling.form and LN_TOOLS_REQUIRED exclude each other: an answer that must be a "
                       "call has the form of one");
    if (!must) {
        ln_str_adds(&s, "{\"choice\":[");
        ln_str_add(&s, how->form, how->form_bytes);
        ln_str_adds(&s, ",");
    }
    ln_call_form_put(&s, m->calls, m->tok, tools, how->tool_names, how->n_tool_names, how->single_tool_call);
    if (!must) ln_str_adds(&s, "]}");
    how->form = s.failed ? NULL : ln_arena_strndup(a, s.data, s.len);
    how->form_bytes = s.len;
    ln_str_free(&s);
    return how->form ? LN_OK : LN_OOM(err, "the form of calls");
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
    if (st == LN_OK) st = set_form(m, tools, a, how, err);
    json_decref(tools);
    return st;
}
