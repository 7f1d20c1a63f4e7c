/* Files of keys and values: what is saved and loaded gives the same bits as what was computed; files of other
 * models, other options, damaged and cut ones are rejected and leave the engine as it was. */
/* run: quick cuda */
#include "../common.h"
#include "base/file.h"
#include "engine/generate.h"
#include "engine/kv_file.h"
#include "engine/scheduler.h"

#include <pthread.h>
#include <unistd.h>

#define GOLDEN LN_ROOT "/tests/golden/"

enum { N_IDS = 150, N_NEW = 8, MOST_V = 1024 };

static char dir[64], path[2][128];

static int make_files(void **state) {
    (void)state;
    (void)snprintf(dir, sizeof dir, "/tmp/linnet-kv-XXXXXX");
    if (!mkdtemp(dir)) return 1;
    for (int i = 0; i < 2; i++) (void)snprintf(path[i], sizeof path[i], "%s/%d.safetensors", dir, i);
    return 0;
}
static int remove_files(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) (void)unlink(path[i]);
    return rmdir(dir);
}

typedef struct opened {
    ln_package *m;
    ln_eng *e;
} opened;

static opened open_it(const char *model, const ln_options *opt) {
    opened x;
    OK(ln_package_open(&x.m, model, opt, err));
    OK(ln_eng_open(&x.e, x.m, opt, err));
    return x;
}
static void close_it(opened *x) {
    ln_eng_close(&x->e);
    ln_package_close(&x->m);
}

static ln_options usual(const opened *x) {
    (void)x;
    return (ln_options){.n_threads = 2, .n_chunk = 32, .n_ctx = 240};
}

/* ids[0..n) of a text; `salt` makes another one. */
static void text(int32_t *ids, int64_t n, int32_t vocab, int salt) {
    for (int64_t i = 0; i < n; i++) ids[i] = (int32_t)(1 + (i * 7 + i * i % 11 + salt * 13) % (vocab - 1));
}

/* Generates greedily with log-probabilities after ids[0..n). */
static ln_result answer(opened *x, const int32_t *ids, int64_t n) {
    const ln_sampling how = {.top_p = 1, .repeat_penalty = 1, .n_max = N_NEW, .ignore_eos = true};
    const ln_prompt p = {.ids = ids, .n_ids = (size_t)n};
    const ln_req_options opt = {.how = &how, .logprobs = true, .n_top = 5};
    ln_req *r;
    ln_result out = {0};
    OK(ln_eng_request(&r, x->e, &p, &opt, err));
    OK(ln_req_wait(r, err));
    OK(ln_req_result(r, &out, err));
    ln_req_free(&r);
    return out;
}

static void free_answer(ln_result *r) {
    ln_free(r->ids), ln_free(r->prompt_ids), ln_free(r->text), ln_free(r->reasoning);
    ln_free(r->logprobs), ln_free(r->top);
}

static void assert_same(const ln_result *a, const ln_result *b) {
    assert_int_equal(a->n_ids, N_NEW);
    assert_int_equal(b->n_ids, N_NEW);
    assert_memory_equal(a->ids, b->ids, N_NEW * sizeof *a->ids);
    assert_memory_equal(a->logprobs, b->logprobs, N_NEW * sizeof *a->logprobs);
    for (int i = 0; i < N_NEW * 5; i++) {
        assert_int_equal(a->top[i].id, b->top[i].id);
        assert_memory_equal(&a->top[i].logprob, &b->top[i].logprob, sizeof(double));
    }
}

/* For models with and without windows, in both KV types, and lengths at and next to the border of a block:
 * the next request reuses what was loaded and has the bits of one that computes everything. */
