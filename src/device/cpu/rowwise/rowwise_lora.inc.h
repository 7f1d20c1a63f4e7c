/* Adapters (part of rowwise.inc.h): t = s (A x) and y = y + (B t + bias), by the adapter of each row
 * (ops/lora_op.c has the order of the sums, ops/lora_slot.h the pool).
 *
 *     lora_down   for row, for AT_ONCE rows of A:   16 lanes of each, one load of x for all
 *     lora_up     for row, for 4 vectors of y:      a chain over the rank
 *
 * Rows of one adapter mostly follow each other, so that A and B of a matrix stay in L2 between them. */

INLINE vf lora_load(const void *p, int64_t i, const bool bf16) {
    return bf16 ? vf_load_bf16((const uint16_t *)p + i) : vf_load((const float *)p + i);
}
INLINE float lora_value(const void *p, int64_t i, const bool bf16) {
    return bf16 ? ln_bf16_f32(((const uint16_t *)p)[i]) : ((const float *)p)[i];
}

/* t[j] = scale[j] (A[j] x) for m <= M rows of A, from row j on. */
INLINE void lora_dots(const int M, const void *x, const bool x_bf16, const ln_lora_slot *s, int64_t j,
                      int64_t n, const bool bf16, float *t) {
    enum { VECTORS = 16 / VL, MOST = 4 };
    vf sum[MOST][VECTORS];
    int64_t i = 0;
    for (int m = 0; m < M; m++)
        for (int v = 0; v < VECTORS; v++) sum[m][v] = vf_zero();
    for (; i + 16 <= n; i += 16)
        for (int v = 0; v < VECTORS; v++) {
            const vf a = lora_load(x, i + v * VL, x_bf16);
#pragma GCC unroll 4
            for (int m = 0; m < M; m++)
                sum[m][v] = vf_fma(a, lora_load(s->a, (j + m) * n + i + v * VL, bf16), sum[m][v]);
        }
    for (int m = 0; m < M; m++) {
        if (i < n) { /* lanes of the last, incomplete group */
            float lanes[16];
            for (int v = 0; v < VECTORS; v++) vf_store(lanes + v * VL, sum[m][v]);
            for (int64_t k = i; k < n; k++)
                lanes[k - i] =
                    fmaf(lora_value(x, k, x_bf16), lora_value(s->a, (j + m) * n + k, bf16), lanes[k - i]);
            for (int v = 0; v < VECTORS; v++) sum[m][v] = vf_load(lanes + v * VL);
        }
        t[j + m] = vf_reduce_add16(sum[m]) * s->scale[j + m];
    }
}
INLINE void lora_down_row(const void *x, const bool x_bf16, const ln_lora_slot *s, int64_t n, const bool bf16,
                          float *t) {
    enum { AT_ONCE = 4 };
    int64_t j = 0;
    for (; j + AT_ONCE <= s->rank; j += AT_ONCE) lora_dots(AT_ONCE, x, x_bf16, s, j, n, bf16, t);
    for (; j < s->rank; j++) lora_dots(1, x, x_bf16, s, j, n, bf16, t);
}
INLINE int64_t lora_expert(const ln_call *c, int ids, int64_t r) {
    return c->node->p.lora.n_experts ? (int64_t)row_in(c, ids, r)[0] : 0;
}
static void lora_down_run(const ln_call *c) {
    const ln_p_lora *p = &c->node->p.lora;
    const bool x_bf16 = c->in[0].dtype == LN_BF16;
    PARTITION_ROWS(c, lo, hi);
    for (int64_t r = lo; r < hi; r++) {
        const ln_lora_slot s = ln_lora_slot_of(c, 1, r, lora_expert(c, 2, r));
        const void *x =
            (const char *)c->in[0].data + ln_lora_row(p, r) * c->in[0].pitch * ln_dtype_bytes(c->in[0].dtype);
        float *t = row_out(c, r);
        memset(t + s.rank, 0, (size_t)(p->max_rank - s.rank) * sizeof *t);
        if (p->dtype == LN_BF16 && x_bf16) lora_down_row(x, true, &s, p->n_in, true, t);
        else if (p->dtype == LN_BF16) lora_down_row(x, false, &s, p->n_in, true, t);
        else if (x_bf16) lora_down_row(x, true, &s, p->n_in, false, t);
        else lora_down_row(x, false, &s, p->n_in, false, t);
    }
}

/* y[d] = x[d] + (B t + bias + gain x)[d] for M vectors from output d on. */
INLINE void lora_sums(const int M, const float *x, const float *t, const ln_lora_slot *s, int64_t d,
                      int64_t n, const bool bf16, float *y) {
    enum { MOST = 4 };
    vf sum[MOST];
    for (int m = 0; m < M; m++) sum[m] = vf_zero();
    for (int64_t j = 0; j < s->rank; j++) {
        const vf by = vf_set1(t[j]);
#pragma GCC unroll 4
        for (int m = 0; m < M; m++) sum[m] = vf_fma(by, lora_load(s->b, j * n + d + m * VL, bf16), sum[m]);
    }
    for (int m = 0; m < M; m++) {
        const vf from = vf_load(x + d + m * VL);
        if (s->bias) sum[m] = vf_add(sum[m], vf_load(s->bias + d + m * VL));
        if (s->gain) sum[m] = vf_fma(vf_load(s->gain + d + m * VL), from, sum[m]);
        vf_store(y + d + m * VL, vf_add(from, sum[m]));
    }
}
INLINE void lora_up_row(const float *x, const float *t, const ln_lora_slot *s, int64_t n, const bool bf16,
                        float *y) {
    int64_t d = 0;
    for (; d + 4 * VL <= n; d += 4 * VL) lora_sums(4, x, t, s, d, n, bf16, y);
    for (; d + VL <= n; d += VL) lora_sums(1, x, t, s, d, n, bf16, y);
    for (; d < n; d++) {
        float sum = 0;
        for (int64_t j = 0; j < s->rank; j++) sum = fmaf(t[j], lora_value(s->b, j * n + d, bf16), sum);
        if (s->bias) sum = sum + s->bias[d];
        if (s->gain) sum = fmaf(s->gain[d], x[d], sum);
        y[d] = x[d] + sum;
    }
}
static void lora_up_run(const ln_call *c) {
    const ln_p_lora *p = &c->node->p.lora;
    PARTITION_ROWS(c, lo, hi);
    for (int64_t r = lo; r < hi; r++) {
        const ln_lora_slot s = ln_lora_slot_of(c, 2, r, lora_expert(c, 3, r));
        const float *x = row_in(c, 0, r), *t = row_in(c, 1, r);
        float *y = row_out(c, r);
        if (s.rank == 0 && !s.bias && !s.gain) {
            if (x != y) memcpy(y, x, (size_t)p->n_out * sizeof *y);
        } else if (p->dtype == LN_BF16) lora_up_row(x, t, &s, p->n_out, true, y);
        else lora_up_row(x, t, &s, p->n_out, false, y);
    }
}
