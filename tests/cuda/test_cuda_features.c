/* Ops of model families on the CUDA device against the reference device: elements one by one, norms without
 * weight, RoPE of neighbours, in part and with two sets of frequencies, positions that scale queries,
 * products with weights in coded rows. Each with the bits of the reference, or within what the device
 * declares; a row has the same bits in steps of several sizes. Skipped if there is no GPU. */
/* run: quick cuda */
#include "cuda_rows.h"
#include "graph/grad.h"

enum { C = 160, HEAD = 40, HEADS = C / HEAD, LONG = 90 /* positions; the text is longer */ };

typedef ln_v build_fn(ln_graph *g, ln_v x);

static ln_v sigmoid(ln_graph *g, ln_v x) { return ln_g_sigmoid(g, "y", x); }
static ln_v relu2(ln_graph *g, ln_v x) { return ln_g_relu2(g, "y", x); }
static ln_v softcap(ln_graph *g, ln_v x) { return ln_g_softcap(g, "y", x, 0.7f); }
static ln_v scale(ln_graph *g, ln_v x) { return ln_g_scale(g, "y", x, 0.37f); }
static ln_v centre(ln_graph *g, ln_v x) { return ln_g_centre(g, "y", x); }
static ln_v slice(ln_graph *g, ln_v x) { return ln_g_slice(g, "y", x, 5, 77); }
static ln_v slice_of_groups(ln_graph *g, ln_v x) { return ln_g_slice_groups(g, "y", x, 3, 17, HEAD); }
static ln_v clamp(ln_graph *g, ln_v x) { return ln_g_clamp(g, "y", x, -0.3f, 0.6f); }
static ln_v xielu(ln_graph *g, ln_v x) {
    const ln_p_xielu p = {.alpha_p = 0.8f, .alpha_n = 0.9f, .beta = 0.5f, .eps = -1e-6f};
    return ln_g_xielu(g, "y", x, &p);
}
static ln_v norm_of_row(ln_graph *g, ln_v x) { return ln_g_rmsnorm_plain(g, "y", x, C, 1e-6f); }
static ln_v norm_of_heads(ln_graph *g, ln_v x) { return ln_g_rmsnorm_plain(g, "y", x, HEAD, 1e-5f); }
static ln_v scaled_rows(ln_graph *g, ln_v x) {
    const ln_p_pos_scale p = {.factor = 0.1f, .positions = 16};
    return ln_g_scale_rows(g, "y", x, ln_g_pos_scale(g, "s", &p));
}

static float freqs[HEAD / 2], beyond[HEAD / 2];
static ln_v turned(ln_graph *g, ln_v x, int n, bool interleaved, bool is_long) {
    const ln_p_freqs f = {.freqs = freqs,
                          .n = n,
                          .scale = 1.1f,
                          .ntk.positions = is_long ? LONG : 0,
                          .beyond = is_long ? beyond : NULL};
    return ln_g_rope(g, "y", x, ln_g_rope_table(g, "t", &f), &(ln_p_heads){HEADS, HEAD, interleaved});
}
static ln_v rope(ln_graph *g, ln_v x) { return turned(g, x, HEAD / 2, false, false); }
static ln_v rope_of_neighbours(ln_graph *g, ln_v x) { return turned(g, x, HEAD / 2, true, false); }
static ln_v rope_in_part(ln_graph *g, ln_v x) { return turned(g, x, 7, false, false); }
static ln_v rope_of_neighbours_in_part(ln_graph *g, ln_v x) { return turned(g, x, 7, true, false); }
static ln_v rope_of_long_texts(ln_graph *g, ln_v x) { return turned(g, x, HEAD / 2, false, true); }

/* By how much the cosines and sines of the table may differ, which are rounded once from double; relative to
 * the largest magnitude of a sum of two products with them. */
#define OF_TABLE 0x1p-20

typedef struct op_case {
    const char *name;
    build_fn *make;
    double more; /* tolerance of operands */
} op_case;
static void build_op(ln_graph *g, const void *user) {
    const op_case *c = user;
    ln_g_output(g, c->make(g, ln_g_embed(g, "x", ln_g_weight(g, "table", LN_F32, 0, V, C), 1, 0)));
}

