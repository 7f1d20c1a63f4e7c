/* The public API of backends: checks arguments, resolves handles to objects, forwards the call. */
#include "../args/args.h"
#include "../args/handle.h"
#include "../base/file.h"
#include "../base/json.h"
#include "../base/sha256.h"
#include "../batch/batch.h"
#include "backend.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static ln_status done(const void *handle, ln_status st) {
    ln_handle_done(handle);
    return st;
}

static ln_status use_hosted(const ln_backend_model *model, ln_hosted **out, ln_error *err) {
    void *p;
    LN_TRY(ln_handle_use(LN_HANDLE_BACKEND, model, &p, err));
    *out = p;
    return LN_OK;
}

/* ---- the registry ---- */

/* `options`: a buffer for a copy of opt->options. */
static ln_status copy_options(ln_backend_options *to, ln_options *options, const ln_backend_options *opt,
                              ln_error *err) {
    *to = ln_backend_options_default();
    if (opt) LN_TRY(ln_api_copy_sized(to, sizeof *to, opt, "ln_backend_options", err));
    if (!isfinite(to->adapter_scale) || !(to->load_seconds >= 0) || !(to->reply_seconds >= 0) ||
        to->load_seconds > 1e6 || to->reply_seconds > 1e6)
        return ln_fail(err, LN_EUSAGE,
                       "ln_backend_options: adapter_scale must be finite, load_seconds and reply_seconds "
                       "from "
                       "0 to 1e6");
    if (!to->options) return LN_OK;
    LN_TRY(ln_api_options(to->options, options, err));
    to->options = options;
    return LN_OK;
}

/* A table of an older header is shorter: the functions that it lacks are NULL. */
static ln_status copy_table(ln_backend *to, const ln_backend *b, ln_error *err) {
    const size_t least = offsetof(ln_backend, generate) + sizeof b->generate;
    if (b->size < least || b->size > 1 << 16)
        return ln_fail(err, LN_EUSAGE, "ln_backend.size is %u; set it to sizeof(ln_backend)", b->size);
    for (size_t i = sizeof *to; i < b->size; i++)
        if (((const char *)b)[i])
            return ln_fail(err, LN_EUSAGE,
                           "ln_backend has %u bytes, this library knows %zu, and a field beyond them is set; "
                           "use the library that the header belongs to",
                           b->size, sizeof *to);
    memset(to, 0, sizeof *to);
    memcpy(to, b, LN_MIN(sizeof *to, (size_t)b->size));
    to->size = sizeof *to;
    return LN_OK;
}

ln_status ln_backend_register(const ln_backend *backend, ln_error *err) {
    ln_backend b;
    ARG(backend, "backend must not be NULL");
    LN_TRY(copy_table(&b, backend, err));
    return ln_registry_add(&b, err);
}

const ln_backend *ln_backend_get(const char *name) { return ln_registry_find(name); }

ln_status ln_backend_default(const ln_backend **out, const ln_backend_options *opt, ln_error *err) {
    ln_backend_options o;
    ln_options options;
    ARG(out, "out must not be NULL");
    LN_TRY(copy_options(&o, &options, opt, err));
    return ln_registry_default(out, &o, err);
}

ln_status ln_backend_list(const ln_backend_options *opt, ln_backend_fn *fn, void *user, ln_error *err) {
    ln_backend_options o;
    ln_options options;
    ARG(fn, "fn must not be NULL");
    LN_TRY(copy_options(&o, &options, opt, err));
    return ln_registry_each(&o, fn, user, err);
}

/* ---- models ---- */

static void free_hosted(void *object) {
    ln_hosted *own = object;
    ln_hosted_free(&own);
}

ln_status ln_backend_load(ln_backend_model **out, const char *backend, const char *model,
                          const ln_backend_options *opt, ln_error *err) {
    ln_backend_options o;
    ln_options options;
    ln_hosted *l;
    void *handle = NULL;
    ARG(out && model, "out and model must not be NULL");
    *out = NULL;
    LN_TRY(copy_options(&o, &options, opt, err));
    LN_TRY(ln_hosted_open(&l, backend, model, &o, err));
    const ln_status st =
        ln_handle_new(LN_HANDLE_BACKEND, &(ln_handle_object){.object = l, .free = free_hosted}, &handle, err);
    if (st != LN_OK) {
        ln_hosted_free(&l);
        return st;
    }
    l->stop = ln_handle_stop_word(handle);
    l->stop_at = (uintptr_t)handle;
    *out = handle;
    return LN_OK;
}

