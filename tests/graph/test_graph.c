/* Guarantees of the graph: no two values that are live at the same time share a byte, every plan is as
 * small as its largest stage, a fused graph equals the expanded one, nodes of one stage need no barrier,
 * and an error is reported with the name of the node. */
/* run: quick asan */
#include "../base/cm.h"
#include "../common.h"
#include "base/file.h"
#include "graph/place.h"
#include "ops/ops.h"

static const ln_format bf16 = {LN_FORMAT_BF16, 0, 0};

/* Builds layers of a gated MLP with a residual, as in a decoder; the operands of products are rounded to
 * bf16. */
static ln_v build(ln_graph *g, int64_t D, int64_t F, int layers) {
    ln_g_layer(g, -1, "");
    ln_v x = ln_g_embed(g, "x", ln_g_weight(g, "table", LN_BF16, 0, 50, D), 1, 0);
    for (int l = 0; l < layers; l++) {
        ln_g_layer(g, l, "layer.");
        ln_v n =
            ln_g_convert(g, "rounded",
                         ln_g_rmsnorm(g, "norm", x, ln_g_weight(g, "w", LN_F32, 1, D, 0), 1e-6f, 0), bf16);
        ln_v a = ln_g_linear(g, "gate", n, ln_g_weight(g, "wg", LN_BF16, 2, F, D), -1);
        ln_v b = ln_g_linear(g, "up", n, ln_g_weight(g, "wu", LN_BF16, 3, F, D), -1);
        ln_v y = ln_g_mul(g, "act", ln_g_silu(g, "silu", a), b);
        ln_g_gelu_tanh(g, "unused", y);
        ln_v z =
            ln_g_convert(g, "act_rounded", y, bf16); /* y has a second consumer, but that node is pruned */
        x = ln_g_add(g, "residual", x, ln_g_linear(g, "down", z, ln_g_weight(g, "wd", LN_BF16, 4, D, F), -1));
    }
    ln_v out = ln_g_gather_rows(g, "rows", x);
    ln_g_output(g, out);
    return out;
}

static ln_v root(const ln_temp_plan *p, ln_v v) {
    while (p->storage[v].alias >= 0) v = p->storage[v].alias;
    return v;
}

/* Three devices: one reads x of a product as bf16 (2 bytes an element) and fuses gated pairs of products, one
 * takes the defaults, one is the same in f32 rows but says that it works in place nowhere. */
static bool narrow_products(const ln_dev *dev, const ln_lower_ask *q, ln_lower_answer *a) {
    const bool product = q->op == LN_OP_LINEAR || q->op == LN_OP_LINEAR_GATED;
    (void)dev;
    if (product && q->in[0].format.kind == LN_FORMAT_BF16) a->readable[0] |= 1u << LN_LAYOUT_NARROW;
    if (q->n_out && q->out[0].format.kind == LN_FORMAT_BF16 && q->readable[0] >> LN_LAYOUT_NARROW & 1)
        a->layout[0] = LN_LAYOUT_NARROW, a->row_bytes[0] = 2 * q->out[0].dims[1];
    return q->in[0].format.kind == LN_FORMAT_BF16;
}
static bool defaults(const ln_dev *dev, const ln_lower_ask *q, ln_lower_answer *a) {
    return (void)dev, (void)q, (void)a, false;
}
/* Lowers and plans a graph for a device, and makes its program. */
static ln_lowering lowering;
static ln_program program;
static void plan_for(ln_graph *g, ln_lower_fn *device, const ln_bounds *b, int real_bytes, ln_temp_plan *p) {
    OK(ln_graph_lower(g, device, NULL, device, NULL, b, real_bytes, &lowering, err));
    OK(ln_graph_check(g, "a test", err));
    OK(ln_graph_plan(g, &lowering, b, real_bytes, p, err));
    OK(ln_program_make(g, &lowering, p, &g->arena, &program, err));
}

