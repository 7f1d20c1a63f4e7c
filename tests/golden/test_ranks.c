/* N ranks compute the bits of one, for every golden model: a prompt in chunks, decode steps, and ragged steps
 * of several texts, in both numerics, quantised at load or before, in every format of files, with adapters.
 * Each rank has its share of every split weight. Ranks are threads here
 * (base/thread_ranks.c); tests/cli has some over MPI. A rank that ends makes the steps of the others fail.
 *
 * With LN_TEST_DEVICE=cuda on as many GPUs, in three ways: they write to each other's memory or read it
 * (LN_TEST_GPU=words=0 has them read only), or use NCCL (maps=0). */
/* run: slow cuda */
#include "family_models.h"

#include <dirent.h>
#include <linnet_tools.h>
#include <pthread.h>
#include <stdlib.h>

enum { MOST_RANKS = 3, OTHERS = 2 };
static int most_ranks = MOST_RANKS; /* of GPUs: as many as exist */

/* What one rank computes: logits of all rows of the model's text, alone and among others. */
typedef struct rank_job {
    const family_model *f;
    ln_numerics numerics;
    int quantize;
    ln_device device;
    const char *adapter; /* of every text; NULL: none */
    int size;
    ln_transport *transport;
    int ends_after; /* steps; 0: all */
    ln_thread_ranks *all;
    float *alone, *among;
    uint64_t weights_bytes, kv_bytes;
    ln_status status;
    ln_error err;
} rank_job;

/* A step of one text that is computed alone. */
static ln_status step_alone(rank_job *j, ln_eng *e, ln_seq *s, int64_t k) {
    const int64_t at = s->n;
    const ln_batch_item item = {s, j->f->ids + at, k, LN_LOGITS_ALL};
    ln_error *err = &j->err;
    LN_TRY(ln_eng_step(e, &item, 1, err));
    for (int64_t r = 0; r < k; r++) LN_TRY(ln_run_logits(e->run, r, j->alone + (at + r) * j->f->V, err));
    return LN_OK;
}
static ln_status compute_alone(rank_job *j, ln_eng *e) {
    static const int chunks[] = {16, 1, 1, 1, 13, 2};
    ln_seq *s = NULL;
    ln_error *err = &j->err;
    const ln_seq_options o = {.n_prompt = j->f->T, .n_most = j->f->T, .no_cache = true};
    ln_status st = ln_seq_open(e, &o, &s, err);
    for (int i = 0; st == LN_OK && s->n < j->f->T; i++) {
        if (j->ends_after && i == j->ends_after) {
            ln_thread_ranks_end(j->all, j->transport->rank, NULL);
            break;
        }
        st = step_alone(j, e, s, LN_MIN(chunks[i % LN_COUNT(chunks)], j->f->T - s->n));
    }
    ln_seq_close(e, &s);
    return st;
}

/* A step of the compared text after rows of the first other one and before those of the second. */
static ln_status step_among(rank_job *j, ln_eng *e, ln_seq **s, int64_t k) {
    ln_batch_item items[OTHERS + 1];
    ln_error *err = &j->err;
    const int64_t at = s[1]->n;
    int n = 0, row = 0;
    for (int q = 0; q <= OTHERS; q++) {
        const int64_t rows = q == 1 ? k : LN_MIN(2 + q, j->f->T - s[q]->n);
        if (rows && q == 1) row = n;
        if (rows)
            items[n++] =
                (ln_batch_item){s[q], j->f->ids + s[q]->n, rows, q == 1 ? LN_LOGITS_ALL : LN_LOGITS_LAST};
    }
    LN_TRY(ln_eng_step(e, items, n, err));
    for (int64_t r = 0; r < k; r++)
        LN_TRY(ln_run_logits(e->run, row + r, j->among + (at + r) * j->f->V, err));
    return LN_OK;
}
static ln_status compute_among(rank_job *j, ln_eng *e) {
    ln_seq *s[OTHERS + 1] = {0};
    ln_status st = LN_OK;
    const ln_seq_options o = {.n_prompt = j->f->T, .n_most = j->f->T, .no_cache = true};
    for (int q = 0; q <= OTHERS && st == LN_OK; q++) st = ln_seq_open(e, &o, &s[q], &j->err);
    for (int i = 0; st == LN_OK && s[1]->n < j->f->T; i++)
        st = step_among(j, e, s, LN_MIN(i % 3 ? 1 : 7, j->f->T - s[1]->n));
    for (int q = 0; q <= OTHERS; q++)
        if (s[q]) ln_seq_close(e, &s[q]);
    return st;
}

