/* Adapters at run time: rows of several adapters in one step have the bits of each adapter alone, rows
 * without one those of an engine without adapters; keys of the prefix cache; loading, closing, factors,
 * refusals. */
/* run: quick cuda */
#include "../common.h"
#include "device/cpu/cpu.h"
#include "base/file.h"
#include "engine/kv_file.h"

#include <math.h>
#include <unistd.h>

#define GOLDEN LN_ROOT "/tests/golden/"
#define LORA   GOLDEN "lora/"

enum { N = 23, MOST = 4, PATH_BYTES = 600 };

/* A base model and adapters for it. */
typedef struct world {
    const char *base;
    const char *adapters[MOST - 1];
    ln_numerics numerics;
} world;
static const world worlds[] = {
    {GOLDEN "llama-plain-f32", {LORA "llama-all", LORA "llama-mlp", LORA "llama-few"}, LN_EXACT},
    {GOLDEN "llama-bias-bf16", {LORA "llama-bias-all", LORA "llama-bias-only", NULL}, LN_EXACT},
    {GOLDEN "llama-bias-bf16", {LORA "llama-bias-all", LORA "llama-bias-only", NULL}, LN_FAST},
    {GOLDEN "quantised/gemma3-text-q4-g32-bf16", {LORA "gemma3-q4", NULL, NULL}, LN_EXACT},
    {GOLDEN "quantised/gemma3-text-q4-g32-bf16", {LORA "gemma3-q4", NULL, NULL}, LN_FAST},
};

static int32_t ids[MOST][N]; /* a text for each sequence */

static void fill_ids(int64_t V) {
    uint64_t seed = 5;
    for (int s = 0; s < MOST; s++)
        for (int i = 0; i < N; i++) ids[s][i] = (int32_t)(test_random(&seed) % (uint32_t)V);
}

static ln_eng *open_engine(ln_package *m, const ln_options *o) {
    ln_run_options r;
    ln_eng *e;
    OK(ln_eng_options(m, o, &r, err));
    r.page_len = 32;
    OK(ln_eng_open_with(&e, m, &r, err));
    return e;
}

static int n_adapters_of(const world *w) {
    int n = 0;
    while (n < MOST - 1 && w->adapters[n]) n++;
    return n;
}

static ln_options options_of(const world *w, int n_threads, ln_device device) {
    return (ln_options){.numerics = w->numerics,
                        .device = device,
                        .n_threads = n_threads,
                        .n_ctx = 128,
                        .n_chunk = MOST * N,
                        .n_logits = MOST * N,
                        .n_parallel = MOST,
                        .n_adapters = n_adapters_of(w)};
}

/* Runs rows [from, to) of some sequences in one step and stores all logits at out[seq][row][V]. */
static void step(ln_eng *e, ln_seq **seqs, const int *which, int n, int from, int to, float *out) {
    ln_batch_item items[MOST];
    const int64_t V = e->run->spec->V;
    for (int i = 0; i < n; i++)
        items[i] = (ln_batch_item){seqs[which[i]], ids[which[i]] + from, to - from, LN_LOGITS_ALL};
    OK(ln_eng_step(e, items, n, err));
    for (int i = 0, row = 0; i < n; i++)
        for (int t = from; t < to; t++, row++)
            OK(ln_run_logits(e->run, row, out + (which[i] * N + t) * V, err));
}

static ln_seq *open_seq(ln_eng *e, int adapter_slot) {
    const ln_seq_options o = {.n_prompt = N, .n_most = N, .no_cache = true, .adapter_slot = adapter_slot};
    ln_seq *s;
    OK(ln_seq_open(e, &o, &s, err));
    assert_non_null(s);
    return s;
}

/* A step of whole texts with logits of the last row of each sequence alone. */
static void step_last(ln_eng *e, ln_seq **seqs, int n, float *out) {
    ln_batch_item items[MOST];
    for (int i = 0; i < n; i++) items[i] = (ln_batch_item){seqs[i], ids[i], N, LN_LOGITS_LAST};
    OK(ln_eng_step(e, items, n, err));
    for (int i = 0; i < n; i++) OK(ln_run_logits(e->run, i, out + (i * N + N - 1) * e->run->spec->V, err));
}

