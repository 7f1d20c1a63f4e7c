/* What rounding weights costs a model: the perplexity of a text that the model wrote itself, before and
 * after.
 *
 * The model writes SAMPLE tokens, sampled from its own probabilities in its own language and subject, so that
 * the mean difference of their log-probabilities estimates the divergence of the two models. A text that
 * comes with this program would be foreign to many models, and foreign texts hide the loss. */
#include "cli.h"

#include <math.h>
#include <string.h>

enum { SAMPLE = 128, CONTEXT = 512 };

typedef struct sample {
    int32_t *ids; /* of the prompt and of what was written */
    size_t n, n_prompt;
    double sum; /* log-probabilities of what was written */
} sample;

static ln_status on_score(void *user, int64_t t, double logprob, const ln_top *top, size_t n_top,
                          const float *logits, int64_t n_vocab, ln_error *err) {
    sample *s = user;
    (void)top, (void)n_top, (void)logits, (void)n_vocab, (void)err;
    if (t >= (int64_t)s->n_prompt) s->sum += logprob;
    return signals_seen() ? LN_ECANCELLED : LN_OK;
}

static ln_status write_sample(ln_engine *engine, sample *s, ln_error *err) {
    static const char text[] = "Tell me a story about a river.";
    const ln_sampling how = {.size = sizeof how,
                             .temperature = 1,
                             .top_p = 1,
                             .repeat_penalty = 1,
                             .n_max = SAMPLE,
                             .has_seed = true,
                             .seed = 1,
                             .ignore_eos = true};
    ln_prompt p = ln_prompt_default();
    ln_result r = {.size = sizeof r};
    p.text = text, p.text_bytes = sizeof text - 1;
    ln_status st = ln_generate(engine, &p, &how, NULL, NULL, &r, err);
    if (st == LN_OK) {
        s->n_prompt = r.n_prompt_ids;
        s->n = r.n_prompt_ids + r.n_ids;
        s->ids = ln_alloc(s->n * sizeof *s->ids);
        if (!s->ids) st = LN_OOM(err, "a sample");
    }
    if (st == LN_OK) {
        memcpy(s->ids, r.prompt_ids, r.n_prompt_ids * sizeof *s->ids);
        memcpy(s->ids + r.n_prompt_ids, r.ids, r.n_ids * sizeof *s->ids);
    }
    ln_result_free(&r);
    return st;
}

/* Scores the sample with a model, which writes it if there is none yet. */
static ln_status score_with(const char *path, int n_threads, sample *s, ln_error *err) {
    ln_options o = ln_options_default();
    ln_model *model = NULL;
    ln_engine *engine = NULL;
    ln_status st = LN_OK;
    o.n_threads = n_threads;
    o.n_ctx = CONTEXT;
    o.progress = progress_line();
    s->sum = 0;
    LN_GO(ln_model_open(&model, path, &o, err));
    LN_GO(ln_engine_open(&engine, model, &o, err));
    if (!s->ids) LN_GO(write_sample(engine, s, err));
    st = ln_score(engine, s->ids, s->n, 0, on_score, s, NULL, err);
out:
    progress_wipe();
    ln_engine_close(&engine);
    ln_model_close(&model);
    return st;
}

double rounding_measure(const char *before, const char *after, int n_threads) {
    sample s = {0};
    ln_error why = {0};
    double was = 0;
    ln_status st = score_with(before, n_threads, &s, &why);
    if (st == LN_OK) was = s.sum;
    if (st == LN_OK) st = score_with(after, n_threads, &s, &why);
    const double n = (double)(s.n - s.n_prompt);
    ln_free(s.ids);
    if (st == LN_EMEMORY) note("what rounding costs was not measured: %s", why.message);
    return st == LN_OK && n > 0 ? exp((was - s.sum) / n) : (double)NAN;
}

void rounding_warn(double ratio, int bits) {
    if (!(ratio > ROUNDING_HURTS)) return;
    note("warning: rounding raises the perplexity of what this model writes by %.0f %% (more than %.0f %% "
         "hurts): "
         "%s",
         100 * (ratio - 1), 100 * (ROUNDING_HURTS - 1),
         bits < 8 ? "take more --bits, a smaller --group, or keep matrices wider with --keep"
                  : "keep the matrices with the largest errors wider with --keep");
}
