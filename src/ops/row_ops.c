/* Ops that select rows: embed gathers a row of the table for each token id (of an encoded table only that row
 * is dequantised); gather_rows selects the rows whose logits are wanted. embed_back and scatter_rows are
 * their gradients: the former adds the rows of equal ids in order. */
#include "../graph/grad.h"
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
    const int64_t cols = c->out[0].cols, row_bytes = ln_affine_row_bytes(w->code, cols),
                  groups = cols / w->code.group;
    LN_MY_ROWS(c, c->out[0].rows, lo, hi);
    for (int64_t r = lo; r < hi; r++) {
        real *y = real_row(&c->out[0], r);
        int64_t id = c->step->ids[r];
        for (int64_t i = 0; i < cols; i++) {
            real q = (real)ln_affine_code(w->codes + id * row_bytes, w->code.bits, i);
            int64_t g = id * groups + i / w->code.group;
            y[i] = real_fma(real_load(w->scales, w->dtype, g), q, real_load(w->biases, w->offset, g)) *
                   (real)c->node->p.embed.scale;
        }
    }
}

LN_KERNEL(ln_ref_embed_coded) {
    LN_MY_ROWS(c, c->out[0].rows, lo, hi);
    for (int64_t r = lo; r < hi; r++)
        for (int64_t i = 0; i < c->out[0].cols; i++)
            real_row(&c->out[0], r)[i] =
                (real)ln_coded_at(c->in[0].data, c->step->ids[r], i) * (real)c->node->p.embed.scale;
}

LN_KERNEL(ln_ref_gather_rows) {
    LN_MY_ROWS(c, c->out[0].rows, lo, hi);
    for (int64_t r = lo; r < hi; r++)
        for (int64_t i = 0; i < c->out[0].cols; i++)
            real_row(&c->out[0], r)[i] = real_stored(c, real_row(&c->in[0], c->step->out_rows[r])[i]);
}

LN_KERNEL(ln_ref_slice) {
    const ln_p_slice *p = &c->node->p.slice;
    LN_MY_ROWS(c, c->out[0].rows, lo, hi);
    for (int64_t r = lo; r < hi; r++)
        for (int64_t i = 0; i < c->out[0].cols; i++)
            real_row(&c->out[0], r)[i] = real_row(&c->in[0], r)[i / p->cols * p->every + p->at + i % p->cols];
}

LN_KERNEL(ln_ref_embed_back) {
    const ln_arg *dy = &c->in[0], *dw = &c->out[0];
    const real by = (real)c->node->p.spread.factor;
    const int64_t lo = dw->cols * c->thread / c->n_threads, hi = dw->cols * (c->thread + 1) / c->n_threads;
    for (int64_t v = 0; v < dw->rows; v++)
        for (int64_t i = lo; i < hi; i++) real_row(dw, v)[i] = 0;
    for (int64_t r = 0; r < dy->rows; r++) {
        if (c->step->ids[r] == c->node->p.spread.padding - 1) continue;
        real *to = real_row(dw, c->step->ids[r]);
        for (int64_t i = lo; i < hi; i++) to[i] = real_fma(by, real_row(dy, r)[i], to[i]);
    }
}

LN_KERNEL(ln_ref_scatter_rows) {
    const ln_arg *x = &c->in[0], *y = &c->out[0];
    const int64_t lo = y->cols * c->thread / c->n_threads, hi = y->cols * (c->thread + 1) / c->n_threads;
    for (int64_t r = 0; r < y->rows; r++)
        for (int64_t i = lo; i < hi; i++) real_row(y, r)[i] = 0;
    for (int64_t r = 0; r < x->rows; r++)
        for (int64_t i = lo; i < hi; i++) real_row(y, c->step->out_rows[r])[i] = real_row(x, r)[i];
}

LN_KERNEL(ln_ref_slice_back) {
    const ln_p_slice *p = &c->node->p.slice;
    const int64_t every = p->every ? p->every : p->cols, n = c->in[0].cols / (p->cols / every);
    LN_MY_ROWS(c, c->out[0].rows, lo, hi);
    for (int64_t r = lo; r < hi; r++) {
        const real *dy = real_row(&c->in[0], r);
        real *dx = real_row(&c->out[0], r);
        for (int64_t i = 0; i < p->cols; i++) {
            const int64_t at = i % every - p->at;
            dx[i] = at >= 0 && at < n ? dy[i / every * n + at] : 0;
        }
    }
}

