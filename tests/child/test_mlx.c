/* The real mlx-lm against linnet, on tiny f32 models that tools/mlx_models.py makes: `make check-mlx`.
 * LN_MLX_PYTHON is an environment with mlx-lm, LN_MLX_MODELS the folder of the models; without them
 * everything is skipped.
 *
 * Both sides compute in f32, in different orders of summation. A token is compared unless linnet's two
 * likeliest logits are closer than MARGIN, after which the texts may differ for good. Values are compared
 * with BOUND: sums of at most 128 terms of a magnitude of about 4, each rounded twice, give 128 * 4 * 2^-23 =
 * 6e-5. */
/* run: quick */
#include "../base/cm.h"

#include <linnet_backend.h>

#include "base/base.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TOKENS = 48 };
static const double MARGIN = 1e-3, BOUND = 1.2e-4;

static const char *python, *models;
static const char *const names[] = {"llama", "qwen2", "qwen3", "qwen3-untied", "gemma3"};

#define OK(x)                                                                                          \
    do {                                                                                               \
        if ((x) != LN_OK) fail_msg("%s: %d: %s", #x, ln_last_error()->code, ln_last_error()->message); \
    } while (0)

static bool skipped(void) {
    if (python && models) return false;
    print_message("SKIP: LN_MLX_PYTHON is not set: the real mlx-lm is NOT run (make check-mlx)\n");
    return true;
}

static ln_backend_model *load(const char *backend, const char *path, const char *adapter, double scale) {
    ln_options o = ln_options_default();
    ln_backend_options opt = ln_backend_options_default();
    ln_backend_model *m = NULL;
    o.keep_full_kv = strcmp(backend, "native") == 0;
    o.numerics = o.keep_full_kv ? LN_EXACT : LN_NUMERICS_DEFAULT;
    opt.options = &o, opt.python = python, opt.adapter = adapter, opt.adapter_scale = scale;
    OK(ln_backend_load(&m, backend, path, &opt, NULL));
    return m;
}

static const char *path_of(const char *folder, const char *name) {
    static char buf[4][4096];
    static int next;
    char *out = buf[next++ % 4];
    (void)snprintf(out, sizeof buf[0], "%s/%s/%s", models, folder, name);
    return out;
}

/* A prompt of n ids that depend on the seed. */
static ln_prompt ids_of(int32_t *ids, size_t n, uint32_t seed) {
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        ids[i] = (int32_t)(seed >> 8) % 250;
    }
    return (ln_prompt){.size = sizeof(ln_prompt), .ids = ids, .n_ids = n};
}

/* The distance of the two likeliest logits after prompt and the first n tokens of the answer, by linnet. */
static double margin_after(const char *path, const ln_prompt *p, const int32_t *answer, size_t n) {
    ln_model *model = NULL;
    ln_engine *engine = NULL;
    ln_request *r = NULL;
    ln_request_options o = ln_request_options_default();
    ln_sampling how = {
        .size = sizeof(ln_sampling), .top_p = 1, .repeat_penalty = 1, .n_max = 1, .ignore_eos = true};
    ln_event ev = {.size = sizeof ev};
    int32_t all[512];
    double margin = 0;
    memcpy(all, p->ids, p->n_ids * sizeof *all);
    memcpy(all + p->n_ids, answer, n * sizeof *all);
    o.sampling = &how, o.n_logprobs = 2;
    OK(ln_model_open(&model, path, NULL, NULL));
    OK(ln_engine_open(&engine, model, NULL, NULL));
    OK(ln_request_open(&r, engine, &(ln_prompt){.size = sizeof(ln_prompt), .ids = all, .n_ids = p->n_ids + n},
                       &o, NULL));
    while (ev.kind != LN_EVENT_FINISH) {
        OK(ln_request_next(r, -1, &ev, NULL));
        if (ev.kind == LN_EVENT_TOKEN) margin = ev.top[0].logprob - ev.top[1].logprob;
    }
    ln_request_close(&r);
    ln_engine_close(&engine);
    ln_model_close(&model);
    return margin;
}