void ln_backend_close(ln_backend_model **model) {
    ENTER;
    if (!model) return;
    ln_handle_close(LN_HANDLE_BACKEND, *model);
    *model = NULL;
}

void ln_backend_cancel(ln_backend_model *model, bool stop) {
    if (ln_handle_is(LN_HANDLE_BACKEND, model)) ln_handle_stop(model, stop);
}

/* The size of the vocabulary; without facts of the model, that of any. */
static int64_t vocabulary(ln_hosted *l) {
    ln_info info;
    return ln_hosted_info(l, &info, NULL) == LN_OK && info.vocab_size > 0 ? info.vocab_size : INT32_MAX;
}

/* Copies the caller's sampling to *copy and sets *how to it; NULL stays NULL: the model's own. */
static ln_status take_sampling(ln_hosted *l, const ln_sampling *from, ln_sampling *copy,
                               const ln_sampling **how, ln_error *err) {
    *how = NULL;
    if (!from) return LN_OK;
    *copy = (ln_sampling){
        .size = sizeof(ln_sampling), .top_p = 1, .repeat_penalty = 1, .repeat_last = 64, .n_max = -1};
    *how = copy;
    LN_TRY(ln_api_sampling(from, vocabulary(l), copy, err));
    if (copy->tool_choice == LN_TOOLS_OFF) return LN_OK;
    return ln_fail(err, LN_EUNSUPPORTED,
                   "ln_sampling.tool_choice: a backend hands on text only; use LN_TOOLS_OFF, or an engine "
                   "(ln_request_open)");
}

static ln_status run(ln_backend_model *model, bool chat, const ln_prompt *prompt, const ln_sampling *sampling,
                     ln_text_fn *on_text, void *user, ln_result *out, ln_error *err) {
    ln_hosted *l;
    ln_result all = {.size = sizeof all};
    ln_prompt p;
    ln_sampling copy;
    const ln_sampling *how;
    ENTER;
    err = ln_api_error(err);
    if (out) LN_TRY(ln_api_open_result(out, err));
    NEED(prompt, "prompt must not be NULL");
    LN_TRY(ln_api_prompt(prompt, &p, err));
    LN_TRY(use_hosted(model, &l, err));
    ln_status st = take_sampling(l, sampling, &copy, &how, err);
    if (st == LN_OK) st = ln_hosted_generate(l, chat, &p, how, on_text, user, &all, err);
    ln_api_give_result(out, &all);
    return done(model, st);
}

ln_status ln_backend_generate(ln_backend_model *model, const ln_prompt *prompt, const ln_sampling *sampling,
                              ln_text_fn *on_text, void *user, ln_result *out, ln_error *err) {
    return run(model, false, prompt, sampling, on_text, user, out, err);
}

ln_status ln_backend_chat(ln_backend_model *model, const ln_prompt *prompt, const ln_sampling *sampling,
                          ln_text_fn *on_text, void *user, ln_result *out, ln_error *err) {
    return run(model, true, prompt, sampling, on_text, user, out, err);
}

ln_status ln_backend_batch(ln_backend_model *model, const ln_prompt *prompts, size_t n,
                           const ln_sampling *sampling, ln_result *results, ln_error *errors, ln_error *err) {
    ln_hosted *l;
    ARG((prompts && results && errors) || n == 0, "prompts, results and errors must not be NULL");
    LN_TRY(ln_api_open_results(results, n, err));
    LN_TRY(use_hosted(model, &l, err));
    const ln_prompt *all;
    ln_prompt *copies = NULL;
    ln_result *answers = ln_zalloc(n + 1, sizeof *answers);
    ln_sampling copy;
    const ln_sampling *how = NULL;
    ln_status st = answers ? take_sampling(l, sampling, &copy, &how, err) : LN_OOM(err, "the results");
    if (st == LN_OK) st = ln_api_prompts(prompts, n, &all, &copies, err);
    if (st == LN_OK) st = ln_hosted_batch(l, all, n, how, answers, errors, err);
    for (size_t i = 0; answers && i < n; i++) ln_api_give_result(ln_api_result_at(results, i), &answers[i]);
    ln_free(answers);
    ln_free(copies);
    return done(model, st);
}

