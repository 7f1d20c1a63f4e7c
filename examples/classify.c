/* Chooses the label that the model finds likeliest after each of some texts.
 * usage: classify MODEL LABEL,LABEL... TEXT... */
#include <linnet.h>
#include <linnet_tools.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LABELS = 64 };

typedef struct task {
    const char *labels[MOST_LABELS];
    size_t n_labels;
} task;

/* Called for each text, in their order. */
static ln_status on_class(void *user, const ln_class *result, ln_error *err) {
    const task *t = user;
    (void)err;
    if (result->status != LN_OK) printf("%zu: %s\n", result->index, result->error);
    else printf("%s\t%.6f\n", t->labels[result->label], result->probabilities[result->label]);
    return LN_OK;
}

/* Cuts a list at its commas. */
static void cut(task *t, char *list) {
    for (char *at = list; at && t->n_labels < MOST_LABELS;) {
        char *comma = strchr(at, ',');
        if (comma) *comma++ = '\0';
        t->labels[t->n_labels++] = at;
        at = comma;
    }
}

int main(int argc, char **argv) {
    ln_model *model = NULL;
    ln_engine *engine = NULL;
    ln_options options = ln_options_default();
    ln_classify_options how = ln_classify_options_default();
    ln_error err;
    task t = {0};
    if (argc < 4) return fprintf(stderr, "usage: classify MODEL LABEL,LABEL... TEXT...\n"), LN_EUSAGE;
    const size_t n = (size_t)argc - 3;
    ln_prompt *prompts = calloc(n, sizeof *prompts);
    if (!prompts) return LN_EMEMORY;
    for (size_t i = 0; i < n; i++) {
        prompts[i] = ln_prompt_default();
        prompts[i].text = argv[i + 3];
        prompts[i].text_bytes = strlen(argv[i + 3]);
        prompts[i].tmpl = LN_TEMPLATE_RAW;
    }
    cut(&t, argv[2]);
    how.labels = t.labels;
    how.n_labels = t.n_labels;
    options.n_parallel = 16;      /* texts that share steps: more is faster */
    options.kv_bytes = 256 << 20; /* of keys and values, which they share, too */
    ln_status st = ln_model_open(&model, argv[1], &options, &err);
    if (st == LN_OK) st = ln_engine_open(&engine, model, &options, &err);
    if (st == LN_OK) st = ln_classify(engine, prompts, n, &how, on_class, &t, NULL, &err);
    if (st != LN_OK) fprintf(stderr, "%s\n", err.message);
    ln_engine_close(&engine);
    ln_model_close(&model);
    free(prompts);
    return st;
}
