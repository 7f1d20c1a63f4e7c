/* Recurrent mixers on the CUDA device against the reference device: outputs have its bits, and those of a
 * text are the same in whatever steps it is computed, alone and next to another. Skipped if there is no GPU.
 */
/* run: quick cuda */
#include "cuda_case.h"
#include "ops/recur_layout.h"

enum { V = 61, BLOCKS = 6 };

/* With LN_QUICK (under compute-sanitizer) one case. */
static bool is_quick(void) { return getenv("LN_QUICK") != NULL; }

typedef struct recur_case {
    int K, H, E, Ev, taps, len;
    ln_dtype dtype;
    bool apart; /* q, k and v are operands of their own */
} recur_case;
static ln_p_recur place_of(const recur_case *c) {
    ln_p_recur p = {.pages_per_block = 1,
                    .page_len = c->len,
                    .taps = c->taps,
                    .channels = 2 * c->K * c->E + c->H * c->Ev,
                    .n_k_heads = c->K,
                    .n_v_heads = c->H,
                    .k_dim = c->E,
                    .v_dim = c->Ev,
                    .dtype = c->dtype,
                    .silu = true};
    p.page_bytes = p.layer_bytes = ln_recur_parts_of(&p, sizeof(float)).bytes;
    return p;
}
static void build(ln_graph *g, const void *user) {
    const recur_case *c = user;
    const ln_p_recur p = place_of(c);
    const int keys = c->K * c->E, values = c->H * c->Ev;
    ln_v state = ln_g_state(g, "state", 0, c->dtype, LN_STATE_DISJOINT, 1, (const int64_t[]){1});
    const ln_v x = ln_g_embed(g, "x", ln_g_weight(g, "table", LN_F32, 0, V, p.channels), 1, 0),
               a = ln_g_embed(g, "a", ln_g_weight(g, "ta", LN_F32, 1, V, c->H), 1, 0),
               b = ln_g_embed(g, "b", ln_g_weight(g, "tb", LN_F32, 2, V, c->H), 1, 0);
    const ln_v gates = ln_g_delta_gates(g, "gates", a, b, ln_g_weight(g, "a_log", LN_F32, 3, c->H, 0),
                                        ln_g_weight(g, "dt", LN_BF16, 4, c->H, 0), 1);
    const ln_v y =
        ln_g_short_conv(g, "conv", &state, x, ln_g_weight(g, "w", LN_BF16, 5, p.channels * c->taps, 0),
                        ln_g_weight(g, "bias", LN_F32, 6, p.channels, 0), &p);
    ln_v q = y, k = -1, v = -1;
    if (c->apart)
        q = ln_g_slice(g, "q", y, 0, keys), k = ln_g_slice(g, "k", y, keys, keys),
        v = ln_g_slice(g, "v", y, 2 * keys, values);
    ln_g_output(g, ln_g_gated_delta(g, "y", &state, gates, q, k, v, &p));
    ln_g_output(g, gates);
    ln_g_output(g, y);
}

/* Begins texts without a past: pages of numbers that are none. `hole`: the blocks that have no page are those
 * within a step whose number is 1 modulo 3. */
static void begin(side *s, bool hole) {
    ln_page_change *c = ln_step_changes(s->step);
    poison(s, s->pool, s->pool_bytes);
    for (int i = 0; i < 2 * BLOCKS; i++)
        c[i] = (ln_page_change){.page = hole && i % BLOCKS % 3 == 1 ? -1 : 2 * BLOCKS - 1 - i, .at = i};
    s->step->n_changes = 2 * BLOCKS;
}
/* Runs rows of both texts; returns output k. */
static float *run_rows(side *s, int n_seqs, const int *n, const int *from, int k, int64_t *size) {
    set_rows(s, n_seqs, n, from, V);
    return run_side(s, k, size);
}

