/* ln_classify: scores as transformers computes them, the same bits in a crowd as alone and as ln_score has
 * them, in both numerics; order, errors of single prompts, ties, the next token, cancelling. */
/* run: quick cuda */
#include "golden_ids.h"
#include "../common.h"
#include "class_cases.h"

#include <pthread.h>

#define GOLDEN LN_ROOT "/tests/golden/"

static const char *const labels[] = {CLASS_LABELS};
enum { N_LABELS = CLASS_N_LABELS, MOST = 64, V_MOST = 300 };

/* ---- models, engines, prompts ---- */

typedef struct fixture {
    ln_model *model;
    ln_engine *engine;
    ln_info info;
    int32_t ids[MOST][200];
    ln_prompt prompts[MOST];
    size_t n;
} fixture;

static void open_engine(fixture *f, ln_options o) {
    ln_engine_close(&f->engine);
    if (o.n_threads == 0) o.n_threads = 2;
    OK(ln_engine_open(&f->engine, f->model, &o, err));
}

static fixture *open_model(const char *name, ln_options o) {
    char path[300];
    fixture *f = calloc(1, sizeof *f);
    (void)snprintf(path, sizeof path, GOLDEN "%s", name);
    OK(ln_model_open(&f->model, path, &o, err));
    f->info.size = sizeof f->info;
    OK(ln_model_info(f->model, &f->info, err));
    open_engine(f, o);
    return f;
}

static void close_model(fixture *f) {
    ln_engine_close(&f->engine);
    ln_model_close(&f->model);
    free(f);
}

static void add_prompt(fixture *f, int n, uint32_t seed) {
    make_ids(f->ids[f->n], n, f->info.vocab_size, seed);
    f->prompts[f->n] = (ln_prompt){.size = sizeof(ln_prompt), .ids = f->ids[f->n], .n_ids = (size_t)n};
    f->n++;
}

/* Prompts shorter and longer than the windows of the golden models, and than a page. */
static void add_ragged(fixture *f, size_t n) {
    static const int lengths[] = {1, 40, 3, 7, 70, 8, 2, 15, 33, 64, 5, 16};
    for (size_t i = 0; i < n; i++) add_prompt(f, lengths[i % LN_COUNT(lengths)], (uint32_t)i + 1);
}

/* ---- results ---- */

typedef struct answers {
    size_t n_labels;   /* of the call: the length of scores and probabilities */
    size_t n;          /* results so far */
    size_t stop_after; /* 0: never */
    ln_engine *cancel; /* cancelled by the first result */
    struct answer {
        ln_status status;
        char error[200];
        int label;
        double scores[N_LABELS], probabilities[N_LABELS];
        int32_t token;
        char text[64];
        double logprob;
        float logits[V_MOST];
    } at[MOST];
} answers;

static ln_status on_class(void *user, const ln_class *c, ln_error *err) {
    answers *a = user;
    struct answer *x = &a->at[a->n];
    (void)err;
    assert_int_equal(c->index, a->n++);
    assert_true(c->size == sizeof *c);
    x->status = c->status;
    assert_int_equal(c->error != NULL, c->status != LN_OK);
    if (c->error) (void)snprintf(x->error, sizeof x->error, "%s", c->error);
    x->label = c->label;
    if (c->scores) memcpy(x->scores, c->scores, a->n_labels * sizeof *x->scores);
    if (c->probabilities) memcpy(x->probabilities, c->probabilities, a->n_labels * sizeof *x->probabilities);
    if (c->logits) memcpy(x->logits, c->logits, (size_t)c->n_vocab * sizeof(float));
    if (c->status == LN_OK && c->label < 0) {
        x->token = c->token;
        x->logprob = c->logprob;
        (void)snprintf(x->text, sizeof x->text, "%.*s", (int)c->text_bytes, c->text);
    }
    if (a->cancel) ln_cancel(a->cancel, true);
    return a->n == a->stop_after ? LN_ECANCELLED : LN_OK;
}

