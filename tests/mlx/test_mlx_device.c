/* The MLX device by MLX's own figures and against the reference: nodes of golden models and adapters are
 * within their bounds, 200 long chats leave MLX's memory as it was and stay within the plan, one seed has one
 * text in every run, the intermediates of a step end with the step, and a request has the same bits alone and
 * among others on MLX's CPU build. Skipped if MLX or the plug-in is missing. */
/* run: slow */
#include "../node_checks.h"
#include "device/registry.h"

#include <dlfcn.h>

/* MLX's figures, in bytes: held by arrays, the most of it since the last reset, freed and kept for reuse. */
static struct {
    size_t (*active)(void), (*peak)(void), (*cached)(void);
    void (*reset_peak)(void), (*clear)(void);
} mlx;
/* What MLX keeps at most, docs/mlx.md; and how much larger a kept buffer that it takes for the logits of
 * four rows may be than they are: as much again. */
enum { CACHE_BYTES = 64 << 20, LOOSE = 4 * 4096 * 4 };

static const char *device_text(char isas[96]) {
    ln_device_entry entries[8];
    const size_t n = ln_device_list(entries, LN_COUNT(entries));
    for (size_t i = 0; i < n; i++)
        if (strcmp(entries[i].name, "mlx") == 0) {
            (void)snprintf(isas, 96, "%s", entries[i].info.isas);
            if (!entries[i].available)
                print_message("SKIP: the MLX device is NOT tested: %s\n", entries[i].reason);
            return entries[i].available ? isas : NULL;
        }
    return NULL;
}

