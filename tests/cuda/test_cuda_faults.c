/* Faults of the CUDA device: not enough memory, before and while an engine is opened; errors that do not
 * stay; two engines of different widths at once; and an error that the driver keeps, provoked by a weight at
 * an address that is not mapped. The process goes on, on the CPU. Skipped if there is no GPU. */
/* run: quick cuda */
#include "lost_gpu.h"

#include <pthread.h>

#define MODEL LN_ROOT "/models/tiny"

/* What the driver needs to open the device once more (streams) fits. The pool of adapters, of about 300 MiB,
 * does not; it is fixed by the options, whereas the KV pool of an engine shrinks to what is free. */
enum { LEFT = 64 << 20, N_CTX = 1024, N_ADAPTERS = 64, RANK = 64 };

/* Allocates the GPU's memory except `left` bytes, in a process that has the device open. */
static void *fill_memory(ln_dev *dev, uint64_t left, size_t *bytes) {
    ln_dev_info i = {.size = sizeof i};
    void *p;
    cuda_ops->describe(dev, &i);
    *bytes = (size_t)(i.memory_free - left);
    OK(cuda_ops->alloc(dev, *bytes, 0, &p, err));
    return p;
}

static void answer(ln_eng *e) {
    const int32_t ids[] = {5, 6, 7};
    const ln_sampling how = {
        .size = sizeof how, .n_max = 3, .repeat_penalty = 1, .top_p = 1, .ignore_eos = true};
    ln_req *r;
    OK(ln_req_new(&r, e, &(ln_req_options){.ids = ids, .n_ids = 3, .how = &how}, err));
    OK(ln_req_wait(r, err));
    ln_req_free(&r);
}

/* An engine that does not fit is rejected with the plan's figures; one that does not get its memory although
 * it was planned gives back what it took; with memory again it opens. */
static void not_enough_memory(void **state) {
    (void)state;
    const ln_dev_options o = {.size = sizeof o, .n_threads = 1};
    const ln_options how = {
        .device = LN_DEVICE_CUDA, .n_ctx = N_CTX, .n_adapters = N_ADAPTERS, .adapter_rank = RANK};
    ln_run_options r;
    ln_package *m;
    ln_eng *e = NULL;
    ln_dev *dev;
    size_t bytes;
    ln_dev_info before = {.size = sizeof before}, after = before;
    OK(ln_package_open(&m, MODEL, &(ln_options){0}, err));
    OK(cuda_ops->open(&dev, &o, err));
    OK(ln_eng_open(&e, m, &how, err)); /* the kernels are loaded */
    answer(e);
    ln_eng_close(&e);
    void *p = fill_memory(dev, LEFT, &bytes);
    cuda_ops->describe(dev, &before);
    FAILS(LN_EMEMORY, "of the GPU's memory are needed (weights", ln_eng_open(&e, m, &how, err));
    assert_null(e);
    OK(ln_eng_options(m, &how, &r, err));
    FAILS(LN_EMEMORY, "of the GPU's memory are free", ln_eng_open_with(&e, m, &r, err));
    assert_null(e);
    cuda_ops->describe(dev, &after);
    assert_true(after.memory_free >= before.memory_free); /* the driver may give back blocks of its own */
    cuda_ops->free(dev, p, bytes);
    OK(ln_eng_open(&e, m, &how, err));
    answer(e);
    ln_eng_close(&e);
    cuda_ops->close(&dev);
    ln_package_close(&m);
}

/* A call that the driver rejects does not end the use of the GPU. */
static void rejected_call(void **state) {
    (void)state;
    int64_t n;
    case_weight w[N_NORM_WEIGHTS];
    side s;
    open_norm(&s, w);
    FAILS(LN_EDEVICE, "can still use the GPU",
          s.ops->copy(s.queue, (void *)((uintptr_t)1 << 46), w[0].data[0], 16, LN_COPY_IN, err));
    set_rows(&s, 1, &(int){3}, &(int){0}, V);
    free(run_side(&s, 0, &n));
    close_norm(&s, w);
}

