/* linnet score: log-probabilities of a text token by token, and its logits as a file.
 *
 * Rows arrive in order, one callback each; logits are streamed to the file, so that memory does not limit
 * its size. The file gets its name when it is complete. */
#include "cli.h"

#include "../base/elementary.h"

#include <string.h>

typedef struct scoring {
    const args *a;
    const int32_t *ids;
    int64_t n_rows;
    ln_tokenizer *tok; /* NULL: no lines per token are printed */
    ln_str logprobs, top;
    double sum;
    ln_out file;
    bool writing;
} scoring;

static ln_status write_logits(scoring *s, int64_t t, const float *logits, int64_t n_vocab, ln_error *err) {
    if (t == 0) {
        tensor_head h = {.name = "logits", .shape = {s->n_rows, n_vocab}, .n_dims = 2};
        LN_TRY(tensors_begin(&s->file, &h, 1, err));
    }
    return ln_out_write(&s->file, logits, (size_t)n_vocab * sizeof *logits, err);
}

static void add_top(ln_str *s, const ln_top *top, size_t n) {
    ln_str_adds(s, s->len ? ",[" : "[");
    for (size_t i = 0; i < n; i++) {
        ln_str_adds(s, i ? ",{" : "{");
        put_int(s, "id", top[i].id);
        put_real(s, "logprob", top[i].logprob);
        ln_str_add(s, "}", 1);
    }
    ln_str_add(s, "]", 1);
}

/* Appends a token's text as a JSON string, so that newlines are escaped. */
static void add_token(ln_str *s, const ln_tokenizer *tok, int32_t id) {
    char text[512];
    size_t bytes = 0;
    ln_error none;
    if (ln_detokenize(tok, &id, 1, false, text, sizeof text, &bytes, &none) != LN_OK)
        bytes = 0; /* an id without text */
    ln_str_json(s, text, LN_MIN(bytes, sizeof text));
}

/* Prints a line for a token, separated by tabs: position, id, log-probability, text; then the likeliest
 * tokens at the next position as id, text and log-probability. */
static ln_status print_row(const scoring *s, int64_t t, double logprob, const ln_top *top, size_t n_top,
                           ln_error *err) {
    ln_str line = {0};
    ln_str_addf(&line, "%lld\t%d\t", (long long)t, s->ids[t]);
    if (t > 0) ln_str_addf(&line, "%.6f\t", logprob);
    else ln_str_adds(&line, "-\t");
    add_token(&line, s->tok, s->ids[t]);
    for (size_t i = 0; i < n_top; i++) {
        ln_str_addf(&line, "\t%d ", top[i].id);
        add_token(&line, s->tok, top[i].id);
        ln_str_addf(&line, " %.6f", top[i].logprob);
    }
    ln_str_add(&line, "\n", 1);
    return out_str(&line, err);
}

static ln_status on_row(void *user, int64_t t, double logprob, const ln_top *top, size_t n_top,
                        const float *logits, int64_t n_vocab, ln_error *err) {
    scoring *s = user;
    if (t > 0) s->sum += logprob;
    if (s->tok) LN_TRY(print_row(s, t, logprob, top, n_top, err));
    if (s->logprobs.len) ln_str_add(&s->logprobs, ",", 1);
    if (t > 0) ln_str_double(&s->logprobs, logprob);
    else ln_str_adds(&s->logprobs, "null");
    if (has(s->a, F_TOP)) add_top(&s->top, top, n_top);
    return s->writing ? write_logits(s, t, logits, n_vocab, err) : LN_OK;
}

static ln_status print_result(const scoring *s, const int32_t *ids, size_t n, const ln_metrics *m,
                              ln_error *err) {
    ln_str out = {0};
    double perplexity = n > 1 ? ln_exp64(-s->sum / (double)(n - 1)) : (double)NAN;
    if (!has(s->a, F_JSON)) {
        ln_str_addf(&out, "tokens       %zu\nsum logprob  %.6f\n", n, s->sum);
        if (n > 1) ln_str_addf(&out, "perplexity   %.6f\n", perplexity);
        return out_str(&out, err);
    }
    if (s->logprobs.failed || s->top.failed) return LN_OOM(err, "the result");
    ln_str_add(&out, "{", 1);
    put_ids(&out, "ids", ids, n);
    put_key(&out, "logprobs");
    ln_str_add(&out, "[", 1);
    ln_str_add(&out, s->logprobs.data, s->logprobs.len);
    ln_str_add(&out, "]", 1);
    put_real(&out, "sum_logprob", s->sum);
    put_real(&out, "perplexity", perplexity);
    if (has(s->a, F_TOP)) {
        put_key(&out, "top");
        ln_str_add(&out, "[", 1);
        ln_str_add(&out, s->top.data, s->top.len);
        ln_str_add(&out, "]", 1);
    }
    put_metrics(&out, m);
    ln_str_adds(&out, "}\n");
    return out_str(&out, err);
}

static ln_status score_ids(scoring *s, ln_engine *engine, const int32_t *ids, size_t n, ln_metrics *m,
                           ln_error *err) {
    signals_working(engine);
    ln_status st = ln_score(engine, ids, n, (size_t)s->a->flag[F_TOP].i, on_row, s, m, err);
    signals_working(NULL);
    if (st != LN_OK || !s->writing) return st;
    return ln_out_commit(&s->file, err);
}

static ln_status note_scale(const ln_model *model, ln_error *err) {
    ln_info *info = ln_zalloc(1, sizeof *info);
    if (!info) return LN_OOM(err, "a model's facts");
    info->size = sizeof *info;
    const ln_status st = ln_model_info(model, info, err);
    if (st == LN_OK) note_embed_scale(info);
    ln_free(info);
    return st;
}

ln_status cmd_score(const args *a, ln_error *err) {
    session in = {0};
    ln_metrics m;
    ln_status st = LN_OK;
    scoring s = {.a = a};
    LN_GO(options_of(a, &in.opt, err));
    if (has(a, F_LOGITS)) { /* check that the file can be written before anything is loaded */
        LN_GO(ln_out_open(&s.file, a->flag[F_LOGITS].text, has(a, F_FORCE), err));
        s.writing = true;
        signals_file(s.file.tmp);
    }
    if (has(a, F_TOP) && !has(a, F_JSON)) LN_GO(ln_tokenizer_open(&s.tok, a->model, err));
    LN_GO(session_open(&in, a, err));
    LN_GO(note_scale(in.model, err));
    s.n_rows = (int64_t)in.n_ids;
    s.ids = in.ids;
    LN_GO(score_ids(&s, in.engine, in.ids, in.n_ids, &m, err));
    LN_GO(print_result(&s, in.ids, in.n_ids, &m, err));
    if (has(a, F_STATS)) stats_print(&m);
out:
    signals_file(NULL);
    if (s.writing) ln_out_abort(&s.file);
    ln_str_free(&s.logprobs);
    ln_str_free(&s.top);
    ln_tokenizer_close(&s.tok);
    session_close(&in);
    return st;
}
