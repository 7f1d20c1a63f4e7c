/* The recurrent mixers over the rows of a packed batch, and their gradients. recur_op.c has them with a state
 * in pages. Here the sequences of a step are whole, and each begins with a state of zeros.
 *
 *     conv         y[r][c] = sum over i of w[c][i] x[r - (k - 1) + i][c], + b
 *                  turned, which is its gradient: of x[r + (k - 1) - i]; other sequences count as 0
 *     delta        S' = exp(g) S
 *                  u = beta (v - S'^T k)
 *                  S = S' + k u^T
 *                  y = S^T q
 *     delta_back   from the last row to the first, D is the gradient of S:
 *                  D += q dy^T
 *                  du = D^T k
 *                  dv = beta du
 *                  D' = D - k dv^T
 *                  dg = exp(g) (S . D')
 *                  dq = S dy
 *                  dk = D u - S' dv
 *                  D = exp(g) D'
 *
 * q and k are divided by their lengths, q also by sqrt(E). delta_back computes S again: it keeps S at the
 * start of every block of BLOCK rows, and after each row of one block. Sums of a row have the order of the
 * loops, dot products are in 16 lanes. A partition of delta and delta_back is a set of pairs of a sequence
 * and a key head. */
#include "../graph/grad.h"
#include "scalar_type.h"

#include <math.h>

enum { BLOCK = 64 };

/* ---- the convolution ---- */

LN_KERNEL(ln_ref_conv) {
    const ln_p_conv *p = &c->node->p.conv;
    const ln_arg *x = &c->in[0], *w = &c->in[1], *bias = c->node->n_in > 2 ? &c->in[2] : NULL;
    LN_MY_ROWS(c, x->cols, lo, hi);
    for (int b = 0; b < c->step->n_seqs; b++) {
        const int64_t first = c->step->row0[b], end = c->step->row0[b + 1];
        for (int64_t r = first; r < end; r++) {
            real *y = real_row(&c->out[0], r);
            for (int64_t k = lo; k < hi; k++) y[k] = 0;
            for (int i = 0; i < p->taps; i++) {
                const int64_t from = p->turned ? r + p->taps - 1 - i : r - (p->taps - 1) + i;
                if (from < first || from >= end) continue;
                for (int64_t k = lo; k < hi; k++)
                    y[k] =
                        y[k] + real_load(w->data, (ln_dtype)w->dtype, k * p->taps + i) * real_row(x, from)[k];
            }
            for (int64_t k = lo; bias && k < hi; k++)
                y[k] = y[k] + real_load(bias->data, (ln_dtype)bias->dtype, k);
        }
    }
}

/* ---- decays and betas ---- */

static real sigmoid(real x) { return 1 / (1 + real_exp(-x)); }

LN_KERNEL(ln_ref_delta_gates_back) {
    const int64_t heads = c->in[0].cols;
    const ln_arg *a_log = &c->in[2], *dt = &c->in[3];
    const real by = (real)c->node->p.scale.factor;
    LN_MY_ROWS(c, c->out[0].rows, lo, hi);
    for (int64_t r = lo; r < hi; r++)
        for (int64_t h = 0; h < heads; h++) {
            const real a = real_row(&c->in[0], r)[h] + real_load(dt->data, (ln_dtype)dt->dtype, h),
                       s = sigmoid(real_row(&c->in[1], r)[h]), *dy = real_row(&c->in[4], r);
            real_row(&c->out[0], r)[h] =
                dy[h] * -real_exp(real_load(a_log->data, (ln_dtype)a_log->dtype, h)) * sigmoid(a);
            real_row(&c->out[1], r)[h] = dy[heads + h] * by * s * (1 - s);
        }
}

/* ---- the delta rule ---- */

/* The numbers of one value head that a thread works with. */
typedef struct delta_work {
    const ln_p_delta *p;
    real *q, *k;         /* [E]: of a row, of length 1, q divided by sqrt(E) */
    real *r, *u, *du;    /* [Ev] */
    real *s, *ds;        /* [E, Ev] */
    real *starts, *rows; /* of delta_back: [blocks][E, Ev]; [BLOCK + 1][E, Ev] */
} delta_work;

