/* Compares every golden model with the values of the reference implementation: logits, keys after RoPE,
 * greedy tokens; exact and fast, on the reference device and on every ISA level of the CPU device.
 *
 * Exact: |logit| differences <= 2e-4, keys <= 1e-4 (at position 30,000: 1e-4 + 6e-5 max|k|). Fast: rms <=
 * 1.5 % and maximum <= 8 % of the logits' standard deviation, or the errors of transformers in bf16 if the
 * index has them. 2 % and 16 % for quantised models. Exact with keys and values of 8 bits: 5 times as much,
 * because their error is 5 times that of bf16 (decision 070). Greedy tokens are compared up to the first
 * whose margin is under 1e-3. With LN_TEST_DEVICE=cuda or mlx on that device alone. With LN_GOLDEN=DIR the
 * models of that folder instead (tools/golden_families.py --sweep). */
/* run: quick cuda */
#include "../common.h"
#include "device/cpu/cpu.h"

#define DIR_GOLDEN LN_ROOT "/tests/golden/"

/* The folder of the index that is read. */
static char folder[512];

typedef struct golden {
    char dir[512];
    ln_package *m;
    ln_tensors t;
    int32_t *ids;
    int64_t T, first_key; /* keys are recorded for positions first_key .. T - 1 */
    bool is_long;
} golden;

static const ln_tensor *want(const golden *g, const char *name) {
    const ln_tensor *t = ln_tensors_find(&g->t, name);
    if (!t) fail_msg("%s: golden.safetensors lacks %s", g->dir, name);
    return t;
}
static float f32_at(const ln_tensor *t, int64_t i) {
    float f;
    memcpy(&f, t->data + 4 * i, 4);
    return f;
}
static int32_t i32_at(const ln_tensor *t, int64_t i) {
    int32_t v;
    memcpy(&v, t->data + 4 * i, 4);
    return v;
}

static void golden_open(golden *g, const char *dir, const json_t *row) {
    memset(g, 0, sizeof *g);
    snprintf(g->dir, sizeof g->dir, "%s%s", folder, dir);
    ln_options o = {0};
    OK(ln_package_open(&g->m, g->dir, &o, err));
    char path[600];
    snprintf(path, sizeof path, "%s/golden.safetensors", g->dir);
    OK(ln_tensors_open_file(&g->t, path, err));
    g->T = json_integer_value(json_object_get(row, "T"));
    g->is_long = json_object_get(row, "ids_from") != NULL;
    g->ids = calloc((size_t)g->T, sizeof *g->ids);
    if (g->is_long) {
        uint32_t x = 1, V = (uint32_t)g->m->spec.V - 8;
        for (int64_t i = 0; i < g->T; i++) {
            x = x * 1664525u + 1013904223u;
            g->ids[i] = (int32_t)((x >> 16) % V);
        }
        g->first_key = g->T - want(g, "keys.0")->dims[1];
    } else
        for (int64_t i = 0; i < g->T; i++) g->ids[i] = i32_at(want(g, "ids"), i);
}
static void golden_close(golden *g) {
    free(g->ids);
    ln_tensors_close(&g->t);
    ln_package_close(&g->m);
}

static ln_kv_type kv_type = LN_KV_AUTO;
static ln_eng *engine(const golden *g, ln_device device, ln_numerics numerics, bool keep_full_kv) {
    ln_options o = {.device = device,
                    .n_threads = 2,
                    .n_chunk = g->is_long ? 256 : 16,
                    .n_logits = g->is_long ? 4 : 16,
                    .n_ctx = LN_MIN(g->m->spec.n_ctx, g->T + 48),
                    .keep_full_kv = keep_full_kv,
                    .kv_type = kv_type,
                    .numerics = numerics};
    ln_run_options r;
    ln_eng *e;
    OK(ln_eng_options(g->m, &o, &r, err));
    r.page_len = 32;
    OK(ln_eng_open_with(&e, g->m, &r, err));
    return e;
}

