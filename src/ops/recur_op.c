/* Recurrent mixers: the short causal convolution and the gated delta rule (Yang et al. 2024; DeltaNet:
 * Schlag et al. 2021), with a state in pages of chunks (recur_layout.h).
 *
 * The text is cut into chunks at absolute multiples of page_len positions. A row reads S as it was at the
 * start of its chunk and what the earlier rows of the chunk have added, in ascending order; S moves on
 * once a chunk, by all its rows. Both a prompt and a decoded row do this, so that neither the cutting of a
 * prompt nor the rest of the batch changes a bit. The order of the arithmetic is at LN_RECUR_TAPS in ops.h.
 *
 * Of the chunks that a step runs through, those without a page leave no state behind: the kernels carry it
 * on in scratch. A row that is not the first of its chunk needs the page of its chunk, the first one that
 * of the chunk before it. */
#include "recur_layout.h"
#include "scalar_type.h"

static real row_load(const void *part, ln_dtype dtype, int64_t i) {
    if (dtype == LN_F32) return ((const real *)part)[i];
    return (real)ln_bf16_f32(((const uint16_t *)part)[i]);
}
static void row_store(void *part, ln_dtype dtype, int64_t i, real x) {
    if (dtype == LN_F32) ((real *)part)[i] = x;
    else ((uint16_t *)part)[i] = ln_f32_bf16((float)x);
}
/* A number that a row adds to the state, as it is stored. */
static real row_rounded(ln_dtype dtype, real x) { return dtype == LN_BF16 ? real_round_bf16(x) : x; }

/* ---- the convolution ---- */

/* The rows of one sequence in a call of short_conv. */
typedef struct conv_rows {
    const ln_call *c;
    const ln_p_recur *p;
    int b;
    int64_t first, pos; /* row and position of its first row */
    char *before;       /* the page with the inputs before it; NULL: it is the first of the text */
    int64_t before_at;  /* position of the first row of inputs in that page */
} conv_rows;

/* The input of a channel at a position up to that of a row of the step. */
static real conv_input(const conv_rows *s, int64_t channel, int64_t pos) {
    const ln_p_recur *p = s->p;
    if (pos < 0) return 0;
    if (pos >= s->pos) return row_rounded(p->dtype, real_row(&s->c->in[1], s->first + pos - s->pos)[channel]);
    const char *inputs = s->before + ln_recur_parts_of(p, sizeof(real)).inputs;
    return row_load(inputs, p->dtype, (pos - s->before_at) * p->channels + p->at + channel);
}

static conv_rows conv_rows_of(const ln_call *c, int b) {
    const ln_p_recur *p = &c->node->p.recur;
    conv_rows s = {.c = c, .p = p, .b = b, .first = c->step->row0[b]};
    s.pos = c->step->pos[s.first];
    const int64_t chunk = s.pos / p->page_len - (s.pos % p->page_len == 0);
    if (s.pos > 0) s.before = ln_recur_page(p, c->in[0].data, c->step, b, chunk);
    s.before_at = chunk * p->page_len - (p->taps - 1);
    return s;
}

/* Stores the inputs of a row and, of the first row of a chunk, those before it. */
static void conv_store(const conv_rows *s, int64_t row, int64_t lo, int64_t hi) {
    const ln_p_recur *p = s->p;
    const int64_t pos = s->pos + row - s->first, chunk = pos / p->page_len, at = pos % p->page_len;
    char *page = ln_recur_page(p, s->c->in[0].data, s->c->step, s->b, chunk);
    if (!page) return;
    void *inputs = page + ln_recur_parts_of(p, sizeof(real)).inputs;
    for (int64_t i = at ? at + p->taps - 1 : 0; i <= at + p->taps - 1; i++)
        for (int64_t k = lo; k < hi; k++)
            row_store(inputs, p->dtype, i * p->channels + p->at + k,
                      conv_input(s, k, chunk * p->page_len - (p->taps - 1) + i));
}

