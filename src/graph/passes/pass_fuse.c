/* fuse: replaces patterns of nodes by ops that touch memory once, whatever the device: an activation and the
 * product with it become gated; a conversion to bf16 becomes a property of the value that it converts. */
#include "../graph.h"

/* The number of uses of each value, as input and as graph output. NULL when out of memory: then nothing is
 * fused, which costs speed only. The caller frees it. */
static int *count_uses(const ln_graph *g) {
    int *uses = ln_zalloc(g->n_values + 1, sizeof *uses);
    if (!uses) return NULL;
    for (size_t i = 0; i < g->n_nodes; i++)
        for (int k = 0; !g->nodes[i].dead && k < g->nodes[i].n_in; k++) uses[g->nodes[i].in[k]]++;
    for (size_t i = 0; i < g->n_outputs; i++) uses[g->outputs[i]]++;
    return uses;
}

bool ln_node_rounds(const ln_node *n, const ln_value *values) {
    return (ln_ops[n->op].props & LN_PROP_ROUNDS) &&
           !(n->op == LN_OP_LINEAR_GATED && values[n->in[0]].format.kind == LN_FORMAT_I8PAIR);
}

/* mul(act(g), u) -> gated(g, u), when act(g) has no other use. */
static bool fuse_gated(ln_graph *g, const int *uses, ln_node *mul, ln_op op, ln_act act) {
    for (int k = 0; k < 2; k++) {
        int def = g->values[mul->in[k]].def;
        if (def < 0 || g->nodes[def].dead || g->nodes[def].op != op || uses[mul->in[k]] != 1) continue;
        ln_v other = mul->in[1 - k];
        mul->op = LN_OP_GATED;
        mul->p.gate.act = act;
        mul->in[0] = g->nodes[def].in[0];
        mul->in[1] = other;
        g->nodes[def].dead = true;
        return true;
    }
    return false;
}

int ln_graph_fuse(ln_graph *g) {
    int n = 0, *uses = count_uses(g);
    for (size_t i = 0; uses && i < g->n_nodes; i++) {
        ln_node *node = &g->nodes[i];
        if (!node->dead && node->op == LN_OP_MUL)
            n += fuse_gated(g, uses, node, LN_OP_SILU, LN_ACT_SILU) ||
                 fuse_gated(g, uses, node, LN_OP_GELU_TANH, LN_ACT_GELU_TANH);
    }
    ln_free(uses);
    return n;
}

/* convert(all_gather(x)) to bf16 -> all_gather(convert(x)), when the gather has no other use: ranks exchange
 * half the bytes. Returns the conversion. */
static ln_node *round_part(ln_graph *g, const int *uses, ln_node *round) {
    ln_value *part = &g->values[round->in[0]];
    ln_node *gather = part->def >= 0 ? &g->nodes[part->def] : round;
    if (gather->dead || gather->op != LN_OP_ALL_GATHER || uses[round->in[0]] != 1) return round;
    const ln_node converts = *round;
    round->op = LN_OP_ALL_GATHER, round->p = gather->p;
    gather->op = LN_OP_CONVERT, gather->p = converts.p;
    memcpy(part->dims, g->values[gather->in[0]].dims, sizeof part->dims);
    part->format = converts.p.convert.to;
    return gather;
}

/* convert(op(x)) to bf16 -> op(x) with a bf16-valued output, when op(x) has no other use. */
static bool fuse_round(ln_graph *g, int *uses, ln_node *round, ln_v *replaced_by) {
    const ln_v x = round->in[0];
    const int def = g->values[x].def;
    if (def < 0 || g->nodes[def].dead || !ln_node_rounds(&g->nodes[def], g->values) || uses[x] != 1)
        return false;
    g->values[x].format = round->p.convert.to;
    replaced_by[round->out[0]] = x;
    uses[x] = uses[round->out[0]];
    round->dead = true;
    return true;
}

int ln_graph_fuse_rounding(ln_graph *g) {
    int n = 0, *uses = count_uses(g);
    ln_v *replaced_by = ln_alloc((g->n_values + 1) * sizeof *replaced_by); /* of an output that is no more */
    for (size_t i = 0; replaced_by && i < g->n_values; i++) replaced_by[i] = (ln_v)i;
    for (size_t i = 0; uses && replaced_by && i < g->n_nodes; i++) {
        ln_node *node = &g->nodes[i];
        if (node->dead) continue;
        for (int k = 0; k < node->n_in; k++) node->in[k] = replaced_by[node->in[k]];
        if (node->op != LN_OP_CONVERT || node->p.convert.to.kind != LN_FORMAT_BF16) continue;
        n += fuse_round(g, uses, round_part(g, uses, node), replaced_by);
        node->in[0] = replaced_by[node->in[0]];
    }
    for (size_t i = 0; replaced_by && i < g->n_outputs; i++) g->outputs[i] = replaced_by[g->outputs[i]];
    ln_free(uses);
    ln_free(replaced_by);
    return n;
}
