/* Gradients of row-wise ops, and the row-wise ops of training: part of rowwise.inc.h, whose rules it follows.
 * The arithmetic is that of ops/norm_op.c, ops/pointwise_ops.c and ops/matmul_op.c. */
static void load_run(const ln_call *c) {
    const ln_arg *x = &c->in[0];
    PARTITION_ROWS(c, lo, hi);
    for (int64_t r = lo; r < hi; r++) {
        float *y = row_out(c, r);
        if (x->dtype == LN_F32) memcpy(y, (const float *)x->data + r * x->cols, (size_t)x->cols * sizeof *y);
        else
            for (int64_t i = 0; i < x->cols; i++)
                y[i] = ln_num_load(x->data, (ln_dtype)x->dtype, r * x->cols + i);
    }
}
static void scale_run(const ln_call *c) {
    const float by = c->node->p.scale.factor;
    PARTITION_ROWS(c, lo, hi);
    for (int64_t r = lo; r < hi; r++) {
        const float *x = row_in(c, 0, r);
        float *y = row_out(c, r);
#pragma GCC ivdep
        for (int64_t i = 0; i < c->out[0].cols; i++) y[i] = x[i] * by;
    }
}
INLINE_ROW silu_back_row(const float *x, const float *dy, float *dx, int64_t n) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) {
        const float s = 1 / (1 + ln_expf(-x[i]));
        dx[i] = dy[i] * (s * (1 + x[i] * (1 - s)));
    }
}
INLINE_ROW gelu_back_row(const float *x, const float *dy, float *dx, int64_t n) {
    const float once = (float)1.5957691216057308, cube = (float)0.0713548162726;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) {
        const float a = x[i], s = 1 / (1 + ln_expf(-(a * (once + cube * a * a))));
        dx[i] = dy[i] * (s + a * s * (1 - s) * (once + 3 * cube * a * a));
    }
}
INLINE_ROW relu2_back_row(const float *x, const float *dy, float *dx, int64_t n) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) dx[i] = dy[i] * (x[i] <= 0 ? 0 : 2 * x[i]);
}
static void act_back_run(const ln_call *c) {
    PARTITION_ROWS(c, lo, hi);
    for (int64_t r = lo; r < hi; r++)
        if (c->node->p.gate.act == LN_ACT_RELU2)
            relu2_back_row(row_in(c, 0, r), row_in(c, 1, r), row_out(c, r), c->out[0].cols);
        else if (c->node->p.gate.act == LN_ACT_SILU)
            silu_back_row(row_in(c, 0, r), row_in(c, 1, r), row_out(c, r), c->out[0].cols);
        else gelu_back_row(row_in(c, 0, r), row_in(c, 1, r), row_out(c, r), c->out[0].cols);
}
/* One group: g = dy (w + offset), without a weight dy, is in dx first. */
INLINE_ROW norm_back_group(const float *x, const float *dy, const void *w, const ln_dtype dtype, float *dx,
                           int64_t n, const ln_p_norm *p) {
    float sum, scale, lane[16] = {0};
    sum_squares(1, x, 0, n, &sum);
    scale = 1 / sqrtf(sum / (float)n + p->eps);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) dx[i] = w ? dy[i] * (ln_num_load(w, dtype, i) + p->offset) : dy[i];
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int l = 0; l < 16; l++) lane[l] = fmaf(dx[i + l], x[i + l], lane[l]);
    for (int l = 0; i + l < n; l++) lane[l] = fmaf(dx[i + l], x[i + l], lane[l]);
    for (int half = 8; half > 0; half /= 2)
        for (int l = 0; l < half; l++) lane[l] = lane[l] + lane[l + half];
    const float mean = lane[0] / (float)n * scale * scale;
#pragma GCC ivdep
    for (int64_t k = 0; k < n; k++) dx[k] = scale * (dx[k] - x[k] * mean);
}
static void rmsnorm_back_run(const ln_call *c) {
    const ln_arg *w = &c->in[1];
    const bool weighted = c->node->n_in > 2;
    const int64_t n = weighted ? w->cols : c->node->p.norm.width, groups = c->in[0].cols / n;
    PARTITION_ROWS(c, lo, hi);
    for (int64_t r = lo; r < hi; r++)
        for (int64_t g = 0; g < groups; g++) {
            const float *x = row_in(c, 0, r) + g * n, *dy = row_in(c, c->node->n_in - 1, r) + g * n;
            float *dx = row_out(c, r) + g * n;
            if (!weighted) norm_back_group(x, dy, NULL, LN_F32, dx, n, &c->node->p.norm);
            else if (w->dtype == LN_F32) norm_back_group(x, dy, w->data, LN_F32, dx, n, &c->node->p.norm);
            else if (w->dtype == LN_BF16) norm_back_group(x, dy, w->data, LN_BF16, dx, n, &c->node->p.norm);
            else norm_back_group(x, dy, w->data, LN_F16, dx, n, &c->node->p.norm);
        }
}
