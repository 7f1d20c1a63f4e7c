/* all_gather: the columns that the ranks have computed, side by side. Rows are exchanged some at a time,
 * through a buffer, because the parts of a row of y are far apart.
 *
 *     rank 0: x[R,S] ---+                      | x of rank 0 | x of rank 1 | ... |
 *     rank 1: x[R,S] ---+--> y[R,C] of each    the last part begins at column C - S: if it overlaps the
 *     ...                                      one before it, both ranks have computed the same bits
 */
#include "../base/transport.h"
#include "scalar_type.h"

enum { EXCHANGED_BYTES = 1 << 18 }; /* of a rank at a time */

/* Rows that are exchanged at a time: the same number in all ranks. */
static int64_t rows_at_once(int64_t cols) {
    return LN_MAX(1, EXCHANGED_BYTES / (cols * (int64_t)sizeof(real)));
}

size_t LN_REAL(ln_ref_gather_scratch)(const ln_program *p, const ln_pnode *n, const ln_bounds *b) {
    const ln_pvalue *x = ln_program_value(p, n->in[0]);
    const int64_t rows = LN_MIN(ln_dim(x->dims[0], b), rows_at_once(x->dims[1]));
    return (size_t)(rows * x->dims[1] * (n->p.gather.n_ranks + 1)) * sizeof(real);
}

/* Copies n rows of a rank's columns to their place in y. */
static void place_rows(const ln_arg *y, int64_t row0, int64_t n, int64_t col0, const real *from,
                       int64_t cols) {
    for (int64_t r = 0; r < n; r++)
        memcpy(real_row(y, row0 + r) + col0, from + r * cols, (size_t)cols * sizeof(real));
}

/* One thread exchanges. After a failure, which the transport keeps, y is zero. */
LN_KERNEL(ln_ref_all_gather) {
    const ln_arg *x = &c->in[0], *y = &c->out[0];
    const int n_ranks = c->node->p.gather.n_ranks;
    const int64_t S = x->cols, some = rows_at_once(S);
    real *mine = c->scratch, *all = n_ranks > 1 ? mine + LN_MIN(some, x->rows) * S : mine;
    if (c->thread) return;
    for (int64_t r = 0; r < x->rows; r += some) {
        const int64_t n = LN_MIN(some, x->rows - r);
        const size_t bytes = (size_t)(n * S) * sizeof(real);
        for (int64_t i = 0; i < n; i++) memcpy(mine + i * S, real_row(x, r + i), (size_t)S * sizeof(real));
        if (n_ranks > 1 && c->ranks->all_gather(c->ranks, mine, bytes, all) != LN_OK)
            memset(all, 0, bytes * (size_t)n_ranks);
        for (int k = 0; k < n_ranks; k++) place_rows(y, r, n, LN_MIN(k * S, y->cols - S), all + k * n * S, S);
    }
}

#ifdef LN_REAL_FLOAT
ln_status ln_shape_all_gather(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_value *x = ln_in(g, n, 0);
    const ln_p_gather *p = &n->p.gather;
    if (!ln_is_float(x) || x->n_dims != 2 || p->n_ranks < 1 || x->dims[1] > p->cols ||
        x->dims[1] < (p->cols + p->n_ranks - 1) / p->n_ranks)
        return ln_shape_fail(g, n, err, "x[R,S], whose columns of all ranks make up those of y");
    ln_shape_like(out, x->dims[0], p->cols);
    out->format = x->format;
    return LN_OK;
}
LN_COST_OF_OPERANDS(all_gather)
#endif
