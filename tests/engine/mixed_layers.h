/* A model of layers that differ, made of random numbers, and its forward pass in double, written as plainly
 * as possible.
 *
 *     layer   heads   K/V heads   widths of K, V   window   state                 feed-forward
 *     0       4       2           8, 8             none     its own (group 0)     48, SiLU
 *     1       2       1           20, 12           5        its own (group 1)     40, tanh GELU, biases
 *     2       4       4           8, 36            11       its own (group 2)     48, SiLU
 *     3       4       2           8, 8             none     its own (group 0)     40, tanh GELU, biases
 *     4       2       1           20, 12           5        that of layer 1       48, SiLU
 *     5       4       2           8, 8             none     that of layer 0       48, SiLU
 *
 * Scores of layers 1, 2 and 4 have a softcap. Heads of layer 2 have sinks, and its output a gate. Values of
 * layers 0 and 3 are their keys before norm and RoPE, and those of layers 0, 2 and 3 are normed. Queries of
 * layers 0, 3 and 5 grow with the position. Logits have a factor and a softcap, residual additions a factor.
 *
 * So there are three groups of layers of three sizes, values that are as wide as keys, narrower and wider (by
 * more than a tile), two kinds of feed-forward layer, and layers that read another layer's keys and values,
 * the last one among them. For tests only. */
#ifndef LN_MIXED_LAYERS_H
#define LN_MIXED_LAYERS_H

#include "../common.h"
#include "model/weight_slots.h"

#include <math.h>
#include <string.h>

enum { MIXED_L = 6, MIXED_D = 32, MIXED_ROWS = 75 };

typedef struct mixed {
    ln_package *m; /* a golden model's package with this spec and these weights */
    ln_tensors tensors;
    uint8_t *file;
    int64_t V;
} mixed;

static inline void mixed_spec(ln_spec *s, int64_t V) {
    static const ln_attn_spec attn[3] = {{.H = 4,
                                          .K = 2,
                                          .E = 8,
                                          .Ev = 8,
                                          .rope = 0,
                                          .window = 0,
                                          .scale = 0.35f,
                                          .qk_norm = LN_QK_NORM_HEADS,
                                          .k_is_v = true,
                                          .v_norm = true,
                                          .q_scale = {0.3f, 7}},
                                         {.H = 2,
                                          .K = 1,
                                          .E = 20,
                                          .Ev = 12,
                                          .rope = 1,
                                          .window = 5,
                                          .scale = 0.2f,
                                          .softcap = 0.5f,
                                          .q_bias = true,
                                          .k_bias = true},
                                         {.H = 4,
                                          .K = 4,
                                          .E = 8,
                                          .Ev = 36,
                                          .rope = 0,
                                          .window = 11,
                                          .scale = 0.3f,
                                          .softcap = 20,
                                          .out_gate = true,
                                          .v_norm = true,
                                          .sinks = true,
                                          .v_bias = true,
                                          .o_bias = true}};
    static const ln_ffn_spec ffn[2] = {{.F = 48, .act = LN_ACT_SILU},
                                       {.F = 40, .act = LN_ACT_GELU_TANH, .bias = true}};
    static const ln_layer layers[MIXED_L] = {
        {.attn = 0, .ffn = 0, .state_from = 0}, {.attn = 1, .ffn = 1, .state_from = 1},
        {.attn = 2, .ffn = 0, .state_from = 2}, {.attn = 0, .ffn = 1, .state_from = 3},
        {.attn = 1, .ffn = 0, .state_from = 1}, {.attn = 0, .ffn = 0, .state_from = 0}};
    *s = (ln_spec){.model_type = "mixed",
                   .D = MIXED_D,
                   .V = V,
                   .L = MIXED_L,
                   .n_ctx = 256,
                   .eps = 1e-5,
                   .embed_scale = 1,
                   .logit_softcap = 1.5f,
                   .residual_scale = 0.9f,
                   .logit_scale = 0.75f,
                   .pre_norms = true,
                   .n_attn = 3,
                   .n_ffn = 2,
                   .n_ropes = 2};
    s->attn = ln_arena_alloc(&s->arena, sizeof attn);
    s->ffn = ln_arena_alloc(&s->arena, sizeof ffn);
    s->layers = ln_arena_alloc(&s->arena, sizeof layers);
    s->ropes = ln_arena_alloc(&s->arena, 2 * sizeof *s->ropes);
    memcpy(s->attn, attn, sizeof attn);
    memcpy(s->ffn, ffn, sizeof ffn);
    memcpy(s->layers, layers, sizeof layers);
    for (int i = 0; i < 2; i++) {
        const int n = i ? 10 : 4;
        const double theta = i ? 500 : 10000;
        s->ropes[i] = (ln_rope){.theta = theta, .n = n, .scale = 1, .freqs = ln_arena_alloc(&s->arena, 40)};
        for (int k = 0; k < n; k++) s->ropes[i].freqs[k] = (float)pow(theta, -(double)k / n);
    }
}

