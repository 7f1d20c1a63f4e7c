/* States of a graph: without LN_STATE_DISJOINT, no node replaces a version of a state in the stage in which
 * another node uses it, and every node uses the newest version. */
/* run: quick */
#include "../common.h"
#include "ops/ops.h"

/* Whether node i of the graph reads or replaces a version of the state in this slot, which has no property.
 */
static bool uses_state(const ln_graph *g, size_t i, int slot, bool replaces_only) {
    const ln_node *n = &g->nodes[i];
    for (int k = 0; !n->dead && k < n->n_in; k++) {
        const ln_value *v = &g->values[n->in[k]];
        const bool replaces = (ln_ops[n->op].props & LN_PROP_EFFECT) && k < n->n_out;
        if (v->kind == LN_KIND_STATE && v->slot == slot && !(v->flags & LN_STATE_DISJOINT) &&
            (replaces || !replaces_only))
            return true;
    }
    return false;
}
/* In a stage, whose nodes run without a barrier, no node replaces a version of a state without
 * LN_STATE_DISJOINT that another node reads or replaces. Returns how many pairs of nodes of different stages,
 * one of which replaces a version that the other uses, the check has seen. */
static int check_states(const ln_graph *g, const ln_temp_plan *p, int n_slots) {
    int pairs = 0;
    for (int slot = 0; slot < n_slots; slot++)
        for (size_t i = 0; i < g->n_nodes; i++)
            for (size_t j = 0; j < g->n_nodes; j++) {
                if (i == j || !uses_state(g, i, slot, true) || !uses_state(g, j, slot, false)) continue;
                pairs++;
                if (p->stage[i] == p->stage[j])
                    fail_msg("%s and %s use state %d in stage %d without a barrier",
                             g->values[g->nodes[i].out[0]].name, g->values[g->nodes[j].out[0]].name, slot,
                             p->stage[i]);
            }
    return pairs;
}

static bool takes_defaults(const ln_dev *dev, const ln_lower_ask *ask, ln_lower_answer *answer) {
    return (void)dev, (void)ask, (void)answer, false;
}
/* Plans the nodes of a graph with a state: x, kv1 = write(kv0), kv2 = write(kv1), y = read(kv2), kv3 =
 * write(kv2), z = read(kv3). No temp that they read is made in between, so that the state alone decides about
 * stages. Checks the plan; stages[i] is the stage of node i. Returns the number of stages. */
static int plan_state(unsigned flags, int slot, int stages[6], int *pairs) {
    ln_graph g;
    ln_temp_plan p;
    const ln_bounds bounds = {.T = 4, .N = 4, .B = 1};
    ln_p_kv kv = {.n_kv_heads = 2, .head_dim = 16, .v_dim = 16, .page_len = 32, .pages_per_block = 1};
    ln_p_attn a = {.kv = kv, .n_heads = 2, .scale = 1};
    ln_graph_open(&g);
    ln_v x = ln_g_embed(&g, "x", ln_g_weight(&g, "table", LN_F32, 0, 50, 32), 1, 0);
    ln_v s = ln_g_state(&g, "kv0", slot, LN_F32, flags, 1, (const int64_t[]){1});
    s = ln_g_kv_write(&g, "kv1", s, x, x, &kv);
    s = ln_g_kv_write(&g, "kv2", s, x, x, &kv);
    ln_g_output(&g, ln_g_attn_paged(&g, "y", x, s, -1, &a));
    s = ln_g_kv_write(&g, "kv3", s, x, x, &kv);
    ln_g_output(&g, ln_g_attn_paged(&g, "z", x, s, -1, &a));
    ln_lowering l;
    OK(ln_graph_lower(&g, takes_defaults, NULL, takes_defaults, NULL, &bounds, 4, &l, err));
    OK(ln_graph_check(&g, "a test", err));
    OK(ln_graph_plan(&g, &l, &bounds, 4, &p, err));
    *pairs = check_states(&g, &p, slot + 1);
    for (int i = 0; i < 6; i++) stages[i] = p.stage[i];
    ln_graph_close(&g);
    return p.n_stages;
}

/* Writers of a state share a stage only if its versions are disjoint (a running sum, for example, is not):
 * otherwise a barrier separates two writers, a writer and a later reader, a reader and a later writer. */
static void test_states(void **state) {
    (void)state;
    int stages[6], pairs;
    for (int slot = 0; slot < 40; slot += 13) { /* of any number of states */
        assert_int_equal(plan_state(LN_STATE_DISJOINT, slot, stages, &pairs), 3);
        /* x and both writers; the first reader and the writer after it; the reader of what that one wrote */
        static const int disjoint[6] = {0, 0, 0, 1, 1, 2}, barriers[6] = {0, 0, 1, 2, 3, 4};
        assert_memory_equal(stages, disjoint, sizeof disjoint);
        assert_int_equal(pairs, 0); /* check_states is about the other states */
        assert_int_equal(plan_state(0, slot, stages, &pairs), 5);
        assert_memory_equal(stages, barriers, sizeof barriers);
        assert_int_equal(pairs, 3 * 4); /* each of three writers with each of the other four nodes */
    }
}

static void test_old_versions(void **state) {
    (void)state;
    ln_graph g;
    ln_p_kv p = {.n_kv_heads = 2, .head_dim = 16, .v_dim = 16, .page_len = 32, .pages_per_block = 1};
    ln_p_attn a = {.kv = p, .n_heads = 2, .scale = 1};
    ln_graph_open(&g);
    ln_v x = ln_g_embed(&g, "x", ln_g_weight(&g, "table", LN_F32, 0, 50, 32), 1, 0);
    ln_v kv = ln_g_state(&g, "kv", 0, LN_F32, 0, 1, (const int64_t[]){1});
    ln_v kv1 = ln_g_kv_write(&g, "kv1", kv, x, x, &p);
    ln_g_output(&g, ln_g_attn_paged(&g, "y", x, kv, -1, &a)); /* reads what kv1 has overwritten */
    FAILS(LN_EINTERNAL, "node 2 (attn_paged) uses version kv of a state, which kv1",
          ln_graph_check(&g, "a test", err));
    g.values[kv1].flags = LN_STATE_DISJOINT; /* a version that lost a property of its state */
    FAILS(LN_EINTERNAL, "kv1 (kv_write) is no version", ln_graph_check(&g, "a test", err));
    ln_graph_close(&g);
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_states), cmocka_unit_test(test_old_versions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