static void loaded_bits_are_computed_bits(void **state) {
    (void)state;
    static const struct {
        const char *model;
        ln_numerics numerics;
        ln_device device;
        ln_kv_type kv_type;
    } of[] = {{GOLDEN "qwen3-sharded-bf16", LN_FAST, LN_DEVICE_AUTO},
              {GOLDEN "qwen3-sharded-bf16", LN_EXACT, LN_DEVICE_AUTO},
              {GOLDEN "gemma3-text-bf16", LN_FAST, LN_DEVICE_AUTO},
              {GOLDEN "gemma3-text-f32", LN_EXACT, LN_DEVICE_AUTO}, /* all layers have a window */
              {GOLDEN "gemma3-text-f16", LN_FAST, LN_DEVICE_REF},
              {GOLDEN "gemma3-text-bf16", LN_FAST, LN_DEVICE_AUTO, LN_KV_Q8},
              {GOLDEN "qwen3-sharded-bf16", LN_EXACT, LN_DEVICE_REF, LN_KV_Q8},
              {GOLDEN "llama-llama3-bf16", LN_FAST, LN_DEVICE_AUTO}};
    static const int64_t lengths[] = {1, 63, 64, 65, N_IDS};
    for (size_t i = 0; i < LN_COUNT(of); i++)
        for (size_t k = 0; k < LN_COUNT(lengths); k++) {
            ln_options o = usual(NULL);
            o.numerics = of[i].numerics, o.device = of[i].device, o.kv_type = of[i].kv_type;
            opened a = open_it(of[i].model, &o), b = open_it(of[i].model, &o), c = open_it(of[i].model, &o);
            int32_t ids[N_IDS + 20];
            size_t saved = 0, loaded = 0;
            const int64_t n = lengths[k];
            text(ids, N_IDS + 20, (int32_t)a.m->spec.V, 0);
            ln_result first = answer(&a, ids, n);
            OK(ln_eng_seq_save(a.e, ids, (size_t)n, path[0], &saved, err));
            assert_int_equal(saved, n);
            OK(ln_eng_seq_load(b.e, path[0], &loaded, err));
            assert_int_equal(loaded, n);
            ln_result got = answer(&b, ids, n + 20), want = answer(&c, ids, n + 20);
            assert_int_equal(got.metrics.cached_tokens, n);
            assert_int_equal(want.metrics.cached_tokens, 0);
            assert_same(&got, &want);
            /* what a loaded engine saves is the same file */
            OK(ln_eng_seq_save(b.e, ids, (size_t)n, path[1], &saved, err));
            assert_int_equal(saved, n);
            char *x, *y;
            size_t n_x, n_y;
            OK(ln_read_file(path[0], 1 << 24, &x, &n_x, err));
            OK(ln_read_file(path[1], 1 << 24, &y, &n_y, err));
            assert_int_equal(n_x, n_y);
            assert_memory_equal(x, y, n_x);
            ln_free(x), ln_free(y);
            OK(ln_eng_seq_load(b.e, path[0], &loaded, err)); /* again: it exists already */
            assert_int_equal(loaded, n);
            free_answer(&first), free_answer(&got), free_answer(&want);
            close_it(&a), close_it(&b), close_it(&c);
        }
}

/* A window's layers are saved for the positions that can still be seen; a part of a text can be saved if it
 * is held. */
static void parts_of_texts(void **state) {
    (void)state;
    ln_options o = usual(NULL);
    opened a = open_it(GOLDEN "gemma3-text-bf16", &o), q = open_it(GOLDEN "qwen3-sharded-bf16", &o);
    int32_t ids[N_IDS], other[N_IDS];
    size_t saved;
    text(ids, N_IDS, 200, 0);
    text(other, N_IDS, 200, 1);
    FAILS(LN_EINVALID, "holds no keys and values", ln_eng_seq_save(a.e, ids, N_IDS, path[0], &saved, err));
    ln_result r = answer(&a, ids, N_IDS);
    free_answer(&r);
    OK(ln_eng_seq_save(a.e, ids, N_IDS, path[0], &saved, err));
    ln_tensors t;
    OK(ln_tensors_open_file(&t, path[0], err));
    int windowed = 0;
    for (int l = 0; l < a.m->spec.L; l++) {
        char name[24];
        (void)snprintf(name, sizeof name, "keys.%d", l);
        const ln_tensor *k = ln_tensors_find(&t, name);
        assert_non_null(k);
        const bool has_window = ln_attn_of(&a.m->spec, l)->window > 0;
        assert_int_equal(k->dims[0],
                         has_window ? N_IDS - 128 : N_IDS); /* from block (150 - 16 + 1) / 64 on */
        windowed += has_window;
    }
    assert_true(windowed > 0 && windowed < a.m->spec.L);
    ln_tensors_close(&t);
    FAILS(LN_EINVALID, "holds no keys and values", ln_eng_seq_save(a.e, other, N_IDS, path[0], &saved, err));
    r = answer(&q, ids, 100);
    free_answer(&r);
    OK(ln_eng_seq_save(q.e, ids, N_IDS, path[1], &saved, err));
    assert_true(saved >= 100 && saved < 110);
    OK(ln_eng_seq_save(q.e, ids, 70, path[1], &saved, err));
    assert_int_equal(saved, 70);
    FAILS(LN_EIO, "/no/such/folder", ln_eng_seq_save(q.e, ids, 70, "/no/such/folder/x", &saved, err));
    close_it(&a), close_it(&q);
}

