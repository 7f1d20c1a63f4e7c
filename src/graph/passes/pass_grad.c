/* grad: the reverse pass (contract: graph/grad.h).
 *
 * A first sweep, forwards, finds the values that depend on one of `wrt`. The second, backwards over the nodes
 * that were there before, collects the gradient of each such value from its readers, and hands it to the rule
 * of the op that makes the value. Readers come before makers in that order, so that a gradient is complete
 * when it is used. The gradients of a value are added in the order in which they arrive, which depends on the
 * graph alone. */
#include "../grad.h"

#include <stdio.h>

typedef struct reverse {
    ln_graph *g;
    size_t n_values; /* of the graph before the pass */
    bool *depends;   /* [n_values] on one of wrt */
    ln_v *grad;      /* [n_values] gradient so far; -1: none has arrived */
} reverse;

const char *ln_grad_name(const ln_graph *g, ln_v v, char out[64]) {
    (void)snprintf(out, 64, "d.%.61s", g->values[v].name);
    return out;
}

static void mark_dependents(reverse *r, const ln_v *wrt, size_t n) {
    const ln_graph *g = r->g;
    for (size_t i = 0; i < n; i++) r->depends[wrt[i]] = true;
    for (size_t i = 0; i < g->n_nodes; i++) {
        const ln_node *m = &g->nodes[i];
        bool any = false;
        for (int k = 0; !m->dead && k < m->n_in; k++) any = any || r->depends[m->in[k]];
        for (int k = 0; any && k < m->n_out; k++) r->depends[m->out[k]] = true;
    }
}

/* Adds dx to the gradient of value v. */
static void accumulate(reverse *r, ln_v v, ln_v dx) {
    char name[64];
    if (dx < 0) return;
    r->grad[v] = r->grad[v] < 0 ? dx : ln_g_add(r->g, ln_grad_name(r->g, v, name), r->grad[v], dx);
}

/* Has the rule of node i add the gradient of its inputs. */
static ln_status reverse_node(reverse *r, size_t i, ln_error *err) {
    const ln_node n = r->g->nodes[i]; /* a copy: adding nodes moves the list */
    ln_v dy[LN_NODE_OUT], dx[LN_NODE_IN];
    bool wanted[LN_NODE_IN], any = false, arrived = false;
    for (int k = 0; k < n.n_out; k++) {
        dy[k] = r->grad[n.out[k]];
        arrived = arrived || dy[k] >= 0;
    }
    for (int k = 0; k < n.n_in; k++) {
        wanted[k] = r->depends[n.in[k]];
        dx[k] = -1;
        any = any || wanted[k];
    }
    if (n.dead || !arrived || !any) return LN_OK;
    const ln_op_info *op = &ln_ops[n.op];
    if (!op->grad)
        return ln_fail(err, LN_EUNSUPPORTED, "gradient of %s: op %s has none (%s)",
                       r->g->values[n.out[0]].name, op->name, op->nograd);
    ln_g_layer(r->g, n.layer, "");
    LN_TRY(op->grad(r->g, &n, dy, wanted, dx, err));
    for (int k = 0; k < n.n_in; k++)
        if (wanted[k]) accumulate(r, n.in[k], dx[k]);
    if (err && r->g->error.code != LN_OK) *err = r->g->error;
    return r->g->error.code;
}

static ln_status run(reverse *r, ln_v y, ln_v dy, const ln_v *wrt, size_t n, ln_v *grads, ln_error *err) {
    ln_graph *g = r->g;
    char name[64];
    for (size_t i = 0; i < r->n_values; i++) r->grad[i] = -1;
    mark_dependents(r, wrt, n);
    const ln_value *v = &g->values[y];
    const size_t n_nodes = g->n_nodes;
    if (dy < 0) dy = ln_g_spread(g, ln_grad_name(g, y, name), -1, v->dims[0], v->dims[1], 1);
    r->grad[y] = dy;
    for (size_t i = n_nodes; i-- > 0;) LN_TRY(reverse_node(r, i, err));
    for (size_t i = 0; i < n; i++) grads[i] = r->depends[y] ? r->grad[wrt[i]] : -1;
    return LN_OK;
}

ln_status ln_graph_grad(ln_graph *g, ln_v y, ln_v dy, const ln_v *wrt, size_t n, ln_v *grads, ln_error *err) {
    reverse r = {.g = g, .n_values = g->n_values};
    if (err && g->error.code != LN_OK) *err = g->error;
    if (g->error.code != LN_OK) return g->error.code;
    r.depends = ln_zalloc(g->n_values + 1, sizeof *r.depends);
    r.grad = ln_zalloc(g->n_values + 1, sizeof *r.grad);
    ln_status st = r.depends && r.grad ? run(&r, y, dy, wrt, n, grads, err) : LN_OOM(err, "gradients");
    ln_g_layer(g, -1, "");
    ln_free(r.depends);
    ln_free(r.grad);
    return st;
}
