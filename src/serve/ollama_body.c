/* Bodies of ollama's /api/chat and /api/generate: a request becomes one of /v1/chat/completions, or with
 * `raw` one of /v1/completions. Options that change the answer are read or rejected by name. Those that
 * change how ollama loads a model change nothing here (docs/decisions/040). */
#include "../wire/body.h"
#include "dialect.h"

#include <stdio.h>
#include <string.h>

/* Members of `options` with another name, or the same. */
static const char *const options[] = {"temperature",
                                      "temperature",
                                      "top_k",
                                      "top_k",
                                      "top_p",
                                      "top_p",
                                      "min_p",
                                      "min_p",
                                      "typical_p",
                                      "typical_p",
                                      "tfs_z",
                                      "tfs_z",
                                      "mirostat",
                                      "mirostat",
                                      "seed",
                                      "seed",
                                      "stop",
                                      "stop",
                                      "repeat_penalty",
                                      "repetition_penalty",
                                      "repeat_last_n",
                                      "repeat_last_n",
                                      "presence_penalty",
                                      "presence_penalty",
                                      "frequency_penalty",
                                      "frequency_penalty",
                                      NULL};
/* Options that are read by name, or that change how ollama loads a model and no token. */
static const char *const other_options[] = {
    "num_predict",       "num_ctx",  "penalize_newline", "num_keep",     "num_batch",    "num_gpu",
    "main_gpu",          "low_vram", "f16_kv",           "vocab_only",   "use_mmap",     "use_mlock",
    "num_thread",        "numa",     "logits_all",       "mirostat_tau", "mirostat_eta", "embedding_only",
    "draft_num_predict", NULL};
static const char *const copied[] = {
    "tools", "tools", "tool_choice", "tool_choice", "parallel_tool_calls", "parallel_tool_calls", NULL};
static const char *const read_here[] = {
    "model",        "name",     "messages", "prompt", "system", "template", "suffix",     "raw",
    "context",      "images",   "options",  "format", "stream", "think",    "keep_alive", "logprobs",
    "top_logprobs", "truncate", "shift",    "width",  "height", "steps",    NULL};
static const char *const siblings[] = {"max_tokens",
                                       "options.num_predict",
                                       "max_completion_tokens",
                                       "options.num_predict",
                                       "num_predict",
                                       "options.num_predict",
                                       "num_ctx",
                                       "options.num_ctx",
                                       "temperature",
                                       "options.temperature",
                                       "top_p",
                                       "options.top_p",
                                       "top_k",
                                       "options.top_k",
                                       "min_p",
                                       "options.min_p",
                                       "seed",
                                       "options.seed",
                                       "stop",
                                       "options.stop",
                                       "repeat_penalty",
                                       "options.repeat_penalty",
                                       "response_format",
                                       "format",
                                       "enable_thinking",
                                       "think",
                                       "reasoning_effort",
                                       "think",
                                       "input",
                                       "messages or prompt",
                                       "functions",
                                       "tools",
                                       NULL};

/* Whether a member is neither absent, null nor the empty value of its type. */
static bool has_text(const json_t *body, const char *name) {
    const json_t *v = json_object_get(body, name);
    return v && !json_is_null(v) && !(json_is_string(v) && json_string_length(v) == 0);
}
static bool has_list(const json_t *body, const char *name) {
    const json_t *v = json_object_get(body, name);
    return v && !json_is_null(v) && !(json_is_array(v) && json_array_size(v) == 0);
}

static ln_status unsupported(request_context *x, const char *field, const char *advice) {
    const ln_status st = wire_refuse(&x->why, field, "is not supported; %s", advice);
    x->why.code = "unsupported_parameter";
    return st;
}

/* ---- the model ---- */