/* All logits of sequence s with the adapter in slot s - 1 (0: none): together in one step, in several, those
 * of the last row, or alone in an engine of its own. */
enum { TOGETHER, IN_PARTS, LAST_ROW, ALONE };
static void run(const world *w, ln_package *m, int how, int n_threads, ln_device device, float *out) {
    const int n = n_adapters_of(w), all[MOST] = {0, 1, 2, 3};
    ln_options o = options_of(w, n_threads, device);
    for (int s = 0; s <= n; s++) {
        ln_adapter_ref *loras[MOST] = {0};
        ln_seq *seqs[MOST] = {0};
        if (how == ALONE && s == 0) o.n_adapters = 0; /* the plain program */
        else o.n_adapters = n;
        ln_eng *e = open_engine(m, &o);
        for (int i = 1; i <= n; i++)
            if (how != ALONE || i == s)
                OK(ln_adapter_load(&loras[i], e, &(ln_adapter_part){w->adapters[i - 1], 1}, 1, err));
        for (int i = 0; i <= n; i++)
            if (how != ALONE || i == s) seqs[i] = open_seq(e, loras[i] ? loras[i]->slot + 1 : 0);
        if (how == ALONE) step(e, seqs, &all[s], 1, 0, N, out);
        if (how == TOGETHER) step(e, seqs, all, n + 1, 0, N, out);
        if (how == LAST_ROW) step_last(e, seqs, n + 1, out);
        if (how == IN_PARTS) {
            step(e, seqs, all, n + 1, 0, 5, out);
            for (int i = n; i >= 0; i--) step(e, seqs, &i, 1, 5, 17, out);
            step(e, seqs, all, n + 1, 17, N, out);
        }
        for (int i = 0; i <= n; i++) {
            if (seqs[i]) ln_seq_close(e, &seqs[i]);
            ln_adapter_unload(&loras[i]);
        }
        ln_eng_close(&e);
        if (how != ALONE) return;
    }
}

static void test_same_bits(void **state) {
    (void)state;
    for (size_t i = 0; i < LN_COUNT(worlds); i++) {
        const world *w = &worlds[i];
        ln_package *m;
        OK(ln_package_open(&m, w->base, &(ln_options){0}, err));
        const size_t n = (size_t)((n_adapters_of(w) + 1) * N * m->spec.V);
        float *want = calloc(n, 4), *got = calloc(n, 4);
        fill_ids(m->spec.V);
        run(w, m, ALONE, 1, test_device(), want);
        for (int how = TOGETHER; how <= LAST_ROW; how++)
            for (int threads = 1; threads <= 3; threads += 2) {
                if (how == LAST_ROW) memcpy(got, want, 4 * n);
                else memset(got, 0xff, 4 * n);
                for (int s = 0; s <= n_adapters_of(w); s++)
                    memset(got + (size_t)(s * N + N - 1) * (size_t)m->spec.V, 0xff, 4 * (size_t)m->spec.V);
                run(w, m, how, threads, test_device(), got);
                if (memcmp(want, got, 4 * n) != 0)
                    fail_msg("%s, numerics %d: other bits %s on %d threads", w->base, (int)w->numerics,
                             how == TOGETHER   ? "in one step"
                             : how == IN_PARTS ? "in parts"
                                               : "of the last row",
                             threads);
            }
        for (int s = 1; s <= n_adapters_of(w); s++) /* an adapter changes something */
            assert_memory_not_equal(want, want + (size_t)s * N * (size_t)m->spec.V, 4 * (size_t)m->spec.V);
        ln_isa isa;
        OK(ln_cpu_isa_pick(&isa, err));
        if (test_device() == LN_DEVICE_CPU && /* the GPU and AMX have an order of their own */
            strcmp(ln_cpu_isa_name(isa), "amx") != 0) {
            run(w, m, TOGETHER, 1, LN_DEVICE_REF, got);
            assert_memory_equal(want, got, 4 * n);
        }
        free(want), free(got);
        ln_package_close(&m);
    }
}

/* ---- requests ---- */

static ln_package *plain;
static ln_eng *plain_engine(int n_adapters) {
    return open_engine(plain,
                       &(ln_options){.n_ctx = 64, .n_parallel = 3, .n_adapters = n_adapters, .n_threads = 1});
}

