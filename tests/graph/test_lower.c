/* lower: the answers of a device become formats, fusions, layouts and reuse in place, and answers that do
 * not fit the graph are rejected. Devices of the test's own show the pass; the AMX level of the CPU device,
 * which the machine need not have for that, shows what it chooses. */
/* run: quick */
#include "../common.h"
#include "device/cpu/exec.h"
#include "graph/grad.h"

static ln_lowering lowering;
static const ln_format bf16 = {LN_FORMAT_BF16, 0, 0}, pairs = {LN_FORMAT_I8PAIR, 4, 64};

/* ---- devices of the test's own ---- */

static ln_op asked[3][64];
static int n_asked[3];
static bool defaults(const ln_dev *dev, const ln_lower_ask *q, ln_lower_answer *a) {
    (void)dev, (void)a;
    if (!q->candidate && n_asked[q->sweep] < 64) asked[q->sweep][n_asked[q->sweep]++] = (ln_op)q->op;
    return false;
}
static bool stores_narrow(const ln_dev *dev, const ln_lower_ask *q, ln_lower_answer *a) {
    (void)dev;
    if (q->sweep == LN_LOWER_STORAGE && q->op == LN_OP_RMSNORM) a->layout[0] = LN_LAYOUT_NARROW;
    return false;
}
static bool reads_and_stores_narrow(const ln_dev *dev, const ln_lower_ask *q, ln_lower_answer *a) {
    if (q->op == LN_OP_LINEAR) a->readable[0] |= 1u << LN_LAYOUT_NARROW;
    if (q->sweep == LN_LOWER_STORAGE && q->op == LN_OP_RMSNORM)
        assert_int_equal(q->readable[0] >> LN_LAYOUT_NARROW & 1, 1);
    return stores_narrow(dev, q, a);
}
static bool wants_pairs(const ln_dev *dev, const ln_lower_ask *q, ln_lower_answer *a) {
    (void)dev;
    if (q->op == LN_OP_LINEAR) a->in_format[0] = pairs;
    return false;
}

/* Builds linear(convert(rmsnorm(embed))) and, with `other`, an add that reads the norm too. */
static void build(ln_graph *g, ln_format to, bool other) {
    const ln_groups enc = {to.bits, to.group};
    ln_graph_open(g);
    ln_g_layer(g, -1, "");
    const ln_v x = ln_g_embed(g, "x", ln_g_weight(g, "table", LN_BF16, 0, 50, 128), 1, 0),
               n = ln_g_rmsnorm(g, "norm", x, ln_g_weight(g, "w", LN_F32, 1, 128, 0), 1e-6f, 0);
    const ln_v c = to.kind == LN_FORMAT_F32 ? n : ln_g_convert(g, "norm.c", n, to);
    ln_g_output(g, ln_g_linear(g, "y", c,
                               ln_g_encoded(g, "wy", ln_encoding_of(LN_BF16, enc), 2, 2,
                                            (const int64_t[]){64, 128}),
                               -1));
    if (other) ln_g_output(g, ln_g_add(g, "sum", c, c));
    OK(ln_graph_check(g, "a test", err));
}
static ln_status lower_with(ln_graph *g, ln_lower_fn *choose, ln_lower_fn *store, ln_error *err) {
    return ln_graph_lower(g, choose, NULL, store, NULL, &(ln_bounds){64, 64, 1}, 4, &lowering, err);
}

static void every_node_is_asked_once_in_each_sweep(void **state) {
    (void)state;
    ln_graph g;
    build(&g, bf16, false);
    memset(n_asked, 0, sizeof n_asked);
    OK(lower_with(&g, defaults, defaults, err));
    assert_int_equal(n_asked[LN_LOWER_FORMATS], 4);
    for (int s = LN_LOWER_READS; s <= LN_LOWER_STORAGE; s++) { /* the conversion is part of rmsnorm then */
        assert_int_equal(n_asked[s], 3);
        assert_true(asked[s][0] == LN_OP_EMBED && asked[s][1] == LN_OP_RMSNORM &&
                    asked[s][2] == LN_OP_LINEAR);
    }
    for (size_t i = 0; i < g.n_values; i++)
        if (g.values[i].kind == LN_KIND_TEMP) assert_int_equal(g.values[i].layout, LN_LAYOUT_ROWS);
    ln_graph_close(&g);
}

