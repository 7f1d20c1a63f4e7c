/* The architecture of a decoder-only transformer, written once for all model families.
 *
 * A spec says which features a checkpoint has (spec.h); this file, mixers.c and ffn.c say what each feature
 * computes. They read the spec only: they know no family, no device and no adapter, and contain no sizes of
 * their own. Shapes use the letters of docs/glossary.md: T rows (tokens) in a step, N of them with logits
 * wanted; width D of the residual stream, vocabulary V. The references are the classes *DecoderLayer of the
 * modeling files in Hugging Face transformers that the files in families/ name.
 *
 * All of it is mathematics in f32: number formats of operands enter with the cast pass (graph/graph.h), and
 * how the pool stores keys and values is decided by run/. Adapters enter with the lora pass. */
#include "decoder_build.h"

#include <stdio.h>

ln_v ln_build_weight(const ln_builder *b, const char *name, ln_slot slot, int layer) {
    const int i = layer < 0 ? b->w->index_fixed[slot] : b->w->index_layer[layer][slot];
    if (i < 0) return -1;
    const ln_weight *w = &b->w->items[i];
    const bool experts = w->n_experts && w->d1; /* their biases are one vector */
    const int64_t dims[3] = {experts ? w->n_experts : w->d0, experts ? w->d0 / w->n_experts : w->d1, w->d1};
    return ln_g_encoded(b->g, name, w->enc, i, experts ? 3 : w->d1 ? 2 : 1, dims);
}

ln_v ln_build_norm(const ln_builder *b, const char *name, ln_v x, ln_slot slot, int layer) {
    const ln_spec *s = b->s;
    const bool post = slot == LN_W_ATTN_POST || slot == LN_W_FFN_POST;
    const double eps = post && s->post_eps > 0 ? s->post_eps : s->eps;
    if (s->centred_norms) {
        char centred[64];
        (void)snprintf(centred, sizeof centred, "%s.centred", name);
        x = ln_g_centre(b->g, centred, x);
    }
    return ln_g_rmsnorm(b->g, name, x, ln_build_weight(b, name, slot, layer), (float)eps,
                        slot == LN_W_NORM && s->last_norm_plain ? 0 : s->norm_offset);
}

ln_v ln_build_linear(const ln_builder *b, const char *name, ln_v x, ln_slot slot, ln_slot bias_slot,
                     int layer) {
    const ln_v w = ln_build_weight(b, name, slot, layer);
    const ln_v bias = bias_slot == LN_W_COUNT ? -1 : ln_build_weight(b, name, bias_slot, layer);
    return ln_g_linear(b->g, name, x, w, bias);
}

ln_v ln_build_wanted_rows(const ln_builder *b, const char *name, ln_v x, int l) {
    return l == b->s->L - 1 ? ln_g_gather_rows(b->g, name, x) : x;
}

/* x times a factor of the spec. */
static ln_v scaled(const ln_builder *b, const char *name, ln_v x, float by) {
    return by == 1 ? x : ln_g_scale(b->g, name, x, by);
}

/* Decoder layer l: residual stream x[T,D] -> [T,D], or [N,D] in the last layer. */
static ln_v layer(ln_builder *b, ln_v x, int l) {
    ln_graph *g = b->g;
    const ln_spec *s = b->s;
    ln_v in = s->pre_norms ? ln_build_norm(b, "attn.norm", x, LN_W_ATTN_NORM, l) : x;
    const ln_recur_spec *r = ln_recur_of(s, l);
    ln_v y = !r               ? ln_mix_attention(b, in, l)
             : ln_is_delta(r) ? ln_mix_delta(b, in, l)
                              : ln_mix_conv(b, in, l);
    const ln_v beside = s->parallel ? ln_ffn_gated(b, ln_build_wanted_rows(b, "mlp.x_rows", in, l), l) : -1;
    if (s->post_norms) y = ln_build_norm(b, "attn.post_norm", y, LN_W_ATTN_POST, l);
    y = scaled(b, "attn.scaled", y, s->residual_scale);
    x = ln_g_add(g, "attn.residual", ln_build_wanted_rows(b, "attn.x_rows", x, l), y);
    if (s->parallel) return ln_g_add(g, "mlp.residual", x, beside);
    y = ln_ffn(b, x, l);
    if (s->post_norms) y = ln_build_norm(b, "mlp.post_norm", y, LN_W_FFN_POST, l);
    x = ln_g_add(g, "mlp.residual", x, scaled(b, "mlp.scaled", y, s->residual_scale));
    if (s->per_layer) x = ln_add_layer_input(b, x, l);
    return s->layer_scales ? scaled(b, "scaled", x, s->layers[l].scale) : x;
}

/* Allocates the lists of a builder in the graph's arena. */
static bool open_lists(ln_builder *b) {
    const size_t L = (size_t)b->s->L;
    ln_v *all = ln_arena_alloc(&b->g->arena, ((size_t)b->s->n_ropes + 2 * L) * sizeof *all);
    b->tables = all;
    if (all && !b->pool) b->keys = all + b->s->n_ropes, b->values = b->keys + L;
    return all;
}