/* Runs the prompt; calls `row` for each position whose logits are wanted. */
typedef void row_fn(void *user, int64_t t, const float *logits);
static void run_prompt(const golden *g, ln_eng *e, row_fn *fn, void *user) {
    int64_t from_logits = g->is_long ? g->T - 4 : 0;
    ln_seq *seq = test_seq(e, g->T, g->T);
    for (int64_t at = 0; at < g->T;) {
        int64_t k = LN_MIN(e->run->opt.n_chunk, g->T - at);
        if (at < from_logits && at + k > from_logits) k = from_logits - at;
        ln_batch_item f = {seq, g->ids + at, k, at >= from_logits ? LN_LOGITS_ALL : LN_LOGITS_NONE};
        OK(ln_eng_step(e, &f, 1, err));
        for (int64_t i = 0; i < k && at >= from_logits; i++) {
            OK(ln_run_logits(e->run, i, e->sched->scratch->logits, err));
            fn(user, at + i, e->sched->scratch->logits);
        }
        at += k;
    }
    ln_seq_close(e, &seq);
}

typedef struct compare {
    const golden *g;
    const ln_tensor *rows, *logits;
    int64_t next;
    double worst, sum2, ref_sum, ref_sum2, n;
    double of_row[64]; /* mean square of the error of each row */
} compare;
static void compare_row(void *user, int64_t t, const float *logits) {
    compare *c = user;
    if (c->next >= c->rows->dims[0] || i32_at(c->rows, c->next) != t) return;
    int64_t V = c->logits->dims[1];
    for (int64_t i = 0; i < V; i++) {
        double ref = (double)f32_at(c->logits, c->next * V + i), d = (double)logits[i] - ref;
        if (d != d) fail_msg("%s: row %lld: NaN", c->g->dir, (long long)t);
        c->worst = LN_MAX(c->worst, d < 0 ? -d : d);
        c->of_row[LN_MIN(c->next, 63)] += d * d / (double)V;
        c->sum2 += d * d, c->ref_sum += ref, c->ref_sum2 += ref * ref, c->n += 1;
    }
    c->next++;
}

static compare compare_logits(const golden *g, ln_eng *e) {
    compare c = {.g = g, .rows = want(g, "logit_rows"), .logits = want(g, "logits")};
    run_prompt(g, e, compare_row, &c);
    if (c.next != c.rows->dims[0])
        fail_msg("%s: %lld of %lld rows compared", g->dir, (long long)c.next, (long long)c.rows->dims[0]);
    return c;
}

static double worst_key;
static ln_status compare_keys(void *user, int layer, const float *keys, int K, int64_t T, int E,
                              ln_error *err) {
    (void)err;
    const golden *g = user;
    char name[32];
    snprintf(name, sizeof name, "keys.%d", layer);
    const ln_tensor *ref = want(g, name);
    int64_t n = ref->dims[1];
    double max = 0, worst = 0;
    for (int64_t h = 0; h < K; h++)
        for (int64_t t = 0; t < n; t++)
            for (int64_t i = 0; i < E; i++) {
                double r = (double)f32_at(ref, (h * n + t) * E + i),
                       d = (double)keys[(h * T + g->first_key + t) * E + i] - r;
                if (d != d) fail_msg("%s: %s: NaN", g->dir, name);
                max = LN_MAX(max, r < 0 ? -r : r);
                worst = LN_MAX(worst, d < 0 ? -d : d);
            }
    double bound = 1e-4 + (g->is_long ? 6e-5 * max : 0);
    if (worst > bound) fail_msg("%s: %s: off by %g, bound %g", g->dir, name, worst, bound);
    worst_key = LN_MAX(worst_key, worst);
    return LN_OK;
}