static ln_status open_engine(const rank_job *j, const ln_package *m, ln_pool *pool, ln_eng **e,
                             ln_error *err) {
    const ln_adapter_part part = {j->adapter, 1};
    const ln_options o = {.n_chunk = FAMILY_MOST,
                          .adapter = &part,
                          .n_adapter_parts = j->adapter ? 1 : 0,
                          .n_parallel = OTHERS + 1,
                          .n_threads = 1,
                          .device = j->device,
                          .quantize_bits = j->quantize,
                          .n_ctx = FAMILY_MOST + 16};
    ln_run_options r;
    LN_TRY(ln_eng_options(m, &o, &r, err));
    r.numerics = j->numerics, r.page_len = 32, r.n_logits = FAMILY_MOST;
    r.pool = pool;
    r.n_ranks = j->size, r.rank = j->transport ? j->transport->rank : 0, r.transport = j->transport;
    return ln_eng_open_with(e, m, &r, err);
}

static void *run_rank(void *user) {
    rank_job *j = user;
    ln_package *m = NULL;
    ln_eng *e = NULL;
    ln_pool *pool = NULL;
    const ln_options o = {.quantize_bits = j->quantize};
    j->status = ln_pool_open(&pool, &j->err);
    if (j->status == LN_OK) j->status = ln_package_open(&m, j->f->path, &o, &j->err);
    if (j->status == LN_OK) j->status = open_engine(j, m, pool, &e, &j->err);
    if (j->status == LN_OK) {
        j->weights_bytes = e->run->sizes.weights_bytes, j->kv_bytes = e->run->sizes.kv_bytes;
        j->status = compute_alone(j, e);
    }
    if (j->status == LN_OK && !j->ends_after) j->status = compute_among(j, e);
    ln_eng_close(&e);
    ln_package_close(&m);
    ln_pool_close(&pool);
    return NULL;
}

static void new_job(rank_job *j, const family_model *f) {
    const size_t n = (size_t)(f->T * f->V);
    j->f = f;
    j->alone = calloc(n, sizeof(float)), j->among = calloc(n, sizeof(float));
}
static void free_job(rank_job *j) { free(j->alone), free(j->among); }

static void run_ranks(rank_job *jobs, int size) {
    ln_thread_ranks *ranks;
    pthread_t threads[MOST_RANKS];
    OK(ln_thread_ranks_new(&ranks, size, err));
    for (int i = 0; i < size; i++) {
        jobs[i].size = size, jobs[i].transport = ln_thread_ranks_at(ranks, i), jobs[i].all = ranks;
        assert_int_equal(pthread_create(&threads[i], NULL, run_rank, &jobs[i]), 0);
    }
    for (int i = 0; i < size; i++) (void)pthread_join(threads[i], NULL);
    ln_thread_ranks_free(&ranks);
}

static void same(const rank_job *want, const rank_job *j, const float *a, const float *b, const char *what) {
    const family_model *f = want->f;
    if (j->status != LN_OK) fail_msg("%s: one of %d ranks: %s", f->name, j->size, j->err.message);
    for (int64_t i = 0; i < f->T * f->V; i++)
        if (ln_f32_bits(a[i]) != ln_f32_bits(b[i]))
            fail_msg("%s, %s, %s, %d bits: logit %lld of row %lld of %d ranks is %.9g, of one %.9g", f->name,
                     what, want->numerics == LN_FAST ? "fast" : "exact", want->quantize,
                     (long long)(i % f->V), (long long)(i / f->V), j->size, (double)b[i], (double)a[i]);
}

/* Runs a kind of job on one rank, then on several. */
static void check(const family_model *f, rank_job kind) {
    rank_job one = kind;
    new_job(&one, f);
    one.size = 1;
    (void)run_rank(&one);
    if (one.status != LN_OK) fail_msg("%s: %s", f->name, one.err.message);
    for (int size = 2; size <= most_ranks; size++) {
        rank_job jobs[MOST_RANKS];
        for (int i = 0; i < size; i++) jobs[i] = kind, new_job(&jobs[i], f);
        run_ranks(jobs, size);
        for (int i = 0; i < size; i++) {
            same(&one, &jobs[i], one.alone, jobs[i].alone, "alone");
            same(&one, &jobs[i], one.among, jobs[i].among, "among others");
            assert_true(jobs[i].weights_bytes < one.weights_bytes);
            free_job(&jobs[i]);
        }
    }
    free_job(&one);
}