static int64_t matrix_of(const ln_p_delta *p) { return (int64_t)p->k_dim * p->v_dim; }
static delta_work work_of(const ln_call *c) {
    const ln_p_delta *p = &c->node->p.delta;
    delta_work w = {.p = p, .q = c->scratch};
    w.k = w.q + p->k_dim;
    w.r = w.k + p->k_dim;
    w.u = w.r + p->v_dim;
    w.du = w.u + p->v_dim;
    w.s = w.du + p->v_dim;
    w.ds = w.s + matrix_of(p);
    w.rows = w.ds + matrix_of(p);
    w.starts = w.rows + (BLOCK + 1) * matrix_of(p);
    return w;
}
size_t LN_REAL(ln_ref_packed_delta_scratch)(const ln_program *p, const ln_pnode *n, const ln_bounds *b) {
    const ln_p_delta *d = &n->p.delta;
    const int64_t matrices = 2 + (n->op == LN_OP_DELTA_BACK ? BLOCK + 1 + b->T / BLOCK + 1 : 0);
    (void)p;
    return (size_t)(2 * d->k_dim + 3 * d->v_dim + matrices * matrix_of(d)) * sizeof(real);
}

static real dot(const real *a, const real *b, int64_t n) {
    real lane[16] = {0};
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int l = 0; l < 16; l++) lane[l] = lane[l] + a[i + l] * b[i + l];
    for (; i < n; i++) lane[i % 16] = lane[i % 16] + a[i] * b[i];
    return real_lanes_sum(lane);
}
/* 1 divided by the length of x. */
static real unit_of(const real *x, int64_t n) { return 1 / real_sqrt(dot(x, x, n) + (real)LN_RECUR_EPS); }
static real root_of(const ln_p_delta *p) { return (real)(float)(1 / sqrt((double)p->k_dim)); }

/* q, k and v of a row: columns of one operand. */
static const real *queries(const ln_p_delta *p, const real *row, int64_t key_head) {
    return row + key_head * p->k_dim;
}
static const real *keys(const ln_p_delta *p, const real *row, int64_t key_head) {
    return row + (p->n_k_heads + key_head) * p->k_dim;
}
static const real *values(const ln_p_delta *p, const real *row, int64_t head) {
    return row + 2 * (int64_t)p->n_k_heads * p->k_dim + head * p->v_dim;
}
static void set_units(const delta_work *w, const real *row, int64_t key_head) {
    const ln_p_delta *p = w->p;
    const real *q = queries(p, row, key_head), *k = keys(p, row, key_head);
    const real by = unit_of(q, p->k_dim) * root_of(p), kr = unit_of(k, p->k_dim);
    for (int64_t i = 0; i < p->k_dim; i++) w->q[i] = q[i] * by, w->k[i] = k[i] * kr;
}

/* r = decay S^T k and u = beta (v - r), of S before a row. */
static void set_change(const delta_work *w, const real *before, real decay, real beta, const real *v) {
    const ln_p_delta *p = w->p;
    for (int64_t e = 0; e < p->v_dim; e++) w->r[e] = 0;
    for (int64_t i = 0; i < p->k_dim; i++)
        for (int64_t e = 0; e < p->v_dim; e++) w->r[e] = w->r[e] + before[i * p->v_dim + e] * w->k[i];
    for (int64_t e = 0; e < p->v_dim; e++) {
        w->r[e] = decay * w->r[e];
        w->u[e] = beta * (v[e] - w->r[e]);
    }
}
/* S after a row, from S before it; both may be one. */
static void advance(const delta_work *w, const real *before, real decay, real beta, const real *v,
                    real *after) {
    const ln_p_delta *p = w->p;
    set_change(w, before, decay, beta, v);
    for (int64_t i = 0; i < p->k_dim; i++)
        for (int64_t e = 0; e < p->v_dim; e++)
            after[i * p->v_dim + e] = decay * before[i * p->v_dim + e] + w->k[i] * w->u[e];
}

/* The decay and the beta of a row in a value head. */
typedef struct gates {
    real decay, beta;
} gates;
static gates gates_of(const ln_call *c, int64_t r, int64_t head) {
    const real *row = real_row(&c->in[0], r);
    return (gates){real_exp(row[head]), row[c->node->p.delta.n_v_heads + head]};
}

