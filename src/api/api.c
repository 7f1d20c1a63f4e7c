/* The public API: checks arguments, resolves handles to objects and forwards the call; no other logic. The
 * contracts are in linnet.h.
 *
 * A function that takes `err` begins with ARG: after it err is never NULL, because a caller's NULL is
 * replaced by the thread's error that ln_last_error returns. Every return path releases the handles that
 * ln_handle_use has referenced. */
#include "../base/json.h"
#include "../base/text_memory.h"
#include "../engine/generate.h"
#include "../engine/score.h"
#include "../io/directory.h"
#include "../inspect/doctor.h"
#include "../inspect/inspect.h"
#include "check.h"
#include "../args/handle.h"

ln_status ln_api_engine(const ln_engine *engine, ln_eng **out, ln_error *err) {
    void *p;
    LN_TRY(ln_handle_use(LN_HANDLE_ENGINE, engine, &p, err));
    *out = p;
    return LN_OK;
}

/* ---- models ---- */

static void free_model(void *object) {
    ln_package *own = object;
    ln_package_close(&own);
}

ln_status ln_model_open(ln_model **out, const char *model, const ln_options *opt, ln_error *err) {
    ARG(out && model, "out and model must not be NULL");
    *out = NULL;
    ln_options o;
    LN_TRY(ln_api_options(opt, &o, err));
    ln_package *m;
    void *handle = NULL;
    LN_TRY(ln_package_open_led(&m, model, &o, err));
    ln_status st = ln_handle_new(LN_HANDLE_MODEL,
                                 &(ln_handle_object){.object = m, .free = free_model, .tokenizer = m->tok},
                                 &handle, err);
    if (st != LN_OK) ln_package_close(&m);
    *out = handle;
    return st;
}

void ln_model_close(ln_model **model) {
    ENTER;
    if (!model) return;
    ln_handle_close(LN_HANDLE_MODEL, *model);
    *model = NULL;
}

static ln_status use_model(const ln_model *model, ln_package **out, ln_error *err) {
    void *p;
    LN_TRY(ln_handle_use(LN_HANDLE_MODEL, model, &p, err));
    *out = p;
    return LN_OK;
}
static ln_status done(const void *handle, ln_status st) {
    ln_handle_done(handle);
    return st;
}

ln_status ln_model_info(const ln_model *model, ln_info *info, ln_error *err) {
    ln_package *m;
    ln_info all;
    ARG(info, "info must not be NULL");
    LN_TRY(ln_api_check_size(info, sizeof info->size, "ln_info", err));
    LN_TRY(use_model(model, &m, err));
    ln_package_info(m, &all);
    ln_api_give_sized(info, sizeof all, &all);
    return done(model, LN_OK);
}

ln_status ln_show(const char *model, const ln_options *opt, ln_info *info, ln_error *err) {
    ARG(model && info, "model and info must not be NULL");
    LN_TRY(ln_api_check_size(info, sizeof info->size, "ln_info", err));
    ln_options o;
    ln_info all;
    LN_TRY(ln_api_options(opt, &o, err));
    ln_package *m;
    LN_TRY(ln_package_open(&m, model, &o, err));
    ln_package_info(m, &all);
    ln_package_close(&m);
    ln_api_give_sized(info, sizeof all, &all);
    return LN_OK;
}

ln_status ln_sampling_default(const ln_model *model, ln_sampling *out, ln_error *err) {
    ln_package *m;
    ln_sampling all;
    ARG(out, "out must not be NULL");
    LN_TRY(ln_api_check_size(out, sizeof out->size, "ln_sampling", err));
    LN_TRY(use_model(model, &m, err));
    ln_package_sampling(m, &all);
    ln_api_give_sized(out, sizeof all, &all);
    return done(model, LN_OK);
}

ln_status ln_plan_memory(const char *model, const ln_options *opt, ln_plan *out, ln_error *err) {
    ARG(model && out, "model and out must not be NULL");
    LN_TRY(ln_api_check_size(out, sizeof out->size, "ln_plan", err));
    ln_options o;
    ln_plan all;
    LN_TRY(ln_api_options(opt, &o, err));
    ln_package *m;
    LN_TRY(ln_package_open(&m, model, &o, err));
    ln_status st = ln_eng_plan(m, &o, &all, err);
    if (st == LN_OK) st = ln_eng_largest(m, &o, &all, err);
    if (st == LN_OK) ln_api_give_sized(out, sizeof all, &all);
    ln_package_close(&m);
    return st;
}

