/* Structs that the library fills, as programs of other versions have them: no byte beyond their size is
 * written, a newer program's fields are zero, and what an older one has no field for is freed. */
/* run: quick */
#include <linnet.h>
#include <linnet_train.h>
#include <linnet_backend.h>

#include "../../src/base/base.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define MODEL LN_ROOT "/tests/golden/qwen3-sharded-bf16"

static ln_model *model;
static ln_engine *engine;
static ln_backend_model *hosted;
static const int32_t three[] = {5, 9, 44};
static const ln_prompt prompt = {.size = sizeof(ln_prompt), .ids = three, .n_ids = 3};

static void ok(ln_status st, const ln_error *err, int line) {
    if (st != LN_OK) fail_msg("line %d: status %d: %s", line, st, err->message);
}
#define OK(x)                   \
    do {                        \
        ln_error err_ = {0};    \
        ln_error *err = &err_;  \
        ok((x), err, __LINE__); \
    } while (0)

typedef union sized {
    uint32_t size;
    ln_result result;
    char bytes[8192];
} sized;

/* A struct of `size` bytes in memory of a pattern. */
static void begin(sized *x, size_t size) {
    memset(x, 0x55, sizeof *x);
    x->size = (uint32_t)size;
}

static void untouched(const sized *x, size_t size, const char *name) {
    assert_int_equal(x->size, size);
    for (size_t k = size; k < sizeof *x; k++)
        if (x->bytes[k] != 0x55) fail_msg("%s of %zu bytes: byte %zu was written", name, size, k);
}

static void zeros(const sized *x, size_t from, size_t to, const char *name) {
    for (size_t k = from; k < to; k++)
        if (x->bytes[k]) fail_msg("%s of %u bytes: byte %zu is not zero", name, x->size, k);
}

/* ---- structs without memory of their own ---- */

static ln_status stats_of(void *out, ln_error *err) { return ln_engine_get_stats(engine, out, err); }
static ln_status evaluation_of(void *out, ln_error *err) {
    return ln_evaluate(engine, three, 3, 0, 0, out, NULL, err);
}
static ln_status memory_of(void *out, ln_error *err) {
    uint32_t size;
    memcpy(&size, out, sizeof size);
    ln_memory_stats(out); /* which has no status: it ignores a size that is none */
    err->code = size < sizeof size || size > 1 << 16 ? LN_EUSAGE : LN_OK;
    (void)snprintf(err->message, sizeof err->message, "ln_memory.size");
    return err->code;
}
static ln_status event_of(void *out, ln_error *err) {
    ln_request *r = NULL;
    ln_status st = ln_request_open(&r, engine, &prompt, NULL, err);
    if (st == LN_OK) st = ln_request_next(r, 0, out, err);
    ln_request_close(&r);
    return st;
}
static ln_status info_of(void *out, ln_error *err) { return ln_model_info(model, out, err); }
static ln_status shown(void *out, ln_error *err) { return ln_show(MODEL, NULL, out, err); }
static ln_status hosted_info(void *out, ln_error *err) { return ln_backend_info(hosted, out, err); }
static ln_status sampling_of(void *out, ln_error *err) { return ln_sampling_default(model, out, err); }
static ln_status hosted_sampling(void *out, ln_error *err) { return ln_backend_sampling(hosted, out, err); }
static ln_status plan_of(void *out, ln_error *err) { return ln_plan_memory(MODEL, NULL, out, err); }
static ln_status machine_of(void *out, ln_error *err) { return ln_doctor(false, 1, out, err); }
static ln_status on_node(void *user, const ln_node_report *node, ln_error *err) {
    (void)user, (void)node, (void)err;
    return LN_OK;
}
static ln_status program_of(void *out, ln_error *err) {
    return ln_explain(engine, 1, 0, 1, on_node, NULL, out, err);
}
static ln_status on_row(void *user, const ln_bench_row *row, ln_error *err) {
    (void)user, (void)row, (void)err;
    return LN_OK;
}
static ln_status bench_of(void *out, ln_error *err) {
    ln_options o = ln_options_default();
    ln_bench_options how = ln_bench_options_default();
    o.n_ctx = 64, o.n_threads = 1;
    how.n_prefill = 4, how.n_reps = 1;
    return ln_bench(model, &o, &how, on_row, NULL, out, err);
}