static void assert_untouched(opened *x) {
    const ln_kv_counts c = ln_kv_count(x->e->kv);
    assert_int_equal(c.n_cached, 0);
    assert_int_equal(c.n_used, 0);
    assert_int_equal(c.n_free, c.n_pages);
}

static void refuses(const char *model, const ln_options *o, const char *word, const char *file) {
    size_t n;
    opened x = open_it(model, o);
    FAILS(LN_EINVALID, word, ln_eng_seq_load(x.e, file, &n, err));
    assert_untouched(&x);
    close_it(&x);
}

static void write_all(const char *to, const char *data, size_t bytes) {
    FILE *f = fopen(to, "we");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
}

/* Whatever differs is named. */
static void foreign_files_are_refused(void **state) {
    (void)state;
    ln_options o = usual(NULL);
    opened a = open_it(GOLDEN "qwen3-sharded-bf16", &o);
    int32_t ids[N_IDS];
    size_t saved;
    text(ids, N_IDS, 200, 0);
    ln_result r = answer(&a, ids, N_IDS);
    free_answer(&r);
    OK(ln_eng_seq_save(a.e, ids, N_IDS, path[0], &saved, err));
    refuses(GOLDEN "qwen3-f16", &o, "the weights", path[0]);
    ln_options exact = o;
    exact.numerics = LN_EXACT;
    refuses(GOLDEN "qwen3-sharded-bf16", &exact, "the numerics", path[0]);
    ln_options q8 = o;
    q8.device = LN_DEVICE_CPU, q8.kv_type = LN_KV_Q8;
    refuses(GOLDEN "qwen3-sharded-bf16", &q8, "the type of keys and values", path[0]);
    ln_options small = o;
    small.n_ctx = 128;
    refuses(GOLDEN "qwen3-sharded-bf16", &small, "ln_options.n_ctx", path[0]);
    refuses(GOLDEN "qwen3-f16", &o, "linnet-kv", GOLDEN "qwen3-f16/model.safetensors");
    refuses(GOLDEN "qwen3-f16", &o, "", GOLDEN "qwen3-f16/config.json");
    size_t n;
    FAILS(LN_EIO, "no-such-file", ln_eng_seq_load(a.e, "/tmp/no-such-file", &n, err));
    /* metadata that is changed in place: the value's first letter */
    static const char *const keys[] = {"\"version\":\"",   "\"weights\":\"", "\"config\":\"",
                                       "\"tokenizer\":\"", "\"adapter\":\"", "\"numerics\":\"",
                                       "\"quantize\":\"",  "\"kv_type\":\""};
    char *data;
    size_t bytes;
    OK(ln_read_file(path[0], 1 << 24, &data, &bytes, err));
    for (size_t i = 0; i < LN_COUNT(keys); i++) {
        size_t at = 8;
        while (memcmp(data + at, keys[i], strlen(keys[i])) != 0) at++;
        char *p = data + at + strlen(keys[i]), was = *p;
        *p = was == 'z' ? 'y' : 'z';
        write_all(path[1], data, bytes);
        refuses(GOLDEN "qwen3-sharded-bf16", &o, "expected", path[1]);
        *p = was;
    }
    ln_free(data);
    close_it(&a);
}