LN_KERNEL(ln_ref_short_conv) {
    const ln_p_recur *p = &c->node->p.recur;
    const ln_arg *w = &c->in[2], *bias = c->node->n_in > 3 ? &c->in[3] : NULL;
    LN_MY_ROWS(c, c->in[1].cols, lo, hi);
    for (int b = 0; b < c->step->n_seqs; b++) {
        const conv_rows s = conv_rows_of(c, b);
        for (int64_t r = s.first; r < c->step->row0[b + 1]; r++) {
            for (int64_t k = lo; k < hi; k++) {
                real y = 0;
                for (int i = 0; i < p->taps; i++)
                    y = real_fma(real_load(w->data, (ln_dtype)w->dtype, k * p->taps + i),
                                 conv_input(&s, k, s.pos + r - s.first - (p->taps - 1) + i), y);
                if (bias) y = y + real_load(bias->data, (ln_dtype)bias->dtype, k);
                real_row(&c->out[1], r)[k] = p->silu ? real_silu(y) : y;
            }
            conv_store(&s, r, lo, hi);
        }
    }
}

/* ---- the delta rule ---- */

static real softplus(real x) {
    const double e = (double)real_exp(x > 0 ? -x : x);
    return (x > 0 ? x : 0) + (real)ln_log64(1 + e);
}

LN_KERNEL(ln_ref_delta_gates) {
    const int64_t heads = c->in[0].cols;
    const ln_arg *a_log = &c->in[2], *dt = &c->in[3];
    LN_MY_ROWS(c, c->out[0].rows, lo, hi);
    for (int64_t r = lo; r < hi; r++)
        for (int64_t h = 0; h < heads; h++) {
            const real a = real_row(&c->in[0], r)[h] + real_load(dt->data, (ln_dtype)dt->dtype, h),
                       b = real_row(&c->in[1], r)[h];
            real *y = real_row(&c->out[0], r);
            y[h] = -real_exp(real_load(a_log->data, (ln_dtype)a_log->dtype, h)) * softplus(a);
            y[heads + h] = (real)c->node->p.scale.factor / (1 + real_exp(-b));
        }
}

/* One key head of one sequence: the state at the start of the chunk, and its rows so far. G value heads. */
typedef struct delta_head {
    const ln_p_recur *p;
    int64_t head, group; /* the key head, and G */
    real *s;             /* [G, E, Ev] */
    real *keys, *values; /* [page_len, E], [G, page_len, Ev] */
    real *decays;        /* [G, page_len] */
    real *q, *w;         /* [E], [page_len]: of one row */
} delta_head;

static int64_t delta_numbers(const ln_p_recur *p) {
    const int64_t group = p->n_v_heads / p->n_k_heads, len = p->page_len;
    return group * p->v_dim * (p->k_dim + len) + len * p->k_dim + group * len + p->k_dim + len;
}
size_t LN_REAL(ln_ref_delta_scratch)(const ln_program *p, const ln_pnode *n, const ln_bounds *b) {
    (void)p, (void)b;
    return (size_t)delta_numbers(&n->p.recur) * sizeof(real);
}

static delta_head delta_head_of(const ln_call *c, int64_t head) {
    const ln_p_recur *p = &c->node->p.recur;
    const int64_t group = p->n_v_heads / p->n_k_heads, len = p->page_len;
    delta_head d = {.p = p, .head = head, .group = group, .s = c->scratch};
    d.values = d.s + group * p->k_dim * p->v_dim;
    d.keys = d.values + group * len * p->v_dim;
    d.decays = d.keys + len * p->k_dim;
    d.q = d.decays + group * len;
    d.w = d.q + p->k_dim;
    return d;
}

/* Reads S and the first n rows of a chunk from its page. */
static void delta_load(const delta_head *d, const char *page, int64_t n) {
    const ln_p_recur *p = d->p;
    const ln_recur_parts at = ln_recur_parts_of(p, sizeof(real));
    const int64_t len = p->page_len, h0 = d->head * d->group, matrix = (int64_t)p->k_dim * p->v_dim;
    memcpy(d->s, (const real *)(const void *)(page + at.s) + h0 * matrix,
           (size_t)(d->group * matrix) * sizeof(real));
    memcpy(d->decays, (const real *)(const void *)(page + at.decays) + h0 * len,
           (size_t)(d->group * len) * sizeof(real));
    for (int64_t j = 0; j < n; j++) {
        for (int64_t i = 0; i < p->k_dim; i++)
            d->keys[j * p->k_dim + i] =
                row_load(page + at.keys, p->dtype, (d->head * p->k_dim + i) * len + j);
        for (int64_t h = 0; h < d->group; h++)
            for (int64_t e = 0; e < p->v_dim; e++)
                d->values[(h * len + j) * p->v_dim + e] =
                    row_load(page + at.values, p->dtype, ((h0 + h) * len + j) * p->v_dim + e);
    }
}