static ln_status check_labels(const ln_classify_options *o, ln_error *err) {
    if (o->n_labels > 0 && !o->labels) return ln_fail(err, LN_EUSAGE, "ln_classify_options.labels is NULL");
    for (size_t i = 0; i < o->n_labels; i++)
        if (!o->labels[i] || !o->labels[i][0])
            return ln_fail(err, LN_EUSAGE, "label %zu (ln_classify_options.labels) is empty", i + 1);
    return LN_OK;
}

ln_status ln_backend_classify(ln_backend_model *model, const ln_prompt *prompts, size_t n,
                              const ln_classify_options *opt, ln_class_fn *fn, void *user,
                              ln_metrics *metrics, ln_error *err) {
    ln_hosted *l;
    ln_classify_options o = ln_classify_options_default();
    ARG((prompts || n == 0) && fn, "prompts and fn must not be NULL");
    if (opt) LN_TRY(ln_api_copy_sized(&o, sizeof o, opt, "ln_classify_options", err));
    LN_TRY(check_labels(&o, err));
    LN_TRY(use_hosted(model, &l, err));
    const ln_prompt *all;
    ln_prompt *copies = NULL;
    ln_sampling copy;
    ln_status st = take_sampling(l, o.sampling, &copy, &o.sampling, err);
    if (st == LN_OK) st = ln_api_prompts(prompts, n, &all, &copies, err);
    if (st == LN_OK) st = ln_hosted_classify(l, all, n, &o, fn, user, metrics, err);
    ln_free(copies);
    return done(model, st);
}

ln_status ln_backend_inspect(ln_backend_model *model, const int32_t *ids, size_t n_ids, ln_keys_fn *fn,
                             void *user, ln_error *err) {
    ln_hosted *l;
    ARG((ids || n_ids == 0) && fn, "ids and fn must not be NULL");
    if (n_ids == 0) return ln_fail(err, LN_EUSAGE, "%s: no ids", __func__);
    LN_TRY(use_hosted(model, &l, err));
    return done(model, ln_hosted_inspect(l, ids, n_ids, fn, user, err));
}

ln_status ln_backend_info(ln_backend_model *model, ln_info *out, ln_error *err) {
    ln_hosted *l;
    ln_info all;
    ARG(out, "out must not be NULL");
    LN_TRY(ln_api_check_size(out, sizeof out->size, "ln_info", err));
    LN_TRY(use_hosted(model, &l, err));
    const ln_status st = ln_hosted_info(l, &all, err);
    if (st == LN_OK) ln_api_give_sized(out, sizeof all, &all);
    return done(model, st);
}

ln_status ln_backend_sampling(ln_backend_model *model, ln_sampling *out, ln_error *err) {
    ln_hosted *l;
    ln_sampling all;
    ARG(out, "out must not be NULL");
    LN_TRY(ln_api_check_size(out, sizeof out->size, "ln_sampling", err));
    LN_TRY(use_hosted(model, &l, err));
    const ln_status st = ln_hosted_defaults(l, &all, err);
    if (st == LN_OK) ln_api_give_sized(out, sizeof all, &all);
    return done(model, st);
}

ln_status ln_backend_metrics(ln_backend_model *model, ln_metrics *out, ln_error *err) {
    ln_hosted *l;
    ARG(out, "out must not be NULL");
    LN_TRY(use_hosted(model, &l, err));
    pthread_mutex_lock(&l->lock);
    *out = l->last;
    pthread_mutex_unlock(&l->lock);
    return done(model, LN_OK);
}

/* ---- files of requests ---- */