static bool can_quantize(const family_model *f) {
    const ln_options o = {.quantize_bits = 4};
    ln_package *m;
    const bool can = ln_package_open(&m, f->path, &o, NULL) == LN_OK;
    if (can) ln_package_close(&m);
    return can;
}
static void check_family(family_model *f) {
    const ln_device device = test_device();
    print_message("%s\n", f->name);
    check(f, (rank_job){.device = device, .numerics = LN_EXACT});
    if (!f->is_f32) check(f, (rank_job){.device = device, .numerics = LN_FAST});
    if (can_quantize(f)) check(f, (rank_job){.device = device, .numerics = LN_FAST, .quantize = 4});
    if (device == LN_DEVICE_CUDA) return;
    if (strlen(f->name) % 4 || getenv("LN_SANITIZED")) return; /* a fourth: the reference device is slow */
    check(f, (rank_job){.device = LN_DEVICE_REF, .numerics = LN_EXACT});
}
static void test_families(void **state) {
    (void)state;
    each_family(check_family, false);
}

/* Sets *f to a model without golden values, with a text of its own; false: there is no model. */
static bool open_other(family_model *f, const char *folder, const char *name) {
    const ln_options o = {0};
    ln_package *m;
    uint64_t state = 7;
    *f = (family_model){.T = 45};
    if (snprintf(f->path, sizeof f->path, "%s/%s", folder, name) >= (int)sizeof f->path) return false;
    if (ln_package_open(&m, f->path, &o, NULL) != LN_OK) return false;
    (void)snprintf(f->name, sizeof f->name, "%.90s", name);
    f->V = m->spec.V;
    f->is_f32 = m->spec.dtype == LN_F32 && !m->spec.quant.code.bits;
    for (int64_t i = 0; i < f->T; i++) f->ids[i] = (int32_t)(test_random(&state) % (uint32_t)f->V);
    ln_package_close(&m);
    return true;
}
/* Every model of a folder, or those whose names have `word` in them. */
static void check_folder(const char *folder, const char *word, int least) {
    DIR *d = opendir(folder);
    int n = 0;
    family_model f;
    assert_non_null(d);
    for (const struct dirent *x; (x = readdir(d));)
        if (x->d_name[0] != '.' && strstr(x->d_name, word) && open_other(&f, folder, x->d_name) &&
            n++ % (int)fewer(1, 4) == 0)
            check_family(&f);
    (void)closedir(d);
    assert_true(n >= least);
}
static void test_adapters(void **state) {
    static const char *const pairs[][2] = {{"llama-plain-f32", "llama-all"},
                                           {"gemma3-text-f32", "gemma3-linear"}};
    (void)state;
    for (size_t i = 0; i < LN_COUNT(pairs); i++) {
        char path[300];
        family_model f;
        assert_true(open_other(&f, LN_ROOT "/tests/golden", pairs[i][0]));
        (void)snprintf(path, sizeof path, LN_ROOT "/tests/golden/lora/%s", pairs[i][1]);
        check(&f, (rank_job){.device = test_device(), .numerics = LN_EXACT, .adapter = path});
    }
}
static void test_formats(void **state) {
    (void)state;
    check_folder(LN_ROOT "/tests/golden/official", "", 8);
    check_folder(LN_ROOT "/tests/golden/quantised", "", 3);
}
static void test_recurrent(void **state) {
    (void)state;
    check_folder(LN_ROOT "/tests/golden/families", "qwen3_5", 3);
}

/* Of the first model. */
static void check_ended(family_model *f) {
    static bool done;
    if (done) return;
    done = true;
    rank_job jobs[2] = {{.numerics = LN_EXACT, .device = test_device()},
                        {.numerics = LN_EXACT, .device = test_device(), .ends_after = 2}};
    for (int i = 0; i < 2; i++) new_job(&jobs[i], f);
    run_ranks(jobs, 2);
    assert_int_equal(jobs[1].status, LN_OK);
    assert_int_equal(jobs[0].status, LN_EDEVICE);
    assert_non_null(strstr(jobs[0].err.message, "rank 1 of 2 has ended"));
    for (int i = 0; i < 2; i++) free_job(&jobs[i]);
}
static void test_ended(void **state) {
    (void)state;
    each_family(check_ended, false);
}

static bool choose_gpus(void) {
    static const int gpus[MOST_RANKS] = {0, 1, 2};
    ln_error e = {0};
    (void)setenv("CUDA_MODULE_LOADING", "EAGER", 0); /* ln_ranks_gpus */
    most_ranks = LN_MIN(ln_gpu_count(&e), MOST_RANKS);
    if (most_ranks > 0) ln_ranks_set_gpus(gpus, most_ranks);
    if (most_ranks < 2) printf("SKIP: %d GPU exists, each rank needs its own %s\n", most_ranks, e.message);
    return most_ranks > 1;
}

int main(void) {
    if (test_device() == LN_DEVICE_CUDA && !choose_gpus()) return 0;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_families), cmocka_unit_test(test_formats),
                                       cmocka_unit_test(test_recurrent), cmocka_unit_test(test_adapters),
                                       cmocka_unit_test(test_ended)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