/* The program says of every value and of every node that runs what the graph, the lowering and the plan say,
 * and refers to none of them. */
static void check_program(const ln_graph *g, const ln_temp_plan *t, const ln_program *p) {
    int n = 0;
    assert_true(p->abi == LN_DEVICE_ABI && p->size == sizeof *p && p->n_stages == t->n_stages);
    assert_true(p->value_size == sizeof(ln_pvalue) && p->node_size == sizeof(ln_pnode));
    assert_true(p->bounds.T == t->bounds.T && p->bounds.N == t->bounds.N && p->bounds.B == t->bounds.B);
    assert_true(p->temp_bytes == t->temp_bytes && p->temp_bound == t->temp_bound);
    assert_int_equal(p->n_values, g->n_values);
    for (int i = 0; i < p->n_values; i++) {
        const ln_pvalue *v = ln_program_value(p, i);
        const ln_value *x = &g->values[i];
        const ln_storage *at = &t->storage[i];
        assert_string_equal(v->name, x->name);
        assert_ptr_not_equal(v->name, x->name);
        assert_true(v->kind == x->kind && v->dtype == x->dtype && v->layout == x->layout &&
                    v->n_dims == x->n_dims && v->slot == x->slot && v->layer == x->layer &&
                    v->flags == x->flags && ln_format_same(v->format, x->format) &&
                    v->enc.bits == x->enc.bits && v->enc.group == x->enc.group);
        assert_memory_equal(v->dims, x->dims, sizeof x->dims);
        assert_true(v->offset == at->offset && v->tail_offset == at->tail_offset && v->bytes == at->bytes &&
                    v->first == at->first && v->last == at->last);
        assert_true(v->row_bytes == lowering.row_bytes[i] && v->tail_rows == lowering.tail_rows[i]);
        assert_true(!v->data && !v->layout_id && !v->read_bytes);
    }
    for (size_t i = 0; i < g->n_nodes; i++) {
        const ln_node *x = &g->nodes[i];
        if (x->dead) continue;
        const ln_pnode *m = ln_program_node(p, n);
        assert_true(m->op == x->op && m->n_in == x->n_in && m->n_out == x->n_out && m->layer == x->layer &&
                    (int)m->props == ln_ops[x->op].props && m->stage == t->stage[i]);
        assert_memory_equal(m->in, x->in, sizeof x->in);
        assert_memory_equal(m->out, x->out, sizeof x->out);
        assert_memory_equal(&m->p, &x->p, ln_ops[x->op].params_bytes);
        assert_true(m->kernel == lowering.nodes[i].kernel && m->tolerance == lowering.nodes[i].tolerance);
        assert_true(p->stage_begin[m->stage] <= n && n < p->stage_begin[m->stage + 1]);
        n++;
    }
    assert_int_equal(p->n_nodes, n);
    assert_true(p->stage_begin[0] == 0 && p->stage_begin[p->n_stages] == n);
    assert_int_equal(p->n_outputs, g->n_outputs);
    for (int i = 0; i < p->n_outputs; i++) assert_int_equal(p->outputs[i], g->outputs[i]);
}

/* Assigns each node to a chain: nodes of a stage that depend on each other, directly or not, are of one
 * chain. In a program of a single row, chains run concurrently. */
static int *chains_of(const ln_graph *g, const ln_temp_plan *p) {
    int *chain = calloc(g->n_nodes + 1, sizeof *chain);
    assert_non_null(chain);
    for (size_t i = 0; i < g->n_nodes; i++) {
        const ln_node *n = &g->nodes[i];
        chain[i] = (int)i;
        for (int k = 0; !n->dead && k < n->n_in; k++) {
            const int def = g->values[n->in[k]].def;
            if (def < 0 || p->stage[def] != p->stage[i]) continue;
            const int old = chain[def];
            for (size_t j = 0; j <= i; j++) chain[j] = chain[j] == old ? (int)i : chain[j];
        }
    }
    return chain;
}
/* Follows the program's order without computing values, and checks buffer reuse: when a node reads a
 * value, its buffer still holds that value, though other values may have used it before; nodes of one
 * stage that use the same buffer are row-wise and of one chain. */
