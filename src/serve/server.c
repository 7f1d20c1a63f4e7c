/* The server from its start to its end: the event loop, loading, the watch over the engine, draining. */
#include "../base/os.h"
#include "server.h"

#include <linnet_tools.h>

#include <event2/event.h>

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST_WORK = 2048 };
static const double STILL_SECONDS = 30, TICK_MICROSECONDS = 200000, CUT_SECONDS = 2;

/* ---- loading, on a worker ---- */

static void token_of(void *user, int32_t id, bool *special, ln_str *out) {
    char text[256], *more;
    size_t n = 0;
    const ln_tokenizer *tok = user;
    ln_error err;
    *special = false;
    if (ln_token_bytes(tok, id, text, sizeof text, &n, special, &err) != LN_OK) {
        out->failed |= err.code == LN_EMEMORY;
    } else if (n <= sizeof text) {
        ln_str_add(out, text, n);
    } else {
        more = ln_alloc(n);
        if (!more || ln_token_bytes(tok, id, more, n, &n, special, &err) != LN_OK) out->failed = true;
        else ln_str_add(out, more, n);
        ln_free(more);
    }
}

static void text_of(void *user, const int32_t *ids, size_t n_ids, ln_str *out) {
    const ln_tokenizer *tok = user;
    size_t n = 0;
    char *text = NULL;
    ln_error err;
    ln_status st = ln_detokenize(tok, ids, n_ids, true, NULL, 0, &n, &err);
    if (st == LN_OK) text = ln_alloc(n + 1);
    if (text) st = ln_detokenize(tok, ids, n_ids, true, text, n, &n, &err);
    if (text && st == LN_OK) ln_str_add(out, text, n);
    else out->failed |= !text || st == LN_EMEMORY;
    ln_free(text);
}

static void name_model(server *s) {
    const char *slash = strrchr(s->info.path, '/'), *leaf = slash && slash[1] ? slash + 1 : s->info.path;
    const char *name = s->o->name ? s->o->name : leaf;
    memcpy(s->name, name, LN_MIN(strlen(name), sizeof s->name - 1));
}

/* Loads adapter i of the options. Its factor is set after it was loaded with 1, as /lora-adapters does it. */
static ln_status load_lora(server *s, size_t i, ln_error *err) {
    const ln_serve_lora *l = &s->o->loras[i];
    const ln_adapter_part part = {.dir = l->part.dir, .scale = 1};
    ln_adapter *adapter = NULL;
    if (model_list_index(s->models, l->name, strlen(l->name)) < s->models->n_base)
        return ln_fail(err, LN_EUSAGE,
                       "ln_serve_options.loras: the name %s is that of the model; choose another one",
                       l->name);
    LN_TRY(ln_adapter_open(&adapter, s->engine, &part, 1, err));
    ln_status st = l->part.scale == 1 ? LN_OK : ln_adapter_set_scale(adapter, l->part.scale, err);
    if (st == LN_OK) st = model_list_put(s, l->name, adapter, l->part.scale, err);
    if (st != LN_OK) ln_adapter_close(&adapter);
    return st;
}

static ln_status load_loras(server *s, ln_error *err) {
    LN_TRY(model_list_open(s, err));
    for (size_t i = 0; i < s->o->n_loras; i++) LN_TRY(load_lora(s, i, err));
    return LN_OK;
}

/* Keeps the text of the chat template, because no file may be opened later. It stays empty if the files of
 * the model do not lead to it. */
static ln_status read_template(server *s, ln_error *err) {
    ln_chat_template *t = NULL;
    size_t n = 0;
    if (!s->info.has_template) return LN_OK;
    ln_status st = ln_chat_template_open(&t, s->info.path, s->o->engine.chat_template, err);
    if (st == LN_OK) st = ln_chat_template_source(t, NULL, 0, &n, err);
    char *text = st == LN_OK ? ln_alloc(n + 1) : NULL;
    if (st == LN_OK && !text) st = LN_OOM(err, "a chat template");
    if (st == LN_OK) st = ln_chat_template_source(t, text, n, &n, err);
    if (st == LN_OK) ln_str_add(&s->chat_template, text, n);
    ln_free(text);
    ln_chat_template_close(&t);
    if (st != LN_OK && st != LN_EMEMORY) return LN_OK;
    return st == LN_OK && s->chat_template.failed ? LN_OOM(err, "a chat template") : st;
}

