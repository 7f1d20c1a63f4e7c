/* rmsnorm (Zhang and Sennrich 2019): y = x / sqrt(mean(x^2) + eps) * (w + offset), in groups of C columns, C
 * being the length of w. Without a weight the last factor is 1, and C a parameter.
 *
 * A row of n * C elements is n groups, each normalised by itself (the heads of q and k). offset is 1 where
 * the checkpoint stores w - 1. Order: the sum of squares is accumulated in 16 lanes (lane l takes c = l, l +
 * 16, ...) by fma; the lanes are reduced pairwise. rmsnorm_back and rmsnorm_dw are its gradients with respect
 * to x and w. */
#include "../graph/grad.h"
#include "scalar_type.h"

/* The factor of column i of a group; w NULL: there is no weight. */
static real weight_of(const ln_arg *w, const ln_p_norm *p, int64_t i) {
    return w ? real_load(w->data, w->dtype, i) + (real)p->offset : 1;
}

LN_KERNEL(ln_ref_rmsnorm) {
    const ln_p_norm *p = &c->node->p.norm;
    const ln_arg *w = c->node->n_in > 1 ? &c->in[1] : NULL;
    const int64_t C = w ? w->cols : p->width, groups = c->in[0].cols / C;
    LN_MY_ROWS(c, c->out[0].rows, lo, hi);
    for (int64_t r = lo; r < hi; r++)
        for (int64_t g = 0; g < groups; g++) {
            const real *x = real_row(&c->in[0], r) + g * C;
            real *y = real_row(&c->out[0], r) + g * C;
            real lane[16] = {0};
            for (int64_t i = 0; i < C; i++) lane[i % 16] = real_fma(x[i], x[i], lane[i % 16]);
            real scale = 1 / real_sqrt(real_lanes_sum(lane) / (real)C + (real)p->eps);
            for (int64_t i = 0; i < C; i++) y[i] = real_stored(c, (x[i] * scale) * weight_of(w, p, i));
        }
}

/* x - mean(x): with rmsnorm, the LayerNorm of Ba et al. (2016). The sum is that of rmsnorm's lanes. */
LN_KERNEL(ln_ref_centre) {
    const int64_t C = c->in[0].cols;
    LN_MY_ROWS(c, c->out[0].rows, lo, hi);
    for (int64_t r = lo; r < hi; r++) {
        const real *x = real_row(&c->in[0], r);
        real *y = real_row(&c->out[0], r), lane[16] = {0};
        for (int64_t i = 0; i < C; i++) lane[i % 16] += x[i];
        const real mean = real_lanes_sum(lane) / (real)C;
        for (int64_t i = 0; i < C; i++) y[i] = x[i] - mean;
    }
}

/* 1 / sqrt(mean(x^2) + eps) of a group of C elements. */
static real inverse_rms(const real *x, int64_t C, float eps) {
    real lane[16] = {0};
    for (int64_t i = 0; i < C; i++) lane[i % 16] = real_fma(x[i], x[i], lane[i % 16]);
    return 1 / real_sqrt(real_lanes_sum(lane) / (real)C + (real)eps);
}
LN_KERNEL(ln_ref_rmsnorm_back) {
    const ln_p_norm *p = &c->node->p.norm;
    const ln_arg *w = c->node->n_in > 2 ? &c->in[1] : NULL, *slopes = &c->in[c->node->n_in - 1];
    const int64_t C = w ? w->cols : p->width, groups = c->in[0].cols / C;
    LN_MY_ROWS(c, c->out[0].rows, lo, hi);
    for (int64_t r = lo; r < hi; r++)
        for (int64_t g = 0; g < groups; g++) {
            const real *x = real_row(&c->in[0], r) + g * C, *dy = real_row(slopes, r) + g * C;
            real *dx = real_row(&c->out[0], r) + g * C, lane[16] = {0};
            const real scale = inverse_rms(x, C, p->eps);
            for (int64_t i = 0; i < C; i++) {
                dx[i] = dy[i] * weight_of(w, p, i);
                lane[i % 16] = real_fma(dx[i], x[i], lane[i % 16]);
            }
            const real mean = real_lanes_sum(lane) / (real)C * scale * scale;
            for (int64_t i = 0; i < C; i++) dx[i] = scale * (dx[i] - x[i] * mean);
        }
}
/* Rows in order, and in each row its groups. */
LN_KERNEL(ln_ref_rmsnorm_dw) {
    const int64_t C = c->in[1].cols, groups = c->in[0].cols / C;
    real *dw = real_row(&c->out[0], 0);
    if (c->thread) return; /* each group's root is needed for all columns */
    for (int64_t i = 0; i < C; i++) dw[i] = 0;
    for (int64_t r = 0; r < c->in[0].rows; r++)
        for (int64_t g = 0; g < groups; g++) {
            const real *x = real_row(&c->in[0], r) + g * C, *dy = real_row(&c->in[2], r) + g * C;
            const real scale = inverse_rms(x, C, c->node->p.norm.eps);
            for (int64_t i = 0; i < C; i++) dw[i] = real_fma(dy[i], x[i] * scale, dw[i]);
        }
}

