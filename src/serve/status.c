/* What the server says about itself: /health, /version, /v1/models, /v1/status, and llama.cpp's /props and
 * /slots. */
#include "../base/json_write.h"
#include "../base/os.h"
#include "server.h"

#include <linnet_tools.h>
#include <string.h>

void handle_health(request_context *x) {
    const server *s = x->s;
    static const char ok[] = "{\"status\":\"ok\"}";
    if (s->phase == PHASE_LOADING) request_reject(x, 503, "loading", "the model is being loaded");
    else if (s->phase > PHASE_READY) request_reject(x, 503, "shutting_down", "the server is about to stop");
    else if (s->lost) request_reject(x, 503, "engine_lost", "the engine cannot go on; restart the server");
    else if (s->stuck)
        request_reject(x, 503, "engine_stuck", "the engine has made no step while requests wait");
    else request_reply(x, 200, "application/json", ok, sizeof ok - 1, NULL);
}

/* Model i of the list; an adapter names the base model as its parent. */
void put_model(ln_str *out, const server *s, size_t i) {
    ln_str_adds(out, "{");
    put_text(out, "id", s->models->names[i]);
    put_text(out, "object", "model");
    put_int(out, "created", s->created);
    put_text(out, "owned_by", "linnet");
    put_int(out, "max_model_len", s->plan.n_ctx);
    put_text(out, "type", "model"); /* this and the next two: Anthropic's names */
    put_text(out, "display_name", s->models->names[i]);
    put_text(out, "created_at", s->created_at);
    if (i >= s->models->n_base) put_text(out, "parent", s->name);
    else if (i > 0) put_text(out, "root", s->name); /* an alias */
    ln_str_adds(out, "}");
}

void reply_json(request_context *x, ln_str *out) {
    if (out->failed) request_reject(x, 503, "out_of_memory", "out of memory for an answer");
    else request_reply(x, 200, "application/json", out->data, out->len, NULL);
    ln_str_free(out);
}

void handle_models(request_context *x) {
    ln_str out = {0};
    ln_str_adds(&out, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < x->s->models->n; i++) {
        ln_str_adds(&out, i ? "," : "");
        put_model(&out, x->s, i);
    }
    ln_str_adds(&out, "],\"has_more\":false}");
    reply_json(x, &out);
}

void handle_model(request_context *x) {
    ln_str out = {0};
    size_t i;
    if (wire_find_model(&i, &x->s->models->target, x->path.data, x->path.len, &x->why) != LN_OK) {
        request_reply_error(x);
        return;
    }
    put_model(&out, x->s, i);
    reply_json(x, &out);
}

