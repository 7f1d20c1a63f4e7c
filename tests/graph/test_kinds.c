/* Operands of any kind: an op takes a weight that training changes wherever it takes one that it does not,
 * and a device that reads packed weights says that it has no kernel for the others. */
#include "../common.h"
#include "device/cpu/exec.h"

static ln_lowering lowering;

/* y = norm(embed) w^T + b, with every weight of one kind. */
static ln_v build(ln_graph *g, bool trainable) {
    ln_v (*weight)(ln_graph *, const char *, ln_dtype, int, int64_t, int64_t) =
        trainable ? ln_g_trainable : ln_g_weight;
    ln_graph_open(g);
    ln_g_layer(g, -1, "");
    const ln_v x = ln_g_embed(g, "x", weight(g, "table", LN_BF16, 0, 50, 64), 1),
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

static void other_shapes_are_refused(void **state) {
    (void)state;
    const ln_format bfp = {LN_FORMAT_BFP, 4, 32};
    for (int k = 0; k < 3; k++) {
        ln_graph g;
        ln_graph_open(&g);
        const ln_v x = ln_g_embed(&g, "x", ln_g_weight(&g, "table", LN_F32, 0, 50, 64), 1);
        const ln_v w = k == 0 ? x : k == 1 ? ln_g_convert(&g, "x.bfp", x, bfp) : ln_g_state(&g, "kv", 0, 0);
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
                                       cmocka_unit_test(other_shapes_are_refused),
                                       cmocka_unit_test(kernels_of_packed_weights_take_no_others)};
    return cmocka_run_group_tests_name("kinds", tests, NULL, NULL);
}
