/* The public API of requests: checks arguments, resolves handles to objects, forwards the call. */
#include "../engine/generate.h"
#include "../engine/scheduler.h"
#include "check.h"
#include "../args/handle.h"

#include <string.h>

static ln_status done(const void *handle, ln_status st) {
    ln_handle_done(handle);
    return st;
}

static ln_status use_request(const ln_request *request, ln_req **out, ln_error *err) {
    void *p;
    LN_TRY(ln_handle_use(LN_HANDLE_REQUEST, request, &p, err));
    *out = p;
    return LN_OK;
}

static ln_status check_options(const ln_request_options *o, ln_error *err) {
    if (o->n_logprobs < -1 || o->n_logprobs > LN_TOP_MOST)
        return ln_fail(err, LN_EUSAGE, "ln_request_options.n_logprobs is %d, expected -1 (none) to %d",
                       o->n_logprobs, LN_TOP_MOST);
    if (o->prompt_logprobs && o->n_logprobs < 0)
        return ln_fail(err, LN_EUSAGE, "ln_request_options.prompt_logprobs needs n_logprobs of 0 or more");
    return LN_OK;
}

static ln_status open_request(ln_req **out, ln_eng *e, const ln_prompt *prompt, const ln_request_options *o,
                              ln_error *err) {
    ln_sampling how = {.size = sizeof how};
    ln_prompt p;
    LN_TRY(ln_api_prompt(prompt, &p, err));
    ln_package_sampling(e->model, &how);
    if (o->sampling) LN_TRY(ln_api_sampling(o->sampling, e->model->spec.V, &how, err));
    const ln_req_options opt = {.how = &how,
                                .logprobs = o->n_logprobs >= 0,
                                .n_top = LN_MAX(o->n_logprobs, 0),
                                .prompt_logprobs = o->prompt_logprobs,
                                .no_cache = o->no_cache,
                                .defer = o->defer,
                                .on_ready = o->on_ready,
                                .user = o->user};
    const void *adapter;
    LN_TRY(ln_api_use_adapter(e, &p, &adapter, err));
    const ln_status st = ln_eng_request(out, e, &p, &opt, err);
    if (adapter) ln_handle_done(adapter); /* the request is a user of its slot now */
    return st;
}

static void free_request(void *object) {
    ln_req *own = object;
    ln_req_free(&own);
}

ln_status ln_request_open(ln_request **out, ln_engine *engine, const ln_prompt *prompt,
                          const ln_request_options *opt, ln_error *err) {
    ln_eng *e;
    ln_req *r;
    void *handle = NULL;
    ln_request_options o = ln_request_options_default();
    ARG(out && prompt, "out and prompt must not be NULL");
    *out = NULL;
    if (opt) LN_TRY(ln_api_copy_sized(&o, sizeof o, opt, "ln_request_options", err));
    LN_TRY(check_options(&o, err));
    LN_TRY(ln_api_engine(engine, &e, err));
    ln_status st = open_request(&r, e, prompt, &o, err);
    if (st != LN_OK) return done(engine, st);
    st = ln_handle_new(LN_HANDLE_REQUEST,
                       &(ln_handle_object){.object = r, .free = free_request, .base = engine}, &handle, err);
    if (st != LN_OK) {
        ln_req_free(&r);
        return done(engine, st);
    }
    ln_req_watch(r, ln_handle_stop_word(handle), (uintptr_t)handle);
    *out = handle;
    return LN_OK;
}

ln_status ln_request_start(ln_request *request, ln_error *err) {
    ln_req *r;
    ENTER;
    err = ln_api_error(err);
    LN_TRY(use_request(request, &r, err));
    return done(request, ln_req_start(r, err));
}

ln_status ln_request_next(ln_request *request, double seconds, ln_event *out, ln_error *err) {
    ln_req *r;
    ln_event all;
    ARG(out && seconds == seconds, "out must not be NULL, seconds not NaN");
    LN_TRY(ln_api_check_size(out, sizeof out->size + sizeof out->kind, "ln_event", err));
    LN_TRY(use_request(request, &r, err));
    const ln_status st = ln_req_next(r, seconds, &all, err);
    if (st == LN_OK) ln_api_give_sized(out, sizeof all, &all);
    return done(request, st);
}

void ln_request_cancel(ln_request *request) {
    if (ln_handle_is(LN_HANDLE_REQUEST, request)) ln_handle_stop(request, true);
}

ln_status ln_request_result(ln_request *request, ln_result *out, ln_error *err) {
    ln_req *r;
    ln_result all = {.size = sizeof all};
    ARG(out, "out must not be NULL");
    LN_TRY(ln_api_open_result(out, err));
    LN_TRY(use_request(request, &r, err));
    const ln_status st = ln_req_result(r, &all, err);
    ln_api_give_result(out, &all);
    return done(request, st);
}

void ln_request_close(ln_request **request) {
    ln_req *r;
    ENTER;
    if (!request) return;
    if (*request && use_request(*request, &r, NULL) == LN_OK) {
        ln_req_mute(r); /* a call on another thread may still use the request */
        ln_handle_done(*request);
    }
    ln_handle_close(LN_HANDLE_REQUEST, *request);
    *request = NULL;
}

ln_status ln_engine_step(ln_engine *engine, size_t *n_active, ln_error *err) {
    ln_eng *e;
    ENTER;
    err = ln_api_error(err);
    LN_TRY(ln_api_engine(engine, &e, err));
    return done(engine, ln_driver_step(e->sched, n_active, err));
}

ln_status ln_engine_start(ln_engine *engine, ln_error *err) {
    ln_eng *e;
    ENTER;
    err = ln_api_error(err);
    LN_TRY(ln_api_engine(engine, &e, err));
    return done(engine, ln_driver_start(e->sched, err));
}

void ln_engine_stop(ln_engine *engine) {
    ln_eng *e;
    ENTER;
    if (ln_api_engine(engine, &e, NULL) != LN_OK) return;
    ln_driver_stop(e->sched);
    ln_handle_done(engine);
}

ln_status ln_engine_get_stats(const ln_engine *engine, ln_engine_stats *out, ln_error *err) {
    ln_eng *e;
    ln_engine_stats all;
    ARG(out, "out must not be NULL");
    LN_TRY(ln_api_check_size(out, sizeof out->size, "ln_engine_stats", err));
    LN_TRY(ln_api_engine(engine, &e, err));
    ln_sched_stats(e->sched, &all);
    ln_api_give_sized(out, sizeof all, &all);
    return done(engine, LN_OK);
}