#ifdef LN_REAL_FLOAT
ln_status ln_shape_embed(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_value *t = ln_in(g, n, 0);
    if (!ln_is_matrix(t))
        return ln_shape_fail(g, n, err, "a table[V,D], dense, in whole affine groups or in coded rows");
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
ln_cost ln_cost_embed(const ln_program *p, const ln_pnode *n, const ln_bounds *live, int64_t depth) {
    ln_cost c = ln_cost_of_operands(p, n, live), whole = c;
    const ln_pnode table = {.op = n->op, .n_in = 1, .in = {n->in[0]}};
    (void)depth;
    const double bytes = ln_cost_of_operands(p, &table, live).bytes,
                 read = bytes * (double)live->T / (double)ln_program_value(p, n->in[0])->dims[0];
    c.bytes = read + (whole.bytes - bytes);
    if (c.weight_bytes > 0) c.weight_bytes = read;
    return c;
}
LN_COST_OF_OPERANDS(gather_rows)
LN_COST_OF_OPERANDS(slice)
ln_status ln_shape_slice(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_value *x = ln_in(g, n, 0);
    const ln_p_slice *p = &n->p.slice;
    const int64_t every = x->n_dims != 2 ? 0 : p->every ? p->every : x->dims[1];
    if (!ln_is_float(x) || every < 1 || x->dims[1] % every || p->cols < 1 || p->at < 0 ||
        p->at > every - p->cols)
        return ln_shape_fail(g, n, err,
                             "x[R,C] in f32 and columns within C, or within a group that divides C");
    ln_shape_like(out, x->dims[0], x->dims[1] / every * p->cols);
    return LN_OK;
}
LN_COST_OF_OPERANDS(slice_back)
ln_status ln_shape_slice_back(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_value *dy = ln_in(g, n, 0);
    const ln_p_slice *p = &n->p.slice;
    const int64_t every = p->every ? p->every : p->cols, groups = every > 0 ? p->cols / every : 0;
    if (!ln_is_float(dy) || dy->n_dims != 2 || groups < 1 || p->cols % every || dy->dims[1] % groups ||
        p->at < 0 || p->at > every - dy->dims[1] / groups)
        return ln_shape_fail(g, n, err, "dy[R,n] in f32 and columns within C, or within groups of columns");
    ln_shape_like(out, dy->dims[0], p->cols);
    return LN_OK;
}
LN_COST_OF_OPERANDS(embed_back)
LN_COST_OF_OPERANDS(scatter_rows)

ln_status ln_shape_embed_back(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_value *dy = ln_in(g, n, 0);
    if (!ln_is_float(dy) || dy->n_dims != 2 || dy->dims[0] != LN_DIM_T || n->p.spread.rows < 1 ||
        n->p.spread.cols != dy->dims[1])
        return ln_shape_fail(g, n, err, "dy[T,D] in f32, for a table of D columns");
    ln_shape_like(out, n->p.spread.rows, n->p.spread.cols);
    return LN_OK;
}
ln_status ln_shape_scatter_rows(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_value *x = ln_in(g, n, 0);
    if (!ln_is_float(x) || x->n_dims != 2 || x->dims[0] != LN_DIM_N)
        return ln_shape_fail(g, n, err, "x[N,D] in f32");
    ln_shape_like(out, LN_DIM_T, x->dims[1]);
    return LN_OK;
}
ln_status ln_grad_embed(ln_graph *g, const ln_node *n, const ln_v *dy, const bool *wanted, ln_v *dx,
                        ln_error *err) {
    const ln_value *table = &g->values[n->in[0]];
    const ln_node back = {.op = LN_OP_EMBED_BACK,
                          .n_in = 1,
                          .in = {dy[0]},
                          .p.spread = {table->dims[0], table->dims[1], n->p.embed.scale, n->p.embed.padding}};
    char name[64];
    (void)wanted, (void)err;
    dx[0] = ln_g_node(g, ln_grad_name(g, n->in[0], name), &back, NULL);
    return LN_OK;
}
ln_status ln_grad_slice(ln_graph *g, const ln_node *n, const ln_v *dy, const bool *wanted, ln_v *dx,
                        ln_error *err) {
    const ln_node back = {
        .op = LN_OP_SLICE_BACK,
        .n_in = 1,
        .in = {dy[0]},
        .p.slice = {.at = n->p.slice.at, .cols = g->values[n->in[0]].dims[1], .every = n->p.slice.every}};
    char name[64];
    (void)wanted, (void)err;
    dx[0] = ln_g_node(g, ln_grad_name(g, n->in[0], name), &back, NULL);
    return LN_OK;
}
ln_status ln_grad_slice_back(ln_graph *g, const ln_node *n, const ln_v *dy, const bool *wanted, ln_v *dx,
                             ln_error *err) {
    char name[64];
    (void)wanted, (void)err;
    const ln_p_slice *p = &n->p.slice;
    const int64_t cols = g->values[n->in[0]].dims[1] / (p->every ? p->cols / p->every : 1);
    dx[0] = ln_g_slice_groups(g, ln_grad_name(g, n->in[0], name), dy[0], p->at, cols, p->every);
    return LN_OK;
}
ln_status ln_grad_gather_rows(ln_graph *g, const ln_node *n, const ln_v *dy, const bool *wanted, ln_v *dx,
                              ln_error *err) {
    const ln_node back = {.op = LN_OP_SCATTER_ROWS, .n_in = 1, .in = {dy[0]}};
    char name[64];
    (void)wanted, (void)err;
    dx[0] = ln_g_node(g, ln_grad_name(g, n->in[0], name), &back, NULL);
    return LN_OK;
}
ln_status ln_grad_scatter_rows(ln_graph *g, const ln_node *n, const ln_v *dy, const bool *wanted, ln_v *dx,
                               ln_error *err) {
    char name[64];
    (void)wanted, (void)err;
    dx[0] = ln_g_gather_rows(g, ln_grad_name(g, n->in[0], name), dy[0]);
    return LN_OK;
}
#endif
