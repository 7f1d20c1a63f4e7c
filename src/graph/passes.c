/* Passes that check, prune and rewrite the graph, before memory is planned.
 *
 * check runs after building and, in tests, between passes: later passes and devices rely on what it has
 * checked. prune removes nodes that no output and no effect needs. per_row selects int8-pair products where
 * the device prefers them. fuse replaces patterns of nodes by ops that touch memory once. store_bf16 and
 * panels choose storage formats of temps that suit the device. */
#include "graph.h"

static ln_status check_node(const ln_graph *g, size_t i, ln_error *err) {
    const ln_node *n = &g->nodes[i];
    if (n->op >= LN_OP_COUNT)
        return ln_fail(err, LN_EINTERNAL, "graph: node %zu has an unknown op %d", i, (int)n->op);
    const ln_op_info *op = &ln_ops[n->op];
    if (n->n_in < op->in_min || n->n_in > op->in_max || n->n_out != op->n_out)
        return ln_fail(err, LN_EINTERNAL,
                       "graph: node %zu (%s) has %d inputs and %d outputs, expected %d..%d and %d", i,
                       op->name, n->n_in, n->n_out, op->in_min, op->in_max, op->n_out);
    for (int k = 0; k < n->n_in; k++) {
        if (n->in[k] < 0 || (size_t)n->in[k] >= g->n_values)
            return ln_fail(err, LN_EINTERNAL, "graph: node %zu (%s): input %d is no value", i, op->name, k);
        const ln_value *v = &g->values[n->in[k]];
        if (v->kind == LN_KIND_TEMP && v->def < 0)
            return ln_fail(err, LN_EINTERNAL, "graph: %s is used by %s but nothing makes it", v->name,
                           op->name);
        if (v->def >= (int)i)
            return ln_fail(err, LN_EINTERNAL, "graph: %s is used by %s before it is made", v->name, op->name);
        if (v->def >= 0 && g->nodes[v->def].dead)
            return ln_fail(err, LN_EINTERNAL, "graph: %s is used by %s but its node was removed", v->name,
                           op->name);
    }
    for (int k = 0; k < n->n_out; k++)
        if (n->out[k] < 0 || g->values[n->out[k]].def != (int)i)
            return ln_fail(err, LN_EINTERNAL, "graph: output %d of node %zu (%s) has another writer", k, i,
                           op->name);
    return LN_OK;
}

/* Checks that a node uses the newest version of each state that it reads or replaces: a node that uses an
 * older one would find the memory overwritten, and two nodes that replace one version would race.
 * newest[slot] is the newest version plus 1; 0: none has been used. */
static ln_status check_states(const ln_graph *g, size_t i, ln_v *newest, ln_error *err) {
    const ln_node *n = &g->nodes[i];
    for (int k = 0; k < n->n_in; k++) {
        const ln_value *v = &g->values[n->in[k]];
        const bool replaces = ln_replaces(n, k);
        if (v->kind != LN_KIND_STATE && !replaces) continue;
        if (v->kind != LN_KIND_STATE || v->slot < 0)
            return ln_fail(err, LN_EINTERNAL, "graph: %s is no state", v->name);
        if (newest[v->slot] && n->in[k] != newest[v->slot] - 1)
            return ln_fail(err, LN_EINTERNAL,
                           "graph: node %zu (%s) uses version %s of a state, which %s has replaced", i,
                           ln_ops[n->op].name, v->name, g->values[newest[v->slot] - 1].name);
        newest[v->slot] = n->in[k] + 1;
    }
    for (int k = 0; k < n->n_out; k++) {
        const ln_value *from = k < n->n_in ? &g->values[n->in[k]] : NULL, *to = &g->values[n->out[k]];
        if (!ln_replaces(n, k)) continue;
        if (!from || to->kind != LN_KIND_STATE || to->slot != from->slot || to->flags != from->flags)
            return ln_fail(err, LN_EINTERNAL, "graph: %s (%s) is no version of the state that it replaces",
                           to->name, ln_ops[n->op].name);
        newest[to->slot] = n->out[k] + 1;
    }
    return LN_OK;
}

ln_status ln_graph_check(const ln_graph *g, ln_error *err) {
    if (g->error.code != LN_OK) {
        if (err) *err = g->error;
        return g->error.code;
    }
    ln_v *newest = ln_zalloc(ln_graph_states(g) + 1, sizeof *newest); /* by slot */
    if (!newest) return LN_OOM(err, "the check of a graph");
    ln_status st = LN_OK;
    for (size_t i = 0; i < g->n_nodes && st == LN_OK; i++) {
        if (g->nodes[i].dead) continue;
        st = check_node(g, i, err);
        if (st == LN_OK) st = check_states(g, i, newest, err);
    }
    ln_free(newest);
    LN_TRY(st);
    for (size_t i = 0; i < g->n_outputs; i++)
        if (g->outputs[i] < 0 || (size_t)g->outputs[i] >= g->n_values)
            return ln_fail(err, LN_EINTERNAL, "graph: output %zu is no value", i);
    return LN_OK;
}

