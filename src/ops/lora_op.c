/* Low-rank adapters (Hu et al. 2021): y = x W^T + B (s A x), with A, B and s of the adapter that each row of
 * the step names.
 *
 * lora_down computes t = s (A x), lora_up adds B t, a bias and a multiple of each output where the adapter
 * has them (the gains of DoRA, less 1), to the output of the product. A row without an adapter, or whose
 * adapter leaves the matrix alone, has t = 0 and keeps the bits of y. ln_p_lora (graph/program.h) describes
 * the pool. The order of a row's sums depends on nothing but its adapter, and of experts on its expert:
 *
 *     d[j] = sum of x[c] * A[j][c] by fma in 16 lanes (lane = c mod 16, ascending), reduced pairwise
 *     t[j] = d[j] * s[j]
 *     y[d] = y[d] + (((chain of fma over j = 0 .. rank-1 of t[j] * B[j][d], from 0) + bias[d]) fma gain[d]
 * y[d])
 *
 * Without a bias and gains the inner sum is the chain alone. */
#include "lora_slot.h"
#include "scalar_type.h"

/* The expert of a row; ids: the operand that has them. */
static int64_t expert_of(const ln_call *c, int ids, int64_t r) {
    return c->node->p.lora.n_experts ? (int64_t)real_row(&c->in[ids], r)[0] : 0;
}

LN_KERNEL(ln_ref_lora_down) {
    const ln_p_lora *p = &c->node->p.lora;
    LN_MY_ROWS(c, c->out[0].rows, lo, hi);
    for (int64_t r = lo; r < hi; r++) {
        const ln_lora_slot s = ln_lora_slot_of(c, 1, r, expert_of(c, 2, r));
        const real *x = real_row(&c->in[0], ln_lora_row(p, r));
        real *t = real_row(&c->out[0], r);
        for (int64_t j = 0; j < p->max_rank; j++) {
            real lane[16] = {0};
            for (int64_t i = 0; j < s.rank && i < p->n_in; i++)
                lane[i % 16] = real_fma(x[i], real_load(s.a, p->dtype, j * p->n_in + i), lane[i % 16]);
            t[j] = j < s.rank ? real_lanes_sum(lane) * (real)s.scale[j] : 0;
        }
    }
}

LN_KERNEL(ln_ref_lora_up) {
    const ln_p_lora *p = &c->node->p.lora;
    LN_MY_ROWS(c, c->out[0].rows, lo, hi);
    for (int64_t r = lo; r < hi; r++) {
        const ln_lora_slot s = ln_lora_slot_of(c, 2, r, expert_of(c, 3, r));
        const real *x = real_row(&c->in[0], r), *t = real_row(&c->in[1], r);
        real *y = real_row(&c->out[0], r);
        for (int64_t d = 0; d < p->n_out; d++) {
            real sum = 0;
            for (int64_t j = 0; j < s.rank; j++)
                sum = real_fma(t[j], real_load(s.b, p->dtype, j * p->n_out + d), sum);
            if (s.bias) sum = sum + (real)s.bias[d];
            if (s.gain) sum = real_fma((real)s.gain[d], x[d], sum);
            y[d] = s.rank > 0 || s.bias || s.gain ? x[d] + sum : x[d];
        }
    }
}

#ifdef LN_REAL_FLOAT
static bool is_pool(const ln_value *v, const ln_p_lora *p) {
    return v->kind == LN_KIND_STATE && p->max_rank > 0 && p->n_slots > 0 && p->at >= 0 &&
           p->at + ln_lora_bytes_of(p) <= p->slot_bytes && (p->dtype == LN_F32 || p->dtype == LN_BF16);
}
static bool is_rows(const ln_value *v, int64_t cols) {
    return ln_is_float(v) && v->n_dims == 2 && v->dims[1] == cols;
}
/* Whether ids are those of `rows` choices of experts, or absent if there is one matrix. */
static bool are_ids(const ln_graph *g, const ln_node *n, int at, int64_t rows) {
    if (!n->p.lora.n_experts) return n->n_in == at;
    const ln_value *ids = n->n_in > at ? ln_in(g, n, at) : NULL;
    return ids && ids->kind == LN_KIND_TEMP && ids->dims[0] == rows && ids->dims[1] == 1;
}
ln_status ln_shape_lora_down(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_p_lora *p = &n->p.lora;
    const ln_value *x = ln_in(g, n, 0);
    const int64_t rows =
        p->n_experts && p->experts.shared ? ln_dim_times(x->dims[0], p->experts.top_k) : x->dims[0];
    if (!is_rows(x, p->n_in) || !is_pool(ln_in(g, n, 1), p) || !are_ids(g, n, 2, rows))
        return ln_shape_fail(g, n, err,
                             "x[R,C] in f32, a pool of adapters for C columns and ids[R*k,1] of experts");
    ln_shape_like(out, rows, p->max_rank);
    return LN_OK;
}
ln_status ln_shape_lora_up(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_p_lora *p = &n->p.lora;
    const ln_value *y = ln_in(g, n, 0), *t = ln_in(g, n, 1);
    if (!is_rows(y, p->n_out) || !is_rows(t, p->max_rank) || t->dims[0] != y->dims[0] ||
        !is_pool(ln_in(g, n, 2), p) || !are_ids(g, n, 3, y->dims[0]))
        return ln_shape_fail(g, n, err,
                             "y[R,D], t[R,M] in f32, a pool of adapters for D outputs and ids[R,1] of "
                             "experts");
    ln_shape_like(out, y->dims[0], y->dims[1]);
    return LN_OK;
}
/* As if every row had an adapter of the largest rank, and as many adapters as there are slots or rows. */
static ln_cost lora_cost(const ln_program *p, const ln_pnode *n, const ln_bounds *live, int64_t width) {
    const ln_p_lora *l = &n->p.lora;
    const int64_t rows = ln_dim(ln_program_value(p, n->out[0])->dims[0], live),
                  used = LN_MIN(rows, (int64_t)l->n_slots * LN_MAX(1, l->n_experts));
    ln_cost c = ln_cost_of_operands(p, n, live);
    const double pool = (double)used * l->max_rank * (double)width * ln_dtype_bytes(l->dtype);
    c.flops = 2.0 * (double)rows * l->max_rank * (double)width;
    c.bytes += pool;
    c.weight_bytes += pool;
    return c;
}
ln_cost ln_cost_lora_down(const ln_program *p, const ln_pnode *n, const ln_bounds *live, int64_t depth) {
    return (void)depth, lora_cost(p, n, live, n->p.lora.n_in);
}
ln_cost ln_cost_lora_up(const ln_program *p, const ln_pnode *n, const ln_bounds *live, int64_t depth) {
    return (void)depth, lora_cost(p, n, live, n->p.lora.n_out);
}
#endif
