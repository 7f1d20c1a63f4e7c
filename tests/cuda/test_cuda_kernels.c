/* The kernels of the CUDA device against the reference device: products of every format with every encoding,
 * adapters; odd sizes, bytes behind the blocks, NaN, and a row's bits alone and among others. Skipped if
 * there is no GPU. Attention: test_cuda_attention. */
/* run: quick cuda */
#include "cuda_case.h"

enum { V = 97 };

/* With LN_QUICK (under compute-sanitizer) every third case. */
static size_t stride(void) { return getenv("LN_QUICK") ? 3 : 1; }

/* ---- products ---- */

typedef struct product_case {
    ln_dtype dtype;
    ln_groups enc;
    int D, C;
    bool gated, bias, residual, norm; /* norm: of x, before the product */
    bool large;                       /* scales of 0.5 and more, in bf16 */
    bool tiny;                        /* the biases of the groups are +-2^-30 */
} product_case;

static void build_product(ln_graph *g, const void *user) {
    const product_case *c = user;
    const ln_v table = ln_g_weight(g, "table", LN_F32, 0, V, c->C),
               rows = ln_g_gather_rows(g, "x", ln_g_embed(g, "e", table, 1, 0)),
               norm = c->norm ? ln_g_weight(g, "norm", LN_BF16, 4, c->C, 0) : -1,
               x = c->norm ? ln_g_rmsnorm(g, "n", rows, norm, 1e-6f, 0) : rows;
    ln_v w[2], y[2];
    for (int i = 0; i < 2; i++)
        w[i] = c->enc.bits ? ln_g_encoded(g, i ? "u" : "w", ln_encoding_of(c->dtype, c->enc), 1 + i, 2,
                                          (const int64_t[]){c->D, c->C})
                           : ln_g_weight(g, i ? "u" : "w", c->dtype, 1 + i, c->D, c->C);
    const ln_v bias = c->bias ? ln_g_weight(g, "bias", c->dtype, 3, c->D, 0) : -1;
    for (int i = 0; i < (c->gated ? 2 : 1); i++) y[i] = ln_g_linear(g, i ? "b" : "a", x, w[i], bias);
    ln_g_output(g, c->gated      ? ln_g_mul(g, "y", ln_g_silu(g, "s", y[0]), y[1])
                   : c->residual ? ln_g_add(g, "y", x, y[0])
                                 : y[0]);
}

/* Multiplies every third scale, and the bias of its group, by 8. */
static void make_large(case_weight *w, const product_case *c) {
    uint16_t *scales = w->data[1], *biases = w->data[2];
    for (int64_t i = 0; i < (int64_t)c->D * (c->C / c->enc.group); i += 3)
        for (int k = 0; k < 2; k++) {
            uint16_t *x = k ? &biases[i] : &scales[i];
            ln_num_store(x, LN_BF16, 0, 8 * ln_num_load(x, LN_BF16, 0));
        }
}

/* Scales of 129/256, with which 3 s + 2^-30 rounded to f32 is a tie between two bf16 numbers. */
static void make_ties(case_weight *w, const product_case *c) {
    uint16_t *scales = w->data[1], *biases = w->data[2];
    for (int64_t i = 0; i < (int64_t)c->D * (c->C / c->enc.group); i++) {
        ln_num_store(scales, LN_BF16, i, 129.0f / 256);
        ln_num_store(biases, LN_BF16, i, i % 2 ? 0x1p-30f : -0x1p-30f);
    }
}

/* What an output may differ by. That of a residual is as large as the product, so the product's bound of two
 * such magnitudes holds. */
static double product_tolerance(const side *s, const product_case *p) {
    double most = 0;
    if (!p->residual) return tolerance_of(s, 0);
    for (int i = 0; i < s->p.n_nodes; i++) most = LN_MAX(most, ln_program_node(&s->p, i)->tolerance);
    return 2 * most;
}

/* Compares a step of counts[0] rows with the reference device, and its bits with those of the other counts.
 */