/* The first text, by steps of `each` rows, next to the second one or alone. */
static void check_steps(const char *what, side *s, const float *all, int64_t cols, int rows, int each,
                        bool alone) {
    begin(s, false);
    for (int at = 0, other = 0; at < rows; at += each) {
        const int n[2] = {LN_MIN(each, rows - at), LN_MIN(each, 7)}, from[2] = {at, other};
        int64_t size;
        other += n[1];
        float *got = run_rows(s, alone ? 1 : 2, n, from, 0, &size);
        if (memcmp(got, all + at * cols, (size_t)(n[0] * cols) * sizeof *got) != 0)
            fail_msg("%s: rows %d to %d of steps of %d rows%s have other bits", what, at, at + n[0] - 1, each,
                     alone ? ", alone," : "");
        free(got);
    }
}
static void check_recur(const recur_case *c) {
    static const int rows[2] = {150, 37}, from[2] = {0};
    const ln_p_recur p = place_of(c);
    uint64_t seed = (uint64_t)(c->E + c->len);
    char what[96];
    (void)snprintf(what, sizeof what, "heads %d %d of %d %d, %d taps, chunks of %d", c->K, c->H, c->E, c->Ev,
                   c->taps, c->len);
    const ln_groups dense = {0};
    case_weight w[] = {random_weight("table", LN_F32, dense, V, p.channels, &seed),
                       random_weight("ta", LN_F32, dense, V, c->H, &seed),
                       random_weight("tb", LN_F32, dense, V, c->H, &seed),
                       random_weight("a_log", LN_F32, dense, c->H, 0, &seed),
                       random_weight("dt", LN_BF16, dense, c->H, 0, &seed),
                       random_weight("w", LN_BF16, dense, p.channels * c->taps, 0, &seed),
                       random_weight("bias", LN_F32, dense, p.channels, 0, &seed)};
    const ln_state_pool pool = {
        .size = sizeof pool,
        .page_len = c->len,
        .n_groups = 1,
        .page_bytes = p.page_bytes,
        .groups = {{.kind = LN_STATE_CHUNKS, .n_layers = 1, .layers_per_page = 1, .pages_per_block = 1}}};
    const cuda_case k = {.build = build,
                         .user = c,
                         .policy = LN_POLICY_EXACT,
                         .bounds = {200, 200, 2},
                         .weights = w,
                         .n_weights = LN_COUNT(w),
                         .kv = &pool,
                         .n_pages = 2 * BLOCKS,
                         .n_slots = 2,
                         .n_blocks = BLOCKS};
    side gpu, ref;
    open_side(&gpu, cuda_ops, NULL, &k);
    open_side(&ref, &ln_device_ref, &gpu, &k);
    float *all = NULL;
    int64_t n = 0, m;
    for (int out = 2; out >= 0; out--) {
        begin(&gpu, true), begin(&ref, true);
        free(all);
        all = run_rows(&gpu, 2, rows, from, out, &n);
        float *want = run_rows(&ref, 2, rows, from, out, &m);
        assert_int_equal(n, m);
        compare_outputs(what, want, all, n, 0);
        free(want);
    }
    for (int each = is_quick() ? 13 : 1; each <= 64; each = each == 1 ? 13 : each + 51)
        for (int alone = 0; alone < 2; alone++)
            check_steps(what, &gpu, all, n / (rows[0] + rows[1]), rows[0], each, alone);
    free(all);
    close_side(&gpu);
    close_side(&ref);
    for (size_t i = 0; i < LN_COUNT(w); i++) free_weight(&w[i]);
}
static void texts(void **state) {
    static const recur_case cases[] = {
        {2, 4, 16, 32, 4, 64, LN_F32, false}, {2, 4, 16, 32, 4, 64, LN_BF16, true},
        {1, 3, 32, 16, 2, 32, LN_BF16, true}, {1, 2, 128, 128, 4, 64, LN_BF16, false},
        {2, 2, 8, 12, 3, 32, LN_F32, false},  {1, 1, 256, 96, 4, 64, LN_F32, false}};
    (void)state;
    for (size_t i = is_quick() ? 2 : 0; i < (is_quick() ? 3 : LN_COUNT(cases)); i++) check_recur(&cases[i]);
}

int main(void) {
    if (!cuda_here()) return 0;
    const struct CMUnitTest tests[] = {cmocka_unit_test(texts)};
    return cmocka_run_group_tests_name("cuda_recur", tests, NULL, NULL);
}
