/* The floating-point environment of the caller: results are the same bits whatever its rounding mode, its
 * unmasked exceptions and its treatment of denormals are, and every call restores it exactly. The hostile
 * environments come first, so that the threads of the pool are started in one of them. */
/* run: quick */
#include <linnet.h>
#include <linnet_tools.h>
#include <linnet_train.h>

#include <fenv.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define TINY LN_ROOT "/models/tiny"
enum { N_IDS = 24, N_VALUES = 8 };

/* ---- environments ---- */

typedef struct environment {
    const char *name;
    int rounding;
    bool trap, flush; /* all exceptions are unmasked; denormals are zero, as -ffast-math has it */
} environment;
static const environment environments[] = {{"upward, with traps", FE_UPWARD, true, false},
                                           {"downward", FE_DOWNWARD, false, false},
                                           {"toward zero, flushing", FE_TOWARDZERO, false, true},
                                           {"to nearest, with traps", FE_TONEAREST, true, true},
                                           {"the default", FE_TONEAREST, false, false}};

/* Everything of the environment that a call could change. */
typedef struct registers {
    uint64_t control, status;
} registers;
static registers now(void) {
    registers r = {0};
#if defined(__x86_64__)
    uint16_t x87_control, x87_status;
    __asm__ volatile("fnstcw %0\n\tfnstsw %1" : "=m"(x87_control), "=m"(x87_status));
    r.control = __builtin_ia32_stmxcsr(); /* with the flags */
    r.status = (uint64_t)x87_control << 16 | x87_status;
#elif defined(__aarch64__)
    __asm__ volatile("mrs %0, fpcr\n\tmrs %1, fpsr" : "=r"(r.control), "=r"(r.status));
#endif
    return r;
}

static void enter(const environment *e) {
    assert_int_equal(fesetenv(FE_DFL_ENV), 0);
    assert_int_equal(fesetround(e->rounding), 0);
#if defined(__x86_64__)
    if (e->flush) __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);
#elif defined(__aarch64__)
    uint64_t control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    if (e->flush) __asm__ volatile("msr fpcr, %0" : : "r"(control | 1u << 24));
#endif
    if (e->trap) (void)feenableexcept(FE_ALL_EXCEPT); /* no processor of Arm has to have traps */
}

/* ---- what is computed: a digest of every value that a group of calls returns ---- */

static void add(uint64_t *digest, const void *data, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        *digest = (*digest ^ ((const unsigned char *)data)[i]) * 0x100000001b3u;
}

