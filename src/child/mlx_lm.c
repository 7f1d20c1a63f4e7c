/* The backend mlx_lm: loading a model in a child process, its facts, its end. */
#include "mlx_lm.h"

#include <stdio.h>
#include <string.h>

static const double LOAD_SECONDS = 600, REPLY_SECONDS = 120, PROBE_SECONDS = 20, CLOSE_SECONDS = 2;
enum { PROTOCOL = 1 };

/* ---- start ---- */

/* Starts Python and reads its first message. LN_EUNSUPPORTED: the interpreter has no mlx-lm. */
static ln_status start(ln_mlx *m, const char *python, double seconds, ln_error *err) {
    char path[4096], shown[LN_PATH_TEXT];
    size_t bytes, n;
    int64_t protocol;
    const char *script = ln_child_script(&bytes), *text;
    LN_TRY(ln_child_find_python(python, path, sizeof path, err));
    ln_status st = ln_child_open(&m->child, path, script, bytes, err);
    if (st != LN_OK) return ln_prefix(err, st, "mlx_lm");
    ln_mlx_call call = {.m = m, .limit = seconds, .heard = ln_now()};
    LN_GO(ln_mlx_next(&call, err));
    if (strcmp(call.event, "hello") != 0)
        LN_GO(ln_mlx_broken(m, err, "the first message of the process is '%.40s', expected hello",
                            call.event));
    LN_GO(ln_mlx_int(&call, "protocol", PROTOCOL, PROTOCOL, &protocol, err));
    if (json_is_null(json_object_get(call.message, "mlx_lm")))
        LN_GO(ln_fail(err, LN_EUNSUPPORTED,
                      "%s has no mlx-lm; `%s -m pip install mlx-lm` (on Linux also 'mlx[cpu]'), or name "
                      "another "
                      "interpreter (ln_backend_options.python)",
                      ln_path_text(shown, path), ln_path_text(shown, path)));
    LN_GO(ln_mlx_text(&call, "mlx_lm", &text, &n, err));
    ln_log(LN_LOG_INFO, "mlx_lm: %s, mlx-lm %.40s", ln_path_text(shown, path), text);
out:
    ln_mlx_done(&call);
    return st;
}

static ln_status available(void *user, const ln_backend_options *opt, ln_error *err) {
    ln_mlx m = {0};
    (void)user;
    const ln_status st = start(&m, opt->python, PROBE_SECONDS, err);
    ln_child_close(&m.child, st == LN_OK ? CLOSE_SECONDS : 0);
    return st;
}

/* ---- options ---- */

/* Rejects the native engine's options, which would change nothing here. */
static ln_status read_options(ln_mlx *m, const ln_backend_options *opt, ln_error *err) {
    m->reply_seconds = opt->reply_seconds > 0 ? opt->reply_seconds : REPLY_SECONDS;
    if (!opt->options) return LN_OK;
    const ln_options *o = opt->options;
    const struct {
        const char *name;
        bool set;
    } refused[] = {{"numerics", o->numerics != 0},
                   {"device", o->device != 0},
                   {"quantize_bits", o->quantize_bits},
                   {"n_threads", o->n_threads},
                   {"n_parallel", o->n_parallel > 1},
                   {"memory_bytes", o->memory_bytes},
                   {"mlock", o->mlock},
                   {"skip_unknown", o->skip_unknown},
                   {"chat_template", o->chat_template},
                   {"kv_bytes", o->kv_bytes},
                   {"adapter", o->n_adapter_parts},
                   {"n_adapters", o->n_adapters},
                   {"n_lookup", o->n_lookup},
                   {"kv_type", o->kv_type != LN_KV_AUTO}};
    for (size_t i = 0; i < LN_COUNT(refused); i++)
        if (refused[i].set)
            return ln_fail(err, LN_EUSAGE,
                           "ln_options.%s: the backend mlx_lm does not honour it; leave it out",
                           refused[i].name);
    m->n_ctx = o->n_ctx;
    m->n_chunk = o->n_chunk;
    m->progress = o->progress;
    return LN_OK;
}

/* ---- load ---- */