/* ---- engines ---- */

static void free_engine(void *object) {
    ln_eng *own = object;
    ln_eng_close(&own);
}

ln_status ln_engine_open(ln_engine **out, ln_model *model, const ln_options *opt, ln_error *err) {
    ARG(out, "out must not be NULL");
    *out = NULL;
    ln_options o;
    ln_package *m;
    ln_eng *e;
    void *handle = NULL;
    LN_TRY(ln_api_options(opt, &o, err));
    LN_TRY(use_model(model, &m, err));
    ln_status st = ln_eng_open(&e, m, &o, err);
    if (st != LN_OK) return done(model, st);
    st = ln_handle_new(LN_HANDLE_ENGINE, &(ln_handle_object){.object = e, .free = free_engine, .base = model},
                       &handle, err);
    if (st != LN_OK) {
        ln_eng_close(&e);
        return done(model, st);
    }
    e->stop = ln_handle_stop_word(handle);
    e->stop_at = (uintptr_t)handle;
    *out = handle;
    return LN_OK;
}

void ln_engine_close(ln_engine **engine) {
    ENTER;
    if (!engine) return;
    ln_handle_close(LN_HANDLE_ENGINE, *engine);
    *engine = NULL;
}

ln_status ln_prompt_ids(const ln_model *model, const ln_prompt *prompt, int32_t *ids, size_t cap,
                        size_t *n_ids, ln_error *err) {
    ln_package *m;
    ln_ids all = {0};
    ln_prompt p;
    ARG(prompt && n_ids && (ids || cap == 0), "prompt and n_ids must not be NULL, ids not with a capacity");
    LN_TRY(ln_api_prompt(prompt, &p, err));
    LN_TRY(use_model(model, &m, err));
    ln_status st = ln_package_encode_prompt(m, &p, &all, err);
    if (st == LN_OK) {
        *n_ids = all.n;
        if (all.n > 0 && cap > 0) memcpy(ids, all.data, LN_MIN(all.n, cap) * sizeof *ids);
    }
    ln_ids_free(&all);
    return done(model, st);
}

ln_status ln_assistant_mask(const ln_model *model, const ln_prompt *conversation, ln_token_mask *out,
                            ln_error *err) {
    ln_package *m;
    ARG(conversation && out, "conversation and out must not be NULL");
    ln_prompt p;
    memset(out, 0, sizeof *out);
    LN_TRY(ln_api_prompt(conversation, &p, err));
    LN_TRY(use_model(model, &m, err));
    ln_text_work work;
    ln_text_begin(&work);
    ln_status st = ln_package_assistant_mask(m, &p, out, err);
    st = ln_text_end(&work, st, err);
    if (st != LN_OK) ln_token_mask_free(out);
    return done(model, st);
}

void ln_token_mask_free(ln_token_mask *marked) {
    if (!marked) return;
    ln_free(marked->ids);
    ln_free(marked->mask);
    memset(marked, 0, sizeof *marked);
}

ln_status ln_generate(ln_engine *engine, const ln_prompt *prompt, const ln_sampling *sampling,
                      ln_text_fn *on_text, void *user, ln_result *out, ln_error *err) {
    ln_eng *e;
    ln_result all = {.size = sizeof all};
    ln_sampling how;
    ln_prompt p;
    ENTER;
    err = ln_api_error(err);
    if (out) LN_TRY(ln_api_open_result(out, err));
    NEED(prompt, "prompt must not be NULL");
    LN_TRY(ln_api_prompt(prompt, &p, err));
    LN_TRY(ln_api_engine(engine, &e, err));
    ln_package_sampling(e->model, &how);
    ln_status st = sampling ? ln_api_sampling(sampling, e->model->spec.V, &how, err) : LN_OK;
    const void *adapter = NULL;
    if (st == LN_OK) st = ln_api_use_adapter(e, &p, &adapter, err);
    if (st == LN_OK) st = ln_eng_generate(e, &p, &how, on_text, user, &all, err);
    if (adapter) ln_handle_done(adapter);
    ln_api_give_result(out, &all);
    return done(engine, st);
}

void ln_cancel(ln_engine *engine, bool stop) {
    if (ln_handle_is(LN_HANDLE_ENGINE, engine)) ln_handle_stop(engine, stop);
}

