/* Mixers: what lets a row of a layer see earlier rows. Shapes use the letters of docs/glossary.md; the
 * references are the classes *Attention of the modeling files in Hugging Face transformers that the files in
 * families/ name. */
#include "decoder_build.h"

/* Where the pool stores the keys and values that layer l attends to. */
static ln_p_kv kv_place(const ln_builder *b, int l) {
    const ln_state_pool *pool = b->pool;
    const int owner = b->s->layers[l].state_from, group = pool->group[owner];
    const ln_state_group *c = &pool->groups[group];
    return (ln_p_kv){.layer = owner,
                     .window_group = group,
                     .pages_per_block = c->pages_per_block,
                     .page_in_block = pool->page_in_block[owner],
                     .layer_in_page = pool->layer_in_page[owner],
                     .n_kv_heads = ln_attn_of(b->s, owner)->K, /* the shard pass divides them among ranks */
                     .head_dim = c->head_dim,
                     .v_dim = c->v_dim,
                     .page_len = pool->page_len,
                     .dtype = c->dtype,
                     .q8 = c->q8,
                     .page_bytes = pool->page_bytes,
                     .layer_bytes = c->layer_bytes};
}

/* Attention of the queries q[T,H*E]. In inference the keys and values of this step go to the KV pages first;
 * each query then attends to the cached positions and to those of this step. In training the sequences of a
 * step are whole, and a query attends to rows of the step. A layer that attends to an earlier layer's keys
 * and values has none of its own: k and v are -1. */
static ln_v attend(ln_builder *b, ln_v q, ln_v k, ln_v v, int l) {
    const ln_attn_spec *a = ln_attn_of(b->s, l);
    const ln_v sinks = ln_build_weight(b, "attn.sinks", LN_W_SINKS, l);
    if (!b->pool) {
        const int owner = b->s->layers[l].state_from;
        const ln_p_packed p = {.n_heads = a->H,
                               .n_kv_heads = a->K,
                               .head_dim = a->E,
                               .v_dim = a->Ev,
                               .scale = a->scale,
                               .window = a->window,
                               .softcap = a->softcap};
        if (owner == l) b->keys[l] = k, b->values[l] = v;
        return ln_g_attn(b->g, "attn.y", q, b->keys[owner], b->values[owner], sinks, &p, NULL);
    }
    const ln_p_kv place = kv_place(b, l);
    if (k >= 0) b->state = ln_g_kv_write(b->g, "attn.kv", b->state, k, v, &place);
    const ln_p_attn p = {.kv = place,
                         .n_heads = a->H,
                         .scale = a->scale,
                         .window = a->window,
                         .softcap = a->softcap,
                         .both_ways = a->both_ways};
    return ln_g_attn_paged(b->g, "attn.y", q, b->state, sinks, &p);
}

/* Queries times the factor of their positions, which layers share. It is applied before RoPE, which is
 * linear, so that RoPE rounds its output as it stores it. */
static ln_v scaled_queries(ln_builder *b, ln_v q, const ln_p_pos_scale *p) {
    if (!b->q_scale_of || b->q_scale_of->factor != p->factor || b->q_scale_of->positions != p->positions) {
        b->q_scale = ln_g_pos_scale(b->g, "attn.q_scale", p);
        b->q_scale_of = p;
    }
    return ln_g_scale_rows(b->g, "attn.q_scaled", q, b->q_scale);
}
/* y times sigmoid(gate x), of the rows that y has. x: what the gate is a product of, or the product that
 * has it after the queries of each head. */
static ln_v gated_output(const ln_builder *b, ln_v x, ln_v y, int l) {
    const ln_attn_spec *a = ln_attn_of(b->s, l);
    const ln_v rows = ln_build_wanted_rows(b, "attn.gate_rows", x, l);
    const ln_v gate = a->gate_in_q ? ln_g_slice_groups(b->g, "attn.gate", rows, a->E, a->E, 2 * (int64_t)a->E)
                                   : ln_build_linear(b, "attn.gate", rows, LN_W_OUT_GATE, LN_W_COUNT, l);
    return ln_g_mul(b->g, "attn.gated", y, ln_g_sigmoid(b->g, "attn.gate_sigmoid", gate));
}

