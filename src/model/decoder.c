/* The architecture of a decoder-only transformer, written once for all model families.
 *
 * A spec says which features a checkpoint has (spec.h); this file says what each feature computes. It reads
 * the spec only: it knows no family and no device, and it contains no sizes of its own. Shapes use the
 * letters of docs/glossary.md: T rows (tokens) in a step, N of them with logits wanted; width D of the
 * residual stream, H query heads and K key/value heads of width E, feed-forward width F, vocabulary V. The
 * references are the classes *DecoderLayer and *Attention of modeling_llama.py, modeling_qwen2.py,
 * modeling_qwen3.py and modeling_gemma3.py in Hugging Face transformers.
 *
 * All of it is mathematics in f32: number formats of operands enter with the cast pass (graph/graph.h), and
 * how the KV pool stores keys and values is decided by run/. */
#include "spec.h"

/* What the functions below need to build one graph. */
typedef struct builder {
    ln_graph *g;
    const ln_spec *s;
    const ln_weights *w;
    const ln_kv_pool *kv;
    ln_v embed;     /* embedding table [V, D]; a tied head uses the same value */
    ln_v tables[2]; /* cos and sin, indexed like s->ropes */
    ln_v state;     /* the latest version of the KV pool; every ln_g_kv_write returns a new one */
} builder;

/* The value of a weight, or -1 if the model has no such weight (biases are optional). `layer` is -1 for
 * weights outside the layers. */
static ln_v weight(const builder *b, const char *name, ln_slot slot, int layer) {
    int i = layer < 0 ? b->w->index_fixed[slot] : b->w->index_layer[layer][slot];
    if (i < 0) return -1;
    const ln_weight *w = &b->w->items[i];
    return ln_g_encoded(b->g, name, w->dtype, w->enc, i, w->d0, w->d1);
}

/* RMS norm of x[R,D] or, with a weight of length E, of each head. */
static ln_v norm(const builder *b, const char *name, ln_v x, ln_slot slot, int layer) {
    return ln_g_rmsnorm(b->g, name, x, weight(b, name, slot, layer), (float)b->s->eps, b->s->norm_offset);
}

/* Matrix product with bias: x[R,C] -> y[R,O] = x W^T + b, with W[O,C] in `slot`. bias_slot -1: no bias in any
 * model. */
static ln_v linear(const builder *b, const char *name, ln_v x, ln_slot slot, int bias_slot, int layer) {
    return ln_g_linear(b->g, name, x, weight(b, name, slot, layer),
                       bias_slot < 0 ? -1 : weight(b, name, (ln_slot)bias_slot, layer));
}

/* After the keys and values of the last layer are written, only the rows whose logits are wanted are needed:
 * the last row of a prompt, or all rows when the prompt is scored. Reduces x[T,C] to [N,C] in the last layer
 * l; returns x unchanged in every other layer. */
static ln_v wanted_rows(const builder *b, const char *name, ln_v x, int l) {
    return l == b->s->L - 1 ? ln_g_gather_rows(b->g, name, x) : x;
}

/* Where the KV pool stores the keys and values of layer l. */
static ln_p_kv kv_place(const builder *b, int l) {
    const ln_spec *s = b->s;
    const ln_kv_pool *kv = b->kv;
    int window_group = s->layers[l].window_group;
    return (ln_p_kv){.layer = l,
                     .window_group = window_group,
                     .pages_per_block = kv->pages_per_block[window_group],
                     .page_in_block = kv->page_in_block[l],
                     .layer_in_page = kv->layer_in_page[l],
                     .n_kv_heads = s->K,
                     .head_dim = s->E,
                     .page_len = kv->page_len,
                     .dtype = kv->dtype,
                     .page_bytes = kv->page_bytes,
                     .layer_bytes = kv->layer_bytes};
}

/* Attention: normed x[T,D] -> y[T,D], or [N,D] in the last layer. Writes the keys and values of this step to
 * the KV pages first; each query then attends to the cached positions and to those of this step. */
