/* Calls of tools as clients get them. For each row of call_cases.h the text of a model is cut in two places,
 * and the splitter's pieces become events of a request. The answers of all APIs, whole and streamed, must
 * have the same calls and the same text. A buffer replaces the connection.
 *
 * With LN_LONG every pair of cuts is tried, else all pairs of short texts and some of the others. */
/* run: quick asan */
#include "../common.h"
#include "../chat/call_cases.h"

#include "base/json.h"
#include "serve/dialect.h"

#include <stdio.h>

/* ---- a connection that keeps what is sent ---- */

static ln_str sent;
void conn_send(conn *c, const char *data, size_t n) { (void)c, ln_str_add(&sent, data, n); }
void conn_give(conn *c, request_context *x, ln_str *text) {
    (void)c, (void)x, ln_str_add(&sent, text->data, text->len);
}
void conn_end(conn *c, bool keep_alive) { (void)c, (void)keep_alive; }
void conn_close(conn *c) { (void)c; }
void conn_close_all(server *s) { (void)s; }
void conn_accept(server *s, int fd, const char *address, bool loopback) {
    (void)s, (void)fd, (void)address, (void)loopback;
}
void conn_tick_all(server *s, double now) { (void)s, (void)now; }
void conn_watch_all(server *s) { (void)s; }
void conn_large_done(request_context *x) { (void)x; }
bool conn_any_busy(const server *s) { return s == NULL; }
bool conn_is_read(const conn *c) { return c != NULL; }
size_t conn_unsent(const conn *c) { return c == NULL; }
const char *conn_address(const conn *c) { return c ? "test" : ""; }
const http_head *conn_head(const conn *c) { return (const http_head *)(const void *)c; }

/* ---- the events of a text ---- */

enum { MOST_EVENTS = 1000, MOST_CALLS = 8 };
typedef struct event {
    ln_event_kind kind;
    size_t at, bytes, name; /* in `texts` */
} event;

/* What a request would report of a text, and its result. */
typedef struct made {
    event events[MOST_EVENTS];
    size_t n;
    ln_str texts, text, reasoning;
    ln_tool_call calls[MOST_CALLS], cut;
    size_t names[MOST_CALLS + 1], n_calls, n_malformed;
    bool has_cut;
} made;

static void add(made *m, ln_event_kind kind, const char *name, const char *text, size_t bytes) {
    assert_true(m->n < MOST_EVENTS);
    event *e = &m->events[m->n++];
    *e = (event){kind, m->texts.len, bytes, 0};
    ln_str_add(&m->texts, text, bytes);
    ln_str_add(&m->texts, "", 1);
    e->name = m->texts.len;
    ln_str_add(&m->texts, name, strlen(name) + 1);
}

static void keep(ln_tool_call *to, const ln_calls *t) {
    *to =
        (ln_tool_call){.name = ln_strndup(t->name.data, t->name.len),
                       .arguments = ln_strndup(t->arguments.data ? t->arguments.data : "", t->arguments.len),
                       .arguments_bytes = t->arguments.len};
}

static void take(made *m, ln_calls *t, bool final) {
    for (ln_calls_piece piece = LN_CALLS_TEXT; piece != LN_CALLS_NOTHING;) {
        OK(ln_calls_next(t, final, &piece, err));
        const char *arguments = t->arguments.data ? t->arguments.data : "";
        if (piece == LN_CALLS_TEXT) {
            add(m, LN_EVENT_TEXT, "", t->text.data, t->text.len);
            ln_str_add(&m->text, t->text.data, t->text.len);
        } else if (piece == LN_CALLS_ARGUMENTS) {
            add(m, LN_EVENT_TOOL_ARGUMENTS, t->name.data, t->text.data, t->text.len);
        } else if (piece == LN_CALLS_CALL || piece == LN_CALLS_CUT) {
            if (t->told < t->arguments.len)
                add(m, LN_EVENT_TOOL_ARGUMENTS, t->name.data, arguments + t->told,
                    t->arguments.len - t->told);
            if (piece == LN_CALLS_CALL) add(m, LN_EVENT_TOOL_CALL, t->name.data, arguments, t->arguments.len);
            assert_true(m->n_calls < MOST_CALLS);
            keep(piece == LN_CALLS_CALL ? &m->calls[m->n_calls++] : &m->cut, t);
            m->has_cut |= piece == LN_CALLS_CUT;
        }
    }
}

