/* linear_back, the gradient of a product with respect to its input, and the cross-entropy of a product with
 * the targets, which never holds [R,V].
 *
 * linear_back reads w[D,C] as linear does, in its stored form, and multiplies from the other side: dx = dy w.
 *
 * linear_cross_entropy, for each row:
 *
 *     logit[v]  one chain of fma over C ascending, from 0; of bf16 weights in pairs, the odd column first, as
 *               linear's product F32_BF16; of encoded weights with the number s q + b by fma,
 *               of coded rows with their f32 number
 *     splits    of LN_CE_SPLIT outputs: m = max, e[v] = exp(logit[v] - m), l = sum of e in 16 lanes
 *     merge     in ascending order: M' = max(M, m); a = exp(M - M'), f = exp(m - M'); L = L a + l f
 *     loss      log(L) + (M - logit[target])
 *
 * and, where the reverse pass wants it (the parameter is not 0), the gradient of the loss in the same pass
 * over the weights, as attention computes its output:
 *
 *     sum[c]    of each split sum[c] = sum[c] a, then one chain of fma over v ascending of (e[v] f) w[v][c]
 *     slope[c]  fma(sum[c], 1 / L, -w[target][c])
 *
 * In `fast` training the operands dy and x may be rounded to bf16 (pass_cast.c; AMX reads them so, other
 * levels of the CPU read f32), and AMX rounds the weights e f of the outputs too (gemm_back_amx.inc.h).
 *
 * Rows whose target is below 0 have no loss and a slope of 0; their logits are not needed. */
#include "../graph/grad.h"
#include "scalar_type.h"

/* Element c of row d of a weight, as a number. */
static real weight_at(const ln_arg *w, int64_t d, int64_t c) {
    if (w->coded) return (real)ln_coded_at(w->data, d, c);
    if (!w->format.bits) return real_load(w->data, w->dtype, d * w->pitch + c);
    const ln_affine *a = w->data;
    const int64_t g = d * (w->cols / a->code.group) + c / a->code.group;
    return real_fma(real_load(a->scales, a->dtype, g),
                    (real)ln_affine_code(a->codes + d * ln_affine_row_bytes(a->code, w->cols), a->code.bits,
                                         c),
                    real_load(a->biases, a->offset, g));
}

LN_KERNEL(ln_ref_linear_back) {
    const ln_arg *dy = &c->in[0], *w = &c->in[1], *dx = &c->out[0];
    const int64_t lo = dx->cols * c->thread / c->n_threads, hi = dx->cols * (c->thread + 1) / c->n_threads;
    for (int64_t r = 0; r < dx->rows; r++)
        for (int64_t i = lo; i < hi; i++) {
            real sum = 0;
            for (int64_t d = 0; d < dy->cols; d++)
                sum = real_fma(real_row(dy, r)[d], weight_at(w, d, i), sum);
            real_row(dx, r)[i] = sum;
        }
}

LN_KERNEL(ln_ref_experts_back) {
    const ln_arg *dy = &c->in[0], *w = &c->in[1], *dx = &c->out[0];
    const int64_t lo = dx->cols * c->thread / c->n_threads, hi = dx->cols * (c->thread + 1) / c->n_threads;
    for (int64_t r = 0; r < dx->rows; r++) {
        const int64_t first = (int64_t)real_row(&c->in[2], r)[0] * dy->cols;
        for (int64_t i = lo; i < hi; i++) {
            real sum = 0;
            for (int64_t d = 0; d < dy->cols; d++)
                sum = real_fma(real_row(dy, r)[d], weight_at(w, first + d, i), sum);
            real_row(dx, r)[i] = sum;
        }
    }
}

static real logit_of(const ln_arg *x, const ln_arg *w, int64_t r, int64_t v) {
    const bool pairs = w->dtype == LN_BF16 && !w->format.bits && !w->coded;
    real sum = 0;
    for (int64_t i = 0; i < x->cols; i++) {
        const int64_t at = pairs && (i ^ 1) < x->cols ? i ^ 1 : i;
        sum = real_fma(weight_at(w, v, at), real_row(x, r)[at], sum);
    }
    return sum;
}
static int32_t target_of(const ln_arg *targets, int64_t r) {
    return ((const int32_t *)targets->data)[r * targets->cols];
}

