/* softmax and the negative log-likelihood of rows of logits, with their gradients; dropout.
 *
 * The sum of exponentials of a row is in 16 lanes, as is the sum of y dy. nll is log(sum exp(x - max)) + (max
 * - x[target]), so that a small loss does not lose its digits to a large logit. dropout draws from Philox
 * with the key `seed` and the counter (sample, position, site and four columns), so that the mask of an
 * element does not depend on packing, threads or recomputation. */
#include "../graph/grad.h"
#include "scalar_type.h"

/* The largest element of a row, NaN if one is. */
static real row_max(const real *x, int64_t n) {
    real most = -INFINITY;
    for (int64_t i = 0; i < n; i++) most = x[i] <= most ? most : x[i];
    return most;
}
static real exp_sum(const real *x, int64_t n, real most) {
    real lane[16] = {0};
    for (int64_t i = 0; i < n; i++) lane[i % 16] = lane[i % 16] + real_exp(x[i] - most);
    return real_lanes_sum(lane);
}

LN_KERNEL(ln_ref_softmax) {
    const int64_t n = c->out[0].cols;
    LN_MY_ROWS(c, c->out[0].rows, lo, hi);
    for (int64_t r = lo; r < hi; r++) {
        const real *x = real_row(&c->in[0], r), most = row_max(x, n), sum = exp_sum(x, n, most);
        real *y = real_row(&c->out[0], r);
        for (int64_t i = 0; i < n; i++) y[i] = real_exp(x[i] - most) / sum;
    }
}
LN_KERNEL(ln_ref_softmax_back) {
    const int64_t n = c->out[0].cols;
    LN_MY_ROWS(c, c->out[0].rows, lo, hi);
    for (int64_t r = lo; r < hi; r++) {
        const real *y = real_row(&c->in[0], r), *dy = real_row(&c->in[1], r);
        real lane[16] = {0};
        for (int64_t i = 0; i < n; i++) lane[i % 16] = real_fma(y[i], dy[i], lane[i % 16]);
        const real sum = real_lanes_sum(lane);
        for (int64_t i = 0; i < n; i++) real_row(&c->out[0], r)[i] = y[i] * (dy[i] - sum);
    }
}

static int32_t target_of(const ln_arg *targets, int64_t r) {
    return ((const int32_t *)targets->data)[r * targets->cols];
}
LN_KERNEL(ln_ref_nll) {
    const int64_t n = c->in[0].cols;
    LN_MY_ROWS(c, c->out[0].rows, lo, hi);
    for (int64_t r = lo; r < hi; r++) {
        const real *x = real_row(&c->in[0], r), most = row_max(x, n);
        const int32_t target = target_of(&c->in[1], r);
        real_row(&c->out[0], r)[0] = target < 0 ? 0 : real_log(exp_sum(x, n, most)) + (most - x[target]);
    }
}
LN_KERNEL(ln_ref_nll_back) {
    const int64_t n = c->in[0].cols;
    LN_MY_ROWS(c, c->out[0].rows, lo, hi);
    for (int64_t r = lo; r < hi; r++) {
        const real *x = real_row(&c->in[0], r), most = row_max(x, n), sum = exp_sum(x, n, most),
                   dy = real_row(&c->in[2], r)[0];
        const int32_t target = target_of(&c->in[1], r);
        for (int64_t i = 0; i < n; i++)
            real_row(&c->out[0], r)[i] =
                target < 0 ? 0 : dy * (real_exp(x[i] - most) / sum - (real)(i == target));
    }
}

LN_KERNEL(ln_ref_dropout) {
    const ln_p_dropout *p = &c->node->p.dropout;
    const ln_arg *x = &c->in[0], *y = &c->out[0];
    const int32_t *samples = c->in[1].data;
    const uint32_t key[2] = {(uint32_t)p->seed, (uint32_t)(p->seed >> 32)},
                   least = (uint32_t)((double)p->p * 0x1p32);
    const real by = (real)(1 / (1 - (double)p->p));
    LN_MY_ROWS(c, y->rows, lo, hi);
    for (int64_t r = lo; r < hi; r++) {
        const int64_t t = p->of_outputs ? c->step->out_rows[r] : r;
        const int32_t *sample = samples + 2 * c->step->seq[t];
        uint32_t at[4] = {(uint32_t)sample[0], (uint32_t)sample[1], (uint32_t)c->step->pos[t], 0}, draw[4];
        for (int64_t i = 0; i < y->cols; i++) {
            at[3] = p->site << 16 | (uint32_t)(i / 4);
            if (i % 4 == 0) ln_philox(at, key, draw);
            real_row(y, r)[i] = draw[i % 4] >= least ? real_row(x, r)[i] * by : 0;
        }
    }
}