int ln_graph_prune(ln_graph *g) {
    bool *wanted = ln_zalloc(g->n_values, sizeof *wanted);
    if (!wanted) return 0; /* running unused nodes costs time only */
    int n_dead = 0;
    for (size_t i = 0; i < g->n_outputs; i++) wanted[g->outputs[i]] = true;
    for (size_t i = g->n_nodes; i-- > 0;) {
        ln_node *n = &g->nodes[i];
        if (n->dead) continue;
        bool keep = ln_ops[n->op].props & LN_PROP_EFFECT;
        for (int k = 0; k < n->n_out; k++) keep = keep || wanted[n->out[k]];
        if (!keep) {
            n->dead = true;
            n_dead++;
            continue;
        }
        for (int k = 0; k < n->n_in; k++) wanted[n->in[k]] = true;
    }
    ln_free(wanted);
    return n_dead;
}

/* The number of uses of each value, as input and as graph output. NULL when out of memory: then nothing is
 * fused, which costs speed only. The caller frees it. */
static int *count_uses(const ln_graph *g) {
    int *uses = ln_zalloc(g->n_values + 1, sizeof *uses);
    if (!uses) return NULL;
    for (size_t i = 0; i < g->n_nodes; i++)
        for (int k = 0; !g->nodes[i].dead && k < g->nodes[i].n_in; k++) uses[g->nodes[i].in[k]]++;
    for (size_t i = 0; i < g->n_outputs; i++) uses[g->outputs[i]]++;
    return uses;
}

bool ln_node_rounds(const ln_node *n, const ln_value *values) {
    return (ln_ops[n->op].props & LN_PROP_ROUNDS) &&
           !(n->op == LN_OP_LINEAR_GATED && values[n->in[0]].format.kind == LN_FORMAT_I8PAIR);
}

int ln_graph_per_row(ln_graph *g, const struct ln_dev *dev, ln_per_row_fn *wants) {
    int n = 0;
    for (size_t i = 0; i < g->n_nodes; i++) {
        const ln_node *node = &g->nodes[i];
        ln_value *x = node->n_in ? &g->values[node->in[0]] : NULL;
        if (node->dead || node->op != LN_OP_LINEAR || x->format.kind < LN_FORMAT_BFP) continue;
        if (x->format.kind == LN_FORMAT_BFP && !wants(dev, node, g->values)) continue;
        /* all consumers of x have the same number of columns, so the device answers alike for all of them */
        x->format.kind = g->nodes[x->def].p.convert.to.kind = LN_FORMAT_I8PAIR;
        n++;
    }
    return n;
}

/* mul(act(g), u) -> gated(g, u), when act(g) has no other use. */
static bool fuse_gated(ln_graph *g, const int *uses, ln_node *mul, ln_op op, ln_act act) {
    for (int k = 0; k < 2; k++) {
        int def = g->values[mul->in[k]].def;
        if (def < 0 || g->nodes[def].dead || g->nodes[def].op != op || uses[mul->in[k]] != 1) continue;
        ln_v other = mul->in[1 - k];
        mul->op = LN_OP_GATED;
        mul->p.gate.act = act;
        mul->in[0] = g->nodes[def].in[0];
        mul->in[1] = other;
        g->nodes[def].dead = true;
        return true;
    }
    return false;
}

static bool same_shape(const ln_value *a, const ln_value *b) {
    return a->dtype == b->dtype && a->dims[0] == b->dims[0] && a->dims[1] == b->dims[1] &&
           a->enc.bits == b->enc.bits && a->enc.group == b->enc.group;
}

/* gated(linear(x, g), linear(x, u)) -> linear_gated, when both weights have the same shape, neither product
 * has a bias, and the products have no other use. The fused op reads x once for each strip of outputs, which
 * costs nothing where x is read in its storage format; of int8 pairs it reads x once. */
static bool fuse_products(ln_graph *g, const int *uses, ln_node *n, const struct ln_dev *dev,
                          ln_reads_bf16_fn *reads) {
    ln_node *product[2];
    for (int k = 0; k < 2; k++) {
        int def = g->values[n->in[k]].def;
        if (def < 0 || uses[n->in[k]] != 1) return false;
        product[k] = &g->nodes[def];
        if (product[k]->dead || product[k]->op != LN_OP_LINEAR || product[k]->n_in != 2) return false;
        const int format = g->values[product[k]->in[0]].format.kind;
        if (format != LN_FORMAT_I8PAIR && (format != LN_FORMAT_BF16 || !reads(dev, product[k], g->values, 0)))
            return false;
    }
    if (product[0]->in[0] != product[1]->in[0] ||
        !same_shape(&g->values[product[0]->in[1]], &g->values[product[1]->in[1]]))
        return false;
    n->op = LN_OP_LINEAR_GATED;
    n->in[0] = product[0]->in[0];
    n->in[1] = product[0]->in[1];
    n->in[2] = product[1]->in[1];
    n->n_in = 3;
    product[0]->dead = product[1]->dead = true;
    return true;
}