void handle_status(request_context *x) {
    const server *s = x->s;
    static const char *const phases[] = {"loading", "ready", "draining", "ending"};
    ln_engine_stats e = {.size = sizeof e};
    ln_memory m = {.size = sizeof m};
    ln_str out = {0};
    ln_error err;
    const uint64_t allocated = ln_mem_bytes(),
                   heap = ln_os_heap_bytes(); /* before this answer, whose length varies */
    if (ln_engine_get_stats(s->engine, &e, &err) != LN_OK) e = (ln_engine_stats){0};
    ln_memory_stats(&m);
    ln_str_addf(&out, "{\"version\":\"%s\",\"status\":\"%s\",\"model\":", ln_version(), phases[s->phase]);
    ln_str_json(&out, s->name, strlen(s->name));
    put_real(&out, "uptime_seconds", ln_now() - s->started);
    put_real(&out, "load_seconds", s->loaded - s->started);
    ln_str_addf(&out,
                ",\"ctx\":%lld,\"parallel\":%d,\"contexts\":%lld,\"requests\":{\"running\":%d,\"waiting\":%d,"
                "\"max_waiting\":%d},\"connections\":%d",
                (long long)s->plan.n_ctx, s->plan.n_parallel, (long long)s->plan.n_contexts,
                (int)LN_MIN(e.n_running, INT32_MAX), s->n_queued + s->n_running - (int)e.n_running,
                s->o->max_queue, s->n_conns);
    ln_str_addf(&out, ",\"kv\":{\"pages\":%lld,\"used\":%lld,\"cached\":%lld,\"page_bytes\":%llu}",
                (long long)e.n_pages, (long long)e.n_used, (long long)e.n_cached,
                (unsigned long long)e.page_bytes);
    ln_str_addf(&out, ",\"state\":{\"pages\":%lld,\"used\":%lld,\"cached\":%lld,\"page_bytes\":%llu}",
                (long long)e.n_state_pages, (long long)e.n_state_used, (long long)e.n_state_cached,
                (unsigned long long)e.state_page_bytes);
    ln_str_addf(&out,
                ",\"tokens\":{\"prompt\":%llu,\"cached\":%llu,\"generated\":%llu,\"proposed\":%llu,"
                "\"accepted\":%llu},\"steps\":%llu",
                (unsigned long long)e.prompt_tokens, (unsigned long long)e.cached_tokens,
                (unsigned long long)e.generated_tokens, (unsigned long long)e.proposed_tokens,
                (unsigned long long)e.accepted_tokens, (unsigned long long)e.n_steps);
    put_real(&out, "step_seconds", e.step_seconds);
    ln_str_addf(&out,
                ",\"memory\":{\"active_bytes\":%llu,\"peak_bytes\":%llu,\"weights_bytes\":%llu,\"kv_bytes\":%"
                "llu,"
                "\"planned_bytes\":%llu,\"available_bytes\":%llu",
                (unsigned long long)m.active_bytes, (unsigned long long)m.peak_bytes,
                (unsigned long long)m.weights_bytes, (unsigned long long)m.kv_bytes,
                (unsigned long long)s->plan.peak_bytes, (unsigned long long)s->plan.available_bytes);
    ln_str_addf(&out,
                ",\"allocated_bytes\":%llu,\"heap_bytes\":%llu,\"bodies_bytes\":%llu,\"text_bytes\":%llu,"
                "\"text_limit_bytes\":%llu}}",
                (unsigned long long)allocated, (unsigned long long)heap, (unsigned long long)s->held,
                (unsigned long long)ln_texts_used(), (unsigned long long)s->texts.limit);
    reply_json(x, &out);
}

void handle_version(request_context *x) {
    ln_str out = {0};
    ln_str_addf(&out, "{\"version\":\"%s\"}", ln_version());
    reply_json(x, &out);
}

/* ---- llama.cpp's paths ---- */

static void put_defaults(ln_str *out, const server *s) {
    const ln_sampling *d = &s->target.sampling;
    put_object(out, "default_generation_settings");
    put_int(out, "n_ctx", s->plan.n_ctx);
    put_object(out, "params");
    put_real(out, "temperature", d->temperature);
    put_int(out, "top_k", d->top_k);
    put_real(out, "top_p", d->top_p);
    put_real(out, "min_p", d->min_p);
    put_real(out, "repeat_penalty", d->repeat_penalty);
    put_int(out, "repeat_last_n", d->repeat_last);
    put_real(out, "presence_penalty", d->presence_penalty);
    put_real(out, "frequency_penalty", d->frequency_penalty);
    ln_str_adds(out, "}}");
}

void handle_props(request_context *x) {
    const server *s = x->s;
    ln_str out = {0};
    ln_str_adds(&out, "{");
    put_defaults(&out, s);
    put_int(&out, "total_slots", s->plan.n_parallel);
    put_text(&out, "model_alias", s->name);
    put_bytes(&out, "chat_template", s->chat_template.data ? s->chat_template.data : "",
              s->chat_template.len);
    put_object(&out, "modalities");
    put_bool(&out, "vision", false);
    put_bool(&out, "audio", false);
    ln_str_adds(&out, "}");
    ln_str_addf(&out, ",\"build_info\":\"linnet-%s\",\"is_sleeping\":false}", ln_version());
    reply_json(x, &out);
}

/* A request has no place of its own: the entries of those that run come first. */
void handle_slots(request_context *x) {
    const server *s = x->s;
    ln_engine_stats e = {.size = sizeof e};
    ln_str out = {0};
    ln_error err;
    if (ln_engine_get_stats(s->engine, &e, &err) != LN_OK) e.n_running = 0;
    ln_str_adds(&out, "[");
    for (int i = 0; i < s->plan.n_parallel; i++)
        ln_str_addf(&out, "%s{\"id\":%d,\"n_ctx\":%lld,\"speculative\":%s,\"is_processing\":%s}",
                    i > 0 ? "," : "", i, (long long)s->plan.n_ctx,
                    s->o->engine.n_lookup > 0 ? "true" : "false", i < e.n_running ? "true" : "false");
    ln_str_adds(&out, "]");
    reply_json(x, &out);
}