/* One split of one row: the logits become e; their maximum and sum. Returns the logit of the target, or 0. */
static real split(const ln_arg *x, const ln_arg *w, int64_t r, int64_t from, int64_t to, int64_t target,
                  real *e, real *max, real *sum) {
    real lane[16] = {0};
    *max = -INFINITY;
    for (int64_t v = from; v < to; v++) {
        e[v - from] = logit_of(x, w, r, v);
        *max = e[v - from] <= *max ? *max : e[v - from];
    }
    const real hit = target >= from && target < to ? e[target - from] : 0;
    for (int64_t v = from; v < to; v++) {
        e[v - from] = real_exp(e[v - from] - *max);
        lane[(v - from) % 16] = lane[(v - from) % 16] + e[v - from];
    }
    *sum = real_lanes_sum(lane);
    return hit;
}
/* Adds a split to the sums of the slope. */
static void add_split(const ln_arg *w, int64_t from, int64_t to, const real *e, real a, real f, real *sums) {
    for (int64_t i = 0; i < w->cols; i++) {
        real sum = from == 0 ? 0 : sums[i] * a;
        for (int64_t v = from; v < to; v++) sum = real_fma(e[v - from] * f, weight_at(w, v, i), sum);
        sums[i] = sum;
    }
}
LN_KERNEL(ln_ref_linear_cross_entropy) {
    const ln_arg *x = &c->in[0], *w = &c->in[1];
    const int64_t V = w->rows;
    const bool slope = c->node->p.scale.factor != 0;
    real e[LN_CE_SPLIT];
    LN_MY_ROWS(c, x->rows, lo, hi);
    for (int64_t r = lo; r < hi; r++) {
        const int32_t target = target_of(&c->in[2], r);
        real M = -INFINITY, L = 0, hit = 0, *sums = slope ? real_row(&c->out[1], r) : NULL;
        for (int64_t v = 0; target >= 0 && v < V; v += LN_CE_SPLIT) {
            const int64_t end = LN_MIN(v + LN_CE_SPLIT, V);
            real m, l;
            hit += split(x, w, r, v, end, target, e, &m, &l);
            const real most = v == 0 || !(m <= M) ? m : M, a = v == 0 ? 0 : real_exp(M - most),
                       f = real_exp(m - most);
            L = v == 0 ? l : L * a + l * f;
            M = most;
            if (slope) add_split(w, v, end, e, a, f, sums);
        }
        real_row(&c->out[0], r)[0] = target < 0 ? 0 : real_log(L) + (M - hit);
        for (int64_t i = 0; slope && i < x->cols; i++)
            sums[i] = target < 0 ? 0 : real_fma(sums[i], 1 / L, -weight_at(w, target, i));
    }
}

#ifdef LN_REAL_FLOAT
static bool is_rows(const ln_value *v) {
    return v->kind == LN_KIND_TEMP && v->n_dims == 2 &&
           (v->format.kind == LN_FORMAT_F32 || v->format.kind == LN_FORMAT_BF16);
}
ln_status ln_shape_linear_back(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_value *dy = ln_in(g, n, 0), *w = ln_in(g, n, 1);
    if (!is_rows(dy) || !ln_is_matrix(w) || w->dims[0] != dy->dims[1])
        return ln_shape_fail(g, n, err,
                             "dy[R,D] in f32 or bf16 and w[D,C], dense, in whole affine groups or in coded "
                             "rows");
    ln_shape_like(out, dy->dims[0], w->dims[1]);
    return LN_OK;
}
ln_status ln_shape_experts_back(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_value *dy = ln_in(g, n, 0), *w = ln_in(g, n, 1), *ids = ln_in(g, n, 2);
    if (!is_rows(dy) || !ln_is_experts(w) || w->dims[1] != dy->dims[1] || ids->dims[0] != dy->dims[0] ||
        ids->dims[1] != 1)
        return ln_shape_fail(g, n, err, "dy[R*k,D] in f32 or bf16, w[X,D,C] and ids[R*k,1]");
    ln_shape_like(out, dy->dims[0], w->dims[2]);
    return LN_OK;
}
static bool are_scored(const ln_value *x, const ln_value *w, const ln_value *targets) {
    return is_rows(x) && ln_is_matrix(w) && w->dims[1] == x->dims[1] && targets->kind == LN_KIND_INPUT &&
           targets->dtype == LN_I32 && targets->n_dims == 2 && targets->dims[0] == x->dims[0] &&
           targets->dims[1] == 1;
}
ln_status ln_shape_linear_cross_entropy(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_value *x = ln_in(g, n, 0);
    if (!are_scored(x, ln_in(g, n, 1), ln_in(g, n, 2)))
        return ln_shape_fail(g, n, err, "x[R,C] in f32 or bf16, w[V,C] and an input targets[R,1] in int32");
    ln_shape_like(&out[0], x->dims[0], 1);
    ln_shape_like(&out[1], x->dims[0], x->dims[1]);
    return LN_OK;
}
ln_cost ln_cost_linear_back(const ln_program *p, const ln_pnode *n, const ln_bounds *live, int64_t depth) {
    return (void)depth, ln_cost_of_products(p, n, live, 1);
}
ln_cost ln_cost_linear_cross_entropy(const ln_program *p, const ln_pnode *n, const ln_bounds *live,
                                     int64_t depth) {
    return (void)depth, ln_cost_of_products(p, n, live, n->p.scale.factor != 0 ? 2 : 1);
}

