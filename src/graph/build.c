/* Graph builders: each call adds one node and returns the value that it produces (its first output), so that
 * a model's description reads like direct calls.
 *
 * A builder does not report errors: the first failure is stored in g->error, every later call returns -1, and
 * ln_graph_check reports the failure. Values are named `prefix + name`; the prefix (`layers.7.`) and the
 * layer are set once per layer. */
#include "graph.h"

#include <stdio.h>

void ln_graph_open(ln_graph *g) {
    memset(g, 0, sizeof *g);
    g->layer = -1;
}

void ln_graph_close(ln_graph *g) {
    ln_free(g->values);
    ln_free(g->nodes);
    ln_free(g->outputs);
    ln_arena_free(&g->arena);
    memset(g, 0, sizeof *g);
}

void ln_g_layer(ln_graph *g, int layer, const char *prefix) {
    g->layer = layer;
    size_t n = strlen(prefix);
    n = LN_MIN(n, sizeof g->prefix - 1);
    memcpy(g->prefix, prefix, n);
    g->prefix[n] = 0;
}

static bool failed(const ln_graph *g) { return g->error.code != LN_OK; }

static ln_v new_value(ln_graph *g, const char *name, ln_kind kind) {
    if (failed(g)) return -1;
    void *p = g->values;
    if (ln_grow(&p, &g->cap_values, g->n_values + 1, sizeof *g->values, &g->error) != LN_OK) return -1;
    g->values = p;
    ln_value *v = &g->values[g->n_values];
    memset(v, 0, sizeof *v);
    ln_str s = {0};
    ln_str_addf(&s, "%s%s", g->prefix, name);
    size_t n = LN_MIN(s.len, sizeof v->name - 1);
    if (s.data) memcpy(v->name, s.data, n);
    ln_str_free(&s);
    v->kind = kind;
    v->layer = g->layer;
    v->def = v->slot = -1;
    return (ln_v)g->n_values++;
}

ln_v ln_g_weight(ln_graph *g, const char *name, ln_dtype dtype, int slot, int64_t d0, int64_t d1) {
    ln_v i = new_value(g, name, LN_KIND_WEIGHT);
    if (i < 0) return -1;
    ln_value *v = &g->values[i];
    v->dtype = dtype;
    v->slot = slot;
    v->enc = ln_encoding_dense(dtype);
    v->n_dims = d1 > 0 ? 2 : 1;
    v->dims[0] = d0;
    v->dims[1] = d1;
    return i;
}

/* A value of n_dims dimensions in memory that run/ binds. */
static ln_v bound_value(ln_graph *g, const char *name, ln_kind kind, ln_dtype dtype, int slot, int n_dims,
                        const int64_t *dims) {
    ln_v i = new_value(g, name, kind);
    if (i < 0) return -1;
    ln_value *v = &g->values[i];
    if (n_dims < 1 || n_dims > (int)LN_COUNT(v->dims)) {
        ln_fail(&g->error, LN_EINTERNAL, "graph: %s has %d dimensions, expected 1 to %d", v->name, n_dims,
                (int)LN_COUNT(v->dims));
        return -1;
    }
    v->dtype = dtype;
    if (kind == LN_KIND_TRAINABLE) v->enc = ln_encoding_dense(dtype);
    v->slot = slot;
    v->n_dims = n_dims;
    memcpy(v->dims, dims, (size_t)n_dims * sizeof *dims);
    return i;
}

ln_v ln_g_trainable(ln_graph *g, const char *name, int slot, ln_dtype dtype, int n_dims,
                    const int64_t *dims) {
    return bound_value(g, name, LN_KIND_TRAINABLE, dtype, slot, n_dims, dims);
}

ln_v ln_g_input(ln_graph *g, const char *name, int slot, ln_dtype dtype, int n_dims, const int64_t *dims) {
    return bound_value(g, name, LN_KIND_INPUT, dtype, slot, n_dims, dims);
}