static void check_rows(const product_case *p, ln_policy policy, const int *counts, int n_counts) {
    char what[128];
    uint64_t seed = (uint64_t)(p->D * 1000 + p->C);
    (void)snprintf(what, sizeof what, "dtype %d, %d bits in %ds, [%d, %d], policy %d%s%s%s", p->dtype,
                   p->enc.bits, p->enc.group, p->D, p->C, policy, p->gated ? ", gated" : "",
                   p->bias ? ", bias" : "",
                   p->residual ? ", residual"
                   : p->norm   ? ", norm"
                               : "");
    case_weight w[] = {random_weight("table", LN_F32, (ln_groups){0}, V, p->C, &seed),
                       random_weight("w", p->dtype, p->enc, p->D, p->C, &seed),
                       random_weight("u", p->dtype, p->enc, p->D, p->C, &seed),
                       random_weight("bias", p->dtype, (ln_groups){0}, p->D, 0, &seed),
                       random_weight("norm", LN_BF16, (ln_groups){0}, p->C, 0, &seed)};
    if (p->large) make_large(&w[1], p);
    if (p->tiny) make_ties(&w[1], p);
    const double flip = p->norm ? 0x1p-8 : 0; /* an element of x that is rounded to bf16 the other way */
    ((float *)w[0].data[0])[((2 * 11 + 3) % V) * p->C + p->C / 2] = NAN; /* of row 2 */
    const cuda_case c = {.build = build_product,
                         .user = p,
                         .policy = policy,
                         .bounds = {counts[0], counts[0], 1},
                         .weights = w,
                         .n_weights = LN_COUNT(w),
                         .n_slots = 1,
                         .n_blocks = 1};
    side gpu, ref;
    open_side(&gpu, cuda_ops, NULL, &c);
    open_side(&ref, &ln_device_ref, &gpu, &c);
    float *all = NULL;
    for (int i = 0; i < n_counts; i++) {
        int64_t n;
        set_rows(&gpu, 1, &counts[i], &(int){0}, V);
        float *got = run_side(&gpu, 0, &n);
        if (!all) {
            set_rows(&ref, 1, &counts[i], &(int){0}, V);
            float *want = run_side(&ref, 0, &n);
            compare_outputs(what, want, got, n, product_tolerance(&gpu, p) + flip);
            free(want);
            all = got;
            continue;
        }
        if (memcmp(all, got, (size_t)n * sizeof *got) != 0)
            fail_msg("%s: a step of %d rows has other bits than one of %d", what, counts[i], counts[0]);
        free(got);
    }
    free(all);
    close_side(&gpu);
    close_side(&ref);
    for (size_t i = 0; i < LN_COUNT(w); i++) free_weight(&w[i]);
}

static void check_product(const product_case *p, ln_policy policy) {
    static const int counts[] = {70, 1, 2, 8, 9, 16, 17, 33};
    check_rows(p, policy, counts, LN_COUNT(counts));
}

static void dense_products(void **state) {
    static const int sizes[][2] = {{1, 3}, {7, 32}, {40, 64}, {17, 96}, {130, 257}, {64, 1056}};
    (void)state;
    for (int dtype = LN_F32; dtype <= LN_F16; dtype++)
        for (size_t i = 0; i < LN_COUNT(sizes); i += stride())
            for (int policy = LN_POLICY_EXACT; policy <= LN_POLICY_FAST; policy++)
                check_product(&(product_case){.dtype = (ln_dtype)dtype,
                                              .D = sizes[i][0],
                                              .C = sizes[i][1],
                                              .gated = i % 3 == 2,
                                              .bias = i % 3 == 1},
                              (ln_policy)policy);
}