/* Reads generation_config.json: the defaults of sampling and the stop ids. */
static ln_status read_defaults(ln_mlx *m, const char *dir, ln_error *err) {
    ln_config c;
    int64_t vocab = INT32_MAX;
    LN_TRY(ln_config_open(&c, dir, err));
    ln_status st = LN_OK;
    if (ln_config_has(&c, "vocab_size"))
        st = ln_config_int(&c, "vocab_size", INT32_MAX, 1, INT32_MAX, &vocab, err);
    if (st == LN_OK) st = ln_genconfig_open(&m->gen, dir, &c, vocab, NULL, NULL, err);
    m->has_gen = st == LN_OK;
    ln_config_close(&c);
    return st;
}

static ln_status put_load(const ln_mlx *m, const char *dir, const ln_backend_options *opt, ln_str *line,
                          ln_error *err) {
    char shown[LN_PATH_TEXT];
    if (ln_utf8_valid(dir, strlen(dir)) < strlen(dir))
        return ln_fail(err, LN_EUNSUPPORTED, "%s: the backend mlx_lm takes paths in UTF-8",
                       ln_path_text(shown, dir));
    put_text(line, "path", dir);
    if (opt->adapter) {
        put_text(line, "adapter", opt->adapter);
        put_real(line, "adapter_scale", opt->adapter_scale);
    }
    put_ids(line, "eos", m->gen.eos, (size_t)m->gen.n_eos);
    ln_str_adds(line, "}");
    return LN_OK;
}

static void copy_text(char *to, size_t cap, const char *from) { (void)snprintf(to, cap, "%s", from); }

static ln_status read_ends(ln_mlx_call *call, ln_info *info, ln_error *err) {
    const json_t *ends;
    LN_TRY(ln_mlx_list(call, "ends", &ends, err));
    for (size_t i = 0; i < json_array_size(ends) && i < LN_COUNT(info->eos_ids); i++)
        info->eos_ids[info->n_eos++] = (int32_t)json_integer_value(json_array_get(ends, i));
    return LN_OK;
}

/* Reads the message `loaded`. */
static ln_status read_facts(ln_mlx_call *call, ln_info *info, ln_error *err) {
    const struct {
        const char *name;
        int *small;
        int64_t *large;
        uint64_t *bytes;
    } numbers[] = {{.name = "bits", .small = &info->bits},
                   {.name = "group", .small = &info->group},
                   {.name = "layers", .small = &info->n_layers},
                   {.name = "heads", .small = &info->n_heads},
                   {.name = "kv_heads", .small = &info->n_kv_heads},
                   {.name = "head_dim", .small = &info->head_dim},
                   {.name = "width", .large = &info->width},
                   {.name = "ffn", .large = &info->ffn_width},
                   {.name = "vocabulary", .large = &info->vocab_size},
                   {.name = "context", .large = &info->n_ctx_max},
                   {.name = "window", .large = &info->window},
                   {.name = "parameters", .bytes = &info->n_parameters},
                   {.name = "bytes", .bytes = &info->weights_bytes}};
    const struct {
        const char *name;
        bool *to;
    } flags[] = {{"tied", &info->tied},
                 {"template", &info->has_template},
                 {"reasoning", &info->has_reasoning},
                 {"think_switch", &info->has_think_switch}};
    const char *text;
    size_t bytes;
    for (size_t i = 0; i < LN_COUNT(numbers); i++) {
        int64_t v;
        LN_TRY(ln_mlx_int(call, numbers[i].name, 0, numbers[i].small ? INT32_MAX : INT64_MAX, &v, err));
        if (numbers[i].small) *numbers[i].small = (int)v;
        if (numbers[i].large) *numbers[i].large = v;
        if (numbers[i].bytes) *numbers[i].bytes = (uint64_t)v;
    }
    for (size_t i = 0; i < LN_COUNT(flags); i++) LN_TRY(ln_mlx_bool(call, flags[i].name, flags[i].to, err));
    LN_TRY(ln_mlx_text(call, "model_type", &text, &bytes, err));
    copy_text(info->model_type, sizeof info->model_type, text);
    LN_TRY(ln_mlx_text(call, "dtype", &text, &bytes, err));
    copy_text(info->dtype, sizeof info->dtype, text);
    info->numerics = LN_EXACT;
    return read_ends(call, info, err);
}

