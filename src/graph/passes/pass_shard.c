/* shard: from the program of a model to that of a rank (decision 055). Each rank computes some of the outputs
 * of each matrix that is split, whole: the order of every sum stays, and N ranks give the bits of one.
 *
 *     y = linear(x, w)          y.part = linear(x, w of the rank)
 *     z = silu(y)         ->    z.part = silu(y.part)
 *     u = linear(z, v)          z = all_gather(z.part)
 *                               u.part = linear(z, v of the rank)
 *
 * A value is whole, or a rank has some of its columns. Nodes whose columns depend on the same columns of
 * their operands, or on those of one head, compute the rank's columns only; others gather their operands
 * before. A part is gathered once, right before its first reader, under the name of the whole value. Keys and
 * values are written by head, each rank its own. */
#include "../graph.h"

#include <stdio.h>

typedef struct sharding {
    ln_graph *g;
    const ln_split_weight *weights; /* by slot */
    int size, rank;
    size_t n_values; /* of the graph as it was */
    ln_v *part;      /* [n_values] the rank's columns of a value; -1: none */
    ln_share *cut;   /* [n_values] which columns these are; all 0: none */
    bool *whole;     /* [n_values] the whole value exists */
} sharding;

static bool failed(const sharding *s) { return s->g->error.code != LN_OK; }
static bool has_part(const sharding *s, ln_v v) { return (size_t)v < s->n_values && s->part[v] >= 0; }
static bool same_cut(const ln_share *a, const ln_share *b) {
    return a->all == b->all && a->first == b->first && a->n == b->n;
}
static const char *part_name(const ln_graph *g, ln_v v, char out[80]) {
    (void)snprintf(out, 80, "%.58s.part", g->values[v].name);
    return out;
}

/* The whole value: gathered, if a rank has a part of it only. */
static ln_v whole(sharding *s, ln_v v) {
    if (!has_part(s, v) || s->whole[v]) return v;
    const ln_node n = {.op = LN_OP_ALL_GATHER,
                       .n_in = 1,
                       .n_out = 1,
                       .in = {s->part[v]},
                       .out = {v},
                       .layer = s->g->values[v].layer,
                       .p.gather = {.n_ranks = s->size, .cols = s->cut[v].all}};
    ln_g_append(s->g, &n);
    s->whole[v] = true;
    return v;
}

/* The columns `cut` of a value. */
static ln_v part(sharding *s, ln_v v, const ln_share *cut) {
    char name[80];
    if (has_part(s, v) && same_cut(&s->cut[v], cut)) return s->part[v];
    const ln_v x = whole(s, v), y = ln_g_slice(s->g, part_name(s->g, v, name), x, cut->first, cut->n);
    if (!has_part(s, v)) s->part[v] = y, s->cut[v] = *cut, s->whole[v] = true;
    return y;
}

/* Adds a node whose output 0 has the columns `cut` of the old output. */
static void add_part(sharding *s, const ln_node *old, const ln_node *n, const ln_share *cut) {
    char name[80];
    const ln_v v = old->out[0];
    s->part[v] = ln_g_node(s->g, part_name(s->g, v, name), n, NULL);
    s->cut[v] = *cut;
    s->whole[v] = false;
}

/* ---- which nodes compute parts ---- */

/* The share of the rows of a weight; n == all: it is not split. */
static ln_share share_of_weight(const sharding *s, ln_v w) {
    const ln_value *v = &s->g->values[w];
    const bool bound = v->kind == LN_KIND_WEIGHT && v->slot >= 0;
    return bound ? s->weights[v->slot].share : (ln_share){1, 0, 1};
}
static bool is_split(const ln_share *c) { return c->n < c->all; }

/* A product with a split weight: its operand is whole, its output the rank's rows of the weight. */
static bool shard_product(sharding *s, const ln_node *old) {
    if (old->op != LN_OP_LINEAR && old->op != LN_OP_EXPERTS) return false;
    const ln_share cut = share_of_weight(s, old->in[1]);
    ln_node n = *old;
    if (!is_split(&cut)) return false;
    n.in[0] = whole(s, old->in[0]);
    add_part(s, old, &n, &cut);
    return true;
}

/* Whether the columns of a node's output are functions of the same columns of its first n operands, other
 * operands having one column or none. 0: they are not. */
static int columnwise_operands(const ln_node *n) {
    switch (n->op) {
    case LN_OP_ADD:
    case LN_OP_MUL: return 2;
    case LN_OP_SILU:
    case LN_OP_GELU_TANH:
    case LN_OP_RELU2:
    case LN_OP_XIELU:
    case LN_OP_SIGMOID:
    case LN_OP_SOFTCAP:
    case LN_OP_CLAMP:
    case LN_OP_SCALE:
    case LN_OP_SCALE_ROWS:
    case LN_OP_FOLD_ROWS:
    case LN_OP_GATHER_ROWS: return n->op == LN_OP_CLAMP ? n->n_in : 1;
    default: return 0;
    }
}

/* The number of neighbouring columns that a node computes together, in its operand and in its output; 0: the
 * whole row. */