static void quantised_products(void **state) {
    static const int bits[] = {2, 3, 4, 5, 6, 8}, groups[] = {32, 64, 128};
    (void)state;
    for (size_t b = 0; b < LN_COUNT(bits); b++)
        for (size_t g = b % stride(); g < LN_COUNT(groups); g += stride())
            for (int policy = LN_POLICY_EXACT; policy <= LN_POLICY_FAST; policy++)
                check_product(&(product_case){.dtype = (ln_dtype)((b + g) % 3),
                                              .enc = {bits[b], groups[g]},
                                              .D = 23 + (int)b,
                                              .C = groups[g] * (b % 2 ? 9 : 3),
                                              .gated = b % 2 == 0},
                              (ln_policy)policy);
}

/* Codes of 4 bits whose scales are large (gpu_weight.large_scales) are converted to bf16 in another way. An
 * element is rounded once: two roundings, to f32 and to bf16, give another number if the bias is tiny. */
static void large_scales(void **state) {
    (void)state;
    for (int k = 0; k < 3; k++)
        for (int tiny = 0; tiny < 2; tiny++)
            check_product(&(product_case){.dtype = LN_BF16,
                                          .enc = {4, 32 << k},
                                          .D = 40,
                                          .C = 384,
                                          .gated = k == 1,
                                          .large = true,
                                          .tiny = tiny == 1},
                          LN_POLICY_FAST);
}

/* GPUs that are smaller than this one: LN_TEST_GPU names limits (cuda_device.c). */
#define SMALL_GPU "capability=86,shared=101376,multiprocessors=28"

/* Columns with which more shared memory would be taken than such a GPU has. */
static void products_of_small_gpus(void **state) {
    static const ln_groups encodings[] = {{0, 0}, {4, 64}, {4, 32}, {8, 64}, {3, 64}};
    static const int columns[] = {1024, 4096, 12288};
    static const int counts[] = {70, 1, 2, 4, 8, 9, 16, 17, 32, 33, 64};
    (void)state;
    setenv("LN_TEST_GPU", SMALL_GPU, 1);
    for (size_t e = 0; e < LN_COUNT(encodings); e++)
        for (size_t c = e % stride(); c < LN_COUNT(columns); c += stride())
            for (int gated = 0; gated < 2; gated++)
                check_rows(&(product_case){.dtype = LN_BF16,
                                           .enc = encodings[e],
                                           .D = 40,
                                           .C = columns[c],
                                           .gated = gated == 1,
                                           .norm = c == 1},
                           LN_POLICY_FAST, counts, LN_COUNT(counts));
    unsetenv("LN_TEST_GPU");
}

/* Weights in groups that become bf16 for many rows, in pieces of 128 outputs. */
static void unpacked_products(void **state) {
    static const int counts[] = {200, 1, 32, 33, 64, 65};
    static const product_case cases[] = {
        {.dtype = LN_BF16, .enc = {4, 64}, .D = 300, .C = 512, .bias = true},
        {.dtype = LN_F16, .enc = {8, 32}, .D = 130, .C = 320, .gated = true},
        {.dtype = LN_F32, .enc = {3, 64}, .D = 640, .C = 640, .residual = true},
        {.dtype = LN_BF16, .enc = {6, 128}, .D = 257, .C = 384, .norm = true}};
    (void)state;
    for (int old = 0; old < 2; old++) {
        setenv("LN_TEST_GPU", old ? "unpacked=1,capability=80" : "unpacked=1", 1);
        for (size_t i = 0; i < LN_COUNT(cases); i++)
            check_rows(&cases[i], LN_POLICY_FAST, counts, LN_COUNT(counts));
    }
    unsetenv("LN_TEST_GPU");
}

/* If clusters of blocks cannot be launched, as on a part of a GPU, other kernels compute the product. */
static void failed_clusters(void **state) {
    static const int counts[] = {70, 9, 64};
    (void)state;
    setenv("LN_TEST_GPU", "clusters=0", 1);
    check_rows(&(product_case){.dtype = LN_BF16, .D = 200, .C = 1536}, LN_POLICY_FAST, counts, 3);
    check_rows(&(product_case){.dtype = LN_BF16, .enc = {4, 64}, .D = 97, .C = 1536, .gated = true},
               LN_POLICY_FAST, counts, 3);
    unsetenv("LN_TEST_GPU");
}

