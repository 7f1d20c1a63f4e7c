/* recompute: has the reverse pass compute forward values again instead of keeping them (contract:
 * graph/grad.h; Chen et al. 2016).
 *
 * What a layer reads of other layers is kept; of a layer that is recomputed nothing else is. Each node of its
 * reverse pass that reads a forward value of the layer reads a clone of it instead. Clones are made one by
 * one, immediately before their first reader, from clones of the same layer and from kept values. A clone
 * computes the same bits: every op is a function of its operands and of the step. Nodes are cloned, not
 * layers: what the reverse pass does not read has no clone.
 *
 * Of the other layers, rows that cost little may have clones, too: activations, norms and turned heads, if
 * the reverse pass reads their operands anyway. */
#include "../grad.h"

#include <stdio.h>

typedef struct recomputing {
    ln_graph *g;
    const ln_node *old; /* nodes before the pass */
    int n_forward, n_layers;
    bool cheap;  /* clones rows of the other layers that cost little */
    int *def;    /* [n_values] index in `old` of the node that makes a value; -1: none */
    ln_v *clone; /* [n_values] -1: not yet cloned */
    bool *read;  /* [n_values] whether the reverse pass reads it */
    size_t n_values;
} recomputing;

static bool costs_little(const ln_node *n) {
    return n->op == LN_OP_SILU || n->op == LN_OP_GELU_TANH || n->op == LN_OP_RMSNORM || n->op == LN_OP_ROPE;
}
/* Whether a forward value can be made again from what is kept in any case. */
static bool is_cheap(const recomputing *r, ln_v v) {
    if (r->def[v] < 0 || r->def[v] >= r->n_forward || !costs_little(&r->old[r->def[v]])) return false;
    const ln_node *n = &r->old[r->def[v]];
    for (int k = 0; k < n->n_in; k++) {
        const ln_v x = n->in[k];
        const bool made = r->g->values[x].kind == LN_KIND_TEMP, kept = r->read[x] && !is_cheap(r, x);
        if (made && !kept && (r->def[x] < 0 || r->old[r->def[x]].layer != n->layer || !is_cheap(r, x)))
            return false;
    }
    return true;
}

/* Whether a value is made by the forward pass of this layer and is not kept. */
static bool is_dropped(const recomputing *r, ln_v v, int layer) {
    return v >= 0 && (size_t)v < r->n_values && r->def[v] >= 0 && r->def[v] < r->n_forward &&
           r->old[r->def[v]].layer == layer && (layer < r->n_layers || is_cheap(r, v));
}
/* The clone of a value of this layer that is not kept, made where it is not there yet; any other value
 * itself. */
static ln_v clone_of(recomputing *r, ln_v v, int layer) {
    if (!is_dropped(r, v, layer)) return v;
    if (r->clone[v] >= 0) return r->clone[v];
    ln_node n = r->old[r->def[v]];
    ln_v out[LN_NODE_OUT];
    char name[64];
    for (int k = 0; k < n.n_in; k++) n.in[k] = clone_of(r, n.in[k], layer);
    (void)snprintf(name, sizeof name, "again.%.50s", r->g->values[v].name);
    (void)ln_g_node(r->g, name, &n, out);
    for (int k = 0; k < n.n_out; k++) r->clone[r->old[r->def[v]].out[k]] = out[k];
    return r->clone[v];
}

static void rebuild(recomputing *r, size_t n_nodes) {
    for (size_t i = 0; i < n_nodes && r->g->error.code == LN_OK; i++) {
        ln_node n = r->old[i];
        const bool again =
            (int)i >= r->n_forward && n.layer >= 0 && (n.layer < r->n_layers || r->cheap) && !n.dead;
        if (again) ln_g_layer(r->g, n.layer, "");
        for (int k = 0; again && k < n.n_in; k++) n.in[k] = clone_of(r, n.in[k], n.layer);
        ln_g_append(r->g, &n);
    }
}

ln_status ln_graph_recompute(ln_graph *g, size_t n_forward, int n_layers, bool cheap, ln_error *err) {
    recomputing r = {.g = g,
                     .old = g->nodes,
                     .n_forward = (int)n_forward,
                     .n_layers = n_layers,
                     .cheap = cheap,
                     .n_values = g->n_values};
    ln_node *old = g->nodes;
    const size_t n_nodes = g->n_nodes;
    if (n_layers < 1 && !cheap) return LN_OK;
    r.def = ln_alloc((g->n_values + 1) * sizeof *r.def);
    r.clone = ln_alloc((g->n_values + 1) * sizeof *r.clone);
    r.read = ln_zalloc(g->n_values + 1, sizeof *r.read);
    if (r.def && r.clone && r.read) {
        for (size_t i = 0; i < g->n_values; i++) r.def[i] = g->values[i].def, r.clone[i] = -1;
        for (size_t i = n_forward; i < n_nodes; i++)
            for (int k = 0; !old[i].dead && k < old[i].n_in; k++) r.read[old[i].in[k]] = true;
        g->nodes = NULL; /* the list is rebuilt with the clones in it */
        g->n_nodes = g->cap_nodes = 0;
        rebuild(&r, n_nodes);
        ln_free(old);
    } else (void)LN_OOM(&g->error, "recomputation");
    ln_g_layer(g, -1, "");
    ln_free(r.def);
    ln_free(r.clone);
    ln_free(r.read);
    if (err && g->error.code != LN_OK) *err = g->error;
    return g->error.code;
}