LN_KERNEL(ln_ref_delta) {
    const ln_p_delta *p = &c->node->p.delta;
    const delta_work w = work_of(c);
    const int64_t group = p->n_v_heads / p->n_k_heads;
    LN_MY_ROWS(c, (int64_t)c->step->n_seqs * p->n_k_heads, lo, hi);
    for (int64_t unit = lo; unit < hi; unit++)
        for (int64_t h = 0; h < group; h++) {
            const int64_t b = unit / p->n_k_heads, key_head = unit % p->n_k_heads,
                          head = key_head * group + h;
            memset(w.s, 0, (size_t)matrix_of(p) * sizeof(real));
            for (int64_t r = c->step->row0[b]; r < c->step->row0[b + 1]; r++) {
                const real *row = real_row(&c->in[1], r);
                real *y = real_row(&c->out[0], r) + head * p->v_dim;
                const gates g = gates_of(c, r, head);
                set_units(&w, row, key_head);
                advance(&w, w.s, g.decay, g.beta, values(p, row, head), w.s);
                for (int64_t e = 0; e < p->v_dim; e++) y[e] = 0;
                for (int64_t i = 0; i < p->k_dim; i++)
                    for (int64_t e = 0; e < p->v_dim; e++) y[e] = y[e] + w.s[i * p->v_dim + e] * w.q[i];
            }
        }
}

/* The gradients of row r of a value head, and D of the row before it. dq and dk: those of the vectors of
 * length 1, to which other heads of the group add. */
static void back_row(const ln_call *c, const delta_work *w, int64_t r, int64_t key_head, int64_t head,
                     const real *before, const real *after) {
    const ln_p_delta *p = w->p;
    const int64_t E = p->k_dim, Ev = p->v_dim, at = 2 * (int64_t)p->n_k_heads * E + head * Ev;
    const real *row = real_row(&c->in[1], r), *dy = real_row(&c->in[2], r) + head * Ev,
               *v = values(p, row, head);
    real *out = real_row(&c->out[1], r), *dq = out + key_head * E, *dk = out + (p->n_k_heads + key_head) * E,
         *dgates = real_row(&c->out[0], r), dbeta = 0, slope = 0;
    const gates g = gates_of(c, r, head);
    set_units(w, row, key_head);
    set_change(w, before, g.decay, g.beta, v);
    for (int64_t e = 0; e < Ev; e++) w->du[e] = 0;
    for (int64_t i = 0; i < E; i++) {
        real *d = w->ds + i * Ev;
        dq[i] = dq[i] + dot(after + i * Ev, dy, Ev);
        for (int64_t e = 0; e < Ev; e++) d[e] = d[e] + w->q[i] * dy[e];
        for (int64_t e = 0; e < Ev; e++) w->du[e] = w->du[e] + d[e] * w->k[i];
        dk[i] = dk[i] + dot(d, w->u, Ev);
    }
    for (int64_t e = 0; e < Ev; e++) {
        dbeta = dbeta + w->du[e] * (v[e] - w->r[e]);
        w->du[e] = g.beta * w->du[e];
        out[at + e] = w->du[e];
    }
    for (int64_t i = 0; i < E; i++) {
        real *d = w->ds + i * Ev;
        const real *s = before + i * Ev;
        dk[i] = dk[i] - g.decay * dot(s, w->du, Ev);
        for (int64_t e = 0; e < Ev; e++) d[e] = d[e] - w->k[i] * w->du[e];
        slope = slope + dot(s, d, Ev);
        for (int64_t e = 0; e < Ev; e++) d[e] = g.decay * d[e];
    }
    dgates[head] = g.decay * slope;
    dgates[p->n_v_heads + head] = dbeta;
}

/* One value head of a sequence. */
static void back_head(const ln_call *c, const delta_work *w, int64_t first, int64_t end, int64_t key_head,
                      int64_t head) {
    const ln_p_delta *p = w->p;
    const int64_t M = matrix_of(p);
    memset(w->s, 0, (size_t)M * sizeof(real));
    memset(w->ds, 0, (size_t)M * sizeof(real));
    for (int64_t r = first; r < end; r++) {
        const real *row = real_row(&c->in[1], r);
        const gates g = gates_of(c, r, head);
        if ((r - first) % BLOCK == 0)
            memcpy(w->starts + (r - first) / BLOCK * M, w->s, (size_t)M * sizeof(real));
        set_units(w, row, key_head);
        advance(w, w->s, g.decay, g.beta, values(p, row, head), w->s);
    }
    for (int64_t block = (end - first - 1) / BLOCK; block >= 0; block--) {
        const int64_t from = first + block * BLOCK, to = LN_MIN(end, from + BLOCK);
        memcpy(w->rows, w->starts + block * M, (size_t)M * sizeof(real));
        for (int64_t r = from; r < to; r++) {
            const real *row = real_row(&c->in[1], r);
            const gates g = gates_of(c, r, head);
            set_units(w, row, key_head);
            advance(w, w->rows + (r - from) * M, g.decay, g.beta, values(p, row, head),
                    w->rows + (r - from + 1) * M);
        }
        for (int64_t r = to - 1; r >= from; r--)
            back_row(c, w, r, key_head, head, w->rows + (r - from) * M, w->rows + (r - from + 1) * M);
    }
}

