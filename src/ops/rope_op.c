/* Rotary position embedding (Su et al. 2021) of the first d = 2n columns of each head, n being the number of
 * frequencies. y[i] = x[i] cos - x[i + n] sin, y[i + n] = x[i + n] cos + x[i] sin, angle = pos * freq[i], as
 * in rotate_half of Hugging Face's modeling files; interleaved: of the pairs x[2i], x[2i + 1]. Columns from
 * d on pass unchanged.
 *
 * rope_table computes cos and sin once per step for all layers that share the frequencies. As in the
 * reference implementation, the angle is the f32 product of the position and the f32 frequency (on the double
 * device too: the table is part of the specification); sine and cosine are then computed in double and
 * rounded once.
 *
 * Under dynamic NTK scaling and LongRoPE the frequencies depend on the length of the text. A row has those
 * that the reference implementation uses when it computes the row: it processes the whole prompt in one pass,
 * so the rows of the prompt have the frequencies of the prompt's length, and each later row has those of the
 * text up to and including that row. This depends on the prompt's length and the position alone, not on how
 * the prompt is cut into steps. */
#include "../graph/grad.h"
#include "scalar_type.h"

enum { MAX_FREQS = 512 };

/* Frequencies for a text of n > ntk->positions tokens, as transformers' _compute_dynamic_ntk_parameters
 * computes them: in f32 throughout. */
static void dynamic_freqs(const ln_ntk *ntk, int64_t n, int n_freqs, float *freqs) {
    const double width = 2.0 * n_freqs;
    const float grown = (float)ntk->factor * (float)n / (float)ntk->positions - (float)(ntk->factor - 1);
    const float base = (float)ntk->theta * ln_powf(grown, (float)(width / (width - 2)));
    for (int i = 0; i < n_freqs; i++) freqs[i] = 1.0f / ln_powf(base, (float)(2 * i) / (float)width);
}

/* As transformers' get_llama_4_attn_scale computes it, in f32. */
LN_KERNEL(ln_ref_pos_scale) {
    const ln_p_pos_scale *p = &c->node->p.pos_scale;
    LN_MY_ROWS(c, c->out[0].rows, lo, hi);
    for (int64_t r = lo; r < hi; r++)
        real_row(&c->out[0], r)[0] =
            1 + (real)p->factor * real_log((real)(1 + (int64_t)c->step->pos[r] / p->positions));
}

LN_KERNEL(ln_ref_rope_table) {
    const ln_p_freqs *p = &c->node->p.freqs;
    const ln_step *step = c->step;
    float grown[MAX_FREQS];
    int64_t grown_for = -1; /* length of the text whose frequencies `grown` holds */
    LN_MY_ROWS(c, c->out[0].rows, lo, hi);
    for (int64_t r = lo; r < hi; r++) {
        real *y = real_row(&c->out[0], r);
        const float *freqs = p->freqs;
        if (p->ntk.positions) {
            const int64_t here = (int64_t)step->pos[r] + 1,
                          prompt = step->n_prompt ? step->n_prompt[step->seq[r]] : 0;
            const int64_t n = LN_MAX(here, prompt);
            const bool longer = n > p->ntk.positions;
            if (longer && !p->beyond && n != grown_for) dynamic_freqs(&p->ntk, n, p->n, grown), grown_for = n;
            if (longer) freqs = p->beyond ? p->beyond : grown;
        }
        for (int i = 0; i < p->n; i++) {
            double s, co;
            float angle = (float)step->pos[r] * freqs[i];
            ln_sincos64((double)angle, &s, &co);
            y[i] = (real)co * (real)p->scale;
            y[i + p->n] = (real)s * (real)p->scale;
        }
    }
}