static ln_classify_options with_labels(size_t n) {
    ln_classify_options o = ln_classify_options_default();
    o.labels = labels;
    o.n_labels = n;
    return o;
}

static answers *new_answers(const ln_classify_options *o) {
    answers *a = calloc(1, sizeof *a);
    assert_non_null(a);
    a->n_labels = o->n_labels;
    return a;
}

static answers *classify(fixture *f, const ln_classify_options *o) {
    answers *a = new_answers(o);
    OK(ln_classify(f->engine, f->prompts, f->n, o, on_class, a, NULL, err));
    assert_int_equal(a->n, f->n);
    return a;
}

/* ---- scoring by ln_score ---- */

typedef struct rows {
    int64_t n_prompt, n_vocab;
    double sum;
    float logits[V_MOST]; /* after the prompt */
} rows;

static ln_status on_row(void *user, int64_t t, double logprob, const ln_top *top, size_t n_top,
                        const float *logits, int64_t n_vocab, ln_error *err) {
    rows *r = user;
    (void)top, (void)n_top, (void)err;
    if (t >= r->n_prompt) r->sum += logprob;
    if (t == r->n_prompt - 1) memcpy(r->logits, logits, (size_t)n_vocab * sizeof *logits);
    return LN_OK;
}

static size_t label_ids(const fixture *f, const char *label, int32_t *ids) {
    size_t n = 0;
    OK(ln_tokenize(ln_model_tokenizer(f->model), label, strlen(label), false, ids, 16, &n, err));
    return n;
}

/* The score of a label after prompt i, computed as one text of one sequence. */
static rows score_alone(fixture *f, size_t i, const char *label, size_t *n_label) {
    int32_t ids[300];
    rows r = {.n_prompt = (int64_t)f->prompts[i].n_ids};
    memcpy(ids, f->prompts[i].ids, f->prompts[i].n_ids * sizeof *ids);
    *n_label = label_ids(f, label, ids + r.n_prompt);
    OK(ln_score(f->engine, ids, (size_t)r.n_prompt + *n_label, 0, on_row, &r, NULL, err));
    return r;
}

/* ---- tests ---- */

static void scores_are_those_of_transformers(void **state) {
    (void)state;
    for (size_t m = 0; m < LN_COUNT(class_cases); m++) {
        fixture *f = open_model(class_cases[m].model,
                                (ln_options){.size = sizeof(ln_options), .n_parallel = 4, .n_chunk = 16});
        for (int i = 0; i < CLASS_N_PROMPTS; i++) add_prompt(f, class_lengths[i], (uint32_t)class_lengths[i]);
        ln_classify_options o = with_labels(N_LABELS);
        answers *a = classify(f, &o);
        double worst = 0;
        for (int i = 0; i < CLASS_N_PROMPTS; i++)
            for (int k = 0; k < N_LABELS; k++) {
                int32_t ids[16];
                assert_int_equal(label_ids(f, labels[k], ids), class_cases[m].n_tokens[k]);
                double off =
                    fabs(a->at[i].scores[k] - class_cases[m].scores[i][k]) / class_cases[m].n_tokens[k];
                worst = LN_MAX(worst, off);
            }
        print_message("%s: %.2g of the bound\n", class_cases[m].model, worst / class_cases[m].bound);
        assert_true(worst <= class_cases[m].bound);
        free(a);
        close_model(f);
    }
}

/* The defects of padded batches: positions counted from the longest prompt, windows that do not fit, logits
 * of a padded row. Every prompt has the bits that it has alone and in ln_score. */
