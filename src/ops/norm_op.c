/* rmsnorm (Zhang and Sennrich 2019): y = x / sqrt(mean(x^2) + eps) * (w + offset), in groups of C columns, C
 * being the length of w.
 *
 * A row of n * C elements is n groups, each normalised by itself (the heads of q and k). offset is 1 where
 * the checkpoint stores w - 1. Order: the sum of squares is accumulated in 16 lanes (lane l takes c = l, l +
 * 16, ...) by fma; the lanes are reduced pairwise. */
#include "scalar_type.h"

LN_KERNEL(ln_ref_rmsnorm) {
    const ln_p_norm *p = &c->node->p.norm;
    const ln_arg *w = &c->in[1];
    int64_t C = w->cols, groups = c->in[0].cols / C;
    LN_MY_ROWS(c, c->out[0].rows, lo, hi);
    for (int64_t r = lo; r < hi; r++)
        for (int64_t g = 0; g < groups; g++) {
            const real *x = real_row(&c->in[0], r) + g * C;
            real *y = real_row(&c->out[0], r) + g * C;
            real lane[16] = {0};
            for (int64_t i = 0; i < C; i++) lane[i % 16] = real_fma(x[i], x[i], lane[i % 16]);
            real scale = 1 / real_sqrt(real_lanes_sum(lane) / (real)C + (real)p->eps);
            for (int64_t i = 0; i < C; i++)
                y[i] = real_stored(c, (x[i] * scale) * (real_load(w->data, w->dtype, i) + (real)p->offset));
        }
}

#ifdef LN_REAL_FLOAT
ln_status ln_shape_rmsnorm(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_value *x = ln_in(g, n, 0), *w = ln_in(g, n, 1);
    if (!ln_is_float(x) || x->n_dims != 2 || !ln_is_vector(w) || x->dims[1] % w->dims[0])
        return ln_shape_fail(g, n, err, "x[R,n*C] in f32 and a weight w[C]");
    ln_shape_like(out, x->dims[0], x->dims[1]);
    return LN_OK;
}
LN_COST_OF_OPERANDS(rmsnorm)
#endif