/* Products of so many rows that tiles of x and of packed weights are shared in a block, and of few. */
static void tiled_products(void **state) {
    static const int counts[] = {300, 1, 33, 64, 65, 127, 128, 129, 193};
    static const product_case cases[] = {
        {.dtype = LN_BF16, .D = 130, .C = 1024},
        {.dtype = LN_BF16, .D = 97, .C = 192, .gated = true},
        {.dtype = LN_BF16, .D = 300, .C = 640, .bias = true},
        {.dtype = LN_BF16, .D = 576, .C = 576, .residual = true},
        {.dtype = LN_BF16, .D = 33, .C = 96},
        {.dtype = LN_F16, .D = 130, .C = 1024, .bias = true},
        {.dtype = LN_F16, .D = 97, .C = 192, .gated = true},
        {.dtype = LN_F16, .D = 352, .C = 352, .residual = true},
        {.dtype = LN_BF16, .enc = {4, 64}, .D = 257, .C = 1024, .bias = true},
        {.dtype = LN_BF16, .enc = {4, 32}, .D = 100, .C = 320, .gated = true},
        {.dtype = LN_F16, .enc = {4, 128}, .D = 384, .C = 384, .residual = true},
        {.dtype = LN_F16, .enc = {4, 32}, .D = 65, .C = 576, .gated = true},
        {.dtype = LN_F32, .enc = {4, 64}, .D = 70, .C = 128},
        {.dtype = LN_BF16, .enc = {8, 64}, .D = 257, .C = 1024, .bias = true},
        {.dtype = LN_BF16, .enc = {8, 32}, .D = 100, .C = 320, .gated = true},
        {.dtype = LN_BF16, .enc = {8, 128}, .D = 384, .C = 384, .residual = true},
        {.dtype = LN_F16, .enc = {8, 64}, .D = 70, .C = 128},
    };
    /* on 132 multiprocessors these take tiles of 192, 176 and 128 rows */
    static const int large[] = {370, 300, 193, 1};
    static const product_case wide[] = {
        {.dtype = LN_BF16, .D = 8400, .C = 128},
        {.dtype = LN_BF16, .D = 4200, .C = 64, .gated = true},
        {.dtype = LN_BF16, .enc = {4, 64}, .D = 8400, .C = 64, .bias = true},
        {.dtype = LN_F16, .enc = {4, 32}, .D = 4200, .C = 64, .gated = true},
        {.dtype = LN_BF16, .enc = {8, 64}, .D = 8400, .C = 64},
        {.dtype = LN_BF16, .enc = {8, 32}, .D = 4200, .C = 64, .gated = true},
    };
    /* on 132 multiprocessors the first two take tiles of all columns, the next three 2 parts of the columns,
     * the others 8 parts (products_split.cuh) */
    static const int few[] = {64, 1, 17, 33};
    static const product_case split[] = {
        {.dtype = LN_BF16, .D = 17000, .C = 448, .bias = true},
        {.dtype = LN_F16, .enc = {4, 32}, .D = 8500, .C = 320, .gated = true},
        {.dtype = LN_BF16, .D = 4400, .C = 1152},
        {.dtype = LN_F16, .enc = {4, 32}, .D = 2200, .C = 1152, .gated = true},
        {.dtype = LN_BF16, .enc = {8, 64}, .D = 4400, .C = 1152, .bias = true},
        {.dtype = LN_BF16, .enc = {8, 32}, .D = 200, .C = 1536, .gated = true},
        {.dtype = LN_BF16, .D = 200, .C = 1536, .gated = true},
        {.dtype = LN_BF16, .enc = {4, 128}, .D = 1280, .C = 1280, .residual = true},
    };
    (void)state;
    for (size_t i = 0; i < LN_COUNT(cases); i += stride())
        check_rows(&cases[i], LN_POLICY_FAST, counts, LN_COUNT(counts));
    for (size_t i = 0; i < LN_COUNT(split); i += stride())
        check_rows(&split[i], LN_POLICY_FAST, few, LN_COUNT(few));
    for (size_t i = 0; i < LN_COUNT(wide); i += stride())
        check_rows(&wide[i], LN_POLICY_FAST, large, LN_COUNT(large));
}

