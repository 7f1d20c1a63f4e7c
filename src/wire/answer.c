/* Bodies of answers. */
#include "wire.h"
#include "../base/json_write.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#include <time.h>

void wire_random_hex(char *out, int n) {
    static const char hex[] = "0123456789abcdef";
    uint8_t raw[16] = {0};
    if (getentropy(raw, sizeof raw) != 0) { /* never for so few bytes */
        uint64_t now = (uint64_t)(ln_now() * 1e9);
        memcpy(raw, &now, sizeof now);
    }
    for (int i = 0; i < n; i++) out[i] = hex[i & 1 ? raw[i / 2] & 15 : raw[i / 2] >> 4];
    out[n] = '\0';
}

void wire_fingerprint(char out[WIRE_FINGERPRINT], ln_numerics numerics) {
    (void)snprintf(out, WIRE_FINGERPRINT, "linnet-%.32s-%s", ln_version(),
                   numerics == LN_FAST ? "fast" : "exact");
}

wire_answer wire_answer_of(const wire_request *q) {
    wire_answer a = {.created = (int64_t)time(NULL),
                     .model = q->target->names[q->model],
                     .fingerprint = q->target->fingerprint};
    const char *prefix = q->kind == WIRE_CHAT ? "chatcmpl-" : "cmpl-";
    size_t n = strlen(prefix);
    memcpy(a.id, prefix, n);
    wire_random_hex(a.id + n, 24);
    return a;
}

void wire_put_head(ln_str *out, const wire_answer *a, const char *object) {
    put_text(out, "id", a->id);
    put_text(out, "object", object);
    put_int(out, "created", a->created);
    put_text(out, "model", a->model);
    put_text(out, "system_fingerprint", a->fingerprint);
}

const char *wire_finish(ln_finish finish) {
    return finish == LN_FINISH_STOP ? "stop" : finish == LN_FINISH_LENGTH ? "length" : NULL;
}

const char *wire_finish_of(const ln_result *r) {
    return r->finish == LN_FINISH_STOP && r->n_tool_calls > 0 ? "tool_calls" : wire_finish(r->finish);
}

void wire_call_id(char out[WIRE_CALL_ID], const wire_request *q, const wire_answer *a, size_t choice,
                  size_t k, const char *name) {
    const char *form = q->target->tool_format, *digits = strrchr(a->id, '-');
    digits = digits ? digits + 1 : a->id;
    if (form && strncmp(form, "mistral", strlen("mistral")) == 0)
        (void)snprintf(out, WIRE_CALL_ID, "%.5s%02x%02x", digits, (unsigned)choice & 255, (unsigned)k & 255);
    else if (form && strcmp(form, "kimi") == 0)
        (void)snprintf(out, WIRE_CALL_ID, "functions.%.70s:%u", name, (unsigned)k);
    else (void)snprintf(out, WIRE_CALL_ID, "call_%.16s%04x%04x", digits, (unsigned)choice, (unsigned)k);
}

void wire_put_call(ln_str *out, const wire_request *q, const wire_answer *a, size_t choice, size_t k,
                   const char *name, const char *arguments, size_t bytes) {
    char id[WIRE_CALL_ID];
    wire_call_id(id, q, a, choice, k, name);
    put_text(out, "id", id);
    put_text(out, "type", "function");
    put_object(out, "function");
    put_text(out, "name", name);
    put_bytes(out, "arguments", arguments, bytes);
    ln_str_adds(out, "}");
}

const ln_tool_call *wire_cut_call(const ln_result *r) {
    return r->cut_tool_call && r->cut_tool_call->arguments_bytes > 0 ? r->cut_tool_call : NULL;
}

static void put_calls(ln_str *out, const wire_request *q, const wire_answer *a, size_t i,
                      const ln_result *r) {
    const ln_tool_call *cut = wire_cut_call(r);
    const size_t n = r->n_tool_calls + (cut != NULL);
    if (n == 0) return;
    put_list(out, "tool_calls");
    for (size_t k = 0; k < n; k++) {
        const ln_tool_call *c = k < r->n_tool_calls ? &r->tool_calls[k] : cut;
        ln_str_adds(out, k > 0 ? ",{" : "{");
        wire_put_call(out, q, a, i, k, c->name, c->arguments, c->arguments_bytes);
        ln_str_adds(out, "}");
    }
    ln_str_adds(out, "]");
}

static void put_finish(ln_str *out, const ln_result *r) {
    put_text(out, "finish_reason", wire_finish_of(r));
    ln_str_adds(out, "}");
}

static void put_message(ln_str *out, const wire_request *q, const wire_answer *a, size_t i,
                        const ln_result *r) {
    const bool only_calls = (r->n_tool_calls > 0 || wire_cut_call(r)) && r->text_bytes == 0;
    ln_str_adds(out, "{");
    put_uint(out, "index", i);
    put_object(out, "message");
    put_text(out, "role", "assistant");
    put_bytes(out, "content", only_calls ? NULL : r->text ? r->text : "", r->text_bytes);
    put_text(out, "refusal", NULL);
    if (r->reasoning_bytes > 0) put_bytes(out, "reasoning_content", r->reasoning, r->reasoning_bytes);
    put_calls(out, q, a, i, r);
    ln_str_adds(out, "}");
    put_key(out, "logprobs");
    wire_put_logprobs(out, q, r, 0, r->n_ids);
    put_finish(out, r);
}

