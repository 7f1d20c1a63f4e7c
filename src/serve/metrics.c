/* /metrics: the text format of Prometheus, version 0.0.4. Counters belong to the I/O thread; pages and steps
 * are the engine's own. */
#include "server.h"

#include <linnet_tools.h>
#include <string.h>

/* Upper bounds in seconds; the last bucket has none. */
static const double bounds[METRIC_BUCKETS] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                              0.5,   1,      2.5,   5,    10,    30,   60,  300};

void metric_observe(histogram *h, double seconds) {
    int i = 0;
    while (i < METRIC_BUCKETS && seconds > bounds[i]) i++;
    h->counts[i]++;
    h->sum += seconds;
    h->n++;
}

static void put_head(ln_str *out, const char *name, const char *type, const char *help) {
    ln_str_addf(out, "# HELP linnet_%s %s\n# TYPE linnet_%s %s\n", name, help, name, type);
}

static void put_uint(ln_str *out, const char *name, const char *type, const char *help, uint64_t v) {
    put_head(out, name, type, help);
    ln_str_addf(out, "linnet_%s %llu\n", name, (unsigned long long)v);
}

static void put_real(ln_str *out, const char *name, const char *help, double v) {
    put_head(out, name, "gauge", help);
    ln_str_addf(out, "linnet_%s ", name);
    ln_str_double(out, v);
    ln_str_adds(out, "\n");
}

static void put_histogram(ln_str *out, const char *name, const char *help, const histogram *h) {
    uint64_t n = 0;
    put_head(out, name, "histogram", help);
    for (int i = 0; i < METRIC_BUCKETS; i++) {
        n += h->counts[i];
        ln_str_addf(out, "linnet_%s_bucket{le=\"", name);
        ln_str_double(out, bounds[i]);
        ln_str_addf(out, "\"} %llu\n", (unsigned long long)n);
    }
    ln_str_addf(out, "linnet_%s_bucket{le=\"+Inf\"} %llu\nlinnet_%s_sum ", name, (unsigned long long)h->n,
                name);
    ln_str_double(out, h->sum);
    ln_str_addf(out, "\nlinnet_%s_count %llu\n", name, (unsigned long long)h->n);
}

static void put_statuses(ln_str *out, const metrics *m) {
    put_head(out, "http_requests_total", "counter",
             "Answers by HTTP status; 499: the client left before its answer.");
    for (size_t i = 0; i < LN_COUNT(m->requests); i++)
        if (m->requests[i] > 0)
            ln_str_addf(out, "linnet_http_requests_total{status=\"%zu\"} %llu\n", i,
                        (unsigned long long)m->requests[i]);
    static const char *const words[] = {"stop", "length", "cancelled", "error"};
    put_head(out, "choices_total", "counter", "Generated choices by the reason of their end.");
    for (size_t i = 0; i < LN_COUNT(words); i++)
        ln_str_addf(out, "linnet_choices_total{finish=\"%s\"} %llu\n", words[i],
                    (unsigned long long)m->finishes[i]);
}

static void put_engine(ln_str *out, const server *s) {
    ln_engine_stats e = {.size = sizeof e};
    ln_error err;
    if (ln_engine_get_stats(s->engine, &e, &err) != LN_OK) return;
    const int64_t waiting = LN_MAX((int64_t)s->n_queued + s->n_running - e.n_running, 0);
    put_uint(out, "requests_running", "gauge", "Choices that have a sequence of the engine.",
             (uint64_t)e.n_running);
    put_uint(out, "requests_waiting", "gauge", "Choices that wait for one.", (uint64_t)waiting);
    put_uint(out, "prompt_tokens_total", "counter", "Tokens of prompts.", e.prompt_tokens);
    put_uint(out, "cached_tokens_total", "counter", "Tokens of prompts that were not computed again.",
             e.cached_tokens);
    put_uint(out, "generated_tokens_total", "counter", "Generated tokens.", e.generated_tokens);
    put_uint(out, "proposed_tokens_total", "counter", "Tokens that were computed ahead.", e.proposed_tokens);
    put_uint(out, "accepted_tokens_total", "counter", "Tokens computed ahead that were kept.",
             e.accepted_tokens);
    put_uint(out, "steps_total", "counter", "Steps of the engine.", e.n_steps);
    put_uint(out, "kv_pages", "gauge", "Pages of keys and values in the pool.", (uint64_t)e.n_pages);
    put_uint(out, "kv_pages_used", "gauge", "Pages of running requests.", (uint64_t)e.n_used);
    put_uint(out, "kv_pages_cached", "gauge", "Pages that are kept for reuse.", (uint64_t)e.n_cached);
    put_uint(out, "kv_page_bytes", "gauge", "Bytes of a page.", e.page_bytes);
    put_uint(out, "state_pages", "gauge", "Pages of recurrent state in the pool.", (uint64_t)e.n_state_pages);
    put_uint(out, "state_pages_used", "gauge", "Pages of recurrent state of running requests.",
             (uint64_t)e.n_state_used);
    put_uint(out, "state_pages_cached", "gauge", "Pages of recurrent state that are kept for reuse.",
             (uint64_t)e.n_state_cached);
    put_uint(out, "state_page_bytes", "gauge", "Bytes of a page of recurrent state.", e.state_page_bytes);
    put_real(out, "step_seconds", "Seconds of the last step.", e.step_seconds);
}