/* Steps of one and two rows normalise x in the product, larger ones apart: the bits are the same. */
static void normalised_products(void **state) {
    static const int columns[] = {256, 288, 1088, 8256};
    (void)state;
    for (size_t i = 0; i < LN_COUNT(columns); i += stride())
        for (int k = 0; k < 4; k++)
            check_product(&(product_case){.dtype = k == 3 ? LN_F16 : LN_BF16,
                                          .enc = {k ? 4 : 0, k ? 32 : 0},
                                          .D = 35,
                                          .C = columns[i],
                                          .gated = (i + (size_t)k) % 2 == 0,
                                          .norm = true},
                          LN_POLICY_FAST);
}

/* ---- adapters ---- */

typedef struct lora_case {
    ln_p_lora p;
    int ranks[3]; /* of the adapters in the slots */
    bool bias;    /* of the last adapter */
} lora_case;

static void build_lora(ln_graph *g, const void *user) {
    const lora_case *c = user;
    const ln_v pool = ln_g_state(g, "adapters", 1, LN_F32, 0, 1, (const int64_t[]){1});
    ln_v x = ln_g_embed(g, "x", ln_g_weight(g, "table", LN_F32, 0, V, (int)c->p.n_in), 1, 0);
    if (c->p.of_outputs) x = ln_g_gather_rows(g, "g", x);
    const ln_v w = ln_g_weight(g, "w", LN_F32, 1, (int)c->p.n_out, (int)c->p.n_in),
               y = ln_g_linear(g, "y", x, w, -1), t = ln_g_lora_down(g, "t", x, pool, -1, &c->p);
    ln_g_output(g, t);
    ln_g_output(g, ln_g_lora_up(g, "z", y, t, pool, -1, &c->p));
}

/* A pool of random adapters; the caller frees it. */
static char *random_adapters(const lora_case *c, size_t *bytes, uint64_t *seed) {
    const ln_lora_part o = ln_lora_part_of(&c->p);
    *bytes = (size_t)(c->p.slot_bytes * c->p.n_slots);
    char *pool = malloc(*bytes);
    memset(pool, 0xff, *bytes); /* NaN behind the ranks */
    for (int s = 0; s < c->p.n_slots; s++) {
        char *part = pool + s * c->p.slot_bytes + c->p.at;
        const int32_t head[2] = {c->ranks[s], c->bias && s == c->p.n_slots - 1};
        memcpy(part, head, sizeof head);
        for (int j = 0; j < c->ranks[s]; j++) ln_num_store(part + o.scale, LN_F32, j, test_normal(seed));
        for (int64_t d = 0; head[1] && d < c->p.n_out; d++)
            ln_num_store(part + o.bias, LN_F32, d, test_normal(seed));
        for (int64_t i = 0; i < c->ranks[s] * c->p.n_in; i++)
            ln_num_store(part + o.a, c->p.dtype, i, test_normal(seed));
        for (int64_t i = 0; i < c->ranks[s] * c->p.n_out; i++)
            ln_num_store(part + o.b, c->p.dtype, i, test_normal(seed));
    }
    return pool;
}

/* Sets `n` rows with adapters in turn (turn: how many rows have the same); slots -1, 0, 1, 2. */
static void set_lora_rows(side *s, int n, int turn) {
    set_rows(s, 1, &n, &(int){0}, V);
    for (int r = 0; r < n; r++) {
        ln_step_adapter(s->step)[r] = r / turn % 4 - 1;
        ln_step_out_rows(s->step)[r] = n - 1 - r;
    }
}

