/* The chunks of a stream, and timings. */
#include "wire.h"
#include "../base/json_write.h"

#include <stdio.h>

/* A piece of a call's arguments; the first one names the call. */
static void put_call(ln_str *out, const wire_request *q, const wire_answer *a, const wire_delta *d) {
    put_list(out, "tool_calls");
    ln_str_adds(out, "{");
    put_uint(out, "index", d->n_call);
    if (d->begins_call) {
        wire_put_call(out, q, a, d->index, d->n_call, d->call->name, d->call->text, d->call->bytes);
    } else {
        put_object(out, "function");
        put_bytes(out, "arguments", d->call->text, d->call->bytes);
        ln_str_adds(out, "}");
    }
    ln_str_adds(out, "}]");
}

static void put_delta(ln_str *out, const wire_request *q, const wire_answer *a, const wire_delta *d) {
    put_object(out, "delta");
    if (d->role) put_text(out, "role", "assistant");
    if (d->text || (d->role && !d->reasoning))
        put_bytes(out, "content", d->text ? d->text : "", d->text_bytes);
    if (d->reasoning) put_bytes(out, "reasoning_content", d->reasoning, d->reasoning_bytes);
    if (d->call) put_call(out, q, a, d);
    ln_str_adds(out, "}");
}

void wire_put_delta(ln_str *out, const wire_request *q, const wire_answer *a, const wire_delta *d) {
    ln_str_adds(out, "{");
    wire_put_head(out, a, q->kind == WIRE_CHAT ? "chat.completion.chunk" : "text_completion");
    put_key(out, "choices");
    ln_str_adds(out, "[{");
    put_uint(out, "index", d->index);
    if (q->kind == WIRE_CHAT) put_delta(out, q, a, d);
    else put_bytes(out, "text", d->text ? d->text : "", d->text_bytes);
    put_key(out, "logprobs");
    if (d->tokens) wire_put_logprobs_after(out, q, d->tokens, d->from, d->to, d->place);
    else ln_str_adds(out, "null");
    put_text(out, "finish_reason", d->finish);
    ln_str_adds(out, "}]");
    if (q->include_usage) put_text(out, "usage", NULL);
    if (d->ended) wire_put_warnings(out, q, d->ended, 1);
    if (d->timings) wire_put_timings(out, q, d->timings);
    ln_str_adds(out, "}");
}

void wire_put_usage_delta(ln_str *out, const wire_request *q, const wire_answer *a,
                          const ln_result *results) {
    ln_str_adds(out, "{");
    wire_put_head(out, a, q->kind == WIRE_CHAT ? "chat.completion.chunk" : "text_completion");
    put_key(out, "choices");
    ln_str_adds(out, "[]");
    wire_put_usage(out, q, results);
    if (a->timings) wire_put_timings(out, q, results);
    ln_str_adds(out, "}");
}

/* Tokens of a kind, "prompt" or "predicted", the milliseconds that they took, and their rate. */
static void put_rate(ln_str *out, const char *kind, int64_t tokens, double seconds) {
    char name[40];
    (void)snprintf(name, sizeof name, "%s_n", kind);
    put_int(out, name, tokens);
    (void)snprintf(name, sizeof name, "%s_ms", kind);
    put_real(out, name, seconds * 1e3);
    (void)snprintf(name, sizeof name, "%s_per_second", kind);
    put_real(out, name, seconds > 0 ? (double)tokens / seconds : 0);
}

void wire_put_timings(ln_str *out, const wire_request *q, const ln_result *results) {
    int64_t cached = 0, prompt = 0, generated = 0, proposed = 0, accepted = 0;
    double prefill = 0, decode = 0, queue = 0;
    for (size_t i = 0; i < wire_n_choices(q); i++) {
        const ln_metrics *m = &results[i].metrics;
        if (i % (size_t)q->n == 0) cached += m->cached_tokens, prompt += m->prompt_tokens - m->cached_tokens;
        generated += m->generated_tokens;
        proposed += m->proposed_tokens, accepted += m->accepted_tokens;
        prefill = LN_MAX(prefill, m->prefill_seconds - m->queue_seconds);
        decode = LN_MAX(decode, m->decode_seconds);
        queue = LN_MAX(queue, m->queue_seconds);
    }
    put_object(out, "timings");
    put_int(out, "cache_n", cached);
    put_rate(out, "prompt", prompt, LN_MAX(prefill, 0));
    put_rate(out, "predicted", generated, decode);
    if (proposed > 0) {
        put_int(out, "draft_n", proposed);
        put_int(out, "draft_n_accepted", accepted);
    }
    put_real(out, "queue_ms", queue * 1e3);
    ln_str_adds(out, "}");
}
