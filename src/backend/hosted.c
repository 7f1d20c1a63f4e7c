/* A model that a backend has loaded: turns, requests to stop, and results collected from reports.
 *
 * A backend with a function `cancel` cannot ask whether it shall stop; during each of its calls a thread, the
 * watcher, asks for it. */
#include "backend.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <time.h>

bool ln_hosted_stopped(const ln_hosted *l) { return l->stop && atomic_load(l->stop) == l->stop_at; }

static bool sink_stopped(void *user) { return ln_hosted_stopped(user); }

/* ---- the watcher ---- */

typedef struct watcher {
    ln_hosted *l;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool runs, over; /* over: under the lock */
} watcher;

static void *watch(void *arg) {
    enum { LOOK_NS = 10 * 1000 * 1000 };
    watcher *w = arg;
    bool told = false;
    pthread_mutex_lock(&w->lock);
    while (!w->over) {
        struct timespec t;
        (void)clock_gettime(CLOCK_REALTIME, &t);
        t.tv_nsec += LOOK_NS;
        if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
        (void)pthread_cond_timedwait(&w->changed, &w->lock, &t);
        if (w->over || told || !ln_hosted_stopped(w->l)) continue;
        told = true;
        pthread_mutex_unlock(&w->lock);
        w->l->backend->cancel(w->l->model);
        pthread_mutex_lock(&w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static ln_status watch_begin(watcher *w, ln_hosted *l, ln_error *err) {
    sigset_t blocked, was;
    *w = (watcher){.l = l};
    if (!l->backend->cancel) return LN_OK;
    (void)pthread_mutex_init(&w->lock, NULL);
    (void)pthread_cond_init(&w->changed, NULL);
    sigfillset(&blocked);
    (void)pthread_sigmask(SIG_SETMASK, &blocked, &was);
    w->runs = pthread_create(&w->thread, NULL, watch, w) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &was, NULL);
    if (w->runs) return LN_OK;
    (void)pthread_cond_destroy(&w->changed);
    (void)pthread_mutex_destroy(&w->lock);
    return ln_fail(err, LN_EMEMORY, "a thread that watches for ln_backend_cancel cannot be started");
}

static void watch_end(watcher *w) {
    if (!w->runs) return;
    pthread_mutex_lock(&w->lock);
    w->over = true;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
    (void)pthread_join(w->thread, NULL);
    (void)pthread_cond_destroy(&w->changed);
    (void)pthread_mutex_destroy(&w->lock);
}

/* ---- turns ---- */

static ln_status call_begin(ln_hosted *l, watcher *w, ln_error *err) {
    if (!l->backend->concurrent && pthread_mutex_lock(&l->turn) == EDEADLK)
        return ln_fail(err, LN_EUSAGE, "a callback must not call the model that calls it (backend %s)",
                       l->backend->name);
    const ln_status st = watch_begin(w, l, err);
    if (st != LN_OK && !l->backend->concurrent) pthread_mutex_unlock(&l->turn);
    return st;
}

static void call_end(ln_hosted *l, watcher *w, const ln_metrics *m) {
    watch_end(w);
    if (!l->backend->concurrent) pthread_mutex_unlock(&l->turn);
    if (!m) return;
    pthread_mutex_lock(&l->lock);
    l->last = *m;
    pthread_mutex_unlock(&l->lock);
}

/* ---- load, free ---- */

static ln_status find(const ln_backend **out, const char *name, const ln_backend_options *opt,
                      ln_error *err) {
    char shown[80];
    if (!name) return ln_registry_default(out, opt, err);
    *out = ln_registry_find(name);
    if (*out) return LN_OK;
    (void)ln_excerpt(shown, name, strnlen(name, 100));
    return ln_fail(err, LN_EUSAGE,
                   "no backend '%s'; there are native, mlx_lm and those that a program registers", shown);
}

ln_status ln_hosted_open(ln_hosted **out, const char *backend, const char *model,
                         const ln_backend_options *opt, ln_error *err) {
    const ln_backend *b;
    pthread_mutexattr_t attr;
    LN_TRY(find(&b, backend, opt, err));
    ln_hosted *l = ln_zalloc(1, sizeof *l);
    if (!l) return LN_OOM(err, "a model");
    l->backend = b;
    l->last.cache_miss_reason = "";
    const ln_status st = b->load(&l->model, b->user, model, opt, err);
    if (st != LN_OK) {
        ln_free(l);
        return st;
    }
    (void)pthread_mutexattr_init(&attr);
    (void)pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ERRORCHECK);
    (void)pthread_mutex_init(&l->turn, &attr);
    (void)pthread_mutexattr_destroy(&attr);
    (void)pthread_mutex_init(&l->lock, NULL);
    *out = l;
    return LN_OK;
}

void ln_hosted_free(ln_hosted **loaded) {
    ln_hosted *l = *loaded;
    *loaded = NULL;
    if (!l) return;
    l->backend->close(l->model);
    (void)pthread_mutex_destroy(&l->turn);
    (void)pthread_mutex_destroy(&l->lock);
    ln_free(l);
}

static ln_status lacks(const ln_hosted *l, const char *what, ln_error *err) {
    return ln_fail(err, LN_EUNSUPPORTED, "the backend %s has no %s", l->backend->name, what);
}

ln_status ln_hosted_info(ln_hosted *l, ln_info *out, ln_error *err) {
    *out = (ln_info){.size = sizeof *out};
    if (!l->backend->info) return lacks(l, "facts of a model (info)", err);
    const ln_status st = l->backend->info(l->model, out, err);
    out->size = sizeof *out; /* a backend may have assigned a whole struct of its own */
    return st;
}

ln_status ln_hosted_defaults(ln_hosted *l, ln_sampling *out, ln_error *err) {
    *out = (ln_sampling){
        .size = sizeof(ln_sampling), .top_p = 1, .repeat_penalty = 1, .repeat_last = 64, .n_max = -1};
    if (!l->backend->defaults) return LN_OK;
    const ln_status st = l->backend->defaults(l->model, out, err);
    out->size = sizeof *out;
    return st;
}

/* ---- a result from reports ---- */

typedef struct collector {
    ln_hosted *l;
    ln_result *out;
    size_t cap_prompt, cap_ids;
    ln_str text, reasoning;
    ln_text_fn *on_text, *on_reasoning;
    void *user;
    double called; /* seconds in callbacks, which metrics leave out */
} collector;

static ln_status add_ids(int32_t **to, size_t *n, size_t *cap, const int32_t *ids, size_t n_ids,
                         ln_error *err) {
    void *p = *to;
    LN_TRY(ln_grow(&p, cap, *n + n_ids, sizeof **to, err));
    *to = p;
    if (n_ids > 0) memcpy(*to + *n, ids, n_ids * sizeof *ids);
    *n += n_ids;
    return LN_OK;
}

static ln_status on_prompt(void *user, const int32_t *ids, size_t n, ln_error *err) {
    collector *c = user;
    return add_ids(&c->out->prompt_ids, &c->out->n_prompt_ids, &c->cap_prompt, ids, n, err);
}

static ln_status on_token(void *user, int32_t id, ln_error *err) {
    collector *c = user;
    return add_ids(&c->out->ids, &c->out->n_ids, &c->cap_ids, &id, 1, err);
}

static ln_status on_text(void *user, const char *text, size_t bytes, bool reasoning, ln_error *err) {
    collector *c = user;
    ln_str *to = reasoning ? &c->reasoning : &c->text;
    ln_text_fn *fn = reasoning ? c->on_reasoning : c->on_text;
    ln_str_add(to, text, bytes);
    if (to->failed) return LN_OOM(err, "the answer");
    if (!fn || bytes == 0) return LN_OK;
    const double begin = ln_now();
    const ln_status st = LN_CALLBACK(fn(c->user, text, bytes, err));
    c->called += ln_now() - begin;
    return st;
}

static bool collector_stopped(void *user) { return ln_hosted_stopped(((collector *)user)->l); }

static ln_backend_sink sink_of(collector *c) {
    return (ln_backend_sink){.size = sizeof(ln_backend_sink),
                             .user = c,
                             .on_prompt = on_prompt,
                             .on_token = on_token,
                             .on_text = on_text,
                             .stopped = collector_stopped};
}

static ln_backend_end end_of(void) {
    return (ln_backend_end){
        .size = sizeof(ln_backend_end), .stop_id = -1, .stop_text = -1, .metrics.cache_miss_reason = ""};
}

/* A text that has its NUL byte, empty ones too. */
static bool take_text(ln_str *s, char **text, size_t *bytes) {
    *bytes = s->len;
    *text = s->data ? s->data : ln_strndup("", 0);
    *s = (ln_str){0};
    return *text != NULL;
}

/* Moves what was collected into the result. */
static ln_status collect(collector *c, const ln_backend_end *end, ln_status st, ln_error *err) {
    ln_result *r = c->out;
    bool whole = take_text(&c->text, &r->text, &r->text_bytes);
    if (!take_text(&c->reasoning, &r->reasoning, &r->reasoning_bytes)) whole = false;
    r->finish = st == LN_OK ? end->finish : LN_FINISH_CANCELLED;
    r->seed = end->seed;
    r->stop_id = end->stop_id;
    r->stop_text = end->stop_text;
    r->metrics = end->metrics;
    if (!r->metrics.cache_miss_reason) r->metrics.cache_miss_reason = "";
    return st == LN_OK && !whole ? LN_OOM(err, "the answer") : st;
}

static ln_status run_one(ln_hosted *l, const ln_prompt *p, const ln_sampling *how, const ln_backend_sink *s,
                         ln_backend_end *end, ln_error *err) {
    const ln_backend *b = l->backend;
    const bool talk = p->messages || p->request;
    if (ln_hosted_stopped(l)) {
        end->finish = LN_FINISH_CANCELLED;
        return LN_OK;
    }
    if (talk && !b->chat) return lacks(l, "conversations (chat)", err);
    return (talk ? b->chat : b->generate)(l->model, p, how, s, end, err);
}

ln_status ln_hosted_generate(ln_hosted *l, bool chat, const ln_prompt *prompt, const ln_sampling *how,
                             ln_text_fn *fn, void *user, ln_result *out, ln_error *err) {
    ln_sampling usual;
    watcher w;
    collector c = {.l = l, .out = out, .on_text = fn, .user = user};
    const ln_backend_sink sink = sink_of(&c);
    ln_backend_end end = end_of();
    if (chat != (prompt->messages || prompt->request))
        return ln_fail(err, LN_EUSAGE,
                       chat ? "ln_backend_chat takes a prompt with messages or request"
                            : "ln_backend_generate takes a prompt with text or ids; "
                              "ln_backend_chat takes conversations");
    if (!how) LN_TRY(ln_hosted_defaults(l, &usual, err));
    if (!how) how = &usual;
    c.on_reasoning = how->on_reasoning;
    LN_TRY(call_begin(l, &w, err));
    ln_status st = run_one(l, prompt, how, &sink, &end, err);
    call_end(l, &w, &end.metrics);
    return collect(&c, &end, st, err);
}

/* ---- many prompts ---- */

typedef struct crowd {
    collector *c;
    ln_backend_sink *sinks;
    ln_backend_end *ends;
} crowd;

static void crowd_free(crowd *k) {
    ln_free(k->c);
    ln_free(k->sinks);
    ln_free(k->ends);
}

static ln_status crowd_make(crowd *k, ln_hosted *l, size_t n, ln_result *results, ln_error *err) {
    k->c = ln_zalloc(n + 1, sizeof *k->c);
    k->sinks = ln_zalloc(n + 1, sizeof *k->sinks);
    k->ends = ln_zalloc(n + 1, sizeof *k->ends);
    if (!k->c || !k->sinks || !k->ends) return LN_OOM(err, "prompts");
    for (size_t i = 0; i < n; i++) {
        k->c[i] = (collector){.l = l, .out = &results[i]};
        k->sinks[i] = sink_of(&k->c[i]);
        k->ends[i] = end_of();
        k->ends[i].finish = LN_FINISH_CANCELLED; /* if the call ends before this prompt */
    }
    return LN_OK;
}

/* Whether an error concerns one prompt alone. */
static bool is_of_prompt(ln_status st) {
    return st == LN_EUSAGE || st == LN_EINVALID || st == LN_EUNSUPPORTED || st == LN_ENUMERIC;
}

static ln_status one_by_one(ln_hosted *l, const ln_prompt *prompts, size_t n, const ln_sampling *how,
                            crowd *k, ln_error *errors, ln_error *err) {
    for (size_t i = 0; i < n; i++) {
        k->ends[i].finish = LN_FINISH_STOP;
        const ln_status st = run_one(l, &prompts[i], how, &k->sinks[i], &k->ends[i], &errors[i]);
        errors[i].code = st;
        if (st != LN_OK) k->ends[i].finish = LN_FINISH_CANCELLED;
        if (st != LN_OK && !is_of_prompt(st)) return ln_fail(err, st, "%s", errors[i].message);
    }
    return LN_OK;
}

static void add_metrics(ln_metrics *sum, const ln_metrics *m) {
    sum->prompt_tokens += m->prompt_tokens;
    sum->generated_tokens += m->generated_tokens;
    sum->cached_tokens += m->cached_tokens;
    sum->reasoning_tokens += m->reasoning_tokens;
    sum->active_bytes = LN_MAX(sum->active_bytes, m->active_bytes);
    sum->peak_bytes = LN_MAX(sum->peak_bytes, m->peak_bytes);
}

ln_status ln_hosted_batch(ln_hosted *l, const ln_prompt *prompts, size_t n, const ln_sampling *how,
                          ln_result *results, ln_error *errors, ln_error *err) {
    crowd k = {0};
    ln_sampling usual;
    watcher w;
    const double begin = ln_now();
    ln_metrics sum = {.cache_miss_reason = ""};
    ln_status st;
    for (size_t i = 0; i < n; i++) results[i] = (ln_result){.size = sizeof *results};
    memset(errors, 0, n * sizeof *errors);
    if (!how) LN_TRY(ln_hosted_defaults(l, &usual, err));
    if (!how) how = &usual;
    LN_GO(crowd_make(&k, l, n, results, err));
    LN_GO(call_begin(l, &w, err));
    if (l->backend->batch && !ln_hosted_stopped(l))
        st = l->backend->batch(l->model, prompts, n, how, k.sinks, k.ends, errors, err);
    else st = one_by_one(l, prompts, n, how, &k, errors, err);
    for (size_t i = 0; i < n; i++) {
        const ln_status each = collect(&k.c[i], &k.ends[i], errors[i].code, &errors[i]);
        if (each == LN_EMEMORY && st == LN_OK) st = LN_OOM(err, "answers");
        add_metrics(&sum, &results[i].metrics);
    }
    sum.total_seconds = sum.decode_seconds = ln_now() - begin;
    if (sum.total_seconds > 0) sum.decode_tok_s = (double)sum.generated_tokens / sum.total_seconds;
    call_end(l, &w, &sum);
out:
    crowd_free(&k);
    return st;
}

/* ---- classifying, inspecting ---- */

static ln_backend_sink stop_only(ln_hosted *l) {
    return (ln_backend_sink){.size = sizeof(ln_backend_sink), .user = l, .stopped = sink_stopped};
}

static ln_status is_stopped(const ln_hosted *l, ln_error *err) {
    return ln_hosted_stopped(l) ? ln_fail(err, LN_ECANCELLED, "stopped by ln_backend_cancel") : LN_OK;
}

ln_status ln_hosted_classify(ln_hosted *l, const ln_prompt *prompts, size_t n, const ln_classify_options *opt,
                             ln_class_fn *fn, void *user, ln_metrics *metrics, ln_error *err) {
    watcher w;
    ln_metrics m = {.cache_miss_reason = ""};
    const ln_backend_sink sink = stop_only(l);
    if (!l->backend->classify) return lacks(l, "classification (classify)", err);
    LN_TRY(is_stopped(l, err));
    LN_TRY(call_begin(l, &w, err));
    const ln_status st = l->backend->classify(l->model, prompts, n, opt, fn, user, &sink, &m, err);
    call_end(l, &w, &m);
    if (metrics) *metrics = m;
    return st;
}

ln_status ln_hosted_inspect(ln_hosted *l, const int32_t *ids, size_t n_ids, ln_keys_fn *fn, void *user,
                            ln_error *err) {
    watcher w;
    const ln_backend_sink sink = stop_only(l);
    if (!l->backend->inspect) return lacks(l, "keys of layers (inspect)", err);
    LN_TRY(is_stopped(l, err));
    LN_TRY(call_begin(l, &w, err));
    const ln_status st = l->backend->inspect(l->model, ids, n_ids, fn, user, &sink, err);
    call_end(l, &w, NULL);
    return st;
}
