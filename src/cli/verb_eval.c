/* linnet eval: the perplexity of a text in windows. */
#include "cli.h"

enum { TEXT_MOST = 1 << 30, WINDOW = 2048, WINDOWS_AT_ONCE = 2 };

static ln_status read_text(const args *a, const ln_model *model, int32_t **ids, size_t *n, ln_error *err) {
    char *data = NULL, shown[80], path[LN_PATH_TEXT];
    const char *name;
    size_t bytes, good;
    ln_status st = LN_OK;
    LN_TRY(file_read(a, "the text", TEXT_MOST, &name, &data, &bytes, err));
    good = ln_utf8_valid(data, bytes);
    if (good < bytes)
        LN_GO(ln_fail(err, LN_EINVALID, "%s: byte %zu: expected UTF-8, found '%s'", ln_path_text(path, name),
                      good, ln_excerpt(shown, data + good, LN_MIN(bytes - good, (size_t)4))));
    if (bytes == 0) LN_GO(ln_fail(err, LN_EINVALID, "%s: the text is empty", ln_path_text(path, name)));
    ln_prompt p = {.size = sizeof(ln_prompt), .text = data, .text_bytes = bytes, .tmpl = LN_TEMPLATE_RAW};
    LN_GO(prompt_ids(model, &p, ids, n, err));
out:
    ln_free(data);
    return st;
}

ln_status eval_size(const args *a, const ln_info *info, ln_options *opt, ln_error *err) {
    const int64_t context = has(a, F_CTX) ? LN_MIN(opt->n_ctx, info->n_ctx_max) : info->n_ctx_max;
    int64_t window = has(a, F_WINDOW) ? a->flag[F_WINDOW].i : LN_MIN(context, (int64_t)WINDOW);
    const bool cut = window > context;
    if (cut) window = context;
    if (has(a, F_STRIDE) && a->flag[F_STRIDE].i > window)
        return ln_fail(err, LN_EUSAGE, "--stride %lld: expected at most the window, %lld%s",
                       (long long)a->flag[F_STRIDE].i, (long long)window, cut ? ", the whole context" : "");
    if (cut)
        note("--window %lld is cut to the context of %lld positions", (long long)a->flag[F_WINDOW].i,
             (long long)context);
    if (!has(a, F_CTX)) opt->n_ctx = window;
    if (opt->n_parallel == 0) opt->n_parallel = WINDOWS_AT_ONCE;
    return LN_OK;
}

static ln_status print_result(const args *a, const ln_evaluation *e, ln_error *err) {
    ln_str s = {0};
    if (!has(a, F_JSON)) {
        ln_str_addf(&s, "tokens      %lld\ncounted     %lld\nnll         %.6f\nperplexity  %.6f\n",
                    (long long)e->tokens, (long long)e->counted, e->nll, e->perplexity);
        ln_str_addf(&s, "window      %lld, stride %lld\n", (long long)e->window, (long long)e->stride);
        return out_str(&s, err);
    }
    ln_str_add(&s, "{", 1);
    put_int(&s, "tokens", e->tokens);
    put_int(&s, "counted", e->counted);
    put_real(&s, "nll", e->nll);
    put_real(&s, "perplexity", e->perplexity);
    put_int(&s, "window", e->window);
    put_int(&s, "stride", e->stride);
    ln_str_adds(&s, "}\n");
    return out_str(&s, err);
}

ln_status cmd_eval(const args *a, ln_error *err) {
    session s = {0};
    ln_metrics m = {0};
    ln_evaluation result = {.size = sizeof result};
    ln_info *info = ln_zalloc(1, sizeof *info);
    ln_status st = LN_OK;
    if (!info) return LN_OOM(err, "a model's facts");
    info->size = sizeof *info;
    LN_GO(options_of(a, &s.opt, err));
    LN_GO(ln_model_open(&s.model, a->model, &s.opt, err));
    LN_GO(ln_model_info(s.model, info, err));
    LN_GO(eval_size(a, info, &s.opt, err));
    note_embed_scale(info);
    LN_GO(read_text(a, s.model, &s.ids, &s.n_ids, err));
    LN_GO(ln_engine_open(&s.engine, s.model, &s.opt, err));
    signals_working(s.engine);
    st = ln_evaluate(s.engine, s.ids, s.n_ids, a->flag[F_WINDOW].i, a->flag[F_STRIDE].i, &result, &m, err);
    signals_working(NULL);
    LN_GO(st);
    LN_GO(print_result(a, &result, err));
    if (has(a, F_STATS)) stats_print(&m);
out:
    session_close(&s);
    ln_free(info);
    return st;
}