/* Writes rows from .. n - 1 of a chunk to its page and, if the first is among them, S. */
static void delta_store(const delta_head *d, char *page, int64_t from, int64_t n) {
    const ln_p_recur *p = d->p;
    const ln_recur_parts at = ln_recur_parts_of(p, sizeof(real));
    const int64_t len = p->page_len, h0 = d->head * d->group, matrix = (int64_t)p->k_dim * p->v_dim;
    if (from == 0)
        memcpy((real *)(void *)(page + at.s) + h0 * matrix, d->s, (size_t)(d->group * matrix) * sizeof(real));
    for (int64_t j = from; j < n; j++) {
        for (int64_t i = 0; i < p->k_dim; i++)
            row_store(page + at.keys, p->dtype, (d->head * p->k_dim + i) * len + j,
                      d->keys[j * p->k_dim + i]);
        for (int64_t h = 0; h < d->group; h++) {
            ((real *)(void *)(page + at.decays))[(h0 + h) * len + j] = d->decays[h * len + j];
            for (int64_t e = 0; e < p->v_dim; e++)
                row_store(page + at.values, p->dtype, ((h0 + h) * len + j) * p->v_dim + e,
                          d->values[(h * len + j) * p->v_dim + e]);
        }
    }
}

/* S at the start of the next chunk, from all rows of this one. */
static void delta_advance(const delta_head *d) {
    const ln_p_recur *p = d->p;
    const int64_t len = p->page_len;
    for (int64_t h = 0; h < d->group; h++) {
        const real *g = d->decays + h * len, decay = real_exp(g[len - 1]);
        real *s = d->s + h * p->k_dim * p->v_dim, *u = d->values + h * len * p->v_dim;
        for (int64_t j = 0; j < len; j++) {
            const real e = real_exp(g[len - 1] - g[j]);
            for (int64_t i = 0; i < p->v_dim; i++) u[j * p->v_dim + i] = e * u[j * p->v_dim + i];
        }
        for (int64_t i = 0; i < p->k_dim; i++)
            for (int64_t e = 0; e < p->v_dim; e++) {
                real x = decay * s[i * p->v_dim + e];
                for (int64_t j = 0; j < len; j++)
                    x = real_fma(d->keys[j * p->k_dim + i], u[j * p->v_dim + e], x);
                s[i * p->v_dim + e] = x;
            }
    }
}

/* x[E] divided by its length, then times a factor. */
static void delta_unit(const real *x, int64_t n, real by, real *y) {
    real lane[16] = {0};
    for (int64_t i = 0; i < n; i++) lane[i % 16] = real_fma(x[i], x[i], lane[i % 16]);
    const real r = 1 / real_sqrt(real_lanes_sum(lane) + (real)LN_RECUR_EPS);
    for (int64_t i = 0; i < n; i++) y[i] = by == 1 ? x[i] * r : x[i] * r * by;
}

/* w[j] = exp(g[t] - g[j]) (k_j x) for j < n. */
static void delta_weights(const delta_head *d, const real *g, int64_t t, const real *x, int64_t n) {
    for (int64_t j = 0; j < n; j++) {
        real sum = 0;
        for (int64_t i = 0; i < d->p->k_dim; i++) sum = real_fma(d->keys[j * d->p->k_dim + i], x[i], sum);
        d->w[j] = real_exp(g[t] - g[j]) * sum;
    }
}
/* sum over i of S[i][e] x[i]. */
static real delta_column(const delta_head *d, const real *s, int64_t e, const real *x) {
    real sum = 0;
    for (int64_t i = 0; i < d->p->k_dim; i++) sum = real_fma(s[i * d->p->v_dim + e], x[i], sum);
    return sum;
}

/* Row t of the chunk in one value head h of the group: adds its value, and y[Ev]. */
static void delta_row(const delta_head *d, int64_t h, int64_t t, real log_decay, real beta, const real *v,
                      real *y) {
    const ln_p_recur *p = d->p;
    const real *s = d->s + h * p->k_dim * p->v_dim, *k = d->keys + t * p->k_dim;
    real *g = d->decays + h * p->page_len, *u = d->values + h * p->page_len * p->v_dim;
    g[t] = t ? g[t - 1] + log_decay : log_decay;
    const real decay = real_exp(g[t]);
    delta_weights(d, g, t, k, t);
    for (int64_t e = 0; e < p->v_dim; e++) {
        real x = real_fma(-decay, delta_column(d, s, e, k), v[e]);
        for (int64_t j = 0; j < t; j++) x = real_fma(-d->w[j], u[j * p->v_dim + e], x);
        u[t * p->v_dim + e] = row_rounded(p->dtype, beta * x);
    }
    delta_weights(d, g, t, d->q, t + 1);
    for (int64_t e = 0; e < p->v_dim; e++) {
        real x = decay * delta_column(d, s, e, d->q);
        for (int64_t j = 0; j <= t; j++) x = real_fma(d->w[j], u[j * p->v_dim + e], x);
        y[e] = x;
    }
}

