/* KV cache writes and paged attention (Vaswani et al. 2017; grouped-query attention: Ainslie et al. 2023;
 * paged KV cache: Kwon et al. 2023).
 *
 * kv_write stores this step's keys and values into the pages (rounded to bf16 when the pages are bf16, to
 * blocks of 8 bits when they are such: quant/block_int8.h);
 * attn_paged then reads all keys and values from the pages, those of this step's rows too. Positions alone
 * decide which keys a row attends to: pos - window < j <= pos, or both ways pos - window < j < pos + window.
 * The order of the arithmetic is defined at LN_ATTN_SPLIT in ops.h: splits at absolute multiples of 256
 * positions, merged in ascending order, so that neither chunking nor threads nor other sequences of the batch
 * change a bit. */
#include "scalar_type.h"

static real kv_load(const ln_p_kv *p, const void *layer, bool v, int64_t head, int64_t e, int64_t at) {
    if (p->q8) return (real)ln_kv_q8(p, layer, v, head, e, at);
    const int64_t i = v ? ln_kv_v_index(p, head, e, at) : ln_kv_k_index(p, head, e, at);
    if (p->dtype == LN_F32) return ((const real *)layer)[i];
    return (real)ln_bf16_f32(((const uint16_t *)layer)[i]);
}
static void kv_store(const ln_p_kv *p, void *layer, bool v, int64_t head, int64_t at, const real *x) {
    const int width = v ? p->v_dim : p->head_dim;
    for (int e = 0; p->q8 && e < width; e += LN_BLOCK_INT8) {
        float block[LN_BLOCK_INT8];
        const int n = (int)LN_MIN(width - e, LN_BLOCK_INT8);
        for (int k = 0; k < n; k++) block[k] = (float)x[e + k];
        ln_kv_put_q8(p, layer, v, head, e, at, block, n);
    }
    for (int e = 0; !p->q8 && e < width; e++) {
        const int64_t i = v ? ln_kv_v_index(p, head, e, at) : ln_kv_k_index(p, head, e, at);
        if (p->dtype == LN_F32) ((real *)layer)[i] = x[e];
        else ((uint16_t *)layer)[i] = ln_f32_bf16((float)x[e]);
    }
}

LN_KERNEL(ln_ref_kv_write) {
    const ln_p_kv *p = &c->node->p.kv;
    LN_MY_ROWS(c, c->in[1].rows, lo, hi);
    for (int64_t r = lo; r < hi; r++) {
        int64_t pos = c->step->pos[r];
        int at = (int)(pos % p->page_len);
        /* besides temps, the pool is the only memory that kernels write */
        void *layer = (void *)(uintptr_t)ln_kv_layer(p, c->in[0].data, c->step, c->step->seq[r], pos);
        const real *k = real_row(&c->in[1], r), *v = real_row(&c->in[2], r);
        for (int h = 0; h < p->n_kv_heads; h++) {
            kv_store(p, layer, false, h, at, k + h * p->head_dim);
            kv_store(p, layer, true, h, at, v + h * p->v_dim);
        }
    }
}

/* One split of one row and query head, positions [from, to) of sequence b: its maximum score, its sum of
 * weights and its unnormalised output o[Ev]. `head`: the KV head. */
