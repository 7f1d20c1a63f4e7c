/* The predecessor's defects of batches and of classifying: prompts were padded to one length, with one mask,
 * and single prompts were not. Each test compares prompts of several lengths that are classified together
 * with the same prompts alone. */
/* run: quick */
#include "defects.h"

enum { N_PROMPTS = 5, N_LABELS = 3, LONGEST = 170, V_MOST = 300 };
static const char *const labels[N_LABELS] = {"bad", "the end", "a"};

typedef struct classes {
    size_t n;
    double scores[N_PROMPTS][N_LABELS];
    int32_t token[N_PROMPTS];
    float logits[N_PROMPTS][V_MOST];
} classes;

static ln_status on_class(void *user, const ln_class *c, ln_error *err) {
    classes *a = user;
    if (c->status != LN_OK) return snprintf(err->message, sizeof err->message, "%s", c->error), c->status;
    if (c->scores) memcpy(a->scores[a->n], c->scores, sizeof a->scores[0]);
    else a->token[a->n] = c->token;
    memcpy(a->logits[a->n++], c->logits, (size_t)c->n_vocab * sizeof(float));
    return LN_OK;
}

/* How many prompts are in one call, how many of them share a step, of how many rows. */
typedef struct way {
    int at_once, n_parallel, n_chunk;
} way;
static const way crowded = {N_PROMPTS, N_PROMPTS, 128}, single = {1, 1, 128};

/* Classifies prompts of these lengths. */
static classes *classify(const char *golden, const int *lengths, way w, ln_classify_options o) {
    static int32_t ids[N_PROMPTS][LONGEST];
    char path[300];
    ln_model *model = NULL;
    ln_engine *engine = NULL;
    ln_prompt prompts[N_PROMPTS];
    uint64_t seed = 5;
    classes *a = calloc(1, sizeof *a);
    (void)snprintf(path, sizeof path, LN_ROOT "/tests/golden/%s", golden);
    ln_options options = {.size = sizeof(ln_options),
                          .n_threads = 1,
                          .n_parallel = w.n_parallel,
                          .n_ctx = 180,
                          .n_chunk = w.n_chunk};
    OK(ln_model_open(&model, path, &options, err));
    OK(ln_engine_open(&engine, model, &options, err));
    for (int i = 0; i < N_PROMPTS; i++) {
        for (int t = 0; t < lengths[i]; t++) ids[i][t] = (int32_t)(test_random(&seed) % 250);
        prompts[i] = (ln_prompt){.size = sizeof(ln_prompt), .ids = ids[i], .n_ids = (size_t)lengths[i]};
    }
    o.want_logits = true;
    for (int i = 0; i < N_PROMPTS; i += w.at_once)
        OK(ln_classify(engine, prompts + i, (size_t)w.at_once, &o, on_class, a, NULL, err));
    assert_int_equal(a->n, N_PROMPTS);
    ln_engine_close(&engine);
    ln_model_close(&model);
    return a;
}

static void as_alone(const char *golden, const int *lengths, way w) {
    ln_classify_options o = ln_classify_options_default();
    o.labels = labels;
    o.n_labels = N_LABELS;
    classes *crowd = classify(golden, lengths, w, o), *alone = classify(golden, lengths, single, o);
    assert_memory_equal(crowd, alone, sizeof *crowd);
    free(crowd);
    free(alone);
}

/* B2: a window that is shorter than the longest prompt failed, or was that of the longest for all. */
static void b2_classify_prompts_around_the_window(void **s) {
    (void)s;
    /* the first prompt is beyond window and page while the others are read */
    as_alone("gemma3-text-bf16", (const int[]){170, 30, 33, 40, 28}, (way){N_PROMPTS, 2, 16});
    as_alone("gemma3-text-bf16", (const int[]){70, 5, 16, 17, 33}, crowded);
}

/* B3: labels followed the padding, and positions counted it. */
static void b3_classify_prompts_of_several_lengths(void **s) {
    (void)s;
    as_alone("qwen3-sharded-bf16", (const int[]){3, 61, 1, 20, 8}, crowded);
}

/* B4: classifying failed on models whose activations are not f32. */
static void b4_classify_in_every_type(void **s) {
    (void)s;
    static const char *const names[] = {"qwen2-bf16", "llama-llama3-bf16", "qwen3-f16", "llama-plain-f32"};
    for (size_t i = 0; i < LN_COUNT(names); i++) as_alone(names[i], (const int[]){12, 3, 30, 7, 1}, crowded);
}

static const int lengths[N_PROMPTS] = {3, 40, 1, 20, 8};

/* B14: classifying passed on temperature and top-k and dropped the rest. With a top_p near 0 the likeliest
 * token is all that is left of any temperature. */
static void b14_classify_uses_top_p(void **s) {
    (void)s;
    ln_sampling how = {.size = sizeof(ln_sampling),
                       .temperature = 50,
                       .top_p = 1e-9,
                       .repeat_penalty = 1,
                       .has_seed = true,
                       .seed = 3};
    ln_classify_options o = ln_classify_options_default();
    classes *likeliest = classify("llama-plain-f32", lengths, crowded, o);
    o.sampling = &how;
    classes *drawn = classify("llama-plain-f32", lengths, crowded, o);
    assert_memory_equal(drawn->token, likeliest->token, sizeof drawn->token);
    how.min_p = 1;
    how.top_p = 1;
    classes *least = classify("llama-plain-f32", lengths, crowded, o);
    assert_memory_equal(least->token, likeliest->token, sizeof drawn->token);
    how.min_p = 0;
    classes *free_draw = classify("llama-plain-f32", lengths, crowded, o);
    assert_memory_not_equal(free_draw->token, likeliest->token, sizeof drawn->token);
    free(likeliest);
    free(drawn);
    free(least);
    free(free_draw);
}

/* B14: penalties did not see the prompt. */
static void b14_classify_penalises_the_prompt(void **s) {
    (void)s;
    ln_sampling how = {.size = sizeof(ln_sampling), .top_p = 1, .repeat_penalty = 1e6, .repeat_last = -1};
    ln_classify_options o = ln_classify_options_default();
    const ln_logit_bias bias = {.id = 7, .bias = 1000};
    static const int32_t ids[2][3] = {{9, 7, 8}, {9, 6, 8}};
    classes *a = calloc(1, sizeof *a);
    ln_model *model = NULL;
    ln_engine *engine = NULL;
    OK(ln_model_open(&model, LN_ROOT "/tests/golden/qwen3-f16", NULL, err));
    OK(ln_engine_open(&engine, model,
                      &(ln_options){.size = sizeof(ln_options), .n_threads = 1, .n_parallel = 2, .n_ctx = 16},
                      err));
    how.bias = &bias, how.n_bias = 1;
    o.sampling = &how;
    o.want_logits = true;
    const ln_prompt prompts[] = {{.size = sizeof(ln_prompt), .ids = ids[0], .n_ids = 3},
                                 {.size = sizeof(ln_prompt), .ids = ids[1], .n_ids = 3}};
    OK(ln_classify(engine, prompts, 2, &o, on_class, a, NULL, err));
    assert_true(a->token[0] != 7 && a->token[1] == 7);
    free(a);
    ln_engine_close(&engine);
    ln_model_close(&model);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b2_classify_prompts_around_the_window),
        cmocka_unit_test(b3_classify_prompts_of_several_lengths), cmocka_unit_test(b4_classify_in_every_type),
        cmocka_unit_test(b14_classify_uses_top_p), cmocka_unit_test(b14_classify_penalises_the_prompt)};
    RUN_DEFECTS(argc, argv, tests);
}
