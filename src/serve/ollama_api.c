/* Answers of ollama's /api/chat and /api/generate: one object, or a stream of objects, each in a line. The
 * last one has counts of tokens and durations in nanoseconds. ollama_body.c reads the requests. */
#include "../base/json_write.h"
#include "dialect.h"

#include <string.h>
#include <time.h>

#define OPTION(here, there) here, "options." there
#define SAMPLING                                                                                         \
    OPTION("max_tokens", "num_predict"), OPTION("temperature", "temperature"), OPTION("top_k", "top_k"), \
        OPTION("top_p", "top_p"), OPTION("min_p", "min_p"), OPTION("typical_p", "typical_p"),            \
        OPTION("tfs_z", "tfs_z"), OPTION("mirostat", "mirostat"), OPTION("seed", "seed"),                \
        OPTION("stop", "stop"), OPTION("repetition_penalty", "repeat_penalty"),                          \
        OPTION("repeat_last_n", "repeat_last_n"), OPTION("presence_penalty", "presence_penalty"),        \
        OPTION("frequency_penalty", "frequency_penalty"), "response_format.schema", "format",            \
        "response_format.json_schema.schema", "format", "response_format", "format", "enable_thinking",  \
        "think", "reasoning_effort", "think"

static const char *const chat_names[] = {SAMPLING, NULL};
static const char *const generate_names[] = {SAMPLING, "messages", "prompt", NULL};

void ollama_put_time(ln_str *out) {
    struct timespec now = {0};
    struct tm t = {0};
    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)gmtime_r(&now.tv_sec, &t);
    ln_str_addf(out, "%04d-%02d-%02dT%02d:%02d:%02d.%09ldZ", t.tm_year + 1900, t.tm_mon + 1, t.tm_mday,
                t.tm_hour, t.tm_min, t.tm_sec, now.tv_nsec);
}

static bool is_chat(const request_context *x) { return x->dialect == &dialect_ollama; }

static void put_head(ln_str *out, const char *model) {
    ln_str_adds(out, "{");
    put_text(out, "model", model);
    ln_str_adds(out, ",\"created_at\":\"");
    ollama_put_time(out);
    ln_str_adds(out, "\"");
}

/* Appends the text and the reasoning of an answer or of a piece of it, and leaves the message open. */
static void begin_message(ln_str *out, const request_context *x, const char *text, size_t bytes,
                          const char *reasoning, size_t reasoning_bytes) {
    if (is_chat(x)) {
        put_object(out, "message");
        put_text(out, "role", "assistant");
    }
    put_bytes(out, is_chat(x) ? "content" : "response", text ? text : "", bytes);
    if (reasoning_bytes > 0) put_bytes(out, "thinking", reasoning, reasoning_bytes);
}

static void end_message(ln_str *out, const request_context *x) { ln_str_adds(out, is_chat(x) ? "}" : ""); }

/* Appends call k; `arguments` are the JSON text of an object. */
static void put_call(ln_str *out, const request_context *x, size_t k, const char *name, const char *arguments,
                     size_t bytes) {
    char id[WIRE_CALL_ID];
    wire_call_id(id, &x->q, &x->answer, 0, k, name);
    ln_str_adds(out, "{");
    put_text(out, "id", id);
    put_object(out, "function");
    put_uint(out, "index", k);
    put_text(out, "name", name);
    put_key(out, "arguments");
    ln_str_add(out, arguments, bytes);
    ln_str_adds(out, "}}");
}

static void put_logprobs(ln_str *out, const request_context *x, const ln_result *r, size_t from, size_t to) {
    if (x->q.n_logprobs < 0 || !r->logprobs || to <= from) return;
    put_key(out, "logprobs");
    wire_put_token_logprobs(out, &x->q, r, from, to);
}

static void put_duration(ln_str *out, const char *name, double seconds) {
    put_int(out, name, (int64_t)(1e9 * LN_MAX(seconds, 0)));
}

/* Appends what ends an answer. The model is loaded before any request: load_duration is 0. */
static void put_end(ln_str *out, const request_context *x, const ln_result *r) {
    const ln_metrics *m = &r->metrics;
    put_bool(out, "done", true);
    put_text(out, "done_reason", wire_finish(r->finish));
    put_duration(out, "total_duration", m->total_seconds);
    put_int(out, "load_duration", 0);
    put_int(out, "prompt_eval_count", m->prompt_tokens);
    put_duration(out, "prompt_eval_duration", m->prefill_seconds - m->queue_seconds);
    put_int(out, "eval_count", m->generated_tokens);
    put_duration(out, "eval_duration", m->decode_seconds);
    wire_put_warnings(out, &x->q, r, 1);
    ln_str_adds(out, "}");
}

