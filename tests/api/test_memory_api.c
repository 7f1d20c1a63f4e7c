/* Memory of the process: the limit for all engines, the figures by class, the peak and its reset, what is
 * kept for reuse; and that a process under a limit stays below it. */
/* run: quick */
#include <linnet.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "engine/memory_control.h"

#define MODEL LN_ROOT "/tests/golden/qwen3-sharded-bf16"
#define LONG  LN_ROOT "/tests/golden/llama-long-bf16" /* 32,768 positions */

#define OK(x)                                                                   \
    do {                                                                        \
        ln_error err_ = {0};                                                    \
        ln_error *err = &err_;                                                  \
        ln_status st_ = (x);                                                    \
        if (st_ != LN_OK) fail_msg("%s: status %d: %s", #x, st_, err_.message); \
    } while (0)

static ln_memory stats(void) {
    ln_memory m = {.size = sizeof m};
    ln_memory_stats(&m);
    assert_int_equal(m.size, sizeof m);
    return m;
}

static ln_options options(int64_t n_ctx) {
    ln_options o = ln_options_default();
    o.n_threads = 2, o.n_chunk = 32, o.n_ctx = n_ctx;
    return o;
}

/* Generates n tokens after n_ids ids that begin with `first`; returns the metrics. */
static ln_metrics run(ln_engine *e, int32_t first, size_t n_ids, int64_t n) {
    int32_t ids[200];
    for (size_t i = 0; i < n_ids; i++) ids[i] = (int32_t)(1 + ((size_t)first + i) % 250);
    ln_prompt p = {.size = sizeof(ln_prompt), .ids = ids, .n_ids = n_ids};
    ln_sampling how = {
        .size = sizeof(ln_sampling), .top_p = 1, .repeat_penalty = 1, .n_max = n, .ignore_eos = true};
    ln_result r = {.size = sizeof r};
    OK(ln_generate(e, &p, &how, NULL, NULL, &r, err));
    const ln_metrics m = r.metrics;
    ln_result_free(&r);
    return m;
}

static void the_limit_is_kept_and_named(void **state) {
    (void)state;
    ln_model *m;
    ln_engine *e = NULL;
    ln_plan p = {.size = sizeof p};
    ln_error said = {0};
    ln_options o = options(128);
    OK(ln_model_open(&m, MODEL, &o, err));
    assert_int_equal(ln_memory_set_limit(1000), 0);
    assert_int_equal(stats().limit_bytes, 1000);
    assert_int_equal(ln_engine_open(&e, m, &o, &said), LN_EMEMORY);
    assert_null(e);
    assert_non_null(strstr(said.message, "1000 bytes are allowed by ln_memory_set_limit"));
    OK(ln_plan_memory(MODEL, &o, &p, err));
    assert_string_equal(p.limit, "ln_memory_set_limit");
    assert_false(p.fits);
    assert_int_equal(p.available_bytes, 1000);
    o.memory_bytes = 900; /* the smaller of the two decides */
    OK(ln_plan_memory(MODEL, &o, &p, err));
    assert_string_equal(p.limit, "ln_options.memory_bytes");
    assert_int_equal(ln_memory_set_limit(0), 1000);
    o.memory_bytes = 0;
    OK(ln_engine_open(&e, m, &o, err));
    ln_engine_close(&e);
    ln_model_close(&m);
    if (getenv("LN_SANITIZED")) return; /* a sanitizer's own memory counts, and grows */
    /* a limit that lets an engine of fewer positions in: the message says which */
    OK(ln_plan_memory(LONG, &o, &p, err));
    o.n_ctx = 32768;
    OK(ln_model_open(&m, LONG, &o, err));
    (void)ln_memory_set_limit(p.peak_bytes + (6 << 20));
    assert_int_equal(ln_engine_open(&e, m, &o, &said), LN_EMEMORY);
    const char *at = strstr(said.message, "; ln_options.n_ctx ");
    assert_non_null(at);
    o.n_ctx = strtol(at + 19, NULL, 10);
    OK(ln_engine_open(&e, m, &o, err));
    assert_true(stats().active_bytes <= p.peak_bytes + (6 << 20));
    assert_true(ln_memory_set_limit(0) > 0);
    ln_engine_close(&e);
    ln_model_close(&m);
}

static void classes_are_counted(void **state) {
    (void)state;
    ln_model *m;
    ln_engine *a, *b;
    ln_plan p = {.size = sizeof p};
    ln_options o = options(128);
    const ln_memory none = stats();
    assert_int_equal(none.weights_bytes + none.kv_bytes + none.activation_bytes + none.adapter_bytes, 0);
    assert_int_equal(none.cache_bytes, 0);
    assert_int_equal(none.other_bytes, none.active_bytes);
    OK(ln_plan_memory(MODEL, &o, &p, err));
    OK(ln_model_open(&m, MODEL, &o, err));
    OK(ln_engine_open(&a, m, &o, err));
    const ln_memory one = stats();
    assert_int_equal(one.kv_bytes, p.kv_bytes);
    assert_int_equal(one.activation_bytes, p.activation_bytes);
    assert_true(one.weights_bytes > 0 && one.weights_bytes <= p.weights_bytes);
    assert_true(one.peak_bytes + (1 << 20) >= one.active_bytes);
    OK(ln_engine_open(&b, m, &o, err));
    assert_int_equal(stats().weights_bytes, one.weights_bytes); /* shared */
    assert_int_equal(stats().kv_bytes, 2 * one.kv_bytes);
    assert_int_equal(stats().activation_bytes, 2 * one.activation_bytes);
    ln_engine_close(&a);
    assert_int_equal(stats().weights_bytes, one.weights_bytes);
    ln_engine_close(&b);
    ln_model_close(&m);
    assert_int_equal(stats().weights_bytes + stats().kv_bytes + stats().activation_bytes, 0);
    struct {
        uint32_t size;
        uint64_t active;
        uint8_t after[sizeof(ln_memory)];
    } old = {.size = 16}; /* a caller that knows the first figure only */
    memset(old.after, 7, sizeof old.after);
    ln_memory_stats((ln_memory *)(void *)&old);
    assert_true(old.active > 0 && old.after[0] == 7);
    ln_memory_stats(NULL);
}

/* What is kept for reuse is counted, dropped on request and kept below a limit; running requests lose
 * nothing. */
static void what_is_kept_for_reuse(void **state) {
    (void)state;
    ln_model *m;
    ln_engine *e;
    ln_options o = options(256);
    o.n_parallel = 2;
    OK(ln_model_open(&m, MODEL, &o, err));
    OK(ln_engine_open(&e, m, &o, err));
    assert_int_equal(run(e, 1, 150, 4).cached_tokens, 0);
    const uint64_t kept = stats().cache_bytes;
    assert_true(kept > 0 && kept <= stats().kv_bytes);
    assert_true(run(e, 1, 150, 4).cached_tokens >= 128);
    ln_cache_clear();
    assert_int_equal(stats().cache_bytes, 0);
    ln_metrics after = run(e, 1, 150, 4);
    assert_int_equal(after.cached_tokens, 0);
    assert_string_equal(after.cache_miss_reason, "evicted");
    assert_int_equal(stats().cache_bytes, kept);
    assert_true(ln_cache_set_limit(kept / 2) == UINT64_MAX);
    assert_true(stats().cache_bytes > 0 && stats().cache_bytes <= kept / 2);
    assert_int_equal(stats().cache_limit_bytes, kept / 2);
    assert_int_equal(ln_cache_set_limit(0), kept / 2);
    assert_int_equal(stats().cache_bytes, 0);
    (void)run(e, 1, 150, 4);
    assert_int_equal(stats().cache_bytes, 0);
    assert_int_equal(run(e, 1, 150, 4).cached_tokens, 0);
    assert_int_equal(ln_cache_set_limit(UINT64_MAX), 0);
    (void)run(e, 1, 150, 4);
    assert_int_equal(stats().cache_bytes, kept);
    ln_engine_close(&e);
    ln_model_close(&m);
}

/* A limit that is set while a request runs holds after its step, and its answer is the same. */
static void limits_between_steps(void **state) {
    (void)state;
    ln_model *m;
    ln_engine *e;
    ln_request *r;
    ln_options o = options(256);
    int32_t ids[40];
    for (int i = 0; i < 40; i++) ids[i] = 1 + i;
    const ln_prompt p = {.size = sizeof(ln_prompt), .ids = ids, .n_ids = 40};
    const ln_sampling how = {
        .size = sizeof(ln_sampling), .top_p = 1, .repeat_penalty = 1, .n_max = 100, .ignore_eos = true};
    ln_result want = {.size = sizeof want}, got = {.size = sizeof got};
    OK(ln_model_open(&m, MODEL, &o, err));
    OK(ln_engine_open(&e, m, &o, err));
    OK(ln_generate(e, &p, &how, NULL, NULL, &want, err));
    ln_request_options opt = ln_request_options_default();
    opt.sampling = &how;
    OK(ln_request_open(&r, e, &p, &opt, err));
    size_t n = 1;
    for (int i = 0; n > 0; i++) {
        OK(ln_engine_step(e, &n, err));
        if (i == 20) ln_cache_clear();
        if (i == 30) (void)ln_cache_set_limit(0);
    }
    OK(ln_request_result(r, &got, err));
    assert_int_equal(got.n_ids, want.n_ids);
    assert_memory_equal(got.ids, want.ids, want.n_ids * sizeof(int32_t));
    assert_int_equal(stats().cache_bytes, 0);
    (void)ln_cache_set_limit(UINT64_MAX);
    ln_result_free(&want);
    ln_result_free(&got);
    ln_request_close(&r);
    ln_engine_close(&e);
    ln_model_close(&m);
}

static ln_engine *inspected;
static ln_status inside;
static ln_status save_inside(void *user, int layer, const float *keys, int n_kv_heads, int64_t n_rows,
                             int head_dim, ln_error *err) {
    const int32_t id = 1;
    (void)user, (void)layer, (void)keys, (void)n_kv_heads, (void)n_rows, (void)head_dim, (void)err;
    inside = ln_seq_save(inspected, &id, 1, "/tmp/linnet-never-written", NULL, &(ln_error){0});
    return LN_OK;
}

/* Callbacks run between steps, so that a call from one of them waits for nothing: here there is nothing to
 * save. */
static void saving_from_a_callback(void **state) {
    (void)state;
    ln_model *m;
    ln_options o = options(128);
    const int32_t ids[] = {1, 2, 3};
    o.keep_full_kv = true;
    OK(ln_model_open(&m, MODEL, &o, err));
    OK(ln_engine_open(&inspected, m, &o, err));
    OK(ln_inspect_keys(inspected, ids, 3, save_inside, NULL, err));
    assert_int_equal(inside, LN_EINVALID);
    ln_engine_close(&inspected);
    ln_model_close(&m);
}

static void the_peak_is_reset(void **state) {
    (void)state;
    /* INEXACT: the kernel counts resident pages per processor, and adds them up in batches of 32 or more */
    enum { SIZE = 48 << 20, INEXACT = 1 << 20 };
    char *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    memset(p, 1, SIZE);
    const ln_memory full = stats();
    assert_int_equal(munmap(p, SIZE), 0);
    ln_memory m = stats();
    assert_true(m.peak_bytes + INEXACT >= full.active_bytes);
    assert_true(m.active_bytes < full.active_bytes - SIZE / 2);
    ln_memory_reset_peak();
    m = stats();
    print_message("  the peak is kept by the %s\n", m.kernel_peak ? "kernel" : "library");
    assert_true(m.peak_bytes + INEXACT >= m.active_bytes && m.peak_bytes < full.active_bytes - SIZE / 2);
    p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    memset(p, 1, SIZE);
    assert_true(stats().peak_bytes >= m.active_bytes + SIZE / 2);
    assert_int_equal(munmap(p, SIZE), 0);
    assert_true(stats().peak_bytes >= m.active_bytes + SIZE / 2);
}

/* ---- files of requests ---- */

static void write_requests(const char *path, int n_large, bool small) {
    ln_model *m;
    ln_info info = {.size = sizeof info};
    ln_options o = options(64);
    OK(ln_model_open(&m, LONG, &o, err));
    OK(ln_model_info(m, &info, err));
    ln_model_close(&m);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i < n_large; i++) { /* any token ends the answer, whose memory is that of 30,000 */
        (void)fprintf(f,
                      "{\"custom_id\":\"%d\",\"method\":\"POST\",\"url\":\"/v1/"
                      "completions\",\"body\":{\"prompt\":["
                      "%d],\"max_tokens\":30000,\"logprobs\":20,\"stop_token_ids\":[0",
                      i, i + 1);
        for (int k = 1; k < (int)info.vocab_size; k++) (void)fprintf(f, ",%d", k);
        (void)fprintf(f, "]}}\n");
    }
    if (small)
        (void)fprintf(f, "{\"custom_id\":\"small\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{"
                         "\"prompt\":[5],\"max_tokens\":2}}\n");
    assert_int_equal(fclose(f), 0);
}