static void check_places(const ln_graph *g, const ln_temp_plan *p) {
    ln_v *lies = calloc(g->n_values + 1, sizeof *lies);
    int *chain = chains_of(g, p);
    assert_non_null(lies);
    for (size_t i = 0; i < g->n_nodes; i++) {
        const ln_node *n = &g->nodes[i];
        if (n->dead) continue;
        for (int k = 0; k < n->n_in + n->n_out; k++) {
            const ln_v v = k < n->n_in ? n->in[k] : n->out[k - n->n_in], r = root(p, v);
            if (g->values[v].kind != LN_KIND_TEMP) continue;
            if (k < n->n_in && lies[r] != v)
                fail_msg("%s reads %s, whose place %s took", ln_ops[n->op].name, g->values[v].name,
                         g->values[lies[r]].name);
            if (k < n->n_in) continue;
            lies[r] = v;
            for (size_t j = 0; j < i; j++) {
                const ln_node *other = &g->nodes[j];
                const bool together = !other->dead && p->stage[j] == p->stage[i];
                bool meets = together && root(p, other->out[0]) == r;
                for (int a = 0; a < other->n_in; a++) meets |= together && root(p, other->in[a]) == r;
                if (meets && !(chain[i] == chain[j] &&
                               ln_ops[n->op].props & ln_ops[other->op].props & LN_PROP_ROWWISE &&
                               g->values[n->out[0]].dims[0] == g->values[other->out[0]].dims[0]))
                    fail_msg("%s is made in a place that another node may read meanwhile", g->values[v].name);
            }
        }
    }
    for (size_t i = 0; i < g->n_outputs; i++) assert_int_equal(lies[root(p, g->outputs[i])], g->outputs[i]);
    free(chain);
    free(lies);
}

static void check_plan(const ln_graph *g, const ln_temp_plan *p) {
    check_places(g, p);
    for (size_t i = 0; i < g->n_values; i++)
        for (size_t j = 0; j < i; j++) {
            const ln_storage *a = &p->storage[i], *b = &p->storage[j];
            if (a->offset < 0 || b->offset < 0 || root(p, (ln_v)i) == root(p, (ln_v)j)) continue;
            bool together = a->first <= b->last && b->first <= a->last;
            bool apart = a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset;
            if (together && !apart) fail_msg("%s and %s overlap", g->values[i].name, g->values[j].name);
        }
    for (size_t i = 0; i < g->n_values; i++)
        if (p->storage[i].offset >= 0)
            assert_true(p->storage[i].offset + p->storage[i].bytes <= p->temp_bytes);
    /* A node reads, of values made in its own stage, only rows that the same thread has written. */
    for (size_t i = 0; i < g->n_nodes; i++) {
        const ln_node *n = &g->nodes[i];
        if (n->dead) continue;
        for (int k = 0; k < n->n_in; k++) {
            int def = g->values[n->in[k]].def;
            if (def < 0 || p->stage[def] != p->stage[i]) continue;
            assert_true(ln_ops[n->op].props & LN_PROP_ROWWISE);
            assert_true(ln_ops[g->nodes[def].op].props & LN_PROP_ROWWISE);
        }
    }
}