/* The tensors that the spec needs, of normal numbers. */
static inline void mixed_tensors(mixed *x, const ln_spec *s) {
    enum { MOST = LN_W_COUNT * (MIXED_L + 1) };
    static ln_tensor_spec specs[MOST];
    static char names[MOST][160];
    size_t n = 0, numbers = 0;
    ln_str head = {0};
    uint64_t seed = 5;
    for (int l = -1; l < MIXED_L; l++)
        for (int slot = 0; slot < LN_W_COUNT; slot++) {
            const char *shape = ln_slot_rows[slot].shape;
            if (!ln_slot_wanted(s, slot, l)) continue;
            ln_weight_name(names[n], s, (ln_slot)slot, l);
            specs[n] = (ln_tensor_spec){.name = names[n], .dtype = LN_ST_F32, .n_dims = shape[1] ? 2 : 1};
            size_t count = 1;
            for (int d = 0; d < specs[n].n_dims; d++)
                count *= (size_t)(specs[n].dims[d] = ln_slot_size(s, shape[d], l));
            numbers += count;
            n++;
        }
    OK(ln_tensors_header(&head, specs, n, err));
    x->file = malloc(head.len + 4 * numbers);
    memcpy(x->file, head.data, head.len);
    float *out = (float *)(void *)(x->file + head.len);
    for (size_t i = 0; i < numbers; i++) out[i] = test_normal(&seed) * 0.25f;
    OK(ln_tensors_open_memory(&x->tensors, "mixed.safetensors", x->file, head.len + 4 * numbers, err));
    ln_str_free(&head);
}

static inline void mixed_open(mixed *x) {
    const ln_options o = {0};
    OK(ln_package_open(&x->m, LN_ROOT "/tests/golden/llama-plain-f32", &o, err));
    x->V = x->m->spec.V;
    ln_weights_close(&x->m->weights);
    ln_spec_close(&x->m->spec);
    mixed_spec(&x->m->spec, x->V);
    mixed_tensors(x, &x->m->spec);
    OK(ln_weights_bind(&x->m->weights, &x->m->spec, &x->tensors, err));
}
static inline void mixed_close(mixed *x) {
    ln_package_close(&x->m);
    ln_tensors_close(&x->tensors);
    free(x->file);
}

/* ---- the forward pass in double ---- */