/* From the gradient of x r by, in d, r = 1 / sqrt(x . x + eps), to that of x. */
static void back_unit(const real *x, int64_t n, real by, real *d) {
    const real r = unit_of(x, n), along = dot(x, d, n) * r * r;
    for (int64_t i = 0; i < n; i++) d[i] = by * r * (d[i] - x[i] * along);
}

LN_KERNEL(ln_ref_delta_back) {
    const ln_p_delta *p = &c->node->p.delta;
    const delta_work w = work_of(c);
    const int64_t group = p->n_v_heads / p->n_k_heads, E = p->k_dim;
    LN_MY_ROWS(c, (int64_t)c->step->n_seqs * p->n_k_heads, lo, hi);
    for (int64_t unit = lo; unit < hi; unit++) {
        const int64_t b = unit / p->n_k_heads, key_head = unit % p->n_k_heads, first = c->step->row0[b],
                      end = c->step->row0[b + 1], q = key_head * E, k = (p->n_k_heads + key_head) * E;
        for (int64_t r = first; r < end; r++) {
            memset(real_row(&c->out[1], r) + q, 0, (size_t)E * sizeof(real));
            memset(real_row(&c->out[1], r) + k, 0, (size_t)E * sizeof(real));
        }
        for (int64_t h = 0; h < group; h++) back_head(c, &w, first, end, key_head, key_head * group + h);
        for (int64_t r = first; r < end; r++) {
            back_unit(real_row(&c->in[1], r) + q, E, root_of(p), real_row(&c->out[1], r) + q);
            back_unit(real_row(&c->in[1], r) + k, E, 1, real_row(&c->out[1], r) + k);
        }
    }
}

#ifdef LN_REAL_FLOAT
static bool fits(const ln_value *v, int64_t cols) {
    return v->kind == LN_KIND_TEMP && v->n_dims == 2 && v->format.kind == LN_FORMAT_F32 &&
           v->dims[0] == LN_DIM_T && v->dims[1] == cols;
}
ln_status ln_shape_conv(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_value *x = ln_in(g, n, 0), *w = ln_in(g, n, 1);
    const bool ok = x->n_dims == 2 && fits(x, x->dims[1]) && n->p.conv.taps > 0 && ln_is_vector(w) &&
                    w->dims[0] == x->dims[1] * n->p.conv.taps &&
                    (n->n_in < 3 || (ln_is_vector(ln_in(g, n, 2)) && ln_in(g, n, 2)->dims[0] == x->dims[1]));
    if (!ok) return ln_shape_fail(g, n, err, "x[T,C] in f32, w[C*k] and a bias[C] or none");
    ln_shape_like(out, LN_DIM_T, x->dims[1]);
    return LN_OK;
}
ln_status ln_shape_delta_gates_back(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_value *a = ln_in(g, n, 0), *dy = ln_in(g, n, 4);
    ln_value y;
    LN_TRY(ln_shape_delta_gates(g, n, &y, err));
    if (dy->n_dims != 2 || dy->dims[0] != a->dims[0] || dy->dims[1] != 2 * a->dims[1])
        return ln_shape_fail(g, n, err, "the operands of delta_gates and dy[R,2H]");
    ln_shape_like(&out[0], a->dims[0], a->dims[1]);
    ln_shape_like(&out[1], a->dims[0], a->dims[1]);
    return LN_OK;
}
static int64_t columns_of(const ln_p_delta *p) {
    return 2 * (int64_t)p->n_k_heads * p->k_dim + (int64_t)p->n_v_heads * p->v_dim;
}
static bool are_heads(const ln_graph *g, const ln_node *n) {
    const ln_p_delta *p = &n->p.delta;
    return p->n_k_heads > 0 && p->n_v_heads > 0 && p->n_v_heads % p->n_k_heads == 0 && p->k_dim > 0 &&
           p->v_dim > 0 && fits(ln_in(g, n, 0), 2 * (int64_t)p->n_v_heads) &&
           fits(ln_in(g, n, 1), columns_of(p));
}
ln_status ln_shape_delta(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    if (!are_heads(g, n))
        return ln_shape_fail(g, n, err, "gates[T,2H] and qkv[T,2*K*E+H*Ev] in f32, H a multiple of K");
    ln_shape_like(out, LN_DIM_T, (int64_t)n->p.delta.n_v_heads * n->p.delta.v_dim);
    return LN_OK;
}
ln_status ln_shape_delta_back(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_p_delta *p = &n->p.delta;
    if (!are_heads(g, n) || !fits(ln_in(g, n, 2), (int64_t)p->n_v_heads * p->v_dim))
        return ln_shape_fail(g, n, err, "the operands of delta and dy[T,H*Ev]");
    ln_shape_like(&out[0], LN_DIM_T, 2 * (int64_t)p->n_v_heads);
    ln_shape_like(&out[1], LN_DIM_T, columns_of(p));
    return LN_OK;
}

