/* Conversations: messages, tools and the template's arguments become a prompt.
 *
 * A conversation of plain texts becomes ln_prompt.messages, which every model takes. One with tools, calls or
 * names becomes a request in JSON, which only a chat template takes. Content in parts is joined by newlines,
 * as llama.cpp and vLLM do for templates that expect a text. */
#include "body.h"
#include "../base/json_write.h"

#include <stdio.h>
#include <string.h>

static ln_status no_room(body_reader *b) { return wire_fail(b->why, LN_OOM(&b->why->error, "a request")); }

/* ---- one message ---- */

typedef struct turn {
    const char *role, *content; /* content NULL: null */
    size_t content_bytes;
    const json_t *object;
    bool plain; /* it has a role and a text, nothing else that a template reads */
} turn;

static const char *field_of(char buf[96], size_t i, const char *member) {
    (void)snprintf(buf, 96, "messages[%zu]%s%.60s", i, member[0] ? "." : "", member);
    return buf;
}

/* Reads the role. Templates know system, not developer, its newer name. */
static ln_status read_role(body_reader *b, size_t i, turn *t) {
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool", "function"};
    char field[96], found[80];
    const json_t *v = json_object_get(t->object, "role");
    for (size_t k = 0; json_is_string(v) && k < LN_COUNT(roles); k++)
        if (strcmp(json_string_value(v), roles[k]) == 0) t->role = roles[k == 1 ? 0 : k];
    if (t->role) return LN_OK;
    return wire_refuse(b->why, field_of(field, i, "role"),
                       "expected system, developer, user, assistant, tool or function, found %s",
                       ln_json_text(v, found));
}

static ln_status add_part(body_reader *b, size_t i, size_t k, const json_t *part, ln_str *all) {
    char field[96], found[80], member[40];
    (void)snprintf(member, sizeof member, "content[%zu]", k);
    const json_t *type = json_object_get(part, "type"), *text = json_object_get(part, "text");
    if (!json_is_string(type) || strcmp(json_string_value(type), "text") != 0)
        return wire_refuse(b->why, field_of(field, i, member),
                           "expected a part of type \"text\", found %s; only text is supported",
                           ln_json_text(json_is_object(part) ? type : part, found));
    if (!json_is_string(text))
        return wire_refuse(b->why, field_of(field, i, member), "expected a \"text\", found %s",
                           ln_json_text(text, found));
    if (k > 0) ln_str_adds(all, "\n");
    ln_str_add(all, json_string_value(text), json_string_length(text));
    return LN_OK;
}

static ln_status read_parts(body_reader *b, size_t i, const json_t *parts, turn *t) {
    ln_str all = {0};
    ln_status st = LN_OK;
    size_t k;
    json_t *part;
    json_array_foreach((json_t *)(uintptr_t)parts, k, part) LN_GO(add_part(b, i, k, part, &all));
    t->content = ln_arena_strndup(&b->q->arena, all.data ? all.data : "", all.len);
    t->content_bytes = all.len;
    if (all.failed || !t->content) st = no_room(b);
out:
    ln_str_free(&all);
    return st;
}

static ln_status read_content(body_reader *b, size_t i, turn *t) {
    char field[96], found[80];
    const json_t *v = json_object_get(t->object, "content"),
                 *calls = json_object_get(t->object, "tool_calls");
    if (json_is_array(v)) return read_parts(b, i, v, t);
    if (json_is_string(v)) {
        t->content = json_string_value(v);
        t->content_bytes = json_string_length(v);
        return LN_OK;
    }
    if ((!v || json_is_null(v)) && json_array_size(calls) > 0) return LN_OK;
    return wire_refuse(b->why, field_of(field, i, "content"),
                       "expected a text or a list of parts of type text, found %s", ln_json_text(v, found));
}