static void same_bits_as_alone(const char *model, ln_numerics numerics) {
    fixture *f = open_model(model, (ln_options){.size = sizeof(ln_options),
                                                .numerics = numerics,
                                                .n_parallel = 5,
                                                .n_chunk = 24,
                                                .n_ctx = 128});
    ln_classify_options o = with_labels(N_LABELS);
    o.want_logits = true;
    add_ragged(f, (size_t)fewer(24, 12));
    answers *crowd = classify(f, &o);
    open_engine(f, (ln_options){.size = sizeof(ln_options),
                                .numerics = numerics,
                                .n_threads = 1,
                                .n_logits = 8,
                                .n_ctx = 128});
    for (size_t i = 0; i < f->n; i++) {
        const struct answer *x = &crowd->at[i];
        answers *alone = new_answers(&o);
        OK(ln_classify(f->engine, &f->prompts[i], 1, &o, on_class, alone, NULL, err));
        assert_memory_equal(alone->at[0].scores, x->scores, sizeof x->scores);
        assert_memory_equal(alone->at[0].probabilities, x->probabilities, sizeof x->probabilities);
        assert_int_equal(alone->at[0].label, x->label);
        free(alone);
        for (int k = 0; k < N_LABELS; k++) {
            size_t n;
            rows r = score_alone(f, i, labels[k], &n);
            assert_memory_equal(&r.sum, &x->scores[k], sizeof r.sum);
            assert_memory_equal(r.logits, x->logits, (size_t)f->info.vocab_size * sizeof(float));
        }
    }
    free(crowd);
    close_model(f);
}

static void ragged_prompts_have_the_bits_of_single_ones(void **state) {
    (void)state;
    same_bits_as_alone("llama-plain-f32", LN_EXACT);
    same_bits_as_alone("qwen3-f16", LN_FAST);
    same_bits_as_alone("gemma3-text-bf16", LN_FAST);
    same_bits_as_alone("gemma3-text-f32", LN_EXACT);
}

static void probabilities_are_the_softmax(void **state) {
    (void)state;
    fixture *f = open_model("llama-plain-f32", (ln_options){.size = sizeof(ln_options), .n_parallel = 3});
    ln_classify_options o = with_labels(N_LABELS);
    add_ragged(f, 12);
    answers *sum = classify(f, &o);
    o.normalize = LN_NORMALIZE_TOKENS;
    answers *mean = classify(f, &o);
    for (size_t i = 0; i < f->n; i++) {
        double all = 0, total = 0;
        const struct answer *x = &sum->at[i];
        for (int k = 0; k < N_LABELS; k++) {
            int32_t ids[16];
            double n = (double)label_ids(f, labels[k], ids), expected = x->scores[k] / n;
            assert_memory_equal(&mean->at[i].scores[k], &expected, sizeof expected);
            assert_true(x->scores[k] <= x->scores[x->label] &&
                        mean->at[i].scores[k] <= mean->at[i].scores[mean->at[i].label]);
            all += exp(x->scores[k]);
            total += x->probabilities[k];
        }
        /* exp and the sums of N_LABELS terms round to a few parts in 2^53 */
        for (int k = 0; k < N_LABELS; k++)
            assert_true(fabs(x->probabilities[k] - exp(x->scores[k]) / all) <= 64 * 0x1p-53);
        assert_true(fabs(total - 1) <= 2 * N_LABELS * 0x1p-53);
    }
    free(sum);
    free(mean);
    close_model(f);
}

/* Two spellings of the same ids have the same score: the first wins. */
static void the_first_of_equal_labels_wins(void **state) {
    (void)state;
    static const char *const twins[] = {"b", "and", "and", "b"};
    fixture *f = open_model("llama-plain-f32", (ln_options){.size = sizeof(ln_options), .n_parallel = 3});
    add_ragged(f, 12);
    ln_classify_options o = with_labels(4);
    o.labels = twins;
    answers *a = classify(f, &o);
    for (size_t i = 0; i < f->n; i++) {
        assert_true(a->at[i].label < 2);
        assert_memory_equal(&a->at[i].scores[0], &a->at[i].scores[3], sizeof(double));
        assert_memory_equal(&a->at[i].scores[1], &a->at[i].scores[2], sizeof(double));
    }
    free(a);
    close_model(f);
}