/* The prompt as it was given, where it was a text. */
static void add_prompt(ln_str *text, const wire_request *q, size_t i, const ln_result *r) {
    const ln_prompt *p = &q->prompts[i / (size_t)q->n];
    if (p->text) ln_str_add(text, p->text, p->text_bytes);
    else q->target->text(q->target->user, r->prompt_ids, r->n_prompt_ids, text);
}

static void put_completion(ln_str *out, const wire_request *q, size_t i, const ln_result *r) {
    ln_str text = {0};
    if (q->echo) add_prompt(&text, q, i, r);
    ln_str_add(&text, r->text, r->text_bytes);
    ln_str_adds(out, "{");
    put_uint(out, "index", i);
    put_bytes(out, "text", text.data ? text.data : "", text.len);
    out->failed |= text.failed;
    ln_str_free(&text);
    put_key(out, "logprobs");
    wire_put_logprobs(out, q, r, 0, r->n_ids);
    put_finish(out, r);
}

/* A member that is an object of one count. */
static void put_count(ln_str *out, const char *key, const char *name, int64_t n) {
    put_object(out, key);
    put_int(out, name, n);
    ln_str_adds(out, "}");
}

void wire_put_usage(ln_str *out, const wire_request *q, const ln_result *results) {
    int64_t prompt = 0, cached = 0, generated = 0, reasoning = 0, proposed = 0, accepted = 0;
    for (size_t i = 0; i < wire_n_choices(q); i++) {
        const ln_metrics *m = &results[i].metrics;
        if (i % (size_t)q->n == 0) prompt += (int64_t)results[i].n_prompt_ids, cached += m->cached_tokens;
        generated += m->generated_tokens;
        reasoning += m->reasoning_tokens;
        proposed += m->proposed_tokens, accepted += m->accepted_tokens;
    }
    put_object(out, "usage");
    put_int(out, "prompt_tokens", prompt);
    put_int(out, "completion_tokens", generated);
    put_int(out, "total_tokens", prompt + generated);
    put_count(out, "prompt_tokens_details", "cached_tokens", cached);
    put_object(out, "completion_tokens_details");
    put_int(out, "reasoning_tokens", reasoning);
    if (proposed > 0) {
        put_int(out, "accepted_prediction_tokens", accepted);
        put_int(out, "rejected_prediction_tokens", proposed - accepted);
    }
    ln_str_adds(out, "}}");
}

static void put_warning(ln_str *out, bool *first, const char *code, size_t choice, const char *message) {
    if (*first) put_list(out, "warnings");
    ln_str_adds(out, *first ? "{" : ",{");
    put_text(out, "code", code);
    put_uint(out, "choice", choice);
    put_text(out, "message", message);
    ln_str_adds(out, "}");
    *first = false;
}

void wire_put_warnings(ln_str *out, const wire_request *q, const ln_result *results, size_t n) {
    char text[240];
    bool first = true;
    if (q->skipped[0]) {
        (void)snprintf(text, sizeof text, "tools that are no functions were left out: %s", q->skipped);
        put_warning(out, &first, "tool_skipped", 0, text);
    }
    if (q->note[0]) put_warning(out, &first, "option_ignored", 0, q->note);
    for (size_t i = 0; i < n; i++) {
        const ln_result *r = &results[i];
        if (r->cut_tool_call) {
            (void)snprintf(text, sizeof text,
                           "the answer ended within a call of %.80s, whose arguments are incomplete",
                           r->cut_tool_call->name);
            put_warning(out, &first, "tool_call_cut", i, text);
        }
        if (r->n_malformed_calls > 0) {
            (void)snprintf(text, sizeof text, "the text has %zu tags of calls after which there was no call",
                           r->n_malformed_calls);
            put_warning(out, &first, "tool_call_malformed", i, text);
        }
    }
    if (!first) ln_str_adds(out, "]");
}

void wire_put_answer(ln_str *out, const wire_request *q, const wire_answer *a, const ln_result *results) {
    ln_str_adds(out, "{");
    wire_put_head(out, a, q->kind == WIRE_CHAT ? "chat.completion" : "text_completion");
    put_list(out, "choices");
    for (size_t i = 0; i < wire_n_choices(q); i++) {
        if (i > 0) ln_str_adds(out, ",");
        if (q->kind == WIRE_CHAT) put_message(out, q, a, i, &results[i]);
        else put_completion(out, q, i, &results[i]);
    }
    ln_str_adds(out, "]");
    wire_put_usage(out, q, results);
    wire_put_warnings(out, q, results, wire_n_choices(q));
    if (a->timings) wire_put_timings(out, q, results);
    ln_str_adds(out, "}");
}
