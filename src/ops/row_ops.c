/* Ops that select rows: embed gathers a row of the table for each token id (of an encoded table only that row
 * is dequantised); gather_rows selects the rows whose logits are wanted. */
#include "scalar_type.h"

LN_KERNEL(ln_ref_embed_dense) {
    const ln_arg *table = &c->in[0];
    LN_MY_ROWS(c, c->out[0].rows, lo, hi);
    for (int64_t r = lo; r < hi; r++) {
        real *y = real_row(&c->out[0], r);
        for (int64_t i = 0; i < c->out[0].cols; i++)
            y[i] = real_load(table->data, table->dtype, c->step->ids[r] * table->pitch + i) *
                   (real)c->node->p.embed.scale;
    }
}

LN_KERNEL(ln_ref_embed_affine) {
    const ln_affine *w = c->in[0].data;
    const int64_t cols = c->out[0].cols, row_bytes = ln_affine_row_bytes(w->enc, cols),
                  groups = cols / w->enc.group;
    LN_MY_ROWS(c, c->out[0].rows, lo, hi);
    for (int64_t r = lo; r < hi; r++) {
        real *y = real_row(&c->out[0], r);
        int64_t id = c->step->ids[r];
        for (int64_t i = 0; i < cols; i++) {
            real q = (real)ln_affine_code(w->codes + id * row_bytes, w->enc.bits, i);
            int64_t g = id * groups + i / w->enc.group;
            y[i] = real_fma(real_load(w->scales, w->dtype, g), q, real_load(w->biases, w->dtype, g)) *
                   (real)c->node->p.embed.scale;
        }
    }
}

LN_KERNEL(ln_ref_gather_rows) {
    LN_MY_ROWS(c, c->out[0].rows, lo, hi);
    for (int64_t r = lo; r < hi; r++)
        for (int64_t i = 0; i < c->out[0].cols; i++)
            real_row(&c->out[0], r)[i] = real_stored(c, real_row(&c->in[0], c->step->out_rows[r])[i]);
}

#ifdef LN_REAL_FLOAT
ln_status ln_shape_embed(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_value *t = ln_in(g, n, 0);
    if (!ln_is_matrix(t)) return ln_shape_fail(g, n, err, "a table[V,D], dense or in whole affine groups");
    ln_shape_like(out, LN_DIM_T, t->dims[1]);
    return LN_OK;
}
ln_status ln_shape_gather_rows(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_value *x = ln_in(g, n, 0);
    if (!ln_is_float(x) || x->n_dims != 2 || x->dims[0] != LN_DIM_T)
        return ln_shape_fail(g, n, err, "x[T,D] in f32");
    ln_shape_like(out, LN_DIM_N, x->dims[1]);
    out->format = x->format;
    return LN_OK;
}
/* One row of the table is read for each row of the step. */
ln_cost ln_cost_embed(const ln_graph *g, const ln_node *n, const ln_bounds *live, int64_t depth) {
    ln_cost c = ln_cost_of_operands(g, n, live), whole = c;
    const ln_node table = {.op = n->op, .n_in = 1, .in = {n->in[0]}};
    (void)depth;
    const double bytes = ln_cost_of_operands(g, &table, live).bytes,
                 read = bytes * (double)live->T / (double)ln_in(g, n, 0)->dims[0];
    c.bytes = read + (whole.bytes - bytes);
    if (c.weight_bytes > 0) c.weight_bytes = read;
    return c;
}
LN_COST_OF_OPERANDS(gather_rows)
#endif