/* Fails unless both answers are the same ids up to a token that is a near tie (greedy only). */
static size_t same_answer(const char *name, const char *path, const ln_prompt *p, const ln_result *a,
                          const ln_result *b, bool greedy) {
    size_t n = 0;
    assert_int_equal(a->n_prompt_ids, b->n_prompt_ids);
    assert_memory_equal(a->prompt_ids, b->prompt_ids, a->n_prompt_ids * sizeof *a->ids);
    while (n < a->n_ids && n < b->n_ids && a->ids[n] == b->ids[n]) n++;
    if (n == a->n_ids && n == b->n_ids && a->finish == b->finish && a->stop_id == b->stop_id) return n;
    if (greedy && p->ids && margin_after(path, p, a->ids, n) < MARGIN) return n;
    fail_msg("%s: token %zu of the answer to %zu ids: linnet %d, mlx-lm %d", name, n, p->n_ids,
             n < a->n_ids ? a->ids[n] : -1, n < b->n_ids ? b->ids[n] : -1);
    return 0;
}

/* Lengths below, at and beyond a window of 8 positions and a chunk of the prompt. */
static void greedy_tokens_of_every_family(void **state) {
    (void)state;
    static const size_t lengths[] = {1, 5, 9, 40, 300};
    if (skipped()) return;
    for (size_t k = 0; k < LN_COUNT(names); k++) {
        const char *path = path_of("models", names[k]);
        ln_backend_model *ours = load("native", path, NULL, 1), *theirs = load("mlx_lm", path, NULL, 1);
        ln_sampling how = {.size = sizeof how};
        size_t compared = 0;
        OK(ln_backend_sampling(theirs, &how, NULL));
        how.n_max = TOKENS, how.temperature = 0;
        for (size_t i = 0; i < LN_COUNT(lengths); i++) {
            int32_t ids[300];
            ln_result a = {.size = sizeof a}, b = {.size = sizeof b};
            const ln_prompt p = ids_of(ids, lengths[i], (uint32_t)(i + 1));
            how.ignore_eos = i % 2 == 1;
            OK(ln_backend_generate(ours, &p, &how, NULL, NULL, &a, NULL));
            OK(ln_backend_generate(theirs, &p, &how, NULL, NULL, &b, NULL));
            compared += same_answer(names[k], path, &p, &a, &b, true);
            ln_result_free(&a), ln_result_free(&b);
        }
        print_message("%s: %zu greedy tokens compared\n", names[k], compared);
        assert_true(compared > TOKENS);
        ln_backend_close(&ours), ln_backend_close(&theirs);
    }
}