/* Checks calls of tools, which a template takes apart. */
static ln_status read_calls(body_reader *b, size_t i, const json_t *calls) {
    char field[96], found[80], member[48];
    for (size_t k = 0; k < json_array_size(calls); k++) {
        const json_t *call = json_array_get(calls, k), *f = json_object_get(call, "function");
        const json_t *args = json_object_get(f, "arguments");
        (void)snprintf(member, sizeof member, "tool_calls[%zu]", k);
        if (!json_is_object(f))
            return wire_refuse(b->why, field_of(field, i, member),
                               "expected an object with a function, found %s", ln_json_text(call, found));
        if (!json_is_string(json_object_get(f, "name")))
            return wire_refuse(b->why, field_of(field, i, member),
                               "expected a function with a name, found %s", ln_json_text(f, found));
        if (!json_is_string(args) && !json_is_object(args))
            return wire_refuse(b->why, field_of(field, i, member),
                               "expected arguments as a text of JSON or an object, found %s",
                               ln_json_text(args, found));
    }
    return LN_OK;
}

/* Checks the other members; those that a template may read make the turn one that is not plain. */
static ln_status read_others(body_reader *b, size_t i, turn *t) {
    static const char *const texts[] = {"name", "tool_call_id", "reasoning_content", "reasoning", "thinking"};
    static const char *const refused[] = {"audio", "function_call", "images"};
    char field[96], found[80];
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)t->object, key, v) {
        bool is_text = false, is_refused = false, is_calls = strcmp(key, "tool_calls") == 0;
        if (json_is_null(v) || strcmp(key, "role") == 0 || strcmp(key, "content") == 0) continue;
        for (size_t k = 0; k < LN_COUNT(texts); k++) is_text = is_text || strcmp(key, texts[k]) == 0;
        for (size_t k = 0; k < LN_COUNT(refused); k++)
            is_refused = is_refused || strcmp(key, refused[k]) == 0;
        if (is_refused)
            return wire_refuse(b->why, field_of(field, i, key),
                               "is not supported; only text and tool_calls are");
        if ((is_text && !json_is_string(v)) || (is_calls && !json_is_array(v)))
            return wire_refuse(b->why, field_of(field, i, key), "expected a %s, found %s",
                               is_text ? "text" : "list", ln_json_text(v, found));
        if (is_calls) LN_TRY(read_calls(b, i, v));
        if (is_text || (is_calls && json_array_size(v) > 0)) t->plain = false;
        else if (!is_calls && strcmp(key, "refusal") != 0) body_unknown("messages[].", key);
    }
    return LN_OK;
}

static ln_status read_turn(body_reader *b, size_t i, turn *t) {
    char field[96], found[80];
    *t = (turn){.object = json_array_get(b->messages, i), .plain = true};
    if (!json_is_object(t->object))
        return wire_refuse(b->why, field_of(field, i, ""), "expected an object, found %s",
                           ln_json_text(t->object, found));
    LN_TRY(read_role(b, i, t));
    LN_TRY(read_content(b, i, t));
    return read_others(b, i, t);
}

/* ---- the request in JSON ---- */

/* Appends the arguments of a call as the template expects them: an object, or a text of one. */
static void put_arguments(ln_str *out, const wire_target *t, json_t *v) {
    ln_str text = {0};
    if (t->text_tool_arguments && !json_is_string(v)) {
        ln_str_json_value(&text, v);
        ln_str_json(out, text.data ? text.data : "", text.len);
        out->failed |= text.failed;
        ln_str_free(&text);
    } else if (t->text_tool_arguments || !json_is_string(v) ||
               !ln_str_call_arguments(out, json_string_value(v), json_string_length(v))) {
        ln_str_json_value(out, v);
    }
}

static void put_function(ln_str *out, const wire_target *t, const json_t *function) {
    const char *key;
    json_t *v;
    ln_str_adds(out, "{");
    json_object_foreach((json_t *)(uintptr_t)function, key, v) {
        put_key(out, key);
        if (strcmp(key, "arguments") == 0) put_arguments(out, t, v);
        else ln_str_json_value(out, v);
    }
    ln_str_adds(out, "}");
}

static void put_call(ln_str *out, const wire_target *t, const json_t *call) {
    const char *key;
    json_t *v;
    ln_str_adds(out, "{");
    json_object_foreach((json_t *)(uintptr_t)call, key, v) {
        put_key(out, key);
        if (strcmp(key, "function") == 0) put_function(out, t, v);
        else ln_str_json_value(out, v);
    }
    ln_str_adds(out, "}");
}

