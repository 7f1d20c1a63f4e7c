/* Attention over the rows of a packed batch, and its gradient (Vaswani et al. 2017; FlashAttention, Dao et
 * al. 2022: nothing of size [T,T] is stored, the backward pass computes the softmax weights again from lse).
 *
 * Keys and values are this step's rows alone: the row of sequence b at position j is row0[b] + j -
 * pos[row0[b]]. A row at position p attends to the rows of its sequence at positions p - window < j <= p. The
 * forward pass has the order of attn_paged over f32 pages (LN_ATTN_SPLIT in ops.h), and hence its bits; lse =
 * M + log(L). The backward pass, for row i, query head h and its KV head:
 *
 *     s       (chain of fma over e ascending of q[e] k[j][e], from 0) * scale; with a softcap c c tanh(s / c)
 *     P       exp(s - lse[i])
 *     dP      chain of fma over e ascending of dy[e] v[j][e], from 0
 *     delta   the sum of dy[e] y[e] in 16 lanes by fma
 *     dS      P * (dP - delta); with a softcap c times 1 - (s / c)^2
 *     dq[e]   (chain of fma over j ascending of dS k[j][e], from 0) * scale
 *     dk[j]   (chain of fma over the heads of the group, and in each over i ascending, of dS q[e], from 0)
 *             * scale
 *     dv[j]   the same chain of P dy[e], without the scale
 *
 * In `fast` training q, k, v and dy may be rounded to bf16 (pass_cast.c): GPUs read them so, CPUs read f32.
 * A sink enters lse alone: it has no value, and its own gradient is not computed.
 *
 * A partition is a set of (sequence, KV head) pairs, each of which owns its part of dq, dk and dv. */
#include "../graph/grad.h"
#include "scalar_type.h"

#define ATTN_MAX_E 1024

/* The rows of one sequence that one row attends to: [first, row], and the position of the first. */
typedef struct visible {
    int64_t first, pos;
} visible;
static visible visible_of(const ln_call *c, int64_t r) {
    const int64_t window = c->node->p.packed.window, start = c->step->row0[c->step->seq[r]],
                  pos = c->step->pos[r], from = c->step->pos[start],
                  first = window > 0 && pos - window + 1 > from ? pos - window + 1 : from;
    return (visible){start + first - from, first};
}
static real dot(const real *a, const real *b, int64_t n) {
    real sum = 0;
    for (int64_t e = 0; e < n; e++) sum = real_fma(a[e], b[e], sum);
    return sum;
}

/* Positions [from, to) of one row and head, whose first row is `row`: maximum, sum of weights, output o[Ev].
 */
static void attn_split(const ln_call *c, const real *q, int64_t head, int64_t row, int64_t from, int64_t to,
                       real *max, real *sum, real *o) {
    const ln_p_packed *p = &c->node->p.packed;
    const int64_t E = p->head_dim, Ev = p->v_dim;
    real w[LN_ATTN_SPLIT], lane[16] = {0};
    *max = -INFINITY;
    for (int64_t j = from; j < to; j++) {
        w[j - from] = real_capped(dot(q, real_row(&c->in[1], row + j - from) + head * E, E) * (real)p->scale,
                                  p->softcap);
        *max = w[j - from] <= *max ? *max : w[j - from];
    }
    for (int64_t e = 0; e < Ev; e++) o[e] = 0;
    for (int64_t j = from; j < to; j++) {
        w[j - from] = real_exp(w[j - from] - *max);
        lane[j % 16] = lane[j % 16] + w[j - from];
    }
    for (int64_t j = from; j < to; j++)
        for (int64_t e = 0; e < Ev; e++)
            o[e] = real_fma(w[j - from], real_row(&c->in[2], row + j - from)[head * Ev + e], o[e]);
    *sum = real_lanes_sum(lane);
}