static ln_status load_all(server *s, ln_error *err) {
    const ln_serve_options *o = s->o;
    size_t n;
    s->plan.size = sizeof s->plan;
    s->info.size = sizeof s->info;
    ln_options engine = o->engine;
    LN_TRY(serve_size(o->model, &engine, err));
    LN_TRY(ln_plan_memory(o->model, &engine, &s->plan, err));
    LN_TRY(ln_model_open(&s->model, o->model, &engine, err));
    LN_TRY(ln_model_info(s->model, &s->info, err));
    name_model(s);
    LN_TRY(read_template(s, err));
    s->tok = ln_model_tokenizer(s->model);
    if (!s->tok) return ln_fail(err, ln_last_error()->code, "%s", ln_last_error()->message);
    LN_TRY(ln_tokenize(s->tok, "", 0, false, NULL, 0, &n, err)); /* fails where the model has no tokenizer */
    wire_fingerprint(s->fingerprint, s->plan.numerics);
    s->target = (wire_target){.fingerprint = s->fingerprint,
                              .n_vocab = s->info.vocab_size,
                              .has_template = s->info.has_template,
                              .always_reasons = s->info.has_reasoning && !s->info.has_think_switch,
                              .tool_format = s->info.tool_format,
                              .single_tool_call = s->info.single_tool_call,
                              .null_tool_content = s->info.null_tool_content,
                              .text_tool_arguments = s->info.text_tool_arguments,
                              .token = token_of,
                              .text = text_of,
                              .user = (void *)(uintptr_t)s->tok};
    s->target.sampling.size = sizeof s->target.sampling;
    LN_TRY(ln_sampling_default(s->model, &s->target.sampling, err));
    LN_TRY(wire_sampling_default(&s->target.sampling, s->info.path, err));
    /* The rules hold for this thread and those that it starts later, so they are set before the engine starts
     * its own, unless files are still to be read then: by a GPU's driver, or those of adapters. */
    const bool early =
        s->plan.device_available_bytes == 0 && o->n_loras == 0 && o->engine.n_adapter_parts == 0;
    if (early) (void)sandbox_files(&o->lora_dir, o->lora_dir != NULL);
    LN_TRY(ln_engine_open(&s->engine, s->model, &engine, err));
    LN_TRY(load_loras(s, err));
    if (!early) (void)sandbox_files(&o->lora_dir, o->lora_dir != NULL);
    return ln_engine_start(s->engine, err);
}

static server *of_load(work *w) { return (server *)(void *)((char *)w - offsetof(server, load)); }

static void load(work *w) {
    server *s = of_load(w);
    if (load_all(s, &s->error) == LN_OK) s->error.code = LN_OK; /* a call that succeeds may leave a message */
}

static void say(const server *s, ln_str *line) {
    if (!line->failed && line->data) s->o->say(line->data);
    ln_str_free(line);
}

static void say_ready(const server *s) {
    ln_str line = {0};
    char peak[32], kv[32], limit[32];
    const ln_plan *p = &s->plan;
    ln_str_addf(&line,
                "%s: %d sequences of up to %lld positions, %lld of them at once; memory %s, %s of it keys "
                "and values, of %s (%s)",
                s->name, p->n_parallel, (long long)p->n_ctx, (long long)p->n_contexts,
                ln_bytes_text(peak, p->peak_bytes), ln_bytes_text(kv, p->kv_bytes),
                ln_bytes_text(limit, p->available_bytes), p->limit);
    say(s, &line);
    if (!s->loopback && s->n_keys == 0)
        s->o->say("warning: every machine that reaches this address may use the server; "
                  "ln_serve_options.keys "
                  "asks "
                  "for a key");
    for (size_t i = 0; i < s->o->n_origins && s->n_keys == 0; i++)
        if (strcmp(s->o->origins[i], "*") == 0)
            s->o->say("warning: pages of every origin may use the server without a key");
    ln_str_addf(&line, "listening on http://%s", s->address);
    say(s, &line);
}

static void loaded(work *w) {
    server *s = of_load(w);
    if (s->error.code != LN_OK) {
        (void)event_base_loopbreak(s->base);
        return;
    }
    s->loaded = ln_now();
    texts_open(s);
    if (!sandbox_files(NULL, 0)) s->o->say("this kernel has no rules for files (Landlock); none are set");
    if (workers_open(&s->preparing, WORKERS_PREPARING, WORKERS_MOST, &s->completions, MOST_WORK, &s->error) !=
        LN_OK) {
        (void)event_base_loopbreak(s->base);
        return;
    }
    if (!sandbox_enter(s->n_keys > 0, s->plan.device_available_bytes > 0))
        s->o->say("this kernel has no filter of system calls (seccomp); none is set");
    if (s->phase == PHASE_LOADING) s->phase = PHASE_READY;
    say_ready(s);
    notify_send(s->notify_fd, "READY=1");
}