/* Sets the limit of the process to so many bytes more than it has and has planned. */
static void leave_bytes(uint64_t bytes) {
    (void)ln_memory_set_limit(stats().active_bytes + ln_memory_to_come() + bytes);
}

/* A request that lacks memory waits for others to end; one that lacks it alone is left for a later call. */
static void a_batch_waits_for_memory(void **state) {
    (void)state;
    enum { LARGE = 6, ONE = 30 << 20 }; /* bytes of the record of a large one, about */
    char dir[] = "/tmp/linnet-batch-XXXXXX", in[64], out[64], kept[80];
    assert_non_null(mkdtemp(dir));
    (void)snprintf(in, sizeof in, "%s/in.jsonl", dir);
    (void)snprintf(out, sizeof out, "%s/out.jsonl", dir);
    (void)snprintf(kept, sizeof kept, "%s.state", out);
    write_requests(in, LARGE, true);
    ln_model *m;
    ln_engine *e;
    ln_options o = options(32768);
    ln_batch_report r = {.size = sizeof r};
    ln_error why = {0};
    o.n_parallel = 2;
    OK(ln_model_open(&m, LONG, &o, err));
    OK(ln_engine_open(&e, m, &o, err));
    leave_bytes(ONE / 2);
    assert_int_equal(ln_batch(e, in, out, NULL, &r, &why), LN_EMEMORY);
    assert_non_null(strstr(why.message, "6 of 7 requests need more memory"));
    assert_int_equal(r.n_done, 1);
    assert_int_equal(r.n_failed, 0);
    assert_int_equal(access(kept, F_OK), 0);
    leave_bytes(ONE + ONE / 2); /* one at a time */
    OK(ln_batch(e, in, out, NULL, &r, err));
    assert_int_equal(r.n_earlier, 1);
    assert_int_equal(r.n_done, LARGE);
    assert_int_equal(r.n_failed, 0);
    assert_int_not_equal(access(kept, F_OK), 0);
    (void)ln_memory_set_limit(0);
    ln_engine_close(&e);
    ln_model_close(&m);
    (void)unlink(in), (void)unlink(out);
    assert_int_equal(rmdir(dir), 0);
}