static int64_t cached_of(ln_eng *e, int adapter_slot, const char **reason) {
    const ln_sampling how = {.n_max = 2, .repeat_penalty = 1, .top_p = 1, .ignore_eos = true};
    const ln_req_options o = {.ids = ids[0], .n_ids = N, .how = &how, .adapter_slot = adapter_slot};
    ln_req *r;
    OK(ln_req_new(&r, e, &o, err));
    OK(ln_req_wait(r, err));
    const int64_t n = ln_req_look(r).n_cached;
    if (reason) *reason = r->metrics.cache_miss_reason;
    ln_req_free(&r);
    return n;
}

static ln_adapter_ref *load(ln_eng *e, const char *dir, double scale) {
    ln_adapter_ref *l;
    OK(ln_adapter_load(&l, e, &(ln_adapter_part){dir, scale}, 1, err));
    return l;
}

/* A prefix is reused with the adapter that has computed it alone; also when that was closed and opened again.
 */
static void test_prefix(void **state) {
    (void)state;
    const char *reason;
    ln_eng *e = plain_engine(2);
    fill_ids(plain->spec.V);
    ln_adapter_ref *a = load(e, LORA "llama-all", 1), *b = load(e, LORA "llama-few", 1);
    assert_int_equal(cached_of(e, 0, NULL), 0);
    assert_int_equal(cached_of(e, a->slot + 1, &reason), 0);
    assert_string_equal(reason, "adapter");
    assert_int_equal(cached_of(e, b->slot + 1, NULL), 0);
    assert_int_equal(cached_of(e, a->slot + 1, NULL), N - 1);
    assert_int_equal(cached_of(e, 0, NULL), N - 1);
    OK(ln_adapter_rescale(a, 0.5, err));
    assert_int_equal(cached_of(e, a->slot + 1, NULL), 0);
    ln_adapter_unload(&a), ln_adapter_unload(&b);
    b = load(e, LORA "llama-all", 1), a = load(e, LORA "llama-few", 1);
    assert_int_equal(cached_of(e, b->slot + 1, NULL), N - 1);
    ln_adapter_unload(&a), ln_adapter_unload(&b);
    ln_eng_close(&e);
}

/* A file of keys and values belongs to the adapter that has computed them. */
static void test_files(void **state) {
    (void)state;
    char path[] = "/tmp/linnet-adapters-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0 && close(fd) == 0);
    const ln_adapter_part all = {LORA "llama-all", 1}, half = {LORA "llama-all", 0.5};
    ln_options o = {.n_ctx = 64, .n_threads = 1, .adapter = &all, .n_adapter_parts = 1};
    size_t n = 0;
    fill_ids(plain->spec.V);
    ln_eng *e = open_engine(plain, &o);
    assert_int_equal(cached_of(e, 0, NULL), 0);
    OK(ln_eng_seq_save(e, ids[0], N, path, &n, err));
    assert_int_equal(n, N);
    ln_eng_close(&e);
    e = open_engine(plain, &o);
    OK(ln_eng_seq_load(e, path, &n, err));
    assert_int_equal(cached_of(e, 0, NULL), N - 1);
    ln_eng_close(&e);
    for (int i = 0; i < 2; i++) { /* another factor, no adapter */
        o.adapter = &half, o.n_adapter_parts = i == 0;
        e = open_engine(plain, &o);
        FAILS(LN_EINVALID, "the adapter", ln_eng_seq_load(e, path, &n, err));
        ln_eng_close(&e);
    }
    (void)unlink(path);
}