static void attn_split(const ln_call *c, const ln_p_attn *p, int b, int head, const real *q, int64_t from,
                       int64_t to, real *max, real *sum, real *o) {
    const ln_p_kv *kv = &p->kv;
    real w[LN_ATTN_SPLIT], lane[16] = {0};
    const int64_t base = from / LN_ATTN_SPLIT * LN_ATTN_SPLIT;
    const bool bf = kv->dtype == LN_BF16;
    *max = -INFINITY;
    for (int64_t j = from; j < to; j++) {
        const void *layer = ln_kv_layer(kv, c->in[1].data, c->step, b, j);
        real s = 0;
        for (int i = 0; i < kv->head_dim; i++) {
            const int e = bf && (i ^ 1) < kv->head_dim ? i ^ 1 : i;
            s = real_fma(q[e], kv_load(kv, layer, false, head, e, j % kv->page_len), s);
        }
        w[j - base] = real_capped(s * (real)p->scale, p->softcap);
        /* NaN must propagate: it compares false with everything */
        *max = w[j - base] <= *max ? *max : w[j - base];
    }
    for (int e = 0; e < kv->v_dim; e++) o[e] = 0;
    for (int64_t j = from; j < to; j++) {
        const real x = real_exp(w[j - base] - *max);
        w[j - base] = bf ? real_round_bf16(x) : x;
        lane[j % 16] = lane[j % 16] + w[j - base];
    }
    for (int64_t i = from; i < to; i++) {
        const int64_t j = bf && (i ^ 1) >= from && (i ^ 1) < to ? i ^ 1 : i;
        const void *layer = ln_kv_layer(kv, c->in[1].data, c->step, b, j);
        for (int e = 0; e < kv->v_dim; e++)
            o[e] = real_fma(w[j - base], kv_load(kv, layer, true, head, e, j % kv->page_len), o[e]);
    }
    *sum = real_lanes_sum(lane);
}

#define ATTN_MAX_E 1024
LN_KERNEL(ln_ref_attn_paged) {
    const ln_p_attn *p = &c->node->p.attn;
    const ln_arg *sinks = c->node->n_in > 2 ? &c->in[2] : NULL;
    int64_t E = p->kv.head_dim, Ev = p->kv.v_dim, group = p->n_heads / p->kv.n_kv_heads;
    LN_MY_ROWS(c, c->out[0].rows, lo, hi);
    for (int64_t r = lo; r < hi; r++) {
        const int b = c->step->seq[r];
        const int64_t pos = c->step->pos[r], first = ln_attn_first(p, pos),
                      last = ln_attn_last(p, c->step, b, pos);
        for (int64_t h = 0; h < p->n_heads; h++) {
            const real *q = real_row(&c->in[0], r) + h * E;
            real *y = real_row(&c->out[0], r) + h * Ev;
            real M = -INFINITY, L = 0, O[ATTN_MAX_E] = {0}, o[ATTN_MAX_E];
            if (sinks) M = real_load(sinks->data, (ln_dtype)sinks->dtype, h), L = 1;
            for (int64_t s0 = first / LN_ATTN_SPLIT * LN_ATTN_SPLIT; s0 <= last; s0 += LN_ATTN_SPLIT) {
                real m, l;
                attn_split(c, p, b, (int)(h / group), q, LN_MAX(s0, first),
                           LN_MIN(s0 + LN_ATTN_SPLIT, last + 1), &m, &l, o);
                if (s0 <= first && !sinks) {
                    M = m, L = l;
                    memcpy(O, o, (size_t)Ev * sizeof *O);
                    continue;
                }
                real M2 = m <= M ? M : m, a = real_exp(M - M2), f = real_exp(m - M2);
                L = L * a + l * f;
                for (int64_t e = 0; e < Ev; e++) O[e] = real_fma(o[e], f, O[e] * a);
                M = M2;
            }
            for (int64_t e = 0; e < Ev; e++) y[e] = real_stored(c, O[e] / L);
        }
    }
}