/* Ranks exchange what a product reads as bf16, unless something else reads the whole value. */
static void parts_are_rounded_before_a_gather(void **state) {
    static const char *const want[] = {"embed rmsnorm all_gather linear ", "embed rmsnorm all_gather convert "
                                                                           "linear add "};
    (void)state;
    for (int other = 0; other < 2; other++) {
        ln_graph g;
        char ops[128] = "";
        ln_graph_open(&g);
        ln_g_layer(&g, -1, "");
        const ln_v x = ln_g_embed(&g, "x", ln_g_weight(&g, "table", LN_BF16, 0, 50, 128), 1, 0),
                   n = ln_g_rmsnorm(&g, "norm", x, ln_g_weight(&g, "w", LN_F32, 1, 128, 0), 1e-6f, 0),
                   all = ln_g_all_gather(&g, "all", n, &(ln_p_gather){.n_ranks = 2, .cols = 256});
        ln_g_output(&g, ln_g_linear(&g, "y", all, ln_g_weight(&g, "wy", LN_BF16, 2, 64, 256), -1));
        if (other) ln_g_output(&g, ln_g_add(&g, "sum", all, all));
        OK(ln_graph_cast(&g, LN_POLICY_FAST, err));
        OK(lower_with(&g, defaults, defaults, err));
        OK(ln_graph_check(&g, "lower", err));
        for (size_t i = 0; i < g.n_nodes; i++) {
            const ln_node *node = &g.nodes[i];
            if (node->dead) continue;
            (void)snprintf(ops + strlen(ops), sizeof ops - strlen(ops), "%s ", ln_ops[node->op].name);
            if (node->op == LN_OP_ALL_GATHER)
                assert_int_equal(g.values[node->out[0]].format.kind, other ? LN_FORMAT_F32 : LN_FORMAT_BF16);
        }
        assert_string_equal(ops, want[other]);
        ln_graph_close(&g);
    }
}

static void a_layout_that_a_reader_cannot_read_is_refused(void **state) {
    (void)state;
    ln_graph g;
    build(&g, bf16, false);
    FAILS(LN_EINTERNAL, "norm in layout 1", lower_with(&g, defaults, stores_narrow, err));
    ln_graph_close(&g);
    build(&g, bf16, false);
    OK(lower_with(&g, defaults, reads_and_stores_narrow, err));
    ln_graph_close(&g);
    build(&g, bf16, true); /* add reads rows only */
    ln_error e = {0};
    n_asked[0] = 0;
    assert_int_equal(lower_with(&g, defaults, stores_narrow, &e), LN_EINTERNAL);
    ln_graph_close(&g);
}

static void a_format_without_a_conversion_is_refused(void **state) {
    (void)state;
    ln_graph g;
    build(&g, (ln_format){LN_FORMAT_BFP, 4, 64}, false);
    OK(lower_with(&g, wants_pairs, defaults, err));
    int n = 0;
    for (size_t i = 0; i < g.n_values; i++)
        if (g.values[i].format.kind == LN_FORMAT_I8PAIR)
            n++, assert_string_equal(g.values[i].name, "norm.i8pair4g64");
    assert_int_equal(n, 1);
    OK(ln_graph_check(&g, "a test", err));
    ln_graph_close(&g);
    build(&g, (ln_format){0}, false);
    FAILS(LN_EINTERNAL, "wants norm as i8pair4g64 for linear", lower_with(&g, wants_pairs, defaults, err));
    ln_graph_close(&g);
}

/* A pass that breaks a shape, a format or an operand is named, and so is the value. */
static void a_pass_that_breaks_a_shape_is_named(void **state) {
    (void)state;
    ln_graph g;
    build(&g, bf16, true);
    const ln_v y = g.outputs[0], sum = g.outputs[1];
    g.values[y].dims[1] = 63;
    FAILS(LN_EINTERNAL, "after fuse: y is [T,63], linear makes [T,64]", ln_graph_check(&g, "fuse", err));
    g.values[y].dims[1] = 64;
    g.values[y].dims[0] = LN_DIM_N;
    FAILS(LN_EINTERNAL, "after fuse: y is [N,64], linear makes [T,64]", ln_graph_check(&g, "fuse", err));
    g.values[y].dims[0] = LN_DIM_T;
    g.values[y].format = bf16; /* linear cannot round */
    FAILS(LN_EINTERNAL, "after fuse: y is [T,64] bf16, linear makes [T,64]", ln_graph_check(&g, "fuse", err));
    g.values[y].format = (ln_format){0};
    g.nodes[g.values[sum].def].in[1] = y;
    FAILS(LN_EINTERNAL, "after cast: graph: op add -> sum wants two operands of one shape",
          ln_graph_check(&g, "cast", err));
    ln_graph_close(&g);
}

#ifdef LN_X86
/* ---- what AMX chooses ---- */

