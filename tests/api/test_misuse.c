/* Mistakes of a caller, and what a program may do around the library: NULL for every argument, buffers
 * that are too small, many open handles, fork(). */
/* run: slow asan */
#include <linnet.h>
#include <linnet_tools.h>

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define MODEL LN_ROOT "/tests/golden/qwen3-sharded-bf16"

static void ok(ln_status st, const ln_error *err, int line) {
    if (st != LN_OK) fail_msg("line %d: status %d: %s", line, st, err->message);
}
#define OK(x)                   \
    do {                        \
        ln_error err_ = {0};    \
        ln_error *err = &err_;  \
        ok((x), err, __LINE__); \
    } while (0)
/* Asserts LN_EUSAGE, and that ln_last_error() has a message although err is NULL. */
#define USAGE(x)                                                                                    \
    do {                                                                                            \
        if ((x) != LN_EUSAGE || ln_last_error()->code != LN_EUSAGE || !ln_last_error()->message[0]) \
            fail_msg("%s: status %d: %s", #x, ln_last_error()->code, ln_last_error()->message);     \
    } while (0)

/* A call that succeeds leaves the caller's error, and that of the thread, as they were. */
static void success_leaves_no_error(void **s) {
    (void)s;
    ln_model *m = NULL;
    ln_error err = {.code = LN_ECANCELLED, .message = "as it was"};
    assert_int_equal(ln_model_open(&m, MODEL, NULL, &err), LN_OK);
    assert_int_equal(err.code, LN_ECANCELLED);
    assert_string_equal(err.message, "as it was");
    ln_model_close(&m);
    USAGE(ln_model_open(NULL, MODEL, NULL, NULL));
    assert_int_equal(ln_model_open(&m, MODEL, NULL, NULL), LN_OK);
    assert_non_null(strstr(ln_last_error()->message, "must not be NULL"));
    ln_model_close(&m);
}

/* Numbers out of range are rejected with the field, what was expected and what was found. */
static void numbers_are_named(void **s) {
    (void)s;
    ln_model *m = NULL;
    ln_engine *e = NULL;
    ln_error err = {0};
    ln_result r = {.size = sizeof r};
    const int32_t ids[] = {5, 6};
    ln_prompt p = ln_prompt_default();
    p.ids = ids, p.n_ids = 2;
    OK(ln_model_open(&m, MODEL, NULL, err));
    OK(ln_engine_open(&e, m, NULL, err));
#define OPTION(field, v, said)                                           \
    do {                                                                 \
        ln_options o = ln_options_default();                             \
        ln_engine *none = NULL;                                          \
        o.field = v;                                                     \
        assert_int_equal(ln_engine_open(&none, m, &o, &err), LN_EUSAGE); \
        if (!strstr(err.message, said)) fail_msg("%s", err.message);     \
    } while (0)
    OPTION(n_threads, -5, "n_threads: expected 0 (the default) or more, found -5");
    OPTION(n_parallel, 5000, "n_parallel: expected at most 4096, found 5000");
    OPTION(adapter_rank, -1, "adapter_rank: expected");
    OPTION(device, (ln_device)77, "device: expected an ln_device, found 77");
    OPTION(numerics, (ln_numerics)9, "numerics: expected an ln_numerics, found 9");
#define SAMPLING(field, v, said)                                                     \
    do {                                                                             \
        ln_sampling how = {.size = sizeof how};                                      \
        OK(ln_sampling_default(m, &how, err));                                       \
        how.field = v;                                                               \
        assert_int_equal(ln_generate(e, &p, &how, NULL, NULL, &r, &err), LN_EUSAGE); \
        if (!strstr(err.message, said)) fail_msg("%s", err.message);                 \
    } while (0)
    SAMPLING(temperature, 2e6, "temperature: expected a number from 0 to 1e+06, found 2e+06");
    SAMPLING(top_p, NAN, "top_p: expected a number from 0 to 1, found");
    SAMPLING(top_k, -3, "top_k: expected 0 or more, found -3");
    SAMPLING(n_max, -7, "n_max: expected -1 or more, found -7");
    SAMPLING(repeat_penalty, 0, "ln_sampling.repeat_penalty): expected more than 0");
    SAMPLING(n_stop, 5, "n_stop is 5, but there is no stop");
    ln_engine_close(&e);
    ln_model_close(&m);
}

static void null_is_refused(void **s) {
    (void)s;
    ln_model *m;
    ln_engine *e;
    ln_tokenizer *t;
    ln_info info = {.size = sizeof info};
    ln_plan plan = {.size = sizeof plan};
    ln_result r = {.size = sizeof r};
    ln_sampling how = {.size = sizeof(ln_sampling)};
    ln_prompt p = {.size = sizeof(ln_prompt)};
    size_t n;
    const int32_t id = 1;
    USAGE(ln_model_open(NULL, MODEL, NULL, NULL));
    USAGE(ln_model_open(&m, NULL, NULL, NULL));
    USAGE(ln_model_info(NULL, &info, NULL));
    USAGE(ln_show(NULL, NULL, &info, NULL));
    USAGE(ln_show(MODEL, NULL, NULL, NULL));
    USAGE(ln_sampling_default(NULL, &how, NULL));
    USAGE(ln_plan_memory(NULL, NULL, &plan, NULL));
    USAGE(ln_plan_memory(MODEL, NULL, NULL, NULL));
    USAGE(ln_engine_open(NULL, NULL, NULL, NULL));
    USAGE(ln_engine_open(&e, NULL, NULL, NULL));
    assert_null(e);
    USAGE(ln_prompt_ids(NULL, &p, NULL, 0, &n, NULL));
    USAGE(ln_prompt_ids(NULL, &p, NULL, 1, &n, NULL));
    USAGE(ln_prompt_ids(NULL, NULL, NULL, 0, &n, NULL));
    USAGE(ln_prompt_ids(NULL, &p, NULL, 0, NULL, NULL));
    USAGE(ln_generate(NULL, &p, &how, NULL, NULL, &r, NULL));
    USAGE(ln_generate(NULL, NULL, &how, NULL, NULL, &r, NULL));
    ln_result_free(&r); /* the result is empty after any error */
    USAGE(ln_generate(NULL, &p, NULL, NULL, NULL, &r, NULL));
    USAGE(ln_generate(NULL, &p, &how, NULL, NULL, NULL, NULL));
    USAGE(ln_score(NULL, &id, 1, 0, NULL, NULL, NULL, NULL));
    USAGE(ln_score(NULL, NULL, 1, 0, (ln_score_fn *)1, NULL, NULL, NULL));
    USAGE(ln_inspect_keys(NULL, NULL, 1, (ln_keys_fn *)1, NULL, NULL));
    USAGE(ln_inspect_keys(NULL, &id, 1, NULL, NULL, NULL));
    USAGE(ln_tokenizer_open(NULL, MODEL, NULL));
    USAGE(ln_tokenizer_open(&t, NULL, NULL));
    USAGE(ln_tokenize(NULL, NULL, 3, true, NULL, 0, &n, NULL));
    USAGE(ln_tokenize(NULL, "a", 1, true, NULL, 0, &n, NULL));
    USAGE(ln_detokenize(NULL, NULL, 1, true, NULL, 0, &n, NULL));
    USAGE(ln_detokenize(NULL, &id, 1, true, NULL, 0, &n, NULL));
    USAGE(ln_token_bytes(NULL, 1, NULL, 0, NULL, NULL, NULL));
    USAGE(ln_token_bytes(NULL, 1, NULL, 1, &n, NULL, NULL));
    USAGE(ln_token_bytes(NULL, 1, NULL, 0, &n, NULL, NULL));
    USAGE(ln_request_start(NULL, NULL));
    USAGE(ln_list(NULL, NULL, NULL, NULL));
    USAGE(ln_doctor(false, 0, NULL, NULL));
    USAGE(ln_doctor_within(0, 0, NULL, NULL));
    m = NULL, e = NULL, t = NULL;
    ln_model_close(NULL), ln_model_close(&m);
    ln_engine_close(NULL), ln_engine_close(&e);
    ln_tokenizer_close(NULL), ln_tokenizer_close(&t);
    ln_result_free(NULL);
    ln_cancel(NULL, true);
    ln_cancel((ln_engine *)(uintptr_t)0x1234567890, true); /* a value that is no handle */
    USAGE(ln_score((ln_engine *)(uintptr_t)0x1234567890, &id, 1, 0, (ln_score_fn *)1, NULL, NULL, NULL));
}

static ln_status count_top(void *user, int64_t t, double logprob, const ln_top *top, size_t n_top,
                           const float *logits, int64_t n_vocab, ln_error *err) {
    (void)t, (void)logprob, (void)top, (void)logits, (void)err;
    *(bool *)user = n_top == (size_t)n_vocab;
    return LN_OK;
}
static ln_status no_node(void *user, const ln_node_report *node, ln_error *err) {
    (void)user, (void)node, (void)err;
    return LN_OK;
}
static ln_status shout(void *user, const char *text, size_t bytes, ln_error *err) {
    (void)user, (void)text, (void)bytes;
    memset(err->message, '!', sizeof err->message); /* a message without a terminating NUL */
    return LN_EIO;
}

/* Values at their limits, and values that are rejected because the library would otherwise have to ignore
 * them. */
static void odd_values(void **s) {
    (void)s;
    static const int32_t ids[] = {5, 9, 44};
    const ln_logit_bias bias = {5, INFINITY};
    ln_model *m;
    ln_engine *e;
    ln_result r = {.size = sizeof r};
    ln_sampling how = {.size = sizeof how};
    ln_error err;
    size_t n;
    bool whole = false;
    ln_options o = {.size = sizeof(ln_options), .n_ctx = 64, .n_threads = 2};
    ln_prompt p = {.size = sizeof(ln_prompt), .ids = ids, .n_ids = 3};
    OK(ln_model_open(&m, MODEL, &o, err));
    OK(ln_engine_open(&e, m, &o, err));
    OK(ln_sampling_default(m, &how, err));
    how.n_max = 2;
    OK(ln_score(e, ids, 3, SIZE_MAX, count_top, &whole, NULL,
                err)); /* SIZE_MAX: all tokens of the vocabulary */
    assert_true(whole);
    assert_int_equal(ln_score(e, ids, SIZE_MAX, 0, count_top, &whole, NULL, &err), LN_EINVALID);
    USAGE(ln_diff(m, NULL, ids, SIZE_MAX, no_node, NULL, NULL));
    assert_int_equal(ln_generate(e, &p, &how, shout, NULL, &r, &err), LN_EIO);
    assert_int_equal(strnlen(err.message, sizeof err.message), sizeof err.message - 1);
    ln_result_free(&r);
    how.bias = &bias, how.n_bias = 1;
    USAGE(ln_generate(e, &p, &how, NULL, NULL, &r, NULL));
    p.system = "s", p.system_bytes = 1;
    USAGE(ln_prompt_ids(m, &p, NULL, 0, &n, NULL));
    p = (ln_prompt){.size = sizeof(ln_prompt), .text = "a", .text_bytes = 1, .tmpl = (ln_template)9};
    USAGE(ln_prompt_ids(m, &p, NULL, 0, &n, NULL));
    ln_engine_close(&e);
    ln_model_close(&m);
}

/* The required size is returned in full, and nothing is written beyond the size that the caller gave. */
static void small_buffers(void **s) {
    (void)s;
    ln_model *m;
    ln_tokenizer *t;
    const char *text = "ab cd ef";
    int32_t all[64], some[65];
    char back[64], part[64];
    size_t n, k, bytes;
    ln_prompt p = {
        .size = sizeof(ln_prompt), .text = text, .text_bytes = strlen(text), .tmpl = LN_TEMPLATE_RAW};
    OK(ln_model_open(&m, MODEL, NULL, err));
    OK(ln_tokenizer_open(&t, MODEL, err));
    OK(ln_tokenize(t, text, strlen(text), false, all, 64, &n, err));
    assert_true(n > 2 && n < 64);
    OK(ln_detokenize(t, all, n, false, back, sizeof back, &bytes, err));
    assert_true(bytes == strlen(text) && memcmp(back, text, bytes) == 0);
    for (size_t cap = 0; cap <= n; cap++) {
        for (int which = 0; which < 2; which++) {
            memset(some, 0x55, sizeof some);
            if (which) OK(ln_prompt_ids(m, &p, some, cap, &k, err));
            else OK(ln_tokenize(t, text, strlen(text), false, some, cap, &k, err));
            assert_true(k >= n && some[cap] == 0x55555555);
            if (!which) assert_memory_equal(some, all, cap * sizeof *all);
        }
    }
    for (size_t cap = 0; cap <= bytes; cap++) {
        memset(part, 0x55, sizeof part);
        OK(ln_detokenize(t, all, n, false, part, cap, &k, err));
        assert_true(k == bytes && part[cap] == 0x55 && memcmp(part, back, cap) == 0);
    }
    size_t from = 0; /* the tokens' bytes make up the text */
    for (size_t i = 0; i < n; i++) {
        bool special = true;
        memset(part, 0x55, sizeof part);
        OK(ln_token_bytes(t, all[i], part, 1, &k, &special, err));
        assert_true(!special && k > 0 && part[0] == text[from] && part[1] == 0x55);
        OK(ln_token_bytes(t, all[i], NULL, 0, &k, NULL, err));
        from += k;
    }
    assert_int_equal(from, strlen(text));
    OK(ln_token_bytes(t, -1, part, sizeof part, &k, NULL, err));
    assert_int_equal(k, 0);
    OK(ln_token_bytes(t, 1 << 30, part, sizeof part, &k, NULL, err));
    assert_int_equal(k, 0);
    ln_tokenizer_close(&t);
    ln_model_close(&m);
}

static int count_open(const char *dir) {
    int n = 0;
    DIR *d = opendir(dir);
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n;
}
/* The address space in use, in KiB. Unlike the resident size, the kernel does not change it on its own. */
static long mapped_kb(void) {
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    assert_true(f && fscanf(f, "%ld", &pages) == 1 && pages > 0);
    fclose(f);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void open_and_say(void) {
    static const int32_t ids[] = {5, 9, 44};
    ln_model *m;
    ln_engine *e;
    ln_tokenizer *t;
    ln_result r = {.size = sizeof r};
    ln_sampling how = {.size = sizeof how};
    ln_options o = {.size = sizeof(ln_options), .n_ctx = 64, .n_threads = 2};
    ln_prompt p = {.size = sizeof(ln_prompt), .ids = ids, .n_ids = 3};
    OK(ln_model_open(&m, MODEL, &o, err));
    OK(ln_tokenizer_open(&t, MODEL, err));
    OK(ln_engine_open(&e, m, &o, err));
    OK(ln_sampling_default(m, &how, err));
    how.n_max = 2;
    OK(ln_generate(e, &p, &how, NULL, NULL, &r, err));
    ln_result_free(&r);
    ln_tokenizer_close(&t);
    ln_engine_close(&e);
    ln_model_close(&m);
}

static void opened_many_times(void **s) {
    (void)s;
    const char *longer = getenv("LN_LONG");
    int times = longer && longer[0] == '1' ? 10000 : 200;
    for (int i = 0; i < 30; i++) open_and_say();
    usleep(20000); /* a joined thread may be listed for a moment */
    int fds = count_open("/proc/self/fd"), threads = count_open("/proc/self/task");
    long before = mapped_kb();
    for (int i = 0; i < times; i++) open_and_say();
    /* a joined thread may be listed for a moment */
    for (int i = 0; i < 1000 && count_open("/proc/self/task") != threads; i++) usleep(1000);
    assert_int_equal(count_open("/proc/self/fd"), fds);
    assert_int_equal(count_open("/proc/self/task"), threads);
    if (!getenv("LN_SANITIZED")) assert_true(mapped_kb() - before < 2048);
}

/* A child of fork() does not have the pool's threads: the library must not wait for them there. */
static void a_child_can_generate(void **s) {
    (void)s;
    static const int32_t ids[] = {5, 9, 44};
    ln_model *m;
    ln_engine *e;
    ln_result here = {.size = sizeof here}, there = {.size = sizeof there};
    ln_sampling how = {.size = sizeof how};
    int status;
    ln_options o = {.size = sizeof(ln_options), .n_ctx = 64, .n_threads = 2};
    ln_prompt p = {.size = sizeof(ln_prompt), .ids = ids, .n_ids = 3};
    OK(ln_model_open(&m, MODEL, &o, err));
    OK(ln_engine_open(&e, m, &o, err));
    OK(ln_sampling_default(m, &how, err));
    how.n_max = 20, how.temperature = 0, how.ignore_eos = true;
    OK(ln_generate(e, &p, &how, NULL, NULL, &here, err));
    pid_t pid = fork();
    if (pid == 0) {
        alarm(60);
        if (ln_generate(e, &p, &how, NULL, NULL, &there, NULL) != LN_OK) _exit(1);
        _exit(there.n_ids == here.n_ids && memcmp(there.ids, here.ids, here.n_ids * sizeof *here.ids) == 0
                  ? 0
                  : 2);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    ln_result_free(&here);
    ln_engine_close(&e);
    ln_model_close(&m);
}

/* With err NULL the error is the thread's, whichever function failed. */
static void the_last_error_is_kept(void **state) {
    (void)state;
    ln_chat_template *t;
    USAGE(ln_quantize(NULL, "out", NULL, NULL, NULL, NULL));
    assert_non_null(strstr(ln_last_error()->message, "ln_quantize"));
    assert_int_equal(ln_chat_template_open(&t, "/nowhere", NULL, NULL), LN_EIO);
    assert_int_equal(ln_last_error()->code, LN_EIO);
    assert_non_null(strstr(ln_last_error()->message, "/nowhere"));
    USAGE(ln_dequantize(NULL, NULL, NULL, "float32", 1, 64, 1, 64, NULL, NULL));
    assert_non_null(strstr(ln_last_error()->message, "bits"));
}

/* Structs of options of other versions. `grown` has a field that this library does not know. */
typedef struct grown {
    union {
        uint32_t size;
        ln_options options;
        ln_sampling sampling;
        ln_prompt prompt;
        ln_bench_options bench;
        ln_quantize_options quantize;
        char bytes[1024];
    } u;
} grown;

/* One function that takes a struct of each kind; `x` is that struct, in the size of any version. */
typedef ln_status call_fn(ln_model *m, ln_engine *e, const void *x, ln_error *err);
static const int32_t three[] = {5, 9, 44};
static ln_status plans(ln_model *m, ln_engine *e, const void *x, ln_error *err) {
    ln_plan plan = {.size = sizeof plan};
    (void)m, (void)e;
    return ln_plan_memory(MODEL, x, &plan, err);
}
static ln_status samples(ln_model *m, ln_engine *e, const void *x, ln_error *err) {
    ln_prompt p = ln_prompt_default();
    p.ids = three, p.n_ids = 3;
    (void)m;
    return ln_generate(e, &p, x, NULL, NULL, NULL, err);
}
static ln_status prompts(ln_model *m, ln_engine *e, const void *x, ln_error *err) {
    size_t n = 0;
    (void)e;
    const ln_status st = ln_prompt_ids(m, x, NULL, 0, &n, err);
    if (st == LN_OK) assert_int_equal(n, 3);
    return st;
}
static ln_status no_row(void *user, const ln_bench_row *row, ln_error *err) {
    (void)user, (void)row, (void)err;
    return LN_OK;
}
static ln_status benches(ln_model *m, ln_engine *e, const void *x, ln_error *err) {
    ln_options o = ln_options_default();
    ln_bench_report report = {.size = sizeof report};
    o.n_threads = 1;
    (void)e;
    return ln_bench(m, &o, x, no_row, NULL, &report, err);
}
/* The folder of the output is a file, so that valid options end in LN_EIO before anything is quantised. */
static ln_status quantizes(ln_model *m, ln_engine *e, const void *x, ln_error *err) {
    (void)m, (void)e;
    const ln_status st = ln_quantize(LN_ROOT "/models/tiny", MODEL "/config.json/out", x, NULL, NULL, err);
    return st == LN_EUSAGE ? st : LN_OK;
}

/* Asserts what a call returns. */
static void returns(ln_status expected, ln_status st, const ln_error *err, const char *name) {
    if (st != expected) fail_msg("%s: status %d: %s", name, st, st ? err->message : "");
}

/* Calls with sizes of older, newer and broken callers. The fields of `from` that are set are in its first
 * `set` bytes. */
static void check_sizes(ln_model *m, ln_engine *e, call_fn *call, const void *from, size_t known, size_t set,
                        const char *name) {
    grown g = {0};
    ln_error err;
    char word[64];
    memcpy(&g, from, known);
    assert_int_equal(g.u.size, known); /* by X_default */
    returns(LN_OK, call(m, e, &g, &err), &err, name);
    g.u.size = (uint32_t)set; /* an older caller, whose struct ends after the fields that are set ... */
    memset(g.u.bytes + set, 0xff, sizeof g - set); /* ... and what follows is no part of it */
    returns(LN_OK, call(m, e, &g, &err), &err, name);
    memset(g.u.bytes + set, 0, sizeof g - set);
    memcpy(&g, from, known);
    g.u.size = sizeof g; /* a newer caller, which sets no new field */
    returns(LN_OK, call(m, e, &g, &err), &err, name);
    g.u.bytes[known] = 1; /* and one that does, at the first and at the last byte */
    returns(LN_EUSAGE, call(m, e, &g, &err), &err, name);
    assert_non_null(strstr(err.message, name));
    g.u.bytes[known] = 0;
    g.u.bytes[sizeof g - 1] = 1;
    returns(LN_EUSAGE, call(m, e, &g, &err), &err, name);
    g.u.bytes[sizeof g - 1] = 0;
    static const uint32_t broken[] = {0, 1, 3, 1u << 20, UINT32_MAX};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        g.u.size = broken[i];
        returns(LN_EUSAGE, call(m, e, &g, &err), &err, name);
        (void)snprintf(word, sizeof word, "%s.size is %u; start from %s_default", name, broken[i], name);
        assert_non_null(strstr(err.message, word));
    }
}

static ln_status count_classes(void *user, const ln_class *c, ln_error *err) {
    (void)err;
    *(int *)user += c->status == LN_OK;
    return LN_OK;
}

static void sizes_of_other_versions(void **s) {
    (void)s;
    ln_model *m;
    ln_engine *e;
    ln_options o = ln_options_default();
    ln_sampling how = {.size = sizeof how};
    ln_prompt p = ln_prompt_default();
    ln_bench_options b = ln_bench_options_default();
    ln_quantize_options q = ln_quantize_options_default();
    o.n_ctx = 64, o.n_threads = 1;
    OK(ln_model_open(&m, MODEL, &o, err));
    OK(ln_engine_open(&e, m, &o, err));
    OK(ln_sampling_default(m, &how, err));
    how.n_max = 2, how.ignore_eos = true; /* n_max comes after ignore_eos */
    p.ids = three, p.n_ids = 3;
    b.n_prefill = 8, b.n_reps = 1;
#define CHECK(call, x, last, name) \
    check_sizes(m, e, call, &(x), sizeof(x), offsetof(__typeof__(x), last) + sizeof(x).last, name)
    CHECK(plans, o, n_ctx, "ln_options");
    CHECK(samples, how, n_max, "ln_sampling");
    CHECK(prompts, p, n_ids, "ln_prompt");
    CHECK(benches, b, n_reps, "ln_bench_options");
    CHECK(quantizes, q, bits, "ln_quantize_options");
#undef CHECK

    /* An array of prompts of a newer caller: the size of the first is the distance between them. */
    grown all[3] = {0};
    int n = 0;
    ln_error err;
    ln_classify_options c = ln_classify_options_default();
    for (int i = 0; i < 3; i++) {
        all[i].u.prompt = p;
        all[i].u.size = sizeof all[i];
    }
    OK(ln_classify(e, &all[0].u.prompt, 3, &c, count_classes, &n, NULL, err));
    assert_int_equal(n, 3);
    all[2].u.size = sizeof(ln_prompt);
    assert_int_equal(ln_classify(e, &all[0].u.prompt, 3, &c, count_classes, &n, NULL, &err), LN_EUSAGE);
    assert_non_null(strstr(err.message, "prompt 3"));
    all[0].u.size = 0;
    assert_int_equal(ln_classify(e, &all[0].u.prompt, 1, &c, count_classes, &n, NULL, &err), LN_EUSAGE);
    c.sampling = &how; /* a struct that another one points to */
    how.size = 0;
    assert_int_equal(ln_classify(e, &p, 1, &c, count_classes, &n, NULL, &err), LN_EUSAGE);
    ln_request_options r = ln_request_options_default();
    ln_request *request;
    r.sampling = &how;
    assert_int_equal(ln_request_open(&request, e, &p, &r, &err), LN_EUSAGE);
    assert_null(request);
    ln_engine_close(&e);
    ln_model_close(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(success_leaves_no_error), cmocka_unit_test(numbers_are_named),
        cmocka_unit_test(null_is_refused),         cmocka_unit_test(odd_values),
        cmocka_unit_test(small_buffers),           cmocka_unit_test(opened_many_times),
        cmocka_unit_test(a_child_can_generate),    cmocka_unit_test(the_last_error_is_kept),
        cmocka_unit_test(sizes_of_other_versions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