ln_v ln_g_encoded(ln_graph *g, const char *name, ln_encoding enc, int slot, int n_dims, const int64_t *dims) {
    ln_v i = bound_value(g, name, LN_KIND_WEIGHT, (ln_dtype)enc.scale, slot, n_dims, dims);
    if (i >= 0) g->values[i].enc = enc;
    return i;
}

ln_v ln_g_state(ln_graph *g, const char *name, int slot, ln_dtype dtype, unsigned flags, int n_dims,
                const int64_t *dims) {
    ln_v i = bound_value(g, name, LN_KIND_STATE, dtype, slot, n_dims, dims);
    if (i >= 0) g->values[i].flags = flags;
    return i;
}

size_t ln_graph_states(const ln_graph *g) {
    int n = 0;
    for (size_t i = 0; i < g->n_values; i++)
        if (g->values[i].kind == LN_KIND_STATE) n = LN_MAX(n, g->values[i].slot + 1);
    return (size_t)n;
}

void ln_g_output(ln_graph *g, ln_v v) {
    if (failed(g)) return;
    void *p = g->outputs;
    if (ln_grow(&p, &g->cap_outputs, g->n_outputs + 1, sizeof *g->outputs, &g->error) != LN_OK) return;
    g->outputs = p;
    g->outputs[g->n_outputs++] = v;
}
void ln_g_taken_output(ln_graph *g, ln_v v) {
    ln_g_output(g, v);
    if (g->error.code == LN_OK) g->values[v].taken = true;
}

void ln_g_append(ln_graph *g, const ln_node *n) {
    if (failed(g)) return;
    void *p = g->nodes;
    if (ln_grow(&p, &g->cap_nodes, g->n_nodes + 1, sizeof *g->nodes, &g->error) != LN_OK) return;
    g->nodes = p;
    for (int k = 0; k < n->n_out; k++) g->values[n->out[k]].def = (int)g->n_nodes;
    g->nodes[g->n_nodes++] = *n;
}

ln_status ln_node_shape(const ln_graph *g, const ln_node *n, ln_value out[LN_NODE_OUT], ln_error *err) {
    memset(out, 0, LN_NODE_OUT * sizeof *out);
    for (int k = 0; k < LN_NODE_OUT; k++) out[k].slot = -1;
    return ln_ops[n->op].shape(g, n, out, err);
}
/* Gives a value what a shape rule says of it. */
static void take_shape(ln_value *v, const ln_value *shape) {
    v->kind = shape->kind;
    v->dtype = shape->dtype;
    v->format = shape->format;
    v->slot = shape->slot;
    v->flags = shape->flags;
    v->n_dims = shape->n_dims;
    memcpy(v->dims, shape->dims, sizeof v->dims);
}
/* Refuses a node with an unknown op, an input that is no value, or more outputs than a node can have. */
static bool is_node(ln_graph *g, const char *name, const ln_node *n) {
    if (n->op >= LN_OP_COUNT || n->n_in < 0 || n->n_in > LN_NODE_IN || n->n_out < 1 ||
        n->n_out > LN_NODE_OUT) {
        ln_fail(&g->error, LN_EINTERNAL, "graph: node %s%s has op %d, %d inputs and %d outputs", g->prefix,
                name, (int)n->op, n->n_in, n->n_out);
        return false;
    }
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i] < 0 || (size_t)n->in[i] >= g->n_values) {
            ln_fail(&g->error, LN_EINTERNAL, "graph: input %d of %s%s (%s) is no value", i, g->prefix, name,
                    ln_ops[n->op].name);
            return false;
        }
    return true;
}

/* The value of output k of a node, without a shape. */
static ln_v new_output(ln_graph *g, const char *name, int k, int n_out) {
    if (n_out == 1) return new_value(g, name, LN_KIND_TEMP);
    char text[sizeof g->values->name];
    (void)snprintf(text, sizeof text, "%s.%d", name, k);
    return new_value(g, text, LN_KIND_TEMP);
}

