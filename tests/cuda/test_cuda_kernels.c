/* The kernels of the CUDA device against the reference device: products of every format with every stored
 * form, attention over pages of both types, adapters; odd sizes, bytes behind the blocks, NaN, and a row's
 * bits alone and among others. Skipped where there is no GPU. */
/* run: quick cuda */
#include "cuda_case.h"

enum { V = 97 };

/* With LN_QUICK (under compute-sanitizer) every third case, and of attention fewer rows. */
static bool is_quick(void) { return getenv("LN_QUICK") != NULL; }
static size_t stride(void) { return is_quick() ? 3 : 1; }

/* ---- products ---- */

typedef struct product_case {
    ln_dtype dtype;
    ln_groups enc;
    int D, C;
    bool gated, bias, residual, norm; /* norm: of x, before the product */
    bool large;                       /* scales of 0.5 and more, in bf16 */
} product_case;

static void build_product(ln_graph *g, const void *user) {
    const product_case *c = user;
    const ln_v table = ln_g_weight(g, "table", LN_F32, 0, V, c->C),
               rows = ln_g_gather_rows(g, "x", ln_g_embed(g, "e", table, 1)),
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

/* Codes of 4 bits whose scales are large (gpu_weight.large_scales) are converted to bf16 in another way. */
static void large_scales(void **state) {
    (void)state;
    for (int k = 0; k < 3; k++)
        check_product(&(product_case){.dtype = LN_BF16,
                                      .enc = {4, 32 << k},
                                      .D = 40,
                                      .C = 384,
                                      .gated = k == 1,
                                      .large = true},
                      LN_POLICY_FAST);
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

/* ---- attention ---- */

typedef struct attention_case {
    int H, K, E, page_len, window;
    ln_dtype dtype;
    ln_state_pool kv;
    int32_t zero;
} attention_case;

static void build_attention(ln_graph *g, const void *user) {
    const attention_case *c = user;
    const ln_p_kv kv = {.pages_per_block = 1,
                        .n_kv_heads = c->K,
                        .head_dim = c->E,
                        .page_len = c->page_len,
                        .dtype = c->dtype,
                        .page_bytes = c->kv.page_bytes,
                        .layer_bytes = c->kv.groups[0].layer_bytes};
    const ln_p_attn p = {.kv = kv, .n_heads = c->H, .scale = 0.7f, .window = c->window};
    const ln_v q = ln_g_embed(g, "q", ln_g_weight(g, "tq", LN_F32, 0, V, c->H * c->E), 1),
               k = ln_g_embed(g, "k", ln_g_weight(g, "tk", LN_F32, 1, V, c->K * c->E), 1),
               v = ln_g_embed(g, "v", ln_g_weight(g, "tv", LN_F32, 2, V, c->K * c->E), 1);
    const ln_v before = ln_g_state(g, "kv", 0, c->dtype, LN_STATE_DISJOINT, 1, (const int64_t[]){1}),
               after = ln_g_kv_write(g, "kv'", before, k, v, &p.kv);
    ln_g_output(g, ln_g_attn_paged(g, "y", q, after, &p));
}

/* Gives sequences their pages: block b of slot s is page s * n_blocks + b, of which the order is reversed. */
static void set_pages(side *s, int n_slots, int n_blocks) {
    ln_page_change *c = ln_step_changes(s->step);
    for (int at = 0; at < n_slots * n_blocks; at++)
        c[at] = (ln_page_change){.page = n_slots * n_blocks - 1 - at, .at = at};
    s->step->n_changes = n_slots * n_blocks;
}

enum { SEQS = 3, CTX = 1100 };
/* Two sequences read a prompt, the third begins in the second step, then all decode. */
static const int rows_of[][SEQS] = {{40, 29, 0}, {0, 0, 50},  {1, 1, 1}, {0, 430, 300},
                                    {1, 1, 1},   {0, 620, 0}, {0, 1, 0}};

enum { MOST = 730, QUICK_STEPS = 5 };
/* The weights of a case, and its program on one device. as: the device that chose the formats; NULL: this
 * one. */
typedef struct attention_side {
    attention_case c;
    side side;
} attention_side;
static void random_tables(case_weight w[3], const attention_case *c) {
    uint64_t seed = (uint64_t)(c->H * 1000 + c->E);
    w[0] = random_weight("tq", LN_F32, (ln_groups){0}, V, c->H * c->E, &seed);
    w[1] = random_weight("tk", LN_F32, (ln_groups){0}, V, c->K * c->E, &seed);
    w[2] = random_weight("tv", LN_F32, (ln_groups){0}, V, c->K * c->E, &seed);
}
static void open_attention(attention_side *s, const ln_device_ops *ops, const side *as,
                           const attention_case *c, case_weight w[3]) {
    const int n_blocks = (CTX + c->page_len - 1) / c->page_len;
    const ln_page_job job = {.size = sizeof job,
                             .op = LN_PAGE_UNPACK,
                             .n_layers = 1,
                             .n_kv_heads = c->K,
                             .head_dim = c->E,
                             .page_len = c->page_len,
                             .dtype = c->dtype};
    const ln_dev_options o = {.size = sizeof o, .n_threads = 1};
    ln_dev *dev;
    OK(ops->open(&dev, &o, err));
    const int64_t bytes = (ops->kv_bytes(dev, &job) + 63) / 64 * 64;
    ops->close(&dev);
    s->c = *c;
    const ln_state_group group = {.n_layers = 1,
                                  .layers_per_page = 1,
                                  .pages_per_block = 1,
                                  .n_kv_heads = c->K,
                                  .head_dim = c->E,
                                  .dtype = c->dtype,
                                  .layer_bytes = bytes};
    s->c.kv = (ln_state_pool){.size = sizeof s->c.kv,
                              .page_len = c->page_len,
                              .n_groups = 1,
                              .page_bytes = bytes,
                              .groups = {group},
                              .group = &s->c.zero,
                              .page_in_block = &s->c.zero,
                              .layer_in_page = &s->c.zero};
    const cuda_case k = {.build = build_attention,
                         .user = &s->c,
                         .policy = c->dtype == LN_BF16 ? LN_POLICY_FAST : LN_POLICY_EXACT,
                         .bounds = {MOST, MOST, SEQS},
                         .weights = w,
                         .n_weights = 3,
                         .kv = &s->c.kv,
                         .n_pages = SEQS * n_blocks,
                         .n_slots = SEQS,
                         .n_blocks = n_blocks};
    open_side(&s->side, ops, as, &k);
    if (c->E % 8 == 0)
        poison(&s->side, s->side.pool, s->side.pool_bytes); /* else pages are padded with zeros */
    set_pages(&s->side, SEQS, n_blocks);
}

static void check_attention(const attention_case *c) {
    char what[128];
    (void)snprintf(what, sizeof what, "%d heads of %d, %d of keys, pages of %d, window %d, dtype %d", c->H,
                   c->E, c->K, c->page_len, c->window, c->dtype);
    case_weight w[3];
    attention_side s[2];
    random_tables(w, c);
    open_attention(&s[0], cuda_ops, NULL, c, w);
    open_attention(&s[1], &ln_device_ref, &s[0].side, c, w);
    int from[SEQS] = {0};
    const size_t n_steps = is_quick() ? QUICK_STEPS : LN_COUNT(rows_of);
    for (size_t step = 0; step < n_steps; step++) {
        float *out[2];
        int64_t n = 0;
        for (int i = 0; i < 2; i++) {
            set_rows(&s[i].side, SEQS, rows_of[step], from, V);
            out[i] = run_side(&s[i].side, 0, &n);
        }
        compare_outputs(what, out[1], out[0], n, tolerance_of(&s[0].side, 0));
        for (int q = 0; q < SEQS; q++) from[q] += rows_of[step][q];
        free(out[0]);
        free(out[1]);
    }
    for (int i = 0; i < 2; i++) close_side(&s[i].side);
    for (size_t i = 0; i < LN_COUNT(w); i++) free_weight(&w[i]);
}

static void attention(void **state) {
    static const attention_case cases[] = {{.H = 4, .K = 1, .E = 64, .page_len = 64},
                                           {.H = 6, .K = 2, .E = 24, .page_len = 32},
                                           {.H = 1, .K = 1, .E = 2, .page_len = 32},
                                           {.H = 5, .K = 1, .E = 10, .page_len = 128},
                                           {.H = 8, .K = 8, .E = 128, .page_len = 64},
                                           {.H = 4, .K = 1, .E = 256, .page_len = 256, .window = 70},
                                           {.H = 2, .K = 1, .E = 72, .page_len = 64, .window = 300},
                                           {.H = 6, .K = 2, .E = 80, .page_len = 32},
                                           {.H = 7, .K = 1, .E = 96, .page_len = 64, .window = 129},
                                           {.H = 20, .K = 1, .E = 16, .page_len = 128},
                                           {.H = 4, .K = 2, .E = 256, .page_len = 64},
                                           {.H = 5, .K = 1, .E = 128, .page_len = 256, .window = 1},
                                           {.H = 8, .K = 1, .E = 48, .page_len = 32, .window = 600}};
    (void)state;
    for (size_t i = 0; i < LN_COUNT(cases); i += stride())
        for (int dtype = LN_F32; dtype <= LN_BF16; dtype++) {
            attention_case c = cases[i];
            c.dtype = (ln_dtype)dtype;
            check_attention(&c);
        }
}

/* A sequence of 430 rows (with LN_QUICK 64) in one step, then in steps of several sizes among rows of other
 * sequences, then its last rows each alone: every row has the same bits. */
static void check_attention_bits(const attention_case *c) {
    enum { LAST = 12 };
    static const int all_parts[][SEQS] = {{1, 300, 0}, {3, 1, 400}, {60, 0, 4}, {64, 1, 5},
                                          {65, 90, 1}, {100, 4, 0}, {137, 2, 3}};
    static const int quick_parts[][SEQS] = {{1, 30, 0}, {3, 1, 40}, {60, 0, 4}};
    const int(*parts)[SEQS] = is_quick() ? quick_parts : all_parts;
    const int n_steps = is_quick() ? (int)LN_COUNT(quick_parts) : (int)LN_COUNT(all_parts),
              n_rows = is_quick() ? 64 : 430;
    case_weight w[3];
    attention_side s;
    int from[SEQS] = {0}, n_parts = 0;
    int64_t n, cols = (int64_t)c->H * c->E;
    random_tables(w, c);
    open_attention(&s, cuda_ops, NULL, c, w);
    set_rows(&s.side, SEQS, (int[SEQS]){n_rows}, from, V);
    float *all = run_side(&s.side, 0, &n);
    for (int i = 0; i < n_steps + LAST; i++) {
        const int alone[SEQS] = {1}, *rows = i < n_steps ? parts[i] : alone;
        if (i >= n_steps) from[0] = n_rows - LAST + (i - n_steps);
        set_rows(&s.side, SEQS, rows, from, V);
        float *got = run_side(&s.side, 0, &n);
        if (memcmp(got, all + from[0] * cols, (size_t)(rows[0] * cols) * sizeof *got) != 0)
            fail_msg("%d heads of %d, %d of keys, window %d: rows %d .. %d have other bits in a step of %d "
                     "rows",
                     c->H, c->E, c->K, c->window, from[0], from[0] + rows[0] - 1, s.side.step->n_rows);
        for (int q = 0; q < SEQS; q++) from[q] += rows[q];
        n_parts += rows[0];
        free(got);
    }
    assert_int_equal(n_parts, n_rows + LAST);
    free(all);
    close_side(&s.side);
    for (size_t i = 0; i < LN_COUNT(w); i++) free_weight(&w[i]);
}

static void bits_of_attention(void **state) {
    static const attention_case cases[] = {{.H = 4, .K = 1, .E = 64, .page_len = 64},
                                           {.H = 4, .K = 2, .E = 128, .page_len = 32, .window = 100},
                                           {.H = 3, .K = 1, .E = 80, .page_len = 256},
                                           {.H = 8, .K = 1, .E = 256, .page_len = 64, .window = 200},
                                           {.H = 6, .K = 2, .E = 24, .page_len = 32}};
    (void)state;
    for (size_t i = 0; i < LN_COUNT(cases); i += stride())
        for (int dtype = LN_F32; dtype <= LN_BF16; dtype++) {
            attention_case c = cases[i];
            c.dtype = (ln_dtype)dtype;
            check_attention_bits(&c);
        }
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
    ln_v x = ln_g_embed(g, "x", ln_g_weight(g, "table", LN_F32, 0, V, (int)c->p.n_in), 1);
    if (c->p.of_outputs) x = ln_g_gather_rows(g, "g", x);
    const ln_v w = ln_g_weight(g, "w", LN_F32, 1, (int)c->p.n_out, (int)c->p.n_in),
               y = ln_g_linear(g, "y", x, w, -1), t = ln_g_lora_down(g, "t", x, pool, &c->p);
    ln_g_output(g, t);
    ln_g_output(g, ln_g_lora_up(g, "z", y, t, pool, &c->p));
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dense_products),      cmocka_unit_test(quantised_products),
        cmocka_unit_test(large_scales),        cmocka_unit_test(tiled_products),
        cmocka_unit_test(normalised_products), cmocka_unit_test(attention),
        cmocka_unit_test(bits_of_attention),   cmocka_unit_test(adapters)};
    return cmocka_run_group_tests_name("cuda_kernels", tests, NULL, NULL);
}