/* The numbers of a weight; NULL: the layer has none. */
static inline const float *mixed_weight(const mixed *x, ln_slot slot, int l) {
    const ln_weights *w = &x->m->weights;
    const int i = l < 0 ? w->index_fixed[slot] : w->index_layer[l][slot];
    return i < 0 ? NULL : (const float *)(const void *)w->items[i].tensor->data;
}
/* y[n] = W x + b, W[n, c]. */
static inline void mixed_linear(const float *w, const float *b, const double *x, int64_t n, int64_t c,
                                double *y) {
    for (int64_t d = 0; d < n; d++) {
        y[d] = b ? (double)b[d] : 0;
        for (int64_t i = 0; i < c; i++) y[d] += (double)w[d * c + i] * x[i];
    }
}
static inline void mixed_norm(const float *w, const double *x, int64_t n, double *y) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
    for (int64_t i = 0; i < n; i++) y[i] = x[i] / sqrt(sum / (double)n + 1e-5) * (w ? (double)w[i] : 1);
}
static inline void mixed_rope(const ln_rope *r, int64_t pos, double *x) {
    for (int i = 0; i < r->n; i++) {
        const double angle = (double)((float)pos * r->freqs[i]), a = x[i], b = x[i + r->n];
        x[i] = a * cos(angle) - b * sin(angle);
        x[i + r->n] = b * cos(angle) + a * sin(angle);
    }
}

enum { MIXED_HEADS = 144 }; /* the most elements of the heads of a layer */
typedef struct mixed_state {
    double k[MIXED_L][MIXED_ROWS][MIXED_HEADS], v[MIXED_L][MIXED_ROWS][MIXED_HEADS];
} mixed_state;

/* Normed heads of x at a position, rotated: q or k. */
static inline void mixed_heads(const mixed *x, const ln_attn_spec *a, ln_slot w, ln_slot bias, ln_slot norm,
                               int l, const double *in, int64_t pos, int n_heads, double *out) {
    mixed_linear(mixed_weight(x, w, l), mixed_weight(x, bias, l), in, (int64_t)n_heads * a->E, MIXED_D, out);
    for (int h = 0; h < n_heads; h++) {
        if (a->qk_norm) mixed_norm(mixed_weight(x, norm, l), out + h * a->E, a->E, out + h * a->E);
        mixed_rope(&x->m->spec.ropes[a->rope], pos, out + h * a->E);
    }
}

static inline void mixed_attention(const mixed *x, mixed_state *s, int l, int64_t pos, const double *in,
                                   double *out) {
    const ln_spec *spec = &x->m->spec;
    const ln_attn_spec *a = ln_attn_of(spec, l);
    const int from = spec->layers[l].state_from;
    double q[MIXED_HEADS], y[MIXED_HEADS] = {0}, p[MIXED_ROWS];
    mixed_heads(x, a, LN_W_Q, LN_W_Q_BIAS, LN_W_Q_NORM, l, in, pos, a->H, q);
    for (int i = 0; a->q_scale.positions && i < a->H * a->E; i++)
        q[i] *= 1 + (double)a->q_scale.factor * log(1 + (double)(pos / a->q_scale.positions));
    if (from == l) {
        mixed_heads(x, a, LN_W_K, LN_W_K_BIAS, LN_W_K_NORM, l, in, pos, a->K, s->k[l][pos]);
        const ln_slot slot = a->k_is_v ? LN_W_K : LN_W_V, bias = a->k_is_v ? LN_W_K_BIAS : LN_W_V_BIAS;
        mixed_linear(mixed_weight(x, slot, l), mixed_weight(x, bias, l), in, (int64_t)a->K * a->Ev, MIXED_D,
                     s->v[l][pos]);
        for (int h = 0; a->v_norm && h < a->K; h++)
            mixed_norm(NULL, s->v[l][pos] + h * a->Ev, a->Ev, s->v[l][pos] + h * a->Ev);
    }
    for (int h = 0; h < a->H; h++) {
        const int kv = h / (a->H / a->K);
        const int64_t first = a->window && pos >= a->window ? pos - a->window + 1 : 0;
        double sum = 0, most = a->sinks ? (double)mixed_weight(x, LN_W_SINKS, l)[h] : -1e300;
        const double sink = most;
        for (int64_t j = first; j <= pos; j++) {
            p[j] = 0;
            for (int e = 0; e < a->E; e++) p[j] += q[h * a->E + e] * s->k[from][j][kv * a->E + e];
            p[j] *= (double)a->scale;
            if (a->softcap > 0) p[j] = (double)a->softcap * tanh(p[j] / (double)a->softcap);
            most = fmax(most, p[j]);
        }
        if (a->sinks) sum = exp(sink - most);
        for (int64_t j = first; j <= pos; j++) sum += p[j] = exp(p[j] - most);
        for (int64_t j = first; j <= pos; j++)
            for (int e = 0; e < a->Ev; e++) y[h * a->Ev + e] += p[j] / sum * s->v[from][j][kv * a->Ev + e];
    }
    if (a->out_gate) {
        double gate[MIXED_HEADS];
        mixed_linear(mixed_weight(x, LN_W_OUT_GATE, l), NULL, in, (int64_t)a->H * a->Ev, MIXED_D, gate);
        for (int i = 0; i < a->H * a->Ev; i++) y[i] /= 1 + exp(-gate[i]);
    }
    mixed_linear(mixed_weight(x, LN_W_O, l), mixed_weight(x, LN_W_O_BIAS, l), y, MIXED_D,
                 (int64_t)a->H * a->Ev, out);
}

