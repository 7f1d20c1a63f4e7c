/* Attention over pages of both types, and of 8 bits, on the CUDA device against the reference device, and a
 * row's bits alone and among others: in chunks of a prompt, among rows of other sequences, and one long row
 * among short ones. Skipped if there is no GPU. */
/* run: quick cuda */
#include "cuda_case.h"

enum { V = 97, KINDS = 4 /* of pages: both types, as they are and of 8 bits */ };

/* With LN_QUICK (under compute-sanitizer) every third case, with fewer rows. */
static bool is_quick(void) { return getenv("LN_QUICK") != NULL; }
static size_t stride(void) { return is_quick() ? 3 : 1; }

typedef struct attention_case {
    int H, K, E, page_len, window, Ev; /* Ev 0: E */
    float softcap;
    bool sinks;
    ln_dtype dtype;
    bool q8;       /* pages of 8 bits, read as dtype */
    int seqs, ctx; /* sequences and positions; 0: SEQS, CTX */
    ln_state_pool kv;
    int32_t zero;
} attention_case;

static int values_of(const attention_case *c) { return c->Ev ? c->Ev : c->E; }
static void build_attention(ln_graph *g, const void *user) {
    const attention_case *c = user;
    const ln_p_kv kv = {.pages_per_block = 1,
                        .n_kv_heads = c->K,
                        .head_dim = c->E,
                        .v_dim = values_of(c),
                        .page_len = c->page_len,
                        .dtype = c->dtype,
                        .q8 = c->q8,
                        .page_bytes = c->kv.page_bytes,
                        .layer_bytes = c->kv.groups[0].layer_bytes};
    const ln_p_attn p = {
        .kv = kv, .n_heads = c->H, .scale = 0.7f, .window = c->window, .softcap = c->softcap};
    const ln_v q = ln_g_embed(g, "q", ln_g_weight(g, "tq", LN_F32, 0, V, c->H * c->E), 1, 0),
               k = ln_g_embed(g, "k", ln_g_weight(g, "tk", LN_F32, 1, V, c->K * c->E), 1, 0),
               v = ln_g_embed(g, "v", ln_g_weight(g, "tv", LN_F32, 2, V, c->K * values_of(c)), 1, 0),
               sinks = c->sinks ? ln_g_weight(g, "sinks", LN_BF16, 3, c->H, 0) : -1;
    const ln_v before = ln_g_state(g, "kv", 0, c->dtype, LN_STATE_DISJOINT, 1, (const int64_t[]){1}),
               after = ln_g_kv_write(g, "kv'", before, k, v, &p.kv);
    ln_g_output(g, ln_g_attn_paged(g, "y", q, after, sinks, &p));
}

/* Assigns pages to sequences: block b of slot s is page s * n_blocks + b, of which the order is reversed. */
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
enum { TABLES = 4 };
static void random_tables(case_weight w[TABLES], const attention_case *c) {
    uint64_t seed = (uint64_t)(c->H * 1000 + c->E);
    w[0] = random_weight("tq", LN_F32, (ln_groups){0}, V, c->H * c->E, &seed);
    w[1] = random_weight("tk", LN_F32, (ln_groups){0}, V, c->K * c->E, &seed);
    w[2] = random_weight("tv", LN_F32, (ln_groups){0}, V, c->K * values_of(c), &seed);
    w[3] = random_weight("sinks", LN_BF16, (ln_groups){0}, c->H, 0, &seed);
    for (int h = 0; h < c->H; h++) /* as large as scores, so that sinks change what is seen */
        ln_num_store(w[3].data[0], LN_BF16, h, 8 * ln_num_load(w[3].data[0], LN_BF16, h));
}
static void open_attention(attention_side *s, const ln_device_ops *ops, const side *as,
                           const attention_case *c, case_weight w[TABLES]) {
    const int seqs = c->seqs ? c->seqs : SEQS, ctx = c->ctx ? c->ctx : CTX,
              n_blocks = (ctx + c->page_len - 1) / c->page_len;
    const ln_page_job job = {.size = sizeof job,
                             .op = LN_PAGE_UNPACK,
                             .n_layers = 1,
                             .n_kv_heads = c->K,
                             .head_dim = c->E,
                             .v_dim = values_of(c),
                             .page_len = c->page_len,
                             .dtype = c->dtype,
                             .q8 = c->q8};
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
                                  .v_dim = values_of(c),
                                  .dtype = c->dtype,
                                  .q8 = c->q8,
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
                         .bounds = {MOST, MOST, seqs},
                         .weights = w,
                         .n_weights = TABLES,
                         .kv = &s->c.kv,
                         .n_pages = seqs * n_blocks,
                         .n_slots = seqs,
                         .n_blocks = n_blocks};
    open_side(&s->side, ops, as, &k);
    if (c->E % 8 == 0 && values_of(c) % 8 == 0)
        poison(&s->side, s->side.pool, s->side.pool_bytes); /* else pages are padded with zeros */
    set_pages(&s->side, seqs, n_blocks);
}