static const ln_call_format *form_of(const char *name) {
    for (size_t i = 0; ln_call_format_at(i); i++)
        if (strcmp(ln_call_format_at(i)->name, name) == 0) return ln_call_format_at(i);
    return ln_call_format_generic();
}

static void make(made *m, const split *c, size_t one, size_t two, const char *reasoning) {
    ln_calls t;
    const size_t n = strlen(c->text), cuts[] = {0, one, two, n};
    *m = (made){0};
    if (reasoning) {
        add(m, LN_EVENT_REASONING, "", reasoning, strlen(reasoning));
        ln_str_adds(&m->reasoning, reasoning);
    }
    ln_calls_open(&t, form_of(c->form), tools, LN_COUNT(tools), false);
    for (size_t i = 0; i + 1 < LN_COUNT(cuts); i++) {
        OK(ln_calls_push(&t, c->text + cuts[i], cuts[i + 1] - cuts[i], err));
        take(m, &t, false);
    }
    take(m, &t, true);
    m->n_malformed = t.n_malformed;
    ln_calls_close(&t);
    ln_str_adds(&m->text, "");
    ln_str_adds(&m->reasoning, "");
}

static void free_call(const ln_tool_call *c) {
    ln_free((void *)(uintptr_t)c->name);
    ln_free((void *)(uintptr_t)c->arguments);
}

static void drop(made *m) {
    for (size_t i = 0; i < m->n_calls; i++) free_call(&m->calls[i]);
    if (m->has_cut) free_call(&m->cut);
    ln_str_free(&m->texts);
    ln_str_free(&m->text);
    ln_str_free(&m->reasoning);
}

/* ---- what a client makes of an answer ---- */

typedef struct heard {
    ln_str text, reasoning;
    struct {
        char name[64];
        ln_str arguments;
        bool whole;
    } calls[MOST_CALLS + 1];
    size_t n;
    const char *finish;
    char said[40];
} heard;

static void forget(heard *h) {
    for (size_t i = 0; i < LN_COUNT(h->calls); i++) ln_str_free(&h->calls[i].arguments);
    ln_str_free(&h->text);
    ln_str_free(&h->reasoning);
    *h = (heard){0};
}

static void hear(ln_str *to, const json_t *v) {
    if (json_is_string(v)) ln_str_add(to, json_string_value(v), json_string_length(v));
}

static void hear_finish(heard *h, const json_t *v) {
    if (json_is_string(v)) (void)snprintf(h->said, sizeof h->said, "%s", json_string_value(v));
}

static void begin_call(heard *h, const json_t *name) {
    assert_true(h->n < LN_COUNT(h->calls) && json_is_string(name));
    (void)snprintf(h->calls[h->n++].name, 64, "%s", json_string_value(name));
}

static void hear_object(heard *h, const json_t *object) {
    char *text = json_dumps(object, JSON_COMPACT);
    ln_str_adds(&h->calls[h->n - 1].arguments, text);
    h->calls[h->n - 1].whole = true;
    free(text);
}

static const json_t *get(const json_t *o, const char *a, const char *b) {
    return json_object_get(json_object_get(o, a), b);
}

static void hear_chat(heard *h, const json_t *message) { /* or a delta */
    size_t i;
    json_t *call;
    hear(&h->text, json_object_get(message, "content"));
    hear(&h->reasoning, json_object_get(message, "reasoning_content"));
    json_array_foreach(json_object_get(message, "tool_calls"), i, call) {
        const json_t *name = get(call, "function", "name");
        if (name) begin_call(h, name);
        hear(&h->calls[h->n - 1].arguments, get(call, "function", "arguments"));
    }
}

static void chat(heard *h, const json_t *o, const char *event) {
    const json_t *c = json_array_get(json_object_get(o, "choices"), 0);
    (void)event;
    const json_t *message = json_object_get(c, "message");
    hear_chat(h, message ? message : json_object_get(c, "delta"));
    hear_finish(h, json_object_get(c, "finish_reason"));
}