json_t *ollama_model(const request_context *x, const json_t *body) {
    static const char latest[] = ":latest"; /* the tag that ollama adds to names without one */
    json_t *v = json_object_get(body, "model"), *name = v ? v : json_object_get(body, "name");
    const size_t n = json_string_length(name), k = sizeof latest - 1;
    const char *text = json_string_value(name);
    const bool tagged = text && n > k && strcmp(text + n - k, latest) == 0;
    if (!tagged || model_list_index(x->models, text, n) < x->models->n) return json_incref(name);
    return json_stringn(text, n - k);
}

/* ---- options ---- */

/* Sets max_tokens: without a number, or with a negative one, an answer ends with its end or the context's. */
static ln_status add_length(request_context *x, const json_t *o, json_t *to) {
    char found[80];
    int64_t n = -1;
    const json_t *v = json_object_get(o, "num_predict");
    if (v && !json_is_null(v) && (!body_integer(v, &n) || n < -2))
        return wire_refuse(&x->why, "options.num_predict", "expected an integer of -2 or more, found %s",
                           ln_json_text(v, found));
    return dialect_set(x, to, "max_tokens", json_integer(LN_MAX(n, -1)));
}

/* The context is the server's, and a request cannot enlarge it. A prompt that is longer is an error of its
 * own, and an answer that the context ends says so. */
static ln_status note_context(request_context *x, const json_t *o) {
    char found[80];
    int64_t n;
    const json_t *v = json_object_get(o, "num_ctx");
    if (!v || json_is_null(v)) return LN_OK;
    if (!body_integer(v, &n) || n < 1)
        return wire_refuse(&x->why, "options.num_ctx", "expected a positive integer, found %s",
                           ln_json_text(v, found));
    if (n > x->s->plan.n_ctx)
        (void)snprintf(x->note, sizeof x->note, "options.num_ctx %lld: the context has %lld positions here",
                       (long long)n, (long long)x->s->plan.n_ctx);
    return LN_OK;
}

static ln_status add_options(request_context *x, const json_t *body, json_t *to) {
    const json_t *o = json_object_get(body, "options");
    char found[80];
    const char *key;
    json_t *v;
    if (o && !json_is_null(o) && !json_is_object(o))
        return wire_refuse(&x->why, "options", "expected an object, found %s", ln_json_text(o, found));
    LN_TRY(add_length(x, o, to));
    LN_TRY(note_context(x, o));
    if (json_is_false(json_object_get(o, "penalize_newline")))
        return unsupported(x, "options.penalize_newline", "newlines are penalised as other tokens are");
    json_object_foreach((json_t *)(uintptr_t)o, key, v) {
        bool known = false;
        for (const char *const *p = options; *p && !known; p += 2) known = strcmp(*p, key) == 0;
        for (const char *const *p = other_options; *p && !known; p++) known = strcmp(*p, key) == 0;
        if (!known) body_unknown("options.", key);
    }
    LN_TRY(dialect_copy(x, o, to, options));
    const bool penalty = json_object_get(to, "repetition_penalty") != NULL;
    if (!penalty || json_object_get(to, "repeat_last_n")) return LN_OK;
    return dialect_set(x, to, "repeat_last_n", json_integer(64)); /* ollama's default */
}

/* ---- what answers have ---- */

static ln_status add_format(request_context *x, const json_t *body, json_t *to) {
    json_t *v = json_object_get(body, "format");
    char found[80];
    if (!has_text(body, "format")) return LN_OK;
    if (ln_json_is_text(v, "json"))
        return dialect_set(x, to, "response_format", json_pack("{s: s}", "type", "json_object"));
    if (!json_is_object(v))
        return wire_refuse(&x->why, "format", "expected \"json\" or a JSON schema, found %s",
                           ln_json_text(v, found));
    return dialect_set(x, to, "response_format",
                       json_pack("{s: s, s: {s: s, s: O}}", "type", "json_schema", "json_schema", "name",
                                 "format", "schema", v));
}