/* Every parameter of sampling, alone and together, with the same seed: the same tokens. */
static void drawn_tokens(void **state) {
    (void)state;
    static const ln_logit_bias bias[] = {{7, 4.0f}, {90, -INFINITY}, {12, -2.5f}};
    static const int32_t suppress[] = {30, 31}, begin[] = {183, 229, 155}, bad[] = {5, 9}, stop_ids[] = {58};
    const ln_id_list bad_words[] = {{bad, 2}, {bad, 1}};
    const ln_sampling base = {.size = sizeof(ln_sampling),
                              .temperature = 0.9,
                              .top_p = 1,
                              .repeat_penalty = 1,
                              .repeat_last = 64,
                              .has_seed = true,
                              .n_max = TOKENS,
                              .ignore_eos = true};
    ln_sampling cases[17];
    if (skipped()) return;
    for (size_t i = 0; i < LN_COUNT(cases); i++) cases[i] = base, cases[i].seed = i * 0x9e3779b97f4a7c15u + 3;
    cases[1].top_k = 5;
    cases[2].top_p = 0.7;
    cases[3].min_p = 0.2;
    cases[4].repeat_penalty = 1.5;
    cases[5].repeat_penalty = 1.5, cases[5].repeat_last = 3;
    cases[6].presence_penalty = 1.5;
    cases[7].frequency_penalty = 0.8;
    cases[8].bias = bias, cases[8].n_bias = 3;
    cases[9].suppress = suppress, cases[9].n_suppress = 2, cases[9].begin_suppress = begin,
    cases[9].n_begin_suppress = 3;
    cases[10].bad_words = bad_words, cases[10].n_bad_words = 2;
    cases[11].no_repeat_ngram = 1;
    cases[12].min_new = 20, cases[12].ignore_eos = false;
    cases[13].stop_ids = stop_ids, cases[13].n_stop_ids = 1;
    cases[14].temperature = 0.01;
    cases[15].temperature = 5, cases[15].top_k = 1;
    cases[16].temperature = 1.3, cases[16].top_k = 40, cases[16].top_p = 0.9, cases[16].min_p = 0.01;
    cases[16].repeat_penalty = 1.2, cases[16].repeat_last = -1, cases[16].presence_penalty = 0.5;
    cases[16].frequency_penalty = -0.3, cases[16].bias = bias, cases[16].n_bias = 3,
    cases[16].no_repeat_ngram = 3;
    for (size_t k = 0; k < LN_COUNT(names); k++) {
        const char *path = path_of("models", names[k]);
        ln_backend_model *ours = load("native", path, NULL, 1), *theirs = load("mlx_lm", path, NULL, 1);
        for (size_t i = 0; i < LN_COUNT(cases); i++) {
            int32_t ids[12];
            char what[80];
            ln_result a = {.size = sizeof a}, b = {.size = sizeof b};
            const ln_prompt p = ids_of(ids, 12, (uint32_t)(100 + i));
            (void)snprintf(what, sizeof what, "%s, case %zu", names[k], i);
            OK(ln_backend_generate(ours, &p, &cases[i], NULL, NULL, &a, NULL));
            OK(ln_backend_generate(theirs, &p, &cases[i], NULL, NULL, &b, NULL));
            (void)same_answer(what, path, &p, &a, &b, false);
            assert_int_equal(b.seed, cases[i].seed);
            ln_result_free(&a), ln_result_free(&b);
        }
        ln_backend_close(&ours), ln_backend_close(&theirs);
    }
}

static ln_status add_text(void *user, const char *text, size_t bytes, ln_error *err) {
    (void)err;
    ln_str_add(user, text, bytes);
    return LN_OK;
}

/* Texts in, texts out: the same ids, the same text, pieces that make it up, stop texts. */
static void texts_and_stop_texts(void **state) {
    (void)state;
    if (skipped()) return;
    for (size_t k = 0; k < LN_COUNT(names); k++) {
        const char *path = path_of("models", names[k]);
        ln_backend_model *ours = load("native", path, NULL, 1), *theirs = load("mlx_lm", path, NULL, 1);
        const ln_prompt p = {.size = sizeof(ln_prompt),
                             .text = "Hello, w\xc3\xb6rld",
                             .text_bytes = 13,
                             .tmpl = LN_TEMPLATE_RAW};
        ln_sampling how = {.size = sizeof(ln_sampling),
                           .temperature = 0.8,
                           .top_p = 1,
                           .repeat_penalty = 1,
                           .has_seed = true,
                           .n_max = TOKENS};
        char stop[8] = "";
        const char *const stops[] = {stop};
        for (int round = 0; round < 2; round++) {
            ln_result a = {.size = sizeof a}, b = {.size = sizeof b};
            ln_str pieces = {0};
            OK(ln_backend_generate(ours, &p, &how, NULL, NULL, &a, NULL));
            OK(ln_backend_generate(theirs, &p, &how, add_text, &pieces, &b, NULL));
            if (a.text_bytes != b.text_bytes || memcmp(a.text, b.text, a.text_bytes) != 0)
                fail_msg("%s, round %d: '%s', mlx-lm '%s'", names[k], round, a.text, b.text);
            assert_int_equal(pieces.len, b.text_bytes);
            assert_memory_equal(pieces.data ? pieces.data : "", b.text, b.text_bytes);
            assert_int_equal(a.stop_text, b.stop_text);
            if (round == 1) assert_true(b.finish == LN_FINISH_STOP && b.stop_text == 0);
            for (size_t i = a.text_bytes / 2; round == 0 && i + 1 < a.text_bytes;
                 i++) /* two ASCII characters of it */
                if ((unsigned char)a.text[i] < 128 && (unsigned char)a.text[i + 1] < 128) {
                    memcpy(stop, a.text + i, 2);
                    break;
                }
            if (!stop[0]) round = 1;
            how.stop = stops, how.n_stop = 1;
            ln_result_free(&a), ln_result_free(&b);
            ln_str_free(&pieces);
        }
        ln_backend_close(&ours), ln_backend_close(&theirs);
    }
}