/* Adds a file of the model; a missing one adds an empty text. */
static ln_status add_file(ln_sha256 *h, const char *dir, const char *name, ln_error *err) {
    char path[4200];
    char *data = NULL;
    size_t bytes = 0;
    bool there;
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    LN_TRY(ln_look(path, &there, err));
    if (there) LN_TRY(ln_read_file(path, LN_CONFIG_LIMIT, &data, &bytes, err));
    ln_sha256_add_text(h, data ? data : "", bytes);
    ln_free(data);
    return LN_OK;
}

/* What the answers are bound to: the backend, the model's path, its facts and its small files. Weights of the
 * same number and size are not told apart. */
static ln_status model_identity(const ln_hosted *l, const ln_info *info, char digest[LN_SHA256_HEX],
                                ln_error *err) {
    static const char *const files[] = {"config.json", "generation_config.json", "tokenizer.json",
                                        "tokenizer_config.json", "chat_template.jinja"};
    ln_sha256 h;
    char facts[100];
    (void)snprintf(facts, sizeof facts, "%llu %llu", (unsigned long long)info->n_parameters,
                   (unsigned long long)info->weights_bytes);
    ln_sha256_open(&h);
    ln_sha256_add_text(&h, l->backend->name, strlen(l->backend->name));
    ln_sha256_add_text(&h, info->path, strlen(info->path));
    ln_sha256_add_text(&h, facts, strlen(facts));
    for (size_t i = 0; info->path[0] && i < LN_COUNT(files); i++)
        LN_TRY(add_file(&h, info->path, files[i], err));
    ln_sha256_hex(&h, digest);
    return LN_OK;
}

static ln_status answer_one(void *user, const ln_prompt *prompt, const ln_sampling *how, ln_result *out,
                            ln_error *err) {
    ln_hosted *l = user;
    if (how) LN_TRY(ln_api_check_sampling(how, vocabulary(l), err));
    return ln_hosted_generate(l, prompt->messages || prompt->request, prompt, how, NULL, NULL, out, err);
}

static ln_status run_file(ln_hosted *l, const char *in, const char *out, const ln_batch_options *opt,
                          ln_batch_report *report, ln_error *err) {
    ln_info info = {0};
    char digest[LN_SHA256_HEX], conditions[400];
    ln_batch_options how = *opt;
    if (l->backend->info) LN_TRY(ln_hosted_info(l, &info, err));
    const ln_batch_options named = {.aliases = opt->aliases, .n_aliases = opt->n_aliases};
    wire_target target = {.n_vocab = info.vocab_size > 0 ? info.vocab_size : INT32_MAX,
                          .has_template = info.has_template};
    LN_TRY(ln_hosted_defaults(l, &target.sampling, err));
    if (info.path[0]) LN_TRY(wire_sampling_default(&target.sampling, info.path, err));
    LN_TRY(model_identity(l, &info, digest, err));
    LN_TRY(batch_name_models(&target, opt->model_name ? opt->model_name : "model", info.path, &named, err));
    (void)snprintf(conditions, sizeof conditions, "backend %s%s%s", l->backend->name,
                   opt->conditions && opt->conditions[0] ? ", " : "", opt->conditions ? opt->conditions : "");
    how.conditions = conditions;
    const ln_status st = batch_run_with(answer_one, l, &target, digest, in, out, &how, report, err);
    ln_free((void *)(uintptr_t)target.names);
    return st;
}

ln_status ln_backend_batch_file(ln_backend_model *model, const char *in, const char *out,
                                const ln_batch_options *opt, ln_batch_report *report, ln_error *err) {
    ln_hosted *l;
    ln_batch_options how = ln_batch_options_default();
    ln_batch_report all = {.size = sizeof all};
    ARG(in && out, "in and out must not be NULL");
    if (report) LN_TRY(ln_api_check_size(report, sizeof report->size, "ln_batch_report", err));
    if (opt) LN_TRY(ln_api_copy_sized(&how, sizeof how, opt, "ln_batch_options", err));
    LN_TRY(use_hosted(model, &l, err));
    const ln_status st = run_file(l, in, out, &how, &all, err);
    if (report) ln_api_give_sized(report, sizeof all, &all);
    return done(model, st);
}