/* ---- events of the loop ---- */

static void read_ready(server *s) {
    choice *top = atomic_exchange_explicit(&s->completions.ready, NULL, memory_order_acquire), *c = NULL;
    for (choice *next; top; top = next) { /* the stack has the newest first */
        next = top->next_ready;
        top->next_ready = c;
        c = top;
    }
    for (choice *next; c; c = next) {
        next = c->next_ready;
        atomic_store(&c->is_ready, false); /* before its events are read: a later one puts it back */
        choice_ready(c);
    }
    request_sweep(s);
}

static void on_finished(evutil_socket_t fd, short what, void *user) {
    server *s = user;
    (void)what;
    ln_os_event_clear(fd);
    for (work *w = completion_queue_take(&s->completions), *next; w; w = next) {
        next = w->next;
        w->done(w);
    }
    read_ready(s);
}

static void on_watch(evutil_socket_t fd, short what, void *user) {
    (void)fd, (void)what;
    conn_watch_all(user);
}

static void cut_all(server *s) {
    ln_engine_stats e = {.size = sizeof e};
    ln_error err;
    if (ln_engine_get_stats(s->engine, &e, &err) != LN_OK) e.step_seconds = 0;
    s->phase = PHASE_ENDING;
    s->drain_until = ln_now() + LN_MAX(CUT_SECONDS, 10 * e.step_seconds);
    for (request_context *x = s->requests, *next; x; x = next) {
        next = x->next;
        generation_cut(x);
    }
    ln_cancel(s->engine, true); /* calls that a worker waits for end with the step that runs */
}

static void on_stop(evutil_socket_t fd, short what, void *user) {
    server *s = user;
    (void)fd, (void)what;
    int n = s->o->take_stops();
    if (n > 0 && s->phase == PHASE_LOADING) _exit(0); /* nothing was promised to anyone yet */
    if (n > 0 && s->phase == PHASE_READY) {
        s->phase = PHASE_DRAINING;
        s->drain_until = ln_now() + (s->o->drain_seconds > 0 ? s->o->drain_seconds : SERVE_DRAIN_SECONDS);
        listener_close(s);
        notify_send(s->notify_fd, "STOPPING=1");
        s->o->say("stopping: what was accepted is answered; a second signal ends it");
        n--;
    }
    if (n > 0 && s->phase == PHASE_DRAINING) cut_all(s);
}

/* Whether the engine stands still although it has requests. */
static void watch_engine(server *s, double now) {
    ln_engine_stats e = {.size = sizeof e};
    ln_error err;
    if (s->phase == PHASE_LOADING || ln_engine_get_stats(s->engine, &e, &err) != LN_OK) return;
    const bool moves = e.n_steps != s->n_steps || e.n_running + e.n_waiting == 0;
    s->n_steps = e.n_steps;
    if (moves) s->still_since = now;
    s->stuck = now - s->still_since > LN_MAX(STILL_SECONDS, 20 * e.step_seconds);
}

/* Whether a worker still holds a request that was cut. Its call ends with the step that runs, which the end
 * of the server waits for anyway; then the client gets its error. */
static bool waits_for_calls(const server *s, double now) {
    bool any = false;
    for (const request_context *x = s->requests; x && !any; x = x->next) any = x->n_pins > 0;
    return any && s->phase == PHASE_ENDING && now < s->drain_until + STILL_SECONDS;
}

static void on_tick(evutil_socket_t fd, short what, void *user) {
    server *s = user;
    const double now = ln_now();
    (void)fd, (void)what;
    conn_tick_all(s, now);
    listener_resume(s);
    if (s->n_queued > 0) fair_pump(s); /* a request whose reader is slow may have ended unread */
    if (s->n_queued + s->n_running == 0) texts_trim(s);
    watch_engine(s, now);
    if (s->phase < PHASE_DRAINING) return;
    const bool busy = s->n_requests > 0 || conn_any_busy(s);
    if (busy && now > s->drain_until && s->phase == PHASE_DRAINING) cut_all(s);
    else if (!busy || (now > s->drain_until && !waits_for_calls(s, now))) (void)event_base_loopbreak(s->base);
}

/* ---- start and end ---- */

