/* check: refuses a malformed graph. It runs after every pass, in all builds: later passes and devices rely on
 * what it has checked, and a pass that breaks a shape is named before a kernel reads past a buffer. */
#include "../graph.h"

#include <stdio.h>

/* A value's shape and format as text: `[T,64] bf16`. */
static const char *shape_text(const ln_value *v, char out[96]) {
    char format[16], size[LN_DIM_TEXT];
    int n = 0;
    for (int d = 0; d < v->n_dims && n < 60; d++)
        n += snprintf(out + n, 96 - (size_t)n, "%s%.24s", d ? "," : "[", ln_dim_text(v->dims[d], size));
    (void)snprintf(out + n, 96 - (size_t)n, "]%s%s", v->format.kind ? " " : "",
                   v->format.kind ? ln_format_text(v->format, format) : "");
    return out;
}
/* Whether v is what the shape rule says; a node that can round may have an output in bf16. */
static bool is_shape(const ln_graph *g, const ln_node *n, const ln_value *v, const ln_value *rule) {
    bool same = v->kind == rule->kind && v->dtype == rule->dtype && v->slot == rule->slot &&
                v->flags == rule->flags && v->n_dims == rule->n_dims;
    for (int d = 0; d < v->n_dims; d++) same = same && v->dims[d] == rule->dims[d];
    const bool rounded = v->format.kind == LN_FORMAT_BF16 && rule->format.kind == LN_FORMAT_F32 &&
                         ln_node_rounds(n, g->values);
    return same && (rounded || ln_format_same(v->format, rule->format));
}
static ln_status check_shape(const ln_graph *g, const ln_node *n, const char *after, ln_error *err) {
    ln_value rule[LN_NODE_OUT];
    ln_error why = {0};
    char is[96], makes[96];
    if (ln_node_shape(g, n, rule, &why) != LN_OK)
        return ln_fail(err, LN_EINTERNAL, "after %s: %s", after, why.message);
    for (int k = 0; k < n->n_out; k++) {
        const ln_value *v = &g->values[n->out[k]];
        if (!is_shape(g, n, v, &rule[k]))
            return ln_fail(err, LN_EINTERNAL, "after %s: %s is %s, %s makes %s", after, v->name,
                           shape_text(v, is), ln_ops[n->op].name, shape_text(&rule[k], makes));
    }
    return LN_OK;
}

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

ln_status ln_graph_check(const ln_graph *g, const char *after, ln_error *err) {
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
        if (st == LN_OK) st = check_shape(g, &g->nodes[i], after, err);
    }
    ln_free(newest);
    LN_TRY(st);
    for (size_t i = 0; i < g->n_outputs; i++)
        if (g->outputs[i] < 0 || (size_t)g->outputs[i] >= g->n_values)
            return ln_fail(err, LN_EINTERNAL, "graph: output %zu is no value", i);
    return LN_OK;
}
