/* The flat program that a device prepares, made of a lowered graph and its memory plan; and its nodes as
 * text.
 *
 * Nodes keep the order of the graph, without dead ones; stage_begin cuts them into stages. Values keep their
 * indices. Addresses of weights and states start as NULL: run/ sets them, because only run/ knows both the
 * model and the device. */
#include "graph.h"

#include <stdio.h>

static ln_status copy_value(const ln_value *v, const ln_storage *at, ln_arena *arena, ln_pvalue *out,
                            ln_error *err) {
    const size_t n = strlen(v->name) + 1;
    char *name = ln_arena_alloc(arena, n);
    if (!name) return LN_OOM(err, "a program");
    memcpy(name, v->name, n);
    *out = (ln_pvalue){.name = name,
                       .kind = v->kind,
                       .dtype = v->dtype,
                       .enc = v->enc,
                       .format = v->format,
                       .layout = v->layout,
                       .flags = v->flags,
                       .n_dims = v->n_dims,
                       .layer = v->layer,
                       .slot = v->slot,
                       .first = at->first,
                       .last = at->last,
                       .offset = at->offset,
                       .tail_offset = at->tail_offset,
                       .bytes = at->bytes};
    memcpy(out->dims, v->dims, sizeof out->dims);
    return LN_OK;
}

static void copy_node(const ln_node *n, const ln_lowered_node *l, int stage, ln_pnode *out) {
    *out = (ln_pnode){.op = n->op,
                      .props = (uint32_t)ln_ops[n->op].props,
                      .n_in = n->n_in,
                      .n_out = n->n_out,
                      .layer = n->layer,
                      .stage = stage,
                      .kernel = l->kernel,
                      .tolerance = l->tolerance,
                      .p = n->p};
    memcpy(out->in, n->in, sizeof out->in);
    memcpy(out->out, n->out, sizeof out->out);
}

/* Allocates the arrays of a program whose counts are set. */
static ln_status new_arrays(ln_program *p, ln_arena *arena, ln_pnode **nodes, int32_t **begin, ln_v **outputs,
                            ln_error *err) {
    p->values = ln_arena_alloc(arena, ((size_t)p->n_values + 1) * sizeof *p->values);
    p->nodes = *nodes = ln_arena_alloc(arena, ((size_t)p->n_nodes + 1) * sizeof **nodes);
    p->stage_begin = *begin = ln_arena_alloc(arena, ((size_t)p->n_stages + 1) * sizeof **begin);
    p->outputs = *outputs = ln_arena_alloc(arena, ((size_t)p->n_outputs + 1) * sizeof **outputs);
    return p->values && *nodes && *begin && *outputs ? LN_OK : LN_OOM(err, "a program");
}

ln_status ln_program_make(const ln_graph *g, const ln_lowering *l, const ln_temp_plan *t, ln_arena *arena,
                          ln_program *out, ln_error *err) {
    ln_pnode *nodes;
    int32_t *begin;
    ln_v *outputs;
    *out = (ln_program){.abi = LN_DEVICE_ABI,
                        .size = sizeof *out,
                        .value_size = sizeof *out->values,
                        .node_size = sizeof *out->nodes,
                        .n_values = (int32_t)g->n_values,
                        .n_stages = t->n_stages,
                        .n_outputs = (int32_t)g->n_outputs,
                        .bounds = t->bounds,
                        .real_bytes = t->real_bytes,
                        .temp_bytes = t->temp_bytes,
                        .temp_bound = t->temp_bound};
    for (size_t i = 0; i < g->n_nodes; i++) out->n_nodes += !g->nodes[i].dead;
    LN_TRY(new_arrays(out, arena, &nodes, &begin, &outputs, err));
    for (size_t i = 0; i < g->n_values; i++) {
        ln_pvalue *v = &out->values[i];
        LN_TRY(copy_value(&g->values[i], &t->storage[i], arena, v, err));
        v->row_bytes = l->row_bytes[i];
        v->tail_rows = l->tail_rows[i];
    }
    int n = 0, stage = 0;
    begin[0] = 0;
    for (size_t i = 0; i < g->n_nodes; i++) {
        if (g->nodes[i].dead) continue;
        while (stage < t->stage[i]) begin[++stage] = n;
        copy_node(&g->nodes[i], &l->nodes[i], t->stage[i], &nodes[n++]);
    }
    begin[t->n_stages] = n;
    for (size_t i = 0; i < g->n_outputs; i++) outputs[i] = g->outputs[i];
    return LN_OK;
}

const char *ln_dim_text(int64_t d, char out[LN_DIM_TEXT]) {
    static const char *const symbols[] = {[-LN_DIM_T] = "T", [-LN_DIM_N] = "N", [-LN_DIM_B] = "B"};
    if (d >= 0) (void)snprintf(out, LN_DIM_TEXT, "%lld", (long long)d);
    else if (ln_dim_factor(d) == 1) (void)snprintf(out, LN_DIM_TEXT, "%s", symbols[-d]);
    else (void)snprintf(out, LN_DIM_TEXT, "%lld%s", (long long)ln_dim_factor(d), symbols[-ln_dim_symbol(d)]);
    return out;
}

static void value_text(const ln_pvalue *v, ln_str *out) {
    char size[LN_DIM_TEXT];
    if (out->len) ln_str_adds(out, " ");
    ln_str_adds(out, v->name);
    if (v->kind == LN_KIND_STATE) return; /* the KV pages, which are not rows of this step */
    for (int i = 0; i < v->n_dims; i++) {
        ln_str_adds(out, i ? "," : "[");
        ln_str_adds(out, ln_dim_text(v->dims[i], size));
    }
    ln_str_adds(out, "]");
    char text[16];
    if (v->format.kind != LN_FORMAT_F32) ln_str_addf(out, " %s", ln_format_text(v->format, text));
    else if (ln_encoding_is_coded(v->enc)) ln_str_addf(out, " %s", ln_stored_name(v->enc.kind));
    else if (!ln_encoding_is_dense(v->enc)) {
        const ln_groups code = ln_encoding_groups(v->enc);
        ln_str_addf(out, " %d bits in %ds", code.bits, code.group);
    } else if (v->dtype != LN_F32) ln_str_adds(out, v->dtype == LN_BF16 ? " bf16" : " f16");
}

void ln_program_node_text(const ln_program *p, int i, ln_str *makes, ln_str *reads) {
    const ln_pnode *n = ln_program_node(p, i);
    for (int k = 0; k < n->n_out; k++) value_text(ln_program_value(p, n->out[k]), makes);
    for (int k = 0; k < n->n_in; k++) value_text(ln_program_value(p, n->in[k]), reads);
}