/* ---- under a limit that the kernel enforces ---- */

enum { N_REQUESTS = 24, N_PARALLEL = 8 };

/* Runs requests of which groups of three begin alike, several at once; 0: all was well, and the process never
 * held more than its plan and its limit. */
static int life(uint64_t limit) {
    ln_model *m = NULL;
    ln_engine *e = NULL;
    ln_error err;
    ln_request *r[N_REQUESTS] = {NULL};
    ln_options o = options(2048);
    o.n_parallel = N_PARALLEL;
    (void)ln_memory_set_limit(limit);
    ln_memory_reset_peak();
    if (ln_model_open(&m, LONG, &o, &err) != LN_OK) return 11;
    if (ln_engine_open(&e, m, &o, &err) != LN_OK) return 12;
    const ln_sampling how = {.size = sizeof(ln_sampling),
                             .top_p = 0.9,
                             .temperature = 1,
                             .repeat_penalty = 1.1,
                             .repeat_last = 64,
                             .n_max = 300,
                             .ignore_eos = true,
                             .has_seed = true};
    ln_request_options opt = ln_request_options_default();
    opt.sampling = &how;
    for (int i = 0; i < N_REQUESTS; i++) {
        int32_t ids[900];
        for (int k = 0; k < 900; k++) ids[k] = 1 + (k < 600 ? k + i / 3 : k * (i + 3)) % 250;
        const ln_prompt p = {.size = sizeof(ln_prompt), .ids = ids, .n_ids = 900};
        if (ln_request_open(&r[i], e, &p, &opt, &err) != LN_OK) return 13;
    }
    for (size_t n = 1; n > 0;)
        if (ln_engine_step(e, &n, &err) != LN_OK) return 14;
    for (int i = 0; i < N_REQUESTS; i++) {
        ln_result out = {.size = sizeof out};
        if (ln_request_result(r[i], &out, &err) != LN_OK || out.n_ids != 300) return 15;
        ln_result_free(&out);
        ln_request_close(&r[i]);
    }
    const ln_memory held = stats();
    ln_engine_close(&e);
    ln_model_close(&m);
    return held.peak_bytes <= limit ? held.cache_bytes > 0 ? 0 : 16 : 17;
}