ln_v ln_g_node(ln_graph *g, const char *name, const ln_node *node, ln_v out[LN_NODE_OUT]) {
    ln_node n = *node;
    ln_value shape[LN_NODE_OUT];
    for (int k = 0; out && k < LN_NODE_OUT; k++) out[k] = -1;
    if (failed(g)) return -1;
    if (!n.n_out && n.op < LN_OP_COUNT) n.n_out = ln_ops[n.op].n_out;
    if (!is_node(g, name, &n)) return -1;
    for (int k = 0; k < n.n_out; k++) n.out[k] = new_output(g, name, k, n.n_out);
    n.layer = g->layer;
    n.dead = false;
    if (failed(g) || ln_node_shape(g, &n, shape, &g->error) != LN_OK) return -1;
    for (int k = 0; k < n.n_out; k++) take_shape(&g->values[n.out[k]], &shape[k]);
    ln_g_append(g, &n);
    if (failed(g)) return -1;
    for (int k = 0; out && k < n.n_out; k++) out[k] = n.out[k];
    return n.out[0];
}
/* A node of one output. */
static ln_v add(ln_graph *g, const char *name, ln_node n) { return ln_g_node(g, name, &n, NULL); }

ln_v ln_g_embed(ln_graph *g, const char *name, ln_v table, float scale, int32_t padding) {
    return add(g, name, (ln_node){.op = LN_OP_EMBED, .n_in = 1, .in = {table}, .p.embed = {scale, padding}});
}
ln_v ln_g_linear(ln_graph *g, const char *name, ln_v x, ln_v w, ln_v bias_or_none) {
    return add(g, name,
               (ln_node){.op = LN_OP_LINEAR, .n_in = bias_or_none >= 0 ? 3 : 2, .in = {x, w, bias_or_none}});
}
ln_v ln_g_convert(ln_graph *g, const char *name, ln_v x, ln_format to) {
    for (size_t i = g->n_nodes; !failed(g) && i-- > 0 && g->nodes[i].layer == g->layer;) {
        const ln_node *n = &g->nodes[i]; /* a conversion of the same x is near the end of the graph */
        if (n->op == LN_OP_CONVERT && n->in[0] == x && ln_format_same(n->p.convert.to, to)) return n->out[0];
    }
    return add(g, name, (ln_node){.op = LN_OP_CONVERT, .n_in = 1, .in = {x}, .p.convert = {to}});
}
ln_v ln_g_rmsnorm(ln_graph *g, const char *name, ln_v x, ln_v w, float eps, float offset) {
    return add(g, name,
               (ln_node){
                   .op = LN_OP_RMSNORM, .n_in = 2, .in = {x, w}, .p.norm = {.eps = eps, .offset = offset}});
}
ln_v ln_g_add(ln_graph *g, const char *name, ln_v a, ln_v b) {
    return add(g, name, (ln_node){.op = LN_OP_ADD, .n_in = 2, .in = {a, b}});
}
ln_v ln_g_mul(ln_graph *g, const char *name, ln_v a, ln_v b) {
    return add(g, name, (ln_node){.op = LN_OP_MUL, .n_in = 2, .in = {a, b}});
}
ln_v ln_g_rmsnorm_plain(ln_graph *g, const char *name, ln_v x, int64_t width, float eps) {
    return add(g, name,
               (ln_node){.op = LN_OP_RMSNORM, .n_in = 1, .in = {x}, .p.norm = {.eps = eps, .width = width}});
}
ln_v ln_g_sigmoid(ln_graph *g, const char *name, ln_v a) {
    return add(g, name, (ln_node){.op = LN_OP_SIGMOID, .n_in = 1, .in = {a}});
}
ln_v ln_g_centre(ln_graph *g, const char *name, ln_v x) {
    return add(g, name, (ln_node){.op = LN_OP_CENTRE, .n_in = 1, .in = {x}});
}
ln_v ln_g_slice(ln_graph *g, const char *name, ln_v x, int64_t at, int64_t cols) {
    return add(g, name,
               (ln_node){.op = LN_OP_SLICE, .n_in = 1, .in = {x}, .p.slice = {.at = at, .cols = cols}});
}
ln_v ln_g_clamp(ln_graph *g, const char *name, ln_v x, float low, float high) {
    return add(g, name, (ln_node){.op = LN_OP_CLAMP, .n_in = 1, .in = {x}, .p.clamp = {low, high}});
}
ln_v ln_g_route(ln_graph *g, const char *name, ln_v logits, ln_v bias, ln_v scale, const ln_p_route *p,
                ln_v *weights) {
    ln_node n = {.op = LN_OP_ROUTE, .n_in = 1, .in = {logits}, .p.route = *p};
    ln_v out[LN_NODE_OUT];
    n.p.route.biased = bias >= 0;
    n.p.route.scaled = scale >= 0;
    if (bias >= 0) n.in[n.n_in++] = bias;
    if (scale >= 0) n.in[n.n_in++] = scale;
    (void)ln_g_node(g, name, &n, out);
    *weights = out[1];
    return out[0];
}
ln_v ln_g_experts(ln_graph *g, const char *name, ln_v x, ln_v w, ln_v ids, ln_v bias, int top_k) {
    const bool shared = !failed(g) && g->values[x].dims[0] != g->values[ids].dims[0];
    return add(g, name,
               (ln_node){.op = LN_OP_EXPERTS,
                         .n_in = bias < 0 ? 3 : 4,
                         .in = {x, w, ids, LN_MAX(bias, 0)},
                         .p.experts = {.top_k = top_k, .shared = shared}});
}
ln_v ln_g_fold_rows(ln_graph *g, const char *name, ln_v x, ln_v s, int n) {
    return add(g, name,
               (ln_node){.op = LN_OP_FOLD_ROWS,
                         .n_in = s < 0 ? 1 : 2,
                         .in = {x, LN_MAX(s, 0)},
                         .p.fold = {.n = n}});
}
ln_v ln_g_slice_groups(ln_graph *g, const char *name, ln_v x, int64_t at, int64_t cols, int64_t every) {
    return add(g, name, (ln_node){.op = LN_OP_SLICE, .n_in = 1, .in = {x}, .p.slice = {at, cols, every}});
}
ln_v ln_g_softcap(ln_graph *g, const char *name, ln_v a, float cap) {
    return add(g, name, (ln_node){.op = LN_OP_SOFTCAP, .n_in = 1, .in = {a}, .p.scale = {cap}});
}
ln_v ln_g_pos_scale(ln_graph *g, const char *name, const ln_p_pos_scale *p) {
    return add(g, name, (ln_node){.op = LN_OP_POS_SCALE, .n_in = 0, .p.pos_scale = *p});
}
ln_v ln_g_silu(ln_graph *g, const char *name, ln_v a) {
    return add(g, name, (ln_node){.op = LN_OP_SILU, .n_in = 1, .in = {a}});
}
ln_v ln_g_gelu_tanh(ln_graph *g, const char *name, ln_v a) {
    return add(g, name, (ln_node){.op = LN_OP_GELU_TANH, .n_in = 1, .in = {a}});
}
ln_v ln_g_xielu(ln_graph *g, const char *name, ln_v a, const ln_p_xielu *p) {
    return add(g, name, (ln_node){.op = LN_OP_XIELU, .n_in = 1, .in = {a}, .p.xielu = *p});
}
ln_v ln_g_relu2(ln_graph *g, const char *name, ln_v a) {
    return add(g, name, (ln_node){.op = LN_OP_RELU2, .n_in = 1, .in = {a}});
}
ln_v ln_g_rope_table(ln_graph *g, const char *name, const ln_p_freqs *p) {
    return add(g, name, (ln_node){.op = LN_OP_ROPE_TABLE, .n_in = 0, .p.freqs = *p});
}
ln_v ln_g_rope(ln_graph *g, const char *name, ln_v x, ln_v table, const ln_p_heads *p) {
    return add(g, name, (ln_node){.op = LN_OP_ROPE, .n_in = 2, .in = {x, table}, .p.heads = *p});
}
ln_v ln_g_kv_write(ln_graph *g, const char *name, ln_v kv, ln_v k, ln_v v, const ln_p_kv *p) {
    return add(g, name, (ln_node){.op = LN_OP_KV_WRITE, .n_in = 3, .in = {kv, k, v}, .p.kv = *p});
}
ln_v ln_g_attn_paged(ln_graph *g, const char *name, ln_v q, ln_v kv, ln_v sinks, const ln_p_attn *p) {
    return add(g, name,
               (ln_node){.op = LN_OP_ATTN_PAGED,
                         .n_in = sinks < 0 ? 2 : 3,
                         .in = {q, kv, sinks < 0 ? 0 : sinks},
                         .p.attn = *p});
}
/* A node whose first output is the next version of *state; returns the second. */
static ln_v add_effect(ln_graph *g, const char *name, ln_v *state, const ln_node *n) {
    ln_v out[LN_NODE_OUT];
    if (ln_g_node(g, name, n, out) >= 0) *state = out[0];
    return out[1];
}
ln_v ln_g_short_conv(ln_graph *g, const char *name, ln_v *state, ln_v x, ln_v w, ln_v bias,
                     const ln_p_recur *p) {
    return add_effect(g, name, state,
                      &(ln_node){.op = LN_OP_SHORT_CONV,
                                 .n_in = bias < 0 ? 3 : 4,
                                 .in = {*state, x, w, bias < 0 ? 0 : bias},
                                 .p.recur = *p});
}
ln_v ln_g_delta_gates(ln_graph *g, const char *name, ln_v a, ln_v b, ln_v a_log, ln_v dt_bias, float by) {
    return add(g, name,
               (ln_node){.op = LN_OP_DELTA_GATES, .n_in = 4, .in = {a, b, a_log, dt_bias}, .p.scale = {by}});
}
ln_v ln_g_gated_delta(ln_graph *g, const char *name, ln_v *state, ln_v gates, ln_v q, ln_v k, ln_v v,
                      const ln_p_recur *p) {
    return add_effect(g, name, state,
                      &(ln_node){.op = LN_OP_GATED_DELTA,
                                 .n_in = k < 0 ? 3 : 5,
                                 .in = {*state, gates, q, k < 0 ? 0 : k, k < 0 ? 0 : v},
                                 .p.recur = *p});
}
ln_v ln_g_gather_rows(ln_graph *g, const char *name, ln_v x) {
    return add(g, name, (ln_node){.op = LN_OP_GATHER_ROWS, .n_in = 1, .in = {x}});
}
ln_v ln_g_lora_down(ln_graph *g, const char *name, ln_v x, ln_v pool, ln_v ids, const ln_p_lora *p) {
    return add(g, name,
               (ln_node){.op = LN_OP_LORA_DOWN,
                         .n_in = ids < 0 ? 2 : 3,
                         .in = {x, pool, LN_MAX(ids, 0)},
                         .p.lora = *p});
}
ln_v ln_g_lora_up(ln_graph *g, const char *name, ln_v y, ln_v t, ln_v pool, ln_v ids, const ln_p_lora *p) {
    return add(g, name,
               (ln_node){.op = LN_OP_LORA_UP,
                         .n_in = ids < 0 ? 3 : 4,
                         .in = {y, t, pool, LN_MAX(ids, 0)},
                         .p.lora = *p});
}
ln_v ln_g_all_gather(ln_graph *g, const char *name, ln_v x, const ln_p_gather *p) {
    return add(g, name, (ln_node){.op = LN_OP_ALL_GATHER, .n_in = 1, .in = {x}, .p.gather = *p});
}