/* Every byte counts: a changed one, wherever it is, and a missing end are rejected. */
static void damaged_files_are_refused(void **state) {
    (void)state;
    ln_options o = usual(NULL);
    opened a = open_it(GOLDEN "qwen3-sharded-bf16", &o), x = open_it(GOLDEN "qwen3-sharded-bf16", &o);
    int32_t ids[N_IDS];
    size_t saved, n, bytes;
    char *data;
    text(ids, N_IDS, 200, 0);
    ln_result r = answer(&a, ids, 70);
    free_answer(&r);
    OK(ln_eng_seq_save(a.e, ids, 70, path[0], &saved, err));
    OK(ln_read_file(path[0], 1 << 24, &data, &bytes, err));
    int tried = 0;
    for (size_t at = 0; at < bytes; at += bytes / 97 + 1, tried++) {
        const char was = data[at];
        data[at] = (char)(was ^ 0x55);
        write_all(path[1], data, bytes);
        ln_error err = {0};
        const ln_status st = ln_eng_seq_load(x.e, path[1], &n, &err);
        if (st != LN_EINVALID && st != LN_EUNSUPPORTED) fail_msg("byte %zu changed: status %d", at, st);
        assert_untouched(&x);
        data[at] = was;
    }
    for (size_t cut = 0; cut < bytes; cut += bytes / 29 + 1, tried++) {
        write_all(path[1], data, cut);
        ln_error err = {0};
        assert_int_equal(ln_eng_seq_load(x.e, path[1], &n, &err), LN_EINVALID);
        assert_untouched(&x);
    }
    print_message("  %d damaged files\n", tried);
    write_all(path[1], data, bytes);
    OK(ln_eng_seq_load(x.e, path[1], &n, err));
    assert_int_equal(n, 70);
    ln_free(data);
    close_it(&a), close_it(&x);
}

/* Loading takes the pages of what is kept, the oldest first, and never those of running requests. */
static void a_full_pool(void **state) {
    (void)state;
    ln_options o = usual(NULL);
    o.n_ctx = 192; /* three blocks */
    opened a = open_it(GOLDEN "qwen3-sharded-bf16", &o);
    int32_t ids[N_IDS], other[N_IDS];
    size_t n;
    text(ids, N_IDS, 200, 0);
    text(other, N_IDS, 200, 1);
    ln_result r = answer(&a, ids, N_IDS);
    free_answer(&r);
    OK(ln_eng_seq_save(a.e, ids, N_IDS, path[0], &n, err));
    r = answer(&a, other, N_IDS);
    free_answer(&r);
    OK(ln_eng_seq_load(a.e, path[0], &n, err)); /* evicts `other` */
    assert_int_equal(n, N_IDS);
    r = answer(&a, ids, N_IDS);
    assert_int_equal(r.metrics.cached_tokens, N_IDS - 1);
    free_answer(&r);
    ln_kv_clear(a.e->kv);
    const ln_seq_options held = {.ids = other, .n_prompt = 100, .n_most = 150, .no_cache = true};
    ln_seq *s;
    OK(ln_driver_enter(a.e->sched, err));
    OK(ln_seq_open(a.e, &held, &s, err));
    assert_non_null(s);
    OK(ln_eng_prefill(a.e, s, other, 100, false, err));
    ln_driver_leave(a.e->sched);
    FAILS(LN_EMEMORY, "not held by running requests", ln_eng_seq_load(a.e, path[0], &n, err));
    assert_int_equal(ln_kv_count(a.e->kv).n_cached, 0);
    ln_seq_close(a.e, &s);
    OK(ln_eng_seq_load(a.e, path[0], &n, err));
    ln_kv_clear(a.e->kv);
    assert_untouched(&a);
    (void)ln_kv_set_limit(a.e->kv, 0);
    FAILS(LN_EMEMORY, "ln_cache_set_limit", ln_eng_seq_load(a.e, path[0], &n, err));
    assert_untouched(&a);
    close_it(&a);
}

enum { SAVES = 20 };

/* Saves a text SAVES times; counts the steps that were run at the same time. */
typedef struct saving {
    opened *x;
    const int32_t *ids;
    uint64_t n_steps;
    ln_status st;
    atomic_bool done;
} saving;