static void attn_row(const ln_call *c, int64_t r, int64_t h) {
    const ln_p_packed *p = &c->node->p.packed;
    const int64_t E = p->head_dim, Ev = p->v_dim, head = h / (p->n_heads / p->n_kv_heads),
                  pos = c->step->pos[r];
    const visible seen = visible_of(c, r);
    const ln_arg *sinks = c->node->n_in > 3 ? &c->in[3] : NULL;
    real M = -INFINITY, L = 0, O[ATTN_MAX_E] = {0}, o[ATTN_MAX_E];
    if (sinks) M = real_load(sinks->data, (ln_dtype)sinks->dtype, h), L = 1;
    for (int64_t s0 = seen.pos / LN_ATTN_SPLIT * LN_ATTN_SPLIT; s0 <= pos; s0 += LN_ATTN_SPLIT) {
        const int64_t from = LN_MAX(s0, seen.pos);
        real m, l;
        attn_split(c, real_row(&c->in[0], r) + h * E, head, seen.first + from - seen.pos, from,
                   LN_MIN(s0 + LN_ATTN_SPLIT, pos + 1), &m, &l, o);
        if (s0 <= seen.pos && !sinks) {
            M = m, L = l;
            memcpy(O, o, (size_t)Ev * sizeof *O);
            continue;
        }
        real M2 = m <= M ? M : m, a = real_exp(M - M2), f = real_exp(m - M2);
        L = L * a + l * f;
        for (int64_t e = 0; e < Ev; e++) O[e] = real_fma(o[e], f, O[e] * a);
        M = M2;
    }
    for (int64_t e = 0; e < Ev; e++) real_row(&c->out[0], r)[h * Ev + e] = O[e] / L;
    real_row(&c->out[1], r)[h] = M + real_log(L);
}
LN_KERNEL(ln_ref_attn) {
    LN_MY_ROWS(c, c->out[0].rows, lo, hi);
    for (int64_t r = lo; r < hi; r++)
        for (int64_t h = 0; h < c->node->p.packed.n_heads; h++) attn_row(c, r, h);
}

/* P and dS of row i and key row j. */
static void weights_of(const ln_call *c, int64_t i, int64_t j, int64_t h, real *P, real *dS) {
    const ln_p_packed *p = &c->node->p.packed;
    const int64_t E = p->head_dim, Ev = p->v_dim, head = h / (p->n_heads / p->n_kv_heads);
    const real *dy = real_row(&c->in[5], i) + h * Ev, *y = real_row(&c->in[3], i) + h * Ev;
    real lane[16] = {0};
    for (int64_t e = 0; e < Ev; e++) lane[e % 16] = real_fma(dy[e], y[e], lane[e % 16]);
    const real s = real_capped(dot(real_row(&c->in[0], i) + h * E, real_row(&c->in[1], j) + head * E, E) *
                                   (real)p->scale,
                               p->softcap);
    *P = real_exp(s - real_row(&c->in[4], i)[h]);
    *dS = *P * (dot(dy, real_row(&c->in[2], j) + head * Ev, Ev) - real_lanes_sum(lane));
    if (p->softcap > 0) *dS = *dS * (1 - s / (real)p->softcap * (s / (real)p->softcap));
}
static void back_queries(const ln_call *c, int64_t i, int64_t h) {
    const ln_p_packed *p = &c->node->p.packed;
    const int64_t E = p->head_dim, head = h / (p->n_heads / p->n_kv_heads);
    real *dq = real_row(&c->out[0], i) + h * E, P, dS;
    for (int64_t e = 0; e < E; e++) dq[e] = 0;
    for (int64_t j = visible_of(c, i).first; j <= i; j++) {
        weights_of(c, i, j, h, &P, &dS);
        for (int64_t e = 0; e < E; e++) dq[e] = real_fma(dS, real_row(&c->in[1], j)[head * E + e], dq[e]);
    }
    for (int64_t e = 0; e < E; e++) dq[e] = dq[e] * (real)p->scale;
}
static void back_keys(const ln_call *c, int64_t j, int64_t end, int64_t head) {
    const ln_p_packed *p = &c->node->p.packed;
    const int64_t E = p->head_dim, Ev = p->v_dim, group = p->n_heads / p->n_kv_heads;
    real *dk = real_row(&c->out[1], j) + head * E, *dv = real_row(&c->out[2], j) + head * Ev, P, dS;
    for (int64_t e = 0; e < E; e++) dk[e] = 0;
    for (int64_t e = 0; e < Ev; e++) dv[e] = 0;
    for (int64_t h = head * group; h < (head + 1) * group; h++)
        for (int64_t i = j; i < end && visible_of(c, i).first <= j; i++) {
            const real *q = real_row(&c->in[0], i) + h * E, *dy = real_row(&c->in[5], i) + h * Ev;
            weights_of(c, i, j, h, &P, &dS);
            for (int64_t e = 0; e < E; e++) dk[e] = real_fma(dS, q[e], dk[e]);
            for (int64_t e = 0; e < Ev; e++) dv[e] = real_fma(P, dy[e], dv[e]);
        }
    for (int64_t e = 0; e < E; e++) dk[e] = dk[e] * (real)p->scale;
}
LN_KERNEL(ln_ref_attn_back) {
    const ln_p_packed *p = &c->node->p.packed;
    const int64_t group = p->n_heads / p->n_kv_heads;
    LN_MY_ROWS(c, (int64_t)c->step->n_seqs * p->n_kv_heads, lo, hi);
    for (int64_t u = lo; u < hi; u++) {
        const int64_t b = u / p->n_kv_heads, head = u % p->n_kv_heads, end = c->step->row0[b + 1];
        for (int64_t r = c->step->row0[b]; r < end; r++) {
            for (int64_t h = head * group; h < (head + 1) * group; h++) back_queries(c, r, h);
            back_keys(c, r, end, head);
        }
    }
}

