/* Several GPUs in one process: the logits of a prompt, of decoding and of 64 streams have the bits of one
 * GPU, each GPU takes what was planned, a traced step goes on with steps that are not, and a GPU that does
 * not exist is an error that names those that do. With LN_CUDA_MODEL=DIR on that model instead of the bundled
 * one. A GPU that fails in a step ends the command. Skipped if there are fewer than two GPUs;
 * tests/golden/test_ranks.c has all golden models. */
/* run: quick cuda */
#include "cuda_case.h"
#include "run/ranks.h"

#include <linnet_tools.h>
#include <sys/wait.h>

enum { MOST_GPUS = 4, STREAMS = 64, DECODED = 12 };
static int n_gpus;
static ln_dev *devices[MOST_GPUS]; /* open throughout, so that contexts and kernels exist before */

static const char *model_dir(void) {
    const char *dir = getenv("LN_CUDA_MODEL");
    return dir ? dir : LN_ROOT "/models/tiny";
}
static uint64_t free_on(int gpu) {
    ln_dev_info i = {.size = sizeof i};
    cuda_ops->describe(devices[gpu], &i);
    return i.memory_free;
}

/* What is compared: the logits of the last row of each step, and what each GPU took at most. */
typedef struct outcome {
    float *logits;
    size_t n;
    int64_t V;
    uint64_t planned, taken[MOST_GPUS];
} outcome;

static void keep(outcome *o, ln_eng *e, int64_t row) {
    float *all = realloc(o->logits, (o->n + (size_t)o->V) * sizeof *all);
    assert_non_null(all);
    o->logits = all;
    OK(ln_run_logits(e->run, row, o->logits + o->n, err));
    o->n += (size_t)o->V;
}
static int32_t token_of(const outcome *o, uint64_t *seed) {
    return (int32_t)(test_random(seed) % (uint32_t)LN_MIN(o->V, (int64_t)INT32_MAX));
}

/* A prompt in chunks, then single tokens; some steps are traced. */
static void count_node(void *user, int i, double seconds) {
    (void)i, (void)seconds;
    ++*(int *)user;
}
static void run_one(outcome *o, ln_eng *e, int64_t n_prompt) {
    int32_t *ids = malloc((size_t)(n_prompt + DECODED) * sizeof *ids);
    uint64_t seed = 11;
    int n_traced = 0;
    const ln_trace trace = {count_node, &n_traced};
    for (int64_t i = 0; i < n_prompt + DECODED; i++) ids[i] = token_of(o, &seed);
    ln_seq *s = test_seq(e, n_prompt, n_prompt + DECODED);
    while (s->n < n_prompt + DECODED) {
        const int64_t k = s->n < n_prompt ? LN_MIN(n_prompt - s->n, (int64_t)e->run->opt.n_chunk) : 1;
        const ln_batch_item item = {s, ids + s->n, k, LN_LOGITS_LAST};
        e->run->trace = s->n % 5 == 0 ? &trace : NULL;
        OK(ln_eng_step(e, &item, 1, err));
        keep(o, e, 0);
    }
    e->run->trace = NULL;
    assert_true(n_traced > 0);
    ln_seq_close(e, &s);
    free(ids);
}

/* Streams of different lengths that decode together. */
static void run_many(outcome *o, ln_eng *e) {
    ln_seq *s[STREAMS];
    int32_t ids[STREAMS][40];
    uint64_t seed = 5;
    for (int i = 0; i < STREAMS; i++)
        for (int k = 0; k < 40; k++) ids[i][k] = token_of(o, &seed);
    for (int i = 0; i < STREAMS; i++) {
        s[i] = test_seq(e, 40, 40);
        const ln_batch_item item = {s[i], ids[i], 1 + i % 30, LN_LOGITS_LAST};
        OK(ln_eng_step(e, &item, 1, err));
    }
    for (int step = 0; step < 6; step++) {
        ln_batch_item items[STREAMS];
        const int n = step % 2 ? STREAMS : STREAMS - 13;
        for (int i = 0; i < n; i++) items[i] = (ln_batch_item){s[i], ids[i] + s[i]->n, 1, LN_LOGITS_LAST};
        OK(ln_eng_step(e, items, n, err));
        for (int i = 0; i < n; i += 7) keep(o, e, i);
    }
    for (int i = 0; i < STREAMS; i++) ln_seq_close(e, &s[i]);
}