/* A thread that opens and runs programs of one width. */
typedef struct wide {
    int columns;
    ln_status st;
    ln_error e;
} wide;
static void build_wide(ln_graph *g, const void *user) {
    const wide *w = user;
    const ln_v x = ln_g_embed(g, "x", ln_g_weight(g, "table", LN_F32, 0, V, w->columns), 1, 0);
    const ln_v codes = ln_g_encoded(g, "w", ln_encoding_of(LN_BF16, (ln_groups){3, 64}), 1, 2,
                                    (const int64_t[]){32, w->columns});
    ln_g_output(g, ln_g_linear(g, "y", x, codes, -1));
}
/* Weights and programs exist before the threads start; each thread submits steps that no graph was captured
 * for, so that every step launches its kernels again. */
typedef struct wide_thread {
    wide w;
    side s;
    pthread_t thread;
} wide_thread;
static void *run_wide(void *user) {
    wide_thread *t = user;
    uint64_t fence;
    for (int i = 0; i < 300 && t->w.st == LN_OK; i++) {
        t->w.st = t->s.ops->submit(t->s.exec, t->s.step, NULL, &fence, &t->w.e);
        if (t->w.st == LN_OK) t->w.st = t->s.ops->wait(t->s.queue, fence, &t->w.e);
    }
    return NULL;
}
static void two_widths(void **state) {
    enum { N = 2, ROWS = 100 };
    static const int columns[N] = {512, 8192};
    (void)state;
    static wide_thread t[N];
    case_weight w[N][2];
    for (int i = 0; i < N; i++) {
        uint64_t seed = 5;
        t[i].w = (wide){.columns = columns[i]};
        w[i][0] = random_weight("table", LN_F32, (ln_groups){0}, V, columns[i], &seed);
        w[i][1] = random_weight("w", LN_BF16, (ln_groups){3, 64}, 32, columns[i], &seed);
        const cuda_case c = {.build = build_wide,
                             .user = &t[i].w,
                             .policy = LN_POLICY_FAST,
                             .bounds = {ROWS, ROWS, 1},
                             .weights = w[i],
                             .n_weights = 2,
                             .n_slots = 1,
                             .n_blocks = 1};
        open_side(&t[i].s, cuda_ops, NULL, &c);
        set_rows(&t[i].s, 1, &(int){ROWS}, &(int){0}, V);
    }
    for (int i = 0; i < N; i++) assert_int_equal(pthread_create(&t[i].thread, NULL, run_wide, &t[i]), 0);
    for (int i = 0; i < N; i++) (void)pthread_join(t[i].thread, NULL);
    for (int i = 0; i < N; i++) {
        if (t[i].w.st != LN_OK) fail_msg("%d columns: %s", columns[i], t[i].w.e.message);
        close_side(&t[i].s);
        for (int k = 0; k < 2; k++) free_weight(&w[i][k]);
    }
}

/* After an illegal access each call of the device fails with LN_EDEVICE and says what to do; requests of a
 * running engine end with it; the CPU goes on. Last: the GPU is of no use to this process afterwards. */
static void lost_device(void **state) {
    (void)state;
    ln_package *m;
    ln_eng *gpu, *cpu, *again = NULL;
    OK(ln_package_open(&m, MODEL, &(ln_options){0}, err));
    OK(ln_eng_open(&gpu, m, &(ln_options){.device = LN_DEVICE_CUDA, .n_ctx = 256}, err));
    answer(gpu);
    lose_gpu();
    const int32_t ids[] = {5, 6, 7};
    const ln_sampling how = {.size = sizeof how, .n_max = 3, .repeat_penalty = 1, .top_p = 1};
    ln_req *r;
    OK(ln_req_new(&r, gpu, &(ln_req_options){.ids = ids, .n_ids = 3, .how = &how}, err));
    FAILS(LN_EDEVICE, "device cuda", ln_req_wait(r, err));
    ln_req_free(&r);
    ln_error why;
    assert_int_equal(ln_eng_open(&again, m, &(ln_options){.device = LN_DEVICE_CUDA, .n_ctx = 256}, &why),
                     LN_EDEVICE);
    OK(ln_eng_open(&cpu, m, &(ln_options){.device = LN_DEVICE_CPU, .n_ctx = 256}, err));
    answer(cpu);
    ln_eng_close(&cpu);
    ln_eng_close(&gpu);
    ln_package_close(&m);
}

int main(void) {
    if (!cuda_here()) return 0;
    const struct CMUnitTest tests[] = {cmocka_unit_test(not_enough_memory), cmocka_unit_test(rejected_call),
                                       cmocka_unit_test(two_widths), cmocka_unit_test(lost_device)};
    return cmocka_run_group_tests_name("cuda_faults", tests, NULL, NULL);
}
