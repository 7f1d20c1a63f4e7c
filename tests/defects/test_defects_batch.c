/* The predecessor's defects of generating for a batch: prompts were padded to one length, the decoding of
 * all rows counted the padding, and penalties were left out. Each test compares requests that share their
 * steps with the same requests alone. */
/* run: quick */
#include "defects.h"

enum { N_PROMPTS = 5, LONGEST = 170, TOKENS = 12 };

typedef struct texts {
    int32_t ids[N_PROMPTS][TOKENS];
    double logprobs[N_PROMPTS][TOKENS];
} texts;

static const int lengths[N_PROMPTS] = {3, 61, 1, 20, 8};

static ln_request *ask(ln_engine *e, int i, int n, const ln_sampling *how) {
    static int32_t ids[LONGEST];
    uint64_t seed = (uint64_t)i + 5;
    ln_request_options o = ln_request_options_default();
    ln_request *r = NULL;
    o.sampling = how;
    o.n_logprobs = 0;
    for (int t = 0; t < n; t++) ids[t] = (int32_t)(test_random(&seed) % 250);
    OK(ln_request_open(&r, e, &(ln_prompt){.size = sizeof(ln_prompt), .ids = ids, .n_ids = (size_t)n}, &o,
                       err));
    return r;
}

/* Generates after prompts of these lengths, n_parallel of them at once. */
static texts *generate(const char *golden, const int *n, int n_parallel, int n_chunk, ln_sampling how) {
    char path[300];
    ln_model *model = NULL;
    ln_engine *engine = NULL;
    ln_request *r[N_PROMPTS];
    texts *a = calloc(1, sizeof *a);
    const ln_options o = {.size = sizeof(ln_options),
                          .n_threads = 1,
                          .n_parallel = n_parallel,
                          .n_ctx = 200,
                          .n_chunk = n_chunk};
    (void)snprintf(path, sizeof path, LN_ROOT "/tests/golden/%s", golden);
    how.n_max = TOKENS;
    how.ignore_eos = true;
    OK(ln_model_open(&model, path, &o, err));
    OK(ln_engine_open(&engine, model, &o, err));
    for (int i = 0; i < N_PROMPTS; i++) r[i] = ask(engine, i, n[i], &how);
    for (int i = 0; i < N_PROMPTS; i++) {
        ln_event v = {.size = sizeof v};
        ln_result out = {.size = sizeof out};
        while (v.kind != LN_EVENT_FINISH) OK(ln_request_next(r[i], -1, &v, err));
        OK(ln_request_result(r[i], &out, err));
        assert_int_equal(out.n_ids, TOKENS);
        memcpy(a->ids[i], out.ids, sizeof a->ids[i]);
        memcpy(a->logprobs[i], out.logprobs, sizeof a->logprobs[i]);
        ln_result_free(&out);
        ln_request_close(&r[i]);
    }
    ln_engine_close(&engine);
    ln_model_close(&model);
    return a;
}

static const ln_sampling greedy = {.size = sizeof(ln_sampling), .top_p = 1, .repeat_penalty = 1};

static void as_alone(const char *golden, const int *n, int n_parallel, int n_chunk, ln_sampling how) {
    texts *crowd = generate(golden, n, n_parallel, n_chunk, how), *alone = generate(golden, n, 1, 128, how);
    assert_memory_equal(crowd, alone, sizeof *crowd);
    free(crowd);
    free(alone);
}

/* B2: a window that is shorter than the longest prompt failed, or was that of the longest for all. */
static void b2_batch_around_the_window(void **s) {
    (void)s;
    as_alone("gemma3-text-bf16", (const int[]){170, 30, 33, 40, 28}, 2, 16, greedy);
    as_alone("gemma3-text-bf16", (const int[]){70, 5, 16, 17, 33}, N_PROMPTS, 128, greedy);
}

/* B3: decoding attended to the padding, and positions counted it. */
static void b3_batch_of_several_lengths(void **s) {
    (void)s;
    as_alone("qwen3-sharded-bf16", lengths, N_PROMPTS, 128, greedy);
}

/* B4: batches failed on models whose activations are not f32. */
static void b4_batch_in_every_type(void **s) {
    (void)s;
    static const char *const names[] = {"qwen2-bf16", "llama-llama3-bf16", "qwen3-f16", "llama-plain-f32"};
    for (size_t i = 0; i < LN_COUNT(names); i++) as_alone(names[i], lengths, N_PROMPTS, 128, greedy);
}

/* B14: batches had no repeat penalty, whose tokens are those of the prompt too. */
static void b14_batch_has_penalties(void **s) {
    (void)s;
    ln_sampling how = greedy;
    how.repeat_penalty = 1e6;
    how.repeat_last = -1;
    as_alone("qwen3-f16", lengths, N_PROMPTS, 128, how);
    texts *a = generate("qwen3-f16", lengths, N_PROMPTS, 128, how);
    for (int i = 0; i < N_PROMPTS; i++)
        for (int t = 0; t < TOKENS; t++)
            for (int k = 0; k < t; k++) assert_int_not_equal(a->ids[i][t], a->ids[i][k]);
    free(a);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b2_batch_around_the_window), cmocka_unit_test(b3_batch_of_several_lengths),
        cmocka_unit_test(b4_batch_in_every_type), cmocka_unit_test(b14_batch_has_penalties)};
    RUN_DEFECTS(argc, argv, tests);
}
