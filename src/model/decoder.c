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
#include "decoder_train.h"

#include <stdio.h>

/* What the functions below need to build one graph. */
typedef struct builder {
    ln_graph *g;
    const ln_spec *s;
    const ln_weights *w;
    const ln_kv_pool *kv;
    ln_v embed;            /* embedding table [V, D]; a tied head uses the same value */
    ln_v tables[2];        /* cos and sin, indexed like s->ropes */
    ln_v state;            /* the latest version of the KV pool; every ln_g_kv_write returns a new one */
    const ln_lora *lora;   /* NULL: a graph for inference */
    ln_train_graph *train; /* of training: what has been built of it */
} builder;

/* The value of a weight, or -1 if the model has no such weight (biases are optional). `layer` is -1 for
 * weights outside the layers. */
static ln_v weight(const builder *b, const char *name, ln_slot slot, int layer) {
    int i = layer < 0 ? b->w->index_fixed[slot] : b->w->index_layer[layer][slot];
    if (i < 0) return -1;
    const ln_weight *w = &b->w->items[i];
    const int64_t dims[3] = {w->n_experts ? w->n_experts : w->d0, w->n_experts ? w->d0 / w->n_experts : w->d1,
                             w->d1};
    return ln_g_encoded(b->g, name, w->enc, i, w->n_experts ? 3 : w->d1 ? 2 : 1, dims);
}

/* RMS norm of x[R,D] or, with a weight of length E, of each head. */
static ln_v norm(const builder *b, const char *name, ln_v x, ln_slot slot, int layer) {
    return ln_g_rmsnorm(b->g, name, x, weight(b, name, slot, layer), (float)b->s->eps, b->s->norm_offset);
}

/* y plus what the adapter of a matrix makes of x, in training where the slot is a target. */
static ln_v adapted(const builder *b, const char *name, ln_v x, ln_v y, ln_slot slot, int layer) {
    if (!b->lora || !b->lora->targets[slot] || x < 0 || y < 0) return y;
    ln_graph *g = b->g;
    const int i = b->train->n_modules++, rank = b->lora->rank, w = b->w->index_layer[layer][slot];
    ln_lora_module *m = &b->train->modules[i];
    char text[64];
    const int64_t a[2] = {rank, b->w->items[w].d1}, up[2] = {b->w->items[w].d0, rank};
#define NAME(suffix) ((void)snprintf(text, sizeof text, "%s" suffix, name), text)
    m->weight = w;
    m->a = ln_g_trainable(g, NAME(".lora_a"), 2 * i, b->lora->dtype, 2, a);
    m->b = ln_g_trainable(g, NAME(".lora_b"), 2 * i + 1, b->lora->dtype, 2, up);
    const ln_p_dropout p = {.p = (float)b->lora->dropout,
                            .site = (uint32_t)i,
                            .seed = b->lora->seed,
                            .of_outputs = g->values[x].dims[0] == LN_DIM_N};
    if (b->train->samples >= 0) x = ln_g_dropout(g, NAME(".dropped"), x, b->train->samples, &p);
    ln_v h = ln_g_matmul(g, NAME(".down"), x, ln_g_load(g, NAME(".a"), m->a), LN_MATMUL_NT);
    h = ln_g_scale(g, NAME(".scaled"), h, (float)b->lora->scale);
    h = ln_g_matmul(g, NAME(".delta"), h, ln_g_load(g, NAME(".b"), m->b), LN_MATMUL_NT);
    return ln_g_add(g, NAME(".adapted"), y, h);
#undef NAME
}

/* Matrix product with bias: x[R,C] -> y[R,O] = x W^T + b, with W[O,C] in `slot`. bias_slot -1: no bias in any
 * model. */
