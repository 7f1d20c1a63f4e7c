/* The backend native: the engine of this library, through its public functions. */
#include "backend.h"

#include <string.h>

typedef struct native {
    ln_model *model;
    ln_engine *engine;
    int n_parallel;
} native;

static const double SLICE = 0.02; /* seconds between two looks at the request to stop */

static void close_model(void *model) {
    native *m = model;
    ln_engine_close(&m->engine);
    ln_model_close(&m->model);
    ln_free(m);
}

static ln_status load(void **model, void *user, const char *path, const ln_backend_options *opt,
                      ln_error *err) {
    native *m = ln_zalloc(1, sizeof *m);
    ln_status st;
    (void)user;
    if (!m) return LN_OOM(err, "a model");
    ln_options o = opt->options ? *opt->options : ln_options_default();
    const ln_adapter_part part = {opt->adapter, opt->adapter_scale};
    if (opt->adapter && o.n_adapter_parts > 0)
        LN_GO(ln_fail(err, LN_EUSAGE,
                      "ln_backend_options.adapter and ln_options.adapter are both set; leave one of them "
                      "out"));
    if (opt->adapter) o.adapter = &part, o.n_adapter_parts = 1;
    m->n_parallel = o.n_parallel > 0 ? o.n_parallel : 1;
    LN_GO(ln_model_open(&m->model, path, &o, err));
    LN_GO(ln_engine_open(&m->engine, m->model, &o, err));
out:
    if (st != LN_OK) close_model(m);
    else *model = m;
    return st;
}

/* A request to stop that the engine has from an earlier call ends with the caller's own. */
static void renew(const native *m, const ln_backend_sink *sink) {
    ln_cancel(m->engine, sink->stopped(sink->user));
}

/* ---- generating ---- */

/* Forwards the result's ids and end; its texts were forwarded as events. */
static ln_status report(const ln_result *r, const ln_backend_sink *sink, ln_backend_end *end, ln_error *err) {
    end->finish = r->finish;
    end->seed = r->seed;
    end->stop_id = r->stop_id;
    end->stop_text = r->stop_text;
    end->metrics = r->metrics;
    LN_TRY(sink->on_prompt(sink->user, r->prompt_ids, r->n_prompt_ids, err));
    for (size_t i = 0; i < r->n_ids; i++) LN_TRY(sink->on_token(sink->user, r->ids[i], err));
    return LN_OK;
}

static ln_status finish(ln_request *request, const ln_backend_sink *sink, ln_backend_end *end,
                        ln_error *err) {
    ln_result r = {.size = sizeof r};
    const ln_status st = ln_request_result(request, &r, err);
    ln_error later;
    const ln_status said = report(&r, sink, end, st == LN_OK ? err : &later);
    ln_result_free(&r);
    return st == LN_OK ? said : st;
}

/* Forwards one event. *said: what a callback returned first; nothing is forwarded after that. */
static void hand_on(const ln_event *ev, const ln_backend_sink *sink, ln_status *said, ln_error *why) {
    const bool text = ev->kind == LN_EVENT_TEXT || ev->kind == LN_EVENT_REASONING;
    if (!text || *said != LN_OK) return;
    *said = sink->on_text(sink->user, ev->text, ev->bytes, ev->kind == LN_EVENT_REASONING, why);
}

/* What follows when a request has ended: the error of a callback comes first. */
static ln_status conclude(ln_request *r, const ln_backend_sink *sink, ln_backend_end *end, ln_status said,
                          const ln_error *why, ln_error *err) {
    const ln_status st = finish(r, sink, end, err);
    if (st != LN_OK) return st;
    if (said != LN_OK) end->finish = LN_FINISH_CANCELLED;
    return said == LN_OK || said == LN_ECANCELLED ? LN_OK : ln_fail(err, said, "%s", why->message);
}

static ln_status generate(void *model, const ln_prompt *prompt, const ln_sampling *how,
                          const ln_backend_sink *sink, ln_backend_end *end, ln_error *err) {
    native *m = model;
    ln_request *r = NULL;
    ln_request_options o = ln_request_options_default();
    ln_event ev = {.size = sizeof ev};
    ln_status said = LN_OK, st;
    ln_error why = {0};
    o.sampling = how;
    renew(m, sink);
    LN_TRY(ln_request_open(&r, m->engine, prompt, &o, err));
    do {
        LN_GO(ln_request_next(r, SLICE, &ev, err));
        hand_on(&ev, sink, &said, &why);
        if (said != LN_OK || sink->stopped(sink->user)) ln_request_cancel(r);
    } while (ev.kind != LN_EVENT_FINISH);
    st = conclude(r, sink, end, said, &why, err);
out:
    ln_request_close(&r);
    return st;
}

