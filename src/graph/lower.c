/* The program as the list that a device prepares, and its nodes as text.
 *
 * Nodes keep the order of the graph; stage_begin cuts it into stages. Bindings (addresses of weights and
 * states) start as NULL: run/ sets them, because only run/ knows both the model and the device. */
#include "graph.h"

ln_status ln_program_order(ln_graph *g, ln_program *p, ln_error *err) {
    int *order = ln_arena_alloc(&g->arena, (g->n_nodes + 1) * sizeof *order);
    int *begin = ln_arena_alloc(&g->arena, ((size_t)p->n_stages + 1) * sizeof *begin);
    void **binding = ln_arena_alloc(&g->arena, (g->n_values + 1) * sizeof *binding);
    if (!order || !begin || !binding) return LN_OOM(err, "a program");
    int n = 0, stage = 0;
    for (size_t i = 0; i < g->n_nodes; i++) {
        if (g->nodes[i].dead) continue;
        while (stage < p->stage[i]) begin[++stage] = n;
        order[n++] = (int)i;
    }
    begin[p->n_stages] = n;
    p->order = order;
    p->stage_begin = begin;
    p->binding = binding;
    p->n_live = n;
    return LN_OK;
}

static void value_text(const ln_value *v, ln_str *out) {
    static const char *const symbols[] = {[-LN_DIM_T] = "T", [-LN_DIM_N] = "N", [-LN_DIM_B] = "B"};
    if (out->len) ln_str_adds(out, " ");
    ln_str_adds(out, v->name);
    if (v->kind == LN_KIND_STATE) return; /* the KV pages, which are not rows of this step */
    for (int i = 0; i < v->n_dims; i++) {
        ln_str_adds(out, i ? "," : "[");
        if (v->dims[i] >= 0) ln_str_addf(out, "%lld", (long long)v->dims[i]);
        else ln_str_adds(out, symbols[-v->dims[i]]);
    }
    ln_str_adds(out, "]");
    char text[16];
    if (v->format.kind != LN_FORMAT_F32) ln_str_addf(out, " %s", ln_format_text(v->format, text));
    else if (v->enc.bits) ln_str_addf(out, " %d bits in %ds", v->enc.bits, v->enc.group);
    else if (v->dtype != LN_F32) ln_str_adds(out, v->dtype == LN_BF16 ? " bf16" : " f16");
}

void ln_graph_node_text(const ln_program *p, int i, ln_str *makes, ln_str *reads) {
    const ln_node *n = &p->graph->nodes[p->order[i]];
    for (int k = 0; k < n->n_out; k++) value_text(&p->graph->values[n->out[k]], makes);
    for (int k = 0; k < n->n_in; k++) value_text(&p->graph->values[n->in[k]], reads);
}