#ifdef LN_REAL_FLOAT
static bool fits(const ln_value *v, int64_t cols) {
    return v->kind == LN_KIND_TEMP && v->n_dims == 2 && v->format.kind <= LN_FORMAT_BF16 &&
           v->dims[0] == LN_DIM_T && v->dims[1] == cols;
}
static bool are_heads(const ln_graph *g, const ln_node *n) {
    const ln_p_packed *p = &n->p.packed;
    const int64_t E = p->head_dim, Ev = p->v_dim;
    return p->n_kv_heads > 0 && p->n_heads % p->n_kv_heads == 0 && E > 0 && E <= ATTN_MAX_E && Ev > 0 &&
           Ev <= ATTN_MAX_E && fits(ln_in(g, n, 0), p->n_heads * E) &&
           fits(ln_in(g, n, 1), p->n_kv_heads * E) && fits(ln_in(g, n, 2), p->n_kv_heads * Ev);
}
ln_status ln_shape_attn(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_p_packed *p = &n->p.packed;
    if (!are_heads(g, n))
        return ln_shape_fail(g, n, err,
                             "q[T,H*E], k[T,K*E] and v[T,K*Ev] in f32, E and Ev up to 1024, H a multiple "
                             "of K");
    if (n->n_in > 3 && (!ln_is_vector(ln_in(g, n, 3)) || ln_in(g, n, 3)->dims[0] != p->n_heads))
        return ln_shape_fail(g, n, err, "sinks[H]");
    ln_shape_like(&out[0], LN_DIM_T, (int64_t)p->n_heads * p->v_dim);
    ln_shape_like(&out[1], LN_DIM_T, p->n_heads);
    return LN_OK;
}
ln_status ln_shape_attn_back(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_p_packed *p = &n->p.packed;
    const int64_t q = (int64_t)p->n_heads * p->head_dim, y = (int64_t)p->n_heads * p->v_dim,
                  K = p->n_kv_heads;
    if (!are_heads(g, n) || !fits(ln_in(g, n, 3), y) || !fits(ln_in(g, n, 4), p->n_heads) ||
        !fits(ln_in(g, n, 5), y))
        return ln_shape_fail(g, n, err, "q, k and v of attn, y[T,H*Ev], lse[T,H] and dy[T,H*Ev] in f32");
    ln_shape_like(&out[0], LN_DIM_T, q);
    ln_shape_like(&out[1], LN_DIM_T, K * p->head_dim);
    ln_shape_like(&out[2], LN_DIM_T, K * p->v_dim);
    return LN_OK;
}
/* `keys` products of E columns and `values` of Ev for each pair of a row and one that it attends to. */
static ln_cost attention_cost(const ln_program *p, const ln_pnode *n, const ln_bounds *live, int keys,
                              int values) {
    const ln_p_packed *a = &n->p.packed;
    const double T = (double)live->T / (double)LN_MAX(live->B, 1),
                 w = a->window > 0 && (double)a->window < T ? (double)a->window : T;
    ln_cost c = ln_cost_of_operands(p, n, live);
    c.flops = 2.0 * a->n_heads * (keys * a->head_dim + values * a->v_dim) * (T * w - w * (w - 1) / 2) *
              (double)live->B;
    return c;
}
ln_cost ln_cost_attn(const ln_program *p, const ln_pnode *n, const ln_bounds *live, int64_t depth) {
    return (void)depth, attention_cost(p, n, live, 1, 1);
}
ln_cost ln_cost_attn_back(const ln_program *p, const ln_pnode *n, const ln_bounds *live, int64_t depth) {
    return (void)depth, attention_cost(p, n, live, 3, 2);
}

ln_status ln_grad_attn(ln_graph *g, const ln_node *n, const ln_v *dy, const bool *wanted, ln_v *dx,
                       ln_error *err) {
    char name[64];
    ln_v out[LN_NODE_OUT];
    if (dy[1] >= 0)
        return ln_fail(err, LN_EUNSUPPORTED, "gradient of %s: only y has one, not lse",
                       g->values[n->out[1]].name);
    if (n->n_in > 3 && wanted[3])
        return ln_fail(err, LN_EUNSUPPORTED, "gradient of %s: its sinks have none",
                       g->values[n->out[0]].name);
    const ln_node back = {.op = LN_OP_ATTN_BACK,
                          .n_in = 6,
                          .in = {n->in[0], n->in[1], n->in[2], n->out[0], n->out[1], dy[0]},
                          .p.packed = n->p.packed};
    (void)ln_g_node(g, ln_grad_name(g, n->out[0], name), &back, out);
    for (int k = 0; k < 3; k++)
        if (wanted[k]) dx[k] = out[k];
    return LN_OK;
}
#endif