/* In a process of its own, whose private memory the kernel limits: an allocation beyond it fails, and the
 * life of the library then ends with another code. */
static int life_in_child(uint64_t limit, bool as) {
    int status;
    const pid_t pid = fork();
    if (pid == 0) {
        /* what else may be mapped: stacks of threads, and the reserve of malloc for each of them */
        const uint64_t more = (uint64_t)(as ? 400 : 160) << 20;
        const struct rlimit l = {limit + more, limit + more};
        if (setrlimit(as ? RLIMIT_AS : RLIMIT_DATA, &l) != 0) _exit(90);
        alarm(200);
        _exit(life(limit));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void a_limit_is_never_exceeded(void **state) {
    (void)state;
    if (getenv("LN_SANITIZED")) {
        print_message("SKIP: a sanitizer's shadow is beyond any limit\n");
        return;
    }
    ln_plan p = {.size = sizeof p};
    ln_options o = options(2048);
    OK(ln_plan_memory(LONG, &o, &p, err));
    o.n_parallel = N_PARALLEL;
    ln_plan most = {.size = sizeof most};
    OK(ln_plan_memory(LONG, &o, &most, err));
    assert_int_equal(most.n_contexts, N_PARALLEL);
    /* space for about three contexts, so that requests wait and what is kept is evicted; and for all */
    const uint64_t limits[] = {most.peak_bytes - 5 * p.kv_bytes, most.peak_bytes + (2 << 20)};
    for (int i = 0; i < 2; i++)
        for (int as = 0; as < 2; as++) assert_int_equal(life_in_child(limits[i], as), 0);
}

/* A caller that was built with a newer header has fields that this library does not know: they are zero. */
static void newer_structs_end_in_zeros(void **state) {
    (void)state;
    struct {
        ln_engine_stats known;
        char more[24];
    } stats;
    struct {
        ln_event known;
        char more[24];
    } event;
    struct {
        ln_memory known;
        char more[24];
    } memory;
    static const char zeros[24];
    ln_model *m;
    ln_engine *e;
    ln_request *r;
    const ln_options o = options(128);
    const int32_t ids[] = {1, 2, 3};
    const ln_prompt prompt = {.size = sizeof(ln_prompt), .ids = ids, .n_ids = 3};
    OK(ln_model_open(&m, MODEL, &o, err));
    OK(ln_engine_open(&e, m, &o, err));
    OK(ln_request_open(&r, e, &prompt, NULL, err));
    memset(&stats, 1, sizeof stats), memset(&event, 1, sizeof event), memset(&memory, 1, sizeof memory);
    stats.known.size = sizeof stats, event.known.size = sizeof event, memory.known.size = sizeof memory;
    OK(ln_engine_get_stats(e, &stats.known, err));
    OK(ln_request_next(r, 0, &event.known, err));
    ln_memory_stats(&memory.known);
    assert_memory_equal(stats.more, zeros, sizeof zeros);
    assert_memory_equal(event.more, zeros, sizeof zeros);
    assert_memory_equal(memory.more, zeros, sizeof zeros);
    assert_true(stats.known.size == sizeof stats && event.known.size == sizeof event);
    assert_int_equal(memory.known.size, sizeof memory);
    ln_request_close(&r);
    ln_engine_close(&e);
    ln_model_close(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_limit_is_never_exceeded), cmocka_unit_test(the_limit_is_kept_and_named),
        cmocka_unit_test(classes_are_counted),       cmocka_unit_test(what_is_kept_for_reuse),
        cmocka_unit_test(limits_between_steps),      cmocka_unit_test(saving_from_a_callback),
        cmocka_unit_test(the_peak_is_reset),         cmocka_unit_test(a_batch_waits_for_memory),
        cmocka_unit_test(newer_structs_end_in_zeros)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