static void put_memory(ln_str *out, const server *s) {
    ln_memory m = {.size = sizeof m};
    ln_memory_stats(&m);
    put_uint(out, "memory_active_bytes", "gauge", "Resident memory of the process.", m.active_bytes);
    put_uint(out, "memory_peak_bytes", "gauge", "Its maximum.", m.peak_bytes);
    put_uint(out, "memory_weights_bytes", "gauge", "Memory of the weights.", m.weights_bytes);
    put_uint(out, "memory_kv_bytes", "gauge", "Memory of the pools of keys, values and recurrent state.",
             m.kv_bytes);
    put_uint(out, "memory_kv_cached_bytes", "gauge", "The part of the pool that is kept for reuse.",
             m.cache_bytes);
    put_uint(out, "memory_bodies_bytes", "gauge", "Bodies of requests that are held.", s->held);
    put_uint(out, "memory_text_bytes", "gauge", "Bodies, what is made of them, answers and buffers.",
             ln_texts_used());
    put_uint(out, "memory_planned_bytes", "gauge", "Memory that was planned at the start.",
             s->plan.peak_bytes);
}

/* Appends the value of a label: the format has three escapes, fewer than JSON. */
static void put_label(ln_str *out, const char *value) {
    ln_str_adds(out, "\"");
    for (const char *c = value; *c; c++) {
        if (*c == '\n') {
            ln_str_adds(out, "\\n");
            continue;
        }
        if (*c == '"' || *c == '\\') ln_str_adds(out, "\\");
        ln_str_add(out, c, 1);
    }
    ln_str_adds(out, "\"");
}

void handle_metrics(request_context *x) {
    const server *s = x->s;
    const metrics *m = &s->m;
    ln_str out = {0};
    put_head(&out, "build_info", "gauge", "The version of linnet, and the model.");
    ln_str_addf(&out, "linnet_build_info{version=\"%s\",model=", ln_version());
    put_label(&out, s->name);
    ln_str_adds(&out, "} 1\n");
    put_real(&out, "uptime_seconds", "Seconds since the start.", ln_now() - s->started);
    put_real(&out, "load_seconds", "Seconds from the start to the first request that could be answered.",
             s->loaded - s->started);
    put_uint(&out, "connections", "gauge", "Open connections.", (uint64_t)s->n_conns);
    put_uint(&out, "connections_total", "counter", "Connections so far.", m->connections);
    put_statuses(&out, m);
    put_uint(&out, "rejected_total", "counter", "Requests and connections that were refused because of load.",
             m->rejected);
    put_uint(&out, "cancelled_total", "counter", "Requests whose client left before the end of the answer.",
             m->cancelled);
    put_uint(&out, "stalled_total", "counter",
             "Connections that were closed because their reader took nothing.", m->stalled);
    put_uint(&out, "malformed_total", "counter", "Bytes that were no request, or came too slowly.",
             m->malformed);
    put_uint(&out, "log_lines_lost_total", "counter", "Log lines dropped because the reader was too slow.",
             s->n_lost_lines);
    put_engine(&out, s);
    put_memory(&out, s);
    put_histogram(&out, "first_token_seconds", "Seconds from a request to its first token.", &m->first_token);
    put_histogram(&out, "between_tokens_seconds", "Seconds between two tokens of a choice.",
                  &m->between_tokens);
    put_histogram(&out, "queue_seconds", "Seconds that a choice waited for a sequence.", &m->queue);
    put_histogram(&out, "request_seconds", "Seconds from a request to the end of its answer.", &m->total);
    if (out.failed) request_reject(x, 503, "out_of_memory", "out of memory for an answer");
    else request_reply(x, 200, "text/plain; version=0.0.4; charset=utf-8", out.data, out.len, NULL);
    ln_str_free(&out);
}
