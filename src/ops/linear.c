/* linear: y = x w^T + b, w as stored (f32, bf16 or f16, row-major [D, C]).
 *
 * The specification of its arithmetic: for each output one chain of fused multiply-adds over c = 0 .. C-1 in order, starting at
 * zero, then the bias is added. It does not depend on how many rows there are, on threads or on blocks, so decode and prefill,
 * one sequence or many, give the same bits; and it is a chain that vector lanes along D can follow exactly. */
#include "real.h"

LN_KERNEL(ln_ref_linear) {
    const ln_arg *x = &c->in[0], *w = &c->in[1], *y = &c->out[0];
    int64_t d_lo = y->cols * c->thread / c->n_threads, d_hi = y->cols * (c->thread + 1) / c->n_threads;
    for (int64_t r = 0; r < y->rows; r++) {
        const real *xr = real_row(x, r);
        real *yr = real_row(y, r);
        for (int64_t d = d_lo; d < d_hi; d++) {
            real sum = 0;
            for (int64_t i = 0; i < x->cols; i++) sum = real_fma(real_load(w->data, w->dtype, d * w->pitch + i), xr[i], sum);
            if (c->node->n_in > 2) sum = sum + real_load(c->in[2].data, c->in[2].dtype, d);
            yr[d] = sum;
        }
    }
}

#ifdef LN_REAL_FLOAT
ln_status ln_shape_linear(ln_graph *g, ln_node *n, ln_error *err) {
    const ln_value *x = ln_in(g, n, 0), *w = ln_in(g, n, 1);
    if (x->dtype != LN_F32 || x->n_dims != 2 || w->kind != LN_KIND_WEIGHT || w->n_dims != 2 || w->dims[1] != x->dims[1])
        return ln_shape_fail(g, n, err, "x[R,C] in f32 and a weight w[D,C]");
    if (n->n_in == 3) {
        const ln_value *b = ln_in(g, n, 2);
        if (b->kind != LN_KIND_WEIGHT || b->n_dims != 1 || b->dims[0] != w->dims[0]) return ln_shape_fail(g, n, err, "a bias b[D]");
    }
    ln_shape_like(g, n, x->dims[0], w->dims[0]);
    return LN_OK;
}
#endif
