/* cast: a policy names formats for which there is a product, and the pass inserts one conversion for each
 * value and format, immediately before its first consumer. */
/* run: quick */
#include "../common.h"
#include "graph/grad.h"
#include "ops/ops.h"

static const ln_policy policies[] = {LN_POLICY_EXACT, LN_POLICY_FAST, LN_POLICY_FAST_FP8, LN_POLICY_TRAIN};

/* A policy that names a pair of a format and an encoding without a row in quant/formats.def would make
 * programs that no device can run. */
static void every_operand_has_a_product(void **state) {
    (void)state;
    static const int bits[] = {0, 2, 3, 4, 5, 6, 8}, groups[] = {32, 64, 128};
    for (size_t p = 0; p < LN_COUNT(policies); p++)
        for (size_t b = 0; b < LN_COUNT(bits); b++)
            for (size_t k = 0; k < LN_COUNT(groups); k++)
                for (int dtype = 0; dtype < 3; dtype++) {
                    const ln_groups enc = {bits[b], bits[b] ? groups[k] : 0};
                    const ln_value values[] = {
                        {.n_dims = 2},
                        {.n_dims = 2, .dtype = (ln_dtype)dtype, .enc = ln_encoding_of((ln_dtype)dtype, enc)}};
                    const ln_node n = {.op = LN_OP_LINEAR, .n_in = 2, .in = {0, 1}};
                    const ln_format f = ln_policy_operand(policies[p], &n, 0, values);
                    assert_true(ln_product_of(f, (ln_stored)ln_encoding_of((ln_dtype)dtype, enc).kind) <
                                LN_PRODUCT_COUNT);
                    assert_true(f.kind < LN_FORMAT_BFP || (f.bits == enc.bits && f.group == enc.group));
                    assert_true(policies[p] != LN_POLICY_EXACT || f.kind == LN_FORMAT_F32);
                    assert_true(policies[p] != LN_POLICY_TRAIN || f.kind < LN_FORMAT_BFP);
                }
}

static ln_v weight(ln_graph *g, const char *name, int bits, int64_t D, int64_t C) {
    return ln_g_encoded(g, name, ln_encoding_of(LN_BF16, (ln_groups){bits, bits ? 32 : 0}), 1, 2,
                        (const int64_t[]){D, C});
}
/* q and k are products of x with bf16 weights, v with affine groups; a node that reads x as it is stands
 * between. */
static void build(ln_graph *g) {
    ln_graph_open(g);
    ln_g_layer(g, -1, "");
    const ln_v x = ln_g_embed(g, "x", ln_g_weight(g, "table", LN_BF16, 0, 50, 64), 1, 0);
    ln_g_layer(g, 0, "layer.");
    const ln_v n = ln_g_rmsnorm(g, "n", x, ln_g_weight(g, "w", LN_F32, 2, 64, 0), 1e-6f, 0);
    const ln_v sum = ln_g_add(g, "sum", n, n);
    const ln_v q = ln_g_linear(g, "q", n, weight(g, "wq", 0, 64, 64), -1),
               v = ln_g_linear(g, "v", n, weight(g, "wv", 4, 64, 64), -1),
               k = ln_g_linear(g, "k", n, weight(g, "wk", 0, 64, 64), -1);
    const ln_v qk = ln_g_add(g, "qk", q, k), vs = ln_g_add(g, "vs", v, sum);
    ln_g_output(g, ln_g_add(g, "y", qk, vs));
    OK(ln_graph_check(g, "a test", err));
}
static const char *names_of(const ln_graph *g, char out[256]) {
    int at = 0;
    for (size_t i = 0; i < g->n_nodes; i++)
        at += snprintf(out + at, 256 - (size_t)at, "%s ", g->values[g->nodes[i].out[0]].name);
    return out;
}