static void note_taken(outcome *o, const uint64_t *before) {
    for (int g = 0; g < n_gpus; g++) {
        const uint64_t now = free_on(g);
        o->taken[g] = LN_MAX(o->taken[g], before[g] - LN_MIN(before[g], now));
    }
}

static void compute(outcome *o, ln_numerics numerics, int bits) {
    ln_package *m;
    ln_eng *e;
    ln_plan plan = {0};
    uint64_t before[MOST_GPUS];
    const ln_options open = {.quantize_bits = bits, .numerics = numerics};
    OK(ln_package_open_led(&m, model_dir(), &open, err));
    o->V = m->spec.V;
    const int64_t n_ctx = LN_MIN(m->spec.n_ctx, 2048 + 64);
    const ln_options how = {.device = LN_DEVICE_CUDA,
                            .quantize_bits = bits,
                            .numerics = numerics,
                            .n_ctx = n_ctx,
                            .n_chunk = (int)n_ctx,
                            .n_parallel = STREAMS,
                            .kv_bytes = (uint64_t)1 << 31};
    OK(ln_eng_plan(m, &how, &plan, err));
    o->planned = plan.device_bytes;
    for (int g = 0; g < n_gpus; g++) before[g] = free_on(g);
    OK(ln_eng_open(&e, m, &how, err));
    note_taken(o, before);
    run_one(o, e, n_ctx - 64);
    run_one(o, e, 70);
    note_taken(o, before);
    run_many(o, e);
    note_taken(o, before);
    ln_eng_close(&e);
    ln_package_end_led(m);
    ln_package_close(&m);
}

typedef struct kind {
    ln_numerics numerics;
    int bits;
} kind;
static const kind kinds[] = {{LN_FAST, 0}, {LN_EXACT, 0}, {LN_FAST, 4}};
static outcome one[LN_COUNT(kinds)];
static bool by_nccl(void) {
    const char *gpu = getenv("LN_TEST_GPU");
    return gpu && strstr(gpu, "maps=0");
}
static bool is_large(void) { return getenv("LN_CUDA_MODEL") != NULL; }
static size_t n_kinds(void) { return is_large() ? 1 : LN_COUNT(kinds); }

static void one_gpu(void **state) {
    (void)state;
    for (size_t i = 0; i < n_kinds(); i++) compute(&one[i], kinds[i].numerics, kinds[i].bits);
}

static void same_bits_and_memory(void **state) {
    enum { GRANULE = 2 << 20, BLOCKS = 12 };
    int gpus[MOST_GPUS];
    (void)state;
    for (int i = 0; i < n_gpus; i++) gpus[i] = i;
    OK(ln_ranks_gpus(gpus, n_gpus, err));
    for (size_t i = 0; i < n_kinds(); i++) {
        outcome all = {0};
        compute(&all, kinds[i].numerics, kinds[i].bits);
        assert_int_equal(all.n, one[i].n);
        for (size_t k = 0; k < all.n; k++)
            if (ln_f32_bits(all.logits[k]) != ln_f32_bits(one[i].logits[k]))
                fail_msg("kind %zu: logit %zu of compared row %zu of %d GPUs is %.9g, of one %.9g", i,
                         k % (size_t)all.V, k / (size_t)all.V, n_gpus, (double)all.logits[k],
                         (double)one[i].logits[k]);
        print_message("kind %zu: %zu rows of logits are equal\n", i, all.n / (size_t)all.V);
        for (int g = 0; g < n_gpus; g++) {
            print_message("GPU %d: planned %.1f MiB, peak %.1f MiB (%.3f); one alone: planned %.1f MiB\n", g,
                          (double)all.planned / 0x1p20, (double)all.taken[g] / 0x1p20,
                          (double)all.taken[g] / (double)all.planned, (double)one[i].planned / 0x1p20);
            if (by_nccl()) continue; /* whose own buffers no plan has (docs/cuda.md) */
            const bool large = all.planned > (uint64_t)GRANULE * BLOCKS * 20;
            assert_true(all.taken[g] <=
                        all.planned + all.planned / 20 + (large ? 0 : (uint64_t)GRANULE * BLOCKS));
        }
        free(all.logits);
    }
}