/* The rotation by `sign` times the angles of the table. */
static void rotate_rows(const ln_call *c, real sign) {
    const ln_p_heads *p = &c->node->p.heads;
    const int64_t E = p->head_dim, n = c->in[1].cols / 2;
    LN_MY_ROWS(c, c->out[0].rows, lo, hi);
    for (int64_t r = lo; r < hi; r++) {
        const real *t = real_row(&c->in[1], r);
        for (int64_t h = 0; h < p->n_heads; h++) {
            const real *x = real_row(&c->in[0], r) + h * E;
            real *y = real_row(&c->out[0], r) + h * E;
            for (int64_t i = 0; i < n; i++) {
                const int64_t one = p->interleaved ? 2 * i : i, two = p->interleaved ? one + 1 : i + n;
                const real a = x[one], b = x[two], co = t[i], s = sign * t[i + n];
                y[one] = real_stored(c, a * co - b * s);
                y[two] = real_stored(c, b * co + a * s);
            }
            for (int64_t i = 2 * n; i < E; i++) y[i] = real_stored(c, x[i]);
        }
    }
}

LN_KERNEL(ln_ref_rope) { rotate_rows(c, 1); }

/* The gradient of rope: the rotation by minus the angle. */
LN_KERNEL(ln_ref_rope_back) { rotate_rows(c, -1); }

#ifdef LN_REAL_FLOAT
ln_status ln_shape_pos_scale(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    if (n->p.pos_scale.positions < 1) return ln_shape_fail(g, n, err, "positions above 0");
    ln_shape_like(out, LN_DIM_T, 1);
    return LN_OK;
}
ln_status ln_shape_rope_table(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    if (n->p.freqs.n < 1 || !n->p.freqs.freqs) return ln_shape_fail(g, n, err, "at least one frequency");
    if (n->p.freqs.ntk.positions && !n->p.freqs.beyond && (n->p.freqs.n < 2 || n->p.freqs.n > MAX_FREQS))
        return ln_shape_fail(g, n, err, "from 2 to 512 frequencies that grow with the text");
    ln_shape_like(out, LN_DIM_T, 2 * (int64_t)n->p.freqs.n);
    return LN_OK;
}
ln_status ln_shape_rope(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_value *x = ln_in(g, n, 0), *t = ln_in(g, n, 1);
    int64_t E = n->p.heads.head_dim;
    if (x->n_dims != 2 || t->n_dims != 2 || x->dims[0] != LN_DIM_T || t->dims[0] != LN_DIM_T ||
        x->dims[1] != E * n->p.heads.n_heads || t->dims[1] > E)
        return ln_shape_fail(g, n, err, "x[T,n*E] and table[T,d], d at most E");
    ln_shape_like(out, x->dims[0], x->dims[1]);
    return LN_OK;
}
LN_COST_OF_OPERANDS(pos_scale)
LN_COST_OF_OPERANDS(rope_table)
LN_COST_OF_OPERANDS(rope)
LN_COST_OF_OPERANDS(rope_back)

ln_status ln_shape_rope_back(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    return ln_shape_rope(g, n, out, err);
}
/* The table is a function of positions, and has no gradient. */
static ln_status turn(ln_graph *g, const ln_node *n, ln_op op, ln_v dy, ln_v *dx) {
    const ln_node back = {.op = op, .n_in = 2, .in = {dy, n->in[1]}, .p.heads = n->p.heads};
    char name[64];
    dx[0] = ln_g_node(g, ln_grad_name(g, n->in[0], name), &back, NULL);
    return LN_OK;
}
ln_status ln_grad_rope(ln_graph *g, const ln_node *n, const ln_v *dy, const bool *wanted, ln_v *dx,
                       ln_error *err) {
    (void)err;
    return wanted[0] ? turn(g, n, LN_OP_ROPE_BACK, dy[0], dx) : LN_OK;
}
ln_status ln_grad_rope_back(ln_graph *g, const ln_node *n, const ln_v *dy, const bool *wanted, ln_v *dx,
                            ln_error *err) {
    (void)err;
    return wanted[0] ? turn(g, n, LN_OP_ROPE, dy[0], dx) : LN_OK;
}
#endif