static ln_v linear(const builder *b, const char *name, ln_v x, ln_slot slot, int bias_slot, int layer) {
    const ln_v y = ln_g_linear(b->g, name, x, weight(b, name, slot, layer),
                               bias_slot < 0 ? -1 : weight(b, name, (ln_slot)bias_slot, layer));
    return adapted(b, name, x, y, slot, layer);
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

/* Attention of the queries q[T,H*E]. In inference the keys and values of this step go to the KV pages first;
 * each query then attends to the cached positions and to those of this step. In training the sequences of a
 * step are whole, and a query attends to rows of the step. */
static ln_v attend(builder *b, ln_v q, ln_v k, ln_v v, int l) {
    const ln_spec *s = b->s;
    const int64_t window = s->window_groups[s->layers[l].window_group].window;
    if (b->lora) {
        const ln_p_packed p = {s->H, s->K, s->E, s->attn_scale, window};
        return ln_g_attn(b->g, "attn.y", q, k, v, &p, NULL);
    }
    const ln_p_kv place = kv_place(b, l);
    b->state = ln_g_kv_write(b->g, "attn.kv", b->state, k, v, &place);
    const ln_p_attn p = {.kv = place, .n_heads = s->H, .scale = s->attn_scale, .window = window};
    return ln_g_attn_paged(b->g, "attn.y", q, b->state, &p);
}

/* The attention sublayer: normed x[T,D] -> y[T,D], or [N,D] in the last layer. */
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
    ln_v y = wanted_rows(b, "attn.y_rows", attend(b, q, k, v, l), l);
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

/* The whole model up to the last norm: [N,D]. *head becomes the matrix [V,D] of the logits. */
static ln_v hidden(builder *b, ln_v *head) {
    ln_graph *g = b->g;
    const ln_spec *s = b->s;
    b->embed = weight(b, "embed", LN_W_EMBED, -1);
    for (int i = 0; i < s->n_ropes; i++) {
        const ln_rope *r = &s->ropes[i];
        ln_p_freqs p = {.freqs = r->freqs, .n = s->E / 2, .scale = r->scale, .ntk = r->ntk};
        b->tables[i] = ln_g_rope_table(g, i ? "rope.1" : "rope.0", &p);
    }
    ln_v x = ln_g_embed(g, "embedded", b->embed, s->embed_scale);
    for (int l = 0; l < s->L; l++) {
        char prefix[32];
        snprintf(prefix, sizeof prefix, "layers.%d.", l);
        ln_g_layer(g, l, prefix);
        x = layer(b, x, l);
    }
    ln_g_layer(g, -1, "");
    *head = s->tied ? b->embed : weight(b, "head", LN_W_HEAD, -1);
    return norm(b, "head.norm", x, LN_W_NORM, -1);
}

ln_status ln_decoder_build(ln_graph *g, const ln_spec *s, const ln_weights *w, const ln_kv_pool *kv,
                           ln_v *logits, ln_error *err) {
    builder b = {.g = g, .s = s, .w = w, .kv = kv};
    const int64_t one = 1; /* only the device knows the layout of the pages */
    ln_v head;
    ln_g_layer(g, -1, "");
    b.state = ln_g_state(g, "kv", 0, LN_F32, LN_STATE_DISJOINT, 1, &one);
    const ln_v x = hidden(&b, &head);
    *logits = ln_g_linear(g, "logits", x, head, -1);
    ln_g_output(g, *logits);
    return ln_graph_check(g, "build", err);
}

int ln_lora_count(const ln_spec *s, const ln_weights *w, const ln_lora *lora) {
    int n = 0;
    for (int l = 0; l < s->L; l++)
        for (int slot = 0; slot < LN_W_COUNT; slot++)
            n += lora->targets[slot] && w->index_layer[l][slot] >= 0;
    return n;
}

static ln_status check_lora(const ln_spec *s, const ln_weights *w, const ln_lora *lora, ln_error *err) {
    for (int slot = 0; slot < LN_W_COUNT; slot++) {
        char name[160];
        ln_weight_name(name, (ln_slot)slot, 0);
        if (lora->targets[slot] && (w->index_layer[0][slot] < 0 || !w->items[w->index_layer[0][slot]].d1))
            return ln_fail(err, LN_EUNSUPPORTED,
                           "%s: expected a matrix of the layers to adapt; choose among q_proj, k_proj, "
                           "v_proj, "
                           "o_proj, gate_proj, up_proj and down_proj",
                           name);
    }
    if (lora->rank < 1 || !(lora->dropout >= 0 && lora->dropout < 1))
        return ln_fail(err, LN_EINVALID,
                       "LoRA: expected a rank of at least 1 and a dropout from 0 to below 1, found %d and %g",
                       lora->rank, lora->dropout);
    if (ln_lora_count(s, w, lora) < 1)
        return ln_fail(err, LN_EINVALID,
                       "LoRA: no matrix is to be adapted; name at least one, such as q_proj");
    return LN_OK;
}

ln_status ln_decoder_build_train(ln_graph *g, const ln_spec *s, const ln_weights *w, const ln_lora *lora,
                                 ln_train_graph *out, ln_error *err) {
    static const int64_t row[2] = {LN_DIM_N, 1}, samples[2] = {LN_DIM_B, 2};
    builder b = {.g = g, .s = s, .w = w, .lora = lora, .train = out};
    ln_v head;
    *out = (ln_train_graph){.samples = -1};
    LN_TRY(check_lora(s, w, lora, err));
    out->modules = ln_arena_alloc(&g->arena, ((size_t)ln_lora_count(s, w, lora) + 1) * sizeof *out->modules);
    if (!out->modules) return LN_OOM(err, "the adapted matrices");
    ln_g_layer(g, -1, "");
    out->targets = ln_g_input(g, "targets", LN_TRAIN_TARGETS, LN_I32, 2, row);
    out->weights = ln_g_input(g, "weights", LN_TRAIN_WEIGHTS, LN_F32, 2, row);
    if (lora->dropout > 0) out->samples = ln_g_input(g, "samples", LN_TRAIN_SAMPLES, LN_I32, 2, samples);
    const ln_v x = hidden(&b, &head);
    out->loss = ln_g_linear_cross_entropy(g, "loss", x, head, out->targets);
    return ln_graph_check(g, "build", err);
}