static ln_status open_events(server *s, ln_error *err) {
    const struct timeval often = {0, (suseconds_t)TICK_MICROSECONDS};
    s->finished_event = event_new(s->base, s->completions.event[0], EV_READ | EV_PERSIST, on_finished, s);
    s->stop_event = event_new(s->base, s->o->stop_fd, EV_READ | EV_PERSIST, on_stop, s);
    s->tick_event = event_new(s->base, -1, EV_PERSIST, on_tick, s);
    s->watch_event = event_new(s->base, -1, 0, on_watch, s);
    const bool good = s->finished_event && s->stop_event && s->tick_event && s->watch_event &&
                      event_add(s->finished_event, NULL) == 0 && event_add(s->stop_event, NULL) == 0 &&
                      event_add(s->tick_event, &often) == 0;
    return good ? LN_OK : LN_OOM(err, "the event loop");
}

static ln_status open_all(server *s, ln_error *err) {
    s->started = ln_now();
    s->created = (int64_t)time(NULL);
    const time_t created = (time_t)s->created;
    struct tm t = {0};
    (void)gmtime_r(&created, &t);
    (void)snprintf(s->created_at, sizeof s->created_at, "%04d-%02d-%02dT%02d:%02d:%02dZ", t.tm_year + 1900,
                   t.tm_mon + 1, t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec);
    s->n_keys = s->o->n_keys;
    s->keys = ln_zalloc(s->n_keys + 1, sizeof *s->keys);
    if (!s->keys) return LN_OOM(err, "the server");
    auth_open(s);
    texts_count_buffers();
    s->base = event_base_new();
    if (!s->base) return LN_OOM(err, "the event loop");
    LN_TRY(completion_queue_open(&s->completions, err));
    LN_TRY(listener_open(s, err));
    LN_TRY(open_events(s, err));
    LN_TRY(workers_open(&s->calling, WORKERS_CALLING, 1, &s->completions, MOST_WORK, err));
    s->load = (work){.run = load, .done = loaded};
    return workers_submit(&s->calling, &s->load) ? LN_OK : LN_OOM(err, "the server");
}

/* What is left at the end has no client any more: requests that run are closed as they are. */
static void drop_requests(server *s) {
    for (request_context *x = s->requests, *next; x; x = next) {
        next = x->next;
        x->ended = true;
        for (size_t i = 0; i < x->n_choices; i++) ln_request_close(&x->choices[i].request);
        x->n_pins = 0;
        x->n_open = 0;
        for (size_t i = 0; i < x->n_choices; i++) atomic_store(&x->choices[i].is_ready, false);
        request_release(x);
    }
    for (request_context *x = s->garbage; x; x = x->next)
        for (size_t i = 0; i < x->n_choices; i++) atomic_store(&x->choices[i].is_ready, false);
    request_sweep(s);
}

static void close_events(server *s) {
    struct event *all[] = {s->finished_event, s->stop_event, s->tick_event, s->watch_event};
    for (size_t i = 0; i < LN_COUNT(all); i++)
        if (all[i]) event_free(all[i]);
    if (s->base) event_base_free(s->base);
}

static void close_all(server *s) {
    listener_close(s);
    if (s->engine) ln_cancel(s->engine, true);
    workers_close(&s->calling);
    workers_close(&s->preparing);
    conn_close_all(s);
    drop_requests(s);
    close_events(s);
    texts_close(s);
    completion_queue_close(&s->completions);
    if (s->reserve_fd >= 0) (void)close(s->reserve_fd);
    if (s->notify_fd >= 0) (void)close(s->notify_fd);
    model_list_close(s);
    ln_engine_close(&s->engine);
    ln_model_close(&s->model);
    ln_str_free(&s->chat_template);
    ln_free(s->keys);
}

ln_status serve_run(const ln_serve_options *options, ln_error *err) {
    ln_serve_options o = *options;
    if (o.head_seconds <= 0) o.head_seconds = SERVE_HEAD_SECONDS;
    if (o.idle_seconds <= 0) o.idle_seconds = SERVE_IDLE_SECONDS;
    if (o.stall_seconds <= 0) o.stall_seconds = SERVE_STALL_SECONDS;
    if (o.keepalive_seconds <= 0) o.keepalive_seconds = SERVE_KEEPALIVE_SECONDS;
    server *s = ln_zalloc(1, sizeof *s);
    if (!s) return LN_OOM(err, "the server");
    s->o = &o;
    s->listen_fd = s->reserve_fd = s->completions.event[0] = s->completions.event[1] = -1;
    s->notify_fd = notify_open();
    ln_status st = open_all(s, err);
    if (st == LN_OK) (void)event_base_dispatch(s->base);
    if (st == LN_OK && s->error.code != LN_OK) st = ln_fail(err, s->error.code, "%s", s->error.message);
    close_all(s);
    ln_free(s);
    return st;
}
