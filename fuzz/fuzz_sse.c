/* Fuzzes the writer of streams (serve/stream.c and the two other APIs). The first bytes choose the API,
 * choices, log-probabilities, stop texts and HTTP version; the rest is a sequence of events of the engine.
 * The bytes that would go to the socket are taken apart again: chunks of HTTP/1.1, events that are JSON, one
 * finish for each choice, the text, the calls and the tokens of the result put together, one [DONE], and in
 * a response at its end the items that ended before. */
#include "fuzz.h"

#include "serve/dialect.h"

static ln_str sent; /* what conn_send got */
static int completed;
static size_t n_prompt_ids = 3;

/* ---- what the writer calls ---- */

const char *ln_version(void) { return LN_VERSION; }
void conn_send(conn *c, const char *data, size_t n) {
    (void)c;
    ln_str_add(&sent, data, n);
}
void request_complete(request_context *x) {
    completed++;
    x->ended = true;
}
void request_reword(request_context *x) { (void)x; }
void request_put_fields(const request_context *x, ln_str *out) { (void)x, (void)out; }
void ln_request_cancel(ln_request *request) { (void)request; }
ln_status ln_request_result(ln_request *request, ln_result *out, ln_error *err) {
    (void)request, (void)err;
    *out = (ln_result){.n_prompt_ids = n_prompt_ids};
    return LN_OK;
}
void ln_result_free(ln_result *r) {
    ln_free(r->ids);
    ln_free(r->logprobs);
    ln_free(r->top);
    ln_free(r->text);
    ln_free(r->reasoning);
    *r = (ln_result){0};
}

static void token(void *user, int32_t id, bool *special, ln_str *out) {
    (void)user;
    *special = id == 200;
    if (id < 128) ln_str_add(out, &(char){id ? (char)id : 'z'}, 1); /* a key of JSON has no U+0000 here */
    else if (id == 200) ln_str_adds(out, "<s>");
    else ln_str_adds(out, id % 2 ? " the" : "\xe2\x82");
}
static void text_of(void *user, const int32_t *ids, size_t n, ln_str *out) {
    bool special;
    for (size_t i = 0; i < n; i++) token(user, ids[i], &special, out);
}
static const char *const names[] = {"m"};
static const wire_target target = {
    .names = names, .n_names = 1, .n_vocab = 256, .token = token, .text = text_of};

static void fuzz_open(void) {}

/* ---- the input ---- */

typedef struct source {
    const uint8_t *at;
    size_t n;
} source;
static unsigned take(source *s) {
    if (s->n == 0) return 0;
    s->n--;
    return *s->at++;
}

static const char *const pieces[] = {"a",    "\xc3\xa9", "\"\\\n", "\xf0\x9f\x98\x80", "data: [DONE]\n\n",
                                     " the", "\x01\x7f", "<s>"};

/* ---- the bytes taken apart ---- */

typedef struct seen {
    ln_str text[3], reasoning[3];
    int n_finish[3], n_tokens[3], n_calls[3], n_done, n_errors, n_usage, n_items;
} seen;

static void see_tokens(seen *w, size_t i, const json_t *logprobs) {
    const json_t *list = json_object_get(logprobs, "content");
    if (!list) list = json_object_get(logprobs, "tokens");
    w->n_tokens[i] += (int)json_array_size(list);
}

static void see_chat(seen *w, const json_t *e) {
    const json_t *c = json_array_get(json_object_get(e, "choices"), 0), *d = json_object_get(c, "delta");
    w->n_errors += json_object_get(e, "error") != NULL;
    w->n_usage += json_is_object(json_object_get(e, "usage"));
    if (!c) return;
    const size_t i = (size_t)json_integer_value(json_object_get(c, "index"));
    must(i < 3 && w->n_finish[i] == 0);
    const json_t *text = d ? json_object_get(d, "content") : json_object_get(c, "text"),
                 *thought = json_object_get(d, "reasoning_content");
    ln_str_add(&w->text[i], json_string_value(text), json_string_length(text));
    ln_str_add(&w->reasoning[i], json_string_value(thought), json_string_length(thought));
    w->n_finish[i] += json_is_string(json_object_get(c, "finish_reason"));
    const json_t *calls =
        json_object_get(d, "tool_calls"); /* one that begins has an id, its other pieces none */
    for (size_t k = 0; k < json_array_size(calls); k++)
        w->n_calls[i] += json_object_get(json_array_get(calls, k), "id") != NULL;
    see_tokens(w, i, json_object_get(c, "logprobs"));
}