static int64_t group_of(const ln_graph *g, const ln_node *n, int64_t *out) {
    int64_t group = columnwise_operands(n) ? 1 : 0;
    if (n->op == LN_OP_ROPE) group = n->p.heads.head_dim;
    if (n->op == LN_OP_RMSNORM) group = n->n_in > 1 ? g->values[n->in[1]].dims[0] : n->p.norm.width;
    if (n->op == LN_OP_SLICE) group = n->p.slice.every;
    *out = n->op == LN_OP_SLICE ? n->p.slice.cols : group;
    return group;
}

/* A node that computes groups of columns, if the rank has the same whole groups of all its operands. */
static bool shard_groups(sharding *s, const ln_node *old) {
    int64_t out;
    const int64_t group = group_of(s->g, old, &out);
    const int operands = LN_MAX(1, columnwise_operands(old));
    ln_node n = *old;
    if (!group || !has_part(s, old->in[0])) return false;
    const ln_share cut = s->cut[old->in[0]];
    if (cut.first % group || cut.n % group || cut.all % group) return false;
    for (int k = 0; k < old->n_in; k++) {
        if (k >= operands) n.in[k] = whole(s, old->in[k]);
        else if (has_part(s, old->in[k]) && same_cut(&s->cut[old->in[k]], &cut))
            n.in[k] = s->part[old->in[k]];
        else return false;
    }
    if (n.op == LN_OP_ROPE) n.p.heads.n_heads = (int)(cut.n / group);
    const ln_share made = {cut.all / group * out, cut.first / group * out, cut.n / group * out};
    add_part(s, old, &n, &made);
    return true;
}

static ln_share times(ln_share s, int64_t width) {
    return (ln_share){s.all * width, s.first * width, s.n * width};
}

/* Keys and values, and attention to them: each rank has some of the heads. */
static bool shard_attention(sharding *s, const ln_node *old) {
    const bool writes = old->op == LN_OP_KV_WRITE;
    ln_node n = *old;
    if (!writes && old->op != LN_OP_ATTN_PAGED) return false;
    ln_p_kv *kv = writes ? &n.p.kv : &n.p.attn.kv;
    const ln_share heads = ln_share_of(kv->n_kv_heads, 1, s->size, s->rank);
    if (!is_split(&heads)) return false;
    if (writes) {
        const ln_share keys = times(heads, kv->head_dim), values = times(heads, kv->v_dim);
        kv->n_kv_heads = (int)heads.n;
        n.in[1] = part(s, old->in[1], &keys);
        n.in[2] = part(s, old->in[2], &values);
        ln_g_append(s->g, &n); /* the next version of the state is whole for the graph */
        return true;
    }
    const ln_share queries = times(heads, n.p.attn.n_heads / kv->n_kv_heads);
    const ln_share q = times(queries, kv->head_dim), y = times(queries, kv->v_dim);
    kv->n_kv_heads = (int)heads.n;
    n.p.attn.n_heads = (int)queries.n;
    n.in[0] = part(s, old->in[0], &q);
    add_part(s, old, &n, &y);
    return true;
}

/* Sets the shapes of split weights, which products alone read, to those of the rank's rows. */
static void cut_weights(sharding *s) {
    for (size_t i = 0; i < s->n_values; i++) {
        ln_value *v = &s->g->values[i];
        const ln_share cut = share_of_weight(s, (ln_v)i);
        if (!is_split(&cut)) continue;
        int64_t *rows = &v->dims[v->n_dims == 3 ? 1 : 0]; /* biases of experts follow each other */
        *rows = *rows / cut.all * cut.n;
    }
}

static void shard_all(sharding *s, const ln_node *old, size_t n) {
    ln_graph *g = s->g;
    cut_weights(s);
    for (size_t i = 0; i < n && !failed(s); i++) {
        ln_g_layer(g, old[i].layer, "");
        if (shard_product(s, &old[i]) || shard_attention(s, &old[i]) || shard_groups(s, &old[i])) continue;
        ln_node node = old[i];
        for (int k = 0; k < node.n_in; k++) node.in[k] = whole(s, node.in[k]);
        ln_g_append(g, &node);
    }
    for (size_t i = 0; i < g->n_outputs && !failed(s); i++) g->outputs[i] = whole(s, g->outputs[i]);
}

ln_status ln_graph_shard(ln_graph *g, const ln_split_weight *weights, int size, int rank, ln_error *err) {
    sharding s = {.g = g, .weights = weights, .size = size, .rank = rank, .n_values = g->n_values};
    ln_node *old = g->nodes;
    const size_t n = g->n_nodes;
    s.part = ln_alloc((s.n_values + 1) * sizeof *s.part);
    s.cut = ln_zalloc(s.n_values + 1, sizeof *s.cut);
    s.whole = ln_zalloc(s.n_values + 1, sizeof *s.whole);
    ln_status st = s.part && s.cut && s.whole ? LN_OK : LN_OOM(err, "a graph");
    if (st == LN_OK) {
        for (size_t i = 0; i < s.n_values; i++) s.part[i] = -1;
        g->nodes = NULL; /* the list is rebuilt, in the same order */
        g->n_nodes = g->cap_nodes = 0;
        shard_all(&s, old, n);
        ln_free(old);
        ln_g_layer(g, -1, "");
        if (err) *err = g->error;
        st = g->error.code;
    }
    ln_free(s.part);
    ln_free(s.cut);
    ln_free(s.whole);
    return st;
}
