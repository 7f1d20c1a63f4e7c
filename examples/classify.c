/* Chooses the label that the model finds likeliest after a text: sum of the label's log-probabilities.
 * usage: classify MODEL TEXT LABEL LABEL... */
#include <linnet.h>

#include <stdio.h>
#include <string.h>

enum { MOST = 2048 };

/* The ids of a text and something after it, as one text: tokens may span the border. */
static ln_status ids_of(const ln_model *model, const char *text, const char *more, int32_t *ids, size_t *n,
                        ln_error *err) {
    char all[4096];
    int bytes = snprintf(all, sizeof all, "%s%s", text, more);
    if (bytes < 0 || (size_t)bytes >= sizeof all)
        return snprintf(err->message, sizeof err->message, "the text is too long"), LN_EUSAGE;
    ln_prompt prompt = {.text = all, .text_bytes = (size_t)bytes, .tmpl = LN_TEMPLATE_RAW};
    ln_status st = ln_prompt_ids(model, &prompt, ids, MOST, n, err);
    if (st != LN_OK || *n <= MOST) return st;
    return snprintf(err->message, sizeof err->message, "the text has %zu tokens, at most %d fit here", *n,
                    MOST),
           LN_EUSAGE;
}

typedef struct sum {
    int64_t from; /* the label's first token */
    double logprob;
} sum;

static ln_status on_row(void *user, int64_t t, double logprob, const ln_top *top, size_t n_top,
                        const float *logits, int64_t n_vocab, ln_error *err) {
    sum *s = user;
    (void)top, (void)n_top, (void)logits, (void)n_vocab, (void)err;
    if (t >= s->from) s->logprob += logprob;
    return LN_OK;
}

static ln_status score(ln_engine *engine, const ln_model *model, const char *text, const char *label,
                       double *logprob, ln_error *err) {
    static int32_t plain[MOST], ids[MOST];
    size_t n_plain, n;
    sum s = {0};
    ln_status st = ids_of(model, text, "", plain, &n_plain, err);
    if (st == LN_OK) st = ids_of(model, text, label, ids, &n, err);
    if (st != LN_OK) return st;
    while (s.from < (int64_t)n_plain && s.from < (int64_t)n && plain[s.from] == ids[s.from]) s.from++;
    st = ln_score(engine, ids, n, 0, on_row, &s, NULL, err);
    *logprob = s.logprob;
    return st;
}

int main(int argc, char **argv) {
    ln_model *model = NULL;
    ln_engine *engine = NULL;
    ln_options options = ln_options_default();
    ln_error err;
    const char *best = NULL;
    double most = 0;
    if (argc < 4) return fprintf(stderr, "usage: classify MODEL TEXT LABEL LABEL...\n"), LN_EUSAGE;
    options.n_logits = 16; /* rows whose logits are held at once: more is faster, each takes 4 bytes a word of
                              the vocabulary */
    ln_status st = ln_model_open(&model, argv[1], &options, &err);
    if (st == LN_OK) st = ln_engine_open(&engine, model, &options, &err);
    for (int i = 3; st == LN_OK && i < argc; i++) {
        double logprob = 0;
        st = score(engine, model, argv[2], argv[i], &logprob, &err);
        if (st != LN_OK) break;
        printf("%9.3f %s\n", logprob, argv[i]);
        if (!best || logprob > most) best = argv[i], most = logprob;
    }
    if (st == LN_OK) printf("%s\n", best);
    else fprintf(stderr, "%s\n", err.message);
    ln_engine_close(&engine);
    ln_model_close(&model);
    return st;
}