static void test_plan(void **s) {
    (void)s;
    for (int64_t T = 1; T < 70; T += 13) {
        const bool narrow = T % 2; /* as the first device prefers it: x of products in bf16 */
        ln_graph g;
        ln_temp_plan p;
        ln_graph_open(&g);
        build(&g, 32, 64, 5);
        OK(ln_graph_check(&g, "a test", err));
        assert_int_equal(ln_graph_prune(&g), 5);
        assert_int_equal(ln_graph_fuse(&g), 5);
        ln_bounds b = {T, 3, 2};
        plan_for(&g, narrow ? narrow_products : defaults, &b, 4, &p);
        int n_gated = 0,
            n_narrow = 0; /* both products fused; two roundings fused into the nodes before them */
        for (size_t i = 0; i < g.n_nodes; i++)
            n_gated += !g.nodes[i].dead && g.nodes[i].op == LN_OP_LINEAR_GATED;
        for (size_t i = 0; i < g.n_values; i++) n_narrow += g.values[i].layout == LN_LAYOUT_NARROW;
        assert_int_equal(n_gated, narrow ? 5 : 0);
        assert_int_equal(n_narrow, narrow ? 2 * 5 : 0);
        check_plan(&g, &p);
        check_program(&g, &p, &program);
        assert_int_equal(p.temp_bytes, p.temp_bound);
        ln_temp_plan more; /* a second plan of the graph, for other bounds, leaves the first as it is */
        const ln_bounds b2 = {T + 31, 5, 2};
        OK(ln_graph_plan(&g, &lowering, &b2, 4, &more, err));
        check_plan(&g, &more);
        check_plan(&g, &p);
        ln_program second;
        OK(ln_program_make(&g, &lowering, &more, &g.arena, &second, err));
        check_program(&g, &more, &second);
        check_program(&g, &p, &program);
        assert_true(more.temp_bytes > p.temp_bytes && more.storage != p.storage);
        ln_str text = {0};
        for (int i = 0; i < program.n_nodes; i++) ln_program_node_text(&program, i, &text, &text);
        assert_non_null(strstr(text.data, "x[T,32]"));
        assert_non_null(strstr(text.data, "act[T,64] bf16"));
        assert_true(narrow == (strstr(text.data, "up[T,64]") == NULL));
        assert_null(strstr(text.data, "unused"));
        for (int i = 0; i < program.n_nodes; i++)
            assert_int_not_equal(ln_program_node(&program, i)->op, LN_OP_CONVERT);
        ln_str_free(&text);
        ln_graph_close(&g);
    }
}

/* Runs all passes on a graph of so many layers. Returns the shortest of five processor
 * times, in seconds, so that other processes do not count. Checks the plan when `check` is set. */
static double planning(int layers, bool check) {
    double best = INFINITY;
    for (int i = 0; i < 5; i++) {
        ln_graph g;
        ln_temp_plan p;
        ln_graph_open(&g);
        build(&g, 32, 64, layers);
        ln_bounds b = {33, 3, 2};
        double start = cpu_seconds();
        assert_int_equal(ln_graph_prune(&g), layers);
        OK(ln_graph_check(&g, "prune", err));
        assert_int_equal(ln_graph_fuse(&g), layers);
        OK(ln_graph_check(&g, "fuse", err));
        plan_for(&g, defaults, &b, 4, &p);
        best = LN_MIN(best, cpu_seconds() - start);
        if (check && i == 0) {
            assert_true(g.n_nodes > 5000);
            check_plan(&g, &p);
            assert_int_equal(p.temp_bytes, p.temp_bound);
        }
        ln_graph_close(&g);
    }
    return best;
}
/* A graph of the size of a training step with its backward pass: the plan is correct, takes at most 20 ms,
 * and a time nearly proportional to the number of nodes: 20,000 take at most 80 ms; a quadratic planner
 * would take 16 times as long as for 5,000. An idle host needs 1 ms for 5,000 nodes and 11 ms for 20,000. */
static void test_training_size(void **state) {
    (void)state;
    double one = planning(500, true), four = planning(2000, false);
    print_message("  5,000 nodes planned in %.2f ms, 20,000 in %.2f ms\n", 1e3 * one, 1e3 * four);
    if (getenv("LN_SANITIZED") || getenv("LN_EMULATED")) return;
    assert_true(one <= 0.020);
    assert_true(four <= 0.080);
}