static ln_status add_think(request_context *x, const json_t *body, json_t *to) {
    json_t *v = json_object_get(body, "think");
    const bool reasons = x->s->info.has_reasoning || x->s->info.has_think_switch;
    char found[80];
    if (!v || json_is_null(v)) return LN_OK;
    const bool effort =
        ln_json_is_text(v, "low") || ln_json_is_text(v, "medium") || ln_json_is_text(v, "high");
    if (!effort && !json_is_boolean(v))
        return wire_refuse(&x->why, "think", "expected true, false, low, medium or high, found %s",
                           ln_json_text(v, found));
    if (!reasons && !json_is_false(v)) return unsupported(x, "think", "the model does not support thinking");
    return dialect_set(x, to, effort ? "reasoning_effort" : "enable_thinking", json_incref(v));
}

/* Log-probabilities: for a completion, the field itself is the number of likeliest tokens. */
static ln_status add_logprobs(request_context *x, const json_t *body, json_t *to) {
    json_t *on = json_object_get(body, "logprobs"), *top = json_object_get(body, "top_logprobs");
    if (!x->raw) {
        const char *const pairs[] = {"logprobs", "logprobs", "top_logprobs", "top_logprobs", NULL};
        return dialect_copy(x, body, to, pairs);
    }
    if (!json_is_true(on)) return LN_OK;
    return dialect_set(x, to, "logprobs", top && !json_is_null(top) ? json_incref(top) : json_integer(0));
}

/* What both paths have. An answer is a stream unless the body says no. */
static ln_status add_common(request_context *x, const json_t *body, json_t *to) {
    json_t *stream = json_object_get(body, "stream"), *model = ollama_model(x, body);
    const bool streams = !stream || json_is_null(stream);
    if (model) LN_TRY(dialect_set(x, to, "model", model));
    LN_TRY(dialect_siblings(x, body, siblings));
    LN_TRY(dialect_set(x, to, "stream", streams ? json_true() : json_incref(stream)));
    LN_TRY(add_options(x, body, to));
    LN_TRY(add_format(x, body, to));
    LN_TRY(add_logprobs(x, body, to));
    dialect_others(body, copied, read_here);
    return LN_OK;
}

/* A request that names a model and has no text loads the model, which is loaded. `field` would have the
 * text. */
static ln_status answer_load(request_context *x, json_t *to, const char *field) {
    const json_t *model = json_object_get(to, "model");
    size_t i;
    char found[80];
    if (!model) return wire_refuse(&x->why, field, "is required");
    if (!json_is_string(model))
        return wire_refuse(&x->why, "model", "expected a text, found %s", ln_json_text(model, found));
    LN_TRY(wire_find_model(&i, &x->models->target, json_string_value(model), json_string_length(model),
                           &x->why));
    ollama_put_loaded(&x->out, x, x->models->names[i]);
    return LN_OK;
}

/* ---- messages ---- */

/* Calls of the last message of the assistant whose results have not come. */
typedef struct pending {
    json_t *calls; /* a list of tool_calls, borrowed, or NULL */
    uint64_t answered;
    size_t n_calls; /* of all messages */
} pending;

/* Returns the id of a call that has none, as the model's template takes it; NULL: out of memory. */
static json_t *call_id(const request_context *x, const pending *p, const json_t *name) {
    const char *form = x->models->target.tool_format;
    char id[120];
    if (form && strcmp(form, "kimi") == 0 && json_is_string(name))
        (void)snprintf(id, sizeof id, "functions.%.80s:%zu", json_string_value(name), p->n_calls);
    else (void)snprintf(id, sizeof id, "%09zu", p->n_calls);
    return json_string(id);
}