static void conversions_precede_their_first_consumer(void **state) {
    (void)state;
    static const char *const wanted[] = {
        "x layer.n layer.sum layer.q layer.v layer.k layer.qk layer.vs layer.y ",
        "x layer.n layer.sum layer.n.bf16 layer.q layer.n.bfp4g32 layer.v layer.k layer.qk layer.vs layer.y ",
        "x layer.n layer.sum layer.n.bf16 layer.q layer.n.bfp4g32 layer.v layer.k layer.qk layer.vs layer.y ",
        "x layer.n layer.sum layer.n.bf16 layer.q layer.v layer.k layer.qk layer.vs layer.y "};
    for (size_t p = 0; p < LN_COUNT(policies); p++) {
        ln_graph g;
        char names[256];
        build(&g);
        OK(ln_graph_cast(&g, policies[p], err));
        OK(ln_graph_check(&g, "a test", err));
        assert_string_equal(names_of(&g, names), wanted[p]);
        for (size_t i = 0; i < g.n_nodes; i++) { /* layer and inputs: k reads the conversion that q reads */
            const ln_node *n = &g.nodes[i];
            if (i) assert_int_equal(n->layer, 0);
            for (int k = 0; k < n->n_out; k++) assert_int_equal(g.values[n->out[k]].def, i);
            if (n->op == LN_OP_LINEAR && g.values[n->in[1]].enc.bits == 0)
                assert_int_equal(g.values[n->in[0]].format.kind, p == 0 ? LN_FORMAT_F32 : LN_FORMAT_BF16);
        }
        OK(ln_graph_cast(&g, policies[p], err)); /* nothing is left to convert */
        assert_string_equal(names_of(&g, names), wanted[p]);
        ln_graph_close(&g);
    }
}

/* Weights in fp8 have their operand in bf16 on devices that say so, other coded rows in f32 everywhere. */
static void fp8_reads_bf16_on_some_devices(void **state) {
    static const ln_stored stored[] = {LN_STORED_E4M3, LN_STORED_E5M2, LN_STORED_E2M1};
    (void)state;
    for (size_t i = 0; i < LN_COUNT(stored); i++)
        for (size_t p = 0; p < LN_COUNT(policies); p++) {
            ln_graph g;
            ln_graph_open(&g);
            const ln_v x = ln_g_embed(&g, "x", ln_g_weight(&g, "table", LN_BF16, 0, 50, 64), 1, 0);
            const ln_encoding e = ln_encoding_floats(stored[i], LN_F32, 32);
            ln_g_output(&g, ln_g_linear(&g, "y", x, ln_g_encoded(&g, "w", e, 1, 2, (const int64_t[]){64, 64}),
                                        -1));
            OK(ln_graph_cast(&g, policies[p], err));
            const ln_node *y = &g.nodes[g.n_nodes - 1];
            const bool rounds = policies[p] == LN_POLICY_FAST_FP8 && stored[i] != LN_STORED_E2M1;
            assert_int_equal(g.values[y->in[0]].format.kind, rounds ? LN_FORMAT_BF16 : LN_FORMAT_F32);
            ln_graph_close(&g);
        }
}

/* Training reads rows that are multiplied in bf16, except a row that is spread over all rows. A value has one
 * conversion, whatever layers lie between its readers. */
static void training_keeps_factors(void **state) {
    (void)state;
    ln_graph g;
    ln_graph_open(&g);
    ln_g_layer(&g, 0, "");
    const ln_v x = ln_g_embed(&g, "x", ln_g_weight(&g, "table", LN_F32, 0, 50, 64), 1, 0),
               row = ln_g_load(&g, "row", ln_g_trainable(&g, "m", 0, LN_F32, 2, (const int64_t[]){1, 64})),
               all = ln_g_spread(&g, "all", row, LN_DIM_T, 64, 1), y = ln_g_mul(&g, "y", x, all);
    ln_g_layer(&g, 1, "");
    const ln_v z = ln_g_silu(&g, "z", y);
    ln_g_layer(&g, 0, "");
    const ln_v again = ln_g_mul(&g, "again", z, x);
    ln_g_output(&g, again);
    OK(ln_graph_cast(&g, LN_POLICY_TRAIN, err));
    OK(ln_graph_check(&g, "cast", err));
    const ln_node *first = &g.nodes[g.values[y].def], *second = &g.nodes[g.values[again].def];
    assert_int_equal(first->in[1], all);
    assert_int_equal(g.values[first->in[0]].format.kind, LN_FORMAT_BF16);
    assert_int_equal(second->in[1], first->in[0]);
    ln_graph_close(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_operand_has_a_product),
                                       cmocka_unit_test(conversions_precede_their_first_consumer),
                                       cmocka_unit_test(training_keeps_factors),
                                       cmocka_unit_test(fp8_reads_bf16_on_some_devices)};
    return cmocka_run_group_tests_name("cast", tests, NULL, NULL);
}
