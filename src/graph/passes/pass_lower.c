/* lower: has a device choose formats, fusions, layouts and reuse in place (contract: graph.h).
 *
 * Three sweeps over the nodes, in order; each asks a device once for each node:
 *
 *     FORMATS   of `choose`: which format an operand shall have instead of the one that the policy named
 *               (f32: the operand is read as it was before its conversion), and whether the device has a
 *               kernel of a candidate for fusion
 *     READS     of `store`: which layouts the kernel of the node can read, by operand
 *     STORAGE   of `store`: layout and pitch of the outputs, reuse in place, the kernel and its tolerance
 *
 * A program that is compared with another device's has the formats and fusions of that device and the storage
 * of its own: a bound on differences makes sense between equal formulas only. After FORMATS, conversions to
 * bf16 go into their producers (pass_fuse.c): whether one can round depends on the fusions. */
#include "../graph.h"

#include <stdio.h>

enum { NO_READER = -1, SEVERAL = -2 };
typedef struct job {
    ln_graph *g;
    ln_lowering *l;
    const ln_bounds *b;
    int real_bytes;
    int *reader;        /* [n_values] the only node that reads a value; NO_READER; SEVERAL, or an output */
    uint32_t *readable; /* [n_values] layouts that all readers can read, a bit for each */
} job;

static ln_lower_operand operand(const job *j, ln_v i) {
    const ln_value *v = &j->g->values[i];
    ln_lower_operand o = {.kind = (uint8_t)v->kind,
                          .dtype = (uint8_t)v->dtype,
                          .n_dims = (uint8_t)v->n_dims,
                          .layout = v->layout,
                          .enc = v->enc,
                          .format = v->format,
                          .row_bytes = j->l->row_bytes[i]};
    memcpy(o.dims, v->dims, sizeof o.dims);
    return o;
}

/* Bytes of a row without padding. */
static int64_t dense_row_bytes(const job *j, const ln_value *v, int layout) {
    const int64_t cols = v->dims[v->n_dims - 1];
    return layout == LN_LAYOUT_NARROW ? 2 * cols : ln_format_row_elements(v->format, cols) * j->real_bytes;
}

/* Asks about a node; *a has the default answer before. */
static bool ask(const job *j, ln_lower_fn *lower, const struct ln_dev *dev, int sweep, const ln_node *n,
                bool candidate, ln_lower_answer *a) {
    ln_lower_ask q = {.size = sizeof q,
                      .sweep = (uint8_t)sweep,
                      .op = (uint8_t)n->op,
                      .n_in = (uint8_t)n->n_in,
                      .n_out = (uint8_t)n->n_out,
                      .props = (uint32_t)ln_ops[n->op].props,
                      .candidate = candidate,
                      .params = &n->p,
                      .params_size = sizeof n->p,
                      .bounds = *j->b};
    *a = (ln_lower_answer){.size = sizeof *a};
    for (int k = 0; k < n->n_in; k++) {
        q.in[k] = operand(j, n->in[k]);
        a->in_format[k] = q.in[k].format;
        a->readable[k] = 1u << LN_LAYOUT_ROWS;
    }
    for (int k = 0; k < n->n_out; k++) {
        const ln_v v = n->out[k];
        const int r = j->reader[v];
        q.out[k] = operand(j, v);
        q.readable[k] = j->readable[v];
        q.reader_op[k] = (int16_t)(r >= 0 ? (int)j->g->nodes[r].op : -1);
        if (r >= 0 && j->g->nodes[r].op == LN_OP_CONVERT)
            q.reader_format[k] = j->g->nodes[r].p.convert.to.kind;
        a->row_bytes[k] = dense_row_bytes(j, &j->g->values[v], LN_LAYOUT_ROWS);
    }
    a->in_place = (ln_ops[n->op].props & LN_PROP_INPLACE) ||
                  (n->op == LN_OP_CONVERT && n->p.convert.to.kind == LN_FORMAT_BF16);
    return lower(dev, &q, a);
}