static bool is_of_type(const json_t *v, const char *type) {
    const char *is = json_string_value(json_object_get(v, "type"));
    return is && strcmp(is, type) == 0;
}

/* Blocks and items that end, calls among them; a response at its end has all of them. */
static void see_items(seen *w, const char *name, const json_t *e) {
    const json_t *item = json_object_get(e, "item"), *r = json_object_get(e, "response");
    w->n_calls[0] += is_of_type(json_object_get(e, "content_block"), "tool_use");
    if (strcmp(name, "response.output_item.done") == 0) {
        w->n_items++;
        w->n_calls[0] += is_of_type(item, "function_call");
    }
    if (strcmp(name, "response.completed") == 0 || strcmp(name, "response.incomplete") == 0)
        must((int)json_array_size(json_object_get(r, "output")) == w->n_items);
}

static void see_named(seen *w, const char *name, const json_t *e) {
    const json_t *delta = json_object_get(e, "delta");
    const char *type = json_string_value(json_object_get(e, "type"));
    must(type && (strcmp(type, name) == 0));
    see_items(w, name, e);
    if (strstr(name, "function_call_arguments")) return;
    if (json_is_object(delta) && json_object_get(delta, "text")) delta = json_object_get(delta, "text");
    else if (json_is_object(delta)) delta = json_object_get(delta, "thinking"); /* or arguments: none */
    const bool thinks = strstr(name, "reasoning") || json_object_get(json_object_get(e, "delta"), "thinking");
    if (json_is_string(delta))
        ln_str_add(thinks ? &w->reasoning[0] : &w->text[0], json_string_value(delta),
                   json_string_length(delta));
    w->n_finish[0] += strcmp(name, "message_stop") == 0 || strcmp(name, "response.completed") == 0 ||
                      strcmp(name, "response.incomplete") == 0;
    w->n_errors += strcmp(name, "error") == 0 || strcmp(name, "response.failed") == 0;
}

static ln_status see_event(seen *w, const request_context *x, const char *at, size_t n, ln_error *err) {
    json_t *root = NULL;
    char name[64] = "";
    if (n >= 1 && *at == ':') return LN_OK;
    if (n == 12 && memcmp(at, "data: [DONE]", 12) == 0) {
        w->n_done++;
        return LN_OK;
    }
    must(w->n_done == 0);
    if (x->dialect) {
        const char *end = memchr(at, '\n', n);
        must(end && memcmp(at, "event: ", 7) == 0 && end - at < 64);
        memcpy(name, at + 7, (size_t)(end - at - 7));
        n -= (size_t)(end + 1 - at);
        at = end + 1;
    }
    must(n > 6 && memcmp(at, "data: ", 6) == 0 && !memchr(at, '\n', n) && !memchr(at, '\r', n));
    const ln_status st = ln_json_load(&root, "event", at + 6, n - 6, err);
    if (st != LN_OK && st != LN_EMEMORY) fprintf(stderr, "%.*s: %s\n", (int)n, at, err->message);
    must(st == LN_OK || st == LN_EMEMORY);
    if (st == LN_OK && x->dialect) see_named(w, name, root);
    else if (st == LN_OK) see_chat(w, root);
    json_decref(root);
    return st;
}

/* Joins the chunks; returns the body. */
static ln_str body_of(const request_context *x) {
    ln_str body = {0};
    const char *head = memmem(sent.data, sent.len, "\r\n\r\n", 4);
    must(head);
    const char *at = head + 4, *end = sent.data + sent.len;
    if (x->minor == 0) {
        ln_str_add(&body, at, (size_t)(end - at));
        return body;
    }
    for (bool last = false; !last;) {
        char *stop;
        const size_t n = strtoul(at, &stop, 16);
        must(stop > at && stop[0] == '\r' && stop[1] == '\n' && (size_t)(end - stop) >= n + 4);
        ln_str_add(&body, stop + 2, n);
        must(stop[2 + n] == '\r' && stop[3 + n] == '\n');
        at = stop + 4 + n;
        last = n == 0;
    }
    must(at == end);
    return body;
}

