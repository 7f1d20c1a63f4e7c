/* Operands of any kind: an op takes a weight that training changes wherever it takes one that it does not,
 * and a device that reads packed weights says that it has no kernel for the others. */
/* run: quick */
#include "../common.h"
#include "device/cpu/exec.h"

static ln_lowering lowering;

static ln_v new_trainable(ln_graph *g, const char *name, ln_dtype dtype, int slot, int64_t d0, int64_t d1) {
    return ln_g_trainable(g, name, slot, dtype, d1 ? 2 : 1, (const int64_t[]){d0, d1});
}
/* y = norm(embed) w^T + b, with every weight of one kind. */
static ln_v build(ln_graph *g, bool trainable) {
    ln_v (*weight)(ln_graph *, const char *, ln_dtype, int, int64_t, int64_t) =
        trainable ? new_trainable : ln_g_weight;
    ln_graph_open(g);
    ln_g_layer(g, -1, "");
    const ln_v x = ln_g_embed(g, "x", weight(g, "table", LN_BF16, 0, 50, 64), 1, 0),
               n = ln_g_rmsnorm(g, "n", x, weight(g, "norm", LN_F32, 1, 64, 0), 1e-6f, 0),
               y = ln_g_linear(g, "y", n, weight(g, "w", LN_BF16, 2, 32, 64),
                               weight(g, "b", LN_F32, 3, 32, 0));
    ln_g_output(g, y);
    OK(ln_graph_check(g, "build", err));
    return y;
}

static void a_trainable_is_an_operand_like_a_weight(void **state) {
    (void)state;
    for (int trainable = 0; trainable < 2; trainable++) {
        ln_graph g;
        const ln_v y = build(&g, trainable);
        assert_true(g.values[y].kind == LN_KIND_TEMP && g.values[y].dims[1] == 32);
        for (size_t i = 0; i < g.n_values; i++)
            if (g.values[i].def < 0)
                assert_int_equal(g.values[i].kind, trainable ? LN_KIND_TRAINABLE : LN_KIND_WEIGHT);
        ln_graph_close(&g);
    }
}

/* States and trainables have the type, the flags and the dimensions that they were built with, and the next
 * version of a state has those of the version that it replaces. */
static void states_have_types_and_dimensions(void **state) {
    (void)state;
    const int64_t dims[4] = {3, 5, 64, 2}, one = 1;
    ln_graph g;
    ln_graph_open(&g);
    ln_g_layer(&g, 7, "layer.");
    for (int n = 1; n <= 4; n++) {
        const ln_v a = ln_g_state(&g, "moment", n, LN_BF16, LN_STATE_DISJOINT, n, dims),
                   b = ln_g_trainable(&g, "weight", n, LN_F16, n, dims);
        const ln_value *s = &g.values[a], *w = &g.values[b];
        assert_true(s->kind == LN_KIND_STATE && s->dtype == LN_BF16 && s->flags == LN_STATE_DISJOINT);
        assert_true(w->kind == LN_KIND_TRAINABLE && w->dtype == LN_F16 && !w->flags);
        assert_true(s->slot == n && w->slot == n && s->layer == 7 && s->n_dims == n && w->n_dims == n);
        assert_memory_equal(s->dims, dims, (size_t)n * sizeof *dims);
        assert_memory_equal(w->dims, dims, (size_t)n * sizeof *dims);
    }
    const ln_p_kv p = {.n_kv_heads = 2, .head_dim = 32, .v_dim = 32, .page_len = 32, .pages_per_block = 1};
    const ln_v x = ln_g_embed(&g, "x", ln_g_weight(&g, "table", LN_F32, 0, 50, 64), 1, 0),
               s = ln_g_state(&g, "kv", 9, LN_BF16, LN_STATE_DISJOINT, 3, dims),
               next = ln_g_kv_write(&g, "kv1", s, x, x, &p);
    assert_int_equal(g.values[next].dtype, LN_BF16);
    assert_int_equal(g.values[next].n_dims, 3);
    assert_memory_equal(g.values[next].dims, dims, 3 * sizeof *dims);
    OK(ln_graph_check(&g, "build", err));
    assert_int_equal(ln_g_state(&g, "none", 10, LN_F32, 0, 5, &one), -1);
    FAILS(LN_EINTERNAL, "layer.none has 5 dimensions, expected 1 to 4", ln_graph_check(&g, "build", err));
    ln_graph_close(&g);
}

