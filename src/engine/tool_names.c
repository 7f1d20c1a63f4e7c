/* The tools that a request may call. */
#include "tool_names.h"
#include "../base/json.h"
#include "../base/json_write.h"
#include "../grammar/grammar.h"

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

/* ---- the grammar of the answer ---- */

/* What the functions below share. */
typedef struct form_maker {
    const ln_package *m;
    const json_t *tools;
    const ln_sampling *how;
    bool *loose; /* [tools] whose arguments are not held to their schema */
} form_maker;

static bool must(const form_maker *f) { return f->how->tool_choice == LN_TOOLS_REQUIRED; }

/* Appends the grammar of a whole answer. If it is messages with headers, that of the final one is given. */
static void put_answer(const ln_package *m, ln_str *s, const char *grammar, size_t bytes) {
    if (m->delims && m->delims->channels) ln_channel_grammar_answer(s, grammar, bytes);
    else ln_str_add(s, grammar, bytes);
}

static void put_form(const form_maker *f, ln_str *s) {
    const ln_sampling *how = f->how;
    const ln_call_format *format = f->m->tools.format;
    const bool beside = !must(f) && how->grammar;
    const ln_call_need need = must(f) || beside ? LN_CALLS_MUST : LN_CALLS_MAY;
    ln_str calls = {0};
    ln_call_grammar_put(&calls, format, f->m->tok, f->tools, how->tool_names, how->n_tool_names, f->loose,
                        need, how->single_tool_call);
    s->failed |= calls.failed;
    if (beside) {
        ln_str_adds(s, "{\"choice\":[");
        put_answer(f->m, s, how->grammar, how->grammar_bytes);
        ln_str_adds(s, ",");
    }
    if (calls.data && need == LN_CALLS_MUST && format->place != LN_CALLS_IN_CHANNEL)
        put_answer(f->m, s, calls.data, calls.len);
    else if (calls.data) ln_str_add(s, calls.data, calls.len);
    if (beside) ln_str_adds(s, "]}");
    ln_str_free(&calls);
}

static ln_status check_form(const ln_str *s, ln_error *err) {
    ln_grammar *g;
    if (s->failed) return LN_OOM(err, "the grammar of calls");
    const ln_status st = ln_grammar_open(&g, s->data, s->len, err);
    ln_grammar_close(&g);
    return st;
}

/* Stores in *why why the calls of tool i cannot be constrained to its schema. LN_OK: they can. */
static ln_status check_tool(const form_maker *f, size_t i, ln_error *why) {
    const json_t *tool = json_array_get(f->tools, i), *schema = ln_call_tool_schema(tool);
    const char *const only = json_string_value(ln_call_tool_name(tool));
    ln_str s = {0};
    ln_status st = LN_OK;
    if (schema) { /* alone first: the message then begins with a place in the schema */
        ln_str_adds(&s, "{\"schema\":");
        ln_str_json_value(&s, schema);
        ln_str_adds(&s, "}");
        st = check_form(&s, why);
        s.len = 0;
    }
    ln_call_grammar_put(&s, f->m->tools.format, f->m->tok, f->tools, &only, 1, NULL, LN_CALLS_MUST, true);
    if (st == LN_OK) st = check_form(&s, why);
    ln_str_free(&s);
    return st;
}

static bool may_be_called(const form_maker *f, size_t i) {
    const json_t *name = ln_call_tool_name(json_array_get(f->tools, i));
    for (size_t k = 0; name && k < f->how->n_tool_names; k++)
        if (strcmp(f->how->tool_names[k], json_string_value(name)) == 0) return true;
    return false;
}

/* Finds the tools whose schemas cannot be met by constrained calls. With "strict": false in its
 * definition such a tool takes any object, else it is an error. */
static ln_status find_loose(const form_maker *f, bool *any, ln_error *err) {
    ln_error why;
    *any = false;
    for (size_t i = 0; i < json_array_size(f->tools); i++) {
        if (!may_be_called(f, i)) continue;
        const json_t *tool = json_array_get(f->tools, i);
        const char *name = json_string_value(ln_call_tool_name(tool));
        const ln_status st = check_tool(f, i, &why);
        if (st != LN_OK && st != LN_EINVALID) return ln_fail(err, st, "%s", why.message);
        if (st == LN_OK) continue;
        if (!ln_call_tool_is_lenient(tool))
            return ln_fail(err, st,
                           "the tool %s: %s; \"strict\": false in its definition permits any object as "
                           "arguments",
                           name, why.message);
        ln_log(LN_LOG_WARN, "the arguments of the tool %s (\"strict\": false) are any object: %s", name,
               why.message);
        f->loose[i] = *any = true;
    }
    return LN_OK;
}