ln_status ln_score(ln_engine *engine, const int32_t *ids, size_t n_ids, size_t n_top, ln_score_fn *fn,
                   void *user, ln_metrics *metrics, ln_error *err) {
    ln_eng *e;
    ARG((ids || n_ids == 0) && fn, "ids and fn must not be NULL");
    LN_TRY(ln_api_engine(engine, &e, err));
    return done(engine, ln_eng_score(e, ids, n_ids, n_top, fn, user, metrics, err));
}

ln_status ln_inspect_keys(ln_engine *engine, const int32_t *ids, size_t n_ids, ln_keys_fn *fn, void *user,
                          ln_error *err) {
    ln_eng *e;
    ARG((ids || n_ids == 0) && fn, "ids and fn must not be NULL");
    LN_TRY(ln_api_engine(engine, &e, err));
    return done(engine, ln_eng_inspect_keys(e, ids, n_ids, fn, user, err));
}

/* ---- programs and their speed ---- */

ln_status ln_explain(ln_engine *engine, int64_t n_rows, int64_t depth, int n_reps, ln_node_fn *fn, void *user,
                     ln_program_report *out, ln_error *err) {
    ln_eng *e;
    ln_program_report all = {.size = sizeof all};
    ARG(fn && out && n_rows >= 0 && depth >= 0 && n_reps > 0 && n_reps <= 1000,
        "fn and out must not be NULL, counts not negative, repetitions 1 .. 1000");
    LN_TRY(ln_api_check_size(out, sizeof out->size, "ln_program_report", err));
    LN_TRY(ln_api_engine(engine, &e, err));
    const ln_status st = ln_eng_explain(e, n_rows, depth, n_reps, fn, user, &all, err);
    ln_api_give_sized(out, sizeof all, &all);
    return done(engine, st);
}

ln_status ln_diff(const ln_model *model, const ln_options *opt, const int32_t *ids, size_t n_ids,
                  ln_node_fn *fn, void *user, ln_error *err) {
    ln_package *m;
    ARG(fn && (ids || n_ids == 0), "fn and ids must not be NULL");
    ln_options o;
    LN_TRY(ln_api_options(opt, &o, err));
    LN_TRY(use_model(model, &m, err));
    return done(model, ln_diff_model(m, &o, ids, (int64_t)LN_MIN(n_ids, (size_t)INT64_MAX), fn, user, err));
}

ln_status ln_bench(const ln_model *model, const ln_options *opt, const ln_bench_options *how, ln_bench_fn *fn,
                   void *user, ln_bench_report *out, ln_error *err) {
    ln_package *m;
    ln_options o;
    ln_bench_options b = ln_bench_options_default();
    ln_bench_report all = {.size = sizeof all};
    ARG(how && fn && out, "how, fn and out must not be NULL");
    LN_TRY(ln_api_check_size(out, sizeof out->size, "ln_bench_report", err));
    LN_TRY(ln_api_copy_sized(&b, sizeof b, how, "ln_bench_options", err));
    NEED((b.depths || !b.n_depths) && (b.streams || !b.n_streams), "lists must not be NULL with a length");
    LN_TRY(ln_api_options(opt, &o, err));
    LN_TRY(use_model(model, &m, err));
    const ln_status st = ln_bench_model(m, &o, &b, fn, user, &all, err);
    ln_api_give_sized(out, sizeof all, &all);
    return done(model, st);
}

/* ---- tokenizers ---- */

const ln_tokenizer *ln_model_tokenizer(const ln_model *model) {
    ln_package *m;
    if (use_model(model, &m, ln_api_error(NULL)) != LN_OK) return NULL;
    ln_handle_done(model);
    return ln_handle_part(model, LN_HANDLE_TOKENIZER);
}

static void free_tokenizer(void *object) {
    ln_tok *own = object;
    ln_tok_close(&own);
}

ln_status ln_tokenizer_open(ln_tokenizer **out, const char *model, ln_error *err) {
    ARG(out && model, "out and model must not be NULL");
    char path[4096], config[LN_PATH_MAX];
    ln_tok *t;
    ln_json_memo memo;
    void *handle = NULL;
    *out = NULL;
    LN_TRY(ln_find_dir(model, "tokenizer.json", path, sizeof path, err));
    LN_TRY(ln_path_join(config, path, "tokenizer_config.json", err));
    LN_TRY(ln_check_tokenizer(path, err));
    ln_json_memo_begin(&memo, config);
    ln_status st = ln_check_tokenizer_keys(path, err);
    if (st == LN_OK) st = ln_tok_open(&t, path, err);
    ln_json_memo_end(&memo);
    LN_TRY(st);
    st = ln_handle_new(LN_HANDLE_TOKENIZER, &(ln_handle_object){.object = t, .free = free_tokenizer}, &handle,
                       err);
    if (st != LN_OK) ln_tok_close(&t);
    *out = handle;
    return st;
}

