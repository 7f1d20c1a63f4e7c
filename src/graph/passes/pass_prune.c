/* prune: marks nodes dead that no output and no effect needs. */
#include "../graph.h"

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
