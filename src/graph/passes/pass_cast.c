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

static int64_t norm_width(const ln_node *n, const ln_value *values) {
    const bool weighted = n->n_in > (n->op == LN_OP_RMSNORM ? 1 : 2);
    return weighted ? values[n->in[1]].dims[0] : n->p.norm.width;
}
/* Whether training reads an operand in bf16 that no product with a weight reads: what attention multiplies,
 * and rows that are kept for the reverse pass or are as wide as the model. What adapters make of them has few
 * columns and stays f32, as residuals do. */
static bool trains_in_bf16(const ln_node *n, int k, const ln_value *values) {
    enum { NARROW = 64 };
    const ln_value *x = &values[n->in[k]];
    switch (n->op) {
    case LN_OP_ATTN: return k < 3;
    case LN_OP_ATTN_BACK: return k != 4; /* lse */
    case LN_OP_SILU:
    case LN_OP_GELU_TANH:
    case LN_OP_ACT_BACK:
    case LN_OP_MUL: return x->dims[0] < 0;
    case LN_OP_MATMUL: return x->dims[0] < 0 && x->dims[1] > NARROW;
    case LN_OP_RMSNORM:
    case LN_OP_RMSNORM_BACK: return k == 0 && norm_width(n, values) < x->dims[1]; /* of heads */
    default: return false;
    }
}

ln_format ln_policy_operand(ln_policy p, const ln_node *n, int k, const ln_value *values) {
    if (p == LN_POLICY_TRAIN && trains_in_bf16(n, k, values)) return bf16;
    if (k > 0 || n->op == LN_OP_ATTN || n->op == LN_OP_ATTN_BACK) return f32;
    if (n->op == LN_OP_LINEAR || n->op == LN_OP_LINEAR_GATED || n->op == LN_OP_EXPERTS)
        return product_operand(p, &values[n->in[1]]);
    if (n->op == LN_OP_LINEAR_BACK || n->op == LN_OP_EXPERTS_BACK || n->op == LN_OP_LINEAR_CROSS_ENTROPY)
        return p == LN_POLICY_TRAIN ? product_operand(p, &values[n->in[1]]) : f32;
    const bool fast = p == LN_POLICY_FAST || p == LN_POLICY_FAST_FP8;
    if (n->op == LN_OP_LORA_DOWN) return fast && n->p.lora.rounds ? bf16 : f32;
    if (n->op == LN_OP_ATTN_PAGED) return fast && n->p.attn.kv.dtype == LN_BF16 ? bf16 : f32;
    return f32;
}

enum { NONE = -1, FACTOR = -2 };
/* Appends the conversions of a node's operands and has the node read them. made: by value, its conversion to
 * bf16, which the reverse pass reads, too, so that the value itself need not be kept; NONE. FACTOR: it is one
 * row or number in all rows, such as the magnitudes of DoRA, which are near 1 and would be rounded to it. */
static void cast_operands(ln_graph *g, ln_node *n, ln_policy p, ln_v *made) {
    for (int k = 0; k < n->n_in; k++) {
        const ln_v v = n->in[k];
        const ln_value *x = &g->values[v];
        const ln_format to = ln_policy_operand(p, n, k, g->values);
        if (x->kind != LN_KIND_TEMP || ln_format_same(x->format, to) || to.kind == LN_FORMAT_F32) continue;
        if (made[v] == FACTOR && n->op == LN_OP_MUL) continue;
        if (to.kind == LN_FORMAT_BF16 && made[v] >= 0) {
            n->in[k] = made[v];
            continue;
        }
        char name[sizeof x->name + 16], format[16];
        (void)snprintf(name, sizeof name, "%s.%s", x->name, ln_format_text(to, format));
        n->in[k] = ln_g_convert(g, name, v, to);
        if (to.kind == LN_FORMAT_BF16 && made[v] == NONE) made[v] = n->in[k];
    }
}

ln_status ln_graph_cast(ln_graph *g, ln_policy p, ln_error *err) {
    ln_node *old = g->nodes;
    const size_t n = g->n_nodes, n_values = g->n_values;
    ln_v *made = ln_alloc((n_values + 1) * sizeof *made);
    if (!made) return LN_OOM(err, "a graph");
    for (size_t i = 0; i < n_values; i++) made[i] = NONE;
    for (size_t i = 0; i < n; i++)
        if (old[i].op == LN_OP_SPREAD) made[old[i].out[0]] = FACTOR;
    g->nodes = NULL; /* the list is rebuilt in the same order */
    g->n_nodes = g->cap_nodes = 0;
    for (size_t i = 0; i < n && g->error.code == LN_OK; i++) {
        ln_node node = old[i];
        ln_g_layer(g, node.layer, "");
        if (!node.dead) cast_operands(g, &node, p, made);
        ln_g_append(g, &node);
    }
    ln_free(old);
    ln_free(made);
    ln_g_layer(g, -1, "");
    if (err) *err = g->error;
    return g->error.code;
}