ln_cost ln_cost_experts_back(const ln_program *p, const ln_pnode *n, const ln_bounds *live, int64_t depth) {
    return ln_cost_experts(p, n, live, depth);
}

/* Of an op whose weights are frozen here: LN_EUNSUPPORTED where the gradient of w is wanted. */
static ln_status only_input(const ln_graph *g, const ln_node *n, const bool *wanted, ln_error *err) {
    if (!wanted[1]) return LN_OK;
    return ln_fail(err, LN_EUNSUPPORTED,
                   "gradient of %s: op %s has none with respect to its weight; train a product by matmul",
                   g->values[n->out[0]].name, ln_ops[n->op].name);
}
ln_status ln_grad_linear_back(ln_graph *g, const ln_node *n, const ln_v *dy, const bool *wanted, ln_v *dx,
                              ln_error *err) {
    char name[64];
    LN_TRY(only_input(g, n, wanted, err));
    dx[0] = ln_g_linear(g, ln_grad_name(g, n->in[0], name), dy[0], n->in[1], -1);
    return LN_OK;
}
ln_status ln_grad_linear_cross_entropy(ln_graph *g, const ln_node *n, const ln_v *dy, const bool *wanted,
                                       ln_v *dx, ln_error *err) {
    char name[64];
    LN_TRY(only_input(g, n, wanted, err));
    if (dy[1] >= 0)
        return ln_fail(err, LN_EUNSUPPORTED, "gradient of %s: only the loss has one, not its slope",
                       g->values[n->out[1]].name);
    g->nodes[g->values[n->out[0]].def].p.scale.factor = 1; /* has the op compute the slope */
    dx[0] = ln_g_scale_rows(g, ln_grad_name(g, n->in[0], name), n->out[1], dy[0]);
    return LN_OK;
}
/* The sum over the choices of a row if x has one row for all of them. */
ln_status ln_grad_experts(ln_graph *g, const ln_node *n, const ln_v *dy, const bool *wanted, ln_v *dx,
                          ln_error *err) {
    const ln_node back = {.op = LN_OP_EXPERTS_BACK,
                          .n_in = 3,
                          .in = {dy[0], n->in[1], n->in[2]},
                          .p.experts = {.top_k = n->p.experts.top_k}};
    char name[64];
    LN_TRY(only_input(g, n, wanted, err));
    if (!wanted[0]) return LN_OK;
    const ln_v each =
        ln_g_node(g, n->p.experts.shared ? "d.choices" : ln_grad_name(g, n->in[0], name), &back, NULL);
    dx[0] = n->p.experts.shared
                ? ln_g_fold_rows(g, ln_grad_name(g, n->in[0], name), each, -1, n->p.experts.top_k)
                : each;
    return LN_OK;
}
ln_status ln_grad_experts_back(ln_graph *g, const ln_node *n, const ln_v *dy, const bool *wanted, ln_v *dx,
                               ln_error *err) {
    char name[64];
    LN_TRY(only_input(g, n, wanted, err));
    if (wanted[0])
        dx[0] = ln_g_experts(g, ln_grad_name(g, n->in[0], name), dy[0], n->in[1], n->in[2], -1,
                             n->p.experts.top_k);
    return LN_OK;
}
/* dw and db of a trainable, as matmul and sum: w is dense then. */
ln_status ln_grad_linear(ln_graph *g, const ln_node *n, const ln_v *dy, const bool *wanted, ln_v *dx,
                         ln_error *err) {
    char name[64];
    (void)err;
    if (wanted[0]) dx[0] = ln_g_linear_back(g, ln_grad_name(g, n->in[0], name), dy[0], n->in[1]);
    if (wanted[1]) dx[1] = ln_g_matmul(g, ln_grad_name(g, n->in[1], name), dy[0], n->in[0], LN_MATMUL_TN);
    if (n->n_in > 2 && wanted[2]) dx[2] = ln_g_sum(g, ln_grad_name(g, n->in[2], name), dy[0], LN_SUM_ROWS);
    return LN_OK;
}
#endif