/* Allocation by size, if the lower bound cannot be met, equals its definition: the largest value first, of
 * equal ones the earliest and of those the longest-lived first, each at the lowest offset that is free over
 * its lifetime. */
static void test_allocation_by_size(void **state) {
    (void)state;
    enum { N = 60, STAGES = 40, ROUNDS = 200 };
    uint32_t seed = 3;
#define ANY(n) (int)((seed = seed * 1664525u + 1013904223u) >> 8) % (n)
    for (int round = 0; round < ROUNDS; round++) {
        ln_storage v[N];
        ln_v queue[N];
        bool placed[N] = {false};
        memset(v, 0, sizeof v);
        for (int i = 0; i < N; i++) {
            queue[i] = i;
            v[i].first = ANY(STAGES), v[i].last = v[i].first + ANY(round % 3 ? 4 : STAGES);
            v[i].bytes = 64 * (1 + ANY(12));
        }
        int64_t bytes, most = 0;
        OK(ln_graph_place(v, N, queue, N, 0, &bytes, err));
        for (int i = 0; i < N; i++) {
            const ln_storage *x = NULL;
            for (int k = 0; k < N; k++) {
                const ln_storage *y = &v[k];
                bool better =
                    !placed[k] && (!x || y->bytes > x->bytes ||
                                   (y->bytes == x->bytes &&
                                    (y->first < x->first || (y->first == x->first && y->last > x->last))));
                if (better) x = y;
            }
            int64_t at = 0;
            for (int k = 0; k < N; k++) { /* raise the offset until no placed value is in the way */
                bool meets = placed[k] && v[k].first <= x->last && x->first <= v[k].last &&
                             v[k].offset < at + x->bytes && at < v[k].offset + v[k].bytes;
                if (meets) at = v[k].offset + v[k].bytes, k = -1;
            }
            if (x->offset != at)
                fail_msg("round %d: value %td at %lld instead of %lld", round, x - v, (long long)x->offset,
                         (long long)at);
            placed[x - v] = true;
            most = LN_MAX(most, at + x->bytes);
        }
        assert_int_equal(bytes, most);
    }
#undef ANY
}

static bool overlap(const ln_storage *a, const ln_storage *b) {
    return a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}
/* A conversion that the op before it may do has a buffer apart from what that op reads; other conversions
 * reuse its memory. */
static void test_early_conversions(void **state) {
    (void)state;
    enum { D = 32 };
    for (int early = 0; early < 2; early++) {
        ln_graph g;
        ln_temp_plan p;
        const ln_bounds b = {17, 3, 2};
        ln_graph_open(&g);
        ln_g_layer(&g, -1, "");
        const ln_v w = ln_g_weight(&g, "w", LN_BF16, 1, D, D),
                   x = ln_g_embed(&g, "x", ln_g_weight(&g, "table", LN_BF16, 0, 50, D), 1, 0),
                   y = ln_g_linear(&g, "y", x, w, -1),
                   rounded = ln_g_convert(&g, "rounded", y, (ln_format){.kind = LN_FORMAT_BF16});
        ln_g_output(&g, y);
        ln_g_output(&g, ln_g_linear(&g, "z", rounded, w, -1));
        OK(ln_graph_lower(&g, defaults, NULL, defaults, NULL, &b, 4, &lowering, err));
        lowering.early_converts = early;
        OK(ln_graph_plan(&g, &lowering, &b, 4, &p, err));
        check_plan(&g, &p);
        assert_true(overlap(&p.storage[rounded], &p.storage[x]) == !early);
        assert_false(overlap(&p.storage[rounded], &p.storage[y]));
        ln_graph_close(&g);
    }
}