static ln_status check(const request_context *x, bool failed, ln_error *err) {
    seen w = {0};
    ln_status st = LN_OK;
    ln_str body = body_of(x);
    bool lost = body.failed;
    for (const char *at = body.data, *end = body.data ? body.data + body.len : NULL;
         st == LN_OK && !lost && at < end;) {
        const char *stop = memmem(at, (size_t)(end - at), "\n\n", 2);
        must(stop);
        st = see_event(&w, x, at, (size_t)(stop - at), err);
        at = stop + 2;
    }
    for (size_t i = 0; i < x->n_choices; i++) lost |= w.text[i].failed || w.reasoning[i].failed;
    if (lost) st = LN_OOM(err, "a check");
    if (st == LN_OK) {
        must(w.n_done == (x->dialect ? 0 : 1) && w.n_errors == (failed ? 1 : 0));
        must(w.n_usage == (!failed && !x->dialect && x->q.include_usage ? 1 : 0));
        for (size_t i = 0; !failed && i < x->n_choices; i++) {
            const ln_result *r = &x->choices[i].result;
            const size_t prompt = x->q.echo && !x->dialect ? 1 : 0; /* the prompt "p" comes first */
            must(w.n_finish[i] == 1 && w.text[i].len == r->text_bytes + prompt);
            must(r->text_bytes == 0 || memcmp(w.text[i].data + prompt, r->text, r->text_bytes) == 0);
            must(x->q.echo || w.reasoning[i].len == r->reasoning_bytes);
            must(w.n_calls[i] == (int)r->n_tool_calls);
            must(x->dialect || w.n_tokens[i] == (x->q.n_logprobs < 0 ? 0 : (int)r->n_ids));
        }
    }
    for (size_t i = 0; i < 3; i++) {
        ln_str_free(&w.text[i]);
        ln_str_free(&w.reasoning[i]);
    }
    ln_str_free(&body);
    return st;
}

/* ---- events ---- */

static bool append(char **text, size_t *bytes, const char *piece) {
    const size_t n = strlen(piece);
    char *more = ln_alloc(*bytes + n + 1);
    if (!more) return false;
    if (*bytes) memcpy(more, *text, *bytes);
    memcpy(more + *bytes, piece, n + 1);
    ln_free(*text);
    *text = more;
    *bytes += n;
    return true;
}

/* A token as the engine reports it, kept in the choice's result too. */
static bool add_token(choice *c, source *s) {
    static ln_top top[3];
    ln_result *r = &c->result;
    const size_t n_top = c->x->q.n_logprobs > 0 ? (size_t)c->x->q.n_logprobs : 0;
    const int32_t id = (int32_t)take(s);
    if (r->n_ids == 256) return true;
    for (size_t i = 0; i < 3; i++)
        top[i] = (ln_top){(int32_t)((unsigned)id + i) % 256, -1.5 * (double)(i + 1)};
    if (!r->ids) {
        r->ids = ln_zalloc(256, sizeof *r->ids);
        r->logprobs = ln_zalloc(256, sizeof *r->logprobs);
        r->top = ln_zalloc(768, sizeof *r->top);
    }
    if (!r->ids || !r->logprobs || !r->top) return false;
    r->ids[r->n_ids] = id;
    r->logprobs[r->n_ids] = -0.5;
    memcpy(r->top + r->n_ids * n_top, top, n_top * sizeof *top);
    r->n_top = n_top;
    r->n_ids++;
    stream_event(c,
                 &(ln_event){.kind = LN_EVENT_TOKEN, .id = id, .logprob = -0.5, .top = top, .n_top = n_top});
    return true;
}

static bool one_event(choice *c, source *s) {
    const unsigned how = take(s);
    ln_result *r = &c->result;
    if (how % 4 < 2) return add_token(c, s);
    if (how == 0xfe && c->x->q.kind == WIRE_CHAT) {
        r->n_tool_calls++;
        static const char arguments[] = "{\"a\":\n\"\xc3\xa9\"}";
        ln_event call = {.kind = LN_EVENT_TOOL_ARGUMENTS, .name = "f\"", .text = arguments, .bytes = 6};
        stream_event(c, &call); /* two pieces, then the whole */
        call.text += 6, call.bytes = sizeof arguments - 1 - 6;
        stream_event(c, &call);
        call.kind = LN_EVENT_TOOL_CALL, call.text = arguments, call.bytes = sizeof arguments - 1;
        stream_event(c, &call);
        return true;
    }
    const char *piece = pieces[(how >> 2) % LN_COUNT(pieces)];
    const bool thinks =
        how % 4 == 3 && c->x->q.kind == WIRE_CHAT && r->text_bytes == 0 && r->n_tool_calls == 0;
    stream_event(c, &(ln_event){.kind = thinks ? LN_EVENT_REASONING : LN_EVENT_TEXT,
                                .text = piece,
                                .bytes = strlen(piece)});
    return thinks ? append(&r->reasoning, &r->reasoning_bytes, piece)
                  : append(&r->text, &r->text_bytes, piece);
}

