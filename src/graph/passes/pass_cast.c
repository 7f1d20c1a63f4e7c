/* cast: inserts the conversions that a numerics policy asks for.
 *
 * A model's description computes with f32 alone. This pass is the only place where number formats enter a
 * program: ln_policy_operand names the format in which a node reads an operand, and the pass inserts one
 * `convert` for each pair of a value and a format, immediately before its first consumer. (The order matters:
 * a plan follows the order of the nodes.) A conversion is named after its input: `layers.7.attn.norm.bf16`.
 */
#include "../graph.h"

#include <stdio.h>

static const ln_format f32 = {LN_FORMAT_F32, 0, 0}, bf16 = {LN_FORMAT_BF16, 0, 0};

/* The format of x in a product with w. */
static ln_format product_operand(ln_policy p, const ln_value *w) {
    switch (p) {
    case LN_POLICY_FAST_FP8:
        if (ln_encoding_is_fp8(w->enc)) return bf16;
        /* fall through */
    case LN_POLICY_FAST:
        if (ln_encoding_is_coded(w->enc)) return f32;
        return ln_encoding_is_dense(w->enc) ? bf16 : ln_format_of(LN_FORMAT_BFP, ln_encoding_groups(w->enc));
    case LN_POLICY_TRAIN:
        return w->enc.kind == LN_STORED_BF16 || w->enc.kind == LN_STORED_AFFINE ? bf16 : f32;
    default: return f32;
    }
}

ln_format ln_policy_operand(ln_policy p, const ln_node *n, int k, const ln_value *values) {
    if (n->op == LN_OP_ATTN || n->op == LN_OP_ATTN_BACK) /* q, k, v and the gradient of y */
        return p == LN_POLICY_TRAIN && (k < 3 || k == 5) ? bf16 : f32;
    if (k > 0) return f32;
    if (n->op == LN_OP_LINEAR || n->op == LN_OP_LINEAR_GATED || n->op == LN_OP_EXPERTS)
        return product_operand(p, &values[n->in[1]]);
    if (n->op == LN_OP_LINEAR_BACK || n->op == LN_OP_EXPERTS_BACK || n->op == LN_OP_LINEAR_CROSS_ENTROPY)
        return p == LN_POLICY_TRAIN ? product_operand(p, &values[n->in[1]]) : f32;
    const bool fast = p == LN_POLICY_FAST || p == LN_POLICY_FAST_FP8;
    if (n->op == LN_OP_LORA_DOWN) return fast && n->p.lora.rounds ? bf16 : f32;
    if (n->op == LN_OP_ATTN_PAGED) return fast && n->p.attn.kv.dtype == LN_BF16 ? bf16 : f32;
    return f32;
}

/* Appends the conversions of a node's operands and has the node read them. */
static void cast_operands(ln_graph *g, ln_node *n, ln_policy p) {
    for (int k = 0; k < n->n_in; k++) {
        const ln_value *x = &g->values[n->in[k]];
        const ln_format to = ln_policy_operand(p, n, k, g->values);
        if (x->kind != LN_KIND_TEMP || ln_format_same(x->format, to) || to.kind == LN_FORMAT_F32) continue;
        char name[sizeof x->name + 16], format[16];
        (void)snprintf(name, sizeof name, "%s.%s", x->name, ln_format_text(to, format));
        n->in[k] = ln_g_convert(g, name, n->in[k], to);
    }
}

ln_status ln_graph_cast(ln_graph *g, ln_policy p, ln_error *err) {
    ln_node *old = g->nodes;
    const size_t n = g->n_nodes;
    g->nodes = NULL; /* the list is rebuilt in the same order */
    g->n_nodes = g->cap_nodes = 0;
    for (size_t i = 0; i < n && g->error.code == LN_OK; i++) {
        ln_node node = old[i];
        ln_g_layer(g, node.layer, "");
        if (!node.dead) cast_operands(g, &node, p);
        ln_g_append(g, &node);
    }
    ln_free(old);
    ln_g_layer(g, -1, "");
    if (err) *err = g->error;
    return g->error.code;
}