static const struct {
    const char *name;
    ln_status (*call)(void *out, ln_error *err);
    size_t known, least;
} filled[] = {
#define FILLED(type, call) \
    { #type, call, sizeof(type), sizeof(uint32_t) }
    FILLED(ln_engine_stats, stats_of),
    FILLED(ln_memory, memory_of),
    {"ln_event", event_of, sizeof(ln_event), sizeof(uint32_t) + sizeof(ln_event_kind)},
    {"ln_evaluation", evaluation_of, sizeof(ln_evaluation),
     offsetof(ln_evaluation, tokens) + sizeof(int64_t)},
    FILLED(ln_info, info_of),
    FILLED(ln_info, shown),
    FILLED(ln_info, hosted_info),
    FILLED(ln_sampling, sampling_of),
    FILLED(ln_sampling, hosted_sampling),
    FILLED(ln_plan, plan_of),
    FILLED(ln_machine, machine_of),
    FILLED(ln_program_report, program_of),
    FILLED(ln_bench_report, bench_of),
#undef FILLED
};

static void filled_structs(void **state) {
    static const uint32_t broken[] = {0, 3, 1u << 20, UINT32_MAX};
    static sized x;
    ln_error err;
    char word[64];
    (void)state;
    for (size_t i = 0; i < LN_COUNT(filled); i++) {
        const char *name = filled[i].name;
        const size_t sizes[] = {filled[i].least, filled[i].known / 8 * 4, filled[i].known, sizeof x};
        for (size_t k = 0; k < LN_COUNT(sizes); k++) {
            begin(&x, sizes[k]);
            ok(filled[i].call(&x, &err), &err, __LINE__);
            untouched(&x, sizes[k], name);
            zeros(&x, filled[i].known, sizes[k], name);
            if (sizes[k] < filled[i].known) continue;
            bool any = false; /* the known fields are given, to a newer program, too */
            for (size_t b = sizeof x.size; b < filled[i].known; b++) any |= x.bytes[b] != 0x55;
            assert_true(any);
        }
        for (size_t k = 0; k < LN_COUNT(broken); k++) {
            begin(&x, broken[k]);
            assert_int_equal(filled[i].call(&x, &err), LN_EUSAGE);
            (void)snprintf(word, sizeof word, "%s.size", name);
            assert_non_null(strstr(err.message, word));
            begin(&x, broken[k]);
        }
    }
}

/* A newer program's fields come after those of this library, whose values are those of a program of its age.
 */
static void known_fields_are_the_same(void **state) {
    static sized x;
    ln_info info = {.size = sizeof info};
    ln_plan plan = {.size = sizeof plan};
    (void)state;
    OK(ln_model_info(model, &info, err));
    begin(&x, sizeof x);
    OK(ln_model_info(model, (ln_info *)(void *)&x, err));
    assert_memory_equal(x.bytes + sizeof x.size, (char *)&info + sizeof x.size, sizeof info - sizeof x.size);
    begin(&x, offsetof(ln_info, dtype)); /* an older program, which knows path and model_type */
    OK(ln_show(MODEL, NULL, (ln_info *)(void *)&x, err));
    assert_string_equal(((ln_info *)(void *)&x)->model_type, info.model_type);
    OK(ln_plan_memory(MODEL, NULL, &plan, err));
    begin(&x, offsetof(ln_plan, kv_bytes));
    OK(ln_plan_memory(MODEL, NULL, (ln_plan *)(void *)&x, err));
    assert_int_equal(((ln_plan *)(void *)&x)->weights_bytes, plan.weights_bytes);
}

/* ---- results, which own memory ---- */

static ln_sampling four_tokens(void) {
    ln_sampling how = {.size = sizeof how};
    OK(ln_sampling_default(model, &how, err));
    how.temperature = 0, how.n_max = 4, how.ignore_eos = true;
    return how;
}

static ln_status generated(ln_result *out, ln_error *err) {
    const ln_sampling how = four_tokens();
    return ln_generate(engine, &prompt, &how, NULL, NULL, out, err);
}

static ln_status requested(ln_result *out, ln_error *err) {
    const ln_sampling how = four_tokens();
    ln_request_options o = ln_request_options_default();
    ln_request *r = NULL;
    ln_event v = {.size = sizeof v};
    o.sampling = &how, o.n_logprobs = 2, o.prompt_logprobs = true;
    ln_status st = ln_request_open(&r, engine, &prompt, &o, err);
    while (st == LN_OK && v.kind != LN_EVENT_FINISH) st = ln_request_next(r, -1, &v, err);
    if (st == LN_OK) st = ln_request_result(r, out, err);
    ln_request_close(&r);
    return st;
}

static ln_status answered(ln_result *out, ln_error *err) {
    const ln_sampling how = four_tokens();
    return ln_backend_generate(hosted, &prompt, &how, NULL, NULL, out, err);
}

static ln_status talked(ln_result *out, ln_error *err) {
    const ln_sampling how = four_tokens();
    const ln_message hi = {"user", "Hi", 2};
    const ln_prompt talk = {.size = sizeof talk, .messages = &hi, .n_messages = 1, .tmpl = LN_TEMPLATE_CHAT};
    return ln_backend_chat(hosted, &talk, &how, NULL, NULL, out, err);
}

static void check_result(ln_status (*call)(ln_result *out, ln_error *err), const char *name) {
    static sized x;
    ln_result whole = {.size = sizeof whole};
    OK(call(&whole, err)); /* what the engine keeps of the prompt is allocated now */
    assert_int_equal(whole.n_ids, 4);
    const uint64_t held = ln_mem_bytes();
    for (size_t size = sizeof(uint32_t); size <= sizeof whole + 64; size += 4) {
        begin(&x, size);
        OK(call(&x.result, err));
        untouched(&x, size, name);
        zeros(&x, sizeof whole, size, name);
        if (size >= offsetof(ln_result, text)) {
            assert_int_equal(x.result.n_ids, 4);
            assert_memory_equal(x.result.ids, whole.ids, 4 * sizeof *whole.ids);
        }
        if (size >= offsetof(ln_result, logprobs)) assert_int_equal(x.result.metrics.generated_tokens, 4);
        ln_result_free(&x.result);
        untouched(&x, size, name);
        zeros(&x, sizeof x.size, size, name);
        if (ln_mem_bytes() != held) fail_msg("%s of %zu bytes: memory is lost", name, size);
        ln_result_free(&x.result); /* an empty one */
    }
    ln_result_free(&whole);
    static const uint32_t broken[] = {0, 3, 1u << 20, UINT32_MAX};
    ln_error err;
    for (size_t k = 0; k < LN_COUNT(broken); k++) {
        begin(&x, broken[k]);
        assert_int_equal(call(&x.result, &err), LN_EUSAGE);
        assert_non_null(strstr(err.message, "ln_result.size"));
        ln_result_free(&x.result); /* which has nothing of the library */
        for (size_t b = sizeof x.size; b < sizeof x; b++) assert_int_equal(x.bytes[b], 0x55);
    }
}

static void results(void **state) {
    (void)state;
    check_result(generated, "ln_generate's ln_result");
    check_result(requested, "ln_request_result's ln_result");
    check_result(answered, "ln_backend_generate's ln_result");
    check_result(talked, "ln_backend_chat's ln_result");
}

/* The elements of an array are as far from each other as the program's struct is large. */
static void arrays_of_results(void **state) {
    enum { N = 3 };
    static union {
        ln_result first;
        char bytes[N * 1024];
    } all;
    const size_t sizes[] = {offsetof(ln_result, text), sizeof(ln_result), 1024};
    const ln_prompt prompts[N] = {prompt, {.size = sizeof(ln_prompt), .ids = three + 1, .n_ids = 1}, prompt};
    const ln_sampling how = four_tokens();
    ln_error errors[N], err;
    ln_result one = {.size = sizeof one};
    (void)state;
    OK(ln_backend_generate(hosted, &prompts[0], &how, NULL, NULL, &one, err));
    for (size_t k = 0; k < LN_COUNT(sizes); k++) {
        const uint32_t size = (uint32_t)sizes[k];
        memset(&all, 0x55, sizeof all);
        for (size_t i = 0; i < N; i++) memcpy(all.bytes + i * size, &size, sizeof size);
        const uint64_t held = ln_mem_bytes();
        OK(ln_backend_batch(hosted, prompts, N, &how, &all.first, errors, err));
        for (size_t i = 0; i < N; i++) {
            ln_result *r = (ln_result *)(void *)(all.bytes + i * size);
            assert_int_equal(r->size, size);
            assert_int_equal(r->n_prompt_ids, prompts[i].n_ids);
            assert_int_equal(r->n_ids, 4);
            if (i != 1) assert_memory_equal(r->ids, one.ids, 4 * sizeof *one.ids);
            ln_result_free(r);
        }
        for (size_t b = N * size; b < sizeof all; b++) assert_int_equal(all.bytes[b], 0x55);
        if (k > 0) assert_int_equal(ln_mem_bytes(), held); /* the first call fills the engine's cache */
    }
    ln_result_free(&one);
    for (size_t i = 0; i < N; i++) ((ln_result *)(void *)all.bytes)[i] = (ln_result){.size = sizeof one};
    ((ln_result *)(void *)all.bytes)[2].size = sizeof one - 8;
    assert_int_equal(ln_backend_batch(hosted, prompts, N, &how, &all.first, errors, &err), LN_EUSAGE);
    assert_non_null(strstr(err.message, "result 3"));
}

/* ---- measurements, whose size is fixed ---- */

static ln_status on_class(void *user, const ln_class *c, ln_error *err) {
    (void)user, (void)err;
    return c->status;
}
static ln_status on_embedding(void *user, const ln_embedding *e, ln_error *err) {
    (void)user, (void)err;
    return e->status;
}
static ln_status on_score(void *user, int64_t t, double logprob, const ln_top *top, size_t n_top,
                          const float *logits, int64_t n_vocab, ln_error *err) {
    (void)user, (void)t, (void)logprob, (void)top, (void)n_top, (void)logits, (void)n_vocab, (void)err;
    return LN_OK;
}

static void assert_reserved(const ln_metrics *m) {
    assert_true(m->prompt_tokens > 0);
    for (size_t i = 0; i < LN_COUNT(m->reserved); i++) assert_int_equal(m->reserved[i], 0);
}

/* The struct's size is a part of the ABI; fields that this library does not know are zero in every call that
 * gives measurements. */
static void metrics_have_reserved_fields(void **state) {
    ln_metrics m;
    ln_result r = {.size = sizeof r};
    ln_evaluation e = {.size = sizeof e};
    (void)state;
    assert_int_equal(sizeof(ln_metrics), (15 + 16) * 8);
    assert_int_equal(offsetof(ln_metrics, reserved), 17 * 8); /* two have become counts */
    OK(generated(&r, err));
    assert_reserved(&r.metrics);
    ln_result_free(&r);
#define MEASURED(call)          \
    memset(&m, 0x55, sizeof m); \
    OK(call);                   \
    assert_reserved(&m)
    MEASURED(ln_classify(engine, &prompt, 1, NULL, on_class, NULL, &m, err));
    MEASURED(ln_embed(engine, &prompt, 1, NULL, on_embedding, NULL, &m, err));
    MEASURED(ln_evaluate(engine, three, 3, 0, 0, &e, &m, err));
    MEASURED(ln_score(engine, three, 3, 0, on_score, NULL, &m, err));
    MEASURED(ln_backend_classify(hosted, &prompt, 1, NULL, on_class, NULL, &m, err));
    MEASURED(ln_backend_metrics(hosted, &m, err));
#undef MEASURED
}

/* ---- backends ---- */

static uint32_t info_size, defaults_size, end_size;
static ln_status load_nothing(void **out, void *user, const char *path, const ln_backend_options *opt,
                              ln_error *err) {
    (void)user, (void)path, (void)opt, (void)err;
    *out = NULL;
    return LN_OK;
}
static void close_nothing(void *m) { (void)m; }
static ln_status say_nothing(void *m, const ln_prompt *p, const ln_sampling *how, const ln_backend_sink *sink,
                             ln_backend_end *end, ln_error *err) {
    (void)m, (void)p, (void)how, (void)sink, (void)err;
    end_size = end->size;
    return LN_OK;
}
/* As a backend of an older header does that does not know of sizes: it overwrites the beginning. */
static ln_status older_info(void *m, ln_info *out, ln_error *err) {
    (void)m, (void)err;
    info_size = out->size;
    memset(out, 0, offsetof(ln_info, bits));
    (void)snprintf(out->model_type, sizeof out->model_type, "nothing");
    return LN_OK;
}
static ln_status older_defaults(void *m, ln_sampling *out, ln_error *err) {
    (void)m, (void)err;
    defaults_size = out->size;
    out->size = offsetof(ln_sampling, stop_ids);
    return LN_OK;
}

static void backends_learn_the_size(void **state) {
    static const ln_backend table = {.size = sizeof table,
                                     .name = "nothing",
                                     .load = load_nothing,
                                     .close = close_nothing,
                                     .generate = say_nothing,
                                     .info = older_info,
                                     .defaults = older_defaults};
    ln_backend_model *m = NULL;
    ln_info info = {.size = sizeof info};
    ln_sampling how = {.size = sizeof how};
    ln_result r = {.size = sizeof r};
    (void)state;
    OK(ln_backend_register(&table, err));
    OK(ln_backend_load(&m, "nothing", "any", NULL, err));
    OK(ln_backend_info(m, &info, err));
    assert_int_equal(info.size, sizeof info);
    assert_string_equal(info.model_type, "nothing");
    assert_int_equal(info.n_files, 0); /* beyond what the backend knows */
    OK(ln_backend_sampling(m, &how, err));
    assert_int_equal(how.size, sizeof how);
    OK(ln_backend_generate(m, &prompt, &how, NULL, NULL, &r, err));
    assert_string_equal(r.text, "");
    ln_result_free(&r);
    assert_int_equal(info_size, sizeof info);
    assert_int_equal(defaults_size, sizeof how);
    assert_int_equal(end_size, sizeof(ln_backend_end));
    ln_backend_close(&m);
}

/* ---- defaults ---- */

/* What X_default writes ends at the program's sizeof(X), whatever the library's is. */
static void defaults_of_other_versions(void **state) {
    static const struct {
        const char *name;
        size_t known;
    } structs[] = {
#define STRUCT(X) {#X, sizeof(X)}
        STRUCT(ln_options),         STRUCT(ln_prompt),
        STRUCT(ln_request_options), STRUCT(ln_classify_options),
        STRUCT(ln_embed_options),   STRUCT(ln_batch_options),
        STRUCT(ln_trainer_options), STRUCT(ln_backend_options),
        STRUCT(ln_bench_options),   STRUCT(ln_quantize_options),
        STRUCT(ln_fuse_options),    STRUCT(ln_init_options),
        STRUCT(ln_adamw),           STRUCT(ln_convert_options),
#undef STRUCT
    };
    static sized x, whole;
    (void)state;
    for (size_t i = 0; i < LN_COUNT(structs); i++) {
        const size_t known = structs[i].known, sizes[] = {sizeof(uint32_t), known / 8 * 4, known, known + 40};
        ln_set_default(structs[i].name, &whole, (uint32_t)known);
        for (size_t k = 0; k < LN_COUNT(sizes); k++) {
            begin(&x, sizes[k]);
            ln_set_default(structs[i].name, &x, (uint32_t)sizes[k]);
            untouched(&x, sizes[k], structs[i].name);
            zeros(&x, known, sizes[k], structs[i].name);
            assert_memory_equal(x.bytes + 4, whole.bytes + 4, LN_MIN(sizes[k], known) - 4);
        }
    }
    assert_int_equal(ln_request_options_default().n_logprobs, -1);
    assert_true(ln_fuse_options_default().scale == 1 && ln_backend_options_default().adapter_scale == 1);
    assert_true(ln_trainer_options_default().rank == 8 && ln_adamw_default().beta2 == 0.999);
    begin(&x, 64);
    ln_set_default("ln_struct_of_a_newer_library", &x, 64);
    untouched(&x, 64, "an unknown struct");
    zeros(&x, sizeof x.size, 64, "an unknown struct");
}

static int open_all(void **state) {
    ln_options o = {.size = sizeof o, .n_ctx = 64, .n_threads = 1, .n_logits = 4};
    const ln_backend_options b = {.size = sizeof b, .options = &o, .adapter_scale = 1};
    (void)state;
    OK(ln_model_open(&model, MODEL, &o, err));
    OK(ln_engine_open(&engine, model, &o, err));
    OK(ln_backend_load(&hosted, "native", MODEL, &b, err));
    return 0;
}

static int close_all(void **state) {
    (void)state;
    ln_backend_close(&hosted);
    ln_engine_close(&engine);
    ln_model_close(&model);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(filled_structs),
                                       cmocka_unit_test(known_fields_are_the_same),
                                       cmocka_unit_test(results),
                                       cmocka_unit_test(arrays_of_results),
                                       cmocka_unit_test(metrics_have_reserved_fields),
                                       cmocka_unit_test(backends_learn_the_size),
                                       cmocka_unit_test(defaults_of_other_versions)};
    return cmocka_run_group_tests(tests, open_all, close_all);
}
