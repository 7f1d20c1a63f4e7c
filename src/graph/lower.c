/* Lowering: the planned graph becomes the list that a device prepares, and the table that a person reads.
 *
 * Nodes keep the order of the graph; stage_begin cuts it. Bindings (where weights and states lie) start empty: run/ fills
 * them, because only run/ knows both the model and the device. */
#include "graph.h"

ln_status ln_graph_lower(ln_graph *g, ln_program *p, ln_error *err) {
    int *order = ln_arena_alloc(&g->arena, (g->n_nodes + 1) * sizeof *order);
    int *begin = ln_arena_alloc(&g->arena, ((size_t)p->n_stages + 1) * sizeof *begin);
    void **binding = ln_arena_alloc(&g->arena, (g->n_values + 1) * sizeof *binding);
    if (!order || !begin || !binding) return LN_OOM(err, "a program");
    int n = 0, stage = 0;
    for (size_t i = 0; i < g->n_nodes; i++) {
        if (g->nodes[i].dead) continue;
        while (stage < g->nodes[i].stage) begin[++stage] = n;
        order[n++] = (int)i;
    }
    begin[p->n_stages] = n;
    p->order = order;
    p->stage_begin = begin;
    p->binding = binding;
    p->n_live = n;
    return LN_OK;
}

static void explain_value(const ln_value *v, ln_str *out) {
    ln_str_addf(out, "%s[", v->name);
    for (int i = 0; i < v->n_dims; i++) {
        if (i) ln_str_adds(out, ",");
        if (v->dims[i] >= 0) ln_str_addf(out, "%lld", (long long)v->dims[i]);
        else ln_str_adds(out, v->dims[i] == LN_DIM_T ? "T" : v->dims[i] == LN_DIM_N ? "N" : "B");
    }
    ln_str_adds(out, "]");
}

void ln_graph_explain(const ln_program *p, ln_str *out) {
    const ln_graph *g = p->graph;
    ln_str_addf(out, "%d nodes in %d stages; temps %lld bytes (no plan needs less than %lld) for T = %lld, N = %lld, B = %lld\n", p->n_live, p->n_stages,
                (long long)p->temp_bytes, (long long)p->temp_bound, (long long)p->bounds.T, (long long)p->bounds.N, (long long)p->bounds.B);
    for (int i = 0; i < p->n_live; i++) {
        const ln_node *n = &g->nodes[p->order[i]];
        double flops, bytes;
        g->rules->cost(g, n, &p->bounds, &flops, &bytes);
        ln_str_addf(out, "%4d %-12s ", n->stage, ln_ops[n->op].name);
        for (int k = 0; k < n->n_out; k++) explain_value(&g->values[n->out[k]], out);
        ln_str_adds(out, " <-");
        for (int k = 0; k < n->n_in; k++) {
            ln_str_adds(out, " ");
            explain_value(&g->values[n->in[k]], out);
        }
        const ln_value *y = &g->values[n->out[0]];
        if (y->offset >= 0) ln_str_addf(out, "  @%lld+%lld", (long long)y->offset, (long long)y->bytes);
        ln_str_addf(out, "  %.3g GFLOP %.3g MB\n", flops / 1e9, bytes / 1e6);
    }
}
