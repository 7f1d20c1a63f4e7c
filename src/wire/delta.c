/* The chunks of a stream, and timings. */
#include "wire.h"

#include <string.h>

static void put_delta(ln_str *out, const wire_delta *d) {
    ln_str_adds(out, "\"delta\":{");
    const char *before = "";
    if (d->role) {
        ln_str_adds(out, "\"role\":\"assistant\"");
        before = ",";
    }
    if (d->text || (d->role && !d->reasoning)) {
        ln_str_addf(out, "%s\"content\":", before);
        ln_str_json(out, d->text ? d->text : "", d->text_bytes);
        before = ",";
    }
    if (d->reasoning) {
        ln_str_addf(out, "%s\"reasoning_content\":", before);
        ln_str_json(out, d->reasoning, d->reasoning_bytes);
    }
    ln_str_adds(out, "}");
}

void wire_put_delta(ln_str *out, const wire_request *q, const wire_answer *a, const wire_delta *d) {
    ln_str_adds(out, "{");
    wire_put_head(out, a, q->kind == WIRE_CHAT ? "chat.completion.chunk" : "text_completion");
    ln_str_addf(out, "\"choices\":[{\"index\":%zu,", d->index);
    if (q->kind == WIRE_CHAT) {
        put_delta(out, d);
    } else {
        ln_str_adds(out, "\"text\":");
        ln_str_json(out, d->text ? d->text : "", d->text_bytes);
    }
    ln_str_adds(out, ",\"logprobs\":");
    if (d->tokens) wire_put_logprobs_after(out, q, d->tokens, d->from, d->to, d->place);
    else ln_str_adds(out, "null");
    ln_str_adds(out, ",\"finish_reason\":");
    if (d->finish) ln_str_json(out, d->finish, strlen(d->finish));
    else ln_str_adds(out, "null");
    ln_str_adds(out, q->include_usage ? "}],\"usage\":null" : "}]");
    if (d->timings) {
        ln_str_adds(out, ",");
        wire_put_timings(out, q, d->timings);
    }
    ln_str_adds(out, "}");
}

void wire_put_usage_delta(ln_str *out, const wire_request *q, const wire_answer *a,
                          const ln_result *results) {
    ln_str_adds(out, "{");
    wire_put_head(out, a, q->kind == WIRE_CHAT ? "chat.completion.chunk" : "text_completion");
    ln_str_adds(out, "\"choices\":[],");
    wire_put_usage(out, q, results);
    if (a->timings) {
        ln_str_adds(out, ",");
        wire_put_timings(out, q, results);
    }
    ln_str_adds(out, "}");
}

static void put_rate(ln_str *out, const char *name, int64_t tokens, double seconds) {
    ln_str_addf(out, ",\"%s_n\":%lld,\"%s_ms\":", name, (long long)tokens, name);
    ln_str_double(out, seconds * 1e3);
    ln_str_addf(out, ",\"%s_per_second\":", name);
    ln_str_double(out, seconds > 0 ? (double)tokens / seconds : 0);
}

void wire_put_timings(ln_str *out, const wire_request *q, const ln_result *results) {
    int64_t cached = 0, prompt = 0, generated = 0;
    double prefill = 0, decode = 0, queue = 0;
    for (size_t i = 0; i < wire_n_choices(q); i++) {
        const ln_metrics *m = &results[i].metrics;
        if (i % (size_t)q->n == 0) cached += m->cached_tokens, prompt += m->prompt_tokens - m->cached_tokens;
        generated += m->generated_tokens;
        prefill = LN_MAX(prefill, m->prefill_seconds - m->queue_seconds);
        decode = LN_MAX(decode, m->decode_seconds);
        queue = LN_MAX(queue, m->queue_seconds);
    }
    ln_str_addf(out, "\"timings\":{\"cache_n\":%lld", (long long)cached);
    put_rate(out, "prompt", prompt, LN_MAX(prefill, 0));
    put_rate(out, "predicted", generated, decode);
    ln_str_adds(out, ",\"queue_ms\":");
    ln_str_double(out, queue * 1e3);
    ln_str_adds(out, "}");
}