/* The q, k and v of a row: parts of one operand, or operands of their own. */
static const real *delta_operand(const ln_call *c, int which, int64_t row) {
    const ln_p_recur *p = &c->node->p.recur;
    if (c->node->n_in > 3) return real_row(&c->in[2 + which], row);
    return real_row(&c->in[2], row) + which * (int64_t)p->n_k_heads * p->k_dim;
}

static void delta_rows(const ln_call *c, const delta_head *d, int64_t r, int64_t t) {
    const ln_p_recur *p = d->p;
    const real by = (real)(float)(1 / sqrt((double)p->k_dim)), *gates = real_row(&c->in[1], r);
    real *k = d->keys + t * p->k_dim;
    delta_unit(delta_operand(c, 0, r) + d->head * p->k_dim, p->k_dim, by, d->q);
    delta_unit(delta_operand(c, 1, r) + d->head * p->k_dim, p->k_dim, 1, k);
    for (int64_t i = 0; i < p->k_dim; i++) k[i] = row_rounded(p->dtype, k[i]);
    for (int64_t h = 0; h < d->group; h++) {
        const int64_t head = d->head * d->group + h;
        delta_row(d, h, t, gates[head], gates[p->n_v_heads + head], delta_operand(c, 2, r) + head * p->v_dim,
                  real_row(&c->out[1], r) + head * p->v_dim);
    }
}

/* One key head of sequence b. */
static void delta_sequence(const ln_call *c, int b, int64_t head) {
    const ln_p_recur *p = &c->node->p.recur;
    const delta_head d = delta_head_of(c, head);
    const int64_t len = p->page_len, end = c->step->row0[b + 1];
    int64_t r = c->step->row0[b], pos = c->step->pos[r], at = pos % len;
    if (pos == 0) memset(d.s, 0, (size_t)(d.group * p->k_dim * p->v_dim) * sizeof(real));
    else delta_load(&d, ln_recur_page(p, c->in[0].data, c->step, b, (pos - 1) / len), at ? at : len);
    if (pos > 0 && at == 0) delta_advance(&d);
    while (r < end) {
        const int64_t n = LN_MIN(len - at, end - r);
        char *page = ln_recur_page(p, c->in[0].data, c->step, b, pos / len);
        for (int64_t i = 0; i < n; i++) delta_rows(c, &d, r + i, at + i);
        if (page) delta_store(&d, page, at, at + n);
        r += n, pos += n, at = 0;
        if (r < end) delta_advance(&d);
    }
}

LN_KERNEL(ln_ref_gated_delta) {
    const int64_t heads = c->node->p.recur.n_k_heads;
    LN_MY_ROWS(c, heads * c->step->n_seqs, lo, hi);
    for (int64_t i = lo; i < hi; i++) delta_sequence(c, (int)(i / heads), i % heads);
}

#ifdef LN_REAL_FLOAT
static bool is_place(const ln_value *state, const ln_p_recur *p) {
    return state->kind == LN_KIND_STATE && p->page_len > 0 && p->taps > 0 && p->taps <= p->page_len &&
           p->channels > 0;
}

ln_status ln_shape_short_conv(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_value *x = ln_in(g, n, 1), *w = ln_in(g, n, 2);
    const ln_p_recur *p = &n->p.recur;
    if (!is_place(ln_in(g, n, 0), p) || x->n_dims != 2 || x->dims[0] != LN_DIM_T || !ln_is_float(x) ||
        p->at < 0 || p->at + x->dims[1] > p->channels || !ln_is_vector(w) ||
        w->dims[0] != x->dims[1] * p->taps ||
        (n->n_in > 3 && (!ln_is_vector(ln_in(g, n, 3)) || ln_in(g, n, 3)->dims[0] != x->dims[1])))
        return ln_shape_fail(g, n, err, "a recurrent state, x[T,C], w[C*k] and a bias[C] or none");
    ln_shape_version(&out[0], ln_in(g, n, 0));
    ln_shape_like(&out[1], LN_DIM_T, x->dims[1]);
    return LN_OK;
}