#ifdef LN_REAL_FLOAT
ln_status ln_shape_kv_write(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_value *kv = ln_in(g, n, 0), *k = ln_in(g, n, 1), *v = ln_in(g, n, 2);
    const ln_p_kv *p = &n->p.kv;
    const int64_t K = p->n_kv_heads;
    if (kv->kind != LN_KIND_STATE || k->n_dims != 2 || v->n_dims != 2 || k->dims[0] != LN_DIM_T ||
        v->dims[0] != LN_DIM_T || k->dims[1] != K * p->head_dim || v->dims[1] != K * p->v_dim ||
        p->page_len % LN_KV_STEP || LN_ATTN_SPLIT % p->page_len)
        return ln_shape_fail(g, n, err,
                             "a kv state, k[T,K*E], v[T,K*Ev], pages of 32, 64, 128 or 256 positions");
    ln_shape_version(out, kv);
    return LN_OK;
}
ln_status ln_shape_attn_paged(const ln_graph *g, const ln_node *n, ln_value *out, ln_error *err) {
    const ln_value *q = ln_in(g, n, 0), *kv = ln_in(g, n, 1);
    const ln_p_attn *p = &n->p.attn;
    if (kv->kind != LN_KIND_STATE || q->n_dims != 2 || q->dims[0] != LN_DIM_T ||
        q->dims[1] != (int64_t)p->n_heads * p->kv.head_dim || p->kv.n_kv_heads < 1 ||
        p->n_heads % p->kv.n_kv_heads || p->kv.head_dim > ATTN_MAX_E || p->kv.v_dim < 1 ||
        p->kv.v_dim > ATTN_MAX_E)
        return ln_shape_fail(g, n, err, "q[T,H*E], E and Ev up to 1024, a kv state, H a multiple of K");
    if (n->n_in > 2 && (!ln_is_vector(ln_in(g, n, 2)) || ln_in(g, n, 2)->dims[0] != p->n_heads))
        return ln_shape_fail(g, n, err, "sinks[H]");
    ln_shape_like(out, q->dims[0], (int64_t)p->n_heads * p->kv.v_dim);
    return LN_OK;
}

static double kv_bytes(const ln_p_kv *p, double positions) {
    const double bytes = p->q8 ? 1 + 1.0 / LN_BLOCK_INT8 : ln_dtype_bytes(p->dtype);
    return (double)p->n_kv_heads * (p->head_dim + p->v_dim) * bytes * positions;
}
/* Sizes of attention for one sequence of n rows at positions depth .. depth + n - 1: *pairs counts the pairs
 * of a row and a position that it attends to, *positions the positions that some row attends to. window 0:
 * unlimited. */
static void seen(int64_t window, int64_t depth, int64_t n, double *pairs, double *positions) {
    int64_t most = window ? window : INT64_MAX,
            growing = LN_MIN(n, LN_MAX(0, most - depth)); /* rows that attend to all earlier positions */
    *pairs = (double)growing * (double)depth + 0.5 * (double)growing * (double)(growing + 1) +
             (double)(n - growing) * (double)window;
    *positions = (double)(window ? LN_MIN(depth + n, window + n - 1) : depth + n);
}
/* 2 (E + Ev) operations for each head, row and position that the row attends to; each page is read once for
 * all rows of a sequence. */
ln_cost ln_cost_attn_paged(const ln_program *p, const ln_pnode *n, const ln_bounds *live, int64_t depth) {
    const ln_p_attn *a = &n->p.attn;
    ln_cost c = ln_cost_of_operands(p, n, live);
    const int64_t rows = live->T / LN_MAX(live->B, 1);
    double pairs, positions;
    seen(a->window, depth, rows, &pairs, &positions);
    if (a->both_ways) pairs = 2 * pairs - (double)rows; /* each row attends to itself once */
    c.flops = 2.0 * a->n_heads * (a->kv.head_dim + a->kv.v_dim) * pairs * (double)live->B;
    c.kv_bytes = kv_bytes(&a->kv, positions * (double)live->B);
    c.bytes += c.kv_bytes;
    return c;
}
ln_cost ln_cost_kv_write(const ln_program *p, const ln_pnode *n, const ln_bounds *live, int64_t depth) {
    ln_cost c = ln_cost_of_operands(p, n, live);
    (void)depth;
    c.bytes += kv_bytes(&n->p.kv, (double)live->T);
    return c;
}
#endif