/* Closing an adapter that a request uses frees its slot when the request is closed. */
static void test_slots(void **state) {
    (void)state;
    const ln_sampling how = {.n_max = 3, .repeat_penalty = 1, .top_p = 1, .ignore_eos = true};
    ln_adapter_ref *none;
    ln_req *r;
    ln_eng *e = plain_engine(1);
    fill_ids(plain->spec.V);
    ln_adapter_ref *a = load(e, LORA "llama-all", 1);
    const ln_adapter_part few = {LORA "llama-few", 1}, all = {LORA "llama-all", 1};
    FAILS(LN_EMEMORY, "n_adapters", ln_adapter_load(&none, e, &few, 1, err));
    const ln_req_options o = {
        .ids = ids[0], .n_ids = N, .how = &how, .adapter_slot = a->slot + 1, .no_cache = true};
    OK(ln_req_new(&r, e, &o, err));
    FAILS(LN_EUSAGE, "open requests", ln_adapter_rescale(a, 2, err));
    ln_adapter_unload(&a);
    FAILS(LN_EMEMORY, "n_adapters", ln_adapter_load(&none, e, &few, 1, err));
    OK(ln_req_wait(r, err));
    const int32_t with = r->all.data[N];
    ln_req_free(&r);
    a = load(e, LORA "llama-all", 1);
    OK(ln_req_new(&r, e, &o, err)); /* the same slot, the same adapter */
    OK(ln_req_wait(r, err));
    assert_int_equal(r->all.data[N], with);
    ln_req_free(&r);
    ln_adapter_unload(&a);
    ln_eng_close(&e);
    e = plain_engine(0);
    FAILS(LN_EMEMORY, "room for 0 adapters", ln_adapter_load(&none, e, &all, 1, err));
    ln_eng_close(&e);
}

static void test_refusals(void **state) {
    (void)state;
    ln_adapter_ref *none;
    ln_eng *e = open_engine(plain, &(ln_options){.n_ctx = 64, .n_adapters = 1, .adapter_rank = 3});
    const ln_adapter_part all = {LORA "llama-all", 1}, sum[] = {{LORA "llama-mlp", 1}, {LORA "llama-few", 1}},
                          other = {LORA "gemma3-linear", 1}, lost = {LORA "nowhere", 1},
                          nan = {LORA "llama-few", NAN};
    FAILS(LN_EUSAGE, "rank 4 is more", ln_adapter_load(&none, e, &all, 1, err));
    FAILS(LN_EUSAGE, "rank 5 of the sum", ln_adapter_load(&none, e, sum, 2, err));
    FAILS(LN_EINVALID, "another model", ln_adapter_load(&none, e, &other, 1, err));
    FAILS(LN_EIO, "nowhere", ln_adapter_load(&none, e, &lost, 1, err));
    FAILS(LN_EUSAGE, "finite", ln_adapter_load(&none, e, &nan, 1, err));
    FAILS(LN_EUSAGE, "sum of 1 to 16", ln_adapter_load(&none, e, sum, 0, err));
    ln_adapter_ref *a = load(e, LORA "llama-few", 1); /* the slot is free after each of them */
    ln_adapter_unload(&a);
    ln_eng_close(&e);
}

static void test_not_finite(void **state) {
    (void)state;
    char dir[] = "/tmp/linnet-adapters-XXXXXX", path[100];
    static const char *const leaves[] = {"adapter_config.json", "adapter_model.safetensors"};
    assert_non_null(mkdtemp(dir));
    for (int i = 0; i < 2; i++) {
        char from[PATH_BYTES];
        char *data;
        size_t bytes;
        (void)snprintf(from, sizeof from, LORA "llama-few/%s", leaves[i]);
        (void)snprintf(path, sizeof path, "%s/%s", dir, leaves[i]);
        OK(ln_read_file(from, 1 << 20, &data, &bytes, err));
        if (i == 1) memset(data + bytes - 2, 0x7f, 2); /* the last value: its exponent */
        if (i == 1) data[bytes - 2] = (char)0xff;
        FILE *f = fopen(path, "wbe");
        assert_true(f && fwrite(data, 1, bytes, f) == bytes && fclose(f) == 0);
        ln_free(data);
    }
    ln_adapter_ref *none;
    ln_eng *e = plain_engine(1);
    FAILS(LN_EINVALID, "NaN or an infinity", ln_adapter_load(&none, e, &(ln_adapter_part){dir, 1}, 1, err));
    FAILS(LN_EUSAGE, "more than f32 holds",
          ln_adapter_load(&none, e, &(ln_adapter_part){LORA "llama-few", 1e300}, 1, err));
    ln_eng_close(&e);
    for (int i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", dir, leaves[i]);
        (void)unlink(path);
    }
    (void)rmdir(dir);
}

