/* Bodies of answers. */
#include "wire.h"

#include <string.h>
#include <sys/random.h>
#include <time.h>

void wire_random_hex(char *out, int n) {
    static const char hex[] = "0123456789abcdef";
    uint8_t raw[16] = {0};
    if (getrandom(raw, sizeof raw, 0) != (ssize_t)sizeof raw) { /* never for so few bytes */
        uint64_t now = (uint64_t)(ln_now() * 1e9);
        memcpy(raw, &now, sizeof now);
    }
    for (int i = 0; i < n; i++) out[i] = hex[i & 1 ? raw[i / 2] & 15 : raw[i / 2] >> 4];
    out[n] = '\0';
}

wire_answer wire_answer_of(const wire_request *q) {
    wire_answer a = {.created = (int64_t)time(NULL), .model = q->target->names[q->model]};
    const char *prefix = q->kind == WIRE_CHAT ? "chatcmpl-" : "cmpl-";
    size_t n = strlen(prefix);
    memcpy(a.id, prefix, n);
    wire_random_hex(a.id + n, 24);
    return a;
}

void wire_put_head(ln_str *out, const wire_answer *a, const char *object) {
    ln_str_addf(out, "\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", a->id, object,
                (long long)a->created);
    ln_str_json(out, a->model, strlen(a->model));
    ln_str_adds(out, ",");
}

const char *wire_finish(ln_finish finish) {
    return finish == LN_FINISH_STOP ? "stop" : finish == LN_FINISH_LENGTH ? "length" : NULL;
}

static void put_finish(ln_str *out, const ln_result *r) {
    const char *word = wire_finish(r->finish);
    ln_str_adds(out, ",\"finish_reason\":");
    if (word) ln_str_json(out, word, strlen(word));
    else ln_str_adds(out, "null");
    ln_str_adds(out, "}");
}

static void put_message(ln_str *out, const wire_request *q, size_t i, const ln_result *r) {
    ln_str_addf(out, "{\"index\":%zu,\"message\":{\"role\":\"assistant\",\"content\":", i);
    ln_str_json(out, r->text, r->text_bytes);
    if (r->reasoning_bytes > 0) {
        ln_str_adds(out, ",\"reasoning_content\":");
        ln_str_json(out, r->reasoning, r->reasoning_bytes);
    }
    ln_str_adds(out, "},\"logprobs\":");
    wire_put_logprobs(out, q, r, 0, r->n_ids);
    put_finish(out, r);
}

/* The prompt as it was given, where it was a text. */
static void add_prompt(ln_str *text, const wire_request *q, size_t i, const ln_result *r) {
    const ln_prompt *p = &q->prompts[i / (size_t)q->n];
    if (p->text) ln_str_add(text, p->text, p->text_bytes);
    else q->target->text(q->target->user, r->prompt_ids, r->n_prompt_ids, text);
}

static void put_text(ln_str *out, const wire_request *q, size_t i, const ln_result *r) {
    ln_str text = {0};
    if (q->echo) add_prompt(&text, q, i, r);
    ln_str_add(&text, r->text, r->text_bytes);
    ln_str_addf(out, "{\"index\":%zu,\"text\":", i);
    ln_str_json(out, text.data ? text.data : "", text.len);
    out->failed |= text.failed;
    ln_str_free(&text);
    ln_str_adds(out, ",\"logprobs\":");
    wire_put_logprobs(out, q, r, 0, r->n_ids);
    put_finish(out, r);
}

void wire_put_usage(ln_str *out, const wire_request *q, const ln_result *results) {
    int64_t prompt = 0, cached = 0, generated = 0, reasoning = 0;
    for (size_t i = 0; i < wire_n_choices(q); i++) {
        const ln_metrics *m = &results[i].metrics;
        if (i % (size_t)q->n == 0) prompt += (int64_t)results[i].n_prompt_ids, cached += m->cached_tokens;
        generated += m->generated_tokens;
        reasoning += m->reasoning_tokens;
    }
    ln_str_addf(out,
                "\"usage\":{\"prompt_tokens\":%lld,\"completion_tokens\":%lld,\"total_tokens\":%lld,"
                "\"prompt_tokens_details\":{\"cached_tokens\":%lld},"
                "\"completion_tokens_details\":{\"reasoning_tokens\":%lld}}",
                (long long)prompt, (long long)generated, (long long)(prompt + generated), (long long)cached,
                (long long)reasoning);
}

void wire_put_answer(ln_str *out, const wire_request *q, const wire_answer *a, const ln_result *results) {
    ln_str_adds(out, "{");
    wire_put_head(out, a, q->kind == WIRE_CHAT ? "chat.completion" : "text_completion");
    ln_str_adds(out, "\"choices\":[");
    for (size_t i = 0; i < wire_n_choices(q); i++) {
        if (i > 0) ln_str_adds(out, ",");
        if (q->kind == WIRE_CHAT) put_message(out, q, i, &results[i]);
        else put_text(out, q, i, &results[i]);
    }
    ln_str_adds(out, "],");
    wire_put_usage(out, q, results);
    if (a->timings) {
        ln_str_adds(out, ",");
        wire_put_timings(out, q, results);
    }
    ln_str_adds(out, "}");
}