/* The whole model up to the last norm: [N,D]. *head becomes the matrix [V,D] of the logits. */
static ln_v hidden(ln_builder *b, ln_v *head) {
    ln_graph *g = b->g;
    const ln_spec *s = b->s;
    b->embed = ln_build_weight(b, "embed", LN_W_EMBED, -1);
    for (int i = 0; i < s->n_ropes; i++) {
        const ln_rope *r = &s->ropes[i];
        const ln_p_freqs p = {
            .freqs = r->freqs, .n = r->n, .scale = r->scale, .ntk = r->ntk, .beyond = r->beyond};
        char name[32];
        (void)snprintf(name, sizeof name, "rope.%d", i);
        b->tables[i] = ln_g_rope_table(g, name, &p);
    }
    ln_v x = ln_g_embed(g, "embedded", b->embed, s->embed_scale, s->padding);
    if (s->embed_norm) x = ln_g_rmsnorm_plain(g, "embedded.norm", x, s->D, (float)s->eps);
    if (s->per_layer) b->inputs = ln_layer_inputs(b, x);
    for (int l = 0; l < s->L; l++) {
        char prefix[32];
        snprintf(prefix, sizeof prefix, "layers.%d.", l);
        ln_g_layer(g, l, prefix);
        x = layer(b, x, l);
    }
    ln_g_layer(g, -1, "");
    *head = s->tied ? b->embed : ln_build_weight(b, "head", LN_W_HEAD, -1);
    return ln_build_norm(b, "head.norm", x, LN_W_NORM, -1);
}

ln_status ln_decoder_build(ln_graph *g, const ln_spec *s, const ln_weights *w, const ln_state_pool *pool,
                           ln_v *logits, ln_error *err) {
    ln_builder b = {.g = g, .s = s, .w = w, .pool = pool};
    const int64_t one = 1; /* only the device knows the layout of the pages */
    ln_v head;
    if (!open_lists(&b)) return LN_OOM(err, "a graph");
    ln_g_layer(g, -1, "");
    b.state = ln_g_state(g, "kv", LN_STATE_PAGES, LN_F32, LN_STATE_DISJOINT, 1, &one);
    if (s->n_recur)
        b.recurrent = ln_g_state(g, "recurrent", LN_STATE_RECURRENT, LN_F32, LN_STATE_DISJOINT, 1, &one);
    const ln_v x = hidden(&b, &head);
    *logits = scaled(&b, "logits.scaled", ln_g_linear(g, "logits", x, head, -1), s->logit_scale);
    if (s->logit_softcap > 0) *logits = ln_g_softcap(g, "logits.capped", *logits, s->logit_softcap);
    ln_g_output(g, *logits);
    return ln_graph_check(g, "build", err);
}

/* The cross-entropy of logits that are capped (cap above 0) or whose head is trained, which takes memory for
 * all of them. */
static ln_v loss_of_logits(ln_graph *g, ln_v x, ln_v head, float cap, ln_v targets) {
    const ln_v logits = ln_g_linear(g, "logits", x, head, -1);
    return ln_g_nll(g, "loss", cap > 0 ? ln_g_softcap(g, "logits.capped", logits, cap) : logits, targets);
}
/* Prepares a builder for attention over the packed rows of a step. */
static ln_status open_packed(ln_builder *b, ln_error *err) {
    const ln_spec *s = b->s;
    if (ln_spec_both_ways(s))
        return ln_fail(err, LN_EUNSUPPORTED,
                       "config.json: %s: tokens attend to later ones, so that the model predicts no next "
                       "token "
                       "and cannot be trained on texts; it embeds them (ln_embed)",
                       s->model_type);
    if (!open_lists(b)) return LN_OOM(err, "a graph");
    ln_g_layer(b->g, -1, "");
    return LN_OK;
}
ln_status ln_decoder_build_train(ln_graph *g, const ln_spec *s, const ln_weights *w, bool trains_head,
                                 ln_train_graph *out, ln_error *err) {
    static const int64_t row[2] = {LN_DIM_N, 1};
    ln_builder b = {.g = g, .s = s, .w = w};
    ln_v head;
    LN_TRY(open_packed(&b, err));
    out->targets = ln_g_input(g, "targets", LN_TRAIN_TARGETS, LN_I32, 2, row);
    out->weights = ln_g_input(g, "weights", LN_TRAIN_WEIGHTS, LN_F32, 2, row);
    const ln_v x = scaled(&b, "head.scaled", hidden(&b, &head), s->logit_scale);
    out->loss = trains_head || s->logit_softcap > 0
                    ? loss_of_logits(g, x, head, s->logit_softcap, out->targets)
                    : ln_g_linear_cross_entropy(g, "loss", x, head, out->targets);
    return ln_graph_check(g, "build", err);
}
ln_status ln_decoder_build_packed(ln_graph *g, const ln_spec *s, const ln_weights *w, ln_error *err) {
    ln_builder b = {.g = g, .s = s, .w = w};
    ln_v head;
    LN_TRY(open_packed(&b, err));
    const ln_v x = scaled(&b, "head.scaled", hidden(&b, &head), s->logit_scale);
    ln_g_output(g, ln_g_linear(g, "logits", x, head, -1)); /* a cap would leave their order */
    return ln_graph_check(g, "build", err);
}