static ln_status load_model(ln_mlx *m, const char *dir, const ln_backend_options *opt, double seconds,
                            ln_error *err) {
    ln_mlx_call call;
    ln_str line = {0};
    ln_mlx_begin(&call, m, "load", NULL, &line);
    call.limit = seconds;
    ln_status st = put_load(m, dir, opt, &line, err);
    if (st == LN_OK) st = ln_mlx_send(&call, &line, err);
    ln_str_free(&line);
    if (st == LN_OK) st = ln_mlx_next(&call, err);
    if (st == LN_OK && strcmp(call.event, "loaded") != 0)
        st = ln_mlx_broken(m, err, "the process answered load with '%.40s'", call.event);
    if (st == LN_OK) st = read_facts(&call, &m->info, err);
    ln_mlx_done(&call);
    return st;
}

static void close_model(void *model) {
    ln_mlx *m = model;
    ln_child_close(&m->child, CLOSE_SECONDS);
    if (m->has_gen) ln_genconfig_close(&m->gen);
    ln_free(m);
}

static ln_status load(void **model, void *user, const char *path, const ln_backend_options *opt,
                      ln_error *err) {
    const double seconds = opt->load_seconds > 0 ? opt->load_seconds : LOAD_SECONDS;
    const double begin = ln_now();
    ln_mlx *m = ln_zalloc(1, sizeof *m);
    ln_status st;
    (void)user;
    if (!m) return LN_OOM(err, "a model");
    LN_GO(read_options(m, opt, err));
    LN_GO(ln_find_model(path, m->info.path, sizeof m->info.path, err));
    LN_GO(read_defaults(m, m->info.path, err));
    LN_GO(start(m, opt->python, seconds, err));
    LN_GO(load_model(m, m->info.path, opt, LN_MAX(seconds - (ln_now() - begin), 0.001), err));
    if (m->n_ctx > m->info.n_ctx_max && m->info.n_ctx_max > 0)
        LN_GO(ln_fail(err, LN_EUSAGE, "ln_options.n_ctx is %lld; the model's maximum is %lld",
                      (long long)m->n_ctx, (long long)m->info.n_ctx_max));
    m->load_seconds = ln_now() - begin;
out:
    if (st != LN_OK) close_model(m);
    else *model = m;
    return st;
}

/* ---- facts ---- */

static ln_status info(void *model, ln_info *out, ln_error *err) {
    const ln_mlx *m = model;
    (void)err;
    *out = m->info;
    return LN_OK;
}

/* As ln_sampling_default. */
static ln_status defaults(void *model, ln_sampling *out, ln_error *err) {
    const ln_genconfig *g = &((const ln_mlx *)model)->gen;
    (void)err;
    *out = (ln_sampling){
        .size = sizeof(ln_sampling), .top_p = 1, .repeat_penalty = 1, .repeat_last = 64, .n_max = -1};
    if (!g->present) return LN_OK;
    out->repeat_penalty = g->repeat_penalty;
    if (out->repeat_penalty != 1) out->repeat_last = -1;
    out->suppress = g->suppress, out->n_suppress = g->n_suppress;
    out->begin_suppress = g->begin_suppress, out->n_begin_suppress = g->n_begin_suppress;
    out->bad_words = g->bad_words, out->n_bad_words = g->n_bad_words;
    out->no_repeat_ngram = g->no_repeat_ngram;
    out->min_new = g->min_new;
    out->model_stop = g->stop, out->n_model_stop = g->n_stop;
    if (!g->do_sample) return LN_OK;
    out->temperature = g->temperature;
    out->top_k = g->top_k;
    out->top_p = g->top_p;
    out->min_p = g->min_p;
    return LN_OK;
}

const ln_backend ln_mlx_backend = {.size = sizeof(ln_backend),
                                   .name = "mlx_lm",
                                   .what = "mlx-lm in a Python process",
                                   .available = available,
                                   .load = load,
                                   .close = close_model,
                                   .generate = ln_mlx_generate,
                                   .chat = ln_mlx_generate,
                                   .classify = ln_mlx_classify,
                                   .inspect = ln_mlx_inspect,
                                   .info = info,
                                   .defaults = defaults};