/* ---- classes and keys ---- */

typedef struct classes {
    double scores[3][3];
    float logits[3][512];
    int64_t n_vocab;
    int32_t token[3];
} classes;
static ln_status on_class(void *user, const ln_class *c, ln_error *err) {
    classes *to = user;
    if (c->status != LN_OK) return ln_fail(err, c->status, "prompt %zu: %s", c->index, c->error);
    for (int i = 0; c->scores && i < 3; i++) to->scores[c->index][i] = c->scores[i];
    to->token[c->index] = c->token;
    to->n_vocab = c->n_vocab;
    if (c->logits) memcpy(to->logits[c->index], c->logits, (size_t)c->n_vocab * sizeof(float));
    return LN_OK;
}

static void near_values(const char *name, const char *what, double a, double b) {
    if (!(fabs(a - b) <= BOUND * (1 + fabs(a)))) fail_msg("%s: %s: %.9g, mlx-lm %.9g", name, what, a, b);
}

static void classes_of_labels_and_tokens(void **state) {
    (void)state;
    static const char *const labels[] = {"a", "bcd", "\xc3\xa9 "};
    if (skipped()) return;
    for (size_t k = 0; k < LN_COUNT(names); k++) {
        const char *path = path_of("models", names[k]);
        ln_backend_model *ours = load("native", path, NULL, 1), *theirs = load("mlx_lm", path, NULL, 1);
        static classes a, b;
        int32_t ids[3][30];
        const ln_prompt prompts[] = {ids_of(ids[0], 3, 1), ids_of(ids[1], 30, 2), ids_of(ids[2], 8, 3)};
        ln_classify_options o = ln_classify_options_default();
        for (int mean = 0; mean < 2; mean++) {
            o.labels = labels, o.n_labels = 3, o.want_logits = true;
            o.normalize = mean ? LN_NORMALIZE_TOKENS : LN_NORMALIZE_SUM;
            OK(ln_backend_classify(ours, prompts, 3, &o, on_class, &a, NULL, NULL));
            OK(ln_backend_classify(theirs, prompts, 3, &o, on_class, &b, NULL, NULL));
            assert_int_equal(a.n_vocab, b.n_vocab);
            for (int i = 0; i < 3; i++)
                for (int l = 0; l < 3; l++) near_values(names[k], "a score", a.scores[i][l], b.scores[i][l]);
            for (int i = 0; i < 3; i++)
                for (int64_t v = 0; v < a.n_vocab; v++)
                    near_values(names[k], "a logit", (double)a.logits[i][v], (double)b.logits[i][v]);
        }
        o = ln_classify_options_default();
        OK(ln_backend_classify(ours, prompts, 3, &o, on_class, &a, NULL, NULL));
        OK(ln_backend_classify(theirs, prompts, 3, &o, on_class, &b, NULL, NULL));
        assert_memory_equal(a.token, b.token, sizeof a.token);
        ln_backend_close(&ours), ln_backend_close(&theirs);
    }
}

typedef struct keys {
    int n_layers;
    size_t n[8];
    float values[8][4096];
} keys;
static ln_status on_keys(void *user, int layer, const float *values, int heads, int64_t rows, int width,
                         ln_error *err) {
    keys *to = user;
    (void)err;
    to->n_layers = layer + 1;
    to->n[layer] = (size_t)heads * (size_t)rows * (size_t)width;
    memcpy(to->values[layer], values, to->n[layer] * sizeof(float));
    return LN_OK;
}