#ifdef LN_REAL_FLOAT
/* Whether the columns of x are groups as wide as the weight, which is operand 1, or as the parameter. */
static bool has_groups(const ln_graph *g, const ln_node *n, bool weighted) {
    const int64_t cols = ln_in(g, n, 0)->dims[1], width = n->p.norm.width;
    if (weighted) return ln_is_vector(ln_in(g, n, 1)) && cols % ln_in(g, n, 1)->dims[0] == 0;
    return width > 0 && cols % width == 0;
}
ln_status ln_shape_rmsnorm(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_value *x = ln_in(g, n, 0);
    if (!ln_is_float(x) || x->n_dims != 2 || !has_groups(g, n, n->n_in > 1))
        return ln_shape_fail(g, n, err, "x[R,n*C] in f32 and a weight w[C] or a width C");
    ln_shape_like(out, x->dims[0], x->dims[1]);
    return LN_OK;
}
LN_COST_OF_OPERANDS(rmsnorm)
ln_status ln_shape_centre(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_value *x = ln_in(g, n, 0);
    if (!ln_is_float(x) || x->n_dims != 2) return ln_shape_fail(g, n, err, "x[R,C] in f32");
    ln_shape_like(out, x->dims[0], x->dims[1]);
    return LN_OK;
}
LN_COST_OF_OPERANDS(centre)
/* The projection onto rows of mean 0 is its own transpose. */
ln_status ln_grad_centre(ln_graph *g, const ln_node *n, const ln_v *dy, const bool *wanted, ln_v *dx,
                         ln_error *err) {
    char name[64];
    (void)wanted, (void)err;
    dx[0] = ln_g_centre(g, ln_grad_name(g, n->in[0], name), dy[0]);
    return LN_OK;
}
LN_COST_OF_OPERANDS(rmsnorm_back)
LN_COST_OF_OPERANDS(rmsnorm_dw)

static bool are_norm_operands(const ln_graph *g, const ln_node *n) {
    const ln_value *x = ln_in(g, n, 0), *dy = ln_in(g, n, n->n_in - 1);
    return ln_is_float(x) && x->n_dims == 2 && has_groups(g, n, n->n_in > 2) && ln_is_float(dy) &&
           dy->n_dims == 2 && dy->dims[0] == x->dims[0] && dy->dims[1] == x->dims[1];
}
ln_status ln_shape_rmsnorm_back(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_value *x = ln_in(g, n, 0);
    if (!are_norm_operands(g, n)) return ln_shape_fail(g, n, err, "x[R,n*C], a weight w[C] and dy[R,n*C]");
    ln_shape_like(out, x->dims[0], x->dims[1]);
    return LN_OK;
}
ln_status ln_shape_rmsnorm_dw(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    if (!are_norm_operands(g, n)) return ln_shape_fail(g, n, err, "x[R,n*C], a weight w[C] and dy[R,n*C]");
    ln_shape_like(out, 1, ln_in(g, n, 1)->dims[0]);
    return LN_OK;
}
ln_status ln_grad_rmsnorm(ln_graph *g, const ln_node *n, const ln_v *dy, const bool *wanted, ln_v *dx,
                          ln_error *err) {
    ln_node back = {.n_in = n->n_in + 1, .in = {n->in[0], n->in[1], dy[0]}, .p.norm = n->p.norm};
    char name[64];
    (void)err;
    if (n->n_in == 1) back.in[1] = dy[0];
    for (int k = 0; k < n->n_in; k++) {
        back.op = k == 0 ? LN_OP_RMSNORM_BACK : LN_OP_RMSNORM_DW;
        if (wanted[k]) dx[k] = ln_g_node(g, ln_grad_name(g, n->in[k], name), &back, NULL);
    }
    return LN_OK;
}
#endif