/* Appends a turn with calls[from, to) of it. Content that is null beside calls is an empty text for templates
 * that take one: some of them refuse null. */
static void put_turn(ln_str *out, const wire_target *target, const turn *t, size_t from, size_t to) {
    static const char *const kept[] = {"name", "tool_call_id", "reasoning_content", "reasoning", "thinking"};
    ln_str_adds(out, "{");
    put_text(out, "role", t->role);
    const char *content = from == 0 ? t->content : NULL; /* later parts of a turn repeat no text */
    const bool empty = !content && !target->null_tool_content;
    put_bytes(out, "content", empty ? "" : content, content ? t->content_bytes : 0);
    for (size_t k = 0; k < LN_COUNT(kept); k++) {
        const json_t *v = json_object_get(t->object, kept[k]);
        if (!json_is_string(v)) continue;
        put_key(out, kept[k]);
        ln_str_json_value(out, v);
    }
    const json_t *calls = json_object_get(t->object, "tool_calls");
    if (to > from) put_list(out, "tool_calls");
    for (size_t k = from; k < to; k++) {
        if (k > from) ln_str_adds(out, ",");
        put_call(out, target, json_array_get(calls, k));
    }
    ln_str_adds(out, to > from ? "]}" : "}");
}

static size_t n_calls_of(const turn *t) { return json_array_size(json_object_get(t->object, "tool_calls")); }

/* Whether a turn is the result of call k of another one: by its id, or where ids are missing by its place. */
static bool is_result_of(const turn *t, size_t place, const turn *of, size_t k) {
    const json_t *id = json_object_get(json_array_get(json_object_get(of->object, "tool_calls"), k), "id");
    const json_t *given = json_object_get(t->object, "tool_call_id");
    return json_is_string(id) && json_is_string(given) ? json_equal(id, given) : place == k;
}

/* Appends a turn with several calls, for a template that takes one of them a message: each call, then its
 * results. Returns how many turns that makes. */
static size_t put_call_by_call(ln_str *out, const wire_target *target, const turn *turns, size_t n) {
    size_t n_results = 0;
    while (n_results + 1 < n && strcmp(turns[n_results + 1].role, "tool") == 0) n_results++;
    for (size_t k = 0; k < n_calls_of(turns); k++) {
        if (k > 0) ln_str_adds(out, ",");
        put_turn(out, target, turns, k, k + 1);
        for (size_t i = 0; i < n_results; i++) {
            if (!is_result_of(&turns[1 + i], i, turns, k)) continue;
            ln_str_adds(out, ",");
            put_turn(out, target, &turns[1 + i], 0, 0);
        }
    }
    return 1 + n_results;
}

static void put_member(ln_str *out, const char *name, const json_t *v) {
    if (!v) return;
    put_key(out, name);
    ln_str_json_value(out, v);
}

static ln_status make_request(body_reader *b, const turn *turns, size_t n, ln_prompt *p) {
    ln_str *s = &b->q->request;
    ln_str_adds(s, "{\"messages\":[");
    for (size_t i = 0; i < n;) {
        const size_t n_calls = n_calls_of(&turns[i]);
        if (i > 0) ln_str_adds(s, ",");
        if (n_calls > 1 && b->t->single_tool_call) {
            i += put_call_by_call(s, b->t, &turns[i], n - i);
            continue;
        }
        put_turn(s, b->t, &turns[i++], 0, n_calls);
    }
    ln_str_adds(s, "]");
    put_member(s, "tools", b->tools);
    put_member(s, "documents", b->documents);
    ln_str_adds(s, "}");
    if (s->failed) return no_room(b);
    p->request = s->data;
    p->request_bytes = s->len;
    return LN_OK;
}

static ln_status make_messages(body_reader *b, const turn *turns, size_t n, ln_prompt *p) {
    ln_message *m = ln_arena_alloc(&b->q->arena, n * sizeof *m);
    if (!m) return no_room(b);
    for (size_t i = 0; i < n; i++)
        m[i] = (ln_message){turns[i].role, turns[i].content, turns[i].content_bytes};
    p->messages = m;
    p->n_messages = n;
    return LN_OK;
}