static void messages(heard *h, const json_t *o, const char *event) {
    size_t i;
    const json_t *block = json_object_get(o, "content_block"), *delta = json_object_get(o, "delta");
    json_t *b;
    if (!event) json_array_foreach(json_object_get(o, "content"), i, b) {
            hear(&h->text, json_object_get(b, "text"));
            hear(&h->reasoning, json_object_get(b, "thinking"));
            if (!json_object_get(b, "input")) continue;
            begin_call(h, json_object_get(b, "name"));
            hear_object(h, json_object_get(b, "input"));
        }
    if (block && json_object_get(block, "input")) begin_call(h, json_object_get(block, "name"));
    hear(&h->text, json_object_get(delta, "text"));
    hear(&h->reasoning, json_object_get(delta, "thinking"));
    if (json_object_get(delta, "partial_json"))
        hear(&h->calls[h->n - 1].arguments, json_object_get(delta, "partial_json"));
    hear_finish(h, json_object_get(event ? delta : o, "stop_reason"));
}

static void responses(heard *h, const json_t *o, const char *event) {
    size_t i, k;
    json_t *item, *part;
    const json_t *delta = json_object_get(o, "delta"), *added = json_object_get(o, "item");
    if (event && strcmp(event, "response.output_text.delta") == 0) hear(&h->text, delta);
    if (event && strcmp(event, "response.reasoning_text.delta") == 0) hear(&h->reasoning, delta);
    if (event && strcmp(event, "response.output_item.added") == 0 &&
        ln_json_is_text(json_object_get(added, "type"), "function_call"))
        begin_call(h, json_object_get(added, "name"));
    if (event && strcmp(event, "response.function_call_arguments.delta") == 0)
        hear(&h->calls[h->n - 1].arguments, delta);
    const json_t *all = event ? NULL : json_object_get(o, "output");
    json_array_foreach((json_t *)(uintptr_t)all, i, item) {
        const bool thought = ln_json_is_text(json_object_get(item, "type"), "reasoning");
        json_array_foreach(json_object_get(item, "content"), k, part)
            hear(thought ? &h->reasoning : &h->text, json_object_get(part, "text"));
        if (!ln_json_is_text(json_object_get(item, "type"), "function_call")) continue;
        begin_call(h, json_object_get(item, "name"));
        hear(&h->calls[h->n - 1].arguments, json_object_get(item, "arguments"));
    }
    hear_finish(h, event ? get(o, "response", "status") : json_object_get(o, "status"));
}

static void ollama(heard *h, const json_t *o, const char *event) {
    size_t i;
    json_t *call;
    const json_t *message = json_object_get(o, "message");
    (void)event;
    hear(&h->text, json_object_get(message, "content"));
    hear(&h->reasoning, json_object_get(message, "thinking"));
    json_array_foreach(json_object_get(message, "tool_calls"), i, call) {
        begin_call(h, get(call, "function", "name"));
        hear_object(h, get(call, "function", "arguments"));
    }
    hear_finish(h, json_object_get(o, "done_reason"));
}

/* ---- the APIs ---- */

typedef struct api {
    const char *name;
    const dialect *form;
    void (*hear)(heard *h, const json_t *o, const char *event);
    bool objects; /* arguments are objects: a call that is cut has none */
} api;
static const api apis[] = {{"chat", NULL, chat, false},
                           {"messages", &dialect_messages, messages, true},
                           {"responses", &dialect_responses, responses, false},
                           {"ollama", &dialect_ollama, ollama, true}};

static json_t *parse(const char *text, size_t n) {
    json_t *root = NULL;
    ln_error why = {0};
    if (ln_json_load(&root, "answer", text, n, &why) != LN_OK)
        fail_msg("%s in %.*s", why.message, (int)n, text);
    return root;
}

/* Reads a stream: events with or without a name, or lines. */
static void read_stream(const api *a, heard *h) {
    char event[64] = "";
    const char *p = strstr(sent.data, "\r\n\r\n") + 4;
    for (const char *end; *p; p = end + 1) {
        end = strchr(p, '\n');
        assert_non_null(end);
        if (strncmp(p, "event: ", 7) == 0)
            (void)snprintf(event, sizeof event, "%.*s", (int)(end - p - 7), p + 7);
        const char *json = strncmp(p, "data: ", 6) == 0 ? p + 6 : *p == '{' ? p : NULL;
        if (!json || strncmp(json, "[DONE]", 6) == 0) continue;
        json_t *o = parse(json, (size_t)(end - json));
        a->hear(h, o, event);
        json_decref(o);
    }
}