static void check_greedy(const golden *g, ln_eng *e) {
    const ln_tensor *greedy = want(g, "greedy"), *margins = want(g, "margins");
    ln_sampling how;
    ln_result out;
    ln_package_sampling(g->m, &how);
    how.temperature = 0, how.repeat_penalty = 1, how.ignore_eos = true, how.n_max = greedy->dims[0];
    ln_prompt p = {.ids = g->ids, .n_ids = (size_t)g->T};
    OK(ln_eng_generate(e, &p, &how, NULL, NULL, &out, err));
    assert_int_equal(out.n_ids, (size_t)greedy->dims[0]);
    for (int64_t i = 0; i < greedy->dims[0]; i++) {
        if (f32_at(margins, i) < 1e-3f) break;
        if (out.ids[i] != i32_at(greedy, i))
            fail_msg("%s: greedy token %lld is %d, the reference has %d", g->dir, (long long)i, out.ids[i],
                     i32_at(greedy, i));
    }
    ln_free(out.ids), ln_free(out.prompt_ids), ln_free(out.text), ln_free(out.reasoning);
}

static void check_exact(const golden *g, ln_device device, const char *where) {
    ln_eng *e = engine(g, device, LN_EXACT, true);
    compare c = compare_logits(g, e);
    worst_key = 0;
    OK(ln_eng_inspect_keys(e, g->ids, (size_t)g->T, compare_keys, (void *)(uintptr_t)g, err));
    ln_eng_close(&e);
    e = engine(g, device, LN_EXACT, false); /* the pages of windowed layers are freed in this engine */
    compare d = compare_logits(g, e);
    if (!g->is_long) check_greedy(g, e);
    ln_eng_close(&e);
    print_message("  %-22s %-7s exact: logits %.2g, keys %.2g\n", g->dir + strlen(folder), where, c.worst,
                  worst_key);
    if (c.worst > 2e-4 || d.worst > 2e-4)
        fail_msg("%s: logits off by %g (%g with dropped pages), bound 2e-4", g->dir, c.worst, d.worst);
}

/* A rounded score near a tie chooses another expert, which is seen in the row of the choice and in rows that
 * attend to it: of models with experts the row that a quarter of the rows are better than is compared. */
static bool has_experts(const ln_spec *s) {
    for (int i = 0; i < s->n_ffn; i++)
        if (s->ffn[i].moe.n_experts) return true;
    return false;
}
static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static double quarter_row(compare *c) {
    qsort(c->of_row, (size_t)c->next, sizeof *c->of_row, by_size);
    return sqrt(c->of_row[c->next / 4]);
}

/* A bound of fast numerics. Of models with recurrent layers, and of those of which transformers itself has a
 * larger error in bf16 than the bound, a multiple of that error (docs/numerics.md): 2 of the rms, 3 of the
 * largest. */
static double bound_of(const golden *g, const json_t *row, const char *recorded, double times, double bound) {
    const json_t *error = json_object_get(row, recorded);
    if (g->m->spec.n_recur == 0 && json_number_value(error) <= bound) return bound;
    if (!error) fail_msg("%s: expected %s in index.json (tools/golden_families.py)", g->dir, recorded);
    return times * json_number_value(error);
}

static void check_fast(const golden *g, const json_t *row, ln_device device, const char *where) {
    if (ln_run_numerics(&g->m->spec, LN_FAST) != LN_FAST) return; /* a dense f32 model always runs in exact */
    bool quantised = g->m->weights.code.bits != 0;
    ln_eng *e = engine(g, device, LN_FAST, false);
    assert_int_equal(e->run->opt.numerics, LN_FAST);
    compare c = compare_logits(g, e);
    ln_eng_close(&e);
    double mean = c.ref_sum / c.n, dev = sqrt(c.ref_sum2 / c.n - mean * mean), rms = sqrt(c.sum2 / c.n) / dev,
           max = c.worst / dev;
    print_message("  %-22s %-7s fast:  rms %.2f %%, max %.2f %%\n", g->dir + strlen(folder), where, 100 * rms,
                  100 * max);
    if (has_experts(&g->m->spec)) rms = quarter_row(&c) / dev, max = 0;
    if (rms > bound_of(g, row, "bf16_rms", 2, quantised ? 0.02 : 0.015) ||
        max > bound_of(g, row, "bf16_max", 3, quantised ? 0.16 : 0.08))
        fail_msg("%s: fast is off by %.2f %% rms, %.2f %% at most", g->dir, 100 * rms, 100 * max);
    if (rms == 0) fail_msg("%s: fast equals exact: it does not round", g->dir);
}