/* convert(op(x)) to bf16 -> op(x) with a bf16-valued output, when op(x) has no other use. */
static bool fuse_round(ln_graph *g, int *uses, ln_node *round, ln_v *replaced_by) {
    const ln_v x = round->in[0];
    const int def = g->values[x].def;
    if (def < 0 || g->nodes[def].dead || !ln_node_rounds(&g->nodes[def], g->values) || uses[x] != 1)
        return false;
    g->values[x].format = round->p.convert.to;
    replaced_by[round->out[0]] = x;
    uses[x] = uses[round->out[0]];
    round->dead = true;
    return true;
}

int ln_graph_fuse(ln_graph *g, const struct ln_dev *dev, ln_reads_bf16_fn *reads) {
    int n = 0, *uses = count_uses(g);
    ln_v *replaced_by = ln_alloc((g->n_values + 1) * sizeof *replaced_by); /* of an output that is no more */
    for (size_t i = 0; replaced_by && i < g->n_values; i++) replaced_by[i] = (ln_v)i;
    for (size_t i = 0; uses && replaced_by && i < g->n_nodes; i++) {
        ln_node *node = &g->nodes[i];
        if (node->dead) continue;
        for (int k = 0; k < node->n_in; k++) node->in[k] = replaced_by[node->in[k]];
        if (node->op == LN_OP_MUL)
            n += fuse_gated(g, uses, node, LN_OP_SILU, LN_ACT_SILU) ||
                 fuse_gated(g, uses, node, LN_OP_GELU_TANH, LN_ACT_GELU_TANH);
        else if (node->op == LN_OP_CONVERT && node->p.convert.to.kind == LN_FORMAT_BF16)
            n += fuse_round(g, uses, node, replaced_by);
        if (node->op == LN_OP_GATED) n += fuse_products(g, uses, node, dev, reads);
    }
    for (size_t i = 0; replaced_by && i < g->n_outputs; i++) g->outputs[i] = replaced_by[g->outputs[i]];
    ln_free(uses);
    ln_free(replaced_by);
    return n;
}

int ln_graph_store_bf16(ln_graph *g, const struct ln_dev *dev, ln_reads_bf16_fn *reads) {
    enum { TILE = 32 };
    int count = 0;
    bool *wide = ln_zalloc(g->n_values + 1, sizeof *wide); /* [n_values] a consumer reads the 4-byte format */
    if (!wide) return 0;                                   /* costs speed only */
    for (size_t i = 0; i < g->n_outputs; i++) wide[g->outputs[i]] = true;
    for (size_t i = 0; i < g->n_nodes; i++)
        for (int k = 0; !g->nodes[i].dead && k < g->nodes[i].n_in; k++)
            if (!reads(dev, &g->nodes[i], g->values, k)) wide[g->nodes[i].in[k]] = true;
    for (size_t i = 0; i < g->n_values; i++) {
        ln_value *v = &g->values[i];
        if (v->kind != LN_KIND_TEMP || v->format.kind != LN_FORMAT_BF16 || wide[i] || v->def < 0 ||
            v->dims[1] % TILE)
            continue;
        const ln_node *n = &g->nodes[v->def];
        if (n->dead || !ln_node_rounds(n, g->values)) continue;
        v->layout = LN_LAYOUT_NARROW;
        count++;
    }
    ln_free(wide);
    return count;
}

static bool is_gated_i8pair(const ln_graph *g, int node) {
    return node >= 0 && g->nodes[node].op == LN_OP_LINEAR_GATED &&
           g->values[g->nodes[node].in[0]].format.kind == LN_FORMAT_I8PAIR;
}
int ln_graph_panels(ln_graph *g) {
    int n = 0, *uses = count_uses(g);
    if (!uses) return 0;
    for (size_t i = 0; i < g->n_nodes; i++) {
        const ln_node *node = &g->nodes[i];
        if (node->dead || node->op != LN_OP_CONVERT || node->p.convert.to.kind != LN_FORMAT_I8PAIR) continue;
        ln_value *x = &g->values[node->in[0]];
        if (!is_gated_i8pair(g, x->def) || uses[node->in[0]] != 1 || x->dims[1] % LN_PANEL_COLS ||
            ln_pitch(x) == x->dims[1])
            continue;
        x->layout = g->values[node->out[0]].layout = LN_LAYOUT_PANELS;
        n++;
    }
    ln_free(uses);
    return n;
}
