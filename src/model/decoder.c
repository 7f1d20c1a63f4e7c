/* The structure of a decoder-only transformer, once, for all families.
 *
 * A spec says which features a checkpoint has (spec.h); this page says what they mean. It knows no family, no device and
 * no number that is not in the spec. Row t of a step is one token; T rows, N of them want logits; D width, H and K heads of
 * width E, F ffn width, V vocabulary. References: modeling_llama.py, modeling_qwen2.py, modeling_qwen3.py and modeling_gemma3.py of
 * Hugging Face transformers, classes *DecoderLayer and *Attention.
 *
 * In fast numerics both operands of every product are bf16: activations are rounded where they enter a product (`operand`), keys and
 * values by the bf16 pages; sums and the residual stream stay in f32. Activations that meet encoded weights are fixed point instead. */
#include "spec.h"

typedef struct builder {
    ln_graph *g;
    const ln_spec *s;
    const ln_weights *w;
    const ln_kv_shape *kv;
    bool fast;
    ln_v embed;              /* the table, once: a tied head is the same value */
    ln_v tables[2];          /* cos and sin, by rope */
    ln_v state;              /* the newest version of the KV pool */
} builder;

/* The weight of a slot as a value; -1 when the model has none. Also used for biases, which are optional. */
static ln_v weight(const builder *b, const char *name, ln_slot slot, int layer) {
    int i = layer < 0 ? b->w->index_fixed[slot] : b->w->index_layer[layer][slot];
    if (i < 0) return -1;
    const ln_weight *w = &b->w->items[i];
    return ln_g_encoded(b->g, name, w->dtype, w->enc, i, w->d0, w->d1);
}

static ln_v rounded(const builder *b, const char *name, ln_v x) { return b->fast ? ln_g_round_bf16(b->g, name, x) : x; }

/* x as products with w read it; made once for those that read the same. */
static ln_v operand(const builder *b, const char *name, ln_v x, ln_v w) {
    const ln_enc e = w < 0 ? (ln_enc){0} : b->g->values[w].enc;
    if (!b->fast || !e.bits) return rounded(b, name, x);
    char full[48];
    snprintf(full, sizeof full, "%s_q%dg%d", name, e.bits, e.group);
    return ln_g_fixed(b->g, full, x, e);
}

static ln_v norm(const builder *b, const char *name, ln_v x, ln_slot slot, int layer) {
    return ln_g_rmsnorm(b->g, name, x, weight(b, name, slot, layer), (float)b->s->eps, b->s->norm_offset);
}

static ln_v linear(const builder *b, const char *name, const char *x_name, ln_v x, ln_slot slot, int bias_slot, int layer) {
    const ln_v w = weight(b, name, slot, layer);
    return ln_g_linear(b->g, name, operand(b, x_name, x, w), w, bias_slot < 0 ? -1 : weight(b, name, (ln_slot)bias_slot, layer));
}

/* Behind the last layer's keys and values only the rows whose logits are wanted are left: one of a prompt, all when it is scored. */
static ln_v wanted_rows(const builder *b, const char *name, ln_v x, int l) { return l == b->s->L - 1 ? ln_g_gather_rows(b->g, name, x) : x; }

static ln_p_kv kv_place(const builder *b, int l) {
    const ln_spec *s = b->s;
    const ln_kv_shape *kv = b->kv;
    int cls = s->layers[l].cls;
    return (ln_p_kv){.layer = l, .cls = cls, .n_sub = kv->n_sub[cls], .sub = kv->sub[l], .lane = kv->lane[l], .n_kv_heads = s->K, .head_dim = s->E,
                     .page_len = kv->page_len, .dtype = kv->dtype, .page_bytes = kv->page_bytes, .layer_bytes = kv->layer_bytes};
}

/* x[T,D] normed -> y[T,D], [N,D] in the last layer: attention over the pages, this step's rows included. */
static ln_v attention(builder *b, ln_v x, int l) {
    ln_graph *g = b->g;
    const ln_spec *s = b->s;
    ln_v rope = b->tables[s->layers[l].rope];
    ln_v q = linear(b, "attn.q", "attn.x", x, LN_W_Q, LN_W_Q_BIAS, l);
    ln_v k = linear(b, "attn.k", "attn.x", x, LN_W_K, LN_W_K_BIAS, l);
    ln_v v = linear(b, "attn.v", "attn.x", x, LN_W_V, LN_W_V_BIAS, l);
    if (s->qk_norm) {
        q = norm(b, "attn.q_norm", q, LN_W_Q_NORM, l);
        k = norm(b, "attn.k_norm", k, LN_W_K_NORM, l);
    }
    q = rounded(b, "attn.q_rounded", ln_g_rope(g, "attn.q_rope", q, rope, s->H, s->E));
    k = ln_g_rope(g, "attn.k_rope", k, rope, s->K, s->E);
    ln_p_kv place = kv_place(b, l);
    b->state = ln_g_kv_write(g, "attn.kv", b->state, k, v, &place);
    ln_p_attn p = {.kv = place, .n_heads = s->H, .scale = s->attn_scale, .window = s->classes[s->layers[l].cls].window};
    ln_v y = wanted_rows(b, "attn.y_rows", ln_g_attn_paged(g, "attn.y", q, b->state, &p), l);
    return linear(b, "attn.o", "attn.y_rounded", y, LN_W_O, LN_W_O_BIAS, l);
}

/* x[R,D] normed -> y[R,D]: down(act(gate x) * up x). */
static ln_v mlp(builder *b, ln_v x, int l) {
    ln_graph *g = b->g;
    ln_v gate = linear(b, "mlp.gate", "mlp.x", x, LN_W_GATE, LN_W_GATE_BIAS, l);
    ln_v up = linear(b, "mlp.up", "mlp.x", x, LN_W_UP, LN_W_UP_BIAS, l);
    ln_v act = b->s->act == LN_ACT_SILU ? ln_g_silu(g, "mlp.act", gate) : ln_g_gelu_tanh(g, "mlp.act", gate);
    return linear(b, "mlp.down", "mlp.y_rounded", ln_g_mul(g, "mlp.y", act, up), LN_W_DOWN, LN_W_DOWN_BIAS, l);
}

/* The residual stream x[T,D] through layer l; [N,D] comes out of the last. */
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

ln_status ln_decoder_build(ln_graph *g, const ln_spec *s, const ln_weights *w, const ln_kv_shape *kv, const ln_decoder_options *opt, ln_v *logits,
                           ln_error *err) {
    builder b = {.g = g, .s = s, .w = w, .kv = kv, .fast = opt->numerics == LN_FAST};
    ln_g_segment(g, -1, "");
    b.state = ln_g_state(g, "kv", 0);
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
        ln_g_segment(g, l, prefix);
        x = layer(&b, x, l);
    }
    ln_g_segment(g, -1, "");
    *logits = -1;
    if (opt->logits) {
        ln_v head = s->tied ? b.embed : weight(&b, "head", LN_W_HEAD, -1);
        *logits = ln_g_linear(g, "logits", operand(&b, "head.x", norm(&b, "head.norm", x, LN_W_NORM, -1), head), head, -1);
        ln_g_output(g, *logits);
    }
    return ln_graph_check(g, err);
}