/* Exact numerics with keys and values that are stored in 8 bits. */
static void check_q8(const golden *g, const json_t *row, ln_device device, const char *where) {
    enum { OF_BF16 = 5 };
    kv_type = LN_KV_Q8;
    ln_eng *e = engine(g, device, LN_EXACT, false);
    compare c = compare_logits(g, e);
    ln_eng_close(&e);
    kv_type = LN_KV_AUTO;
    double mean = c.ref_sum / c.n, dev = sqrt(c.ref_sum2 / c.n - mean * mean), rms = sqrt(c.sum2 / c.n) / dev,
           max = c.worst / dev;
    print_message("  %-22s %-7s q8:    rms %.2f %%, max %.2f %%\n", g->dir + strlen(folder), where, 100 * rms,
                  100 * max);
    if (has_experts(&g->m->spec)) rms = quarter_row(&c) / dev, max = 0;
    if (rms > OF_BF16 * bound_of(g, row, "bf16_rms", 2, 0.015) ||
        max > OF_BF16 * bound_of(g, row, "bf16_max", 3, 0.08))
        fail_msg("%s: keys and values of 8 bits: off by %.2f %% rms, %.2f %% at most", g->dir, 100 * rms,
                 100 * max);
    if (rms < 1e-5) fail_msg("%s: keys and values of 8 bits change nothing", g->dir);
}

/* Checks the bit width and the group size of a quantised model, and that Gemma's embedding scale is sqrt(D)
 * rounded to the dtype of the checkpoint, which is that of the scales of a quantised one (docs/numerics.md).
 */
static void check_facts(const golden *g, const json_t *row) {
    assert_int_equal(g->m->weights.code.bits, json_integer_value(json_object_get(row, "bits")));
    assert_int_equal(g->m->weights.code.group, json_integer_value(json_object_get(row, "group")));
    const char *dtype = json_string_value(json_object_get(row, "dtype"));
    float scale = sqrtf((float)g->m->spec.D);
    if (strcmp(dtype, "bf16") == 0) scale = ln_bf16_f32(ln_f32_bf16(scale));
    if (strcmp(dtype, "f16") == 0) scale = ln_f16_f32(ln_f32_f16(scale));
    if (strstr(g->dir, "/gemma3")) assert_true(g->m->spec.embed_scale == scale);
}

/* Of the long runs LN_SAMPLE keeps that of the model with a sliding window. */
static bool skipped_in_a_sample(const golden *g, const char *dir) {
    return g->is_long && getenv("LN_SAMPLE") && strncmp(dir, "gemma3", 6) != 0;
}

/* `make quick` tests only the first model of each family in an index; LN_SAMPLE, on ISA levels that are
 * neither plain nor the best one, every third. */
static bool part_of_models;
static bool skipped_when_quick(const json_t *index, size_t i) {
    if (part_of_models && i % 3 != 0) return true;
    const char *dir = json_string_value(json_object_get(json_array_get(index, i), "dir"));
    const char *before = i ? json_string_value(json_object_get(json_array_get(index, i - 1), "dir")) : "";
    return getenv("LN_QUICK") && strncmp(dir, before, strcspn(dir, "-") + 1) == 0;
}

/* On the best ISA level, and on CUDA. */
static bool with_q8;