static ln_status add_calls(request_context *x, pending *p, const char *field, const json_t *all,
                           json_t *message) {
    char found[80];
    size_t k;
    json_t *call, *list = json_array();
    if (!json_is_array(all)) {
        json_decref(list);
        return wire_refuse(&x->why, field, "expected a list of tool_calls, found %s",
                           ln_json_text(all, found));
    }
    LN_TRY(dialect_set(x, message, "tool_calls", list));
    json_array_foreach((json_t *)(uintptr_t)all, k, call) {
        const json_t *f = json_object_get(call, "function");
        json_t *name = json_object_get(f, "name"), *arguments = json_object_get(f, "arguments");
        json_t *own = json_object_get(call, "id");
        if (!json_is_string(name) || !json_is_object(arguments))
            return wire_refuse(&x->why, field,
                               "expected a call with a function that has a name and an object of arguments, "
                               "found %s",
                               ln_json_text(call, found));
        json_t *id = json_is_string(own) ? json_incref(own) : call_id(x, p, name);
        const ln_status st = id ? dialect_add_call(x, list, id, name, arguments)
                                : wire_fail(&x->why, LN_OOM(&x->why.error, "a request"));
        json_decref(id);
        LN_TRY(st);
        p->n_calls++;
    }
    p->calls = list;
    p->answered = 0;
    return LN_OK;
}

/* Names the call that a result belongs to: by its id, the tool's name, or its place. */
static ln_status add_call_of(request_context *x, pending *p, const json_t *m, json_t *message) {
    json_t *id = json_object_get(m, "tool_call_id"), *name = json_object_get(m, "tool_name");
    size_t first = SIZE_MAX, n = LN_MIN(json_array_size(p->calls), (size_t)64);
    if (json_is_string(name)) LN_TRY(dialect_set(x, message, "name", json_incref(name)));
    if (json_is_string(id) && json_string_length(id) > 0)
        return dialect_set(x, message, "tool_call_id", json_incref(id));
    for (size_t k = n; k-- > 0;) {
        const json_t *f = json_object_get(json_array_get(p->calls, k), "function");
        const bool same = !json_is_string(name) || json_equal(json_object_get(f, "name"), name);
        if (same && !(p->answered >> k & 1)) first = k;
    }
    if (first == SIZE_MAX) return LN_OK;
    p->answered |= (uint64_t)1 << first;
    return dialect_set(x, message, "tool_call_id",
                       json_incref(json_object_get(json_array_get(p->calls, first), "id")));
}

static ln_status add_message(request_context *x, pending *p, size_t i, const json_t *m, json_t *list) {
    static const char *const pairs[] = {"role", "role", "content", "content", "thinking", "reasoning_content",
                                        NULL};
    static const char *const names[] = {"tool_name", "tool_call_id"};
    char field[64], found[80];
    json_t *message = json_object();
    (void)snprintf(field, sizeof field, "messages[%zu]", i);
    if (!message || json_array_append_new(list, message) != 0)
        return wire_fail(&x->why, LN_OOM(&x->why.error, "a request"));
    if (!json_is_object(m))
        return wire_refuse(&x->why, field, "expected an object, found %s", ln_json_text(m, found));
    LN_TRY(dialect_copy(x, m, message, pairs));
    for (size_t k = 0; k < LN_COUNT(names); k++) {
        const json_t *v = json_object_get(m, names[k]);
        (void)snprintf(field, sizeof field, "messages[%zu].%s", i, names[k]);
        if (v && !json_is_null(v) && !json_is_string(v))
            return wire_refuse(&x->why, field, "expected a text, found %s", ln_json_text(v, found));
    }
    (void)snprintf(field, sizeof field, "messages[%zu].images", i);
    if (has_list(m, "images")) return unsupported(x, field, "only text is");
    (void)snprintf(field, sizeof field, "messages[%zu].tool_calls", i);
    if (has_list(m, "tool_calls")) LN_TRY(add_calls(x, p, field, json_object_get(m, "tool_calls"), message));
    if (ln_json_is_text(json_object_get(m, "role"), "tool")) LN_TRY(add_call_of(x, p, m, message));
    if (json_object_get(message, "content")) return LN_OK;
    if (has_list(m, "tool_calls")) return dialect_set(x, message, "content", json_null());
    return has_text(m, "thinking") ? dialect_set(x, message, "content", json_string("")) : LN_OK;
}