ln_status ln_shape_delta_gates(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_value *a = ln_in(g, n, 0), *b = ln_in(g, n, 1);
    const bool same =
        a->n_dims == 2 && b->n_dims == 2 && a->dims[0] == b->dims[0] && a->dims[1] == b->dims[1];
    if (!same || !ln_is_float(a) || !ln_is_float(b) || !ln_is_vector(ln_in(g, n, 2)) ||
        !ln_is_vector(ln_in(g, n, 3)) || ln_in(g, n, 2)->dims[0] != a->dims[1] ||
        ln_in(g, n, 3)->dims[0] != a->dims[1])
        return ln_shape_fail(g, n, err, "a[R,H], b[R,H], A_log[H], dt_bias[H]");
    ln_shape_like(out, a->dims[0], 2 * a->dims[1]);
    return LN_OK;
}

static bool is_rows(const ln_value *v, int64_t cols) {
    return ln_is_float(v) && v->n_dims == 2 && v->dims[0] == LN_DIM_T && v->dims[1] == cols;
}
ln_status ln_shape_gated_delta(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_p_recur *p = &n->p.recur;
    const int64_t keys = (int64_t)p->n_k_heads * p->k_dim, values = (int64_t)p->n_v_heads * p->v_dim;
    bool ok = is_place(ln_in(g, n, 0), p) && p->n_k_heads > 0 && p->n_v_heads > 0 &&
              p->n_v_heads % p->n_k_heads == 0 && p->k_dim > 0 && p->v_dim > 0 && n->n_in != 4;
    ok = ok && is_rows(ln_in(g, n, 1), 2 * (int64_t)p->n_v_heads);
    if (n->n_in == 3) ok = ok && is_rows(ln_in(g, n, 2), 2 * keys + values);
    if (n->n_in == 5)
        ok = ok && is_rows(ln_in(g, n, 2), keys) && is_rows(ln_in(g, n, 3), keys) &&
             is_rows(ln_in(g, n, 4), values);
    if (!ok)
        return ln_shape_fail(g, n, err,
                             "a recurrent state, gates[T,2H], q[T,K*E] k[T,K*E] v[T,H*Ev] in one operand or "
                             "three, H a multiple of K");
    ln_shape_version(&out[0], ln_in(g, n, 0));
    ln_shape_like(&out[1], LN_DIM_T, values);
    return LN_OK;
}

LN_COST_OF_OPERANDS(delta_gates)
/* The inputs of the last taps - 1 rows are read, those of all rows are written. */
ln_cost ln_cost_short_conv(const ln_program *p, const ln_pnode *n, const ln_bounds *live, int64_t depth) {
    const ln_p_recur *r = &n->p.recur;
    ln_cost c = ln_cost_of_operands(p, n, live);
    const double cols = (double)ln_program_value(p, n->in[1])->dims[1], row = cols * ln_dtype_bytes(r->dtype);
    c.flops = 2.0 * r->taps * cols * (double)live->T;
    c.kv_bytes = depth > 0 ? row * (r->taps - 1) * (double)live->B : 0;
    c.bytes += c.kv_bytes + row * (double)live->T;
    return c;
}
/* 8 E Ev operations for each head and row: two products with S, one for the next S, and about one with the
 * rows of the chunk. S and half a chunk of rows are read once for each sequence. */
ln_cost ln_cost_gated_delta(const ln_program *p, const ln_pnode *n, const ln_bounds *live, int64_t depth) {
    const ln_p_recur *r = &n->p.recur;
    ln_cost c = ln_cost_of_operands(p, n, live);
    const double s = (double)r->n_v_heads * r->k_dim * r->v_dim, element = ln_dtype_bytes(r->dtype),
                 row = element * ((double)r->n_k_heads * r->k_dim + (double)r->n_v_heads * r->v_dim);
    c.flops = 8.0 * s * (double)live->T;
    c.kv_bytes = depth > 0 ? (4 * s + row * r->page_len / 2) * (double)live->B : 0;
    c.bytes += c.kv_bytes + row * (double)live->T + 4 * s * (double)live->T / r->page_len;
    return c;
}
#endif