/* ---- errors ---- */

static void a_prompt_that_fails_stops_no_other(void **state) {
    (void)state;
    static const int32_t beyond[] = {5, 9999};
    fixture *f =
        open_model("llama-plain-f32",
                   (ln_options){.size = sizeof(ln_options), .n_parallel = 3, .n_ctx = 32, .n_chunk = 8});
    ln_classify_options o = with_labels(N_LABELS);
    add_prompt(f, 30, 1); /* fits, but not with the longest label */
    add_prompt(f, 5, 2);
    add_prompt(f, 33, 3);
    f->prompts[f->n++] = (ln_prompt){.size = sizeof(ln_prompt), .ids = beyond, .n_ids = 2};
    f->prompts[f->n++] =
        (ln_prompt){.size = sizeof(ln_prompt), .text = "a\xff", .text_bytes = 2, .tmpl = LN_TEMPLATE_RAW};
    f->prompts[f->n++] = (ln_prompt){.size = sizeof(ln_prompt)};
    f->prompts[f->n++] = (ln_prompt){
        .size = sizeof(ln_prompt), .text = "", .tmpl = LN_TEMPLATE_RAW, .system = "x", .system_bytes = 1};
    add_prompt(f, 28, 5);
    answers *a = classify(f, &o);
    static const struct {
        ln_status status;
        const char *words;
    } expected[] = {{LN_EINVALID, "with a label of 5 tokens"},
                    {LN_OK, ""},
                    {LN_EINVALID, "33 tokens"},
                    {LN_EINVALID, "9999"},
                    {LN_EINVALID, "UTF-8"},
                    {LN_EUSAGE, ""},
                    {LN_EUSAGE, ""},
                    {LN_OK, ""}};
    assert_int_equal(LN_COUNT(expected), f->n);
    for (size_t i = 0; i < f->n; i++) {
        if (a->at[i].status != expected[i].status || !strstr(a->at[i].error, expected[i].words))
            fail_msg("prompt %zu: status %d: %s", i, a->at[i].status, a->at[i].error);
        assert_int_equal(a->at[i].label >= 0, expected[i].status == LN_OK);
    }
    free(a);
    o.n_labels = 2; /* of one token: the prompt of 30 tokens fits */
    a = classify(f, &o);
    assert_int_equal(a->at[0].status, LN_OK);
    free(a);
    close_model(f);
}

static void bad_arguments_are_refused(void **state) {
    (void)state;
    static const char *const empty[] = {"a", ""}, *const broken[] = {"a\xff"}, *const none[] = {NULL};
    fixture *f = open_model("llama-plain-f32", (ln_options){.size = sizeof(ln_options), .n_parallel = 2});
    answers *a = calloc(1, sizeof *a);
    add_ragged(f, 2);
    ln_classify_options o = ln_classify_options_default();
    ln_sampling how = {.size = sizeof(ln_sampling), .top_p = 2, .repeat_penalty = 1};
    o.labels = empty, o.n_labels = 2;
    FAILS(LN_EUSAGE, "label 2", ln_classify(f->engine, f->prompts, 2, &o, on_class, a, NULL, err));
    o.labels = broken, o.n_labels = 1;
    FAILS(LN_EINVALID, "label 1", ln_classify(f->engine, f->prompts, 2, &o, on_class, a, NULL, err));
    o.labels = none;
    FAILS(LN_EUSAGE, "label 1", ln_classify(f->engine, f->prompts, 2, &o, on_class, a, NULL, err));
    o.labels = NULL;
    FAILS(LN_EUSAGE, "labels", ln_classify(f->engine, f->prompts, 2, &o, on_class, a, NULL, err));
    o.n_labels = 0, o.normalize = (ln_normalize)7;
    FAILS(LN_EUSAGE, "normalize", ln_classify(f->engine, f->prompts, 2, &o, on_class, a, NULL, err));
    o.normalize = LN_NORMALIZE_SUM, o.sampling = &how;
    FAILS(LN_EUSAGE, "top_p", ln_classify(f->engine, f->prompts, 2, &o, on_class, a, NULL, err));
    o.sampling = NULL, o.size = 3;
    FAILS(LN_EUSAGE, "size", ln_classify(f->engine, f->prompts, 2, &o, on_class, a, NULL, err));
    FAILS(LN_EUSAGE, "NULL", ln_classify(f->engine, f->prompts, 2, NULL, NULL, a, NULL, err));
    FAILS(LN_EUSAGE, "NULL", ln_classify(f->engine, NULL, 2, NULL, on_class, a, NULL, err));
    FAILS(LN_EUSAGE, "", ln_classify(NULL, f->prompts, 2, NULL, on_class, a, NULL, err));
    assert_int_equal(a->n, 0);
    OK(ln_classify(f->engine, NULL, 0, NULL, on_class, a, NULL, err)); /* no prompts: nothing to do */
    assert_int_equal(a->n, 0);
    free(a);
    close_model(f);
}