static inline void mixed_ffn(const mixed *x, int l, const double *in, double *out) {
    const ln_ffn_spec *f = ln_ffn_of(&x->m->spec, l);
    double gate[48], up[48];
    mixed_linear(mixed_weight(x, LN_W_GATE, l), mixed_weight(x, LN_W_GATE_BIAS, l), in, f->F, MIXED_D, gate);
    mixed_linear(mixed_weight(x, LN_W_UP, l), mixed_weight(x, LN_W_UP_BIAS, l), in, f->F, MIXED_D, up);
    for (int64_t i = 0; i < f->F; i++) {
        const double g = gate[i], t = tanh(0.7978845608028654 * (g + 0.044715 * g * g * g));
        up[i] *= f->act == LN_ACT_SILU ? g / (1 + exp(-g)) : 0.5 * g * (1 + t);
    }
    mixed_linear(mixed_weight(x, LN_W_DOWN, l), mixed_weight(x, LN_W_DOWN_BIAS, l), up, MIXED_D, f->F, out);
}

/* All logits [n, V] of some tokens. */
static inline double *mixed_logits(const mixed *x, const int32_t *ids, int64_t n) {
    mixed_state *s = calloc(1, sizeof *s);
    double *out = malloc((size_t)(n * x->V) * sizeof *out);
    for (int64_t pos = 0; pos < n; pos++) {
        double h[MIXED_D], in[MIXED_D], y[MIXED_D];
        for (int i = 0; i < MIXED_D; i++)
            h[i] = (double)mixed_weight(x, LN_W_EMBED, -1)[ids[pos] * MIXED_D + i];
        for (int l = 0; l < MIXED_L; l++) {
            mixed_norm(mixed_weight(x, LN_W_ATTN_NORM, l), h, MIXED_D, in);
            mixed_attention(x, s, l, pos, in, y);
            for (int i = 0; i < MIXED_D; i++) h[i] += (double)x->m->spec.residual_scale * y[i];
            mixed_norm(mixed_weight(x, LN_W_FFN_NORM, l), h, MIXED_D, in);
            mixed_ffn(x, l, in, y);
            for (int i = 0; i < MIXED_D; i++) h[i] += (double)x->m->spec.residual_scale * y[i];
        }
        mixed_norm(mixed_weight(x, LN_W_NORM, -1), h, MIXED_D, in);
        mixed_linear(mixed_weight(x, LN_W_HEAD, -1), NULL, in, x->V, MIXED_D, out + pos * x->V);
        const double cap = (double)x->m->spec.logit_softcap, by = (double)x->m->spec.logit_scale;
        for (int64_t i = 0; i < x->V; i++) out[pos * x->V + i] = cap * tanh(by * out[pos * x->V + i] / cap);
    }
    free(s);
    return out;
}

#endif