/* The models of an index in the folder `in`. */
static void each_of(const char *in, const char *index_name, size_t at_least, ln_device device,
                    const char *where, bool with_long) {
    json_t *index;
    size_t i;
    const json_t *row;
    char index_file[600];
    (void)snprintf(folder, sizeof folder, "%s", in);
    (void)snprintf(index_file, sizeof index_file, "%s%s", in, index_name);
    OK(ln_json_load_file(&index, index_file, 1 << 20, err));
    assert_true(json_array_size(index) >= at_least);
    json_array_foreach(index, i, row) {
        golden g;
        if (skipped_when_quick(index, i)) continue;
        golden_open(&g, json_string_value(json_object_get(row, "dir")), row);
        check_facts(&g, row);
        const bool lacks = device_lacks(device, g.m);
        if (lacks) print_message("SKIP: %s: the device has no kernels for it\n", g.dir);
        if (!lacks && (with_long || !g.is_long) &&
            !skipped_in_a_sample(&g, json_string_value(json_object_get(row, "dir")))) {
            check_exact(&g, device, where);
            check_fast(&g, row, device, where);
            if (with_q8 && !g.is_long) check_q8(&g, row, device, where);
        }
        golden_close(&g);
    }
    json_decref(index);
}
static void each(ln_device device, const char *where, bool with_long) {
    const char *other = getenv("LN_GOLDEN");
    if (other) {
        char in[512];
        (void)snprintf(in, sizeof in, "%s/", other);
        each_of(in, "index.json", 1, device, where, with_long);
        return;
    }
    each_of(DIR_GOLDEN, "official/index.json", 19, device, where, with_long);
    each_of(DIR_GOLDEN, "index.json", 10, device, where, with_long);
    each_of(DIR_GOLDEN, "quantised/index.json", 7, device, where, with_long);
    each_of(DIR_GOLDEN "families/", "index.json", 20, device, where, with_long);
}

static void test_ref(void **s) { (void)s, each(LN_DEVICE_REF, "ref", false); }
static void test_cpu(void **s) {
    (void)s;
    bool slow = getenv("LN_QUICK") || getenv("LN_SANITIZED") ||
                getenv("LN_EMULATED"); /* 30,000 tokens would take a quarter of an hour */
    for (ln_isa isa = LN_ISA_PLAIN; isa < LN_ISA_COUNT; isa++) {
        const char *name = ln_cpu_isa_name(isa);
        if (!ln_cpu_isa_here(isa)) {
            print_message("SKIP: this machine has no %s\n", name);
            continue;
        }
        setenv("LINNET_CPU", name, 1);
        if (slow) print_message("SKIP: the long runs on %s: quick, under sanitizers or emulation\n", name);
        const bool best = isa + 1 == LN_ISA_COUNT || !ln_cpu_isa_here(isa + 1);
        part_of_models = getenv("LN_SAMPLE") && !best && isa > LN_ISA_PLAIN;
        with_q8 = best;
        each(LN_DEVICE_CPU, name, isa > LN_ISA_PLAIN && !slow && (best || !getenv("LN_SAMPLE")));
    }
    part_of_models = with_q8 = false;
    unsetenv("LINNET_CPU");
}

static void test_cuda(void **s) { (void)s, with_q8 = true, each(LN_DEVICE_CUDA, "cuda", true); }
static void test_mlx(void **s) { (void)s, each(LN_DEVICE_MLX, "mlx", false); }

int main(void) {
    const struct CMUnitTest cuda[] = {cmocka_unit_test(test_cuda)};
    const struct CMUnitTest mlx[] = {cmocka_unit_test(test_mlx)};
    if (test_device() == LN_DEVICE_CUDA) return cmocka_run_group_tests(cuda, NULL, NULL);
    if (test_device() == LN_DEVICE_MLX) return cmocka_run_group_tests(mlx, NULL, NULL);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ref), cmocka_unit_test(test_cpu)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