/* Finds the figures in the library that the plug-in has loaded. */
static void find_figures(void) {
    void *library = dlopen("libmlx.so", RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(library);
    const struct {
        void *to;
        const char *name;
    } all[] = {{&mlx.active, "_ZN3mlx4core17get_active_memoryEv"},
               {&mlx.peak, "_ZN3mlx4core15get_peak_memoryEv"},
               {&mlx.cached, "_ZN3mlx4core16get_cache_memoryEv"},
               {&mlx.reset_peak, "_ZN3mlx4core17reset_peak_memoryEv"},
               {&mlx.clear, "_ZN3mlx4core11clear_cacheEv"}};
    for (size_t i = 0; i < LN_COUNT(all); i++) {
        void *f = dlsym(library, all[i].name);
        if (!f) fail_msg("libmlx has no %s", all[i].name);
        memcpy(all[i].to, &f, sizeof f);
    }
}

/* ---- nodes ---- */

static void nodes_are_within_their_bounds(void **state) {
    (void)state;
    check_golden_nodes(LN_DEVICE_MLX, (size_t)fewer(1, 15));
    check_adapted_nodes(LN_DEVICE_MLX);
}

/* ---- chats ---- */

enum { TURNS = 3, ASKED = 70, ANSWERED = 20, AT_ONCE = 4 };
static int64_t answered(void) { return fewer(ANSWERED, 4); }

typedef struct chat {
    int32_t ids[TURNS * (ASKED + ANSWERED)];
    size_t n;
    double logprobs[TURNS * ANSWERED]; /* of the answers' tokens */
    size_t n_logprobs;
    ln_request *r;
} chat;

/* Adds a question to chat number i and sends the chat. */
static void ask(ln_engine *e, chat *c, int i, int turn) {
    ln_sampling how = {
        .size = sizeof how, .n_max = answered(), .top_p = 1, .repeat_penalty = 1, .has_seed = true};
    ln_request_options o = ln_request_options_default();
    uint64_t text = (uint64_t)(i * TURNS + turn) + 5;
    for (int k = 0; k < ASKED; k++) c->ids[c->n++] = (int32_t)(1 + test_random(&text) % 4000);
    how.seed = (uint64_t)i;
    how.temperature = i % 2 ? 0.8 : 0;
    how.ignore_eos = true;
    o.sampling = &how;
    o.n_logprobs = 0;
    OK(ln_request_open(&c->r, e, &(ln_prompt){.size = sizeof(ln_prompt), .ids = c->ids, .n_ids = c->n}, &o,
                       err));
}

/* Waits for the answer of a chat, and closes its request. */
static void finish(ln_engine *e, chat *c, ln_result *r) {
    ln_event v = {.size = sizeof v};
    while (v.kind != LN_EVENT_FINISH) {
        OK(ln_request_next(c->r, 0, &v, err));
        if (v.kind == LN_EVENT_NONE) OK(ln_engine_step(e, NULL, err));
    }
    OK(ln_request_result(c->r, r, err));
    ln_request_close(&c->r);
}

/* Adds the answer of a chat to it. */
static void answer(ln_engine *e, chat *c) {
    ln_result r = {.size = sizeof r};
    finish(e, c, &r);
    assert_int_equal(r.n_ids, answered());
    memcpy(c->ids + c->n, r.ids, r.n_ids * sizeof *r.ids);
    memcpy(c->logprobs + c->n_logprobs, r.logprobs, r.n_ids * sizeof *r.logprobs);
    c->n += r.n_ids, c->n_logprobs += r.n_ids;
    ln_result_free(&r);
}

/* Holds chats first .. first + n - 1, at most AT_ONCE, at once or one after the other. */
static void hold(ln_engine *e, chat *c, int first, int n, bool at_once) {
    memset(c, 0, (size_t)n * sizeof *c);
    for (int turn = 0; turn < TURNS; turn++) {
        for (int i = 0; i < n; i++) {
            ask(e, &c[i], first + i, turn);
            if (!at_once) answer(e, &c[i]);
        }
        for (int i = 0; at_once && i < n; i++) answer(e, &c[i]);
    }
}

static void open_tiny(ln_model **m, ln_engine **e, ln_plan *plan) {
    const ln_options o = {
        .size = sizeof o, .device = LN_DEVICE_MLX, .n_ctx = 320, .n_parallel = AT_ONCE, .n_chunk = 48};
    if (plan) OK(ln_plan_memory(LN_ROOT "/models/tiny", &o, plan, err));
    OK(ln_model_open(m, LN_ROOT "/models/tiny", &o, err));
    OK(ln_engine_open(e, *m, &o, err));
}

static void long_chats_leave_nothing(void **state) {
    const int n_chats = (int)fewer(200, 4);
    ln_plan plan = {.size = sizeof plan};
    ln_model *m;
    ln_engine *e;
    static chat c[AT_ONCE];
    (void)state;
    mlx.clear();
    mlx.reset_peak();
    const size_t base = mlx.active();
    open_tiny(&m, &e, &plan);
    hold(e, c, 0, AT_ONCE, true);
    const size_t before = mlx.active();
    assert_true(before > base);
    for (int at = 0; at < n_chats; at += AT_ONCE) hold(e, c, at, AT_ONCE, true);
    hold(e, c, 0, AT_ONCE, true);
    const size_t after = mlx.active(), peak = mlx.peak() - base,
                 planned = plan.weights_bytes + plan.kv_bytes + plan.activation_bytes;
    print_message("%d chats: active %zu, then %zu; peak %zu, planned %zu; cache %zu of %d\n", n_chats, before,
                  after, peak, planned, mlx.cached(), CACHE_BYTES);
    assert_true(after <= before + LOOSE && before <= after + LOOSE);
    assert_true(peak <= planned + CACHE_BYTES);
    assert_true(mlx.cached() <= CACHE_BYTES);
    ln_engine_close(&e);
    ln_model_close(&m);
    assert_int_equal(mlx.active(), base);
}

static void one_seed_has_one_text(void **state) {
    static chat first[AT_ONCE], again[AT_ONCE];
    (void)state;
    for (int run = 0; run < (int)fewer(3, 2); run++) {
        ln_model *m;
        ln_engine *e;
        open_tiny(&m, &e, NULL);
        hold(e, run ? again : first, 10, AT_ONCE, true);
        ln_engine_close(&e);
        ln_model_close(&m);
        for (int i = 0; run && i < AT_ONCE; i++) {
            assert_memory_equal(again[i].ids, first[i].ids, sizeof first[i].ids);
            assert_memory_equal(again[i].logprobs, first[i].logprobs, sizeof first[i].logprobs);
        }
    }
}

/* Near tokens stay apart: the bundled model's first words of a story are those of the CPU. */
static void a_story_is_that_of_the_cpu(void **state) {
    static const char asked[] = "Tell me a short story.";
    enum { WORDS = 12 };
    int32_t ids[2][WORDS];
    (void)state;
    for (int device = 0; device < 2; device++) {
        const ln_options o = {
            .size = sizeof o, .device = device ? LN_DEVICE_MLX : LN_DEVICE_CPU, .n_ctx = 64, .n_parallel = 1};
        const ln_sampling greedy = {.size = sizeof greedy, .n_max = WORDS, .top_p = 1, .repeat_penalty = 1};
        ln_prompt prompt = ln_prompt_default();
        ln_request_options how = ln_request_options_default();
        ln_result r = {.size = sizeof r};
        ln_model *m;
        ln_engine *e;
        chat c = {0};
        prompt.text = asked, prompt.text_bytes = sizeof asked - 1;
        how.sampling = &greedy;
        OK(ln_model_open(&m, LN_ROOT "/models/tiny", &o, err));
        OK(ln_engine_open(&e, m, &o, err));
        OK(ln_request_open(&c.r, e, &prompt, &how, err));
        finish(e, &c, &r);
        assert_int_equal(r.n_ids, WORDS);
        memcpy(ids[device], r.ids, sizeof ids[device]);
        ln_result_free(&r);
        ln_engine_close(&e);
        ln_model_close(&m);
    }
    assert_memory_equal(ids[0], ids[1], sizeof ids[0]);
}

/* What doctor and docs/mlx.md say of MLX's CPU build. MLX does not promise it, and it was not measured on a
 * GPU. */
static void alone_and_among_others(void **state) {
    static chat together[AT_ONCE], alone[AT_ONCE];
    char isas[96];
    ln_model *m;
    ln_engine *e;
    (void)state;
    if (!strstr(device_text(isas), "CPU")) {
        print_message("SKIP: MLX runs on a GPU here: bits alone and among others are NOT compared\n");
        return;
    }
    open_tiny(&m, &e, NULL);
    hold(e, together, 40, AT_ONCE, true);
    ln_engine_close(&e);
    OK(ln_engine_open(&e, m,
                      &(ln_options){.size = sizeof(ln_options),
                                    .device = LN_DEVICE_MLX,
                                    .n_ctx = 320,
                                    .n_parallel = AT_ONCE,
                                    .n_chunk = 48},
                      err));
    hold(e, alone, 40, AT_ONCE, false);
    ln_engine_close(&e);
    ln_model_close(&m);
    for (int i = 0; i < AT_ONCE; i++) {
        assert_memory_equal(alone[i].ids, together[i].ids, sizeof alone[i].ids);
        assert_memory_equal(alone[i].logprobs, together[i].logprobs, sizeof alone[i].logprobs);
    }
}

/* ---- temporaries ---- */

/* Bytes of all values that a step of so many rows makes, and of the weights that it converts to f32. */
static size_t made_by(const ln_program *p, int64_t rows) {
    const ln_bounds live = {rows, rows, 1};
    size_t sum = 0;
    for (int v = 0; v < p->n_values; v++) {
        const ln_pvalue *x = ln_program_value(p, v);
        size_t bytes = 4;
        if (x->kind != LN_KIND_TEMP && !(x->kind == LN_KIND_WEIGHT && x->enc.scale != LN_F32)) continue;
        for (int i = 0; i < x->n_dims; i++) bytes *= (size_t)ln_dim(x->dims[i], &live);
        sum += bytes;
    }
    return sum;
}

/* Keys and values are written into the pool, no step leaves more than its logits, and a step never holds what
 * all of its nodes make. */
static void temporaries_end_with_the_step(void **state) {
    enum { ROWS = 64, STEPS = 4 };
    ln_package *m;
    ln_eng *e;
    size_t active[STEPS];
    (void)state;
    OK(ln_package_open(&m, LN_ROOT "/models/tiny", &(ln_options){0}, err));
    ln_run_options r = test_options(m, LN_DEVICE_MLX, 1, ROWS, 1);
    OK(ln_eng_open_with(&e, m, &r, err));
    ln_seq *seq = test_seq(e, ROWS * STEPS, ROWS * STEPS);
    const char *pool = e->run->states[LN_STATE_PAGES];
    const size_t bytes = (size_t)e->run->sizes.kv_bytes,
                 all = made_by(&e->run->programs[LN_RUN_LOGITS].program, ROWS);
    char *copy = malloc(bytes);
    int32_t *ids = ln_eng_random_ids(m, ROWS);
    assert_true(copy && ids);
    for (int i = 0; i < STEPS; i++) {
        memcpy(copy, pool, bytes);
        mlx.reset_peak();
        const size_t before = mlx.active();
        OK(ln_eng_step(e, &(ln_batch_item){seq, ids, ROWS, LN_LOGITS_LAST}, 1, err));
        active[i] = mlx.active();
        print_message("step %d: active %zu, peak +%zu, made %zu\n", i, active[i], mlx.peak() - before, all);
        assert_ptr_equal(pool, e->run->states[LN_STATE_PAGES]);
        assert_memory_not_equal(copy, pool, bytes);
        assert_true(mlx.peak() - before < all / 4);
        assert_true(active[i] <= active[0] + LOOSE);
    }
    free(copy);
    ln_free(ids);
    ln_seq_close(e, &seq);
    ln_eng_close(&e);
    ln_package_close(&m);
}

int main(void) {
    char isas[96];
    if (!device_text(isas)) return 0;
    find_figures();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_are_within_their_bounds), cmocka_unit_test(long_chats_leave_nothing),
        cmocka_unit_test(one_seed_has_one_text),         cmocka_unit_test(alone_and_among_others),
        cmocka_unit_test(a_story_is_that_of_the_cpu),    cmocka_unit_test(temporaries_end_with_the_step)};
    return cmocka_run_group_tests_name("mlx_device", tests, NULL, NULL);
}
