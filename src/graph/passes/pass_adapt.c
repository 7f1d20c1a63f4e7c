/* adapt: adds to a built graph what the rows with an adapter compute in addition.
 *
 *     y = linear(x, w)            y = linear(x, w)
 *     ...                   ->    t = lora_down(x, pool)
 *     z = op(y)                   ...
 *                                 y' = lora_up(y, t, pool)
 *                                 z = op(y')
 *
 * lora_down follows the product and lora_up precedes the first reader, so that both fall into the stages of
 * the nodes beside them and threads meet no additional barrier: the q, k and v projections stay one stage.
 * All readers of y read y'. A model's description knows nothing of adapters, and a program of an engine
 * without room for them never passes through here. */
#include "../graph.h"

#include <stdio.h>

typedef struct adapting {
    ln_graph *g;
    const ln_p_lora *places;
    size_t n_places, n_values; /* n_values: of the graph as it was */
    ln_v pool;
    ln_v *down;     /* [n_values] the lora_down of a product's output; -1: none */
    ln_v *up;       /* [n_values] the lora_up of it, which replaces it; -1: none yet */
    ln_p_lora *how; /* [n_values] parameters of both */
} adapting;

/* The name of a new value without the prefix that builders add; the pass sets none. */
static const char *name_of(const ln_graph *g, ln_v v, const char *end, char out[80]) {
    (void)snprintf(out, 80, "%.60s.%s", g->values[v].name, end);
    return out;
}

/* Adds the lora_down of a product that has a place in the pool. */
static void add_down(adapting *a, const ln_node *n) {
    char name[80];
    const ln_value *w = &a->g->values[n->in[1]];
    if (n->op != LN_OP_LINEAR || w->kind != LN_KIND_WEIGHT || w->slot < 0 || (size_t)w->slot >= a->n_places)
        return;
    if (a->places[w->slot].slot_bytes == 0) return;
    const ln_v y = n->out[0];
    a->how[y] = a->places[w->slot];
    a->how[y].rounds = ln_encoding_is_dense(w->enc);
    a->how[y].of_outputs = a->g->values[y].dims[0] == LN_DIM_N;
    a->down[y] = ln_g_lora_down(a->g, name_of(a->g, y, "lora_down", name), n->in[0], a->pool, &a->how[y]);
}

/* The value that stands for v from now on: v itself, or the output of its lora_up, which is added here. */
static ln_v adapted(adapting *a, ln_v v) {
    char name[80];
    if ((size_t)v >= a->n_values || a->down[v] < 0) return v;
    if (a->up[v] < 0)
        a->up[v] = ln_g_lora_up(a->g, name_of(a->g, v, "lora", name), v, a->down[v], a->pool, &a->how[v]);
    return a->up[v];
}

static void adapt_all(adapting *a, const ln_node *old, size_t n) {
    ln_graph *g = a->g;
    for (size_t i = 0; i < n && g->error.code == LN_OK; i++) {
        ln_node node = old[i];
        ln_g_layer(g, node.layer, "");
        for (int k = 0; k < node.n_in; k++) node.in[k] = adapted(a, node.in[k]);
        ln_g_append(g, &node);
        add_down(a, &node);
    }
    for (size_t i = 0; i < g->n_outputs && g->error.code == LN_OK; i++)
        g->outputs[i] = adapted(a, g->outputs[i]);
}

ln_status ln_graph_adapt(ln_graph *g, const ln_p_lora *places, size_t n_places, ln_error *err) {
    adapting a = {.g = g, .places = places, .n_places = n_places};
    ln_node *old = g->nodes;
    const size_t n = g->n_nodes;
    const int64_t one = 1; /* ln_p_lora describes what is in it */
    ln_g_layer(g, -1, "");
    a.pool = ln_g_state(g, "adapters", 1, LN_F32, 0, 1, &one);
    a.n_values = g->n_values;
    a.down = ln_alloc((a.n_values + 1) * sizeof *a.down);
    a.up = ln_alloc((a.n_values + 1) * sizeof *a.up);
    a.how = ln_zalloc(a.n_values + 1, sizeof *a.how);
    ln_status st = a.down && a.up && a.how ? LN_OK : LN_OOM(err, "a graph");
    if (st == LN_OK) {
        for (size_t i = 0; i < a.n_values; i++) a.down[i] = a.up[i] = -1;
        g->nodes = NULL; /* the list is built anew, in the same order */
        g->n_nodes = g->cap_nodes = 0;
        adapt_all(&a, old, n);
        ln_free(old);
        ln_g_layer(g, -1, "");
        if (err) *err = g->error;
        st = g->error.code;
    }
    ln_free(a.down);
    ln_free(a.up);
    ln_free(a.how);
    return st;
}
