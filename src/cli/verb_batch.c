/* linnet batch: answers a file of requests in the format of OpenAI's batch files. The answers go to a file;
 * stdout has the count of them. */
#include "cli.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* What `model` is called in bodies: --name, tiny, an id without its revision, or the directory's name. */
static const char *name_model(char buf[256], const args *a, const ln_info *info) {
    const char *typed = a->model, *slash = strrchr(info->path, '/');
    if (has(a, F_NAME)) return a->flag[F_NAME].text;
    if (ln_is_dir(typed)) return slash && slash[1] ? slash + 1 : info->path;
    (void)snprintf(buf, 256, "%.*s", (int)LN_MIN(strcspn(typed, "@"), (size_t)255), typed);
    return buf;
}

static ln_batch_options names_of(const args *a, const char *name, const ln_named_adapter *adapters) {
    ln_batch_options o = ln_batch_options_default();
    o.model_name = name;
    o.aliases = a->aliases;
    o.n_aliases = a->n_aliases;
    o.adapters = adapters;
    o.n_adapters = adapters ? a->n_loras : 0;
    return o;
}

static ln_status on_answer(void *user, size_t n_done, size_t n_requests, ln_error *err) {
    const ln_progress *line = user;
    (void)err;
    if (line->fn) line->fn(line->user, "answering", (int64_t)n_done, (int64_t)n_requests);
    return LN_OK;
}

static ln_status print_report(const args *a, const ln_batch_report *r, double seconds, ln_error *err) {
    const char *out = a->flag[F_OUTPUT].text;
    char path[LN_PATH_TEXT];
    ln_str s = {0};
    if (has(a, F_JSON)) {
        ln_str_adds(&s, "{");
        put_text(&s, "out", out);
        put_uint(&s, "requests", r->n_requests);
        put_uint(&s, "done", r->n_done);
        put_uint(&s, "earlier", r->n_earlier);
        put_uint(&s, "failed", r->n_failed);
        put_real(&s, "seconds", seconds);
        ln_str_adds(&s, "}\n");
        return out_str(&s, err);
    }
    ln_str_addf(&s, "%s: %zu of %zu requests answered", ln_path_text(path, out), r->n_done + r->n_earlier,
                r->n_requests);
    if (r->n_earlier > 0) ln_str_addf(&s, ", %zu of them earlier", r->n_earlier);
    if (r->n_failed > 0) ln_str_addf(&s, ", %zu with an error", r->n_failed);
    ln_str_adds(&s, "\n");
    return out_str(&s, err);
}

static ln_status answer(const args *a, ln_engine *engine, ln_backend_model *other, const char *name,
                        const ln_named_adapter *adapters, ln_error *err) {
    ln_batch_options o = names_of(a, name, adapters);
    ln_batch_report r = {.size = sizeof r};
    ln_progress line = progress_line();
    double start = ln_now();
    o.conditions = has(a, F_SKIP_UNKNOWN) ? "unknown tensors skipped" : "";
    o.force = has(a, F_FORCE);
    o.on_answer = on_answer;
    o.user = &line;
    if (has(a, F_ADAPTER) && other) o.conditions = a->flag[F_ADAPTER].text;
    signals_working(engine);
    signals_working_on(other);
    ln_status st = engine ? ln_batch(engine, a->argument, a->flag[F_OUTPUT].text, &o, &r, err)
                          : ln_backend_batch_file(other, a->argument, a->flag[F_OUTPUT].text, &o, &r, err);
    signals_working(NULL);
    signals_working_on(NULL);
    progress_wipe();
    if (st == LN_ECANCELLED && ranks_first())
        note("stopped: %zu of %zu requests are answered; the same command answers the rest",
             r.n_done + r.n_earlier, r.n_requests);
    LN_TRY(st);
    LN_TRY(print_report(a, &r, ln_now() - start, err));
    if (r.n_failed == 0) return LN_OK;
    return ln_fail(err, LN_EINVALID,
                   "%zu of %zu requests failed; the members \"error\" of their lines say why", r.n_failed,
                   r.n_requests);
}

static ln_status answer_on_backend(const args *a, ln_error *err) {
    ln_backend_model *model = NULL;
    ln_info info = {.size = sizeof info};
    char name[256];
    ln_status st;
    LN_GO(backend_open(a, a->model, &model, err));
    LN_GO(ln_backend_info(model, &info, err));
    st = answer(a, NULL, model, name_model(name, a, &info), NULL, err);
out:
    ln_backend_close(&model);
    return st;
}

/* Loads the adapters of --lora. Both lists have a->n_loras entries; the caller closes the adapters. */
static ln_status load_loras(const args *a, ln_engine *engine, ln_adapter **open, ln_named_adapter *named,
                            ln_error *err) {
    for (size_t i = 0; i < a->n_loras; i++) {
        LN_TRY(ln_adapter_open(&open[i], engine, &a->loras[i].part, 1, err));
        named[i] = (ln_named_adapter){a->loras[i].name, open[i]};
    }
    return LN_OK;
}

ln_status batch_size(const args *a, ln_model *model, ln_options *opt, ln_error *err) {
    ln_info info = {.size = sizeof info};
    char name[256];
    ln_named_adapter *named = ln_zalloc(a->n_loras + 1, sizeof *named);
    if (!named) return LN_OOM(err, "adapters");
    for (size_t i = 0; i < a->n_loras; i++) named[i].name = a->loras[i].name;
    if (opt->n_parallel == 0) opt->n_parallel = BATCH_PARALLEL;
    ln_status st = ln_model_info(model, &info, err);
    const ln_batch_options o = names_of(a, name_model(name, a, &info), named);
    if (st == LN_OK) st = ln_batch_size(model, a->argument, &o, opt, err);
    ln_free(named);
    return st;
}

/* Prints what was sized by the requests: to people, and with -v. */
static void say_size(const args *a, const ln_options *opt) {
    if (!isatty(STDERR_FILENO) && !has(a, F_VERBOSE)) return;
    note("requests of up to %lld positions, %d at once; the pool of keys and values has %lld positions",
         (long long)opt->n_ctx, opt->n_parallel, (long long)opt->pool_positions);
}

ln_status cmd_batch(const args *a, ln_error *err) {
    if (other_backend(a)) return answer_on_backend(a, err);
    ln_model *model = NULL;
    ln_engine *engine = NULL;
    ln_options opt;
    ln_info info = {.size = sizeof info};
    char name[256];
    ln_adapter **open = ln_zalloc(a->n_loras + 1, sizeof *open);
    ln_named_adapter *named = ln_zalloc(a->n_loras + 1, sizeof *named);
    ln_status st = open && named ? LN_OK : LN_OOM(err, "adapters");
    if (st != LN_OK) goto out;
    LN_GO(options_of(a, &opt, err));
    LN_GO(ln_model_open(&model, a->model, &opt, err));
    LN_GO(check_texts(model, err));
    LN_GO(ln_model_info(model, &info, err));
    LN_GO(batch_size(a, model, &opt, err));
    say_size(a, &opt);
    LN_GO(ln_engine_open(&engine, model, &opt, err));
    LN_GO(load_loras(a, engine, open, named, err));
    st = answer(a, engine, NULL, name_model(name, a, &info), named, err);
out:
    for (size_t i = 0; open && i < a->n_loras; i++) ln_adapter_close(&open[i]);
    ln_free(open);
    ln_free(named);
    ln_engine_close(&engine);
    ln_model_close(&model);
    return st;
}
