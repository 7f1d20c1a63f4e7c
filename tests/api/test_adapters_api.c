/* Adapters through the public interface: handles, prompts that name one, misuse. test_adapters has the
 * engine's side. */
/* run: quick cuda */
#include "../base/cm.h"

#include <linnet.h>
#include <linnet_tools.h>
#include <math.h>
#include <string.h>

#define GOLDEN LN_ROOT "/tests/golden/"
#define LORA   GOLDEN "lora/"
#define OK(x)                                                               \
    do {                                                                    \
        const ln_status st_ = (x);                                          \
        if (st_ != LN_OK) fail_msg("%s: %s", #x, ln_last_error()->message); \
    } while (0)
#define FAILS(status, word, x)                                                          \
    do {                                                                                \
        const ln_status st_ = (x);                                                      \
        if (st_ != (status) || !strstr(ln_last_error()->message, word))                 \
            fail_msg("%s: status %d, expected %d with '%s': %s", #x, st_, status, word, \
                     ln_last_error()->message);                                         \
    } while (0)

static const int32_t text[] = {1, 2, 3, 40, 50};
enum { N_NEW = 6 };

static ln_engine *open_engine(ln_model *m, const ln_adapter_part *own, int n_adapters) {
    ln_options o = ln_options_default();
    ln_engine *e = NULL;
    o.n_ctx = 64, o.n_parallel = 4, o.n_threads = 1;
    o.adapter = own, o.n_adapter_parts = own ? 1 : 0;
    o.n_adapters = n_adapters;
    OK(ln_engine_open(&e, m, &o, NULL));
    return e;
}

static ln_adapter *load(ln_engine *e, const char *dir) {
    ln_adapter *a = NULL;
    const ln_adapter_part part = {dir, 1};
    OK(ln_adapter_open(&a, e, &part, 1, NULL));
    return a;
}

static ln_request *ask(ln_engine *e, const ln_adapter *a) {
    ln_request_options o = ln_request_options_default();
    ln_sampling how = {
        .size = sizeof how, .repeat_penalty = 1, .top_p = 1, .n_max = N_NEW, .ignore_eos = true};
    ln_prompt p = ln_prompt_default();
    ln_request *r = NULL;
    p.ids = text, p.n_ids = 5, p.adapter = a;
    o.sampling = &how, o.n_logprobs = 0;
    OK(ln_request_open(&r, e, &p, &o, NULL));
    return r;
}

/* Log-probabilities of the generated tokens; closes the request. */
static void answer(ln_request *r, double out[N_NEW]) {
    ln_event v = {.size = sizeof v};
    ln_result all = {.size = sizeof all};
    while (v.kind != LN_EVENT_FINISH) OK(ln_request_next(r, -1, &v, NULL));
    OK(ln_request_result(r, &all, NULL));
    assert_int_equal(all.n_ids, N_NEW);
    memcpy(out, all.logprobs, N_NEW * sizeof *out);
    ln_result_free(&all);
    ln_request_close(&r);
}

static void several_at_once(void **state) {
    ln_model *m = *state;
    static const char *const dirs[] = {NULL, LORA "llama-all", LORA "llama-mlp", LORA "llama-few"};
    double alone[4][N_NEW], together[4][N_NEW];
    ln_adapter *a[4] = {0};
    ln_request *r[4];
    for (int i = 0; i < 4; i++) { /* as the engine's own, or without any */
        const ln_adapter_part own = {dirs[i], 1};
        ln_engine *e = open_engine(m, i ? &own : NULL, 0);
        answer(ask(e, NULL), alone[i]);
        ln_engine_close(&e);
    }
    ln_engine *e = open_engine(m, NULL, 3);
    for (int i = 1; i < 4; i++) {
        assert_int_equal(ln_adapter_room(e), 4 - i);
        a[i] = load(e, dirs[i]);
    }
    FAILS(LN_EMEMORY, "room for 3 adapters",
          ln_adapter_open(&a[0], e, &(ln_adapter_part){dirs[1], 1}, 1, NULL));
    for (int i = 0; i < 4; i++) r[i] = ask(e, a[i]);
    for (int i = 1; i < 4; i++) ln_adapter_close(&a[i]); /* the requests go on */
    assert_int_equal(ln_adapter_room(e), 0);
    for (int i = 0; i < 4; i++) answer(r[i], together[i]);
    assert_int_equal(ln_adapter_room(e), 3);
    assert_memory_equal(alone, together, sizeof alone);
    for (int i = 1; i < 4; i++) assert_memory_not_equal(alone[0], alone[i], sizeof alone[0]);
    a[1] = load(e, dirs[2]); /* their slots are free again */
    answer(ask(e, a[1]), together[2]);
    assert_memory_equal(alone[2], together[2], sizeof alone[2]);
    ln_adapter_close(&a[1]);
    ln_engine_close(&e);
}

static ln_status on_class(void *user, const ln_class *c, ln_error *err) {
    (void)err;
    ((double *)user)[c->index] = c->scores[0];
    return c->status;
}

static void prompts_of_classify(void **state) {
    static const char *const labels[] = {"a", "b"};
    ln_engine *e = open_engine(*state, NULL, 1);
    ln_adapter *a = load(e, LORA "llama-all");
    ln_classify_options o = ln_classify_options_default();
    ln_prompt p[3] = {ln_prompt_default(), ln_prompt_default(), ln_prompt_default()};
    double scores[3];
    o.labels = labels, o.n_labels = 2;
    for (int i = 0; i < 3; i++) p[i].ids = text, p[i].n_ids = 5;
    p[1].adapter = a;
    OK(ln_classify(e, p, 3, &o, on_class, scores, NULL, NULL));
    assert_true(scores[0] == scores[2] && scores[0] != scores[1]);
    ln_adapter_close(&a);
    ln_engine_close(&e);
}

static void facts_and_factors(void **state) {
    ln_engine *e = open_engine(*state, NULL, 1);
    const ln_adapter_part sum[] = {{LORA "llama-all", 1}, {LORA "llama-few", 0.5}};
    ln_adapter_info m = {.size = sizeof m};
    ln_adapter *a = NULL;
    OK(ln_adapter_open(&a, e, sum, 2, NULL));
    OK(ln_adapter_describe(a, &m, NULL));
    assert_int_equal(m.n_modules, 14 + 4);
    assert_int_equal(m.n_tensors, 28 + 8);
    assert_int_equal(m.n_applied, m.n_tensors);
    assert_true(m.scale_min == 1 && m.scale_max == 1.5); /* 6 / 4, and 4 / 2 by half */
    char before[65];
    memcpy(before, m.digest, sizeof before);
    OK(ln_adapter_set_scale(a, 2, NULL));
    OK(ln_adapter_describe(a, &m, NULL));
    assert_true(m.scale_max == 3);
    assert_string_not_equal(before, m.digest);
    FAILS(LN_EUSAGE, "finite", ln_adapter_set_scale(a, INFINITY, NULL));
    ln_request *r = ask(e, a);
    FAILS(LN_EUSAGE, "open requests", ln_adapter_set_scale(a, 1, NULL));
    ln_request_close(&r);
    OK(ln_adapter_set_scale(a, 1, NULL));
    ln_adapter_close(&a);
    ln_engine_close(&e);
}

static void misuse(void **state) {
    ln_engine *e = open_engine(*state, NULL, 1), *other = open_engine(*state, NULL, 1);
    ln_adapter *a = load(e, LORA "llama-few"), *copy = a, *none = NULL;
    ln_prompt p = ln_prompt_default();
    ln_request *r = NULL;
    p.ids = text, p.n_ids = 5, p.adapter = a;
    FAILS(LN_EUSAGE, "another engine", ln_request_open(&r, other, &p, NULL, NULL));
    ln_adapter_close(&a);
    assert_null(a);
    assert_int_equal(ln_adapter_room(NULL), 0);
    FAILS(LN_EUSAGE, "closed", ln_request_open(&r, e, &p, NULL, NULL));
    FAILS(LN_EUSAGE, "closed", ln_generate(e, &p, NULL, NULL, NULL, NULL, NULL));
    FAILS(LN_EUSAGE, "closed", ln_adapter_set_scale(copy, 1, NULL));
    ln_adapter_close(&copy);
    ln_adapter_close(&none);
    ln_adapter_close(NULL);
    a = load(e, LORA "llama-few");
    ln_engine_close(&e); /* an adapter keeps its engine */
    OK(ln_adapter_set_scale(a, 2, NULL));
    ln_adapter_close(&a);
    ln_options o = ln_options_default();
    o.n_adapters = -1;
    FAILS(LN_EUSAGE, "n_adapters", ln_engine_open(&e, *state, &o, NULL));
    o.n_adapters = 0, o.n_adapter_parts = 1;
    FAILS(LN_EUSAGE, "adapter", ln_engine_open(&e, *state, &o, NULL));
    ln_engine_close(&other);
}

static int setup(void **state) {
    ln_model *m = NULL;
    OK(ln_model_open(&m, GOLDEN "llama-plain-f32", NULL, NULL));
    *state = m;
    return 0;
}
static int teardown(void **state) {
    ln_model *m = *state;
    ln_model_close(&m);
    return 0;
}

/* Adapters that change the model itself belong to the model that is opened with them: requests cannot name
 * them, nor other adapters next to them. */
static void of_the_model(void **state) {
    (void)state;
    const ln_adapter_part own = {LORA "llama-tables", 1}, half = {LORA "llama-tables", 0.5},
                          other = {LORA "llama-few", 1};
    ln_options o = ln_options_default();
    ln_model *m;
    ln_engine *e = NULL;
    ln_adapter *a = NULL;
    OK(ln_model_open(&m, GOLDEN "llama-plain-f32", NULL, NULL));
    o.n_ctx = 64, o.adapter = &own, o.n_adapter_parts = 1, o.n_adapters = 1;
    FAILS(LN_EUNSUPPORTED, "changes the model itself (", ln_engine_open(&e, m, &o, NULL));
    o.n_adapter_parts = 0;
    OK(ln_engine_open(&e, m, &o, NULL));
    FAILS(LN_EUNSUPPORTED, "open the model with it", ln_adapter_open(&a, e, &own, 1, NULL));
    ln_engine_close(&e), ln_model_close(&m);
    o.n_adapter_parts = 1;
    OK(ln_model_open(&m, GOLDEN "llama-plain-f32", &o, NULL));
    OK(ln_engine_open(&e, m, &o, NULL));
    FAILS(LN_EUSAGE, "the model was opened with this adapter", ln_adapter_open(&a, e, &other, 1, NULL));
    ln_engine_close(&e);
    o.adapter = &half; /* another factor */
    FAILS(LN_EUNSUPPORTED, "changes the model itself", ln_engine_open(&e, m, &o, NULL));
    o.n_adapter_parts = 0;
    FAILS(LN_EUSAGE, "the model was opened with this adapter", ln_engine_open(&e, m, &o, NULL));
    ln_model_close(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(of_the_model), cmocka_unit_test(several_at_once),
                                       cmocka_unit_test(prompts_of_classify),
                                       cmocka_unit_test(facts_and_factors), cmocka_unit_test(misuse)};
    return cmocka_run_group_tests_name("adapters of the library", tests, setup, teardown);
}