ln_status ollama_chat_translate(request_context *x, const json_t *body, json_t *to) {
    const json_t *all = json_object_get(body, "messages");
    json_t *m, *list = json_array();
    pending p = {0};
    char found[80];
    size_t i;
    LN_TRY(dialect_set(x, to, "messages", list));
    LN_TRY(add_common(x, body, to));
    if (has_text(body, "prompt"))
        return unsupported(x, "prompt", "it is a field of /api/generate; use \"messages\"");
    if (!has_list(body, "messages")) return answer_load(x, to, "messages");
    if (!json_is_array(all))
        return wire_refuse(&x->why, "messages", "expected a list of messages, found %s",
                           ln_json_text(all, found));
    json_array_foreach((json_t *)(uintptr_t)all, i, m) LN_TRY(add_message(x, &p, i, m, list));
    LN_TRY(add_think(x, body, to));
    return dialect_copy(x, body, to, copied);
}

/* ---- /api/generate ---- */

static ln_status check_generate(request_context *x, const json_t *body) {
    static const char *const rows[][2] = {
        {"suffix", "text is only continued, not filled in; leave the field out"},
        {"template", "the template is chosen when the model is opened; leave the field out, or use \"raw\""},
        {"context", "send the conversation to /api/chat"},
        {"images", "only text is"},
        {"messages", "it is a field of /api/chat; use \"prompt\""},
        {"tools", "use /api/chat"},
        {"width", "no images are made"},
        {"height", "no images are made"},
        {"steps", "no images are made"}};
    for (size_t i = 0; i < LN_COUNT(rows); i++)
        if (has_text(body, rows[i][0]) && has_list(body, rows[i][0]))
            return unsupported(x, rows[i][0], rows[i][1]);
    return LN_OK;
}

static ln_status add_text(request_context *x, const json_t *body, const char *field, const char *role,
                          json_t *list) {
    const json_t *v = json_object_get(body, field);
    char found[80];
    ln_str text = {0};
    if (!has_text(body, field)) return LN_OK;
    if (!json_is_string(v))
        return wire_refuse(&x->why, field, "expected a text, found %s", ln_json_text(v, found));
    ln_str_add(&text, json_string_value(v), json_string_length(v));
    const ln_status st = dialect_add_message(x, list, role, &text);
    ln_str_free(&text);
    return st;
}

ln_status ollama_generate_translate(request_context *x, const json_t *body, json_t *to) {
    const json_t *raw = json_object_get(body, "raw");
    json_t *prompt = json_object_get(body, "prompt");
    char found[80];
    if (raw && !json_is_null(raw) && !json_is_boolean(raw))
        return wire_refuse(&x->why, "raw", "expected true or false, found %s", ln_json_text(raw, found));
    x->raw = json_is_true(raw);
    LN_TRY(check_generate(x, body));
    LN_TRY(add_common(x, body, to));
    if (!has_text(body, "prompt")) return answer_load(x, to, "prompt");
    if (!json_is_string(prompt))
        return wire_refuse(&x->why, "prompt", "expected a text, found %s", ln_json_text(prompt, found));
    if (x->raw && has_text(body, "system"))
        return unsupported(x, "system", "with \"raw\" no template shows it; put it into the prompt");
    if (x->raw && has_text(body, "think") && !json_is_false(json_object_get(body, "think")))
        return unsupported(x, "think", "with \"raw\" no template shows it; put it into the prompt");
    if (x->raw) return dialect_set(x, to, "prompt", json_incref(prompt));
    json_t *list = json_array();
    LN_TRY(dialect_set(x, to, "messages", list));
    LN_TRY(add_text(x, body, "system", "system", list));
    LN_TRY(add_text(x, body, "prompt", "user", list));
    return add_think(x, body, to);
}