/* A factor that is set later has the bits of one that the adapter was opened with. */
static void test_scale(void **state) {
    (void)state;
    ln_eng *e = plain_engine(2);
    const int64_t V = plain->spec.V;
    fill_ids(V);
    ln_options o = {.n_ctx = 64, .n_chunk = 2 * N, .n_logits = 2 * N, .n_parallel = 2, .n_adapters = 2};
    ln_eng_close(&e);
    e = open_engine(plain, &o);
    ln_adapter_ref *a = load(e, LORA "llama-all", -0.25), *b = load(e, LORA "llama-all", 1);
    OK(ln_adapter_rescale(b, -0.25, err));
    memcpy(ids[1], ids[0], sizeof ids[0]);
    float *out = calloc((size_t)(2 * N * V), 4);
    ln_seq *seqs[] = {open_seq(e, a->slot + 1), open_seq(e, b->slot + 1)};
    step(e, seqs, (int[]){0, 1}, 2, 0, N, out);
    assert_memory_equal(out, out + N * V, 4 * (size_t)(N * V));
    assert_string_equal(e->adapters[a->slot].digest, e->adapters[b->slot].digest);
    ln_seq_close(e, &seqs[0]), ln_seq_close(e, &seqs[1]);
    free(out);
    ln_adapter_unload(&a), ln_adapter_unload(&b);
    ln_eng_close(&e);
}

/* The plan has the pool, and no adapter costs nothing. */
static void test_plan(void **state) {
    (void)state;
    const ln_adapter_part all = {LORA "llama-all", 1};
    ln_plan with, without;
    OK(ln_eng_plan(plain, &(ln_options){.n_ctx = 64}, &without, err));
    OK(ln_eng_plan(plain, &(ln_options){.n_ctx = 64, .adapter = &all, .n_adapter_parts = 1}, &with, err));
    assert_int_equal(without.adapter_bytes, 0);
    int64_t least = 0; /* A and B of rank 4 in f32, of 7 matrices in 2 layers */
    for (size_t i = 0; i < plain->weights.n; i++)
        if (plain->weights.items[i].layer >= 0 && plain->weights.items[i].d1 > 0)
            least += 4 * 4 * (plain->weights.items[i].d0 + plain->weights.items[i].d1);
    assert_true((int64_t)with.adapter_bytes > least && (int64_t)with.adapter_bytes < 2 * least);
    ln_eng *e = open_engine(plain, &(ln_options){.n_ctx = 64, .adapter = &all, .n_adapter_parts = 1});
    assert_int_equal(e->run->sizes.adapter_bytes, with.adapter_bytes);
    ln_memory now = {.size = sizeof now};
    ln_memory_stats(&now);
    assert_int_equal(now.adapter_bytes, with.adapter_bytes);
    ln_eng_close(&e);
    ln_memory_stats(&now);
    assert_int_equal(now.adapter_bytes, 0);
}

/* Whichever allocation fails, the slot is free again. */
static void test_failing_allocations(void **state) {
    (void)state;
    const ln_adapter_part sum[] = {{LORA "llama-few", 1}, {LORA "llama-lora-bias", 1}};
    ln_eng *e = plain_engine(1);
    bool done = false;
    for (int64_t n = 1; !done; n += fewer(1, 7)) {
        ln_adapter_ref *a = NULL;
        ln_mem_fail_at(n, false);
        const ln_status st = ln_adapter_load(&a, e, sum, 2, NULL);
        (void)ln_mem_fail_at(0, false);
        if (st != LN_OK && st != LN_EMEMORY) fail_msg("allocation %lld: status %d", (long long)n, st);
        done = st == LN_OK;
        ln_adapter_unload(&a);
        assert_false(e->adapters[0].used);
    }
    ln_eng_close(&e);
}

static int setup(void **state) {
    (void)state;
    OK(ln_package_open(&plain, GOLDEN "llama-plain-f32", &(ln_options){0}, err));
    return 0;
}
static int teardown(void **state) {
    (void)state;
    ln_package_close(&plain);
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]); /* for tools/mutants */
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_bits),
                                       cmocka_unit_test(test_prefix),
                                       cmocka_unit_test(test_files),
                                       cmocka_unit_test(test_slots),
                                       cmocka_unit_test(test_refusals),
                                       cmocka_unit_test(test_not_finite),
                                       cmocka_unit_test(test_scale),
                                       cmocka_unit_test(test_plan),
                                       cmocka_unit_test(test_failing_allocations)};
    return cmocka_run_group_tests_name("adapters", tests, setup, teardown);
}