/* Norms of q and k, which is -1 if the layer has none. */
static void norm_heads(const ln_builder *b, ln_v *q, ln_v *k, int l) {
    const ln_attn_spec *a = ln_attn_of(b->s, l);
    if (a->qk_norm == LN_QK_NORM_PLAIN) {
        *q = ln_g_rmsnorm_plain(b->g, "attn.q_norm", *q, a->E, (float)b->s->eps);
        if (*k >= 0) *k = ln_g_rmsnorm_plain(b->g, "attn.k_norm", *k, a->E, (float)b->s->eps);
        return;
    }
    *q = ln_build_norm(b, "attn.q_norm", *q, LN_W_Q_NORM, l);
    if (*k >= 0) *k = ln_build_norm(b, "attn.k_norm", *k, LN_W_K_NORM, l);
}

/* The rotation of q and k by their positions. */
static void rotate_heads(const ln_builder *b, const ln_attn_spec *a, ln_v *q, ln_v *k) {
    const ln_p_heads queries = {a->H, a->E, b->s->ropes[a->rope].interleaved},
                     keys = {a->K, a->E, queries.interleaved};
    *q = ln_g_rope(b->g, "attn.q_rope", *q, b->tables[a->rope], &queries);
    if (*k >= 0) *k = ln_g_rope(b->g, "attn.k_rope", *k, b->tables[a->rope], &keys);
}

/* q, k and v within bounds (clip_qkv). k and v of a layer without its own are -1. */
static void clip_heads(const ln_builder *b, float most, ln_v *q, ln_v *k, ln_v *v) {
    *q = ln_g_clamp(b->g, "attn.q_clipped", *q, -most, most);
    if (*k >= 0) *k = ln_g_clamp(b->g, "attn.k_clipped", *k, -most, most);
    if (*v >= 0) *v = ln_g_clamp(b->g, "attn.v_clipped", *v, -most, most);
}

ln_v ln_mix_attention(ln_builder *b, ln_v x, int l) {
    const ln_attn_spec *a = ln_attn_of(b->s, l);
    const bool own = ln_owns_state(b->s, l), normed = a->qk_norm != LN_QK_NORM_NONE;
    ln_v q = ln_build_linear(b, a->gate_in_q ? "attn.q_and_gate" : "attn.q", x, LN_W_Q, LN_W_Q_BIAS, l);
    const ln_v both = q;
    if (a->gate_in_q) q = ln_g_slice_groups(b->g, "attn.q", both, 0, a->E, 2 * (int64_t)a->E);
    ln_v k = own ? ln_build_linear(b, "attn.k", x, LN_W_K, LN_W_K_BIAS, l) : -1;
    ln_v v = !own ? -1 : a->k_is_v ? k : ln_build_linear(b, "attn.v", x, LN_W_V, LN_W_V_BIAS, l);
    if (own && a->v_norm) v = ln_g_rmsnorm_plain(b->g, "attn.v_norm", v, a->Ev, (float)b->s->eps);
    if (normed && !a->qk_norm_last) norm_heads(b, &q, &k, l);
    if (a->clip > 0) clip_heads(b, a->clip, &q, &k, &v);
    if (a->q_scale.positions) q = scaled_queries(b, q, &a->q_scale);
    if (a->rope >= 0) rotate_heads(b, a, &q, &k);
    if (normed && a->qk_norm_last) norm_heads(b, &q, &k, l);
    ln_v y = ln_build_wanted_rows(b, "attn.y_rows", attend(b, q, k, v, l), l);
    if (a->out_gate) y = gated_output(b, a->gate_in_q ? both : x, y, l);
    return ln_build_linear(b, "attn.o", y, LN_W_O, LN_W_O_BIAS, l);
}