static void stopping(void **state) {
    (void)state;
    fixture *f = open_model("llama-plain-f32",
                            (ln_options){.size = sizeof(ln_options), .n_parallel = 3, .n_chunk = 16});
    ln_classify_options o = with_labels(N_LABELS);
    add_ragged(f, 24);
    answers *whole = classify(f, &o), *a = new_answers(&o);
    a->stop_after = 5;
    OK(ln_classify(f->engine, f->prompts, f->n, &o, on_class, a, NULL, err));
    assert_int_equal(a->n, 5);
    memset(a, 0, sizeof *a);
    a->n_labels = o.n_labels;
    a->cancel = f->engine;
    FAILS(LN_ECANCELLED, "", ln_classify(f->engine, f->prompts, f->n, &o, on_class, a, NULL, err));
    assert_true(a->n >= 1 && a->n < f->n);
    FAILS(LN_ECANCELLED, "", ln_classify(f->engine, f->prompts, f->n, &o, on_class, a, NULL, err));
    ln_cancel(f->engine, false);
    memset(a, 0, sizeof *a);
    a->n_labels = o.n_labels;
    OK(ln_classify(f->engine, f->prompts, f->n, &o, on_class, a, NULL, err));
    for (size_t i = 0; i < f->n; i++)
        assert_memory_equal(a->at[i].scores, whole->at[i].scores, sizeof a->at[i].scores);
    free(a);
    free(whole);
    close_model(f);
}

/* ---- the next token ---- */

static int32_t first_token(fixture *f, size_t i, const ln_sampling *how, char text[64]) {
    ln_result r = {.size = sizeof r};
    OK(ln_generate(f->engine, &f->prompts[i], how, NULL, NULL, &r, err));
    assert_int_equal(r.n_ids, 1);
    int32_t id = r.ids[0];
    (void)snprintf(text, 64, "%s", r.text);
    ln_result_free(&r);
    return id;
}