static void *save(void *arg) {
    saving *s = arg;
    for (int i = 0; i < SAVES && s->st == LN_OK; i++) {
        ln_engine_stats before, after;
        size_t n;
        ln_sched_stats(s->x->e->sched, &before);
        s->st = ln_eng_seq_save(s->x->e, s->ids, N_IDS, path[0], &n, NULL);
        ln_sched_stats(s->x->e->sched, &after);
        s->n_steps += after.n_steps - before.n_steps;
    }
    atomic_store(&s->done, true);
    return NULL;
}

/* A thread that wants to run steps gets its turn between the slices of a file: once for each layer's keys,
 * and for its values. With the token held all the time it would be twice, before and after. */
static void others_run_while_a_file_is_written(void **state) {
    (void)state;
    ln_options o = usual(NULL);
    o.n_parallel = 2;
    opened a = open_it(GOLDEN "gemma3-text-bf16", &o);
    const ln_sampling how = {.top_p = 1, .repeat_penalty = 1, .n_max = 200, .ignore_eos = true};
    int32_t ids[N_IDS];
    size_t n;
    pthread_t thread;
    text(ids, N_IDS, 200, 0);
    ln_result first = answer(&a, ids, N_IDS);
    OK(ln_eng_seq_save(a.e, ids, N_IDS, path[0], &n, err)); /* the digest is known now */
    saving s = {.x = &a, .ids = ids};
    ln_req *r = NULL;
    assert_int_equal(pthread_create(&thread, NULL, save, &s), 0);
    while (!atomic_load(&s.done)) {
        const ln_req_options opt = {.ids = ids, .n_ids = 3, .how = &how, .no_cache = true};
        if (!r) OK(ln_req_new(&r, a.e, &opt, err));
        OK(ln_driver_step(a.e->sched, NULL, err));
        if (ln_req_look(r).state == LN_REQ_DONE) ln_req_free(&r);
    }
    pthread_join(thread, NULL);
    ln_req_free(&r);
    assert_int_equal(s.st, LN_OK);
    const uint64_t slices = 2 * (uint64_t)a.m->spec.L;
    if (s.n_steps < SAVES * slices / 3)
        fail_msg("%llu steps in %d files", (unsigned long long)s.n_steps, SAVES);
    assert_int_equal(ln_kv_count(a.e->kv).n_used, 0); /* nothing is held any more */
    free_answer(&first);
    close_it(&a);
}

/* Requests that may need every page of the pool: a file is written all the same, and they lack none. */
static void a_promised_pool_is_saved(void **state) {
    (void)state;
    ln_options o = usual(NULL);
    o.n_ctx = 192; /* three blocks */
    opened a = open_it(GOLDEN "qwen3-sharded-bf16", &o);
    const ln_sampling how = {.top_p = 1, .repeat_penalty = 1, .n_max = 180, .ignore_eos = true};
    int32_t ids[N_IDS], other[3] = {7, 8, 9};
    size_t n;
    ln_req *r;
    text(ids, N_IDS, 200, 0);
    ln_result first = answer(&a, ids, 100);
    const ln_req_options opt = {.ids = other, .n_ids = 3, .how = &how};
    OK(ln_req_new(&r, a.e, &opt, err));
    OK(ln_driver_step(a.e->sched, NULL, err));
    OK(ln_eng_seq_save(a.e, ids, 100, path[0], &n, err));
    assert_int_equal(n, 100);
    OK(ln_req_wait(r, err));
    ln_req_free(&r);
    OK(ln_eng_seq_load(a.e, path[0], &n, err));
    ids[5] = (int32_t)a.m->spec.V;
    FAILS(LN_EINVALID, "token 5 is", ln_eng_seq_save(a.e, ids, 100, path[0], &n, err));
    ids[5] = -1;
    FAILS(LN_EINVALID, "token 5 is", ln_eng_seq_save(a.e, ids, 100, path[0], &n, err));
    free_answer(&first);
    close_it(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(loaded_bits_are_computed_bits),
                                       cmocka_unit_test(parts_of_texts),
                                       cmocka_unit_test(foreign_files_are_refused),
                                       cmocka_unit_test(damaged_files_are_refused),
                                       cmocka_unit_test(a_full_pool),
                                       cmocka_unit_test(others_run_while_a_file_is_written),
                                       cmocka_unit_test(a_promised_pool_is_saved)};
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