LN_COST_OF_OPERANDS(delta_gates_back)
ln_cost ln_cost_conv(const ln_program *p, const ln_pnode *n, const ln_bounds *live, int64_t depth) {
    ln_cost c = ln_cost_of_operands(p, n, live);
    c.flops = 2.0 * n->p.conv.taps * (double)ln_program_value(p, n->in[0])->dims[1] * (double)live->T;
    return (void)depth, c;
}
/* Operations on S for each row: 6 forward; 12 to compute it again, 16 backward. */
static ln_cost delta_cost(const ln_program *p, const ln_pnode *n, const ln_bounds *live, int by) {
    ln_cost c = ln_cost_of_operands(p, n, live);
    c.flops = by * (double)n->p.delta.n_v_heads * (double)matrix_of(&n->p.delta) * (double)live->T;
    return c;
}
ln_cost ln_cost_delta(const ln_program *p, const ln_pnode *n, const ln_bounds *live, int64_t depth) {
    return (void)depth, delta_cost(p, n, live, 8);
}
ln_cost ln_cost_delta_back(const ln_program *p, const ln_pnode *n, const ln_bounds *live, int64_t depth) {
    return (void)depth, delta_cost(p, n, live, 28);
}

/* Rejects the gradients of what the recurrent layers have as vectors. */
static ln_status only_rows(const ln_graph *g, const ln_node *n, const bool *wanted, int from, ln_error *err) {
    for (int k = from; k < n->n_in; k++)
        if (wanted[k])
            return ln_fail(err, LN_EUNSUPPORTED, "gradient of %s: op %s has none with respect to %s",
                           g->values[n->out[0]].name, ln_ops[n->op].name, g->values[n->in[k]].name);
    return LN_OK;
}
ln_status ln_grad_conv(ln_graph *g, const ln_node *n, const ln_v *dy, const bool *wanted, ln_v *dx,
                       ln_error *err) {
    char name[64];
    LN_TRY(only_rows(g, n, wanted, 1, err));
    if (wanted[0])
        dx[0] = ln_g_conv(g, ln_grad_name(g, n->in[0], name), dy[0], n->in[1], -1,
                          &(ln_p_conv){n->p.conv.taps, !n->p.conv.turned});
    return LN_OK;
}
ln_status ln_grad_delta_gates(ln_graph *g, const ln_node *n, const ln_v *dy, const bool *wanted, ln_v *dx,
                              ln_error *err) {
    const ln_node back = {.op = LN_OP_DELTA_GATES_BACK,
                          .n_in = 5,
                          .in = {n->in[0], n->in[1], n->in[2], n->in[3], dy[0]},
                          .p.scale = n->p.scale};
    ln_v out[LN_NODE_OUT];
    char name[64];
    LN_TRY(only_rows(g, n, wanted, 2, err));
    (void)ln_g_node(g, ln_grad_name(g, n->in[0], name), &back, out);
    for (int k = 0; k < 2; k++)
        if (wanted[k]) dx[k] = out[k];
    return LN_OK;
}
ln_status ln_grad_delta(ln_graph *g, const ln_node *n, const ln_v *dy, const bool *wanted, ln_v *dx,
                        ln_error *err) {
    const ln_node back = {
        .op = LN_OP_DELTA_BACK, .n_in = 3, .in = {n->in[0], n->in[1], dy[0]}, .p.delta = n->p.delta};
    ln_v out[LN_NODE_OUT];
    char name[64];
    (void)err;
    (void)ln_g_node(g, ln_grad_name(g, n->in[1], name), &back, out);
    for (int k = 0; k < 2; k++)
        if (wanted[k]) dx[k] = out[k];
    return LN_OK;
}
#endif