/* With AUTO, replaces the grammar by one in which some tools take any object: those that permit it, or all
 * whose schemas together are too large. */
static ln_status loosen(const form_maker *f, ln_str *s, ln_error *err) {
    bool any;
    ln_error why;
    const size_t n = json_array_size(f->tools);
    ln_status st = check_form(s, &why);
    if (st != LN_EINVALID || must(f))
        return st == LN_OK || st == LN_EINVALID ? LN_OK : ln_fail(err, st, "%s", why.message);
    LN_TRY(find_loose(f, &any, err));
    if (any) {
        s->len = 0;
        put_form(f, s);
        st = check_form(s, &why);
        if (st != LN_EINVALID) return st == LN_OK ? LN_OK : ln_fail(err, st, "%s", why.message);
    }
    ln_log(LN_LOG_WARN, "the arguments of %zu tools are any object: their schemas together are too large", n);
    for (size_t i = 0; i < n; i++) f->loose[i] = true;
    s->len = 0;
    put_form(f, s);
    return LN_OK;
}

/* Sets the grammar of the answer: calls, or a text that may have them. */
static ln_status set_form(const ln_package *m, const json_t *tools, ln_arena *a, ln_sampling *how,
                          bool *prose, ln_error *err) {
    form_maker f = {m, tools, how, ln_arena_alloc(a, json_array_size(tools) + 1)};
    ln_str s = {0};
    if (!f.loose) return LN_OOM(err, "the grammar of calls");
    memset(f.loose, 0, json_array_size(tools) + 1);
    if (must(&f) && how->grammar)
        return ln_fail(err, LN_EUSAGE,
                       "ln_sampling.grammar and LN_TOOLS_REQUIRED exclude each other: an answer that must "
                       "be a call has the format of one");
    *prose = !must(&f) && !how->grammar;
    put_form(&f, &s);
    const ln_status st = loosen(&f, &s, err);
    if (st == LN_OK) {
        how->grammar = s.failed ? NULL : ln_arena_strndup(a, s.data, s.len);
        how->grammar_bytes = s.len;
    }
    ln_str_free(&s);
    if (st != LN_OK) return st;
    return how->grammar ? LN_OK : LN_OOM(err, "the grammar of calls");
}

/* Applies the caller's grammar to the final message if an answer is messages with headers. */
static ln_status set_answer(const ln_package *m, const ln_prompt *p, ln_arena *a, ln_sampling *how,
                            ln_error *err) {
    ln_str s = {0};
    if (!how->grammar || !m->delims || !m->delims->channels || !ln_package_uses_template(m, p)) return LN_OK;
    put_answer(m, &s, how->grammar, how->grammar_bytes);
    how->grammar = s.failed ? NULL : ln_arena_strndup(a, s.data, s.len);
    how->grammar_bytes = s.len;
    ln_str_free(&s);
    return how->grammar ? LN_OK : LN_OOM(err, "the grammar of an answer");
}

ln_status ln_eng_tool_names(const ln_package *m, const ln_prompt *p, ln_arena *a, ln_sampling *how,
                            ln_answer_tools *out, bool *prose, ln_error *err) {
    json_t *tools = NULL;
    ln_status st = LN_OK;
    if (how->tool_choice == LN_TOOLS_OFF) return set_answer(m, p, a, how, err);
    if (!m->tools.several) how->single_tool_call = true; /* it could not be given more of them back */
    if (p->request) LN_TRY(load_tools(p, &tools, err));
    if (how->n_tool_names == 0) st = fill_names(tools, a, how, err);
    for (size_t i = 0; st == LN_OK && i < how->n_tool_names; i++)
        st = check_name(tools, how->tool_names[i], err);
    if (st == LN_OK)
        st = ln_call_tools(a, tools, how->tool_names, how->n_tool_names, &out->list, &out->n, err);
    if (st == LN_OK) st = set_form(m, tools, a, how, prose, err);
    json_decref(tools);
    return st;
}