static void put_argument(ln_str *out, const char *name, const json_t *v) {
    if (!v) return;
    if (out->len > 1) ln_str_adds(out, ",");
    ln_str_json(out, name, strlen(name));
    ln_str_adds(out, ":");
    ln_str_json_value(out, v);
}

/* Returns the switch of reasoning that the request asks for, or NULL: enable_thinking, or an effort, whose
 * "none" is off. */
static const json_t *thinking_switch(const body_reader *b) {
    if (b->thinking || !b->effort) return b->thinking;
    return ln_json_is_text(b->effort, "none") ? json_false() : json_true();
}

/* Notes that reasoning cannot be turned off. */
static void note_thinking(body_reader *b) {
    if (!b->t->always_reasons || b->q->note[0]) return;
    (void)snprintf(b->q->note, sizeof b->q->note,
                   "reasoning cannot be turned off: the model's chat template has no switch for it");
}

/* Stores the arguments of the template: chat_template_kwargs, and fields with another name there.
 * Templates call the switch of reasoning enable_thinking or thinking. A model without a template has nothing
 * that could read it. */
static ln_status make_arguments(body_reader *b, ln_prompt *p) {
    ln_str *s = &b->q->arguments;
    const char *key;
    json_t *v;
    const json_t *on = thinking_switch(b), *effort = b->effort;
    const bool given =
        json_object_get(b->kwargs, "enable_thinking") || json_object_get(b->kwargs, "thinking");
    if (json_is_false(on) || json_is_false(json_object_get(b->kwargs, "enable_thinking"))) note_thinking(b);
    if (given || !b->t->has_template) on = NULL;
    /* "none" is no effort of any template */
    if (json_object_get(b->kwargs, "reasoning_effort") || ln_json_is_text(effort, "none") ||
        !b->t->has_template)
        effort = NULL;
    if (json_object_size(b->kwargs) == 0 && !effort && !on) return LN_OK;
    ln_str_adds(s, "{");
    json_object_foreach((json_t *)(uintptr_t)b->kwargs, key, v) put_argument(s, key, v);
    put_argument(s, "reasoning_effort", effort);
    put_argument(s, "enable_thinking", on);
    put_argument(s, "thinking", on);
    ln_str_adds(s, "}");
    if (s->failed) return no_room(b);
    p->template_args = s->data;
    p->template_args_bytes = s->len;
    return LN_OK;
}

/* Rejects a last message that cannot be continued. */
static ln_status check_last(body_reader *b, const turn *last) {
    if (last && strcmp(last->role, "assistant") == 0 && last->content_bytes > 0 && n_calls_of(last) == 0)
        return LN_OK;
    return wire_refuse(b->why, "continue_final_message",
                       "needs a last message of role assistant with a text and without calls of tools");
}

static void tell_builtin_template(void) {
    static _Atomic bool told;
    if (!told)
        ln_log(LN_LOG_WARN, "the model ships no chat template; its family's built-in template is used for "
                            "messages");
    told = true;
}

ln_status body_conversation(body_reader *b) {
    wire_request *q = b->q;
    size_t n = json_array_size(b->messages);
    bool plain = !b->tools && !b->documents;
    turn *turns = ln_arena_alloc(&q->arena, n * sizeof *turns + 1);
    q->prompts = ln_arena_alloc(&q->arena, sizeof *q->prompts);
    if (!turns || !q->prompts) return no_room(b);
    for (size_t i = 0; i < n; i++) {
        LN_TRY(read_turn(b, i, &turns[i]));
        plain = plain && turns[i].plain;
    }
    if (!b->t->has_template) tell_builtin_template();
    if (b->continues) LN_TRY(check_last(b, n > 0 ? &turns[n - 1] : NULL));
    *q->prompts =
        (ln_prompt){.size = sizeof(ln_prompt), .tmpl = LN_TEMPLATE_CHAT, .continue_last = b->continues};
    q->n_prompts = 1;
    LN_TRY(plain ? make_messages(b, turns, n, q->prompts) : make_request(b, turns, n, q->prompts));
    return make_arguments(b, q->prompts);
}