static ln_v attention(builder *b, ln_v x, int l) {
    ln_graph *g = b->g;
    const ln_spec *s = b->s;
    ln_v rope = b->tables[s->layers[l].rope];
    ln_v q = linear(b, "attn.q", x, LN_W_Q, LN_W_Q_BIAS, l);
    ln_v k = linear(b, "attn.k", x, LN_W_K, LN_W_K_BIAS, l);
    ln_v v = linear(b, "attn.v", x, LN_W_V, LN_W_V_BIAS, l);
    if (s->qk_norm) {
        q = norm(b, "attn.q_norm", q, LN_W_Q_NORM, l);
        k = norm(b, "attn.k_norm", k, LN_W_K_NORM, l);
    }
    q = ln_g_rope(g, "attn.q_rope", q, rope, s->H, s->E);
    k = ln_g_rope(g, "attn.k_rope", k, rope, s->K, s->E);
    ln_p_kv place = kv_place(b, l);
    b->state = ln_g_kv_write(g, "attn.kv", b->state, k, v, &place);
    ln_p_attn p = {.kv = place,
                   .n_heads = s->H,
                   .scale = s->attn_scale,
                   .window = s->window_groups[s->layers[l].window_group].window};
    ln_v y = wanted_rows(b, "attn.y_rows", ln_g_attn_paged(g, "attn.y", q, b->state, &p), l);
    return linear(b, "attn.o", y, LN_W_O, LN_W_O_BIAS, l);
}

/* Gated feed-forward layer: normed x[R,D] -> y[R,D] = down(act(gate x) * up x). */
static ln_v mlp(builder *b, ln_v x, int l) {
    ln_graph *g = b->g;
    ln_v gate = linear(b, "mlp.gate", x, LN_W_GATE, LN_W_GATE_BIAS, l);
    ln_v up = linear(b, "mlp.up", x, LN_W_UP, LN_W_UP_BIAS, l);
    ln_v act = b->s->act == LN_ACT_SILU ? ln_g_silu(g, "mlp.act", gate) : ln_g_gelu_tanh(g, "mlp.act", gate);
    return linear(b, "mlp.down", ln_g_mul(g, "mlp.y", act, up), LN_W_DOWN, LN_W_DOWN_BIAS, l);
}

/* Decoder layer l: residual stream x[T,D] -> [T,D], or [N,D] in the last layer. */
static ln_v layer(builder *b, ln_v x, int l) {
    ln_graph *g = b->g;
    bool post = b->s->post_norms;
    ln_v y = attention(b, norm(b, "attn.norm", x, LN_W_ATTN_NORM, l), l);
    if (post) y = norm(b, "attn.post_norm", y, LN_W_POST_ATTN, l);
    x = ln_g_add(g, "attn.residual", wanted_rows(b, "attn.x_rows", x, l), y);
    y = mlp(b, norm(b, "mlp.norm", x, post ? LN_W_PRE_FFN : LN_W_POST_ATTN, l), l);
    if (post) y = norm(b, "mlp.post_norm", y, LN_W_POST_FFN, l);
    return ln_g_add(g, "mlp.residual", x, y);
}

ln_status ln_decoder_build(ln_graph *g, const ln_spec *s, const ln_weights *w, const ln_kv_pool *kv,
                           ln_v *logits, ln_error *err) {
    builder b = {.g = g, .s = s, .w = w, .kv = kv};
    ln_g_layer(g, -1, "");
    b.state = ln_g_state(g, "kv", 0, kv->dtype, LN_STATE_DISJOINT, 1, (const int64_t[]){1});
    b.embed = weight(&b, "embed", LN_W_EMBED, -1);
    for (int i = 0; i < s->n_ropes; i++) {
        const ln_rope *r = &s->ropes[i];
        ln_p_freqs p = {.freqs = r->freqs, .n = s->E / 2, .scale = r->scale, .ntk = r->ntk};
        b.tables[i] = ln_g_rope_table(g, i ? "rope.1" : "rope.0", &p);
    }
    ln_v x = ln_g_embed(g, "embedded", b.embed, s->embed_scale);
    for (int l = 0; l < s->L; l++) {
        char prefix[32];
        snprintf(prefix, sizeof prefix, "layers.%d.", l);
        ln_g_layer(g, l, prefix);
        x = layer(&b, x, l);
    }
    ln_g_layer(g, -1, "");
    const ln_v head = s->tied ? b.embed : weight(&b, "head", LN_W_HEAD, -1);
    *logits = ln_g_linear(g, "logits", norm(&b, "head.norm", x, LN_W_NORM, -1), head, -1);
    ln_g_output(g, *logits);
    return ln_graph_check(g, "build", err);
}