/* Whatever the sampling: the token that ln_generate takes first with the same seed. */
static void next_token_is_the_first_of_a_generation(void **state) {
    (void)state;
    fixture *f = open_model("llama-plain-f32",
                            (ln_options){.size = sizeof(ln_options), .n_parallel = 4, .n_chunk = 24});
    ln_sampling plain = {.size = sizeof(ln_sampling),
                         .top_p = 1,
                         .repeat_penalty = 1,
                         .n_max = 1,
                         .ignore_eos = true,
                         .has_seed = true,
                         .seed = 7};
    add_ragged(f, 24);
    for (int variant = 0; variant < 5; variant++) {
        ln_sampling how = plain;
        if (variant > 0) how.temperature = 3;
        if (variant == 2) how.top_k = 3;
        if (variant == 3) how.top_p = 0.05;
        if (variant == 4) how.min_p = 0.5, how.repeat_penalty = 1.5, how.repeat_last = -1;
        ln_classify_options o = ln_classify_options_default();
        o.sampling = variant > 0 ? &how : NULL;
        o.want_logits = true;
        answers *a = classify(f, &o);
        for (size_t i = 0; i < f->n; i++) {
            char text[64];
            double sum = 0;
            assert_int_equal(a->at[i].token, first_token(f, i, &how, text));
            assert_int_equal(a->at[i].label, -1);
            for (int64_t k = 0; k < f->info.vocab_size; k++) sum += exp((double)a->at[i].logits[k]);
            double expected = (double)a->at[i].logits[a->at[i].token] - log(sum);
            assert_true(fabs(a->at[i].logprob - expected) <= 1e-12 * (1 + fabs(expected)));
        }
        free(a);
    }
    close_model(f);
}

/* Special tokens have their text: a model that would end its answer says so. */
static void a_stop_token_is_an_answer(void **state) {
    (void)state;
    fixture *f = open_model("llama-plain-f32", (ln_options){.size = sizeof(ln_options), .n_parallel = 2});
    const ln_logit_bias bias = {.id = 257, .bias = 100};
    ln_sampling how = {
        .size = sizeof(ln_sampling), .top_p = 1, .repeat_penalty = 1, .bias = &bias, .n_bias = 1};
    ln_classify_options o = ln_classify_options_default();
    o.sampling = &how;
    add_ragged(f, 3);
    answers *a = classify(f, &o);
    for (size_t i = 0; i < f->n; i++) {
        assert_int_equal(a->at[i].token, 257);
        assert_string_equal(a->at[i].text, "<eos>");
        assert_true(a->at[i].logprob < -1); /* that of the model, without the bias */
    }
    free(a);
    close_model(f);
}

static void metrics_count_prompts(void **state) {
    (void)state;
    fixture *f = open_model("llama-plain-f32", (ln_options){.size = sizeof(ln_options), .n_parallel = 3});
    ln_classify_options o = ln_classify_options_default();
    ln_metrics m;
    int64_t tokens = 0;
    add_ragged(f, 12);
    for (size_t i = 0; i < f->n; i++) tokens += (int64_t)f->prompts[i].n_ids;
    answers *a = new_answers(&o);
    OK(ln_classify(f->engine, f->prompts, f->n, &o, on_class, a, &m, err));
    assert_int_equal(m.prompt_tokens, tokens);
    assert_int_equal(m.generated_tokens, f->n);
    assert_true(m.prefill_seconds > 0 && m.total_seconds == m.prefill_seconds && m.decode_seconds == 0);
    assert_true(m.cached_tokens >= 0 && m.cached_tokens < tokens && m.peak_bytes >= m.active_bytes / 2);
    free(a);
    close_model(f);
}

/* Steps are full of rows while prompts are left: the ragged prefill runs at the speed of one long prompt. */
static void steps_are_full(void **state) {
    (void)state;
    enum { CHUNK = 64, PARALLEL = 16 };
    fixture *f =
        open_model("llama-plain-f32",
                   (ln_options){.size = sizeof(ln_options), .n_parallel = PARALLEL, .n_chunk = CHUNK});
    ln_classify_options o = with_labels(2); /* of one token each */
    ln_engine_stats before = {.size = sizeof before}, after = before;
    int64_t tokens = 0;
    for (uint32_t i = 0; i < MOST; i++) add_prompt(f, 5 + (int)(i * 37 % 56), i + 1); /* 5 to 60 */
    for (size_t i = 0; i < f->n; i++) tokens += (int64_t)f->prompts[i].n_ids;
    OK(ln_engine_get_stats(f->engine, &before, err));
    free(classify(f, &o));
    OK(ln_engine_get_stats(f->engine, &after, err));
    int64_t steps = (int64_t)(after.n_steps - before.n_steps), fewest = (tokens + CHUNK - 1) / CHUNK;
    print_message("%lld steps, %lld full ones\n", (long long)steps, (long long)fewest);
    /* the last steps share what is left of the last prompts */
    assert_true(steps <= fewest + 2);
    close_model(f);
}