static void gpus_that_do_not_exist(void **state) {
    ln_run_options o = {.device = LN_DEVICE_CUDA, .n_threads = 1};
    const ln_device_ops *ops;
    const int gpus[] = {0, 99};
    ln_dev *dev;
    ln_dev_info info;
    (void)state;
    ln_ranks_leave(LN_OK);
    ln_ranks_set_gpus(gpus, 2);
    o.rank = 1;
    FAILS(LN_EDEVICE, "there is no GPU number 99; GPUs 0 to", ln_run_open_device(&o, &ops, &dev, &info, err));
}

/* Runs the command, whose GPU `gpu` fails in its third step. Returns its exit code; out: what it wrote. */
static int run_failing(int gpu, const char *arguments, char out[8192]) {
    char command[4096];
    (void)snprintf(command, sizeof command,
                   "LN_TEST_GPU=fails=%d,fails_at=3 timeout -s KILL 60 '%s/linnet' %s 2>&1", gpu, LN_BIN,
                   arguments);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    const size_t n = fread(out, 1, 8191, f);
    out[n] = 0;
    const int status = pclose(f);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
/* The other GPUs wait for it in their kernels, and end. CUDA reports the fault for all GPUs, so that rank 0
 * may be the first to know it. */
static void fails_in_a_step(void **state) {
    (void)state;
    for (int gpu = 0; gpu < n_gpus; gpu++) {
        char out[8192], rank[32], one_of[32], command[256], list[32] = "0";
        (void)snprintf(rank, sizeof rank, "rank %d of %d", gpu, n_gpus);
        (void)snprintf(one_of, sizeof one_of, "one of %d GPUs", n_gpus);
        for (int i = 1; i < n_gpus; i++) (void)snprintf(list + 2 * i - 1, 4, ",%d", i);
        (void)snprintf(command, sizeof command, "run '" LN_ROOT "/models/tiny' hello -n 40 --device cuda:%s",
                       list);
        const double start = ln_now();
        const int code = run_failing(gpu, command, out);
        if (code != 7 || (!strstr(out, rank) && !strstr(out, one_of)) || !strstr(out, "device cuda"))
            fail_msg("GPU %d fails: exit %d after %.1f s: %s", gpu, code, ln_now() - start, out);
        print_message("GPU %d fails: exit 7 after %.1f s: %s", gpu, ln_now() - start, out);
    }
}

int main(void) {
    (void)setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    if (!cuda_here()) return 0;
    ln_error e = {0};
    n_gpus = LN_MIN(ln_gpu_count(&e), (int)MOST_GPUS);
    if (n_gpus < 2) {
        printf("SKIP: %d GPU exists, two are needed to compare them with one\n", n_gpus);
        return 0;
    }
    if (getenv("LN_GPUS")) n_gpus = LN_MIN(n_gpus, LN_MAX(2, atoi(getenv("LN_GPUS"))));
    for (int g = 0; g < n_gpus; g++) {
        const ln_dev_options o = {.size = sizeof o, .ordinal = g, .n_threads = 1};
        if (cuda_ops->open(&devices[g], &o, &e) != LN_OK) fail_msg("GPU %d: %s", g, e.message);
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_gpu), cmocka_unit_test(same_bits_and_memory),
                                       cmocka_unit_test(fails_in_a_step),
                                       cmocka_unit_test(gpus_that_do_not_exist)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
