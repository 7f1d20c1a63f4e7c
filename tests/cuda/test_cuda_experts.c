/* Mixtures of experts and weights in groups of 16 columns on the CUDA device against the reference device:
 * the choice of experts with its bits, products of few and of many rows with every encoding, a row's bits
 * in steps of several sizes. Skipped if there is no GPU. */
/* run: quick cuda */
#include "cuda_rows.h"

/* With LN_QUICK (under compute-sanitizer) every third case. */
static size_t stride(void) { return getenv("LN_QUICK") ? 3 : 1; }

/* ---- route ---- */

typedef struct route_case {
    const char *what;
    ln_p_route p;
    int X;
    bool biased, scaled;
} route_case;
static void build_route(ln_graph *g, const void *user) {
    const route_case *c = user;
    ln_v w, bias = c->biased ? ln_g_weight(g, "bias", LN_F32, 1, c->X, 0) : -1,
            scale = c->scaled ? ln_g_weight(g, "scale", LN_BF16, 2, c->X, 0) : -1;
    const ln_v logits = ln_g_embed(g, "x", ln_g_weight(g, "table", LN_F32, 0, V, c->X), 1, 0),
               ids = ln_g_route(g, "ids", logits, bias, scale, &c->p, &w);
    ln_g_output(g, ids);
    ln_g_output(g, w);
}
static void routes(void **state) {
    static const route_case cases[] = {
        {"softmax, normed",
         {.kind = LN_ROUTE_SOFTMAX, .top_k = 2, .normed = true, .factor = 1},
         8,
         false,
         false},
        {"softmax, scaled", {.kind = LN_ROUTE_SOFTMAX, .top_k = 8, .factor = 2.5f}, 128, false, true},
        {"of the chosen", {.kind = LN_ROUTE_CHOSEN, .top_k = 4, .factor = 1}, 33, true, false},
        {"sigmoid, all",
         {.kind = LN_ROUTE_SIGMOID, .top_k = 5, .normed = true, .factor = 1},
         5,
         false,
         false},
        {"sigmoid, groups",
         {.kind = LN_ROUTE_SIGMOID,
          .top_k = 8,
          .normed = true,
          .eps = 1e-20f,
          .factor = 1.5f,
          .n_groups = 8,
          .top_groups = 3},
         256,
         true,
         true},
        {"1024 experts", {.kind = LN_ROUTE_SOFTMAX, .top_k = 64, .factor = 1}, 1024, false, false}};
    (void)state;
    for (size_t i = 0; i < LN_COUNT(cases); i++) {
        const route_case *c = &cases[i];
        uint64_t seed = 3 + i;
        case_weight w[] = {random_weight("table", LN_F32, (ln_groups){0}, V, c->X, &seed),
                           random_weight("bias", LN_F32, (ln_groups){0}, c->X, 0, &seed),
                           random_weight("scale", LN_BF16, (ln_groups){0}, c->X, 0, &seed)};
        float *table = w[0].data[0];
        for (int x = 0; x < c->X; x++) table[3 * c->X + x] = (float)(x / 3); /* equal logits, */
        table[4 * c->X + 1] = NAN;                                           /* and those of no number */
        const cuda_case k = {.build = build_route,
                             .user = c,
                             .policy = LN_POLICY_EXACT,
                             .bounds = {140, 140, 2},
                             .weights = w,
                             .n_weights = LN_COUNT(w),
                             .n_slots = 2,
                             .n_blocks = 1};
        check_case(c->what, &k, 0);
        for (size_t n = 0; n < LN_COUNT(w); n++) free_weight(&w[n]);
    }
}

/* ---- products ---- */