static void fail_case(const api *a, const split *c, size_t one, size_t two, bool stream, const char *why) {
    fail_msg("%s %s, %s '%s' cut at %zu and %zu: %s; sent %s", a->name, stream ? "stream" : "whole", c->form,
             c->text, one, two, why, sent.data ? sent.data : "");
}

static bool same_json(const char *x, size_t nx, const char *y, size_t ny) {
    if (nx == ny && memcmp(x, y, nx) == 0) return true;
    json_t *a = NULL, *b = NULL;
    ln_error none;
    const bool is = ln_json_load(&a, "a", x, nx, &none) == LN_OK &&
                    ln_json_load(&b, "b", y, ny, &none) == LN_OK && json_equal(a, b);
    json_decref(a);
    json_decref(b);
    return is;
}

/* Judges what was heard: each call in its order. In a stream a call that began and became none stays without
 * an end. */
static const char *judge(const api *a, const made *m, const heard *h, bool stream) {
    size_t k = 0;
    if (strcmp(h->text.data ? h->text.data : "", m->text.data) != 0) return "another text";
    if (strcmp(h->reasoning.data ? h->reasoning.data : "", m->reasoning.data) != 0)
        return "another reasoning";
    for (size_t i = 0; i < m->n_calls; i++, k++) {
        const ln_tool_call *c = &m->calls[i];
        while (k < h->n && stream && m->n_malformed > 0 &&
               (strcmp(h->calls[k].name, c->name) != 0 ||
                !same_json(h->calls[k].arguments.data, h->calls[k].arguments.len, c->arguments,
                           c->arguments_bytes)))
            k++;
        if (k == h->n) return "a call is missing";
        if (strcmp(h->calls[k].name, c->name) != 0) return "another name";
        if (!same_json(h->calls[k].arguments.data, h->calls[k].arguments.len, c->arguments,
                       c->arguments_bytes))
            return "other arguments";
    }
    const bool shows_cut =
        m->has_cut && m->cut.arguments_bytes > 0 && (!a->objects || (stream && a->form == &dialect_messages));
    if (shows_cut) {
        if (k == h->n || strcmp(h->calls[k].name, m->cut.name) != 0)
            return "the call that was cut is missing";
        const ln_str *found = &h->calls[k++].arguments;
        if (found->len != m->cut.arguments_bytes || memcmp(found->data, m->cut.arguments, found->len) != 0)
            return "other arguments of the call that was cut";
    }
    if (k < h->n && !(stream && m->n_malformed > 0)) return "a call too many";
    static const char *const ends[][3] = {{"stop", "tool_calls", "length"},
                                          {"end_turn", "tool_use", "max_tokens"},
                                          {"completed", "completed", "incomplete"},
                                          {"stop", "stop", "length"}};
    const char *end = ends[a - apis][m->has_cut ? 2 : m->n_calls > 0];
    return strcmp(h->said, end) == 0 ? NULL : "another reason of the end";
}

static server the_server;
static ln_serve_options the_options = {.quiet = true};