static void put_answer(ln_str *out, const request_context *x) {
    const ln_result *r = &x->choices[0].result;
    put_head(out, x->answer.model);
    begin_message(out, x, r->text, r->text_bytes, r->reasoning, r->reasoning_bytes);
    if (r->n_tool_calls > 0) put_list(out, "tool_calls");
    for (size_t k = 0; k < r->n_tool_calls; k++) {
        const ln_tool_call *c = &r->tool_calls[k];
        ln_str_adds(out, k > 0 ? "," : "");
        put_call(out, x, k, c->name, c->arguments, c->arguments_bytes);
    }
    ln_str_adds(out, r->n_tool_calls > 0 ? "]" : "");
    end_message(out, x);
    put_logprobs(out, x, r, 0, r->n_ids);
    put_end(out, x, r);
}

void ollama_put_loaded(ln_str *out, const request_context *x, const char *model) {
    put_head(out, model);
    begin_message(out, x, "", 0, NULL, 0);
    end_message(out, x);
    put_bool(out, "done", true);
    put_text(out, "done_reason", "load");
    ln_str_adds(out, "}");
}

/* ollama's clients show `error`, a text; type, param and code stand next to it. */
static void put_error(ln_str *out, const request_context *x) {
    ln_str_adds(out, "{");
    put_text(out, "error", x->why.error.message);
    put_text(out, "type", x->why.type);
    put_text(out, "param", x->why.param[0] ? x->why.param : NULL);
    put_text(out, "code", x->why.code);
    ln_str_adds(out, "}");
}

/* ---- streams ---- */

static void begin(request_context *x) { (void)x; }

/* Appends an object that says that the answer goes on. */
static void put_piece(ln_str *out, const request_context *x, const ln_event *ev) {
    const bool text = ev && ev->kind == LN_EVENT_TEXT, reasoning = ev && ev->kind == LN_EVENT_REASONING;
    put_head(out, x->answer.model);
    begin_message(out, x, text ? ev->text : "", text ? ev->bytes : 0, reasoning ? ev->text : NULL,
                  reasoning ? ev->bytes : 0);
    if (ev && ev->kind == LN_EVENT_TOOL_CALL) {
        put_list(out, "tool_calls");
        put_call(out, x, x->choices[0].n_calls - 1, ev->name, ev->text, ev->bytes);
        ln_str_adds(out, "]");
    }
    end_message(out, x);
    put_bool(out, "done", false);
}

/* A call is sent once it is whole, because its arguments are an object. */
static void event(choice *c, const ln_event *ev) {
    request_context *x = c->x;
    ln_str s = {0};
    size_t from, to;
    if (ev->kind == LN_EVENT_TOKEN || ev->kind == LN_EVENT_TOOL_ARGUMENTS) return;
    put_piece(&s, x, ev);
    if (stream_tokens(c, &from, &to)) put_logprobs(&s, x, &c->tokens, from, to);
    ln_str_adds(&s, "}");
    stream_line(x, &s);
}

static void finish(choice *c) {
    request_context *x = c->x;
    ln_str s = {0};
    put_head(&s, x->answer.model);
    begin_message(&s, x, "", 0, NULL, 0);
    end_message(&s, x);
    put_logprobs(&s, x, &c->result, c->n_sent, c->result.n_ids);
    put_end(&s, x, &c->result);
    stream_line(x, &s);
}

static void end(request_context *x, bool failed) {
    ln_str s = {0};
    if (!failed) return;
    put_error(&s, x);
    stream_line(x, &s);
}

static void put_silence(ln_str *out, const request_context *x) {
    put_piece(out, x, NULL);
    ln_str_adds(out, "}\n");
}

/* What the answers of both paths share. */
#define ANSWERS                                                                              \
    .stream_type = "application/x-ndjson", .put_answer = put_answer, .put_error = put_error, \
    .put_silence = put_silence, .begin = begin, .event = event, .finish = finish, .end = end

const dialect dialect_ollama = {.translate = ollama_chat_translate, .names = chat_names, ANSWERS};
const dialect dialect_ollama_generate = {
    .translate = ollama_generate_translate, .names = generate_names, ANSWERS};