enum { X = 8, TOP = 3 };
typedef struct experts_case {
    ln_encoding enc;
    int D, C;
    bool shared, biased;
    ln_policy policy;
} experts_case;
static void build_experts(ln_graph *g, const void *user) {
    const experts_case *c = user;
    const ln_p_route route = {.kind = LN_ROUTE_SOFTMAX, .top_k = TOP, .normed = true, .factor = 1};
    ln_v by, x = ln_g_embed(g, "x", ln_g_weight(g, "table", LN_F32, 0, V, c->C), 1, 0);
    const ln_v ids =
        ln_g_route(g, "ids", ln_g_embed(g, "logits", ln_g_weight(g, "router", LN_F32, 1, V, X), 1, 0), -1, -1,
                   &route, &by);
    const ln_v w = ln_g_encoded(g, "w", c->enc, 2, 3, (const int64_t[]){X, c->D, c->C}),
               first = ln_g_encoded(g, "first", ln_encoding_dense(LN_BF16), 4, 3,
                                    (const int64_t[]){X, c->C, c->C}),
               bias = c->biased ? ln_g_weight(g, "bias", LN_BF16, 3, X * c->D, 0) : -1;
    if (!c->shared) ln_g_output(g, x = ln_g_experts(g, "x.each", x, first, ids, -1, TOP));
    ln_g_output(g, ln_g_experts(g, "y", x, w, ids, bias, TOP));
}
static case_weight of_experts(case_weight w, int D, int C) {
    w.desc.n_dims = 3, w.desc.dims[0] = X, w.desc.dims[1] = D, w.desc.dims[2] = C;
    w.desc.uses = (w.desc.uses & LN_USE_FP8) | LN_USE_F32 | LN_USE_BF16;
    return w;
}
static void check_experts(const experts_case *c) {
    enum { OWN = 16 /* tolerances: an operand that differs itself */ };
    uint64_t seed = (uint64_t)(c->D + c->C);
    char what[96];
    (void)snprintf(what, sizeof what, "%s of %d bits in %ds, [%d, %d], policy %d%s%s",
                   ln_stored_name(c->enc.kind), c->enc.bits, c->enc.group, c->D, c->C, c->policy,
                   c->shared ? ", shared" : "", c->biased ? ", bias" : "");
    case_weight w[] = {random_weight("table", LN_F32, (ln_groups){0}, V, c->C, &seed),
                       random_weight("router", LN_F32, (ln_groups){0}, V, X, &seed),
                       encoded_weight("w", c->enc, X * c->D, c->C, c->policy, &seed),
                       random_weight("bias", LN_BF16, (ln_groups){0}, X * c->D, 0, &seed),
                       random_weight("first", LN_BF16, (ln_groups){0}, X * c->C, c->C, &seed)};
    w[2] = of_experts(w[2], c->D, c->C), w[4] = of_experts(w[4], c->C, c->C);
    const cuda_case k = {.build = build_experts,
                         .user = c,
                         .policy = c->policy,
                         .bounds = {140, 140, 2},
                         .weights = w,
                         .n_weights = LN_COUNT(w),
                         .n_slots = 2,
                         .n_blocks = 1};
    check_case(what, &k, c->shared ? 0 : c->policy == LN_POLICY_EXACT ? OWN * 0x1p-20 : OWN * 0x1p-9);
    for (size_t i = 0; i < LN_COUNT(w); i++) free_weight(&w[i]);
}
static void products_of_experts(void **state) {
    const ln_encoding encodings[] = {ln_encoding_dense(LN_F32),
                                     ln_encoding_dense(LN_BF16),
                                     ln_encoding_dense(LN_F16),
                                     ln_encoding_of(LN_BF16, (ln_groups){4, 64}),
                                     ln_encoding_of(LN_F16, (ln_groups){4, 32}),
                                     ln_encoding_of(LN_BF16, (ln_groups){8, 64}),
                                     ln_encoding_of(LN_F32, (ln_groups){8, 32}),
                                     ln_encoding_of(LN_F16, (ln_groups){3, 64}),
                                     ln_encoding_of(LN_F32, (ln_groups){6, 16}),
                                     ln_encoding_floats(LN_STORED_E4M3, LN_F32, 128),
                                     ln_encoding_floats(LN_STORED_E5M2, LN_F16, 32),
                                     ln_encoding_floats(LN_STORED_E2M1, LN_BF16, 32),
                                     ln_encoding_zeroed(4, LN_F16, 32)};
    static const int sizes[][2] = {{48, 192}, {40, 128}, {16, 1088}, {288, 320}};
    (void)state;
    for (size_t i = 0; i < LN_COUNT(encodings); i += stride())
        for (size_t k = 0; k < LN_COUNT(sizes); k += stride())
            for (int form = 0; form < (k == 0 ? 4 : 2); form++)
                check_experts(&(experts_case){.enc = encodings[i],
                                              .D = sizes[k][0],
                                              .C = sizes[k][1],
                                              .shared = form < 2,
                                              .biased = k != 1,
                                              .policy = form % 2 ? LN_POLICY_FAST_FP8 : LN_POLICY_EXACT});
}

/* ---- groups of 16 columns ---- */

typedef struct small_groups {
    ln_dtype dtype;
    int bits, D, C;
    ln_policy policy;
} small_groups;
static void build_linear(ln_graph *g, const void *user) {
    const small_groups *c = user;
    const ln_v x = ln_g_embed(g, "x", ln_g_weight(g, "table", LN_F32, 0, V, c->C), 1, 0);
    const ln_encoding enc = ln_encoding_of(c->dtype, (ln_groups){c->bits, 16});
    ln_g_output(g,
                ln_g_linear(g, "y", x, ln_g_encoded(g, "w", enc, 1, 2, (const int64_t[]){c->D, c->C}), -1));
}
static void groups_of_16(void **state) {
    static const int bits[] = {2, 3, 4, 6, 8}, sizes[][2] = {{40, 160}, {208, 576}};
    static const ln_policy policies[] = {LN_POLICY_EXACT, LN_POLICY_FAST};
    static const ln_dtype dtypes[] = {LN_BF16, LN_F16, LN_F32};
    (void)state;
    for (int i = 0; i < (int)(LN_COUNT(bits) * LN_COUNT(sizes) * LN_COUNT(policies) * LN_COUNT(dtypes));
         i += getenv("LN_QUICK") ? 7 : 1) {
        const small_groups c = {.bits = bits[i / 12],
                                .D = sizes[i / 6 % 2][0],
                                .C = sizes[i / 6 % 2][1],
                                .dtype = dtypes[i / 2 % 3],
                                .policy = policies[i % 2]};
        uint64_t seed = (uint64_t)i + 1;
        char what[96];
        (void)snprintf(what, sizeof what, "%d bits in 16s, [%d, %d], policy %d", c.bits, c.D, c.C, c.policy);
        case_weight w[] = {random_weight("table", LN_F32, (ln_groups){0}, V, c.C, &seed),
                           random_weight("w", c.dtype, (ln_groups){c.bits, 16}, c.D, c.C, &seed)};
        const cuda_case k = {.build = build_linear,
                             .user = &c,
                             .policy = c.policy,
                             .bounds = {140, 140, 2},
                             .weights = w,
                             .n_weights = LN_COUNT(w),
                             .n_slots = 2,
                             .n_blocks = 1};
        check_case(what, &k, 0);
        for (size_t n = 0; n < LN_COUNT(w); n++) free_weight(&w[n]);
    }
}

int main(void) {
    if (!cuda_here()) return 0;
    const struct CMUnitTest tests[] = {cmocka_unit_test(routes), cmocka_unit_test(products_of_experts),
                                       cmocka_unit_test(groups_of_16)};
    return cmocka_run_group_tests_name("cuda_experts", tests, NULL, NULL);
}