static void lower_at(ln_graph *g, ln_isa isa, const ln_bounds *b) {
    ln_dev *d;
    OK(ln_cpu_open_level(&d, isa, err));
    OK(ln_graph_lower(g, ln_device_cpu.lower, d, ln_device_cpu.lower, d, b, 4, &lowering, err));
    ln_device_cpu.close(&d);
}
static void lower(ln_graph *g, const ln_bounds *b) { lower_at(g, LN_ISA_AMX, b); }

/* A backward product reads values that are rounded to bf16 on AMX; on the other levels it reads what was
 * converted, and the conversion is removed unless another product reads it. */
static void test_backward(void **state) {
    (void)state;
    for (int isa = 0; isa < LN_ISA_COUNT; isa++)
        for (int other = 0; other < 2; other++) {
            ln_graph g;
            ln_graph_open(&g);
            ln_g_layer(&g, -1, "");
            const ln_v x = ln_g_embed(&g, "x", ln_g_weight(&g, "table", LN_F32, 0, 50, 128), 1, 0);
            ln_g_output(&g, x); /* so that embed cannot round as it stores */
            ln_g_output(&g, ln_g_linear_back(&g, "dx", x, ln_g_weight(&g, "w", LN_BF16, 1, 128, 64)));
            if (other)
                ln_g_output(&g, ln_g_linear(&g, "y", x, ln_g_weight(&g, "v", LN_BF16, 2, 64, 128), -1));
            OK(ln_graph_cast(&g, LN_POLICY_TRAIN, err));
            OK(ln_graph_check(&g, "cast", err));
            lower_at(&g, (ln_isa)isa, &(ln_bounds){64, 64, 1});
            OK(ln_graph_check(&g, "lower", err));
            int converted = 0;
            for (size_t i = 0; i < g.n_nodes; i++) {
                const ln_node *n = &g.nodes[i];
                converted += !n->dead && n->op == LN_OP_CONVERT;
                if (n->op != LN_OP_LINEAR_BACK) continue;
                const ln_value *dy = &g.values[n->in[0]];
                assert_int_equal(dy->format.kind, isa == LN_ISA_AMX ? LN_FORMAT_BF16 : LN_FORMAT_F32);
                assert_true(isa == LN_ISA_AMX || n->in[0] == x);
            }
            if (converted != (isa == LN_ISA_AMX || other))
                fail_msg("on %s, %d other products: %d conversions", ln_cpu_isa_name((ln_isa)isa), other,
                         converted);
            ln_graph_close(&g);
        }
}

/* Both products of a gated layer are fused into one op if they read the same x, their weights are of one type
 * and have no biases, and the products have no other consumers. */
static void test_gated_by_row(void **state) {
    (void)state;
    enum { ALIKE, GELU, BIAS, TYPES, READ, OTHER_X, CASES };
    for (int k = 0; k < CASES; k++) {
        ln_graph g;
        ln_error err = {0};
        const ln_groups enc = {4, 64};
        const ln_format bfp = ln_format_of(LN_FORMAT_BFP, enc);
        ln_graph_open(&g);
        ln_g_layer(&g, -1, "");
        ln_v x = ln_g_convert(&g, "bfp",
                              ln_g_embed(&g, "x", ln_g_weight(&g, "table", LN_BF16, 0, 50, 128), 1, 0), bfp);
        ln_v bias = k == BIAS ? ln_g_weight(&g, "b", LN_F32, 3, 96, 0) : -1;
        ln_v a = ln_g_linear(&g, "gate", x,
                             ln_g_encoded(&g, "wg", ln_encoding_of(LN_BF16, enc), 1, 2,
                                          (const int64_t[]){96, 128}),
                             bias);
        ln_v x2 =
            k == OTHER_X
                ? ln_g_convert(&g, "bfp2",
                               ln_g_embed(&g, "x2", ln_g_weight(&g, "table2", LN_BF16, 4, 50, 128), 1, 0),
                               bfp)
                : x;
        ln_v b = ln_g_linear(&g, "up", x2,
                             ln_g_encoded(&g, "wu", ln_encoding_of(k == TYPES ? LN_F16 : LN_BF16, enc), 2, 2,
                                          (const int64_t[]){96, 128}),
                             -1);
        ln_g_output(&g,
                    ln_g_mul(&g, "act", k == GELU ? ln_g_gelu_tanh(&g, "f", a) : ln_g_silu(&g, "f", a), b));
        if (k == READ) ln_g_output(&g, b);
        assert_int_equal(ln_graph_check(&g, "a test", &err), LN_OK);
        assert_int_equal(ln_graph_fuse(&g), 1);
        lower(&g, &(ln_bounds){64, 64, 1});
        int ops[LN_OP_COUNT] = {0};
        for (size_t i = 0; i < g.n_nodes; i++) ops[g.nodes[i].op] += !g.nodes[i].dead;
        assert_int_equal(ops[LN_OP_LINEAR_GATED], k < BIAS);
        assert_int_equal(ops[LN_OP_LINEAR], k < BIAS ? 0 : 2);
        for (size_t i = 0; i < g.n_nodes; i++)
            if (!g.nodes[i].dead && g.nodes[i].op == LN_OP_LINEAR_GATED)
                assert_int_equal(g.nodes[i].p.gate.act, k == GELU ? LN_ACT_GELU_TANH : LN_ACT_SILU);
        assert_int_equal(ln_graph_check(&g, "a test", &err), LN_OK);
        ln_graph_close(&g);
    }
}