static void keys_of_every_layer(void **state) {
    (void)state;
    if (skipped()) return;
    for (size_t k = 0; k < LN_COUNT(names); k++) {
        const char *path = path_of("models", names[k]);
        ln_backend_model *ours = load("native", path, NULL, 1), *theirs = load("mlx_lm", path, NULL, 1);
        static keys a, b;
        int32_t ids[8];
        (void)ids_of(ids, 8, 5);
        OK(ln_backend_inspect(ours, ids, 8, on_keys, &a, NULL));
        OK(ln_backend_inspect(theirs, ids, 8, on_keys, &b, NULL));
        assert_int_equal(a.n_layers, b.n_layers);
        for (int l = 0; l < a.n_layers; l++) {
            assert_int_equal(a.n[l], b.n[l]);
            for (size_t i = 0; i < a.n[l]; i++)
                near_values(names[k], "a key", (double)a.values[l][i], (double)b.values[l][i]);
        }
        ln_backend_close(&ours), ln_backend_close(&theirs);
    }
}

/* ---- adapters ---- */

/* mlx-lm with an adapter is linnet on the weights that the adapter amounts to. */
static void an_adapter_is_applied(void **state) {
    (void)state;
    static const char *const merged[] = {"merged-1", "merged-0.5"};
    if (skipped()) return;
    for (int i = 0; i < 2; i++) {
        const char *path = path_of("adapter", merged[i]);
        ln_backend_model *ours = load("native", path, NULL, 1),
                         *theirs = load("mlx_lm", path_of("adapter", "base"), path_of("adapter", "lora"),
                                        i ? 0.5 : 1);
        int32_t ids[20];
        ln_result a = {.size = sizeof a}, b = {.size = sizeof b};
        const ln_prompt p = ids_of(ids, 20, 7);
        const ln_sampling how = {.size = sizeof(ln_sampling),
                                 .top_p = 1,
                                 .repeat_penalty = 1,
                                 .n_max = TOKENS,
                                 .ignore_eos = true};
        OK(ln_backend_generate(ours, &p, &how, NULL, NULL, &a, NULL));
        OK(ln_backend_generate(theirs, &p, &how, NULL, NULL, &b, NULL));
        assert_true(same_answer(merged[i], path, &p, &a, &b, true) > 8);
        ln_result_free(&a), ln_result_free(&b);
        ln_backend_close(&ours), ln_backend_close(&theirs);
    }
    ln_backend_options opt = ln_backend_options_default();
    ln_backend_model *m = NULL;
    opt.python = python, opt.adapter = path_of("adapter", "lora-elsewhere");
    assert_true(ln_backend_load(&m, "mlx_lm", path_of("adapter", "base"), &opt, NULL) != LN_OK);
    if (!strstr(ln_last_error()->message, "z_proj")) fail_msg("%s", ln_last_error()->message);
    opt.adapter = "/nonexistent";
    assert_int_equal(ln_backend_load(&m, "mlx_lm", path_of("adapter", "base"), &opt, NULL), LN_EIO);
}

/* ---- stopping, limits ---- */

typedef struct stopper {
    ln_backend_model *model;
    useconds_t after;
    double at;
} stopper;
static void *stop_later(void *arg) {
    stopper *s = arg;
    usleep(s->after);
    s->at = ln_now();
    ln_backend_cancel(s->model, true);
    return NULL;
}

