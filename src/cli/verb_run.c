/* linnet run: generates text after a prompt and writes it as it becomes final.
 *
 * The text goes to stdout piece by piece, or with --json as one object at the end. Being stopped, by
 * Ctrl-C or by a reader that closed the pipe, is not an error: the generated text is kept. */
#include "cli.h"

#include <string.h>

static ln_status print_json(const ln_result *r, ln_error *err) {
    static const char *const reasons[] = {"stop", "length", "cancelled"};
    ln_str s = {0};
    ln_str_add(&s, "{", 1);
    put_ids(&s, "prompt_ids", r->prompt_ids, r->n_prompt_ids);
    put_ids(&s, "ids", r->ids, r->n_ids);
    put_key(&s, "text");
    ln_str_json(&s, r->text, r->text_bytes);
    put_key(&s, "reasoning");
    ln_str_json(&s, r->reasoning, r->reasoning_bytes);
    put_text(&s, "finish_reason", reasons[r->finish]);
    put_uint(&s, "seed", r->seed);
    put_metrics(&s, &r->metrics);
    ln_str_adds(&s, "}\n");
    return out_str(&s, err);
}

static ln_status load_kv(const args *a, ln_engine *engine, ln_error *err) {
    size_t n;
    if (!has(a, F_LOAD_KV)) return LN_OK;
    LN_TRY(ln_seq_load(engine, a->flag[F_LOAD_KV].text, &n, err));
    if (has(a, F_VERBOSE)) note("--load-kv: keys and values of %zu tokens", n);
    return LN_OK;
}

/* Saves the keys and values of prompt and answer; those of its last token were never needed. */
static ln_status save_kv(const args *a, ln_engine *engine, const ln_result *r, ln_error *err) {
    size_t n = r->n_prompt_ids + r->n_ids;
    if (!has(a, F_SAVE_KV)) return LN_OK;
    int32_t *ids = ln_alloc(n * sizeof *ids);
    if (!ids) return LN_OOM(err, "token ids");
    memcpy(ids, r->prompt_ids, r->n_prompt_ids * sizeof *ids);
    if (r->n_ids > 0) memcpy(ids + r->n_prompt_ids, r->ids, r->n_ids * sizeof *ids);
    const char *path = a->flag[F_SAVE_KV].text;
    const ln_status st = has(a, F_FORCE) ? ln_seq_save(engine, ids, n, path, &n, err)
                                         : ln_seq_save_new(engine, ids, n, path, &n, err);
    ln_free(ids);
    if (st == LN_OK && has(a, F_VERBOSE)) {
        out_end_line();
        note("--save-kv: keys and values of %zu tokens", n);
    }
    return st;
}

/* Prints the ids of an answer whose model has no tokenizer. */
static ln_status print_ids(const ln_result *r, ln_error *err) {
    ln_str s = {0};
    for (size_t i = 0; i < r->n_ids; i++) ln_str_addf(&s, i ? " %d" : "%d", r->ids[i]);
    ln_str_adds(&s, "\n");
    return out_str(&s, err);
}

/* Generates on the engine or, if that is NULL, on the model of a backend. `ids_only`: the answer has no
 * text. */
static ln_status generate(const args *a, ln_engine *engine, ln_backend_model *other, const ln_prompt *p,
                          ln_sampling *how, int64_t most, bool ids_only, ln_error *err) {
    ln_result r = {.size = sizeof r};
    text_output words = text_output_for(a);
    ln_text_fn *on_text = has(a, F_JSON) ? NULL : output_answer;
    if (!has(a, F_JSON)) how->on_reasoning = output_reasoning; /* the JSON object contains the reasoning */
    signals_working(engine);
    signals_working_on(other);
    ln_status st = engine ? ln_generate(engine, p, how, on_text, &words, &r, err)
                          : backend_generate(other, p, how, on_text, &words, &r, err);
    (void)output_end(&words, NULL);
    if (st == LN_OK && has(a, F_JSON)) st = print_json(&r, err);
    else if (st == LN_OK && ids_only) st = print_ids(&r, err);
    /* the shell's prompt must begin on a new line */
    if (!has(a, F_JSON) && !ids_only && out_is_tty() && (st == LN_OK || st == LN_ECANCELLED))
        st = out_write("\n", 1, err);
    if (st == LN_OK && !out_closed()) note_cut(&r, most);
    if (st == LN_OK && engine) st = save_kv(a, engine, &r, err);
    if (st == LN_OK && has(a, F_STATS)) {
        stats_print(&r.metrics);
        note("seed %llu", (unsigned long long)r.seed);
    }
    signals_working(NULL);
    signals_working_on(NULL);
    ln_result_free(&r);
    return st;
}

/* linnet run --backend. */
static ln_status run_on_backend(const args *a, ln_error *err) {
    input in = {0};
    ln_backend_model *model = NULL;
    ln_sampling how = {.size = sizeof how};
    ln_str grammar = {0};
    ln_info info = {.size = sizeof info};
    ln_status st = LN_OK;
    LN_GO(input_read(&in, a, true, err));
    LN_GO(backend_open(a, a->model ? a->model : "tiny", &model, err));
    LN_GO(ln_backend_sampling(model, &how, err));
    sampling_change(a, &how);
    LN_GO(grammar_of(a, &grammar, &how, err));
    LN_GO(ln_backend_info(model, &info, err));
    start_note(a, &info, &how);
    const ln_prompt p = prompt_of(a, &in);
    st = generate(a, NULL, model, &p, &how, tokens_most(a, &info), false, err);
out:
    ln_backend_close(&model);
    ln_str_free(&grammar);
    input_free(&in);
    return st;
}

ln_status cmd_run(const args *a, ln_error *err) {
    if (other_backend(a)) return run_on_backend(a, err);
    input in = {0};
    ln_model *model = NULL;
    ln_engine *engine = NULL;
    ln_options opt;
    ln_sampling how = {.size = sizeof how};
    ln_str grammar = {0};
    ln_info info = {.size = sizeof info};
    ln_status st = LN_OK;
    LN_GO(options_of(a, &opt, err));
    LN_GO(input_read(&in, a, true, err));
    LN_GO(ln_model_open(&model, a->model ? a->model : "tiny", &opt, err));
    const bool ids_only = check_texts(model, NULL) != LN_OK;
    if (!in.ids) LN_GO(check_texts(model, err));
    LN_GO(sampling_of(a, model, &how, err));
    LN_GO(grammar_of(a, &grammar, &how, err));
    LN_GO(ln_model_info(model, &info, err));
    start_note(a, &info, &how);
    ln_prompt p = prompt_of(a, &in);
    size_t n_prompt = 0;
    LN_GO(ln_prompt_ids(model, &p, NULL, 0, &n_prompt, err));
    opt.n_expected = positions_needed(a, (int64_t)n_prompt);
    LN_GO(ln_engine_open(&engine, model, &opt, err));
    LN_GO(load_kv(a, engine, err));
    LN_GO(generate(a, engine, NULL, &p, &how, tokens_most(a, &info), ids_only, err));
out:
    ln_engine_close(&engine);
    ln_model_close(&model);
    ln_str_free(&grammar);
    input_free(&in);
    return st;
}