/* Random graphs of row-wise nodes and products, in any order that a graph allows. */
static void test_places(void **state) {
    (void)state;
    enum { GRAPHS = 400, D = 32 };
    uint32_t seed = 7;
    int taken = 0;
#define ANY(n) (int)((seed = seed * 1664525u + 1013904223u) >> 8) % (n)
    for (int i = 0; i < GRAPHS; i++) {
        ln_graph g;
        ln_temp_plan p;
        ln_v made[40];
        int64_t width[40] = {D};
        int n = 1;
        ln_graph_open(&g);
        ln_g_layer(&g, -1, "");
        made[0] = ln_g_embed(&g, "x", ln_g_weight(&g, "table", LN_BF16, 0, 50, D), 1, 0);
        for (const int most = 3 + ANY(30); n < most; n++) {
            const int first = ANY(3) ? n - 1 : ANY(n), other = ANY(3) ? LN_MAX(n - 2, 0) : ANY(n),
                      second = width[other] == width[first] ? other : first;
            const ln_v a = made[first], b = made[second];
            char name[16];
            width[n] = width[first];
            snprintf(name, sizeof name, "v%d", n);
            switch (ANY(5)) {
            case 0:
                width[n] = ANY(2) ? D : 2 * D,
                made[n] =
                    ln_g_linear(&g, name, a, ln_g_weight(&g, "w", LN_BF16, 1, width[n], width[first]), -1);
                break;
            case 1: made[n] = ln_g_silu(&g, name, a); break;
            case 2:
                made[n] =
                    ln_g_rmsnorm(&g, name, a, ln_g_weight(&g, "norm", LN_F32, 2, width[first], 0), 1e-6f, 0);
                break;
            case 3: made[n] = ln_g_mul(&g, name, a, b); break;
            default: made[n] = ln_g_add(&g, name, a, b); break;
            }
            if (!ANY(8)) ln_g_output(&g, made[n]);
        }
        ln_g_output(&g, made[n - 1]);
        ln_graph_prune(&g);
        OK(ln_graph_check(&g, "a test", err));
        ln_bounds b = {17, 3, 2};
        plan_for(&g, defaults, &b, 4, &p);
        check_plan(&g, &p);
        check_program(&g, &p, &program);
        for (size_t v = 0; v < g.n_values; v++) {
            const int def = g.values[v].def;
            if (p.storage[v].alias >= 0 && !g.nodes[def].dead)
                taken += root(&p, g.nodes[def].in[0]) != root(&p, (ln_v)v);
        }
        ln_graph_close(&g);
    }
#undef ANY
    assert_true(taken > GRAPHS / 10); /* most random graphs have nothing to reuse */
}