/* If a conversion to int8 pairs is the only consumer of such a layer's output, that output is stored in row
 * panels, and the result of the conversion in the same buffer. */
static void test_panels(void **state) {
    (void)state;
    enum { ALONE, READ, NARROW, NO_PAIR, CASES };
    for (int k = 0; k < CASES; k++) {
        ln_graph g;
        ln_error err = {0};
        const ln_groups enc = {4, 32};
        const ln_format bfp = ln_format_of(LN_FORMAT_BFP, enc);
        const int64_t F = k == NARROW ? 128 : 256; /* narrow rows have no space after their columns */
        ln_graph_open(&g);
        ln_g_layer(&g, -1, "");
        ln_v made,
            x = ln_g_convert(&g, "bfp",
                             ln_g_embed(&g, "x", ln_g_weight(&g, "table", LN_BF16, 0, 50, 128), 1, 0), bfp);
        ln_v a = ln_g_silu(&g, "f",
                           ln_g_linear(&g, "gate", x,
                                       ln_g_encoded(&g, "wg", ln_encoding_of(LN_BF16, enc), 1, 2,
                                                    (const int64_t[]){F, 128}),
                                       -1));
        ln_v act = k == NO_PAIR ? a
                                : ln_g_mul(&g, "act", a,
                                           ln_g_linear(&g, "up", x,
                                                       ln_g_encoded(&g, "wu", ln_encoding_of(LN_BF16, enc), 2,
                                                                    2, (const int64_t[]){F, 128}),
                                                       -1));
        made = ln_g_convert(&g, "made", act, bfp);
        ln_g_output(&g, ln_g_linear(&g, "down", made,
                                    ln_g_encoded(&g, "wd", ln_encoding_of(LN_BF16, enc), 3, 2,
                                                 (const int64_t[]){64, F}),
                                    -1));
        if (k == READ) ln_g_output(&g, act);
        assert_int_equal(ln_graph_check(&g, "a test", &err), LN_OK);
        ln_graph_fuse(&g);
        lower(&g, &(ln_bounds){64, 64, 1});
        for (size_t i = 0; i < g.n_values; i++)
            assert_int_equal(g.values[i].layout == LN_CPU_PANELS,
                             k == ALONE && ((ln_v)i == act || (ln_v)i == made));
        for (int i = 0; i < 2; i++) { /* the digits reuse the buffer of the values if there is space for a
                                         last panel of fewer than 32 rows */
            ln_temp_plan plan;
            ln_program p;
            const ln_bounds bounds = {i == 1 ? 63 : 64, 64, 1};
            const bool in_place = k == ALONE && !i;
            lower(&g, &bounds);
            assert_int_equal(ln_graph_plan(&g, &lowering, &bounds, 4, &plan, &err), LN_OK);
            assert_int_equal(ln_program_make(&g, &lowering, &plan, &g.arena, &p, &err), LN_OK);
            const ln_pvalue *v = ln_program_value(&p, made);
            assert_int_equal(plan.storage[made].alias, in_place ? act : -1);
            assert_int_equal(ln_live_offset(v, 31) - ln_live_offset(v, 32),
                             in_place ? 32 * lowering.row_bytes[made] : 0);
            assert_int_equal(ln_live_layout(v, 31), LN_LAYOUT_ROWS);
            assert_int_equal(ln_live_layout(v, 32), g.values[made].layout);
        }
        ln_graph_close(&g);
    }
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_node_is_asked_once_in_each_sweep),
        cmocka_unit_test(parts_are_rounded_before_a_gather),
        cmocka_unit_test(a_layout_that_a_reader_cannot_read_is_refused),
        cmocka_unit_test(a_format_without_a_conversion_is_refused),
        cmocka_unit_test(a_pass_that_breaks_a_shape_is_named),
#ifdef LN_X86
        cmocka_unit_test(test_backward),
        cmocka_unit_test(test_gated_by_row),
        cmocka_unit_test(test_panels),
#endif
    };
    return cmocka_run_group_tests_name("lower", tests, NULL, NULL);
}