static void check_lora(const lora_case *l) {
    enum { ROWS = 41 };
    char what[128];
    uint64_t seed = (uint64_t)(l->p.n_in * 1000 + l->p.n_out);
    size_t bytes;
    (void)snprintf(what, sizeof what, "lora [%d, %d], dtype %d", (int)l->p.n_out, (int)l->p.n_in, l->p.dtype);
    char *pool = random_adapters(l, &bytes, &seed);
    case_weight w[] = {random_weight("table", LN_F32, (ln_groups){0}, V, l->p.n_in, &seed),
                       random_weight("w", LN_F32, (ln_groups){0}, l->p.n_out, l->p.n_in, &seed)};
    const cuda_case c = {.build = build_lora,
                         .user = l,
                         .policy = l->p.rounds ? LN_POLICY_FAST : LN_POLICY_EXACT,
                         .bounds = {ROWS, ROWS, 1},
                         .weights = w,
                         .n_weights = 2,
                         .n_slots = 1,
                         .n_blocks = 1,
                         .state = pool,
                         .state_bytes = bytes};
    side gpu, ref;
    open_side(&gpu, cuda_ops, NULL, &c);
    open_side(&ref, &ln_device_ref, &gpu, &c);
    float *by_turns[3] = {0};
    const int turns[3] = {1, 4, 7};
    for (int k = 0; k < 3; k++) {
        int64_t n;
        for (int i = 0; i < 2; i++) {
            set_lora_rows(&ref, ROWS, turns[k]);
            set_lora_rows(&gpu, ROWS, turns[k]);
            float *want = run_side(&ref, i, &n), *got = run_side(&gpu, i, &n);
            /* the output has the differences of the product, of lora_down and of its own sum */
            compare_outputs(what, want, got, n, tolerance_of(&gpu, 0) * (i ? 3 : 1));
            free(want);
            if (i) by_turns[k] = got;
            else free(got);
        }
        for (int r = 0; r < ROWS; r++) { /* rows that have their adapter in both runs */
            const int at = l->p.of_outputs ? ROWS - 1 - r : r;
            if (at / turns[k] % 4 == at % 4 &&
                memcmp(by_turns[0] + r * l->p.n_out, by_turns[k] + r * l->p.n_out, (size_t)l->p.n_out * 4) !=
                    0)
                fail_msg("%s: row %d has other bits beside rows of one adapter", what, r);
        }
    }
    for (int k = 0; k < 3; k++) free(by_turns[k]);
    close_side(&gpu);
    close_side(&ref);
    for (size_t i = 0; i < LN_COUNT(w); i++) free_weight(&w[i]);
    free(pool);
}

static void adapters(void **state) {
    static const int sizes[][2] = {{40, 64}, {17, 97}, {130, 516}, {300, 30}};
    (void)state;
    for (size_t i = 0; i < LN_COUNT(sizes); i++)
        for (int dtype = LN_F32; dtype <= LN_BF16; dtype++) {
            lora_case c = {.p = {.at = 128,
                                 .n_slots = 3,
                                 .max_rank = 11,
                                 .n_out = sizes[i][0],
                                 .n_in = sizes[i][1],
                                 .dtype = (ln_dtype)dtype,
                                 .rounds = dtype == LN_BF16,
                                 .of_outputs = i % 2 == 1},
                           .ranks = {11, 0, 1 + 3 * (int)i},
                           .bias = i % 2 == 0};
            c.p.slot_bytes = (c.p.at + ln_lora_part_of(&c.p).bytes + 127) / 64 * 64;
            check_lora(&c);
        }
}

int main(void) {
    if (!cuda_here()) return 0;
    const struct CMUnitTest tests[] = {cmocka_unit_test(dense_products),
                                       cmocka_unit_test(quantised_products),
                                       cmocka_unit_test(large_scales),
                                       cmocka_unit_test(tiled_products),
                                       cmocka_unit_test(products_of_small_gpus),
                                       cmocka_unit_test(failed_clusters),
                                       cmocka_unit_test(unpacked_products),
                                       cmocka_unit_test(normalised_products),
                                       cmocka_unit_test(adapters)};
    return cmocka_run_group_tests_name("cuda_kernels", tests, NULL, NULL);
}
