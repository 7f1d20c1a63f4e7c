/* Memory of the CUDA device: the peak against the plan, steps that allocate nothing, and requests that leave
 * nothing behind. With LN_CUDA_MODEL=DIR on that model instead of the bundled one, whose parts are smaller
 * than the driver's granules; with LN_LONG 10,000 requests instead of 800. Skipped if there is no GPU. */
/* run: quick cuda */
#include "cuda_case.h"
#include "engine/embed.h"

#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

static const char *model_dir(void) {
    const char *dir = getenv("LN_CUDA_MODEL");
    return dir ? dir : LN_ROOT "/models/tiny";
}

/* The device is open throughout, so that its context and its kernels are loaded before anything is measured,
 * as they are when a plan reads how much memory is free. */
static ln_dev *dev;
static uint64_t free_now(void) {
    ln_dev_info i = {.size = sizeof i};
    cuda_ops->describe(dev, &i);
    return i.memory_free;
}

/* A thread that looks at the free memory every 200 microseconds. */
static _Atomic uint64_t least;
static _Atomic bool stop;
static void *watch(void *arg) {
    (void)arg;
    while (!atomic_load(&stop)) {
        const uint64_t now = free_now();
        if (now < atomic_load(&least)) atomic_store(&least, now);
        (void)nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    return NULL;
}

enum { PROMPT = 700 };
static int32_t ids[PROMPT];

static void open_request(ln_eng *e, ln_req **r, int64_t n, int64_t n_new, double temperature, uint64_t seed) {
    const ln_sampling how = {.size = sizeof how,
                             .n_max = n_new,
                             .repeat_penalty = 1,
                             .top_p = 0.9,
                             .temperature = temperature,
                             .seed = seed,
                             .has_seed = true,
                             .ignore_eos = true};
    OK(ln_req_new(r, e, &(ln_req_options){.ids = ids + seed % 16, .n_ids = n, .how = &how}, err));
}

static ln_status ignore_embedding(void *user, const ln_embedding *e, ln_error *error) {
    (void)user, (void)e, (void)error;
    return LN_OK;
}
/* Embeds a prompt, which runs the program without the head. */
static void embed_prompt(ln_eng *e, int64_t n) {
    const ln_embed_options o = {.size = sizeof o, .pooling = LN_POOLING_LAST};
    const ln_prompt prompt = {.size = sizeof prompt, .ids = ids, .n_ids = (size_t)n};
    OK(ln_eng_embed(e, &prompt, 1, &o, ignore_embedding, NULL, NULL, err));
}

/* What an engine takes at its peak is at most 1.05 times the plan; `bits`, `n_adapters` and `embeds` as in
 * ln_options. */
static void check_peak(int bits, int n_adapters, bool embeds) {
    enum { GRANULE = 2 << 20, BLOCKS = 12 /* blocks of the driver, each rounded up to its granule */ };
    ln_package *m;
    ln_eng *e;
    ln_plan plan;
    pthread_t thread;
    const ln_options open = {.quantize_bits = bits};
    if (ln_package_open(&m, model_dir(), &open, NULL) != LN_OK) return; /* quantised already */
    const ln_options o = {.device = LN_DEVICE_CUDA,
                          .quantize_bits = bits,
                          .n_ctx = LN_MIN(m->spec.n_ctx, 2048),
                          .n_parallel = 16,
                          .n_adapters = n_adapters,
                          .embeddings = embeds};
    OK(ln_eng_plan(m, &o, &plan, err));
    const uint64_t before = free_now();
    atomic_store(&least, before);
    atomic_store(&stop, false);
    assert_int_equal(pthread_create(&thread, NULL, watch, NULL), 0);
    OK(ln_eng_open(&e, m, &o, err));
    ln_req *r[16];
    for (int i = 0; i < 16; i++)
        open_request(e, &r[i], LN_MIN(PROMPT - 16, o.n_ctx / 2), 20, i % 2, (uint64_t)i);
    for (int i = 0; i < 16; i++) {
        OK(ln_req_wait(r[i], err));
        ln_req_free(&r[i]);
    }
    if (embeds) embed_prompt(e, LN_MIN(PROMPT - 16, o.n_ctx / 2));
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    const uint64_t peak = before - atomic_load(&least);
    print_message("%d bits, %d adapters%s: planned %.1f MiB, peak %.1f MiB (%.3f)\n", bits, n_adapters,
                  embeds ? ", embeddings" : "", (double)plan.device_bytes / 0x1p20, (double)peak / 0x1p20,
                  (double)peak / (double)plan.device_bytes);
    const bool large = plan.device_bytes > (uint64_t)GRANULE * BLOCKS * 20;
    assert_true(peak <=
                plan.device_bytes + plan.device_bytes / 20 + (large ? 0 : (uint64_t)GRANULE * BLOCKS));
    ln_eng_close(&e);
    ln_package_close(&m);
    /* everything is given back, up to what the driver keeps for the kernels that ran */
    assert_true(before - LN_MIN(before, free_now()) <= (uint64_t)GRANULE * BLOCKS);
}

static void peak_is_planned(void **state) {
    (void)state;
    for (int bits = 0; bits <= 4; bits += 4)
        for (int n = 0; n <= 4; n += 4) check_peak(bits, n, false);
    check_peak(0, 0, true);
}

/* Steps of prompts and of single tokens, and reading their logits, allocate neither here nor on the GPU. */
static void steps_allocate_nothing(void **state) {
    (void)state;
    ln_package *m;
    ln_eng *e;
    OK(ln_package_open(&m, model_dir(), &(ln_options){0}, err));
    OK(ln_eng_open(&e, m,
                   &(ln_options){.device = LN_DEVICE_CUDA, .n_ctx = 512, .n_parallel = 2, .n_chunk = 256},
                   err));
    ln_seq *s = test_seq(e, 300, 400);
    uint64_t left = 0;
    size_t held = 0;
    for (int i = 0; i < 100; i++) {
        const int64_t n = i < 3 ? 100 : 1;
        const ln_batch_item item = {s, ids + i, n, LN_LOGITS_LAST};
        if (i == 5) { /* the kernels are loaded */
            left = free_now();
            held = mallinfo2().uordblks;
            ln_mem_fail_at(1, true);
        }
        if (ln_eng_step(e, &item, 1, NULL) != LN_OK) fail_msg("step %d failed", i);
        if (ln_run_logits(e->run, 0, e->sched->scratch->logits, NULL) != LN_OK)
            fail_msg("logits of step %d", i);
    }
    const size_t held_after = mallinfo2().uordblks;
    (void)ln_mem_fail_at(-1, false);
    assert_int_equal(held_after, held);
    assert_int_equal(free_now(), left);
    ln_seq_close(e, &s);
    ln_eng_close(&e);
    ln_package_close(&m);
}

/* Opens request number i, of all kinds in turn: greedy, sampled, with penalties, a bias, log-probabilities of
 * the answer and of the prompt, a schema, other grammars, stop texts, tokens that are forbidden. */
static void open_kind(ln_eng *e, ln_req **r, int i) {
    enum { KINDS = 11 };
    static const char schema[] = "{\"schema\":{\"type\":\"array\",\"items\":{\"enum\":[\"a\",12,null]}}}",
                      regex[] = "{\"regex\":\"(ab|cd){3,9}\"}";
    static const ln_logit_bias bias[] = {{5, 4}, {9, -INFINITY}, {11, 2}};
    static const char *const stops[] = {"the", "\n\n"};
    const int kind = i % KINDS;
    ln_sampling how = {.size = sizeof how,
                       .n_max = 1 + i % 9,
                       .repeat_penalty = 1,
                       .top_p = 1,
                       .seed = (uint64_t)i,
                       .has_seed = true,
                       .ignore_eos = kind != 6 && kind != 7};
    if (kind > 0) how.temperature = 0.8, how.top_p = kind % 2 ? 0.9 : 1, how.top_k = kind % 3 ? 0 : 20;
    if (kind == 2) how.presence_penalty = 0.5, how.frequency_penalty = 0.2, how.repeat_penalty = 1.1;
    if (kind == 2) how.repeat_last = -1;
    if (kind == 3) how.bias = bias, how.n_bias = LN_COUNT(bias);
    if (kind == 6) how.grammar = schema, how.grammar_bytes = strlen(schema);
    if (kind == 7) how.grammar = regex, how.grammar_bytes = strlen(regex);
    if (kind == 8) how.stop = stops, how.n_stop = LN_COUNT(stops);
    if (kind == 9) how.no_repeat_ngram = 2, how.min_new = 3;
    if (kind == 10) how.min_p = 0.05;
    OK(ln_req_new(r, e,
                  &(ln_req_options){.ids = ids + i % 16,
                                    .n_ids = 5 + i % 60,
                                    .how = &how,
                                    .logprobs = kind == 4 || kind == 5,
                                    .n_top = kind == 4 ? 5 : 0,
                                    .prompt_logprobs = kind == 5,
                                    .no_cache = i % 7 == 0},
                  err));
}

/* Requests of all kinds, some cancelled, come and go: memory stays flat, with tokens computed ahead too. */
static void check_requests(int n_lookup) {
    enum { AT_ONCE = 8, WARM = 704 };
    const int n_requests = getenv("LN_LONG") ? 10000 : WARM + 96;
    ln_package *m;
    ln_eng *e;
    OK(ln_package_open(&m, model_dir(), &(ln_options){0}, err));
    OK(ln_eng_open(&e, m,
                   &(ln_options){
                       .device = LN_DEVICE_CUDA, .n_ctx = 128, .n_parallel = AT_ONCE, .n_lookup = n_lookup},
                   err));
    uint64_t left = 0, counted = 0;
    size_t held = 0;
    const double start = ln_now();
    for (int i = 0; i < n_requests; i += AT_ONCE) {
        ln_req *r[AT_ONCE];
        if (i == WARM) left = free_now(), counted = ln_mem_bytes(), held = mallinfo2().uordblks;
        for (int k = 0; k < AT_ONCE; k++) open_kind(e, &r[k], i + k);
        ln_req_cancel(r[i / AT_ONCE % AT_ONCE]);
        for (int k = 0; k < AT_ONCE; k++) {
            ln_error why;
            const ln_status st = ln_req_wait(r[k], &why);
            if (st != LN_OK) fail_msg("request %d: %s", i + k, why.message);
            ln_req_free(&r[k]);
        }
    }
    print_message("%d requests in %.1f s, up to %d tokens ahead: GPU %+lld bytes of %llu free, library %+lld "
                  "of "
                  "%llu, heap %+lld of %zu\n",
                  n_requests, ln_now() - start, n_lookup, (long long)(left - free_now()),
                  (unsigned long long)left, (long long)(ln_mem_bytes() - counted),
                  (unsigned long long)counted, (long long)(mallinfo2().uordblks - held), held);
    assert_int_equal(free_now(), left);
    assert_int_equal(ln_mem_bytes(), counted);
    assert_int_equal(mallinfo2().uordblks, held);
    ln_eng_close(&e);
    ln_package_close(&m);
}

static void requests_leave_nothing(void **state) {
    (void)state;
    check_requests(0);
    check_requests(6);
}

int main(int argc, char **argv) {
    const ln_dev_options o = {.size = sizeof o, .n_threads = 1};
    ln_error err;
    /* glibc counts what its caches of freed blocks hold as allocated: without those caches the count is exact
     */
    if (!getenv("GLIBC_TUNABLES")) {
        setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0:glibc.malloc.mxfast=0", 1);
        execv("/proc/self/exe", argv);
    }
    if (!cuda_here()) return 0;
    if (cuda_ops->open(&dev, &o, &err) != LN_OK) return 1;
    for (int i = 0; i < PROMPT; i++) ids[i] = 3 + i * 7 % 200;
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(peak_is_planned),
                                       cmocka_unit_test(steps_allocate_nothing),
                                       cmocka_unit_test(requests_leave_nothing)};
    const int failed = cmocka_run_group_tests_name("cuda_memory", tests, NULL, NULL);
    cuda_ops->close(&dev);
    return failed;
}