void ln_tokenizer_close(ln_tokenizer **tok) {
    ENTER;
    if (!tok) return;
    ln_handle_close(LN_HANDLE_TOKENIZER, *tok);
    *tok = NULL;
}

ln_status ln_tokenize(const ln_tokenizer *tok, const char *text, size_t bytes, bool add_special, int32_t *ids,
                      size_t cap, size_t *n_ids, ln_error *err) {
    void *t;
    ln_ids all = {0};
    ARG((text || bytes == 0) && n_ids && (ids || cap == 0), "text and n_ids must not be NULL, ids not with a "
                                                            "capacity");
    size_t good = ln_utf8_valid(text, bytes);
    if (good < bytes)
        return ln_fail(err, LN_EINVALID, "%s: byte %zu of the text is not UTF-8", __func__, good);
    LN_TRY(ln_handle_use(LN_HANDLE_TOKENIZER, tok, &t, err));
    ln_text_work work;
    ln_text_begin(&work);
    ln_status st = ln_tok_encode(t, text ? text : "", bytes, add_special, &all, err);
    if (st == LN_OK) {
        *n_ids = all.n;
        if (all.n > 0 && cap > 0) memcpy(ids, all.data, LN_MIN(all.n, cap) * sizeof *ids);
    }
    ln_ids_free(&all);
    return done(tok, ln_text_end(&work, st, err));
}

ln_status ln_detokenize(const ln_tokenizer *tok, const int32_t *ids, size_t n_ids, bool skip_special,
                        char *text, size_t cap, size_t *bytes, ln_error *err) {
    void *t;
    ln_str s = {0};
    ARG((ids || n_ids == 0) && bytes && (text || cap == 0), "ids and bytes must not be NULL, text not with a "
                                                            "capacity");
    LN_TRY(ln_handle_use(LN_HANDLE_TOKENIZER, tok, &t, err));
    ln_text_work work;
    ln_text_begin(&work);
    ln_status st = ln_tok_decode(t, ids, n_ids, skip_special, &s, err);
    if (st == LN_OK) {
        *bytes = s.len;
        if (s.len > 0 && cap > 0) memcpy(text, s.data, LN_MIN(s.len, cap));
    }
    ln_str_free(&s);
    return done(tok, ln_text_end(&work, st, err));
}

ln_status ln_token_bytes(const ln_tokenizer *tok, int32_t id, char *out, size_t cap, size_t *bytes,
                         bool *special, ln_error *err) {
    void *t;
    ln_str s = {0};
    ARG(bytes && (out || cap == 0), "bytes must not be NULL, out not with a capacity");
    LN_TRY(ln_handle_use(LN_HANDLE_TOKENIZER, tok, &t, err));
    ln_status st = ln_tok_bytes(t, id, &s, err);
    if (st == LN_OK) {
        *bytes = s.len;
        if (s.len > 0 && cap > 0) memcpy(out, s.data, LN_MIN(s.len, cap));
        if (special) *special = ln_tok_is_special(t, id);
    }
    ln_str_free(&s);
    return done(tok, st);
}

/* ---- models on this machine, and the machine ---- */

ln_status ln_list(const char *dir, ln_found_fn *fn, void *user, ln_error *err) {
    ARG(fn, "fn must not be NULL");
    return ln_list_models(dir, fn, user, err);
}

static ln_status examine(bool measure, uint64_t memory_bytes, int n_threads, ln_machine *out, ln_error *err) {
    ln_machine all;
    LN_TRY(ln_api_check_size(out, sizeof out->size, "ln_machine", err));
    const ln_status st = ln_run_doctor(measure, memory_bytes, n_threads, &all, err);
    ln_api_give_sized(out, sizeof all, &all); /* facts are known where measuring failed */
    return st;
}

ln_status ln_doctor(bool measure, int n_threads, ln_machine *out, ln_error *err) {
    ARG(out, "out must not be NULL");
    return examine(measure, 0, n_threads, out, err);
}

ln_status ln_doctor_within(uint64_t memory_bytes, int n_threads, ln_machine *out, ln_error *err) {
    ARG(out, "out must not be NULL");
    return examine(true, memory_bytes, n_threads, out, err);
}

ln_status ln_guard_files(ln_error *err) { return ln_guard_install(ln_api_error(err)); }