/* Runs the program on the reference device, which computes in double. */
static void run(ln_lower_fn *device, bool fuse, double *out, int64_t n) {
    ln_graph g;
    ln_temp_plan p;
    ln_graph_open(&g);
    ln_v y = build(&g, 24, 40, 2);
    ln_graph_prune(&g);
    if (fuse) ln_graph_fuse(&g);
    ln_bounds b = {4, 2, 1};
    OK(ln_graph_lower(&g, device, NULL, defaults, NULL, &b, 8, &lowering, err));
    OK(ln_graph_plan(&g, &lowering, &b, 8, &p, err));
    OK(ln_program_make(&g, &lowering, &p, &g.arena, &program, err));
    static uint16_t w[5][50 * 40];
    static float norm[24];
    uint64_t seed = 3;
    for (int k = 0; k < 5; k++)
        for (int i = 0; i < 50 * 40; i++) w[k][i] = ln_f32_bf16(test_normal(&seed));
    for (int i = 0; i < 24; i++) norm[i] = 1 + test_normal(&seed);
    for (size_t i = 0; i < g.n_values; i++)
        if (g.values[i].kind == LN_KIND_WEIGHT)
            program.values[i].data = g.values[i].slot == 1 ? (void *)norm : (void *)w[g.values[i].slot];
    void *temp = calloc(1, (size_t)p.temp_bytes);
    ln_dev *dev;
    ln_exec *exec;
    ln_dev_options o = {.size = sizeof o};
    OK(ln_device_ref_double.open(&dev, &o, err));
    ln_queue *queue;
    OK(ln_device_ref_double.queue_open(dev, &(ln_queue_options){.size = sizeof(ln_queue_options)}, &queue,
                                       err));
    OK(ln_device_ref_double.prepare(queue, &program, temp, &exec, err));
    static const int32_t ids[4] = {3, 49, 0, 7}, rows[2] = {1, 3};
    ln_step_block *step = calloc(1, (size_t)ln_step_bytes(&b, 0));
    ln_step_init(step, &b, 0);
    step->n_rows = 4, step->n_out = 2, step->n_seqs = 1;
    memcpy(ln_step_ids(step), ids, sizeof ids);
    for (int i = 0; i < 4; i++) ln_step_pos(step)[i] = i;
    memcpy(ln_step_out_rows(step), rows, sizeof rows);
    ln_step_row0(step)[1] = 4;
    uint64_t fence;
    OK(ln_device_ref_double.submit(exec, step, NULL, &fence, err));
    OK(ln_device_ref_double.wait(queue, fence, err));
    free(step);
    memcpy(out, (char *)temp + p.storage[y].offset, (size_t)n * sizeof *out);
    ln_device_ref_double.release(&exec);
    ln_device_ref_double.queue_close(&queue);
    ln_device_ref_double.close(&dev);
    ln_graph_close(&g);
    free(temp);
}

static void test_fused_equals_expanded(void **s) {
    (void)s;
    double a[48], b[48], c[48];
    run(defaults, false, a, 48);
    run(defaults, true, b, 48);
    run(narrow_products, true, c, 48); /* formats and fusions of one device, storage of another */
    assert_memory_equal(a, b, sizeof a);
    assert_memory_equal(a, c, sizeof a);
    assert_true(a[0] == a[0] && a[0] != a[1]);
}

static void test_refusals(void **s) {
    (void)s;
    ln_graph g;
    ln_graph_open(&g);
    ln_v t = ln_g_weight(&g, "table", LN_F32, 0, 50, 24);
    ln_v x = ln_g_embed(&g, "x", t, 1, 0);
    ln_g_linear(&g, "y", x, ln_g_weight(&g, "w", LN_F32, 1, 8, 23), -1);
    FAILS(LN_EINTERNAL, "w[8,23]", ln_graph_check(&g, "a test", err));
    assert_int_equal(ln_g_add(&g, "later", x, x), -1); /* a graph is not extended after an error */
    ln_graph_close(&g);

    ln_graph_open(&g);
    x = ln_g_embed(&g, "x", ln_g_weight(&g, "table", LN_F32, 0, 50, 32), 1, 0);
    ln_v kv = ln_g_state(&g, "kv", 0, LN_F32, LN_STATE_DISJOINT, 1, (const int64_t[]){1});
    ln_p_kv p = {.n_kv_heads = 2, .head_dim = 16, .v_dim = 16, .page_len = 32, .pages_per_block = 1};
    ln_v kv1 = ln_g_kv_write(&g, "kv1", kv, x, x, &p);
    ln_g_kv_write(&g, "kv2", kv, x, x, &p); /* writes to the old version of the cache again */
    assert_true(kv1 >= 0);
    FAILS(LN_EINTERNAL, "uses version kv of a state, which kv1 has replaced",
          ln_graph_check(&g, "a test", err));
    ln_graph_close(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_plan),
                                       cmocka_unit_test(test_training_size),
                                       cmocka_unit_test(test_allocation_by_size),
                                       cmocka_unit_test(test_fused_equals_expanded),
                                       cmocka_unit_test(test_refusals),
                                       cmocka_unit_test(test_early_conversions),
                                       cmocka_unit_test(test_places)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