static bool run(request_context *x, source *s, bool failed) {
    bool good = stream_begin(x);
    for (unsigned n = 0; good && s->n > 0 && n < 400; n++) {
        choice *c = &x->choices[take(s) % x->n_choices];
        good = one_event(c, s);
    }
    for (size_t i = 0; good && !failed && i < x->n_choices; i++) {
        ln_result *r = &x->choices[i].result;
        good = (r->text || append(&r->text, &r->text_bytes, "")) &&
               (r->reasoning || append(&r->reasoning, &r->reasoning_bytes, ""));
        r->finish = i % 2 ? LN_FINISH_LENGTH : LN_FINISH_STOP;
        r->stop_text = -1;
        if (good) stream_finish(&x->choices[i]);
        x->n_done++;
    }
    if (!good) return false;
    if (failed || x->why.http) stream_error(x);
    else stream_end(x);
    return true;
}

static ln_status fuzz_one(const uint8_t *data, size_t bytes, ln_error *err) {
    static const char *stops[] = {"a", " the", "<s><s>"};
    static server s;
    source in = {data, bytes};
    const unsigned how = take(&in), more = take(&in);
    const bool failed = more & 1;
    ln_prompt prompt = {.size = sizeof prompt, .text = "p", .text_bytes = 1};
    request_context x = {
        .s = &s, .c = (conn *)&s, .minor = (int)(how >> 5 & 1), .keep_alive = true, .id = "req-0"};
    x.dialect = how % 4 == 2 ? &dialect_messages : how % 4 == 3 ? &dialect_responses : NULL;
    x.q = (wire_request){.kind = how % 4 == 1 ? WIRE_COMPLETION : WIRE_CHAT,
                         .target = &target,
                         .prompts = &prompt,
                         .n_prompts = 1,
                         .n = x.dialect ? 1 : 1 + (int)(how >> 2) % 3,
                         .n_logprobs = x.dialect ? -1 : (int)(how >> 6) - 1,
                         .stream = true,
                         .include_usage = more >> 1 & 1,
                         .echo = how % 4 == 1 && (more >> 2 & 1)};
    if (x.q.echo) x.q.n_logprobs = -1; /* with log-probabilities it is sent whole: fuzz_body writes those */
    x.q.sampling.stop = stops;
    x.q.sampling.n_stop = (more >> 3) % 4;
    x.n_choices = wire_n_choices(&x.q);
    x.choices = ln_zalloc(x.n_choices, sizeof *x.choices);
    ln_str_adds(&x.asked, "\"tools\":[],\"text\":{}"); /* as responses_translate writes it */
    if (!x.choices || x.asked.failed) {
        ln_free(x.choices);
        ln_str_free(&x.asked);
        return LN_OOM(err, "choices");
    }
    for (size_t i = 0; i < x.n_choices; i++) x.choices[i] = (choice){.x = &x, .index = i};
    x.answer = wire_answer_of(&x.q);
    x.answer.timings = true;
    x.why.error = (ln_error){.code = LN_EINTERNAL, .message = "m\"\n"};
    completed = 0;
    ln_str_free(&sent);
    const bool good = run(&x, &in, failed);
    ln_status st = LN_OK;
    if (!good || sent.failed || x.why.http) st = LN_OOM(err, "a stream");
    if (good) must(completed == 1);
    if (st == LN_OK) st = check(&x, failed, err);
    for (size_t i = 0; i < x.n_choices; i++) {
        ln_result_free(&x.choices[i].result);
        ln_result_free(&x.choices[i].tokens);
    }
    ln_free(x.choices);
    ln_str_free(&x.asked);
    ln_str_free(&x.items);
    ln_str_free(&x.said);
    ln_str_free(&sent);
    return st;
}