static void count_readers(job *j) {
    const ln_graph *g = j->g;
    for (size_t i = 0; i < g->n_values; i++) j->reader[i] = NO_READER;
    for (size_t i = 0; i < g->n_nodes; i++)
        for (int k = 0; !g->nodes[i].dead && k < g->nodes[i].n_in; k++) {
            int *r = &j->reader[g->nodes[i].in[k]];
            *r = *r == NO_READER ? (int)i : SEVERAL;
        }
    for (size_t i = 0; i < g->n_outputs; i++) j->reader[g->outputs[i]] = SEVERAL;
}

/* Has the conversion that makes v give another format. */
static ln_status reformat(ln_graph *g, const ln_node *n, ln_v v, ln_format to, ln_error *err) {
    ln_value *x = &g->values[v];
    ln_node *made_by = x->def >= 0 ? &g->nodes[x->def] : NULL;
    char text[16];
    if (!made_by || made_by->op != LN_OP_CONVERT)
        return ln_fail(err, LN_EINTERNAL,
                       "graph: the device wants %s as %s for %s, but no conversion makes it", x->name,
                       ln_format_text(to, text), ln_ops[n->op].name);
    made_by->p.convert.to = x->format = to;
    char name[sizeof x->name + 16];
    (void)snprintf(name, sizeof name, "%.60s.%s", g->values[made_by->in[0]].name, ln_format_text(to, text));
    memcpy(x->name, name, sizeof x->name - 1);
    return LN_OK;
}

/* Has n read operand k as it was before its conversion. */
static void undo_conversion(ln_graph *g, ln_node *n, int k) {
    const ln_value *x = &g->values[n->in[k]];
    if (x->def >= 0 && g->nodes[x->def].op == LN_OP_CONVERT) n->in[k] = g->nodes[x->def].in[0];
}
/* Removes the conversions that nothing reads any more. */
static void drop_conversions(job *j) {
    count_readers(j);
    for (size_t i = 0; i < j->g->n_nodes; i++)
        if (j->g->nodes[i].op == LN_OP_CONVERT && j->reader[j->g->nodes[i].out[0]] == NO_READER)
            j->g->nodes[i].dead = true;
}

/* gated(linear(x, g), linear(x, u)) as a linear_gated, if n is one: both weights have the same shape, neither
 * product has a bias, and the products have no other reader. */
static bool is_gated_pair(const job *j, const ln_node *n, ln_node *fused) {
    const ln_graph *g = j->g;
    const ln_node *product[2];
    for (int k = 0; n->op == LN_OP_GATED && k < 2; k++) {
        const int def = g->values[n->in[k]].def;
        if (def < 0 || j->reader[n->in[k]] < 0) return false;
        product[k] = &g->nodes[def];
        if (product[k]->dead || product[k]->op != LN_OP_LINEAR || product[k]->n_in != 2) return false;
    }
    if (n->op != LN_OP_GATED || product[0]->in[0] != product[1]->in[0]) return false;
    const ln_value *a = &g->values[product[0]->in[1]], *b = &g->values[product[1]->in[1]];
    if (a->dtype != b->dtype || a->dims[0] != b->dims[0] || !ln_encoding_same(a->enc, b->enc)) return false;
    *fused = *n;
    fused->op = LN_OP_LINEAR_GATED;
    fused->n_in = 3;
    fused->in[0] = product[0]->in[0];
    fused->in[1] = product[0]->in[1];
    fused->in[2] = product[1]->in[1];
    return true;
}

static ln_status choose_formats(job *j, ln_lower_fn *choose, const struct ln_dev *dev, ln_error *err) {
    ln_graph *g = j->g;
    bool undone = false;
    for (size_t i = 0; i < g->n_nodes; i++) {
        ln_node *n = &g->nodes[i], fused;
        ln_lower_answer a;
        if (n->dead) continue;
        (void)ask(j, choose, dev, LN_LOWER_FORMATS, n, false, &a);
        for (int k = 0; k < n->n_in; k++) {
            if (ln_format_same(a.in_format[k], g->values[n->in[k]].format)) continue;
            if (a.in_format[k].kind == LN_FORMAT_F32) undo_conversion(g, n, k), undone = true;
            else LN_TRY(reformat(g, n, n->in[k], a.in_format[k], err));
        }
        if (!is_gated_pair(j, n, &fused) || !ask(j, choose, dev, LN_LOWER_FORMATS, &fused, true, &a))
            continue;
        for (int k = 0; k < 2; k++) g->nodes[g->values[n->in[k]].def].dead = true;
        *n = fused;
    }
    if (undone) drop_conversions(j);
    return LN_OK;
}