/* Runs one call in the caller's environment and checks that the call leaves it as it was. */
#define OK(call)                                                                                   \
    do {                                                                                           \
        ln_error e_ = {0}, *err = &e_;                                                             \
                                                                                                   \
        const registers before_ = now();                                                           \
        const ln_status s_ = (call);                                                               \
        const registers after_ = now();                                                            \
        (void)err;                                                                                 \
        if (s_ != LN_OK || before_.control != after_.control || before_.status != after_.status) { \
            fesetenv(FE_DFL_ENV);                                                                  \
            if (s_ != LN_OK) fail_msg("%s: status %d: %s", #call, (int)s_, e_.message);            \
            fail_msg("%s: the environment was %llx %llx and is %llx %llx", #call,                  \
                     (unsigned long long)before_.control, (unsigned long long)before_.status,      \
                     (unsigned long long)after_.control, (unsigned long long)after_.status);       \
        }                                                                                          \
    } while (0)

static void spread(int32_t ids[N_IDS]) {
    for (int i = 0; i < N_IDS; i++) ids[i] = 20 + i * 7;
}

static ln_status take_row(void *user, int64_t t, double logprob, const ln_top *top, size_t n_top,
                          const float *logits, int64_t n_vocab, ln_error *err) {
    (void)t, (void)top, (void)n_top, (void)err;
    add(user, &logprob, sizeof logprob);
    if (logits) add(user, logits, (size_t)n_vocab * sizeof *logits);
    return LN_OK;
}
static ln_status take_vector(void *user, const ln_embedding *v, ln_error *err) {
    (void)err;
    add(user, v->values, (size_t)v->n_values * sizeof *v->values);
    return LN_OK;
}
static ln_status take_class(void *user, const ln_class *c, ln_error *err) {
    (void)err;
    add(user, c->probabilities, 2 * sizeof *c->probabilities);
    return LN_OK;
}

/* Of a model: the sum over all its rows of logits, an embedding, classes, perplexity, sampled text. */
static void run_model(uint64_t *digest, int quantize_bits, const char *dir) {
    static const char *const labels[] = {"good", "bad"};
    ln_options o = ln_options_default();
    ln_classify_options classes = ln_classify_options_default();
    ln_sampling how = {.size = sizeof how};
    ln_result text = {.size = sizeof text};
    ln_evaluation value = {.size = sizeof value};
    ln_event event = {.size = sizeof event};
    ln_model *m = NULL;
    ln_engine *e = NULL;
    ln_request *r = NULL;
    ln_request_options ro = ln_request_options_default();
    const ln_prompt p = {.size = sizeof p, .text = "Tell me a short story.", .text_bytes = 22};
    int32_t ids[N_IDS];
    size_t n = 0;
    char path[300];
    spread(ids);
    o.n_ctx = 128, o.n_threads = 2, o.quantize_bits = quantize_bits;
    OK(ln_model_open(&m, TINY, &o, err));
    OK(ln_engine_open(&e, m, &o, err));
    OK(ln_score(e, ids, N_IDS, 0, take_row, digest, NULL, err));
    OK(ln_embed(e, &p, 1, NULL, take_vector, digest, NULL, err));
    classes.labels = labels, classes.n_labels = 2;
    OK(ln_classify(e, &p, 1, &classes, take_class, digest, NULL, err));
    OK(ln_evaluate(e, ids, N_IDS, 16, 8, &value, NULL, err));
    add(digest, &value.perplexity, sizeof value.perplexity);
    OK(ln_sampling_default(m, &how, err));
    how.temperature = 1, how.top_p = 0.875, how.top_k = 20, how.min_p = 0.0078125, how.n_max = 24,
    how.seed = 7;
    how.has_seed = true;
    OK(ln_generate(e, &p, &how, NULL, NULL, &text, err));
    add(digest, text.text, text.text_bytes);
    ln_result_free(&text);
    OK(ln_engine_start(e, err)); /* from here on the engine's own thread computes */
    ro.sampling = &how;
    ro.n_logprobs = 0;
    OK(ln_request_open(&r, e, &p, &ro, err));
    text.size = sizeof text;
    do OK(ln_request_next(r, -1, &event, err));
    while (event.kind != LN_EVENT_FINISH);
    OK(ln_request_result(r, &text, err));
    add(digest, text.text, text.text_bytes);
    add(digest, text.logprobs, text.n_ids * sizeof *text.logprobs);
    (void)snprintf(path, sizeof path, "%s/kv", dir);
    OK(ln_seq_save(e, text.prompt_ids, text.n_prompt_ids, path, &n, err));
    OK(ln_seq_load(e, path, &n, err));
    (void)unlink(path);
    ln_result_free(&text);
    ln_request_close(&r);
    OK(ln_score(e, ids, N_IDS, 0, take_row, digest, NULL, err));
    ln_engine_close(&e);
    ln_model_close(&m);
}

static void run_trainer(uint64_t *digest, const char *dir) {
    ln_options o = ln_options_default();
    ln_trainer_options how = ln_trainer_options_default();
    ln_step_report report = {.size = sizeof report};
    ln_trained matrix;
    ln_model *m = NULL;
    ln_trainer *t = NULL;
    char data[300];
    (void)snprintf(data, sizeof data, "%s/data.jsonl", dir);
    o.n_threads = 2;
    how.data = data, how.steps = 3, how.batch = 2, how.dropout = 0.125;
    OK(ln_model_open(&m, TINY, &o, err));
    OK(ln_trainer_new(&t, m, &o, &how, err));
    for (int i = 0; i < 3; i++) {
        OK(ln_trainer_step(t, &report, err));
        add(digest, &report.loss, sizeof report.loss);
        add(digest, &report.grad_norm, sizeof report.grad_norm);
    }
    for (size_t i = 0; i < 4; i++) {
        OK(ln_trainer_matrix(t, i, &matrix, err));
        add(digest, matrix.values, (size_t)(matrix.rows * matrix.cols) * sizeof *matrix.values);
    }
    ln_trainer_free(&t);
    ln_model_close(&m);
}

static void run_graph(uint64_t *digest) {
    static const float start[N_VALUES] = {0.1f, -0.2f, 0.3f, 0.7f, -1.1f, 1.3f, 0.9f, -0.6f};
    float value, grads[N_VALUES], values[N_VALUES];
    float *const to[] = {grads};
    const float *const from[] = {grads};
    ln_adamw rates = ln_adamw_default();
    ln_graph *g = NULL;
    rates.lr = 0.1;
    OK(ln_graph_new(&g, NULL, err));
    const int32_t x = ln_graph_trainable(g, 2, 4);
    OK(ln_graph_set(g, x, start, err));
    const int32_t y = ln_graph_mean(g, ln_graph_gelu(g, ln_graph_softmax(g, ln_graph_scale(g, x, 1.7f))));
    for (int i = 0; i < 3; i++) {
        OK(ln_graph_value_and_grad(g, y, &x, 1, &value, to, err));
        add(digest, &value, sizeof value);
        OK(ln_graph_adamw(g, &rates, &x, from, 1, err));
    }
    OK(ln_graph_get(g, x, values, err));
    add(digest, values, sizeof values);
    ln_graph_free(&g);
}

/* ---- the tests ---- */

typedef enum task { MODEL, QUANTISED, TRAINER, GRAPH, N_TASKS } task;
static const char *const tasks[] = {"a model", "a model quantised at load", "a trainer", "a graph"};

static char dir[] = "/tmp/linnet-float-env-XXXXXX";

static uint64_t run(task t, const environment *e) {
    uint64_t digest = 0xcbf29ce484222325u;
    enter(e);
    if (t == MODEL) run_model(&digest, 0, dir);
    if (t == QUANTISED) run_model(&digest, 4, dir);
    if (t == TRAINER) run_trainer(&digest, dir);
    if (t == GRAPH) run_graph(&digest);
    fesetenv(FE_DFL_ENV);
    return digest;
}

static void results_do_not_depend_on_the_callers_environment(void **state) {
    (void)state;
    enum { N = sizeof environments / sizeof *environments };
    uint64_t got[N][N_TASKS];
    for (size_t i = 0; i < N; i++)
        for (int t = 0; t < N_TASKS; t++) got[i][t] = run((task)t, &environments[i]);
    for (size_t i = 0; i + 1 < N; i++)
        for (int t = 0; t < N_TASKS; t++)
            if (got[i][t] != got[N - 1][t])
                fail_msg("%s, in a process that rounds %s: other bits than in the default environment",
                         tasks[t], environments[i].name);
}

/* Numbers of configurations and of requests are read, and those of messages written, by the C library, which
 * rounds as the x87 control word says. */
static void numbers_and_texts_do_not_depend_on_it(void **state) {
    (void)state;
    static const char call[] = "{\"template\":\"{{ x }} {{ x / 3 }} {{ '%.2f' % y "
                               "}}\",\"context\":{\"x\":0.1234567890123,\"y\":2.675}}";
    char want[100] = "";
    for (size_t i = sizeof environments / sizeof *environments; i-- > 0;) {
        ln_rendering out;
        enter(&environments[i]);
        OK(ln_chat_template_render(NULL, call, sizeof call - 1, &out, err));
        fesetenv(FE_DFL_ENV);
        assert_true(out.text_bytes < sizeof want);
        if (!want[0]) memcpy(want, out.text, out.text_bytes);
        if (strlen(want) != out.text_bytes || memcmp(want, out.text, out.text_bytes) != 0)
            fail_msg("rounding %s: '%.*s', expected '%s'", environments[i].name, (int)out.text_bytes,
                     out.text, want);
        ln_rendering_free(&out);
    }
}

/* A division by zero of the caller still traps, or sets its flag, after a call. */
static void flags_of_the_caller_stay(void **state) {
    (void)state;
    volatile double zero = 0, one = 1;
    ln_info info = {.size = sizeof info};
    fesetenv(FE_DFL_ENV);
    volatile double infinite = one / zero;
    (void)infinite;
    assert_int_equal(fetestexcept(FE_ALL_EXCEPT), FE_DIVBYZERO);
    OK(ln_show(TINY, NULL, &info, err));
    assert_int_equal(fetestexcept(FE_ALL_EXCEPT), FE_DIVBYZERO);
    feclearexcept(FE_ALL_EXCEPT);
}

static int setup(void **state) {
    (void)state;
    char path[300];
    if (!mkdtemp(dir)) return -1;
    (void)snprintf(path, sizeof path, "%s/data.jsonl", dir);
    FILE *f = fopen(path, "w");
    for (int i = 0; f && i < 6; i++)
        fprintf(f, "{\"prompt\":\"question %d\",\"completion\":\"answer %d\"}\n", i, i * i);
    return f && fclose(f) == 0 ? 0 : -1;
}
static int teardown(void **state) {
    (void)state;
    char path[300];
    (void)snprintf(path, sizeof path, "%s/data.jsonl", dir);
    return unlink(path) == 0 && rmdir(dir) == 0 ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_do_not_depend_on_the_callers_environment),
        cmocka_unit_test(numbers_and_texts_do_not_depend_on_it),
        cmocka_unit_test(flags_of_the_caller_stay),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