static void check_attention(const attention_case *c) {
    char what[128];
    (void)snprintf(what, sizeof what,
                   "%d heads of %d (values %d), %d of keys, pages of %d, window %d, dtype %d, q8 %d, softcap "
                   "%g, %s",
                   c->H, c->E, values_of(c), c->K, c->page_len, c->window, c->dtype, c->q8,
                   (double)c->softcap, c->sinks ? "sinks" : "no sinks");
    case_weight w[TABLES];
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
    static const attention_case cases[] = {
        {.H = 4, .K = 1, .E = 64, .page_len = 64},
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
        {.H = 8, .K = 1, .E = 48, .page_len = 32, .window = 600},
        {.H = 4, .K = 2, .E = 64, .page_len = 64, .softcap = 3},
        {.H = 8, .K = 2, .E = 64, .page_len = 64, .sinks = true},
        {.H = 4, .K = 1, .E = 192, .Ev = 128, .page_len = 32},
        {.H = 6, .K = 2, .E = 24, .Ev = 40, .page_len = 32, .sinks = true},
        {.H = 5, .K = 1, .E = 64, .Ev = 96, .page_len = 128, .window = 200, .softcap = 5, .sinks = true},
        {.H = 3, .K = 3, .E = 256, .page_len = 64, .softcap = 4},
        {.H = 4, .K = 1, .E = 512, .page_len = 64}};
    (void)state;
    for (size_t i = 0; i < LN_COUNT(cases); i += stride())
        for (int kind = 0; kind < KINDS; kind++) {
            attention_case c = cases[i];
            c.dtype = kind % 2 ? LN_BF16 : LN_F32, c.q8 = kind / 2;
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
    case_weight w[TABLES];
    attention_side s;
    int from[SEQS] = {0}, n_parts = 0;
    int64_t n, cols = (int64_t)c->H * values_of(c);
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
                                           {.H = 6, .K = 2, .E = 24, .page_len = 32},
                                           {.H = 4, .K = 2, .E = 64, .page_len = 64, .sinks = true},
                                           {.H = 4, .K = 1, .E = 96, .Ev = 64, .page_len = 64, .softcap = 3}};
    (void)state;
    for (size_t i = 0; i < LN_COUNT(cases); i += stride())
        for (int kind = 0; kind < KINDS; kind++) {
            attention_case c = cases[i];
            c.dtype = kind % 2 ? LN_BF16 : LN_F32, c.q8 = kind / 2;
            check_attention_bits(&c);
        }
}

/* One row of a long sequence among `more` rows of short ones, and with them rows of a prompt: the bits of the
 * long row alone. */
static void check_long_row(const attention_case *c, int more, int length) {
    enum { PROMPT = 100 };
    case_weight w[TABLES];
    attention_side s;
    int64_t n, cols = (int64_t)c->H * values_of(c);
    int *from = calloc((size_t)c->seqs, sizeof *from), *rows = calloc((size_t)c->seqs, sizeof *rows);
    random_tables(w, c);
    open_attention(&s, cuda_ops, NULL, c, w);
    for (; from[0] < length - 1; from[0] += rows[0]) {
        rows[0] = LN_MIN((int)MOST, length - 1 - from[0]);
        set_rows(&s.side, 1, rows, from, V);
        free(run_side(&s.side, 0, &n));
    }
    rows[0] = 1;
    set_rows(&s.side, 1, rows, from, V);
    float *alone = run_side(&s.side, 0, &n);
    for (int last = 1; last <= PROMPT; last += PROMPT - 1)
        for (int k = 1; k <= more; k = k * 2 + 1) {
            for (int q = 1; q <= k; q++) from[q] = q * 37 % 600, rows[q] = q == k ? last : 1;
            set_rows(&s.side, k + 1, rows, from, V);
            float *got = run_side(&s.side, 0, &n);
            if (memcmp(got, alone, (size_t)cols * sizeof *got) != 0)
                fail_msg("%d heads of %d, dtype %d: the row at %d has other bits among %d short rows", c->H,
                         c->E, c->dtype, length - 1, k - 1 + last);
            free(got);
        }
    free(alone);
    free(from);
    free(rows);
    close_side(&s.side);
    for (size_t i = 0; i < LN_COUNT(w); i++) free_weight(&w[i]);
}

/* Limits: of splits that can be stored, so that rows are not shared; of patience, so that the last block to
 * finish merges the splits alone. */
static void long_rows(void **state) {
    static const char *const limits[] = {"", "splits=8", "patience=0"};
    static const attention_case cases[] = {
        {.H = 8, .K = 2, .E = 128, .page_len = 64},
        {.H = 4, .K = 1, .E = 64, .page_len = 64, .window = 3000},
        {.H = 4, .K = 2, .E = 64, .Ev = 96, .page_len = 64, .softcap = 3, .sinks = true},
        {.H = 6, .K = 2, .E = 24, .page_len = 32}};
    (void)state;
    for (size_t i = 0; i < LN_COUNT(cases); i += stride())
        for (size_t k = 0; k < LN_COUNT(limits); k++)
            for (int kind = 0; kind < KINDS; kind++) {
                attention_case c = cases[i];
                c.dtype = kind % 2 ? LN_BF16 : LN_F32, c.q8 = kind / 2, c.seqs = 64, c.ctx = 6016;
                setenv("LN_TEST_GPU", limits[k], 1);
                check_long_row(&c, 63, is_quick() ? 1500 : 6000);
            }
    unsetenv("LN_TEST_GPU");
}

int main(void) {
    if (!cuda_here()) return 0;
    const struct CMUnitTest tests[] = {cmocka_unit_test(attention), cmocka_unit_test(bits_of_attention),
                                       cmocka_unit_test(long_rows)};
    return cmocka_run_group_tests_name("cuda_attention", tests, NULL, NULL);
}