/* Answers as one API, and reads the answer as its client does. */
static void answer(const api *a, const split *c, size_t one, size_t two, const made *m, bool stream) {
    static const char *const names[] = {"m"};
    const wire_target target = {.names = names, .n_names = 1, .tool_format = c->form};
    request_context x = {
        .s = &the_server, .c = (conn *)(void *)&the_server, .dialect = a->form, .minor = 0, .n_pins = 1};
    choice one_choice = {.x = &x};
    heard h = {0};
    memcpy(x.id, "req-0123456789abcdef0123", 25);
    x.q = (wire_request){
        .kind = WIRE_CHAT, .target = &target, .n_prompts = 1, .n = 1, .n_logprobs = -1, .stream = stream};
    x.answer = wire_answer_of(&x.q);
    x.choices = &one_choice;
    x.n_choices = 1;
    ln_str_adds(&x.asked, "\"tools\":[]");
    one_choice.result = (ln_result){.size = sizeof(ln_result),
                                    .text = m->text.data,
                                    .text_bytes = m->text.len,
                                    .reasoning = m->reasoning.data,
                                    .reasoning_bytes = m->reasoning.len,
                                    .finish = m->has_cut ? LN_FINISH_LENGTH : LN_FINISH_STOP,
                                    .stop_id = -1,
                                    .stop_text = -1,
                                    .tool_calls = m->n_calls > 0 ? (ln_tool_call *)(uintptr_t)m->calls : NULL,
                                    .n_tool_calls = m->n_calls,
                                    .cut_tool_call = m->has_cut ? (ln_tool_call *)(uintptr_t)&m->cut : NULL,
                                    .n_malformed_calls = m->n_malformed};
    sent.len = 0;
    if (stream) {
        assert_true(stream_begin(&x));
        for (size_t i = 0; i < m->n; i++) {
            const event *e = &m->events[i];
            stream_event(&one_choice, &(ln_event){.size = sizeof(ln_event),
                                                  .kind = e->kind,
                                                  .text = m->texts.data + e->at,
                                                  .bytes = e->bytes,
                                                  .name = m->texts.data + e->name});
        }
        stream_finish(&one_choice);
        stream_end(&x);
        read_stream(a, &h);
    } else {
        ln_str s = {0};
        if (a->form) a->form->put_answer(&s, &x);
        else wire_put_answer(&s, &x.q, &x.answer, &one_choice.result);
        ln_str_add(&sent, s.data, s.len);
        json_t *o = parse(s.data, s.len);
        a->hear(&h, o, NULL);
        json_decref(o);
        ln_str_free(&s);
    }
    const char *why = judge(a, m, &h, stream);
    if (why) fail_case(a, c, one, two, stream, why);
    forget(&h);
    ln_str_free(&x.asked);
    ln_str_free(&x.items);
    ln_str_free(&x.said);
}

/* ---- cuts ---- */

/* Compares the result with that of the row, and the answers of all APIs with the result. `whole`: of whole
 * answers too, which do not depend on the events. */
static void check(const split *c, size_t one, size_t two, const char *reasoning, bool whole) {
    static made m;
    ln_str calls = {0};
    make(&m, c, one, two, reasoning);
    for (size_t i = 0; i < m.n_calls; i++)
        ln_str_addf(&calls, "%s%s\n", m.calls[i].name, m.calls[i].arguments);
    if (m.has_cut) ln_str_addf(&calls, "?%s%s\n", m.cut.name, m.cut.arguments);
    if (strcmp(calls.data ? calls.data : "", c->calls) != 0 || strcmp(m.text.data, c->content) != 0)
        fail_msg("%s '%s': calls %s", c->form, c->text, calls.data ? calls.data : "");
    for (size_t a = 0; a < LN_COUNT(apis); a++) {
        answer(&apis[a], c, one, two, &m, true);
        if (whole) answer(&apis[a], c, one, two, &m, false);
    }
    ln_str_free(&calls);
    drop(&m);
}

/* Whether a text can be cut there: the detokenizer keeps characters whole. */
static bool is_place(const split *c, size_t at) { return ((unsigned char)c->text[at] & 0xc0) != 0x80; }

static void every_cut_is_answered_alike(void **state) {
    (void)state;
    const bool every = getenv("LN_LONG") != NULL;
    for (size_t i = 0; i < LN_COUNT(cases); i++) {
        const size_t n = strlen(cases[i].text), step = every || n <= 24 ? 1 : 1 + n / 12;
        check(&cases[i], 0, n, NULL, true);
        for (size_t one = 0; one <= n; one++)
            if (is_place(&cases[i], one)) check(&cases[i], one, n, NULL, false);
        for (size_t one = 1; one < n; one += step)
            for (size_t two = one + 1; two < n; two += step)
                if (is_place(&cases[i], one) && is_place(&cases[i], two))
                    check(&cases[i], one, two, NULL, false);
    }
}

/* A call that stands in reasoning is reasoning in every API. */
static void reasoning_keeps_its_calls(void **state) {
    (void)state;
    for (size_t i = 0; i < LN_COUNT(cases); i++)
        check(&cases[i], 0, strlen(cases[i].text),
              "Call <tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call> \xe2\x82\xac?", true);
}

static int open_server(void **state) {
    (void)state;
    the_server.o = &the_options;
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cut_is_answered_alike),
        cmocka_unit_test(reasoning_keeps_its_calls),
    };
    return cmocka_run_group_tests(tests, open_server, NULL);
}