/* A node has one value for each output: several are named by number, a single one by the name alone. add has
 * one output in the table of ops, so check rejects the node that has three. */
static void nodes_have_several_outputs(void **state) {
    (void)state;
    ln_graph g;
    ln_v out[LN_NODE_OUT];
    ln_graph_open(&g);
    ln_g_layer(&g, 2, "layer.");
    const ln_v x = ln_g_embed(&g, "x", ln_g_weight(&g, "table", LN_F32, 0, 50, 64), 1, 0);
    ln_node n = {.op = LN_OP_ADD, .n_in = 2, .in = {x, x}, .dead = true};
    const ln_v y = ln_g_node(&g, "y", &n, out);
    assert_int_equal(y, out[0]);
    assert_true(out[1] == -1 && out[2] == -1 && !g.nodes[g.n_nodes - 1].dead);
    assert_string_equal(g.values[out[0]].name, "layer.y");
    assert_int_equal(g.nodes[g.n_nodes - 1].layer, 2);
    OK(ln_graph_check(&g, "build", err));
    n.n_out = 3;
    const ln_v z = ln_g_node(&g, "z", &n, out);
    assert_int_equal(z, out[0]);
    for (int k = 0; k < 3; k++) {
        const char *const names[] = {"layer.z.0", "layer.z.1", "layer.z.2"};
        assert_string_equal(g.values[out[k]].name, names[k]);
        assert_int_equal(g.values[out[k]].def, (int)g.n_nodes - 1);
        assert_int_equal(g.nodes[g.n_nodes - 1].out[k], out[k]);
    }
    assert_int_equal(g.values[out[0]].dims[1], 64);
    FAILS(LN_EINTERNAL, "(add) has 2 inputs and 3 outputs", ln_graph_check(&g, "build", err));
    n.n_out = 1, n.in[1] = 1000;
    assert_int_equal(ln_g_node(&g, "bad", &n, out), -1);
    assert_true(out[0] == -1 && out[1] == -1);
    FAILS(LN_EINTERNAL, "input 1 of layer.bad (add) is no value", ln_graph_check(&g, "build", err));
    ln_graph_close(&g);
}

static void other_shapes_are_refused(void **state) {
    (void)state;
    const ln_format bfp = {LN_FORMAT_BFP, 4, 32};
    for (int k = 0; k < 3; k++) {
        ln_graph g;
        ln_graph_open(&g);
        const ln_v x = ln_g_embed(&g, "x", ln_g_weight(&g, "table", LN_F32, 0, 50, 64), 1, 0);
        const ln_v w = k == 0   ? x
                       : k == 1 ? ln_g_convert(&g, "x.bfp", x, bfp)
                                : ln_g_state(&g, "kv", 0, LN_F32, 0, 1, (const int64_t[]){1});
        ln_g_linear(&g, "y", x, w, -1); /* of a symbolic size, in integers, without columns */
        FAILS(LN_EINTERNAL, "wants x[R,C] and", ln_graph_check(&g, "build", err));
        ln_graph_close(&g);
    }
}

static void kernels_of_packed_weights_take_no_others(void **state) {
    (void)state;
    for (int trainable = 0; trainable < 2; trainable++)
        for (ln_isa isa = LN_ISA_PLAIN; isa < LN_ISA_COUNT; isa++) {
            ln_graph g;
            ln_dev *d;
            build(&g, trainable);
            OK(ln_cpu_open_level(&d, isa, err));
            OK(ln_graph_lower(&g, ln_device_cpu.lower, d, ln_device_cpu.lower, d, &(ln_bounds){9, 9, 1}, 4,
                              &lowering, err));
            const bool none = trainable && isa > LN_ISA_PLAIN;
            assert_int_equal(lowering.nodes[0].kernel == NULL, none); /* embed */
            assert_non_null(lowering.nodes[1].kernel);                /* rmsnorm reads the vector in place */
            assert_int_equal(lowering.nodes[2].kernel == NULL, none);
            ln_device_cpu.close(&d);
            ln_graph_close(&g);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_trainable_is_an_operand_like_a_weight),
                                       cmocka_unit_test(states_have_types_and_dimensions),
                                       cmocka_unit_test(nodes_have_several_outputs),
                                       cmocka_unit_test(other_shapes_are_refused),
                                       cmocka_unit_test(kernels_of_packed_weights_take_no_others)};
    return cmocka_run_group_tests_name("kinds", tests, NULL, NULL);
}