/* ---- many prompts ---- */

/* Whether an error concerns one prompt alone. */
static bool is_of_prompt(ln_status st) {
    return st == LN_EUSAGE || st == LN_EINVALID || st == LN_EUNSUPPORTED || st == LN_ENUMERIC;
}

typedef struct crowd {
    native *m;
    const ln_prompt *prompts;
    const ln_backend_sink *sinks;
    ln_backend_end *ends;
    ln_error *errors;
    ln_request **open; /* [n] */
    ln_request_options o;
} crowd;

static ln_status open_one(crowd *c, size_t i, ln_error *err) {
    const ln_status st = ln_request_open(&c->open[i], c->m->engine, &c->prompts[i], &c->o, &c->errors[i]);
    if (st == LN_OK || is_of_prompt(st)) return LN_OK;
    return ln_fail(err, st, "%s", c->errors[i].message);
}

/* Runs the engine until request i has ended. */
static ln_status finish_one(crowd *c, size_t i, size_t n_open, ln_error *err) {
    const ln_backend_sink *sink = &c->sinks[i];
    ln_event ev = {.size = sizeof ev};
    ln_status said = LN_OK;
    ln_error why = {0};
    if (!c->open[i]) return LN_OK;
    do {
        LN_TRY(ln_request_next(c->open[i], SLICE, &ev, err));
        hand_on(&ev, sink, &said, &why);
        if (said != LN_OK) ln_request_cancel(c->open[i]);
        for (size_t k = i; k < n_open && sink->stopped(sink->user); k++) ln_request_cancel(c->open[k]);
    } while (ev.kind != LN_EVENT_FINISH);
    c->errors[i].code = conclude(c->open[i], sink, &c->ends[i], said, &why, &c->errors[i]);
    ln_request_close(&c->open[i]);
    if (c->errors[i].code == LN_OK || is_of_prompt(c->errors[i].code)) return LN_OK;
    return ln_fail(err, c->errors[i].code, "%s", c->errors[i].message);
}

static ln_status batch(void *model, const ln_prompt *prompts, size_t n, const ln_sampling *how,
                       const ln_backend_sink *sinks, ln_backend_end *ends, ln_error *errors, ln_error *err) {
    native *m = model;
    const size_t ahead = 2 * (size_t)m->n_parallel;
    crowd c = {m, prompts, sinks, ends, errors, NULL, ln_request_options_default()};
    ln_status st = LN_OK;
    c.o.sampling = how;
    c.open = ln_zalloc(n + 1, sizeof *c.open);
    if (!c.open) return LN_OOM(err, "requests");
    if (n > 0) renew(m, &sinks[0]);
    for (size_t i = 0, next = 0; i < n; i++) {
        for (; next < n && next < i + ahead; next++) {
            if (sinks[i].stopped(sinks[i].user)) break;
            LN_GO(open_one(&c, next, err));
        }
        LN_GO(finish_one(&c, i, next, err));
    }
out:
    for (size_t i = 0; i < n; i++) ln_request_close(&c.open[i]);
    ln_free(c.open);
    return st;
}

/* ---- classifying, inspecting, facts ---- */

static ln_status classify(void *model, const ln_prompt *prompts, size_t n, const ln_classify_options *opt,
                          ln_class_fn *fn, void *user, const ln_backend_sink *sink, ln_metrics *metrics,
                          ln_error *err) {
    const native *m = model;
    renew(m, sink);
    return ln_classify(m->engine, prompts, n, opt, fn, user, metrics, err);
}

static ln_status inspect(void *model, const int32_t *ids, size_t n_ids, ln_keys_fn *fn, void *user,
                         const ln_backend_sink *sink, ln_error *err) {
    const native *m = model;
    renew(m, sink);
    return ln_inspect_keys(m->engine, ids, n_ids, fn, user, err);
}

static ln_status info(void *model, ln_info *out, ln_error *err) {
    return ln_model_info(((const native *)model)->model, out, err);
}

static ln_status defaults(void *model, ln_sampling *out, ln_error *err) {
    return ln_sampling_default(((const native *)model)->model, out, err);
}

/* Ends classify and inspect, which cannot ask. */
static void cancel(void *model) { ln_cancel(((const native *)model)->engine, true); }

const ln_backend ln_native_backend = {.size = sizeof(ln_backend),
                                      .name = "native",
                                      .what = "the engine of this library",
                                      .concurrent = true,
                                      .load = load,
                                      .close = close_model,
                                      .generate = generate,
                                      .chat = generate,
                                      .classify = classify,
                                      .inspect = inspect,
                                      .batch = batch,
                                      .info = info,
                                      .defaults = defaults,
                                      .cancel = cancel};