static void find_readable(job *j, ln_lower_fn *store, const struct ln_dev *dev) {
    const ln_graph *g = j->g;
    memset(j->readable, 0xff, g->n_values * sizeof *j->readable);
    for (size_t i = 0; i < g->n_outputs; i++) j->readable[g->outputs[i]] = 1u << LN_LAYOUT_ROWS;
    for (size_t i = 0; i < g->n_nodes; i++) {
        const ln_node *n = &g->nodes[i];
        ln_lower_answer a;
        if (n->dead) continue;
        (void)ask(j, store, dev, LN_LOWER_READS, n, false, &a);
        for (int k = 0; k < n->n_in; k++) j->readable[n->in[k]] &= a.readable[k];
    }
}

static ln_status choose_storage(job *j, ln_lower_fn *store, const struct ln_dev *dev, ln_error *err) {
    ln_graph *g = j->g;
    for (size_t i = 0; i < g->n_nodes; i++) {
        const ln_node *n = &g->nodes[i];
        ln_lower_answer a;
        if (n->dead) continue;
        (void)ask(j, store, dev, LN_LOWER_STORAGE, n, false, &a);
        for (int k = 0; k < n->n_out; k++) {
            ln_value *v = &g->values[n->out[k]];
            if (v->kind != LN_KIND_TEMP) continue;
            if (a.layout[k] > 31 || !(j->readable[n->out[k]] >> a.layout[k] & 1))
                return ln_fail(err, LN_EINTERNAL,
                               "graph: the device stores %s in layout %d, which not all of its readers can "
                               "read",
                               v->name, a.layout[k]);
            v->layout = a.layout[k];
            j->l->row_bytes[n->out[k]] = a.row_bytes[k];
            j->l->tail_rows[n->out[k]] = k == 0 ? a.tail_rows : 0;
        }
        j->l->nodes[i] = (ln_lowered_node){a.kernel, a.tolerance, a.in_place};
    }
    return LN_OK;
}

ln_status ln_graph_lower(ln_graph *g, ln_lower_fn *choose, const struct ln_dev *choose_dev,
                         ln_lower_fn *store, const struct ln_dev *store_dev, const ln_bounds *b,
                         int real_bytes, ln_lowering *out, ln_error *err) {
    ln_status st = LN_OK;
    job j = {.g = g, .l = out, .b = b, .real_bytes = real_bytes};
    out->nodes = ln_arena_alloc(&g->arena, (g->n_nodes + 1) * sizeof *out->nodes);
    out->row_bytes = ln_arena_alloc(&g->arena, (g->n_values + 1) * sizeof *out->row_bytes);
    out->tail_rows = ln_arena_alloc(&g->arena, (g->n_values + 1) * sizeof *out->tail_rows);
    j.reader = ln_zalloc(g->n_values + 1, sizeof *j.reader);
    j.readable = ln_zalloc(g->n_values + 1, sizeof *j.readable);
    if (!out->nodes || !out->row_bytes || !out->tail_rows || !j.reader || !j.readable)
        LN_GO(LN_OOM(err, "lowering a graph"));
    memset(out->nodes, 0, (g->n_nodes + 1) * sizeof *out->nodes);
    memset(out->row_bytes, 0, (g->n_values + 1) * sizeof *out->row_bytes);
    memset(out->tail_rows, 0, (g->n_values + 1) * sizeof *out->tail_rows);
    out->early_converts = false;
    count_readers(&j);
    LN_GO(choose_formats(&j, choose, choose_dev, err));
    ln_graph_fuse_rounding(g);
    count_readers(&j);
    find_readable(&j, store, store_dev);
    LN_GO(choose_storage(&j, store, store_dev, err));
out:
    ln_free(j.reader);
    ln_free(j.readable);
    return st;
}