#ifdef LN_REAL_FLOAT
static bool is_rows(const ln_value *v) {
    return v->kind == LN_KIND_TEMP && v->n_dims == 2 && v->format.kind == LN_FORMAT_F32;
}
static bool same_shape(const ln_value *a, const ln_value *b) {
    return a->dims[0] == b->dims[0] && a->dims[1] == b->dims[1];
}
static bool are_targets(const ln_value *t, const ln_value *x) {
    return t->kind == LN_KIND_INPUT && t->dtype == LN_I32 && t->n_dims == 2 && t->dims[0] == x->dims[0] &&
           t->dims[1] == 1;
}

ln_status ln_shape_softmax(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_value *x = ln_in(g, n, 0);
    if (!is_rows(x)) return ln_shape_fail(g, n, err, "x[R,C] in f32");
    ln_shape_like(out, x->dims[0], x->dims[1]);
    return LN_OK;
}
ln_status ln_shape_softmax_back(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_value *y = ln_in(g, n, 0), *dy = ln_in(g, n, 1);
    if (!is_rows(y) || !is_rows(dy) || !same_shape(y, dy))
        return ln_shape_fail(g, n, err, "y and dy of one shape in f32");
    ln_shape_like(out, y->dims[0], y->dims[1]);
    return LN_OK;
}
ln_status ln_shape_nll(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_value *x = ln_in(g, n, 0);
    if (!is_rows(x) || !are_targets(ln_in(g, n, 1), x))
        return ln_shape_fail(g, n, err, "x[R,C] in f32 and an input targets[R,1] in int32");
    ln_shape_like(out, x->dims[0], 1);
    return LN_OK;
}
ln_status ln_shape_nll_back(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_value *x = ln_in(g, n, 0), *dy = ln_in(g, n, 2);
    if (!is_rows(x) || !is_rows(dy) || !are_targets(ln_in(g, n, 1), x) || dy->dims[0] != x->dims[0] ||
        dy->dims[1] != 1)
        return ln_shape_fail(g, n, err, "x[R,C] in f32, an input targets[R,1] in int32 and dy[R,1]");
    ln_shape_like(out, x->dims[0], x->dims[1]);
    return LN_OK;
}
ln_status ln_shape_dropout(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_value *x = ln_in(g, n, 0), *s = ln_in(g, n, 1);
    const ln_p_dropout *p = &n->p.dropout;
    if (!is_rows(x) || x->dims[0] != (p->of_outputs ? LN_DIM_N : LN_DIM_T) || s->kind != LN_KIND_INPUT ||
        s->dtype != LN_I32 || s->n_dims != 2 || s->dims[0] != LN_DIM_B || s->dims[1] != 2 ||
        !(p->p >= 0 && p->p < 1) || x->dims[1] > 1 << 18 || p->site >> 16)
        return ln_shape_fail(g, n, err, "x[T,C] or [N,C] in f32 and an input samples[B,2] in int32");
    ln_shape_like(out, x->dims[0], x->dims[1]);
    return LN_OK;
}
LN_COST_OF_OPERANDS(softmax)
LN_COST_OF_OPERANDS(softmax_back)
LN_COST_OF_OPERANDS(nll)
LN_COST_OF_OPERANDS(nll_back)
LN_COST_OF_OPERANDS(dropout)

ln_status ln_grad_softmax(ln_graph *g, const ln_node *n, const ln_v *dy, const bool *wanted, ln_v *dx,
                          ln_error *err) {
    char name[64];
    (void)wanted, (void)err;
    dx[0] = ln_g_softmax_back(g, ln_grad_name(g, n->in[0], name), n->out[0], dy[0]);
    return LN_OK;
}
ln_status ln_grad_nll(ln_graph *g, const ln_node *n, const ln_v *dy, const bool *wanted, ln_v *dx,
                      ln_error *err) {
    char name[64];
    (void)wanted, (void)err;
    dx[0] = ln_g_nll_back(g, ln_grad_name(g, n->in[0], name), n->in[0], n->in[1], dy[0]);
    return LN_OK;
}
ln_status ln_grad_dropout(ln_graph *g, const ln_node *n, const ln_v *dy, const bool *wanted, ln_v *dx,
                          ln_error *err) {
    char name[64];
    (void)wanted, (void)err;
    dx[0] = ln_g_dropout(g, ln_grad_name(g, n->in[0], name), dy[0], n->in[1], &n->p.dropout);
    return LN_OK;
}
#endif