static void ops_of_families(void **state) {
    static const op_case cases[] = {{"sigmoid", sigmoid, 0},
                                    {"relu2", relu2, 0},
                                    {"softcap", softcap, 0},
                                    {"scale", scale, 0},
                                    {"centre", centre, 0},
                                    {"slice", slice, 0},
                                    {"slice of groups", slice_of_groups, 0},
                                    {"clamp", clamp, 0},
                                    {"xielu", xielu, 0},
                                    {"rmsnorm of a row without weight", norm_of_row, 0},
                                    {"rmsnorm of heads without weight", norm_of_heads, 0},
                                    {"rows scaled by position", scaled_rows, 0x1p-21},
                                    {"rope", rope, OF_TABLE},
                                    {"rope of neighbours", rope_of_neighbours, OF_TABLE},
                                    {"rope in part", rope_in_part, OF_TABLE},
                                    {"rope of neighbours in part", rope_of_neighbours_in_part, OF_TABLE},
                                    {"rope of long texts", rope_of_long_texts, OF_TABLE}};
    uint64_t seed = 5;
    case_weight table = random_weight("table", LN_F32, (ln_groups){0}, V, C, &seed);
    (void)state;
    for (int i = 0; i < HEAD / 2; i++)
        freqs[i] = powf(10000, -2.0f * (float)i / HEAD), beyond[i] = freqs[i] / (float)(2 + i % 5);
    for (size_t i = 0; i < LN_COUNT(cases); i++) {
        const cuda_case c = {.build = build_op,
                             .user = &cases[i],
                             .policy = LN_POLICY_EXACT,
                             .bounds = {140, 140, 2},
                             .weights = &table,
                             .n_weights = 1,
                             .n_slots = 2,
                             .n_blocks = 1};
        check_case(cases[i].name, &c, cases[i].more);
    }
    free_weight(&table);
}

/* ---- coded rows ---- */

typedef struct coded_case {
    ln_encoding enc;
    int D, C;
    bool gated, embeds;
    ln_policy policy;
} coded_case;
static void build_coded(ln_graph *g, const void *user) {
    const coded_case *c = user;
    ln_v w[2], y[2];
    for (int i = 0; i < 2; i++)
        w[i] = ln_g_encoded(g, i ? "u" : "w", c->enc, 1 + i, 2, (const int64_t[]){c->D, c->C});
    if (c->embeds) {
        ln_g_output(g, ln_g_embed(g, "y", w[0], 3, 0));
        return;
    }
    const ln_v x = ln_g_embed(g, "x", ln_g_weight(g, "table", LN_F32, 0, V, c->C), 1, 0),
               bias = ln_g_weight(g, "bias", LN_BF16, 3, c->D, 0);
    for (int i = 0; i < (c->gated ? 2 : 1); i++) y[i] = ln_g_linear(g, i ? "b" : "a", x, w[i], bias);
    ln_g_output(g, c->gated ? ln_g_mul(g, "y", ln_g_silu(g, "s", y[0]), y[1]) : y[0]);
}
static void check_coded(const coded_case *c) {
    uint64_t seed = (uint64_t)(c->D + c->C);
    char what[96];
    (void)snprintf(what, sizeof what, "%s of %d bits in %ds, [%d, %d], policy %d%s",
                   ln_stored_name(c->enc.kind), c->enc.bits, c->enc.group, c->D, c->C, c->policy,
                   c->gated    ? ", gated"
                   : c->embeds ? ", a table"
                               : "");
    case_weight w[] = {random_weight("table", LN_F32, (ln_groups){0}, V, c->C, &seed),
                       encoded_weight("w", c->enc, c->D, c->C, c->policy, &seed),
                       encoded_weight("u", c->enc, c->D, c->C, c->policy, &seed),
                       random_weight("bias", LN_BF16, (ln_groups){0}, c->D, 0, &seed)};
    const cuda_case k = {.build = build_coded,
                         .user = c,
                         .policy = c->policy,
                         .bounds = {140, 140, 2},
                         .weights = w,
                         .n_weights = LN_COUNT(w),
                         .n_slots = 2,
                         .n_blocks = 1};
    check_case(what, &k, 0);
    for (size_t i = 0; i < LN_COUNT(w); i++) free_weight(&w[i]);
}
static void coded_rows(void **state) {
    const ln_encoding encodings[] = {ln_encoding_floats(LN_STORED_E4M3, LN_F32, 128),
                                     ln_encoding_floats(LN_STORED_E4M3, LN_BF16, 0),
                                     ln_encoding_floats(LN_STORED_E5M2, LN_F16, 32),
                                     ln_encoding_floats(LN_STORED_E2M1, LN_F32, 16),
                                     ln_encoding_floats(LN_STORED_E2M1, LN_BF16, 32),
                                     ln_encoding_zeroed(4, LN_F16, 32),
                                     ln_encoding_zeroed(3, LN_F32, 0),
                                     ln_encoding_zeroed(8, LN_BF16, 100),
                                     ln_encoding_zeroed(5, LN_F16, 64)};
    static const int sizes[][2] = {{V, 100}, {70, 256}, {81, 1056}}; /* fp8 is packed in the last two */
    static const ln_policy policies[] = {LN_POLICY_EXACT, LN_POLICY_FAST_FP8};
    (void)state;
    for (size_t i = 0; i < LN_COUNT(encodings); i++)
        for (size_t k = 0; k < LN_COUNT(sizes); k++)
            for (int form = 0; form < 6; form++)
                check_coded(&(coded_case){.enc = encodings[i],
                                          .D = sizes[k][0],
                                          .C = sizes[k][1],
                                          .gated = form / 2 == 1,
                                          .embeds = form / 2 == 2,
                                          .policy = policies[form % 2]});
}

int main(void) {
    if (!cuda_here()) return 0;
    const struct CMUnitTest tests[] = {cmocka_unit_test(ops_of_families), cmocka_unit_test(coded_rows)};
    return cmocka_run_group_tests_name("cuda_features", tests, NULL, NULL);
}