/* Labels of several tokens compute no prompt again: each of their four paths reuses it. */
static void paths_reuse_the_prompt(void **state) {
    (void)state;
    enum { PATHS = 4 }; /* "bad", "that", "the end" with "then", "and the" with "and" */
    fixture *f = open_model("llama-plain-f32",
                            (ln_options){.size = sizeof(ln_options), .n_parallel = 8, .n_chunk = 64});
    ln_classify_options o = with_labels(N_LABELS);
    ln_engine_stats before = {.size = sizeof before}, after = before;
    ln_metrics m;
    int64_t tokens = 0;
    add_ragged(f, 8); /* the pool has pages for all of them */
    for (size_t i = 0; i < f->n; i++) tokens += (int64_t)f->prompts[i].n_ids;
    for (int again = 0; again < 2; again++) {
        answers *a = new_answers(&o);
        OK(ln_engine_get_stats(f->engine, &before, err));
        OK(ln_classify(f->engine, f->prompts, f->n, &o, on_class, a, &m, err));
        OK(ln_engine_get_stats(f->engine, &after, err));
        const int64_t reused = (int64_t)(after.cached_tokens - before.cached_tokens);
        assert_int_equal(reused, PATHS * tokens + m.cached_tokens);
        /* the second time all of a prompt except its last row is cached */
        assert_int_equal(m.cached_tokens, again ? tokens - (int64_t)f->n : 0);
        free(a);
    }
    close_model(f);
}

/* ---- several threads ---- */

typedef struct thread {
    fixture *f;
    const ln_classify_options *o;
    answers *a;
} thread;

static void *run_thread(void *user) {
    thread *t = user;
    t->a = classify(t->f, t->o);
    return NULL;
}

static void two_calls_share_an_engine(void **state) {
    (void)state;
    fixture *f =
        open_model("gemma3-text-f32",
                   (ln_options){.size = sizeof(ln_options), .n_parallel = 4, .n_chunk = 16, .n_ctx = 128});
    ln_classify_options o = with_labels(N_LABELS);
    add_ragged(f, 24);
    answers *alone = classify(f, &o);
    for (int engine_thread = 0; engine_thread < 2; engine_thread++) {
        thread t[2] = {{f, &o, NULL}, {f, &o, NULL}};
        pthread_t id[2];
        if (engine_thread) OK(ln_engine_start(f->engine, err));
        for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&id[i], NULL, run_thread, &t[i]), 0);
        for (int i = 0; i < 2; i++) assert_int_equal(pthread_join(id[i], NULL), 0);
        if (engine_thread) ln_engine_stop(f->engine);
        for (int i = 0; i < 2; i++) {
            assert_memory_equal(t[i].a, alone, sizeof *alone);
            free(t[i].a);
        }
    }
    free(alone);
    close_model(f);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(scores_are_those_of_transformers),
                                       cmocka_unit_test(ragged_prompts_have_the_bits_of_single_ones),
                                       cmocka_unit_test(probabilities_are_the_softmax),
                                       cmocka_unit_test(the_first_of_equal_labels_wins),
                                       cmocka_unit_test(a_prompt_that_fails_stops_no_other),
                                       cmocka_unit_test(bad_arguments_are_refused),
                                       cmocka_unit_test(stopping),
                                       cmocka_unit_test(next_token_is_the_first_of_a_generation),
                                       cmocka_unit_test(a_stop_token_is_an_answer),
                                       cmocka_unit_test(metrics_count_prompts),
                                       cmocka_unit_test(steps_are_full),
                                       cmocka_unit_test(paths_reuse_the_prompt),
                                       cmocka_unit_test(two_calls_share_an_engine)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