/* From the request to stop to the return of the call: at most 200 ms, in a prompt and in an answer. */
static void cancelling_takes_at_most_200_ms(void **state) {
    (void)state;
    enum { TRIES = 24 };
    double most = 0, sum = 0;
    if (skipped()) return;
    ln_backend_model *m = load("mlx_lm", path_of("models", "gemma3"), NULL, 1);
    for (int i = 0; i < TRIES; i++) {
        int32_t ids[400];
        pthread_t t;
        ln_result r = {.size = sizeof r};
        stopper s = {m, (useconds_t)(3000 + i * 9000), 0};
        const ln_prompt p = ids_of(ids, i % 3 == 0 ? 400 : 10, (uint32_t)i);
        const ln_sampling how = {.size = sizeof(ln_sampling),
                                 .temperature = 1,
                                 .top_p = 1,
                                 .repeat_penalty = 1,
                                 .n_max = 100000,
                                 .ignore_eos = true};
        assert_int_equal(pthread_create(&t, NULL, stop_later, &s), 0);
        OK(ln_backend_generate(m, &p, &how, NULL, NULL, &r, NULL));
        const double end = ln_now();
        pthread_join(t, NULL);
        ln_backend_cancel(m, false);
        if (r.finish == LN_FINISH_CANCELLED) {
            most = LN_MAX(most, end - s.at);
            sum += end - s.at;
        }
        ln_result_free(&r);
    }
    print_message("from cancel to return: at most %.1f ms, %.1f ms on average, of %d\n", 1e3 * most,
                  1e3 * sum / TRIES, TRIES);
    if (most > 0.2) fail_msg("%.3f s", most);
    ln_backend_close(&m);
}

static void limits_of_the_context(void **state) {
    (void)state;
    if (skipped()) return;
    ln_options o = ln_options_default();
    ln_backend_options opt = ln_backend_options_default();
    ln_backend_model *m = NULL;
    int32_t ids[40];
    ln_result r = {.size = sizeof r};
    ln_info info = {.size = sizeof info};
    o.n_ctx = 32, opt.options = &o, opt.python = python;
    OK(ln_backend_load(&m, "mlx_lm", path_of("models", "qwen3"), &opt, NULL));
    const ln_sampling how = {
        .size = sizeof(ln_sampling), .top_p = 1, .repeat_penalty = 1, .n_max = 100, .ignore_eos = true};
    ln_prompt p = ids_of(ids, 33, 1);
    assert_int_equal(ln_backend_generate(m, &p, &how, NULL, NULL, NULL, NULL), LN_EINVALID);
    if (!strstr(ln_last_error()->message, "33 tokens, and the context has 32"))
        fail_msg("%s", ln_last_error()->message);
    p.n_ids = 30;
    OK(ln_backend_generate(m, &p, &how, NULL, NULL, &r, NULL));
    assert_int_equal(r.n_ids, 3); /* the last token needs no position */
    assert_int_equal(r.finish, LN_FINISH_LENGTH);
    ln_result_free(&r);
    ids[0] = 266;
    assert_int_equal(ln_backend_generate(m, &p, &how, NULL, NULL, NULL, NULL), LN_EINVALID);
    p.n_ids = 0;
    assert_int_equal(ln_backend_generate(m, &p, &how, NULL, NULL, NULL, NULL), LN_EUSAGE);
    const ln_message talk[] = {{"user", "Hi", 2}};
    p = (ln_prompt){.size = sizeof(ln_prompt), .messages = talk, .n_messages = 1};
    assert_int_equal(ln_backend_chat(m, &p, &how, NULL, NULL, NULL, NULL), LN_EUNSUPPORTED);
    OK(ln_backend_info(m, &info, NULL));
    assert_int_equal(info.n_layers, 3);
    assert_int_equal(info.vocab_size, 266);
    assert_true(info.tied && !info.has_template);
    ln_backend_close(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_tokens_of_every_family),
        cmocka_unit_test(drawn_tokens),
        cmocka_unit_test(texts_and_stop_texts),
        cmocka_unit_test(classes_of_labels_and_tokens),
        cmocka_unit_test(keys_of_every_layer),
        cmocka_unit_test(an_adapter_is_applied),
        cmocka_unit_test(cancelling_takes_at_most_200_ms),
        cmocka_unit_test(limits_of_the_context),
    };
    python = getenv("LN_MLX_PYTHON");
    models = getenv("LN_MLX_MODELS");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
